"""Which substages become dispatches, and what such a plan looks like (no device)."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from dressi.ad import Adam, F, Variable, evaluate, simplify
from dressi.ad.autodiff import build_backward
from dressi.ad.graph import topological
from dressi.ad.lowering import rasterize_in_compute, sum_in_groups
from dressi.ad.optim import with_states
from dressi.ad.registry import RASTER
from dressi.ad.simplify import own_image
from dressi.ad.vtype import FLOAT, INT, VEC3, VEC4, VType
from dressi.errors import GraphError, PackingError
from dressi.packing import Options, Packed, check_plan, pack, plan_text
from dressi.packing.limits import LLVMPIPE, MINIMUM, NVIDIA, DeviceLimits
from dressi.packing.lower import lower
from dressi.packing.plan import Binding, ImagePlan, Plan, StagePlan, SubstagePlan
from dressi.packing.profile import PRESETS, Costs, DeviceProfile, from_dict

COMPUTE = Options(lowering="compute")


def blurred(size: tuple[int, int] = (16, 16)) -> tuple[Variable, Variable]:
    x = Variable(VEC3, size, requires_grad=True, name="x")
    return x, F.image.box_blur(x * 2.0, 1) * x


def packed(
    y: Variable,
    options: Options,
    limits: DeviceLimits = LLVMPIPE,
    profile: DeviceProfile | None = None,
) -> Packed:
    found = pack([own_image(v) for v in simplify([y])], [], limits, options, profile=profile)
    check_plan(found.plan, limits)
    return found


def kinds(plan: Plan) -> set[str]:
    return {s.kind for s in plan.stages}


def test_every_pixel_runs_in_a_dispatch() -> None:
    plan = packed(blurred()[1], COMPUTE).plan
    assert kinds(plan) == {"compute"}
    bindings = [b.kind for st in plan.stages for s in st.substages for b in s.bindings]
    assert "input" not in bindings and "storage" in bindings and "pixel" in bindings
    assert all(
        not s.outputs and s.compute and not s.fragment for st in plan.stages for s in st.substages
    )


def test_graphics_stays_graphics() -> None:
    assert kinds(packed(blurred()[1], Options(lowering="graphics")).plan) == {"graphics"}


@pytest.mark.parametrize(
    ("profile", "kind"),
    [(None, "graphics"), (PRESETS["llvmpipe"], "graphics"), (PRESETS["h200"], "compute")],
)
def test_auto_asks_the_profile(profile: DeviceProfile | None, kind: str) -> None:
    assert kinds(packed(blurred()[1], Options(), profile=profile).plan) == {kind}


def test_the_choice_is_by_size() -> None:
    """A device whose dispatches are dear to begin and cheap by the pixel."""
    h200 = PRESETS["h200"]
    slow_start = replace(h200, compute=replace(h200.compute, fixed_us=50.0))
    x = Variable(VEC3, (512, 512), name="x")
    blur = F.image.box_blur(x, 1)
    made = [own_image(v) for v in simplify([blur, F.sum(blur)])]
    plan = pack(made, [], NVIDIA, Options(), profile=slow_start).plan
    by_size = {(s.width * s.height > 4096): s.kind for s in plan.stages}
    assert by_size == {True: "compute", False: "graphics"}


def test_what_was_asked_for_is_not_compared() -> None:
    """Passes beside a dispatch that is no pass, on a device that likes dispatches."""
    blur = F.image.box_blur(Variable(FLOAT, (128, 128), name="x"), 1)
    made = [own_image(v) for v in sum_in_groups(simplify([F.sum(blur)]))]
    plan = pack(made, [], NVIDIA, Options(lowering="graphics"), profile=PRESETS["h200"]).plan
    for stage in plan.stages:
        names = {s.name for s in stage.substages}
        assert (stage.kind == "compute") == (names == {"group_sum"})
    assert kinds(plan) == {"graphics", "compute"}


@pytest.mark.parametrize(
    ("vtype", "size", "shape"),
    [
        (FLOAT, (512, 256), "local_size_x = 16, local_size_y = 8"),
        (VEC3, (512, 256), "local_size_x = 8, local_size_y = 16"),
        (VEC3, (511, 256), "local_size_x = 8, local_size_y = 8"),
    ],
)
def test_groups_are_shaped_for_their_pixels(
    vtype: VType, size: tuple[int, int], shape: str
) -> None:
    plan = packed(F.sin(Variable(vtype, size, name="x")), COMPUTE).plan
    (s,) = plan.stages[0].substages
    assert f"layout({shape}) in;" in s.compute
    w, h = (int(part.split()[-1]) for part in shape.split(","))
    assert s.groups == (-(-size[0] // w), -(-size[1] // h), 1)


def test_a_mask_is_spread_by_passes_where_groups_are_too_small() -> None:
    words = F.bits.dilate_bits(F.bits.pack_bits(Variable(FLOAT, (64, 64), name="x")), 3.0, 5)
    for lanes, together in ((512, True), (511, False)):
        limits = NVIDIA.restrict(group_lanes=lanes)
        made = lower([words], COMPUTE, None, limits)
        names = {f.op.name for f in topological(made)}
        assert ("group_dilate_bits" in names) == together
        assert ("dilate_bits_row" in names) != together


@pytest.mark.parametrize(
    ("switch_us", "functions", "expected"),
    [
        (1.0, 1, {"compute", "graphics"}),  # each for itself
        (60.0, 1, {"graphics"}),  # to change over costs more than dispatches save
        (20.0, 60, {"compute", "graphics"}),  # they save more
        (100.0, 60, {"compute"}),  # and passes save less than that
    ],
)
def test_changing_over_counts(
    switch_us: float, functions: int, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large images and small ones by turns; dispatches save 40 us at 2^20 pixels and 2 us more for
    each function, and cost 30 us more to begin."""
    costs = Costs(fixed_us=2.0, copy_us=50.0, function_us=3.0, raster_us=100.0)
    faster = replace(costs, fixed_us=32.0, copy_us=10.0, function_us=1.0)
    profile = DeviceProfile("laptop", costs, faster)
    monkeypatch.setattr(DeviceProfile, "switch_us", switch_us)
    x = Variable(FLOAT, (1024, 1024), name="x")
    for _ in range(functions):
        x = F.sin(x) * 1.5
    y = F.image.box_blur(x * F.sum(x), 1)
    assert kinds(packed(y, Options(), profile=profile).plan) == expected


def test_storage_images_bound_what_a_dispatch_writes() -> None:
    x = Variable(FLOAT, (8, 8), requires_grad=True)
    outs = [x * float(k) + 1.0 for k in range(6)]
    made = [own_image(v) for v in simplify(outs)]
    plan = pack(made, [], MINIMUM, COMPUTE).plan
    check_plan(plan, MINIMUM)
    written = [
        sum(b.kind == "storage" for b in s.bindings) for st in plan.stages for s in st.substages
    ]
    assert sum(written) == 6 and max(written) == MINIMUM.storage_images


def test_input_attachments_do_not_bound_a_dispatch() -> None:
    xs = [Variable(FLOAT, (8, 8), name=f"x{k}") for k in range(12)]
    y = F.add_n(xs)
    assert packed(y, COMPUTE, MINIMUM).plan.n_substages == 1
    assert packed(y, Options(lowering="graphics"), MINIMUM).plan.n_substages > 1


def test_parameters_are_updated_in_place() -> None:
    """The dispatch reads the pixel that it writes; a blur of the parameter is read before."""
    x, y = blurred()
    loss = F.mean(F.dot(y, y))
    gradient = build_backward(loss)[x]
    (new,) = Adam(0.1)([x], [gradient])
    pairs = with_states([loss], [(x, new)])
    made = [own_image(v) for v in simplify([loss, *(n for _, n in pairs)])]
    updates = list(zip([leaf for leaf, _ in pairs], made[1:], strict=True))
    plan = pack(made[:1], updates, NVIDIA, COMPUTE).plan
    check_plan(plan, NVIDIA)
    assert kinds(plan) == {"compute"} and plan.updates == ()
    both = [
        {b.index for b in s.bindings if b.kind == "pixel"}
        & {b.index for b in s.bindings if b.kind == "storage"}
        for st in plan.stages
        for s in st.substages
    ]
    assert any(both)


def test_an_image_read_at_other_pixels_is_not_updated_in_place() -> None:
    x = Variable(FLOAT, (8, 8), name="x")
    (new,) = simplify([F.image.laplacian(x)])
    plan = pack([], [(x, own_image(new))], LLVMPIPE, COMPUTE).plan
    check_plan(plan, LLVMPIPE)
    assert len(plan.updates) == 1


def test_rasterizations_become_dispatches() -> None:
    corners = [Variable(VEC4, (5, 1), name=f"c{k}") for k in range(3)]
    frag = F.rasterize(corners, (16, 8))
    ids = F.resolve(frag, F.fract(F.to_float(frag) * 0.3), 1.0, background=-1)
    for limits, n_keys in ((NVIDIA, 1), (LLVMPIPE.restrict(int64_atomics=False), 2)):
        made = rasterize_in_compute(simplify([ids]), limits.int64_atomics)
        assert not any(f.op.kind == RASTER for f in topological(made))
        plan = pack([own_image(v) for v in made], [], limits, COMPUTE).plan
        check_plan(plan, limits)
        assert kinds(plan) == {"compute"}
        keys = [s for st in plan.stages for s in st.substages if "atomicMax" in s.compute]
        assert len(keys) == n_keys
        assert ("uint64_t" in keys[0].compute) == limits.int64_atomics
        assert keys[0].groups[0] == 1 and keys[0].groups[1] == 8  # no more slices than rows


@pytest.mark.parametrize("table", ["a uniform", "coordinates"])
def test_fragments_look_up_a_table_however_short_it_is_to_compute(table: str) -> None:
    """A fragment knows its own pixel; the table's row is another one, which it has to read."""
    widths = {
        "a uniform": F.expand(Variable(FLOAT, (1, 1), name="width"), (7, 1)) * 2.0,
        "coordinates": F.swizzle(F.pixel_coord((7, 1)), "x") + 1.0,
    }
    corners = [Variable(VEC4, (7, 1), name=name) for name in "abc"]
    ids = F.rasterize(corners, (8, 8))
    width = F.lookup(widths[table], ids)
    nearest = F.resolve(width, F.clamp(width * 0.1, 0.0, 1.0), 1.0, background=-1.0)
    made = rasterize_in_compute(simplify([nearest]), int64_atomics=True)
    plan = pack([own_image(v) for v in made], [], LLVMPIPE, COMPUTE).plan
    check_plan(plan, LLVMPIPE)
    assert kinds(plan) == {"compute"}


def layered(n: int) -> list[Variable]:
    """ids and depth of n layers of the same fragments."""
    corners = [Variable(VEC4, (5, 1), name=f"c{k}") for k in range(3)]
    frag = F.rasterize(corners, (16, 8))
    depth = F.fract(F.to_float(frag) * 0.3)
    return [
        F.resolve(value, depth, 1.0, background=background, peel=k)
        for k in range(n)
        for value, background in ((frag, -1), (depth, 1))
    ]


@pytest.mark.parametrize(
    ("options", "limits", "names"),
    [
        (COMPUTE, NVIDIA, ["raster_kbuffer_key64"]),
        (
            COMPUTE,
            LLVMPIPE.restrict(int64_atomics=False),
            ["raster_kbuffer_depth32", "raster_kbuffer_winner32"],
        ),
        (replace(COMPUTE, peeling="depth"), NVIDIA, ["raster_key64"] * 3),
        (Options(), NVIDIA, ["rasterize"] * 3),  # no profile: graphics
        (Options(peeling="kbuffer"), NVIDIA, ["rasterize"] * 3),
    ],
)
def test_layers_are_found_at_once_or_one_by_one(
    options: Options, limits: DeviceLimits, names: list[str]
) -> None:
    plan = pack(lower(layered(3), options, None, limits), [], limits, options).plan
    check_plan(plan, limits)
    text = plan_text(plan)
    rasters = [
        f.split()[0]
        for st in plan.stages
        for s in st.substages
        for f in s.functions
        if f.startswith("raster")
    ]
    assert rasters == names and all(name in text for name in names)


@pytest.mark.parametrize("int64_atomics", [True, False])
def test_slots_that_no_buffer_holds_are_drawn_one_by_one(int64_atomics: bool) -> None:
    words = 16 * 8 * 3 * (2 if int64_atomics else 1)  # of three layers
    for allowed, kbuffer in ((words, True), (words - 1, False)):
        limits = replace(NVIDIA, int64_atomics=int64_atomics, storage_words=allowed)
        for options in (COMPUTE, replace(COMPUTE, peeling="kbuffer")):
            plan = pack(lower(layered(3), options, None, limits), [], limits, options).plan
            check_plan(plan, limits)
            assert ("raster_kbuffer" in plan_text(plan)) == kbuffer


def test_the_profile_decides_how_layers_are_found() -> None:
    """Where a slot costs less than a traversal, and where compute rasterizes at all."""
    for name, kind in (("llvmpipe", "rasterize"), ("h200", "raster_kbuffer_key64")):
        made = topological(lower(layered(3), Options(), PRESETS[name], NVIDIA))
        found = {f.op.name for f in made if f.op.name.startswith("raster")}
        assert found == {kind}
    one_by_one = topological(lower(layered(3), Options(peeling="depth"), PRESETS["h200"], NVIDIA))
    assert sum(f.op.name == "raster_key64" for f in one_by_one) == 3


def test_layers_at_once_may_make_compute_worth_it() -> None:
    """A device that rasterizes one layer a little faster by graphics, and five of them slower."""
    h200 = PRESETS["h200"]
    device = replace(h200, compute=replace(h200.compute, raster_us=h200.graphics.raster_us))
    assert not device.prefers_compute_raster
    assert device.rasterizes_in_compute((5,), kbuffer=True)
    assert not device.rasterizes_in_compute((5,), kbuffer=False)
    assert not device.rasterizes_in_compute((1, 1, 1), kbuffer=True)
    for n, kind in ((1, "rasterize"), (5, "raster_kbuffer_key64")):
        made = topological(lower(layered(n), Options(), device, NVIDIA))
        assert kind in {f.op.name for f in made}


def test_a_graph_without_rasterizations_is_left_alone() -> None:
    outs = simplify([blurred()[1]])
    assert rasterize_in_compute(outs, True) == outs


@pytest.mark.parametrize(
    ("size", "groups"),
    [
        ((7, 5), [1]),
        ((64, 64), [1]),
        ((25709, 1), [26, 1]),
        ((1000, 600), [608, 1]),
        ((1024, 1024), [1024, 1]),
        ((2048, 2048), [1024, 1]),
        ((4096, 4096), [1024, 1]),
        ((4096, 300), [320, 1]),
        ((1_600_000, 1), [391, 1]),
    ],
    ids=str,
)
def test_a_sum_takes_two_dispatches_at_most(size: tuple[int, int], groups: list[int]) -> None:
    x = Variable(FLOAT, size, name="x")
    plan = pack(lower([F.sum(x)], COMPUTE, None, NVIDIA), [], NVIDIA, COMPUTE).plan
    check_plan(plan, NVIDIA)
    made = [s for stage in plan.stages for s in stage.substages]
    assert [s.groups for s in made] == [(n, 1, 1) for n in groups]
    assert all(s.functions[0].startswith("group_sum ") for s in made)


def test_a_group_computes_what_it_adds() -> None:
    """|[sub dot 300x200]| -> |[group_sum]| is one dispatch; not where another one reads that too,
    and not with many functions."""
    x, y = Variable(VEC3, (300, 200), 2, name="x"), Variable(VEC3, (300, 200), name="y")
    squares = F.dot(x - y, x - y)
    long = squares
    for _ in range(10):
        long = F.sin(long) + 0.1
    names = []
    for outputs in ([F.sum(squares)], [F.sum(squares), F.image.border(squares)], [F.sum(long)]):
        plan = pack(lower(outputs, COMPUTE, None, NVIDIA), [], NVIDIA, COMPUTE).plan
        check_plan(plan, NVIDIA)
        made = [s for stage in plan.stages for s in stage.substages]
        sums = [s for s in made if any(f.startswith("group_sum ") for f in s.functions)]
        assert len(sums) == 2
        names.append([f.split()[0] for f in sums[0].functions])
    assert names == [["sub", "dot", "group_sum"], ["group_sum"], ["group_sum"]]


def test_what_else_reads_a_sum_reads_the_same_one() -> None:
    x = Variable(FLOAT, (500, 500), 3, name="x")
    outs = lower([F.sum(x), F.mean(x), F.mean(x, per_layer=True)], COMPUTE, None, NVIDIA)
    names = [f.op.name for f in topological(outs)]
    assert names.count("group_sum") == 4 and "block_sum" not in names


@pytest.mark.parametrize("lowering", ["vulkan", "", None, False])
def test_unknown_lowerings_are_refused(lowering: object) -> None:
    with pytest.raises(GraphError, match="lowering"):
        Options(lowering=lowering)  # type: ignore[arg-type]


@pytest.mark.parametrize("peeling", ["lists", "", None, True])
def test_unknown_ways_to_peel_are_refused(peeling: object) -> None:
    with pytest.raises(GraphError, match="peeling"):
        Options(peeling=peeling)  # type: ignore[arg-type]


@pytest.mark.parametrize("switch", ["pack_stages", "cache", "deterministic"])
def test_switches_are_true_or_false(switch: str) -> None:
    with pytest.raises(GraphError, match=f"{switch} must be True or False, got 1"):
        Options(**{switch: 1})  # type: ignore[arg-type]


def test_a_pixel_that_nothing_wrote_is_a_broken_plan() -> None:
    images = (ImagePlan(0, "a", "R32F", 4, 4), ImagePlan(1, "b", "R32F", 4, 4))
    bindings = (Binding(0, "pixel", 0, "c"), Binding(1, "storage", 1, "c"))
    substage = SubstagePlan("s", bindings, compute="...")
    stage = StagePlan("stage 0", "compute", 4, 4, (substage,))
    with pytest.raises(PackingError, match="fetched before"):
        check_plan(
            Plan(
                "p",
                images,
                (),
                (
                    stage,
                    replace(
                        stage,
                        substages=(
                            replace(
                                substage,
                                bindings=(
                                    Binding(0, "pixel", 1, "c"),
                                    Binding(1, "storage", 0, "c"),
                                ),
                            ),
                        ),
                    ),
                ),
            ),
            LLVMPIPE,
        )


def test_profiles_survive_json() -> None:
    for profile in PRESETS.values():
        assert from_dict(profile.as_dict()) == profile


def _without(key: str) -> dict[str, object]:
    data = PRESETS["h200"].as_dict()
    del data["compute"][key]
    return data


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"name": "x"},
        _without("copy_us"),
        {**PRESETS["h200"].as_dict(), "graphics": 5},
        {
            **PRESETS["h200"].as_dict(),
            "graphics": {**PRESETS["h200"].as_dict()["graphics"], "fixed_us": -1.0},
        },
        {
            **PRESETS["h200"].as_dict(),
            "graphics": {**PRESETS["h200"].as_dict()["graphics"], "fixed_us": float("nan")},
        },
    ],
)
def test_what_is_no_profile_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="no device profile"):
        from_dict(data)


def test_predictions_grow_with_pixels_and_functions() -> None:
    costs = PRESETS["llvmpipe"].graphics
    assert costs.predicted_us(1000) < costs.predicted_us(100_000)
    assert costs.predicted_us(1000, 10) < costs.predicted_us(1000, 50)


def test_what_a_dispatch_writes_is_written() -> None:
    """By whatever kind of binding: what is saved before a look inside goes by it."""
    x, y = blurred()
    plan = pack([], [(x, own_image(simplify([y])[0]))], LLVMPIPE, COMPUTE).plan
    leaf = next(i.index for i in plan.images if i.key is not None and i.name == "x")
    assert any(leaf in s.written for st in plan.stages for s in st.substages)
    assert "x RGBA32F kept" in plan_text(plan)


def test_an_image_stored_twice_is_a_broken_plan() -> None:
    images = (ImagePlan(0, "a", "R32F", 4, 4, key=1),)
    substage = SubstagePlan("s", (Binding(0, "storage", 0, "c"),), compute="...")
    stages = tuple(StagePlan(f"stage {k}", "compute", 4, 4, (substage,)) for k in (0, 1))
    with pytest.raises(PackingError, match="written twice"):
        check_plan(Plan("p", images, (), stages), LLVMPIPE)


@pytest.mark.parametrize(("most", "dispatches"), [(0, 1), (1, 1), (40, 1), (64, 1), (65, 2)])
def test_a_mask_is_dilated_in_few_dispatches(most: int, dispatches: int) -> None:
    """Border and dilation are one up to 64 pixels, and what makes the radius of uniforms is none;
    in passes each of them is one, and more."""
    words, r = Variable(INT, (3, 50), name="words"), Variable(FLOAT, name="r")
    band = F.bits.dilate_bits(F.bits.border_bits(words, 70), F.maximum(r * 70.0 - 1.0, 0.0), most)
    graphics = Options(lowering="graphics")
    n = {
        kind: pack(lower([band], options, None, LLVMPIPE), [], LLVMPIPE, options).plan.n_substages
        for kind, options in (("compute", COMPUTE), ("graphics", graphics))
    }
    assert n["compute"] == dispatches and n["graphics"] > dispatches - (most == 0)


@pytest.mark.parametrize("most", [1, 31, 33, 52, 57, 58, 64])
def test_the_words_of_a_mask_fit_the_shared_memory_of_every_device(most: int) -> None:
    words = Variable(INT, (3, 50), name="words")
    band = F.bits.dilate_bits(F.bits.border_bits(words, 70), Variable(FLOAT, name="r"), most)
    limits = MINIMUM.restrict(group_lanes=512)
    plan = pack(lower([band], COMPUTE, None, limits), [], limits, COMPUTE).plan
    check_plan(plan, limits)
    declared = r"shared uint words\[(\d+) \* \((\d+) \+ (\d+)\)\];"
    (found,) = re.findall(declared, plan.stages[0].substages[0].compute)
    rows, loaded, made = map(int, found)
    assert rows >= 2 * most + 2 and rows * (loaded + made) * 4 <= 16384


# -- sums on CPU drivers


def lowered_sum(x: Variable, profile: DeviceProfile | None) -> tuple[Variable, list[int]]:
    """Return the sum of x as a device of a profile takes it, and how many pixels its levels
    read."""
    (y,) = lower([F.sum(x)], Options(), profile, LLVMPIPE)
    levels = [f.inputs[0] for f in topological([y]) if f.op.name == "block_sum"]
    return y, [v.size[0] * v.size[1] * v.layers for v in levels]


@pytest.mark.parametrize(
    ("size", "layers", "pyramid", "at_once"),
    [
        ((256, 256), 1, [65536, 1024, 16], [65536, 1024]),
        ((256, 256), 2, [131072, 2048, 16], [131072, 2048, 16]),
        ((512, 512), 1, [262144, 4096, 64], [262144, 4096, 64]),
        ((20, 10), 3, [600, 6], [600]),
        ((1000, 1), 1, [1000, 16], [1000]),
    ],
)
def test_a_cpu_driver_sums_a_thousand_pixels_at_once(
    size: tuple[int, int], layers: int, pyramid: list[int], at_once: list[int]
) -> None:
    """A pyramid ends as soon as one invocation may sum the rest, whatever merges layers."""
    x = Variable(FLOAT, size, layers)
    assert lowered_sum(x, None)[1] == pyramid
    y, levels = lowered_sum(x, PRESETS["llvmpipe"])
    assert levels == at_once
    data = np.random.default_rng(0).normal(size=(layers, size[1], size[0], 1))
    np.testing.assert_allclose(evaluate([y], {x: data})[0].ravel(), data.sum(), rtol=1e-9)


# -- masks on CPU drivers


def band_ops(size: tuple[int, int], most: int, profile: DeviceProfile | None) -> list[str]:
    """Return the ops over packed words that find the border of a mask and dilate it."""
    words = F.bits.border_bits(F.bits.pack_bits(Variable(FLOAT, size)), size[0])
    (y,) = lower([F.bits.dilate_bits(words, 3.0, most)], Options(), profile, LLVMPIPE)
    return [f.op.name for f in topological([y]) if "bits" in f.op.name and f.op.name != "pack_bits"]


@pytest.mark.parametrize(
    ("size", "most", "ops"),
    [
        ((256, 256), 4, ["band_bits"]),
        ((512, 512), 9, ["band_bits", "dilate_bits_column"]),
        ((1024, 1024), 4, ["band_bits", "dilate_bits_column"]),
        ((256, 256), 40, ["band_bits", "dilate_bits_row", *["dilate_bits_column"] * 2]),
        ((256, 256), 0, ["border_bits"]),
    ],
)
def test_a_cpu_driver_finds_a_border_and_dilates_it_at_once(
    size: tuple[int, int], most: int, ops: list[str]
) -> None:
    """Along rows always, along columns where the words are few and one pass reaches them."""
    assert band_ops(size, most, PRESETS["llvmpipe"]) == ops
    assert "band_bits" not in band_ops(size, most, None)


@pytest.mark.parametrize(("threshold", "shared"), [(0.5, True), (0.4, False)])
@pytest.mark.parametrize("profile", [PRESETS["llvmpipe"], None])
def test_a_choice_by_a_packed_mask_reads_the_words_of_its_other_side(
    profile: DeviceProfile | None, threshold: float, shared: bool
) -> None:
    """where(band, x, x <= 0.5) reads the words that were packed of that; of no other comparison."""
    x = Variable(FLOAT, (64, 32))
    words = F.bits.pack_bits(x, threshold, below=True)
    band = F.bits.unpack_bits(F.bits.border_bits(words, 64), x.size)
    y = F.where(band, x, F.compare("lte", x, 0.5))
    (z,) = lower([y], Options(), profile, LLVMPIPE)
    names = [f.op.name for f in topological([z])]
    assert ("lte" in names) != (shared and profile is not None)
    data = np.random.default_rng(0).uniform(size=(1, 32, 64, 1))
    data[0, 3, :5] = 0.5
    np.testing.assert_array_equal(*(evaluate([v], {x: data})[0] for v in (y, z)))


def test_rows_are_shared_in_front_of_a_rasterization() -> None:
    """What fragments read of the product, they read of its groups."""
    n, length = 60, 16
    m = F.linalg.SparseMatrix(
        np.arange(n + 1) * length, np.arange(n * length) % n, np.ones(n * length), n
    )
    x = Variable(VEC4, (n, 1), requires_grad=True, name="x")
    product = F.linalg.sparse_matmul(m, x)
    corners = [F.lookup(product, F.leaf(np.arange(20) * 3 + k, INT)) for k in range(3)]
    ids = F.rasterize(corners, (40, 30))
    # What a fragment keeps depends on the product, too.
    shown = F.resolve(ids, F.lookup(product, ids).x * 0.5, F.lookup(product, ids).y)
    loss = F.sum(F.lookup(product, shown))
    gradient = build_backward(loss, [x])[x]
    for profile in (PRESETS["h200"], None):
        options = Options(lowering="auto" if profile else "compute")
        made = lower([loss, gradient], options, profile, NVIDIA)
        plan = pack(made, [], NVIDIA, options, profile=profile).plan
        check_plan(plan, NVIDIA)
        assert "sparse_matmul_groups" in plan_text(plan)
