"""The picture of the digital human: meshes, hair, lights and their shadows as one graph.

In: a ``Human``, strands, a camera, lights, an environment. Out: ``Picture``, whose leaves may be
fitted. One rasterization of all opaque meshes, whose materials are told apart by the part that a
face belongs to; clear layers over the eyes; strands in front of and behind the meshes; shadows of
meshes and strands on both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, INT, IVEC2, IVEC3, MAT4, VEC2, VEC3
from dressi.apps.data import human_file
from dressi.apps.experiments.human_parts import LIMBUS_UV, Human
from dressi.apps.experiments.human_shading import (
    NUMBERS,
    Look,
    Pixels,
    Shadowed,
    over_tears,
    shade_meshes,
)
from dressi.errors import GraphError, scope
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
    Surface,
    build_opacity_map,
    build_shadow_map,
    directional_matrix,
    eye_position,
    shade_hair,
    shadow_visibility,
)
from dressi.render.shading.skin import Skin

SHADOW_CENTER, SHADOW_RADIUS = (0.0, -0.45, 0.1), 2.2
"""Of the sphere that the light's maps see."""

IRIS_COLOR = (5.2, 2.9, 1.35)
"""By the picture's mean of red, green and blue."""
EYE_CENTER, EYE_LIMBUS, EYE_TEXELS = (300, 728), 116.0, 512
"""In MakeHuman's picture of eyes: the middle of one, the radius of its iris, texels to take."""

FIBER = HairFiber(melanin=0.88, redness=0.12, roughness=0.3)
"""Of dark brown hair."""

DEFAULT_LIGHTS = (
    DirectionalLight((-0.5, -0.4, -0.8), (1.0, 0.93, 0.86), 2.3),
    DirectionalLight((0.8, -0.35, 0.55), (0.75, 0.86, 1.0), 2.0),
)
"""A warm one from the front, a cool one from behind."""


@dataclass(frozen=True, eq=False)
class Setting:
    """What the human stands in. cameras: one per view; with hair there is one. environment: name of
    a file of the package. ambient: factor of it. shadow_texels, slices: of the lights' maps.
    n_layers: of strands over each other per pixel. width: of the spread of light in skin, in units
    of 10 cm; people's is 0.03; taps: of it."""

    cameras: Sequence[Camera]
    size: tuple[int, int]
    lights: Sequence[DirectionalLight] = DEFAULT_LIGHTS
    environment: str = "hdr/aerodynamics_workshop_256.hdr"
    ambient: float = 0.8
    shadow_texels: int = 512
    slices: int = 24
    n_layers: int = 6
    width: float = 0.03
    taps: int = 17
    background: tuple[float, float, float] = (0.09, 0.1, 0.115)


@dataclass(frozen=True, eq=False)
class Picture:
    """color: VEC3 linear, layers = views. hair: FLOAT, coverage by strands. skin_map: VEC3 linear,
    the leaf of the skin's colours. width, roughness: FLOAT @ 1x1, leaves of the skin. matrix: MAT4
    @ 1x1, leaf, world to clip. raster: of the opaque meshes."""

    color: Variable
    hair: Variable
    skin_map: Variable
    width: Variable
    roughness: Variable
    matrix: Variable
    raster: HardRaster


@dataclass(frozen=True, eq=False)
class StrandLeaves:
    """The tables that builders read of strands."""

    points: Variable
    segments: Variable
    neighbors: Variable
    widths: Variable
    tangents: Variable


def portrait(aspect: float = 1.0) -> Camera:
    """Return the camera of the portrait."""
    view = look_at((1.6, 0.25, 6.6), (0.03, -0.33, 0.1))
    return Camera(view, perspective(26.0, aspect, 2.0, 12.0), "portrait")


def close_up(at: npt.ArrayLike, away: Sequence[float], fov_deg: float, name: str) -> Camera:
    """Return a camera that looks at a place from ``away`` of it."""
    eye = np.asarray(at, float) + np.asarray(away, float)
    lens = perspective(fov_deg, 1.0, 0.5, 12.0)
    return Camera(look_at(eye, at), lens, name)


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
    eye = image[rows][:, cols]
    # The picture's irises are nearly black and red in linear light; people's brown ones are not.
    iris = np.hypot(at[:, None], at[None, :]) < 1.02 * EYE_LIMBUS
    brown = eye.mean(axis=2, keepdims=True) * np.array(IRIS_COLOR, np.float32)
    return np.ascontiguousarray(np.where(iris[..., None], brown, eye))


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
    human: Human,
    strands: Strands | None,
    setting: Setting,
    fiber: HairFiber | None = None,
    skin_map: np.ndarray | None = None,
) -> Picture:
    """Return the picture of a human.

    strands: None for a bald one. fiber: of the hair. skin_map: (H, W, 3) linear, default
    ``skin_texture``. Gradient to the leaves of ``Picture`` and to the numbers of the fibre. Raises
    GraphError for a setting without lights or cameras, for several cameras with hair, and as the
    builders.
    """
    if not setting.lights or not setting.cameras:
        raise GraphError("human: the setting needs at least one light and one camera")
    if strands is not None and len(setting.cameras) > 1:
        raise GraphError(
            f"human: hair is drawn for one camera, got {len(setting.cameras)}\n"
            "  hint: build a picture for each, or leave the strands out"
        )
    hair = None if strands is None else strand_leaves(strands)
    vtx_pos = F.leaf(human.mesh.positions, VEC3, "positions")
    faces = F.leaf(human.mesh.faces, IVEC3, "faces")
    views = np.stack([c.matrix32 for c in setting.cameras])[:, None, None]
    matrix = F.leaf(views, MAT4, "matrix")
    with scope("shadows"):
        lights = [_shadowed(light, vtx_pos, faces, hair, setting) for light in setting.lights]
    with scope("environment"):
        env = F.leaf(read_image(human_file(setting.environment)), VEC3, "environment")
        environment = build_environment(env * setting.ambient)
    with scope("meshes"):
        pixels = _pixels(human, vtx_pos, faces, matrix, setting.size)
    look = Look(
        F.leaf(skin_texture() if skin_map is None else skin_map, VEC3, "skin_map"),
        F.leaf(eye_texture(), VEC3, "eye_map"),
        Skin(F.leaf(np.array([setting.width]), FLOAT, "skin_width")),
        F.leaf(np.array([NUMBERS["skin"][1]]), FLOAT, "skin_roughness"),
        setting.taps,
    )
    with scope("skin, eyes, teeth"):
        color, shadows = shade_meshes(human, pixels, lights, environment, look, matrix)
        color = F.where(pixels.raster.mask, color, F.constant(setting.background))
    with scope("tears"):
        tears = _tear_surface(human, vtx_pos, matrix, setting.size)
        color = over_tears(color, pixels.raster, *tears, lights, environment, shadows)
    with scope("edges"):
        clip = project(vtx_pos, matrix)
        edges = build_edge_weights(clip, faces, pixels.raster.ids, pixels.raster.depth)
        (color,) = blend_edges([color], edges)
    coverage = F.expand(F.constant(0.0), setting.size, len(setting.cameras))
    if hair is not None:
        with scope("hair"):
            color, coverage = _over(
                color, hair, pixels, lights, environment, matrix, setting, fiber
            )
    assert isinstance(look.skin.width, Variable)
    return Picture(
        color, coverage, look.skin_map, look.skin.width, look.roughness, matrix, pixels.raster
    )


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


def _tear_surface(
    human: Human, vtx_pos: Variable, matrix: Variable, size: tuple[int, int]
) -> tuple[HardRaster, Surface]:
    faces = F.leaf(human.layers["tear"], IVEC3, "tear_faces")
    raster = build_hard_raster(vtx_pos, faces, matrix, size)
    normals = F.leaf(human.normals, VEC3, "tear_normals")
    position, normal = raster.interpolate((vtx_pos, normals), faces)
    away = F.normalize(eye_position(matrix) - position)
    return raster, Surface(position=position, normal=F.normalize(normal), to_eye=away)


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
        fiber or FIBER,
        tangent,
        F.normalize(eye_position(matrix) - position),
        position,
        # A light gives a fibre what arrives per area across it, a surface that by pi.
        [x.light for x in lights],
        [p * shadow_visibility(x.meshes, position) for x, p in zip(lights, through, strict=True)],
        environment.diffuse(outwards) * hidden,
    )
    picture = ribbons.blend(F.where(ribbons.mask, shaded, 0.0), color)
    return picture, F.sum_layers(ribbons.weights)
