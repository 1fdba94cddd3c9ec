"""What the paper claims of its error curves (4.3), asked of curves.

In: distances over iterations of each method, one row per run; maybe a recorded curve of another
renderer. Out: how much faster and nearer each of the paper's settings is, with the standard error
over runs, as figures, a table and conditions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dressi.errors import LoadError

ON_THE_WAY = 0.9
"""Curves are compared for speed until the other one has come this part of its whole fall."""


@dataclass(frozen=True, eq=False)
class Curve:
    """distances: (runs, measurements). iterations: of the measurements, ascending from 0."""

    iterations: np.ndarray
    distances: np.ndarray

    def at(self, iterations: np.ndarray) -> np.ndarray:
        """(runs, n) logarithms of the distances, linear between measurements."""
        rows = [np.interp(iterations, self.iterations, np.log(d)) for d in self.distances]
        return np.array(rows)


@dataclass(frozen=True)
class Lead:
    """By which part a curve lies below another, 0.05: 5 %; negative: above. faster: mean over the
    iterations until the other has come ``ON_THE_WAY``; nearer: at the end. Errors are standard
    errors over runs, 0 for one run."""

    faster: float
    faster_error: float
    nearer: float
    nearer_error: float


def lead(curve: Curve, other: Curve) -> Lead:
    """Compare two curves: run by run where both have as many (the same seeds), else their means."""
    last = min(curve.iterations[-1], other.iterations[-1])
    mean = np.exp(other.at(curve.iterations)).mean(0)
    arrived = mean <= mean[0] + ON_THE_WAY * (mean[-1] - mean[0])
    until = curve.iterations[int(arrived.argmax())] if arrived.any() else last
    early = curve.iterations[(curve.iterations > 0) & (curve.iterations <= until)]
    early = early if len(early) else curve.iterations[-1:]
    found: list[float] = []
    for at in (early, np.array([last])):
        a, b = (c.at(at).mean(1) for c in (curve, other))
        paired = len(a) == len(b)
        each = b - a if paired else np.array([b.mean() - a.mean()])
        spreads = [each] if paired else [a, b]
        variances = [x.var(ddof=1) / len(x) if len(x) > 1 else 0.0 for x in spreads]
        found += [1.0 - float(np.exp(-each.mean())), float(np.sqrt(sum(variances)))]
    return Lead(*found)


def read_peer(path: str, asked: Mapping[str, Any]) -> tuple[str, Curve]:
    """Return the name and the curve of another renderer from a JSON file.

    The file is an object with ``name``, ``iterations`` (n ascending numbers from 0), ``distances``
    (a list of n per run), and ``settings``: what the curve was recorded with, of which each name
    that the experiment has must agree with asked. Raises LoadError for anything else.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        name, given = str(found["name"]), dict(found["settings"])
        iterations = np.asarray(found["iterations"], float)
        distances = np.asarray(found["distances"], float)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LoadError(
            f"{path}: must be a JSON object with name, settings, iterations, distances: {error!r}",
            path,
        ) from None
    rising = iterations.ndim == 1 and len(iterations) > 1 and (np.diff(iterations) > 0).all()
    fits = distances.ndim == 2 and len(distances) and distances.shape[1:] == iterations.shape
    if not rising or not fits or not (np.isfinite(distances) & (distances > 0.0)).all():
        raise LoadError(
            f"{path}: needs ascending iterations (n,) and distances > 0 (runs, n), got "
            f"{iterations.shape} and {distances.shape}",
            path,
        )
    for key, value in given.items():
        own = asked.get(key, value)
        if (list(own) if isinstance(own, (tuple, list)) else own) != value:
            raise LoadError(f"{path}: recorded with {key} {value}, the fits here have {own}", path)
    return name, Curve(iterations, distances)


def claims(
    curves: Mapping[str, Curve], names: Mapping[str, str], reference: str, reference_name: str
) -> list[tuple[str, bool]]:
    """The paper's claims: each of its settings converges faster than the reference, and all but the
    far one end nearer. names: of its settings, by key of curves, the far one last. A claim holds
    where the mean over runs says so."""
    out = []
    keys = list(names)
    for key, name in names.items():
        found = lead(curves[key], curves[reference])
        out.append(
            (
                f"{name} converges faster than {reference_name}: on the way it is "
                f"{_by(found.faster, found.faster_error)} nearer on average",
                found.faster > 0.0,
            )
        )
    for key in keys[:-1]:
        found = lead(curves[key], curves[reference])
        out.append(
            (
                f"{names[key]} ends nearer than {reference_name}, by "
                f"{_by(found.nearer, found.nearer_error)}",
                found.nearer > 0.0,
            )
        )
    return out


def _by(value: float, error: float) -> str:
    return f"{value:+.1%} ± {error:.1%}" if error else f"{value:+.1%}, one run,"


def rows(
    curves: Mapping[str, Curve], names: Mapping[str, str], reference: str, where: list[str]
) -> list[list[str]]:
    """Rows of texts for a table: distances x 1000 after a fifth of the iterations and at the end,
    and both leads. where: what each row begins with."""
    out = []
    for key, name in names.items():
        curve = curves[key]
        last = curve.iterations[-1]
        early, end = (np.exp(curve.at(np.array([t]))).mean() * 1e3 for t in (0.2 * last, last))
        found = lead(curve, curves[reference])
        own = key == reference
        faster, nearer = (
            "" if own else _by(*pair).removesuffix(", one run,")
            for pair in ((found.faster, found.faster_error), (found.nearer, found.nearer_error))
        )
        out.append([*where, name, f"{early:.2f}", f"{end:.2f}", faster, nearer])
    return out


HEADING = [
    "look",
    "schedule",
    "method",
    "after 1/5, x 1000",
    "end, x 1000",
    "faster by",
    "nearer by",
]
