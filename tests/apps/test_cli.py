"""The commands: small runs, and one message for whatever is wrong with what they were given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dressi import config
from dressi.cli import main
from dressi.render.io.images import write_png
from dressi.vk import list_devices, unique_names

pytestmark = pytest.mark.gpu

FIGURES = (
    "device driver commit copy1024_ms iou mean_distance_rel psnr_db geometry_ms texture_ms build_s "
    "total_s"
)


def test_demo_writes_its_files_and_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, figures = tmp_path / "out", tmp_path / "deep" / "figures.json"
    small = ["--size", "48", "--views", "3", "--iterations", "12", "--texture-iterations", "6"]
    assert main(["demo", "--out", str(out), "--json", str(figures), *small]) == 0
    data = json.loads(figures.read_text())
    assert set(FIGURES.split()) <= set(data)
    assert 0.5 < data["iou"] <= 1 and data["finite"]
    names = {"pear.glb", "contact_sheet.png", "loss_curves.png", "report.html", "result.json"}
    assert {p.name for p in out.iterdir()} == names
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "<pre>dressi demo --out" in page and 'type="model/gltf-binary"' in page
    assert "copy1024_ms" in capsys.readouterr().out


def test_demo_takes_an_obj(tmp_path: Path) -> None:
    obj = tmp_path / "tetra.obj"
    corners = "v 1 1 1\nv -1 -1 1\nv -1 1 -1\nv 1 -1 -1\n"
    obj.write_text(corners + "f 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n")
    small = ["--size", "32", "--views", "2", "--iterations", "4", "--texture-iterations", "2"]
    assert main(["demo", "--target", str(obj), "--out", str(tmp_path / "out"), *small]) == 0
    assert (tmp_path / "out" / "tetra.glb").is_file()
    assert json.loads((tmp_path / "out" / "result.json").read_text())["refined"]


def test_fit_reports_the_photos_that_it_never_saw(shared_data: Path, tmp_path: Path) -> None:
    dino = shared_data / "dino"
    arguments = ["--images", str(dino), "--cameras", str(dino / "dinoSR_par.txt")]
    small = ["--size", "80", "--views", "8", "--iterations", "40", "--texture-iterations", "4"]
    assert main(["fit", *arguments, "--out", str(tmp_path), *small]) == 0
    data = json.loads((tmp_path / "result.json").read_text())
    assert {*FIGURES.split(), "heldout_iou"} <= set(data)
    assert data["heldout_iou"] > 0.7
    assert {"heldout.png", "fit.glb", "report.html"} <= {p.name for p in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["demo", "--target", "nothing.obj"], "no such file"),
        (["demo", "--target", "."], "it is a folder"),
        (["demo", "--out", "afile"], "--out"),
        (["demo", "--json", "afile/x.json"], "--json"),
        (["demo", "--json", "."], "--json"),
        (["demo", "--views", "0"], "views 0"),
        (["demo", "--device", "no such device"], "no such device"),
        (["demo", "--target", "point.obj"], "no extent"),
        (["fit", "--images", "nowhere", "--cameras", "x"], "no such folder"),
        (["fit", "--images", ".", "--cameras", "nothing.txt"], "nothing.txt"),
        (["fit", "--images", ".", "--cameras", "x", "--iterations", "0"], "iterations 0"),
        (["fit", "--images", ".", "--cameras", "x", "--views", "-3"], "-3"),
        (["fit", "--images", ".", "--cameras", "x", "--masks", "gone"], "gone: no such folder"),
        (["fit", "--images", ".", "--cameras", "x", "--threshold", "2"], "--threshold"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_what_is_wrong_is_said_in_one_message(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("afile").write_text("")
    Path("point.obj").write_text("v 0 0 0\nv 0 0 0\nv 0 0 0\nf 1 2 3\n")
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("dressi: ") and says in error and "Traceback" not in error
    assert not [p for p in tmp_path.rglob("*") if p.name.endswith(".tmp")]


def test_calibration_that_is_no_camera_names_the_photo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = "1 0 0 0 1 0 0 0 1"
    rows = []
    for k in range(4):
        write_png(tmp_path / f"{k}.png", np.full((24, 32, 3), 0.1 * k, np.float32))
        K = "0 0 0 0 0 0 0 0 0" if k == 2 else "40 0 16 0 40 12 0 0 1"
        rows.append(f"{k}.png {K} {identity} 0 0 5")
    (tmp_path / "par.txt").write_text("4\n" + "\n".join(rows) + "\n")
    arguments = ["--images", str(tmp_path), "--cameras", str(tmp_path / "par.txt")]
    assert main(["fit", *arguments, "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert "LoadError" in error and "par.txt" in error and "2.png" in error


def test_devices_are_listed_with_names_that_choose_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    lines = capsys.readouterr().out.splitlines()
    there = list_devices()
    assert len(lines) == len(there) > 0
    for line, d, name in zip(lines, there, unique_names(there), strict=True):
        assert line == f"{d.index}  {name}  {d.type}  UUID {d.uuid}"


@pytest.mark.parametrize(("given", "expected"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")])
def test_commands_multiply_matrices_in_one_thread_unless_the_user_says_otherwise(
    given: dict[str, str], expected: str
) -> None:
    code = "import os; from dressi.cli import main; main([]); print(os.environ[{!r}])"
    environment = {k: v for k, v in os.environ.items() if k not in config.BLAS_THREADS}
    done = subprocess.run(
        [sys.executable, "-c", code.format("OPENBLAS_NUM_THREADS")],
        env={**environment, **given}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == expected
