"""Curves as SVG, for pages, without any other package. In: numbers. Out: one <svg> element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError

Floats = npt.NDArray[np.float64]

COLORS = ("#1f6fb2", "#d1622b", "#3a8f4d", "#8a4fa3", "#a8862a", "#b03a56", "#4b5a66")
"""Told apart in print and by most people who are blind for red or green; more lines repeat them."""
MOST_POINTS = 800
"""Points per curve: about one per pixel of the width."""


def svg_curves(curves: Mapping[str, Sequence[float]], size: tuple[int, int] = (800, 320)) -> str:
    """Return an <svg> element with curves over their number, axes and a legend.

    curves: legend -> values, one per iteration; NaN and infinity leave a gap. The axis is
    logarithmic where all values are positive. size: (width, height) in pixels. Raises GraphError
    where there is no finite value.
    """
    tables = {name: np.asarray(values, np.float64).ravel() for name, values in curves.items()}
    finite = np.concatenate([v[np.isfinite(v)] for v in tables.values()] or [np.empty(0)])
    if len(finite) == 0:
        raise GraphError("svg_curves: there are no values to draw")
    width, height = size
    left, top, right, bottom = 64, 12 + 16 * ((len(tables) + 2) // 3), width - 12, height - 28
    logarithmic = bool(finite.min() > 0.0)
    ticks = _ticks(finite, logarithmic)
    low, high = (np.log10(ticks) if logarithmic else ticks)[[0, -1]]
    last = max(max(len(v) for v in tables.values()) - 1, 1)

    def y_of(values: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            at = np.log10(values) if logarithmic else values
        return bottom - (at - low) / (high - low) * (bottom - top)

    parts = [
        f'<rect x="{left}" y="{top}" width="{right - left}" height="{bottom - top}" '
        'fill="none" stroke="#b8c0c7"/>'
    ]
    for value, tick_y in zip(ticks, y_of(ticks), strict=True):
        parts.append(f'<path d="M{left} {tick_y:.1f}H{right}" stroke="#e3e7ea"/>')
        parts.append(
            f'<text x="{left - 6}" y="{tick_y + 4:.1f}" text-anchor="end">{value:.3g}</text>'
        )
    for number in _ticks(np.array([0.0, last]), False):
        x = left + number / last * (right - left)
        if number > last:
            break
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{number:g}</text>')
    for k, (name, values) in enumerate(tables.items()):
        color = COLORS[k % len(COLORS)]
        xs = left + np.arange(len(values)) / last * (right - left)
        parts.append(
            f'<path d="{_path(xs, y_of(values))}" fill="none" stroke="{color}" stroke-width="1.4"/>'
        )
        at_x, at_y = left + (k % 3) * (right - left) / 3, 12 + 16 * (k // 3)
        parts.append(
            f'<text x="{at_x:.1f}" y="{at_y}" style="fill: {color}">'
            f"&#9632; {escape(str(name))}</text>"
        )
    inner = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n{inner}\n</svg>'
    )


def _ticks(finite: Floats, logarithmic: bool) -> Floats:
    """About five round numbers that reach from below the lowest to above the highest."""
    low, high = float(finite.min()), float(finite.max())
    if logarithmic:
        first, last = np.floor(np.log10(low)), np.ceil(np.log10(high))
        step = max(1.0, np.ceil((last - first) / 6.0))
        return np.asarray(10.0 ** np.arange(first, max(last, first + 1.0) + step * 0.999, step))
    span = high - low if high > low else max(abs(high), 1.0)
    unit = 10.0 ** np.floor(np.log10(span / 4.0))
    step = unit * min(k for k in (1.0, 2.0, 5.0, 10.0) if k * unit >= span / 5.0)
    first, last = np.floor(low / step), np.ceil(high / step)
    return np.asarray(np.arange(first, max(last, first + 1.0) + 0.5) * step)


def _path(x: Floats, y: Floats) -> str:
    """SVG path data; a new part after each gap. Long curves show every n-th value and the last."""
    step = max(1, len(x) // MOST_POINTS)
    words, pen = [], "M"
    for k in [*range(0, len(x) - 1, step), *range(len(x) - 1, len(x))]:
        if not np.isfinite(y[k]):
            pen = "M"
            continue
        words.append(f"{pen}{x[k]:.1f} {y[k]:.1f}")
        pen = "L"
    return "".join(words)
