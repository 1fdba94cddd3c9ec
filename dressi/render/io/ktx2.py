"""KTX2 files with Basis Universal pictures (ETC1S, UASTC), as glTF's textures have them.

In: bytes of a file. Out: (H, W, 3 or 4) uint8, row 0 on top. opengl_basisu is an extra.
"""

from __future__ import annotations

import importlib

import numpy as np
import numpy.typing as npt
from PIL import Image

MAGIC = b"\xabKTX 20\xbb\r\n\x1a\n"


def is_ktx2(data: bytes) -> bool:
    """Whether these are the bytes of a KTX2 file."""
    return data.startswith(MAGIC)


def decode_ktx2(data: bytes) -> npt.NDArray[np.uint8]:
    """Return the largest level of a picture as its levels of 8 bits, with alpha where it has some.

    Raises ValueError: broken, more pixels than Pillow's MAX_IMAGE_PIXELS, several pictures in one
    file, no picture of 8 bits by Basis. Source: KHR_texture_basisu.
    """
    parse = importlib.import_module("opengl_basisu").open  # takes bytes, opens no file
    texture = parse(data)
    if texture.faces * texture.layers != 1:
        raise ValueError(f"{texture.faces} faces and {texture.layers} layers, not one picture")
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and texture.width * texture.height > limit:
        raise ValueError(f"{texture.width} x {texture.height} pixels are more than {limit}")
    pixels = np.asarray(texture.transcode("rgba8").data, np.uint8)
    return pixels if texture.has_alpha else np.ascontiguousarray(pixels[..., :3])
