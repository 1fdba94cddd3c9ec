"""Hard rasterization: which face every pixel shows, where on the face, how deep.

In: vertex positions, faces, matrices. Out: ``HardRaster``, per pixel. One rasterization, no soft
rims: gradients reach positions through barycentrics and depth, not through the outline (for that
see ``hardsoftras`` and ``antialias``). Faces that cross the near plane are clipped, exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from dressi.ad import F, Variable
from dressi.ad.vtype import MAT4, VEC2, VEC3
from dressi.errors import GraphError
from dressi.kinds import Cull
from dressi.render.raster.clip_doubts import know_faces
from dressi.render.raster.distance import interpolate
from dressi.render.raster.enlarge import SLACK_PX
from dressi.render.raster.hardsoftras import FAR_INSIDE, Peel
from dressi.render.raster.projection import Size, check_faces, check_variables, gather, project
from dressi.render.raster.weights import clip_weights

Corners = tuple[Variable, Variable, Variable]


@dataclass(frozen=True)
class HardRaster:
    """What ``build_hard_raster`` gives, per pixel and view.

    corners: three VEC4 tables @ (F, 1), clip positions of the corners of faces. ids: INT, face
    number or -1. bary: VEC3, perspective-correct weights of the corners; 0 where there is no face.
    depth: FLOAT, z in NDC in [0, 1]; 1 where there is no face. mask: FLOAT, 1 where there is one.
    Gradient through bary and depth.
    """

    corners: Corners
    ids: Variable
    bary: Variable
    depth: Variable
    mask: Variable

    @overload
    def interpolate(self, table: Variable, faces: Variable) -> Variable: ...

    @overload
    def interpolate(self, table: Sequence[Variable], faces: Variable) -> tuple[Variable, ...]: ...

    def interpolate(
        self, table: Variable | Sequence[Variable], faces: Variable
    ) -> Variable | tuple[Variable, ...]:
        """Attribute at each pixel; 0 where there is no face. table: FLOAT or VECn @ (N, 1); several
        where there are more than four channels, which give as many images, by one pass where they
        fit. faces: IVEC3 @ (F, 1), rows of the table. Gradient to the tables and to bary."""
        if isinstance(table, Variable):
            return interpolate(gather(table, faces), self.ids, self.bary)
        return tuple(self.interpolate(t, faces) for t in table)

    @property
    def peel(self) -> Peel:
        """The same for the builders of ``shading``, which take a peel: all of it is hard."""
        return Peel(
            ids=self.ids,
            depth=F.where(self.mask, self.depth * 0.5, 1.0),
            distance=F.where(self.mask, FAR_INSIDE, -FAR_INSIDE),
            bary=self.bary,
            stencil=self.mask,
        )


def build_hard_raster(
    vtx_pos: Variable,
    faces: Variable,
    matrix: Variable,
    size: Size,
    cull: Cull | None = None,
    scissor: Sequence[int] | Sequence[Sequence[int]] | None = None,
    jitter: Variable | tuple[float, float] | None = None,
) -> HardRaster:
    """Rasterize faces once, as the hardware covers them.

    vtx_pos: VEC3 @ (N, 1), world units. faces: IVEC3 @ (F, 1), counter-clockwise from outside.
    matrix: MAT4 @ 1x1, layers = views. size: image size in pixels. cull: None, ``back`` or
    ``front``; scissor: a rectangle (x, y, width, height) in pixels, or one per view; both as in
    F.rasterize. jitter: VEC2 @ 1x1 in pixels, shifts the projection. Gradient to vtx_pos and matrix
    through bary and depth; also from the visible part of a face to those of its corners that lie
    behind the camera. Raises GraphError for wrong types, sizes, cull modes and scissors.
    """
    check_variables("hard raster", vtx_pos=vtx_pos, faces=faces, matrix=matrix)
    check_faces(faces)
    if vtx_pos.vtype is not VEC3 or matrix.vtype is not MAT4:
        raise GraphError(
            f"hard raster needs VEC3 positions and a MAT4, got {vtx_pos.label()}, {matrix.label()}"
        )
    clip = project(vtx_pos, matrix)
    know_faces(clip, faces)
    if jitter is not None:
        offset = jitter if isinstance(jitter, Variable) else F.constant(jitter)
        if offset.vtype is not VEC2:
            raise GraphError(f"jitter must be two numbers or a VEC2 @ 1x1, got {offset.label()}")
        moved = clip.xy + offset * (2.0 / size[0], 2.0 / size[1]) * clip.w
        clip = F.vec4(moved, F.swizzle(clip, "zw"))
    return rasterize_corners(gather(clip, faces), size, cull, scissor)


def rasterize_corners(
    corners: Corners,
    size: Size,
    cull: Cull | None = None,
    scissor: Sequence[int] | Sequence[Sequence[int]] | None = None,
    peel: int = 0,
) -> HardRaster:
    """Rasterize faces by their corners.

    corners: three VEC4 tables @ (F, 1), clip positions. peel: number of the depth layer, 0 the
    nearest. The rest as in ``build_hard_raster``. Gradient to the corners through bary and depth.
    """
    frag = F.rasterize(corners, size, cull=cull, scissor=scissor)
    p = F.pixel_coord(size, corners[0].layers) * (2.0 / size[0], 2.0 / size[1]) - 1.0  # NDC
    a, b, c = (F.lookup(F.stop_gradient(t), frag) for t in corners)
    depth = _depth(_weights((a, b, c), p, size, moving=False), (a, b, c))
    ids = F.resolve(frag, depth, background=-1, peel=peel)
    mask = F.to_float(F.compare("gte", ids, 0))
    a, b, c = (F.lookup(t, ids) for t in corners)
    bary = _weights((a, b, c), p, size)
    return HardRaster(
        corners=corners,
        ids=ids,
        bary=F.where(mask, bary, 0.0),
        depth=F.where(mask, _depth(bary, (a, b, c)), 1.0),
        mask=mask,
    )


def _weights(corners: Corners, p: Variable, size: Size, moving: bool = True) -> Variable:
    """VEC3: the perspective-correct weights of corners in clip space at p, in [0, 1].

    The weights l solve l_a (x, y, w)_a + ... = w (p, 1), whichever signs the w have, so nothing
    needs clipping. Moving p to the origin first keeps them exact to the last bits near a corner.
    """
    scale = (0.5 * size[0], 0.5 * size[1])
    a, b, c = ((v.xy - p * v.w) * scale for v in corners)
    w = F.vec3(*(v.w for v in corners))
    return clip_weights((a, b, c), w, SLACK_PX, moving)


def _depth(weights: Variable, corners: Corners) -> Variable:
    """z / w at the pixel: both are linear on the face in clip space."""
    z, w = (F.vec3(*(F.swizzle(v, k) for v in corners)) for k in "zw")
    return F.clamp(F.safe_div(F.dot(weights, z), F.dot(weights, w)), 0.0, 1.0)
