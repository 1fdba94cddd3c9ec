"""Modules and functions of dressi.render under the names that they had before.

In: an import of an old name, such as ``dressi.render.mesh``. Out: the module under its new name,
``dressi.render.scene.mesh``, and a DeprecationWarning. Functions that make pages are those of an
application now. To be removed after one release.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any

PACKAGE = "dressi.render."

MOVED = {
    "antialias": "raster.antialias",
    "batch": "raster.batch",
    "blend": "raster.blend",
    "camera_convert": "camera.convert",
    "camera_pytorch3d": "camera.pytorch3d",
    "clip": "raster.clip",
    "conservative": "raster.conservative",
    "dissection": "fit.dissection",
    "distance": "raster.distance",
    "distortion": "camera.distortion",
    "enlarge": "raster.enlarge",
    "eye": "camera.eye",
    "far": "camera.far",
    "hardsoftras": "raster.hardsoftras",
    "lens": "camera.lens",
    "losses": "fit.losses",
    "masks": "io.masks",
    "mesh": "scene.mesh",
    "metrics": "fit.metrics",
    "neural": "shading.neural",
    "pear": "scene.pear",
    "pose": "camera.pose",
    "ranges": "shading.values",
    "regularizers": "fit.regularizers",
    "scene_checks": "scene.checks",
    "scene_compare": "scene.compare",
    "scene_flat": "scene.flat",
    "scene_mesh": "scene.convert",
    "sheet": "io.sheet",
    "strokes": "raster.strokes",
    "texture_detail": "shading.texture_detail",
    "topology": "raster.topology",
    "weights": "raster.weights",
}
"""Old name of a module -> its room and its new name. ``camera``, ``scene`` and ``raster`` are rooms
now, which export what those modules held. No name of a function of the package is here: Python puts
an imported module in the place of the function (``project``, ``weld``, ``remesh``...).
"""

PAGES = "dressi.apps.page"
MOVED_FUNCTIONS = {"write_report": PAGES, "svg_curves": PAGES}
"""Old name of a function of ``io`` -> the module that has it. Imported by name when asked for: the
library depends on no application."""


def moved_function(module: str, name: str) -> Any:
    """Return a function of ``io`` under its old place, with a DeprecationWarning. module: where it
    was asked for. Raises AttributeError for a name that never was there."""
    if name not in MOVED_FUNCTIONS:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    new = MOVED_FUNCTIONS[name]
    message = f"{module}.{name} is now {new}.{name}"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    return getattr(importlib.import_module(new), name)


class OldNames(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module under its old name. Asked last, only for what is found nowhere else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec when the name is an old one, None otherwise."""
        if not fullname.startswith(PACKAGE) or fullname.removeprefix(PACKAGE) not in MOVED:
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Leave the making of an empty module to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the module under its new name in its place, so that both names share one module."""
        new = PACKAGE + MOVED[module.__name__.removeprefix(PACKAGE)]
        room = new.rpartition(".")[0]
        message = f"{module.__name__} is now {new}; its public names are those of {room}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        sys.modules[module.__name__] = importlib.import_module(new)
