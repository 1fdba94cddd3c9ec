"""Checks of arguments, by name. In: what a user gave. Out: nothing, or GraphError."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch

from dressi.errors import GraphError
from dressi.torch.share import Seen, counts_writes

MOST_FACES = 1 << 24
"""Numbers of triangles are stored in float32, where larger ones are not exact."""


def check_tensor(
    who: str,
    name: str,
    tensor: Any,
    dims: Sequence[str | int],
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> None:
    """Raise GraphError unless it is a tensor of that dtype on that device, with axes like dims: a
    number in dims is a length, anything else a name."""
    if not isinstance(tensor, torch.Tensor):
        raise GraphError(f"{who}: {name} must be a torch tensor, got {type(tensor).__name__}")
    if tensor.dtype is not dtype:
        raise GraphError(
            f"{who}: {name} must be {str(dtype).removeprefix('torch.')}, got "
            f"{str(tensor.dtype).removeprefix('torch.')}"
        )
    shape = tensor.shape
    fits = len(shape) == len(dims)
    for wanted, n in zip(dims, shape, strict=False):
        fits = fits and (wanted == n or wanted.__class__ is str)
    if not fits:
        text = f"[{', '.join(map(str, dims))}]"
        raise GraphError(f"{who}: {name} must be {text}, got {list(shape)}")
    if device is not None and tensor.device != device:
        raise GraphError(
            f"{who}: {name} must be on {device} as the other tensors, got {tensor.device}"
        )


def check_tri(who: str, tri: Any, device: torch.device | None = None) -> None:
    """Raise GraphError unless tri is a table of triangles."""
    check_tensor(who, "tri", tri, ("F", 3), torch.int32, device)
    if tri.shape[0] >= MOST_FACES:
        raise GraphError(f"{who}: tri has {tri.shape[0]} triangles, more than {MOST_FACES - 1}")


def check_minibatch(who: str, name: str, tensor: torch.Tensor, n: int) -> None:
    """Raise GraphError unless the first axis is 1 or n."""
    if tensor.shape[0] not in (1, n):
        raise GraphError(f"{who}: {name} must have a minibatch of 1 or {n}, got {tensor.shape[0]}")


def check_indices(who: str, tri: torch.Tensor, n_vertices: int) -> None:
    """Raise GraphError unless all indices are those of vertices."""
    low, high = _bounds(tri)
    if low < 0 or high >= n_vertices:
        raise GraphError(
            f"{who}: tri must have indices from 0 to {n_vertices - 1}, of {n_vertices} vertices, "
            f"got {low} to {high}"
        )


KEPT_BOUNDS = 16
"""Tables on a GPU whose bounds are kept: a script has a few, and calls four functions with each in
every step."""

_found: OrderedDict[int, tuple[Seen, tuple[int, int]]] = OrderedDict()
"""By address."""


def _bounds(tri: torch.Tensor) -> tuple[int, int]:
    """The least and the largest number."""
    if counts_writes(tri):
        known = _found.get(tri.data_ptr())
        if known is not None and known[0].holds(tri):
            return known[1]
    low, high = (int(v) for v in torch.stack(torch.aminmax(tri)).tolist())
    if counts_writes(tri):
        _found[tri.data_ptr()] = Seen(tri), (low, high)
        while len(_found) > KEPT_BOUNDS:
            _found.popitem(last=False)
    return low, high


def zeros_of(shape: Sequence[int], *sources: torch.Tensor) -> torch.Tensor:
    """Return zeros on the device of the sources, whose gradient to them is zero: a picture of
    nothing may be the end of a loss, as any other picture."""
    zeros = sources[0].new_zeros(tuple(shape))
    for source in sources:
        if source.requires_grad:
            zeros = zeros + source.reshape(-1)[:0].sum()
    return zeros
