"""A renderer of another make: float64 NumPy, a plain z-buffer over S x S samples per pixel.

In: ``EdgeScene``. Out: pictures, and derivatives of a weighted sum of the picture by central
differences. It shares no formula with ``dressi.render``: faces are rasterized in homogeneous
coordinates (the weights of the corners solve a 3 x 3 system, so nothing is ever clipped), shading
happens per sample, and a pixel is the mean of its samples. Visibility is exact at every sample.
"""

from __future__ import annotations

import numpy as np

from dressi.testing.edge_scenes import EdgeScene

BLOCKS = (2, 4, 8, 16, 32)
"""Sides, in samples, of the blocks in which small faces are rasterized together."""
MOST = 1 << 21
"""Samples of blocks that are tested at once: arrays of 16 MB."""
DEPTH_STEPS = 2.0**40
"""Depths in [0, 1] that are told apart. The other bits of a key hold the number of the face."""
FACES = 1 << 22
NOTHING = np.iinfo(np.int64).max


def picture(scene: EdgeScene, positions: np.ndarray, samples: int) -> np.ndarray:
    """Return (H, W): the box-filtered picture of a scene with other positions."""
    w, h = scene.size
    shown = shaded_samples(scene, positions, samples)
    return shown.reshape(h, samples, w, samples).mean((1, 3))


def shaded_samples(scene: EdgeScene, positions: np.ndarray, samples: int) -> np.ndarray:
    """Return (H S, W S): the colour of every sample."""
    w, h = scene.size[0] * samples, scene.size[1] * samples
    clip = np.concatenate([positions, np.ones((len(positions), 1))], 1) @ scene.matrix.T
    corners = clip[scene.faces]
    ids = visible_faces(corners, w, h)
    rows = np.flatnonzero(ids >= 0)
    face = ids[rows]
    weights = _weights(_inverses(corners)[face], _ndc(rows % w, w), _ndc(rows // w, h))
    weights /= weights.sum(1, keepdims=True)
    out = np.full(w * h, float(scene.background))
    out[rows] = scene.colours(positions, face, weights)
    return out.reshape(h, w)


def visible_faces(corners: np.ndarray, w: int, h: int) -> np.ndarray:
    """Return (h w,): the nearest face at the centre of every sample, -1 for none. corners: (F, 3,
    4), clip space. Of equal depths the first face is taken."""
    keys = np.full(w * h, NOTHING)
    inverse = _inverses(corners)
    low, high = _bounds(corners, w, h)
    side = np.where((high > low).all(1), (high - low).max(1), 0)
    side[~np.isfinite(inverse).all((1, 2))] = 0
    done = side == 0
    for block in BLOCKS:
        mine = np.flatnonzero(~done & (side <= block))
        done[mine] = True
        for some in np.array_split(mine, max(1, -(-len(mine) * block * block // MOST))):
            _draw(keys, corners, inverse, some, low, (block, block), w, h)
    for face in np.flatnonzero(~done):
        size = high[face] - low[face]
        _draw(keys, corners, inverse, np.array([face]), low, (size[0], size[1]), w, h)
    return np.where(keys == NOTHING, -1, keys % FACES)


def _draw(
    keys: np.ndarray,
    corners: np.ndarray,
    inverse: np.ndarray,
    faces: np.ndarray,
    low: np.ndarray,
    block: tuple[int, int],
    w: int,
    h: int,
) -> None:
    """Lower the keys where faces are nearer. A key is the depth, then the number of the face."""
    y, x = np.indices(block[::-1]).reshape(2, 1, -1)
    x, y = low[faces, :1] + x, low[faces, 1:] + y
    # The three weights are linear in the place: a product per corner.
    m, px, py = inverse[faces], _ndc(x, w), _ndc(y, h)
    l0, l1, l2 = (m[:, k, :1] * px + m[:, k, 1:2] * py + m[:, k, 2:] for k in range(3))
    z = corners[faces, :, 2]
    depth = l0 * z[:, :1] + l1 * z[:, 1:2] + l2 * z[:, 2:]
    hit = (l0 >= 0) & (l1 >= 0) & (l2 >= 0) & (depth >= 0) & (depth <= 1) & (x < w) & (y < h)
    number = np.broadcast_to(faces[:, None], hit.shape)[hit]
    key = np.round(depth[hit] * DEPTH_STEPS).astype(np.int64) * FACES + number
    np.minimum.at(keys, (y * w + x)[hit], key)


def _inverses(corners: np.ndarray) -> np.ndarray:
    """Return (F, 3, 3): row k times (x, y, 1) is the weight of corner k over w. Not finite for a
    face without area."""
    m = corners[:, :, [0, 1, 3]].transpose(0, 2, 1)
    det = np.linalg.det(m)
    out = np.full(m.shape, np.nan)
    good = np.abs(det) > 1e-14
    out[good] = np.linalg.inv(m[good])
    return out


def _weights(inverse: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return inverse[..., 0] * x[:, None] + inverse[..., 1] * y[:, None] + inverse[..., 2]


def _ndc(index: np.ndarray, n: int) -> np.ndarray:
    return (2.0 * index + 1.0) / n - 1.0


def _bounds(corners: np.ndarray, w: int, h: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (F, 2) each: first sample and the one after the last that a face may cover; the whole
    picture for faces that reach behind the camera."""
    with np.errstate(divide="ignore", invalid="ignore"):
        place = (corners[:, :, :2] / corners[:, :, 3:] * 0.5 + 0.5) * (w, h)
    before = np.all(corners[:, :, 3] > 0, axis=1)[:, None]
    low = np.where(before, np.floor(place.min(1) - 0.5), 0)
    high = np.where(before, np.ceil(place.max(1) + 0.5), (w, h))
    return np.clip(low, 0, (w, h)).astype(int), np.clip(high, 0, (w, h)).astype(int)


def derivatives(scene: EdgeScene, samples: int, step: float) -> np.ndarray:
    """Return (parameters,): central differences of the weighted sum of the picture. step: pixels
    that the fastest vertex moves."""
    out = []
    for d in scene.directions:
        ends = (picture(scene, scene.positions + s * step * d, samples) for s in (1, -1))
        plus, minus = ((scene.weights * p).sum() for p in ends)
        out.append((plus - minus) / (2 * step))
    return np.array(out)
