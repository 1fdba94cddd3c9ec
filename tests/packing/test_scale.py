"""Packing of large graphs: the packer that counts does what the rules say, and its work grows no
faster than n log n. Nothing here looks at a clock."""

from __future__ import annotations

import cProfile
import math
from collections.abc import Sequence

import pytest

from dressi.ad import F, Variable, simplify
from dressi.ad.graph import topological
from dressi.ad.registry import COMP, RASTER, SAME
from dressi.ad.simplify import own_image
from dressi.ad.vtype import FLOAT, INT
from dressi.errors import GraphError
from dressi.packing import Packed, check_plan, pack
from dressi.packing.active import begin, candidates
from dressi.packing.defuse import DefUse
from dressi.packing.greedy import PATIENCE, pack_substages
from dressi.packing.growing import why_not_stage
from dressi.packing.inline import find_inline
from dressi.packing.limits import LLVMPIPE, MINIMUM, NVIDIA, DeviceLimits
from dressi.packing.obstacles import IMAGES, INPUTS, LEAVES, MOST_CARRIED, SAMPLED, SCATTERED
from dressi.packing.stage import pack_stages
from dressi.packing.substage import Substage, make_substage
from dressi.packing.task import Context
from dressi.packing.units import ATTACHMENT, Unit, in_buffer, make_units
from dressi.packing.use import use_of, why_not
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
    substage that there would be, and the rules are those of the documentation."""

    def __init__(self, units: Sequence[Unit], context: Context) -> None:
        self.units, self.context = units, context
        self.index = DefUse(units)
        self.packed: set[int] = set()

    def ready(self) -> list[Unit]:
        return [
            u
            for u in self.units
            if u.index not in self.packed and self.packed.issuperset(self.index.users[u.index])
        ]

    def run(self) -> list[Substage]:
        done = []
        first_of = candidates(self.units, self.context)
        while len(self.packed) < len(self.units):
            first = min(self.ready(), key=lambda u: (pixels(u), -u.index))
            self.packed.add(first.index)
            active = begin(first_of[first.index], self.context).substage()
            for patience in (PATIENCE, 0):
                active = self.grow(active, patience)
            done.append(active)
        return done[::-1]

    def grow(self, active: Substage, patience: int) -> Substage:
        best, beyond = active, list[Unit]()
        refused: set[int] = set()
        while len(beyond) <= patience:
            members = {u.index for u in active.units}
            ready = [u for u in self.ready() if u.index not in refused]
            if not ready:
                break
            users = self.index.users
            unit = max(ready, key=lambda u: (len(members.intersection(users[u.index])), u.index))
            new = self.with_unit(unit, active)
            fits = why_not(new, self.context.limits) is None
            if self.never(unit, active) or (not fits and (patience == 0 or self.hopeless(new))):
                refused.add(unit.index)
                continue
            active = new
            self.packed.add(unit.index)
            beyond.append(unit)
            if fits:
                best, beyond = active, []
        self.packed -= {u.index for u in beyond}
        return best

    def with_unit(self, unit: Unit, s: Substage) -> Substage:
        """The substage with one more unit, and the outputs that others read."""
        inside = {u.index for u in s.units}
        outputs = [
            v
            for v in unit.outputs
            if in_buffer(v)
            or v.uid in self.context.final
            or not inside.issuperset(self.index.readers.get(v.uid, ()))
        ]
        outputs += s.outputs
        units = [unit, *s.units]
        return make_substage(
            s.kind, s.domain, units, outputs, self.context, s.as_textures, s.lowered
        )

    def never(self, unit: Unit, s: Substage) -> bool:
        """Whether the unit may not join whatever else does."""
        inside = {u.index for u in s.units}
        repeated = (
            unit.is_uniform
            and unit.domain[1] in (1, s.domain[1])
            and inside.issuperset(self.index.users[unit.index])
            and not any(v.uid in self.context.final for v in unit.outputs)
        )
        if unit.domain != s.domain and not repeated:
            return True
        if COMP in (unit.kind, s.kind) or unit.kind == RASTER:
            return True
        if s.kind == RASTER and not unit.is_uniform:
            return True
        return any(self.held(v, unit, s) for v in unit.outputs)

    def held(self, v: Variable, unit: Unit, s: Substage) -> bool:
        """Whether the substage reads a value in another way than at the pixel that makes it."""
        if v.uid not in s.reads:
            return False
        reads = [read for u in s.units for x, read in u.reads if x is v]
        same = all(read == SAME for read in reads)
        return in_buffer(v) or not (s.reads[v.uid][1] == {ATTACHMENT} or (unit.is_uniform and same))

    def hopeless(self, new: Substage) -> bool:
        """Outputs only grow, leaves stay inputs, and too many inputs are not worth trying."""
        limits, use = self.context.limits, use_of(new)
        scattered = use[SCATTERED] if new.kind != COMP else 0
        return (
            use[IMAGES] > limits.color_outputs
            or (scattered > 0 and use[IMAGES] + scattered > limits.combined_outputs)
            or (scattered > 0 and not limits.fragment_stores)
            or use[LEAVES] > limits.input_attachments
            or use[INPUTS] + use[SAMPLED] > MOST_CARRIED
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
            (s.kind, s.domain, [u.index for u in s.units], use_of(s), len(s.reads), len(s.outputs))
            for s in substages
        ]

    assert parts(fast) == parts(plain)


@ALL_LIMITS
@pytest.mark.parametrize("seed", range(6))
def test_every_substage_of_a_stage_fits_what_follows_it(seed: int, limits: DeviceLimits) -> None:
    units, context = prepared(seed, limits)
    substages = pack_substages(units, context)
    for stage in pack_stages(substages, DefUse(substages), limits):
        for k, s in enumerate(stage.substages):
            assert why_not_stage(s, stage.substages[k + 1 :], limits) is None


def test_one_shader_keeps_to_the_attachments_of_a_render_pass() -> None:
    """A hundred images, no limit on input attachments, but one on those of a render pass: the sum
    is split (``check_plan`` looks at each part)."""
    images = [Variable(FLOAT, (8, 6), name=f"image{k}") for k in range(100)]
    p = packed([F.add_n(images)], NVIDIA)
    assert NVIDIA.stage_attachments == 64 and p.plan.n_substages > 1
    assert len(p.plan.stages) <= 3


def side_by_side(n_values: int, rounds: int) -> list[Variable]:
    """The sum of as many values of one image, each changed in every round by its neighbour::

    image --+-- sin(1 x) --- a_0 + sin(a_1) --- ... --+
            +-- sin(2 x) --- a_1 + sin(a_2) --- ... --+-- sum
            +-- ...                                 --+
    """
    image = Variable(FLOAT, (8, 6), name="image")
    values = [F.sin(image * (1.0 + k)) for k in range(n_values)]
    for _ in range(rounds):
        values = [a + F.sin(b) for a, b in zip(values, values[1:] + values[:1], strict=True)]
    return [F.add_n(values)]


def test_inputs_that_become_inner_values_a_thousand_units_later_are_not_carried() -> None:
    p = packed(side_by_side(20, 30), LLVMPIPE)
    assert p.plan.n_functions > 1000 and LLVMPIPE.input_attachments < 20
    assert p.plan.n_substages == 1


def test_more_values_at_once_than_registers_are_not_tried() -> None:
    """A shader could hold them, with one input: it would hold more than MOST_CARRIED at once."""
    few, many = (
        packed(side_by_side(n, 2), LLVMPIPE) for n in (MOST_CARRIED // 2, MOST_CARRIED + 10)
    )
    assert few.plan.n_substages == 1 < many.plan.n_substages


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
