"""GLSL of the sum over one block of an image or a table, whose loads overlap.

In: where the block begins, how large the image is. Out: statements. Pixels are added row by row in
any case; but one load after the other takes the memory's latency each time. So a block that lies
wholly inside is loaded sixteen pixels at a time, before they are added, in the same order.
"""

from __future__ import annotations

SIDE = 8
"""Pixels on a side of a block; a block of a table has as many pixels in one row."""
TOGETHER = 16
"""Pixels that are loaded together."""


def block_glsl(total: str, at: str, layer: str, size: tuple[int, int]) -> list[str]:
    """Statements that add the pixels of input 0 in a block to a variable.

    total: its name. at: GLSL of the block's number, an ivec2 (an int for a table). layer: GLSL.
    size: of the image, (w, 1) for a table.
    """
    w, h = size
    if h == 1:
        n, whole = SIDE * SIDE, f"({at} + 1) * {SIDE * SIDE} <= {w}"
        begin, rest = f"for (int j = {at} * {n}; j < ({at} + 1) * {n}; j += {TOGETHER}) {{", w % n
        pixels = [f"ivec2(j + {k}, 0)" for k in range(TOGETHER)]
        loops = [f"for (int i = {at} * {n}; i < min(({at} + 1) * {n}, {w}); i++)"]
        one = "ivec2(i, 0)"
    else:
        x, y = f"{at}.x * {SIDE}", f"{at}.y * {SIDE}"
        whole = f"{x} + {SIDE} <= {w} && {y} + {SIDE} <= {h}"
        rows = TOGETHER // SIDE
        begin = f"for (int j = {y}; j < {y} + {SIDE}; j += {rows}) {{"
        pixels = [f"ivec2({x} + {k % SIDE}, j + {k // SIDE})" for k in range(TOGETHER)]
        loops = [
            f"for (int j = {y}; j < min({y} + {SIDE}, {h}); j++)",
            f"for (int i = {x}; i < min({x} + {SIDE}, {w}); i++)",
        ]
        one, rest = "ivec2(i, j)", w % SIDE or h % SIDE
    values = ", ".join(f"a{k} = {{fetch0}}({p}, {layer})" for k, p in enumerate(pixels))
    lines = [
        f"if ({whole}) {begin}",
        f"  {{T}} {values};",
        "  " + " ".join(f"{total} += a{k};" for k in range(TOGETHER)),
        "}",
    ]
    if rest:
        lines += ["else", *loops, f"  {total} += {{fetch0}}({one}, {layer});"]
    return lines
