"""Where the fit of ``dressi experiment face`` begins: poses and scale from 3D landmarks.

In: landmarks of the mean head, frames. Out: ``Start``. A landmark of a picture and the depth there
are a point in space; the similarity between these points and those of the model gives the pose of
a frame and the scale (Umeyama 1991), robustly: points that fit badly count less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dressi.apps.experiments.face_capture import Frame
from dressi.apps.experiments.face_model import JAW, TURNED_DEG
from dressi.errors import DressiError

Floats = npt.NDArray[np.float64]

LEAST = 6
"""Landmarks with depth that a frame needs."""

ROUNDS = 10
NOISE_CM = 0.3
"""Distance from which on a landmark counts less: what a mean head is off by."""


@dataclass(frozen=True, eq=False)
class Start:
    """scale: of the model. views: (n, 4, 4), model times scale to camera. weights: (n, 68), 1 for
    the landmarks that count."""

    scale: float
    views: Floats
    weights: Floats


def similarity(
    a: Floats, b: Floats, weights: Floats, scale: float | None = None
) -> tuple[float, Floats, Floats]:
    """Return s, R, t with b ~ s R a + t by weighted least squares. scale: keep s at it.

    a, b: (N, 3). weights: (N,). Source: Umeyama 1991.
    """
    w = weights / weights.sum()
    mean_a, mean_b = w @ a, w @ b
    x, y = a - mean_a, b - mean_b
    u, d, vt = np.linalg.svd((y * w[:, None]).T @ x)
    sign = np.array([1.0, 1.0, np.sign(np.linalg.det(u @ vt))])
    rotation = (u * sign) @ vt
    if scale is None:
        scale = float((d * sign).sum() / (w @ (x * x).sum(axis=1)))
    return scale, rotation, mean_b - scale * rotation @ mean_a


def landmark_points(frame: Frame) -> Floats:
    """Return (68, 3): landmarks in the camera, cm; NaN where hidden, outside, or without depth.

    The depth is the median of those known within 2 pixels.
    """
    out = np.full((len(frame.landmarks), 3), np.nan)
    height, width = frame.depth.shape
    for k, (u, v) in enumerate(frame.landmarks):
        if not (0 <= u < width and 0 <= v < height):  # NaN neither
            continue
        x, y = int(u), int(v)
        near = frame.depth[max(y - 2, 0) : y + 3, max(x - 2, 0) : x + 3]
        if not np.isfinite(near).any():
            continue
        d = float(np.nanmedian(near))
        (fx, fy), (cx, cy) = frame.focal, frame.center
        out[k] = (u - cx) / fx * d, (cy - v) / fy * d, -d
    return out


def start_from_landmarks(
    landmarks: Floats, frames: Sequence[Frame], scale: float | None = None
) -> Start:
    """Return scale and poses. landmarks: (68, 3) of a head, cm. scale: keep it. Raises DressiError,
    naming the frame, where too few landmarks have a depth."""
    points = np.stack([landmark_points(f) for f in frames])
    known: npt.NDArray[np.bool_] = np.asarray(np.isfinite(points).all(axis=2))
    for frame, row in zip(frames, known, strict=True):
        if row.sum() < LEAST:
            raise DressiError(
                f"face: frame '{frame.name}' has {row.sum()} landmarks with depth, {LEAST} are "
                "needed for its pose\n  hint: check its landmarks, depth and unit of depth"
            )
    weights = np.asarray(known, np.float64)
    size, poses = 1.0, list[tuple[Floats, Floats]]()
    for _ in range(ROUNDS):
        found = [
            similarity(landmarks[k], p[k], w[k], scale)
            for p, k, w in zip(points, known, weights, strict=True)
        ]
        size = float(np.median([s for s, _, _ in found]))
        poses = []
        for k, (p, seen) in enumerate(zip(points, known, strict=True)):
            _, r, t = similarity(landmarks[seen], p[seen], weights[k, seen], size)
            poses.append((r, t))
            off = np.linalg.norm(size * landmarks[seen] @ r.T + t - p[seen], axis=1)
            weights[k, seen] = 1.0 / np.maximum(off, NOISE_CM)
    views = np.tile(np.eye(4), (len(frames), 1, 1))
    for view, (r, t) in zip(views, poses, strict=True):
        view[:3, :3], view[:3, 3] = r, t
    return Start(size, views, counted(frames, views))


def counted(frames: Sequence[Frame], views: Floats) -> Floats:
    """Return (n, 68): 1 for landmarks that are seen, without the jaw of turned heads."""
    seen = [np.isfinite(f.landmarks).all(axis=1) for f in frames]
    weights = np.array(seen, np.float64)
    for row, view in zip(weights, views, strict=True):
        if abs(yaw_deg(view)) > TURNED_DEG:
            row[JAW] = 0.0
    return weights


def yaw_deg(view: Floats) -> float:
    """Return by how much a head is turned away from the camera, degrees."""
    front = view[:3, 2]  # the model's +z in the camera, which looks down -z
    return float(np.rad2deg(np.arctan2(front[0], front[2])))
