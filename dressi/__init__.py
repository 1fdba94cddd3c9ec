"""Dressi: a differentiable mesh renderer on any Vulkan device.

``Variable`` and ``F`` build a graph; ``DressiAD`` differentiates, packs and runs it.
``DressiBasicRenderer`` renders and fits scenes. ``parallel.DataParallel`` splits views over
devices. Importing works without Vulkan; making one of the latter three opens a device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dressi import parallel
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
    GradientClipping,
    GradientOnly,
    Momentum,
    ParameterGroups,
    Variable,
    VType,
    evaluate,
    explain,
    gradcheck,
    graph_text,
)
from dressi.engine import DressiAD
from dressi.engine.dlpack import from_dlpack, to_dlpack
from dressi.errors import (
    DeviceError,
    DeviceLostError,
    DressiError,
    DressiWarning,
    GraphError,
    LoadError,
    OutOfMemoryError,
    PackingError,
    ShaderError,
    ValidationError,
)
from dressi.packing import Options, plan_text

if TYPE_CHECKING:
    from dressi.render.renderer import DressiBasicRenderer

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
    "DressiBasicRenderer",
    "DressiError",
    "DressiWarning",
    "F",
    "GradientClipping",
    "GradientOnly",
    "GraphError",
    "LoadError",
    "Momentum",
    "Options",
    "OutOfMemoryError",
    "PackingError",
    "ParameterGroups",
    "ShaderError",
    "VType",
    "ValidationError",
    "Variable",
    "evaluate",
    "explain",
    "from_dlpack",
    "gradcheck",
    "graph_text",
    "parallel",
    "plan_text",
    "to_dlpack",
]

if not TYPE_CHECKING:  # a type checker is to find names that do not exist

    def __getattr__(name: str) -> Any:
        """Import the renderer when it is asked for: readers of files take seconds to import."""
        if name == "DressiBasicRenderer":
            from dressi.render.renderer import DressiBasicRenderer

            return DressiBasicRenderer
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
