"""Which way a graph takes to the packer, and its lowered outputs.

In: a graph, options, the device's profile and what it can. Out: outputs without macros, with
rasterizations, layers and sums in the form that is predicted to be the fastest.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressi.ad.functions.bits_group import LANES as MASK_LANES
from dressi.ad.graph import Function, Variable
from dressi.ad.lowering import rasterize_in_compute, sum_in_groups
from dressi.ad.peeling import peels
from dressi.ad.simplify import own_image, simplify
from dressi.packing.accumulate import ATOMIC, EXACT
from dressi.packing.limits import DeviceLimits
from dressi.packing.options import Options
from dressi.packing.profile import DeviceProfile
from dressi.packing.units import in_buffer, is_exact

GROUPED_PIXELS = 4096
"""Pixels of a sum that a group of invocations adds up, and the least of which it spreads the words
of a mask, where dispatches are preferred for them."""


def lower(
    wanted: Sequence[Variable],
    options: Options,
    profile: DeviceProfile | None,
    limits: DeviceLimits,
    n_raw: int = 0,
) -> list[Variable]:
    """The outputs as the packer takes them. profile: of the device, where ``options.lowering`` is
    ``auto`` and there is one. n_raw: of the first so many, those that scatters make stay in their
    buffers (unless these hold no floats), not in images of their own."""
    compute = options.lowering == "compute"
    layers = [n for _, n in peels(wanted).values()]
    kbuffer = options.peeling != "depth"
    raster = compute or (profile is not None and profile.rasterizes_in_compute(layers, kbuffer))

    def drawn(rasterization: Function, n: int) -> bool:
        if not raster or not kbuffer or not slots_fit(rasterization, n, limits):
            return True
        asked = options.peeling == "auto" and profile is not None
        return asked and profile is not None and not profile.prefers_kbuffer(n)

    in_groups = compute or bool(profile and profile.prefers_dispatch(GROUPED_PIXELS))
    masks = in_groups and limits.group_lanes >= MASK_LANES
    simple = simplify(
        wanted,
        options.merge_duplicates,
        options.fold_constants,
        drawn,
        dispatches=masks,
        one_row=raster,
    )
    if raster:
        simple = rasterize_in_compute(simple, limits.int64_atomics)
    if in_groups:
        simple = sum_in_groups(simple)
    way = EXACT if options.deterministic else ATOMIC
    return [
        v if k < n_raw and in_buffer(v) and not is_exact(v, way) else own_image(v)
        for k, v in enumerate(simple)
    ]


def slots_fit(rasterization: Function, n: int, limits: DeviceLimits) -> bool:
    """Whether n slots a pixel fit one buffer; layers one by one need a buffer for each."""
    (w, h), layers = rasterization.output.size, rasterization.output.layers
    return w * h * layers * n * (2 if limits.int64_atomics else 1) <= limits.storage_words
