"""The cut between what is clean and what is not (no device): nothing is lost, nothing dirty is on
the static side, and the step side reads only what the static side left.

    dirty --> [ step ] --> outputs, updates
                 ^ cut: persistent images and buffers
    clean --> [static]

What depends on what is found here by walking the graph, not from what packing says it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import pytest

from dressi import SGD, Adam
from dressi.ad import F, Variable, build_backward, simplify, step_counter
from dressi.ad.graph import leaves, topological
from dressi.ad.optim import with_states
from dressi.ad.registry import FREE
from dressi.ad.simplify import own_image
from dressi.ad.vtype import FLOAT, INT, VEC3
from dressi.packing import Options, Packed, check_plan, image_key
from dressi.packing.build import pack_task
from dressi.packing.limits import LLVMPIPE, MINIMUM, NVIDIA
from dressi.packing.reactive import Split, split_functions, split_substages
from dressi.packing.task import MAX_PLANES, Task
from dressi.packing.units import in_buffer
from dressi.testing.random_graphs import random_graph

LIMITS = (LLVMPIPE, MINIMUM, NVIDIA)
NO_CHAINS = Options(rematerialize=False)


Way = Callable[[Packed, Collection[int]], Split | None]
WAYS: dict[str, Way] = {"fast": split_substages, "full": split_functions}


def task_of(
    loss: Variable,
    optimizer: Callable | None = None,
    options: Options | None = None,
    limits: object = LLVMPIPE,
    more: Collection[Variable] = (),
) -> Task:
    """As the engine packs a step."""
    options = options or Options()
    grads = build_backward(loss) if optimizer else {}
    new = optimizer(list(grads), list(grads.values())) if optimizer else []
    pairs = with_states([loss], list(zip(grads, new, strict=True)))
    outputs = [loss, *more]
    wanted = [*outputs, *(new for _, new in pairs)]
    made = [
        own_image(v) for v in simplify(wanted, options.merge_duplicates, options.fold_constants)
    ]
    n = len(outputs)
    updates = [(x, new) for (x, _), new in zip(pairs, made[n:], strict=True)]
    return Task("step", tuple(made[:n]), tuple(updates), limits, options)  # type: ignore[arg-type]


def random_task(
    seed: int, options: Options | None = None, limits: object = LLVMPIPE
) -> tuple[Task, set[int]]:
    """A random graph with Adam on some of its leaves, and the uids of some of the others, which are
    sent in each step."""
    rng = np.random.default_rng(seed)
    graph = random_graph(seed)
    others = [v for v in graph.feeds if not v.requires_grad]
    for v in graph.feeds:
        if v.requires_grad and rng.random() < 0.6:
            v.requires_grad = False
            others.append(v)
    if not any(v.requires_grad for v in leaves([graph.loss])):
        return random_task(seed + 1000, options, limits)
    task = task_of(graph.loss, Adam(), options, limits, graph.outputs[1:])
    dirty = {v.uid for v in others if rng.random() < 0.3}
    return task, dirty


def leaf_uids(v: Variable) -> set[int]:
    return {x.uid for x in leaves([v])}


def moving(task: Task, dirty: Collection[int]) -> set[int]:
    """Leaves that may differ from step to step."""
    return set(dirty) | {leaf.uid for leaf, _ in task.updates}


def closed(half: Packed, given: Collection[int], inline: Collection[int]) -> set[int]:
    """uids of what a half writes. Checked: every input of every Function is made before, in the
    same shader, or is a leaf, given, or recomputed by every shader."""
    written: set[int] = set()
    for s in half.substages:
        chains = s.computed.values()  # run where their values are fetched
        inside = set(s.computed)
        for f in (f for units in (*chains, s.units) for unit in units for f in unit.functions):
            for x in f.inputs:
                at_hand = (
                    x.creator is None
                    or x.uid in inside
                    or x.uid in inline
                    or x.creator.op.kind == FREE
                    or (x.uid in s.reads and (x.uid in written or x.uid in given))
                )
                assert at_hand, f"{f.where} reads {x.label()}, which nobody made"
            inside.add(f.output.uid)
        assert {v.uid for v in s.outputs} <= inside
        written |= {v.uid for v in s.outputs}
    return written


def check_split(task: Task, dirty: Collection[int], split: Split) -> set[int]:
    """Everything that a split promises; returns the uids of the cut."""
    assert split.static.task is not None and split.static.task.outputs == task.outputs
    task = split.static.task  # with the uniforms and what is inline
    changed = moving(task, dirty)
    check_plan(split.static.plan, task.limits)
    check_plan(split.step.plan, task.limits)
    by_uid = {f.output.uid: f.output for f in topological(task.wanted)}
    cut = {key // MAX_PLANES for key in split.keys}

    first = closed(split.static, (), task.inline)
    assert cut <= first
    for s in split.static.substages:
        units = [u for chain in (*s.computed.values(), s.units) for u in chain]
        for f in (f for unit in units for f in unit.functions):
            assert not leaf_uids(f.output) & changed, f"{f.where} of the static half is dirty"
    assert split.static.plan.updates == ()

    second = closed(split.step, cut, task.inline)
    assert not cut & second, "computed again although it was kept"
    for v in task.wanted:
        assert v.uid in first | second, f"{v.label()} is lost"
        half = split.static if v.uid in first else split.step
        assert v.uid in half.images
    for leaf, new in task.updates:
        assert new.uid in split.step.images and leaf.uid in split.step.images

    # Persistent images and buffers: leaves, and the cut, which the static half writes.
    known = {image_key(x, k) for x in leaves(task.wanted) for k in range(x.vtype.n_planes)}
    for half in (split.static, split.step):
        named = {i.key for i in half.plan.images} | {b.key for b in half.plan.buffers}
        assert named - {None} <= known | set(split.keys)
    images, buffers = split.static.plan.images, split.static.plan.buffers
    made = {images[i].key for t in split.static.plan.stages for s in t.substages for i in s.outputs}
    made |= {b.key for b in buffers if b.fill}
    assert set(split.keys) <= made
    for b in split.step.plan.buffers:
        assert b.fill == (b.key is None), "a buffer that was left for the step is not emptied"
    writes = {split.step.plan.images[i].key for t in split.step.plan.stages for s in t.substages
              for i in s.outputs}  # fmt: skip
    assert not writes & set(split.keys), "the step overwrites what it should read again"

    # Every leaf that a static value follows (indices through their derived tables) is known.
    for v in (by_uid[uid] for uid in cut):
        direct = {x.uid for f in topological([v]) for x in f.inputs if x.creator is None}
        assert direct <= split.depends | {x.uid for x in task.uniforms}
    assert not split.depends & changed
    return cut


def size_of(v: Variable) -> int:
    return 4 * v.size[0] * v.size[1] * v.layers * v.vtype.n_words


def cut_bytes(split: Split) -> int:
    plan = split.static.plan
    return sum(i.n_bytes for i in plan.images if i.key in split.keys) + sum(
        4 * b.n_words for b in plan.buffers if b.key in split.keys
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("options", [Options(), NO_CHAINS, Options.baseline()])
def test_splits_of_random_graphs_lose_nothing(way: str, options: Options) -> None:
    made = 0
    for seed in range(30):
        task, dirty = random_task(seed, options, LIMITS[seed % 3])
        split = WAYS[way](pack_task(task), dirty)
        if split is not None:
            made += 1
            check_split(task, dirty, split)
            assert 0.1 <= split.gain < 1
    assert made >= 6


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_split_when_every_leaf_is_dirty(way: str) -> None:
    for seed in range(8):
        task, _ = random_task(seed)
        everything = {x.uid for x in leaves(task.wanted)}
        assert WAYS[way](pack_task(task), everything) is None


@pytest.mark.parametrize("way", WAYS)
def test_without_a_dirty_leaf_the_step_is_empty(way: str) -> None:
    """Forward only: all is in the static half, outputs included."""
    for seed in range(8):
        graph = random_graph(seed)
        task = task_of(graph.loss, None, more=graph.outputs[1:])
        split = WAYS[way](pack_task(task), ())
        assert split is not None and split.gain == 1
        check_split(task, (), split)
        assert split.step.plan.stages == () and split.step.plan.updates == ()


def slow(y: Variable, n: int) -> Variable:
    """n passes that fetch other pixels."""
    for k in range(n):
        moved = F.pixel_coord(y.size) * (1.0 / y.size[0]) + 0.01 * (k + 1)
        y = F.sin(F.texture(y, moved))
    return y


def chain(size: tuple[int, int] = (32, 32)) -> tuple[Variable, Variable, Variable, Variable]:
    """clean -> 5 passes -> y; loss = mean((x * u - y)^2)."""
    x = Variable(FLOAT, size, requires_grad=True, name="x")
    clean, u = Variable(FLOAT, size, name="clean"), Variable(FLOAT, name="u")
    d = x * u - slow(clean, 5)
    return F.mean(d * d), x, clean, u


@pytest.mark.parametrize("way", WAYS)
def test_a_clean_chain_is_cut_at_its_end(way: str) -> None:
    loss, x, clean, u = chain()
    task = task_of(loss, SGD(0.1))
    split = WAYS[way](pack_task(task), {u.uid})
    assert split is not None and split.gain > 0.4
    assert len(check_split(task, {u.uid}, split)) == 1
    assert split.depends == {clean.uid}
    assert cut_bytes(split) == 4 * 32 * 32
    assert WAYS[way](pack_task(task), {clean.uid}) is None
    whole = pack_task(task).plan
    assert len(split.step.plan.stages) < len(whole.stages)
    assert x.uid in split.step.images and x.uid not in split.static.images


def test_a_clean_chain_of_macros_is_not_doubled() -> None:
    """A value that forward and backward share is lowered once, whatever macro comes behind it."""
    x, clean = (Variable(FLOAT, (32, 32), requires_grad=g) for g in (True, False))
    y = clean
    for _ in range(5):
        y = F.sin(F.image.dilate(y, 2.0, 3))
    d = x - y
    split = split_functions(pack_task(task_of(F.mean(d * d), SGD(0.1))), ())
    assert split is not None and cut_bytes(split) == 4 * 32 * 32
    functions = [f for s in split.static.plan.stages for b in s.substages for f in b.functions]
    assert sum(f.startswith("max_tap") for f in functions) == 5 * 4


def test_fast_way_keeps_the_shaders_full_way_drops_unused_uniforms() -> None:
    loss, _, _, u = chain()
    task = task_of(loss, SGD(0.1))
    whole = pack_task(task)
    known = {s.fragment for t in whole.plan.stages for s in t.substages}
    split = split_substages(whole, {u.uid})
    assert split is not None
    for half in (split.static, split.step):
        assert half.plan.uniform_slots == whole.plan.uniform_slots
        assert {s.fragment for t in half.plan.stages for s in t.substages} <= known
    full = split_functions(pack_task(task), {u.uid})
    assert full is not None and full.static.plan.uniform_slots == 0
    assert full.step.plan.uniform_slots == 1


@pytest.mark.parametrize("way", WAYS)
def test_scattered_sums_are_left_in_a_persistent_buffer(way: str) -> None:
    """static: clean values summed into a table; step: the table read at dynamic places."""
    size = (16, 16)
    values, index = Variable(VEC3, size, name="values"), Variable(INT, size, name="index")
    x = Variable(VEC3, size, requires_grad=True, name="x")
    smooth = values
    for _ in range(4):
        smooth = F.sin(smooth) + 0.25
    table = F.scatter_add(smooth, F.dynamic(index), (8, 1))
    d = x - F.lookup(table, index)
    task = task_of(F.mean(F.dot(d, d)), SGD(0.1))
    split = WAYS[way](pack_task(task), ())
    assert split is not None
    cut = check_split(task, (), split)
    made = {f.output.uid: f.output for f in topological(task.wanted)}
    kept = [b for b in split.static.plan.buffers if b.key is not None]
    assert any(in_buffer(made[uid]) for uid in cut) == bool(kept)
    assert split.depends >= {values.uid, index.uid}


@pytest.mark.parametrize("way", WAYS)
def test_what_follows_a_step_counter_is_never_clean(way: str) -> None:
    x = Variable(FLOAT, (16, 16), requires_grad=True, name="x")
    noise = F.to_float(step_counter()) * F.pixel_coord((16, 16)).x
    for _ in range(6):
        noise = F.sin(noise) * 1.5
    d = x - noise
    task = task_of(F.mean(d * d), SGD(0.1))
    split = WAYS[way](pack_task(task), ())
    if split is not None:
        check_split(task, (), split)
        assert split.gain < 0.2


def test_integer_leaf_dirties_what_reads_its_derived_tables() -> None:
    """The gather of the gradient of a lookup follows the index: dirty with it."""
    table = Variable(VEC3, (64, 1), requires_grad=True, name="table")
    index = Variable(INT, (16, 16), name="index")
    d = F.lookup(table, index) - F.constant((1.0, 2.0, 3.0))
    task = task_of(F.mean(F.dot(d, d)), SGD(0.1))
    derived = [v for v in leaves(task.wanted) if v.derived is not None]
    assert derived
    for v in derived:
        assert index.uid in leaf_uids(v)


@pytest.mark.parametrize("seed", range(30))
def test_recomputing_makes_the_cut_no_larger(seed: int) -> None:
    """Bytes that go from the static to the step half, with rematerialization against without."""
    sizes = []
    for options in (Options(), NO_CHAINS):
        task, dirty = random_task(seed, options)
        split = split_functions(pack_task(task), dirty)
        sizes.append(None if split is None else cut_bytes(split))
    with_chains, without = sizes
    if with_chains is None or without is None:
        return  # too little is clean, one way or the other
    assert with_chains <= without


def test_cut_moves_to_the_smaller_image() -> None:
    """A wide value that one Function makes from a narrow one is made again in the step."""
    size = (32, 32)
    clean = Variable(FLOAT, size, name="clean")
    x = Variable(VEC3, size, requires_grad=True, name="x")
    y = slow(clean, 4)
    d = x - F.vec(y, y, y)
    loss = F.mean(F.dot(d, d))
    sizes = {}
    for options in (Options(), NO_CHAINS):
        task = task_of(loss, SGD(0.1), options)
        split = split_functions(pack_task(task), ())
        assert split is not None
        cut = check_split(task, (), split)
        made = {f.output.uid: f.output for f in topological(task.wanted)}
        assert cut_bytes(split) >= sum(size_of(made[uid]) for uid in cut)
        sizes[options.rematerialize] = cut_bytes(split)
    assert sizes[True] == 4 * 32 * 32 < sizes[False]
