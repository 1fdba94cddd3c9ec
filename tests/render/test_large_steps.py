"""Large Steps: an exact solve, its own transpose; the inverse factor on all kinds of meshes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dressi.ad import VEC3, F, Variable, build_backward, evaluate, gradcheck
from dressi.errors import GraphError
from dressi.render.fit.dissection import inverse_factor
from dressi.render.fit.reparameterization import CHUNK, large_steps
from dressi.render.scene import Mesh, icosphere

RNG = np.random.default_rng(0)


def direct_system(mesh, smoothness):
    """I + lambda (D - W), edge by edge."""
    n = len(mesh.positions)
    a = np.eye(n)
    for i, j in {
        tuple(sorted((f[k], f[(k + 1) % 3]))) for f in mesh.faces.tolist() for k in range(3)
    }:
        a[i, i] += smoothness
        a[j, j] += smoothness
        a[i, j] -= smoothness
        a[j, i] -= smoothness
    return a


@pytest.mark.parametrize("smoothness", [0.0, 1.0, 19.0, 500.0])
def test_the_solve_is_exact_to_float32(smoothness):
    mesh = icosphere(3)  # 642 vertices: rows are longer than a chunk
    steps = large_steps(mesh, smoothness)
    a = direct_system(mesh, smoothness)
    assert np.allclose(steps.system.toarray(), a)
    if smoothness:
        pieces, sums = steps.factors[0], steps.factors[1]
        assert (
            np.diff(pieces.offsets).max()
            <= CHUNK
            < np.diff(inverse_factor(a, mesh.positions).indptr).max()
        )
        assert sums.n_columns == pieces.n_rows > len(a)
    u = RNG.normal(size=(642, 3))
    got = evaluate([steps.vertices(F.leaf(u, VEC3))], {})[0].reshape(-1, 3)
    want = np.linalg.solve(a, u.astype(np.float32))
    assert np.abs(got - want).max() < 2e-6 * np.abs(want).max()


def test_round_trip_and_gradient():
    mesh = icosphere(2)
    steps = large_steps(mesh)
    u = F.leaf(steps.parameters(mesh.positions), VEC3, "u")
    u.requires_grad = True
    v = steps.vertices(u)
    assert np.allclose(evaluate([v], {})[0].reshape(-1, 3), mesh.positions, atol=2e-6)
    assert np.allclose(steps.positions(steps.parameters(mesh.positions)), mesh.positions, atol=1e-6)
    weight = RNG.normal(size=(len(mesh.positions), 3))
    loss = F.sum(F.dot(v, F.leaf(weight, VEC3)))
    got = evaluate([build_backward(loss, [u])[u]], {})[0].reshape(-1, 3)
    want = np.linalg.solve(direct_system(mesh, 19.0), weight.astype(np.float32))
    assert np.abs(got - want).max() < 2e-6 * np.abs(want).max()
    assert gradcheck(loss, [u]).ok


def test_vertices_at_one_place_stay_together():
    sphere = icosphere(1)
    corners = sphere.positions[sphere.faces].reshape(-1, 3)
    split = Mesh(corners, np.arange(len(corners)).reshape(-1, 3))
    steps = large_steps(split, 5.0)
    assert steps.n_places == len(sphere.positions)
    u = F.leaf(RNG.normal(size=(steps.n_places, 3)), VEC3, "u")
    v = evaluate([steps.vertices(u)], {})[0].reshape(-1, 3)
    assert len(v) == len(corners)
    for place in range(steps.n_places):
        assert np.ptp(v[steps.places == place], axis=0).max() == 0.0
    p = steps.parameters(corners)
    assert np.allclose(steps.positions(p), corners, atol=1e-6)


def test_parts_lone_vertices_and_one_place():
    sphere = icosphere(2)
    n = len(sphere.positions)
    two = Mesh(
        np.concatenate([sphere.positions, sphere.positions + 5, [[9.0, 9, 9]]]),
        np.concatenate([sphere.faces, sphere.faces + n]),
    )
    steps = large_steps(two, 19.0)
    u = RNG.normal(size=(2 * n + 1, 3))
    got = evaluate([steps.vertices(F.leaf(u, VEC3))], {})[0].reshape(-1, 3)
    want = np.linalg.solve(direct_system(two, 19.0), u.astype(np.float32))
    assert np.allclose(got, want, atol=1e-6)
    assert np.allclose(got[-1], u[-1])  # a lone vertex is its own parameter


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 300])
def test_inverse_factor_of_any_matrix(n):
    """Not only meshes: dense ones, at places that all coincide too."""
    m = sparse.random(n, n, 0.05, random_state=n).toarray()
    a = m @ m.T + np.eye(n)
    for places in (RNG.normal(size=(n, 3)), np.zeros((n, 3))):
        c = inverse_factor(sparse.csr_matrix(a), places)
        assert np.allclose((c.T @ c).toarray(), np.linalg.inv(a), atol=1e-6)


def test_what_is_refused():
    with pytest.raises(GraphError, match="not positive definite"):
        inverse_factor(sparse.csr_matrix(-np.eye(3)), np.zeros((3, 3)))
    with pytest.raises(GraphError, match=r"\(n, 3\)"):
        inverse_factor(sparse.csr_matrix(np.eye(3)), np.zeros((2, 3)))
    mesh = icosphere(1)
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(GraphError, match="smoothness"):
            large_steps(mesh, bad)
    with pytest.raises(GraphError, match="out of range"):
        large_steps(Mesh(mesh.positions, mesh.faces + 40))
    steps = large_steps(mesh)
    with pytest.raises(GraphError, match=r"42 rows.* VEC3@7x1"):
        steps.vertices(Variable(VEC3, (7, 1)))
    with pytest.raises(GraphError, match=r"\(42, 3\)"):
        steps.parameters(mesh.positions[:5])


@pytest.mark.gpu
def test_on_the_device():
    from dressi import DressiAD

    mesh = icosphere(3)
    steps = large_steps(mesh)
    u = F.leaf(steps.parameters(mesh.positions), VEC3, "u")
    u.requires_grad = True
    v = steps.vertices(u)
    weight = F.leaf(RNG.normal(size=(642, 3)), VEC3)
    loss = F.sum(F.dot(v, weight))
    with DressiAD() as ad:
        assert np.abs(ad.recv_img(v) - mesh.positions).max() < 5e-6
        ad.set_loss_var(loss)
        got = ad.recv_grad(u)
    want = np.linalg.solve(direct_system(mesh, 19.0), weight.data.reshape(-1, 3))
    assert np.abs(got - want).max() < 5e-6 * np.abs(want).max()


def test_entries_that_are_given_twice_are_added():
    matrix = sparse.csr_matrix(([1.0, 3.0, 2.0], [0, 0, 1], [0, 2, 3]), (2, 2))
    factor = inverse_factor(matrix, np.zeros((2, 3))).toarray()
    assert np.allclose(factor.T @ factor, np.diag([0.25, 0.5]))
    assert matrix.nnz == 3, "what was given is as before"
