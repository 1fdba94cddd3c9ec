"""What the packer counts is exact: one more or less of a limit, and a shader is split, or not."""

from __future__ import annotations

import pytest

from dressi.ad import F, Variable, simplify
from dressi.ad.vtype import FLOAT, INT, VEC4
from dressi.packing import check_plan, pack
from dressi.packing.build import Packed
from dressi.packing.limits import LLVMPIPE, MINIMUM, DeviceLimits

SIZE = (8, 6)


def packed(outputs: list[Variable], limits: DeviceLimits) -> Packed:
    result = pack(simplify(outputs), [], limits)
    check_plan(result.plan, limits)
    return result


def scatters(n: int) -> list[Variable]:
    """Tables that pixels of one domain add to, as unlike each other as need be to stay apart."""
    index = F.dynamic(Variable(INT, SIZE, name="i"))
    x = Variable(FLOAT, SIZE, name="x")
    return [F.scatter_add(F.sin(x * float(k + 2)), index, (5 + k, 1)) for k in range(n)]


@pytest.mark.parametrize(("allowed", "expected"), [(4, 1), (3, 2), (2, 2), (1, 4)])
def test_scatters_share_a_shader_up_to_the_limit_of_outputs(allowed: int, expected: int) -> None:
    """Four of them, at most ``allowed`` outputs per fragment shader: each counts once."""
    limits = LLVMPIPE.restrict(combined_outputs=allowed)
    stages = packed(scatters(4), limits).plan.stages
    assert sum(len(st.substages) for st in stages) == expected


@pytest.mark.parametrize("attachments", [3, 4, 6])
def test_what_finds_no_attachment_is_fetched_as_a_texture(attachments: int) -> None:
    """A Function of five inputs and one output in a render pass of few attachments."""
    limits = LLVMPIPE.restrict(stage_attachments=attachments)
    parts = [Variable(FLOAT, SIZE, name=f"v{k}") for k in range(4)]
    p = packed([F.vec4(*parts)], limits)
    (substage,) = (s for st in p.plan.stages for s in st.substages)
    kinds = [b.kind for b in substage.bindings]
    assert kinds.count("input") == min(4, attachments - 1)
    assert kinds.count("texture") == 4 - kinds.count("input")


@pytest.mark.parametrize(("attachments", "stages"), [(4, 1), (3, 2)])
def test_the_depth_of_a_rasterization_is_an_attachment_of_its_stage(
    attachments: int, stages: int
) -> None:
    """Ids, an image, the product and the depth: four."""
    corners = [Variable(VEC4, (5, 1), name=f"corner{k}") for k in range(3)]
    frag = F.rasterize(corners, SIZE)
    ids = F.resolve(frag, F.to_float(frag) * 0.1, background=-1)
    product = F.to_float(ids) * Variable(FLOAT, SIZE, name="a")
    p = packed([product], LLVMPIPE.restrict(stage_attachments=attachments))
    assert len(p.plan.stages) == stages


@pytest.mark.parametrize(("attachments", "stages"), [(24, 1), (23, 2)])
def test_attachments_of_subpasses_without_depth(attachments: int, stages: int) -> None:
    """Three subpasses of four inputs and four outputs each."""
    limits = MINIMUM.restrict(stage_attachments=attachments)
    p = packed([F.sin(Variable(FLOAT, SIZE, name=f"a{k}")) for k in range(12)], limits)
    assert len(p.plan.stages) == stages
