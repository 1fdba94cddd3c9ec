"""Idioms of other libraries and comparisons of Variables: a sentence with Dressi's word."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dressi
from dressi import DressiWarning, GraphError
from dressi.ad import SGD, Adam, F, Momentum, Variable, evaluate
from dressi.ad.functions import FAMILIES, public_ops
from dressi.ad.idiom_words import ATTRIBUTES, OPS
from dressi.ad.vtype import FLOAT, INT, IVEC3, MAT4, VEC3

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
    "f'{x:.3f}'": (lambda: f"{x:.3f}", GraphError, "recv_img"),
    "a << b": (lambda: x << 1, GraphError, "F.bits.shift_left"),  # type: ignore[operator]
    "F.sum(x, axis=)": (lambda: F.sum(v, axis=0), GraphError, "per_layer=True"),  # type: ignore[call-arg]
    "F.mean(x, dim=)": (lambda: F.mean(v, dim=-1), GraphError, "F.sum_components"),  # type: ignore[call-arg]
    "F.sum(x, 0)": (lambda: F.sum(v, 0), GraphError, "per_layer must be True or False"),
    "F.argmax(x, -1)": (lambda: F.argmax(v, -1), GraphError, "per_layer must be True or False"),  # type: ignore[arg-type]
    "F.clamp(x, min=)": (lambda: F.clamp(x, min=0), GraphError, "F.clamp(x, low, high)"),  # type: ignore[call-arg]
    "F.hypot": (lambda: F.hypot, AttributeError, "F.length"),  # type: ignore[attr-defined]
    "v @ v": (lambda: v @ v, GraphError, "F.dot"),
    "m @ v of 3": (lambda: Variable(MAT4) @ v, GraphError, "F.vec4(v, 1.0)"),
    "v @ m": (lambda: F.vec4(v, 1.0) @ Variable(MAT4), GraphError, "F.transpose(m) @ v"),
    "Variable(array)": (lambda: Variable(image), GraphError, "F.leaf(array, VEC3)"),  # type: ignore[arg-type]
    "state_dict": (lambda: Adam(0.1).state_dict, AttributeError, "ad.state_dict"),  # type: ignore[attr-defined]
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


def test_a_quotient_of_integers_warns_where_a_user_writes_it() -> None:
    i = Variable(INT, (4, 4), name="i")
    for quotient in (lambda: i / 2, lambda: 7 / i):
        with pytest.warns(DressiWarning, match=r"test_idioms.py(.|\n)*F.to_float\(a\) / b"):
            quotient()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        F.div(i, 2), F.idiv(i, 2), F.to_float(i) / 2


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
    F.leaf(np.arange(256.0).reshape(16, 16), FLOAT)  # numbers that count


def test_a_mask_of_an_8_bit_file_as_floats_warns() -> None:
    mask = np.zeros((4, 4))
    mask[1:3] = 255
    for sent in (mask, np.full((4, 4), 255.0)):
        with pytest.warns(DressiWarning, match=r"masks image / 255"):
            F.leaf(sent, FLOAT)
    F.leaf(mask / 255, FLOAT)


NO_DATA = {
    "camera": (lambda: SimpleNamespace(matrix=np.eye(4)), r"camera\.matrix"),
    "cameras": (lambda: [SimpleNamespace(matrix=np.eye(4))], r"np\.stack"),
    "mesh": (lambda: SimpleNamespace(positions=image), r"mesh\.positions"),
    "path": (lambda: "a.png", "read_image"),
    "ragged": (lambda: [[1.0, 2.0], [3.0]], "rows of one length"),
    "complex": (lambda: image * 1j, r"array\.real"),
}


@pytest.mark.parametrize("kind", NO_DATA)
def test_what_is_no_array_says_which_part_of_it_is(kind: str) -> None:
    make, hint = NO_DATA[kind]
    with pytest.raises(GraphError, match=rf"v VEC3@4x4: cannot use(.|\n)*{hint}"):
        evaluate([v + 1.0], {v: make()})


def test_positions_of_whole_numbers_are_no_levels() -> None:
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
