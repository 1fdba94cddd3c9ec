"""F.custom on a device: values, gradient, merging, and a snippet that does not compile."""

from __future__ import annotations

import numpy as np
import pytest
from device import run_many, worst

from dressi import SGD, DressiAD, F, Options, ShaderError, Variable, evaluate, gradcheck
from dressi.ad.autodiff import build_backward
from dressi.ad.vtype import FLOAT, INT, MAT2, VEC2, VEC3

pytestmark = pytest.mark.gpu

CUBE = F.custom(
    "{T} a = {x0} * {x0};\n{y} = a * {x0};",
    0,
    backward=lambda f, gy, i: gy * 3.0 * f.inputs[0] * f.inputs[0],
    reference=lambda x: x**3,
    name="cube",
)
"""Twice in one shader: the name ``a`` must not clash."""

SHIFTED = F.custom(
    "ivec2 p = ivec2(({pos}.x + {x1}) % {w0}, {pos}.y);\n{y} = {fetch0}(p, {layer});",
    0,
    backward=lambda f, gy, i: UNSHIFTED(gy, f.inputs[1]) if i == 0 else None,
    reference=lambda x, n: np.roll(x, -int(n.ravel()[0]), 2),
    name="shifted",
)
UNSHIFTED = F.custom(
    "ivec2 p = ivec2(({pos}.x + {w0} - {x1}) % {w0}, {pos}.y);\n{y} = {fetch0}(p, {layer});",
    0,
    reference=lambda x, n: np.roll(x, int(n.ravel()[0]), 2),
    name="unshifted",
)


@pytest.mark.parametrize(("size", "layers"), [((1, 1), 1), ((13, 1), 3), ((7, 5), 3)])
def test_values_and_gradients_agree_with_the_reference(
    ad: DressiAD, size: tuple[int, int], layers: int
) -> None:
    x = Variable(VEC3, size, layers)
    n = Variable(INT)
    y = CUBE(CUBE(x)) + SHIFTED(x * x, n)
    data = np.random.default_rng(0).uniform(-1, 1, (layers, size[1], size[0], 3))
    feeds = {x: data.astype(np.float32), n: size[0] // 2}
    outputs = [y, build_backward(y, [x])[x]]
    for got, want in zip(run_many(ad, outputs, feeds), evaluate(outputs, feeds), strict=True):
        assert worst(got, want) < 1e-3


def test_size_type_and_coordinates_of_the_output(ad: DressiAD) -> None:
    """No inputs at all, and markers of the output."""
    ramp = F.custom(
        "{y} = {T}(float({pos}.x) / {wy}.0, float({pos}.y * {ly} + {layer}));",
        lambda: (VEC2, (6, 4), 2),
    )
    got = run_many(ad, [ramp() + 0.0], {})[0]
    layer, y, x = np.mgrid[:2, :4, :6]
    assert np.allclose(got, np.stack([x / 6, y * 2 + layer], -1))


@pytest.mark.parametrize("lowering", ["graphics", "compute"])
def test_names_that_a_snippet_declares_hide_no_input(lowering: str) -> None:
    """Also those that shaders give to values, among them vertices as one would call them."""
    names = [f"{letter}{k}" for letter in "vi" for k in range(9)] + ["carried"]
    halves = "".join(f"float {n} = 0.5; " for n in names)
    op = F.custom(
        f"{halves}\n{{y}} = {{x0}} * v1 + {{x1}} * carried;",
        FLOAT,
        reference=lambda x, y: 0.5 * x + 0.5 * y,
    )
    x, y = Variable(FLOAT, (70, 65)), Variable(FLOAT, (70, 65))
    outputs = [op(x, y * 3.0), op(F.sum(x), F.sum(x) * 3.0)]
    rng = np.random.default_rng(0)
    feeds = {v: rng.uniform(0, 1, (1, 65, 70, 1)).astype(np.float32) for v in (x, y)}
    with DressiAD(options=Options(lowering=lowering)) as ad:
        for got, want in zip(run_many(ad, outputs, feeds), evaluate(outputs, feeds), strict=True):
            assert worst(got, want) < 1e-5


def test_matrices_go_in_and_come_out(ad: DressiAD) -> None:
    inverse = F.custom("{y} = inverse({x0});", MAT2, reference=np.linalg.inv, name="inverted")
    m = Variable(MAT2, (5, 1))
    data = np.random.default_rng(1).uniform(-1, 1, (5, 2, 2)) + 3 * np.eye(2)
    (got,) = run_many(ad, [inverse(m)], {m: data})
    assert np.allclose(got[0, 0], np.linalg.inv(data), atol=1e-5)


def test_a_fit_through_a_custom_op(ad: DressiAD) -> None:
    x = Variable(FLOAT, (4, 1), requires_grad=True, name="x")
    off = CUBE(x) - 0.125
    ad.send_img(x, np.ones(4))
    ad.set_loss_var(F.mean(off * off))
    ad.set_optimizer(SGD(lr=0.3))
    ad.exec_steps(200)
    assert np.allclose(ad.recv_img(x), 0.5, atol=1e-3)
    assert gradcheck(F.mean(off * off), engine=ad).ok


def test_a_snippet_that_does_not_compile_names_its_line(ad: DressiAD) -> None:
    broken = F.custom("float a = {x0};\n\n\n\n\n{y} = a + undeclared;", 0, name="broken")
    x = Variable(FLOAT, (4, 4))
    ad.send_img(x, np.zeros((4, 4)))
    with pytest.raises(ShaderError) as caught:
        ad.recv_img(broken(x * 2.0))
    text = str(caught.value)
    line = test_a_snippet_that_does_not_compile_names_its_line.__code__.co_firstlineno + 1
    assert f"made by F.custom at test_custom_op.py:{line}" in text
    assert "undeclared" in text
