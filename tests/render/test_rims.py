"""Rims of front faces that lie beyond their edge of the contour only, against those all around."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import trimesh

from dressi import IVEC3, MAT4, VEC3, DressiAD, F
from dressi.render.raster import build_hardsoftras, hardsoftras

pytestmark = pytest.mark.gpu

SIZE = (56, 48)


def bumpy(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A closed surface with dents, so that parts of its contour lie inside of the silhouette."""
    mesh = trimesh.creation.icosphere(subdivisions=2)
    wave = np.random.default_rng(seed).normal(size=(4, 3)) * 2.0
    radius = 1.0 + 0.35 * np.sin(mesh.vertices @ wave.T).mean(1)
    return mesh.vertices * radius[:, None], mesh.faces


def torus(seed: int) -> tuple[np.ndarray, np.ndarray]:
    mesh = trimesh.creation.torus(0.7, 0.3, major_sections=12, minor_sections=7)
    return np.asarray(mesh.vertices), np.asarray(mesh.faces)


def sheet(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """An open surface: rims of its border, of faces seen from behind, too."""
    n = 9
    x, y = np.meshgrid(np.linspace(-1, 1, n), np.linspace(-1, 1, n))
    z = np.random.default_rng(seed).normal(size=x.shape) * 0.15 + 0.4 * np.sin(3 * x)
    i = np.arange(n * n).reshape(n, n)
    a, b, c, d = (v.ravel() for v in (i[:-1, :-1], i[:-1, 1:], i[1:, 1:], i[1:, :-1]))
    faces = np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])
    return np.stack([x, y, z], -1).reshape(-1, 3), faces


def cut(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A closed surface with holes."""
    v, f = bumpy(seed)
    return v, f[np.random.default_rng(seed).random(len(f)) > 0.1]


def turned(v: np.ndarray, seed: int) -> np.ndarray:
    q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))
    return v @ (q * np.sign(np.linalg.det(q)))


def perspective() -> np.ndarray:
    """Camera 3 in front, looking along -z."""
    near, far, f = 0.5, 10.0, 2.0
    p = np.diag([f, -f, far / (near - far), 0.0])
    p[2, 3], p[3, 2] = near * far / (near - far), -1.0
    p[:, 3] += p[:, 2] * -3.0
    return p


def of_depth(depth: np.ndarray, r: float) -> np.ndarray:
    """The silhouette outside of the outline: the depth of a rim is its distance / 2 + 1 / 2."""
    return 1 / (1 + np.exp((2 * depth.astype(np.float64) - 1) * 7 / r))


@pytest.mark.parametrize("r", [0.04, 0.15])
@pytest.mark.parametrize("shape", [bumpy, torus, sheet, cut])
def test_the_picture_is_that_of_rims_all_around(
    shape: Any, r: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same depths to the bit, so no rim is missing, and of a closed surface the same
    silhouette. At a corner of a border several faces are equally near; only those whose own edge
    lies there have the right distance to the contour, and those are drawn."""
    whole = hardsoftras.build_rasterize
    asked = []

    def all_around(*args: Any, beyond: Any = None, **more: Any) -> Any:
        assert beyond is not None
        return whole(*args, **more)

    for seed in range(3):
        v, f = shape(seed)
        pos = F.leaf(turned(v, seed).astype(np.float32)[None], VEC3)
        faces = F.leaf(np.asarray(f, np.int32)[None], IVEC3)
        matrix = F.leaf(perspective().astype(np.float32)[None, None], MAT4)
        for build in (whole, all_around):
            monkeypatch.setattr(hardsoftras, "build_rasterize", build)
            hs = build_hardsoftras(pos, faces, matrix, SIZE, r)
            asked += [hs.peels[0].depth, hs.peels[0].ids, hs.silhouette]
    with DressiAD() as ad:
        found = ad.recv_imgs(asked)
    for k in range(0, len(found), 6):
        depth, ids, silhouette, depth_around, ids_around, around = found[k : k + 6]
        soft = (depth > 0.5) & (ids >= 0)
        assert soft.sum() > 50 and (depth <= 0.5).sum() > 100
        assert np.array_equal(depth, depth_around)
        assert np.array_equal(ids >= 0, ids_around >= 0)
        want = of_depth(depth, r)
        off, off_around = (np.abs(s - want) for s in (silhouette, around))
        if shape in (bumpy, torus):
            assert np.array_equal(silhouette, around)
            # Behind the band around the outline the silhouette is 0, not the sigmoid of -7.
            assert off[soft].max() < 2e-3
        else:
            assert (off <= off_around + 2e-7)[soft].all()
            assert np.array_equal(silhouette[~soft], around[~soft])
