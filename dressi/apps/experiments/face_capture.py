"""What ``dressi experiment face`` is fitted to: frames of colour, depth and landmarks.

In: the scanned head of the package, or a folder. Out: ``Frame``. The frames of the scan are
rendered, with noise on colour, depth and landmarks and with holes in the depth as sensors have
them. The layout of a folder is in docs/face.md; ``write_frames`` makes one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dressi.ad import F, Variable
from dressi.ad.vtype import IVEC3, MAT4, VEC2, VEC3
from dressi.apps.data import human_file
from dressi.apps.data.heads import scan_mesh, scan_texture
from dressi.apps.experiments.face_picture import Maps, SurfaceTables, build_picture
from dressi.engine import DressiAD
from dressi.render.camera import look_at
from dressi.render.fit import seen_points
from dressi.render.scene import Mesh

Floats = npt.NDArray[np.float64]

N_LANDMARKS = 68
NEAR_CM, FAR_CM = 10.0, 300.0

SKIN_ROUGHNESS = 0.6
"""Of the scan, which has no such map."""

MIN_FACING = 0.25
"""Cosine of the angle to the surface below which the sensor of the synthetic frames is blind."""


@dataclass(frozen=True, eq=False)
class Frame:
    """One picture. color: (H, W, 3), linear. depth: (H, W), cm from the plane of the camera, NaN
    where unknown. mask: (H, W) bool, the pixels that count. landmarks: (68, 2), pixels from the top
    left corner, NaN where hidden. focal, center: (2,) each, pixels; the centre counts from the
    corner, so the middle of the picture is half its size. view: (4, 4), world to camera, or None
    where it is not known. held_out: kept out of the fit, and used to report."""

    name: str
    color: npt.NDArray[np.float32]
    depth: npt.NDArray[np.float32]
    mask: npt.NDArray[np.bool_]
    landmarks: Floats
    focal: Floats
    center: Floats
    view: Floats | None = None
    held_out: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """(width, height), pixels."""
        return self.color.shape[1], self.color.shape[0]

    @property
    def known_view(self) -> Floats:
        """The view of a frame whose camera is known."""
        assert self.view is not None
        return self.view

    @property
    def projection(self) -> Floats:
        """(4, 4): camera to clip space."""
        (w, h), (fx, fy), (cx, cy) = self.size, self.focal, self.center
        z = FAR_CM / (NEAR_CM - FAR_CM)
        return np.array(
            [
                [2 * fx / w, 0, 1 - 2 * cx / w, 0],
                [0, -2 * fy / h, 1 - 2 * cy / h, 0],
                [0, 0, z, NEAR_CM * z],
                [0, 0, -1, 0],
            ]
        )


def shrunk(frame: Frame, factor: int) -> dict[str, np.ndarray]:
    """Return colour, depth and their weights of a frame, ``factor`` times smaller: means of what is
    known. factor: divides both sides of the frame."""

    def blocks(a: np.ndarray) -> np.ndarray:
        h, w = a.shape[0] // factor, a.shape[1] // factor
        return a.reshape(h, factor, w, factor, -1).swapaxes(1, 2).reshape(h, w, factor**2, -1)

    mask, known = frame.mask, np.isfinite(frame.depth) & frame.mask
    inside, has = blocks(mask.astype(np.float32)), blocks(known.astype(np.float32))
    depth = blocks(np.where(known, frame.depth, 0.0))
    color = blocks(frame.color * mask[..., None])
    count, n_known = inside.sum(axis=2), has.sum(axis=2)
    mean = depth.sum(axis=2) / np.maximum(n_known, 1.0)
    # A block across an edge in depth has no depth of its own.
    spread = np.abs(np.where(has > 0, depth - mean[:, :, None], 0.0)).max(axis=2)
    return {
        "color": color.sum(axis=2) / np.maximum(count, 1.0),
        "depth": mean,
        "color_weight": (count == factor**2).astype(np.float32),
        "depth_weight": ((n_known > factor**2 / 2) & (spread < 1.0)).astype(np.float32),
    }


@dataclass(frozen=True, eq=False)
class Scan:
    """The scanned head, "Infinite, 3D Head Scan" by Lee Perry-Smith (CC BY 3.0). mesh: cm.
    landmarks: (68, 3), cm, on the surface."""

    mesh: Mesh
    texture: npt.NDArray[np.float32]
    landmarks: Floats


def read_scan() -> Scan:
    """Return the scan of the package."""
    marks = json.loads(human_file("lps/landmarks.json").read_text(encoding="utf-8"))
    scale = float(marks["cm_per_unit"])
    return Scan(scan_mesh(scale), scan_texture(), np.asarray(marks["landmarks"]) * scale)


POSES = (
    ("middle", 0.0, 0.0),
    ("left", 38.0, 0.0),
    ("right", -38.0, 0.0),
    ("up", 0.0, 20.0),
    ("kept out", 18.0, 8.0),
)
"""(name, yaw, pitch) in degrees: the four of the paper, and one to report."""

DISTANCE_CM, FOCAL_PX = 42.0, 600.0
"""Of the camera from the head; of a picture 640 pixels high."""


@dataclass(frozen=True)
class Noise:
    """Standard deviations of noise: of landmarks in pixels, depth in cm, linear colour. holes:
    share of pixels without depth."""

    landmarks_px: float = 1.5
    depth_cm: float = 0.1
    color: float = 0.005
    holes: float = 0.02


def scan_frames(
    scan: Scan, size: tuple[int, int], noise: Noise, seed: int, device: str | None = None
) -> list[Frame]:
    """Return the rendered frames of the scan, the last one to be kept out. size: (width, height),
    pixels. seed: of the noise."""
    focal = np.full(2, FOCAL_PX * size[1] / 640.0)
    shape = size[1], size[0]
    blank = [
        Frame(
            name,
            np.zeros((*shape, 3), np.float32),
            np.zeros(shape, np.float32),
            np.zeros(shape, bool),
            np.zeros((N_LANDMARKS, 2)),
            focal,
            np.asarray(size) / 2.0,
            pose_view(scan, yaw, pitch),
            name == POSES[-1][0],
        )
        for name, yaw, pitch in POSES
    ]
    color, depth, mask, facing = draw_scan(scan, blank, device)
    matrices = np.stack([f.projection @ f.known_view for f in blank])
    seen = seen_points(scan.landmarks, scan.mesh, matrices, 2e-3)
    rng = np.random.default_rng(seed)
    frames = []
    for k, frame in enumerate(blank):
        clip = np.c_[scan.landmarks, np.ones(N_LANDMARKS)] @ matrices[k].T
        at = (clip[:, :2] / clip[:, 3:] * 0.5 + 0.5) * size
        at = np.where(seen[k][:, None], at + rng.normal(0.0, noise.landmarks_px, at.shape), np.nan)
        measured = depth[k] + rng.normal(0.0, noise.depth_cm, shape)
        blind = (facing[k] < MIN_FACING) | (rng.uniform(size=shape) < noise.holes) | ~mask[k]
        shown = color[k] + rng.normal(0.0, noise.color, color[k].shape)
        frames.append(
            replace(
                frame,
                color=np.where(mask[k][..., None], shown, 0.0).astype(np.float32),
                depth=np.where(blind, np.nan, measured).astype(np.float32),
                mask=mask[k],
                landmarks=at,
            )
        )
    return frames


def pose_view(scan: Scan, yaw_deg: float, pitch_deg: float) -> Floats:
    """Return the camera that sees the face from the side (yaw) and above (pitch), (4, 4)."""
    center = scan.landmarks[27:48].mean(axis=0) - (0.0, 1.0, 4.0)
    yaw, pitch = np.deg2rad([yaw_deg, pitch_deg])
    away = [np.sin(yaw) * np.cos(pitch), np.sin(pitch), np.cos(yaw) * np.cos(pitch)]
    return look_at(center + np.asarray(away) * DISTANCE_CM, center)


def draw_scan(scan: Scan, frames: Sequence[Frame], device: str | None) -> list[np.ndarray]:
    """Return colour, depth, mask (bool) and facing of the scan, a row per frame."""
    mesh = scan.mesh
    assert mesh.uvs is not None
    faces = F.leaf(mesh.faces, IVEC3, "faces")
    tables = SurfaceTables(
        F.leaf(mesh.positions, VEC3, "positions"), faces, F.leaf(mesh.uvs, VEC2, "uv"), faces
    )
    albedo = F.leaf(scan.texture, VEC3, "albedo")
    maps = Maps(albedo, None, F.constant((1.0, SKIN_ROUGHNESS, 0.0)))
    n, size = len(frames), frames[0].size
    view = Variable(MAT4, layers=n, name="view")
    projection = Variable(MAT4, layers=n, name="projection")
    picture = build_picture(tables, maps, view, projection, size)
    with DressiAD(device) as ad:
        ad.send_img(view, np.stack([f.known_view for f in frames]).astype(np.float32))
        ad.send_img(projection, np.stack([f.projection for f in frames]).astype(np.float32))
        out = ad.recv_imgs([picture.color, picture.depth, picture.mask, picture.facing])
    color, depth, mask, facing = (a.reshape(n, size[1], size[0], -1) for a in out)
    return [color, depth[..., 0], mask[..., 0] > 0.5, facing[..., 0]]
