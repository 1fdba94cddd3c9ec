"""Work for R5: small, and of each kind that an engine does.

In: a device. Out: nothing; ``WORKS`` by name.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dressi.ad import SGD, Adam, F, Variable
from dressi.ad.vtype import FLOAT, INT, VEC2, VEC3
from dressi.engine import DressiAD
from dressi.packing import Options
from dressi.render.fit import silhouette_loss
from dressi.render.raster import build_antialias
from dressi.testing.problems import (
    Problem,
    silhouette_problem,
    sphere,
    texture_problem,
    view_matrices,
)
from dressi.testing.views import mesh_leaves

SIZE, VIEWS, FACES = 24, 2, 80
SETTLE = 12
"""Steps after which the cache has rebuilt a step for the last time."""
PASSES, DISPATCHES = Options(lowering="graphics"), Options(lowering="compute")

Work = Callable[[str | None], None]


# -- work


def _run(device: str | None, problem: Problem, options: Options, K: int = 1) -> None:
    with DressiAD(device, options) as ad:
        problem.load(ad)
        ad.exec_step()
        ad.exec_steps(2)
        ad.recv_imgs([problem.parameter, problem.loss])
        if K == 1:  # each is built anew, which takes its time where there are several layers
            ad.recv_img(problem.picture)
            ad.recv_grad(problem.parameter)


def _target(channels: int = 1) -> np.ndarray:
    y, x = (np.mgrid[:SIZE, :SIZE] + 0.5) / SIZE - 0.5
    disc = (x * x / 0.06 + y * y / 0.11 < 1).astype(np.float32)
    return np.broadcast_to(disc[None, ..., None], (VIEWS, SIZE, SIZE, channels))


def _silhouettes(K: int, options: Options) -> Work:
    def work(device: str | None) -> None:
        problem = silhouette_problem(sphere(FACES), view_matrices(VIEWS), _target(), K)
        _run(device, problem, options, K)

    return work


def _texture(device: str | None) -> None:
    mesh, matrices = sphere(FACES), view_matrices(VIEWS)
    _run(device, texture_problem(mesh, matrices, _target(3), 16, jitter=True), PASSES)


def _antialias(options: Options) -> Work:
    def work(device: str | None) -> None:
        mesh, matrices = sphere(FACES), view_matrices(VIEWS)
        leaves = mesh_leaves(mesh, VIEWS, requires_grad=True)
        target = Variable(FLOAT, (SIZE, SIZE), VIEWS, name="target")
        made = build_antialias(leaves.pos, leaves.faces, leaves.matrix, (SIZE, SIZE))
        data = {
            leaves.pos: mesh.positions,
            leaves.faces: mesh.faces,
            leaves.matrix: matrices,
            target: _target(),
        }
        loss, r = silhouette_loss(made.silhouette, target), F.constant(1 / SIZE)
        picture = made.silhouette
        _run(device, Problem(loss, Adam(1e-3), data, leaves.pos, picture, made.hard, r), options)

    return work


def _scatters(options: Options, **limits: int | bool) -> Work:
    """Return a dynamic lookup and a scatter, with their gradients."""

    def work(device: str | None) -> None:
        x = Variable(VEC3, (16, 1), requires_grad=True, name="x")
        index = Variable(INT, (SIZE, SIZE), name="index")
        near = F.lookup(x, F.dynamic(index))
        loss = F.mean(F.dot(near, near)) + F.mean(
            F.sum_components(F.scatter_add(F.sin(near), F.dynamic(index), (16, 1)))
        )
        with DressiAD(device, options, limits) as ad:
            ad.send_img(x, np.linspace(-1, 1, 48).reshape(16, 3))
            ad.send_img(index, np.arange(SIZE * SIZE).reshape(SIZE, SIZE, 1) % 16)
            ad.set_loss_var(loss)
            ad.set_optimizer(SGD(0.1))
            ad.exec_steps(2)
            ad.recv_img(x)

    return work


def _mipmaps(options: Options) -> Work:
    """Return a texture that is read through its mip chain."""

    def work(device: str | None) -> None:
        texture = Variable(VEC3, (16, 16), requires_grad=True, name="texture")
        uv = Variable(VEC2, (SIZE, SIZE), name="uv")
        shown = F.texture_mip(F.image.mipmap(texture), uv, 1.3)
        with DressiAD(device, options) as ad:
            ad.send_img(texture, np.full((16, 16, 3), 0.5))
            ad.send_img(uv, np.random.default_rng(0).uniform(0, 1, (SIZE, SIZE, 2)))
            ad.set_loss_var(F.mean(F.dot(shown - 1.0, shown - 1.0)))
            ad.set_optimizer(Adam(0.1))
            ad.exec_steps(2)
            ad.recv_img(texture)

    return work


def _blurs() -> tuple[Variable, Variable, Variable]:
    """Return (a parameter, a leaf that may stay, a loss)."""
    x = Variable(VEC3, (SIZE, SIZE), requires_grad=True, name="x")
    still = Variable(VEC3, (SIZE, SIZE), name="still")
    d = F.image.box_blur(x, 1) - F.image.box_blur(F.sin(still), 2)
    return x, still, F.mean(F.dot(d, d))


def _load(ad: DressiAD) -> tuple[Variable, Variable, Variable]:
    x, still, loss = _blurs()
    ad.set_loss_var(loss)
    ad.set_optimizer(Adam(0.1))
    for leaf in (x, still):
        ad.send_img(leaf, np.full((SIZE, SIZE, 3), 0.5))
    return x, still, loss


def transfers(options: Options) -> Work:
    """Do sends and receives between steps; rebuilds by the cache, back and forth."""

    def work(device: str | None) -> None:
        with DressiAD(device, options) as ad:
            x, still, loss = _load(ad)
            for k in range(4):
                ad.send_img(still, np.full((SIZE, SIZE, 3), 0.1 * k))
                ad.exec_step()
                ad.recv_imgs([x, loss, still])
            for _ in range(SETTLE):
                ad.exec_step()
            ad.send_img(still, np.zeros((SIZE, SIZE, 3)))
            ad.exec_steps(2)
            ad.send_img(x, np.ones((SIZE, SIZE, 3)))
            ad.exec_step()
            ad.stage_times_ms(1)
            ad.recv_img(x)

    return work


def _engines(device: str | None) -> None:
    """Three at once, in turn, closed in the order of making; the last one is dropped."""
    engines = [DressiAD(device, options) for options in (PASSES, DISPATCHES, PASSES)]
    made = [_load(ad) for ad in engines]
    for _ in range(2):
        for ad, (x, *_) in zip(engines, made, strict=True):
            ad.exec_step()
            ad.recv_img(x)
    for ad in engines[:2]:
        ad.close()
        engines[2].exec_step()


WORKS: dict[str, Work] = {
    "fit, K=1, passes": _silhouettes(1, PASSES),
    "fit, K=1, dispatches": _silhouettes(1, DISPATCHES),
    "fit, K=3, passes": _silhouettes(3, PASSES),
    "fit, K=3, dispatches": _silhouettes(3, DISPATCHES),
    "texture": _texture,
    "antialias, passes": _antialias(PASSES),
    "antialias, dispatches": _antialias(DISPATCHES),
    "scatter by atomics": _scatters(PASSES),
    "scatter by atomics, dispatches": _scatters(DISPATCHES),
    "scatter without float atomics": _scatters(PASSES, float_atomics=False),
    "scatter that is deterministic": _scatters(Options(deterministic=True)),
    "mipmaps, passes": _mipmaps(PASSES),
    "mipmaps, dispatches": _mipmaps(DISPATCHES),
    "transfers, passes": transfers(PASSES),
    "transfers, dispatches": transfers(DISPATCHES),
    "one Function a pass": transfers(Options.baseline()),
    "engines": _engines,
}
SMALL_WORKS = ("scatter by atomics", "transfers, dispatches")
