"""A procedural pear with a painted texture: the target of the demonstration fits, without files.

In: nothing (all seeds fixed). Out: one closed mesh about 2 units high and a linear texture. The
shape is a surface of revolution whose profile includes the stem; the stem is then bent to one side.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.interpolate import CubicSpline
from scipy.spatial import cKDTree

from dressi.render.scene.mesh import Mesh

Array = npt.NDArray[np.float64]

# (radius, height) from the top of the stem to the calyx. The stem is 0.05 thick, not less, so that
# a sphere of 2562 vertices can grow it and it is about 10 pixels wide in a picture of 256 x 256.
_PROFILE = np.array(
    [
        (0.000, 1.000), (0.040, 0.995), (0.060, 0.965), (0.056, 0.900), (0.051, 0.800),
        (0.054, 0.715), (0.085, 0.672), (0.140, 0.660), (0.200, 0.615), (0.245, 0.520),
        (0.285, 0.380), (0.365, 0.190), (0.480, -0.030), (0.580, -0.260), (0.620, -0.480),
        (0.580, -0.700), (0.450, -0.880), (0.270, -0.975), (0.130, -0.985), (0.060, -0.945),
        (0.000, -0.930),
    ]
)  # fmt: skip
_NECK_HEIGHT = 0.66
_STEM_BEND = 0.13


def _surface(t: Array, angle: Array) -> Array:
    """Positions (..., 3) at profile parameter t in [0, 1] (top to bottom) and angle in radians."""
    chord = np.linalg.norm(np.diff(_PROFILE, axis=0), axis=1)
    knots = np.concatenate([[0.0], np.cumsum(chord)]) / chord.sum()
    radius, height = np.moveaxis(CubicSpline(knots, _PROFILE)(t), -1, 0)
    bend = _STEM_BEND * (np.maximum(height - _NECK_HEIGHT, 0.0) / (1.0 - _NECK_HEIGHT)) ** 2
    x, z = radius * np.cos(angle) + bend, -radius * np.sin(angle)
    return np.stack(np.broadcast_arrays(x, height, z), axis=-1)


def _shape(n_rings: int, n_around: int) -> Mesh:
    t = np.linspace(0.0, 1.0, n_rings + 2)
    angle = 2.0 * np.pi * np.arange(n_around) / n_around
    rings = _surface(t[1:-1, None], angle[None, :]).reshape(-1, 3)
    top, bottom = _surface(t[[0, -1]], np.zeros(2))
    positions = np.concatenate([rings, [top, bottom]])
    positions[:, 1] -= 0.5 * (positions[:, 1].min() + positions[:, 1].max())

    def quads(row_length: int, wrap: bool) -> npt.NDArray[np.int64]:
        i, j = np.meshgrid(np.arange(n_rings - 1), np.arange(n_around), indexing="ij")
        right = (j + 1) % n_around if wrap else j + 1
        a, b = i * row_length + j, i * row_length + right
        c, d = a + row_length, b + row_length
        return np.stack([a, c, b, b, c, d], axis=-1).reshape(-1, 3)

    j = np.arange(n_around)
    n_body, last = n_rings * n_around, (n_rings - 1) * n_around
    pole = np.full(n_around, n_body)
    top_fan = np.stack([pole, j, (j + 1) % n_around], axis=1)
    bottom_fan = np.stack([pole + 1, last + (j + 1) % n_around, last + j], axis=1)
    faces = np.concatenate([quads(n_around, True), top_fan, bottom_fan])

    # UVs: one column more than there are meridians (the seam), one pole UV for each face of a fan.
    columns = n_around + 1
    u, v = np.meshgrid(np.arange(columns) / n_around, t[1:-1])
    ring_uvs = np.stack([u, v], axis=-1).reshape(-1, 2)
    pole_u = (j + 0.5) / n_around
    top_uvs = np.stack([pole_u, np.zeros(n_around)], axis=1)
    bottom_uvs = np.stack([pole_u, np.ones(n_around)], axis=1)
    n_uv, last_uv = n_rings * columns, (n_rings - 1) * columns
    top_uv = np.stack([n_uv + j, j, j + 1], axis=1)
    bottom_uv = np.stack([n_uv + n_around + j, last_uv + j + 1, last_uv + j], axis=1)
    uv_faces = np.concatenate([quads(columns, False), top_uv, bottom_uv])
    uvs = np.concatenate([ring_uvs, top_uvs, bottom_uvs])
    return Mesh(positions.astype(np.float32), faces, uvs.astype(np.float32), uv_faces, "pear")


def _waves(points: Array, frequency: float, seed: int) -> Array:
    """Smooth noise of about [-1, 1]: a sum of plane waves, so it has no seam anywhere in space."""
    rng = np.random.default_rng(seed)
    total = np.zeros(points.shape[:-1])
    for _ in range(12):
        direction = rng.normal(size=3)
        direction *= frequency * rng.uniform(0.5, 1.5) / np.linalg.norm(direction)
        total += np.sin(points @ direction + rng.uniform(0.0, 2.0 * np.pi))
    return total / 4.0


def _smooth(low: float, high: float, x: Array) -> Array:
    s = np.clip((x - low) / (high - low), 0.0, 1.0)
    return s * s * (3.0 - 2.0 * s)


def _paint(size: int) -> npt.NDArray[np.float32]:
    """(size, size, 3) linear albedo; row = profile parameter from the stem down, column = angle."""
    centers = (np.arange(size) + 0.5) / size
    t, angle = np.meshgrid(centers, 2.0 * np.pi * centers, indexing="ij")
    points = _surface(t, angle)
    height = points[..., 1]
    radius = np.hypot(points[..., 0], points[..., 2])

    def mix(base: Array, color: tuple[float, float, float], weight: Array) -> Array:
        return base + (np.array(color) - base) * weight[..., None]  # in sRGB, as a painter would

    color = np.broadcast_to(np.array([0.80, 0.78, 0.26]), (size, size, 3)).astype(np.float64)
    mottle = 0.5 + 0.35 * _waves(points, 9.0, seed=1)
    color = mix(color, (0.62, 0.72, 0.22), _smooth(0.15, 0.65, height + 0.15 * mottle))
    color = mix(color, (0.55, 0.67, 0.20), _smooth(-0.45, -0.95, height + 0.1 * mottle))
    color = mix(color, (0.88, 0.83, 0.38), 0.45 * np.clip(mottle, 0.0, 1.0))
    facing = np.cos(angle - 0.7) + 0.25 * _waves(points, 5.0, seed=2)
    band = np.exp(-(((height + 0.30) / 0.48) ** 2))
    color = mix(color, (0.78, 0.24, 0.13), 0.85 * _smooth(0.05, 1.1, facing) * band)

    rng = np.random.default_rng(3)  # lenticels: dots spread evenly over the skin, by area
    candidates = _surface(rng.uniform(0.0, 1.0, 6000), rng.uniform(0.0, 2.0 * np.pi, 6000))
    keep = rng.uniform(0.0, 0.62, 6000) < np.hypot(candidates[:, 0], candidates[:, 2])
    dots = candidates[keep][:1400]
    dot_size = rng.uniform(0.006, 0.013, len(dots))
    distance, nearest = cKDTree(dots).query(points.reshape(-1, 3))
    speckle = 1.0 - _smooth(0.6, 1.2, distance / dot_size[nearest]).reshape(size, size)
    color = mix(color, (0.45, 0.33, 0.14), 0.75 * speckle)

    rings = np.hypot(radius, 0.6 * np.maximum(_NECK_HEIGHT - height, 0.0))
    color = mix(color, (0.47, 0.42, 0.16), 0.7 * (1.0 - _smooth(0.08, 0.22, rings)))
    fibres = 0.5 + 0.5 * np.sin(7.0 * angle + 3.0 * _waves(points, 14.0, seed=4))
    stem = mix(np.full((size, size, 3), (0.36, 0.23, 0.12)), (0.52, 0.37, 0.20), 0.6 * fibres)
    stem = mix(stem, (0.62, 0.50, 0.33), _smooth(0.975, 0.995, height))
    on_stem = _smooth(0.675, 0.715, height)
    color = color + (stem - color) * on_stem[..., None]
    calyx = (1.0 - _smooth(0.05, 0.17, radius + 0.03 * np.cos(5.0 * angle))) * (height < 0.0)
    color = mix(color, (0.22, 0.14, 0.08), 0.95 * calyx)
    color = np.clip(color, 0.0, 1.0)
    linear = np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)
    return linear.astype(np.float32)


def make_pear(
    n_rings: int = 110, n_around: int = 72, texture_size: int = 512
) -> tuple[Mesh, npt.NDArray[np.float32]]:
    """The pear and its albedo: always the same arrays for the same arguments.

    n_rings, n_around: resolution, at least 3 each; ``2 * n_rings * n_around`` faces.
    texture_size: texels along each side.
    Returns the mesh (closed, outward, y up, centred, 2 units high, widest radius 0.62, stem radius
    0.05; seam between the last and first column of the texture) and the texture (H, W, 3) float32,
    linear, in [0, 1], u around the axis and v from the stem down. Takes about 0.5 s.
    """
    return _shape(max(n_rings, 3), max(n_around, 3)), _paint(texture_size)
