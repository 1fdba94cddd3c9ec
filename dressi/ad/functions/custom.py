"""User-defined ops: a GLSL snippet, a rule for the shape, and, on request, a backward and a NumPy
reference.

A custom op is no row of the registry: it belongs to the program that makes it. Everything else, the
packer, autodiff, F.jvp and dressi.gradcheck included, treats it like any other op.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dressi.ad.functions._common import lift
from dressi.ad.graph import Function, Size, Variable, checked_shape, short, user_line
from dressi.ad.kernels import Kernel, implement
from dressi.ad.registry import ANY, OPS, SAME, Op, Shape, apply
from dressi.ad.shape import broadcast
from dressi.ad.vtype import VType
from dressi.errors import GraphError
from dressi.kinds import Access

Infer = VType | int | Callable[..., Any]
Backward = Callable[[Function, Variable, int], Variable | None]

_MARKER = re.compile(r"\{([A-Za-z_]\w*)\}")
_OF_OUTPUT = ("y", "T", "wy", "hy", "ly", "pos", "layer")
_OF_INPUT = re.compile(r"(x|T|fetch|w|h|l)(\d+)")
_WIDTH = re.compile(r"\{w(y|\d+)\}")
_OF_VALUES = re.compile(r"\b(?:[vi]\d+|carried)\b")
"""Names that shaders give to values: a snippet that declares one would hide what a marker means."""


@dataclass(frozen=True)
class _Source:
    """What makes two custom Functions equal: the text, how it reads, and what it gives."""

    text: str
    reads: tuple[str, ...]
    shape: Shape
    reference: Callable[..., Any] | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        vtype, (width, height), layers = self.shape
        return f"{self.text!r} -> {vtype.name}@{width}x{height}x{layers}, reads {self.reads}"


def custom(
    glsl: str,
    infer: Infer,
    backward: Backward | None = None,
    reference: Callable[..., Any] | None = None,
    name: str = "custom",
    reads: Access | Sequence[Access] | None = None,
) -> Callable[..., Variable]:
    """An op of your own: returns a function of Variables (and numbers), like those of F.

    glsl: the statements of one pixel, with markers: {y} the output, to be assigned; {x0}, {x1} ...
    the inputs at this pixel; {fetch0}(ivec2 pos, int layer) an input at any pixel; {T}, {T0} types;
    {w0} {h0} {l0} size and layers of an input, {wy} {hy} {ly} of the output; {pos} {layer} this
    pixel. infer: the output's VType (size and layers: those that the inputs broadcast to), or the
    number of the input that it is like, or a function of the inputs that returns a VType or (VType,
    size, layers). backward: (f, gy, i) -> gradient of input i as a graph of F ops (f.inputs,
    f.output, gy), or None. reference: function of NumPy arrays (layers, H, W, components), one an
    input, float64, that returns the output; dressi.evaluate and dressi.gradcheck need it. name: in
    reports and errors. reads: "same" or "any", for each input (the last repeats); default: as the
    snippet's markers say. Gradient: by ``backward``; without it the op has none. Raises GraphError,
    at the line of F.custom or of its call, for whatever does not fit.
    """
    where = "F.custom"
    _check(where, glsl, infer, backward, reference, name)
    ways = _reads(where, reads)
    defined = user_line()

    def write(f: Function) -> str:
        text = _WIDTH.sub(lambda marker: _width(f, marker[1]), f.attr("glsl").text)
        lines = _OF_VALUES.sub(r"\g<0>_", text.strip("\n")).split("\n")
        # Braces: names that the snippet declares are its own.
        return "\n".join([f"{{  // F.custom  {defined}", *lines, "}"])

    kernel = Kernel(write)
    variants: dict[tuple[str, ...], Op] = {}

    def call(*inputs: Any) -> Variable:
        xs = lift(name, *inputs)
        here = f"F.{name}"
        by_input = _ways(here, glsl, ways, len(xs))
        if by_input not in variants:
            variants[by_input] = implement(
                Op(
                    name,
                    infer=lambda xs, attrs: attrs["glsl"].shape,
                    reads=by_input or (SAME,),
                    backward=None if backward is None else _backward(backward),
                    reference=_reference,
                ),
                kernel,
            )
        shape = _shape(here, infer, xs, by_input)
        return apply(variants[by_input], xs, glsl=_Source(glsl, by_input, shape, reference))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"The custom op made at {defined}."
    return call


def _width(f: Function, of: str) -> str:
    """A width as a number, as snippets may need it (the length of an array). of: y, or the number
    of an input."""
    v = f.output if of == "y" else f.inputs[int(of)]
    return str(v.size[0])


def at_size(
    f: Function, xs: Sequence[Variable], attrs: dict[str, Any], size: Size
) -> dict[str, Any]:
    """Attributes with which a Function of inputs xs gives an image of ``size``, where both have
    more rows than f's and its output: the snippet of a custom op goes on seeing the old heights.
    Those of other ops come back as they are."""
    source = attrs.get("glsl")
    if not isinstance(source, _Source):
        return attrs
    text = source.text.replace("{hy}", str(f.output.size[1]))
    for i, (x, old) in enumerate(zip(xs, f.inputs, strict=True)):
        if x.size != old.size:
            text = text.replace(f"{{h{i}}}", str(old.size[1]))
    shape = (source.shape[0], size, source.shape[2])
    return {**attrs, "glsl": replace(source, text=text, shape=shape)}


def _check(
    where: str, glsl: object, infer: object, backward: object, reference: object, name: object
) -> None:
    if not isinstance(name, str) or not name.isidentifier() or "__" in name:
        raise GraphError(f"{where}: name must be an identifier, got {short(name)}")
    if name in OPS:
        raise GraphError(f"{where}: F has an op named {name!r}; take another name")
    if not isinstance(glsl, str):
        raise GraphError(f"{where}: glsl must be a string, got {short(glsl)}")
    markers = set(_MARKER.findall(glsl))
    if "y" not in markers:
        raise GraphError(f"{where}: the snippet must assign {{y}}, got {short(glsl)}")
    unknown = [m for m in markers if m not in _OF_OUTPUT and not _OF_INPUT.fullmatch(m)]
    if unknown:
        raise GraphError(
            f"{where}: no marker {', '.join(f'{{{m}}}' for m in sorted(unknown))}; there are "
            "{y} {x0} {fetch0} {T} {T0} {w0} {h0} {l0} {wy} {hy} {ly} {pos} {layer}"
        )
    is_number = isinstance(infer, int) and not isinstance(infer, bool)
    if not (isinstance(infer, VType) or is_number or callable(infer)):
        raise GraphError(
            f"{where}: infer must be a VType, the number of an input, or a function of the inputs, "
            f"got {short(infer)}"
        )
    for what, value in (("backward", backward), ("reference", reference)):
        if value is not None and not callable(value):
            raise GraphError(f"{where}: {what} must be a function, got {short(value)}")


def _reads(where: str, reads: Any) -> tuple[str, ...] | None:
    if reads is None:
        return None
    ways = (reads,) if isinstance(reads, str) else reads
    if not isinstance(ways, (list, tuple)) or not ways or any(w not in (SAME, ANY) for w in ways):
        raise GraphError(f"{where}: reads must be {SAME!r} or {ANY!r} an input, got {short(reads)}")
    return tuple(ways)


def _ways(here: str, glsl: str, ways: tuple[str, ...] | None, n: int) -> tuple[str, ...]:
    """How each of n inputs is read; GraphError where the snippet does otherwise."""
    used: dict[int, set[str]] = {}
    for marker in _MARKER.findall(glsl):
        match = _OF_INPUT.fullmatch(marker)
        if match is not None and marker not in _OF_OUTPUT:
            used.setdefault(int(match[2]), set()).add(match[1])
    if used and max(used) >= n:
        raise GraphError(f"{here}: the snippet uses input {max(used)}, the call has {n}")
    if ways is not None and len(ways) > max(n, 1):
        raise GraphError(f"{here}: reads are given for {len(ways)} inputs, the call has {n}")
    out = []
    for i in range(n):
        kinds = used.get(i, set())
        way = ways[min(i, len(ways) - 1)] if ways else ANY if "fetch" in kinds else SAME
        if way == ANY and "x" in kinds:
            raise GraphError(
                f"{here}: input {i} is read at any pixel: write {{fetch{i}}}({{pos}}, {{layer}}) "
                f"for {{x{i}}}"
            )
        if way == SAME and "fetch" in kinds:
            raise GraphError(f"{here}: input {i} is read at the same pixel, but has {{fetch{i}}}")
        out.append(way)
    return tuple(out)


def _shape(here: str, infer: Infer, xs: Sequence[Variable], ways: Sequence[str]) -> Shape:
    """Type, size and layers of the output."""
    same = [x for x, way in zip(xs, ways, strict=True) if way == SAME]
    size: Size
    layers: int
    if isinstance(infer, int):
        if not 0 <= infer < len(xs):
            raise GraphError(f"{here}: infer names input {infer}, the call has {len(xs)}")
        vtype, size, layers = xs[infer].vtype, xs[infer].size, xs[infer].layers
    else:
        given = infer if isinstance(infer, VType) else infer(*xs)
        if isinstance(given, tuple) and len(given) == 3:
            given, (size, layers) = given[0], checked_shape(here.split(" at ")[0], *given[1:])
        else:
            try:
                size, layers = broadcast(same or xs)
            except GraphError as error:
                raise GraphError(f"{here}: {error.reason}") from None
        if not isinstance(given, VType):
            raise GraphError(
                f"{here}: infer must give a VType or (VType, size, layers), got {short(given)}"
            )
        vtype = given
    for x in same:
        if x.size not in ((1, 1), size) or x.layers not in (1, layers):
            raise GraphError(
                f"{here}: {x.label()} is read at the same pixel, but the output is "
                f"{size[0]}x{size[1]} with {layers} layers"
            )
    return vtype, size, layers


def _backward(build: Backward) -> Backward:
    def checked(f: Function, gy: Variable, i: int) -> Variable | None:
        g, x = build(f, gy, i), f.inputs[i]
        if g is None:
            return None
        if not isinstance(g, Variable):
            raise GraphError(f"{f.where}: its backward returned {short(g)}, no Variable")
        sizes = (g.size == x.size or (1, 1) in (g.size, x.size)) and (
            g.layers == x.layers or 1 in (g.layers, x.layers)
        )
        if g.vtype != x.vtype or not sizes:
            raise GraphError(
                f"{f.where}: its backward gives input {i}, {x.label()}, a gradient {g.label()}"
            )
        return g

    return checked


def _reference(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    source: _Source = f.attr("glsl")
    if source.reference is None:
        raise GraphError(
            f"{f.where}: has no reference, so NumPy cannot evaluate it\n"
            "  hint: F.custom(..., reference=function of arrays)"
        )
    y = f.output
    want = (y.layers, y.size[1], y.size[0], *y.vtype.tail)
    got: Any = source.reference(*xs)
    try:
        array = np.asarray(got)
        if array.dtype.kind not in "fiub":
            raise TypeError
        return np.broadcast_to(array.astype(np.float64), want)
    except (TypeError, ValueError):
        raise GraphError(
            f"{f.where}: its reference gave {_what(got)}, not an array of shape {want}"
        ) from None


def _what(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return short(value) if shape is None else f"shape {tuple(shape)}"
