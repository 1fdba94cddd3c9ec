"""Cells of ``bench deodr`` beside silhouettes, and the large cell of ``bench silhouettes``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dressi.apps.bench import Settings, deodr, peer_deodr, silhouettes
from dressi.apps.bench.common import Copies
from dressi.apps.bench.silhouettes import MESHES
from dressi.apps.problems import bumpy_stand_in
from dressi.engine import DressiAD
from dressi.testing.problems import colour_problem, colours

SMOKE = Settings(smoke=True)
PEER = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    with open({log!r}, "a") as log:
        log.write(line)
    times = [9.0] + [2.0] * (request.get("steps", 1) - 1)
    print(json.dumps({{"area": 0.5, "version": "0", "ms": times, "cpu_ms": times}}), flush=True)
"""
"""A peer that writes down what it is asked; the first step of a turn takes 9 ms, each other 2."""


@pytest.mark.gpu
def test_a_peer_takes_turns_with_colours_and_with_a_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared_data: Path
) -> None:
    log = tmp_path / "asked"
    (tmp_path / "peer.py").write_text(PEER.format(log=str(log)))
    monkeypatch.setattr(peer_deodr, "__file__", str(tmp_path / "peer.py"))
    settings = Settings(smoke=True, data=str(shared_data / "bench"))
    peer = deodr.Peer(sys.executable)
    try:
        texture = deodr.measure_texture(MESHES[0], 32, 16, settings, Copies(SMOKE), peer)
        fit = deodr.measure_fit(settings, Copies(SMOKE), peer)
    finally:
        peer.close()
    for row in (texture, fit):
        assert row["peer_ms"] == row["peer_cpu_ms"] == 2.0
        assert row["times_peer"] == row["ms"] / 2.0
    assert texture["adam_ms"] > 0 and texture["antialias_ms"] > 0 and fit["antialias_ms"] is None
    asked = [json.loads(line) for line in log.read_text().splitlines()]
    turn = {"steps": 1 + deodr.TURN}
    assert asked[0] == {"file": str(settings.file(MESHES[0])), "size": 32, "texture": 16}
    assert asked[3] == {"fit": str(settings.file("pear_fit.npz"))}
    assert [a for k, a in enumerate(asked) if k not in (0, 3)] == [turn] * 4


def test_every_texture_cell_and_the_fit_must_not_be_slower_than_the_peer() -> None:
    def row(kind: str, times: float) -> dict[str, Any]:
        return {"kind": kind, "case": kind, "peer_ms": 1.0, "times_peer": times}

    rows = [row("texture", 0.9), row("texture", 1.1), row("fit", 1.0)]
    assert [holds for _, holds in deodr.conditions(rows)] == [True, False, True]
    assert deodr.conditions([{**r, "peer_ms": None} for r in rows]) == []


@pytest.mark.gpu
@pytest.mark.parametrize("antialias", [False, True])
def test_the_colour_problem_has_the_gradient_of_texture_and_vertices(antialias: bool) -> None:
    """The loss is a quadratic of the texture, so a difference is its derivative up to rounding."""
    data = bumpy_stand_in()
    targets = colours(data.target, data.matrices[:1], 32)
    problem = colour_problem(data.mesh, data.matrices[:1], targets, 4, antialias)
    with DressiAD() as ad:
        problem.load(ad)
        ad.set_optimizer(None)
        gradient = ad.recv_grad(problem.parameter)
        pos = next(v for v in problem.data if v.name == "vtx_pos")
        of_vertices = ad.recv_grad(pos)
        grey, losses = problem.data[problem.parameter], []
        texel = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
        for step in (0.25, -0.25):
            moved = grey.copy()
            moved[texel] += step
            ad.send_img(problem.parameter, moved)
            losses.append(float(ad.recv_img(problem.loss).item()))
    assert gradient[texel] == pytest.approx((losses[0] - losses[1]) / 0.5, rel=1e-3)
    assert np.isfinite(of_vertices).all() and np.abs(of_vertices).max() > 0


@pytest.mark.gpu
def test_a_million_triangles_are_measured_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smoke run has a small sphere; what is asked for else is a million."""
    rows = silhouettes.measure(Settings(smoke=True, only="million"), Copies(SMOKE)).rows
    assert [r["case"].split(",")[0] for r in rows] == list(silhouettes.METHODS)
    assert all(r["ms"] > 0 and r["ms_per_view"] == r["ms"] for r in rows)
    names = [cell.name for cell in silhouettes.cells(Settings())]
    assert len(names) == 48 and not any("00000" in name for name in names)
    monkeypatch.setattr(silhouettes, "SLOW_MS", 0.0)
    slow = silhouettes.measure(Settings(smoke=True, only="million"), Copies(SMOKE)).rows
    assert all(r["ms"] == r["single_ms"] for r in slow)
