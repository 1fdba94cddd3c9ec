"""Normal maps in tangent space, as in glTF 2.0.

In: tangents of vertices, or the gradient of UVs over faces; texels of the map. Out: VEC3 normals,
world. A tangent is a VEC4: xyz along increasing u, w = +-1 its handedness; the bitangent, which
points up in the texture (decreasing v), is w * cross(normal, tangent). Source: glTF 2.0, 3.7.2.1
and 3.9.3; MikkTSpace.
"""

from __future__ import annotations

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, VEC3, VEC4
from dressi.errors import GraphError
from dressi.render.raster import Peel, gather, interpolate
from dressi.render.shading.values import Value, as_variable

FLAT_UV = 1e-6
"""UVs of a face that span less than this, relative to their squared lengths, have no direction."""


def decode_normal(texel: Variable, scale: Value = 1.0) -> Variable:
    """VEC3 unit normal in tangent space of a texel in [0, 1].

    texel: VEC3, as sampled (not sRGB): 2 texel - 1. scale: FLOAT, glTF's ``normalTexture.scale``,
    times x and y. A texel of length 0 gives 0. Gradient to both.
    """
    n = texel * 2.0 - 1.0
    s = as_variable("decode_normal: scale", scale, FLOAT)
    return F.normalize(F.vec3(n.xy * s, n.z))


def face_tangents(vtx_pos: Variable, faces: Variable, uv: Variable, uv_faces: Variable) -> Variable:
    """VEC4 tangents @ (F, 1) from positions and UVs; 0 where a face or its UVs have no area.

    vtx_pos: VEC3 @ (N, 1). faces: IVEC3 @ (F, 1). uv: VEC2 @ (T, 1), v down. uv_faces: IVEC3 @ (F,
    1). xyz: dp/du of unit length; w: -1 where the texture is mirrored on the face. Gradient of xyz
    to vtx_pos and uv.
    """
    a, b, c = gather(vtx_pos, faces)
    p, q, r = gather(uv, uv_faces)
    s, t = q - p, r - p
    area2 = s.x * t.y - s.y * t.x
    # dp/du is this over area2; only its sign matters, so nothing is divided by a vanishing area.
    side = F.sign(area2)
    along = ((b - a) * t.y - (c - a) * s.y) * side
    span = F.dot(s, s) + F.dot(t, t)
    flat = F.abs(area2) <= FLAT_UV * span
    direction = F.where(flat, 0.0, F.normalize(along))
    # v points down: a face whose UVs turn clockwise in the texture's own y-up view is mirrored.
    return F.vec4(direction, F.where(flat, 0.0, -side))


def flat_tangent(
    peel: Peel, vtx_pos: Variable, faces: Variable, uv: Variable, uv_faces: Variable
) -> Variable:
    """VEC4 tangent of the face at each pixel, see ``face_tangents``. Gradient to vtx_pos and uv."""
    return F.lookup(face_tangents(vtx_pos, faces, uv, uv_faces), peel.ids)


def smooth_tangent(peel: Peel, vtx_tangent: Variable, faces: Variable) -> Variable:
    """VEC4 interpolated tangent at each pixel. vtx_tangent: VEC4 @ (N, 1), as glTF's TANGENT.
    Gradient to it and to the barycentrics. Raises GraphError for other types."""
    if vtx_tangent.vtype is not VEC4:
        raise GraphError(f"smooth_tangent needs VEC4 tangents, got {vtx_tangent.label()}")
    return interpolate(gather(vtx_tangent, faces), peel.ids, peel.bary)


def perturb_normal(
    normal: Variable, tangent: Variable, texel: Variable, scale: Value = 1.0
) -> Variable:
    """VEC3 unit normal of a surface with a normal map.

    normal: VEC3 unit, world. tangent: VEC4 (``flat_tangent``, ``smooth_tangent``); its part along
    the normal is taken off. texel: VEC3 in [0, 1] of the map. scale: see ``decode_normal``. Where
    the tangent is 0, or parallel to the normal, the normal stays as it is. Gradient to all (none to
    w, a sign). Raises GraphError for other types.
    """
    for name, value, vtype in (
        ("normal", normal, VEC3),
        ("tangent", tangent, VEC4),
        ("texel", texel, VEC3),
    ):
        as_variable(f"perturb_normal: {name}", value, vtype)
    along = tangent.xyz - normal * F.dot(normal, tangent.xyz)
    # Lengths that are rounding of a unit tangent are no direction.
    usable = F.dot(along, along) > 1e-8
    t = F.normalize(F.where(usable, along, 0.0))
    b = F.cross(normal, t) * F.where(tangent.w < 0.0, -1.0, 1.0)
    local = decode_normal(texel, scale)
    bent = F.normalize(t * local.x + b * local.y + normal * local.z)
    return F.where(usable, bent, normal)
