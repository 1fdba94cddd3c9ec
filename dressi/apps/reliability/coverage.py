"""R6: hard coverage is watertight: no pixel between two faces is left out, none is drawn twice.

Every face is drawn alone, and what it covers (0 or 1) is added to an image of integer counts. That
image is compared with what a NumPy formula says: a turned grid of quads with w in [0.1, 4], whole,
beyond the sides of the screen or through the near and far planes; and a cube seen from inside in
360 views, whose faces pass through the near plane. Twice: the device's rasterizer alone, and
HardSoftRas. There faces overlap by a hair, behind all else, so that no hole can open, and the depth
test shows one of them; a double is a pixel that lies inside of two faces by more than that hair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import IVEC3, MAT4, VEC3, VEC4
from dressi.apps.reliability.row import Row, at_most
from dressi.engine import DressiAD
from dressi.render.raster.hardsoftras import HAIR_PX, build_hardsoftras
from dressi.testing.scenes import camera, cube

QUADS = 8
"""Quads along a side of a grid: 128 faces."""
GRIDS, SMALL_GRIDS = 24, 2
VIEWS, SMALL_VIEWS = 360, 12
VIEWS_AT_ONCE = 90
GRID_SIZE, CUBE_SIZE = (61, 47), (16, 12)
MARGIN = 1e-3
"""Where the border of a shape is nearer than this (NDC), either count is right."""
KINDS = ("whole", "beyond the sides", "through near and far plane")


@dataclass(frozen=True)
class Picture:
    """What is drawn. corners: (F, 3, 4), clip space. expected: (H, W), 1 or 0; -1 near a border,
    where either is right."""

    corners: np.ndarray
    expected: np.ndarray


def grid(seed: int) -> Picture:
    """Return a square of quads, turned by an angle, each point with a w of its own in [0.1, 4].
    What it is on the screen does not depend on w."""
    rng, kind = np.random.default_rng(seed), KINDS[seed % len(KINDS)]
    angle = rng.uniform(0, np.pi) if seed else 0.0
    half = 1.7 if kind == "beyond the sides" else 0.8
    line = np.linspace(-half, half, QUADS + 1)
    x, y = np.meshgrid(line, line)
    # Depth in NDC is level, or runs through both planes along x of the square.
    slope = 0.9 / half if kind.startswith("through") else 0.0
    c, s = np.cos(angle), np.sin(angle)
    points = np.stack([x * c - y * s, x * s + y * c, 0.5 + slope * x, np.ones_like(x)], -1)
    points = (points * rng.uniform(0.1, 4, x.shape)[..., None]).astype(np.float32)
    a, b, d, e = points[:-1, :-1], points[:-1, 1:], points[1:, 1:], points[1:, :-1]
    halves = [(a, b, d), (a, d, e)] if seed % 2 else [(a, b, e), (b, d, e)]
    corners = np.concatenate([np.stack(t, -2).reshape(-1, 3, 4) for t in halves])
    return Picture(corners, _inside(angle, half, slope))


def _inside(angle: float, half: float, slope: float) -> np.ndarray:
    w, h = GRID_SIZE
    px = np.stack(np.meshgrid(np.arange(w) + 0.5, np.arange(h) + 0.5), -1) / GRID_SIZE * 2 - 1
    c, s = np.cos(angle), np.sin(angle)
    x, y = px[..., 0] * c + px[..., 1] * s, -px[..., 0] * s + px[..., 1] * c
    room = np.minimum(half - np.abs(x), half - np.abs(y))
    if slope:
        room = np.minimum(room, 0.5 / slope - np.abs(x))
    return np.where(np.abs(room) < MARGIN, -1, room > 0)


def inside_views(n: int) -> np.ndarray:
    """Return (n, 4, 4): views around, up and down from near the centre of a cube."""
    angles = 2 * np.pi * np.arange(n) / n
    eye = (0.05, 0.02, -0.03)
    return np.stack(
        [camera(CUBE_SIZE, eye, (np.sin(a), 0.9 * np.sin(7 * a), np.cos(a))) for a in angles]
    )


@dataclass(frozen=True)
class Count:
    """Pixels with fewer faces than there should be, with more, and pictures looked at."""

    holes: int = 0
    doubles: int = 0
    pictures: int = 0

    def plus(self, counts: np.ndarray, strict: np.ndarray, expected: np.ndarray) -> Count:
        """Count more pictures in. counts: (n, H, W), the faces that draw a pixel; strict: those
        that it lies inside of. expected: 0, 1, or -1 for either."""
        least, most = np.where(expected < 0, 0, expected), np.where(expected < 0, 1, expected)
        return Count(
            self.holes + int((counts < least).sum()),
            self.doubles + int((strict > most).sum()),
            self.pictures + len(counts),
        )


def rasterized(ad: DressiAD, seeds: range, views: np.ndarray) -> Count:
    """Return the rasterizer of the device alone: the masks of one face after another. Pictures are
    layers; all faces of one are drawn at the same place, or they would not be snapped to the same
    points between pixels."""
    out = Count()
    pictures = [grid(seed) for seed in seeds]
    draw = _mask_of(ad, GRID_SIZE, len(pictures))
    counts = _added(draw(c) for c in np.stack([p.corners for p in pictures], 1))
    expected = np.stack([p.expected for p in pictures])
    out = out.plus(counts, counts, expected)
    vertices, faces = cube(1.0)
    homogeneous = np.concatenate([vertices, np.ones((len(vertices), 1))], 1)
    for some in np.array_split(views, -(-len(views) // VIEWS_AT_ONCE)):
        draw = _mask_of(ad, CUBE_SIZE, len(some))
        clip = (homogeneous @ some.transpose(0, 2, 1)).astype(np.float32)
        counts = _added(draw(clip[:, face]) for face in faces)
        out = out.plus(counts, counts, np.array(1))
    return out


def _added(images: Iterable[np.ndarray]) -> np.ndarray:
    """Return the sum of images of integers."""
    return np.sum(list(images), axis=0)


def _mask_of(ad: DressiAD, size: tuple[int, int], n: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function of corners (n, 3, 4) in clip space that gives n masks of one face each."""
    tables = [Variable(VEC4, (1, 1), n, name=f"corner{k}") for k in range(3)]
    fragment = F.rasterize(tables, size)
    mask = F.to_int(F.resolve(1.0, F.to_float(fragment) * 0.0 + 0.5))

    def draw(corners: np.ndarray) -> np.ndarray:
        for k, table in enumerate(tables):
            ad.send_img(table, corners[:, k].reshape(n, 1, 1, 4))
        return ad.recv_img(mask).reshape(n, size[1], size[0]).astype(np.int64)

    return draw


FROM_W = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0.5, 0], [0, 0, 1, 0]], np.float64)
"""Takes (x, y, w) to the clip position (x, y, w / 2, w)."""


def hard_masks(ad: DressiAD, seeds: range, views: np.ndarray) -> Count:
    """Return HardSoftRas with r = 0: the faces one after another. Of the grids those with level
    depth: what a matrix makes of points is linear in them."""
    out = Count()
    draw = _one_face(ad, GRID_SIZE, 1)
    for seed in (s for s in seeds if not KINDS[s % len(KINDS)].startswith("through")):
        picture = grid(seed)
        counts, strict = _added(draw(c[:, [0, 1, 3]], FROM_W[None]) for c in picture.corners)
        out = out.plus(counts, strict, picture.expected)
    vertices, faces = cube(1.0)
    for some in np.array_split(views, -(-len(views) // VIEWS_AT_ONCE)):
        draw = _one_face(ad, CUBE_SIZE, len(some))
        counts, strict = _added(draw(vertices[face], some) for face in faces)
        out = out.plus(counts, strict, np.array(1))
    return out


def _one_face(
    ad: DressiAD, size: tuple[int, int], n_views: int
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Return a function of (corners (3, 3), matrices) that gives (2, views, H, W) integers: whether
    the face draws a pixel, and whether the pixel lies inside by more than the hair."""
    pos, faces = Variable(VEC3, (3, 1)), Variable(IVEC3, (1, 1))
    matrix = Variable(MAT4, layers=n_views)
    # Distances to the edges of the face, not to the outline within r of it.
    hs = build_hardsoftras(pos, faces, matrix, size, 0.0, sigma=0.01, rims="all")
    hair = HAIR_PX / max(size)
    ad.send_img(faces, np.array([[0, 1, 2]]))

    def draw(corners: np.ndarray, matrices: np.ndarray) -> np.ndarray:
        ad.send_img(pos, corners)
        ad.send_img(matrix, matrices if n_views > 1 else matrices[0])
        hard, distance = ad.recv_imgs([hs.hard, hs.peels[0].distance])
        drawn = hard == 1
        both = np.stack([drawn, drawn & (distance > hair)]).astype(np.int64)
        return both.reshape(2, n_views, size[1], size[0])

    return draw


def measure(device: str | None, small: bool) -> list[Row]:
    """Return the rows of holes and doubles, of both rasterizations."""
    seeds = range(SMALL_GRIDS if small else GRIDS)
    views = inside_views(SMALL_VIEWS if small else VIEWS)
    rows = []
    with DressiAD(device) as ad:
        for what, look in (("rasterizer", rasterized), ("HardSoftRas", hard_masks)):
            count = look(ad, seeds, views)
            rows.append(at_most(f"R6 {what}, holes", count.holes, 0, count.pictures))
            rows.append(at_most(f"R6 {what}, doubles", count.doubles, 0, count.pictures))
    return rows
