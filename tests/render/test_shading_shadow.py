"""Shadow maps: where a shadow falls, how it is filtered, and its gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dressi import DressiAD, F, GraphError, Variable, evaluate, gradcheck
from dressi.ad.vtype import IVEC3, MAT4, VEC2, VEC3
from dressi.render.raster import build_hardsoftras
from dressi.render.shading import (
    DirectionalLight,
    SpotLight,
    Surface,
    build_shadow_map,
    build_surface,
    directional_matrix,
    eye_position,
    lambert_surface,
    shadow_visibility,
    spot_matrix,
)
from dressi.testing.scenes import camera, quad

HALF, HEIGHT = 0.5, 1.0
MAP = (64, 64)
UP = np.array([0.0, 1.0, 0.0])


def caster(height: float = HEIGHT, half: float = HALF) -> tuple[np.ndarray, np.ndarray]:
    """A horizontal square at that height over the origin."""
    v, f = quad(half)
    return v[:, [0, 2, 1]] * (1, 1, -1) + (0, height, 0), f


def ground(n: int = 41, side: float = 1.6) -> np.ndarray:
    """(n * n, 3) points of the plane y = 0, x and z in [-side, side]."""
    g = np.linspace(-side, side, n)
    x, z = np.meshgrid(g, g)
    return np.stack([x.ravel(), np.zeros(n * n), z.ravel()], -1)


class Cast:
    """A square and points that it may shade."""

    def __init__(self, matrix: Any, points: np.ndarray, r: float = 0.0, **options: Any) -> None:
        v, f = caster()
        self.pos = Variable(VEC3, (4, 1), requires_grad=True, name="pos")
        faces = Variable(IVEC3, (2, 1), name="faces")
        self.points = Variable(VEC3, (len(points), 1), requires_grad=True, name="points")
        self.map = build_shadow_map(self.pos, faces, matrix, options.pop("size", MAP), r)
        normal = F.constant(UP) if "to_light" in options else None
        self.visible = shadow_visibility(self.map, self.points, normal, **options)
        self.feeds = {self.pos: v, faces: f, self.points: points}

    def show(self, ad: DressiAD) -> np.ndarray:
        for x, a in self.feeds.items():
            ad.send_img(x, a)
        ad.set_loss_var(self.visible)
        return ad.recv_img(self.visible).reshape(-1)


def in_square(points: np.ndarray, center: np.ndarray, half: float, margin: float) -> Any:
    """(surely inside, surely outside) masks of points of the ground."""
    far = np.abs(points[:, [0, 2]] - center).max(axis=1)
    return far < half - margin, far > half + margin


@pytest.mark.gpu
@pytest.mark.parametrize("direction", [(0.0, -1.0, 0.0), (0.5, -1.0, 0.0), (0.3, -1.0, -0.6)])
def test_a_square_in_the_sun_casts_its_shadow_where_it_should(
    ad: DressiAD, direction: tuple[float, float, float]
) -> None:
    """The shadow is the square, moved along the light until it meets the ground."""
    d = np.array(direction)
    points = ground()
    to_light = F.constant(-d / np.linalg.norm(d))
    cast = Cast(directional_matrix(direction, (0.0, 0.5, 0.0), 2.4), points, to_light=to_light)
    got = cast.show(ad)
    shadow = d[[0, 2]] / -d[1] * HEIGHT
    texel = 2 * 2.4 / MAP[0]
    inside, outside = in_square(points, shadow, HALF, 2.5 * texel)
    assert inside.sum() > 15 and outside.sum() > 500
    assert got[inside].max() < 0.01 and got[outside].min() > 0.99
    # in between it falls monotonously: about half of the light at the edge
    edge = np.abs(np.abs(points[:, [0, 2]] - shadow).max(axis=1) - HALF) < 0.3 * texel
    assert not edge.any() or 0.2 < got[edge].mean() < 0.8


@pytest.mark.gpu
def test_a_spot_casts_a_larger_shadow(ad: DressiAD) -> None:
    """From height 3 the square at height 1 covers 3/2 of its size on the ground."""
    points = ground()
    matrix = spot_matrix((0.0, 3.0, 0.0), (0.0, -1.0, 0.0), math.radians(35), 0.5, 6.0)
    got = Cast(matrix, points).show(ad)
    texel = 2 * 3 * math.tan(math.radians(35)) / MAP[0]
    inside, outside = in_square(points, np.zeros(2), HALF * 3 / 2, 2.5 * texel)
    assert inside.sum() > 100 and outside.sum() > 500
    assert got[inside].max() < 0.01 and got[outside].min() > 0.99


@pytest.mark.gpu
def test_what_lies_above_the_caster_or_off_the_map_is_lit(ad: DressiAD) -> None:
    points = np.array([(0, 1.5, 0), (0, HEIGHT, 0), (9, 0, 0), (0, -9, 0), (0, 20, 0), (0, 0, 0)])
    got = Cast(directional_matrix((0.0, -1.0, 0.0), (0.0, 0.5, 0.0), 2.4), points).show(ad)
    assert (got[:5] > 0.99).all(), got
    assert got[5] < 0.01
    spot = spot_matrix((0.0, 3.0, 0.0), (0.0, -1.0, 0.0), 0.6, 0.5, 6.0)
    behind = Cast(spot, np.array([(0, 4.0, 0), (0, 3.0, 0), (0, 0, 0)])).show(ad)
    assert (behind[:2] == 1.0).all() and behind[2] < 0.01


@pytest.mark.gpu
@pytest.mark.parametrize("slope", [0.0, 0.6, 1.2, 1.4])
@pytest.mark.parametrize("taps", [1, 3])
def test_a_surface_does_not_shade_itself(ad: DressiAD, slope: float, taps: int) -> None:
    """A plane lit at an angle, drawn into its own map."""
    d = np.array([math.sin(slope), -math.cos(slope), 0.0])
    points = ground(31, 0.45)
    to_light = F.constant(-d)
    matrix = directional_matrix(tuple(d.tolist()), (0.0, 0.0, 0.0), 1.2)
    cast = Cast(matrix, points, to_light=to_light, taps=taps)
    cast.feeds[cast.pos] = caster(0.0)[0]
    assert cast.show(ad).min() > 0.99


def reference(points: np.ndarray, depth: np.ndarray, cover: np.ndarray, texel: float) -> np.ndarray:
    """Percentage closer in NumPy: 2 x 2 bilinear samples, light straight down from y = 2.9."""
    height, width = depth.shape
    out = []
    for x, y, z in points:
        # right = forward x up = (0, -1, 0) x (0, 0, 1) = (-1, 0, 0), up = right x forward = z
        u, v = (-x / 2.4 + 1) / 2 * width, (-z / 2.4 + 1) / 2 * height
        occluded = 0.0
        for du in (-0.5, 0.5):
            for dv in (-0.5, 0.5):
                a, b = u + du - 0.5, v + dv - 0.5
                i, j = math.floor(a), math.floor(b)
                for k, wx in ((i, 1 - (a - i)), (i + 1, a - i)):
                    for m, wy in ((j, 1 - (b - j)), (j + 1, b - j)):
                        own = (2.9 - y) - texel * (1.5 + 1.5)
                        c = 1 / (1 + np.exp(-(own - depth[m, k]) / (0.25 * texel)))
                        occluded += wx * wy * c * cover[m, k] / 4
        out.append(1 - occluded)
    return np.array(out)


@pytest.mark.gpu
@pytest.mark.parametrize("r", [0.0, 0.06])
def test_filter_is_percentage_closer_with_a_sigmoid(ad: DressiAD, r: float) -> None:
    rng = np.random.default_rng(0)
    points = rng.uniform(-0.9, 0.9, (60, 3)) * (1, 0.3, 1) + (0, 0.4, 0)
    matrix = directional_matrix((0.0, -1.0, 0.0), (0.0, 0.5, 0.0), 2.4)
    cast = Cast(matrix, np.float32(points), r, size=(32, 32))
    got = cast.show(ad)
    depth, cover = ad.recv_img(cast.map.depth)[..., 0], ad.recv_img(cast.map.cover)[..., 0]
    assert np.allclose(depth[cover > 0.99], 1.9, atol=1e-5)  # from y = 2.9 to the caster at 1
    want = reference(np.float32(points).astype(float), depth, cover, 2 * 2.4 / 32)
    assert np.abs(got - want).max() < 1e-3
    assert want.min() < 0.05 and ((want > 0.05) & (want < 0.95)).sum() > 5
    oracle = evaluate([cast.visible], cast.feeds)[0].ravel()
    assert np.abs(oracle - want).max() < 1e-3


@pytest.mark.gpu
def test_gradients_to_receivers_casters_and_the_light(ad: DressiAD) -> None:
    """At the soft edge of the shadow, and at heights where the compare is neither 0 nor 1."""
    rng = np.random.default_rng(3)
    direction = Variable(VEC3, requires_grad=True, name="direction")
    matrix = directional_matrix(direction, (0.0, 0.5, 0.0), 2.4)
    texel = 2 * 2.4 / 24
    edge = np.stack([rng.uniform(0.4, 0.6, 12), np.full(12, 0.1), rng.uniform(-0.3, 0.3, 12)], -1)
    near = np.stack([rng.uniform(-0.2, 0.2, 12), HEIGHT - texel * rng.uniform(2.5, 3.5, 12),
                     rng.uniform(-0.2, 0.2, 12)], -1)  # fmt: skip
    cast = Cast(matrix, np.concatenate([edge, near]), 0.2, size=(24, 24))
    feeds = {**cast.feeds, direction: np.array([0.03, -1.0, 0.02])}
    wrt = [cast.points, cast.pos, direction]
    check = gradcheck([cast.visible], wrt, feeds, ad, eps=1e-5, n_entries=24, tolerance=0.01)
    assert check.ok, check.text()
    assert all(len(leaf.compared) >= 3 for leaf in check.leaves), check.text()


@pytest.mark.gpu
def test_a_wider_caster_makes_less_light(ad: DressiAD) -> None:
    """The outline's gradient: growing the square darkens the ground, by the ground it newly
    covers."""
    points = ground(33, 1.0)
    matrix = directional_matrix((0.0, -1.0, 0.0), (0.0, 0.5, 0.0), 2.4)
    cast = Cast(matrix, points, 0.15, size=(48, 48))
    cast.show(ad)
    outwards = ad.recv_grad(cast.pos) * np.sign(caster()[0] * (1, 0, 1))
    per_unit = outwards[:, [0, 2]].sum()  # d(sum of light) / d(half side)
    cell = (2.0 / 32) ** 2
    assert np.isclose(per_unit * cell, -8 * HALF, rtol=0.15)  # area 4 half^2


@pytest.mark.gpu
def test_views_share_a_map(ad: DressiAD) -> None:
    """A floor and a square above it from two sides, lit by a spot: the same ground is dark."""
    v, f = caster(0.8, 0.4)
    floor, g = caster(0.0, 1.5)
    pos = Variable(VEC3, (8, 1), requires_grad=True, name="pos")
    faces, matrix = Variable(IVEC3, (4, 1)), Variable(MAT4, layers=2)
    size = (40, 32)
    hs = build_hardsoftras(pos, faces, matrix, size, 0.02)
    where, angle = (0.3, 3.0, 0.0), 0.6
    light = SpotLight(where, (0.0, -1.0, 0.0), 1.0, 9.0, None, 0.5, angle)
    shadow = build_shadow_map(pos, faces, spot_matrix(where, light.direction, angle, 0.5, 5), MAP)
    surface = build_surface(hs.peels[0], pos, faces, eye_position(matrix))
    assert surface.position is not None and surface.normal is not None
    to_light, _ = light.sample(surface.position)
    dark = shadow_visibility(shadow, surface.position, surface.normal, to_light)
    picture = hs.blend([lambert_surface(surface, [light], 0.1, [dark])], 0.0)
    for x, a in (
        (pos, np.concatenate([v, floor])),
        (faces, np.concatenate([f, g + 4])),
        (matrix, np.stack([camera(size, (2, 3, 2.5)), camera(size, (-2.5, 2.5, 2))])),
    ):
        ad.send_img(x, a)
    ad.set_loss_var(picture)
    light_map, ids = ad.recv_img(dark)[..., 0], ad.recv_img(hs.peels[0].ids)[..., 0]
    at = ad.recv_img(surface.position).astype(float)
    # the square at 0.8, seen from height 3, about x = 0.3
    scale = 3.0 / 2.2
    center = np.array([0.3 - 0.3 * scale, 0.0])
    for view in range(2):
        on_floor = ids[view] >= 2
        inside, outside = in_square(at[view].reshape(-1, 3), center, 0.4 * scale, 0.15)
        inside, outside = (m.reshape(on_floor.shape) & on_floor for m in (inside, outside))
        assert inside.sum() > 8 and outside.sum() > 80
        assert light_map[view][inside].max() < 0.02 and light_map[view][outside].min() > 0.98
        assert light_map[view][(ids[view] >= 0) & (ids[view] < 2)].min() > 0.98  # the square is lit
    gradient = ad.recv_grad(pos)
    assert np.isfinite(gradient).all() and np.abs(gradient).max() > 1e-2


def test_matrices_put_the_light_where_it_is() -> None:
    m = evaluate([directional_matrix((1.0, -2.0, 0.5), (1.0, 2.0, 3.0), 2.0)], {})[0][0, 0, 0]
    d = np.array([1.0, -2.0, 0.5]) / np.linalg.norm([1, -2, 0.5])
    c = np.array([1.0, 2.0, 3.0])
    for p, want in ((c, (0, 0, 0.5)), (c + 2 * d, (0, 0, 1)), (c - 2 * d, (0, 0, 0))):
        assert np.allclose((m @ [*p, 1])[:3], want, atol=1e-6)
    side = np.cross(d, UP) / np.linalg.norm(np.cross(d, UP))
    assert np.allclose(m @ [*(c + 2 * side), 1], (1, 0, 0.5, 1), atol=1e-6)
    assert np.allclose(m @ [*(c + 2 * np.cross(side, d)), 1], (0, -1, 0.5, 1), atol=1e-6)  # y down
    s = evaluate([spot_matrix(c.tolist(), d.tolist(), 0.5, 1.0, 4.0)], {})[0][0, 0, 0]
    for t, z in ((1.0, 0.0), (4.0, 1.0)):
        p = s @ [*(c + t * d), 1]
        assert np.allclose(p / p[3], (0, 0, z, 1), atol=1e-6) and np.isclose(p[3], t, atol=1e-6)
    p = s @ [*(c + 2 * d + 2 * math.tan(0.5) * side), 1]
    assert np.isclose(p[0] / p[3], 1.0, atol=1e-6)
    straight = evaluate([directional_matrix((0.0, -3.0, 0.0), 0.0, 1.0)], {})[0]
    assert np.isfinite(straight).all() and np.isclose(abs(np.linalg.det(straight[0, 0, 0])), 0.5)


@pytest.mark.parametrize(
    "bad",
    [
        lambda m, s: directional_matrix((0, -1, 0), 0.0, 0.0),
        lambda m, s: spot_matrix(0.0, (0, -1, 0), 0.5, 0.0, 1.0),
        lambda m, s: spot_matrix(0.0, (0, -1, 0), 0.5, 2.0, 1.0),
        lambda m, s: spot_matrix(0.0, (0, -1, 0), 1.6, 0.5, 1.0),
        lambda m, s: m(8),
        lambda m, s: m((1, 8)),
        lambda m, s: m((8, 8), 1.5),
        lambda m, s: shadow_visibility(s, Variable(VEC2)),
        lambda m, s: shadow_visibility(s, Variable(VEC3), Variable(VEC3)),
        lambda m, s: shadow_visibility(s, Variable(VEC3), taps=0),
        lambda m, s: shadow_visibility(s, Variable(VEC3), softness=0.0),
        lambda m, s: shadow_visibility(s, Variable(VEC3), bias=Variable(VEC3)),
        lambda m, s: lambert_surface_with(s),
    ],
)
def test_bad_arguments_raise(bad: Any) -> None:
    def make(size: Any, r: float = 0.0) -> Any:
        pos, faces = Variable(VEC3, (4, 1)), Variable(IVEC3, (2, 1))
        return build_shadow_map(pos, faces, Variable(MAT4), size, r)

    with pytest.raises(GraphError):
        bad(make, make((8, 8)))


def lambert_surface_with(shadow: Any) -> Any:
    """A shadow map in the place of a visibility."""
    surface = Surface(1.0, 0.0, (0.0, 0.0, 1.0))
    return lambert_surface(surface, [DirectionalLight()], 0.0, [shadow])
