"""The paper's claims of its error curves: on curves whose leads are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dressi.apps.experiments.curve_claims import Curve, claims, leads, read_peer, rows
from dressi.errors import LoadError

AT = np.arange(0, 2501, 125)


def falling(rate: float, end: float, runs: tuple[float, ...] = (1.0,)) -> Curve:
    """Exponential, to an end; runs: factors."""
    base = end + (0.1 - end) * np.exp(-AT / rate)
    return Curve(AT, np.array([base * f for f in runs]))


def test_a_lead_is_the_part_that_a_curve_lies_below_another() -> None:
    other = falling(400, 0.01, (1.0, 1.1, 0.9))
    lower = Curve(AT, other.distances * 0.9)
    found = leads(lower, other)
    for each in (found.early, found.way, found.end):
        assert each.value == pytest.approx(0.1) and each.sure
        # Run by run the lead is the same, though the runs are far apart.
        assert each.error == pytest.approx(0.0, abs=1e-9)
    assert leads(other, lower).end.value == pytest.approx(1 - 1 / 0.9)
    # Of other numbers of runs: means, and the spreads of both.
    alone = leads(Curve(AT, lower.distances[:1]), other).end
    assert alone.error == pytest.approx(np.log([1.0, 1.1, 0.9]).std(ddof=1) / np.sqrt(3))


def test_a_lead_within_its_error_or_by_one_measure_of_speed_alone_is_none() -> None:
    other = falling(400, 0.01, (1.0, 1.0, 1.0))
    unsure = Curve(AT, other.distances * np.array([[0.8], [0.99], [1.1]]))
    late = Curve(AT, other.distances * np.where(AT <= 500, 1.02, 0.7))
    curves = {"unsure": unsure, "late": late, "far": other, "antialias": other}
    asked = claims(curves, {k: k for k in ("unsure", "late", "far")}, "antialias", "the other")
    assert [holds for _, holds in asked] == [False, False, False, False, True]
    assert leads(unsure, other).way.value > 0.0 and leads(late, other).way.sure


def test_each_claim_holds_as_the_curves_say() -> None:
    """Far is fast and ends far away; near is slow and ends near."""
    curves = {
        "near": falling(500, 0.008),
        "middle": falling(300, 0.009),
        "far": falling(200, 0.02),
        "antialias": falling(400, 0.01),
    }
    names = {"near": "N", "middle": "M", "far": "F"}
    asked = claims(curves, names, "antialias", "the other")
    assert [(c.split()[0], "faster" in c, holds) for c, holds in asked] == [
        ("N", True, False),
        ("M", True, True),
        ("F", True, True),
        ("N", False, True),
        ("M", False, True),
    ]
    table = rows(curves, {**names, "antialias": "A"}, "antialias", ["look"])
    assert [r[1] for r in table] == ["N", "M", "F", "A"]
    assert table[0][3] == f"{curves['near'].distances[0, -1] * 1e3:.2f}"
    assert table[3][4:] == ["", "", ""]


def test_a_peer_is_read_and_must_be_of_the_same_settings(tmp_path: Path) -> None:
    file = tmp_path / "peer.json"
    good: dict[str, Any] = {
        "name": "another 1.0",
        "settings": {"size": 96, "lr": [0.002, 0.002], "gpu": "any"},
        "iterations": [0, 100, 200],
        "distances": [[0.1, 0.05, 0.02], [0.1, 0.06, 0.03]],
    }
    asked = {"size": 96, "lr": (0.002, 0.002)}
    file.write_text(json.dumps(good))
    name, curve = read_peer(str(file), asked)
    assert name == "another 1.0" and curve.distances.shape == (2, 3)
    for changed, says in (
        ({"settings": {"size": 64}}, "recorded with size 64, the fits here have 96"),
        ({"iterations": [0, 200, 100]}, "needs ascending iterations"),
        ({"distances": [[0.1, 0.05, 0.0]]}, "distances > 0"),
        ({"distances": [[0.1, 0.05]]}, r"got \(3,\) and \(1, 2\)"),
        ({"name": None, "distances": "x"}, "must be a JSON object"),
    ):
        file.write_text(json.dumps({**good, **changed}))
        with pytest.raises(LoadError, match=says):
            read_peer(str(file), asked)
