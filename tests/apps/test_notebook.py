"""What notebooks show: pictures that hold what they were given, and meshes that stay small."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("plotly", reason="needs the extra notebook")

from dressi.ad import VEC3, Variable
from dressi.apps import notebook
from dressi.errors import GraphError
from dressi.render.scene import icosphere


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The pictures that are displayed, decoded."""
    pictures: list[np.ndarray] = []

    def keep(image: Any) -> None:
        pictures.append(np.asarray(Image.open(io.BytesIO(image.data)).convert("RGB")))

    monkeypatch.setattr("IPython.display.display", keep)
    return pictures


def _decoded(entry: Any) -> np.ndarray:
    kinds = {"f4": np.float32, "f8": np.float64, "i1": np.int8, "i2": np.int16, "i4": np.int32}
    kinds |= {"u1": np.uint8, "u2": np.uint16}
    return np.frombuffer(base64.b64decode(entry["bdata"]), kinds[entry["dtype"]])


def test_linear_colours_are_encoded_for_the_screen_and_masks_are_not() -> None:
    grey = 0.2140411  # of level 0.5, by the formula of sRGB
    assert np.allclose(notebook.encode(np.full((2, 2, 3), grey)), 0.5, atol=1e-5)
    assert np.allclose(notebook.encode(np.full((2, 2, 1), grey)), grey)
    assert np.allclose(notebook.encode([[[0.0, 0.002, 2.0]]]), [0.0, 0.02584, 1.0], atol=1e-6)


def test_images_are_shown_side_by_side_in_their_colours(shown: list[np.ndarray]) -> None:
    red, mask = np.zeros((20, 20, 3)), np.full((20, 20, 1), 0.5)
    red[..., 0] = 1.0
    notebook.show_images([red, mask], ["red", "half"])
    (picture,) = shown
    width = picture.shape[1]
    assert np.abs(picture[-20, width // 4].astype(int) - (255, 0, 0)).max() <= 2  # of a palette
    assert np.abs(picture[-20, 3 * width // 4].astype(int) - 128).max() <= 2


def test_rows_wrap_and_unused_places_stay_white(shown: list[np.ndarray]) -> None:
    notebook.show_images([np.zeros((10, 10))] * 3, columns=2)
    (picture,) = shown
    h, w = picture.shape[:2]
    assert (picture[3 * h // 4, w // 4] == 0).all() and (
        picture[3 * h // 4, 3 * w // 4] == 255
    ).all()


def test_curves_are_drawn(shown: list[np.ndarray]) -> None:
    notebook.show_curves({"a": [1.0, 0.1, 0.01], "b": [1.0, 0.5, 0.4]})
    assert (shown[0] != 255).any(-1).mean() > 0.01


def test_no_images_are_an_error() -> None:
    with pytest.raises(GraphError, match="at least one image"):
        notebook.show_images([])


def test_a_mesh_goes_into_the_notebook_whole_and_up_is_up() -> None:
    mesh = icosphere(2)
    colors = np.full((len(mesh.positions), 3), (1.0, ((128 / 255 + 0.055) / 1.055) ** 2.4, 0.0))
    bundle = notebook.view_mesh(mesh.positions, mesh.faces, colors)._repr_mimebundle_()
    (data,) = bundle[notebook.PLOTLY_MIME]["data"]
    assert np.allclose(_decoded(data["z"]), mesh.positions[:, 1])  # plotly's z is up
    assert np.allclose(_decoded(data["x"]), mesh.positions[:, 0])
    assert np.allclose(_decoded(data["y"]), -mesh.positions[:, 2])
    assert (np.stack([_decoded(data[k]) for k in "ijk"], 1) == mesh.faces).all()
    assert set(data["vertexcolor"]) == {"#ff8000"}


def test_a_saved_mesh_has_a_still_picture_and_no_copy_of_plotly() -> None:
    mesh = icosphere(4)
    bundle = notebook.view_mesh(mesh.positions, mesh.faces)._repr_mimebundle_()
    still = Image.open(io.BytesIO(base64.b64decode(bundle["image/png"]))).convert("RGB")
    covered = (np.asarray(still) != 255).any(-1)
    assert 0.3 < covered.mean() < 0.9
    assert not covered[0].any() and not covered[-1].any()  # nothing is cut off
    assert len(json.dumps(bundle)) < 250_000


def test_tables_that_are_no_mesh_are_errors() -> None:
    mesh = icosphere(1)
    with pytest.raises(GraphError, match=r"positions must be \(N, 3\), got \(42, 2\)"):
        notebook.view_mesh(mesh.positions[:, :2], mesh.faces)
    with pytest.raises(GraphError, match="41 colors for 42 vertices"):
        notebook.view_mesh(mesh.positions, mesh.faces, np.zeros((41, 3)))


@pytest.mark.parametrize("stretch", [(0.2, 3.0, 0.2), (3.0, 0.2, 0.2), (0.2, 0.2, 3.0)])
def test_a_still_picture_holds_the_whole_of_a_long_mesh(stretch: tuple[float, ...]) -> None:
    mesh = icosphere(2)
    view = notebook.view_mesh(mesh.positions * stretch + (5, -7, 2), mesh.faces)
    covered = (np.asarray(Image.open(io.BytesIO(view.still)).convert("RGB")) != 255).any(-1)
    assert covered.mean() > 0.02
    border = np.concatenate([covered[0], covered[-1], covered[:, 0], covered[:, -1]])
    assert not border.any()


def test_a_live_picture_is_shown_once_and_then_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[str] = []

    class Handle:
        def update(self, page: Any) -> None:
            pages.append("changed " + page.data[:6])

    def display(page: Any, display_id: bool) -> Handle:
        assert display_id
        pages.append("shown " + page.data[:6])
        return Handle()

    class Engine:
        def recv_img(self, v: Variable) -> np.ndarray:
            return np.zeros((4, 4, 3))

    monkeypatch.setattr("IPython.display.display", display)
    callback = notebook.live(Engine(), Variable(VEC3, (4, 4)))  # type: ignore[arg-type]
    for done in (3, 6):
        callback(done)
    assert pages == ["shown step 3", "changed step 6"]
