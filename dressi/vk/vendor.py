"""Signs of an NVIDIA driver that the Vulkan loader could not load: for messages only.

In: the file system. Out: what to install. The driver's library for Vulkan (libGLX_nvidia, or
libEGL_nvidia) links against glvnd's libGLX or libEGL, which a bare container lacks; then the loader
finds the driver's description, cannot load the library, and says no more than "incompatible".
"""

from __future__ import annotations

import json
from pathlib import Path

from dressi import config

ROOT = Path("/")
_FOLDERS = ("etc/vulkan/icd.d", "usr/local/share/vulkan/icd.d", "usr/share/vulkan/icd.d")
_NODES = ("dev/nvidiactl", "dev/nvidia0")


def nvidia_drivers() -> list[str]:
    """NVIDIA's driver descriptions (ICD files), each with the library that it names."""
    files = [Path(name) for name in config.vulkan_driver_files()]
    for folder in _FOLDERS:
        files += sorted((ROOT / folder).glob("*nvidia*.json"))
    found = []
    for file in dict.fromkeys(files):
        if "nvidia" in file.name.lower() and file.is_file():
            library = _library(file)
            found.append(f"{file} ({library})" if library else str(file))
    return found


def _library(file: Path) -> str:
    """The library that an ICD file names; empty where it cannot be read."""
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["ICD"]["library_path"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def nvidia_hint() -> str:
    """What to install where NVIDIA's driver is there but its libraries cannot be loaded; empty
    where there is no sign of one."""
    drivers = nvidia_drivers()
    nodes = [str(ROOT / node) for node in _NODES if (ROOT / node).exists()]
    if not drivers and not nodes:
        return ""
    there = ", ".join(drivers) or f"{nodes[0]}, but no nvidia_icd.json"
    text = (
        f"an NVIDIA driver is there: {there}. Its libraries need those of EGL and GLX (glvnd): "
        "apt-get install libvulkan1 libegl1 libglx0 libgl1"
    )
    if not drivers:
        text += "; and a container needs NVIDIA_DRIVER_CAPABILITIES=all (or graphics)"
    return text
