"""``dressi experiment``: every experiment makes its files and figures; what is wrong is said."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dressi.apps.experiments import EXPERIMENTS, Result, run_experiment
from dressi.apps.experiments.common import Settings, make_settings, option
from dressi.apps.experiments.enlarge import CORNERS, signed_distances
from dressi.cli import main
from dressi.errors import DressiError
from dressi.render.io.images import read_image

HEAD = "experiment device driver commit copy1024_ms seconds settings figures conditions files"


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [n for v in value.values() for n in _numbers(v)]
    if isinstance(value, list):
        return [n for v in value for n in _numbers(v)]
    return [float(value)] if isinstance(value, (int, float)) else []


@pytest.mark.gpu
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_smoke_run_makes_its_files_and_figures(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out, figures = tmp_path / "out", tmp_path / "figures.json"
    arguments = ["experiment", name, "--smoke", "--out", str(out), "--json", str(figures)]
    assert main(arguments) == 0
    data = json.loads(figures.read_text())
    assert list(data) == HEAD.split() and data["experiment"] == name
    assert json.loads((out / "result.json").read_text()) == data
    assert data["files"] and {*data["files"], "result.json"} == {p.name for p in out.iterdir()}
    for file in data["files"]:
        if file.endswith(".png"):
            assert np.ptp(read_image(out / file)[..., :3]) > 0.1, f"{file} shows nothing"
    numbers = _numbers(data["figures"])
    assert numbers and np.isfinite(numbers).all()
    assert data["conditions"] == [], "they are stated for whole runs"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_own_options_have_a_help_and_can_be_checked(name: str) -> None:
    kind = EXPERIMENTS[name].settings
    shared = {f.name for f in fields(Settings)}
    for f in fields(kind):
        if f.name in shared:
            continue
        assert f.metadata["help"]
        least = f.metadata["least"]
        if least is None:
            continue
        wrong: Any = type(least)(least - 1)
        value = (wrong,) if isinstance(f.default, tuple) else wrong
        with pytest.raises(DressiError, match=f"--{f.name.replace('_', '-')} must be at least"):
            make_settings(kind, **{f.name: value})


def test_unknown_names_list_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DressiError, match="no experiment 'maze'; known: enlarge"):
        run_experiment("maze")
    with pytest.raises(DressiError, match="no option 'sizes'; known: out, json, device"):
        run_experiment("enlarge", sizes=3)
    for arguments in (["experiment", "maze"], ["experiment"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 2
    assert "'maze'" in (text := capsys.readouterr().err) and "enlarge" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--size", "3"], "--size must be at least 8, got 3"),
        (["--r", "nan"], "--r must be at least 0.0, got nan"),
        (["--out", "afile"], "--out"),
        (["--json", "."], "--json"),
        pytest.param(["--device", "no such device"], "no such device", marks=pytest.mark.gpu),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_bad_flags_are_said_in_one_message(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("afile").write_text("")
    assert main(["experiment", "enlarge", *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("dressi: ") and says in error and "Traceback" not in error


def test_a_flag_of_many_values_and_the_defaults_of_a_smoke_run() -> None:
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Own(Settings):
        K: tuple[int, ...] = option((1, 3), "peels", smoke=(1,), least=1)
        size: int = option(256, "pixels", smoke=16)

    assert make_settings(Own).K == (1, 3) and make_settings(Own).size == 256
    assert make_settings(Own, smoke=True).K == (1,)
    small = make_settings(Own, smoke=True, size=64)
    assert small.size == 64, "what is given stays"


@pytest.mark.gpu
def test_without_matplotlib_the_figures_are_written_and_the_missing_plot_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real: Callable[..., Any] = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)

    from dressi.apps.experiments import run

    plain = run.Experiment(
        "one plot", Settings, lambda _: Result({"x": 1.0}, plots={"line": lambda _: None})
    )
    monkeypatch.setitem(run.EXPERIMENTS, "plain", plain)
    monkeypatch.setattr(builtins, "__import__", without)
    data = run_experiment("plain", out=str(tmp_path))
    assert data["files"] == [] and data["figures"] == {"x": 1.0}
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]
    assert "line.png needs matplotlib" in capsys.readouterr().err


def test_the_distances_that_enlarge_is_judged_by() -> None:
    """Of a right triangle, by hand: inside, beside a leg, beyond a corner."""
    d = signed_distances(np.array([[0.25, 0.25], [0.75, 0.25], [0.25, 0.75]]), 4)
    assert d[1, 1] == pytest.approx(0.125)  # the pixel at (0.375, 0.375)
    assert d[0, 1] == pytest.approx(-0.125)  # (0.375, 0.125)
    assert d[0, 0] == pytest.approx(-((0.125**2 * 2) ** 0.5))  # (0.125, 0.125)
    flipped = signed_distances(CORNERS[0, ::-1, :2], 16)
    assert np.allclose(flipped, signed_distances(CORNERS[0, :, :2], 16)), "either way round"
