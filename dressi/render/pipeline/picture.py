"""From everything to pictures: rasterize, shade, blend, tone.

In: geometry, materials, lights, views, settings. Out: ``Picture``: colours and coverage of all
views, one layer each (paper, A.3: BuildBasicRenderGraph).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import VEC3
from dressi.errors import GraphError
from dressi.kinds import Encoding
from dressi.render.camera.eye import pixel_rays
from dressi.render.ibl import read_map
from dressi.render.pipeline.appearance import Appearance
from dressi.render.pipeline.views import ViewMatrices
from dressi.render.raster import Size, build_antialias, build_hardsoftras
from dressi.render.shading import blend_peels, exposure, gamma, tone_map

if TYPE_CHECKING:
    from dressi.render.pipeline.settings import Settings


@dataclass(frozen=True, eq=False)
class Picture:
    """color: VEC3 @ size, toned, over the background. coverage: FLOAT @ size, the silhouette, with
    alpha. background: VEC3, toned. layers = views."""

    color: Variable
    coverage: Variable
    background: Variable


def build_picture(
    appearance: Appearance,
    views: ViewMatrices,
    size: Size,
    settings: Settings,
    background: Variable,
    clip: bool,
    cull: bool | Variable = False,
    stops: Variable | None = None,
) -> Picture:
    """Return the pictures of all views.

    settings: the mode ``hardsoftras`` (K peels, r, sigma, delta: see ``build_hardsoftras``) or
    ``antialias`` (one layer; masked and clear materials show the background behind them); the tone,
    (curve, encoding) of ``tone_map``, after blending as in the paper. background: VEC3 @ 1x1 or @
    size, linear. clip: whether faces are cut at the near and far plane. cull: of the rasterizers.
    stops: FLOAT exposure of what is drawn, None: 0.
    """
    g, u, K, tone = appearance.geometry, settings.uniforms, settings.K, settings.tone
    if settings.mode == "antialias":
        aa = build_antialias(g.positions, g.faces, views.matrix, size, clip=clip, cull=cull)
        color, alpha = appearance.shade(aa.peel, aa.screen)
        color = color if stops is None else exposure(color, stops)
        coverage = aa.silhouette
        if alpha is not None:
            color = F.mix(background, color, alpha)
            coverage = aa.blend(F.expand(alpha, size, aa.peel.ids.layers))
        if (color.size, color.layers) != (size, aa.peel.ids.layers):  # the same at every pixel
            color = F.expand(color, size, aa.peel.ids.layers)
        linear = aa.blend(color, background)
    else:
        hs = build_hardsoftras(
            g.positions,
            g.faces,
            views.matrix,
            size,
            u["r"],
            K,
            u.get("sigma"),
            u.get("delta"),
            settings.max_delta,
            rims="front" if K == 1 else None,
            clip=clip,
            occlusion=settings.occlusion,
            cull=cull,
        )
        shaded = [appearance.shade(peel, hs.screen) for peel in hs.peels]
        colors = [c if stops is None else exposure(c, stops) for c, _ in shaded]
        alphas = [a for _, a in shaded if a is not None]
        if alphas:
            linear, coverage = blend_peels(hs, colors, alphas, background)
        else:
            linear, coverage = hs.blend(colors, background), hs.silhouette
    if tone != ("none", "none"):
        background, linear = tone_map(background, *tone), tone_map(linear, *tone)
    return Picture(linear, coverage, background)


def encoded(color: Variable, encoding: Encoding) -> Variable:
    """Linear targets in the encoding that a picture has; they went through their own curve."""
    if encoding == "srgb":
        return F.image.linear_to_srgb(color)
    return gamma(color) if encoding == "gamma" else color


def build_background(
    background: str | float | Sequence[float] | np.ndarray,
    size: Size,
    views: ViewMatrices,
    n_views: int,
    environment: Variable | None,
) -> Variable:
    """VEC3 linear background.

    background: a number or three, a picture (H, W, 3) or one per view, or ``environment``. Raises
    GraphError for other shapes and where there is no environment.
    """
    if isinstance(background, str):
        if background != "environment" or environment is None:
            raise GraphError(
                f"background must be a colour, a picture or 'environment' where the scene has one, "
                f"got {background!r}"
            )
        return read_map(environment, pixel_rays(views.matrix, size))
    array = np.asarray(background, np.float32)
    if array.ndim <= 1 and array.size in (1, 3):
        flat = np.broadcast_to(array.reshape(-1), (3,)).reshape(1, 1, 3)
        return F.leaf(flat, VEC3, "background")
    w, h = size
    if array.shape not in ((h, w, 3), (n_views, h, w, 3)):
        raise GraphError(
            f"background must be a colour, (H, W, 3) or (views, H, W, 3) with {n_views} views of "
            f"{w}x{h}, got {array.shape}"
        )
    return F.leaf(array, VEC3, "background")


def without_background(both: np.ndarray, background: np.ndarray) -> np.ndarray:
    """(..., 4): colours with the background taken out, at least 0, and coverage.

    both: (..., 4) colours over the background, and coverage. background: (..., 3), or what is
    broadcast to it. Colours are 0 where less than 1e-4 is covered.
    """
    color, cover = both[..., :3], both[..., 3:]
    behind = np.broadcast_to(background, color.shape)
    only = np.divide(
        color - (1.0 - cover) * behind, cover, out=np.zeros_like(color), where=cover > 1e-4
    )
    return np.concatenate([np.maximum(only, 0.0), cover], axis=-1)
