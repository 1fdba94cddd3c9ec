"""Image files to linear float32 arrays and back.

In: PNG, JPEG, TIFF, BMP, TGA, WebP, GIF and PPM (8 bits per channel; PNG and grey TIFF 16 too),
Radiance HDR, OpenEXR. Out: (H, W, C) float32, row 0 on top, colours linear. What a file holds:

- PNG, JPEG and the like: sRGB, unless ``srgb=False`` says that it is data (masks, normal maps).
- HDR and EXR: linear values, any size. ``srgb`` has no meaning for them.

Alpha is never converted. All writing is atomic.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from dressi.ad.precision import holds_levels
from dressi.atomic import atomic_write
from dressi.errors import GraphError, LoadError, warn
from dressi.render.io.exr import decode_exr, encode_exr, is_exr
from dressi.render.io.hdr import decode_hdr, encode_hdr, is_hdr
from dressi.render.io.ktx2 import decode_ktx2, is_ktx2
from dressi.render.io.png16 import decode_png16, encode_png16, is_png16
from dressi.render.io.sources import PathLike, read_file

FloatImage = npt.NDArray[np.float32]

# Not all that Pillow knows: some formats start other programs (EPS).
FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "TGA", "WEBP", "GIF", "PPM")
WRITTEN = (".png", ".jpg", ".jpeg", ".hdr", ".exr")
FEW = 4
"""Images from which on threads decode them."""
_JPEG_QUALITY = 95  # differences are below a step of 8 bits on smooth pictures


def srgb_to_linear(values: npt.ArrayLike) -> FloatImage:
    """Decode sRGB values in [0, 1] (IEC 61966-2-1), any shape; below 0 the linear part goes on."""
    return _decoded(np.asarray(values, dtype=np.float64)).astype(np.float32)


def _decoded(v: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    curve = ((np.maximum(v, 0.0) + 0.055) / 1.055) ** 2.4
    return np.where(v <= 0.04045, v / 12.92, curve)


def linear_to_srgb(values: npt.ArrayLike) -> FloatImage:
    """Encode linear values as sRGB, the inverse of ``srgb_to_linear``."""
    v = np.asarray(values, dtype=np.float64)
    curve = 1.055 * np.maximum(v, 0.0) ** (1.0 / 2.4) - 0.055
    return np.where(v <= 0.0031308, v * 12.92, curve).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Decoded:
    """An image file's pixels. pixels: (H, W, C) float32. bit_depth: 8, 16 or 32 a channel."""

    pixels: FloatImage
    bit_depth: int


def read_image(path: PathLike, srgb: bool = True) -> FloatImage:
    """(H, W, C) float32 linear image; C is 1 grey, 2 grey + alpha, 3 RGB, 4 RGBA.

    path: a file of a format above, told by its content. 8-bit images of any mode (palettes become
    RGB or RGBA) and 16-bit PNG in full depth, both in [0, 1]; HDR and EXR in their own range.
    srgb: decode colours from sRGB; False keeps the file's values, for data that is no colour.
    Rotation tags and colour profiles are ignored: camera calibrations belong to the pixels as
    stored. Raises LoadError: missing, truncated, no image, too many pixels (Pillow's
    MAX_IMAGE_PIXELS), NaN or infinite pixels.
    """
    name, data = os.fspath(path), read_file(path)
    try:
        if is_exr(data):
            return decode_exr(name)
        return decode_image(data, srgb).pixels
    except (MemoryError, ImportError):
        raise
    except Exception as error:  # OpenEXR raises several unrelated classes on broken files
        problem = str(error).replace("not a readable image: ", "")
        text = f"{name}: not a readable image: {problem}"
        raise LoadError(text, name, "image data") from error


def with_colors(pixels: FloatImage) -> FloatImage:
    """Return (H, W, 3 or 4) of (H, W, 1 to 4): grey in three channels, alpha where there is one."""
    if pixels.shape[2] >= 3:
        return pixels
    return np.concatenate([np.repeat(pixels[..., :1], 3, axis=2), pixels[..., 1:]], axis=2)


def decode_image(
    data: bytes, srgb: bool = True, formats: tuple[str, ...] | None = FORMATS
) -> Decoded:
    """As ``read_image``, from the bytes of a file (not of EXR: that is read from paths only).

    formats: those that are allowed, as Pillow names them. Raises LoadError with no file in it.
    """
    with _quiet():
        return _decoded_image(data, srgb, formats)


def decode_images(
    files: Sequence[tuple[bytes, bool]], formats: tuple[str, ...] | None = FORMATS
) -> list[Decoded | LoadError]:
    """``decode_image`` of several files at once, on all cores: (bytes, srgb) each. What is no image
    gives the LoadError in its place. A terminal shows how far it is, if it takes long."""

    def decode(file: tuple[bytes, bool]) -> Decoded | LoadError:
        try:
            return _decoded_image(*file, formats)
        except LoadError as error:
            return error

    if len(files) < FEW:
        with _quiet():
            return [decode(file) for file in files]
    from tqdm import tqdm  # it takes longer to import than few images to decode

    bar = {"total": len(files), "desc": "decoding images", "unit": "image", "leave": False}
    # The filters of warnings belong to the process: they are set around all threads, not in each.
    with _quiet(), ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(tqdm(pool.map(decode, files), **bar, disable=None, delay=1.0))


@contextmanager
def _quiet() -> Iterator[None]:
    """Pillow warns of metadata; what matters is raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def _decoded_image(data: bytes, srgb: bool, formats: tuple[str, ...] | None) -> Decoded:
    try:
        if is_png16(data):
            decoded = Decoded(decode_png16(data).astype(np.float32) / np.float32(65535.0), 16)
        elif is_ktx2(data) and formats is not None and "KTX2" in formats:
            decoded = Decoded(decode_ktx2(data).astype(np.float32) / np.float32(255.0), 8)
        elif is_hdr(data) and formats == FORMATS:
            return Decoded(decode_hdr(data), 32)
        else:
            decoded = _decode(data, formats)
    except MemoryError:
        raise
    except Exception as error:  # Pillow's plugins raise many unrelated classes on broken files
        raise LoadError(f"not a readable image: {error}", "", "image data") from error
    if srgb:
        values = decoded.pixels
        n_colors = values.shape[2] - (values.shape[2] % 2 == 0)
        if decoded.bit_depth == 8:  # 256 powers instead of one for each pixel
            table = srgb_to_linear(np.arange(256, dtype=np.float32) / np.float32(255.0))
            levels = np.rint(values[..., :n_colors] * 255.0).astype(np.uint8)
            values[..., :n_colors] = table[levels]
        else:
            values[..., :n_colors] = srgb_to_linear(values[..., :n_colors])
    return decoded


def _decode(data: bytes, formats: tuple[str, ...] | None) -> Decoded:
    try:
        image: Image.Image = Image.open(io.BytesIO(data), formats=formats)
    except UnidentifiedImageError as error:  # its text names an object in memory
        raise ValueError(f"neither of {', '.join(formats or FORMATS)}, or broken") from error
    image.load()
    if image.mode.startswith("I"):  # 16-bit grey of TIFF and others; convert() would saturate it
        array = np.asarray(image)
        if array.min() < 0 or array.max() > 65535:
            raise ValueError("integer pixels beyond 16 bits")
        return Decoded(np.asarray(array, dtype=np.float32)[..., None] / np.float32(65535.0), 16)
    if image.mode == "F":
        raise ValueError("floating-point pixels are not supported here; use HDR or EXR")
    if image.mode in ("P", "RGB", "L") and "transparency" in image.info:
        image = image.convert("RGBA" if image.mode != "L" else "LA")
    elif image.mode == "1":
        image = image.convert("L")
    elif image.mode not in ("L", "LA", "RGB", "RGBA"):
        image = image.convert("RGBA" if image.mode in ("PA", "La", "RGBa") else "RGB")
    array = np.asarray(image, dtype=np.float32) / np.float32(255.0)
    return Decoded(array[..., None] if array.ndim == 2 else array, 8)


def write_image(
    path: PathLike, image: npt.ArrayLike, srgb: bool = True, bit_depth: int = 8
) -> None:
    """Write an image, atomically, in the format that the name ends in: one of ``WRITTEN``.

    image: (H, W) or (H, W, C). Floats are linear, and so is bool (0 and 1). uint8 and uint16 are
    the levels of a file, 0 to 255 or 65535, encoded already: PNG and JPEG hold them as they are
    (scaled to ``bit_depth``); HDR and EXR hold what ``read_image`` would make of such a PNG.
    PNG: C = 1 to 4, clipped to [0, 1], encoded as sRGB unless ``srgb`` is False; bit_depth 8 or 16.
    JPEG: the same for C = 1 or 3, 8 bits, lossy. HDR: C = 1 or 3, values as they are, below 0
    becomes 0, 8 bits and an exponent. EXR: C = 1 to 4, float32 exactly. Raises GraphError (name,
    shape, other types, NaN, infinite values in HDR and EXR), OSError.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in WRITTEN:
        raise GraphError(f"write_image: {Path(path).name}: one of {', '.join(WRITTEN)} is needed")
    if suffix == ".png":
        data = encode_png(image, srgb, bit_depth)
    elif suffix in (".jpg", ".jpeg"):
        data = _encode_jpeg(image, srgb)
    else:
        values = _checked(image, "write_image", (1, 3) if suffix == ".hdr" else (1, 2, 3, 4))
        values = _linear(values, np.asarray(image).dtype, srgb)
        if not np.isfinite(values).all() or np.abs(values).max() > np.finfo(np.float32).max:
            y, x, _ = np.argwhere(~(np.abs(values) <= np.finfo(np.float32).max))[0]
            raise GraphError(f"write_image: pixel (x {x}, y {y}) is infinite or beyond float32")
        if suffix == ".exr":
            data = encode_exr(values.astype(np.float32))
        else:
            try:
                data = encode_hdr(np.repeat(values, 3 // values.shape[2], axis=2))
            except ValueError as error:
                raise GraphError(f"write_image: {error}") from error
    atomic_write(path, data)


def write_png(path: PathLike, image: npt.ArrayLike, srgb: bool = True) -> None:
    """Write an 8-bit PNG, atomically.

    image: (H, W) or (H, W, C), C = 1 to 4, linear, clipped to [0, 1]; bool counts as 0 and 1, uint8
    and uint16 are levels (``write_image``). srgb: encode colours as sRGB; False writes the values
    as they are (masks, data). Raises GraphError (shape, type, NaN), OSError.
    """
    atomic_write(path, encode_png(image, srgb))


def are_levels(dtype: np.dtype[Any]) -> bool:
    """True for uint8 and uint16, of any byte order: levels of a file, not linear values."""
    return dtype.kind == "u" and dtype.itemsize <= 2


def _checked(
    image: npt.ArrayLike, who: str, channels: tuple[int, ...] = (1, 2, 3, 4)
) -> npt.NDArray[np.float64]:
    """(H, W, C) float64; levels are divided by the most of their type. GraphError for another type
    or shape, or NaN."""
    given = np.asarray(image)
    if given.dtype.kind not in "fb" and not are_levels(given.dtype):
        raise GraphError(
            f"{who} cannot tell what is white in {given.dtype}: give floats (linear, 1 is white), "
            "bool, uint8 (0 to 255, sRGB) or uint16 (0 to 65535)"
        )
    array = given.astype(np.float64)
    if are_levels(given.dtype):
        array /= np.iinfo(given.dtype).max
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[2] not in channels or array.size == 0:
        wanted = "1 to 4" if len(channels) == 4 else " or ".join(map(str, channels))
        raise GraphError(f"{who} needs (H, W) or (H, W, {wanted}), got {np.shape(image)}")
    if np.isnan(array).any():
        y, x, _ = np.argwhere(np.isnan(array))[0]
        raise GraphError(f"{who}: pixel (x {x}, y {y}) is NaN")
    return array


def _linear(
    values: npt.NDArray[np.float64], dtype: np.dtype[Any], srgb: bool
) -> npt.NDArray[np.float64]:
    """Values of ``_checked`` as linear ones: the colours among levels are decoded."""
    if not srgb or not are_levels(dtype):
        return values
    n_colors = values.shape[2] - (values.shape[2] % 2 == 0)
    return np.concatenate([_decoded(values[..., :n_colors]), values[..., n_colors:]], axis=2)


def _levels(array: npt.NDArray[np.float64], srgb: bool, most: int) -> npt.NDArray[np.uint16]:
    """The nearest of the levels 0 to ``most`` for each value, clipped to [0, 1]."""
    levels = np.empty(array.shape, np.uint16)
    n_colors = array.shape[2] - (array.shape[2] % 2 == 0) if srgb else 0
    # A search among the values between two levels is five times as fast as a power per pixel.
    between = _decoded((np.arange(most) + 0.5) / most)
    levels[..., :n_colors] = np.searchsorted(between, array[..., :n_colors])
    levels[..., n_colors:] = np.rint(np.clip(array[..., n_colors:], 0.0, 1.0) * most)
    return levels


def encode_png(image: npt.ArrayLike, srgb: bool = True, bit_depth: int = 8) -> bytes:
    """The bytes that ``write_png`` writes; bit_depth: 8 or 16. Raises GraphError."""
    if bit_depth not in (8, 16):
        raise GraphError(f"write_png: bit_depth is {bit_depth}, it must be 8 or 16")
    values = _checked(image, "write_png")
    srgb = srgb and not are_levels(np.asarray(image).dtype)  # levels are encoded already
    if np.asarray(image).dtype.kind == "f" and holds_levels(values):
        warn(
            f"write_png: whole numbers up to {values.max():g} are clipped to 1, white\n"
            "  hint: image.astype(numpy.uint8) has levels; image / 255.0 with srgb=False"
        )
    if bit_depth == 16:
        return encode_png16(_levels(values, srgb, 65535))
    return _save(_levels(values, srgb, 255), "PNG", {})


def _encode_jpeg(image: npt.ArrayLike, srgb: bool) -> bytes:
    srgb = srgb and not are_levels(np.asarray(image).dtype)
    levels = _levels(_checked(image, "write_image", (1, 3)), srgb, 255)
    return _save(levels, "JPEG", {"quality": _JPEG_QUALITY, "subsampling": 0})


def _save(levels: npt.NDArray[np.uint16], kind: str, options: dict[str, int]) -> bytes:
    pixels = levels.astype(np.uint8)
    stream = io.BytesIO()
    flat = pixels[..., 0] if pixels.shape[2] == 1 else pixels
    Image.fromarray(flat).save(stream, format=kind, **options)
    return stream.getvalue()
