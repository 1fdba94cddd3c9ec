"""The table of passes: complete, in order, switchable, checked after every pass."""

from __future__ import annotations

import ast
import dataclasses
import logging
from itertools import pairwise
from pathlib import Path

import pytest

import dressi.packing
from dressi.ad import F, Variable, simplify
from dressi.ad.vtype import FLOAT
from dressi.packing import Options, pack
from dressi.packing.limits import LLVMPIPE, MINIMUM, NVIDIA, DeviceLimits
from dressi.packing.options import SWITCHES_ELSEWHERE
from dressi.packing.passes import PASSES, Pass
from dressi.packing.profile import PRESETS as PROFILES
from dressi.testing.random_graphs import random_graph

FOLDER = Path(dressi.packing.__file__).parent


def test_every_switch_of_the_options_belongs_to_a_pass_or_says_where_it_acts() -> None:
    known = {f.name for f in dataclasses.fields(Options)}
    of_passes = {name for p in PASSES for name in p.switches}
    assert of_passes | set(SWITCHES_ELSEWHERE) == known
    assert not of_passes & set(SWITCHES_ELSEWHERE)


@pytest.mark.parametrize("each", PASSES, ids=lambda p: p.name)
def test_every_pass_has_a_switch_or_says_why_not_and_a_sentence(each: Pass) -> None:
    assert bool(each.switches) != bool(each.no_switch)
    assert each.after[0].isupper() and each.after.endswith(".") and " " in each.after


def test_names_of_passes_are_unique() -> None:
    assert len({p.name for p in PASSES}) == len(PASSES)


@pytest.mark.parametrize("limits", [LLVMPIPE, MINIMUM, NVIDIA], ids=lambda p: p.name)
@pytest.mark.parametrize("seed", range(8))
def test_what_a_pass_promises_holds_after_it(
    seed: int,
    limits: DeviceLimits,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """DRESSI_DEBUG=3 checks and prints the program after every pass."""
    monkeypatch.setenv("DRESSI_DEBUG", "3")
    graph = random_graph(seed)
    outputs = simplify([*graph.outputs, *graph.gradients().values()])
    outputs = [v for v in outputs if v.creator is not None and v.creator.op.kind != "free"]
    options = Options(lowering=("graphics", "compute", "auto")[seed % 3])
    with caplog.at_level(logging.DEBUG, logger="dressi"):
        pack(outputs, [], limits, options, profile=PROFILES["h200"])
    for each in PASSES:
        assert f"after the pass {each.name}: {each.after}" in caplog.text


@pytest.mark.parametrize("switch", sorted({n for p in PASSES for n in p.switches}))
def test_a_pass_that_is_off_leaves_a_program_that_keeps_its_rules(
    switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRESSI_DEBUG", "3")
    graph = random_graph(3)
    leaf, gradient = next(
        (x, g) for x, g in graph.gradients().items() if x.size != (1, 1) and x.layers == 1
    )
    new = leaf - gradient * 0.1
    *outputs, new = simplify([*graph.outputs, new])
    pack(outputs, [(leaf, new)], LLVMPIPE, Options(**{switch: False}))  # type: ignore[arg-type]


def imports(file: str) -> dict[str, str]:
    """Names that a module of the package imports -> the module of the package they come from."""
    tree = ast.parse((FOLDER / f"{file}.py").read_text())
    return {
        alias.name: n.module.rpartition(".")[2]
        for n in ast.walk(tree)
        if isinstance(n, ast.ImportFrom) and n.module
        for alias in n.names
    }


def test_passes_stand_in_files_that_follow_each_other() -> None:
    """A reader of the passes never goes back to an earlier file: the passes of a file stand
    together, and no pass calls what is in the file of another one."""
    module_of = {**imports("passes"), **imports("steps")}
    order = [module_of[name] for name in FUNCTIONS]
    files = [order[0], *(b for a, b in pairwise(order) if a != b)]
    assert len(files) == len(set(files)), files
    for file in files:
        called = {name: m for name, m in imports(file).items() if name.islower()}
        # units also says how a value is accessed, greedy has the algorithm of both packings.
        others = set(files) - {file, "units", "greedy"}
        assert not others.intersection(called.values()), (file, called)


FUNCTIONS = (
    "find_inline",
    "make_units",
    "pack_substages",
    "recompute",
    "drop_dead",
    "dissolve",
    "fold",
    "append_epilogues",
    "pack_stages",
    "update_order",
    "in_levels",
    "choose_uniforms",
    "outside_values",
    "place",
    "plan_stages",
    "write_in_place",
    "reuse_images",
)
"""What the passes call, in order (uniforms are chosen first, where places are known)."""


def test_substages_and_units_are_frozen() -> None:
    packed = pack(simplify([F.sin(Variable(FLOAT, (4, 4), name="a")) + 1.0]), [], LLVMPIPE)
    (s,) = packed.substages
    for thing, name in ((s, "units"), (s.units[0], "kind")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, name, None)
