"""A mesh as OBJ and PLY files hold it: with normals of its corners and colours of its vertices.

In: tables of a file. Out: ``Surface``, and the primitives of a scene. ``Mesh`` alone is positions,
faces and UVs; the rest is for scenes only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from dressi.render.io.images import srgb_to_linear
from dressi.render.scene import Mesh, Primitive, primitive_of, vertex_normals

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Surface:
    """owners: (F,) the polygon that each face is part of. normals: (N, 3) unit length, with (F, 3)
    normal_faces, or None: smooth ones are computed. colors: (V, 4) linear, or None. textures: names
    of images that the file tells of, relative to its folder. origin: (3,) float64, what was taken
    off the positions."""

    mesh: Mesh
    owners: npt.NDArray[np.int64]
    normals: Floats | None = None
    normal_faces: Rows | None = None
    colors: Floats | None = None
    textures: tuple[str, ...] = ()
    origin: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))

    @property
    def colored_mesh(self) -> Mesh:
        """The mesh with the colours of its vertices."""
        return replace(self.mesh, colors=self.colors)

    def primitive(self, chosen: npt.NDArray[np.bool_], material: int, name: str) -> Primitive:
        """The chosen faces (F,) as one primitive. Computed normals are those of the whole surface.

        Vertices that it does not use are dropped, but where it is the whole surface and none has to
        be doubled: then all keep their order.
        """
        mesh = self.mesh
        normals = self.normals
        if normals is None:
            normals = vertex_normals(mesh.positions, mesh.faces)
        faces = mesh.faces[chosen]
        own = None if self.normal_faces is None else self.normal_faces[chosen]
        if mesh.uvs is not None or own is not None or chosen.all():
            uv_faces = None if mesh.uvs is None else mesh.corner_faces[chosen]
            part = Mesh(mesh.positions, faces, mesh.uvs, uv_faces, name)
            return primitive_of(part, material, normals, own, self.colors)
        used, inverse = np.unique(faces, return_inverse=True)
        part = Mesh(mesh.positions[used], inverse.reshape(faces.shape).astype(np.int32), name=name)
        colors = None if self.colors is None else self.colors[used]
        return primitive_of(part, material, normals[used], None, colors)

    def with_normals(self, normals: npt.ArrayLike, normal_faces: npt.NDArray[np.int64]) -> Surface:
        """The surface with normals of a file. normals: (N, 3) any length. normal_faces: (F, 3)
        rows of them, -1 for none: such corners, and those whose normal is zero or not finite, get
        the smooth normal of their vertex."""
        table = np.asarray(normals, np.float64).reshape(-1, 3)
        with np.errstate(invalid="ignore", over="ignore"):
            length = np.linalg.norm(table, axis=1)
            good = np.isfinite(length) & (length > 1e-20)
        missing = (normal_faces < 0) | ~np.append(good, False)[normal_faces]
        if missing.all():
            return self
        unit = np.zeros(table.shape, np.float32)
        unit[good] = table[good] / length[good, None]
        if missing.any():
            smooth = vertex_normals(self.mesh.positions, self.mesh.faces)
            normal_faces = np.where(missing, len(unit) + self.mesh.faces, normal_faces)
            unit = np.concatenate([unit, smooth])
        return replace(self, normals=unit, normal_faces=normal_faces.astype(np.int32))


def linear_colors(rgb: npt.ArrayLike, alpha: npt.ArrayLike | None = None) -> Floats:
    """(V, 4) linear RGBA of (V, 3) sRGB colours in [0, 1], as scanners and modellers write them."""
    colors = srgb_to_linear(np.clip(np.asarray(rgb, np.float64), 0.0, 1.0))
    ones = np.ones(len(colors)) if alpha is None else np.clip(np.asarray(alpha), 0.0, 1.0)
    return np.concatenate([colors, np.asarray(ones, np.float32)[:, None]], axis=1)
