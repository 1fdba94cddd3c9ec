"""Rims of front faces that lie beyond their edge of the contour only, against those all around."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import trimesh

from dressi import IVEC3, MAT4, VEC3, DressiAD, F
from dressi.render.raster import build_hardsoftras

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
def test_outside_the_picture_is_that_of_rims_all_around(shape: Any, r: float) -> None:
    """The same pixels have a rim, and of a closed surface the same silhouette outside, but for
    rounding. At a corner of a border several faces are equally near; only those whose own edge
    lies there have the right distance to the contour, and those are drawn."""
    asked = []
    for seed in range(3):
        v, f = shape(seed)
        pos = F.leaf(turned(v, seed).astype(np.float32)[None], VEC3)
        faces = F.leaf(np.asarray(f, np.int32)[None], IVEC3)
        matrix = F.leaf(perspective().astype(np.float32)[None, None], MAT4)
        for rims in (None, "contour"):
            hs = build_hardsoftras(pos, faces, matrix, SIZE, r, rims=rims)
            asked += [hs.peels[0].depth, hs.peels[0].ids, hs.silhouette]
    with DressiAD() as ad:
        found = ad.recv_imgs(asked)
    for k in range(0, len(found), 6):
        depth, ids, silhouette, depth_around, ids_around, around = found[k : k + 6]
        soft = (depth > 0.5) & (ids >= 0)
        assert soft.sum() > 50 and (depth <= 0.5).sum() > 100
        # Depths are distances / 2: 1e-6 is 1e-4 pixels.
        assert np.abs(depth - depth_around).max() < 1e-6
        assert np.array_equal(ids >= 0, ids_around >= 0)
        want = of_depth(depth, r)
        off, off_around = (np.abs(s - want) for s in (silhouette, around))
        # The slope of the sigmoid is at most 7 / r / 4, so 1e-6 of distance are 5e-5 here.
        if shape in (bumpy, torus):
            assert np.abs(silhouette - around)[soft].max() < 5e-5
            # Behind the band around the outline the silhouette is 0, not the sigmoid of -7.
            assert off[soft].max() < 2e-3
        else:
            assert (off <= off_around + 5e-5)[soft].all()


def test_inside_every_pixel_feels_the_outline_whichever_face_it_shows() -> None:
    """A disc of rings of faces half a pixel wide: the silhouette follows the distance to its
    border, from r outside to r inside."""
    r, n, radius = 0.12, 48, 16.0
    rings = radius - 0.5 * np.arange(20)
    angle = 2 * np.pi * np.arange(n) / n
    circle = np.stack([np.cos(angle), -np.sin(angle), 0 * angle], 1)
    v = np.concatenate([circle * ring for ring in rings] + [np.zeros((1, 3))])
    v = v / (SIZE[0] / 2, SIZE[1] / 2, 1.0) + (0.013, 0.007, 0.5)
    i = np.arange(n)
    j, faces = (i + 1) % n, []
    for k in range(len(rings) - 1):
        a, b, c, d = k * n + i, k * n + j, (k + 1) * n + j, (k + 1) * n + i
        faces += [np.stack([a, b, c], 1), np.stack([a, c, d], 1)]
    last = (len(rings) - 1) * n
    faces.append(np.stack([last + i, last + j, np.full(n, len(v) - 1)], 1))
    pos = F.leaf(v.astype(np.float32)[None], VEC3)
    index = F.leaf(np.concatenate(faces).astype(np.int32)[None], IVEC3)
    matrix = F.leaf(np.eye(4, dtype=np.float32)[None, None], MAT4)
    hs = build_hardsoftras(pos, index, matrix, SIZE, r)
    with DressiAD() as ad:
        found = ad.recv_img(hs.silhouette)[..., 0]
    x, y = np.meshgrid(np.arange(SIZE[0]) + 0.5, np.arange(SIZE[1]) + 0.5)
    centre = (np.array(SIZE) / 2) * (1.013, 1.007)
    # A polygon of 48 sides lies up to 0.03 pixels inside its circle: half of that on average.
    away = radius * (1 + np.cos(np.pi / n)) / 2 - np.hypot(x - centre[0], y - centre[1])
    want = 1 / (1 + np.exp(-away / SIZE[0] * 7 / r))
    near = np.abs(away) < 0.9 * r * SIZE[0]
    assert near.sum() > 500
    assert np.abs(found - want)[near].max() < 0.01
