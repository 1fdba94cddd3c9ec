"""Teeth: a dielectric that light enters, in a mouth that keeps light out.

In: a ``Surface``, lights, the opening of the jaw. Out: the parts of the light, and the factor by
which the mouth darkens them. The diffuse part is spread as that of skin
(``dressi.render.shading.skin.build_diffusion``).
"""

from __future__ import annotations

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, VEC3
from dressi.render.shading.values import Value, as_variable

IOR = 1.55
"""Of enamel: 1.5 to 1.6."""

STRENGTH, FALLOFF = (0.35, 0.33, 0.3), (0.9, 0.8, 0.7)
"""Of the spread of light in teeth: nearly white. Chosen by eye."""


def mouth_occlusion(
    position: Variable, opening: Value, center: Value, direction: Value
) -> Variable:
    """FLOAT in [0, 1]: how much of the light that a tooth would get in the open comes in.

    position: VEC3, world. opening: FLOAT >= 0, between the lips, world units. center: VEC3, the
    middle of the opening. direction: VEC3, out of the mouth, any length but 0. It is the view
    factor of a long slit of that width from the depth d behind its middle, w / sqrt(w^2 + 4 d^2); 1
    in front of the lips, 0 behind closed ones. Gradient to all.
    """
    width = F.maximum(as_variable("mouth_occlusion: opening", opening, FLOAT), 0.0)
    middle = as_variable("mouth_occlusion: center", center, VEC3)
    outwards = F.normalize(as_variable("mouth_occlusion: direction", direction, VEC3))
    depth = F.maximum(F.dot(middle - position, outwards), 0.0)
    across = F.sqrt(width * width + 4.0 * depth * depth)
    return F.where(depth > 0.0, F.safe_div(width, across), 1.0)
