"""What is held, what may be held: memory(), memory_limit, and images that are shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dressi import SGD, Adam, DressiAD, F, GraphError, Options, OutOfMemoryError, Variable
from dressi.ad.vtype import FLOAT, INT, VEC3, VEC4
from dressi.packing import Plan

pytestmark = pytest.mark.gpu
SIDE = 128
MB = 1 << 20


def many_passes(n: int = 8, size: tuple[int, int] = (SIDE, SIDE)) -> tuple[Variable, Variable]:
    """x -> n passes that fetch neighbours -> y."""
    x = Variable(VEC4, size, requires_grad=True, name="x")
    return x, fetched(x, n)


def fetched(y: Variable, n: int) -> Variable:
    for k in range(n):
        moved = F.pixel_coord(y.size) * (1.0 / y.size[0]) + 0.01 * (k + 1)
        y = F.sin(F.texture(y, moved)) * 1.1
    return y


def start(ad: DressiAD, loss: Variable, x: Variable, optimizer: Any = None) -> None:
    ad.send_img(x, np.random.default_rng(0).uniform(0, 1, (x.size[1], x.size[0], x.vtype.n)))
    ad.set_loss_var(loss)
    ad.set_optimizer(optimizer)


# -- what is reported ------------------------------------------------------------------------------


def told_by_plans(ad: DressiAD, more: tuple[Plan, ...] = ()) -> tuple[int, int]:
    """Bytes of images and buffers: own ones of each plan, persistent ones once."""
    images: dict[object, int] = {}
    buffers: dict[object, int] = {}
    for n, plan in enumerate((*ad.plans.values(), *more)):
        for i in plan.images:
            images[(n, i.index) if i.key is None else i.key] = i.n_bytes
        for b in plan.buffers:
            buffers[(n, b.index) if b.key is None else b.key] = 4 * b.n_words
    return sum(images.values()), sum(buffers.values())


def summed() -> tuple[Variable, Variable, dict[Variable, np.ndarray]]:
    """A clean sum by scattering beside a parameter: persistent buffers once the cache acts."""
    rng = np.random.default_rng(3)
    x = Variable(VEC3, (32, 32), requires_grad=True, name="x")
    values, index = Variable(VEC3, (32, 32), name="values"), Variable(INT, (32, 32), name="index")
    table = F.scatter_add(F.sin(F.sin(values)), F.dynamic(index), (50, 1))
    d = x - F.lookup(table, F.dynamic(index))
    data = {
        x: rng.uniform(0, 1, (32, 32, 3)),
        values: rng.uniform(0, 1, (32, 32, 3)),
        index: rng.integers(0, 50, (32, 32, 1)),
    }
    return F.mean(F.dot(d, d)), x, data


@pytest.mark.parametrize("options", [Options(), Options.baseline()])
def test_images_and_buffers_are_those_of_the_plans(options: Options) -> None:
    loss, x, data = summed()
    with DressiAD(options=options) as ad:
        for v, a in data.items():
            ad.send_img(v, a)
        ad.set_loss_var(loss)
        ad.set_optimizer(Adam(0.1))
        for n in (1, 5, 10):  # whole, fast, full
            ad.exec_steps(n)
            use = ad.memory()
            assert (use.images, use.buffers) == told_by_plans(ad), n
            assert use.depth == 0 and use.limit is None
            assert use.held >= use.images + use.buffers
        picture = x * 2.0 + 1.0  # while it lives, its evaluation does
        ad.recv_img(picture)
        more = ad.plan_of([picture])
        assert (ad.memory().images, ad.memory().buffers) == told_by_plans(ad, (more,))


def test_depth_images_of_rasterizations_count() -> None:
    """One of the size of the stage, 4 bytes a pixel, shared by all stages that need one."""
    from dressi.testing.scenes import Scene, cube

    scene = Scene("cube", *cube(0.7), (32, 24), K=2)
    with DressiAD(options=Options(lowering="graphics")) as ad:
        for v, a in scene.feeds.items():
            ad.send_img(v, a)
        ad.set_loss_var(scene.loss)
        ad.set_optimizer(Adam(0.1))
        ad.exec_step()
        drawn = [t for t in ad.plan.stages if any(s.depth for s in t.substages)]
        assert drawn and {(t.width, t.height) for t in drawn} == {(32, 24)}
        most = max(sum(s.depth for s in t.substages) for t in drawn)
        assert ad.memory().depth == 4 * 32 * 24 * most
        ad.set_loss_var(F.mean(F.dot(scene.pos, scene.pos)))
        ad.exec_step()
        assert ad.memory().depth == 0


# -- limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, -1, "1GB", True, 1.5, [5]])
def test_bad_limits_are_refused(limit: Any) -> None:
    with pytest.raises(GraphError, match="memory_limit"):
        DressiAD(memory_limit=limit)


def test_numpy_integers_are_limits() -> None:
    with DressiAD(memory_limit=np.int64(5 * MB)) as ad:  # type: ignore[arg-type]
        assert ad.memory().limit == 5 * MB


def check_refused(ad: DressiAD, limit: int) -> OutOfMemoryError:
    """A step is refused, saying what is needed and what there is; nothing was made."""
    held, handles = ad.device.held_bytes(), ad.device.live_handles()
    with pytest.raises(OutOfMemoryError, match="memory_limit") as caught:
        ad.exec_step()
    error = caught.value
    assert error.needed > error.available >= 0
    for number in (error.needed, error.available, limit):
        assert str(number) in str(error), str(error)
    assert ad.device.live_handles() == handles, "something was left behind"
    assert ad.device.held_bytes() == held
    return error


def check_small_graph_works(ad: DressiAD) -> None:
    x = Variable(FLOAT, (8, 8), requires_grad=True)
    ad.send_img(x, np.full((8, 8), 4.0))
    ad.set_loss_var(x * x)
    ad.set_optimizer(SGD(0.25))
    ad.exec_steps(2)
    assert (ad.recv_img(x) == 1).all()


def test_a_step_that_is_too_large_is_refused_before_anything_is_made() -> None:
    x, y = many_passes()
    limit = 5 * x.size[0] * x.size[1] * 16
    with DressiAD(memory_limit=limit, options=Options(reuse_images=False)) as ad:
        start(ad, F.mean(F.dot(y, y)), x)
        for _ in range(3):
            assert check_refused(ad, limit).needed > limit / 2
        assert (ad.recv_img(x) != 0).any()
        check_small_graph_works(ad)


@pytest.mark.parametrize("own_data", [False, True])
@pytest.mark.parametrize("room", [2.5, 3.5, 4.5, 5.5])
def test_state_and_data_of_leaves_are_part_of_what_is_needed(own_data: bool, room: float) -> None:
    """Room for x, for what it is sent through, and for some of Adam's moments (and of the data that
    another leaf brings along), but not for all, in images: refused before anything is made, however
    often it is tried."""
    size = (SIDE, SIDE)
    n_bytes = size[0] * size[1] * 16
    x = Variable(VEC4, size, requires_grad=True, name="x")
    other = F.leaf(np.ones((*size, 4), np.float32), VEC4) if own_data else x
    y = fetched(F.texture(x * other, F.pixel_coord(size) * 0.001), 3)
    limit = int(room * n_bytes)
    with DressiAD(memory_limit=limit, options=Options(reuse_images=False)) as ad:
        start(ad, F.mean(F.dot(y, y)), x, Adam(0.1))
        for _ in range(3):
            check_refused(ad, limit)
        check_small_graph_works(ad)
        assert ad.memory().images < 2 * n_bytes, "moments of the refused step are still there"


def test_what_is_too_large_to_send_is_refused_and_changes_nothing() -> None:
    small, large = Variable(VEC4, (64, 64)), Variable(VEC4, (512, 512))
    with DressiAD(memory_limit=MB) as ad:
        ad.send_img(small, np.ones((64, 64, 4)))
        held, handles = ad.device.held_bytes(), ad.device.live_handles()
        with pytest.raises(OutOfMemoryError, match="memory_limit") as caught:
            ad.send_img(large, np.ones((512, 512, 4)))
        assert caught.value.needed > caught.value.available
        assert (ad.device.held_bytes(), ad.device.live_handles()) == (held, handles)
        assert (ad.recv_img(small) == 1).all()
        with pytest.raises(GraphError, match="no data"):
            ad.recv_img(large)


def test_evaluation_that_is_too_large_is_refused_and_the_fit_goes_on() -> None:
    x, y = many_passes(3, (64, 64))
    with DressiAD() as free:
        if free.device_info.type != "cpu":
            pytest.skip("images of a GPU take more memory than their pixels")
        start(free, F.mean(F.dot(y, y)), x, Adam(0.1))
        free.exec_steps(20)
        want, limit = free.recv_img(x), free.memory().used + 3 * MB
    with DressiAD(memory_limit=limit) as ad:
        start(ad, F.mean(F.dot(y, y)), x, Adam(0.1))
        ad.exec_steps(10)
        handles = ad.device.live_handles()
        with pytest.raises(OutOfMemoryError):
            ad.recv_img(F.sin(F.expand(F.mean(x), (1024, 1024))))
        assert ad.device.live_handles() == handles
        ad.exec_steps(10)
        assert np.allclose(ad.recv_img(x), want, rtol=1e-5)
        assert ad.memory().held <= limit


def test_limit_is_kept_through_a_fit_with_rebuilds() -> None:
    """From hardly enough to plenty: held is never above it, and values do not depend on it."""
    x, y = many_passes(2, (64, 64))
    u, clean = Variable(FLOAT, name="u"), Variable(VEC4, (64, 64), name="clean")
    d = y * u - fetched(clean, 4)
    loss = F.mean(F.dot(d, d))

    def fit(limit: int | None) -> tuple[np.ndarray, int, int]:
        with DressiAD(memory_limit=limit) as ad:
            ad.send_img(clean, np.ones((64, 64, 4)))
            ad.send_img(u, 1.0)
            start(ad, loss, x, Adam(0.1))
            most = 0
            for k in range(14):
                ad.send_img(u, 1.0 + 0.1 * k)
                ad.exec_step()
                most = max(most, ad.memory().held)
                assert limit is None or ad.memory().held <= limit == ad.memory().limit
            return ad.recv_img(x), most, len(ad.rebuilds)

    want, _, built = fit(None)
    assert built > 1
    with DressiAD() as ad:
        ad.send_img(clean, np.ones((64, 64, 4)))
        ad.send_img(u, 1.0)
        start(ad, loss, x, Adam(0.1))
        ad.exec_step()
        needed = ad.memory().used
    rebuilt = []
    for limit in (needed + MB, needed + 2 * MB, needed + 8 * MB):
        got, most, built = fit(limit)
        assert np.allclose(got, want, rtol=1e-4, atol=1e-6) and most <= limit
        rebuilt.append(built)
    assert rebuilt[-1] > 1


# -- shared images ---------------------------------------------------------------------------------


def test_reuse_of_images_takes_less_memory_for_the_same_result() -> None:
    """A chain of passes needs two images in turn; all switches off takes the most."""
    x, y = many_passes(10, (64, 64))
    loss = F.mean(F.dot(y, y))
    images, values = {}, {}
    ways = {
        "all": Options(),
        "no reuse": Options(reuse_images=False),
        "baseline": Options.baseline(),
    }
    for name, options in ways.items():
        with DressiAD(options=options) as ad:
            start(ad, loss, x)
            ad.exec_step()
            images[name], values[name] = ad.memory().images, ad.recv_img(loss)
    one = 64 * 64 * 16
    assert images["all"] <= 4.5 * one
    assert images["no reuse"] >= 10 * one
    assert images["baseline"] > images["no reuse"]
    for name in ways:
        assert np.allclose(values[name], values["all"], rtol=1e-6), name


def test_zero_copy_saves_an_image_of_each_leaf() -> None:
    x = Variable(VEC4, (64, 64), requires_grad=True)
    d = x - 1.0
    images = {}
    for on in (False, True):
        with DressiAD(options=Options(zero_copy=on, reuse_images=False)) as ad:
            start(ad, F.dot(d, d), x, Adam(0.1))
            ad.exec_steps(2)
            images[on] = ad.memory().images
            assert np.isfinite(ad.recv_img(x)).all()
    assert images[False] - images[True] >= 3 * 64 * 64 * 16  # x and its moments


# -- measuring -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lowering", ["graphics", "compute"])
def test_times_are_measured_in_the_memory_of_the_step(lowering: Any) -> None:
    """There is no room for a second copy of its images, and all that can be read stays."""
    x, y = many_passes()
    loss = F.mean(F.dot(y, y))
    options = Options(lowering=lowering, cache=False, reuse_images=False)
    with DressiAD(options=options, memory_limit=8 * MB) as ad:
        start(ad, loss, x, Adam(0.1))
        ad.exec_steps(3)
        before, found = ad.memory(), [ad.recv_img(v) for v in (loss, x)]
        assert 2 * before.images > 8 * MB, "a second copy would fit"
        assert len(ad.stage_times_ms(2)) == len(ad.plan.stages) + 1
        assert ad.memory() == before
        for v, a in zip((loss, x), found, strict=True):
            np.testing.assert_array_equal(ad.recv_img(v), a)
