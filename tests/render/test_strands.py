"""Strands as data: their tables, growing, files."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mini_gltf import Mini

import dressi
from dressi import GraphError, LoadError
from dressi.render.io import load_scene, read_tfx, write_gltf
from dressi.render.scene import (
    Growth,
    Mesh,
    Strands,
    grow_strands,
    icosphere,
    scatter_roots,
    scene_of,
)

TWO = Strands(
    np.arange(15, dtype=np.float32).reshape(5, 3) ** 1.5,
    np.array([3, 2], np.int32),
    np.full(5, 0.1, np.float32),
)


def test_segments_join_the_points_of_one_strand() -> None:
    assert TWO.segments.tolist() == [[0, 1], [1, 2], [3, 4]]


def test_neighbors_of_ends_are_the_ends_themselves() -> None:
    assert TWO.neighbors.tolist() == [[0, 1], [0, 2], [1, 2], [3, 4], [3, 4]]


def test_parameters_run_from_root_to_tip() -> None:
    assert TWO.parameters.tolist() == [0.0, 0.5, 1.0, 0.0, 1.0]


def test_tangents_are_unit_and_zero_where_a_strand_stands_still() -> None:
    lengths = np.linalg.norm(TWO.tangents, axis=1)
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-6)
    still = Strands(np.zeros((2, 3), np.float32), np.array([2]), np.zeros(2, np.float32))
    assert not still.tangents.any()


def test_a_subset_has_the_points_of_its_strands_in_their_order() -> None:
    part = TWO.subset([1, 0])
    assert part.counts.tolist() == [2, 3]
    np.testing.assert_array_equal(part.points, TWO.points[[3, 4, 0, 1, 2]])
    with pytest.raises(GraphError, match="rows must lie in"):
        TWO.subset([2])


BAD: list[tuple[dict[str, Any], str]] = [
    ({"counts": np.array([4, 1])}, "strand 1 has 1 points"),
    ({"counts": np.array([3, 3])}, "counts add up to 6, there are 5"),
    ({"counts": np.array([2.5, 2.5])}, "counts must be"),
    ({"points": np.zeros((5, 2))}, "points must be"),
    ({"points": np.zeros((0, 3))}, "points must be"),
    ({"points": np.full((5, 3), np.nan)}, "point 0 is not finite"),
    ({"points": "hair"}, "must be numbers"),
    ({"widths": np.zeros(4)}, "widths must be"),
    ({"widths": np.array([1, 1, -1, 1, 1.0])}, "width 2 is -1.0"),
    ({"widths": np.array([1, np.inf, 1, 1, 1.0])}, "width 1 is not finite"),
]


@pytest.mark.parametrize(("changed", "message"), BAD)
def test_bad_strands_are_refused_with_the_place(changed: dict[str, Any], message: str) -> None:
    whole = {"points": TWO.points, "counts": TWO.counts, "widths": TWO.widths}
    with pytest.raises(GraphError, match=message):
        Strands(**(whole | changed))


# -- growing


def test_roots_are_spread_by_area() -> None:
    positions = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [5, 0, 0], [8, 0, 0], [5, 1, 0]])
    mesh = Mesh(positions.astype(np.float32), np.array([[0, 1, 2], [3, 4, 5]], np.int32))
    places, normals = scatter_roots(mesh, 4000, seed=1)
    share = (places[:, 0] > 3).mean()
    assert share == pytest.approx(0.75, abs=4 * np.sqrt(0.75 * 0.25 / 4000))  # four deviations
    near = places[places[:, 0] < 3]
    # The mean of even places over a triangle is its centroid.
    np.testing.assert_allclose(near.mean(0), [1 / 3, 1 / 3, 0], atol=4 * 0.24 / np.sqrt(len(near)))
    np.testing.assert_allclose(normals, [[0, 0, 1]] * 4000, atol=1e-6)


def test_the_same_seed_grows_the_same_hair() -> None:
    ball = icosphere(1)
    a, b, c = (grow_strands(ball, 20, Growth(seed=s)).points for s in (3, 3, 4))
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - c).max() > 0.1


def test_hair_falls_and_stays_out_of_the_head() -> None:
    growth = Growth(length=1.5, gravity=0.8, curl=0.1)
    found = grow_strands(icosphere(2), 200, growth, ((0, 0, 0), (1, 1, 1)))
    points = found.points.reshape(200, growth.n_points, 3)
    assert (points[:, -1, 1] < points[:, 0, 1]).mean() > 0.95
    assert np.linalg.norm(points[:, 1:], axis=-1).min() > 1.0 - 1e-6
    free = grow_strands(icosphere(2), 200, growth)
    assert np.linalg.norm(free.points, axis=-1).min() < 0.9


def test_widths_taper_to_the_tip() -> None:
    found = grow_strands(icosphere(1), 3, Growth(width=0.02))
    widths = found.widths.reshape(3, -1)
    assert widths[:, 0] == pytest.approx(0.02) and not widths[:, -1].any()


@pytest.mark.parametrize(
    ("name", "value"),
    [("length", 0.0), ("width", float("nan")), ("gravity", 1.5), ("curl", -1.0), ("n_points", 1)],
)
def test_growth_out_of_range_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(GraphError, match=f"{name} must be"):
        Growth(**{name: value})


def test_hair_needs_a_scalp_with_area() -> None:
    flat = Mesh(np.zeros((3, 3), np.float32), np.array([[0, 1, 2]], np.int32), name="flat")
    with pytest.raises(GraphError, match="'flat' has no area"):
        grow_strands(flat, 10)
    with pytest.raises(GraphError, match="n must be 1 or more"):
        grow_strands(icosphere(1), 0)
    with pytest.raises(GraphError, match="three radii > 0"):
        grow_strands(icosphere(1), 1, ball=((0, 0, 0), (1, 0, 1)))


# -- TressFX


def tfx(points: np.ndarray, version: float = 4.0, **changed: int) -> bytes:
    """A file of (S, n, 3) points, by hand."""
    head = {"strands": points.shape[0], "each": points.shape[1], "offset": 160} | changed
    data = struct.pack("<fIII", version, *head.values()).ljust(160, b"\0")
    return data + np.insert(points, 3, 1.0, axis=2).astype("<f4").tobytes()


def written(folder: Path, data: bytes) -> Path:
    path = folder / "a.tfx"
    path.write_bytes(data)
    return path


POINTS = np.arange(24, dtype=np.float32).reshape(2, 4, 3)


def test_a_tressfx_file_is_read(tmp_path: Path) -> None:
    found = read_tfx(written(tmp_path, tfx(POINTS)), width=0.5)
    assert found.counts.tolist() == [4, 4] and found.name == "a"
    np.testing.assert_array_equal(found.points, POINTS.reshape(-1, 3))
    assert found.widths.max() == 0.5 and found.widths[3] == 0.0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes"),
        (tfx(POINTS)[:-1], "do not fit"),
        (tfx(POINTS, version=3.0), "version 3 is not supported"),
        (tfx(POINTS, version=float("nan")), "version nan"),
        (tfx(POINTS, strands=0), "strands is 0"),
        (tfx(POINTS, each=1), "points per strand is 1"),
        (tfx(POINTS, strands=2**32 - 1, each=2**32 - 1), "do not fit"),
        (tfx(POINTS, offset=4), "do not fit"),
        (tfx(np.where(POINTS == 14, np.nan, POINTS)), "strand 1, point 0: is not finite"),
    ],
)
def test_a_malformed_tressfx_file_is_refused_in_words(
    tmp_path: Path, data: bytes, message: str
) -> None:
    with pytest.raises(LoadError, match=message):
        read_tfx(written(tmp_path, data))


def test_a_missing_tressfx_file_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="cannot be read"):
        read_tfx(tmp_path / "none.tfx")


def test_the_hair_of_the_rat_is_read() -> None:
    path = Path(dressi.__file__).resolve().parents[2] / "shared/data/human/tressfx"
    if not path.is_dir():
        pytest.skip("no TressFX file beside the checkout")
    found = read_tfx(path / "Ratboy_mohawk.tfx")
    assert len(found.counts) == 2228 and (found.counts == 32).all()


# -- glTF

LINE = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [2, 1, 0]], np.float32)


@pytest.mark.parametrize(
    ("mode", "indices", "rows"),
    [
        (1, [0, 1, 1, 2, 3, 0], [[0, 1, 2], [3, 0]]),
        (2, [0, 1, 2], [[0, 1, 2, 0]]),
        (3, None, [[0, 1, 2, 3]]),
    ],
)
def test_lines_of_gltf_are_strands_in_the_world(
    tmp_path: Path, mode: int, indices: list[int] | None, rows: list[list[int]]
) -> None:
    mini = Mini()
    mini.scene(mini.primitive(LINE, indices, mode=mode), translation=[0, 0, 5], scale=[2, 2, 2])
    scene = load_scene(mini.save(tmp_path))
    (found,) = scene.strands
    assert found.counts.tolist() == [len(r) for r in rows]
    np.testing.assert_allclose(found.points, LINE[np.concatenate(rows)] * 2 + [0, 0, 5])
    assert not scene.meshes and not scene.notes


def test_lines_of_too_few_vertices_are_left_out_with_a_note(tmp_path: Path) -> None:
    mini = Mini()
    mini.scene(mini.primitive(LINE, [0, 1, 2], mode=1))
    scene = load_scene(mini.save(tmp_path))
    assert not scene.strands and "3 vertices cannot be lines of mode 1" in scene.notes[0]


def test_a_writer_says_that_it_leaves_strands_out(tmp_path: Path) -> None:
    notes = write_gltf(tmp_path / "out.glb", replace(scene_of(icosphere(1)), strands=(TWO,)))
    assert notes == ("strands are left out: they are read, and not written",)


def test_triangles_beside_lines_are_kept(tmp_path: Path) -> None:
    mini = Mini()
    normals = {"NORMAL": mini.accessor(np.tile([0, 0, 1], (3, 1)), "f4")}
    mini.scene(mini.primitive(attributes=normals), mini.primitive(LINE, mode=3))
    scene = load_scene(mini.save(tmp_path))
    assert len(scene.meshes) == 1 and len(scene.strands) == 1
