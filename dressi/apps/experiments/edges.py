"""``dressi experiment edges``: which method wins where, at edges of all sorts.

Beyond the paper, which has no such experiment.

Six scenes (outline only, inner occlusion, crossing, thin parts, far start, texture): the derivative
of the picture by AD over that of a float64 reference of another make, a fit of place and size, and
the time of a step. Then four fits that only edges inside the outline can tell: a disc before a
larger one, the depth order of two discs, a ring whose hole closes, a hand before a body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.edge_fits import (
    FAR_R,
    INNER,
    METHODS,
    OLD,
    SCENES,
    Fitted,
    Method,
    Problem,
    fit,
    truth,
)
from dressi.apps.experiments.parts import Part, kept_parts
from dressi.apps.reliability.edge_gradients import STEP_PX, load
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.render.io import contact_sheet
from dressi.testing.supersampled import derivatives

HELP = "edges inside and outside of outlines: derivative over truth, fits and time of each method"

CONVERGED = 0.1
"""Of the error at the start, at most so much is left of a fit that converged."""
STAYED = 0.5
"""At least so much, of one that did not find it. Adam makes full steps of tiny gradients, too, so
what has none to speak of may drift."""
CLOSE = 0.05
"""A derivative this close to the truth is right: what is asked of the median over scenes."""
ENLARGED = 2
"""Pixels of the sheet per pixel of a picture, along either axis."""

Table = dict[str, dict[str, dict[str, float]]]
"""Scene, method, figure."""


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    scenes: tuple[str, ...] = option(
        tuple(SCENES),
        "scenes",
        smoke=("inner occlusion",),
        quick=("outline only", "inner occlusion"),
    )
    fits: tuple[str, ...] = option(tuple(INNER), "fits of inner edges", smoke=("two discs",))
    methods: tuple[str, ...] = option(
        tuple(METHODS),
        "methods",
        smoke=("K=1", "antialias"),
        quick=("K=1", "occlusion", "antialias"),
    )
    iterations: int = option(50, "steps of Adam", smoke=5, least=5)
    samples: int = option(8, "of the reference, per pixel and axis", smoke=2, least=1, quick=4)
    displacements: int = option(
        10, "that the derivative is measured along", smoke=3, least=3, quick=4
    )


def _check(s: Settings) -> None:
    for flag, names, known in (
        ("--scenes", s.scenes, SCENES),
        ("--fits", s.fits, INNER),
        ("--methods", s.methods, METHODS),
    ):
        for name in names:
            if name not in known:
                raise DressiError(f"{flag}: there is no '{name}'; known: {', '.join(known)}")


def slopes(problem: Problem, method: Method, s: Settings, true: np.ndarray) -> dict[str, float]:
    """Return what AD has of the derivatives of a weighted sum of the picture, the mean over
    sub-pixel shifts: ``ratio``, the median over displacements of AD over the truth, of those along
    which the picture changes; ``cosine`` between both; ``off``, the norm of their difference over
    that of the truth."""
    with DressiAD(s.device) as ad:
        graph = load(
            ad, problem.scene, lambda g, scene: method(g, problem.r, problem.r, scene.clip)
        )
        found = graph.gradient(ad)
    tell = np.abs(true) > 0.1 * np.abs(true).max()
    norms = np.linalg.norm(found) * np.linalg.norm(true)
    return {
        "ratio": float(np.median(found[tell] / true[tell])),
        "cosine": float(found @ true / norms) if norms > 0 else 0.0,
        "off": float(np.linalg.norm(found - true) / np.linalg.norm(true)),
    }


def _work(s: Settings, problems: Mapping[str, Problem]) -> dict[str, Callable[[], Any]]:
    """Return the fits of each scene and method, one per start, and the derivatives of the scenes of
    SCENES, each by its name."""

    def fitted(name: str, method: str, start: tuple[float, ...]) -> dict[str, object]:
        begun = replace(problems[name], start=start)
        target = truth(begun, np.zeros(len(start)), s.samples)
        return vars(fit(begun, METHODS[method], target, s.iterations, s.device, name in INNER))

    work: dict[str, Callable[[], Any]] = {}
    for name, problem in problems.items():
        for k, start in enumerate((problem.start, *problem.also)):
            work |= {f"fit, {name}, {m}, {k}": partial(fitted, name, m, start) for m in s.methods}
    return work


def _derivatives(s: Settings, problems: Mapping[str, Problem]) -> dict[str, Part]:
    """Return the derivatives of each scene and method over those of the reference."""

    def narrow(problem: Problem) -> Problem:
        directions = problem.scene.directions[: s.displacements]
        return replace(problem, scene=replace(problem.scene, directions=directions))

    def reference(problem: Problem) -> dict[str, np.ndarray]:
        return {"true": derivatives(narrow(problem).scene, s.samples, STEP_PX)}

    true = kept_parts(
        s, {f"truth, {k}": partial(reference, p) for k, p in problems.items()}, "references"
    )
    work = {
        f"derivative, {k}, {m}": partial(
            slopes, narrow(p), METHODS[m], s, true[f"truth, {k}"]["true"]
        )
        for k, p in problems.items()
        for m in s.methods
    }
    return kept_parts(s, work, "derivatives")


def _of_fit(found: list[Fitted]) -> dict[str, float]:
    """The figures of the fits of a method: of the first start, and what is left of the error, the
    median over starts."""
    return {
        "start_px": found[0].start_px,
        "end_px": found[0].end_px,
        "left": float(np.median([f.left for f in found])),
        "ms": min(f.ms for f in found),
    }


def _big(image: np.ndarray) -> np.ndarray:
    grey = image.repeat(ENLARGED, 0).repeat(ENLARGED, 1)[..., None]
    return np.asarray(grey.repeat(3, 2))


def _row(problem: Problem, fits: Mapping[str, list[Fitted]], samples: int) -> list[np.ndarray]:
    """The start, the target, what each method found."""
    ends = [np.array(problem.start), np.zeros(len(problem.start))]
    ends += [f.parameters for f, *_ in fits.values()]
    return [_big(truth(problem, p, samples)) for p in ends]


def _tangents(fits: Mapping[str, list[Fitted]]) -> list[np.ndarray]:
    """Derivatives of the pictures at the start by the first parameter, grey where there is none.
    They stand below what each method found."""
    seen = [f.tangent for f, *_ in fits.values()]
    none = np.ones_like(seen[0])
    return [_big(none), _big(none), *(_big(np.clip(0.5 + t, 0, 1)) for t in seen)]


def run(settings: Settings) -> Result:
    """Return derivatives, fits and times of every method in every scene; a sheet of pictures."""
    s = settings
    _check(s)
    inner = {name: INNER[name]() for name in s.fits}
    outer = {name: SCENES[name]() for name in s.scenes}
    problems = {**inner, **outer}
    done = kept_parts(s, _work(s, problems), "fits")
    measured = _derivatives(s, outer)
    scenes: Table = {}
    fits: Table = {}
    rows: dict[str, list[np.ndarray]] = {}
    for name, problem in problems.items():
        starts = range(1 + len(problem.also))
        found = {m: [Fitted.of(done[f"fit, {name}, {m}, {k}"]) for k in starts] for m in s.methods}
        rows[name] = _row(problem, found, s.samples)
        of = {m: _of_fit(f) for m, f in found.items()}
        if name in inner:
            fits[name] = of
            rows[name + ",\nderivative"] = _tangents(found)
        else:
            scenes[name] = {m: measured[f"derivative, {name}, {m}"] | of[m] for m in s.methods}
    return Result(
        {"scenes": scenes, "fits": fits, "wins": wins(scenes)},
        {"edges": contact_sheet(rows, columns=("start", "target", *s.methods))},
        conditions=conditions(scenes, fits),
        tables=(_slopes_table(scenes), _fits_table({**scenes, **fits})),
    )


def wins(scenes: Table) -> dict[str, dict[str, str]]:
    """Return, per scene, the method whose derivative is nearest to the truth, the one whose fit
    ends nearest, and the fastest of those whose fit converged."""
    out = {}
    for name, of in scenes.items():
        came = [m for m in of if of[m]["left"] <= CONVERGED]
        out[name] = {
            "derivative": min(of, key=lambda m: of[m]["off"]),
            "fit": min(of, key=lambda m: of[m]["left"]),
            "fastest that converged": min(came, key=lambda m: of[m]["ms"]) if came else "none",
        }
    return out


def _slopes_table(scenes: Table) -> list[list[str]]:
    """AD over the truth and the cosine, a row per scene, under a heading."""
    methods = list(next(iter(scenes.values()))) if scenes else []
    table = [["AD / truth, cosine", *methods]]
    for name, of in scenes.items():
        table.append([name, *(f"{v['ratio']:.2f}, {v['cosine']:.3f}" for v in of.values())])
    return table


def _fits_table(fits: Table) -> list[list[str]]:
    """Errors at the end over those of the start, and ms, a row per scene, under a heading."""
    methods = list(next(iter(fits.values()))) if fits else []
    table = [["error left, ms a step", "start", *methods]]
    for name, of in fits.items():
        start = f"{next(iter(of.values()))['start_px']:.1f} px"
        cells = (f"{100 * v['left']:.1f} %, {v['ms']:.1f}" for v in of.values())
        table.append([name, start, *cells])
    return table


def conditions(scenes: Table, fits: Table) -> list[tuple[str, bool]]:
    """Return what is asked of the figures of the methods and scenes that ran."""
    made: list[tuple[str, bool]] = []
    for name, of in fits.items():
        for m in of:
            left = of[m]["left"]
            if m in OLD:
                said = f"{name}: {m} does not find it, {100 * left:.1f} % of the error is left"
                made.append((f"{said} (at least {100 * STAYED:g} %)", left >= STAYED))
            else:
                said = f"{name}: {m} converges, {100 * left:.1f} % of the error is left"
                made.append((f"{said} (at most {100 * CONVERGED:g} %)", left <= CONVERGED))
    for name, of in scenes.items():
        if "occlusion" in of and name != "far start":
            ratio = of["occlusion"]["ratio"]
            said = f"{name}: AD with occlusion is {ratio:.3f} of the truth"
            made.append((f"{said} (within {100 * CLOSE:g} %)", abs(ratio - 1) <= CLOSE))
    inner = scenes.get("inner occlusion", {})
    for m in OLD:
        if m in inner:
            ratio = inner[m]["ratio"]
            said = f"inner occlusion: AD with {m} is {ratio:.3f} of the truth"
            made.append((f"{said} (below {CONVERGED:g})", abs(ratio) < CONVERGED))
    far = scenes.get("far start", {})
    for m in far:
        left = far[m]["left"]
        what = f"{100 * left:.1f} % is left, the median over starts"
        if m == "antialias":
            said = f"far start: {m} does not find it, {what}"
            made.append((f"{said} (at least {100 * STAYED:g} %)", left >= STAYED))
        else:
            said = f"far start (r = {FAR_R:g}): {m} converges, {what}"
            made.append((f"{said} (at most {100 * CONVERGED:g} %)", left <= CONVERGED))
    return made
