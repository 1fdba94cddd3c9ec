"""Substage and stage packing: one rule a test, exact counts, graphs drawn in ASCII.

``[ ]`` is a shader (a subpass), ``| |`` a render pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dressi.ad import F, Variable, simplify
from dressi.ad.vtype import FLOAT, INT, MAT4, VEC2, VEC3, VEC4
from dressi.errors import GraphError, PackingError
from dressi.packing import Options, Packed, check_plan, pack, plan_text, shaders_text
from dressi.packing.active import Candidate, Change, begin, candidates
from dressi.packing.inline import find_inline
from dressi.packing.limits import (
    INTEL,
    LLVMPIPE,
    MALI,
    MINIMUM,
    NVIDIA,
    PRESETS,
    DeviceLimits,
)
from dressi.packing.task import Context
from dressi.packing.units import make_units

SIZE = (8, 6)
BOTH = pytest.mark.parametrize("limits", [LLVMPIPE, MINIMUM], ids=lambda p: p.name)


def image(name: str, vtype=FLOAT, size=SIZE, layers: int = 1) -> Variable:  # type: ignore[no-untyped-def]
    return Variable(vtype, size, layers, name=name)


def packed(
    outputs: Variable | Sequence[Variable],
    limits: DeviceLimits = LLVMPIPE,
    options: Options | None = None,
    updates: Sequence[tuple[Variable, Variable]] = (),
) -> Packed:
    outs = [outputs] if isinstance(outputs, Variable) else list(outputs)
    made = simplify([*outs, *(n for _, n in updates)])
    pairs = [(leaf, n) for (leaf, _), n in zip(updates, made[len(outs) :], strict=True)]
    result = pack(made[: len(outs)], pairs, limits, options)
    check_plan(result.plan, limits)
    return result


def shape(p: Packed) -> list[int]:
    """Number of substages of each stage."""
    return [len(s.substages) for s in p.plan.stages]


def bindings(p: Packed) -> list[str]:
    """Kinds of all bindings, in order of execution."""
    return [b.kind for s in p.plan.stages for sub in s.substages for b in sub.bindings]


# -- substages -------------------------------------------------------------------------------------


@BOTH
def test_same_pixel_work_is_one_shader(limits: DeviceLimits) -> None:
    """|[a -> sin -> mul -> add]|"""
    a = image("a")
    p = packed(F.sin(a) * a + F.cos(a), limits)
    assert shape(p) == [1] and p.plan.n_functions == 4
    assert bindings(p) == ["input"]


@BOTH
def test_read_at_other_pixels_closes_the_substage_and_the_stage(limits: DeviceLimits) -> None:
    """|[sin]| -> |[border]|"""
    p = packed(F.image.border(F.sin(image("a"))), limits)
    assert shape(p) == [1, 1]
    assert bindings(p) == ["input", "texture"]


@BOTH
def test_texture_read_closes_the_substage(limits: DeviceLimits) -> None:
    """|[sin]| -> |[texture]|: the sampled image comes from another stage."""
    for hardware in (False, True):
        read = F.texture(F.sin(image("t", VEC3, (4, 4))), image("uv", VEC2), hardware=hardware)
        p = packed(read, limits)
        assert shape(p) == [1, 1]
        kinds = bindings(p)
        sampler = hardware and limits.linear_float32
        assert kinds[0] == "input"
        assert sorted(kinds[1:]) == (["input", "sampler"] if sampler else ["input", "texture"])


def test_texture_of_a_leaf_shares_the_shader_with_what_uses_it() -> None:
    """|[texture -> mul]|"""
    p = packed(F.texture(image("t", VEC3, (4, 4)), image("uv", VEC2)) * 2.0)
    assert shape(p) == [1]


@BOTH
def test_another_size_is_another_stage(limits: DeviceLimits) -> None:
    """|[sin 4x4]| -> |[lookup 8x6]|"""
    small = F.sin(image("t", FLOAT, (4, 4)))
    p = packed(F.lookup(small, image("i", INT)) + image("b"), limits)
    assert shape(p) == [1, 1]
    assert [(s.width, s.height) for s in p.plan.stages] == [(4, 4), SIZE]


def test_another_number_of_layers_is_another_stage() -> None:
    """|[sin 8x6]| -> |[add 8x6 x3]|; with rematerialization each layer has its own sine."""
    y = F.sin(image("a")) + image("b", layers=3)
    assert shape(packed(y)) == [1]
    p = packed(y, options=Options(rematerialize=False))
    assert shape(p) == [1, 1]
    assert [(s.width, s.height) for s in p.plan.stages] == [SIZE, (8, 18)]


def test_uniform_work_is_written_into_the_shader_that_uses_it() -> None:
    """u -> sin --[-> mul]: no pass over one pixel."""
    u = Variable(FLOAT, name="u")
    p = packed(image("a") * F.sin(u))
    assert shape(p) == [1] and sorted(bindings(p)) == ["input", "uniform"]
    assert p.plan.uniform_slots == 1


def test_leaf_of_1x1_is_a_uniform_and_no_image() -> None:
    p = packed(image("a") * Variable(MAT4, layers=1, name="m").__matmul__(VECTOR).x)
    assert p.plan.uniform_slots == 4
    assert [i.name for i in p.plan.images if i.key is not None] == ["a"]


VECTOR = F.constant((1.0, 2.0, 3.0, 4.0))


def test_uniform_takes_one_slot_a_plane_and_layer() -> None:
    m = Variable(MAT4, layers=6, name="m")
    p = packed(F.expand(m @ VECTOR, SIZE, 6) + image("a", VEC4, layers=6))
    assert p.plan.uniform_slots == 24


def test_leaves_beyond_the_uniform_block_become_images() -> None:
    """64 + 4 matrices of 4 slots do not fit 256 slots."""
    limits = LLVMPIPE.restrict(name="few", uniform_slots=256)
    many = Variable(MAT4, layers=65, name="many")
    p = packed(F.expand(many @ VECTOR, (2, 2), 65), limits)
    assert p.plan.uniform_slots == 0
    assert sum(i.key is not None for i in p.plan.images) == 4


def test_parameter_of_1x1_is_an_image_because_steps_write_it() -> None:
    u = Variable(FLOAT, name="u")
    p = packed([image("a") * u], updates=[(u, u * 0.5)])
    assert p.plan.uniform_slots == 0
    assert [i.name for i in p.plan.images if i.key is not None] == ["a", "u"]


def test_updates_are_copied_after_everything() -> None:
    x = image("x")
    p = packed([x * 3.0], options=Options(zero_copy=False), updates=[(x, x * 0.5)])
    ((source, target),) = p.plan.updates
    assert p.plan.images[target].name == "x" and p.plan.images[target].key is not None
    assert p.plan.images[source].key is None


def test_update_of_another_shape_is_an_error() -> None:
    x = image("x")
    with pytest.raises(GraphError, match="x FLOAT@8x6"):
        packed([x * 3.0], updates=[(x, image("y", FLOAT, (4, 4)) * 1.5)])


@BOTH
def test_a_wide_sum_keeps_to_the_input_attachments(limits: DeviceLimits) -> None:
    """16 leaves, fan-in 4."""
    p = packed(F.add_n([image(f"a{k}") for k in range(16)]), limits)
    for stage in p.plan.stages:
        for s in stage.substages:
            assert sum(b.kind == "input" for b in s.bindings) <= limits.input_attachments
    assert shape(p) == ([5] if limits is MINIMUM else [3])


def test_more_inputs_than_attachments_are_split_into_subpasses() -> None:
    """|[a0+a1+a2+a3] -> [+a4+a5+a6]|: 7 inputs, 4 attachments; one render pass all the same."""
    total = image("a0")
    for k in range(1, 7):
        total = total + image(f"a{k}")
    p = packed(total, MINIMUM)
    assert shape(p) == [2]


@BOTH
def test_more_outputs_than_colour_attachments_are_split(limits: DeviceLimits) -> None:
    a = image("a")
    outs = [F.sin(a * float(k)) for k in range(2, 12)]
    p = packed(outs, limits)
    assert all(len(s.outputs) <= limits.color_outputs for st in p.plan.stages for s in st.substages)
    assert shape(p) == ([3] if limits is MINIMUM else [2])


@BOTH
def test_matrix_takes_an_attachment_a_column(limits: DeviceLimits) -> None:
    """A MAT4 fills all four input attachments of the smallest device."""
    m = image("m", MAT4)
    p = packed(F.transpose(m), limits)
    assert [b.kind for b in p.plan.stages[0].substages[0].bindings] == ["input"] * 4
    assert len(p.plan.stages[0].substages[0].outputs) == 4


def test_one_function_with_too_many_attachments_fetches_the_rest() -> None:
    """matmul of two MAT4: 8 inputs on a device with 4 attachments."""
    p = packed(image("m", MAT4) @ image("n", MAT4), MINIMUM)
    kinds = bindings(p)
    assert kinds.count("input") == 4 and kinds.count("texture") == 4


@pytest.mark.parametrize("n", [0, 1])
def test_device_that_reports_few_or_no_input_attachments_still_works(n: int) -> None:
    limits = MINIMUM.restrict(name="none", input_attachments=n)
    p = packed(F.sin(image("a")) * image("b") + image("c"), limits)
    assert all(
        sum(b.kind == "input" for b in s.bindings) <= n
        for st in p.plan.stages
        for s in st.substages
    )


def test_scatter_is_read_in_a_later_stage() -> None:
    """|[scatter]| -> |[lookup]|"""
    table = F.scatter_add(image("v"), F.dynamic(image("i", INT)), (5, 1))
    p = packed(F.lookup(table, image("j", INT)), LLVMPIPE)
    assert shape(p) == [1, 1]
    assert len(p.plan.buffers) == 1 and p.plan.buffers[0].n_words == 5
    assert [s.kind for s in p.plan.stages] == ["graphics", "graphics"]


def test_scatter_is_a_dispatch_where_fragments_cannot_store() -> None:
    table = F.scatter_add(image("v"), image("i", INT), (5, 1))
    p = packed(F.lookup(table, image("j", INT)), MINIMUM)
    assert [s.kind for s in p.plan.stages] == ["compute", "graphics"]


def test_final_output_used_inside_is_written_too() -> None:
    """|[sin -> cos]| with both kept."""
    a = F.sin(image("a"))
    p = packed([a, F.cos(a)])
    assert shape(p) == [1]
    assert len(p.plan.stages[0].substages[0].outputs) == 2


def test_value_used_only_inside_is_not_written() -> None:
    p = packed(F.cos(F.sin(image("a"))))
    assert len(p.plan.stages[0].substages[0].outputs) == 1


def test_value_needed_by_a_later_stage_is_written() -> None:
    """|[sin ...]| -> |[border ...]|; the cosine may stand in either."""
    a = F.sin(image("a"))
    p = packed([F.cos(a), F.image.border(a)])
    assert shape(p) == [1, 1]
    assert p.images[a.uid][0] in p.plan.stages[0].substages[0].outputs


# -- rasterization ---------------------------------------------------------------------------------


def _raster(layers: int = 1, size=SIZE):  # type: ignore[no-untyped-def]
    corners = [Variable(VEC4, (5, 1), layers, name=f"corner{k}") for k in range(3)]
    return F.rasterize(corners, size), Variable(FLOAT, (5, 1), name="table")


def test_fragments_and_both_resolves_are_one_draw() -> None:
    """|[rasterize -> lookup -> depth -> resolve ids, resolve depth]|: one draw for all
    attachments."""
    frag, table = _raster()
    depth = F.lookup(table, frag)
    p = packed([F.resolve(frag, depth, background=-1), F.resolve(depth, depth, background=1)])
    assert shape(p) == [1]
    s = p.plan.stages[0].substages[0]
    assert s.depth and len(s.outputs) == 2 and len(s.draws) == 1
    assert s.clears == ((-1.0,) * 4, (1.0,) * 4)
    assert s.draws[0].n_vertices == 15


def test_work_behind_the_resolve_is_another_subpass_of_the_same_pass() -> None:
    """|[rasterize ... resolve] -> [mul]|"""
    frag, table = _raster()
    ids = F.resolve(frag, F.lookup(table, frag), background=-1)
    p = packed(F.to_float(ids) * image("a"))
    assert shape(p) == [2]
    assert [s.depth for s in p.plan.stages[0].substages] == [True, False]


def test_work_in_front_of_the_rasterization_is_another_stage() -> None:
    """|[corner tables]| -> |[rasterize]|: vertices are fetched from tables."""
    corners = [F.sin(Variable(VEC4, (5, 1), name=f"c{k}")) for k in range(3)]
    frag = F.rasterize(corners, SIZE)
    p = packed(F.resolve(frag, F.to_float(frag) * 0.1))
    assert shape(p) == [1, 1]


def test_each_layer_is_a_draw_in_its_own_viewport() -> None:
    frag, table = _raster(layers=3)
    p = packed(F.resolve(frag, F.lookup(table, frag)))
    s = p.plan.stages[0].substages[0]
    assert [(d.x, d.y, d.width, d.height, d.first_instance) for d in s.draws] == [
        (0, 0, 8, 6, 0),
        (0, 6, 8, 6, 1),
        (0, 12, 8, 6, 2),
    ]


# -- why_not and errors ----------------------------------------------------------------------------


def _candidates(
    *outputs: Variable, limits: DeviceLimits = LLVMPIPE
) -> tuple[list[Candidate], Context]:
    inline = find_inline(outputs, set())
    context = Context(limits, final={v.uid for v in outputs}, inline=inline)
    return candidates(make_units(outputs, inline), context), context


def test_why_not_is_none_for_what_fits() -> None:
    (first, last), context = _candidates(F.cos(F.sin(image("a"))))
    assert begin(last, context).why_not(first) is None


def test_why_not_names_the_two_sizes() -> None:
    y = F.lookup(F.sin(image("t", FLOAT, (4, 4), 2)), image("i", INT))
    (first, last), context = _candidates(y)
    obstacle = begin(last, context).why_not(first)
    assert obstacle is not None and obstacle.limit == "domain"
    assert "4x4x2" in str(obstacle) and "8x6x2" in str(obstacle)


def test_why_not_names_the_image_that_is_read_at_other_pixels() -> None:
    a = F.sin(image("a"))
    a.name = "wave"
    (first, last), context = _candidates(F.image.border(a))
    obstacle = begin(last, context).why_not(first)
    assert obstacle is not None and obstacle.needed is a
    assert "wave FLOAT@8x6 is read at other pixels" in str(obstacle)


def test_why_not_names_limit_number_and_device() -> None:
    """Five leaves, four attachments."""
    left = image("a") + image("b")
    right = F.add_n([image("c"), image("d"), image("e")])
    (first, second, last), context = _candidates(left * right, limits=MINIMUM)
    active = begin(last, context)
    change = active.change(second, patience=0)
    assert isinstance(change, Change)
    active.add(change)
    obstacle = active.why_not(first)
    assert obstacle is not None
    assert obstacle[:4] == ("input_attachments", 5, 4, "minimum")
    assert str(obstacle) == "needs 5 input attachments, minimum allows 4"


def test_why_not_keeps_a_dispatch_alone() -> None:
    table = F.scatter_add(image("v") * 2.0, F.dynamic(image("i", INT)), (5, 1))
    made, context = _candidates(F.lookup(table, image("j", INT)), limits=MINIMUM)
    scatter = next(c for c in made if c.unit.has_scatter)
    other = next(c for c in made if c is not scatter)
    assert "a dispatch stands alone" in str(begin(scatter, context).why_not(other))


def test_function_that_fits_nowhere_names_both_numbers_and_the_users_line() -> None:
    """A MAT4 is four colour outputs; this device has two."""
    limits = MINIMUM.restrict(name="toy", color_outputs=2)
    m = image("m", MAT4)
    y = F.transpose(m)
    with pytest.raises(PackingError) as info:
        packed(y, limits)
    message = str(info.value)
    for part in (
        "F.transpose at test_substages.py:",
        "4 color outputs",
        "toy allows 2",
        "m MAT4@8x6",
        "hint",
    ):
        assert part in message, message


def test_function_that_fits_nowhere_does_not_loop_forever() -> None:
    limits = MINIMUM.restrict(name="toy", sampled_images=1)
    y = F.lookup(image("t", MAT4, (4, 4)), image("i", INT))
    with pytest.raises(PackingError, match="sampled images"):
        packed(y, limits)


def test_image_larger_than_the_device_names_the_limit_and_the_line() -> None:
    limits = MINIMUM.restrict(name="toy", image_dim=64)
    big = image("big", FLOAT, (65, 3))
    with pytest.raises(GraphError) as info:
        packed(F.sin(big), limits)
    for part in ("big FLOAT@65x3", "65x3", "64x64", "test_substages.py:"):
        assert part in str(info.value)


def test_unknown_limit_is_a_type_error_that_names_the_known_ones() -> None:
    with pytest.raises(TypeError, match="input_attachments"):
        MINIMUM.restrict(inputs=3)


# -- stages ----------------------------------------------------------------------------------------


def test_stage_with_too_many_attachments_is_split() -> None:
    limits = MINIMUM.restrict(name="toy", stage_attachments=6)
    p = packed(F.add_n([image(f"a{k}") for k in range(16)]), limits)
    assert len(p.plan.stages) > 1


def test_subpasses_of_one_size_share_a_render_pass() -> None:
    """|[.] [.] [.]|: independent shaders that outputs split."""
    outs = [F.sin(image(f"a{k}")) for k in range(12)]
    assert shape(packed(outs, MINIMUM)) == [3]


def test_tables_of_one_physical_size_share_a_render_pass() -> None:
    """13 and 16 rows fold to 4x4 both."""
    a = F.sin(image("a", FLOAT, (13, 1)))
    b = F.sin(image("b", FLOAT, (16, 1)))
    assert shape(packed([a, b])) == [2]


# -- switches --------------------------------------------------------------------------------------


def _mixed() -> list[Variable]:
    a, b = image("a"), image("b")
    return [F.image.border(F.sin(a) * b + 1.0) + F.cos(b) * a]


def test_both_switches_off_is_one_function_a_pass() -> None:
    p = packed(_mixed(), LLVMPIPE, Options(pack_substages=False, pack_stages=False))
    assert all(len(s.substages) == 1 for s in p.plan.stages)
    assert all(b.n_functions == 1 for s in p.plan.stages for b in s.substages)
    assert len(p.plan.stages) == 7  # sin mul add border cos mul add


def test_substages_without_stages_is_one_subpass_a_pass() -> None:
    p = packed(_mixed(), LLVMPIPE, Options(pack_stages=False))
    assert shape(p) == [1, 1]


def test_stages_without_substages_is_one_function_a_subpass() -> None:
    p = packed(_mixed(), LLVMPIPE, Options(pack_substages=False))
    assert all(b.n_functions == 1 for s in p.plan.stages for b in s.substages)
    assert p.plan.n_substages == 7 and len(p.plan.stages) < 7


# -- presets and text ------------------------------------------------------------------------------


def test_presets_hold_the_papers_table_1() -> None:
    assert NVIDIA.input_attachments == 1048576
    assert INTEL.input_attachments == 8 and MALI.input_attachments == 4
    assert (LLVMPIPE.input_attachments, LLVMPIPE.color_outputs) == (8, 8)
    assert set(PRESETS) >= {"minimum", "llvmpipe", "intel", "mali", "nvidia"}


def test_minimum_is_what_vulkan_guarantees() -> None:
    """Vulkan 1.0, table "Required Limits"."""
    assert (MINIMUM.image_dim, MINIMUM.input_attachments, MINIMUM.color_outputs) == (4096, 4, 4)
    assert (MINIMUM.sampled_images, MINIMUM.samplers) == (16, 16)
    assert (MINIMUM.storage_buffers, MINIMUM.storage_images) == (4, 4)
    assert MINIMUM.uniform_slots * 16 == 16384 and MINIMUM.combined_outputs == 4
    assert not (MINIMUM.fragment_stores or MINIMUM.float_atomics or MINIMUM.linear_float32)


def test_plan_text_has_a_line_a_stage_and_a_line_a_substage() -> None:
    p = packed(F.image.border(F.sin(image("a"))))
    lines = plan_text(p.plan).splitlines()
    assert lines[0].startswith("plan step: 2 functions, 2 substages, 2 stages, 3 images, 0 buffers")
    assert lines[1] == "stage 0 graphics 8x6"
    assert lines[2].startswith("  sin (1 functions) <- input a -> ")
    assert lines[4].startswith("  border (1 functions) <- texture ")


def test_shaders_name_the_op_and_the_users_line() -> None:
    p = packed(F.image.border(F.sin(image("a"))))
    text = shaders_text(p.plan)
    assert "// sin  test_substages.py:" in text and "// border  test_substages.py:" in text
    assert "a FLOAT@8x6" in text
