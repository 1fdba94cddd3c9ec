"""The paper's validation fit (4.3): vertices of a sphere by random views under random lights.

In: a target mesh, a way to draw soft edges. Out: mean distance of the vertices to the target at
every so many iterations, times, positions at checkpoints. Each iteration draws one view; the loss
is the mean absolute difference of pictures (``LOOKS``) plus a Laplacian whose weight falls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from tqdm import tqdm

from dressi.ad import Adam, Variable
from dressi.ad.graph import leaves
from dressi.ad.optim import Optimizer
from dressi.ad.vtype import FLOAT, VEC3
from dressi.apps import live
from dressi.apps.experiments.lit_views import (
    AMBIENT,
    Method,
    Views,
    draw,
)
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.packing import Options
from dressi.render.fit import l1_loss, laplacian_loss, laplacian_matrix, mean_distance_to_surface
from dressi.render.io import contact_sheet
from dressi.render.scene import Mesh
from dressi.testing.views import mesh_leaves, render, send_mesh

START_RADIUS = 0.5

LR = (0.002, 0.002)
LAPLACIAN = (10.0, 0.1)
"""At the start and at the end of a fit of 2500 iterations. The rate is low enough that 500
iterations do not converge, and stays, so that what a method's gradients still move at the end
shows; all methods end nearer where it falls (docs/experiments.md)."""

BETA2 = 0.95
"""A short memory, for each iteration has another view."""

TARGET_FACES_HELP = "faces of the target at most: its pictures have soft edges as well"


@dataclass(frozen=True)
class Fit:
    """What all methods share. Pairs go geometrically from start to end. r_until: part of the
    iterations by which the last reach is on; those before share it equally. every: iterations
    between measurements of the distance. look: what is compared, of LOOKS."""

    iterations: int
    lr: tuple[float, ...] = LR
    laplacian: tuple[float, ...] = LAPLACIAN
    r_until: float = 0.6
    every: int = 50
    look: str = "lambert"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, pair in (("lr", self.lr), ("laplacian", self.laplacian)):
            if len(pair) != 2:
                raise DressiError(f"{name} goes from a start to an end: two numbers, got {pair}")


@dataclass
class Trace:
    """iterations, seconds (of iterations alone, building left out), distances: at each measurement,
    the first at the start. positions: at the checkpoints."""

    iterations: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    distances: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    positions: dict[int, np.ndarray] = field(default_factory=dict)
    ms: float = 0.0

    def at(self, iteration: int) -> float:
        """Return the mean distance at a measured iteration."""
        return self.distances[self.iterations.index(iteration)]


def run_fit(
    start: Mesh,
    target: Mesh,
    views: Views,
    method: Method,
    fit: Fit,
    checkpoints: Sequence[int] = (),
    device: str | None = None,
) -> Trace:
    """Run one fit of the start mesh: a ``Fitter`` that runs once. Raises DressiError where a
    vertex is no number any more."""
    with Fitter(start, method, views.size, fit.look, device=device) as fitter:
        return fitter.run(start.positions, target, views, fit, checkpoints)


def adam(lr: Variable) -> Optimizer:
    """Return the optimizer of the experiments."""
    return Adam(lr, beta2=BETA2)


class Fitter:
    """One graph for many fits: start positions, reaches within the method's largest, pictures,
    rates and weights are sent, so only the first fit builds.

    start: faces of all the fits. look: of LOOKS. optimizer: of the rate. batch: views per
    iteration. ambient: as in ``Painter``. options: of the engine; without ``deterministic`` sums
    are taken in any order, so the same fit once more ends slightly elsewhere.
    """

    def __init__(
        self,
        start: Mesh,
        method: Method,
        size: int,
        look: str = "lambert",
        optimizer: Callable[[Variable], Optimizer] = adam,
        batch: int = 1,
        ambient: float = AMBIENT,
        device: str | None = None,
        options: Options | None = None,
    ) -> None:
        self.start, self.method, self.size, self.look = start, method, size, look
        self.batch = batch
        self.leaves = mesh_leaves(start, batch, requires_grad=True)
        self.r, self.lr, self.weight = (
            Variable(FLOAT, name=n) for n in ("r", "lr", "laplacian_weight")
        )
        self.light = Variable(VEC3, layers=batch, name="light")
        got = draw(self.leaves, self.light, self.r, method, size, look, ambient)
        self.wanted = Variable(got.vtype, (size, size), batch, name="target")
        laplacian = laplacian_matrix(start.faces, len(start.positions))
        smooth = laplacian_loss(self.leaves.pos, laplacian) * self.weight
        self.loss = l1_loss(got, self.wanted) + smooth
        self._states: list[Variable] = []
        self._make_optimizer = optimizer
        self.ad = DressiAD(device, options)
        self.ad.set_loss_var(self.loss)
        self.ad.set_optimizer(self._optimize)

    def _optimize(self, xs: Sequence[Variable], gxs: Sequence[Variable]) -> Sequence[Variable]:
        updated = list(self._make_optimizer(self.lr)(xs, gxs))
        self._states = [v for v in leaves(updated) if v.update is not None]
        return updated

    def __enter__(self) -> Fitter:
        return self

    def __exit__(self, *_: object) -> None:
        self.ad.close()

    def run(
        self,
        positions: np.ndarray,
        target: Mesh,
        views: Views,
        fit: Fit,
        checkpoints: Sequence[int] = (),
        r_px: Sequence[float] | None = None,
    ) -> Trace:
        """Return a fit from these positions of the start's vertices. The order of views depends on
        the seed alone, so that all methods see the same. r_px: other reaches than the method's.
        Raises DressiError for one larger than what the method was built for, and where a vertex is
        no number any more."""
        ad, method, reaches = self.ad, self.method, self.method.reaches(r_px)
        rng = np.random.default_rng(fit.seed)
        last = max(fit.iterations - 1, 1)
        trace = Trace()
        times: list[float] = []
        begun = replace(self.start, positions=positions)
        send_mesh(ad, self.leaves, begun, views.matrices[np.zeros(self.batch, int)])
        for state in self._states:
            assert state.data is not None
            ad.send_img(state, np.zeros_like(state.data))

        def send(i: int) -> None:
            k, t = rng.integers(len(views.matrices), size=self.batch), i / last
            stage = stage_at(t, len(reaches), fit.r_until)
            picture = min(stage, len(views.pictures) - 1)
            one = self.batch == 1
            ad.send_img(self.leaves.matrix, views.matrices[k[0]] if one else views.matrices[k])
            ad.send_img(self.wanted, views.pictures[picture, k[0] if one else k])
            if self.look != "silhouette":
                lights = views.lights[k]
                ad.send_img(self.light, lights[0] if one else lights.reshape(-1, 1, 1, 3))
            if not method.antialias:
                ad.send_img(self.r, reaches[stage] / self.size)
            ad.send_img(self.lr, between(fit.lr, t))
            ad.send_img(self.weight, between(fit.laplacian, t))

        live.begin(method.name, begun, views.matrices, views.pictures[-1])
        for i in tqdm(range(fit.iterations + 1), desc=method.name, unit="it", leave=False):
            if i % fit.every == 0 or i == fit.iterations or i in checkpoints:
                now = ad.recv_img(self.leaves.pos) if i else positions
                if not np.isfinite(now).all():
                    raise DressiError(f"{method.name}: vertices are lost at iteration {i}")
                trace.iterations.append(i)
                trace.seconds.append(sum(times) / 1e3)
                trace.distances.append(
                    mean_distance_to_surface(now, target.positions, target.faces)
                )
                if i:
                    trace.losses.append(float(ad.recv_img(self.loss).reshape(-1)[0]))
                if i in checkpoints:
                    trace.positions[i] = now
            if i == fit.iterations:
                break
            begin = time.perf_counter()
            send(i)
            ad.exec_step()
            if i >= SETTLING:
                times.append((time.perf_counter() - begin) * 1e3)
            live.step(ad, trace.losses[-1] if trace.losses else None, self.leaves.pos)
        trace.ms = float(np.median(times)) if times else 0.0
        return trace


SETTLING = 10
"""Iterations whose time does not count: they build."""


def stage_at(t: float, stages: int, until: float) -> int:
    """Return which of the stages is on at t in [0, 1]: the last from ``until`` on, the others share
    what is before it equally."""
    return min(int(t / until * (stages - 1)), stages - 1)


def between(pair: tuple[float, ...], t: float) -> float:
    """Return what a pair has become at t in [0, 1]: geometrically from the first to the second."""
    return pair[0] * (pair[1] / pair[0]) ** t


def draw_fits(
    start: Mesh,
    target: Mesh,
    positions: Mapping[str, np.ndarray],
    views: Views,
    device: str | None = None,
) -> np.ndarray:
    """Return a sheet: the target and the start mesh at each of these positions, shaded, in a few
    views."""
    meshes = {"target": target}
    meshes |= {name: replace(start, positions=p) for name, p in positions.items()}
    size, shown = (min(views.size, 192),) * 2, views.matrices[:SHOWN]
    rows = {
        name: list(render(mesh, shown, size, None, 2, device)[1]) for name, mesh in meshes.items()
    }
    return contact_sheet(rows)


SHOWN = 5
"""Views on a sheet."""
