"""Everything between a mesh and its picture, as builders over ``F``, in rooms by role.

``raster`` (vertices to pixels), ``shading`` (pixels to colours), ``ibl`` (environment maps),
``camera`` (matrices), ``scene`` (meshes and scenes as data), ``fit`` (losses, regularizers,
metrics), ``io`` (files). Every room exports its public names. ``pipeline`` and ``renderer`` compose
them into ``DressiBasicRenderer``. ``gather`` and ``interpolate``, attributes at pixels, are those
of ``raster``. Modules that had their place here before there were rooms are still found under their
old names, with a warning, for one release.
"""

import sys
from typing import TYPE_CHECKING, Any

from dressi.render.old_names import OldNames

if TYPE_CHECKING:
    from dressi.render.raster import gather, interpolate

__all__ = ["gather", "interpolate"]

sys.meta_path.append(OldNames())

if not TYPE_CHECKING:  # a type checker is to find names that do not exist

    def __getattr__(name: str) -> Any:
        """Import a room when a name of it is asked for: rooms import this package."""
        if name in __all__:
            from dressi.render import raster

            return getattr(raster, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
