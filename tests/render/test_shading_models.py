"""Lights and models against NumPy float64 formulas, their gradients, and their edges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import shading_reference as ref

from dressi import DressiAD, F, GraphError, Variable, evaluate, gradcheck
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC2, VEC3
from dressi.render.camera import Camera, look_at, perspective
from dressi.render.raster import build_hardsoftras
from dressi.render.shading import (
    DirectionalLight,
    PointLight,
    SpotLight,
    Surface,
    blinn_phong,
    build_shadow_map,
    build_surface,
    eye_position,
    gouraud,
    lambert_surface,
    pbr,
    shadow_visibility,
    spot_matrix,
    tone_map,
    unlit_surface,
    vertex_normals,
)
from dressi.testing.scenes import camera, cube, quad, rotated

W, H, LAYERS = 9, 7, 2
FORMULA = 1e-9  # float64 against float64
DEVICE = 1e-4  # float32 against float64, relative to 1 and to the value


class Patch:
    """Random pixels: normals, eyes and materials as leaves, with their arrays."""

    def __init__(self, seed: int = 0, layers: int = LAYERS) -> None:
        rng = np.random.default_rng(seed)
        shape = (layers, H, W)
        n = ref.unit(rng.normal(size=(*shape, 3)))
        v = ref.unit(n + 0.8 * rng.normal(size=(*shape, 3)))
        self.arrays = {
            "albedo": rng.uniform(0.1, 0.9, (*shape, 3)),
            "position": rng.uniform(-1, 1, (*shape, 3)),
            "normal": n,
            "to_eye": v,
            "metallic": rng.uniform(0, 1, (*shape, 1)),
            "roughness": rng.uniform(0.1, 1, (*shape, 1)),
            "occlusion": rng.uniform(0, 1, (*shape, 1)),
            "emissive": rng.uniform(0, 0.3, (*shape, 3)),
        }
        # what the device gets is what float64 gets
        self.arrays = {k: np.float32(a).astype(np.float64) for k, a in self.arrays.items()}
        self.leaves = {
            k: Variable(VEC3 if a.shape[-1] == 3 else FLOAT, (W, H), layers, True, k)
            for k, a in self.arrays.items()
        }
        self.surface = Surface(**self.leaves)
        self.feeds = {self.leaves[k]: a for k, a in self.arrays.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]


LIGHTS: dict[str, tuple[Any, dict, Any]] = {
    "directional": (
        DirectionalLight((0.3, -2.0, -1.0), (1.0, 0.8, 0.5), 2.5),
        {"direction": (0.3, -2, -1), "color": (1, 0.8, 0.5), "intensity": 2.5},
        ref.directional,
    ),
    "point": (
        PointLight((1.5, 2.0, 1.0), (0.5, 1.0, 0.7), 6.0),
        {"position": (1.5, 2, 1), "color": (0.5, 1, 0.7), "intensity": 6},
        ref.point,
    ),
    "point with a range": (
        PointLight((1.5, 2.0, 1.0), (0.5, 1.0, 0.7), 6.0, range=3.0),
        {"position": (1.5, 2, 1), "color": (0.5, 1, 0.7), "intensity": 6, "range": 3},
        ref.point,
    ),
    "spot": (
        SpotLight((0.2, 2.0, 0.5), (0.1, -1.0, -0.2), 1.0, 5.0, 6.0, 0.15, 0.6),
        {
            "position": (0.2, 2, 0.5),
            "direction": (0.1, -1, -0.2),
            "color": (1, 1, 1),
            "intensity": 5,
            "range": 6,
            "inner": 0.15,
            "outer": 0.6,
        },
        ref.spot,
    ),
}


def agree(got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    assert np.isfinite(got).all()
    off = np.abs(got.reshape(want.shape) - want) / np.maximum(1.0, np.abs(want))
    assert off.max() < tolerance, off.max()


def send(ad: DressiAD, feeds: dict[Variable, np.ndarray]) -> None:
    ad.set_optimizer(None)
    for v, a in feeds.items():
        ad.send_img(v, a)


def show(ad: DressiAD, feeds: dict[Variable, np.ndarray], image: Variable) -> np.ndarray:
    """The device's picture; the engine forgets the loss of the test before."""
    send(ad, feeds)
    ad.set_loss_var(image)
    return ad.recv_img(image).astype(np.float64)


# -- lights ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LIGHTS)
def test_light_follows_khr_lights_punctual(name: str) -> None:
    light, numbers, formula = LIGHTS[name]
    patch = Patch()
    to_light, radiance = light.sample(patch.leaves["position"])
    got = evaluate(
        [F.expand(to_light, (W, H), LAYERS), F.expand(radiance, (W, H), LAYERS)], patch.feeds
    )
    want = formula(numbers, patch["position"])
    agree(got[0], want[0], 1e-7)  # constants are float32
    agree(got[1], want[1], 1e-6)


def at(x: float, y: float, z: float) -> tuple[Variable, dict]:
    p = Variable(VEC3, requires_grad=True, name="p")
    return p, {p: np.array([x, y, z], float)}


def test_spot_is_full_inside_the_inner_cone_and_dark_outside_the_outer() -> None:
    spot = SpotLight(0.0, (0.0, 0.0, -1.0), 1.0, 1.0, None, 0.2, 0.5)
    for angle, want in ((0.0, 1.0), (0.19, 1.0), (0.2, 1.0), (0.5, 0.0), (0.51, 0.0), (3.0, 0.0)):
        p, feeds = at(math.sin(angle), 0.0, -math.cos(angle))
        radiance = evaluate([spot.sample(p)[1]], feeds)[0]
        assert np.allclose(radiance, want, atol=1e-6), (angle, radiance)
    p, feeds = at(math.sin(0.35), 0.0, -math.cos(0.35))
    got = evaluate([spot.sample(p)[1]], feeds)[0].ravel()[0]
    ramp = (math.cos(0.35) - math.cos(0.5)) / (math.cos(0.2) - math.cos(0.5))
    assert np.isclose(got, ramp**2, atol=1e-6)


@pytest.mark.gpu
def test_range_ends_the_light(ad: DressiAD) -> None:
    light = PointLight(0.0, 1.0, 4.0, range=2.0)
    for distance, want in ((1.0, 4 * (1 - 1 / 16)), (2.0, 0.0), (2.5, 0.0)):
        p, feeds = at(0.0, distance, 0.0)
        assert np.allclose(show(ad, feeds, light.sample(p)[1]), want, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [PointLight, SpotLight])
def test_a_surface_on_the_light_is_finite(ad: DressiAD, kind: Any) -> None:
    p, feeds = at(0.5, 0.25, 1.0)
    light = kind(position=(0.5, 0.25, 1.0))
    for model in (lambert_surface, blinn_phong, pbr):
        image = model(Surface(0.5, p, (0.0, 0.0, 1.0), (0.0, 0.0, 1.0), roughness=0.3), [light])
        send(ad, feeds)
        ad.set_loss_var(image)
        assert np.isfinite(ad.recv_img(image)).all() and np.isfinite(ad.recv_grad(p)).all()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["directional", "point", "spot"])
def test_gradients_to_all_parts_of_a_light(ad: DressiAD, kind: str) -> None:
    names = {
        "directional": ("direction", "color", "intensity"),
        "point": ("position", "color", "intensity", "range"),
        "spot": (
            *("position", "direction", "color", "intensity", "range"),
            *("inner_cone_angle", "outer_cone_angle"),
        ),
    }[kind]
    values: dict[str, Any] = {
        "direction": (0.1, -1.0, -0.3),
        "position": (0.2, 2.1, 0.4),
        "color": (1.0, 0.7, 0.4),
        "intensity": 5.0,
        "range": 4.0,
        "inner_cone_angle": 0.1,
        "outer_cone_angle": 0.9,
    }
    parts = {
        n: Variable(VEC3 if n in ("direction", "position", "color") else FLOAT, (1, 1), 1, True, n)
        for n in names
    }
    make = {"directional": DirectionalLight, "point": PointLight, "spot": SpotLight}[kind]
    patch = Patch(3)
    image = pbr(patch.surface, [make(**parts)])
    feeds = {**patch.feeds, **{parts[n]: np.array(values[n]) for n in names}}
    check = gradcheck([image], list(parts.values()), feeds, ad, tolerance=1e-3)
    assert check.ok, check.text()
    assert all(np.abs([e.gradient for e in leaf.compared]).max() > 1e-3 for leaf in check.leaves)


@pytest.mark.gpu
def test_a_light_with_layers_is_one_a_view(ad: DressiAD) -> None:
    patch = Patch(4)
    direction = Variable(VEC3, layers=LAYERS, requires_grad=True, name="direction")
    image = lambert_surface(patch.surface, [DirectionalLight(direction)])
    both = np.array([(0.0, -1.0, 0.0), (1.0, 0.0, 0.0)])
    got = show(ad, {**patch.feeds, direction: both.reshape(LAYERS, 1, 1, 3)}, image)
    for view in range(LAYERS):
        n_l = np.maximum(ref.dot(patch["normal"][view], -both[view]), 0)
        agree(got[view], patch["albedo"][view] * n_l + patch["emissive"][view], DEVICE)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: PointLight(range=0.0),
        lambda: SpotLight(range=-1.0),
        lambda: SpotLight(inner_cone_angle=0.7, outer_cone_angle=0.5),
        lambda: SpotLight(outer_cone_angle=2.0),
        lambda: SpotLight(inner_cone_angle=float("nan")),
        lambda: PointLight(position=(1.0, 2.0)).sample(Variable(VEC3)),
        lambda: DirectionalLight(color=Variable(FLOAT)).sample(Variable(VEC3)),
        lambda: Surface(albedo=Variable(VEC2)),
        lambda: Surface(roughness=Variable(VEC3)),
        lambda: Surface(albedo="red"),  # type: ignore[arg-type]
        lambda: pbr(Surface(1.0, 0.0, (0.0, 0.0, 1.0))),
        lambda: lambert_surface(Surface(1.0), [DirectionalLight()]),
        lambda: pbr(Surface(1.0, 0.0, 1.0, 1.0), [DirectionalLight()], shadows=[]),
        lambda: pbr(Surface(1.0, 0.0, 1.0, 1.0), [DirectionalLight()], shadows=[Variable(VEC3)]),
        lambda: pbr(Surface(1.0, 0.0, 1.0, 1.0), form="neither"),
        lambda: eye_position(Variable(VEC3)),
        lambda: pbr(Surface(1.0, 0.0, 1.0, 1.0), [1.0]),  # type: ignore[list-item]
        lambda: blinn_phong(Surface(1.0, 0.0, 1.0, 1.0), PointLight()),  # type: ignore[arg-type]
        lambda: pbr(None),  # type: ignore[arg-type]
        lambda: blinn_phong("red", []),  # type: ignore[arg-type]
        lambda: lambert_surface(None, []),  # type: ignore[arg-type]
        lambda: unlit_surface(Variable(VEC3)),  # type: ignore[arg-type]
        lambda: shadow_visibility(None, Variable(VEC3)),  # type: ignore[arg-type]
    ],
)
def test_bad_arguments_raise_at_the_call(bad: Any) -> None:
    with pytest.raises(GraphError) as error:
        bad()
    assert "test_shading_models.py" in str(error.value) or "needs a" in str(error.value)


# -- models ----------------------------------------------------------------------------------------


def all_samples(patch: Patch) -> list[tuple[np.ndarray, np.ndarray]]:
    return [formula(numbers, patch["position"]) for _, numbers, formula in LIGHTS.values()]


ALL_LIGHTS = [light for light, _, _ in LIGHTS.values()]


@pytest.mark.gpu
@pytest.mark.parametrize("form", ["correlated", "separable"])
def test_pbr_is_appendix_b_of_gltf(ad: DressiAD, form: str) -> None:
    patch = Patch(5)
    image = pbr(patch.surface, ALL_LIGHTS, form=form)
    want = patch["emissive"] + ref.pbr(
        patch["normal"],
        patch["to_eye"],
        all_samples(patch),
        patch["albedo"],
        patch["metallic"],
        patch["roughness"],
        form,
    )
    agree(evaluate([image], patch.feeds)[0], want, 1e-5)
    agree(show(ad, patch.feeds, image), want, 1e-3)


@pytest.mark.gpu
def test_blinn_phong_and_lambert_are_their_formulas(ad: DressiAD) -> None:
    patch = Patch(6)
    ambient, specular = np.array([0.1, 0.2, 0.3]), np.array([0.4, 0.5, 0.6])
    lights = ALL_LIGHTS
    image = blinn_phong(patch.surface, lights, ambient.tolist(), specular.tolist(), 20.0)
    open_sky = ambient * patch["occlusion"]
    args = (patch["normal"], patch["to_eye"], all_samples(patch), patch["albedo"])
    want = patch["emissive"] + ref.blinn_phong(*args, open_sky, specular, 20.0)
    plain = lambert_surface(patch.surface, lights, ambient.tolist())
    want_plain = patch["emissive"] + ref.blinn_phong(*args, open_sky, 0 * specular, 20.0)
    got = evaluate([image, plain, unlit_surface(patch.surface)], patch.feeds)
    agree(got[0], want, 1e-5)
    agree(got[1], want_plain, 1e-5)
    agree(got[2], patch["albedo"] + patch["emissive"], FORMULA)
    agree(show(ad, patch.feeds, image), want, DEVICE * 5)
    agree(ad.recv_img(plain), want_plain, DEVICE)


@pytest.mark.gpu
@pytest.mark.parametrize("model", [lambert_surface, blinn_phong, pbr])
def test_gradients_of_models_are_those_of_central_differences(ad: DressiAD, model: Any) -> None:
    patch = Patch(7)
    image = model(patch.surface, [LIGHTS["directional"][0], LIGHTS["point"][0]])
    wrt = [v for v in patch.feeds if v.name != "occlusion"]
    if model is not pbr:
        wrt = [v for v in wrt if v.name not in ("metallic", "roughness")]
    if model is lambert_surface:
        wrt = [v for v in wrt if v.name != "to_eye"]
    check = gradcheck([image], wrt, patch.feeds, ad, n_entries=12, tolerance=1e-3)
    assert check.ok, check.text()


UP = (0.0, 0.0, 1.0)
EDGES = {
    "roughness 0": (UP, UP, UP, 0.0),
    "roughness 1": (UP, UP, UP, 1.0),
    "light from behind": (UP, UP, (0.0, 0.0, -1.0), 0.5),
    "light at grazing angle": (UP, UP, (1.0, 0.0, 0.0), 0.5),
    "eye at grazing angle": (UP, (1.0, 0.0, 0.0), UP, 0.5),
    "both at grazing angle": (UP, (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), 0.0),
    "opposite directions, h = 0": (UP, (1.0, 0.0, 0.0), (-1.0, 0.0, 0.0), 0.0),
    "no normal": ((0.0, 0.0, 0.0), UP, UP, 0.0),
    "no eye": (UP, (0.0, 0.0, 0.0), UP, 0.5),
    "back face": (UP, (0.0, 0.0, -1.0), UP, 0.5),
}


@pytest.mark.gpu
@pytest.mark.parametrize("metallic", [0.0, 1.0])
@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("model", [blinn_phong, pbr])
def test_edges_are_finite_with_finite_gradients(
    ad: DressiAD, model: Any, name: str, metallic: float
) -> None:
    n, v, to_light, roughness = EDGES[name]
    leaves = {
        k: Variable(VEC3, requires_grad=True, name=k) for k in ("normal", "to_eye", "direction")
    }
    rough, metal = (Variable(FLOAT, requires_grad=True, name=k) for k in ("rough", "metal"))
    surface = Surface(0.5, 0.0, leaves["normal"], leaves["to_eye"], metal, rough)
    image = model(surface, [DirectionalLight(leaves["direction"])])
    feeds = dict(zip(leaves.values(), (n, v, -np.array(to_light)), strict=True))
    feeds = {k: np.array(a, float) for k, a in feeds.items()}
    send(ad, {**feeds, rough: np.float64(roughness), metal: np.float64(metallic)})
    ad.set_loss_var(image)
    assert np.isfinite(ad.recv_img(image)).all()
    wrt = [*leaves.values(), *((rough, metal) if model is pbr else ())]
    for x in wrt:
        assert np.isfinite(ad.recv_grad(x)).all(), x
    if name in ("light from behind", "no normal"):
        assert (ad.recv_img(image) == 0.0).all()


@pytest.mark.gpu
def test_roughness_0_is_the_clamped_lobe(ad: DressiAD) -> None:
    """At the mirror direction D = 1 / (pi alpha^2), in full float32 precision."""
    rough = Variable(FLOAT, (3, 1), name="roughness")
    image = pbr(Surface(1.0, 0.0, UP, UP, 1.0, rough), [DirectionalLight()])
    got = show(ad, {rough: np.array([[0.0], [0.045], [0.1]])}, image)
    alpha = np.array([0.045, 0.045, 0.1]) ** 2
    want = 1 / (np.pi * alpha**2) / 4  # V = 1/4 straight ahead
    assert np.allclose(got[:, 0], want, rtol=1e-4)


class Uniform:
    """Radiance 1 all around; a fixed share of it is reflected."""

    def diffuse(self, normal: Variable) -> Variable:
        return F.constant(1.0, VEC3)

    def specular(self, reflection: Variable, roughness: Variable) -> Variable:
        return F.constant(1.0, VEC3)

    def brdf(self, n_dot_v: Variable, roughness: Variable) -> Variable:
        return F.constant((0.7, 0.2))


@pytest.mark.parametrize("metallic", [0.0, 0.5, 1.0])
def test_a_uniform_environment_gains_no_energy(metallic: float) -> None:
    """White furnace: a white dielectric gives back everything, a metal what its F0 allows."""
    patch = Patch(8)
    white = Surface(1.0, patch.leaves["position"], patch.leaves["normal"], patch.leaves["to_eye"],
                    metallic, patch.leaves["roughness"])  # fmt: skip
    got = evaluate([F.expand(pbr(white, (), Uniform()), (W, H), LAYERS)], patch.feeds)[0]
    f0 = 0.04 + 0.96 * metallic
    share = f0 * 0.7 + 0.2
    assert np.allclose(got, (1 - share) * (1 - metallic) + share, atol=1e-6)
    assert got.max() <= 1.0 + 1e-6


def reflected(cosine: float, metallic: float, roughness: float) -> float:
    """Integral over all directions of a light of radiance 1, white surface, eye at that cosine."""
    n = 4000
    k = np.arange(n) + 0.5
    z = k / n  # uniform on the hemisphere, by the golden angle
    phi = np.pi * (1 + 5**0.5) * k
    s = np.sqrt(1 - z * z)
    directions = np.stack([s * np.cos(phi), s * np.sin(phi), z], -1)
    direction = Variable(VEC3, (n, 1), name="direction")
    eye = (math.sqrt(1 - cosine**2), 0.0, cosine)
    image = pbr(Surface(1.0, 0.0, UP, eye, metallic, roughness), [DirectionalLight(direction)])
    return float(evaluate([image], {direction: -directions})[0].mean() * 2 * np.pi)


@pytest.mark.parametrize("roughness", [0.3, 0.6, 1.0])
@pytest.mark.parametrize("cosine", [1.0, 0.5, 0.1])
def test_lights_from_all_sides(roughness: float, cosine: float) -> None:
    """A metal never gains energy. A white dielectric may: its diffuse part is weighed with 1 - F of
    the microfacet, not of the surface, which is too much at grazing angles, by up to 0.3."""
    assert 0.25 < reflected(cosine, 1.0, roughness) < 1.005
    assert 0.9 < reflected(cosine, 0.0, roughness) < (1.3 if cosine < 0.2 else 1.05)


def test_rough_metal_from_above_reflects_1_minus_log_2() -> None:
    """alpha = 1 and n . v = 1: D = 1 / pi, V = 1 / (2 (1 + n . l)); integrated by hand."""
    assert np.isclose(reflected(1.0, 1.0, 1.0), 1 - math.log(2), atol=1e-4)


@pytest.mark.gpu
def test_occlusion_darkens_only_the_environment(ad: DressiAD) -> None:
    patch = Patch(9)
    both = pbr(patch.surface, ALL_LIGHTS, Uniform())
    lamps = pbr(patch.surface, ALL_LIGHTS)
    around = show(ad, patch.feeds, both) - ad.recv_img(lamps)
    f0 = 0.04 * (1 - patch["metallic"]) + patch["albedo"] * patch["metallic"]
    share = f0 * 0.7 + 0.2
    open_sky = (1 - share) * patch["albedo"] * (1 - patch["metallic"]) + share
    assert np.allclose(around, open_sky * patch["occlusion"], atol=1e-3)


# -- on a mesh -------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("K", [1, 2])
def test_models_work_on_peels_and_views(ad: DressiAD, K: int) -> None:
    """A cube from two sides, per pixel and per vertex; gradients to vertices are finite."""
    v, f = cube(0.8)
    v = rotated(v, 0.4, 0.5)
    size = (24, 18)
    matrices = np.stack([camera(size, e) for e in ((0, 0, 4), (3, 1, 2.5))])
    pos = Variable(VEC3, (8, 1), requires_grad=True, name="pos")
    faces = Variable(IVEC3, (12, 1), name="faces")
    matrix = Variable(MAT4, layers=2, name="matrix")
    hs = build_hardsoftras(pos, faces, matrix, size, 0.05, K)
    eye = eye_position(matrix)
    lights = [DirectionalLight((-0.3, -0.5, -1.0)), PointLight((2.0, 2.0, 2.0), 1.0, 8.0)]
    send(ad, {pos: v, faces: f, matrix: matrices})
    vertices = Surface(0.7, pos, vertex_normals(pos, faces), F.normalize(eye - pos))
    for model in (pbr, gouraud):
        colors = []
        for peel in hs.peels:
            if model is gouraud:
                colors.append(gouraud(peel, faces, vertices, lights))
            else:
                surface = build_surface(peel, pos, faces, eye, albedo=0.7, roughness=0.4)
                colors.append(model(surface, lights))
        image = hs.blend(colors, 0.1)
        ad.set_loss_var(image)
        picture = ad.recv_img(image)
        assert picture.shape == (2, 18, 24, 3) and np.isfinite(picture).all()
        assert picture.std() > 0.02 and np.abs(picture[0] - picture[1]).max() > 0.05
        gradient = ad.recv_grad(pos)
        assert np.isfinite(gradient).all() and np.abs(gradient).max() > 1e-2


@pytest.mark.gpu
def test_gouraud_interpolates_vertex_colours(ad: DressiAD) -> None:
    """Half way between two vertices the colour is their mean, not that of the mean normal."""
    v, f = quad(1.0)
    size = (33, 33)
    flat = np.eye(4)
    flat[2, 3] = 0.5
    pos, normal = Variable(VEC3, (4, 1)), Variable(VEC3, (4, 1))
    faces, matrix = Variable(IVEC3, (2, 1)), Variable(MAT4)
    hs = build_hardsoftras(pos, faces, matrix, size, 0.0)
    tilt = math.radians(60)
    normals = np.array([(-math.sin(tilt) * s, 0, math.cos(tilt)) for s in (1, -1, -1, 1)])
    feeds = {pos: v, faces: f, matrix: flat, normal: normals}
    light = DirectionalLight((0.0, 0.0, -1.0))
    per_vertex = gouraud(hs.peels[0], faces, Surface(1.0, pos, normal), [light], lambert_surface)
    smooth = build_surface(hs.peels[0], pos, faces, (0.0, 0.0, 5.0), normal)
    assert np.allclose(show(ad, feeds, per_vertex)[16, 16], math.cos(tilt), atol=1e-5)
    assert np.allclose(show(ad, feeds, lambert_surface(smooth, [light]))[16, 16], 1.0, atol=1e-5)


def test_gouraud_names_what_is_no_table() -> None:
    hs = build_hardsoftras(
        Variable(VEC3, (4, 1)), Variable(IVEC3, (2, 1)), Variable(MAT4), (8, 8), 0
    )
    with pytest.raises(GraphError, match="vertex tables"):
        gouraud(
            hs.peels[0],
            Variable(IVEC3, (2, 1)),
            Surface(1.0, Variable(VEC3, (8, 8)), UP, UP),
            [PointLight()],
        )


@pytest.mark.gpu
def test_eye_position_is_the_cameras(ad: DressiAD) -> None:
    eyes = [(1.0, 2.0, 3.0), (-4.0, 0.5, 0.2)]
    cameras = [Camera(look_at(e, (0, 0.1, 0)), perspective(40, 1.5, 0.1, 50)) for e in eyes]
    matrix = Variable(MAT4, layers=2, requires_grad=True, name="matrix")
    feeds = {matrix: np.stack([c.matrix for c in cameras])}
    got = show(ad, feeds, eye_position(matrix)).reshape(2, 3)
    assert np.allclose(got, [c.eye for c in cameras], atol=1e-3)


@pytest.mark.gpu
def test_two_sided_turns_the_back(ad: DressiAD) -> None:
    v, f = quad(1.0)
    pos, faces, matrix = Variable(VEC3, (4, 1)), Variable(IVEC3, (2, 1)), Variable(MAT4)
    hs = build_hardsoftras(pos, faces, matrix, (8, 8), 0.0)
    feeds = {pos: v, faces: f, matrix: camera((8, 8), (0, 0, -3))}
    for two_sided, want in ((False, 1.0), (True, -1.0)):
        s = build_surface(hs.peels[0], pos, faces, (0.0, 0.0, -3.0), two_sided=two_sided)
        assert s.normal is not None
        assert np.allclose(show(ad, feeds, s.normal)[4, 4], (0, 0, want), atol=1e-6)


@pytest.mark.gpu
def test_gradients_of_a_whole_picture(ad: DressiAD) -> None:
    """Soft rasterization, pbr with a lamp and its shadow, tone curve: to vertices and the lamp, the
    device against central differences of the float64 oracle."""
    v, f = cube(0.5)
    v = rotated(v, 0.4, 0.5)
    floor, g = quad(1.4)
    floor = floor[:, [0, 2, 1]] * (1, 1, -1) + (0, -1.1, 0)
    size = (16, 12)
    pos = Variable(VEC3, (12, 1), requires_grad=True, name="pos")
    where = Variable(VEC3, requires_grad=True, name="lamp")
    faces, matrix = Variable(IVEC3, (14, 1)), Variable(MAT4)
    hs = build_hardsoftras(pos, faces, matrix, size, 0.1)
    lamp = SpotLight(where, (0.0, -1.0, 0.0), 1.0, 20.0, None, 0.3, 0.7)
    light_view = spot_matrix(where, (0.0, -1.0, 0.0), 0.7, 0.5, 6.0)
    shadow = build_shadow_map(pos, faces, light_view, (12, 12), 0.1)
    surface = build_surface(hs.peels[0], pos, faces, eye_position(matrix), roughness=0.5)
    position, normal = surface.need("test", "position", "normal")
    to_lamp = lamp.sample(position)[0]
    # The slope in the bias has no gradient by design, so it is left out.
    dark = shadow_visibility(shadow, position, normal, to_lamp, slope_bias=0.0, bias=3.0)
    picture = tone_map(hs.blend([pbr(surface, [lamp], shadows=[dark])], 0.1), "reinhard")
    feeds = {
        pos: np.concatenate([v, floor]),
        where: np.array([0.3, 2.5, 0.4]),
        faces: np.concatenate([f, g + 8]),
        matrix: camera(size, (1.5, 1.5, 3)),
    }
    feeds = {k: np.float32(a).astype(float) if a.dtype == float else a for k, a in feeds.items()}
    check = gradcheck([picture], [pos, where], feeds, ad, eps=2e-6, n_entries=4)
    for leaf in check.leaves:
        got, want = (
            np.array([getattr(e, k) for e in leaf.compared]) for k in ("gradient", "slope")
        )
        assert len(got) >= 3, check.text()
        assert np.linalg.norm(got - want) < 0.02 * np.linalg.norm(want), check.text()
        assert leaf.device_error is not None and leaf.device_error < 1e-3, check.text()
