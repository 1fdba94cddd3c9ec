"""A shader gives what it makes at its own pixel only, and what it scatters nowhere: it does not
fetch what it makes, whatever brings both together."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from dressi.ad import F, Variable, simplify
from dressi.ad.registry import SAME
from dressi.ad.vtype import FLOAT, INT, IVEC3, VEC3
from dressi.packing import Options, check_plan, pack
from dressi.packing.limits import LLVMPIPE, DeviceLimits
from dressi.packing.passes import CHOICES, SUBSTAGES, UNITS, walk
from dressi.packing.profile import PRESETS
from dressi.packing.program import Program
from dressi.packing.substage import Substage
from dressi.packing.task import Task
from dressi.packing.units import in_buffer

N = 320
PROFILE = PRESETS["llvmpipe"]


def normals_and_bends() -> list[Variable]:
    """What a regularizer makes of normals u and of those of neighbours, and back: the last pass
    computes u anew, and so could the pass in front of it, which fetches it.

    n, l -> u = n / l -> k u(z), (k u)(x) -> sum -> dot(sum, u) n l
    """
    n, length, beside = Variable(VEC3, (N, 1)), Variable(FLOAT, (N, 1)), Variable(IVEC3, (N, 1))
    u, k = n / length, F.to_float(beside.z)
    bends = k * F.lookup(u, beside.z) + F.lookup(k * u, beside.x)
    return [F.dot(bends, u) * n * length]


def one_for_all_layers() -> list[Variable]:
    """sin(x) x is the same in all layers, and is dissolved in them; they fetch sin(x), too."""
    x, index = Variable(FLOAT, (N, 1)), Variable(INT, (N, 1), 3)
    v = F.sin(x)
    return [F.lookup(v, index) * (v * x)]


def folded_in_a_mirror() -> list[Variable]:
    """What is mirrored reads sin(x) at its pixel and at another one."""
    x, index = Variable(FLOAT, (N, 1)), Variable(INT, (N, 1))
    v = F.sin(x)
    return [F.flip(v * F.lookup(v, index))]


GRAPHS: list[tuple[Callable[[], list[Variable]], Options, dict[str, int]]] = [
    (normals_and_bends, Options(), {"input_attachments": 4}),
    # So few outputs stand for more values than there is room for.
    (one_for_all_layers, Options(), {"color_outputs": 1}),
    (folded_in_a_mirror, Options(lowering="compute"), {}),
]


@pytest.mark.parametrize(("graph", "options", "limits"), GRAPHS)
def test_what_is_made_here_is_not_fetched_here(
    graph: Callable[[], list[Variable]], options: Options, limits: dict[str, int]
) -> None:
    """In the smallest graphs of which a transformation once did that, each another one."""
    device = LLVMPIPE.restrict(name="few", **limits)
    packed = pack(simplify(graph()), [], device, options, profile=PROFILE)
    check_plan(packed.plan, device)
    assert not [each for s in packed.substages for each in fetched(s)]


def fetched(s: Substage) -> list[str]:
    """Names of what a shader makes at its own pixel, and reads at other ones; or scatters."""
    groups = (s.units, *s.computed.values(), *(m.units for m in s.mixed.values()))
    return [
        f"{v.label()} for {u.name}"
        for units in groups
        for u in units
        for v, read in u.reads
        if (read != SAME or in_buffer(v)) and any(v is y for made in units for y in made.outputs)
    ]


def fetched_and_used(seed: int) -> list[Variable]:
    """Values of few leaves that are fetched at other rows, for what is combined with them again."""
    rng = random.Random(seed)
    layers = rng.choice((1, 1, 3))
    rows = Variable(IVEC3, (N, 1), layers)
    leaves = [Variable(rng.choice((FLOAT, VEC3)), (N, 1)) for _ in range(rng.randrange(2, 6))]
    values = list(leaves)

    def at() -> Variable:
        return F.swizzle(rows, rng.choice("xyz"))

    def product(a: Variable, b: Variable) -> Variable:
        return F.dot(a, b) if a.vtype is b.vtype is VEC3 and rng.random() < 0.3 else a * b

    for _ in range(rng.randrange(1, 4)):
        u = product(rng.choice(values), rng.choice(leaves))
        u = F.sin(u) if rng.random() < 0.3 else u
        k = rng.choice((F.to_float(at()), rng.choice(values)))
        y = F.lookup(u, at())
        y = product(y, k) if rng.random() < 0.7 else y
        y = product(y, F.lookup(product(u, k), at())) if rng.random() < 0.7 else y
        y = product(y, rng.choice(leaves)) if rng.random() < 0.4 else y
        y = product(y, u if rng.random() < 0.5 else product(u, rng.choice(leaves)))
        for _ in range(rng.randrange(3)):
            y = product(y, rng.choice(leaves))
        values += [u, F.flip(y) if rng.random() < 0.3 else y]
        if layers == 1 and rng.random() < 0.3:
            values.append(product(F.scatter_add(u, F.dynamic(at()), (N, 1)), rng.choice(values)))
    return [values[-1], rng.choice(values[-2:])]


def programs(seed: int, limits: DeviceLimits) -> Iterator[Program]:
    """A graph after each pass over substages, in every order and lowering that packing tries."""
    outputs = tuple(simplify(fetched_and_used(seed)))
    task = Task("step", outputs, (), limits, profile=PROFILE)
    task = walk(CHOICES, Program(task, "step", task.context(()), outputs)).task
    for by_level in (False, True):
        for lowering, spill in (("graphics", False), ("graphics", True), ("compute", False)):
            context = replace(
                task.context(outputs), by_level=by_level, spill=spill, lowering=lowering
            )
            p = walk(UNITS, Program(task, "step", context, outputs))
            for each in SUBSTAGES:
                p = each(p)
                yield p


@pytest.mark.parametrize("n_outputs", [1, 2, 4, 8])
def test_no_transformation_makes_what_it_fetches(n_outputs: int) -> None:
    """25 graphs, and as few attachments as let a device's shaders be cut in the middle."""
    for seed in range(n_outputs, 104, 4):
        inputs = (4, 5, 6, 8)[seed // 4 % 4]
        limits = LLVMPIPE.restrict(input_attachments=inputs, color_outputs=n_outputs, name="few")
        for p in programs(seed, limits):
            assert not [each for s in p.substages for each in fetched(s)], (seed, p.context)
