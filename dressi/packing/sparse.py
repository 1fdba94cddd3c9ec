"""Sparse passes: fragments run what a mask makes needless only where the mask is not 0.

In: substages. Out: the same, those marked with a ``Guard`` of which the guarded Functions are most
of the work. Such a subpass draws twice: first all pixels, without what is guarded, which leaves out
those where the mask is not 0; then those, with everything. What the first draw wrote fails the
early depth test of the second, so that no invocation of it runs there: that is what skips work
where a branch skips none, as on CPU drivers, which run both sides of it. Where the mask is packed
bits, ``tiles`` goes further.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dressi.ad.registry import FRAG
from dressi.packing.guard import Guard, find_guard, weight
from dressi.packing.obstacles import IMAGES, INPUTS
from dressi.packing.profile import DeviceProfile
from dressi.packing.substage import Substage
from dressi.packing.task import Context
from dressi.packing.tiles import draw_tiles
from dressi.packing.use import use_of

SHARE = 0.5
"""Of the work of a shader that must be guarded: the rest is in both draws."""


def mark_sparse(substages: Sequence[Substage], context: Context) -> list[Substage]:
    """Return the substages with the guards by which they draw twice."""
    marked = [replace(s, guard=sparse_guard(s, context)) for s in substages]
    return draw_tiles(marked, context) if context.image_loads else marked


def sparse_guard(s: Substage, context: Context) -> Guard | None:
    """Return the guard by which a substage would draw twice; None where that does not pay."""
    if s.kind != FRAG or s.is_dispatch or context.profile is None:
        return None
    use = use_of(s)
    if use[INPUTS] + use[IMAGES] + 1 > context.limits.stage_attachments:
        return None
    functions = [f for u in s.units for f in u.functions]
    everything = sum(map(weight, functions))
    if not pays(context.profile, s.n_pixels, everything):
        return None
    kept = frozenset(v.uid for v in s.outputs)
    key = ("guard", s.units, kept)
    if key not in context.memo:
        context.memo[key] = find_guard(functions, kept)
    guard: Guard | None = context.memo[key]
    if guard is None:
        return None
    rest = [f for guarded, run in guard.runs if not guarded for f in run]
    if any(f.op.scatter for f in rest):
        return None  # a pixel that the first draw leaves out would add twice
    saved = everything - sum(map(weight, rest))
    enough = saved >= SHARE * everything
    return guard if enough and pays(context.profile, s.n_pixels, saved) else None


def pays(profile: DeviceProfile, n_pixels: int, n_saved: int) -> bool:
    """Return whether so many Functions at so many pixels cost more than a second draw, its depth
    attachment, and as much as a pass costs to begin."""
    depth = profile.graphics.copy_us / 4
    millions = n_pixels / 2**20
    return millions * (n_saved * profile.graphics.function_us - depth) > profile.graphics.fixed_us
