"""STL, ASCII and binary, to a mesh; and a mesh to binary STL.

In: a path, or a mesh. Out: a mesh whose corners of equal position are one vertex, or a file. An
ASCII file may hold several solids, a binary one may begin with "solid" and have bytes behind its
triangles.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dressi.errors import LoadError
from dressi.render.camera import far_origin, translation
from dressi.render.io.images import PathLike, atomic_write
from dressi.render.io.sources import blamed_on, decode_text, fail, is_number, read_file
from dressi.render.scene import Mesh, Scene, face_normals, scene_of, welded

_HEAD = 84  # bytes of binary STL
_FACET = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
_VERTEX = re.compile(r"^[ \t]*vertex\b(.*)$", re.MULTILINE | re.IGNORECASE)
_FACET_END = re.compile(r"^[ \t]*endfacet\b", re.MULTILINE | re.IGNORECASE)
_SOLID = re.compile(r"^[ \t]*(end)?solid\b", re.MULTILINE | re.IGNORECASE)


def read_stl(path: PathLike, notes: list[str] | None = None) -> Mesh:
    """The mesh of an STL file, ASCII or binary; corners of equal position become one vertex.

    Positions are float32, in the world; ``read_stl_scene`` keeps the digits of ASCII files of
    places far from the origin. notes: a list that gets one line for what is left out or joined:
    several solids are one mesh. Normals and attributes are left out. Raises LoadError: truncated,
    no triangles, NaN.
    """
    return read_stl_moved(path, notes, moved=False)[0]


def read_stl_moved(
    path: PathLike, notes: list[str] | None = None, moved: bool = True
) -> tuple[Mesh, npt.NDArray[np.float64]]:
    """The mesh, relative to an origin where it lies far from 0, and that origin, (3,) float64."""
    file = os.fspath(path)
    data = read_file(path, file)
    notes = [] if notes is None else notes
    corners = _ascii(file, data, notes) if _is_ascii(data) else _binary(file, data, notes)
    if not len(corners):
        raise LoadError(f"{file}: there are no triangles", file, "faces")
    with np.errstate(over="ignore", invalid="ignore"):  # infinite or NaN is refused
        world = corners.reshape(-1, 3)
        origin = far_origin(world) if moved and np.isfinite(world).all() else np.zeros(3)
        points = (world - origin).astype(np.float32)
    faces = np.arange(len(points), dtype=np.int32).reshape(-1, 3)
    with blamed_on(file):
        mesh = Mesh(points, faces, name=Path(path).stem).check()
    return welded(mesh), origin


def read_stl_scene(path: PathLike) -> Scene:
    """The scene of an STL file: one white mesh with smooth normals. Raises as ``read_stl``."""
    notes: list[str] = []
    mesh, origin = read_stl_moved(path, notes)
    scene = scene_of(mesh)
    nodes = tuple(replace(node, matrix=translation(origin)) for node in scene.nodes)
    return replace(scene, nodes=nodes, notes=tuple(notes))


def _n_binary(data: bytes) -> int:
    return int.from_bytes(data[80:84], "little") if len(data) >= _HEAD else 0


def _is_ascii(data: bytes) -> bool:
    """Not told by the word "solid" alone, which headers of binary files may begin with."""
    n = _n_binary(data)
    if n and len(data) == _HEAD + _FACET.itemsize * n:
        return False
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return True
    head = data.removeprefix(b"\xef\xbb\xbf").lstrip()[:5].lower()
    return head == b"solid" and b"\0" not in data


def _binary(file: str, data: bytes, notes: list[str]) -> npt.NDArray[np.float32]:
    """(F, 3, 3) corners."""
    n = _n_binary(data)
    end = _HEAD + _FACET.itemsize * n
    if len(data) < _HEAD or not n or end > len(data):
        text = f"{file}: {len(data)} bytes are no STL of {n} triangles, nor ASCII"
        raise LoadError(text, file, "header")
    facets = np.frombuffer(data, _FACET, n, _HEAD)
    if end < len(data):
        text = f"{len(data) - end} bytes behind the {n} triangles of its header are left out"
        notes.append(f"{file}: {text}")
    if facets["attribute"].any():
        notes.append(f"{file}: attributes of its triangles (colours) are left out")
    return facets["corners"]


def _ascii(file: str, data: bytes, notes: list[str]) -> npt.NDArray[np.float64]:
    """(F, 3, 3) corners of all solids."""
    text = decode_text(data, file)
    ends = np.array([found.start() for found in _FACET_END.finditer(text)], np.int64)
    starts = np.array([found.start() for found in _VERTEX.finditer(text)], np.int64)

    def broken(place: int, problem: str) -> LoadError:
        return fail(file, f"line {text.count(chr(10), 0, place) + 1}", problem)

    before = np.searchsorted(starts, ends)  # vertices in front of each end of a facet
    n_corners = np.diff(before, prepend=0)
    if (n_corners != 3).any():
        facet = int((n_corners != 3).argmax())
        raise broken(int(ends[facet]), f"a facet of {int(n_corners[facet])} vertices, 3 are needed")
    solids = [bool(found[1]) for found in _SOLID.finditer(text)]
    if len(starts) != 3 * len(ends) or solids.count(True) != solids.count(False):
        problem = f"{len(starts)} vertices, {len(ends)} facets that end, "
        problem += f"{solids.count(False)} solids of which {solids.count(True)} end"
        raise broken(len(text), f"truncated: {problem}")
    if solids.count(False) > 1:
        notes.append(f"{file}: {solids.count(False)} solids are one mesh")
    rows = _VERTEX.findall(text)
    try:  # flat lists of strings and numbers: lists of lists cost three times as much
        bad = next((i for i, row in enumerate(rows) if len(row.split()) != 3), None)
        if bad is None:
            return np.array(list(map(float, " ".join(rows).split()))).reshape(-1, 3, 3)
    except ValueError:
        bad = next(i for i, row in enumerate(rows) if not all(map(is_number, row.split())))
    raise broken(int(starts[bad]), f"no 3 numbers: {rows[bad].strip()[:60]!r}")


def write_stl(path: PathLike, mesh: Mesh) -> None:
    """Write a mesh as binary STL (no UVs), atomically. Raises GraphError (bad mesh), OSError."""
    mesh.check()
    facets = np.zeros(len(mesh.faces), _FACET)
    facets["normal"] = face_normals(mesh.positions, mesh.faces)
    facets["corners"] = mesh.positions[mesh.faces]
    head = b"binary STL".ljust(80) + len(facets).to_bytes(4, "little")
    atomic_write(path, head + facets.tobytes())
