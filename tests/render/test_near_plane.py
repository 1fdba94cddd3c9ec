"""Faces that cross the near or the far plane: what is left of them, against clipping in float64,
against the same floor split finely, and by finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dressi import DressiAD, F, Variable
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC2, VEC3
from dressi.render.raster import build_antialias, build_hardsoftras, gather, interpolate
from dressi.testing.scenes import camera

pytestmark = pytest.mark.gpu

SIZE = (32, 24)
R = 0.1
MATRIX = np.asarray(camera(SIZE, (0, 0, 0), (0, -0.6, -1)))
BACK, FRONT = 5.0, -60.0
"""Behind the camera, and beyond the far plane."""
NOISE = np.random.default_rng(0).random((SIZE[1], SIZE[0], 1))


def floor(n: int) -> tuple[np.ndarray, np.ndarray]:
    """A strip of n x n quads at y = -1, from BACK to FRONT."""
    x, z = np.meshgrid(np.linspace(-1.8, 1.8, n + 1), np.linspace(BACK, FRONT, n + 1))
    v = np.stack([x, np.full_like(x, -1.0), z], -1).reshape(-1, 3)
    i = np.arange((n + 1) ** 2).reshape(n + 1, n + 1)
    a, b, c, d = i[:-1, :-1].ravel(), i[:-1, 1:].ravel(), i[1:, 1:].ravel(), i[1:, :-1].ravel()
    return v, np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])


class Strip:
    """A mesh, both renderers with clip, and one loss on each of their pictures."""

    def __init__(self, v: np.ndarray, f: np.ndarray) -> None:
        self.v, self.f = v, f
        self.pos = Variable(VEC3, (len(v), 1), requires_grad=True, name="pos")
        self.faces, self.matrix = Variable(IVEC3, (len(f), 1), name="f"), Variable(MAT4, name="m")
        args = (self.pos, self.faces, self.matrix, SIZE)
        self.hs, self.aa = build_hardsoftras(*args, R, clip=True), build_antialias(*args, clip=True)
        peel, table = self.hs.peels[0], F.leaf(v[:, [0, 2]] / 10, VEC2)
        self.bary, self.uv = peel.bary, interpolate(gather(table, self.faces), peel.ids, peel.bary)
        noise = F.leaf(NOISE, FLOAT)
        self.losses = {
            "antialias": F.sum(self.aa.silhouette * noise),
            "uv": F.sum(F.dot(self.uv, (1.0, 0.3)) * noise * self.hs.hard),
            "distance": F.sum(F.where(self.hs.hard, 0.0, peel.distance * peel.stencil) * noise),
        }

    def send(self, ad: DressiAD) -> Strip:
        for leaf, a in ((self.pos, self.v), (self.faces, self.f), (self.matrix, MATRIX)):
            ad.send_img(leaf, a)
        return self


@pytest.fixture(scope="module")
def strips() -> tuple[Strip, Strip]:
    return Strip(*floor(1)), Strip(*floor(16))


def pixels(ad: DressiAD, v: Variable) -> np.ndarray:
    return np.asarray(ad.recv_img(v), float)


def polygon(v: np.ndarray) -> np.ndarray:
    """What is left of a polygon (n, 3), world, between the planes, in pixels, in float64."""
    points = np.c_[v, np.ones(len(v))] @ MATRIX.T
    for plane in (lambda p: p[2], lambda p: p[3] - p[2]):
        kept: list[Any] = []
        for p, q in zip(points, np.roll(points, -1, 0), strict=True):
            a, b = plane(p), plane(q)
            if a >= 0:
                kept.append(p)
            if (a >= 0) != (b >= 0):
                kept.append(p + (q - p) * a / (a - b))
        points = np.array(kept)
    return (points[:, :2] / points[:, 3:] * 0.5 + 0.5) * SIZE


def outside_distance(v: np.ndarray) -> np.ndarray:
    """(h, w) signed distance in pixels to the outline of what is left of a convex polygon."""
    shape = polygon(v)
    x, y = np.meshgrid(np.arange(SIZE[0]) + 0.5, np.arange(SIZE[1]) + 0.5)
    p, sides, least = np.stack([x, y], -1), [], np.full(x.shape, np.inf)
    for a, b in zip(shape, np.roll(shape, -1, 0), strict=True):
        e = b - a
        t = np.clip((p - a) @ e / (e @ e), 0, 1)
        least = np.minimum(least, np.linalg.norm(a + t[..., None] * e - p, axis=-1))
        sides.append(e[0] * (p - a)[..., 1] - e[1] * (p - a)[..., 0])
    inside = (np.min(sides, 0) >= 0) | (np.max(sides, 0) <= 0)
    return np.where(inside, least, -least)


RING = [0, 1, 3, 2]
"""Corners of ``floor(1)`` in order."""


def test_rim_is_that_of_the_clipped_polygon(ad: DressiAD, strips: tuple[Strip, Strip]) -> None:
    strip = strips[0].send(ad)
    want = outside_distance(strip.v[RING])
    peel = strip.hs.peels[0]
    got = pixels(ad, peel.distance)[..., 0] * max(SIZE)
    hard, near = pixels(ad, strip.hs.hard)[..., 0], np.abs(want) > 1e-3
    assert ((hard > 0) == (want >= 0))[near].all() and 0.2 < hard.mean() < 0.98
    rim = (want < -1e-3) & (want > -R * max(SIZE) + 0.1)
    assert rim.sum() > 20 and (pixels(ad, peel.stencil)[..., 0] > 0)[rim].all()
    assert np.abs(got - want)[rim].max() < 2e-3


def test_weights_stay_within_the_face(ad: DressiAD, strips: tuple[Strip, Strip]) -> None:
    for strip in strips:
        bary = pixels(ad, strip.send(ad).bary)
        assert bary.min() > -1e-6 and bary.max() < 1 + 1e-6


def test_strip_of_two_triangles_is_the_strip_split_16_times(
    ad: DressiAD, strips: tuple[Strip, Strip]
) -> None:
    """Pictures, and summed gradients: what moves the whole strip."""
    shown, grads = [], []
    for strip in strips:
        strip.send(ad)
        shown.append([pixels(ad, q) for q in (strip.aa.silhouette, strip.uv, strip.hs.hard)])
        grads.append([])
        for loss in strip.losses.values():
            ad.set_loss_var(loss)
            grads[-1].append(ad.recv_grad(strip.pos).reshape(-1, 3).sum(0))
    for one, split in zip(*shown, strict=True):
        assert np.abs(one - split).max() < 1e-3
    for name, one, split in zip(strips[0].losses, *grads, strict=True):
        assert np.abs(split).max() > 1, name
        assert np.abs(one - split).max() < 1e-3 * np.abs(split).max(), name


def test_gradient_of_the_rim_is_that_of_the_clipped_polygon(
    ad: DressiAD, strips: tuple[Strip, Strip]
) -> None:
    """By differences in float64, for each corner, those behind the camera included."""
    strip = strips[0].send(ad)
    ad.set_loss_var(strip.losses["distance"])
    got = ad.recv_grad(strip.pos).reshape(-1, 3)
    peel = strip.hs.peels[0]
    soft = (pixels(ad, peel.stencil) > 0)[..., 0] & (pixels(ad, strip.hs.hard) == 0)[..., 0]
    step, want = 1e-5, np.zeros_like(got)
    for k in range(4):
        for i in range(3):
            at = [strip.v + 0.0, strip.v + 0.0]
            at[0][k, i] += step
            at[1][k, i] -= step
            d = [(outside_distance(v[RING]) * NOISE[..., 0])[soft].sum() for v in at]
            want[k, i] = (d[0] - d[1]) / (2 * step) / max(SIZE)
    flat = [0, 2]  # moves of one corner up or down bend the strip: two planes then
    assert np.abs(want).max() > 0.1
    assert np.abs(got - want)[:, flat].max() < 0.02 * np.abs(want).max()


def test_weights_stay_within_faces_that_the_hardware_clips(ad: DressiAD) -> None:
    """Without clip too: random faces, most of which have corners behind the camera."""
    v = np.random.default_rng(3).uniform((-4, -3, -20), (4, 3, 8), (120, 3))
    pos, faces = Variable(VEC3, (120, 1), name="pos"), Variable(IVEC3, (40, 1), name="f")
    matrix = Variable(MAT4, name="m")
    hs = build_hardsoftras(pos, faces, matrix, SIZE, 0.05)
    for leaf, a in ((pos, v), (faces, np.arange(120).reshape(40, 3)), (matrix, MATRIX)):
        ad.send_img(leaf, a)
    bary = pixels(ad, hs.peels[0].bary)
    assert pixels(ad, hs.hard).mean() > 0.3
    assert bary.min() >= 0 and bary.max() < 1 + 1e-6
