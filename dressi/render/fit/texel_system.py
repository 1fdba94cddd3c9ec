"""The linear system of a texture that is read bilinearly: pixels, smoothness, seams, its solver.

In: places in the atlas. Out: sparse matrices over the texels, row by row, and the texture that
solves them. Where a read lies between texel centres is F.texture's, clamped at the border.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.csgraph import connected_components

from dressi.render.scene import Mesh, weld

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
Size = tuple[int, int]


def taps(uv: Floats, size: Size) -> tuple[Rows, Floats]:
    """Return the four texels (..., 4) that a read at uv (..., 2) mixes, and their weights."""
    at = uv * np.asarray(size, np.float64) - 0.5
    corner = np.floor(at)
    rest = at - corner
    column = np.clip(np.stack([corner[..., 0], corner[..., 0] + 1.0], -1), 0, size[0] - 1)
    row = np.clip(np.stack([corner[..., 1], corner[..., 1] + 1.0], -1), 0, size[1] - 1)
    across = np.stack([1.0 - rest[..., 0], rest[..., 0]], -1)
    down = np.stack([1.0 - rest[..., 1], rest[..., 1]], -1)
    texel = (row[..., :, None] * size[0] + column[..., None, :]).astype(np.int64)
    weight = down[..., :, None] * across[..., None, :]
    shape = uv.shape[:-1] + (4,)
    return texel.reshape(shape), weight.reshape(shape)


def reads(uv: Floats, size: Size) -> Any:
    """Return the sparse (N, texels) matrix of N values, each the mean of reads at uv (N, S, 2)."""
    n, samples = uv.shape[:2]
    texel, weight = taps(uv, size)
    starts = np.arange(n + 1) * (4 * samples)
    parts = (weight.ravel() / samples, texel.ravel(), starts)
    return csr_matrix(parts, shape=(n, size[0] * size[1]))


def chart_labels(mesh: Mesh) -> Rows:
    """Return the chart of each face, (F,): faces that share rows of uvs are one chart."""
    assert mesh.uvs is not None
    corners = mesh.corner_faces
    start, end = np.repeat(corners[:, 0], 2), corners[:, 1:].ravel()
    n = len(mesh.uvs)
    graph = coo_matrix((np.ones(len(start)), (start, end)), shape=(n, n))
    return np.asarray(connected_components(graph, directed=False)[1][corners[:, 0]], np.int64)


def neighbour_differences(texel_faces: npt.NDArray[np.int32], mesh: Mesh) -> Any:
    """Return the sparse (pairs, texels) matrix of differences between neighbours of one chart.
    texel_faces: (H, W), as of ``chart_texels``."""
    chart = np.where(texel_faces >= 0, chart_labels(mesh)[np.maximum(texel_faces, 0)], -1)
    number = np.arange(chart.size).reshape(chart.shape)
    pairs = []
    for here, there in (
        ((slice(None), slice(None, -1)), (slice(None), slice(1, None))),
        ((slice(None, -1), slice(None)), (slice(1, None), slice(None))),
    ):
        alike = (chart[here] == chart[there]) & (chart[here] >= 0)
        pairs.append(np.stack([number[here][alike], number[there][alike]], axis=1))
    columns = np.concatenate(pairs)
    values = np.tile([-1.0, 1.0], len(columns))
    starts = np.arange(len(columns) + 1) * 2
    return csr_matrix((values, columns.ravel(), starts), shape=(len(columns), chart.size))


def seam_differences(mesh: Mesh, size: Size) -> Any:
    """Return the sparse (places, texels) matrix of differences between reads on the two sides of a
    seam, about one place per texel of its length."""
    assert mesh.uvs is not None
    one_place = weld(mesh.positions, mesh.faces)[mesh.faces]
    ends = one_place[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2).astype(np.int64)
    uv_ends = mesh.corner_faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2)
    turned = ends[:, 0] > ends[:, 1]
    ends[turned], uv_ends[turned] = ends[turned, ::-1], uv_ends[turned, ::-1]
    order = np.lexsort((ends[:, 1], ends[:, 0]))
    first, second = order[:-1], order[1:]
    same = (ends[first] == ends[second]).all(axis=1) & (ends[first, 0] != ends[first, 1])
    uvs = mesh.uvs.astype(np.float64)
    a, b = uvs[uv_ends[first[same]]], uvs[uv_ends[second[same]]]
    cut = (a != b).any(axis=(1, 2))
    a, b = a[cut], b[cut]
    length = [np.linalg.norm((e[:, 1] - e[:, 0]) * size, axis=1) for e in (a, b)]
    n = np.ceil(np.maximum(*length)).astype(np.int64) + 1
    edge = np.repeat(np.arange(len(n)), n)
    step = (np.arange(len(edge)) - np.repeat(np.cumsum(n) - n, n) + 0.5) / n[edge]
    sides = [e[edge, 0] + step[:, None] * (e[edge, 1] - e[edge, 0]) for e in (a, b)]
    left, right = (reads(side[:, None], size) for side in sides)
    return left - right


def conjugate_gradients(
    matrix: Any, rhs: Floats, start: Floats, iterations: int, tolerance: float
) -> Floats:
    """Return x with matrix x = rhs, for all columns of rhs together.

    matrix: sparse (N, N), symmetric, positive semidefinite. rhs, start: (N, C). Preconditioned by
    the diagonal; rows with a diagonal of 0 stay as they start. Ends where the residual of every
    column is below tolerance times that of 0, or after the iterations.
    """
    diagonal = matrix.diagonal()[:, None]
    scale = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0.0)
    x = start.astype(np.float64)
    residual = (rhs - matrix @ x) * (diagonal > 0.0)
    limit = tolerance**2 * (rhs * scale * rhs).sum(axis=0)
    direction = scale * residual
    size = (residual * direction).sum(axis=0)
    for _ in range(iterations):
        if (size <= limit).all():
            break
        turned = matrix @ direction
        curvature = (direction * turned).sum(axis=0)
        step = np.divide(size, curvature, out=np.zeros_like(size), where=curvature > 0.0)
        x += step * direction
        residual -= step * turned
        scaled = scale * residual
        new = (residual * scaled).sum(axis=0)
        ratio = np.divide(new, size, out=np.zeros_like(new), where=size > 0.0)
        direction, size = scaled + ratio * direction, new
    return x
