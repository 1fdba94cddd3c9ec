"""Numbers that follow from the lengths of tables are pushed to shaders, not written into them: what
was compiled for one mesh serves another one."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from dressi.ad import F, Variable, build_backward, simplify
from dressi.ad.vtype import FLOAT, INT, MAT4, VEC3
from dressi.errors import PackingError
from dressi.packing import Options, Plan, check_plan, pack, plan_text
from dressi.packing.layout import MOST_PUSHED
from dressi.packing.limits import LLVMPIPE
from dressi.packing.profile import PRESETS


def mesh_like(n_vertices: int, n_faces: int) -> list[Variable]:
    """Corners of faces on the screens of three views, and the gradient of their squares to the
    vertices: lookups, the inverse of an index, layers."""
    vertices = Variable(VEC3, (n_vertices, 1), requires_grad=True, name="vertices")
    corners = Variable(INT, (n_faces, 1), name="corners")
    matrix = Variable(MAT4, layers=3, name="matrix")
    at = F.lookup(matrix @ F.vec4(vertices, 1.0), corners)
    loss = at * at
    index = F.to_int(at.x)
    added = F.scatter_add(at, index, (n_vertices, 1), 3)
    return [loss, build_backward(loss, [vertices])[vertices], added]


def plan_of(outputs: list[Variable], lowering: str) -> Plan:
    return pack(simplify(outputs), [], LLVMPIPE, Options(lowering=lowering)).plan


def shaders(plan: Plan) -> list[str]:
    """All shaders, without comments."""
    made = [s for stage in plan.stages for s in stage.substages]
    texts = [text for s in made for text in (s.vertex, s.fragment, s.compute) if text]
    return [re.sub(r"//.*", "", text) for text in texts]


@pytest.mark.parametrize("lowering", ["graphics", "compute"])
def test_meshes_of_two_sizes_take_the_same_shaders(lowering: str) -> None:
    """2904 and 5719 vertices differ in the widths of tables, 46 and 90 rows of faces in strides
    of layers."""
    small, large = (plan_of(mesh_like(*size), lowering) for size in ((2904, 5804), (5719, 11434)))
    assert shaders(small) == shaders(large)
    pushed = [
        [s.pushed for stage in plan.stages for s in stage.substages] for plan in (small, large)
    ]
    assert pushed[0] != pushed[1]
    assert {5804, 2904} <= {n for numbers in pushed[0] for n in numbers}


def test_what_cannot_be_pushed_is_written_into_the_shader() -> None:
    """Every device takes 128 bytes; a shader that reads twenty tables needs more."""
    here = Variable(INT, (7, 4), name="here")
    tables = [Variable(FLOAT, (100 + k, 1), name=f"table {k}") for k in range(20)]
    plan = plan_of([F.add_n([F.lookup(t, here) for t in tables])], "compute")
    made = [s for stage in plan.stages for s in stage.substages]
    most = max(made, key=lambda s: len(s.pushed))
    assert len(most.pushed) == MOST_PUSHED
    assert re.search(r"clamp\(i\d+, 0, 119 - 1\)", most.compute)
    numbers = [int(n) for n in re.findall(r"pushed\[(\d+)\](?!;)", most.compute)]
    assert max(numbers) == MOST_PUSHED - 1


def test_cpu_drivers_are_pushed_nothing() -> None:
    """A lane would load a number in front of every shift."""
    outputs = mesh_like(2904, 5804)
    plan = pack(simplify(outputs), [], LLVMPIPE, profile=PRESETS["llvmpipe"]).plan
    assert not [s for stage in plan.stages for s in stage.substages if s.pushed]
    assert not [text for text in shaders(plan) if "pushed" in text]


@pytest.mark.parametrize("pushed", [(), tuple(range(MOST_PUSHED + 1))])
def test_a_plan_pushes_what_its_shaders_read(pushed: tuple[int, ...]) -> None:
    plan = plan_of(mesh_like(290, 580), "compute")
    check_plan(plan, LLVMPIPE)
    stages = [
        replace(stage, substages=tuple(replace(s, pushed=pushed) for s in stage.substages))
        for stage in plan.stages
    ]
    with pytest.raises(PackingError, match=r"numbers (are )?pushed"):
        check_plan(replace(plan, stages=tuple(stages)), LLVMPIPE)


def test_texts_of_a_plan_say_what_is_pushed() -> None:
    texts = [
        plan_text(plan_of(mesh_like(*size), "compute")) for size in ((2904, 5804), (2905, 5804))
    ]
    assert "pushed" in texts[0] and texts[0] != texts[1]
