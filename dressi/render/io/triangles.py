"""PLY and STL, read and written by trimesh, behind checks of what it would take in silence.

In: a path, or a mesh. Out: a mesh, or a file. Before trimesh reads, the header's counts are held
against the size of the file; after it, what it returns against the header.
"""

from __future__ import annotations

import io
import os
import re
import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
import trimesh
from trimesh.exchange.ply import export_ply
from trimesh.exchange.stl import export_stl

from dressi.errors import GraphError, LoadError
from dressi.render.io.gltf_buffers import read_file
from dressi.render.io.images import PathLike, atomic_write
from dressi.render.mesh import Mesh
from dressi.render.scene_mesh import welded

_STL_HEAD, _STL_FACET = 84, 50  # bytes of binary STL


def _load(data: bytes, file: str, kind: str) -> trimesh.Trimesh:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = trimesh.load(io.BytesIO(data), file_type=kind, process=False)
    except (MemoryError, KeyboardInterrupt):
        raise
    except Exception as error:  # trimesh raises many unrelated classes on broken files
        text = f"{file}: not a readable {kind.upper()}: {type(error).__name__}: {error}"
        raise LoadError(text, file, "data") from error
    if not isinstance(found, trimesh.Trimesh) or len(found.faces) == 0:
        kept = type(found).__name__
        raise LoadError(f"{file}: there are no triangles (trimesh finds a {kept})", file, "faces")
    return found


def _mesh(vertices: npt.ArrayLike, faces: npt.ArrayLike, path: PathLike) -> Mesh:
    file = os.fspath(path)
    with np.errstate(over="ignore"):  # what is beyond float32 becomes infinite, and is refused
        points = np.asarray(vertices, np.float64).astype(np.float32)
    try:
        return Mesh(points, np.asarray(faces, np.int64), name=Path(path).stem).check()
    except GraphError as error:
        raise LoadError(f"{file}: {error.reason}", file, error.reason.partition(":")[0]) from error


def read_ply(path: PathLike) -> Mesh:
    """The mesh of a PLY file, ASCII or binary, in the file's order of vertices.

    Colours, UVs and other properties are left out. Raises LoadError: truncated, faces that are no
    triangles, no faces (point clouds), NaN, indices out of range, a broken header.
    """
    file = os.fspath(path)
    data = read_file(Path(path), file, "file")
    end = re.search(rb"^end_header\r?\n", data[:65536], re.MULTILINE)
    if not data.startswith(b"ply") or end is None:
        raise LoadError(f"{file}: no PLY: it needs 'ply' first and 'end_header'", file, "header")
    counts: dict[str, int] = {}
    for line in data[: end.end()].decode("latin-1").splitlines():
        words = line.split()
        if words[:1] == ["element"]:
            if len(words) != 3 or not words[2].isdigit() or int(words[2]) > len(data):
                text = f"{file}: header: {line[:60]!r} in a file of {len(data)} bytes"
                raise LoadError(text, file, "header")
            counts[words[1]] = int(words[2])
    if not counts.get("vertex") or not counts.get("face"):
        raise LoadError(f"{file}: there are no triangles: {counts}", file, "header")
    found = _load(data, file, "ply")
    if len(found.vertices) != counts["vertex"] or len(found.faces) != counts["face"]:
        text = (
            f"{file}: {len(found.vertices)} vertices and {len(found.faces)} triangles for "
            f"{counts['vertex']} and {counts['face']} of its header: it is truncated, or its faces "
            f"are no triangles (split them)"
        )
        raise LoadError(text, file, "data")
    return _mesh(found.vertices, found.faces, path)


def read_stl(path: PathLike) -> Mesh:
    """The mesh of an STL file, ASCII or binary; corners at the same place become one vertex.

    Normals and attributes are left out. Raises LoadError: truncated, no triangles, NaN.
    """
    file = os.fspath(path)
    data = read_file(Path(path), file, "file")
    n_binary = int.from_bytes(data[80:84], "little") if len(data) >= _STL_HEAD else 0
    if len(data) == _STL_HEAD + _STL_FACET * n_binary and n_binary:
        n_facets = n_binary
    elif data.lstrip()[:5].lower() == b"solid" and b"\0" not in data:
        n_facets = len(re.findall(rb"\bendfacet\b", data, re.IGNORECASE))
        n_corners = len(re.findall(rb"\bvertex\b", data, re.IGNORECASE))
        if n_corners != 3 * n_facets or b"endsolid" not in data.lower():
            text = f"{file}: truncated: {n_corners} corners, {n_facets} facets that end"
            raise LoadError(text, file, "data")
    else:
        text = f"{file}: {len(data)} bytes are no STL of {n_binary} triangles, nor ASCII"
        raise LoadError(text, file, "header")
    found = _load(data, file, "stl")
    if len(found.faces) != n_facets:
        raise LoadError(f"{file}: {len(found.faces)} of {n_facets} triangles", file, "data")
    return welded(_mesh(found.vertices, found.faces, path))


def _export(mesh: Mesh) -> trimesh.Trimesh:
    mesh.check()
    return trimesh.Trimesh(mesh.positions, mesh.faces, process=False)


def write_ply(path: PathLike, mesh: Mesh) -> None:
    """Write a mesh as binary PLY (no UVs), atomically. Raises GraphError (bad mesh), OSError."""
    atomic_write(path, export_ply(_export(mesh), vertex_normal=False))


def write_stl(path: PathLike, mesh: Mesh) -> None:
    """Write a mesh as binary STL (no UVs), atomically. Raises GraphError (bad mesh), OSError."""
    atomic_write(path, export_stl(_export(mesh)))
