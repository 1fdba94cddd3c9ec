"""R15: no binding, no loader, no driver, a bad device name, a fork, threads, a notebook cell that
is run again, Ctrl-C. Importing always works; where no engine can be had, an error of our own says
so in less than a second, with the package to install.

In: a device. Out: rows for ``dressi bench reliability --only R15``. Each situation is a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from dressi.apps.reliability.row import Row, at_most, below
from dressi.config import child_environment

SECONDS = 1.0
"""An error comes within; importing is not counted."""
TRIES = 3
"""Of a situation whose error came late."""
LONGEST = 120.0
"""Seconds after which a process hangs."""

_HEAD = """
import json, sys, time
def tell(ok, seconds=0.0, note=""):
    print(json.dumps([bool(ok), seconds, str(note)]))
    sys.exit()
"""
_REFUSED = """
import dressi
begin = time.perf_counter()
try:
    dressi.DressiAD(DEVICE)
except dressi.DeviceError as error:
    seconds, text = time.perf_counter() - begin, str(error)
    tell(all(word in text for word in WORDS), seconds, text)
tell(False, note="no error")
"""
_FIT = """
import dressi
from dressi import FLOAT, SGD, F, Variable
def fit(steps=4):
    x = Variable(FLOAT, (8, 4), requires_grad=True, name="x")
    ad = dressi.DressiAD(DEVICE)
    ad.send_img(x, [[[1.0]] * 8] * 4)
    ad.set_loss_var(x * x)
    ad.set_optimizer(SGD(0.25))
    ad.exec_steps(steps)
    return ad, x
def right(ad, x, steps=4):
    return bool((ad.recv_img(x) == 0.5**steps).all())
"""
_BLOCKED = """
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name == "vulkan":
            raise ERROR
sys.meta_path.insert(0, Blocked())
"""
_FORK = """
import os, warnings
warnings.simplefilter("ignore")  # Python 3.12 warns of fork beside the driver's threads
ad, x = fit()
child = os.fork()
if child == 0:
    begin = time.perf_counter()
    try:
        ad.exec_step()
    except dressi.DeviceError as error:
        told = "forked child" in str(error) and time.perf_counter() - begin < 1.0
        os._exit(0 if told else 1)
    os._exit(2)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
ad.exec_step()
tell(status == 0 and right(ad, x, 5), note=f"status {status}")
"""
_THREADS = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    made = list(pool.map(lambda _: fit(), range(4)))
ok = all(right(ad, x) for ad, x in made)  # in another thread than made them
for ad, _ in made:
    ad.close()
tell(ok)
"""
_RERUN = """
cell = "ad, x = fit()\\nok = right(ad, x)"
ok = True
for _ in range(5):  # nothing is closed: the names are bound anew
    space = globals()
    exec(cell, space)
    ok = ok and space["ok"]
tell(ok)
"""
_CTRL_C = """
import os, signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
ad, x = fit()
def send():
    time.sleep(0.3)
    sent.append(time.perf_counter())
    os.kill(os.getpid(), signal.SIGINT)
sent = []
threading.Thread(target=send).start()
try:
    ad.exec_steps(10**8)
except KeyboardInterrupt:
    seconds = time.perf_counter() - sent[0]
    ad.send_img(x, [[[1.0]] * 8] * 4)
    ad.exec_steps(4)
    ad.close()
    again, y = fit()
    tell(right(again, y), seconds)
tell(False, note="not interrupted")
"""


@dataclass(frozen=True)
class Situation:
    """code: what a process runs, after the definition of DEVICE and WORDS. words: what the error
    says. environment: variables of the process."""

    name: str
    code: str
    words: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    device: str | None = None
    """Of the situation itself; None: the device that is measured."""
    forks: bool = False


_NOWHERE = (("VK_ICD_FILENAMES", "/nowhere.json"), ("VK_DRIVER_FILES", "/nowhere.json"))
SITUATIONS = (
    Situation(
        "no binding",
        _BLOCKED.replace("ERROR", "ImportError('no module named vulkan')") + _REFUSED,
        ("pip install vulkan",),
    ),
    Situation(
        "no loader",
        _BLOCKED.replace("ERROR", "OSError('cannot load libvulkan.so.1')") + _REFUSED,
        ("no Vulkan loader", "libvulkan1", "molten-vk", "LunarG"),
    ),
    Situation("no driver", _REFUSED, ("mesa-vulkan-drivers",), _NOWHERE),
    Situation("a bad device name", _REFUSED, ("no such device",), device="no such device"),
    Situation("a bad device number", _REFUSED, ("12345",), device="12345"),
    Situation("a fork", _FIT + _FORK, forks=True),
    Situation("threads", _FIT + _THREADS),
    Situation("a cell that is run again", _FIT + _RERUN),
    Situation("Ctrl-C", _FIT + _CTRL_C),
)


def outcome(situation: Situation, device: str | None) -> tuple[bool, float, str]:
    """Return (whether all is as it should be, seconds to the error, what was said)."""
    selector = situation.device or device
    head = _HEAD + f"DEVICE, WORDS = {selector!r}, {situation.words!r}\n"
    command = [sys.executable, "-c", head + situation.code]
    environment = child_environment(**dict(situation.environment))
    try:
        run = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=LONGEST,
        )
    except subprocess.TimeoutExpired:
        return False, LONGEST, "hangs"
    try:
        ok, seconds, note = json.loads(run.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return False, 0.0, f"status {run.returncode}: {run.stderr.strip()[-200:]}"
    return bool(ok) and run.returncode == 0, float(seconds), str(note)


def measure(device: str | None, small: bool) -> Iterator[Row]:
    """Yield situations that are not as they should be, and the longest wait for an error."""
    wrong: list[str] = []
    longest, cases = 0.0, 0
    for situation in SITUATIONS[2:4] if small else SITUATIONS:
        if situation.forks and not hasattr(os, "fork"):
            continue
        ok, seconds, note = outcome(situation, device)
        for _ in range(TRIES - 1):
            if ok and seconds >= SECONDS:  # the machine may have been busy with other things
                again = outcome(situation, device)
                ok, seconds, note = again[0], min(seconds, again[1]), again[2]
        longest, cases = max(longest, seconds), cases + 1
        if not ok:
            wrong.append(f"{situation.name}: {note}")
    first = f", first {wrong[0]}" if wrong else ""
    yield at_most(f"R15 situations that end badly{first}", len(wrong), 0, cases)
    yield below("R15 seconds to the error", longest, SECONDS, cases)
