"""Regularizers against formulas written out edge by edge and pixel by pixel."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.ad import (
    FLOAT,
    INT,
    IVEC2,
    VEC2,
    VEC3,
    F,
    Variable,
    build_backward,
    evaluate,
    gradcheck,
)
from dressi.errors import GraphError
from dressi.render.fit import (
    cotangent_matrix,
    edge_length_loss,
    edge_table,
    laplacian_loss,
    laplacian_matrix,
    laplacian_smoothing,
    total_variation,
)
from dressi.render.scene import icosphere, uniform_laplacian

RNG = np.random.default_rng(0)


def dense(m):
    out = np.zeros((m.n_rows, m.n_columns))
    for i in range(m.n_rows):
        for k in range(m.offsets[i], m.offsets[i + 1]):
            out[i, m.columns[k]] += m.values[k]
    return out


def table(array, vtype=VEC3, name="x"):
    out = F.leaf(np.asarray(array), vtype, name)
    out.requires_grad = True
    return out


def value(v, feeds=None):
    return float(evaluate([v], feeds or {})[0].reshape(-1)[0])


def direct_cotangent(positions, faces, low_deg=3.0, high_deg=90.0):
    """Angle by angle."""
    n = len(positions)
    w = np.zeros((n, n))
    for face in faces:
        for k in range(3):
            a, b, c = face[k], face[(k + 1) % 3], face[(k + 2) % 3]
            u, v = positions[b] - positions[a], positions[c] - positions[a]
            angle = np.arccos(u @ v / np.linalg.norm(u) / np.linalg.norm(v))
            cot = 1 / np.tan(np.clip(angle, np.radians(low_deg), np.radians(high_deg)))
            w[b, c] += cot
            w[c, b] += cot
    return w / w.sum(axis=1, keepdims=True) - np.eye(n)


def test_cotangent_weights_are_those_of_the_angles():
    mesh = icosphere(1)
    shape = mesh.positions.astype(np.float64) * [1, 0.8, 1.3] + RNG.normal(size=(42, 3)) * 0.02
    got = dense(cotangent_matrix(shape, mesh.faces))
    assert np.allclose(got, direct_cotangent(shape, mesh.faces), atol=1e-6)
    # obtuse faces: clamped to right angles
    flat = shape * [1, 1, 0.1]
    assert np.allclose(
        dense(cotangent_matrix(flat, mesh.faces, 10.0, 80.0)),
        direct_cotangent(flat, mesh.faces, 10.0, 80.0),
        atol=1e-6,
    )


def test_cotangent_laplacian_leaves_a_plane_alone():
    """However uneven its triangles are: the uniform one pulls."""
    x, y = np.meshgrid(np.arange(6.0), np.arange(6.0))
    points = np.stack([x, y, 0 * x], -1).reshape(-1, 3) + RNG.uniform(-0.2, 0.2, (36, 3)) * [
        1,
        1,
        0,
    ]
    faces = np.array(
        [t for j in range(5) for i in range(5)
         for a in [6 * j + i] for t in ((a, a + 1, a + 7), (a, a + 7, a + 6))]
    )  # fmt: skip
    inner = [6 * j + i for j in range(1, 5) for i in range(1, 5)]
    got = dense(cotangent_matrix(points, faces, max_angle_deg=90.0))
    uniform = dense(F.linalg.SparseMatrix(*uniform_laplacian(faces, 36), 36))
    move, pull = np.abs(got @ points)[inner], np.abs(uniform @ points)[inner]
    acute = np.median(move.max(axis=1))  # vertices with an obtuse angle around are off by the clamp
    assert acute < 0.3 * np.median(pull.max(axis=1))


def test_cotangent_laplacian_of_degenerate_meshes_is_finite():
    points = np.array([[0, 0, 0], [1, 0, 0], [2, 0, 0], [0, 1, 0], [7, 7, 7]], float)
    faces = np.array([[0, 1, 2], [0, 1, 3], [1, 1, 3], [3, 3, 3]])
    got = dense(cotangent_matrix(points, faces))
    assert np.isfinite(got).all()
    assert np.allclose(got.sum(axis=1), 0, atol=1e-6) and (got - np.diag(np.diag(got)) >= 0).all()
    assert not got[4].any()  # a lone vertex
    x = table(points)
    loss = laplacian_loss(x, cotangent_matrix(points, faces))
    assert gradcheck(loss, [x]).ok


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"faces": np.array([[0, 1, 9]])}, "within 0..4"),
        ({"faces": np.zeros((0, 3), int)}, r"\(F, 3\)"),
        ({"positions": np.full((5, 3), np.nan)}, "finite"),
        ({"min_angle_deg": 0.0}, "min_angle_deg"),
        ({"max_angle_deg": 91.0}, "91"),
    ],
)
def test_cotangent_matrix_refuses(change, words):
    good = {"positions": np.zeros((5, 3)), "faces": np.array([[0, 1, 2]])}
    with pytest.raises(GraphError, match=words):
        cotangent_matrix(**(good | change))


def edges_of(mesh):
    return sorted(
        {tuple(sorted((f[i], f[(i + 1) % 3]))) for f in mesh.faces.tolist() for i in range(3)}
    )


@pytest.mark.parametrize("target", [None, 0.4, "each"])
def test_edge_lengths(target):
    mesh = icosphere(1)
    x, edges = table(mesh.positions), edge_table(mesh.faces)
    assert edges.data.reshape(-1, 2).tolist() == [list(e) for e in edges_of(mesh)]
    p = mesh.positions.astype(np.float64)
    lengths = np.array([np.linalg.norm(p[a] - p[b]) for a, b in edges_of(mesh)])
    wanted, given = {None: lengths.mean(), 0.4: 0.4}.get(target), target
    if target == "each":
        wanted = np.linspace(0.3, 0.6, len(lengths)).astype(np.float32)
        given = table(wanted, FLOAT, "rest")
    loss = edge_length_loss(x, edges, given)
    assert value(loss) == pytest.approx(((lengths - wanted) ** 2).mean(), rel=1e-6)
    wrt = [x, given] if target == "each" else [x]
    found = gradcheck(loss, wrt)
    assert found.ok, found.text()


def test_edges_without_length_have_no_gradient():
    x = table(np.zeros((3, 3)))
    loss = edge_length_loss(x, edge_table(np.array([[0, 1, 2]])), 1.0)
    assert np.array_equal(evaluate([build_backward(loss, [x])[x]], {})[0], np.zeros((1, 1, 3, 3)))


def test_edges_refuse():
    with pytest.raises(GraphError, match=r"\(F, 3\) ints"):
        edge_table(np.zeros((2, 2), int))
    with pytest.raises(GraphError, match="no edge"):
        edge_table(np.zeros((2, 3), int))
    x = table(np.zeros((3, 3)))
    with pytest.raises(GraphError, match="IVEC2"):
        edge_length_loss(x, Variable(INT, (3, 1)))
    with pytest.raises(GraphError, match="-1"):
        edge_length_loss(x, Variable(IVEC2, (3, 1)), -1.0)


def direct_variation(image, mask, isotropic, eps, repeat):
    layers, h, w, _ = image.shape
    total = 0.0
    for k in range(layers):
        for j in range(h):
            for i in range(w):
                square, absolute = 0.0, 0.0
                for dj, di in ((0, 1), (1, 0)):
                    jj, ii = j + dj, i + di
                    if repeat:
                        jj, ii = jj % h, ii % w
                    elif jj >= h or ii >= w:
                        continue
                    m = 1.0 if mask is None else min(mask[0, j, i, 0], mask[0, jj, ii, 0])
                    d = (image[k, jj, ii] - image[k, j, i]) * m
                    square, absolute = square + d @ d, absolute + np.abs(d).sum()
                total += np.sqrt(square + eps * eps) - eps if isotropic else absolute
    return total / (layers * h * w)


@pytest.mark.parametrize("isotropic", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("border", ["clamp", "repeat"])
def test_total_variation(isotropic, masked, border):
    image = RNG.uniform(size=(2, 5, 7, 3)).astype(np.float32)
    mask = RNG.choice([0.0, 0.5, 1.0], size=(1, 5, 7, 1)) if masked else None
    x = table(image)
    m = None if mask is None else F.leaf(mask, FLOAT)
    loss = total_variation(x, m, isotropic, 0.05, border)
    want = direct_variation(image.astype(float), mask, isotropic, 0.05, border == "repeat")
    assert value(loss) == pytest.approx(want, rel=1e-6)
    found = gradcheck(loss, [x])
    assert found.ok, found.text()


def test_constant_maps_have_no_variation_and_no_gradient():
    x = table(np.full((4, 4, 3), 0.3))
    for isotropic in (False, True):
        loss = total_variation(x, isotropic=isotropic)
        values = evaluate([loss, build_backward(loss, [x])[x]], {})
        assert not values[0].any() and not values[1].any()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: total_variation(Variable(INT, (4, 4))), "FLOAT or VECn"),
        (lambda x: total_variation(x, Variable(VEC2, (4, 4))), "mask must be FLOAT"),
        (lambda x: total_variation(x, Variable(FLOAT, (3, 4))), "mask must be FLOAT"),
        (lambda x: total_variation(x, isotropic=True, smoothing=0.0), "smoothing"),
        (lambda x: total_variation(x, border="zero"), "border"),
    ],
)
def test_total_variation_refuses(call, words):
    with pytest.raises(GraphError, match=words) as caught:
        call(table(np.zeros((4, 4, 3))))
    assert "test_regularizers.py" in str(caught.value)


@pytest.mark.gpu
def test_on_the_device():
    from dressi import DressiAD

    mesh = icosphere(1)
    x, image = table(mesh.positions), table(RNG.uniform(size=(6, 8, 3)), name="image")
    rest = cotangent_matrix(mesh.positions, mesh.faces)
    loss = (
        laplacian_loss(x, rest)
        + edge_length_loss(x, edge_table(mesh.faces))
        + total_variation(image, isotropic=True)
        + total_variation(image) * 0.1
    )
    with DressiAD() as ad:
        found = gradcheck(loss, [x, image], engine=ad, feeds={x: x.data, image: image.data})
    assert found.ok, found.text()


def test_smoothing_is_a_power_of_a_matrix_and_its_gradient_the_transposed_one() -> None:
    ball = icosphere(1)
    n = len(ball.positions)
    laplacian = laplacian_matrix(ball.faces, n)
    power = np.linalg.matrix_power(np.eye(n) + 0.5 * dense(laplacian), 3)
    x = Variable(VEC3, (n, 1), requires_grad=True, name="x")
    weight = np.float32(RNG.normal(size=(n, 3)))
    y = laplacian_smoothing(x, laplacian, 3)
    slope = build_backward(F.dot(y, F.leaf(weight, VEC3)))[x]
    value = RNG.normal(size=(1, 1, n, 3))
    found, g = evaluate([y, slope], {x: value})
    np.testing.assert_allclose(found[0, 0], power @ value[0, 0], atol=1e-6)
    np.testing.assert_allclose(g[0, 0], power.T @ weight, atol=1e-6)
    assert laplacian_smoothing(x, laplacian, 0) is x
    for rounds in (-1, 1.0, True):
        with pytest.raises(GraphError, match="rounds must be an int >= 0"):
            laplacian_smoothing(x, laplacian, rounds)  # type: ignore[arg-type]
