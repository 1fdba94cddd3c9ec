"""Photo consistency: how alike small patches of a surface look in photos that see them.

In: points with normals, photos, matrices. Out: a score per point and offset along its normal. A
patch that lies on the surface of the object shows the same in all photos but for gain and bias,
which zero-mean normalized cross-correlation (ZNCC) leaves out; one before or behind it projects to
different places of the object. Vogiatzis et al. 2005 and Furukawa and Ponce 2010 score patches so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter

from dressi.errors import GraphError

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

HALF = 3
"""Samples of a patch on each side of its middle: 7 x 7."""
MOST_VIEWS = 6
"""Photos that a point is compared in: those that see it most from the front."""
LEAST_COSINE = 0.3
"""Of the angle between a normal and the way to the eye: a patch at more than 73 degrees is a few
pixels wide."""
ANGLES_DEG = (8.0, 70.0)
"""Between the ways to the two eyes of a pair: nearer ones say little about depth, farther ones see
the patch too differently."""
NOISE = 0.006
"""Standard deviation of the noise of photos, as square roots of linear values: one and a half
steps of 8 bits in the middle. Patches with less contrast have low scores wherever they lie."""
BEST_PAIRS = 2.0 / 3.0
"""Share of pairs that count: a highlight, or an edge that hides a patch, spoils some."""
WHOLE = 0.95
"""Coverage from which on a pixel shows nothing but the object."""
_SAMPLES = 2_000_000  # at a time: about 150 MB


@dataclass(frozen=True, eq=False)
class GreyPhotos:
    """Photos as patches are read from them. values: (views, H, W) float32, square roots of linear
    brightness. inside: (views, H, W) bool, pixels that show the object alone. matrices: (views, 4,
    4) world to clip. spacing_px: of the samples of a patch, in pixels of the nearest photo."""

    values: npt.NDArray[np.float32]
    inside: Bools
    matrices: Floats
    spacing_px: float


def grey_photos(
    colour: npt.ArrayLike,
    coverage: npt.ArrayLike,
    matrices: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    spacing_px: float = 1.0,
) -> GreyPhotos:
    """Return photos for patches whose samples are so many pixels apart, blurred to hold no more.

    colour: (views, H, W, 3) linear, over black. coverage: (views, H, W, 1). matrices: (views, 4, 4)
    world to clip. weights: (views, H, W, 1), pixels without any count as outside. Raises GraphError
    (shapes, spacing not above 0).
    """
    images, cover = np.asarray(colour, np.float64), np.asarray(coverage, np.float64)
    views = np.asarray(matrices, np.float64)
    n_views = len(images)
    if images.ndim != 4 or images.shape[3] != 3 or cover.shape != (*images.shape[:3], 1):
        raise GraphError(
            "grey_photos needs colour (views, H, W, 3) and coverage (views, H, W, 1), got "
            f"{images.shape} and {cover.shape}"
        )
    if views.shape != (n_views, 4, 4):
        raise GraphError(f"grey_photos: {n_views} photos but matrices {views.shape}")
    if not spacing_px > 0.0:
        raise GraphError(f"grey_photos: spacing_px must be above 0, got {spacing_px}")
    cover = cover[..., 0]
    inside = cover > WHOLE
    if weights is not None:
        inside &= np.asarray(weights)[..., 0] > 0.0
    bright = np.sqrt(np.maximum(images.mean(axis=3) / np.maximum(cover, 1e-3), 0.0))
    # A pixel is its own box filter; what is beyond the outline has no part in the mean.
    sigma = 0.5 * np.sqrt(max(spacing_px**2 - 1.0, 0.0))
    if sigma > 0.0:
        spread = (0.0, sigma, sigma)
        known = gaussian_filter(inside.astype(np.float64), spread)
        bright = gaussian_filter(np.where(inside, bright, 0.0), spread) / np.maximum(known, 1e-6)
    values = np.where(inside, bright, 0.0).astype(np.float32)
    return GreyPhotos(values, inside, views, spacing_px)


def pixel_sizes(photos: GreyPhotos, points: Floats) -> Floats:
    """Return (views, N): world units that a pixel of each photo is wide at each point. What a lens
    is shifted by is along the way ahead."""
    right, last = photos.matrices[:, 0, :3], photos.matrices[:, 3]
    ahead = last[:, :3]
    shift = (right * ahead).sum(1, keepdims=True) / (ahead * ahead).sum(1, keepdims=True)
    width = photos.values.shape[2] * np.linalg.norm(right - shift * ahead, axis=1)
    return 2.0 * np.abs(points @ ahead.T + last[:, 3]).T / width[:, None]


def patch_scores(
    photos: GreyPhotos, points: Floats, normals: Floats, seen: Bools, offsets: Floats
) -> Floats:
    """Return (N, D): the mean ZNCC of the patch of each point at each offset, in [-1, 1].

    points, normals: (N, 3), unit normals outward. seen: (views, N) bool, which photos see a point.
    offsets: (D,) world units, inward. NaN where fewer than two photos hold the whole patch within
    the object, at angles of ANGLES_DEG.
    """
    chosen = _chosen(photos, points, normals, seen)
    scores = np.full((len(points), len(offsets)), np.nan)
    rows = np.flatnonzero(chosen.paired.any(axis=(1, 2)))
    samples = len(offsets) * chosen.views.shape[1] * (2 * HALF + 1) ** 2
    step = max(_SAMPLES // samples, 1)
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        patches, whole = _patches(photos, points[part], normals[part], chosen.views[part], offsets)
        scores[part] = _mean_of_best(patches, whole, chosen.paired[part])
    return scores


@dataclass(frozen=True, eq=False)
class _Chosen:
    """views: (N, K) rows of photos. paired: (N, K, K) bool, which two of them are compared."""

    views: Rows
    paired: Bools


def _chosen(photos: GreyPhotos, points: Floats, normals: Floats, seen: Bools) -> _Chosen:
    """Return the photos in which each point is compared."""
    # The eye, homogeneous: what the rows of x, y and w take to 0.
    eyes = np.linalg.svd(photos.matrices[:, [0, 1, 3]])[2][:, 3]
    to_eye = eyes[:, None, :3] - eyes[:, None, 3:] * points
    to_eye /= (
        np.linalg.norm(to_eye, axis=2, keepdims=True) * np.where(eyes[:, 3:] < 0, -1, 1)[:, None]
    )
    cosine = np.where(seen, (to_eye * normals).sum(axis=2), -1.0)
    views = np.argsort(-cosine, axis=0, kind="stable")[:MOST_VIEWS]
    usable = (np.take_along_axis(cosine, views, 0) > LEAST_COSINE).T
    ways = np.moveaxis(np.take_along_axis(to_eye, views[..., None], 0), 0, 1)
    low, high = np.cos(np.radians(ANGLES_DEG))
    between = ways @ ways.transpose(0, 2, 1)
    paired = (between < low) & (between > high) & usable[:, :, None] & usable[:, None]
    return _Chosen(views.T, paired & np.triu(np.ones(paired.shape[1:], bool), 1))


def _patches(
    photos: GreyPhotos, points: Floats, normals: Floats, views: Rows, offsets: Floats
) -> tuple[npt.NDArray[np.float32], Bools]:
    """Return patches (n, K, D, S), less their means and of length 1 (less where the contrast is
    that of noise), and (n, K, D), whether they lie within the object."""
    _, height, width = photos.values.shape
    size = np.take_along_axis(pixel_sizes(photos, points), views[:, :1].T, 0)[0]
    along = _tangents(normals) * (photos.spacing_px * size)[:, None, None]
    ticks = np.arange(-HALF, HALF + 1, dtype=np.float32)
    across, down = (t.ravel() for t in np.meshgrid(ticks, ticks))
    planes = photos.matrices[:, [0, 1, 3]][views]
    # Clip coordinates are linear in the offset and in the place on the patch.
    middle = np.einsum("nkij,nj->nki", planes[..., :3], points) + planes[..., 3]
    inward = np.einsum("nkij,nj->nki", planes[..., :3], -normals)
    sides = np.einsum("nkij,naj->nkai", planes[..., :3], along)
    clip = middle[:, :, None] + inward[:, :, None] * offsets[:, None]
    spread = sides[:, :, :1] * across[:, None] + sides[:, :, 1:] * down[:, None]
    x, y, w = (clip[..., None, i] + spread[:, :, None, :, i] for i in range(3))
    before = w > 0.0
    w = np.where(before, w, 1.0)
    column = ((x / w + 1.0) * (0.5 * width) - 0.5).astype(np.float32)
    row = ((y / w + 1.0) * (0.5 * height) - 0.5).astype(np.float32)
    held = before & (column >= 0) & (column <= width - 1) & (row >= 0) & (row <= height - 1)
    values, within = _read(photos, views[:, :, None, None], column, row)
    values -= values.mean(axis=-1, keepdims=True)
    power = (values * values).sum(axis=-1, keepdims=True)
    values /= np.sqrt(power + values.shape[-1] * NOISE**2)
    return values, (held & within).all(axis=-1)


def _tangents(normals: Floats) -> Floats:
    """Return (N, 2, 3): two unit vectors across each normal, and across each other."""
    least = np.eye(3)[np.abs(normals).argmin(axis=1)]
    first = np.cross(normals, least)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    return np.stack([first, np.cross(normals, first)], axis=1)


def _read(
    photos: GreyPhotos, views: Rows, column: npt.NDArray[np.float32], row: npt.NDArray[np.float32]
) -> tuple[npt.NDArray[np.float32], Bools]:
    """Return bilinear reads, and whether the nearest pixel shows the object alone."""
    _, height, width = photos.values.shape
    x = np.clip(column, 0.0, np.float32(width - 1.001))
    y = np.clip(row, 0.0, np.float32(height - 1.001))
    left, top = x.astype(np.int64), y.astype(np.int64)
    u, v = x - left.astype(np.float32), y - top.astype(np.float32)
    at = (views * height + top) * width + left
    flat = photos.values.ravel()
    upper = flat[at] * (1.0 - u) + flat[at + 1] * u
    lower = flat[at + width] * (1.0 - u) + flat[at + width + 1] * u
    nearest = at + (u > 0.5) + width * (v > 0.5)
    return upper * (1.0 - v) + lower * v, photos.inside.ravel()[nearest]


def _mean_of_best(patches: npt.NDArray[np.float32], whole: Bools, paired: Bools) -> Floats:
    """Return (n, D): the mean ZNCC of the best pairs, NaN without any."""
    first, second = np.triu_indices(paired.shape[1], 1)
    alike = np.einsum("nids,njds->nijd", patches, patches, optimize=True)[:, first, second]
    counts = whole[:, first] & whole[:, second] & paired[:, first, second][..., None]
    ordered = -np.sort(-np.where(counts, alike, -2.0), axis=1)
    n_best = np.ceil(counts.sum(axis=1) * BEST_PAIRS).astype(np.int64)
    total = np.take_along_axis(
        np.cumsum(ordered, axis=1), np.maximum(n_best - 1, 0)[:, None], axis=1
    )[:, 0]
    return np.where(n_best > 0, total / np.maximum(n_best, 1), np.nan)
