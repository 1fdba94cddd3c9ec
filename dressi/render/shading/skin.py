"""Skin: light that enters it, spreads, and leaves beside or behind the place where it came in.

In: a ``Surface``, a ``Skin``, lights, and the picture's positions. Out: VEC3 linear colours. What
is reflected at the surface is two GGX lobes; what enters is an image of irradiance, spread in the
picture by two 1-D passes (``build_diffusion``); what comes through thin parts is added to it from
the thickness that a light's shadow map knows (``transmitted``). Sources: Jimenez et al. 2015,
Separable Subsurface Scattering (kernel); Jimenez et al. 2010, Real-Time Realistic Skin
Translucency; d'Eon and Luebke 2007 (sum of Gaussians).

Units: a kernel is given for radii of -3 to 3, which for skin are millimetres; ``width`` says how
long 3 of them are in the world.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, MAT4, VEC3, VType
from dressi.errors import GraphError
from dressi.render.scene.models import TAPS
from dressi.render.shading.dielectric import Lobes, Split, shade_dielectric
from dressi.render.shading.lights import Light
from dressi.render.shading.models import Shadows
from dressi.render.shading.pbr import Environment
from dressi.render.shading.shadow import ShadowMap, axial, texel_size
from dressi.render.shading.surface import Surface
from dressi.render.shading.values import (
    Value,
    as_variable,
    check_class,
    check_number,
    check_positive,
)

UNITS = 3.0
"""Radii of a kernel that ``width`` is the length of."""

DIFFUSION = ((0.1, 0.0484), (0.118, 0.187), (0.113, 0.567), (0.358, 1.99), (0.078, 7.41))
"""(weight, variance) of the Gaussians that skin spreads red light with; the narrowest of six is
left out, as it is not wider than a pixel (Jimenez et al. 2015)."""

TRANSMISSION = (
    ((0.233, 0.455, 0.649), 0.0064),
    ((0.1, 0.336, 0.344), 0.0484),
    ((0.118, 0.198, 0.0), 0.187),
    ((0.113, 0.007, 0.007), 0.567),
    ((0.358, 0.004, 0.0), 1.99),
    ((0.078, 0.0, 0.0), 7.41),
)
"""(weights of red, green and blue, variance) of the six Gaussians of thickness (Jimenez et al.
2010)."""

WRAP = 0.3
"""How far light that comes through reaches around the side that faces it (Jimenez et al. 2010)."""

NEAR, FAR = 1.0, 2.0
"""Differences of depth, in widths, from which on a tap counts less, and from which on not at all:
it lies on something else."""


@dataclass(frozen=True)
class Skin:
    """What skin is made of; colours and roughness are those of the ``Surface``.

    width: FLOAT > 0, world units: 3 radii of the profile, for human skin 3 mm. strength: VEC3 in
    [0, 1], share of the light that is spread. falloff: VEC3 in [0, 1], how far each colour goes.
    ior: FLOAT >= 1, of the surface. lobe_ratio: FLOAT, roughness of the second lobe by that of the
    first. lobe_mix: FLOAT in [0, 1], share of the second. transmission: FLOAT >= 0, share of the
    light that comes through thin parts, 1 as published. Each may be a Variable, at every pixel too.
    Gradient to all. Raises GraphError for numbers out of range.
    """

    width: Value
    strength: Value = (0.48, 0.41, 0.28)
    falloff: Value = (1.0, 0.37, 0.3)
    ior: Value = 1.4
    lobe_ratio: Value = 0.5
    lobe_mix: Value = 0.15
    transmission: Value = 1.0

    def __post_init__(self) -> None:
        check_positive("Skin: width", self.width)
        check_number("Skin: ior", self.ior, 1.0, 4.0)
        check_number("Skin: lobe_ratio", self.lobe_ratio, 0.0, 4.0)
        check_number("Skin: lobe_mix", self.lobe_mix, 0.0, 1.0)
        check_number("Skin: transmission", self.transmission, 0.0, math.inf)
        for name in vars(self):
            self.of(name)

    def of(self, name: str) -> Variable:
        """One of the numbers."""
        return as_variable(f"Skin: {name}", getattr(self, name), _vtype(name))

    def kernel(self, taps: int = 17) -> Kernel:
        """``diffusion_kernel`` of its strength and falloff."""
        return diffusion_kernel(self.strength, self.falloff, taps)


def _vtype(name: str) -> VType:
    return VEC3 if name in ("strength", "falloff") else FLOAT


@dataclass(frozen=True)
class Kernel:
    """Taps of a 1-D filter. offsets: ascending, in radii. weights: VEC3 each; they sum to 1."""

    offsets: tuple[float, ...]
    weights: tuple[Variable, ...]


def diffusion_profile(radius: float, falloff: Variable) -> Variable:
    """VEC3: how much light comes out at a distance from where it went in, unnormalized.

    radius: number. falloff: VEC3. Gradient to falloff. Source: Jimenez et al. 2015.
    """
    scaled = radius / (0.001 + falloff)
    squared = scaled * scaled
    return F.add_n([F.exp(squared * (-0.5 / v)) * (w / (2.0 * math.pi * v)) for w, v in DIFFUSION])


def diffusion_kernel(
    strength: Value = (0.48, 0.41, 0.28), falloff: Value = (1.0, 0.37, 0.3), taps: int = 17
) -> Kernel:
    """The 1-D kernel of a profile.

    strength: VEC3 in [0, 1]; falloff: VEC3 in [0, 1]; of any size. taps: 11 or 17,
    of which the last lies at 2, or 25, at 3. Offsets grow with the square of their number; each
    weight is the profile times the length that the tap stands for, by their sum, and strength mixes
    that with a single tap. Gradient to both. Raises
    GraphError for another number of taps. Source: Jimenez et al. 2015, appendix.
    """
    if taps not in TAPS:
        raise GraphError(f"diffusion_kernel: taps must be one of {TAPS}, got {taps!r}")
    share = as_variable("diffusion_kernel: strength", strength, VEC3)
    fall = as_variable("diffusion_kernel: falloff", falloff, VEC3)
    reach, half = (3.0 if taps > 20 else 2.0), taps // 2
    right = [reach * (k / half) ** 2 for k in range(half + 1)]
    # What a tap stands for: from the middle to the one before it to the middle to the one after.
    ends = [right[0] - right[1], *right, right[-1]]
    areas = [0.5 * (ends[k + 2] - ends[k]) for k in range(half + 1)]
    masses = [diffusion_profile(o, fall) * a for o, a in zip(right, areas, strict=True)]
    norm = 1.0 / (masses[0] + 2.0 * F.add_n(masses[1:]))
    outer = [m * norm * share for m in masses[1:]]
    middle = 1.0 - share + share * masses[0] * norm
    offsets = (*(-o for o in reversed(right[1:])), *right)
    return Kernel(offsets, (*reversed(outer), middle, *outer))


def build_diffusion(
    light: Variable,
    position: Variable,
    matrix: Variable,
    kernel: Kernel,
    width: Value,
    mask: Variable | None = None,
) -> Variable:
    """VEC3 @ size: an image of light, spread over the surface that it falls on.

    light: VEC3 @ size, irradiance, layers = views. position: VEC3 @ size, world. matrix: MAT4 @
    1x1, world to clip, of the views. kernel: ``diffusion_kernel``; weights @ 1x1 or @ size. width:
    FLOAT > 0, world units. mask: FLOAT @ size, 1 where there is such a surface, else 0; default:
    everywhere. A tap of offset o lies o / 3 of the width beside its pixel, across the view: what is
    seen from twice as far is spread over half as many pixels. It is interpolated between pixels of
    the mask alone; taps off the mask and off the picture, and those whose depth differs by more
    than ``NEAR`` to ``FAR`` widths, are dropped, and the rest sums to 1 again. The result is 0 off
    the mask. Gradient to light, kernel, width, position and matrix, also through the places of the
    taps. Raises GraphError for other types. Differs: published code gives width in halves of it.
    """
    for what, given, vtype in (("light", light, VEC3), ("position", position, VEC3)):
        as_variable(f"build_diffusion: {what}", given, vtype)
    check_class("build_diffusion: kernel", kernel, Kernel)
    check_positive("build_diffusion: width", width)
    as_variable("build_diffusion: matrix", matrix, MAT4)
    size, layers = position.size, max(light.layers, position.layers, matrix.layers)
    inside = F.constant(1.0) if mask is None else as_variable("build_diffusion: mask", mask, FLOAT)
    inside = F.expand(inside, size, layers)
    reach = as_variable("build_diffusion: width", width, FLOAT)
    _, depth, w = axial(matrix, position)
    depth = F.expand(depth, size, layers)
    out = F.expand(light, size, layers)
    for k, axis in ((0, (1.0, 0.0)), (1, (0.0, 1.0))):
        # Paper: width / tan(fovy / 2) / depth / 3, of any matrix, in texture coordinates.
        scale = F.length(F.linalg.row(matrix, k).xyz) * (0.5 / UNITS)
        step = F.where(inside > 0.0, F.safe_div(reach * scale, w), 0.0)
        out = _pass(out, inside, depth, step * axis, kernel, reach)
    return F.where(inside > 0.0, out, 0.0)


def _pass(
    light: Variable,
    mask: Variable,
    depth: Variable,
    step: Variable,
    kernel: Kernel,
    reach: Variable,
) -> Variable:
    """One direction. step: VEC2, texture coordinates for an offset of 1."""
    at = F.pixel_coord(light.size, light.layers) * (1.0 / light.size[0], 1.0 / light.size[1])
    packed, deep = F.vec4(light * mask, mask), depth * mask
    sums, norms = [], []
    for offset, weight in zip(kernel.offsets, kernel.weights, strict=True):
        if offset == 0.0:
            tap = packed
        else:
            place = at + step * offset
            tap = F.texture(packed, place, wrap="border")
            other = F.safe_div(F.texture(deep, place, wrap="border"), tap.w)
            apart = F.abs(other - depth) / reach
            # By one number, before the three of the kernel: fewer images for the backward.
            tap = tap * (1.0 - F.smoothstep(NEAR, FAR, apart))
        sums.append(weight * tap.xyz)
        norms.append(weight * tap.w)
    return F.safe_div(F.add_n(sums), F.add_n(norms))


def thickness(
    shadow: ShadowMap, position: Variable, normal: Variable | None = None, bias: Value = 1.5
) -> Variable:
    """FLOAT >= 0: how much there is between where a light enters and a position, world units.

    shadow: of ``build_shadow_map``. position: VEC3, world. normal: VEC3 unit; with it, the map is
    read ``bias`` of its texels further inwards, so that rims do not read what lies behind them.
    Along the light's axis; 0 off the map and where it shows nothing. Gradient to positions, the
    map's depth and its matrix. Raises GraphError for other types. Source: Jimenez et al. 2010.
    """
    check_class("thickness: shadow", shadow, ShadowMap)
    as_variable("thickness: position", position, VEC3)
    clip, depth, w = axial(shadow.matrix, position)
    if normal is not None:
        inwards = texel_size(shadow, w) * as_variable("thickness: bias", bias, FLOAT)
        clip, _, w = axial(shadow.matrix, position - normal * inwards)
    ndc = clip.xyz * F.safe_div(1.0, w)
    at = ndc.xy * 0.5 + 0.5
    found = F.texture(F.vec2(shadow.depth * shadow.cover, shadow.cover), at, wrap="border")
    front = F.safe_div(found.x, found.y)
    seen = (w > 0.0) * (found.y > 0.0)
    return F.where(seen, F.maximum(depth - front, 0.0), 0.0)


def transmission_profile(depth: Variable) -> Variable:
    """VEC3: share of light that comes through. depth: FLOAT, radii. Gradient to it. Source: Jimenez
    et al. 2010."""
    squared = depth * depth
    return F.add_n([F.constant(c) * F.exp(squared * (-1.0 / v)) for c, v in TRANSMISSION])


def transmitted(normal: Variable, to_light: Variable, thick: Variable, width: Value) -> Variable:
    """VEC3: irradiance that comes through from behind, for light of radiance 1.

    normal, to_light: VEC3 unit. thick: FLOAT, world units (``thickness``). width: FLOAT, world
    units. Gradient to all. Source: Jimenez et al. 2010. Differs: its scale of thickness is 8.25 (1
    - translucency) / width, which for the usual translucency of 0.83 is the same.
    """
    reach = as_variable("transmitted: width", width, FLOAT)
    behind = F.clamp(WRAP - F.dot(normal, to_light), 0.0, 1.0)
    return transmission_profile(F.safe_div(thick * UNITS, reach)) * behind


def shade_skin(
    surface: Surface,
    skin: Skin,
    lights: Sequence[Light] = (),
    environment: Environment | None = None,
    shadows: Shadows | None = None,
    thick: Sequence[Variable | None] | None = None,
) -> Split:
    """Light of skin before it is spread: two lobes, and what goes in, from front and behind.

    surface: with position, normal, to_eye and the roughness of the first lobe. thick: for each
    light FLOAT, world units (``thickness``), or None where nothing comes through. The rest: see
    ``pbr``. The picture is ``Split(build_diffusion(split.diffuse, ...),
    split.specular).color(surface)``. Gradient to all. Raises GraphError as ``shade_dielectric``.
    """
    check_class("shade_skin: skin", skin, Skin)
    position, normal = surface.need("shade_skin", "position", "normal")
    second = skin.of("lobe_mix")
    narrow = surface.roughness * skin.of("lobe_ratio")
    lobes: Lobes = [(surface.roughness, 1.0 - second), (narrow, second)]
    through: list[Variable | None] | None = None
    if thick is not None and len(thick) == len(lights):
        through = [
            None
            if t is None
            else skin.of("transmission")
            * transmitted(normal, light.sample(position)[0], t, skin.width)
            for light, t in zip(lights, thick, strict=True)
        ]
    elif thick is not None:
        raise GraphError(
            f"shade_skin needs a thickness for each of {len(lights)} lights (None for one that "
            f"does not come through), got {len(thick)}"
        )
    return shade_dielectric(surface, skin.ior, lobes, lights, environment, shadows, None, through)
