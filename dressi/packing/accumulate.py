"""GLSL that adds into storage buffers from many invocations, and reads the sums.

In: the name of a buffer, a type, the way. Out: function texts. Ways: ATOMIC float addition where
the device has it; LOOP, compare-and-swap, where it has not; EXACT, whose result does not depend on
the order of additions: a component is a 96-bit integer in three words, the lowest first, in units
of 2^-64, so it holds what lies between 5e-20 and 1e9. What is larger, infinite or NaN counts as
2^30.
"""

from __future__ import annotations

from dressi.ad.vtype import VType

ATOMIC, LOOP, EXACT = "atomic", "loop", "exact"
WORDS = {ATOMIC: 1, LOOP: 1, EXACT: 3}
"""Words of a component in the buffer."""
_AXES = "xyzw"

_LOOP = """void %(name)s_one(int i, float v) {
  uint seen = %(array)s[i], old;
  do { old = seen; seen = atomicCompSwap(%(array)s[i], old, \
floatBitsToUint(uintBitsToFloat(old) + v)); } while (seen != old);
}"""

# A float has 24 bits and scaling by powers of two is exact, so the words of |v| are exact too, down
# to 2^-64. Integer additions commute: whoever comes first, the sum has the same bits. A carry goes
# to the next word as soon as it arises.
_EXACT = """uint %(name)s_word(float a) {
  return a >= 2147483648.0 ? uint(int(a - 2147483648.0)) | 0x80000000u : uint(int(a));
}
void %(name)s_one(int i, float v) {
  precise float a = abs(v) < 1073741824.0 ? abs(v) : 1073741824.0;
  precise float high = floor(a), rest = (a - high) * 4294967296.0, middle = floor(rest);
  precise float low = floor((rest - middle) * 4294967296.0);
  uvec3 w = uvec3(%(name)s_word(low), %(name)s_word(middle), %(name)s_word(high));
  if (v < 0.0) {
    w = ~w; w.x += 1u;
    if (w.x == 0u) { w.y += 1u; if (w.y == 0u) w.z += 1u; }
  }
  uint carry = 0u;
  if (w.x != 0u) { uint old = atomicAdd(%(array)s[i], w.x); carry = uint(old + w.x < old); }
  w.y += carry; carry = uint(w.y < carry);
  if (w.y != 0u) { uint old = atomicAdd(%(array)s[i + 1], w.y); carry += uint(old + w.y < old); }
  w.z += carry;
  if (w.z != 0u) atomicAdd(%(array)s[i + 2], w.z);
}"""

_SUM = """float %(name)s(int i) {
  uvec3 w = uvec3(%(array)s[i], %(array)s[i + 1], %(array)s[i + 2]);
  bool negative = w.z >= 0x80000000u;
  if (negative) {
    w = ~w; w.x += 1u;
    if (w.x == 0u) { w.y += 1u; if (w.y == 0u) w.z += 1u; }
  }
  precise float v = float(w.z) + (float(w.y) + float(w.x) / 4294967296.0) / 4294967296.0;
  return negative ? -v : v;
}"""


def adder(name: str, array: str, t: VType, way: str) -> list[str]:
    """Functions that end with ``void name(int index, T value)``. Exact zeros are skipped."""
    functions = []
    one = f"atomicAdd({array}[i + %d], %s);"
    if way != ATOMIC:
        functions.append((_LOOP if way == LOOP else _EXACT) % {"name": name, "array": array})
        one = f"{name}_one(i + %d, %s);"
    lines = []
    if way == LOOP and t.n_words > 1:
        # One compare-and-swap loop in the text, not one a component: a CPU driver takes minutes to
        # compile a shader with thirty of them.
        value = f"v[k / {t.n}][k % {t.n}]" if t.is_matrix else "v[k]"
        body = f"if ({value} != 0.0) {name}_one(i + k, {value});"
        lines.append(f"  for (int k = 0; k < {t.n_words}; k++) {body}")
    for k in range(t.n_words if not lines else 0):
        if t.is_matrix:
            value = f"v[{k // t.n}][{k % t.n}]"
        else:
            value = "v" if t.n == 1 else f"v.{_AXES[k]}"
        lines.append(f"  if ({value} != 0.0) {one % (k * WORDS[way], value)}")
    step = t.n_words * WORDS[way]
    functions.append(
        f"void {name}(int i, {t.glsl} v) {{\n  i *= {step};\n" + "\n".join(lines) + "\n}"
    )
    return functions


def exact_sum(name: str, array: str) -> str:
    """``float name(int i)``: the sum whose lowest word is word i."""
    return _SUM % {"name": name, "array": array}
