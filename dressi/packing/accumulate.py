"""GLSL that adds into storage buffers from many invocations.

In: the name of a buffer, a type, a mode. Out: function texts. Modes: ATOMIC float addition where
the device has it; LOOP, compare-and-swap, where it has not; EXACT, whose result does not depend on
the order of additions: see ``exact``. In dispatches, where neighbouring pixels add to the same row,
the lanes of a subgroup add up their values first (``reduced``): a thousand atomics on one address
take a thousand turns.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressi.ad.template import expand_glsl
from dressi.ad.vtype import VType

ATOMIC, LOOP, EXACT = "atomic", "loop", "exact"
_AXES = "xyzw"

_LOOP = """void {name}_one(int i, float v) {
  uint seen = {array}[i], old;
  do { old = seen; seen = atomicCompSwap({array}[i], old, \
floatBitsToUint(uintBitsToFloat(old) + v)); } while (seen != old);
}"""


def _word(t: VType, k: int) -> str:
    """GLSL of word k of a value v: a matrix is stored column by column."""
    if t.is_matrix:
        return f"v[{k // t.n}][{k % t.n}]"
    return "v" if t.n == 1 else f"v.{_AXES[k]}"


def adder(name: str, array: str, t: VType, mode: str) -> list[str]:
    """Functions that end with ``void name(int index, T value)``. Exact zeros are skipped. mode:
    ATOMIC or LOOP."""
    if mode == LOOP and t.n_words == 1:
        lines = [f"  if (v != 0.0) {name}_one(i + 0, v);"]
    elif mode == LOOP:
        # One compare-and-swap loop in the text, not one per component: a CPU driver takes minutes
        # to compile a shader with thirty of them.
        value = f"v[k / {t.n}][k % {t.n}]" if t.is_matrix else "v[k]"
        body = f"if ({value} != 0.0) {name}_one(i + k, {value});"
        lines = [f"  for (int k = 0; k < {t.n_words}; k++) {body}"]
    else:
        values = [(k, _word(t, k)) for k in range(t.n_words)]
        lines = [f"  if ({v} != 0.0) atomicAdd({array}[i + {k}], {v});" for k, v in values]
    one = [expand_glsl(name, _LOOP, name=name, array=array)] if mode == LOOP else []
    head = f"void {name}(int i, {t.glsl} v) {{\n  i *= {t.n_words};\n"
    return [*one, head + "\n".join(lines) + "\n}"]


ROUNDS = 3
"""Rows that the lanes of a subgroup add up together; lanes with another row add for themselves."""


def reducer(name: str, array: str, t: VType) -> str:
    """``void name(int index, T value)``: all lanes that come here add to one row; one atomic a
    component for them together. Exact zeros take no part."""
    lines = []
    for k in range(t.n_words):
        value = _word(t, k)
        lines.append(
            f"  if ({value} != 0.0) {{ float s = subgroupAdd({value}); "
            f"if (subgroupElect()) atomicAdd({array}[i + {k}], s); }}"
        )
    return f"void {name}(int i, {t.glsl} v) {{\n  i *= {t.n_words};\n" + "\n".join(lines) + "\n}"


_REDUCED = """  {
    int row = {row};
    bool left = row >= 0 && row < {n_rows} && ({any_left});
    row += {base};
    for (int k = 0; k < {rounds} && left; k++)
      if (row == subgroupBroadcastFirst(row)) { {together} left = false; }
    if (left) { {alone} }
  }"""


def reduced(row: str, n_rows: str, base: str, adds: Sequence[tuple[str, str, str, VType]]) -> str:
    """A block that adds several values to the row of one number, lanes with the same row together.

    row, n_rows: GLSL of numbers; outside of [0, n_rows) nothing is added. base: GLSL of what is
    added to row. adds: (reducer, adder, value, its type) each.
    """
    return expand_glsl(
        "reduced",
        _REDUCED,
        row=row,
        n_rows=n_rows,
        base=base,
        rounds=ROUNDS,
        any_left=" || ".join(f"{value} != {t.glsl}(0)" for _, _, value, t in adds),
        together=" ".join(f"{reduce}(row, {value});" for reduce, _, value, _ in adds),
        alone=" ".join(f"{add}(row, {value});" for _, add, value, _ in adds),
    )
