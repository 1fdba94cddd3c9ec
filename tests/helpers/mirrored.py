"""Scenes that are drawn as they are, mirrored, transposed and renumbered.

What a builder draws of a scene seen in a mirror is the mirrored picture, and the gradient of a loss
whose weights are mirrored too is the same: neither side of the picture, no axis, no order of faces
and corners comes first. Nothing here shares a formula with the builders.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

Size = tuple[int, int]
CHANGES = ("flip x", "flip y", "transpose", "turn half", "renumber")


@dataclass
class Shape:
    """What is drawn. vertices: (N, 3); faces: (F, 3); matrices: (V, 4, 4), world to clip; colors:
    (N, 3); weights: (V, H, W), of the pixels in the loss; segments: (F, 2), an edge of each face.
    vertex_of, face_of: rows of the scene as it was."""

    vertices: np.ndarray
    faces: np.ndarray
    matrices: np.ndarray
    size: Size
    colors: np.ndarray = field(init=False)
    weights: np.ndarray = field(init=False)
    segments: np.ndarray = field(init=False)
    vertex_of: np.ndarray = field(init=False)
    face_of: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        # What float32 holds, so that all copies start from the same numbers.
        self.vertices = np.asarray(self.vertices, np.float32).astype(np.float64)
        self.matrices = np.asarray(self.matrices, np.float32).astype(np.float64)
        self.faces = np.asarray(self.faces, np.int64)
        rng = np.random.default_rng(7)
        self.colors = rng.uniform(0.1, 0.9, (len(self.vertices), 3)).astype(np.float32)
        (w, h), n = self.size, len(self.matrices)
        y, x = np.mgrid[0:h, 0:w]
        self.weights = np.stack([np.sin(0.4 * x + 0.7 * y + k) + 0.3 for k in range(n)])
        self.segments = self.faces[:, :2]
        self.vertex_of, self.face_of = np.arange(len(self.vertices)), np.arange(len(self.faces))


def changed(shape: Shape, change: str) -> Shape:
    """The same scene in a mirror, or with its vertices, faces and corners in another order."""
    if change == "renumber":
        return _renumbered(shape)
    axes = {"flip x": [0], "flip y": [1], "turn half": [0, 1], "transpose": []}[change]
    mirror, size = np.eye(4), shape.size
    mirror[axes, axes] = -1.0
    if change == "transpose":
        mirror[[0, 1]] = mirror[[1, 0]]
        size = size[::-1]
    out = replace(shape, matrices=mirror @ shape.matrices, size=size)
    if change != "turn half":  # what is seen from its front still is
        out.faces = shape.faces[:, [0, 2, 1]]
    out.segments, out.colors = shape.segments, shape.colors
    out.weights = of_picture(shape.weights, change)
    return out


def of_picture(a: np.ndarray, change: str) -> np.ndarray:
    """Images (V, H, W, ...) as the changed scene shows them."""
    if change == "transpose":
        return np.swapaxes(a, 1, 2)
    flips = {"flip x": (2,), "flip y": (1,), "turn half": (1, 2), "renumber": ()}[change]
    return np.flip(a, flips)


def _renumbered(shape: Shape) -> Shape:
    rng = np.random.default_rng(3)
    vertex_of = rng.permutation(len(shape.vertices))
    face_of = rng.permutation(len(shape.faces))
    faces = np.argsort(vertex_of)[shape.faces[face_of]]
    turns = rng.integers(0, 3, len(faces))
    faces = np.take_along_axis(faces, (turns[:, None] + np.arange(3)) % 3, axis=1)
    out = replace(shape, vertices=shape.vertices[vertex_of], faces=faces)
    out.colors, out.weights = shape.colors[vertex_of], shape.weights
    out.segments = np.argsort(vertex_of)[shape.segments[face_of]]
    out.segments[::2] = out.segments[::2, ::-1]
    out.vertex_of, out.face_of = vertex_of, face_of
    return out


# -- scenes ----------------------------------------------------------------------------------------


def camera(eye: tuple[float, float, float] = (0.0, 0.0, 4.0), zoom: float = 2.2) -> np.ndarray:
    """World to clip: from eye to the origin, y up, depth from 1 to 9."""
    back = np.array(eye) / np.linalg.norm(eye)
    right = np.cross((0.0, 1.0, 0.0), back)
    right /= np.linalg.norm(right)
    view = np.eye(4)
    view[:3, :3] = right, np.cross(back, right), back
    view[:3, 3] = -view[:3, :3] @ eye
    p = np.diag([zoom, -zoom, -9.0 / 8.0, 0.0])
    p[2, 3], p[3, 2] = -9.0 / 8.0, -1.0
    return p @ view


def flat(half: float = 1.25, depth: float = 2.0) -> np.ndarray:
    """World to clip, orthographic, looking along -z: the larger z is nearer."""
    m = np.diag([1.0 / half, -1.0 / half, -0.5 / depth, 1.0])
    m[2, 3] = 0.5
    return m


def quad(half: float) -> np.ndarray:
    return np.array([(-1, -1, 0), (1, -1, 0), (1, 1, 0), (-1, 1, 0)], float) * (half, half, 1)


QUAD = np.array([(0, 1, 2), (0, 2, 3)])
OFF = (0.0317, 0.0119, 0.0)
"""Moves scenes off the places where pixels are tied."""


def joined(*meshes: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Several meshes in one table."""
    starts = np.cumsum([0, *(len(v) for v, _ in meshes)])
    faces = [f + s for (_, f), s in zip(meshes, starts, strict=False)]
    return np.concatenate([v for v, _ in meshes]), np.concatenate(faces)


def turned(v: np.ndarray, *angles: float) -> np.ndarray:
    """v turned about x, y and z in turn; radians."""
    out = np.asarray(v, float)
    for axis, angle in enumerate(angles):
        i, j = [k for k in range(3) if k != axis]
        m = np.eye(3)
        m[i, i] = m[j, j] = np.cos(angle)
        m[i, j], m[j, i] = -np.sin(angle), np.sin(angle)
        out = out @ m.T
    return out


def octahedron(level: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """A closed round surface, 8 * 4**level faces, counter-clockwise from outside."""
    v = np.array([(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)], float)
    f = np.array([(a, b, c) for a in (0, 1) for b in (2, 3) for c in (4, 5)])
    for _ in range(level):
        points = [tuple(p) for p in v]
        row = {p: k for k, p in enumerate(points)}

        def middle(i: int, j: int) -> int:
            p = tuple((np.array(points[i]) + points[j]) / 2)  # noqa: B023
            if p not in row:  # noqa: B023
                row[p] = len(points)  # noqa: B023
                points.append(p)  # noqa: B023
            return row[p]  # noqa: B023

        new = []
        for a, b, c in f.tolist():
            ab, bc, ca = middle(a, b), middle(b, c), middle(c, a)
            new += [(a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca)]
        v, f = np.array(points), np.array(new)
    v = v / np.linalg.norm(v, axis=1, keepdims=True)
    a, b, c = (v[f[:, k]] for k in range(3))
    inward = (np.cross(b - a, c - a) * (a + b + c)).sum(1) < 0
    f[inward] = f[inward][:, [0, 2, 1]]
    return v, f


def contact() -> Shape:
    """A tilted quad goes through a flat one: they meet along a line. Their diagonals cross, or
    rims that they have inside would be equally far from a pixel, and any of them first."""
    a = quad(0.8)
    a[:, 2] = 0.75 * a[:, 0]
    v, f = joined((a, QUAD), (quad(1.0), np.array([(0, 1, 3), (1, 2, 3)])))
    return Shape(v + OFF, f, flat()[None], (16, 16))


def leaning() -> Shape:
    """Two tilted quads through each other, neither along an axis, in perspective."""
    v, f = joined(
        (turned(quad(0.9), 0.5, -0.6, 0.3), QUAD), (turned(quad(0.8), -0.4, 0.5, -0.2), QUAD)
    )
    return Shape(v + OFF, f, camera()[None], (17, 17))


def overlapping() -> Shape:
    """A small round surface in front of a larger one."""
    near, f = octahedron(0)
    v, f = joined(
        (turned(near * 0.5, 0.3, 0.4, 0.2) + (0.42, -0.23, 1.2), f),
        (turned(octahedron()[0] * 0.9, 0.2, 0.5, 0.1), octahedron()[1]),
    )
    return Shape(v + OFF, f, camera()[None], (15, 19))


def slivers() -> Shape:
    """Thin triangles across the picture, every way, at several depths."""
    parts = []
    for k, angle in enumerate((0.2, 0.9, 1.7, 2.6)):
        v = np.array([(-1.1, -0.03, 0.1), (1.2, -0.05 * k, -0.1), (1.0, 0.07, 0.2)])
        parts.append((turned(v, 0, 0, angle) + (0, 0, 0.3 * k - 0.5), np.array([(0, 1, 2)])))
    v, f = joined(*parts)
    return Shape(v + OFF, f, flat()[None], (16, 16))


def open_sheet() -> Shape:
    """A wavy sheet with a border, seen at a slant, so that it hides a part of itself."""
    n = 5
    x, y = np.meshgrid(np.linspace(-1, 1, n), np.linspace(-1, 1, n))
    z = 0.5 * np.sin(3.1 * x + 0.4) + 0.2 * y * y
    i = np.arange(n * n).reshape(n, n)
    a, b, c, d = (v.ravel() for v in (i[:-1, :-1], i[:-1, 1:], i[1:, 1:], i[1:, :-1]))
    f = np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])
    v = turned(np.stack([x, y, z], -1).reshape(-1, 3), -0.7, 0.9, 0.15)
    return Shape(v + OFF, f, camera()[None], (19, 15))


def closed() -> Shape:
    """A closed mesh in perspective, with a dent."""
    v, f = octahedron(1)
    v = v * (1.0 + 0.25 * np.sin(v @ (2.3, 1.1, -1.7)))[:, None]
    return Shape(turned(v, 0.3, 0.2, 0.4) + OFF, f, camera((0.5, 0.7, 3.6))[None], (17, 17))


def views() -> Shape:
    """Two objects, three views."""
    eyes = ((0.3, 0.2, 4.0), (3.1, 0.9, 2.2), (-2.2, -1.3, 3.0))
    v, f = joined(
        (turned(quad(0.7), 0.5, 0.6, 0.1) + (0.2, 0.1, 0.6), QUAD),
        (turned(octahedron(0)[0] * 0.8, 0.4, 0.3, 0.2), octahedron(0)[1]),
    )
    return Shape(v + OFF, f, np.stack([camera(e) for e in eyes]), (14, 14))


def sheet() -> Shape:
    """Flat triangles beside each other, as charts of an atlas are."""
    v = turned(np.concatenate([quad(0.55) - (0.5, 0.4, 0), quad(0.3) + (0.75, 0.6, 0)]), 0, 0, 0.2)
    f = np.concatenate([QUAD, QUAD + 4])
    return Shape(v + OFF, f, flat()[None], (16, 16))


SHAPES: dict[str, Callable[[], Shape]] = {
    "contact": contact,
    "leaning": leaning,
    "overlapping": overlapping,
    "slivers": slivers,
    "open sheet": open_sheet,
    "closed": closed,
    "views": views,
    "sheet": sheet,
}
