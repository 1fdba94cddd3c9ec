"""Looking inside: the report, the picture of the plans, the Chrome trace."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dressi import Adam, DeviceError, DressiAD, DressiError, F, GraphError, Options, Variable
from dressi.ad.vtype import FLOAT, VEC3
from dressi.inspect.report import (
    MemoryUse,
    Rebuild,
    Report,
    build_report,
)
from dressi.inspect.trace import chrome_trace, write_trace
from dressi.inspect.traffic import Traffic, plan_traffic
from dressi.packing.plan import Binding, BufferPlan, ImagePlan, Plan, StagePlan, SubstagePlan

gpu = pytest.mark.gpu
MEMORY = MemoryUse(3_000_000, 200_000, 50_000, 8_000_000, 64_000_000)
IMAGE = 8 * 4 * 4
"""Bytes of an image of the hand-made plans."""


# -- a report of hand-made plans, without a device -------------------------------------------------


def plans(name: str = "sub") -> dict[str, Plan]:
    """static: x -> kept. step: [ two subpasses ] and [ one ], p in place, y copied."""

    def image(index: int, what: str, key: int | None = None) -> ImagePlan:
        return ImagePlan(index, what, "R32F", 8, 4, key)

    def sub(reads: int, writes: int, kind: str = "input") -> SubstagePlan:
        return SubstagePlan(f"{name}{writes}", (Binding(0, kind, reads),), (writes,), n_functions=7)

    once = StagePlan("stage 0", "graphics", 8, 4, (sub(0, 1),))
    static = Plan("static", (image(0, "x", 1), image(1, "kept", 9)), (), (once,))
    images = (image(0, "kept", 9), image(1, "p", 2), image(2, "a"), image(3, "y", 3))
    pair = StagePlan("stage 0", "graphics", 8, 4, (sub(0, 2, "texture"), sub(2, 1)))
    dispatch = SubstagePlan(
        f"{name} dispatch",
        (Binding(0, "texture", 1), Binding(1, "buffer", 0)),
        compute="layout(binding = 0) readonly buffer",
        n_functions=1,
    )
    buffers = (BufferPlan(0, "sums", 16),)
    stages = (pair, StagePlan("stage 1", "compute", 8, 4, (dispatch,)))
    return {"step": Plan("step", images, buffers, stages, ((2, 3),)), "static": static}


def hand_made(name: str = "sub", **more: Any) -> Report:
    times = {
        "step": [("stage 0", 3.0), ("stage 1", 0.5), ("updates", 0.5)],
        "static": [("stage 0", 20.0), ("updates", 0.0)],
    }
    rebuilds = [
        Rebuild(0, "first", "loss set", 0.5, 22, 4, 3),
        Rebuild(3, "fast", "3 steps without a change", 0.25, 15, 3, 2),
    ]
    arguments = {"device": "A device", "driver": "1.2.3", "steps": 100, "static_runs": 2}
    arguments |= {"step_ms": 4.5, "build_times": {"pack": 0.125}} | more
    return build_report(plans(name), times, MEMORY, rebuilds, **arguments)


def test_a_sparse_pass_says_so() -> None:
    row = hand_made().stages[0].substages[0]
    assert row.text == row.name
    assert replace(row, mask="edge").text == f"sparse: {row.name}"


def test_the_text_has_a_line_for_everything() -> None:
    text = str(hand_made())
    for line in (
        "A device, driver 1.2.3",
        "step: 15 functions -> 3 substages -> 2 stages",
        "static part: 7 functions -> 1 substage -> 1 stage",
        "a step takes 4.500 ms, its stages 4.000 ms",
        "updates: 1 copied, 1 in place (p)",
        "static part: 1 stage, ran 2 of 100 steps (hits 98), keeps 128 B",
        "memory: 3.2 MB in use (images 3.0 MB, buffers 0.2 MB, depth 0.1 MB), 8.0 MB held, "
        "limit 64.0 MB",
        "last build: pack 0.125 s",
        "rebuilds: 2",
    ):
        assert line in text.splitlines(), line
    rows = {line[:18].strip(): line.split() for line in text.splitlines()}
    assert rows["static stage 0"][3:5] == ["20.000", "clean"]
    assert rows["step stage 0"][3:5] == ["3.000", "75.0"]
    assert rows["step stage 1"][3:5] == ["0.500", "12.5"]
    assert rows["step updates"][2:4] == ["0.500", "12.5"]
    # attached, fetched, written
    assert rows["step stage 0"][5:11] == ["128", "B", "128", "B", "256", "B"]
    assert rows["substage 1"][2:8] == ["128", "B", "0", "B", "128", "B"]
    log = [line for line in text.splitlines() if line.startswith("  step ")]
    assert [line.split()[1:3] for line in log] == [["0", "first"], ["3", "fast"]]
    assert "15 -> 3 -> 2" in log[1] and log[1].endswith("3 steps without a change")


def test_the_text_keeps_to_its_columns() -> None:
    text = str(hand_made("a_very_long_name_of_an_op," * 9, device="d" * 200))
    assert max(len(line) for line in text.splitlines()) == 110
    assert all(line == line.rstrip() for line in text.splitlines())


def test_rows_sum_up_to_the_traffic_of_a_step() -> None:
    """And what is clean is left out of it."""
    report, step = hand_made(), plans()["step"]
    parts = [r.traffic for r in report.stages if not r.clean]
    parts += [u.traffic for u in report.updates if u.plan == "step"]
    assert sum(parts, Traffic(written=64)) == report.traffic == plan_traffic(step)
    assert [r.traffic.total for r in report.stages if r.clean] == [2 * IMAGE]
    for row in report.stages:
        assert sum((s.traffic for s in row.substages), Traffic()) == row.traffic


def test_what_was_not_measured_is_not_shown_as_a_number() -> None:
    report = build_report(plans(), {}, MEMORY, device="d", driver="v")
    assert report.gpu_ms is None
    assert report.stage_times() == []
    assert "ms," not in str(report)
    rows = [line for line in str(report).splitlines() if line.startswith("step stage")]
    assert [line.split()[3:5] for line in rows] == [["-", "-"]] * 2


def test_a_report_of_a_step_that_runs_nothing() -> None:
    """Forward only, nothing dirty."""
    empty = {"step": Plan("step", (), (), ())}
    report = build_report(empty, {"step": []}, MEMORY, device="d", driver="v", steps=5)
    assert "static part: none, 5 steps" in str(report)
    assert "step: 0 functions -> 0 substages -> 0 stages" in str(report)
    assert report.traffic == Traffic()


def test_memory_prints_in_a_line() -> None:
    assert MEMORY.used == 3_250_000
    assert str(replace(MEMORY, limit=None)).endswith("8.0 MB held, no limit")
    assert "\n" not in str(MEMORY)


def test_html_is_escaped_and_has_a_row_a_stage() -> None:
    page = hand_made("<b>&", device="<script>")._repr_html_()
    assert "<script>" not in page and "<b>" not in page
    assert "&lt;b&gt;&amp;" in page
    root = ET.fromstring(page)
    rows = [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]
    names = [row[0].split("<")[0] for row in rows]
    assert names == ["stage", "static stage 0", "step stage 0", "step stage 1", "step updates"]
    assert all(len(row) == 9 for row in rows)
    assert rows[2][1:6] == ["3.000", "75.0", "128 B", "128 B", "256 B"]


# -- the trace, without a device -------------------------------------------------------------------


def spans(trace: dict[str, Any], process: int, thread: int) -> list[tuple[str, float, float]]:
    """(name, begin, end) in microseconds of the events of a row."""
    return [
        (e["name"], e["ts"], e["ts"] + e["dur"])
        for e in trace["traceEvents"]
        if e["ph"] == "X" and (e["pid"], e["tid"]) == (process, thread)
    ]


def test_a_trace_has_rows_for_build_step_and_device() -> None:
    """The step begins where the build ends, stages are laid end to end."""
    report = hand_made()
    trace = chrome_trace(
        [("pack", 70.0, 0.25), ("compile", 70.25, 0.5)],
        report.stage_times(),
        host=[("record", 99.0, 0.001), ("wait", 99.001, 0.004)],
        static_stages=report.stage_times(clean=True),
        traffic=report.traffic_by_name(),
        gpu_delay_s=0.001,
        device="A device",
    )
    assert spans(trace, 1, 1) == [("pack", 0, 250_000), ("compile", 250_000, 750_000)]
    assert spans(trace, 1, 2) == [("record", 750_000, 751_000), ("wait", 751_000, 755_000)]
    assert spans(trace, 2, 1) == [
        ("step stage 0", 751_000, 754_000),
        ("step stage 1", 754_000, 754_500),
        ("step updates", 754_500, 755_000),
    ]
    assert spans(trace, 2, 2) == [("static stage 0", 730_000, 750_000)]
    names = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M"
    }
    assert names == {
        (1, 0): "host",
        (1, 1): "last build",
        (1, 2): "a step",
        (2, 0): "A device",
        (2, 1): "a step",
        (2, 2): "static part, only after a change",
    }
    (event,) = [e for e in trace["traceEvents"] if e["name"] == "step stage 0"]
    assert event["args"] == {"bytes read": 2 * IMAGE, "bytes written": 2 * IMAGE}


def test_a_trace_without_a_build_begins_at_zero() -> None:
    trace = chrome_trace([], [("step stage 0", 2.0), ("step stage 1", -1.0)])
    assert spans(trace, 2, 1) == [("step stage 0", 0, 2000), ("step stage 1", 2000, 2000)]
    late = chrome_trace([], [], static_stages=[("static stage 0", 3.0)], host=[("wait", 8.0, 1.0)])
    assert spans(late, 2, 2) == [("static stage 0", 0, 3000)]
    assert spans(late, 1, 2) == [("wait", 3000, 1_003_000)]


def test_a_trace_is_written_as_json(tmp_path: Path) -> None:
    trace = chrome_trace([("pack", 0.0, 1.0)], [("step stage 0", 2.0)])
    write_trace(tmp_path / "t.json", trace)
    assert json.loads((tmp_path / "t.json").read_text(encoding="utf-8")) == trace
    with pytest.raises(DressiError, match="cannot write the trace"):
        write_trace(tmp_path / "no folder" / "t.json", trace)


# -- of an engine ----------------------------------------------------------------------------------


class Problem:
    """x is fitted to a value that a large image decides, which never changes: a clean part."""

    def __init__(self, ad: DressiAD) -> None:
        self.x = Variable(VEC3, (6, 5), requires_grad=True, name="x")
        self.fixed = Variable(VEC3, (160, 128), name="fixed")
        shift = F.mean(F.sin(self.fixed) * F.exp(self.fixed))
        self.loss = F.mean(F.dot(self.x - shift, self.x - shift))
        rng = np.random.default_rng(3)
        self.big = rng.uniform(0, 1, (128, 160, 3))
        ad.send_img(self.x, rng.uniform(0, 1, (5, 6, 3)))
        ad.send_img(self.fixed, self.big)
        ad.set_loss_var(self.loss)
        ad.set_optimizer(Adam(lr=0.05))


@gpu
def test_the_report_names_every_stage_with_times_and_bytes(ad: DressiAD) -> None:
    Problem(ad)
    ad.exec_steps(2)
    report = ad.report()
    names = [f"{name} {s.name}" for name, p in ad.plans.items() for s in p.stages]
    assert sorted(r.full_name for r in report.stages) == sorted(names)
    assert names
    text = str(report)
    for name in names:
        assert any(line.startswith(f"{name} ") for line in text.splitlines()), name
    assert all(r.ms is not None and r.ms > 0 for r in report.stages)
    assert report.gpu_ms is not None and report.gpu_ms > 0
    assert all(r.traffic.read > 0 and r.traffic.written > 0 for r in report.stages)
    assert ad.device_info.name in text and ad.device_info.driver in text
    assert max(len(line) for line in text.splitlines()) <= 110
    assert report.traffic == sum(
        (plan_traffic(p) for name, p in ad.plans.items() if name != "static"), Traffic()
    )


@gpu
def test_a_report_without_times_measures_nothing(ad: DressiAD) -> None:
    Problem(ad)
    ad.exec_step()
    report = ad.report(times=False)
    assert report.stages and all(r.ms is None for r in report.stages)
    assert report.gpu_ms is None


@gpu
def test_steps_and_rebuilds_are_counted() -> None:
    with DressiAD() as ad:
        Problem(ad)
        ad.exec_steps(3)
        ad.exec_step()
        report = ad.report(times=False)
        assert report.steps == 4
        assert report.rebuilds == ad.rebuilds
        first = report.rebuilds[0]
        assert (first.step, first.kind) == (0, "first")
        assert first.reason and first.seconds > 0
        counts = (first.functions, first.substages, first.stages)
        assert counts[0] >= counts[1] >= counts[2] > 0
        assert all(f"{b.kind} " in str(report) for b in report.rebuilds)


@gpu
def test_clean_stages_are_marked_and_hits_counted() -> None:
    with DressiAD() as ad:
        problem = Problem(ad)
        for _ in range(14):
            ad.exec_step()
        assert "static" in ad.plans
        kinds = {b.kind for b in ad.rebuilds}
        assert "first" in kinds and kinds & {"fast", "full"}
        before = ad.report()
        clean = [r for r in before.stages if r.clean]
        assert [r.full_name for r in clean] == [
            f"static {s.name}" for s in ad.plans["static"].stages
        ]
        assert 0 < before.hits < before.steps == 14
        n = len(clean)
        assert f"static part: {n} stage" in str(before)
        assert all(r.ms is not None and r.ms > 0 for r in before.stages)
        ad.send_img(problem.fixed, problem.big * 0.5)
        ad.exec_step()
        ad.exec_step()
        after = ad.report(times=False)
        assert after.steps == 16
        assert after.static_runs == before.static_runs + 1
        assert after.hits == before.hits + 1


@gpu
def test_memory_numbers_add_up() -> None:
    with DressiAD(memory_limit=256 << 20) as ad:
        problem = Problem(ad)
        ad.exec_step()
        m = ad.memory()
        assert ad.report(times=False).memory == m
        assert m.used == m.images + m.buffers + m.depth <= m.held <= m.limit == 256 << 20
        fixed = problem.big.shape[0] * problem.big.shape[1] * 16  # VEC3 is padded to four floats
        assert m.images >= fixed
    with DressiAD() as ad:
        assert ad.memory().limit is None


@gpu
def test_looking_changes_no_data_and_no_later_step(tmp_path: Path) -> None:
    """Adam's moments and counter, too: an engine that was looked into goes on like one that was
    not."""

    def fit(look: bool) -> list[np.ndarray]:
        with DressiAD() as ad:
            problem = Problem(ad)
            seen = []
            for k in range(14):
                ad.exec_step()
                if look and k in (0, 3, 11):
                    before = ad.recv_img(problem.x), ad.recv_img(problem.loss)
                    ran = ad.ran
                    ad.report()
                    ad.show_graph()
                    ad.trace(tmp_path / "trace.json")
                    assert np.array_equal(ad.recv_img(problem.x), before[0])
                    assert np.array_equal(ad.recv_img(problem.loss), before[1])
                    assert ad.ran == ran
                seen.append(ad.recv_img(problem.x))
            assert ad.report(times=False).steps == 14
            return seen

    for a, b in zip(fit(False), fit(True), strict=True):
        assert np.array_equal(a, b)


@gpu
def test_the_trace_of_a_step_is_a_chrome_trace(tmp_path: Path) -> None:
    with DressiAD() as ad:
        Problem(ad)
        for _ in range(14):
            ad.exec_step()
        ad.trace(tmp_path / "trace.json")
        trace = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
        events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in events)
        names = [name for name, _, _ in spans(trace, 2, 1)]
        step = [f"step {s.name}" for s in ad.plans["step"].stages]
        assert [n for n in names if not n.endswith("updates")] == step
        static = [name for name, _, _ in spans(trace, 2, 2) if not name.endswith("updates")]
        assert static == [f"static {s.name}" for s in ad.plans["static"].stages]
        assert spans(trace, 1, 1) and spans(trace, 1, 2)
        (first,) = [e for e in events if e["name"] == step[0]]
        assert first["args"]["bytes written"] > 0
        with pytest.raises(DressiError, match="cannot write the trace"):
            ad.trace(tmp_path / "no folder" / "trace.json")


@gpu
@pytest.mark.parametrize("options", [Options(), Options.baseline()], ids=["all", "baseline"])
def test_the_graph_shows_every_stage(tmp_path: Path, options: Options) -> None:
    with DressiAD(options=options) as ad:
        Problem(ad)
        for _ in range(14):
            ad.exec_step()
        view = ad.show_graph()
        root = ET.fromstring(view.svg)
        texts = [t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}text")]
        for name, p in ad.plans.items():
            for s in p.stages:
                assert f"{name} {s.name}" in texts
                assert f'"{name} {s.name}  ' in view.dot
        assert ("static" in ad.plans) == options.cache
        view.save(tmp_path / "plan.svg")
        assert (tmp_path / "plan.svg").read_text(encoding="utf-8") == view.svg


@gpu
def test_looking_dumps_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """DRESSI_DUMP receives builds, and a report is none."""
    folder = tmp_path / "dump"
    monkeypatch.setenv("DRESSI_DUMP", str(folder))
    with DressiAD() as ad:
        Problem(ad)
        ad.exec_step()
        files = {f.name: f.read_bytes() for f in folder.iterdir()}
        assert files
        ad.report()
        ad.show_graph()
        ad.trace(tmp_path / "trace.json")
        assert {f.name: f.read_bytes() for f in folder.iterdir()} == files


@gpu
def test_a_forward_only_step_that_runs_nothing_has_a_report() -> None:
    with DressiAD() as ad:
        x = Variable(FLOAT, (8, 6), name="x")
        ad.send_img(x, np.ones((6, 8, 1)))
        ad.set_loss_var(F.mean(F.sin(x)))
        for _ in range(14):
            ad.exec_step()
        assert ad.ran == ()
        report = ad.report()
        assert report.steps == 14
        assert ad.device_info.name in str(report)
        assert ET.fromstring(ad.show_graph().svg).tag.endswith("svg")


@gpu
def test_looking_needs_a_loss_and_a_living_engine(tmp_path: Path) -> None:
    ad = DressiAD()
    looks = (ad.report, ad.show_graph, lambda: ad.trace(tmp_path / "t.json"))
    for look in looks:
        with pytest.raises(GraphError, match="no loss is set"):
            look()
    ad.close()
    for look in looks:
        with pytest.raises(DeviceError, match="closed"):
            look()
