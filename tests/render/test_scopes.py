"""Scopes: what is built inside carries the name, backward too, into messages and reports."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import FLOAT, VEC3, DressiAD, F, scope
from dressi.ad import Adam, Variable
from dressi.ad.autodiff import build_backward
from dressi.ad.graph import topological
from dressi.errors import GraphError, origin, scope_of
from dressi.inspect.report import StageRow, SubstageRow
from dressi.inspect.scopes import scope_rows, scope_table
from dressi.inspect.traffic import Traffic


def test_functions_of_a_backward_carry_the_scope_of_the_forward() -> None:
    x = Variable(FLOAT, (8, 8), requires_grad=True)
    with scope("skin"):
        y = F.exp(x)
        with scope("eye"):
            z = F.sin(y)
    loss = F.mean(z * z)
    assert y.creator is not None and scope_of(y.creator.line) == "skin"
    assert z.creator is not None and scope_of(z.creator.line) == "eye"
    assert scope_of(loss.line) is None
    gradient = build_backward(loss)[x]
    made = {scope_of(f.line) for f in topological([gradient])}
    assert made == {None, "skin", "eye"}


def test_what_a_command_builds_has_its_scopes_too() -> None:
    """Lines of the library that a command runs are the command's; a backward keeps its own."""
    with origin("dressi experiment"):
        x = Variable(FLOAT, (4, 4), requires_grad=True)
        with scope("hair"):
            y = F.sin(x)
            with origin("a forward op"):
                inner = F.cos(x)
        outside = F.mean(y)
        (gradient,) = build_backward(outside).values()
    assert y.line == "dressi experiment [hair]" and outside.line == "dressi experiment"
    assert inner.line == "a forward op"
    made = {f.line for f in topological([gradient]) if f.op.name == "cos"}
    assert made == {"dressi experiment [hair]"}


def test_errors_name_the_scope() -> None:
    with scope("hair"):
        x = Variable(VEC3, (4, 4))
        with pytest.raises(GraphError, match=r"test_scopes.py:\d+ \[hair\]"):
            F.texture(x, x)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a[b]", 3])
def test_a_bad_name_is_refused(name: object) -> None:
    with pytest.raises(GraphError, match="name must be a line of text"):
        scope(name)  # type: ignore[arg-type]


def _stage(functions: list[list[str]], ms: float | None, clean: bool = False) -> StageRow:
    rows = tuple(SubstageRow("s", len(f), tuple(f), Traffic()) for f in functions)
    return StageRow("step", "stage", "graphics", 4, 4, rows, Traffic(), ms, clean)


def test_a_stage_is_shared_by_the_number_of_functions() -> None:
    a, b, other = "mul  a.py:1 [a]", "add  a.py:2 [b]", "sub  a.py:3"
    rows = scope_rows([_stage([[a, a, a], [b]], 8.0), _stage([[b, other]], 3.0),
                       _stage([[a]], 50.0, clean=True)])  # fmt: skip
    found = {r.name: r for r in rows}
    assert [r.name for r in rows] == ["a", "b", "a.py:3"]
    assert (found["a"].ms, found["b"].ms, found["a.py:3"].ms) == (6.0, 3.5, 1.5)
    assert (found["a"].functions, found["a"].clean, found["b"].stages) == (3, 1, 2)
    assert not found["a.py:3"].is_scope
    assert [r.ms for r in scope_rows([_stage([[a]], None)])] == [None]
    assert list(scope_table(scope_rows([_stage([[other]], 1.0)]))) == []


@pytest.mark.gpu
def test_a_report_sums_up_by_scope() -> None:
    x = Variable(FLOAT, (8, 8), requires_grad=True, name="x")
    with scope("skin"):
        y = F.exp(x) * 2.0
    with DressiAD() as ad:
        ad.send_img(x, np.ones((8, 8), np.float32))
        ad.set_loss_var(F.mean(y * y))
        ad.set_optimizer(Adam(0.1))
        ad.exec_step()
        report = ad.report(n=1)
    skin = next(r for r in report.scopes if r.name == "skin")
    assert skin.is_scope and skin.functions >= 2 and skin.ms is not None and skin.ms >= 0.0
    total = sum(r.ms or 0.0 for r in report.scopes)
    assert total == pytest.approx(sum(s.ms or 0.0 for s in report.stages if not s.clean))
    assert "by scope" in report.text() and "skin" in report.text()
