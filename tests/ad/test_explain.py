"""explain: each reason why a gradient is zero or missing, and the ops and lines that it names."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.ad import F, Variable, explain
from dressi.ad.vtype import FLOAT, INT, VEC2, VEC3, VEC4
from dressi.errors import GraphError


def leaf(size: tuple[int, int] = (4, 1), name: str = "x") -> Variable:
    return Variable(FLOAT, size, requires_grad=True, name=name)


def test_no_path() -> None:
    x, other = leaf(), leaf(name="other")
    loss = other * 2.0
    e = explain(x, loss)
    assert e.reason == "no path" and e.stops == ()
    assert e.text() == (
        f"x FLOAT@4x1: no gradient: the loss {loss.label()} made at {loss.line} does not use it"
    )


def test_integers() -> None:
    i = Variable(INT, (4, 1), name="ids")
    assert explain(i, F.to_float(i)).reason == "integer"
    x = leaf()
    loss = F.to_int(x)
    e = explain(x, loss)
    assert e.reason == "integer loss" and loss.line in e.text()


def test_stop_gradient_names_its_line() -> None:
    x = leaf()
    stopped = F.stop_gradient(x * 2.0)
    e = explain(x, stopped * 3.0)
    assert e.reason == "stop_gradient"
    assert [(s.op, s.line) for s in e.stops] == [("stop_gradient", stopped.line)]
    assert f"F.stop_gradient at {stopped.line}" in e.text()


def test_ops_without_gradient_name_their_lines() -> None:
    x = leaf()
    steps = F.floor(x)
    mask = x > 0.5
    e = explain(x, steps * mask)
    assert e.reason == "op without gradient"
    assert {(s.op, s.line) for s in e.stops} == {("floor", steps.line), ("gt", mask.line)}
    assert all(s.input == "x FLOAT@4x1" for s in e.stops)


def test_a_way_through_integers() -> None:
    x = leaf()
    rounded = F.to_int(x)
    e = explain(x, F.to_float(rounded))
    # An integer cannot carry a gradient on, so it already ends where it is made a float again.
    assert e.reason == "op without gradient"
    assert [s.op for s in e.stops] == ["to_float"]


def test_an_input_that_an_op_gives_nothing() -> None:
    x, a = leaf(), leaf(name="a")
    e = explain(x, F.where(x, a, 0.0))
    assert [(s.op, s.why) for s in e.stops] == [("where", "this op has no gradient to this input")]


def test_an_op_behind_another_that_stops_is_not_named() -> None:
    x = leaf()
    e = explain(x, F.stop_gradient(F.floor(x)) * 2.0)
    assert [s.op for s in e.stops] == ["stop_gradient"]


def test_rasterization_gives_none_to_its_corners() -> None:
    x = Variable(VEC4, (3, 1), requires_grad=True, name="corner")
    frag = F.rasterize([x, x, x], (8, 8))
    depth = F.to_float(frag) * 0.1
    ids = F.resolve(frag, depth, 1.0, background=-1)
    e = explain(x, F.lookup(Variable(VEC3, (3, 1)), ids))
    assert e.reason == "op without gradient"
    assert [(s.op, s.why) for s in e.stops] == [("lookup", "this op has no gradient to this input")]


def test_requires_grad_is_off() -> None:
    x = Variable(FLOAT, (4, 1), name="x")
    e = explain(x, x * 2.0)
    assert e.reason == "requires_grad" and "requires_grad is off" in e.text()
    x.requires_grad = True
    assert explain(x, x * 2.0).reason == "none"


def test_without_data_the_graph_alone_speaks() -> None:
    x, mask = leaf(), Variable(FLOAT, (4, 1), name="mask")
    e = explain(x, x * mask)
    assert e.reason == "none" and "with feeds or engine" in e.text()


def zero(x: Variable, loss: Variable) -> list[tuple[str, str, str]]:
    """(op, line, why) of where the gradient ends when x holds DATA."""
    found = explain(x, loss, feeds={x: DATA})
    assert found.reason == "zero", found.text()
    assert "exactly 0 with these data" in found.text()
    return [(s.op, s.line, s.why) for s in found.stops]


DATA = [0.1, 0.2, 0.3, 0.4]


def test_a_mask_that_is_0_everywhere_is_named() -> None:
    x = leaf()
    mask = x > 0.5
    masked = x * mask
    stops = zero(x, F.exp(masked))
    assert stops[0] == ("mul", masked.line, f"F.gt at {mask.line} is 0 everywhere")
    assert stops[1][0] == "gt"  # the other way, which never has a gradient


def test_a_leaf_that_is_0_everywhere_is_named() -> None:
    x, scale = leaf(), Variable(FLOAT, name="scale")
    e = explain(x, x * scale, feeds={x: DATA, scale: 0.0})
    assert [s.why for s in e.stops] == ["the leaf scale FLOAT@1x1 is 0 everywhere"]


def test_where_that_never_selects_it() -> None:
    x = leaf()
    chosen = F.where(F.stop_gradient(x) > 0.5, x, 1.0)
    assert zero(x, chosen * 2.0)[0] == (
        "where",
        chosen.line,
        "it selects the other value wherever a gradient arrives",
    )


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (lambda x: F.maximum(x, 0.5), "the other input is the larger one wherever"),
        (lambda x: F.minimum(x, 0.05), "the other input is the smaller one wherever"),
        (lambda x: F.lookup(x, F.constant(-1, INT)), "the index points outside the table"),
        (lambda x: F.sqrt(x * 0.0), "its derivative is 0 wherever a gradient arrives"),
        (lambda x: F.exp(x * 0.0), "F.constant at"),
        (lambda x: F.asin(x + F.stop_gradient(1.0 - x)), "its derivative is 0 wherever"),
    ],
)
def test_other_ops_whose_derivative_is_0_everywhere(op: object, why: str) -> None:
    x = leaf()
    assert any(why in text for _, _, text in zero(x, op(x)))  # type: ignore[operator]


def test_only_the_first_op_on_the_way_from_the_loss_is_named() -> None:
    x = leaf()
    behind = x * F.constant(0.0)
    front = F.maximum(behind, 1.0)
    assert [s[0] for s in zero(x, front)] == ["maximum"]


def test_uses_that_cancel() -> None:
    x = leaf()
    loss = F.abs(x) - x
    stops = zero(x, loss)
    assert any(why == "what its 2 uses give adds up to 0" for _, _, why in stops)


def test_a_gradient_that_is_there_is_counted() -> None:
    x = leaf()
    e = explain(x, F.maximum(x, 0.25), feeds={x: DATA})
    assert e.reason == "none" and "2 of 4 numbers are not 0" in e.text()


def test_a_gradient_of_a_variable_in_the_middle() -> None:
    x = leaf()
    middle = x * x
    assert explain(middle, F.exp(middle), feeds={x: DATA}).reason == "none"
    assert explain(middle, F.floor(middle), feeds={x: DATA}).reason == "op without gradient"


def test_leaves_that_hold_data_need_no_feeds() -> None:
    x = F.leaf(np.array(DATA), FLOAT, "x")
    x.requires_grad = True
    assert explain(x, F.maximum(x, 1.0)).reason == "zero"


def test_data_comes_from_an_engine() -> None:
    x = leaf()

    class Holder:
        def recv_img(self, var: Variable) -> np.ndarray:
            assert var is x
            return np.asarray(DATA, np.float32)

    assert explain(x, F.maximum(x, 1.0), engine=Holder()).reason == "zero"


def test_silhouette_of_a_mesh_outside_the_view() -> None:
    """A whole pipeline: nothing is drawn, so nothing moves the vertices."""
    from dressi.testing.scenes import Scene, cube

    vertices, faces = cube(0.7)
    scene = Scene("away", vertices + np.array([50.0, 0.0, 0.0]), faces, size=(12, 10))
    scene.pos.requires_grad = True
    e = explain(scene.pos, scene.loss, feeds=scene.feeds)
    assert e.reason == "zero" and e.stops
    scene = Scene("here", vertices, faces, size=(12, 10))
    scene.pos.requires_grad = True
    assert explain(scene.pos, scene.loss, feeds=scene.feeds).reason == "none"


def test_wrong_arguments_are_refused_at_the_users_line() -> None:
    x, m = leaf(), Variable(VEC2, (4, 1), name="m")
    for call in (
        lambda: explain("x", x),
        lambda: explain(x, None),
        lambda: explain(x, x * m, feeds={x: DATA}),
    ):
        with pytest.raises(GraphError, match=r"explain at test_explain\.py:\d+"):
            print(call())
