"""F.lookup's ways to scatter on the device."""

from __future__ import annotations

import numpy as np
import pytest
from device import run_many, worst

from dressi import DressiAD, F, Options, Variable, evaluate
from dressi.ad.autodiff import build_backward
from dressi.ad.vtype import FLOAT, INT, MAT3, VEC2, VEC3, VEC4, VType
from dressi.packing.accumulate import LOOP, adder

pytestmark = pytest.mark.gpu


def _made(layers: int, table_layers: int, **how: object) -> tuple[Variable, dict[Variable, object]]:
    rng = np.random.default_rng(layers)
    table = Variable(VEC3, (23, 1), table_layers, requires_grad=True)
    index, w = Variable(INT, (40, 30), layers), Variable(VEC3, (40, 30), layers)
    feeds: dict[Variable, object] = {
        table: np.zeros((table_layers, 1, 23, 3)),
        index: rng.integers(-2, 25, (layers, 30, 40, 1)),
        w: rng.normal(size=(layers, 30, 40, 3)) * (rng.uniform(size=(layers, 30, 40, 1)) > 0.2),
    }
    y = F.lookup(table, F.dynamic(index), **how)  # type: ignore[arg-type]
    return build_backward(y * w)[table], feeds


@pytest.mark.parametrize("layers", [(1, 1), (3, 1), (3, 3)])
def test_stochastic_draws_the_pixels_that_the_reference_draws(
    ad: DressiAD, layers: tuple[int, int]
) -> None:
    step = Variable(INT)
    g, feeds = _made(*layers, scatter="stochastic", step=step, samples=2)
    for k in (0, 1, 77):
        feeds[step] = np.full((1, 1, 1, 1), k)
        (got,) = run_many(ad, [g], feeds)
        assert worst(got, evaluate([g], feeds)[0]) < 1e-5


def test_ops_that_share_a_counter_draw_apart_as_in_the_reference(ad: DressiAD) -> None:
    """Of tables and of textures, at steps where the streams wrap at 32 bits too."""
    rng = np.random.default_rng(8)
    step, index = Variable(INT), Variable(INT, (20, 15))
    uv, w = Variable(VEC2, (20, 15)), Variable(FLOAT, (20, 15))
    tables = [Variable(FLOAT, (11, 1), requires_grad=True) for _ in range(2)]
    textures = [Variable(FLOAT, (6, 5), requires_grad=True) for _ in range(2)]
    loss = w * 0.0
    for table, tex in zip(tables, textures, strict=True):
        read = F.lookup(table, F.dynamic(index), scatter="stochastic", step=step, samples=2)
        loss = loss + w * (read + F.texture(tex, uv, backward="inverse_uv", step=step))
    grads = build_backward(loss)
    feeds: dict[Variable, object] = {
        **{t: np.zeros((11, 1)) for t in tables},
        **{t: np.zeros((5, 6, 1)) for t in textures},
        index: rng.integers(0, 11, (15, 20, 1)),
        uv: rng.uniform(0, 1, (15, 20, 2)),
        w: rng.normal(size=(15, 20, 1)),
    }
    for k in (0, 1, 2**30 + 7):
        feeds[step] = np.full((1, 1, 1, 1), k)
        leaves = [*tables, *textures]
        got = run_many(ad, [grads[v] for v in leaves], feeds)
        want = evaluate([grads[v] for v in leaves], feeds)
        for a, b in zip(got, want, strict=True):
            assert (np.abs(a - b) < 1e-5 * (1 + np.abs(b))).mean() > 0.95  # ties of landing places
        assert (got[0] != got[1]).any() and (got[2] != got[3]).any()


def test_a_step_counter_on_the_device_draws_anew_every_step(ad: DressiAD) -> None:
    """A fit of a table by stochastic gradients ends where the exact one ends."""
    from dressi import SGD

    rng = np.random.default_rng(1)
    ids = rng.integers(0, 9, (12, 16, 1))
    target = rng.normal(size=(9, 1))[ids[..., 0]]
    for scatter in ("exact", "stochastic"):
        table = Variable(FLOAT, (9, 1), requires_grad=True)
        step = Variable(INT, name="step")
        step.update = step + 1
        index, goal = Variable(INT, (16, 12)), Variable(FLOAT, (16, 12))
        off = F.lookup(table, F.dynamic(index), scatter=scatter, step=step) - goal
        with DressiAD() as engine:
            engine.set_loss_var(off * off)
            engine.set_optimizer(SGD(0.01))
            engine.send_img(index, ids)
            engine.send_img(goal, target)
            engine.send_img(table, np.zeros((9, 1)))
            engine.send_img(step, np.zeros(1))
            engine.exec_steps(60)
            got = engine.recv_img(table)
        for k in range(9):
            assert abs(got[k, 0] - target[ids[..., 0] == k].mean()) < 1e-3, (scatter, k)


def test_deterministic_lookup_gives_the_same_bits_without_the_option() -> None:
    """Its words are integers in the plan; the exact one beside it adds floats."""
    g, feeds = _made(1, 1, scatter="deterministic")
    h, more = _made(1, 1)
    with DressiAD(options=Options(deterministic=False)) as ad:
        for v, data in {**feeds, **more}.items():
            ad.send_img(v, data)
        fixed, plain = (ad.plan_of([v]) for v in (g, h))
        first = [run_many(ad, [g], feeds)[0] for _ in range(3)]
    assert all((a == first[0]).all() for a in first)
    assert worst(first[0], evaluate([g], feeds)[0]) < 1e-6
    words = [p.buffers[0].n_words for p in (fixed, plain)]
    assert words[0] == 3 * words[1] + 1


@pytest.mark.parametrize("vtype", [FLOAT, VEC3, VEC4, MAT3])
def test_every_component_is_added_without_float_atomics(vtype: VType) -> None:
    """Components are a loop there: thirty compare-and-swap loops take minutes to compile."""
    rng = np.random.default_rng(6)
    value, index = Variable(vtype, (9, 7), 2), Variable(INT, (9, 7), 2)
    v = rng.normal(size=(2, 7, 9, *vtype.tail)).astype(np.float32)
    i = rng.integers(0, 5, (2, 7, 9))
    want = np.zeros((5, *vtype.tail))
    np.add.at(want, i.ravel(), v.reshape(-1, *vtype.tail).astype(np.float64))
    with DressiAD(limits={"float_atomics": False}) as weak:
        weak.send_img(value, v)
        weak.send_img(index, i)
        got = weak.recv_img(F.scatter_add(value, F.dynamic(index), (5, 1)) * 1.0)
    assert np.abs(got.reshape(want.shape) - want).max() < 1e-4
    text = "\n".join(adder("add", "b", vtype, LOOP))
    assert text.count("add_one(i + ") == 1


def test_a_shader_may_read_as_many_images_as_the_limits_say() -> None:
    """Mesa's CPU driver says 64 storage images, and reads wrong pixels from that many."""
    n, rng = 64, np.random.default_rng(0)
    tables = [F.leaf(rng.uniform(size=(16, 1)), FLOAT) for _ in range(n)]
    rows = F.leaf(np.arange(16)[::-1].reshape(4, 4, 1), INT)
    y = F.add_n([F.lookup(t, rows) * float(k + 1) for k, t in enumerate(tables)])
    with DressiAD() as ad:
        np.testing.assert_allclose(ad.recv_img(y)[None], evaluate([y], {})[0], rtol=1e-5)
