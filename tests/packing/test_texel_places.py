"""The places of texels in fragment shaders, over all ops: NVIDIA's compiler takes a number of 1 to
7 out of a place like ``7 - gl_FragCoord.x`` for the fetch to add, and what is left lies outside.
So no place may be a sum: it is a ``max``, bits of a number, or the one pixel there is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from dressi.ad import F, Variable, build_backward, simplify
from dressi.ad.registry import Case
from dressi.ad.simplify import own_image
from dressi.ad.vtype import FLOAT, VEC3, VEC4
from dressi.errors import GraphError
from dressi.packing import Options, pack
from dressi.packing.limits import LLVMPIPE, MINIMUM, DeviceLimits
from dressi.testing.cases import Config, all_cases, differentiable, instance, small_configs

WHOLE = re.compile(
    r"max\(ivec2\(.*\), 0\)|ivec2\(0\)|"
    r"ivec2\(\(p\.x & pushed\[\d+\]\), \(p\.x >> pushed\[\d+\]\)\)"
)


def places(text: str) -> Iterator[str]:
    """The second argument of every texelFetch and imageLoad of a shader."""
    for found in re.finditer(r"\b(?:texelFetch|imageLoad)\w*\(", text):
        depth, parts = 0, [""]
        for letter in text[found.end() :]:
            depth += (letter == "(") - (letter == ")")
            if depth < 0:
                break
            if letter == "," and depth == 0:
                parts.append("")
            else:
                parts[-1] += letter
        yield parts[1].strip()


def dangerous(text: str) -> list[str]:
    """The places that a compiler may take a number out of."""
    return [at for at in places(text) if not WHOLE.fullmatch(at)]


def fragments(
    outputs: list[Variable], limits: DeviceLimits = LLVMPIPE, *, apart: bool = True
) -> list[str]:
    """Fragment shaders of a graph; apart: each Function in one of its own."""
    options = Options(lowering="graphics", pack_substages=not apart, rematerialize=not apart)
    made = [own_image(v) for v in simplify(outputs)]
    plan = pack(made, [], limits, options).plan
    return [s.fragment for stage in plan.stages for s in stage.substages if s.fragment]


def test_the_form_of_the_fault_is_found() -> None:
    """As it was written before, and as the tests of the executor once wrote it by hand."""
    bad = (
        "texelFetch(x1, ivec2(p.x, p.y), 0)",
        "texelFetch(x0, ivec2(7, 3) - ivec2(gl_FragCoord.xy), 0)",
        "texelFetch(x1, ivec2(p.x, p.y + l * 5), 0)",
        "texelFetch(x1, ivec2((p.x & 0), (p.x >> 0)), 0)",
        "texelFetch(x1, ivec2((p.x & 3), (p.x >> 2) + l * 2), 0)",
    )
    for text in bad:
        assert len(dangerous(text)) == 1, text
    good = "texelFetch(x1, max(ivec2(p.x, p.y + l * 5), 0), 0).x + texelFetch(x, ivec2(0), 0).y"
    assert dangerous(good) == [] and len(list(places(good))) == 2


@pytest.mark.parametrize("name", list(dict.fromkeys(name for name, _, _ in all_cases())))
def test_no_op_fetches_at_a_sum(name: str) -> None:
    """Forward and gradient, at sizes 1 to 9, one layer and three."""
    for _, k, case in (c for c in all_cases() if c[0] == name):
        if case.elementwise and k:
            continue  # another way to call the same snippet, at its own pixel
        outputs = [
            v for config in small_configs(name, k, case) for v in made(name, k, case, config)
        ]
        for text in fragments(outputs):
            assert dangerous(text) == [], text


def made(name: str, k: int, case: Case, config: Config) -> list[Variable]:
    """What a case makes and, where it has some, its gradients."""
    found = instance(name, k, case, config)
    if not case.gradient:
        return [found.output]
    try:
        grads = build_backward(found.output, differentiable(found.inputs))
    except GraphError:
        return [found.output]
    return [found.output, *grads.values()]


def image(n: int, layers: int = 1) -> Variable:
    return Variable(VEC3, (n, 10 - n), layers, name="x")


def _custom(n: int) -> Variable:
    op = F.custom(
        "{y} = {fetch0}(ivec2({w0} - 1 - {pos}.x, {h0} - 1 - {pos}.y), {layer});",
        0,
    )
    return op(image(n))


FORMS: dict[str, Callable[[int], Variable]] = {
    "flip": lambda n: F.flip(image(n)),
    "flip of layers": lambda n: F.flip(image(n, 3), True, True),
    "flip of a table": lambda n: F.flip(Variable(FLOAT, (n, 1))),
    "custom": _custom,
    "mirrored border": lambda n: F.pad(image(n), 2, 2, 2, 2, border="mirror"),
    "mirrored blur": lambda n: F.image.gaussian_blur(image(n), 0.7, border="mirror"),
    "mirrored wrap": lambda n: F.texture(
        Variable(VEC4, (n, 10 - n), 2), F.pixel_coord((9, 9), 2) * -0.1, wrap="mirror"
    ),
    "resize": lambda n: F.image.resize(F.flip(image(n)), (7, 5)),
}


@pytest.mark.parametrize("limits", [LLVMPIPE, MINIMUM], ids=lambda x: x.name)
@pytest.mark.parametrize("form", FORMS)
def test_nor_does_what_users_write(form: str, limits: DeviceLimits) -> None:
    for n in range(1, 10):
        for apart in (True, False):
            texts = fragments([FORMS[form](n)], limits, apart=apart)
            assert [at for text in texts for at in dangerous(text)] == []
            assert any(list(places(text)) for text in texts) or n == 1
