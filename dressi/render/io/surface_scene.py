"""PLY and STL files as scenes of one mesh and one material.

In: a path. Out: ``Scene``; what was left out is in its notes.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from dressi.errors import GraphError, LoadError
from dressi.render.camera.far import translation
from dressi.render.io.images import PathLike, read_image
from dressi.render.io.ply import read_ply
from dressi.render.io.sources import find_beside, not_there
from dressi.render.io.stl import read_stl_moved
from dressi.render.io.surface import Surface
from dressi.render.scene import Image, Material, Node, Scene, SceneMesh, TextureRef, scene_of


def read_ply_scene(path: PathLike) -> Scene:
    """The scene of a PLY file: one mesh with normals, colours and UVs as the file has them.

    The image that a comment ``TextureFile`` names is the base colour, where there are UVs and the
    file names one image only. Vertices far from the origin are kept relative to the node, which
    stands there. Raises LoadError as ``read_ply``, and for a broken image.
    """
    notes: list[str] = []
    surface, name = read_ply(path, notes, moved=True), Path(path).stem
    primitive = surface.primitive(np.ones(len(surface.mesh.faces), bool), 0, name)
    material = Material(metallic=0.0, roughness=1.0, name=name)
    image = _texture(path, surface, notes)
    if image is not None:
        material = replace(material, base_color_map=TextureRef(0))
    scene = Scene(
        nodes=(Node(translation(surface.origin), mesh=0, name=name),),
        roots=(0,),
        meshes=(SceneMesh((primitive,), name=name),),
        materials=(material,),
        images=() if image is None else (image,),
        name=name,
        notes=tuple(notes),
    )
    try:
        return scene.check()
    except GraphError as error:
        file = os.fspath(path)
        raise LoadError(f"{file}: {error.reason}", file, "scene") from error


def _texture(path: PathLike, surface: Surface, notes: list[str]) -> Image | None:
    file, names = os.fspath(path), surface.textures
    if not names:
        return None
    if len(names) > 1 or surface.mesh.uvs is None:
        why = "there are several" if len(names) > 1 else "there are no UVs"
        notes.append(f"{file}: textures {', '.join(names)} left out: {why}")
        return None
    found = find_beside(Path(path).parent, names[0])
    if found is None:
        notes.append(f"{file}: texture {not_there(Path(path).parent, names[0])}")
        return None
    pixels = read_image(found)
    if pixels.shape[2] < 3:
        grey = np.repeat(pixels[..., :1], 3, axis=2)
        pixels = np.concatenate([grey, pixels[..., 1:]], axis=2)
    return Image(pixels, "srgb", found.stem)


def read_stl_scene(path: PathLike) -> Scene:
    """The scene of an STL file: one white mesh with smooth normals. Raises as ``read_stl``."""
    notes: list[str] = []
    mesh, origin = read_stl_moved(path, notes)
    scene = scene_of(mesh)
    nodes = tuple(replace(node, matrix=translation(origin)) for node in scene.nodes)
    return replace(scene, nodes=nodes, notes=tuple(notes))
