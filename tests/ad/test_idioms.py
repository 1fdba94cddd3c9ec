"""Idioms of other libraries and comparisons of Variables: a sentence with Dressi's word."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dressi
from dressi import DressiWarning, GraphError
from dressi.ad import SGD, Adam, F, Momentum, Variable, evaluate
from dressi.ad.functions import FAMILIES, public_ops
from dressi.ad.idiom_words import ATTRIBUTES, OPS
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC3

x = Variable(FLOAT, (4, 4), name="x")
v = Variable(VEC3, (4, 4), name="v")
image = np.zeros((4, 4, 3), np.float32)
_parameter = Variable(FLOAT, (4, 4), requires_grad=True)

IDIOMS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "x[..., 0]": (lambda: v[..., 0], GraphError, "x.x"),
    "iteration": (lambda: list(v), GraphError, "x.x"),  # type: ignore[call-overload]
    "x[0] = 1": (lambda: v.__setitem__(0, 1), GraphError, "ad.send_img"),
    "x.mean()": (lambda: v.mean(), AttributeError, "F.mean(x)"),  # type: ignore[attr-defined]
    "x.shape": (lambda: v.shape, AttributeError, "x.size"),  # type: ignore[attr-defined]
    "x.dtype": (lambda: v.dtype, AttributeError, "x.vtype"),  # type: ignore[attr-defined]
    "x.backward()": (lambda: x.backward(), AttributeError, "exec_step"),  # type: ignore[attr-defined]
    "x.bgr": (lambda: v.bgr, AttributeError, "F.swizzle(x, 'bgr')"),  # type: ignore[attr-defined]
    "x.permute()": (lambda: v.permute(2, 0, 1), AttributeError, "no order"),  # type: ignore[attr-defined]
    "x.x = 1": (lambda: setattr(v, "x", 1.0), GraphError, "F.with_components"),
    "len(x)": (lambda: len(v), TypeError, "x.size"),
    "a & b": (lambda: x & x, GraphError, "F.logical_and"),
    "a | b": (lambda: x | x, GraphError, "F.logical_or"),
    "~a": (lambda: ~x, GraphError, "F.logical_not"),
    "a % b": (lambda: x % 2, GraphError, "F.mod"),
    "a // b": (lambda: x // 2, GraphError, "F.floor"),
    "max(a, b)": (lambda: max(x, 0), GraphError, "F.maximum"),  # type: ignore[call-overload]
    "round(x)": (lambda: round(x), GraphError, "F.round"),  # type: ignore[call-overload]
    "float(x)": (lambda: float(x), GraphError, "recv_img"),  # type: ignore[arg-type]
    "np.asarray(x)": (lambda: np.asarray(x), GraphError, "recv_img"),
    "np.mean(x)": (lambda: np.mean(v), GraphError, "recv_img"),  # type: ignore[call-overload]
    "np.sin(x)": (lambda: np.sin(x), GraphError, "F.sin"),  # type: ignore[call-overload]
    "x * array": (lambda: v * image, GraphError, "F.leaf"),
    "array * x": (lambda: image * v, GraphError, "F.leaf"),
    "F.lerp": (lambda: F.lerp, AttributeError, "F.mix"),  # type: ignore[attr-defined]
    "torch.sin(x)": (lambda: _torch().sin(x), GraphError, "F.sin"),
    "F.resize": (lambda: F.image.resiz, AttributeError, "F.image.resize"),  # type: ignore[attr-defined]
    "F.dFdx": (lambda: F.dFdx, AttributeError, "F.image.image_gradient"),  # type: ignore[attr-defined]
    "a file of ops": (lambda: F.arith, AttributeError, "no op"),
    "F.inverse": (lambda: F.linalg.invers, AttributeError, "F.linalg.inverse"),  # type: ignore[attr-defined]
    "F.bits.sin": (lambda: F.bits.sin, AttributeError, "F.sin"),  # type: ignore[attr-defined]
    "Adam([x], lr)": (lambda: Adam([x], lr=0.1), GraphError, "takes no parameters"),  # type: ignore[misc, list-item]
    "SGD([x])": (lambda: SGD([x]), GraphError, "takes no parameters"),  # type: ignore[arg-type]
    "SGD(x, lr=)": (lambda: SGD(_parameter, lr=0.1), GraphError, "takes no parameters"),  # type: ignore[misc]
    "groups": (lambda: Adam([{"params": [x]}]), GraphError, "takes no parameters"),  # type: ignore[arg-type, list-item]
    "Adam(betas=)": (lambda: Adam(betas=(0.9, 0.99)), GraphError, "beta1"),  # type: ignore[call-arg]
    "Momentum(params=)": (lambda: Momentum(params=[x]), GraphError, "takes no parameters"),  # type: ignore[call-arg]
    "zero_grad": (lambda: Adam().zero_grad(), AttributeError, "exec_step"),  # type: ignore[attr-defined]
    "y.requires_grad": (lambda: setattr(x * 2.0, "requires_grad", True), GraphError, "F.mul at"),
}  # fmt: skip


def _torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.parametrize("idiom", IDIOMS)
def test_an_idiom_of_another_library_names_what_there_is(idiom: str) -> None:
    call, kind, word = IDIOMS[idiom]
    with pytest.raises(kind) as info:
        call()
    assert word in str(info.value)
    if kind is GraphError:
        assert "test_idioms.py:" in str(info.value)


def test_the_words_for_idioms_name_ops_that_exist() -> None:
    for text in (*ATTRIBUTES.values(), *(f"F.{text}" for text in OPS.values())):
        for name in re.findall(r"\bF\.([a-z_]\w*(?:\.\w+)?)", text):
            assert name in public_ops() or name in FAMILIES, text


OBJECTS = ["where", "mul", "sum of both", "mean", "1 - mask", "and", "not"]


@pytest.mark.parametrize("where", OBJECTS)
def test_a_comparison_of_objects_is_refused_by_ops(where: str) -> None:
    call = {
        "where": lambda: F.where(x == 0, x, 1.0),
        "mul": lambda: x * (x != 2.0),
        "sum of both": lambda: F.add(x == v, 1.0),
        "mean": lambda: F.mean(x == 0),
        "1 - mask": lambda: 1 - (x == 0),
        "and": lambda: (x == 0) & (v == 1),
        "not": lambda: ~(x == 0),
    }[where]
    with pytest.raises(GraphError, match=r"compares Python objects(.|\n)*F\.(not_)?equal"):
        call()


def test_equality_stays_that_of_objects() -> None:
    y = Variable(FLOAT, (4, 4), name="x")
    assert x == x and x != y and x in [y, x] and {x: 1}[x] == 1 and y not in {x: 1}
    assert bool(x == None) is False  # noqa: E711


def test_a_truth_value_of_a_comparison_with_a_number_warns() -> None:
    with pytest.warns(DressiWarning, match=r"F\.equal"):
        assert bool(x == 0) is False


def test_a_number_of_numpy_on_the_left_is_a_constant() -> None:
    (got,) = evaluate([np.float32(3) - x], {x: np.ones((4, 4))})
    assert (got == 2).all()
    (power,) = evaluate([2.0**x], {x: np.full((4, 4), 3.0)})
    assert np.allclose(power, 8)


def test_a_tensor_of_pytorch_is_named() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(GraphError, match=r"torch\.Tensor(.|\n)*detach\(\)"):
        v * torch.zeros(4, 4, 3)
    with pytest.raises(GraphError, match="detach"):
        v * torch.zeros(3, requires_grad=True)
    with pytest.raises(GraphError, match=r"v VEC3@4x4(.|\n)*detach"):
        evaluate([v + 1.0], {v: torch.zeros(4, 4, 3, requires_grad=True)})
    (got,) = evaluate([torch.tensor([1.0, 2.0, 4.0]) - v], {v: np.ones((4, 4, 3))})
    assert (got == [0, 1, 3]).all()


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_integers_of_an_image_file_sent_as_a_colour_warn(kind: Any) -> None:
    with pytest.warns(DressiWarning, match=rf"in \[0, 1\](.|\n)*{np.iinfo(kind).max}\.0"):
        F.leaf(np.full((2, 2, 3), 200, kind), VEC3)
    F.leaf(np.ones((2, 2, 1), kind), FLOAT)  # a mask


LEVELS = np.arange(48).reshape(4, 4, 3) * 5.0  # 0 to 235, as an 8-bit photo has them


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_levels_of_a_photo_as_floats_or_integers_warn(kind: Any) -> None:
    with pytest.warns(DressiWarning, match=r"v VEC3@4x4: .* up to 235(.|\n)*image / 255"):
        evaluate([v + 1.0], {v: LEVELS.astype(kind)})


def test_colours_lamps_and_labels_are_no_levels_of_a_photo() -> None:
    lamp, labels = np.zeros((4, 4, 3)), np.floor(LEVELS / 100)
    lamp[1, 2] = 50.0
    for image in (LEVELS / 255, lamp, labels, LEVELS * 10, -LEVELS, LEVELS + 0.5):
        F.leaf(image, VEC3)
    F.leaf(LEVELS[..., :1], FLOAT)
    F.leaf(LEVELS.reshape(16, 3), VEC3)  # positions


MISFITS = {
    "components first": (v, (3, 4, 4), r"transpose\(1, 2, 0\)"),
    "alpha": (v, (4, 4, 4), "first 3 of 4"),
    "grey": (v, (4, 4), "grey"),
    "width first": (Variable(VEC3, (8, 4)), (8, 4, 3), r"\(height, width\)"),
    "columns of points": (Variable(VEC3, (9, 1)), (3, 9), r"array\.T"),
    "other points": (Variable(VEC3, (9, 1)), (7, 3), r"size \(7, 1\)"),
    "quads": (Variable(IVEC3, (9, 1)), (9, 4), "triangles"),
    "3x4": (Variable(MAT4), (3, 4), "last row"),
    "views": (Variable(MAT4), (6, 4, 4), "layers=6"),
}


@pytest.mark.parametrize("kind", MISFITS)
def test_an_array_of_another_convention_is_explained(kind: str) -> None:
    variable, shape, word = MISFITS[kind]
    with pytest.raises(GraphError, match=rf"needs an array of shape(.|\n)*hint: .*{word}"):
        evaluate([variable], {variable: np.zeros(shape)})


def test_strict_raises_where_a_warning_would_be_issued() -> None:
    bytes_ = np.full((2, 2, 3), 200, np.uint8)
    with dressi.strict(), pytest.raises(GraphError, match=r"in \[0, 1\]"):
        F.leaf(bytes_, VEC3)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        F.leaf(bytes_, VEC3)
    assert len(seen) == 1 and "test_idioms.py" in seen[0].filename


def test_a_cell_of_a_notebook_is_named_as_the_notebook_does() -> None:
    shell_module = pytest.importorskip("IPython.core.interactiveshell")
    shell = shell_module.InteractiveShell()
    shell_module.InteractiveShell._instance, before = shell, shell_module.InteractiveShell._instance
    try:
        code = "from dressi import FLOAT, Variable\n\nline = Variable(FLOAT).line"
        shell.execution_count = 3
        assert shell.run_cell(code, store_history=True).success
        assert shell.user_ns["line"] == "In [3]:3"
    finally:
        shell_module.InteractiveShell._instance = before
        shell.history_manager.end_session()
