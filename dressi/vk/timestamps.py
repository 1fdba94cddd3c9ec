"""Times of the stages of a plan, by timestamps that its command buffer writes.

In: a plan, a pool of queries. Out: milliseconds by name.
"""

from __future__ import annotations

from dressi.errors import DeviceError
from dressi.packing.plan import Plan
from dressi.vk.api import Arena, CData
from dressi.vk.context import Context, Owned


def n_timestamps(plan: Plan) -> int:
    """Return one for the start of the first stage, one for the end of each, one for the copies."""
    return len(plan.stages) + 2


def create_queries(ctx: Context, owned: Owned, plan: Plan) -> CData:
    """Create the VkQueryPool of a plan. Raises DeviceError where the queue has no timestamps."""
    if not ctx.timestamp_bits:
        raise DeviceError(f"{ctx.info.name} has no timestamps on its queue")
    info = Arena(ctx.api).struct(
        "VkQueryPoolCreateInfo",
        queryType=ctx.api.c.VK_QUERY_TYPE_TIMESTAMP,
        queryCount=n_timestamps(plan),
    )
    return owned.create("QueryPool", info, f"timestamps of plan '{plan.name}'")


def stage_times_ms(ctx: Context, queries: CData, plan: Plan) -> list[tuple[str, float]]:
    """Return the milliseconds of each stage in the last run that was timed, which is finished, by
    name, and of the copies as ``updates``."""
    n = n_timestamps(plan)
    ticks = ctx.api.ffi.new("uint64_t[]", n)
    result = ctx.api.lib.vkGetQueryPoolResults(
        ctx.device, queries, 0, n, 8 * n, ticks, 8, ctx.api.c.VK_QUERY_RESULT_64_BIT
    )
    ctx.check(result, "vkGetQueryPoolResults", f"plan '{plan.name}'")
    mask = (1 << ctx.timestamp_bits) - 1
    period_ms = ctx.properties.limits.timestampPeriod * 1e-6
    names = [*(s.name for s in plan.stages), "updates"]
    return [(name, ((ticks[i + 1] - ticks[i]) & mask) * period_ms) for i, name in enumerate(names)]
