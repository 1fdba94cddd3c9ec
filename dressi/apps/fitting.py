"""Fits that the commands share: a shape to silhouettes, a texture to colours.

In: a start mesh, matrices, target images. Out: fitted data, loss curves, times. All state stays on
the device; each iteration sends four numbers (r, learning rate, regularizer weight, sigma follows
r).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from tqdm import tqdm

from dressi.ad import Adam, Variable, step_counter
from dressi.ad.graph import leaves
from dressi.ad.optim import Optimizer
from dressi.ad.vtype import FLOAT, VEC2, VEC3, VType
from dressi.apps import live
from dressi.engine import DressiAD
from dressi.errors import NotFiniteError
from dressi.kinds import TextureBackward
from dressi.render.fit import (
    l2_loss,
    laplacian_loss,
    laplacian_matrix,
    normal_consistency,
    silhouette_loss,
)
from dressi.render.raster import HardSoft, Size, build_hardsoftras
from dressi.render.scene import Mesh
from dressi.render.shading import unlit
from dressi.testing.views import MeshLeaves, mesh_leaves, send_mesh


@dataclass(frozen=True)
class ShapeSchedule:
    """Schedule of a shape fit; every pair goes geometrically from start to end.

    r: reach, as a fraction of the longer side; reaches its end at ``r_until`` of the iterations.
    lr: Adam's learning rate, world units. laplacian: weight of mean |L v|^2. normal: weight of the
    normal consistency, which keeps faces from folding over. beta2: Adam's second decay; 0.95
    because gradients shrink over a few dozen iterations, which 0.999 would not notice in time. K:
    peels.
    """

    iterations: int = 150
    r: tuple[float, float] = (0.03, 1 / 256)
    lr: tuple[float, float] = (0.01, 0.003)
    laplacian: tuple[float, float] = (20.0, 10.0)
    normal: tuple[float, float] = (0.015, 0.015)
    r_until: float = 0.8
    beta2: float = 0.95
    K: int = 1


@dataclass
class FitResult:
    """What a fit gives back. times_ms: wall time of each iteration. build_s: from graph to recorded
    commands."""

    data: np.ndarray
    positions: np.ndarray | None = None
    losses: list[float] = field(default_factory=list)
    times_ms: list[float] = field(default_factory=list)
    build_s: float = 0.0

    @property
    def median_ms(self) -> float:
        return float(np.median(self.times_ms)) if self.times_ms else 0.0

    @property
    def mean_ms(self) -> float:
        """Mean after the iterations that build, or of all where there are no others."""
        counted = self.times_ms[FIRST_HOLD:] or self.times_ms
        return float(np.mean(counted)) if counted else 0.0


def _between(pair: tuple[float, float], t: float) -> float:
    return pair[0] * (pair[1] / pair[0]) ** t


class ShapeFitter:
    """One graph for fits of shapes of one topology: what changes is sent, so only the first fit
    builds.

    ad: an engine of its own. mesh: faces of all fits. views: how many; size: (width, height) of
    silhouettes. K, max_r: peels, and the largest reach of any fit. weighted: whether pixels have
    weights.
    """

    def __init__(
        self,
        ad: DressiAD,
        mesh: Mesh,
        views: int,
        size: tuple[int, int],
        K: int,
        max_r: float,
        beta2: float = 0.95,
        weighted: bool = False,
    ) -> None:
        self.ad, self.views = ad, views
        self.leaves = mesh_leaves(mesh, views, requires_grad=True)
        names = ("r", "lr", "laplacian_weight", "normal_weight")
        self.r, self.lr, self.weight, self.bend = (Variable(FLOAT, name=n) for n in names)
        self.target = Variable(FLOAT, size, views, name="target_silhouette")
        self.mask = Variable(FLOAT, size, views, name="pixel_weight") if weighted else None
        pos, faces = self.leaves.pos, self.leaves.faces
        hs = build_hardsoftras(pos, faces, self.leaves.matrix, size, self.r, K, max_delta=max_r)
        laplacian = laplacian_matrix(mesh.faces, len(mesh.positions))
        self.loss = (
            silhouette_loss(hs.silhouette, self.target, self.mask)
            + laplacian_loss(pos, laplacian) * self.weight
            + normal_consistency(pos, faces) * self.bend
        )
        self.optimizer = Restarted(Adam(self.lr, beta2=beta2), self.loss)
        ad.set_loss_var(self.loss)
        ad.set_optimizer(self.optimizer)

    def fit(
        self,
        mesh: Mesh,
        matrices: np.ndarray,
        silhouettes: np.ndarray,
        schedule: ShapeSchedule,
        label: str = "shape",
        weights: np.ndarray | None = None,
        watch: Callable[[Callable[[], np.ndarray]], None] | None = None,
    ) -> FitResult:
        """Return a fit; see ``fit_shape``. watch: called after each step, outside of what is timed,
        with a function that reads the positions."""
        ad, last = self.ad, max(schedule.iterations - 1, 1)
        self.optimizer.restart(ad)
        send_mesh(ad, self.leaves, mesh, matrices)
        ad.send_img(self.target, silhouettes if self.views > 1 else silhouettes[0])
        if self.mask is not None and weights is not None:
            ad.send_img(self.mask, weights if self.views > 1 else weights[0])
        result = FitResult(np.empty(0))

        def send(i: int) -> None:
            t = i / last
            ad.send_img(self.r, _between(schedule.r, min(t / schedule.r_until, 1.0)))
            ad.send_img(self.lr, _between(schedule.lr, t))
            ad.send_img(self.weight, _between(schedule.laplacian, t))
            ad.send_img(self.bend, _between(schedule.normal, t))

        send(0)
        live.begin(label, mesh, matrices, silhouettes)
        _run(ad, self.loss, schedule.iterations, label, result, send, self.leaves.pos, watch=watch)
        result.data = ad.recv_img(self.leaves.pos)
        return result


class Restarted:
    """An optimizer whose state can be set back to zeros, with that of the loss, for the next fit on
    the same graph."""

    def __init__(self, optimizer: Optimizer, loss: Variable) -> None:
        self._optimizer, self._loss = optimizer, loss
        self._states: list[Variable] = []

    def __call__(self, xs: Sequence[Variable], gxs: Sequence[Variable]) -> Sequence[Variable]:
        """Return the updates, as the optimizer does."""
        updated = list(self._optimizer(xs, gxs))
        self._states = [v for v in leaves([self._loss, *updated]) if v.update is not None]
        return updated

    def restart(self, ad: DressiAD) -> None:
        """Begin anew. Before the first step there is nothing to do."""
        for state in self._states:
            assert state.data is not None
            ad.send_img(state, np.zeros_like(state.data))


def fit_shape(
    ad: DressiAD,
    mesh: Mesh,
    matrices: np.ndarray,
    silhouettes: np.ndarray,
    schedule: ShapeSchedule,
    label: str = "shape",
    weights: np.ndarray | None = None,
) -> FitResult:
    """Move the vertices of a mesh until its silhouettes match: a ``ShapeFitter`` that runs once.

    matrices: (views, 4, 4). silhouettes: (views, H, W, 1) coverage in [0, 1]. weights: the same
    shape, of each pixel's loss. Returns positions (N, 3).
    """
    n_views, height, width = silhouettes.shape[:3]
    size, reach = (width, height), max(schedule.r)
    fitter = ShapeFitter(
        ad, mesh, n_views, size, schedule.K, reach, schedule.beta2, weights is not None
    )
    return fitter.fit(mesh, matrices, silhouettes, schedule, label, weights)


@dataclass(frozen=True)
class TextureSchedule:
    """Schedule of a texture fit. lr: Adam's learning rate, linear albedo. size: (width, height)
    texels. backward: of F.texture. shape_lr: not None: the vertices move too, by the colours, the
    silhouettes and the regularizers of ``shape``, with this learning rate. r_px: reach in pixels; 1
    is antialiasing mode. hold: steps with one shift of the projection, while nothing is rasterized
    again (of the pear, 6 for 3 saves a quarter of the time and costs 0.07 dB); 1 where the vertices
    move, which have to be rasterized anyway. sobol: whether the projection is shifted by Sobol
    points and ``inverse_uv`` draws other pixels in each step; False:
    the same pixels always. laplacian: its weight where the vertices move, at the start and at the
    end; None: that of the end of ``shape`` throughout."""

    iterations: int = 100
    lr: tuple[float, float] = (0.06, 0.01)
    size: tuple[int, int] = (256, 256)
    backward: TextureBackward = "exact"
    start: float = 1.0
    shape_lr: tuple[float, float] | None = None
    r_px: float = 1.0
    hold: int = 6
    sobol: bool = True
    laplacian: tuple[float, float] | None = None
    shape: ShapeSchedule = field(default_factory=ShapeSchedule)


def fit_texture(
    ad: DressiAD,
    mesh: Mesh,
    matrices: np.ndarray,
    colours: np.ndarray,
    schedule: TextureSchedule,
    label: str = "texture",
    weights: np.ndarray | None = None,
    silhouettes: np.ndarray | None = None,
) -> FitResult:
    """Paint the texture of a mesh until its pictures match; with ``schedule.shape_lr`` its vertices
    move too.

    colours: (views, H, W, 3) linear over black. weights: (views, H, W, 1) of each pixel's loss.
    silhouettes: (views, H, W, 1), needed to move vertices. Returns the texture (H, W, 3), clipped
    to [0, 1].
    """
    n_views, height, width = colours.shape[:3]
    size = (width, height)
    joint = schedule.shape_lr is not None and silhouettes is not None
    leaves = mesh_leaves(mesh, n_views, requires_grad=joint)
    albedo = Variable(VEC3, schedule.size, requires_grad=True, name="albedo")
    lr, shape_lr = Variable(FLOAT, name="lr"), Variable(FLOAT, name="shape_lr")
    weight = Variable(FLOAT, name="laplacian_weight")
    target = Variable(VEC3, size, n_views, name="target_colour")
    jitter = Variable(VEC2, name="jitter")
    hs, picture = _textured(leaves, albedo, jitter, size, schedule)
    mask = None if weights is None else _layered(ad, weights, FLOAT, "pixel_weight")
    loss = l2_loss(picture, target, mask)
    rates = {albedo: lr}
    if joint:
        assert silhouettes is not None
        outline = _layered(ad, silhouettes, FLOAT, "target_silhouette")
        loss = loss + silhouette_loss(hs.silhouette, outline, mask)
        loss = _regularized(loss, leaves, mesh, schedule.shape, weight)
        rates[leaves.pos] = shape_lr
    ad.set_loss_var(loss)
    ad.set_optimizer(adam_of_each(rates))
    send_mesh(ad, leaves, mesh, matrices)
    ad.send_img(target, colours if n_views > 1 else colours[0])
    ad.send_img(albedo, np.full((*schedule.size[::-1], 3), schedule.start, np.float32))
    result = FitResult(np.empty(0))
    last = max(schedule.iterations - 1, 1)
    smooth = schedule.shape.laplacian[1]
    shifts = _shifts(schedule, 1 if joint else schedule.hold)

    def send(i: int) -> None:
        if i in shifts:
            ad.send_img(jitter, shifts[i])
        ad.send_img(lr, _between(schedule.lr, i / last))
        if joint and schedule.shape_lr is not None:
            ad.send_img(shape_lr, _between(schedule.shape_lr, i / last))
            ad.send_img(weight, _between(schedule.laplacian or (smooth, smooth), i / last))

    send(0)
    live.begin(label, mesh, matrices, colours)
    _run(ad, loss, schedule.iterations, label, result, send, leaves.pos, albedo)
    result.data = np.clip(ad.recv_img(albedo), 0.0, 1.0)
    if joint:
        result.positions = ad.recv_img(leaves.pos)
    return result


def _textured(
    leaves: MeshLeaves, albedo: Variable, jitter: Variable, size: Size, schedule: TextureSchedule
) -> tuple[HardSoft, Variable]:
    """The rasterization, and VEC3 @ size: the textured mesh over black."""
    assert leaves.uv is not None and leaves.uv_faces is not None
    reach, back = schedule.r_px / max(size), schedule.backward
    # Sobol points shift the projection within a pixel, so that texels between pixel centres are
    # painted too, and the mean over steps is the box-filtered picture that a camera takes.
    hs = build_hardsoftras(leaves.pos, leaves.faces, leaves.matrix, size, reach, jitter=jitter)
    step = step_counter("texture.step") if back == "inverse_uv" and schedule.sobol else None
    colour = unlit(hs.peels[0], leaves.uv, leaves.uv_faces, albedo, back, step, wrap="clamp")
    return hs, hs.blend([colour])


FIRST_HOLD = 10
"""Steps with the first shift: by then the engine has seen that it may leave rasterization out."""


def _shifts(schedule: TextureSchedule, hold: int) -> dict[int, np.ndarray]:
    """Return the shifts of the projection, (2,) pixels within half of one, by the steps at which
    they begin."""
    if not schedule.sobol:
        return {0: np.zeros(2, np.float32)}
    begins = [0, *range(FIRST_HOLD if hold > 1 else 1, schedule.iterations, hold)]
    from scipy.stats import qmc  # half a second or more: only where points are drawn

    points = qmc.Sobol(2, scramble=False).random_base2(max(len(begins) - 1, 1).bit_length())
    return dict(zip(begins, points.astype(np.float32) - 0.5, strict=False))


def _regularized(
    loss: Variable, leaves: MeshLeaves, mesh: Mesh, schedule: ShapeSchedule, weight: Variable
) -> Variable:
    """Return the loss with the regularizers of a shape: the Laplacian times a weight, the normal
    consistency in that of the schedule's end."""
    laplacian = laplacian_matrix(mesh.faces, len(mesh.positions))
    return (
        loss
        + laplacian_loss(leaves.pos, laplacian) * weight
        + normal_consistency(leaves.pos, leaves.faces) * schedule.normal[1]
    )


def adam_of_each(rates: Mapping[Variable, Variable]) -> Optimizer:
    """Return an optimizer that moves each parameter by Adam with a learning rate of its own."""
    return lambda xs, gxs: [
        Adam(rates[x], beta2=0.95)([x], [g])[0] for x, g in zip(xs, gxs, strict=True)
    ]


def _layered(ad: DressiAD, images: np.ndarray, vtype: VType, name: str) -> Variable:
    """Return a leaf for (views, H, W, C) images, sent."""
    n, height, width = images.shape[:3]
    leaf = Variable(vtype, (width, height), n, name=name)
    ad.send_img(leaf, images if n > 1 else images[0])
    return leaf


def _run(  # type: ignore[no-untyped-def]
    ad: DressiAD, loss: Variable, iterations: int, label: str, result: FitResult, send,
    positions: Variable, texture: Variable | None = None,
    watch: Callable[[Callable[[], np.ndarray]], None] | None = None,
) -> None:  # fmt: skip
    start = time.perf_counter()
    _ = ad.plan  # builds
    result.build_s = time.perf_counter() - start
    bar = tqdm(range(iterations), desc=label, unit="it")
    for i in bar:
        start = time.perf_counter()
        send(i)
        ad.exec_step()
        value = float(ad.recv_img(loss).reshape(-1)[0])
        result.times_ms.append((time.perf_counter() - start) * 1e3)
        result.losses.append(value)
        bar.set_postfix(loss=f"{value:.3e}", refresh=False)
        live.step(ad, value, positions, texture)
        if watch is not None:
            watch(lambda: ad.recv_img(positions))
        if not math.isfinite(value):
            raise NotFiniteError(f"{label}: the loss became {value} in iteration {i + 1}")


__all__ = [
    "FitResult",
    "Restarted",
    "ShapeFitter",
    "ShapeSchedule",
    "TextureSchedule",
    "fit_shape",
    "fit_texture",
]
