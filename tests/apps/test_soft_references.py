"""SoftRas and PyTorch3D in float64: against the published sums, pixel by pixel and face by face."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dressi.apps.experiments.soft_references import Soft, soft_pictures
from dressi.render.camera import look_at, perspective
from dressi.render.scene import Mesh

NEAR, FAR, SIZE = 1.0, 10.0, 9
MATRIX = perspective(35.0, 1.0, NEAR, FAR) @ look_at((0.3, 0.2, 4.0), (0, 0, 0), (0, 1, 0))


def _mesh(n: int) -> tuple[Mesh, np.ndarray]:
    rng = np.random.default_rng(3)
    positions = rng.uniform(-1.0, 1.0, (3 * n, 3)).astype(np.float32)
    faces = np.arange(3 * n, dtype=np.int32).reshape(-1, 3)
    return Mesh(positions, faces, name="shards"), rng.uniform(size=(3 * n, 3))


def _segment(p: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    t = min(max(float((p - a) @ (b - a)) / float((b - a) @ (b - a)), 0.0), 1.0)
    return float(np.hypot(*(p - a - t * (b - a))))


def _pixel(p: np.ndarray, mesh: Mesh, colours: np.ndarray, soft: Soft, which: str) -> np.ndarray:
    """The sums as they are printed, over faces that are solved one by one."""
    found = []
    for face in mesh.faces:
        clip = np.c_[mesh.positions[face].astype(float), np.ones(3)] @ MATRIX.T
        corner, depth = clip[:, :2] / clip[:, 3:] / 2 + 0.5, clip[:, 3]
        bary = np.linalg.solve(np.vstack([corner.T, np.ones(3)]), [*p, 1.0])
        inside = bool((bary > 0).all())
        distance = min(_segment(p, corner[i], corner[j]) for i, j in ((0, 1), (1, 2), (2, 0)))
        if not inside and distance >= soft.reach:
            continue
        chance = 1 / (1 + math.exp((-1 if inside else 1) * distance**2 / soft.sigma))
        bary = np.clip(bary, 0, 1) / np.clip(bary, 0, 1).sum()
        w = bary / depth / (bary / depth).sum()
        z = 1 / (bary / depth).sum()
        near = (1 / z - 1 / FAR) / (1 / NEAR - 1 / FAR)
        if which == "PyTorch3D":
            near = (FAR - z) / (FAR - NEAR)
        found.append((z, chance, near, w @ colours[face]))
    if which == "PyTorch3D":
        found = sorted(found, key=lambda f: f[0])[: soft.n_buffers]
    eps = 1e-3 if which == "SoftRas" else 1e-10
    weights = [chance * math.exp(near / soft.gamma) for _, chance, near, _ in found]
    total = sum(weights) + math.exp(eps / soft.gamma)
    return np.asarray(
        sum((w * f[3] for w, f in zip(weights, found, strict=True)), np.zeros(3)) / total
    )


@pytest.mark.parametrize("n_buffers", [2, 150])
@pytest.mark.parametrize("which", ["SoftRas", "PyTorch3D"])
def test_pictures_are_the_published_sums(which: str, n_buffers: int) -> None:
    mesh, colours = _mesh(7)
    soft = Soft(0.15, 0.15 * 0.03, 0.05, NEAR, FAR, n_buffers)
    picture = soft_pictures(mesh, colours, MATRIX, SIZE, soft)[which]
    centres = (np.arange(SIZE) + 0.5) / SIZE
    want = [
        [_pixel(np.array([x, y]), mesh, colours, soft, which) for x in centres] for y in centres
    ]
    np.testing.assert_allclose(picture, want, atol=1e-9)
    assert np.ptp(picture) > 0.3


def test_a_sharp_gamma_shows_the_nearest_face_within_the_reach_and_black_beyond() -> None:
    positions = np.array([[-1, -1, 0], [1, -1, 0], [0, 1, 0], [-1, -1, 1], [1, -1, 1], [0, 1, 1]])
    mesh = Mesh(positions.astype(np.float32), np.arange(6, dtype=np.int32).reshape(2, 3))
    colours = np.repeat([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], 3, axis=0)
    matrix = perspective(60.0, 1.0, NEAR, FAR) @ look_at((0, 0, 4.0), (0, 0, 0), (0, 1, 0))
    for picture in soft_pictures(
        mesh, colours, matrix, 33, Soft(0.05, 0.002, 1e-4, NEAR, FAR)
    ).values():
        assert picture[16, 16] == pytest.approx([0, 0, 1], abs=1e-6)
        assert (picture[0] == 0).all() and (picture[:, 0] == 0).all()
