"""Edge lengths that follow the curvature: short where a surface bends, long where it is flat.

In: a mesh. Out: one length per vertex, for ``remesh``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError
from dressi.render.scene import Mesh, surface_area, vertex_normals
from dressi.render.scene.half_edges import EdgeTable

Floats = npt.NDArray[np.float64]


def adaptive_edge_lengths(
    mesh: Mesh,
    target_vertices: int | None = None,
    tolerance: float | None = None,
    ratio: float = 4.0,
    gradation: float = 0.3,
    smoothing: int = 5,
) -> npt.NDArray[np.float64]:
    """(V,) edge lengths in world units that spread the distance to the surface evenly.

    mesh: no vertices twice (``welded``), or those of a seam get lengths of their own side. Give one
    of target_vertices, about so many will be in the remeshed surface, and tolerance, the distance
    in world units between a face and the smooth surface. A triangle of side h on a sphere of radius
    r is h^2 / (6 r) off, so lengths go as the square root of the radius of curvature (Dunyach et
    al. 2013); the curvature is the larger principal one, from the normals at the ends of edges.
    ratio: longest over shortest, at least 1 (1: all equal); lengths in the middle are those of the
    middle curvature. gradation: largest change of length per length along the surface. smoothing:
    rounds of averaging of the curvature over neighbours, against noise. Raises GraphError.
    """
    mesh.check()
    _check(target_vertices, tolerance, ratio, gradation, smoothing)
    p = mesh.positions.astype(np.float64)
    edges = EdgeTable.of(mesh.faces).edges
    area = _vertex_areas(p, mesh.faces)
    used = area > 0.0
    shape = 1.0 / np.sqrt(_curvature(p, mesh, edges, smoothing))
    middle = _weighted_median(shape[used], area[used])
    shape = np.clip(shape, middle / np.sqrt(ratio), middle * np.sqrt(ratio))
    if tolerance is not None:
        return _graded(np.sqrt(6.0 * tolerance) * shape, p, edges, gradation)
    # An even triangle of side h has sqrt(3) / 4 h^2, and a vertex two of them.
    n, scale = float(target_vertices or 0), 1.0
    for _ in range(4):  # the gradation makes some shorter than the scale alone
        lengths = _graded(scale * shape, p, edges, gradation)
        scale *= np.sqrt((area[used] / (0.8660254 * lengths[used] ** 2)).sum() / n)
    return _graded(scale * shape, p, edges, gradation)


def _check(
    vertices: int | None, tolerance: float | None, ratio: float, gradation: float, smoothing: int
) -> None:
    """Raise GraphError for numbers that cannot be."""
    name = "adaptive_edge_lengths"
    if (vertices is None) == (tolerance is None):
        raise GraphError(f"{name} needs one of target_vertices and tolerance")
    if vertices is not None and vertices < 4:
        raise GraphError(f"{name}: target_vertices must be at least 4, got {vertices}")
    if tolerance is not None and not (np.isfinite(tolerance) and tolerance > 0.0):
        raise GraphError(f"{name}: tolerance must be > 0, got {tolerance}")
    if not (np.isfinite(ratio) and ratio >= 1.0):
        raise GraphError(f"{name}: ratio must be at least 1, got {ratio}")
    if not (np.isfinite(gradation) and gradation > 0.0):
        raise GraphError(f"{name}: gradation must be > 0, got {gradation}")
    if smoothing < 0:
        raise GraphError(f"{name}: smoothing must not be negative, got {smoothing}")


def _vertex_areas(positions: Floats, faces: npt.NDArray[np.integer]) -> Floats:
    a, b, c = np.moveaxis(positions[faces], 1, 0)
    third = np.linalg.norm(np.cross(b - a, c - a), axis=1) / 6.0
    total = np.bincount(np.ravel(faces), np.repeat(third, 3), minlength=len(positions))
    return np.asarray(total, np.float64)


def _curvature(
    positions: Floats, mesh: Mesh, edges: npt.NDArray[np.int64], smoothing: int
) -> Floats:
    """(V,) the larger principal curvature at each vertex, 1 / world units, above 0.

    That of the second fundamental form which is closest, by least squares, to the normal curvatures
    along the edges at the vertex.
    """
    normals, n = vertex_normals(positions, mesh.faces).astype(np.float64), len(positions)
    a, b = np.concatenate([edges, edges[:, ::-1]]).T
    along, turn = positions[b] - positions[a], normals[b] - normals[a]
    square = np.einsum("ei,ei->e", along, along)
    bend = np.einsum("ei,ei->e", along, turn) / np.where(square > 0.0, square, np.inf)
    x = _tangents(normals)
    y = np.cross(normals, x)
    u, v = (np.einsum("ei,ei->e", along, axis[a]) for axis in (x, y))
    size = np.maximum(np.hypot(u, v), 1e-300)
    row = np.stack([u * u, 2.0 * u * v, v * v], axis=1) / size[:, None] ** 2
    system, right = np.zeros((n, 3, 3)), np.zeros((n, 3))
    np.add.at(system, a, row[:, :, None] * row[:, None, :])
    np.add.at(right, a, row * bend[:, None])
    # Where edges run along two lines only, the form is not known: the least one is taken.
    valence = np.maximum(np.bincount(edges.ravel(), minlength=n), 1)
    system += 1e-3 * valence[:, None, None] * np.eye(3)
    form = np.linalg.solve(system, right[:, :, None])[:, :, 0]
    mean, half = 0.5 * (form[:, 0] + form[:, 2]), 0.5 * (form[:, 0] - form[:, 2])
    curvature = np.abs(mean) + np.hypot(half, form[:, 1])
    a, b = edges.T
    for _ in range(smoothing):
        around = np.bincount(a, curvature[b], minlength=n)
        around += np.bincount(b, curvature[a], minlength=n)
        curvature = 0.5 * (curvature + around / valence)
    # Of a plane the radius is infinite: none is larger than a thousand times the surface's own.
    extent = np.sqrt(surface_area(positions, mesh.faces))
    return np.maximum(curvature, 1e-3 / max(extent, 1e-30))


def _tangents(normals: Floats) -> Floats:
    """(V, 3) a unit vector across each normal."""
    least = np.eye(3)[np.abs(normals).argmin(axis=1)]
    across = np.cross(normals, least)
    return across / np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-300)


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(total, 0.5 * total[-1])])


def _graded(
    lengths: Floats, positions: Floats, edges: npt.NDArray[np.int64], gradation: float
) -> Floats:
    """Lengths that change by no more than the gradation: made shorter where they do."""
    a, b = edges.T
    step, result = gradation * np.linalg.norm(positions[a] - positions[b], axis=1), lengths.copy()
    for _ in range(len(lengths)):
        before = result.copy()
        np.minimum.at(result, a, before[b] + step)
        np.minimum.at(result, b, before[a] + step)
        if np.array_equal(result, before):
            break
    return result
