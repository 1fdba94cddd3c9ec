"""Views split over devices of several processes or machines.

In: what ``DataParallel`` takes, and ``Hosts``, a way to bring numbers to all processes
(``dressi.torch.gloo``). Out: ``HostParallel``. The mathematics is that of ``DataParallel``: every
host adds the gradients of its devices, all hosts add the sums of all hosts in the order of their
ranks, every device applies the same sum.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from dressi.ad.graph import Variable
from dressi.ad.optim import Optimizer
from dressi.engine.checks import positive_int
from dressi.engine.device import Device
from dressi.errors import GraphError
from dressi.kinds import Reduction
from dressi.packing import Options
from dressi.parallel.data_parallel import DataParallel, MakeLoss
from dressi.parallel.loop import Loop
from dressi.parallel.shares import Share, split_views
from dressi.parallel.sums import add_words
from dressi.vk import equal_devices


class Hosts(Protocol):
    """Processes that do the same at the same time. All of them call the same methods in the same
    order. Methods raise DeviceError where another one is gone or does not answer."""

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        ...

    @property
    def size(self) -> int:
        """The number of processes."""
        ...

    def gather(self, words: np.ndarray) -> list[np.ndarray]:
        """Return the words of all hosts, by rank. words: (n,) float32, of one length everywhere."""
        ...

    def gather_text(self, text: str) -> list[str]:
        """Return the texts of all hosts, by rank, of any lengths."""
        ...

    def close(self) -> None:
        """Leave; what the others wait for fails. May be called twice."""
        ...


class HostParallel(DataParallel):
    """A loss over views, minimized on the devices of several hosts at once.

    hosts: the processes. The rest as for ``DataParallel``, with these differences: devices are
    those of this process (None: all of its best type); views, shares and ``send_views`` are of all
    hosts together, devices in the order of the ranks; ``engines`` and ``shares`` are those of this
    process. ``exec_steps``, ``recv_loss``, ``recv_grad`` and ``drift`` are called on every host, in
    the same order. Parameters must be equal on all hosts at the start: those of rank 0 are taken.

    With one device per host the result is, bit for bit, that of a ``DataParallel`` of the same
    shares. Raises GraphError for hosts that do not do the same, and DeviceError, after everything
    was closed, where a host is gone.
    """

    def __init__(
        self,
        make_loss: MakeLoss,
        views: int,
        hosts: Hosts,
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
        self._hosts = hosts
        self._is_equal = False
        if devices is None:
            devices = [info.index for info in equal_devices()]
        super().__init__(
            make_loss,
            views,
            devices,
            optimizer=optimizer,
            reduction=reduction,
            shares=shares,
            options=options,
            validate=validate,
            memory_limit=memory_limit,
            check=check,
        )

    def _split(self, views: int, n_devices: int, shares: Sequence[int] | None) -> list[Share]:
        given = [views, n_devices, None if shares is None else [int(s) for s in shares]]
        every = [json.loads(text) for text in self._hosts.gather_text(json.dumps(given))]
        first = every[0]
        if any([v, s] != [first[0], first[2]] for v, _, s in every):
            raise GraphError(f"hosts were given other views or shares: {every}")
        counts = [n for _, n, _ in every]
        begin = sum(counts[: self._hosts.rank])
        return split_views(views, sum(counts), shares)[begin : begin + n_devices]

    def _image_dim(self) -> int:
        return min(int(text) for text in self._hosts.gather_text(str(super()._image_dim())))

    def _make_loop(self) -> Loop:
        return LoopOverHosts(self._replicas, self._threads, self._hosts)

    def exec_steps(self, n: int) -> None:
        """n iterations on all hosts; see ``DataParallel.exec_steps``. Ctrl-C on one host stops all
        of them between the same two steps."""
        if positive_int(n) is not None:
            self._alive()
            self._same("exec_steps", n)
        super().exec_steps(n)

    def _prepare(self) -> None:
        try:
            super()._prepare()
        except BaseException:  # what this host cannot build, the others would wait for
            self._hosts.close()
            raise
        if not self._is_equal:
            described = [
                [x.name or "", x.vtype.name, *x.size, x.layers]
                for x in self._replicas[0].parameters
            ]
            self._same("parameters", described)
            self._loop._sync()
            self._is_equal = True

    def _same(self, what: str, value: Any) -> None:
        """Raise GraphError unless all hosts have the same value."""
        texts = self._hosts.gather_text(json.dumps(value))
        if len(set(texts)) > 1:
            raise GraphError(f"{what}: hosts differ: {', '.join(texts)}")

    def recv_loss(self) -> float:
        """The whole loss of all hosts; see ``DataParallel.recv_loss``."""
        own = super().recv_loss()
        return float(sum(float(text) for text in self._hosts.gather_text(repr(own))))

    def recv_grad(self, var: Variable) -> np.ndarray:
        """Gradient of the whole loss of all hosts; see ``DataParallel.recv_grad``."""
        own = super().recv_grad(var)
        every = self._hosts.gather(np.ascontiguousarray(own, np.float32).reshape(-1))
        total = np.stack(every).sum(axis=0, dtype=np.float64)
        return total.astype(np.float32).reshape(own.shape)

    def drift(self) -> float:
        """Largest difference between the parameters of a device and those of the first one of rank
        0; see ``DataParallel.drift``."""
        worst = super().drift()
        for x in self._replicas[0].parameters:
            own = self._replicas[0].engine.recv_img(x).astype(np.float32).reshape(-1)
            first, *others = self._hosts.gather(own)
            scale = float(np.abs(first).max(initial=0.0)) or 1.0
            for other in others:
                worst = max(worst, float(np.abs(other - first).max(initial=0.0)) / scale)
        return max(float(text) for text in self._hosts.gather_text(repr(worst)))

    def close(self, why: str = "") -> None:
        """Free everything on the devices of this process. After an error the hosts are left, too:
        the others must not wait."""
        super().close(why)
        if why:
            self._hosts.close()


class LoopOverHosts(Loop):
    """Steps whose gradients are summed over hosts. A host adds those of its devices in their order,
    and all hosts add the sums by rank, so that all of them have the same bits."""

    def __init__(self, replicas: Any, threads: Any, hosts: Hosts) -> None:
        super().__init__(replicas, threads)
        self._hosts = hosts
        kinds = [[r.engine.device_info.name, r.engine.device_info.driver] for r in replicas]
        every = {
            tuple(kind)
            for text in hosts.gather_text(json.dumps(kinds))
            for kind in json.loads(text)
        }
        self.alike = len(every) == 1
        self._asked: Callable[[], bool] = bool
        self._agreed = False

    def run(self, n: int, stopped: Callable[[], bool]) -> None:
        """n steps; fewer once a host is asked to stop: then all hosts do the same ones."""
        self._asked, self._agreed = stopped, False
        super().run(n, lambda: self._agreed)

    def _add(self) -> None:
        gradients = [r.gradients for r in self._replicas]
        lengths = [len(words) for words in gradients[0]]
        own = np.empty(sum(lengths) + 1, np.float32)
        add_words(gradients, [_parts(own, lengths)], self._threads)
        own[-1] = self._asked()  # the last word: whether this host is to stop
        every = self._hosts.gather(own)
        self._agreed = any(words[-1] for words in every)
        sums = [r.sums for r in self._replicas]
        add_words([_parts(words, lengths) for words in every], sums, self._threads)

    def _sync(self) -> None:
        """Give all devices the parameters of the first one of rank 0."""
        own = self._replicas[0].read_parameters()
        lengths = [len(plane) for plane in own]
        first = self._hosts.gather(np.concatenate([np.empty(0, np.float32), *own]))[0]
        planes = _parts(first, lengths)
        for k, replica in enumerate(self._replicas):
            if k or self._hosts.rank:
                replica.write_parameters([np.ascontiguousarray(p) for p in planes])


def _parts(words: np.ndarray, lengths: Sequence[int]) -> list[np.ndarray]:
    """Views of the words, one after another."""
    ends = itertools.accumulate(lengths, initial=0)
    return [words[a:b] for a, b in itertools.pairwise(ends)]


__all__ = ["HostParallel", "Hosts"]
