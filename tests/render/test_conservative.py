"""Conservative rasterization against clipping in exact fractions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dressi import DressiAD, F, GraphError, Variable, evaluate
from dressi.ad.vtype import FLOAT, IVEC3, VEC2, VEC3
from dressi.render.raster.conservative import Charts, build_bake, build_conservative, touches
from dressi.render.scene import icosphere, vertex_normals

HALF = Fraction(1, 2)


def overlaps(corners: np.ndarray, x: int, y: int) -> bool:
    """Whether the triangle has a point in the inside of a texel: clip it to the closed square; what
    is left lies in one side of the square, or the mean of its corners is inside."""
    polygon = [(Fraction(float(a)), Fraction(float(b))) for a, b in corners]
    for axis, at, sign in ((0, x, 1), (0, x + 1, -1), (1, y, 1), (1, y + 1, -1)):
        out = []
        for i, q in enumerate(polygon):
            p = polygon[i - 1]
            dp, dq = sign * (p[axis] - at), sign * (q[axis] - at)
            if (dp < 0) != (dq < 0) and dp != dq:
                t = dp / (dp - dq)
                out.append((p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])))
            if dq >= 0:
                out.append(q)
        polygon = out
    if not polygon:
        return False
    mean = [sum(p[k] for p in polygon) / len(polygon) for k in (0, 1)]
    return x < mean[0] < x + 1 and y < mean[1] < y + 1


def brute_force(corners: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    out = np.zeros(size[::-1], bool)
    low = np.floor(corners.min(0)).astype(int) - 1
    high = np.ceil(corners.max(0)).astype(int) + 1
    for y in range(max(0, low[1]), min(size[1], high[1] + 1)):
        for x in range(max(0, low[0]), min(size[0], high[0] + 1)):
            out[y, x] = overlaps(corners, x, y)
    return out


def one_a_layer(
    triangles: np.ndarray, size: tuple[int, int], **more: Any
) -> tuple[Charts, dict[Variable, np.ndarray]]:
    """Charts of triangles (n, 3, 2) in texels, each in a layer of its own."""
    uv = Variable(VEC2, (3, 1), len(triangles), requires_grad=True, name="uv")
    faces = F.leaf(np.array([(0, 1, 2)]), IVEC3)
    data = (triangles / size).astype(np.float32).astype(np.float64)
    return build_conservative(uv, faces, size, **more), {uv: data}


def triangles_of(kind: str, size: tuple[int, int]) -> np.ndarray:
    """Corners are multiples of 1/16 texel: with sizes that are powers of two all tests are exact in
    float32."""
    rng = np.random.default_rng(len(kind))
    n, box = 24, np.array(size)
    start = rng.uniform(0, 1, (n, 1, 2)) * box
    if kind == "any":
        t = rng.uniform(-0.2, 1.2, (n, 3, 2)) * box
    elif kind == "smaller than a texel":
        t = start + rng.uniform(-0.6, 0.6, (n, 3, 2))
    elif kind == "slivers":
        a, b = rng.uniform(0, 1, (2, n, 1, 2)) * box
        t = np.concatenate([a, b, b + rng.uniform(-0.2, 0.2, (n, 1, 2))], 1)
    elif kind == "segments and points":
        a, b = rng.uniform(0, 1, (2, n, 1, 2)) * box
        t = np.concatenate([a, b, b], 1)
        t[: n // 3, :2] = t[: n // 3, 2:]
    else:  # corners and edges on those of texels
        t = np.round(rng.uniform(0, 1, (n, 3, 2)) * box)
        t[: n // 2, 1, 1], t[: n // 2, 2, 0] = t[: n // 2, 0, 1], t[: n // 2, 0, 0]
    return np.round(t * 16) / 16


KINDS = ("any", "smaller than a texel", "slivers", "segments and points", "on the grid")


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_exactly_the_texels_that_a_triangle_touches(ad: DressiAD, kind: str) -> None:
    size = (16, 32)
    triangles = triangles_of(kind, size)
    charts, feeds = one_a_layer(triangles, size)
    for v, a in feeds.items():
        ad.send_img(v, a)
    got, ids = ad.recv_img(charts.touched)[..., 0], ad.recv_img(charts.ids)[..., 0]
    want = np.stack([brute_force(t, size) for t in triangles])
    missed, extra = (want & (got == 0)).sum(), (~want & (got == 1)).sum()
    assert (missed, extra) == (0, 0) and want.sum() >= (5 if kind == "on the grid" else 20)
    assert (ids == np.where(want, 0, -1)).all()
    assert (ad.recv_img(charts.filled)[..., 0] == want).all()


@pytest.mark.gpu
def test_atlas_of_another_size_is_right_but_for_rounding(ad: DressiAD) -> None:
    size = (37, 21)
    triangles = np.random.default_rng(5).uniform(0, 1, (20, 3, 2)) * size
    charts, feeds = one_a_layer(triangles, size)
    for v, a in feeds.items():
        ad.send_img(v, a)
        exact = a * size
    got = ad.recv_img(charts.touched)[..., 0]
    want = np.stack([brute_force(t, size) for t in exact])
    # Corners rounded by 1e-5 texels decide only where a triangle barely touches.
    shrunk, grown = (
        np.stack([brute_force(t + s * 1e-4 * np.sign(t - t.mean(0)), size) for t in exact])
        for s in (-1, 1)
    )
    assert (got[shrunk & want] == 1).all() and (got[~grown & ~want] == 0).all()


def test_separating_axes_on_known_triangles() -> None:
    a, b, c = (Variable(VEC2, (6, 1)) for _ in range(3))
    t = np.array(
        [
            [(-9, -9), (9, -9), (0, 9)],  # around the square
            [(0.5, -2), (0.5, 2), (3, 0)],  # along a side: only the border
            [(0.5, 0.5), (2, 0.5), (2, 2)],  # at a corner
            [(0.1, 0.1)] * 3,  # a point inside
            [(-1.0, 0.25), (0.25, -1.0), (0.25, -1.0)],  # a segment across a corner
            [(-1.0, -0.25), (-0.25, -1.0), (-2, -2)],  # beyond a corner
        ]
    )
    feeds = {v: t[:, k] for k, v in enumerate((a, b, c))}
    got = evaluate([touches(a, b, c)], feeds)[0].ravel()
    assert (got == [1, 0, 0, 1, 1, 0]).all()


@pytest.mark.gpu
def test_weights_are_of_the_nearest_point_of_the_face(ad: DressiAD) -> None:
    size = (16, 16)
    triangles = triangles_of("any", size)[:8]
    charts, feeds = one_a_layer(triangles, size, gutter_px=3.0)
    for v, a in feeds.items():
        ad.send_img(v, a)
    bary, distance, filled, touched = (
        ad.recv_img(v) for v in (charts.bary, charts.distance, charts.filled, charts.touched)
    )
    steps = np.linspace(0, 1, 201)
    s, t = (g.ravel() for g in np.meshgrid(steps, steps))
    grid = np.stack([(1 - s) * (1 - t), s * (1 - t), t], -1)  # points all over the triangle
    for k, corners in enumerate(triangles):
        points = grid @ corners
        for y, x in np.ndindex(16, 16):
            apart = np.linalg.norm(points - (x + 0.5, y + 0.5), axis=1).min()
            side = np.abs(corners - np.roll(corners, 1, 0)).max()
            near = side / 100  # between the points of the grid
            if filled[k, y, x, 0]:
                found = bary[k, y, x] @ corners
                assert bary[k, y, x].min() > -1e-5 and abs(bary[k, y, x].sum() - 1) < 1e-5
                d = np.linalg.norm(found - (x + 0.5, y + 0.5))
                assert d <= apart + 1e-4 and d >= apart - near
                assert abs(distance[k, y, x, 0] - d) < 1e-3
                assert touched[k, y, x, 0] or d <= 3.0 + 1e-4
            else:
                assert apart > 3.0 - 1e-4 and (bary[k, y, x] == 0).all()


@pytest.mark.gpu
def test_of_two_faces_the_one_that_covers_the_centre_wins(ad: DressiAD) -> None:
    """Two squares side by side, their border at 0.3 and at 0.7 of a texel."""
    for border, winner in ((4.3, 1), (4.7, 0)):
        x = np.array([0, border, 8]) / 8
        uv = np.array([(a, b) for a in x for b in (0.0, 1.0)])
        faces = np.array([(0, 2, 1), (1, 2, 3), (2, 4, 3), (3, 4, 5)])
        v, f = Variable(VEC2, (6, 1)), Variable(IVEC3, (4, 1))
        charts = build_conservative(v, f, (8, 8))
        ad.send_img(v, uv)
        ad.send_img(f, faces)
        ids = ad.recv_img(charts.ids)[..., 0]
        assert (ids[:, 4] // 2 == winner).all() and (ids[:, :4] // 2 == 0).all()
        assert (ids >= 0).all()


@pytest.mark.gpu
def test_gutter_is_a_run_time_value_and_grows_by_texels(ad: DressiAD) -> None:
    gutter = Variable(FLOAT, name="gutter")
    charts, feeds = one_a_layer(
        np.array([[(6.0, 6.0), (10, 6), (6, 10)]]), (16, 16), gutter_px=gutter
    )
    for v, a in feeds.items():
        ad.send_img(v, a)
    x, y = np.meshgrid(np.arange(16) + 0.5, np.arange(16) + 0.5)
    inside = (x > 6) & (y > 6) & (x + y < 16)
    for reach in (0.0, 1.0, 2.5):
        ad.send_img(gutter, reach)
        got = ad.recv_img(charts.filled)[..., 0]
        diagonal = np.maximum((x + y - 16) / np.sqrt(2), 0)
        box = np.hypot(np.maximum(6 - x, 0), np.maximum(6 - y, 0))
        left = (x < 6) & (y > 6) & (y < 10)
        assert (got[left] == ((6 - x) <= reach)[left]).all()
        band = (x > 6) & (y > 6) & ~inside & (abs(x - y) < 3)
        touched = ad.recv_img(charts.touched)[..., 0] == 1
        assert (got[band] == ((diagonal <= reach) | touched)[band]).all()
        corner = (x < 6) & (y < 6)
        assert (got[corner] == (box <= reach)[corner]).all()


@pytest.mark.gpu
def test_gradient_of_a_baked_image_is_that_of_finite_differences(ad: DressiAD) -> None:
    size = (12, 12)
    triangles = np.array(
        [[(1.3, 1.2), (10.4, 2.1), (4.2, 9.8)], [(2.0, 3.1), (9.0, 2.0), (9.5, 4.0)]]
    )
    charts, feeds = one_a_layer(triangles, size, gutter_px=1.5)
    (uv,) = feeds
    rng = np.random.default_rng(0)
    table = Variable(VEC3, (3, 1), requires_grad=True, name="table")
    weight = Variable(VEC3, size, 2, name="weight")
    feeds[table] = rng.uniform(size=(3, 3)).astype(np.float32)
    feeds[weight] = rng.uniform(size=(2, 12, 12, 3)).astype(np.float32)
    image = charts.interpolate(table, F.leaf(np.array([(0, 1, 2)]), IVEC3))
    loss = F.sum(F.dot(image, weight))
    for v, a in feeds.items():
        ad.send_img(v, a)
    ad.set_loss_var(loss)
    keep = {**feeds, charts.ids: ad.recv_img(charts.ids)}
    for leaf in (uv, table):
        got = ad.recv_grad(leaf).astype(np.float64).reshape(feeds[leaf].shape)
        want = np.zeros_like(got)
        for at in np.ndindex(*got.shape):
            ends = []
            for s in (1, -1):
                moved = feeds[leaf].astype(np.float64)
                moved[at] += s * 1e-6
                ends.append(evaluate([loss], {**keep, leaf: moved})[0].item())
            want[at] = (ends[0] - ends[1]) / 2e-6
        assert np.linalg.norm(got - want) < 0.005 * np.linalg.norm(want), leaf.name


@pytest.mark.gpu
def test_baked_sphere_is_a_sphere(ad: DressiAD) -> None:
    """Every texel of charts and gutter holds a point of the surface and its normal."""
    mesh = icosphere(2)
    assert mesh.uvs is not None
    pos = Variable(VEC3, (len(mesh.positions), 1))
    normal = Variable(VEC3, (len(mesh.positions), 1))
    faces, uv_faces = (Variable(IVEC3, (len(mesh.faces), 1)) for _ in range(2))
    uv = Variable(VEC2, (len(mesh.uvs), 1))
    size = (96, 64)
    smooth = build_bake(pos, faces, uv, uv_faces, size, normal, gutter_px=2)
    flat = build_bake(pos, faces, uv, uv_faces, size)
    for v, a in (
        (pos, mesh.positions),
        (normal, vertex_normals(mesh.positions, mesh.faces)),
        (faces, mesh.faces),
        (uv, mesh.uvs),
        (uv_faces, mesh.corner_faces),
    ):
        ad.send_img(v, a)
    filled = ad.recv_img(smooth.charts.filled)[..., 0] > 0
    touched = ad.recv_img(smooth.charts.touched)[..., 0] > 0
    assert (filled >= touched).all() and filled.sum() > touched.sum() > 1000
    position, n = ad.recv_img(smooth.position), ad.recv_img(smooth.normal)
    radius = np.linalg.norm(position, axis=-1)
    assert radius[filled].min() > 0.95 and radius[filled].max() < 1.0001
    assert (position[~filled] == 0).all() and (n[~filled] == 0).all()
    assert ((position / np.maximum(radius, 1e-9)[..., None] * n).sum(-1)[filled] > 0.99).all()
    face_normal = ad.recv_img(flat.normal)
    ids = ad.recv_img(flat.charts.ids)[..., 0]
    c = mesh.positions[mesh.faces[np.maximum(ids, 0)]].astype(np.float64)
    want = np.cross(c[..., 1, :] - c[..., 0, :], c[..., 2, :] - c[..., 0, :])
    want /= np.linalg.norm(want, axis=-1, keepdims=True)
    assert np.abs(face_normal - want)[ids >= 0].max() < 1e-5


UV, ROWS = Variable(VEC2, (3, 1)), Variable(IVEC3, (1, 1))
BAD: dict[str, Callable[[], Any]] = {
    "uv must be VEC2": lambda: build_conservative(Variable(VEC3, (3, 1)), ROWS, (8, 8)),
    "uv_faces must be": lambda: build_conservative(UV, np.zeros((1, 3)), (8, 8)),  # type: ignore[arg-type]
    "IVEC3": lambda: build_conservative(UV, UV, (8, 8)),
    "size must be": lambda: build_conservative(UV, ROWS, (0, 8)),
    "texels >= 0": lambda: build_conservative(UV, ROWS, (8, 8), gutter_px=-1.0),
    "FLOAT @ 1x1": lambda: build_conservative(UV, ROWS, (8, 8), gutter_px=UV),
    "as many faces": lambda: build_bake(
        Variable(VEC3, (3, 1)), Variable(IVEC3, (2, 1)), UV, ROWS, (8, 8)
    ),
}


@pytest.mark.parametrize("words", BAD)
def test_bad_arguments_raise_graph_error(words: str) -> None:
    with pytest.raises(GraphError, match=words):
        BAD[words]()
