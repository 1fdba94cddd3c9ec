"""What cannot be split says so, and a device that fails closes all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import dressi
from dressi import (
    FLOAT,
    SGD,
    VEC3,
    Adam,
    DeviceError,
    DeviceLostError,
    F,
    GraphError,
    OutOfMemoryError,
    Variable,
)
from dressi.parallel import DataParallel, Share, split_views
from dressi.vk import equal_devices

SIZE = (5, 4)


@pytest.mark.parametrize(
    ("n_views", "n_devices", "shares", "counts"),
    [
        (6, 2, None, [3, 3]),
        (7, 3, None, [3, 2, 2]),
        (8, 3, None, [3, 3, 2]),
        (3, 3, None, [1, 1, 1]),
        (5, 1, None, [5]),
        (5, 2, [1, 4], [1, 4]),
    ],
)
def test_views_are_split_in_order(
    n_views: int, n_devices: int, shares: list[int] | None, counts: list[int]
) -> None:
    split = split_views(n_views, n_devices, shares)
    assert [len(s) for s in split] == counts
    assert np.concatenate([s.views for s in split]).tolist() == list(range(n_views))
    assert [s.index for s in split] == list(range(n_devices))
    assert sum(s.weight for s in split) == pytest.approx(1.0)
    assert split[0].weight == counts[0] / n_views


@pytest.mark.parametrize(
    ("n_views", "n_devices", "shares", "says"),
    [
        (1, 2, None, "1 view for 2 devices"),
        (3, 4, None, "3 views for 4 devices"),
        (0, 1, None, "at least 1, got 0"),
        (2.5, 1, None, "got 2.5"),
        (True, 1, None, "got True"),
        (5, 2, [5], "2 numbers"),
        (5, 2, [5, 0], "at least 1"),
        (5, 2, [2, 2], "add up to 5"),
        (5, 2, [6, -1], "at least 1"),
        (5, 2, [2.5, 2.5], "got [2.5, 2.5]"),
    ],
)
def test_what_does_not_add_up_says_so(
    n_views: Any, n_devices: int, shares: list[Any] | None, says: str
) -> None:
    with pytest.raises(GraphError) as caught:
        split_views(n_views, n_devices, shares)
    assert says in str(caught.value)


Made = tuple[Variable, Mapping[Variable, Any]]


def mean_loss(share: Share) -> Made:
    x = Variable(VEC3, SIZE, requires_grad=True, name="x")
    target = Variable(VEC3, SIZE, len(share), name="target")
    off = x - target
    data = {target: np.ones((len(share), *SIZE[::-1], 3)), x: np.zeros((*SIZE[::-1], 3))}
    return F.mean(F.dot(off, off)), data


def sum_loss(share: Share) -> Made:
    loss, data = mean_loss(share)
    return loss * float(len(share)), data


def sum_and_regularizer(share: Share) -> Made:
    loss, data = sum_loss(share)
    x = next(v for v in data if v.requires_grad)
    return loss + 0.5 * F.mean(F.dot(x - 1.0, x - 1.0)), data


def across_views(share: Share) -> Made:
    """The views are compared with each other."""
    loss, data = mean_loss(share)
    target = next(v for v in data if not v.requires_grad)
    views = F.split(target)
    pair = views[0] - views[-1] + 0.5
    return loss + F.mean(F.dot(pair, pair)) * float(len(share) ** 2), data


def parallel(make: Callable[[Share], Any] = mean_loss, **changes: Any) -> DataParallel:
    first = equal_devices()[0].index
    settings: dict[str, Any] = {"views": 4, "devices": [first, first], "optimizer": SGD(0.1)}
    return DataParallel(make, **{**settings, **changes})


def error_of(make: Callable[[Share], Any], **changes: Any) -> str:
    """What the first step says."""
    with parallel(make, **changes) as dp:
        before = dp.recv_img(dp.parameters[0])
        with pytest.raises(GraphError) as caught:
            dp.exec_step()
        assert (dp.recv_img(dp.parameters[0]) == before).all()
    return str(caught.value)


@pytest.mark.gpu
def test_a_loss_that_is_reduced_in_another_way_is_refused() -> None:
    text = error_of(mean_loss, reduction="sum")
    assert "2 times as large" in text and "(1 times)" in text and 'reduction="mean"' in text
    text = error_of(sum_loss, reduction="mean")
    assert "1 times as large" in text and "(2 times)" in text and 'reduction="sum"' in text


@pytest.mark.gpu
def test_a_regularizer_that_would_be_counted_twice_is_refused() -> None:
    text = error_of(sum_and_regularizer, reduction="sum")
    assert "share.weight" in text and "(1.667 times)" in text  # (2 * 3 + 1.5) / (3 + 1.5)


@pytest.mark.gpu
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_loss_across_views_is_refused(reduction: str) -> None:
    assert "cannot be split" in error_of(across_views, reduction=reduction)


@pytest.mark.gpu
def test_the_check_can_be_switched_off_and_one_device_needs_none() -> None:
    first = equal_devices()[0].index
    with parallel(across_views, check=False) as dp:
        dp.exec_step()
    with parallel(across_views, devices=[first]) as dp:
        dp.exec_step()


@pytest.mark.gpu
def test_a_parameter_with_a_layer_a_view_is_refused_and_the_hint_works() -> None:
    def own(share: Share) -> Made:
        offset = Variable(VEC3, layers=len(share), requires_grad=True, name="offset")
        loss, data = mean_loss(share)
        return loss + F.mean(F.dot(offset, offset)), {**data, offset: np.ones((len(share), 3))}

    assert "offset VEC3@1x1x2 is to be optimized" in error_of(own)
    with pytest.raises(GraphError, match="other parameters"), parallel(own, shares=[1, 3]) as dp:
        dp.exec_step()

    offsets = Variable(VEC3, layers=4, requires_grad=True, name="offsets")

    def shared(share: Share) -> Made:
        loss, data = mean_loss(share)
        mine = F.concat([F.split(offsets)[int(i)] for i in share.views])
        start = np.arange(12.0).reshape(4, 3) + 1
        return loss + F.mean(F.dot(mine, mine)), {**data, offsets: start}

    with parallel(shared, shares=[1, 3]) as dp:
        dp.exec_step()  # d/do mean over 4 views of |o|^2 = o / 2
        want = (np.arange(12.0).reshape(4, 1, 1, 3) + 1) * (1 - 0.1 / 2)
        assert np.abs(dp.recv_img(offsets) - want).max() < 1e-5


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("changes", "kind", "says"),
    [
        ({"devices": []}, GraphError, "devices is empty"),
        ({"devices": "llvmpipe"}, GraphError, "list of selectors"),
        ({"devices": [0, "no such device"]}, DeviceError, "no Vulkan device fits 'no such device'"),
        ({"views": 1}, GraphError, "1 view for 2 devices"),
        ({"views": 0}, GraphError, "at least 1"),
        ({"shares": [1, 1]}, GraphError, "add up to 4 views"),
        ({"reduction": "max"}, GraphError, "('mean', 'sum'), got 'max'"),
        ({"optimizer": None}, GraphError, "needs an optimizer"),
        ({"optimizer": Adam}, GraphError, "set_optimizer"),
        ({"options": "fast"}, GraphError, "dressi.Options"),
        ({"memory_limit": 0}, GraphError, "memory_limit"),
        ({"make": lambda share: None}, GraphError, "make_loss must return the loss"),
        ({"make": lambda share: (mean_loss(share)[0], 3)}, GraphError, "dict from leaves"),
        ({"make": lambda share: Variable(dressi.INT)}, GraphError, "must be FLOAT or VECn"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, dict) else "",
)
def test_bad_arguments_are_refused(changes: dict[str, Any], kind: type, says: str) -> None:
    with pytest.raises(kind) as caught:
        parallel(**changes)
    assert says in str(caught.value)


@pytest.mark.gpu
def test_graphs_that_differ_between_devices_are_refused() -> None:
    def more_leaves(share: Share) -> Variable:
        loss, _ = mean_loss(share)
        return loss + Variable(FLOAT) if share.index == 1 else loss

    def other_size(share: Share) -> Variable:
        x = Variable(FLOAT, (4 + share.index, 4), requires_grad=True, name="x")
        return F.mean(x * x)

    with pytest.raises(GraphError, match="2 leaves for device 0, 3 for device 1"):
        parallel(more_leaves)
    with pytest.raises(GraphError, match=r"x FLOAT@4x4, x FLOAT@5x4 should be one leaf"):
        parallel(other_size)


@pytest.mark.gpu
def test_a_loss_without_parameters_and_data_that_is_missing_leave_all_open() -> None:
    x = Variable(FLOAT, SIZE, name="x")
    with parallel(lambda share: F.mean(x * x)) as dp:
        with pytest.raises(GraphError, match="does not depend on any parameter"):
            dp.exec_step()
        x.requires_grad = True
        with pytest.raises(GraphError, match=r"x FLOAT@5x4 .* has no data"):
            dp.exec_step()
        dp.send_img(x, np.ones(SIZE[::-1]))
        dp.exec_step()
        assert abs(dp.recv_img(x) - (1 - 0.1 * 2 / 20)).max() < 1e-6


@pytest.mark.gpu
def test_calls_that_make_no_sense_say_what_would() -> None:
    targets: dict[int, Variable] = {}

    def make(share: Share) -> Made:
        loss, data = mean_loss(share)
        targets[share.index] = next(v for v in data if not v.requires_grad)
        return loss, data

    with parallel(make, views=5) as dp:
        (x,) = dp.parameters
        with pytest.raises(GraphError, match="send_views takes those of all devices"):
            dp.send_img(targets[0], np.zeros((3, 4, 5, 3)))
        with pytest.raises(GraphError, match="one layer for each view"):
            dp.send_views(x, np.zeros((5, 4, 5, 3)))
        with pytest.raises(GraphError, match="needs 5 views"):
            dp.send_views(targets[1], np.zeros((3, 4, 5, 3)))
        with pytest.raises(GraphError, match=r"engines\[k\].recv_img"):
            dp.recv_img(targets[0])
        with pytest.raises(GraphError, match="holds views"):
            dp.recv_grad(targets[0])
        with pytest.raises(GraphError, match="needs a Variable"):
            dp.send_img("x", 1.0)  # type: ignore[arg-type]
        with pytest.raises(GraphError, match="no step was done"):
            dp.recv_loss()
        with pytest.raises(GraphError, match="steps them together"):
            dp.engines[0].exec_step()
        for n in (0, -1, 1.5):
            with pytest.raises(GraphError, match="at least 1"):
                dp.exec_steps(n)  # type: ignore[arg-type]
        dp.exec_steps(2)


# -- devices that fail


def closed_for_good(dp: DataParallel, why: str) -> None:
    for engine in dp.engines:
        assert not any(engine.device.live_handles().values())
    for call in (dp.exec_step, dp.recv_loss, dp.drift, lambda: dp.parameters):
        with pytest.raises(DeviceError, match="is closed") as caught:
            call()
        assert why in str(caught.value)
    dp.close()


@pytest.mark.gpu
@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("half", ["gradients", "update"])
def test_a_device_that_is_lost_closes_all(lost: int, half: str) -> None:
    dp = parallel()
    dp.exec_steps(2)
    engine = dp.engines[lost]
    context = engine.device.context

    def lose(info: Any, what: str) -> None:
        if half in what:
            context.check(-4, "vkQueueSubmit", what)  # VK_ERROR_DEVICE_LOST
        real(info, what)

    real, context.start = context.start, lose  # type: ignore[method-assign]
    with pytest.raises(DeviceLostError) as caught:
        dp.exec_steps(3)
    name = engine.device_info.name
    text = str(caught.value)
    assert text.startswith(f"device {lost} of 2 ({name}): vkQueueSubmit")
    assert "VK_ERROR_DEVICE_LOST" in text
    closed_for_good(dp, "VK_ERROR_DEVICE_LOST")


@pytest.mark.gpu
def test_both_devices_lost_names_the_first() -> None:
    dp = parallel()
    dp.exec_step()
    for engine in dp.engines:
        check = engine.device.context.check
        engine.device.context.start = (  # type: ignore[method-assign]
            lambda info, what, check=check: check(-4, "vkQueueSubmit", what)
        )
    with pytest.raises(DeviceLostError, match="device 0 of 2"):
        dp.exec_step()
    closed_for_good(dp, "device 0 of 2")


@pytest.mark.gpu
def test_memory_that_runs_out_while_stepping_keeps_its_numbers() -> None:
    dp = parallel()
    dp.exec_step()

    def fail(**parts: Any) -> None:
        raise OutOfMemoryError("no room", 100, 7)

    dp.replicas[1].start = fail  # type: ignore[method-assign]
    with pytest.raises(OutOfMemoryError, match="device 1 of 2") as caught:
        dp.exec_step()
    assert (caught.value.needed, caught.value.available) == (100, 7)
    closed_for_good(dp, "no room")


@pytest.mark.gpu
def test_an_error_that_is_not_ours_closes_all_and_comes_out_as_it_is() -> None:
    dp = parallel()
    dp.exec_step()

    def fail() -> None:
        raise ZeroDivisionError("ours to mend")

    dp.replicas[1].compute_gradients = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(ZeroDivisionError, match="ours to mend"):
        dp.exec_step()
    closed_for_good(dp, "ours to mend")


@pytest.mark.gpu
def test_a_problem_that_does_not_fit_says_so_before_a_step() -> None:
    with parallel(memory_limit=1 << 12) as dp, pytest.raises(OutOfMemoryError):
        dp.exec_step()


@pytest.mark.gpu
def test_devices_opened_before_one_fails_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    from dressi.parallel import data_parallel

    opened: list[Any] = []

    class Watched(data_parallel.Replica):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            opened.append(self)

    monkeypatch.setattr(data_parallel, "Replica", Watched)
    with pytest.raises(DeviceError, match="no such device"):
        parallel(devices=[equal_devices()[0].index, "no such device"])
    assert len(opened) == 1
    assert not any(opened[0].engine.device.live_handles().values())
    opened.clear()
    with pytest.raises(GraphError, match="must return"):
        parallel(lambda share: None)
    assert len(opened) == 2
    assert not any(n for e in opened for n in e.engine.device.live_handles().values())


@pytest.mark.gpu
def test_closing_is_said_and_may_be_done_twice() -> None:
    with parallel() as dp:
        dp.exec_step()
    closed_for_good(dp, "close() was called")


@pytest.mark.gpu
def test_a_forked_child_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with parallel() as dp:
        dp.exec_step()
        with monkeypatch.context() as patch:
            patch.setattr(dp, "_pid", dp._pid + 1)
            with pytest.raises(DeviceError, match="forked child"):
                dp.exec_step()


@pytest.mark.gpu
def test_without_a_list_all_equal_devices_are_taken_as_many_as_there_are_views() -> None:
    there = [d.index for d in equal_devices()]
    with parallel(devices=None, views=1) as dp:
        assert [d.index for d in dp.devices] == there[:1]
    with parallel(devices=None, views=len(there) + 3) as dp:
        assert [d.index for d in dp.devices] == there
