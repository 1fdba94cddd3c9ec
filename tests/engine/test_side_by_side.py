"""Several engines in one process: on one device and, where there are more, on two; step by step in
turn, in two threads, closed in any order. None changes what another computes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dressi import FLOAT, VEC3, Adam, DeviceError, DressiAD, F, GraphError, Variable
from dressi.errors import origin
from dressi.vk import list_devices

pytestmark = pytest.mark.gpu
STEPS = 12  # past both rebuilds of the cache


def pairs() -> list[tuple[int, int]]:
    """(device, device) by index: each with itself, and all pairs."""
    try:
        indices = [d.index for d in list_devices()]
    except DeviceError:
        indices = []
    return list(itertools.combinations_with_replacement(indices, 2)) or [(0, 0)]


class Fit:
    """A blurred image to a target: leaves, loss and data of one engine."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        size = (16 + seed, 9)
        self.x = Variable(VEC3, size, requires_grad=True, name="x")
        self.target = Variable(VEC3, size, name="target")
        blurred = (self.x + F.image.shift(self.x, 1, 0) + F.image.shift(self.x, 0, 1)) * (1.0 / 3.0)
        off = blurred - F.sin(self.target)
        self.loss = F.mean(off * off)
        self.data = {
            v: rng.normal(size=(size[1], size[0], 3)).astype(np.float32)
            for v in (self.x, self.target)
        }

    def load(self, ad: DressiAD) -> DressiAD:
        ad.set_loss_var(self.loss)
        ad.set_optimizer(Adam(0.05))
        for leaf, array in self.data.items():
            ad.send_img(leaf, array)
        return ad


def alone(seed: int, device: int, scale: float = 1.0) -> np.ndarray:
    """x after STEPS in the only engine there is. scale: factor of where it starts."""
    fit = Fit(seed)
    with DressiAD(device) as ad:
        fit.load(ad).send_img(fit.x, scale * fit.data[fit.x])
        ad.exec_steps(STEPS)
        return ad.recv_img(fit.x)


@pytest.mark.parametrize("devices", pairs(), ids=str)
def test_interleaved_steps_give_the_bits_of_engines_alone(devices: tuple[int, int]) -> None:
    fits = [Fit(0), Fit(1)]
    with DressiAD(devices[0]) as a, DressiAD(devices[1]) as b:
        engines = [fit.load(ad) for fit, ad in zip(fits, (a, b), strict=True)]
        for _ in range(STEPS):
            for ad in engines:
                ad.exec_step()
        got = [ad.recv_img(fit.x) for fit, ad in zip(fits, engines, strict=True)]
    for seed in (0, 1):
        assert (got[seed] == alone(seed, devices[seed])).all()
        assert (got[seed] != fits[seed].data[fits[seed].x]).any()


@pytest.mark.parametrize("devices", pairs(), ids=str)
def test_two_threads_build_and_step_at_the_same_time(devices: tuple[int, int]) -> None:
    both_there = threading.Barrier(2, timeout=60)

    def work(seed: int) -> np.ndarray:
        both_there.wait()
        fit = Fit(seed)
        with DressiAD(devices[seed]) as ad:
            fit.load(ad)
            for _ in range(STEPS):
                ad.exec_step()
            return ad.recv_img(fit.x)

    with ThreadPoolExecutor(2) as pool:
        got = list(pool.map(work, (0, 1)))
    for seed in (0, 1):
        assert (got[seed] == alone(seed, devices[seed])).all()


@pytest.mark.parametrize("devices", pairs(), ids=str)
def test_two_engines_share_a_graph_each_with_its_own_data(devices: tuple[int, int]) -> None:
    fit = Fit(2)
    with DressiAD(devices[0]) as a, DressiAD(devices[1]) as b:
        fit.load(a).exec_steps(STEPS)
        fit.load(b).send_img(fit.x, 0.0 * fit.data[fit.x])
        assert (a.recv_img(fit.x) == alone(2, devices[0])).all()
        assert (b.recv_img(fit.x) == 0).all()
        b.exec_steps(STEPS)
        assert (b.recv_img(fit.x) == alone(2, devices[1], 0.0)).all()
        assert (a.recv_img(fit.x) == alone(2, devices[0])).all()


@pytest.mark.parametrize("devices", pairs(), ids=str)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_engines_are_closed_in_any_order(devices: tuple[int, int], order: tuple[int, ...]) -> None:
    fits = [Fit(0), Fit(1), Fit(2)]
    engines = [fit.load(DressiAD(d)) for fit, d in zip(fits, (*devices, devices[0]), strict=True)]
    for ad in engines:
        ad.exec_step()
    open_now = set(range(3))
    for k in order:
        engines[k].close()
        assert not any(engines[k].device.live_handles().values())
        with pytest.raises(DeviceError, match="closed"):
            engines[k].exec_step()
        open_now.remove(k)
        for other in open_now:
            before = engines[other].recv_img(fits[other].x)
            engines[other].exec_step()
            assert (engines[other].recv_img(fits[other].x) != before).any()


def test_an_error_in_one_thread_leaves_the_engine_of_the_other_alone() -> None:
    fit = Fit(0)

    def fail() -> None:
        with DressiAD() as ad:
            x = Variable(FLOAT, (4, 4), requires_grad=True)
            ad.set_loss_var(F.mean(x * x))
            ad.set_optimizer(Adam(0.1))
            ad.exec_step()  # no data

    with DressiAD() as ad, ThreadPoolExecutor(1) as pool:
        fit.load(ad).exec_step()
        with pytest.raises(GraphError, match="no data"):
            pool.submit(fail).result()
        ad.exec_steps(STEPS - 1)
        assert (ad.recv_img(fit.x) == alone(0, ad.device_info.index)).all()


def test_lines_of_the_user_do_not_mix_between_threads() -> None:
    """A backward that is being built in one thread lends its lines to that thread alone."""
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with origin("other.py:1"):
            inside.set()
            assert leave.wait(60)

    def made(make: Callable[[], Variable] = lambda: Variable(FLOAT)) -> str:
        return make().line

    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(hold)
        assert inside.wait(60)
        mine = made()
        leave.set()
        held.result()
    assert mine.startswith("test_side_by_side.py:")
