"""Reading and writing files: images, scenes, meshes and calibrated photo sets.

Every reader raises ``LoadError`` with the file and the place in it; every writer is atomic.
"""

from typing import TYPE_CHECKING, Any

from dressi.render.io.colmap import read_colmap, write_colmap
from dressi.render.io.colmap_data import (
    ColmapCamera,
    ColmapImage,
    ColmapModel,
    ColmapPoints,
    colmap_model,
)
from dressi.render.io.files import load_mesh, load_scene, save_mesh, save_scene, write_glb
from dressi.render.io.gltf import read_gltf
from dressi.render.io.gltf_write import write_gltf
from dressi.render.io.heat import heat_bar, heat_colors
from dressi.render.io.images import (
    atomic_write,
    linear_to_srgb,
    read_image,
    srgb_to_linear,
    write_image,
    write_png,
)
from dressi.render.io.masks import (
    histogram_threshold,
    hull_cells,
    hull_mask,
    photo_mask,
    voxel_centers,
)
from dressi.render.io.middlebury import Photo, load_photos, read_bounding_box, read_par
from dressi.render.io.obj import read_obj
from dressi.render.io.object_masks import ObjectMasks, object_masks
from dressi.render.io.sheet import contact_sheet, loss_curves, write_plot
from dressi.render.io.tfx import read_tfx
from dressi.render.io.transforms import read_transforms, write_transforms
from dressi.render.old_names import moved_function

__all__ = [
    "ColmapCamera",
    "ColmapImage",
    "ColmapModel",
    "ColmapPoints",
    "Photo",
    "atomic_write",
    "colmap_model",
    "contact_sheet",
    "heat_bar",
    "heat_colors",
    "hull_mask",
    "linear_to_srgb",
    "load_mesh",
    "load_photos",
    "load_scene",
    "loss_curves",
    "photo_mask",
    "object_masks",
    "ObjectMasks",
    "histogram_threshold",
    "read_bounding_box",
    "read_colmap",
    "read_gltf",
    "read_image",
    "read_obj",
    "read_par",
    "read_tfx",
    "read_transforms",
    "save_mesh",
    "save_scene",
    "srgb_to_linear",
    "hull_cells",
    "voxel_centers",
    "write_colmap",
    "write_glb",
    "write_gltf",
    "write_image",
    "write_plot",
    "write_png",
    "write_transforms",
]


if not TYPE_CHECKING:  # a type checker is to find names that do not exist

    def __getattr__(name: str) -> Any:
        """Return a function that is an application's now, with a warning."""
        return moved_function(__name__, name)
