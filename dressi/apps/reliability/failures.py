"""R13: every Vulkan call fails once, with each of five results. What comes is an error of our own
that names the call, the object and, for memory, the bytes; and the next engine works.

In: a device. Out: rows for ``dressi bench reliability --only R13``. A wrapper around the loader's
functions makes a chosen call fail; nothing is left of it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dressi.ad import SGD, F, Variable
from dressi.ad.vtype import INT, VEC3
from dressi.apps.reliability.row import Row, at_most
from dressi.engine import DressiAD
from dressi.errors import DeviceError, DeviceLostError, DressiError, OutOfMemoryError
from dressi.packing import Options
from dressi.vk.api import load

CODES: dict[int, type[DressiError]] = {
    -1: OutOfMemoryError,  # of the host
    -2: OutOfMemoryError,  # of the device
    -3: DeviceError,  # VK_ERROR_INITIALIZATION_FAILED
    -4: DeviceLostError,
    -13: DeviceError,  # VK_ERROR_UNKNOWN
}
BEFORE_A_DEVICE = ("vkCreateInstance", "vkEnumerate")
"""Calls whose failure is a DeviceError whatever the result: there is no device yet to be lost."""
SMALL_CALLS = 4
"""Functions that fail in a small run."""


@dataclass
class Failing:
    """Stands for the loader's functions. function, nth: the call that gives ``result`` instead of
    being made; no function: none."""

    real: Any
    function: str = ""
    nth: int = 0
    result: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """Calls so far of what returns a VkResult."""

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.real, name)

        def call(*args: Any) -> Any:
            if name == self.function and self.counts.get(name, 0) == self.nth:
                self.counts[name] = self.nth + 1
                return self.result
            result = real(*args)
            if isinstance(result, int):
                self.counts[name] = self.counts.get(name, 0) + 1
            return result

        return call


@contextmanager
def failing(function: str = "", nth: int = 0, result: int = 0) -> Iterator[Failing]:
    """The wrapper, in place while it is open."""
    api = load()
    before = api.lib
    api.lib = Failing(before, function, nth, result)
    try:
        yield api.lib
    finally:
        api.lib = before


def job(device: str | None) -> np.ndarray:
    """Run a bit of everything that an engine does, and return its results, the same every time."""
    x = Variable(VEC3, (8, 4), requires_grad=True, name="x")
    index = Variable(INT, (8, 4), name="index")
    table = F.scatter_add(F.sin(x), F.dynamic(index), (5, 1))
    loss = F.mean(F.dot(x, F.image.shift(x, 1, 0))) + F.mean(F.lookup(table, index)).x
    with DressiAD(device, Options(lowering="graphics", deterministic=True), validate=False) as ad:
        ad.send_img(x, np.linspace(-1, 1, 96).reshape(4, 8, 3))
        ad.send_img(index, np.arange(32).reshape(4, 8, 1) % 5)
        ad.set_loss_var(loss)
        ad.set_optimizer(SGD(0.1))
        ad.exec_steps(3)
        ad.options = Options(lowering="compute", deterministic=True)
        ad.exec_step()
        ad.stage_times_ms(1)
        return np.concatenate([ad.recv_img(x).ravel(), ad.recv_img(loss).ravel()])


def complaint(device: str | None, function: str, nth: int, code: int, want: np.ndarray) -> str:
    """Return what is wrong with a failure of the nth call of a function; "" for nothing."""
    expected: type[DressiError] = CODES[code]
    if function.startswith(BEFORE_A_DEVICE):
        expected = DeviceError
    try:
        with failing(function, nth, code):
            got = job(device)
    except DressiError as error:
        text = str(error)
        if not isinstance(error, expected):
            return f"{type(error).__name__} in the place of {expected.__name__}"
        if function not in text:
            return f"the call is not named: {text}"
        if " of  failed" in text:
            return f"the object is not named: {text}"
        if isinstance(error, OutOfMemoryError) and function == "vkAllocateMemory":
            if error.needed <= 0 or str(error.needed) not in text:
                return f"the bytes are not named: {text}"
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "" if np.array_equal(got, want) else "no error, and a wrong result"


def measure(device: str | None, small: bool) -> Iterator[Row]:
    """Yield failures that are not told as they should be, and engines after them that do not
    work."""
    want = job(device)
    with failing() as counted:
        job(device)
    calls = dict(counted.counts)
    functions = sorted(calls)
    if small:
        functions = functions[:: -(-len(functions) // SMALL_CALLS)]
    wrong: list[str] = []
    broken: list[str] = []
    cases = after = 0
    for function in functions:
        for code in CODES:
            for nth in sorted({0, calls[function] - 1}):
                said = complaint(device, function, nth, code, want)
                wrong += [f"{function} number {nth}, {code}: {said}"] if said else []
                cases += 1
            if not np.array_equal(job(device), want):
                broken.append(f"{function}, {code}")
            after += 1
    yield at_most(f"R13 failures not told{_first(wrong)}", len(wrong), 0, cases)
    yield at_most(f"R13 engines afterwards that are wrong{_first(broken)}", len(broken), 0, after)
    if not small:
        wrong, cases = [], 0
        for function in functions:  # the calls in between, with results in turn
            for nth in range(1, calls[function] - 1):
                code = tuple(CODES)[nth % len(CODES)]
                said = complaint(device, function, nth, code, want)
                wrong += [f"{function} number {nth}, {code}: {said}"] if said else []
                cases += 1
        yield at_most(f"R13 failures in between not told{_first(wrong)}", len(wrong), 0, cases)


def _first(found: list[str]) -> str:
    return f", first {found[0]}" if found else ""
