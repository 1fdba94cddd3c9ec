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
EARLY = 0.2
"""And over this part of the iterations, 500 of the paper's 2500. Either measure can be chosen so
that it suits a method, so a setting must lead by both."""


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
    """By which part a curve lies below another, 0.05: 5 %; negative: above; error: the standard
    error over runs, 0 for one run."""

    value: float
    error: float

    @property
    def sure(self) -> bool:
        """Whether it is below by more than the error."""
        return self.value > self.error

    def __str__(self) -> str:
        return f"{self.value:+.1%}" + (f" ± {self.error:.1%}" if self.error else "")


@dataclass(frozen=True)
class Leads:
    """early: mean over the first ``EARLY`` of the iterations. way: mean over those until the other
    has come ``ON_THE_WAY``. end: at the end."""

    early: Lead
    way: Lead
    end: Lead


def leads(curve: Curve, other: Curve) -> Leads:
    """Compare two curves: run by run where both have as many (the same seeds), else their means."""
    last = min(curve.iterations[-1], other.iterations[-1])
    mean = np.exp(other.at(curve.iterations)).mean(0)
    arrived = mean <= mean[0] + ON_THE_WAY * (mean[-1] - mean[0])
    until = curve.iterations[int(arrived.argmax())] if arrived.any() else last

    def over(end: float) -> Lead:
        within = curve.iterations[(curve.iterations > 0) & (curve.iterations <= end)]
        return _lead(curve, other, within if len(within) else curve.iterations[1:2])

    return Leads(over(EARLY * last), over(until), _lead(curve, other, np.array([last])))


def _lead(curve: Curve, other: Curve, at: np.ndarray) -> Lead:
    a, b = (c.at(at).mean(1) for c in (curve, other))
    paired = len(a) == len(b)
    each = b - a if paired else np.array([b.mean() - a.mean()])
    spreads = [each] if paired else [a, b]
    variances = [x.var(ddof=1) / len(x) if len(x) > 1 else 0.0 for x in spreads]
    return Lead(1.0 - float(np.exp(-each.mean())), float(np.sqrt(sum(variances))))


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
    where the lead is larger than its standard error over runs, that of speed by both measures."""
    out = []
    keys = list(names)
    for key, name in names.items():
        found = leads(curves[key], curves[reference])
        said = (
            f"{name} converges faster than {reference_name}: nearer by {found.early} over the "
            f"first {EARLY:.0%} of the iterations, by {found.way} until that one has come "
            f"{ON_THE_WAY:.0%} of its way"
        )
        out.append((said, found.early.sure and found.way.sure))
    for key in keys[:-1]:
        end = leads(curves[key], curves[reference]).end
        out.append((f"{names[key]} ends nearer than {reference_name}, by {end}", end.sure))
    return out


def rows(
    curves: Mapping[str, Curve], names: Mapping[str, str], reference: str, where: list[str]
) -> list[list[str]]:
    """Rows of texts for a table: distances x 1000 after a fifth of the iterations and at the end,
    and the leads. where: what each row begins with."""
    out = []
    for key, name in names.items():
        curve = curves[key]
        last = curve.iterations[-1]
        after = (np.exp(curve.at(np.array([t]))).mean() * 1e3 for t in (EARLY * last, last))
        found = leads(curve, curves[reference])
        own = key == reference
        said = ("", "", "") if own else (str(found.early), str(found.way), str(found.end))
        out.append([*where, name, *(f"{d:.2f}" for d in after), *said])
    return out


HEADING = [
    "look",
    "schedule",
    "method",
    "after 1/5, x 1000",
    "end, x 1000",
    "nearer in the first fifth by",
    "on the way by",
    "at the end by",
]
