"""Reading and writing files: images, OBJ, GLB and calibrated photo sets.

Every reader raises ``LoadError`` with the file and the place in it; every writer is atomic.
"""

from dressi.render.io.glb import write_glb
from dressi.render.io.images import (
    atomic_write,
    linear_to_srgb,
    read_image,
    srgb_to_linear,
    write_png,
)
from dressi.render.io.middlebury import Photo, load_photos, read_bounding_box, read_par
from dressi.render.io.obj import read_obj

__all__ = [
    "Photo",
    "atomic_write",
    "linear_to_srgb",
    "load_photos",
    "read_bounding_box",
    "read_image",
    "read_obj",
    "read_par",
    "srgb_to_linear",
    "write_glb",
    "write_png",
]
