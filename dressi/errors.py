"""The library's own errors and warnings. Everything that Dressi raises on purpose is one of these.

Each message says where (op and the user's file:line), what was needed, what there is, and a hint.
``user_line`` finds that line; a GraphError whose message does not name it gets it added.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import warnings
from typing import TYPE_CHECKING

from dressi import config

if TYPE_CHECKING:
    from types import FrameType

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARIES = ("dressi", "numpy", "scipy", "torch")
"""No line in these is the user's: Dressi calls the others, and they call what it defines."""


_FUNCTION = re.compile(r"[A-Za-z_][\w.]*")


class _Origins(threading.local):
    """Stacks of each thread: while a backward is built, the forward function's line; names of open
    scopes, and how many lines were open before."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.scopes: list[tuple[str, int]] = []


_origins = _Origins()


def user_line() -> str:
    """file:line of the innermost frame outside the library (in a backward: of the forward op), and
    the open scope, if any, in brackets: ``scene.py:12 [hair]``."""
    line = _origins.lines[-1] if _origins.lines else _line(_call()[1])
    if _origins.scopes and _origins.scopes[-1][1] == len(_origins.lines):
        return f"{line} [{_origins.scopes[-1][0]}]"
    return line  # of a forward op, with the scope that was open then


class scope:
    """``with scope("hair"):`` names what is built inside, a material or an effect.

    Functions made while it is open, and those of their backward, carry the name: messages and dumps
    show it, and ``ad.report()`` sums up stages by it. Within another scope the inner name holds.
    Raises GraphError for a name that is no text, is empty, or has brackets or line breaks.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name.strip() or re.search(r"[\[\]\n\r]", name):
            raise GraphError(f"scope: name must be a line of text without brackets, got {name!r}")
        self.name = name

    def __enter__(self) -> None:
        _origins.scopes.append((self.name, len(_origins.lines)))

    def __exit__(self, *_: object) -> None:
        _origins.scopes.pop()


_SCOPED = re.compile(r" \[([^\[\]]+)\]$")


def scope_of(line: str) -> str | None:
    """Return the scope that ``user_line`` has put into a line, None without one."""
    found = _SCOPED.search(line)
    return found.group(1) if found else None


class origin:
    """While open, Functions and Variables made carry this line (backward of a user's op)."""

    __slots__ = ("line",)

    def __init__(self, line: str) -> None:
        self.line = line

    def __enter__(self) -> None:
        _origins.lines.append(self.line)

    def __exit__(self, *_: object) -> None:
        _origins.lines.pop()


def _call() -> tuple[FrameType, FrameType]:
    """The frame of the library's function that the user called, and the user's."""
    called = frame = sys._getframe(1)
    while _is_ours(frame) and frame.f_back is not None:
        called, frame = frame, frame.f_back
    return called, frame


def called_file() -> str:
    """File of the library's function that the user called."""
    return _call()[0].f_code.co_filename


def _line(frame: FrameType) -> str:
    return f"{_file(frame)}:{frame.f_lineno}"


def _file(frame: FrameType) -> str:
    """Name of a frame's file without its folder; of a notebook's cell what the notebook shows."""
    path = frame.f_code.co_filename
    if "ipykernel_" in path or path.startswith("<ipython-input-"):
        cell = _cell_number(path)
        if cell is not None:
            return f"In [{cell}]"
    return os.path.basename(path)


def _cell_number(path: str) -> int | None:
    """Number of the cell that IPython compiled under this name; None where it does not tell."""
    shell_class = getattr(
        sys.modules.get("IPython.core.interactiveshell"), "InteractiveShell", None
    )
    if shell_class is None or not shell_class.initialized():
        return None
    numbers = getattr(shell_class.instance().compile, "_filename_map", {})  # it has no other table
    number = numbers.get(path)
    return number if isinstance(number, int) else None


def _name(frame: FrameType) -> str:
    """Name of a frame's function, with the class of a method; of a constructor the class; of a
    wrapper (``engine.checks.exclusive``) what it wraps."""
    name, owner = frame.f_code.co_name, frame.f_locals.get("self")
    if "method" in frame.f_code.co_freevars:
        name = getattr(frame.f_locals.get("method"), "__name__", name)
    if owner is None:
        return name
    of = type(owner).__name__
    return of if name in ("__init__", "__post_init__") else f"{of}.{name}"


def _is_ours(frame: FrameType) -> bool:
    # By name too: the __init__ of a dataclass is compiled from a string, but runs in its module.
    module = str(frame.f_globals.get("__name__"))
    return frame.f_code.co_filename.startswith(_PACKAGE) or module.partition(".")[0] in _LIBRARIES


class DressiWarning(UserWarning):
    """Something that is possible, but most likely not meant. ``strict`` makes it an error."""


class strict:
    """Raise GraphError where a DressiWarning would be issued: ``strict()`` from here on,
    ``with strict():`` in a block, ``strict(False)`` to warn again. All threads. ``DRESSI_STRICT=1``
    does it for a whole program."""

    def __init__(self, on: bool = True) -> None:
        self._before = config.strict()
        config.set_strict(bool(on))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        config.set_strict(self._before)


def warn(message: str) -> None:
    """Issue a DressiWarning at the user's line; Python shows it once per line. With ``strict`` on,
    raise a GraphError of the same words."""
    if config.strict():
        raise GraphError(message)
    frame = _call()[1]
    warnings.warn_explicit(
        message,
        DressiWarning,
        file if (file := _file(frame)).startswith("In [") else frame.f_code.co_filename,
        frame.f_lineno,
        str(frame.f_globals.get("__name__")),
        frame.f_globals.setdefault("__warningregistry__", {}),
    )


class DressiError(Exception):
    """Base of all errors raised by Dressi."""


class GraphError(DressiError, ValueError):
    """A graph that cannot be: wrong types, sizes, layers, values or indices.

    ``reason`` is the message as given. What is shown names the user's line: behind the name of the
    function that the message begins with ("texture: needs ..."), or on a second line with the name
    of the function that was called, unless the message names it.
    """

    def __init__(self, reason: str) -> None:
        called, user = _call()
        line = _origins.lines[-1] if _origins.lines else _line(user)
        super().__init__(reason)
        self.reason = reason
        self._line, self._called = "" if line in reason else line, _name(called)

    def __str__(self) -> str:
        head, colon, rest = self.reason.partition(": ")
        if not self._line:
            return self.reason
        if colon and _FUNCTION.fullmatch(head):
            return f"{head} at {self._line}: {rest}"
        return f"{self.reason}\n  in {self._called} at {self._line}"


class NotFiniteError(DressiError, ArithmeticError):
    """NaN or infinity that a step made, where the data that it began with were finite."""


class PackingError(DressiError):
    """A function that no shader of the device can hold."""


class ShaderError(DressiError):
    """GLSL that does not compile, or no compiler to be found."""


class DeviceError(DressiError):
    """No Vulkan loader, driver or fitting device, or a failed Vulkan call."""


class DeviceLostError(DeviceError):
    """The device stopped answering; the engine cannot be used any more."""


class ValidationError(DeviceError):
    """Messages of the Vulkan validation layers (DRESSI_VALIDATE=1)."""


class OutOfMemoryError(DressiError, MemoryError):
    """An allocation that cannot be had. ``needed`` and ``available`` are bytes."""

    def __init__(self, message: str, needed: int = 0, available: int = 0) -> None:
        super().__init__(message)
        self.needed = needed
        self.available = available


class LoadError(DressiError, ValueError):
    """A file that cannot be read. ``file`` is its path, ``where`` the place in it."""

    def __init__(self, message: str, file: str = "", where: str = "") -> None:
        super().__init__(message)
        self.file = file
        self.where = where
