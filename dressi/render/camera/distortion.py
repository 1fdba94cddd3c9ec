"""Radial-tangential lens distortion on the host: points and photos.

In: pixels or photos, K, the eight coefficients of OpenCV. Out: the same without distortion, or with
it. The model (Brown 1971; the rational form of OpenCV's calib3d): with x, y the pixel on the plane
z = 1 in front of an ideal camera and s = x^2 + y^2,

    g  = (1 + k1 s + k2 s^2 + k3 s^3) / (1 + k4 s + k5 s^2 + k6 s^3)
    x' = x g + 2 p1 x y + p2 (s + 2 x^2)
    y' = y g + p1 (s + 2 y^2) + 2 p2 x y

The model only means something out to the radius at which r g(r) stops growing: behind it the
picture folds over. Points behind it are errors. Differentiable counterpart: ``camera.lens``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt
from scipy.ndimage import map_coordinates

from dressi.errors import GraphError

Array = npt.NDArray[np.float64]

MAX_STEPS = 50
"""Newton steps of the inverse; from the radial solution a handful is enough."""

TOLERANCE = 1e-10
"""Largest distance, on the plane z = 1, between a distorted solution and its point."""


@dataclass(frozen=True)
class Distortion:
    """The coefficients, in OpenCV's order; all 0 is an ideal lens. Raises GraphError for NaN and
    infinity."""

    k1: float = 0.0
    k2: float = 0.0
    p1: float = 0.0
    p2: float = 0.0
    k3: float = 0.0
    k4: float = 0.0
    k5: float = 0.0
    k6: float = 0.0

    def __post_init__(self) -> None:
        values = np.asarray(self.coefficients, np.float64)
        if not np.isfinite(values).all():
            raise GraphError(f"distortion coefficients must be finite, got {values.tolist()}")

    @property
    def coefficients(self) -> tuple[float, ...]:
        """(k1, k2, p1, p2, k3, k4, k5, k6)."""
        return astuple(self)

    @property
    def is_none(self) -> bool:
        """Whether all coefficients are 0."""
        return not any(self.coefficients)

    def max_radius(self) -> float:
        """Radius on the plane z = 1 up to which r g(r) grows; infinity for mild coefficients."""
        numerator = np.polynomial.Polynomial([1.0, self.k1, self.k2, self.k3])
        denominator = np.polynomial.Polynomial([1.0, self.k4, self.k5, self.k6])
        s = np.polynomial.Polynomial([0.0, 1.0])
        # d/dr of r N(s) / D(s), times D^2: it vanishes, or D does, at the end of the range.
        slope = numerator * denominator + 2.0 * s * (
            numerator.deriv() * denominator - numerator * denominator.deriv()
        )
        roots = np.concatenate([slope.trim().roots(), denominator.trim().roots()])
        real = roots.real[(np.abs(roots.imag) < 1e-9 * (1.0 + np.abs(roots))) & (roots.real > 0)]
        return float(np.sqrt(real.min())) if len(real) else float("inf")

    def apply(self, xy: npt.ArrayLike) -> Array:
        """Distorted positions on the plane z = 1. xy: (..., 2) ideal ones. No range is checked."""
        x, y = np.moveaxis(np.asarray(xy, np.float64), -1, 0)
        s = x * x + y * y
        g = self._gain(s)
        new_x = x * g + 2.0 * self.p1 * x * y + self.p2 * (s + 2.0 * x * x)
        new_y = y * g + self.p1 * (s + 2.0 * y * y) + 2.0 * self.p2 * x * y
        return np.stack([new_x, new_y], axis=-1)

    def _gain(self, s: Array) -> Array:
        top = 1.0 + s * (self.k1 + s * (self.k2 + s * self.k3))
        return np.asarray(top / (1.0 + s * (self.k4 + s * (self.k5 + s * self.k6))))

    def jacobian(self, xy: npt.ArrayLike) -> Array:
        """(..., 2, 2) derivative of ``apply``."""
        x, y = np.moveaxis(np.asarray(xy, np.float64), -1, 0)
        s = x * x + y * y
        bottom = 1.0 + s * (self.k4 + s * (self.k5 + s * self.k6))
        g = self._gain(s)
        dtop = self.k1 + s * (2.0 * self.k2 + s * 3.0 * self.k3)
        dbottom = self.k4 + s * (2.0 * self.k5 + s * 3.0 * self.k6)
        dg = (dtop - g * dbottom) / bottom  # by s
        p1, p2 = self.p1, self.p2
        out = np.empty((*np.shape(x), 2, 2))
        out[..., 0, 0] = g + 2.0 * x * x * dg + 2.0 * p1 * y + 6.0 * p2 * x
        out[..., 0, 1] = 2.0 * x * y * dg + 2.0 * p1 * x + 2.0 * p2 * y
        out[..., 1, 0] = out[..., 0, 1]
        out[..., 1, 1] = g + 2.0 * y * y * dg + 6.0 * p1 * y + 2.0 * p2 * x
        return out

    def invert(self, xy: npt.ArrayLike) -> tuple[Array, npt.NDArray[np.bool_]]:
        """Ideal positions of distorted ones, and which of them were found.

        xy: (..., 2) on the plane z = 1. The radial part is solved by bisection in the range where
        it grows, then both parts by Newton's method. Found means: distorting the answer gives xy to
        TOLERANCE, inside ``max_radius`` and where the map does not fold. Others are NaN.
        """
        target = np.asarray(xy, np.float64)
        flat = target.reshape(-1, 2)
        found = np.asarray(np.isfinite(flat).all(axis=1))
        safe = np.where(found[:, None], flat, 0.0)
        limit = self.max_radius()
        ideal = self._radial_start(safe, limit)
        for _ in range(MAX_STEPS):
            miss = self.apply(ideal) - safe
            if np.abs(miss).max(initial=0.0) < 0.01 * TOLERANCE:
                break
            (a, b), (c, d) = np.moveaxis(self.jacobian(ideal), 0, -1)
            det = a * d - b * c
            det = np.where(np.abs(det) < 1e-12, 1e-12, det)
            step = np.stack([d * miss[:, 0] - b * miss[:, 1], a * miss[:, 1] - c * miss[:, 0]], 1)
            step /= det[:, None]
            length = np.linalg.norm(step, axis=1, keepdims=True)
            ideal = ideal - step * np.minimum(1.0, 0.5 / np.maximum(length, 1e-300))
        with np.errstate(over="ignore", invalid="ignore"):
            off = np.linalg.norm(self.apply(ideal) - safe, axis=1)
            (a, b), (c, d) = np.moveaxis(self.jacobian(ideal), 0, -1)
            inside = np.linalg.norm(ideal, axis=1) < limit
            found &= (off <= TOLERANCE) & inside & (a * d - b * c > 0.0)
        ideal[~found] = np.nan
        return ideal.reshape(target.shape), found.reshape(target.shape[:-1])

    def _radial_start(self, xy: Array, limit: float) -> Array:
        """Where the radial part alone would put the points, by bisection."""
        radius = np.linalg.norm(xy, axis=1)
        high = np.full(len(xy), limit if np.isfinite(limit) else 1.0)
        if not np.isfinite(limit):
            for _ in range(60):
                short = high * self._gain(high * high) < radius
                if not short.any():
                    break
                high = np.where(short, 2.0 * high, high)
        low = np.zeros(len(xy))
        for _ in range(40):
            middle = 0.5 * (low + high)
            beyond = middle * self._gain(middle * middle) > radius
            high, low = np.where(beyond, middle, high), np.where(beyond, low, middle)
        return np.asarray(xy * (0.5 * (low + high) / np.where(radius > 0, radius, 1.0))[:, None])


NO_DISTORTION = Distortion()


def _intrinsics(K: npt.ArrayLike, where: str) -> Array:
    k = np.asarray(K, np.float64)
    if k.shape != (3, 3) or not np.isfinite(k).all():
        raise GraphError(f"{where}: K must be (3, 3) and finite, got {k.tolist()}")
    if not (k[0, 0] > 0 and k[1, 1] > 0) or k[1, 0] != 0 or k[2].tolist() != [0, 0, 1]:
        raise GraphError(
            f"{where}: K must be [[fx, skew, cx], [0, fy, cy], [0, 0, 1]] with fx, fy > 0, "
            f"got {k.tolist()}"
        )
    return k


def _points(points: npt.ArrayLike, where: str) -> Array:
    p = np.asarray(points, np.float64)
    if p.ndim < 1 or p.shape[-1] != 2:
        raise GraphError(f"{where}: points must be (..., 2) pixels, got {p.shape}")
    if not np.isfinite(p).all():
        raise GraphError(f"{where}: a point is not finite")
    return p


def _to_plane(points: Array, k: Array) -> Array:
    y = (points[..., 1] - k[1, 2]) / k[1, 1]
    return np.stack([(points[..., 0] - k[0, 2] - k[0, 1] * y) / k[0, 0], y], axis=-1)


def _to_pixels(xy: Array, k: Array) -> Array:
    x, y = xy[..., 0], xy[..., 1]
    return np.stack([k[0, 0] * x + k[0, 1] * y + k[0, 2], k[1, 1] * y + k[1, 2]], axis=-1)


def distort_points(points: npt.ArrayLike, K: npt.ArrayLike, distortion: Distortion) -> Array:
    """(..., 2) pixels where a lens shows what an ideal camera of the same K shows at ``points``.

    points: (..., 2), pixels of K. Raises GraphError for points outside the range in which the
    coefficients mean something (``Distortion.max_radius``), wrong shapes and NaN.
    """
    k, p = _intrinsics(K, "distort_points"), _points(points, "distort_points")
    xy = _to_plane(p, k)
    radius, limit = np.linalg.norm(xy, axis=-1), distortion.max_radius()
    if (radius >= limit).any():
        worst = p.reshape(-1, 2)[int(np.argmax(radius))]
        raise GraphError(
            f"distort_points: the coefficients hold up to a radius of {limit:.4g} on the plane "
            f"z = 1, point {worst.tolist()} lies at {radius.max():.4g}"
        )
    return _to_pixels(distortion.apply(xy), k)


def undistort_points(points: npt.ArrayLike, K: npt.ArrayLike, distortion: Distortion) -> Array:
    """(..., 2) pixels where an ideal camera of the same K shows what a lens shows at ``points``.

    points: (..., 2), pixels of K. The inverse of ``distort_points``, found by iteration; each
    answer is checked by distorting it again. Raises GraphError naming the first point for which
    there is none: it lies outside of what the lens can show with these coefficients.
    """
    k, p = _intrinsics(K, "undistort_points"), _points(points, "undistort_points")
    ideal, found = distortion.invert(_to_plane(p, k))
    if not found.all():
        first = p.reshape(-1, 2)[int(np.argmin(found.reshape(-1)))]
        raise GraphError(
            f"undistort_points: {int((~found).sum())} of {found.size} points have no place in an "
            f"ideal picture with the coefficients {distortion.coefficients}; the first is "
            f"{first.tolist()} (they hold up to a radius of {distortion.max_radius():.4g})"
        )
    return _to_pixels(ideal, k)


def _resample(image: npt.ArrayLike, at: Array, order: int) -> tuple[npt.NDArray[np.float32], Array]:
    """Values at (H, W, 2) index coordinates (x, y), 0 outside; and which lie inside."""
    source = np.asarray(image, np.float32)
    pixels = source[..., None] if source.ndim == 2 else source
    if pixels.ndim != 3 or not np.isfinite(pixels).all():
        raise GraphError(f"an image must be (H, W) or (H, W, C) and finite, got {source.shape}")
    height, width = pixels.shape[:2]
    x, y = at[..., 0], at[..., 1]
    # Half a pixel beyond the outer centres is still the picture; there the border counts.
    inside = (x >= -0.5) & (x <= width - 0.5) & (y >= -0.5) & (y <= height - 0.5)
    where = [np.clip(np.where(inside, y, 0), 0, height - 1)]
    where.append(np.clip(np.where(inside, x, 0), 0, width - 1))
    out = np.stack(
        [map_coordinates(pixels[..., c], where, order=order) for c in range(pixels.shape[2])],
        axis=-1,
    )
    out = np.where(inside[..., None], out, 0.0).astype(np.float32)
    return (out[..., 0] if source.ndim == 2 else out), inside


def _warped(
    where: str,
    image: npt.ArrayLike,
    K: npt.ArrayLike,
    new_K: npt.ArrayLike | None,
    size: tuple[int, int] | None,
    pixel_center: float,
    order: int,
    source_of: Callable[[Array], tuple[Array, npt.NDArray[np.bool_]]],
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Resample a photo of K into one of new_K. source_of: for positions on the plane z = 1 of the
    new photo those of the given one, and where there are any."""
    k = _intrinsics(K, where)
    new = k if new_K is None else _intrinsics(new_K, f"{where}, new_K")
    width, height = np.shape(image)[1::-1] if size is None else size
    if width < 1 or height < 1:
        raise GraphError(f"{where}: the size must be at least 1x1, got {width}x{height}")
    grid = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1).astype(np.float64)
    xy, valid = source_of(_to_plane(grid + (0.5 - pixel_center), new))
    at = _to_pixels(np.where(valid[..., None], xy, 0.0), k) - (0.5 - pixel_center)
    picture, inside = _resample(image, np.where(valid[..., None], at, -1e9), order)
    return picture, inside.astype(bool)


def undistort_image(
    image: npt.ArrayLike,
    K: npt.ArrayLike,
    distortion: Distortion,
    *,
    new_K: npt.ArrayLike | None = None,
    size: tuple[int, int] | None = None,
    pixel_center: float = 0.5,
    order: int = 1,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """The photo that an ideal camera would have taken, and a mask of the pixels that it shows.

    image: (H, W) or (H, W, C), linear colours. K: of the photo, pixels. new_K, size: of the ideal
    camera, default the photo's; size = (width, height). pixel_center: 0.5 where K gives a pixel's
    centre integer coordinates (OpenCV), 0 where it gives the corner (0, 0) (COLMAP), as in
    ``from_opencv``. order: of the spline, 1 is bilinear. Pixels outside the photo or the range of
    the coefficients are 0, mask False. Raises GraphError.
    """

    def through_lens(xy: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
        valid = np.asarray(np.linalg.norm(xy, axis=-1) < distortion.max_radius())
        return distortion.apply(np.where(valid[..., None], xy, 0.0)), valid

    where = "undistort_image"
    return _warped(where, image, K, new_K, size, pixel_center, order, through_lens)


def distort_image(
    image: npt.ArrayLike,
    K: npt.ArrayLike,
    distortion: Distortion,
    *,
    new_K: npt.ArrayLike | None = None,
    size: tuple[int, int] | None = None,
    pixel_center: float = 0.5,
    order: int = 1,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """The photo that a lens takes, from one of an ideal camera, and a mask of the pixels known.

    image: (H, W) or (H, W, C) of an ideal camera K. new_K, size: of the lens, default the same. The
    rest as in ``undistort_image``. Raises GraphError.
    """
    where = "distort_image"
    return _warped(where, image, K, new_K, size, pixel_center, order, distortion.invert)
