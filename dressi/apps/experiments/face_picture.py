"""What ``dressi experiment face`` draws: a textured surface under grey light, with its depth.

In: tables, maps, cameras. Out: ``Picture`` with gradient to all of them. Both the head that is
fitted and the scan that it is fitted to are drawn by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.render.fit.rgbd import metric_depth
from dressi.render.ibl.brdf import brdf_table, read_brdf
from dressi.render.raster import HardRaster, build_hard_raster
from dressi.render.shading import (
    Surface,
    flat_tangent,
    pbr,
    perturb_normal,
    smooth_normal,
    surface_uv,
    to_eye,
    vertex_normals,
)


@dataclass(frozen=True)
class GreyLight:
    """An ``Environment`` of one radiance from everywhere (paper, B.3)."""

    radiance: float = 1.0

    def diffuse(self, normal: Variable) -> Variable:
        """VEC3: the radiance."""
        return F.constant((self.radiance,) * 3)

    def specular(self, reflection: Variable, roughness: Variable) -> Variable:
        """VEC3: the radiance."""
        return F.constant((self.radiance,) * 3)

    def brdf(self, n_dot_v: Variable, roughness: Variable) -> Variable:
        """VEC2 (scale, bias) of the split sum."""
        return read_brdf(brdf_table(), n_dot_v, roughness)


@dataclass(frozen=True)
class Maps:
    """albedo: VEC3, linear. normal: VEC3, tangent space, in [0, 1], or None. surface: VEC3 as in
    glTF: roughness in y, metallic in z."""

    albedo: Variable
    normal: Variable | None
    surface: Variable


@dataclass(frozen=True)
class SurfaceTables:
    """positions: VEC3 @ (N, 1), cm. faces: IVEC3 @ (F, 1). uv: VEC2 @ (T, 1); uv_faces: IVEC3 @
    (F, 1)."""

    positions: Variable
    faces: Variable
    uv: Variable
    uv_faces: Variable


@dataclass(frozen=True)
class Picture:
    """What is seen, a layer per view. color: VEC3, linear, 0 beside the surface. depth: FLOAT, cm
    from the plane of the camera, 0 beside it. mask: FLOAT. facing: FLOAT, cosine between normal and
    direction to the eye. uv: VEC2. normal: VEC3, world, with the map.
    albedo, properties: of the maps; what lies beside the surface means nothing."""

    raster: HardRaster
    color: Variable
    depth: Variable
    mask: Variable
    facing: Variable
    uv: Variable
    normal: Variable
    albedo: Variable
    properties: Variable


def build_picture(
    surface: SurfaceTables,
    maps: Maps,
    view: Variable,
    projection: Variable,
    size: tuple[int, int],
    light: GreyLight | None = None,
) -> Picture:
    """Return the picture of a surface. view: MAT4 @ 1x1, layers = views, world to camera.
    projection: MAT4 @ 1x1, layers = views or 1. Gradient to everything but the outline."""
    s = surface
    matrix = projection @ view
    # Culled: through the holes of open eyes the inside of the head would be seen.
    raster = build_hard_raster(s.positions, s.faces, matrix, size, cull="back")
    peel = raster.peel
    uv = surface_uv(peel, s.uv, s.uv_faces)
    position = raster.interpolate(s.positions, s.faces)
    normal = smooth_normal(peel, vertex_normals(s.positions, s.faces), s.faces)
    eye = to_eye(matrix, position)
    facing = F.maximum(F.dot(normal, eye), 0.0) * raster.mask
    if maps.normal is not None:
        tangent = flat_tangent(peel, s.positions, s.faces, s.uv, s.uv_faces)
        normal = perturb_normal(normal, tangent, F.texture(maps.normal, uv, wrap="clamp"))
    properties = F.texture(maps.surface, uv, wrap="clamp")
    albedo = F.texture(maps.albedo, uv, wrap="clamp")
    shaded = pbr(
        Surface(
            albedo,
            position,
            normal,
            eye,
            metallic=properties.z,
            roughness=properties.y,
        ),
        environment=light or GreyLight(),
    )
    depth = F.where(raster.mask, metric_depth(position, view), 0.0)
    color = F.where(raster.mask, shaded, 0.0)
    return Picture(raster, color, depth, raster.mask, facing, uv, normal, albedo, properties)
