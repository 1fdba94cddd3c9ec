"""Scenes and meshes by file name: one function to read and one to write each.

In: a path, whose ending says the format. Out: ``Scene`` or ``Mesh``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dressi.errors import GraphError, LoadError
from dressi.render.io.gltf import read_gltf
from dressi.render.io.gltf_write import write_gltf
from dressi.render.io.images import PathLike
from dressi.render.io.obj import read_obj
from dressi.render.io.obj_scene import read_obj_scene, write_obj
from dressi.render.io.ply import read_ply, write_ply
from dressi.render.io.stl import read_stl, write_stl
from dressi.render.io.surface_scene import read_ply_scene, read_stl_scene
from dressi.render.scene import Mesh, Scene, mesh_of, scene_of

_SCENES: dict[str, Callable[[PathLike], Scene]] = {
    ".gltf": read_gltf,
    ".glb": read_gltf,
    ".obj": read_obj_scene,
    ".ply": read_ply_scene,
    ".stl": read_stl_scene,
}
_MESHES: dict[str, Callable[[PathLike], Mesh]] = {
    ".gltf": lambda path: _mesh_of_scene(path),
    ".glb": lambda path: _mesh_of_scene(path),
    ".obj": lambda path: read_obj(path)[0],
    ".ply": lambda path: read_ply(path).mesh,
    ".stl": read_stl,
}


def _mesh_of_scene(path: PathLike) -> Mesh:
    try:
        return mesh_of(read_gltf(path))
    except GraphError as error:
        raise LoadError(f"{path}: {error.reason}", str(path), "meshes") from error


def _ending(path: PathLike, known: dict[str, Callable]) -> str:
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
    """All triangles of a .gltf, .glb, .obj, .ply or .stl file as one ``Mesh``; no materials.

    OBJ and PLY keep the file's order of vertices. glTF: in the world, vertices at the same place
    are one (``scene_mesh.welded``), blendshapes at their default weights. STL: the same, because
    the format repeats every corner. Raises LoadError as ``load_scene``, and where a scene has no
    triangles or UVs on some of them only.
    """
    return _MESHES[_ending(path, _MESHES)](path)


def save_scene(path: PathLike, scene: Scene, *, embed: bool = False) -> tuple[str, ...]:
    """Write a .glb or .gltf file, atomically; returns what was left out. See ``write_gltf``."""
    return write_gltf(path, scene, embed=embed)


def save_mesh(path: PathLike, mesh: Mesh) -> None:
    """Write a mesh as .glb, .gltf, .obj, .ply or .stl, atomically.

    mesh: checked first. OBJ and PLY keep everything of a ``Mesh``; STL has no UVs and no shared
    vertices; glTF doubles vertices at UV seams. Raises GraphError (bad mesh, other ending) and
    OSError.
    """
    writers: dict[str, Callable[[PathLike, Mesh], None]] = {
        ".obj": write_obj,
        ".ply": write_ply,
        ".stl": write_stl,
    }
    suffix = Path(path).suffix.lower()
    if suffix in (".glb", ".gltf"):
        write_gltf(path, scene_of(mesh))
    elif suffix in writers:
        writers[suffix](path, mesh)
    else:
        known = ", ".join([".glb", ".gltf", *writers])
        raise GraphError(f"save_mesh: {Path(path).name}: the ending is none of {known}")
