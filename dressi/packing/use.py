"""How much of each limit a whole substage uses, and what follows from it.

In: a substage, limits of a device. Out: a ``Use``; what keeps it from being one shader; the
substage changed within its limits.
"""

from __future__ import annotations

from typing import Any

from dressi.ad.registry import SAME
from dressi.packing.limits import DeviceLimits
from dressi.packing.obstacles import (
    BUFFERS,
    IMAGES,
    INPUTS,
    LEAVES,
    LOOPS,
    SAMPLED,
    SAMPLERS,
    SCATTERED,
    Obstacle,
    Use,
    limit_obstacle,
    most_inputs,
    no_use,
)
from dressi.packing.substage import Substage, rebuilt
from dressi.packing.task import Context
from dressi.packing.units import ATTACHMENT, BUFFER, HW_SAMPLER, UNIFORM, in_buffer


def use_of(s: Substage) -> Use:
    """Return how much of each limit a substage uses."""
    use = no_use()
    use[LOOPS] = sum(u.loops for units in (s.units, *s.computed.values()) for u in units)
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


def spilled(s: Substage, context: Context) -> Substage:
    """Return a substage that fetches as textures the same-pixel inputs for which no attachment is
    left: the first that are made, which another pass makes anyway, and leaves last, for a step may
    write their next values where they lie."""
    use = use_of(s)
    over = use[INPUTS] - most_inputs(use, context.limits, s.has_depth)
    attached = [v for v, accesses in s.reads.values() if s.access(v, accesses) == ATTACHMENT]
    fetched = set(s.as_textures)
    for v in sorted(attached, key=lambda v: (v.creator is None, v.uid)):
        if over <= 0:
            break
        fetched.add(v.uid)
        over -= v.vtype.n_planes
    return rebuilt(s, context, as_textures=frozenset(fetched))


def why_not(s: Substage, limits: DeviceLimits) -> Obstacle | None:
    """Return what keeps a substage from being one shader of the device; None when it fits.

    A shader gives what it makes at its own pixel only, and what it scatters nowhere. That holds
    also for what another pass makes as well, and writes: inside a shader its own value goes first.
    """
    for units in (s.units, *s.computed.values(), *(m.units for m in s.mixed.values())):
        made = {v.uid for u in units for v in u.outputs}
        for v, read in (each for u in units for each in u.reads):
            if v.uid in made and (read != SAME or in_buffer(v)):
                return Obstacle("scattered" if in_buffer(v) else "elsewhere", v)
    return limit_obstacle(use_of(s), limits, s.has_depth, s.is_dispatch, s.lowered)


def fetched_as(s: Substage, context: Context) -> str:
    """Return the kind of the bindings of what a substage fetches: ``load`` where the device prefers
    storage images and all may be some, else ``texture``. Its attachments count, too: llvmpipe makes
    images of them, and more than its limit are read wrong, or crash."""
    use, limits = use_of(s), context.limits
    n = use[SAMPLED] + use[INPUTS] + (use[IMAGES] if s.is_dispatch else 0)
    fits = s.is_dispatch or n + use[IMAGES] + use[BUFFERS] <= limits.combined_outputs
    fits = fits and n <= limits.storage_images
    return "load" if context.image_loads and fits else "texture"


def rebuilt_within(s: Substage, context: Context, **changes: Any) -> Substage | None:
    """Return the substage with some fields replaced; None where it would be no shader of the
    device."""
    new = rebuilt(s, context, **changes)
    return None if why_not(new, context.limits) else new
