"""Punctual lights: directional, point and spot.

In: parameters as numbers or Variables. Out: at any position, the direction to the light and the
radiance that arrives from it. Source: glTF extension KHR_lights_punctual.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, VEC3
from dressi.errors import GraphError
from dressi.render.shading.values import Value, as_number, as_variable, check_number, check_positive

MIN_DISTANCE = 1e-3
"""World units. Nearer to a light than that, the inverse square stays what it is there: finite, and
without gradient, on the light itself."""

MIN_CONE = 1e-3
"""Smallest difference of the cosines of the two cone angles (KHR_lights_punctual)."""


class Light(Protocol):
    """Anything that shines: the models call ``sample`` and nothing else."""

    def sample(self, position: Variable) -> tuple[Variable, Variable]:
        """(to_light VEC3 unit, radiance VEC3 linear) at world positions (VEC3)."""
        ...


@dataclass(frozen=True)
class DirectionalLight:
    """Light from far away.

    direction: VEC3, the way the light travels, world; any length but 0. color: VEC3 linear.
    intensity: FLOAT, lux. Gradient to all. A (1, 1) Variable with layers holds one value per view.
    """

    direction: Value = (0.0, 0.0, -1.0)
    color: Value = 1.0
    intensity: Value = 1.0

    def sample(self, position: Variable) -> tuple[Variable, Variable]:
        """(to_light, radiance), the same everywhere. See Light.sample."""
        return -_unit("DirectionalLight", self.direction), _radiance("DirectionalLight", self)


@dataclass(frozen=True)
class PointLight:
    """Light from a point to all sides.

    position: VEC3, world units. color: VEC3 linear. intensity: FLOAT, candela: radiance at distance
    d is color * intensity / d^2. range: distance at which it fades to 0, by the window (1 - (d /
    range)^4); None: no end. Gradient to all, also through range.

    Raises GraphError for a range that is not positive.
    """

    position: Value = 0.0
    color: Value = 1.0
    intensity: Value = 1.0
    range: Value | None = None

    def __post_init__(self) -> None:
        check_positive("PointLight: range", self.range)

    def sample(self, position: Variable) -> tuple[Variable, Variable]:
        """(to_light, radiance). On the light itself to_light is 0, so nothing is lit. See
        Light.sample."""
        to_light, falloff = _falloff("PointLight", self.position, self.range, position)
        return to_light, _radiance("PointLight", self) * falloff


@dataclass(frozen=True)
class SpotLight:
    """A point light that shines into a cone.

    position, color, intensity, range: see PointLight. direction: VEC3, the axis of the cone, the
    way the light travels. inner_cone_angle, outer_cone_angle: FLOAT, radians from the axis: full
    light inside, none outside; between, the square of a linear ramp of the cosine. Gradient to all.

    Raises GraphError unless 0 <= inner < outer <= pi / 2 where they are numbers.
    """

    position: Value = 0.0
    direction: Value = (0.0, 0.0, -1.0)
    color: Value = 1.0
    intensity: Value = 1.0
    range: Value | None = None
    inner_cone_angle: Value = 0.0
    outer_cone_angle: Value = math.pi / 4

    def __post_init__(self) -> None:
        check_positive("SpotLight: range", self.range)
        check_number("SpotLight: inner_cone_angle", self.inner_cone_angle, 0.0, math.pi / 2)
        check_number("SpotLight: outer_cone_angle", self.outer_cone_angle, 0.0, math.pi / 2)
        inner, outer = as_number(self.inner_cone_angle), as_number(self.outer_cone_angle)
        if inner is not None and outer is not None and not inner < outer:
            raise GraphError(
                f"SpotLight needs inner_cone_angle < outer_cone_angle, got {inner!r}, {outer!r}"
            )

    def sample(self, position: Variable) -> tuple[Variable, Variable]:
        """(to_light, radiance); 0 outside of the cone. See PointLight.sample."""
        to_light, falloff = _falloff("SpotLight", self.position, self.range, position)
        axis = _unit("SpotLight", self.direction)
        cos_inner = F.cos(as_variable("SpotLight: inner_cone_angle", self.inner_cone_angle, FLOAT))
        cos_outer = F.cos(as_variable("SpotLight: outer_cone_angle", self.outer_cone_angle, FLOAT))
        width = F.maximum(cos_inner - cos_outer, MIN_CONE)
        ramp = F.clamp((F.dot(axis, -to_light) - cos_outer) / width, 0.0, 1.0)
        return to_light, _radiance("SpotLight", self) * (falloff * ramp * ramp)


def _unit(what: str, direction: Value) -> Variable:
    return F.normalize(as_variable(f"{what}: direction", direction, VEC3))


def _radiance(what: str, light: DirectionalLight | PointLight | SpotLight) -> Variable:
    color = as_variable(f"{what}: color", light.color, VEC3)
    return color * as_variable(f"{what}: intensity", light.intensity, FLOAT)


def _falloff(
    what: str, source: Value, end: Value | None, position: Variable
) -> tuple[Variable, Variable]:
    """(to_light, FLOAT 1 / d^2 in its window)."""
    away = as_variable(f"{what}: position", source, VEC3) - position
    squared = F.dot(away, away)
    falloff = 1.0 / F.maximum(squared, MIN_DISTANCE**2)
    if end is not None:
        reach = as_variable(f"{what}: range", end, FLOAT)
        # (d / range)^4 from the squares: no root, so its gradient is finite at d = 0.
        share = F.safe_div(squared, reach * reach)
        falloff = falloff * F.clamp(1.0 - share * share, 0.0, 1.0)
    return F.normalize(away), falloff
