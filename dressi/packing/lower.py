"""Graph to graph, before packing: macros, rasterizations, layers and sums take the form that is
predicted to be the fastest.

In: outputs of a graph, options, the device's profile and limits. Out: outputs without macros.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dressi.ad.composed import Part, compose_scatters
from dressi.ad.functions.bits_group import LANES as MASK_LANES
from dressi.ad.graph import Function, Variable
from dressi.ad.lowering import (
    band_at_once,
    choose_by_words,
    rasterize_in_compute,
    sum_at_once,
    sum_in_groups,
)
from dressi.ad.peeling import peels
from dressi.ad.registry import FRAG, SAME
from dressi.ad.simplify import own_image, simplify
from dressi.packing.accumulate import ATOMIC, EXACT
from dressi.packing.guard import find_guard
from dressi.packing.limits import DeviceLimits
from dressi.packing.options import Options
from dressi.packing.profile import DeviceProfile
from dressi.packing.units import domain_of, in_buffer, is_exact

GROUPED_PIXELS = 4096
"""Workgroups reduce sums and spread the words of masks where the device prefers dispatches at this
many pixels."""

SUMMED_AT_ONCE = 1024
"""Pixels that one invocation sums on a CPU driver instead of another level of the pyramid. On
lavapipe one takes 6 ns, a pass 10 microseconds, 100 where threads have to be woken."""

WORDS_AT_ONCE = 16384
"""Words of a mask up to which a CPU driver dilates its border along rows and columns in one pass,
which reads twice as many words as three: a few nanoseconds each."""

ACTIVE = 1 / 16
"""Of the pixels that a mask leaves a gradient, where there is one: a band of five pixels around an
outline is 4 % of a picture of 256 x 256."""

READS_OF_ITEM = 3
"""Values that a gather reads per item: its number, its mask and what was scattered to it."""


def lower(
    wanted: Sequence[Variable],
    options: Options,
    profile: DeviceProfile | None,
    limits: DeviceLimits,
    n_raw: int = 0,
) -> list[Variable]:
    """Returns the outputs as the packer takes them.

    profile: of the device, where ``options.lowering`` is ``auto`` and there is one. n_raw: the
    first so many outputs stay in buffers where scatters of floats make them; all other outputs get
    images of their own.
    """
    compute = options.lowering == "compute"
    layers = [n for _, n in peels(wanted).values()]
    kbuffer = options.peeling != "depth"
    raster = compute or (profile is not None and profile.rasterizes_in_compute(layers, kbuffer))

    def separately(rasterization: Function, n: int) -> bool:
        if not raster or not kbuffer or not slots_fit(rasterization, n, limits):
            return True
        return options.peeling == "auto" and bool(profile and not profile.prefers_kbuffer(n))

    in_groups = compute or bool(profile and profile.prefers_dispatch(GROUPED_PIXELS))
    simplified = partial(
        simplify,
        merge=options.merge_duplicates,
        fold=options.fold_constants,
        separately=separately,
        dispatches=in_groups and limits.group_lanes >= MASK_LANES,
        one_row=raster,
    )
    simple = simplified(wanted)
    if options.compose_scatters and profile is not None and profile.scatters_far:
        composed = compose_scatters(simple, pays_to_compose, behind_a_mask)
        simple = simplified(composed) if composed != simple else simple
    if in_groups:  # before rasterizations, whose fragments name what they read
        simple = sum_in_groups(simple)
    elif profile is not None and profile.image_loads:  # a CPU driver
        simple = sum_at_once(choose_by_words(simple), SUMMED_AT_ONCE)
        simple = band_at_once(simple, WORDS_AT_ONCE)
    if raster:
        simple = rasterize_in_compute(simple, limits.int64_atomics)
    accumulation = EXACT if options.deterministic else ATOMIC
    return [
        v if k < n_raw and in_buffer(v) and not is_exact(v, accumulation) else own_image(v)
        for k, v in enumerate(simple)
    ]


def pays_to_compose(gather: Function, parts: Sequence[Part]) -> bool:
    """Return whether pixels that look up a row each read less than a gather of the rows."""
    n_items = gather.inputs[2].size[0] * gather.output.layers
    return sum(map(_rows_read, parts)) < READS_OF_ITEM * n_items


def _rows_read(p: Part) -> float:
    """Rows that the pixels of a part look up."""
    pixels = p.value.size[0] * p.value.size[1] * p.value.layers
    return pixels * (1 + p.n_masks) * (ACTIVE if behind_a_mask([p.scatter]) else 1)


def behind_a_mask(scatters: Sequence[Function]) -> bool:
    """Return whether one mask says that most pixels add nothing by scatters over the same
    pixels."""
    domain = domain_of(scatters[0])
    inside, waiting = {f.uid: f for f in scatters}, list(scatters)
    while waiting:
        f = waiting.pop()
        for i, x in enumerate(f.inputs):
            g = x.creator
            if g is None or g.uid in inside or f.op.read(i) != SAME:
                continue
            if g.op.kind == FRAG and g.op.scatter is None and domain_of(g) == domain:
                inside[g.uid] = g
                waiting.append(g)
    functions = [inside[uid] for uid in sorted(inside)]  # in the order in which they were created
    guard = find_guard(functions, ())
    guarded = {f.uid for of, run in guard.runs if of for f in run} if guard is not None else set()
    return all(f.uid in guarded for f in scatters)


def slots_fit(rasterization: Function, n: int, limits: DeviceLimits) -> bool:
    """Whether n slots per pixel fit one buffer (drawn separately, each layer has its own)."""
    (w, h), layers = rasterization.output.size, rasterization.output.layers
    return w * h * layers * n * (2 if limits.int64_atomics else 1) <= limits.storage_words
