"""Sums over the components of a pixel, and their transpose: what gradients of broadcasts need."""

from __future__ import annotations

from dressi.ad.functions._common import needs_variable
from dressi.ad.functions.written_out import AXES
from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import Case, Op, apply
from dressi.ad.vtype import FLOAT, MAT2, VEC3, vector


def _sum_components_glsl(f: Function) -> str:
    t = f.inputs[0].vtype
    if t.is_matrix:
        entries = [f"{{x0}}[{c}].{a}" for c in range(t.n) for a in AXES[: t.n]]
        return "{y} = " + " + ".join(entries) + ";"
    if t.n == 1:
        return "{y} = {x0};"
    return "{y} = " + " + ".join(f"{{x0}}.{c}" for c in AXES[: t.n]) + ";"


SUM_COMPONENTS = Op(
    "sum_components",
    lambda xs, a: (vector(1, xs[0].vtype.is_int), xs[0].size, xs[0].layers),
    additive=True,
    zero_if=(0,),
    backward=lambda f, gy, i: apply(SPLAT, (gy,), vtype=f.inputs[0].vtype),
    reference=lambda f, xs: (
        xs[0].sum(axis=(-1, -2))[..., None]
        if f.inputs[0].vtype.is_matrix
        else xs[0].sum(axis=-1, keepdims=True)
    ),
    cases=(
        Case(lambda a: sum_components(a), ((VEC3, -2, 2),)),
        Case(lambda a: sum_components(a), ((MAT2, -2, 2),)),
    ),
)
register(SUM_COMPONENTS, Kernel(_sum_components_glsl))


def _splat_glsl(f: Function) -> str:
    t = f.attr("vtype")
    if not t.is_matrix:
        return "{y} = {T}({x0});"
    return "{y} = {T}(" + ", ".join([f"vec{t.n}({{x0}})"] * t.n) + ");"  # mat(s) is diagonal


SPLAT: Op = Op(
    "splat",
    lambda xs, a: (a["vtype"], xs[0].size, xs[0].layers),
    zero_if=(0,),
    backward=lambda f, gy, i: sum_components(gy),
    reference=lambda f, xs: xs[0].reshape(*xs[0].shape[:3], *(1,) * len(f.attr("vtype").tail)),
    cases=(Case(lambda a: apply(SPLAT, (a,), vtype=VEC3), ((FLOAT, -2, 2),), any_type=False),),
)
register(SPLAT, Kernel(_splat_glsl))


def sum_components(x: Variable) -> Variable:
    """FLOAT sum of the components (of the entries of a matrix). Gradient: gy in each."""
    if needs_variable("sum_components", x).vtype.n == 1:
        return x
    return apply(SUM_COMPONENTS, (x,))


def fit(g: Variable, x: Variable) -> Variable:
    """Gradient of a scalar that was mixed with a vector: the sum over components."""
    return sum_components(g) if x.vtype.n == 1 and g.vtype.n > 1 else g
