"""Winding numbers on a grid, and the surface of what they enclose: repair of any closed surface.

In: a mesh, tangled as it may be. Out: how often its surface goes around each point of a grid, and a
new mesh around the points where it does so at least once: overlapping parts become their union,
sheets that are inside out and handles that cross disappear.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError
from dressi.render.fit.closest import closest_on_surface
from dressi.render.fit.isosurface import GRID_STEPS, isosurface, without_small_parts
from dressi.render.scene import Mesh, bounding_box

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_CHUNK = 2_000_000
"""Pairs of faces and columns of the grid at a time."""
_LEAST_POINTS = 27
"""Parts and cavities of fewer points are where lines through small holes meet."""


def winding_numbers(
    positions: npt.ArrayLike,
    faces: npt.ArrayLike,
    low: npt.ArrayLike,
    spacing: float,
    shape: tuple[int, int, int],
) -> npt.NDArray[np.int32]:
    """(X, Y, Z) int32: how often the surface goes around each point of a grid.

    1 inside of a closed surface, 2 where two parts overlap, -1 inside of one that is inside out.
    low: (3,) world position of the first point; the grid's sides lie outside of the surface. Faces
    are counted where lines of the grid cross them; of the numbers along the three axes the middle
    one is taken, so holes and faces seen edge-on do no harm to all that lies behind them.
    """
    p = (np.asarray(positions, np.float64) - np.asarray(low, np.float64)) / spacing
    index, found = np.asarray(faces).astype(np.int64), []
    for axis in range(3):
        order = [(axis + 1) % 3, (axis + 2) % 3, axis]
        sizes = tuple(shape[k] for k in order)
        along = _along_last_axis(p[:, order], index, sizes)
        found.append(np.transpose(along, np.argsort(order)))
    return np.median(np.stack(found), axis=0).astype(np.int32)


def _along_last_axis(p: Floats, faces: Ints, shape: tuple[int, ...]) -> npt.NDArray[np.int32]:
    """Winding numbers by the crossings of the lines along the last axis. p: in cells."""
    corners = p[faces]
    low = np.ceil(corners[..., :2].min(axis=1)).astype(np.int64)
    high = np.floor(corners[..., :2].max(axis=1)).astype(np.int64)
    n = np.maximum(high - low + 1, 0)
    count = n[:, 0] * n[:, 1]
    steps = np.zeros(shape, np.int32)
    total, start = np.concatenate([[0], np.cumsum(count)]), 0
    while start < len(count):
        end = max(int(np.searchsorted(total, total[start] + _CHUNK, side="right")) - 1, start + 1)
        rows = np.repeat(np.arange(start, end), count[start:end])
        inner = np.arange(len(rows)) - (total[rows] - total[start])
        x = low[rows, 0] + inner // np.maximum(n[rows, 1], 1)
        y = low[rows, 1] + inner % np.maximum(n[rows, 1], 1)
        _add_crossings(steps, p, faces[rows], x, y)
        start = end
    # A face that looks up is the way out: above it, one less.
    return np.cumsum(steps, axis=2, dtype=np.int32)


def _add_crossings(steps: npt.NDArray[np.int32], p: Floats, faces: Ints, x: Ints, y: Ints) -> None:
    """Add -1 or 1 behind each crossing of the lines at (x, y) with their faces (in place)."""
    at = np.stack([x, y], axis=1)
    turns = np.stack(
        [_turn(p, faces[:, i], faces[:, j], at) for i, j in ((1, 2), (2, 0), (0, 1))], axis=1
    )
    up = turns.min(axis=1) > 0.0
    hit = up | (turns.max(axis=1) < 0.0)
    weights = turns[hit] / turns[hit].sum(axis=1, keepdims=True)
    height = np.einsum("nk,nk->n", weights, p[faces[hit], 2])
    behind = np.clip(np.floor(height).astype(np.int64) + 1, 0, steps.shape[2] - 1)
    inside = (at[hit] >= 0).all(axis=1) & (at[hit] < steps.shape[:2]).all(axis=1)
    np.add.at(
        steps,
        (x[hit][inside], y[hit][inside], behind[inside]),
        np.where(up[hit], -1, 1)[inside].astype(np.int32),
    )


def _turn(p: Floats, i: Ints, j: Ints, at: Ints) -> Floats:
    """Twice the signed areas of the triangles (p_i, p_j, at), 0 only where the edge is a point.

    Both faces of an edge compute it with the same rounding, and a point on it counts as on one
    side of it: a line of the grid passes one of them, not both and not none.
    """
    swap = i > j
    a, b = p[np.where(swap, j, i), :2], p[np.where(swap, i, j), :2]
    area = (b[:, 0] - a[:, 0]) * (at[:, 1] - a[:, 1]) - (b[:, 1] - a[:, 1]) * (at[:, 0] - a[:, 0])
    # As if the point lay off by (e, e^2) with an e that is smaller than anything.
    tie = np.where(b[:, 1] != a[:, 1], a[:, 1] - b[:, 1], b[:, 0] - a[:, 0])
    area = np.where(area == 0.0, np.sign(tie) * np.finfo(np.float64).tiny, area)
    return np.where(swap, -area, area)


def enclosed_surface(mesh: Mesh, spacing: float) -> Mesh:
    """Return the surface of what a mesh encloses, made anew: closed, manifold, without crossings.

    mesh: closed, but for holes that are small. spacing: of the grid, world units; details below two
    of them are lost, and thin parts below one. Raises GraphError where nothing is enclosed.
    """
    box = bounding_box(mesh.positions)
    # Off the mesh's own coordinates, which often are round numbers.
    low = box[0] - spacing * np.array([2.3717, 2.4142, 2.4495])
    size = np.ceil((box[1] - low) / spacing).astype(int) + 3
    shape = (int(size[0]), int(size[1]), int(size[2]))
    if float(np.prod(size.astype(float))) > 3e8:
        raise GraphError(f"enclosed_surface: a spacing of {spacing:.4g} makes a grid of {shape}")
    inside = winding_numbers(mesh.positions, mesh.faces, low, spacing, shape) > 0
    values = np.where(inside, spacing, -spacing)
    near = np.zeros(shape, bool)
    for step in GRID_STEPS:
        here, there = (
            tuple(slice(s, n - d + s) for s, n, d in zip(shift, shape, step, strict=True))
            for shift in ((0, 0, 0), step)
        )
        crossed = inside[here] != inside[there]
        near[here] |= crossed
        near[there] |= crossed
    at = np.stack(np.nonzero(near), axis=1)
    if len(at) == 0:
        raise GraphError(f"enclosed_surface: mesh '{mesh.name}' encloses no point of its grid")
    distance = closest_on_surface(low + at * spacing, mesh.positions, mesh.faces).distance
    values[near] = np.where(inside[near], 1.0, -1.0) * np.maximum(distance, 1e-6 * spacing)
    whole = without_small_parts(values, 0.0, _LEAST_POINTS, _LEAST_POINTS)
    return isosurface(whole if (whole > 0.0).any() else values, low, spacing, mesh.name)
