"""Materials: glTF's metallic-roughness parameters, factors times maps, sampled into a Surface.

In: a ``PbrMaterial``, a peel, tables. Out: ``Surface``, normal map applied. Every factor and every
map may be a parameter. Source: glTF 2.0, 3.9.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, VEC3, VEC4, VType
from dressi.errors import GraphError
from dressi.kinds import TextureBackward, Wrap, Wraps
from dressi.render.raster.hardsoftras import Peel
from dressi.render.shading.geometry import flat_normal, surface_uv
from dressi.render.shading.normal_map import flat_tangent, perturb_normal, smooth_tangent
from dressi.render.shading.surface import Surface, build_surface, towards_eye
from dressi.render.shading.values import Value, as_variable

_MAPS: dict[str, tuple[VType, ...]] = {  # and the types that they may have
    "albedo_map": (VEC3, VEC4),
    **dict.fromkeys(("metallic_map", "roughness_map", "occlusion_map"), (FLOAT,)),
    **dict.fromkeys(("emissive_map", "normal_map"), (VEC3,)),
}


@dataclass(frozen=True)
class PbrMaterial:
    """Factors, and maps that multiply them, as Variables or numbers. Defaults are glTF's.
    (``dressi.render.scene.scene.Material`` is the same as arrays, as files hold it.)

    albedo: VEC3 linear (base colour). alpha: FLOAT. metallic, roughness: FLOAT in [0, 1]. emissive:
    VEC3 linear. normal_scale, occlusion_strength: FLOAT. albedo_map: VEC3, or VEC4 with alpha,
    linear. metallic_map, roughness_map, occlusion_map: FLOAT; of glTF's packed VEC3 image they are
    ``orm.b``, ``orm.g`` and ``orm.r``. emissive_map: VEC3 linear. normal_map: VEC3 in [0, 1], not
    sRGB. Maps may have any sizes. Raises GraphError for a map of another type.
    """

    albedo: Value = 1.0
    alpha: Value = 1.0
    metallic: Value = 1.0
    roughness: Value = 1.0
    emissive: Value = 0.0
    normal_scale: Value = 1.0
    occlusion_strength: Value = 1.0
    albedo_map: Variable | None = None
    metallic_map: Variable | None = None
    roughness_map: Variable | None = None
    occlusion_map: Variable | None = None
    emissive_map: Variable | None = None
    normal_map: Variable | None = None

    def __post_init__(self) -> None:
        for name, types in _MAPS.items():
            value = getattr(self, name)
            if value is None or (isinstance(value, Variable) and value.vtype in types):
                continue
            known = " or ".join(t.name for t in types)
            got = value.label() if isinstance(value, Variable) else type(value).__name__
            raise GraphError(f"PbrMaterial: {name} must be {known}, got {got}")

    @property
    def has_maps(self) -> bool:
        """Whether texture coordinates are needed."""
        return any(getattr(self, name) is not None for name in _MAPS)


def _factor(material: PbrMaterial, name: str, vtype: VType = FLOAT) -> Variable:
    return as_variable(f"PbrMaterial: {name}", getattr(material, name), vtype)


def _apply_maps(
    material: PbrMaterial, values: dict[str, Variable], sample: Callable[[Variable], Variable]
) -> Variable | None:
    """Multiply factors with the maps of a material; return the texel of its normal map."""
    if material.albedo_map is not None:
        base = sample(material.albedo_map)
        if base.vtype is VEC4:
            values["alpha"] = values["alpha"] * base.w
            base = base.xyz
        values["albedo"] = values["albedo"] * base
    for name in ("metallic", "roughness", "emissive"):
        texture = getattr(material, f"{name}_map")
        if texture is not None:
            values[name] = values[name] * sample(texture)
    if material.occlusion_map is not None:
        shade = sample(material.occlusion_map) - 1.0
        values["occlusion"] = 1.0 + _factor(material, "occlusion_strength") * shade
    return None if material.normal_map is None else sample(material.normal_map)


def material_surface(
    peel: Peel,
    vtx_pos: Variable,
    faces: Variable,
    eye: Value,
    material: PbrMaterial,
    uv: Variable | None = None,
    uv_faces: Variable | None = None,
    vtx_normal: Variable | None = None,
    vtx_tangent: Variable | None = None,
    two_sided: bool = False,
    wrap: Wrap | Wraps = "repeat",
    backward: TextureBackward = "exact",
    step: Variable | None = None,
) -> Surface:
    """The Surface of one peel with a material.

    peel, vtx_pos, faces, eye, vtx_normal, two_sided: see ``build_surface``; the mapped normal is
    what is turned. uv: VEC2 @ (T, 1); uv_faces: IVEC3 @ (F, 1), default ``faces``. vtx_tangent:
    VEC4 @ (N, 1); without it tangents come from the UVs of faces. wrap, backward, step: see
    F.texture. occlusion is 1 + strength (map - 1). Gradient to factors, maps, positions, normals,
    tangents, UVs. Raises GraphError for maps without uv.
    """
    if material.has_maps and uv is None:
        raise GraphError("material_surface: a material with maps needs uv")

    values = {name: _factor(material, name, VEC3) for name in ("albedo", "emissive")}
    values |= {name: _factor(material, name) for name in ("alpha", "metallic", "roughness")}
    values["occlusion"] = F.constant(1.0)
    texel = None
    if uv is not None and material.has_maps:
        corners = faces if uv_faces is None else uv_faces
        where = surface_uv(peel, uv, corners)

        def sample(texture: Variable) -> Variable:
            return F.texture(texture, where, wrap=wrap, backward=backward, step=step)

        texel = _apply_maps(material, values, sample)
    plain = build_surface(peel, vtx_pos, faces, eye, vtx_normal)
    position, normal, to_eye = plain.need("material_surface", "position", "normal", "to_eye")
    if texel is not None and uv is not None:
        if vtx_tangent is None:
            tangent = flat_tangent(peel, vtx_pos, faces, uv, corners)
        else:
            tangent = smooth_tangent(peel, vtx_tangent, faces)
        normal = perturb_normal(normal, tangent, texel, material.normal_scale)
    if two_sided:
        normal = towards_eye(normal, flat_normal(peel, vtx_pos, faces), to_eye)
    return Surface(position=position, normal=normal, to_eye=to_eye, **values)
