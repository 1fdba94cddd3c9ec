"""R5: the validation layers, core and synchronization, have nothing to say about a representative
set of work, done while the garbage collector runs all the time; and they speak of planted faults.

In: a device. Out: rows for ``dressi bench reliability --only R5``. The work is done in a process of
its own. Where the layers are not installed, the row says so.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dressi.apps.reliability.row import Row, at_most, not_measured
from dressi.apps.reliability.validation_works import (
    DISPATCHES,
    SMALL_WORKS,
    WORKS,
    Work,
    transfers,
)
from dressi.config import child_environment
from dressi.engine import DressiAD
from dressi.errors import DeviceError, DressiError
from dressi.vk import hazards, record
from dressi.vk.api import load
from dressi.vk.context import Context
from dressi.vk.instance import Instance

# -- planted faults


@contextmanager
def _no_barriers() -> Iterator[None]:
    """Commands without any barrier between them."""
    names = ("barrier", "dispatch_barrier")
    modules = (hazards, record)
    places = [(m, name, vars(m)[name]) for m in modules for name in names if name in vars(m)]
    for module, name, _ in places:
        setattr(module, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for module, name, real in places:
            setattr(module, name, real)


class _NoSource:
    """Stands for the loader's functions; images are made without the usage as source of copies."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self._bit = load().c.VK_IMAGE_USAGE_TRANSFER_SRC_BIT

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        if name != "vkCreateImage":
            return real

        def create(device: Any, info: Any, *more: Any) -> Any:
            info.usage &= ~self._bit
            return real(device, info, *more)

        return create


@contextmanager
def _wrong_usage() -> Iterator[None]:
    api = load()
    before = api.lib
    api.lib = _NoSource(before)
    try:
        yield
    finally:
        api.lib = before


PLANTED = {"no barriers": _no_barriers, "a wrong usage of images": _wrong_usage}


# -- the process


def messages(device: str | None, works: Mapping[str, Work]) -> dict[str, list[str]]:
    """Return what the layers say of each work, in this process; nothing is raised."""
    said: list[str] = []
    listen, check, thresholds = Instance._listen, Context.check_validation, gc.get_threshold()

    def keep(self: Instance) -> None:
        self.messages = said  # what is said while a dropped engine goes counts too
        listen(self)

    found = {}
    Instance._listen = keep  # type: ignore[method-assign]
    Context.check_validation = lambda self: None  # type: ignore[method-assign]
    gc.set_threshold(1)
    try:
        for name, work in works.items():
            work(device)
            gc.collect()
            found[name] = list(said)
            said.clear()
    finally:
        gc.set_threshold(*thresholds)
        Instance._listen, Context.check_validation = listen, check  # type: ignore[method-assign]
    return found


def child(device: str | None, small: bool) -> dict[str, dict[str, list[str]]]:
    """Return messages by work, and by planted fault."""
    chosen = {name: WORKS[name] for name in (SMALL_WORKS if small else WORKS)}
    planted: dict[str, list[str]] = {}
    for name, fault in PLANTED.items():
        with fault():
            planted |= messages(device, {name: transfers(DISPATCHES)})
    return {"works": messages(device, chosen), "planted": planted}


_CHILD = (
    "import sys, json; from dressi.apps.reliability.validation import child; "
    "print(json.dumps(child(sys.argv[1] or None, sys.argv[2] == '1')))"
)


def measure(device: str | None, small: bool) -> Iterator[Row]:
    """Yield messages, and planted faults that nothing is said of."""
    try:
        DressiAD(device, validate=True).close()
    except DeviceError as error:
        reason = str(error).splitlines()[0]
        yield not_measured(f"R5 not measured: install vulkan-validationlayers ({reason})")
        return
    command = [sys.executable, "-c", _CHILD, device or "", "1" if small else "0"]
    environment = child_environment(DRESSI_VALIDATE="1")
    run = subprocess.run(
        command, env=environment, capture_output=True, encoding="utf-8", errors="replace"
    )
    if run.returncode != 0:
        raise DressiError(f"bench: the work of R5 failed: {run.stderr.strip()[-400:]}")
    told = json.loads(run.stdout.splitlines()[-1])
    said = [f"{work}: {text}" for work, texts in told["works"].items() for text in texts]
    first = f", first {said[0]}" if said else ""
    yield at_most(f"R5 messages{first}", len(said), 0, len(told["works"]))
    silent = [name for name, texts in told["planted"].items() if not texts]
    which = f": {', '.join(silent)}" if silent else ""
    yield at_most(f"R5 planted faults without a message{which}", len(silent), 0, len(PLANTED))
