"""Refined cameras of ``dressi fit``: photos without the lens that was found, files, and the poses
of photos that were kept out.

Photos that are kept out have no part in the refinement. The lens and the focal length that the
others found are theirs, too; their poses are those of the calibration. Beside that, ``aligned``
moves each of them, by its silhouette alone and with the shape fixed, to where it fits best: what is
left then is an error of the shape, not of the pose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dressi.apps.photo_views import Prepared, scale_of
from dressi.apps.reconstruct.cameras import CameraState, Refinement, without_lens, zoomed
from dressi.apps.reconstruct.pictures import Pictures
from dressi.apps.reconstruct.rounds import LossWeights, Round, fit_round
from dressi.engine import DressiAD
from dressi.render.camera import Calibration, Distortion
from dressi.render.io.middlebury import Photo
from dressi.render.scene import Mesh

ALIGNMENT = Round(None, 240, 80, (4.0, 1.0), (1e-12, 1e-12))
"""Of the poses of photos that were kept out; the shape stays."""


def refined_views(given: Prepared, fitted: Sequence[int], cameras: CameraState) -> Prepared:
    """Return what a fit needs of photos with the cameras that it found. fitted: numbers of the
    photos that it saw, whose cameras these are."""
    rows = list(fitted)
    matrices = zoomed(given.matrices, cameras.zoom)
    matrices[rows] = cameras.matrices
    masks, doubted, images = (
        without_lens(one, given.matrices, cameras.k1)
        for one in (given.masks, given.doubted, given.images)
    )
    # A pixel that is doubted in part is doubted.
    return replace(given, matrices=matrices, masks=masks, doubted=doubted > 0.0, images=images)


def photos_without_lens(photos: list[Photo], given: Prepared, k1: float) -> list[Photo]:
    """Return the photos as ideal lenses show them. given: before the refinement."""
    images = without_lens(np.stack([p.image for p in photos]), given.matrices, k1)
    return [replace(p, image=image) for p, image in zip(photos, images, strict=True)]


def aligned(
    mesh: Mesh, given: Prepared, kept: Sequence[int], device: str | int | None
) -> npt.NDArray[np.float64]:
    """Return (n, 4, 4) matrices of the photos that were kept out, moved to where the silhouettes of
    the mesh fit theirs best. given: ``refined_views``."""
    rows = list(kept)
    known = (~given.doubted[rows]).astype(np.float32)
    pictures = Pictures(given.matrices[rows], given.masks[rows], weights=known)
    state = CameraState(pictures.matrices, Refinement(lens=False, free_gauge=True))
    with DressiAD(device) as ad:
        _, course = fit_round(
            ad, mesh, pictures, ALIGNMENT, LossWeights(bend=0.0), "kept out", start=state
        )
    assert course.cameras is not None
    return course.cameras.matrices


def motions(
    given: Prepared, fitted: Sequence[int], cameras: CameraState
) -> npt.NDArray[np.float64]:
    """Return (n, 4, 4): the rigid motion of the object that each camera's change is, in the box of
    the fit."""
    before = zoomed(given.matrices[list(fitted)], cameras.zoom)
    return np.asarray(np.linalg.solve(before, cameras.matrices))


def camera_figures(
    given: Prepared, fitted: Sequence[int], cameras: CameraState
) -> dict[str, float]:
    """Return how far cameras moved: root mean squares of their turns about the object, degrees, and
    shifts, percent of the longest side of its box; the zoom, percent; and k1."""
    found = motions(given, fitted, cameras)
    trace = np.trace(found[:, :3, :3], axis1=1, axis2=2)
    turns = np.degrees(np.arccos(np.clip((trace - 1.0) / 2.0, -1.0, 1.0)))
    shifts = np.linalg.norm(found[:, :3, 3], axis=1) / 2.0  # the box's side is 2
    return {
        "camera_turn_deg": float(np.sqrt((turns**2).mean())),
        "camera_shift_percent": float(100.0 * np.sqrt((shifts**2).mean())),
        "camera_zoom_percent": 100.0 * (cameras.zoom - 1.0),
        "camera_k1": cameras.k1,
    }


def refined_calibrations(
    photos: list[Photo], given: Prepared, fitted: Sequence[int], cameras: CameraState
) -> list[Calibration]:
    """Return the refined calibrations of the fitted photos, in the units of the cameras: of the
    photos as they were read, for ``write_transforms``. given: before the refinement."""
    centre, scale = given.box.mean(0), scale_of(given.box)
    out = []
    for i, motion in zip(fitted, motions(given, fitted, cameras), strict=True):
        photo, turn = photos[i], motion[:3, :3]
        k = photo.K.copy()
        k[:2, :2] *= cameras.zoom
        t = photo.R @ (centre - turn @ centre + motion[:3, 3] / scale) + photo.t
        height, width = photo.image.shape[:2]
        lens = Distortion(k1=cameras.k1)
        out.append(Calibration(photo.name, k, photo.R @ turn, t, width, height, lens))
    return out
