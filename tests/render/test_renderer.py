"""DressiBasicRenderer: every kind of parameter, fitted on a small scene with two of everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from renderer_scenes import SIZE, cameras, demo_scene

from dressi import DressiBasicRenderer, GraphError
from dressi.render.scene import Scene


@pytest.fixture()
def renderer(vulkan_device_available: bool) -> Any:
    if not vulkan_device_available:
        pytest.skip("no Vulkan device on this machine")
    with DressiBasicRenderer() as made:
        yield made


def pictures(renderer: DressiBasicRenderer, scene: Scene, n: int = 2, **options: Any) -> np.ndarray:
    """What the scene looks like: the truth of a fit."""
    graph = options.pop("graph", {"r": 1 / 40})
    renderer.load_scene(scene, size=SIZE, cameras=cameras(n), **options)
    renderer.build_graph(**graph)
    return renderer.render_all(alpha=True)


FITS: dict[str, dict[str, Any]] = {
    # name: the start, or what is added to the truth for it, learning rate, steps, options
    "vtx_pos:Plain": {"by": (0.09, -0.06, 0.0), "lr": 0.006, "steps": 60, "loss": 0.5},
    "albedo:Body": {"to": 0.5, "lr": 0.05, "steps": 40},
    "base_color:Other": {"to": [0.6, 0.6, 0.6, 1.0], "lr": 0.03, "steps": 40},
    "metallic:Body": {"to": 0.9, "lr": 0.05, "steps": 40},
    "roughness:Body": {"to": 0.25, "lr": 0.05, "steps": 40},
    "metallic_factor:Other": {"to": 0.8, "lr": 0.05, "steps": 40},
    "roughness_factor:Other": {"to": 0.4, "lr": 0.02, "steps": 60},
    "emissive:Body": {"to": 0.4, "lr": 0.05, "steps": 40},
    "normal:Body": {"to": [0.7, 0.4, 0.9], "lr": 0.005, "steps": 60, "loss": 0.5},
    "occlusion:Body": {"to": 0.2, "lr": 0.05, "steps": 40, "ambient": 0.5},
    "light_color:lamp": {"to": [0.3, 0.9, 0.3], "lr": 0.04, "steps": 40},
    "light_intensity:lamp": {"to": 4.0, "lr": 0.05, "steps": 40},
    "light_position:lamp": {"to": [1.6, 1.2, 2.4], "lr": 0.04, "steps": 50},
    "light_direction:sun": {"to": [0.3, -0.9, -0.5], "lr": 0.03, "steps": 50},
    "ambient": {"to": 0.1, "lr": 0.03, "steps": 40, "ambient": 0.5},
    "environment": {"to": 0.3, "lr": 0.05, "steps": 30, "sky": True},
    "camera_rotation": {"to": 0.03, "lr": 0.003, "steps": 60, "loss": 0.5},
    "camera_translation": {"to": 0.08, "lr": 0.008, "steps": 60, "loss": 0.5},
    "camera_zoom": {"to": 1.08, "lr": 0.006, "steps": 60, "loss": 0.5},
    "camera_shift": {"to": 0.06, "lr": 0.005, "steps": 60, "loss": 0.5},
    "blendshape_weights:ball": {"to": 0.4, "lr": 0.03, "steps": 40, "loss": 0.3},
}


TRUTHS: dict[tuple, np.ndarray] = {}


def sky() -> np.ndarray:
    """(8, 16, 3): bright above and to the right."""
    y, x = np.mgrid[0:8, 0:16]
    base = 1.5 - 0.15 * y + 0.3 * np.sin(x / 3.0)
    return np.float32(base[..., None] * np.array([0.8, 0.9, 1.0]))


@pytest.mark.gpu
@pytest.mark.parametrize("name", FITS)
def test_every_parameter_is_fitted(renderer: DressiBasicRenderer, name: str) -> None:
    """A part of the scene is moved away from the truth; after some steps the loss has fallen to a
    fraction (0.35 where none is given), and the part is nearer to the truth than at the start."""
    fit = FITS[name]
    options: dict[str, Any] = {"ambient": fit.get("ambient", 0.1)}
    if "sky" in fit:
        options["environment"] = sky()
    scene = demo_scene(maps=name.endswith(":Body"))
    key = (name.endswith(":Body"), options["ambient"], "sky" in fit)
    if key not in TRUTHS:
        TRUTHS[key] = pictures(renderer, scene, **options)
    renderer.load_scene(scene, TRUTHS[key], cameras(), **options)
    renderer.build_graph(r=1 / 40, lr={name: fit["lr"]}, loss={"l2": 1.0, "silhouette": 1.0})
    truth = renderer.value(name)
    if "by" in fit:
        start = truth + np.float32(fit["by"])
    else:
        start = np.broadcast_to(np.float32(fit["to"]), truth.shape)
    renderer.set_value(name, start)
    renderer.set_requires_grad(name)
    renderer.exec_step()
    before = renderer.loss()  # of the start: a step compares first, then moves
    assert before > 1e-6
    renderer.exec_steps(fit["steps"])
    after, found = renderer.loss(), renderer.value(name)
    assert after < fit.get("loss", 0.35) * before
    # Vertices and texels that no view sees go where they like: what counts is the middle.
    axes = tuple(range(truth.ndim - 1))
    off, away = (np.median(a - truth, axis=axes) for a in (found, start))
    assert np.linalg.norm(off) < 0.95 * np.linalg.norm(away)
    assert np.isfinite(found).all()


@pytest.mark.gpu
def test_the_life_of_the_paper(renderer: DressiBasicRenderer, tmp_path: Any) -> None:
    """load_scene from files, build_graph, set_requires_grad, exec_step, save_scene."""
    from dressi.render.io import load_scene, save_scene, write_image

    scene = demo_scene(maps=False)
    target = pictures(renderer, scene, 1, graph={"K": 2, "r": 0.03})
    save_scene(tmp_path / "initial.gltf", scene)
    write_image(tmp_path / "target.png", target[0])
    renderer.load_scene(tmp_path / "initial.gltf", tmp_path / "target.png", cameras(1))
    renderer.build_graph(2, 0.03, 0.03 / 7, 0.03, 0.02)
    renderer.set_value("base_color:Other", (0.8, 0.2, 0.2, 1.0))
    renderer.set_requires_grad("base_color:Other")
    before = renderer.loss()
    for _ in range(40):
        renderer.exec_step()
    assert renderer.loss() < 0.3 * before
    renderer.save_scene(tmp_path / "optimized.gltf")
    again = load_scene(tmp_path / "optimized.gltf")
    assert np.allclose(again.materials[1].base_color[:3], (0.2, 0.5, 0.8), atol=0.08)


def test_it_needs_to_be_loaded_and_built(renderer: DressiBasicRenderer) -> None:
    with pytest.raises(GraphError, match="no scene is loaded; call load_scene first"):
        renderer.build_graph()
    renderer.load_scene(demo_scene(), size=SIZE)
    with pytest.raises(GraphError, match="there is no graph; call build_graph first"):
        renderer.exec_step()
    renderer.build_graph()
    with pytest.raises(GraphError, match="load_scene was given no targets"):
        renderer.exec_step()
