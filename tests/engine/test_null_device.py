"""What an engine does to a device, call by call, on one that needs no Vulkan.

Plans are evaluated in NumPy, so values are checked as well; the shaders are not.
"""

from __future__ import annotations

import gc
import random
from typing import Any

import numpy as np
import pytest

from dressi import SGD, Adam, DressiAD, F, Momentum, Options, Variable
from dressi.ad.optim import Optimizer
from dressi.ad.vtype import FLOAT, INT, VEC3
from dressi.errors import DeviceError, GraphError, OutOfMemoryError
from dressi.testing.null_device import NullDevice

SIZE = (5, 4)
RNG = np.random.default_rng(0)


class Fit:
    """x towards a blurred target (clean once nothing but x changes), and a rate among the uniforms.

        target -> blur -> blur -\\
        x ------------------------ sub -> dot -> mean
    """

    def __init__(self, optimizer: Any = None, options: Options | None = None, **device: Any):
        self.x = Variable(VEC3, SIZE, requires_grad=True, name="x")
        self.target, self.scale = Variable(VEC3, SIZE, name="target"), Variable(FLOAT, name="scale")
        blurred = F.image.gaussian_blur(F.image.gaussian_blur(self.target, 1.0), 1.0)
        off = self.x * self.scale - blurred
        self.loss = F.mean(F.dot(off, off))
        self.device = NullDevice(**device)
        self.ad = DressiAD(self.device, options)
        self.ad.send_img(self.x, np.ones((4, 5, 3)))
        self.ad.send_img(self.target, np.full((4, 5, 3), 0.25))
        self.ad.send_img(self.scale, 1.0)
        self.ad.set_loss_var(self.loss)
        self.ad.set_optimizer(SGD(1.0) if optimizer is None else optimizer)

    def calls(self) -> list[tuple[Any, ...]]:
        """What was done since the last time."""
        found, self.device.calls[:] = list(self.device.calls), []
        return found

    def steady(self) -> Fit:
        """After so many steps that no rebuild comes any more, nor the first look at the loss."""
        self.ad.exec_steps(70)
        self.calls()
        return self


# -- steps -----------------------------------------------------------------------------------------


def test_a_steady_step_is_one_run_and_nothing_else() -> None:
    fit = Fit().steady()
    for n in (1, 1, 7):
        fit.ad.exec_steps(n)
        assert fit.calls() == [("run", "step", n)]


@pytest.mark.parametrize("options", [Options(), Options.baseline(), Options(zero_copy=False)])
def test_steps_in_a_row_and_one_by_one_give_the_values_of_sgd(options: Options) -> None:
    """The target is constant, and blurs leave it alone: x - 0.25 shrinks by 1 - 2 / 20 a step."""
    together, apart = Fit(options=options), Fit(options=options)
    together.ad.exec_steps(12)
    for _ in range(12):
        apart.ad.exec_step()
    want = 0.25 + 0.75 * (1 - 2 / 20) ** 12
    inner = [f.ad.recv_img(f.x)[2, 2] for f in (together, apart)]
    assert (inner[0] == inner[1]).all() and np.allclose(inner[0], want, rtol=0.1)


def test_nothing_is_uploaded_twice_and_numbers_not_at_all() -> None:
    fit = Fit()
    fit.ad.exec_steps(3)
    assert len(fit.device.names("upload")) == 2  # x and target; the scale is a uniform
    fit.ad.send_img(fit.target, np.zeros((4, 5, 3)))
    assert len(fit.device.names("upload")) == 3


def test_only_the_last_of_two_sends_reaches_the_uniforms_and_only_once() -> None:
    fit = Fit()
    for k in range(60):  # the scale changes in every step: the cache settles for that
        fit.ad.send_img(fit.scale, 1.0 + 0.001 * k)
        fit.ad.exec_step()
    fit.calls()
    fit.ad.send_img(fit.scale, 5.0)
    fit.ad.send_img(fit.scale, 2.0)
    fit.ad.exec_step()
    assert fit.calls() == [("uniforms", "step"), ("run", "step", 1)]


def test_updates_in_place_need_no_copies_and_a_leaf_is_read_from_the_device() -> None:
    fit = Fit(Adam(0.1))
    fit.ad.exec_step()
    assert all(not plan.updates for plan in fit.ad.plans.values())
    fit.calls()
    assert (fit.ad.recv_img(fit.x) != 1.0).any()
    assert [c[0] for c in fit.calls()] == ["download"]


def test_what_the_user_sends_wins_over_what_steps_wrote() -> None:
    fit = Fit().steady()
    fit.ad.send_img(fit.x, np.full((4, 5, 3), 9.0))
    assert (fit.ad.recv_img(fit.x) == 9.0).all()
    fit.ad.exec_step()
    assert (np.abs(fit.ad.recv_img(fit.x)) < 9.0).all()


def test_options_keep_the_state_of_the_optimizer_and_another_loss_does_not() -> None:
    fits = [Fit(Adam(0.1)) for _ in range(3)]
    for fit in fits:
        fit.ad.exec_steps(5)
    fits[1].ad.options = Options(cache=False, pack_stages=False)
    fits[2].ad.set_loss_var(fits[2].loss)
    for fit in fits:
        fit.ad.exec_steps(5)
    a, b, c = (fit.ad.recv_img(fit.x) for fit in fits)
    assert np.allclose(a, b, atol=1e-6) and not np.allclose(a, c, atol=1e-4)


def test_a_checkpoint_is_parameters_and_states() -> None:
    fit, other = Fit(Momentum(0.1, 0.9)), Fit(Momentum(0.1, 0.9))
    assert fit.ad.optimizer_states == ()
    fit.ad.exec_steps(4)
    states = [fit.ad.recv_img(v) for v in fit.ad.optimizer_states]
    assert states and fit.ad.parameters == [fit.x]
    other.ad.send_img(other.x, fit.ad.recv_img(fit.x))
    assert other.ad.plan.n_functions
    for v, data in zip(other.ad.optimizer_states, states, strict=True):
        other.ad.send_img(v, data)
    for f in (fit, other):
        f.ad.exec_steps(4)
    assert np.allclose(fit.ad.recv_img(fit.x), other.ad.recv_img(other.x), atol=1e-6)


def test_a_changed_requires_grad_is_noticed() -> None:
    fit = Fit().steady()
    fit.target.requires_grad = True
    fit.ad.exec_step()
    assert {v.name for v in fit.ad.parameters} == {"x", "target"}
    assert fit.ad.rebuilds[-1].reason == "a requires_grad changed"


# -- values that are asked for ---------------------------------------------------------------------


def test_an_evaluation_is_compiled_once_and_run_when_something_changed() -> None:
    fit = Fit()
    fit.ad.set_optimizer(None)
    y = fit.x * 2.0 + fit.target
    fit.calls()
    first = [fit.ad.recv_img(y) for _ in range(3)]
    assert all((a == 2.25).all() for a in first)
    calls = [c for c in fit.calls() if c[0] in ("compile", "run")]
    assert calls == [("compile", "evaluation"), ("run", "evaluation", 1)]
    fit.ad.send_img(fit.x, np.zeros((4, 5, 3)))
    assert (fit.ad.recv_img(y) == 0.25).all()
    assert [c for c in fit.calls() if c[0] in ("compile", "run")] == [("run", "evaluation", 1)]


def test_many_graphs_are_one_evaluation() -> None:
    fit = Fit()
    graphs = [fit.x * float(k) for k in range(20)]
    fit.calls()
    values = fit.ad.recv_imgs([*graphs, fit.x])
    assert [a[0, 0, 0] for a in values] == [*range(20), 1.0]
    assert fit.device.names("compile") == ["evaluation"]


def test_the_loss_of_the_last_step_is_read_until_something_is_sent() -> None:
    fit = Fit().steady()
    fit.ad.exec_step()
    fit.calls()
    before = fit.ad.recv_img(fit.loss)
    assert [c[0] for c in fit.calls()] == ["read"]
    fit.ad.send_img(fit.scale, 3.0)
    assert fit.ad.recv_img(fit.loss) > before
    assert ("compile", "evaluation") in fit.calls()


def test_a_uniform_that_a_step_puts_into_an_image_is_not_read_from_the_uniforms_any_more() -> None:
    """An evaluation that was compiled before the first step has it as a number."""
    x = Variable(FLOAT, requires_grad=True)
    ad = DressiAD(NullDevice())
    ad.send_img(x, 4.0)
    double = x * 2.0
    assert ad.recv_img(double).item() == 8.0
    ad.set_loss_var(x * x)
    ad.set_optimizer(SGD(0.25))  # halves x
    for want in (4.0, 2.0, 1.0):
        ad.exec_step()
        assert ad.recv_img(double).item() == want


def test_gradients_are_those_of_the_current_data() -> None:
    fit = Fit()
    for value in (1.0, 3.0):
        fit.ad.send_img(fit.scale, value)
        inner = fit.ad.recv_grad(fit.x)[2, 2, 0]
        assert inner == pytest.approx(2 * value * (value - 0.25) / 20, rel=0.05)


# -- the cache -------------------------------------------------------------------------------------


def test_the_clean_part_runs_again_only_after_what_it_depends_on_changed() -> None:
    fit = Fit().steady()
    assert set(fit.ad.plans) == {"static", "step"}
    fit.ad.send_img(fit.target, np.full((4, 5, 3), 0.5))
    fit.ad.exec_steps(3)
    runs = [c for c in fit.calls() if c[0] == "run"]
    assert runs == [("run", "static", 1), ("run", "step", 3)]
    fit.ad.exec_steps(2)
    assert fit.calls() == [("run", "step", 2)]


@pytest.mark.parametrize("seed", range(12))
def test_any_sequence_of_calls_gives_the_same_values_with_and_without_the_cache(seed: int) -> None:
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    made: list[Optimizer] = [SGD(0.5), Adam(0.05), Momentum(0.1, 0.5)]
    fits = [Fit(made[seed % 3], Options(cache=cache)) for cache in (True, False)]
    for _ in range(60):
        action = rng.choice(["step", "step", "step", "steps", "target", "scale", "x", "recv"])
        n, value = rng.randint(2, 12), float(numbers.uniform(0.5, 1.5))
        array = numbers.uniform(0, 1, (4, 5, 3))
        got = []
        for fit in fits:
            if action in ("step", "steps"):
                fit.ad.exec_steps(1 if action == "step" else n)
            elif action == "scale":
                fit.ad.send_img(fit.scale, value)
            elif action != "recv":
                fit.ad.send_img(getattr(fit, action), array)
            got.append([fit.ad.recv_img(v) for v in (fit.loss, fit.x)] if n % 3 == 0 else [])
        for a, b in zip(*got, strict=True):
            assert np.allclose(a, b, rtol=1e-5, atol=1e-6), action
    cached, plain = fits
    assert len(plain.ad.rebuilds) == 1 < len(cached.ad.rebuilds)
    assert len(cached.device.names("run")) >= len(plain.device.names("run"))


# -- what fails ------------------------------------------------------------------------------------


def test_a_rebuild_that_finds_no_memory_leaves_the_step_as_it_is() -> None:
    fit, free = Fit(), Fit()
    for f in (fit, free):
        f.ad.exec_steps(2)
    fit.ad.runtime.with_room = lambda make: make()  # type: ignore[method-assign]
    fit.device.fail_next("compile", OutOfMemoryError("no room", 2, 1))
    for f in (fit, free):
        f.ad.exec_steps(6)
    assert [r.kind for r in fit.ad.rebuilds] == ["first"]
    assert [r.kind for r in free.ad.rebuilds] == ["first", "fast"]
    assert np.allclose(fit.ad.recv_img(fit.x), free.ad.recv_img(free.x), atol=1e-6)


def test_a_half_that_cannot_be_compiled_takes_the_other_one_with_it() -> None:
    fit = Fit()
    fit.ad.exec_steps(3)
    before, real = fit.device.live_handles(), fit.device.compile

    def second(plan: Any, *args: Any, **kwargs: Any) -> Any:
        if plan.name == "step":
            raise OutOfMemoryError("no room", 2, 1)
        return real(plan, *args, **kwargs)

    fit.device.compile = second  # type: ignore[method-assign]
    fit.ad.exec_steps(2)
    assert fit.device.live_handles() == before and set(fit.ad.plans) == {"step"}


def test_evaluations_make_room_for_a_step() -> None:
    """The limit holds an evaluation or the step, not both."""
    fit = Fit(memory_limit=100_000)
    wide = F.expand(F.mean(fit.x), (64, 64))
    assert fit.ad.recv_img(wide).shape == (64, 64, 3)
    fit.device.memory_limit = fit.device.used_bytes() + 500
    fit.ad.exec_step()
    assert len(fit.ad.runtime.evaluations) == 0
    with pytest.raises(OutOfMemoryError, match="memory_limit"):
        fit.ad.recv_img(F.expand(F.mean(fit.x), (640, 640)))
    fit.ad.exec_step()


def test_an_upload_that_fails_leaves_the_leaf_without_data() -> None:
    fit = Fit()
    y = Variable(VEC3, SIZE)
    handles = fit.device.live_handles()
    fit.device.fail_next("upload", DeviceError("no"))
    with pytest.raises(DeviceError, match="no"):
        fit.ad.send_img(y, np.ones((4, 5, 3)))
    assert fit.device.live_handles() == handles
    with pytest.raises(GraphError, match="no data"):
        fit.ad.recv_img(y)


def test_after_a_run_that_failed_the_loss_is_evaluated() -> None:
    fit = Fit().steady()
    fit.device.fail_next("run", DeviceError("lost"))
    with pytest.raises(DeviceError, match="lost"):
        fit.ad.exec_step()
    fit.calls()
    fit.ad.recv_img(fit.loss)
    assert ("compile", "evaluation") in fit.calls()


def test_an_index_outside_its_table_is_refused_at_the_send_and_changes_nothing() -> None:
    table, index = Variable(FLOAT, (4, 1)), Variable(INT, (3, 1))
    ad = DressiAD(NullDevice())
    ad.send_img(table, np.arange(4.0))
    ad.send_img(index, [0, 1, 3])
    picked = F.lookup(table, index)
    assert ad.recv_img(picked).ravel().tolist() == [0, 1, 3]
    with pytest.raises(GraphError, match="index"):
        ad.send_img(index, [0, 1, 4])
    assert ad.recv_img(picked).ravel().tolist() == [0, 1, 3]


# -- what goes away --------------------------------------------------------------------------------


def test_rounds_leave_nothing_on_the_device() -> None:
    fit = Fit()
    levels = []
    for k in range(6):
        x = F.leaf(np.full((4, 5, 3), float(k)), VEC3)
        x.requires_grad = True
        fit.ad.set_loss_var(F.mean(F.dot(x, x)))
        fit.ad.set_optimizer(Adam(0.1))
        fit.ad.exec_steps(9)
        fit.ad.recv_img(x + fit.target)
        fit.ad.set_loss_var(fit.loss)
        fit.ad.set_optimizer(None)
        fit.ad.exec_step()
        del x
        gc.collect()
        fit.ad.memory()
        levels.append(
            (fit.device.live_handles(), fit.device.used_bytes(), len(fit.ad.runtime.store))
        )
    assert all(level == levels[1] for level in levels[1:])


def test_rebuilds_close_what_they_replace() -> None:
    fit = Fit()
    for _ in range(3):
        fit.ad.set_loss_var(fit.loss)
        fit.ad.exec_steps(20)
    assert fit.device.live_handles()["executables"] == len(fit.ad.plans) == 2
    fit.ad.options = Options(cache=False)
    fit.ad.exec_step()
    assert fit.device.live_handles()["executables"] == 1


def test_times_and_reports_leave_data_as_it_was() -> None:
    fit = Fit(Adam(0.1)).steady()
    before = fit.ad.recv_img(fit.x)
    report = fit.ad.report(n=2)
    assert (fit.ad.recv_img(fit.x) == before).all()
    assert {r.plan for r in report.stages} == {"static", "step"}
    assert report.gpu_ms and report.hits > 0
    assert fit.device.live_handles()["executables"] == 2


def test_a_closed_engine_says_so_and_may_be_closed_twice() -> None:
    fit = Fit()
    fit.ad.exec_step()
    fit.ad.close()
    fit.ad.close()
    assert not any(fit.device.live_handles().values())
    for call in (fit.ad.exec_step, fit.ad.memory, lambda: fit.ad.recv_img(fit.x)):
        with pytest.raises(DeviceError, match="this DressiAD is closed"):
            call()


def test_unknown_limits_close_the_device() -> None:
    device = NullDevice()
    with pytest.raises(GraphError, match="limits"):
        DressiAD(device, limits={"no_such": 1})
    assert device.closed
