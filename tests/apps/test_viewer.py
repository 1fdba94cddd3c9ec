"""``dressi view`` and ``--live``: what a viewer is told of cameras and fits, words for bad input,
and a server that answers and ends. What needs viser skips without it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import types
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from dressi import DressiAD
from dressi.apps.address import Address
from dressi.apps.fitting import ShapeSchedule, TextureSchedule, fit_shape, fit_texture
from dressi.apps.live import watched_by
from dressi.apps.made_by import command_line, made_by
from dressi.apps.view import fill, read_shown
from dressi.apps.viewer import LiveView, checked, frustum_of, served, thumbnail
from dressi.cli import main
from dressi.errors import DressiError, LoadError
from dressi.render.camera import look_at, orthographic, perspective
from dressi.render.io import write_glb, write_png
from dressi.render.scene import icosphere
from dressi.testing.views import spread_views

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


def _turned(q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Hamilton's formula: v + 2 w (u x v) + 2 u x (u x v)."""
    w, u = q[0], q[1:]
    return np.asarray(v + 2.0 * w * np.cross(u, v) + 2.0 * np.cross(u, np.cross(u, v)))


@pytest.mark.parametrize("seed", range(6))
def test_the_corners_of_a_frustum_are_those_of_the_picture(seed: int) -> None:
    rng = np.random.default_rng(seed)
    eye, at, up = rng.normal(size=(3, 3))
    aspect = float(rng.uniform(0.4, 2.5))
    matrix = perspective(float(rng.uniform(20, 100)), aspect, 0.1, 50) @ look_at(eye, at, up)
    got = frustum_of(matrix)
    assert got is not None
    assert got["aspect"] == pytest.approx(aspect) and got["position"] == pytest.approx(eye)
    high = np.tan(got["fov"] / 2.0)
    for x, y in ((-1, -1), (1, -1), (0, 0), (0.5, 1)):
        # viser: x right, y down, z forward, as clip space has x and y here.
        ray = _turned(got["wxyz"], np.array([x * high * got["aspect"], y * high, 1.0]))
        clip = matrix @ [*(eye + 3.0 * ray), 1.0]
        assert clip[:2] / clip[3] == pytest.approx([x, y], abs=1e-6) and clip[3] > 0


def test_a_parallel_projection_has_no_frustum() -> None:
    assert frustum_of(orthographic(2, 2, 0.1, 9) @ look_at((0, 0, 4), (0, 0, 0))) is None


def test_a_thumbnail_is_small_and_has_screen_colours() -> None:
    wide = np.full((300, 700, 1), 0.5, np.float32)
    got = thumbnail(wide)
    # 0.5 linear is 188 of 255 in sRGB.
    assert got.shape == (50, 117, 3) and got.dtype == np.uint8 and (got == 188).all()


class _Notes:
    """A watcher that writes down what it is told."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int, int]] = []
        self.losses: list[float | None] = []
        self.places: list[np.ndarray] = []
        self.textures: list[np.ndarray] = []

    def begin(self, label, mesh, matrices, pictures):
        self.begun.append((label, len(matrices), pictures.shape[1]))

    def step(self, loss, positions, texture):
        self.losses.append(loss)
        self.places.append(positions())
        if texture is not None:
            self.textures.append(texture())


@pytest.mark.gpu
def test_a_watcher_sees_every_step_and_changes_none() -> None:
    start = icosphere(1)
    matrices = np.stack([c.matrix for c in spread_views(2)])
    outlines = np.zeros((2, 24, 24, 1), np.float32)
    outlines[:, 6:18, 8:16] = 1.0
    schedule = ShapeSchedule(iterations=3)
    notes = _Notes()
    with DressiAD() as ad:
        alone = fit_shape(ad, start, matrices, outlines, schedule)
        with watched_by(notes):
            seen = fit_shape(ad, start, matrices, outlines, schedule, "ball")
            paint = TextureSchedule(iterations=2, size=(8, 8))
            painted = fit_texture(ad, start, matrices, np.repeat(outlines, 3, axis=3), paint)
        fit_shape(ad, start, matrices, outlines, schedule)
    assert notes.begun == [("ball", 2, 24), ("texture", 2, 24)]
    assert notes.losses == [*seen.losses, *painted.losses]
    assert seen.losses == pytest.approx(alone.losses, rel=1e-5)
    assert len(notes.places) == 5 and np.array_equal(notes.places[2], seen.data)
    assert np.allclose(np.clip(notes.textures[-1], 0.0, 1.0), painted.data)


def test_the_command_line_is_known_within_a_command_only() -> None:
    assert command_line() == ""
    with made_by(["demo", "--out", "a b"]):
        assert command_line() == "dressi demo --out 'a b'"
    assert command_line() == ""


def test_without_viser_the_extra_is_named(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setitem(sys.modules, "viser", None)
    write_glb(tmp_path / "a.glb", icosphere(1), np.ones((2, 2, 3), np.float32))
    for line in (["view", str(tmp_path / "a.glb")], ["demo", "--live", "--out", str(tmp_path)]):
        assert main(line) == 1
        assert "pip install 'dressi[view]'" in capsys.readouterr().err


def test_bad_addresses_are_said_in_words(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "viser", types.ModuleType("viser"))
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DressiError, match=f"--port {port}: another program listens there"):
            checked(Address("localhost", port))
    checked(Address("localhost", 0))
    for word, address in (
        (r"--port 70000: must be in 0\.\.65535", Address(port=70000)),
        (r"--host 192\.0\.2\.1: cannot listen there", Address("192.0.2.1", 0)),
    ):
        with pytest.raises(DressiError, match=word):
            checked(address)


def test_an_address_without_live_is_refused(capsys) -> None:
    assert main(["demo", "--port", "8080"]) == 1
    assert "--port 8080: needs --live" in capsys.readouterr().err
    assert main(["experiment", "shapes", "--smoke", "--host", "x"]) == 1
    assert "--host x: needs --live" in capsys.readouterr().err


def test_what_cannot_be_shown_is_said(tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "result.json").write_text("{", encoding="utf-8")
    write_png(tmp_path / "bad" / "a.png", np.zeros((2, 2, 3), np.float32))
    (tmp_path / "a.txt").write_text("x", encoding="utf-8")
    for word, name in (
        ("no such file or folder", "none"),
        ("no result of a command", "empty"),
        ("is no JSON", "bad"),
        (r"the ending '\.txt' is none of", "a.txt"),
    ):
        with pytest.raises(LoadError, match=word):
            read_shown(tmp_path / name)


@pytest.fixture
def result(tmp_path: Path) -> Path:
    red = np.full((4, 4, 3), (0.8, 0.0, 0.0), np.float32)
    write_glb(tmp_path / "ball.glb", icosphere(2), red)
    write_png(tmp_path / "sheet.png", red)
    figures = {"iou": 0.91, "figures": {"psnr": 30.5}, "said": []}
    (tmp_path / "result.json").write_text(json.dumps(figures), encoding="utf-8")
    return tmp_path


def test_a_folder_of_a_result_is_read(result) -> None:
    got = read_shown(result)
    assert list(got.scenes) == ["ball"] and list(got.pictures) == ["sheet.png"]
    assert got.figures["iou"] == 0.91 and got.figures["psnr"] == 30.5


@pytest.mark.signals
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_answers_and_an_interrupt_ends_it_cleanly(result, number) -> None:
    pytest.importorskip("viser", reason="viser is not installed")
    line = [sys.executable, "-m", "dressi", "view", str(result), "--port", "0"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        said = run.stdout.readline()
        url = re.search(r"http://localhost:\d+", said)
        assert url is not None, said
        page = urllib.request.urlopen(url[0], timeout=20).read()
        # A browser opens connections that it does not use: no word about those.
        socket.create_connection(("localhost", int(url[0].rpartition(":")[2]))).close()
        run.send_signal(number)
        out, err = run.communicate(timeout=30)
    assert b"<html" in page and run.returncode == 0
    assert out.strip() == "ended" and "Traceback" not in err


@pytest.mark.slow
def test_a_browser_shows_a_result_and_a_fit_as_it_goes_on(result) -> None:
    pytest.importorskip("viser", reason="viser is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with served(Address(port=0), "test") as server:
        fill(server, read_shown(result))
        line = [CHROMIUM, "--headless", "--no-sandbox", "--use-angle=swiftshader"]
        line += ["--enable-unsafe-swiftshader", "--remote-debugging-port=0"]
        line += [f"--user-data-dir={result / 'browser'}", f"http://localhost:{server.get_port()}"]
        browser = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            client = _client(server)
            ball = _redness(client, lambda share: share > 0.05)
            view = LiveView(server)
            start = icosphere(2)
            matrices = np.stack([c.matrix for c in spread_views(2)])
            view.begin("shape", start, matrices, np.ones((2, 8, 8, 1), np.float32))
            for k in range(3):
                view._last = 0.0
                view.step(1.0 / (k + 1), lambda: start.positions * 1.1, None)
            assert "step 3" in view._text.content
            hidden = _redness(client, lambda share: share < 0.5 * ball)
        finally:
            browser.terminate()
            browser.wait(20)
    assert hidden < 0.5 * ball, "the grey shape of the fit is around the red ball"


def _client(server):
    end = time.monotonic() + 60.0
    while not server.get_clients():
        assert time.monotonic() < end, "the browser did not connect"
        time.sleep(0.2)
    return next(iter(server.get_clients().values()))


def _redness(client, enough) -> float:
    """Return the share of red pixels of what the browser draws, once it is enough or never will
    be."""
    share = -1.0
    for _ in range(20):
        picture = np.asarray(client.get_render(120, 160, timeout=30.0), float)[..., :3]
        share = float((picture[..., 0] > 2.0 * picture[..., 1:].max(axis=2) + 20.0).mean())
        if enough(share):
            break
        time.sleep(0.3)
    return share
