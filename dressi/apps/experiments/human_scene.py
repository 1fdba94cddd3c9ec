"""The picture of the digital human: meshes, hair, lights and their shadows as one graph.

In: a ``Human``, strands, a camera, lights, an environment. Out: ``Picture``, whose leaves may be
fitted. One rasterization of all opaque meshes, whose materials are told apart by the part that a
face belongs to; clear layers over the eyes; strands in front of and behind the meshes; shadows of
meshes and strands on both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, INT, IVEC2, IVEC3, MAT4, VEC2, VEC3
from dressi.apps.data import human_file
from dressi.apps.experiments.human_parts import LIMBUS_UV, PARTS, Human
from dressi.errors import GraphError
from dressi.render.camera import Camera, look_at, perspective
from dressi.render.ibl import Environment, build_environment
from dressi.render.io import read_image
from dressi.render.raster import (
    HardRaster,
    blend_edges,
    build_edge_weights,
    build_hard_raster,
    build_ribbons,
)
from dressi.render.raster.projection import project
from dressi.render.scene import Strands
from dressi.render.shading import (
    DirectionalLight,
    HairFiber,
    OpacityMap,
    ShadowMap,
    Surface,
    build_opacity_map,
    build_shadow_map,
    directional_matrix,
    eye_position,
    pbr,
    shade_hair,
    shadow_visibility,
    strand_transmittance,
)

DENSITY = 0.7
"""What a strand takes of the light: hair is translucent."""

SHADOW_CENTER, SHADOW_RADIUS = (0.0, -0.45, 0.1), 2.2
"""Of the sphere that the light's maps see."""

ALBEDO = {"eye": None, "teeth": (0.78, 0.73, 0.63), "gums": (0.42, 0.12, 0.11),
          }  # fmt: skip
ROUGHNESS = {"skin": 0.45, "eye": 0.08, "teeth": 0.22, "gums": 0.3}
"""Linear colours and roughnesses of parts; None: from a texture."""

EYE_CENTER, EYE_LIMBUS, EYE_TEXELS = (300, 728), 116.0, 512
"""In MakeHuman's picture of eyes: the middle of one, the radius of its iris, texels to take."""

DEFAULT_LIGHTS = (
    DirectionalLight((-0.55, -0.55, -0.75), (1.0, 0.93, 0.85), 2.6),
    DirectionalLight((0.8, -0.35, 0.55), (0.75, 0.86, 1.0), 2.2),
)
"""A warm one from the front, a cool one from behind."""


@dataclass(frozen=True, eq=False)
class Setting:
    """What the human stands in. environment: leaf, VEC3, equirectangular. ambient: factor of it.
    shadow_texels, slices: of the lights' maps. n_layers: of strands over each other per pixel."""

    camera: Camera
    size: tuple[int, int]
    lights: Sequence[DirectionalLight] = DEFAULT_LIGHTS
    environment: str = "hdr/aerodynamics_workshop_256.hdr"
    ambient: float = 0.55
    shadow_texels: int = 512
    slices: int = 24
    n_layers: int = 6
    background: tuple[float, float, float] = (0.09, 0.1, 0.115)


@dataclass(frozen=True, eq=False)
class Picture:
    """color: VEC3 linear. hair: FLOAT, coverage by strands. skin_map: VEC3, linear, the leaf that
    holds the skin's colour. roughness: FLOAT @ 1x1 of the skin. matrix: MAT4, world to clip."""

    color: Variable
    hair: Variable
    skin_map: Variable
    roughness: Variable
    matrix: Variable
    raster: HardRaster


@dataclass(frozen=True, eq=False)
class Shadowed:
    """A light with what hides it. meshes: None where they cast no shadow."""

    light: DirectionalLight
    strands: OpacityMap | None
    meshes: ShadowMap

    def passes(self, position: Variable) -> Variable:
        """FLOAT: share of light that comes through the strands."""
        if self.strands is None:
            return F.expand(F.constant(1.0), position.size, position.layers)
        return strand_transmittance(self.strands, position, DENSITY)


@dataclass(frozen=True, eq=False)
class StrandLeaves:
    """The tables that builders read of strands."""

    points: Variable
    segments: Variable
    neighbors: Variable
    widths: Variable
    tangents: Variable


@dataclass(frozen=True, eq=False)
class Pixels:
    """What the meshes show per pixel. part: INT; the rest as in ``Surface``."""

    raster: HardRaster
    position: Variable
    normal: Variable
    openness: Variable
    uv: Variable
    part: Variable
    to_eye: Variable

    def of(self, name: str) -> Variable:
        """FLOAT mask of a part."""
        number = list(PARTS).index(name)
        return F.to_float(F.compare("eq", self.part, number)) * self.raster.mask


def portrait(aspect: float = 1.0) -> Camera:
    """Return the camera of the portrait."""
    view = look_at((1.6, 0.25, 6.6), (0.03, -0.33, 0.1))
    return Camera(view, perspective(26.0, aspect, 2.0, 12.0), "portrait")


def close_up(at: Sequence[float], away: Sequence[float], fov_deg: float, name: str) -> Camera:
    """Return a camera that looks at a place from ``away`` of it."""
    eye = np.asarray(at, float) + np.asarray(away, float)
    lens = perspective(fov_deg, 1.0, 0.5, 12.0)
    return Camera(look_at(eye, tuple(at)), lens, name)


def close_ups(human: Human) -> list[Camera]:
    """Return the cameras of eye, mouth, skin and hair."""
    eye = human.eyes[0].center + (0.0, 0.0, 0.15)
    return [
        close_up(eye, (0.5, 0.1, 2.6), 15.0, "eye"),
        close_up((0.0, -0.8, 1.0), (0.5, -0.1, 2.8), 18.0, "mouth"),
        close_up((0.45, -0.35, 0.85), (1.2, 0.1, 2.4), 18.0, "skin"),
        close_up((0.5, 0.75, 0.4), (1.8, 0.6, 2.6), 22.0, "hair"),
    ]


def turntable(k: int, n: int) -> Camera:
    """Return camera k of n around the head."""
    a = 2.0 * np.pi * k / n
    view = look_at((6.9 * np.sin(a), 0.3, 6.9 * np.cos(a)), (0.0, -0.33, 0.0))
    return Camera(view, perspective(28.0, 1.0, 2.0, 12.0), f"turn {k}")


def skin_texture() -> np.ndarray:
    """Return the scan's colours in the head's texture coordinates, linear."""
    return read_image(human_file("skin/ict_skin.jpg"))[..., :3]


def eye_texture() -> np.ndarray:
    """Return one eye of MakeHuman's picture so that ICT's coordinates fit, linear: its middle in
    the middle, its iris as wide as ICT's cornea."""
    image = read_image(human_file("makehuman/brown_eye.png"))[..., :3]
    half = 0.5 / LIMBUS_UV * EYE_LIMBUS  # pixels of the picture from the middle to the rim
    at = (np.arange(EYE_TEXELS) + 0.5) / EYE_TEXELS * 2.0 * half - half
    cols = np.clip((EYE_CENTER[0] + at).astype(int), 8, 590)
    rows = np.clip((EYE_CENTER[1] + at).astype(int), 440, 1015)
    return np.ascontiguousarray(image[rows][:, cols])


def strand_leaves(strands: Strands) -> StrandLeaves:
    """Return the leaves of strands."""
    return StrandLeaves(
        F.leaf(strands.points, VEC3, "hair_points"),
        F.leaf(strands.segments, IVEC2, "hair_segments"),
        F.leaf(strands.neighbors, IVEC2, "hair_neighbors"),
        F.leaf(strands.widths, FLOAT, "hair_widths"),
        F.leaf(strands.tangents, VEC3, "hair_tangents"),
    )


def build_human_picture(
    human: Human, strands: Strands | None, setting: Setting, fiber: HairFiber | None = None
) -> Picture:
    """Return the picture of a human.

    strands: None for a bald one. fiber: of the hair. Gradient to the leaves of ``Picture`` and to
    the numbers of the fibre. Raises GraphError for a setting without lights, and as the builders.
    """
    if not setting.lights:
        raise GraphError("human: the setting needs at least one light")
    hair = None if strands is None else strand_leaves(strands)
    vtx_pos = F.leaf(human.mesh.positions, VEC3, "positions")
    faces = F.leaf(human.mesh.faces, IVEC3, "faces")
    matrix = F.leaf(setting.camera.matrix32, MAT4, "matrix")
    lights = [_shadowed(light, vtx_pos, faces, hair, setting) for light in setting.lights]
    env = F.leaf(read_image(human_file(setting.environment)), VEC3, "environment")
    environment = build_environment(env * setting.ambient)

    pixels = _pixels(human, vtx_pos, faces, matrix, setting.size)
    skin_map = F.leaf(skin_texture(), VEC3, "skin_map")
    roughness = F.leaf([ROUGHNESS["skin"]], FLOAT, "skin_roughness")
    color = shade_meshes(pixels, lights, environment, skin_map, roughness)
    color = F.where(pixels.raster.mask, color, F.constant(setting.background))
    clip = project(vtx_pos, matrix)
    edges = build_edge_weights(clip, faces, pixels.raster.ids, pixels.raster.depth)
    (color,) = blend_edges([color], edges)
    coverage = F.expand(F.constant(0.0), setting.size)
    if hair is not None:
        color, coverage = _over(color, hair, pixels, lights, environment, matrix, setting, fiber)
    return Picture(color, coverage, skin_map, roughness, matrix, pixels.raster)


def _shadowed(
    light: DirectionalLight,
    vtx_pos: Variable,
    faces: Variable,
    hair: StrandLeaves | None,
    setting: Setting,
) -> Shadowed:
    texels = (setting.shadow_texels, setting.shadow_texels)
    matrix = directional_matrix(light.direction, SHADOW_CENTER, SHADOW_RADIUS)
    shadow = build_shadow_map(vtx_pos, faces, matrix, texels)
    if hair is None:
        return Shadowed(light, None, shadow)
    # Strands are smooth in the mean: a quarter of the texels is enough for them.
    coarse = (max(texels[0] // 4, 8), max(texels[1] // 4, 8))
    opacity = build_opacity_map(
        hair.points, hair.segments, hair.widths, matrix, coarse, setting.slices
    )
    return Shadowed(light, opacity, shadow)


def _pixels(
    human: Human, vtx_pos: Variable, faces: Variable, matrix: Variable, size: tuple[int, int]
) -> Pixels:
    assert human.mesh.uvs is not None
    raster = build_hard_raster(vtx_pos, faces, matrix, size)
    normals = F.leaf(human.normals, VEC3, "normals")
    openness = F.leaf(human.openness[:, None], FLOAT, "openness")
    position, normal, free = raster.interpolate((vtx_pos, normals, openness), faces)
    uv = raster.interpolate(
        F.leaf(human.mesh.uvs, VEC2, "uvs"), F.leaf(human.mesh.corner_faces, IVEC3, "uv_faces")
    )
    part = F.lookup(F.leaf(human.parts[:, None], INT, "parts"), raster.ids)
    away = F.normalize(eye_position(matrix) - position)
    return Pixels(raster, position, F.normalize(normal), free, uv, part, away)


def shade_meshes(
    pixels: Pixels,
    lights: Sequence[Shadowed],
    environment: Environment,
    skin_map: Variable,
    roughness: Variable,
) -> Variable:
    """VEC3 linear: the opaque meshes."""
    skin = F.texture(skin_map, pixels.uv, wrap="clamp")
    iris = F.texture(F.leaf(eye_texture(), VEC3, "eye_map"), pixels.uv, wrap="clamp")
    colors = [ALBEDO.get(name) or (0.0, 0.0, 0.0) for name in PARTS]
    albedo = F.lookup(F.leaf(np.float32(colors), VEC3, "part_colors"), pixels.part)
    albedo = albedo + skin * pixels.of("skin") + iris * pixels.of("eye")
    rough = F.lookup(
        F.leaf(np.float32([ROUGHNESS[n] for n in PARTS])[:, None], FLOAT, "part_roughness"),
        pixels.part,
    )
    rough = F.where(pixels.of("skin"), roughness, rough)
    through = [light.passes(pixels.position) for light in lights]
    shadows = []
    for light, passes in zip(lights, through, strict=True):
        to_light, _ = light.light.sample(pixels.position)
        shadows.append(
            passes * shadow_visibility(light.meshes, pixels.position, pixels.normal, to_light)
        )
    hidden = F.add_n(through) * (1.0 / len(through))
    surface = Surface(
        albedo,
        pixels.position,
        pixels.normal,
        pixels.to_eye,
        roughness=rough,
        # Light from everywhere is hidden by what hides the lights, on average.
        occlusion=pixels.openness * F.sqrt(hidden),
    )
    return pbr(surface, [x.light for x in lights], environment, shadows)


def _over(
    color: Variable,
    hair: StrandLeaves,
    pixels: Pixels,
    lights: Sequence[Shadowed],
    environment: Environment,
    matrix: Variable,
    setting: Setting,
    fiber: HairFiber | None,
) -> tuple[Variable, Variable]:
    """(the picture with strands over it, their coverage)."""
    ribbons = build_ribbons(
        hair.points,
        hair.segments,
        hair.neighbors,
        hair.widths,
        matrix,
        setting.size,
        setting.n_layers,
        pixels.raster.depth,
    )
    position = ribbons.interpolate(hair.points, hair.segments)
    tangent = F.normalize(ribbons.interpolate(hair.tangents, hair.segments))
    through = [light.passes(position) for light in lights]
    hidden = F.add_n(through) * (1.0 / len(through))
    outwards = F.normalize(position)
    shaded = shade_hair(
        fiber or HairFiber(melanin=0.45, redness=0.3, roughness=0.25),
        tangent,
        F.normalize(eye_position(matrix) - position),
        position,
        # A light gives a fibre what arrives per area across it, a surface that by pi.
        [x.light for x in lights],
        [p * shadow_visibility(x.meshes, position) for x, p in zip(lights, through, strict=True)],
        environment.diffuse(outwards) * F.sqrt(hidden),
    )
    picture = ribbons.blend(F.where(ribbons.mask, shaded, 0.0), color)
    return picture, F.sum_layers(ribbons.weights)
