"""Hair: what a fibre of keratin with melanin scatters, from five numbers.

In: a ``HairFiber``, per pixel a tangent and directions. Out: VEC3 linear colours. Reflection (p =
0), two refractions (1), one reflection inside (2), and the rest as one even lobe. A fibre that
absorbs nothing gives back what it gets, for every offset and tilt. The model is not reciprocal: the
tilt of the scales is on the side of the eye. Source: Marschner et al. 2003, Light Scattering from
Human Hair Fibers; Chiang et al. 2016, A Practical and Controllable Hair and Fur Model; paper, 6.1.

Angles: theta is the inclination to the plane across the fibre, phi the azimuth in it, counted
counter-clockwise around the tangent, h in [-1, 1] where across the fibre the eye looks; o is
towards the eye, i towards the light.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, VEC3
from dressi.errors import GraphError
from dressi.render.shading.lights import Light
from dressi.render.shading.models import Shadows, lit
from dressi.render.shading.values import (
    Value,
    as_variable,
    check_class,
    check_number,
    inclusive_clamp,
)

EUMELANIN = (0.506, 0.841, 1.653)
PHEOMELANIN = (0.343, 0.733, 1.924)
"""Absorption of red, green and blue per radius of the fibre, of dark and of red melanin (Chiang et
al. 2016; the constants of MaterialX)."""

MIN_TRANSPARENCY = 1e-4
"""1 - melanin is taken as no less: the concentration is its logarithm."""

MIN_ROUGHNESS = 0.02
"""Smaller roughnesses are taken as this, with gradient 0: lobes half a degree wide, below which a
pixel meets them by chance."""

MAX_TILT_DEG = 20.0
"""Scales of hair lean by 2 to 4 degrees."""

MAX_OFFSET = 1.0 - 1e-4
"""Nearer to the rim of the fibre, sqrt(1 - h^2) has no gradient that float32 can hold."""

TINY = 1e-6
"""Least cosine, and least squared one, that is divided by."""

_NODES, _WEIGHTS = (a[4:] for a in np.polynomial.legendre.leggauss(8))
"""Gauss and Legendre's nodes over h that are positive; the others mirror them."""


@dataclass(frozen=True)
class HairFiber:
    """What all strands are made of.

    melanin: FLOAT in [0, 1], from white to black. redness: FLOAT in [0, 1], share of red melanin.
    roughness: FLOAT in [0, 1], along the fibre ("radial" in the paper): length of the highlight.
    azimuthal_roughness: FLOAT in [0, 1], around the fibre. ior: FLOAT in [1, 2], index of
    refraction. tilt_deg: FLOAT, of the scales, degrees. Gradient to all, also on the ends of their
    ranges; beyond them Variables are clamped. Raises GraphError for numbers out of range.
    """

    melanin: Value = 0.3
    redness: Value = 0.2
    roughness: Value = 0.3
    azimuthal_roughness: Value = 0.3
    ior: Value = 1.55
    tilt_deg: Value = 2.0

    def __post_init__(self) -> None:
        for name in ("melanin", "redness", "roughness", "azimuthal_roughness"):
            check_number(f"HairFiber: {name}", getattr(self, name), 0.0, 1.0)
        check_number("HairFiber: ior", self.ior, 1.0, 2.0)
        check_number("HairFiber: tilt_deg", self.tilt_deg, -MAX_TILT_DEG, MAX_TILT_DEG)
        for name in vars(self):
            as_variable(f"HairFiber: {name}", getattr(self, name), FLOAT)

    def number(self, name: str, low: float, high: float, like: Variable) -> Variable:
        """FLOAT @ the pixels of ``like``: one of the numbers, clamped. Gradient as
        ``inclusive_clamp``."""
        value = as_variable(name, getattr(self, name), FLOAT)
        # At every pixel: what is computed from a number there has its gradient summed there, in the
        # same shader, and only the five sums over pixels remain.
        if value.size == (1, 1):
            value = F.expand(value, like.size, like.layers)
        return inclusive_clamp(value, low, high)

    def absorption(self, like: Variable) -> Variable:
        """VEC3: absorption per radius of the fibre. Gradient to melanin and redness."""
        melanin, redness = (self.number(k, 0.0, 1.0, like) for k in ("melanin", "redness"))
        return melanin_absorption(melanin, redness)


@dataclass(frozen=True)
class FiberAngles:
    """FLOAT images: sines of the inclinations towards eye and light, azimuth of the light from that
    of the eye, radians."""

    sin_o: Variable
    sin_i: Variable
    phi: Variable


def fiber_angles(tangent: Variable, to_eye: Variable, to_light: Variable) -> FiberAngles:
    """Return the angles of directions about a fibre.

    tangent, to_eye, to_light: VEC3 unit. Gradient to all. Raises GraphError for other types.
    """
    t, o, i = (
        as_variable(f"fiber_angles: {name}", given, VEC3)
        for name, given in (("tangent", tangent), ("to_eye", to_eye), ("to_light", to_light))
    )
    # Rounding makes the sine of a unit vector a little more than 1.
    sin_o, sin_i = (F.clamp(F.dot(t, w), -1.0, 1.0) for w in (o, i))
    phi = F.atan2(F.dot(t, F.cross(o, i)), F.dot(o, i) - sin_o * sin_i)
    return FiberAngles(sin_o, sin_i, phi)


def melanin_absorption(melanin: Variable, redness: Variable) -> Variable:
    """VEC3: absorption per radius. melanin, redness: FLOAT in [0, 1]. Gradient to both."""
    amount = -F.log(F.maximum(1.0 - melanin, MIN_TRANSPARENCY))
    return amount * F.mix(F.constant(EUMELANIN), F.constant(PHEOMELANIN), redness)


def longitudinal(v: Variable, angles: FiberAngles, tilt: Variable) -> Variable:
    """Mp: density along the fibre, whose integral with cos theta_i over theta_i is 1.

    v: FLOAT variance, or VEC4 of several lobes. tilt: of the same type, added to theta_o, radians.
    Gradient to all.
    """
    cos_o, cos_i = _cosine(angles.sin_o), _cosine(angles.sin_i)
    c, s = F.cos(tilt), F.sin(tilt)
    sin_o, cos_o = angles.sin_o * c + cos_o * s, F.abs(cos_o * c - angles.sin_o * s)
    # x - y - 1 / v as one square: the difference of numbers of the size of 1 / v would keep few
    # digits.
    across, along = cos_i - cos_o, angles.sin_i + sin_o
    inverse = 1.0 / v
    exponent = (across * across + along * along) * (-0.5 * inverse)
    return (
        bessel_i0e(cos_i * cos_o * inverse)
        * F.exp(exponent)
        * inverse
        / (-1.0 * F.expm1(-2.0 * inverse))
    )


def azimuthal(s: Variable, x: Variable) -> Variable:
    """FLOAT or VECn Np: the logistic density of scale s at an angle x, trimmed to one turn, over
    which its integral is 1. s: FLOAT. x: radians, of any turn. Gradient to both."""
    x = x - F.round(x * (0.5 / math.pi)) * (2.0 * math.pi)
    at = x / s
    return F.sigmoid(at) * F.sigmoid(-at) / (s * F.tanh((0.5 * math.pi) / s))


_SMALL = (1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.0360768, 0.0045813)
_LARGE = (
    0.39894228,
    0.01328592,
    0.00225319,
    -0.00157565,
    0.00916281,
    -0.02057706,
    0.02635537,
    -0.01647633,
    0.00392377,
)


def bessel_i0e(x: Variable) -> Variable:
    """FLOAT: exp(-x) I0(x) for x >= 0, the modified Bessel function. Gradient to x. Source:
    Abramowitz and Stegun, 9.8.1 and 9.8.2 (relative error 5e-7, no jump where they meet)."""
    near, far = F.minimum(x, 3.75), F.maximum(x, 3.75)
    t = near * (1.0 / 3.75)
    small = _polynomial(_SMALL, t * t) * F.exp(-near)
    large = _polynomial(_LARGE, 3.75 / far) * F.inversesqrt(far)
    return F.where(x < 3.75, small, large)


def _polynomial(factors: Sequence[float], x: Variable) -> Variable:
    value = F.constant(factors[-1])
    for factor in reversed(factors[:-1]):
        value = value * x + factor
    return value


def _cosine(sine: Variable) -> Variable:
    return F.sqrt(F.maximum(1.0 - sine * sine, 0.0))


def fresnel(cosine: Variable, ior: Variable) -> Variable:
    """FLOAT or VECn: unpolarized reflectance of a dielectric that is entered. cosine: of the angle
    of incidence, in [0, 1]. ior: FLOAT >= 1. Gradient to both."""
    inside = F.sqrt(F.maximum(1.0 - (1.0 - cosine * cosine) / (ior * ior), TINY))
    parallel = (ior * cosine - inside) / (ior * cosine + inside)
    across = (cosine - ior * inside) / (cosine + ior * inside)
    return 0.5 * (parallel * parallel + across * across)


@dataclass(frozen=True)
class _Paths:
    """Where light goes that meets the fibre at h. gamma_o, gamma_t: radians, outside and inside.
    shares: of each channel, the attenuations A0 to A3. FLOAT, or VEC4 for four h at once."""

    gamma_o: Variable
    gamma_t: Variable
    shares: tuple[tuple[Variable, ...], ...]


def _paths(absorption: Variable, ior: Variable, sin_o: Variable, h: Variable) -> _Paths:
    cos_o = _cosine(sin_o)
    # h / eta' without a division by cos theta_o.
    sin_t = h * (cos_o * F.inversesqrt(F.maximum(ior * ior - sin_o * sin_o, TINY)))
    sin_t = F.clamp(sin_t, -MAX_OFFSET, MAX_OFFSET)
    slope = F.sqrt(F.maximum(1.0 - sin_o * sin_o / (ior * ior), TINY))
    length = 2.0 * F.sqrt(1.0 - sin_t * sin_t) / slope
    mirror = fresnel(cos_o * F.sqrt(1.0 - h * h), ior)
    enters = (1.0 - mirror) * (1.0 - mirror)
    shares = []
    for channel in (absorption.x, absorption.y, absorption.z):
        through = F.exp(-channel * length)
        once = enters * through
        twice = once * through * mirror
        rest = twice * through * mirror / F.maximum(1.0 - through * mirror, TINY)
        shares.append((mirror, once, twice, rest))
    return _Paths(F.asin(h), F.asin(sin_t), tuple(shares))


def _offsets(h: Variable | None) -> tuple[Variable, Variable | None]:
    """(h, weights): what is given, or the positive nodes of the mean over h."""
    if h is None:
        return F.constant(_NODES.tolist()), F.constant(_WEIGHTS.tolist())
    given = as_variable("hair: h", h, FLOAT)
    return F.clamp(given, -MAX_OFFSET, MAX_OFFSET), None


def _mean(value: Variable, weights: Variable | None) -> Variable:
    return value if weights is None else F.dot(value, weights)


_TILTS = (-2.0, 1.0, 4.0, 0.0)
_VARIANCES = (1.0, 0.25, 4.0, 4.0)
"""Of p = 0, 1, 2 and of the rest: tilt by that of the scales, variance by v0."""


def scatter(
    angles: FiberAngles,
    absorption: Variable,
    roughness: Variable,
    azimuthal_roughness: Variable,
    ior: Variable,
    tilt: Variable,
    h: Variable | None = None,
) -> Variable:
    """VEC3: the scattering of a fibre times the cosine of theta_i.

    absorption: VEC3, per radius. roughness, azimuthal_roughness: FLOAT in (0, 1]. ior: FLOAT >= 1.
    tilt: FLOAT, radians. h: FLOAT in [-1, 1], the offset of the eye's ray along cross(to_eye,
    tangent) by the radius; None: the mean over all offsets, by 8 nodes, which is what a strand
    thinner than a pixel shows. Gradient to all.
    """
    offset, weights = _offsets(h)
    paths = _paths(absorption, ior, angles.sin_o, offset)
    v = longitudinal_variance(roughness) * F.constant(_VARIANCES)
    along = longitudinal(v, angles, tilt * F.constant(_TILTS))
    scale = azimuthal_scale(azimuthal_roughness)
    around = []
    for p in range(3):
        turn = 2.0 * p * paths.gamma_t - 2.0 * paths.gamma_o
        n = azimuthal(scale, angles.phi - (turn + p * math.pi))
        if weights is not None:  # the mirrored offsets
            n = 0.5 * (n + azimuthal(scale, angles.phi + (turn - p * math.pi)))
        around.append(n)
    around.append(F.constant(0.5 / math.pi))
    color = []
    for shares in paths.shares:
        lobes = (_mean(a * n, weights) for a, n in zip(shares, around, strict=True))
        color.append(F.dot(along, F.vec4(*lobes)))
    return F.vec3(*color)


def reflectance(
    sin_o: Variable, absorption: Variable, ior: Variable, h: Variable | None = None
) -> Variable:
    """VEC3: all that a fibre sends to the eye under an even light of 1 from everywhere; 1 where
    nothing is absorbed. Arguments and gradients as of ``scatter``."""
    offset, weights = _offsets(h)
    paths = _paths(absorption, ior, sin_o, offset)
    return F.vec3(*(_mean(F.add_n(list(shares)), weights) for shares in paths.shares))


def longitudinal_variance(roughness: Variable) -> Variable:
    """FLOAT variance of theta of p = 0. Gradient to roughness."""
    b = roughness
    root = 0.726 * b + 0.812 * b * b + 3.7 * _power(b, 20)
    return root * root


def azimuthal_scale(roughness: Variable) -> Variable:
    """FLOAT scale of the logistic lobe around the fibre. Gradient to roughness."""
    b = roughness
    return math.sqrt(math.pi / 8.0) * (0.265 * b + 1.194 * b * b + 5.372 * _power(b, 22))


def _power(x: Variable, n: int) -> Variable:
    """x^n by squares: positive and negative x alike, and a gradient at 0."""
    if n == 1:
        return x
    half = _power(x, n // 2)
    return half * half * x if n % 2 else half * half


def shade_hair(
    fiber: HairFiber,
    tangent: Variable,
    to_eye: Variable,
    position: Variable,
    lights: Sequence[Light] = (),
    shadows: Shadows | None = None,
    ambient: Value = 0.0,
    h: Variable | None = None,
) -> Variable:
    """VEC3: radiance of strands towards the eye.

    tangent, to_eye: VEC3 unit. position: VEC3, world units. lights, shadows: as in the other
    models; a light of intensity 1 gives the fibre 1 per area across its direction. ambient: VEC3,
    radiance that is the same from everywhere. h: see ``scatter``. Gradient to all, and to the
    numbers of the fibre. Raises GraphError for other types, wrong shadows, and no light at all.
    Source: paper, 6.1.
    """
    check_class("shade_hair: fiber", fiber, HairFiber)
    eye_sine = F.clamp(F.dot(tangent, to_eye), -1.0, 1.0)
    absorption, ior = fiber.absorption(eye_sine), fiber.number("ior", 1.0, 2.0, eye_sine)
    rough = fiber.number("roughness", MIN_ROUGHNESS, 1.0, eye_sine)
    around = fiber.number("azimuthal_roughness", MIN_ROUGHNESS, 1.0, eye_sine)
    tilt = F.radians(as_variable("shade_hair: tilt_deg", fiber.tilt_deg, FLOAT))
    terms = []
    for to_light, radiance in lit("shade_hair", lights, shadows, position):
        angles = fiber_angles(tangent, to_eye, to_light)
        terms.append(radiance * scatter(angles, absorption, rough, around, ior, tilt, h))
    if isinstance(ambient, Variable) or np.any(np.asarray(ambient)):
        light = as_variable("shade_hair: ambient", ambient, VEC3)
        terms.append(light * reflectance(eye_sine, absorption, ior, h))
    if not terms:
        raise GraphError("shade_hair needs a light, or an ambient one")
    return F.add_n(terms)
