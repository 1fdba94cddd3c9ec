"""All rows of the registry, and their kernels: each has what it needs, nothing else, and every
promise of a field holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from op_cases import all_cases, differentiable, instance, projected, weights_like

import dressi
from dressi.ad import F, Variable, build_backward, evaluate, simplify
from dressi.ad.functions.bits_group import GROUP_DILATE_BITS
from dressi.ad.functions.group_rows import GROUP_ROWS
from dressi.ad.functions.group_sum import GROUP_SUM
from dressi.ad.functions.raster_kbuffer import LAYER
from dressi.ad.graph import Function, topological
from dressi.ad.kernels import DISPATCH, FRAGMENT, WORKGROUP, Kernel, kernels
from dressi.ad.lowering import rasterize_in_compute
from dressi.ad.registry import ANY, COMP, FREE, MACRO, OPS, RASTER, SAME, SAMPLER, Case, Op, apply
from dressi.ad.vtype import VEC3, VEC4
from dressi.ad.workgroups import Workgroup
from dressi.testing.cases import first_config


def rasterizing(int64_atomics: bool) -> list[Op]:
    """The ops that rasterize a few triangles in compute shaders."""
    ids = F.rasterize([Variable(VEC4, (5, 1)) for _ in range(3)], (8, 6))
    resolved = F.resolve(ids, F.to_float(ids) * 0.1)
    functions = topological(rasterize_in_compute([resolved], int64_atomics))
    return [f.op for f in functions if f.op.kind == COMP]


HIDDEN = (GROUP_SUM, GROUP_ROWS, GROUP_DILATE_BITS, LAYER, *rasterizing(True), *rasterizing(False))
"""Ops that lowering makes; they have no row."""
ROWS = [*OPS.values(), *HIDDEN]


def name_of(op: Op) -> str:
    return op.name


@pytest.mark.parametrize("op", ROWS, ids=name_of)
def test_every_op_can_be_run(op: Op) -> None:
    ways = kernels(op)
    if op.kind == MACRO:
        assert op.expand is not None and set(ways) <= {DISPATCH}
    else:
        assert op.expand is None
        assert (FRAGMENT in ways) != (op.kind == COMP)
        assert op.kind != COMP or len(ways) == 1
    for target, kernel in ways.items():
        assert kernel.target == target
        assert isinstance(kernel, Workgroup) == (target == WORKGROUP)
        assert (kernel.expand is not None) == (op.kind == MACRO) == (kernel.glsl == "")


@pytest.mark.parametrize("op", OPS.values(), ids=name_of)
def test_every_row_says_what_the_op_is(op: Op) -> None:
    assert (op.reference is None) == (op.kind == RASTER or op.fragment_exit)
    assert bool(op.cases) != bool(op.no_cases)
    assert op.kind != FREE or (op.backward is None and op.no_cases)


@pytest.mark.parametrize("op", ROWS, ids=name_of)
def test_no_field_is_set_without_what_it_belongs_to(op: Op) -> None:
    assert (op.scatter is None) == (op.domain is None)
    assert op.row is None or op.scatter == "add"
    assert all(op.read(i) == ANY for i in (*op.once, *op.one_read))
    assert not set(op.once) & set(op.one_read)
    assert not op.why_zero or op.backward is not None
    assert op.flat is None or op.backward is None
    assert not op.flat or not (op.additive or op.linear_in)
    assert not (op.additive and op.linear_in)
    if op.kind in (MACRO, FREE):
        assert op.reads == (SAME,)


# -- every field is set somewhere, and read somewhere

TREES = [Path(dressi.__file__).parent, Path(__file__).parent.parent]


ROWS_OF: dict[type, list[Any]] = {
    Op: ROWS,
    Case: [case for op in ROWS for case in op.cases],
    Kernel: [k for op in ROWS for k in kernels(op).values()],
    Workgroup: [k for op in ROWS for k in kernels(op).values() if isinstance(k, Workgroup)],
}


@pytest.mark.parametrize("kind", ROWS_OF, ids=lambda k: k.__name__)
def test_every_field_is_set_and_read(kind: type) -> None:
    paths = [p for tree in TREES for p in tree.rglob("*.py") if p.parent.name != "functions"]
    text = "\n".join(p.read_text(encoding="utf-8") for p in paths)
    for field in (f for f in fields(kind) if f.name in kind.__annotations__ and f.init):
        is_set = any(getattr(x, field.name) != field.default for x in ROWS_OF[kind])
        assert field.default is MISSING or is_set, f"{field.name} is never set"
        assert re.search(rf"\.{field.name}\b", text), f"{field.name} is never read"


# -- Functions of every op, from its cases, their gradients, and what both become


@dataclass(eq=False)
class Made:
    """A Function, and data for the leaves below it."""

    f: Function
    feeds: dict[Variable, np.ndarray]


@cache
def made() -> dict[str, list[Made]]:
    """By name of the op."""
    found: dict[str, list[Made]] = {}
    for name, k, case in all_cases():
        one = instance(name, k, case, first_config(case))
        feeds, outputs = dict(one.feeds), [one.output]
        if case.gradient:
            w, feeds[w] = weights_like(one.output, np.random.default_rng(k))
            outputs += build_backward(projected(one.output, w), differentiable(one.inputs)).values()
        outputs += simplify(outputs) + simplify(outputs, dispatches=True)
        for f in topological(outputs):
            found.setdefault(f.op.name, []).append(Made(f, feeds))
    return found


def each(name: str) -> Iterator[Made]:
    """Functions of an op; a few where there are many."""
    ours = made().get(name, [])
    yield from ours[:: max(1, len(ours) // 12)]


KNOWN = [name for name in OPS if name in made()]


def test_only_fragments_and_random_draws_have_no_function_here() -> None:
    rest = {"rasterize", "resolve", "inverse_lookup", "inverse_uv", "inverse_gather"}
    assert set(OPS) - set(KNOWN) - rest == set()


@pytest.mark.parametrize("name", KNOWN)
def test_inputs_are_read_as_the_row_says(name: str) -> None:
    op, used, n_inputs = OPS[name], set[str](), 0
    for m in made()[name]:
        n = len(m.f.inputs)
        n_inputs = max(n_inputs, n)
        for kernel in kernels(op).values():
            if kernel.expand is not None:
                continue
            markers = set(re.findall(r"\{([A-Za-z_]\w*)\}", kernel.text(m.f)))
            allowed = {f"{_WORD[op.read(i)]}{i}" for i in range(n)}
            others = {f"{word}{i}" for word in _WORD.values() for i in range(9)} - allowed
            assert not markers & others
            assert ("add" in markers) <= (op.scatter == "add")
            assert ("buffer" in markers) <= (op.scatter == "raw")
            used |= markers
    if op.kind != MACRO:
        assert len(op.reads) <= max(n_inputs, 1)
        assert {f"{_WORD[op.read(i)]}{i}" for i in range(n_inputs)} <= used
        assert op.scatter != "add" or "add" in used


_WORD = {SAME: "x", ANY: "fetch", SAMPLER: "sample"}


def _inputs(m: Made) -> list[np.ndarray]:
    return evaluate(list(m.f.inputs), m.feeds)


def _reference(f: Function, xs: list[np.ndarray]) -> np.ndarray:
    assert f.op.reference is not None
    with np.errstate(all="ignore"):
        return np.asarray(f.op.reference(f, xs), np.float64)


def _moved(xs: list[np.ndarray], which: list[int]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What is added to some inputs, and the sums."""
    rng = np.random.default_rng(len(xs))
    by = [rng.normal(size=x.shape) if i in which else x for i, x in enumerate(xs)]
    return by, [x + b if i in which else x for i, (x, b) in enumerate(zip(xs, by, strict=True))]


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b, rtol=1e-9, atol=1e-9))


@pytest.mark.parametrize("name", [n for n in KNOWN if OPS[n].linear_in or OPS[n].additive])
def test_what_is_said_to_be_linear_is(name: str) -> None:
    tried = 0
    for m in each(name):
        if m.f.output.vtype.is_int:
            continue
        xs, n = _inputs(m), len(m.f.inputs)
        groups = [list(range(n))] if m.f.op.additive else [[k % n] for k in m.f.op.linear_in]
        for group in groups:
            by, sums = _moved(xs, group)
            parts = _reference(m.f, xs) + _reference(m.f, by)
            assert _close(_reference(m.f, sums), parts), (m.f.where, group)
            tried += 1
    assert tried


@pytest.mark.parametrize("name", [n for n in KNOWN if OPS[n].exact and n != "constant"])
def test_exact_ops_give_numbers_that_they_were_given(name: str) -> None:
    for m in each(name):
        xs = _inputs(m)
        given = {0.0} | {float(v) for x in xs for v in np.abs(x).ravel()}
        assert {float(v) for v in np.abs(_reference(m.f, xs)).ravel()} <= given, m.f.where


@pytest.mark.parametrize("name", [n for n in OPS if OPS[n].neutral])
def test_neutral_constants_give_the_other_input_back(name: str) -> None:
    x = Variable(VEC3, (3, 2))
    data = np.random.default_rng(0).normal(size=(2, 3, x.vtype.n))
    for i, number in enumerate(OPS[name].neutral):
        if number is None:
            continue
        inputs = [x, x]
        inputs[i] = F.constant(number, x.vtype)
        y = apply(OPS[name], inputs)
        assert (evaluate([y], {x: data})[0] == data).all()
        assert simplify([y])[0] is x


@pytest.mark.parametrize("name", [n for n in KNOWN if OPS[n].flat is not None])
def test_flat_is_said_of_floats_and_the_contrary_of_integers(name: str) -> None:
    assert all(m.f.output.vtype.is_int != m.f.op.flat for m in each(name))
