"""Clear coat: a thin glossy layer over any material.

In: a shaded surface of a peel. Out: its colour below the layer, and what the layer reflects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dressi.ad import F, Variable
from dressi.render.shading import Surface, pbr
from dressi.render.shading.models import Shadows

if TYPE_CHECKING:
    from dressi.render.pipeline.appearance import Pixels


def coated(pixels: Pixels, surface: Surface, color: Variable, shadows: Shadows | None) -> Variable:
    """VEC3: the colour below a clear coat of index 1.5, and what the coat reflects.

    Source: KHR_materials_clearcoat: mix(below, coat, clearcoat * Fresnel(V . N)). Differs: the coat
    has the normal of the surface below.
    """
    strength = pixels.constants("clearcoat")
    if strength is None:
        return color
    rough = pixels.constants("clearcoat_roughness")
    position, normal, to_eye = surface.need("clearcoat", "position", "normal", "to_eye")
    black = (0.0, 0.0, 0.0)
    coat = Surface(black, position, normal, to_eye, roughness=0.0 if rough is None else rough)
    left = 1.0 - F.minimum(F.abs(F.dot(normal, to_eye)), 1.0)
    fresnel = 0.04 + 0.96 * (left * left) * (left * left) * left
    shine = pbr(coat, pixels.a.lights, pixels.a.environment, shadows)
    return color * (1.0 - strength * fresnel) + shine * strength
