"""``Hosts`` by Gloo, the transport of torch.distributed for processes without CUDA.

In: a rank, how many processes there are, an address; or what torchrun says. Out: ``Gloo``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from dressi.errors import DeviceError

T = TypeVar("T")

TIMEOUT_S = 300.0
"""Seconds that a host waits for the others: they may still be building their shaders."""


class Gloo:
    """Processes that meet at an address.

    rank, size: of this process, and how many; None: as torchrun's environment says, or of the
    process group that is there already. address: ``tcp://HOST:PORT`` of rank 0. timeout_s: how long
    to wait for the others. Raises DeviceError where they cannot be met.
    """

    def __init__(
        self,
        rank: int | None = None,
        size: int | None = None,
        address: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._name = "hosts"
        self._own = not dist.is_initialized()
        limit = timedelta(seconds=timeout_s)
        self._group: Any = None
        if not self._own:
            self._group = self._call(lambda: dist.new_group(backend="gloo", timeout=limit))
        elif rank is None:
            self._call(lambda: dist.init_process_group("gloo", timeout=limit))
        else:
            self._call(
                lambda: dist.init_process_group(
                    "gloo",
                    init_method=address,
                    rank=rank,
                    world_size=-1 if size is None else size,
                    timeout=limit,
                )
            )
        self._rank, self._size = dist.get_rank(), dist.get_world_size()
        self._name = f"host {self._rank} of {self._size}"
        self._closed = False

    def _call(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (RuntimeError, ValueError, OSError) as error:  # what torch.distributed raises
            reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
            raise DeviceError(f"{self._name}: the others cannot be reached: {reason}") from error

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of processes."""
        return self._size

    def gather(self, words: np.ndarray) -> list[np.ndarray]:
        """Return the words of all processes, by rank. words: (n,) float32, of one length
        everywhere. Raises DeviceError."""
        return [t.numpy() for t in self._gather(torch.from_numpy(words))]

    def gather_text(self, text: str) -> list[str]:
        """Return the texts of all processes, by rank. Raises DeviceError."""
        data = text.encode()
        lengths = self._gather(torch.tensor([len(data)]))
        padded = np.zeros(max(int(n) for n in lengths), np.uint8)
        padded[: len(data)] = np.frombuffer(data, np.uint8)
        every = self._gather(torch.from_numpy(padded))
        return [t.numpy()[: int(n)].tobytes().decode() for t, n in zip(every, lengths, strict=True)]

    def _gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        if self._closed:
            raise DeviceError(f"{self._name}: closed")
        every = [torch.empty_like(tensor) for _ in range(self._size)]
        self._call(lambda: dist.all_gather(every, tensor, group=self._group))
        return every

    def close(self) -> None:
        """Leave. May be called twice. A process group that was there before stays."""
        if self._closed:
            return
        self._closed = True
        self._call(lambda: dist.destroy_process_group(self._group))

    def __enter__(self) -> Gloo:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
