"""Which vertices are one place: seams that were computed, noise, fine meshes, open seams."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest

from dressi import IVEC3, MAT4, VEC3, DressiAD, DressiWarning, F, Variable, evaluate
from dressi.ad.autodiff import build_backward
from dressi.ad.simplify import materialize
from dressi.render.fit import large_steps
from dressi.render.pipeline.save import moved_mesh
from dressi.render.pipeline.tables import weld_mesh
from dressi.render.raster import build_antialias, build_hardsoftras, face_neighbors, neighbor_table
from dressi.render.raster.topology import WeldedNeighbors
from dressi.render.scene import (
    Mesh,
    MorphTarget,
    Primitive,
    SceneMesh,
    first_alike,
    icosphere,
    tolerance_of,
    weld,
    welded,
)
from dressi.render.scene.welding import Welding


def uv_sphere(
    n: int = 32, rows: int = 16, dtype: type = np.float64
) -> tuple[np.ndarray, np.ndarray]:
    """A grid of angles, as everybody writes it: the seam has sin(2 pi), the pole sin(pi)."""
    u, v = np.meshgrid(
        np.linspace(0, 2 * np.pi, n + 1, dtype=dtype), np.linspace(0, np.pi, rows + 1, dtype=dtype)
    )
    p = np.stack([np.sin(v) * np.cos(u), np.cos(v), np.sin(v) * np.sin(u)], -1).reshape(-1, 3)
    i = np.arange((n + 1) * (rows + 1)).reshape(rows + 1, n + 1)
    a, b, c, d = (x.ravel() for x in (i[:-1, :-1], i[:-1, 1:], i[1:, 1:], i[1:, :-1]))
    return p, np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])


def modular_sphere(n: int = 32, rows: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """The same surface, closed by counting: no vertex twice, one at each pole, no empty faces."""
    v, f = uv_sphere(n, rows)
    row, column = f // (n + 1), f % (n + 1) % n
    column = np.where((row == 0) | (row == rows), 0, column)
    _, index = np.unique(row * n + column, return_inverse=True)
    _, first = np.unique((row * n + column).ravel(), return_index=True)
    f = np.reshape(index, f.shape)
    whole = (f != f[:, [1, 2, 0]]).all(1)
    return v[uv_sphere(n, rows)[1].ravel()[first]], f[whole]


def n_places(v: np.ndarray, f: np.ndarray) -> int:
    return len(np.unique(weld(v, f)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e5])
def test_seam_of_a_sphere_made_of_angles_is_closed(dtype: type, scale: float) -> None:
    v, f = uv_sphere(dtype=dtype)
    v = v * dtype(scale)
    assert n_places(v, f) == 32 * 15 + 2
    joined = weld(v, f)[f]
    whole = (joined != joined[:, [1, 2, 0]]).all(1)
    across = face_neighbors(joined)
    assert whole.sum() == 32 * 2 * 15 and (across[whole] >= 0).all() and (across[~whole] < 0).all()
    assert whole[across[whole]].all(), "faces without area stand between none"


@pytest.mark.parametrize("noise", [1e-15, 1e-12, 1e-8])
@pytest.mark.parametrize("offset", [0.0, 1.0, 30.0])
def test_noise_below_what_float32_holds_joins_what_it_would_tear(
    noise: float, offset: float
) -> None:
    v, f = modular_sphere()
    soup, faces = v[f].reshape(-1, 3) + offset, np.arange(3 * len(f)).reshape(-1, 3)
    soup += np.random.default_rng(0).uniform(-noise, noise, soup.shape)
    first = weld(soup, faces)
    assert len(np.unique(first)) == len(v)
    want = {}
    for k, row in enumerate(f.ravel()):
        want.setdefault(int(row), k)
    assert (first == [want[int(r)] for r in f.ravel()]).all(), "the first of each, in order"


@pytest.mark.parametrize("step", [1e-6, 1e-9, 1e-20])
def test_fine_meshes_do_not_collapse(step: float) -> None:
    """A patch with edges of that length beside a face of length 1; and as a mesh of its own."""
    n = 12
    x, y = np.meshgrid(np.arange(n) * step, np.arange(n) * step)
    patch = np.stack([x, y, 0 * x], -1).reshape(-1, 3)
    i = np.arange(n * n).reshape(n, n)
    a, b, c, d = (k.ravel() for k in (i[:-1, :-1], i[:-1, 1:], i[1:, 1:], i[1:, :-1]))
    f = np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])
    assert n_places(patch, f) == n * n
    far = np.array([(1.0, 1, 0), (2, 1, 0), (1, 2, 0)])
    together = np.concatenate([f, n * n + np.arange(3)[None]])
    assert n_places(np.concatenate([patch, far]), together) == n * n + 3


def test_unit_cube_far_from_the_origin_keeps_its_corners() -> None:
    v = np.array([(x, y, z) for x in (0, 1) for y in (0, 1) for z in (0, 1)]) + (8297640.0, 4e6, 66)
    assert n_places(v, np.array([(0, 1, 2), (4, 5, 6), (3, 7, 0)])) == 8


def test_borders_of_no_cell_come_between_rows_that_are_close() -> None:
    """Pairs at every phase of any grid; the reference looks at all pairs."""
    rng = np.random.default_rng(1)
    base = rng.uniform(0, 1, (150, 3))
    rows = np.concatenate([base, base + rng.uniform(-0.009, 0.009, base.shape)])
    rows = rows[rng.permutation(len(rows))]
    want = np.arange(len(rows))
    near = np.abs(rows[:, None] - rows[None]).max(-1) <= 0.01
    for _ in range(len(rows)):
        want, before = np.array([want[near[k]].min() for k in range(len(rows))]), want
        if (want == before).all():
            break
    assert (first_alike(rows, 0.01) == want).all() and 100 < len(np.unique(want)) < 160


def test_many_vertices_at_one_place_take_no_time_and_nan_is_like_nothing() -> None:
    rows = np.zeros((200_000, 3))
    rows[::2] = -0.0
    start = time.perf_counter()
    assert (first_alike(rows, 1e-6) == 0).all()
    assert time.perf_counter() - start < 5.0  # as pairs they would be 2e10
    assert first_alike([(0.0,), (np.nan,), (np.nan,), (1e-7,)], 1e-6).tolist() == [0, 1, 2, 0]
    assert tolerance_of([(np.nan, 0, 0), (0, 0, 0), (2, 0, 0)]) == pytest.approx(8 * 2.0**-23)


def test_welded_mesh_keeps_its_order_and_uvs() -> None:
    v, f = uv_sphere()
    mesh = welded(Mesh(v, f, np.random.default_rng(0).uniform(size=(len(v), 2))))
    assert len(mesh.positions) == 32 * 15 + 2 and len(mesh.uvs) == len(v)
    kept = np.unique(weld(v, f))
    assert (mesh.positions == v.astype(np.float32)[kept]).all() and (mesh.uv_faces == f).all()
    assert np.abs(mesh.positions[mesh.faces] - v[f]).max() < 1e-6


def _two_sided() -> SceneMesh:
    """Two primitives that share an edge but for noise, and normals on both sides of a step."""
    v = np.array([(0, 0, 0), (1, 0, 0), (0, 1, 0)], np.float32)
    w = np.array([(1, 1, 0), (0, 1, 0), (1, 0, 0)], np.float32)
    w[1:] += np.float32(1e-7) * np.array([(0, 1, 0), (1, 0, 0)], np.float32)
    tilt = np.array([(0.0005, 0.0, 1.0)] * 3, np.float32)  # where rint changes its mind
    one = np.array([(0, 1, 2)])
    parts = [
        Primitive(p, one, tilt + (s * 1e-6, 0, 0), targets=(MorphTarget(p * 0.1),))
        for p, s in ((v, -1), (w, 1))
    ]
    return SceneMesh(tuple(parts))


def test_scene_meshes_are_welded_and_their_normals_stay_joined() -> None:
    mesh = _two_sided()
    whole = weld_mesh(mesh)
    assert len(whole.positions) == 4 and (whole.rows[0][[1, 2]] == whole.rows[1][[2, 1]]).all()
    moved = whole.positions.copy()
    moved[3, 2] += 1.0
    out = moved_mesh(mesh, whole, moved)
    a, b = (p.normals for p in out.primitives)
    assert np.allclose(a[[1, 2]], b[[2, 1]], atol=1e-6), "one normal on both sides of the edge"
    assert not np.allclose(a[0], b[0], atol=0.1)


def test_large_steps_move_a_seam_as_one() -> None:
    v, f = uv_sphere(12, 6)
    steps = large_steps(Mesh(v, f))
    assert steps.n_places == 12 * 5 + 2


# -- seams that stay open


def _gap(gap: float) -> tuple[np.ndarray, np.ndarray]:
    v, f = uv_sphere()
    v = v.copy()
    v[65:-33:33] += (0, 0, gap)
    return v, f


def test_open_seam_is_counted_in_a_warning() -> None:
    v, f = _gap(1e-5)
    pos, faces = Variable(VEC3, (len(v), 1)), Variable(IVEC3, (len(f), 1))
    with pytest.warns(
        DressiWarning, match=r"32 of 32 border edges .* 1e-05 apart.*\n.*same vertices"
    ):
        evaluate([neighbor_table(faces, pos)], {pos: v.astype(np.float32), faces: f})
    with pytest.warns(DressiWarning, match="border edges"):
        large_steps(Mesh(v, f))


@pytest.mark.parametrize("gap", [0.0, 0.05])
def test_closed_seams_and_wide_gaps_are_no_reason_to_warn(gap: float) -> None:
    v, f = _gap(gap)
    pos, faces = Variable(VEC3, (len(v), 1)), Variable(IVEC3, (len(f), 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate([neighbor_table(faces, pos)], {pos: v.astype(np.float32), faces: f})


# -- pictures


def _front() -> np.ndarray:
    m = np.diag([0.8, -0.8, -0.25, 1.0])
    m[2, 3] = 0.5
    return m


@pytest.mark.gpu
@pytest.mark.parametrize("builder", ["HardSoftRas", "antialias"])
def test_sphere_with_a_seam_looks_like_one_without(ad: DressiAD, builder: str) -> None:
    """The seam faces the camera at an angle: the picture, and the gradient summed over vertices of
    one place."""
    turn = np.array([(0.6, 0.0, 0.8), (0.0, 1.0, 0.0), (-0.8, 0.0, 0.6)])
    tip = np.array([(1.0, 0.0, 0.0), (0.0, 0.28, 0.96), (0.0, -0.96, 0.28)])
    results = []
    for v, f in (uv_sphere(20, 10), modular_sphere(20, 10)):
        pos = Variable(VEC3, (len(v), 1), requires_grad=True)
        faces, matrix = Variable(IVEC3, (len(f), 1)), Variable(MAT4)
        size = (24, 24)
        if builder == "antialias":
            silhouette = build_antialias(pos, faces, matrix, size).silhouette
        else:
            silhouette = build_hardsoftras(pos, faces, matrix, size, 0.1, delta=1.0).silhouette
        loss = F.sum(silhouette * (F.sin(F.pixel_coord(size).x * 0.1) + 0.2))
        for leaf, data in ((pos, v @ turn.T @ tip.T), (faces, f), (matrix, _front())):
            ad.send_img(leaf, data)
        image, gradient = ad.recv_imgs([silhouette, materialize(build_backward(loss, [pos])[pos])])
        _, place = np.unique(np.round(v, 5) + 0.0, axis=0, return_inverse=True)
        summed = np.zeros((place.max() + 1, 3))
        np.add.at(summed, np.reshape(place, -1), gradient.astype(np.float64))
        results.append((image, summed))
    (image, summed), (want, want_summed) = results
    assert np.abs(image - want).max() < 1e-3, np.abs(image - want).max()
    assert np.linalg.norm(summed - want_summed) < 0.01 * np.linalg.norm(want_summed)


def test_a_welding_that_holds_is_the_one_that_would_be_found() -> None:
    """Spheres with a seam of double vertices, moved by steps of all sizes, apart at the seam or
    not: where ``holds`` says so, ``weld`` finds the same."""
    rng = np.random.default_rng(4)
    mesh = icosphere(1)
    positions = np.concatenate([mesh.positions, mesh.positions[:9]]).astype(np.float32)
    faces = np.where(mesh.faces < 9, mesh.faces + len(mesh.positions), mesh.faces)
    first = weld(positions, faces)
    welding = Welding.of(positions, first)
    assert welding is not None
    held = 0
    for step in np.repeat(np.geomspace(1e-7, 0.5, 30), 4):
        move = rng.normal(scale=step, size=mesh.positions.shape).astype(np.float32)
        moved = positions + np.concatenate([move, move[:9]])
        assert not welding.holds(moved + rng.normal(scale=step, size=moved.shape))  # torn
        if welding.holds(moved):
            held += 1
            np.testing.assert_array_equal(weld(moved, faces), first)
    assert 20 < held < 110


def test_neighbors_of_moving_vertices_are_found_anew_where_they_may_differ() -> None:
    """A square of two faces whose corners are joined, torn and joined again, beside one answer per
    call."""
    faces = np.array([[0, 1, 2], [3, 4, 5]])
    square = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 1, 0], [0, 1, 0]], float)
    torn = square + np.array([[0.0, 0, 0]] * 3 + [[-1.0, 0, 0]] * 3)
    kept = WeldedNeighbors()
    for positions in (square, square * 1.01, square, torn, torn * 2, square, torn, square):
        np.testing.assert_array_equal(kept(faces, positions), WeldedNeighbors()(faces, positions))


def test_neighbors_of_a_closed_surface_stay_until_joined_vertices_part() -> None:
    """A sphere with double vertices that moves far, flattens, and is torn: the answer is found anew
    where it is torn, and once more where it is whole again; nothing is looked for in between."""
    mesh = icosphere(1)
    n = len(mesh.positions)
    positions = np.concatenate([mesh.positions, mesh.positions[:9]]).astype(np.float32)
    faces = np.where(mesh.faces < 9, mesh.faces + n, mesh.faces).astype(np.int64)
    # Some faces keep the first of two vertices at one place, so that there is a seam.
    faces[::2] = mesh.faces[::2]
    kept = WeldedNeighbors()
    whole = kept(faces, positions)
    assert (whole >= 0).all(), "the surface is closed"
    assert kept(faces, positions * (3.0, 0.5, 1.0)) is whole
    assert kept(faces, positions * (1.0, 1.0, 0.1) + 5.0) is whole
    torn = positions.copy()
    torn[n:] += 0.3
    again = kept(faces, torn)
    assert (again < 0).any()
    np.testing.assert_array_equal(again, WeldedNeighbors()(faces, torn))
    np.testing.assert_array_equal(kept(faces, positions), whole)  # the border has closed


def test_neighbors_of_vertices_that_began_at_one_place_are_found_anew() -> None:
    mesh = icosphere(1)
    kept = WeldedNeighbors()
    kept(mesh.faces, np.zeros_like(mesh.positions))
    got = kept(mesh.faces, mesh.positions)
    np.testing.assert_array_equal(got, WeldedNeighbors()(mesh.faces, mesh.positions))


def test_a_border_that_closes_is_found_also_after_many_steps() -> None:
    """A cylinder cut along a line whose sides drift apart and meet again, beside one answer per
    call."""
    k, rows = np.arange(13), 4
    angle = np.tile(k, rows) / 12.0
    height = np.repeat(np.arange(rows), 13)
    corner = (np.arange(rows - 1)[:, None] * 13 + np.arange(12)).reshape(-1)
    faces = np.concatenate(
        [
            np.stack([corner, corner + 1, corner + 13], 1),
            np.stack([corner + 1, corner + 14, corner + 13], 1),
        ]
    )
    kept = WeldedNeighbors()
    for turn in (1.0, 0.9, 0.95, 0.99, 1.0, 0.8, 1.0):
        a = 2 * np.pi * turn * angle
        x, y = np.cos(a), np.where(np.tile(k, rows) == 12, np.sin(a) * (turn < 1), np.sin(a))
        positions = np.stack([x, y, height], 1).astype(np.float32)
        np.testing.assert_array_equal(kept(faces, positions), WeldedNeighbors()(faces, positions))
