"""Materials of a scene as leaves: factors and maps, shared where files share them.

In: a ``Scene``. Out: ``MaterialLeaves`` for each material in use; parameters by name. An image that
several materials read is one map. glTF's packed image is a ``metallic`` (B), a ``roughness`` (G)
and an ``occlusion`` (R) map, one value each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.graph import checked_shape
from dressi.ad.vtype import FLOAT, VEC3, VEC4, VType
from dressi.errors import GraphError
from dressi.render.io.images import with_colors
from dressi.render.pipeline.parameters import Parameter, ParameterTable, unique_names
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

FILE_SRGB = ("albedo", "emissive")


@dataclass(eq=False)
class MaterialLeaves:
    """One material. row: of ``Scene.materials``, -1 for glTF's default. factors: leaves @ 1x1 by
    kind. maps: leaf and sampler by kind. model, numbers: of shading, and its leaves @ 1x1 by name
    (``dressi.render.pipeline.models``)."""

    name: str
    row: int
    material: Material
    factors: dict[str, Variable]
    maps: dict[str, tuple[Variable, TextureRef]] = field(default_factory=dict)
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


def build_materials(scene: Scene, rows: list[int], table: ParameterTable) -> list[MaterialLeaves]:
    """Leaves of the materials in use; adds them to the parameters."""
    given = [Material() if r < 0 else scene.materials[r] for r in rows]
    fallback = [
        "default" if r < 0 and not m.name else m.name for r, m in zip(rows, given, strict=True)
    ]
    names = unique_names(fallback, "material")
    out = []
    for name, row, m in zip(names, rows, given, strict=True):
        glow = tuple(c * m.emissive_strength for c in m.emissive)
        values: dict[str, tuple[object, VType]] = {
            "base_color": (m.base_color, VEC4),
            "metallic_factor": (m.metallic, FLOAT),
            "roughness_factor": (m.roughness, FLOAT),
            "emissive_factor": (glow, VEC3),
            "normal_scale": (m.normal_scale, FLOAT),
            "occlusion_strength": (m.occlusion_strength, FLOAT),
        }
        leaves = MaterialLeaves(name, row, m, {})
        for kind, (value, vtype) in values.items():
            leaf = F.leaf(
                np.array(value, np.float32).reshape(1, 1, vtype.n), vtype, f"{kind}:{name}"
            )
            leaves.factors[kind] = leaf
            table.add(Parameter(kind, name, leaf, *RANGES[kind]))
        out.append(leaves)
    made: dict[tuple[str, int], Parameter] = {}
    for leaves in out:
        for kind, slot in FIELDS.items():
            ref = getattr(leaves.material, slot)
            if ref is None:
                continue
            key = (kind, ref.image)
            if key in made:
                made[key].owners += (leaves.name,)
            else:
                pixels = map_pixels(kind, scene.images[ref.image].pixels)
                made[key] = add_leaf(table, kind, leaves.name, pixels)
            leaves.maps[kind] = (made[key].leaf, ref)
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
    read: Callable[[Variable], np.ndarray],
    send: Callable[[Variable, np.ndarray], None],
    name: str,
    size: tuple[int, int],
) -> None:
    """Give materials a map that they lack: constant, the factor's value; the factor becomes 1. Maps
    and their factors are in use then.

    with_uv: numbers of the materials whose faces all have UVs, by UV set. read, send: data of a
    leaf. name: ``albedo`` (of all materials that lack one) or ``albedo:Body``. size: (width,
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
        m.maps[kind] = (parameter.leaf, TextureRef(-1, min_filter="linear"))
        parameter.in_use = True
        for name in ("base_color", f"{kind}_factor"):
            factor = table.one(name, m.name)
            if factor is not None and (name != "base_color" or kind == "albedo"):
                factor.in_use = True


def _start(
    kind: str,
    m: MaterialLeaves,
    read: Callable[[Variable], np.ndarray],
    send: Callable[[Variable, np.ndarray], None],
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


def sampler_of(ref: TextureRef) -> TextureRef:
    """A reference without its image: materials with equal ones read in the same way."""
    return replace(ref, image=-1)
