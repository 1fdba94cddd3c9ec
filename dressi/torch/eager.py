"""Eager calls of graphs on tensors: a compiled plan per shapes and options, with gradients.

In: a function that builds a graph from leaves, tensors. Out: tensors, part of torch's graph. Plans
share one engine and are kept by a key, the latest used ones. A plan whose leaves still hold what a
call sent serves the backward of that call without running forward again.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from dressi.ad.graph import Variable
from dressi.ad.vtype import INT, IVEC3, VType, vector
from dressi.engine import DressiAD

Build = Callable[..., Sequence[Variable]]

KEPT_PLANS = 128
"""Plans that are kept: a script calls a few operations at a few sizes, forward and backward."""

_lock = threading.RLock()
_plans: OrderedDict[Hashable, _Plan] = OrderedDict()
_engines: list[DressiAD] = []


def engine() -> DressiAD:
    """The engine of all eager calls, opened by the first one."""
    if not _engines:
        _engines.append(DressiAD())
    return _engines[0]


def call(
    key: Hashable, build: Build, inputs: Sequence[torch.Tensor], tables: Sequence[bool]
) -> list[torch.Tensor]:
    """Return the outputs of a graph at tensors, each (layers, height, width, channels) float32 on
    the device of the first input.

    key: what ``build`` depends on beside the shapes of the inputs. build: leaves -> outputs.
    inputs: (layers, height, width, channels) of 1 to 4 channels, or for tables (layers, rows,
    channels) and (rows, channels); float32, or int32 of 1 or 3 channels. tables: which inputs are
    tables. Gradient to the float inputs, from where the graph has one.
    """
    wanted = tuple(
        torch.is_grad_enabled() and t.requires_grad and t.is_floating_point() for t in inputs
    )
    shapes = tuple((tuple(t.shape), t.dtype) for t in inputs)
    full_key = (key, shapes, tuple(tables), wanted)
    with _lock:
        plan = _plans.get(full_key)
        if plan is None:
            plan = _plans[full_key] = _Plan(build, inputs, tables, wanted)
            while len(_plans) > KEPT_PLANS:
                _plans.popitem(last=False)[1].close()
        _plans.move_to_end(full_key)
    return list(_Call.apply(plan, *inputs))


def clear() -> None:
    """Close all plans and the engine; the next call opens a new one."""
    with _lock:
        _plans.clear()
        while _engines:
            _engines.pop().close()


class _Plan:
    """A graph, its leaves, and whose data they hold."""

    def __init__(
        self,
        build: Build,
        inputs: Sequence[torch.Tensor],
        tables: Sequence[bool],
        wanted: Sequence[bool],
    ) -> None:
        self.leaves = [_leaf(t, is_table) for t, is_table in zip(inputs, tables, strict=True)]
        self.wrt = [leaf for leaf, w in zip(self.leaves, wanted, strict=True) if w]
        self.wanted = tuple(wanted)
        self._sent: list[tuple[weakref.ref[torch.Tensor], int] | None] = [None] * len(self.leaves)
        outputs = list(build(*self.leaves))
        self.vjp = engine().vjp(outputs, self.wrt)

    def send(self, tensors: Sequence[torch.Tensor]) -> None:
        """Send what the leaves do not hold already."""
        for k, (leaf, tensor) in enumerate(zip(self.leaves, tensors, strict=True)):
            if not self._holds(k, tensor):
                engine().send_img(leaf, _array(tensor, leaf))
                known = None if tensor.is_inference() else (weakref.ref(tensor), tensor._version)
                self._sent[k] = known

    def _holds(self, k: int, tensor: torch.Tensor) -> bool:
        sent = self._sent[k]
        if sent is None or tensor.is_inference():
            return False
        return sent[0]() is tensor and sent[1] == tensor._version

    def close(self) -> None:
        self.vjp.close()


class _Call(torch.autograd.Function):
    """One call of a plan."""

    @staticmethod
    def forward(ctx: Any, plan: _Plan, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.plan = plan
        ctx.save_for_backward(*inputs)
        with _lock:
            plan.send(inputs)
            values = plan.vjp.forward()
        device = inputs[0].device
        outputs = plan.vjp.outputs
        return tuple(
            torch.from_numpy(np.ascontiguousarray(a).reshape(_shape(v))).to(device)
            for a, v in zip(values, outputs, strict=True)
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        plan, inputs = ctx.plan, ctx.saved_tensors
        upstream = [
            None if g is None else np.asarray(g.detach().cpu()).reshape(_shape(v))
            for g, v in zip(gradients, plan.vjp.outputs, strict=True)
        ]
        with _lock:
            plan.send(inputs)
            found = iter(plan.vjp.backward(upstream))
        out: list[torch.Tensor | None] = [None]
        for tensor, wanted in zip(inputs, plan.wanted, strict=True):
            g = next(found) if wanted else None
            if g is not None:
                g = torch.from_numpy(np.ascontiguousarray(g).reshape(tensor.shape))
                g = g.to(tensor.device)
            out.append(g)
        return tuple(out)


def _leaf(tensor: torch.Tensor, is_table: bool) -> Variable:
    """A leaf for tensors of this shape."""
    if is_table:
        layers, rows, n = (1, *tensor.shape) if tensor.ndim == 2 else tuple(tensor.shape)
        return Variable(_vtype(tensor, n), (rows, 1), layers)
    layers, height, width, n = tensor.shape
    return Variable(_vtype(tensor, n), (width, height), layers)


def _vtype(tensor: torch.Tensor, n: int) -> VType:
    if tensor.dtype == torch.int32:
        return INT if n == 1 else IVEC3
    return vector(n)


def _array(tensor: torch.Tensor, leaf: Variable) -> np.ndarray:
    return np.asarray(tensor.detach().cpu()).reshape(_shape(leaf))


def _shape(v: Variable) -> tuple[int, ...]:
    return (v.layers, v.size[1], v.size[0], v.vtype.n)
