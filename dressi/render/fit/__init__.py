"""What a fit needs beside a picture: losses, regularizers, steps, remeshing and metrics.

losses and regularizers (in the graph), reparameterization (Large Steps, with its sparse inverse
factor in dissection), remeshing between rounds, metrics (how good a fit is, on the host).
"""

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

__all__ = [
    "LargeSteps",
    "cotangent_matrix",
    "distance_to_surface",
    "edge_length_loss",
    "edge_table",
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
    "remesh",
    "silhouette_loss",
    "total_variation",
]
