"""Layers and activations of small networks."""

from dressi.ad.functions.activations import elu, gelu, leaky_relu, positional_encoding, relu, silu
from dressi.ad.functions.neural import conv2d, dense
from dressi.ad.functions.stable import log_sigmoid

__all__ = [
    "conv2d",
    "dense",
    "elu",
    "gelu",
    "leaky_relu",
    "log_sigmoid",
    "positional_encoding",
    "relu",
    "silu",
]
