"""Silhouettes of an object photographed against a dark background, and their visual hull.

In: photos, calibrated in OpenCV's convention (K gives pixel centres integer coordinates). Out:
masks for the silhouette loss, and a voxel grid that tells whether masks and cameras agree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from dressi.errors import GraphError
from dressi.render.io.images import linear_to_srgb, srgb_to_linear
from dressi.render.io.local_background import like_background

Mask = npt.NDArray[np.float32]

BACKGROUND_SHARE = 99.0
"""Per cent of the background that lies below the threshold."""
NOISE = 0.03
"""And how far, in sRGB, the threshold lies above that: what noise and blur add."""
FOOT_PX = 2
"""Pixels between a background that is told place by place and what differs from all of it: the foot
of a blurred edge."""
NARROW_PX = 2.0
"""Half the width of a line of background that is as good as none."""
_BLOCK = 1 << 15
"""Points that are projected at once: what is made on the way stays in the processor's cache."""
LEAST = 0.1
"""Smallest threshold: what differs less is blur, or as good as the background."""


def photo_mask(
    image: npt.ArrayLike,
    threshold: float | None = None,
    dilate_px: float = 0.0,
    erode_px: float = 0.0,
    fill_holes: bool = False,
    *,
    max_hole_px: int | None = None,
    edge_px: float = 4.0,
    linear: bool = True,
    within: npt.ArrayLike | None = None,
    background: npt.ArrayLike | None = None,
) -> Mask:
    """(H, W) float32 mask, 1 on the object: the largest region that is unlike the background.

    image: (H, W, 3) or (H, W), colours in [0, 1]; an alpha channel (H, W, 4) is the mask. The
    background is what lies along the frame, dark, grey or bright. threshold: on the largest
    difference of a channel to its median, as an sRGB value; None: ``background_of`` tells the
    background place by place. dilate_px, erode_px: radii of discs.
    Dilating closes shadows that are open to the background; eroding by as much takes the outline
    back to its place. fill_holes: fill enclosed holes; with max_hole_px only those of at most so
    many pixels after dilating. One photo cannot tell a shadow from an opening: where there are
    several, ``object_masks`` asks the others. edge_px: a low threshold lies on the outer foot of a
    blurred edge, so up to this many pixels are taken off where they differ less from the background
    than half of the largest linear difference near them, which is where the outline is; 0 leaves
    them. linear: the image is linear (what ``read_image`` gives); False: it holds sRGB values.
    within: (H, W), pixels that can be in the mask; None: all. background: (H, W), pixels that are
    background, where they are known already; threshold is not used then.

    The frame's border is no background for that: the object is not eroded from there where it
    leaves the frame, and a region that touches the border is no hole.
    Raises GraphError (shape, NaN, negative radius, nothing above the threshold).
    """
    array = np.asarray(image, dtype=np.float64)
    if array.ndim not in (2, 3) or array.size == 0:
        raise GraphError(f"photo_mask needs (H, W) or (H, W, C), got {array.shape}")
    if not np.isfinite(array).all():
        raise GraphError("photo_mask: the image holds NaN or infinity")
    if not min(dilate_px, erode_px, edge_px) >= 0.0:
        raise GraphError(f"photo_mask needs radii >= 0, got {dilate_px}, {erode_px}, {edge_px}")
    allowed = np.ones(array.shape[:2], bool) if within is None else np.asarray(within) > 0.5
    if array.ndim == 3 and array.shape[2] == 4 and array[..., 3].min() < 1.0:
        return ((array[..., 3] > 0.5) & allowed).astype(np.float32)
    difference, value = _differences(array, linear)
    mask = _unlike(array, difference, threshold, background, linear) & allowed
    if not mask.any():
        by = "" if threshold is None else f" by {threshold:.3g} (sRGB)"
        raise GraphError(f"photo_mask: no pixel differs from the background{by}")
    mask = _largest(mask)  # or dilating would join dust and reflections to the object
    if dilate_px > 0.0:
        mask = ndimage.distance_transform_edt(~mask) <= dilate_px
    if fill_holes:
        mask = mask | _holes(mask, max_hole_px)
    # The distance to the background inside the frame: the border itself erodes nothing.
    if erode_px > 0.0 and not mask.all():
        mask = ndimage.distance_transform_edt(mask) > erode_px
    if edge_px > 0.0 and mask.any() and not mask.all():
        mask = _trimmed(mask, value, edge_px)
        if fill_holes:
            mask = mask | _holes(mask, max_hole_px)
    if not mask.any():
        raise GraphError(f"photo_mask: eroding by {erode_px} pixels leaves nothing")
    return _largest(mask & allowed).astype(np.float32)


def _unlike(
    array: npt.NDArray[np.float64],
    difference: npt.NDArray[np.float64],
    threshold: float | None,
    background: npt.ArrayLike | None,
    linear: bool,
) -> npt.NDArray[np.bool_]:
    """Return (H, W) bool, the pixels that are not background; arguments as in ``photo_mask``."""
    if background is not None:
        return np.asarray(~(np.asarray(background) > 0.5))
    if threshold is not None:
        return np.asarray(difference > threshold)
    return ~background_of(array, linear=linear)


def _trimmed(
    mask: npt.NDArray[np.bool_], value: npt.NDArray[np.float64], edge_px: float
) -> npt.NDArray[np.bool_]:
    """Return the mask without the dim half of its blurred edge."""
    near = ndimage.maximum_filter(value, size=2 * int(np.ceil(edge_px)) + 3)
    inner = ndimage.distance_transform_edt(~_wide(~mask)) > edge_px
    return np.asarray(mask & (inner | (value > 0.5 * near)))


def background_of(image: npt.ArrayLike, *, linear: bool = True) -> npt.NDArray[np.bool_]:
    """Return (H, W) bool, the pixels that are like the background around them.

    image, linear: as for ``photo_mask``. The background grows from the frame
    (``like_background``) and differs from place to place; it lies below the ``histogram_threshold``
    of the whole photo, too, and so does the foot of a blurred edge.
    """
    array = np.asarray(image, np.float64)
    colors = array[..., None] if array.ndim == 2 else array[..., :3]
    difference, _ = _differences(array, linear)
    encoded = linear_to_srgb(colors) if linear else colors
    most = histogram_threshold(array, linear=linear)
    low = difference <= most
    alike = like_background(encoded, most) & low
    return np.asarray(ndimage.binary_dilation(alike, iterations=FOOT_PX) & low)


def histogram_threshold(image: npt.ArrayLike, *, linear: bool = True) -> float:
    """The difference to the background, an sRGB value, above which a pixel is the object's.

    image, linear: as for ``photo_mask``. Otsu's threshold (1979) tells what is plainly the object.
    What lies below it and is joined to the frame is background, whatever it looks like: a table, a
    cloth. The threshold is just above nearly all of that, so that the object's shadows stay with
    the object.
    """
    difference, _ = _differences(np.asarray(image, dtype=np.float64), linear)
    plain = _otsu(difference)
    below = difference <= plain
    labels, _ = ndimage.label(below)
    frame = np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]])
    joined = np.isin(labels, np.setdiff1d(frame, [0]))
    away = max(0.01 * max(difference.shape), 2.0)
    if below.all() or not joined.any():
        return plain
    far = joined & (ndimage.distance_transform_edt(below) > away)
    if not far.any():
        return plain
    level = float(np.percentile(difference[far], BACKGROUND_SHARE))
    return float(min(max(level + NOISE, LEAST), plain))


def _otsu(values: npt.NDArray[np.float64]) -> float:
    """The threshold that splits values in [0, 1] into two classes farthest apart."""
    counts, edges = np.histogram(values, 256, (0.0, 1.0))
    middle = 0.5 * (edges[1:] + edges[:-1])
    below = np.cumsum(counts)[:-1]
    above = below[-1] + counts[-1] - below
    sums = np.cumsum(counts * middle)
    total = sums[-1]
    means = sums[:-1] / np.maximum(below, 1), (total - sums[:-1]) / np.maximum(above, 1)
    spread = below * above * (means[1] - means[0]) ** 2.0
    best = np.flatnonzero(spread == spread.max())  # a gap in the histogram: its middle
    return float(0.5 * (edges[best[0] + 1] + edges[best[-1] + 1]))


def _differences(
    array: npt.NDArray[np.float64], linear: bool
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(H, W) largest difference of a channel to the background's colour, sRGB and linear."""
    colors = array[..., None] if array.ndim == 2 else array[..., :3]
    encoded = linear_to_srgb(colors) if linear else colors
    value = colors if linear else srgb_to_linear(colors)
    out = []
    for a in (encoded, value):
        frame = np.concatenate([a[0], a[-1], a[:, 0], a[:, -1]])
        out.append(np.abs(a - np.median(frame, axis=0)).max(axis=-1))
    return out[0], out[1]


def _largest(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    labels, _ = ndimage.label(mask, structure=np.ones((3, 3)))
    sizes = np.bincount(labels.ravel())
    sizes[0] = 0
    return np.asarray(labels == sizes.argmax())


def _wide(background: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the background without what is narrow: lines along which a colour of the object passes
    that of the background, which have no blurred edge."""
    core = ndimage.distance_transform_edt(background) > NARROW_PX
    if not core.any():
        return background
    return np.asarray(background & (ndimage.distance_transform_edt(~core) <= NARROW_PX + 1.0))


def _holes(mask: npt.NDArray[np.bool_], max_px: int | None) -> npt.NDArray[np.bool_]:
    """The regions that the mask encloses; one that touches the frame is not enclosed."""
    labels, _ = ndimage.label(~mask)  # 4-connected: a hole does not leak through a diagonal
    sizes = np.bincount(labels.ravel())
    is_hole = sizes <= (mask.size if max_px is None else max_px)
    is_hole[0] = False
    border = (labels[0], labels[-1], labels[:, 0], labels[:, -1])
    is_hole[np.unique(np.concatenate(border))] = False
    return np.asarray(is_hole[labels])


def pixels_of(
    points: npt.NDArray[np.float64], K: npt.ArrayLike, R: npt.ArrayLike, t: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """(N, 2) pixel (x, y) in K's own coordinates; NaN behind the camera."""
    k, r, shift = (np.asarray(a, np.float64) for a in (K, R, t))
    out = np.empty((len(points), 2))
    for start in range(0, len(points), _BLOCK):
        camera = points[start : start + _BLOCK] @ r.T + shift
        image = camera @ k.T
        depth = np.where(camera[:, 2:] > 0.0, image[:, 2:], np.nan)
        np.divide(image[:, :2], depth, out=out[start : start + _BLOCK])
    return out


def in_frame(pixel: npt.NDArray[np.float64], shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """(N,) whether pixels (N, 2), (x, y), lie in a photo of ``shape`` (rows, columns); NaN does
    not. Column by column: ``all`` over an axis of two takes ten times as long."""
    x, y = pixel.T
    return np.asarray((x > -0.5) & (y > -0.5) & (x < shape[1] - 0.5) & (y < shape[0] - 0.5))


def voxel_centers(bbox: npt.ArrayLike, resolution: int) -> npt.NDArray[np.float64]:
    """(n, n, n, 3) centres of the cells that split ``bbox`` (2, 3) n times along x, y and z."""
    low, high = np.asarray(bbox, dtype=np.float64)
    steps = (np.arange(resolution) + 0.5) / resolution
    grid = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1)
    return np.asarray(low + grid * (high - low))


def hull_cells(
    masks: Sequence[npt.ArrayLike],
    Ks: Sequence[npt.ArrayLike],
    Rs: Sequence[npt.ArrayLike],
    ts: Sequence[npt.ArrayLike],
    bbox: npt.ArrayLike,
    resolution: int = 128,
) -> npt.NDArray[np.bool_]:
    """(n, n, n) bool, indexed [x, y, z]: the cells that no mask rules out (space carving).

    masks: (H, W) each, object where > 0.5. Ks, Rs, ts: OpenCV cameras, x_cam = R x + t.
    bbox: (2, 3), smallest and largest corner, world units. resolution: n cells along each axis.
    A cell is carved where its centre falls on background; what a camera does not see (outside its
    frame, behind it) it cannot carve, as the object may leave the frame.
    Raises GraphError where the lists differ in length or the box is empty.
    """
    if not len(masks) == len(Ks) == len(Rs) == len(ts):
        counts = f"{len(masks)} masks, {len(Ks)} Ks, {len(Rs)} Rs, {len(ts)} ts"
        raise GraphError(f"hull_cells needs one camera for each mask, got {counts}")
    box = np.asarray(bbox, dtype=np.float64)
    if box.shape != (2, 3) or not (box[1] > box[0]).all() or resolution < 1:
        raise GraphError(f"hull_cells: empty box {box.tolist()} or resolution {resolution}")
    centers = voxel_centers(box, resolution).reshape(-1, 3)
    alive = np.arange(len(centers))
    for mask, k, rotation, translation in zip(masks, Ks, Rs, ts, strict=True):
        inside = np.asarray(mask) > 0.5
        height, width = inside.shape
        pixel = pixels_of(centers[alive], k, rotation, translation)
        seen = in_frame(pixel, inside.shape)
        x, y = np.rint(pixel[seen]).astype(np.int64).T
        keep = np.ones(len(alive), dtype=bool)
        keep[seen] = inside[y.clip(0, height - 1), x.clip(0, width - 1)]
        alive = alive[keep]
    hull = np.zeros(len(centers), dtype=bool)
    hull[alive] = True
    return hull.reshape((resolution,) * 3)


def hull_mask(
    hull: npt.NDArray[np.bool_],
    bbox: npt.ArrayLike,
    K: npt.ArrayLike,
    R: npt.ArrayLike,
    t: npt.ArrayLike,
    size: tuple[int, int],
) -> Mask:
    """(H, W) float32 silhouette of a voxel grid in one OpenCV camera, 1 where any cell projects.

    hull, bbox: as from ``hull_cells``. size: (width, height), pixels. Cells are drawn as dense
    grids of points, at least one per pixel.
    """
    width, height = size
    box = np.asarray(bbox, dtype=np.float64)
    surface = hull & ~ndimage.binary_erosion(hull)
    if not surface.any():
        return np.zeros((height, width), np.float32)
    n = np.array(hull.shape)
    cell = (box[1] - box[0]) / n
    low = box[0] + np.argwhere(surface) * cell
    spread = pixels_of(low, K, R, t) - pixels_of(low + cell, K, R, t)
    per_axis = int(np.clip(np.nanmax(np.abs(spread)) * 1.5, 1, 64)) + 1
    steps = (np.arange(per_axis) + 0.5) / per_axis
    mask = np.zeros((height, width), np.float32)
    for x in steps:
        for y in steps:
            for z in steps:
                pixel = pixels_of(low + np.array([x, y, z]) * cell, K, R, t)
                seen = in_frame(pixel, (height, width))
                at_x, at_y = np.rint(pixel[seen]).astype(np.int64).T
                mask[at_y.clip(0, height - 1), at_x.clip(0, width - 1)] = 1.0
    return mask
