"""What a device's profile says about a whole plan, passes and dispatches mixed as they are.

In: stages in order of execution, a profile. Out: microseconds. The choice for a single substage
(``Context.dispatches``) knows its pixels only; here its Functions count, passes share what a render
pass costs to begin, and so does the change from the one to the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressi.packing.profile import DeviceProfile
from dressi.packing.stage import Stage
from dressi.packing.substage import Substage


def predicted_us(stages: Sequence[Stage], profile: DeviceProfile) -> float:
    """Time of all stages. A rasterization counts as any substage over its pixels: it is the same in
    all plans that are compared."""
    total, before = 0.0, None
    for stage in stages:
        costs = profile.compute if stage.is_dispatch else profile.graphics
        for k, s in enumerate(stage.substages):
            (width, height), layers = s.domain
            us = costs.predicted_us(width * height * layers, s.n_functions)
            total += us if k == 0 or stage.is_dispatch else us - costs.fixed_us
        if before not in (None, stage.is_dispatch):
            total += profile.switch_us
        before = stage.is_dispatch
    return total


SUBPASS_SHARE = 0.5
"""Of what a pass costs to begin: a further subpass of it. Measured on llvmpipe."""


def moved_us(stages: Sequence[Stage], profile: DeviceProfile) -> float:
    """Return what passes cost to begin, and images to write and read once: what plans of the same
    Functions differ in."""
    total = 0.0
    for stage in stages:
        costs = profile.compute if stage.is_dispatch else profile.graphics
        total += costs.fixed_us * (1.0 + SUBPASS_SHARE * (len(stage.substages) - 1))
        words = sum(map(words_written, stage.substages))
        total += words / (4 * 2**20) * costs.copy_us
    return total


def words_written(s: Substage) -> int:
    """Return how many words a substage writes to images."""
    return sum(v.size[0] * v.size[1] * v.layers * v.vtype.n_words for v in s.outputs)
