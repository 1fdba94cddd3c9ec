"""``dressi bench hosts``: steps with the views split over two processes of this machine, beside the
same steps in one.

The processes talk by Gloo, as hosts of a network do; each has a device of its own where there are
two. The second one runs this module.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np

from dressi.ad import Adam
from dressi.apps.bench.common import Copies, Settings, Table
from dressi.apps.bench.parallel import EPS, STEPS, Case, factory
from dressi.config import child_environment
from dressi.engine import DressiAD
from dressi.errors import DressiError, OutOfMemoryError
from dressi.parallel import HostParallel, Share
from dressi.vk import equal_devices

COLUMNS = (
    "case",
    "views",
    "one_ms",
    "ms",
    "speedup",
    "one_row_ms",
    "row_ms",
    "row_speedup",
    "megabytes",
    "rel_diff",
    "drift",
)

CASES = (Case(8, 256, 1280), Case(64, 1024, 20480))
CPU_CASES = (Case(8, 64, 320), Case(8, 256, 1280))
SMOKE = (Case(2, 16, 80),)

IN_A_ROW = 16
"""Steps of one ``exec_steps``, as a fit takes them."""

TIMEOUT_S = 300.0
"""Seconds that a process waits for the other."""


def is_available() -> bool:
    """Whether torch, whose transport this is, is installed."""
    return importlib.util.find_spec("torch") is not None


def measure(settings: Settings, copies: Copies) -> Table:
    """Return a row per case. Raises DressiError where torch is not installed."""
    if not is_available():
        raise DressiError("bench hosts needs PyTorch\n  hint: pip install 'dressi[torch]'")
    found = equal_devices(settings.device)
    devices = [info.index for info in found[:2]] * (1 if len(found) > 1 else 2)
    for k, index in enumerate(devices):
        info = next(i for i in found if i.index == index)
        print(f"process {k}: device {index} {info.name}, {info.driver}")
    if len(found) == 1:
        print("  both have the same one: that shows that it works, not how fast several are")
    cases = SMOKE if settings.smoke else CPU_CASES if found[0].type == "cpu" else CASES
    rounds = 2 if settings.smoke else 20
    rows = []
    for case in cases:
        copies.measure()
        try:
            rows.append(row_of(case, devices, rounds))
        except OutOfMemoryError as error:
            print(f"{case.name}, {case.views} views left out: {error}")
    return Table(COLUMNS, rows)


def row_of(case: Case, devices: Sequence[int], rounds: int) -> dict[str, Any]:
    """Return times of steps in one process and in two, which take turns."""
    make = factory(case, devices[0])
    problem = make(np.arange(case.views))
    with DressiAD(devices[0]) as one:
        problem.load(one)
        eps = EPS * float(np.abs(one.recv_grad(problem.parameter)).max())
        adam = Adam(1e-4, eps=eps)
        one.set_optimizer(adam)
        one.exec_steps(STEPS)
        want = one.recv_img(problem.parameter)
        with split(case, devices, eps, rounds) as hp:
            (parameter,) = hp.parameters
            got = hp.recv_img(parameter)
            single = times(one, hp, rounds, 1)
            row = times(one, hp, max(rounds // 2, 1), IN_A_ROW)
            return {
                "case": case.name,
                "views": case.views,
                "devices": list(devices),
                "one_ms": single[0],
                "ms": single[1],
                "speedup": single[0] / single[1],
                "one_row_ms": row[0],
                "row_ms": row[1],
                "row_speedup": row[0] / row[1],
                "megabytes": 1e-6 * got.nbytes * len(devices),
                "rel_diff": float(np.abs(got - want).max() / np.abs(want).max()),
                "drift": hp.drift(),
            }


def times(one: DressiAD, hp: HostParallel, rounds: int, steps: int) -> tuple[float, float]:
    """Return the median ms per step of both, in calls of so many steps."""
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for run, own in zip((one.exec_steps, hp.exec_steps), found, strict=True):
            begin = time.perf_counter()
            run(steps)
            own.append((time.perf_counter() - begin) * 1e3 / steps)
    one_ms, ms = (float(np.median(own)) for own in found)
    return one_ms, ms


@contextmanager
def split(case: Case, devices: Sequence[int], eps: float, rounds: int) -> Iterator[HostParallel]:
    """A fit over this process and another one, after STEPS steps. The other takes the steps that
    ``row_of`` takes."""
    from dressi.torch.gloo import Gloo

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    told = {"case": asdict(case), "device": devices[1], "eps": eps, "rounds": rounds}
    code = f"from {__name__} import main; main({address!r}, {json.dumps(told)!r})"
    path = os.pathsep.join(p for p in sys.path if p)
    other = subprocess.Popen(
        [sys.executable, "-c", code], env={**child_environment(), "PYTHONPATH": path}
    )
    try:
        with (
            Gloo(0, 2, address, timeout_s=TIMEOUT_S) as hosts,
            _fit(case, hosts, devices[0], eps) as hp,
        ):
            yield hp
        if other.wait(TIMEOUT_S):
            raise DressiError(f"bench hosts: the other process ended with {other.returncode}")
    finally:
        other.kill()
        other.wait()


@contextmanager
def _fit(case: Case, hosts: Any, device: int, eps: float) -> Iterator[HostParallel]:
    make = factory(case, device)

    def make_loss(share: Share) -> tuple[Any, Any]:
        part = make(share.views)
        return part.loss, part.data

    adam = Adam(1e-4, eps=eps)
    hp = HostParallel(make_loss, case.views, hosts, [device], optimizer=adam)
    with hp:
        hp.exec_steps(STEPS)
        yield hp


def main(address: str, told: str) -> None:
    """The second process."""
    from dressi.torch.gloo import Gloo

    given = json.loads(told)
    rounds = given["rounds"]
    with (
        Gloo(1, 2, address, timeout_s=TIMEOUT_S) as hosts,
        _fit(Case(**given["case"]), hosts, given["device"], given["eps"]) as hp,
    ):
        for steps, n in ((1, rounds), (IN_A_ROW, max(rounds // 2, 1))):
            for _ in range(n):
                hp.exec_steps(steps)
        hp.drift()
