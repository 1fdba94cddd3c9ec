"""Mipmapped textures in perspective: derivatives of uv, and a chequered floor to the horizon."""

from __future__ import annotations

import numpy as np
import pytest
from device import run_many

from dressi import DressiAD, F, Variable, evaluate
from dressi.ad.autodiff import build_backward
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC2, VEC3
from dressi.render.camera import look_at, perspective, ring
from dressi.render.raster import (
    Peel,
    ScreenFaces,
    build_hard_raster,
    build_rasterize,
    build_screen_faces,
)
from dressi.render.scene import icosphere
from dressi.render.shading import face_lod, face_uv_derivatives, hard_lod, surface_uv

pytestmark = pytest.mark.gpu

SIZE = W, H = 72, 48
FINE = 16
"""Samples along a side of a pixel, for the reference."""

# A floor at y = 0, 6 wide and 60 long, seen from just above it; uv is (x, z) / 4.
CORNERS = np.array([[-3, 0, 0], [3, 0, 0], [3, 0, -60], [-3, 0, -60]], float)
UV = CORNERS[:, [0, 2]] / 4
FACES = np.array([[0, 1, 2], [0, 2, 3]])
MATRIX = perspective(50, W / H, 0.1, 100) @ look_at((0.4, 0.9, 2.0), (0.0, 0.3, -4.0))


def floor_uv(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """uv and whether it is on the floor, where the ray through a place on the screen (pixels) hits
    the plane: the inverse of the plane's homography."""
    to_screen = np.asarray(MATRIX, float)[[0, 1, 3]][:, [0, 2, 3]]
    ndc = np.stack([2 * x / W - 1, 2 * y / H - 1, np.ones_like(x)], -1)
    hit = ndc @ np.linalg.inv(to_screen).T
    at = hit[..., :2] / hit[..., 2:]
    on = (np.abs(at[..., 0]) < 3) & (at[..., 1] < 0) & (at[..., 1] > -60)
    return at / 4, on & (hit[..., 2] > 0)


def _scene() -> tuple[ScreenFaces, Peel, Variable, Variable, dict[Variable, np.ndarray]]:
    pos, faces, matrix = Variable(VEC3, (4, 1)), Variable(IVEC3, (2, 1)), Variable(MAT4)
    uv, uv_faces = Variable(VEC2, (4, 1)), Variable(IVEC3, (2, 1))
    pos.requires_grad = uv.requires_grad = True
    screen = build_screen_faces(pos, faces, matrix, SIZE)
    (peel,) = build_rasterize(screen, F.constant(0.0))
    feeds = {pos: CORNERS, faces: FACES, matrix: MATRIX, uv: UV, uv_faces: FACES}
    return screen, peel, uv, uv_faces, feeds


def test_derivatives_of_faces_are_those_of_the_homography(ad: DressiAD) -> None:
    screen, peel, uv, uv_faces, feeds = _scene()
    exact = face_uv_derivatives(screen, peel, uv, uv_faces)
    where = surface_uv(peel, uv, uv_faces)
    near = F.uv_derivatives(where, peel.ids)
    *got, stencil = run_many(ad, [*exact, *near, peel.stencil], feeds)
    x, y = np.meshgrid(np.arange(W) + 0.5, np.arange(H) + 0.5)
    covered = stencil[0, ..., 0] == 1
    assert 400 < covered.sum() < W * H
    step = 1e-4
    for axis, (dx, dy) in enumerate(((step, 0), (0, step))):
        ahead, behind = floor_uv(x + dx, y + dy)[0], floor_uv(x - dx, y - dy)[0]
        want = (ahead - behind) / (2 * step)
        off = np.linalg.norm(got[axis][0] - want, axis=-1) / np.linalg.norm(want, axis=-1)
        assert off[covered].max() < 2e-3
        assert (got[axis][0][~covered] == 0).all()
        close = covered & (y > 0.6 * H)  # where uv is nearly linear over a pixel
        differ = np.linalg.norm(got[2 + axis][0] - want, axis=-1) / np.linalg.norm(want, axis=-1)
        assert np.median(differ[close]) < 0.02


def test_gradients_of_derivatives_flow_only_when_asked_for() -> None:
    screen, peel, uv, uv_faces, feeds = _scene()
    pos = next(v for v in feeds if v.vtype is VEC3)
    assert build_backward(face_lod(screen, peel, uv, uv_faces, (64, 64))) == {}
    grads = build_backward(face_lod(screen, peel, uv, uv_faces, (64, 64), gradient=True))
    assert set(grads) == {pos, uv}


def test_gradient_of_the_exact_level_agrees_with_differences(ad: DressiAD) -> None:
    screen, peel, uv, uv_faces, feeds = _scene()
    lod = face_lod(screen, peel, uv, uv_faces, (64, 64), "ellipse", gradient=True)
    (g,) = run_many(ad, [build_backward(lod)[uv]], feeds)
    rng = np.random.default_rng(2)
    for _ in range(3):
        d = rng.normal(size=UV.shape)
        ends = [
            run_many(ad, [lod], {**feeds, uv: UV + s * 0.01 * d})[0].sum() / 0.02 for s in (1, -1)
        ]
        assert abs(ends[0] - ends[1] - (g[0, 0] * d).sum()) < 0.03 * np.abs(g[0, 0] * d).sum()


def pictures(ad: DressiAD) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The floor with and without mipmaps and by brute force, (H, W, 1); and the pixels that it
    covers wholly."""
    board = (np.indices((64, 64)) // 8).sum(0) % 2 * 1.0
    screen, peel, uv, uv_faces, feeds = _scene()
    tex = Variable(FLOAT, (64, 64))
    feeds[tex] = board[..., None]
    where = surface_uv(peel, uv, uv_faces)
    mip = F.image.mipmap(tex)
    reads = {
        "plain": F.texture(tex, where),
        "mipmapped": F.texture_mip(mip, where, face_lod(screen, peel, uv, uv_faces, mip)),
        "differences": F.texture_mip(mip, where, F.uv_lod(where, mip, peel.ids)),
    }
    got = run_many(ad, list(reads.values()), feeds)
    fine = (np.arange(FINE) + 0.5) / FINE
    x = (np.arange(W)[:, None] + fine).ravel()
    y = (np.arange(H)[:, None] + fine).ravel()
    at, on = floor_uv(*np.meshgrid(x, y))
    texel = np.floor(at * 64).astype(int) % 64
    value = board[texel[..., 1], texel[..., 0]]
    blocks = (H, FINE, W, FINE)
    out = {name: image[0] for name, image in zip(reads, got, strict=True)}
    out["reference"] = value.reshape(blocks).mean((1, 3))[..., None]
    return out, on.reshape(blocks).all(axis=(1, 3))


def test_floor_to_the_horizon_is_several_times_closer_to_supersampling(ad: DressiAD) -> None:
    images, whole = pictures(ad)
    texels_a_pixel = 2.0  # only where the texture is finer than the screen
    x, y = np.meshgrid(np.arange(W) + 0.5, np.arange(H) + 0.5)
    step = (floor_uv(x, y + 0.5)[0] - floor_uv(x, y - 0.5)[0]) * 64
    minified = whole & (np.linalg.norm(step, axis=-1) > texels_a_pixel * 4)
    assert minified.sum() > 150
    error = {
        name: np.abs(image - images["reference"])[minified].mean() for name, image in images.items()
    }
    assert error["plain"] > 3 * error["mipmapped"], error
    assert error["plain"] > 2.5 * error["differences"], error


def test_hard_rasterization_has_the_level_of_the_peel() -> None:
    """Both ways to the derivatives of uv, where the picture shows a face; several tables at once
    are interpolated as each alone."""
    mesh = icosphere(1)
    uv_table = np.random.default_rng(3).uniform(size=(len(mesh.positions), 2))
    pos = Variable(VEC3, (len(mesh.positions), 1))
    faces = Variable(IVEC3, (len(mesh.faces), 1))
    matrix, uv = Variable(MAT4), Variable(VEC2, (len(mesh.positions), 1))
    size = (16, 16)
    raster = build_hard_raster(pos, faces, matrix, size)
    screen = build_screen_faces(pos, faces, matrix, size)
    levels = [
        hard_lod(raster, uv, faces, (64, 32)),
        face_lod(screen, raster.peel, uv, faces, (64, 32)),
    ]
    both = raster.interpolate([pos, uv], faces)
    feeds = {
        pos: mesh.positions,
        faces: mesh.faces,
        matrix: ring(1, distance=4.0)[0].matrix,
        uv: uv_table,
    }
    shown = [raster.mask, *levels, *both, raster.interpolate(uv, faces)]
    mask, hard, soft, _, second, alone = evaluate(shown, feeds)
    inside = mask[..., 0] > 0
    assert inside.any() and not inside.all()
    np.testing.assert_allclose(hard[inside], soft[inside], atol=1e-6)
    np.testing.assert_array_equal(second, alone)
