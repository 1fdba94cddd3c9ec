"""Passes compute anew what they would carry, where that is predicted to be faster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dressi.ad import F, Variable, build_backward, simplify
from dressi.ad.registry import FRAG, SAME
from dressi.ad.vtype import IVEC3, VEC4
from dressi.packing import Options, Packed, check_plan, pack
from dressi.packing.limits import LLVMPIPE, DeviceLimits
from dressi.packing.passes import CHOICES, SUBSTAGES, UNITS, walk
from dressi.packing.predict import words_written
from dressi.packing.profile import PRESETS as PROFILES
from dressi.packing.profile import Costs, DeviceProfile
from dressi.packing.program import Program
from dressi.packing.substage import Substage
from dressi.packing.task import Task
from dressi.testing.random_graphs import random_graph

LLVM = PROFILES["llvmpipe"]
DEAR = DeviceProfile("dear", Costs(40, 2300, 9000, 2000), LLVM.compute)
"""Arithmetic costs more than memory."""
N = 20000


def packed(outputs: list[Variable], on: bool, profile: DeviceProfile = LLVM) -> Packed:
    return pack(simplify(outputs), [], LLVMPIPE, Options(rederive=on), profile=profile)


def words(p: Packed) -> int:
    return sum(map(words_written, p.substages))


def table() -> tuple[Variable, Variable]:
    """Corners of faces, and what their neighbours make of them and of a few values of their own."""
    vertices, faces = Variable(VEC4, (N // 2, 1)), Variable(IVEC3, (N, 1))
    a, b, c = (F.lookup(vertices, F.swizzle(faces, k)) for k in "xyz")
    total = a + b + c
    values = [F.dot(total * float(k + 1), a) + F.dot(b, c) for k in range(9)]
    across = [F.lookup(x, F.swizzle(faces, "x")) for x in (a, b, c, values[0])]
    own = F.add_n([v * F.dot(across[0], across[1]) for v in values])
    return own + F.dot(across[2], across[2]) * across[3], total


def test_values_of_corners_are_not_carried() -> None:
    """Nine values are made of three corners, which are stored anyway, for neighbours read them."""
    result, _ = table()
    plain, fast = packed([result], False), packed([result], True)
    for p in (plain, fast):
        check_plan(p.plan, LLVMPIPE)
    assert words(fast) < words(plain)
    assert len(fast.plan.stages) <= len(plain.plan.stages)


def test_it_is_left_alone_where_arithmetic_is_dear_and_where_nothing_is_known() -> None:
    result, _ = table()
    plain = words(packed([result], False))
    assert words(packed([result], True, DEAR)) == plain
    bare = pack(simplify([result]), [], LLVMPIPE, Options())
    assert words(bare) == words(pack(simplify([result]), [], LLVMPIPE, Options(rederive=False)))


def computed(substages: list[Substage]) -> None:
    """Every value is read behind the substage that writes it."""
    written: set[int] = set()
    for s in substages:
        made = {v.uid for u in s.units for v in u.outputs}
        for v in s.inputs:
            assert v.creator is None or v.uid in written
        if s.kind == FRAG:  # a shader gives what it makes at its own pixel only
            assert not any(v.uid in made and read != SAME for u in s.units for v, read in u.reads)
        assert {v.uid for v in s.outputs} <= made
        assert written.isdisjoint(v.uid for v in s.outputs)
        written |= {v.uid for v in s.outputs}


@pytest.mark.parametrize("limits", [LLVMPIPE, LLVMPIPE.restrict(color_outputs=4, name="four")])
def test_random_graphs_stay_whole(limits: DeviceLimits) -> None:
    """Each value has one writer, in front of its readers, and limits hold; whatever is cheap."""
    cheap = replace(LLVM, graphics=Costs(40, 1e6, 1e-3, 2000))
    fewer = 0
    for seed in range(40):
        graph = random_graph(seed)
        outputs = simplify([graph.loss, *build_backward(graph.loss).values()])
        found = []
        for on in (False, True):
            task = Task("step", tuple(outputs), (), limits, Options(rederive=on), profile=cheap)
            task = walk(CHOICES, Program(task, "step", task.context(()), tuple(outputs))).task
            program = Program(task, "step", task.context(outputs), tuple(outputs))
            program = walk(SUBSTAGES, walk(UNITS, program))
            computed(list(program.substages))
            found.append(sum(map(words_written, program.substages)))
        fewer += found[1] < found[0]
    assert fewer > 0


def test_passes_over_the_same_rows_join_where_neither_reads_the_other() -> None:
    """vertices -> faces -> vertices, and a sum over neighbours that the last pass gathers: it joins
    the first one."""
    x, corners = Variable(VEC4, (N // 2, 1)), Variable(IVEC3, (N, 1))
    around = Variable(IVEC3, (N // 2, 1))
    faces = F.lookup(F.sin(x), corners.x) * F.lookup(F.sin(x), corners.y)
    beside = F.lookup(x, around.x) + F.lookup(x, around.y)
    last = F.lookup(faces, around.z) * F.lookup(beside, around.x)
    plain, fast = packed([last], False), packed([last], True)
    for p in (plain, fast):
        check_plan(p.plan, LLVMPIPE)
    assert (len(plain.substages), len(fast.substages)) == (4, 3)
