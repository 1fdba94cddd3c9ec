"""Contact sheets of pictures and plots of losses, for looking at a fit.

In: linear images, or lists of numbers. Out: one linear image, or a PNG file written atomically.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from dressi.errors import DressiError, GraphError
from dressi.render.io.images import PathLike, atomic_write

LINE_PX = 15
"""Height of a line of a heading."""


def label_image(text: str, height: int) -> npt.NDArray[np.float32]:
    """Return (height, W) coverage in [0, 1] of one or more lines of text, centred from top to
    bottom."""
    font = ImageFont.load_default()
    box = ImageDraw.Draw(Image.new("L", (1, 1))).multiline_textbbox((0, 0), text, font=font)
    width, text_height = int(np.ceil(box[2])), int(np.ceil(box[3]))
    canvas = Image.new("L", (width + 12, height), 0)
    at = (6, max(0, (height - text_height) // 2))
    ImageDraw.Draw(canvas).multiline_text(at, text, fill=255, font=font)
    return np.asarray(canvas, dtype=np.float32) / np.float32(255.0)


def contact_sheet(
    rows: Mapping[str, Sequence[npt.ArrayLike]],
    gap_px: int = 4,
    background: float = 1.0,
    columns: Sequence[str] = (),
) -> npt.NDArray[np.float32]:
    """(H, W, 3) float32 linear image: one row of pictures for each label, labels on the left.

    rows: label -> images (H, W, 3), (H, W, 1) or (H, W), linear, drawn clipped to [0, 1] at their
    own sizes, centred in cells of the largest size. Rows may differ in length. gap_px: pixels
    between cells. background: linear grey; the text is black on light and white on dark grounds.
    columns: headings over the columns, as many as one likes. Raises GraphError (no image, wrong
    shape).
    """
    cells: list[list[npt.NDArray[np.float32]]] = []
    for label, images in rows.items():
        cells.append([])
        for i, image in enumerate(images):
            array = np.asarray(image)
            array = array[..., None] if array.ndim == 2 else array
            if array.ndim != 3 or array.shape[2] not in (1, 3):
                raise GraphError(f"contact_sheet: image {i} of row '{label}' is {np.shape(image)}")
            if array.dtype.kind not in "fb":
                raise GraphError(
                    f"contact_sheet: image {i} of row '{label}' must hold linear floats, not "
                    f"{array.dtype}\n  hint: dressi.render.io.srgb_to_linear(image / 255)"
                )
            cells[-1].append(np.clip(array.astype(np.float32), 0.0, 1.0))
    every = [image for row in cells for image in row]
    if not every:
        raise GraphError("contact_sheet: there are no images")
    height = max(image.shape[0] for image in every)
    width = max(image.shape[1] for image in every)
    labels = [label_image(str(label), height) for label in rows]
    left = max(label.shape[1] for label in labels)
    n_columns = max(len(row) for row in cells)
    lines = max((str(heading).count("\n") + 1 for heading in columns), default=0)
    headings = [label_image(str(heading), lines * LINE_PX) for heading in columns[:n_columns]]
    width = max([width, *(heading.shape[1] for heading in headings)])
    head = lines * LINE_PX
    shape = (head + gap_px + len(cells) * (height + gap_px), left + n_columns * (width + gap_px), 3)
    sheet = np.full(shape, background, dtype=np.float32)
    ink = 0.0 if background > 0.2 else 1.0  # 0.2 linear is middle grey to the eye
    for c, heading in enumerate(headings):
        x = left + c * (width + gap_px) + (width - heading.shape[1]) // 2
        area = sheet[:head, x : x + heading.shape[1]]
        area += (ink - area) * heading[..., None]
    for r, (label_img, row) in enumerate(zip(labels, cells, strict=True)):
        top = head + gap_px + r * (height + gap_px)
        area = sheet[top : top + height, : label_img.shape[1]]
        area += (ink - area) * label_img[..., None]
        for c, image in enumerate(row):
            y = top + (height - image.shape[0]) // 2
            x = left + c * (width + gap_px) + (width - image.shape[1]) // 2
            sheet[y : y + image.shape[0], x : x + image.shape[1]] = image
    return sheet


def loss_curves(path: PathLike, curves: Mapping[str, Sequence[float]], title: str = "") -> None:
    """Write a PNG (800x450) of curves over iterations; logarithmic where all values are positive.

    path: the file, replaced atomically. curves: legend -> one value an iteration; NaN leaves a gap.
    Raises DressiError where matplotlib (optional: ``pip install dressi[plots]``) is missing,
    GraphError where there is nothing to draw.
    """
    if not curves or not any(len(values) for values in curves.values()):
        raise GraphError("loss_curves: there are no values to draw")
    write_plot(path, lambda figure: _draw_curves(figure, curves, title), "loss_curves")


def write_plot(
    path: PathLike,
    draw: Callable[[Any], None],
    what: str = "a plot",
    inches: tuple[float, float] = (8.0, 4.5),
) -> None:
    """Write a PNG (100 pixels per inch) of a matplotlib Figure, replaced atomically.

    draw: called with an empty Figure. what: who needs matplotlib, for the message. Raises
    DressiError where matplotlib (optional: ``pip install dressi[plots]``) is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DressiError(
            f"{what} needs matplotlib, which is not installed: pip install dressi[plots]"
        ) from error
    figure = Figure(figsize=inches, dpi=100, layout="constrained")  # no pyplot: no global state
    FigureCanvasAgg(figure)
    draw(figure)
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    atomic_write(path, stream.getvalue())


def _draw_curves(figure: Any, curves: Mapping[str, Sequence[float]], title: str) -> None:
    axes = figure.add_subplot()
    lowest = np.inf
    for name, values in curves.items():
        array = np.asarray(values, dtype=np.float64)
        axes.plot(np.arange(len(array)), array, label=name, linewidth=1.2)
        finite = array[np.isfinite(array)]
        lowest = min(lowest, float(finite.min()) if len(finite) else np.inf)
    if 0.0 < lowest < np.inf:
        axes.set_yscale("log")
    axes.set_xlabel("iteration")
    axes.set_ylabel("loss")
    axes.grid(True, alpha=0.3)
    axes.legend()
    if title:
        axes.set_title(title)
