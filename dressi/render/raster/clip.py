"""What is left of faces between the near and the far plane, as triangles.

In: corners in clip space. Out: ``Parts``, three rows per face: a face that lies between the planes
is its first row. The planes are parallel, so of a triangle at most five corners are left: the face
between the points where its edges begin, and a filler at each corner (at most two) that one plane
cuts off while both of its edges stay. All of it is arithmetic on tables, and points move with the
edges they lie on: gradients reach the corners that were cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dressi.ad import F, Variable

Triple = tuple[Variable, Variable, Variable]

NOWHERE = (-9.0, -9.0, 0.5, 1.0)
"""Screen position (x, y in the screen square, depth, 1 / w) of the corners of rows that are not
drawn: no rim reaches the picture from there."""


@dataclass(frozen=True)
class Parts:
    """Tables of rows @ (3 F, 1), layers: row f, F + f and 2 F + f are the parts of face f.

    corners: three VEC4, screen positions as of ``to_screen``. shares: three VEC3, weights of the
    face's corners at those of the part. cut: FLOAT, 1 for parts of faces that cross a plane.
    n_faces: F. kept: VEC3 mask @ (F, 1) of the face's edges ab, bc, ca that are not all cut off.
    split: VEC3 mask @ (F, 1) of the corners where a filler lies. fillers: two VEC3 masks @ (F, 1),
    the corner of each filler. Gradient of corners and shares to the clip positions.
    """

    corners: Triple
    shares: Triple
    cut: Variable
    n_faces: int
    kept: Variable
    split: Variable
    fillers: tuple[Variable, Variable]

    def face(self, rows: Variable) -> Variable:
        """INT: the face of a row; -1 stays."""
        n = self.n_faces
        second = F.to_int(F.compare("gte", rows, n)) + F.to_int(F.compare("gte", rows, 2 * n))
        return rows - second * n

    def whole_weights(self, rows: Variable, weights: Variable) -> Variable:
        """VEC3: weights of the corners of faces, from those of the corners of rows."""
        cut = F.lookup(self.cut, rows)
        a, b, c = (F.lookup(t, F.where(cut, rows, -1)) for t in self.shares)
        return F.where(cut, a * weights.x + b * weights.y + c * weights.z, weights)

    def edges(self, mask: Variable) -> Variable:
        """VEC3 mask @ (3 F, 1) of the edges of parts, from a VEC3 mask of the edges ab, bc, ca of
        faces: an edge along a plane counts, one between two parts does not. No gradient."""
        left = F.max_components(self.kept)
        whole = F.where(self.kept, mask, F.vec3(left, left, left))
        rows = [whole * (1.0 - F.swizzle(self.split, "yzx"))]
        for at in self.fillers:
            rows.append(F.vec3(F.dot(at, F.swizzle(mask, "zxy")), F.sum_components(at), 0.0))
        return F.join(rows)


@dataclass(frozen=True)
class _Point:
    """A point of a face: VEC4 clip position, VEC3 weights of the face's corners."""

    clip: Variable
    share: Variable

    def towards(self, other: _Point, plane: Callable[[Variable], Variable]) -> _Point:
        """Where the segment to the other meets a plane, from its inner end to its outer one: the
        same bits from both sides, for all faces at an edge."""
        mine, others = plane(self.clip), plane(other.clip)
        inner = F.stop_gradient(mine) >= 0.0
        p, q = _pick(inner, self, other), _pick(inner, other, self)
        e, f = F.where(inner, mine, others), F.where(inner, others, mine)
        t = F.safe_div(e, e - f)
        return _Point(p.clip + (q.clip - p.clip) * t, p.share + (q.share - p.share) * t)


def _pick(mask: Variable, a: _Point, b: _Point) -> _Point:
    return _Point(F.where(mask, a.clip, b.clip), F.where(mask, a.share, b.share))


def _near(clip: Variable) -> Variable:
    return clip.z


def _far(clip: Variable) -> Variable:
    return clip.w - clip.z


def build_parts(
    screen: Triple, crossing: Variable, clip: Triple, to_screen: Callable[[Variable], Variable]
) -> Parts:
    """Cut faces at the near and the far plane.

    screen: VEC4 @ (F, 1), corners as of ``to_screen``, of faces that cross no plane. crossing:
    FLOAT mask @ (F, 1) of those that do. clip: VEC4 @ (F, 1), clip positions of all. to_screen:
    projects clip positions. Gradient to screen and clip.
    """
    before = [F.stop_gradient(v).z < 0.0 for v in clip]
    beyond = [
        (F.stop_gradient(v).w < F.stop_gradient(v).z) * (1.0 - n)
        for v, n in zip(clip, before, strict=True)
    ]
    units = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    v = [_Point(c, F.constant(u)) for c, u in zip(clip, units, strict=True)]
    begin, end, kept = [], [], []
    for i, j in ((0, 1), (1, 2), (2, 0)):
        near, far = v[i].towards(v[j], _near), v[i].towards(v[j], _far)
        begin.append(_pick(before[i], near, _pick(beyond[i], far, v[i])))
        end.append(_pick(before[j], near, _pick(beyond[j], far, v[j])))
        kept.append((1.0 - before[i] * before[j]) * (1.0 - beyond[i] * beyond[j]))
    # At corner i the edge before it ends and its own begins; one that is cut off has no end there.
    left = [_pick(kept[i - 1], end[i - 1], begin[i]) for i in range(3)]
    right = [_pick(kept[i], begin[i], end[i - 1]) for i in range(3)]
    out = [F.maximum(before[i], beyond[i]) for i in range(3)]
    split = F.vec3(*(out[i] * kept[i] * kept[i - 1] for i in range(3)))
    any_kept = F.max_components(F.vec3(*kept))
    first = F.vec3(split.x, split.y * (1.0 - split.x), split.z * (1.0 - split.x) * (1.0 - split.y))
    second = split - first
    seen = F.maximum(1.0 - crossing, any_kept)
    fillers = (first * crossing, second * crossing)

    drawn = [[to_screen(p.clip) for p in side] for side in (left, right)]
    whole = [F.where(crossing, q, p) for p, q in zip(screen, drawn[1], strict=True)]
    corners = [[F.where(seen, p, F.constant(NOWHERE)) for p in whole]]
    shares = [[p.share for p in right]]
    for at in fillers:
        there = F.max_components(at)
        places = _at_corner(at, drawn[0], drawn[1])
        corners.append([F.where(there, p, F.constant(NOWHERE)) for p in places])
        shares.append(_at_corner(at, [p.share for p in left], [p.share for p in right]))
    return Parts(
        corners=_columns(corners),
        shares=_columns(shares),
        cut=F.join([crossing, *(F.max_components(at) for at in fillers)]),
        n_faces=crossing.size[0],
        kept=F.where(crossing, F.vec3(*kept), 1.0),
        split=split * crossing,
        fillers=fillers,
    )


def _at_corner(at: Variable, left: list[Variable], right: list[Variable]) -> list[Variable]:
    """The corners of the filler at the corner in a VEC3 mask: where the edge before begins, where
    it ends, and where the corner's own begins."""
    out = []
    for of, shift in ((right, 1), (left, 0), (right, 0)):
        a, b, c = (of[k - shift] for k in range(3))
        out.append(F.where(at.x, a, F.where(at.y, b, c)))
    return out


def _columns(rows: list[list[Variable]]) -> Triple:
    a, b, c = (F.join([row[k] for row in rows]) for k in range(3))
    return a, b, c
