"""``Mesh`` and albedo to a GLB file (binary glTF 2.0) that any viewer opens.

In: a mesh, and a linear texture or none. Out: one node, one mesh, one primitive with positions,
normals, UVs and one metallic-roughness material (metallic 0, roughness 1) whose PNG is embedded.
"""

from __future__ import annotations

import numpy.typing as npt

from dressi.render.io.gltf_write import write_gltf
from dressi.render.io.images import PathLike
from dressi.render.scene import Mesh, scene_of


def write_glb(path: PathLike, mesh: Mesh, texture: npt.ArrayLike | None = None) -> None:
    """Write the mesh as GLB, atomically.

    mesh: checked first. Vertices are duplicated where UVs differ, so with UVs the order changes and
    lone vertices are dropped. Normals are area-weighted over the undivided surface: smooth across
    seams. texture: (H, W, 3) linear albedo, clipped to [0, 1], embedded as an 8-bit sRGB PNG; needs
    UVs. None: white. Raises GraphError (bad mesh, bad texture, texture without UVs, another ending
    than .glb or .gltf), OSError.
    """
    write_gltf(path, scene_of(mesh, texture))
