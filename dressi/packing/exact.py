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

from dressi.ad.template import expand_glsl
from dressi.ad.vtype import VType

WORDS = 3
"""Words of a component in the buffer."""
BIAS = 0x80000000
"""What every word holds before the first addition."""
INT64 = ("GL_EXT_shader_explicit_arithmetic_types_int64", "GL_EXT_shader_atomic_int64")
"""Extensions of shaders that add, or read, pairs as 64-bit words."""

# A float has 24 bits and scaling by powers of two is exact, so the words of |v| are exact too, down
# to 2^-64. What is carried to the high word is returned, not added here: CPU drivers run both sides
# of every branch, and one branch per value is cheaper than one per component.
_ONE = """uint {name}_word(float a) {
  return a >= 2147483648.0 ? uint(int(a - 2147483648.0)) | 0x80000000u : uint(int(a));
}
uint {name}_one(int i, float v) {
  precise float a = abs(v) < 1073741824.0 ? abs(v) : 1073741824.0;
  precise float high = floor(a), rest = (a - high) * 4294967296.0, middle = floor(rest);
  precise float low = floor((rest - middle) * 4294967296.0);
  uvec3 w = uvec3({name}_word(low), {name}_word(middle), uint(int(high)));
  bool minus = v < 0.0;
{pair}
  return minus ? -w.z : w.z;
}"""

_PAIR = """  uint64_t m = packUint2x32(w.xy), old = atomicAdd({array}_pairs[i], minus ? -m : m);
  w.z += uint(minus ? old < m : old + m < old);"""

_TWO_WORDS = """  uint carry = 0u, old;
  if (w.x != 0u) {
    old = atomicAdd({array}[2 * i], minus ? -w.x : w.x);
    carry = uint(minus ? old < w.x : old + w.x < old);
  }
  w.y += carry; carry = uint(w.y < carry);
  if (w.y != 0u) {
    old = atomicAdd({array}[2 * i + 1], minus ? -w.y : w.y);
    carry += uint(minus ? old < w.y : old + w.y < old);
  }
  w.z += carry;"""

_COLUMN = """void {name}_column(int i, vec{n} v) {
  uvec{n} high = uvec{n}(0u);
{ones}
  while (high != uvec{n}(0u)) {
    int k = {first};
    {touch}
    atomicAdd({array}[{high_words} + i + k], high[k]);
    high[k] = 0u;
  }
}"""

_SUM = """float {name}_pair(int i) {
  ivec2 w = ivec2({pair} ^ {bias}u);
  precise float v = (float(w.y) + float(w.x) / 4294967296.0) / 4294967296.0;
  return v;
}
{type} {name}(int i) {
  i *= {n_words};
  precise {type} v = {type}({parts});
  bool any_high = {flag} != {bias}u;
  for (int k = 0; any_high && k < {n_words}; k++) {target} += {high};
  return v;
}"""


def n_words(n: int) -> int:
    """Words of a buffer of n components."""
    return WORDS * n + 1


def exact_adder(name: str, array: str, t: VType, n: int, wide: bool) -> list[str]:
    """Functions that end with ``void name(int index, T value)``. Exact zeros are skipped. n: the
    components of the buffer; wide: whether the device adds 64-bit words."""
    pair = expand_glsl(name, _PAIR if wide else _TWO_WORDS, array=array)
    functions = [expand_glsl(name, _ONE, name=name, pair=pair)]
    flag = f"{array}[{WORDS * n}]"
    touch = f"if ({flag} == {BIAS}u) atomicOr({flag}, 1u);"
    if t.is_matrix or t.n > 1:
        ones = [
            f"  if (v[{k}] != 0.0) high[{k}] = {name}_one(i + {k}, v[{k}]);" for k in range(t.n)
        ]
        column = expand_glsl(
            name,
            _COLUMN,
            name=name,
            array=array,
            n=t.n,
            ones="\n".join(ones),
            first="".join(f"high[{k}] != 0u ? {k} : " for k in range(t.n - 1)) + str(t.n - 1),
            touch=touch,
            high_words=2 * n,
        )
        functions.append(column)
    if t.is_matrix:
        body = [f"  {name}_column(i + {c * t.n}, v[{c}]);" for c in range(t.n)]
    elif t.n > 1:
        body = [f"  {name}_column(i, v);"]
    else:
        body = [
            f"  uint high = 0u;\n  if (v != 0.0) high = {name}_one(i, v);",
            f"  if (high != 0u) {{ {touch} atomicAdd({array}[{2 * n} + i], high); }}",
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
    parts = ", ".join(f"{name}_pair(i + {k})" for k in range(t.n_words))
    high = f"float(int({array}[{2 * n} + i + k] ^ {BIAS}u))"
    target = f"v[k / {t.n}][k % {t.n}]" if t.is_matrix else "v[k]" if t.n > 1 else "v"
    return expand_glsl(
        name,
        _SUM,
        name=name,
        pair=pair,
        bias=BIAS,
        type=t.glsl,
        n_words=t.n_words,
        parts=parts,
        flag=f"{array}[{WORDS * n}]",
        target=target,
        high=high,
    )
