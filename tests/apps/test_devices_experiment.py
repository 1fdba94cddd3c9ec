"""The table of platforms: what is said of rows that are known, and of results of other machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dressi.apps.experiments.common import make_settings
from dressi.apps.experiments.devices import (
    Settings,
    conditions,
    converged,
    merged,
    summary,
    table,
)
from dressi.errors import LoadError

CURVE = (0.01 + 0.1 * np.exp(-np.arange(0, 16) / 2.0)).tolist()


def trial(ends: float = 1.0, texture_ms: float = 2.0, inputs: int = 8) -> dict[str, Any]:
    def one(ms: float, before: list[int], after: list[int]) -> dict[str, Any]:
        curve = [c * ends for c in CURVE]
        return {"ms": ms, "before": before, "after": after, "at": list(range(16)), "curve": curve}

    who = {"device": "d", "driver": "1", "commit": "c", "input_attachments": inputs}
    substages = 800 // inputs
    return {
        **who,
        "geometry": one(3.0, [substages, 60], [substages - 5, 55]),
        "texture": one(texture_ms, [90, 70], [40, 30]),
    }


def test_a_platform_is_the_mean_and_the_spread_of_its_trials() -> None:
    row = summary([trial(0.9), trial(1.1, texture_ms=4.0)])
    assert row["trials"] == 2 and row["texture"]["ms"] == 3.0
    assert np.allclose(row["geometry"]["mean"], CURVE)
    assert np.allclose(row["geometry"]["std"], np.array(CURVE) * 0.1)
    line = table({"d, passes": row})[1]
    assert line[:4] == ["d, passes", "8", "100/60 -> 95/55", "3.0"]


def test_each_condition_names_the_platform_that_breaks_it() -> None:
    good = {"a": summary([trial()]), "b": summary([trial(inputs=4)])}
    stated, ours = conditions(good)
    assert all(h for _, h in stated) and all(h for _, h in ours)
    assert any("8 input attachments than 4" in c for c, _ in stated)
    bad = {**good, "slow": summary([trial(1.2, texture_ms=5.0)])}
    stated, ours = conditions(bad)
    assert [c for c, h in stated if not h] == [
        "texture iterations are faster than geometry on every platform, but not on slow"
    ]
    assert len([c for c, h in ours if not h]) == 2, "both errors at the end are 20 % apart"
    assert not converged(np.linspace(1.0, 0.0, 16).tolist())


def test_results_of_other_machines_must_be_of_the_same_settings(tmp_path: Path) -> None:
    s = make_settings(Settings, merge=str(tmp_path))
    with pytest.raises(LoadError, match=r"there is no \*.json"):
        merged(s)
    asked = {k: getattr(s, k) for k in ("iterations", "texture_iterations", "size", "views")}
    asked |= {"subdivisions": s.subdivisions, "every": s.every}
    row = summary([trial()])
    for name in ("one", "two"):
        data = {"figures": {"platforms": {"gpu, passes": row}}, "settings": asked}
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    assert list(merged(s)) == ["gpu, passes", "gpu, passes (two)"]
    other = {"figures": {"platforms": {}}, "settings": {**asked, "size": 32}}
    (tmp_path / "one.json").write_text(json.dumps(other))
    with pytest.raises(LoadError, match="measured with size 32, here it is 256"):
        merged(s)
    (tmp_path / "one.json").write_text("[]")
    with pytest.raises(LoadError, match=r"must be the result\.json of this experiment"):
        merged(s)
