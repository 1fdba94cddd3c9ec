"""Masks as fields: distances to the contour in pixels, and what all views say about points.

In: masks of several views and their matrices. Out: for points of the world how far inside of the
silhouettes they are. ``hull`` makes the visual hull of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import ndimage
from scipy.special import ndtri

from dressi.errors import GraphError
from dressi.threads import in_threads

Floats = npt.NDArray[np.float64]
BATCH = 250_000
"""Points times views that a thread takes at a time: temporaries of 2 MB stay in its cache."""


@dataclass(frozen=True, eq=False)
class Silhouettes:
    """Distances and matrices of the views of one object.

    distances_px: (views, H, W) float32, pixels to the contour, positive inside. matrices: (views,
    4, 4) float64, world to clip.
    """

    distances_px: npt.NDArray[np.float32]
    matrices: Floats

    @property
    def n_views(self) -> int:
        """Number of views."""
        return len(self.matrices)


def silhouettes(
    what: str, masks: npt.ArrayLike, matrices: npt.ArrayLike, smoothing_px: float
) -> Silhouettes:
    """Return the masks as distances. Raises GraphError (shapes, values; ``what`` names the caller).

    masks: (views, H, W, 1) or (views, H, W), coverage in [0, 1]. matrices: (views, 4, 4).
    """
    coverage, clip = np.asarray(masks, np.float32), np.asarray(matrices, np.float64)
    if coverage.ndim == 4 and coverage.shape[3] == 1:
        coverage = coverage[..., 0]
    if coverage.ndim != 3 or min(coverage.shape) < 1 or min(coverage.shape[1:]) < 2:
        raise GraphError(f"{what}: masks must be (views, H, W, 1), got {np.shape(masks)}")
    if clip.shape != (len(coverage), 4, 4):
        raise GraphError(
            f"{what}: {len(coverage)} masks need matrices of ({len(coverage)}, 4, 4), "
            f"got {clip.shape}"
        )
    if not np.isfinite(clip).all():
        view = int((~np.isfinite(clip)).any(axis=(1, 2)).argmax())
        raise GraphError(f"{what}: the matrix of view {view} is not finite")
    wrong = ~((coverage >= 0.0) & (coverage <= 1.0)).all(axis=(1, 2))
    if wrong.any():
        view = int(wrong.argmax())
        raise GraphError(
            f"{what}: the mask of view {view} has values outside of [0, 1]: "
            f"{coverage[view].min():.4g} to {coverage[view].max():.4g}"
        )
    if not (np.isfinite(smoothing_px) and smoothing_px >= 0.0):
        raise GraphError(f"{what}: smoothing_px must be >= 0, got {smoothing_px}")
    distances = in_threads(lambda c: contour_distance(c, smoothing_px), coverage)
    return Silhouettes(np.stack(distances), clip)


def contour_distance(
    coverage: npt.NDArray[np.floating], smoothing_px: float = 0.7
) -> npt.NDArray[np.float32]:
    """(H, W) float32: the distance of each pixel centre to the contour, pixels, positive inside.

    coverage: (H, W) in [0, 1]; the contour is where it is 0.5. smoothing_px: standard deviation of
    a Gaussian that goes over it first, so that the steps of a mask of 0 and 1 become a line. Within
    two pixels of a contour that is straight there the result is good to a tenth of a pixel, further
    off to one. Beside the contour the distance is that at which a straight edge has the pixel's
    value; elsewhere it is the distance to the contour at the nearest such pixel (Gustavson and
    Strand 2011). Without a contour: the diagonal of the image, inside or outside. A contour ends at
    the image's border: what lies beyond it is not known.
    """
    level = ndimage.gaussian_filter(coverage.astype(np.float64), smoothing_px, mode="nearest")
    inside = level > 0.5
    beside = np.zeros_like(inside)
    rows, columns = inside[1:] != inside[:-1], inside[:, 1:] != inside[:, :-1]
    beside[1:] |= rows
    beside[:-1] |= rows
    beside[:, 1:] |= columns
    beside[:, :-1] |= columns
    sign = np.where(inside, 1.0, -1.0)
    if not beside.any():
        return np.asarray(sign * np.hypot(*inside.shape), np.float32)
    gradient = np.stack(np.gradient(level))
    normal = gradient / np.maximum(np.linalg.norm(gradient, axis=0), 1e-9)  # 0 at a thin ridge
    # A pixel's coverage is an edge over its square, whose variance is 1/12, and the Gaussian.
    spread = np.sqrt(smoothing_px**2 + 1.0 / 12.0)
    # A pixel beside the contour has a neighbour across it: it is at most 1 px away.
    near = np.clip(spread * ndtri(np.clip(level, 1e-6, 1.0 - 1e-6)), -1.0, 1.0)
    at = np.indices(inside.shape).astype(np.float64)
    _, index = ndimage.distance_transform_edt(~beside, return_indices=True)
    of = (slice(None), index[0], index[1])
    away = at - (at - near * normal)[of]
    across, far = np.abs((away * normal[of]).sum(axis=0)), np.linalg.norm(away, axis=0)
    # Within a pixel along the contour it is a line, beyond it ends.
    straight = far**2 - across**2 < 1.0
    return np.asarray(np.where(beside, near, sign * np.where(straight, across, far)), np.float32)


def distances_in_views(
    views: Silhouettes, points: Floats
) -> tuple[Floats, npt.NDArray[np.bool_], Floats, Floats]:
    """What each view says of each point, per view and point: (views, N) each, and (views, N, 2).

    points: (N, 3) world. Returns distances in pixels (read bilinearly; positive inside), whether
    the point is in the view's frame and in front of its camera, pixels per world unit at it (along
    the view's x), and its pixel.
    """
    height, width = views.distances_px.shape[1:]
    homogeneous = np.concatenate([points, np.ones((len(points), 1))], axis=1)
    clip = np.einsum("vij,nj->vni", views.matrices[:, [0, 1, 3]], homogeneous)
    w = clip[..., 2]
    front = w > 0.0
    safe = np.where(front, w, 1.0)
    pixel = (clip[..., :2] / safe[..., None] + 1.0) * (0.5 * np.array([width, height]))
    seen = front & ((pixel >= 0.0) & (pixel <= [width, height])).all(axis=2)
    x = np.clip(np.where(front, pixel[..., 0], 0.0) - 0.5, 0.0, width - 1.0)
    y = np.clip(np.where(front, pixel[..., 1], 0.0) - 0.5, 0.0, height - 1.0)
    column, row = (
        np.minimum(x.astype(np.int64), width - 2),
        np.minimum(y.astype(np.int64), height - 2),
    )
    u, v = x - column, y - row
    flat = views.distances_px.ravel()
    at = (np.arange(views.n_views)[:, None] * height + row) * width + column
    upper = flat[at] * (1.0 - u) + flat[at + 1] * u
    lower = flat[at + width] * (1.0 - u) + flat[at + width + 1] * u
    # The gradient of x_px over the world, without its part along the way to the camera.
    focal = 0.5 * width * np.linalg.norm(views.matrices[:, 0, :3], axis=1)
    return upper * (1.0 - v) + lower * v, seen, focal[:, None] / safe, pixel


def lowest_distances(
    views: Silhouettes, points: Floats, n: int, tolerance_px: float
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """The n smallest distances over the views that see a point, world units, and the first's view.

    Returns (n, N) float64, ascending, infinite where fewer than n views see the point, and (N,).
    """
    lowest, first = np.empty((n, len(points))), np.empty(len(points), np.int64)
    size = max(1, BATCH // views.n_views)

    def fill(part: slice) -> None:
        distance, seen, per_unit, _ = distances_in_views(views, points[part])
        world = np.where(seen, (distance + tolerance_px) / per_unit, np.inf)
        first[part] = world.argmin(axis=0)
        lowest[:, part] = np.sort(np.partition(world, n - 1, axis=0)[:n], axis=0)

    in_threads(fill, [slice(start, start + size) for start in range(0, len(points), size)])
    return lowest, first
