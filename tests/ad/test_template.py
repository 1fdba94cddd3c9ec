"""Templates of GLSL are filled strictly: what nobody knows, and what nobody uses, is an error."""

from __future__ import annotations

from importlib import resources

import pytest

from dressi.ad import F, Variable
from dressi.ad.kernels import Kernel, implement
from dressi.ad.registry import Op, apply
from dressi.ad.template import GENERATED, MARKER, expand_glsl, expand_kernel, fill_glsl
from dressi.ad.vtype import FLOAT
from dressi.errors import ShaderError
from dressi.packing import pack
from dressi.packing.limits import LLVMPIPE


def test_values_are_put_in_and_markers_of_the_generator_stay() -> None:
    text = expand_glsl(
        "blur", "{y} = {fetch0}({pos}, {n}) * {weight}; { return; }", n=3, weight="w"
    )
    assert text == "{y} = {fetch0}({pos}, 3) * w; { return; }"
    assert (
        fill_glsl("blur", text, {"y": "v0", "fetch0": "f", "pos": "p"})
        == "v0 = f(p, 3) * w; { return; }"
    )


def test_a_value_is_not_read_as_a_template() -> None:
    assert expand_glsl("op", "{a}", a="{b}") == "{b}"


def test_a_value_replaces_a_marker_of_the_generator() -> None:
    assert expand_glsl("op", "{layer}", layer="of_layer") == "of_layer"


def test_a_function_is_called_where_its_marker_is_found() -> None:
    calls: list[int] = []
    values = {"a": lambda: calls.append(1) or "x", "b": lambda: calls.append(2) or "y"}
    assert fill_glsl("op", "{b}", values) == "y" and calls == [2]


def test_an_unknown_marker_is_an_error_that_names_the_op_and_the_marker() -> None:
    with pytest.raises(
        ShaderError, match=r"blur: nothing is known of the marker \{radios\}; known: \{radius\}"
    ):
        expand_glsl("blur", "{radios} + {radius}", radius=2)
    with pytest.raises(ShaderError, match=r"blur: .*\{fetch1\}"):
        fill_glsl("blur", "{fetch1}", {"fetch0": "f"})


def test_an_unused_value_is_an_error_that_names_the_op_and_the_marker() -> None:
    with pytest.raises(ShaderError, match=r"blur: its GLSL has no marker \{sigma\}"):
        expand_glsl("blur", "{radius}", radius=2, sigma=1)
    with pytest.raises(ShaderError, match=r"blur: its GLSL has no marker \{x1\}"):
        fill_glsl("blur", "{y} = {x0};", {"y": "v", "x0": "a", "x1": "b"}, ["y", "x0", "x1"])


def test_a_kernel_is_what_stands_before_main_and_its_body() -> None:
    folder = resources.files("dressi.ad.functions") / "kernels"
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".glsl"))
    assert names == ["dilate_bits.glsl", "raster.glsl"]
    with pytest.raises(ShaderError, match=r"raster_key64: nothing is known of the marker \{"):
        expand_kernel("raster_key64", "raster")


def snippet(glsl: str) -> Op:
    return implement(Op("twice", lambda xs, a: (FLOAT, xs[0].size, 1)), Kernel(glsl))


@pytest.mark.parametrize(
    ("glsl", "marker"),
    [
        ("{y} = {x0} * {two};", "{two}"),
        ("{y} = {x0} + {x1} + {x2};", "{x2}"),
        ("{y} = {x0} + {x0};", "{x1}"),
        ("float a = {x0};", "{y}"),
    ],
)
def test_the_generator_is_strict_too(glsl: str, marker: str) -> None:
    """|[twice]|: a row whose snippet has a marker too many, or none for its input or its output."""
    y = apply(snippet(glsl), (Variable(FLOAT, (4, 4)), Variable(FLOAT, (4, 4))))
    with pytest.raises(ShaderError, match=rf"twice: .*\{marker}"):
        pack([F.sqrt(y)], [], LLVMPIPE)


@pytest.mark.parametrize("name", ["dilate_bits", "raster"])
def test_the_head_of_a_kernel_says_what_its_markers_mean(name: str) -> None:
    file = resources.files("dressi.ad.functions") / "kernels" / f"{name}.glsl"
    lines = file.read_text(encoding="utf-8").splitlines()
    head = {m for line in lines if line.startswith("//!") for m in MARKER.findall(line)}
    body = {m for line in lines if not line.startswith("//!") for m in MARKER.findall(line)}
    own = {m for m in body if not GENERATED.fullmatch(m)}
    corners = {f"corner{k}" for k in range(4)}
    assert head | corners == own | corners
