"""Modules of dressi.render under the names that they had before there were rooms.

In: an import of an old name, such as ``dressi.render.mesh``. Out: the module under its new name,
``dressi.render.scene.mesh``, and a DeprecationWarning. To be removed after one release.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType

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
