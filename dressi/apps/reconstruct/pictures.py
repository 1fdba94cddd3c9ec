"""Pictures that a shape is fitted to: silhouettes, and what else is known of each pixel."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError

Floats = npt.NDArray[np.float32]

ROOM = 0.9
"""Share of a picture's pixels from which on a part of it is not worth a copy."""


@dataclass(frozen=True, eq=False)
class Pictures:
    """n views of one object. matrices: (n, 4, 4) world to clip. coverage: (n, H, W, 1) in [0, 1].

    What may be given beside: normals: (n, H, W, 3), mean world normal of the pixel's surface times
    coverage (the difference of pictures that are lit from opposite sides, along x, y and z).
    colour: (n, H, W, 3), linear, over black. depth: (n, H, W, 1), w of clip space (the distance
    along the camera's axis), 0 where it is not known. weights: (n, H, W, 1), of each pixel's loss.
    """

    matrices: npt.NDArray[np.float64]
    coverage: Floats
    normals: Floats | None = None
    colour: Floats | None = None
    depth: Floats | None = None
    weights: Floats | None = None

    def __post_init__(self) -> None:
        if self.coverage.ndim != 4 or self.coverage.shape[3] != 1 or len(self.coverage) == 0:
            raise GraphError(
                f"Pictures: coverage must be (views, H, W, 1), got {self.coverage.shape}"
            )
        if self.matrices.shape != (len(self.coverage), 4, 4):
            raise GraphError(
                f"Pictures: {len(self.coverage)} views need matrices "
                f"({len(self.coverage)}, 4, 4), got {self.matrices.shape}"
            )
        for name, n in (("normals", 3), ("colour", 3), ("depth", 1), ("weights", 1)):
            given, shape = getattr(self, name), (*self.coverage.shape[:3], n)
            if given is not None and given.shape != shape:
                raise GraphError(f"Pictures: {name} must be {shape}, got {given.shape}")

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) in pixels."""
        return self.coverage.shape[2], self.coverage.shape[1]

    def __len__(self) -> int:
        return len(self.coverage)

    def take(self, views: npt.ArrayLike) -> Pictures:
        """Return some of the views."""
        rows = np.asarray(views, np.int64)
        some = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: v[rows] for k, v in some.items() if v is not None})

    def placed(self, place: npt.NDArray[np.float64]) -> Pictures:
        """Return the pictures for positions p with ``place @ p`` in the world that they are of.
        place: (4, 4)."""
        return replace(self, matrices=self.matrices @ place)

    def cropped(self, points: npt.ArrayLike, margin: float = 0.08) -> Pictures:
        """Return the parts of the pictures that show the object, all of one size.

        Cameras stand where they stood: a part of a photo is that of a shifted, longer lens. points:
        (N, 3), what is to stay in the pictures beside the masks: a start. margin: what is kept
        around that, of its longer side. The pictures themselves where the parts are no smaller, and
        where a point lies behind a camera.
        """
        boxes = self._boxes(np.asarray(points, np.float64))
        if boxes is None:
            return self
        low, high = boxes
        whole, sides = np.asarray(self.size), (high - low).max(0)
        sides = np.minimum(np.ceil(sides + 2.0 * margin * sides.max()), whole).astype(np.int64)
        if sides.prod() > ROOM * whole.prod():
            return self
        corners = np.clip(np.round((low + high - sides) / 2.0), 0, whole - sides).astype(np.int64)
        parts = {
            f.name: _windows(given, corners, sides)
            for f in fields(self)
            for given in [getattr(self, f.name)]
            if f.name != "matrices" and given is not None
        }
        # Of a pixel u, (2 u - 2 corner) / sides - 1 in the part is (2 u) / whole - 1 in the whole.
        zoom = np.tile(np.eye(4), (len(self), 1, 1))
        zoom[:, [0, 1], [0, 1]] = whole / sides
        zoom[:, :2, 3] = (whole - 2.0 * corners) / sides - 1.0
        return replace(self, matrices=zoom @ self.matrices, **parts)

    def _boxes(
        self, points: npt.NDArray[np.float64]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None:
        """Return lowest and highest corner, (n, 2) pixels, of points and masks together in each
        picture; None where a point lies behind a camera."""
        clip = points @ self.matrices[:, :, :3].transpose(0, 2, 1) + self.matrices[:, None, :, 3]
        if not (clip[..., 3] > 0.0).all():
            return None
        place = (clip[..., :2] / clip[..., 3:] + 1.0) / 2.0 * np.asarray(self.size)
        low, high = place.min(1), place.max(1)
        for k, mask in enumerate(self.coverage[..., 0] > 0.0):
            rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
            if len(rows):
                low[k] = np.minimum(low[k], [columns[0], rows[0]])
                high[k] = np.maximum(high[k], [columns[-1] + 1, rows[-1] + 1])
        return np.clip(low, 0, self.size), np.clip(high, 0, self.size)

    def shrunk(self, longer: int) -> Pictures:
        """Return the pictures with a longer side of at most so many pixels (means over areas)."""
        if max(self.size) <= longer:
            return self
        depth = self.depth
        if depth is not None:  # the mean over what is known
            known = shrink((depth > 0.0).astype(np.float32), longer)
            depth = np.divide(
                shrink(depth, longer), known, out=np.zeros_like(known), where=known > 0.5
            )
        small = {
            name: None if given is None else shrink(given, longer)
            for name in ("coverage", "normals", "colour", "weights")
            for given in [getattr(self, name)]
        }
        assert small["coverage"] is not None
        return Pictures(self.matrices, depth=depth, **small)  # type: ignore[arg-type]


def _windows(
    images: npt.NDArray[np.float32], corners: npt.NDArray[np.int64], sides: npt.NDArray[np.int64]
) -> Floats:
    """Return (n, *sides reversed, C): a window of each image. corners: (n, 2) pixels."""
    ends = corners + sides
    pairs = zip(images, corners, ends, strict=True)
    return np.stack([one[y:v, x:u] for one, (x, y), (u, v) in pairs])


def shrink(images: npt.NDArray[np.floating], longer: int) -> Floats:
    """Return (n, H, W, C) images with the given longer side: means over areas, exact where a pixel
    covers parts of others too. The aspect is kept as well as whole pixels can."""
    _, height, width, _ = images.shape
    factor = longer / max(height, width)
    if factor >= 1.0:
        return images.astype(np.float32)
    rows, columns = (max(round(side * factor), 1) for side in (height, width))
    by_rows = np.einsum("ph,nhwc->npwc", _means(height, rows), images, optimize=True)
    return np.einsum("qw,npwc->npqc", _means(width, columns), by_rows, optimize=True).astype(
        np.float32
    )


def _means(n: int, m: int) -> npt.NDArray[np.float32]:
    """(m, n): row k holds how much of each of n pixels lies in pixel k of m, as a mean."""
    edges = np.arange(m + 1) * (n / m)
    pixel = np.arange(n)
    high = np.minimum(edges[1:, None], pixel + 1.0)
    overlap = np.maximum(high - np.maximum(edges[:-1, None], pixel), 0.0)
    return np.asarray(overlap * (m / n), np.float32)
