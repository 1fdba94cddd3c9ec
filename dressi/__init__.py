"""Dressi: a differentiable mesh renderer on any Vulkan device.

``Variable`` and ``F`` build a graph; ``DressiAD`` differentiates, packs and runs it.
``DressiBasicRenderer`` renders and fits scenes. ``parallel.DataParallel`` splits views over
devices. ``dressi.render`` has cameras, meshes, rasterizers, shading and losses, ``show`` shows
pictures, meshes and Variables. Each name is imported when it is first used, so importing takes no
time; it works without Vulkan. Making an engine or a renderer opens a device.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dressi import parallel, render
    from dressi.ad import (  # type: ignore[no-redef]  # modules have these names too
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
        NotFiniteError,
        OutOfMemoryError,
        PackingError,
        ShaderError,
        ValidationError,
        scope,
        strict,
    )
    from dressi.packing import Options, plan_text
    from dressi.pictures import show
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
    "NotFiniteError",
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
    "render",
    "show",
    "scope",
    "strict",
    "to_dlpack",
]

_HOMES = (
    "dressi.errors",
    "dressi.ad",
    "dressi.packing",
    "dressi.engine",
    "dressi.engine.dlpack",
    "dressi.pictures",
    "dressi.render.renderer",
)
"""Modules that the names above are of, in the order in which they are asked: each imports those
before it, or nothing that takes time."""

_MODULES = (
    "ad",
    "config",
    "engine",
    "errors",
    "inspect",
    "kinds",
    "packing",
    "parallel",
    "render",
    "vk",
)


def __dir__() -> list[str]:
    """Return what is exported, for completion."""
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # a type checker is to find names that do not exist

    def __getattr__(name: str) -> Any:
        """Import a name when it is first asked for: the renderer's readers take seconds."""
        if name in _MODULES:
            value = importlib.import_module(f"dressi.{name}")
        elif name in __all__:
            homes = (importlib.import_module(home) for home in _HOMES)
            home = next(h for h in homes if name in getattr(h, "__all__", vars(h)))
            value = getattr(home, name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value
