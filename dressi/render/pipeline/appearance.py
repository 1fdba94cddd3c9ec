"""From a peel to colours: the material of each pixel, its maps, its light.

In: a peel, the tables, materials, lights. Out: VEC3 linear colour and FLOAT alpha at each pixel.
Factors are looked up by the number of the material; a map is sampled once for all materials that
read it in the same way, and shows where they are. So the cost of shading grows with the number of
maps, not with that of materials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT
from dressi.render.camera.eye import to_eye
from dressi.render.pipeline.lights import build_shadows
from dressi.render.pipeline.materials import MaterialLeaves, sampler_of
from dressi.render.pipeline.tables import Geometry
from dressi.render.raster import Peel, ScreenFaces, gather, interpolate
from dressi.render.scene.parts import TextureRef
from dressi.render.shading import (
    Light,
    Surface,
    alpha_mask,
    flat_normal,
    flat_tangent,
    pbr,
    perturb_normal,
    smooth_normal,
    smooth_tangent,
    surface_uv,
    towards_eye,
)
from dressi.render.shading.pbr import Environment
from dressi.render.shading.texture_detail import face_uv_derivatives


@dataclass(eq=False)
class Appearance:
    """What is the same for all peels. normals: VEC3 @ (G, 1). eye: VEC4 @ 1x1, layers = views
    (``homogeneous_eye``). tangents: whether those of the file are read. mipmaps: whether samplers
    that ask for them get them. shadow_texels: side of shadow maps, 0 for none; shadow_r: their soft
    rim. mask_softness: of alpha masks."""

    geometry: Geometry
    materials: Sequence[MaterialLeaves]
    normals: Variable
    eye: Variable
    lights: Sequence[Light]
    environment: Environment | None
    tangents: bool = False
    mipmaps: bool = True
    shadow_texels: int = 0
    shadow_r: float = 0.0
    mask_softness: float | Variable = 0.0
    _chains: dict[Variable, F.image.MipMap] = field(default_factory=dict)

    @property
    def has_alpha(self) -> bool:
        """Whether anything is masked or clear."""
        given = [m.material for m in self.materials]
        return any(m.alpha_mode != "OPAQUE" or m.transmission > 0.0 for m in given)

    def chain(self, leaf: Variable) -> F.image.MipMap:
        """The mip chain of a map, made once."""
        if leaf not in self._chains:
            self._chains[leaf] = F.image.mipmap(leaf)
        return self._chains[leaf]

    def shade(self, peel: Peel, screen: ScreenFaces) -> tuple[Variable, Variable | None]:
        """(VEC3 linear colour, FLOAT alpha or None where all is opaque) of one peel."""
        return _Pixels(self, peel, screen).shade()


class _Pixels:
    """One peel."""

    def __init__(self, appearance: Appearance, peel: Peel, screen: ScreenFaces) -> None:
        self.a, self.peel, self.screen = appearance, peel, screen
        self.n = len(appearance.materials)
        self.number: Variable | None = None
        if self.n > 1:
            self.number = F.lookup(appearance.geometry.material_of_face, peel.ids)
        self._uvs: dict[int, Variable] = {}
        self._steps: dict[int, tuple[Variable, Variable]] = {}

    # -- by material

    def factor(self, kind: str) -> Variable:
        """A factor of the material at each pixel."""
        leaves = [m.factors[kind] for m in self.a.materials]
        return leaves[0] if self.number is None else F.lookup(F.join(leaves), self.number)

    def where(self, chosen: set[int]) -> Variable | bool:
        """FLOAT mask of the pixels of some materials; a bool where it is all or none."""
        if len(chosen) in (0, self.n):
            return bool(chosen)
        assert self.number is not None
        flags = np.isin(np.arange(self.n), sorted(chosen)).astype(np.float32)[:, None]
        return F.lookup(F.leaf(flags, FLOAT, "materials"), self.number)

    def pick(self, chosen: set[int], yes: Variable, no: Variable) -> Variable:
        """yes at the pixels of some materials, else no."""
        mask = self.where(chosen)
        if isinstance(mask, bool):
            return yes if mask else no
        return F.where(mask, yes, no)

    def those(self, test) -> set[int]:  # type: ignore[no-untyped-def]
        """Numbers of the materials that pass a test."""
        return {k for k, m in enumerate(self.a.materials) if test(m.material)}

    # -- maps

    def map(self, kind: str, missing: Variable) -> Variable:
        """A map at each pixel; ``missing`` where the material has none."""
        groups: dict[tuple[Variable, tuple], tuple[TextureRef, set[int]]] = {}
        for k, m in enumerate(self.a.materials):
            if kind in m.maps:
                leaf, ref = m.maps[kind]
                key = (leaf, _key(sampler_of(ref)))
                groups.setdefault(key, (ref, set()))[1].add(k)
        out = missing
        for (leaf, _), (ref, chosen) in groups.items():
            texel = self.sample(leaf, ref)
            if kind == "albedo" and texel.vtype.n == 3:
                texel = F.vec4(texel, 1.0)
            out = self.pick(chosen, texel, out)
        return out

    def sample(self, leaf: Variable, ref: TextureRef) -> Variable:
        """A map read as its sampler says."""
        wrap = (ref.wrap_u, ref.wrap_v)
        uv = self.uv(ref.uv_set)
        m = ref.uv_matrix
        plain = np.array_equal(m, np.eye(3))
        if not plain:
            uv = _affine(uv, m) + (float(m[0, 2]), float(m[1, 2]))
        smooth = ref.mag_filter == "linear"
        if not (self.a.mipmaps and smooth and "mipmap" in ref.min_filter and leaf.size != (1, 1)):
            return F.texture(leaf, uv, filter=ref.mag_filter, wrap=wrap)
        if ref.uv_set not in self._steps:
            g = self.a.geometry
            self._steps[ref.uv_set] = face_uv_derivatives(
                self.screen, self.peel, g.uvs[ref.uv_set], g.attribute_faces
            )
        dx, dy = self._steps[ref.uv_set]
        if not plain:
            dx, dy = _affine(dx, m), _affine(dy, m)
        lod = F.texture_lod(dx, dy, leaf.size)
        return F.texture_mip(self.a.chain(leaf), uv, lod, wrap=wrap)

    def uv(self, uv_set: int) -> Variable:
        """Texture coordinates at each pixel."""
        if uv_set not in self._uvs:
            g = self.a.geometry
            self._uvs[uv_set] = surface_uv(self.peel, g.uvs[uv_set], g.attribute_faces)
        return self._uvs[uv_set]

    # -- the surface

    def shade(self) -> tuple[Variable, Variable | None]:
        """Colour and alpha."""
        a, g, peel = self.a, self.a.geometry, self.peel
        base = self.factor("base_color") * self.map("albedo", F.constant(1.0))
        if g.colors is not None:
            base = base * interpolate(gather(g.colors, g.attribute_faces), peel.ids, peel.bary)
        unlit = self.those(lambda m: m.unlit)
        color = base.xyz
        if len(unlit) < self.n:
            surface = self.surface(base.xyz)
            shadows = None
            if a.shadow_texels:
                position, normal = surface.need("shadows", "position", "normal")
                shadows = build_shadows(a.lights, g, position, normal, a.shadow_texels, a.shadow_r)
            lit = pbr(surface, a.lights, a.environment, shadows)
            lit = self.coated(surface, lit, shadows)
            color = self.pick(unlit, color, lit)
        return color, self.alpha(base.w) if a.has_alpha else None

    def surface(self, albedo: Variable) -> Surface:
        """What pbr reads."""
        a, g, peel = self.a, self.a.geometry, self.peel
        position = interpolate(gather(g.positions, g.faces), peel.ids, peel.bary)
        seen_from = to_eye(a.eye, position)
        normal = smooth_normal(peel, a.normals, g.normal_faces)
        mapped = {k for k, m in enumerate(a.materials) if "normal" in m.maps}
        if mapped:
            texel = self.map("normal", F.constant((0.5, 0.5, 1.0)))
            if a.tangents and g.tangents is not None:
                tangent = smooth_tangent(peel, g.tangents, g.attribute_faces)
            else:
                uv_set = next(m.maps["normal"][1].uv_set for m in a.materials if "normal" in m.maps)
                uv = g.uvs[uv_set]
                tangent = flat_tangent(peel, g.positions, g.faces, uv, g.attribute_faces)
            bent = perturb_normal(normal, tangent, texel, self.factor("normal_scale"))
            normal = self.pick(mapped, bent, normal)
        both_sides = self.those(lambda m: m.double_sided)
        if both_sides:
            face = flat_normal(peel, g.positions, g.faces)
            normal = self.pick(both_sides, towards_eye(normal, face, seen_from), normal)
        one = F.constant(1.0)
        occlusion: Variable = one
        if any("occlusion" in m.maps for m in a.materials):
            shade = self.map("occlusion", one) - 1.0
            occlusion = 1.0 + self.factor("occlusion_strength") * shade
        return Surface(
            albedo,
            position,
            normal,
            seen_from,
            self.factor("metallic_factor") * self.map("metallic", one),
            self.factor("roughness_factor") * self.map("roughness", one),
            occlusion,
            self.factor("emissive_factor") * self.map("emissive", F.constant((1.0, 1.0, 1.0))),
        )

    def alpha(self, alpha: Variable) -> Variable:
        """FLOAT coverage by glTF's alpha modes."""
        out = F.constant(1.0)
        cutoffs = sorted(
            {m.material.alpha_cutoff for m in self.a.materials if m.material.alpha_mode == "MASK"}
        )
        for cutoff in cutoffs:
            chosen = self.those(lambda m, c=cutoff: m.alpha_mode == "MASK" and m.alpha_cutoff == c)
            out = self.pick(chosen, alpha_mask(alpha, cutoff, self.a.mask_softness), out)
        out = self.pick(self.those(lambda m: m.alpha_mode == "BLEND"), alpha, out)
        clear = self.constants("transmission")
        return out if clear is None else out * (1.0 - clear)

    def constants(self, name: str) -> Variable | None:
        """FLOAT: a number of each material, which is no parameter; None where all are 0."""
        values = np.array([getattr(m.material, name) for m in self.a.materials], np.float32)
        if not values.any():
            return None
        if self.number is None:
            return F.constant(float(values[0]))
        return F.lookup(F.leaf(values[:, None], FLOAT, name), self.number)

    def coated(self, surface: Surface, color: Variable, shadows: Any) -> Variable:
        """VEC3: the colour below a clear coat of index 1.5, and what the coat reflects.

        Source: KHR_materials_clearcoat: mix(below, coat, clearcoat * Fresnel(V . N)). Differs: the
        coat has the normal of the surface below.
        """
        strength = self.constants("clearcoat")
        if strength is None:
            return color
        rough = self.constants("clearcoat_roughness")
        position, normal, to_eye = surface.need("clearcoat", "position", "normal", "to_eye")
        black = (0.0, 0.0, 0.0)
        coat = Surface(black, position, normal, to_eye, roughness=0.0 if rough is None else rough)
        left = 1.0 - F.minimum(F.abs(F.dot(normal, to_eye)), 1.0)
        fresnel = 0.04 + 0.96 * (left * left) * (left * left) * left
        shine = pbr(coat, self.a.lights, self.a.environment, shadows)
        return color * (1.0 - strength * fresnel) + shine * strength


def _key(ref: TextureRef) -> tuple:
    filters = (ref.mag_filter, ref.min_filter)
    return (ref.uv_set, ref.wrap_u, ref.wrap_v, *filters, ref.uv_matrix.tobytes())


def _affine(uv: Variable, m: np.ndarray) -> Variable:
    """The linear part of a texture transform."""
    (a, b), (c, d) = m[:2, :2].tolist()
    return F.vec2(uv.x * a + uv.y * b, uv.x * c + uv.y * d)
