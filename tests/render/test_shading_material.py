"""Materials: factors times maps, as glTF has them, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dressi import DressiAD, F, GraphError, Variable, gradcheck
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC2, VEC3, VEC4
from dressi.render.raster import build_hardsoftras
from dressi.render.shading import (
    DirectionalLight,
    PbrMaterial,
    Surface,
    material_surface,
    pbr,
    surface_uv,
)
from dressi.testing.scenes import camera, quad

V, FACES = quad(1.0)
UV = np.array([(0, 1), (1, 1), (1, 0), (0, 0)], float)
SIZE = (16, 12)


class Scene:
    """A square with a material; eye on one of its sides."""

    def __init__(self, eye_z: float = 3.0, **options: Any) -> None:
        self.pos = Variable(VEC3, (4, 1), name="pos")
        self.faces, self.uv = Variable(IVEC3, (2, 1)), Variable(VEC2, (4, 1))
        self.matrix = Variable(MAT4)
        self.feeds: dict[Variable, np.ndarray] = {
            self.pos: V,
            self.faces: FACES,
            self.uv: UV,
            self.matrix: np.float32(camera(SIZE, (0, 0, eye_z))).astype(float),
        }
        self.eye = (0.0, 0.0, eye_z)
        self.peel = build_hardsoftras(self.pos, self.faces, self.matrix, SIZE, 0.0).peels[0]
        self.options = options

    def map(self, vtype: Any, seed: int, low: float = 0.1, high: float = 0.9) -> Variable:
        v = Variable(vtype, (4, 3), requires_grad=True, name=f"map {seed}")
        a = np.random.default_rng(seed).uniform(low, high, (3, 4, vtype.n))
        self.feeds[v] = np.float32(a).astype(float)
        return v

    def surface(self, material: PbrMaterial) -> Surface:
        return material_surface(
            self.peel, self.pos, self.faces, self.eye, material, self.uv, **self.options
        )

    def show(self, ad: DressiAD, *images: Variable) -> list[np.ndarray]:
        for v, a in self.feeds.items():
            ad.send_img(v, a)
        ad.set_loss_var(images[0])
        return [ad.recv_img(i).astype(float) for i in images]


@pytest.mark.gpu
def test_factors_multiply_maps(ad: DressiAD) -> None:
    scene = Scene()
    maps = {
        "albedo_map": scene.map(VEC4, 0),
        "metallic_map": scene.map(FLOAT, 1),
        "roughness_map": scene.map(FLOAT, 2),
        "occlusion_map": scene.map(FLOAT, 3),
        "emissive_map": scene.map(VEC3, 4),
    }
    s = scene.surface(
        PbrMaterial((0.5, 0.6, 0.7), 0.8, 0.9, 0.7, (2.0, 1.0, 0.5), 1.0, 0.4, **maps)
    )
    where = surface_uv(scene.peel, scene.uv, scene.faces)
    texels = [F.texture(m, where) for m in maps.values()]
    parts = (s.albedo, s.alpha, s.metallic, s.roughness, s.occlusion, s.emissive)
    got = scene.show(ad, *parts, *texels, scene.peel.ids)
    base, metal, rough, occlusion, glow = got[6:11]
    want = (
        base[..., :3] * (0.5, 0.6, 0.7),
        base[..., 3:] * 0.8,
        metal * 0.9,
        rough * 0.7,
        1 + 0.4 * (occlusion - 1),
        glow * (2.0, 1.0, 0.5),
    )
    hit = got[11][..., 0] >= 0
    assert hit.sum() > 30
    for a, b in zip(got[:6], want, strict=True):
        assert np.allclose(a[hit], b[hit], atol=1e-5) and np.ptp(a[hit]) > 0.05


@pytest.mark.gpu
def test_without_maps_factors_are_the_surface(ad: DressiAD) -> None:
    scene = Scene()
    s = material_surface(
        scene.peel, scene.pos, scene.faces, scene.eye, PbrMaterial(0.25, 0.5, 0.1, 0.2, 0.3)
    )
    scene.feeds.pop(scene.uv)
    got = scene.show(ad, s.albedo + s.emissive, s.alpha + s.metallic, s.roughness, s.occlusion)
    assert [round(float(g.max()), 5) for g in got] == [0.55, 0.6, 0.2, 1.0]


@pytest.mark.gpu
@pytest.mark.parametrize("eye_z, want", [(3.0, 1.0), (-3.0, -1.0)])
def test_two_sided_reverses_the_mapped_normal(ad: DressiAD, eye_z: float, want: float) -> None:
    """glTF: the back face has its normal reversed, all of it."""
    scene = Scene(eye_z, two_sided=True)
    texel = Variable(VEC3, (1, 1), name="texel")
    scene.feeds[texel] = np.array([0.8, 0.5, 0.9])
    normal = scene.surface(PbrMaterial(normal_map=texel)).normal
    assert normal is not None
    (got,) = scene.show(ad, normal)
    assert np.allclose(got[6, 8], np.array([0.6, 0, 0.8]) * want, atol=1e-5)


@pytest.mark.gpu
def test_gradients_reach_all_maps_and_factors(ad: DressiAD) -> None:
    scene = Scene()
    factors = {
        n: Variable(VEC3 if n in ("albedo", "emissive") else FLOAT, (1, 1), 1, True, n)
        for n in ("albedo", "metallic", "roughness", "emissive", "normal_scale")
    }
    for v in factors.values():
        scene.feeds[v] = np.full(v.vtype.n, 0.7) if v.vtype.n == 3 else np.float64(0.6)
    maps = {
        "albedo_map": scene.map(VEC3, 0),
        "metallic_map": scene.map(FLOAT, 1, 0.4),
        "roughness_map": scene.map(FLOAT, 2, 0.4),
        "emissive_map": scene.map(VEC3, 4),
        "normal_map": scene.map(VEC3, 5, 0.4, 0.6),
    }
    scene.feeds[maps["normal_map"]][..., 2] = 1.0
    image = pbr(
        scene.surface(PbrMaterial(**factors, **maps)),
        [DirectionalLight((0.2, -0.3, -1.0), 1.0, 3.0)],
    )
    wrt = [*factors.values(), *maps.values()]
    check = gradcheck([image], wrt, scene.feeds, ad, n_entries=8, tolerance=2e-3)
    assert check.ok, check.text()


@pytest.mark.parametrize(
    "bad",
    [
        lambda s: PbrMaterial(albedo_map=Variable(FLOAT, (4, 4))),
        lambda s: PbrMaterial(roughness_map=Variable(VEC3, (4, 4))),
        lambda s: PbrMaterial(normal_map=np.zeros((4, 4, 3))),  # type: ignore[arg-type]
        lambda s: s.surface(PbrMaterial(metallic=Variable(VEC3))),
        lambda s: material_surface(
            s.peel, s.pos, s.faces, 0.0, PbrMaterial(normal_map=Variable(VEC3, (4, 4)))
        ),
    ],
)
def test_bad_materials_raise(bad: Any) -> None:
    with pytest.raises(GraphError, match=r"PbrMaterial|material_surface"):
        bad(Scene())
