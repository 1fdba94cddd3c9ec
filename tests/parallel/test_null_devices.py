"""Steps on several devices, submit by submit, without Vulkan: gradients, their sum, updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dressi import SGD, Adam, DressiAD, F, Variable
from dressi.ad.optim import Optimizer
from dressi.ad.vtype import VEC3
from dressi.errors import DeviceError, GraphError, OutOfMemoryError
from dressi.parallel import DataParallel, Share
from dressi.testing import NullDevice

VIEWS, SIZE = 5, (4, 3)
TARGETS = np.random.default_rng(0).uniform(0, 1, (VIEWS, 3, 4, 3))
ONE_SUBMIT = ("upload of summed gradients", "update", "gradients", "download of gradients")


class Fit:
    """An image towards the blurred targets of all views."""

    def __init__(self, n_devices: int = 2, optimizer: Callable[[], Optimizer] = lambda: SGD(1.0)):
        self.x = Variable(VEC3, SIZE, requires_grad=True, name="x")
        self.devices = [NullDevice() for _ in range(n_devices)]
        self.dp = DataParallel(self.make, VIEWS, self.devices, optimizer=optimizer(), check=False)

    def make(self, share: Share) -> tuple[Variable, dict[Variable, Any]]:
        target = Variable(VEC3, SIZE, len(share), name="target")
        off = self.x - F.image.gaussian_blur(target, 1.0)
        data = TARGETS[share.views] if len(share) > 1 else TARGETS[share.views][0]
        return F.mean(F.dot(off, off)), {target: data, self.x: np.zeros((3, 4, 3))}

    def starts(self) -> list[list[Any]]:
        """What each device was given to submit, and forget it."""
        found = [device.names("start") for device in self.devices]
        for device in self.devices:
            device.calls.clear()
        return found


def alone(optimizer: Optimizer, n: int) -> np.ndarray:
    """The same fit by one engine."""
    fit = Fit.__new__(Fit)
    fit.x = Variable(VEC3, SIZE, requires_grad=True, name="x")
    loss, data = fit.make(Share(np.arange(VIEWS), VIEWS))
    with DressiAD(NullDevice()) as ad:
        for v, array in data.items():
            ad.send_img(v, array)
        ad.set_loss_var(loss)
        ad.set_optimizer(optimizer)
        ad.exec_steps(n)
        return ad.recv_img(fit.x)


@pytest.mark.parametrize("n_devices", [1, 2, 3])
@pytest.mark.parametrize("optimizer", [lambda: SGD(2.0), lambda: Adam(0.1)])
def test_a_split_gives_what_one_engine_gives(
    n_devices: int, optimizer: Callable[[], Optimizer]
) -> None:
    fit = Fit(n_devices, optimizer)
    fit.dp.exec_steps(7)
    assert np.allclose(fit.dp.recv_img(fit.x), alone(optimizer(), 7), atol=1e-5)
    assert fit.dp.drift() == 0.0


def test_a_step_amid_others_is_one_submit() -> None:
    fit = Fit()
    fit.dp.exec_steps(20)
    fit.starts()
    fit.dp.exec_steps(4)
    for submits in fit.starts():
        assert submits == [ONE_SUBMIT[2:], *[ONE_SUBMIT] * 3, ONE_SUBMIT[:2]]


def test_what_is_sent_is_seen_by_the_next_step() -> None:
    fit = Fit()
    fit.dp.exec_steps(12)
    fit.dp.send_img(fit.x, np.full((3, 4, 3), 4.0))
    fit.dp.exec_step()
    assert fit.dp.recv_loss() > 5.0
    for engine in fit.dp.engines:
        assert (engine.recv_img(fit.x) == fit.dp.recv_img(fit.x)).all()


def test_an_engine_of_a_replica_does_not_step_alone_but_shows_everything() -> None:
    fit = Fit(optimizer=lambda: Adam(0.1))
    fit.dp.exec_steps(3)
    engine = fit.dp.engines[0]
    with pytest.raises(GraphError, match="steps them together"):
        engine.exec_step()
    assert engine.parameters == [fit.x] == fit.dp.parameters
    assert {v.name for v in engine.optimizer_states} >= {"x.m", "x.v"}
    use = engine.memory()
    assert use.images + use.buffers == fit.devices[0].used_bytes()
    assert fit.dp.recv_grad(fit.x).shape == (3, 4, 3)


def test_options_build_both_halves_anew_and_keep_the_state() -> None:
    fit, other = Fit(optimizer=lambda: Adam(0.1)), Fit(optimizer=lambda: Adam(0.1))
    for f in (fit, other):
        f.dp.exec_steps(4)
    options = fit.dp.engines[1].options
    fit.dp.engines[1].options = type(options)(cache=False)
    for f in (fit, other):
        f.dp.exec_steps(4)
    assert np.allclose(fit.dp.recv_img(fit.x), other.dp.recv_img(other.x), atol=1e-6)
    assert fit.devices[1].live_handles()["transfers"] == 2


@pytest.mark.parametrize("call", ["start", "finish"])
def test_a_device_that_fails_is_named_and_all_are_closed(call: str) -> None:
    fit = Fit()
    fit.dp.exec_steps(12)
    fit.devices[1].fail_next(call, OutOfMemoryError("no room", 9, 4))
    with pytest.raises(OutOfMemoryError, match="device 1 of 2") as caught:
        fit.dp.exec_steps(3)
    assert (caught.value.needed, caught.value.available) == (9, 4)
    assert all(d.closed and not any(d.live_handles().values()) for d in fit.devices)
    with pytest.raises(DeviceError, match="is closed"):
        fit.dp.exec_step()


def test_halves_that_are_built_anew_leave_nothing() -> None:
    fit = Fit(optimizer=lambda: Adam(0.1))
    levels = []
    for k in range(6):
        for engine in fit.dp.engines:
            engine.options = type(engine.options)(cache=k % 2 == 0)
        fit.dp.exec_steps(12)
        levels.append(fit.devices[0].live_handles())
    assert levels[0] == levels[2] == levels[4] and levels[1] == levels[3] == levels[5]
