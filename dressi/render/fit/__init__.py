"""What a fit needs beside a picture: losses, regularizers, steps, remeshing, textures and metrics.

losses and regularizers (in the graph), reparameterization (Large Steps, with its sparse inverse
factor in dissection), remeshing between rounds; atlas, bake and fill (textures; their linear system
in texel_system); metrics of pictures, surface_metrics of surfaces (by closest and visibility);
views (what each view shows, as arrays) and pictures of a surface for people.
"""

from dressi.render.fit.atlas import unwrap
from dressi.render.fit.bake import bake_texture
from dressi.render.fit.closest import (
    Closest,
    closest_on_surface,
    distance_to_surface,
    mean_distance_to_surface,
)
from dressi.render.fit.fill import fill_seams, push_pull
from dressi.render.fit.losses import l1_loss, l2_loss, silhouette_loss
from dressi.render.fit.metrics import iou, psnr, ssim
from dressi.render.fit.pictures import SurfacePictures, rows_of, surface_pictures
from dressi.render.fit.regularizers import (
    cotangent_matrix,
    edge_length_loss,
    edge_table,
    laplacian_loss,
    laplacian_matrix,
    normal_consistency,
    total_variation,
)
from dressi.render.fit.remeshing import mean_edge_length, remesh
from dressi.render.fit.reparameterization import LargeSteps, large_steps
from dressi.render.fit.surface_metrics import SurfaceMetrics, sample_surface, surface_metrics
from dressi.render.fit.views import Evaluator, ViewRaster, chart_texels, view_rasters
from dressi.render.fit.visibility import seen_points

__all__ = [
    "Closest",
    "Evaluator",
    "LargeSteps",
    "SurfaceMetrics",
    "SurfacePictures",
    "ViewRaster",
    "bake_texture",
    "chart_texels",
    "closest_on_surface",
    "cotangent_matrix",
    "distance_to_surface",
    "edge_length_loss",
    "edge_table",
    "fill_seams",
    "iou",
    "l1_loss",
    "l2_loss",
    "laplacian_loss",
    "laplacian_matrix",
    "large_steps",
    "mean_distance_to_surface",
    "mean_edge_length",
    "normal_consistency",
    "psnr",
    "push_pull",
    "remesh",
    "rows_of",
    "sample_surface",
    "seen_points",
    "silhouette_loss",
    "ssim",
    "surface_metrics",
    "surface_pictures",
    "total_variation",
    "unwrap",
    "view_rasters",
]
