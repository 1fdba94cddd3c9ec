"""Views split over devices, gradients summed, one step everywhere.

In: a function that builds the loss of a share of the views, devices, an optimizer. Out:
``DataParallel``. A step: every device computes the gradients of its share at the same time, the
host adds them up in the order of the devices, every device gets the sum and runs the same optimizer
on it. Nothing but gradients moves, and nothing beyond Vulkan 1.0 is needed: no memory is shared
between devices.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Any, TypeVar, cast

import numpy as np

from dressi.ad.graph import Variable
from dressi.ad.optim import Optimizer
from dressi.engine.checks import check_options, checked_limit, need_variable, positive_int
from dressi.engine.device import Device
from dressi.engine.engine import Engine
from dressi.errors import DeviceError, DressiError, GraphError
from dressi.inspect.report import median_ms
from dressi.interrupt import DeferredInterrupt
from dressi.kinds import Reduction
from dressi.packing import Options
from dressi.parallel.loop import Loop
from dressi.parallel.reduction import FACTOR, check_split
from dressi.parallel.replica import Replica
from dressi.parallel.shares import Share, match_leaves, split_views
from dressi.parallel.sums import n_threads
from dressi.vk import DeviceInfo, equal_devices

MakeLoss = Callable[[Share], "Variable | tuple[Variable, Mapping[Variable, Any]]"]
Method = TypeVar("Method", bound=Callable[..., Any])


def _exclusive(method: Method) -> Method:
    """One thread at a time, and only while everything is open."""

    @functools.wraps(method)
    def locked(self: DataParallel, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            self._alive()
            return method(self, *args, **kwargs)

    return cast(Method, locked)


class DataParallel:
    """A loss over views, minimized on several devices at once.

    make_loss: called once per device, with its Share; builds the loss of these views, and may
    return the data of leaves with it: ``loss`` or ``(loss, {leaf: array})``. What it builds must
    differ in nothing but the number of layers. Leaves may be made inside, or outside and shared.
    views: how many there are. devices: selectors as ``DressiAD`` takes them, one or more (a device
    may occur twice); None: every device that DRESSI_DEVICE fits, else every device of the best
    type, as many as there are views. optimizer: as for ``DressiAD.set_optimizer``. reduction: what
    the loss does over its views, ``"mean"`` (replicas are weighted by their number of views) or
    ``"sum"``; checked at the first step with one view taken twice, unless check is False (a loss
    with noise). shares: views of each device; default as even as can be. options, validate,
    memory_limit (per device): as for ``DressiAD``.

    The result depends on the split only by rounding, and for one split it is the same in every run
    (with ``Options(deterministic=True)`` where ops need that). Raises GraphError for what cannot be
    split and DeviceError for devices that cannot be had. Use as a context manager or call
    ``close``.
    """

    def __init__(
        self,
        make_loss: MakeLoss,
        views: int,
        devices: Sequence[str | int | Device] | None = None,
        *,
        optimizer: Optimizer,
        reduction: Reduction = "mean",
        shares: Sequence[int] | None = None,
        options: Options | None = None,
        validate: bool | None = None,
        memory_limit: int | None = None,
        check: bool = True,
    ) -> None:
        if reduction not in FACTOR:
            raise GraphError(f"reduction must be one of {tuple(FACTOR)}, got {reduction!r}")
        if optimizer is None:
            raise GraphError("DataParallel needs an optimizer, for example Adam(lr=0.01)")
        check_options(options)
        checked_limit(memory_limit)
        selectors = _selectors(devices, views, shares)
        self.shares = self._split(views, len(selectors), shares)
        """What each device has."""
        self.reduction = reduction
        self._make_loss = make_loss
        self._check = check and len(self.shares[0]) < views
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._closed = ""
        self._replicas: list[Replica] = []
        self._ready_for = -1  # count of requires_grad changes
        self._validate = validate
        # For what takes long on each device (rebuilds), and for large sums.
        n_threads_used = max(len(selectors), n_threads())
        self._threads = ThreadPoolExecutor(n_threads_used, thread_name_prefix="dressi")
        try:
            for share, selector in zip(self.shares, selectors, strict=True):
                self._replicas.append(Replica(share, selector, options, validate, memory_limit))
            self._load(optimizer)
        except BaseException:
            self.close()
            raise
        self._loop = self._make_loop()

    def _split(self, views: int, n_devices: int, shares: Sequence[int] | None) -> list[Share]:
        """Shares of the devices of this process."""
        return split_views(views, n_devices, shares)

    def _make_loop(self) -> Loop:
        return Loop(self._replicas, self._threads)

    def _image_dim(self) -> int:
        """The largest image that all devices allow."""
        return min(r.engine.limits.image_dim for r in self._replicas)

    def _load(self, optimizer: Optimizer) -> None:
        made = [_loss_and_data(self._make_loss(share)) for share in self.shares]
        self._losses = [loss for loss, _ in made]
        self._leaves = match_leaves(self._losses)
        self._group = {v.uid: group for group in self._leaves for v in group}
        image_dim = self._image_dim()
        for replica, (loss, data) in zip(self._replicas, made, strict=True):
            weight = replica.share.weight if self.reduction == "mean" else 1.0
            replica.load(loss, optimizer, weight, image_dim)
            for leaf, array in data.items():
                replica.engine.send_img(leaf, array)

    # -- data

    @_exclusive
    def send_img(self, var: Variable, array: Any) -> None:
        """Send the same data to a leaf on every device. var: the leaf of any replica. Raises
        GraphError as ``DressiAD.send_img``."""
        need_variable("send_img", var)
        group = self._group.get(var.uid, (var,) * len(self._replicas))
        if len({v.layers for v in group}) > 1:
            raise GraphError(
                f"send_img: {var.label()} holds views, other ones on each device\n"
                "  hint: send_views takes those of all devices and splits them"
            )
        for replica, leaf in zip(self._replicas, group, strict=True):
            replica.engine.send_img(leaf, array)

    @_exclusive
    def send_views(self, var: Variable, array: Any) -> None:
        """Send each device its views. var: a leaf of any replica with a layer per view. array:
        (views, ...) of all devices, in order. Raises GraphError as ``DressiAD.send_img``, and for
        another number of views."""
        need_variable("send_views", var)
        group = self._group.get(var.uid, (var,) * len(self._replicas))
        fits = all(v.layers == len(s) for v, s in zip(group, self.shares, strict=True))
        if not fits:
            raise GraphError(
                f"send_views: {var.label()} does not have one layer for each view "
                f"of a device: {[v.layers for v in group]} layers, {[len(s) for s in self.shares]} "
                "views"
            )
        views = np.asarray(array)
        n_views = self.shares[0].n_views
        if views.ndim == 0 or len(views) != n_views:
            raise GraphError(
                f"send_views: {var.label()} needs {n_views} views, got an array "
                f"of shape {views.shape}"
            )
        for replica, leaf in zip(self._replicas, group, strict=True):
            replica.engine.send_img(leaf, views[replica.share.views])

    @_exclusive
    def recv_img(self, var: Variable) -> np.ndarray:
        """Data of a leaf that is the same on every device (a parameter), as ``DressiAD.recv_img``
        gives it. What a replica computed: ``engines[k].recv_img``."""
        need_variable("recv_img", var)
        group = self._group.get(var.uid, (var,))
        if var.creator is not None or len({v.layers for v in group}) > 1:
            raise GraphError(
                f"recv_img: {var.label()} is not the same on every device\n"
                "  hint: engines[k].recv_img reads what device k has"
            )
        return self._replicas[0].engine.recv_img(group[0])

    @_exclusive
    def recv_grad(self, var: Variable) -> np.ndarray:
        """Gradient of the whole loss to a leaf at the current data, summed over the devices in
        float64. Raises GraphError as ``DressiAD.recv_grad``."""
        need_variable("recv_grad", var)
        group = self._group.get(var.uid, (var,) * len(self._replicas))
        if len({v.layers for v in group}) > 1:
            raise GraphError(f"recv_grad: {var.label()} holds views, other ones on each device")
        parts = [
            r.weight * r.engine.recv_grad(v).astype(np.float64)
            for r, v in zip(self._replicas, group, strict=True)
        ]
        return np.sum(parts, axis=0).astype(np.float32)

    @_exclusive
    def recv_loss(self) -> float:
        """The whole loss in the last step (summed over its pixels, where it has more than one), at
        the parameters before that step's update. Raises GraphError before the first."""
        return sum(r.weight * r.loss_value() for r in self._replicas)

    # -- running

    def exec_step(self) -> None:
        """One iteration on all devices. Raises GraphError as ``DressiAD.exec_step``, and for a loss
        that is not reduced over its views as was said; what a device fails with is raised as it
        is, naming the device, after everything was closed."""
        self.exec_steps(1)

    @_exclusive
    def exec_steps(self, n: int) -> None:
        """n iterations; see ``exec_step``. Ctrl-C stops between two."""
        count = positive_int(n)
        if count is None:
            raise GraphError(f"exec_steps: n must be an integer of at least 1, got {n!r}")
        with ExitStack() as locks:
            for replica in self._replicas:  # what is under way on a device is not to be disturbed
                locks.enter_context(replica.engine.lock)
            self._prepare()
            with DeferredInterrupt() as ctrl_c:
                try:
                    self._loop.run(count, lambda: ctrl_c.came)
                except BaseException as error:  # a signal handler of the user's may raise anything
                    self.close(str(error) or type(error).__name__)
                    raise

    def _prepare(self) -> None:
        """Build what is not built, one device after the other: what is wrong with the graph is
        raised in the user's thread, and the shaders are compiled once."""
        ready = all(r.is_ready for r in self._replicas)
        if ready and self._ready_for == Variable.flag_changes:
            return
        for replica in self._replicas:
            replica.prepare()
        self._check_parameters()
        if self._check:
            check_split(
                lambda share: _loss_and_data(self._make_loss(share))[0],
                self._replicas[0],
                self._losses[0],
                self.reduction,
                self._validate,
            )
            self._check = False
        self._ready_for = Variable.flag_changes

    def _check_parameters(self) -> None:
        first = self._replicas[0].parameters
        for k, replica in enumerate(self._replicas):
            mine = replica.parameters
            same = [self._group[x.uid][0] for x in mine] == first
            if not same or [x.layers for x in mine] != [x.layers for x in first]:
                raise GraphError(
                    f"device {k} has other parameters than device 0: "
                    f"{', '.join(x.label() for x in mine)} and "
                    f"{', '.join(x.label() for x in first)}\n"
                    "  hint: a parameter is the same for all views; requires_grad is to be set on "
                    "the leaves of all replicas"
                )

    # -- looking inside

    @property
    def engines(self) -> tuple[Engine, ...]:
        """The engine of each device, to look into (``report``, ``memory``, ``recv_img``)."""
        return tuple(r.engine for r in self._replicas)

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """What each device does in a step, half by half. Not for use while steps run."""
        return tuple(self._replicas)

    @property
    def devices(self) -> list[DeviceInfo]:
        """Name, driver and type of each device."""
        return [r.engine.device_info for r in self._replicas]

    @property
    def parameters(self) -> list[Variable]:
        """What is optimized: the leaves of the first replica (builds the step if need be)."""
        with self._lock:
            self._alive()
            return self._replicas[0].parameters

    @_exclusive
    def drift(self) -> float:
        """Largest difference between the parameters of a device and those of the first, relative to
        the largest entry of the parameter; 0 on devices of one kind."""
        first, worst = self._replicas[0], 0.0
        for k, x in enumerate(first.parameters):
            here = first.engine.recv_img(x)
            scale = float(np.abs(here).max(initial=0.0)) or 1.0
            for other in self._replicas[1:]:
                there = other.engine.recv_img(other.parameters[k])
                worst = max(worst, float(np.abs(there - here).max(initial=0.0)) / scale)
        return worst

    def phase_ms(self) -> dict[str, float]:
        """Median ms of the parts of the last steps: ``gradients`` (all devices, with the way to the
        host), ``sum`` (on the host), ``update`` (with the way to the devices). 0 before the first
        step. In a call of ``exec_steps`` an update and the gradients of the next step are one
        submit, whose time counts as gradients; ``update`` is then that of the last step of a call.
        """
        wall_s = self._loop.wall_s
        return {name: median_ms(times) if times else 0.0 for name, times in wall_s.items()}

    # -- life

    def close(self, why: str = "") -> None:
        """Free everything on all devices. May be called twice. why: what later calls say."""
        with self._lock:
            if self._closed:
                return
            self._closed = why or "close() was called"
            self._threads.shutdown(wait=os.getpid() == self._pid)
            errors = []
            for replica in self._replicas:
                try:
                    replica.engine.close()
                except DressiError as error:  # the others must go as well
                    errors.append(error)
            if errors and not why:
                raise errors[0]

    def _alive(self) -> None:
        if self._closed:
            raise DeviceError(f"this DataParallel is closed: {self._closed}")
        if os.getpid() != self._pid:
            raise DeviceError(
                f"this DataParallel belongs to process {self._pid}; in a forked child Vulkan does "
                "not work\n  hint: make it after the fork, or use multiprocessing's 'spawn' method"
            )

    def __reduce__(self) -> str:
        raise DeviceError(
            "a DataParallel cannot be copied or pickled: it holds what lies on a device\n"
            "  hint: make a new one, and send it what recv_img gives here"
        )

    def __enter__(self) -> DataParallel:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _loss_and_data(made: Any) -> tuple[Variable, Mapping[Variable, Any]]:
    loss, data = made if isinstance(made, tuple) and len(made) == 2 else (made, {})
    if not isinstance(loss, Variable) or not isinstance(data, Mapping):
        raise GraphError(
            "make_loss must return the loss, a Variable, or the loss and a dict from leaves to "
            f"their data; got {made!r}"
        )
    return loss, data


def _selectors(
    devices: Sequence[str | int | Device] | None, views: int, shares: Sequence[int] | None
) -> list[str | int | Device]:
    if devices is None:
        found: list[str | int | Device] = [i.index for i in equal_devices()]
        most = len(shares) if shares is not None else positive_int(views)
        return found[:most]
    if isinstance(devices, str) or not isinstance(devices, Sequence):
        raise GraphError(f"devices must be a list of selectors, got {devices!r}")
    if not devices:
        raise GraphError(
            "devices is empty: DataParallel needs at least one\n"
            "  hint: devices=None takes all of the best type"
        )
    return list(devices)
