"""Bits of integers, and masks of one bit per pixel (32 pixels of a row in one INT)."""

from dressi.ad.functions.bits import border_bits, dilate_bits, pack_bits, unpack_bits
from dressi.ad.functions.integer import (
    bit_and,
    bit_count,
    bit_not,
    bit_or,
    bit_xor,
    bits_float,
    find_lsb,
    find_msb,
    float_bits,
    shift_left,
    shift_right,
)

__all__ = [
    "bit_and",
    "bit_count",
    "bit_not",
    "bit_or",
    "bit_xor",
    "bits_float",
    "border_bits",
    "dilate_bits",
    "find_lsb",
    "find_msb",
    "float_bits",
    "pack_bits",
    "shift_left",
    "shift_right",
    "unpack_bits",
]
