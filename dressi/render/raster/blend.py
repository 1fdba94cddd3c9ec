"""Blend: probabilities, edge mask, silhouettes and colours of peels (paper, 3.4.3 and A.3:
BuildBlend).

Differs from the listing, which divides by the number of stencils: as in the text, colours are
divided by the sum of weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dressi.ad import F, Variable
from dressi.errors import GraphError
from dressi.render.raster.projection import Size

if TYPE_CHECKING:
    from dressi.render.raster.hardsoftras import HardSoft
    from dressi.render.raster.occlusion import Bands
    from dressi.render.raster.peel import Peel


def edge_mask(hard: Variable, delta: Variable, size: Size, max_delta: float) -> Variable:
    """E: 1 within delta of the border of the hard stencil, else 0.

    hard: the stencil, packed by ``F.bits.pack_bits``. delta: FLOAT @ 1x1, screen square units, up
    to max_delta. Pixels on both sides of the border belong to E even for delta = 0; larger ones
    reach in a square; a delta of 1 is everywhere. No gradient.
    """
    m = float(max(size))
    steps = max(0, round(min(max_delta, 1.0) * m) - 1)
    border = F.bits.border_bits(hard, size[0])
    band = F.bits.dilate_bits(border, F.maximum(delta * m - 1.0, 0.0), max_radius=steps)
    mask = F.bits.unpack_bits(band, size)
    # A view that is covered wholly, or not at all, has no border to start from.
    return mask if max_delta < 1.0 else F.where(delta >= 1.0, 1.0, mask)


def probability(peel: Peel, sigma: Variable) -> Variable:
    """FLOAT D_k = sigmoid(distance / sigma), 0 where there is no face. Gradient to the distance
    and to sigma (FLOAT @ 1x1, screen square units)."""
    return F.sigmoid(F.safe_div(peel.distance, sigma)) * peel.stencil


def blend_silhouette(
    peels: Sequence[Peel], hard: Variable, edge: Variable, sigma: Variable
) -> Variable:
    """FLOAT in [0, 1]: 1 - prod(1 - D_k) in the edge mask, the hard stencil elsewhere.

    hard, edge: FLOAT masks. sigma: FLOAT @ 1x1, screen square units. Gradient to the distances of
    the peels and to sigma.
    """
    outside: Variable | None = None
    for peel in peels:
        q = 1.0 - probability(peel, sigma)
        outside = q if outside is None else outside * q
    assert outside is not None
    return F.where(edge, 1.0 - outside, hard)


def blend_color(
    hs: HardSoft, colors: Sequence[Variable], background: Variable | float = 0.0
) -> Variable:
    """Colour of the peels over a background.

    colors: one FLOAT or VECn image per peel. In the edge mask the colours are averaged with weights
    D_k, elsewhere the first peel's is taken; the silhouette then mixes it with the background. So
    there hidden peels count as much as those before them; ``blend_peels`` with an alpha of 1 per
    peel puts them over each other.
    Never 0 / 0: where no face has weight, the background shows. Gradient to colors,
    background and the distances of the peels. With occlusion the first colour is what is seen, the
    second one that of the other side of the nearest edge. Raises GraphError unless there is one
    colour per peel.
    """
    if len(colors) != len(hs.peels):
        raise GraphError(f"blend needs {len(hs.peels)} colours, one per peel, got {len(colors)}")
    if hs.bands is not None:
        return _blend_bands(hs, hs.bands, colors, background)
    if len(colors) == 1:
        # D C / D = C: nothing to weigh.
        mixed = colors[0]
    else:
        weights = [probability(p, hs.sigma) for p in hs.peels]
        total = F.add_n(weights)
        soft = F.safe_div(F.add_n([c * w for c, w in zip(colors, weights, strict=True)]), total)
        mixed = F.where(hs.edge, soft, colors[0])
    return F.where(hs.silhouette > 0.0, F.mix(background, mixed, hs.silhouette), background)


def _blend_bands(
    hs: HardSoft, bands: Bands, colors: Sequence[Variable], background: Variable | float
) -> Variable:
    shown = F.where(hs.hard, colors[0], background)
    return bands.mix(shown, colors[1], background)
