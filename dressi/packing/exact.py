"""GLSL of sums that do not depend on the order of additions: fixed point in a storage buffer.

In: the name of a buffer, a type, the number of components in the buffer. Out: function texts. A
component is a 96-bit integer in units of 2^-64, so it holds what lies between 5e-20 and 1e9; what
is larger, infinite or NaN counts as 2^30. Integer additions commute: whoever comes first, the sum
has the same bits.

Words of a buffer of n components: pairs (low, middle) of all components, their high words, and one
word that tells whether any high word was touched. Most numbers change the pair only: one 64-bit
addition where the device has it, and high words are hardly ever read.

All words start at BIAS, the middle of their range, instead of 0. So a sum that changes its sign
carries nothing into the next word, and a word less BIAS is a signed digit.
"""

from __future__ import annotations

from dressi.ad.vtype import VType

WORDS = 3
"""Words of a component in the buffer."""
BIAS = 0x80000000
"""What every word holds before the first addition."""
INT64 = ("GL_EXT_shader_explicit_arithmetic_types_int64", "GL_EXT_shader_atomic_int64")
"""Extensions of shaders that add, or read, pairs as 64-bit words."""

# A float has 24 bits and scaling by powers of two is exact, so the words of |v| are exact too, down
# to 2^-64. What is carried to the high word is returned, not added here: CPU drivers run both sides
# of every branch, and one branch a number of components is cheaper than one a component.
_ONE = """uint %(name)s_word(float a) {
  return a >= 2147483648.0 ? uint(int(a - 2147483648.0)) | 0x80000000u : uint(int(a));
}
uint %(name)s_one(int i, float v) {
  precise float a = abs(v) < 1073741824.0 ? abs(v) : 1073741824.0;
  precise float high = floor(a), rest = (a - high) * 4294967296.0, middle = floor(rest);
  precise float low = floor((rest - middle) * 4294967296.0);
  uvec3 w = uvec3(%(name)s_word(low), %(name)s_word(middle), uint(int(high)));
  bool minus = v < 0.0;
%(pair)s
  return minus ? -w.z : w.z;
}"""

_PAIR = """  uint64_t m = packUint2x32(w.xy), old = atomicAdd(%(array)s_pairs[i], minus ? -m : m);
  w.z += uint(minus ? old < m : old + m < old);"""

_TWO_WORDS = """  uint carry = 0u, old;
  if (w.x != 0u) {
    old = atomicAdd(%(array)s[2 * i], minus ? -w.x : w.x);
    carry = uint(minus ? old < w.x : old + w.x < old);
  }
  w.y += carry; carry = uint(w.y < carry);
  if (w.y != 0u) {
    old = atomicAdd(%(array)s[2 * i + 1], minus ? -w.y : w.y);
    carry += uint(minus ? old < w.y : old + w.y < old);
  }
  w.z += carry;"""

_HIGH = """if (%(array)s[%(flag)d] == %(bias)du) atomicOr(%(array)s[%(flag)d], 1u);"""

_SUM = """float %(name)s_pair(int i) {
  ivec2 w = ivec2(%(pair)s ^ %(bias)du);
  precise float v = (float(w.y) + float(w.x) / 4294967296.0) / 4294967296.0;
  return v;
}"""


def n_words(n: int) -> int:
    """Words of a buffer of n components."""
    return WORDS * n + 1


def pairs(array: str, declaration: str) -> str:
    """The declaration of a buffer once more, of which ``array_pairs`` are 64-bit words. A shader
    uses each word through one of the two only."""
    text = declaration.partition("//")[0].rstrip()
    return text.replace("buffer Buffer", "buffer Pairs").replace(
        f"uint {array}[]", f"uint64_t {array}_pairs[]"
    )


def exact_adder(name: str, array: str, t: VType, n: int, wide: bool) -> list[str]:
    """Functions that end with ``void name(int index, T value)``. Exact zeros are skipped. n: the
    components of the buffer; wide: whether the device adds 64-bit words."""
    marks = {"name": name, "array": array, "flag": WORDS * n, "bias": BIAS}
    marks["pair"] = (_PAIR if wide else _TWO_WORDS) % marks
    functions = [_ONE % marks]
    if t.is_matrix or t.n > 1:
        # Of one column.
        lines = [
            f"  if (v[{k}] != 0.0) high[{k}] = {name}_one(i + {k}, v[{k}]);" for k in range(t.n)
        ]
        first = "".join(f"high[{k}] != 0u ? {k} : " for k in range(t.n - 1)) + str(t.n - 1)
        functions.append(
            f"void {name}_column(int i, vec{t.n} v) {{\n"
            f"  uvec{t.n} high = uvec{t.n}(0u);\n" + "\n".join(lines) + "\n"
            f"  while (high != uvec{t.n}(0u)) {{\n"
            f"    int k = {first};\n"
            f"    {_HIGH % marks}\n"
            f"    atomicAdd({array}[{2 * n} + i + k], high[k]);\n"
            "    high[k] = 0u;\n  }\n}"
        )
    if t.is_matrix:
        body = [f"  {name}_column(i + {c * t.n}, v[{c}]);" for c in range(t.n)]
    elif t.n > 1:
        body = [f"  {name}_column(i, v);"]
    else:
        body = [
            f"  uint high = 0u;\n  if (v != 0.0) high = {name}_one(i, v);",
            f"  if (high != 0u) {{ {_HIGH % marks} atomicAdd({array}[{2 * n} + i], high); }}",
        ]
    head = f"void {name}(int i, {t.glsl} v) {{\n  i *= {t.n_words};\n"
    return [*functions, head + "\n".join(body) + "\n}"]


def exact_sum(name: str, array: str, t: VType, n: int, wide: bool) -> str:
    """Functions that end with ``T name(int index)``, the sum. n: the components of the buffer;
    wide: whether the device has 64-bit words. Rounded to float32, within two units of the last
    place; the same bits from the same words."""
    pair = f"uvec2({array}[2 * i], {array}[2 * i + 1])"
    if wide:
        pair = f"unpackUint2x32({array}_pairs[i])"
    one = _SUM % {"name": name, "pair": pair, "bias": BIAS}
    parts = ", ".join(f"{name}_pair(i + {k})" for k in range(t.n_words))
    high = f"float(int({array}[{2 * n} + i + k] ^ {BIAS}u))"
    target = f"v[k / {t.n}][k % {t.n}]" if t.is_matrix else "v[k]" if t.n > 1 else "v"
    return (
        f"{one}\n{t.glsl} {name}(int i) {{\n"
        f"  i *= {t.n_words};\n"
        f"  precise {t.glsl} v = {t.glsl}({parts});\n"
        f"  bool any_high = {array}[{WORDS * n}] != {BIAS}u;\n"
        f"  for (int k = 0; any_high && k < {t.n_words}; k++) {target} += {high};\n"
        "  return v;\n}"
    )
