"""What is wrong with a surface: holes, edges of three faces, folds, crossings, spikes; its genus.

In: a mesh. Out: ``SurfaceProblems``, which lists them by number. ``intersections`` finds the faces
that cross.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from dressi.errors import GraphError
from dressi.render.scene.half_edges import EdgeTable
from dressi.render.scene.intersections import intersecting_faces
from dressi.render.scene.mesh import Mesh, flipped_faces, unit_or_zero
from dressi.render.scene.predicates import ExactPoints, has_area
from dressi.render.scene.welding import first_alike

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SurfaceProblems:
    """What ``surface_problems`` found. Numbers are rows of the mesh's positions and faces.

    boundary_edges: (N, 2) vertices of edges with one face. nonmanifold_edges: (N, 2), edges with
    more than two faces. turned_edges: (N, 2), edges whose two faces are turned differently.
    nonmanifold_vertices: (N,), vertices whose faces are more than one fan. degenerate_faces: (N,),
    without area, exactly. flipped_faces: (N,), see ``flipped_faces``. intersections: (N, 2) faces,
    see ``intersecting_faces``. spikes: (N,) vertices; folds: (N, 2) edges, see
    ``surface_problems``. n_components: parts that no edge joins. genera: per component, -1 where
    its edges are not those of an oriented surface; components with borders count as if each border
    were closed by a disk.
    """

    boundary_edges: Ints
    nonmanifold_edges: Ints
    turned_edges: Ints
    nonmanifold_vertices: Ints
    degenerate_faces: Ints
    flipped_faces: Ints
    intersections: Ints
    spikes: Ints
    folds: Ints
    n_components: int
    genera: tuple[int, ...]

    @property
    def genus(self) -> int:
        """Sum of the genera, -1 where one of them is."""
        return -1 if -1 in self.genera else sum(self.genera)

    @property
    def is_closed(self) -> bool:
        """True for a closed, manifold, consistently turned surface."""
        wrong = (self.boundary_edges, self.nonmanifold_edges, self.turned_edges)
        return not any(len(x) for x in (*wrong, self.nonmanifold_vertices))

    @property
    def is_embedded(self) -> bool:
        """True where no face is flipped, without area, or meets another beyond what they share."""
        wrong = (self.degenerate_faces, self.flipped_faces, self.intersections)
        return not any(len(x) for x in wrong)

    def __str__(self) -> str:
        """Return one line: components, genus, and the counts that are not 0."""
        counts = {
            "boundary edges": self.boundary_edges,
            "non-manifold edges": self.nonmanifold_edges,
            "edges turned two ways": self.turned_edges,
            "non-manifold vertices": self.nonmanifold_vertices,
            "faces without area": self.degenerate_faces,
            "flipped faces": self.flipped_faces,
            "intersecting pairs": self.intersections,
            "spikes": self.spikes,
            "folds": self.folds,
        }
        found = [f"{len(rows)} {what}" for what, rows in counts.items() if len(rows)]
        head = f"{self.n_components} component(s) of genus {', '.join(map(str, self.genera))}"
        return f"{head}: {', '.join(found) if found else 'no problems'}"


def surface_problems(
    mesh: Mesh, spike_angle_deg: float = 90.0, fold_angle_deg: float = 150.0
) -> SurfaceProblems:
    """Return what is wrong with a mesh as a surface.

    mesh: vertices at exactly one place count as one (the first of them is named), so seams of UVs
    are no borders. spike_angle_deg: a vertex without border is a spike where the angles of its
    faces add up to less (a plane has 360, a corner of a cube 270, a cone of twice the height of
    its width about 87). fold_angle_deg: an edge is a fold where its faces' normals differ by more
    (a plane has 0, a cube's edge 90, a sheet folded onto itself 180). Intersections are exact, see
    ``intersecting_faces``; about 2 s for 20,000 faces. Raises GraphError (a bad mesh, angles).
    """
    mesh.check()
    for what, angle in (("spike_angle_deg", spike_angle_deg), ("fold_angle_deg", fold_angle_deg)):
        if not 0.0 <= angle <= 360.0:
            raise GraphError(f"surface_problems: {what} must be in [0, 360], got {angle}")
    faces = first_alike(mesh.positions, 0.0)[mesh.faces]
    repeated = (faces == np.roll(faces, 1, axis=1)).any(axis=1)
    area = np.zeros(len(faces), bool)
    points = ExactPoints(mesh.positions.astype(np.float64))
    area[~repeated] = has_area(points, faces[~repeated])
    kept = np.flatnonzero(~repeated)
    table = EdgeTable.of(faces[kept])
    flipped = np.flatnonzero(flipped_faces(mesh.positions, faces) & area)
    n_components, genera = _genera(table, faces[kept])
    return SurfaceProblems(
        boundary_edges=table.edges[table.count == 1],
        nonmanifold_edges=table.edges[table.count > 2],
        turned_edges=table.edges[table.turned],
        nonmanifold_vertices=_split_vertices(table, faces[kept]),
        degenerate_faces=np.flatnonzero(~area),
        flipped_faces=flipped,
        intersections=kept[intersecting_faces(mesh.positions, faces[kept])],
        spikes=_spikes(mesh.positions.astype(np.float64), table, faces[kept], spike_angle_deg),
        folds=_folds(mesh.positions.astype(np.float64), table, faces[kept], fold_angle_deg),
        n_components=n_components,
        genera=genera,
    )


def surface_genus(mesh: Mesh) -> int:
    """Return the genus of ``surface_problems`` alone, -1 where the mesh is no surface: a tenth of
    its time. Raises GraphError (a bad mesh)."""
    mesh.check()
    faces = first_alike(mesh.positions, 0.0)[mesh.faces]
    faces = faces[(faces != np.roll(faces, 1, axis=1)).all(axis=1)]
    genera = _genera(EdgeTable.of(faces), faces)[1]
    return -1 if -1 in genera else sum(genera)


def _components(i: Ints, j: Ints, n: int) -> tuple[int, Ints]:
    n_found, label = connected_components(
        coo_matrix((np.ones(len(i), np.int8), (i, j)), shape=(n, n)), directed=False
    )
    return int(n_found), label.astype(np.int64)


def _split_vertices(table: EdgeTable, faces: Ints) -> Ints:
    """Vertices whose corners are joined across edges into more than one fan."""
    a, b = table.half_edges.T
    next_a, next_b = (h - h % 3 + (h + 1) % 3 for h in (a, b))
    flat = faces.ravel()
    same = flat[a] == flat[b]  # turned alike: a's start is b's start
    i = np.concatenate([a, next_a])
    j = np.concatenate([np.where(same, b, next_b), np.where(same, next_b, b)])
    n, fan = _components(i, j, len(flat))
    vertex_of_fan = np.zeros(n, np.int64)
    vertex_of_fan[fan] = flat
    vertices, count = np.unique(vertex_of_fan, return_counts=True)
    return vertices[count > 1]


def _genera(table: EdgeTable, faces: Ints) -> tuple[int, tuple[int, ...]]:
    """Number of components that edges join, and the genus of each, -1 where it has none."""
    if len(faces) == 0:
        return 0, ()
    order = np.argsort(table.edge, kind="stable")
    along = table.edge[order]
    joined = along[1:] == along[:-1]
    n, label = _components(order[:-1][joined] // 3, order[1:][joined] // 3, len(faces))
    component_of_edge = np.zeros(len(table.edges), np.int64)
    component_of_edge[table.edge] = np.repeat(label, 3)
    size = int(faces.max()) + 1
    vertices = np.unique(np.repeat(label, 3) * size + faces.ravel())  # each once per component
    euler = (
        np.bincount(vertices // size, minlength=n)
        - np.bincount(component_of_edge, minlength=n)
        + np.bincount(label, minlength=n)
    )
    bad = np.bincount(component_of_edge, (table.count > 2) | table.turned, minlength=n) > 0
    border = table.count == 1
    first, second = table.edges[border].T
    _, loop = _components(first, second, size)
    loops = np.unique(component_of_edge[border] * size + loop[first])
    twice = 2 - euler - np.bincount(loops // size, minlength=n)
    bad |= (twice % 2 != 0) | (twice < 0)
    return n, tuple(np.where(bad, -1, twice // 2).tolist())


def _spikes(positions: Floats, table: EdgeTable, faces: Ints, limit_deg: float) -> Ints:
    """Vertices without border whose angles add up to less than the limit."""
    corners = positions[faces]
    ahead, behind = np.roll(corners, -1, axis=1) - corners, np.roll(corners, 1, axis=1) - corners
    normal = np.linalg.norm(np.cross(ahead, behind), axis=2)
    angle = np.arctan2(normal, np.einsum("fki,fki->fk", ahead, behind))
    total = np.bincount(faces.ravel(), angle.ravel(), minlength=len(positions))
    used = np.zeros(len(positions), bool)
    used[faces] = True
    used[table.edges[table.count == 1]] = False
    return np.flatnonzero(used & (total < np.radians(limit_deg)))


def _folds(positions: Floats, table: EdgeTable, faces: Ints, limit_deg: float) -> Ints:
    """Edges of two faces with areas, whose normals differ by more than the limit."""
    a, b, c = np.moveaxis(positions[faces], 1, 0)
    normals = unit_or_zero(np.cross(b - a, c - a))
    first, second = normals[table.half_edges[:, 0] // 3], normals[table.half_edges[:, 1] // 3]
    apart = np.arctan2(
        np.linalg.norm(np.cross(first, second), axis=1), np.einsum("ei,ei->e", first, second)
    )
    solid = (first != 0.0).any(axis=1) & (second != 0.0).any(axis=1)
    return table.edges[table.edge[table.half_edges[:, 0]]][solid & (apart > np.radians(limit_deg))]
