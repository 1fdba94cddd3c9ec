"""Parts of an experiment on disk: found again, started anew and removed; quick runs; the report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dressi.apps import report
from dressi.apps.experiments import EXPERIMENTS, Result, run, run_experiment
from dressi.apps.experiments.common import Experiment, Settings, make_settings, option
from dressi.apps.experiments.parts import FOLDER, kept_parts, remove_parts
from dressi.errors import DressiError

pytestmark = pytest.mark.gpu
"""Parts depend on the device."""


@dataclass(frozen=True)
class Own(Settings):
    """Settings of an experiment of three parts."""

    size: int = option(64, "pixels", smoke=4, quick=16)


class Work:
    """Three parts; one of them may be stopped as by Ctrl-C."""

    def __init__(self, stop: str = "") -> None:
        self.stop, self.computed = stop, []

    def one(self, name: str) -> dict[str, Any]:
        if name == self.stop:
            raise KeyboardInterrupt
        self.computed.append(name)
        return {
            "array": np.full((2, 3), float(len(name)), np.float32),
            "curve": [1.0, np.float64(2.5)],
            "nested": {"n": np.int32(4), "pair": (1, 2), "name": name, "none": None},
        }

    def __call__(self, settings: Settings) -> dict[str, dict[str, Any]]:
        names = ("sphere, r=1", "torus/2", "box: 3")
        return kept_parts(settings, {n: lambda n=n: self.one(n) for n in names})


def test_finished_parts_are_found_again_and_are_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings(Own, out=str(tmp_path), size=8)
    with pytest.raises(KeyboardInterrupt):
        Work(stop="box: 3")(settings)
    again = Work()
    found = again(settings)
    assert again.computed == ["box: 3"] and "2 of 3 parts found" in capsys.readouterr().out
    fresh = Work()(make_settings(Own, size=8))
    for name, part in fresh.items():
        assert found[name]["array"].dtype == np.float32
        assert (found[name].pop("array") == part.pop("array")).all()
    assert found == fresh and list(found) == list(fresh)
    assert found["torus/2"]["nested"] == {"n": 4, "pair": [1, 2], "name": "torus/2", "none": None}
    remove_parts(settings)
    assert not (tmp_path / FOLDER).exists()
    assert Work()(make_settings(Own, size=8)) is not None, "without a folder nothing is kept"


def test_parts_of_other_settings_are_removed_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings(Own, out=str(tmp_path), size=8)
    Work()(settings)
    kept = tmp_path / FOLDER / "notes.txt"
    kept.write_text("the user's own")
    other = Work()
    other(replace(settings, size=9))
    assert len(other.computed) == 3
    assert "starting anew, the settings differ: size 9, was 8" in capsys.readouterr().out
    copy = Work()
    copy(replace(settings, size=9, json="elsewhere.json"))
    assert copy.computed == [], "where the figures go changes nothing"
    remove_parts(settings)
    assert kept.exists(), "files of others stay"


def test_a_part_that_was_cut_off_or_is_of_another_name_is_computed_again(tmp_path: Path) -> None:
    settings = make_settings(Own, out=str(tmp_path))
    Work()(settings)
    files = sorted((tmp_path / FOLDER).glob("*.npz"))
    files[0].write_bytes(files[0].read_bytes()[:100])
    files[1].write_bytes(files[2].read_bytes())
    again = Work()
    again(settings)
    assert len(again.computed) == 2


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match=r"arrays and what JSON can hold, got \w*Path"):
        kept_parts(make_settings(Own), {"one": lambda: {"value": Path()}})


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("")
    with pytest.raises(DressiError, match="cannot keep parts there"):
        Work()(make_settings(Own, out=str(tmp_path)))


def test_a_quick_run_has_its_own_sizes_states_conditions_and_writes_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def draw(settings: Own) -> Result:
        picture = np.linspace(0, 1, 48).reshape(4, 4, 3)
        table = [("what", "dB"), ("a < b", "1"), ("a < b", "2")]
        return Result(
            {"x": 1.5, "size": settings.size},
            {"ramp": picture},
            conditions=[("it converges", True)],
            ours=[("within 3 %", False)],
            tables=[table],
            notes=["light: CC0"],
        )

    monkeypatch.setitem(EXPERIMENTS, "paper", Experiment("as in the paper", Own, draw))
    monkeypatch.setitem(EXPERIMENTS, "beyond", Experiment("not so", Own, draw, beyond=True))
    monkeypatch.setattr(run, "copy1024_ms", lambda *_: 1.0)
    data = run_experiment("paper", out=str(tmp_path / "a"), quick=True)
    assert data["figures"]["size"] == data["settings"]["size"] == 16
    assert data["conditions"] == [{"condition": "it converges", "holds": True}]
    assert data["ours"] == [{"condition": "within 3 %", "holds": False}]
    said = capsys.readouterr().out
    claims, ours = said.index("What the paper claims"), said.index("Ours, not the paper's")
    assert claims < said.index("holds: it converges") < ours < said.index("NOT HOLD: within 3 %")
    report = (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
    for text in ("as in the paper", "light: CC0", "a &lt; b", "within 3 %"):
        assert text in report
    assert report.count("<img") == 1

    data = run_experiment("beyond", out=str(tmp_path / "b"), size=5)
    assert data["conditions"] == [] and len(data["ours"]) == 2
    assert data["settings"]["quick"] is False and data["figures"]["size"] == 5


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_quick_run_is_smaller_than_a_whole_one(name: str) -> None:
    kind = EXPERIMENTS[name].settings
    whole, quick = make_settings(kind), make_settings(kind, quick=True)
    if name not in FAST:
        assert replace(quick, quick=False) != whole
    assert make_settings(kind, quick=True, smoke=True) == replace(
        make_settings(kind, smoke=True), quick=True
    )


FAST = ("enlarge", "camera")
"""Seconds of processor time as they are."""


def test_a_commit_made_while_a_process_runs_is_not_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Parts that it kept before would be removed as those of another commit."""
    before = report.commit()
    monkeypatch.setattr(report.subprocess, "run", lambda *_, **__: 1 / 0)
    assert report.commit() == before
