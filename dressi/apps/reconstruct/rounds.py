"""One round of a fit of a shape: a mesh of one topology moves until its pictures match.

Positions are v = (I + lambda L)^-1 u (Large Steps) and u moves by AdamUniform; each step sees a
part of the views. The loss is one sum with stated weights (``LossWeights``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from tqdm import tqdm

from dressi.ad import Adam, AdamUniform, F, ParameterGroups, Variable
from dressi.ad.optim import Optimizer
from dressi.ad.vtype import VEC3, VEC4
from dressi.apps import live
from dressi.apps.reconstruct.cameras import (
    Cameras,
    CameraState,
    build_cameras,
    camera_optimizers,
    camera_prior,
    moved_matrix,
    received,
    seen_through,
    send_camera_views,
    send_cameras,
)
from dressi.apps.reconstruct.leaves import Leaves, leaves_of, send_pictures, send_views
from dressi.apps.reconstruct.pictures import Pictures
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.render.fit import (
    l1_loss,
    laplacian_loss,
    laplacian_matrix,
    large_steps,
    normal_consistency,
    silhouette_loss,
)
from dressi.render.raster import HardSoft, build_hardsoftras, gather, interpolate
from dressi.render.scene import Mesh
from dressi.render.shading import flat_normal

BETA2 = 0.95
"""Second decay of the optimizers: gradients shrink over a few dozen steps, which 0.999 would not
notice in time."""

PLAIN_LR = 0.1
"""Learning rate of Adam on vertices, as a part of that of Large Steps: there every vertex takes a
whole step by itself."""

PLAIN_LAPLACIAN = 20.0
"""Weight of the Laplacian that holds vertices together where Large Steps do not."""


SOFTNESS_PX = 0.25
"""Least sigma of silhouettes: there a sigmoid is as steep at an edge, 1 / (4 sigma), as the part of
a square pixel that an edge covers. A steeper one has gradients at fewer pixels than pictures. Not
where cameras are refined: a lens is found a little less exactly by softer edges."""


@dataclass(frozen=True)
class LossWeights:
    """Weights of the loss: of the squared error of silhouettes (1 is the unit of all), the absolute
    error of normals, the absolute error of colours, the squared error of depth (lengths of the
    object's box), and of normal consistency, which keeps smooth what the pictures leave open."""

    silhouette: float = 1.0
    normals: float = 0.3
    colour: float = 1.0
    depth: float = 10.0
    bend: float = 0.003


@dataclass(frozen=True)
class Round:
    """One round. faces: about how many the mesh is remeshed to; None: it stays as it is. size:
    longer side of the pictures, pixels. iterations: steps. r_px: reach at the start and at the end,
    pixels; lr: learning rate, the same, for a box of side 2; both go geometrically. smoothness:
    lambda of Large Steps. views: per step."""

    faces: int | None
    size: int
    iterations: int
    r_px: tuple[float, float]
    lr: tuple[float, float]
    smoothness: float = 3.0
    views: int = 6


@dataclass
class Course:
    """How a round went. losses: of each step. ms: wall time of each step. build_s: from graph to
    recorded commands. cameras: at its end, where they were refined."""

    losses: list[float] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)
    build_s: float = 0.0
    cameras: CameraState | None = None


def shape_loss(
    hs: HardSoft,
    pos: Variable,
    leaves: Leaves,
    weights: LossWeights,
    cameras: Cameras | None = None,
) -> Variable:
    """FLOAT @ 1x1: silhouettes, normals and depth where there are targets, and the bend of the
    mesh. cameras: those that are refined: silhouettes and normals are seen through their lens.
    Gradient to pos, from hs too."""
    shaded = leaves.target.vtype is VEC4
    outline = F.swizzle(leaves.target, "w") if shaded else leaves.target
    shown = seen_through(cameras, hs.silhouette)
    loss = silhouette_loss(shown, outline, leaves.weights) * weights.silhouette
    if shaded:
        picture = hs.blend([flat_normal(peel, pos, leaves.faces) for peel in hs.peels])
        picture = seen_through(cameras, picture)
        loss = loss + l1_loss(picture, leaves.target.xyz, leaves.weights) * weights.normals
    if leaves.depth is not None:
        # w of clip space, as the last row of the matrix gives it.
        peel = hs.peels[0]
        place = interpolate(gather(pos, leaves.faces), peel.ids, peel.bary)
        w = (leaves.matrix @ F.vec4(place, 1.0)).w
        known = hs.hard * F.to_float(leaves.depth > 0.0)
        off = F.where(known, w - leaves.depth, 0.0)
        loss = loss + F.mean(off * off) * weights.depth
    return loss + normal_consistency(pos, leaves.faces) * weights.bend


def fit_round(
    ad: DressiAD,
    mesh: Mesh,
    pictures: Pictures,
    one: Round,
    weights: LossWeights,
    label: str,
    preconditioned: bool = True,
    occlusion: bool = True,
    seed: int = 0,
    start: CameraState | None = None,
) -> tuple[Mesh, Course]:
    """Move the vertices of a mesh until the pictures match; return the mesh, and how it went.

    mesh: in a box of about side 2 around the origin, no UVs. pictures: of positions in that box.
    preconditioned: Large Steps; else Adam on the vertices, with a Laplacian in the loss. occlusion:
    gradients where a surface ends before another one too. seed: of the order of the views. start:
    cameras move, too, from here; where they are then is in the course. Raises DressiError where the
    loss is not finite.
    """
    small = replace(pictures, colour=None).shrunk(one.size)
    n_views = min(one.views, len(small))
    mesh = Mesh(mesh.positions, mesh.faces, name=mesh.name)
    leaves = leaves_of(mesh, small, n_views)
    parameter, pos, first, optimizer = _parametrized(mesh, one, leaves.lr, preconditioned)
    longer, cameras, matrix = max(small.size), None, leaves.matrix
    if start is not None:
        cameras = build_cameras(start, small.size, n_views)
        matrix = moved_matrix(cameras, matrix)
        optimizer = ParameterGroups(camera_optimizers(cameras), default=optimizer)
    softness = SOFTNESS_PX if cameras is None else 0.0
    hs = build_hardsoftras(
        pos, leaves.faces, matrix, small.size, leaves.r, occlusion=occlusion,
        sigma=F.maximum(leaves.r * (1.0 / 7.0), softness / longer),
        max_delta=min(max(one.r_px) / longer, 1.0),
    )  # fmt: skip
    loss = shape_loss(hs, pos, leaves, weights, cameras)
    if not preconditioned:
        laplacian = laplacian_matrix(mesh.faces, len(mesh.positions))
        loss = loss + laplacian_loss(pos, laplacian) * PLAIN_LAPLACIAN
    ad.set_loss_var(loss if cameras is None else loss + camera_prior(cameras))
    ad.set_optimizer(optimizer)
    ad.send_img(parameter, first)
    ad.send_img(leaves.faces, mesh.faces)
    send_pictures(ad, leaves, small)
    if cameras is not None:
        send_cameras(ad, cameras)
    last = max(one.iterations - 1, 1)

    def send(i: int, views: np.ndarray) -> None:
        ad.send_img(leaves.r, between(one.r_px, i / last) / longer)
        ad.send_img(leaves.lr, between(one.lr, i / last))
        send_views(ad, leaves, small, views)
        if cameras is not None:
            send_camera_views(ad, cameras, views, between(cameras.before.how.lr, i / last))

    live.begin(label, mesh, small.matrices, small.coverage)
    views = turns(len(small), n_views, seed)
    course = run(ad, loss, one.iterations, views, send, label, pos)
    if cameras is not None:
        course.cameras = received(ad, cameras)
    return replace(mesh, positions=ad.recv_img(pos)), course


def _parametrized(
    mesh: Mesh, one: Round, lr: Variable, preconditioned: bool
) -> tuple[Variable, Variable, np.ndarray, Optimizer]:
    """Return the parameter, the positions made of it, its first value and its optimizer."""
    if not preconditioned:
        pos = Variable(VEC3, (len(mesh.positions), 1), requires_grad=True, name="vtx_pos")
        return pos, pos, mesh.positions, Adam(lr * PLAIN_LR, beta2=BETA2)
    steps = large_steps(mesh, one.smoothness)
    u = Variable(VEC3, (steps.n_places, 1), requires_grad=True, name="u")
    start = steps.parameters(mesh.positions)
    return u, steps.vertices(u), start, AdamUniform(lr, beta2=BETA2)


def between(pair: tuple[float, float], t: float) -> float:
    """Return the value at t in [0, 1] on the way from the first to the second, geometrically."""
    return float(pair[0] * (pair[1] / pair[0]) ** min(t, 1.0))


def turns(n: int, part: int, seed: int) -> Iterator[np.ndarray]:
    """Yield rows of views for steps, without end: each view once before any comes again."""
    rng = np.random.default_rng(seed)
    waiting = np.empty(0, np.int64)
    while True:
        if len(waiting) < part:
            waiting = np.concatenate([waiting, rng.permutation(n)])
        # A view that is left over from one pass may come again at once in the next one.
        yield waiting[:part]
        waiting = waiting[part:]


def run(
    ad: DressiAD,
    loss: Variable,
    iterations: int,
    views: Iterator[np.ndarray],
    send: Callable[[int, np.ndarray], None],
    label: str,
    positions: Variable,
    texture: Variable | None = None,
) -> Course:
    """Run the steps of a fit, of positions and a texture. Raises DressiError where the loss is not
    finite."""
    course = Course()
    for i in tqdm(range(iterations), desc=label, unit="it"):
        begin = time.perf_counter()
        send(i, next(views))
        if i == 0:
            _ = ad.plan  # builds
            course.build_s = time.perf_counter() - begin
        ad.exec_step()
        course.losses.append(float(ad.recv_img(loss).reshape(-1)[0]))
        course.ms.append((time.perf_counter() - begin) * 1e3)
        live.step(ad, course.losses[-1], positions, texture)
    if not np.isfinite(course.losses).all():
        raise DressiError(f"{label}: the loss became {course.losses[-1]}")
    return course
