"""Which points of a surface are seen from which views, exactly, on the host.

In: points, a mesh, matrices. Out: masks. The ray from the eye to a point is tested against all
faces that its cell of the picture shows, so nothing depends on a resolution. Faces that reach
behind the eye are tested against all points.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError
from dressi.render.scene import Mesh
from dressi.threads import in_threads

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

_PAIRS = 100_000  # pairs of points and faces that a thread takes at a time: about 30 MB
_CELLS = 512  # cells per side of the picture at most: beyond it, faces lie in several cells anyway


def seen_points(
    points: npt.ArrayLike,
    mesh: Mesh,
    matrices: npt.ArrayLike,
    tolerance: float = 1e-4,
) -> npt.NDArray[np.bool_]:
    """Return which points each view sees: (views, N) bool.

    points: (N, 3) world units, on the surface of the mesh or near it. matrices: (views, 4, 4) world
    to clip. A point is seen where it lies within the view volume and no face cuts the line to the
    eye by more than ``tolerance`` (a fraction of the diagonal of the mesh's box) before it; faces
    hide from both sides. Parts of faces before the near plane hide nothing, as in a picture.
    Raises GraphError (bad mesh, wrong shapes, tolerance not above 0).
    """
    mesh.check()
    p = np.asarray(points, dtype=np.float64)
    views = np.asarray(matrices, dtype=np.float64)
    if p.ndim != 2 or p.shape[1] != 3 or views.ndim != 3 or views.shape[1:] != (4, 4):
        raise GraphError(
            f"seen_points needs points (N, 3) and matrices (views, 4, 4), got {p.shape} and "
            f"{views.shape}"
        )
    if not (np.isfinite(tolerance) and tolerance > 0.0):
        raise GraphError(f"seen_points: tolerance must be > 0, got {tolerance}")
    positions = mesh.positions.astype(np.float64)
    slack = tolerance * float(np.linalg.norm(np.ptp(positions, axis=0)))
    corners = positions[mesh.faces]
    return np.stack(in_threads(lambda matrix: _seen(p, corners, matrix, slack), views))


def _clip(points: Floats, matrix: Floats) -> Floats:
    return np.asarray(points @ matrix[:, :3].T + matrix[:, 3])


def _seen(points: Floats, corners: Floats, matrix: Floats, slack: float) -> npt.NDArray[np.bool_]:
    """(N,) bool for one view."""
    at, faces = _clip(points, matrix), _clip(corners, matrix)
    x, y, z, w = at.T
    within = (w > 0.0) & (np.abs(x) <= w) & (np.abs(y) <= w) & (z >= 0.0) & (z <= w)
    seen = within.copy()
    rows = np.flatnonzero(within)
    before = (faces[..., 3] > 0.0).all(axis=1)
    across = np.flatnonzero(~before & (faces[..., 3] > 0.0).any(axis=1))
    inverse = _inverse(faces)
    q = np.ascontiguousarray(at[rows][:, [0, 1, 3]])
    for who, face in _pairs(at[rows], faces, np.flatnonzero(before), across):
        # The weights l with l_a (x, y, w)_a + l_b ... + l_c ... = (x, y, w) of the point are all
        # >= 0 where the line from the eye meets the face, whichever signs the w have; l_a z_a + ...
        # over the point's w is the depth there, also without perspective, where all w are 1.
        weights = np.einsum("ij,ikj->ik", q[who], inverse[face])
        # All 0: a face without area that rounding gave a volume; nobody meets it.
        meets = np.flatnonzero((weights.min(axis=1) >= 0.0) & (weights.max(axis=1) > 0.0))
        who, face, weights = who[meets], face[meets], weights[meets]
        z = np.einsum("ij,ij->i", weights, faces[face, :, 2])
        before_it = (z >= 0.0) & (z < at[rows[who], 2])
        who, face, weights = who[before_it], face[before_it], weights[before_it]
        weights = weights / weights.sum(axis=1, keepdims=True)
        foot = np.einsum("ij,ijk->ik", weights, corners[face])
        apart = np.linalg.norm(foot - points[rows[who]], axis=1)
        seen[rows[who[apart > slack]]] = False
    return seen


def _inverse(faces: Floats) -> Floats:
    """(F, 3, 3): from (x, y, w) of a point to its weights; NaN for faces that are seen edge-on:
    nothing is >= 0 there."""
    a, b, c = np.moveaxis(faces[..., [0, 1, 3]], 1, 0)
    rows = np.stack([np.cross(b, c), np.cross(c, a), np.cross(a, b)], axis=1)
    volume = np.einsum("ij,ij->i", a, rows[:, 0])[:, None, None]
    return np.where(volume == 0.0, np.nan, rows / np.where(volume == 0.0, 1.0, volume))


def _ranges(counts: Rows) -> tuple[Rows, Rows]:
    """Owner and number within the owner of each of counts.sum() items."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)


def _pairs(at: Floats, faces: Floats, before: Rows, across: Rows):  # type: ignore[no-untyped-def]
    """Give arrays of pairs (row of at, face) that may meet, in parts."""
    step = max(1, _PAIRS // max(len(across), 1))
    for start in range(0, len(at) if len(across) else 0, step):
        who = np.arange(start, min(start + step, len(at)))
        yield np.repeat(who, len(across)), np.tile(across, len(who))
    if len(before) == 0 or len(at) == 0:
        return
    ndc = faces[before][..., :2] / faces[before][..., 3:]
    side = int(np.clip(2.0 / max(float(np.ptp(ndc, axis=1).mean()), 1e-9), 1, _CELLS))
    # Rounding must not take a face from the point on its own edge.
    box = np.stack([ndc.min(axis=1) - 1e-6, ndc.max(axis=1) + 1e-6])
    low, high = np.floor((box * 0.5 + 0.5) * side)
    shown = ((low < side) & (high >= 0)).all(axis=1)
    before, box = before[shown], box[:, shown]
    low = np.clip(low[shown], 0, side - 1).astype(np.int64)
    span = np.clip(high[shown], 0, side - 1).astype(np.int64) - low + 1
    owner, k = _ranges(span[:, 0] * span[:, 1])
    cell = (low[owner, 1] + k // span[owner, 0]) * side + low[owner, 0] + k % span[owner, 0]
    by_cell = np.argsort(cell, kind="stable")
    listed = owner[by_cell]
    starts = np.searchsorted(cell[by_cell], np.arange(side * side + 1))
    flat = at[:, :2] / at[:, 3:]
    column_row = np.clip((flat * 0.5 + 0.5) * side, 0, side - 1).astype(np.int64)
    of_point = column_row[:, 1] * side + column_row[:, 0]
    sides = [(flat[:, k].copy(), box[:, :, k].copy()) for k in (0, 1)]
    counts = starts[of_point + 1] - starts[of_point]
    chunk = np.cumsum(counts) // _PAIRS
    for part in range(int(chunk[-1]) + 1):
        rows = np.flatnonzero(chunk == part)
        who, k = _ranges(counts[rows])
        who = rows[who]
        face = listed[starts[of_point[who]] + k]
        for along, (least, most) in sides:  # half of the pairs need no second one
            place = along[who]
            inside = (place >= least[face]) & (place <= most[face])
            who, face = who[inside], face[inside]
        yield who, before[face]
