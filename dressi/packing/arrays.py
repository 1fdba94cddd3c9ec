"""Arrays between the user's shape and the physical images.

In: (layers, H, W, *tail) arrays and a Variable. Out: tightly packed bytes of each plane, and back;
or the same written into and read from memory that is there, with no copy in between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dressi.ad.graph import Variable
from dressi.ad.vtype import VType
from dressi.packing.layout import Layout, layout
from dressi.packing.limits import DeviceLimits


def _dtype(t: VType) -> type:
    return np.int32 if t.is_int else np.float32


def to_planes(array: np.ndarray, v: Variable, limits: DeviceLimits) -> list[bytes]:
    """Bytes of each plane's physical image. array: (layers, H, W, *tail)."""
    lay = layout(v.size, v.layers, limits)
    return [_to_physical(p, lay, v.vtype.plane) for p in _parts(array, v)]


def write_planes(
    array: np.ndarray, v: Variable, limits: DeviceLimits, planes: Sequence[Sequence[np.ndarray]]
) -> None:
    """The same into memory. planes: of each plane its float32 words, in one piece or several; what
    no pixel lies in must be zero."""
    lay = layout(v.size, v.layers, limits)
    for part, pieces in zip(_parts(array, v), planes, strict=True):
        place = pixels_of(pieces, v, limits)
        if place is not None:
            copy_pixels(place, part.reshape(place.shape))
            continue
        words, start = np.frombuffer(_to_physical(part, lay, v.vtype.plane), np.float32), 0
        for piece in pieces:
            piece[:] = words[start : start + len(piece)]
            start += len(piece)


def copy_pixels(target: np.ndarray, source: np.ndarray) -> None:
    """Copy (..., components) numbers. Three of four components are copied one after another: NumPy
    takes four times as long for rows of three."""
    if target.flags.c_contiguous and source.flags.c_contiguous:
        target[...] = source
        return
    for k in range(target.shape[-1]):
        target[..., k] = source[..., k]


def pixels_of(pieces: Sequence[np.ndarray], v: Variable, limits: DeviceLimits) -> np.ndarray | None:
    """Return the pixels of a plane as a view of its words, (layers, H * W, components); None where
    there is none: more rows than an image may have, or several pieces."""
    lay, t = layout(v.size, v.layers, limits), v.vtype.plane
    if lay.columns > 1 or len(pieces) > 1:
        return None
    cells: np.ndarray = pieces[0].view(_dtype(t)).reshape(lay.layers, -1, t.channels)
    return cells[:, : v.size[0] * v.size[1], : t.n]


def _parts(array: np.ndarray, v: Variable) -> list[np.ndarray]:
    """What each plane holds: columns of a matrix."""
    return [array[..., :, k] for k in range(v.vtype.n)] if v.vtype.is_matrix else [array]


def _to_physical(a: np.ndarray, lay: Layout, t: VType) -> bytes:
    (cw, ch), channels = lay.cell, t.channels
    cells: np.ndarray = np.zeros((lay.rows * lay.columns, ch * cw, channels), _dtype(t))
    flat = a.reshape(lay.layers, -1, t.n)
    if lay.shift >= 0:
        cells[: lay.layers, : flat.shape[1], : t.n] = flat
    else:
        cells[: lay.layers, :, : t.n] = flat
    grid = cells.reshape(lay.rows, lay.columns, ch, cw, channels).transpose(0, 2, 1, 3, 4)
    return np.ascontiguousarray(grid).tobytes()


def from_planes(
    planes: Sequence[bytes | np.ndarray], v: Variable, limits: DeviceLimits
) -> np.ndarray:
    """(layers, H, W, *tail) float32 or int32 from the bytes (or words) of each plane's physical
    image. May be a view of them, and need not be contiguous."""
    lay = layout(v.size, v.layers, limits)
    parts = [_from_physical(p, lay, v.vtype.plane) for p in planes]
    return np.stack(parts, axis=-1) if v.vtype.is_matrix else parts[0]


def _from_physical(data: bytes | np.ndarray, lay: Layout, t: VType) -> np.ndarray:
    (cw, ch), channels, (w, h) = lay.cell, t.channels, lay.size
    grid: np.ndarray = np.frombuffer(data, _dtype(t)).reshape(
        lay.rows, ch, lay.columns, cw, channels
    )
    cells = grid.transpose(0, 2, 1, 3, 4).reshape(lay.rows * lay.columns, ch * cw, channels)
    return cells[: lay.layers, : w * h, : t.n].reshape(lay.layers, h, w, t.n)


def shares(a: np.ndarray, words: np.ndarray) -> bool:
    """Whether an array is a view of these words."""
    return bool(np.may_share_memory(a, words))


def from_buffer(words: bytes | np.ndarray, v: Variable) -> np.ndarray:
    """(layers, H, W, *tail) float32 from the sums of a scatter's buffer."""
    shape = v.layers, v.size[1], v.size[0], *v.vtype.tail
    a = np.frombuffer(words, np.float32)[: math.prod(shape)].reshape(shape)
    return np.swapaxes(a, -1, -2) if v.vtype.is_matrix else a


def to_words(array: np.ndarray, v: Variable) -> bytes:
    """Uniform slots of a 1x1 leaf: layer by layer, plane by plane, four words each."""
    t = v.vtype
    out: np.ndarray = np.zeros((v.layers, t.n_planes, 4), _dtype(t))
    a = array.reshape(v.layers, *t.tail)
    out[:, :, : t.n] = np.swapaxes(a, -1, -2) if t.is_matrix else a[:, None, :]
    return out.tobytes()
