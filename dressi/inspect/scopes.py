"""What each part of a program costs: stages summed up by who made their Functions.

In: the rows of a report. Out: ``ScopeRow``s, the dearest first. A Function belongs to the scope
that was open when it was made (``with scope("hair"):``), without one to the user's line. A stage
that holds Functions of several is shared among them by their number: its time cannot be measured
apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from dressi.errors import scope_of
from dressi.inspect.words import ms_text


class Substage(Protocol):
    """What is read of a substage's row: texts of its functions."""

    @property
    def functions(self) -> tuple[str, ...]: ...


class Stage(Protocol):
    """What is read of a stage's row."""

    @property
    def substages(self) -> Sequence[Substage]: ...

    @property
    def ms(self) -> float | None: ...

    @property
    def clean(self) -> bool: ...


@dataclass(frozen=True)
class ScopeRow:
    """What one scope, or one line, made.

    name: of the scope, or file:line. is_scope: which of them. functions: in a step; clean: in the
    part that runs only after a change. stages, substages: of a step that hold some of the
    functions. ms: its share of their time; None: not measured.
    """

    name: str
    is_scope: bool
    functions: int
    clean: int
    stages: int
    substages: int
    ms: float | None


def maker_of(function: str) -> tuple[str, bool]:
    """(scope or line, whether a scope) of a function's text in a plan: op, two spaces, line."""
    line = function.partition("  ")[2] or "unknown"
    scope = scope_of(line)
    return (line, False) if scope is None else (scope, True)


def scope_rows(stages: Iterable[Stage]) -> tuple[ScopeRow, ...]:
    """Return a row per maker of the functions of stages, by time, else by functions."""
    found: dict[tuple[str, bool], list[float]] = {}
    measured = False
    for stage in stages:
        total = sum(len(s.functions) for s in stage.substages)
        seen = set()
        for substage in stage.substages:
            makers = [maker_of(f) for f in substage.functions]
            for maker in dict.fromkeys(makers):
                n = makers.count(maker)
                row = found.setdefault(maker, [0, 0, 0, 0, 0.0])
                if stage.clean:
                    row[1] += n
                    continue
                row[0] += n
                row[2] += maker not in seen
                row[3] += 1
                seen.add(maker)
                if stage.ms is not None:
                    measured = True
                    row[4] += stage.ms * n / total
    rows = [
        ScopeRow(name, is_scope, int(n), int(clean), int(a), int(b), ms if measured else None)
        for (name, is_scope), (n, clean, a, b, ms) in found.items()
    ]
    return tuple(sorted(rows, key=lambda r: (-(r.ms or 0.0), -r.functions, -r.clean, r.name)))


def scope_table(rows: Iterable[ScopeRow]) -> Iterator[str]:
    """The lines of the table; none where no scope was opened."""
    rows = list(rows)
    if not any(r.is_scope for r in rows):
        return
    head = ("ms", "stages", "sub", "fun", "clean")
    yield f"{'by scope':<40}" + "".join(f"{h:>9}" for h in head)
    for r in rows:
        numbers = (ms_text(r.ms), *map(str, (r.stages, r.substages, r.functions, r.clean)))
        yield f"{r.name[:39]:<40}" + "".join(f"{n:>9}" for n in numbers)
