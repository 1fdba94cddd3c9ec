"""DressiAD: sending, receiving, stepping, rebuilding, closing. One engine for the module where it
may be shared."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from dressi import (
    SGD,
    Adam,
    DeviceError,
    DressiAD,
    F,
    GraphError,
    Momentum,
    Options,
    Variable,
    evaluate,
    plan_text,
)
from dressi.ad import exponential_decay, step_counter
from dressi.ad.graph import leaves
from dressi.ad.vtype import FLOAT, INT, IVEC3, MAT3, MAT4, VEC2, VEC3, VType

pytestmark = pytest.mark.gpu
RNG = np.random.default_rng(5)


def close(a: np.ndarray, b: Any, rtol: float = 1e-5) -> bool:
    return bool(np.allclose(a, b, rtol=rtol, atol=1e-6))


# -- arrays ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vtype", "size", "layers", "shape"),
    [
        (VEC3, (5, 4), 1, (4, 5, 3)),
        (FLOAT, (5, 4), 1, (4, 5, 1)),
        (VEC2, (5, 4), 3, (3, 4, 5, 2)),
        (VEC3, (13, 1), 1, (13, 3)),
        (VEC3, (13, 1), 2, (2, 13, 3)),
        (INT, (13, 1), 1, (13, 1)),
        (IVEC3, (5, 4), 2, (2, 4, 5, 3)),
        (MAT3, (5, 4), 2, (2, 4, 5, 3, 3)),
        (MAT4, (1, 1), 1, (1, 1, 4, 4)),
        (MAT4, (1, 1), 6, (6, 1, 1, 4, 4)),
        (FLOAT, (1, 1), 1, (1, 1, 1)),
        (VEC3, (1, 9), 1, (9, 1, 3)),
    ],
)
def test_what_is_sent_comes_back_before_the_first_step(
    ad: DressiAD, vtype: VType, size: Any, layers: int, shape: Any
) -> None:
    """Leaf and computed value; float32 or int32; the documented shape."""
    v = Variable(vtype, size, layers)
    data = RNG.integers(-99, 99, shape) if vtype.is_int else RNG.normal(size=shape)
    ad.send_img(v, data)
    got = ad.recv_img(v)
    assert got.dtype == (np.int32 if vtype.is_int else np.float32)
    assert got.shape == shape and (got == data.astype(got.dtype)).all()
    again = ad.recv_img(v + v)
    assert again.shape == shape and close(again, 2 * data)


def test_received_arrays_belong_to_the_user(ad: DressiAD) -> None:
    """Writing into one changes neither the engine's data nor a later array."""
    v = Variable(FLOAT, (3, 2))
    ad.send_img(v, np.ones((2, 3)))
    first = ad.recv_img(v)
    first[:] = 7
    assert (ad.recv_img(v) == 1).all() and (ad.recv_img(v + 0.0) == 1).all()


@pytest.mark.parametrize("size", [(3, 2), (1, 1)])
def test_sent_arrays_are_copied(ad: DressiAD, size: tuple[int, int]) -> None:
    v = Variable(FLOAT, size)
    data = np.ones((size[1], size[0]))
    ad.send_img(v, data)
    data[:] = 7
    assert (ad.recv_img(v) == 1).all() and (ad.recv_img(v * 2.0) == 2).all()


def test_sending_again_changes_what_is_computed(ad: DressiAD) -> None:
    v, u = Variable(FLOAT, (3, 2)), Variable(FLOAT)
    y = v * u
    for k in (1.0, 2.0, 3.0):
        ad.send_img(v, np.full((2, 3), k))
        ad.send_img(u, 10.0 * k)
        assert (ad.recv_img(y) == 10 * k * k).all()


def test_data_of_a_leaf_is_used_until_something_is_sent(ad: DressiAD) -> None:
    v = F.leaf(np.arange(6.0).reshape(2, 3, 1), FLOAT)
    assert (ad.recv_img(v * 1.5)[..., 0] == 1.5 * np.arange(6).reshape(2, 3)).all()
    ad.send_img(v, np.zeros((2, 3)))
    assert (ad.recv_img(v * 1.5) == 0).all()


def test_faces_sent_later_change_the_gather_of_the_gradient(ad: DressiAD) -> None:
    """The CSR inverse of a static index follows the index."""
    table, index = Variable(FLOAT, (4, 1), requires_grad=True), Variable(INT, (3, 1))
    ad.send_img(table, [1, 2, 3, 4])
    ad.send_img(index, [0, 0, 1])
    ad.set_loss_var(F.lookup(table, index) * 1.0)
    assert ad.recv_grad(table).ravel().tolist() == [2, 1, 0, 0]
    ad.send_img(index, [3, 2, 3])
    assert ad.recv_grad(table).ravel().tolist() == [0, 0, 1, 2]


# -- steps -----------------------------------------------------------------------------------------


def _fit(size: tuple[int, int] = (5, 4), layers: int = 1, vtype: VType = VEC3) -> tuple:
    """loss = |x - target|^2 as an image; x and target random."""
    x = Variable(vtype, size, layers, requires_grad=True, name="x")
    target = Variable(vtype, size, layers, name="target")
    shape = (layers, size[1], size[0], *vtype.tail)
    data = {v: RNG.normal(size=shape).astype(np.float32) for v in (x, target)}
    d = x - target
    return x, target, F.dot(d, d), data


OPTIMIZERS = {
    "SGD": (lambda: SGD(0.1), lambda g, s: (0.1 * g, s)),
    "Momentum": (
        lambda: Momentum(0.05, 0.9),
        lambda g, s: (lambda v: (0.05 * v, v))(0.9 * (0 if s is None else s) + g),
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(("size", "layers"), [((5, 4), 1), ((5, 4), 3), ((13, 1), 1), ((1, 1), 1)])
def test_steps_follow_the_optimizer(name: str, size: tuple[int, int], layers: int) -> None:
    make, rule = OPTIMIZERS[name]
    x, _, loss, data = _fit(size, layers)
    with DressiAD() as ad:
        for v, a in data.items():
            ad.send_img(v, a)
        ad.set_loss_var(loss)
        ad.set_optimizer(make())
        want, state = data[x].astype(np.float64), None
        target = next(a for v, a in data.items() if v is not x)
        for _ in range(5):
            ad.exec_step()
            delta, state = rule(2 * (want - target), state)
            want = want - delta
            assert close(ad.recv_img(x).reshape(want.shape), want, 1e-4)
        assert ad.n_rebuilds == 1


def test_adam_keeps_its_moments_and_counter_on_the_device() -> None:
    """20 steps in bursts of 1, 4, 15 against the algorithm."""
    x, target, loss, data = _fit((6, 3), 2)
    with DressiAD() as ad:
        for v, a in data.items():
            ad.send_img(v, a)
        ad.set_loss_var(loss)
        ad.set_optimizer(Adam(0.05))
        value = data[x].astype(np.float64)
        m, v2 = np.zeros_like(value), np.zeros_like(value)
        done = 0
        for burst in (1, 4, 15):
            ad.exec_steps(burst)
            for t in range(done + 1, done + burst + 1):
                g = 2 * (value - data[target])
                m, v2 = 0.9 * m + 0.1 * g, 0.999 * v2 + 0.001 * g * g
                value = value - 0.05 * (m / (1 - 0.9**t)) / (np.sqrt(v2 / (1 - 0.999**t)) + 1e-8)
            done += burst
            assert close(ad.recv_img(x), value, 1e-3)
        assert ad.n_rebuilds == 1


def test_exec_steps_n_is_n_times_exec_step_to_the_bit() -> None:
    results = []
    x, _, loss, data = _fit((7, 5), 2)
    for bursts in ((1,) * 12, (12,), (5, 7)):
        with DressiAD() as ad:
            for v, a in data.items():
                ad.send_img(v, a)
            ad.set_loss_var(loss)
            ad.set_optimizer(Adam(0.05))
            for n in bursts:
                ad.exec_steps(n)
            results.append((ad.recv_img(x), ad.recv_img(loss)))
    for other in results[1:]:
        assert (other[0] == results[0][0]).all() and (other[1] == results[0][1]).all()


def test_loss_image_of_the_last_step_is_that_before_its_update() -> None:
    x = Variable(FLOAT, (3, 2), requires_grad=True)
    loss = x * x
    with DressiAD() as ad:
        ad.send_img(x, np.full((2, 3), 4.0))
        ad.set_loss_var(loss)
        ad.set_optimizer(SGD(0.25))
        ad.exec_step()
        assert (ad.recv_img(loss) == 16).all() and (ad.recv_img(x) == 2).all()
        ad.exec_step()
        assert (ad.recv_img(loss) == 4).all() and (ad.recv_img(x) == 1).all()
        ad.send_img(x, np.full((2, 3), 3.0))
        assert (ad.recv_img(loss) == 9).all()


def test_without_an_optimizer_a_step_is_forward_only() -> None:
    x = Variable(FLOAT, (3, 2), requires_grad=True)
    with DressiAD() as ad:
        ad.send_img(x, np.full((2, 3), 4.0))
        ad.set_loss_var(x * x)
        ad.exec_step()
        assert (ad.recv_img(x) == 4).all()


def test_target_is_own_render_loss_0_and_parameters_stay_to_the_bit() -> None:
    """R4 of docs/checking.md on an image: 100 Adam steps."""
    x, target, loss, data = _fit((5, 4))
    with DressiAD() as ad:
        ad.send_img(x, data[x])
        ad.send_img(target, data[x])
        ad.set_loss_var(F.mean(loss))
        ad.set_optimizer(Adam(0.1))
        ad.exec_steps(100)
        assert ad.recv_img(F.mean(loss)).item() == 0 and (ad.recv_img(x) == data[x][0]).all()


@pytest.mark.parametrize("size", [(3, 2), (1, 1), (9, 1)])
def test_values_received_after_steps_are_of_the_current_parameters(size: tuple[int, int]) -> None:
    """Also where the parameter is 1x1, and a uniform in plans that do not write it."""
    x = Variable(FLOAT, size, requires_grad=True)
    double = x * 2.0
    with DressiAD() as ad:
        ad.send_img(x, np.full((size[1], size[0]), 8.0))
        ad.set_loss_var(x * x)
        ad.set_optimizer(SGD(0.25))
        ad.exec_step()
        assert (ad.recv_img(x) == 4).all()
        assert (ad.recv_img(double) == 8).all()
        assert (ad.recv_grad(x) == 8).all()
        ad.exec_step()
        assert (ad.recv_img(double) == 4).all() and (ad.recv_grad(x) == 4).all()


@pytest.mark.parametrize("size", [(3, 2), (1, 1)])
def test_parameters_survive_a_new_loss_and_a_new_optimizer(size: tuple[int, int]) -> None:
    x = Variable(FLOAT, size, requires_grad=True)
    with DressiAD() as ad:
        ad.send_img(x, np.full((size[1], size[0]), 8.0))
        ad.set_loss_var(x * x)
        ad.set_optimizer(SGD(0.25))
        ad.exec_step()  # 4
        ad.set_optimizer(SGD(0.125))
        ad.exec_step()  # 4 - 8 / 8 = 3
        assert (ad.recv_img(x) == 3).all()
        loss = x * 8.0
        ad.set_loss_var(loss)
        ad.exec_step()  # 3 - 1
        assert (ad.recv_img(x) == 2).all()
        ad.set_optimizer(None)
        ad.exec_step()
        assert (ad.recv_img(loss) == 16).all()


def test_sending_a_parameter_between_steps_is_where_the_next_one_starts() -> None:
    x, u = Variable(FLOAT, (3, 2), requires_grad=True), Variable(FLOAT, requires_grad=True)
    with DressiAD() as ad:
        ad.send_img(x, np.full((2, 3), 8.0))
        ad.send_img(u, 8.0)
        ad.set_loss_var(F.mean(x * x) * 6.0 + u * u)
        ad.set_optimizer(SGD(0.25))
        ad.exec_step()
        ad.send_img(x, np.full((2, 3), 100.0))
        ad.send_img(u, 100.0)
        ad.exec_step()
        assert close(ad.recv_img(x), 50) and close(ad.recv_img(u), 50)
        assert ad.n_rebuilds == 1


def test_learning_rate_and_uniforms_change_without_a_rebuild() -> None:
    x, lr, k = Variable(FLOAT, (3, 2), requires_grad=True), Variable(FLOAT), Variable(VEC3)
    with DressiAD() as ad:
        ad.send_img(x, np.zeros((2, 3)))
        ad.set_loss_var(x * F.dot(k, (1.0, 1.0, 1.0)))
        ad.set_optimizer(SGD(lr))
        value = 0.0
        for rate, slope in ((0.5, 1.0), (0.25, 2.0), (0.0, 5.0)):
            ad.send_img(lr, rate)
            ad.send_img(k, [slope, 0, 0])
            ad.exec_step()
            value -= rate * slope
            assert (ad.recv_img(x) == value).all()
        assert ad.n_rebuilds == 1


def test_toggling_requires_grad_rebuilds_and_freezes() -> None:
    a, b = (Variable(FLOAT, (3, 2), requires_grad=True) for _ in range(2))
    with DressiAD() as ad:
        for v in (a, b):
            ad.send_img(v, np.full((2, 3), 8.0))
        ad.set_loss_var(a * a + b * b)
        ad.set_optimizer(SGD(0.25))
        ad.exec_step()
        a.requires_grad = False
        ad.exec_step()
        assert (ad.recv_img(a) == 4).all() and (ad.recv_img(b) == 2).all()
        assert ad.n_rebuilds == 2


def test_step_counter_and_decay_run_on_the_device() -> None:
    """x moves by lr(t) each step: 1, 0.1, 0.01, 0.01."""
    x = Variable(FLOAT, requires_grad=True)
    lr = exponential_decay(1.0, 0.01, 2)
    with DressiAD() as ad:
        ad.send_img(x, 0.0)
        ad.set_loss_var(x * -1.0)
        ad.set_optimizer(SGD(lr))
        total = 0.0
        for k in range(4):
            ad.exec_step()
            total += (1.0, 0.1, 0.01, 0.01)[k]
            assert close(ad.recv_img(x), total, 1e-4)


def test_state_can_be_received_after_steps() -> None:
    x = Variable(FLOAT, requires_grad=True)
    counter = step_counter()
    lr = F.to_float(counter) * 2.0
    with DressiAD() as ad:
        ad.send_img(x, 0.0)
        ad.set_loss_var(x * lr)
        ad.set_optimizer(SGD(1.0))
        assert ad.recv_img(counter).item() == 0
        ad.exec_steps(3)
        assert ad.recv_img(counter).item() == 3
        assert ad.recv_img(lr).item() == 6


def test_an_optimizer_is_any_callable_of_F() -> None:
    """Sign descent."""
    x = Variable(FLOAT, (3, 2), requires_grad=True)
    with DressiAD() as ad:
        ad.send_img(x, np.array([[3.0, -3.0, 1.0], [2.0, -1.0, 0.0]]))
        ad.set_loss_var(x * x)
        ad.set_optimizer(lambda xs, gs: [v - 0.5 * F.sign(g) for v, g in zip(xs, gs, strict=True)])
        ad.exec_step()
        assert ad.recv_img(x)[..., 0].tolist() == [[2.5, -2.5, 0.5], [1.5, -0.5, 0.0]]


@pytest.mark.parametrize("size", [(1, 1), (4, 4)])
def test_a_matrix_parameter_can_be_optimized(size: tuple[int, int]) -> None:
    m = Variable(MAT3, size, requires_grad=True, name="m")
    data = RNG.normal(size=(1, size[1], size[0], 3, 3)).astype(np.float32)
    with DressiAD() as ad:
        ad.send_img(m, data)
        ad.set_loss_var(F.dot(m @ F.constant((1.0, 2.0, 3.0)), (1.0, 10.0, 100.0)))
        ad.set_optimizer(lambda xs, gs: [xs[0] - F.scale(gs[0], 0.5)])
        ad.exec_steps(2)
        want = data[0] - np.outer([1, 10, 100], [1, 2, 3])
        assert close(ad.recv_img(m).reshape(want.shape), want)


def test_parameter_also_used_by_another_output_is_read_before_it_is_written() -> None:
    """Swap: two parameters take each other's value."""
    a, b = (Variable(FLOAT, (3, 2), requires_grad=True) for _ in range(2))
    with DressiAD() as ad:
        ad.send_img(a, np.full((2, 3), 1.0))
        ad.send_img(b, np.full((2, 3), 2.0))
        ad.set_loss_var(a + b)
        ad.set_optimizer(lambda xs, gs: [xs[1], xs[0]])
        ad.exec_step()
        assert (ad.recv_img(a) == 2).all() and (ad.recv_img(b) == 1).all()
        ad.exec_steps(2)
        assert (ad.recv_img(a) == 2).all() and (ad.recv_img(b) == 1).all()


def test_loss_may_be_a_leaf_a_constant_product_or_a_stack(ad: DressiAD) -> None:
    x = Variable(VEC2, (3, 2), 2, requires_grad=True)
    data = RNG.normal(size=(2, 2, 3, 2))
    ad.send_img(x, data)
    ad.set_optimizer(None)
    for loss, want, g in (
        (x, data, 1.0),
        (x * 3.0, 3 * data, 3.0),
        (F.sum_layers(x), data.sum(0), 1.0),
    ):
        ad.set_loss_var(loss)
        ad.exec_step()
        assert close(ad.recv_img(loss), want)
        assert close(ad.recv_grad(x), np.full_like(data, g))


def test_gradient_of_a_leaf_without_requires_grad_can_be_received(ad: DressiAD) -> None:
    x = Variable(FLOAT, (3, 2))
    ad.send_img(x, np.full((2, 3), 3.0))
    ad.set_loss_var(x * x)
    assert (ad.recv_grad(x) == 6).all()


def test_text_of_graph_plan_and_shaders_is_there() -> None:
    x = Variable(FLOAT, (3, 2), requires_grad=True, name="x")
    with DressiAD() as ad:
        ad.send_img(x, np.zeros((2, 3)))
        ad.set_loss_var(F.sin(x))
        ad.set_optimizer(SGD())
        assert "= sin(x)" in ad.graph_text()
        assert "x R32F kept" in plan_text(ad.plan) and "#version 450" in ad.glsl_text()
        assert all(ms >= 0 for _, ms in ad.stage_times_ms(2))
        assert all(s >= 0 for s in ad.build_times().values())


def test_dump_writes_graph_plan_and_glsl(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRESSI_DUMP", str(tmp_path))
    x = Variable(FLOAT, (3, 2), name="x")
    with DressiAD() as ad:
        ad.send_img(x, np.zeros((2, 3)))
        ad.recv_img(F.sin(x))
    assert {p.suffixes[-1] for p in tmp_path.iterdir()} == {".txt", ".glsl"}
    assert any("sin" in p.read_text() for p in tmp_path.iterdir())


# -- life ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1])
def test_two_engines_side_by_side_share_a_leaf_and_close_in_either_order(first: int) -> None:
    """Each has its own data of the leaf."""
    x = Variable(FLOAT, (3, 2), requires_grad=True)
    loss = x * x
    engines = [DressiAD(), DressiAD()]
    try:
        for k, ad in enumerate(engines):
            ad.send_img(x, np.full((2, 3), 4.0 * (k + 1)))
            ad.set_loss_var(loss)
            ad.set_optimizer(SGD(0.25))
        for ad in engines:
            ad.exec_step()
        assert [float(ad.recv_img(x)[0, 0, 0]) for ad in engines] == [2, 4]
        engines[first].close()
        engines[1 - first].exec_step()
        assert (engines[1 - first].recv_img(x) == (1 if first == 1 else 2)).all()
    finally:
        for ad in engines:
            ad.close()


def test_closed_engine_raises_and_closing_twice_is_fine() -> None:
    x = Variable(FLOAT, (3, 2), requires_grad=True)
    ad = DressiAD()
    ad.send_img(x, np.zeros((2, 3)))
    ad.set_loss_var(x * x)
    ad.exec_step()
    ad.close()
    ad.close()
    calls = [
        lambda: ad.exec_step(),
        lambda: ad.exec_steps(2),
        lambda: ad.send_img(x, np.zeros((2, 3))),
        lambda: ad.recv_img(x),
        lambda: ad.recv_grad(x),
        lambda: ad.set_loss_var(x),
        lambda: ad.set_optimizer(None),
        lambda: ad.plan,
        lambda: ad.stage_times_ms(),
        lambda: ad.build_times(),
    ]
    for k, call in enumerate(calls):
        with pytest.raises(DeviceError, match="closed"):
            print(k, call())


def test_context_manager_closes_when_the_body_raises() -> None:
    with pytest.raises(ZeroDivisionError), DressiAD() as ad:
        raise ZeroDivisionError
    with pytest.raises(DeviceError, match="closed"):
        ad.exec_step()


def test_forgotten_engine_is_harmless() -> None:
    ad = DressiAD()
    x = Variable(FLOAT, (3, 2))
    ad.send_img(x, np.zeros((2, 3)))
    del ad
    gc.collect()
    with DressiAD() as other:
        other.send_img(x, np.ones((2, 3)))
        assert (other.recv_img(x * 2.0) == 2).all()


def test_unknown_device_names_what_there_is() -> None:
    with pytest.raises(DeviceError, match="no such device"):
        DressiAD(device="no such device")


def test_unknown_limit_raises_and_frees_the_device() -> None:
    with pytest.raises((TypeError, GraphError), match="input_attachments"):
        DressiAD(limits={"inputs": 3})


def test_options_reach_the_packer() -> None:
    x = Variable(FLOAT, (3, 2), name="x")
    with DressiAD(options=Options(pack_substages=False, pack_stages=False)) as ad:
        ad.send_img(x, np.zeros((2, 3)))
        ad.set_loss_var(F.sin(x) * 2.0 + 1.0)
        assert len(ad.plan.stages) == 3


def test_working_directory_environment_and_signals_are_left_alone(tmp_path: Any) -> None:
    import os
    import signal

    before = (os.getcwd(), dict(os.environ), signal.getsignal(signal.SIGINT))
    x = Variable(FLOAT, (3, 2))
    with DressiAD() as ad:
        ad.send_img(x, np.zeros((2, 3)))
        ad.recv_img(F.sin(x))
    assert (os.getcwd(), dict(os.environ), signal.getsignal(signal.SIGINT)) == before


def test_engine_works_in_a_thread() -> None:
    import threading

    got: list[Any] = []

    def work() -> None:
        x = Variable(FLOAT, (3, 2))
        with DressiAD() as ad:
            ad.send_img(x, np.ones((2, 3)))
            got.append(ad.recv_img(x * 3.0))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert len(got) == 2 and all((g == 3).all() for g in got)


def test_rebuilding_does_not_grow_what_the_device_holds() -> None:
    """20 new losses over the same leaves: images of old plans are freed."""
    table, index = Variable(VEC3, (50, 1), requires_grad=True), Variable(INT, (64, 64))
    with DressiAD() as ad:
        ad.send_img(table, RNG.normal(size=(50, 3)))
        ad.send_img(index, RNG.integers(0, 50, (64, 64)))
        counts = []
        for k in range(20):
            ad.set_loss_var(F.lookup(table, index) * float(k + 1))
            ad.set_optimizer(SGD(0.0))
            ad.exec_step()
            live = ad.device.live_handles()
            counts.append({n: live.get(n, 0) for n in ("VkImage", "VkPipeline", "VkRenderPass")})
        assert counts[-1] == counts[4], (counts[4], counts[-1])


def test_values_against_float64_on_a_graph_of_everything(ad: DressiAD) -> None:
    """Public way (recv_img, recv_grad) on one mixed graph."""
    x = Variable(VEC3, (11, 6), 2, requires_grad=True)
    m = Variable(MAT3, layers=2, requires_grad=True)
    y = F.mean(F.sigmoid(m @ F.normalize(x)) * F.pixel_coord((11, 6), 2).x)
    feeds = {x: RNG.normal(size=(2, 6, 11, 3)), m: RNG.normal(size=(2, 3, 3))}
    for v, a in feeds.items():
        ad.send_img(v, a)
    ad.set_optimizer(None)
    ad.set_loss_var(y)
    from dressi.ad import build_backward

    grads = build_backward(y)
    for v, (want,) in ((v, evaluate([g], feeds)) for v, g in grads.items()):
        assert np.allclose(ad.recv_grad(v).reshape(want.shape), want, rtol=1e-3, atol=1e-6)
    assert np.allclose(ad.recv_img(y), evaluate([y], feeds)[0], rtol=1e-4)
    assert len(leaves([y])) == 2


def test_hardware_sampler_agrees_with_four_fetches(ad: DressiAD) -> None:
    """Weights of a hardware sampler may have as few as 8 bits: 1/256 of the largest difference."""
    tex, uv = Variable(VEC3, (8, 4)), Variable(VEC2, (33, 21))
    values = RNG.uniform(0, 1, (4, 8, 3))
    ad.send_img(tex, values)
    ad.send_img(uv, RNG.uniform(-1, 2, (21, 33, 2)))
    exact, hardware = (F.texture(tex, uv, hardware=h) for h in (False, True))
    difference = np.abs(ad.recv_img(exact) - ad.recv_img(hardware)).max()
    assert difference < 2 / 256


def test_two_threads_take_turns() -> None:
    """Without a lock the second thread reset the fence that the first waited for: both hung."""
    import threading

    x = Variable(FLOAT, (16, 16), requires_grad=True)
    loss = F.mean(F.exp(x))
    with DressiAD() as ad:
        ad.send_img(x, np.zeros((16, 16)))
        ad.set_loss_var(loss)
        ad.set_optimizer(SGD(1e-3))

        def work() -> None:
            for _ in range(100):
                ad.exec_step()
                ad.recv_img(loss)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        assert not any(t.is_alive() for t in threads)


def test_bad_index_is_reported_after_an_evaluation_was_built(ad: DressiAD) -> None:
    t, i = Variable(FLOAT, (3, 1)), Variable(INT, (4, 1))
    y = F.lookup(t, i)
    ad.send_img(t, [1.0, 2.0, 3.0])
    ad.send_img(i, [0, 1, 2, 2])
    assert ad.recv_img(y).reshape(-1).tolist() == [1, 2, 3, 3]
    with pytest.raises(GraphError, match="index 9"):
        ad.send_img(i, [0, 1, 2, 9])
    assert ad.recv_img(y).reshape(-1).tolist() == [1, 2, 3, 3]


@pytest.mark.parametrize("n", [0, -1, 1.5, "3", None, True])
def test_exec_steps_takes_positive_integers_only(ad: DressiAD, n: Any) -> None:
    with pytest.raises(GraphError, match="exec_steps"):
        ad.exec_steps(n)


@pytest.mark.parametrize("optimizer", [3, Adam, "adam"])
def test_what_is_no_optimizer_is_refused_at_once(ad: DressiAD, optimizer: Any) -> None:
    with pytest.raises(GraphError, match="set_optimizer"):
        ad.set_optimizer(optimizer)
