"""Measure a prototype: hard faces, and one layer of bands along the contour edges that are seen.

    PYTHONPATH=. python scripts/prototype_bands.py wall,torus flat,waves

Two rasterizations: the faces as they are, and of the faces with a contour edge all that lies within
r of the edge, on both sides; the nearest edge wins. An edge counts where the surface beyond it (a
pixel read at 0.75 pixels from the nearest point) lies behind it. Inside, the colour beyond is read
there, too; outside, the colour of the edge is shaded at its nearest point. So the picture is
continuous across the edge, inner occlusions included, and no layer is peeled. It prints AD over the
truth and the cosine, as figure R16 does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from dressi.ad import F, Variable
from dressi.apps.reliability.edge_gradients import BUILDERS, Builder, Geometry, measure_scene
from dressi.engine import DressiAD
from dressi.render.raster import Peel
from dressi.render.raster.distance import perspective, signed_distance
from dressi.render.raster.enlarge import SLACK_PX, build_enlarge
from dressi.render.raster.hardsoftras import any_edge, build_rasterize
from dressi.render.raster.projection import ScreenFaces, build_screen_faces, pixel_positions
from dressi.render.raster.topology import contour_edges, neighbor_table
from dressi.render.raster.weights import edge_point
from dressi.testing.edge_scenes import EdgeScene, edge_scene
from dressi.testing.supersampled import derivatives

BEYOND_PX = 0.75
"""From the nearest point of an edge to what is read beyond it: a pixel that is not on the edge."""
BEHIND_ALL = 2.0
HAIR_DEPTH = 0.99
"""Depth of pixels that are hard by a hair only: they count as outside."""
OFF_SCREEN = (2.0, 2.0, 0.5, 1.0)


def _index(place_px: Variable, size: tuple[int, int]) -> Variable:
    """INT: the linear index of the pixel at a place, the nearest one of the picture."""
    x = F.clamp(place_px.x, 0.0, size[0] - 0.5)
    y = F.clamp(place_px.y, 0.0, size[1] - 0.5)
    return F.to_int(x) + F.to_int(y) * size[0]


def _nearest(screen: ScreenFaces, rows: Variable, mask: Variable) -> tuple[Variable, ...]:
    """Squared distance to the nearest of a face's edges in a mask; the depth of its nearest point;
    the index of the pixel beyond. No gradient."""
    p = pixel_positions(screen.size, screen.layers)
    corners = [F.lookup(F.stop_gradient(t), rows) for t in screen.corners]
    u = [c.xy - p for c in corners]
    best: tuple[Variable, ...] | None = None
    for k, name in enumerate("xyz"):
        edge = edge_point(u[k], u[(k + 1) % 3], k)
        along = F.normalize(edge.along)
        normal = F.vec2(along.y, -along.x)
        normal = F.where(F.dot(normal, u[(k + 2) % 3] - u[k]) > 0.0, -normal, normal)
        q = u[0] * edge.weights.x + u[1] * edge.weights.y + u[2] * edge.weights.z
        z = F.dot(edge.weights, F.vec3(*(c.z for c in corners)))
        mine = (F.where(F.swizzle(mask, name), edge.distance2, 4.0), q, normal, z)
        if best is None:
            best = mine
        else:
            first = best[0] <= mine[0]
            best = tuple(F.where(first, a, b) for a, b in zip(best, mine, strict=True))
    assert best is not None
    distance2, q, normal, z = best
    return distance2, z, _index((p + q) * screen.scale + normal * BEYOND_PX, screen.size)


def bands(r: float) -> Builder:
    """Return the builder with a reach, screen square units."""

    def build(geometry: Geometry, scene: EdgeScene) -> tuple[Sequence[Peel], object]:
        pos, faces, matrix, size = geometry
        screen = build_screen_faces(pos, faces, matrix, size, None, scene.clip)
        (hard,) = build_rasterize(screen, F.constant(0.0), 1)
        depth = F.where(hard.depth < 0.5, hard.depth * 2.0, HAIR_DEPTH)
        depth = F.stop_gradient(F.where(hard.stencil, depth, BEHIND_ALL))
        front = contour_edges(screen, neighbor_table(faces, pos), front=True)
        drawn, soft, reach = screen.drawn, any_edge(front), F.constant(r)
        corners = build_enlarge(drawn, reach, soft)
        corners = tuple(F.where(soft, c, F.constant(OFF_SCREEN)) for c in corners)
        frag = F.rasterize(corners, screen.size, 5)
        distance2, z, beyond = _nearest(drawn, frag, F.lookup(front, frag))
        distance = F.sqrt(distance2)
        keep = (distance <= reach) * (F.lookup(depth, beyond) > z)
        rows = F.resolve(frag, distance, keep, background=-1)
        counted, has = F.lookup(front, rows), F.to_float(F.compare("gte", rows, 0))
        _, z, beyond = _nearest(drawn, rows, counted)
        a, b, c = (F.lookup(t, rows) for t in drawn.corners)
        p = pixel_positions(screen.size, screen.layers)
        face = signed_distance(a.xy, b.xy, c.xy, p, counted, SLACK_PX / screen.scale)
        away = F.where(face.inside, face.distance, -face.distance)
        inner = F.to_float(depth < (z + F.lookup(depth, beyond)) * 0.5)
        share = F.sigmoid(F.where(inner, away, -away) * (7.0 / r))
        bary = perspective(face.weights, F.vec3(a.w, b.w, c.w))
        ids = rows if screen.parts is None else screen.parts.face(rows)
        rim = Peel(ids, hard.depth, -away, bary, has)

        def blend(colors: Sequence[Variable], background: float) -> Variable:
            shown = F.where(hard.stencil, colors[0], background)
            near = F.where(inner, shown, colors[1])
            far = F.where(inner, F.lookup(shown, beyond), shown)
            return F.where(has, F.mix(far, near, share), shown)

        return [hard, rim], blend

    return build  # type: ignore[return-value]


def main(kinds: Sequence[str], looks: Sequence[str]) -> None:
    """Print a line per kind and look."""
    builders = {f"bands r={r}": bands(r) for r in (0.01, 0.03, 0.1)}
    builders |= {name: BUILDERS[name] for name in ("K=1 r=0.03", "antialias")}
    for kind in kinds:
        for look in looks:
            scene = edge_scene(kind, 0, look)
            truth = derivatives(scene, 8, 0.5)
            line = []
            for name, builder in builders.items():
                with DressiAD() as ad:
                    found = measure_scene(ad, scene, builder, truth, own=False)
                ratio, cosine = found.against(truth)
                line.append(f"{name}: {ratio:.3f} {cosine:.4f}, {1e3 * found.seconds:.0f} ms")
            print(f"{kind}, {look}, norm {np.linalg.norm(truth):.0f}:", "; ".join(line), flush=True)


if __name__ == "__main__":
    main(*(words.split(",") for words in sys.argv[1:3]))
