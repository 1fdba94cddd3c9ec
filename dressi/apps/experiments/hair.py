"""``dressi experiment hair``: the five numbers of hair from one picture (paper, 6.1).

Strands on a head, one light, one view. Geometry, light and camera are known; melanin, redness, the
roughnesses along and around the fibre and the index of refraction are shared by all strands, drawn
at random, and fitted from another random start whose picture is far off. Everything but the five
numbers is static, and the reactive cache leaves it out of the step. Figures: PSNR, errors of the
numbers, what the cache leaves out, and how well the picture tells the numbers apart.

The gradient goes forward: with five parameters, five tangents per pixel take less than what the
backward pass of the model would have to keep. They are the Jacobian, too, so the steps are those of
Gauss and Newton, damped: melanin and redness, or both roughnesses, change the picture in nearly the
same way, and a step for each number alone crawls along such valleys.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from tqdm import tqdm

from dressi.ad import F, Variable
from dressi.ad.optim import Optimizer
from dressi.ad.vtype import FLOAT, VEC3
from dressi.apps.data import human_file
from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.hair_scene import (
    Head,
    build_picture,
    ellipsoid_head,
    grow_hair,
    ict_head,
)
from dressi.apps.experiments.parts import kept_parts
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.packing import Options
from dressi.render.fit import l2_loss
from dressi.render.io import contact_sheet
from dressi.render.shading import HairFiber

HELP = "melanin, redness, roughnesses and index of refraction of hair from one picture"

RANGES: dict[str, tuple[float, float]] = {
    "melanin": (0.0, 1.0),
    "redness": (0.0, 1.0),
    "roughness": (0.0, 1.0),
    "azimuthal_roughness": (0.0, 1.0),
    "ior": (1.0, 2.0),
}
"""The constraints of the paper."""

TRUE_RANGES: dict[str, tuple[float, float]] = {
    "melanin": (0.2, 0.7),
    "redness": (0.1, 0.9),
    "roughness": (0.2, 0.5),
    "azimuthal_roughness": (0.2, 0.5),
    "ior": (1.35, 1.75),
}
"""Of hair that there is: lighter than black, which shows no colour, and glossy."""

START_RANGES = TRUE_RANGES | {"melanin": (0.05, 0.5)}
"""Melanin counts by its logarithm: from black hair there is hardly a slope back."""

START_DB, END_DB = 25.0, 40.0
"""PSNR that a start lies below, and that a fit is to reach."""

ALLOWED = {"ior": 0.1}
"""Error of a number that counts as found; 0.05 where nothing is said."""

CLOSE = 0.05
LOOK_AHEAD = 4000
"""Functions that a shader may look ahead: the model and its tangents are one."""

MAX_STEP, TINY = 0.1, 1e-9
"""Most that a number moves in a step; least curvature (1 / 1 in squares of radiance)."""

N_TIMED, WARM_UP = 3, 12
"""Steps of the slow kind that are timed; steps after which the cache acts."""


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    iterations: int = option(40, "of the fit", smoke=2, least=2, quick=30)
    size: int = option(256, "pixels on a side", smoke=32, least=16, quick=96)
    strands: int = option(3000, "on the head", smoke=60, least=1, quick=800)
    layers: int = option(4, "of strands over each other per pixel", smoke=2, least=1)
    seeds: int = option(1, "fits, each of other numbers from another start", smoke=1, least=1)
    seed: int = option(0, "of the first fit", least=0)
    damping: float = option(0.1, "of Gauss and Newton's steps, share of the diagonal", least=0.0)
    noise: float = option(0.0, "standard deviation of noise on the target", least=0.0)
    head: str | None = option(
        None, "file of the ICT head; 'none': an ellipsoid (default: the file of the package)"
    )


@dataclass(frozen=True)
class Fit:
    """One fit. numbers: by name, at each iteration measured. pictures: start, fitted, target."""

    true: dict[str, float]
    iterations: list[int]
    psnr_db: list[float]
    numbers: dict[str, list[float]]
    pictures: tuple[np.ndarray, np.ndarray, np.ndarray]
    seconds: float

    @property
    def errors(self) -> dict[str, float]:
        """Return the absolute error of each number at the end."""
        return {k: abs(v[-1] - self.true[k]) for k, v in self.numbers.items()}

    @property
    def is_found(self) -> bool:
        """Return whether all numbers are found."""
        return all(e <= ALLOWED.get(k, CLOSE) for k, e in self.errors.items())


@dataclass(frozen=True)
class Graph:
    """The leaves and outputs of the fit. linear: the picture with its gradient forward."""

    numbers: dict[str, Variable]
    target: Variable
    picture: Variable
    tangents: tuple[Variable, ...]
    loss: Variable


def build_graph(head: Head, settings: Settings) -> Graph:
    """Return the graph of the fit."""
    size = (settings.size, settings.size)
    numbers = {k: Variable(FLOAT, requires_grad=True, name=k) for k in RANGES}
    strands = grow_hair(head, settings.strands, seed=0)
    picture, _ = build_picture(head, strands, HairFiber(**numbers), size, settings.layers)
    target = Variable(VEC3, size, name="target")
    one = F.constant(1.0)
    tangents = tuple(F.jvp([picture], {x: one})[0] for x in numbers.values())
    linear = F.stop_gradient(picture)
    for x, tangent in zip(numbers.values(), tangents, strict=True):
        linear = linear + F.stop_gradient(tangent) * (x - F.stop_gradient(x))
    return Graph(numbers, target, picture, tangents, l2_loss(linear, target))


def run(settings: Settings) -> Result:
    """Fit once for each seed, with one engine."""
    path = settings.head or (None if settings.smoke else human_file("ict/ict_face_light.npz"))
    head = ellipsoid_head(3 if settings.smoke else 4) if path in (None, "none") else ict_head(path)
    graph = build_graph(head, settings)
    fits: list[Fit] = []
    options = Options(look_ahead=LOOK_AHEAD, lowering="compute")
    with DressiAD(settings.device, options) as ad:
        fresh = prepare(ad, graph, settings)

        def one(seed: int) -> dict[str, Any]:
            ad.load_state_dict(fresh)  # one build for all seeds
            fit = vars(fit_numbers(ad, graph, settings, seed))
            return {**fit, "pictures": np.stack(fit["pictures"])}

        def last() -> dict[str, Any]:
            found = curvature(ad, graph, fits[-1].true)
            # The cache waits for more steps than a smoke run has.
            return found if settings.smoke else found | cache_figures(ad, graph)

        seeds = range(settings.seed, settings.seed + settings.seeds)
        work = {f"seed {seed}": partial(one, seed) for seed in seeds}
        for part in kept_parts(settings, work, "fits").values():
            fits.append(Fit(**{**part, "pictures": tuple(part["pictures"])}))
        (figures,) = kept_parts(settings, {"curvature and cache": last}, "figures").values()
    first = fits[0]
    figures |= {
        "head": head.mesh.name,
        "psnr_start_db": first.psnr_db[0],
        "psnr_db": first.psnr_db[-1],
        "fit_seconds": first.seconds,
        "found": sum(f.is_found for f in fits),
        "fits": [
            {"true": f.true, "psnr_db": f.psnr_db, "numbers": f.numbers, "errors": f.errors}
            for f in fits
        ],
    }
    figures |= {f"{k}_error": e for k, e in first.errors.items()}
    claims, ours = _conditions(fits)

    def plot(figure: Any) -> None:
        _plot(figure, first)

    rows = [("seed", "PSNR", *RANGES)]
    for k, f in enumerate(fits):
        shown = (f"{f.numbers[n][-1]:.3f} ({f.true[n]:.3f})" for n in RANGES)
        rows.append((str(settings.seed + k), f"{f.psnr_db[-1]:.1f}", *shown))
    pictures = {"hair": _sheet(fits)}
    return Result(figures, pictures, {"curves": plot}, claims, [rows], ours=ours)


def _conditions(fits: Sequence[Fit]) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Return what the paper claims and thresholds of ours."""
    found = sum(f.is_found for f in fits)
    needed = int(np.ceil(0.8 * len(fits)))
    worst = min(f.psnr_db[-1] for f in fits)
    start = max(f.psnr_db[0] for f in fits)
    claims = [
        ("the fitted picture has the appearance of the target: the PSNR grows in every fit, from "
         f"{start:.1f} dB at most to {worst:.1f} dB at least",
         all(f.psnr_db[-1] > f.psnr_db[0] for f in fits)),
    ]  # fmt: skip
    ours = [
        (f"the start looks different: PSNR < {START_DB:g} dB: {start:.1f} dB", start < START_DB),
        (f"the fitted picture looks the same: PSNR >= {END_DB:g} dB: {worst:.1f} dB",
         worst >= END_DB),
        (f"each number within {CLOSE:g} (index of refraction {ALLOWED['ior']:g}): "
         f"{found} of {len(fits)} fits, {needed} needed", found >= needed),
    ]  # fmt: skip
    return claims, ours


def prepare(ad: DressiAD, graph: Graph, settings: Settings) -> dict[str, np.ndarray]:
    """Return the state of a fit that has not begun."""
    send_numbers(ad, graph, {k: sum(r) / 2 for k, r in RANGES.items()})
    ad.send_img(graph.target, np.zeros((settings.size, settings.size, 3), np.float32))
    ad.set_loss_var(graph.loss)
    ad.set_optimizer(gauss_newton(graph.numbers, graph.tangents, settings.damping))
    return ad.state_dict()


def fit_numbers(ad: DressiAD, graph: Graph, settings: Settings, seed: int) -> Fit:
    """Draw a target and a start, then fit."""
    rng = np.random.default_rng(seed)
    true = drawn(rng, TRUE_RANGES)
    send_numbers(ad, graph, true)
    wanted = draw(ad, graph)[0]
    noise = np.random.default_rng(seed + 1).normal(0.0, settings.noise, wanted.shape)
    ad.send_img(graph.target, (wanted + noise).astype(np.float32))
    begin = time.perf_counter()
    for _ in range(100):  # one in two starts is far enough
        send_numbers(ad, graph, drawn(rng, START_RANGES))
        first = draw(ad, graph)[0]
        if psnr(first, wanted) < START_DB:
            break
    n = settings.iterations
    measured = np.unique(np.linspace(0, n, min(n, 30) + 1).astype(int))
    iterations: list[int] = []
    quality: list[float] = []
    numbers: dict[str, list[float]] = {k: [] for k in RANGES}
    for k, at in enumerate(tqdm(measured, desc=f"seed {seed}", unit="x", leave=False)):
        if k:
            ad.exec_steps(int(at - measured[k - 1]))
            # The loss is that of the numbers before the last update.
            quality.append(-10.0 * float(np.log10(max(ad.recv_img(graph.loss).item(), 1e-12))))
        iterations.append(int(at))
        for name, x in graph.numbers.items():
            numbers[name].append(float(ad.recv_img(x).reshape(-1)[0]))
    last = draw(ad, graph)[0]
    quality = [psnr(first, wanted), *quality[:-1], psnr(last, wanted)]
    if not np.isfinite(last).all():
        raise DressiError("hair: the picture became no number")
    seconds = time.perf_counter() - begin
    return Fit(true, iterations, quality, numbers, (first, last, wanted), seconds)


def draw(ad: DressiAD, graph: Graph) -> list[np.ndarray]:
    """Return the picture and its tangents: one plan for both."""
    return ad.recv_imgs([graph.picture, *graph.tangents])


def drawn(rng: np.random.Generator, ranges: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Return a number out of each range."""
    return {k: float(np.float32(rng.uniform(*r))) for k, r in ranges.items()}


def send_numbers(ad: DressiAD, graph: Graph, numbers: Mapping[str, float]) -> None:
    """Send the five numbers."""
    for name, x in graph.numbers.items():
        ad.send_img(x, numbers[name])


def gauss_newton(
    numbers: Mapping[str, Variable], tangents: Sequence[Variable], damping: float
) -> Optimizer:
    """Return an optimizer of a mean of squares that keeps each number in its range.

    numbers: FLOAT @ 1x1 by name. tangents: of the picture to each, VEC3. damping: share of its
    diagonal that is added to J^T J. A step is at most MAX_STEP in each number. Source: Levenberg
    1944, Marquardt 1963.
    """
    rows = dict(zip(numbers.values(), tangents, strict=True))
    ranges = {x: RANGES[name] for name, x in numbers.items()}

    def optimizer(xs: Sequence[Variable], gxs: Sequence[Variable]) -> list[Variable]:
        t = [rows[x] for x in xs]
        # The loss is the mean over the three channels, too; half of its gradient is J^T r.
        matrix = [[F.mean(F.dot(a, b)) * (1.0 / 3.0) for b in t[: i + 1]] for i, a in enumerate(t)]
        for i, row in enumerate(matrix):
            row[i] = row[i] * (1.0 + damping) + TINY
        steps = solve_symmetric(matrix, [g * 0.5 for g in gxs])
        moved = (x - F.clamp(s, -MAX_STEP, MAX_STEP) for x, s in zip(xs, steps, strict=True))
        return [F.clamp(new, *ranges[x]) for x, new in zip(xs, moved, strict=True)]

    return optimizer


def solve_symmetric(matrix: list[list[Variable]], right: list[Variable]) -> list[Variable]:
    """Return x of A x = b. matrix: the lower triangle of a positive definite A, FLOAT @ 1x1, row i
    of i + 1; right: b. By elimination, whose pivots are positive."""
    n = len(right)
    lower = [list(row) for row in matrix]
    x = list(right)
    for k in range(n):
        for i in range(k + 1, n):
            share = lower[i][k] / lower[k][k]
            for j in range(k + 1, i + 1):
                lower[i][j] = lower[i][j] - share * lower[j][k]
            x[i] = x[i] - share * x[k]
    for k in reversed(range(n)):
        later = [lower[i][k] * x[i] for i in range(k + 1, n)]
        x[k] = (x[k] - F.add_n(later) if later else x[k]) / lower[k][k]
    return x


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    """Return the PSNR in dB of two linear pictures, clipped to [0, 1]."""
    off = (np.clip(a, 0, 1) - np.clip(b, 0, 1)).astype(np.float64)
    return float(-10 * np.log10(max((off**2).mean(), 1e-12)))


def curvature(ad: DressiAD, graph: Graph, true: Mapping[str, float]) -> dict[str, Any]:
    """Return how well the picture tells the numbers apart at the truth.

    There the Hessian of the squared error is J^T J, J the tangents of the picture. ``spread_40db``:
    standard deviation of each number when the picture has white noise of 40 dB; ``weakest``: the
    direction that changes the picture least, and by how much (root of the mean square per unit).
    """
    send_numbers(ad, graph, true)
    tangents = np.stack([t.astype(np.float64).ravel() for t in draw(ad, graph)[1:]])
    hessian = tangents @ tangents.T
    values, vectors = np.linalg.eigh(hessian)
    spread = 0.01 * np.sqrt(np.diag(np.linalg.pinv(hessian)))
    n = tangents.shape[1]
    return {
        "curvature": (np.sqrt(np.maximum(values, 0.0) / n)).tolist(),
        "spread_40db": dict(zip(RANGES, spread.tolist(), strict=True)),
        "weakest": dict(zip(RANGES, vectors[:, 0].tolist(), strict=True)),
    }


def cache_figures(ad: DressiAD, graph: Graph) -> dict[str, Any]:
    """Return what the reactive cache leaves out, and the time of a step with and without it. The
    numbers go on to change, which does not matter any more."""
    ad.exec_steps(WARM_UP)
    plans = ad.plans
    with_cache = timed(ad, 4 * N_TIMED)
    figures: dict[str, Any] = {"step_ms": with_cache}
    for name, plan in plans.items():
        figures[f"{name}_functions"] = plan.n_functions
        figures[f"{name}_stages"] = len(plan.stages)
    ad.options = replace(ad.options, cache=False)
    ad.exec_step()  # builds
    figures["step_without_cache_ms"] = timed(ad, N_TIMED)
    figures["cache_speedup"] = figures["step_without_cache_ms"] / with_cache
    return figures


def timed(ad: DressiAD, n: int) -> float:
    """Return the median time of a step in ms over n steps."""
    times = []
    for _ in range(n):
        begin = time.perf_counter()
        ad.exec_step()
        times.append(time.perf_counter() - begin)
    return float(np.median(times)) * 1e3


def _sheet(fits: Sequence[Fit]) -> np.ndarray:
    """Return the pictures of the paper's figure, a row per fit."""
    rows = {}
    for k, fit in enumerate(fits):
        start, last, wanted = fit.pictures
        rows[f"fit {k}"] = [start, last, wanted, np.abs(last - wanted) * 10]
    return contact_sheet(rows, columns=("start", "fitted", "target", "10 |difference|"))


def _plot(figure: Any, fit: Fit) -> None:
    left, right = figure.subplots(1, 2)
    for color, (name, values) in enumerate(fit.numbers.items()):
        left.plot(fit.iterations, values, color=f"C{color}", label=name.replace("_", " "))
        left.axhline(fit.true[name], color=f"C{color}", linewidth=0.8, linestyle="--")
    left.set(xlabel="iteration", ylabel="number (dashed: true)")
    left.legend(fontsize="small")
    right.plot(fit.iterations, fit.psnr_db)
    right.axhline(END_DB, color="grey", linewidth=0.8)
    right.set(xlabel="iteration", ylabel="PSNR, dB")
    for axes in (left, right):
        axes.grid(True, alpha=0.3)
