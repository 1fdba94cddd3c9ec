"""Report pages: well-formed, nothing from outside, pictures and models to the bit."""

from __future__ import annotations

import base64
import importlib
import re
import shutil
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from dressi.apps.page import svg_curves, write_report
from dressi.errors import GraphError, LoadError
from dressi.render.io import linear_to_srgb, read_image, write_glb
from dressi.render.scene import icosphere

VOID = {"meta", "img", "br", "hr", "link", "input"}


class _Page(HTMLParser):
    """Elements of a page, and what is wrong with their nesting."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.faults: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.found if name == tag]


def _parsed(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    return page


@pytest.fixture(scope="module")
def picture() -> np.ndarray:
    return np.random.default_rng(0).random((6, 9, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, picture: np.ndarray) -> Path:
    out = tmp_path_factory.mktemp("report")
    write_glb(out / "ball.glb", icosphere(1), picture)
    (out / "page").mkdir()
    return write_report(
        out / "page",
        'Ball & <script>alert("x")</script>',
        "dressi fit a.png --out 'b & c'",
        {"Surface": {"": ["a", "b"], "F-score": [0.123456, 1.0], "faces": [5120, "n/a"]}},
        {"target | result": picture, "grey": picture[..., 0]},
        {"loss": {"shape < all": [1.0, float("nan"), 0.01], "texture": [0.5]}},
        {"ball": out / "ball.glb"},
        ["Nothing is known of the far side."],
    )


def test_a_page_is_well_formed_and_shows_texts_as_they_are(report):
    page = _parsed(report)
    assert page.faults == [] and page.open == []
    text = "".join(page.text)
    for shown in ('Ball & <script>alert("x")</script>', "--out 'b & c'", "shape < all", "0.1235"):
        assert shown in text
    for shown in ("5120", "n/a", "Nothing is known of the far side."):
        assert shown in text
    assert not any("alert" in (attrs.get("src") or "") for attrs in page.of("script"))
    assert len(page.of("script")) == 2, "the model and the viewer, no markup from a title"


def test_a_page_needs_nothing_from_outside(report):
    page = _parsed(report)
    for tag, attrs in page.found:
        for name in ("src", "href", "action", "srcset", "data", "poster"):
            assert (attrs.get(name) or "data:").startswith("data:"), (tag, name)
    text = report.read_text(encoding="utf-8")
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(|importScripts|XMLHttp|fetch\(", text)
    policy = [m["content"] for m in page.of("meta") if "http-equiv" in m]
    assert policy and "default-src 'none'" in str(policy[0])
    assert [p.name for p in report.parent.iterdir()] == ["report.html"]


def test_pictures_and_models_are_in_the_page_to_the_bit(report, picture, tmp_path):
    page = _parsed(report)
    first, second = page.of("img")
    assert first["alt"] == "target | result"
    for image, want in ((first, picture), (second, picture[..., :1])):
        (tmp_path / "a.png").write_bytes(base64.b64decode(str(image["src"]).partition(",")[2]))
        # Half a step of 8 bits of sRGB.
        back = linear_to_srgb(read_image(tmp_path / "a.png"))
        assert np.abs(back - linear_to_srgb(want)).max() < 0.501 / 255
    name = page.of("canvas")[0]["data-source"]
    model = re.search(rf'id="{name}">([^<]+)<', report.read_text(encoding="utf-8"))
    assert model is not None
    assert base64.b64decode(model[1]) == (report.parents[1] / "ball.glb").read_bytes()


def test_a_page_of_figures_alone_has_no_script(tmp_path):
    page = _parsed(write_report(tmp_path / "new" / "folder", "t", figures={"a": {"b": True}}))
    assert page.of("script") == [] and page.of("canvas") == [] and "True" in page.text
    assert page.faults == [] and page.open == []


def test_a_page_refuses_what_it_cannot_show(tmp_path):
    (tmp_path / "a.glb").write_bytes(b"no GLB at all")
    for error, word, more in (
        (GraphError, "is no GLB", {"models": {"m": tmp_path / "a.glb"}}),
        (LoadError, "none.glb", {"models": {"m": tmp_path / "none.glb"}}),
        (GraphError, "no values", {"curves": {"c": {"x": [float("nan")]}}}),
        (GraphError, r"2, 2, 7", {"pictures": {"p": np.zeros((2, 2, 7))}}),
    ):
        with pytest.raises(error, match=word):
            write_report(tmp_path, "title", **more)
    with pytest.raises(GraphError, match="title"):
        write_report(tmp_path, " ")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.slow
def test_a_browser_draws_the_model_without_an_error(report):
    """Nothing is asked from outside, nothing is printed, every look is drawn."""
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    browser_path = next((path for path in map(shutil.which, names) if path), None)
    flags = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    said: list[str] = []
    with sync.sync_playwright() as play:
        if browser_path is None and not Path(play.chromium.executable_path).exists():
            pytest.skip("no Chromium on this machine")
        browser = play.chromium.launch(executable_path=browser_path, args=flags)
        page = browser.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url))
        page.goto(report.as_uri())
        page.wait_for_selector("canvas[data-drawn=yes]", timeout=60_000)
        drawn = []
        for button in page.query_selector_all(".looks button"):
            button.click()
            page.wait_for_timeout(300)
            drawn.append(page.evaluate("document.querySelector('canvas').toDataURL()"))
        browser.close()
    outside = [line[:80] for line in said if not line.startswith(("file:", "data:", "blob:"))]
    assert outside == [] and sum(line.startswith("file:") for line in said) == 1
    assert len(set(drawn)) == 4


def test_curves_are_drawn_where_their_values_are():
    root = ElementTree.fromstring(svg_curves({"a": [1.0, 10.0, 100.0]}, (400, 200)))
    curve = next(p.get("d") for p in root.iter("path") if p.get("fill") == "none")
    points = np.array(re.findall(r"[ML]([\d.]+) ([\d.]+)", str(curve)), dtype=float)
    assert len(points) == 3
    # On a logarithmic axis equal factors are equal steps, upwards on the screen.
    steps = np.diff(points, axis=0)
    assert steps[0] == pytest.approx(steps[1], abs=0.11) and steps[0, 1] < 0 < steps[0, 0]
    gap = svg_curves({"a": [1.0, float("nan"), -3.0], "b & c": [2.0] * 5000})
    curves = [p.get("d") for p in ElementTree.fromstring(gap).iter("path") if p.get("fill")]
    assert str(curves[0]).count("M") == 2
    assert 400 < str(curves[1]).count("L") < 1000, "as many points as the picture can show"


@pytest.mark.parametrize("module", ["dressi.render", "dressi.render.io"])
def test_the_old_names_of_the_library_lead_here_with_a_warning(module):
    with pytest.warns(DeprecationWarning, match=r"write_report is now dressi\.apps\.page"):
        assert importlib.import_module(module).write_report is write_report
