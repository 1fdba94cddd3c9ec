"""DEODR (an optional peer) in a process of its own: silhouettes of a mesh, and their gradient to
the vertices.

Run as a file by an interpreter that has ``deodr``; it imports nothing of ours. In: a line of JSON
per request on standard input: ``{"file", "size"}`` prepares a mesh of the data folder in its first
view, ``{"steps"}`` runs steps. Out: a line of JSON each: ``{"area", "version"}``, the mean of the
silhouette; ``{"ms", "cpu_ms"}``, the wall time and
the processor time of each step.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def prepare(file: str, size: int) -> tuple[Callable[[], Any], float]:
    """Return a step, forward, squared difference and backward to the vertices, and the mean of the
    silhouette of the mesh that the step begins with."""
    from deodr.differentiable_renderer import Camera, Scene3D  # type: ignore[import-not-found]
    from deodr.triangulated_mesh import ColoredTriMesh  # type: ignore[import-not-found]

    with np.load(file) as data:
        view, fov = data["view"][0].astype(np.float64), float(data["fovy_deg"])
        faces, shapes = data["tri"].astype(np.uint32), [data["target_pos"], data["pos"]]
    focal = 0.5 * size / np.tan(np.radians(fov) / 2)
    intrinsic = np.array([[focal, 0, size / 2], [0, focal, size / 2], [0, 0, 1.0]])
    # Its camera looks along +z with y down, ours along -z with y up.
    extrinsic = np.diag([1.0, -1.0, -1.0]) @ view[:3]
    camera = Camera(extrinsic, intrinsic, size, size, checks=False)
    scene = Scene3D(sigma=1.0)
    scene.set_light(light_directional=None, light_ambient=1.0)
    scene.set_background_color(np.zeros(1))
    images = []
    for vertices in shapes:
        white = np.ones((len(vertices), 1))
        mesh = ColoredTriMesh(faces, vertices.astype(np.float64), colors=white, nb_colors=1)
        scene.set_mesh(mesh)
        images.append(scene.render(camera))
    target = images[0]

    def step() -> Any:
        mesh.set_vertices(mesh.vertices)  # as after an update: what is derived of them is anew
        scene.clear_gradients()
        difference = scene.render(camera) - target
        scene.render_backward(2.0 * difference)
        return mesh._vertices_b

    return step, float(images[1].mean())


def main() -> None:
    """Answer requests until standard input ends."""
    del sys.path[0]  # the folder of this file, whose deodr.py would be found before the peer
    step: Callable[[], Any] | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if "file" in request:
            step, area = prepare(request["file"], request["size"])
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
