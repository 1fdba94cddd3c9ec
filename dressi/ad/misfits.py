"""Shapes of arrays that are likely another convention's.

In: a Variable and the shape of an array that does not fit it. Out: a line for the error, or ''.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dressi.ad.graph import Variable


def misfit(v: Variable, shape: tuple[int, ...]) -> str:
    """Return what an array of this shape looks like, as a hint; '' where it looks like nothing."""
    (w, h), n, tail = v.size, v.layers, v.vtype.tail
    if len(shape) == 4 and shape[0] == n:
        shape = shape[1:]
    if v.vtype.is_matrix:
        return _of_matrix(n, tail, shape)
    if v.is_table:
        return _of_table(v, shape)
    if len(shape) not in (2, 3) or v.is_uniform_sized:
        return ""
    if shape == (tail[0], h, w):
        return _hint("components come last: array.transpose(1, 2, 0)")
    if h != w and shape[:2] == (w, h):
        return _hint("sizes are (width, height), shapes of arrays (height, width)")
    if shape[:2] == (h, w) and len(shape) == 3 and shape[2] > tail[0]:
        return _hint(f"array[..., :{tail[0]}] has the first {tail[0]} of {shape[2]} components")
    if shape in ((h, w), (h, w, 1)):
        return _hint(f"a grey image: numpy.repeat(array.reshape({h}, {w}, 1), {tail[0]}, axis=2)")
    return ""


def _of_table(v: Variable, shape: tuple[int, ...]) -> str:
    rows, n = v.size[0], v.vtype.n
    if len(shape) != 2:
        return ""
    if shape == (n, rows):
        return _hint("a row per vertex or face: array.T")
    if shape[1] == n:
        return _hint(f"a table of {shape[0]} rows is a Variable of size ({shape[0]}, 1)")
    if shape[1] == 4 and n == 3 and v.vtype.is_int:
        return _hint("quads? numpy.concatenate([f[:, [0, 1, 2]], f[:, [0, 2, 3]]]) has triangles")
    if shape[0] == rows and shape[1] > n:
        return _hint(f"array[:, :{n}] has the first {n} of {shape[1]} components")
    return ""


def _of_matrix(n: int, tail: tuple[int, ...], shape: tuple[int, ...]) -> str:
    if tail == (4, 4) and shape[-2:] == (3, 4):
        return _hint("a 3x4 matrix needs a last row (0, 0, 0, 1): numpy.vstack")
    if len(shape) == 3 and shape[1:] == tail and shape[0] != n:
        return _hint(f"a matrix per view: Variable(vtype, layers={shape[0]})")
    return ""


def _hint(text: str) -> str:
    return f"\n  hint: {text}"
