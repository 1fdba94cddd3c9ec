"""Skinned meshes of a glTF document in their rest pose: the joints as the nodes place them.

In: the skins, the nodes and the meshes of a document. Out: a scene in which each skinned mesh is
posed once and stands at a root of its own, because glTF lets the joints, not the node, place it
(glTF 2.0, 3.7.3.3). Animations would move the joints; they are not played.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError
from dressi.render.io.gltf_buffers import Buffers, to_float
from dressi.render.io.gltf_carried import Posed
from dressi.render.io.gltf_json import Json
from dressi.render.scene import MorphTarget, Node, Primitive, Scene, SceneMesh, world_matrices
from dressi.render.scene.mesh import unit_or_zero
from dressi.render.scene.parts import Matrix

Floats = npt.NDArray[np.float32]
Weighted = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]


def read_influences(attributes: Json, buffers: Buffers, n: int) -> Weighted | None:
    """(V, 4) joints and (V, 4) weights of a primitive, weights made to sum to 1; None: no skin.

    Raises LoadError: types that glTF does not allow, another count, weights that sum to 0.
    """
    if not (attributes.has("JOINTS_0") and attributes.has("WEIGHTS_0")):
        return None
    tables = []
    for name, kinds in (("JOINTS_0", "u1 u2"), ("WEIGHTS_0", "f4 u1n u2n")):
        index = attributes.row(name, buffers.accessors, "accessors")
        accessor, values, normalized = buffers.accessor(index)
        kind = values.dtype.str[1:] + ("n" if normalized else "")
        if kind not in kinds.split() or values.shape != (n, 4):
            text = f"{name} is {values.shape} of {kind}, needed are ({n}, 4) of {kinds}"
            raise accessor.fail(text)
        tables.append((accessor, values, normalized))
    joints = tables[0][1].astype(np.int64)
    weights = to_float(*tables[1]).astype(np.float64)
    total = weights.sum(axis=1, keepdims=True)
    if (weights < 0.0).any() or (total == 0.0).any():
        raise tables[1][0].fail("weights must not be negative, nor all be 0 for a vertex")
    return joints, weights / total


class Skins:
    """The skins of a document: joints and inverse bind matrices."""

    def __init__(self, document: Json, buffers: Buffers) -> None:
        self.skins = document.objects("skins")
        self._nodes = document.array("nodes")
        self._buffers = buffers

    def matrices(self, row: int, worlds: dict[int, Matrix]) -> npt.NDArray[np.float64]:
        """(J, 4, 4): from the bound mesh to the world, for each joint of a skin."""
        skin = self.skins[row]
        joints = skin.rows("joints", self._nodes, "nodes")
        if not joints:
            raise skin.fail("a skin needs one joint or more", "joints")
        missing = [joint for joint in joints if joint not in worlds]
        if missing:
            raise skin.fail(f"joint {missing[0]} is not in the scene", "joints")
        binds = np.tile(np.eye(4), (len(joints), 1, 1))
        if skin.has("inverseBindMatrices"):
            index = skin.row("inverseBindMatrices", self._buffers.accessors, "accessors")
            accessor, values, normalized = self._buffers.accessor(index)
            if values.dtype.kind != "f" or values.shape[1] != 16 or len(values) < len(joints):
                text = f"{len(joints)} MAT4 of floats are needed, there are {values.shape}"
                raise accessor.fail(text)
            floats = to_float(accessor, values, normalized)[: len(joints)]
            binds = floats.astype(np.float64).reshape(-1, 4, 4).transpose(0, 2, 1)
        return np.stack([worlds[joint] for joint in joints]) @ binds

    def posed(
        self, primitive: Primitive, influences: Weighted, matrices: npt.NDArray[np.float64]
    ) -> Primitive:
        """The primitive in the world: each vertex by the weighted mean of its joints' matrices.

        Raises GraphError for a joint that the skin does not have.
        """
        joints, weights = influences
        used = joints[weights > 0.0]
        if used.max() >= len(matrices):
            raise GraphError(f"JOINTS_0: joint {used.max()} of a skin with {len(matrices)} joints")
        moves = np.einsum("vk,vkij->vij", weights, matrices[np.where(weights > 0.0, joints, 0)])
        linear = moves[:, :3, :3]
        m0, m1, m2 = np.moveaxis(linear, 1, 0)
        # The cofactors: det times the inverse transpose; finite where a joint scales by 0.
        cofactors = np.stack([np.cross(m1, m2), np.cross(m2, m0), np.cross(m0, m1)], axis=1)
        turn = cofactors * np.where(np.linalg.det(linear) < 0.0, -1.0, 1.0)[:, None, None]

        def by(matrix: npt.NDArray[np.float64], table: Floats | None) -> Floats | None:
            if table is None:
                return None
            return np.einsum("vij,vj->vi", matrix, table.astype(np.float64)).astype(np.float32)

        normals, tangents = by(turn, primitive.normals), primitive.tangents
        if tangents is not None:
            along = by(linear, tangents[:, :3])
            assert along is not None
            tangents = np.concatenate([unit_or_zero(along), tangents[:, 3:]], axis=1)
        positions = by(linear, primitive.positions)
        assert positions is not None
        return replace(
            primitive,
            positions=(positions + moves[:, :3, 3]).astype(np.float32),
            normals=None if normals is None else unit_or_zero(normals),
            tangents=tangents,
            targets=tuple(
                MorphTarget(
                    by(linear, t.positions), by(turn, t.normals), by(linear, t.tangents), t.name
                )
                for t in primitive.targets
            ),
        )

    def pose(
        self,
        scene: Scene,
        skin_of: dict[int, int],
        influences: dict[int, list[Weighted | None]],
        notes: list[str],
    ) -> tuple[Scene, list[Posed]]:
        """The scene with each skinned mesh posed, at a root of its own, and what was posed.

        skin_of: node -> skin. influences: mesh -> those of its primitives. A mesh without joints
        and weights stays at its node.
        """
        worlds = dict(world_matrices(scene))
        nodes, meshes, roots = list(scene.nodes), list(scene.meshes), list(scene.roots)
        kept: list[Posed] = []
        for row, skin in skin_of.items():
            node = nodes[row]
            if row not in worlds or node.mesh is None:
                continue
            found = influences[node.mesh]
            if any(entry is None for entry in found):
                notes.append(f"nodes[{row}]: its mesh has no joints and weights; it is not posed")
                continue
            matrices = self.matrices(skin, worlds)
            mesh = meshes[node.mesh]
            parts = zip(mesh.primitives, found, strict=True)
            with np.errstate(over="ignore", invalid="ignore"):  # Scene.check finds what comes of it
                posed = tuple(self.posed(p, e, matrices) for p, e in parts if e is not None)
            text = "its mesh is posed as the nodes stand; the skin is kept while vertices stay"
            notes.append(f"nodes[{row}]: {text}")
            result = SceneMesh(posed, mesh.weights, mesh.name)
            bound = tuple(entry for entry in found if entry is not None)
            kept.append(Posed(row, skin, node.mesh, len(nodes), len(meshes), mesh, result, bound))
            roots.append(len(nodes))
            nodes.append(Node(mesh=len(meshes), weights=node.weights, name=node.name))
            meshes.append(result)
            nodes[row] = replace(node, mesh=None, weights=None)
        made = replace(scene, nodes=tuple(nodes), meshes=tuple(meshes), roots=tuple(roots))
        return made, kept
