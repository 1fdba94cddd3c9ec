"""Hypothesis: the same examples in every run, no database in the repository, no deadlines (the
machine may be busy)."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "dressi",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("dressi")
