"""A fit is the same one whatever unit a scene is in: rates and weights are relative to its size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dressi import DressiBasicRenderer
from dressi.render.camera import Camera, look_at, perspective
from dressi.render.scene import Mesh, Scene, icosphere, scene_of

SIZE = (48, 48)
VIEWS = [(3.0, 0.0, 0.4), (-1.5, 2.6, 0.3), (-1.4, -2.6, -0.5), (0.3, 0.2, 3.0)]
AXES = np.array([0.6, 1.2, 0.8], np.float32)


def cameras(scale: float) -> list[Camera]:
    lens = perspective(45.0, 1.0, 1.0 * scale, 6.0 * scale)
    return [Camera(look_at(np.array(v) * scale), lens, f"view {k}") for k, v in enumerate(VIEWS)]


def scene(positions: np.ndarray) -> Scene:
    ball = icosphere(2)
    return scene_of(Mesh(positions.astype(np.float32), ball.faces))


def fitted(scale: float, **options: Any) -> np.ndarray:
    """Vertices of a sphere that was fitted to pictures of an egg, divided by the scale."""
    ball = icosphere(2).positions
    with DressiBasicRenderer() as renderer:
        renderer.load_scene(scene(ball * AXES * scale), None, cameras(scale), SIZE)
        renderer.build_graph()
        pictures = renderer.render_all(alpha=True)
    with DressiBasicRenderer() as renderer:
        renderer.load_scene(scene(ball * scale), pictures, cameras(scale))
        renderer.set_requires_grad("vtx_pos")
        renderer.build_graph(K=1, r=0.05, loss={"silhouette": 1.0}, **options)
        renderer.exec_steps(40)
        return renderer.value("vtx_pos") / scale


CASES: dict[str, dict[str, Any]] = {
    "adam": {"regularizers": {"laplacian": 10.0, "edge_length": 0.1}, "lr": 0.02},
    "adam_uniform": {"regularizers": {"laplacian": 1.0}, "lr": 0.02, "optimizer": "adam_uniform"},
    "sgd": {"regularizers": {"laplacian": 1.0}, "lr": 1.0, "optimizer": "sgd"},
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_a_fit_does_not_depend_on_the_unit(name: str) -> None:
    """Powers of two change no bit; any other factor rounds each position, and 40 steps, each of
    which follows the one before, make of that some thousandths of what moved."""
    one = fitted(1.0, **CASES[name])
    moved = np.abs(one - icosphere(2).positions).max()
    assert moved > 0.1
    for scale in (128.0, 2.0**-6):
        np.testing.assert_allclose(fitted(scale, **CASES[name]), one, atol=1e-6)
    assert np.abs(fitted(100.0, **CASES[name]) - one).mean() < 0.01 * moved
