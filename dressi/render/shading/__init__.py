"""Shading as builders over F. In: peels, tables, materials, lights. Out: VEC3 linear colours.

geometry (texture coordinates, normals, plain unlit and Lambert), surface (what models read),
lights, models (Lambert, Blinn-Phong, Gouraud), pbr (metallic-roughness).
"""

from dressi.render.shading.geometry import (
    face_normals,
    flat_normal,
    lambert,
    smooth_normal,
    surface_uv,
    unlit,
    vertex_normals,
)
from dressi.render.shading.lights import DirectionalLight, Light, PointLight, SpotLight
from dressi.render.shading.models import (
    Shadows,
    blinn_phong,
    gouraud,
    lambert_surface,
    unlit_surface,
)
from dressi.render.shading.pbr import Environment, ggx, pbr, schlick, smith
from dressi.render.shading.surface import Surface, build_surface, eye_position
from dressi.render.shading.values import Value

__all__ = [
    "DirectionalLight",
    "Environment",
    "Light",
    "PointLight",
    "Shadows",
    "SpotLight",
    "Surface",
    "Value",
    "blinn_phong",
    "build_surface",
    "eye_position",
    "face_normals",
    "flat_normal",
    "ggx",
    "gouraud",
    "lambert",
    "lambert_surface",
    "pbr",
    "schlick",
    "smith",
    "smooth_normal",
    "surface_uv",
    "unlit",
    "unlit_surface",
    "vertex_normals",
]
