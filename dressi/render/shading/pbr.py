"""Metallic-roughness shading as in glTF 2.0, appendix B: GGX, Smith, Schlick.

In: a ``Surface``, punctual lights, an environment. Out: VEC3 linear radiance towards the eye.

Numbers: alpha = roughness^2. For lights, roughness is clamped to MIN_ROUGHNESS: the mirror image of
a point is a point, which no pixel would meet. The environment gets the roughness as it is. What is
divided by a vanishing number is 0, forward and backward: nothing becomes NaN at grazing angles, for
light from straight behind the surface's own view (h = 0), or where there is no normal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from dressi.ad import F, Variable
from dressi.errors import GraphError
from dressi.kinds import SMITHS, Smith
from dressi.render.shading.lights import Light
from dressi.render.shading.models import Shadows, lit
from dressi.render.shading.surface import Surface
from dressi.render.shading.values import check_class, inclusive_clamp

DIELECTRIC = 0.04
"""Reflectance at normal incidence of an index of refraction of 1.5 (glTF 2.0, appendix B)."""

MIN_ROUGHNESS = 0.045
"""Smallest roughness for lights: 1 / alpha^2, by which GGX grows, is 2.4e5 there. Below it the
gradient to roughness is that of the environment alone."""


class Environment(Protocol):
    """Light from all around, for ``pbr``. All vectors are in the world; all colours VEC3 linear."""

    def diffuse(self, normal: Variable) -> Variable:
        """Irradiance of a surface with this unit normal, divided by pi: radiance 1 all around gives
        1."""
        ...

    def specular(self, reflection: Variable, roughness: Variable) -> Variable:
        """Radiance around the unit direction ``reflection`` (from the surface outwards), weighted
        with the lobe of this roughness (FLOAT in [0, 1]): radiance 1 all around gives 1."""
        ...

    def brdf(self, n_dot_v: Variable, roughness: Variable) -> Variable:
        """VEC2 (scale, bias): the share of light reflected is F0 * scale + bias."""
        ...


def ggx(alpha: Variable, normal: Variable, half: Variable) -> Variable:
    """D: density of microfacets that face ``half``, a FLOAT; 0 where half faces away.

    alpha: FLOAT > 0. normal, half: VEC3 unit. With |n x h|^2 for 1 - (n . h)^2, which loses all of
    its digits in float32 where the lobe is narrow. Gradient to all.
    """
    n_h = F.maximum(F.dot(normal, half), 0.0)
    off = F.cross(normal, half)
    a2 = alpha * alpha
    spread = F.dot(off, off) + a2 * n_h * n_h
    return F.where(n_h > 0.0, F.safe_div(a2, math.pi * spread * spread), 0.0)


def smith(alpha: Variable, n_l: Variable, n_v: Variable, form: Smith = "correlated") -> Variable:
    """V = G / (4 n.l n.v): how much of the microfacets is seen and lit, a FLOAT.

    alpha, n_l, n_v: FLOAT, cosines in [0, 1]. form: ``correlated`` in height, or ``separable``: the
    product of two. 0 where both cosines are 0 and it is 0 / 0. Gradient to all. Source: Heitz 2014.
    """
    a2 = alpha * alpha
    if form == "separable":
        return 1.0 / ((n_l + _root(a2, n_l)) * (n_v + _root(a2, n_v)))
    return F.safe_div(0.5, n_l * _root(a2, n_v) + n_v * _root(a2, n_l))


def _root(a2: Variable, cosine: Variable) -> Variable:
    return F.sqrt(a2 + (1.0 - a2) * cosine * cosine)


def schlick(f0: Variable, v_h: Variable) -> Variable:
    """F: share of light that a mirror reflects, f0 + (1 - f0) (1 - v.h)^5. f0: VEC3 or FLOAT, at
    normal incidence. v_h: FLOAT in [0, 1]. Gradient to both. Source: Schlick 1994."""
    x = 1.0 - v_h
    x2 = x * x
    return f0 + (1.0 - f0) * (x2 * x2 * x)


def pbr(
    surface: Surface,
    lights: Sequence[Light] = (),
    environment: Environment | None = None,
    shadows: Shadows | None = None,
    form: Smith = "correlated",
) -> Variable:
    """VEC3 linear radiance towards the eye: of lights, environment and emission.

    surface: with position, normal and to_eye; a normal that faces away from the eye counts by |n .
    v|, as in the appendix (``two_sided`` turns it). environment: see Environment; occlusion darkens
    only it. shadows: see Shadows. form: of Smith's term: ``correlated`` (Khronos's own renderer) or
    ``separable`` (the formula as the appendix prints it); they differ by up to some tenths at
    grazing angles. A light adds radiance * n.l * ((1 - F) albedo (1 - metallic) / pi + F D V); the
    environment (1 - E) albedo (1 - metallic) diffuse + E specular with E = F0 scale + bias. What is
    scattered more than once is lost. Under lights a white dielectric gains energy, up to 0.3 at
    grazing angles: the appendix weighs its diffuse part with the microfacet's 1 - F. Gradient to
    everything. Raises GraphError for a surface without one of the three vectors, wrong shadows, and
    another form.
    """
    if form not in SMITHS:
        raise GraphError(f"pbr: form must be one of {SMITHS}, got {form!r}")
    check_class("pbr: surface", surface, Surface)
    position, normal, to_eye = surface.need("pbr", "position", "normal", "to_eye")
    f0 = F.mix(DIELECTRIC, surface.albedo, surface.metallic)
    base = surface.albedo * (1.0 - surface.metallic)
    rough = inclusive_clamp(surface.roughness, MIN_ROUGHNESS, 1.0)
    alpha = rough * rough
    n_v = F.abs(F.dot(normal, to_eye))
    terms = [surface.emissive]
    for to_light, radiance in lit("pbr", lights, shadows, position):
        half = F.normalize(to_light + to_eye)
        n_l = F.maximum(F.dot(normal, to_light), 0.0)
        fresnel = schlick(f0, F.maximum(F.dot(to_eye, half), 0.0))
        mirror = ggx(alpha, normal, half) * smith(alpha, n_l, n_v, form)
        diffuse = (1.0 - fresnel) * base * (1.0 / math.pi)
        terms.append(radiance * n_l * (diffuse + fresnel * mirror))
    if environment is not None:
        roughness = inclusive_clamp(surface.roughness, 0.0, 1.0)
        reflection = F.reflect(-to_eye, normal)
        scale_bias = environment.brdf(n_v, roughness)
        share = f0 * scale_bias.x + scale_bias.y
        around = (1.0 - share) * base * environment.diffuse(normal)
        around = around + share * environment.specular(reflection, roughness)
        terms.append(around * surface.occlusion)
    return F.add_n(terms)
