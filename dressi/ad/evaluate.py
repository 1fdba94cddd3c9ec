"""The NumPy float64 evaluation of a graph: the oracle that everything else is tested against.

In: Variables and arrays for their leaves. Out: arrays (layers, H, W, *tail), float64 or int64
values in float64. Rasterization follows Vulkan's rules: pixel centres, top-left rule, z clipped to
[0, w]; vertices are not snapped to a sub-pixel grid, so coverage may differ from hardware within
1/256 pixel of an edge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dressi.ad.graph import Function, Variable, topological
from dressi.ad.misfits import misfit
from dressi.ad.precision import say_bytes, say_levels
from dressi.ad.registry import RASTER
from dressi.errors import GraphError


def as_array(value: Any, like: Variable, double: bool = True) -> np.ndarray:
    """An array in any shape that users may pass -> (layers, H, W, *tail), float64 or int64. double:
    else an array of float32 stays one, and may share the user's memory.

    Accepts (H, W, C), (layers, H, W, C), tables (N, C) and (layers, N, C), without C where it is 1,
    and matrices (n, n) or (layers, n, n) for 1x1. Raises GraphError naming both shapes, and for
    NaN, infinity, fractions or overflow in integers.
    """
    (w, h), n, tail = like.size, like.layers, like.vtype.tail
    full = (n, h, w, *tail)
    if not double and isinstance(value, np.ndarray) and value.shape == full:
        # Nearly all that a loop sends from step to step: nothing else is to be found out.
        if value.dtype == np.float32 and not like.vtype.is_int and np.isfinite(value).all():
            say_levels(like, value)
            return value
    name = like.label()
    try:
        a = np.asarray(value)
        if a.dtype.kind not in "fiub":
            raise TypeError
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise GraphError(f"{name}: cannot use {kind} as data{_no_data_hint(value)}") from None
    except RuntimeError as error:  # of PyTorch, for a tensor that has a gradient
        raise GraphError(f"{name}: {error}\n  hint: tensor.detach().cpu().numpy()") from None
    shapes = [full]
    if h == 1:
        shapes.append((n, w, *tail))
    if (w, h) == (1, 1):
        shapes.append((n, *tail))
    options = shapes + [s[1:] for s in shapes if n == 1]
    if tail == (1,):
        options += [o[:-1] for o in options]
    if a.shape not in options:
        needed = full[1:] if n == 1 else full
        hint = misfit(like, a.shape)
        raise GraphError(f"{name}: needs an array of shape {needed}, got {a.shape}{hint}")
    finite = np.isfinite(a)
    if not finite.all():
        bad = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise GraphError(f"{name}: {a[bad]} at index {bad}; data must be finite")
    if like.vtype.is_int:
        if a.dtype.kind == "f" and (a != np.trunc(a)).any():
            raise GraphError(f"{name}: fractions in data for an integer Variable")
        if a.size and (a.max() > 2**31 - 1 or a.min() < -(2**31)):
            raise GraphError(f"{name}: integers beyond 32 bits")
        return a.astype(np.int64).reshape(full)
    if a.dtype.kind == "u":
        say_bytes(like, a)
    else:
        say_levels(like, a)
    limit = float(np.finfo(np.float32).max)
    if a.dtype.itemsize > 4 and (np.abs(a) > limit).any():  # half floats cannot hold the limit
        raise GraphError(f"{name}: values beyond float32")
    if not double and a.dtype == np.float32:
        return a.reshape(full)
    return a.astype(np.float64).reshape(full)


def _no_data_hint(value: Any) -> str:
    """Return the hint for what is no array of real numbers."""
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    if hasattr(first, "matrix"):
        each = "camera.matrix" if first is value else "np.stack([c.matrix for c in cameras])"
        return f"\n  hint: {each}"
    if hasattr(value, "positions"):
        return "\n  hint: mesh.positions, mesh.faces, mesh.uvs ..., each to its own Variable"
    if isinstance(value, (str, Path)):
        return "\n  hint: dressi.render.read_image(path)"
    if isinstance(value, (list, tuple)):
        return "\n  hint: rows of one length, numbers only"
    if np.iscomplexobj(value):
        return "\n  hint: array.real and array.imag, or a VEC2 of both"
    return ""


def evaluate(
    outputs: Sequence[Variable],
    feeds: Mapping[Variable, Any],
    rounded: Callable[[Function, np.ndarray], np.ndarray] | None = None,
) -> list[np.ndarray]:
    """Values of the outputs, (layers, H, W, *tail) float64.

    outputs: Variables per pixel, of any type and size. feeds: leaf -> array in any shape that
    ``as_array`` takes; a leaf with data of its own may be left out. rounded: (Function, its result)
    -> the value to go on with, for results that are not integers; used to measure what rounding
    does. Raises GraphError for a leaf without data.
    """
    values: dict[int, np.ndarray] = {
        v.uid: as_array(a, v).astype(np.float64, copy=False) for v, a in feeds.items()
    }

    def get(v: Variable) -> np.ndarray:
        if v.uid not in values and v.creator is None:
            if v.derived is not None:
                arrays = evaluate(v.derived.sources, feeds)
                values[v.uid] = v.derived.compute(*arrays).astype(np.float64)
            elif v.data is not None:
                values[v.uid] = v.data.astype(np.float64)
            else:
                raise GraphError(f"{v.label()} made at {v.line} has no data")
        return values[v.uid]

    nearest: dict[tuple[int, int], np.ndarray] = {}  # depths by uid of a rasterization, layer
    fragments: dict[tuple[int, ...], list[_Fragments]] = {}
    with np.errstate(all="ignore"):
        for f in topological(outputs):
            if f.output.uid in values or f.output.fragment_of is not None:
                continue
            if f.op.fragment_exit:
                values[f.output.uid] = _resolve(f, f.attr("peel"), get, nearest, fragments)
                continue
            assert f.op.reference is not None, f.op.name
            result = _fill(f.op.reference(f, [get(x) for x in f.inputs]), f.output)
            exact = rounded is None or f.output.vtype.is_int
            values[f.output.uid] = result if exact else rounded(f, result)  # type: ignore[misc]
    return [get(v) for v in outputs]


def _fill(a: np.ndarray, v: Variable) -> np.ndarray:
    """An array broadcast to the shape of a Variable, float64."""
    shape = (v.layers, v.size[1], v.size[0], *v.vtype.tail)
    if a.shape == shape and a.dtype == np.float64 and a.flags.c_contiguous:
        return a  # no copy: a value is never written to
    return np.broadcast_to(a, shape).astype(np.float64, order="C")


_Fragments = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Of one primitive: numbers of the pixels where it is drawn; depth, keep and value there."""


def _resolve(
    f: Function,
    peel: int,
    get: Any,
    nearest: dict[tuple[int, int], np.ndarray],
    fragments: dict[tuple[int, ...], list[_Fragments]],
) -> np.ndarray:
    """The value of an ``F.resolve``, (layers, H, W, *tail): primitive by primitive the depth test
    among what lies behind layer ``peel - 1``. nearest: the depths of the layers so far; those of
    this layer are added. fragments: by uids of value, depth and keep, what all layers share."""
    raster = f.inputs[1].fragment_of
    assert raster is not None
    if peel > 0 and (raster.uid, peel - 1) not in nearest:
        _resolve(f, peel - 1, get, nearest, fragments)
    (w, h), layers = raster.output.size, raster.output.layers
    key = tuple(x.uid for x in f.inputs)
    if key not in fragments:
        fragments[key] = _fragments(f, raster, get)
    out = np.full((layers, h, w, *f.output.vtype.tail), f.attr("background"))
    best = np.full((layers, h, w), 1.0)
    front = nearest[raster.uid, peel - 1] if peel > 0 else np.full((layers, h, w), -1.0)
    pixels, depths, before = (a.reshape(-1, *a.shape[3:]) for a in (out, best, front))  # views
    for at, depth, keep, value in fragments[key]:
        wins = (keep != 0) & (depth < depths[at]) & (depth > before[at])
        depths[at[wins]], pixels[at[wins]] = depth[wins], value[wins]
    nearest[raster.uid, peel] = best
    return out


def _fragments(f: Function, raster: Function, get: Any) -> list[_Fragments]:
    """Those of each primitive of an ``F.resolve``: the Functions per fragment on whole images."""
    value, depth, keep = f.inputs
    chain = [g for g in topological([value, depth, keep]) if g.output.fragment_of is raster]
    (w, h), layers = raster.output.size, raster.output.layers
    corners = [np.broadcast_to(get(x), (layers, *get(x).shape[1:])) for x in raster.inputs]
    shown = _scissors(raster)
    found = []
    for primitive in range(corners[0].shape[2]):
        drawn = np.zeros((layers, h, w), bool)
        for layer in range(layers):
            quad = [c[layer, 0, primitive] for c in corners]
            for k in range(1, len(quad) - 1):
                triangle = np.stack([quad[0], quad[k], quad[k + 1]])
                if not is_culled(triangle, raster.attr("cull")):
                    drawn[layer] |= coverage(triangle, (w, h))
        drawn &= shown
        if not drawn.any():
            continue
        local: dict[int, np.ndarray] = {}
        for g in chain:
            if g.op.kind == RASTER:
                local[g.output.uid] = np.full((layers, h, w, 1), float(primitive))
                continue
            assert g.op.reference is not None
            xs = [local[x.uid] if x.uid in local else get(x) for x in g.inputs]
            local[g.output.uid] = _fill(g.op.reference(g, xs), g.output)

        def pick(
            v: Variable, local: dict[int, np.ndarray] = local, drawn: np.ndarray = drawn
        ) -> np.ndarray:
            a = local[v.uid] if v.uid in local else get(v)
            return np.asarray(np.broadcast_to(a, (layers, h, w, *a.shape[3:]))[drawn])

        at = np.flatnonzero(drawn)
        found.append((at, np.maximum(pick(depth)[:, 0], 0.0), pick(keep)[:, 0], pick(value)))
    return found


def _scissors(raster: Function) -> np.ndarray:
    """(layers, H, W) bool: whether a pixel is inside the scissors of a rasterization."""
    (w, h), layers, rectangles = raster.output.size, raster.output.layers, raster.attr("scissor")
    if not rectangles:
        return np.ones((layers, h, w), bool)
    out = np.zeros((layers, h, w), bool)
    for layer in range(layers):
        x, y, width, height = rectangles[layer % len(rectangles)]
        out[layer, y : y + height, x : x + width] = True
    return out


def is_culled(triangle: np.ndarray, cull: str) -> bool:
    """Whether a triangle is culled for its winding. triangle: (3, 4) clip positions. cull: "back",
    "front" or None.

    The determinant of (x, y, w) is the area on the screen times the product of the w, and keeps
    its meaning for the visible part where corners lie behind the camera. Clip space has y down.
    """
    turn = np.linalg.det(triangle[:, [0, 1, 3]])
    return bool(cull == "back" and turn > 0) or bool(cull == "front" and turn < 0)


def coverage(triangle: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """(H, W) bool: whether a triangle covers the centre of a pixel. triangle: (3, 4) clip
    positions. size: (width, height) in pixels."""
    w, h = size
    out = np.zeros((h, w), bool)
    polygon = _clip(_clip(list(triangle), lambda p: p[2]), lambda p: p[3] - p[2])
    points = [((p[0] / p[3] + 1) * w / 2, (p[1] / p[3] + 1) * h / 2) for p in polygon if p[3] > 0]
    for k in range(1, len(points) - 1):
        out |= _fill_triangle(points[0], points[k], points[k + 1], w, h)
    return out


def _clip(polygon: list[np.ndarray], inside: Any) -> list[np.ndarray]:
    """The part of a polygon where ``inside`` of a position is not negative."""
    out: list[np.ndarray] = []
    for i, p in enumerate(polygon):
        q = polygon[i - 1]
        a, b = inside(q), inside(p)
        if (a >= 0) != (b >= 0):
            # From the inside out, so that two triangles cut the edge they share at the same point.
            u, v, du, dv = (q, p, a, b) if a >= 0 else (p, q, b, a)
            out.append(u + (v - u) * (du / (du - dv)))
        if b >= 0:
            out.append(p)
    return out


def _fill_triangle(a: Any, b: Any, c: Any, w: int, h: int) -> np.ndarray:
    """(H, W) bool: whether a triangle, (x, y) in pixels, covers the centre of a pixel."""
    area = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
    out = np.zeros((h, w), bool)
    if area == 0 or not np.isfinite(area):
        return out
    if area < 0:
        b, c = c, b
    xs = [a[0], b[0], c[0]]
    ys = [a[1], b[1], c[1]]
    x0, x1 = (int(np.clip(v, 0, w)) for v in (np.floor(min(xs)), np.ceil(max(xs)) + 1))
    y0, y1 = (int(np.clip(v, 0, h)) for v in (np.floor(min(ys)), np.ceil(max(ys)) + 1))
    if x0 >= x1 or y0 >= y1:
        return out
    px, py = np.meshgrid(np.arange(x0, x1) + 0.5, np.arange(y0, y1) + 0.5)
    inside = np.ones_like(px, bool)
    for p, q in ((a, b), (b, c), (c, a)):
        # From the same end of the edge for both triangles that share it: they get the same number,
        # rounded alike, with opposite signs. Else a centre on it may belong to both or none.
        u, v, sign = (p, q, 1.0) if tuple(p) <= tuple(q) else (q, p, -1.0)
        e = sign * ((v[0] - u[0]) * (py - u[1]) - (v[1] - u[1]) * (px - u[0]))
        # y grows downward and the order is clockwise on screen: a top edge runs to the right, a
        # left edge runs up.
        top_left = (q[1] == p[1] and q[0] > p[0]) or q[1] < p[1]
        inside &= (e > 0) | ((e == 0) & top_left)
    out[y0:y1, x0:x1] = inside
    return out
