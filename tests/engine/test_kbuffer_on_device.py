"""Layers found all at once in a compute shader are those of depth peeling, and those of a search by
integers in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dressi import DressiAD, F, Variable
from dressi.ad import build_backward
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC3, VEC4
from dressi.packing import Options
from dressi.render.raster import build_hardsoftras
from dressi.testing.problems import sphere, view_matrices
from dressi.testing.scenes import camera, cube, quad, rotated

pytestmark = pytest.mark.gpu

GRAPHICS = Options(lowering="graphics")
PEELED = Options(lowering="compute", peeling="depth")
KBUFFER = Options(lowering="compute", peeling="kbuffer")
TWO_PASSES: dict[str, int | bool] = {"int64_atomics": False}
WAYS: dict[str, tuple[Options, dict[str, int | bool]]] = {
    "graphics": (GRAPHICS, {}),
    "peeled": (PEELED, {}),
    "peeled, 32 bits": (PEELED, TWO_PASSES),
    "k-buffer": (KBUFFER, {}),
    "k-buffer, 32 bits": (KBUFFER, TWO_PASSES),
}

UNITS = 2**22
"""Of depth; sums of two are exact in float32."""


def nearest_by_search(
    table: np.ndarray, shift: np.ndarray, kept: np.ndarray, K: int
) -> tuple[np.ndarray, np.ndarray]:
    """ids and depths in UNITS, (K, H, W). table, kept: (n,) per primitive; shift: (H, W)."""
    ids = np.full((K, *shift.shape), -1)
    depths = np.full((K, *shift.shape), UNITS)
    for y, x in np.ndindex(shift.shape):
        units = (table + shift[y, x]) % UNITS
        found: dict[int, int] = {}
        for primitive in np.flatnonzero(kept):
            found.setdefault(int(units[primitive]), int(primitive))  # the smallest of a depth
        for k, unit in enumerate(sorted(found)[:K]):
            depths[k, y, x], ids[k, y, x] = unit, found[unit]
    return ids, depths


@pytest.mark.parametrize(
    ("way", "K"),
    [
        *((way, 3) for way in WAYS),
        *(("k-buffer", K) for K in (1, 2, 4, 5)),
        ("k-buffer, 32 bits", 5),
    ],
)
def test_layers_are_those_of_a_search(way: str, K: int) -> None:
    """300 quads over every pixel, their order another one at every pixel; few depths, so that many
    are equal and others differ by one unit."""
    rng = np.random.default_rng(K)
    n, size = 300, (17, 9)
    table = rng.integers(0, 40, n) + rng.integers(0, 3, n) * (UNITS // 3)
    shift = rng.integers(0, UNITS, (size[1], size[0]))
    kept = rng.uniform(size=n) < 0.8
    square = np.array([(-1.2, -1.2), (1.2, -1.2), (1.2, 1.2), (-1.2, 1.2)])
    corners = [F.leaf(np.tile([*xy, 0.5, 1.0], (n, 1)).astype(np.float32), VEC4) for xy in square]
    frag = F.rasterize(corners, size)
    per_face = [F.leaf(a.reshape(n, 1).astype(np.float32), FLOAT) for a in (table / UNITS, kept)]
    at_pixel = F.leaf((shift / UNITS).astype(np.float32)[..., None], FLOAT)
    depth = F.fract(F.lookup(per_face[0], frag) + at_pixel)
    keep = F.lookup(per_face[1], frag)
    shown = [F.resolve(frag, depth, keep, background=-1, peel=k) for k in range(K)]
    depths = [F.resolve(depth, depth, keep, background=1, peel=k) for k in range(K)]
    options, limits = WAYS[way]
    with DressiAD(options=options, limits=limits) as ad:
        got = [a[..., 0] for a in ad.recv_imgs([*shown, *depths])]
    want_ids, want_depths = nearest_by_search(table, shift, kept, K)
    assert (np.stack(got[:K]) == want_ids).all()
    assert (np.stack(got[K:]) * UNITS == want_depths).all()


def test_layers_run_out() -> None:
    """Three faces at two depths, five layers: the third has nothing, nor have those behind it."""
    corners = [
        F.leaf(np.array([[x, y, 0.3, 1], [x, y, 0.6, 1], [x, y, 0.3, 1]], np.float32), VEC4)
        for x, y in ((-3, -1), (3, -1), (0, 3))
    ]
    frag = F.rasterize(corners, (8, 8))
    depth = F.lookup(F.swizzle(corners[0], "z"), frag)
    layers = [F.resolve(frag, depth, background=-1, peel=k) for k in range(5)]
    for options, limits in WAYS.values():
        with DressiAD(options=options, limits=limits) as ad:
            got = ad.recv_imgs(layers)
        assert [set(np.unique(a)) for a in got] == [{0}, {1}, {-1}, {-1}, {-1}]


def test_a_layer_alone_needs_those_before_it() -> None:
    """Layer 2 without asking for 0 and 1."""
    corners = [
        F.leaf(np.array([[x, y, z, 1] for z in (0.7, 0.5, 0.3)], np.float32), VEC4)
        for x, y in ((-3, -1), (3, -1), (0, 3))
    ]
    frag = F.rasterize(corners, (8, 8))
    ids = F.resolve(frag, F.lookup(F.swizzle(corners[0], "z"), frag), background=-1, peel=2)
    for options, limits in WAYS.values():
        with DressiAD(options=options, limits=limits) as ad:
            assert (ad.recv_img(ids) == 0).all()


@pytest.mark.parametrize(
    ("cull", "scissor"),
    [("back", None), ("front", ((5, 3, 30, 20), (0, 0, 48, 40), (20, 20, 9, 9)))],
)
def test_culling_scissors_and_clipping_hold_in_every_layer(
    cull: str | None, scissor: Sequence[Sequence[int]] | None
) -> None:
    """Random primitives across all planes of the view volume, three views."""
    rng = np.random.default_rng(5)
    n, size = 60, (48, 40)
    w = rng.uniform(-0.5, 2.0, (4, 3, 1, n, 1))
    xy = (rng.uniform(-1, 1, (1, 3, 1, n, 2)) + rng.normal(0, 0.6, (4, 3, 1, n, 2))) * np.abs(w)
    data = np.concatenate([xy, rng.uniform(-0.3, 1.3, w.shape), w], -1).astype(np.float32)
    frag = F.rasterize([F.leaf(a, VEC4) for a in data[:3]], size, cull=cull, scissor=scissor)
    depth = F.fract(F.floor(F.to_float(frag) * 0.5) * 0.618)
    layers = [F.resolve(frag, depth, background=-1, peel=k) for k in range(4)]
    found = {}
    for name, (options, limits) in WAYS.items():
        with DressiAD(options=options, limits=limits) as ad:
            found[name] = np.stack(ad.recv_imgs(layers))
    assert (found["peeled"][3] >= 0).any()
    for name, ids in found.items():
        if name == "graphics":  # a corner may be snapped to another place
            assert (ids != found["peeled"]).mean() <= 1 / 500
        else:
            assert (ids == found["peeled"]).all(), name


def _stacked(*meshes: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    starts = np.cumsum([0] + [len(v) for v, _ in meshes])
    faces = [f + s for (_, f), s in zip(meshes, starts, strict=False)]
    return np.concatenate([v for v, _ in meshes]), np.concatenate(faces)


def _shells() -> tuple[np.ndarray, np.ndarray]:
    ball = sphere(80)
    return _stacked(*((ball.positions * s, ball.faces) for s in (0.35, 0.6, 0.85)))


FRONT = camera((40, 32))[None]
SCENES: dict[str, tuple[Any, np.ndarray, int]] = {
    "spheres inside each other": (_shells, view_matrices(2), 5),
    "coplanar faces": (
        lambda: _stacked(quad(0.8), quad(0.8), quad(0.5)),
        camera((40, 32))[None],
        2,
    ),
    "clipped faces": (lambda: _stacked(cube(6.0), cube(0.7)), view_matrices(2), 3),
    "a turned cube": (lambda: (rotated(cube(0.7)[0], 0.5, 0.6), cube(0.7)[1]), FRONT, 4),
}


@pytest.mark.parametrize("name", SCENES)
def test_hardsoftras_sees_the_same_layers_and_gradients(name: str) -> None:
    make, matrices, K = SCENES[name]
    v, f = make()
    pos = Variable(VEC3, (len(v), 1), requires_grad=True, name="pos")
    faces = Variable(IVEC3, (len(f), 1), name="faces")
    matrix = Variable(MAT4, layers=len(matrices), name="matrix")
    hs = build_hardsoftras(pos, faces, matrix, (40, 32), 0.08, K)
    loss = F.mean(hs.silhouette * F.sin(F.pixel_coord((40, 32), len(matrices)).x))
    wanted = [
        *(p.ids for p in hs.peels),
        *(p.depth for p in hs.peels),
        loss,
        build_backward(loss)[pos],
    ]
    found = []
    for way in ("peeled", "k-buffer", "k-buffer, 32 bits"):
        options, limits = WAYS[way]
        with DressiAD(options=options, limits=limits) as ad:
            ad.send_img(pos, v)
            ad.send_img(faces, f)
            ad.send_img(matrix, matrices)
            found.append(ad.recv_imgs(wanted))
    assert (found[0][1] >= 0).sum() > 50 and np.abs(found[0][-1]).max() > 0
    for got in found[1:]:
        for a, b in zip(got[:-1], found[0][:-1], strict=True):
            assert (a == b).all()
        # Sums of many pixels, in whatever order they come.
        assert np.linalg.norm(got[-1] - found[0][-1]) <= 1e-6 * np.linalg.norm(found[0][-1])


SLANTS = ((0.37, 0.0), (0.0, -0.8))


@pytest.mark.filterwarnings("ignore:(.|\\n)*turns the picture over")  # depth is turned over
@pytest.mark.parametrize("way", ["graphics", "k-buffer"])
def test_pixels_on_a_shared_edge_have_one_layer_for_both_of_its_faces(way: str) -> None:
    """The diagonal of slanted quads runs through pixel centres; a second quad lies behind. Both
    faces of the diagonal have the same depth there, to the bit, so layer 2 shows the second quad.
    (Interpolated from three corners each, one in 70 pixels shows the other face again.)"""
    size, n_views = 48, 16
    flat = np.array([(-0.93, -0.93), (0.91, -0.37), (0.93, 0.93), (-0.23, 0.83)])
    f = np.array([(0, 1, 2), (0, 2, 3)])
    v, f = _stacked(*((np.c_[flat, flat[:, 0] * slope + z], f) for slope, z in SLANTS))
    matrices = np.stack([np.diag([1.0, 1.0, -0.37 - 0.01 * k, 1.0]) for k in range(n_views)])
    matrices[:, 2, 3] = 0.5
    pos, faces = F.leaf(v, VEC3), F.leaf(f, IVEC3)
    view = Variable(MAT4, layers=n_views, name="matrix")
    hs = build_hardsoftras(pos, faces, view, (size, size), 0.02, 2)
    options, limits = WAYS[way]
    with DressiAD(options=options, limits=limits) as ad:
        ad.send_img(view, matrices)
        one, two, distance = (
            a[..., 0] for a in ad.recv_imgs([p.ids for p in hs.peels] + [hs.peels[0].distance])
        )
    diagonal = (slice(None), np.arange(6, 42), np.arange(6, 42))
    assert np.abs(distance[diagonal]).max() < 1e-6  # rounded in another way than the depth
    assert (one[diagonal] < 2).all() and (one[diagonal] >= 0).all()
    assert (two[diagonal] >= 2).all()


@pytest.mark.parametrize("int64_atomics", [True, False])
def test_faces_of_two_hundred_pixels_cover_what_they_should(int64_atomics: bool) -> None:
    """Products of their edges, in steps of 1/256 pixel, do not fit into 32 bits."""
    n, turn = 256, 0.3
    if int64_atomics:
        with DressiAD() as ad:
            if not ad.limits.int64_atomics:
                pytest.skip("no 64-bit atomics")
    square = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * 0.72
    around = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    xy = np.float32(square @ around.T)
    rows = np.array([[0, 1, 2], [0, 2, 3]])
    corners = [F.leaf(np.float32([[*xy[i], 0.5, 1.0] for i in rows[:, k]]), VEC4) for k in range(3)]
    frag = F.rasterize(corners, (n, n))
    limits = {"int64_atomics": int64_atomics}
    with DressiAD(options=Options(lowering="compute"), limits=limits) as ad:
        ids = ad.recv_img(F.resolve(frag, F.to_float(frag) * 0.0 + 0.5, background=-1))[..., 0]
    places = (np.arange(n) + 0.5) / n * 2 - 1
    x, y = np.meshgrid(places, places)
    away = np.max(np.abs(np.stack([x, y], -1) @ around), -1) - 0.72
    clear = np.abs(away) > 0.02 / n
    assert ((ids >= 0) == (away < 0))[clear].all()
    # Which of the two: the side of the diagonal from corner 0 to corner 2.
    d = xy[2].astype(np.float64) - xy[0]
    side = d[0] * (y - xy[0][1]) - d[1] * (x - xy[0][0])
    clear &= (away < 0) & (np.abs(side) > 0.05 / n)
    assert (ids == np.where(side < 0, 0, 1))[clear].all()
