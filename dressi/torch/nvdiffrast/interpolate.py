"""``interpolate``: attributes of vertices at pixels, and how they change from pixel to pixel."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from dressi.ad import F, Variable
from dressi.errors import GraphError
from dressi.render.raster.clip_space import image_derivatives
from dressi.render.raster.distance import interpolate as mix_corners
from dressi.render.raster.projection import gather
from dressi.torch.eager import call, groups, joined
from dressi.torch.nvdiffrast.checks import (
    check_indices,
    check_minibatch,
    check_tensor,
    check_tri,
    zeros_of,
)


def interpolate(
    attr: torch.Tensor,
    rast: torch.Tensor,
    tri: torch.Tensor,
    rast_db: torch.Tensor | None = None,
    diff_attrs: str | Sequence[int] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Interpolate attributes of vertices. Return [N, height, width, A], and the derivatives of K
    attributes by the pixel [N, height, width, 2 K], in pairs (dA/dX, dA/dY); without them an empty
    tensor. 0 where there is no triangle.

    attr: float32 [N or 1, V, A] or [V, A], any A. rast, rast_db: what ``rasterize`` returned. tri:
    int32 [F, 3]. diff_attrs: numbers of the attributes that get derivatives, or ``all``; they need
    rast_db. Gradient to attr, rast (u and v) and rast_db. Raises GraphError that names the
    argument.
    """
    who = "interpolate"
    flat = isinstance(attr, torch.Tensor) and attr.ndim == 2
    check_tensor(who, "attr", attr, ("V", "A") if flat else ("N", "V", "A"))
    check_tensor(who, "rast", rast, ("N", "H", "W", 4), device=attr.device)
    check_tri(who, tri, attr.device)
    if not flat:
        check_minibatch(who, "attr", attr, rast.shape[0])
    chosen = _chosen(diff_attrs, attr.shape[-1])
    if chosen:
        check_tensor(who, "rast_db", rast_db, ("N", "H", "W", 4), device=attr.device)
        if rast_db is not None and rast_db.shape != rast.shape:
            raise GraphError(
                f"{who}: rast_db must be {list(rast.shape)}, got {list(rast_db.shape)}"
            )
    shape = tuple(rast.shape[:3])
    if 0 in (*shape, tri.shape[0], *attr.shape):
        n_derivatives = (2 * len(chosen),) if chosen else ()
        sources = (attr, rast) if rast_db is None else (attr, rast, rast_db)
        zeros = zeros_of((*shape, *n_derivatives), *sources) if chosen else attr.new_zeros(0)
        return zeros_of((*shape, attr.shape[-1]), attr, rast), zeros
    check_indices(who, tri, attr.shape[-2])
    values = groups(attr)
    is_all = len(chosen) == attr.shape[-1] and chosen == list(range(attr.shape[-1]))
    picked = [] if is_all or not chosen else groups(attr[..., chosen])
    images = [rast] if rast_db is None or not chosen else [rast, rast_db]
    options = (len(values), len(picked), is_all)
    out = call(
        ("interpolate", options),
        lambda *v: _graph(*options, len(images), v),
        images,
        [tri, *values, *picked],
    )
    n = len(values)
    return joined(out[:n]), joined(out[n:]) if chosen else attr.new_empty(0)


def _graph(
    n_values: int, n_picked: int, is_all: bool, n_images: int, leaves: Sequence[Variable]
) -> list[Variable]:
    """Images of the groups, then those of the derivatives, in pairs along X and along Y."""
    rast, tri = leaves[0], leaves[n_images]
    tables = leaves[n_images + 1 :]
    ids = F.to_int(F.stop_gradient(rast.w) + 0.5) - 1
    bary = F.vec3(rast.xy, 1.0 - rast.x - rast.y)
    faces = F.dynamic(tri)
    corners = [gather(t, faces) for t in tables]
    out = [mix_corners(c, ids, bary) for c in corners[:n_values]]
    if n_images == 2:
        for c in corners[:n_values] if is_all else corners[n_values : n_values + n_picked]:
            out += _pairs(*image_derivatives(c, ids, leaves[1]))
    return out


def _pairs(dx: Variable, dy: Variable) -> list[Variable]:
    """Components of both in turn, as Variables of up to four."""
    if dx.vtype.n == 1:
        return [F.vec2(dx, dy)]
    both = [F.swizzle(d, k) for k in "xyzw"[: dx.vtype.n] for d in (dx, dy)]
    return [F.vec(*both[i : i + 4]) for i in range(0, len(both), 4)]


def _chosen(diff_attrs: Any, n: int) -> list[int]:
    """Numbers of the attributes that get derivatives."""
    if diff_attrs is None:
        return []
    if isinstance(diff_attrs, str) and diff_attrs == "all":
        return list(range(n))
    try:
        chosen = [operator.index(i) for i in diff_attrs]
    except TypeError:
        chosen = [n]
    if any(not 0 <= i < n for i in chosen):
        raise GraphError(
            f"interpolate: diff_attrs must be 'all' or numbers from 0 to {n - 1}, "
            f"got {diff_attrs!r}"
        )
    return chosen
