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
from functools import partial
from typing import Any

import numpy as np

from dressi.ad.graph import Variable, leaves
from dressi.ad.verify import check_graph
from dressi.ad.vjp import build_vjp
from dressi.engine.checks import need_variable
from dressi.engine.leafstore import present
from dressi.engine.moves import Reads, Submits
from dressi.engine.rooms import Rooms
from dressi.engine.runtime import Runtime
from dressi.engine.share import Share
from dressi.engine.shared_reads import SharedReads
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
    outputs: Reads | SharedReads
    gradients: Reads | SharedReads
    submits: Submits
    runtime: Runtime
    read_at: tuple[int, int] = (-1, -1)
    """``_ran_at`` of the outputs that were read last."""
    n_placed: int = -1
    """``n_placed`` of the store when uniforms were looked at last."""

    def close(self) -> None:
        for reads in (self.outputs, self.gradients):
            reads.close()
        for part in (self.forward, self.backward):
            part.executable.close()
        if not self.runtime.closed:
            for key in self.keys:
                self.runtime.device.drop(key)
            self.runtime.store.uploads.release()


class VJP:
    """Values of a graph and their vector-Jacobian product, compiled for one engine.

    ``DressiAD.vjp`` makes one. It frees what it holds on the device when it is closed or dropped.
    Methods may be called from any thread; one at a time runs per engine. With a share, floats are
    arrays of another library on the same card (layers, H, W, *tail), as results are too, which are
    not checked, and methods need not wait for the device.
    """

    def __init__(
        self,
        runtime: Runtime,
        lock: threading.RLock,
        outputs: Sequence[Variable],
        wrt: Sequence[Variable],
        share: Share | None = None,
    ) -> None:
        self._share = share
        # Else a timeline orders what is submitted, and whoever writes host memory waits first.
        self._waits = share is None or share.timeline is None
        self.outputs, self.wrt = _checked("outputs", outputs), _checked("wrt", wrt)
        _check_differentiable(self.outputs, self.wrt)
        check_graph(self.outputs)
        self._runtime, self._lock, self._uploads = runtime, lock, runtime.store.uploads
        self._upstream = {k: _upstream(v) for k, v in enumerate(self.outputs) if not v.vtype.is_int}
        self._zero = set(self._upstream)  # upstream gradients that are zero
        seeded = [self.outputs[k] for k in self._upstream]
        made = build_vjp(seeded, list(self._upstream.values()), self.wrt)
        self._reached = [x for x in self.wrt if x in made]
        self._gradients = [made[x] for x in self._reached]
        self._leaves = {v.uid for v in leaves([*self.outputs, *made.values()])}
        self._leaves -= {v.uid for v in self._upstream.values()}
        self._held: _Compiled | None = None
        self._ran_at = (-1, -1)
        self._looked_at, self._newest = -1, -1
        self._rooms = Rooms()
        self.n_forward = 0
        """Times that the forward plan ran."""
        runtime.users.add(self)

    def forward(self, sent: Sequence[tuple[Variable, Any]] = ()) -> list[np.ndarray]:
        """Return the outputs at the current data of the leaves, shaped as ``recv_img`` gives them.

        sent: leaves and data to send first, as by ``send_img``, in the same submit. Runs the
        forward plan unless nothing that it reads was sent since it ran. Raises GraphError for bad
        data.
        """
        with self._lock:
            self._runtime.enter(self._waits)
            try:
                self._send(sent)
                held = self._compiled()
                now = self._now()
                if now != held.read_at or self._share is not None:
                    self._run_forward(held, now, held.outputs)
                    held.read_at = now
                return self._values(held.outputs, self.outputs)
            finally:
                if self._uploads.waiting:
                    self._leave()

    def backward(
        self, upstream: Sequence[Any], sent: Sequence[tuple[Variable, Any]] = ()
    ) -> list[np.ndarray | None]:
        """Return the gradients of the leaves ``wrt``, shaped like them: of the sum of all outputs,
        each times its upstream gradient.

        upstream: for each output an array of its shape, or None for zeros (integer outputs: always
        None). sent: as for ``forward``. Runs the backward plan alone where no leaf was sent since
        ``forward``, else both. A leaf that the outputs do not reach through differentiable ops has
        None. Raises GraphError for a wrong number or shape, NaN and infinity.
        """
        with self._lock:
            self._runtime.enter(self._waits)
            try:
                self._send(sent)
                self._send_upstream(upstream)
                held = self._compiled()
                now = self._now()
                if now != self._ran_at:
                    self._run_forward(held, now, None)
                self._submit(held, held.backward, held.gradients)
                values = self._values(held.gradients, self._reached)
                if len(self._reached) == len(self.wrt):
                    return values
                of_leaf = dict(zip(self._reached, values, strict=True))
                return [of_leaf.get(x) for x in self.wrt]
            finally:
                if self._uploads.waiting:
                    self._leave()

    def parts(self) -> tuple[Part, ...]:
        """Return what lies on the device: the forward and the backward plan, once compiled."""
        return () if self._held is None else (self._held.forward, self._held.backward)

    def n_bytes(self) -> int:
        """Bytes of the images and buffers of the plans that lie on the device now."""
        plans = [part.packed.plan for part in self.parts()]
        between = {i.key: i.n_bytes for p in plans for i in p.images if i.key is not None}
        return sum(map(sum, (p.own_bytes for p in plans))) + sum(between.values())

    def close(self) -> None:
        """Free what lies on the device; it is built again when it is needed. Idempotent."""
        with self._lock:
            if self._held is not None:
                self._held.close()
                self._held = None
                self._ran_at = (-1, -1)
                self._rooms.clear()

    # -- inside

    def _leave(self) -> None:
        """What was sent is there when a method is left, also by an error."""
        if not self._runtime.closed:
            self._uploads.flush()

    def _send(self, sent: Sequence[tuple[Variable, Any]]) -> None:
        if len(sent) > 1:
            sent = sorted(sent, key=lambda pair: pair[0].vtype.is_int)
        store = self._runtime.store
        for leaf, value in sent:
            if self._share is not None or not store.resend(leaf, value, leaf.uid in self._leaves):
                self._put(leaf, value)

    def _put(self, leaf: Variable, value: Any) -> None:
        if self._share is None:
            self._runtime.send(leaf, value, (), wait=True)
        elif not leaf.vtype.is_int:
            self._runtime.share(leaf, self._share, value)
        else:
            # Integers are checked on the host, where leaves derived from them and from floats (sent
            # before) are found.
            self._runtime.device.enter()
            self._uploads.flush()
            self._runtime.send(leaf, value, (), wait=True)

    def _values(self, reads: Reads | SharedReads, variables: Sequence[Variable]) -> list[Any]:
        """What the last submit read, as callers may keep it."""
        values = reads.values()
        if self._share is not None:
            return values
        take = self._rooms.take
        return [present(a, v, take(v)) for a, v in zip(values, variables, strict=True)]

    def _now(self) -> tuple[int, int]:
        store = self._runtime.store
        if self._looked_at != store.n_written:  # leaves may be many
            self._looked_at, self._newest = store.n_written, store.newest(self._leaves)
        return self._newest, self._runtime.epoch

    def _submit(
        self, held: _Compiled, part: Part | None, reads: Reads | SharedReads | None
    ) -> None:
        """Run what was sent, a plan, and a copy to the host."""
        if part is not None:
            part.refresh(self._runtime.store)
        after = None if reads is None else reads.turn()
        held.submits.run(self._uploads.take(), part, after)

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
            (self._zero.discard if value is not None else self._zero.add)(k)
            value = _zeros(leaf) if value is None and self._share is None else value
            # Nothing but the backward plan reads these leaves, and it runs next.
            if self._share is not None:
                self._runtime.share(leaf, self._share, value, noted=False)
            elif not self._runtime.store.overwrite(leaf, value):
                self._put(leaf, value)

    def _run_forward(
        self,
        held: _Compiled,
        now: tuple[int, int],
        reads: Reads | SharedReads | None,
    ) -> None:
        """Run the forward plan where it is old. reads: what to read after it."""
        old = self._ran_at != now
        self._ran_at = (-1, -1)  # also where this is interrupted
        self._submit(held, held.forward if old else None, reads)
        self._ran_at = now
        self.n_forward += old

    def _compiled(self) -> _Compiled:
        runtime, held = self._runtime, self._held
        if held is not None:
            n_placed = runtime.store.n_placed
            if held.n_placed == n_placed:
                return held  # no leaf got images since that was looked at
            uniforms = (*held.forward.packed.uniforms, *held.backward.packed.uniforms)
            if not runtime.store.on_device(uniforms):
                held.n_placed = n_placed
                return held
            # A step writes a leaf that was a number of the uniform block when this was compiled.
            self.close()
        for leaf in self._upstream.values() if self._share is not None else ():
            runtime.with_room(partial(runtime.store.make_resident, leaf))  # no numbers of uniforms
        self._uploads.flush()  # leaves that follow others are found from what lies there
        runtime.phases.clear()
        wanted = [*self.outputs, *self._gradients]
        packed, lowered = runtime.pack(wanted, [], "backward", self._upstream.values())
        split = split_changing(packed)
        parts: list[Part] = []
        reads: list[Reads | SharedReads] = []
        made: list[Any] = []  # to be closed where something fails
        try:
            for half in (split.static, split.step):
                part = runtime.compile(half)
                made.append(part.executable)
                part.packed = replace(part.packed, substages=(), task=None)  # they hold the graph
                parts.append(part)
            forward, backward = parts
            places = [(forward if forward.holds(v) else backward, v) for v in lowered]
            n = len(self.outputs)
            for some in (places[:n], places[n:]):
                reads.append(runtime.with_room(partial(self._reads, some)))
                made.append(reads[-1])
        except BaseException:
            for one in made:
                one.close()
            for key in split.keys:
                runtime.device.drop(key)
            raise
        submits = Submits(runtime.device, self._share)
        held = _Compiled(forward, backward, split.keys, reads[0], reads[1], submits, runtime)
        self._held, self._ran_at = held, (-1, -1)
        weakref.finalize(self, runtime.orphans.append, held).atexit = False
        return held

    def _reads(self, places: Sequence[tuple[Part, Variable]]) -> Reads | SharedReads:
        device, limits = self._runtime.device, self._runtime.limits
        if self._share is None:
            return Reads(device, limits, places)
        return SharedReads(device, limits, places, self._share)


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
