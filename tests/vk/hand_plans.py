"""Hand-written plans: short ways to say them, and their pixels as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dressi.packing.plan import (
    Binding,
    BufferPlan,
    DrawPlan,
    ImagePlan,
    Plan,
    StagePlan,
    SubstagePlan,
)
from dressi.vk import Device, Executable

CHANNELS = {"R32F": 1, "RG32F": 2, "RGBA32F": 4, "R32I": 1, "RG32I": 2, "RGBA32I": 4}
FORMATS = tuple(CHANNELS)
GLSL_TYPE = {
    "R32F": "float",
    "RG32F": "vec2",
    "RGBA32F": "vec4",
    "R32I": "int",
    "RG32I": "ivec2",
    "RGBA32I": "ivec4",
}

FULL_SCREEN = """#version 450
void main() {
    vec2 p = vec2((gl_VertexIndex << 1) & 2, gl_VertexIndex & 2);
    gl_Position = vec4(p * 2.0 - 1.0, 0.0, 1.0);
}
"""


def frag(body: str, out: str = "float", head: str = "") -> str:
    """A fragment shader with one output ``y`` of type ``out`` ('' for none)."""
    result = f"layout(location = 0) out {out} y;\n" if out else ""
    return f"#version 450\n{head}\n{result}void main() {{\n{body}\n}}\n"


def image(
    index: int, fmt: str = "R32F", width: int = 8, height: int = 4, key: int | None = None
) -> ImagePlan:
    return ImagePlan(index, f"img{index}", fmt, width, height, key)


def draw(
    fragment: str,
    outputs: tuple[int, ...] = (0,),
    bindings: tuple[Binding, ...] = (),
    width: int = 8,
    height: int = 4,
    name: str = "sub",
    **more: Any,
) -> SubstagePlan:
    """A full-screen subpass."""
    fields: dict[str, Any] = {
        "clears": (None,) * len(outputs),
        "vertex": FULL_SCREEN,
        "draws": (DrawPlan(0, 0, width, height),),
        **more,
    }
    return SubstagePlan(name, bindings, outputs, fragment=fragment, **fields)


def stage(*substages: SubstagePlan, width: int = 8, height: int = 4, name: str = "st") -> StagePlan:
    return StagePlan(name, "graphics", width, height, substages)


def compute(
    code: str, bindings: tuple[Binding, ...], groups: tuple[int, int, int], name: str = "comp"
) -> StagePlan:
    substage = SubstagePlan(name, bindings, compute=code, groups=groups)
    return StagePlan(name, "compute", 0, 0, (substage,))


def plan(
    *stages: StagePlan,
    images: tuple[ImagePlan, ...] = (image(0),),
    buffers: tuple[BufferPlan, ...] = (),
    **more: Any,
) -> Plan:
    return Plan("test", images, buffers, stages, **more)


def pixels(data: bytes, fmt: str, width: int, height: int) -> npt.NDArray[Any]:
    kind = np.int32 if fmt.endswith("I") else np.float32
    return np.frombuffer(data, kind).reshape(height, width, CHANNELS[fmt])


def result(executable: Executable, index: int = 0) -> npt.NDArray[Any]:
    """Pixels of one of the plan's images."""
    of = executable.plan.images[index]
    return pixels(executable.download(index), of.format, of.width, of.height)


def run(device: Device, p: Plan, index: int = 0, times: int = 1) -> npt.NDArray[Any]:
    """Compiles, runs and closes a plan; gives one of its images."""
    with device.compile(p) as executable:
        executable.run(times)
        return result(executable, index)
