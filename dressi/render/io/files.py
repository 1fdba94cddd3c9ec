"""Scenes and meshes by file name: one function to read and one to write each.

In: a path, whose ending says the format. Out: ``Scene`` or ``Mesh``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy.typing as npt

from dressi.errors import GraphError, LoadError
from dressi.render.io.gltf import read_gltf
from dressi.render.io.gltf_write import write_gltf
from dressi.render.io.images import PathLike
from dressi.render.io.obj import read_obj
from dressi.render.io.obj_scene import read_obj_scene, write_obj
from dressi.render.io.ply import read_ply, read_ply_scene, write_ply
from dressi.render.io.sources import blamed_on
from dressi.render.io.stl import read_stl, read_stl_scene, write_stl
from dressi.render.scene import Mesh, Scene, mesh_of, scene_of


def _mesh_of_scene(path: PathLike) -> Mesh:
    with blamed_on(os.fspath(path)):
        return mesh_of(read_gltf(path))


_SCENES: dict[str, Callable[[PathLike], Scene]] = {
    ".gltf": read_gltf,
    ".glb": read_gltf,
    ".obj": read_obj_scene,
    ".ply": read_ply_scene,
    ".stl": read_stl_scene,
}
_MESHES: dict[str, Callable[[PathLike], Mesh]] = {
    ".gltf": _mesh_of_scene,
    ".glb": _mesh_of_scene,
    ".obj": lambda path: read_obj(path)[0],
    ".ply": lambda path: read_ply(path).colored_mesh,
    ".stl": read_stl,
}


def _ending(path: PathLike, known: dict[str, Callable]) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise GraphError(
            f"path must be the name of a file, got {type(path).__name__}\n  hint: a renderer takes "
            "dressi.render.scene_of(mesh), or a Scene"
        )
    suffix = Path(path).suffix.lower()
    if suffix not in known:
        text = f"{path}: the ending {suffix!r} is none of {', '.join(known)}"
        raise LoadError(text, str(path), "file name")
    return suffix


def load_scene(path: PathLike) -> Scene:
    """The scene of a .gltf, .glb, .obj, .ply or .stl file; what was left out is in ``notes``.

    OBJ: one primitive for each material, with the material's colours and textures. PLY: one mesh
    with the file's normals, colours, UVs and texture, where it has them. STL: one white mesh with
    smooth normals. Raises LoadError: another ending, and all that the readers raise
    (``read_gltf``, ``read_obj``, ``read_ply``, ``read_stl``).
    """
    return _SCENES[_ending(path, _SCENES)](path)


def load_mesh(path: PathLike) -> Mesh:
    """All triangles of a .gltf, .glb, .obj, .ply or .stl file as one ``Mesh``: positions, UVs and
    vertex colours; no materials.

    OBJ and PLY keep the file's order of vertices. glTF: in the world, vertices at the same place
    are one (``scene_mesh.welded``), blendshapes at their default weights. STL: the same, because
    the format repeats every corner. Raises LoadError as ``load_scene``, and where a scene has no
    triangles or UVs on some of them only.
    """
    return _MESHES[_ending(path, _MESHES)](path)


def save_scene(path: PathLike, scene: Scene, *, embed: bool = False) -> tuple[str, ...]:
    """Write a .glb or .gltf file, atomically; returns what was left out. See ``write_gltf``."""
    return write_gltf(path, scene, embed=embed)


def write_glb(path: PathLike, mesh: Mesh, texture: npt.ArrayLike | None = None) -> None:
    """Write a mesh and its albedo as GLB (binary glTF 2.0), atomically, for any viewer.

    mesh: checked first. Vertices are duplicated where UVs differ, so with UVs the order changes and
    lone vertices are dropped. Normals are area-weighted over the undivided surface: smooth across
    seams. texture: (H, W, 3) linear albedo, clipped to [0, 1], embedded as an 8-bit sRGB PNG; needs
    UVs. None: white. Raises GraphError (bad mesh, bad texture, texture without UVs, another ending
    than .glb or .gltf), OSError.
    """
    write_gltf(path, scene_of(mesh, texture))


def save_mesh(path: PathLike, mesh: Mesh) -> None:
    """Write a mesh as .glb, .gltf, .obj, .ply or .stl, atomically.

    mesh: checked first. OBJ and PLY keep everything of a ``Mesh``, colours as sRGB (OBJ without
    alpha, PLY in 8 bits); STL has no UVs, no colours and no shared vertices; glTF doubles vertices
    at UV seams. Raises GraphError (bad mesh, other ending) and
    OSError.
    """
    writers: dict[str, Callable[[PathLike, Mesh], None]] = {
        ".glb": write_glb,
        ".gltf": write_glb,
        ".obj": write_obj,
        ".ply": write_ply,
        ".stl": write_stl,
    }
    suffix = Path(path).suffix.lower()
    if suffix not in writers:
        known = ", ".join(writers)
        raise GraphError(f"save_mesh: {Path(path).name}: the ending is none of {known}")
    writers[suffix](path, mesh)
