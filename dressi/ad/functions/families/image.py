"""Images as pictures: neighbours, blurs, morphology, resampling, mip levels, colour spaces."""

from dressi.ad.functions.color import linear_to_srgb, srgb_to_linear
from dressi.ad.functions.image import border, dilate
from dressi.ad.functions.mipmap import MipMap, mip_levels, mipmap
from dressi.ad.functions.neighbors import (
    box_blur,
    convolve,
    erode,
    gaussian_blur,
    image_gradient,
    laplacian,
    shift,
)
from dressi.ad.functions.resize import resize
from dressi.ad.functions.shrink import shrink
from dressi.ad.functions.texture_from import sampler_code
from dressi.ad.functions.texture_table import TextureTable, table_size, texture_table

__all__ = [
    "MipMap",
    "TextureTable",
    "border",
    "box_blur",
    "convolve",
    "dilate",
    "erode",
    "gaussian_blur",
    "image_gradient",
    "laplacian",
    "linear_to_srgb",
    "mip_levels",
    "mipmap",
    "resize",
    "sampler_code",
    "shift",
    "shrink",
    "srgb_to_linear",
    "table_size",
    "texture_table",
]
