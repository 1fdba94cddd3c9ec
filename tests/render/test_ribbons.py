"""Ribbons and the shadows of strands, against analytic coverage and transmittance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dressi import F, GraphError, Variable, evaluate
from dressi.ad import build_backward
from dressi.ad.vtype import FLOAT, IVEC2, MAT4, VEC3
from dressi.render.camera import look_at, orthographic
from dressi.render.raster import Ribbons, build_ribbons
from dressi.render.scene import Strands
from dressi.render.shading import (
    build_opacity_map,
    directional_matrix,
    over,
    strand_transmittance,
)

SIZE = (24, 20)
PX = 0.1  # world units per pixel of the view below
EXACT = 1e-9


def view() -> np.ndarray:
    """An orthographic camera at (0, 0, 5) that looks along -z."""
    projection = orthographic(SIZE[0] * PX, SIZE[1] * PX, 0.0, 10.0)
    return np.asarray(projection @ look_at((0, 0, 5), (0, 0, 0), (0, 1, 0)))


def strands(*lines: Any, width: float) -> Strands:
    points = [np.asarray(line, np.float64).reshape(-1, 3) for line in lines]
    counts = np.array([len(p) for p in points])
    return Strands(np.concatenate(points).astype(np.float32), counts, np.float32(width))


class Tables:
    """Leaves of strands."""

    def __init__(self, hair: Strands) -> None:
        self.points = F.leaf(hair.points.astype(np.float64), VEC3, "points")
        self.segments = F.leaf(hair.segments, IVEC2, "segments")
        self.neighbors = F.leaf(hair.neighbors, IVEC2, "neighbors")
        self.widths = F.leaf(hair.widths.astype(np.float64), FLOAT, "widths")
        self.matrix = F.leaf(view(), MAT4, "matrix")

    def ribbons(self, n_layers: int = 1, occluder: Variable | None = None) -> Ribbons:
        return build_ribbons(
            self.points,
            self.segments,
            self.neighbors,
            self.widths,
            self.matrix,
            SIZE,
            n_layers,
            occluder,
        )


def value(x: Variable) -> np.ndarray:
    return evaluate([x], {})[0]


@pytest.mark.parametrize("width_px", [0.25, 1.0, 3.4])
@pytest.mark.parametrize("shift_px", [0.0, 0.3, 0.5])
def test_a_strand_covers_as_many_pixels_as_it_is_wide(width_px: float, shift_px: float) -> None:
    y = shift_px * PX
    hair = strands([[-2, y, 0], [2, y, 0]], width=width_px * PX)
    columns = value(Tables(hair).ribbons().alpha)[0, :, :, 0].sum(axis=0)
    # Fragments of less than 1/64 are left out, of which a column has two at most.
    np.testing.assert_allclose(columns, width_px, atol=2 / 64)


def test_a_strand_across_the_pixels_covers_its_area() -> None:
    angle = 0.4
    end = 0.8 * np.array([np.cos(angle), np.sin(angle), 0])
    hair = strands([-end, end], width=0.6 * PX)
    covered = value(Tables(hair).ribbons().alpha).sum()
    area = 1.6 / PX * 0.6
    # The ends are cut across the strand by whole pixels, and faint fragments are left out.
    assert covered == pytest.approx(area, rel=0.05)


def test_no_pixel_of_a_bent_strand_is_covered_twice() -> None:
    turn = np.linspace(0.0, 1.5, 9)
    line = np.stack([np.sin(turn) - 0.8, np.cos(turn) - 0.8, 0 * turn], axis=1)
    alpha = value(Tables(strands(line, width=1.5 * PX)).ribbons(2).alpha)
    assert alpha[0].sum() > 20.0 and alpha[1].sum() == 0.0


def test_across_is_along_the_cross_product_of_eye_and_tangent() -> None:
    hair = strands([[0, -1.2, 0], [0, 1.2, 0]], width=6 * PX)
    found = Tables(hair).ribbons()
    across = value(found.across)[0, 10, :, 0]
    x = (np.arange(SIZE[0]) + 0.5 - SIZE[0] / 2) * PX
    # The eye is at +z and the tangent +y: their cross product is -x.
    inside = np.abs(x) < 0.3
    np.testing.assert_allclose(across[inside], -x[inside] / (3 * PX), rtol=1e-6)


def test_t_runs_along_a_segment_in_the_world() -> None:
    hair = strands([[-1, 0.02, 1], [1, 0.02, -1]], width=2 * PX)
    tables = Tables(hair)
    found = tables.ribbons()
    place = value(found.interpolate(tables.points, tables.segments))[0, 9, :, 0]
    x = (np.arange(SIZE[0]) + 0.5 - SIZE[0] / 2) * PX
    inside = np.abs(x) < 1.0
    np.testing.assert_allclose(place[inside], x[inside], atol=1e-6)


def test_layers_go_from_front_to_back_and_blend_like_transparent_ones() -> None:
    back, front = [[-2, 0, -1], [2, 0, -1]], [[0, -2, 1], [0, 2, 1]]
    found = Tables(strands(back, front, width=0.5 * PX)).ribbons(2)
    ids = value(found.ids)[:, 9, 11, 0]
    assert ids.tolist() == [1, 0]
    colors = F.stack([F.expand(F.constant(c), SIZE) for c in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0))])
    layers = [[F.take_layer(x, k) for k in (0, 1)] for x in (colors, found.alpha)]
    premultiplied, coverage = over(*layers)
    wanted = value(premultiplied + (1.0 - coverage) * 0.3)
    np.testing.assert_allclose(value(found.blend(colors, 0.3)), wanted, atol=EXACT)


def test_what_lies_behind_an_occluder_is_not_drawn() -> None:
    hair = strands([[-2, 0, -1], [2, 0, -1]], [[-2, 0.5, 1], [2, 0.5, 1]], width=PX)
    wall = F.expand(F.constant(0.5), SIZE)  # z = 0
    ids = value(Tables(hair).ribbons(1, wall).ids)
    assert set(np.unique(ids)) == {-1, 1}


def test_a_strand_behind_the_camera_is_not_drawn() -> None:
    hair = strands([[-1, 0, 6], [1, 0, 6]], [[-1, 0, 4], [1, 0, 7]], width=PX)
    assert (value(Tables(hair).ribbons().ids) == -1).all()


def test_the_gradient_of_the_covered_area_to_the_width_is_the_length() -> None:
    tables = Tables(strands([[-2, 0.03, 0], [2, 0.03, 0]], width=0.5 * PX))
    total = F.sum(tables.ribbons().alpha)
    slope = value(build_backward(total, [tables.widths])[tables.widths])
    assert slope.sum() == pytest.approx(SIZE[0] / PX, rel=1e-6)


def test_wrong_tables_are_refused_by_name() -> None:
    good = Tables(strands([[0, 0, 0], [1, 0, 0]], width=0.1))
    args: dict[str, Any] = {
        "vtx_pos": good.points,
        "segments": good.segments,
        "neighbors": good.neighbors,
        "width": good.widths,
        "matrix": good.matrix,
        "size": SIZE,
    }
    changes: list[tuple[str, Any, str]] = [
        ("vtx_pos", Variable(FLOAT, (2, 1)), "vtx_pos must be VEC3"),
        ("segments", Variable(FLOAT, (2, 1)), "segments must be an IVEC2"),
        ("neighbors", Variable(IVEC2, (3, 1)), "a row per point"),
        ("width", Variable(FLOAT, (3, 1)), "width must be FLOAT"),
        ("matrix", Variable(MAT4, layers=2), "matrix must be MAT4"),
        ("matrix", np.eye(4), "matrix must be a Variable"),
        ("n_layers", 0, "n_layers must be 1 or more"),
        ("size", (0, 4), "size must be"),
    ]
    for name, wrong, message in changes:
        with pytest.raises(GraphError, match=message):
            build_ribbons(**(args | {name: wrong}))


# -- shadows

SHEET = 0.05
"""Width of the strands of a sheet; they lie 0.1 apart."""


def sheet() -> Tables:
    """Strands in the plane z = 0 that cover half of it."""
    y = np.arange(-1.95, 2.0, 0.1)
    return Tables(strands(*([[-2, h, 0], [0, h, 0], [2, h, 0]] for h in y), width=SHEET))


def through(density: Any, *places: tuple[float, float, float]) -> Variable:
    tables = sheet()
    matrix = directional_matrix((0.0, 0.0, -1.0), (0.0, 0.0, 0.0), 2.0)
    opacity = build_opacity_map(
        tables.points, tables.segments, tables.widths, matrix, (20, 20), n_slices=8, n_samples=20
    )
    return strand_transmittance(opacity, F.leaf(np.array(places), VEC3), density)


def test_light_behind_a_sheet_of_strands_is_what_their_number_lets_through() -> None:
    found = value(through(1.5, (0, 0, 1), (0.3, 0.2, -1), (-0.9, 0.8, -1.9)))[0, 0, :, 0]
    # Half a strand per ray.
    np.testing.assert_allclose(found, [1.0, *[np.exp(-0.75)] * 2], rtol=0.02)


def test_light_outside_of_the_map_is_whole() -> None:
    assert value(through(1.0, (9, 0, -1), (0, -9, -1)))[0, 0, :, 0].tolist() == [1.0, 1.0]


def test_the_gradient_to_the_density_is_that_of_the_exponential() -> None:
    density = F.leaf([0.8], FLOAT)
    found = through(density, (0.3, 0.2, -1))
    slope = value(build_backward(found, [density])[density]).item()
    light = value(found).item()
    assert slope == pytest.approx(light * np.log(light) / 0.8, rel=1e-6)


def test_light_falls_evenly_within_a_slice() -> None:
    depths = np.linspace(0.9, -1.1, 21)
    found = value(through(1.0, *((0.1, 0.1, z) for z in depths)))[0, 0, :, 0]
    assert (np.diff(found) <= 1e-12).all()
    assert np.abs(np.diff(found)).max() < 0.12  # a step would be 1 - exp(-0.5) = 0.39


def test_shadows_out_of_range_are_refused_by_name() -> None:
    with pytest.raises(GraphError, match="density must be in"):
        through(-1.0, (0, 0, 0))
    tables = sheet()
    matrix = directional_matrix((0.0, 0.0, -1.0), (0.0, 0.0, 0.0), 2.0)
    args = (tables.points, tables.segments, tables.widths, matrix)
    with pytest.raises(GraphError, match="n_slices must be 1 or more"):
        build_opacity_map(*args, (4, 4), n_slices=0)
    with pytest.raises(GraphError, match="size must be"):
        build_opacity_map(*args, (1, 4))
    with pytest.raises(GraphError, match="width must be FLOAT"):
        build_opacity_map(tables.points, tables.segments, Variable(VEC3), matrix, (4, 4))
