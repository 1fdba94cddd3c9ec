"""From linear radiance to a picture: exposure, tone curves, gamma and sRGB.

In: VEC3 linear colours, 0 and more. Out: VEC3 in [0, 1]. The paper applies "tone-map and gamma
correction" to its blended image (A.3, BuildToneMap) and prints no formula; ``tone_map`` is that
step with the curves that people use.
"""

from __future__ import annotations

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT
from dressi.errors import GraphError
from dressi.kinds import CURVES, ENCODINGS, Curve, Encoding
from dressi.render.shading.values import Value, as_variable, check_positive

DARKEST = 1e-4
"""Below it ``gamma`` is a straight line through 0: its slope stays below 160 (for 2.2), the value
moves by less than 1/255."""


def exposure(color: Variable, stops: Value = 0.0) -> Variable:
    """color * 2^stops. stops: FLOAT, e.g. a parameter @ 1x1. Gradient to both."""
    return color * F.exp2(as_variable("exposure: stops", stops, FLOAT))


def reinhard(color: Variable, white: Value | None = None) -> Variable:
    """c / (1 + c), or c (1 + c / white^2) / (1 + c): ``white`` becomes 1, and what is brighter
    more.

    color: FLOAT or VECn >= 0, each component by itself. white: FLOAT > 0. Gradient to both. Raises
    GraphError for a white that is not positive. Source: Reinhard et al. 2002, eq. 3 and 4.
    """
    if white is None:
        return color / (1.0 + color)
    check_positive("reinhard: white", white)
    end = as_variable("reinhard: white", white, FLOAT)
    return color * (1.0 + F.safe_div(color, end * end)) / (1.0 + color)


def aces(color: Variable) -> Variable:
    """The filmic curve of ACES, as a rational fit, at most 1.

    color: FLOAT or VECn >= 0. Gradient to it, 0 where it is clamped. Source: Narkowicz 2015: x
    (2.51 x + 0.03) / (x (2.43 x + 0.59) + 0.14).
    """
    top = color * (2.51 * color + 0.03)
    return F.minimum(top / (color * (2.43 * color + 0.59) + 0.14), 1.0)


def gamma(color: Variable, exponent: Value = 2.2) -> Variable:
    """c^(1 / exponent), and a line through 0 below 1e-4, so that the gradient at 0 is finite.

    color: FLOAT or VECn; negative values stay on the line. exponent: FLOAT > 0. Gradient to both.
    Raises GraphError for an exponent that is not positive.
    """
    check_positive("gamma: exponent", exponent)
    power = 1.0 / as_variable("gamma: exponent", exponent, FLOAT)
    slope = F.pow(F.constant(DARKEST), power) * (1.0 / DARKEST)
    return F.where(color < DARKEST, color * slope, F.pow(F.maximum(color, DARKEST), power))


def tone_map(
    color: Variable, curve: Curve = "aces", encoding: Encoding = "srgb", stops: Value = 0.0
) -> Variable:
    """A picture to look at, or to compare with photos: exposure, curve, encoding.

    color: VEC3 linear. curve: ``none``, ``clamp`` to [0, 1], ``reinhard``, ``aces``. encoding:
    ``none`` (linear), ``srgb`` (F.image.linear_to_srgb), ``gamma`` of 2.2. stops: FLOAT exposure.
    Gradient to color and stops, finite at 0. Raises GraphError for other names.
    """
    for what, value, known in (("curve", curve, CURVES), ("encoding", encoding, ENCODINGS)):
        if value not in known:
            raise GraphError(f"tone_map: {what} must be one of {known}, got {value!r}")
    bright = exposure(color, stops)
    if curve == "clamp":
        bright = F.clamp(bright, 0.0, 1.0)
    elif curve == "reinhard":
        bright = reinhard(bright)
    elif curve == "aces":
        bright = aces(bright)
    if encoding == "srgb":
        return F.image.linear_to_srgb(bright)
    return gamma(bright) if encoding == "gamma" else bright
