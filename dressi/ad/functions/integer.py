"""Integers: floor division and remainder, bits, shifts, and the bits of floats. No gradients.

All is defined for every pair of 32-bit integers: what GLSL leaves open (division by 0, remainders
of negative numbers, shifts by more than 31) is fixed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dressi.ad.functions._common import call, elementwise
from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import OPS, Case, Op, Shape, apply
from dressi.ad.vtype import INT, IVEC2, IVEC3, VEC2, vector
from dressi.errors import GraphError

_LOW, _HIGH = -(2**31), 2**31 - 1
_WORD, _ALL = (INT, _LOW, _HIGH), ((IVEC3, _LOW, _HIGH), (IVEC3, _LOW, _HIGH))
Array = np.ndarray


def _int_elementwise(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    vtype, size, layers = elementwise(xs, attrs)
    if not vtype.is_int:
        raise GraphError(f"needs INT or IVECn, got {vtype.name}")
    return vtype, size, layers


def _wrap(a: Array) -> Array:
    """int64 -> the low 32 bits as a signed number."""
    return (a + 2**31) % 2**32 - 2**31


def _row(
    name: str,
    glsl: str | Callable[[Function], str],
    ref: Callable[..., Array],
    *inputs: tuple[tuple[Any, int, int], ...],
) -> Op:
    """An op on integers. ref: int64 arrays -> int64 array, of which the low 32 bits count."""
    return register(
        Op(
            name,
            _int_elementwise,
            reference=lambda f, xs: _wrap(ref(*(x.astype(np.int64) for x in xs))),
            cases=tuple(Case(lambda *xs: apply(OPS[name], xs), i, gradient=False) for i in inputs),
        ),
        Kernel(glsl),
    )


def _divide(result: str, by_zero: str) -> Callable[[Function], str]:
    """Division of magnitudes, which is defined for all but 0.

    result: GLSL from the magnitudes {y}_a and {y}_d and {y}_n, whether the signs differ.
    """

    def glsl(f: Function) -> str:
        n = f.output.vtype.n
        unsigned, mask = ("uint", "bool") if n == 1 else (f"uvec{n}", f"bvec{n}")
        return (
            f"{unsigned} {{y}}_a = {unsigned}(abs({{T}}({{x0}}))), "
            f"{{y}}_d = max({unsigned}(abs({{T}}({{x1}}))), {unsigned}(1u));\n"
            f"  {mask} {{y}}_n = lessThan_({{T}}({{x0}}) ^ {{T}}({{x1}}), {{T}}(0));\n"
            f"  {result}\n"
            f"  {{y}} = mix({{y}}, {by_zero}, equal_({{T}}({{x1}}), {{T}}(0)));"
        )

    return glsl


def _nonzero(b: Array) -> Array:
    return np.where(b == 0, 1, b)


_row(
    "idiv",
    _divide(
        "{y} = mix({T}({y}_a / {y}_d), -{T}(({y}_a + ({y}_d - 1u)) / {y}_d), {y}_n);", "{T}(0)"
    ),
    lambda a, b: np.where(b == 0, 0, a // _nonzero(b)),
    ((IVEC3, -20, 20), (IVEC3, -5, 5)),
    ((IVEC2, -20, 20), (INT, -5, 5)),
    _ALL,
)
_row(
    "imod",
    _divide(
        "{y} = {T}(mix({y}_a % {y}_d, ({y}_d - {y}_a % {y}_d) % {y}_d, {y}_n));\n"
        "  {y} = mix({y}, -{y}, lessThan_({T}({x1}), {T}(0)));",
        "{T}({x0})",
    ),
    lambda a, b: np.where(b == 0, a, a % _nonzero(b)),
    ((IVEC3, -20, 20), (IVEC3, -5, 5)),
    ((INT, -20, 20), (IVEC2, -5, 5)),
    _ALL,
)
_row("bit_and", "{y} = {T}({x0}) & {T}({x1});", np.bitwise_and, _ALL, (_WORD, _ALL[0]))
_row("bit_or", "{y} = {T}({x0}) | {T}({x1});", np.bitwise_or, _ALL, (_WORD, _ALL[0]))
_row("bit_xor", "{y} = {T}({x0}) ^ {T}({x1});", np.bitwise_xor, _ALL, (_WORD, _ALL[0]))
_row("bit_not", "{y} = ~{x0};", np.invert, (_WORD,), (_ALL[0],))

_SHIFTS = (((IVEC3, _LOW, _HIGH), (IVEC3, -3, 35)), ((IVEC2, _LOW, _HIGH), (INT, 0, 31)))
_COUNT = "{T} {y}_n = max({T}({x1}), {T}(0));\n  "
_LOGICAL = "mix({T}(%s), {T}(0), greaterThan_({y}_n, {T}(31)));"


def _unsigned(f: Function) -> str:
    return "uint" if f.output.vtype.n == 1 else f"uvec{f.output.vtype.n}"


_row(
    "shift_left",
    _COUNT + "{y} = " + _LOGICAL % "{T}({x0}) << ({y}_n & 31)",
    lambda a, n: np.where(n > 31, 0, a << np.clip(n, 0, 31)),
    *_SHIFTS,
)
_row(
    "shift_right",
    _COUNT + "{y} = {T}({x0}) >> min({y}_n, {T}(31));",
    lambda a, n: a >> np.clip(n, 0, 31),
    *_SHIFTS,
)
_row(
    "shift_right_logical",
    lambda f: (
        _COUNT
        + "{y} = "
        + _LOGICAL % f"{_unsigned(f)}({{T}}({{x0}})) >> {_unsigned(f)}({{y}}_n & 31)"
    ),
    lambda a, n: np.where(n > 31, 0, (a % 2**32) >> np.clip(n, 0, 31)),
    *_SHIFTS,
)


def _bits(a: Array) -> Array:
    """(..., 32): the bits of each word, lowest first."""
    return (a[..., None] >> np.arange(32)) & 1


_WORDS = ((_WORD,), (_ALL[0],), ((IVEC2, -2, 2),))
_row("bit_count", "{y} = bitCount({x0});", lambda a: _bits(a).sum(-1), *_WORDS)
_row(
    "find_lsb",
    "{y} = findLSB({x0});",
    lambda a: np.where(a == 0, -1, _bits(a).argmax(-1)),
    *_WORDS,
)
_row(
    "find_msb",
    # Of unsigned words: GLSL's own for signed ones looks for the highest 0 of negative numbers.
    lambda f: f"{{y}} = findMSB({_unsigned(f)}({{x0}}));",
    lambda a: np.where(a == 0, -1, 31 - _bits(a)[..., ::-1].argmax(-1)),
    *_WORDS,
)


def _reinterpret_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    t = xs[0].vtype
    if t.is_matrix or t.is_int != attrs["to_float"]:
        raise GraphError(
            f"needs {'INT or IVECn' if attrs['to_float'] else 'FLOAT or VECn'}, got {t.name}"
        )
    return vector(t.n, not t.is_int), xs[0].size, xs[0].layers


FLOAT_BITS = Op(
    "float_bits",
    _reinterpret_infer,
    flat=False,
    reference=lambda f, xs: xs[0].astype(np.float32).view(np.int32).astype(np.int64),
    cases=(Case(lambda a: float_bits(a), ((VEC2, -9, 9),), gradient=False),),
)
register(FLOAT_BITS, Kernel("{y} = floatBitsToInt({x0});"))
BITS_FLOAT = Op(
    "bits_float",
    _reinterpret_infer,
    reference=lambda f, xs: xs[0].astype(np.int32).view(np.float32).astype(np.float64),
    cases=(
        Case(lambda a: bits_float(a), ((IVEC2, 0x3F000000, 0x41000000),), gradient=False),
        Case(lambda a: bits_float(a), ((INT, 0x40000000, 0x41000000),), gradient=False),
    ),
)
register(BITS_FLOAT, Kernel("{y} = intBitsToFloat({x0});"))


def idiv(a: Any, b: Any) -> Variable:
    """floor(a / b): rounded down, so idiv(-7, 2) is -4. a / b rounds toward zero instead.

    a, b: INT, IVECn; a scalar mixes with a vector. idiv(a, 0) is 0; idiv(-2^31, -1) wraps to -2^31.
    No gradient. Raises GraphError for floats: F.floor(a / b).
    """
    return call(OPS["idiv"], a, b)


def imod(a: Any, b: Any) -> Variable:
    """a - b * idiv(a, b): the remainder with the sign of b, so imod(-7, 3) is 2.

    a, b: INT, IVECn; a scalar mixes with a vector. imod(a, 0) is a. No gradient. Raises GraphError
    for floats: F.mod.
    """
    return call(OPS["imod"], a, b)


def bit_and(a: Any, b: Any) -> Variable:
    """Bits set in a and b. INT, IVECn; a scalar mixes with a vector. No gradient."""
    return call(OPS["bit_and"], a, b)


def bit_or(a: Any, b: Any) -> Variable:
    """Bits set in a or b. INT, IVECn; a scalar mixes with a vector. No gradient."""
    return call(OPS["bit_or"], a, b)


def bit_xor(a: Any, b: Any) -> Variable:
    """Bits set in exactly one of a and b. INT, IVECn; a scalar mixes with a vector. No gradient."""
    return call(OPS["bit_xor"], a, b)


def bit_not(x: Variable) -> Variable:
    """All bits flipped: -1 - x. INT, IVECn. No gradient."""
    return apply(OPS["bit_not"], (x,))


def shift_left(x: Any, n: Any) -> Variable:
    """The bits of x moved up by n; what leaves the 32 bits is lost.

    x, n: INT, IVECn; a scalar mixes with a vector. n below 0 counts as 0; from 32 on all is 0. No
    gradient.
    """
    return call(OPS["shift_left"], x, n)


def shift_right(x: Any, n: Any, logical: bool = False) -> Variable:
    """floor(x / 2^n): the bits of x moved down by n, with copies of the sign above.

    x, n: INT, IVECn; a scalar mixes with a vector. logical: zeros above instead. n below 0 counts
    as 0; from 32 on only what is filled in is left. No gradient.
    """
    return call(OPS["shift_right_logical" if logical else "shift_right"], x, n)


def bit_count(x: Variable) -> Variable:
    """Number of bits that are 1, of 32. INT, IVECn. No gradient."""
    return apply(OPS["bit_count"], (x,))


def find_lsb(x: Variable) -> Variable:
    """Number of the lowest bit that is 1, from 0; -1 for x = 0. INT, IVECn. No gradient."""
    return apply(OPS["find_lsb"], (x,))


def find_msb(x: Variable) -> Variable:
    """Number of the highest bit that is 1, from 0; 31 for x < 0, -1 for x = 0. INT, IVECn. No
    gradient."""
    return apply(OPS["find_msb"], (x,))


def float_bits(x: Variable) -> Variable:
    """The 32 bits of a float32 as INT (VECn: IVECn). Equal floats have equal bits but for 0 and
    -0; devices may take denormal numbers for 0. No gradient."""
    return apply(FLOAT_BITS, (x,), to_float=False)


def bits_float(x: Variable) -> Variable:
    """The FLOAT (IVECn: VECn) of which x holds the 32 bits; the inverse of F.bits.float_bits.
    Devices may take denormal numbers for 0 and change the bits of NaN. No gradient."""
    return apply(BITS_FLOAT, (x,), to_float=True)
