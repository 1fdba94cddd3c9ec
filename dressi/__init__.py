"""Dressi: a differentiable mesh renderer on any Vulkan device.

``Variable`` and ``F`` build a graph; ``DressiAD`` differentiates, packs and runs it. Importing
works without Vulkan; making a ``DressiAD`` opens a device.
"""

from dressi.ad import (
    FLOAT,
    INT,
    IVEC2,
    IVEC3,
    IVEC4,
    MAT2,
    MAT3,
    MAT4,
    SGD,
    VEC2,
    VEC3,
    VEC4,
    Adam,
    AdamUniform,
    F,
    Momentum,
    Variable,
    VType,
    evaluate,
    explain,
    gradcheck,
    graph_text,
)
from dressi.engine import DressiAD
from dressi.errors import (
    DeviceError,
    DeviceLostError,
    DressiError,
    GraphError,
    LoadError,
    OutOfMemoryError,
    PackingError,
    ShaderError,
    ValidationError,
)
from dressi.packing import Options, plan_text

__version__ = "0.1.0"

__all__ = [
    "FLOAT",
    "INT",
    "IVEC2",
    "IVEC3",
    "IVEC4",
    "MAT2",
    "MAT3",
    "MAT4",
    "SGD",
    "VEC2",
    "VEC3",
    "VEC4",
    "Adam",
    "AdamUniform",
    "DeviceError",
    "DeviceLostError",
    "DressiAD",
    "DressiError",
    "F",
    "GraphError",
    "LoadError",
    "Momentum",
    "Options",
    "OutOfMemoryError",
    "PackingError",
    "ShaderError",
    "VType",
    "ValidationError",
    "Variable",
    "evaluate",
    "explain",
    "gradcheck",
    "graph_text",
    "plan_text",
]
