"""Hand-written plans on a real device: each feature of a Plan does what its docstring says."""

from __future__ import annotations

import numpy as np
import pytest
from hand_plans import (
    CHANNELS,
    FORMATS,
    FULL_SCREEN,
    GLSL_TYPE,
    compute,
    draw,
    frag,
    image,
    pixels,
    plan,
    result,
    run,
    stage,
)

from dressi.errors import DeviceError
from dressi.packing.plan import Binding, BufferPlan, DrawPlan, Plan, SamplerPlan
from dressi.vk import Device, hazards, record

pytestmark = pytest.mark.gpu
SAMPLERLESS = "#extension GL_EXT_samplerless_texture_functions : require"
INPUT = "layout(input_attachment_index = 0, binding = 0) uniform subpassInput x0;"


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("size", [(1, 1), (101, 37)])
def test_constant_fill_reaches_every_pixel(device: Device, fmt: str, size: tuple[int, int]) -> None:
    width, height = size
    values = [3, -2, 5, 7][: CHANNELS[fmt]]
    code = frag(f"y = {GLSL_TYPE[fmt]}({', '.join(map(str, values))});", GLSL_TYPE[fmt])
    p = plan(
        stage(draw(code, width=width, height=height), width=width, height=height),
        images=(image(0, fmt, width, height),),
    )
    assert (run(device, p) == np.array(values)).all()


def test_row_0_is_on_top(device: Device) -> None:
    code = frag("y = vec2(gl_FragCoord.xy - 0.5);", "vec2")
    got = run(device, plan(stage(draw(code)), images=(image(0, "RG32F"),)))
    ys, xs = np.mgrid[0:4, 0:8]
    assert (got == np.stack([xs, ys], -1)).all()


def test_subpass_reads_the_one_before_as_input_attachment(device: Device) -> None:
    """x -> [a] -> y, one stage of two subpasses."""
    first = draw(frag("y = gl_FragCoord.x;"))
    second = draw(frag("y = 2.0 * subpassLoad(x0).x;", head=INPUT), (1,), (Binding(0, "input", 0),))
    got = run(device, plan(stage(first, second), images=(image(0), image(1))), 1)
    assert (got[0, :, 0] == 2 * (np.arange(8) + 0.5)).all()


def test_attachment_survives_subpasses_that_do_not_use_it(device: Device) -> None:
    """a and b are written, c reads b, d reads a: a is preserved over c, and all are stored."""
    a = draw(frag("y = 1.0;"), (0,))
    b = draw(frag("y = 2.0;"), (1,))
    c = draw(frag("y = subpassLoad(x0).x + 10.0;", head=INPUT), (2,), (Binding(0, "input", 1),))
    d = draw(frag("y = subpassLoad(x0).x + 20.0;", head=INPUT), (3,), (Binding(0, "input", 0),))
    p = plan(stage(a, b, c, d), images=tuple(image(i) for i in range(4)))
    with device.compile(p) as executable:
        executable.run()
        assert [result(executable, i).mean() for i in range(4)] == [1, 2, 12, 21]


def test_image_may_be_input_then_output_of_different_subpasses(device: Device) -> None:
    """0 is loaded, copied to 1, then overwritten by 1 + 5."""
    first = draw(frag("y = subpassLoad(x0).x;", head=INPUT), (1,), (Binding(0, "input", 0),))
    second = draw(frag("y = subpassLoad(x0).x + 5.0;", head=INPUT), (0,), (Binding(0, "input", 1),))
    p = plan(stage(first, second), images=(image(0), image(1)))
    assert (run(device, p, 0, times=3) == 15).all()


def test_several_outputs_keep_their_locations(device: Device) -> None:
    head = "layout(location = 1) out ivec2 z;"
    code = frag("y = 1.5; z = ivec2(4, -5);", head=head)
    p = plan(stage(draw(code, (1, 0))), images=(image(0, "RG32I"), image(1)))
    with device.compile(p) as executable:
        executable.run()
        assert (result(executable, 0) == [4, -5]).all()
        assert (result(executable, 1) == 1.5).all()


def test_texel_fetch_reads_any_pixel_of_an_earlier_stage(device: Device) -> None:
    first = stage(draw(frag("y = ivec2(gl_FragCoord.xy);", "ivec2")))
    head = f"{SAMPLERLESS}\nlayout(binding = 3) uniform itexture2D x0;"
    # As the generator writes it (``packing.glsl.is_offset``): without the max, NVIDIA's compiler
    # lets the fetch add (7, 3) to places that are outside by then, and gives 0.
    place = "max(ivec2(7, 3) - ivec2(gl_FragCoord.xy), 0)"
    flip = frag(f"y = texelFetch(x0, {place}, 0).xy;", "ivec2", head)
    second = stage(draw(flip, (1,), (Binding(3, "texture", 0),)))
    p = plan(first, second, images=(image(0, "RG32I"), image(1, "RG32I")))
    ys, xs = np.mgrid[0:4, 0:8]
    assert (run(device, p, 1) == np.stack([7 - xs, 3 - ys], -1)).all()


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (SamplerPlan("linear", "clamp"), [0, 0, 1, 3]),
        (SamplerPlan("linear", "repeat"), [0, 1.5, 1, 1.5]),
        (SamplerPlan("linear", "mirror"), [0, 0, 1, 3]),
        (SamplerPlan("nearest", "repeat"), [0, 3, 1, 0]),
        (SamplerPlan("linear", "border"), [0, 0, 1, 1.5]),
        (SamplerPlan("nearest", "border"), [0, 0, 1, 0]),
        (SamplerPlan("linear", "repeat", "clamp"), [0, 1.5, 1, 1.5]),
    ],
)
def test_sampler_filters_and_wraps(
    device: Device, sampler: SamplerPlan, expected: list[float]
) -> None:
    """A row of texels 0 1 2 3, sampled at 1/8, -0.01, 3/8 and 1."""
    if sampler.filter == "linear" and not device.limits.linear_float32:
        pytest.skip("no linear filter for floats")
    device.upload(1, "R32F", 4, 1, np.arange(4, dtype=np.float32))
    body = (
        "const float u[4] = float[4](0.125, -0.001, 0.375, 1.0);\n"
        "y = texture(x0, vec2(u[int(gl_FragCoord.x)], 0.5)).x;"
    )
    code = frag(body, head="layout(binding = 0) uniform sampler2D x0;")
    bindings = (Binding(0, "sampler", 0, sampler=sampler),)
    p = plan(
        stage(draw(code, (1,), bindings, 4, 1), width=4, height=1),
        images=(image(0, "R32F", 4, 1, key=1), image(1, "R32F", 4, 1)),
    )
    got = run(device, p, 1)[0, :, 0]
    device.drop(1)
    assert np.allclose(got, expected, atol=0.02)


def test_float_atomics_scatter_without_colour_output(device: Device) -> None:
    """Every pixel adds its x to the word of its row; a later stage reads the words; each run starts
    at 0."""
    if not (device.limits.fragment_stores and device.limits.float_atomics):
        pytest.skip("no float atomics")
    atomics = "#extension GL_EXT_shader_atomic_float : require"
    block = "layout(std430, binding = 0) buffer B { float w[]; };"
    scatter = frag(
        "atomicAdd(w[int(gl_FragCoord.y)], floor(gl_FragCoord.x));", "", f"{atomics}\n{block}"
    )
    read = frag("y = w[int(gl_FragCoord.y)];", head=block.replace("buffer B", "readonly buffer B"))
    words = (Binding(0, "buffer", 0),)
    p = plan(
        stage(draw(scatter, (), words)),
        stage(draw(read, (0,), words)),
        buffers=(BufferPlan(0, "words", 4),),
    )
    with device.compile(p) as executable:
        executable.run(3)
        assert (result(executable) == 28).all()
        assert np.frombuffer(executable.download_buffer(0), np.float32).tolist() == [28] * 4


def test_vertex_shader_fetches_textures_and_buffers(device: Device) -> None:
    """The triangle's corners come from an image, its colour from a buffer written by a dispatch."""
    corners = np.array([[-1, -1, 0, 1], [3, -1, 0, 1], [-1, 3, 0, 1]], np.float32)
    device.upload(1, "RGBA32F", 3, 1, corners)
    fill = (
        "#version 450\nlayout(local_size_x = 1) in;\n"
        "layout(std430, binding = 0) buffer B { float w[]; };\nvoid main() { w[0] = 6.0; }\n"
    )
    vertex = f"""#version 450
{SAMPLERLESS}
layout(binding = 0) uniform texture2D pos;
layout(std430, binding = 1) readonly buffer B {{ float w[]; }};
layout(location = 0) flat out float value;
void main() {{
    gl_Position = texelFetch(pos, ivec2(gl_VertexIndex, 0), 0);
    value = w[0];
}}
"""
    code = frag("y = value;", head="layout(location = 0) flat in float value;")
    bindings = (Binding(0, "texture", 1, "v"), Binding(1, "buffer", 0, "vf"))
    p = plan(
        compute(fill, (Binding(0, "buffer", 0, "c"),), (1, 1, 1)),
        stage(draw(code, (0,), bindings, vertex=vertex)),
        images=(image(0), image(1, "RGBA32F", 3, 1, key=1)),
        buffers=(BufferPlan(0, "w", 1),),
    )
    assert (run(device, p) == 6).all()
    device.drop(1)


def test_depth_subpass_keeps_the_nearest_and_clears_the_rest(device: Device) -> None:
    """Two viewports side by side, one draw each; three triangles at depths 0.75, 0.25, 0.5, of
    which the second wins; a fragment may discard, and then the clear value -1 stays."""
    vertex = """#version 450
layout(location = 0) flat out ivec2 id;
void main() {
    int corner = gl_VertexIndex % 3;
    id = ivec2(gl_VertexIndex / 3, gl_InstanceIndex);
    gl_Position = vec4(vec2((corner << 1) & 2, corner & 2) * 2.0 - 1.0, 0.0, 1.0);
}
"""
    body = """if (gl_FragCoord.y < 1.0) discard;
gl_FragDepth = float[3](0.75, 0.25, 0.5)[id.x];
y = 10 * id.y + id.x;"""
    code = frag(body, "int", "layout(location = 0) flat in ivec2 id;")
    draws = (
        DrawPlan(0, 0, 4, 4, n_vertices=9, first_instance=0),
        DrawPlan(4, 0, 3, 4, n_vertices=9, first_instance=7),
    )
    more = {"vertex": vertex, "draws": draws, "depth": True, "clears": ((-1, -1, -1, -1),)}
    raster = draw(code, (0,), **more)
    read = draw(
        frag("y = subpassLoad(x0).x;", "int", INPUT.replace("subpassInput", "isubpassInput")),
        (1,),
        (Binding(0, "input", 0),),
    )
    again = draw(code, (2,), **more)
    images = (image(0, "R32I"), image(1, "R32I"), image(2, "R32I"))
    expected = np.array([[-1] * 8] + [[1, 1, 1, 1, 71, 71, 71, -1]] * 3)
    p = plan(stage(raster, read, again), images=images)
    with device.compile(p) as executable:
        executable.run(2)
        for i in range(3):
            assert (result(executable, i)[..., 0] == expected).all()


@pytest.mark.parametrize(("cull", "shown"), [("none", (0, 1)), ("back", (0,)), ("front", (1,))])
def test_cull_mode_and_scissor_leave_the_clear_value(
    device: Device, cull: str, shown: tuple[int, ...]
) -> None:
    """Two triangles that cover the viewport, the first counter-clockwise to who looks at it (y is
    down); two viewports, the second with a scissor of 1 x 2 pixels."""
    vertex = """#version 450
layout(location = 0) flat out int id;
void main() {
    id = gl_VertexIndex / 3;
    int corner = id == 0 ? 2 - gl_VertexIndex % 3 : gl_VertexIndex % 3;
    gl_Position = vec4(vec2((corner << 1) & 2, corner & 2) * 2.0 - 1.0, 0.0, 1.0);
}
"""
    code = frag(
        "gl_FragDepth = 0.5 - 0.1 * id; y = id;", "int", "layout(location = 0) flat in int id;"
    )
    draws = (DrawPlan(0, 0, 4, 4, 6), DrawPlan(4, 0, 4, 4, 6, scissor=(5, 1, 1, 2)))
    substage = draw(
        code, (0,), vertex=vertex, draws=draws, depth=True, cull=cull, clears=((-1,) * 4,)
    )
    expected = np.full((4, 8), -1)
    expected[:, :4] = expected[1:3, 5] = shown[-1]
    with device.compile(plan(stage(substage), images=(image(0, "R32I"),))) as executable:
        executable.run()
        assert (result(executable, 0)[..., 0] == expected).all()


def test_an_unknown_cull_mode_is_named(device: Device) -> None:
    with pytest.raises(DeviceError, match="cull mode 'both'"):
        device.compile(plan(stage(draw(frag("y = 1.0;", "float"), (0,), cull="both"))))


def test_float_clear_values_show_where_nothing_is_drawn(device: Device) -> None:
    code = frag("y = vec4(9.0);", "vec4")
    some = draw(code, draws=(DrawPlan(2, 1, 3, 2),), clears=((0.5, 1.0, -2.0, 3.0),))
    got = run(device, plan(stage(some), images=(image(0, "RGBA32F"),)))
    expected = np.broadcast_to(np.array([0.5, 1.0, -2.0, 3.0]), (4, 8, 4)).copy()
    expected[1:3, 2:5] = 9
    assert (got == expected).all()


@pytest.mark.parametrize("fmt", ["R32F", "RG32F", "RGBA32I"])
def test_dispatch_writes_a_storage_image(device: Device, fmt: str) -> None:
    integer = fmt.endswith("I")
    kind = "iimage2D" if integer else "image2D"
    vec = "ivec4" if integer else "vec4"
    code = f"""#version 450
layout(local_size_x = 4, local_size_y = 4) in;
layout({fmt.lower()}, binding = 0) uniform writeonly {kind} y;
void main() {{ imageStore(y, ivec2(gl_GlobalInvocationID.xy), {vec}(gl_GlobalInvocationID.x)); }}
"""
    if fmt not in device.context.storage_formats:
        pytest.skip(f"no storage images of {fmt}")
    p = plan(compute(code, (Binding(0, "storage", 0, "c"),), (2, 1, 1)), images=(image(0, fmt),))
    assert (run(device, p) == np.arange(8)[None, :, None]).all()


COUNT = """#version 450
layout(local_size_x = 1) in;
layout(std430, binding = 0) buffer B { uint w[]; };
layout(r32f, binding = 1) uniform writeonly image2D y;
void main() {
  w[0] += 1u;
  imageStore(y, ivec2(gl_WorkGroupID.xy), vec4(float(w[0])));
}
"""


def test_steps_of_dispatches_alone_wait_for_dispatches_fills_and_copies_alone(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every run fills the buffer anew before it counts in it, and copies what it stored."""
    full = []
    real = record.barrier
    for module in (record, hazards):
        monkeypatch.setattr(module, "barrier", lambda *args: full.append(real(*args)))
    count = compute(COUNT, (Binding(0, "buffer", 0, "c"), Binding(1, "storage", 0, "c")), (1, 1, 1))
    p = plan(
        count,
        images=(image(0, "R32F", 1, 1), image(1, "R32F", 1, 1)),
        buffers=(BufferPlan(0, "words", 1, empty=41),),
        updates=((0, 1),),
    )
    assert (run(device, p, 1, times=5) == 42).all()
    assert not full
    with device.compile(counter_plan(None)) as executable:
        executable.run()
    assert len(full) >= 3, "passes are waited for before and after them"


def counter_plan(key: int | None = 7) -> Plan:
    """y = x + 1, then x <- y."""
    add = draw(frag("y = subpassLoad(x0).x + 1.0;", head=INPUT), (1,), (Binding(0, "input", 0),))
    return plan(stage(add), images=(image(0, key=key), image(1)), updates=((1, 0),))


def test_updates_are_copied_after_the_stages_and_runs_follow_each_other(device: Device) -> None:
    with device.compile(counter_plan(None)) as executable:
        executable.run(3)
        assert (result(executable) == 3).all()
        executable.run()
        assert (result(executable) == 4).all()


def test_an_update_sees_earlier_ones(device: Device) -> None:
    code = draw(frag("y = 5.0;"))
    p = plan(stage(code), images=(image(0), image(1), image(2)), updates=((0, 1), (1, 2)))
    assert (run(device, p, 2) == 5).all()


def test_uniforms_start_at_zero_and_are_replaced_between_runs(device: Device) -> None:
    head = "layout(std140, binding = 2) uniform U { vec4 u[3]; };"
    code = frag("y = u[0] + u[2];", "vec4", head)
    p = plan(
        stage(draw(code, (0,), (Binding(2, "uniform", 0),))),
        images=(image(0, "RGBA32F"),),
        uniform_slots=3,
    )
    with device.compile(p) as executable:
        executable.run()
        assert (result(executable) == 0).all()
        for base in (0, 100):
            values = np.arange(12, dtype=np.float32) + base
            executable.write_uniforms(values)
            executable.run()
            assert (result(executable) == values[:4] + values[8:]).all()


def test_persistent_image_is_shared_by_executables_and_outlives_them(device: Device) -> None:
    device.ensure(7, "R32F", 8, 4)
    first, second = device.compile(counter_plan()), device.compile(counter_plan())
    first.run(2)
    second.run(3)
    first.close()
    second.run()
    second.close()
    assert (pixels(device.download(7), "R32F", 8, 4) == 6).all()
    device.drop(7)
    assert not device.has(7)


def test_equal_shader_texts_make_one_module(device: Device) -> None:
    before = device.live_handles().get("VkShaderModule", 0)
    stages = (stage(draw(frag("y = 1.0;"))), stage(draw(frag("y = 2.0;"))))
    with device.compile(plan(*stages)):
        assert device.live_handles()["VkShaderModule"] == before + 3


def test_stages_that_differ_only_in_images_share_pass_and_pipeline(device: Device) -> None:
    stages = [stage(draw(frag("y = 1.0;"), (i,))) for i in range(5)]
    odd = stage(draw(frag("y = 1.0;"), (5,), clears=((0, 0, 0, 0),)))
    images = tuple(image(i) for i in range(6))
    before = device.live_handles()
    with device.compile(plan(*stages, odd, images=images)) as executable:
        after = device.live_handles()
        for kind in ("VkRenderPass", "VkPipeline"):
            assert after[kind] == before.get(kind, 0) + 2
        executable.run()
        assert all((result(executable, i) == 1).all() for i in range(6))


def test_stage_times_are_named_and_positive(device: Device) -> None:
    p = plan(stage(draw(frag("y = 1.0;")), name="fill"))
    with device.compile(p) as executable:
        times = executable.run_timed()
    assert [name for name, _ in times] == ["fill", "updates"]
    assert all(t >= 0 for _, t in times)


def test_build_times_name_their_parts(device: Device) -> None:
    with device.compile(plan(stage(draw(frag("y = 1.0;"))))) as executable:
        assert sorted(executable.build_times) == ["other", "pipelines", "spirv"]
        assert all(t >= 0 for t in executable.build_times.values())


def test_many_stages_of_one_size_share_depth_images(device: Device) -> None:
    code = frag("gl_FragDepth = 0.5; y = 1.0;")
    one = stage(draw(code, depth=True, clears=((0, 0, 0, 0),)))
    before = device.live_handles().get("VkImage", 0)
    with device.compile(plan(one, one, one)), device.compile(plan(one)):
        # Two plans' own images and one depth image.
        assert device.live_handles()["VkImage"] == before + 3


def test_a_plan_of_nothing_runs(device: Device) -> None:
    with device.compile(plan(images=())) as executable:
        executable.run(2)


def test_full_screen_triangle_covers_odd_sizes(device: Device) -> None:
    p = plan(
        stage(draw(frag("y = 1.0;"), width=37, height=101), width=37, height=101),
        images=(image(0, "R32F", 37, 101),),
    )
    assert FULL_SCREEN in p.stages[0].substages[0].vertex
    assert run(device, p).sum() == 37 * 101


def all_features_plan() -> Plan:
    """Depth, inputs, samplers, a buffer, a dispatch, uniforms, an update: for tests that break
    things."""
    clear = draw(frag("y = 1.0;"), depth=True, clears=((0, 0, 0, 0),))
    head = (
        "layout(std140, binding = 1) uniform U { vec4 u; };\n"
        "layout(binding = 2) uniform sampler2D s;"
    )
    bindings = (Binding(0, "input", 0), Binding(1, "uniform", 0), Binding(2, "sampler", 2))
    body = "y = subpassLoad(x0).x + u.x + texture(s, vec2(0.5)).x;"
    use = draw(frag(body, head=f"{INPUT}\n{head}"), (1,), bindings)
    fill = (
        "#version 450\nlayout(local_size_x = 1) in;\n"
        "layout(std430, binding = 0) buffer B { float w[]; };\nvoid main() { w[0] = 6.0; }\n"
    )
    return plan(
        stage(clear, use),
        compute(fill, (Binding(0, "buffer", 0, "c"),), (1, 1, 1)),
        images=(image(0), image(1), image(2, key=1)),
        buffers=(BufferPlan(0, "w", 4),),
        updates=((1, 2),),
        uniform_slots=1,
    )


def test_all_features_work_together(device: Device) -> None:
    device.ensure(1, "R32F", 8, 4)
    assert (run(device, all_features_plan(), 2, times=4) == 4).all()
    device.drop(1)
