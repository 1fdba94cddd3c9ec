"""GLSL of three small graphs, word for word. ``pytest tests/packing --update-golden`` rewrites the
files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dressi.ad import F, Variable, build_backward, simplify
from dressi.ad.simplify import materialize
from dressi.ad.vtype import FLOAT, INT, MAT4, VEC3, VEC4
from dressi.packing import pack, plan_text, shaders_text
from dressi.packing.limits import LLVMPIPE, MINIMUM, DeviceLimits

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


@pytest.mark.parametrize("make", [fused, mesh, weak_device], ids=lambda f: f.__name__)
def test_glsl_is_the_golden_one(make, request: pytest.FixtureRequest) -> None:  # type: ignore[no-untyped-def]
    outputs, limits = make()
    lowered = [materialize(v) if _in_buffer(v) else v for v in simplify(outputs)]
    plan = pack(lowered, [], limits, name=make.__name__).plan
    text = "".join(f"// {line}\n" for line in plan_text(plan).splitlines()) + shaders_text(plan)
    # Numbers of unnamed Variables and lines of this file change with all that is made before.
    numbers: dict[str, str] = {}
    text = re.sub(r"%\d+", lambda m: numbers.setdefault(m.group(), f"%{len(numbers)}"), text)
    text = re.sub(r"test_golden\.py:\d+", "test_golden.py", text)
    path = FOLDER / f"{make.__name__}.glsl"
    if request.config.getoption("--update-golden", default=False):
        path.write_text(text)
    assert path.is_file(), "no golden file; run with --update-golden and read what it wrote"
    assert text == path.read_text(), "run with --update-golden and read the difference in git"


def _in_buffer(v: Variable) -> bool:
    return v.creator is not None and v.creator.op.scatter is not None
