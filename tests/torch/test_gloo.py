"""Views split over two processes: the same bits as over two devices of one, and one fate."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import splits
from splits import VIEWS, Gains, devices

from dressi import DeviceError, GraphError, Momentum
from dressi.parallel import DataParallel, HostParallel

pytest.importorskip("torch.distributed", reason="PyTorch is not installed")

from dressi.torch.gloo import Gloo

pytestmark = pytest.mark.gpu
SHARES, STEPS = [3, 2], 6

OTHER = """
import os, sys
from splits import VIEWS, Gains, devices
from dressi import Momentum
from dressi.parallel import HostParallel
from dressi.torch.gloo import Gloo

hosts = Gloo(1, 2, sys.argv[1], timeout_s=60.0)
make = Gains()
make.start = make.start + 1.0  # those of rank 0 are taken
with HostParallel(
    make, VIEWS, hosts, devices(1), optimizer=Momentum(0.5, 0.9), shares=eval(sys.argv[2])
) as hp:
    if sys.argv[3] == "works":
        hp.exec_steps(6)
        hp.recv_loss()
        hp.recv_grad(make.x)
        hp.drift()
    elif sys.argv[3] == "dies":
        hp.exec_steps(1)
        os._exit(1)
    else:
        hp.exec_steps(7)
hosts.close()
"""


@contextmanager
def another_host(shares: list[int], how: str) -> Iterator[Gloo]:
    """This process is rank 0, a second one rank 1."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    path = os.pathsep.join([str(Path(splits.__file__).parent), *sys.path])
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, address, repr(shares), how],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
    )
    try:
        with Gloo(0, 2, address, timeout_s=60.0) as hosts:
            yield hosts
        errors = other.communicate(timeout=60)[1].decode()
        assert other.returncode == (how != "works"), errors
    finally:
        other.kill()
        other.communicate()


def test_two_processes_take_the_same_steps_as_two_devices() -> None:
    def optimizer() -> Momentum:
        return Momentum(0.5, 0.9)

    one = Gains()
    with DataParallel(one, VIEWS, devices(2), optimizer=optimizer(), shares=SHARES) as dp:
        dp.exec_steps(STEPS)
        want, loss = dp.recv_img(dp.parameters[0]), dp.recv_loss()
        gradient = dp.recv_grad(one.x)  # type: ignore[arg-type]
    make = Gains()
    with (
        another_host(SHARES, "works") as hosts,
        HostParallel(make, VIEWS, hosts, devices(1), optimizer=optimizer(), shares=SHARES) as hp,
    ):
        hp.exec_steps(STEPS)
        got = hp.recv_img(hp.parameters[0])
        assert got.tobytes() == want.tobytes()
        assert hp.recv_loss() == loss
        # The hosts' parts are rounded to float32 before they are added.
        assert np.abs(hp.recv_grad(make.x) - gradient).max() < 1e-6  # type: ignore[arg-type]
        assert hp.drift() == 0
        assert [s.views.tolist() for s in hp.shares] == [[0, 1, 2]]


def test_a_host_that_dies_ends_the_others() -> None:
    with (
        another_host(SHARES, "dies") as hosts,
        HostParallel(
            Gains(), VIEWS, hosts, devices(1), optimizer=Momentum(0.5, 0.9), shares=SHARES
        ) as hp,
    ):
        hp.exec_steps(1)
        with pytest.raises(DeviceError, match="host 0 of 2: the others cannot be reached"):
            hp.exec_steps(100)


def test_hosts_that_take_other_steps_are_told() -> None:
    with (
        another_host(SHARES, "differs") as hosts,
        HostParallel(
            Gains(), VIEWS, hosts, devices(1), optimizer=Momentum(0.5, 0.9), shares=SHARES
        ) as hp,
        pytest.raises(GraphError, match="hosts differ: 6, 7"),
    ):
        hp.exec_steps(6)
