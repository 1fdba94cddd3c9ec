"""Same-pixel inputs that are fetched as textures for want of attachments."""

from __future__ import annotations

from dressi.ad import F, Variable, simplify
from dressi.ad.simplify import own_image
from dressi.ad.vtype import VEC4
from dressi.packing import Options, Packed, check_plan, pack
from dressi.packing.limits import LLVMPIPE, DeviceLimits
from dressi.packing.obstacles import INPUTS, SAMPLED
from dressi.packing.predict import words_written
from dressi.packing.profile import PRESETS as PROFILES
from dressi.packing.use import use_of

SIZE = (256, 256)
N = 20
"""Values that a second pass over the same pixels reads; a sum at other pixels keeps it apart."""


def graph() -> list[Variable]:
    """Return a picture of two passes: products of pairs of N values, each times the neighbour of
    their sum."""
    x = Variable(VEC4, SIZE, name="x")
    values = [F.sin(x * (1.0 + k)) for k in range(N)]
    total = values[0]
    for v in values[1:]:
        total = total * v
    beside = F.image.shift(total, 1, 0)
    y = beside
    for v in values:
        y = F.sin(y + v * beside)
    return [own_image(v) for v in simplify([y])]


def packed(
    limits: DeviceLimits, made: list[Variable], profile: bool = True, **options: bool
) -> Packed:
    chosen = PROFILES["llvmpipe"] if profile else None
    p = pack(made, [], limits, Options(rematerialize=False, **options), profile=chosen)  # type: ignore[arg-type]
    check_plan(p.plan, limits)
    return p


def words(p: Packed) -> int:
    return sum(map(words_written, p.substages))


def test_values_for_which_there_is_no_attachment_are_fetched() -> None:
    made = graph()
    with_it, without = packed(LLVMPIPE, made), packed(LLVMPIPE, made, spill=False)
    assert words(with_it) < words(without)
    assert len(with_it.substages) < len(without.substages)
    use = use_of(with_it.substages[-1])
    assert use[INPUTS] <= LLVMPIPE.input_attachments < use[INPUTS] + use[SAMPLED]
    for p in (with_it, without):
        assert all(use_of(s)[INPUTS] <= LLVMPIPE.input_attachments for s in p.substages)


def test_a_device_without_a_profile_or_with_attachments_enough_has_the_same_plan() -> None:
    made = graph()
    unknown, rich = LLVMPIPE, LLVMPIPE.restrict(input_attachments=1 << 20, name="rich")
    for limits, profile in ((unknown, False), (rich, True)):
        plans = [packed(limits, made, profile, spill=spill).plan for spill in (True, False)]
        assert plans[0] == plans[1]


def test_textures_are_limited_too() -> None:
    p = packed(LLVMPIPE.restrict(sampled_images=4, name="few"), graph())
    assert all(use_of(s)[SAMPLED] <= 4 for s in p.substages)
