"""What notebooks show: images side by side, curves, and a mesh that can be turned.

In: arrays. Out: matplotlib figures, shown where they are made, and ``MeshView``. Needs the extra
``notebook``.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dressi.ad import Variable
from dressi.engine import DressiAD
from dressi.errors import GraphError
from dressi.pictures import picture_of
from dressi.render.scene import face_normals

PLOTLY_MIME = "application/vnd.plotly.v1+json"
"""What JupyterLab (plotly's own extension), VS Code and Colab draw with plotly.js. The mesh alone
is saved; a whole HTML page would put plotly.js, some megabytes, into each notebook."""


def encode(image: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Return (H, W, C) in [0, 1] for a screen: RGB from linear to sRGB, one channel as it is.

    image: (H, W), (H, W, 1) or (H, W, 3), clipped to [0, 1].
    """
    x = np.clip(np.asarray(image, np.float32), 0.0, 1.0)
    if x.ndim == 3 and x.shape[2] == 3:
        low = x <= 0.0031308
        x = np.where(low, 12.92 * x, 1.055 * np.maximum(x, 0.0031308) ** (1 / 2.4) - 0.055)
    return x.astype(np.float32)


def _figure(width: float, height: float) -> Any:
    """Return a matplotlib figure of its own, so that the settings of a notebook's pyplot stay as
    they are. Inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=70)
    FigureCanvasAgg(figure)
    return figure


def _png(figure: Any) -> bytes:
    """Return the figure with a palette of 256 colours: a third of the size in a saved notebook."""
    from PIL import Image

    drawn = io.BytesIO()
    figure.savefig(drawn, bbox_inches="tight", pad_inches=0.03)
    drawn.seek(0)
    stream = io.BytesIO()
    Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(stream, "PNG")
    return stream.getvalue()


def _display(figure: Any) -> None:
    """Show a figure below the cell that runs."""
    from IPython.display import Image, display

    figure.tight_layout(pad=0.3)
    display(Image(data=_png(figure)))


def show_images(
    images: Sequence[npt.ArrayLike],
    titles: Sequence[str] = (),
    linear: bool = True,
    height: float = 1.7,
    columns: int = 8,
) -> None:
    """Images side by side, in rows of ``columns``.

    images: (H, W), (H, W, 1) or (H, W, 3) each, in [0, 1]. titles: of the first ones, one each.
    linear: colours are linear and are encoded for the screen; False: shown as they are (normals).
    height: of a row, inches. Raises GraphError for no images.
    """
    if not len(images):
        raise GraphError("show_images needs at least one image")
    arrays = [encode(i) if linear else np.clip(np.asarray(i, np.float32), 0, 1) for i in images]
    columns = min(columns, len(arrays))
    rows = -(-len(arrays) // columns)
    wide = height * sum(a.shape[1] / a.shape[0] for a in arrays[:columns])
    figure = _figure(wide, rows * (height + 0.25))
    axes = figure.subplots(rows, columns, squeeze=False)
    for k, axis in enumerate(axes.ravel()):
        axis.axis("off")
        if k < len(arrays):
            axis.imshow(arrays[k].squeeze(), cmap="gray", vmin=0, vmax=1)
        if k < len(titles):
            axis.set_title(titles[k], fontsize=9)
    _display(figure)


def live(ad: DressiAD, picture: Variable, linear: bool = True) -> Callable[[int], None]:
    """Return a callback that shows a picture anew, in one place, while a fit runs:
    ``ad.exec_steps(500, callback=live(ad, picture), every=25)``.

    picture: any Variable that ``dressi.show`` shows, as the engine computes it. linear: as there.
    Raises GraphError as ``dressi.show``.
    """
    from IPython.display import HTML, display

    place: list[Any] = []

    def show(done: int) -> None:
        shown = picture_of(picture, ad, linear)
        page = HTML(f"step {done}<br>{shown._repr_html_()}")
        if place:
            place[0].update(page)
        else:
            place.append(display(page, display_id=True))

    return show


def show_curves(
    curves: Mapping[str, Sequence[float]], ylabel: str = "loss", xlabel: str = "iteration"
) -> None:
    """Curves on a logarithmic axis. curves: values by name, all at the same iterations."""
    figure = _figure(5.0, 2.3)
    axis = figure.subplots()
    for name, values in curves.items():
        axis.semilogy(values, label=name)
    axis.set_xlabel(xlabel)
    axis.set_ylabel(ylabel)
    axis.grid(alpha=0.3)
    if len(curves) > 1:
        axis.legend(fontsize=8)
    _display(figure)


@dataclass(frozen=True, eq=False)
class MeshView:
    """A mesh that a notebook shows: to be turned with the mouse where plotly draws, else (on a web
    page of a repository) as a still picture. Made by ``view_mesh``."""

    figure: Any
    still: bytes

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {
            PLOTLY_MIME: json.loads(self.figure.to_json()),
            "image/png": base64.b64encode(self.still).decode("ascii"),
            "text/plain": "a mesh in 3D: open the notebook in Jupyter or VS Code to turn it",
        }


def view_mesh(
    positions: npt.ArrayLike, faces: npt.ArrayLike, colors: npt.ArrayLike | None = None
) -> MeshView:
    """Return a mesh to look at from all sides.

    positions: (N, 3), world units, +Y up. faces: (F, 3). colors: (N, 3) linear, one per vertex;
    None: light grey. Five thousand faces add about 200 KB to a notebook. Raises GraphError for
    other shapes.
    """
    import plotly.graph_objects as go

    p, f = np.asarray(positions, np.float32), np.asarray(faces)
    c = np.full((len(p), 3), 0.6, np.float32) if colors is None else np.asarray(colors, np.float32)
    for name, table in (("positions", p), ("faces", f), ("colors", c)):
        if table.ndim != 2 or table.shape[1] != 3:
            raise GraphError(f"view_mesh: {name} must be (N, 3), got {table.shape}")
    if len(c) != len(p):
        raise GraphError(f"view_mesh: {len(c)} colors for {len(p)} vertices")
    # plotly's camera has +Z up; x, -z, y keeps the hand.
    turned = p[:, [0, 2, 1]] * np.array([1, -1, 1], np.float32)
    levels = np.round(encode(c[None])[0] * 255).astype(int)
    mesh = go.Mesh3d(
        **dict(zip("xyzijk", (*turned.T, *f.astype(np.int32).T), strict=True)),
        vertexcolor=[f"#{r:02x}{g:02x}{b:02x}" for r, g, b in levels],
        hoverinfo="skip",
        lighting={"ambient": 0.5, "diffuse": 0.7, "specular": 0.1},
    )
    figure = go.Figure(mesh)
    hidden = {"visible": False}
    figure.update_layout(
        template="none",
        width=420,
        height=380,
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        scene={
            "xaxis": hidden, "yaxis": hidden, "zaxis": hidden, "aspectmode": "data",
            "camera": {"eye": {"x": 0.9, "y": -1.6, "z": 0.5}},
        },
    )  # fmt: skip
    return MeshView(figure, _still(turned, p, f, c))


def _still(turned: np.ndarray, p: np.ndarray, faces: np.ndarray, colors: np.ndarray) -> bytes:
    """Return the PNG of the mesh as the view shows it at first."""
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    light = np.array([0.45, 0.6, 0.66])
    shade = 0.45 + 0.55 * np.maximum(face_normals(p, faces) @ light, 0.0)
    paint = encode((colors[faces].mean(1) * shade[:, None])[None])[0]
    figure = _figure(3.6, 3.2)
    axis: Any = figure.add_axes((0, 0, 1, 1), projection="3d")
    polygons = Poly3DCollection(turned[faces], facecolors=paint, edgecolors=paint, linewidths=0.2)
    axis.add_collection3d(polygons)
    low, high = turned.min(0), turned.max(0)
    middle, half = (low + high) / 2, max(float((high - low).max()) / 2, 1e-6)
    axis.set(**{f"{n}lim": (m - half, m + half) for n, m in zip("xyz", middle, strict=True)})
    axis.set_box_aspect((1, 1, 1), zoom=1.45)
    axis.set_axis_off()
    axis.view_init(elev=15, azim=-60)
    return _png(figure)


__all__ = ["MeshView", "encode", "live", "show_curves", "show_images", "view_mesh"]
