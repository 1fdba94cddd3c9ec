"""Vectors: construction, components, dot, cross, length, normalize, reflection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dressi.ad.functions._common import call, float_elementwise, lift, needs_variable
from dressi.ad.functions.arith import maximum, minimum
from dressi.ad.functions.components import fit
from dressi.ad.functions.elementary import sqrt
from dressi.ad.functions.select import compare, safe_div, where, zero_mul
from dressi.ad.functions.written_out import AXES, cross_glsl, dot_glsl, inputs_glsl
from dressi.ad.graph import Function, Variable, short
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import Case, Op, Shape, apply, every_input
from dressi.ad.shape import broadcast
from dressi.ad.vtype import FLOAT, IVEC3, VEC2, VEC3, VEC4, vector
from dressi.errors import GraphError

_COLOURS = str.maketrans("rgba", AXES)


def _swizzle_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    x, comps = xs[0], attrs["comps"]
    if x.vtype.is_matrix:
        raise GraphError("a matrix has no components; use F.linalg.column")
    if not isinstance(comps, str):
        raise GraphError(f"the components must be letters such as 'xy', got {comps!r}")
    if not 1 <= len(comps) <= 4 or any(c not in AXES[: x.vtype.n] for c in comps):
        raise GraphError(f"{x.vtype.name} has no components {comps!r}")
    return vector(len(comps), x.vtype.is_int), x.size, x.layers


SWIZZLE = Op(
    "swizzle",
    _swizzle_infer,
    additive=True,
    exact=True,
    backward=lambda f, gy, i: apply(UNSWIZZLE, (gy,), comps=f.attr("comps"), n=f.inputs[0].vtype.n),
    zero_if=(0,),
    reference=lambda f, xs: xs[0][..., [AXES.index(c) for c in f.attr("comps")]],
    cases=(
        Case(lambda a: swizzle(a, "zx"), ((VEC3, -2, 2),)),
        Case(lambda a: swizzle(a, "xxy"), ((VEC4, -2, 2),)),
        Case(lambda a: swizzle(a, "y"), ((IVEC3, -9, 9),), gradient=False),
    ),
)
register(
    SWIZZLE,
    Kernel(
        lambda f: (
            "{y} = {x0};" if f.inputs[0].vtype.n == 1 else f"{{y}} = {{x0}}.{f.attr('comps')};"
        )
    ),
)


def _unswizzle_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    out = np.zeros((*xs[0].shape[:-1], f.attr("n")))
    for k, c in enumerate(f.attr("comps")):
        out[..., AXES.index(c)] += xs[0][..., k]
    return out


def _unswizzle_glsl(f: Function) -> str:
    comps, n = f.attr("comps"), f.attr("n")
    source = [f"{{x0}}.{AXES[k]}" if len(comps) > 1 else "{x0}" for k in range(len(comps))]
    parts = [
        " + ".join(s for s, c in zip(source, comps, strict=True) if c == axis) or "0.0"
        for axis in AXES[:n]
    ]
    return f"{{y}} = {{T}}({', '.join(parts)});" if n > 1 else f"{{y}} = {parts[0]};"


UNSWIZZLE: Op = Op(
    "unswizzle",
    lambda xs, a: (vector(a["n"]), xs[0].size, xs[0].layers),
    zero_if=(0,),
    backward=lambda f, gy, i: swizzle(gy, f.attr("comps")),
    reference=_unswizzle_ref,
    cases=(
        Case(lambda a: apply(UNSWIZZLE, (a,), comps="zx", n=3), ((VEC2, -2, 2),), any_type=False),
    ),
)
register(UNSWIZZLE, Kernel(_unswizzle_glsl))


def _concat_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    if len({x.vtype.is_int for x in xs}) != 1 or any(x.vtype.is_matrix for x in xs):
        raise GraphError("needs scalars and vectors of one base type")
    n = sum(x.vtype.n for x in xs)
    if not 2 <= n <= 4:
        raise GraphError(f"{n} components; a vector has 2 to 4")
    size, layers = broadcast(xs)
    return vector(n, xs[0].vtype.is_int), size, layers


def _concat_backward(f: Function, gy: Variable, i: int) -> Variable:
    start = sum(x.vtype.n for x in f.inputs[:i])
    return swizzle(gy, AXES[start : start + f.inputs[i].vtype.n])


def _concat_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    shape = np.broadcast_shapes(*[x.shape[:3] for x in xs])
    return np.concatenate([np.broadcast_to(x, (*shape, x.shape[-1])) for x in xs], axis=-1)


CONCAT = Op(
    "vec",
    _concat_infer,
    exact=True,
    zero_if=every_input,
    backward=_concat_backward,
    reference=_concat_ref,
    cases=(
        Case(lambda a, b: vec(a, b, 1.0), ((VEC2, -2, 2), (FLOAT, -2, 2))),
        Case(lambda a, b: vec(a, b), ((FLOAT, -2, 2), (FLOAT, -2, 2))),
    ),
)
register(CONCAT, Kernel(inputs_glsl))

DOT = Op(
    "dot",
    lambda xs, a: (FLOAT, *float_elementwise(xs, a)[1:]),
    backward=lambda f, gy, i: fit(zero_mul(gy, f.inputs[1 - i]), f.inputs[i]),
    reference=lambda f, xs: np.sum(xs[0] * xs[1], axis=-1, keepdims=True),
    cases=(
        Case(lambda a, b: dot(a, b), ((VEC3, -2, 2), (VEC3, -2, 2))),
        Case(lambda a, b: dot(a, b), ((VEC2, -2, 2), (VEC2, -2, 2))),
    ),
)
register(DOT, Kernel(lambda f: f"{{y}} = {_dot_text(f)};"))


def _dot_text(f: Function) -> str:
    """A float beside a vector stands for a vector of equal components."""
    n = max(x.vtype.n for x in f.inputs)
    a, b = (f"{{x{i}}}" if x.vtype.n == n else f"vec{n}({{x{i}}})" for i, x in enumerate(f.inputs))
    return dot_glsl(a, b, n)


def _cross_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    if any(x.vtype is not VEC3 for x in xs):
        raise GraphError(f"needs two VEC3, got {', '.join(x.vtype.name for x in xs)}")
    return VEC3, *broadcast(xs)


CROSS = Op(
    "cross",
    _cross_infer,
    backward=lambda f, gy, i: cross(f.inputs[1], gy) if i == 0 else cross(gy, f.inputs[0]),
    reference=lambda f, xs: np.cross(xs[0], xs[1]),
    cases=(Case(lambda a, b: cross(a, b), ((VEC3, -2, 2), (VEC3, -2, 2))),),
)
register(CROSS, Kernel(f"{{y}} = {cross_glsl('{x0}', '{x1}')};"))


def vec(*parts: Any) -> Variable:
    """All components of the parts in order, as VEC2-4 or IVEC2-4. Gradient to every part."""
    return call(CONCAT, *parts)


def vec2(*parts: Any) -> Variable:
    """VEC2 (or IVEC2) of the parts' two components; else GraphError. Gradient to every part."""
    return _checked(vec(*parts), VEC2)


def vec3(*parts: Any) -> Variable:
    """VEC3 (or IVEC3) of the parts' three components; else GraphError. Gradient to every part."""
    return _checked(vec(*parts), VEC3)


def vec4(*parts: Any) -> Variable:
    """VEC4 (or IVEC4) of the parts' four components; else GraphError. Gradient to every part."""
    return _checked(vec(*parts), VEC4)


def _checked(v: Variable, vtype: Any) -> Variable:
    if v.vtype.n != vtype.n:
        raise GraphError(f"F.{vtype.glsl} at {v.line}: got {v.vtype.n} components")
    return v


def swizzle(x: Variable, comps: str) -> Variable:
    """Components by letters of xyzw or rgba, e.g. ``"xy"`` or ``"bgr"``; repeats allowed.

    Also attributes of a Variable: x y z w r g b a xy xz yz zw xyz rgb. Gradient back into place.
    """
    t = needs_variable("swizzle", x).vtype
    if isinstance(comps, str) and not set(comps) & set(AXES):
        comps = comps.translate(_COLOURS)
    if comps == AXES[: t.n] and not t.is_matrix:
        return x
    return apply(SWIZZLE, (x,), comps=comps)


def dot(a: Any, b: Any) -> Variable:
    """FLOAT inner product of two vectors. Gradient to both."""
    return call(DOT, a, b)


def cross(a: Any, b: Any) -> Variable:
    """VEC3 cross product. Gradient to both."""
    return call(CROSS, a, b)


def length(x: Variable) -> Variable:
    """FLOAT Euclidean length of FLOAT or VECn. The subgradient at length 0 is 0."""
    needs_variable("length", x)
    return sqrt(dot(x, x))


def normalize(x: Variable) -> Variable:
    """x / |x| of FLOAT or VECn, and 0 (with gradient 0) where |x| is 0."""
    needs_variable("normalize", x)
    return safe_div(x, length(x))


def with_components(x: Variable, comps: str, value: Any) -> Variable:
    """x with the named components replaced, as ``x.comps = value`` in GLSL.

    x: VECn, IVECn. comps: different letters of xyzw or rgba, as for F.swizzle. value: as many
    components, or a scalar for all of them. Gradient to the other components of x and to value.
    Raises GraphError for other letters and counts.
    """
    value = lift("with_components", x, value)[1]
    t = swizzle(x, comps).vtype  # raises for letters that are none of x
    letters = comps.translate(_COLOURS)
    if len(set(letters)) != t.n or value.vtype.n not in (1, t.n) or value.vtype.is_matrix:
        raise GraphError(f"F.with_components: cannot write {value.label()} to {short(comps)}")
    parts = []
    for c in AXES[: x.vtype.n]:
        k = letters.find(c)
        source, at = (x, c) if k < 0 else (value, AXES[k if value.vtype.n > 1 else 0])
        parts.append(swizzle(source, at))
    return vec(*parts) if len(parts) > 1 else parts[0]


def max_components(x: Variable) -> Variable:
    """Largest component. FLOAT, VECn, INT, IVECn to FLOAT or INT. Gradient to it; components that
    tie share it."""
    return _fold(maximum, "max_components", x)


def min_components(x: Variable) -> Variable:
    """Smallest component. FLOAT, VECn, INT, IVECn to FLOAT or INT. Gradient to it; components that
    tie share it."""
    return _fold(minimum, "min_components", x)


def _fold(function: Any, name: str, x: Variable) -> Variable:
    if needs_variable(name, x).vtype.is_matrix:
        raise GraphError(f"F.{name}: needs a scalar or vector, got {x.label()}")
    parts = [swizzle(x, c) for c in AXES[: x.vtype.n]]
    while len(parts) > 1:
        parts = (
            [function(*parts[:2]), *parts[2:]]
            if len(parts) != 4
            else [function(*parts[:2]), function(*parts[2:])]
        )
    return parts[0]


def distance(a: Any, b: Any) -> Variable:
    """FLOAT |a - b| of two points. FLOAT, VECn. Gradient to both; 0 where a = b."""
    a, b = lift("distance", a, b)
    return length(a - b)


def reflect(i: Any, n: Any) -> Variable:
    """i - 2 dot(n, i) n: the direction i mirrored at a surface with unit normal n.

    i, n: FLOAT, VECn. Gradient to both.
    """
    i, n = lift("reflect", i, n)
    return i - (2.0 * dot(n, i)) * n


def refract(i: Any, n: Any, eta: Any) -> Variable:
    """The unit direction i after entering a surface; 0 where it is reflected totally.

    i, n: FLOAT, VECn; n: unit normal against i. eta: FLOAT, index of refraction outside over
    inside. Gradient to all three; 0 at total reflection. Source: Snell's law, as in GLSL.
    """
    i, n, eta = lift("refract", i, n, eta)
    cosine = dot(n, i)
    k = 1.0 - eta * eta * ((1.0 - cosine) * (1.0 + cosine))
    passes = compare("gte", k, 0.0)
    bent = eta * i - (eta * cosine + sqrt(where(passes, k, 0.0))) * n
    return where(passes, bent, 0.0)


def faceforward(n: Any, i: Any, reference: Any) -> Variable:
    """n where dot(reference, i) < 0, else -n: the normal on the side that i comes from.

    n, i, reference: FLOAT, VECn. Gradient to n only. Raises GraphError for other types.
    """
    n, i, reference = lift("faceforward", n, i, reference)
    if n.vtype.is_matrix or n.vtype.is_int:
        raise GraphError(f"F.faceforward: needs FLOAT or VECn, got {n.label()}")
    return where(compare("lt", dot(reference, i), 0.0), n, -n)
