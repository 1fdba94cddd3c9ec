"""``dressi devices`` and ``dressi info``: the Vulkan devices, as text or as JSON."""

from __future__ import annotations

import json
from typing import Any

from dressi import config
from dressi.apps.report import write_json
from dressi.errors import DressiError
from dressi.vk import list_devices, open_device, unique_names
from dressi.vk.profile import measure, on_cpu


def run_devices(json_file: str | None = None) -> list[dict[str, Any]]:
    """Print the devices, a line each, or write them as JSON (``-``: print it), and return them."""
    there = list_devices()
    found = [
        {"index": d.index, "name": name, "type": d.type, "uuid": d.uuid or None}
        for d, name in zip(there, unique_names(there), strict=True)
    ]
    if not _as_json(json_file, found):
        for d in found:
            print(f"{d['index']}  {d['name']}  {d['type']}  UUID {d['uuid'] or 'unknown'}")
    return found


def run_info(json_file: str | None = None) -> list[dict[str, Any]]:
    """Print the devices and their measured speeds, or write them as JSON (``-``: print it), and
    return them."""
    there = list_devices()
    found = []
    for d, name in zip(there, unique_names(there), strict=True):
        one: dict[str, Any] = {
            "index": d.index,
            "name": name,
            "type": d.type,
            "driver": d.driver,
            "vulkan": d.api_version,
            "uuid": d.uuid or None,
        }
        one.update(_measured(d.index))
        found.append(one)
        if json_file is None:
            _print(one)
    _as_json(json_file, found)
    return found


def _measured(index: int) -> dict[str, Any]:
    """Return the profile of a device, and what follows from it."""
    try:
        with open_device(index) as device:
            used = device.profile()
            preset = config.profile_choice() is None and on_cpu(device)
            profile = measure(device) if preset else used
    except DressiError as error:
        return {"error": str(error)}
    if profile is None:
        return {"profile": None}
    speeds = {
        way: {
            "fixed_us": costs.fixed_us,
            "copy_us": costs.copy_us,
            "function_us": costs.function_us,
            "raster_us": costs.raster_us,
        }
        for way, costs in (("passes", profile.graphics), ("dispatches", profile.compute))
    }
    return {
        "profile": speeds,
        "pixels": "dispatches" if used and used.prefers_dispatch(1 << 20) else "passes",
        "triangles": "compute" if used and used.prefers_compute_raster else "graphics",
    }


def _print(d: dict[str, Any]) -> None:
    print(f"{d['index']}  {d['name']}  {d['type']}  driver {d['driver']}  Vulkan {d['vulkan']}")
    print(f"   UUID {d['uuid'] or 'unknown'}")
    if "error" in d:
        print(f"   cannot be opened: {d['error']}")
        return
    if d["profile"] is None:
        print("   no profile (DRESSI_PROFILE=off, or no timestamps): graphics only")
        return
    for way, costs in d["profile"].items():
        print(
            f"   {way:10}  {costs['fixed_us']:.1f} us each; 1024 x 1024 pixels: "
            f"{costs['copy_us']:.0f} us to copy RGBA32F, {costs['function_us']:.2f} us a function; "
            f"{costs['raster_us']:.0f} us for 5000 triangles"
        )
    raster = "the graphics pipeline" if d["triangles"] == "graphics" else "compute"
    print(f"   so: pixels of large images in {d['pixels']}, triangles by {raster}")


def _as_json(json_file: str | None, found: list[dict[str, Any]]) -> bool:
    """Write a list as JSON, if it is asked for; whether it was."""
    if json_file is None:
        return False
    if json_file == "-":
        print(json.dumps({"devices": found}, indent=2))
    else:
        write_json(json_file, {"devices": found})
    return True
