"""Updates in place and shared images: an equal plan with fewer copies and images (no device).

Two witnesses that share no code with what they check: ``values`` runs a plan on symbols instead of
numbers, and ``lifetimes`` finds from when to when each image is in use.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from dressi.ad import F, Variable, simplify
from dressi.ad.simplify import own_image
from dressi.ad.vtype import FLOAT
from dressi.errors import PackingError
from dressi.packing import Options, Packed, check_plan, pack
from dressi.packing.lifetimes import reuse_images, write_in_place
from dressi.packing.limits import LLVMPIPE, MINIMUM, NVIDIA, DeviceLimits
from dressi.packing.plan import Binding, ImagePlan, Plan, StagePlan, SubstagePlan
from dressi.testing.random_graphs import random_graph

SEEDS = range(40)
PRESETS = {p.name: p for p in (MINIMUM, LLVMPIPE, NVIDIA)}
AS_PACKED = Options(zero_copy=False, reuse_images=False)
ITERATIONS = 3


# -- witnesses -------------------------------------------------------------------------------------


def values(plan: Plan, kept: Collection[int], iterations: int = ITERATIONS) -> dict[str, int]:
    """What the images with a key, and the kept ones, hold after some steps: symbols that name all
    that went into them. Every pixel is the same, so a fetch must not meet a write in its stage."""
    held: list[object] = [("start", i.key) if i.key is not None else "garbage" for i in plan.images]
    words: list[object] = [("start", b.key) for b in plan.buffers]
    for _ in range(iterations):
        for b in plan.buffers:
            if b.fill:
                words[b.index] = 0
        for n, stage in enumerate(plan.stages):
            attached = {i for s in stage.substages for i in s.outputs}
            for k, s in enumerate(stage.substages):
                seen: list[object] = []
                for b in s.bindings:
                    if b.kind == "uniform":
                        continue
                    if b.kind in ("texture", "sampler"):
                        assert b.index not in attached, (
                            f"{plan.images[b.index].name} is overwritten"
                        )
                    source = words if b.kind == "buffer" else held
                    assert source[b.index] != "garbage", (
                        f"{plan.images[b.index].name} is read early"
                    )
                    seen.append((b.binding, source[b.index]))
                made = hash((n, k, tuple(seen)))
                for b in s.bindings:
                    if b.kind == "buffer":
                        words[b.index] = hash((made, "buffer", words[b.index]))
                for location, index in enumerate(s.outputs):
                    held[index] = hash((made, location))
        for source, target in plan.updates:
            held[target] = held[source]
    out = {f"key {i.key}": hash(held[i.index]) for i in plan.images if i.key is not None}
    return out | {f"kept {k}": hash(held[i]) for k, i in enumerate(kept)}


def lifetimes(plan: Plan) -> dict[int, tuple[int, int]]:
    """Image -> (first, last) stage that touches it."""
    spans: dict[int, tuple[int, int]] = {}
    for n, stage in enumerate(plan.stages):
        for s in stage.substages:
            for i in [*s.outputs, *(b.index for b in s.bindings if b.kind not in UNMOVED)]:
                spans[i] = (min(spans.get(i, (n, n))[0], n), n)
    return spans


UNMOVED = ("buffer", "uniform")


# -- plans by hand ---------------------------------------------------------------------------------


def image(index: int, name: str, key: int | None = None, fmt: str = "R32F") -> ImagePlan:
    return ImagePlan(index, name, fmt, 4, 4, key)


def substage(
    inputs: Sequence[int] = (),
    outputs: Sequence[int] = (),
    fetched: Sequence[int] = (),
    clear: bool = False,
) -> SubstagePlan:
    bindings = [Binding(k, "input", i, input_index=k) for k, i in enumerate(inputs)]
    bindings += [Binding(len(inputs) + k, "texture", i) for k, i in enumerate(fetched)]
    clears = ((0.0, 0.0, 0.0, 0.0) if clear else None,) * len(outputs)
    return SubstagePlan("s", tuple(bindings), tuple(outputs), clears, "v", "f")


def stages(*members: Sequence[SubstagePlan]) -> tuple[StagePlan, ...]:
    return tuple(StagePlan(f"stage {k}", "graphics", 4, 4, tuple(m)) for k, m in enumerate(members))


def in_place(plan: Plan, copies: int, kept: Collection[int] = ()) -> Plan:
    """The plan with updates in place; checked: how many copies are left, and what it computes."""
    check_plan(plan, LLVMPIPE)
    made, moves = write_in_place(plan)
    check_plan(made, LLVMPIPE)
    assert values(made, [moves[i] for i in kept]) == values(plan, kept)
    assert len(made.updates) == copies, made.updates
    assert len(made.images) == len(plan.images) - (len(plan.updates) - copies)
    return made


X, NEW = image(0, "x", key=4), image(1, "new")


def test_update_of_the_pixel_that_is_read_is_written_in_place() -> None:
    """x -> [new]: one subpass reads x and writes x."""
    plan = Plan("p", (X, NEW), (), stages([substage([0], [1])]), ((1, 0),))
    made = in_place(plan, 0, [1])
    assert made.stages[0].substages[0].outputs == (0,)


def test_reader_in_an_earlier_subpass_or_stage_does_not_mind() -> None:
    y = image(2, "y", key=8)
    first, last = substage([0], [2]), substage([2], [1])
    in_place(Plan("p", (X, NEW, y), (), stages([first, last]), ((1, 0),)), 0)
    in_place(Plan("p", (X, NEW, y), (), stages([first], [last]), ((1, 0),)), 0)
    fetching = substage([], [2], fetched=[0])
    in_place(Plan("p", (X, NEW, y), (), stages([fetching], [last]), ((1, 0),)), 0)


@pytest.mark.parametrize(("apart", "fetched"), [(False, False), (True, False), (True, True)])
def test_reader_that_comes_later_makes_a_copy(apart: bool, fetched: bool) -> None:
    """x -> [new]; then x -> [y]: the second one wants the old x."""
    y = image(2, "y", key=8)
    first = substage([0], [1])
    later = substage([], [2], fetched=[0]) if fetched else substage([0], [2])
    members = stages([first], [later]) if apart else stages([first, later])
    in_place(Plan("p", (X, NEW, y), (), members, ((1, 0),)), 1)


@pytest.mark.parametrize("order", [0, 1])
def test_fetch_in_the_same_stage_makes_a_copy(order: int) -> None:
    """An image is attached to a render pass or fetched in it, not both; the neighbours of a pixel
    may be written already."""
    y = image(2, "y", key=8)
    members = [substage([], [2], fetched=[0]), substage([], [1])]
    if order:
        members.reverse()
    in_place(Plan("p", (X, NEW, y), (), stages(members), ((1, 0),)), 1)
    in_place(Plan("p", (X, NEW), (), stages([substage([], [1], fetched=[0])]), ((1, 0),)), 1)


def test_new_value_that_is_fetched_later_lies_in_the_leaf() -> None:
    """x -> [new]; fetch new -> [y]."""
    y = image(2, "y", key=8)
    members = stages([substage([0], [1])], [substage([], [2], fetched=[1])])
    made = in_place(Plan("p", (X, NEW, y), (), members, ((1, 0),)), 0)
    assert made.stages[1].substages[0].bindings[0].index == 0


def test_one_source_for_two_leaves_is_written_once_and_copied_once() -> None:
    y = image(2, "y", key=8)
    plan = Plan("p", (X, NEW, y), (), stages([substage([0], [1])]), ((1, 0), (1, 2)))
    made = in_place(plan, 1)
    assert len(made.images) == 2
    # ... and copied to both where the leaf that comes first is read later.
    members = stages([substage([0], [1])], [substage([0], [3])])
    in_place(Plan("p", (X, NEW, y, image(3, "z")), (), members, ((1, 0), (1, 2))), 1)


def test_a_value_that_a_clear_goes_before_is_copied() -> None:
    """A rasterization writes some pixels only, after a clear that would take the old ones."""
    plan = Plan("p", (X, NEW), (), stages([substage([0], [1], clear=True)]), ((1, 0),))
    in_place(plan, 1)


def test_a_value_that_outlives_the_step_is_copied() -> None:
    """From the static half: its image keeps the value for the next step."""
    cached = image(1, "cached", key=8)
    in_place(Plan("p", (X, cached), (), (), ((1, 0),)), 1)
    in_place(Plan("p", (X, cached), (), stages([substage([0], [1])]), ((1, 0),)), 1)


@pytest.mark.parametrize("together", [False, True])
def test_swapped_leaves_get_the_old_values(together: bool) -> None:
    """a <- b, b <- a: in one subpass both in place, in two one of them must be copied."""
    a, b = image(0, "a", key=4), image(1, "b", key=8)
    images = (a, b, image(2, "new a"), image(3, "new b"))
    if together:
        members = stages([substage([0, 1], [2, 3])])
        in_place(Plan("p", images, (), members, ((2, 0), (3, 1))), 0)
    else:
        members = stages([substage([1], [2])], [substage([0], [3])])
        in_place(Plan("p", images, (), members, ((2, 0), (3, 1))), 1)
        members = stages([substage([1], [2]), substage([0], [3])])
        in_place(Plan("p", images, (), members, ((2, 0), (3, 1))), 1)


def test_leaf_that_is_read_by_nothing_is_written_at_once() -> None:
    in_place(Plan("p", (X, NEW), (), stages([substage([], [1])]), ((1, 0),)), 0)


def chain(n: int) -> Plan:
    """x -> 1 -> 2 -> ... -> n, each fetched, so each in a stage of its own."""
    images = (X, *(image(k, str(k)) for k in range(1, n + 1)))
    members = [[substage([], [k + 1], fetched=[k])] for k in range(n)]
    return Plan("p", images, (), stages(*members))


def test_a_long_chain_needs_two_images() -> None:
    plan = chain(12)
    made, moves = reuse_images(plan, [12])
    check_plan(made, LLVMPIPE)
    assert values(made, [moves[12]]) == values(plan, [12])
    assert len(made.images) == 1 + 2 + 1  # the leaf, two in turn, the result


def test_images_of_another_format_size_or_purpose_are_left_alone() -> None:
    plan = chain(8)
    images = list(plan.images)
    images[3] = replace(images[3], format="RGBA32F")
    images[5] = replace(images[5], key=20)
    plan = replace(plan, images=tuple(images))
    made, moves = reuse_images(plan, [8, 2])
    assert values(made, [moves[8], moves[2]]) == values(plan, [8, 2])
    for alone in (0, 2, 3, 5, 8):
        assert [old for old, new in moves.items() if new == moves[alone]] == [alone]


def test_image_that_is_copied_at_the_end_is_not_reused() -> None:
    plan = replace(chain(6), updates=((2, 0),))
    made, moves = reuse_images(plan, [])
    assert values(made, []) == values(plan, [])
    assert [old for old, new in moves.items() if new == moves[2]] == [2]


def test_last_read_and_first_write_in_one_stage_do_not_share() -> None:
    """Images of one render pass are attached all the time."""
    images = (X, NEW, image(2, "y"), image(3, "z"))
    members = stages([substage([0], [1])], [substage([1], [2]), substage([2], [3])])
    made, moves = reuse_images(Plan("p", images, (), members), [3])
    assert len(made.images) == 4 and moves[1] != moves[2] != moves[3]


# -- checks of broken plans ------------------------------------------------------------------------


def test_image_written_twice_in_a_stage_is_refused() -> None:
    members = stages([substage([0], [1]), substage([0], [1])])
    with pytest.raises(PackingError, match="new is written twice"):
        check_plan(Plan("p", (X, NEW), (), members), LLVMPIPE)


def test_persistent_image_written_twice_in_a_step_is_refused() -> None:
    members = stages([substage([0], [0])], [substage([0], [0])])
    with pytest.raises(PackingError, match="x is written twice"):
        check_plan(Plan("p", (X,), (), members), LLVMPIPE)


def test_shared_image_may_be_written_again_in_a_later_stage() -> None:
    members = stages([substage([0], [1])], [substage([1], [0])], [substage([0], [1])])
    check_plan(Plan("p", (X, NEW), (), members), LLVMPIPE)


def test_image_both_attached_and_fetched_in_a_stage_is_refused() -> None:
    """What updates in place without a look at fetches would make."""
    members = stages([substage([], [0], fetched=[0])])
    with pytest.raises(PackingError, match="both attached and fetched"):
        check_plan(Plan("p", (X,), (), members), LLVMPIPE)


# -- random graphs ---------------------------------------------------------------------------------


def stepped(seed: int, limits: DeviceLimits, options: Options) -> tuple[Packed, list[int]]:
    """A random graph whose leaves step along their gradients, and two of which swap their values;
    positions of what is kept after the step."""
    graph = random_graph(seed)
    grads = graph.gradients()
    updates = [(x, x - g * 0.1) for x, g in grads.items()]
    same = [(x, y) for x in grads for y in grads if x.uid < y.uid]
    same = [(x, y) for x, y in same if (x.vtype, x.size, x.layers) == (y.vtype, y.size, y.layers)]
    swap = same[seed % len(same)] if same and seed % 2 else ()
    updates = [(x, new) for x, new in updates if x not in swap]
    updates += [swap, swap[::-1]] if swap else []
    made = [own_image(v) for v in simplify([*graph.outputs, *(new for _, new in updates)])]
    n = len(graph.outputs)
    pairs = [(x, new) for (x, _), new in zip(updates, made[n:], strict=True)]
    packed = pack(made[:n], pairs, limits, options)
    return packed, [i for v in made[:n] for i in packed.images[v.uid]]


@pytest.mark.parametrize("preset", PRESETS)
def test_plans_of_random_graphs_compute_the_same_as_before(preset: str) -> None:
    """By symbols, three steps: persistent images and outputs. Both passes, one after the other."""
    limits = PRESETS[preset]
    saved_copies = saved_images = 0
    for seed in SEEDS:
        packed, kept = stepped(seed, limits, AS_PACKED)
        check_plan(packed.plan, limits)
        want = values(packed.plan, kept)
        direct, moves = write_in_place(packed.plan)
        check_plan(direct, limits)
        kept = [moves[i] for i in kept]
        assert values(direct, kept) == want, seed
        shared, moves = reuse_images(direct, kept)
        check_plan(shared, limits)
        assert values(shared, [moves[i] for i in kept]) == want, seed
        saved_copies += len(packed.plan.updates) - len(direct.updates)
        saved_images += len(direct.images) - len(shared.images)
    assert saved_copies > len(SEEDS) and saved_images > len(SEEDS)


@pytest.mark.parametrize("preset", PRESETS)
def test_images_alive_at_the_same_time_are_different(preset: str) -> None:
    limits = PRESETS[preset]
    for seed in SEEDS:
        packed, kept = stepped(seed, limits, AS_PACKED)
        plan = packed.plan
        made, moves = reuse_images(plan, kept)
        spans = lifetimes(plan)
        alone = {*kept, *(i.index for i in plan.images if i.key is not None)}
        alone |= {i for pair in plan.updates for i in pair}
        sharing: dict[int, list[int]] = {}
        for old, new in moves.items():
            sharing.setdefault(new, []).append(old)
        for olds in sharing.values():
            assert len(olds) == 1 or not alone & set(olds), seed
            shapes = {(plan.images[i].format, plan.images[i].width, plan.images[i].height)
                      for i in olds}  # fmt: skip
            assert len(shapes) == 1
            in_time = sorted(spans[i] for i in olds if i in spans)
            assert all(a[1] < b[0] for a, b in pairwise(in_time)), seed
        assert set(sharing) == set(range(len(made.images)))


def test_options_switch_both_on_and_off() -> None:
    """pack() with the switches is the plan as packed with the passes behind it."""
    for seed in range(0, 40, 8):
        packed, kept = stepped(seed, LLVMPIPE, AS_PACKED)
        both, kept_now = stepped(seed, LLVMPIPE, Options())
        assert len(both.plan.images) < len(packed.plan.images)
        assert len(both.plan.updates) < len(packed.plan.updates)
        assert len(set(kept_now)) == len(kept)


def test_where_a_leaf_lies_follows_the_moves() -> None:
    """The loss is also the next value of a leaf: both names lead to the leaf's image."""
    x = Variable(FLOAT, (4, 4), name="x")
    last = Variable(FLOAT, (4, 4), name="last")
    y = F.sin(x)
    packed = pack([y], [(last, y)], LLVMPIPE)
    (at,) = packed.images[y.uid]
    assert packed.plan.images[at].key is not None and packed.images[last.uid] == (at,)
    assert packed.plan.updates == () and len(packed.plan.images) == 2


def test_symbols_tell_plans_apart() -> None:
    """The witness itself: a plan that reads the new value where the old one is due is another."""
    y = image(2, "y", key=8)
    plan = Plan("p", (X, NEW, y), (), stages([substage([0], [1])], [substage([0], [2])]), ((1, 0),))
    wrong = Plan("p", (X, NEW, y), (), stages([substage([0], [0])], [substage([0], [2])]))
    assert values(plan, []) != values(wrong, [])
    assert values(plan, []) == values(plan, [])
    assert lifetimes(plan) == {0: (0, 1), 1: (0, 0), 2: (1, 1)}
