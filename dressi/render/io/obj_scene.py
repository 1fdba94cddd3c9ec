"""OBJ to ``Scene`` with one primitive for each material, and ``Mesh`` to OBJ.

In: an OBJ file and its material libraries, or a mesh. Out: a scene, or a file. Phong's materials
become metallic-roughness: Kd is the base colour, d the alpha, Ke the emission; roughness is Pr, or
sqrt(2 / (Ns + 2)) (the width of the highlight, Walter et al. 2007, eq. for Blinn-Phong), metallic
is Pm or 0. Colours in a library count as linear, images as sRGB.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from dressi.render.camera.far import far_origin
from dressi.render.io.images import PathLike, atomic_write, linear_to_srgb, read_image, with_colors
from dressi.render.io.mtl import map_file, read_mtl
from dressi.render.io.obj import ObjTables, build_surface, parse_obj, texture_beside
from dressi.render.io.sources import blamed_on, fail, find_beside, not_there
from dressi.render.scene import Image, Material, Mesh, Scene, TextureRef
from dressi.render.scene.convert import one_mesh_scene
from dressi.render.scene.parts import COLOR_MAPS, ColorSpace

_MAPS = {"map_Kd": "base_color_map", "map_Ke": "emissive_map", "norm": "normal_map"}
_UNREAD = ("map_Bump", "map_bump", "bump", "map_d", "map_Ks", "map_Pr", "map_Pm", "map_Ka", "disp")


class _Library:
    """Turns the materials of a file into ours; each image is read once."""

    def __init__(self, tables: ObjTables, path: Path) -> None:
        self.tables, self.path = tables, path
        self.words = read_mtl(path, tables.libraries, tables.file, tables.warnings)
        self.images: list[Image] = []
        self._rows: dict[tuple[Path, str], int] = {}

    def map_to(self, file: Path, color_space: ColorSpace) -> TextureRef:
        if (file, color_space) not in self._rows:
            pixels = with_colors(read_image(file, color_space == "srgb"))
            self._rows[file, color_space] = len(self.images)
            self.images.append(Image(pixels, color_space, file.stem))
        return TextureRef(self._rows[file, color_space])

    def _numbers(self, name: str, text: str, n: int) -> tuple[float, ...]:
        words = text.partition("#")[0].split()
        try:
            values = tuple(float(word) for word in words[:n])
        except ValueError:
            values = ()
        if len(values) != n or not all(math.isfinite(v) and v >= 0.0 for v in values):
            problem = f"{' '.join(words[:4])!r} are no {n} numbers >= 0"
            raise fail(self.tables.file, f"material {name!r}", problem)
        return values

    def material(self, name: str) -> Material:
        words = self.words.get(name)
        if words is None:
            if name:
                self.tables.note(f"material {name!r} is in none of its libraries; it is white")
            return Material(metallic=0.0, roughness=1.0, name=name)

        def number(key: str, default: float) -> float:
            return self._numbers(name, words[key], 1)[0] if key in words else default

        maps: dict[str, Any] = {}
        for key, field in _MAPS.items():
            if key not in words:
                continue
            file = find_beside(self.path.parent, map_file(words[key]))
            if file is not None:
                maps[field] = self.map_to(file, "srgb" if field in COLOR_MAPS else "linear")
            else:
                self.tables.note(f"texture {not_there(self.path.parent, map_file(words[key]))}")
        left = [key for key in _UNREAD if key in words]
        if left:
            self.tables.note(f"material {name!r}: {', '.join(left)} left out")
        color = self._numbers(name, words["Kd"], 3) if "Kd" in words else (1.0, 1.0, 1.0)
        if "base_color_map" in maps and not any(color):
            color = (1.0, 1.0, 1.0)  # exporters write Kd 0 beside a texture and mean the texture
        alpha = number("d", 1.0 - min(number("Tr", 0.0), 1.0))
        default = math.sqrt(2.0 / (number("Ns", 0.0) + 2.0))
        emissive: Any = self._numbers(name, words["Ke"], 3) if "Ke" in words else (0.0, 0.0, 0.0)
        if "emissive_map" in maps and not any(emissive):
            emissive = (1.0, 1.0, 1.0)
        return Material(
            base_color=(color[0], color[1], color[2], min(alpha, 1.0)),
            metallic=min(number("Pm", 0.0), 1.0),
            roughness=min(number("Pr", default), 1.0),
            emissive=emissive,
            alpha_mode="BLEND" if alpha < 1.0 else "OPAQUE",
            name=name,
            **maps,
        )


def read_obj_scene(path: PathLike) -> Scene:
    """The scene of an OBJ file: one mesh, one primitive for each material that faces use.

    Normals are those of the file (vn); corners that have none get smooth ones, area-weighted over
    the whole surface, across materials. Smoothing groups are left out. Colours behind vertices
    (v x y z r g b) are sRGB and become vertex colours. Without any map in the used materials the
    one image STEM_texture.* beside the file is taken. Vertices far from the origin, as scanners
    write them, are kept relative to the node, which stands there. ``notes`` say what was missing.
    Raises LoadError as ``read_obj``, and for unreadable images and bad numbers in a library.
    """
    notes: list[str] = []
    file = Path(path)
    tables = parse_obj(path, notes)
    # Scanners write UTM coordinates: the place goes to the node's matrix, in float64.
    points = np.array(tables.points, np.float64).reshape(-1, 3)
    origin = far_origin(points)
    tables.points = (points - origin).tolist() if origin.any() else tables.points
    surface = build_surface(tables, file.stem)
    mesh = surface.mesh
    names = list(dict.fromkeys(tables.materials))
    rows = np.array([names.index(material) for material in tables.materials])
    material_of = rows[surface.owners]
    library = _Library(tables, file)
    materials = [library.material(name) for name in names]
    beside = texture_beside(file)
    if beside is not None and mesh.uvs is not None and not library.images:
        ref = library.map_to(beside, "srgb")
        fields = {"metallic": 0.0, "roughness": 1.0, "base_color_map": ref}
        materials = [Material(**{**vars(m), **fields}) for m in materials]
    primitives = []
    for row, material in enumerate(materials):
        if mesh.uvs is None and material.maps:
            lost = ", ".join(material.maps)
            tables.note(f"material {material.name!r}: {lost} left out, no UVs")
            materials[row] = Material(**{**vars(material), **dict.fromkeys(material.maps)})
        primitives.append(surface.primitive(material_of == row, row, material.name))
    scene = one_mesh_scene(primitives, materials, library.images, file.stem, origin, notes)
    with blamed_on(tables.file):
        return scene.check()


def write_obj(path: PathLike, mesh: Mesh) -> None:
    """Write a mesh as OBJ, atomically: v, with sRGB colours where it has some (no alpha), vt (v
    flipped) and f; nothing about materials.

    mesh: checked first; order and topology are kept, float32 values exactly (vt but for one
    rounding). Raises GraphError (bad mesh), OSError.
    """
    mesh.check()
    rows = mesh.positions
    if mesh.colors is not None:
        srgb = linear_to_srgb(np.clip(mesh.colors[:, :3], 0.0, 1.0))
        rows = np.concatenate([rows, srgb], axis=1)
    lines = ["v " + " ".join(f"{x:.9g}" for x in row) for row in rows.tolist()]
    corners = (mesh.faces + 1).tolist()
    if mesh.uvs is None:
        lines += [f"f {a} {b} {c}" for a, b, c in corners]
    else:
        lines += [f"vt {u:.9g} {1.0 - v:.9g}" for u, v in mesh.uvs.tolist()]
        pairs = zip(corners, (mesh.corner_faces + 1).tolist(), strict=True)
        lines += ["f " + " ".join(f"{i}/{j}" for i, j in zip(f, t, strict=True)) for f, t in pairs]
    atomic_write(path, ("\n".join(lines) + "\n").encode())
