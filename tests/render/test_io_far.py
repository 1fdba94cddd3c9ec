"""Files of scanners: coordinates of millions, whose centimetres float32 does not hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dressi.render.io import load_scene

UTM = (8297640.0, 4115375.0, 66.0)
CORNERS = np.array([(0, 0, 0), (0.25, 0, 0), (0, 0.03, 0), (0, 0, 0.011)])
FACES = ((0, 2, 1), (0, 1, 3), (1, 2, 3), (2, 0, 3))


def obj(points: np.ndarray) -> str:
    lines = [f"v {x:.3f} {y:.3f} {z:.3f}" for x, y, z in points]
    return "\n".join([*lines, *(f"f {a + 1} {b + 1} {c + 1}" for a, b, c in FACES)])


def ply(points: np.ndarray) -> str:
    head = ["ply", "format ascii 1.0", "element vertex 4"]
    head += [f"property double {axis}" for axis in "xyz"]
    head += ["element face 4", "property list uchar int vertex_indices", "end_header"]
    lines = [f"{x:.3f} {y:.3f} {z:.3f}" for x, y, z in points]
    return "\n".join([*head, *lines, *(f"3 {a} {b} {c}" for a, b, c in FACES), ""])


def stl(points: np.ndarray) -> str:
    lines = ["solid scan"]
    for face in FACES:
        lines += ["facet normal 0 0 0", "outer loop"]
        lines += [f"vertex {x:.3f} {y:.3f} {z:.3f}" for x, y, z in points[list(face)]]
        lines += ["endloop", "endfacet"]
    return "\n".join([*lines, "endsolid scan", ""])


@pytest.mark.parametrize("place", [(0.0, 0.0, 0.0), UTM], ids=["at the origin", "UTM"])
@pytest.mark.parametrize("write", [obj, ply, stl])
def test_millimetres_of_far_scans_survive(
    write: Callable[[np.ndarray], str], place: tuple[float, float, float], tmp_path: Path
) -> None:
    file = tmp_path / f"scan.{write.__name__}"
    file.write_text(write(CORNERS + place), encoding="ascii")
    scene = load_scene(file)
    (root,) = scene.roots
    local = scene.meshes[0].primitives[0].positions.astype(np.float64)
    matrix = scene.nodes[root].matrix
    world = local @ matrix[:3, :3].T + matrix[:3, 3]
    distances = np.linalg.norm(world[:, None] - (CORNERS + place)[None], axis=2)
    assert len(world) >= len(CORNERS)
    assert distances.min(axis=1).max() < 1e-5 and distances.min(axis=0).max() < 1e-5
