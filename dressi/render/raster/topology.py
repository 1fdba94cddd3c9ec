"""Topology of faces on the host, as leaves that follow the face table. In: IVEC3 faces. Out:
tables."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.graph import Derived
from dressi.ad.vtype import IVEC3
from dressi.render.raster.projection import ScreenFaces
from dressi.render.scene.welding import Welding, warn_of_open_seams, weld


@dataclass(frozen=True)
class MeshFaces(Derived):
    """How the faces of several meshes in one table come about. Each mesh has neighbours of its
    own: vertices that two meshes have at the same place do not join them."""

    neighbors: Derived | None = None


def face_neighbors(faces: np.ndarray) -> np.ndarray:
    """(F, 3) int32: the face across edge 01, 12, 20 of every face; -1 at a border and where more
    than two faces meet. A face with a corner twice (at the pole of a grid, say) has no neighbours
    and stands between none. faces: (F, 3) ints."""
    f = np.asarray(faces).reshape(-1, 3).astype(np.int64)
    n = len(f)
    start, end = f.reshape(-1), f[:, [1, 2, 0]].reshape(-1)
    low, high = np.minimum(start, end), np.maximum(start, end)
    whole = np.flatnonzero(np.repeat((f != f[:, [1, 2, 0]]).all(axis=1), 3))
    order = whole[np.lexsort((high[whole], low[whole]))]
    low, high = low[order], high[order]
    new = np.ones(len(order), bool)
    new[1:] = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
    group = np.cumsum(new) - 1
    first = np.flatnonzero(new)
    pairs = first[np.bincount(group) == 2]
    out = np.full(3 * n, -1, np.int64)
    out[order[pairs]] = order[pairs + 1] // 3
    out[order[pairs + 1]] = order[pairs] // 3
    return out.reshape(n, 3).astype(np.int32)


def border_vertices(faces: np.ndarray, neighbors: np.ndarray) -> np.ndarray:
    """(n,) int: the vertices of edges that have no face across, each once. faces: (F, 3) ints of
    welded vertices. neighbors: (F, 3), as of ``face_neighbors``. The edges of faces with a corner
    twice are none."""
    whole = (faces != faces[:, [1, 2, 0]]).all(axis=1)
    alone = (neighbors < 0) & whole[:, None]
    return np.unique(np.concatenate([faces[alone], faces[:, [1, 2, 0]][alone]]))


def neighbor_table(faces: Variable, vtx_pos: Variable | None = None) -> Variable:
    """IVEC3 @ (F, 1) leaf of ``face_neighbors``, kept up to date when other faces are sent.

    vtx_pos: VEC3 leaf; vertices that were *sent* at the same place (duplicates at uv seams) count
    as one, to the tolerance of ``weld``; what then looks like a seam that stayed open gives a
    DressiWarning. Where vertices are sent again with the same faces, those of a border that meet
    are joined and those that part are not one any more; others that meet stay what they were.
    A Variable that is no leaf is not looked at. The faces of ``build_batch`` have the neighbours
    that each mesh has by itself. No gradient.
    """
    leaf = Variable(IVEC3, faces.size, name=f"{faces.name or 'faces'}.neighbors")
    if isinstance(faces.derived, MeshFaces):
        leaf.derived = faces.derived.neighbors
    elif vtx_pos is not None and vtx_pos.creator is None and vtx_pos.layers == 1:
        leaf.derived = Derived(faces, WeldedNeighbors(), vtx_pos)
    else:
        leaf.derived = Derived(faces, _neighbors)
    return leaf


def _neighbors(faces: np.ndarray) -> np.ndarray:
    return face_neighbors(faces).reshape(1, 1, -1, 3)


@dataclass(frozen=True, eq=False)
class _Answer:
    """What was found last."""

    given: np.ndarray
    """The faces, as they were given: to see that they are the same is quicker than to compare."""
    faces: np.ndarray
    joined: np.ndarray
    """Faces of welded vertices."""
    neighbors: np.ndarray
    welding: Welding | None
    """Where vertices may lie with the same answer, where that is known."""
    misses: int
    """Weldings in a row that were of no use."""


class WeldedNeighbors:
    """``face_neighbors`` of faces and positions, with vertices welded. A layer sends positions in
    each step: the last answer stays while the vertices that were joined do, and no border could
    have closed. Vertices inside a surface that come to lie on others are not joined then, as in a
    native fit, which sends its vertices once."""

    MISSES = 3
    """Weldings in a row that served no call after which no more are made for these faces: vertices
    of a border lie close, or move far."""

    def __init__(self) -> None:
        self._last: _Answer | None = None

    def __call__(self, faces: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """(1, 1, F, 3) int32."""
        last = self._last  # once: engines in several threads may share a graph
        same = last is not None and (faces is last.given or np.array_equal(faces, last.faces))
        if same and last is not None and last.welding is not None:
            if last.welding.holds(positions):
                if last.misses:
                    self._last = replace(last, misses=0)
                return last.neighbors
            last = replace(last, misses=last.misses + 1, welding=None)
        index = np.asarray(faces).reshape(-1, 3).astype(np.int64)
        first = weld(positions, index)
        joined = first[index]
        if same and last is not None and np.array_equal(joined, last.joined):
            neighbors, misses = last.neighbors.reshape(-1, 3), last.misses
        else:
            neighbors, misses = face_neighbors(joined), 0
        warn_of_open_seams(positions, joined, neighbors)
        ends = border_vertices(joined, neighbors)
        # Distances are not looked for at the first call: a native fit sends its vertices once.
        wanted = len(ends) == 0 or (same and misses < self.MISSES)
        welding = Welding.of(positions, first, ends) if wanted else None
        table = neighbors.reshape(1, 1, -1, 3)
        self._last = _Answer(faces, np.array(faces), joined, table, welding, misses)
        return table

    def __getstate__(self) -> dict[str, object]:
        """A copy finds its own answer."""
        return {"_last": None}


def seen_from_back(drawn: ScreenFaces) -> Variable:
    """FLOAT mask @ (F, 1), layers, of the faces that run clockwise in the picture. Faces that the
    hardware clips, and edge-on ones, count as seen from the front. No gradient."""
    a, b, c = (F.stop_gradient(v).xy for v in drawn.corners)
    u, v = b - a, c - a
    # The picture's y points down.
    return (u.x * v.y - u.y * v.x > 0.0) * (1.0 - drawn.crossing)


def left_out(screen: ScreenFaces, cull: bool | Variable) -> Variable:
    """FLOAT mask, layers, of the rows of ``screen.drawn`` that culling leaves out. cull: True for
    all faces that are seen from their back, or a FLOAT mask @ (F, 1) of the faces that are left out
    then. No gradient."""
    back = seen_from_back(screen.drawn)
    if not isinstance(cull, Variable):
        return back
    return back * (cull if screen.parts is None else F.join([cull] * 3))


def contour_edges(screen: ScreenFaces, neighbors: Variable, front: bool = False) -> Variable:
    """VEC3 mask, layers, of the edges ab, bc, ca of the parts of faces that lie on the contour of a
    view (across which no face lies, or one that is turned the other way; or along the near or the
    far plane), else 0. No gradient.

    front: an edge between a face that is seen from its front and one that is not (counter-clockwise
    faces are) counts for the former only.
    """
    turn = screen.turn
    if turn is None:
        a, b, c = (F.stop_gradient(v).xy for v in screen.corners)
        u, v = b - a, c - a
        turn = F.sign(u.x * v.y - u.y * v.x) * (1.0 - screen.crossing)
    # A border reads 0 (index -1), a face that the hardware clips is 0: both count as contour.
    across = F.vec3(*(F.lookup(turn, F.swizzle(neighbors, k)) for k in "xyz"))
    edges = F.not_equal(across, turn)
    if not front:
        return edges if screen.parts is None else screen.parts.edges(edges)
    # The picture's y points down, so faces that are seen from their front turn the other way.
    edges = F.where((turn > 0.0) * (across < 0.0), 0.0, edges)
    return edges if screen.parts is None else screen.parts.edges(edges)
