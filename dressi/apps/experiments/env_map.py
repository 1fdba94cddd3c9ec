"""``dressi experiment env_map``: an environment and a roughness from pictures of metals (paper,
appendix: environment map optimization).

Three meshes of different metallic and roughness under two maps from photographs, each seen from 20
sides before black, drawn by the split sum; then the three that the paper cannot fit: a matte
material, a rough one, a complicated geometry. The fit knows shape, cameras, colour and metallic;
it starts from a uniform grey and another roughness. Figures: PSNR of the environment over the
sphere of directions, weighted by solid angle; error of the roughness.

The map is a cube of 16 x 16 texels per face, 5.6 degrees each, and the fit looks for one of that
resolution: a lobe of roughness 0.3 falls to a half at 6.6 degrees, so finer detail leaves hardly a
trace in the pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from dressi.ad import F, Variable, exponential_decay
from dressi.ad.optim import Optimizer
from dressi.ad.vtype import FLOAT, VEC3
from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.env_scenes import FAILURES, HDR, SUBJECTS, Subject, environment
from dressi.apps.experiments.parts import kept_parts
from dressi.apps.fitting import adam_of_each
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.render import ibl
from dressi.render.fit import l2_loss
from dressi.render.io import contact_sheet
from dressi.render.raster import HardRaster, build_hard_raster
from dressi.render.shading import build_surface, eye_position, pbr, vertex_normals
from dressi.testing.views import MeshLeaves, mesh_leaves, send_mesh, surround_views

HELP = "environment and roughness from 20 views of metals under two maps, and where that fails"

GOLD = (1.0, 0.77, 0.34)
"""Reflectance at normal incidence, known to the fit. Coloured, so that what grows towards grazing
angles, by an amount that depends on the roughness, is not the environment."""

GREY, START_ROUGHNESS = 0.5, 0.6

CONVERGED_DB, CONVERGED = 20.0, 0.05
"""Ours: PSNR of the environment and error of the roughness from which on a fit counts as
converged."""

ROUGHNESS_LR = (0.02, 0.002)
"""Learning rates at the start and the end. The roughness is fast at first, while the map is still
smooth; from then on the two change together, since a sharper map under a rougher lobe looks much
the same."""

LOG_RANGE = (-6.0, 2.0)
"""log2 of radiance that the second PSNR takes as [0, 1]: all of the true map."""


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    subjects: tuple[str, ...] = option(
        (*SUBJECTS, *FAILURES),
        "what is looked at; the first map alone for those that the paper cannot fit",
        smoke=("torus", "low metallic"),
    )
    maps: tuple[str, ...] = option(
        tuple(HDR), "environments: workshop, sunrise, made (by code), or a file", smoke=("made",)
    )
    iterations: int = option(1000, "of each fit", smoke=20, least=2, quick=250)
    views: int = option(20, "cameras around the object", smoke=3, least=1)
    size: int = option(96, "pixels on a side", smoke=24, least=8, quick=40)
    env_size: int = option(
        16, "texels on a side of each of the map's six faces", smoke=4, least=2, quick=8
    )
    roughness: float | None = option(
        None, "the true roughness of all (default: each its own)", least=0.1, type=float
    )
    noise: float = option(0.0, "standard deviation of noise on the target pictures", least=0.0)
    lr: float = option(
        0.05, "learning rate at the start, of the log of radiance", least=0.0, quick=0.1
    )


@dataclass
class Fit:
    """What one fit gives back. env: (6, n, n, 3). true_map, found_map: as panoramas (h, w, 3).
    targets, first, last: (views, H, W, 3). true_roughness: of the target."""

    env: np.ndarray
    true_map: np.ndarray
    found_map: np.ndarray
    targets: np.ndarray
    first: np.ndarray
    last: np.ndarray
    iterations: list[int]
    psnr_db: list[float]
    roughness: list[float]
    true_roughness: float

    @property
    def error(self) -> float:
        """Return the error of the roughness at the end."""
        return abs(self.roughness[-1] - self.true_roughness)

    @property
    def is_converged(self) -> bool:
        """Return whether both are as near as ours asks."""
        return self.psnr_db[-1] >= CONVERGED_DB and self.error < CONVERGED

    @property
    def text(self) -> str:
        """Return where the fit began and ended."""
        return (
            f"environment {self.psnr_db[0]:.1f} to {self.psnr_db[-1]:.1f} dB, roughness "
            f"{self.roughness[0]:.2f} to {self.roughness[-1]:.4f}, true {self.true_roughness:g}"
        )


def run(settings: Settings) -> Result:
    """Run all fits, one after the other."""
    subjects = SUBJECTS | FAILURES
    for name in settings.subjects:
        if name not in subjects:
            raise DressiError(f"--subjects: there is no '{name}'; known: {', '.join(subjects)}")
    if settings.roughness is not None and settings.roughness > 1:
        raise DressiError(f"--roughness must be at most 1, got {settings.roughness}")
    true = {name: environment(name, settings.env_size) for name in settings.maps}
    work = {}
    for name in settings.subjects:
        for light in settings.maps if name in SUBJECTS else settings.maps[:1]:
            label = f"{name}, {Path(light).stem}"
            work[label] = partial(
                _part, settings, subjects[name], true[light], label, name in FAILURES
            )
    fits, figures = {}, {}
    rows: list[tuple[str, ...]] = [("what", "PSNR dB", "of the log", "roughness", "true", "error")]
    curves: dict[str, Any] = {}
    for label, part in kept_parts(settings, work, "fits").items():
        failure, true_env = part.pop("failure"), part.pop("true")
        fit = Fit(**part)
        fits[label] = (fit, failure)
        log_db = map_psnr(_log(fit.env), _log(true_env))
        key = label.replace(", ", "_").replace(" ", "_")
        figures[f"{key}_psnr_start_db"] = fit.psnr_db[0]
        figures[f"{key}_psnr_db"] = fit.psnr_db[-1]
        figures[f"{key}_psnr_log_db"] = log_db
        figures[f"{key}_roughness"] = fit.roughness[-1]
        figures[f"{key}_true_roughness"] = fit.true_roughness
        figures[f"{key}_roughness_error"] = fit.error
        curves[label] = {k: getattr(fit, k) for k in ("iterations", "psnr_db", "roughness")}
        shown = (fit.psnr_db[-1], log_db, fit.roughness[-1], fit.true_roughness, fit.error)
        rows.append((label, *(f"{x:.4g}" for x in shown)))
    claims, ours = _conditions(fits)
    only = {label: fit for label, (fit, _) in fits.items()}
    return Result(
        {**figures, "curves": curves},
        {"maps": _maps(only), "renderings": _renderings(only)},
        {"curves": partial(_plot, fits=only)},
        claims,
        tables=[rows],
        ours=ours,
        notes=["maps: Poly Haven, CC0 1.0 (aerodynamics_workshop, spruit_sunrise)"],
    )


Conditions = list[tuple[str, bool]]


def _conditions(fits: dict[str, tuple[Fit, bool]]) -> tuple[Conditions, Conditions]:
    """Return the paper's claims: every combination converges, three sorts of the torus do not; and
    what ours takes for converged."""
    claims, ours = [], []
    for label, (fit, failure) in fits.items():
        if not failure:
            start = abs(fit.roughness[0] - fit.true_roughness)
            nearer = fit.psnr_db[-1] > fit.psnr_db[0] and fit.error < start
            claims.append((f"{label} comes nearer to the truth: {fit.text}", nearer))
            said = f"{label} converges: PSNR >= {CONVERGED_DB:g} dB, error < {CONVERGED:g}"
            ours.append((said, fit.is_converged))
            continue
        metal = fits.get(f"torus, {label.split(', ')[1]}")
        if metal is not None:
            best = metal[0].psnr_db[-1]
            claims.append(
                (
                    f"{label} is not fitted as the torus of metal is: {fit.text}; the torus "
                    f"{best:.1f} dB",
                    fit.psnr_db[-1] < best,
                )
            )
        ours.append((f"{label} does not converge", not fit.is_converged))
    return claims, ours


def _plot(figure: Any, fits: dict[str, Fit]) -> None:
    left, right = figure.subplots(1, 2)
    for name, fit in fits.items():
        left.plot(fit.iterations, fit.psnr_db, label=name)
        right.plot(fit.iterations, np.array(fit.roughness) - fit.true_roughness, label=name)
    right.axhline(0.0, color="grey", linewidth=0.8)
    for axes, what in ((left, "PSNR of the environment, dB"), (right, "roughness less the truth")):
        axes.set(xlabel="iteration", ylabel=what)
        axes.grid(True, alpha=0.3)
    left.legend(fontsize="small")


def _part(
    settings: Settings, subject: Subject, true: np.ndarray, label: str, failure: bool
) -> dict[str, Any]:
    fit = fit_environment(settings, subject, true, label)
    return {**vars(fit), "failure": failure, "true": true}


def fit_environment(settings: Settings, subject: Subject, true: np.ndarray, label: str) -> Fit:
    """Draw the targets of a mesh under the true map, then fit. true: (6, n, n, 3)."""
    mesh = subject.make(settings.smoke)
    truth = subject.roughness if settings.roughness is None else settings.roughness
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
    picture = _golden(leaves, raster, env, roughness, subject.metallic)
    loss = l2_loss(picture, wanted) * float(size[0] * size[1])
    panorama = ibl.to_equirect(env, (128, 64))
    fit = Fit(true, *(np.empty(0),) * 5, [], [], [], truth)
    with DressiAD(settings.device) as ad:
        send_mesh(ad, leaves, mesh, matrices)
        ad.send_img(log_env, np.log(true))
        ad.send_img(roughness, truth)
        fit.targets, fit.true_map, covered = ad.recv_imgs([picture, panorama, raster.mask])
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
        fit.last, fit.found_map = ad.recv_imgs([picture, panorama])
    if not np.isfinite(fit.env).all():
        raise DressiError(f"env_map: the environment of the {label} became no number")
    return fit


def _golden(
    leaves: MeshLeaves, raster: HardRaster, env: Variable, roughness: Variable, metallic: float
) -> Variable:
    """Return the picture of a mesh of gold, over black. env: the radiance, VEC3, 6 layers."""
    surface = build_surface(
        raster.peel,
        leaves.pos,
        leaves.faces,
        eye_position(leaves.matrix),
        vertex_normals(leaves.pos, leaves.faces),
        albedo=GOLD,
        metallic=metallic,
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


def _maps(fits: dict[str, Fit]) -> np.ndarray:
    """Return panoramas: true, start, recovered, difference."""
    rows = {}
    for name, fit in fits.items():
        true, got = fit.true_map, fit.found_map
        off = np.abs(np.clip(got, 0, 1) - np.clip(true, 0, 1)) * 4
        rows[name.replace(", ", "\n")] = [
            i.repeat(2, 0).repeat(2, 1) for i in (true, np.full_like(true, GREY), got, off)
        ]
    return contact_sheet(rows, columns=("true", "start", "recovered", "4 |difference|"))


def _renderings(fits: dict[str, Fit]) -> np.ndarray:
    """Return the view in the middle of each fit, which is about level, enlarged."""
    rows = {}
    for name, fit in fits.items():
        target, first, last = (p[len(p) // 2] for p in (fit.targets, fit.first, fit.last))
        rows[name.replace(", ", "\n")] = [
            i.repeat(2, 0).repeat(2, 1) for i in (target, first, last, np.abs(last - target) * 4)
        ]
    return contact_sheet(rows, columns=("target", "start", "recovered", "4 |difference|"))
