"""How the digital human's meshes reflect light: skin, eyes, teeth, gums and tears.

In: what the meshes show per pixel, lights with their shadows, an environment. Out: VEC3 linear
colours. Skin, eyes and teeth are one dielectric whose numbers are looked up by part, so shading
costs once what one model costs; what differs (the iris behind the cornea, light through thin skin)
is masked by part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, VEC3
from dressi.apps.experiments.human_parts import LIMBUS_UV, PARTS, Floats, Human
from dressi.render.ibl import Environment
from dressi.render.raster import HardRaster
from dressi.render.shading import (
    DirectionalLight,
    OpacityMap,
    ShadowMap,
    Surface,
    shadow_visibility,
    strand_transmittance,
)
from dressi.render.shading.dielectric import shade_dielectric
from dressi.render.shading.eye import Eye, iris_offset, limbus_mask, limbus_tint, shade_tears
from dressi.render.shading.skin import (
    Skin,
    build_diffusion,
    thickness,
    transmitted,
)
from dressi.render.shading.teeth import IOR, mouth_occlusion

DENSITY = 1.0
"""What a strand takes of the light: dark hair lets none through."""

NUMBERS: dict[str, tuple[float, float, float]] = {
    "skin": (1.4, 0.48, 0.12),
    "eye": (1.376, 0.06, 0.0),
    "teeth": (IOR, 0.25, 0.0),
    "gums": (1.4, 0.28, 0.0),
}
"""Index of refraction, roughness, and share of the second, sharper lobe, of each part."""

COLORS = {"teeth": (0.88, 0.82, 0.74), "gums": (0.60, 0.23, 0.21)}
"""Linear albedo of parts without a texture."""

LIGHT_RADIUS = 0.1
"""Radians, half the angle of the lights in the sky: lamps of 60 cm, as portraits have them, from
three metres. A light without size is a highlight in the eye that is smaller than a pixel."""

IRIS_PLANE = 0.14
"""From the middle of the eyeball to the plane of its iris, in units of 10 cm: ICT's eyes are a
quarter larger than people's."""


@dataclass(frozen=True, eq=False)
class Shadowed:
    """A light with what hides it. strands: None where there are none."""

    light: DirectionalLight
    strands: OpacityMap | None
    meshes: ShadowMap

    def passes(self, position: Variable) -> Variable:
        """FLOAT: share of light that comes through the strands."""
        if self.strands is None:
            return F.expand(F.constant(1.0), position.size, position.layers)
        return strand_transmittance(self.strands, position, DENSITY)


@dataclass(frozen=True, eq=False)
class Pixels:
    """What the meshes show per pixel. part: INT, row of PARTS; openness: FLOAT (see ``Human``); uv:
    VEC2; the rest as in ``Surface``."""

    raster: HardRaster
    position: Variable
    normal: Variable
    openness: Variable
    uv: Variable
    part: Variable
    to_eye: Variable

    def of(self, *names: str) -> Variable:
        """FLOAT mask of parts."""
        flags = np.isin(list(PARTS), names).astype(np.float32)[:, None]
        return F.lookup(F.leaf(flags, FLOAT, "flags"), self.part) * self.raster.mask

    def number(self, column: int, name: str) -> Variable:
        """FLOAT: one of NUMBERS by part."""
        table = np.array([[NUMBERS[part][column]] for part in PARTS], np.float32)
        return F.lookup(F.leaf(table, FLOAT, name), self.part)


@dataclass(frozen=True, eq=False)
class Look:
    """What skin and eyes look like. skin_map, eye_map: VEC3 linear. skin: its numbers. roughness:
    FLOAT @ 1x1, of the skin's first lobe. taps: of the spread of light in skin."""

    skin_map: Variable
    eye_map: Variable
    skin: Skin
    roughness: Variable
    taps: int = 17


def shade_meshes(
    human: Human,
    pixels: Pixels,
    lights: Sequence[Shadowed],
    environment: Environment,
    look: Look,
    matrix: Variable,
) -> tuple[Variable, list[Variable]]:
    """(VEC3 linear colour of the opaque meshes, FLOAT visibility of each light). Gradient to the
    leaves of the look."""
    eye = Eye(iris_radius=LIMBUS_UV, iris_depth=0.036, limbus_width=0.22)
    axis, iris, uv = _irises(human, pixels, eye)
    is_skin, is_eye = pixels.of("skin"), pixels.of("eye")
    albedo = _albedo(pixels, uv, look, eye, iris, is_skin, is_eye)
    through = [light.passes(pixels.position) for light in lights]
    shadows, back = [], []
    for light, passes in zip(lights, through, strict=True):
        to_light, _ = light.light.sample(pixels.position)
        visible = shadow_visibility(light.meshes, pixels.position, pixels.normal, to_light)
        shadows.append(passes * visible)
        thick = thickness(light.meshes, pixels.position, pixels.normal)
        passed = transmitted(pixels.normal, to_light, thick, look.skin.width)
        back.append(passed * (look.skin.transmission * is_skin * passes))
    free = _occlusion(human, pixels, through)
    surface = Surface(albedo, pixels.position, pixels.normal, pixels.to_eye, occlusion=free)
    rough = F.where(is_skin, look.roughness, pixels.number(1, "roughness"))
    mix = pixels.number(2, "lobe_mix")
    inner = F.normalize(F.mix(pixels.normal, axis, iris))
    split = shade_dielectric(
        surface,
        pixels.number(0, "ior"),
        [(rough, 1.0 - mix), (rough * look.skin.lobe_ratio, mix)],
        [light.light for light in lights],
        environment,
        shadows,
        inner_normal=inner,
        through=back,
        light_radius=LIGHT_RADIUS,
    )
    # What is hidden from the sky sees surfaces, again and again: a geometric series. Without it the
    # inside of the mouth would be black. Skin sees its own colour, teeth see that of gums and
    # tongue. Light of the lights falls on a part of them only, and is left alone.
    in_mouth = pixels.of("teeth", "gums")
    hidden = F.where(in_mouth, F.constant(COLORS["gums"]), albedo) * (1.0 - free)
    bounced = environment.diffuse(inner) * free * (hidden / (1.0 - hidden))
    entering = split.diffuse + bounced
    spread = build_diffusion(
        entering,
        pixels.position,
        matrix,
        look.skin.kernel(look.taps),
        look.skin.width,
        # Teeth and gums are spread as skin; what lies at another depth does not mix.
        pixels.of("skin", "teeth", "gums"),
    )
    diffuse = F.where(is_eye, entering, spread)
    inside = F.where(in_mouth, free, 1.0)
    return albedo * diffuse + split.specular * inside, shadows


def _irises(human: Human, pixels: Pixels, eye: Eye) -> tuple[Variable, Variable, Variable]:
    """(VEC3 the way that the eye at a pixel looks, FLOAT mask of its iris, VEC2 where its texture
    is read: behind the cornea)."""
    is_left = pixels.position.x > 0.0

    def of_eyes(both: list[Floats]) -> Variable:
        left, right = (F.constant(tuple(x.tolist())) for x in both)
        return F.where(is_left, left, right)

    center, axis = (of_eyes([getattr(e, n) for e in human.eyes]) for n in ("center", "axis"))
    du, dv = (of_eyes([e.uv_slopes[k] for e in human.eyes]) for k in (0, 1))
    iris = limbus_mask(pixels.uv, eye) * pixels.of("eye")
    deep = F.dot(pixels.position - center, axis) - IRIS_PLANE
    offset = iris_offset(pixels.normal, pixels.to_eye, axis, deep, eye.ior) * iris
    uv = pixels.uv + F.vec2(F.dot(du, offset), F.dot(dv, offset))
    return axis, iris, uv


def _albedo(
    pixels: Pixels,
    uv: Variable,
    look: Look,
    eye: Eye,
    iris: Variable,
    is_skin: Variable,
    is_eye: Variable,
) -> Variable:
    colors = np.array([COLORS.get(name, (0.0, 0.0, 0.0)) for name in PARTS], np.float32)
    plain = F.lookup(F.leaf(colors, VEC3, "part_colors"), pixels.part)
    skin = F.texture(look.skin_map, pixels.uv, wrap="clamp")
    ball = F.texture(look.eye_map, uv, wrap="clamp") * limbus_tint(iris, eye)
    return plain + skin * is_skin + ball * is_eye


def _occlusion(human: Human, pixels: Pixels, through: Sequence[Variable]) -> Variable:
    """FLOAT: how much of the light from all around arrives."""
    middle, opening = human.mouth
    inside = mouth_occlusion(pixels.position, opening, tuple(middle.tolist()), (0.0, -0.15, 1.0))
    free = F.where(pixels.of("teeth", "gums"), inside, pixels.openness)
    # Light from everywhere is hidden by what hides the lights, on average.
    return free * F.sqrt(F.add_n(list(through)) * (1.0 / len(through)))


def over_tears(
    color: Variable,
    raster: HardRaster,
    tears: HardRaster,
    surface: Surface,
    lights: Sequence[Shadowed],
    environment: Environment,
    shadows: Sequence[Variable],
) -> Variable:
    """VEC3: the picture with the line of tears over it, which only reflects. tears: their own
    rasterization; shadows: of the pixels behind, which are next to them."""
    wet, alpha = shade_tears(
        surface,
        lights=[x.light for x in lights],
        environment=environment,
        shadows=shadows,
        light_radius=LIGHT_RADIUS,
    )
    shown = tears.mask * F.to_float(F.compare("lte", tears.depth, raster.depth))
    return F.mix(color, wet, alpha * shown)
