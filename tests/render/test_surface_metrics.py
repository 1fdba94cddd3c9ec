"""Distances between surfaces, visibility and structural similarity, against analytic values and
plain loops in float64."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.errors import GraphError
from dressi.render.camera import look_at, orthographic, perspective
from dressi.render.fit import (
    closest_on_surface,
    sample_surface,
    seen_points,
    ssim,
    surface_metrics,
)
from dressi.render.fit.closest import SurfaceTree
from dressi.render.scene import Mesh, icosphere, surface_area


def _square(side: float = 1.0, z: float = 0.0, n: int = 4, name: str = "square") -> Mesh:
    """A square in the plane z, facing +Z, of 2 n^2 triangles, its corner at the origin."""
    k = np.arange(n + 1)
    x, y = np.meshgrid(k, k)
    places = np.stack([x.ravel(), y.ravel(), np.zeros(x.size)], axis=1) * (side / n)
    a = (k[:n, None] * (n + 1) + k[None, :n]).ravel()
    faces = np.concatenate(
        [np.stack([a, a + 1, a + n + 2], axis=1), np.stack([a, a + n + 2, a + n + 1], axis=1)]
    )
    return Mesh(places + [0.0, 0.0, z], faces, name=name)


def _joined(*meshes: Mesh) -> Mesh:
    starts = np.cumsum([0] + [len(m.positions) for m in meshes[:-1]])
    faces = [m.faces + s for m, s in zip(meshes, starts, strict=True)]
    return Mesh(np.concatenate([m.positions for m in meshes]), np.concatenate(faces))


def test_closest_points_agree_with_a_search_through_all_triangles():
    import trimesh

    rng = np.random.default_rng(2)
    size = rng.choice([0.01, 0.3, 3.0], size=(200, 1, 1))
    corners = rng.normal(size=(200, 1, 3)) + rng.normal(size=(200, 3, 3)) * size
    points = rng.normal(size=(60, 3)) * 2.0
    distance, face, foot = closest_on_surface(
        points, corners.reshape(-1, 3), np.arange(600).reshape(-1, 3)
    )
    for i, point in enumerate(points):
        every = trimesh.triangles.closest_point(corners, np.repeat(point[None], 200, axis=0))
        apart = np.linalg.norm(every - point, axis=1)
        assert distance[i] == pytest.approx(apart.min(), abs=1e-12)
        assert apart[face[i]] == pytest.approx(apart.min(), abs=1e-12)
        assert foot[i] == pytest.approx(every[face[i]], abs=1e-9)


@pytest.mark.parametrize("near_enough", [0.05, 0.5])
def test_a_search_may_end_where_something_is_near_enough(near_enough):
    rng = np.random.default_rng(3)
    corners = rng.normal(size=(300, 1, 3)) + rng.normal(size=(300, 3, 3)) * 0.3
    tree = SurfaceTree.of(corners.reshape(-1, 3), np.arange(900).reshape(-1, 3))
    points = rng.normal(size=(400, 3))
    exact, found = tree.closest(points), tree.closest(points, near_enough)
    far = exact.distance > near_enough
    assert 0 < far.sum() < 400
    assert np.array_equal(found.distance[far], exact.distance[far])
    assert (found.distance[~far] <= near_enough).all()
    assert (found.distance > exact.distance).any()  # there the search was spared


def test_samples_lie_on_their_faces_and_every_face_gets_its_share():
    mesh = icosphere(2)
    points, face = sample_surface(mesh, 5000, seed=3)
    corners = mesh.positions.astype(np.float64)[mesh.faces[face]]
    weights = np.linalg.solve(np.swapaxes(corners, 1, 2), points[..., None])[..., 0]
    assert weights.min() > -1e-9 and weights.sum(axis=1) == pytest.approx(1.0)
    share = np.array([surface_area(mesh.positions, f[None]) for f in mesh.faces])
    expected = 5000 * share / share.sum()
    # Whole strata of a face hold one point each, and at most one is cut at either end.
    assert np.abs(np.bincount(face, minlength=len(mesh.faces)) - expected).max() < 2.0
    assert np.array_equal(points, sample_surface(mesh, 5000, seed=3)[0])
    assert not np.array_equal(points, sample_surface(mesh, 5000, seed=4)[0])


def test_parallel_planes_are_as_far_apart_as_they_are():
    diagonal = np.sqrt(2.0)
    for height, reached in ((0.004 * diagonal, 1.0), (0.006 * diagonal, 0.0)):
        got = surface_metrics(_square(z=height), _square(), 500)
        assert got.to_target_percent == pytest.approx(100.0 * height / diagonal, rel=1e-6)
        assert got.from_target_percent == pytest.approx(100.0 * height / diagonal, rel=1e-6)
        assert got.chamfer_percent == pytest.approx(got.to_target_percent, rel=1e-6)
        assert (got.precision, got.recall, got.f_score) == (reached,) * 3
        assert got.normal_deg == pytest.approx(0.0, abs=1e-6)


def test_a_surface_that_lacks_a_part_has_precision_without_recall():
    left = _square(0.5)
    half = Mesh(left.positions * [1.0, 2.0, 1.0], left.faces)  # x < 0.5 of the unit square
    threshold = 0.005
    got = surface_metrics(half, _square(), 4000, threshold)
    covered = 0.5 + threshold * np.sqrt(2.0)
    # Strata run in the order of faces, so the border takes one point per row of faces or so.
    assert got.precision == 1.0 and got.recall == pytest.approx(covered, abs=0.01)
    assert got.f_score == pytest.approx(2 * got.recall / (1 + got.recall))
    # The far half of the target lies 0 to 0.5 away, 0.25 in the mean.
    want = 100.0 * 0.5 * 0.25 / np.sqrt(2.0)
    assert got.from_target_percent == pytest.approx(want, rel=0.01)
    assert got.to_target_percent == pytest.approx(0.0, abs=1e-6)


def test_normals_of_a_tilted_plane_differ_by_the_tilt_and_of_a_turned_one_by_180_degrees():
    square = _square()
    tilt = np.radians(7.0)
    turned = square.positions @ np.array(
        [[1, 0, 0], [0, np.cos(tilt), np.sin(tilt)], [0, -np.sin(tilt), np.cos(tilt)]]
    )
    got = surface_metrics(Mesh(turned, square.faces), square, 200)
    # float32 normals: a step of 6e-8 in each component is some 1e-5 degrees.
    assert got.normal_to_target_deg == pytest.approx(7.0, abs=1e-4)
    assert got.normal_from_target_deg == pytest.approx(7.0, abs=1e-4)
    inside_out = Mesh(square.positions, square.faces[:, ::-1])
    assert surface_metrics(inside_out, square, 200).normal_deg == pytest.approx(180.0)
    both = surface_metrics(inside_out, square, 200, two_sided=True)
    assert both.normal_deg == pytest.approx(0.0, abs=1e-6)


def test_figures_do_not_depend_on_the_unit_of_the_meshes():
    a, b = icosphere(2), icosphere(1)
    first = surface_metrics(a, b, 800)
    scaled = [Mesh(m.positions * np.float32(1024.0), m.faces) for m in (a, b)]
    assert surface_metrics(*scaled, 800) == first


def _views() -> tuple[np.ndarray, np.ndarray]:
    """Along the six axes; each sees 70 degrees around its own, so together they see a sphere."""
    eyes = 3.0 * np.concatenate([np.eye(3), -np.eye(3)])
    projection = perspective(60.0, 1.0, 0.1, 10.0)
    return eyes, np.stack([projection @ look_at(e, (0, 0, 0), np.roll(e, 1)) for e in eyes])


def test_of_a_sphere_a_view_sees_what_lies_above_its_horizon():
    sphere = icosphere(4)
    points, _ = sample_surface(sphere, 3000)
    eyes, matrices = _views()
    seen = seen_points(points, sphere, matrices)
    for eye, row in zip(eyes, seen, strict=True):
        above = points @ eye  # 1 at the horizon of the unit sphere
        # Normals of flat faces are off by half an edge, 0.04, which moves 3 cos by 0.12.
        clear = np.abs(above - 1.0) > 0.12
        assert np.array_equal(row[clear], (above > 1.0)[clear])


def test_nothing_within_a_closed_surface_is_seen_and_it_does_not_count():
    inner = Mesh(icosphere(2).positions * 0.5, icosphere(2).faces)
    nested = _joined(icosphere(3), inner)
    _, matrices = _views()
    points, face = sample_surface(nested, 2000)
    within = face >= len(icosphere(3).faces)
    seen = seen_points(points, nested, matrices)
    assert not seen[:, within].any() and seen.any(axis=0)[~within].all()
    hidden = surface_metrics(icosphere(3), nested, 2000)
    assert hidden.recall == pytest.approx(1.0 - within.mean(), abs=0.01)
    fair = surface_metrics(icosphere(3), nested, 2000, visible_from=matrices)
    assert fair.recall == 1.0 and fair.seen_share == pytest.approx(1.0 - within.mean(), abs=0.01)


def test_a_window_shows_the_wall_behind_it_exactly_as_far_as_the_line_of_sight_goes():
    """A wall at z = 0 behind one at z = 1 that ends at x = 0.5; the eye is at (0, 0, 3)."""
    wall = Mesh(_square(2.0).positions - [1.0, 1.0, 0.0], _square(2.0).faces)
    front = Mesh(_square(2.0).positions * [0.75, 1.0, 1.0] + [-1.0, -1.0, 1.0], _square(2.0).faces)
    scene = _joined(wall, front)
    matrix = perspective(90.0, 1.0, 0.1, 10.0) @ look_at((0, 0, 3), (0, 0, 0), (0, 1, 0))
    x = np.linspace(-0.95, 0.95, 96)
    points = np.stack([x, 0.1 + 0 * x, 0 * x], axis=1)
    seen = seen_points(points, scene, matrix[None])[0]
    # From (0, 0, 3) past (0.5, ., 1) to z = 0: x = 0.75.
    assert np.array_equal(seen, x > 0.75)
    straight = orthographic(4.0, 4.0, 0.1, 10.0) @ look_at((0, 0, 3), (0, 0, 0), (0, 1, 0))
    assert np.array_equal(seen_points(points, scene, straight[None])[0], x > 0.5)


def test_faces_that_reach_behind_the_eye_hide_what_is_behind_them():
    """A floor below the eye, far beyond it on both sides, and points below and above the floor."""
    floor = Mesh(
        [[-50, -1, -50], [50, -1, -50], [50, -1, 50], [-50, -1, 50]], [[0, 2, 1], [0, 3, 2]]
    )
    matrix = perspective(90.0, 1.0, 0.1, 100.0) @ look_at((0, 0, 0), (0, 0, -1), (0, 1, 0))
    points = np.array([[0.1, -1.5, -10.0], [0.1, -0.5, -10.0], [0.1, -1.0, -10.0], [0, 0, 5]])
    seen = seen_points(points, floor, matrix[None], tolerance=1e-6)[0]
    assert seen.tolist() == [False, True, True, False]


def test_bad_numbers_are_named():
    square = _square()
    away = np.eye(4)
    away[2, 3] = 50.0  # everything lies beyond the far plane
    for word, call in (
        ("threshold must be > 0", lambda: surface_metrics(square, square, 10, 0.0)),
        ("n >= 1", lambda: sample_surface(square, 0)),
        ("no view sees", lambda: surface_metrics(square, square, 10, visible_from=away[None])),
        (r"\(4, 4\)", lambda: seen_points(np.zeros((1, 3)), square, away)),
        ("tolerance", lambda: seen_points(np.zeros((1, 3)), square, away[None], 0.0)),
        ("no face with an area", lambda: sample_surface(Mesh(np.ones((3, 3)), [[0, 1, 2]]), 9)),
    ):
        with pytest.raises(GraphError, match=word):
            call()


def _ssim_map(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Equation 13 of Wang et al. 2004 window by window, in plain loops; grey images."""
    k = np.arange(-5, 6)
    window = np.exp(-(k[:, None] ** 2 + k[None] ** 2) / (2 * 1.5**2))
    window /= window.sum()
    out = np.empty((a.shape[0] - 10, a.shape[1] - 10))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            x, y = a[i : i + 11, j : j + 11], b[i : i + 11, j : j + 11]
            mx, my = (window * x).sum(), (window * y).sum()
            vx, vy = (window * (x - mx) ** 2).sum(), (window * (y - my) ** 2).sum()
            cov = (window * (x - mx) * (y - my)).sum()
            out[i, j] = (2 * mx * my + 1e-4) * (2 * cov + 9e-4)
            out[i, j] /= (mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4)
    return out


def test_ssim_is_that_of_its_paper():
    rng = np.random.default_rng(1)
    a = rng.random((19, 23))
    b = np.clip(a + 0.2 * rng.normal(size=a.shape), 0, 1)
    want = _ssim_map(a, b)
    assert ssim(a, b) == pytest.approx(want.mean(), abs=1e-12)
    two = np.stack([a, b], axis=2)
    assert ssim(two, two[..., ::-1]) == pytest.approx(want.mean(), abs=1e-12)
    mask = np.zeros(a.shape)
    mask[7, 9] = mask[0, 0] = 1.0  # no whole window has its centre at (0, 0)
    assert ssim(a, b, mask) == pytest.approx(want[2, 4], abs=1e-12)
    assert ssim(a, a) == 1.0


def test_ssim_agrees_with_scikit_image():
    """structural_similarity of scikit-image 0.26.0 with gaussian_weights=True, sigma=1.5,
    use_sample_covariance=False, data_range=1.0, channel_axis=2 printed this number."""
    rng = np.random.default_rng(1)
    a = rng.random((64, 48, 3))
    b = np.clip(a + 0.2 * rng.normal(size=a.shape), 0, 1)
    assert ssim(a, b) == pytest.approx(0.8227536347066019, abs=1e-9)


def test_ssim_refuses_what_it_cannot_compare():
    a = np.zeros((12, 12))
    corner = np.zeros((12, 12))
    corner[0, 0] = 1
    for word, call in (
        ("one shape", lambda: ssim(a, a[:11])),
        ("at least 11 x 11", lambda: ssim(a[:10], a[:10])),
        ("whole window", lambda: ssim(a, a, corner)),
        (r"mask of \(12, 12\)", lambda: ssim(a, a, corner[:3])),
    ):
        with pytest.raises(GraphError, match=word):
            call()
