"""DEODR (an optional peer) in a process of its own: pictures of a mesh, and their gradient to the
vertices and to a texture.

Run as a file by an interpreter that has ``deodr``; it imports nothing of ours. In: a line of JSON
per request on standard input: ``{"file", "size"}`` prepares the silhouette of a mesh of the data
folder in its first view, with ``"texture"``, texels on a side, its colours; ``{"fit"}`` the
silhouettes of a fit in all views; ``{"steps"}`` runs steps. Out: a line of JSON each: ``{"area",
"version"}``, the mean of the picture; ``{"ms", "cpu_ms"}``, the wall time and the processor time of
each step.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Step = Callable[[], Any]


def camera_of(rotation: np.ndarray, fov_deg: float, size: int) -> Any:
    """Return its camera. rotation: (3, 4), world to camera, which looks along +z with y down."""
    from deodr.differentiable_renderer import Camera  # type: ignore[import-not-found]

    focal = 0.5 * size / np.tan(np.radians(fov_deg) / 2)
    intrinsic = np.array([[focal, 0, size / 2], [0, focal, size / 2], [0, 0, 1.0]])
    return Camera(rotation, intrinsic, size, size, checks=False)


def read(file: str, *names: str) -> tuple[Any, ...]:
    """Return arrays of a mesh of the data folder behind its first camera's (3, 4) and field of
    view."""
    with np.load(file) as data:
        # Its camera looks along +z with y down, ours along -z with y up.
        rotation = np.diag([1.0, -1.0, -1.0]) @ data["view"][0].astype(np.float64)[:3]
        return rotation, float(data["fovy_deg"]), *(data[name] for name in names)


def white_scene(faces: np.ndarray, vertices: np.ndarray) -> tuple[Any, Any]:
    """Return a scene of a white mesh over black, and the mesh."""
    from deodr.differentiable_renderer import Scene3D
    from deodr.triangulated_mesh import ColoredTriMesh  # type: ignore[import-not-found]

    scene = Scene3D(sigma=1.0)
    scene.set_light(light_directional=None, light_ambient=1.0)
    scene.set_background_color(np.zeros(1))
    white = np.ones((len(vertices), 1))
    faces, vertices = faces.astype(np.uint32), vertices.astype(np.float64)
    mesh = ColoredTriMesh(faces, vertices, colors=white, nb_colors=1)
    scene.set_mesh(mesh)
    return scene, mesh


def prepare(file: str, size: int) -> tuple[Step, float]:
    """Return a step, forward, squared difference and backward to the vertices, and the mean of the
    silhouette of the mesh that the step begins with."""
    rotation, fov, faces, goal, start = read(file, "tri", "target_pos", "pos")
    camera = camera_of(rotation, fov, size)
    target = white_scene(faces, goal)[0].render(camera)
    scene, mesh = white_scene(faces, start)

    def step() -> Any:
        mesh.set_vertices(mesh.vertices)  # as after an update: what is derived of them is anew
        scene.clear_gradients()
        difference = scene.render(camera) - target
        scene.render_backward(2.0 * difference)
        return mesh._vertices_b

    return step, float(scene.render(camera).mean())


def prepare_fit(file: str) -> tuple[Step, float]:
    """Return a step over all views of the file of a fit, and the mean of their silhouettes."""
    with np.load(file) as data:
        faces, start = data["start_faces"], data["start_verts"]
        targets, fov = data["silhouettes"][..., None] / 255.0, float(data["fov_deg"])
        views = np.concatenate([data["cam_R"], data["cam_t"].reshape(-1, 3, 1)], 2)
    cameras = [camera_of(view, fov, targets.shape[1]) for view in views]
    scene, mesh = white_scene(faces, start)

    def step() -> Any:
        mesh.set_vertices(mesh.vertices)
        gradient = np.zeros_like(mesh.vertices)
        for camera, target in zip(cameras, targets, strict=True):
            scene.clear_gradients()
            scene.render_backward(2.0 * (scene.render(camera) - target))
            gradient += mesh._vertices_b
        return gradient

    return step, float(np.mean([scene.render(camera).mean() for camera in cameras]))


def waves(texels: int) -> np.ndarray:
    """Return (texels, texels, 3): smooth waves between 0.1 and 0.9."""
    y, x = (np.mgrid[:texels, :texels] + 0.5) / texels
    pairs = ((3, 1), (-1, 4), (2, -3))
    return 0.5 + 0.4 * np.stack([np.sin(2 * np.pi * (a * x + b * y)) for a, b in pairs], -1)


def prepare_textured(file: str, size: int, texels: int) -> tuple[Step, float]:
    """Return a step, forward, squared difference and backward to texture and vertices, and the mean
    of the picture that it begins with. Its scenes in 3D have no such backward (0.2.3); those in 2D
    have, so vertices are projected and their gradients brought back here."""
    from deodr.differentiable_renderer import Scene2D
    from deodr.triangulated_mesh import TriMesh

    names = ("tri", "uv_tri", "uv", "target_pos", "pos")
    rotation, fov, faces, uv_faces, uv, goal, start = read(file, *names)
    faces, uv_faces = faces.astype(np.uint32), uv_faces.astype(np.uint32)
    camera, uv = camera_of(rotation, fov, size), uv.astype(np.float64) * (texels - 1)
    mesh = TriMesh(faces, goal.astype(np.float64))
    all_faces, shade = np.ones(len(faces), bool), np.ones(len(goal))
    no_colours, black = np.zeros((len(goal), 3)), np.zeros(3)

    def scene(vertices: np.ndarray, texture: np.ndarray) -> tuple[Any, dict[str, Any]]:
        mesh.set_vertices(vertices)
        kept: dict[str, Any] = {}
        points, depths = camera.project_points(vertices, store_backward=kept)
        edges = mesh.edge_on_silhouette(points)
        made = Scene2D(
            faces, uv_faces, points, depths, all_faces, uv, shade, no_colours, all_faces, edges,
            size, size, 3, texture, background_color=black, backface_culling=True,
        )  # fmt: skip
        return made, kept

    target, _ = scene(goal.astype(np.float64), waves(texels))[0].render(1.0)
    start, grey = start.astype(np.float64), np.full((texels, texels, 3), 0.5)

    def step() -> Any:
        drawn, kept = scene(start, grey)
        drawn.clear_gradients()
        picture, _ = drawn.render(1.0)
        difference = 2.0 * (picture - target)
        drawn.render_backward(difference, make_copies=False)  # nobody reads the picture again
        return drawn.texture_b, camera.project_points_backward(drawn.ij_b, kept)

    return step, float(scene(start, grey)[0].render(1.0)[0].mean())


def prepared(request: dict[str, Any]) -> tuple[Step, float]:
    """Return what a request asks for."""
    if "fit" in request:
        return prepare_fit(request["fit"])
    if "texture" in request:
        return prepare_textured(request["file"], request["size"], request["texture"])
    return prepare(request["file"], request["size"])


def main() -> None:
    """Answer requests until standard input ends."""
    del sys.path[0]  # the folder of this file, whose deodr.py would be found before the peer
    importlib.import_module("deodr")  # says at once where there is none
    step: Step | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if "steps" not in request:
            step, area = prepared(request)
            answer: dict[str, Any] = {
                "area": area,
                "version": importlib.metadata.version("deodr"),
            }
        else:
            assert step is not None, "no mesh yet"
            answer = {"ms": [], "cpu_ms": []}
            for _ in range(request["steps"]):
                begin, cpu = time.perf_counter(), time.process_time()
                step()
                answer["ms"].append((time.perf_counter() - begin) * 1e3)
                answer["cpu_ms"].append((time.process_time() - cpu) * 1e3)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
