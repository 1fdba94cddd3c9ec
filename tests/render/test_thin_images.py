"""Images of one row, of one column and of one pixel: every builder that draws gives there what it
gives in a larger image. The same scene is drawn three times: at (40, 1); at (40, 3) with clip
positions pressed into the middle row; and turned by a right angle, at (1, 40)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from renderer_scenes import demo_scene

from dressi import DressiAD, F, GraphError, Options, Variable, evaluate
from dressi.ad import simplify
from dressi.ad.graph import topological
from dressi.ad.one_row import draw_one_row
from dressi.ad.registry import RASTER
from dressi.ad.vtype import FLOAT, INT, IVEC2, IVEC3, MAT4, VEC3, VEC4
from dressi.render.camera import Camera, look_at, perspective
from dressi.render.raster import (
    build_antialias,
    build_batch,
    build_conservative,
    build_hard_raster,
    build_hardsoftras,
    build_lines,
    build_points,
    build_rasterize,
)
from dressi.render.raster.projection import build_screen_faces, project
from dressi.render.renderer import DressiBasicRenderer
from dressi.render.scene import icosphere
from dressi.render.shading.shadow import build_shadow_map

N = 40
R_PX = 4.0
"""Reach of soft rims in pixels."""
PRESSED = np.diag([1.0, 1.0 / 3.0, 1.0, 1.0])
"""What fills one row, into the middle one of three."""
TURNED = np.array([[0.0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
"""What runs to the right, downward: a turn by a right angle, of square pixels."""

APART = [5, 8, 19, 22, 25, 30, 35, 36, 47, 55, 60, 77]
"""Faces of the ball that share no vertex: what lies outside of two with one is as far from both."""

Size = tuple[int, int]
Images = dict[str, Variable]
"""By name; integer ones are to be equal, the others equal but for rounding."""


def views(n: int) -> np.ndarray:
    """(n, 4, 4): cameras whose image of 40x1 shows square pixels, a thin slice of the ball."""
    lens = perspective(np.degrees(2 * np.arctan(1.5 / N / 4)), N, 0.5, 20.0)
    eyes = ((0.1, 0.2, 4.0), (2.7, -0.4, 2.9))
    return np.stack([lens @ look_at(eye, (0.05, 0.1, 0)) for eye in eyes[:n]])


@dataclass
class Scene:
    """Leaves of a ball that lies askew, so that no vertex or edge is on the middle of a row."""

    size: Size
    matrices: np.ndarray
    r_px: float = R_PX

    def __post_init__(self) -> None:
        ball = icosphere(1, 1.0)
        turn, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))
        points = np.float32(ball.positions @ turn * np.sign(np.linalg.det(turn)))
        self.pos = Variable(VEC3, (len(points), 1), requires_grad=True, name="pos")
        self.faces = Variable(IVEC3, (len(ball.faces), 1), name="faces")
        self.apart = Variable(IVEC3, (len(APART), 1), name="apart")
        self.segments = Variable(IVEC2, (len(ball.faces), 1), name="segments")
        self.matrix = Variable(MAT4, layers=len(self.matrices), name="matrix")
        self.r = self.r_px / max(self.size)
        self.feeds = {
            self.pos: points,
            self.faces: ball.faces,
            self.apart: ball.faces[APART],
            self.segments: ball.faces[:, :2],
            self.matrix: np.float32(self.matrices),
        }


def hard(s: Scene) -> Images:
    out = build_hard_raster(s.pos, s.faces, s.matrix, s.size, cull="back")
    return {"ids": out.ids, "depth": out.depth, "bary": out.bary}


def joined(s: Scene) -> Images:
    """The ball, and another one of its leaves behind it."""
    pose = np.eye(4)
    pose[:3, 3] = (0.5, 0.0, -1.5)
    batch = build_batch([(s.pos, s.faces), (s.pos, s.faces, F.leaf(pose[None, None, None], MAT4))])
    out = build_hard_raster(batch.positions, batch.faces, s.matrix, s.size)
    return {"ids": out.ids, "mesh": batch.mesh_ids(out.ids), "depth": out.depth}


def one_peel(s: Scene) -> Images:
    screen = build_screen_faces(s.pos, s.faces, s.matrix, s.size)
    peel = build_rasterize(screen, F.constant(s.r), 1)[0]
    return {
        "ids": peel.ids,
        "distance": F.where(peel.stencil, peel.distance * float(max(s.size)), 0.0),
        "bary": peel.bary,
    }


def soft(K: int) -> Callable[[Scene], Images]:
    def build(s: Scene) -> Images:
        out = build_hardsoftras(s.pos, s.faces, s.matrix, s.size, s.r, K)
        ids = {f"ids{k}": peel.ids for k, peel in enumerate(out.peels)}
        colors = [peel.bary for peel in out.peels]
        return {**ids, "silhouette": out.silhouette, "color": out.blend(colors, 0.3)}

    return build


def antialiased(s: Scene) -> Images:
    out = build_antialias(s.pos, s.faces, s.matrix, s.size)
    along, across = ("xy", "zw") if s.size[0] > 1 else ("zw", "xy")
    return {
        "ids": out.ids,
        "depth": out.depth,
        "silhouette": out.silhouette,
        "along": F.swizzle(out.weights, along),
        "across": F.swizzle(out.weights, across),
    }


def charts(s: Scene) -> Images:
    clip = project(s.pos, s.matrix)
    out = build_conservative(clip.xy / clip.w * 0.5 + 0.5, s.apart, s.size, 2.0)
    return {"ids": out.ids, "touched": out.touched, "bary": out.bary, "distance": out.distance}


def points(s: Scene) -> Images:
    out = build_points(s.pos, 0.15, s.matrix, s.size, s.r, unit="world")
    return {"ids": out.ids, "soft": out.soft_ids, "depth": out.depth, "coverage": out.coverage}


def strands(s: Scene) -> Images:
    out = build_lines(s.pos, s.segments, 1.5, s.matrix, s.size, s.r)
    return {"ids": out.ids, "t": out.t, "depth": out.depth, "coverage": out.coverage}


BUILDERS: dict[str, Callable[[Scene], Images]] = {
    "hard": hard,
    "batch": joined,
    "rasterize": one_peel,
    "hardsoftras": soft(1),
    "peels": soft(3),
    "antialias": antialiased,
    "conservative": charts,
    "points": points,
    "strands": strands,
}
OF_ROWS = {
    "antialias": ("silhouette", "along", "across"),
    "hardsoftras": ("silhouette", "color"),
    "peels": ("silhouette", "color"),
}
"""What depends on the rows above and below, where there are any."""


@pytest.fixture(scope="module")
def engines(vulkan_device_available: bool) -> Iterator[dict[str, DressiAD]]:
    if not vulkan_device_available:
        pytest.skip("no Vulkan device on this machine")
    graphics, compute = (Options(lowering=way) for way in ("graphics", "compute"))
    with DressiAD(options=graphics) as a, DressiAD(options=compute) as b:
        yield {"graphics": a, "compute": b}


@pytest.fixture(params=["graphics", "compute"])
def ad(engines: dict[str, DressiAD], request: pytest.FixtureRequest) -> DressiAD:
    return engines[request.param]


def results(ad: DressiAD, scenes: list[Scene], images: list[Images]) -> list[dict[str, Any]]:
    """Of each scene: its images as (views, H, W, channels), and the gradient of positions of a sum
    of squares, weighed by place on the long side; only the middle row counts."""
    ad.set_optimizer(None)
    losses: list[Variable] = []
    for s, found in zip(scenes, images, strict=True):
        for leaf, data in s.feeds.items():
            ad.send_img(leaf, data)
        w, h = s.size
        y, x = np.mgrid[0:h, 0:w]
        weight = np.sin(0.7 * (x if w >= h else y) + 0.4) * (y == h // 2 if w >= h else 1.0)
        mask = F.leaf(np.float32(weight)[None, ..., None], FLOAT)
        for v in found.values():
            if not v.vtype.is_int:
                losses.append(F.sum(F.sum_components(v * v) * mask))
    ad.set_loss_var(F.add_n(losses) if len(losses) > 1 else losses[0])
    flat = iter(ad.recv_imgs([v for found in images for v in found.values()]))
    out: list[dict[str, Any]] = []
    for s, found in zip(scenes, images, strict=True):
        w, h = s.size
        shape = (s.matrix.layers, h, w, -1)
        out.append({name: np.asarray(next(flat)).reshape(shape) for name in found})
        out[-1]["gradient"] = np.asarray(ad.recv_grad(s.pos)).reshape(-1, 3)
    return out


def check_equal(name: str, a: np.ndarray, b: np.ndarray) -> None:
    if a.dtype.kind == "i":
        assert np.array_equal(a, b), name
    else:
        scale = np.abs(a).max() if name == "gradient" else 1.0
        assert np.abs(a - b).max() <= 5e-4 * scale, (name, np.abs(a - b).max(), scale)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("way", "name", "n"),
    [
        *(("graphics", name, 1 if name == "hardsoftras" else 2) for name in BUILDERS),
        ("graphics", "hard", 1),
        *(("compute", name, 2) for name in ("hard", "peels", "antialias")),
    ],
)
def test_a_row_is_the_middle_of_three_and_a_column(
    engines: dict[str, DressiAD], way: str, name: str, n: int
) -> None:
    mats = views(n)
    scenes = [Scene((N, 1), mats), Scene((1, N), TURNED @ mats)]
    if name != "peels":  # many shaders, the same as of one peel
        scenes.append(Scene((N, 3), PRESSED @ mats))
    found = results(engines[way], scenes, [BUILDERS[name](s) for s in scenes])
    row, column, tall = found[0], found[1], found[2] if len(found) > 2 else None
    of_rows = OF_ROWS.get(name, ())
    for what in (k for k in row if k != "gradient"):
        check_equal(what, row[what], column[what].swapaxes(1, 2))
        if tall is not None and what not in of_rows:
            check_equal(what, row[what], tall[what][:, 1:2])
        if row[what].dtype.kind == "i":
            seen = row[what] >= 0  # something and nothing, in each view
            assert all(0 < view.mean() < 1 for view in seen), what
    check_equal("gradient", row["gradient"], column["gradient"])
    if tall is not None and not of_rows:
        check_equal("gradient", row["gradient"], tall["gradient"])
    assert np.abs(row["gradient"]).max() > 1e-3
    if name == "antialias":
        assert not row["across"].any() and row["along"].any()
        assert ((row["silhouette"] > 0.01) & (row["silhouette"] < 0.99)).any()


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in BUILDERS if name != "batch"])
def test_a_pixel_is_the_middle_of_nine(engines: dict[str, DressiAD], name: str) -> None:
    ad = engines["graphics"]
    inner = np.diag([1 / 3, 1 / 3, 1.0, 1.0])
    square = np.diag([N / 1.0, 1.0, 1.0, 1.0]) @ views(2)
    scenes = [Scene((1, 1), square, 0.5), Scene((3, 3), inner @ square, 0.5)]
    images = [BUILDERS[name](s) for s in scenes]
    ad.set_optimizer(None)
    for s in scenes:
        for leaf, data in s.feeds.items():
            ad.send_img(leaf, data)
    flat = iter(ad.recv_imgs([v for found in images for v in found.values()]))
    one, nine = [
        {
            name: np.asarray(next(flat)).reshape(2, s.size[1], s.size[0], v.vtype.n_words)
            for name, v in found.items()
        }
        for s, found in zip(scenes, images, strict=True)
    ]
    assert one["ids" if "ids" in one else "ids0"].max() >= 0 or name in ("points", "conservative")
    for what in one:
        if what not in OF_ROWS.get(name, ()):
            check_equal(what, one[what], nine[what][:, 1:2, 1:2])


def covered(corners: np.ndarray, size: Size, rectangle: tuple[int, int, int, int]) -> np.ndarray:
    """(H, W) int: the nearest of quads, (n, 4, 4) clip positions of w = 1 without points on pixel
    centres, at the depth of its first corner; -1 where there is none. Half-planes of triangles."""
    w, h = size
    y, x = np.mgrid[0:h, 0:w] + 0.5
    x0, y0, rw, rh = rectangle
    shown = (x > x0) & (x < x0 + rw) & (y > y0) & (y < y0 + rh)
    best, ids = np.full((h, w), 1.0), np.full((h, w), -1)
    for k, quad in enumerate(corners):
        px = (quad[:, :2] + 1) * 0.5 * (w, h)
        for triangle in (px[[0, 1, 2]], px[[0, 2, 3]]):
            ends = zip(triangle, triangle[[1, 2, 0]], strict=True)
            side = [(q[0] - p[0]) * (y - p[1]) - (q[1] - p[1]) * (x - p[0]) for p, q in ends]
            inside = np.all(np.array(side) > 0, 0) | np.all(np.array(side) < 0, 0)
            wins = inside & shown & (quad[0, 2] < best)
            best[wins], ids[wins] = quad[0, 2], k
    return ids


def quads(rng: np.random.Generator, n: int) -> np.ndarray:
    """(n, 4, 4): convex quads, each of one depth, some above or below of the image."""
    centre, reach = (
        rng.uniform((-1, -2.5), (1, 2.5), (n, 2)),
        rng.uniform((0.1, 0.4), (0.4, 1.5), (n, 2)),
    )
    angles = rng.uniform(0, 6.28, (n, 1)) + np.arange(4) * 0.5 * np.pi
    xy = centre[:, None] + reach[:, None] * np.stack([np.cos(angles), np.sin(angles)], -1)
    xy[::2] = xy[::2, ::-1]  # half of them the other way round
    z = np.broadcast_to(rng.permutation(n)[:, None, None] / n * 0.8 + 0.1, (n, 4, 1))
    return np.float32(np.concatenate([xy, z, np.ones((n, 4, 1))], -1))


@pytest.mark.gpu
def test_quads_in_the_scissors_of_two_layers(ad: DressiAD) -> None:
    """Against half-planes in NumPy; the reference evaluator takes such sizes too."""
    rng = np.random.default_rng(8)
    size, rectangles = (N, 1), ((3, 0, 20, 1), (25, 0, 15, 1))
    both = np.stack([quads(rng, 24), quads(rng, 24)])
    corners = [F.leaf(both[:, None, :, k], VEC4) for k in range(4)]
    fragment = F.rasterize(corners, size, scissor=rectangles)
    ids = F.resolve(fragment, F.lookup(corners[0], fragment).z, background=-1)
    want = np.stack([covered(both[k], size, rectangles[k]) for k in range(2)])
    assert len(np.unique(want)) > 5
    assert np.array_equal(np.asarray(ad.recv_img(ids)).reshape(want.shape), want)
    assert np.array_equal(evaluate([ids], {})[0].reshape(want.shape), want)


@pytest.mark.gpu
@pytest.mark.parametrize("cull", [None, "back", "front"])
def test_fragments_read_images_of_one_row_at_their_pixel(ad: DressiAD, cull: str | None) -> None:
    """Depth, keep, value and an op with a snippet of its own, of tables, coordinates and numbers;
    the value also of an image that is no fragment's; two layers."""
    rng = np.random.default_rng(9)
    both, size = quads(rng, 24), (N, 1)
    corners = [F.leaf(both[None, None, :, k], VEC4) for k in range(4)]
    tables = rng.uniform(0.1, 0.9, (2, N))
    depth, keep = (F.leaf(np.float32(t).reshape(1, 1, N, 1), FLOAT) for t in tables)
    fragment = F.rasterize(corners, size, cull=cull)
    x = F.pixel_coord(size).x
    rows = F.custom("{y} = {x0} + float({hy}) + float({h1}) * {x1};", 0)
    nearest = 0.5 * F.lookup(corners[0], fragment).z + 0.3 * F.sqrt(depth)
    kept = F.to_float(F.sin(x * 0.9) + keep * 1e-3 > -0.5) * F.to_float(keep > 0.2)
    value = rows(F.to_float(fragment) * 100.0 + x, depth)
    shown = F.resolve(value, nearest, kept, background=-1.0)
    plain = F.resolve(x * depth, nearest, kept)
    behind = F.resolve(fragment, nearest, kept, background=-1, peel=1)
    column = np.arange(N) + 0.5
    open_to = (np.sin(column * 0.9) + tables[1] * 1e-3 > -0.5) & (tables[1] > 0.2)
    whole = (0, 0, N, 1)
    ends = both[..., 1:3, :2] - both[..., :1, :2]
    turns = ends[:, 0, 0] * ends[:, 1, 1] - ends[:, 0, 1] * ends[:, 1, 0]
    drawn = [k for k in range(24) if cull is None or (turns[k] < 0) == (cull == "back")]
    first = covered(both[drawn], size, whole)[0] if drawn else np.full(N, -1)
    ids = np.where((first >= 0) & open_to, np.array([*drawn, -1])[first], -1)
    want = np.where(ids >= 0, ids * 100.0 + column + 1.0 + np.float32(tables[0]), -1.0)
    second = np.full(N, -1)
    for k in set(drawn):
        others = [j for j in drawn if j != k]
        again = covered(both[others], size, whole)[0] if others else np.full(N, -1)
        second[ids == k] = np.array([*others, -1])[again][ids == k]
    got = [np.asarray(a).reshape(N) for a in ad.recv_imgs([shown, plain, behind])]
    assert np.abs(got[0] - want).max() < 1e-3 and (ids >= 0).any()
    assert np.abs(got[1] - np.where(ids >= 0, column * tables[0], 0.0)).max() < 1e-4
    assert np.array_equal(got[2], second)


@pytest.mark.gpu
def test_the_renderer_draws_and_fits_a_row(vulkan_device_available: bool) -> None:
    """Surfaces, maps, lights, shadows: those of the middle row of three; a step of descent."""
    if not vulkan_device_available:
        pytest.skip("no Vulkan device on this machine")
    pictures = []
    with DressiBasicRenderer() as renderer:
        for size in ((20, 1), (20, 3)):
            lens = perspective(np.degrees(2 * np.arctan(0.02 * size[1])), size[0] / size[1], 1, 10)
            seen = [Camera(look_at(eye), lens) for eye in ((-1.2, 0.6, 4.0), (1.4, 0.9, 3.8))]
            targets = [np.full((size[1], size[0], 3), 0.2, np.float32)] * 2
            renderer.load_scene(demo_scene(), targets, seen)
            renderer.build_graph(shadows=8)
            pictures.append(renderer.render_all(alpha=True))
            if size[1] == 1:
                renderer.set_requires_grad("base_color:Other")
                renderer.exec_step()
                before = renderer.loss()
                renderer.exec_steps(4)
                assert renderer.loss() < before
                assert pictures[0].shape == (2, 1, 20, 4)
                assert renderer.render_all().shape == (2, 1, 20, 3)
    row, middle = pictures[0], pictures[1][:, 1:2]
    inside = (row[..., 3] == 1) & (middle[..., 3] == 1)  # rims depend on the rows beside
    assert inside.mean() > 0.2 and np.abs(row - middle)[inside].max() < 1e-4


def test_only_images_of_one_row_are_drawn_as_two() -> None:
    """The same numbers, in NumPy; other graphs and those for compute shaders stay as they are."""
    for size, taller in (((N, 1), True), ((1, N), False), ((N, 2), False), ((1, 1), False)):
        s = Scene(size, views(1))
        out = build_rasterize(
            build_screen_faces(s.pos, s.faces, s.matrix, size), F.constant(s.r), 2
        )
        wanted = [v for peel in out for v in (peel.ids, peel.stencil)]
        made = draw_one_row(wanted)
        assert (made == wanted) is not taller
        drawn = {f.output.size for f in topological(made) if f.op.kind == RASTER}
        assert drawn == {(N, 2) if taller else size}
        kept = simplify(wanted, separately=lambda raster, n: False, one_row=True)
        assert {f.output.size for f in topological(kept) if f.op.kind == RASTER} == {size}
        if taller:
            pairs = zip(evaluate(made, s.feeds), evaluate(wanted, s.feeds), strict=True)
            assert all(np.array_equal(a, b) for a, b in pairs)


def test_other_steps_know_what_they_need() -> None:
    """A shadow map is looked up between texels: one row is refused, and said."""
    s = Scene((N, 1), views(1))
    with pytest.raises(GraphError, match="at least 2x2"):
        build_shadow_map(s.pos, s.faces, s.matrix, s.size)
    corner = Variable(VEC4, (3, 1), name="corner")
    fragment = F.rasterize([corner] * 3, (9, 1))
    assert (fragment.vtype, fragment.size) == (INT, (9, 1))
