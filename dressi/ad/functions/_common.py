"""What the function files share: conversion of Python values, inference rules, gradient fitting."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dressi.ad.evaluate import as_array
from dressi.ad.graph import Function, Size, Variable, short
from dressi.ad.idioms import Identity, no_vtype, not_in_graph
from dressi.ad.kernels import Kernel, register
from dressi.ad.precision import say_far
from dressi.ad.registry import FREE, Case, Infer, Op, Shape, apply
from dressi.ad.shape import broadcast
from dressi.ad.vtype import VType, vector
from dressi.errors import GraphError

_MAX_FLOAT = float(np.finfo(np.float32).max)

# GLSL has no literals of these, and divisions by 0 need not give them: their bits do.
NAN, INFINITY = "uintBitsToFloat(0x7fc00000u)", "uintBitsToFloat(0x7f800000u)"


def literal(value: float, integer: bool) -> str:
    """A GLSL literal that reads back as the same float32 (or int32)."""
    if integer:
        # -2147483648 is not a literal but a negated one that overflows.
        return str(int(value)) if int(value) > -(2**31) else "(-2147483647 - 1)"
    text = repr(float(np.float32(value)))
    return text if any(c in text for c in ".e") else text + ".0"


def _const_glsl(f: Function) -> str:
    vtype: VType = f.attr("vtype")
    values = f.attr("values")
    if vtype.n_words == 1:
        return f"{{y}} = {literal(values[0], vtype.is_int)};"
    if vtype.is_matrix:  # stored row by row; GLSL wants columns
        values = [values[r * vtype.n + c] for c in range(vtype.n) for r in range(vtype.n)]
    return f"{{y}} = {{T}}({', '.join(literal(v, vtype.is_int) for v in values)});"


CONST = Op(
    "constant",
    infer=lambda xs, a: (a["vtype"], (1, 1), 1),
    exact=True,
    kind=FREE,
    zero_if=lambda f: None if any(f.attr("values")) else (),
    reference=lambda f, xs: np.asarray(f.attr("values"), dtype=np.float64).reshape(
        (1, 1, 1, *f.attr("vtype").tail)
    ),
    no_cases="no inputs; its values are tested in test_graph.py",
)
register(CONST, Kernel(_const_glsl))


def constant(value: Any, vtype: VType | None = None) -> Variable:
    """A value written into the shaders that use it.

    value: number (repeated in every component or entry), flat sequence of 2 to 4 numbers, or an
    n x n array for a matrix type. vtype: the type; default FLOAT or VECn (INT for Python ints is
    chosen only when asked for). Raises GraphError for what is no number, NaN, infinity, a wrong
    count, fractions for an integer type, and values beyond float32 or int32. No gradient.
    """
    array = numbers("constant", value)
    if vtype is None:
        vtype = _type_of("constant", array)
    if not isinstance(vtype, VType):
        raise GraphError(f"F.constant: vtype must be a VType, got {vtype!r}")
    return _constant("constant", array, vtype)


def _constant(name: str, array: np.ndarray, vtype: VType) -> Variable:
    where = f"F.{name}"
    if array.size == 1 and vtype.n_words > 1:
        array = np.full(vtype.n_words, array.reshape(-1)[0])
    if array.size != vtype.n_words:
        raise GraphError(f"{where}: {vtype.name} needs {vtype.n_words} numbers, got {array.size}")
    if not np.isfinite(array).all():
        raise GraphError(f"{where}: NaN or infinity in {array.tolist()}")
    if vtype.is_int and (array != np.trunc(array)).any():
        raise GraphError(f"{where}: {array.tolist()} is not {vtype.name}")
    if vtype.is_int and (array.max() > 2**31 - 1 or array.min() < -(2**31)):
        raise GraphError(f"{where}: {array.tolist()} is beyond 32-bit integers")
    if np.abs(array).max() > _MAX_FLOAT:
        raise GraphError(f"{where}: {array.tolist()} is beyond float32")
    values = tuple(float(v) for v in array.reshape(-1))
    return apply(CONST, (), values=values, vtype=vtype)


def numbers(name: str, value: Any) -> np.ndarray:
    """A float64 array of a number or nested sequence; else GraphError. name: the op."""
    if isinstance(value, Identity):
        raise value.refused(f"F.{name}")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # nested sequences of unequal lengths
        array = np.asarray(None)
    except RuntimeError as error:  # of PyTorch, for a tensor that has a gradient
        raise GraphError(
            f"F.{name}: {type(value).__name__} is no constant: {error}\n  hint: gradients of "
            "PyTorch go through dressi.torch; else tensor.detach().cpu().numpy()"
        ) from None
    if array.dtype.kind not in "fiub" and array.size:
        hint = "\n  hint: F.vec makes a vector of Variables" if type(value) in (list, tuple) else ""
        raise GraphError(
            f"F.{name}: needs Variables or numbers, got {type(value).__name__} {short(value)}{hint}"
        )
    return array.astype(np.float64)


def _type_of(name: str, array: np.ndarray, integer: bool = False) -> VType:
    if array.size not in (1, 2, 3, 4):
        raise GraphError(f"F.{name}: needs 1 to 4 numbers, got {array.size}")
    return vector(array.size, integer)


def is_constant(x: Variable, value: float | None = None) -> bool:
    """Whether x is a constant (of that value in all components)."""
    values = constant_values(x)
    return bool(values) and (value is None or all(v == value for v in values))


def constant_values(x: Variable) -> tuple[float, ...]:
    """The numbers of a constant, row by row; empty when x is none."""
    return x.creator.attr("values") if x.creator is not None and x.creator.op is CONST else ()


def leaf(array: np.ndarray, vtype: VType, name: str | None = None) -> Variable:
    """A leaf that holds ``array`` until something else is sent.

    array: (N, C), (H, W, C) or (layers, H, W, C), C = components of vtype ((n, n) for a matrix), or
    (N,) or (H, W) for FLOAT and INT; without N for 1x1. Raises GraphError for other shapes, NaN,
    infinity, and values that float32 or int32 cannot hold. No gradient unless ``requires_grad`` is
    set.
    """
    if not isinstance(vtype, VType):
        raise no_vtype("F.leaf", short(vtype))
    try:
        a = np.asarray(array)
    except ValueError:  # nested sequences of unequal lengths
        a = np.asarray(None)
    if vtype.n == 1 and a.ndim in (1, 2) and a.shape[-1] != 1:
        a = a[..., None]
    tail = vtype.tail
    if not len(tail) <= a.ndim <= 3 + len(tail) or a.shape[-len(tail) :] != tail:
        raise GraphError(f"F.leaf: an array of shape {a.shape} is no {vtype.name} image")
    a = a.reshape((1,) * (3 + len(tail) - a.ndim) + a.shape)
    out = Variable(vtype, (a.shape[2], a.shape[1]), a.shape[0], name=name)
    checked = as_array(a, out)
    say_far(out, checked)
    out.data = checked.astype(np.int32 if vtype.is_int else np.float32)
    return out


def lift(name: str, *values: Any) -> list[Variable]:
    """Variables as they are; numbers and sequences as constants of the base type of the Variables.

    name: the op, for the GraphError that anything else raises.
    """
    integer = any(isinstance(v, Variable) and v.vtype.is_int for v in values) and not any(
        isinstance(v, Variable) and not v.vtype.is_int for v in values
    )
    out = []
    for v in values:
        if isinstance(v, Variable):
            out.append(v)
        else:
            array = numbers(name, v)
            if array.size > 4 and hasattr(v, "dtype"):
                raise not_in_graph(f"F.{name}", v, array.shape)
            out.append(_constant(name, array, _type_of(name, array, integer)))
    return out


def call(op: Op, *values: Any, **attrs: Any) -> Variable:
    """Apply an op to Variables, numbers and sequences."""
    return apply(op, lift(op.name, *values), **attrs)


def needs_variable(name: str, x: Any) -> Variable:
    """x, or GraphError when it is no Variable. name: the op."""
    if isinstance(x, Identity):
        raise x.refused(f"F.{name}")
    if not isinstance(x, Variable):
        raise GraphError(f"F.{name}: needs a Variable, got {type(x).__name__} {short(x)}")
    return x


def needs_int(name: str, what: str, value: Any) -> int:
    """value as an int, or GraphError. name: the op; what: its argument."""
    try:
        return operator.index(value)
    except TypeError:
        raise GraphError(f"F.{name}: {what} must be an int, got {short(value)}") from None


def same(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    """One input of any type; the output is like it."""
    return xs[0].vtype, xs[0].size, xs[0].layers


def like(needed: str, fits: Callable[[VType], bool]) -> Infer:
    """Return the rule of an op whose output is like its first input. needed: the types that fit,
    for the GraphError that others raise."""

    def infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
        if not fits(xs[0].vtype):
            raise GraphError(f"needs {needed}, got {xs[0].vtype.name}")
        return same(xs, attrs)

    return infer


like_float = like("FLOAT", lambda t: t is VType.FLOAT)
like_floats = like("FLOAT or VECn", lambda t: not t.is_int and not t.is_matrix)
like_integers = like("INT or IVECn", lambda t: t.is_int)
like_matrix = like("MATn", lambda t: t.is_matrix)
like_components = like("a scalar or vector", lambda t: not t.is_matrix)


def linear(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    """Elementwise, and matrices of one type."""
    if xs[0].vtype.is_matrix and all(x.vtype == xs[0].vtype for x in xs):
        return xs[0].vtype, *broadcast(xs)
    return elementwise(xs, attrs)


def elementwise(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    """Equal types, or scalars mixed with one vector type of the same base."""
    for x in xs:
        if x.vtype.is_matrix:
            raise GraphError(
                f"takes no {x.vtype.name}; use F.matmul, F.scale, or F.linalg.column one by one"
            )
    size, layers = broadcast(xs)
    vtype = xs[0].vtype
    for x in xs[1:]:
        if x.vtype == vtype:
            continue
        if x.vtype.is_int != vtype.is_int:
            raise GraphError(
                f"{vtype.name} and {x.vtype.name} do not mix; convert with F.to_float or F.to_int"
            )
        if vtype.n == 1:
            vtype = x.vtype
        elif x.vtype.n != 1:
            raise GraphError(f"{vtype.name} and {x.vtype.name} do not mix")
    return vtype, size, layers


def float_elementwise(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    """Elementwise on FLOAT and VECn only."""
    vtype, size, layers = elementwise(xs, attrs)
    if vtype.is_int:
        raise GraphError(f"needs FLOAT or VECn, got {vtype.name}")
    return vtype, size, layers


def sized(
    build: Callable[..., Variable],
    inputs: tuple[tuple[VType, float, float], ...],
    *sizes: Size,
    gradient: bool = True,
    **more: Any,
) -> Case:
    """Return a Case whose inputs have these sizes: one for each of them, or one for all. gradient:
    whether it is compared where an input is a float."""
    given = sizes * len(inputs) if len(sizes) == 1 else sizes
    has_float = any(not vtype.is_int for vtype, _, _ in inputs)
    return Case(build, inputs, gradient and has_float, elementwise=False, sizes=given, **more)


def table_index(n_width: str, index: str, is_table: bool) -> str:
    """GLSL position of linear index ``index`` in an image of width ``n_width``.

    is_table: whether the image has height 1.
    """
    return f"ivec2({index}, 0)" if is_table else f"ivec2({index} % {n_width}, {index} / {n_width})"


def n_pixels(v: Variable, width: str) -> str:
    """GLSL of the number of pixels of a layer of v: of a table the marker of its width, which is
    no number in the text."""
    return f"{{{width}}}" if v.is_table else str(v.size[0] * v.size[1])
