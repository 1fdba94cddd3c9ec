"""Several meshes in one rasterization, against the same meshes joined by hand in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dressi import DressiAD, F, GraphError, Variable, evaluate
from dressi.ad.vtype import FLOAT, INT, IVEC3, MAT4, VEC2, VEC3
from dressi.render.raster import (
    MeshBatch,
    build_antialias,
    build_batch,
    build_hard_raster,
    build_hardsoftras,
    neighbor_table,
)
from dressi.render.scene import icosphere
from dressi.render.shading import surface_uv
from dressi.testing.scenes import camera, cube, quad, rotated

SIZE = (40, 32)
VIEWS = np.stack([camera(SIZE, e) for e in ((0.3, 0.4, 4.5), (3.6, 1.0, 2.4))])


def f32(a: Any) -> np.ndarray:
    return np.asarray(a, np.float32).astype(np.float64)


def affine(x: float, y: float, angle: float, scale: float = 1.0) -> np.ndarray:
    m = np.eye(4)
    m[:3, :3] = rotated(np.eye(3) * scale, angle, 0.3).T
    m[:3, 3] = (x, y, 0.2)
    return f32(m)


class Three:
    """A cube, a ball with a matrix a view, and the cube again, smaller, with a matrix."""

    def __init__(self) -> None:
        box, box_faces = cube(0.5)
        ball = icosphere(1, 0.6)
        self.arrays = [f32(box), f32(ball.positions), f32(box)]
        self.face_arrays = [box_faces, ball.faces, box_faces]
        pose = np.stack([affine(-0.8, 0.3, 0.2), affine(-0.7, 0.4, 0.9)])
        self.models = [np.eye(4)[None], pose, affine(0.9, -0.4, 0.5, 0.7)[None]]
        self.box = Variable(VEC3, (8, 1), requires_grad=True, name="box")
        self.box_faces = Variable(IVEC3, (12, 1), name="box_faces")
        self.ball = Variable(VEC3, (len(ball.positions), 1), requires_grad=True, name="ball")
        self.ball_faces = Variable(IVEC3, (len(ball.faces), 1), name="ball_faces")
        self.pose = Variable(MAT4, layers=2, requires_grad=True, name="pose")
        self.place = Variable(MAT4, requires_grad=True, name="place")
        self.matrix = Variable(MAT4, layers=2, name="matrix")
        self.batch: MeshBatch = build_batch(
            [
                (self.box, self.box_faces),
                (self.ball, self.ball_faces, self.pose),
                (self.box, self.box_faces, self.place),
            ]
        )
        self.feeds = {
            self.box: self.arrays[0],
            self.box_faces: box_faces,
            self.ball: self.arrays[1],
            self.ball_faces: ball.faces,
            self.pose: pose,
            self.place: self.models[2][0],
            self.matrix: f32(VIEWS),
        }

    def world(self, view: int) -> np.ndarray:
        parts = []
        for a, m in zip(self.arrays, self.models, strict=True):
            m = m[view % len(m)]
            parts.append(a @ m[:3, :3].T + m[:3, 3])
        return np.concatenate(parts)

    def all_faces(self) -> np.ndarray:
        starts = np.cumsum([0] + [len(a) for a in self.arrays])
        return np.concatenate([f + s for f, s in zip(self.face_arrays, starts[:-1], strict=True)])

    def sent(self, ad: DressiAD) -> Three:
        for v, a in self.feeds.items():
            ad.send_img(v, a)
        return self


def by_hand(vertices: np.ndarray, faces: np.ndarray) -> tuple[Variable, Variable, Variable, dict]:
    """One mesh and one view."""
    pos = Variable(VEC3, (len(vertices), 1), requires_grad=True)
    f, m = Variable(IVEC3, (len(faces), 1)), Variable(MAT4)
    return pos, f, m, {pos: vertices, f: faces}


def test_tables_are_those_joined_by_hand() -> None:
    three = Three()
    positions, faces, mesh = evaluate(
        [three.batch.positions, three.batch.faces, three.batch.mesh_of_face], three.feeds
    )
    for view in range(2):
        assert np.allclose(positions[view, 0], three.world(view), atol=1e-12)
    assert (faces[0, 0] == three.all_faces()).all()
    assert (mesh[0, 0, :, 0] == np.repeat([0, 1, 2], [12, 80, 12])).all()
    assert three.batch.first_face == (0, 12, 92, 104) and three.batch.n_meshes == 3


@pytest.mark.gpu
def test_ids_tell_mesh_and_face(ad: DressiAD) -> None:
    three = Three()
    r = build_hard_raster(three.batch.positions, three.batch.faces, three.matrix, SIZE)
    mesh, face = three.batch.mesh_ids(r.ids), three.batch.face_ids(r.ids)
    weight = [Variable(VEC2, name=f"weight{k}") for k in range(3)]
    shown = three.batch.per_mesh(weight, r.ids)
    three.sent(ad)
    for k, v in enumerate(weight):
        ad.send_img(v, np.array([k + 1.0, -k]))
    got = {n: ad.recv_img(v) for n, v in (("ids", r.ids), ("mesh", mesh), ("face", face))}
    colors = ad.recv_img(shown)
    for view in range(2):
        pos, f, m, feeds = by_hand(f32(three.world(view)), three.all_faces())
        alone = build_hard_raster(pos, f, m, SIZE)
        for v, a in {**feeds, m: f32(VIEWS[view])}.items():
            ad.send_img(v, a)
        ids = ad.recv_img(alone.ids)[..., 0]
        here = got["ids"][view, ..., 0]
        assert (here != ids).mean() < 0.005 and len(np.unique(ids)) > 20
        want_mesh = np.where(here < 0, -1, np.searchsorted([12, 92], here, side="right"))
        starts = np.array([0, 12, 92, 0])
        assert (got["mesh"][view, ..., 0] == want_mesh).all()
        assert (got["face"][view, ..., 0] == np.where(here < 0, -1, here - starts[want_mesh])).all()
        want = np.stack([want_mesh + 1, -want_mesh], -1) * (here >= 0)[..., None]
        assert (colors[view] == want).all()


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["HardSoftRas", "antialias"])
def test_gradients_reach_the_leaves_of_every_mesh(ad: DressiAD, method: str) -> None:
    """By the chain rule in NumPy from the gradient of the meshes joined by hand, view by view."""

    def image_of(pos: Variable, faces: Variable, matrix: Variable) -> Variable:
        if method == "antialias":
            return build_antialias(pos, faces, matrix, SIZE).silhouette
        return build_hardsoftras(pos, faces, matrix, SIZE, 0.08).silhouette

    rng = np.random.default_rng(1)
    weights = f32(rng.uniform(size=(2, SIZE[1], SIZE[0], 1)))
    three = Three()
    image = image_of(three.batch.positions, three.batch.faces, three.matrix)
    weight = Variable(FLOAT, SIZE, 2)
    three.sent(ad).feeds[weight] = weights
    ad.send_img(weight, weights)
    ad.set_loss_var(F.sum(image * weight))
    picture = ad.recv_img(image)
    got = {
        v: ad.recv_grad(v).astype(np.float64).reshape(three.feeds[v].shape)
        for v in (three.box, three.ball, three.pose, three.place)
    }
    n_box, n_ball = 8, len(three.arrays[1])
    want = {v: np.zeros_like(a) for v, a in got.items()}
    for view in range(2):
        pos, f, m, feeds = by_hand(f32(three.world(view)), three.all_faces())
        alone, w = image_of(pos, f, m), Variable(FLOAT, SIZE)
        for v, a in {**feeds, m: f32(VIEWS[view]), w: weights[view]}.items():
            ad.send_img(v, a)
        ad.set_loss_var(F.sum(alone * w))
        assert (np.abs(ad.recv_img(alone) - picture[view]) > 1e-4).mean() < 0.005
        g = ad.recv_grad(pos).astype(np.float64)
        parts = np.split(g, [n_box, n_box + n_ball])
        for k, (part, v) in enumerate(zip(parts, (three.box, three.ball, three.box), strict=True)):
            model = three.models[k][view % len(three.models[k])]
            want[v] += part @ model[:3, :3]
            homogeneous = np.concatenate([three.arrays[k], np.ones((len(part), 1))], 1)
            if k == 1:
                want[three.pose][view, :3] += part.T @ homogeneous
            if k == 2:
                want[three.place][:3] += part.T @ homogeneous
    for v, a in want.items():
        assert np.abs(a).max() > 0.1
        error = np.linalg.norm(got[v] - a) / np.linalg.norm(a)
        assert error < 0.01, (v.name, error)


def test_faces_of_different_meshes_are_never_neighbours() -> None:
    """Two squares that share an edge exactly: neighbours in one mesh, not as two; and within a
    mesh, vertices at the same place still count as one."""
    v, f = quad()
    beside = v + (2.0, 0, 0)
    split = np.array([(0, 1, 2), (3, 4, 5)])  # the second square, every corner its own
    doubled = beside[[0, 1, 2, 0, 2, 3]]
    a, b = Variable(VEC3, (4, 1)), Variable(VEC3, (6, 1))
    fa, fb = Variable(IVEC3, (2, 1)), Variable(IVEC3, (2, 1))
    batch = build_batch([(a, fa), (b, fb)])
    feeds = {a: v, fa: f, b: doubled, fb: split}
    got = evaluate([neighbor_table(batch.faces, batch.positions)], feeds)[0][0, 0]
    assert (np.sort(got[:2], 1) == [(-1, -1, 1), (-1, -1, 0)]).all()
    assert (np.sort(got[2:], 1) == [(-1, -1, 3), (-1, -1, 2)]).all()
    one, faces = Variable(VEC3, (10, 1)), Variable(IVEC3, (4, 1))
    joined = {one: np.concatenate([v, doubled]), faces: np.concatenate([f, split + 4])}
    together = evaluate([neighbor_table(faces, one)], joined)[0][0, 0]
    assert (together >= 0).sum() == 6  # the shared edge as well


@pytest.mark.gpu
def test_attribute_tables_join_with_faces_of_their_own(ad: DressiAD) -> None:
    v, f = quad(0.5)
    rng = np.random.default_rng(0)
    uvs = [f32(rng.uniform(size=(n, 2))) for n in (4, 6)]
    uv_faces = [np.array([(3, 2, 1), (3, 1, 0)]), np.array([(5, 4, 3), (0, 1, 2)])]
    pos = [Variable(VEC3, (4, 1)) for _ in range(2)]
    faces = [Variable(IVEC3, (2, 1)) for _ in range(2)]
    tables = [Variable(VEC2, (n, 1)) for n in (4, 6)]
    rows = [Variable(IVEC3, (2, 1)) for _ in range(2)]
    matrix = Variable(MAT4)
    batch = build_batch(list(zip(pos, faces, strict=True)))
    r = build_hard_raster(batch.positions, batch.faces, matrix, SIZE)
    image = surface_uv(r.peel, *batch.join_tables(tables, rows))
    sent = [v - (0.7, 0, 0), v + (0.7, 0, 0)]
    for k in range(2):
        for x, a in ((pos[k], sent[k]), (faces[k], f), (tables[k], uvs[k]), (rows[k], uv_faces[k])):
            ad.send_img(x, a)
    ad.send_img(matrix, VIEWS[0])
    ids, bary, got = (ad.recv_img(x) for x in (r.ids, r.bary, image))
    corners = np.concatenate([uvs[0][uv_faces[0]], uvs[1][uv_faces[1]]])
    want = (corners[ids[..., 0]] * bary[..., None]).sum(2) * (ids >= 0)
    assert np.abs(got - want).max() < 1e-5 and len(np.unique(ids)) == 5


@pytest.mark.gpu
def test_faces_may_be_sent_again(ad: DressiAD) -> None:
    three = Three()
    r = build_hard_raster(three.batch.positions, three.batch.faces, three.matrix, SIZE)
    three.sent(ad)
    before = ad.recv_img(three.batch.mesh_ids(r.ids))
    ad.send_img(three.box_faces, np.zeros((12, 3)))  # no area: both cubes are gone
    after = ad.recv_img(three.batch.mesh_ids(r.ids))
    assert set(np.unique(before)) == {-1, 0, 1, 2} and set(np.unique(after)) == {-1, 1}


def test_a_vertex_of_another_mesh_is_refused() -> None:
    three = Three()
    three.feeds[three.ball_faces] = three.face_arrays[1].copy()
    three.feeds[three.ball_faces][7, 2] = 42
    with pytest.raises(GraphError, match="face 7 of mesh 1 names vertex 42, the mesh has 42"):
        evaluate([three.batch.faces], three.feeds)


P, Q, M = Variable(VEC3, (4, 1)), Variable(IVEC3, (2, 1)), Variable(MAT4)
BAD: dict[str, Callable[[], Any]] = {
    "at least one mesh": lambda: build_batch([]),
    r"mesh 1 must be \(positions": lambda: build_batch([(P, Q), (P,)]),  # type: ignore[list-item]
    "positions of mesh 0 must be a Variable": lambda: build_batch([(np.zeros((4, 3)), Q)]),  # type: ignore[list-item]
    "needs VEC3 positions": lambda: build_batch([(Variable(VEC2, (4, 1)), Q)]),
    "IVEC3 leaf": lambda: build_batch([(P, Q + 1)]),
    "MAT4 @ 1x1": lambda: build_batch([(P, Q, P)]),
    "size must be|at least 1": lambda: Variable(IVEC3, (0, 1)),  # an empty mesh ends here
    "2 values for 1 meshes": lambda: build_batch([(P, Q)]).per_mesh([M, M], Variable(INT, SIZE)),
    "mesh 0 has 2 faces": lambda: build_batch([(P, Q)]).join_tables([P], [Variable(IVEC3, (3, 1))]),
}


@pytest.mark.parametrize("words", BAD)
def test_bad_batches_raise_graph_error(words: str) -> None:
    with pytest.raises(GraphError, match=words):
        BAD[words]()
