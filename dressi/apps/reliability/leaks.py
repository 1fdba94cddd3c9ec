"""R12: nothing is left of engines that were closed, steps that were done, graphs that were dropped,
layers of PyTorch that were called.

In: a device. Out: rows for ``dressi bench reliability --only R12``: growth of the resident memory
in MB, of live Vulkan objects, and of threads and open files, each in a process of its own. What is
done once only (the loader, the compiler, caches of Python) happens before the first mark.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dressi.ad import Adam, F, Variable
from dressi.ad.vtype import FLOAT, INT, MAT4, VEC3
from dressi.apps.reliability.row import Row, at_most, below
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.render.camera import ring
from dressi.render.raster import build_hardsoftras
from dressi.render.scene import icosphere
from dressi.testing.memory import resident_bytes

PROGRESS_S = 5.0
"""Between two lines about how far it is."""


@dataclass(frozen=True)
class Mark:
    """What a process holds."""

    resident: int
    """Bytes."""
    handles: int
    """Live Vulkan objects of the engine that is open, if any."""
    threads: int
    """Threads and open files."""

    @staticmethod
    def take(ad: DressiAD | None = None) -> Mark:
        """Take a mark after everything that can go has gone."""
        gc.collect()
        handles = 0
        if ad is not None:
            ad.memory()  # frees what was dropped
            handles = sum(ad.device.live_handles().values())
        return Mark(resident_bytes(), handles, _settled(_threads_and_files))


SETTLE_S, LOOKS = 0.5, 25
"""How long threads may take to end that have done their work, on a busy machine: the system lists
them for a moment after they were joined. And how often is looked."""


def _settled(count: Callable[[], int]) -> int:
    """Return the least count of several looks: what ends by itself is not left."""
    least = count()
    for _ in range(LOOKS):
        time.sleep(SETTLE_S / LOOKS)
        least = min(least, count())
    return least


def _threads_and_files() -> int:
    """Return the number of threads, those of drivers too where the system tells of them, and of
    files."""
    total = 0
    for folder in ("/proc/self/task", "/proc/self/fd"):
        total += len(os.listdir(folder)) if os.path.isdir(folder) else 0
    return total or threading.active_count()


Data = dict[Variable, np.ndarray]


def _loss(size: tuple[int, int]) -> tuple[Variable, Variable, Data]:
    """Return a parameter that is looked up, so that images, buffers, uniforms and derived leaves
    occur."""
    n = size[0] * size[1]
    x = Variable(VEC3, (n, 1), requires_grad=True, name="x")
    index, rate = Variable(INT, size, name="index"), Variable(FLOAT, name="rate")
    near = F.lookup(x, index)
    loss = F.mean(F.dot(near, near)) + F.mean(F.sum_components(F.exp(x)))
    data = {
        x: np.full((n, 3), 0.5),
        index: np.arange(n).reshape(size[1], size[0], 1),
        rate: np.array([0.01]),
    }
    return loss, rate, data


def _load(ad: DressiAD, size: tuple[int, int] = (16, 16)) -> tuple[Variable, Variable]:
    loss, rate, data = _loss(size)
    for leaf, array in data.items():
        ad.send_img(leaf, array)
    ad.set_loss_var(loss)
    ad.set_optimizer(Adam(rate))
    return loss, rate


class Engines:
    """One engine after the other, with a step each; every second one is dropped, not closed."""

    def __init__(self, device: str | None) -> None:
        self._device = device

    def round(self, k: int) -> int:
        """Return the number of engines that were opened."""
        ad = DressiAD(self._device)
        loss, _ = _load(ad)
        ad.exec_step()
        ad.recv_img(loss)
        if k % 2:
            ad.close()
        return 1

    def mark(self) -> Mark:
        """Return what the process holds now."""
        return Mark.take()

    def close(self) -> None:
        """Nothing is left open."""


class Steps:
    """Steps of one engine, alone and in rows, with sends and receives between them."""

    def __init__(self, device: str | None) -> None:
        self._ad = DressiAD(device)
        self._loss, self._rate = _load(self._ad)

    def round(self, k: int) -> int:
        """Return the number of steps that were done."""
        self._ad.send_img(self._rate, 0.01 / (1 + k))
        for _ in range(10):
            self._ad.exec_step()
        self._ad.recv_img(self._loss)
        self._ad.exec_steps(40)
        return 50

    def mark(self) -> Mark:
        """Return what the process holds now."""
        return Mark.take(self._ad)

    def close(self) -> None:
        """Close the engine."""
        self._ad.close()


class Sizes:
    """A graph of another size each time, in one engine; the old one is dropped."""

    def __init__(self, device: str | None) -> None:
        self._ad = DressiAD(device)

    def round(self, k: int) -> int:
        """Return the number of changes of size."""
        loss, _ = _load(self._ad, (8 + 8 * (k % 5), 8 + 4 * (k % 3)))
        self._ad.exec_step()
        self._ad.recv_img(loss * (1.0 + k))
        return 1

    def mark(self) -> Mark:
        """Return what the process holds now, at a size that is the same each time."""
        self.round(0)
        return Mark.take(self._ad)

    def close(self) -> None:
        """Close the engine."""
        self._ad.close()


class Layers:
    """Steps of a layer of PyTorch on the vertices of a sphere; now and then two calls before a
    backward, a call without gradients, and one of another layer, which is dropped. Needs torch."""

    def __init__(self, device: str | None) -> None:
        import torch

        self._torch = torch
        self._ad = DressiAD(device)
        mesh = icosphere(1)
        self._given = [
            torch.tensor(mesh.faces.astype(np.int64)),
            torch.tensor(ring(1, distance=4.0)[0].matrix, dtype=torch.float32),
        ]
        self._pos = torch.tensor(mesh.positions, dtype=torch.float32).requires_grad_()
        self._layer = self._new()
        self._optimizer = torch.optim.Adam([self._pos], lr=1e-4)

    def _new(self) -> Any:
        from dressi.torch import compile

        return compile(_silhouette, inputs={"matrix": MAT4}, ad=self._ad)

    def round(self, k: int) -> int:
        """Return the number of calls that were made."""
        for _ in range(47):
            self._optimizer.zero_grad()
            (self._layer(self._pos, *self._given) - 0.5).square().mean().backward()
            self._optimizer.step()
        first = self._layer(self._pos, *self._given)
        (self._layer(self._pos * 0.9, *self._given) + first).sum().backward()
        with self._torch.no_grad():
            self._layer(self._pos, *self._given)
        if k % 20 == 0:
            self._new()(self._pos, *self._given).sum().backward()
        return 50

    def mark(self) -> Mark:
        """Return what the process holds now."""
        return Mark.take(self._ad)

    def close(self) -> None:
        """Close the engine."""
        self._ad.close()


def _silhouette(pos: Variable, faces: Variable, matrix: Variable) -> Variable:
    return build_hardsoftras(pos, faces, matrix, (16, 16), r=0.1).silhouette


Work = Engines | Steps | Sizes | Layers
WORKS: dict[str, tuple[type[Work], int, int, float]] = {
    "engines": (Engines, 300, 10, 5.0),
    "steps": (Steps, 10_000, 1000, 2.0),
    "sizes": (Sizes, 200, 10, 5.0),
    "calls of a layer": (Layers, 10_000, 500, 5.0),
}
"""By name: what is done, how often, how often in a small run, and the MB that may be left of it."""


def grow(name: str, device: str | None, n: int, warm: int) -> dict[str, float]:
    """Do ``warm`` rounds, then n, and say by how much the process grew: MB, live Vulkan objects,
    threads and open files. Says on stderr how far it is."""
    work = WORKS[name][0](device)
    done = k = 0
    while done < warm:
        done, k = done + work.round(k), k + 1
    before = work.mark()
    done, told = 0, time.monotonic()
    while done < n:
        done, k = done + work.round(k), k + 1
        if time.monotonic() - told > PROGRESS_S:
            told = time.monotonic()
            mb = (resident_bytes() - before.resident) / 1e6
            print(f"R12 {name}: {done} of {n}, {mb:+.1f} MB", file=sys.stderr, flush=True)
    after = work.mark()
    work.close()
    return {
        "MB": (after.resident - before.resident) / 1e6,
        "handles": after.handles - before.handles,
        "threads": after.threads - before.threads,
    }


_CHILD = (
    "import sys, json; from dressi.apps.reliability.leaks import grow; "
    "print(json.dumps(grow(sys.argv[1], sys.argv[2] or None, *map(int, sys.argv[3:]))))"
)


def measure(device: str | None, small: bool) -> list[Row]:
    """Return the rows of R12, three for each work; layers only where torch is installed. Each is a
    process of its own, which tells on stderr how far it is; they run side by side."""
    runs = {}
    for name, (work, full, few, _) in WORKS.items():
        if work is Layers and importlib.util.find_spec("torch") is None:
            continue
        n = few if small else full
        words = [name, device or "", str(n), str(max(n // 5, 1))]
        command = [sys.executable, "-c", _CHILD, *words]
        runs[name] = subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8")
    try:
        return [row for name, run in runs.items() for row in _rows(name, run, small)]
    finally:
        for run in runs.values():
            run.kill()
            run.wait()


def _rows(name: str, run: subprocess.Popen[str], small: bool) -> list[Row]:
    _, full, few, limit = WORKS[name]
    n = few if small else full
    told, _ = run.communicate()
    if run.returncode != 0:
        raise DressiError(f"bench: R12 {name} failed with exit status {run.returncode}")
    growth = json.loads(told.splitlines()[-1])
    return [
        below(f"R12 {n} {name}, MB left", growth["MB"], limit, n),
        at_most(f"R12 {n} {name}, Vulkan objects left", growth["handles"], 0, n),
        at_most(f"R12 {n} {name}, threads and files left", growth["threads"], 0, n),
    ]
