"""From a peel to colours: the material of each pixel, its maps, its light.

In: a peel, the tables, materials, lights. Out: VEC3 linear colour and FLOAT alpha at each pixel.
Factors are looked up by the number of the material; a map is sampled once for all materials that
read it in the same way, and shows where they are. So the cost of shading grows with the number of
maps, not with that of materials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.graph import Size
from dressi.ad.vtype import FLOAT, IVEC3, VEC2, VEC4, VType
from dressi.render.camera.eye import to_eye
from dressi.render.pipeline.coat import coated
from dressi.render.pipeline.lights import build_shadow_maps, build_shadows
from dressi.render.pipeline.materials import (
    MaterialLeaves,
    affine_part,
    sampler_key,
    turned_part,
)
from dressi.render.pipeline.models import Iris, add_model_colors, build_iris
from dressi.render.pipeline.parameters import Parameter, Place
from dressi.render.pipeline.tables import Geometry
from dressi.render.raster import Peel, ScreenFaces, gather, interpolate
from dressi.render.scene.models import MODELS
from dressi.render.scene.parts import TextureRef
from dressi.render.shading import (
    Light,
    ShadowMap,
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

Readers = dict[int, tuple[Parameter, TextureRef]]
"""By number of a material: the map that it reads, and how."""


@dataclass(eq=False)
class Appearance:
    """What is the same for all peels. normals: VEC3 @ (G, 1). eye: VEC4 @ 1x1, layers = views
    (``homogeneous_eye``). tangents: whether those of the file are read. mipmaps: whether samplers
    that ask for them get them. shadow_texels: side of shadow maps, 0 for none; shadow_r: their soft
    rim. mask_softness: of alpha masks. matrix: MAT4 @ 1x1, layers = views, world to clip, and
    apexes (``build_apexes``): what skin, teeth and eyes need."""

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
    matrix: Variable | None = None
    apexes: tuple[Variable, Variable] | None = None
    _chains: dict[Variable, F.image.MipMap] = field(default_factory=dict)
    _tables: dict[Variable, tuple[F.image.TextureTable, dict[Place, int]]] = field(
        default_factory=dict
    )

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

    def is_mipmapped(self, ref: TextureRef, size: Size) -> bool:
        """Whether a map is read from a mip chain."""
        smooth = ref.mag_filter == "linear" and "mipmap" in ref.min_filter
        return self.mipmaps and smooth and size != (1, 1)

    def shadow_maps(self) -> list[ShadowMap | None]:
        """The map of each light; an empty list without shadows. Tears cast none."""
        if not self.shadow_texels:
            return []
        g = self.geometry
        faces = g.faces
        tears = [k for k, m in enumerate(self.materials) if m.model and m.model.name == "tears"]
        if tears:
            number = g.material_of_face.data.reshape(-1)  # type: ignore[union-attr]
            faces = F.leaf(g.corners[~np.isin(number, tears)], IVEC3, "casters")
        return build_shadow_maps(self.lights, g, faces, self.shadow_texels, self.shadow_r)

    def texture_table(self, leaf: Variable) -> tuple[F.image.TextureTable, dict[Place, int]]:
        """The texture table of maps that share a leaf, made once, and the number of each place."""
        if leaf not in self._tables:
            maps = [
                pair for m in self.materials for pair in m.maps.values() if pair[0].leaf is leaf
            ]
            places = sorted({p.place for p, _ in maps if p.place}, key=lambda place: place.start)
            mipmaps = any(self.is_mipmapped(ref, p.size) for p, ref in maps)
            table = F.image.texture_table(leaf, [p.size for p in places], mipmaps)
            self._tables[leaf] = table, {place: k for k, place in enumerate(places)}
        return self._tables[leaf]

    def shade(self, peel: Peel, screen: ScreenFaces) -> tuple[Variable, Variable | None]:
        """(VEC3 linear colour, FLOAT alpha or None where all is opaque) of one peel."""
        return Pixels(self, peel, screen).shade()


class Pixels:
    """What the materials of one peel are at each pixel: factors, maps, models."""

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
        rows = [m.factors[kind] for m in self.a.materials]
        if self.number is None:
            return rows[0].leaf
        shared = rows[0].place is not None
        table = rows[0].leaf if shared else F.join([p.leaf for p in rows])
        return F.lookup(table, self.number)

    def row(self, values: np.ndarray, vtype: VType, name: str) -> Variable:
        """Numbers of the material at each pixel. values: (materials, n)."""
        table = F.leaf(values, vtype, name)
        return table if self.number is None else F.lookup(table, self.number)

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

    # -- models of living materials

    def of_model(self, name: str) -> set[int]:
        """Numbers of the materials that ask for a model."""
        models = (m.model for m in self.a.materials)
        return {k for k, m in enumerate(models) if m is not None and m.name == name}

    def table_of(self, key: str, chosen: set[int]) -> Variable:
        """A number of the model of some materials: @ 1x1 where there is one material, else @
        (materials, 1), with any value for the others."""
        models = [self.a.materials[k] for k in sorted(chosen)]
        some = models[0]
        positive = some.model is not None and MODELS[some.model.name][key].positive
        own = [m.numbers.get(key, some.numbers[key]) for m in self.a.materials]
        value = own[min(chosen)] if len(models) == 1 else F.join(own)
        return F.exp(value) if positive else value

    def number_of(self, key: str, chosen: set[int]) -> Variable:
        """A number of the model of the material at each pixel of some materials."""
        value = self.table_of(key, chosen)
        return value if len(chosen) == 1 or self.number is None else F.lookup(value, self.number)

    @cached_property
    def iris(self) -> Iris:
        """The eyes at each pixel."""
        return build_iris(self)

    # -- maps

    def map(self, kind: str, missing: Variable) -> Variable:
        """A map at each pixel; ``missing`` where the material has none."""
        groups: dict[tuple[Variable, tuple], tuple[TextureRef, set[int]]] = {}
        shared: dict[Variable, Readers] = {}
        for k, m in enumerate(self.a.materials):
            if kind in m.maps:
                p, ref = m.maps[kind]
                if p.place is not None:
                    shared.setdefault(p.leaf, {})[k] = (p, ref)
                else:
                    groups.setdefault((p.leaf, sampler_key(ref)), (ref, set()))[1].add(k)
        bent = kind == "albedo" and bool(self.of_model("eye"))
        texels = [(self.sample_table(leaf, r, bent), set(r)) for leaf, r in shared.items()]
        for (leaf, _), (ref, chosen) in groups.items():
            texels.append((self.sample(leaf, ref, bent), chosen))
        out = missing
        for texel, chosen in texels:
            if kind == "albedo" and texel.vtype.n == 3:
                texel = F.vec4(texel, 1.0)
            out = self.pick(chosen, texel, out)
        return out

    def sample_table(self, leaf: Variable, readers: Readers, refracted: bool = False) -> Variable:
        """Maps of one leaf, each pixel its own, read as the sampler of its material says; 0 where
        the material has none."""
        table, index = self.a.texture_table(leaf)
        which = np.zeros((self.n, 3), np.int32)
        sizes = np.ones((self.n, 2), np.float32)
        matrices = np.tile(np.eye(3)[:2], (self.n, 1, 1))
        for k, (p, ref) in readers.items():
            assert p.place is not None
            i = index[p.place]
            levels = table.levels[i] if self.a.is_mipmapped(ref, p.size) else 1
            code = F.image.sampler_code((ref.wrap_u, ref.wrap_v), ref.mag_filter)
            which[k], sizes[k], matrices[k] = (
                (table.first[i], levels, code),
                p.size,
                ref.uv_matrix[:2],
            )
        uv = self.by_set(readers, self.uv)
        if refracted:
            uv = uv + self.iris.shift
        plain = np.array_equal(matrices, np.broadcast_to(np.eye(3)[:2], matrices.shape))
        if not plain:
            turn = self.row(matrices[:, :, :2].reshape(-1, 4), VEC4, "uv_matrices")
            uv = turned_part(uv, turn) + self.row(matrices[:, :, 2], VEC2, "uv_offsets")
        lod: Variable | float = 0.0
        if (which[:, 1] > 1).any():
            steps = [
                self.by_set(readers, lambda s: self.steps(s)[0]),
                self.by_set(readers, lambda s: self.steps(s)[1]),
            ]
            if not plain:
                steps = [turned_part(d, turn) for d in steps]
            texels = self.row(sizes, VEC2, "map_sizes")
            lod = F.texture_lod(steps[0] * texels, steps[1] * texels, (1, 1))
        return F.texture_from(table, self.row(which, IVEC3, "maps"), uv, lod)

    def by_set(self, readers: Readers, value: Callable[[int], Variable]) -> Variable:
        """A value of the UV set that the material at each pixel reads."""
        sets: dict[int, set[int]] = {}
        for k, (_, ref) in readers.items():
            sets.setdefault(ref.uv_set, set()).add(k)
        out = value(next(iter(sets)))
        for uv_set in list(sets)[1:]:
            out = self.pick(sets[uv_set], value(uv_set), out)
        return out

    def steps(self, uv_set: int) -> tuple[Variable, Variable]:
        """VEC2 changes of texture coordinates to the next pixels."""
        if uv_set not in self._steps:
            g = self.a.geometry
            self._steps[uv_set] = face_uv_derivatives(
                self.screen, self.peel, g.uvs[uv_set], g.attribute_faces
            )
        return self._steps[uv_set]

    def sample(self, leaf: Variable, ref: TextureRef, refracted: bool = False) -> Variable:
        """A map read as its sampler says. refracted: as it is seen through corneas."""
        wrap = (ref.wrap_u, ref.wrap_v)
        uv = self.uv(ref.uv_set)
        if refracted:
            uv = uv + self.iris.shift
        m = ref.uv_matrix
        plain = np.array_equal(m, np.eye(3))
        if not plain:
            uv = affine_part(uv, m) + (float(m[0, 2]), float(m[1, 2]))
        if not self.a.is_mipmapped(ref, leaf.size):
            return F.texture(leaf, uv, filter=ref.mag_filter, wrap=wrap)
        dx, dy = self.steps(ref.uv_set)
        if not plain:
            dx, dy = affine_part(dx, m), affine_part(dy, m)
        lod = F.texture_lod(dx, dy, leaf.size)
        return F.texture_mip(self.a.chain(leaf), uv, lod, wrap=wrap)

    def uv(self, uv_set: int) -> Variable:
        """Texture coordinates at each pixel."""
        if uv_set not in self._uvs:
            g = self.a.geometry
            self._uvs[uv_set] = surface_uv(self.peel, g.uvs[uv_set], g.attribute_faces)
        return self._uvs[uv_set]

    # -- the surface

    @cached_property
    def position(self) -> Variable:
        """VEC3, world."""
        g = self.a.geometry
        return interpolate(gather(g.positions, g.faces), self.peel.ids, self.peel.bary)

    @cached_property
    def seen_from(self) -> Variable:
        """VEC3 unit, towards the eye."""
        return to_eye(self.a.eye, self.position)

    @cached_property
    def normal(self) -> Variable:
        """VEC3 unit, without normal maps."""
        return smooth_normal(self.peel, self.a.normals, self.a.geometry.normal_faces)

    def shade(self) -> tuple[Variable, Variable | None]:
        """Colour and alpha."""
        a, g, peel = self.a, self.a.geometry, self.peel
        base = self.factor("base_color") * self.map("albedo", F.constant(1.0))
        if g.colors is not None:
            base = base * interpolate(gather(g.colors, g.attribute_faces), peel.ids, peel.bary)
        unlit = self.those(lambda m: m.unlit)
        color, alpha = base.xyz, base.w
        if len(unlit) < self.n:
            surface = self.surface(base.xyz)
            shadows, maps = None, a.shadow_maps()
            if maps:
                position, normal = surface.need("shadows", "position", "normal")
                shadows = build_shadows(a.lights, maps, position, normal)
            models = {k for k, m in enumerate(a.materials) if m.model is not None}
            if len(unlit | models) < self.n:
                lit = pbr(surface, a.lights, a.environment, shadows)
                color = self.pick(unlit, color, coated(self, surface, lit, shadows))
            if models:
                color, alpha = add_model_colors(self, color, alpha, surface, shadows, maps)
        return color, self.alpha(alpha) if a.has_alpha else None

    def surface(self, albedo: Variable) -> Surface:
        """What pbr reads."""
        a, g, peel = self.a, self.a.geometry, self.peel
        position, seen_from, normal = self.position, self.seen_from, self.normal
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
        masked = self.those(lambda m: m.alpha_mode == "MASK")
        if masked:
            cutoffs = [m.material.alpha_cutoff for m in self.a.materials]
            level: float | Variable = cutoffs[min(masked)]
            if len({cutoffs[k] for k in masked}) > 1:
                level = self.row(np.array(cutoffs)[:, None], FLOAT, "alpha_cutoffs")
            out = self.pick(masked, alpha_mask(alpha, level, self.a.mask_softness), out)
        out = self.pick(self.those(lambda m: m.alpha_mode == "BLEND"), alpha, out)
        clear = self.constants("transmission")
        return out if clear is None else out * (1.0 - clear)

    def constants(self, name: str) -> Variable | None:
        """FLOAT: a number of each material, which is no parameter; None where all are 0."""
        values = np.array([getattr(m.material, name) for m in self.a.materials], np.float32)
        return self.row(values[:, None], FLOAT, name) if values.any() else None
