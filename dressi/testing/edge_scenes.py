"""Scenes with edges of all kinds, for gradients of visibility: NumPy only, one view each.

An ``EdgeScene`` has triangles, colours that are functions of what is there (flat, facets, smooth
Lambert, waves), a plain background, weights of pixels, and *directions*: displacements of all
vertices per parameter (grow, move, turn, smooth random fields), each scaled so that the fastest
vertex moves one pixel. Colours are grey: an edge does not know how many channels there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

Array = np.ndarray
LOOKS = ("flat", "facets", "lambert", "waves")
SIZE = (64, 64)
NEAR, FAR = 0.5, 20.0
FIELDS = 8
"""Smooth random displacements beside the named ones."""
NAMED = ("grow", "move x", "move y", "move z", "turn y", "turn z")
AMBIENT = 0.25
SUN, HEAD = (0.48, 0.64, 0.6), (0.0, 0.0, 1.0)
"""Directions to the light. The camera looks down -Z: HEAD is a headlight."""


@dataclass(frozen=True)
class EdgeScene:
    """A scene of one view.

    kind: which sort of edges. positions: (N, 3). faces: (F, 3), counter-clockwise from outside.
    albedo: (N,) per vertex. moved: (N,) bool, vertices that parameters move. matrix: (4, 4), world
    to clip. light: direction to it. weights: (H, W). directions: (P, N, 3). clip: whether faces
    cross the near plane."""

    kind: str
    positions: Array
    faces: Array
    albedo: Array
    moved: Array
    matrix: Array
    look: str = "flat"
    background: float = 0.0
    light: tuple[float, ...] = SUN
    size: tuple[int, int] = SIZE
    clip: bool = False
    weights: Array = field(default_factory=lambda: np.ones(SIZE[::-1]))
    directions: Array = field(default_factory=lambda: np.zeros((0, 1, 3)))

    def colours(self, positions: Array, face: Array, weights: Array) -> Array:
        """Return the colour at places of faces. weights: (n, 3), of the corners."""
        corners = self.faces[face]
        albedo = (self.albedo[corners] * weights).sum(1)
        if self.look == "flat":
            return albedo
        if self.look == "waves":
            at = (self.positions[corners] * weights[..., None]).sum(1)
            return albedo * (0.6 + 0.4 * np.sin(at @ np.array(WAVES)))
        normals = _unit(face_normals(positions, self.faces))[face]
        if self.look == "lambert":
            table = _unit(vertex_normals(positions, self.faces))
            normals = _unit((table[corners] * weights[..., None]).sum(1))
        return albedo * (
            AMBIENT + (1 - AMBIENT) * np.maximum(normals @ _unit(np.array(self.light)), 0.0)
        )


WAVES = (4.0, 5.0, 3.0)
"""Wave vector of the texture, radians per world unit: a wave is some ten pixels long."""


def face_normals(positions: Array, faces: Array) -> Array:
    """Return (F, 3): twice the area long."""
    a, b, c = positions[faces].transpose(1, 0, 2)
    return np.cross(b - a, c - a)


def vertex_normals(positions: Array, faces: Array) -> Array:
    """Return (N, 3): sums of ``face_normals``."""
    out = np.zeros_like(positions, float)
    np.add.at(out, faces, face_normals(positions, faces)[:, None])
    return out


def _unit(v: Array) -> Array:
    return np.asarray(v / np.maximum(np.linalg.norm(v, axis=-1, keepdims=True), 1e-30))


# -- shapes: (positions, faces)

Shape = tuple[Array, Array]


def ball(subdivisions: int, radius: float = 1.0) -> Shape:
    """Return a sphere of 20 * 4**subdivisions faces."""
    g = (1 + 5**0.5) / 2
    plane = [(s, t * g) for s in (-1, 1) for t in (-1, 1)]
    p = np.concatenate([np.roll([(0, s, t) for s, t in plane], k, 1) for k in range(3)])
    # Faces of an icosahedron: triples of corners at the least distance, wound outwards.
    near = np.linalg.norm(p[:, None] - p[None], axis=2) < 2.1
    f = [(i, j, k) for i in range(12) for j in range(i) for k in range(j)]
    f = [t for t in f if near[t[0], t[1]] and near[t[1], t[2]] and near[t[0], t[2]]]
    faces = np.array([t if np.linalg.det(p[list(t)]) > 0 else t[::-1] for t in f])
    for _ in range(subdivisions):
        p, faces = _split(_unit(p), faces)
    return _unit(p) * radius, faces


def _split(p: Array, faces: Array) -> Shape:
    edges = np.sort(faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    unique, inverse = np.unique(edges, axis=0, return_inverse=True)
    ab, bc, ca = (inverse.reshape(-1, 3) + len(p)).T
    a, b, c = faces.T
    parts = [(a, ab, ca), (b, bc, ab), (c, ca, bc), (ab, bc, ca)]
    return np.concatenate([p, p[unique].mean(1)]), np.concatenate([np.stack(t, 1) for t in parts])


def torus(n: int, m: int, radius: float = 0.7, tube: float = 0.3) -> Shape:
    """Return a ring about the z axis of n x m quads."""
    u, v = np.meshgrid(np.arange(n), np.arange(m), indexing="ij")
    s, t = 2 * np.pi * u.ravel() / n, 2 * np.pi * v.ravel() / m
    ring = radius + tube * np.cos(t)
    p = np.stack([ring * np.cos(s), ring * np.sin(s), tube * np.sin(t)], 1)

    def at(i: Array, j: Array) -> Array:
        return (i % n * m + j % m).ravel()

    a, b, c, d = at(u, v), at(u + 1, v), at(u + 1, v + 1), at(u, v + 1)
    return p, np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])


def box(x: float, y: float, z: float) -> Shape:
    """Return a box with these half sides."""
    p = np.array([(i, j, k) for i in (-1, 1) for j in (-1, 1) for k in (-1, 1)], float)
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = [t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))]
    return p * (x, y, z), np.array(faces)


def sheet(half: float, n: int = 1) -> Shape:
    """Return a square in the plane z = 0, seen from +z, of n x n quads."""
    line = np.linspace(-half, half, n + 1)
    x, y = np.meshgrid(line, line)
    p = np.stack([x.ravel(), y.ravel(), np.zeros(x.size)], 1)
    a = (np.arange(n)[:, None] * (n + 1) + np.arange(n)).ravel()
    b, c, d = a + 1, a + n + 2, a + n + 1
    return p, np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])


def rotation(x: float, y: float, z: float) -> Array:
    """Return (3, 3): about x, then y, then z."""
    out = np.eye(3)
    for axis, angle in enumerate((x, y, z)):
        c, s = np.cos(angle), np.sin(angle)
        m = np.eye(3)
        i, j = (axis + 1) % 3, (axis + 2) % 3
        m[i, i] = m[j, j] = c
        m[i, j], m[j, i] = -s, s
        out = m @ out
    return out


def camera(distance: float = 4.0, fov_deg: float = 40.0) -> Array:
    """Return (4, 4): from +z towards the origin, y down in clip space, depth 0 to 1."""
    f = 1 / np.tan(np.radians(fov_deg) / 2)
    m = np.array([[f, 0, 0, 0], [0, -f, 0, 0], [0, 0, 0, 0], [0, 0, -1, distance]], float)
    m[2] = FAR / (FAR - NEAR) * m[3] - np.array([0, 0, 0, FAR * NEAR / (FAR - NEAR)])
    return m


# -- scenes: parts put together

Part = tuple[Shape, Array, Array, bool]
"""Shape, rotation, place, whether parameters move it."""


def _part(shape: Shape, rng: np.random.Generator, place: tuple[float, ...], moved: bool) -> Part:
    jitter = rng.uniform(-0.04, 0.04, 3) * moved
    return shape, rotation(*rng.uniform(0, 6, 3)), np.array(place) + jitter, moved


def _still(shape: Shape, place: tuple[float, ...], turn: tuple[float, ...] = (0, 0, 0)) -> Part:
    return shape, rotation(*turn), np.array(place), False


def _ball(level: int) -> Callable[[np.random.Generator], list[Part]]:
    return lambda rng: [_part(ball(level, rng.uniform(0.75, 0.95)), rng, (0, 0, 0), True)]


def _wall(rng: np.random.Generator) -> list[Part]:
    wall = _still(sheet(3.0, 6), (0, 0, -1.2), (0.1, -0.2, 0.1))
    return [_part(ball(3, 0.8), rng, (0, 0, 0), True), wall]


def _torus(rng: np.random.Generator) -> list[Part]:
    turn = rotation(rng.uniform(1.0, 1.35), 0, 0)
    return [(torus(28, 16), rotation(0, 0, rng.uniform(0, 3)) @ turn, np.zeros(3), True)]


def _two(rng: np.random.Generator) -> list[Part]:
    behind = _part(ball(2, 0.8), rng, (-0.35, 0.1, -0.9), False)
    return [_part(ball(3, 0.6), rng, (0.3, 0, 0.2), True), behind]


def _crossing(rng: np.random.Generator) -> list[Part]:
    first = _part(box(0.7, 0.5, 0.5), rng, (-0.25, 0.1, 0), True)
    return [first, _part(box(0.5, 0.7, 0.5), rng, (0.3, 0, 0), False)]


def _thin(rng: np.random.Generator) -> list[Part]:
    sides = ((0.9, 0.02, 0.02), (0.7, 0.03, 0.01), (0.8, 0.012, 0.03))
    places = ((0, 0.4, 0), (0.1, -0.1, 0.2), (-0.1, -0.5, -0.1))
    turns = [
        rotation(rng.uniform(0, 1), rng.uniform(-0.4, 0.4), rng.uniform(-0.6, 0.6)) for _ in sides
    ]
    return [(box(*s), t, np.array(p), True) for s, t, p in zip(sides, turns, places, strict=True)]


def _near(rng: np.random.Generator) -> list[Part]:
    # A board that leads from before the picture's middle to behind the camera.
    board = (sheet(1.0, 2)[0] * (0.35, 3.0, 1), sheet(1.0, 2)[1])
    turn = rotation(-np.pi / 2 + rng.uniform(0.15, 0.25), 0, rng.uniform(-0.1, 0.1))
    return [(board, turn, np.array([rng.uniform(-0.1, 0.1), -0.45, 2.6]), True)]


def _border(rng: np.random.Generator) -> list[Part]:
    x, y = np.array(((1, 0), (0, 1), (-1, 0), (0.8, 0.8)))[rng.integers(4)] * 1.2
    return [_part(ball(3, 0.9), rng, (x, y, 0), True)]


def _contact(rng: np.random.Generator) -> list[Part]:
    # The box stands on the floor: its lower side lies in the floor's plane.
    turn = rotation(0.5, 0, 0) @ rotation(0, rng.uniform(0.2, 1.3), 0)
    floor = (
        sheet(1.4, 4),
        rotation(0.5, 0, 0) @ rotation(-np.pi / 2, 0, 0),
        np.array([0, -0.5, 0.0]),
    )
    up = rotation(0.5, 0, 0) @ np.array([0, 0.4, 0.1])
    return [(box(0.45, 0.4, 0.35), turn, floor[2] + up, True), (*floor, False)]


KINDS: Mapping[str, Callable[[np.random.Generator], list[Part]]] = {
    "ball": _ball(3),
    "coarse ball": _ball(1),
    "fine ball": _ball(4),
    "small ball": lambda rng: [_part(ball(3, 0.061), rng, (0.2, 0.1, 0), True)],
    "wall": _wall,
    "torus": _torus,
    "two": _two,
    "crossing": _crossing,
    "thin": _thin,
    "near": _near,
    "border": _border,
    "contact": _contact,
}
"""Faces of ``ball`` are about 3 pixels wide, of the coarse one 13, of the fine one 1.5."""


def edge_scene(
    kind: str, seed: int = 0, look: str = "flat", dark: bool = False, light: tuple[float, ...] = SUN
) -> EdgeScene:
    """Return a scene. dark: dark things on a light ground, else light on dark."""
    rng = np.random.default_rng([seed, list(KINDS).index(kind)])
    positions, faces, albedo, moved, n = [], [], [], [], 0
    for k, ((p, f), turn, place, moves) in enumerate(KINDS[kind](rng)):
        positions.append(p @ turn.T + place)
        faces.append(f + n)
        n += len(p)
        value = (0.9, 0.45, 0.65)[k % 3]
        albedo.append(np.full(len(p), 1.0 - value if dark else value))
        moved.append(np.full(len(p), moves))
    scene = EdgeScene(
        kind,
        # float32 values, so that a device and the reference see the same numbers
        np.concatenate(positions).astype(np.float32).astype(float),
        np.concatenate(faces),
        np.concatenate(albedo).astype(np.float32).astype(float),
        np.concatenate(moved),
        camera().astype(np.float32).astype(float),
        look,
        1.0 if dark else 0.1,
        light,
        clip=kind == "near",
    )
    return replace(scene, weights=_pixel_weights(rng), directions=_directions(scene, rng))


def _pixel_weights(rng: np.random.Generator) -> Array:
    """Return (H, W) of a few smooth waves, between about 0.2 and 1.8."""
    y, x = np.mgrid[: SIZE[1], : SIZE[0]] + 0.5
    a, phase = rng.normal(0, 0.12, (3, 2)), rng.uniform(0, 6, 3)
    waves = [np.sin(u * x + v * y + p) for (u, v), p in zip(a, phase, strict=True)]
    return np.asarray(1.0 + 0.27 * np.sum(waves, axis=0))


def _directions(scene: EdgeScene, rng: np.random.Generator) -> Array:
    p, moved = scene.positions, scene.moved[:, None]
    centred = p - p[scene.moved].mean(0)
    x, y, z = centred.T
    zero, one = np.zeros(len(p)), np.ones(len(p))
    named = [centred, np.outer(one, (1, 0, 0)), np.outer(one, (0, 1, 0)), np.outer(one, (0, 0, 1))]
    named += [np.stack([z, zero, -x], 1), np.stack([-y, x, zero], 1)]
    extent = np.abs(centred[scene.moved]).max()
    for _ in range(FIELDS):
        k, phase = rng.normal(0, 2.0 / extent, (3, 3)), rng.uniform(0, 6, 3)
        named.append(np.sin(centred @ k.T + phase))
    return np.stack([one_pixel(scene, np.asarray(d * moved)) for d in named])


LEAST_PX = 0.3
"""Pixels per unit of displacement, of the object's own scale: what hardly moves on the screen (away
from the camera) is not blown up without bound."""


def one_pixel(scene: EdgeScene, d: Array) -> Array:
    """Return the displacement, scaled so that the fastest vertex moves one pixel on the screen."""
    h = 1e-6
    (first, _), (last, seen) = (_projected(scene, scene.positions + s * d) for s in (-h, h))
    speed = np.linalg.norm(last - first, axis=1)[seen].max() / (2 * h)
    return d / max(speed, LEAST_PX)


def moved_extent_px(scene: EdgeScene) -> float:
    """Return half the larger side of the box, on the screen, around the vertices that move."""
    at, seen = _projected(scene, scene.positions)
    return float(np.ptp(at[seen & scene.moved], axis=0).max() / 2)


def _projected(scene: EdgeScene, positions: Array) -> tuple[Array, Array]:
    """Return (N, 2), pixels from the middle, and (N,) bool: vertices that move, in the picture or a
    little beyond; where none is, all before the camera."""
    q = np.concatenate([positions, np.ones((len(positions), 1))], 1) @ scene.matrix.T
    before = q[:, 3] > NEAR
    seen = before & scene.moved & (np.abs(q[:, :2]) < 1.1 * q[:, 3:]).all(1)
    half = np.array(scene.size) / 2
    return q[:, :2] / q[:, 3:] * half, seen if seen.any() else before


def random_scenes(n: int, first: int = 0) -> list[EdgeScene]:
    """Return n scenes: kinds, looks and grounds in turn, by seed."""
    kinds = list(KINDS)
    return [
        edge_scene(
            kinds[s % len(kinds)],
            s,
            LOOKS[(s + s // len(kinds)) % len(LOOKS)],
            bool(s // 2 % 2),
            HEAD if s % 3 == 0 else SUN,
        )
        for s in range(first, first + n)
    ]
