"""The graph: Variables, Functions, printing, checking, lines in errors, fragment rules."""

from __future__ import annotations

import gc
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dressi.ad import F, Variable, build_backward, evaluate, graph_text, simplify, verify
from dressi.ad.functions import constant
from dressi.ad.graph import leaves, short, topological
from dressi.ad.verify import check_graph, check_indices, is_indexed_by
from dressi.ad.vtype import FLOAT, INT, IVEC2, IVEC3, MAT3, MAT4, VEC2, VEC3, VEC4, VType
from dressi.errors import DressiError, GraphError


def here() -> str:
    """file:line of the caller's next line."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return f"test_graph.py:{frame.f_back.f_lineno + 1}"


# -- Variables -------------------------------------------------------------------------------------


def test_variable_keeps_what_it_was_made_with() -> None:
    v = Variable(VEC3, size=(64, 48), layers=2, requires_grad=True, name="albedo")
    assert (v.vtype, v.size, v.layers, v.requires_grad) == (VEC3, (64, 48), 2, True)
    assert v.label() == "albedo VEC3@64x48x2"
    assert Variable(FLOAT).size == (1, 1) and Variable(FLOAT).layers == 1


BAD_VARIABLES: list[Callable[[], Any]] = [
    lambda: Variable("vec3", (4, 4)),  # type: ignore[arg-type]
    lambda: Variable(FLOAT, (0, 4)),
    lambda: Variable(FLOAT, (4, -1)),
    lambda: Variable(FLOAT, (4, 4), 0),
    lambda: Variable(FLOAT, (4,)),  # type: ignore[arg-type]
    lambda: Variable(FLOAT, (4, 4, 4)),  # type: ignore[arg-type]
    lambda: Variable(FLOAT, 4),  # type: ignore[arg-type]
    lambda: Variable(FLOAT, None),  # type: ignore[arg-type]
    lambda: Variable(FLOAT, ("a", "b")),  # type: ignore[arg-type]
    lambda: Variable(FLOAT, (float("nan"), 1)),  # type: ignore[arg-type]
    lambda: Variable(FLOAT, (float("inf"), 1)),  # type: ignore[arg-type]
    lambda: Variable(FLOAT, (2.5, 2)),  # type: ignore[arg-type]
    lambda: Variable(FLOAT, (2, 2), "two"),  # type: ignore[arg-type]
    lambda: Variable(INT, (4, 1), requires_grad=True),
]


@pytest.mark.parametrize("k", range(len(BAD_VARIABLES)))
def test_bad_variable_raises_graph_error_with_the_users_line(k: int) -> None:
    with pytest.raises(GraphError, match=r"test_graph\.py:\d+"):
        BAD_VARIABLES[k]()


def test_variable_has_no_truth_value() -> None:
    a = Variable(FLOAT, name="a")
    with pytest.raises(GraphError, match=r"F\.where"):
        if a > 0.0:
            pass


def test_numpy_scalars_and_arrays_on_the_left_ask_the_variable() -> None:
    a = Variable(VEC3, (2, 2), name="a")
    assert isinstance(np.float32(2.0) * a, Variable)
    assert isinstance(np.array([1.0, 2.0, 3.0]) + a, Variable)
    assert isinstance(2 - a, Variable)


def test_operators_are_the_ops_of_the_same_name() -> None:
    a, b = Variable(VEC2, (3, 2)), Variable(VEC2, (3, 2))
    feeds = {
        a: np.arange(12.0).reshape(2, 3, 2) + 1,
        b: np.arange(12.0).reshape(2, 3, 2)[::-1] * 0.5 + 1,
    }
    x, y = feeds[a], feeds[b]
    cases = [
        (a + b, x + y), (a - b, x - y), (a * b, x * y), (a / b, x / y), (-a, -x), (abs(-a), x),
        (a**2.0, x**2), (a < b, x < y), (a <= b, x <= y), (a > b, x > y), (a >= b, x >= y),
        (1.0 - a, 1 - x), (3.0 / a, 3 / x), (2.0 + a, x + 2), (2.0 * a, 2 * x),
        (a.x, x[..., :1]), (a.y, x[..., 1:]), (a.xy, x),
    ]  # fmt: skip
    for got, want in zip(
        evaluate([c[0] for c in cases], feeds), (c[1] for c in cases), strict=True
    ):
        assert np.allclose(got[0], want)


def test_integer_and_float_do_not_mix_silently() -> None:
    i, f = Variable(INT, (2, 2)), Variable(FLOAT, (2, 2))
    with pytest.raises(GraphError, match="to_float"):
        i + f
    with pytest.raises(GraphError, match=r"2\.5"):
        i + 2.5
    assert (i + 2).vtype is INT


# -- constants and leaves --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "vtype", "want"),
    [
        (2, None, FLOAT),
        ((1, 2), None, VEC2),
        (np.array([1.0, 2.0, 3.0]), None, VEC3),
        ([1, 2, 3, 4], None, VEC4),
        (3, INT, INT),
        ((1, 2, 3), IVEC3, IVEC3),
        (np.eye(3), MAT3, MAT3),
        (0.0, MAT4, MAT4),
        (-(2**31), INT, INT),
        (2**31 - 1, INT, INT),
    ],
)
def test_constant_holds_its_value(value: Any, vtype: VType | None, want: VType) -> None:
    c = F.constant(value, vtype)
    assert (c.vtype, c.size, c.layers) == (want, (1, 1), 1)
    expected = np.broadcast_to(np.asarray(value, float), want.tail)
    assert (evaluate([c], {})[0][0, 0, 0] == expected).all()


BAD_CONSTANTS: list[tuple[Any, VType | None]] = [
    (float("nan"), None),
    (float("inf"), None),
    ([1.0, float("-inf")], None),
    ([1, 2, 3, 4, 5], None),
    ([], None),
    ([1, 2], VEC3),
    (np.zeros((2, 2)), MAT3),
    (0.5, INT),
    (2**31, INT),
    (-(2**31) - 1, INT),
    (1e39, None),
    (-1e300, None),
    ("one", None),
    ([1, "two"], None),
    (None, None),
    (1j, None),
]


@pytest.mark.parametrize("k", range(len(BAD_CONSTANTS)))
def test_bad_constant_raises_graph_error(k: int) -> None:
    """Also beyond float32 and beyond 32-bit integers: no shader could hold them."""
    with pytest.raises(GraphError, match=r"test_graph\.py:\d+"):
        F.constant(*BAD_CONSTANTS[k])


def test_numbers_beyond_float32_raise_in_an_expression_too() -> None:
    with pytest.raises(GraphError):
        Variable(FLOAT) * 1e39


def test_leaf_holds_its_array() -> None:
    table = F.leaf(np.array([[1, 2], [3, 4], [5, 6]]), VEC2, "t")
    assert (table.size, table.layers, table.is_table) == ((3, 1), 1, True)
    assert (evaluate([table], {})[0][0, 0] == [[1, 2], [3, 4], [5, 6]]).all()
    assert F.leaf(np.zeros((2, 4, 3, 1)), FLOAT).size == (3, 4)


def test_leaf_of_the_wrong_shape_or_with_bad_numbers_raises() -> None:
    for bad in (np.zeros((3, 2)), np.zeros(()), np.zeros((1, 1, 1, 1, 3))):
        with pytest.raises(GraphError):
            F.leaf(bad, VEC3)
    with pytest.raises(GraphError):
        F.leaf(np.array([[np.nan, 0, 0]]), VEC3)
    with pytest.raises(GraphError):
        F.leaf(np.array([[0.5]]), INT)


@pytest.mark.parametrize(
    ("offsets", "columns", "values"),
    [
        ([1, 2], [0], [1.0]),
        ([0, 2, 1], [0, 1], [1.0, 1.0]),
        ([0, 3], [0, 1], [1.0, 1.0]),
        ([0, 2], [0, 1], [1.0]),
        ([0, 1], [4], [1.0]),
        ([0, 1], [-1], [1.0]),
        ([0], [], []),
    ],
)
def test_sparse_matrix_checks_itself(
    offsets: list[int], columns: list[int], values: list[float]
) -> None:
    with pytest.raises(GraphError, match="SparseMatrix"):
        F.linalg.SparseMatrix(np.array(offsets), np.array(columns), np.array(values), 4)


# -- printing and checking -------------------------------------------------------------------------


def test_graph_text_is_one_function_a_line() -> None:
    """
    a ---- mul -- add -- return
    b ----/      /
    b ----------/
    """
    a = Variable(VEC3, (4, 2), requires_grad=True, name="a")
    b = Variable(FLOAT, name="b")
    at_mul = here()
    c = a * b
    at_add = here()
    d = c + b
    assert graph_text([d]).splitlines() == [
        "leaf a VEC3@4x2  requires_grad",
        "leaf b FLOAT@1x1",
        f"%{c.uid} VEC3@4x2 = mul(a, b)  # {at_mul}",
        f"%{d.uid} VEC3@4x2 = add(%{c.uid}, b)  # {at_add}",
        f"return %{d.uid}",
    ]


def test_graph_text_shows_attributes_and_names() -> None:
    a = Variable(VEC3, (4, 2), name="a")
    y = F.swizzle(a, "zx")
    y.name = "picked"
    text = graph_text([y])
    assert "picked VEC2@4x2 = swizzle(a, comps='zx')" in text and text.endswith("return picked")


def test_topological_order_has_inputs_first_and_each_function_once() -> None:
    """A ladder of diamonds: 2^30 paths, 60 functions."""
    v = Variable(FLOAT, (2, 2))
    for _ in range(30):
        v = F.sin(v) + F.sin(v)
    functions = topological([v])
    assert len(functions) == 90
    seen: set[int] = set()
    for f in functions:
        assert all(x.creator is None or x.uid in seen for x in f.inputs)
        seen.add(f.output.uid)


def test_deep_graphs_need_no_recursion() -> None:
    v = Variable(FLOAT, (2, 2), requires_grad=True)
    leaf = v
    for _ in range(5000):
        v = v + 1.0
    (g,) = build_backward(v).values()
    simplify([v, g])
    assert evaluate([v], {leaf: np.zeros((2, 2))})[0][0, 0, 0, 0] == 5000


def test_leaves_are_in_order_of_making_and_once() -> None:
    a, b = Variable(FLOAT, name="a"), Variable(FLOAT, name="b")
    assert leaves([b * a + a]) == [a, b]


def test_check_graph_passes_what_F_makes() -> None:
    a = Variable(VEC3, (4, 2), requires_grad=True)
    y = F.mean(F.normalize(a) * F.sigmoid(a).x)
    check_graph([y, *build_backward(y).values()])


def test_check_graph_refuses_a_function_whose_output_was_changed() -> None:
    y = Variable(VEC3, (4, 2)) + 1.0
    y.size = (5, 5)
    with pytest.raises(GraphError, match=r"F\.add at test_graph\.py:\d+"):
        check_graph([y])


def test_duplicates_are_merged_and_differences_kept() -> None:
    a = Variable(VEC3, (4, 2))
    same = simplify([F.sin(a) + F.sin(a)])
    assert [f.op.name for f in topological(same)] == ["sin", "add"]
    other = simplify([F.swizzle(a, "x") + F.swizzle(a, "y")])
    assert [f.op.name for f in topological(other)] == ["swizzle", "swizzle", "add"]


def test_simplify_leaves_the_users_graph_alone() -> None:
    a = Variable(VEC3, (9, 9))
    y = F.sum(F.sin(a) + F.sin(a) + 0.0)
    before = graph_text([y])
    simplify([y])
    assert graph_text([y]) == before


def test_neutral_operations_disappear_only_when_the_shape_stays() -> None:
    a, one = Variable(VEC3, (4, 2)), Variable(FLOAT)
    assert simplify([a + 0.0])[0] is a
    assert simplify([(a - 0.0) / 1.0])[0] is a
    grown = simplify([one + np.zeros(3)])[0]
    assert grown.vtype is VEC3
    assert simplify([a * 0.0])[0] is not a
    assert simplify([0.0 - a])[0] is not a
    assert simplify([1.0 / a])[0] is not a


def test_a_choice_between_equals_disappears_only_when_the_shape_stays() -> None:
    """As of corners, of which a mask only holds the gradient back."""
    a, one, mask = (Variable(t, (4, 2)) for t in (VEC3, FLOAT, FLOAT))
    assert simplify([F.where(mask, F.stop_gradient(a), a)])[0] is a
    assert simplify([F.where(mask, one, one)])[0] is one
    assert simplify([F.where(mask, a, a)], fold=False)[0] is not a
    number = Variable(FLOAT)
    assert simplify([F.where(mask, number, number)])[0].size == (4, 2)


# -- lines -----------------------------------------------------------------------------------------


def test_error_names_op_line_and_inputs() -> None:
    a, b = Variable(VEC2, (4, 2), name="a"), Variable(VEC3, (4, 2), name="b")
    at = here()
    message = _message(lambda: a * b)
    assert f"F.mul at {at}" in message
    assert "inputs: a VEC2@4x2, b VEC3@4x2" in message


def _message(call: Callable[[], Any]) -> str:
    with pytest.raises(GraphError) as info:
        call()
    return str(info.value)


def test_backward_functions_carry_the_line_of_the_forward_op() -> None:
    a = Variable(FLOAT, (4, 2), requires_grad=True)
    at = here()
    y = F.sin(a)
    (g,) = build_backward(y).values()
    lines = {f.line for f in topological([g]) if f.op.name in ("cos", "mul")}
    assert lines == {at}


def test_lowered_functions_carry_the_line_of_the_macro() -> None:
    a = Variable(FLOAT, (40, 20))
    at = here()
    y = F.sum(a)
    assert {f.line for f in topological(simplify([y]))} == {at}


def test_every_error_is_one_of_ours_and_a_value_error() -> None:
    assert issubclass(GraphError, DressiError) and issubclass(GraphError, ValueError)


# -- indices ---------------------------------------------------------------------------------------


def test_static_index_outside_its_table_is_named_with_row_and_table() -> None:
    table = Variable(VEC3, (5, 1), name="vertices")
    faces = Variable(IVEC2, (3, 1), name="faces")
    at = here()
    y = F.lookup(table, faces.y)
    check_indices([y], {faces: np.array([[0, 1], [2, 4], [3, -1]])})
    with pytest.raises(GraphError) as info:
        check_indices([y], {faces: np.array([[0, 1], [2, 5], [3, 0]])})
    message = str(info.value)
    for part in (at, "index 5", "row 1", "vertices VEC3@5x1", "5 rows"):
        assert part in message
    with pytest.raises(GraphError, match="-2"):
        check_indices([y], {faces: np.array([[0, 1], [2, 0], [3, -2]])})


# -- fragments -------------------------------------------------------------------------------------


def _raster(size: tuple[int, int] = (4, 4), layer: int = 0) -> Variable:
    return F.rasterize([Variable(VEC4, (2, 1)) for _ in range(3)], size, layer)


def test_values_behind_a_rasterization_are_per_fragment_until_resolved() -> None:
    ids = _raster()
    table = Variable(FLOAT, (2, 1))
    depth = F.lookup(table, ids) * 0.5
    assert ids.fragment_of is not None and depth.fragment_of is ids.fragment_of
    image = F.resolve(ids, depth)
    assert image.fragment_of is None and image.size == (4, 4)


FRAGMENT_ERRORS: dict[str, Callable[[], Any]] = {
    "read at other pixels": lambda: F.image.border(F.to_float(_raster())),
    "a table": lambda: F.lookup(F.to_float(_raster()), Variable(INT, (3, 1))),
    "a texture": lambda: F.texture(F.to_float(_raster()), Variable(VEC2, (4, 4))),
    "a macro": lambda: F.sum(F.to_float(_raster())),
    "a scatter": lambda: F.scatter_add(F.to_float(_raster()), Variable(INT, (4, 4)), (3, 1)),
    "a sum over layers": lambda: F.sum_layers(
        F.rasterize([Variable(VEC4, (2, 1), 2) for _ in range(3)], (4, 4))
    ),
    "two rasterizations": lambda: _raster(layer=0) + _raster(layer=1),
    "resolve without fragments": lambda: F.resolve(1.0, F.constant(0.5)),
    "resolve of a matrix": lambda: F.resolve(Variable(MAT3), F.to_float(_raster())),
    "resolve with an INT depth": lambda: F.resolve(1.0, _raster()),
    "resolve with a VEC2 keep": lambda: F.resolve(1.0, F.to_float(_raster()), Variable(VEC2)),
}


@pytest.mark.parametrize("what", FRAGMENT_ERRORS)
def test_fragment_rules(what: str) -> None:
    with pytest.raises(GraphError, match=r"test_graph\.py:\d+"):
        FRAGMENT_ERRORS[what]()


def test_fragment_as_output_is_refused_by_check_graph() -> None:
    with pytest.raises(GraphError, match=r"F\.resolve"):
        check_graph([F.to_float(_raster())])


def test_equal_rasterizations_of_different_peels_are_not_merged() -> None:
    corners = [Variable(VEC4, (2, 1)) for _ in range(3)]
    images = [
        F.resolve(i, F.to_float(i)) for i in (F.rasterize(corners, (4, 4), k) for k in (0, 1))
    ]
    assert sum(f.op.name == "rasterize" for f in topological(simplify(images))) == 2


def test_names_of_types_are_complete() -> None:
    import dressi

    for kind, n in itertools.product(("VEC", "MAT", "IVEC"), (2, 3, 4)):
        assert getattr(dressi, f"{kind}{n}") is VType[f"{kind}{n}"]


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_only_one_pixel_is_uniform_sized(size: tuple[int, int]) -> None:
    assert Variable(FLOAT, size).is_uniform_sized == (size == (1, 1))


@pytest.mark.parametrize("length", [1, 38, 39])
def test_values_in_errors_are_cut_after_40_characters(length: int) -> None:
    text = "x" * (length - 1)
    cut = "'" + "x" * 36 + "..."
    assert short(text) == repr(text)
    assert short("x" * 39) == cut and len(cut) == 40


def test_integers_that_leave_32_bits_are_not_folded() -> None:
    for factor, folded in ((2**15 - 1, True), (2**15, False)):
        y = _product(2**16, factor)
        (out,) = simplify([y])
        assert (out.creator is None or not out.creator.inputs) == folded


def _product(a: int, b: int) -> Variable:
    return constant(np.int32(a), INT) * constant(np.int32(b), INT)


def test_what_static_indices_depend_on_is_found_once_and_forgotten_with_the_graph() -> None:
    """Integers are sent in every step of a fit, and its graph may have thousands of Functions."""
    table, rows, other = Variable(FLOAT, (5, 1)), Variable(INT, (3, 1)), Variable(INT)
    y = F.lookup(table, rows) * F.to_float(other)
    walks = []
    original = verify.topological
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "topological", lambda v: walks.append(v) or original(v))
        for _ in range(3):
            assert is_indexed_by([y], rows) and not is_indexed_by([y], other)
    assert len(walks) == 1
    n = len(verify._known)
    walks.clear()
    del y
    gc.collect()
    assert len(verify._known) < n
