"""From world positions to the screen square, and from vertices to faces.

In: vertex tables, matrices. Out: ``ScreenFaces``, per-face corner tables that everything behind
reads. Screen square: pixels divided by max(width, height), origin top left, y down.
"""

from __future__ import annotations

from dataclasses import dataclass

from dressi.ad import F, Variable
from dressi.ad.index_uses import check_sent, note_use
from dressi.ad.vtype import IVEC3, MAT4, VEC3
from dressi.errors import GraphError
from dressi.render.raster.clip import Parts, build_parts
from dressi.render.raster.clip_doubts import clip_doubt, know_faces

Size = tuple[int, int]

MIN_W = 1e-6
"""Smallest |w| (distance from the plane of the camera, world units) of a projected vertex."""


@dataclass(frozen=True)
class ScreenFaces:
    """Corners of every face on the screen.

    corners: three VEC4 tables @ (F, 1), layers = views: (x, y) in the screen square, depth z in [0,
    1] between near and far, 1 / w. crossing: FLOAT @ (F, 1), 1 where the face crosses the near or
    far plane or lies behind the camera: such faces carry no gradient here. size: image size in
    pixels. parts: what is left of the faces between the planes, which is drawn in their place;
    None: crossing faces are clipped by the hardware, hard. turn: FLOAT @ (F, 1), with parts: 1 and
    -1 by the orientation of what is seen of the face.
    """

    corners: tuple[Variable, Variable, Variable]
    crossing: Variable
    size: Size
    parts: Parts | None = None
    turn: Variable | None = None

    @property
    def layers(self) -> int:
        """Number of views."""
        return self.corners[0].layers

    @property
    def drawn(self) -> ScreenFaces:
        """What is drawn, as faces: rows of parts, or these."""
        if self.parts is None:
            return self
        none = F.expand(F.constant(0.0), self.parts.corners[0].size, self.layers)
        return ScreenFaces(self.parts.corners, none, self.size)

    @property
    def scale(self) -> float:
        """Pixels per unit of the screen square."""
        return float(max(self.size))


def project(vtx_pos: Variable, matrix: Variable) -> Variable:
    """VEC4 clip positions: matrix @ (x, y, z, 1).

    vtx_pos: VEC3 @ (N, 1), world units. matrix: MAT4 @ 1x1, one per view (layers). Gradient to
    both. Raises GraphError for other types.
    """
    if vtx_pos.vtype is not VEC3 or matrix.vtype is not MAT4 or matrix.size != (1, 1):
        raise GraphError(
            "project needs VEC3 positions and a MAT4 @ 1x1, got "
            f"{vtx_pos.label()}, {matrix.label()}"
        )
    clip = matrix @ F.vec4(vtx_pos, 1.0)
    clip.doubt = clip_doubt(vtx_pos, matrix, clip.line)
    return clip


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
    """The three corner tables @ (F, 1) of a vertex table (any type @ (N, 1)).

    faces: IVEC3 @ (F, 1). Gradient to table. Raises GraphError for other faces, and, here or when
    they are sent, for corners below 0 or beyond the table.
    """
    if faces.vtype is not IVEC3:
        raise GraphError(f"faces must be IVEC3, got {faces.label()}")
    note_use(table, faces, complete=True)
    if faces.data is not None:
        check_sent(faces, faces.data, "gather")
    return F.lookup(table, faces.x), F.lookup(table, faces.y), F.lookup(table, faces.z)


def build_screen_faces(
    vtx_pos: Variable,
    faces: Variable,
    matrix: Variable,
    size: Size,
    jitter: Variable | None = None,
    clip: bool = False,
) -> ScreenFaces:
    """Project vertices and gather the corners of faces.

    vtx_pos: VEC3 @ (N, 1). faces: IVEC3 @ (F, 1). matrix: MAT4 @ 1x1, layers = views (clip = matrix
    @ x). size: image size in pixels. clip: cut faces at the near and far plane. Gradient to vtx_pos
    and matrix; through crossing faces only with clip.
    """
    return screen_faces_of_clip(project(vtx_pos, matrix), faces, size, jitter, clip)


def screen_faces_of_clip(
    place: Variable,
    faces: Variable,
    size: Size,
    jitter: Variable | None = None,
    clip: bool = False,
) -> ScreenFaces:
    """Gather the corners of faces whose vertices are given in clip space.

    place: VEC4 @ (N, 1), clip positions, z in [0, w]. faces: IVEC3 @ (F, 1), one table or one per
    layer. The rest, and gradients, as in ``build_screen_faces``.
    """
    know_faces(place, faces)
    corners = gather(to_screen(place, size, jitter), faces)
    crossing = is_crossing(corners)
    a, b, c = (F.where(crossing, F.stop_gradient(v), v) for v in corners)
    drawn = (int(size[0]), int(size[1]))
    if not clip:
        return ScreenFaces((a, b, c), crossing, drawn)
    whole = gather(place, faces)
    parts = build_parts((a, b, c), crossing, whole, lambda v: to_screen(v, size, jitter))
    turn = F.where(crossing, _clip_turn(whole), _turn(a, b, c))
    return ScreenFaces((a, b, c), crossing, drawn, parts, turn)


def _turn(a: Variable, b: Variable, c: Variable) -> Variable:
    """FLOAT: sign of the area of corners on the screen. No gradient."""
    u, v = F.stop_gradient(b.xy - a.xy), F.stop_gradient(c.xy - a.xy)
    return F.sign(u.x * v.y - u.y * v.x)


def _clip_turn(corners: tuple[Variable, Variable, Variable]) -> Variable:
    """The same of the visible part of a face, from clip positions. No gradient."""
    a, b, c = (F.swizzle(F.stop_gradient(v), "xyw") for v in corners)
    return F.sign(F.dot(a, F.cross(b, c)))


def is_crossing(corners: tuple[Variable, Variable, Variable]) -> Variable:
    """1 where a face with these corners is not wholly between the near and the far plane."""
    a, b, c = (F.stop_gradient(v) for v in corners)
    z_low = F.minimum(F.minimum(a.z, b.z), c.z)
    z_high = F.maximum(F.maximum(a.z, b.z), c.z)
    w_low = F.minimum(F.minimum(a.w, b.w), c.w)
    inside = (z_low >= 0.0) * (z_high <= 1.0) * (w_low > 0.0)
    return 1.0 - inside


def pixel_positions(size: Size, layers: int = 1) -> Variable:
    """VEC2 @ size: centres of pixels in the screen square. No gradient."""
    return F.pixel_coord(size, layers) * (1.0 / float(max(size)))


def check_variables(who: str, **inputs: object) -> None:
    """Raise GraphError unless the named inputs of a builder are Variables."""
    for what, given in inputs.items():
        if not isinstance(given, Variable):
            raise GraphError(
                f"{who}: {what} must be a Variable, got {type(given).__name__}\n"
                "  hint: make a leaf and send the array to it, or F.leaf(array, vtype)"
            )


def check_size(who: str, size: object, least: int = 1) -> None:
    """Raise GraphError unless size is a (width, height) of that many pixels at least."""
    if not isinstance(size, (tuple, list)) or len(size) != 2 or min(size) < least:
        wanted = f"(width, height) of at least {least}x{least}"
        raise GraphError(f"{who}: size must be {wanted}, got {size!r}")


def check_faces(faces: Variable) -> None:
    """Raise GraphError unless faces is an IVEC3 table."""
    if faces.vtype is not IVEC3 or faces.size[1] != 1 or faces.layers != 1:
        raise GraphError(f"faces must be an IVEC3 table @ (F, 1), got {faces.label()}")
