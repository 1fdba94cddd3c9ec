"""What GLSL and SPIR-V leave undefined is given to no device: drivers on CPUs hide it.

By the text of the ops, since a test on one device sees what that device makes of it. Source: GLSL
4.50, 8.1 to 8.3; SPIR-V, OpSDiv and OpConvertFToS; SPIR-V extended instructions for GLSL.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from dressi.ad import F, Variable, evaluate
from dressi.ad.functions._common import NAN
from dressi.ad.graph import Function
from dressi.ad.kernels import kernels
from dressi.ad.registry import OPS
from dressi.ad.vtype import FLOAT, INT, IVEC3, VEC3

# GLSL's functions that have no result for some arguments, or one without digits, and the ops that
# may use them: each guards its arguments, or chooses the result away.
USERS = {
    "pow": {"pow"},
    "sqrt": {"sqrt", "asinh", "acosh"},
    "log": {"log", "softplus", "log1p", "asinh", "acosh", "atanh"},
    "log2": {"log2"},
    "asin": {"asin"},
    "acos": {"acos"},
    "atan": {"atan", "atan2"},
    "inversesqrt": set(),
    "normalize": set(),
    "acosh": set(),
    "atanh": set(),
    "sinh": set(),
    "cosh": set(),
    "tanh": set(),
    "mod": set(),
    "modf": set(),
    "smoothstep": set(),
    "clamp": {"lookup", "inverse", "window", "window_transposed"},
    "isnan": set(),
    "isinf": set(),
    "dFdx": set(),
    "dFdy": set(),
    "fwidth": set(),
    "bitfieldExtract": set(),
    "bitfieldInsert": set(),
    "ldexp": set(),
    "inverse": {"inverse"},
}


def _text(name: str) -> str:
    """The GLSL of an op of plain text; of others, that of its cases is elsewhere."""
    texts = [k.glsl for k in kernels(OPS[name]).values() if isinstance(k.glsl, str)]
    return "\n".join(texts)


@pytest.mark.parametrize("function", USERS)
def test_who_uses_what_has_no_result_for_some_arguments(function: str) -> None:
    users = {n for n in OPS if re.search(rf"(?<![\w.]){function}\(", _text(n))}
    assert users <= USERS[function], "guard the arguments, then name the op here"


@pytest.mark.parametrize("name", ["sqrt", "log", "log2", "asin", "acos", "acosh", "pow"])
def test_what_is_outside_of_the_domain_is_nan_by_choice(name: str) -> None:
    assert f"mix({{T}}({NAN})," in _text(name)


def _snippet(y: Variable) -> str:
    f = y.creator
    assert isinstance(f, Function)
    return kernels(f.op)["fragment"].text(f)


@pytest.mark.parametrize("divisor", [None, 0, -1, (3, 0, 2)])
def test_integers_are_not_divided_by_0_nor_by_minus_1(divisor: object) -> None:
    vtype = IVEC3 if isinstance(divisor, tuple) else INT
    b = Variable(INT) if divisor is None else F.constant(divisor, vtype)
    text = _snippet(F.div(Variable(INT), b))
    assert "{y}_x / mix({y}_d, {T}(1), equal_({y}_d ^ ({y}_d >> 31), {T}(0)))" in text
    assert "/ {x1}" not in text


def test_numbers_that_divide_well_are_divided_by_as_they_are() -> None:
    assert _snippet(F.div(Variable(INT), 6)) == "{y} = {x0} / {x1};"
    assert _snippet(Variable(VEC3) / Variable(FLOAT)) == "{y} = {x0} / {x1};"


def test_only_what_integers_reach_is_converted() -> None:
    text = _snippet(F.to_int(Variable(FLOAT)))
    assert text.startswith("{y} = {T}(mix({T0}(0.0), {x0}, lessThan_(abs({x0}), ")
    assert text.count("{T}({x0})") == 0


def test_floats_beyond_integers_become_the_nearest_one() -> None:
    x, y = Variable(FLOAT, (7, 1)), Variable(FLOAT, (7, 1))
    over = np.array([[0, 0], [1, 0], [-1, 0], [1e30, 1], [-(2.0**31), 1], [2.0**31, 1], [-2.5, 1]])
    (got,) = evaluate([F.to_int(x / y)], {x: over[:, :1], y: over[:, 1:]})
    most = 2**31 - 1
    assert got.ravel().tolist() == [0, most, -most - 1, most, -most - 1, most, -2]


def test_integers_divided_by_0_are_0() -> None:
    a, b = Variable(INT, (4, 1)), Variable(INT, (4, 1))
    pairs = np.array([[7, 0], [-7, 0], [-7, -1], [-(2**31), -1]])
    (got,) = evaluate([F.div(a, b)], {a: pairs[:, :1], b: pairs[:, 1:]})
    assert got.ravel().tolist() == [0, 0, 7, -(2**31)]
