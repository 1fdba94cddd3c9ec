"""Shaders read other pixels of storage images where the profile says that it is faster."""

from __future__ import annotations

import pytest

from dressi import FLOAT, F, Options, Variable
from dressi.ad import simplify
from dressi.packing import PRESETS, DeviceLimits, pack
from dressi.packing.plan import Plan
from dressi.packing.profile import PRESETS as PROFILES
from dressi.packing.verify import check_plan

LLVMPIPE = PRESETS["llvmpipe"]


def plan(limits: DeviceLimits, options: Options | None = None, profile: str = "llvmpipe") -> Plan:
    """One shader that fetches three images, and one that fetches what it wrote."""
    images = [Variable(FLOAT, (40, 40), name=f"image{k}") for k in range(3)]
    blurred = F.image.box_blur(F.add_n([F.image.shift(v, 1, 0) for v in images]), 1)
    made = pack(simplify([blurred]), [], limits, options, profile=PROFILES[profile]).plan
    check_plan(made, limits)
    return made


def kinds(made: Plan) -> list[str]:
    return [b.kind for stage in made.stages for s in stage.substages for b in s.bindings]


def test_all_fetches_are_loads() -> None:
    made = plan(LLVMPIPE)
    assert set(kinds(made)) == {"load"}
    shaders = [s.fragment for stage in made.stages for s in stage.substages]
    assert all("imageLoad(" in text and "texelFetch(" not in text for text in shaders)


@pytest.mark.parametrize(
    ("options", "profile"), [(Options(image_loads=False), "llvmpipe"), (None, "h200")]
)
def test_textures_stay_where_they_are_no_slower(options: Options | None, profile: str) -> None:
    assert "load" not in kinds(plan(LLVMPIPE, options, profile))


@pytest.mark.parametrize("limit", ["storage_images", "combined_outputs"])
def test_a_shader_that_reads_too_many_fetches_textures(limit: str) -> None:
    """Three images and the output are beyond the limit, one and the output are not."""
    made = plan(LLVMPIPE.restrict(**{limit: 2, "name": "few"}))
    by_shader = [{b.kind for b in s.bindings} for stage in made.stages for s in stage.substages]
    assert by_shader[0] == {"texture"} and by_shader[-1] == {"load"}
