"""HardSoftRas on the device: the kinds of faults that users of such software meet."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dressi import SGD, Adam, DressiAD, F, GraphError, Variable, evaluate
from dressi.ad import build_backward
from dressi.ad.vtype import FLOAT, INT, IVEC3, MAT4, VEC2, VEC3, VEC4
from dressi.render.raster import build_hardsoftras, gather, interpolate
from dressi.testing.scenes import FAR, NEAR, Scene, camera, cube, quad, rotated

pytestmark = pytest.mark.gpu

CLOSE = 2e-4
SIZE = (32, 24)


def sent(ad: DressiAD, scene: Scene) -> Scene:
    ad.set_optimizer(None)
    for v, a in scene.feeds.items():
        ad.send_img(v, a)
    ad.set_loss_var(scene.loss)
    return scene


def picture(ad: DressiAD, scene: Scene) -> np.ndarray:
    return ad.recv_img(sent(ad, scene).image).astype(np.float64)


def image_of(ad: DressiAD, v: Variable) -> np.ndarray:
    a = ad.recv_img(v)
    return a[..., 0] if a.shape[-1] == 1 else a


ACUTE = np.array([(-0.9, -0.7, 0), (0.9, -0.6, 0.2), (0.1, 0.9, -0.3)])
ONE = np.array([(0, 1, 2)])


# -- forward ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(101, 37), (37, 101), (1, 1), (2, 2), (1, 7), (9, 2), (64, 64)])
@pytest.mark.parametrize("K", [1, 2])
def test_all_sizes_agree_with_the_oracle(ad: DressiAD, size: tuple[int, int], K: int) -> None:
    scene = Scene("", ACUTE, ONE, size, K=K, look="color", r=0.1)
    got = picture(ad, scene)
    want = evaluate([scene.image], scene.feeds)[0]
    off = np.abs(got.reshape(want.shape) - want)
    assert (off > CLOSE).mean() < 0.002, off.max()
    assert np.isfinite(ad.recv_grad(scene.pos)).all()


def test_ids_are_face_numbers_and_minus_1(ad: DressiAD) -> None:
    """Three squares in a row, the middle one in front of a large one."""
    v, f = quad(0.25)
    parts = [v + (-0.9, 0, 0), v + (0, 0, 1), v + (0.9, 0, 0), v * 20 + (0, 0, -4)]
    faces = np.concatenate([f + 4 * k for k in range(4)])
    scene = sent(ad, Scene("", np.concatenate(parts), faces, (64, 48), r=0.01))
    ids = image_of(ad, scene.hs.peels[0].ids)
    assert ids.dtype == np.int32
    want = evaluate([scene.hs.peels[0].ids], scene.feeds)[0][0, :, :, 0]
    assert (ids != want).mean() < 0.01
    assert set(np.unique(ids // 2)) <= {-1, 0, 1, 2, 3}
    assert ids[24, 32] // 2 == 1 and ids[0, 0] // 2 == 3


def test_distance_is_pixels_over_the_longer_side_and_positive_inside(ad: DressiAD) -> None:
    """A square of 16 pixels in the middle of 64 x 32, on an identity camera."""
    half = np.array([8 / 32, 8 / 16])
    v = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * half
    v = np.concatenate([v, np.full((4, 1), 0.5)], 1)
    scene = Scene("", v, quad()[1], (64, 32), np.eye(4)[None], r=0.1)
    sent(ad, scene)
    d = image_of(ad, scene.hs.peels[0].distance)
    assert np.isclose(d[16, 20], -3.5 / 64, atol=1e-5)  # 3.5 pixels left of the edge at 24
    assert np.isclose(d[16, 24], 0.5 / 64, atol=1e-5) and np.isclose(d[16, 27], 3.5 / 64, atol=1e-5)
    hard = image_of(ad, scene.hs.hard)
    want = np.zeros((32, 64))
    want[8:24, 24:40] = 1
    assert (hard == want).all()


@pytest.mark.parametrize("r", [0.02, 0.1, 0.25])
@pytest.mark.parametrize("shape", ["acute", "obtuse", "needle"])
def test_soft_rim_reaches_exactly_r(ad: DressiAD, r: float, shape: str) -> None:
    """Every pixel within r of the face is kept, none beyond; nothing is cut off by the enlarged
    face."""
    v = {
        "acute": np.array([(-0.3, -0.4, 0.5), (0.4, -0.3, 0.5), (0.05, 0.4, 0.5)]),
        "obtuse": np.array([(-0.6, -0.1, 0.5), (0.6, -0.15, 0.5), (0.1, 0.1, 0.5)]),
        "needle": np.array([(-0.6, -0.5, 0.5), (0.6, 0.5, 0.5), (0.58, 0.52, 0.5)]),
    }[shape]
    scene = sent(ad, Scene("", v, ONE, (64, 48), np.eye(4)[None], r=r))
    stencil = image_of(ad, scene.hs.peels[0].stencil)
    # distance to the segments in float64
    p = np.stack(np.meshgrid(np.arange(64) + 0.5, np.arange(48) + 0.5), -1) / 64
    c = (v[:, :2] + 1) / 2 * (1.0, 48 / 64)
    d = np.full((48, 64), np.inf)
    inside = np.ones((48, 64), bool)
    for k in range(3):
        a, e = c[k], c[(k + 1) % 3] - c[k]
        t = np.clip(((p - a) @ e) / (e @ e), 0, 1)[..., None]
        d = np.minimum(d, np.linalg.norm(p - a - t * e, axis=-1))
        inside &= np.sign(e[0] * (p - a)[..., 1] - e[1] * (p - a)[..., 0]) == np.sign(
            e[0] * (c[(k + 2) % 3] - a)[1] - e[1] * (c[(k + 2) % 3] - a)[0]
        )
    want = inside | (d <= r)
    near = np.abs(d - r) < 1e-5
    assert ((stencil == 1) == want)[~near].all()


@pytest.mark.parametrize("given", ["r", "delta", "variable"])
@pytest.mark.parametrize("reach", [0.05, 0.12, 0.3, 1.0])
def test_edge_mask_reaches_delta_which_is_r_by_default(
    ad: DressiAD, given: str, reach: float
) -> None:
    """A hard square of 16x16 in 32x32: reach * 32 pixels (rounded) on both sides of its border."""
    if given == "variable" and reach > 0.5:
        pytest.skip("max_delta is up to the caller")
    v = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * 0.5
    v = np.concatenate([v, np.full((4, 1), 0.5)], 1)
    more: dict[str, Any] = {"max_delta": 0.5} if given == "variable" else {}
    value: Any = Variable(FLOAT, name="reach") if given == "variable" else reach
    if given == "r":
        scene = Scene("", v, quad()[1], (32, 32), np.eye(4)[None], r=value)
    else:
        scene = Scene(
            "", v, quad()[1], (32, 32), np.eye(4)[None], r=0.02, more={"delta": value, **more}
        )
    if given == "variable":
        scene.feeds[value] = np.float64(reach)
    sent(ad, scene)
    edge = image_of(ad, scene.hs.edge)
    n = max(
        1, int(np.floor(reach * 32 + 0.5))
    )  # pixels, from the border of the stencil inside and out
    stencil = np.zeros((34, 34), bool)
    stencil[9:25, 9:25] = True
    inner = stencil[1:-1, 1:-1]
    around = (stencil[:-2, 1:-1], stencil[2:, 1:-1], stencil[1:-1, :-2], stencil[1:-1, 2:])
    border = np.logical_or.reduce([inner != a for a in around])
    want = np.zeros((32, 32), bool)
    for y, x in np.argwhere(border):
        want[max(0, y - n + 1) : y + n, max(0, x - n + 1) : x + n] = True
    assert (edge == want).all(), f"{int(edge.sum())} pixels, {int(want.sum())} expected"


def test_colours_stay_within_the_colours_put_in(ad: DressiAD) -> None:
    """Vertex colours in [0.2, 0.9], background 0.1: no pixel leaves [0.1, 0.9], nowhere NaN (0 /
    0)."""
    rng = np.random.default_rng(2)
    v = rng.uniform(-1.5, 1.5, (30, 3)) * (1, 1, 0.5)
    faces = np.arange(30).reshape(-1, 3)
    for K in (1, 2, 3):
        for delta in (None, 1.0):
            scene = Scene("", v, faces, SIZE, look="color", K=K, r=0.1, more={"delta": delta})
            image = picture(ad, scene)
            assert np.isfinite(image).all()
            assert image.min() >= 0.1 - 1e-5 and image.max() <= 0.9 + 1e-5


def test_silhouette_is_in_0_1_and_hard_away_from_the_edge(ad: DressiAD) -> None:
    v, f = quad(0.9)
    scene = sent(ad, Scene("", v, f, (48, 48), r=0.06))
    s, edge, hard = (image_of(ad, x) for x in (scene.hs.silhouette, scene.hs.edge, scene.hs.hard))
    assert s.min() >= 0 and s.max() <= 1
    assert (s[edge == 0] == hard[edge == 0]).all() and 0 < edge.mean() < 1


def test_layers_of_peeling_lie_behind_each_other(ad: DressiAD) -> None:
    rng = np.random.default_rng(3)
    v = rng.uniform(-1.3, 1.3, (24, 3))
    scene = sent(ad, Scene("", v, np.arange(24).reshape(-1, 3), SIZE, K=4, r=0.05))
    depths = [image_of(ad, p.depth) for p in scene.hs.peels]
    ids = [image_of(ad, p.ids) for p in scene.hs.peels]
    for a, b in itertools.pairwise(depths):
        assert ((b > a) | (a == 1)).all()
    stack = np.stack(ids)
    for k in range(1, 4):
        shown = stack[k] >= 0
        assert all((stack[j] != stack[k])[shown].all() for j in range(k))
    assert (stack[1] >= 0).sum() > 50 and (stack[2] >= 0).sum() > 20


def test_contour_rims_give_the_same_silhouette_outside(ad: DressiAD) -> None:
    """The default for K = 1: the nearest point outside a shape lies on its contour."""
    v, f = cube(0.8)
    pictures = []
    for rims in ("all", "contour"):
        scene = sent(ad, Scene("", rotated(v, 0.5, 0.6), f, (48, 48), r=0.08, more={"rims": rims}))
        pictures.append(
            [image_of(ad, x) for x in (scene.hs.silhouette, scene.hs.hard, scene.hs.edge)]
        )
    (a, hard_a, edge_a), (b, hard_b, edge_b) = pictures
    assert (hard_a == hard_b).all() and (edge_a == edge_b).all()
    assert np.abs(a - b)[hard_a == 0].max() < 1e-5


def nearest_point(face: np.ndarray, pixel: tuple[int, int], size: int) -> np.ndarray:
    """Of the three edges of a face (3, 2), in float64, to the centre of a pixel; screen square."""
    p, found = (np.array(pixel) + 0.5) / size, []
    for a, b in zip(
        face.astype(np.float64), np.roll(face, -1, axis=0).astype(np.float64), strict=True
    ):
        found.append(a + np.clip((p - a) @ (b - a) / ((b - a) @ (b - a)), 0, 1) * (b - a))
    return min(found, key=lambda q: float(np.linalg.norm(p - q)))


def test_an_edge_that_two_faces_share_is_peeled_once(ad: DressiAD) -> None:
    """Outside the contour of a closed mesh a front and a back face have the same distance: one
    layer. One edge is what has one nearest point: beside a corner an edge may be nearest of one
    face and the corner of another, a little farther; these are two."""
    v, f = cube(0.7)
    scene = sent(ad, Scene("", rotated(v, 0.5, 0.6), f, (64, 64), K=2, r=0.1))
    (d1, d2), (i1, i2) = (
        [image_of(ad, getattr(p, what)) for p in scene.hs.peels] for what in ("distance", "ids")
    )
    soft = (i1 >= 0) & (i2 >= 0) & (d1 < 0)
    near = np.argwhere(soft & (np.abs(d1 - d2) < 1e-6))
    table = np.stack([ad.recv_img(c).reshape(-1, 4)[:, :2] for c in scene.hs.screen.corners], 1)
    twice = [
        (y, x)
        for y, x in near
        if np.linalg.norm(
            nearest_point(table[i1[y, x]], (x, y), 64) - nearest_point(table[i2[y, x]], (x, y), 64)
        )
        < 1e-6
    ]
    assert soft.sum() > 100 and not twice, f"{len(twice)} pixels count one edge twice"


# -- coverage --------------------------------------------------------------------------------------


def _clip_table(corners: np.ndarray) -> list[np.ndarray]:
    return [corners[:, k] for k in range(corners.shape[1])]


@pytest.mark.parametrize("seed", range(4))
def test_hardware_rasterization_of_a_rotated_grid_has_no_holes_and_no_doubles(
    ad: DressiAD, seed: int
) -> None:
    """8 x 8 quads, w in [0.1, 4]; even and odd quads are drawn apart, and their counts added."""
    rng = np.random.default_rng(seed)
    n, size = 8, (61, 47)
    angle = rng.uniform(0, np.pi) if seed else 0.0
    g = np.linspace(-0.8, 0.8, n + 1)
    x, y = np.meshgrid(g, g)
    c, s = np.cos(angle), np.sin(angle)
    w = rng.uniform(0.1, 4, x.shape)
    points = np.stack([x * c - y * s, x * s + y * c, np.full_like(x, 0.5), np.ones_like(x)], -1)
    points = points * w[..., None]
    triangles: dict[int, list] = {0: [], 1: [], 2: [], 3: []}
    for j in range(n):
        for i in range(n):
            a, b, d, e = points[j, i], points[j, i + 1], points[j + 1, i + 1], points[j + 1, i]
            triangles[2 * ((i + j) % 2)].append((a, b, d))
            triangles[2 * ((i + j) % 2) + 1].append((a, d, e))
    total = np.zeros((size[1], size[0]))
    feeds: dict[Variable, Any] = {}
    masks = []
    for part in triangles.values():
        tables = [Variable(VEC4, (len(part), 1)) for _ in range(3)]
        feeds |= dict(zip(tables, _clip_table(np.array(part)), strict=True))
        frag = F.rasterize(tables, size)
        masks.append(F.resolve(1.0, F.to_float(frag) * 0.0 + 0.5))
    for v, a in feeds.items():
        ad.send_img(v, a)
    for m in masks:
        total += ad.recv_img(m)[..., 0]
    assert total.max() == 1, f"{(total > 1).sum()} pixels drawn twice"
    # inside of the whole square, in its own coordinates
    px = np.stack(np.meshgrid(np.arange(61) + 0.5, np.arange(47) + 0.5), -1) / size * 2 - 1
    u = np.abs(
        np.stack([px[..., 0] * c + px[..., 1] * s, -px[..., 0] * s + px[..., 1] * c], -1)
    ).max(-1)
    assert (total[u < 0.799] == 1).all() and (total[u > 0.801] == 0).all()


@pytest.mark.parametrize("angle", [0.0, 0.3, np.pi / 4, 1.1, np.pi / 2])
@pytest.mark.parametrize("r", [0.0, 0.05])
def test_hard_stencil_of_a_quad_has_no_holes(ad: DressiAD, angle: float, r: float) -> None:
    """Split along either diagonal: the same pixels."""
    v, f = quad(0.8)
    v = rotated(v, 0, 0, angle)
    hard = []
    for faces in (f, np.array([(0, 1, 3), (1, 2, 3)])):
        scene = sent(ad, Scene("", v, faces, (33, 33), r=r, more={"sigma": 0.01}))
        hard.append(image_of(ad, scene.hs.hard))
    assert (hard[0] == hard[1]).all()
    rows = hard[0]
    for line in (*rows, *rows.T):  # convex: no gaps
        on = np.flatnonzero(line)
        assert len(on) == 0 or len(on) == on[-1] - on[0] + 1
    assert rows.sum() > 100


def test_cube_from_inside_has_no_holes(ad: DressiAD) -> None:
    """360 views around, above and below: every pixel shows a face. Faces cross the near plane."""
    v, f = cube(1.0)
    size = (16, 12)
    for start in range(0, 360, 90):
        angles = np.deg2rad(np.arange(start, start + 90))
        views = [
            camera(size, (0.05, 0.02, -0.03), (np.sin(a), 0.9 * np.sin(7 * a), np.cos(a)))
            for a in angles
        ]
        scene = sent(ad, Scene("", v, f, size, np.stack(views), r=0.0, more={"sigma": 0.01}))
        hard = image_of(ad, scene.hs.hard)
        assert hard.shape == (90, 12, 16)
        assert hard.all(), f"{int((hard == 0).sum())} holes from {start} degrees on"


# -- near plane ------------------------------------------------------------------------------------


def _floor(n: int, back: float) -> tuple[np.ndarray, np.ndarray]:
    """A floor y = -1 of n x n quads from z = back (behind the camera at 0) to -15."""
    x, z = np.meshgrid(np.linspace(-9, 9, n + 1), np.linspace(back, -15, n + 1))
    v = np.stack([x, np.full_like(x, -1.0), z], -1).reshape(-1, 3)
    i = np.arange((n + 1) ** 2).reshape(n + 1, n + 1)
    a, b, c, d = i[:-1, :-1].ravel(), i[:-1, 1:].ravel(), i[1:, 1:].ravel(), i[1:, :-1].ravel()
    return v, np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])


@pytest.mark.parametrize(
    ("back", "down"), [(5.0, 0.3), (0.0, 0.0)], ids=["behind the camera", "w = 0 exactly"]
)
def test_floor_of_two_triangles_looks_like_the_floor_split_finely(
    ad: DressiAD, back: float, down: float
) -> None:
    """Stencil, depth and colour (by position) of a floor with vertices behind or beside the
    camera."""
    size = (32, 24)
    matrix = camera(size, (0, 0, 0), (0, -down, -1))[None]
    pictures = []
    for n in (1, 16):
        v, f = _floor(n, back)
        pos, faces = Variable(VEC3, (len(v), 1)), Variable(IVEC3, (len(f), 1))
        m = Variable(MAT4)
        hs = build_hardsoftras(pos, faces, m, size, 0.0, sigma=0.01)
        uv = Variable(VEC2, (len(v), 1))
        peel = hs.peels[0]
        where = interpolate(gather(uv, faces), peel.ids, peel.bary)
        for x, a in ((pos, v), (faces, f), (m, matrix[0]), (uv, v[:, [0, 2]] / 10)):
            ad.send_img(x, a)
        pictures.append([image_of(ad, q) for q in (hs.hard, peel.depth, where)])
    (hard_1, depth_1, uv_1), (hard_2, depth_2, uv_2) = pictures
    assert hard_2.sum() > 150 and (hard_1 != hard_2).mean() < 0.01
    both = (hard_1 == 1) & (hard_2 == 1)
    assert np.abs(depth_1 - depth_2)[both].max() < 1e-3, "depth"
    assert np.abs(uv_1 - uv_2)[both].max() < 0.02, "texture coordinates"


def test_clipped_face_hides_and_is_hidden_as_its_depth_says(ad: DressiAD) -> None:
    """A floor that crosses the near plane, a post that stands on it and one below it."""
    size = (32, 24)
    v, f = _floor(1, 5.0)
    post = np.array([(-0.5, -1, -5), (0.5, -1, -5), (0, 0.5, -5.0)])
    below = np.array([(-0.5, -2.5, -5), (0.5, -2.5, -5), (0, -1.2, -5.0)])
    vertices = np.concatenate([v, post, below])
    n = len(v)
    faces = np.concatenate([f, [(n, n + 1, n + 2), (n + 3, n + 4, n + 5)]])
    scene = Scene(
        "", vertices, faces, size, camera(size, (0, 0, 0), (0, -0.3, -1))[None], r=0.0,
        more={"sigma": 0.01},
    )  # fmt: skip
    ids = image_of(ad, sent(ad, scene).hs.peels[0].ids)
    assert (ids == 2).sum() > 5, "the post is hidden by the floor behind it"
    assert (ids == 3).sum() == 0, "what lies below the floor shines through"


def test_vertices_behind_the_camera_give_and_get_nothing(ad: DressiAD) -> None:
    """A triangle behind the camera beside one in front."""
    v = np.concatenate([ACUTE, ACUTE * (1, 1, 1) + (0, 0, 8)])
    both = sent(ad, Scene("", v, np.array([(0, 1, 2), (3, 4, 5)]), SIZE, look="color"))
    got, g = ad.recv_img(both.hs.silhouette), ad.recv_grad(both.pos)
    alone = sent(ad, Scene("", ACUTE, ONE, SIZE, look="color"))
    assert np.abs(got - ad.recv_img(alone.hs.silhouette)).max() < 1e-6
    assert (g[3:] == 0).all() and np.abs(g[:3]).max() > 0


@pytest.mark.parametrize("K", [1, 2])
def test_face_that_crosses_the_near_plane_leaves_loss_and_gradients_finite(
    ad: DressiAD, K: int
) -> None:
    """Vertices pass through the camera during a fit; the loss stays a number throughout."""
    v, f = cube(0.7)
    scene = Scene("", v, f, (24, 24), look="color", K=K, r=0.08)
    pos0 = scene.feeds[scene.pos]
    ad.set_optimizer(None)
    sent(ad, scene)
    for z in np.linspace(0, 6, 25):
        ad.send_img(scene.pos, pos0 + (0, 0, z))
        assert np.isfinite(ad.recv_img(scene.loss)).all(), z
        assert np.isfinite(ad.recv_grad(scene.pos)).all(), z


def test_fit_with_faces_that_cross_the_near_plane_stays_finite() -> None:
    v, f = cube(0.7)
    with DressiAD() as ad:
        scene = Scene("", v + (0, 0, 2.9), f, (24, 24), r=0.08)
        sent(ad, scene)
        ad.set_optimizer(Adam(0.05))
        for _ in range(10):
            ad.exec_steps(3)
            assert (
                np.isfinite(ad.recv_img(scene.loss)).all()
                and np.isfinite(ad.recv_img(scene.pos)).all()
            )


# -- degenerate input ------------------------------------------------------------------------------

DEGENERATE = {
    "repeated corner": [(-0.5, 0.3, 0.0), (-0.5, 0.3, 0.0), (0.6, 0.2, 0.0)],
    "a point": [(0.1, 0.2, 0.0)] * 3,
    "collinear": [(-0.5, -0.43, 0.0), (0.0, 0.01, 0.0), (0.5, 0.45, 0.0)],
    "edge-on": [(0.0, -0.5, -0.5), (0.0, 0.5, -0.5), (0.0, 0.0, 0.5)],
    "needle": [(-0.9, 0.1, 0.0), (0.9, 0.1, 0.0), (0.9, 0.1000001, 0.0)],
    "smaller than a pixel": [(0.1, 0.1, 0.0), (0.1001, 0.1, 0.0), (0.1, 0.1001, 0.0)],
    "denormal": [(0.0, 0.0, 0.0), (1e-30, 0.0, 0.0), (0.0, 1e-30, 0.0)],
    "huge": [(-1e6, -1e6, -5.0), (1e6, -1e6, -5.0), (0.0, 1e6, -5.0)],
}


@pytest.mark.parametrize("K", [1, 2])
@pytest.mark.parametrize("kind", DEGENERATE)
def test_degenerate_face_leaves_everything_finite(ad: DressiAD, kind: str, K: int) -> None:
    """Beside an ordinary face, through silhouette and colour; and the ordinary face still gets a
    gradient."""
    v = np.concatenate([ACUTE, DEGENERATE[kind]])
    scene = Scene("", v, np.array([(0, 1, 2), (3, 4, 5)]), SIZE, look="color", K=K, r=0.08)
    image = picture(ad, scene)
    g = ad.recv_grad(scene.pos)
    assert np.isfinite(image).all() and np.isfinite(g).all()
    assert np.abs(g[:3]).max() > 0


@pytest.mark.parametrize("kind", ["repeated corner", "a point", "collinear", "denormal"])
def test_face_without_area_covers_nothing_hard(ad: DressiAD, kind: str) -> None:
    scene = sent(ad, Scene("", np.array(DEGENERATE[kind]), ONE, SIZE, r=0.05))
    assert (image_of(ad, scene.hs.hard) == 0).all()


def test_lone_vertices_get_a_gradient_of_exactly_0(ad: DressiAD) -> None:
    v = np.concatenate([ACUTE, [(0.0, 0.0, 0.0), (9.0, 9.0, 9.0)]])
    scene = sent(ad, Scene("", v, ONE, SIZE))
    g = ad.recv_grad(scene.pos)
    assert (g[3:] == 0).all() and np.abs(g[:3]).max() > 0


def test_faces_with_a_vertex_number_out_of_range_are_named() -> None:
    scene = Scene("", ACUTE, np.array([(0, 1, 3)]), SIZE)
    with DressiAD() as ad, pytest.raises(GraphError, match="index 3 at row 0"):
        sent(ad, scene)
        ad.recv_img(scene.image)


def test_both_orientations_are_drawn_and_look_the_same(ad: DressiAD) -> None:
    a = picture(ad, Scene("", ACUTE, np.array([(0, 1, 2)]), SIZE))
    b = picture(ad, Scene("", ACUTE, np.array([(0, 2, 1)]), SIZE))
    assert np.abs(a - b).max() < 1e-5


@pytest.mark.parametrize("K", [1, 2])
@pytest.mark.parametrize("rims", [None, "all"])
def test_duplicated_vertices_give_the_same_picture_and_the_same_summed_gradients(
    ad: DressiAD, K: int, rims: str | None
) -> None:
    """A cube of 8 vertices and one of 24, as UV seams make."""
    pictures, gradients = [], []
    for duplicated in (False, True):
        v, f = cube(0.7, duplicated)
        scene = sent(
            ad, Scene("", rotated(v, 0.5, 0.6), f, (40, 40), K=K, r=0.08, more={"rims": rims})
        )
        pictures.append(image_of(ad, scene.image))
        g = ad.recv_grad(scene.pos)
        base = rotated(cube(0.7)[0], 0.5, 0.6)
        nearest = np.argmin(np.linalg.norm(rotated(v, 0.5, 0.6)[:, None] - base, axis=-1), axis=1)
        total = np.zeros((8, 3))
        np.add.at(total, nearest, g)
        gradients.append(total)
    off = np.abs(pictures[0] - pictures[1])
    assert (off > 1e-4).mean() < 0.001, (
        f"{(off > 1e-4).sum()} pixels differ, by up to {off.max():.3f}"
    )
    scale = np.abs(gradients[0]).max()
    assert np.abs(gradients[0] - gradients[1]).max() < 1e-3 * scale


# -- gradients -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rims", [None, "all"])
def test_occluded_faces_get_exactly_0_at_K_1_and_something_at_K_2(
    ad: DressiAD, rims: str | None
) -> None:
    """A small triangle behind a square, near its edge; the mask everywhere (SoftRas mode)."""
    v, f = quad(0.8)
    hidden = np.array([(0.3, -0.5, -0.5), (0.85, -0.1, -0.5), (0.4, 0.5, -0.5)])
    vertices = np.concatenate([v, hidden])
    faces = np.concatenate([f, [(4, 5, 6)]])
    for K in (1, 2):
        scene = sent(
            ad, Scene("", vertices, faces, (40, 40), K=K, r=0.15, more={"delta": 1.0, "rims": rims})
        )
        ids = image_of(ad, scene.hs.peels[0].ids)
        g = ad.recv_grad(scene.pos)
        hard = image_of(ad, scene.hs.hard)
        assert not ((ids == 2) & (hard == 1)).any(), "not hidden: the test is wrong"
        if K == 1:
            assert (ids != 2).all() and (g[4:] == 0).all()
        else:
            assert np.abs(g[4:]).max() > 1e-6
        assert np.abs(g[:4]).max() > 1e-3


@pytest.mark.parametrize(("axis", "sign"), [(0, 1), (0, -1), (1, 1), (1, -1), (2, 1), (2, -1)])
def test_a_step_against_the_gradient_goes_towards_the_target(
    ad: DressiAD, axis: int, sign: int
) -> None:
    """Sign of x, y and z: the target is the square moved (or, in z, nearer and so larger)."""
    v, f = quad(0.6)
    moved = v.copy()
    moved[:, axis] += 0.25 * sign
    goal = Scene("", moved, f, (40, 40), r=0.1)
    target = picture(ad, goal)
    scene = Scene("", v, f, (40, 40), r=0.1)
    name = next(x for x in scene.feeds if x.name == "target")
    scene.feeds[name] = target
    sent(ad, scene)
    total = ad.recv_grad(scene.pos).sum(0)
    assert np.sign(total[axis]) == -sign
    assert np.abs(total[axis]) > 3 * np.abs(np.delete(total, [axis, 2])).max()


def test_own_picture_as_target_is_loss_0_and_nothing_moves() -> None:
    """R4 of docs/checking.md on vertices: 100 Adam steps, parameters bit-identical."""
    with DressiAD() as ad:
        v, f = cube(0.7)
        scene = Scene("", rotated(v, 0.5, 0.6), f, (24, 24), r=0.08)
        before = picture(ad, scene)
        target = next(x for x in scene.feeds if x.name == "target")
        ad.send_img(target, before)
        start = ad.recv_img(scene.pos)
        ad.set_optimizer(Adam(0.01))
        ad.exec_steps(100)
        assert ad.recv_img(scene.loss).item() == 0
        assert (ad.recv_img(scene.pos) == start).all()


@pytest.mark.parametrize("look", ["silhouette", "color"])
def test_a_few_steps_of_adam_lower_the_loss(look: str) -> None:
    with DressiAD() as ad:
        v, f = quad(0.7)
        goal = Scene("", v * (1.3, 0.8, 1) + (0.2, 0.1, 0), f, (40, 40), look=look, r=0.1)
        target = picture(ad, goal)
        scene = Scene("", v, f, (40, 40), look=look, r=0.1)
        scene.feeds[next(x for x in scene.feeds if x.name == "target")] = target
        sent(ad, scene)
        first = ad.recv_img(scene.loss).item()
        ad.set_optimizer(Adam(0.01))
        ad.exec_steps(60)
        assert ad.recv_img(scene.loss).item() < 0.1 * first


def test_far_range_gradient_reaches_r(ad: DressiAD) -> None:
    """The target is a square 6 pixels to the right: only with r beyond the gap do pixels outside
    pull."""
    v, f = quad(0.4)
    reach = []
    for r in (0.02, 0.3):
        scene = sent(ad, Scene("", v, f, (40, 40), r=r))
        s = image_of(ad, scene.hs.silhouette)
        reach.append(np.count_nonzero((s > 0) & (image_of(ad, scene.hs.hard) == 0)))
    assert reach[1] > 4 * reach[0]


# -- run-time values -------------------------------------------------------------------------------


def test_r_sigma_and_delta_are_run_time_values() -> None:
    """New values rebuild nothing, and give what constants give."""
    v, f = cube(0.7)
    v = rotated(v, 0.5, 0.6)
    r, sigma, delta = (Variable(FLOAT, name=n) for n in ("r", "sigma", "delta"))
    with DressiAD() as ad, DressiAD() as other:
        scene = Scene(
            "", v, f, (40, 40), r=r, look="color",
            more={"sigma": sigma, "delta": delta, "max_delta": 0.5},
        )  # fmt: skip
        values = [(0.1, 0.02, 0.1), (0.3, 0.05, 0.3), (0.02, 0.003, 0.025), (0.0, 0.01, 0.05)]
        scene.feeds |= {r: 0.1, sigma: 0.02, delta: 0.1}
        sent(ad, scene)
        ad.set_optimizer(SGD(0.0))
        for k, (a, b, c) in enumerate(values):
            for x, value in ((r, a), (sigma, b), (delta, c)):
                ad.send_img(x, value)
            ad.exec_step()
            image = ad.recv_img(scene.image)
            if k == 0:
                built = ad.n_rebuilds
            constant = Scene("", v, f, (40, 40), r=a, look="color", more={"sigma": b, "delta": c})
            want = picture(other, constant)
            assert np.abs(image - want).max() < 1e-4, (a, b, c)
        assert ad.n_rebuilds == built


def test_default_sigma_and_delta_follow_r_at_run_time(ad: DressiAD) -> None:
    r = Variable(FLOAT, name="r")
    scene = Scene("", ACUTE, ONE, (40, 40), r=r, more={"max_delta": 0.5})
    scene.feeds[r] = np.float64(0.1)
    sent(ad, scene)
    for value in (0.1, 0.25):
        ad.send_img(r, value)
        got = image_of(ad, scene.image)
        other = Scene("", ACUTE, ONE, (40, 40), r=value, more={"delta": value})
        want = evaluate([other.image], other.feeds)[0][0, :, :, 0]
        assert (np.abs(got - want) > CLOSE).mean() < 0.002


BAD = {
    "K": lambda p, f, m: build_hardsoftras(p, f, m, SIZE, 0.1, 0),
    "negative r": lambda p, f, m: build_hardsoftras(p, f, m, SIZE, -0.1),
    "r above 1": lambda p, f, m: build_hardsoftras(p, f, m, SIZE, 1.5),
    "NaN r": lambda p, f, m: build_hardsoftras(p, f, m, SIZE, float("nan")),
    "delta above 1": lambda p, f, m: build_hardsoftras(p, f, m, SIZE, 0.1, delta=2.0),
    "VEC4 positions": lambda p, f, m: build_hardsoftras(Variable(VEC4, (3, 1)), f, m, SIZE, 0.1),
    "INT faces": lambda p, f, m: build_hardsoftras(p, Variable(INT, (3, 1)), m, SIZE, 0.1),
    "face image": lambda p, f, m: build_hardsoftras(p, Variable(IVEC3, (3, 2)), m, SIZE, 0.1),
    "VEC4 matrix": lambda p, f, m: build_hardsoftras(p, f, Variable(VEC4), SIZE, 0.1),
    "size 0": lambda p, f, m: build_hardsoftras(p, f, m, (0, 4), 0.1),
    "rims": lambda p, f, m: build_hardsoftras(p, f, m, SIZE, 0.1, rims="none"),
    "r of VEC2": lambda p, f, m: build_hardsoftras(p, f, m, SIZE, Variable(VEC2)),
    "r of many pixels": lambda p, f, m: build_hardsoftras(p, f, m, SIZE, Variable(FLOAT, (3, 1))),
    "colours": lambda p, f, m: build_hardsoftras(p, f, m, SIZE, 0.1, 2).blend([F.constant(1.0)]),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_arguments_raise_graph_error(what: str) -> None:
    p, f, m = Variable(VEC3, (3, 1)), Variable(IVEC3, (1, 1)), Variable(MAT4)
    with pytest.raises(GraphError):
        BAD[what](p, f, m)


# -- texture backward ------------------------------------------------------------------------------


@pytest.mark.parametrize("tex_size", [(8, 8), (24, 16)], ids=["coarser", "finer than the screen"])
def test_inverse_uv_backward_is_unbiased_and_visits_every_visible_texel(
    tex_size: tuple[int, int],
) -> None:
    """The mean over 1500 steps approaches the exact gradient. The image is linear in the texture,
    so the
    gradient is the same at every step but for the jitter, and SGD with rate 1 adds it up."""
    n = 1500
    size = (20, 16)
    rng = np.random.default_rng(0)
    uv_data = np.stack(np.meshgrid(np.linspace(0.1, 0.9, 20), np.linspace(0.15, 0.8, 16)), -1)
    weights = rng.uniform(0.5, 1.5, (16, 20, 3))
    from dressi.ad import step_counter

    with DressiAD() as ad:
        tex = Variable(VEC3, tex_size, requires_grad=True)
        uv, w = Variable(VEC2, size), Variable(VEC3, size)
        zero = np.zeros((tex_size[1], tex_size[0], 3))
        for v, a in ((tex, zero), (uv, uv_data), (w, weights)):
            ad.send_img(v, a)
        ad.set_loss_var(F.texture(tex, uv) * w)
        exact = ad.recv_grad(tex).astype(np.float64)
        y = F.texture(tex, uv, backward="inverse_uv", step=step_counter())
        ad.set_loss_var(y * w)
        ad.set_optimizer(SGD(1.0))
        one_step = []
        for _ in range(30):
            before = ad.recv_img(tex)
            ad.exec_step()
            one_step.append(before - ad.recv_img(tex))
        ad.exec_steps(n - 30)
        mean = -ad.recv_img(tex).astype(np.float64) / n
    noise = np.stack(one_step).std(axis=0).mean() / np.sqrt(n)
    visible = exact > 0.02 * exact.max()
    assert (mean[visible] > 0).all(), (
        f"{(mean[visible] <= 0).sum()} visible texels were never visited"
    )
    assert (mean[exact == 0] == 0).all()
    off = mean - exact
    assert np.abs(off).mean() < 3 * noise, (np.abs(off).mean(), noise)
    assert np.abs(off.mean()) < 0.01 * exact.mean(), "biased"
    assert len({a.tobytes() for a in one_step}) > 25, "the jitter does not change from step to step"


def test_exact_texture_backward_on_a_rendered_quad_is_the_oracles(ad: DressiAD) -> None:
    v, f = quad(0.9)
    scene = sent(ad, Scene("", rotated(v, 0.3, 0.4), f, SIZE, look="texture"))
    albedo = next(x for x in scene.feeds if x.name == "albedo")
    want = evaluate([build_backward(scene.loss, [albedo])[albedo]], scene.feeds)[0][0]
    got = ad.recv_grad(albedo)
    assert np.linalg.norm(got - want) < 1e-3 * np.linalg.norm(want)


def test_views_as_layers_are_the_views_one_by_one(ad: DressiAD) -> None:
    v, f = cube(0.7)
    size = (24, 20)
    views = np.stack([camera(size, (4 * np.sin(a), 0.5, 4 * np.cos(a))) for a in (0.3, 1.4, 4.0)])
    together = picture(ad, Scene("", v, f, size, views, look="color", K=2, r=0.08))
    for k in range(3):
        alone = picture(ad, Scene("", v, f, size, views[k : k + 1], look="color", K=2, r=0.08))
        assert np.abs(together[k] - alone).max() < 1e-5


def test_depth_is_hardwares_z_over_w(ad: DressiAD) -> None:
    """A square facing the camera at distance 4: shifted depth is z / w / 2 all over it."""
    v, f = quad(0.8)
    scene = sent(ad, Scene("", v, f, SIZE, r=0.02))
    depth = image_of(ad, scene.hs.peels[0].depth)[image_of(ad, scene.hs.hard) == 1]
    want = FAR / (NEAR - FAR) * -4.0 + NEAR * FAR / (NEAR - FAR)
    assert np.allclose(depth, 0.5 * want / 4.0, atol=1e-5)


@pytest.mark.gpu
def test_rims_of_front_faces_give_the_silhouette_of_all_rims(ad: DressiAD) -> None:
    """A box, the same inside out, an open square seen from behind: each edge of the contour has a
    rim outside, and inside no pixel is farther from the outline than in the face that it shows."""
    from dressi.testing.scenes import camera, cube, quad

    box, faces = cube(0.5)
    open_v, open_f = quad(0.4)
    for v, f, eye in (
        (box, faces, (1.0, 1.5, 4.0)),
        (box, faces[:, ::-1], (1.0, 1.5, 4.0)),
        (open_v, open_f, (0.5, 0.3, -4.0)),
    ):
        pos, table = Variable(VEC3, (len(v), 1)), Variable(IVEC3, (len(f), 1))
        matrix = Variable(MAT4)
        made = [
            build_hardsoftras(pos, table, matrix, (40, 32), 0.1, rims=rims)
            for rims in ("contour", "front")
        ]
        for x, a in ((pos, v), (table, f), (matrix, camera((40, 32), eye))):
            ad.send_img(x, a)
        a, b, hard = (ad.recv_img(x) for x in (*(hs.silhouette for hs in made), made[1].hard))
        assert np.abs(a - b)[hard == 0].max() < 1e-6 and ((a > 0.01) & (a < 0.99)).sum() > 20
        # 1e-3: beyond r it is hard, and a sigmoid of 7 in the face alone.
        assert (b <= a + 1e-3).all() and (b[hard == 1] >= 0.5).all()
