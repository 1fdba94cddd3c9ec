"""Hulls of silhouettes: genus, place, what one view says wrongly or does not say at all."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw

from dressi.errors import GraphError
from dressi.render.camera import look_at, orthographic, perspective
from dressi.render.fit import distance_to_surface, isosurface, visual_hull
from dressi.render.fit.silhouettes import contour_distance
from dressi.render.scene import Mesh, surface_problems

SIZE = 64


def directions(n):
    """Directions spread evenly over the sphere."""
    i = np.arange(n) + 0.5
    y, angle = 1.0 - 2.0 * i / n, np.pi * (1.0 + 5.0**0.5) * i
    radius = np.sqrt(1.0 - y * y)
    return np.stack([radius * np.cos(angle), y, radius * np.sin(angle)], axis=1)


def matrices(n=24, fov=40.0, target=(0.0, 0.0, 0.0)):
    lens = perspective(fov, 1.0, 0.1, 20.0)
    eyes = np.array(target) + 4.0 * directions(n)
    return np.stack([lens @ look_at(eye, target, (0.1, 1.0, 0.2)) for eye in eyes])


def masks(mesh, clips, size=SIZE, sub=4):
    """Coverage of the mesh's triangles, drawn by Pillow on a grid of sub-pixels."""
    drawn = []
    for clip in clips:
        at = np.c_[mesh.positions, np.ones(len(mesh.positions))] @ clip.T
        px = (at[:, :2] / at[:, 3:] + 1.0) / 2.0 * size * sub - 0.5
        image = Image.new("L", (size * sub, size * sub))
        draw = ImageDraw.Draw(image)
        for triangle in px[mesh.faces]:
            draw.polygon([tuple(p) for p in triangle], fill=255)
        block = np.asarray(image, float).reshape(size, sub, size, sub)
        drawn.append(block.mean(axis=(1, 3)) / 255.0)
    return np.stack(drawn)[..., None]


def solid(signed, n=25, half=1.2):
    """Surface of a function of points, positive inside."""
    points = np.stack(np.meshgrid(*[np.linspace(-half, half, n)] * 3, indexing="ij"), axis=-1)
    return isosurface(signed(points), [-half] * 3, 2.0 * half / (n - 1))


def torus(points, large=0.7, small=0.3, x=0.0):
    flat = np.hypot(points[..., 0] - x, points[..., 1]) - large
    return small - np.hypot(flat, points[..., 2])


def double_torus(points):
    return np.maximum(torus(points, 0.4, 0.17, -0.5), torus(points, 0.4, 0.17, 0.5))


def ball(points, radius=0.8):
    return radius - np.linalg.norm(points, axis=-1)


@pytest.fixture(scope="module")
def ball_views():
    clips = matrices()
    return solid(ball), masks(solid(ball), clips), clips


@pytest.mark.parametrize(("shape", "genus"), [(torus, 1), (double_torus, 2)])
def test_the_genus_is_that_of_the_object(shape, genus):
    mesh, clips = solid(shape), matrices()
    hull = visual_hull(masks(mesh, clips), clips, resolution=40)
    found = surface_problems(hull)
    assert found.is_closed and found.genera == (genus,)
    assert len(found.intersections) == len(found.degenerate_faces) == 0
    # Silhouettes cut nothing off, but for a part of a pixel: one is 0.05 wide at the object.
    inside = distance_to_surface(mesh.positions, hull.positions, hull.faces)
    assert np.median(inside) < 0.03


def test_the_surface_is_finer_than_the_voxels_and_the_pixels(ball_views):
    mesh, images, clips = ball_views
    hull = visual_hull(images, clips, resolution=32)
    radius = np.linalg.norm(hull.positions, axis=1)
    # A cell is 0.06, a pixel 0.05: an eighth of one.
    assert radius.min() > np.linalg.norm(mesh.positions, axis=1).min() - 0.006
    # Tangent cones of 24 views: neighbouring directions are up to 23 degrees from a point's rim.
    assert np.quantile(radius, 0.5) < 0.8 + 0.02


@pytest.mark.parametrize("turn", [0.0, 0.4])
def test_a_sheet_without_thickness_is_whole(turn):
    # A square of side 1.2 between two layers of points, and askew.
    flat = np.array([[-0.6, -0.6], [0.6, -0.6], [0.6, 0.6], [-0.6, 0.6]])
    height = 0.011 + np.sin(turn) * flat[:, 0]
    positions = np.c_[np.cos(turn) * flat[:, 0], flat[:, 1], height].astype(np.float32)
    sheet = Mesh(positions, np.array([[0, 1, 2], [0, 2, 3]], np.int32))
    normal = np.array([-np.sin(turn), 0.0, np.cos(turn)])
    # From its side the sheet covers less than half of any pixel.
    clips = matrices()[np.abs(directions(24) @ normal) > 0.06]
    hull = visual_hull(masks(sheet, clips), clips, resolution=32)
    found = surface_problems(hull)
    assert found.is_closed and found.genera == (0,)
    u, v = np.meshgrid(*[np.linspace(0.03, 0.97, 20)] * 2)
    places = positions[0] + u[..., None] * (positions[1] - positions[0])
    places = (places + v[..., None] * (positions[3] - positions[0])).reshape(-1, 3)
    cell = 1.5 / 32
    away = distance_to_surface(places, hull.positions, hull.faces)
    # Masks round off the corners, where the sheet is narrower than their pixels from any side.
    assert np.quantile(away, 0.95) < 1.5 * cell and away.max() < 4.0 * cell
    assert distance_to_surface(hull.positions, positions, sheet.faces).max() < 2.5 * cell


def test_a_wire_thinner_than_a_cell_is_one_ring():
    # In a plane at an angle to the axes; 1.5 pixels thick, 0.7 cells.
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    wire = solid(lambda p: torus(p @ turn, 0.7, 0.035), 97)
    clips = matrices()
    images = masks(wire, clips)
    hull = visual_hull(images, clips, resolution=16)
    found = surface_problems(hull)
    assert found.is_closed and found.genera == (1,)


def test_masks_of_zeros_and_ones_do(ball_views):
    _, images, clips = ball_views
    hull = visual_hull(np.round(images), clips, resolution=32)
    radius = np.linalg.norm(hull.positions, axis=1)
    # Half a pixel, of 2 * 4 tan(20 degrees) / 64.
    assert radius.min() > 0.8 - 0.023 and surface_problems(hull).is_closed


@pytest.mark.parametrize(("wrong", "genus"), [(0, 1), (1, 0)])
def test_a_hole_in_one_mask_makes_none_where_others_outvote_it(ball_views, wrong, genus):
    _, images, clips = ball_views
    images = images.copy()
    images[3, 26:39, 27:40] = 0.0
    hull = visual_hull(images, clips, resolution=40, disagreeing_views=wrong)
    assert surface_problems(hull).genus == genus


def test_views_that_cut_the_object_do_not_carve_it(ball_views):
    mesh, _, clips = ball_views
    near = matrices(24, fov=14.0, target=(0.5, 0.0, 0.0))  # frames of half the ball
    cut = masks(mesh, near)
    assert (cut[:, :, 0] > 0.5).any(axis=(1, 2)).sum() > 12  # most touch a side of the frame
    box = [[-1.1] * 3, [1.1] * 3]
    both = visual_hull(
        np.concatenate([masks(mesh, clips), cut]), np.concatenate([clips, near]), 24, box
    )
    assert np.linalg.norm(both.positions, axis=1).min() > 0.8 - 0.02


def test_parallel_views_and_a_box_that_is_no_cube(ball_views):
    mesh = ball_views[0]
    lens = orthographic(2.4, 2.4, 0.1, 20.0)
    clips = np.stack([lens @ look_at(4.0 * d, (0, 0, 0), (0.1, 1, 0.2)) for d in directions(12)])
    hull = visual_hull(masks(mesh, clips), clips, 40, [[-1.2, -1.0, -0.9], [1.3, 1.1, 1.0]])
    radius = np.linalg.norm(hull.positions, axis=1)
    assert radius.min() > 0.78 and radius.max() < 1.0


def test_small_parts_go_and_large_ones_stay():
    clips = matrices()
    two = solid(lambda p: np.maximum(ball(p - [0.5, 0, 0], 0.4), ball(p + [0.6, 0, 0], 0.15)))
    images = masks(two, clips)
    assert surface_problems(visual_hull(images, clips, 40)).n_components == 2
    # 0.15^3 / 0.4^3 is a twentieth.
    assert surface_problems(visual_hull(images, clips, 40, smallest_part=0.2)).n_components == 1


def test_tolerance_widens_the_silhouettes(ball_views):
    _, images, clips = ball_views
    hull = visual_hull(images, clips, 32, tolerance_px=2.0)
    # A pixel at the rim: 2 * 4 tan(20 degrees) / 64, as seen from 4 units away.
    pixel = 2.0 * 4.0 * np.tan(np.radians(20.0)) / SIZE
    radius = np.linalg.norm(hull.positions, axis=1)
    # Not the least one: two cones meet in an edge, and a cell cuts it off.
    assert np.quantile(radius, 0.01) == pytest.approx(0.8 + 2.0 * pixel, abs=0.5 * pixel)


def test_errors_name_what_is_wrong(ball_views):
    _, images, clips = ball_views
    with pytest.raises(GraphError, match=r"must be \(views, H, W, 1\), got \(64, 64\)"):
        visual_hull(images[0, ..., 0], clips)
    with pytest.raises(GraphError, match=r"24 masks need matrices of \(24, 4, 4\)"):
        visual_hull(images, clips[:3])
    with pytest.raises(GraphError, match=r"mask of view 0 has values outside of \[0, 1\]"):
        visual_hull(images * 255.0, clips)
    with pytest.raises(GraphError, match="reaches the sides of the box"):
        visual_hull(images, clips, 16, [[-0.5] * 3, [0.5] * 3])
    with pytest.raises(GraphError, match="no point of the grid is inside"):
        visual_hull(images, clips, 16, [[3, 3, 3], [4, 4, 4]])
    with pytest.raises(GraphError, match="all masks are empty"):
        visual_hull(0.0 * images, clips)
    with pytest.raises(GraphError, match="disagreeing_views must be 0 to 23 of 24, got 24"):
        visual_hull(images, clips, disagreeing_views=24)
    with pytest.raises(GraphError, match="resolution must be 4 to 1024, got 2"):
        visual_hull(images, clips, resolution=2)
    bad = clips.copy()
    bad[5, 0, 0] = np.nan
    with pytest.raises(GraphError, match="matrix of view 5 is not finite"):
        visual_hull(images, bad)


@pytest.mark.parametrize("radius", [3.3, 11.7, 25.4])
def test_distances_to_a_circle_are_those_of_geometry(radius):
    # Coverage by 8 x 8 samples per pixel.
    at = (np.arange(64 * 8) + 0.5) / 8.0
    x, y = np.meshgrid(at - 31.3, at - 32.6)
    coverage = (np.hypot(x, y) < radius).reshape(64, 8, 64, 8).mean(axis=(1, 3))
    centers = np.arange(64) + 0.5
    exact = radius - np.hypot(*np.meshgrid(centers - 31.3, centers - 32.6))
    error = np.abs(contour_distance(coverage, 0.7) - exact)
    # The Gaussian moves the contour inwards by its variance over twice the radius.
    moved = 0.7**2 / (2 * radius)
    assert error[np.abs(exact) < 2.0].max() < 0.12 + moved
    assert error[(exact > -20) & (exact < radius - 1)].max() < 0.7 + moved


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_mask_without_a_contour_is_far_on_one_side(value):
    distance = contour_distance(np.full((8, 6), value))
    assert (distance == (10.0 if value else -10.0)).all()


def test_a_plain_grid_gives_a_closed_oriented_surface_of_its_volume():
    mesh = solid(torus, 61)
    assert surface_problems(mesh).is_closed
    a, b, c = np.moveaxis(mesh.positions[mesh.faces].astype(float), 1, 0)
    volume = np.einsum("fi,fi->", a, np.cross(b, c)) / 6.0
    assert volume == pytest.approx(2.0 * np.pi**2 * 0.7 * 0.3**2, rel=0.01)


def test_random_signs_give_a_closed_manifold_without_crossings():
    # Every case of every tetrahedron, also where values almost vanish.
    rng = np.random.default_rng(0)
    values = rng.normal(size=(9, 9, 9)) ** 3
    values[[0, -1]] = values[:, [0, -1]] = values[:, :, [0, -1]] = -1.0
    found = surface_problems(isosurface(values))
    assert found.is_closed and len(found.intersections) == len(found.degenerate_faces) == 0


def test_grids_without_a_surface_or_with_an_open_one_are_refused():
    with pytest.raises(GraphError, match="none of the 8 values is positive"):
        isosurface(-np.ones((2, 2, 2)))
    with pytest.raises(GraphError, match="on the sides of the grid"):
        isosurface(np.ones((3, 3, 3)))
    with pytest.raises(GraphError, match=r"not \(3, 3\)"):
        isosurface(np.ones((3, 3)))
    with pytest.raises(GraphError, match="1 values are not finite"):
        isosurface(np.where(np.arange(27).reshape(3, 3, 3) == 13, np.nan, -1.0))
