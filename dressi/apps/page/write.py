"""A report as one HTML file that needs no network: figures, pictures, curves, models to turn.

In: figures, linear images, curves, GLB files. Out: ``report.html``, with everything embedded. The
style and the viewer are the files page.css and viewer.js beside this module.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dressi.apps.page.plot import svg_curves
from dressi.errors import GraphError
from dressi.render.io.images import PathLike, atomic_write, encode_png
from dressi.render.io.sources import read_file

Table = Mapping[str, Any]

POLICY = (
    "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'none'"
)
"""What a browser lets the page load: nothing that is not in it."""


def write_report(
    out_dir: PathLike,
    title: str,
    command: str = "",
    figures: Mapping[str, Table] | None = None,
    pictures: Mapping[str, npt.ArrayLike] | None = None,
    curves: Mapping[str, Mapping[str, Sequence[float]]] | None = None,
    models: Mapping[str, PathLike] | None = None,
    notes: Sequence[str] = (),
) -> Path:
    """Write ``report.html`` into a folder, atomically, and return its path.

    command: the line that made the results. figures: caption -> name -> value; a value that is a
    sequence is a row of several columns, and the row named '' is their heading. pictures: caption
    -> (H, W, C) linear, C = 1 to 4. curves: caption -> legend -> values, one per iteration, drawn
    logarithmically where all are positive. models: caption -> GLB file, shown by a viewer that
    needs WebGL 2 and can be turned. notes: paragraphs below the title; what misses belongs there.
    All texts are plain: markup in them is shown, not obeyed. Raises GraphError (no title, a bad
    picture, a model that is no GLB, curves without values), LoadError (a model that is not there),
    OSError.
    """
    if not title.strip():
        raise GraphError("write_report needs a title")
    parts = [f"<h1>{escape(title)}</h1>"]
    parts += [f"<p>{escape(note)}</p>" for note in notes]
    if command:
        parts.append(f"<pre>{escape(command)}</pre>")
    parts += _section("Figures", [_table(k, t) for k, t in (figures or {}).items()])
    parts += _section("Pictures", [_picture(k, p) for k, p in (pictures or {}).items()])
    named = enumerate((models or {}).items())
    parts += _section("Models", [_model(n, caption, path) for n, (caption, path) in named])
    parts += _section("Curves", [_curves(k, c) for k, c in (curves or {}).items()])
    if models:
        parts.append(f"<script>\n{_data('viewer.js')}</script>")
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_data('page.css')}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )
    path = Path(out_dir) / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, page.encode("utf-8"))
    return path


def _data(name: str) -> str:
    return files("dressi.apps.page").joinpath(name).read_text(encoding="utf-8")


def _section(heading: str, parts: list[str]) -> list[str]:
    return [f"<h2>{heading}</h2>", *parts] if parts else []


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _text(value: Any) -> str:
    """A figure with four digits; whole numbers and words as they are."""
    if not isinstance(value, (float, np.floating)):
        return str(value)
    return f"{value:.4g}" if math.isfinite(value) else str(value)


def _cells(value: Any, tag: str) -> str:
    values = value if isinstance(value, (list, tuple)) else [value]
    return "".join(f'<{tag} class="figure">{escape(_text(v))}</{tag}>' for v in values)


def _table(caption: str, table: Table) -> str:
    rows = []
    for name, value in table.items():
        tag = "td" if name else "th"
        rows.append(f"<tr><th>{escape(str(name))}</th>{_cells(value, tag)}</tr>")
    return f"<table><caption>{escape(caption)}</caption>\n" + "\n".join(rows) + "\n</table>"


def _figure(caption: str, content: str) -> str:
    return f"<figure>{content}<figcaption>{escape(caption)}</figcaption></figure>"


def _picture(caption: str, image: npt.ArrayLike) -> str:
    data = _base64(encode_png(image, True))
    return _figure(caption, f'<img alt="{escape(caption)}" src="data:image/png;base64,{data}">')


def _curves(caption: str, curves: Mapping[str, Sequence[float]]) -> str:
    return _figure(caption, svg_curves(curves))


def _model(number: int, caption: str, path: PathLike) -> str:
    data = read_file(path)
    if data[:4] != b"glTF":
        raise GraphError(f"write_report: model '{caption}' ({Path(path).name}) is no GLB file")
    name = f"model-{number}"
    return _figure(
        f"{caption}. Drag turns, wheel zooms, double click resets.",
        '<div class="looks"></div>'
        f'<canvas class="model" data-source="{name}"></canvas>'
        f'<script type="model/gltf-binary" id="{name}">{_base64(data)}</script>',
    )
