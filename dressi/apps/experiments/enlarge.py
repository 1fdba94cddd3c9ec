"""``dressi experiment enlarge``: what Enlarge and Shift do to two adjacent triangles (paper, its
figure on pseudo-occlusions).

The blue face is in front, the red one is a needle behind it. Four variants rasterize them: with
both steps, without Enlarge, with every vertex pushed away from the centroid in the place of
Enlarge, and without Shift. For each: which face wins a pixel, its shifted depth, D_1, and one and
two blended peels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC3
from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.parts import kept_parts
from dressi.engine import DressiAD
from dressi.render.io import contact_sheet
from dressi.render.raster import (
    ScreenFaces,
    blend_silhouette,
    build_enlarge,
    build_screen_faces,
    probability,
)
from dressi.render.raster.hardsoftras import Peel, build_rasterize, shift

HELP = "Enlarge and Shift on two triangles: which face wins, its depth, its weight, the blend"

# Screen square, origin top left, and depth; the second is a needle (smallest angle 11 degrees).
CORNERS = np.array(
    [
        [[0.20, 0.30, 0.3], [0.28, 0.78, 0.3], [0.56, 0.42, 0.3]],
        [[0.20, 0.24, 0.6], [0.56, 0.36, 0.6], [0.86, 0.30, 0.6]],
    ]
)
COLOURS = np.array([[0.05, 0.12, 0.75], [0.75, 0.06, 0.05]], np.float32)
"""Linear; the front face is blue, the one behind red."""

COLUMNS = ("face that wins", "shifted depth", "D_1", "blend, K = 1", "blend, K = 2")


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    size: int = option(256, "pixels on a side", smoke=48, least=8)
    r: float = option(0.08, "reach, 1 is the side of the picture", least=0.0)


def push_from_centroid(
    screen: ScreenFaces, r: Variable, soft: Variable | None = None
) -> tuple[Variable, ...]:
    """Return faces with each vertex moved r away from the centroid, as needles are without boxes.
    The same arguments and result as ``build_enlarge``; faces that cross the near plane do not occur
    here."""
    assert soft is None
    a, b, c = (F.stop_gradient(v).xy for v in screen.corners)
    centroid = (a + b + c) * (1.0 / 3.0)
    w, h = screen.size
    to_ndc = (2.0 * screen.scale / w, 2.0 * screen.scale / h)
    moved = [p + F.normalize(p - centroid) * r for p in (a, b, c)]
    a, b, c = (F.vec4(p * to_ndc - 1.0, 0.5, 1.0) for p in moved)
    return a, b, c, c


def own_depth(depth: Variable, distance: Variable) -> Variable:
    """Return half of the depth, in the place of Shift: soft fragments keep the depth of their
    face's plane."""
    return depth * 0.5


VARIANTS: dict[str, tuple[bool, Callable[..., Any], Callable[..., Any]]] = {
    "Enlarge\nand Shift": (True, build_enlarge, shift),
    "no Enlarge": (False, build_enlarge, shift),
    "pushed from\nthe centroid": (True, push_from_centroid, shift),
    "no Shift": (True, build_enlarge, own_depth),
}


def run(settings: Settings) -> Result:
    """Return the pictures and, against float64: how much of the band within r is drawn, and how
    many pixels of the red face the blue one takes."""
    size = settings.size
    rows: dict[str, list[np.ndarray]] = {}
    figures: dict[str, Any] = {}
    distances = np.stack([signed_distances(t[:, :2], size) for t in CORNERS])
    # Half a pixel of slack: pixels whose centre lies on a border may go either way.
    band = distances.max(0) > -settings.r + 0.5 / size
    beyond = distances.max(0) < -settings.r - 0.5 / size
    red_only = (distances[1] > 0.5 / size) & (distances[0] < -0.5 / size)
    with DressiAD(settings.device) as ad:
        work = {label: partial(_draw, ad, settings, *how) for label, how in VARIANTS.items()}
        for label, drawn in kept_parts(settings, work, "variants").items():
            ids = drawn["ids"]
            faces = np.where(ids[..., None] < 0, 1.0, COLOURS[np.maximum(ids, 0)])
            rows[label] = [faces.astype(np.float32), *(drawn[c] for c in COLUMNS[1:])]
            key = label.replace("\n", " ").replace(" ", "_").lower()
            figures[f"{key}_band_drawn"] = float((ids >= 0)[band].mean())
            figures[f"{key}_beyond_drawn"] = int((ids >= 0)[beyond].sum())
            figures[f"{key}_red_hidden"] = float((ids == 0)[red_only].mean())
    gaps = 1.0 - figures["pushed_from_the_centroid_band_drawn"]
    hidden = figures["no_shift_red_hidden"]
    conditions = [
        ("Enlarge draws the whole band within r", figures["enlarge_and_shift_band_drawn"] == 1.0),
        ("and nothing beyond it", figures["enlarge_and_shift_beyond_drawn"] == 0),
        (
            "vertices pushed from the centroid alone do not suit a needle: "
            f"{gaps:.1%} of the band is missing",
            gaps > 0,
        ),
        ("with Shift no soft face hides a hard one", figures["enlarge_and_shift_red_hidden"] == 0),
        (f"without it one does: {hidden:.1%} of the face behind is hidden", hidden > 0),
    ]
    ours = [
        ("at least 2 % of the band is missing without boxes", gaps > 0.02),
        ("at least 2 % of the face behind is hidden without Shift", hidden > 0.02),
    ]
    sheet = contact_sheet(rows, columns=COLUMNS)
    return Result(figures, {"enlarge": sheet}, conditions=conditions, ours=ours)


def _draw(
    ad: DressiAD,
    settings: Settings,
    is_soft: bool,
    enlarge: Callable[..., Any],
    shifted: Callable[..., Any],
) -> dict[str, np.ndarray]:
    """Return ``ids``, (H, W) face numbers, and by the names of COLUMNS shifted depth, D_1, and the
    (H, W, 3) blends of one and of two peels over white."""
    size, reach = settings.size, settings.r
    r = reach if is_soft else 0.0
    corners = CORNERS.astype(np.float32).reshape(-1, 3)
    pos = Variable(VEC3, (len(corners), 1), name="pos")
    faces = Variable(IVEC3, (len(CORNERS), 1), name="faces")
    colours = Variable(VEC3, (len(CORNERS), 1), name="colours")
    radius = Variable(FLOAT, name="r")
    matrix = Variable(MAT4, name="matrix")
    to_clip = np.array([[2, 0, 0, -1], [0, 2, 0, -1], [0, 0, 1, 0], [0, 0, 0, 1]], np.float32)
    screen = build_screen_faces(pos, faces, matrix, (size, size))
    peels = build_rasterize(screen, radius, 2, None, enlarge, shifted)
    sigma = F.constant(reach / 7.0 + 1e-6)
    for leaf, data in ((pos, corners), (colours, COLOURS), (radius, r), (matrix, to_clip)):
        ad.send_img(leaf, data)
    ad.send_img(faces, np.arange(len(corners), dtype=np.int32).reshape(-1, 3))
    pictures = (
        ad.recv_img(peels[0].depth)[..., 0],
        ad.recv_img(probability(peels[0], sigma))[..., 0],
        *(ad.recv_img(_blend(peels[:k], colours, sigma)) for k in (1, 2)),
    )
    return {
        "ids": ad.recv_img(peels[0].ids)[..., 0],
        **dict(zip(COLUMNS[1:], pictures, strict=True)),
    }


def _blend(peels: tuple[Peel, ...], colours: Variable, sigma: Variable) -> Variable:
    """Return the blend of peels as if all lay in the edge mask, which the paper's picture lacks."""
    everywhere = F.constant(1.0)
    silhouette = blend_silhouette(peels, everywhere, everywhere, sigma)
    weights = [probability(p, sigma) for p in peels]
    mixed = F.add_n([F.lookup(colours, p.ids) * w for p, w in zip(peels, weights, strict=True)])
    return F.mix(1.0, F.safe_div(mixed, F.add_n(weights)), silhouette)


def signed_distances(triangle: np.ndarray, size: int) -> np.ndarray:
    """Return (size, size) float64: distance of every pixel centre to the triangle's nearest edge,
    positive inside; screen square. By plain geometry, not by the ops that are shown."""
    y, x = (np.mgrid[:size, :size] + 0.5) / size
    p = np.stack([x, y], -1)
    nearest, sides = np.full((size, size), np.inf), []
    for k in range(3):
        start, edge = triangle[k], triangle[(k + 1) % 3] - triangle[k]
        to = p - start
        along = np.clip(to @ edge / (edge @ edge), 0.0, 1.0)
        nearest = np.minimum(nearest, np.linalg.norm(to - along[..., None] * edge, axis=-1))
        sides.append(to[..., 1] * edge[0] - to[..., 0] * edge[1])
    inside = np.all(np.stack(sides) >= 0, 0) | np.all(np.stack(sides) <= 0, 0)
    return np.where(inside, nearest, -nearest)
