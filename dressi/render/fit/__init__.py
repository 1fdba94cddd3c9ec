"""What a fit needs beside a picture: losses, regularizers, steps, remeshing and metrics.

losses and regularizers (in the graph), reparameterization (Large Steps, with its sparse inverse
factor in dissection), hull (a start from silhouettes; silhouettes, isosurface), remeshing between
rounds (edits, relaxation, closest, edge_lengths), untangling (winding), metrics (how good a fit is,
on the host).
"""

from dressi.render.fit.edge_lengths import adaptive_edge_lengths
from dressi.render.fit.hull import visual_hull
from dressi.render.fit.isosurface import isosurface
from dressi.render.fit.losses import l1_loss, l2_loss, silhouette_loss
from dressi.render.fit.metrics import distance_to_surface, iou, mean_distance_to_surface, psnr
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
from dressi.render.fit.untangling import untangle
from dressi.render.fit.winding import enclosed_surface, winding_numbers

__all__ = [
    "LargeSteps",
    "adaptive_edge_lengths",
    "cotangent_matrix",
    "distance_to_surface",
    "edge_length_loss",
    "edge_table",
    "enclosed_surface",
    "iou",
    "isosurface",
    "l1_loss",
    "l2_loss",
    "laplacian_loss",
    "laplacian_matrix",
    "large_steps",
    "mean_distance_to_surface",
    "mean_edge_length",
    "normal_consistency",
    "psnr",
    "remesh",
    "silhouette_loss",
    "total_variation",
    "untangle",
    "visual_hull",
    "winding_numbers",
]
