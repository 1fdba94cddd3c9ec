"""From world positions to the screen square, and from vertices to faces.

In: vertex tables, matrices. Out: ``ScreenFaces``, per-face corner tables that everything behind
reads. Screen square: pixels divided by max(width, height), origin top left, y down.
"""

from __future__ import annotations

from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.ad.vtype import IVEC3, MAT4, VEC3
from dressi.errors import GraphError

Size = tuple[int, int]

MIN_W = 1e-6
"""Smallest |w| (distance from the plane of the camera, world units) of a projected vertex."""


@dataclass(frozen=True)
class ScreenFaces:
    """Corners of every face on the screen.

    corners: three VEC4 tables @ (F, 1), layers = views: (x, y) in the screen square, depth z in [0,
    1] between near and far, 1 / w. crossing: FLOAT @ (F, 1), 1 where the face crosses the near or
    far plane or lies behind the camera: such faces are clipped, hard, and carry no gradient. size:
    image size in pixels.
    """

    corners: tuple[Variable, Variable, Variable]
    crossing: Variable
    size: Size

    @property
    def layers(self) -> int:
        return self.corners[0].layers

    @property
    def scale(self) -> float:
        """Pixels per unit of the screen square."""
        return float(max(self.size))


def project(vtx_pos: Variable, matrix: Variable) -> Variable:
    """VEC4 clip positions: matrix @ (x, y, z, 1).

    vtx_pos: VEC3 @ (N, 1), world units. matrix: MAT4 @ 1x1, one a view (layers). Gradient to both.
    Raises GraphError for other types.
    """
    if vtx_pos.vtype is not VEC3 or matrix.vtype is not MAT4 or matrix.size != (1, 1):
        raise GraphError(
            "project needs VEC3 positions and a MAT4 @ 1x1, got "
            f"{vtx_pos.label()}, {matrix.label()}"
        )
    return matrix @ F.vec4(vtx_pos, 1.0)


def to_screen(clip: Variable, size: Size, jitter: Variable | None = None) -> Variable:
    """VEC4 (x, y in the screen square, z / w, 1 / w) of clip positions. Gradient to clip.

    jitter: VEC2 @ 1x1, pixels, shifts the whole projection (so that a surface point keeps its own
    uv).
    """
    w, h = size
    m = float(max(size))
    # A vertex in the plane of the camera (w = 0) has no place on the screen; moved by a hair it has
    # one, and its faces, which cross the near plane, stay exact enough to be clipped.
    small = F.stop_gradient(F.abs(clip.w) < MIN_W)
    inv_w = F.safe_div(1.0, F.where(small, MIN_W, clip.w))
    ndc = clip.xyz * inv_w
    xy = ndc.xy * (0.5 * w / m, 0.5 * h / m) + (0.5 * w / m, 0.5 * h / m)
    if jitter is not None:
        xy = xy + jitter * (1.0 / m)
    return F.vec4(xy, ndc.z, inv_w)


def gather(table: Variable, faces: Variable) -> tuple[Variable, Variable, Variable]:
    """The three corner tables @ (F, 1) of a vertex table. faces: IVEC3 @ (F, 1). Gradient to
    table."""
    if faces.vtype is not IVEC3:
        raise GraphError(f"faces must be IVEC3, got {faces.label()}")
    return F.lookup(table, faces.x), F.lookup(table, faces.y), F.lookup(table, faces.z)


def build_screen_faces(
    vtx_pos: Variable, faces: Variable, matrix: Variable, size: Size, jitter: Variable | None = None
) -> ScreenFaces:
    """Project vertices and gather the corners of faces.

    vtx_pos: VEC3 @ (N, 1). faces: IVEC3 @ (F, 1). matrix: MAT4 @ 1x1, layers = views (clip = matrix
    @ x). size: image size in pixels. Gradient to vtx_pos and matrix, except through crossing faces.
    """
    corners = gather(to_screen(project(vtx_pos, matrix), size, jitter), faces)
    crossing = is_crossing(corners)
    safe = tuple(F.where(crossing, F.stop_gradient(c), c) for c in corners)
    return ScreenFaces((safe[0], safe[1], safe[2]), crossing, (int(size[0]), int(size[1])))


def is_crossing(corners: tuple[Variable, Variable, Variable]) -> Variable:
    """1 where a face with these corners is not wholly between the near and the far plane."""
    a, b, c = (F.stop_gradient(v) for v in corners)
    z_low = F.minimum(F.minimum(a.z, b.z), c.z)
    z_high = F.maximum(F.maximum(a.z, b.z), c.z)
    w_low = F.minimum(F.minimum(a.w, b.w), c.w)
    inside = (z_low >= 0.0) * (z_high <= 1.0) * (w_low > 0.0)
    return 1.0 - inside


def pixel_positions(size: Size, layers: int = 1) -> Variable:
    """VEC2 @ size: centres of pixels in the screen square."""
    return F.pixel_coord(size, layers) * (1.0 / float(max(size)))


def check_faces(faces: Variable) -> None:
    """Raise GraphError unless faces is an IVEC3 table."""
    if faces.vtype is not IVEC3 or faces.size[1] != 1 or faces.layers != 1:
        raise GraphError(f"faces must be an IVEC3 table @ (F, 1), got {faces.label()}")
