"""The strands of the digital human: the hair of the head, brows and lashes.

In: a ``Human``, the colours of its skin, numbers. Out: ``Strands``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from dressi.apps.experiments.human_parts import Floats, Human
from dressi.errors import GraphError
from dressi.render.scene import Growth, Mesh, Strands, grow_strands
from dressi.render.scene.grow import scatter_roots
from dressi.render.scene.mesh import unit_or_zero

LASHES_PER_STRIP, LASH_WIDTH = 45, 0.0016
BROW_STRANDS, BROW_LENGTH, BROW_WIDTH = 1500, 0.075, 0.0022
"""Of the brows: strands tried, of which those stay that grow where the skin is dark; lengths in
units of 10 cm."""

HAIRLINE = (
    [-0.7, -0.3, -0.05, 0.15, 0.3, 0.45, 0.6, 0.85],
    [-0.72, -0.45, -0.12, -0.02, 0.08, 0.3, 0.55, 0.64],
)
"""Depth z and the height y above which hair grows there, with whiskers in front of the ears."""
EAR = (0.79, 0.3)
"""Distance x from the middle and height y beyond and below which there is an ear."""

SOFT_HAIRLINE = 0.14
"""Height over which hair becomes dense."""

BROW_WINDOW = ((0.11, 0.39), (0.17, 0.255))
"""u and v of the skin's texture, in which brows lie between these and their mirror images."""

BROW_SHADE = 0.62
"""Brightness of the skin's texture, by that of the skin around, below which there is a brow."""


def grow_human_hair(human: Human, skin: np.ndarray, n: int, seed: int = 0) -> Strands:
    """Return n strands on the scalp, and brows and lashes.

    skin: (H, W, 3) linear colours in the mesh's texture coordinates. Raises GraphError for n < 1
    and a skin of another shape.
    """
    if np.ndim(skin) != 3 or np.shape(skin)[2] != 3:
        raise GraphError(f"human: skin must be (H, W, 3), not {np.shape(skin)}")
    return joined([scalp_hair(human, n, seed), brows(human, skin, seed), lashes(human, seed)])


def scalp_hair(human: Human, n: int, seed: int = 0) -> Strands:
    """Return n strands on the scalp, short. Fewer strands are thicker, so that the head is
    covered."""
    if not isinstance(n, int) or n < 1:
        raise GraphError(f"human: the number of strands must be 1 or more, got {n!r}")
    style = Growth(
        length=0.46,
        spread=0.3,
        n_points=16,
        width=0.0045 * (20000 / n) ** 0.5,
        lift=0.3,
        gravity=0.6,
        curl=0.22,
        scale=0.35,
        stray=0.07,
        seed=seed,
    )
    grown = grow_strands(_scalp(human), 2 * n, style, human.head.ball)
    roots = grown.points[grown.roots]
    # Hair begins gradually: the nearer to the hairline, the fewer strands.
    inside = roots[:, 1] - np.interp(roots[:, 2], *HAIRLINE)
    kept = inside > SOFT_HAIRLINE * np.random.default_rng(seed).uniform(size=len(roots))
    order = np.concatenate([np.flatnonzero(kept), np.flatnonzero(~kept)])
    return grown.subset(order[:n])


def coarser(strands: Strands, share: float, seed: int = 0) -> Strands:
    """Return a share in (0, 1] of the strands, as much thicker: for pictures whose pixels are wider
    than strands, which would need more layers than there are. Raises GraphError for another share.
    """
    if not 0.0 < share <= 1.0:
        raise GraphError(f"human: the share of strands must be in (0, 1], got {share!r}")
    n = max(round(share * len(strands.counts)), 1)
    rows = np.random.default_rng(seed).permutation(len(strands.counts))[:n]
    kept = strands.subset(np.sort(rows))
    widths = (kept.widths * (len(strands.counts) / n)).astype(np.float32)
    return Strands(kept.points, kept.counts, widths, kept.name)


def _scalp(human: Human) -> Mesh:
    """The faces within the hairline, without the ears."""
    skin = human.head.mesh
    middle = skin.positions[skin.faces].mean(axis=1)
    normal = human.normals[skin.faces].mean(axis=1)
    above = middle[:, 1] > np.interp(middle[:, 2], *HAIRLINE)
    ear = (np.abs(middle[:, 0]) > EAR[0]) & (middle[:, 1] < EAR[1])
    outward = (normal * middle).sum(axis=1) > 0.0
    return Mesh(skin.positions, skin.faces[above & outward & ~ear], name="scalp")


def joined(several: list[Strands]) -> Strands:
    """Return the strands of all, in order."""
    return Strands(
        np.concatenate([s.points for s in several]),
        np.concatenate([s.counts for s in several]),
        np.concatenate([s.widths for s in several]),
        several[0].name,
    )


def lashes(human: Human, seed: int = 0) -> Strands:
    """Return lashes along ICT's strips: each follows a column, and leans a little to a side."""
    rng = np.random.default_rng(seed)
    n_rows, n_columns = human.lashes.shape[1:3]
    points = []
    for strip in human.lashes:
        root = rng.uniform(0.0, n_columns - 1.0, LASHES_PER_STRIP)
        lean = rng.normal(0.0, 0.5, LASHES_PER_STRIP)
        length = rng.uniform(0.55, 0.95, LASHES_PER_STRIP)
        along = np.linspace(0.0, 1.0, n_rows)[:, None] * length * (n_rows - 1)
        column = np.clip(
            root + lean * np.linspace(0.0, 1.0, n_rows)[:, None] ** 2, 0.0, n_columns - 1.001
        )
        points.append(_on_grid(strip, along, column).transpose(1, 0, 2))
    table = np.concatenate(points)
    return _tapered(table, LASH_WIDTH, "lashes")


def _on_grid(grid: Floats, row: Floats, column: Floats) -> Floats:
    """Places of a (rows, columns, 3) grid at fractional rows and columns."""
    i = np.minimum(row.astype(int), grid.shape[0] - 2)
    j = np.minimum(column.astype(int), grid.shape[1] - 2)
    s, t = (row - i)[..., None], (column - j)[..., None]
    a = grid[i, j] * (1.0 - t) + grid[i, j + 1] * t
    b = grid[i + 1, j] * (1.0 - t) + grid[i + 1, j + 1] * t
    placed: Floats = a * (1.0 - s) + b * s
    return placed


def brows(human: Human, skin: np.ndarray, seed: int = 0) -> Strands:
    """Return brows: short strands where the skin's texture has dark ones, to the temples."""
    mesh = human.mesh
    assert mesh.uvs is not None
    (u0, u1), (v0, v1) = BROW_WINDOW
    uv = mesh.uvs[mesh.corner_faces].mean(axis=1)
    u = np.minimum(uv[:, 0], 0.5 - uv[:, 0])
    inside = (human.parts == 0) & (u > u0 * 0.9) & (u < u1) & (uv[:, 1] > v0) & (uv[:, 1] < v1)
    if not inside.any():
        raise GraphError("human: no faces lie where brows grow")
    chosen = Mesh(mesh.positions, mesh.faces[inside], mesh.uvs, mesh.corner_faces[inside])
    roots, normals = scatter_roots(chosen, BROW_STRANDS, seed)
    dark = _shade_at(chosen, roots, skin) < BROW_SHADE
    roots, normals = roots[dark], normals[dark]
    rng = np.random.default_rng(seed + 1)
    side = np.sign(roots[:, :1])
    inner = np.clip(1.0 - (np.abs(roots[:, :1]) - 0.1) / 0.35, 0.0, 1.0)
    wish = side * (1.0, 0.0, 0.0) + (0.15 + 0.7 * inner) * np.array([0.0, 1.0, 0.0])
    wish = wish + 0.18 * rng.normal(size=roots.shape)
    wish = unit_or_zero(wish - normals * (wish * normals).sum(axis=1, keepdims=True))
    length = BROW_LENGTH * rng.uniform(0.6, 1.1, (len(roots), 1))
    points = []
    for k in range(6):
        t = k / 5.0
        down = np.array([0.0, -0.35, 0.0]) * (t * t)
        points.append(roots + length * (wish * t + down + normals * (0.30 * t - 0.22 * t * t)))
    return _tapered(np.stack(points, axis=1), BROW_WIDTH, "brows")


def _shade_at(mesh: Mesh, places: Floats, skin: np.ndarray) -> npt.NDArray[np.float64]:
    """Brightness of the skin at places on the mesh, by the median of the mesh's: of the corner
    that is nearest."""
    assert mesh.uvs is not None
    corners, uv = (
        mesh.positions[mesh.faces].reshape(-1, 3),
        mesh.uvs[mesh.corner_faces].reshape(-1, 2),
    )
    near = cKDTree(corners).query(places)[1]
    h, w = skin.shape[:2]
    at = np.clip((uv[near] * (w, h)).astype(int), 0, (w - 1, h - 1))
    grey = skin[..., :3].mean(axis=2)
    around = np.clip((uv * (w, h)).astype(int), 0, (w - 1, h - 1))
    return grey[at[:, 1], at[:, 0]] / float(np.quantile(grey[around[:, 1], around[:, 0]], 0.7))


def _tapered(points: Floats, width: float, name: str) -> Strands:
    """Strands of (S, n, 3) points, thin at their tips."""
    n, k = points.shape[:2]
    thin = width * (1.0 - 0.85 * np.linspace(0.0, 1.0, k))
    return Strands(
        points.reshape(-1, 3).astype(np.float32),
        np.full(n, k),
        np.tile(thin, n).astype(np.float32),
        name,
    )
