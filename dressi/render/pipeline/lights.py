"""Light of a scene as leaves: punctual lights, environment, ambient, headlight.

In: a ``Scene``. Out: ``LightLeaves``, which makes the lights and the environment that ``pbr``
reads. A scene with neither lights nor an environment is lit by a headlight (directional, along each
camera's axis) of ``HEADLIGHT`` lux and by ambient light of radiance ``AMBIENT``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, VEC3
from dressi.errors import GraphError
from dressi.render.camera.far import relative
from dressi.render.ibl import brdf_table, build_environment, read_brdf
from dressi.render.io.images import with_colors
from dressi.render.pipeline.frame import Frame
from dressi.render.pipeline.parameters import Parameter, ParameterTable, log_of, unique_names
from dressi.render.pipeline.tables import Geometry
from dressi.render.scene import PlacedLight, Scene
from dressi.render.scene import lights as placed_lights
from dressi.render.shading import (
    DirectionalLight,
    Light,
    PointLight,
    ShadowMap,
    SpotLight,
    build_shadow_map,
    directional_matrix,
    shadow_visibility,
    spot_matrix,
)
from dressi.render.shading.pbr import Environment

HEADLIGHT = 2.0
AMBIENT = 0.4
WORLD = np.zeros(3)


@dataclass(frozen=True)
class Ambient:
    """The same radiance from everywhere, as an environment. radiance: VEC3 @ 1x1."""

    radiance: Variable

    def diffuse(self, normal: Variable) -> Variable:
        """VEC3: the radiance."""
        return self.radiance

    def specular(self, reflection: Variable, roughness: Variable) -> Variable:
        """VEC3: the radiance."""
        return self.radiance

    def brdf(self, n_dot_v: Variable, roughness: Variable) -> Variable:
        """VEC2 (scale, bias). See ``Environment``."""
        return read_brdf(brdf_table(), n_dot_v, roughness)


@dataclass(eq=False)
class LightLeaves:
    """The lights of a scene. placed: as the scene has them. color, log_intensity: leaves by row of
    ``Scene.lights``; position, direction: by node. environment, ambient: leaf or None."""

    placed: list[PlacedLight]
    rows: list[int]
    color: dict[int, Variable]
    log_intensity: dict[int, Variable]
    position: dict[int, Variable]
    direction: dict[int, Variable]
    environment: Variable | None
    ambient: Variable | None
    headlight: float

    def build(self, forward: Variable) -> list[Light]:
        """The lights. forward: VEC3 @ 1x1, layers = views, the way the cameras look."""
        made: list[Light] = []
        for p, row in zip(self.placed, self.rows, strict=True):
            color, power = self.color[row], F.exp(self.log_intensity[row])
            kind, end = p.light.kind, p.light.range
            if kind == "directional":
                made.append(DirectionalLight(self.direction[p.node], color, power))
            elif kind == "point":
                made.append(PointLight(self.position[p.node], color, power, end))
            else:
                outer = min(p.light.outer_cone_rad, math.pi / 2)
                inner = max(min(p.light.inner_cone_rad, outer - 1e-3), 0.0)
                at, axis = self.position[p.node], self.direction[p.node]
                made.append(SpotLight(at, axis, color, power, end, inner, outer))
        if self.headlight > 0.0:
            made.append(DirectionalLight(forward, 1.0, self.headlight))
        return made

    def surroundings(self) -> Environment | None:
        """What shines from all around, or None."""
        if self.environment is not None:
            return build_environment(self.environment)
        return None if self.ambient is None else Ambient(self.ambient)


def build_lights(
    scene: Scene,
    table: ParameterTable,
    ambient: float | Sequence[float] | None = None,
    headlight: float | None = None,
    frame: Frame | None = None,
) -> LightLeaves:
    """Leaves of the lights; adds them to the parameters.

    ambient: radiance from all around where there is no environment; headlight: lux. None: 0 where
    the scene has lights or an environment, else ``AMBIENT`` and ``HEADLIGHT``. frame: where the
    positions of lights are kept; None: the world, with 1 as the unit of their learning rates.
    Raises GraphError for negative numbers.
    """
    placed = placed_lights(scene)
    dark = not placed and scene.environment is None
    around = np.full(3, 0.0) + (AMBIENT * dark if ambient is None else ambient)
    power = float(HEADLIGHT * dark if headlight is None else headlight)
    if not (np.isfinite(around).all() and around.min() >= 0.0 and 0.0 <= power < math.inf):
        raise GraphError(f"ambient and headlight must be >= 0, got {ambient!r}, {headlight!r}")
    nodes = [p.node for p in placed]
    rows = [scene.nodes[n].light for n in nodes]
    numbers = [r for r in rows if r is not None]
    used = sorted(set(numbers))
    named = unique_names([scene.lights[r].name for r in used], "light")
    names = dict(zip(used, named, strict=True))
    places = unique_names([scene.nodes[n].name for n in nodes], "node")
    origin, unit = (WORLD, 1.0) if frame is None else (frame.origin, frame.unit)
    to_leaf, to_user = relative(origin)
    out = LightLeaves(placed, numbers, {}, {}, {}, {}, None, None, power)
    for row in used:
        light, name = scene.lights[row], names[row]
        leaf = _vec3(light.color, f"light_color:{name}")
        out.color[row] = table.add(Parameter("light_color", name, leaf, 0.0)).leaf
        value = log_of(np.array(light.intensity)).reshape(1, 1, 1)
        leaf = F.leaf(value, FLOAT, f"light_intensity:{name}")
        out.log_intensity[row] = table.add(
            Parameter("light_intensity", name, leaf, to_leaf=log_of, to_user=np.exp)
        ).leaf
    for p, name in zip(placed, places, strict=True):
        if p.light.kind != "directional":
            leaf = _vec3(p.position - origin, f"light_position:{name}")
            out.position[p.node] = table.add(
                Parameter("light_position", name, leaf, to_leaf=to_leaf, to_user=to_user, unit=unit)
            ).leaf
        if p.light.kind != "point":
            leaf = _vec3(p.direction, f"light_direction:{name}")
            out.direction[p.node] = table.add(Parameter("light_direction", name, leaf)).leaf
    if scene.environment is not None:
        pixels = with_colors(scene.environment.pixels)[..., :3]
        leaf = F.leaf(np.maximum(pixels, 0.0), VEC3, "environment")
        out.environment = table.add(Parameter("environment", "", leaf, 0.0)).leaf
    elif around.any():
        out.ambient = table.add(Parameter("ambient", "", _vec3(around, "ambient"), 0.0)).leaf
    return out


def _vec3(value: object, name: str) -> Variable:
    return F.leaf(np.array(value, np.float32).reshape(1, 1, 3), VEC3, name)


def build_shadow_maps(
    lights: Sequence[Light], geometry: Geometry, faces: Variable, texels: int, r: float
) -> list[ShadowMap | None]:
    """The map of each light; None for point lights, which cast no shadow.

    faces: IVEC3, rows of the geometry's positions, of what casts shadows. texels: side of a map. r:
    see ``build_shadow_map``.
    """
    out: list[ShadowMap | None] = []
    center, reach = tuple(geometry.frame.center.tolist()), geometry.frame.radius
    for light in lights:
        if isinstance(light, DirectionalLight):
            matrix = directional_matrix(light.direction, center, geometry.radius * 1.05)
        elif isinstance(light, SpotLight):
            away = 100.0 * reach
            matrix = spot_matrix(
                light.position, light.direction, light.outer_cone_angle, 0.01 * reach, away
            )
        else:
            out.append(None)
            continue
        out.append(build_shadow_map(geometry.positions, faces, matrix, (texels, texels), r))
    return out


def build_shadows(
    lights: Sequence[Light],
    maps: Sequence[ShadowMap | None],
    position: Variable,
    normal: Variable,
) -> list[Variable | None]:
    """FLOAT visibility of each light at positions, None for lights without a map. position, normal:
    VEC3 at pixels, world."""
    return [
        None
        if shadow is None
        else shadow_visibility(shadow, position, normal, light.sample(position)[0])
        for light, shadow in zip(lights, maps, strict=True)
    ]
