"""Screen-space antialiasing: coverage against supersampling, gradients against finite differences,
inner silhouettes, several meshes and views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from dressi import Adam, DressiAD, F, GraphError, Variable, evaluate
from dressi.ad import build_backward
from dressi.ad.vtype import FLOAT, INT, IVEC3, MAT4, VEC2, VEC3
from dressi.render.fit import silhouette_loss
from dressi.render.raster import build_hardsoftras, gather, interpolate
from dressi.render.raster.antialias import Antialiased, build_antialias, cut_off
from dressi.render.scene import icosphere
from dressi.render.shading import unlit
from dressi.testing.scenes import camera, cube, quad, rotated

FINE = 16
"""Samples of a pixel along each axis in what coverage is compared with."""
FLAT = np.eye(4)
"""A camera that takes x and y in [-1, 1] as they are, z in [0, 1] as depth."""


@dataclass
class Shown:
    """A mesh, its cameras and colours of its vertices; ``loss`` weighs the picture smoothly."""

    vertices: np.ndarray
    faces: np.ndarray
    size: tuple[int, int] = (32, 24)
    matrices: np.ndarray | None = None
    look: str = "silhouette"
    jitter: tuple[float, float] | None = None
    aa: Antialiased = field(init=False)
    pos: Variable = field(init=False)
    image: Variable = field(init=False)
    loss: Variable = field(init=False)
    slope: Variable | None = field(init=False, default=None)
    feeds: dict[Variable, np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        views = camera(self.size)[None] if self.matrices is None else self.matrices
        n = len(self.vertices)
        self.pos = Variable(VEC3, (n, 1), requires_grad=True, name="pos")
        faces = Variable(IVEC3, (len(self.faces), 1), name="faces")
        matrix = Variable(MAT4, layers=len(views), name="matrix")
        # float32 values, so that device and oracle see the same numbers
        self.feeds = {
            self.pos: np.asarray(self.vertices, np.float32).astype(np.float64),
            faces: np.asarray(self.faces),
            matrix: np.asarray(views, np.float32).astype(np.float64),
        }
        self.aa = build_antialias(self.pos, faces, matrix, self.size, self.jitter)
        self.image = self.aa.silhouette
        if self.look == "color":
            colors = Variable(VEC3, (n, 1), requires_grad=True, name="colors")
            rng = np.random.default_rng(n)
            self.feeds[colors] = rng.uniform(0.2, 0.9, (n, 3)).astype(np.float32)
            shaded = interpolate(gather(colors, faces), self.aa.ids, self.aa.bary)
            self.image = self.aa.blend(shaded, 0.1)
        weight = Variable(FLOAT, self.size, name="weight")
        y, x = np.mgrid[0 : self.size[1], 0 : self.size[0]]
        self.feeds[weight] = np.float32(np.sin(0.31 * x + 0.4) + np.cos(0.23 * y - 0.3 * x))[
            ..., None
        ]
        self.loss = F.sum(F.sum_components(self.image * self.image) * weight)


def sent(ad: DressiAD, scene: Shown) -> Shown:
    ad.set_optimizer(None)
    for v, a in scene.feeds.items():
        ad.send_img(v, a)
    ad.set_loss_var(scene.loss)
    return scene


def image_of(ad: DressiAD, v: Variable) -> np.ndarray:
    a = ad.recv_img(v).astype(np.float64)
    return a[..., 0] if a.shape[-1] == 1 else a


def images_of(ad: DressiAD, *variables: Variable) -> list[np.ndarray]:
    """Several at once: one plan, one compilation."""
    found = [a.astype(np.float64) for a in ad.recv_imgs(variables)]
    return [a[..., 0] if a.shape[-1] == 1 else a for a in found]


def with_gradient(
    ad: DressiAD, scene: Shown, *variables: Variable
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The gradient to the vertices, and images, from one plan, which later calls use again."""
    if scene.slope is None:
        scene.slope = build_backward(scene.loss)[scene.pos]
    gradient, *images = images_of(ad, scene.slope, *variables)
    return gradient.reshape(-1, 3), images


def around(a: np.ndarray) -> list[np.ndarray]:
    """What the right, left, lower and upper neighbour of each pixel are."""
    p = np.pad(a, 1, mode="edge")
    return [p[1:-1, 2:], p[1:-1, :-2], p[2:, 1:-1], p[:-2, 1:-1]]


def sphere(level: int) -> tuple[np.ndarray, np.ndarray]:
    mesh = icosphere(level)
    return mesh.positions, mesh.faces


def joined(*meshes: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Several meshes in one table."""
    offsets = np.cumsum([0, *(len(v) for v, _ in meshes)])
    faces = [f + o for (_, f), o in zip(meshes, offsets, strict=False)]
    return np.concatenate([v for v, _ in meshes]), np.concatenate(faces)


ACUTE = np.array([(-0.9, -0.7, 0), (0.9, -0.6, 0.2), (0.1, 0.9, -0.3)])
ONE = np.array([(0, 1, 2)])
BIG = np.array([(-1.3, -1.1, 0), (1.4, -0.8, 0.2), (0.1, 1.3, -0.3)])


# -- coverage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("slope", [1e-3, 0.2, 0.7, 1.0])
def test_area_that_is_cut_off_is_that_of_the_square(slope: float) -> None:
    at = np.linspace(0.0, 1.0, 41)
    fine = (np.arange(400) + 0.5) / 400 - 0.5
    u, v = np.meshgrid(fine, fine)
    mine = [(u + slope * v > a).mean() for a in at]
    others = [(u + slope * v < a - 1.0).mean() for a in at]
    x, s = Variable(VEC2, (41, 1)), F.constant((slope, slope))
    (got,) = evaluate([cut_off(x, s)], {x: np.stack([at, at], -1)})
    want = np.stack([mine, mine, others, others], -1)
    assert np.abs(got[0, 0] - want).max() < 2e-3


@pytest.mark.gpu
@pytest.mark.parametrize("shape", ["triangle", "sphere", "fine sphere", "cube", "needles"])
def test_coverage_is_near_that_of_supersampling(ad: DressiAD, shape: str) -> None:
    """The mean error of pixels on the silhouette, against that of hard coverage. A fine sphere has
    faces at its silhouette that are thinner than a pixel."""
    needles = joined(
        *((rotated(BIG * (1, 0.2, 1), 0, 0, a) + (0, a - 1, a), ONE) for a in (0.5, 1.4))
    )
    (v, f), worst = {
        "triangle": ((BIG, ONE), 0.05),
        "sphere": (sphere(2), 0.06),
        "fine sphere": (sphere(3), 0.12),
        "cube": ((rotated(cube(0.8)[0], 0.5, 0.6), cube()[1]), 0.07),
        "needles": (needles, 0.12),
    }[shape]
    n = 64
    scene = sent(ad, Shown(v, f, (n, n)))
    hard, soft = images_of(ad, scene.aa.hard, scene.aa.silhouette)
    fine = image_of(ad, sent(ad, Shown(v, f, (n * FINE, n * FINE))).aa.hard)
    want = fine.reshape(n, FINE, n, FINE).mean((1, 3))
    edge = (want > 0) & (want < 1)
    assert edge.sum() > 60
    error, hards = np.abs(soft - want)[edge].mean(), np.abs(hard - want)[edge].mean()
    assert error < worst * hards, f"{error:.4f}, hard {hards:.4f}"
    assert np.abs(soft - want)[~edge].mean() < 1e-3
    assert abs(soft.sum() / want.sum() - 1.0) < 5e-3


@pytest.mark.gpu
@pytest.mark.parametrize("axis", [0, 1])
def test_area_grows_linearly_when_an_edge_moves_by_parts_of_a_pixel(
    ad: DressiAD, axis: int
) -> None:
    """A tilted edge goes through the whole picture: by steps of 1/8 pixel, past several centres."""
    v = np.array([(-9, -2, 0.5), (-9, 2, 0.5), (0.13, 2, 0.5), (-0.21, -2, 0.5)])
    if axis == 1:
        v = v[:, [1, 0, 2]]
    scene = sent(ad, Shown(v, quad()[1], (32, 32), FLAT[None]))
    areas = []
    for k in range(17):
        moved = v.copy()
        moved[:, axis] += k * (2 / 32) / 8
        ad.send_img(scene.pos, moved)
        areas.append(image_of(ad, scene.aa.silhouette).sum())
    steps = np.diff(areas)
    assert np.allclose(steps, 32 / 8, rtol=0.02), steps


@pytest.mark.gpu
def test_sphere_that_moves_by_parts_of_a_pixel_keeps_its_area_and_moves_its_centre(
    ad: DressiAD,
) -> None:
    v, f = sphere(2)
    v = v * (0.5, 0.5, 0.3) + (0, 0, 0.5)
    scene = sent(ad, Shown(v, f, (48, 48), FLAT[None]))
    centres, areas, hards = [], [], []
    for k in range(9):
        ad.send_img(scene.pos, v + (k * (2 / 48) / 4, 0, 0))
        s, hard = images_of(ad, scene.aa.silhouette, scene.aa.hard)
        areas.append(s.sum())
        hards.append(hard.sum())
        centres.append((s.sum(0) * np.arange(48)).sum() / s.sum())
    assert np.ptp(areas) / np.mean(areas) < 4e-3 < np.ptp(hards) / np.mean(hards)
    assert np.allclose(np.diff(centres), 0.25, atol=0.01)


@pytest.mark.gpu
def test_away_from_silhouettes_the_picture_is_the_hard_one(ad: DressiAD) -> None:
    """A sphere in front of a quad, vertex colours: ids are those of HardSoftRas, no pixel between
    two faces of one surface is touched, and what is touched is nowhere but beside a silhouette."""
    v, f = sphere(2)
    v, f = joined((v, f), (quad(4.0)[0] + (0, 0, -2), quad()[1]))
    scene = sent(ad, Shown(v, f, (64, 48), look="color"))
    pos, faces, matrix = list(scene.feeds)[:3]
    hs, aa = build_hardsoftras(pos, faces, matrix, (64, 48), 0.01), scene.aa
    ids, weights, picture, bary, silhouette, hs_hard, aa_hard, depth = images_of(
        ad, aa.ids, aa.weights, scene.image, aa.bary, aa.silhouette, hs.hard, aa.hard, aa.depth
    )
    of_sphere = ids < len(sphere(2)[1])
    beside = np.logical_or.reduce([a != of_sphere for a in around(of_sphere)])
    taken = weights.sum(-1)
    assert (taken[~beside] == 0).all()
    either = np.maximum.reduce([taken, *around(taken)])  # of two pixels one may lie off the edge
    assert (either[beside] > 0).mean() > 0.95
    assert weights.min() >= 0 and taken.max() <= 1
    colors = next(k for k in scene.feeds if k.name == "colors")
    rows = np.asarray(f)[ids.astype(int)]
    hard = (np.asarray(scene.feeds[colors])[rows] * bary[..., None]).sum(2)
    assert np.allclose(picture[taken == 0], hard[taken == 0], atol=1e-6)
    assert np.abs(picture - hard)[beside].mean() > 0.01
    assert (silhouette == 1).all()  # all of it is covered
    assert (hs_hard == aa_hard).all()
    assert depth.min() > 0 and depth.max() < 1 and depth[24, 32] < depth[0, 0]


@pytest.mark.gpu
def test_duplicated_vertices_and_turned_faces_change_nothing(ad: DressiAD) -> None:
    pictures = []
    for duplicated, order in ((False, [0, 1, 2]), (True, [0, 1, 2]), (False, [2, 1, 0])):
        v, f = cube(0.8, duplicated)
        scene = sent(ad, Shown(rotated(v, 0.5, 0.6), f[:, order], (40, 40)))
        pictures.append(image_of(ad, scene.aa.silhouette))
    assert (pictures[0] == pictures[1]).all()
    assert np.allclose(pictures[0], pictures[2], atol=1e-5)


@pytest.mark.gpu
def test_jitter_moves_the_picture_by_pixels(ad: DressiAD) -> None:
    v, f = rotated(cube(0.6)[0], 0.5, 0.6), cube()[1]
    still = image_of(ad, sent(ad, Shown(v, f, (40, 32))).aa.silhouette)
    moved = image_of(ad, sent(ad, Shown(v, f, (40, 32), jitter=(3.0, -2.0))).aa.silhouette)
    assert np.allclose(moved, np.roll(still, (-2, 3), (0, 1)), atol=1e-4)
    half = image_of(ad, sent(ad, Shown(v, f, (40, 32), jitter=(0.5, 0.0))).aa.silhouette)
    assert np.isclose((half - still).sum(), 0, atol=0.5) and np.abs(half - still).max() > 0.3


@pytest.mark.gpu
def test_views_as_layers_are_the_views_one_by_one(ad: DressiAD) -> None:
    views = np.stack([camera((32, 24), (4 * np.sin(a), 1.0, 4 * np.cos(a))) for a in (0.3, 2.0)])
    v, f = rotated(cube(0.8)[0], 0.3, 0.2), cube()[1]
    scene = sent(ad, Shown(v, f, (32, 24), views, "color"))
    gradient, (together,) = with_gradient(ad, scene, scene.image)
    alone = sent(ad, Shown(v, f, (32, 24), views[:1], "color"))
    matrix, total = list(alone.feeds)[2], np.zeros_like(gradient)
    for k in range(2):
        ad.send_img(matrix, views[k])
        its, (image,) = with_gradient(ad, alone, alone.image)
        assert (image == together[k]).all()
        total += its
    assert np.allclose(gradient, total, atol=1e-4 * np.abs(total).max())


# -- gradients -------------------------------------------------------------------------------------


def _fold() -> tuple[np.ndarray, np.ndarray]:
    """A strip that folds over itself: one mesh, open borders, an inner silhouette."""
    v = [(-1, -0.7, 0), (-1, 0.7, 0.1), (0.8, -0.65, 0.3), (0.85, 0.75, 0.4), (-0.2, -0.5, 1.0),
         (-0.1, 0.55, 1.1)]  # fmt: skip
    return np.array(v), np.array([(0, 1, 2), (1, 3, 2), (2, 3, 4), (3, 5, 4)])


def _two() -> tuple[np.ndarray, np.ndarray]:
    """Two closed meshes in one table, one in front of the other."""
    front, f = rotated(cube(0.4)[0], 0.5, 0.6) + (0.35, 0.1, 1.0), cube()[1]
    return joined((front, f), (rotated(cube(0.7)[0], 0.2, 0.9), f))


SCENES: dict[str, Callable[[], Shown]] = {
    "triangle": lambda: Shown(ACUTE, ONE),
    "triangle, color": lambda: Shown(ACUTE, ONE, look="color"),
    "needle": lambda: Shown(np.array([(-1.2, -0.8, 0), (1.2, 0.8, 0), (1.15, 0.92, 0.1)]), ONE),
    "turned quad": lambda: Shown(rotated(quad(0.9)[0], 0.3, 0.4, 0.2), quad()[1]),
    "fold, color": lambda: Shown(*_fold(), look="color"),
    "two cubes": lambda: Shown(*_two()),
    "two cubes, color": lambda: Shown(*_two(), (40, 30), look="color"),
    "cube, two views": lambda: Shown(
        rotated(cube(0.7)[0], 0.5, 0.6), cube()[1], (24, 24),
        np.stack([camera((24, 24)), camera((24, 24), (2.5, 1.0, 3.0))])
    ),
    "sphere": lambda: Shown(*sphere(1), (22, 20)),
}  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("name", SCENES)
def test_gradient_to_vertices_is_that_of_finite_differences(ad: DressiAD, name: str) -> None:
    """Steps so small that no pixel changes its face: checked, by the ids."""
    scene = sent(ad, SCENES[name]())
    data = scene.feeds[scene.pos]
    gradient, (image,) = with_gradient(ad, scene, scene.image)
    want_image = evaluate([scene.image], scene.feeds)[0]
    off = np.abs(image.reshape(want_image.shape) - want_image)
    assert (off > 2e-4).mean() < 0.002, off.max()
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(3, *data.shape))
    directions /= np.linalg.norm(directions, axis=(1, 2), keepdims=True)
    step, slopes, ids = 2e-6, [], []
    for d in directions:
        ends = [
            evaluate([scene.loss, scene.aa.ids], {**scene.feeds, scene.pos: data + s * step * d})
            for s in (1, -1)
        ]
        slopes.append((ends[0][0].item() - ends[1][0].item()) / (2 * step))
        ids += [e[1] for e in ends]
    assert all((i == ids[0]).all() for i in ids)
    want, got = np.array(slopes), np.einsum("kij,ij->k", directions, gradient)
    assert np.linalg.norm(want) > 0.1
    error = np.linalg.norm(got - want) / np.linalg.norm(want)
    cosine = got @ want / (np.linalg.norm(got) * np.linalg.norm(want))
    assert error < 0.02 and cosine > 0.999, f"rel. L2 {error:.4f}, cosine {cosine:.5f}"


@pytest.mark.gpu
@pytest.mark.parametrize("axis", [0, 1])
def test_inner_silhouette_pulls_the_occluder_by_the_length_of_its_edge(
    ad: DressiAD, axis: int
) -> None:
    """A red square in front of a blue wall. Moving its edge of 16 pixels outward by a pixel turns
    16 pixels from blue to red; the wall, which the edge hides, gets nothing."""
    small = quad(0.5)[0] + (0.013, 0.021, 0.3)
    v, f = joined((small, quad()[1]), (quad(1.5)[0] + (0, 0, 0.6), quad()[1]))
    scene = Shown(v, f, (32, 32), FLAT[None])
    red = F.to_float(F.compare("lt", scene.aa.ids, 2))
    picture = scene.aa.blend(F.vec3(red, 0.2, 1.0 - red))
    scene.loss = F.sum(picture.x - picture.z)
    sent(ad, scene)
    gradient = ad.recv_grad(scene.pos).astype(np.float64) * 2 / 32  # a pixel
    outward = small[:, axis] > 0
    want = 16 * 2.0  # from -1 to 1, for two corners
    assert np.isclose(gradient[:4, axis][outward].sum(), want, rtol=0.05)
    assert np.isclose(gradient[:4, axis][~outward].sum(), -want, rtol=0.05)
    assert np.abs(gradient[4:]).max() == 0 and np.abs(gradient[:, 2]).max() == 0


@pytest.mark.gpu
@pytest.mark.parametrize("mirror", [1.0, -1.0])
def test_line_where_faces_cross_is_sharp_and_has_a_gradient(ad: DressiAD, mirror: float) -> None:
    """A white tilted square goes through a black one. Where they meet nothing is mixed. Moved
    sideways, the white one takes the line of 10 pixels along; moved towards the camera, it wins
    1 / 0.75 of that; the black one, moved alike, gives back as much."""
    front, size = quad(0.8)[0], (16, 16)
    front[:, 2] = 0.75 * front[:, 0]
    v, f = joined((front, quad()[1]), (quad(1.0)[0], quad()[1]))
    v = (v + (0.03, 0.01, 0.0)) * (mirror, 1.0, 1.0)
    flat = np.diag([0.8, -0.8, -0.25, 1.0])
    flat[2, 3] = 0.5
    scene = Shown(v, f, size, flat[None])
    white = F.to_float(F.compare("lt", scene.aa.ids, 2)) * scene.aa.hard
    picture = scene.aa.blend(white)
    scene.loss = F.mean(picture)
    sent(ad, scene)
    gradient, (image, hard) = with_gradient(ad, scene, picture, white)
    if mirror < 0:
        image, hard = image[:, ::-1], hard[:, ::-1]
    assert hard[3:13, 8].all() and not hard[3:13, 7].any(), "they meet between columns 7 and 8"
    assert (image[4:12, 7] == 0.0).all() and (image[4:12, 8] == 1.0).all()
    a_unit = 10 * (16 / 2.5) / 256
    # Its right edge, 10 pixels high, and the line move alike.
    assert abs(gradient[:4, 0].sum()) < 0.02 * a_unit
    assert np.isclose(gradient[:4, 2].sum(), a_unit / 0.75, rtol=0.02)
    assert np.isclose(gradient[4:, 2].sum(), -a_unit / 0.75, rtol=0.02)


@pytest.mark.gpu
def test_edge_of_a_colour_ramp_has_the_colour_at_the_edge(ad: DressiAD) -> None:
    """A square whose brightness rises to the right, on grey, averaged over sub-pixel shifts. Each
    edge that moves out by a pixel adds its colours less the grey: on the left 0.1, on the right
    0.9, on the others 0.5 in the mean."""
    half, n = 0.43, 4
    shifts = shifted(n)
    v = quad(half)[0] + (0, 0, 0.3)
    scene = Shown(v, quad()[1], (32, 32), shifts)
    # Linear in the corners: the ramp moves with none of them.
    ramp = F.leaf(np.float32(0.5 + 0.4 * np.sign(v[:, :1]))[None], FLOAT, "ramp")
    shaded = interpolate(gather(ramp, _faces_of(scene)), scene.aa.ids, scene.aa.bary)
    scene.loss = F.sum(scene.aa.blend(F.stop_gradient(shaded), 0.2)) * (1.0 / n**2)
    gradient = ad.recv_grad(sent(ad, scene).pos).astype(np.float64) * 2 / 32  # a pixel
    side = 2 * half * 16
    for axis, outward, colour in ((0, -1, 0.1), (0, 1, 0.9), (1, -1, 0.5), (1, 1, 0.5)):
        moved = gradient[np.sign(v[:, axis]) == outward, axis].sum() * outward
        # 1.5 %: at corners, half a pixel of some 14, two edges share a pixel.
        assert moved == pytest.approx(side * (colour - 0.2), abs=0.015 * side)


def shifted(n: int, size: int = 32) -> np.ndarray:
    """Matrices that move the picture by n x n parts of a pixel."""
    line = ((np.arange(n) + 0.5) / n - 0.5) * 2 / size
    out = np.tile(np.eye(4), (n * n, 1, 1))
    out[:, :2, 3] = np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)
    return out


def _faces_of(scene: Shown) -> Variable:
    return next(v for v in scene.feeds if v.name == "faces")


@pytest.mark.gpu
@pytest.mark.parametrize("turn", ["mirrored", "transposed"])
def test_gradients_of_a_turned_picture_are_turned(ad: DressiAD, turn: str) -> None:
    """A fine ball that goes through a wall: inner silhouettes, faces of about a pixel, crossings.
    The camera turns, the weights of pixels with it: gradients of vertices stay."""
    ball, f = sphere(3)
    v, f = joined((ball * 0.7 + (0.1, 0.05, 0.3), f), (quad(3.0)[0] + (0, 0, -0.1), quad()[1]))
    n, kept = 32, []
    scene = Shown(v, f, (n, n), camera((n, n))[None])
    white = F.to_float(F.compare("lt", scene.aa.ids, len(f) - 2))
    matrix, weight = (next(w for w in scene.feeds if w.name == k) for k in ("matrix", "weight"))
    scene.loss = F.sum(scene.aa.blend(white) * weight)
    sent(ad, scene)
    for turned in (False, True):
        if turned:
            view, a = camera((n, n)), scene.feeds[weight]
            view = view[[1, 0, 2, 3]] if turn == "transposed" else np.diag([-1, 1, 1, 1]) @ view
            ad.send_img(matrix, view)
            ad.send_img(weight, a.swapaxes(0, 1) if turn == "transposed" else a[:, ::-1])
        kept.append(with_gradient(ad, scene)[0])
    first, second = kept
    # Rounding decides of single crossings near a centre, and at 45 degrees for rows or columns.
    assert np.linalg.norm(first - second) < 0.02 * np.linalg.norm(first)


@pytest.mark.gpu
def test_gradients_hardly_depend_on_the_resolution(ad: DressiAD) -> None:
    """The integral of a smooth weight over the covered part of the screen, at two sizes: they
    differ by the order of a pixel."""
    sizes, gradients = (48, 384), []
    for n in sizes:
        scene = Shown(rotated(cube(0.7)[0], 0.5, 0.6), cube()[1], (n, n))
        p = F.pixel_coord((n, n)) * (1.0 / n)
        scene.loss = F.mean(scene.aa.silhouette * (F.sin(p.x * 5.0) + p.y))
        gradients.append(with_gradient(ad, sent(ad, scene))[0])
    coarse, fine = gradients
    assert np.linalg.norm(coarse - fine) < 2.0 / sizes[0] * np.linalg.norm(fine)


@pytest.mark.gpu
def test_gradient_to_colours_is_the_weights(ad: DressiAD) -> None:
    scene = sent(ad, Shown(*_two(), (40, 30), look="color"))
    colors = next(v for v in scene.feeds if v.name == "colors")
    gradient = ad.recv_grad(colors).astype(np.float64)
    rng = np.random.default_rng(1)
    for _ in range(2):
        d, data = rng.normal(size=gradient.shape), np.asarray(scene.feeds[colors], np.float64)
        ends = [
            evaluate([scene.loss], {**scene.feeds, colors: data + s * d})[0] for s in (1e-4, -1e-4)
        ]
        assert np.isclose((gradient * d).sum(), (ends[0] - ends[1]).item() / 2e-4, rtol=2e-3)


@pytest.mark.gpu
def test_faces_without_area_or_across_a_plane_leave_everything_finite(ad: DressiAD) -> None:
    v, f = joined((rotated(cube(0.7)[0], 0.5, 0.6), cube()[1]), (ACUTE * 0.5, ONE))
    scene = sent(ad, Shown(v, f, (32, 24), look="color"))
    for kind, corners in {
        "point": [(0.1, 0.2, 1.5)] * 3,
        "line": [(-0.5, -0.5, 1.5), (0.5, 0.5, 1.5), (0, 0, 1.5)],
        "twice": v[[0, 1, 3]],
        "behind": ACUTE + (0, 0, 6),
        "crossing": [(-0.5, -0.6, 3.8), (0.5, -0.4, 3.0), (0.2, -0.5, 9.0)],
    }.items():
        v[8:] = corners
        ad.send_img(scene.pos, v)
        gradient, (image,) = with_gradient(ad, scene, scene.image)
        assert np.isfinite(image).all(), kind
        assert np.isfinite(gradient).all() and np.abs(gradient[:8]).max() > 1e-3, kind
        if kind in ("point", "behind"):
            assert (gradient[8:] == 0).all(), kind


# -- use -------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_fit_of_a_sphere_to_silhouettes_of_an_ellipsoid() -> None:
    """Three views of 64 x 64, 60 steps of Adam: the loss falls to a fifth, the shapes overlap."""
    views = np.stack([camera((64, 64), e) for e in ((0, 0, 4), (4, 0, 0.1), (2.4, 2.2, 2.4))])
    start = icosphere(2)
    with DressiAD() as ad:
        goal = Shown(start.positions * (1.15, 0.85, 1.0), start.faces, (64, 64), views)
        want = image_of(ad, sent(ad, goal).aa.silhouette)
        scene = Shown(start.positions, start.faces, (64, 64), views)
        target = Variable(FLOAT, (64, 64), 3, name="target")
        scene.feeds[target] = want[..., None]
        scene.loss = silhouette_loss(scene.aa.silhouette, target)
        sent(ad, scene)
        before = float(ad.recv_img(scene.loss).item())
        ad.set_optimizer(Adam(0.01))
        ad.exec_steps(60)
        after = float(ad.recv_img(scene.loss).item())
        hard = image_of(ad, scene.aa.hard) > 0.5
    assert after < before / 5, (before, after)
    assert (hard & (want > 0.5)).sum() / (hard | (want > 0.5)).sum() > 0.97


@pytest.mark.gpu
def test_layer_goes_into_the_shading_builders(ad: DressiAD) -> None:
    scene = Shown(rotated(quad(0.9)[0], 0.3, 0.4, 0.2), quad()[1])
    faces = list(scene.feeds)[1]
    uv, albedo = Variable(VEC2, (4, 1)), Variable(VEC3, (4, 4), requires_grad=True)
    scene.feeds[uv] = np.float32(quad(0.5)[0][:, :2] + 0.5)
    scene.feeds[albedo] = np.full((4, 4, 3), 0.5, np.float32)
    picture = scene.aa.blend(unlit(scene.aa.peel, uv, faces, albedo), 0.0)
    scene.loss = F.sum(picture.x)
    sent(ad, scene)
    slopes = build_backward(scene.loss)
    got, cover, *found = images_of(
        ad, picture, scene.aa.silhouette, slopes[albedo], slopes[scene.pos]
    )
    assert np.allclose(got, cover[..., None] * 0.5, atol=1e-5)
    assert all(np.abs(slope).max() > 1 for slope in found)


@pytest.mark.parametrize(
    "bad",
    [
        lambda p, f, m: build_antialias(np.zeros((3, 3)), f, m, (8, 8)),  # type: ignore[arg-type]
        lambda p, f, m: build_antialias(p, Variable(INT, (4, 1)), m, (8, 8)),
        lambda p, f, m: build_antialias(p, f + 1, m, (8, 8)),
        lambda p, f, m: build_antialias(p, f, p, (8, 8)),
        lambda p, f, m: build_antialias(p, f, m, (0, 8)),
        lambda p, f, m: build_antialias(p, f, m, 8),
        lambda p, f, m: build_antialias(p, f, m, (8, 8)).blend(f),
        lambda p, f, m: build_antialias(p, f, m, (8, 8)).blend(Variable(VEC3, (4, 4))),
    ],
)
def test_bad_arguments_raise_graph_error(bad: Callable[..., Any]) -> None:
    p, f = Variable(VEC3, (3, 1)), Variable(IVEC3, (1, 1))
    with pytest.raises(GraphError, match=r"antialias|faces|blend"):
        bad(p, f, Variable(MAT4))
