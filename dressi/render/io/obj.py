"""Wavefront OBJ to ``Mesh``, with the diffuse texture that its material names.

In: an OBJ file (v, vt, f; normals are skipped, they are computed from the faces). Out: one ``Mesh``
in the file's vertex order, with UVs in their own topology and v flipped (OBJ counts v from the
bottom). Differs from trimesh's reader, which mixes up interleaved negative indices, fans concave
polygons and drops all UVs when one face has none.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dressi.errors import LoadError
from dressi.render.io.images import PathLike
from dressi.render.io.mtl import map_file, read_mtl
from dressi.render.mesh import Mesh

_TEXTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tga", ".bmp", ".tif", ".tiff", ".webp")
_MAX_CONCAVE = 500  # ear clipping takes n^3 steps at worst
_SPLIT_HINT = "split it in triangles"


class ObjTables:
    """The tables of one OBJ file while it is read. polygons: line, points, uvs (-1: none)."""

    def __init__(self, file: str, warnings: list[str]) -> None:
        self.file = file
        self.warnings = warnings
        self.points: list[list[float]] = []
        self.uvs: list[list[float]] = []
        self.n_normals = 0
        self.polygons: list[tuple[int, list[int], list[int]]] = []
        self.materials: list[str] = []  # that of each polygon; "": none
        self.libraries: list[str] = []
        self.used: list[str] = []  # materials in order of first use by a face
        self.material = ""

    def fail(self, line: int, problem: str) -> LoadError:
        return LoadError(f"{self.file}: line {line}: {problem}", self.file, f"line {line}")

    def numbers(self, line: int, fields: list[str], n_least: int) -> list[float]:
        if len(fields) < n_least:
            raise self.fail(line, f"at least {n_least} numbers are expected, got {len(fields)}")
        try:
            values = [float(field) for field in fields[:3]]
        except ValueError as error:
            raise self.fail(line, str(error)) from error
        if not all(math.isfinite(value) and abs(value) < 3.4e38 for value in values):
            raise self.fail(
                line, f"a number is NaN, infinite or beyond float32: {' '.join(fields)}"
            )
        return values

    def index(self, line: int, field: str, count: int, what: str) -> int:
        try:
            value = int(field)
        except ValueError as error:
            raise self.fail(line, f"'{field}' is no {what} index") from error
        if value == 0 or value < -count:
            raise self.fail(line, f"{what} index {value} is out of range, there are {count} so far")
        return (
            value - 1 if value > 0 else count + value
        )  # negative: back from here, not from the end

    def face(self, line: int, fields: list[str]) -> None:
        if len(fields) < 3:
            raise self.fail(line, f"a face needs 3 corners or more, got {len(fields)}")
        points, uvs = [], []
        for field in fields:
            parts = field.split("/")
            if len(parts) > 3:
                raise self.fail(line, f"'{field}' is no face corner (v, v/vt, v//vn or v/vt/vn)")
            points.append(self.index(line, parts[0], len(self.points), "vertex"))
            has_uv = len(parts) > 1 and parts[1] != ""
            uvs.append(self.index(line, parts[1], len(self.uvs), "uv") if has_uv else -1)
            if len(parts) == 3 and parts[2] != "":
                self.index(line, parts[2], self.n_normals, "normal")
        self.polygons.append((line, points, uvs))
        self.materials.append(self.material)
        if self.material and self.material not in self.used:
            self.used.append(self.material)

    def read(self, text: str) -> None:
        pending, start = "", 0
        for line, content in enumerate((text + "\n").split("\n"), 1):
            content = pending + content.partition("#")[0].rstrip()
            start = start if pending else line
            if content.endswith("\\"):  # the statement goes on in the next line
                pending = content[:-1] + " "
                continue
            pending = ""
            keyword, *fields = content.split() or [""]
            if keyword == "v":
                self.points.append(self.numbers(start, fields, 3))
            elif keyword == "vt":
                u, v = (self.numbers(start, fields, 1) + [0.0])[:2]
                self.uvs.append([u, 1.0 - v])
            elif keyword == "vn":
                self.n_normals += 1
            elif keyword in ("f", "fo"):
                self.face(start, fields)
            elif keyword == "mtllib":
                self.libraries.append(content.split(None, 1)[1] if fields else "")
            elif keyword == "usemtl":
                self.material = " ".join(fields)


def read_obj(path: PathLike, warnings: list[str] | None = None) -> tuple[Mesh, Path | None]:
    """Read an OBJ file: the mesh, and the path of its diffuse texture (None if there is none).

    path: the file. warnings: a list that gets one line for everything that was missing or dropped
    without being an error (mtllib or texture not found, second texture, faces without UV).
    Polygons are split in triangles: convex ones as a fan, concave ones by ear clipping. Corners
    without a UV, in a file that has UVs, share one extra UV at (0, 0). The texture is the
    ``map_Kd`` of the first used material that has one; failing that, the one image STEM_texture.*
    beside the file. Raises LoadError with the line: bad number, index out of range,
    self-intersecting polygon, no faces.
    """
    tables = parse_obj(path, warnings)
    mesh, _ = build_mesh(tables, Path(path).stem)
    return mesh, _find_texture(tables, Path(path))


def parse_obj(path: PathLike, warnings: list[str] | None = None) -> ObjTables:
    """The tables of a file, at least one face among them. Arguments and errors: ``read_obj``."""
    file = os.fspath(path)
    try:
        if Path(path).exists() and not Path(path).is_file():  # a pipe would never end
            raise LoadError(f"{file}: is no regular file", file, "file")
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        reason = error.strerror or error
        raise LoadError(f"{file}: cannot be read: {reason}", file, "file") from error
    reader = ObjTables(file, [] if warnings is None else warnings)
    reader.read(text)
    if not reader.polygons:
        raise LoadError(f"{file}: there are no faces (f lines)", file, "end of file")
    return reader


def build_mesh(reader: ObjTables, name: str) -> tuple[Mesh, list[int]]:
    """The mesh of the tables, and for each of its faces the polygon that it is part of."""
    points = np.array(reader.points, dtype=np.float64).reshape(-1, 3)
    n_points, n_uvs = len(points), len(reader.uvs)
    faces: list[list[int]] = []
    uv_faces: list[list[int]] = []
    owners: list[int] = []
    for polygon, (line, corners, uvs) in enumerate(reader.polygons):
        if max(corners) >= n_points:
            bad = max(corners) + 1
            raise reader.fail(line, f"vertex index {bad} is out of range, there are {n_points}")
        if max(uvs) >= n_uvs:
            bad = max(uvs) + 1
            raise reader.fail(line, f"uv index {bad} is out of range, there are {n_uvs}")
        for triangle in (
            [(0, 1, 2)] if len(corners) == 3 else _triangulate(reader, line, points[corners])
        ):
            faces.append([corners[k] for k in triangle])
            uv_faces.append([uvs[k] for k in triangle])
            owners.append(polygon)
    positions, corner_uvs = np.array(reader.points, np.float32), np.array(uv_faces, np.int32)
    missing = corner_uvs < 0
    if missing.all():
        return Mesh(positions, np.array(faces, np.int32), name=name).check(), owners
    table = np.array(reader.uvs, dtype=np.float32)
    if missing.any():
        n_missing = int(missing.any(axis=1).sum())
        reader.warnings.append(f"{reader.file}: {n_missing} triangles have no UV; they get (0, 0)")
        corner_uvs[missing] = len(table)
        table = np.concatenate([table, np.zeros((1, 2), np.float32)])
    mesh = Mesh(positions, np.array(faces, np.int32), table, corner_uvs, name)
    return mesh.check(), owners


def _triangulate(
    reader: ObjTables, line: int, points: npt.NDArray[np.float64]
) -> list[tuple[int, int, int]]:
    """Triangles, as corner numbers, of one polygon (N, 3), in the plane of its Newell normal."""
    n = len(points)
    fan = [(0, k, k + 1) for k in range(1, n - 1)]
    local = points - points[0]
    normal = np.cross(local, np.roll(local, -1, axis=0)).sum(axis=0)
    size = float(np.abs(local).max())
    length = float(np.linalg.norm(normal))
    if length <= 1e-12 * size * size:
        if np.linalg.norm(np.cross(local[1:-1], local[2:]), axis=1).max() > 1e-6 * size * size:
            raise reader.fail(line, f"the polygon of {n} corners crosses itself; {_SPLIT_HINT}")
        return fan  # no area: any split is as good
    drop = int(np.abs(normal).argmax())  # look along the main axis, so that the polygon turns left
    keep = [(drop + 1) % 3, (drop + 2) % 3]
    flat = local[:, keep] if normal[drop] > 0 else local[:, keep[::-1]]
    xs, ys = flat[:, 0].tolist(), flat[:, 1].tolist()
    tiny = 1e-10 * size * size

    def turn(i: int, j: int, k: int) -> float:
        return (xs[j] - xs[i]) * (ys[k] - ys[i]) - (ys[j] - ys[i]) * (xs[k] - xs[i])

    # Convex: every corner of the fan turns left (a star polygon turns left too, but its fan does
    # not).
    corners_left = all(turn(k - 1, k, (k + 1) % n) >= -tiny for k in range(n))
    if corners_left and all(turn(*triangle) >= -tiny for triangle in fan):
        return fan
    if n > _MAX_CONCAVE:
        raise reader.fail(line, f"a concave polygon of {n} corners, at most {_MAX_CONCAVE}")
    left, triangles = list(range(n)), []
    while len(left) > 3:
        for at in range(len(left)):
            i, j, k = left[at - 1], left[at], left[(at + 1) % len(left)]
            if turn(i, j, k) <= tiny:
                continue
            inside = any(
                turn(i, j, p) >= -tiny and turn(j, k, p) >= -tiny and turn(k, i, p) >= -tiny
                for p in left
                if p not in (i, j, k) and all((xs[p], ys[p]) != (xs[q], ys[q]) for q in (i, j, k))
            )
            if not inside:
                break
        else:
            raise reader.fail(line, f"the polygon of {n} corners crosses itself; {_SPLIT_HINT}")
        triangles.append((i, j, k))
        del left[at]
    if turn(left[0], left[1], left[2]) < -tiny:
        raise reader.fail(line, f"the polygon of {n} corners crosses itself; {_SPLIT_HINT}")
    return [*triangles, (left[0], left[1], left[2])]


def _find_texture(reader: ObjTables, path: Path) -> Path | None:
    library = read_mtl(path, reader.libraries, reader.file, reader.warnings)
    textures = {name: map_file(words.get("map_Kd", [])) for name, words in library.items()}
    names = dict.fromkeys(textures[m] for m in reader.used if textures.get(m))
    if len(names) > 1:
        reader.warnings.append(f"{reader.file}: {len(names)} textures; only the first is used")
    for name in names:
        found = path.parent / name.replace("\\", "/")
        if found.is_file():
            return found
        reader.warnings.append(f"{reader.file}: texture {name} is not there")
    return texture_beside(path)


def texture_beside(path: Path) -> Path | None:
    """The one image STEM_texture.* beside the file; None where there is none, or several."""
    try:
        beside = sorted(path.parent.iterdir())
    except OSError:
        return None
    fitting = [f for f in beside if f.stem == f"{path.stem}_texture"]
    fitting = [f for f in fitting if f.suffix.lower() in _TEXTURE_SUFFIXES and f.is_file()]
    return fitting[0] if len(fitting) == 1 else None
