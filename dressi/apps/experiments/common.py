"""What the experiments share: settings that become flags of the command, what an experiment gives
back, and checks."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np

from dressi.errors import DressiError


@dataclass(frozen=True)
class Settings:
    """Options that every experiment has. One with options of its own derives from this and adds
    fields made by ``option``: each becomes a flag of the command.

    out: folder for pictures, plots and ``result.json``. json: one more copy of the figures. device:
    index or part of the name. smoke: tiny sizes, only to see that it runs. quick: sizes that take
    two minutes at most on two cores and leave the conditions their direction.
    """

    out: str | None = None
    json: str | None = None
    device: str | None = None
    smoke: bool = False
    quick: bool = False


def option(
    default: Any,
    help: str,
    smoke: Any = None,
    least: float | None = None,
    type: Callable[[str], Any] | None = None,
    quick: Any = None,
) -> Any:
    """Return a field of Settings that is a flag: ``size`` is ``--size``, ``r_px`` ``--r-px``. One
    whose default is False is a flag without a value.

    default: also says the type of the flag's values unless type does; a tuple takes one value or
    more. smoke, quick: defaults of a smoke and of a quick run, None: the same. least: smallest
    value (of each) allowed.
    """
    one = default[0] if isinstance(default, tuple) else default
    kind = type or (str if one is None else one.__class__)
    return field(
        default=default,
        metadata={"help": help, "smoke": smoke, "quick": quick, "least": least, "type": kind},
    )


S = TypeVar("S", bound=Settings)


def make_settings(kind: type[S], **given: Any) -> S:
    """Return the settings of an experiment from what was given; the rest has its default, that of a
    smoke or a quick run where it is one (smoke wins). Raises DressiError for a name that there is
    not and for values below the least."""
    own = {f.name: f for f in fields(kind)}
    for name in given:
        if name not in own:
            raise DressiError(f"experiment: there is no option '{name}'; known: {', '.join(own)}")
    mode = next((m for m in ("smoke", "quick") if given.get(m)), None)
    for name, f in own.items() if mode else ():
        if f.metadata.get(mode) is not None:
            given.setdefault(name, f.metadata[mode])
    made = kind(**given)
    for name, f in own.items():
        least, value = f.metadata.get("least"), getattr(made, name)
        if least is None or value is None:
            continue
        for one in value if isinstance(value, tuple) else (value,):
            if not one >= least:  # NaN too
                raise DressiError(f"{flag(name)} must be at least {least}, got {one}")
    return made


def flag(name: str) -> str:
    """Return the flag of a field."""
    return "--" + name.replace("_", "-")


def add_flags(parser: argparse.ArgumentParser, kind: type[Settings]) -> None:
    """Flags for the own fields of the settings; absent ones stay away from the namespace."""
    for f in fields(kind):
        if not f.metadata:
            continue
        shown: Any = f.default
        if isinstance(shown, bool):
            parser.add_argument(
                flag(f.name),
                action="store_true",
                default=argparse.SUPPRESS,
                help=f.metadata["help"],
            )
            continue
        many = isinstance(shown, tuple)
        quick = f.metadata["quick"]
        shown, quick = (None if v is None else words(v) for v in (shown, quick))
        quick = "" if quick is None else f"; quick {quick}"
        parser.add_argument(
            flag(f.name),
            type=f.metadata["type"],
            nargs="+" if many else None,
            default=argparse.SUPPRESS,
            help=f.metadata["help"] + f" (default {'none' if shown is None else shown}{quick})",
        )


def words(value: Any) -> str:
    """Return a default as it is typed."""
    values = value if isinstance(value, tuple) else (value,)
    return " ".join(f"'{v}'" if " " in str(v) else str(v) for v in values)


@dataclass(frozen=True)
class Result:
    """What an experiment gives back; written by ``run_experiment``.

    figures: numbers, strings and lists for the JSON. pictures: file name without ending -> linear
    image (H, W, 3). plots: file name without ending -> function that draws into an empty matplotlib
    Figure; left out, and said so, where matplotlib is missing. conditions: what the paper claims,
    and whether it holds; a smoke run states none. tables: rows of texts to print, the first one the
    heading. files: names of what the experiment has written into its folder itself. ours: what is
    asked for by this project and not by the paper (thresholds, methods of its own), as conditions;
    printed apart. notes: sentences for the report.
    """

    figures: Mapping[str, Any]
    pictures: Mapping[str, np.ndarray] = field(default_factory=dict)
    plots: Mapping[str, Callable[[Any], None]] = field(default_factory=dict)
    conditions: Sequence[tuple[str, bool]] = ()
    tables: Sequence[Sequence[Sequence[str]]] = ()
    files: Sequence[str] = ()
    ours: Sequence[tuple[str, bool]] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Experiment:
    """One row of the table. run: takes an instance of ``settings``. live: whether it fits a shape
    that can be shown meanwhile. beyond: the paper has no such experiment, so all its conditions are
    ours."""

    help: str
    settings: type[Settings]
    run: Callable[[Any], Result]
    live: bool = False
    beyond: bool = False
