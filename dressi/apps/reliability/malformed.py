"""R10: broken files are refused by name, and never crash, hang or load as something they are not.

In: the hand-written files, and good files with random damage (the seed says which). Out: rows for
``dressi bench reliability --only R10``. Every file is read in a child process with a limit on time
and memory; a child that dies or hangs is counted, and the rest goes on in a new one.
"""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from dressi.apps.reliability.row import Row, at_most
from dressi.config import child_environment
from dressi.errors import DressiError, LoadError
from dressi.render.io import load_scene, read_image
from dressi.render.scene import Scene
from dressi.testing.files import good_files
from dressi.testing.malformed_cases import cases, embedded, glb, good

N_MUTATED, N_SMALL = 2000, 60
SECONDS_PER_FILE = 10.0
START_SECONDS = 60.0
MEMORY_BYTES = 4 << 30
"""Of address space; a child with all libraries loaded takes about one."""
IMAGES = (".png", ".hdr", ".exr", ".jpg")
MUST_FAIL_WHEN_CUT = (".glb", ".stl")
"""Formats that say how long they are; a shorter OBJ, for one, is a good OBJ."""


_JUNK: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2, 3, 7, 255, 65535, 2**31, 2**40, 10**30, 0.5, -0.0, 1e308),
    *("", "x", "VEC3", "\0", "data:,", "../../..", [], {}, [[]], [0], [-1], [1e40] * 3, ["a"] * 4),
)
_WORDS = (b"\xff\xff\xff\xff", b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\0\0\0\x80", b"99999", b"-1")


def _mutate_document(rng: random.Random) -> bytes:
    """Return the good document with one to three values replaced, removed or moved."""
    document, buffer = good()
    for _ in range(rng.choice((1, 1, 2, 3))):
        places: list[tuple[Any, Any]] = []
        waiting: list[Any] = [document]
        while waiting:
            at = waiting.pop()
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            places += [(at, key) for key in keys]
            waiting += [at[key] for key in keys if isinstance(at[key], (dict, list))]
        at, key = rng.choice(places)
        kind = rng.random()
        if kind < 0.2:
            del at[key]
        elif kind < 0.4:
            other, name = rng.choice(places)
            at[key] = copy.deepcopy(other[name]) if _has(other, name) else None
        else:
            at[key] = copy.deepcopy(rng.choice(_JUNK))
    try:
        return rng.choice((glb, embedded))(document, buffer)
    except (KeyError, IndexError, TypeError, AttributeError):  # no buffer to put the data in
        return glb(document, buffer)


def _has(owner: Any, key: Any) -> bool:
    return key in owner if isinstance(owner, dict) else key < len(owner)


def _mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(8)
        if kind == 0:
            out[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            word = rng.choice(_WORDS)
            out[at : at + len(word)] = word
        elif kind == 2:
            del out[at : at + rng.choice((1, 4, 40))]
        elif kind == 3:
            out[at:at] = rng.randbytes(rng.choice((1, 4, 40)))
        elif kind == 4:
            start = rng.randrange(len(out) + 1)
            out[at:at] = out[start : start + rng.choice((1, 4, 40))]
        else:
            digits = [i for i, byte in enumerate(out) if 48 <= byte <= 57]
            if digits:
                out[rng.choice(digits)] = rng.choice(b"0123456789-.e")
    return bytes(out)


def mutated(seed: int) -> tuple[str, bytes, bool]:
    """Return a damaged file: its name, its bytes, and whether it must be refused (it is cut)."""
    rng = random.Random(seed)
    files = good_files()
    name = rng.choice(sorted(files))
    data = files[name]
    ending = Path(name).suffix
    if ending in (".glb", ".gltf") and rng.random() < 0.6:
        changed = _mutate_document(rng)
        return ("a.glb" if changed[:4] == b"glTF" else "a.gltf"), changed, False
    if rng.random() < 0.15:
        return name, data[: rng.randrange(len(data))], ending in MUST_FAIL_WHEN_CUT
    return name, _mutate_bytes(rng, data), False


def attempt(path: Path, must_fail: bool = False) -> str:
    """Read one file: "refused", "loaded", or what is wrong with how that went."""
    try:
        found = read_image(path) if path.suffix in IMAGES else load_scene(path)
        if must_fail:
            return "loads although it is cut"
        if isinstance(found, Scene):
            for instance in found.check().instances():
                instance.positions()
        elif not np.isfinite(found).all():
            return "an image with NaN or infinite pixels"
    except LoadError as error:
        if error.file != str(path) or path.name not in str(error) or not error.where:
            return f"an error without file or place: {error}"[:300]
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    return "loaded"


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def child(first: int, last: int, kind: str) -> None:
    """Reads files number ``first`` to ``last`` and writes a JSON line for each."""
    _limit_memory()
    warnings.simplefilter("error")  # a warning would be an error to some users
    listed = cases() if kind == "hand-written" else []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(first, last):
            if kind == "hand-written":
                name, data, must_fail = f"f{listed[number].ending}", listed[number].data, True
            else:
                name, data, must_fail = mutated(number)
            path = Path(folder) / name
            path.write_bytes(data)
            result = attempt(path, must_fail)
            sys.stdout.write("\n@" + json.dumps([number, name, result]) + "\n")
            sys.stdout.flush()


def results(kind: str, first: int, last: int) -> list[tuple[int, str, str]]:
    """Return (number, file name, result) of files ``first`` to ``last``; crashes and hangs among
    them."""
    found: list[tuple[int, str, str]] = []
    while first < last:
        code = (
            "import sys; from dressi.apps.reliability.malformed import child; "
            "child(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])"
        )
        command = [sys.executable, "-c", code, str(first), str(last), kind]
        with tempfile.TemporaryFile() as out:
            run = subprocess.Popen(
                command, env=child_environment(), stdout=out, stderr=subprocess.DEVNULL
            )
            done, seen, since = first, 0, time.monotonic()
            while run.poll() is None:  # a limit on each file, not on all of them
                time.sleep(0.05)
                size = os.fstat(out.fileno()).st_size  # it grows with each file
                if size != seen:
                    seen, since = size, time.monotonic()
                if time.monotonic() - since > SECONDS_PER_FILE + (0.0 if seen else START_SECONDS):
                    run.kill()
                    run.wait()
                    break
            out.seek(0)
            for line in out.read().split(b"\n"):
                if line.startswith(b"@"):
                    number, name, result = json.loads(line[1:])
                    found.append((number, name, result))
                    done = number + 1
        if done < last:
            name = mutated(done)[0] if kind == "mutated" else cases()[done].name
            why = "hangs" if run.returncode == -9 else f"crash, exit status {run.returncode}"
            if done == first and run.returncode == 1:
                raise DressiError(f"bench: the child process for {kind} files does not start")
            found.append((done, name, why))
            done += 1
        first = done
    return found


def faults(found: list[tuple[int, str, str]]) -> list[tuple[int, str, str]]:
    """Return those results that are neither refused nor loaded."""
    return [entry for entry in found if entry[2] not in ("refused", "loaded")]


def measure(device: str | None, small: bool) -> list[Row]:
    """Return the row of R10: files that were neither refused by name nor loaded as they should be.
    No device."""
    rows = []
    for kind, count in (
        ("hand-written", len(cases())),
        ("mutated", N_SMALL if small else N_MUTATED),
    ):
        wrong = faults(results(kind, 0, count))
        first = f", first {wrong[0]}" if wrong else ""
        rows.append(at_most(f"R10 {kind} files read wrongly{first}", len(wrong), 0, count))
    return rows
