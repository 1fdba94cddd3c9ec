"""The linear maps of image-based lighting, as sparse matrices of float64 made once.

In: shapes of maps, lobes. Out: ``F.linalg.SparseMatrix``. An environment is first resampled to a
cube of moderate size (area averages), then a pyramid of that cube is made, and each texel of a
filtered level is a weighted sum over it. The weights are integrals of the lobe over the texels;
where a lobe hardly varies over a texel of a coarser level of the pyramid, that texel stands for its
parts, which makes the rows short: a lobe has a narrow peak and a long tail. Rows sum to 1, so a
constant environment gives constant levels. Everything here is linear in the environment, and
``F.linalg.linear_map`` differentiates it by the exact transpose.

Sources: irradiance, Ramamoorthi and Hanrahan 2001; prefiltered levels with n = v = r, Karis 2013
("Real Shading in Unreal Engine 4").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse

from dressi.ad import F
from dressi.ad.functions import cubemap, equirect
from dressi.ad.graph import Size
from dressi.errors import GraphError
from dressi.render.ibl.maps import Array, cube_directions, cube_solid_angles

LOSS = 2e-3
"""What coarser texels of the pyramid may change: the root of the sum of squares of the differences
of the weights of a row, which is the error of a level where the texels of the environment are
independent and of unit variance. Rows sum to 1."""
FINEST = 0.1
"""Smallest roughness above 0 whose lobe is integrated: below, it is far narrower than a texel."""
BLOCK = 256  # rows of texels at a time: memory

Lobe = float | None
"""Roughness of a GGX lobe, or None for the cosine lobe of irradiance."""


def ggx_lobe(cosine: Array, roughness: float) -> Array:
    """The lobe of a prefiltered level, not normalized: D(h) (n . l) with n = v = r.

    cosine: of the angle between the level's direction and that of the light. roughness: alpha is
    its square.
    """
    a2 = roughness**4
    nh2 = (1 + cosine) / 2  # h is half way
    d = a2 / (math.pi * (nh2 * (a2 - 1) + 1) ** 2)
    return np.asarray(d * np.maximum(cosine, 0.0))


def ggx_lobe_slope(cosine: Array, roughness: float) -> Array:
    """The derivative of ``ggx_lobe`` with respect to the roughness."""
    a2 = roughness**4
    nh2 = (1 + cosine) / 2
    q = nh2 * (a2 - 1) + 1
    d = (1 - 2 * a2 * nh2 / q) / (math.pi * q**2)
    return np.asarray(4 * roughness**3 * d * np.maximum(cosine, 0.0))


def lobe_values(cosine: Array, lobe: Lobe) -> Array:
    """Return a lobe; that of irradiance is divided by pi."""
    if lobe is not None:
        return ggx_lobe(cosine, lobe)
    return np.asarray(np.maximum(cosine, 0.0) / math.pi)


WIDTH = 64
"""Of the images that hold tables of texels: short rows of the packer's positions stay in range."""


def table_size(count: int) -> Size:
    """The image that holds so many texels, row by row; the last row may be longer than needed."""
    return WIDTH, -(-count // WIDTH)


def _matrix(m: Any, pad_rows: bool = False, pad_columns: bool = False) -> F.linalg.SparseMatrix:
    """pad_rows, pad_columns: whether the output and the input are images of ``table_size``."""
    m = sparse.csr_matrix(m)
    m.sum_duplicates()
    m.eliminate_zeros()
    rows, columns = (
        math.prod(table_size(count)) if padded else count
        for count, padded in zip(m.shape, (pad_rows, pad_columns), strict=True)
    )
    offsets = np.concatenate([m.indptr, np.full(rows - m.shape[0], m.indptr[-1])])
    return F.linalg.SparseMatrix(
        offsets.astype(np.int64), m.indices.astype(np.int64), m.data, columns
    )


def _parts(n: int, s: int) -> tuple[Array, Array]:
    """Directions (6 n n, s s, 3) and solid angles (6 n n, s s) of the parts of each texel."""

    def split(a: Array) -> Array:
        tail = a.shape[3:]
        a = a.reshape(6, n, s, n, s, *tail).swapaxes(2, 3)
        return a.reshape(6 * n * n, s * s, *tail)

    return split(cube_directions(n * s)), split(cube_solid_angles(n * s))


@lru_cache(maxsize=16)
def resample_matrix(size: Size, layers: int, n: int) -> F.linalg.SparseMatrix:
    """From a map of that shape to a cube map @ (n, n): averages over the texels of the cube.

    size, layers: of the map, (w, h) and 1 or (m, m) and 6. Averages of the linearly interpolated
    map, over as many points a texel as the map has there.
    """
    w, h = size
    is_cube = layers == 6
    finer = w / n if is_cube else max(w / (4 * n), h / (2 * n))
    s = min(max(math.ceil(finer), 1), 64)
    d, omega = _parts(n, s)
    share = (omega / omega.sum(1, keepdims=True)).ravel()
    rows = np.repeat(np.arange(len(d)), s * s)
    reads = _reads(d.reshape(-1, 3), size, layers)
    average = sparse.coo_matrix((share, (rows, np.arange(len(rows)))), shape=(len(d), len(rows)))
    return _matrix(average.tocsr() @ reads)


def _reads(d: Array, size: Size, layers: int) -> sparse.csr_matrix:
    """From a map of that shape to its values along directions (R, 3), as ``read_map`` reads it."""
    w, h = size
    geometry = cubemap if layers == 6 else equirect
    out = sparse.csr_matrix((len(d), (w + 2) * (h + 2) * layers))
    for layer, y, x, weight, _ in geometry.taps(d, (w + 2, h + 2), True):
        columns = (layer * (h + 2) + y) * (w + 2) + x
        out += sparse.coo_matrix((weight, (np.arange(len(d)), columns)), shape=out.shape).tocsr()
    if layers == 6:
        p = cubemap.padding(w)
        border = sparse.csr_matrix((p.values, p.columns, p.offsets), shape=(p.n_rows, p.n_columns))
    else:
        border = _padding(w, h)
    return out @ border


def _padding(w: int, h: int) -> sparse.csr_matrix:
    """The matrix of ``equirect.padded``."""
    columns = np.arange(-1, w + 1) % w
    around = sparse.identity(w, format="csr")[columns]
    pole = sparse.csr_matrix(np.full((w + 2, w), 1 / w))
    first = sparse.hstack([pole, sparse.csr_matrix((w + 2, w * (h - 1)))])
    last = sparse.hstack([sparse.csr_matrix((w + 2, w * (h - 1))), pole])
    rows = sparse.kron(sparse.identity(h), around)
    return sparse.csr_matrix(sparse.vstack([first, rows, last]))


def pyramid_sizes(n: int) -> list[int]:
    """Sides of the cubes of the pyramid over a cube of side n: n, n / 2, ..."""
    sizes = [n]
    while sizes[-1] % 2 == 0 and sizes[-1] > 2 and len(sizes) < 4:
        sizes.append(sizes[-1] // 2)
    return sizes


def _children(n: int, k: int) -> np.ndarray:
    """The number of the coarser texel, k times wider, of each texel of a cube of side n."""
    face, y, x = np.unravel_index(np.arange(6 * n * n), (6, n, n))
    m = n // k
    return np.asarray((face * m + y // k) * m + x // k)


@lru_cache(maxsize=8)
def pyramid_matrix(n: int) -> F.linalg.SparseMatrix:
    """From a cube @ (n, n) to the texels of its pyramid, finest first, averaged by solid angle."""
    omega = cube_solid_angles(n).ravel()
    parts = []
    for m in pyramid_sizes(n):
        parent = _children(n, n // m)
        total = np.bincount(parent, omega)
        shape = (6 * m * m, len(omega))
        parts.append(
            sparse.coo_matrix((omega / total[parent], (parent, np.arange(len(omega)))), shape=shape)
        )
    return _matrix(sparse.vstack(parts), pad_rows=True)


def lobe_width(lobe: Lobe) -> float:
    """Angle in radians at which a lobe has fallen to about half of its maximum."""
    return 1.0 if lobe is None else 2 * math.sqrt(math.sqrt(2) - 1) * lobe**2


def level_side(n: int, lobe: Lobe) -> int:
    """Side of the cube on which a lobe over a cube @ (n, n) is computed: two texels or more to half
    a lobe."""
    while n % 2 == 0 and n > 8 and math.pi / n <= lobe_width(lobe) / 2:
        n //= 2
    return n


def _near(lobe: Lobe, n: int) -> tuple[float, int]:
    """Angle up to which texels are integrated in parts, and the parts per side."""
    texel = math.pi / 2 / n
    width = lobe_width(lobe)
    return 4 * width + 2 * texel, min(max(math.ceil(4 * texel / width), 2), 128)


def lobe_weights(directions: Array, n: int, lobe: Lobe) -> Array:
    """Integrals of a lobe around directions (R, 3) over the texels of a cube @ (n, n): (R, 6 n n),
    rows sum to 1."""
    w = _integrals(directions, n, lobe, (lambda cosine: lobe_values(cosine, lobe),))[0]
    return np.asarray(w / w.sum(1, keepdims=True))


def lobe_slopes(directions: Array, n: int, roughness: float) -> tuple[Array, Array]:
    """(``lobe_weights`` of a GGX lobe, their derivative with respect to its roughness), each (R,
    6 n n); the rows of the derivative sum to 0."""
    w, slope = _integrals(
        directions,
        n,
        roughness,
        (lambda c: ggx_lobe(c, roughness), lambda c: ggx_lobe_slope(c, roughness)),
    )
    total = w.sum(1, keepdims=True)
    w /= total
    return w, slope / total - w * (slope.sum(1, keepdims=True) / total)


def _integrals(
    directions: Array, n: int, lobe: Lobe, densities: tuple[Callable[[Array], Array], ...]
) -> list[Array]:
    """Integrals of densities of the cosine over the texels of a cube @ (n, n), each (R, 6 n n),
    with as many parts to a texel as the lobe needs."""
    middle, omega = _parts(n, 1)
    near, s = _near(lobe, n)
    d, part_omega = _parts(n, s)
    cosine = directions @ middle[:, 0].T
    out = [f(cosine) * omega[:, 0] for f in densities]
    row, column = np.nonzero(cosine > math.cos(min(near, math.pi)))
    for part in np.array_split(np.arange(len(row)), max(len(row) * s * s // 4_000_000, 1)):
        r, c = row[part], column[part]
        cosines = np.einsum("pi,psi->ps", directions[r], d[c])
        for w, f in zip(out, densities, strict=True):
            w[r, c] = (f(cosines) * part_omega[c]).sum(1)
    return out


def _shorten(w: Array, n: int) -> sparse.csr_matrix:
    """Rows over a cube -> rows over its pyramid, coarse texels wherever that changes little."""
    omega = cube_solid_angles(n).ravel()
    sizes = pyramid_sizes(n)
    free = np.ones(w.shape, bool)  # texels that no coarser one stands for
    blocks: list[sparse.csr_matrix] = []
    for m in sizes[:0:-1]:
        parent = _children(n, n // m)
        gather = sparse.coo_matrix(
            (np.ones(len(parent)), (np.arange(len(parent)), parent)), shape=(len(parent), 6 * m * m)
        ).tocsr()
        total = np.bincount(parent, omega)
        sums = w @ gather
        off = (w - sums[:, parent] * (omega / total[parent])) ** 2 @ gather
        taken = ~((free @ gather) > 0)
        off = np.where(taken, np.inf, off)
        order = np.argsort(off, axis=1)
        budget = np.cumsum(np.take_along_axis(off, order, 1), axis=1) <= LOSS**2 / (len(sizes) - 1)
        use = np.zeros_like(taken)
        np.put_along_axis(use, order, budget, 1)
        blocks.insert(0, sparse.csr_matrix(np.where(use, sums, 0.0)))
        free &= ~use[:, parent]
    return sparse.csr_matrix(sparse.hstack([sparse.csr_matrix(np.where(free, w, 0.0)), *blocks]))


@lru_cache(maxsize=8)
def _turns(n: int) -> list[np.ndarray]:
    """For each face the turn of the cube that takes the first face to it, as the number of the
    texel that each texel of the pyramid goes to."""
    turns = []
    for axes in cubemap.FACES:
        turn = axes.T @ cubemap.FACES[0]
        moved, first = [], 0
        for m in pyramid_sizes(n):
            face, st, _ = cubemap.project(cube_directions(m).reshape(-1, 3) @ turn.T)
            x, y = np.floor((st.T + 1) / 2 * m).astype(np.int64)
            moved.append(first + (face * m + y) * m + x)
            first += 6 * m * m
        turns.append(np.concatenate(moved))
    return turns


@lru_cache(maxsize=64)
def _lobe_rows(n: int, m: int, lobe: Lobe, step: float = 0.0) -> tuple[sparse.csr_matrix, ...]:
    """Rows of a cube @ (m, m) over the pyramid of one @ (n, n); with a step, also those of the
    derivative with respect to the roughness, times the step. Those of one face serve all, with the
    texels turned: a lobe is round."""
    d = cube_directions(m)[0].reshape(-1, 3)
    blocks: list[list[sparse.csr_matrix]] = []
    for i in range(0, len(d), BLOCK):
        if step and lobe is not None:
            w, slope = lobe_slopes(d[i : i + BLOCK], n, lobe)
            blocks.append([_shorten(w, n), _shorten(slope * step, n)])
        else:
            blocks.append([_shorten(lobe_weights(d[i : i + BLOCK], n, lobe), n)])
    return tuple(_all_faces(sparse.vstack(part).tocsr(), n) for part in zip(*blocks, strict=True))


def _all_faces(face: sparse.csr_matrix, n: int) -> sparse.csr_matrix:
    """The rows of all faces from those of the first."""
    faces = [
        sparse.csr_matrix((face.data, turn[face.indices], face.indptr), shape=face.shape)
        for turn in _turns(n)
    ]
    return sparse.csr_matrix(sparse.vstack(faces))


@lru_cache(maxsize=16)
def lobes_matrix(
    n: int, sides: tuple[int, ...], lobes: tuple[Lobe, ...], step: float = 0.0
) -> F.linalg.SparseMatrix:
    """From the pyramid of a cube @ (n, n) to filtered cubes, one below the other in one table.

    sides: of each cube. lobes: of each, None for irradiance divided by pi, else a roughness of at
    least 0.1. step: with one above 0, cubes of step times the derivative with respect to the
    roughness follow, one for each roughness. Raises GraphError for another roughness.
    """
    for lobe in lobes:
        if lobe is not None and not FINEST <= lobe <= 1:
            raise GraphError(f"a lobe has a roughness in [{FINEST}, 1], got {lobe}")
    rows = [_lobe_rows(n, m, lobe, step) for m, lobe in zip(sides, lobes, strict=True)]
    slopes = [part[1] for part in rows if len(part) > 1]
    blocks = [*(part[0] for part in rows), *slopes]
    return _matrix(sparse.vstack(blocks), pad_rows=True, pad_columns=True)


NEIGHBORS = 12
"""Texels of a coarser cube that a finer one is made of: linear interpolation of lobes this coarsely
sampled would be off by a percent."""
SPREAD = 2.0
"""Width in texels of the kernel of that interpolation; narrower ones miss curvature, wider ones are
ill conditioned."""


def _smooth(d: Array, m: int) -> sparse.csr_matrix:
    """From a cube @ (m, m) of something smooth to its values along directions (R, 3).

    Interpolates the nearest texels with a Gaussian kernel and a constant (kriging): exact at
    texels, weights sum to 1.
    """
    texels = cube_directions(m).reshape(-1, 3)
    k = min(NEIGHBORS, len(texels))
    nearest = np.argpartition(-(d @ texels.T), k - 1, axis=1)[:, :k]
    scale = (2 * m / (math.pi * SPREAD)) ** 2
    points = texels[nearest]
    system = np.ones((len(d), k + 1, k + 1))
    system[:, :k, :k] = np.exp(scale * (points @ points.swapaxes(1, 2) - 1))
    system[:, k, k] = 0
    right = np.ones((len(d), k + 1))
    right[:, :k] = np.exp(scale * (np.einsum("rkj,rj->rk", points, d) - 1))
    weights = np.linalg.solve(system, right[..., None])[:, :k, 0]
    rows = np.repeat(np.arange(len(d)), k)
    shape = (len(d), len(texels))
    return sparse.csr_matrix((weights.ravel(), (rows, nearest.ravel())), shape=shape)


@lru_cache(maxsize=16)
def enlarge_matrix(sides: tuple[int, ...], n: int) -> F.linalg.SparseMatrix:
    """From cubes of those sides in one table to a stack of cubes @ (n, n)."""
    d = cube_directions(n).reshape(-1, 3)
    # Equal sides exactly, not up to rounding.
    blocks = [sparse.identity(len(d)) if m == n else _smooth(d, m) for m in sides]
    return _matrix(sparse.block_diag(blocks), pad_columns=True)
