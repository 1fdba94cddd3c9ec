"""Skin, eyes and teeth against published numbers and references of another make."""

from __future__ import annotations

import numpy as np
import pytest
import skin_reference as ref
from lighting import LinearSky as Sky

from dressi import F, GraphError, Variable, evaluate
from dressi.ad import gradcheck
from dressi.ad.vtype import FLOAT, MAT4, VEC2, VEC3
from dressi.render.camera import look_at, perspective
from dressi.render.shading import (
    DirectionalLight,
    Eye,
    ShadowMap,
    Skin,
    Surface,
    build_diffusion,
    diffusion_kernel,
    iris_offset,
    limbus_mask,
    mouth_occlusion,
    pbr,
    refract_cornea,
    shade_dielectric,
    shade_eye,
    shade_skin,
    shade_tears,
    thickness,
    transmitted,
    uv_gradients,
    uv_offset,
)
from dressi.render.shading.pbr import schlick
from dressi.render.shading.skin import transmission_profile

SKIN = ((0.48, 0.41, 0.28), (1.0, 0.37, 0.3))


def value(x: Variable) -> np.ndarray:
    return evaluate([x], {})[0]


def vectors(array: object, grad: bool = False) -> Variable:
    made = F.leaf(np.asarray(array, float), VEC3)
    made.requires_grad = grad
    return made


def number(x: object, grad: bool = False, vtype: object = FLOAT) -> Variable:
    made = F.leaf(np.asarray(x, float).reshape(1, 1, -1), vtype)  # type: ignore[arg-type]
    made.requires_grad = grad
    return made


def units(rng: np.random.Generator, n: int) -> np.ndarray:
    v = rng.normal(size=(n, 3))
    return np.asarray(v / np.linalg.norm(v, axis=1, keepdims=True))


# -- kernel


def test_the_kernel_is_the_published_table() -> None:
    published = [  # 25 taps of skin: Jimenez's tool prints them; offset, weights
        (-3.0, 0.000973794, 1.11862e-05, 9.43437e-07),
        (-2.52083, 0.00333804, 7.85443e-05, 1.2945e-05),
        (-1.33333, 0.0094389, 0.00139119, 0.000416598),
        (-0.0833333, 0.0402784, 0.0657244, 0.04631),
        (0.0, 0.530605, 0.613514, 0.739601),
    ]
    kernel = diffusion_kernel(*SKIN, 25)
    found = np.array([value(w).ravel() for w in kernel.weights])
    for offset, *weights in published:
        row = int(np.argmin(np.abs(np.array(kernel.offsets) - offset)))
        assert kernel.offsets[row] == pytest.approx(offset, abs=1e-5)
        np.testing.assert_allclose(found[row], weights, rtol=1e-5)


@pytest.mark.parametrize("taps", [11, 17, 25])
def test_the_kernel_is_that_of_the_reference_and_sums_to_one(taps: int) -> None:
    rng = np.random.default_rng(taps)
    for strength, falloff in (SKIN, *((rng.uniform(0, 1, 3), rng.uniform(0, 1, 3)),) * 3):
        kernel = diffusion_kernel(number(strength, vtype=VEC3), number(falloff, vtype=VEC3), taps)
        offsets, weights = ref.kernel(np.float32(strength), np.float32(falloff), taps)
        np.testing.assert_allclose(kernel.offsets, offsets, atol=1e-12)
        found = np.array([value(w).ravel() for w in kernel.weights])
        np.testing.assert_allclose(found, weights, atol=1e-9)
        np.testing.assert_allclose(found.sum(axis=0), 1.0, atol=1e-9)


def test_kernel_without_strength_or_falloff_is_a_single_tap() -> None:
    for strength, falloff in ((0.0, 1.0), (1.0, 0.0)):
        weights = diffusion_kernel(strength, falloff, 11).weights
        found = np.array([value(w).ravel() for w in weights])
        np.testing.assert_allclose(found[5], 1.0, atol=1e-6)


def test_the_kernel_has_right_gradients_on_the_ends_of_its_ranges() -> None:
    for s, f in ((0.5, 0.4), (0.0, 1.0), (1.0, 0.02)):
        strength, falloff = number((s,) * 3, True, VEC3), number((f, 1.0, 0.3), True, VEC3)
        assert gradcheck(list(diffusion_kernel(strength, falloff, 11).weights)).ok


# -- diffusion

W, H = 10, 8


def scene(seed: int = 0, tilt: float = 0.2) -> dict[str, np.ndarray]:
    """A rough wall that is seen askew, with a hole and a step, off the middle of the picture."""
    rng = np.random.default_rng(seed)
    lens = perspective(40.0, W / H, 1.0, 9.0) @ look_at((0.3, 0.2, 4.0), (0.1, 0.0, 0.0))
    ndc = (np.stack(np.meshgrid(np.arange(W), np.arange(H)), -1) + 0.5) * (2 / W, 2 / H) - 1
    depth = 4.0 + tilt * ndc[..., 0] + rng.uniform(-0.02, 0.02, (H, W))
    depth[:, 7:] += 0.9
    clip = np.stack([ndc[..., 0] * depth, ndc[..., 1] * depth, 0 * depth, depth], -1)
    clip[..., 2] = (depth - 1.0) * 9.0 / 8.0
    world = clip @ np.linalg.inv(lens).T
    mask = np.ones((H, W))
    mask[2:4, 3:5] = 0.0
    return {
        "light": rng.uniform(0.2, 1.0, (H, W, 3)),
        "position": world[..., :3] / world[..., 3:],
        "matrix": lens,
        "mask": mask,
        "depth": depth,
    }


def graph(s: dict[str, np.ndarray], width: Variable, strength: object, falloff: object, taps: int,
          grad: bool = False) -> tuple[Variable, Variable, Variable]:  # fmt: skip
    light, position = vectors(s["light"], grad), vectors(s["position"], grad)
    kernel = diffusion_kernel(strength, falloff, taps)  # type: ignore[arg-type]
    matrix = F.leaf(np.float32(s["matrix"]), MAT4)
    mask = F.leaf(s["mask"][..., None], FLOAT)
    return build_diffusion(light, position, matrix, kernel, width, mask), light, position


@pytest.mark.parametrize("taps", [11, 25])
def test_diffusion_is_that_of_the_reference(taps: int) -> None:
    s, width = scene(), 0.6
    found = value(graph(s, number(width), *SKIN, taps)[0])[0]
    lens = 1.0 / np.tan(np.radians(20.0))
    wanted = ref.diffused(
        np.float32(s["light"]).astype(float), s["depth"], s["mask"], (lens * H / W, lens),
        width, *ref.kernel(*SKIN, taps),
    )  # fmt: skip
    np.testing.assert_allclose(found, wanted, atol=2e-6)
    assert np.abs(found - s["light"])[s["mask"] > 0].max() > 0.05, "something must be spread"


def test_diffusion_keeps_even_light_and_stays_in_its_mask() -> None:
    s = scene(1)
    s["light"] = np.where(s["mask"][..., None] > 0, [0.7] * 3, 100.0)
    found = value(graph(s, number(0.8), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0), 17)[0])[0]
    np.testing.assert_allclose(found, s["light"] * s["mask"][..., None], atol=1e-6)


def test_light_does_not_cross_a_step_in_depth() -> None:
    s = scene(2, 0.0)
    s["mask"][:] = 1.0
    s["light"] = np.zeros((H, W, 3))
    s["light"][:, 7:] = 1.0
    near = value(graph(s, number(0.4), (1.0,) * 3, (1.0,) * 3, 11)[0])[0]
    assert near[:, :6].max() == 0.0, "0.9 is more than twice the width"
    wide = value(graph(s, number(1.2), (1.0,) * 3, (1.0,) * 3, 11)[0])[0]
    assert wide[:, 6].min() > 0.01, "0.9 is less than the width"


def test_diffusion_has_right_gradients_also_beside_its_mask() -> None:
    s = scene(3)
    width, strength, falloff = (
        number(0.53, True),
        number((0.8, 0.6, 0.5), True, VEC3),
        number((1.0, 0.6, 0.3), True, VEC3),
    )
    spread, _, _ = graph(s, width, strength, falloff, 11, grad=True)
    found = gradcheck(spread, n_entries=10, eps=1e-5)
    assert found.ok, str(found)


# -- transmission


def test_transmission_is_the_published_sum() -> None:
    table = [  # weights of red, green, blue and the divisor of the squared thickness, Jimenez 2010
        (0.233, 0.455, 0.649, 0.0064), (0.100, 0.336, 0.344, 0.0484), (0.118, 0.198, 0.0, 0.187),
        (0.113, 0.007, 0.007, 0.567), (0.358, 0.004, 0.0, 1.99), (0.078, 0.0, 0.0, 7.41),
    ]  # fmt: skip
    for d in (0.0, 0.05, 0.3, 1.0, 2.5):
        wanted = sum(np.array(row[:3]) * np.exp(-d * d / row[3]) for row in table)
        np.testing.assert_allclose(value(transmission_profile(number(d))).ravel(), wanted, 1e-6)
    np.testing.assert_allclose(value(transmission_profile(number(0.0))).ravel(), 1.0, atol=1e-6)


def test_thickness_is_the_way_from_where_the_light_enters() -> None:
    matrix = F.leaf(np.float32(perspective(60.0, 1.0, 1.0, 9.0) @ look_at((0, 0, 5))), MAT4)
    front = np.full((4, 4, 1), 3.5)
    cover = np.ones((4, 4, 1))
    cover[:, 3] = 0.0
    shadow = ShadowMap(F.leaf(front, FLOAT), F.leaf(cover, FLOAT), matrix)
    places = vectors([(-0.2, 0.1, 0.25), (0.0, 0.0, 2.0), (2.1, 0.0, 1.0), (9.0, 0, 0), (0, 0, 7)])
    found = value(thickness(shadow, places)).ravel()
    # 5 - 0.25 - 3.5; in front of what the map shows; nothing there; off the map; behind the light
    np.testing.assert_allclose(found, [1.25, 0.0, 0.0, 0.0, 0.0], atol=1e-6)


def test_light_comes_through_thin_parts_only_and_has_gradients() -> None:
    rng = np.random.default_rng(5)
    normal, light = vectors(units(rng, 20)), vectors(units(rng, 20))
    thick = F.leaf(rng.uniform(0.0, 0.01, (20, 1)), FLOAT)
    width = number(0.004, True)
    thick.requires_grad = True
    assert gradcheck(transmitted(normal, light, thick, width), eps=1e-6).ok
    away = vectors([(0.0, 0.0, -1.0)]), vectors([(0.0, 0.0, 1.0)])
    red = [value(transmitted(*away, number(t), number(0.003))).ravel() for t in (0.0, 2e-3, 1.0)]
    assert (red[0] > 0.99).all() and red[1][0] > 10 * red[1][1] and (red[2] == 0.0).all()


# -- light


def surface(n: int = 24, seed: int = 0, grad: bool = False) -> Surface:
    rng = np.random.default_rng(seed)
    parts = {"normal": units(rng, n), "to_eye": units(rng, n)}
    parts["to_eye"] *= np.sign((parts["to_eye"] * parts["normal"]).sum(1, keepdims=True))
    return Surface(
        vectors(rng.uniform(0.1, 0.9, (n, 3)), grad),
        vectors(rng.normal(size=(n, 3))),
        vectors(parts["normal"]),
        vectors(parts["to_eye"]),
        roughness=F.leaf(rng.uniform(0.2, 0.9, (n, 1)), FLOAT),
    )


SUN = DirectionalLight((0.2, -0.7, -0.5), (1.0, 0.9, 0.8), 2.0)


def test_with_equal_lobes_and_no_spread_skin_is_plain_pbr() -> None:
    s = surface()
    skin = Skin(0.01, ior=1.5, lobe_ratio=1.0, lobe_mix=0.3)
    found = shade_skin(s, skin, [SUN], Sky(), [number(0.6)], [None]).color(s)
    wanted = pbr(s, [SUN], Sky(), [number(0.6)])
    np.testing.assert_allclose(value(found), value(wanted), rtol=1e-6, atol=1e-9)


def test_two_lobes_are_the_mean_of_each_alone() -> None:
    s = surface(seed=1)
    rough, other = 0.6, 0.25
    both, first, second = (
        value(shade_dielectric(s, 1.4, lobes, [SUN], Sky()).specular)
        for lobes in ([(rough, 0.7), (other, 0.3)], [(rough, 1.0)], [(other, 1.0)])
    )
    np.testing.assert_allclose(both, 0.7 * first + 0.3 * second, rtol=1e-6, atol=1e-9)
    assert np.abs(first - second).max() > 0.005, "not one lobe twice"


def test_a_wide_light_widens_its_highlight_and_no_reflection_of_the_sky() -> None:
    s, rough, radius = surface(), 0.3, 0.2

    def specular(rough: float, lights: list, sky: Sky | None, radius: float = 0.0) -> np.ndarray:
        lobes = [(rough, 1.0)]
        return value(shade_dielectric(s, 1.4, lobes, lights, sky, light_radius=radius).specular)

    wider = float(np.sqrt(rough**2 + 0.5 * radius))
    np.testing.assert_allclose(
        specular(rough, [SUN], None, radius), specular(wider, [SUN], None), rtol=1e-5
    )
    assert np.abs(specular(rough, [SUN], None) - specular(wider, [SUN], None)).max() > 0.01
    np.testing.assert_array_equal(specular(rough, [], Sky(), radius), specular(rough, [], Sky()))


def test_the_size_of_a_light_has_a_gradient() -> None:
    radius = number(0.2, True)
    split = shade_dielectric(surface(6), 1.4, [(0.3, 1.0)], [SUN], light_radius=radius)
    assert gradcheck([split.specular]).ok


def test_every_number_of_skin_has_a_gradient() -> None:
    s = surface(12, 2)
    names = ("width", "ior", "lobe_ratio", "lobe_mix", "transmission")
    leaves = dict(zip(names, (number(x, True) for x in (0.004, 1.4, 0.6, 0.3, 0.8)), strict=True))
    thick = F.leaf(np.random.default_rng(3).uniform(0, 0.003, (12, 1)), FLOAT)
    split = shade_skin(s, Skin(**leaves), [SUN], Sky(), [number(0.5)], [thick])  # type: ignore[arg-type]
    found = gradcheck([split.diffuse, split.specular], list(leaves.values()), eps=1e-5)
    assert found.ok, str(found)


# -- eyes


def test_the_cornea_refracts_by_snells_law() -> None:
    rng = np.random.default_rng(7)
    n, v = units(rng, 40), units(rng, 40)
    v *= np.sign((n * v).sum(1, keepdims=True))
    ray = value(refract_cornea(vectors(v), vectors(n), 1.336))[0, 0]
    np.testing.assert_allclose(np.linalg.norm(ray, axis=1), 1.0, atol=1e-6)
    outside, inside = (np.linalg.norm(np.cross(n, w), axis=1) for w in (v, ray))
    np.testing.assert_allclose(inside, outside / 1.336, atol=1e-6)
    assert ((ray * n).sum(1) < 0).all(), "inwards"
    np.testing.assert_allclose((np.cross(n, v) * ray).sum(1), 0.0, atol=1e-6)  # in one plane


def test_the_line_of_sight_meets_the_plane_of_the_iris() -> None:
    rng = np.random.default_rng(8)
    axis = np.array([0.1, -0.2, 1.0])
    axis /= np.linalg.norm(axis)
    n = axis + 0.3 * rng.normal(size=(30, 3))
    n /= np.linalg.norm(n, axis=1, keepdims=True)
    v = n + 0.5 * rng.normal(size=(30, 3))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    depth = rng.uniform(-0.1, 0.4, (30, 1))
    ways = (vectors(n), vectors(v), number(axis, vtype=VEC3))
    offset = value(iris_offset(*ways, F.leaf(depth, FLOAT), 1.336))[0, 0]
    ray = value(refract_cornea(vectors(v), vectors(n), 1.336))[0, 0]
    t = np.maximum(depth[:, 0], 0.0) / -(ray @ axis)
    hit = ray * t[:, None]
    wanted = hit - axis * (hit @ axis)[:, None]
    np.testing.assert_allclose(offset, wanted, atol=1e-6)


def test_the_step_in_uv_is_that_of_a_texture_projected_along_the_axis() -> None:
    rng = np.random.default_rng(9)
    axis = np.array([0.0, 0.6, 0.8])
    right, up = np.array([1.0, 0, 0]), np.array([0.0, 0.8, -0.6])
    to_uv = np.array([[0.3, 0.1], [-0.2, 0.4]])
    corners = rng.normal(size=(3, 6, 3))
    lateral = np.stack([corners @ right, corners @ up], -1)
    uvs = lateral @ to_uv + (0.5, 0.2)
    offset = rng.normal(size=(6, 2))
    step = offset[:, :1] * right + offset[:, 1:] * up
    du, dv, normal = uv_gradients([vectors(c) for c in corners], [F.leaf(u, VEC2) for u in uvs])
    found = value(uv_offset(vectors(step), normal, number(axis, vtype=VEC3), du, dv))[0, 0]
    tilt = np.abs(value(normal)[0, 0] @ axis)
    np.testing.assert_allclose(found[tilt > 0.06], (offset @ to_uv)[tilt > 0.06], atol=2e-5)
    assert (tilt > 0.06).sum() > 3, "hardly a face is seen along the axis"


def test_the_limbus_is_where_iris_becomes_sclera() -> None:
    eye = Eye(0.2, 0.003, (0.4, 0.5), limbus_width=0.5)
    uv = F.leaf([(0.4, 0.5), (0.4, 0.64), (0.6, 0.5), (0.4, 0.24), (0.9, 0.5)], VEC2)
    np.testing.assert_allclose(value(limbus_mask(uv, eye)).ravel(), [1, 1, 0.5, 0, 0], atol=1e-5)


def test_every_number_of_an_eye_has_a_gradient() -> None:
    rng = np.random.default_rng(10)
    s = surface(10, 4)
    names = ("iris_radius", "iris_depth", "limbus_width", "limbus_darkening", "ior")
    leaves = {k: number(x, True) for k, x in zip(names, (0.2, 0.3, 0.9, 0.4, 1.3), strict=True)}
    leaves |= {"wet_roughness": number(0.3, True), "iris_center": number((0.5, 0.45), True, VEC2)}
    eye = Eye(**leaves)  # type: ignore[arg-type]
    uv = F.leaf(0.5 + rng.uniform(-0.2, 0.2, (10, 2)), VEC2)
    mask = limbus_mask(uv, eye)
    (normal, to_eye) = s.need("test", "normal", "to_eye")
    shift = iris_offset(normal, to_eye, normal, eye.of("iris_depth"), eye.of("ior")) * mask
    axis = number((0.0, 0.0, 1.0), vtype=VEC3)
    split = shade_eye(s, eye, mask, axis, [SUN], Sky(), occlusion=0.8)
    wrt = [eye.of(k) for k in (*names[:3], "ior", "wet_roughness", "iris_center")]
    found = gradcheck([shift, split.diffuse, split.specular], wrt, eps=1e-5)
    assert found.ok, str(found)


def test_tears_only_reflect() -> None:
    s = surface(seed=6)
    color, share = shade_tears(s, 1.336, 0.3, [SUN], Sky())
    (normal, to_eye) = s.need("test", "normal", "to_eye")
    f0 = (0.336 / 2.336) ** 2
    facing = F.abs(F.dot(normal, to_eye))
    np.testing.assert_allclose(value(share), value(schlick(F.constant(f0), facing)), rtol=1e-5)
    shown = shade_dielectric(s, 1.336, [(0.3, 1.0)], [SUN], Sky()).specular
    np.testing.assert_allclose(value(color) * value(share), value(shown), rtol=1e-5, atol=1e-9)


# -- teeth


def test_a_mouth_lets_in_the_view_factor_of_its_opening() -> None:
    for depth, opening in ((0.5, 1.0), (2.0, 0.3), (0.0, 0.4), (-1.0, 0.2), (1.0, 0.0)):
        place = vectors([(0.3, 0.1, -depth)])
        found = value(mouth_occlusion(place, opening, (0.0, 0.0, 0.0), (0.0, 0.0, 2.0))).item()
        # Of a slit without ends, cos / 2 integrated over the angles that look out of it.
        half = np.arctan2(opening / 2.0, depth) if depth > 0.0 else np.pi / 2
        nodes, weights = np.polynomial.legendre.leggauss(30)
        wanted = float(half * (weights * np.cos(half * nodes) / 2.0).sum())
        assert found == pytest.approx(wanted, abs=1e-6)


def test_the_opening_has_gradients() -> None:
    place = vectors([(0.3, 0.1, -0.5), (0.0, 0.0, -0.2)], True)
    numbers = (number(0.4, True), number((0.0, 0.1, 0.0), True, VEC3),
               number((0.0, 0.2, 0.7), True, VEC3))  # fmt: skip
    assert gradcheck(mouth_occlusion(place, *numbers)).ok


# -- bad input


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: diffusion_kernel(taps=12), "taps must be one of (11, 17, 25), got 12"),
        (lambda: diffusion_kernel(strength=(1.0, 2.0)), "strength must be VEC3"),
        (lambda: Skin(0.0), "width must be positive"),
        (lambda: Skin(1.0, lobe_mix=1.5), "lobe_mix must be in [0, 1]"),
        (lambda: Skin(1.0, falloff=number(1.0)), "falloff must be VEC3"),
        (lambda: Eye(0.0, 0.1), "iris_radius must be positive"),
        (lambda: Eye(0.1, 0.1, ior=0.9), "ior must be in [1, 4]"),
        (lambda: shade_skin(surface(), Skin(1.0), [SUN], thick=[]), "thickness for each of 1"),
        (lambda: shade_skin(Surface(), Skin(1.0), [SUN]), "needs a Surface with position"),
        (lambda: shade_dielectric(surface(), 1.4, [], [SUN], through=[]), "through for each of 1"),
        (lambda: shade_dielectric(surface(), 1.4, [], light_radius=-1.0), "light_radius must be"),
        (lambda: graph(scene(), number((1.0, 2.0), vtype=VEC2), *SKIN, 11), "width must be FLOAT"),
        (lambda: thickness(None, vectors([(0, 0, 0)])), "shadow must be a ShadowMap"),  # type: ignore[arg-type]
        (lambda: mouth_occlusion(vectors([(0, 0, 0)]), 1.0, 1.0, (1.0, 2.0)), "direction must be"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call: object, says: str) -> None:
    with pytest.raises(GraphError) as caught:
        call()  # type: ignore[operator]
    assert says in str(caught.value)
