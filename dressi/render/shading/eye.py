"""Eyes: an iris seen through the cornea, below a layer of tears.

In: a ``Surface`` of the cornea and the sclera in one, an ``Eye``. Out: where the ray that the eye's
surface refracts meets the plane of the iris, as a shift of texture coordinates; VEC3 linear
colours. Sources: Jimenez and von der Pahlen 2013, Next-Generation Character Rendering (refraction
with a limbus mask); refractive index of the aqueous humour 1.336.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, VEC2, VType
from dressi.render.shading.dielectric import Split, normal_reflectance, shade_dielectric
from dressi.render.shading.lights import Light
from dressi.render.shading.models import Shadows
from dressi.render.shading.pbr import Environment, schlick
from dressi.render.shading.surface import Surface
from dressi.render.shading.values import Value, as_variable, check_number, check_positive

MIN_COSINE = 0.05
"""Between the refracted ray and the axis, taken as no less: an iris that is seen from 87 degrees
within the cornea is hidden by its rim. Refraction keeps the angle below 49 degrees of the surface's
normal."""


@dataclass(frozen=True)
class Eye:
    """What an eye is made of; the colours of iris and sclera are the ``Surface``'s albedo.

    iris_center: VEC2, texture coordinates. iris_radius: FLOAT > 0, in texture coordinates.
    iris_depth: FLOAT >= 0, world units, of the iris below the apex of the cornea; 0.0027 m in
    people. limbus_width: FLOAT > 0, over which iris becomes sclera, in iris radii.
    limbus_darkening: FLOAT in [0, 1], how much darker the middle of that rim is. ior: FLOAT >= 1,
    of the cornea. wet_roughness: FLOAT in [0, 1], of the layer of tears. Gradient to all. Raises
    GraphError for numbers out of range.
    """

    iris_radius: Value
    iris_depth: Value
    iris_center: Value = (0.5, 0.5)
    limbus_width: Value = 0.2
    limbus_darkening: Value = 0.5
    ior: Value = 1.336
    wet_roughness: Value = 0.05

    def __post_init__(self) -> None:
        check_positive("Eye: iris_radius", self.iris_radius)
        check_positive("Eye: limbus_width", self.limbus_width)
        check_number("Eye: iris_depth", self.iris_depth, 0.0, math.inf)
        check_number("Eye: limbus_darkening", self.limbus_darkening, 0.0, 1.0)
        check_number("Eye: ior", self.ior, 1.0, 4.0)
        check_number("Eye: wet_roughness", self.wet_roughness, 0.0, 1.0)
        for name in vars(self):
            self.of(name)

    def of(self, name: str) -> Variable:
        """One of the numbers."""
        vtype: VType = VEC2 if name == "iris_center" else FLOAT
        return as_variable(f"Eye: {name}", getattr(self, name), vtype)


def refract_cornea(to_eye: Variable, normal: Variable, ior: Value = 1.336) -> Variable:
    """VEC3 unit: the way of the line of sight behind the cornea, inwards.

    to_eye, normal: VEC3 unit. ior: FLOAT >= 1, of what lies behind. Seen from behind (n . v < 0) it
    is as for n . v = 0. Gradient to all. Source: Snell's law.
    """
    eta = 1.0 / as_variable("refract_cornea: ior", ior, FLOAT)
    n_v = F.maximum(F.dot(normal, to_eye), 0.0)
    cosine = F.sqrt(F.maximum(1.0 - eta * eta * (1.0 - n_v * n_v), 0.0))
    return normal * (eta * n_v - cosine) - to_eye * eta


def iris_offset(
    normal: Variable, to_eye: Variable, axis: Variable, depth: Value, ior: Value = 1.336
) -> Variable:
    """VEC3 across the axis, world units: from where the line of sight enters the cornea to where it
    meets the plane of the iris.

    normal, to_eye: VEC3 unit. axis: VEC3 unit, the way that the eye looks. depth: FLOAT, world
    units, of the plane below the place of entry; below 0 it counts as 0. ior: FLOAT >= 1. It is
    depth / cos(angle to the axis) times the part of the ray across the axis. Gradient to all.
    """
    deep = F.maximum(as_variable("iris_offset: depth", depth, FLOAT), 0.0)
    ray = refract_cornea(to_eye, normal, ior)
    inwards = -F.dot(ray, axis)
    across = ray + axis * inwards
    return across * (deep / F.maximum(inwards, MIN_COSINE))


def uv_offset(
    offset: Variable, normal: Variable, axis: Variable, du: Variable, dv: Variable
) -> Variable:
    """VEC2: the step in texture coordinates of a step across the axis.

    offset: VEC3 across the axis. normal: VEC3 unit, of the face. axis: VEC3 unit. du, dv: VEC3, the
    gradients of u and v over the face (``uv_gradients``), per world unit. For textures that lie on
    the eye as if projected along its axis, as irises do. Gradient to all.
    """
    # The step in the face that is the offset when it is seen along the axis.
    facing = F.dot(normal, axis)
    tilt = F.where(
        F.abs(facing) > MIN_COSINE, facing, F.where(facing < 0.0, -1.0, 1.0) * MIN_COSINE
    )
    step = offset - axis * (F.dot(normal, offset) / tilt)
    return F.vec2(F.dot(du, step), F.dot(dv, step))


def uv_gradients(
    corners: Sequence[Variable], uvs: Sequence[Variable]
) -> tuple[Variable, Variable, Variable]:
    """(du, dv, normal): VEC3 gradients of u and v over faces, per world unit, and their normals.

    corners: three VEC3, world. uvs: three VEC2. 0 for faces without area. Gradient to all.
    """
    e, f = corners[1] - corners[0], corners[2] - corners[0]
    s, t = uvs[1] - uvs[0], uvs[2] - uvs[0]
    n = F.cross(e, f)
    area = F.safe_div(1.0, F.dot(n, n))
    # Dual to the edges: along of e is 1 and of f is 0, and the other way round.
    along, beside = F.cross(f, n) * area, F.cross(n, e) * area
    return along * s.x + beside * t.x, along * s.y + beside * t.y, F.normalize(n)


def limbus_mask(uv: Variable, eye: Eye) -> Variable:
    """FLOAT: 1 in the iris, 0 in the sclera, smooth between. uv: VEC2. Gradient to uv and eye."""
    away = F.length(uv - eye.of("iris_center")) / eye.of("iris_radius")
    half = 0.5 * eye.of("limbus_width")
    return 1.0 - F.smoothstep(1.0 - half, 1.0 + half, away)


def limbus_tint(mask: Variable, eye: Eye) -> Variable:
    """FLOAT that multiplies the albedo: 1 in iris and sclera, less in the rim between them. mask:
    FLOAT (``limbus_mask``). Gradient to both."""
    return 1.0 - eye.of("limbus_darkening") * 4.0 * mask * (1.0 - mask)


def shade_eye(
    surface: Surface,
    eye: Eye,
    mask: Variable,
    axis: Variable,
    lights: Sequence[Light] = (),
    environment: Environment | None = None,
    shadows: Shadows | None = None,
    occlusion: Value = 1.0,
) -> Split:
    """Light of an eye: of the iris and the sclera, and of the layer of tears over them.

    surface: of the eye's surface. mask: FLOAT (``limbus_mask``). axis: VEC3 unit, the way that the
    eye looks: the normal of the iris, of the diffuse part where the mask is. occlusion: FLOAT, of
    lids and lashes, multiplies everything. Gradient to all. Raises GraphError as
    ``shade_dielectric``.
    """
    (normal,) = surface.need("shade_eye", "normal")
    inner = F.normalize(F.mix(normal, axis, mask))
    lobes = [(eye.wet_roughness, 1.0)]
    split = shade_dielectric(
        surface, eye.ior, lobes, lights, environment, shadows, inner_normal=inner
    )
    return split.times(as_variable("shade_eye: occlusion", occlusion, FLOAT))


def shade_tears(
    surface: Surface,
    ior: Value = 1.336,
    roughness: Value = 0.05,
    lights: Sequence[Light] = (),
    environment: Environment | None = None,
    shadows: Shadows | None = None,
    light_radius: Value = 0.0,
) -> tuple[Variable, Variable]:
    """(VEC3 colour, FLOAT alpha) of a layer of tears, which only reflects.

    Blended over what lies behind, colour times alpha is what it reflects and 1 - alpha what it lets
    through; alpha is the reflectance towards the eye. light_radius: as in ``shade_dielectric``.
    Gradient to all.
    """
    normal, to_eye = surface.need("shade_tears", "normal", "to_eye")
    lobes = [(roughness, 1.0)]
    split = shade_dielectric(
        surface, ior, lobes, lights, environment, shadows, light_radius=light_radius
    )
    share = schlick(normal_reflectance(ior), F.abs(F.dot(normal, to_eye)))
    return F.safe_div(split.specular, share), share
