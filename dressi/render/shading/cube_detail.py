"""Level of detail of cube maps, and reads of their mip chains.

In: directions and how they change from pixel to pixel, levels of a cube map. Out: derivatives of
the place on the face, filtered reads. Faces as in F.texture_cube.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressi.ad import F, Variable
from dressi.ad.vtype import VEC3
from dressi.errors import GraphError


def cube_derivatives(
    direction: Variable, d_dx: Variable, d_dy: Variable
) -> tuple[Variable, Variable]:
    """Two VEC2 for F.texture_lod: how the place on the face, in [0, 1]^2, changes per pixel along
    X and Y.

    direction: VEC3. d_dx, d_dy: VEC3, its change per pixel. 0 where the direction is. Gradient to
    all. Raises GraphError for other types.
    """
    for v in (direction, d_dx, d_dy):
        if v.vtype is not VEC3:
            raise GraphError(f"cube_derivatives needs VEC3, got {v.label()}")
    size = F.abs(F.stop_gradient(direction))
    is_z = size.z >= F.maximum(size.x, size.y)
    is_y = (1.0 - is_z) * (size.y >= size.x)

    def on_face(v: Variable) -> tuple[Variable, Variable]:
        """Both components along the face, and the one across it; signs play no part."""
        along = F.where(is_z, v.xy, F.where(is_y, F.swizzle(v, "xz"), F.swizzle(v, "zy")))
        return along, F.where(is_z, v.z, F.where(is_y, v.y, v.x))

    place, major = on_face(direction)
    place = F.safe_div(place, major)
    out = []
    for d in (d_dx, d_dy):
        along, across = on_face(d)
        out.append(F.safe_div(along - place * across, major) * 0.5)
    return out[0], out[1]


def texture_cube_mip(
    levels: Sequence[Variable],
    direction: Variable,
    lod: Variable | float,
    nearest_level: bool = False,
    index: Variable | None = None,
) -> Variable:
    """Read a mip chain of cube maps at a level of detail per pixel, linear in texels.

    levels: FLOAT or VECn @ (n, n), (n / 2, n / 2), ..., layers=6 (6 k with index), level 0 first.
    direction, index: as of F.texture_cube. lod: FLOAT @ the size of direction, or a number; clamped
    to the chain. nearest_level: read the nearest level, not two mixed. Every level is read at every
    pixel. Gradient to the levels, to direction, and to lod unless nearest_level. Raises GraphError
    for no levels, and as F.texture_cube.
    """
    if not levels:
        raise GraphError("texture_cube_mip needs at least one level")
    last = float(len(levels) - 1)
    at = F.clamp(lod if isinstance(lod, Variable) else F.constant(float(lod)), 0.0, last)
    if nearest_level:
        at = F.floor(F.stop_gradient(at) + 0.5)
    parts = []
    for k, level in enumerate(levels):
        weight = F.maximum(1.0 - F.abs(at - float(k)), 0.0)
        parts.append(F.texture_cube(level, direction, "linear", index) * weight)
    return F.add_n(parts)
