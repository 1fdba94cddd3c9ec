"""Triangle meshes as NumPy arrays: container, checks, topology tables and a UV-mapped sphere.

In: positions and faces. Out: ``Mesh`` and the static tables (neighbours, Laplacian) that the render
builders hand to ``F.lookup``. Positions and UVs have separate topology, so that a vertex on a UV
seam stays one vertex (one gradient) and has several UVs. Faces are counter-clockwise seen from
outside; the UV origin is the top left corner of the texture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dressi.ad.precision import say_rounded
from dressi.errors import GraphError
from dressi.previews import image_html, mesh_picture, table_html, to_screen
from dressi.render.scene.half_edges import EdgeTable

FloatArray = npt.NDArray[np.floating]
IntArray = npt.NDArray[np.integer]
Number = TypeVar("Number", bound=np.floating)


def int32_indices(what: str, indices: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """Return indices as contiguous int32. Raises GraphError for no integers, and beyond int32."""
    array = np.asarray(indices)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise GraphError(f"{what} must be integers, not {array.dtype}")
    if array.size and (array.max() >= 2**31 or array.min() < -(2**31)):
        raise GraphError(f"{what} hold indices beyond int32")
    return np.ascontiguousarray(array, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class Mesh:
    """One triangle mesh. Arrays are converted on construction; ``check`` validates their contents.

    positions: (V, 3) float32, world units. faces: (F, 3) int32, rows of ``positions``.
    uvs: (T, 2) float32 or None, origin top left. uv_faces: (F, 3) int32, rows of ``uvs`` for each
    corner; None while ``uvs`` is given means that ``faces`` index ``uvs`` too (T = V). colors:
    (V, 4) float32 linear RGBA, one per vertex, or None; (V, 3) get an alpha of 1.
    Raises GraphError where faces are no integers or do not fit int32.
    """

    positions: npt.NDArray[np.float32]
    faces: npt.NDArray[np.int32]
    uvs: npt.NDArray[np.float32] | None = None
    uv_faces: npt.NDArray[np.int32] | None = None
    name: str = "mesh"
    colors: npt.NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        say_rounded(f"mesh '{self.name}'", np.asarray(self.positions))
        if self.colors is not None and np.shape(self.colors)[1:] == (3,):
            opaque = np.ones((len(self.colors), 1), np.float32)
            object.__setattr__(self, "colors", np.concatenate([self.colors, opaque], axis=1))
        for field in ("positions", "uvs", "colors"):
            if getattr(self, field) is not None:
                array = np.ascontiguousarray(getattr(self, field), dtype=np.float32)
                object.__setattr__(self, field, array)
        for field in ("faces", "uv_faces"):
            if getattr(self, field) is not None:
                index = int32_indices(f"{field} of mesh '{self.name}'", getattr(self, field))
                object.__setattr__(self, field, index)

    def _repr_html_(self) -> str:
        low, high = self.positions.min(axis=0), self.positions.max(axis=0)
        rows = {
            "vertices": len(self.positions),
            "faces": len(self.faces),
            "uvs": "none" if self.uvs is None else len(self.uvs),
            "colours": "none" if self.colors is None else "one per vertex",
            "from": np.round(low, 4).tolist(),
            "to": np.round(high, 4).tolist(),
        }
        painted = mesh_picture(self.positions, self.faces, self.colors)
        painted = painted[..., :3] + 1.0 - painted[..., 3:]  # on white
        return table_html(f"mesh {self.name}", rows, image_html(to_screen(painted), self.name))

    @property
    def corner_faces(self) -> npt.NDArray[np.int32]:
        """(F, 3) int32: the row of ``uvs`` of each corner (``faces`` where UVs are per vertex)."""
        return self.faces if self.uv_faces is None else self.uv_faces

    def check(self) -> Mesh:
        """Return self, or raise GraphError naming the first bad vertex, UV or face.

        Refused: wrong shapes, no vertex or no face, NaN or infinite values, indices out of range.
        Allowed: lone vertices, degenerate faces.
        """
        self._check_table("positions", "vertex", self.positions, 3)
        self._check_faces("faces", self.faces, len(self.positions), "vertices")
        if self.uvs is not None:
            self._check_table("uvs", "uv", self.uvs, 2)
            self._check_faces("uv_faces", self.corner_faces, len(self.uvs), "uvs")
            if self.corner_faces.shape != self.faces.shape:
                raise GraphError(
                    f"mesh '{self.name}' has {len(self.faces)} faces "
                    f"but {len(self.corner_faces)} uv_faces"
                )
        elif self.uv_faces is not None:
            raise GraphError(f"mesh '{self.name}' has uv_faces but no uvs")
        if self.colors is not None:
            self._check_table("colors", "colour", self.colors, 4)
            if len(self.colors) != len(self.positions):
                raise GraphError(
                    f"mesh '{self.name}' has {len(self.colors)} colors for {len(self.positions)} "
                    "vertices"
                )
        return self

    def _check_table(self, field: str, row_name: str, table: FloatArray, width: int) -> None:
        if table.ndim != 2 or table.shape[1] != width:
            raise GraphError(
                f"{field} of mesh '{self.name}' must be (N, {width}), not {table.shape}"
            )
        if len(table) == 0:
            raise GraphError(f"mesh '{self.name}' is empty: {field} has no rows")
        bad = ~np.isfinite(table).all(axis=1)
        if bad.any():
            i = int(bad.argmax())
            raise GraphError(
                f"{row_name} {i} of mesh '{self.name}' is not finite: {table[i].tolist()}"
            )

    def _check_faces(self, field: str, faces: IntArray, n_rows: int, rows: str) -> None:
        if faces.ndim != 2 or faces.shape[1] != 3:
            raise GraphError(f"{field} of mesh '{self.name}' must be (F, 3), not {faces.shape}")
        if len(faces) == 0:
            raise GraphError(f"mesh '{self.name}' is empty: {field} has no rows")
        bad = ((faces < 0) | (faces >= n_rows)).any(axis=1)
        if bad.any():
            i = int(bad.argmax())
            raise GraphError(
                f"face {i} of mesh '{self.name}' ({field}) is {faces[i].tolist()}: "
                f"out of range, there are {n_rows} {rows}"
            )


def icosphere(subdivisions: int = 4, radius: float = 1.0) -> Mesh:
    """A sphere of ``10 * 4**subdivisions + 2`` vertices (4: 2562, 5120 faces) around the origin.

    subdivisions: 1 to 8 (0 is too coarse for the cube atlas). radius: world units, > 0.
    UVs: ``cube_atlas``; no face crosses a seam and there are no poles. Raises GraphError.
    """
    if not 1 <= subdivisions <= 8:
        raise GraphError(f"icosphere needs 1 to 8 subdivisions, got {subdivisions}")
    if not (np.isfinite(radius) and radius > 0):
        raise GraphError(f"icosphere needs a radius > 0, got {radius}")
    g = (1.0 + 5.0**0.5) / 2.0
    corners = [[-1, g, 0], [1, g, 0], [-1, -g, 0], [1, -g, 0], [0, -1, g], [0, 1, g]]
    corners += [[0, -1, -g], [0, 1, -g], [g, 0, -1], [g, 0, 1], [-g, 0, -1], [-g, 0, 1]]
    fan = [[0, 11, 5], [0, 5, 1], [0, 1, 7], [0, 7, 10], [0, 10, 11], [1, 5, 9], [5, 11, 4]]
    fan += [[11, 10, 2], [10, 7, 6], [7, 1, 8], [3, 9, 4], [3, 4, 2], [3, 2, 6], [3, 6, 8]]
    fan += [[3, 8, 9], [4, 9, 5], [2, 4, 11], [6, 2, 10], [8, 6, 7], [9, 8, 1]]
    points: FloatArray = np.array(corners, dtype=np.float64)
    faces = np.array(fan, dtype=np.int32)
    for _ in range(subdivisions):
        points, faces = _split(points, faces)
        points /= np.linalg.norm(points, axis=1, keepdims=True)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    uvs, uv_faces = cube_atlas(points, faces)
    return Mesh(
        (points * radius).astype(np.float32), faces, uvs, uv_faces, f"icosphere{subdivisions}"
    )


_CUBE = np.array(  # chart -> (u, up, outward) with u x up = outward: textures are not mirrored
    [
        [[0, 0, -1], [0, 1, 0], [1, 0, 0]],
        [[0, 0, 1], [0, 1, 0], [-1, 0, 0]],
        [[1, 0, 0], [0, 0, -1], [0, 1, 0]],
        [[1, 0, 0], [0, 0, 1], [0, -1, 0]],
        [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        [[-1, 0, 0], [0, 1, 0], [0, 0, -1]],
    ],
    dtype=np.float64,
)


def cube_atlas(
    positions: FloatArray, faces: IntArray, texture_size: int = 256, gutter_px: float = 2.0
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """UVs of a sphere-like mesh: six charts (+X -X +Y / -Y +Z -Z) in a grid of 3 columns, 2 rows.

    positions: (V, 3), any scale, star-shaped about the origin. faces: (F, 3).
    Each face goes, whole, to the cube side of its centroid; corners are projected from the centre
    and warped by atan, which keeps texel areas within a factor of about 2. Every chart, with the
    corners that hang over its cube side, stays ``gutter_px`` texels (at ``texture_size``) inside
    its cell, so bilinear footprints of two charts never meet at that size or above.
    Returns uvs (T, 2) float32 and uv_faces (F, 3) int32. Raises GraphError where a face reaches
    behind its cube side (mesh too coarse or not star-shaped).
    """
    corners = np.asarray(positions, dtype=np.float64)[faces]
    centroid = corners.mean(axis=1)
    axis = np.abs(centroid).argmax(axis=1)
    chart = 2 * axis + (np.take_along_axis(centroid, axis[:, None], axis=1)[:, 0] < 0)
    key, inverse = np.unique(chart[:, None] * len(positions) + faces, return_inverse=True)
    frame = _CUBE[key // len(positions)]
    local = np.einsum("tij,tj->ti", frame, np.asarray(positions, np.float64)[key % len(positions)])
    if (local[:, 2] <= 0.05 * np.linalg.norm(local, axis=1)).any():
        raise GraphError("cube_atlas: a face reaches behind its cube side; use a finer mesh")
    plane = np.arctan(local[:, :2] / local[:, 2:]) * [1.0, -1.0]  # v runs down
    cell = np.array([1.0 / 3.0, 0.5])
    scale = (0.5 * cell - gutter_px / texture_size) / np.abs(plane).max(axis=0)
    column_row = np.stack([(key // len(positions)) % 3, (key // len(positions)) // 3], axis=1)
    uvs = (column_row + 0.5) * cell + plane * scale
    return uvs.astype(np.float32), inverse.reshape(faces.shape).astype(np.int32)


def _split(points: FloatArray, faces: IntArray) -> tuple[FloatArray, npt.NDArray[np.int32]]:
    edges = np.sort(faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    unique, inverse = np.unique(edges, axis=0, return_inverse=True)
    mid = inverse.reshape(-1, 3) + len(points)
    middle = points[unique].mean(axis=1).astype(points.dtype)
    a, b, c = faces.T
    ab, bc, ca = mid.T
    parts = np.stack([a, ab, ca, b, bc, ab, c, ca, bc, ab, bc, ca], axis=1).reshape(-1, 3)
    return np.concatenate([points, middle]), parts.astype(np.int32)


def subdivide(mesh: Mesh) -> Mesh:
    """Split each face in four at its edge midpoints; the surface and the texture stay as they were.

    Old vertices keep their rows; UV topology is split by its own edges, so seams stay seams.
    """
    positions, faces = _split(mesh.positions, mesh.faces)
    colors = None if mesh.colors is None else _split(mesh.colors, mesh.faces)[0]
    if mesh.uvs is None:
        return Mesh(positions, faces, name=mesh.name, colors=colors)
    uvs, uv_faces = _split(mesh.uvs, mesh.corner_faces)
    return Mesh(positions, faces, uvs, uv_faces, mesh.name, colors)


def vertex_neighbors(
    faces: IntArray, n_vertices: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Unique neighbours along edges, as CSR: of vertex i ``columns[offsets[i]:offsets[i + 1]]``.

    faces: (F, 3). Returns offsets (V + 1,) int32 and columns (E,) int32, ascending in each row; a
    lone vertex has an empty row, and a face that repeats a corner makes no vertex its own
    neighbour.
    """
    pairs = (
        faces[:, [[0, 1], [1, 2], [2, 0], [1, 0], [2, 1], [0, 2]]].reshape(-1, 2).astype(np.int64)
    )
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    key = np.unique(pairs[:, 0] * n_vertices + pairs[:, 1])
    counts = np.bincount(key // n_vertices, minlength=n_vertices)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return offsets, (key % n_vertices).astype(np.int32)


def uniform_laplacian(
    faces: IntArray, n_vertices: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Rows of L with ``(L x)_i = mean of i's neighbours - x_i``, as CSR (offsets, columns, values).

    Each row holds -1 at its own vertex first, then 1/degree per neighbour; it sums to 0. Rows of
    lone vertices are empty. values: float32.
    """
    offsets, columns = vertex_neighbors(faces, n_vertices)
    degree = np.diff(offsets)
    has = np.flatnonzero(degree)
    at = offsets[has]  # before its first neighbour, each vertex itself
    values = np.insert(np.repeat(1.0 / degree[has], degree[has]), at, -1.0)
    row_starts = np.concatenate([[0], np.cumsum(degree + (degree > 0))])
    columns = np.insert(columns, at, has.astype(np.int32))
    return row_starts.astype(np.int32), columns, values.astype(np.float32)


def area_normals(positions: FloatArray, faces: IntArray) -> npt.NDArray[np.float64]:
    """(F, 3) float64: outward normals whose lengths are the face areas (square world units)."""
    a, b, c = np.moveaxis(np.asarray(positions, dtype=np.float64)[faces], 1, 0)
    return 0.5 * np.cross(b - a, c - a)


def unit_or_zero(vectors: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Return (N, 3) vectors divided by their lengths; 0 where the length is 0."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0)


def face_normals(positions: FloatArray, faces: IntArray) -> npt.NDArray[np.float32]:
    """(F, 3) float32 unit normals, outward for counter-clockwise faces; zero where area is 0."""
    return unit_or_zero(area_normals(positions, faces)).astype(np.float32)


def vertex_normals(positions: FloatArray, faces: IntArray) -> npt.NDArray[np.float32]:
    """(V, 3) float32 unit normals, weighted by face area; zero where no face with area meets."""
    normals = np.repeat(area_normals(positions, faces), 3, axis=0)
    flat = np.ravel(faces)
    sums = [np.bincount(flat, normals[:, k], minlength=len(positions)) for k in range(3)]
    return unit_or_zero(np.asarray(np.stack(sums, axis=1), np.float64)).astype(np.float32)


def surface_area(positions: FloatArray, faces: IntArray) -> float:
    """Sum of the face areas, in square world units."""
    return float(np.linalg.norm(area_normals(positions, faces), axis=1).sum())


def flipped_faces(positions: FloatArray, faces: IntArray) -> npt.NDArray[np.bool_]:
    """(F,) bool: the faces of a closed mesh that are folded over; ``.sum()`` counts them.

    A face is folded when its normal points against (dot < 0) the area-weighted mean normal of the
    faces it shares an edge with. Where the mesh encloses a negative volume it is inside out, and
    the faces that are *not* folded are the flipped ones. Faces of no area are not counted. A crease
    sharper than 90 degrees on all sides of a face counts as a fold; a smooth undercut does not.
    """
    normals = area_normals(positions, faces)
    edge = EdgeTable.of(faces).edge
    spread = np.repeat(normals, 3, axis=0)
    at_edge = np.stack([np.bincount(edge, spread[:, k]) for k in range(3)], axis=1)
    around = at_edge[edge].reshape(-1, 3, 3).sum(axis=1) - 3.0 * normals
    agreement = np.einsum("fi,fi->f", normals, around)
    volume = np.einsum("fi,fi->", np.asarray(positions, np.float64)[faces[:, 0]], normals)
    return agreement < 0 if volume >= 0 else agreement > 0


def bounding_box(positions: FloatArray) -> npt.NDArray[np.float64]:
    """(2, 3) float64: smallest and largest coordinates. Raises GraphError for an empty table."""
    if len(positions) == 0:
        raise GraphError("bounding_box: there are no vertices")
    return np.stack([np.min(positions, axis=0), np.max(positions, axis=0)]).astype(np.float64)
