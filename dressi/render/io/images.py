"""Image files to linear float32 arrays and back.

In: PNG, JPEG and whatever else Pillow opens. Out: (H, W, C) float32, row 0 on top, colours linear.
Files are taken to hold sRGB values unless ``srgb=False`` (masks, normal maps); alpha is never
converted.
"""

from __future__ import annotations

import io
import os
import secrets
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from dressi.errors import GraphError, LoadError

PathLike = str | os.PathLike[str]
FloatImage = npt.NDArray[np.float32]

_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_PNG_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # colour type -> channels; 3 is palette, at most 8 bits


def srgb_to_linear(values: npt.ArrayLike) -> FloatImage:
    """Decode sRGB values in [0, 1] (IEC 61966-2-1), any shape; below 0 the linear part goes on."""
    v = np.asarray(values, dtype=np.float64)
    curve = ((np.maximum(v, 0.0) + 0.055) / 1.055) ** 2.4
    return np.where(v <= 0.04045, v / 12.92, curve).astype(np.float32)


def linear_to_srgb(values: npt.ArrayLike) -> FloatImage:
    """Encode linear values as sRGB, the inverse of ``srgb_to_linear``."""
    v = np.asarray(values, dtype=np.float64)
    curve = 1.055 * np.maximum(v, 0.0) ** (1.0 / 2.4) - 0.055
    return np.where(v <= 0.0031308, v * 12.92, curve).astype(np.float32)


def atomic_write(path: PathLike, data: bytes) -> None:
    """Write a file so that a crash or a full disk leaves the old file or the new one, never a part.

    The bytes go to a temporary file beside ``path``, are synced, then renamed. Raises OSError.
    """
    target = Path(path)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(beside, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def read_image(path: PathLike, srgb: bool = True) -> FloatImage:
    """(H, W, C) float32 linear image in [0, 1]; C is 1 grey, 2 grey + alpha, 3 RGB, 4 RGBA.

    path: 8-bit images of any Pillow mode (palettes become RGB or RGBA) and 16-bit PNG in full
    depth. srgb: decode colours from sRGB; False keeps the file's values, for data that is no
    colour. Rotation tags are ignored: camera calibrations belong to the pixels as stored.
    Raises LoadError: missing, truncated, or no image.
    """
    name = os.fspath(path)
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise LoadError(f"{name}: cannot be read: {error.strerror or error}", name) from error
    try:
        deep = _png_16(data)
        values = _decode_8(data) if deep is None else deep
    except (LoadError, MemoryError):
        raise
    except Exception as error:  # Pillow's plugins raise many unrelated classes on broken files
        raise LoadError(f"{name}: not a readable image: {error}", name, "image data") from error
    if srgb:
        n_colors = values.shape[2] - (values.shape[2] % 2 == 0)
        values[..., :n_colors] = srgb_to_linear(values[..., :n_colors])
    return values


def _decode_8(data: bytes) -> FloatImage:
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        image: Image.Image = Image.open(io.BytesIO(data))
        image.load()
    if image.mode.startswith("I"):  # 16-bit grey of TIFF and others; convert() would saturate it
        array = np.asarray(image)
        if array.min() < 0 or array.max() > 65535:
            raise ValueError("integer pixels beyond 16 bits")
        return np.asarray(array, dtype=np.float32)[..., None] / np.float32(65535.0)
    if image.mode == "F":
        raise ValueError("floating-point pixels are not supported here")
    if image.mode in ("P", "RGB", "L") and "transparency" in image.info:
        image = image.convert("RGBA" if image.mode != "L" else "LA")
    elif image.mode == "1":
        image = image.convert("L")
    elif image.mode not in ("L", "LA", "RGB", "RGBA"):
        image = image.convert("RGBA" if image.mode in ("PA", "La", "RGBa") else "RGB")
    array = np.asarray(image, dtype=np.float32) / np.float32(255.0)
    return array[..., None] if array.ndim == 2 else array


def _png_16(data: bytes) -> FloatImage | None:
    """Values in [0, 1] of a 16-bit PNG, or None for anything else.

    Pillow keeps the low byte of grey only and drops it, silently, for RGB, RGBA and grey + alpha.
    """
    if data[:8] != _PNG_MAGIC or len(data) < 33 or data[24] != 16:
        return None
    width, height, _, color_type, _, _, interlace = struct.unpack(">IIBBBBB", data[16:29])
    if interlace or color_type not in _PNG_CHANNELS:
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
        if kind == b"IDAT":
            packed.append(body)
        offset += 12 + length
    step = 2 * _PNG_CHANNELS[color_type]
    n_bytes = height * (1 + width * step)
    raw = zlib.decompressobj().decompress(b"".join(packed), n_bytes)
    if len(raw) != n_bytes:
        raise ValueError(f"{len(raw)} bytes of pixels, {n_bytes} needed")
    rows = np.frombuffer(raw, np.uint8).reshape(height, 1 + width * step)
    pixels = _png_unfilter(rows[:, 0], rows[:, 1:].reshape(height, width, step))
    values = np.ascontiguousarray(pixels).view(">u2").astype(np.float32)
    return values / np.float32(65535.0)


def _png_unfilter(
    kinds: npt.NDArray[np.uint8], rows: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
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


def write_png(path: PathLike, image: npt.ArrayLike, srgb: bool = True) -> None:
    """Write an 8-bit PNG, atomically.

    image: (H, W) or (H, W, C), C = 1 to 4, linear, clipped to [0, 1]; bool counts as 0 and 1.
    srgb: encode colours as sRGB; False writes the values as they are (masks, data).
    Raises GraphError (shape, NaN), OSError.
    """
    atomic_write(path, encode_png(image, srgb))


def encode_png(image: npt.ArrayLike, srgb: bool = True) -> bytes:
    """The bytes that ``write_png`` writes."""
    array = np.asarray(image, dtype=np.float64)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or not 1 <= array.shape[2] <= 4 or array.size == 0:
        raise GraphError(f"write_png needs (H, W) or (H, W, 1 to 4), got {np.shape(image)}")
    if np.isnan(array).any():
        y, x, _ = np.argwhere(np.isnan(array))[0]
        raise GraphError(f"write_png: pixel (x {x}, y {y}) is NaN")
    values = np.clip(array, 0.0, 1.0)
    if srgb:
        n_colors = values.shape[2] - (values.shape[2] % 2 == 0)
        values[..., :n_colors] = linear_to_srgb(values[..., :n_colors])
    pixels = np.rint(values * 255.0).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(stream, format="PNG")
    return stream.getvalue()
