"""F.custom: a user's own op in the graph, without a device."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.ad import F, Variable, build_backward, evaluate, gradcheck, graph_text, simplify
from dressi.ad.graph import topological
from dressi.ad.registry import OPS
from dressi.ad.verify import check_graph
from dressi.ad.vtype import FLOAT, INT, MAT2, VEC2, VEC3
from dressi.errors import GraphError

WAVE = "{y} = {x0} * {x0} * {x0};"


def cube_op(**more: object):
    given = {
        "backward": lambda f, gy, i: gy * 3.0 * f.inputs[0] * f.inputs[0],
        "reference": lambda x: x**3,
        "name": "cube",
    }
    return F.custom(WAVE, 0, **{**given, **more})


BLUR = F.custom(
    "{y} = {T}(0.0);\n"
    "for (int d = -1; d <= 1; d++)\n"
    "  {y} += {fetch0}(ivec2(clamp({pos}.x + d, 0, {w0} - 1), {pos}.y), {layer});",
    0,
    reference=lambda x: sum(
        x[:, :, np.clip(np.arange(x.shape[2]) + d, 0, x.shape[2] - 1)] for d in (-1, 0, 1)
    ),
    name="blur3",
)


def test_values_gradient_and_tangent_are_those_of_the_functions_given() -> None:
    x = Variable(VEC3, (4, 3), 2, requires_grad=True)
    y = cube_op()(x * 2.0)
    data = np.random.default_rng(0).uniform(-1, 1, (2, 3, 4, 3))
    (tangent,) = F.jvp([y], {x: F.constant(1.0, VEC3)})
    values, gradient, moved = evaluate([y, build_backward(y)[x], tangent], {x: data})
    assert np.allclose(values, 8 * data**3)
    assert np.allclose(gradient, 24 * data**2)
    assert np.allclose(moved, 24 * data**2)
    assert gradcheck(y, feeds={x: data}).ok


def test_without_a_backward_it_has_no_gradient_and_no_tangent() -> None:
    x = Variable(FLOAT, (5, 2), requires_grad=True)
    y = BLUR(x)
    assert build_backward(y) == {}
    with pytest.raises(GraphError, match=r"F\.blur3 at test_custom\.py:\d+: has no derivative"):
        F.jvp([y], {x: F.constant(1.0)})


def test_a_snippet_that_fetches_reads_any_pixel() -> None:
    x = Variable(FLOAT, (4, 1))
    y = BLUR(x)
    assert y.creator is not None and y.creator.op.read(0) == "any"
    assert evaluate([y], {x: [1.0, 2.0, 3.0, 4.0]})[0].ravel().tolist() == [4, 6, 9, 11]


def test_numbers_are_taken_as_constants_and_inputs_broadcast() -> None:
    scaled = F.custom("{y} = {x0} * {x1};", VEC3, reference=lambda a, b: a * b, name="scaled")
    x = Variable(VEC3, (4, 3), 2)
    y = scaled(x, 2.0)
    assert (y.vtype, y.size, y.layers) == (VEC3, (4, 3), 2)
    assert (evaluate([y], {x: np.ones((2, 3, 4, 3))})[0] == 2).all()


def test_gradient_of_what_was_broadcast_is_summed() -> None:
    scaled = F.custom(
        "{y} = {x0} * {x1};",
        0,
        backward=lambda f, gy, i: gy * f.inputs[1 - i],
        reference=lambda a, b: a * b,
    )
    x, s = Variable(FLOAT, (4, 3), requires_grad=True), Variable(FLOAT, requires_grad=True)
    result = gradcheck(scaled(x, s), feeds={x: np.arange(12.0).reshape(3, 4), s: 2.0})
    assert result.ok and len(result.leaves) == 2


def test_infer_may_be_a_type_an_input_or_a_function() -> None:
    x, m = Variable(VEC2, (4, 3)), Variable(MAT2)
    for infer, want in (
        (FLOAT, (FLOAT, (4, 3), 1)),
        (1, (MAT2, (1, 1), 1)),
        (lambda a, b: b.vtype, (MAT2, (4, 3), 1)),
        (lambda a, b: (INT, (2, 5), 3), (INT, (2, 5), 3)),
    ):
        op = F.custom("{y} = {T}({fetch0}(ivec2(0), 0).x + {fetch1}(ivec2(0), 0)[0][0]);", infer)
        y = op(x, m) if want[1] != (4, 3) else F.custom("{y} = {T}({x0}.x);", infer)(x, m)
        assert (y.vtype, y.size, y.layers) == want
        check_graph([y])


def test_equal_snippets_of_equal_inputs_merge() -> None:
    x = Variable(FLOAT, (4, 3))
    same = [cube_op()(x), cube_op(reference=None)(x)]
    assert len(topological(simplify([same[0] + same[1]]))) == 2
    other = F.custom("{y} = {x0} + 1.0;", 0, name="cube")(x)
    assert len(topological(simplify([same[0] + other]))) == 3


def test_snippets_without_inputs_merge_only_at_one_size() -> None:
    def made(size: tuple[int, int]) -> Variable:
        return F.custom("{y} = float({pos}.x);", lambda: (FLOAT, size, 1))()

    a, b, c = simplify([made((4, 3)), made((4, 3)), made((5, 3))])
    assert a is b and c.size == (5, 3)


def test_an_op_of_constants_is_left_to_the_device() -> None:
    (y,) = simplify([cube_op(reference=None)(F.constant(2.0)) + 0.0])
    assert y.creator is not None and y.creator.op.name == "cube"


def test_it_is_no_row_of_the_registry() -> None:
    before = set(OPS)
    cube_op()(Variable(FLOAT))
    assert set(OPS) == before


def test_it_appears_in_the_graph_by_its_name_and_line() -> None:
    y = cube_op()(Variable(FLOAT, name="x"))
    assert f"= cube(x, glsl='{WAVE}" in graph_text([y])
    assert y.line in graph_text([y]) and y.line.startswith("test_custom.py:")


def test_without_a_reference_evaluation_says_what_to_give() -> None:
    x = Variable(FLOAT)
    y = cube_op(reference=None)(x)
    with pytest.raises(GraphError, match=r"F\.cube at test_custom\.py:\d+: has no reference"):
        evaluate([y], {x: 1.0})


X, V = Variable(FLOAT, (4, 3)), Variable(VEC3, (4, 3))
BAD_OPS = {
    "no string": (lambda: F.custom(3, 0), "glsl must be a string"),
    "no output": (lambda: F.custom("{T} v = {x0};", 0), "must assign {y}"),
    "unknown marker": (lambda: F.custom("{y} = {value};", 0), "no marker {value}"),
    "sampler": (lambda: F.custom("{y} = {sample0}(vec2(0), 0);", 0), "no marker {sample0}"),
    "infer": (lambda: F.custom(WAVE, "FLOAT"), "infer must be a VType"),
    "infer bool": (lambda: F.custom(WAVE, True), "infer must be a VType"),
    "backward": (lambda: F.custom(WAVE, 0, backward=1), "backward must be a function"),
    "reference": (lambda: F.custom(WAVE, 0, reference=[1]), "reference must be a function"),
    "name": (lambda: F.custom(WAVE, 0, name="my op"), "name must be an identifier"),
    "name of F": (lambda: F.custom(WAVE, 0, name="mul"), "F has an op named 'mul'"),
    "reads": (lambda: F.custom(WAVE, 0, reads="sampler"), "reads must be 'same' or 'any'"),
}
BAD_CALLS = {
    "too few inputs": (lambda: cube_op()(), "the snippet uses input 0, the call has 0"),
    "no variable": (lambda: cube_op()("x"), "needs Variables or numbers"),
    "infer beyond": (lambda: F.custom(WAVE, 1)(X), "infer names input 1, the call has 1"),
    "infer result": (lambda: F.custom(WAVE, lambda x: "FLOAT")(X), "infer must give a VType"),
    "infer size": (lambda: F.custom(WAVE, lambda x: (FLOAT, (0, 1), 1))(X), "at least 1"),
    "sizes": (
        lambda: F.custom("{y} = {x0} + {x1};", FLOAT)(X, Variable(FLOAT, (3, 4))),
        "do not broadcast",
    ),
    "size of the output": (
        lambda: F.custom(WAVE, lambda x: (FLOAT, (2, 2), 1))(X),
        "is read at the same pixel, but the output is 2x2",
    ),
    "x of any": (lambda: F.custom(WAVE, 0, reads="any")(X), "write {fetch0}({pos}, {layer})"),
    "fetch of same": (
        lambda: F.custom("{y} = {fetch0}({pos}, 0);", 0, reads="same")(X),
        "is read at the same pixel, but has {fetch0}",
    ),
    "too many reads": (lambda: F.custom(WAVE, 0, reads=["same"] * 2)(X), "reads are given for 2"),
    "backward type": (
        lambda: build_backward(cube_op(backward=lambda f, gy, i: gy.x)(V), [V]),
        "a gradient",
    ),
    "backward of no Variable": (
        lambda: build_backward(cube_op(backward=lambda f, gy, i: 1.0)(X), [X]),
        "its backward returned 1.0",
    ),
    "reference shape": (
        lambda: evaluate([cube_op(reference=lambda x: x[:, :2])(X)], {X: np.zeros((3, 4))}),
        "its reference gave shape (1, 2, 4, 1)",
    ),
    "reference of no numbers": (
        lambda: evaluate([cube_op(reference=lambda x: None)(X)], {X: np.zeros((3, 4))}),
        "not an array of shape (1, 3, 4, 1)",
    ),
}


@pytest.mark.parametrize("case", {**BAD_OPS, **BAD_CALLS})
def test_what_does_not_fit_is_refused_at_the_users_line(case: str) -> None:
    call, message = {**BAD_OPS, **BAD_CALLS}[case]
    with pytest.raises(GraphError) as caught:
        print(call())
    assert message in str(caught.value)
    assert "test_custom.py:" in str(caught.value)
