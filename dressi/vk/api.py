"""The wall around the ``vulkan`` cffi binding: the only module that imports it.

In: nothing. Out: ``load()`` gives the binding; ``Arena`` builds structs whose pointees stay alive;
``result_name`` names a VkResult. The binding's own Python wrappers are not used: they free structs
that were built from temporaries and hide results; only its cffi ``lib``, ``ffi`` and constants are.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from dressi import config
from dressi.errors import DeviceError
from dressi.vk.vendor import nvidia_hint

CData = Any
"""A cffi object: a Vulkan handle, a struct or a pointer."""

Item = TypeVar("Item")

WHOLE_SIZE = 0xFFFFFFFFFFFFFFFF
"""VK_WHOLE_SIZE; the binding's own constant is -1, which does not convert to an unsigned field."""

_INSTALL = {
    "linux": "apt-get install libvulkan1 mesa-vulkan-drivers (Debian, Ubuntu; software driver), "
    "or the GPU vendor's driver",
    "win32": "a current GPU driver, or the LunarG Vulkan runtime (https://vulkan.lunarg.com)",
    "darwin": "brew install molten-vk vulkan-loader (and, if it is still not found, "
    "export DYLD_FALLBACK_LIBRARY_PATH=$(brew --prefix)/lib)",
}


def install_hint() -> str:
    """What to install on this operating system to get a Vulkan loader and a driver; where there are
    signs of an NVIDIA driver, what that needs to be loaded. Driver files that the environment names
    and that are not there come first."""
    files = config.vulkan_driver_files()
    missing = ", ".join(name for name in files if not Path(name).exists())
    if missing:
        return (
            f"hint: VK_DRIVER_FILES (or VK_ICD_FILENAMES) names {missing}, which is not there: "
            f"correct the path, or unset the variable\n  {_to_install()}"
        )
    return _to_install()


def _to_install() -> str:
    here = _INSTALL.get(sys.platform, _INSTALL["linux"])
    rest = "; ".join(
        f"{name}: {text}"
        for key, name, text in (
            ("linux", "Linux", _INSTALL["linux"]),
            ("win32", "Windows", _INSTALL["win32"]),
            ("darwin", "macOS", _INSTALL["darwin"]),
        )
        if text is not here
    )
    vendor = nvidia_hint()
    if vendor:
        return f"hint: {vendor}\n  without it: install {here}"
    return f"hint: install {here}\n  elsewhere: {rest}"


class Api:
    """The loaded binding: ``ffi``, ``lib`` (the loader's functions) and ``c`` (constants by
    name)."""

    def __init__(self, module: Any) -> None:
        self.ffi: Any = module.ffi
        self.lib: Any = module.lib
        self.c: Any = module
        self.null: CData = module.ffi.NULL
        self.n_instances = 0
        """Instances made so far in this process."""
        self.lock = threading.Lock()
        """Of ``n_instances``."""

    def enumerate(
        self,
        function: CData,
        ctype: str,
        *args: CData,
        read: Callable[[CData], Item],
        call: str = "a Vulkan call",
    ) -> list[Item]:
        """Calls a two-step enumeration function (count, then array).

        Returns what ``read`` makes of each entry, a ``ctype``. An entry lives as long as the call
        (cffi's slices and entries do not keep their array), so ``read`` must copy what it wants.
        call: the function's name. Raises DeviceError with the names of call and result.
        """
        count = self.ffi.new("uint32_t *")
        result = function(*args, count, self.null)
        array = self.ffi.new(f"{ctype}[]", max(count[0], 1))
        if result in (None, 0):
            result = function(*args, count, array)
        if result not in (None, 0, self.c.VK_INCOMPLETE):
            raise DeviceError(
                f"{call} (listing {ctype}) failed: {result_name(self, result)}\n  {install_hint()}"
            )
        return [read(array[i]) for i in range(count[0])]

    def instance_function(self, instance: CData, name: str) -> CData:
        """An extension's function, or None when the loader does not know it."""
        found = self.lib.vkGetInstanceProcAddr(instance, name.encode())
        return None if found == self.null else self.ffi.cast(f"PFN_{name}", found)


@functools.lru_cache(maxsize=1)
def load() -> Api:
    """Imports the binding, which opens the Vulkan loader.

    Raises DeviceError, with what to install, when either is missing.
    """
    try:
        import vulkan
    except ImportError as error:
        raise DeviceError(
            f"the Python package 'vulkan' cannot be imported: {error}\n  hint: pip install vulkan"
        ) from error
    except OSError as error:
        raise DeviceError(f"no Vulkan loader: {error}\n  {install_hint()}") from error
    return Api(vulkan)


@functools.cache
def constant_case(name: str) -> str:
    """``VkImageViewCreateInfo`` or ``ImageViewCreateInfo`` to ``IMAGE_VIEW_CREATE_INFO``."""
    # A word ends before a capital or a digit, and a run of capitals (ID) before the next word.
    ends = r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[A-Z][a-z])"
    words = re.sub(ends, "_", name.removeprefix("Vk")).upper()
    return words.replace(
        "_INT_64", "_INT64_"
    )  # the number is part of a word, as it is not in Features2


@functools.cache
def _structure_type(api: Api, ctype: str) -> int | None:
    value = getattr(api.c, f"VK_STRUCTURE_TYPE_{constant_case(ctype)}", None)
    return None if value is None else int(value)


class Arena:
    """Owner of the structs of one call: everything made here lives as long as the arena.

    cffi does not keep what a struct's pointers point at. So every pointee is made by the arena of
    the call, and the arena is a local variable of the function that makes the call.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._kept: list[CData] = []

    def struct(self, ctype: str, **fields: Any) -> CData:
        """A pointer to a new struct; ``sType`` is set where the struct has one.

        A field takes a number, a handle, a pointer (to a struct or array of this arena), bytes
        (kept as a C string), or a dict for a struct that is embedded. A missing field is zero.
        """
        stype = _structure_type(self._api, ctype)
        if stype is not None:
            fields["sType"] = stype
        for key, value in fields.items():
            if isinstance(value, bytes):
                fields[key] = self.text(value)
        new = self._api.ffi.new(f"{ctype} *", fields)
        self._kept.append(new)
        return new

    def array(self, ctype: str, items: Iterable[Any]) -> CData:
        """A new C array of handles, numbers, dicts, or structs (given as the pointers of
        ``struct``).

        Returns NULL for no items, which is what Vulkan expects then.
        """
        ffi = self._api.ffi
        values = [x[0] if _is_struct_pointer(ffi, x, ctype) else x for x in items]
        if not values:
            return self._api.null
        new = ffi.new(f"{ctype}[]", values)
        self._kept.append(new)
        return new

    def text(self, value: bytes) -> CData:
        """A zero-terminated C string."""
        new = self._api.ffi.new("char[]", value)
        self._kept.append(new)
        return new

    def texts(self, values: Iterable[str]) -> CData:
        """An array of C strings, or NULL when there are none."""
        return self.array("const char *", [self.text(v.encode()) for v in values])


def _is_struct_pointer(ffi: Any, value: Any, ctype: str) -> bool:
    if not isinstance(value, ffi.CData):
        return False
    kind = ffi.typeof(value)
    return bool(kind.kind == "pointer" and kind.item is ffi.typeof(ctype))


def result_name(api: Api, result: int) -> str:
    """``VK_ERROR_DEVICE_LOST`` for -4, and so on; the number where the binding has no name."""
    for name, value in vars(api.c).items():
        if value == result and name.startswith(("VK_ERROR_", "VK_TIMEOUT", "VK_NOT_READY")):
            return name
    return f"VkResult {result}"
