"""Primitives of a glTF document as triangles with attributes, blendshapes and normals.

In: a primitive's object and the buffers. Out: ``Primitive``. Triangle strips and fans become
triangles; lines become strands; points are left out with a note; missing normals are flat (glTF
2.0, 3.7.2.1).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dressi.render.io.gltf_buffers import Buffers, to_float
from dressi.render.io.gltf_compressed import DRACO, draco_values, how_to_read, readable
from dressi.render.io.gltf_json import Json
from dressi.render.io.gltf_skin import Weighted, read_influences
from dressi.render.scene import MorphTarget, Primitive, Strands, face_normals
from dressi.render.scene.checks import MAX_UV_SETS

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]

# attribute -> (types, components that glTF allows, those that KHR_mesh_quantization adds).
# A component is a NumPy type with "n" behind it where it is normalized.
_QUANTIZED = {"i1", "i1n", "u1", "u1n", "i2", "i2n", "u2", "u2n"}
_RULES: dict[str, tuple[set[int], set[str], set[str]]] = {
    "POSITION": ({3}, {"f4"}, _QUANTIZED),
    "NORMAL": ({3}, {"f4"}, {"i1n", "i2n"}),
    "TANGENT": ({4}, {"f4"}, {"i1n", "i2n"}),
    "TEXCOORD": ({2}, {"f4", "u1n", "u2n"}, _QUANTIZED),
    "COLOR": ({3, 4}, {"f4", "u1n", "u2n"}, set()),
    # Of blendshapes: differences, so TANGENT has no w.
    "target POSITION": ({3}, {"f4"}, _QUANTIZED),
    "target NORMAL": ({3}, {"f4"}, {"i1n", "i2n"}),
    "target TANGENT": ({3}, {"f4"}, {"i1n", "i2n"}),
}
_POINTS, _LINES, _LINE_LOOP, _LINE_STRIP = 0, 1, 2, 3
_TRIANGLES, _STRIP, _FAN = 4, 5, 6

SHARE_OF_SIZE = 1e-3
"""Width of lines, which glTF has none of, by the diagonal of their bounding box."""


class Geometry:
    """Reads the primitives of one document. notes: what was left out or filled in."""

    def __init__(
        self, buffers: Buffers, quantized: bool, has_skins: bool, notes: list[str]
    ) -> None:
        self.buffers = buffers
        self.has_skins = has_skins
        self.quantized = quantized
        self.notes = notes

    def _table(self, attributes: Json, name: str, rule: str, n_vertices: int | None) -> Floats:
        index = attributes.row(name, self.buffers.accessors, "accessors")
        accessor, values, normalized = self.buffers.accessor(index)
        widths, plain, more = _RULES[rule]
        component = values.dtype.str[1:] + ("n" if normalized else "")
        if values.shape[1] not in widths:
            raise accessor.fail(f"{name} cannot be {accessor.value['type']}", "type")
        if component not in plain and not (self.quantized and component in more):
            hint = " without KHR_mesh_quantization" if component in more else ""
            text = f"{name} cannot be {values.dtype.name}{' normalized' * normalized}{hint}"
            raise accessor.fail(text, "componentType")
        if n_vertices is not None and len(values) != n_vertices:
            text = f"{name} has {len(values)} elements, POSITION has {n_vertices}"
            raise accessor.fail(text, "count")
        return to_float(accessor, values, normalized)

    def _indices(self, primitive: Json, n_vertices: int) -> Indices:
        row = primitive.optional_row("indices", self.buffers.accessors, "accessors")
        if row is None:
            return np.arange(n_vertices)
        accessor, values, normalized = self.buffers.accessor(row)
        if values.dtype.kind != "u" or values.shape[1] != 1 or normalized:
            raise accessor.fail("indices must be unsigned SCALARs, not normalized")
        flat = values[:, 0].astype(np.int64)
        restart = np.iinfo(values.dtype).max
        bad = (flat == restart) | (flat >= n_vertices)
        if bad.any():
            i = int(bad.argmax())
            why = "means 'restart', which glTF does not allow" if flat[i] == restart else ""
            why = why or f"is out of range: there are {n_vertices} vertices"
            raise accessor.fail(f"index {int(flat[i])} (element {i}) {why}")
        return flat

    def _faces(self, primitive: Json, mode: int, n_vertices: int) -> Indices:
        flat = self._indices(primitive, n_vertices)
        n = len(flat)
        if n < 3 or (mode == _TRIANGLES and n % 3):
            raise primitive.fail(f"{n} corners cannot be triangles of mode {mode}")
        if mode == _TRIANGLES:
            return flat.reshape(-1, 3)
        i = np.arange(n - 2)
        if mode == _STRIP:  # glTF 2.0, 3.7.2.1: every second one turns the other way
            faces = np.stack([flat[i], flat[i + 1 + i % 2], flat[i + 2 - i % 2]], axis=1)
        else:
            faces = np.stack([flat[i + 1], flat[i + 2], np.full(n - 2, flat[0])], axis=1)
        a, b, c = faces.T
        kept = faces[(a != b) & (b != c) & (c != a)]  # a repeated corner only joins two strips
        if len(kept) == 0:
            raise primitive.fail("all triangles of its strip or fan have a repeated corner")
        return kept

    def strands(self, primitive: Json, name: str) -> Strands | None:
        """The lines of a primitive as strands, in its own space; None where it has none.

        Segments of mode LINES that go on where the last one ended are one strand; a LINE_LOOP ends
        at its first vertex. Too few vertices are left out with a note. Raises LoadError as
        ``primitive``.
        """
        mode = primitive.integer("mode", _TRIANGLES)
        attributes = primitive.need("attributes")
        if not _POINTS < mode < _TRIANGLES or not attributes.has("POSITION"):
            return None
        positions = self._table(attributes, "POSITION", "POSITION", None)
        flat = self._indices(primitive, len(positions))
        if len(flat) < 2 or (mode == _LINES and len(flat) % 2):
            text = f"{len(flat)} vertices cannot be lines of mode {mode}; they are left out"
            self.notes.append(f"{primitive.where}: {text}")
            return None
        if mode == _LINES:
            a, b = flat.reshape(-1, 2).T
            begins = np.concatenate([[True], a[1:] != b[:-1]])
            rows = np.insert(b, np.flatnonzero(begins), a[begins])
            counts = np.diff(np.flatnonzero(begins), append=len(a)) + 1
        else:
            rows = np.append(flat, flat[0]) if mode == _LINE_LOOP else flat
            counts = np.array([len(rows)])
        points = positions[rows]
        size = float(np.linalg.norm(np.ptp(points.astype(np.float64), axis=0)))
        widths = np.full(len(points), SHARE_OF_SIZE * size, np.float32)
        return Strands(points, counts.astype(np.int32), widths, name)

    def _targets(self, primitive: Json, names: list[str], n: int) -> tuple[MorphTarget, ...]:
        found = []
        for k, target in enumerate(primitive.objects("targets")):
            positions, normals, tangents = (
                self._table(target, key, f"target {key}", n) if target.has(key) else None
                for key in ("POSITION", "NORMAL", "TANGENT")
            )
            name = names[k] if k < len(names) else ""
            found.append(MorphTarget(positions, normals, tangents, name))
        return tuple(found)

    def primitive(
        self, primitive: Json, material: int | None, target_names: list[str]
    ) -> tuple[Primitive, Weighted | None] | None:
        """One primitive, and its joints and weights where it has some and the document has skins;
        None, with a note, where there is nothing to draw as triangles.

        Raises LoadError: types that glTF does not allow, tables of different length, indices out
        of range, NaN.
        """
        mode = primitive.integer("mode", _TRIANGLES)
        if mode > _FAN:
            raise primitive.fail(f"{mode} is no mode of primitives", "mode")
        attributes = primitive.need("attributes")
        if mode < _TRIANGLES:
            if mode == _POINTS:
                self.notes.append(f"{primitive.where}: points are left out")
            return None
        if not attributes.has("POSITION"):
            self.notes.append(f"{primitive.where}: without POSITION there is nothing to draw")
            return None
        self._unpack_draco(primitive, attributes)
        positions = self._table(attributes, "POSITION", "POSITION", None)
        n = len(positions)
        normals, tangents = (
            self._table(attributes, key, key, n) if attributes.has(key) else None
            for key in ("NORMAL", "TANGENT")
        )
        uvs: list[Floats] = []
        while attributes.has(key := f"TEXCOORD_{len(uvs)}") and len(uvs) < MAX_UV_SETS:
            uvs.append(self._table(attributes, key, "TEXCOORD", n))
        colors = None
        if attributes.has("COLOR_0"):
            colors = self._table(attributes, "COLOR_0", "COLOR", n)
            if colors.shape[1] == 3:
                colors = np.concatenate([colors, np.ones((n, 1), np.float32)], axis=1)
        self._note_unread(primitive, attributes, len(uvs))
        found = Primitive(
            positions,
            self._faces(primitive, mode, n).astype(np.int32),
            normals,
            tangents,
            tuple(uvs),
            colors,
            material,
            self._targets(primitive, target_names, n),
            extras=primitive.extras(),
        )
        influences = read_influences(attributes, self.buffers, n) if self.has_skins else None
        if found.normals is not None:
            return found, influences
        self.notes.append(f"{primitive.where}: no normals; they are flat, and vertices are split")
        if influences is not None:
            rows = found.faces.ravel()
            influences = influences[0][rows], influences[1][rows]
        return with_flat_normals(found), influences

    def _unpack_draco(self, primitive: Json, attributes: Json) -> None:
        """Give the accessors of a primitive the values that are compressed; where it has others,
        which are exact, those stay."""
        packed, accessors = primitive.extension(DRACO), self.buffers.accessors
        if packed is None:
            return
        row = attributes.row("POSITION", accessors, "accessors")
        if accessors[row].has("bufferView"):
            return
        if not readable(DRACO):
            raise primitive.fail(f"its vertices are in {DRACO}, which {how_to_read(DRACO)}")
        tables, indices = draco_values(packed, self.buffers.view(packed)[1])
        for name, values in tables.items():
            self.buffers.decoded[attributes.row(name, accessors, "accessors")] = values
        self.buffers.decoded[primitive.row("indices", accessors, "accessors")] = indices

    def _note_unread(self, primitive: Json, attributes: Json, n_uvs: int) -> None:
        known = {"POSITION", "NORMAL", "TANGENT", "COLOR_0"}
        known |= {f"TEXCOORD_{k}" for k in range(n_uvs)}
        known |= {"JOINTS_0", "WEIGHTS_0"} if self.has_skins else set()
        left = sorted(set(attributes.value) - known)
        if left:
            self.notes.append(f"{primitive.where}: {', '.join(left)} left out")


def with_flat_normals(primitive: Primitive) -> Primitive:
    """The primitive with three vertices of its own for each face, and the face's normal.

    Tangents are dropped, as glTF says: they belong to other normals. Faces of no area get +Y.
    """
    rows = primitive.faces.ravel()
    positions = primitive.positions[rows]
    faces = np.arange(len(rows), dtype=np.int32).reshape(-1, 3)
    normals = face_normals(positions, faces)
    normals[np.linalg.norm(normals, axis=1) < 0.5] = (0.0, 1.0, 0.0)

    def split(table: Floats | None) -> Floats | None:
        return None if table is None else table[rows]

    targets = primitive.targets
    moved = (MorphTarget(split(t.positions), split(t.normals), None, t.name) for t in targets)
    return replace(
        primitive,
        positions=positions,
        faces=faces,
        normals=np.repeat(normals, 3, axis=0),
        tangents=None,
        uvs=tuple(table[rows] for table in primitive.uvs),
        colors=split(primitive.colors),
        targets=tuple(moved),
    )
