"""``rasterize`` and ``DepthPeeler``: clip positions to (u, v, z / w, triangle + 1) per pixel."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import torch

from dressi.ad import F, Variable
from dressi.errors import GraphError
from dressi.render.raster.clip_space import (
    build_clip_raster,
    opengl_to_vulkan,
    raster_image,
    weight_derivatives,
)
from dressi.torch.eager import call
from dressi.torch.nvdiffrast.checks import check_indices, check_tensor, check_tri, zeros_of
from dressi.torch.nvdiffrast.contexts import RasterizeCudaContext


def rasterize(
    glctx: RasterizeCudaContext,
    pos: torch.Tensor,
    tri: torch.Tensor,
    resolution: Sequence[int],
    ranges: torch.Tensor | None = None,
    grad_db: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rasterize triangles. Return two float32 tensors [N, height, width, 4]: (u, v, z / w, triangle
    + 1), and (du/dX, du/dY, dv/dX, dv/dY) per pixel. Both are 0 where there is no triangle.

    glctx: a context. pos: float32 [N, V, 4], or with ranges [V, 4]: OpenGL clip space. tri: int32
    [F, 3]. resolution: (height, width). ranges: int32 [N, 2] on the CPU, (start, count) rows of tri
    of each image. u and v: weights of vertices 0 and 1 of the triangle. Row 0 is the lowest of the
    picture. No culling. Gradient to pos through u and v, and with grad_db through their
    derivatives; none through z / w and the number. Raises GraphError that names the argument.
    """
    return _Scene("rasterize", glctx, pos, tri, resolution, ranges, grad_db).layer(0)


class DepthPeeler:
    """Layers of depth, one after the other: ``with DepthPeeler(...) as peeler:`` and then
    ``peeler.rasterize_next_layer()``. Arguments as of ``rasterize``."""

    def __init__(
        self,
        glctx: RasterizeCudaContext,
        pos: torch.Tensor,
        tri: torch.Tensor,
        resolution: Sequence[int],
        ranges: torch.Tensor | None = None,
        grad_db: bool = True,
    ) -> None:
        self._scene = _Scene("DepthPeeler", glctx, pos, tri, resolution, ranges, grad_db)
        self._next: int | None = None

    def __enter__(self) -> DepthPeeler:
        self._next = 0
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._next = None

    def rasterize_next_layer(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what ``rasterize`` returns, of the next layer; the first call gives the nearest.

        Triangles of equal depth share a layer, of which one is returned. Raises GraphError outside
        of ``with``.
        """
        if self._next is None:
            raise GraphError(
                "rasterize_next_layer: the peeler is not open\n"
                "  hint: with DepthPeeler(...) as peeler: peeler.rasterize_next_layer()"
            )
        self._next += 1
        return self._scene.layer(self._next - 1)


class _Scene:
    """The checked arguments of ``rasterize``."""

    def __init__(
        self,
        who: str,
        glctx: Any,
        pos: torch.Tensor,
        tri: torch.Tensor,
        resolution: Sequence[int],
        ranges: torch.Tensor | None,
        grad_db: bool,
    ) -> None:
        if not isinstance(glctx, RasterizeCudaContext):
            raise GraphError(
                f"{who}: glctx must be a RasterizeCudaContext or RasterizeGLContext, "
                f"got {type(glctx).__name__}"
            )
        self.size = _size(who, resolution)
        check_tensor(who, "pos", pos, ("V", 4) if ranges is not None else ("N", "V", 4))
        check_tri(who, tri, pos.device)
        self.output_db, self.grad_db = glctx.output_db, bool(grad_db)
        self.pos, self.tri = pos, tri
        self.first: torch.Tensor | None = None
        self.n_images = pos.shape[0] if ranges is None else len(ranges)
        self.is_empty = 0 in (tri.shape[0], pos.shape[-2], self.n_images)
        if not self.is_empty:
            check_indices(who, tri, pos.shape[-2])
        if ranges is not None:
            _check_ranges(who, ranges, tri.shape[0])
            if not self.is_empty:
                self.tri, self.first = tables_of_ranges(tri, ranges.long())

    def layer(self, peel: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Both tensors, of one layer of depth."""
        width, height = self.size
        if self.is_empty:
            shape = (self.n_images, height, width, 4)
            db = zeros_of(shape, self.pos) if self.output_db else self.pos.new_empty(0)
            return zeros_of(shape, self.pos), db
        options = (self.size, peel, self.grad_db, self.output_db)
        tables = [self.pos, self.tri] if self.first is None else [self.pos, self.tri, self.first]
        out = call(("rasterize", options), lambda *v: _graph(*options, *v), [], tables)
        return out[0], out[1] if self.output_db else self.pos.new_empty(0)


def _graph(
    size: tuple[int, int],
    peel: int,
    grad_db: bool,
    output_db: bool,
    pos: Variable,
    tri: Variable,
    first: Variable | None = None,
) -> list[Variable]:
    """The images of both tensors. first: INT @ 1x1, number of the first row of tri per layer."""
    # Dynamic: an index that is sent anew all the time is not worth inverting on the host.
    faces = F.dynamic(tri)
    raster = build_clip_raster(opengl_to_vulkan(pos), faces, size, peel=peel)
    image = raster_image(raster, first)
    if not output_db:
        return [image]
    corners = raster.corners
    if not grad_db:
        a, b, c = corners
        corners = (F.stop_gradient(a), F.stop_gradient(b), F.stop_gradient(c))
    return [image, weight_derivatives(corners, raster.ids, size)]


def tables_of_ranges(tri: torch.Tensor, ranges: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(N, most, 3) int32: the rows of tri of each range, filled up with triangles without area; and
    (N, 1, 1) int32, where each range begins. ranges: (N, 2) on the CPU, start and count."""
    start, count = ranges[:, 0], ranges[:, 1]
    rows = torch.arange(max(1, int(count.max())))[None]
    inside = rows < count[:, None]
    index = torch.where(inside, start[:, None] + rows, 0).to(tri.device)
    table = tri[index] * inside.to(tri.device)[..., None].int()
    return table.contiguous(), start.int().reshape(-1, 1, 1).to(tri.device)


def _size(who: str, resolution: Any) -> tuple[int, int]:
    try:
        height, width = (operator.index(n) for n in resolution)
    except (TypeError, ValueError):
        height = width = 0
    if min(height, width) < 1:
        raise GraphError(
            f"{who}: resolution must be (height, width), whole numbers of at least 1, "
            f"got {resolution!r}"
        )
    return width, height


def _check_ranges(who: str, ranges: Any, n_faces: int) -> None:
    check_tensor(who, "ranges", ranges, ("N", 2), torch.int32, torch.device("cpu"))
    if len(ranges) and (int(ranges.min()) < 0 or int(ranges.long().sum(1).max()) > n_faces):
        raise GraphError(
            f"{who}: ranges must be (start, count) within the {n_faces} rows of tri, "
            f"got {ranges.tolist()}"
        )
