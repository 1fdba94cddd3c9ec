"""GLSL that adds into storage buffers from many invocations.

In: the name of a buffer, a type, the way. Out: function texts. Ways: ATOMIC float addition where
the device has it; LOOP, compare-and-swap, where it has not; EXACT, whose result does not depend on
the order of additions: see ``exact``.
"""

from __future__ import annotations

from dressi.ad.vtype import VType

ATOMIC, LOOP, EXACT = "atomic", "loop", "exact"
_AXES = "xyzw"

_LOOP = """void %(name)s_one(int i, float v) {
  uint seen = %(array)s[i], old;
  do { old = seen; seen = atomicCompSwap(%(array)s[i], old, \
floatBitsToUint(uintBitsToFloat(old) + v)); } while (seen != old);
}"""


def adder(name: str, array: str, t: VType, way: str) -> list[str]:
    """Functions that end with ``void name(int index, T value)``. Exact zeros are skipped. way:
    ATOMIC or LOOP."""
    functions = []
    one = f"atomicAdd({array}[i + %d], %s);"
    if way == LOOP:
        functions.append(_LOOP % {"name": name, "array": array})
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
        lines.append(f"  if ({value} != 0.0) {one % (k, value)}")
    functions.append(
        f"void {name}(int i, {t.glsl} v) {{\n  i *= {t.n_words};\n" + "\n".join(lines) + "\n}"
    )
    return functions
