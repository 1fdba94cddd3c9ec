"""Materials of a scene as leaves: factors and maps, shared where files share them.

In: a ``Scene``. Out: ``MaterialLeaves`` for each material in use; parameters by name. An image that
several materials read is one map. glTF's packed image is a ``metallic`` (B), a ``roughness`` (G)
and an ``occlusion`` (R) map, one value each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.graph import checked_shape
from dressi.ad.vtype import FLOAT, VEC3, VEC4, VType
from dressi.errors import GraphError
from dressi.render.io.images import with_colors
from dressi.render.pipeline.nodes import MANY
from dressi.render.pipeline.parameters import Parameter, ParameterTable, Place, unique_names
from dressi.render.scene import Material, Scene, TextureRef, instances
from dressi.render.scene.models import MaterialModel

FIELDS = {
    "albedo": "base_color_map",
    "metallic": "metallic_roughness_map",
    "roughness": "metallic_roughness_map",
    "normal": "normal_map",
    "occlusion": "occlusion_map",
    "emissive": "emissive_map",
}
"""Field of ``Material`` that holds a map."""

CHANNELS = {"occlusion": 0, "roughness": 1, "metallic": 2}
"""Maps of one value: the channel of glTF's packed image."""

RANGES: dict[str, tuple[float | None, float | None]] = {
    "base_color": (0.0, 1.0),
    "metallic_factor": (0.0, 1.0),
    "roughness_factor": (0.0, 1.0),
    "emissive_factor": (0.0, None),
    "normal_scale": (None, None),
    "occlusion_strength": (0.0, 1.0),
}
"""Factors, and what they are clamped to after each step."""

MANY_READS = 12
"""Maps and ways of reading them up to which each is an op of its own: those of two materials with
all maps. What a CPU driver takes to compile them grows faster than their number."""

FILE_SRGB = ("albedo", "emissive")


@dataclass(eq=False)
class MaterialLeaves:
    """One material. row: of ``Scene.materials``, -1 for glTF's default. factors: parameters @ 1x1
    by kind. maps: parameter and sampler by kind. model, numbers: of shading, and its leaves @ 1x1
    by name (``dressi.render.pipeline.models``)."""

    name: str
    row: int
    material: Material
    factors: dict[str, Parameter]
    maps: dict[str, tuple[Parameter, TextureRef]] = field(default_factory=dict)
    model: MaterialModel | None = None
    numbers: dict[str, Variable] = field(default_factory=dict)


def used_materials(scene: Scene) -> list[int]:
    """Rows of the materials that faces have, -1 for the default one, ascending."""
    return sorted(
        {
            -1 if i.primitive.material is None else i.primitive.material
            for i in instances(scene)
            if len(i.primitive.faces)
        }
    )


def build_materials(
    scene: Scene, rows: list[int], table: ParameterTable, shared: bool | None = None
) -> list[MaterialLeaves]:
    """Leaves of the materials in use; adds them to the parameters.

    shared: whether factors are rows of tables and maps places in texture tables, so that the graph
    does not grow with their number; None: factors where there are more than ``MANY`` materials,
    maps where they are read in more than ``MANY_READS`` ways. Raises GraphError for another value.
    """
    if shared not in (None, True, False):
        raise GraphError(f"load_scene: tables must be True, False or None, got {shared!r}")
    given = [Material() if r < 0 else scene.materials[r] for r in rows]
    fallback = [
        "default" if r < 0 and not m.name else m.name for r, m in zip(rows, given, strict=True)
    ]
    names = unique_names(fallback, "material")
    out = [MaterialLeaves(*each, {}) for each in zip(names, rows, given, strict=True)]
    together = len(rows) > MANY if shared is None else shared
    values = [factors_of(m) for m in given]
    tables = {
        kind: F.leaf(np.array([v[kind] for v in values], np.float32), vtype, kind)
        for kind, vtype in FACTOR_TYPES.items()
        if together
    }
    for k, leaves in enumerate(out):
        for kind, vtype in FACTOR_TYPES.items():
            place = Place(k, (1, 1)) if together else None
            value = values[k][kind].astype(np.float32).reshape(1, 1, vtype.n)
            leaf = tables[kind] if together else F.leaf(value, vtype, f"{kind}:{leaves.name}")
            row = Parameter(kind, leaves.name, leaf, *RANGES[kind], place=place)
            leaves.factors[kind] = table.add(row)
    _add_maps(scene, out, table, shared)
    return out


FACTOR_TYPES: dict[str, VType] = {
    "base_color": VEC4,
    "metallic_factor": FLOAT,
    "roughness_factor": FLOAT,
    "emissive_factor": VEC3,
    "normal_scale": FLOAT,
    "occlusion_strength": FLOAT,
}
"""Factors and their types, in the order in which they are listed."""


def factors_of(m: Material) -> dict[str, np.ndarray]:
    """The factors of a material, (n,) float64 by kind."""
    return {
        "base_color": np.array(m.base_color),
        "metallic_factor": np.array([m.metallic]),
        "roughness_factor": np.array([m.roughness]),
        "emissive_factor": np.array([c * m.emissive_strength for c in m.emissive]),
        "normal_scale": np.array([m.normal_scale]),
        "occlusion_strength": np.array([m.occlusion_strength]),
    }


def _add_maps(
    scene: Scene, materials: list[MaterialLeaves], table: ParameterTable, shared: bool | None
) -> None:
    """The maps of the materials, one for each kind and image."""
    owners: dict[tuple[str, int], list[tuple[MaterialLeaves, TextureRef]]] = {}
    ways = set()
    for leaves in materials:
        for kind, slot in FIELDS.items():
            ref = getattr(leaves.material, slot)
            if ref is not None:
                owners.setdefault((kind, ref.image), []).append((leaves, ref))
                ways.add((kind, ref.image, sampler_key(ref)))
    together = len(ways) > MANY_READS if shared is None else shared
    pixels = {key: map_pixels(key[0], scene.images[key[1]].pixels) for key in owners}
    places = texture_leaves(pixels) if together else {}
    for key, readers in owners.items():
        first = readers[0][0].name
        if key in places:
            leaf, place = places[key]
            row = table.add(Parameter(key[0], first, leaf, 0.0, 1.0, place=place))
        else:
            row = add_leaf(table, key[0], first, pixels[key])
        row.owners = tuple(dict.fromkeys(m.name for m, _ in readers))
        for m, ref in readers:
            m.maps[key[0]] = (row, ref)


def texture_leaves(
    pixels: dict[tuple[str, int], np.ndarray],
) -> dict[tuple[str, int], tuple[Variable, Place]]:
    """Leaves that hold all maps of one kind and one number of channels, row by row, one after the
    other, and the place of each map in its leaf."""
    groups: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for key, image in pixels.items():
        groups.setdefault((key[0], image.shape[2]), []).append(key)
    out = {}
    for (kind, n), keys in groups.items():
        counts = [pixels[k].shape[0] * pixels[k].shape[1] for k in keys]
        width, height = F.image.table_size(sum(counts))
        flat = np.zeros((width * height, n), np.float32)
        starts = np.cumsum([0, *counts]).tolist()
        for key, start, count in zip(keys, starts, counts, strict=False):
            flat[start : start + count] = pixels[key].reshape(-1, n)
        vtype = {1: FLOAT, 3: VEC3, 4: VEC4}[n]
        leaf = F.leaf(flat.reshape(height, width, n), vtype, kind)
        for key, start in zip(keys, starts, strict=False):
            height_px, width_px = pixels[key].shape[:2]
            out[key] = leaf, Place(start, (width_px, height_px))
    return out


def map_pixels(kind: str, pixels: np.ndarray) -> np.ndarray:
    """(H, W, n): what a map of that kind holds of an image of 1 to 4 channels."""
    if kind in CHANNELS:
        k = CHANNELS[kind] if pixels.shape[2] >= 3 else 0
        return pixels[..., k : k + 1]
    colors = with_colors(pixels)
    return colors if kind == "albedo" else colors[..., :3]


def add_leaf(table: ParameterTable, kind: str, owner: str, pixels: np.ndarray) -> Parameter:
    """A map's leaf among the parameters, clamped to [0, 1] as files hold it."""
    vtype = {1: FLOAT, 3: VEC3, 4: VEC4}[pixels.shape[2]]
    leaf = F.leaf(np.ascontiguousarray(pixels, np.float32), vtype, f"{kind}:{owner}")
    return table.add(Parameter(kind, owner, leaf, 0.0, 1.0))


def add_map(
    materials: list[MaterialLeaves],
    with_uv: tuple[set[int], ...],
    table: ParameterTable,
    read: Callable[[Parameter], np.ndarray],
    send: Callable[[Parameter, np.ndarray], None],
    name: str,
    size: tuple[int, int],
) -> None:
    """Give materials a map that they lack: constant, the factor's value; the factor becomes 1. Maps
    and their factors are in use then.

    with_uv: numbers of the materials whose faces all have UVs, by UV set. read, send: data of a
    parameter. name: ``albedo`` (of all materials that lack one) or ``albedo:Body``. size: (width,
    height) texels. Raises GraphError for another name or size, for materials without UVs, and
    where all have that map.
    """
    kind, _, owner = str(name).partition(":")
    if kind not in FIELDS:
        raise GraphError(f"add_map knows the maps {', '.join(FIELDS)}, got {name!r}")
    (width, height), _ = checked_shape(f"add_map({name!r})", size)
    known = [m.name for m in materials]
    if owner and owner not in known:
        raise GraphError(f"add_map: no material is called {owner!r}; there are {', '.join(known)}")
    wanted = [
        (k, m) for k, m in enumerate(materials) if owner in ("", m.name) and kind not in m.maps
    ]
    if not wanted:
        raise GraphError(f"add_map: the {kind} map of {owner or 'all materials'} is there already")
    bare = [m.name for k, m in wanted if not (with_uv and k in with_uv[0])]
    if bare:
        raise GraphError(
            f"add_map({name!r}): faces of {', '.join(bare)} have no UVs, so no map fits them"
        )
    for _, m in wanted:
        value = _start(kind, m, read, send)
        pixels = np.broadcast_to(np.array(value, np.float32), (height, width, len(value)))
        parameter = add_leaf(table, kind, m.name, pixels)
        m.maps[kind] = (parameter, TextureRef(-1, min_filter="linear"))
        parameter.in_use = True
        for name in ("base_color", f"{kind}_factor"):
            factor = table.one(name, m.name)
            if factor is not None and (name != "base_color" or kind == "albedo"):
                factor.in_use = True


def _start(
    kind: str,
    m: MaterialLeaves,
    read: Callable[[Parameter], np.ndarray],
    send: Callable[[Parameter, np.ndarray], None],
) -> list[float]:
    """The value of a new map; its factor is set so that the picture stays as it was."""
    if kind == "normal":
        return [0.5, 0.5, 1.0]
    if kind == "occlusion":
        return [1.0]
    factor = m.factors[{"albedo": "base_color"}.get(kind, f"{kind}_factor")]
    value = np.asarray(read(factor), np.float64).reshape(-1)
    left = np.ones_like(value)
    if kind == "albedo":
        left[3], value = value[3], value[:3]
    elif kind == "emissive":  # a map holds up to 1
        left *= max(1.0, float(value.max()))
        value = value / left
    send(factor, left.astype(np.float32))
    return [float(v) for v in value]


def sampler_key(ref: TextureRef) -> tuple:
    """What is equal for references that read in the same way, whatever their image."""
    filters = (ref.mag_filter, ref.min_filter)
    return (ref.uv_set, ref.wrap_u, ref.wrap_v, *filters, ref.uv_matrix.tobytes())


def affine_part(uv: Variable, m: np.ndarray) -> Variable:
    """The linear part of a texture transform."""
    (a, b), (c, d) = m[:2, :2].tolist()
    return F.vec2(uv.x * a + uv.y * b, uv.x * c + uv.y * d)


def turned_part(uv: Variable, m: Variable) -> Variable:
    """The linear part of the texture transform of each pixel. m: VEC4, row by row."""
    return F.vec2(uv.x * m.x + uv.y * m.y, uv.x * m.z + uv.y * m.w)
