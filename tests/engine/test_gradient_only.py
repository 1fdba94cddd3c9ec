"""GradientOnly: a step leaves loss and gradients on the device and changes no parameter."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import Adam, DressiAD, F, GradientOnly, Options, Variable
from dressi.ad.vtype import FLOAT, INT, MAT2, VEC2, VEC3
from dressi.packing.bindings import buffers_written

pytestmark = pytest.mark.gpu

SIZE, TEXELS = (24, 20), (9, 7)
RNG = np.random.default_rng(0)
UV = RNG.uniform(0, 1, (20, 24, 2)).astype(np.float32)
TARGET = RNG.uniform(0, 1, (20, 24, 3)).astype(np.float32)
ALBEDO = RNG.uniform(0, 1, (7, 9, 3)).astype(np.float32)


def textured() -> tuple[Variable, Variable]:
    tex = Variable(VEC3, TEXELS, requires_grad=True, name="tex")
    d = F.texture(tex, F.leaf(UV, VEC2), wrap="clamp") - F.leaf(TARGET, VEC3)
    return F.sum(F.dot(d, d)), tex


def wanted(albedo: np.ndarray) -> tuple[float, np.ndarray]:
    """Loss and gradient in float64, by a loop over taps."""
    p = UV.astype(np.float64) * TEXELS - 0.5
    o = np.floor(p).astype(int)
    t = p - o
    taps = []
    for dx, dy in np.ndindex(2, 2):
        x, y = np.clip(o[..., 0] + dx, 0, 8), np.clip(o[..., 1] + dy, 0, 6)
        weight = (t[..., 0] if dx else 1 - t[..., 0]) * (t[..., 1] if dy else 1 - t[..., 1])
        taps.append((y, x, weight[..., None]))
    d = sum(w * albedo[y, x] for y, x, w in taps) - TARGET
    g = np.zeros(albedo.shape)
    for y, x, w in taps:
        np.add.at(g, (y, x), 2 * w * d)
    return float((d**2).sum()), g


@pytest.mark.parametrize(
    "options",
    [Options(), Options(lowering="compute"), Options(deterministic=True), Options(cache=False)],
    ids=["graphics", "compute", "deterministic", "no cache"],
)
def test_each_step_leaves_its_gradient_and_nothing_is_updated(options: Options) -> None:
    loss, tex = textured()
    with DressiAD(options=options) as ad:
        ad.set_loss_var(loss)
        ad.set_optimizer(GradientOnly())
        for k in range(12):  # the cache rebuilds on the way
            albedo = (ALBEDO * (1 + k)).astype(np.float32)
            ad.send_img(tex, albedo)
            ad.exec_step()
            builds = ad.n_rebuilds
            value, gradient = wanted(albedo)
            assert np.allclose(ad.recv_grad(tex), gradient, rtol=1e-4, atol=1e-3)
            assert np.isclose(ad.recv_img(loss).item(), value, rtol=1e-4)
            assert ad.n_rebuilds == builds  # read, not computed again
            assert np.array_equal(ad.recv_img(tex), albedo)
        ad.exec_steps(5)
        assert np.allclose(ad.recv_grad(tex), gradient, rtol=1e-4, atol=1e-3)


def test_the_gradient_of_what_was_sent_since_is_computed() -> None:
    loss, tex = textured()
    with DressiAD() as ad:
        ad.set_loss_var(loss)
        ad.set_optimizer(GradientOnly())
        ad.send_img(tex, ALBEDO)
        ad.exec_step()
        ad.send_img(tex, ALBEDO * 2)
        assert np.allclose(ad.recv_grad(tex), wanted(ALBEDO * 2)[1], rtol=1e-4, atol=1e-3)
        ad.set_optimizer(Adam(0.1))
        ad.exec_step()
        assert not np.array_equal(ad.recv_img(tex), ALBEDO * 2)
        after = ad.recv_img(tex)
        assert np.allclose(ad.recv_grad(tex), wanted(after)[1], rtol=1e-4, atol=1e-3)


def test_a_steady_step_runs_all_that_depends_on_the_parameter() -> None:
    """Nothing is sent, but the gradient is made anew: the cache keeps only what lies before it."""
    loss, tex = textured()
    with DressiAD(options=Options(lowering="compute")) as ad:
        ad.set_loss_var(loss)
        ad.set_optimizer(GradientOnly())
        ad.send_img(tex, ALBEDO)
        for _ in range(14):
            ad.exec_step()
        plan = ad.plans["step"]
        assert [s for st in plan.stages for s in st.substages if buffers_written(plan, s)]
        assert all(image.width != TEXELS[0] or image.key for image in plan.images)  # no copy of it


@pytest.mark.parametrize("scatter", ["exact", "deterministic"])
def test_gradients_of_tables_matrices_and_layers(scatter: str) -> None:
    """Of several parameters at once: from a gather, a scatter with layers, and plain arithmetic."""
    table = Variable(VEC3, (6, 1), requires_grad=True)
    stack = Variable(MAT2, (5, 1), 2, requires_grad=True)
    scale = Variable(FLOAT, requires_grad=True)
    faces, ids = Variable(INT, (4, 1)), Variable(INT, (3, 2), 2)
    a = F.sum_components(F.lookup(table, faces)) * scale
    weight = np.arange(4, dtype=np.float32).reshape(2, 2)
    found = F.lookup(stack, F.dynamic(ids), scatter=scatter)
    b = F.sum_components(F.linalg.matrix_comp_mul(found, F.leaf(weight, MAT2)))
    index = np.array([[[0, 1, 1], [4, 4, 4]], [[2, 2, 0], [9, -1, 3]]])[..., None]
    with DressiAD(options=Options(lowering="compute")) as ad:
        ad.set_loss_var(F.sum(a) + F.sum(b))
        ad.set_optimizer(GradientOnly())
        data = np.arange(18, dtype=np.float32).reshape(6, 3)
        ad.send_img(table, data)
        ad.send_img(stack, np.zeros((2, 1, 5, 2, 2)))
        ad.send_img(scale, 2.0)
        ad.send_img(faces, np.array([[5], [0], [0], [3]]))
        ad.send_img(ids, index)
        ad.exec_step()
        of_table, of_stack, of_scale = (ad.recv_grad(v) for v in (table, stack, scale))
    assert of_table.tolist() == [[4.0] * 3, [0.0] * 3, [0.0] * 3, [2.0] * 3, [0.0] * 3, [2.0] * 3]
    counts = np.array([[1, 2, 0, 0, 3], [1, 0, 2, 1, 0]])
    assert np.array_equal(of_stack.reshape(2, 5, 2, 2), counts[..., None, None] * weight)
    assert of_scale.item() == data[[5, 0, 0, 3]].sum()
