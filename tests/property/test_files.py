"""What is written comes back, and what is damaged is refused by name: a ``LoadError``."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dressi.errors import LoadError
from dressi.render.io import load_scene, read_image, save_scene, write_image
from dressi.render.scene import differences, icosphere, scene_of
from dressi.testing.files import good_files

GOOD = good_files()
SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))


def srgb(x: np.ndarray) -> np.ndarray:
    """IEC 61966-2-1, in float64."""
    x = np.asarray(x, np.float64)
    return np.where(x <= 0.0031308, 12.92 * x, 1.055 * np.maximum(x, 1e-9) ** (1 / 2.4) - 0.055)


@given(SHAPES.flatmap(lambda s: arrays(np.float32, s, elements=st.floats(0, 1, width=32))))
def test_a_png_comes_back_within_half_a_level_and_then_exactly(pixels: np.ndarray) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.png"
        write_image(path, pixels)
        back = read_image(path)
        write_image(path, back)
        assert np.array_equal(read_image(path), back)
    assert np.abs(srgb(back) - srgb(pixels)).max() <= 0.5 / 255 + 1e-5


@given(SHAPES.flatmap(lambda s: arrays(np.float32, s, elements=st.floats(0, 1e6, width=32))))
def test_an_exr_comes_back_bit_for_bit(pixels: np.ndarray) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_image(Path(folder) / "a.exr", pixels)
        assert np.array_equal(read_image(Path(folder) / "a.exr"), pixels)


@settings(max_examples=15)
@given(SHAPES.flatmap(lambda s: arrays(bool, s)), st.sampled_from(["a.glb", "a.gltf"]))
def test_a_scene_comes_back_as_it_was_saved(lit: np.ndarray, name: str) -> None:
    """Black and white texels, which sRGB leaves as they are; glTF names no primitives."""
    scene = scene_of(icosphere(1), lit.astype(np.float32))
    (mesh,) = scene.meshes
    unnamed = replace(mesh, primitives=tuple(replace(p, name="") for p in mesh.primitives))
    scene = replace(scene, meshes=(unnamed,))
    with tempfile.TemporaryDirectory() as folder:
        save_scene(Path(folder) / name, scene)
        assert differences(scene, load_scene(Path(folder) / name)) == []


@pytest.mark.filterwarnings("ignore")
@given(
    st.sampled_from(sorted(GOOD)),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4),
    st.floats(0, 1),
)
def test_damaged_files_load_or_raise_a_load_error(
    name: str, changes: list[tuple[float, int]], kept: float
) -> None:
    """Some bytes are replaced, and the end may be missing."""
    content = bytearray(GOOD[name])
    for at, byte in changes:
        content[int(at * len(content))] = byte
    content = content[: round(kept * len(content))] if kept > 0.5 else content
    is_image = name.endswith((".png", ".jpg", ".hdr", ".exr"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            (read_image if is_image else load_scene)(path)
        except LoadError as error:
            assert error.file and name in str(error.file)
