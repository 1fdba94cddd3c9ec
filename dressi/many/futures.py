"""Tasks as futures of Dask: sent, and what came of them.

In: a client of Dask, a ``Job``, tasks. Out: futures, outcomes.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from dressi.many.tasks import Task
from dressi.many.work import Job, Outcome


class Submitter:
    """Sends tasks to workers. keys: name of a future -> key of its task."""

    def __init__(self, client: Any, job: Job) -> None:
        self._client, self._job = client, job
        self.keys: dict[str, str] = {}

    def __call__(self, tasks: Sequence[Task]) -> list[Any]:
        """Return futures of the outcomes. Their names are never used twice: Dask remembers."""
        from dressi.many.cluster import work

        names = [f"{task.key}-{secrets.token_hex(4)}" for task in tasks]
        self.keys.update({n: t.key for n, t in zip(names, tasks, strict=True)})
        return list(self._client.map(work, tasks, job=self._job, key=names))


def ended_futures(coming: Any, seconds: float) -> list[tuple[Any, Any]]:
    """Return futures that have ended, with what they gave; none after so many seconds."""
    with coming.thread_condition:
        if not coming.has_ready():
            coming.thread_condition.wait(seconds)
    return list(coming.next_batch(block=False))


def outcome_of(task: Task, given: Any) -> Outcome:
    """Return what a future gave; an error of Dask (a worker that died too often, a result that
    cannot be sent) is a failed attempt."""
    if isinstance(given, Outcome):
        return given
    error = given[1] if isinstance(given, tuple) else given
    return Outcome(task.key, "failed", tracebacks=(f"{type(error).__name__}: {error}",))
