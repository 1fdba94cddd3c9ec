"""Classic models of shading: unlit, Lambert, Blinn-Phong, and any model run per vertex (Gouraud).

In: a ``Surface`` and lights. Out: VEC3 linear colours. These models have no 1 / pi: a white surface
that faces a directional light of intensity 1 is 1. ``pbr`` follows glTF, where it is 1 / pi.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dressi.ad import F, Variable
from dressi.ad.graph import short
from dressi.ad.vtype import FLOAT, VEC3
from dressi.errors import GraphError
from dressi.render.raster import Peel, gather, interpolate
from dressi.render.shading.lights import Light
from dressi.render.shading.surface import Surface
from dressi.render.shading.values import Value, as_variable, check_class

Shadows = Sequence[Variable | None]
"""FLOAT visibility of each light (1 lit, 0 in shadow) in the order of the lights; None: no
shadow."""


def lit(
    model: str, lights: Sequence[Light], shadows: Shadows | None, position: Variable
) -> list[tuple[Variable, Variable]]:
    """(to_light, radiance) of every light, in its shadow. Raises GraphError unless there is a
    shadow a light (or none at all)."""
    if not isinstance(lights, Sequence) or not all(hasattr(x, "sample") for x in lights):
        raise GraphError(f"{model}: lights must be a list of lights, got {short(lights)}")
    if shadows is not None and len(shadows) != len(lights):
        raise GraphError(
            f"{model} needs a shadow for each of {len(lights)} lights (None for "
            f"one that casts none), got {len(shadows)}"
        )
    out = []
    for k, light in enumerate(lights):
        to_light, radiance = light.sample(position)
        shadow = None if shadows is None else shadows[k]
        if shadow is not None:
            if not isinstance(shadow, Variable) or shadow.vtype is not FLOAT:
                raise GraphError(f"{model}: shadow {k} must be a FLOAT Variable")
            radiance = radiance * shadow
        out.append((to_light, radiance))
    return out


def unlit_surface(surface: Surface) -> Variable:
    """VEC3 linear: albedo + emissive. Gradient to both."""
    check_class("unlit_surface: surface", surface, Surface)
    return surface.albedo + surface.emissive


def lambert_surface(
    surface: Surface,
    lights: Sequence[Light] = (),
    ambient: Value = 0.0,
    shadows: Shadows | None = None,
) -> Variable:
    """albedo * (ambient * occlusion + sum of radiance * max(n . l, 0)) + emissive.

    ambient: VEC3 linear. shadows: see Shadows. Gradient to all. Raises GraphError for a surface
    without position or normal, and for wrong shadows.
    """
    check_class("lambert_surface: surface", surface, Surface)
    position, normal = surface.need("lambert_surface", "position", "normal")
    terms = [as_variable("lambert_surface: ambient", ambient, VEC3) * surface.occlusion]
    for to_light, radiance in lit("lambert_surface", lights, shadows, position):
        terms.append(radiance * F.maximum(F.dot(normal, to_light), 0.0))
    return surface.albedo * F.add_n(terms) + surface.emissive


def blinn_phong(
    surface: Surface,
    lights: Sequence[Light] = (),
    ambient: Value = 0.0,
    specular: Value = 0.2,
    shininess: Value = 32.0,
    shadows: Shadows | None = None,
) -> Variable:
    """Lambert plus specular * sum of radiance * max(n . h, 0)^shininess where n . l > 0.

    h: halfway between light and eye. specular: VEC3 linear. shininess: FLOAT > 0. The highlight
    ends with a step at n . l = 0, as the model has it; the step gives no gradient. Gradient to
    everything else. Raises GraphError as ``lambert_surface``. Source: Blinn 1977.
    """
    check_class("blinn_phong: surface", surface, Surface)
    position, normal, to_eye = surface.need("blinn_phong", "position", "normal", "to_eye")
    power = as_variable("blinn_phong: shininess", shininess, FLOAT)
    diffuse = [as_variable("blinn_phong: ambient", ambient, VEC3) * surface.occlusion]
    shine: list[Variable] = []
    for to_light, radiance in lit("blinn_phong", lights, shadows, position):
        n_l = F.dot(normal, to_light)
        n_h = F.maximum(F.dot(normal, F.normalize(to_light + to_eye)), 0.0)
        diffuse.append(radiance * F.maximum(n_l, 0.0))
        shine.append(radiance * F.where(n_l > 0.0, F.pow(n_h, power), 0.0))
    color = surface.albedo * F.add_n(diffuse) + surface.emissive
    if not shine:
        return color
    return color + as_variable("blinn_phong: specular", specular, VEC3) * F.add_n(shine)


def gouraud(
    peel: Peel,
    faces: Variable,
    vertices: Surface,
    lights: Sequence[Light] = (),
    model: Callable[..., Variable] = blinn_phong,
    **options: object,
) -> Variable:
    """A model computed at vertices, its colours interpolated over faces.

    peel: any number of views. faces: IVEC3 @ (F, 1). vertices: a Surface of tables @ (N, 1);
    ``to_eye`` has a layer per view: ``F.normalize(eye - vtx_pos)``. model: takes (surface, lights,
    **options). Per-vertex shadows go through options too. 0 where there is no face. Gradient to all
    that the model has one to, and to the barycentrics. Raises GraphError for a Surface of images.
    Source: Gouraud 1971.
    """
    colors = model(vertices, lights, **options)
    if colors.size[1] != 1:
        raise GraphError(
            "gouraud needs a Surface of vertex tables @ (N, 1), which gives "
            f"colours @ (N, 1); got {colors.label()}"
        )
    return interpolate(gather(colors, faces), peel.ids, peel.bary)
