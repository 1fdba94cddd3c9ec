"""One HTML page of a run: a table that sorts, pictures, small multiples. No other file, no network.

In: rows of a table, pictures, curves. Out: the text of the page.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

WIDTH, HEIGHT, MARGIN = 220, 140, 26
"""Of a small multiple, pixels."""

PLOTS = 24
"""Small multiples at most: a page is to be looked at."""

COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#a463f2", "#97bbf5", "#9c6b4e")

CSS = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222; }
table { border-collapse: collapse; }
th, td { padding: 2px 8px; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }
th { cursor: pointer; position: sticky; top: 0; background: #fff; }
th[aria-sort=ascending]::after { content: " ▲"; } th[aria-sort=descending]::after { content: " ▼"; }
td.text, th.text { text-align: left; }
tr.aside td { color: #b00; }
img { max-height: 120px; vertical-align: middle; }
figure { display: inline-block; margin: 0 1em 1em 0; }
figcaption { font-size: 12px; text-align: center; }
pre { background: #f6f6f6; padding: 1em; overflow: auto; }
svg text { font-size: 10px; fill: #555; }
"""

SCRIPT = """
document.querySelectorAll('th').forEach((th, column) => th.addEventListener('click', () => {
  const up = th.getAttribute('aria-sort') !== 'ascending';
  document.querySelectorAll('th').forEach(other => other.removeAttribute('aria-sort'));
  th.setAttribute('aria-sort', up ? 'ascending' : 'descending');
  const body = document.querySelector('tbody');
  const value = row => row.children[column].dataset.v ?? row.children[column].textContent;
  const order = (a, b) => {
    const x = value(a), y = value(b), n = Number(x) - Number(y);
    if (x === '' || y === '') return (x === '') - (y === '');
    return (Number.isNaN(n) ? x.localeCompare(y) : n) * (up ? 1 : -1);
  };
  body.append(...[...body.rows].sort(order));
}));
"""


def page(
    title: str,
    rows: Sequence[Row],
    varied: Sequence[str],
    pictures: Sequence[Sequence[tuple[str, str]]],
    curves: Sequence[Mapping[str, Sequence[float]]],
    failures: Mapping[str, Sequence[str]],
    command: str = "",
) -> str:
    """Return the page. command: the line that made the results. varied: settings that differ
    between tasks. pictures: of each row, (name, address). curves: of each row, lists of numbers by
    name. failures: key -> tracebacks."""
    made = f"<pre>{_text(command)}</pre>" if command else ""
    done = sum(row["status"] == "done" for row in rows)
    asides = "".join(
        f"<details><summary>set aside: {_text(key)}</summary>"
        f"<pre>{_text(texts[-1])}</pre></details>"
        for key, texts in failures.items()
        if texts
    )
    return (
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
        f"<title>{_text(title)}</title><style>{CSS}</style></head><body>\n"
        f"<h1>{_text(title)}</h1>{made}"
        f"<p>{done} of {len(rows)} tasks. Click on a heading to sort.</p>\n"
        f"{multiples(rows, varied)}\n{asides}\n{_table(rows, pictures, curves)}\n"
        f"<script>{SCRIPT}</script></body></html>\n"
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _table(
    rows: Sequence[Row],
    pictures: Sequence[Sequence[tuple[str, str]]],
    curves: Sequence[Mapping[str, Sequence[float]]],
) -> str:
    if not rows:
        return ""
    names = list(rows[0])
    lists = list(dict.fromkeys(k for c in curves for k in c))
    numeric = {n: all(_is_numeric(row[n]) or row[n] is None for row in rows) for n in names}
    with_pictures = any(pictures)
    heads = [f"<th class='{'' if numeric[n] else 'text'}'>{_text(n)}</th>" for n in names]
    heads += [f"<th>{_text(n)}</th>" for n in lists] + ["<th>pictures</th>"] * with_pictures
    body = []
    for row, shown, lines in zip(rows, pictures, curves, strict=True):
        cells = [_cell(row[n], numeric[n]) for n in names]
        for name in lists:
            values = lines.get(name, [])
            last = values[-1] if len(values) else ""
            cells.append(f"<td data-v='{last}'>{_sparkline(values)}</td>")
        if with_pictures:
            cells.append(f"<td class='text'>{''.join(_picture(*p) for p in shown)}</td>")
        kind = "" if row["status"] == "done" else " class='aside'"
        body.append(f"<tr{kind}>{''.join(cells)}</tr>")
    joined = "\n".join(body)
    return f"<table><thead><tr>{''.join(heads)}</tr></thead><tbody>\n{joined}\n</tbody></table>"


def _cell(value: Any, numeric: bool) -> str:
    if value is None:
        return "<td></td>"
    if numeric:
        sorted_by = "" if math.isnan(value) else repr(value).replace("inf", "Infinity")
        return f"<td data-v='{sorted_by}'>{value:.4g}</td>"
    return f"<td class='text'>{_text(value)}</td>"


def _picture(name: str, address: str) -> str:
    return (
        f"<a href='{_text(address)}'><img src='{_text(address)}' alt='{_text(name)}' "
        f"title='{_text(name)}' loading='lazy'></a>"
    )


def _sparkline(values: Sequence[float]) -> str:
    """Return a list of numbers as a small curve."""
    finite = [(k, float(v)) for k, v in enumerate(values) if math.isfinite(v)]
    if len(finite) < 2:
        return ""
    low, high = min(v for _, v in finite), max(v for _, v in finite)
    span = (high - low) or 1.0
    points = " ".join(
        f"{k / (len(values) - 1) * 100:.1f},{24 - (v - low) / span * 22:.1f}" for k, v in finite
    )
    return (
        "<svg width='102' height='26'><polyline fill='none' stroke='#4269d0' "
        f"points='{points}'/></svg>"
    )


# -- small multiples


def multiples(rows: Sequence[Row], varied: Sequence[str]) -> str:
    """Return a plot of each figure over the numeric setting with the most values, a curve per value
    of the next one: mean over the other settings, with every task as a dot."""
    done = [row for row in rows if row["status"] == "done"]
    axes = [n for n in varied if done and all(_is_number(row[n]) for row in done)]
    axes.sort(key=lambda n: -len({row[n] for row in done}))
    if not axes or len({row[axes[0]] for row in done}) < 2:
        return ""
    split = next((n for n in varied if n != axes[0] and _few(done, n)), None)
    names = [n for n in done[0] if n not in varied and _varies(done, n)]
    plots = [_plot(done, axes[0], split, name) for name in names[:PLOTS]]
    return f"<section>{''.join(plots)}</section>"


def _few(rows: Sequence[Row], name: str) -> bool:
    return 2 <= len({row[name] for row in rows}) <= len(COLOURS)


def _varies(rows: Sequence[Row], name: str) -> bool:
    values = [row[name] for row in rows if row[name] is not None]
    finite = {v for v in values if _is_number(v)}
    return all(_is_numeric(v) for v in values) and len(finite) > 1


def _is_numeric(value: Any) -> bool:
    """Whether a value is of a column of numbers, where a fit that diverged has NaN."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_numeric(value) and math.isfinite(value)


def _plot(rows: Sequence[Row], axis: str, split: str | None, name: str) -> str:
    used = [row for row in rows if _is_number(row[name])]
    xs, ys = [float(r[axis]) for r in used], [float(r[name]) for r in used]
    (left, right), (low, high) = (min(xs), max(xs)), (min(ys), max(ys))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - left) / ((right - left) or 1.0)
        up = (y - low) / ((high - low) or 1.0)
        return (
            MARGIN + across * (WIDTH - 2 * MARGIN),
            HEIGHT - MARGIN - up * (HEIGHT - 2 * MARGIN),
        )

    groups: dict[Any, list[tuple[float, float]]] = {}
    for row, x, y in zip(used, xs, ys, strict=True):
        groups.setdefault(row[split] if split else "", []).append((x, y))
    parts, legend = [], []
    for colour, (value, points) in zip(COLOURS, groups.items(), strict=False):
        for x, y in points:
            a, b = place(x, y)
            parts.append(f"<circle cx='{a:.1f}' cy='{b:.1f}' r='2' fill='{colour}' opacity='.5'/>")
        means = [place(x, y) for x, y in _means(points)]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in means)
        parts.append(f"<polyline fill='none' stroke='{colour}' points='{line}'/>")
        if split:
            legend.append(f"<span style='color:{colour}'>{_text(value)}</span>")
    labels = (
        f"<text x='2' y='{MARGIN - 6}'>{high:.4g}</text><text x='2' y='{HEIGHT - MARGIN + 4}'>"
        f"{low:.4g}</text><text x='{MARGIN}' y='{HEIGHT - 8}'>{left:.4g}</text><text "
        f"x='{WIDTH - MARGIN}' y='{HEIGHT - 8}' text-anchor='end'>{_text(axis)} {right:.4g}</text>"
    )
    caption = f"{_text(name)}" + (f"; {_text(split)}: {' '.join(legend)}" if split else "")
    return (
        f"<figure><svg width='{WIDTH}' height='{HEIGHT}'>{labels}{''.join(parts)}</svg>"
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _means(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    by_x: dict[float, list[float]] = {}
    for x, y in points:
        by_x.setdefault(x, []).append(y)
    return [(x, sum(ys) / len(ys)) for x, ys in sorted(by_x.items())]
