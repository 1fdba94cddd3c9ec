"""Shaders that loop: as many Functions in one as the compiler of the device bears."""

from __future__ import annotations

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, VEC2
from dressi.packing import Options, Packed, check_plan, pack
from dressi.packing.limits import CPU_LOOPS, LLVMPIPE, NVIDIA, DeviceLimits
from dressi.packing.lower import lower
from dressi.packing.profile import PRESETS

N_SUMS = 40


def packed_sums(limits: DeviceLimits) -> Packed:
    """What a number gets as its gradient: a sum of sums, each of an image of its own. On a CPU
    driver one invocation takes each sum, in two loops."""
    sums = [F.sum(F.sin(Variable(FLOAT, (16, 12)))) for _ in range(N_SUMS)]
    total = sums[0]
    for x in sums[1:]:
        total = F.sin(total) + x
    profile = PRESETS["llvmpipe"]
    outputs = lower([total], Options(), profile, limits)
    found = pack(outputs, [], limits, Options(), profile=profile)
    check_plan(found.plan, limits)
    return found


def most_loops(found: Packed) -> int:
    shaders = [s.fragment for stage in found.plan.stages for s in stage.substages]
    return max(text.count("for (int j = 0; j < 12; j++)") for text in shaders)


def test_a_cpu_driver_gets_few_loops_in_a_shader() -> None:
    """40 took LLVM longer than anybody waited."""
    assert 1 < most_loops(packed_sums(LLVMPIPE)) <= CPU_LOOPS


def test_other_drivers_get_them_all_in_one() -> None:
    assert most_loops(packed_sums(NVIDIA)) == N_SUMS


def test_short_loops_do_not_count() -> None:
    """Drivers unroll them, such as those over the four texels of a bilinear lookup."""
    image, uv = Variable(FLOAT, (32, 32)), Variable(VEC2, (8, 8))
    total = F.texture(image, uv)
    for k in range(20):
        total = total + F.texture(image, uv * float(k + 2))
    found = pack(lower([total], Options(), None, LLVMPIPE), [], LLVMPIPE)
    assert len(found.substages) == 1
