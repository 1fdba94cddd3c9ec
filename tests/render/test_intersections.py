"""Faces that meet: against clipping with rational numbers, and by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dressi.render.scene import Mesh, icosphere, intersecting_faces
from dressi.render.scene.intersections import overlapping_boxes
from dressi.render.scene.predicates import ExactPoints, has_area, orient2d, orient3d


def dot(u, v):
    return sum(a * b for a, b in zip(u, v, strict=True))


def minus(u, v):
    return tuple(a - b for a, b in zip(u, v, strict=True))


def cross(u, v):
    return (u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0])


def clipped(polygon, normal, origin):
    """The part of a convex polygon where dot(x - origin, normal) >= 0."""
    out = []
    for p, q in zip(polygon, polygon[1:] + polygon[:1], strict=True):
        d, e = dot(minus(p, origin), normal), dot(minus(q, origin), normal)
        if d >= 0:
            out.append(p)
        if (d > 0 > e) or (d < 0 < e):
            t = d / (d - e)
            out.append(tuple(a + t * (b - a) for a, b in zip(p, q, strict=True)))
    return out


def meet_by_clipping(points, one, other):
    """True where two triangles have a point in common that is not of a shared corner or edge."""
    a, b, c = (points[i] for i in other)
    normal = cross(minus(b, a), minus(c, a))
    common = [points[i] for i in one]
    planes = [(normal, a), (tuple(-x for x in normal), a)]
    planes += [(cross(normal, minus(q, p)), p) for p, q in ((a, b), (b, c), (c, a))]
    for plane_normal, origin in planes:
        common = clipped(common, plane_normal, origin) if common else []
    shared = [points[i] for i in one if i in other]
    if len(shared) == 3:
        return True
    if len(shared) < 2:
        return any(p not in shared for p in common)
    along = minus(shared[1], shared[0])
    return any(any(cross(minus(p, shared[0]), along)) for p in common)


def brute(positions, faces):
    points = [tuple(Fraction(float(x)) for x in row) for row in np.asarray(positions, np.float32)]
    solid = [
        any(cross(minus(points[b], points[a]), minus(points[c], points[a]))) for a, b, c in faces
    ]
    faces = [tuple(int(i) for i in f) for f in faces]
    return [
        [i, j]
        for i in range(len(faces))
        for j in range(i + 1, len(faces))
        if solid[i] and solid[j] and meet_by_clipping(points, faces[i], faces[j])
    ]


@pytest.mark.parametrize("seed", range(6))
def test_random_faces_on_few_points_agree_with_rational_clipping(seed):
    # Few integer coordinates: most pairs share planes, lines or corners.
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*[np.arange(3.0)] * 3), -1).reshape(-1, 3)
    points = grid[rng.permutation(27)[:14]]
    faces = np.array([rng.permutation(14)[:3] for _ in range(40)])
    assert intersecting_faces(points, faces).tolist() == brute(points, faces)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_turned_planes_agree_with_rational_clipping(scale):
    # float32 rounding tears coplanar points apart by less than float64 products can tell.
    rng = np.random.default_rng(7)
    axes = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    flat = np.stack([*rng.integers(0, 4, (2, 16)), np.zeros(16)], axis=1) / 3.0
    points = np.unique((scale * (flat @ axes + [0.1, 0.2, 0.3])).astype(np.float32), axis=0)
    faces = np.array([rng.permutation(len(points))[:3] for _ in range(40)])
    assert intersecting_faces(points, faces).tolist() == brute(points, faces)


def test_signs_of_tiny_volumes_are_exact():
    # b moves by single steps of float32 through the plane of the others.
    rng = np.random.default_rng(3)
    base = rng.normal(size=(40, 3, 3)).astype(np.float32)
    weights = rng.dirichlet([1, 1, 1], 40)
    inner = np.einsum("nk,nki->ni", weights, base.astype(float)).astype(np.float32)
    positions = np.concatenate([base.reshape(-1, 3), inner]).astype(float)
    index = np.arange(120).reshape(40, 3)
    got = orient3d(ExactPoints(positions), *index.T, 120 + np.arange(40))
    for row, sign in enumerate(got.tolist()):
        a, b, c, d = (tuple(Fraction(x) for x in positions[i]) for i in [*index[row], 120 + row])
        volume = dot(cross(minus(b, a), minus(c, a)), minus(d, a))
        assert sign == (volume > 0) - (volume < 0)


def test_a_volume_has_the_sign_of_the_side_that_the_face_looks_to():
    points = ExactPoints(np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0], [0, 0, -1]]))
    a, b, c = (np.array([i, i]) for i in range(3))
    assert orient3d(points, a, b, c, np.array([3, 4])).tolist() == [1, -1]
    axes = np.array([[0, 1], [1, 0]])
    assert orient2d(points, axes, a, b, c).tolist() == [1, -1]


def test_area_is_decided_exactly():
    # On a line, but not with rounded thirds.
    line = np.array([[0, 0, 0], [1, 2, 3], [3, 6, 9], [1 / 3, 2 / 3, 1]], np.float32)
    points = ExactPoints(line.astype(float))
    assert has_area(points, np.array([[0, 1, 2], [0, 1, 3]])).tolist() == [False, True]


PAIRS = {
    "cross": ([[0, 0, 0], [2, 0, 0], [0, 2, 0], [0.5, 0.5, -1], [0.5, 0.5, 1], [3, 3, 1]], True),
    "an edge through an edge": (
        [[0, 0, 0], [2, 0, 0], [0, -2, 0], [1, 0, -1], [1, 0, 1], [1, 3, 0]],
        True,
    ),
    "a corner on a face": (
        [[0, 0, 0], [2, 0, 0], [0, 2, 0], [0.5, 0.5, 0], [0, 0, 1], [1, 0, 1]],
        True,
    ),
    "a corner on a corner that is not shared": (
        [[0, 0, 0], [2, 0, 0], [0, 2, 0], [0, 0, 0], [0, 0, 1], [-1, 0, 1]],
        True,
    ),
    "above": ([[0, 0, 0], [2, 0, 0], [0, 2, 0], [0, 0, 1], [2, 0, 1], [0, 2, 1e-30]], False),
    "in one plane, within": (
        [[0, 0, 0], [9, 0, 0], [0, 9, 0], [1, 1, 0], [2, 1, 0], [1, 2, 0]],
        True,
    ),
    "in one plane, crossing": (
        [[0, 0, 0], [4, 0, 0], [0, 4, 0], [-1, 1, 0], [5, 1, 0], [-1, 1.5, 0]],
        True,
    ),
    "in one plane, beside": (
        [[0, 0, 0], [4, 0, 0], [0, 4, 0], [4, 4, 0], [5, 4, 0], [4, 5, 0]],
        False,
    ),
    "in one plane, borders on one line, apart": (
        [[0, 0, 0], [1, 0, 0], [0, 1, 0], [2, 0, 0], [3, 0, 0], [2, -1, 0]],
        False,
    ),
    "in one plane, borders overlap": (
        [[0, 0, 0], [3, 0, 0], [0, 1, 0], [1, 0, 0], [2, 0, 0], [1, -1, 0]],
        True,
    ),
}


@pytest.mark.parametrize(("points", "meets"), PAIRS.values(), ids=PAIRS.keys())
@pytest.mark.parametrize("swap", [False, True])
def test_pairs_without_a_shared_corner(points, meets, swap):
    faces = np.array([[0, 1, 2], [3, 4, 5]])[:: -1 if swap else 1]
    assert len(intersecting_faces(points, faces)) == meets


SHARED = {
    "flat around an edge": (
        [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, -1, 0]],
        [[0, 1, 2], [1, 0, 3]],
        0,
    ),
    "folded back by 180 degrees": (
        [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0.3, 0.4, 0]],
        [[0, 1, 2], [1, 0, 3]],
        1,
    ),
    "folded back by a little less": (
        [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0.3, 0.4, 1e-30]],
        [[0, 1, 2], [1, 0, 3]],
        0,
    ),
    "touching at a shared corner": (
        [[0, 0, 0], [1, 0, 0], [0, 1, 0], [-1, 0, 0.0], [0, -1, 0]],
        [[0, 1, 2], [0, 3, 4]],
        0,
    ),
    "a shared corner and one plane, overlapping": (
        [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0.5, 0], [0.5, 1, 0]],
        [[0, 1, 2], [0, 3, 4]],
        1,
    ),
    "a shared corner and one plane, one line": (
        [[0, 0, 0], [1, 0, 0], [0, 1, 0], [2, 0, 0], [1, -1, 0]],
        [[0, 1, 2], [0, 3, 4]],
        1,
    ),
    "a shared corner, through the far edge": (
        [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0.4, 0.4, -1], [0.4, 0.4, 1]],
        [[0, 1, 2], [0, 3, 4]],
        1,
    ),
    "twice the same": ([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2], [2, 1, 0]], 1),
}


@pytest.mark.parametrize(("points", "faces", "n"), SHARED.values(), ids=SHARED.keys())
def test_pairs_with_shared_corners(points, faces, n):
    assert len(intersecting_faces(points, faces)) == n


def test_faces_without_area_are_left_out():
    points = [[0, 0, 0], [2, 0, 0], [0, 2, 0], [0.5, 0.5, -1], [0.5, 0.5, 1], [0.5, 0.5, 0]]
    assert len(intersecting_faces(points, [[0, 1, 2], [3, 4, 5]])) == 0
    assert intersecting_faces(points, [[3, 4, 5]]).shape == (0, 2)


def test_boxes_are_those_of_all_pairs():
    rng = np.random.default_rng(1)
    low = rng.uniform(size=(150, 3))
    high = low + rng.uniform(size=(150, 3)) ** 6  # few large ones among small ones
    expected = [
        [i, j]
        for i in range(150)
        for j in range(i + 1, 150)
        if (low[i] <= high[j]).all() and (low[j] <= high[i]).all()
    ]
    assert sorted(overlapping_boxes(low, high).tolist()) == expected


def test_two_spheres_meet_along_one_curve():
    sphere = icosphere(2)
    n = len(sphere.positions)
    both = Mesh(
        np.concatenate([sphere.positions, sphere.positions + np.float32([0.7, 0.1, 0.05])]),
        np.concatenate([sphere.faces, sphere.faces + n]),
    )
    pairs = intersecting_faces(both.positions, both.faces)
    assert ((pairs < len(sphere.faces)).sum(axis=1) == 1).all()  # one of each
    # The spheres meet in the plane halfway between their centres.
    middle = both.positions[both.faces[pairs[:, 0]]].mean(axis=1)
    axis = np.array([0.7, 0.1, 0.05])
    away = middle @ axis / np.linalg.norm(axis) - 0.5 * np.linalg.norm(axis)
    assert len(pairs) > 50 and np.abs(away).max() < 0.3
