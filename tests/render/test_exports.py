"""One import: dressi and dressi.render find all public names; colours of vertices; what notebooks
show. No device."""

from __future__ import annotations

import ast
import base64
import importlib
import re
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dressi
import dressi.render
from dressi import GraphError
from dressi.previews import mesh_picture, png, to_screen
from dressi.render import Mesh, icosphere, load_mesh, load_scene, look_at, save_mesh, subdivide
from dressi.render.camera import Camera, perspective

ROOMS = ("camera", "fit", "ibl", "io", "raster", "scene", "shading")
BALL = replace(icosphere(1), colors=icosphere(1).positions * 0.5 + 0.5)


def test_dressi_render_exports_what_its_rooms_do() -> None:
    names = set(dressi.render.__all__)
    rooms = {room: __import__(f"dressi.render.{room}", fromlist=["x"]) for room in ROOMS}
    assert names == {"DressiBasicRenderer"}.union(*(room.__all__ for room in rooms.values()))
    assert names <= set(dir(dressi.render))
    for name in names - {"DressiBasicRenderer"}:
        homes = [getattr(m, name) for m in rooms.values() if name in m.__all__]
        assert any(getattr(dressi.render, name) is home for home in homes), name
    assert dressi.render.vertex_normals is rooms["shading"].vertex_normals
    assert dressi.render.interpolate is rooms["raster"].interpolate
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = dressi.render.nonsense  # type: ignore[attr-defined]


def test_dressi_finds_all_that_it_exports_and_imports_none_of_it_before() -> None:
    assert [name for name in dressi.__all__ if not hasattr(dressi, name)] == []
    assert set(dressi.__all__) <= set(dir(dressi))
    code = "import dressi, sys; print([m for m in sys.modules if m in ('numpy', 'dressi.ad')])"
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert got.stdout.strip() == "[]"


def test_names_at_run_time_are_those_that_a_type_checker_sees() -> None:
    """The imports of the block for type checkers, against what is found without them."""
    tree = ast.parse(Path(dressi.__file__).read_text(encoding="utf-8"))
    (block,) = (n for n in tree.body if isinstance(n, ast.If) and isinstance(n.test, ast.Name))
    imports = [n for n in ast.walk(block) if isinstance(n, ast.ImportFrom)]
    homes = {a.name: n.module or "" for n in imports for a in n.names}
    assert sorted(homes) == sorted(dressi.__all__)
    for name, home in homes.items():
        assert getattr(dressi, name) is getattr(importlib.import_module(home), name), name


@pytest.mark.parametrize(("ending", "step"), [(".obj", 0.0), (".ply", 1 / 255), (".glb", 0.0)])
def test_colours_of_vertices_are_written_and_read(tmp_path: Path, ending: str, step: float) -> None:
    path = tmp_path / f"ball{ending}"
    save_mesh(path, BALL)
    got = load_mesh(path)
    assert got.colors is not None and BALL.colors is not None
    order = [int(np.abs(got.positions - p).sum(axis=1).argmin()) for p in BALL.positions]
    # A step of 8 bits of sRGB is at most 2.3 steps of linear light (the slope at white).
    assert np.abs(got.colors[order] - BALL.colors).max() <= 0.5 * 2.3 * step + 1e-6
    assert load_scene(path).meshes[0].primitives[0].colors is not None


def test_colours_of_a_mesh_are_checked_and_follow_its_faces() -> None:
    with pytest.raises(GraphError, match="3 colors for 42 vertices"):
        replace(BALL, colors=np.zeros((3, 3))).check()
    finer = subdivide(BALL)
    assert finer.check().colors is not None and len(finer.colors) == len(finer.positions)


def _pixels(picture: bytes, height: int, width: int) -> np.ndarray:
    """Decode a PNG of RGB bytes without filters by its own chunks."""
    start = picture.index(b"IDAT") + 4
    rows = zlib.decompressobj().decompress(picture[start:])
    return np.frombuffer(rows, np.uint8).reshape(height, 1 + 3 * width)[:, 1:].reshape(-1, width, 3)


def test_a_picture_holds_the_bytes_of_its_array(tmp_path: Path) -> None:
    pixels = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
    assert (_pixels(png(pixels), 4, 5) == pixels).all()
    picture = dressi.show(pixels)
    assert (picture.pixels == pixels).all()
    picture.save(tmp_path / "a.png")
    from PIL import Image

    assert (np.asarray(Image.open(tmp_path / "a.png")) == pixels).all()


def test_linear_colours_are_encoded_and_what_is_not_finite_stands_out() -> None:
    got = to_screen([[[0.5, 0.0, 1.0], [np.nan, 0.0, 0.0]]])
    assert got.tolist() == [[[188, 0, 255], [255, 0, 255]]]  # sRGB of 0.5 is 187.5


def test_a_mesh_is_painted_with_its_colours() -> None:
    """A red triangle before a larger green one, seen from the side of its preview."""
    a = np.array([[0, 1, 0], [-1, -1, 0], [1, -1, 0]], float)
    away = np.array([np.sin(np.radians(35.0)) * 2, 0.7, np.cos(np.radians(35.0)) * 2])
    points = np.concatenate([a * 0.4 + away * 0.3, a])
    colors = np.repeat([[1.0, 0, 0], [0, 1, 0]], 3, axis=0)
    got = mesh_picture(points, [[0, 1, 2], [3, 4, 5]], colors, 64)
    red, green = (got[..., 0] > 0.2), (got[..., 1] > 0.2)
    assert red.sum() > 30 and green.sum() > 2 * red.sum() and not (red & green).any()
    assert (got[..., 3] == (red | green)).all()


def test_show_takes_meshes_variables_and_stacks_and_refuses_others() -> None:
    leaf = dressi.F.leaf(np.full((2, 4, 6, 3), 0.5), dressi.VEC3, "grey")
    assert dressi.show(leaf * 2.0).pixels.shape == (4, 6 + 4 + 6, 3)
    assert dressi.show(BALL).pixels.shape == (400, 400, 3)
    assert [p.pixels.shape for p in dressi.show([leaf, leaf])] == [(4, 16, 3)] * 2
    assert "0.5" in repr(dressi.show(dressi.F.leaf([[0.5], [1.0]], dressi.FLOAT)))
    for bad in (np.zeros(3), "x", dressi.Variable(dressi.VEC3, (4, 4), name="empty")):
        with pytest.raises(GraphError, match="needs"):
            dressi.show(bad)


def test_meshes_cameras_and_variables_show_themselves() -> None:
    camera = Camera(look_at((0, 0, 3), (0, 0, 0)), perspective(45, 1.0, 0.1, 10), "front <1>")
    assert "[0.0, 0.0, 3.0]" in camera._repr_html_() and "front &lt;1&gt;" in camera._repr_html_()
    assert "<td>42</td>" in BALL._repr_html_()
    leaf = dressi.F.leaf(np.zeros((2, 2, 3)), dressi.VEC3, "albedo")
    image = re.search(r"base64,([^\"]+)", leaf._repr_html_())
    assert image is not None and base64.b64decode(image[1]).startswith(b"\x89PNG")
    assert "F.sin at test_exports.py:" in dressi.F.sin(leaf)._repr_html_()
    assert isinstance(BALL, Mesh)
