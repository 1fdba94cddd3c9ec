"""rewrite and sweep: what a rule replaces, what stays shared, what an accumulation reports."""

from __future__ import annotations

from dressi.ad import F, Variable
from dressi.ad.autodiff import build_backward, sweep
from dressi.ad.functions.vector import dot
from dressi.ad.graph import Function, ancestors, dependents, topological
from dressi.ad.rewrite import Copies, Replacements, rewrite
from dressi.ad.vtype import FLOAT, VEC3


def sines_to_cosines(f: Function, new: Replacements) -> Variable | None:
    return F.cos(new(f.inputs[0])) if f.op.name == "sin" else None


def names(outputs: list[Variable]) -> list[str]:
    return [f.op.name for f in topological(outputs)]


def test_only_what_depends_on_a_replaced_function_is_new() -> None:
    x = Variable(FLOAT, (4, 3))
    kept, y = F.exp(x), F.sin(F.exp(x)) * 2.0
    y.name = "y"
    new, same = rewrite([y + kept, kept], sines_to_cosines)
    assert same is kept and "sin" not in names([new]) and names([new]).count("cos") == 1
    assert {v.name for v in (f.output for f in topological([new]))} >= {"y"}


def test_a_rule_may_rewrite_what_it_builds() -> None:
    def rule(f: Function, new: Replacements) -> Variable | None:
        if f.op.name == "exp":
            return rewrite([F.sin(new(f.inputs[0])) + 1.0], rule, new)[0]
        return sines_to_cosines(f, new)

    (y,) = rewrite([F.exp(Variable(FLOAT)) * 2.0], rule)
    assert not {"exp", "sin"} & set(names([y])) and "cos" in names([y])


def test_copies_are_made_on_demand_and_once() -> None:
    x, z = Variable(FLOAT), Variable(FLOAT)
    copy = Copies(lambda v, _: (z if v is x else v) if v.creator is None else None)
    y = F.sin(x) * F.sin(x)
    assert not copy and copy(y) is copy(y) and copy(y) is not y
    assert ancestors([copy(y)])[1] == [z]


def test_a_sweep_reports_what_is_given_and_where_it_ends() -> None:
    x, w = Variable(VEC3, (2, 2), requires_grad=True), Variable(VEC3, requires_grad=True)
    loss = F.sum(dot(x, w) + F.floor(x).x)
    result = sweep(loss, [x, w])
    assert [(f.op.name, i) for f, i in result.ends] == [("floor", 0)]
    assert {f.inputs[i].uid for f, i, _ in result.given} >= {x.uid, w.uid}
    assert {v.uid: g.size for v, g in build_backward(loss).items()} == {
        v.uid: result.gradients[v.uid].size for v in (x, w)
    }
    functions = topological([loss])
    assert dependents(functions, {w.uid}) < dependents(functions, {w.uid, x.uid})
