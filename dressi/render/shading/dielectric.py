"""Wet and living surfaces: what is reflected at a dielectric, apart from what goes in.

In: a ``Surface``, an index of refraction, lobes, lights. Out: ``Split``, of which the diffuse part
can be spread before it meets the albedo. Skin, eyes, teeth and tears are made of it. With one lobe
and an index of 1.5 the sum is ``pbr`` of a surface that is no metal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, VEC3
from dressi.errors import GraphError
from dressi.render.shading.lights import Light
from dressi.render.shading.models import Shadows, lit
from dressi.render.shading.pbr import MIN_ROUGHNESS, Environment, ggx, schlick, smith
from dressi.render.shading.surface import Surface
from dressi.render.shading.values import (
    Value,
    as_number,
    as_variable,
    check_class,
    check_number,
    inclusive_clamp,
)

Lobes = Sequence[tuple[Value, Value]]
"""(roughness FLOAT, weight FLOAT) of each lobe; the weights should sum to 1."""


@dataclass(frozen=True)
class Split:
    """Light in two parts. diffuse: VEC3, what goes in and comes out of a white surface, radiance.
    specular: VEC3, what is reflected at the surface, radiance."""

    diffuse: Variable
    specular: Variable

    def times(self, factor: Variable) -> Split:
        """Both parts by a FLOAT factor, such as an occlusion of lights and environment."""
        return Split(self.diffuse * factor, self.specular * factor)

    def color(self, surface: Surface) -> Variable:
        """VEC3: albedo times the diffuse part, the specular part, emission. Gradient to all."""
        return surface.albedo * self.diffuse + self.specular + surface.emissive


def normal_reflectance(ior: Value) -> Variable:
    """FLOAT: share of light that is reflected straight on, ((n - 1) / (n + 1))^2, of an index of
    refraction (FLOAT >= 1) in air. Gradient to it."""
    n = as_variable("normal_reflectance: ior", ior, FLOAT)
    root = (n - 1.0) / (n + 1.0)
    return root * root


def shade_dielectric(
    surface: Surface,
    ior: Value,
    lobes: Lobes,
    lights: Sequence[Light] = (),
    environment: Environment | None = None,
    shadows: Shadows | None = None,
    inner_normal: Variable | None = None,
    through: Sequence[Variable | None] | None = None,
    light_radius: Value = 0.0,
) -> Split:
    """The two parts of a dielectric's light.

    surface: with position, normal and to_eye; albedo, metallic and roughness are not read. ior:
    FLOAT >= 1. lobes: see Lobes. inner_normal: VEC3 unit, of the diffuse part, where it lies below
    the surface; default: the same normal. through: for each light VEC3, the irradiance that comes
    through from behind for a radiance of 1, in no shadow; None: nothing. light_radius: FLOAT >= 0,
    radians, half the angle that the lights fill in the sky: it widens their highlights (a disc of
    lights turns the half vector by up to half of it; Karis 2013, Real Shading in Unreal Engine 4).
    The rest: see ``pbr``. Gradient to all. Raises GraphError as ``pbr``, for a negative
    light_radius, and for another number of ``through``.
    """
    check_number("shade_dielectric: light_radius", light_radius, 0.0, math.pi)
    wider = 0.5 * as_variable("shade_dielectric: light_radius", light_radius, FLOAT)
    check_class("shade_dielectric: surface", surface, Surface)
    position, normal, to_eye = surface.need("shade_dielectric", "position", "normal", "to_eye")
    inner = normal if inner_normal is None else inner_normal
    if through is not None and len(through) != len(lights):
        raise GraphError(
            f"shade_dielectric needs what comes through for each of {len(lights)} lights (None for "
            f"nothing), got {len(through)}"
        )
    f0 = normal_reflectance(ior)
    roughs = [as_variable("shade_dielectric: roughness", r, FLOAT) for r, _ in lobes]
    shares = [as_variable("shade_dielectric: weight", w, FLOAT) for _, w in lobes]
    n_v = F.abs(F.dot(normal, to_eye))
    diffuse, specular = ([F.constant((0.0, 0.0, 0.0))] for _ in range(2))
    bare = lit("shade_dielectric", lights, None, position)
    for k, (to_light, radiance) in enumerate(lit("shade_dielectric", lights, shadows, position)):
        half = F.normalize(to_light + to_eye)
        n_l = F.maximum(F.dot(normal, to_light), 0.0)
        fresnel = schlick(f0, F.maximum(F.dot(to_eye, half), 0.0))
        mirror = []
        for rough, share in zip(roughs, shares, strict=True):
            narrow = inclusive_clamp(rough, MIN_ROUGHNESS, 1.0)
            alpha = narrow * narrow
            if as_number(light_radius) != 0.0:
                alpha = alpha + wider
            mirror.append(share * ggx(alpha, normal, half) * smith(alpha, n_l, n_v))
        specular.append(radiance * (n_l * fresnel * F.add_n(mirror)))
        below = n_l if inner is normal else F.maximum(F.dot(inner, to_light), 0.0)
        diffuse.append(radiance * (below * (1.0 - fresnel) * (1.0 / math.pi)))
        if through is not None and (back := through[k]) is not None:
            passed = as_variable("shade_dielectric: through", back, VEC3)
            diffuse.append(bare[k][1] * passed * (1.0 / math.pi))
    if environment is not None:
        kept = []
        reflection = F.reflect(-to_eye, normal)
        for rough, share in zip(roughs, shares, strict=True):
            wide = inclusive_clamp(rough, 0.0, 1.0)
            scale_bias = environment.brdf(n_v, wide)
            part = share * (f0 * scale_bias.x + scale_bias.y)
            kept.append(part)
            around = environment.specular(reflection, wide) * part
            specular.append(around * surface.occlusion)
        entering = (1.0 - F.add_n(kept)) * surface.occlusion
        diffuse.append(environment.diffuse(inner) * entering)
    return Split(F.add_n(diffuse), F.add_n(specular))
