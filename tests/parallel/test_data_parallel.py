"""Views split over devices: the same result as on one device and as in NumPy, whatever the split.
One physical device stands for several where there is only one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from splits import SIZE, VIEWS, Gains, devices, many_parameters, rel

from dressi import (
    FLOAT,
    SGD,
    VEC3,
    Adam,
    DressiAD,
    F,
    GraphError,
    Momentum,
    Options,
    Variable,
)
from dressi.ad import exponential_decay, state
from dressi.ad.optim import Optimizer
from dressi.parallel import DataParallel, Share
from dressi.render.scene import icosphere
from dressi.testing.problems import hard_silhouettes, silhouette_problem, squashed, view_matrices
from dressi.vk import list_devices, open_device

pytestmark = pytest.mark.gpu
STEPS = 20
TOLERANCE = 1e-5
"""Of parameters after STEPS, relative to the largest: sums are rounded in another order."""


SPLITS = [[5], [3, 2], [1, 4], [4, 1], [1, 3, 1], [1, 1, 1, 1, 1]]


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("shares", SPLITS, ids=str)
def test_any_split_is_gradient_descent_over_all_views(
    shares: list[int], reduction: str, shared: bool
) -> None:
    make = Gains(reduction, shared)
    lr = 2.0 if reduction == "mean" else 0.5
    with DataParallel(
        make,
        VIEWS,
        devices(len(shares)),
        optimizer=SGD(lr),
        reduction=reduction,
        shares=shares,
    ) as dp:
        assert [len(s) for s in dp.shares] == shares
        dp.exec_step()
        dp.exec_steps(STEPS - 1)
        (x,) = dp.parameters
        want, loss = make.numpy(lr, STEPS)
        assert rel(dp.recv_img(x), want) < TOLERANCE
        assert rel(want, make.start) > 0.1  # it went somewhere
        assert dp.recv_loss() == pytest.approx(loss, rel=1e-5)
        for engine in dp.engines:
            assert (engine.recv_img(engine.parameters[0]) == dp.recv_img(x)).all()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_gradient_is_that_of_all_views(reduction: str) -> None:
    make = Gains(reduction)
    assert make.x is not None
    with DataParallel(
        make, VIEWS, devices(3), optimizer=SGD(1.0), reduction=reduction, shares=[2, 1, 2]
    ) as dp:
        want = make.start - make.numpy(1.0, 1)[0]
        assert rel(dp.recv_grad(make.x), want) < 1e-5
        dp.send_img(make.x, 0 * make.start)
        make.start = 0 * make.start
        assert rel(dp.recv_grad(make.x), -make.numpy(1.0, 1)[0]) < 1e-5


def silhouettes() -> Callable[[Share], tuple[Variable, Mapping[Variable, Any]]]:
    mesh, matrices = icosphere(1, 0.6), view_matrices(VIEWS)
    targets = hard_silhouettes(squashed(mesh), matrices, 32)

    def make(share: Share) -> tuple[Variable, Mapping[Variable, Any]]:
        p = silhouette_problem(mesh, matrices[share.views], targets[share.views])
        return p.loss, p.data

    return make


def on_one_device(
    make: Callable[[Share], tuple[Variable, Mapping[Variable, Any]]], optimizer: Optimizer
) -> tuple[list[np.ndarray], float]:
    """What DressiAD gives for all views: parameters and loss after STEPS."""
    loss, data = make(Share(np.arange(VIEWS), VIEWS))
    with DressiAD() as ad:
        ad.set_loss_var(loss)
        ad.set_optimizer(optimizer)
        for leaf, array in data.items():
            ad.send_img(leaf, array)
        ad.exec_steps(STEPS)
        parameters = [v for v in data if v.requires_grad]
        return [ad.recv_img(v) for v in parameters], float(ad.recv_img(loss).sum())


@pytest.mark.parametrize("shares", [[3, 2], [1, 4]], ids=str)
def test_vertices_by_silhouettes_come_out_as_on_one_device(shares: list[int]) -> None:
    (want,), loss = on_one_device(silhouettes(), SGD(0.2))
    with DataParallel(silhouettes(), VIEWS, devices(2), optimizer=SGD(0.2), shares=shares) as dp:
        start = dp.recv_img(dp.parameters[0])
        dp.exec_steps(STEPS)
        assert rel(want, start) > 0.05  # it went somewhere
        assert rel(dp.recv_img(dp.parameters[0]), want) < TOLERANCE
        assert dp.recv_loss() == pytest.approx(loss, rel=1e-5)
        assert dp.drift() == 0.0


def test_gradients_along_a_fit_with_adam_are_those_of_one_device() -> None:
    """At the same vertices in every step. (Where a pixel changes its face the gradient jumps, so
    that two fits which differ by rounding may part there: a matter of the loss, not of the
    split.)"""
    loss, data = silhouettes()(Share(np.arange(VIEWS), VIEWS))
    (pos,) = (v for v in data if v.requires_grad)
    with (
        DressiAD() as ad,
        DataParallel(silhouettes(), VIEWS, devices(2), optimizer=Adam(2e-3)) as dp,
    ):
        ad.set_loss_var(loss)
        for leaf, array in data.items():
            ad.send_img(leaf, array)
        for _ in range(STEPS):
            ad.send_img(pos, dp.recv_img(dp.parameters[0]))
            assert rel(dp.recv_grad(dp.parameters[0]), ad.recv_grad(pos)) < 1e-6
            value = float(ad.recv_img(loss).sum())
            dp.exec_step()
            assert dp.recv_loss() == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(
    "optimizer",
    [
        Adam(0.01, eps=1e-4),
        Momentum(0.01),
        lambda xs, gxs: [x - 0.02 * g for x, g in zip(xs, gxs, strict=True)],
    ],
    ids=["Adam", "Momentum", "own"],
)
def test_parameters_of_all_types_come_out_as_on_one_device(optimizer: Optimizer) -> None:
    wants, loss = on_one_device(many_parameters, optimizer)
    with DataParallel(many_parameters, VIEWS, devices(2), optimizer=optimizer, shares=[1, 4]) as dp:
        for _ in range(STEPS):
            dp.exec_step()
        assert [x.name for x in dp.parameters] == ["scale", "table", "matrix", "stack"]
        for x, want in zip(dp.parameters, wants, strict=True):
            assert rel(dp.recv_img(x), want) < TOLERANCE
        assert dp.recv_loss() == pytest.approx(loss, rel=1e-5)


def test_clean_parts_of_a_replica_are_not_run_again() -> None:
    with DataParallel(many_parameters, VIEWS, devices(2), optimizer=SGD(0.01)) as dp:
        dp.exec_steps(STEPS)
        for engine in dp.engines:
            assert set(engine.plans) == {"static", "step"}
            assert [r.kind for r in engine.rebuilds][:2] == ["first", "fast"]


def test_schedules_that_loss_and_optimizer_share_count_once_a_step() -> None:
    """rate(t) is read by both halves of a step; each must see the t of before the step."""
    rate = exponential_decay(0.5, 0.05, STEPS)
    x = Variable(FLOAT, (4, 3), requires_grad=True, name="x")

    def make(share: Share) -> tuple[Variable, Mapping[Variable, Any]]:
        target = Variable(FLOAT, (4, 3), len(share), name="target")
        off = x * rate - target
        ones = np.arange(VIEWS)[:, None, None] + np.ones((VIEWS, 3, 4))
        return F.mean(off * off), {target: ones[share.views], x: np.full((3, 4), 0.25)}

    with DataParallel(make, VIEWS, devices(2), optimizer=SGD(rate)) as dp:
        dp.exec_steps(STEPS)
        want = 0.25
        for t in range(STEPS):
            r = 0.5 * 0.1 ** (t / STEPS)
            want -= r * 2 * r * (r * want - 3.0) / 12
        assert rel(dp.recv_img(x), np.full((3, 4, 1), want)) < TOLERANCE


def test_state_of_the_loss_alone_goes_on_too() -> None:
    """An average over steps, kept by the loss: y(t+1) = 0.9 y(t) + 0.1 x(t)."""
    x = Variable(FLOAT, (4, 3), requires_grad=True, name="x")

    def make(share: Share) -> tuple[Variable, Mapping[Variable, Any]]:
        average = state(FLOAT, (4, 3), name="average")
        average.update = average * 0.9 + F.stop_gradient(x) * 0.1
        target = Variable(FLOAT, (4, 3), len(share), name="target")
        off = x - target - average
        return F.mean(off * off), {target: np.ones((len(share), 3, 4)), x: np.zeros((3, 4))}

    with DataParallel(make, VIEWS, devices(2), optimizer=SGD(1.0)) as dp:
        dp.exec_steps(STEPS)
        want, y = 0.0, 0.0
        for _ in range(STEPS):
            want, y = want - 2 * (want - 1 - y) / 12, 0.9 * y + 0.1 * want
        assert rel(dp.recv_img(x), np.full((3, 4, 1), want)) < TOLERANCE


def test_a_loss_image_is_summed_over_its_pixels() -> None:
    x = Variable(FLOAT, (4, 3), requires_grad=True, name="x")

    def make(share: Share) -> tuple[Variable, Mapping[Variable, Any]]:
        target = Variable(FLOAT, (4, 3), len(share), name="target")
        off = x - target
        views = np.arange(VIEWS)[:, None, None] + np.zeros((VIEWS, 3, 4))
        return off * off, {target: views[share.views], x: np.zeros((3, 4))}

    with DataParallel(make, VIEWS, devices(2), optimizer=SGD(0.02), reduction="sum") as dp:
        dp.exec_step()
        assert dp.recv_loss() == pytest.approx(12 * (0 + 1 + 4 + 9 + 16))
        assert rel(dp.recv_img(x), np.full((3, 4, 1), 0.02 * 2 * 10)) < 1e-6


def test_a_run_is_repeated_bit_by_bit() -> None:
    def run() -> np.ndarray:
        with DataParallel(
            many_parameters,
            VIEWS,
            devices(3),
            optimizer=Adam(0.01),
            options=Options(deterministic=True),
        ) as dp:
            dp.exec_steps(STEPS)
            return np.concatenate([dp.recv_img(x).ravel() for x in dp.parameters])

    assert (run() == run()).all()


def test_data_sent_later_reaches_every_device() -> None:
    make, other = Gains(), Gains()
    rng = np.random.default_rng(11)
    rate = Variable(FLOAT, name="rate")
    with DataParallel(make, VIEWS, devices(2), optimizer=SGD(rate), shares=[1, 4]) as dp:
        with pytest.raises(GraphError, match=r"rate .* has no data"):
            dp.exec_step()
        dp.send_img(rate, 2.0)  # and nothing is closed
        dp.exec_steps(2)
        other.target, other.start = rng.normal(size=other.target.shape), other.start * 2
        for leaf in make.targets.values():  # the leaf of any replica
            if leaf.layers in (1, 4):
                dp.send_views(leaf, other.target)
                break
        assert make.x is not None
        dp.send_img(make.x, other.start)
        dp.send_img(rate, 1.0)
        dp.exec_steps(STEPS)
        assert rel(dp.recv_img(make.x), other.numpy(1.0, STEPS)[0]) < TOLERANCE


def test_parameters_that_are_switched_off_stay() -> None:
    make = silhouettes()
    leaves: list[Variable] = []

    def remember(share: Share) -> tuple[Variable, Mapping[Variable, Any]]:
        loss, data = make(share)
        if share.index >= 0:
            leaves.extend(v for v in data if v.requires_grad)
        return loss, data

    with DataParallel(remember, VIEWS, devices(2), optimizer=SGD(0.1)) as dp:
        dp.exec_step()
        leaves[0].requires_grad = False
        with pytest.raises(GraphError, match="does not depend on any parameter"):
            dp.exec_step()
        leaves[0].requires_grad = True
        before = dp.recv_img(leaves[1])
        dp.exec_step()
        assert (dp.recv_img(leaves[0]) != before).any()
        assert dp.drift() == 0.0


@pytest.mark.signals
def test_ctrl_c_comes_between_steps() -> None:
    with DataParallel(Gains(), VIEWS, devices(2), optimizer=SGD(0.01)) as dp:
        dp.exec_step()
        timer = threading.Timer(0.3, signal.raise_signal, (signal.SIGINT,))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            dp.exec_steps(10_000_000)
        timer.join()
        done = {replica.steps for replica in dp.replicas}
        assert len(done) == 1 and 1 < done.pop() < 10_000_000
        assert dp.drift() == 0.0
        dp.exec_step()


def test_devices_of_different_kinds_work_together() -> None:
    kinds = {d.type: d.index for d in list_devices()}
    if len(kinds) < 2:
        pytest.skip("all Vulkan devices of this machine are of one type")
    make = Gains()
    with DataParallel(make, VIEWS, list(kinds.values()), optimizer=SGD(2.0)) as dp:
        dp.exec_steps(STEPS)
        (x,) = dp.parameters
        assert rel(dp.recv_img(x), make.numpy(2.0, STEPS)[0]) < TOLERANCE
        assert dp.drift() < TOLERANCE


def test_images_lie_the_same_way_on_devices_with_other_limits() -> None:
    """Where one device takes small images only, stacks lie in columns on the other as well."""
    both = [open_device(d) for d in devices(2)]
    both[1].context.limits = both[1].limits.restrict(image_dim=24)
    rng = np.random.default_rng(2)
    start, goal = rng.normal(size=(9, 6, 7, 3)), rng.normal(size=(VIEWS, 6, 7, 3))
    x = Variable(VEC3, SIZE, 9, requires_grad=True, name="x")

    def make(share: Share) -> tuple[Variable, Mapping[Variable, Any]]:
        target = Variable(VEC3, SIZE, len(share), name="target")
        off = F.sum_layers(x) - target
        return F.mean(F.dot(off, off)), {target: goal[share.views], x: start}

    with DataParallel(make, VIEWS, both, optimizer=SGD(1.0)) as dp:
        dp.exec_step()
        assert [e.limits.image_dim for e in dp.engines] == [24, 24]
        step = -2.0 * (start.sum(axis=0) - goal.mean(axis=0)) / 42
        assert rel(dp.recv_img(x), start + step) < 1e-6
        assert dp.drift() == 0.0


def test_nothing_is_left_of_many() -> None:
    before = threading.active_count()
    for _ in range(5):
        with DataParallel(Gains(), VIEWS, devices(2), optimizer=SGD(0.1), check=False) as dp:
            dp.exec_step()
            assert all(e.memory().used > 0 for e in dp.engines)
        assert threading.active_count() == before
        assert not any(n for e in dp.engines for n in e.device.live_handles().values())


def test_unlike_devices_are_kept_together(monkeypatch: pytest.MonkeyPatch) -> None:
    from dressi.parallel import loop

    monkeypatch.setattr(loop, "SYNC_STEPS", 4)
    make = Gains()
    with DataParallel(make, VIEWS, devices(2), optimizer=SGD(0.1)) as dp:
        dp._loop.alike = False
        dp.exec_steps(3)
        assert make.x is not None
        dp.engines[1].send_img(make.x, dp.recv_img(make.x) + 1e-3)  # as rounding would, but more
        assert dp.drift() > 1e-4
        dp.exec_step()
        assert dp.drift() == 0.0
