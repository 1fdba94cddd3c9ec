"""What an engine tells about its step: text, drawings, times, memory.

In: a program on a runtime. Out: reports. Nothing here changes what a step computes.
"""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from dressi.ad.show import graph_text
from dressi.engine.checks import exclusive
from dressi.inspect.draw import GraphView, graph_view
from dressi.inspect.report import MemoryUse, Report, build_report, median_ms
from dressi.inspect.trace import chrome_trace, write_trace
from dressi.packing import Plan, shaders_text
from dressi.previews import table_html

if TYPE_CHECKING:
    from dressi.engine.program import Program
    from dressi.engine.runtime import Runtime


class Reports:
    """The part of an engine that reports."""

    lock: threading.RLock
    runtime: Runtime
    _program: Program
    _wall_s: deque[float]
    _host_s: deque[float]

    @property
    def plans(self) -> dict[str, Plan]:
        """Of the step, by name."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """What there is now; nothing is built for it."""
        program, device = self._program, self.runtime.device
        rows: dict[str, object] = {"device": f"{device.info.name}, {device.info.driver}"}
        rows["state"] = "closed" if self.runtime.closed else "open"
        rows["loss"] = "none set" if program.loss is None else program.loss.label()
        rows["optimizer"] = program.optimizer or "none set"
        if program.graph is not None:
            rows["parameters"] = ", ".join(v.label() for v in program.graph.parameters) or "none"
        if program.built is not None:
            rows["steps"] = program.n_steps
            plans = [p.packed.plan for p in program.built.step.parts().values()]
            rows["plans"] = ", ".join(f"{p.name}: {p.n_substages} substages" for p in plans)
        return table_html(type(self).__name__, rows)

    def graph_text(self) -> str:
        """The user's graph as text."""
        return graph_text([self._program.need_loss()])

    def glsl_text(self) -> str:
        """All generated shaders of a step."""
        return "\n".join(shaders_text(plan) for plan in self.plans.values())

    def show_graph(self) -> GraphView:
        """Functions in substages in stages, clean ones pale (paper, figure on stage packing).
        Shows itself in a notebook; ``save("graph.svg")`` or ``save("graph.dot")``."""
        return graph_view(self.plans)

    @exclusive
    def memory(self) -> MemoryUse:
        """Bytes of live images, buffers and depth attachments, and what is held and allowed, the
        host buffers through which data moves left out."""
        self.runtime.enter()
        return self.runtime.memory(self._program.parts())

    @exclusive
    def stage_times_ms(self, n: int = 5) -> list[tuple[str, float]]:
        """Median time of each stage of a step in ms over n runs, by timestamps, copies last. The
        data of leaves is what it was before."""
        self.runtime.enter()
        return self.runtime.stage_times_ms(self._program.build().step.main, n)

    @exclusive
    def report(self, times: bool = True, n: int = 5) -> Report:
        """Stages, substages, traffic, times, memory, cache and rebuilds of a step, as text or in a
        notebook. times: measure each stage over n runs (data stays as it is)."""
        self.runtime.enter()
        step, runtime = self._program.build().step, self.runtime
        parts = step.parts() if times else {}
        measured = {k: runtime.stage_times_ms(p, n) for k, p in parts.items()}
        return build_report(
            self.plans,
            measured,
            self.memory(),
            self._program.rebuilds,
            device=runtime.device.info.name,
            driver=runtime.device.info.driver,
            steps=step.steps,
            static_runs=step.static_runs,
            step_ms=median_ms(self._wall_s) if self._wall_s else None,
            build_times={name: seconds for name, _, seconds in runtime.phases},
        )

    @exclusive
    def trace(self, path: str | Path, n: int = 5) -> None:
        """Write the last build and one step as a Chrome trace, for Perfetto."""
        report = self.report(n=n)
        host = self.host_ms() * 1e-3
        trace = chrome_trace(
            self.runtime.phases,
            report.stage_times(),
            host=[("submit", 0.0, host), ("wait", host, (report.gpu_ms or 0.0) * 1e-3)],
            static_stages=report.stage_times(clean=True),
            traffic=report.traffic_by_name(),
            gpu_delay_s=host,
            device=self.runtime.device.info.name,
        )
        write_trace(path, trace)

    def host_ms(self) -> float:
        """Median ms of a step, over the last calls of ``exec_step`` and ``exec_steps``, outside the
        wait for the device; 0 before the first."""
        return median_ms(self._host_s)

    @exclusive
    def build_times(self) -> dict[str, float]:
        """Seconds that the last build of a step spent in its parts on the Vulkan side."""
        self.runtime.enter()
        return dict(self._program.build().step.main.executable.build_times)
