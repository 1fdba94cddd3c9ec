"""Fits that the commands share: a shape to silhouettes, a texture to colours.

In: a start mesh, matrices, target images. Out: fitted data, loss curves, times. All state stays on the device;
each iteration sends four numbers (r, learning rate, regularizer weight, sigma follows r).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from tqdm.auto import tqdm

from dressi.ad import Adam, Variable
from dressi.ad.vtype import FLOAT, VEC3
from dressi.apps.views import mesh_leaves, send_mesh
from dressi.engine import DressiAD
from dressi.render.hardsoftras import build_hardsoftras
from dressi.render.losses import l2_loss, silhouette_loss
from dressi.render.mesh import Mesh
from dressi.render.regularizers import laplacian_loss, laplacian_matrix
from dressi.render.shading import unlit


@dataclass(frozen=True)
class ShapeSchedule:
    """Schedule of a shape fit; every pair goes geometrically from start to end.

    r: reach, as a fraction of the longer side; reaches its end at ``r_until`` of the iterations. lr: Adam's
    learning rate, world units. laplacian: weight of mean |L v|^2. beta2: Adam's second decay; 0.95 because
    gradients shrink over a few dozen iterations, which 0.999 would not notice in time. K: peels.
    """

    iterations: int = 150
    r: tuple[float, float] = (0.03, 1 / 256)
    lr: tuple[float, float] = (0.01, 0.003)
    laplacian: tuple[float, float] = (30.0, 30.0)
    r_until: float = 0.8
    beta2: float = 0.95
    K: int = 1


@dataclass
class FitResult:
    """What a fit gives back. times_ms: wall time of each iteration. build_s: from graph to recorded commands."""

    data: np.ndarray
    losses: list[float] = field(default_factory=list)
    times_ms: list[float] = field(default_factory=list)
    build_s: float = 0.0

    @property
    def median_ms(self) -> float:
        return float(np.median(self.times_ms)) if self.times_ms else 0.0


def _between(pair: tuple[float, float], t: float) -> float:
    return pair[0] * (pair[1] / pair[0]) ** t


def fit_shape(
    ad: DressiAD,
    mesh: Mesh,
    matrices: np.ndarray,
    silhouettes: np.ndarray,
    schedule: ShapeSchedule,
    label: str = "shape",
    weights: np.ndarray | None = None,
) -> FitResult:
    """Move the vertices of a mesh until its silhouettes match.

    matrices: (views, 4, 4). silhouettes: (views, H, W, 1) coverage in [0, 1]. weights: the same shape, of
    each pixel's loss. Returns positions (N, 3).
    """
    n_views, height, width = silhouettes.shape[:3]
    size = (width, height)
    leaves = mesh_leaves(mesh, n_views, requires_grad=True)
    r, lr, weight = (Variable(FLOAT, name=n) for n in ("r", "lr", "laplacian_weight"))
    target = Variable(FLOAT, size, n_views, name="target_silhouette")
    hs = build_hardsoftras(
        leaves.pos, leaves.faces, leaves.matrix, size, r, schedule.K, max_delta=max(schedule.r)
    )
    mask = None
    if weights is not None:
        mask = Variable(FLOAT, size, n_views, name="pixel_weight")
        ad.send_img(mask, weights if n_views > 1 else weights[0])
    laplacian = laplacian_matrix(mesh.faces, len(mesh.positions))
    loss = silhouette_loss(hs.silhouette, target, mask) + laplacian_loss(leaves.pos, laplacian) * weight
    ad.set_loss_var(loss)
    ad.set_optimizer(Adam(lr, beta2=schedule.beta2))
    send_mesh(ad, leaves, mesh, matrices)
    ad.send_img(target, silhouettes if n_views > 1 else silhouettes[0])
    result = FitResult(np.empty(0))
    last = max(schedule.iterations - 1, 1)

    def send(i: int) -> None:
        t = i / last
        ad.send_img(r, _between(schedule.r, min(t / schedule.r_until, 1.0)))
        ad.send_img(lr, _between(schedule.lr, t))
        ad.send_img(weight, _between(schedule.laplacian, t))

    send(0)
    _run(ad, loss, schedule.iterations, label, result, send)
    result.data = ad.recv_img(leaves.pos)
    return result


@dataclass(frozen=True)
class TextureSchedule:
    """Schedule of a texture fit. lr: Adam's learning rate, linear albedo. size: (width, height) texels.
    backward: of F.texture."""

    iterations: int = 100
    lr: tuple[float, float] = (0.06, 0.01)
    size: tuple[int, int] = (256, 256)
    backward: str = "exact"
    start: float = 1.0


def fit_texture(
    ad: DressiAD,
    mesh: Mesh,
    matrices: np.ndarray,
    colours: np.ndarray,
    schedule: TextureSchedule,
    label: str = "texture",
    weights: np.ndarray | None = None,
) -> FitResult:
    """Paint the texture of a fixed mesh until its pictures match.

    colours: (views, H, W, 3) linear over black. weights: (views, H, W, 1) of each pixel's loss. Returns the
    texture (H, W, 3), clipped to [0, 1].
    """
    n_views, height, width = colours.shape[:3]
    size = (width, height)
    leaves = mesh_leaves(mesh, n_views)
    assert leaves.uv is not None and leaves.uv_faces is not None
    albedo = Variable(VEC3, schedule.size, requires_grad=True, name="albedo")
    lr = Variable(FLOAT, name="lr")
    target = Variable(VEC3, size, n_views, name="target_colour")
    pixel = 1.0 / max(size)  # antialiasing mode: K = 1, one pixel
    hs = build_hardsoftras(leaves.pos, leaves.faces, leaves.matrix, size, pixel)
    picture = hs.blend(
        [unlit(hs.peels[0], leaves.uv, leaves.uv_faces, albedo, schedule.backward, wrap="clamp")]
    )
    mask = None
    if weights is not None:
        mask = Variable(FLOAT, size, n_views, name="pixel_weight")
        ad.send_img(mask, weights if n_views > 1 else weights[0])
    loss = l2_loss(picture, target, mask)
    ad.set_loss_var(loss)
    ad.set_optimizer(Adam(lr, beta2=0.95))
    send_mesh(ad, leaves, mesh, matrices)
    ad.send_img(target, colours if n_views > 1 else colours[0])
    ad.send_img(albedo, np.full((schedule.size[1], schedule.size[0], 3), schedule.start, np.float32))
    result = FitResult(np.empty(0))
    last = max(schedule.iterations - 1, 1)

    def send(i: int) -> None:
        ad.send_img(lr, _between(schedule.lr, i / last))

    send(0)
    _run(ad, loss, schedule.iterations, label, result, send)
    result.data = np.clip(ad.recv_img(albedo), 0.0, 1.0)
    return result


def _run(  # type: ignore[no-untyped-def]
    ad: DressiAD, loss: Variable, iterations: int, label: str, result: FitResult, send
) -> None:
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
    if not np.isfinite(result.losses).all():
        raise FloatingPointError(f"{label}: the loss became {result.losses[-1]}")


__all__ = [
    "FitResult",
    "ShapeSchedule",
    "TextureSchedule",
    "fit_shape",
    "fit_texture",
]
