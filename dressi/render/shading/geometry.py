"""What a pixel knows of the mesh: texture coordinates, normals, and the unlit and Lambert models.

In: a peel and tables. Out: per-pixel values. ``unlit`` and ``lambert`` take plain images; models
that take a ``Surface`` and lights are in models.py and pbr.py.
"""

from __future__ import annotations

from dressi.ad import F, Variable
from dressi.kinds import TextureBackward, Wrap, Wraps
from dressi.render.raster import Peel, gather, interpolate


def surface_uv(peel: Peel, uv: Variable, uv_faces: Variable) -> Variable:
    """VEC2 texture coordinates at each pixel. uv: VEC2 @ (T, 1); uv_faces: IVEC3 @ (F, 1), rows of
    uv. Gradient to uv and to the barycentrics."""
    return interpolate(gather(uv, uv_faces), peel.ids, peel.bary)


def unlit(
    peel: Peel,
    uv: Variable,
    uv_faces: Variable,
    albedo: Variable,
    backward: TextureBackward = "exact",
    step: Variable | None = None,
    wrap: Wrap | Wraps = "repeat",
) -> Variable:
    """Albedo texture without light. albedo: VEC3 @ any size, linear. backward, step, wrap: see
    F.texture. Gradient to albedo, uv and positions."""
    where = surface_uv(peel, uv, uv_faces)
    return F.texture(albedo, where, wrap=wrap, backward=backward, step=step) * peel.stencil


def face_normals(vtx_pos: Variable, faces: Variable) -> Variable:
    """VEC3 unit normals @ (F, 1), world space, by the right hand rule; 0 for faces without area.
    Gradient to vtx_pos."""
    a, b, c = gather(vtx_pos, faces)
    return F.normalize(F.cross(b - a, c - a))


def lambert(
    albedo: Variable, normal: Variable, to_light: Variable, light: Variable, ambient: Variable
) -> Variable:
    """albedo * (ambient + light * max(n . l, 0)).

    albedo: VEC3 @ pixels. normal: VEC3 unit @ pixels, world space. to_light: VEC3 unit @ 1x1.
    light, ambient: VEC3 @ 1x1, linear. Gradient to all.
    """
    return albedo * (ambient + light * F.maximum(F.dot(normal, to_light), 0.0))


def flat_normal(peel: Peel, vtx_pos: Variable, faces: Variable) -> Variable:
    """VEC3 face normal at each pixel. Gradient to vtx_pos."""
    return F.lookup(face_normals(vtx_pos, faces), peel.ids)


def smooth_normal(peel: Peel, vtx_normal: Variable, faces: Variable) -> Variable:
    """VEC3 interpolated unit normal at each pixel. vtx_normal: VEC3 @ (N, 1). Gradient to it."""
    return F.normalize(interpolate(gather(vtx_normal, faces), peel.ids, peel.bary))


def vertex_normals(vtx_pos: Variable, faces: Variable) -> Variable:
    """VEC3 unit normals @ (N, 1), area weighted. Gradient to vtx_pos."""
    a, b, c = gather(vtx_pos, faces)
    n = F.cross(b - a, c - a)
    size = vtx_pos.size
    total = F.add_n([F.scatter_add(n, f, size) for f in (faces.x, faces.y, faces.z)])
    return F.normalize(total)
