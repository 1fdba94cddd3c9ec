"""``Mesh`` to a scene and back.

``Mesh`` has positions and UVs in topologies of their own; a ``Primitive`` has one index for all, so
its vertices are doubled at UV seams. In: either one. Out: the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError
from dressi.render.camera.far import translation
from dressi.render.scene.flat import instances
from dressi.render.scene.mesh import Mesh, vertex_normals
from dressi.render.scene.parts import (
    Image,
    Material,
    Node,
    Primitive,
    SceneMesh,
    SceneWrap,
    TextureRef,
)
from dressi.render.scene.scene import Scene
from dressi.render.scene.welding import weld as same_place


def primitive_of(
    mesh: Mesh,
    material: int | None = None,
    normals: npt.NDArray[np.float32] | None = None,
    normal_faces: npt.NDArray[np.int32] | None = None,
    colors: npt.NDArray[np.float32] | None = None,
) -> Primitive:
    """One primitive with smooth normals: area-weighted over the undivided surface, across seams.

    mesh: checked first. Vertices are doubled where UVs differ, so with UVs their order changes and
    lone vertices are dropped; faces keep their order. material: row of ``Scene.materials``.
    normals: (V, 3), those to take instead, where ``mesh`` is a part of a larger surface.
    normal_faces: (F, 3) rows of ``normals``, which are (N, 3) then, for each corner: vertices are
    doubled where they differ too. colors: (V, 4) linear, of each vertex; None: those of the mesh.
    Raises GraphError for a bad mesh.
    """
    mesh.check()
    colors = mesh.colors if colors is None else colors
    normals = vertex_normals(mesh.positions, mesh.faces) if normals is None else normals.copy()
    normals[np.linalg.norm(normals, axis=1) < 0.5] = (0.0, 1.0, 0.0)  # glTF wants unit length
    tables = [mesh.faces]
    tables += [] if mesh.uvs is None else [mesh.corner_faces]
    tables += [] if normal_faces is None else [normal_faces]
    if len(tables) == 1:
        return Primitive(
            mesh.positions, mesh.faces, normals, colors=colors, material=material, name=mesh.name
        )
    unique, inverse = _distinct(np.stack([t.ravel() for t in tables], axis=-1).astype(np.int64))
    rows = unique[:, 0]
    return Primitive(
        mesh.positions[rows],
        inverse.reshape(mesh.faces.shape).astype(np.int32),
        normals[rows if normal_faces is None else unique[:, -1]],
        uvs=() if mesh.uvs is None else (mesh.uvs[unique[:, 1]],),
        colors=None if colors is None else colors[rows],
        material=material,
        name=mesh.name,
    )


def _distinct(keys: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The distinct rows of (N, k) indices in lexicographic order, and the one of each row."""
    sizes = [int(most) + 1 for most in keys.max(axis=0)]
    if math.prod(sizes) >= 2**63:
        unique, inverse = np.unique(keys, axis=0, return_inverse=True)
        return unique, np.ravel(inverse)
    codes = np.ravel_multi_index(tuple(keys.T), sizes)  # one number sorts ten times as fast
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return keys[first], inverse


def scene_of(mesh: Mesh, albedo: npt.ArrayLike | None = None) -> Scene:
    """A scene of one node, one mesh and one material: metallic 0, roughness 1.

    albedo: (H, W, 3 or 4) linear base colour, needs UVs; None: white. It repeats where UVs leave
    the unit square, else it is clamped, and it has no mipmaps (those of an atlas bleed over its
    gutters). Raises GraphError: bad mesh, bad albedo, albedo without UVs.
    """
    reference: TextureRef | None = None
    images: tuple[Image, ...] = ()
    if albedo is not None:
        if mesh.uvs is None:
            raise GraphError(f"mesh '{mesh.name}' has no uvs, so it cannot carry a texture")
        if np.ndim(albedo) != 3 or np.shape(albedo)[2] not in (3, 4):
            raise GraphError(f"the texture must be (H, W, 3 or 4), not {np.shape(albedo)}")
        images = (Image(np.asarray(albedo), "srgb", "albedo"),)
        inside = bool((mesh.uvs >= 0.0).all() and (mesh.uvs <= 1.0).all())
        wrap: SceneWrap = "clamp" if inside else "repeat"
        reference = TextureRef(0, wrap_u=wrap, wrap_v=wrap, min_filter="linear")
    material = Material(
        base_color_map=reference, metallic=0.0, roughness=1.0, name=mesh.name or "material"
    )
    return one_mesh_scene((primitive_of(mesh, 0),), (material,), images, mesh.name)


def one_mesh_scene(
    primitives: Sequence[Primitive],
    materials: Sequence[Material],
    images: Sequence[Image],
    name: str,
    origin: npt.ArrayLike = (0.0, 0.0, 0.0),
    notes: Sequence[str] = (),
) -> Scene:
    """Return a scene of one mesh, at a node that stands at ``origin``, (3,) world units."""
    return Scene(
        nodes=(Node(translation(np.asarray(origin)), mesh=0, name=name),),
        roots=(0,),
        meshes=(SceneMesh(tuple(primitives), name=name),),
        materials=tuple(materials),
        images=tuple(images),
        name=name,
        notes=tuple(notes),
    )


def welded(mesh: Mesh) -> Mesh:
    """The mesh with vertices at the same place made one; UVs keep their own topology.

    What a renderer wants that moves vertices: one gradient for each point of the surface, no cracks
    at UV seams. Vertices come in the order of the old table; of several the first is kept. The
    tolerance is that of ``weld``: what float32 does not distinguish is one place. A vertex that was
    doubled on purpose (two surfaces that touch) is joined too.
    """
    kept, rows = np.unique(same_place(mesh.positions, mesh.faces), return_inverse=True)
    faces = np.reshape(rows, -1)[mesh.faces].astype(np.int32)
    corner = None if mesh.uvs is None else mesh.corner_faces
    colors = None if mesh.colors is None else mesh.colors[kept]
    return Mesh(mesh.positions[kept], faces, mesh.uvs, corner, mesh.name, colors)


def joined(meshes: list[Mesh]) -> Mesh:
    """One mesh of several, one after the other. UVs are kept where all of them have some.

    Raises GraphError where there is none, or only some have UVs: a mesh cannot say which corners
    have none.
    """
    if not meshes:
        raise GraphError("joined needs one mesh or more: the scene has no triangles")
    with_uvs = [mesh.uvs is not None for mesh in meshes]
    if any(with_uvs) and not all(with_uvs):
        bare = meshes[with_uvs.index(False)].name
        raise GraphError(f"mesh '{bare}' has no uvs, others have: they cannot be one mesh")

    def stack(
        parts: list[npt.NDArray], faces: list[npt.NDArray]
    ) -> tuple[npt.NDArray, npt.NDArray]:
        starts = np.cumsum([0] + [len(part) for part in parts[:-1]])
        moved = [f + start for f, start in zip(faces, starts, strict=True)]
        return np.concatenate(parts), np.concatenate(moved)

    positions, faces = stack([m.positions for m in meshes], [m.faces for m in meshes])
    colors = None
    if any(m.colors is not None for m in meshes):  # those without are white
        white = [np.ones((len(m.positions), 4), np.float32) for m in meshes]
        pairs = zip(meshes, white, strict=True)
        colors = np.concatenate([w if m.colors is None else m.colors for m, w in pairs])
    if not all(with_uvs):
        return Mesh(positions, faces, name=meshes[0].name, colors=colors)
    uvs = [m.uvs for m in meshes if m.uvs is not None]
    table_uvs, uv_faces = stack(uvs, [m.corner_faces for m in meshes])
    return Mesh(positions, faces, table_uvs, uv_faces, meshes[0].name, colors)


def mesh_of(scene: Scene, *, weld: bool = True) -> Mesh:
    """All triangles of a scene as one ``Mesh`` in the world; materials are left out.

    weld: join vertices at the same place (``welded``). Raises GraphError: a scene without
    triangles, or of which only some have UVs.
    """
    parts = [instance.world_mesh() for instance in instances(scene)]
    mesh = joined([welded(part) for part in parts] if weld else parts)
    return replace(mesh, name=scene.name)
