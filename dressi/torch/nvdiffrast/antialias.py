"""``antialias``: silhouettes of a rasterized picture blended, with gradients of positions."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dressi.ad import F, Variable
from dressi.errors import GraphError
from dressi.render.raster.antialias_over import blend_edges, build_edge_weights
from dressi.render.raster.clip_space import opengl_to_vulkan
from dressi.render.raster.topology import face_neighbors
from dressi.torch.eager import call, groups, joined
from dressi.torch.nvdiffrast.checks import check_indices, check_minibatch, check_tensor, check_tri


@dataclass(frozen=True)
class TopologyHash:
    """Which triangle lies across which edge, of ``antialias_construct_topology_hash``. Opaque: pass
    it to ``antialias``."""

    neighbors: torch.Tensor
    """int32 [F, 3], across edges 01, 12, 20; -1 where there is none."""


def antialias_construct_topology_hash(tri: torch.Tensor) -> TopologyHash:
    """Return what ``antialias`` needs to know of triangles that stay as they are.

    tri: int32 [F, 3]. Without it ``antialias`` makes it, and keeps it while the tensor lives and is
    not written to.
    """
    check_tri("antialias_construct_topology_hash", tri)
    found = face_neighbors(tri.detach().cpu().numpy()) if len(tri) else np.zeros((0, 3), np.int32)
    return TopologyHash(torch.from_numpy(np.ascontiguousarray(found)).to(tri.device))


def antialias(
    color: torch.Tensor,
    rast: torch.Tensor,
    pos: torch.Tensor,
    tri: torch.Tensor,
    topology_hash: TopologyHash | None = None,
    pos_gradient_boost: float = 1.0,
) -> torch.Tensor:
    """Blend a picture at silhouettes. Return [N, height, width, C].

    color: float32 [N, height, width, C], any C. rast: the first tensor of ``rasterize``. pos: as
    ``rasterize`` got it, [N or 1, V, 4] or [V, 4]. tri: int32 [F, 3]. topology_hash: of
    ``antialias_construct_topology_hash``. pos_gradient_boost: factor of the gradient of pos.
    Between two pixels of different triangles, where the nearer surface ends, each takes from the
    other as much as the edge cuts off its square. Gradient to color and, through silhouettes, to
    pos. Raises GraphError that names the argument.
    """
    who = "antialias"
    _check(who, color, rast, pos, tri)
    if topology_hash is not None and not isinstance(topology_hash, TopologyHash):
        raise GraphError(
            f"{who}: topology_hash must be what antialias_construct_topology_hash returns, "
            f"got {type(topology_hash).__name__}"
        )
    if 0 in (*color.shape, *tri.shape, *pos.shape):
        return color
    check_indices(who, tri, pos.shape[-2])
    neighbors = (topology_hash or _kept_topology(tri)).neighbors
    if neighbors.shape != tri.shape:
        raise GraphError(
            f"{who}: topology_hash is of {len(neighbors)} triangles, tri has {len(tri)}"
        )
    if pos_gradient_boost != 1.0:
        pos = pos.detach() + (pos - pos.detach()) * float(pos_gradient_boost)
    images, tables = [rast.detach(), *groups(color)], [pos, tri, neighbors]
    if pos.ndim == 2:
        # Each image shows triangles of its own, and what the others show must not hide them.
        tables[1:] = _tables_per_image(rast, tri, neighbors)
    out = call(("antialias", len(tables)), lambda *v: _graph(len(images), v), images, tables)
    return joined(out)


def _graph(n_images: int, leaves: Sequence[Variable]) -> list[Variable]:
    """Images of the groups of channels."""
    rast, *colors = leaves[:n_images]
    pos, tri, neighbors, *first = leaves[n_images:]
    ids = F.to_int(rast.w + 0.5) - 1
    if first:
        ids = F.where(F.compare("gte", ids, 0), ids - first[0], -1)
    weights = build_edge_weights(
        opengl_to_vulkan(pos), F.dynamic(tri), ids, rast.z * 0.5 + 0.5, F.dynamic(neighbors)
    )
    return blend_edges(colors, weights)


def _tables_per_image(
    rast: torch.Tensor, tri: torch.Tensor, neighbors: torch.Tensor
) -> list[torch.Tensor]:
    """[N, most, 3] triangles and neighbours of each image, filled up with triangles without area,
    and [N, 1, 1] the number of the first: of those from the lowest to the highest that is seen or
    lies beside one that is."""
    n, first, last = len(rast), [], []
    for ids in rast[..., 3].detach():
        seen = torch.unique(ids.long())
        seen = seen[seen > 0] - 1
        around = torch.cat([seen, neighbors[seen].flatten().long()])
        around = around[around >= 0]
        first.append(int(around.min()) if len(around) else 0)
        last.append(int(around.max()) if len(around) else -1)
    begin = torch.tensor(first, device=tri.device)
    count = torch.tensor(last, device=tri.device) + 1 - begin
    rows = torch.arange(max(1, int(count.max())), device=tri.device)[None]
    inside = (rows < count[:, None])[..., None]
    index = torch.where(inside[..., 0], begin[:, None] + rows, 0)
    local = neighbors[index] - begin.int()[:, None, None]
    within = inside & (neighbors[index] >= 0) & (local >= 0) & (local < count[:, None, None])
    faces = torch.where(inside, tri[index], 0)
    return [faces, torch.where(within, local, -1).int(), begin.int().reshape(n, 1, 1)]


_topologies: dict[int, tuple[weakref.ref[torch.Tensor], int, TopologyHash]] = {}


def _kept_topology(tri: torch.Tensor) -> TopologyHash:
    """The topology of a tensor, made once per tensor and version."""
    if tri.is_inference():
        return antialias_construct_topology_hash(tri)
    known = _topologies.get(id(tri))
    if known is not None and known[0]() is tri and known[1] == tri._version:
        return known[2]
    made, key = antialias_construct_topology_hash(tri), id(tri)
    gone = weakref.ref(tri, lambda _: _topologies.pop(key, None))
    _topologies[key] = (gone, tri._version, made)
    return made


def _check(
    who: str, color: torch.Tensor, rast: torch.Tensor, pos: torch.Tensor, tri: torch.Tensor
) -> None:
    check_tensor(who, "color", color, ("N", "H", "W", "C"))
    n, device = color.shape[0], color.device
    check_tensor(who, "rast", rast, (*color.shape[:3], 4), device=device)
    flat = isinstance(pos, torch.Tensor) and pos.ndim == 2
    check_tensor(who, "pos", pos, ("V", 4) if flat else ("N", "V", 4), device=device)
    if not flat:
        check_minibatch(who, "pos", pos, n)
    check_tri(who, tri, device)
