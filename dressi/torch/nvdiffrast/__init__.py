"""nvdiffrast's public interface, by its documented names and meanings, on any Vulkan device.

In and out: torch tensors. Every call is a compiled plan per shapes and options, which is built by
the first call and kept. ``python -m dressi.torch script.py`` runs a script that imports
``nvdiffrast.torch`` on this. Written from the documentation (https://nvlabs.github.io/nvdiffrast)
and the paper (Laine et al. 2020, "Modular Primitives for High-Performance Differentiable
Rendering").
"""

from dressi.torch.nvdiffrast.antialias import antialias, antialias_construct_topology_hash
from dressi.torch.nvdiffrast.contexts import (
    RasterizeCudaContext,
    RasterizeGLContext,
    get_log_level,
    set_log_level,
)
from dressi.torch.nvdiffrast.interpolate import interpolate
from dressi.torch.nvdiffrast.rasterize import DepthPeeler, rasterize
from dressi.torch.nvdiffrast.texture import texture, texture_construct_mip

__all__ = [
    "DepthPeeler",
    "RasterizeCudaContext",
    "RasterizeGLContext",
    "antialias",
    "antialias_construct_topology_hash",
    "get_log_level",
    "interpolate",
    "rasterize",
    "set_log_level",
    "texture",
    "texture_construct_mip",
]
