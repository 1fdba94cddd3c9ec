"""16-bit PNG to (H, W, C) uint16 and back; everything else about PNG is Pillow's.

Pillow keeps the low byte of 16-bit grey only and drops it, silently, for RGB, RGBA and grey
with alpha. In: the bytes of a file, or pixels. Out: pixels, or bytes. Source: PNG, third edition.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt
from PIL import Image

_MAGIC = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # colour type -> channels; 3 is palette, at most 8 bits


def is_png16(data: bytes) -> bool:
    """True where the bytes start as a 16-bit PNG does."""
    return data[:8] == _MAGIC and data[12:16] == b"IHDR" and len(data) >= 33 and data[24] == 16


def decode_png16(data: bytes) -> npt.NDArray[np.uint16]:
    """(H, W, C) uint16. Raises ValueError, zlib.error: truncated, bad checksums, interlaced."""
    width, height, _, color_type, _, _, interlace = struct.unpack(">IIBBBBB", data[16:29])
    if interlace or color_type not in _CHANNELS:
        raise ValueError("interlaced 16-bit PNG is not supported; save it without interlacing")
    if width == 0 or height == 0:
        raise ValueError("the image has no pixels")
    if width * height > (Image.MAX_IMAGE_PIXELS or width * height):
        raise ValueError(f"{width}x{height} pixels are more than Pillow's MAX_IMAGE_PIXELS")
    packed, offset, kind = [], 8, b""
    while kind != b"IEND":
        if offset + 12 > len(data):
            raise ValueError(f"truncated at byte {len(data)}")
        (length,), kind = struct.unpack_from(">I", data, offset), data[offset + 4 : offset + 8]
        body = data[offset + 8 : offset + 8 + length]
        checksum = data[offset + 8 + length : offset + 12 + length]
        if struct.pack(">I", zlib.crc32(kind + body)) != checksum:
            raise ValueError(f"bad checksum in the chunk at byte {offset}")
        if kind == b"tRNS":
            raise ValueError("a transparent colour in 16-bit PNG is not supported; use alpha")
        if kind == b"IDAT":
            packed.append(body)
        offset += 12 + length
    step = 2 * _CHANNELS[color_type]
    n_bytes = height * (1 + width * step)
    raw = zlib.decompressobj().decompress(b"".join(packed), n_bytes)
    if len(raw) != n_bytes:
        raise ValueError(f"{len(raw)} bytes of pixels, {n_bytes} needed")
    rows = np.frombuffer(raw, np.uint8).reshape(height, 1 + width * step)
    pixels = _unfilter(rows[:, 0], rows[:, 1:].reshape(height, width, step))
    return np.ascontiguousarray(pixels).view(">u2").astype(np.uint16)


def _unfilter(kinds: npt.NDArray[np.uint8], rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Undo PNG's row filters on (H, W, bytes), one diagonal of pixels at a time.

    Pixel (y, x) needs those on its left, above, and left of above: all on earlier diagonals x + y.
    """
    height, width, step = rows.shape
    if kinds.max() > 4:
        raise ValueError(f"unknown PNG filter {int(kinds.max())}")
    out = np.zeros((height + 1, width + 1, step), dtype=np.int16)
    filters = kinds.astype(np.int16)[:, None]
    for diagonal in range(height + width - 1):
        y = np.arange(max(0, diagonal - width + 1), min(height, diagonal + 1))
        x = diagonal - y
        left, above, corner = out[y + 1, x], out[y, x + 1], out[y, x]
        guess = left + above - corner
        to_left, to_above, to_corner = (np.abs(guess - side) for side in (left, above, corner))
        paeth = np.where(to_above <= to_corner, above, corner)
        paeth = np.where((to_left <= to_above) & (to_left <= to_corner), left, paeth)
        zero = np.zeros_like(left)
        base = np.choose(filters[y], [zero, left, above, (left + above) >> 1, paeth])
        out[y + 1, x + 1] = (rows[y, x] + base) & 255
    return out[1:, 1:].astype(np.uint8)


def encode_png16(pixels: npt.NDArray[np.uint16]) -> bytes:
    """The bytes of a 16-bit PNG of (H, W, 1 to 4) pixels; each row as differences to that above."""
    height, width, channels = pixels.shape
    rows = np.ascontiguousarray(pixels, ">u2").view(np.uint8).reshape(height, -1)
    lines = np.empty((height, 1 + rows.shape[1]), np.uint8)
    lines[:, 0] = 2  # the filter "up"
    lines[0, 1:] = rows[0]
    lines[1:, 1:] = rows[1:] - rows[:-1]  # uint8: it wraps, as PNG wants
    color_type = next(kind for kind, n in _CHANNELS.items() if n == channels)

    def chunk(kind: bytes, body: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + checksum

    head = struct.pack(">IIBBBBB", width, height, 16, color_type, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines.tobytes()))
    return _MAGIC + body + chunk(b"IEND", b"")
