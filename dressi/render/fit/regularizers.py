"""Regularizers on meshes and maps. In: vertex positions, topology, images. Out: FLOAT @ 1x1."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, IVEC2
from dressi.errors import GraphError
from dressi.kinds import Border
from dressi.render.raster.topology import neighbor_table
from dressi.render.scene.mesh import uniform_laplacian
from dressi.render.shading import face_normals

MIN_ANGLE_DEG = 3.0
"""Angles of faces are taken to be at least this large by the cotangent Laplacian: the cotangent
grows without bound, and one needle would outweigh its whole neighbourhood."""

MAX_ANGLE_DEG = 90.0
"""And at most this large: behind it cotangents are negative, and minimizing would push neighbours
apart."""


def laplacian_matrix(faces: np.ndarray, n_vertices: int) -> F.linalg.SparseMatrix:
    """The uniform Laplacian of a mesh: (mean of neighbours) - v. faces: (F, 3) ints. Raises
    GraphError for other faces."""
    if np.ndim(faces) != 2 or np.shape(faces)[1] != 3 or np.asarray(faces).dtype.kind not in "iu":
        raise GraphError(
            "laplacian_matrix: needs faces, integers of shape (F, 3), and the number of vertices, "
            f"got {np.asarray(faces).dtype} of shape {np.shape(faces)}"
        )
    offsets, columns, values = uniform_laplacian(faces, n_vertices)
    return F.linalg.SparseMatrix(offsets, columns, values, n_vertices)


def cotangent_matrix(
    positions: npt.ArrayLike,
    faces: npt.ArrayLike,
    min_angle_deg: float = MIN_ANGLE_DEG,
    max_angle_deg: float = MAX_ANGLE_DEG,
) -> F.linalg.SparseMatrix:
    """The cotangent Laplacian of a mesh at rest: (weighted mean of neighbours) - v.

    positions: (N, 3), world units: the weights are those of this shape and stay (a Laplacian that
    followed the vertices would have to be differentiated too). faces: (F, 3) ints. The weight of an
    edge is the sum of the cotangents of the angles opposite to it, each angle clamped to
    [min_angle_deg, max_angle_deg] (Pinkall and Polthier 1993; a face without area counts as one
    with the smallest angle everywhere); a row's weights are divided by their sum, so that the scale
    is that of ``laplacian_matrix``. Unlike that one it does not move vertices within a plane to
    make their spacing even. Raises GraphError for indices out of range, NaN, and angles outside
    (0, 90].
    """
    v, f = np.asarray(positions, np.float64), np.asarray(faces)
    if v.ndim != 2 or v.shape[1:] != (3,) or f.ndim != 2 or f.shape[1:] != (3,) or len(f) == 0:
        raise GraphError(
            f"cotangent_matrix: needs positions (N, 3) and faces (F, 3), got {v.shape}, {f.shape}"
        )
    if not np.isfinite(v).all() or f.min() < 0 or f.max() >= len(v):
        raise GraphError(
            "cotangent_matrix: positions must be finite and faces within "
            f"0..{len(v) - 1}, they are within {f.min()}..{f.max()}"
        )
    if not 0.0 < min_angle_deg < max_angle_deg <= 90.0:
        raise GraphError(
            "cotangent_matrix: needs 0 < min_angle_deg < max_angle_deg <= 90, "
            f"got {min_angle_deg}, {max_angle_deg}"
        )
    low, high = 1.0 / np.tan(np.radians([max_angle_deg, min_angle_deg]))
    low = max(low, 1e-6)  # 0 at both sides of an edge would leave a vertex without neighbours
    starts, ends, weights = [], [], []
    for k in range(3):
        a, b, c = f[:, k], f[:, (k + 1) % 3], f[:, (k + 2) % 3]
        u, w = v[b] - v[a], v[c] - v[a]
        cross = np.linalg.norm(np.cross(u, w), axis=1)
        dot = np.einsum("ij,ij->i", u, w)
        cot = np.full(len(f), high)
        np.divide(dot, cross, out=cot, where=cross > 1e-12 * np.abs(dot))
        cot = np.clip(cot, low, high)
        real = b != c
        starts += [b[real], c[real]]
        ends += [c[real], b[real]]
        weights += [cot[real], cot[real]]
    start, end = np.concatenate(starts).astype(np.int64), np.concatenate(ends).astype(np.int64)
    key, at = np.unique(start * len(v) + end, return_inverse=True)
    weight = np.bincount(np.asarray(at).reshape(-1), np.concatenate(weights), len(key))
    row, column = key // len(v), key % len(v)
    weight = weight / np.bincount(row, weight, len(v))[row]
    has = np.unique(row)  # the diagonal, -1, of vertices with neighbours
    row, column = np.concatenate([row, has]), np.concatenate([column, has])
    weight = np.concatenate([weight, -np.ones(len(has))])
    order = np.lexsort((column, row))
    offsets = np.append(0, np.cumsum(np.bincount(row, minlength=len(v))))
    return F.linalg.SparseMatrix(
        offsets.astype(np.int32),
        column[order].astype(np.int32),
        weight[order].astype(np.float32),
        len(v),
    )


def laplacian_loss(vtx_pos: Variable, laplacian: F.linalg.SparseMatrix) -> Variable:
    """Mean over vertices of |L v|^2. vtx_pos: VEC3 @ (N, 1), world units. Gradient to vtx_pos."""
    d = F.linalg.sparse_matmul(laplacian, vtx_pos)
    return F.mean(F.dot(d, d))


def laplacian_smoothing(x: Variable, laplacian: F.linalg.SparseMatrix, rounds: int) -> Variable:
    """Return a table after rounds of explicit Laplacian smoothing, each x + L x / 2.

    x: FLOAT or VECn @ (N, 1). laplacian: of ``laplacian_matrix`` or ``cotangent_matrix``. rounds:
    at least 0; a round reaches a neighbour farther, and the root mean square of the reach is about
    sqrt(rounds / 2) edges. With x as the parameter in the place of what is smoothed, a gradient
    step moves neighbours together, as with ``large_steps``, at the cost of 2 rounds sparse products
    and without an inverse factor. Gradient to x. Raises GraphError for another number of rounds.
    Source: Desbrun et al. 1999, explicit fairing.
    """
    if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 0:
        raise GraphError(f"laplacian_smoothing: rounds must be an int >= 0, got {rounds!r}")
    for _ in range(rounds):
        x = x + F.linalg.sparse_matmul(laplacian, x) * 0.5
    return x


def edge_table(faces: npt.ArrayLike) -> Variable:
    """IVEC2 @ (E, 1) leaf: the edges of faces, each once, for ``edge_length_loss``.

    faces: (F, 3) ints. No gradient. Raises GraphError where there is no edge.
    """
    f = np.asarray(faces)
    if f.ndim != 2 or f.shape[1:] != (3,) or not np.issubdtype(f.dtype, np.integer):
        raise GraphError(f"edge_table: faces must be (F, 3) ints, got {f.shape}")
    pairs = np.sort(f[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    edges = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    if len(edges) == 0:
        raise GraphError("edge_table: the faces have no edge")
    return F.leaf(edges, IVEC2, "edges")


def edge_length_loss(
    vtx_pos: Variable, edges: Variable, target: Variable | float | None = None
) -> Variable:
    """Mean over edges of (length - target)^2, square world units.

    vtx_pos: VEC3 @ (N, 1), world units. edges: IVEC2 @ (E, 1), from ``edge_table``. target: length,
    a number, FLOAT @ 1x1, or FLOAT @ (E, 1), one per edge (rest lengths); None: the mean length, so
    that edges become even and none sets the scale. Gradient to vtx_pos (0 from edges of length 0)
    and to target. Raises GraphError for other types and for a negative number.
    """
    if edges.vtype is not IVEC2 or edges.size[1] != 1:
        raise GraphError(f"edge_length_loss: edges must be an IVEC2 table, got {edges.label()}")
    if isinstance(target, (int, float)) and not 0.0 <= target < float("inf"):
        raise GraphError(f"edge_length_loss: target must be >= 0, got {target}")
    length = F.norm(F.lookup(vtx_pos, edges.x) - F.lookup(vtx_pos, edges.y))
    off = length - (F.mean(length) if target is None else target)
    return F.mean(off * off)


def normal_consistency(vtx_pos: Variable, faces: Variable) -> Variable:
    """Mean over edges between faces of 1 - cos(angle between their normals): 0 for a plane, 2 for a
    fold.

    vtx_pos: VEC3 @ (N, 1). faces: IVEC3 @ (F, 1), static. Borders count 0. Gradient to vtx_pos.
    """
    normal = face_normals(vtx_pos, faces)
    neighbors = neighbor_table(faces, vtx_pos)
    total = None
    for axis in "xyz":
        other = F.swizzle(neighbors, axis)
        bend = 1.0 - F.dot(normal, F.lookup(normal, other))
        bend = F.where(F.compare("gte", other, 0), bend, 0.0)
        total = bend if total is None else total + bend
    assert total is not None
    return F.mean(total) * (1.0 / 3.0)


def total_variation(
    image: Variable,
    mask: Variable | None = None,
    isotropic: bool = False,
    smoothing: float = 1e-3,
    border: Border = "clamp",
) -> Variable:
    """Mean over pixels and layers of how much a map changes to the right and down (Rudin, Osher,
    Fatemi 1992).

    image: FLOAT or VECn @ any size; layers do not touch. mask: FLOAT @ its size (or one layer), in
    [0, 1]: a difference counts as much as the smaller of its two pixels (charts of a texture).
    isotropic: False: the sum over components of |right| + |down|. True: sqrt(|right|^2 + |down|^2 +
    smoothing^2) - smoothing over all components, which favours no direction and is smooth at 0.
    border: clamp (nothing changes across the border) or repeat (maps that tile). Gradient to image
    (sign, 0 at 0, for the first) and to mask. Raises GraphError for wrong types and values.
    """
    where = "total_variation"
    if image.vtype.is_int or image.vtype.is_matrix:
        raise GraphError(f"{where}: needs FLOAT or VECn, got {image.label()}")
    if border not in ("clamp", "repeat"):
        raise GraphError(f"{where}: border must be clamp or repeat, got {border!r}")
    if isotropic and not 0.0 < smoothing < float("inf"):
        raise GraphError(f"{where}: smoothing must be above 0, got {smoothing!r}")
    if mask is not None and (mask.vtype is not FLOAT or mask.size != image.size):
        raise GraphError(
            f"{where}: mask must be FLOAT of the image's size, got {mask.label()} for "
            f"{image.label()}"
        )
    right = F.image.shift(image, -1, 0, border) - image
    down = F.image.shift(image, 0, -1, border) - image
    if mask is not None:
        right = right * F.minimum(F.image.shift(mask, -1, 0, border), mask)
        down = down * F.minimum(F.image.shift(mask, 0, -1, border), mask)
    if not isotropic:
        return F.mean(F.sum_components(F.abs(right) + F.abs(down)))
    square = F.dot(right, right) + F.dot(down, down)
    return F.mean(F.sqrt(square + smoothing * smoothing) - smoothing)
