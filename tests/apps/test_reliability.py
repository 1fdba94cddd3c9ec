"""``dressi bench reliability``: rows of small runs, and that each figure can fail."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dressi import DeviceError, DressiAD, F, Variable, cli
from dressi.ad.kernels import Kernel, implement
from dressi.ad.registry import OPS
from dressi.apps.bench import Settings, reliability, run_bench
from dressi.apps.bench.common import Copies
from dressi.apps.bench.reliability import FIGURES
from dressi.apps.reliability import (
    cost,
    coverage,
    edges,
    failures,
    fits,
    gradients,
    ops,
    surroundings,
    switches,
)
from dressi.apps.reliability.row import COLUMNS, Row, at_most, below
from dressi.engine import DressiAD as Engine
from dressi.engine.leafstore import LeafStore
from dressi.testing.domain_edges import EDGES
from dressi.testing.scenes import gradient_scenes
from dressi.vk.api import load

SMOKE = Settings(smoke=True)


@pytest.mark.gpu
@pytest.mark.parametrize("figure", [f for f in FIGURES if f != "R9"])
def test_rows_have_threshold_and_verdict(figure: str) -> None:
    rows = run_bench("reliability", replace(SMOKE, only=figure))["rows"]
    name = "deterministic cost" if figure == "cost" else figure
    assert rows and all(row["figure"].startswith(name) for row in rows)
    for row in rows:
        assert tuple(row) == COLUMNS
        if row["holds"] is None:
            assert row["figure"].startswith("R5 not measured: install vulkan-validationlayers")
            continue
        if figure == "cost":
            assert row["value"] > 0  # times of tiny sizes: nothing to be learned from them
            continue
        assert row["holds"] and row["value"] <= row["threshold"] and row["cases"] > 0, row


def test_a_value_that_is_not_a_number_does_not_hold() -> None:
    for value in (float("nan"), float("inf")):
        for row in (below("x", value, 1.0, 1), at_most("x", value, 1.0, 1)):
            assert row["value"] is None and row["holds"] is False
    assert not below("x", 1.0, 1.0, 1)["holds"] and at_most("x", 1.0, 1.0, 1)["holds"]


def holding(rows: list[Row]) -> dict[str, bool]:
    return {row["figure"]: row["holds"] for row in rows}


# -- planted faults


def plant(monkeypatch: pytest.MonkeyPatch, name: str, **changes: Any) -> None:
    monkeypatch.setitem(OPS, name, replace(OPS[name], **changes))


@pytest.mark.gpu
def test_r1_tells_an_op_that_computes_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = implement(replace(OPS["sin"]), Kernel("{y} = sin({x0}) * 1.01;"))
    case = replace(OPS["sin"].cases[0], build=lambda x: ops_apply(wrong, x))
    plant(monkeypatch, "sin", cases=(case,))
    found = holding(ops.measure(None, True))
    assert found == {"R1 algebraic": True, "R1 transcendental": False}


def ops_apply(op: Any, *xs: Variable) -> Variable:
    from dressi.ad.registry import apply

    return apply(op, xs)


@pytest.mark.gpu
def test_r2_tells_a_gradient_that_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    """sqrt as exp(log(x) / 2), whose gradient at 0 is 0 * inf."""
    edge = replace(EDGES[0], build=lambda x: F.exp(F.log(x) * 0.5) / x)
    monkeypatch.setattr(edges, "EDGES", (edge, *EDGES[1:]))
    found = holding(edges.measure(None, True))
    assert not found["R2 values not as documented"]
    edge = replace(EDGES[0], build=lambda x: F.sqrt(x) + x)
    monkeypatch.setattr(edges, "EDGES", (edge, *EDGES[1:]))
    found = holding(edges.measure(None, True))
    assert found["R2 values not as documented"] and not found["R2 gradients not as documented"]


@pytest.mark.gpu
def test_r3_tells_a_gradient_that_is_a_little_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of vertices and the camera 3 %, of the texture 1 %."""
    real = Engine.recv_grad

    def off(self: Engine, v: Variable) -> np.ndarray:
        return real(self, v) * (1.01 if v.name == "albedo" else 1.03)

    monkeypatch.setattr(DressiAD, "recv_grad", off)
    found = holding(gradients.measure(None, True))
    assert {k for k, holds in found.items() if not holds} == {
        f"R3 {leaf}, relative L2" for leaf in ("vertices", "camera", "texture")
    }


@pytest.mark.gpu
def test_r3_tells_a_gradient_that_points_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Engine.recv_grad
    monkeypatch.setattr(DressiAD, "recv_grad", lambda self, v: real(self, v)[::-1].copy())
    found = holding(gradients.measure(None, True))
    assert not found["R3 vertices, 1 - cosine"] and not found["R3 vertices, relative L2"]


def test_r3_tells_when_nothing_was_compared() -> None:
    thrown = [gradients.Comparison(name, "vertices", False, 0.0, 1.0) for name in "abc"]
    assert not any(holding(gradients.rows_of(thrown)).values())


def test_r3_has_24_scenes_of_silhouettes_and_colours_with_one_and_three_layers() -> None:
    scenes = [make() for make in gradient_scenes().values()]
    assert len(scenes) >= 24
    assert {(s.look == "silhouette", s.K) for s in scenes} >= {
        (silhouette, K) for silhouette in (True, False) for K in (1, 3)
    }


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("fault", "missing"), [("lost", "holes"), ("twice", "doubles")], ids=["hole", "double"]
)
def test_r6_tells_a_face_that_is_missing_or_drawn_twice(
    monkeypatch: pytest.MonkeyPatch, fault: str, missing: str
) -> None:
    grid = coverage.grid

    def broken(seed: int) -> coverage.Picture:
        made = grid(seed)
        at = len(made.corners) // 2 - coverage.QUADS // 2
        corners = made.corners.copy()
        corners[at] = 0.0 if fault == "lost" else corners[at + 1]
        return replace(made, corners=corners)

    monkeypatch.setattr(coverage, "grid", broken)
    found = holding(coverage.measure(None, True))
    assert not found[f"R6 rasterizer, {missing}"] and not found[f"R6 HardSoftRas, {missing}"]


@pytest.mark.gpu
def test_r8_tells_a_switch_that_changes_results(monkeypatch: pytest.MonkeyPatch) -> None:
    values: Callable[..., list[np.ndarray]] = switches.values

    def off(ad: DressiAD, seed: int) -> list[np.ndarray]:
        scale = 1.0 if ad.limits.input_attachments > 1 else 1.0 + 2e-6
        return [a * scale for a in values(ad, seed)]

    monkeypatch.setattr(switches, "values", off)
    found = holding(switches.measure(None, True))
    assert not found["R8 forced limits"] and found["R8 packing switches"]


@pytest.mark.gpu
def test_r8_tells_a_cache_that_keeps_what_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is sent after the first build is not noticed."""
    monkeypatch.setattr(LeafStore, "take_changed", lambda self: frozenset())
    found = holding(switches.measure(None, True))
    assert not found["R8 cache, steps"]


@pytest.mark.gpu
def test_r4_tells_a_fit_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target is half as bright as the picture: the parameters leave their place."""
    build = fits.problem_of

    def darker(*arguments: Any, **more: Any) -> Any:
        problem = build(*arguments, **more)
        return replace(problem, picture=problem.picture * 0.5)

    monkeypatch.setattr(fits, "problem_of", darker)
    rows = fits.own_picture(None, True)
    assert len(rows) == 3 and not any(row["holds"] for row in rows)


@pytest.mark.gpu
def test_cost_tells_a_slow_deterministic_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(engines: list[DressiAD], rounds: int) -> list[np.ndarray]:
        assert [ad.options.deterministic for ad in engines] == [False, True]
        usual = np.linspace(1.0, 9.0, rounds)  # the machine gets busier
        return [usual, usual * 1.4]

    monkeypatch.setattr(cost, "alternating_ms", slow)
    rows = cost.measure(None, True)
    assert [row["value"] for row in rows] == pytest.approx([1.4] * 3)
    assert not any(row["holds"] for row in rows)


@pytest.mark.gpu
def test_r9_tells_runs_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    child = "import os; print(os.getpid())"
    monkeypatch.setattr(fits, "_CHILD", child)
    (row,) = fits.same_bits(None, True)
    assert row["value"] == 2 and not row["holds"]


@pytest.mark.gpu
def test_r13_tells_errors_that_do_not_name_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    from dressi.vk.context import Context

    def silent(self: Context, result: int, *_: object, **__: object) -> None:
        if result < 0:
            raise DeviceError("something failed")

    monkeypatch.setattr(Context, "check", silent)
    found = holding(list(failures.measure(None, True)))
    assert sorted(found.values()) == [False, True]  # the engines afterwards are fine


def test_r13_tells_failures_that_nobody_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """No error comes, and the numbers are not those of the job."""
    monkeypatch.setattr(failures, "failing", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(failures, "job", lambda device: np.zeros(3))
    assert failures.complaint(None, "vkCreateImage", 0, -2, np.zeros(3)) == ""
    assert "wrong result" in failures.complaint(None, "vkCreateImage", 0, -2, np.ones(3))


@pytest.mark.gpu
def test_r13_leaves_the_calls_as_they_were() -> None:
    before = load().lib
    with pytest.raises(DeviceError), failures.failing("vkCreateDevice", 0, -3):
        failures.job(None)
    assert load().lib is before


def test_r15_tells_what_ends_badly_or_late(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ("tell(True)", "tell(False, note='x')", "1 / 0", "tell(True, 9.0)")
    made = tuple(surroundings.Situation(f"situation {k}", text) for k, text in enumerate(texts))
    assert [surroundings.outcome(s, None)[0] for s in made] == [True, False, False, True]
    monkeypatch.setattr(surroundings, "SITUATIONS", made)
    found = {row["figure"][:20]: row["holds"] for row in surroundings.measure(None, False)}
    assert list(found.values()) == [False, False]


def test_rows_are_told_as_they_come_and_a_stop_says_what_was_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first figure is told before the second one is measured; Ctrl-C comes in the second."""

    def stopped(device: str | None, small: bool) -> list[Row]:
        assert "R8 x: 1.0 (threshold 2.0), holds" in capsys.readouterr().err
        time.sleep(0.2)
        assert "R9: 0 s" in capsys.readouterr().err  # a sign of life
        raise KeyboardInterrupt

    figures = {"R8": lambda *_: iter([below("R8 x", 1.0, 2.0, 1)]), "R9": stopped}
    monkeypatch.setattr(reliability, "FIGURES", figures)
    monkeypatch.setattr(reliability, "EVERY_S", 0.05)
    with pytest.raises(KeyboardInterrupt):
        reliability.measure(SMOKE, Copies(SMOKE))
    said = capsys.readouterr().err
    assert "stopped while R9 was measured; done: R8 (1 rows, 0 do not hold); not done: R9" in said


@pytest.mark.signals
@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to threads")
def test_sigterm_ends_a_command_like_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def end(args: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5.0)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(cli, "_bench", end)
    assert cli.main(["bench", "reliability"]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == before
