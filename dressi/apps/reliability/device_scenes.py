"""Scenes that two devices draw, and what one of them makes of it.

In: an engine. Out: ``Drawing``: pictures, faces at each pixel, gradients. Ten kinds of graph, each
with four random bumpy spheres between loose triangles, from seeds.

At an edge the picture jumps, and rounding decides what a pixel shows. Such pixels are found by
shifts of a sixteenth of a pixel, the coarsest grid that Vulkan allows a rasterizer to put vertices
on: a pixel that shows other faces then is at an edge, and so are its neighbours, which antialiasing
mixes with it. The loss leaves them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.autodiff import build_backward
from dressi.ad.simplify import materialize
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC2, VEC3
from dressi.engine import DressiAD
from dressi.render.raster import Peel, build_antialias, build_hard_raster
from dressi.render.scene import icosphere
from dressi.render.shading import flat_normal, lambert, unlit
from dressi.testing.scenes import Scene, camera, rotated

SIZE, SEEDS = 64, 4
SMALL_SIZE, SMALL_SEEDS = 24, 1
"""Of a small run."""
LOOSE = 4
"""Triangles that stand about and through the sphere."""

SHIFTS = tuple((x / 16, y / 16) for x in (-1, 1) for y in (-1, 1))
"""Pixels by which the projection moves to find edges."""

Feeds = dict[Variable, np.ndarray]


@dataclass(frozen=True, eq=False)
class Subject:
    """A graph and its data. ids: INT images, faces at each pixel. mask: FLOAT, covered or not.
    parameters: the leaves that gradients are taken of, by name."""

    image: Variable
    mask: Variable
    ids: tuple[Variable, ...]
    weight: Variable
    loss: Variable
    feeds: Feeds
    pos: Variable
    matrix: Variable
    parameters: dict[str, Variable]

    def asked(self) -> list[Variable]:
        """Return gradients, then the image, the mask and the ids."""
        gradients = build_backward(self.loss, list(self.parameters.values()))
        found = [materialize(gradients[leaf]) for leaf in self.parameters.values()]
        return [*found, self.image, self.mask, *self.ids]


@dataclass(frozen=True)
class Drawing:
    """image: (views, H, W, C). mask: (views, H, W), bool. away: the same, the pixels that are not
    at an edge. inputs: a sum over everything that was sent. gradients: by name of the leaf."""

    image: np.ndarray
    mask: np.ndarray
    away: np.ndarray
    inputs: float
    gradients: dict[str, np.ndarray]


def geometry(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return vertices of a bumpy sphere between loose triangles, and faces; counts are always the
    same."""
    rng = np.random.default_rng(seed)
    ball = icosphere(1, 1.0)
    v = ball.positions * rng.uniform(0.7, 1.1, (len(ball.positions), 1))
    v = rotated(v * rng.uniform(0.6, 1.1, 3), *rng.uniform(-3, 3, 3))
    loose = rng.uniform(-1.1, 1.1, (LOOSE, 1, 3)) + rng.uniform(-0.6, 0.6, (LOOSE, 3, 3))
    faces = np.arange(3 * LOOSE).reshape(LOOSE, 3) + len(v)
    return np.concatenate([v, loose.reshape(-1, 3)]), np.concatenate([ball.faces, faces])


def eyes(seed: int, size: int, views: int) -> np.ndarray:
    """Return (views, 4, 4): cameras around the origin."""
    rng = np.random.default_rng(1000 + seed)
    at = rng.normal(size=(views, 3)) * (1.0, 0.5, 1.0)
    at *= rng.uniform(3.2, 4.2, (views, 1)) / np.linalg.norm(at, axis=1, keepdims=True)
    return np.stack([camera((size, size), eye) for eye in at])


def weighted(image: Variable, target: Variable, size: int, views: int) -> tuple[Variable, Variable]:
    """Return (weight leaf, mean squared difference where it is 1)."""
    weight = Variable(FLOAT, (size, size), views, name="weight")
    d = image - target
    return weight, F.mean((d * d if d.vtype == FLOAT else F.dot(d, d)) * weight) * 100.0


def _soft(look: str, K: int, views: int = 1) -> Callable[[int], Subject]:
    """Return HardSoftRas as ``Scene`` has it."""

    def make(size: int) -> Subject:
        v, faces = geometry(0)
        s = Scene("", v, faces, (size, size), eyes(0, size, views), look, r=3.0 / size, K=K)
        (target,) = (leaf for leaf in s.feeds if leaf.name == "target")
        weight, loss = weighted(s.image, target, size, views)
        ids = tuple(p.ids for p in s.hs.peels)
        return Subject(
            s.image, s.hs.hard, ids, weight, loss, s.feeds, s.pos, s.matrix, s.parameters
        )

    return make


def _hard(antialias: bool) -> Callable[[int], Subject]:
    """Return hard faces with a texture and light; antialiased or not."""

    def make(size: int) -> Subject:
        v, corners = geometry(0)
        pos = Variable(VEC3, (len(v), 1), name="pos")
        faces = Variable(IVEC3, (len(corners), 1), name="faces")
        matrix = Variable(MAT4, name="matrix")
        uv = Variable(VEC2, (len(v), 1), name="uv")
        albedo = Variable(VEC3, (16, 16), name="albedo")
        target = Variable(VEC3, (size, size), name="target")
        white, ambient = F.constant((1.0, 1.0, 1.0)), F.constant((0.1, 0.1, 0.1))
        light = F.constant(np.array([1.0, 2.0, 2.0]) / 3)

        def color(peel: Peel) -> Variable:
            texel = unlit(peel, uv, faces, albedo)
            return lambert(texel, flat_normal(peel, pos, faces), light, white, ambient)

        if antialias:
            soft = build_antialias(pos, faces, matrix, (size, size))
            image, mask, ids = soft.blend(color(soft.peel)), soft.hard, soft.ids
        else:
            hard = build_hard_raster(pos, faces, matrix, (size, size))
            mask, ids = hard.mask, hard.ids
            image = F.where(mask, color(hard.peel) * (1.5 - hard.depth), 0.0)
        weight, loss = weighted(image, target, size, 1)
        rng = np.random.default_rng(7)
        feeds: Feeds = {
            pos: v,
            faces: corners,
            matrix: eyes(0, size, 1),
            uv: rng.uniform(0.0, 1.0, (len(v), 2)),
            albedo: rng.uniform(0.2, 0.9, (16, 16, 3)),
            target: rng.uniform(0.0, 1.0, (size, size, 3)),
        }
        parameters = {"vertices": pos, "camera": matrix, "texture": albedo}
        return Subject(image, mask, (ids,), weight, loss, feeds, pos, matrix, parameters)

    return make


KINDS: dict[str, Callable[[int], Subject]] = {
    "silhouette, K=1": _soft("silhouette", 1),
    "silhouette, K=3, two views": _soft("silhouette", 3, 2),
    "color, K=1": _soft("color", 1),
    "color, K=3": _soft("color", 3),
    "texture, K=1, two views": _soft("texture", 1, 2),
    "lambert, K=3": _soft("lambert", 3),
    "normal map, K=1": _soft("normal map", 1),
    "environment, K=1": _soft("environment", 1),
    "antialias": _hard(True),
    "hard raster": _hard(False),
}
SMALL_KINDS = ("silhouette, K=1", "hard raster")


def scene_names(small: bool) -> list[str]:
    """Return the names of all scenes."""
    kinds, seeds = (SMALL_KINDS, SMALL_SEEDS) if small else (tuple(KINDS), SEEDS)
    return [f"{kind}, {seed}" for kind in kinds for seed in range(seeds)]


def draw_all(
    ad: DressiAD, small: bool, away: Mapping[str, np.ndarray] | None = None
) -> Iterator[tuple[str, Drawing]]:
    """Yield every scene by name. away: pixels that are not at an edge, by name of the scene, as
    another device found them; None: found now."""
    size, seeds = (SMALL_SIZE, SMALL_SEEDS) if small else (SIZE, SEEDS)
    for kind in SMALL_KINDS if small else KINDS:
        subject = KINDS[kind](size)
        asked = subject.asked()
        for seed in range(seeds):
            name = f"{kind}, {seed}"
            yield name, _draw(ad, subject, asked, seed, None if away is None else away[name])


def _draw(
    ad: DressiAD, subject: Subject, asked: list[Variable], seed: int, away: np.ndarray | None
) -> Drawing:
    views, size = subject.matrix.layers, subject.image.size[0]
    matrices, n = eyes(seed, size, views), len(subject.parameters)

    def run() -> tuple[list[np.ndarray], list[np.ndarray]]:
        found = ad.recv_imgs(asked)
        return found[:n], [a.reshape(views, size, size, -1) for a in found[n:]]

    feeds = {**subject.feeds, subject.pos: geometry(seed)[0], subject.matrix: matrices}
    for leaf, data in feeds.items():
        ad.send_img(leaf, data)
    if away is None:
        ad.send_img(subject.weight, np.ones((views, size, size, 1)))
        faces = run()[1][2:]
        stays = np.ones((views, size, size), bool)
        for x, y in SHIFTS:
            moved = matrices.copy()
            moved[:, :2] += np.array([x, y])[:, None] * (2 / size) * matrices[:, 3:]
            ad.send_img(subject.matrix, moved)
            for was, now in zip(faces, run()[1][2:], strict=True):
                stays &= (was == now)[..., 0]
        ad.send_img(subject.matrix, matrices)
        away = ~spread(~stays)
    ad.send_img(subject.weight, away[..., None])
    gradients, (image, mask, *_) = run()
    total = sum(float(np.abs(np.asarray(a, np.float64)).sum()) for a in feeds.values())
    named = dict(zip(subject.parameters, gradients, strict=True))
    return Drawing(image, mask[..., 0] > 0.5, away, total, named)


def spread(at: np.ndarray) -> np.ndarray:
    """Return pixels that are marked, and their eight neighbours. at: (views, H, W), bool."""
    wide = np.pad(at, ((0, 0), (1, 1), (1, 1)))
    h, w = at.shape[1:]
    near = [wide[:, y : y + h, x : x + w] for y in range(3) for x in range(3)]
    return np.asarray(np.logical_or.reduce(near))
