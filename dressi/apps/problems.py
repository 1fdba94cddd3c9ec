"""The problems of the paper's tables: meshes, cameras and silhouettes from the files of a data
folder, and small ones in their place where there is no data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dressi.ad import Adam, exponential_decay
from dressi.apps.fitting import ShapeSchedule
from dressi.errors import LoadError
from dressi.render.camera import from_opencv
from dressi.render.scene.mesh import Mesh, icosphere
from dressi.testing.problems import (
    Number,
    Problem,
    hard_silhouettes,
    silhouette_problem,
    squashed,
    view_matrices,
)

OPENGL_TO_VULKAN = np.array(
    [[1.0, 0, 0, 0], [0, -1.0, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0, 1.0]], np.float64
)
"""Clip space with y up and z in [-1, 1] to clip space with y down and z in [0, 1]."""


@dataclass(frozen=True, eq=False)
class Bumpy:
    """A bumpy sphere of the data folder. matrices: (6, 4, 4), world to Vulkan's clip space."""

    mesh: Mesh
    target: Mesh
    matrices: np.ndarray


def load_bumpy(path: str | Path) -> Bumpy:
    """Read ``t1_*.npz`` or ``t2_*.npz``. Raises LoadError where the file cannot be read."""
    data = _arrays(path, "pos tri uv uv_tri target_pos mvp")
    mesh = Mesh(data["pos"], data["tri"], data["uv"], data["uv_tri"], Path(path).stem).check()
    matrices = OPENGL_TO_VULKAN @ data["mvp"].astype(np.float64)
    return Bumpy(mesh, replace(mesh, positions=data["target_pos"]), matrices)


@dataclass(frozen=True, eq=False)
class PearFit:
    """The sphere-to-pear fit. silhouettes: (views, S, S, 1) coverage in [0, 1]. samples: points of
    the true surface."""

    start: Mesh
    matrices: np.ndarray
    silhouettes: np.ndarray
    samples: np.ndarray


def load_pear_fit(path: str | Path) -> PearFit:
    """Read ``pear_fit.npz``. Raises LoadError where the file cannot be read."""
    names = "start_verts start_faces cam_R cam_t fov_deg silhouettes surface_samples"
    data = _arrays(path, names)
    size = data["silhouettes"].shape[1]
    focal = 0.5 * size / np.tan(0.5 * np.radians(float(data["fov_deg"])))
    K = [[focal, 0, size / 2], [0, focal, size / 2], [0, 0, 1]]
    matrices = []
    for k, (R, t) in enumerate(zip(data["cam_R"], data["cam_t"], strict=True)):
        distance = float(np.linalg.norm(t))
        near, far = distance * 0.25, distance * 2.5
        # Pixel coordinates of the file start at the corner of the image.
        camera = from_opencv(K, R, t, size, size, near, far, pixel_center=0.0, name=f"view {k}")
        matrices.append(camera.matrix)
    return PearFit(
        Mesh(data["start_verts"], data["start_faces"], name="start").check(),
        np.stack(matrices),
        data["silhouettes"].astype(np.float32)[..., None] / np.float32(255.0),
        data["surface_samples"],
    )


def pear_stand_in(size: int = 32, n_views: int = 3, device: str | int | None = None) -> PearFit:
    """Return a small fit of the same kind, for where there is no data: a sphere to an ellipsoid."""
    start = icosphere(2, 0.5)
    target = squashed(icosphere(5, 0.6))
    matrices = view_matrices(n_views)
    silhouettes = hard_silhouettes(target, matrices, size, device)
    return PearFit(start, matrices, silhouettes, target.positions)


def bumpy_stand_in() -> Bumpy:
    """Return a small sphere with UVs and its ellipsoid, for where there is no data."""
    mesh = icosphere(1, 0.6)
    return Bumpy(mesh, squashed(mesh), view_matrices(6))


def pear_problem(fit: PearFit, schedule: ShapeSchedule) -> Problem:
    """Return the problem of the pear with its whole schedule on the device: counters of steps drive
    r, the learning rate and the weights, so a step moves nothing between host and device. Backs of
    faces are left out: the surface is closed."""
    last = max(schedule.iterations - 1, 1)

    def between(pair: tuple[float, float], steps: float) -> Number:
        return pair[0] if pair[0] == pair[1] else exponential_decay(*pair, max(round(steps), 1))

    assert schedule.normal[0] == schedule.normal[1], "the pear's bend weight stays"
    return silhouette_problem(
        fit.start,
        fit.matrices,
        fit.silhouettes,
        schedule.K,
        between(schedule.r, last * schedule.r_until),
        max(schedule.r),
        between(schedule.laplacian, last),
        schedule.normal[0],
        Adam(between(schedule.lr, last), beta2=schedule.beta2),
        cull=True,
    )


def _arrays(path: str | Path, names: str) -> dict[str, np.ndarray]:
    try:
        with np.load(path) as file:
            return {name: file[name] for name in names.split()}
    except (OSError, KeyError, ValueError) as error:
        raise LoadError(f"{path}: cannot be read: {error}", str(path)) from None
