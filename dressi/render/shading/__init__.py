"""Shading as builders over F. In: peels, tables, materials, lights. Out: VEC3 linear colours.

geometry (texture coordinates, normals, plain unlit and Lambert), surface (what models read),
material (factors and maps), lights, models (Lambert, Blinn-Phong, Gouraud), pbr (metallic-
roughness), dielectric (reflection apart from what goes in), skin, eye, teeth, hair, normal_map,
alpha (masks, blending of peels), shadow (maps), tone (curves, exposure, gamma), neural (textures
made by an MLP), texture_detail (derivatives of uv), cube_detail (level of detail and mip chains of
cube maps).
"""

from dressi.render.camera.eye import eye_position, homogeneous_eye, to_eye
from dressi.render.shading.alpha import alpha_mask, blend_peels, composite, over, peel_alphas
from dressi.render.shading.cube_detail import cube_derivatives, texture_cube_mip
from dressi.render.shading.dielectric import Split, normal_reflectance, shade_dielectric
from dressi.render.shading.eye import (
    Eye,
    iris_offset,
    limbus_mask,
    limbus_tint,
    refract_cornea,
    shade_eye,
    shade_tears,
    uv_gradients,
    uv_offset,
)
from dressi.render.shading.geometry import (
    face_normals,
    flat_normal,
    lambert,
    smooth_normal,
    surface_uv,
    unlit,
    vertex_normals,
)
from dressi.render.shading.hair import HairFiber, shade_hair
from dressi.render.shading.lights import DirectionalLight, Light, PointLight, SpotLight
from dressi.render.shading.material import PbrMaterial, material_surface
from dressi.render.shading.models import (
    Shadows,
    blinn_phong,
    gouraud,
    lambert_surface,
    unlit_surface,
)
from dressi.render.shading.neural import (
    MLP,
    Layer,
    NeuralTexture,
    layer,
    mlp,
    neural_texture,
    pack_weights,
    unpack_weights,
)
from dressi.render.shading.normal_map import (
    decode_normal,
    face_tangents,
    flat_tangent,
    perturb_normal,
    smooth_tangent,
)
from dressi.render.shading.opacity import OpacityMap, build_opacity_map, strand_transmittance
from dressi.render.shading.pbr import Environment, ggx, pbr, schlick, smith
from dressi.render.shading.shadow import (
    ShadowMap,
    build_shadow_map,
    directional_matrix,
    shadow_visibility,
    spot_matrix,
)
from dressi.render.shading.skin import (
    Kernel,
    Skin,
    build_diffusion,
    diffusion_kernel,
    shade_skin,
    thickness,
    transmitted,
)
from dressi.render.shading.surface import Surface, build_surface, towards_eye
from dressi.render.shading.teeth import mouth_occlusion
from dressi.render.shading.texture_detail import face_lod, face_uv_derivatives, hard_lod
from dressi.render.shading.tone import aces, exposure, gamma, reinhard, tone_map
from dressi.render.shading.values import Value

__all__ = [
    "DirectionalLight",
    "Environment",
    "Eye",
    "HairFiber",
    "Kernel",
    "Layer",
    "Light",
    "MLP",
    "NeuralTexture",
    "OpacityMap",
    "PbrMaterial",
    "PointLight",
    "ShadowMap",
    "Shadows",
    "Skin",
    "Split",
    "SpotLight",
    "Surface",
    "Value",
    "aces",
    "alpha_mask",
    "blend_peels",
    "blinn_phong",
    "build_diffusion",
    "build_opacity_map",
    "build_shadow_map",
    "build_surface",
    "composite",
    "cube_derivatives",
    "decode_normal",
    "diffusion_kernel",
    "directional_matrix",
    "exposure",
    "eye_position",
    "face_lod",
    "face_normals",
    "face_tangents",
    "face_uv_derivatives",
    "flat_normal",
    "flat_tangent",
    "gamma",
    "ggx",
    "gouraud",
    "hard_lod",
    "homogeneous_eye",
    "iris_offset",
    "lambert",
    "lambert_surface",
    "layer",
    "limbus_mask",
    "limbus_tint",
    "material_surface",
    "mlp",
    "mouth_occlusion",
    "neural_texture",
    "normal_reflectance",
    "over",
    "pack_weights",
    "pbr",
    "peel_alphas",
    "perturb_normal",
    "refract_cornea",
    "reinhard",
    "schlick",
    "shade_dielectric",
    "shade_eye",
    "shade_hair",
    "shade_skin",
    "shade_tears",
    "shadow_visibility",
    "smith",
    "smooth_normal",
    "smooth_tangent",
    "spot_matrix",
    "strand_transmittance",
    "surface_uv",
    "texture_cube_mip",
    "thickness",
    "to_eye",
    "tone_map",
    "towards_eye",
    "transmitted",
    "unlit",
    "unlit_surface",
    "unpack_weights",
    "uv_gradients",
    "uv_offset",
    "vertex_normals",
]
