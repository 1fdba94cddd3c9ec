"""Settings. The only module that reads environment variables.

DRESSI_DEVICE    index or part of a device name
DRESSI_VALIDATE  1: Vulkan validation layers on, messages become errors
DRESSI_CACHE     folder of the shader and pipeline caches (default: the user's cache folder)
DRESSI_PROFILE   off, or the name of a preset, instead of the measured speeds of the device
DRESSI_THREADS   threads that work on the host side by side, at most (default: one per processor)
DRESSI_DUMP      folder that receives graph, plan and GLSL of every build
DRESSI_SHARE     0: tensors on a GPU are copied through the host also where that need not be; wait:
                 they are not, but the host waits, in place of the GPU
DRESSI_STRICT    1: what would be a DressiWarning is an error
DRESSI_DEBUG     1 a line per build, 2 plans, 3 graphs and the program after every pass of
                 packing (checked, too), 4 shaders, on the logger "dressi"
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def device_selector() -> str | None:
    """``DRESSI_DEVICE``: index or part of a name; None when not set."""
    return os.environ.get("DRESSI_DEVICE") or None


def validation() -> bool:
    """``DRESSI_VALIDATE``: whether the validation layers are asked for."""
    return os.environ.get("DRESSI_VALIDATE", "0") not in ("", "0")


def sharing() -> str:
    """``DRESSI_SHARE``: ``0`` where memory of a GPU is not to be shared with PyTorch, ``wait``
    where the host waits for both instead of the GPU."""
    return os.environ.get("DRESSI_SHARE", "1")


_strict: list[bool] = []
"""What ``set_strict`` was given last; empty: the environment decides."""


def strict() -> bool:
    """``DRESSI_STRICT``, or what ``set_strict`` was given: whether warnings are errors."""
    return _strict[0] if _strict else os.environ.get("DRESSI_STRICT", "0") not in ("", "0")


def set_strict(on: bool) -> None:
    """Overrule ``DRESSI_STRICT``."""
    _strict[:] = [on]


def cache_dir() -> Path:
    """``DRESSI_CACHE``, else ``$XDG_CACHE_HOME/dressi``, else ``~/.cache/dressi``."""
    own = os.environ.get("DRESSI_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dressi"


def profile_choice() -> str | None:
    """``DRESSI_PROFILE``: ``off`` or the name of a preset; None: measure the device."""
    return os.environ.get("DRESSI_PROFILE") or None


def most_threads() -> int | None:
    """``DRESSI_THREADS``: how many threads may work side by side; None: as many as processors."""
    text = os.environ.get("DRESSI_THREADS", "")
    return max(int(text), 1) if text.isdigit() else None


def dump_dir() -> Path | None:
    """``DRESSI_DUMP``: folder for graph, plan and GLSL of every build; None when not set."""
    own = os.environ.get("DRESSI_DUMP")
    return Path(own) if own else None


def vulkan_driver_files() -> list[str]:
    """Driver descriptions that the Vulkan loader is told to use (``VK_DRIVER_FILES`` and, before
    it, ``VK_ICD_FILENAMES``): for messages."""
    texts = (os.environ.get(name, "") for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"))
    return [name for text in texts for name in text.split(os.pathsep) if name]


def debug_level() -> int:
    """``DRESSI_DEBUG`` from 0 (silent) to 4; a value that is not a number counts as 0."""
    text = os.environ.get("DRESSI_DEBUG", "0")
    return int(text) if text.isdigit() else 0


@contextmanager
def variables_kept(names: Iterable[str]) -> Iterator[None]:
    """Give variables the values back that they had, after what sets them for its children."""
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def child_environment(**changes: str) -> dict[str, str]:
    """This process's environment with some variables changed, for a process of our own."""
    return {**os.environ, **changes}


BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""How many threads NumPy's matrix products take, by the library that it was built with."""


def one_blas_thread() -> None:
    """Let matrix products run in the thread that asks for them, unless the user says otherwise; for
    a process that has not loaded NumPy yet, and its children.

    Ours are of many points with small matrices: threads gain nothing there, and those of OpenBLAS
    wait busily in between, on the processors that the driver and other threads of ours need (16
    processors took 40 s for what they do in 23 s without them).
    """
    if "numpy" not in sys.modules and not any(name in os.environ for name in BLAS_THREADS):
        os.environ.update(dict.fromkeys(BLAS_THREADS, "1"))
