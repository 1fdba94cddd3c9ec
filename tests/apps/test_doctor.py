"""``dressi doctor``: what it checks, that it finds a fault, what it prints and writes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from dressi import DressiAD
from dressi.ad.functions import layers
from dressi.ad.graph import Function
from dressi.ad.kernels import DISPATCH, FRAGMENT, Kernel, implement, kernels
from dressi.ad.registry import OPS
from dressi.apps import doctor
from dressi.cli import main

pytestmark = pytest.mark.gpu


def test_ops_of_every_kind_hold_on_this_device() -> None:
    names = ["add", "sin", "matmul", "lookup", "block_sum", "sum_layers"]
    found = doctor.examine(None, names)
    assert [f.check for f in found[: len(names)]] == [f"F.{n}" for n in names]
    assert all(f.ok and f.cases for f in found), [f for f in found if not f.ok]
    assert len(found) == len(names) + 2 * len(doctor.scenes())


def test_a_wrong_snippet_is_found() -> None:
    """As a broken driver would give: a sine that is off by a percent."""
    right = kernels(OPS["sin"])[FRAGMENT]
    implement(OPS["sin"], Kernel("{y} = sin({x0}) * 1.01;"))
    try:
        with DressiAD() as ad:
            finding = doctor.check_op(ad, "sin")
    finally:
        implement(OPS["sin"], right)
    assert not finding.ok and 5e-3 < finding.error < 1.0 and "case" in finding.worst


@pytest.mark.parametrize("lowering", ["graphics", "compute"])
def test_what_is_wrong_alone_and_small_only_is_found(
    lowering: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NVIDIA's compiler made it: zeros of a flip of 2 to 8 pixels, in passes only (or, as
    another could, in dispatches only). What is 11 pixels wide is right."""
    right = kernels(OPS["flip"])[FRAGMENT].text

    def wrong(f: Function) -> str:
        few = f.attr("horizontal") and 2 <= f.output.size[0] <= 4
        return f"{right(f)}\n  {{y}} = {{T}}(0);" if few else right(f)

    planted = [Kernel(wrong), Kernel(right, DISPATCH)]
    if lowering == "compute":
        planted = [Kernel(right), Kernel(wrong, DISPATCH)]
    monkeypatch.setitem(OPS, "flip", implement(dataclasses.replace(OPS["flip"]), *planted))
    lines: list[str] = []
    monkeypatch.setattr(doctor, "scenes", dict)
    monkeypatch.setattr(layers, "FLIP", OPS["flip"])
    (finding,) = doctor.examine(None, ["flip"], lines.append)
    assert not finding.ok and f"alone, {lowering}, case 0" in finding.worst
    assert len(lines) == 1 and lines[0].startswith("layers ") and "OFF: 1 of 1" in lines[0]


def test_what_is_not_finite_is_never_right() -> None:
    import numpy as np

    assert doctor.relative(np.array([1.0, np.nan]), np.array([1.0, 2.0])) == float("inf")
    assert doctor.relative(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == 0.0


def test_command_prints_and_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {name: OPS[name] for name in ("add", "sqrt")}
    monkeypatch.setattr(doctor, "OPS", few)
    monkeypatch.setattr(doctor, "scenes", dict)
    file = tmp_path / "doctor.json"
    assert main(["doctor", "--all", "--json", str(file)]) == 0
    out = capsys.readouterr().out
    assert "2 of 2 checks hold" in out and "F.sqrt" in out
    assert "values, worst" in out.partition("2 of 2 checks")[0]
    rows = json.loads(file.read_text())["rows"]
    assert [r["check"] for r in rows] == ["F.add", "F.sqrt"] and all(r["holds"] for r in rows)
    assert main(["doctor", "--json", str(tmp_path)]) == 1


def test_exit_status_is_1_when_something_is_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = doctor.Finding("F.add", 3, 0.5, 1e-3, "case 0")
    monkeypatch.setattr(doctor, "examine", lambda device, say: [bad])
    assert main(["doctor"]) == 1
    captured = capsys.readouterr()
    assert "F.add" in captured.out and "off" in captured.out and "checks" in captured.err
