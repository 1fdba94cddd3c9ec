"""The library's own error classes. Everything that Dressi raises on purpose is one of these.

Each message says where (op and the user's file:line), what was needed, what there is, and a hint.
"""

from __future__ import annotations


class DressiError(Exception):
    """Base of all errors raised by Dressi."""


class GraphError(DressiError, ValueError):
    """A graph that cannot be: wrong types, sizes, layers, values or indices."""


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
