"""One build and one step as a Chrome trace.

In: spans of the host, times of stages. Out: a dictionary in the Chrome Trace Event Format, for
chrome://tracing or Perfetto.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dressi.errors import DressiError
from dressi.inspect.traffic import Traffic


def chrome_trace(
    phases: Sequence[tuple[str, float, float]],
    stages: Sequence[tuple[str, float]],
    *,
    host: Sequence[tuple[str, float, float]] = (),
    static_stages: Sequence[tuple[str, float]] = (),
    traffic: Mapping[str, Traffic] | None = None,
    gpu_delay_s: float = 0.0,
    device: str = "device",
) -> dict[str, Any]:
    """One build and one step in the Chrome Trace Event Format.

    phases: (name, start, duration) of the last build on the host, in seconds of any clock. host:
    the same of one step (what it does before and while it waits); it is drawn right after the
    build, however long that is past. stages: (name, ms) of a step on the device, laid end to end
    from ``gpu_delay_s`` after the start of the step. static_stages: those of the clean part, on a
    row of their own that ends where the step begins. traffic: by name of a stage.
    """
    bytes_of = traffic or {}
    events = [
        _named("process_name", 1, 0, "host"),
        _named("thread_name", 1, 1, "last build"),
        _named("thread_name", 1, 2, "a step"),
        _named("process_name", 2, 0, device),
        _named("thread_name", 2, 1, "a step"),
    ]
    end = _host_row(events, 1, phases, 0.0)
    static_us = sum(1e3 * ms for _, ms in static_stages)
    begin = max(end, static_us)
    _host_row(events, 2, host, begin)
    _device_row(events, 1, stages, begin + 1e6 * gpu_delay_s, bytes_of)
    if static_stages:
        events.append(_named("thread_name", 2, 2, "static part, only after a change"))
        _device_row(events, 2, static_stages, begin - static_us, bytes_of)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def write_trace(path: str | Path, trace: Mapping[str, Any]) -> None:
    """Write a trace as JSON. Raises DressiError when the file cannot be written."""
    try:
        Path(path).write_text(json.dumps(trace, indent=1), encoding="utf-8")
    except OSError as error:
        raise DressiError(f"cannot write the trace {path}: {error}") from None


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _event(
    name: str, process: int, thread: int, start_us: float, us: float, args: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "ph": "X",
        "pid": process,
        "tid": thread,
        "ts": round(max(0.0, start_us), 3),
        "dur": round(max(0.0, us), 3),
        "args": args,
    }


def _host_row(
    events: list[dict[str, Any]],
    thread: int,
    parts: Sequence[tuple[str, float, float]],
    begin_us: float,
) -> float:
    """Adds spans of the host, the first at begin_us; where the last one ends."""
    first = min((start for _, start, _ in parts), default=0.0)
    end = begin_us
    for name, start, duration in parts:
        at = begin_us + 1e6 * (start - first)
        events.append(_event(name, 1, thread, at, 1e6 * duration, {}))
        end = max(end, at + 1e6 * duration)
    return end


def _device_row(
    events: list[dict[str, Any]],
    thread: int,
    stages: Sequence[tuple[str, float]],
    begin_us: float,
    traffic: Mapping[str, Traffic],
) -> None:
    at = begin_us
    for name, ms in stages:
        t = traffic.get(name)
        args = {} if t is None else {"bytes read": t.read, "bytes written": t.written}
        events.append(_event(name, 2, thread, at, 1e3 * ms, args))
        at += 1e3 * max(0.0, ms)
