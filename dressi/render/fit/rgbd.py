"""Losses of a fit to pictures with depth and landmarks (paper, B.3).

In: points, matrices, images of depth. Out: FLOAT @ 1x1, with gradient to points and cameras.
"""

from __future__ import annotations

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, MAT4, VEC2, VEC3, VEC4
from dressi.errors import GraphError
from dressi.render.raster import Size

NEAREST = 1e-3
"""Distance from the plane of the camera, world units, below which a point has no place in the
picture."""


def project_points(points: Variable, matrix: Variable, size: Size) -> tuple[Variable, Variable]:
    """Return where points lie in pictures, and whether they are in front of the camera.

    points: VEC3 @ (L, 1), world. matrix: MAT4 @ 1x1, layers = views, world to clip. size: of the
    pictures, pixels. Returns VEC2 @ (L, 1), layers = views, pixels from the top left corner, and
    FLOAT, 1 in front and 0 behind; what is behind lies at the top left corner and has no gradient.
    Gradient to points and matrix. Raises GraphError for other types.
    """
    if points.vtype is not VEC3 or points.size[1] != 1 or matrix.vtype is not MAT4:
        raise GraphError(
            "project_points needs VEC3 points @ (L, 1) and a MAT4 @ 1x1, got "
            f"{points.label()}, {matrix.label()}"
        )
    clip = matrix @ F.vec4(points, 1.0)
    front = F.stop_gradient(F.to_float(clip.w > NEAREST))
    ndc = clip.xy / F.where(front, clip.w, 1.0)
    half = (0.5 * size[0], 0.5 * size[1])
    return F.where(front, ndc * half + half, 0.0), front


def landmark_loss(
    points: Variable, matrix: Variable, targets: Variable, weights: Variable, size: Size
) -> Variable:
    """FLOAT @ 1x1: mean L1 distance in pixels of landmarks, weighted.

    points: VEC3 @ (L, 1), world. matrix: MAT4 @ 1x1, layers = views. targets: VEC2 @ (L, 1), layers
    = views, pixels. weights: FLOAT, the same; 0 where a landmark is hidden or not known. size: of
    the picture that the pixels count in. A landmark behind the camera counts as one of weight 0: it
    has no place in the picture. Without any landmark the loss is 0. Gradient to points and matrix.
    Raises GraphError for other types, sizes and layers.
    """
    n, views = points.size[0], matrix.layers
    for what, x, vtype in (("targets", targets, VEC2), ("weights", weights, FLOAT)):
        if x.vtype is not vtype or x.size != (n, 1) or x.layers != views:
            raise GraphError(
                f"landmark_loss: {what} must be {vtype.name} @ {n}x1, layers={views}, got "
                f"{x.label()}"
            )
    at, front = project_points(points, matrix, size)
    off = F.sum_components(F.abs(at - targets))
    weight = weights * front
    return F.sum(off * weight) / F.maximum(F.sum(weight), 1e-6)


def metric_depth(position: Variable, view: Variable) -> Variable:
    """FLOAT: distance of positions from the plane of the camera, world units.

    position: VEC3 @ any size, world (of a raster: ``interpolate`` of the vertices). view: MAT4 @
    1x1, layers = views, world to camera, which looks down -Z. Gradient to both. Raises GraphError
    for other types.
    """
    if position.vtype is not VEC3 or view.vtype is not MAT4 or view.size != (1, 1):
        raise GraphError(
            f"metric_depth needs VEC3 positions and a MAT4 @ 1x1, got {position.label()}, "
            f"{view.label()}"
        )
    row = F.linalg.row(view, 2)
    assert row.vtype is VEC4
    return -(F.dot(row.xyz, position) + row.w)


def depth_loss(depth: Variable, target: Variable, weights: Variable, truncation: float) -> Variable:
    """FLOAT @ 1x1: mean of min(\\|depth - target\\|, truncation) over pixels, weighted.

    depth, target: FLOAT @ one size, world units. weights: FLOAT; 0 where one of them is unknown,
    e.g. where the sensor gave none. truncation: world units; beyond it there is no gradient, as
    what is that far off belongs to something else. Without any pixel the loss is 0. Gradient to
    depth. Raises GraphError for types, sizes or layers that differ, and for a truncation that is
    not above 0.
    """
    for what, x in (("target", target), ("weights", weights)):
        if x.vtype is not FLOAT or (x.size, x.layers) != (depth.size, depth.layers):
            raise GraphError(
                f"depth_loss: {what} must be like the depth, {depth.label()}, got {x.label()}"
            )
    if not truncation > 0.0:
        raise GraphError(f"depth_loss: truncation must be above 0, got {truncation!r}")
    off = F.minimum(F.abs(depth - target), truncation)
    return F.sum(off * weights) / F.maximum(F.sum(weights), 1.0)
