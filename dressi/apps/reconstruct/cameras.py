"""Cameras that are refined together with the shape: a small motion per view, and one lens for all.

In: the matrices of a calibration that is a little off. Out: ``CameraState``: matrices, and how the
lens bends. Pictures leave seven numbers open: all cameras and the object may be turned, shifted and
scaled together. Those motions are taken out of the parameters (the gauge), so that the object stays
where the calibration has it, and views that no fit sees keep their places beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.spatial.transform import Rotation

from dressi.ad import Adam, F, Variable
from dressi.ad.optim import Optimizer
from dressi.ad.vtype import FLOAT, INT, VEC3, VEC4
from dressi.apps.reconstruct.pictures import Pictures
from dressi.engine import DressiAD
from dressi.render.camera import (
    Distortion,
    Lens,
    axis_angle_matrix,
    build_view,
    eye_of,
    through_lens,
    undistort_image,
)

Floats = npt.NDArray[np.float64]

HOLD = 0.01
"""Weight of the mean square of all changes, in lengths of the object's box, radians and relative
stretches: what the pictures do not say stays as it was calibrated. One per cent costs 1e-6, a
thousandth of a fit's loss."""


@dataclass(frozen=True)
class Refinement:
    """How cameras are refined. lr: learning rate of all changes at the start and at the end of a
    round, for a box of side 2: a surface moves by about as much per step. lens: whether the focal
    length and the first radial coefficient are changed, too, alike for all views. free_gauge:
    whether the seven motions of the whole are left to the views: where the object cannot move."""

    lr: tuple[float, float] = (0.002, 0.0002)
    lens: bool = True
    free_gauge: bool = False


@dataclass(frozen=True, eq=False)
class CameraState:
    """Cameras so far. matrices: (n, 4, 4), world to clip of ideal lenses. how: they are refined.
    k1: first radial coefficient of all lenses. zoom: focal lengths over those of the calibration.
    """

    matrices: Floats
    how: Refinement
    k1: float = 0.0
    zoom: float = 1.0


@dataclass(frozen=True, eq=False)
class Cameras:
    """Cameras of a round, in a graph. before: what they are at its start. size: (width, height) of
    the pictures. inner: (n, 4), see ``intrinsics_of``. radius2: mean squared radius of the corners
    on the plane z = 1. turns, shifts: VEC3 @ (n, 1), about the origin, radians and world units.
    zoom: FLOAT, logarithm. bend: FLOAT, relative stretch at the corners: k1 radius2. view: INT per
    view of a step. lens: VEC4 per view of a step, its row of inner. lr: FLOAT."""

    before: CameraState
    size: tuple[int, int]
    inner: Floats
    radius2: float
    turns: Variable
    shifts: Variable
    zoom: Variable
    bend: Variable
    view: Variable
    lens: Variable
    lr: Variable


def intrinsics_of(matrices: npt.ArrayLike, size: tuple[int, int]) -> Floats:
    """Return (n, 4): fx, fy, cx, cy in pixels, cx and cy from the top left corner, of matrices to
    clip space without skew."""
    m = np.asarray(matrices, np.float64)
    axis = m[:, 3, :3]
    scale = np.linalg.norm(axis, axis=1)
    axis = axis / scale[:, None]
    out = []
    for row, side in ((0, size[0]), (1, size[1])):
        along = m[:, row, :3] / scale[:, None]
        middle = np.einsum("ni,ni->n", along, axis)
        focal = np.linalg.norm(along - middle[:, None] * axis, axis=1)
        out.append((focal * side / 2.0, (middle + 1.0) * side / 2.0))
    (fx, cx), (fy, cy) = out
    return np.stack([fx, fy, cx, cy], axis=-1)


def corner_radius2(inner: Floats, size: tuple[int, int]) -> float:
    """Return the mean squared radius, on the plane z = 1, of the corners of pictures."""
    x = np.maximum(inner[:, 2], size[0] - inner[:, 2]) / inner[:, 0]
    y = np.maximum(inner[:, 3], size[1] - inner[:, 3]) / inner[:, 1]
    return float(np.mean(x * x + y * y))


def build_cameras(before: CameraState, size: tuple[int, int], n_views: int) -> Cameras:
    """Return the leaves for n views per step of pictures of this size. The object is in a box of
    side 2 around the origin."""
    n, how = len(before.matrices), before.how
    inner = intrinsics_of(before.matrices, size)
    return Cameras(
        before,
        size,
        inner,
        corner_radius2(inner, size),
        turns=Variable(VEC3, (n, 1), requires_grad=True, name="turns"),
        shifts=Variable(VEC3, (n, 1), requires_grad=True, name="shifts"),
        zoom=Variable(FLOAT, requires_grad=how.lens, name="zoom"),
        bend=Variable(FLOAT, requires_grad=how.lens, name="bend"),
        view=Variable(INT, layers=n_views, name="camera_view"),
        lens=Variable(VEC4, layers=n_views, name="camera_lens"),
        lr=Variable(FLOAT, name="camera_lr"),
    )


def scale_direction(matrices: Floats) -> Floats:
    """Return (n, 3): the shifts that look like a scale of the object about the origin, without
    their mean, of length 1 together; zeros where all cameras are at one place.

    The object (1 + e) times as large is, for a camera at c, the object moved by e c.
    """
    found = np.stack([eye_of(m) for m in matrices]).astype(np.float64)
    eyes = found[:, :3] / found[:, 3:]
    away = eyes - eyes.mean(axis=0)
    length = float(np.linalg.norm(away))
    return away / length if length > 1e-9 * float(np.abs(eyes).max()) else np.zeros_like(away)


def in_gauge(cameras: Cameras) -> tuple[Variable, Variable]:
    """VEC3 @ (n, 1) turns and shifts without the motions of the whole. Gradient to both."""
    if cameras.before.how.free_gauge:
        return cameras.turns, cameras.shifts
    shifts = cameras.shifts - F.mean(cameras.shifts)
    far = F.leaf(scale_direction(cameras.before.matrices)[None].astype(np.float32), VEC3, "far")
    shifts = shifts - far * F.sum(F.dot(shifts, far))
    return cameras.turns - F.mean(cameras.turns), shifts


def moved_matrix(cameras: Cameras, matrix: Variable) -> Variable:
    """MAT4 per view of a step: the matrix with its changes. matrix: MAT4, as it was sent. Gradient
    to turns, shifts and zoom."""
    turns, shifts = (F.lookup(table, cameras.view) for table in in_gauge(cameras))
    moved = matrix @ build_view(axis_angle_matrix(turns), shifts)
    if not cameras.before.how.lens:
        return moved
    zoom = F.exp(cameras.zoom)
    rest = 1.0 - zoom  # larger about the principal point, which stays
    cx, cy = (
        F.swizzle(cameras.lens, axis) * (2.0 / side) - 1.0
        for axis, side in zip("zw", cameras.size, strict=True)
    )
    larger = F.linalg.from_columns(
        F.vec4(zoom, 0.0, 0.0, 0.0),
        F.vec4(0.0, zoom, 0.0, 0.0),
        F.vec4(0.0, 0.0, 1.0, 0.0),
        F.vec4(cx * rest, cy * rest, 0.0, 1.0),
    )
    return larger @ moved


def seen_through(cameras: Cameras | None, picture: Variable) -> Variable:
    """Return a rendered picture as the lenses of a step's views show it. Gradient to the picture,
    zoom and bend."""
    if cameras is None or not (cameras.before.how.lens or cameras.before.k1):
        return picture
    zoom = F.exp(cameras.zoom)
    fx, fy, cx, cy = (F.swizzle(cameras.lens, axis) for axis in "xyzw")
    k1 = cameras.bend * (1.0 / cameras.radius2)
    return through_lens(picture, Lens(fx * zoom, fy * zoom, cx, cy, coefficients=(k1,)))


def camera_prior(cameras: Cameras) -> Variable:
    """FLOAT @ 1x1: what changes cost. Gradient to all of them."""
    cost = F.mean(F.dot(cameras.turns, cameras.turns))
    cost = cost + F.mean(F.dot(cameras.shifts, cameras.shifts))
    if cameras.before.how.lens:
        cost = cost + cameras.zoom * cameras.zoom + cameras.bend * cameras.bend
    return cost * HOLD


def camera_optimizers(cameras: Cameras) -> dict[str, Optimizer]:
    """Return the optimizers of the leaves, by their names."""
    names = ["turns", "shifts", *(["zoom", "bend"] if cameras.before.how.lens else [])]
    return {name: Adam(cameras.lr, beta2=0.95) for name in names}


def send_cameras(ad: DressiAD, cameras: Cameras) -> None:
    """Send what a round begins with: no change, and the lens as it is."""
    none = np.zeros((len(cameras.inner), 3), np.float32)
    ad.send_img(cameras.turns, none)
    ad.send_img(cameras.shifts, none)
    ad.send_img(cameras.zoom, 0.0)
    ad.send_img(cameras.bend, cameras.before.k1 * cameras.radius2)


def send_camera_views(ad: DressiAD, cameras: Cameras, views: np.ndarray, lr: float) -> None:
    """Send what a step needs. views: rows of the pictures."""
    n = len(views)
    shape: tuple[int, ...] = (n, 1, 1) if n > 1 else (1, 1)
    ad.send_img(cameras.view, views.astype(np.int32).reshape(*shape, 1))
    if cameras.before.how.lens or cameras.before.k1:
        ad.send_img(cameras.lens, cameras.inner[views].astype(np.float32).reshape(*shape, 4))
    ad.send_img(cameras.lr, lr)


def received(ad: DressiAD, cameras: Cameras) -> CameraState:
    """Return the cameras at the end of a round."""
    before, n = cameras.before, len(cameras.inner)
    turns = ad.recv_img(cameras.turns).reshape(n, 3).astype(np.float64)
    shifts = ad.recv_img(cameras.shifts).reshape(n, 3).astype(np.float64)
    if not before.how.free_gauge:
        far = scale_direction(before.matrices)
        turns, shifts = turns - turns.mean(axis=0), shifts - shifts.mean(axis=0)
        shifts = shifts - far * float((shifts * far).sum())
    motion = np.tile(np.eye(4), (n, 1, 1))
    motion[:, :3, :3] = Rotation.from_rotvec(turns).as_matrix()
    motion[:, :3, 3] = shifts
    moved = replace(before, matrices=before.matrices @ motion)
    if not before.how.lens:
        return moved
    zoom = float(np.exp(ad.recv_img(cameras.zoom).item()))
    return replace(
        moved,
        matrices=zoomed(moved.matrices, zoom),
        k1=float(ad.recv_img(cameras.bend).item()) / cameras.radius2,
        zoom=before.zoom * zoom,
    )


def zoomed(matrices: Floats, zoom: float) -> Floats:
    """Return matrices (n, 4, 4) with focal lengths times a number; principal points stay."""
    larger = np.tile(np.diag([zoom, zoom, 1.0, 1.0]), (len(matrices), 1, 1))
    larger[:, :2, 3] = (1.0 - zoom) * (intrinsics_of(matrices, (2, 2))[:, 2:] - 1.0)
    return np.asarray(larger @ matrices)


def without_lens(
    images: npt.NDArray[np.floating], matrices: Floats, k1: float
) -> npt.NDArray[np.float32]:
    """Return pictures (n, H, W, C) as ideal lenses show them. matrices: (n, 4, 4), for the
    intrinsics. Where the lens showed nothing they stay as they are."""
    images = np.asarray(images, np.float32)
    if k1 == 0.0:
        return images
    inner = intrinsics_of(matrices, (images.shape[2], images.shape[1]))
    pairs = zip(images, inner, strict=True)
    return np.stack([_ideal(image, row, Distortion(k1=k1)) for image, row in pairs])


def pictures_without_lens(pictures: Pictures, k1: float) -> Pictures:
    """Return the pictures as ideal lenses show them."""

    def ideal(images: npt.NDArray[np.float32] | None) -> npt.NDArray[np.float32] | None:
        return None if images is None else without_lens(images, pictures.matrices, k1)

    return replace(
        pictures,
        coverage=without_lens(pictures.coverage, pictures.matrices, k1),
        colour=ideal(pictures.colour),
        weights=ideal(pictures.weights),
    )


def _ideal(image: npt.NDArray[np.float32], inner: Floats, lens: Distortion) -> npt.NDArray:
    """Return a picture (H, W, C) without its lens. inner: (4,)."""
    fx, fy, cx, cy = inner
    matrix = np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])
    found, known = undistort_image(image, matrix, lens, pixel_center=0.0)
    return np.where(known[..., None], found, image).astype(np.float32)
