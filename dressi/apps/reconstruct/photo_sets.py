"""Photo sets made of known objects: what ``dressi fit`` is tried with, beside real photos.

In: an object. Out: a folder of photos with a Middlebury ``views_par.txt``, as a camera on a stand
would take them: one light, a background that is not black, noise, parts in deep shadow, and a
calibration that is a little off.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.ndimage import distance_transform_edt
from scipy.spatial.transform import Rotation

from dressi.apps.reconstruct.framing import views_of
from dressi.apps.reconstruct.pictures import Floats, Pictures
from dressi.apps.reconstruct.targets import Target, draw
from dressi.errors import GraphError
from dressi.render.camera import Camera, to_opencv
from dressi.render.io.images import linear_to_srgb, srgb_to_linear, write_png

TO_LIGHT = np.array([0.36, 0.8, 0.48])
"""Fixed to the object, as when the camera goes around."""

HEIGHTS_DEG = (12.0, 35.0, -8.0)
"""Of the camera above the object's middle, in turn."""

RADIUS = 0.1
"""Of a shadow, in diagonals of the object's box."""

DARKEST = 0.01
"""Part of the light in the middle of a shadow."""


@dataclass(frozen=True)
class PhotoSet:
    """How photos are taken. views: number of them, around the object. size: pixels on a side.
    background: sRGB value in [0, 1], rising by ``slope`` from left to right. noise: standard
    deviation, sRGB. ambient: light that shadows get, as a part of the whole. shadows: how many
    balls there are in which the object's surface gets as good as no light. tilt_deg, exposure:
    standard deviations of the cameras' turns beside the calibration, and of the logarithm of each
    photo's exposure. seed: of all that is drawn by lot."""

    views: int = 16
    size: int = 320
    background: float = 0.02
    slope: float = 0.05
    noise: float = 0.004
    ambient: float = 0.1
    shadows: int = 2
    tilt_deg: float = 0.0
    exposure: float = 0.05
    seed: int = 0


def ring(views: int) -> npt.NDArray[np.float64]:
    """Return (n, 3) directions from the object to the cameras, y up."""
    turn = 2.0 * np.pi * np.arange(views) / views
    height = np.radians(np.resize(HEIGHTS_DEG, views))
    flat = np.cos(height)
    return np.stack([flat * np.sin(turn), np.sin(height), flat * np.cos(turn)], -1)


def write_photo_set(
    folder: str | Path, target: Target, how: PhotoSet, device: str | int | None = None
) -> Floats:
    """Write the photos and ``views_par.txt``; return the masks (n, H, W, 1) that are right.

    Raises GraphError for fewer than 4 views or a size below 16, OSError.
    """
    if how.views < 4 or how.size < 16:
        raise GraphError(
            f"write_photo_set needs 4 views and 16 pixels at least, got {how.views}, {how.size}"
        )
    out, rng = Path(folder), np.random.default_rng(how.seed)
    out.mkdir(parents=True, exist_ok=True)
    cameras = views_of(target.mesh.positions, ring(how.views))
    pictures = draw(target, cameras, how.size, device)
    assert pictures.colour is not None and pictures.normals is not None
    cover = np.maximum(pictures.coverage, 1e-6)
    light = np.maximum(pictures.normals @ TO_LIGHT[:, None] / cover, 0.0)
    lit = pictures.colour * (how.ambient + (1.0 - how.ambient) * light)
    lit = lit * _unshadowed(pictures, target, how, rng)
    behind = how.background + how.slope * np.linspace(0.0, 1.0, how.size)
    stage = srgb_to_linear(behind.astype(np.float32))[:, None] * (1.0 - pictures.coverage)
    lines = []
    for k, (camera, photo) in enumerate(zip(cameras, lit + stage, strict=True)):
        gain = np.exp(rng.normal(0.0, how.exposure))
        encoded = linear_to_srgb(np.clip(photo * gain, 0.0, 1.0))
        encoded = np.clip(encoded + rng.normal(0.0, how.noise, encoded.shape), 0.0, 1.0)
        name = f"view{k:02d}.png"
        write_png(out / name, encoded, srgb=False)
        lines.append(_line(name, camera, how, rng))
    (out / "views_par.txt").write_text(f"{how.views}\n" + "".join(lines), encoding="utf-8")
    return pictures.coverage


def _places(pictures: Pictures) -> npt.NDArray[np.float64]:
    """Return (n, H, W, 3): what each pixel shows, world units; of the nearest pixel whose depth is
    known where that of a pixel is not."""
    assert pictures.depth is not None
    height, width = pictures.depth.shape[1:3]
    y, x = np.meshgrid(np.arange(height) + 0.5, np.arange(width) + 0.5, indexing="ij")
    out = []
    for matrix, depth in zip(pictures.matrices, pictures.depth[..., 0], strict=True):
        rows = distance_transform_edt(depth <= 0.0, return_distances=False, return_indices=True)
        w = depth[tuple(rows)].astype(np.float64)
        clip = np.stack([(2.0 * x / width - 1.0) * w, (2.0 * y / height - 1.0) * w, w], -1)
        planes = matrix[[0, 1, 3]]
        out.append(np.linalg.solve(planes[:, :3], (clip - planes[:, 3])[..., None])[..., 0])
    return np.stack(out)


def _unshadowed(
    pictures: Pictures, target: Target, how: PhotoSet, rng: np.random.Generator
) -> Floats:
    """Return (n, H, W, 1): the part of the light that each pixel's surface gets."""
    radius = RADIUS * target.diagonal
    places, share = _places(pictures), np.ones_like(pictures.coverage)
    corners = target.mesh.positions[np.unique(target.mesh.faces)]
    for centre in corners[rng.integers(len(corners), size=how.shadows)]:
        away = np.linalg.norm(places - centre, axis=-1, keepdims=True) / radius
        share *= np.clip((away - 0.8) / 0.4, DARKEST, 1.0).astype(np.float32)
    return share


def _line(name: str, camera: Camera, how: PhotoSet, rng: np.random.Generator) -> str:
    """Return the line of a photo, its direction off by ``tilt_deg``."""
    made = to_opencv(camera, how.size, how.size)
    off = Rotation.from_rotvec(np.radians(rng.normal(0.0, how.tilt_deg, 3))).as_matrix()
    numbers = np.concatenate([made.K.ravel(), (off @ made.R).ravel(), off @ made.t])
    return name + "".join(f" {v:.12g}" for v in numbers) + "\n"
