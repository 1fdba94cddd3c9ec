"""The visual hull: the largest shape that no silhouette contradicts (Laurentini 1994), as a mesh.

In: masks of an object seen from several sides, and the matrices of the views. Out: a closed mesh
of the right genus, a start for a fit that has neither to be a sphere nor to change its topology.
The values of the grid are the smallest of the distances to the silhouettes, which ``silhouettes``
makes; ``isosurface`` makes triangles of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from dressi.errors import GraphError
from dressi.render.fit.isosurface import touches_sides, without_small_parts
from dressi.render.fit.orderly_grid import orderly_isosurface
from dressi.render.fit.silhouettes import (
    BATCH,
    Floats,
    Silhouettes,
    distances_in_views,
    lowest_distances,
    silhouettes,
)
from dressi.render.fit.thin_parts import with_thin_joints, with_thin_parts
from dressi.render.fit.undecided_holes import without_undecided_holes
from dressi.render.scene import Mesh
from dressi.threads import in_threads

_BLOCK = 4
"""Points per side of a block that is tested as one: larger blocks are rarely far from all contours,
smaller ones cost more tests than they save."""
_VIEWS_PER_ERROR = 48
"""Default of disagreeing_views: one for so many views. Of fewer views each says much that no other
does, and may not be outvoted."""

_MAJORITY = 5
"""Views that must see a place, for each that may be outvoted there; half of all views must, too:
near the corners of the box few see anything, and one that carves there is right."""


def visual_hull(
    masks: npt.ArrayLike,
    matrices: npt.ArrayLike,
    resolution: int = 128,
    box: npt.ArrayLike | None = None,
    tolerance_px: float = 0.0,
    disagreeing_views: int | None = None,
    error_depth: float = 0.05,
    smoothing_px: float = 0.7,
    smallest_part: float = 0.01,
    name: str = "hull",
) -> Mesh:
    """Return the visual hull of the masks as a closed, manifold, oriented mesh.

    masks: (views, H, W, 1), coverage in [0, 1], 0.5 at the silhouette. matrices: (views, 4, 4)
    world to clip. resolution: cells of the grid along the box's longest side. box: (2, 3) lowest
    and highest corner, world units; None: found from the masks. tolerance_px: silhouettes are taken
    so much larger, for masks that cut off. What lies outside of a view's frame or behind its camera
    is not carved by that view; what fewer than two views see (without a box: fewer than half of
    them) is outside.

    disagreeing_views: where at most so many views carve, against all others that see the place, and
    deeper than error_depth times the box's longest side, their masks are taken to be wrong and the
    other views decide (half of all, and five times as many, must see the place): a hole in one mask
    makes no hole in the hull. None: one for every 48 views; 0: each view is believed. smoothing_px:
    see ``contour_distance``. smallest_part: parts whose volume is below this share of the largest
    part's are dropped, and so are cavities, which no silhouette can show, and holes of up to three
    cells all within a pixel of outlines, which are chance. The surface is in order: where faces
    would be flipped or cross at the size of a cell, it is smoothed (``orderly_grid``). What is
    thinner than a cell, down to a sheet without thickness, is made about a cell thick where masks
    show it, and joined where points of the grid meet it here and there only.

    Raises GraphError (shapes, values, nothing inside, the object reaches the box's sides).
    """
    views = silhouettes("visual_hull", masks, matrices, smoothing_px)
    wrong = views.n_views // _VIEWS_PER_ERROR if disagreeing_views is None else disagreeing_views
    _check_numbers(views.n_views, resolution, wrong, tolerance_px, error_depth, smallest_part)
    sides = _found_box(views) if box is None else np.asarray(box, np.float64)
    if sides.shape != (2, 3) or not (np.isfinite(sides).all() and (sides[1] > sides[0]).all()):
        raise GraphError(
            "visual_hull: box must be (2, 3), the lowest and the highest corner, got "
            f"{np.asarray(sides).tolist()}"
        )
    longest = float((sides[1] - sides[0]).max())
    spacing = longest / resolution
    n_points = np.maximum(np.ceil((sides[1] - sides[0]) / spacing - 1e-9).astype(int) + 1, 2)
    least = _half(views) if box is None else min(2, views.n_views)
    depth = error_depth * longest
    values = _grid_values(views, sides[0], spacing, n_points, wrong, tolerance_px, depth, least)
    with_thin_parts(values, views, sides[0], spacing, tolerance_px)
    with_thin_joints(values, views, sides[0], spacing, tolerance_px)
    inside = values > 0.0
    if not inside.any():
        raise GraphError(
            f"visual_hull: no point of the grid is inside of all {views.n_views} silhouettes in "
            f"the box {sides.tolist()}\n  hint: check the matrices (world to clip, y down), the "
            "box, or raise tolerance_px or the resolution"
        )
    if touches_sides(inside):
        raise GraphError(
            f"visual_hull: the object reaches the sides of the box {sides.tolist()}\n"
            "  hint: take a larger box; where no view limits the object, add a view that does"
        )
    values = without_small_parts(values, least_share=smallest_part)
    # Again: holes that are filled may close off cavities.
    values = without_small_parts(without_undecided_holes(values, _pixel(views, sides)))
    return orderly_isosurface(values, sides[0], spacing, name)


def _pixel(views: Silhouettes, box: Floats) -> float:
    """Size of a pixel in the middle of a box, of the median view, world units."""
    middle = box.mean(axis=0, keepdims=True)
    return 1.0 / float(np.median(distances_in_views(views, middle)[2]))


def _check_numbers(
    n_views: int, resolution: int, wrong: int, tolerance_px: float, depth: float, part: float
) -> None:
    """Raise GraphError for numbers that cannot be."""
    if not 4 <= resolution <= 1024:
        raise GraphError(f"visual_hull: resolution must be 4 to 1024, got {resolution}")
    if not 0 <= wrong < n_views:
        raise GraphError(
            f"visual_hull: disagreeing_views must be 0 to {n_views - 1} of {n_views}, got {wrong}"
        )
    if not np.isfinite(tolerance_px):
        raise GraphError(f"visual_hull: tolerance_px must be finite, got {tolerance_px}")
    for what, number in (("error_depth", depth), ("smallest_part", part)):
        if not 0.0 <= number <= 1.0:
            raise GraphError(f"visual_hull: {what} must be in [0, 1], got {number}")


def _grid_values(
    views: Silhouettes,
    low: Floats,
    spacing: float,
    n_points: npt.NDArray[np.int64],
    wrong: int,
    tolerance_px: float,
    error_depth: float,
    least_views: int,
) -> Floats:
    """(X, Y, Z): distances to the hull, nearly; world units, positive inside.

    A point that fewer than least_views see is outside.
    Only blocks that a contour may cross are read; others get the size of a block, with a sign.
    """
    blocks = -(-n_points // _BLOCK)
    state = _block_states(views, low, spacing, blocks, wrong, tolerance_px)
    shape = tuple(int(b) * _BLOCK for b in blocks)
    within = np.indices((_BLOCK,) * 3).reshape(3, -1).T
    open_blocks = np.stack(np.nonzero(state == 0), axis=1)
    at = (open_blocks[:, None] * _BLOCK + within).reshape(-1, 3)
    voters = min(max(_MAJORITY * wrong, views.n_views // 2), views.n_views)
    n = max(wrong + 1, least_views, voters)
    lowest, first = lowest_distances(views, low + at * spacing, n, tolerance_px)
    lowest[:, np.isinf(lowest[least_views - 1])] = -_BLOCK * spacing
    full = np.asarray(np.kron(state, np.ones((_BLOCK,) * 3)), np.float64) * (_BLOCK * spacing)
    full[tuple(at.T)] = lowest[0]
    if wrong:
        lowest[wrong, np.isinf(lowest[voters - 1])] = -_BLOCK * spacing
        trusted = np.full(shape, -_BLOCK * spacing)
        trusted[tuple(at.T)] = lowest[wrong]
        carver = np.full(shape, -1)
        carver[tuple(at.T)] = first
        _undo_errors(full, trusted, carver, error_depth)
    x, y, z = n_points
    return np.ascontiguousarray(full[:x, :y, :z])


def _undo_errors(
    values: Floats, trusted: Floats, carver: npt.NDArray[np.int64], depth: float
) -> None:
    """Replace values where a few views carve deeply against all others (in place).

    Regions per view, not points: only a region as a whole has a depth, and its rim must go with it.
    """
    alone = (values <= 0.0) & (trusted > 0.0)
    number = np.cumsum(alone).reshape(alone.shape) - 1
    pairs = []
    for axis in range(3):
        n = alone.shape[axis]
        ahead, behind = (
            [np.take(a, range(s, n - 1 + s), axis) for a in (alone, carver, number)] for s in (1, 0)
        )
        same = ahead[0] & behind[0] & (ahead[1] == behind[1])
        pairs.append(np.stack([behind[2][same], ahead[2][same]]))
    i, j = np.concatenate(pairs, axis=1)
    n_alone = int(alone.sum())
    graph = coo_matrix((np.ones(len(i)), (i, j)), shape=(n_alone, n_alone))
    n, region = connected_components(graph, directed=False)
    deepest = np.zeros(n)
    np.minimum.at(deepest, region, values[alone])
    values[alone] = np.where(deepest[region] < -depth, trusted[alone], values[alone])


def _block_states(
    views: Silhouettes,
    low: Floats,
    spacing: float,
    blocks: npt.NDArray[np.int64],
    wrong: int,
    tolerance_px: float,
) -> npt.NDArray[np.int8]:
    """(blocks): 1 certainly inside, -1 certainly outside, 0 not known."""
    n = int(np.prod(blocks))
    half = 0.5 * (_BLOCK - 1) * spacing
    centers = low + np.indices(tuple(blocks)).reshape(3, -1).T * (_BLOCK * spacing) + half
    # A cell beyond the block: what is interpolated across its sides must be the distances.
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    corners = signs * (half + spacing)
    state = np.zeros(n, np.int8)
    size = max(1, BATCH // views.n_views // len(corners))

    def fill(part: slice) -> None:
        distance, _, _, pixel = distances_in_views(views, centers[part])
        ends = distances_in_views(views, (centers[part, None] + corners).reshape(-1, 3))
        seen = ends[1].reshape(views.n_views, -1, 8)
        away = ends[3].reshape(views.n_views, -1, 8, 2) - pixel[:, :, None]
        # Distances change by a pixel per pixel; 1.5 for what the contour's pixels are off.
        reach = np.sqrt((away**2).sum(axis=3).max(axis=2)) + 1.5
        whole = seen.all(axis=2)
        upper = np.where(whole, distance + tolerance_px + reach, np.inf)
        lower = np.where(whole, distance + tolerance_px - reach, -np.inf)
        outside = np.partition(upper, wrong, axis=0)[wrong] < 0.0
        state[part] = np.where(outside, -1, (lower.min(axis=0) > 0.0).astype(int))

    in_threads(fill, [slice(start, start + size) for start in range(0, n, size)])
    return state.reshape(tuple(blocks))


def _found_box(views: Silhouettes) -> Floats:
    """(2, 3): a box around the hull, found on coarse grids. Raises GraphError."""
    middle, radius = _guessed_ball(views)
    half = _half(views)
    for _ in range(6):
        low, spacing = middle - radius, 2.0 * radius / 40
        values = _grid_values(views, low, spacing, np.full(3, 41), 0, 2.0, 0.0, half)
        # A thin part may lie between points of the coarse grid: half its diagonal is added.
        inside = values > -0.87 * spacing
        if not inside.any():
            break
        if not touches_sides(inside):
            at = np.stack(np.nonzero(inside), axis=1)
            return low + spacing * np.stack([at.min(axis=0) - 1.5, at.max(axis=0) + 1.5])
        radius *= 2.0
    raise GraphError(
        "visual_hull: the masks alone do not tell where the object is (they are empty, do not "
        "meet, or leave a side open)\n  hint: give the box"
    )


def _half(views: Silhouettes) -> int:
    """Views that must see a point where no box is given: few see what is beside a camera's way."""
    return -(-views.n_views // 2)


def _guessed_ball(views: Silhouettes) -> tuple[Floats, float]:
    """Middle and radius of a ball that holds the object, if the masks are right.

    The middle is the point nearest to the lines through the masks' middles; the radius is the
    largest that the masks have at it.
    """
    height, width = views.distances_px.shape[1:]
    system, right, reach = np.zeros((3, 3)), np.zeros(3), []
    for distance, matrix in zip(views.distances_px, views.matrices, strict=True):
        rows, columns = np.nonzero(distance > 0.0)
        if len(rows) == 0:
            continue
        box = np.array([[columns.min(), columns.max() + 1], [rows.min(), rows.max() + 1]], float)
        at = box.mean(axis=1) / [width, height] * 2.0 - 1.0
        # x - at w = 0 and y - at w = 0: two planes through the line of this pixel.
        planes = matrix[:2] - at[:, None] * matrix[3]
        line = np.linalg.svd(planes[:, :3])[2]
        across = line[:2]
        offset = np.linalg.lstsq(planes[:, :3] @ across.T, planes[:, 3], rcond=None)[0]
        system += across.T @ across
        right -= across.T @ offset
        reach.append((matrix, 0.5 * float(np.hypot(*(box[:, 1] - box[:, 0])))))
    if not reach:
        raise GraphError("visual_hull: all masks are empty")
    middle = np.linalg.lstsq(system, right, rcond=None)[0]
    radii = [
        pixels * max(float(m[3, :3] @ middle + m[3, 3]), 0.0)
        / (0.5 * width * np.linalg.norm(m[0, :3]))
        for m, pixels in reach
    ]  # fmt: skip
    radius = 1.25 * max(radii)  # the middle of a mask is not the middle of the object
    if not radius > 0.0:
        raise GraphError(
            "visual_hull: the masks alone do not tell where the object is; give the box"
        )
    return np.asarray(middle, np.float64), radius
