"""GLSL of small graphs, word for word: in passes, and in dispatches. ``pytest tests/packing
--update-golden`` rewrites the files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dressi.ad import F, Variable, build_backward, simplify
from dressi.ad.simplify import materialize
from dressi.ad.vtype import FLOAT, INT, MAT4, VEC3, VEC4
from dressi.packing import Options, pack, plan_text, shaders_text
from dressi.packing.limits import LLVMPIPE, MINIMUM, NVIDIA, DeviceLimits
from dressi.packing.lower import lower
from dressi.packing.plan import Plan

FOLDER = Path(__file__).resolve().parent.parent / "golden"


def fused() -> tuple[list[Variable], DeviceLimits]:
    """Same-pixel work, a uniform, a stack of layers: one shader."""
    albedo = Variable(VEC3, (8, 6), 2, name="albedo")
    light = Variable(VEC3, layers=2, name="light")
    return [F.sigmoid(albedo * light) + F.pixel_coord((8, 6), 2).x * 0.5], LLVMPIPE


def mesh() -> tuple[list[Variable], DeviceLimits]:
    """Project, rasterize, resolve, look up, and the gradient back to the vertices."""
    pos = Variable(VEC4, (5, 1), requires_grad=True, name="pos")
    index = [Variable(INT, (3, 1), name=f"index{k}") for k in range(3)]
    m = Variable(MAT4, name="matrix")
    corners = [F.lookup(m @ pos, i) for i in index]
    frag = F.rasterize(corners, (8, 6))
    z = F.lookup(F.stop_gradient(corners[0]), frag).z
    ids = F.resolve(frag, z, background=-1)
    image = F.lookup(corners[0], ids)
    (g,) = build_backward(image * image).values()
    return [image, g], LLVMPIPE


def weak_device() -> tuple[list[Variable], DeviceLimits]:
    """A texture and its exact backward on a device without linear float filtering or float
    atomics."""
    tex = Variable(FLOAT, (4, 4), requires_grad=True, name="tex")
    uv = Variable(VEC3, (6, 5), name="uv")
    y = F.texture(tex, uv.xy, wrap="mirror")
    (g,) = build_backward(y * y).values()
    return [y, g], MINIMUM


def dispatches() -> tuple[list[Variable], DeviceLimits]:
    """Same-pixel work, and a sum of a row of a sparse matrix, with neither subgroups nor 64-bit
    atomics; the gradient of a dynamic lookup is added up by compare-and-swap."""
    table = Variable(VEC3, (5, 1), requires_grad=True, name="table")
    index = Variable(INT, (8, 6), name="index")
    matrix = F.linalg.SparseMatrix([0, 2, 3], [0, 4, 2], [0.5, -1.0, 2.0], 5)
    y = F.sigmoid(F.lookup(table, F.dynamic(index)))
    (g,) = build_backward(y * y).values()
    return [F.linalg.sparse_matmul(matrix, g)], MINIMUM


def workgroups() -> tuple[list[Variable], DeviceLimits]:
    """Kernels of workgroups: a rasterization with 64-bit atomics, and a sum in two levels."""
    corners = [Variable(VEC4, (9, 1), name=f"corner{k}") for k in range(3)]
    frag = F.rasterize(corners, (80, 60), cull="back")
    ids = F.resolve(frag, F.lookup(corners[0], frag).z, background=-1)
    return [F.sum(F.lookup(corners[0], ids))], NVIDIA


def subgroups() -> tuple[list[Variable], DeviceLimits]:
    """Lanes add up what goes to one row, and long rows of a gather, with each other."""
    pos = Variable(VEC3, (5, 1), requires_grad=True, name="pos")
    index = Variable(INT, (8, 6), name="index")
    faces = Variable(INT, (30, 1), name="faces")
    y = F.lookup(pos, F.dynamic(index))
    z = F.lookup(pos, faces)
    g, h = (next(iter(build_backward(v * v).values())) for v in (y, z))
    return [g, h], NVIDIA


@pytest.mark.parametrize("make", [fused, mesh, weak_device], ids=lambda f: f.__name__)
def test_glsl_of_passes_is_the_golden_one(make, request: pytest.FixtureRequest) -> None:  # type: ignore[no-untyped-def]
    outputs, limits = make()
    lowered = [materialize(v) if _in_buffer(v) else v for v in simplify(outputs)]
    plan = pack(lowered, [], limits, name=make.__name__).plan
    check_golden(plan, request)


@pytest.mark.parametrize("make", [dispatches, workgroups, subgroups], ids=lambda f: f.__name__)
def test_glsl_of_dispatches_is_the_golden_one(make, request: pytest.FixtureRequest) -> None:  # type: ignore[no-untyped-def]
    outputs, limits = make()
    options = Options(lowering="compute")
    lowered = lower(outputs, options, None, limits)
    plan = pack(lowered, [], limits, options, name=make.__name__).plan
    assert {stage.kind for stage in plan.stages} == {"compute"}
    assert ("shared" in shaders_text(plan)) == (make is workgroups)
    assert ("subgroupAdd" in shaders_text(plan)) == (make is subgroups)
    check_golden(plan, request)


def check_golden(plan: Plan, request: pytest.FixtureRequest) -> None:
    """Compares a plan and its shaders with the golden file of its name, or rewrites that."""
    text = "".join(f"// {line}\n" for line in plan_text(plan).splitlines()) + shaders_text(plan)
    # Numbers of unnamed Variables and lines of this file change with all that is made before.
    numbers: dict[str, str] = {}
    text = re.sub(r"%\d+", lambda m: numbers.setdefault(m.group(), f"%{len(numbers)}"), text)
    text = re.sub(r"test_golden\.py:\d+", "test_golden.py", text)
    path = FOLDER / f"{plan.name}.glsl"
    if request.config.getoption("--update-golden", default=False):
        path.write_text(text)
    assert path.is_file(), "no golden file; run with --update-golden and read what it wrote"
    assert text == path.read_text(), "run with --update-golden and read the difference in git"


def _in_buffer(v: Variable) -> bool:
    return v.creator is not None and v.creator.op.scatter is not None
