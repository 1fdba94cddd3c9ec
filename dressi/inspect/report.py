"""What an engine did, as a table: stages, times, traffic, memory, rebuilds.

In: plans by name, measured times, counts. Out: ``Report`` (text, and HTML for notebooks).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape as _html

import numpy as np

from dressi.inspect.flow import STATIC, ordered
from dressi.inspect.scopes import ScopeRow, scope_rows, scope_table
from dressi.inspect.traffic import (
    Traffic,
    buffers_written,
    plan_traffic,
    stage_traffic,
    substage_traffic,
    update_traffic,
)
from dressi.inspect.words import clipped, count_text, mb_text, ms_text, size_text, wrapped
from dressi.packing.plan import Plan, StagePlan

_HEADS = "stage ms % attached fetched written size substages functions"


def median_ms(seconds: Iterable[float]) -> float:
    """Median in ms; 0 where there is none."""
    values = list(seconds)
    return 1e3 * float(np.median(values)) if values else 0.0


@dataclass(frozen=True)
class SubstageRow:
    """One subpass or dispatch of a report."""

    name: str
    n_functions: int
    functions: tuple[str, ...]
    traffic: Traffic
    mask: str = ""
    """Where it is 0, most of the functions are not run: of a sparse pass."""

    @property
    def text(self) -> str:
        """Name, and whether it is a sparse pass."""
        return f"sparse: {self.name}" if self.mask else self.name


@dataclass(frozen=True)
class StageRow:
    """One render pass or dispatch of a report."""

    plan: str
    name: str
    kind: str
    width: int
    height: int
    substages: tuple[SubstageRow, ...]
    traffic: Traffic
    ms: float | None
    """Time on the device; None: not measured."""
    clean: bool
    """Whether it is run only after a change of something that it depends on."""

    @property
    def full_name(self) -> str:
        """As in ``ad.ran``: plan and stage."""
        return f"{self.plan} {self.name}"

    @property
    def n_functions(self) -> int:
        return sum(s.n_functions for s in self.substages)


@dataclass(frozen=True)
class Updates:
    """How a plan writes new values into leaves (or, the static one, keeps what it computed)."""

    plan: str
    in_place: tuple[str, ...]
    """Images and buffers that outlive the plan and are written by its stages."""
    copied: tuple[str, ...]
    """Images that are copied to after the last stage."""
    kept_bytes: int
    """Of those in place."""
    traffic: Traffic
    """Of the copies."""
    ms: float | None
    """Of the copies."""


@dataclass(frozen=True)
class Rebuild:
    """One build of a step."""

    step: int
    """Steps that were done before."""
    kind: str
    """first, fast (stages packed again) or full (Functions packed again)."""
    reason: str
    seconds: float
    functions: int
    substages: int
    stages: int


@dataclass(frozen=True)
class MemoryUse:
    """Memory of the device, in bytes."""

    images: int
    buffers: int
    depth: int
    """Depth attachments."""
    held: int
    """Taken from the driver: what is in use, alignment, and what is kept for the next build."""
    limit: int | None = None
    """``memory_limit`` of the engine; None: what the device has."""

    @property
    def used(self) -> int:
        """Images, buffers and depth attachments."""
        return self.images + self.buffers + self.depth

    def __str__(self) -> str:
        limit = "no limit" if self.limit is None else f"limit {mb_text(self.limit)}"
        return (
            f"{mb_text(self.used)} in use (images {mb_text(self.images)}, "
            f"buffers {mb_text(self.buffers)}, depth {mb_text(self.depth)}), "
            f"{mb_text(self.held)} held, {limit}"
        )


@dataclass(frozen=True)
class Report:
    """What ``ad.report()`` gives. ``print`` it, or let a notebook show it."""

    device: str
    driver: str
    stages: tuple[StageRow, ...]
    updates: tuple[Updates, ...]
    traffic: Traffic
    """Of a step without its clean part: fills, stages, copies."""
    memory: MemoryUse
    rebuilds: tuple[Rebuild, ...] = ()
    steps: int = 0
    static_runs: int = 0
    """Times that the static part was run."""
    step_ms: float | None = None
    """A whole step as the host sees it."""
    build_times: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each phase of the last build."""

    @property
    def gpu_ms(self) -> float | None:
        """Sum over the stages and copies of a step, the clean part left out; None: not measured."""
        times = [r.ms for r in self.stages if not r.clean]
        times += [u.ms for u in self.updates if u.plan != STATIC]
        known = [t for t in times if t is not None]
        return sum(known) if known else None

    @property
    def hits(self) -> int:
        """Steps in which the static part did not run."""
        return max(0, self.steps - self.static_runs)

    @property
    def scopes(self) -> tuple[ScopeRow, ...]:
        """What each scope (``dressi.scope``) or line made, the dearest first."""
        return scope_rows(self.stages)

    def stage_times(self, clean: bool = False) -> list[tuple[str, float]]:
        """(name, ms) of the stages of a step (or of the clean part) that were measured, copies
        last."""
        times = [(r.full_name, r.ms) for r in self.stages if r.clean == clean]
        times += [(f"{u.plan} updates", u.ms) for u in self.updates if (u.plan == STATIC) == clean]
        return [(name, ms) for name, ms in times if ms is not None]

    def traffic_by_name(self) -> dict[str, Traffic]:
        """Traffic of what ``stage_times`` names."""
        rows = {r.full_name: r.traffic for r in self.stages}
        return rows | {f"{u.plan} updates": u.traffic for u in self.updates}

    # -- text

    def text(self) -> str:
        """The report in at most 110 columns. Bytes ``attached``: read as input attachments;
        ``fetched``: as textures and buffers, and by copies."""
        table = [clipped(line) for line in self._table()]
        made = [clipped(line) for line in scope_table(self.scopes)]
        made += [""] if made else []
        return "\n".join([*wrapped(self._head()), "", *table, "", *made, *wrapped(self._tail())])

    __str__ = __repr__ = text

    def _head(self) -> Iterator[str]:
        yield f"{self.device}, driver {self.driver}"
        for clean in (False, True):
            rows = [r for r in self.stages if r.clean == clean]
            if rows or not clean:
                what = "static part" if clean else "step"
                yield f"{what}: {_totals(rows)}"
        t = self.traffic
        yield f"a step reads {size_text(t.read)} and writes {size_text(t.written)}"
        if self.step_ms is not None or self.gpu_ms is not None:
            whole = "" if self.step_ms is None else f"a step takes {self.step_ms:.3f} ms"
            inside = "" if self.gpu_ms is None else f"its stages {self.gpu_ms:.3f} ms"
            yield ", ".join(part for part in (whole, inside) if part)

    def _table(self) -> Iterator[str]:
        yield (
            f"{'stage':<18}{'ms':>9}{'%':>6}{'attached':>9}{'fetched':>9}{'written':>9}  "
            f"{'size':<11}{'sub':>4}{'fun':>6}  first ops"
        )
        for r in self.stages:
            ops = ",".join(s.text for s in r.substages)
            size = f"{r.width}x{r.height}"
            yield (
                f"{r.full_name:<18}{ms_text(r.ms):>9}{self._share(r):>6}{_columns(r.traffic)}  "
                f"{size:<11}{len(r.substages):>4}{r.n_functions:>6}  {ops}"
            )
            if len(r.substages) > 1:
                for k, s in enumerate(r.substages):
                    yield (
                        f"  {f'substage {k}':<16}{'':>15}{_columns(s.traffic)}  {'':<15}"
                        f"{s.n_functions:>6}  {s.text}"
                    )
        for u in self.updates:
            if u.copied:
                share = self._percent(u.ms) if u.plan != STATIC else "clean"
                yield (
                    f"{f'{u.plan} updates':<18}{ms_text(u.ms):>9}{share:>6}{_columns(u.traffic)}  "
                    f"copies to {', '.join(u.copied)}"
                )

    def _tail(self) -> Iterator[str]:
        for u in self.updates:
            if u.plan != STATIC and (u.copied or u.in_place):
                names = f" ({', '.join(u.in_place)})" if u.in_place else ""
                yield f"updates: {len(u.copied)} copied, {len(u.in_place)} in place{names}"
        yield self.cache_line()
        yield f"memory: {self.memory}"
        if self.build_times:
            parts = ", ".join(f"{name} {s:.3f} s" for name, s in self.build_times.items())
            yield f"last build: {parts}"
        yield f"rebuilds: {len(self.rebuilds)}"
        for b in self.rebuilds:
            counts = f"{b.functions} -> {b.substages} -> {b.stages}"
            yield f"  step {b.step:<7}{b.kind:<6}{b.seconds:>8.3f} s  {counts:<22}{b.reason}"

    def cache_line(self) -> str:
        """The cache in a line."""
        n = sum(r.clean for r in self.stages)
        if not n:
            return f"static part: none, {count_text(self.steps, 'step')}"
        kept = sum(u.kept_bytes for u in self.updates if u.plan == STATIC)
        return (
            f"static part: {count_text(n, 'stage')}, ran {self.static_runs} of "
            f"{count_text(self.steps, 'step')} (hits {self.hits}), keeps {size_text(kept)}"
        )

    def _share(self, row: StageRow) -> str:
        return "clean" if row.clean else self._percent(row.ms)

    def _percent(self, ms: float | None) -> str:
        whole = self.gpu_ms
        return f"{100 * ms / whole:.1f}" if ms is not None and whole else "-"

    # -- notebook

    def _repr_html_(self) -> str:
        rows = []
        for r in self.stages:
            cells = [ms_text(r.ms), self._share(r), *_sizes(r.traffic)]
            cells += [f"{r.width}x{r.height}", str(len(r.substages)), str(r.n_functions)]
            inside = "".join(
                f"<li>{_html(s.text)}: {s.n_functions} functions, reads "
                f"{size_text(s.traffic.read)}, writes {size_text(s.traffic.written)}</li>"
                for s in r.substages
            )
            name = f"<details><summary>{_html(r.full_name)}</summary><ul>{inside}</ul></details>"
            rows.append(_html_row(name, cells, pale=r.clean))
        for u in self.updates:
            if u.copied:
                clean = u.plan == STATIC
                share = "clean" if clean else self._percent(u.ms)
                cells = [ms_text(u.ms), share, *_sizes(u.traffic), "", "", ""]
                rows.append(_html_row(f"{_html(u.plan)} updates", cells, pale=clean))
        head = "".join(f"<th>{name}</th>" for name in _HEADS.split())
        above = "".join(f"<div>{_html(line)}</div>" for line in self._head())
        below = "".join(f"<div>{_html(line)}</div>" for line in self._tail())
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        return f"<div>{above}{table}{below}</div>"


def build_report(
    plans: Mapping[str, Plan],
    times_ms: Mapping[str, Sequence[tuple[str, float]]],
    memory: MemoryUse,
    rebuilds: Sequence[Rebuild] = (),
    *,
    device: str,
    driver: str,
    steps: int = 0,
    static_runs: int = 0,
    step_ms: float | None = None,
    build_times: Mapping[str, float] | None = None,
) -> Report:
    """A Report of the plans of a step.

    plans: "step", and "static" where there is a clean part. times_ms: for each plan that was
    measured, (name of a stage or "updates", ms), as ``Executable.stage_times_ms`` gives them.
    """
    rows, updates, traffic = [], [], Traffic()
    for name, plan in ordered(plans).items():
        times = dict(times_ms.get(name, ()))
        rows += [_stage_row(plan, name, stage, times) for stage in plan.stages]
        updates.append(_updates(plan, name, times))
        if name != STATIC:
            traffic += plan_traffic(plan)
    return Report(
        device,
        driver,
        tuple(rows),
        tuple(updates),
        traffic,
        memory,
        tuple(rebuilds),
        steps,
        static_runs,
        step_ms,
        dict(build_times or {}),
    )


def _stage_row(plan: Plan, name: str, stage: StagePlan, times: Mapping[str, float]) -> StageRow:
    members = tuple(
        SubstageRow(s.name, s.n_functions, s.functions, substage_traffic(plan, s), s.mask)
        for s in stage.substages
    )
    return StageRow(
        name,
        stage.name,
        stage.kind,
        stage.width,
        stage.height,
        members,
        stage_traffic(plan, stage),
        times.get(stage.name),
        name == STATIC,
    )


def _updates(plan: Plan, name: str, times: Mapping[str, float]) -> Updates:
    substages = [s for stage in plan.stages for s in stage.substages]
    images = dict.fromkeys(i for s in substages for i in s.written)
    kept = [plan.images[i] for i in images if plan.images[i].key is not None]
    buffers = sorted({i for s in substages for i in buffers_written(plan, s)})
    kept_buffers = [plan.buffers[i] for i in buffers if plan.buffers[i].key is not None]
    return Updates(
        name,
        (*(i.name for i in kept), *(b.name for b in kept_buffers)),
        tuple(plan.images[target].name for _, target in plan.updates),
        sum(i.n_bytes for i in kept) + sum(4 * b.n_words for b in kept_buffers),
        update_traffic(plan),
        times.get("updates") if plan.updates else None,
    )


def _totals(rows: Sequence[StageRow]) -> str:
    n_substages = sum(len(r.substages) for r in rows)
    return (
        f"{count_text(sum(r.n_functions for r in rows), 'function')} -> "
        f"{count_text(n_substages, 'substage')} -> {count_text(len(rows), 'stage')}"
    )


def _columns(t: Traffic) -> str:
    return "".join(f"{text:>9}" for text in _sizes(t))


def _sizes(t: Traffic) -> tuple[str, str, str]:
    """Attached, fetched, written."""
    return (
        size_text(t.attachments_read),
        size_text(t.textures_read + t.buffers),
        size_text(t.written),
    )


def _html_row(name: str, cells: Sequence[str], pale: bool) -> str:
    """name: HTML; cells: text."""
    style = ' style="opacity:0.5"' if pale else ""
    numbers = "".join(f'<td style="text-align:right">{_html(c)}</td>' for c in cells)
    return f'<tr{style}><td style="text-align:left">{name}</td>{numbers}</tr>'
