"""The SPIR-V of shaders: no instruction hides a sum or a product, and golden shaders are valid.

Needs a GLSL compiler, but no device.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dressi.ad import Variable, build_backward
from dressi.ad.registry import OPS
from dressi.packing import Options, pack
from dressi.packing.limits import PRESETS
from dressi.packing.lower import lower
from dressi.packing.plan import Plan
from dressi.testing.cases import differentiable, first_config, instance, projected, typed_cases
from dressi.vk.compilers import Source, find_compiler, needs_1_1

GOLDEN = sorted((Path(__file__).resolve().parent.parent / "golden").glob("*.glsl"))
STAGES = {"vertex": "vert", "fragment": "frag", "compute": "comp"}

OPCODES = {
    144: "OpVectorTimesMatrix",
    145: "OpMatrixTimesVector",
    146: "OpMatrixTimesMatrix",
    147: "OpOuterProduct",
    148: "OpDot",
}
"""Products and sums that a driver may round as it likes: ``precise`` rules operators on floats and
vectors only (``ad.functions.written_out`` says more)."""

EXTENDED = {
    33: "Determinant",
    34: "MatrixInverse",
    46: "FMix",
    49: "SmoothStep",
    50: "Fma",
    66: "Length",
    67: "Distance",
    68: "Cross",
    69: "Normalize",
    71: "Reflect",
    72: "Refract",
}
"""The same of GLSL.std.450. (OpSelect is what ``mix`` with a bool becomes.)"""

OP_EXT_INST = 12

FIXED = {
    "unswizzle",
    "splat",
    "conv_channels_x",
    "conv_channels_w",
    "conv_channels_part",
    "mip_half_transposed",
    "resize_transposed",
}
"""Rows that only backwards make: of types that the forward rows take, which are here."""

WAYS = (
    ("nvidia", Options(lowering="graphics")),
    ("nvidia", Options(lowering="compute")),
    ("minimum", Options(lowering="compute", deterministic=True)),
)
"""Passes, dispatches with subgroups, dispatches without. The software sampler is in the last."""


def instructions(spirv: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The opcode and operands of every instruction of a SPIR-V module."""
    words = struct.unpack(f"<{len(spirv) // 4}I", spirv)
    at = 5  # after the header
    while at < len(words):
        length = words[at] >> 16
        yield words[at] & 0xFFFF, words[at + 1 : at + length]
        at += length


def hidden(spirv: bytes) -> set[str]:
    """The names of all instructions of a module that hide a sum or a product."""
    found = set()
    for opcode, operands in instructions(spirv):
        if opcode in OPCODES:
            found.add(OPCODES[opcode])
        elif opcode == OP_EXT_INST and operands[3] in EXTENDED:
            found.add(EXTENDED[operands[3]])
    return found


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("vec4(dot(a, b))", "OpDot"),
        ("m * a", "OpMatrixTimesVector"),
        ("a * m", "OpVectorTimesMatrix"),
        ("(m * m)[0]", "OpMatrixTimesMatrix"),
        ("outerProduct(a, b)[0]", "OpOuterProduct"),
        ("vec4(determinant(m))", "Determinant"),
        ("inverse(m)[0]", "MatrixInverse"),
        ("mix(a, b, 0.3)", "FMix"),
        ("mix(a, b, lessThan(a, b))", ""),
        ("smoothstep(a, b, a)", "SmoothStep"),
        ("fma(a, b, a)", "Fma"),
        ("vec4(length(a))", "Length"),
        ("vec4(distance(a, b))", "Distance"),
        ("cross(a.xyz, b.xyz).xyzz", "Cross"),
        ("normalize(a)", "Normalize"),
        ("reflect(a, b)", "Reflect"),
        ("refract(a, b, 0.5)", "Refract"),
        ("a * 2.0 + b", ""),
    ],
)
def test_the_check_finds_what_hides_a_sum(expression: str, name: str) -> None:
    text = (
        "#version 450\nlayout(location = 0) flat in vec4 a;\nlayout(location = 1) flat in vec4 b;\n"
        "layout(location = 2) flat in mat4 m;\nlayout(location = 0) out vec4 y;\n"
        f"void main() {{ y = {expression}; }}\n"
    )
    (spirv,) = find_compiler().compile([("frag", text)])
    assert hidden(spirv) == ({name} if name else set())


def sources(plan: Plan) -> list[Source]:
    """Every shader of a plan."""
    substages = [s for stage in plan.stages for s in stage.substages]
    texts = [(what, text) for s in substages for what in STAGES if (text := getattr(s, what))]
    return [(STAGES[what], text) for what, text in texts]


def outputs_of(name: str) -> list[Variable]:
    """What the cases of an op make, the first with every type that it takes, and the gradients."""
    found = []
    typed = () if name in FIXED else typed_cases(name, 1)
    for k, case in [*typed, *enumerate(OPS[name].cases)]:
        made = instance(name, k, case, first_config(case))
        found.append(made.output)
        if case.gradient:
            w = Variable(made.output.vtype, made.output.size, made.output.layers)
            grads = build_backward(projected(made.output, w), differentiable(made.inputs))
            found += grads.values()
    return found


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.cases])
def test_products_and_sums_are_written_out(name: str) -> None:
    outputs = outputs_of(name)
    shaders: dict[Source, None] = {}
    for preset, options in WAYS:
        limits = PRESETS[preset]
        plan = pack(lower(outputs, options, None, limits), [], limits, options).plan
        shaders |= dict.fromkeys(sources(plan))
    for source, spirv in zip(shaders, find_compiler().compile(list(shaders)), strict=True):
        assert not hidden(spirv), source[1]


def golden_shaders(path: Path) -> list[Source]:
    """The shaders of a golden file, which stand there under headings."""
    parts = re.split(
        r"^// ===== .*?, (vertex|fragment|compute): .*\n", path.read_text(), flags=re.M
    )
    return [(STAGES[what], text) for what, text in zip(parts[1::2], parts[2::2], strict=True)]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_shaders_are_valid_spirv(path: Path, tmp_path: Path) -> None:
    shaders = golden_shaders(path)
    assert shaders
    compiled = find_compiler().compile(shaders)
    assert not any(
        map(hidden, compiled)
    )  # kernels of workgroups, which have no cases, are here too
    validator = shutil.which("spirv-val")
    if validator is None:
        pytest.skip("they compile, but spirv-val is not installed")
    for k, ((_, text), spirv) in enumerate(zip(shaders, compiled, strict=True)):
        file = tmp_path / f"{k}.spv"
        file.write_bytes(spirv)
        target = "vulkan1.1" if needs_1_1(text) else "vulkan1.0"
        done = subprocess.run(
            [validator, "--target-env", target, str(file)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{text}"
