"""A compiled graph as a function of torch tensors with a gradient.

In: a graph from input leaves to outputs. Out: ``Compiled``, which takes and returns NumPy arrays,
and ``apply``, which does so for tensors under autograd. Intermediates stay on the device between
the forward and the backward pass.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from dressi.ad.graph import Variable, leaves
from dressi.engine import DressiAD
from dressi.engine.vjp import VJP
from dressi.errors import DeviceError, GraphError
from dressi.torch.share import COMPARED_BYTES, TorchShare, fits, share_of

Result = TypeVar("Result")

_opening = threading.Lock()
_shared: DressiAD | None = None
_opened_by = -1  # process


def engine() -> DressiAD:
    """Return the engine that layers share in this process: the device that ``DRESSI_DEVICE`` names,
    else the best. It is opened by the first call, and again after it was closed.

    Raises DeviceError when no device can be had, and in a forked child of the process that opened
    it.
    """
    global _shared, _opened_by
    if _shared is not None and _opened_by != os.getpid():
        raise DeviceError(
            f"the device of dressi.torch was opened by process {_opened_by}; this is its forked "
            "child, which cannot use it\n"
            "  hint: render in the main process, or give the DataLoader "
            "multiprocessing_context='spawn'"
        )
    with _opening:
        if _shared is None or _shared.runtime.closed:
            _shared, _opened_by = DressiAD(), os.getpid()
        return _shared


class Compiled:
    """A graph from some leaves to some outputs, compiled on an engine, for NumPy arrays.

    inputs: leaves, in the order of the arrays. outputs: Variables that depend on them. ad: the
    engine; default the shared one. device: where the tensors lie; where the engine shares memory
    with it (``share`` is not None), arrays are tensors, floats on it. Plans are compiled when they
    are first needed: one for values alone, one for values and gradients per set of inputs that need
    one.

    One set of intermediates is on the device. Where another call came between a forward and its
    backward, that backward sends its inputs again and runs the forward plan again.
    """

    def __init__(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        ad: DressiAD | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.ad = engine() if ad is None else ad
        self.stacks = tuple((v.layers, v.size[1], v.size[0], *v.vtype.tail) for v in outputs)
        """Shapes of the outputs, with all dimensions."""
        self.shown = tuple(map(_shown, outputs))
        """The same as ``recv_img`` gives them."""
        self.integers = [k for k, v in enumerate(outputs) if v.vtype.is_int]
        """Which outputs have no gradient."""
        self._vjps: dict[tuple[bool, ...], VJP] = {}
        # By number of the input what was sent last: its bits, or a token of theirs.
        self._sent: dict[int, object] = {}
        self._seen: dict[int, Any] = {}  # the same where tensors are shared
        self._has_state = any(leaf.update is not None for leaf in leaves(self.outputs))
        able = device is not None and not self._has_state
        able = able and fits((*self.inputs, *self.outputs), self.ad.runtime.limits)
        self.share = share_of(self.ad, device) if able and device is not None else None
        self._n_calls = 0
        self._current = 0  # the call whose inputs lie in the leaves

    def forward(
        self,
        arrays: Sequence[Any],
        needs: Sequence[bool] = (),
        tokens: Sequence[object] = (),
    ) -> tuple[list[np.ndarray], int]:
        """Return the outputs, shaped as ``recv_img`` gives them, tensors with all dimensions, and
        the number of this call, for ``backward``.

        arrays: float32 or int32, as ``send_img`` takes them, or tensors of as many numbers. needs:
        which inputs need a gradient; default none. Inputs that need none are sent only where their
        values changed (floats up to COMPARED_BYTES). tokens: for each input None or an object that
        stands for its values: one that came with them before is the same object.
        """
        with self.ad.lock:
            send = (
                self._vjp(needs).forward if True in needs or not self._has_state else self._receive
            )
            values = self._sending(arrays, needs, tokens, send)
            self._n_calls += 1
            self._current = self._n_calls
            return values, self._n_calls

    def backward(
        self,
        call: int,
        arrays: Sequence[Any],
        needs: Sequence[bool],
        upstream: Sequence[Any],
        tokens: Sequence[object] = (),
    ) -> list[np.ndarray | None]:
        """Return the gradients of the inputs, None where none is needed or there is none.

        call: what ``forward`` returned. arrays, needs, tokens: as it got them. upstream: the
        gradient of each output, or None for zeros.
        """
        upstream = [self._taken(g, v) for g, v in zip(upstream, self.outputs, strict=True)]
        with self.ad.lock:
            vjp = self._vjp(needs)
            if self._current == call:
                found = vjp.backward(upstream)
            else:
                again = partial(vjp.backward, upstream)
                found = self._sending(arrays, needs, tokens, again)
                self._current = call
            gradients = iter(found)
            return [next(gradients) if needed else None for needed in needs]

    def n_bytes(self) -> int:
        """Bytes of the images and buffers that the plans for gradients have on the device now."""
        return sum(vjp.n_bytes() for vjp in self._vjps.values())

    def close(self) -> None:
        """Free the plans for gradients; they are compiled again when they are needed."""
        for vjp in self._vjps.values():
            vjp.close()

    def _vjp(self, needs: Sequence[bool]) -> VJP:
        key = tuple(needs) if True in needs else ()
        found = self._vjps.get(key)
        if found is None:
            wrt = [v for v, needed in zip(self.inputs, key, strict=False) if needed]
            runtime, lock = self.ad.runtime, self.ad.lock
            runtime.enter()
            found = self._vjps[key] = VJP(runtime, lock, self.outputs, wrt, share=self.share)
        return found

    def _receive(self, changed: Sequence[tuple[Variable, np.ndarray]]) -> list[np.ndarray]:
        for leaf, array in changed:
            self.ad.send_img(leaf, array)
        return self.ad.recv_imgs(self.outputs)

    def _sending(
        self,
        arrays: Sequence[Any],
        needs: Sequence[bool],
        tokens: Sequence[object],
        send: Callable[[list[tuple[Variable, np.ndarray]]], Result],
    ) -> Result:
        """Return what ``send`` does, which sends the inputs that changed. Where it cannot, the
        leaves hold a mixture, and all are sent the next time."""
        if len(arrays) != len(self.inputs):
            raise GraphError(f"{len(arrays)} arrays for {len(self.inputs)} inputs")
        self._current = -1
        try:
            if self.share is not None:
                return send(self._changed_tensors(arrays, self.share))
            no = (False,) * len(arrays)
            return send(self._changed(arrays, needs or no, tokens or (None,) * len(arrays)))
        except BaseException:
            self._sent.clear()
            self._seen.clear()
            raise

    def _taken(self, t: Any, v: Variable) -> Any:
        """A tensor as plans take it for v: its memory, in the shape (layers, H, W, *tail) where it
        is not shared. Arrays and None as they are."""
        if not isinstance(t, torch.Tensor):
            return t
        if t.requires_grad and (self.share is None or torch.is_grad_enabled()):
            t = t.detach()
        if self.share is not None:
            return t
        a = (t if t.is_cpu else t.cpu()).numpy()
        return a.reshape(v.layers, v.size[1], v.size[0], *v.vtype.tail)

    def _changed_tensors(
        self, tensors: Sequence[Any], share: TorchShare
    ) -> list[tuple[Variable, Any]]:
        """``_changed`` where tensors are shared: numbers are not looked at, but integers that may
        have changed, which the host must have."""
        changed: list[tuple[Variable, Any]] = []
        for k, (v, t) in enumerate(zip(self.inputs, tensors, strict=True)):
            known = self._seen.get(k)
            if known is not None and known.holds(t):
                continue
            self._seen[k] = share.seen(t)
            if v.vtype.is_int:
                changed += self._changed_integers(k, v, t)
            else:
                changed.append((v, self._taken(t, v)))
        return changed

    def _changed_integers(
        self, k: int, v: Variable, t: torch.Tensor
    ) -> list[tuple[Variable, np.ndarray]]:
        array = t.cpu().numpy()
        bits = array.tobytes()
        if self._sent.get(k) == bits:
            return []
        self._sent[k] = bits
        return [(v, array)]

    def _changed(
        self, arrays: Sequence[Any], needs: Sequence[bool], tokens: Sequence[object]
    ) -> list[tuple[Variable, np.ndarray]]:
        """Inputs whose values may not be those that were sent last. What needs a gradient, and
        large images, are not compared."""
        changed: list[tuple[Variable, np.ndarray]] = []
        sent = self._sent
        for k, (v, t, token) in enumerate(zip(self.inputs, arrays, tokens, strict=True)):
            known = sent.get(k)
            if token is not None:
                if known is token:
                    continue  # not even looked at
                sent[k] = token
                changed.append((v, self._taken(t, v)))
                continue
            a = self._taken(t, v)
            if v.vtype.is_int or not (needs[k] or a.nbytes > COMPARED_BYTES):
                now = a.tobytes()  # where -0 is another number than 0
                if isinstance(known, bytes) and now == known:
                    continue
                sent[k] = now
            elif known is not None:
                del sent[k]
            changed.append((v, a))
        return changed


Shapes = Sequence[tuple[int, ...]]


def apply(
    compiled: Compiled,
    *tensors: torch.Tensor,
    tokens: Sequence[object] = (),
    shapes: Shapes | None = None,
) -> tuple[torch.Tensor, ...]:
    """Return the outputs of a compiled graph as tensors with a gradient.

    tensors: on the CPU, or where the graph shares memory on its device, float32 or int32, one per
    input, with its numbers in the order of ``send_img``. tokens: as for ``Compiled.forward``.
    Returns tensors of these shapes, default as ``recv_img`` gives them. Second derivatives are
    refused with GraphError.
    """
    needs = tuple([t.requires_grad for t in tensors]) if torch.is_grad_enabled() else ()
    if True not in needs:
        values, _ = compiled.forward(tensors, (), tokens)
        return _tensors(values, shapes or compiled.shown)
    return _Call.apply((compiled, needs, tokens, shapes or compiled.shown), *tensors)


class _Call(torch.autograd.Function):
    """A call of a Compiled."""

    @staticmethod
    def forward(
        ctx: Any,
        call_of: tuple[Compiled, tuple[bool, ...], Sequence[object], Shapes],
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        compiled, needs, tokens, shapes = call_of  # as one: each argument costs time
        ctx.set_materialize_grads(False)
        values, call = compiled.forward(tensors, needs, tokens)
        ctx.call_of = compiled, call, needs, tokens
        ctx.save_for_backward(*tensors)
        out = _tensors(values, shapes)
        if compiled.integers:
            ctx.mark_non_differentiable(*[out[k] for k in compiled.integers])
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor | None) -> tuple[Any, ...]:
        tensors = ctx.saved_tensors
        twice = torch.is_grad_enabled()
        compiled, call, needs, tokens = ctx.call_of
        found = compiled.backward(call, tensors, needs, upstream, tokens)
        out = [None if g is None else _like(g, t) for g, t in zip(found, tensors, strict=True)]
        if twice:
            kept = [t for t in (*tensors, *upstream) if t is not None and t.requires_grad]
            out = [None if g is None else _Once.apply(g, *kept) for g in out]
        return (None, *out)


class _Once(torch.autograd.Function):
    """A gradient that has none of its own."""

    @staticmethod
    def forward(ctx: Any, gradient: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return gradient

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise GraphError(
            "dressi.torch: second derivatives are not there: the gradient of a layer has no "
            "gradient of its own\n"
            "  hint: leave create_graph off, or build the gradient into the graph"
        )


def _like(gradient: Any, t: torch.Tensor) -> torch.Tensor:
    """A gradient in the shape of its tensor, and where that lies."""
    found = _tensor(gradient, t.shape)
    return found if found.device == t.device else found.to(t.device)


def _tensors(values: Sequence[Any], shapes: Shapes) -> tuple[torch.Tensor, ...]:
    """Arrays of ``Compiled`` as tensors of these shapes."""
    return tuple(map(_tensor, values, shapes))


def _shown(v: Variable) -> tuple[int, ...]:
    """The shape of a Variable as ``recv_img`` gives it."""
    shape = (v.size[0],) if v.is_table else (v.size[1], v.size[0])
    return (*((v.layers,) if v.layers > 1 else ()), *shape, *v.vtype.tail)


def _tensor(a: Any, shape: Sequence[int]) -> torch.Tensor:
    """Return an array of ``Compiled`` as a tensor with the same memory."""
    if a.shape != shape:
        a = a.reshape(shape)
        if isinstance(a, torch.Tensor):
            a = a.data  # no view for autograd, which refuses to write to those of a function
    return a if isinstance(a, torch.Tensor) else torch.from_numpy(a)
