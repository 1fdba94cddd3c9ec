"""Checks of what users pass to an engine. In: values. Out: the same, or GraphError naming the
call."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

from dressi.ad.graph import Variable
from dressi.errors import GraphError
from dressi.packing import Options

Method = TypeVar("Method", bound=Callable[..., Any])


def exclusive(method: Method) -> Method:
    """Let one thread at a time into a method of an object with a ``lock``; others wait for their
    turn."""

    @functools.wraps(method)
    def locked(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.lock:
            return method(self, *args, **kwargs)

    return cast(Method, locked)


def need_variable(what: str, value: object) -> None:
    """Raises GraphError unless value is a Variable. what: the method that asks."""
    if not isinstance(value, Variable):
        raise GraphError(f"{what}: needs a Variable, got {type(value).__name__}")


def check_options(options: object) -> None:
    """Raises GraphError unless options are Options, or None."""
    if options is not None and not isinstance(options, Options):
        raise GraphError(f"options must be dressi.Options, got {type(options).__name__}")


def positive_int(value: object) -> int | None:
    """value as an int of at least 1; None for anything else, True included."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
    return None if isinstance(value, bool) or number < 1 else number


def checked_limit(memory_limit: Any) -> int | None:
    """A number of bytes, or None for no limit; GraphError for anything else."""
    if memory_limit is None:
        return None
    limit = positive_int(memory_limit)
    if limit is None:
        raise GraphError(
            f"memory_limit must be a number of bytes, at least 1, or None, got {memory_limit!r}"
        )
    return limit


def updated(made: object, xs: Sequence[Variable]) -> list[Variable]:
    """What an optimizer returned, as a list; GraphError unless it is a Variable for each x."""
    new = list(made) if isinstance(made, Iterable) else []
    if len(new) != len(xs) or not all(isinstance(v, Variable) for v in new):
        raise GraphError(
            f"the optimizer returned {len(new)} Variables for {len(xs)} parameters: {made!r}"
        )
    return new
