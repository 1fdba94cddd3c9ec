"""F.pow and ** against np.power: negative and zero bases, whole and other exponents, small powers
as products; the GLSL gives nothing to its own pow that it leaves undefined.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from dressi.ad import F, Variable, build_backward, evaluate
from dressi.ad.graph import topological
from dressi.ad.kernels import kernels
from dressi.ad.vtype import FLOAT, INT, MAT2, VEC2, VEC3
from dressi.errors import GraphError

BASES = np.array([-3.5, -2.0, -1.0, -0.3, 0.0, 0.3, 1.0, 2.5])
POWERS = [-5.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 7.0, 100.0]
SMALL = [1.0, 2.0, 3.0, 4.0, -1.0, -2.0, 0.5]


def _values(p: float, dynamic: bool) -> np.ndarray:
    x, e = Variable(FLOAT, (len(BASES), 1)), Variable(FLOAT)
    (y,) = evaluate([F.pow(x, e if dynamic else p)], {x: BASES[:, None], e: [p]})
    return y.ravel()


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("dynamic", [True, False])
def test_values_are_those_of_numpy(p: float, dynamic: bool) -> None:
    with np.errstate(all="ignore"):
        want = np.power(BASES, p)
    assert np.allclose(_values(p, dynamic), want, rtol=1e-12, equal_nan=True)


@pytest.mark.parametrize("p", [p for p in POWERS if p == round(p)])
@pytest.mark.parametrize("dynamic", [True, False])
def test_gradient_of_whole_powers_is_that_of_central_differences(p: float, dynamic: bool) -> None:
    x, e = Variable(FLOAT, (4, 1), requires_grad=True), Variable(FLOAT)
    data, step = np.array([-1.4, -0.9, 0.8, 1.2]), 1e-6
    y = F.pow(x, e if dynamic else p)
    g, high, low = evaluate([build_backward(y, [x])[x]], {x: data[:, None], e: [p]}) + [
        evaluate([y], {x: (data + s * step)[:, None], e: [p]})[0] for s in (1, -1)
    ]
    assert np.allclose(g, (high - low) / (2 * step), rtol=1e-6, atol=1e-8)


def test_gradient_to_the_exponent_is_0_below_0_and_at_it() -> None:
    x, p = Variable(FLOAT, (4, 1)), Variable(FLOAT, (4, 1), requires_grad=True)
    g = build_backward(F.pow(x, p), [p])[p]
    (got,) = evaluate([g], {x: [[-2.0], [-2.0], [0.0], [2.0]], p: [[2.0], [0.5], [3.0], [3.0]]})
    assert got.ravel()[:3].tolist() == [0, 0, 0]
    assert np.isclose(got.ravel()[3], 8 * np.log(2))


def test_a_scalar_mixes_with_a_vector_of_exponents() -> None:
    x, p = Variable(FLOAT, requires_grad=True), Variable(VEC3, requires_grad=True)
    grads = build_backward(F.pow(x, p), [x, p])
    feeds = {x: [-2.0], p: [3.0, 2.0, 0.0]}
    y, gx, gp = evaluate([F.pow(x, p), grads[x], grads[p]], feeds)
    assert y.ravel().tolist() == [-8, 4, 1]
    assert gx.ravel().tolist() == [3 * 4 - 2 * 2]
    assert gp.ravel().tolist() == [0, 0, 0]


def _ops(y: Variable) -> list[str]:
    return [f.op.name for f in topological([y])]


@pytest.mark.parametrize("p", SMALL)
@pytest.mark.parametrize("given", [float, F.constant], ids=["number", "constant"])
def test_small_powers_are_products_and_quotients(p: float, given: type) -> None:
    for vtype in (FLOAT, VEC2):
        x = Variable(vtype, (3, 2))
        assert "pow" not in _ops(F.pow(x, given(p)))
        assert F.pow(x, given(p)).vtype is vtype
        assert _ops(F.pow(x, given(p))) == _ops(F.pow(x, given(p)))


@pytest.mark.parametrize("p", [0.0, 5.0, 2.5, -0.5, (2.0, 3.0)])
def test_other_powers_are_not(p: float) -> None:
    assert "pow" in _ops(Variable(VEC2, (3, 2)) ** p)


def test_equal_numbers_widen_a_scalar_base() -> None:
    x = Variable(FLOAT)
    y = F.pow(x, (2.0, 2.0, 2.0))
    assert y.vtype is VEC3
    assert evaluate([y], {x: [-3.0]})[0].ravel().tolist() == [9, 9, 9]


def test_the_square_of_a_number_is_folded() -> None:
    from dressi.ad.simplify import simplify

    (y,) = simplify([F.pow(F.constant(-3.0), 2.0) + F.constant(1.0)])
    assert y.creator is not None and y.creator.op.name == "constant"
    assert y.creator.attr("values") == (10.0,)


def test_glsls_own_pow_never_sees_what_it_leaves_undefined() -> None:
    """It is undefined for x < 0, and for x = 0 with p <= 0."""
    f = F.pow(Variable(FLOAT), Variable(FLOAT)).creator
    assert f is not None
    text = kernels(f.op)["fragment"].text(f)
    calls = re.findall(r"\bpow\((.*), \{y\}_p\)", text)
    assert calls == ["mix({y}_m, {T}(1.0), equal_({y}_m, {T}(0.0)))"]
    assert "{y}_m = abs({y}_x)" in text


@pytest.mark.parametrize(
    "x, p, text",
    [
        (INT, 2, "FLOAT or VECn"),
        (INT, 2.0, "do not mix|FLOAT or VECn"),
        (MAT2, 2.0, "MAT2"),
        (VEC2, (1.0, 2.0, 3.0), "do not mix"),
        (FLOAT, "2", "numbers"),
        (FLOAT, float("nan"), "NaN"),
        (FLOAT, None, "numbers"),
    ],
)
def test_bad_input_is_told_at_the_call(x: object, p: object, text: str) -> None:
    with pytest.raises(GraphError, match=text) as error:
        F.pow(Variable(x), p)  # type: ignore[arg-type]
    assert "F.pow at test_pow.py" in str(error.value)
