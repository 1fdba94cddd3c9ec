"""F shows ops and families alone; names from before there were families warn; max of two."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from dressi.ad import F, Variable, build_backward, evaluate
from dressi.ad.vtype import FLOAT, MAT2, VEC3
from dressi.errors import GraphError

IN_FAMILIES = [(f, name) for f, family in F.FAMILIES.items() for name in family.__all__]


def value(v: Variable, given: dict[Variable, np.ndarray]) -> np.ndarray:
    (y,) = evaluate([v], given)
    return y


def test_no_op_is_in_two_places() -> None:
    names = [name for name in F.__all__ if name not in F.FAMILIES] + [n for _, n in IN_FAMILIES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("family", "name"), IN_FAMILIES)
def test_an_old_name_is_an_alias_that_warns_once(family: str, name: str) -> None:
    if name in F.FAMILIES:
        return
    vars(F).pop(name, None)
    with pytest.warns(DeprecationWarning, match=rf"F\.{name} is now F\.{family}\.{name}"):
        old = getattr(F, name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert getattr(F, name) is old is getattr(F.FAMILIES[family], name)
    del vars(F)[name]


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="F has no op 'nonsense'"):
        _ = F.nonsense


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("per_layer", [False, True])
def test_of_one_operand_it_is_over_pixels(name: str, per_layer: bool) -> None:
    data = np.random.default_rng(0).normal(size=(2, 4, 3, 3))
    x = Variable(VEC3, (3, 4), 2)
    y = getattr(F, name)(x, per_layer=per_layer)
    assert (y.size, y.layers) == ((1, 1), 2 if per_layer else 1)
    axis = (1, 2) if per_layer else (0, 1, 2)
    assert np.array_equal(value(y, {x: data}), getattr(np, name)(data, axis, keepdims=True))


@pytest.mark.parametrize("name", ["max", "min"])
def test_of_two_operands_it_is_per_component_as_in_glsl_and_torch(name: str) -> None:
    data = np.random.default_rng(0).normal(size=(1, 4, 3, 3))
    x = Variable(VEC3, (3, 4), requires_grad=True)
    other = Variable(VEC3, (3, 4))
    function, same = getattr(F, name), getattr(F, name + "imum")
    reference = getattr(np, name + "imum")
    given = {x: data, other: -data[:, ::-1]}
    assert np.array_equal(value(function(x, 0.0), given), reference(data, 0.0))
    assert np.array_equal(value(function(x, other), given), reference(data, given[other]))
    assert np.array_equal(value(function(0.0, x), given), reference(data, 0.0))
    gradients = [build_backward(F.sum(F.sum_components(f(x, 0.0))))[x] for f in (function, same)]
    mine, wanted = evaluate(gradients, given)
    assert np.array_equal(mine, wanted) and mine.any()


@pytest.mark.parametrize("name", ["max", "min"])
def test_per_layer_in_second_place_still_works_and_warns(name: str) -> None:
    x = Variable(FLOAT, (3, 4), 2)
    with pytest.warns(DeprecationWarning, match=f"F.{name}.x, per_layer=True. now"):
        assert getattr(F, name)(x, True).layers == 2


@pytest.mark.parametrize("name", ["max", "min"])
def test_what_has_no_extreme_is_an_error(name: str) -> None:
    x = Variable(FLOAT, (3, 4), 2)
    with pytest.raises(GraphError, match="per_layer is for one operand"):
        getattr(F, name)(x, 0.0, per_layer=True)
    with pytest.raises(GraphError, match="needs a scalar or vector"):
        getattr(F, name)(Variable(MAT2, (3, 4)))
