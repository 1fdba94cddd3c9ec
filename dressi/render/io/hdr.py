"""Radiance HDR (RGBE) to (H, W, 3) float32 and back: linear, three mantissas share one exponent.

In: the bytes of a file, or pixels. Out: pixels, or bytes. Source: Ward, "Real Pixels", Graphics
Gems II; Radiance's file formats, "Picture". A value is mantissa * 2^(exponent - 136), as image
programs read it; Radiance itself adds half a step to the mantissa.
"""

from __future__ import annotations

import math
import re

import numpy as np
import numpy.typing as npt

MAX_PIXELS = 1 << 27
"""More is a broken header: 128 Mi pixels are 1.5 GB."""

Rgbe = npt.NDArray[np.uint8]


def is_hdr(data: bytes) -> bool:
    """True where the bytes start as a Radiance picture does."""
    return data[:10] == b"#?RADIANCE" or data[:6] == b"#?RGBE"


def decode_hdr(data: bytes) -> npt.NDArray[np.float32]:
    """(H, W, 3) float32, divided by the file's EXPOSURE. Raises ValueError naming the byte."""
    end = data.find(b"\n\n", 0, 65536)
    if end < 0:
        raise ValueError("the header does not end")
    exposure = 1.0
    for line in data[:end].decode("latin-1").split("\n"):
        key, _, value = line.partition("=")
        if key == "FORMAT" and value.strip() != "32-bit_rle_rgbe":
            raise ValueError(f"FORMAT {value.strip()[:40]!r}, only 32-bit_rle_rgbe is supported")
        if key == "EXPOSURE":
            exposure *= float(value)
    if not (math.isfinite(exposure) and exposure > 0.0):
        raise ValueError(f"EXPOSURE is {exposure}")
    stop = data.find(b"\n", end + 2, end + 80)
    size = data[end + 2 : max(stop, 0)].decode("latin-1")
    match = re.fullmatch(r"([-+])Y (\d{1,9}) ([-+])X (\d{1,9})\s*", size)
    if match is None:
        raise ValueError(f"the size {size[:40]!r} is not of the form '-Y height +X width'")
    height, width = int(match[2]), int(match[4])
    if not 0 < height * width <= MAX_PIXELS:
        raise ValueError(f"{width}x{height} pixels, at most {MAX_PIXELS} are read")
    if height * width > 64 * len(data):  # a run says at most 127 bytes in 2
        raise ValueError(f"truncated: {width}x{height} pixels in {len(data)} bytes")
    rgbe = _scanlines(data, stop + 1, height, width)
    rgbe = rgbe[:: 1 if match[1] == "-" else -1, :: 1 if match[3] == "+" else -1]
    scale = np.ldexp(1.0 / exposure, rgbe[..., 3:].astype(np.int32) - 136)
    values = np.where(rgbe[..., 3:] > 0, rgbe[..., :3] * scale, 0.0)
    if values.max() > np.finfo(np.float32).max:
        raise ValueError(f"values up to {values.max():.3g}, beyond float32")
    return values.astype(np.float32)


def _scanlines(data: bytes, at: int, height: int, width: int) -> Rgbe:
    out = np.empty((height, width, 4), np.uint8)
    for y in range(height):
        head = data[at : at + 4]
        if len(head) < 4:
            raise ValueError(f"truncated at byte {len(data)}, in row {y} of {height}")
        if 8 <= width < 32768 and head[:2] == b"\2\2" and head[2] < 128:
            if head[2] * 256 + head[3] != width:
                raise ValueError(f"byte {at}: a row of {head[2] * 256 + head[3]} pixels")
            line, at = _planes(data, at + 4, width)
            out[y] = line.reshape(4, width).T
        else:
            out[y], at = _flat(data, at, width)
    return out


def _planes(data: bytes, at: int, width: int) -> tuple[Rgbe, int]:
    """One row of the newer kind: four planes, each in runs and dumps."""
    line, filled = np.empty(4 * width, np.uint8), 0
    for plane_end in range(width, 4 * width + 1, width):
        while filled < plane_end:
            if at + 2 > len(data):
                raise ValueError(f"truncated at byte {len(data)}")
            n, is_run = data[at], data[at] > 128
            n = n - 128 if is_run else n
            if n == 0 or filled + n > plane_end or (not is_run and at + 1 + n > len(data)):
                raise ValueError(f"byte {at}: {n} values do not fit in the row or the file")
            used = 1 if is_run else n
            line[filled : filled + n] = np.frombuffer(data, np.uint8, used, at + 1)
            filled, at = filled + n, at + 1 + used
    return line, at


def _flat(data: bytes, at: int, width: int) -> tuple[Rgbe, int]:
    """One row of plain pixels, among them runs of the older kind: (1, 1, 1, n) repeats."""
    plain = np.frombuffer(data, np.uint8, min(4 * width, (len(data) - at) // 4 * 4), at)
    pixels = plain.reshape(-1, 4)
    if len(pixels) == width and not (pixels[:, :3] == 1).all(axis=1).any():
        return pixels, at + 4 * width
    line, filled, shift = np.empty((width, 4), np.uint8), 0, 0
    while filled < width:
        pixel = np.frombuffer(data[at : at + 4], np.uint8)
        if len(pixel) < 4:
            raise ValueError(f"truncated at byte {len(data)}")
        is_run = bool((pixel[:3] == 1).all())
        n = int(pixel[3]) << shift if is_run else 1
        if filled + n > width or (is_run and (filled == 0 or shift > 16)):
            raise ValueError(f"byte {at}: a run of {n} pixels does not fit in the row")
        line[filled : filled + n] = line[filled - 1] if is_run else pixel
        filled, at, shift = filled + n, at + 4, shift + 8 if is_run else 0
    return line, at


def encode_hdr(pixels: npt.NDArray[np.floating]) -> bytes:
    """The bytes of a Radiance picture of (H, W, 3) linear values; below 0 becomes 0.

    Relative error at most 2^-8 of the largest of the three. Raises ValueError for values of 2^127
    and more.
    """
    height, width, _ = pixels.shape
    values = np.maximum(np.asarray(pixels, np.float64), 0.0)
    most = values.max(axis=2)
    if most.max() >= 2.0**127:
        raise ValueError(f"values up to {most.max():.3g}, RGBE holds less than 2^127")
    _, exponent = np.frexp(most)
    # Where rounding would carry the largest mantissa to 256, the next exponent takes it.
    exponent = exponent + (np.rint(np.ldexp(most, 8 - exponent)) > 255)
    mantissas = np.rint(np.ldexp(values, (8 - exponent)[..., None]))
    kept = (most > 0.0) & (exponent > -128)
    rgbe = np.zeros((height, width, 4), np.uint8)
    rgbe[..., :3] = np.where(kept[..., None], mantissas, 0)
    rgbe[..., 3] = np.where(kept, exponent + 128, 0)
    head = f"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n\n-Y {height} +X {width}\n".encode()
    if not 8 <= width < 32768:
        return head + rgbe.tobytes()
    # Rows of the newer kind, all dumps: plain pixels could be taken for runs of the older kind.
    planes = rgbe.transpose(0, 2, 1).reshape(height, 4, width)
    parts = [np.full((height, 4, 0), 0, np.uint8)]
    for start in range(0, width, 128):
        piece = planes[..., start : start + 128]
        parts += [np.full((height, 4, 1), piece.shape[2], np.uint8), piece]
    rows = np.concatenate(parts, axis=2).reshape(height, -1)
    mark = np.broadcast_to(np.array([2, 2, width >> 8, width & 255], np.uint8), (height, 4))
    return head + np.concatenate([mark, rows], axis=1).tobytes()
