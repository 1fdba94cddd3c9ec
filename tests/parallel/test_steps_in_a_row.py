"""Steps in a row give what single steps give, in as few submits as can be, whatever comes
between."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from splits import VIEWS, Gains, devices, many_parameters, rel

from dressi import (
    FLOAT,
    SGD,
    VEC3,
    Adam,
    DeviceError,
    DeviceLostError,
    F,
    Momentum,
    Options,
    OutOfMemoryError,
    Variable,
)
from dressi.ad import exponential_decay, state
from dressi.ad.optim import Optimizer
from dressi.parallel import DataParallel, Share
from dressi.parallel import loop as loop_module

pytestmark = pytest.mark.gpu
STEPS = 23
Made = tuple[Variable, Mapping[Variable, Any]]


def scheduled(share: Share) -> Made:
    """State that only the loss has (an average), state that both have (a schedule's counter)."""
    x = Variable(FLOAT, (4, 3), requires_grad=True, name="x")
    average = state(FLOAT, (4, 3), name="average")
    average.update = average * 0.9 + F.stop_gradient(x) * 0.1
    target = Variable(FLOAT, (4, 3), len(share), name="target")
    off = x * exponential_decay(0.5, 0.05, STEPS) - target - average
    ones = np.arange(VIEWS)[:, None, None] + np.ones((VIEWS, 3, 4))
    return F.mean(off * off), {target: ones[share.views], x: np.full((3, 4), 0.25)}


def fresh(
    make: Callable[[Share], Made], optimizer: Callable[[], Optimizer], **changes: Any
) -> DataParallel:
    settings: dict[str, Any] = {"shares": [3, 2], "options": Options(deterministic=True)}
    return DataParallel(make, VIEWS, devices(2), optimizer=optimizer(), **{**settings, **changes})


def everything(dp: DataParallel) -> np.ndarray:
    found = [dp.recv_img(x).ravel() for x in dp.parameters]
    return np.concatenate([*found, [np.float32(dp.recv_loss())]])


@pytest.mark.parametrize("cache", [True, False], ids=["cache", "no cache"])
@pytest.mark.parametrize(
    ("make", "optimizer"),
    [
        (many_parameters, lambda: Adam(0.01)),
        (many_parameters, lambda: Momentum(exponential_decay(0.01, 0.001, STEPS))),
        (scheduled, lambda: SGD(exponential_decay(0.5, 0.05, STEPS))),
    ],
    ids=["Adam", "schedule", "state"],
)
def test_rows_of_any_length_give_the_same_bits(
    make: Callable[[Share], Made], optimizer: Callable[[], Optimizer], cache: bool
) -> None:
    """The cache rebuilds on the way, in other places."""
    results = []
    for rows in ([1] * STEPS, [STEPS], [2, 9, 1, 1, 7, 3]):
        options = Options(deterministic=True, cache=cache)
        with fresh(make, optimizer, options=options) as dp:
            for n in rows:
                dp.exec_steps(n)
            assert dp.drift() == 0.0
            assert {r.steps for r in dp.replicas} == {STEPS}
            results.append(everything(dp))
    for other in results[1:]:
        assert (other == results[0]).all()


def test_the_loss_is_that_before_the_last_update() -> None:
    make = Gains()
    with fresh(make, lambda: SGD(2.0)) as dp:
        done = 0
        for n in (1, 20, 1, 6):
            dp.exec_steps(n)
            done += n
            assert dp.recv_loss() == pytest.approx(make.numpy(2.0, done)[1], rel=1e-5)


class Watched:
    """Counts of submits and waits, by device, and their order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []


@contextmanager
def watched(dp: DataParallel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    seen = Watched()
    with monkeypatch.context() as patch:
        for k, engine in enumerate(dp.engines):
            context = engine.device.context
            for name in ("start", "finish", "submit"):
                real = getattr(context, name)

                def call(*args: Any, k: int = k, name: str = name, real: Any = real) -> None:
                    seen.calls.append((name, k))
                    real(*args)

                patch.setattr(context, name, call)
        yield seen


def test_a_step_is_one_submit_and_all_devices_work_before_one_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with fresh(many_parameters, lambda: Adam(0.01)) as dp:
        dp.exec_steps(STEPS)
        both = [("start", 0), ("start", 1), ("finish", 0), ("finish", 1)]
        with watched(dp, monkeypatch) as seen:
            dp.exec_steps(7)
        assert seen.calls == both * 8  # gradients, 6 updates with gradients, an update
        with watched(dp, monkeypatch) as seen:
            dp.exec_step()
        assert seen.calls == both * 2
        assert set(dp.phase_ms()) == {"gradients", "sum", "update"}
        assert all(ms > 0 for ms in dp.phase_ms().values())


def test_what_takes_long_is_done_on_all_devices_at_the_same_time() -> None:
    """The first steps, in which the cache rebuilds: each device waits until the other is there."""
    with fresh(many_parameters, lambda: Adam(0.01)) as dp:
        together, met = threading.Barrier(2, timeout=30), []
        for replica in dp.replicas:
            real = replica.compute_gradients

            def meet(real: Callable[[], None] = real) -> None:
                met.append(together.wait())
                real()

            replica.compute_gradients = meet  # type: ignore[method-assign]
        dp.exec_steps(STEPS)
        assert len(met) >= 4


def test_what_is_sent_in_each_step_costs_no_more_submits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rate in uniforms, pictures in images."""
    make, rate = Gains(), Variable(FLOAT, name="rate")
    with fresh(make, lambda: SGD(rate)) as dp:
        assert make.x is not None
        x, rng = make.start, np.random.default_rng(4)
        for k in range(STEPS):
            make.start, make.target = x, rng.normal(size=make.target.shape)
            dp.send_img(rate, 1.0 + 0.1 * k)
            dp.send_views(make.targets[0], make.target)
            with watched(dp, monkeypatch) as seen:
                dp.exec_step()
            x, loss = make.numpy(1.0 + 0.1 * k, 1)
            assert dp.recv_loss() == pytest.approx(loss, rel=1e-5)
        assert rel(dp.recv_img(make.x), x) < 1e-5
        assert seen.calls == [("start", 0), ("start", 1), ("finish", 0), ("finish", 1)] * 2


def test_data_that_changes_between_calls_is_seen() -> None:
    """What a kept part was computed from, a parameter, and a number in a block of uniforms; at
    once, after every step, and when steps have become one submit."""
    rng = np.random.default_rng(8)
    make = Gains()
    rate = Variable(FLOAT, name="rate")
    x = make.start.copy()
    with fresh(make, lambda: SGD(rate), shares=[1, 4]) as dp:
        assert make.x is not None
        for n in (1, 1, 1, 1, 12, 12, 12, 1, 1, 12):
            lr = float(rng.uniform(0.5, 2.0))
            dp.send_img(rate, lr)
            make.target = rng.normal(size=make.target.shape)
            dp.send_views(make.targets[1], make.target)
            make.start = x
            if n == 12:
                make.start = x + rng.normal(size=x.shape)
                dp.send_img(make.x, make.start)
            dp.exec_steps(n)
            x, loss = make.numpy(lr, n)
            assert rel(dp.recv_img(make.x), x) < 1e-5
            assert dp.recv_loss() == pytest.approx(loss, rel=1e-5)


def still_parts(share: Share) -> Made:
    """Much of it does not depend on what is optimized."""
    size, n = (12, 10), len(share)
    x = Variable(VEC3, size, requires_grad=True, name="x")
    target = Variable(VEC3, size, n, name="target")
    off = x - F.image.gaussian_blur(F.image.gaussian_blur(target, 1.0), 1.0)
    pictures = np.random.default_rng(1).normal(size=(VIEWS, 10, 12, 3))
    targets.append(target)
    return F.mean(F.dot(off, off)), {target: pictures[share.views], x: np.zeros((10, 12, 3))}


targets: list[Variable] = []


def test_kept_parts_are_computed_again_when_their_data_changes() -> None:
    results = []
    for cache in (True, False):
        options = Options(deterministic=True, cache=cache)
        targets.clear()
        with fresh(still_parts, lambda: SGD(5.0), options=options) as dp:
            leaf = next(t for t in targets if t.layers == 3)
            for k in range(4):
                dp.exec_steps(14)
                new = np.random.default_rng(k).normal(size=(VIEWS, 10, 12, 3))
                dp.send_views(leaf, new)
                dp.exec_step()
            assert [set(e.plans) for e in dp.engines] == [
                {"static", "step"} if cache else {"step"}
            ] * 2
            results.append(dp.recv_img(dp.parameters[0]))
    assert rel(results[0], results[1]) < 1e-6


def test_options_of_an_engine_may_change_between_steps() -> None:
    make = Gains()
    with fresh(make, lambda: SGD(2.0)) as dp:
        dp.exec_steps(12)
        for engine in dp.engines:
            engine.options = Options(cache=False)
        dp.exec_steps(8)
        assert make.x is not None
        assert rel(dp.recv_img(make.x), make.numpy(2.0, 20)[0]) < 1e-5


def test_options_may_change_in_another_thread_at_any_time() -> None:
    make = Gains()
    with fresh(make, lambda: SGD(0.01)) as dp:
        done = threading.Event()

        def change() -> None:
            for k in range(6):
                dp.engines[k % 2].options = Options(cache=k % 4 < 2)
            done.set()

        dp.exec_step()
        thread, n = threading.Thread(target=change), 1
        thread.start()
        while not done.is_set() and n < 2000:
            dp.exec_step()
            n += 1
        thread.join()
        dp.exec_steps(3)
        assert make.x is not None
        assert rel(dp.recv_img(make.x), make.numpy(0.01, n + 3)[0]) < 1e-4


def test_unlike_devices_are_kept_together_within_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    make = Gains()
    with fresh(make, lambda: SGD(0.1)) as dp:
        dp.exec_steps(12)
        assert make.x is not None
        dp._loop.alike = False
        monkeypatch.setattr(loop_module, "SYNC_STEPS", 16)
        dp.engines[1].send_img(make.x, dp.recv_img(make.x) + 1e-3)  # as rounding would, but more
        dp.exec_steps(3)
        assert dp.drift() > 1e-4
        with watched(dp, monkeypatch) as seen:
            dp.exec_steps(8)
        assert dp.drift() == 0.0
        assert seen.calls.count(("start", 0)) > 9  # none ahead of the copy


# -- what interrupts


@pytest.mark.signals
def test_ctrl_c_within_a_row_ends_it_after_whole_steps() -> None:
    before = signal.getsignal(signal.SIGINT)
    with fresh(many_parameters, lambda: Adam(0.01)) as dp:
        dp.exec_steps(STEPS)
        real, done = dp._loop._add, [0]

        def add() -> None:
            done[0] += 1
            if done[0] == 5:
                signal.raise_signal(signal.SIGINT)
            real()

        dp._loop._add = add  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            dp.exec_steps(100)
        assert {r.steps for r in dp.replicas} == {STEPS + 5}
        assert signal.getsignal(signal.SIGINT) is before
        got = everything(dp)
    with fresh(many_parameters, lambda: Adam(0.01)) as dp:
        dp.exec_steps(STEPS + 5)
        assert (got == everything(dp)).all()


def test_steps_in_another_thread_leave_signals_alone() -> None:
    make = Gains()
    with fresh(make, lambda: SGD(2.0)) as dp:
        thread = threading.Thread(target=dp.exec_steps, args=(20,))
        thread.start()
        thread.join()
        assert make.x is not None
        assert rel(dp.recv_img(make.x), make.numpy(2.0, 20)[0]) < 1e-5


@pytest.mark.signals
def test_what_a_signal_handler_raises_amid_a_step_closes_all() -> None:
    """A test's time limit: nobody knows which devices have done what."""

    def out_of_time(_number: int, _frame: Any) -> None:
        raise TimeoutError("too slow")

    if not hasattr(signal, "SIGUSR1"):
        pytest.skip("this system has no SIGUSR1")
    before = signal.signal(signal.SIGUSR1, out_of_time)
    timer = threading.Timer(0.3, signal.raise_signal, (signal.SIGUSR1,))
    try:
        with fresh(Gains(), lambda: SGD(0.01)) as dp:
            dp.exec_steps(STEPS)
            timer.start()
            with pytest.raises(TimeoutError, match="too slow"):
                dp.exec_steps(10_000_000)
            with pytest.raises(DeviceError, match="closed: too slow"):
                dp.exec_step()
            assert not any(n for e in dp.engines for n in e.device.live_handles().values())
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def test_engines_may_be_looked_into_from_another_thread_meanwhile() -> None:
    make = Gains()
    with fresh(make, lambda: SGD(0.01)) as dp:
        dp.exec_steps(12)
        assert make.x is not None
        seen: list[np.ndarray] = []
        stop, looks = threading.Event(), threading.Event()

        def look() -> None:
            while not stop.is_set():
                seen.append(dp.engines[1].recv_img(make.x))  # type: ignore[arg-type]
                looks.set()

        thread = threading.Thread(target=look)
        thread.start()
        try:
            assert looks.wait(30)
            for _ in range(40):
                dp.exec_steps(3)
        finally:
            stop.set()
            thread.join()
        assert seen and rel(dp.recv_img(make.x), make.numpy(0.01, 132)[0]) < 1e-5


def test_gradients_in_several_pieces_of_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from dressi.vk import transfer

    with fresh(many_parameters, lambda: Adam(0.01)) as dp:
        dp.exec_steps(3)
        want = everything(dp)
    monkeypatch.setattr(transfer, "MOST_BYTES", 256)
    with fresh(many_parameters, lambda: Adam(0.01)) as dp:
        dp.exec_steps(3)
        assert len(dp.replicas[0].gradients) > 2
        assert (everything(dp) == want).all()


def test_a_gradient_that_never_changes() -> None:
    """It lies in images of the half that does not run any more; the loss in those of the other."""

    def make(share: Share) -> Made:
        x = Variable(VEC3, (6, 5), requires_grad=True, name="x")
        target = Variable(VEC3, (6, 5), len(share), name="target")
        views = np.arange(VIEWS)[:, None, None, None] + np.ones((VIEWS, 5, 6, 3))
        loss = F.mean(F.dot(x, F.image.gaussian_blur(F.image.gaussian_blur(target, 1.0), 1.0)))
        return loss, {target: views[share.views], x: np.zeros((5, 6, 3))}

    with fresh(make, lambda: SGD(1.0)) as dp:
        dp.exec_steps(STEPS)
        for engine in dp.engines:
            static, step = engine.plans["static"], engine.plans["step"]
            written = {i for stage in static.stages for s in stage.substages for i in s.written}
            kept = {static.images[i].key for i in written} - {None}
            assert len(kept - {i.key for i in step.images}) == 1  # the gradient
        inner = dp.recv_img(dp.parameters[0])[2, 2:4]  # far from the border
        assert np.abs(inner + STEPS * 3.0 / 30.0).max() < 1e-3
        assert dp.drift() == 0.0


def test_an_optimizer_that_changes_nothing() -> None:
    with fresh(Gains(), lambda: lambda xs, gxs: xs) as dp:
        before = dp.recv_img(dp.parameters[0])
        dp.exec_steps(STEPS)
        assert (dp.recv_img(dp.parameters[0]) == before).all()
        assert dp.recv_loss() == pytest.approx(Gains().numpy(0.0, 1)[1], rel=1e-5)


# -- what fails


@pytest.mark.parametrize("row", [1, 5])
@pytest.mark.parametrize("lost", [0, 1])
def test_a_device_that_is_lost_while_it_is_waited_for_closes_all(
    lost: int, row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other is at work, or done, meanwhile."""
    dp = fresh(many_parameters, lambda: Adam(0.01))
    dp.exec_steps(STEPS)
    context = dp.engines[lost].device.context
    real, waits = context._wait, [0]

    def wait(nth: int, what: str) -> None:
        waits[0] += 1
        if waits[0] == row + 1:  # that of the last update
            context.check(-4, "vkWaitForFences", what)  # VK_ERROR_DEVICE_LOST
        real(nth, what)

    monkeypatch.setattr(context, "_wait", wait)
    with pytest.raises(DeviceLostError) as caught:
        dp.exec_steps(row)
    text = str(caught.value)
    assert text.startswith(f"device {lost} of 2") and "vkWaitForFences of upload" in text
    assert "plan 'update'" in text and "plan 'gradients'" not in text
    assert not any(n for e in dp.engines for n in e.device.live_handles().values())
    with pytest.raises(DeviceError, match="is closed: device"):
        dp.exec_step()


def test_host_memory_that_is_not_there_is_said_and_nothing_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dressi.vk import transfer

    make = Gains()
    with fresh(make, lambda: SGD(2.0)) as dp:
        with monkeypatch.context() as patch:

            def full(*args: Any) -> None:
                raise OutOfMemoryError(f"{args[-1]} does not fit", 100, 7)

            patch.setattr(transfer, "create_host_buffer", full)
            for _ in range(2):
                with pytest.raises(OutOfMemoryError, match="upload of summed gradients"):
                    dp.exec_step()
        dp.exec_steps(3)
        assert make.x is not None
        assert rel(dp.recv_img(make.x), make.numpy(2.0, 3)[0]) < 1e-5
