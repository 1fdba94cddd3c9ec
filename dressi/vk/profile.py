"""The device profile: a few tiny plans, run both ways, timed, and kept on disk.

In: a Device. Out: ``DeviceProfile``. Measured once for a device and driver, in a fraction of a
second; ``DRESSI_PROFILE`` switches it off or names a preset. CPU drivers have a preset.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from typing import Protocol

from dressi import config
from dressi.errors import DeviceError, DressiError
from dressi.packing.plan import (
    Binding,
    BufferPlan,
    DrawPlan,
    ImagePlan,
    Plan,
    StagePlan,
    SubstagePlan,
)
from dressi.packing.profile import PRESETS, Costs, DeviceProfile, from_dict
from dressi.vk import cache
from dressi.vk.executor import Executable
from dressi.vk.query import DeviceInfo

log = logging.getLogger("dressi")

VERSION = 1
"""Of what is measured; a file of another version is not used."""

TINY, LARGE = 8, 512
"""Sides in pixels of the images of the fixed cost, and of all others."""
CHAIN = 8
"""Passes whose mean is the fixed cost."""
ROUNDS = 64
"""Multiply-adds of four components of the arithmetic test."""
TRIANGLES = 5000
CPU_DRIVER = "llvmpipe"
"""The preset of CPU drivers: what a busy machine would measure changes the plans of a fit."""
RUNS = 4
"""Runs of a plan; the fastest counts, since whatever disturbs a run makes it slower."""

_FULL_SCREEN = """#version 450
void main() {
  gl_Position = vec4(gl_VertexIndex == 1 ? 3.0 : -1.0, gl_VertexIndex == 2 ? 3.0 : -1.0, 0.0, 1.0);
}
"""
_HEAD = """#extension GL_EXT_samplerless_texture_functions : require
layout(set = 0, binding = 0) uniform texture2D x;
"""
_READ = "vec4 v = texelFetch(x, p, 0);"
_ARITHMETIC = f"""{_READ} vec4 s = v * 0.5;
  for (int k = 0; k < {ROUNDS}; k++) v = v * s + 0.25;"""

# A grid of small triangles, two a cell, whose corners follow from the number of the triangle.
_CORNER = """vec2 corner(int t, int k) {
  int cell = t / 2;
  vec2 at = vec2(cell % 50, cell / 50);
  vec2 d = t % 2 == 0 ? vec2(k == 1, k == 2) : vec2(k != 1, k != 0);
  return (at + d) / 50.0 * 2.0 - 1.0;
}
"""


class Measurable(Protocol):
    """A ``Device``, as far as it is measured."""

    @property
    def info(self) -> DeviceInfo:
        """Name, driver and type."""
        ...

    def compile(self, plan: Plan) -> Executable:
        """A plan that is ready to run."""
        ...


def profile_of(device: Measurable) -> DeviceProfile | None:
    """The profile of a device: a preset, from disk, or measured now; on a CPU driver that of
    CPU_DRIVER. None (graphics only) when switched off, or when the device cannot be measured."""
    choice = config.profile_choice()
    if choice == "off":
        return None
    if choice is not None:
        if choice not in PRESETS:
            known = ", ".join(["off", *PRESETS])
            raise DeviceError(f"DRESSI_PROFILE={choice}: known are {known}")
        return PRESETS[choice]
    if on_cpu(device):
        return PRESETS[CPU_DRIVER]
    info = device.info
    text = f"{VERSION} {info.name} {info.driver} {info.api_version}"
    path = config.cache_dir() / "profiles" / hashlib.sha256(text.encode()).hexdigest()[:32]
    stored = cache.read(path)
    if stored is not None:
        try:
            return from_dict(json.loads(stored))
        except ValueError:
            log.info("the profile of %s on disk is of no use; measured again", info.name)
    start = time.perf_counter()
    try:
        profile = measure(device)
    except DressiError as error:
        log.info("%s has no profile: %s", info.name, error)
        return None
    log.info("profile of %s measured in %.2f s", info.name, time.perf_counter() - start)
    cache.write(path, json.dumps(profile.as_dict()).encode())
    return profile


def on_cpu(device: Measurable) -> bool:
    """Whether the driver runs passes and dispatches on the same cores: passes are a little faster
    there, and what a busy machine would show beyond that is noise."""
    return device.info.type == "cpu"


def measure(device: Measurable) -> DeviceProfile:
    """Runs the tests. Raises DeviceError where the device has no timestamps or lacks a format."""
    return DeviceProfile(device.info.name, _costs(device, False), _costs(device, True))


def _costs(device: Measurable, compute: bool) -> Costs:
    plan = _plan(compute)
    with device.compile(plan) as executable:
        best: list[float] = []
        for _ in range(RUNS):
            times = [1e3 * ms for _, ms in executable.run_timed()]
            best = [min(a, b) for a, b in zip(best, times, strict=True)] if best else times
    by_name: dict[str, float] = {}
    for stage, us in zip(plan.stages, best, strict=False):
        by_name[stage.name] = by_name.get(stage.name, 0.0) + us
    millions = LARGE * LARGE / 2**20
    least = 1e-3  # clocks may be coarser than what they measure
    fixed = max(by_name["tiny"] / CHAIN, least)
    return Costs(
        fixed_us=fixed,
        copy_us=max(by_name["copy"] - fixed, least) / millions,
        function_us=max(by_name["arithmetic"] - by_name["copy"], least) / millions / ROUNDS,
        raster_us=max(by_name["raster"], least),
    )


def _plan(compute: bool) -> Plan:
    """A fill, CHAIN tiny passes, a copy, the arithmetic, the triangles; distinguished by name."""
    sides = (TINY, TINY, LARGE, LARGE)
    images = [ImagePlan(k, f"image {k}", "RGBA32F", n, n) for k, n in enumerate(sides)]
    images.append(ImagePlan(4, "ids", "R32I", LARGE, LARGE))
    make = _dispatch if compute else _pass
    stages = [make("fill", "vec4 v = vec4(p, 0.5, 1.0);", (), n, sides[n]) for n in (0, 2)]
    for k in range(CHAIN):
        stages.append(make("tiny", _READ, (k % 2,), 1 - k % 2, TINY))
    stages.append(make("copy", _READ, (2,), 3, LARGE))
    stages.append(make("arithmetic", _ARITHMETIC, (2,), 3, LARGE))
    buffers: tuple[BufferPlan, ...] = ()
    if compute:
        buffers = (BufferPlan(0, "keys", LARGE * LARGE),)
        stages += [_find_triangles(), _look_up_triangles()]
    else:
        stages.append(_draw_triangles())
    name = "profile of " + ("dispatches" if compute else "passes")
    return Plan(name, tuple(images), buffers, tuple(stages))


def _pass(name: str, body: str, reads: tuple[int, ...], writes: int, side: int) -> StagePlan:
    text = f"""#version 450
{_HEAD if reads else ""}layout(location = 0) out vec4 y;
void main() {{ ivec2 p = ivec2(gl_FragCoord.xy); {body} y = v; }}
"""
    substage = SubstagePlan(
        name,
        tuple(Binding(k, "texture", index) for k, index in enumerate(reads)),
        (writes,),
        (None,),
        _FULL_SCREEN,
        text,
        draws=(DrawPlan(0, 0, side, side),),
    )
    return StagePlan(name, "graphics", side, side, (substage,))


def _dispatch(name: str, body: str, reads: tuple[int, ...], writes: int, side: int) -> StagePlan:
    text = f"""#version 450
{_HEAD if reads else ""}layout(local_size_x = 8, local_size_y = 8) in;
layout(rgba32f, set = 0, binding = {len(reads)}) uniform writeonly image2D y;
void main() {{ ivec2 p = ivec2(gl_GlobalInvocationID.xy); {body} imageStore(y, p, v); }}
"""
    bindings = [Binding(k, "texture", index, "c") for k, index in enumerate(reads)]
    bindings.append(Binding(len(reads), "storage", writes, "c"))
    return _computed(name, text, tuple(bindings), (side // 8, side // 8, 1))


def _computed(
    name: str, text: str, bindings: tuple[Binding, ...], groups: tuple[int, int, int]
) -> StagePlan:
    substage = SubstagePlan(name, bindings, compute=text, groups=groups)
    return StagePlan(name, "compute", LARGE, LARGE, (substage,))


def _draw_triangles() -> StagePlan:
    vertex = f"""#version 450
layout(location = 0) flat out int id;
{_CORNER}void main() {{
  id = gl_VertexIndex / 3;
  gl_Position = vec4(corner(id, gl_VertexIndex % 3), 0.5, 1.0);
}}
"""
    fragment = """#version 450
layout(location = 0) flat in int id;
layout(location = 0) out int y;
void main() { gl_FragDepth = fract(float(id) * 0.618); y = id; }
"""
    substage = SubstagePlan(
        "raster",
        (),
        (4,),
        ((-1, -1, -1, -1),),
        vertex,
        fragment,
        draws=(DrawPlan(0, 0, LARGE, LARGE, 3 * TRIANGLES),),
        depth=True,
    )
    return StagePlan("raster", "graphics", LARGE, LARGE, (substage,))


def _find_triangles() -> StagePlan:
    text = f"""#version 450
layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 0) buffer Keys {{ uint keys[]; }};
{_CORNER}shared int scan[64];
shared ivec4 boxes[64];
float side(vec2 a, vec2 b, vec2 p) {{
  return (b.x - a.x) * (p.y - a.y) - (b.y - a.y) * (p.x - a.x);
}}
void main() {{
  int me = int(gl_LocalInvocationIndex), t = int(gl_GlobalInvocationID.x), n = 0;
  if (t < {TRIANGLES}) {{
    vec2 a = corner(t, 0) * {LARGE // 2}.0 + {LARGE // 2}.0;
    vec2 b = corner(t, 1) * {LARGE // 2}.0 + {LARGE // 2}.0;
    vec2 c = corner(t, 2) * {LARGE // 2}.0 + {LARGE // 2}.0;
    ivec2 low = ivec2(max(min(min(a, b), c), vec2(0.0)));
    ivec2 high = min(ivec2(max(max(a, b), c)), ivec2({LARGE - 1}));
    boxes[me] = ivec4(low, high.x - low.x + 1, t);
    n = boxes[me].z * (high.y - low.y + 1);
  }}
  scan[me] = n;
  barrier();
  for (int step = 1; step < 64; step *= 2) {{
    int before = me >= step ? scan[me - step] : 0;
    barrier();
    scan[me] += before;
    barrier();
  }}
  for (int i = me; i < scan[63]; i += 64) {{
    int at = 0;
    for (int step = 32; step > 0; step /= 2) at += scan[at + step - 1] <= i ? step : 0;
    int k = i - (at > 0 ? scan[at - 1] : 0), id = boxes[at].w;
    ivec2 q = ivec2(boxes[at].x + k % boxes[at].z, boxes[at].y + k / boxes[at].z);
    vec2 a = corner(id, 0) * {LARGE // 2}.0 + {LARGE // 2}.0;
    vec2 b = corner(id, 1) * {LARGE // 2}.0 + {LARGE // 2}.0;
    vec2 c = corner(id, 2) * {LARGE // 2}.0 + {LARGE // 2}.0, p = vec2(q) + 0.5;
    float d = side(a, b, p), e = side(b, c, p), f = side(c, a, p);
    uint key = ~((floatBitsToUint(fract(float(id) * 0.618)) & 0xfffff000u) | uint(id & 4095));
    if (min(min(d, e), f) >= 0.0 || max(max(d, e), f) <= 0.0) {{
      atomicMax(keys[q.y * {LARGE} + q.x], key);
    }}
  }}
}}
"""
    groups = (-(-TRIANGLES // 64), 1, 1)
    return _computed("raster", text, (Binding(0, "buffer", 0, "c"),), groups)


def _look_up_triangles() -> StagePlan:
    text = f"""#version 450
layout(local_size_x = 8, local_size_y = 8) in;
layout(std430, set = 0, binding = 0) readonly buffer Keys {{ uint keys[]; }};
layout(r32i, set = 0, binding = 1) uniform writeonly iimage2D y;
void main() {{
  ivec2 p = ivec2(gl_GlobalInvocationID.xy);
  imageStore(y, p, ivec4(~keys[p.y * {LARGE} + p.x]));
}}
"""
    bindings = (Binding(0, "buffer", 0, "c"), Binding(1, "storage", 4, "c"))
    return _computed("raster", text, bindings, (LARGE // 8, LARGE // 8, 1))
