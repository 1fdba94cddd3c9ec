"""Wavefront OBJ to ``Mesh``, with the diffuse texture that its material names.

In: an OBJ file (v, vt, vn, f, mtllib, usemtl). Out: one ``Mesh`` in the file's vertex order, with
UVs in their own topology and v flipped (OBJ counts v from the bottom); for scenes a ``Surface``,
which has the normals (vn) and the colours behind vertices (v x y z r g b) too. Differs from
trimesh's reader, which mixes up interleaved negative indices, fans concave polygons and drops all
UVs when one face has none.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from dressi.errors import LoadError
from dressi.render.io.mtl import map_file, read_mtl, without_comment
from dressi.render.io.polygons import split_polygons
from dressi.render.io.sources import PathLike, fail, find_beside, not_there, read_text
from dressi.render.io.surface import Surface, linear_colors
from dressi.render.scene.mesh import Mesh

_TEXTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tga", ".bmp", ".tif", ".tiff", ".webp")
_NAMED = ("mtllib", "usemtl", "g ", "o ")  # statements that hold names, which may hold "#"


class ObjTables:
    """The tables of one OBJ file while it is read.

    counts: corners of each polygon, whose line and material stand beside it. corners: of all
    polygons one after the other, rows of points, uvs and normals (-1: none). colors: by vertex.
    """

    def __init__(self, file: str, warnings: list[str]) -> None:
        self.file = file
        self.warnings = warnings
        self.points: list[list[float]] = []
        self.colors: dict[int, list[float]] = {}
        self.uvs: list[list[float]] = []
        self.normals: list[list[float]] = []
        self.lines: list[int] = []
        self.counts: list[int] = []
        self.materials: list[str] = []  # that of each polygon; "": none
        self.corners: list[tuple[int, int, int]] = []
        self.libraries: list[str] = []
        self.used: list[str] = []  # materials in order of first use by a face
        self.material = ""

    def fail(self, line: int, problem: object) -> LoadError:
        return fail(self.file, f"line {line}", problem)

    def note(self, text: str) -> None:
        self.warnings.append(f"{self.file}: {text}")

    def numbers(self, line: int, fields: list[str], n_least: int) -> list[float]:
        if len(fields) < n_least:
            raise self.fail(line, f"at least {n_least} numbers are expected, got {len(fields)}")
        try:
            values = [float(field) for field in fields[:3]]
        except ValueError as error:
            raise self.fail(line, error) from error
        if not all(math.isfinite(value) and abs(value) < 3.4e38 for value in values):
            problem = "a number is NaN, infinite or beyond float32"
            raise self.fail(line, f"{problem}: {' '.join(fields)}")
        return values

    def index(self, line: int, field: str, count: int, what: str) -> int:
        try:
            value = int(field)
        except ValueError as error:
            raise self.fail(line, f"'{field}' is no {what} index") from error
        if value == 0 or value < -count:
            raise self.fail(line, f"{what} index {value} is out of range, there are {count} so far")
        return value - 1 if value > 0 else count + value  # negative: back from here

    def face(self, line: int, fields: list[str]) -> None:
        if len(fields) < 3:
            raise self.fail(line, f"a face needs 3 corners or more, got {len(fields)}")
        for field in fields:
            parts = field.split("/")
            if len(parts) > 3:
                raise self.fail(line, f"'{field}' is no face corner (v, v/vt, v//vn or v/vt/vn)")
            point, uv, normal = self.index(line, parts[0], len(self.points), "vertex"), -1, -1
            if len(parts) > 1 and parts[1] != "":
                uv = self.index(line, parts[1], len(self.uvs), "uv")
            if len(parts) == 3 and parts[2] != "":
                normal = self.index(line, parts[2], len(self.normals), "normal")
            self.corners.append((point, uv, normal))
        self.lines.append(line)
        self.counts.append(len(fields))
        self.materials.append(self.material)
        if self.material and self.material not in self.used:
            self.used.append(self.material)

    def vertex(self, line: int, fields: list[str]) -> None:
        if len(fields) >= 6:  # four or five are x, y, z and a weight
            self.colors[len(self.points)] = self.numbers(line, fields[3:6], 3)
        self.points.append(self.numbers(line, fields, 3))

    def normal(self, line: int, fields: list[str]) -> None:
        try:  # NaN, as some exporters write it for faces without an area, counts as missing
            self.normals.append([float(field) for field in (fields + ["nan"] * 3)[:3]])
        except ValueError as error:
            raise self.fail(line, error) from error

    def read(self, text: str) -> None:
        pending, start = "", 0
        for line, content in enumerate((text + "\n").split("\n"), 1):
            is_named = not pending and content.lstrip().startswith(_NAMED)
            content = without_comment(content) if is_named else content.partition("#")[0]
            content = pending + content.rstrip()
            start = start if pending else line
            if content.endswith("\\"):  # the statement goes on in the next line
                pending = content[:-1] + " "
                continue
            pending = ""
            keyword, *fields = content.split() or [""]
            if keyword == "v":
                self.vertex(start, fields)
            elif keyword == "vt":
                u, v = (self.numbers(start, fields, 1) + [0.0])[:2]
                self.uvs.append([u, 1.0 - v])
            elif keyword == "vn":
                self.normal(start, fields)
            elif keyword in ("f", "fo"):
                self.face(start, fields)
            elif keyword == "mtllib":
                self.libraries.append(content.split(None, 1)[1] if fields else "")
            elif keyword == "usemtl":
                self.material = " ".join(fields)


def read_obj(path: PathLike, warnings: list[str] | None = None) -> tuple[Mesh, Path | None]:
    """Read an OBJ file: the mesh, with its vertex colours, and the path of its diffuse texture
    (None if there is none).

    path: the file. warnings: a list that gets one line for everything that was missing or dropped
    without being an error (mtllib or texture not found, second texture, faces without UV).
    Polygons are split in triangles: convex ones as a fan, concave ones by ear clipping. Corners
    without a UV, in a file that has UVs, share one extra UV at (0, 0). The texture is the
    ``map_Kd`` of the first used material that has one; failing that, the one image STEM_texture.*
    beside the file. Raises LoadError with the line: bad number, index out of range,
    self-intersecting polygon, no faces.
    """
    tables = parse_obj(path, warnings)
    surface = build_surface(tables, Path(path).stem)
    return surface.colored_mesh, _find_texture(tables, Path(path))


def parse_obj(path: PathLike, warnings: list[str] | None = None) -> ObjTables:
    """The tables of a file, at least one face among them. Arguments and errors: ``read_obj``."""
    reader = ObjTables(os.fspath(path), [] if warnings is None else warnings)
    reader.read(read_text(path, reader.file))
    if not reader.counts:
        text = f"{reader.file}: there are no faces (f lines)"
        raise LoadError(text, reader.file, "end of file")
    return reader


def build_surface(reader: ObjTables, name: str) -> Surface:
    """The mesh of the tables with the normals and colours of the file."""
    points = np.array(reader.points, np.float64).reshape(-1, 3)
    table = np.array(reader.corners, np.int64)
    counts = np.array(reader.counts, np.int64)
    sizes = (len(points), len(reader.uvs), len(reader.normals))
    for column, (what, n) in enumerate(zip(("vertex", "uv", "normal"), sizes, strict=True)):
        if (bad := table[:, column] >= n).any():
            corner = int(bad.argmax())
            line = reader.lines[int(np.searchsorted(np.cumsum(counts), corner, "right"))]
            index = int(table[corner, column]) + 1
            raise reader.fail(line, f"{what} index {index} is out of range, there are {n}")

    def broken(polygon: int, problem: str) -> LoadError:
        return reader.fail(reader.lines[polygon], problem)

    rows, owners = split_polygons(points, counts, table[:, 0], broken)
    faces = table[rows]  # (F, 3 corners, 3 tables)
    mesh = Mesh(points.astype(np.float32), faces[:, :, 0].astype(np.int32), name=name).check()
    uvs = np.array(reader.uvs, np.float32).reshape(-1, 2)
    missing = faces[:, :, 1] < 0
    if not missing.all():
        if missing.any():
            n_missing = int(missing.any(axis=1).sum())
            reader.note(f"{n_missing} triangles have no UV; they get (0, 0)")
            faces[missing, 1] = len(uvs)
            uvs = np.concatenate([uvs, np.zeros((1, 2), np.float32)])
        mesh = replace(mesh, uvs=uvs, uv_faces=faces[:, :, 1].astype(np.int32)).check()
    surface = Surface(mesh, owners, colors=_colors(reader))
    return surface.with_normals(reader.normals, faces[:, :, 2])


def _colors(reader: ObjTables) -> np.ndarray | None:
    """(V, 4) linear colours of the vertices; those without one are white. None: no vertex has."""
    if not reader.colors:
        return None
    table = np.ones((len(reader.points), 3))
    rows = np.fromiter(reader.colors, np.int64)
    found = np.array(list(reader.colors.values()))
    if found.max() > 1.0:
        reader.note(f"vertex colours go up to {found.max():g}; they are read as 0 to 255")
        found = found / 255.0
    table[rows] = found
    return linear_colors(table)


def _find_texture(reader: ObjTables, path: Path) -> Path | None:
    library = read_mtl(path, reader.libraries, reader.file, reader.warnings)
    textures = {name: map_file(words.get("map_Kd", "")) for name, words in library.items()}
    names = dict.fromkeys(textures[m] for m in reader.used if textures.get(m))
    if len(names) > 1:
        reader.note(f"{len(names)} textures; only the first is used")
    for name in names:
        found = find_beside(path.parent, name)
        if found is not None:
            return found
        reader.note(f"texture {not_there(path.parent, name)}")
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
