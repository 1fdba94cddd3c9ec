"""Shadows in hair: how much of the light passes the strands in front of a place.

In: points of strands, widths, the light's matrix. Out: ``OpacityMap``: the light's view cut into
slices, each with how many strands a ray meets in it; and for any position the transmittance exp(-k
n). Strands are splatted as points along their segments, so the map is a sum, with a gradient to
widths and density, and a smooth one to the positions that are shaded. Source: Kim and Neumann 2001,
Opacity Shadow Maps. Differs: within a slice the strands count from its front evenly, instead of at
its border, so no bands show.
"""

from __future__ import annotations

from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, INT, IVEC2, MAT4, VEC3
from dressi.errors import GraphError
from dressi.render.raster.projection import Size, check_size, check_variables
from dressi.render.shading.values import (
    Value,
    as_variable,
    check_class,
    check_number,
)


@dataclass(frozen=True)
class OpacityMap:
    """What a light sees of hair.

    counts: FLOAT @ (width, slices * height), strands that a ray meets in each texel, slice under
    slice from the light on. before: the same of all slices in front. matrix: MAT4 @ 1x1, world to
    the light's clip space. n_slices: over the range of depth [0, 1] of the matrix.
    """

    counts: Variable
    before: Variable
    matrix: Variable
    n_slices: int

    @property
    def size(self) -> Size:
        """(width, height) of a slice in texels."""
        return self.counts.size[0], self.counts.size[1] // self.n_slices


def build_opacity_map(
    vtx_pos: Variable,
    segments: Variable,
    width: Variable,
    matrix: Variable,
    size: Size,
    n_slices: int = 16,
    n_samples: int = 2,
) -> OpacityMap:
    """Splat strands into the light's view.

    vtx_pos: VEC3 @ (P, 1), world units. segments: IVEC2 @ (N, 1). width: FLOAT @ 1x1 or @ (P, 1),
    world units. matrix: MAT4 @ 1x1, orthographic (``directional_matrix``). size: texels. n_samples:
    points per segment; at least as many as texels that a segment crosses. Gradient to width.
    Raises GraphError for wrong types and sizes.
    """
    check_variables(
        "build_opacity_map", vtx_pos=vtx_pos, segments=segments, width=width, matrix=matrix
    )
    if vtx_pos.vtype is not VEC3 or matrix.vtype is not MAT4 or segments.vtype is not IVEC2:
        raise GraphError(
            "build_opacity_map needs VEC3 points, IVEC2 segments and a MAT4, got "
            f"{vtx_pos.label()}, {segments.label()}, {matrix.label()}"
        )
    if width.vtype is not FLOAT or width.size not in ((1, 1), vtx_pos.size):
        raise GraphError(f"build_opacity_map: width must be FLOAT, got {width.label()}")
    check_size("build_opacity_map", size, least=2)
    for name, n in (("n_slices", n_slices), ("n_samples", n_samples)):
        if not isinstance(n, int) or n < 1:
            raise GraphError(f"build_opacity_map: {name} must be 1 or more, got {n!r}")
    place = _texels(F.stop_gradient(vtx_pos), F.stop_gradient(matrix), size, n_slices)
    thickness = F.expand(width, vtx_pos.size)
    # Of a texel: world units per texel along the rows of the matrix.
    scale = F.length(F.linalg.row(matrix, 0).xyz) * (0.5 * size[0])
    (a, w_a), (b, w_b) = (
        (F.lookup(place, rows), F.lookup(thickness, rows)) for rows in (segments.x, segments.y)
    )
    along = b.xy - a.xy
    # Area in texels of a part of the segment: what it covers of them, seen from the light.
    area = F.length(along) * F.stop_gradient(scale) * (1.0 / n_samples)
    tall = (size[0], size[1] * n_slices)
    terms = []
    for k in range(n_samples):
        s = (k + 0.5) / n_samples
        at = a + (b - a) * s
        terms += _splats(at, area * (w_a + (w_b - w_a) * s), size, n_slices)
    counts = F.add_n([F.scatter_add(value, index, tall) for value, index in terms])
    return OpacityMap(counts, _before(counts, size, n_slices), matrix, n_slices)


def _before(counts: Variable, size: Size, n_slices: int) -> Variable:
    """Sums over the slices in front: each slice is the sum of those before the one before it, and
    that one."""
    width, height = size
    slices = [F.crop(counts, 0, k * height, width, height) for k in range(n_slices)]
    total = F.expand(F.constant(0.0), size)
    sums = [total]
    for one in slices[:-1]:
        total = total + one
        sums.append(total)
    tall = F.stack(sums)
    return F.reshape(tall, (width, height * n_slices)) if n_slices > 1 else total


def _texels(position: Variable, matrix: Variable, size: Size, n_slices: int) -> Variable:
    """VEC3: texel coordinates, centres at integers, and depth in slices."""
    ndc = (matrix @ F.vec4(position, 1.0)).xyz
    return F.vec3(
        (ndc.x + 1.0) * (0.5 * size[0]) - 0.5,
        (ndc.y + 1.0) * (0.5 * size[1]) - 0.5,
        ndc.z * float(n_slices),
    )


def _splats(
    at: Variable, value: Variable, size: Size, n_slices: int
) -> list[tuple[Variable, Variable]]:
    """(value, INT index) of the four texels around a place in its slice."""
    z = F.clamp(F.floor(at.z), 0.0, n_slices - 1.0)
    return [(value * weight, index) for weight, index in _taps(at, z, size)]


def _taps(at: Variable, slice_idx: Variable, size: Size) -> list[tuple[Variable, Variable]]:
    """(bilinear weight, INT index of the pixel in counts or -1) of four texels."""
    corner = F.floor(at.xy)
    part = at.xy - corner
    taps = []
    for i, j in ((0, 0), (1, 0), (0, 1), (1, 1)):
        x, y = corner.x + float(i), corner.y + float(j)
        weight = (part.x if i else 1.0 - part.x) * (part.y if j else 1.0 - part.y)
        inside = (x >= 0.0) * (x < float(size[0])) * (y >= 0.0) * (y < float(size[1]))
        column = F.clamp(x, 0.0, size[0] - 1.0)
        row = F.clamp(y, 0.0, size[1] - 1.0) + slice_idx * float(size[1])
        # Exact in float32 up to 2^24 texels.
        index = F.to_int(row * float(size[0]) + column)
        taps.append((weight, F.where(inside, index, F.constant(-1, INT))))
    return taps


def strand_transmittance(
    opacity: OpacityMap, position: Variable, density: Value = 1.0, bias: float = 0.5
) -> Variable:
    """FLOAT in [0, 1]: share of the light that reaches a position through the strands.

    position: VEC3 @ pixels or points, any layers, world units. density: FLOAT >= 0, k of exp(-k n):
    how much a strand takes, 1 for opaque ones. bias: slices in front of the position that do not
    count, so that a strand does not shade itself. Outside of the map everything is lit. Gradient to
    position, density, counts. Raises GraphError for other types and a negative density.
    """
    check_class("strand_transmittance: opacity", opacity, OpacityMap)
    check_number("strand_transmittance: density", density, 0.0, float("inf"))
    check_number("strand_transmittance: bias", bias, 0.0, float(opacity.n_slices))
    as_variable("strand_transmittance: position", position, VEC3)
    at = _texels(position, F.stop_gradient(opacity.matrix), opacity.size, opacity.n_slices)
    depth = F.clamp(at.z - bias, 0.0, float(opacity.n_slices))
    inside = F.minimum(F.floor(depth), opacity.n_slices - 1.0)
    met = [
        weight * (F.lookup(opacity.before, index) + F.lookup(opacity.counts, index) * part)
        for part in (depth - inside,)
        for weight, index in _taps(at, inside, opacity.size)
    ]
    strength = as_variable("strand_transmittance: density", density, FLOAT)
    return F.exp(-strength * F.add_n(met))
