"""PLY, ASCII and binary of both byte orders, to a surface; and a mesh to binary PLY.

In: a path, or a mesh. Out: ``Surface``, or a file. Read: positions, polygons and triangle strips,
UVs of vertices and of corners, normals, colours; other elements and properties are passed over,
and named. Source: Greg Turk, "The PLY Polygon File Format"; for the names of properties what
MeshLab, Blender, CloudCompare, Meshroom and VCGlib write.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dressi.errors import LoadError
from dressi.render.camera import far_origin
from dressi.render.io.images import PathLike, atomic_write, linear_to_srgb, read_image, with_colors
from dressi.render.io.ply_elements import Element, Lists, read_elements
from dressi.render.io.polygons import split_polygons
from dressi.render.io.sources import blamed_on, fail, find_beside, not_there
from dressi.render.io.surface import Surface, linear_colors
from dressi.render.scene import Image, Material, Mesh, Scene, TextureRef
from dressi.render.scene.convert import one_mesh_scene

Rows = npt.NDArray[np.int64]
Fail = Callable[[int, str], LoadError]

_CORNERS = ("vertex_indices", "vertex_index")
_UVS = (("s", "t"), ("u", "v"), ("texture_u", "texture_v"), ("texcoord_u", "texcoord_v"))
_COLORS = (
    *(("red", "green", "blue"), ("r", "g", "b")),
    ("diffuse_red", "diffuse_green", "diffuse_blue"),
)
_NORMALS = ("nx", "ny", "nz")


def read_ply(path: PathLike, notes: list[str] | None = None, moved: bool = False) -> Surface:
    """The surface of a PLY file, in the file's order of vertices.

    notes: a list that gets one line for everything that is left out. moved: whether vertices far
    from the origin, where float32 loses digits, are given relative to ``Surface.origin``.

    Polygons are split in triangles: convex ones as a fan, concave ones by ear clipping; strips
    too. UVs per corner (the list ``texcoord`` of faces) go before those of vertices (s t, u v,
    texture_u texture_v); v is flipped, PLY counts it from the bottom. Normals (nx ny nz) are those
    of the vertices, colours (red green blue alpha) are sRGB. Raises LoadError: truncated, no faces
    (point clouds), NaN, indices out of range, faces of two corners or that cross themselves, a
    broken header.
    """
    notes = [] if notes is None else notes
    file = os.fspath(path)
    elements, comments = read_elements(path)
    vertex = elements.get("vertex")
    counts = {name: element.count for name, element in elements.items()}
    if vertex is None or not vertex.count:
        raise LoadError(f"{file}: there are no triangles: {counts}", file, "header")
    if missing := [axis for axis in "xyz" if axis not in vertex.scalars]:
        raise fail(file, "header", f"element vertex lacks the property {', '.join(missing)}")
    positions = np.stack([vertex.scalars[axis] for axis in "xyz"], axis=1).astype(np.float64)
    bad = ~np.isfinite(positions).all(axis=1)
    if bad.any():
        i = int(bad.argmax())
        text = f"{file}: vertex {i} is not finite: {positions[i].tolist()}"
        raise LoadError(text, file, f"vertex {i}")
    corners, owner_name, texcoords = _polygons(file, elements, counts)

    def broken(face: int, problem: str) -> LoadError:
        return fail(file, f"{owner_name} {face}", problem)

    _check_corners(corners, len(positions), broken)
    rows, owners = split_polygons(positions, corners.counts, corners.values, broken)
    faces = corners.values[rows]
    with np.errstate(over="ignore", invalid="ignore"):  # infinite or NaN is refused
        origin = far_origin(positions) if moved else np.zeros(3)
        points = (positions - origin).astype(np.float32)
    with blamed_on(file):
        mesh = Mesh(points, faces, name=Path(path).stem).check()
        mesh = _with_uvs(mesh, vertex, texcoords, corners, rows, broken).check()
    textures = tuple(c[11:].strip() for c in comments if c.lower().startswith("texturefile"))
    surface = Surface(mesh, owners, colors=_colors(vertex), textures=textures, origin=origin)
    if all(name in vertex.scalars for name in _NORMALS):
        normals = np.stack([vertex.scalars[name] for name in _NORMALS], axis=1)
        surface = surface.with_normals(normals, faces)
    notes += [f"{file}: {line} left out" for line in _unread(elements, owner_name)]
    return surface


def _polygons(
    file: str, elements: dict[str, Element], counts: dict[str, int]
) -> tuple[Lists, str, Lists | None]:
    """Corners of the polygons, the element that they are from, and UVs of the corners if any."""
    for kind in ("face", "tristrips"):
        element = elements.get(kind)
        if element is None or not element.count:
            continue
        found = [element.lists[name] for name in _CORNERS if name in element.lists]
        for corners in (c for c in found if c.values.dtype.kind == "i"):
            if kind == "face":
                return corners, "face", element.lists.get("texcoord")
            return _of_strips(corners.values), "strip", None
        if kind == "face":
            names = ", ".join([*element.scalars, *element.lists])
            problem = f"element face needs a list vertex_indices of integers, has {names}"
            raise fail(file, "header", problem)
    raise LoadError(f"{file}: there are no triangles: {counts}", file, "header")


def _of_strips(values: Rows) -> Lists:
    """Triangles of strips that -1 separates; every second one turns the other way."""
    found = [np.zeros((0, 3), np.int64)]
    for part in np.split(values, np.flatnonzero(values == -1)):
        strip = part[part != -1]
        if len(strip) >= 3:
            i = np.arange(len(strip) - 2)
            found.append(np.stack([strip[i + i % 2], strip[i + 1 - i % 2], strip[i + 2]], axis=1))
    faces = np.concatenate(found)
    a, b, c = faces.T
    faces = faces[(a != b) & (b != c) & (c != a)]  # a repeated corner only joins two strips
    return Lists(np.full(len(faces), 3, np.int64), faces.ravel())


def _check_corners(corners: Lists, n: int, fail: Fail) -> None:
    owner = np.repeat(np.arange(len(corners.counts)), corners.counts)
    if (short := corners.counts < 3).any():
        face = int(short.argmax())
        raise fail(face, f"{int(corners.counts[face])} corners are no triangles")
    values = corners.values
    bad = (values < 0) | (values >= n)
    if bad.any():
        k = int(bad.argmax())
        raise fail(int(owner[k]), f"index {int(values[k])} is out of range, there are {n} vertices")


def _with_uvs(
    mesh: Mesh,
    vertex: Element,
    texcoords: Lists | None,
    corners: Lists,
    rows: Rows,
    fail: Fail,
) -> Mesh:
    """The mesh with UVs of corners, where all faces have some, or of vertices, or without."""
    if texcoords is not None and texcoords.counts.any():
        wrong = (texcoords.counts != 2 * corners.counts) & (texcoords.counts != 0)
        if wrong.any():
            face = int(wrong.argmax())
            n, m = int(corners.counts[face]), int(texcoords.counts[face])
            raise fail(face, f"texcoord has {m} numbers, its {n} corners need {2 * n}")
        table = np.zeros((len(corners.values), 2), np.float32)
        table[np.repeat(texcoords.counts > 0, corners.counts)] = texcoords.values.reshape(-1, 2)
        _, first, inverse = np.unique(table.view(np.int64), return_index=True, return_inverse=True)
        uvs = (table[first] * [1.0, -1.0] + [0.0, 1.0]).astype(np.float32)
        uv_faces = np.ravel(inverse)[rows].astype(np.int32)
        return replace(mesh, uvs=uvs, uv_faces=uv_faces)
    for u, v in _UVS:
        if u in vertex.scalars and v in vertex.scalars:
            return replace(mesh, uvs=np.stack([vertex.scalars[u], 1.0 - vertex.scalars[v]], axis=1))
    return mesh


def _colors(vertex: Element) -> npt.NDArray[np.float32] | None:
    """(V, 4) linear colours; integers are 0 to the most of their type, floats are 0 to 1."""

    def unit(name: str) -> npt.NDArray[np.float64]:
        kind = vertex.types[name]
        return vertex.scalars[name] / (np.iinfo(kind).max if kind.kind in "iu" else 1.0)

    for names in _COLORS:
        if all(name in vertex.scalars for name in names):
            rgb = np.stack([unit(name) for name in names], axis=1)
            if not np.isfinite(rgb).all():
                return None
            alpha = next((unit(n) for n in ("alpha", "a", "diffuse_alpha") if n in vertex.types), 1)
            return linear_colors(rgb, np.broadcast_to(alpha, len(rgb)))
    return None


def _unread(elements: dict[str, Element], owner: str) -> list[str]:
    """What of a file is passed over."""
    known = {*"xyz", *_NORMALS, "alpha", "a", "diffuse_alpha"}
    known |= {name for names in (*_UVS, *_COLORS) for name in names} | {*_CORNERS, "texcoord"}
    lines = []
    for name, element in elements.items():
        if name not in ("vertex", "face", "tristrips") and element.count:
            lines.append(f"element {name} ({element.count})")
            continue
        left = [p for p in (*element.scalars, *element.lists) if p not in known]
        left += [p for p in element.scalars if name == "face" and p in known]
        if left:
            lines.append(f"{name}: {', '.join(left)}")
    return lines


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
    images = _texture(path, surface, notes)
    if images:
        material = replace(material, base_color_map=TextureRef(0))
    scene = one_mesh_scene((primitive,), (material,), images, name, surface.origin, notes)
    with blamed_on(os.fspath(path)):
        return scene.check()


def _texture(path: PathLike, surface: Surface, notes: list[str]) -> tuple[Image, ...]:
    """The one image that the file names, if it can be shown; else none, and a note why."""
    file, names, folder = os.fspath(path), surface.textures, Path(path).parent
    if len(names) > 1 or (names and surface.mesh.uvs is None):
        why = "there are several" if len(names) > 1 else "there are no UVs"
        notes.append(f"{file}: textures {', '.join(names)} left out: {why}")
        return ()
    found = find_beside(folder, names[0]) if names else None
    if found is not None:
        return (Image(with_colors(read_image(found)), "srgb", found.stem),)
    notes += [f"{file}: texture {not_there(folder, name)}" for name in names]
    return ()


def write_ply(path: PathLike, mesh: Mesh) -> None:
    """Write a mesh as binary PLY, atomically; UVs as the list ``texcoord`` of faces, v flipped,
    colours as sRGB bytes red, green, blue, alpha of vertices.

    mesh: checked first; order and topology are kept, float32 values exactly (v but for one
    rounding). Raises GraphError (bad mesh), OSError.
    """
    mesh.check()
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {len(mesh.positions)}"]
    lines += [f"property float {axis}" for axis in "xyz"]
    corners = mesh.positions.astype("<f4").tobytes()
    if mesh.colors is not None:
        lines += [f"property uchar {name}" for name in ("red", "green", "blue", "alpha")]
        points = np.zeros(len(mesh.positions), np.dtype([("at", "<f4", 3), ("color", "u1", 4)]))
        clipped = np.clip(mesh.colors, 0.0, 1.0)
        encoded = np.concatenate([linear_to_srgb(clipped[:, :3]), clipped[:, 3:]], axis=1)
        points["at"], points["color"] = mesh.positions, np.round(encoded * 255.0)
        corners = points.tobytes()
    lines += [f"element face {len(mesh.faces)}", "property list uchar int vertex_indices"]
    fields: Sequence[tuple] = [("n", "u1"), ("corners", "<i4", 3)]
    if mesh.uvs is not None:
        lines.append("property list uchar float texcoord")
        fields = [*fields, ("m", "u1"), ("uvs", "<f4", (3, 2))]
    rows = np.zeros(len(mesh.faces), np.dtype(list(fields)))
    rows["n"], rows["corners"] = 3, mesh.faces
    if mesh.uvs is not None:
        rows["m"], rows["uvs"] = 6, (mesh.uvs * [1.0, -1.0] + [0.0, 1.0])[mesh.corner_faces]
    head = ("\n".join([*lines, "end_header"]) + "\n").encode()
    atomic_write(path, head + corners + rows.tobytes())
