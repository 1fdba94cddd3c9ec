"""Packing of large graphs: the packer that counts does what the rules say, and its work grows no
faster than n log n. Nothing here looks at a clock."""

from __future__ import annotations

import cProfile
import math
from collections.abc import Sequence

import pytest

from dressi.ad import F, Variable, simplify
from dressi.ad.graph import topological
from dressi.ad.registry import COMP
from dressi.ad.simplify import own_image
from dressi.ad.vtype import FLOAT, INT
from dressi.errors import GraphError
from dressi.packing import Packed, check_plan, pack
from dressi.packing import substage as rules
from dressi.packing.limits import LLVMPIPE, MINIMUM, NVIDIA, DeviceLimits
from dressi.packing.stage import Stage, pack_stages, why_not_stage
from dressi.packing.substage import (
    Context,
    Substage,
    begin,
    counts,
    fixed_obstacles,
    grown,
    over_limits,
    pack_substages,
)
from dressi.packing.units import ATTACHMENT, Unit, find_inline, in_buffer, make_units
from dressi.testing.random_graphs import random_graph
from dressi.testing.scale_graphs import KINDS, scale_graph

LIMITS = pytest.mark.parametrize("limits", [LLVMPIPE, MINIMUM], ids=lambda p: p.name)
ALL_LIMITS = pytest.mark.parametrize("limits", [LLVMPIPE, MINIMUM, NVIDIA], ids=lambda p: p.name)


def packed(outputs: Sequence[Variable], limits: DeviceLimits) -> Packed:
    """Simplified, packed and checked."""
    result = pack([own_image(v) for v in simplify(outputs)], [], limits)
    check_plan(result.plan, limits)
    return result


def prepared(seed: int, limits: DeviceLimits) -> tuple[list[Unit], Context]:
    """Units of a random graph and its gradients."""
    graph = random_graph(seed)
    outputs = [own_image(v) for v in simplify([*graph.outputs, *graph.gradients().values()])]
    inline = find_inline(outputs, set())
    units = make_units(outputs, inline)
    return units, Context(limits, final={v.uid for v in outputs}, inline=inline)


# -- the same result as the rules, tried on whole substages ----------------------------------------


class PlainPacker:
    """The greedy packing of the paper, word for word: every candidate is tried by building the
    substage that there would be."""

    def __init__(self, units: Sequence[Unit], context: Context) -> None:
        self.units, self.context = units, context
        self.packed: set[int] = set()

    def ready(self) -> list[Unit]:
        return [
            u
            for u in self.units
            if u.index not in self.packed and all(x.index in self.packed for x in u.users)
        ]

    def run(self) -> list[Substage]:
        done = []
        while len(self.packed) < len(self.units):
            first = min(self.ready(), key=lambda u: (pixels(u), -u.index))
            self.packed.add(first.index)
            active = begin(first, self.context)
            for patience in (rules.PATIENCE, 0):
                active = self.grow(active, patience)
            done.append(active)
        return done[::-1]

    def grow(self, active: Substage, patience: int) -> Substage:
        best, beyond = active, list[Unit]()
        refused: set[int] = set()
        while len(beyond) <= patience:
            members = {u.index for u in active.units}
            candidates = [u for u in self.ready() if u.index not in refused]
            if not candidates:
                break
            unit = max(
                candidates, key=lambda u: (sum(x.index in members for x in u.users), u.index)
            )
            new = grown(unit, active, self.context)
            fits = not over_limits(new, self.context)
            if fixed_obstacles(unit, active, self.context) or (
                not fits and (patience == 0 or self.hopeless(new))
            ):
                refused.add(unit.index)
                continue
            active = new
            self.packed.add(unit.index)
            beyond.append(unit)
            if fits:
                best, beyond = active, []
        self.packed -= {u.index for u in beyond}
        return best

    def hopeless(self, new: Substage) -> bool:
        """Outputs only grow, and leaves stay inputs."""
        limits, n = self.context.limits, counts(new)
        scatters = any(in_buffer(v) for v in new.outputs)
        leaves = sum(
            v.vtype.n_planes
            for v, ways in new.reads.values()
            if v.creator is None and new.way(v, ways) == ATTACHMENT
        )
        return (
            n["color_outputs"] > limits.color_outputs
            or (scatters and n["combined_outputs"] > limits.combined_outputs)
            or (scatters and new.kind != COMP and not limits.fragment_stores)
            or leaves > limits.input_attachments
        )


def pixels(unit: Unit) -> int:
    (width, height), layers = unit.domain
    return width * height * layers


@ALL_LIMITS
@pytest.mark.parametrize("seed", range(6))
def test_the_packer_that_counts_packs_what_the_rules_pack(seed: int, limits: DeviceLimits) -> None:
    plain = PlainPacker(*prepared(seed, limits)).run()
    units, context = prepared(seed, limits)
    fast = pack_substages(units, context)

    def parts(substages: Sequence[Substage]) -> list[object]:
        return [
            (s.kind, s.domain, [u.index for u in s.units], counts(s), len(s.reads), len(s.outputs))
            for s in substages
        ]

    assert parts(fast) == parts(plain)


@ALL_LIMITS
@pytest.mark.parametrize("seed", range(6))
def test_every_substage_of_a_stage_fits_what_follows_it(seed: int, limits: DeviceLimits) -> None:
    units, context = prepared(seed, limits)
    for stage in pack_stages(pack_substages(units, context), context):
        for k, s in enumerate(stage.substages):
            assert why_not_stage(s, Stage(stage.substages[k + 1 :]), context) == []


def test_one_shader_keeps_to_the_attachments_of_a_render_pass() -> None:
    """A hundred images, no limit on input attachments, but one on those of a render pass: the sum
    is split (``check_plan`` looks at each part)."""
    images = [Variable(FLOAT, (8, 6), name=f"image{k}") for k in range(100)]
    p = packed([F.add_n(images)], NVIDIA)
    assert NVIDIA.stage_attachments == 64 and p.plan.n_substages > 1
    assert len(p.plan.stages) <= 3


# -- growth ----------------------------------------------------------------------------------------


def calls(kind: str, n: int, limits: DeviceLimits) -> tuple[int, int]:
    """Calls of Python functions that simplifying, packing and checking take, and Functions."""
    outputs = scale_graph(kind, n)
    profile = cProfile.Profile(builtins=False)
    profile.enable()
    p = packed(outputs, limits)
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats()), p.plan.n_functions


@LIMITS
@pytest.mark.parametrize("kind", KINDS)
def test_work_grows_no_faster_than_n_log_n(kind: str, limits: DeviceLimits) -> None:
    few, n_few = calls(kind, 800, limits)
    many, n_many = calls(kind, 2400, limits)
    assert n_many > 2.5 * n_few
    assert many / (n_many * math.log(n_many)) < 1.1 * few / (n_few * math.log(n_few))


def test_lowering_a_macro_does_not_walk_what_is_lowered_already() -> None:
    """Twice as many means on top of each other are twice the work."""

    def work(n: int) -> int:
        v = Variable(FLOAT, (8, 6), name="a")
        for _ in range(n):
            v = v * F.mean(F.sin(v))
        profile = cProfile.Profile(builtins=False)
        profile.enable()
        simplify([v])
        profile.disable()
        return sum(entry.callcount for entry in profile.getstats())

    assert work(200) < 2.1 * work(100)


def test_folded_numbers_that_are_equal_are_one() -> None:
    """(1 + 1) and (4 - 2) are the same constant: the two products are one Function."""
    x = Variable(FLOAT, (8, 6), name="x")
    one, four = F.constant(1.0), F.constant(4.0)
    a, b = simplify([x * (one + one), x * (four - F.constant(2.0))])
    assert a is b


def test_each_of_many_textures_is_declared_once() -> None:
    """One shader, 600 tables."""
    n, index = 600, Variable(INT, (8, 6), name="index")
    total = F.to_float(index)
    for k in range(n):
        total = total + F.lookup(Variable(FLOAT, (13, 1), name=f"table{k}"), index)
    (stage,) = packed([total], NVIDIA).plan.stages
    (s,) = stage.substages
    assert s.fragment.count("uniform texture2D") == n
    assert len({b.index for b in s.bindings}) == len(s.bindings) == n + 1


def test_ten_thousand_functions_are_packed_and_none_is_lost() -> None:
    outputs = scale_graph("renderer", 10_000)
    p = packed(outputs, MINIMUM)
    assert len(topological(outputs)) > 10_000 and p.plan.n_functions > 9_000
    assert p.plan.n_substages < p.plan.n_functions / 3
    assert len(p.plan.stages) < p.plan.n_substages / 2
    assert p.task is not None and all(v.uid in p.images for v in p.task.wanted)


def test_another_kind_of_graph_is_an_error_that_names_the_kinds() -> None:
    with pytest.raises(GraphError, match="chain, wide, renderer, got 'star'"):
        scale_graph("star", 10)
