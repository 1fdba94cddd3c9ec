"""Scenes as plain NumPy data, with glTF's meaning: what files are read to and written from.

In: arrays. Out: frozen dataclasses that refer to each other by index, as in glTF 2.0 (Khronos,
sections 3.5 to 3.10). Nothing here is a Variable: a renderer makes leaves out of what it trains and
puts the results back with ``dataclasses.replace``. ``flat`` lists what is to be drawn, with
world matrices; ``checks`` says what is wrong with a scene; ``convert`` converts from and
to ``Mesh``.

``extras`` of every part are what applications put there for themselves: anything that JSON can hold
(Blender's custom properties, say). Dressi keeps them and makes no use of them.

Conventions are Dressi's and glTF's: right-handed, +Y up, counter-clockwise faces, the UV origin top
left, column vectors, colours **linear** (images, factors and vertex colours).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dressi.render.scene.checks import check_scene
from dressi.render.scene.flat import Instance, instances
from dressi.render.scene.parts import Image, Material, Node, PunctualLight, SceneCamera, SceneMesh
from dressi.render.scene.strands import Strands


@dataclass(frozen=True, eq=False)
class Scene:
    """A scene. All references are rows of these tables. roots: nodes that have no parent.

    environment: an equirectangular linear map, or None; glTF has no place for it.
    notes: what the reader left out or filled in, one line each; not part of the scene.
    copyright: of the file, for those who show it.
    strands: hair and other lines, in the world; no writer has a place for them.
    carried: what a glTF file holds besides, for its writer (``dressi.render.io.gltf_carried``).
    """

    nodes: tuple[Node, ...] = ()
    roots: tuple[int, ...] = ()
    meshes: tuple[SceneMesh, ...] = ()
    materials: tuple[Material, ...] = ()
    images: tuple[Image, ...] = ()
    cameras: tuple[SceneCamera, ...] = ()
    lights: tuple[PunctualLight, ...] = ()
    environment: Image | None = None
    name: str = "scene"
    notes: tuple[str, ...] = ()
    extras: Any = None
    copyright: str = ""
    strands: tuple[Strands, ...] = ()
    carried: Any = None

    def check(self) -> Scene:
        """Return self, or raise GraphError naming the first thing that is wrong, and where."""
        check_scene(self)
        return self

    def instances(self) -> list[Instance]:
        """All primitives with world matrices and materials (``flat.instances``)."""
        return instances(self)
