"""Rasterization as builders over F: from vertices and faces to pixels, with gradients.

hardsoftras (soft, peeled, gradients far from outlines), hard (what every pixel shows), antialias
(gradients through the coverage of outline pixels), strokes (points and lines), ribbons (hair),
conservative (every texel that a triangle touches), batch (several meshes as one), and what they are
made of: projection, clip, enlarge, distance, weights, topology, blend.
"""

from dressi.render.raster.antialias import Antialiased, build_antialias
from dressi.render.raster.antialias_over import blend_edges, build_edge_weights
from dressi.render.raster.batch import MeshBatch, Part, build_batch
from dressi.render.raster.blend import blend_color, blend_silhouette, edge_mask, probability
from dressi.render.raster.clip_space import (
    build_clip_raster,
    image_derivatives,
    opengl_to_vulkan,
    raster_image,
    weight_derivatives,
)
from dressi.render.raster.conservative import Baked, Charts, build_bake, build_conservative
from dressi.render.raster.distance import interpolate, signed_distance
from dressi.render.raster.enlarge import build_enlarge
from dressi.render.raster.hard import HardRaster, build_hard_raster
from dressi.render.raster.hardsoftras import HardSoft, Peel, build_hardsoftras, build_rasterize
from dressi.render.raster.projection import (
    ScreenFaces,
    Size,
    build_screen_faces,
    gather,
    pixel_positions,
    to_screen,
)
from dressi.render.raster.ribbons import Ribbons, build_ribbons
from dressi.render.raster.strokes import Strokes, build_lines, build_points
from dressi.render.raster.topology import MeshFaces, contour_edges, face_neighbors, neighbor_table

__all__ = [
    "Antialiased",
    "Baked",
    "Charts",
    "HardRaster",
    "HardSoft",
    "MeshBatch",
    "MeshFaces",
    "Part",
    "Peel",
    "Ribbons",
    "ScreenFaces",
    "Size",
    "Strokes",
    "blend_color",
    "blend_edges",
    "blend_silhouette",
    "build_antialias",
    "build_bake",
    "build_batch",
    "build_clip_raster",
    "build_conservative",
    "build_edge_weights",
    "build_enlarge",
    "build_hard_raster",
    "build_hardsoftras",
    "build_lines",
    "build_points",
    "build_rasterize",
    "build_ribbons",
    "build_screen_faces",
    "contour_edges",
    "edge_mask",
    "face_neighbors",
    "gather",
    "image_derivatives",
    "interpolate",
    "neighbor_table",
    "opengl_to_vulkan",
    "pixel_positions",
    "probability",
    "raster_image",
    "signed_distance",
    "to_screen",
    "weight_derivatives",
]
