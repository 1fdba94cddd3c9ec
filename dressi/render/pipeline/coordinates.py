"""Texture coordinates as parameters: ``vtx_uv`` of each mesh (paper, A.2).

In: the meshes of a scene. Out: ``TextureCoordinates``: one table per mesh and UV set, shared by its
primitives and instances. Vertices that are one place and have one UV are one row, so that a fit
tears the map at the file's own seams only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import INT, VEC2
from dressi.render.pipeline.parameters import Parameter, ParameterTable
from dressi.render.scene import Instance, Scene, SceneMesh


@dataclass(eq=False)
class TextureCoordinates:
    """Of one mesh and UV set. rows: for each primitive the row of each vertex in the parameter;
    None for primitives without that set."""

    parameter: Parameter
    rows: tuple[np.ndarray | None, ...]

    def into(self, uvs: Variable, instances: Sequence[Instance], mesh: int) -> Variable:
        """VEC2 @ (rows of attributes, 1): uvs with the parameter in the rows of the mesh, with
        gradient. instances: whose vertices the rows are, one instance after the other."""
        rows = []
        for i in instances:
            own = self.rows[i.part] if i.mesh == mesh else None
            rows.append(np.full(len(i.primitive.positions), -1) if own is None else own)
        index = np.concatenate(rows).astype(np.int32)[:, None]
        row = F.leaf(index, INT, f"{self.parameter.name}.rows")
        found = F.lookup(self.parameter.leaf, row)
        return found if index.min() >= 0 else F.where(row >= 0, found, uvs)


def build_coordinates(
    scene: Scene,
    names: dict[int, str],
    places: dict[int, tuple[np.ndarray, ...]],
    table: ParameterTable,
) -> dict[tuple[int, int], TextureCoordinates]:
    """Leaves of the texture coordinates by (row of ``Scene.meshes``, UV set); adds them to the
    parameters: ``vtx_uv``, and ``vtx_uv1``, ``vtx_uv2`` ... of further sets.

    names: of the meshes in use, by row. places: for each primitive the place (welded vertex) of
    each vertex.
    """
    out: dict[tuple[int, int], TextureCoordinates] = {}
    for row, name in names.items():
        parts = scene.meshes[row].primitives
        for k in range(max((len(p.uvs) for p in parts), default=0)):
            has = [(p, at) for p, at in zip(parts, places[row], strict=True) if k < len(p.uvs)]
            uvs = np.concatenate([p.uvs[k] for p, _ in has]) + np.float32(0.0)  # no -0
            uvs = np.ascontiguousarray(uvs, np.float32)
            # Two of float32 are one number of 64 bits.
            _, number = np.unique(uvs.view(np.uint64), return_inverse=True)
            keys = np.concatenate([at for _, at in has]) * len(uvs) + np.reshape(number, -1)
            _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
            order = np.argsort(first)  # rows in the order of the file
            rank = np.empty_like(order)
            rank[order] = np.arange(len(order))
            ends = np.cumsum([len(at) for _, at in has])
            split = iter(np.split(rank[np.reshape(inverse, -1)], ends))
            rows = tuple(next(split) if k < len(p.uvs) else None for p in parts)
            kind = f"vtx_uv{k or ''}"
            leaf = F.leaf(uvs[first[order]], VEC2, f"{kind}:{name}")
            out[row, k] = TextureCoordinates(table.add(Parameter(kind, name, leaf)), rows)
    return out


def moved_coordinates(
    mesh: SceneMesh, uv_set: int, rows: tuple[np.ndarray | None, ...], value: np.ndarray
) -> SceneMesh:
    """A mesh with other texture coordinates in one set. Its tangents, which followed the old ones,
    are dropped, for the reader to compute. value: (rows, 2)."""
    parts = []
    for p, at in zip(mesh.primitives, rows, strict=True):
        if at is not None:
            uvs = [value[at] if k == uv_set else uv for k, uv in enumerate(p.uvs)]
            p = replace(p, uvs=tuple(uvs), tangents=None)
        parts.append(p)
    return replace(mesh, primitives=tuple(parts))
