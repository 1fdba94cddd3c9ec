"""Scenes for ``dressi experiment edges``, and a fit of a few parameters to the picture of one.

A parameter moves the vertices along a displacement and is measured in pixels of the fastest vertex;
0 is the truth. The target is a picture of ``dressi.testing.supersampled``, a renderer of another
make, so no method is judged by its own pictures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dressi.ad import Adam, F, Variable
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC3
from dressi.apps.reliability.edge_gradients import Blend, Geometry, scene_colour
from dressi.engine import DressiAD
from dressi.render.raster import Peel, build_antialias, build_hardsoftras
from dressi.testing.edge_scenes import (
    EdgeScene,
    Shape,
    ball,
    box,
    camera,
    edge_scene,
    one_pixel,
    rotation,
    torus,
)
from dressi.testing.supersampled import picture

NEAR_R, FAR_R = 0.03, 0.2
"""Reach of HardSoftRas, 1 is the side of the picture: where the start overlaps its target, and
where it does not."""

LAST_R = 0.01
"""Reach at the end of a fit."""

RATE = 0.1
"""Learning rate at the start, of the largest parameter at the start; at the end a tenth of it."""

NOTHING = 1e-3
"""A derivative of the loss by a pixel that is rounding alone: an edge of a few pixels has some 1.
Adam would make full steps of it."""

CHUNK = 5
"""Steps between two changes of the learning rate and the reach."""

STILL = 0.35
"""Sine of the angle, from the sides of the ring, up to which its crest stays."""

DARK, LIGHT, GROUND = 0.45, 0.9, 0.1

Built = tuple[list[Peel], Blend]
Method = Callable[[Geometry, Variable | float, float, bool], Built]
"""From geometry, reach, the largest reach, whether faces are cut at the near plane."""


def _soft(K: int, occlusion: bool = False) -> Method:
    def build(geometry: Geometry, r: Variable | float, max_r: float, clip: bool) -> Built:
        hs = build_hardsoftras(*geometry, r, K, max_delta=max_r, clip=clip, occlusion=occlusion)
        return list(hs.peels), hs.blend

    return build


def _antialias(geometry: Geometry, r: Variable | float, max_r: float, clip: bool) -> Built:
    aa = build_antialias(*geometry, clip=clip)
    return [aa.peel], lambda colors, background: aa.blend(colors[0], background)


METHODS: Mapping[str, Method] = {
    "K=1": _soft(1),
    "K=3": _soft(3),
    "occlusion": _soft(1, occlusion=True),
    "antialias": _antialias,
}
OLD = ("K=1", "K=3")
"""Methods whose edges are those of the stencil of everything drawn."""


@dataclass(frozen=True)
class Problem:
    """A scene to fit. scene: the truth. rows: its displacements that are parameters. start: of
    these, pixels. r: reach at the start. also: more starts, where the outcome of one is chance."""

    scene: EdgeScene
    rows: tuple[int, ...]
    start: tuple[float, ...]
    r: float = NEAR_R
    also: tuple[tuple[float, ...], ...] = ()

    @property
    def basis(self) -> np.ndarray:
        """Return (P, N, 3): displacements of the parameters."""
        return self.scene.directions[list(self.rows)]

    def positions(self, parameters: np.ndarray) -> np.ndarray:
        """Return (N, 3) vertices for parameters."""
        return np.asarray(self.scene.positions + np.tensordot(parameters, self.basis, 1))

    def error_px(self, parameters: np.ndarray) -> float:
        """Return how far the moved vertices are from the truth, root mean square, in pixels' widths
        where they truly are: moves along the ray of a pixel count, too."""
        moved, scene = self.scene.moved, self.scene
        true = scene.positions[moved]
        w = true @ scene.matrix[3, :3] + scene.matrix[3, 3]
        px = np.linalg.norm(scene.matrix[0, :3]) * 0.5 * scene.size[0] / w
        off = np.linalg.norm(self.positions(parameters)[moved] - true, axis=1) * px
        return float(np.sqrt((off**2).mean()))


def _kind(
    kind: str, look: str, start: tuple[float, ...] = (3.0, -2.0, 1.5)
) -> Callable[[], Problem]:
    """A scene of ``edge_scenes``; its parameters move it right and down, and let it grow."""
    return lambda: Problem(edge_scene(kind, 0, look), (1, 2, 0), start)


def _put_together(
    kind: str, parts: Sequence[tuple[Shape, np.ndarray, tuple[float, ...], bool]]
) -> EdgeScene:
    """Return a scene of flat tones, light where it moves, without displacements."""
    positions, faces, albedo, moved, n = [], [], [], [], 0
    for (p, f), turn, place, moves in parts:
        positions.append(p @ turn.T + np.array(place))
        faces.append(f + n)
        albedo.append(np.full(len(p), LIGHT if moves else DARK))
        moved.append(np.full(len(p), moves))
        n += len(p)
    at = np.concatenate(positions).astype(np.float32).astype(float)
    tones, who = np.concatenate(albedo), np.concatenate(moved)
    matrix = camera().astype(np.float32).astype(float)
    return EdgeScene(kind, at, np.concatenate(faces), tones, who, matrix, background=GROUND)


def _with(scene: EdgeScene, displacements: list[np.ndarray], start: tuple[float, ...]) -> Problem:
    one = scene.moved[:, None]
    rows = np.stack([one_pixel(scene, d * one) for d in displacements])
    return Problem(replace(scene, directions=rows), tuple(range(len(rows))), start)


def _moves(scene: EdgeScene) -> list[np.ndarray]:
    """Right, up, larger, turned in the plane of the picture."""
    n = len(scene.positions)
    centred = scene.positions - scene.positions[scene.moved].mean(0)
    x, y, _ = centred.T
    across = np.stack([-y, x, np.zeros(n)], 1)
    return [np.tile((1.0, 0, 0), (n, 1)), np.tile((0, 1.0, 0), (n, 1)), centred, across]


def far_start() -> Problem:
    """Return a ball that starts beside its target, without overlap: from four places, since a
    method that sees nothing of the target drifts, and may come upon it."""
    parts = [(ball(3, 0.4), np.eye(3), (0.5, 0.3, 0.0), True)]
    scene = _put_together("far start", parts)
    y, x = np.mgrid[: scene.size[1], : scene.size[0]] / 64.0
    # Not all alike, or a move would not change their sum.
    scene = replace(scene, weights=0.5 + 0.6 * x + 0.4 * y)
    also = ((-24.0, -14.0), (-30.0, -4.0), (-14.0, -24.0))
    return replace(_with(scene, _moves(scene), (-24.0, 14.0)), rows=(0, 1), r=FAR_R, also=also)


SCENES: Mapping[str, Callable[[], Problem]] = {
    "outline only": _kind("ball", "lambert"),
    "inner occlusion": _kind("wall", "flat"),
    "crossing": _kind("crossing", "flat"),
    "thin parts": _kind("thin", "flat", (1.0, -0.7, 0.5)),
    "far start": far_start,
    "texture": _kind("wall", "waves"),
}


def disc(radius: float, n: int = 40) -> Shape:
    """Return a disc in the plane z = 0, seen from +z."""
    s = 2 * np.pi * np.arange(n) / n
    rim = np.stack([np.cos(s), np.sin(s), np.zeros(n)], 1) * radius
    k = np.arange(n)
    faces = np.stack([np.zeros(n, int), 1 + k, 1 + (k + 1) % n], 1)
    return np.concatenate([np.zeros((1, 3)), rim]), faces


def discs() -> Problem:
    """Return a disc before a larger one: it moves sideways, its outline wholly within that one's,
    which stays."""
    still = np.eye(3)
    parts = [
        (disc(0.42), still, (0.25, 0.15, 0.0), True),
        (disc(1.25), still, (0.0, 0.0, -0.6), False),
    ]
    scene = _put_together("discs", parts)
    return _with(scene, _moves(scene)[:2], (-9.0, -6.0))


def depth_order() -> Problem:
    """Return two discs that go through each other, tilted to either side. The light one moves along
    the rays of its pixels, so that no outline changes: what changes is which one is before the
    other, on which side of the line where they cross."""
    eye, tilt, turn = np.array((0.0, 0.0, 4.0)), 0.6, 0.3
    parts = [
        (disc(0.9), rotation(0, tilt, turn), (0.12, 0.1, 0.25), True),
        (disc(0.9), rotation(0, -tilt, turn), (-0.12, -0.1, 0.0), False),
    ]
    scene = _put_together("order", parts)
    px = scene.matrix[0, 0] * 0.5 * scene.size[0] / eye[2]
    along = (scene.positions - eye) / eye[2] * scene.moved[:, None]
    return Problem(replace(scene, directions=along[None] / px), (0,), (14.0,))


def closing_torus() -> Problem:
    """Return a ring seen at a slant, the near half light, the far half dark. The crest of its near
    side is raised at the start, so that it covers the far side's inner wall and closes the hole;
    the outline is the same."""
    n, m, elevation = 40, 20, np.radians(25.0)
    shape = torus(n, m, 0.8, 0.22)
    scene = _put_together(
        "torus", [(shape, rotation(elevation - np.pi / 2, 0, 0), (0.0, 0.0, 0.0), True)]
    )
    s = np.repeat(2 * np.pi * np.arange(n) / n, m)
    t = np.tile(2 * np.pi * np.arange(m) / m, n)
    scene = replace(scene, albedo=np.where(np.sin(s) < 0, LIGHT, DARK))
    axis = np.array((0.0, np.cos(elevation), np.sin(elevation)))
    # Nothing moves where one tone goes over into the other: no gradient from colours.
    crest = np.sqrt(np.maximum(-np.sin(s) - STILL, 0.0)) * np.maximum(np.sin(t), 0.0)
    return _with(scene, [np.outer(crest, axis)], (7.0,))


def hand() -> Problem:
    """Return a hand, a palm and five fingers, before a body that is larger: it moves, turns and
    grows, its outline wholly within the body's."""
    finger = ball(2)[0] * (0.065, 0.27, 0.06), ball(2)[1]
    parts = [(box(0.24, 0.26, 0.06), np.eye(3), (0.05, -0.15, 0.0), True)]
    for x, lean in ((-0.15, 0.16), (-0.02, 0.05), (0.11, -0.06), (0.25, -0.17)):
        parts.append((finger, rotation(0, 0, lean), (x - 0.9 * lean * 0.25, 0.27, 0.0), True))
    parts.append((finger, rotation(0, 0, 0.95), (-0.32, -0.08, 0.0), True))
    body = ball(3)[0] * (1.25, 1.45, 0.5), ball(3)[1]
    scene = _put_together("hand", [*parts, (body, np.eye(3), (0.0, 0.0, -0.9), False)])
    return _with(scene, _moves(scene), (5.0, -4.0, 2.0, 3.0))


INNER: Mapping[str, Callable[[], Problem]] = {
    "two discs": discs,
    "depth order": depth_order,
    "torus hole": closing_torus,
    "hand": hand,
}
"""Fits that only edges inside the outline can tell."""


@dataclass(frozen=True)
class Fitted:
    """A fit by one method. start_px, end_px: errors. ms: per step,
    of the quickest CHUNK. parameters: at the end. tangent:
    (H, W), of the picture at the start, by the first parameter."""

    start_px: float
    end_px: float
    ms: float
    parameters: np.ndarray
    tangent: np.ndarray

    @property
    def left(self) -> float:
        """Return the error at the end over that of the start."""
        return self.end_px / self.start_px

    @staticmethod
    def of(part: Mapping[str, np.ndarray]) -> Fitted:
        """Return what ``vars`` of one was, after it was an array each."""
        start, end, ms = (float(part[k]) for k in ("start_px", "end_px", "ms"))
        return Fitted(start, end, ms, part["parameters"], part["tangent"])


def fit(
    problem: Problem,
    method: Method,
    target: np.ndarray,
    iterations: int,
    device: str | None,
    tangents: bool,
) -> Fitted:
    """Fit the parameters to a picture by Adam on the squared difference. tangents: whether the
    derivative of the picture is wanted."""
    scene, start = problem.scene, np.array(problem.start)
    ps = [Variable(FLOAT, requires_grad=True, name=f"p{k}") for k in range(len(start))]
    tables = np.concatenate([scene.positions[None], problem.basis]).astype(np.float32)
    first, *others = (F.leaf(t[None], VEC3) for t in tables)
    pos = F.add_n([first, *(d * p for d, p in zip(others, ps, strict=True))])
    faces, matrix = Variable(IVEC3, (len(scene.faces), 1)), Variable(MAT4)
    r, rate = Variable(FLOAT, name="r"), Variable(FLOAT, name="rate")
    goal = Variable(FLOAT, scene.size, name="target")
    peels, blend = method((pos, faces, matrix, scene.size), r, problem.r, scene.clip)
    drawn = blend([scene_colour(scene, p, pos, faces) for p in peels], scene.background)
    seen = np.zeros(target.shape)
    with DressiAD(device) as ad:
        ad.send_img(faces, scene.faces)
        ad.send_img(matrix, scene.matrix)
        ad.send_img(goal, target.astype(np.float32))
        for p, value in zip(ps, start, strict=True):
            ad.send_img(p, value)
        ad.send_img(r, problem.r)
        if tangents:
            (tangent,) = F.jvp([drawn], {ps[0]: F.constant(1.0)})
            seen = ad.recv_img(tangent).reshape(target.shape)
        ad.set_loss_var(F.sum((drawn - goal) * (drawn - goal)))
        ad.set_optimizer(Adam(rate, beta2=0.95, eps=NOTHING))
        ms, largest = [], RATE * np.abs(start).max()
        for i in range(0, iterations, CHUNK):
            done = i / max(iterations - CHUNK, 1)
            ad.send_img(rate, largest * 0.1**done)
            ad.send_img(r, problem.r * (LAST_R / problem.r) ** min(done / 0.7, 1.0))
            begin = time.perf_counter()
            ad.exec_steps(CHUNK)
            ms.append(1e3 * (time.perf_counter() - begin) / CHUNK)
        end = np.array([float(ad.recv_img(p).reshape(-1)[0]) for p in ps])
    return Fitted(problem.error_px(start), problem.error_px(end), min(ms), end, seen)


def truth(problem: Problem, parameters: np.ndarray, samples: int) -> np.ndarray:
    """Return (H, W): the picture of the reference for parameters."""
    return picture(problem.scene, problem.positions(parameters), samples)
