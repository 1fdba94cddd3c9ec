"""Tensors as leaves: which Variable an argument of a layer becomes.

In: a tensor, what is said of it (``Input``), the layout of images. Out: a ``Leaf``: type, size and
layers, and the tensor as the graph takes it. Errors name the argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch

from dressi.ad.graph import Variable
from dressi.ad.shape import Size
from dressi.ad.vtype import VType
from dressi.errors import GraphError
from dressi.torch.share import Seen

Form = Literal["image", "table", "value"]
Layout = Literal["NHWC", "NCHW"]

_FLOATS = (VType.FLOAT, VType.VEC2, VType.VEC3, VType.VEC4)
_INTS = (VType.INT, VType.IVEC2, VType.IVEC3, VType.IVEC4)


@dataclass(frozen=True)
class Input:
    """What is said of an argument of a layer; what is not said follows from its tensor.

    vtype: type of a pixel, row or value; default FLOAT to VEC4, or INT to IVEC4, by the last extent
    (of images in layout NCHW: by the channels). form: ``image`` (H, W, C), ``table`` (N, C) or
    ``value`` (C,), each also with a batch in front; default by the number of dimensions: 3 and 4
    are an image, 2 a table, 1 and 0 a value, and a matrix type is a value. capacity: rows of a
    table whose number of rows changes: it is padded with zeros to so many, and the function may
    take ``<name>_count``, INT @ 1x1, the rows that count. Raises GraphError for anything else.
    """

    vtype: VType | None = None
    form: Form | None = None
    capacity: int | None = None

    def __post_init__(self) -> None:
        if self.vtype is not None and not isinstance(self.vtype, VType):
            raise GraphError(f"Input: vtype must be a VType, got {self.vtype!r}")
        if self.form is not None and self.form not in get_args(Form):
            raise GraphError(f"Input: form must be one of {get_args(Form)}, got {self.form!r}")
        capacity = self.capacity
        if capacity is not None and (
            isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1
        ):
            raise GraphError(f"Input: capacity must be an integer of at least 1, got {capacity!r}")


@dataclass(frozen=True)
class Leaf:
    """Type, size and layers of an argument: equal Leafs mean the same graph."""

    vtype: VType
    size: Size
    layers: int
    batched: bool
    """Whether the tensor has a batch dimension."""

    def variable(self, name: str) -> Variable:
        """Return a new leaf."""
        return Variable(self.vtype, self.size, self.layers, name=name)


def as_input(name: str, said: object) -> Input:
    """Return an Input, also from a VType or the name of a form. Raises GraphError else."""
    if isinstance(said, Input):
        return said
    if isinstance(said, VType):
        return Input(said)
    if isinstance(said, str):
        return Input(form=said)  # type: ignore[arg-type] # checked there
    raise GraphError(f"inputs[{name!r}] must be an Input, a VType or a form, got {said!r}")


def label(name: str, t: torch.Tensor) -> str:
    """Return name, dtype, shape, device and requires_grad of an argument, for errors."""
    dtype = str(t.dtype).removeprefix("torch.")
    grad = ", requires_grad" if t.requires_grad else ""
    return f"argument {name!r} ({dtype} {tuple(t.shape)} on {t.device}{grad})"


@dataclass(frozen=True, eq=False)
class Prepared:
    """What ``prepare`` found for an argument, for tensors of the same shape and kind."""

    leaf: Leaf
    rows: int
    shape: torch.Size
    kind: tuple[torch.dtype, torch.device, torch.layout]
    integers: tuple[torch.Tensor | bytes, torch.Tensor] | None
    """Values that it was found for (on the CPU their bytes, which are compared in a quarter of the
    time), and as the graph takes them; None for floats."""
    seen: Seen | None = None
    """Of integers on a device, where looking at values waits for it."""

    @property
    def token(self) -> object | None:
        """What stands for the values while ``ready`` finds that they are those of before; None
        where it does not compare them."""
        return None if self.integers is None else self.integers[1]

    def ready(self, tensor: object) -> torch.Tensor | None:
        """The tensor as the graph takes it; None where it must be looked at anew."""
        if not isinstance(tensor, torch.Tensor) or tensor.shape != self.shape:
            return None
        if (tensor.dtype, tensor.device, tensor.layout) != self.kind:
            return None
        if self.integers is None:
            return tensor  # ``Compiled`` takes its shape: a view would be a node of autograd
        before, ready = self.integers
        if isinstance(before, bytes):
            return ready if tensor.numpy().tobytes() == before else None
        known = self.seen is not None and self.seen.holds(tensor)
        return ready if known or torch.equal(before, tensor) else None


def kept(
    tensor: torch.Tensor, found: tuple[Leaf, torch.Tensor, int], said: Input, layout: Layout
) -> Prepared | None:
    """Return what ``prepare`` found as what serves the next call too; None where a tensor is moved
    (to the CPU, too) or padded in each call."""
    leaf, ready, rows = found
    moved = layout == "NCHW" and tensor.ndim >= 3 and not leaf.vtype.is_matrix
    if said.capacity is not None or moved or tensor.device != ready.device:
        return None
    kind = tensor.dtype, tensor.device, tensor.layout
    if tensor.is_floating_point():
        return Prepared(leaf, rows, tensor.shape, kind, None)
    own = tensor.numpy().tobytes() if tensor.is_cpu else tensor.clone()
    seen = None if tensor.is_cpu else Seen(tensor)
    return Prepared(leaf, rows, tensor.shape, kind, (own, ready.clone()), seen)


def prepare(
    name: str, tensor: object, said: Input, layout: Layout, shared: torch.device | None = None
) -> tuple[Leaf, torch.Tensor, int]:
    """Return what an argument becomes, its tensor as the graph takes it (on the CPU or the shared
    device, float32 or int32, NHWC, padded to the capacity), and its number of rows. Raises
    GraphError, naming the argument, for anything that the graph cannot take."""
    if not isinstance(tensor, torch.Tensor):
        raise GraphError(
            f"argument {name!r}: needs a torch.Tensor, got {type(tensor).__name__}\n"
            "  hint: torch.as_tensor makes one of a NumPy array without a copy"
        )
    who = label(name, tensor)
    t = _of_kind(who, tensor, said, shared)
    form = said.form or _form_of(who, t, said)
    if form == "image" and layout == "NCHW":
        if t.ndim not in (3, 4):
            raise GraphError(f"{who}: an image in layout NCHW is (C, H, W) or (N, C, H, W)")
        t = t.movedim(-3, -1)
    vtype = said.vtype or _vtype_of(who, t, form)
    _check_kind(who, t, vtype)
    rank = {"image": 2, "table": 1, "value": 0}[form]
    extents, batch = _extents(who, t, vtype, rank, form)
    if said.capacity is not None:
        if form != "table":
            raise GraphError(f"{who}: a capacity belongs to a table (N, C), this is a {form}")
        t = _padded(who, t, extents[0], said.capacity, len(vtype.tail))
    rows = extents[0] if form == "table" else 1
    width, height = {
        "image": lambda: (extents[1], extents[0]),
        "table": lambda: (said.capacity or extents[0], 1),
        "value": lambda: (1, 1),
    }[form]()
    full = (1 if batch is None else batch, height, width, *vtype.tail)
    return Leaf(vtype, (width, height), full[0], batch is not None), t.reshape(full), rows


def _of_kind(who: str, t: torch.Tensor, said: Input, shared: torch.device | None) -> torch.Tensor:
    """The tensor on the CPU or the shared device as float32 or int32."""
    if t.layout != torch.strided or t.is_meta:
        raise GraphError(f"{who}: needs a dense tensor with data")
    if t.is_floating_point():
        if t.dtype != torch.float32:
            hint = "pass it as .float()" + (
                ", or leave autocast off around the layer" if t.dtype.itemsize < 4 else ""
            )
            raise GraphError(f"{who}: needs float32 or an integer type\n  hint: {hint}")
        return t if t.device == shared else t.cpu()
    if t.is_complex():
        raise GraphError(f"{who}: needs float32 or an integer type")
    if said.vtype is not None and not said.vtype.is_int:
        raise GraphError(f"{who}: is to be {said.vtype.name}: needs float32")
    t = t if t.device == shared else t.cpu()
    if t.dtype == torch.int64 and t.numel():
        limits = torch.iinfo(torch.int32)
        if int(t.min()) < limits.min or int(t.max()) > limits.max:
            raise GraphError(f"{who}: has integers beyond 32 bits")
    return t.to(torch.int32)


def _form_of(who: str, t: torch.Tensor, said: Input) -> Form:
    if said.capacity is not None:
        return "table"
    if said.vtype is not None and said.vtype.is_matrix:
        return "value"
    if t.ndim > 4:
        raise GraphError(f"{who}: has {t.ndim} dimensions; an image has 3, a batch of images 4")
    forms: Mapping[int, Form] = {0: "value", 1: "value", 2: "table"}
    return forms.get(t.ndim, "image")


def _vtype_of(who: str, t: torch.Tensor, form: Form) -> VType:
    n = t.shape[-1] if t.ndim else 1
    if not 1 <= n <= 4:
        hint = "a table of numbers is (N, 1)" if t.ndim == 1 else "several arguments hold more"
        raise GraphError(f"{who}: has {n} channels, of 1 to 4\n  hint: {hint}")
    return (_FLOATS if t.is_floating_point() else _INTS)[n - 1]


def _check_kind(who: str, t: torch.Tensor, vtype: VType) -> None:
    if vtype.is_int and t.is_floating_point():
        why = "an integer has no gradient" if t.requires_grad else "needs an integer type"
        raise GraphError(f"{who}: is to be {vtype.name}: {why}\n  hint: pass it as .int()")


def _extents(
    who: str, t: torch.Tensor, vtype: VType, rank: int, form: Form
) -> tuple[tuple[int, ...], int | None]:
    """The extents between the batch and the components, and the batch, None where there is none."""
    shape, tail = tuple(t.shape), tuple(vtype.tail)
    if form == "value" and tail == (1,) and (not shape or shape[-1] != 1):
        shape = (*shape, 1)  # numbers need no channel
    front = shape[: len(shape) - len(tail)]
    if shape[len(front) :] != tail or len(front) not in (rank, rank + 1) or 0 in front:
        names = {"image": "H, W, ", "table": "N, ", "value": ""}[form]
        one = f"({names}{', '.join(map(str, tail))})"
        raise GraphError(
            f"{who}: {vtype.name} as {form} needs shape {one}, also with a batch in front, and no "
            "extent of 0"
        )
    return front[len(front) - rank :], (front[0] if len(front) > rank else None)


def _padded(who: str, t: torch.Tensor, n: int, capacity: int, n_tail: int) -> torch.Tensor:
    if n > capacity:
        raise GraphError(
            f"{who}: has {n} rows, the capacity is {capacity}\n  hint: raise Input.capacity"
        )
    if n == capacity:
        return t
    return torch.nn.functional.pad(t, (0, 0) * n_tail + (0, capacity - n))


def count(rows: int) -> torch.Tensor:
    """Return a number of rows as the graph takes it."""
    return torch.from_numpy(np.full((1, 1, 1, 1), rows, np.int32))
