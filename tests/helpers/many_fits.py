"""Functions that tests give to workers, which import them by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from dressi.errors import DeviceLostError
from dressi.many import Context


def square(settings: dict[str, Any]) -> dict[str, Any]:
    """A figure and an array that the settings alone decide."""
    k = settings["k"]
    return {"square": k * k, "values": np.random.default_rng(k).normal(size=5)}


def slow_square(settings: dict[str, Any]) -> dict[str, Any]:
    """Long enough to be killed amid it."""
    time.sleep(settings["seconds"])
    return square(settings)


def part(given: dict[str, Any], context: Context) -> dict[str, Any]:
    """A part of an experiment."""
    return {**square(given), "settings": sorted(given["settings"])}


def fail_on_odd(settings: dict[str, Any]) -> dict[str, Any]:
    if settings["k"] % 2:
        raise ValueError(f"{settings['k']} is odd")
    return square(settings)


def fail_once(settings: dict[str, Any]) -> dict[str, Any]:
    """The first attempt leaves a mark and fails, in the way that the settings say."""
    mark = Path(settings["marks"]) / str(settings["k"])
    if not mark.exists():
        mark.touch()
        if settings["how"] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if settings["how"] == "lose":
            raise DeviceLostError("the device stopped answering")
        raise RuntimeError("not yet")
    return square(settings)


def die_on_one(settings: dict[str, Any]) -> dict[str, Any]:
    """Kills its worker in every attempt at 1."""
    if settings["k"] == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return square(settings)


def count_calls(settings: dict[str, Any]) -> dict[str, Any]:
    """A line per call in a file: lines are appended whole."""
    with open(settings["log"], "a", encoding="utf-8") as log:
        log.write(f"{settings['k']}\n")
    time.sleep(settings.get("seconds", 0.0))
    return square(settings)


def use_warm(settings: dict[str, Any], context: Context) -> dict[str, Any]:
    """An object per shape of the settings, and a file."""
    made = context.warm.get(settings["shape"], lambda: [os.getpid(), settings["k"]])
    (context.folder / "note.txt").write_text(str(settings["k"]))
    return {"process": made[0], "made_for": made[1]}


def nested(settings: dict[str, Any]) -> dict[str, Any]:
    return {"view": {"error": settings["k"] / 2}}


def give_a_list(settings: dict[str, Any]) -> Any:
    return [1, 2]
