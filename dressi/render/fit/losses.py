"""Losses. In: images. Out: FLOAT @ 1x1 (means), with gradient to the images."""

from __future__ import annotations

from dressi.ad import F, Variable
from dressi.ad.doubts import check_alike


def l1_loss(image: Variable, target: Variable, mask: Variable | None = None) -> Variable:
    """FLOAT @ 1x1: mean absolute difference over pixels, layers and components.

    image, target: FLOAT or VECn @ one size, else GraphError. mask: FLOAT weights. Gradient to all.
    """
    check_alike("l1_loss", image, target)
    d = F.abs(image - target)
    per_pixel = F.sum_components(d) * (1.0 / d.vtype.n)
    return F.mean(per_pixel if mask is None else per_pixel * mask)


def l2_loss(image: Variable, target: Variable, mask: Variable | None = None) -> Variable:
    """FLOAT @ 1x1: mean squared difference over pixels, layers and components.

    image, target: FLOAT or VECn @ one size, else GraphError. mask: FLOAT weights. Gradient to all.
    """
    check_alike("l2_loss", image, target)
    d = image - target
    per_pixel = F.dot(d, d) * (1.0 / d.vtype.n)
    return F.mean(per_pixel if mask is None else per_pixel * mask)


def silhouette_loss(
    silhouette: Variable, target: Variable, mask: Variable | None = None
) -> Variable:
    """FLOAT @ 1x1: ``l2_loss`` of silhouettes, FLOAT in [0, 1] each (paper, 4.1). Gradient as
    there."""
    return l2_loss(silhouette, target, mask)
