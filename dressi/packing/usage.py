"""What a substage uses of each limit of a device, counted one input at a time.

In: a Substage, limits. Out: its ``Use``; the limit that it breaks, if any.
"""

from __future__ import annotations

from typing import Any

from dressi.ad.registry import RASTER
from dressi.packing.limits import DeviceLimits
from dressi.packing.obstacles import (
    BUFFERS,
    IMAGES,
    INPUTS,
    LEAVES,
    SAMPLED,
    SAMPLERS,
    SCATTERED,
    Obstacle,
    Use,
    limit_obstacle,
)
from dressi.packing.substage import Substage, rebuilt
from dressi.packing.task import Context
from dressi.packing.units import ATTACHMENT, BUFFER, HW_SAMPLER, UNIFORM, in_buffer


def use_of(s: Substage) -> Use:
    """Return how much of each limit a substage uses."""
    use = [0] * 7
    for v, accesses in s.reads.values():
        count_input(use, s.access(v, accesses), v.vtype.n_planes, v.creator is None)
    for v in s.outputs:
        if in_buffer(v):
            use[BUFFERS] += 1
            use[SCATTERED] += 1
        else:
            use[IMAGES] += v.vtype.n_planes
    return use


def count_input(use: Use, how: str, n_planes: int, leaf: bool, sign: int = 1) -> None:
    """Add an input to what a shader uses, or take it away."""
    if how == ATTACHMENT:
        use[INPUTS] += sign * n_planes
        if leaf:
            use[LEAVES] += sign * n_planes
    elif how == BUFFER:
        use[BUFFERS] += sign
    elif how != UNIFORM:
        use[SAMPLED] += sign * n_planes
        if how == HW_SAMPLER:
            use[SAMPLERS] += sign * n_planes


def broken_limit(s: Substage, limits: DeviceLimits) -> Obstacle | None:
    """Return the limit of the device that a substage breaks, if any."""
    return limit_obstacle(use_of(s), limits, s.kind == RASTER, s.is_dispatch, s.lowered)


def rebuilt_within(s: Substage, context: Context, **changes: Any) -> Substage | None:
    """Return the substage with some fields replaced; None where it would break a limit."""
    new = rebuilt(s, context, **changes)
    return None if broken_limit(new, context.limits) else new
