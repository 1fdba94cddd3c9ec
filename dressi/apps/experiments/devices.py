"""``dressi experiment devices``: one application on every device at hand (paper, 4.1: its table of
platforms and its error curves).

A sphere becomes a pear: the shape by silhouettes, then the texture by colours, the same parameters
everywhere. Every device runs it with passes and with dispatches, Mesa's CPU driver with several
numbers of threads; each is one platform. Several trials, for sums on a GPU come in any order.
Results of other machines are merged from their ``result.json`` (``--merge``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.device_trials import Trial, run_apart
from dressi.apps.experiments.parts import kept_parts
from dressi.engine import DressiAD
from dressi.errors import DressiError, LoadError
from dressi.kinds import Lowering
from dressi.vk import list_devices, unique_names

HELP = "the same fit on every device: stages, milliseconds, error curves; several machines"

WAYS: dict[str, Lowering] = {"passes": "graphics", "dispatches": "compute"}

ALIKE = 0.05
"""Ours, where the paper says "very similar": how far the converged errors of platforms may be
apart, of their mean."""

CONVERGED = 0.1
"""Ours: the part of the iterations at the end over which a converged curve falls by less than
``ALIKE`` of its whole fall."""

TARGETS = ("geometry", "texture")


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    trials: int = option(10, "on each platform", smoke=1, quick=2, least=1)
    threads: tuple[int, ...] = option((1, 2), "of Mesa's CPU driver", smoke=(1,), least=1)
    ways: tuple[str, ...] = option(
        tuple(WAYS), "passes, dispatches", smoke=("passes",), quick=("passes",)
    )
    iterations: int = option(150, "on vertex positions", smoke=3, least=1)
    texture_iterations: int = option(100, "on the texture", smoke=3, quick=50, least=1)
    size: int = option(256, "pixels on a side of a view", smoke=16, quick=48, least=8)
    views: int = option(6, "of the pear", smoke=2, least=1)
    subdivisions: int = option(4, "of the sphere: 20 * 4^n faces", smoke=1, quick=2, least=0)
    every: int = option(10, "iterations between measurements of the distance", least=1)
    merge: str | None = option(None, "folder with result.json files (*.json) of other machines")


def platforms(settings: Settings) -> dict[str, Trial]:
    """Return the trial of each platform here, by its name."""
    there = list_devices()
    names = unique_names(there)
    chosen = list(zip(there, names, strict=True))
    if settings.device is not None:
        with DressiAD(settings.device) as ad:
            index = ad.device_info.index
        chosen = [(d, n) for d, n in chosen if d.index == index]
    s, out = settings, {}
    for info, name in chosen:
        for threads in s.threads if "llvmpipe" in name else (0,):
            for way in s.ways:
                told = f", {threads} thread{'s' * (threads > 1)}" if threads else ""
                out[f"{info.name}{told}, {way}"] = Trial(
                    name,
                    WAYS[way],
                    threads,
                    s.iterations,
                    s.texture_iterations,
                    s.size,
                    s.views,
                    s.subdivisions,
                    s.every,
                )
    return out


def run(settings: Settings) -> Result:
    """Run all trials here, merge those of other machines."""
    for way in settings.ways:
        if way not in WAYS:
            raise DressiError(f"--ways {way}: must be of {', '.join(WAYS)}")
    others = merged(settings)
    work = {
        f"{name}, trial {k}": partial(run_apart, trial)
        for name, trial in platforms(settings).items()
        for k in range(settings.trials)
    }
    parts = kept_parts(settings, work, "trials")
    rows = {
        name: summary([parts[f"{name}, trial {k}"] for k in range(settings.trials)])
        for name in platforms(settings)
    }
    for name, row in others.items():
        rows[name if name not in rows else f"{name} (merged)"] = row
    stated, ours = conditions(rows)
    plots = {f"{target}_error": partial(_plot, rows, target) for target in TARGETS}
    figures = {"platforms": rows}
    return Result(figures, plots=plots, conditions=stated, tables=[table(rows)], ours=ours)


def merged(settings: Settings) -> dict[str, Any]:
    """Return the platforms of other machines. Raises LoadError for a folder without results, and
    for results of other settings, which cannot stand in one table."""
    if settings.merge is None:
        return {}
    files = sorted(Path(settings.merge).glob("*.json"))
    if not files:
        raise LoadError(f"{settings.merge}: there is no *.json in this folder", settings.merge)
    out: dict[str, Any] = {}
    for file in files:
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            rows, asked = dict(found["figures"]["platforms"]), dict(found["settings"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LoadError(
                f"{file}: must be the result.json of this experiment: {error!r}", str(file)
            ) from None
        for key in ("iterations", "texture_iterations", "size", "views", "subdivisions", "every"):
            if asked.get(key) != getattr(settings, key):
                own = getattr(settings, key)
                raise LoadError(
                    f"{file}: measured with {key} {asked.get(key)}, here it is {own}", str(file)
                )
        for name, row in rows.items():
            out[name if name not in out else f"{name} ({file.stem})"] = row
    return out


def summary(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one platform: who it is, and of each target counts, the median time, and the mean and
    the standard deviation of the curves."""
    first = trials[0]
    out = {k: first[k] for k in ("device", "driver", "commit", "input_attachments")}
    out["trials"] = len(trials)
    for target in TARGETS:
        curves = np.array([t[target]["curve"] for t in trials])
        out[target] = {
            "before": first[target]["before"],
            "after": first[target]["after"],
            "ms": float(np.median([t[target]["ms"] for t in trials])),
            "at": first[target]["at"],
            "mean": curves.mean(0).tolist(),
            "std": curves.std(0).tolist(),
        }
    return out


def table(rows: dict[str, Any]) -> list[list[str]]:
    """Return the paper's columns: attachments, substages / stages before and after caching,
    milliseconds; beside them the errors at the end."""
    head = ["platform", "input attachments"]
    for target in TARGETS:
        head += [f"{target}: substages / stages", "ms", "error at the end"]
    out = [head]
    for name, row in rows.items():
        line = [name, str(row["input_attachments"])]
        for target in TARGETS:
            t = row[target]
            pairs = " -> ".join("/".join(map(str, t[when])) for when in ("before", "after"))
            line += [pairs, f"{t['ms']:.1f}", f"{t['mean'][-1]:.3g} ± {t['std'][-1]:.1g}"]
        out.append(line)
    return out


def conditions(
    rows: dict[str, Any],
) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Return what the paper claims without a threshold, and its "very similar" and "converge" with
    ours."""
    slower = [n for n, r in rows.items() if not r["texture"]["ms"] < r["geometry"]["ms"]]
    saved = [n for n, r in rows.items() if not saves(r)]
    stated = [
        ("texture iterations are faster than geometry on every platform" + _but(slower), not slower)
    ]
    stated.append(
        (
            "the cache takes more stages off the texture than off the geometry" + _but(saved),
            not saved,
        )
    )
    limits = sorted({r["input_attachments"] for r in rows.values()})
    if len(limits) > 1:
        tight, loose = (
            [r["geometry"]["before"][0] for r in rows.values() if r["input_attachments"] == n]
            for n in (limits[0], limits[-1])
        )
        holds = min(tight) > max(loose)
        stated.append(
            (f"fewer substages under {limits[-1]} input attachments than {limits[0]}", holds)
        )
    ours = []
    for target in TARGETS:
        ends = np.array([r[target]["mean"][-1] for r in rows.values()])
        apart = float(np.ptp(ends) / ends.mean())
        if len(ends) > 1:
            said = f"{target}: the errors at the end are within {ALIKE:.0%} on all platforms"
            ours.append((f"{said}: {apart:.2%}", apart <= ALIKE))
        late = [n for n, r in rows.items() if not converged(r[target]["mean"])]
        ours.append((f"{target}: converged on every platform" + _but(late), not late))
    return stated, ours


def saves(row: dict[str, Any]) -> bool:
    """Whether caching takes more stages off a step of the texture than of the geometry."""
    geometry, texture = (row[t]["before"][1] - row[t]["after"][1] for t in TARGETS)
    return bool(texture > geometry)


def converged(curve: list[float]) -> bool:
    """Whether the last part of a curve is a small part of its fall."""
    tail = curve[-1 - max(int(CONVERGED * len(curve)), 1)]
    return abs(tail - curve[-1]) <= ALIKE * abs(curve[0] - curve[-1])


def _but(names: list[str]) -> str:
    return f", but not on {'; '.join(names)}" if names else ""


def _plot(rows: dict[str, Any], target: str, figure: Any) -> None:
    axes = figure.subplots(1, 1)
    for name, row in rows.items():
        t = row[target]
        mean, std = np.array(t["mean"]), np.array(t["std"])
        axes.semilogy(t["at"], mean, label=name)
        axes.fill_between(t["at"], mean - std, mean + std, alpha=0.2)
    axes.set_xlabel("iteration")
    axes.set_ylabel("distance / longest side" if target == "geometry" else "colour L2 loss")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend(fontsize="small")
