"""``texture`` and ``texture_construct_mip``: filtered reads of images and cube maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from dressi.ad import F, Variable
from dressi.errors import GraphError
from dressi.kinds import Filter, MipFilter, Wrap
from dressi.render.shading.cube_detail import cube_derivatives, texture_cube_mip
from dressi.torch.eager import call, groups, joined
from dressi.torch.nvdiffrast.checks import check_minibatch, check_tensor

FILTERS = ("auto", "nearest", "linear", "linear-mipmap-nearest", "linear-mipmap-linear")
WRAPS = {"wrap": "repeat", "clamp": "clamp", "zero": "border"}


@dataclass(frozen=True)
class Mipmap:
    """The levels below a texture, of ``texture_construct_mip``. Opaque: pass it to ``texture``."""

    levels: tuple[torch.Tensor, ...]
    cube: bool


def texture_construct_mip(
    tex: torch.Tensor, max_mip_level: int | None = None, cube_mode: bool = False
) -> Mipmap:
    """Return the mipmap stack of a texture that stays as it is, for ``mip=`` of ``texture``.

    tex: float32 [N, H, W, C], with cube_mode [N, 6, W, W, C]. max_mip_level: the last level that is
    made, 0 for the texture alone. Each level is the mean of 2 x 2 texels of the one before, down to
    1 x 1. Reads with it give tex the gradient of all levels. Raises GraphError where a level that
    has to be halved has an odd extent.
    """
    who = "texture_construct_mip"
    _check_tex(who, tex, cube_mode)
    levels = [tex.detach()]
    for _ in range(n_levels(who, tex, max_mip_level) - 1):
        levels.append(_halved(levels[-1]))
    return Mipmap(tuple(levels[1:]), bool(cube_mode))


def texture(
    tex: torch.Tensor,
    uv: torch.Tensor,
    uv_da: torch.Tensor | None = None,
    mip_level_bias: torch.Tensor | None = None,
    mip: Mipmap | Sequence[torch.Tensor] | None = None,
    filter_mode: str = "auto",
    boundary_mode: str = "wrap",
    max_mip_level: int | None = None,
) -> torch.Tensor:
    """Read a texture. Return [N, height, width, C].

    tex: float32 [N or 1, H, W, C], any C; with boundary_mode ``cube`` [N or 1, 6, W, W, C], faces
    +x, -x, +y, -y, +z, -z. uv: [N, height, width, 2], or directions [..., 3] of a cube map. uv_da:
    [..., 4] or [..., 6], derivatives of uv by the pixel in pairs, as ``interpolate`` gives them.
    mip_level_bias: [N, height, width], added to the level of detail. mip: of
    ``texture_construct_mip``, or a list of tensors like tex, half as large each, which get
    gradients of their own. filter_mode: ``nearest``, ``linear``, ``linear-mipmap-nearest``,
    ``linear-mipmap-linear``, or ``auto``: linear without uv_da and mip_level_bias, else the last
    one. boundary_mode: ``wrap``, ``clamp``, ``zero`` or ``cube``. max_mip_level: the last level
    that is made and read. The level of detail is log2 of the longest axis of the pixel's footprint
    in texels. Texel (0, 0) covers uv from (0, 0) to (1/W, 1/H). Gradient to tex, uv, uv_da,
    mip_level_bias and mip. Raises GraphError that names the argument.
    """
    who, cube = "texture", boundary_mode == "cube"
    if boundary_mode not in (*WRAPS, "cube"):
        raise GraphError(
            f"{who}: boundary_mode must be one of {(*WRAPS, 'cube')}, got {boundary_mode!r}"
        )
    _check_tex(who, tex, cube)
    _check_places(who, tex, uv, uv_da, mip_level_bias, cube)
    filter_mode = _filter(filter_mode, uv_da, mip_level_bias)
    n = uv.shape[0]
    if 0 in uv.shape:
        return tex.new_zeros((*uv.shape[:3], tex.shape[-1]))
    is_mip = "mipmap" in filter_mode
    levels, built = [tex], 1
    if is_mip and mip is None:
        built = n_levels(who, tex, max_mip_level)
    elif is_mip:
        levels += _given_levels(tex, mip, cube, max_mip_level)
    is_mip = is_mip and max(built, len(levels)) > 1
    if not is_mip and filter_mode.startswith("linear"):
        filter_mode = "linear"
    places = [uv]
    if is_mip and uv_da is not None:
        places += groups(uv_da)
    if is_mip and mip_level_bias is not None:
        places.append(mip_level_bias[..., None])
    texels = [g for t in levels for g in groups(t.flatten(0, 1) if cube else t)]
    options = _Options(
        filter=filter_mode,
        boundary=boundary_mode,
        n_levels=len(levels),
        n_built=built,
        has_da=is_mip and uv_da is not None,
        has_bias=is_mip and mip_level_bias is not None,
        many=cube and tex.shape[0] > 1,
    )
    divisible, images = not cube, [*places, *texels]  # the faces of cubes are layers too
    out = call(("texture", options), lambda *v: _graph(options, v), images, divisible=divisible)
    whole = joined(out)
    return whole if whole.shape[0] == n else whole.expand(n, -1, -1, -1)


@dataclass(frozen=True)
class _Options:
    """What a graph of ``texture`` depends on, beside sizes. n_levels: that are given; n_built: that
    the graph makes of the first, or 1. many: whether each layer reads a cube of its own."""

    filter: str
    boundary: str
    n_levels: int
    n_built: int
    has_da: bool
    has_bias: bool
    many: bool


def _graph(o: _Options, leaves: Sequence[Variable]) -> list[Variable]:
    """Images of the groups of channels."""
    places, rest = [leaves[0]], list(leaves[1:])
    da = None
    if o.has_da:
        first = rest.pop(0)
        da = F.vec2(first.x, first.z), F.vec2(first.y, first.w)
        if o.boundary == "cube":
            third = rest.pop(0)
            da = F.vec3(da[0], third.x), F.vec3(da[1], third.y)
    bias = rest.pop(0) if o.has_bias else None
    n_groups = len(rest) // o.n_levels
    texels = [rest[k::n_groups] for k in range(n_groups)]
    return [_read(o, places[0], da, bias, levels) for levels in texels]


def _read(
    o: _Options,
    uv: Variable,
    da: tuple[Variable, Variable] | None,
    bias: Variable | None,
    levels: list[Variable],
) -> Variable:
    tex, is_mip = levels[0], "mipmap" in o.filter
    if o.n_built > 1:
        mip = F.image.mipmap(tex, o.n_built)
        levels = [mip.level(i) for i in range(o.n_built)] if o.boundary == "cube" else levels
    elif is_mip and o.boundary != "cube":
        mip = F.image.mip_levels(levels)
    lod: Variable | float = 0.0
    if da is not None:
        steps = cube_derivatives(uv, *da) if o.boundary == "cube" else da
        lod = F.texture_lod(*steps, tex.size, "ellipse", gradient=True)
    if bias is not None:
        lod = bias if da is None else lod + bias
    if o.boundary == "cube":
        index = F.layer_index(uv.layers) if o.many else None
        if not is_mip:
            return F.texture_cube(tex, uv, cast("Filter", o.filter), index)
        return texture_cube_mip(levels, uv, lod, o.filter.endswith("nearest"), index)
    wrap = cast("Wrap", WRAPS[o.boundary])
    if not is_mip:
        return F.texture(tex, uv, cast("Filter", o.filter), wrap)
    mode = "trilinear" if o.filter == "linear-mipmap-linear" else o.filter
    return F.texture_mip(mip, uv, lod, cast("MipFilter", mode), wrap)


# -- mipmaps


class _FromTexture(torch.autograd.Function):
    """The levels of an opaque stack, as functions of the texture that they were made of."""

    @staticmethod
    def forward(ctx: Any, tex: torch.Tensor, *levels: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.shape = tex.shape
        return tuple(level.view_as(level) for level in levels)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # The mean of 2 x 2, transposed, from the last level up.
        total = gradients[-1]
        for g in reversed(gradients[:-1]):
            total = g + _doubled(total, g.shape)
        return (_doubled(total, ctx.shape), *(None for _ in gradients))


def _halved(t: torch.Tensor) -> torch.Tensor:
    """The mean of 2 x 2 texels; an extent of 1 stays."""
    for axis in (-3, -2):
        if t.shape[axis] > 1:
            t = t.unflatten(axis, (-1, 2)).mean(axis)
    return t


def n_levels(who: str, tex: torch.Tensor, max_mip_level: int | None) -> int:
    """Number of levels of the chain, the texture counted. Raises GraphError for odd extents."""
    if max_mip_level is not None and (not isinstance(max_mip_level, int) or max_mip_level < 0):
        raise GraphError(
            f"{who}: max_mip_level must be a number of at least 0, got {max_mip_level!r}"
        )
    h, w = tex.shape[-3:-1]
    n = 1
    while (h, w) != (1, 1) and (max_mip_level is None or n <= max_mip_level):
        if any(s > 1 and s % 2 for s in (h, w)):
            raise GraphError(
                f"{who}: tex of {tex.shape[-3]} x {tex.shape[-2]} has a level {n - 1} of odd "
                f"extent, {h} x {w}, which cannot be halved\n"
                f"  hint: max_mip_level={n - 1} stops before"
            )
        h, w, n = max(1, h // 2), max(1, w // 2), n + 1
    return n


def _doubled(g: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """The transpose of ``_halved``, to a shape."""
    for axis in (-3, -2):
        if shape[axis] > 1:
            g = g.repeat_interleave(2, axis) * 0.5
    return g


def _given_levels(
    tex: torch.Tensor, mip: Any, cube: bool, max_mip_level: int | None
) -> list[torch.Tensor]:
    """The levels below tex that a user gave, checked."""
    is_opaque = isinstance(mip, Mipmap)
    if not is_opaque and not isinstance(mip, (list, tuple)):
        raise GraphError(
            "texture: mip must be what texture_construct_mip returns or a list of tensors, "
            f"got {type(mip).__name__}"
        )
    levels = list(mip.levels if isinstance(mip, Mipmap) else mip)
    if max_mip_level is not None:
        levels = levels[:max_mip_level]
    h, w = tex.shape[-3:-1]
    for k, level in enumerate(levels):
        h, w = max(1, h // 2), max(1, w // 2)
        wanted = [*tex.shape[:-3], h, w, tex.shape[-1]]
        name = f"mip[{k}]" if not is_opaque else "a level of mip"
        check_tensor("texture", name, level, wanted, device=tex.device)
    if isinstance(mip, Mipmap):
        if mip.cube != cube:
            raise GraphError("texture: mip was constructed with another cube_mode")
        if levels and tex.requires_grad:
            levels = list(_FromTexture.apply(tex, *levels))
    return levels


# -- arguments


def _check_tex(who: str, tex: Any, cube: bool) -> None:
    check_tensor(who, "tex", tex, ("N", 6, "W", "W", "C") if cube else ("N", "H", "W", "C"))
    if cube and tex.shape[-3] != tex.shape[-2]:
        raise GraphError(f"{who}: tex must have square faces, got {list(tex.shape)}")
    if 0 in tex.shape:
        raise GraphError(f"{who}: tex must have texels and channels, got {list(tex.shape)}")


def _check_places(
    who: str, tex: torch.Tensor, uv: Any, uv_da: Any, mip_level_bias: Any, cube: bool
) -> None:
    n = 3 if cube else 2
    check_tensor(who, "uv", uv, ("N", "H", "W", n), device=tex.device)
    check_minibatch(who, "tex", tex, uv.shape[0])
    shape = uv.shape[:3]
    if uv_da is not None:
        check_tensor(who, "uv_da", uv_da, (*shape, 2 * n), device=tex.device)
    if mip_level_bias is not None:
        check_tensor(who, "mip_level_bias", mip_level_bias, shape, device=tex.device)


def _filter(filter_mode: Any, uv_da: Any, mip_level_bias: Any) -> str:
    if filter_mode not in FILTERS:
        raise GraphError(f"texture: filter_mode must be one of {FILTERS}, got {filter_mode!r}")
    no_detail = uv_da is None and mip_level_bias is None
    if filter_mode == "auto":
        return "linear" if no_detail else "linear-mipmap-linear"
    if "mipmap" in filter_mode and no_detail:
        raise GraphError(f"texture: {filter_mode} needs uv_da or mip_level_bias")
    return str(filter_mode)
