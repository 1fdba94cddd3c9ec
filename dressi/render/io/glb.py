"""``Mesh`` and albedo to a GLB file (binary glTF 2.0) that any viewer opens.

In: a mesh, and a linear texture or none. Out: one node, one mesh, one primitive with positions,
normals, UVs and one metallic-roughness material (metallic 0, roughness 1) whose PNG is embedded.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pygltflib as gltf

from dressi.errors import GraphError
from dressi.render.io.images import PathLike, atomic_write, encode_png
from dressi.render.mesh import Mesh, vertex_normals


def _single_index(
    mesh: Mesh,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32] | None, npt.NDArray[np.integer]]:
    """Rows of positions and uvs for each unique (position, uv) pair, and faces over the pairs."""
    if mesh.uvs is None:
        return np.arange(len(mesh.positions), dtype=np.int32), None, mesh.faces
    pairs = np.stack([mesh.faces, mesh.corner_faces], axis=-1).reshape(-1, 2)
    unique, inverse = np.unique(pairs, axis=0, return_inverse=True)
    return unique[:, 0], unique[:, 1], inverse.reshape(mesh.faces.shape)


def write_glb(path: PathLike, mesh: Mesh, texture: npt.ArrayLike | None = None) -> None:
    """Write the mesh as GLB, atomically.

    mesh: checked first. Vertices are duplicated where UVs differ, so with UVs the order changes and
    lone vertices are dropped. Normals are area-weighted over the undivided surface: smooth across
    seams. texture: (H, W, 3) linear albedo in [0, 1], embedded as an 8-bit sRGB PNG; needs UVs.
    None: white. Raises GraphError (bad mesh, bad texture, texture without UVs), OSError.
    """
    mesh.check()
    if texture is not None and mesh.uvs is None:
        raise GraphError(f"write_glb: mesh '{mesh.name}' has no uvs, so it cannot carry a texture")
    if texture is not None and (np.ndim(texture) != 3 or np.shape(texture)[2] != 3):
        raise GraphError(f"write_glb: the texture must be (H, W, 3), not {np.shape(texture)}")
    rows, uv_rows, faces = _single_index(mesh)
    normals = vertex_normals(mesh.positions, mesh.faces)
    normals[np.linalg.norm(normals, axis=1) < 0.5] = (0.0, 1.0, 0.0)  # glTF wants unit length

    document = gltf.GLTF2(
        asset=gltf.Asset(version="2.0", generator="dressi"),
        scene=0,
        scenes=[gltf.Scene(nodes=[0])],
        nodes=[gltf.Node(mesh=0, name=mesh.name)],
    )
    blob = bytearray()

    def add_view(data: bytes, target: int | None) -> int:
        blob.extend(b"\0" * (-len(blob) % 4))  # accessors must start at multiples of 4
        view = gltf.BufferView(buffer=0, byteOffset=len(blob), byteLength=len(data), target=target)
        document.bufferViews.append(view)
        blob.extend(data)
        return len(document.bufferViews) - 1

    def add_table(table: npt.NDArray[np.float32], kind: str, with_bounds: bool) -> int:
        accessor = gltf.Accessor(
            bufferView=add_view(np.ascontiguousarray(table, "<f4").tobytes(), gltf.ARRAY_BUFFER),
            componentType=gltf.FLOAT,
            count=len(table),
            type=kind,
        )
        if with_bounds:
            accessor.min, accessor.max = table.min(axis=0).tolist(), table.max(axis=0).tolist()
        document.accessors.append(accessor)
        return len(document.accessors) - 1

    is_small = len(rows) < 65535  # 65535 itself means "restart" and is not allowed
    indices = gltf.Accessor(
        bufferView=add_view(
            np.ascontiguousarray(faces, "<u2" if is_small else "<u4").tobytes(),
            gltf.ELEMENT_ARRAY_BUFFER,
        ),
        componentType=gltf.UNSIGNED_SHORT if is_small else gltf.UNSIGNED_INT,
        count=int(faces.size),
        type=gltf.SCALAR,
        min=[int(faces.min())],
        max=[int(faces.max())],
    )
    document.accessors.append(indices)
    attributes = gltf.Attributes(
        POSITION=add_table(mesh.positions[rows], gltf.VEC3, True),
        NORMAL=add_table(normals[rows], gltf.VEC3, False),
    )
    if mesh.uvs is not None and uv_rows is not None:
        attributes.TEXCOORD_0 = add_table(mesh.uvs[uv_rows], gltf.VEC2, False)
    surface = gltf.PbrMetallicRoughness(metallicFactor=0.0, roughnessFactor=1.0)
    if texture is not None:
        png = add_view(encode_png(texture), None)
        document.images.append(gltf.Image(bufferView=png, mimeType="image/png", name="albedo"))
        inside = mesh.uvs is None or bool((mesh.uvs >= 0.0).all() and (mesh.uvs <= 1.0).all())
        wrap = gltf.CLAMP_TO_EDGE if inside else gltf.REPEAT
        # No mipmaps: those of an atlas bleed over the gutters between its charts.
        document.samplers.append(
            gltf.Sampler(
                magFilter=gltf.LINEAR,
                minFilter=gltf.LINEAR,
                wrapS=wrap,
                wrapT=wrap,
            )
        )
        document.textures.append(gltf.Texture(sampler=0, source=0))
        surface.baseColorTexture = gltf.TextureInfo(index=0)
    document.materials.append(
        gltf.Material(name=mesh.name, pbrMetallicRoughness=surface, doubleSided=False)
    )
    primitive = gltf.Primitive(attributes=attributes, indices=0, material=0, mode=gltf.TRIANGLES)
    document.meshes.append(gltf.Mesh(primitives=[primitive], name=mesh.name))
    blob.extend(b"\0" * (-len(blob) % 4))
    document.buffers.append(gltf.Buffer(byteLength=len(blob)))
    document.set_binary_blob(bytes(blob))
    atomic_write(path, b"".join(document.save_to_bytes()))
