"""``dressi experiment env_map``: an environment and a roughness from pictures of a metal (paper,
appendix: environment map optimization).

A sphere and a torus of rough gold, each seen from 20 sides before black, are rendered under a map
over directions (sky, suns, coloured walls) by the split sum. The fit knows shape, cameras and
colour of the metal; it starts from a uniform grey and another roughness. Figures: PSNR of the
environment over the sphere of directions, weighted by solid angle; error of the roughness.

The map is a cube of 16 x 16 texels per face, 5.6 degrees each, and the fit looks for one of that
resolution: a lobe of roughness 0.3 falls to a half at 6.6 degrees, so finer detail leaves hardly a
trace in the pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from dressi.ad import F, Variable, exponential_decay
from dressi.ad.optim import Optimizer
from dressi.ad.vtype import FLOAT, VEC3
from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.meshes import torus
from dressi.apps.fitting import adam_of_each
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.render import ibl
from dressi.render.fit import l2_loss
from dressi.render.io import contact_sheet
from dressi.render.raster import HardRaster, build_hard_raster
from dressi.render.scene import Mesh, icosphere
from dressi.render.shading import build_surface, eye_position, pbr, vertex_normals
from dressi.testing.views import MeshLeaves, mesh_leaves, send_mesh, surround_views

HELP = "environment and roughness from 20 views of a metallic sphere and a torus"

GOLD = (1.0, 0.77, 0.34)
"""Reflectance at normal incidence, known to the fit. Coloured, so that what grows towards grazing
angles, by an amount that depends on the roughness, is not the environment."""

DARKEST, BRIGHTEST = 0.02, 4.0
"""Radiance of the true map is clamped to this, as the paper clamps its own."""

GREY, START_ROUGHNESS = 0.5, 0.6

ROUGHNESS_LR = (0.02, 0.002)
"""Learning rates at the start and the end. The roughness is fast at first, while the map is still
smooth; from then on the two change together, since a sharper map under a rougher lobe looks much
the same."""

LOG_RANGE = (-6.0, 2.0)
"""log2 of radiance that the second PSNR takes as [0, 1]: all of the true map."""


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    iterations: int = option(1000, "of each fit", smoke=20, least=2)
    views: int = option(20, "cameras around the object", smoke=3, least=1)
    size: int = option(96, "pixels on a side", smoke=24, least=8)
    env_size: int = option(16, "texels on a side of each of the map's six faces", smoke=4, least=2)
    roughness: float = option(0.3, "the true roughness", least=0.1)
    noise: float = option(0.0, "standard deviation of noise on the target pictures", least=0.0)
    lr: float = option(0.05, "learning rate at the start, of the log of radiance", least=0.0)


@dataclass
class Fit:
    """What one fit gives back. env: (6, n, n, 3). maps: as panoramas (h, w, 3), true and recovered.
    targets, first, last: (views, H, W, 3)."""

    env: np.ndarray
    maps: tuple[np.ndarray, np.ndarray]
    targets: np.ndarray
    first: np.ndarray
    last: np.ndarray
    iterations: list[int]
    psnr_db: list[float]
    roughness: list[float]


def run(settings: Settings) -> Result:
    """Run both fits, one after the other."""
    if settings.roughness > 1:
        raise DressiError(f"--roughness must be at most 1, got {settings.roughness}")
    true = true_environment(settings.env_size)
    meshes = {
        "sphere": icosphere(2 if settings.smoke else 4),
        "torus": torus(24, 12) if settings.smoke else torus(128, 64),
    }
    figures: dict[str, Any] = {"true_roughness": settings.roughness}
    conditions, fits = [], {}
    for name, mesh in meshes.items():
        fit = fits[name] = fit_environment(settings, mesh, true, name)
        error = abs(fit.roughness[-1] - settings.roughness)
        figures[f"{name}_psnr_db"] = fit.psnr_db[-1]
        figures[f"{name}_psnr_start_db"] = fit.psnr_db[0]
        figures[f"{name}_psnr_log_db"] = map_psnr(_log(fit.env), _log(true))
        figures[f"{name}_roughness"] = fit.roughness[-1]
        figures[f"{name}_roughness_error"] = error
        conditions += [
            (f"{name}: PSNR of the environment >= 20 dB: {fit.psnr_db[-1]:.1f} dB",
             fit.psnr_db[-1] >= 20.0),
            (f"{name}: error of the roughness < 0.05: {error:.4f}", error < 0.05),
        ]  # fmt: skip
    figures["curves"] = {
        name: {"iterations": f.iterations, "psnr_db": f.psnr_db, "roughness": f.roughness}
        for name, f in fits.items()
    }

    def plot(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        for name, fit in fits.items():
            left.plot(fit.iterations, fit.psnr_db, label=name)
            right.plot(fit.iterations, fit.roughness, label=name)
        right.axhline(settings.roughness, color="grey", linewidth=0.8, label="true")
        for axes, what in ((left, "PSNR of the environment, dB"), (right, "roughness")):
            axes.set(xlabel="iteration", ylabel=what)
            axes.grid(True, alpha=0.3)
            axes.legend()

    pictures = {"maps": _maps(fits), "renderings": _renderings(fits)}
    return Result(figures, pictures, {"curves": plot}, conditions)


def fit_environment(settings: Settings, mesh: Mesh, true: np.ndarray, label: str) -> Fit:
    """Draw the targets of a mesh under the true map, then fit. true: (6, n, n, 3)."""
    n, size = settings.env_size, (settings.size, settings.size)
    matrices = np.stack([c.matrix for c in surround_views(settings.views, 4.0, 31.0)])
    leaves = mesh_leaves(mesh, len(matrices))
    wanted = Variable(VEC3, size, len(matrices), name="target")
    # The log of radiance: no direction becomes negative, which would sharpen what the lobe blurs,
    # and a step is a share of the brightness, of suns as of shadows.
    log_env = Variable(VEC3, (n, n), 6, requires_grad=True, name="log_environment")
    roughness = Variable(FLOAT, requires_grad=True, name="roughness")
    env = F.exp(log_env)
    raster = build_hard_raster(leaves.pos, leaves.faces, leaves.matrix, size)
    picture = _golden(leaves, raster, env, roughness)
    loss = l2_loss(picture, wanted) * float(size[0] * size[1])
    panorama = ibl.to_equirect(env, (128, 64))
    fit = Fit(true, (true[0], true[0]), *(np.empty(0),) * 3, [], [], [])
    with DressiAD(settings.device) as ad:
        send_mesh(ad, leaves, mesh, matrices)
        ad.send_img(log_env, np.log(true))
        ad.send_img(roughness, settings.roughness)
        fit.targets, shown, covered = ad.recv_imgs([picture, panorama, raster.mask])
        noise = np.random.default_rng(0).normal(0.0, settings.noise, fit.targets.shape)
        fit.targets = np.where(covered > 0, fit.targets + noise, 0.0).astype(np.float32)
        ad.send_img(wanted, fit.targets)
        ad.send_img(log_env, np.full_like(true, np.log(GREY)))
        ad.send_img(roughness, START_ROUGHNESS)
        fit.first = ad.recv_img(picture)
        ad.set_loss_var(loss)
        ad.set_optimizer(_optimizer(settings, log_env, roughness))
        n_measured = min(settings.iterations, 50)
        measured = np.unique(np.linspace(0, settings.iterations, n_measured + 1).astype(int))
        for k, at in enumerate(tqdm(measured, desc=label, unit="x", leave=False)):
            if k:
                ad.exec_steps(int(at - measured[k - 1]))
            fit.env = np.exp(ad.recv_img(log_env))
            fit.iterations.append(int(at))
            fit.psnr_db.append(map_psnr(fit.env, true))
            fit.roughness.append(float(ad.recv_img(roughness).reshape(-1)[0]))
        fit.last, got = ad.recv_imgs([picture, panorama])
    if not np.isfinite(fit.env).all():
        raise DressiError(f"env_map: the environment of the {label} became no number")
    fit.maps = (shown, got)
    return fit


def _golden(leaves: MeshLeaves, raster: HardRaster, env: Variable, roughness: Variable) -> Variable:
    """Return the picture of a mesh of gold, over black. env: the radiance, VEC3, 6 layers."""
    surface = build_surface(
        raster.peel,
        leaves.pos,
        leaves.faces,
        eye_position(leaves.matrix),
        vertex_normals(leaves.pos, leaves.faces),
        albedo=GOLD,
        metallic=1.0,
        roughness=roughness,
    )
    lit = pbr(surface, environment=ibl.build_environment(env))
    return F.where(raster.mask, lit, 0.0)


def _optimizer(settings: Settings, log_env: Variable, roughness: Variable) -> Optimizer:
    """Return an optimizer with an Adam for each parameter, which keeps the roughness in [0, 1]."""
    rates = {
        log_env: exponential_decay(settings.lr, settings.lr / 10, settings.iterations),
        roughness: exponential_decay(*ROUGHNESS_LR, settings.iterations),
    }
    adam = adam_of_each(rates)

    def optimizer(xs: Sequence[Variable], gxs: Sequence[Variable]) -> list[Variable]:
        pairs = zip(xs, adam(xs, gxs), strict=True)
        return [F.clamp(new, 0.0, 1.0) if x is roughness else new for x, new in pairs]

    return optimizer


def map_psnr(a: np.ndarray, b: np.ndarray) -> float:
    """Return the PSNR in dB of two cube maps (6, n, n, 3) clipped to [0, 1]; the mean square is
    weighted by solid angle."""
    off = ((np.clip(a, 0, 1) - np.clip(b, 0, 1)).astype(np.float64) ** 2).mean(-1)
    weight = ibl.cube_solid_angles(a.shape[1])
    return float(-10 * np.log10(max((off * weight).sum() / weight.sum(), 1e-12)))


def _log(env: np.ndarray) -> np.ndarray:
    """Return the logarithm of radiance as a share of LOG_RANGE."""
    low, high = LOG_RANGE
    return (np.log2(np.maximum(env, 2.0**low)) - low) / (high - low)


PARTS = 8
"""Points per side of a texel that the true map is the mean of."""


def true_environment(n: int) -> np.ndarray:
    """Return (6, n, n, 3) float32 radiance: a sky with two suns and a lamp, coloured walls with a
    window, a tiled floor. Means over texels, clamped to [DARKEST, BRIGHTEST]."""
    x, y, z = np.moveaxis(ibl.cube_directions(n * PARTS), -1, 0)
    azimuth, up = np.degrees(np.arctan2(x, -z)), np.degrees(np.arcsin(np.clip(y, -1, 1)))

    def mixed(below: np.ndarray, colour: Sequence[float], share: np.ndarray) -> np.ndarray:
        return below + (np.array(colour) - below) * share[..., None]

    def box(left: float, right: float, low: float, high: float) -> np.ndarray:
        across = np.minimum(azimuth - left, right - azimuth)
        inside = np.minimum(across, np.minimum(up - low, high - up))
        return np.clip(inside / 3 + 0.5, 0, 1)  # edges 3 degrees wide

    def blob(to: Sequence[float], degrees: float) -> np.ndarray:
        to = np.array(to) / np.linalg.norm(to)
        cosine = x * to[0] + y * to[1] + z * to[2]
        return np.exp((cosine - 1) / (1 - np.cos(np.radians(degrees))))

    sky = mixed(np.full((*y.shape, 3), (0.62, 0.66, 0.7)), (0.1, 0.22, 0.6), np.clip(y, 0, 1))
    tiles = np.sign(np.sin(np.radians(azimuth) * 4) * np.sin(np.radians(up) * 6))
    floor = mixed(np.full((*y.shape, 3), (0.3, 0.24, 0.18)), (0.08, 0.07, 0.08), tiles > 0)
    env = mixed(sky, (0.0, 0.0, 0.0), np.clip(-up / 3 + 0.5, 0, 1))
    env = env + floor * np.clip(-up / 3 + 0.5, 0, 1)[..., None]
    env = mixed(env, (0.7, 0.08, 0.06), box(-120, -50, -20, 28))
    env = mixed(env, (0.06, 0.5, 0.12), box(60, 115, -30, 18))
    env = mixed(env, (0.05, 0.05, 0.06), box(-20, 25, -15, 35))
    env = mixed(env, (0.95, 0.85, 0.6), box(-10, 15, -3, 24))
    env = env + blob((0.5, 0.7, 0.6), 9)[..., None] * (4.0, 3.4, 2.4)
    env = env + blob((-0.7, 0.5, 0.5), 14)[..., None] * (0.5, 0.8, 1.4)
    env = env + blob((0.2, -0.9, -0.3), 12)[..., None] * (1.2, 0.5, 1.0)
    weight = ibl.cube_solid_angles(n * PARTS)[..., None]

    def summed(a: np.ndarray) -> np.ndarray:
        return a.reshape(6, n, PARTS, n, PARTS, -1).sum((2, 4))

    return np.clip(summed(env * weight) / summed(weight), DARKEST, BRIGHTEST).astype(np.float32)


SHOWN = 4
"""Views on the sheet."""


def _maps(fits: dict[str, Fit]) -> np.ndarray:
    """Return panoramas: true, start, recovered, difference."""
    rows = {}
    for name, fit in fits.items():
        true, got = fit.maps
        off = np.abs(np.clip(got, 0, 1) - np.clip(true, 0, 1)) * 4
        rows[name] = [_large(i) for i in (true, np.full_like(true, GREY), got, off)]
    return contact_sheet(rows, columns=("true", "start", "recovered", "4 |difference|"))


def _large(image: np.ndarray) -> np.ndarray:
    return image.repeat(2, 0).repeat(2, 1)


def _renderings(fits: dict[str, Fit]) -> np.ndarray:
    rows = {}
    for name, fit in fits.items():
        shown = np.unique(np.linspace(0, len(fit.targets) - 1, SHOWN).astype(int))
        rows[f"{name}\ntarget"] = [fit.targets[k] for k in shown]
        rows[f"{name}\nstart"] = [fit.first[k] for k in shown]
        rows[f"{name}\nrecovered"] = [fit.last[k] for k in shown]
        rows[f"{name}\n4 |difference|"] = [np.abs(fit.last[k] - fit.targets[k]) * 4 for k in shown]
    return contact_sheet(rows)
