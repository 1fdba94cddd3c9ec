"""Isosurfaces of values on a grid: closed, manifold, oriented triangles without intersections.

In: one number per point of a regular grid, positive inside. Out: a mesh of the surface where the
linear interpolation of the numbers is 0. Each cube of the grid is cut into six tetrahedra along one
diagonal (Kuhn's subdivision), which fit together across cubes; in a tetrahedron the surface is one
triangle or one quadrilateral, so that no case is ambiguous and no table can disagree with itself
(marching tetrahedra: Doi and Koide 1991).
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from dressi.errors import GraphError
from dressi.render.scene import Mesh
from dressi.render.scene.mesh import int32_indices

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NEAREST_CROSSING = 0.02
"""Crossings stay this share of an edge away from its ends: nearer ones of several edges would be
one point for float32, and their triangles have no area. Still no triangle leaves its tetrahedron.
"""

GRID_STEPS = np.array(
    [[0, 0, 1], [0, 1, 0], [0, 1, 1], [1, 0, 0], [1, 0, 1], [1, 1, 0], [1, 1, 1]]
)  # the edges that begin at a point, by 4 dx + 2 dy + dz - 1

GRID_NEIGHBORS = np.array(
    [
        [[min(x, y, z) >= 0 or max(x, y, z) <= 0 for z in (-1, 0, 1)] for y in (-1, 0, 1)]
        for x in (-1, 0, 1)
    ]
)
"""(3, 3, 3) bool: which points an edge joins to the middle one: for ``scipy.ndimage.label``."""


def isosurface(
    values: npt.ArrayLike, low: npt.ArrayLike = (0, 0, 0), spacing: float = 1.0, name: str = "mesh"
) -> Mesh:
    """Return the surface between the positive values (inside) and the others, as a closed mesh.

    values: (X, Y, Z), finite, at least 2 each way; not positive on all six sides of the grid, so
    that the surface closes. low: (3,) world position of values[0, 0, 0]. spacing: world units
    between neighbouring points. Faces are counter-clockwise seen from the values that are not
    positive. Each edge has two faces and each vertex one fan of them, and no two faces meet but in
    what they share (in real numbers; float32 rounds the positions, far below the spacing).

    Raises GraphError (shape, values not finite, nothing inside, inside values on the sides).
    """
    v = np.asarray(values, np.float64)
    if v.ndim != 3 or min(v.shape) < 2:
        raise GraphError(f"isosurface: values must be (X, Y, Z), 2 or more each, not {v.shape}")
    if not np.isfinite(v).all():
        raise GraphError(f"isosurface: {int((~np.isfinite(v)).sum())} values are not finite")
    inside = v > 0.0
    if not inside.any():
        raise GraphError(f"isosurface: none of the {v.size} values is positive: nothing is inside")
    if touches_sides(inside):
        raise GraphError(
            "isosurface: positive values on the sides of the grid: the surface does not close\n"
            "  hint: take a larger box, or pad the values with negative ones"
        )
    keys, faces = _triangles(inside)
    n_yz = np.array([v.shape[1] * v.shape[2], v.shape[2], 1])
    start, step = keys // 7, GRID_STEPS[keys % 7]
    flat = v.ravel()
    a, b = flat[start], flat[start + step @ n_yz]
    along = np.clip(a / (a - b), NEAREST_CROSSING, 1.0 - NEAREST_CROSSING)
    at = np.stack(np.unravel_index(start, v.shape), axis=1) + along[:, None] * step
    positions = np.asarray(low, np.float64) + at * spacing
    return Mesh(positions.astype(np.float32), int32_indices("faces", faces), name=name)


def touches_sides(inside: npt.NDArray[np.bool_]) -> bool:
    """Return True where a point on one of the six sides of the grid is inside."""
    return any(bool(np.take(inside, [0, -1], axis).any()) for axis in range(3))


def without_small_parts(
    values: Floats, least_share: float = 0.0, least_points: int = 0, least_cavity: float = np.inf
) -> Floats:
    """Return the values with other signs in small parts and in small cavities.

    values: (X, Y, Z), some positive. Parts, which edges of the grid join, are dropped where they
    have fewer points than least_points, or than least_share of the largest part's; cavities are
    filled where they have fewer points than least_cavity. Their values become the largest there is.
    """
    far, kept = np.abs(values).max(), values.copy()
    labels, n = ndimage.label(values > 0.0, GRID_NEIGHBORS)
    size = np.bincount(labels.ravel(), minlength=n + 1).astype(float)
    size[0] = np.inf
    kept[size[labels] < max(least_share * size[1:].max(), least_points)] = -far
    empty, n = ndimage.label(kept <= 0.0, GRID_NEIGHBORS)
    size = np.bincount(empty.ravel(), minlength=n + 1).astype(float)
    size[0] = np.inf
    for axis in range(3):
        size[np.take(empty, [0, -1], axis)] = np.inf  # not a cavity
    kept[(size < least_cavity)[empty]] = far
    return kept


def _triangles(inside: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Edges of the grid that are crossed (7 start + kind, ascending), and faces as rows of them."""
    shape = inside.shape
    strides = np.array([shape[1] * shape[2], shape[2], 1])
    corner = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)])
    parts = [inside[x : shape[0] - 1 + x, y : shape[1] - 1 + y, z : shape[2] - 1 + z]
             for x, y, z in corner]  # fmt: skip
    count = np.sum(parts, axis=0, dtype=np.int8)
    cells = np.stack(np.nonzero((count > 0) & (count < 8)), axis=1) @ strides
    flat = inside.ravel()
    found = []
    for order in permutations(range(3)):
        # From corner 0 along the three axes in this order; odd orders are mirror images.
        path = np.cumsum(np.vstack([np.zeros(3, int), np.eye(3, dtype=int)[list(order)]]), axis=0)
        points = cells[:, None] + path @ strides
        case = flat[points] @ np.array([1, 2, 4, 8])
        odd = np.linalg.det(np.diff(path, axis=0)) < 0
        for which, faces in _CASES.items():
            rows = points[case == which]
            for face in faces:
                corners = [face[0], face[2], face[1]] if odd else list(face)
                edges = [(min(e), max(e)) for e in corners]
                kinds = np.array([(path[j] - path[i]) @ [4, 2, 1] - 1 for i, j in edges])
                found.append(rows[:, [i for i, _ in edges]] * 7 + kinds)
    keys, index = np.unique(np.concatenate(found), return_inverse=True)
    return keys, np.reshape(index, (-1, 3)).astype(np.int64)


def _cases() -> dict[int, list[tuple[tuple[int, int], ...]]]:
    """Faces of each sign pattern of a right-handed tetrahedron (bit i: corner i is inside)."""
    at = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], float)
    made: dict[int, list[tuple[tuple[int, int], ...]]] = {}
    for case in range(1, 15):
        within = [i for i in range(4) if case >> i & 1]
        without = [i for i in range(4) if not case >> i & 1]
        if len(within) == 2:
            (a, b), (c, d) = within, without
            ring = [(a, c), (a, d), (b, d), (b, c)]
            faces = [(ring[0], ring[1], ring[2]), (ring[0], ring[2], ring[3])]
        else:
            (alone,), rest = sorted((within, without), key=len)
            faces = [tuple((alone, other) for other in rest)]  # type: ignore[list-item]
        outward = at[without].mean(axis=0) - at[within].mean(axis=0)
        made[case] = []
        for face in faces:
            p, q, r = (at[list(edge)].mean(axis=0) for edge in face)
            turned = np.cross(q - p, r - p) @ outward < 0
            made[case].append((face[0], face[2], face[1]) if turned else face)
    return made


_CASES = _cases()
