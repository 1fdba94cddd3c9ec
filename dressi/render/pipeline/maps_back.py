"""Maps back to images: channels where they came from, new images for new maps.

In: a scene, the materials' maps. Out: the scene with other images. An image that several kinds of
maps read in the same channels is split: the fitted map gets an image of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dressi.render.io.images import with_colors
from dressi.render.pipeline.materials import CHANNELS, FIELDS, FILE_SRGB, MaterialLeaves
from dressi.render.pipeline.parameters import Parameter, ParameterTable, with_field
from dressi.render.scene.parts import ColorSpace, Image
from dressi.render.scene.scene import Scene

Read = Callable[[Parameter], np.ndarray]


def write_maps(
    scene: Scene, materials: Sequence[MaterialLeaves], table: ParameterTable, read: Read
) -> Scene:
    """The scene with the maps that were in use, and with those that are new."""
    images = list(scene.images)
    rows = list(scene.materials)
    number = {m.name: (m.row if m.row >= 0 else len(rows) - 1) for m in materials}
    by_leaf = {p.leaf: p for p in table}
    kinds_of: dict[int, set[str]] = {}
    for m in materials:
        for kind, (_, ref) in m.maps.items():
            if ref.image >= 0:
                kinds_of.setdefault(ref.image, set()).add(kind)
    split: dict[tuple[str, int], int] = {}
    written: set[str] = set()
    for m in materials:
        fresh = {k for k, (_, ref) in m.maps.items() if ref.image < 0}
        for kind, (leaf, ref) in m.maps.items():
            p = by_leaf[leaf]
            if kind in fresh:
                continue
            if p.in_use and p.name not in written:
                written.add(p.name)
                clash = any(_overlap(kind, k) for k in kinds_of[ref.image] - {kind})
                row = ref.image
                if clash:
                    row = split[kind, ref.image] = len(images)
                    images.append(replace(images[ref.image], name=f"{kind} of {p.owner}"))
                pixels = with_channels(kind, images[row].pixels, read(p))
                images[row] = replace(images[row], pixels=pixels)
            if (kind, ref.image) in split:
                mine = rows[number[m.name]]
                new = replace(ref, image=split[kind, ref.image])
                rows[number[m.name]] = with_field(mine, FIELDS[kind], new)
        for slot in sorted({FIELDS[k] for k in fresh}):
            kinds = [k for k in sorted(fresh) if FIELDS[k] == slot]
            pixels = _packed({k: read(by_leaf[m.maps[k][0]]) for k in kinds})
            space: ColorSpace = "srgb" if kinds[0] in FILE_SRGB else "linear"
            ref = replace(m.maps[kinds[0]][1], image=len(images))
            images.append(Image(pixels, space, f"{slot.removesuffix('_map')} of {m.name}"))
            rows[number[m.name]] = with_field(rows[number[m.name]], slot, ref)
    return replace(scene, images=tuple(images), materials=tuple(rows))


def _overlap(a: str, b: str) -> bool:
    """Whether two kinds of maps read the same channels."""
    return CHANNELS[a] == CHANNELS[b] if a in CHANNELS and b in CHANNELS else True


def with_channels(kind: str, old: np.ndarray, value: np.ndarray) -> np.ndarray:
    """(H, W, C): the pixels of an image with the channels of a map replaced."""
    out = with_colors(old).copy()
    if kind in CHANNELS:
        k = CHANNELS[kind]
        out[..., k] = value[..., 0]
        return out
    out[..., :3] = value[..., :3]
    if value.shape[2] == 4:
        out[..., 3] = value[..., 3]
    return out


def _packed(maps: dict[str, np.ndarray]) -> np.ndarray:
    """(H, W, 3 or 4): a new image of one map of colours, or of maps of one value."""
    (first, value), *_ = maps.items()
    if first not in CHANNELS:
        return value
    height, width = (max(a.shape[axis] for a in maps.values()) for axis in (0, 1))
    out = np.ones((height, width, 3), np.float32)
    for kind, a in maps.items():
        rows = np.arange(height) * a.shape[0] // height
        columns = np.arange(width) * a.shape[1] // width
        out[..., CHANNELS[kind]] = a[rows][:, columns, 0]
    return out
