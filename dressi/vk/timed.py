"""Times of the stages of a plan: its commands recorded once more, with timestamps.

In: a plan and the objects that it runs on. Out: milliseconds by name. Nothing is compiled and no
image is made a second time.
"""

from __future__ import annotations

from dataclasses import replace

from dressi.errors import DeviceError
from dressi.packing.plan import Plan
from dressi.vk.api import Arena, CData
from dressi.vk.context import Context, Owned
from dressi.vk.record import Objects, record


class TimedRun:
    """A run of a plan, one stage after the other, that tells how long each took. Belongs to
    ``owned``, as the objects do. Raises DeviceError where the queue has no timestamps."""

    def __init__(self, ctx: Context, owned: Owned, plan: Plan, objects: Objects) -> None:
        self._ctx, self._plan = ctx, plan
        self._what = f"plan '{plan.name}', timed"
        self._queries = create_queries(ctx, owned, plan)
        commands = ctx.command_buffer(owned, self._what)
        record(ctx, commands, plan, replace(objects, queries=self._queries))
        self._submit = ctx.submit_info([commands])

    def run(self) -> list[tuple[str, float]]:
        """Return the milliseconds of each stage, by name, and of the copies as ``updates``."""
        ctx, plan, n = self._ctx, self._plan, len(self._plan.stages) + 2
        ctx.submit(self._submit[0], self._what)
        ticks = ctx.api.ffi.new("uint64_t[]", n)
        # No waiting: the submit is finished.
        result = ctx.api.lib.vkGetQueryPoolResults(
            ctx.device, self._queries, 0, n, 8 * n, ticks, 8, ctx.api.c.VK_QUERY_RESULT_64_BIT
        )
        ctx.check(result, "vkGetQueryPoolResults", self._what)
        ctx.check_validation()
        mask = (1 << ctx.timestamp_bits) - 1
        period_ms = ctx.properties.limits.timestampPeriod * 1e-6
        names = [*(s.name for s in plan.stages), "updates"]
        return [(m, ((ticks[i + 1] - ticks[i]) & mask) * period_ms) for i, m in enumerate(names)]


def create_queries(ctx: Context, owned: Owned, plan: Plan) -> CData:
    """Create the VkQueryPool of a plan. Raises DeviceError where the queue has no timestamps."""
    if not ctx.timestamp_bits:
        raise DeviceError(f"{ctx.info.name} has no timestamps on its queue")
    info = Arena(ctx.api).struct(
        "VkQueryPoolCreateInfo",
        queryType=ctx.api.c.VK_QUERY_TYPE_TIMESTAMP,
        queryCount=len(plan.stages) + 2,
    )
    return owned.create("QueryPool", info, f"timestamps of plan '{plan.name}'")
