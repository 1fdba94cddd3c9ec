"""Layers of glass: every surface is hard in one layer per pixel, against counts of crossings of a
ray through the pixel's centre in float64."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from dressi import DressiAD, F, Options, Variable
from dressi.ad.vtype import IVEC3, MAT4, VEC3
from dressi.render.raster import build_hardsoftras
from dressi.render.scene import icosphere
from dressi.render.shading import blend_peels
from dressi.testing.scenes import camera, rotated

pytestmark = pytest.mark.gpu

SIZE, K = (24, 24), 3
MODES = {
    "passes": Options(lowering="graphics"),
    "dispatches": Options(lowering="compute", peeling="depth"),
    "k-buffer": Options(lowering="compute", peeling="kbuffer"),
}


def ball() -> tuple[np.ndarray, np.ndarray]:
    """Closed; faces of half a pixel."""
    mesh = icosphere(3)
    return rotated(mesh.positions, 0.3, 0.2, 0.1), mesh.faces


def pyramids(n: int = 640) -> tuple[np.ndarray, np.ndarray]:
    """Two pyramids on one ring: closed, slivers of 0.1 x 10 pixels."""
    t = np.arange(n) * 2 * np.pi / n
    ring = np.stack([np.cos(t), 0 * t, np.sin(t)], -1)
    k = np.arange(n)
    up = np.stack([(k + 1) % n, k, np.full(n, n)], -1)
    down = np.stack([k, (k + 1) % n, np.full(n, n + 1)], -1)
    v = np.concatenate([ring, [(0, 1.1, 0), (0, -1.0, 0)]])
    return rotated(v, 0.7, 0.1, 0.2), np.concatenate([up, down])


def sheets(n: int = 18) -> tuple[np.ndarray, np.ndarray]:
    """Open: two grids of squares, 1e-3 apart."""
    g = np.linspace(-1, 1, n)
    x, y = np.meshgrid(g, g)
    v = np.stack([x, y, 0 * x], -1).reshape(-1, 3)
    j, i = (a.ravel() for a in np.mgrid[: n - 1, : n - 1])
    a, b, c, d = j * n + i, j * n + i + 1, (j + 1) * n + i + 1, (j + 1) * n + i
    f = np.concatenate([np.stack([a, b, c], -1), np.stack([a, c, d], -1)])
    both = np.concatenate([v, v + (0, 0, 1e-3)]), np.concatenate([f, f + n * n])
    return rotated(both[0], 0.4, 0.5, 0.3), both[1]


SHAPES = {"ball": ball, "pyramids": pyramids, "sheets": sheets}


@lru_cache(maxsize=8)
def scene(shape: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Positions, faces, matrix; crossings of every pixel's ray; where 1e-4 pixel changes none."""
    v, faces = SHAPES[shape]()
    # float32, as the device has them
    v, m = (np.asarray(a, np.float32).astype(np.float64) for a in (v, camera(SIZE)))
    clip = np.concatenate([v, np.ones((len(v), 1))], 1) @ m.T
    xy = ((clip[:, :2] / clip[:, 3:]) * 0.5 + 0.5) * SIZE
    counts = [crossings(xy[faces], d) for d in ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))]
    return v, faces, m, counts[0], np.all(np.stack(counts) == counts[0], 0)


def crossings(corners: np.ndarray, moved: tuple[int, int]) -> np.ndarray:
    """(H, W): how many triangles (F, 3, 2), in pixels, hold the centre of each pixel, moved."""
    w, h = SIZE
    p = np.stack(np.meshgrid(np.arange(w) + 0.5, np.arange(h) + 0.5), -1).reshape(-1, 1, 2)
    p = p + np.array(moved) * 1e-4
    sides = []
    for k in range(3):
        a, e = corners[:, k], corners[:, (k + 1) % 3] - corners[:, k]
        sides.append((p[..., 0] - a[:, 0]) * e[:, 1] - (p[..., 1] - a[:, 1]) * e[:, 0])
    s = np.stack(sides)
    return np.asarray(((s > 0).all(0) | (s < 0).all(0)).sum(1).reshape(h, w))


@pytest.mark.parametrize(
    ("shape", "mode"),
    [*((shape, "passes") for shape in SHAPES), ("ball", "dispatches"), ("pyramids", "k-buffer")],
)
def test_a_surface_counts_once(vulkan_device_available: bool, shape: str, mode: str) -> None:
    """Alpha 1/2 leaves 2^-n behind n crossings, also within 1/256 pixel of the edge of a face."""
    v, faces, m, count, sure = scene(shape)
    assert sure.sum() > 0.95 * sure.size and (count[sure] == 2).sum() > 120
    pos, index, matrix = (
        Variable(VEC3, (len(v), 1), name="pos"),
        Variable(IVEC3, (len(faces), 1), name="faces"),
        Variable(MAT4, name="matrix"),
    )
    hs = build_hardsoftras(pos, index, matrix, SIZE, 0.01, K)
    _, coverage = blend_peels(hs, [F.constant(1.0)] * K, [0.5] * K)
    with DressiAD(options=MODES[mode]) as ad:
        for leaf, data in ((pos, v), (index, faces), (matrix, m)):
            ad.send_img(leaf, data)
        ad.set_loss_var(coverage)
        covered, edge = (ad.recv_img(x)[..., 0] for x in (coverage, hs.edge))
        hard = sum(ad.recv_img(peel.depth)[..., 0] <= 0.5 for peel in hs.peels)
        silhouette = ad.recv_img(hs.hard)[..., 0]
    assert (hard[sure] == np.minimum(count[sure], K)).all(), np.argwhere(sure & (hard != count))
    assert (silhouette[sure] == (count[sure] > 0)).all()
    inner = sure & (edge == 0)
    assert inner.sum() > 120
    assert np.allclose(covered[inner], 1 - 0.5 ** count[inner], atol=1e-6)
