"""OpenEXR to (H, W, C) float32 and back, through the OpenEXR library. Values are linear.

In: a path, or pixels. Out: pixels, or bytes. One part with the channels Y or RGB (each
with A or without) or a single one of any name; half and float.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dressi.render.io.hdr import MAX_PIXELS

_MAGIC = b"\x76\x2f\x31\x01"


def is_exr(data: bytes) -> bool:
    """True where the bytes start as an OpenEXR file does."""
    return data[:4] == _MAGIC


def _window(header: dict[str, Any], key: str) -> tuple[int, int, int, int]:
    (x0, y0), (x1, y1) = (tuple(int(v) for v in corner) for corner in header[key])
    if not (x0 <= x1 and y0 <= y1 and (x1 - x0 + 1) * (y1 - y0 + 1) <= MAX_PIXELS):
        raise ValueError(f"{key} from ({x0}, {y0}) to ({x1}, {y1}); {MAX_PIXELS} pixels at most")
    return x0, y0, x1 + 1, y1 + 1


def decode_exr(path: str) -> npt.NDArray[np.float32]:
    """(H, W, C) float32 in the size of the display window, 0 where the file holds no data.

    Raises ValueError, RuntimeError: broken files, several parts, channels of other names, NaN or
    infinite pixels, sizes beyond ``MAX_PIXELS``.
    """
    import OpenEXR  # late: few programs need it

    with contextlib.redirect_stdout(io.StringIO()):  # it prints what it raises
        with OpenEXR.File(path, header_only=True) as file:  # before any memory is taken
            if len(file.parts) != 1:
                raise ValueError(f"{len(file.parts)} parts, one is supported")
            header = file.header()
            shown, held = _window(header, "displayWindow"), _window(header, "dataWindow")
        with OpenEXR.File(path, separate_channels=True) as file:
            channels = {name: channel.pixels for name, channel in file.channels().items()}
    names = sorted(channels)
    order = ["R", "G", "B"] if {"R", "G", "B"} <= set(names) else ["Y"]
    if len(names) == 1:
        order = names
    elif "A" in names:
        order.append("A")
    if sorted(order) != names:
        raise ValueError(f"channels {', '.join(names)}; Y or R, G, B are needed, with A or without")
    size = held[3] - held[1], held[2] - held[0]
    for name in order:
        pixels = channels[name]
        if pixels.shape != size or pixels.dtype.kind != "f":
            raise ValueError(f"channel {name} is {pixels.dtype} {pixels.shape}, not float {size}")
    values = np.stack([channels[name] for name in order], axis=-1).astype(np.float32)
    if not np.isfinite(values).all():
        y, x, c = np.argwhere(~np.isfinite(values))[0]
        raise ValueError(f"pixel (x {x + held[0]}, y {y + held[1]}) is {values[y, x, c]}")
    if held == shown:
        return values
    out = np.zeros((shown[3] - shown[1], shown[2] - shown[0], len(order)), np.float32)
    x0, y0 = max(held[0], shown[0]), max(held[1], shown[1])
    x1, y1 = min(held[2], shown[2]), min(held[3], shown[3])
    if x0 < x1 and y0 < y1:
        inside = values[y0 - held[1] : y1 - held[1], x0 - held[0] : x1 - held[0]]
        out[y0 - shown[1] : y1 - shown[1], x0 - shown[0] : x1 - shown[0]] = inside
    return out


def encode_exr(pixels: npt.NDArray[np.float32]) -> bytes:
    """The bytes of an OpenEXR file of (H, W, 1 to 4) float32 values: exact, ZIP compressed."""
    import OpenEXR

    names = {1: "Y", 2: "YA", 3: "RGB", 4: "RGBA"}[pixels.shape[2]]
    channels = {name: np.ascontiguousarray(pixels[..., i]) for i, name in enumerate(names)}
    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    with tempfile.TemporaryDirectory() as folder:  # the library writes to paths only
        path = Path(folder) / "image.exr"
        OpenEXR.File(header, channels).write(str(path))
        return path.read_bytes()
