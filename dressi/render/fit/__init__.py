"""What a fit needs beside a picture: losses, regularizers, steps, remeshing, textures and metrics.

losses and regularizers (in the graph), reparameterization (Large Steps, with its sparse inverse
factor in dissection), hull (a start from silhouettes; silhouettes, isosurface), remeshing between
rounds (edits, relaxation, edge_lengths), untangling (winding); photo_consistency and
consistent_offsets, which carve what silhouettes leave too full; rim_fairing (least bending between
the rims of silhouettes); false_bridges (cut where masks are empty); atlas, bake and fill (textures;
their linear system in texel_system); metrics of pictures, surface_metrics of surfaces (by closest
and visibility); views (what each view shows, as arrays) and pictures of a surface for people.
"""

from dressi.render.fit.atlas import unwrap
from dressi.render.fit.bake import bake_texture
from dressi.render.fit.closest import (
    Closest,
    closest_on_surface,
    distance_to_surface,
    mean_distance_to_surface,
)
from dressi.render.fit.consistent_offsets import ConsistentOffsets, consistent_offsets
from dressi.render.fit.edge_lengths import adaptive_edge_lengths
from dressi.render.fit.false_bridges import without_false_bridges
from dressi.render.fit.fill import fill_seams, push_pull
from dressi.render.fit.hull import visual_hull
from dressi.render.fit.isosurface import isosurface
from dressi.render.fit.losses import l1_loss, l2_loss, silhouette_loss
from dressi.render.fit.metrics import iou, psnr, ssim
from dressi.render.fit.morphable_model import morphable
from dressi.render.fit.photo_consistency import GreyPhotos, grey_photos, patch_scores
from dressi.render.fit.pictures import SurfacePictures, rows_of, surface_pictures
from dressi.render.fit.regularizers import (
    cotangent_matrix,
    edge_length_loss,
    edge_table,
    laplacian_loss,
    laplacian_matrix,
    laplacian_smoothing,
    normal_consistency,
    total_variation,
)
from dressi.render.fit.remeshing import mean_edge_length, remesh
from dressi.render.fit.reparameterization import LargeSteps, large_steps
from dressi.render.fit.retreating import retreat
from dressi.render.fit.rgbd import depth_loss, landmark_loss, metric_depth, project_points
from dressi.render.fit.rim_fairing import faired_between_rims
from dressi.render.fit.surface_metrics import SurfaceMetrics, sample_surface, surface_metrics
from dressi.render.fit.untangling import untangle
from dressi.render.fit.views import Evaluator, ViewRaster, chart_texels, view_rasters
from dressi.render.fit.visibility import seen_points
from dressi.render.fit.winding import enclosed_surface, winding_numbers

__all__ = [
    "Closest",
    "ConsistentOffsets",
    "Evaluator",
    "GreyPhotos",
    "LargeSteps",
    "SurfaceMetrics",
    "SurfacePictures",
    "ViewRaster",
    "adaptive_edge_lengths",
    "bake_texture",
    "chart_texels",
    "closest_on_surface",
    "consistent_offsets",
    "cotangent_matrix",
    "distance_to_surface",
    "depth_loss",
    "edge_length_loss",
    "edge_table",
    "enclosed_surface",
    "faired_between_rims",
    "fill_seams",
    "grey_photos",
    "iou",
    "isosurface",
    "l1_loss",
    "l2_loss",
    "landmark_loss",
    "laplacian_loss",
    "laplacian_matrix",
    "laplacian_smoothing",
    "large_steps",
    "mean_distance_to_surface",
    "mean_edge_length",
    "metric_depth",
    "morphable",
    "normal_consistency",
    "patch_scores",
    "project_points",
    "psnr",
    "push_pull",
    "remesh",
    "retreat",
    "rows_of",
    "sample_surface",
    "seen_points",
    "silhouette_loss",
    "ssim",
    "surface_metrics",
    "surface_pictures",
    "total_variation",
    "untangle",
    "unwrap",
    "view_rasters",
    "visual_hull",
    "winding_numbers",
    "without_false_bridges",
]
