"""What ops promise about zeros: of the inputs that ``zero_if`` names, zeros make the output zero,
whatever the others hold."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.ad import F, Variable, build_backward
from dressi.ad.functions.select import zero_div, zero_mul
from dressi.ad.functions.vector import UNSWIZZLE
from dressi.ad.graph import Function, topological
from dressi.ad.registry import OPS, apply
from dressi.ad.vtype import FLOAT, INT, IVEC3, MAT2, VEC2, VEC3

SIZE = (5, 4)


def graphs() -> list[Variable]:
    """Each op that promises something, at least once."""
    a, b, c = (Variable(t, SIZE) for t in (VEC3, VEC3, FLOAT))
    m, i, uv = Variable(MAT2, SIZE), Variable(INT, SIZE), Variable(VEC2, SIZE)
    tex = Variable(VEC3, (6, 6), requires_grad=True)
    packed = Variable(VEC3, (8, 8), requires_grad=True)
    table, which = F.image.texture_table(packed, ((4, 4), (2, 3))), Variable(IVEC3, SIZE)
    return [
        a + b,
        a - b,
        -a,
        a * 3.0,
        2.0 * a,
        a * F.constant(0.0),
        F.add_n([a, b, a]),
        zero_mul(a, b),
        zero_div(a, c),
        F.where(c, a, b),
        F.swizzle(a, "zx"),
        apply(UNSWIZZLE, (c,), comps="y", n=3),
        F.vec(uv, c),
        F.sum_components(a),
        apply(OPS["splat"], (c,), vtype=MAT2),
        F.expand(Variable(VEC3), SIZE),
        F.linalg.column(m, 1),
        F.linalg.from_columns(uv, uv),
        F.scatter_add(a, F.dynamic(i), (7, 1)),
        build_backward(F.texture(tex, uv))[tex],
        build_backward(F.texture_from(table, which, uv))[packed],
    ]


def functions() -> dict[str, list[Function]]:
    found: dict[str, list[Function]] = {}
    for f in topological(graphs()):
        if f.op.zeros(f) is not None:
            found.setdefault(f.op.name, []).append(f)
    return found


FOUND = functions()


def test_every_promise_is_tested() -> None:
    promised = {name for name, op in OPS.items() if op.zero_if is not None}
    assert promised == set(FOUND)


@pytest.mark.parametrize("name", sorted(FOUND))
@pytest.mark.parametrize("rest", [np.nan, np.inf, -3.5])
def test_zeros_of_the_named_inputs_make_zeros(name: str, rest: float) -> None:
    for f in FOUND[name]:
        zeros = f.op.zeros(f)
        assert zeros is not None and all(0 <= i < len(f.inputs) for i in zeros)
        arrays = []
        for i, x in enumerate(f.inputs):
            shape = (x.layers, x.size[1], x.size[0], *x.vtype.tail)
            # Indices and places are numbers in any case; so are constants.
            fixed = x.creator is not None and x.creator.op.name == "constant"
            number = 0.0 if i in zeros else 1.0 if fixed or f.op.scatter else rest
            arrays.append(np.full(shape, number))
        with np.errstate(all="ignore"):
            out = f.op.reference(f, arrays)  # type: ignore[misc]
        assert np.shape(out)[-1] and (np.asarray(out) == 0).all(), f.where
