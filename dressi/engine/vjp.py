"""A forward pass and a backward pass as two plans: what ``DressiAD.vjp`` returns.

In: outputs of a graph, the leaves to differentiate to. Out: values, and for upstream gradients from
the host the gradients of the leaves. The upstream gradients are leaves; what depends on none of
them is the forward plan, which leaves in images on the device what the backward plan reads.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dressi.ad.graph import Variable, leaves
from dressi.ad.verify import check_graph
from dressi.ad.vjp import build_vjp
from dressi.engine.checks import need_variable
from dressi.engine.runtime import Runtime
from dressi.engine.stepper import Part
from dressi.errors import GraphError
from dressi.packing.reactive import split_changing


@dataclass(eq=False)
class _Compiled:
    """The two plans on the device. Holds no graph."""

    forward: Part
    backward: Part
    keys: tuple[int, ...]
    """Of the images and buffers between them."""
    outputs: list[tuple[Part, Variable]]
    gradients: list[tuple[Part, Variable]]
    runtime: Runtime

    def close(self) -> None:
        for part in (self.forward, self.backward):
            part.executable.close()
        if not self.runtime.closed:
            for key in self.keys:
                self.runtime.device.drop(key)


class VJP:
    """Values of a graph and their vector-Jacobian product, compiled for one engine.

    ``DressiAD.vjp`` makes one. It frees what it holds on the device when it is closed or dropped.
    Methods may be called from any thread; one at a time runs per engine.
    """

    def __init__(
        self,
        runtime: Runtime,
        lock: threading.RLock,
        outputs: Sequence[Variable],
        wrt: Sequence[Variable],
    ) -> None:
        self.outputs, self.wrt = _checked("outputs", outputs), _checked("wrt", wrt)
        _check_differentiable(self.outputs, self.wrt)
        check_graph(self.outputs)
        self._runtime, self._lock = runtime, lock
        self._upstream = {k: _upstream(v) for k, v in enumerate(self.outputs) if not v.vtype.is_int}
        self._zero = set(self._upstream)  # upstream gradients that are zero
        seeded = [self.outputs[k] for k in self._upstream]
        made = build_vjp(seeded, list(self._upstream.values()), self.wrt)
        self._gradients = [made.get(x) for x in self.wrt]
        self._leaves = {v.uid for v in leaves([*self.outputs, *made.values()])}
        self._leaves -= {v.uid for v in self._upstream.values()}
        self._held: _Compiled | None = None
        self._ran_at = (-1, -1)
        self.n_forward = 0
        """Times that the forward plan ran."""
        runtime.users.add(self)

    def forward(self) -> list[np.ndarray]:
        """Return the outputs at the current data of the leaves, shaped as ``recv_img`` gives them.

        Runs the forward plan unless nothing that it reads was sent since it ran.
        """
        with self._lock:
            self._runtime.enter()
            held = self._run_forward()
            return [self._read(part, v) for part, v in held.outputs]

    def backward(self, upstream: Sequence[Any]) -> list[np.ndarray | None]:
        """Return the gradients of the leaves ``wrt``, shaped like them: of the sum of all outputs,
        each times its upstream gradient.

        upstream: for each output an array of its shape, or None for zeros (integer outputs: always
        None). Runs the backward plan alone where no leaf was sent since ``forward``, else both. A
        leaf that the outputs do not reach through differentiable ops has None. Raises GraphError
        for a wrong number or shape, NaN and infinity.
        """
        with self._lock:
            self._runtime.enter()
            self._send_upstream(upstream)
            held = self._run_forward()
            if not held.backward.is_empty:
                held.backward.run(1, self._runtime.store)
            found = iter(held.gradients)
            return [None if g is None else self._read(*next(found)) for g in self._gradients]

    def parts(self) -> tuple[Part, ...]:
        """Return what lies on the device: the forward and the backward plan, once compiled."""
        return () if self._held is None else (self._held.forward, self._held.backward)

    def close(self) -> None:
        """Free what lies on the device; it is built again when it is needed. Idempotent."""
        with self._lock:
            if self._held is not None:
                self._held.close()
                self._held = None
                self._ran_at = (-1, -1)

    # -- inside

    def _send_upstream(self, upstream: Sequence[Any]) -> None:
        if len(upstream) != len(self.outputs):
            raise GraphError(
                f"backward: {len(upstream)} upstream gradients for {len(self.outputs)} outputs"
            )
        for k, value in enumerate(upstream):
            leaf = self._upstream.get(k)
            if leaf is None and value is not None:
                raise GraphError(
                    f"backward: the output {self.outputs[k].label()} is an integer: its upstream "
                    "gradient must be None"
                )
            if leaf is None or (value is None and k in self._zero):
                continue
            if value is None:
                value = _zeros(leaf)
                self._zero.add(k)
            else:
                self._zero.discard(k)
            self._runtime.send(leaf, value, ())

    def _run_forward(self) -> _Compiled:
        held = self._compiled()
        store = self._runtime.store
        now = (store.newest(self._leaves), self._runtime.epoch)
        if self._ran_at != now:
            if not held.forward.is_empty:
                held.forward.run(1, store)
            self._ran_at = now
            self.n_forward += 1
        return held

    def _compiled(self) -> _Compiled:
        runtime, held = self._runtime, self._held
        if held is not None:
            uniforms = (*held.forward.packed.uniforms, *held.backward.packed.uniforms)
            if not runtime.store.on_device(uniforms):
                return held
            # A step writes a leaf that was a number of the uniform block when this was compiled.
            self.close()
        runtime.phases.clear()
        wanted = [*self.outputs, *(g for g in self._gradients if g is not None)]
        packed, lowered = runtime.pack(wanted, [], "backward", self._upstream.values())
        split = split_changing(packed)
        forward = runtime.compile(split.static)
        try:
            backward = runtime.compile(split.step)
        except BaseException:
            forward.executable.close()
            for key in split.keys:
                runtime.device.drop(key)
            raise
        for part in (forward, backward):
            part.packed = replace(part.packed, substages=(), task=None)  # they hold the graph
        places = [(forward if forward.holds(v) else backward, v) for v in lowered]
        n = len(self.outputs)
        held = _Compiled(forward, backward, split.keys, places[:n], places[n:], runtime)
        self._held, self._ran_at = held, (-1, -1)
        weakref.finalize(self, runtime.orphans.append, held).atexit = False
        return held

    def _read(self, part: Part, v: Variable) -> np.ndarray:
        return self._runtime.read(part, v, v)


def _upstream(v: Variable) -> Variable:
    """Return a leaf of zeros for the upstream gradient of an output."""
    name = v.name or f"%{v.uid}"
    leaf = Variable(v.vtype, v.size, v.layers, name=f"upstream gradient of {name}")
    leaf.data = _zeros(leaf)
    return leaf


def _zeros(v: Variable) -> np.ndarray:
    return np.zeros((v.layers, v.size[1], v.size[0], *v.vtype.tail), np.float32)


def _checked(what: str, variables: Sequence[Variable]) -> tuple[Variable, ...]:
    for v in variables:
        need_variable(f"vjp: {what}", v)
    return tuple(variables)


def _check_differentiable(outputs: Sequence[Variable], wrt: Sequence[Variable]) -> None:
    for x in wrt:
        if x.creator is not None or x.vtype.is_int:
            raise GraphError(f"vjp: wrt must be leaves with a gradient, got {x.label()}")
    for leaf in leaves(outputs):
        if leaf.update is not None:
            raise GraphError(
                f"vjp: the outputs read {leaf.label()}, which a step updates; there are no steps "
                "here\n  hint: send what changes from call to call as a leaf"
            )
