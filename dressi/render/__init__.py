"""Everything between a mesh and its picture, as builders over ``F``, in rooms by role.

``raster`` (vertices to pixels), ``shading`` (pixels to colours), ``ibl`` (environment maps),
``camera`` (matrices), ``scene`` (meshes and scenes as data), ``fit`` (losses, regularizers,
metrics), ``io`` (files). All public names of the rooms are found here too, and imported when they
are first used: ``from dressi.render import build_hardsoftras, look_at, icosphere, l2_loss``. Where
two rooms have a name, a builder comes before what works on arrays: ``vertex_normals`` is that of
``shading``, the other one is ``dressi.render.scene.vertex_normals``. ``pipeline`` and ``renderer``
compose them into ``DressiBasicRenderer``. Modules that had their place here before there were rooms
are still found under their old names, with a warning, for one release.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from dressi.render.old_names import OldNames, moved_function

if TYPE_CHECKING:  # the last of two equal names holds
    # isort: off
    from dressi.render.io import *  # noqa: F403
    from dressi.render.scene import *  # noqa: F403
    from dressi.render.camera import *  # noqa: F403
    from dressi.render.fit import *  # noqa: F403
    from dressi.render.shading import *  # type: ignore[assignment]  # noqa: F403
    from dressi.render.ibl import *  # type: ignore[assignment]  # noqa: F403
    from dressi.render.raster import *  # noqa: F403
    from dressi.render.renderer import DressiBasicRenderer  # noqa: F401

# isort: on

sys.meta_path.append(OldNames())

_ROOMS = ("raster", "ibl", "shading", "fit", "camera", "scene", "io")
"""In the order in which a name is looked for."""


def _names() -> list[str]:
    rooms = [importlib.import_module(f"{__name__}.{room}") for room in _ROOMS]
    return sorted({"DressiBasicRenderer"}.union(*(room.__all__ for room in rooms)), key=str.lower)


def __dir__() -> list[str]:
    """Return what the rooms export, and the rooms, for completion."""
    return sorted({*globals(), *_ROOMS, *_names()})


if not TYPE_CHECKING:  # a type checker is to find names that do not exist

    def __getattr__(name: str) -> Any:
        """Import a name when it is first asked for."""
        if name == "__all__":
            return _names()
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in _ROOMS:
            return importlib.import_module(f"{__name__}.{name}")
        if name == "DressiBasicRenderer":
            return importlib.import_module(f"{__name__}.renderer").DressiBasicRenderer
        for room in _ROOMS:
            module = importlib.import_module(f"{__name__}.{room}")
            if name in module.__all__:
                globals()[name] = getattr(module, name)
                return globals()[name]
        return moved_function(__name__, name)
