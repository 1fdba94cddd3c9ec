"""The hard rasterizer, culling and scissors, against formulas in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dressi import DressiAD, F, GraphError, Options, Variable, evaluate
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC2, VEC3, VEC4
from dressi.errors import PackingError
from dressi.packing import pack, plan_text
from dressi.packing.limits import LLVMPIPE
from dressi.packing.verify import check_plan
from dressi.render.raster import HardRaster, build_hard_raster
from dressi.render.scene import icosphere
from dressi.render.shading import unlit
from dressi.testing.scenes import camera, cube, quad, rotated

SIZE = (32, 24)
EYES = ((0.3, 0.2, 4.0), (3.0, 1.0, 2.5))


def f32(a: Any) -> np.ndarray:
    """float32 numbers, so that device and oracle see the same."""
    return np.asarray(a, np.float32).astype(np.float64)


class Drawn:
    """A mesh, its views and the graph."""

    def __init__(
        self,
        vertices: Any,
        faces: Any,
        matrices: Any = None,
        size: tuple[int, int] = SIZE,
        **more: Any,
    ) -> None:
        if matrices is None:
            matrices = np.stack([camera(size, e) for e in EYES])
        self.size, self.vertices, self.matrices = size, f32(vertices), f32(matrices)
        self.face_rows = np.asarray(faces)
        self.pos = Variable(VEC3, (len(vertices), 1), requires_grad=True, name="pos")
        self.faces = Variable(IVEC3, (len(faces), 1), name="faces")
        self.matrix = Variable(MAT4, layers=len(self.matrices), name="matrix", requires_grad=True)
        self.raster: HardRaster = build_hard_raster(self.pos, self.faces, self.matrix, size, **more)
        self.feeds = {
            self.pos: self.vertices,
            self.faces: self.face_rows,
            self.matrix: self.matrices,
        }

    def sent(self, ad: DressiAD) -> HardRaster:
        for v, a in self.feeds.items():
            ad.send_img(v, a)
        return self.raster

    def rays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(ids, depth, bary, margin) by intersecting rays with planes in world space, in float64.
        margin: the least weight of the nearest hit, or how near a miss was; inf far from edges."""
        (w, h), n = self.size, len(self.matrices)
        ids = np.full((n, h, w), -1)
        depth, bary = np.ones((n, h, w)), np.zeros((n, h, w, 3))
        margin = np.full((n, h, w), np.inf)
        x, y = np.meshgrid((np.arange(w) + 0.5) / w * 2 - 1, (np.arange(h) + 0.5) / h * 2 - 1)
        for k, m in enumerate(self.matrices):
            back = np.linalg.inv(m)
            near, far = (
                np.stack([x, y, np.full_like(x, z), np.ones_like(x)], -1) @ back.T for z in (0, 1)
            )
            start = near[..., :3] / near[..., 3:]
            ray = far[..., :3] / far[..., 3:] - start
            for f, corners in enumerate(self.vertices[self.face_rows]):
                basis = np.stack([*(corners[1:] - corners[0]), np.zeros(3)], 1)
                full = np.broadcast_to(basis, (h, w, 3, 3)).copy()
                full[..., 2] = -ray
                if abs(np.linalg.det(full)).max() < 1e-12:
                    continue
                solved = np.linalg.solve(full, (start - corners[0])[..., None])[..., 0]
                weights = np.stack(
                    [1 - solved[..., 0] - solved[..., 1], *solved[..., :2].T.swapaxes(1, 2)], -1
                )
                hit = start + ray * solved[..., 2:]
                clip = np.concatenate([hit, np.ones((h, w, 1))], -1) @ m.T
                z = clip[..., 2] / clip[..., 3]
                seen = (solved[..., 2] >= 0) & (solved[..., 2] <= 1)
                margin[k] = np.where(seen, np.minimum(margin[k], abs(weights.min(-1))), margin[k])
                wins = seen & (weights.min(-1) >= 0) & (z < depth[k])
                ids[k][wins], depth[k][wins] = f, z[wins]
                bary[k][wins] = weights[wins]
        return ids, depth, bary, margin


def images(ad: DressiAD, r: HardRaster) -> list[np.ndarray]:
    """ids, depth, bary, mask with a layer axis."""
    out = []
    for v in (r.ids, r.depth, r.bary, r.mask):
        a = ad.recv_img(v)
        a = a if v.layers > 1 else a[None]
        out.append(a if v.vtype.n > 1 else a[..., 0])
    return out


BALL = icosphere(1)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", ["cube", "ball", "floor through the camera"])
def test_ids_depth_and_weights_are_those_of_rays(ad: DressiAD, shape: str) -> None:
    v, f = cube(0.9)
    matrices = None
    if shape == "ball":
        v, f = BALL.positions, BALL.faces
    if shape.startswith("floor"):
        v = np.array([(-9, -1, 5), (9, -1, 5), (9, -1, -15), (-9, -1, -15)], float)
        f = np.array([(0, 1, 2), (0, 2, 3)])
        matrices = [camera(SIZE, (0, 0, 0), (0.1, -0.3, -1)), camera(SIZE, (0, 0, 0), (0, 0, -1))]
    drawn = Drawn(v, f, matrices)
    ids, depth, bary, mask = images(ad, drawn.sent(ad))
    want_ids, want_depth, want_bary, margin = drawn.rays()
    clear = margin > 1e-3
    assert clear.mean() > 0.9 and (want_ids >= 0).mean() > 0.1
    assert (ids == want_ids)[clear].all()
    assert (mask == (ids >= 0)).all() and set(np.unique(mask)) <= {0.0, 1.0}
    assert np.abs(depth - want_depth)[clear].max() < 1e-4
    assert np.abs(bary - want_bary)[clear].max() < 2e-3
    assert (depth[ids < 0] == 1).all() and (bary[ids < 0] == 0).all()


@pytest.mark.gpu
def test_oracle_and_device_agree_with_jitter(ad: DressiAD) -> None:
    drawn = Drawn(*cube(0.9), jitter=(0.3, -0.4))
    got = images(ad, drawn.sent(ad))
    want = evaluate([drawn.raster.ids, drawn.raster.depth], drawn.feeds)
    assert (got[0] != want[0][..., 0]).mean() < 0.01
    assert (np.abs(got[1] - want[1][..., 0]) > 1e-5).mean() < 0.01
    shifted = drawn.matrices.copy()
    shifted[:, 0] += 2 * 0.3 / SIZE[0] * shifted[:, 3]
    shifted[:, 1] -= 2 * 0.4 / SIZE[1] * shifted[:, 3]
    ids = images(ad, (moved := Drawn(*cube(0.9), shifted)).sent(ad))[0]
    assert (ids != got[0]).mean() < 0.01 and moved.raster.ids.layers == 2


GRADIENT = {
    "cube": (*cube(0.8), None),
    "face through the near plane": (
        [(-1.2, -1, 4.6), (1.3, -0.8, 2.0), (0.1, 0.9, -1.0)], [(0, 1, 2)],
        [camera(SIZE, (0, 0, 4.2))],
    ),
}  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("of", ["depth", "bary", "attribute"])
@pytest.mark.parametrize("shape", GRADIENT)
def test_gradients_are_those_of_finite_differences(ad: DressiAD, shape: str, of: str) -> None:
    """The ids are kept, as a pixel that changes hands is a jump and no slope."""
    v, f, matrices = GRADIENT[shape]
    drawn = Drawn(rotated(np.array(v), 0.3, 0.4) if shape == "cube" else v, f, matrices)
    rng = np.random.default_rng(3)
    layers = len(drawn.matrices)
    r = drawn.raster
    if of == "attribute":
        table = Variable(VEC3, (len(v), 1), name="table")
        drawn.feeds[table] = f32(rng.uniform(size=(len(v), 3)))
        image = r.interpolate(table, drawn.faces)
    else:
        image = r.depth if of == "depth" else r.bary
    weight = Variable(image.vtype, SIZE, layers, name="weight")
    drawn.feeds[weight] = f32(rng.uniform(size=(layers, SIZE[1], SIZE[0], image.vtype.n)))
    product = image * weight
    loss = F.sum(product if image.vtype is FLOAT else F.sum_components(product))
    drawn.sent(ad)
    ad.set_loss_var(loss)
    ids = ad.recv_img(r.ids)
    keep = {**drawn.feeds, r.ids: ids}
    for leaf, step in ((drawn.pos, 1e-5), (drawn.matrix, 1e-6)):
        got = ad.recv_grad(leaf).astype(np.float64).reshape(drawn.feeds[leaf].shape)
        want = np.zeros_like(got)
        for at in np.ndindex(*got.shape):
            ends = []
            for s in (1, -1):
                moved = drawn.feeds[leaf].copy()
                moved[at] += s * step
                ends.append(evaluate([loss], {**keep, leaf: moved})[0].item())
            want[at] = (ends[0] - ends[1]) / (2 * step)
        error = np.linalg.norm(got - want) / np.linalg.norm(want)
        assert np.abs(want).max() > 1e-3 and error < 0.005, (leaf.name, error)


@pytest.mark.gpu
def test_raster_goes_into_the_shading_builders(ad: DressiAD) -> None:
    drawn = Drawn(*quad(0.9))
    uv, albedo = Variable(VEC2, (4, 1)), Variable(VEC3, (4, 4), requires_grad=True)
    drawn.sent(ad)
    ad.send_img(uv, f32(quad(0.5)[0][:, :2] + 0.5))
    ad.send_img(albedo, np.full((4, 4, 3), 0.5))
    got = ad.recv_img(unlit(drawn.raster.peel, uv, drawn.faces, albedo))
    assert np.allclose(got, 0.5 * ad.recv_img(drawn.raster.mask), atol=1e-6)


# -- culling ---------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("cull", ["back", "front"])
def test_culling_leaves_the_faces_that_look_at_or_away_from_the_camera(
    ad: DressiAD, cull: str
) -> None:
    """By the sign of the world normal against the direction to the eye."""
    drawn = Drawn(BALL.positions, BALL.faces, cull=cull, size=(48, 40))
    ids = images(ad, drawn.sent(ad))[0]
    corners = drawn.vertices[drawn.face_rows]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    for k, eye in enumerate(EYES):
        facing = ((np.array(eye) - corners[:, 0]) * normal).sum(-1) > 0
        shown = np.unique(ids[k][ids[k] >= 0])
        assert len(shown) > 15
        assert (facing[shown] == (cull == "back")).all()
    plain = images(ad, Drawn(BALL.positions, BALL.faces, size=(48, 40)).sent(ad))
    same = ids == plain[0]
    assert same.all() if cull == "back" else not same[plain[0] >= 0].any()


def _corner_graph(
    corners: np.ndarray, size: tuple[int, int], **more: Any
) -> tuple[Variable, dict[Variable, np.ndarray]]:
    """ids of primitives given as (primitives, corners, 4) clip positions."""
    tables = [Variable(VEC4, (len(corners), 1), name=f"corner{k}") for k in range(corners.shape[1])]
    frag = F.rasterize(tables, size, **more)
    ids = F.resolve(frag, F.to_float(frag) * 0.001 + 0.5, background=-1)
    return ids, {t: f32(corners[:, k]) for k, t in enumerate(tables)}


@pytest.mark.gpu
@pytest.mark.parametrize("n_corners", [3, 4])
@pytest.mark.parametrize("cull", [None, "back", "front"])
def test_culling_under_clipping_is_that_of_the_visible_part(
    ad: DressiAD, cull: str | None, n_corners: int
) -> None:
    """Random triangles and quads, many with corners behind the camera; the visible part is found
    by clipping, its orientation by the area of its outline on the screen."""
    rng = np.random.default_rng(n_corners)
    size, n = (24, 24), 40
    orientations = []
    for _ in range(n):
        while True:
            w = rng.uniform(-1.0, 2.0, 3)
            ndc = rng.uniform(-1.2, 1.2, (3, 2))
            p = np.concatenate([ndc * w[:, None], 0.8 * w[:, None] - 0.3, w[:, None]], 1)
            if (w < 0).any() and (p[:, 2] > 0.1).any():
                break
        orientations.append(p)
    triangles = np.array(orientations)
    corners = triangles
    if n_corners == 4:  # the fourth in the plane of the others
        fourth = triangles[:, 0] + 0.7 * (triangles[:, 2] - triangles[:, 1])
        corners = np.concatenate([triangles, fourth[:, None]], 1)
    turns = np.array([_visible_turn(t) for t in f32(triangles)])
    n_seen = 0
    for k in range(n):
        ids, feeds = _corner_graph(corners[k : k + 1], size, cull=cull)
        got = evaluate([ids], feeds)[0] >= 0
        plain_ids, plain_feeds = _corner_graph(corners[k : k + 1], size)
        plain = evaluate([plain_ids], plain_feeds)[0] >= 0
        wanted = cull is None or (turns[k] > 0) == (cull == "back")
        assert (got == (plain if wanted else np.zeros_like(plain))).all(), k
        n_seen += plain.any()
    assert n_seen > n / 3
    ids, feeds = _corner_graph(corners, size, cull=cull)
    for v, a in feeds.items():
        ad.send_img(v, a)
    want = evaluate([ids], feeds)[0].reshape(size[1], size[0])
    assert (ad.recv_img(ids)[..., 0] != want).mean() < 0.02 and len(np.unique(want)) > 5


def _visible_turn(triangle: np.ndarray) -> float:
    """Positive where the part in front of the near plane runs counter-clockwise to the eye."""
    polygon = []
    for i in range(3):
        p, q = triangle[i - 1], triangle[i]
        if (p[2] >= 0) != (q[2] >= 0):
            polygon.append(p + (q - p) * p[2] / (p[2] - q[2]))
        if q[2] >= 0:
            polygon.append(q)
    if not polygon:
        return 0.0
    xy = np.array(polygon)[:, :2] / np.array(polygon)[:, 3:]
    x, y = xy[:, 0], -xy[:, 1]  # y up, as one looks at it
    return float((x * np.roll(y, -1) - np.roll(x, -1) * y).sum())


@pytest.mark.gpu
def test_every_triangle_of_a_quad_is_culled_by_itself(ad: DressiAD) -> None:
    """A quad folded over its diagonal: one half is seen from outside, the other from inside."""
    fold = np.array([[(-0.8, 0.8, 0.5, 1), (0.8, 0.8, 0.5, 1), (0.8, -0.8, 0.5, 1), (0.4, 0.6, 0.5, 1)]])  # noqa: E501  # fmt: skip
    masks = {}
    for cull in (None, "back", "front"):
        ids, feeds = _corner_graph(fold, (16, 16), cull=cull)
        for v, a in feeds.items():
            ad.send_img(v, a)
        masks[cull] = ad.recv_img(ids)[..., 0] >= 0
        assert (masks[cull] == (evaluate([ids], feeds)[0][0, ..., 0] >= 0)).all()
    assert masks["back"].any() and masks["front"].any()
    assert (masks["back"] | masks["front"] == masks[None]).all()


# -- scissors --------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize(
    "scissor",
    [(5, 3, 9, 14), [(5, 3, 9, 14), (0, 0, 32, 24)], [(0, 0, 0, 0), (31, 23, 1, 1)]],
    ids=["one for all", "one a layer", "empty and one pixel"],
)
def test_nothing_is_drawn_outside_of_the_scissor(ad: DressiAD, scissor: Any) -> None:
    views = [camera(SIZE, EYES[0])] * 2
    got = images(ad, (drawn := Drawn(*quad(9.0), views, scissor=scissor)).sent(ad))
    plain = images(ad, Drawn(*quad(9.0), views).sent(ad))
    rectangles = scissor if isinstance(scissor, list) else [scissor] * 2
    inside = np.zeros((2, SIZE[1], SIZE[0]), bool)
    for k, (x, y, w, h) in enumerate(rectangles):
        inside[k, y : y + h, x : x + w] = True
    assert (plain[0] >= 0).all()
    assert (got[0] == np.where(inside, plain[0], -1)).all()
    assert (got[1] == np.where(inside, plain[1], 1)).all()
    want = evaluate([drawn.raster.ids], drawn.feeds)[0][..., 0]
    assert ((want >= 0) == inside).all()


@pytest.mark.gpu
def test_scissors_follow_their_layers_into_several_columns() -> None:
    """Five views on a device whose images hold four below each other."""
    rectangles = [(k, 2 * k, 9, 5 + k) for k in range(5)]
    with DressiAD(limits={"image_dim": 96}) as ad:
        drawn = Drawn(*quad(9.0), [camera(SIZE, EYES[0])] * 5, scissor=rectangles)
        mask = images(ad, drawn.sent(ad))[3]
    for k, (x, y, w, h) in enumerate(rectangles):
        want = np.zeros((SIZE[1], SIZE[0]))
        want[y : y + h, x : x + w] = 1
        assert (mask[k] == want).all()


@pytest.mark.gpu
def test_packing_does_not_change_what_is_culled_and_cut() -> None:
    got = []
    for options in (Options(), Options.baseline()):
        with DressiAD(options=options) as ad:
            drawn = Drawn(
                BALL.positions, BALL.faces, cull="back", scissor=[(4, 4, 20, 9), (0, 0, 30, 24)]
            )
            loss = F.sum(drawn.raster.depth * F.sum_components(drawn.raster.bary * (1.0, 2.0, 3.0)))
            r = drawn.sent(ad)
            ad.set_loss_var(loss)
            got.append([*images(ad, r), ad.recv_grad(drawn.pos)])
    for a, b in zip(*got, strict=True):
        assert np.linalg.norm(a - b) <= 1e-6 * np.linalg.norm(a)


def test_plan_names_and_checks_cull_and_scissor() -> None:
    drawn = Drawn(*quad(), cull="front", scissor=(1, 2, 3, 4))
    plan = pack([drawn.raster.ids], [], LLVMPIPE).plan
    check_plan(plan, LLVMPIPE)
    assert "cull front" in plan_text(plan) and "(1, 26, 3, 4)" in plan_text(plan)
    from dataclasses import replace

    def broken(**change: Any) -> Any:
        stages = list(plan.stages)
        k, s = next((i, s) for i, s in enumerate(stages) if any(b.depth for b in s.substages))
        raster = next(b for b in s.substages if b.depth)
        if "scissor" in change:
            change = {"draws": (replace(raster.draws[0], **change), *raster.draws[1:])}
        new = tuple(replace(b, **change) if b is raster else b for b in s.substages)
        stages[k] = replace(s, substages=new)
        return replace(plan, stages=tuple(stages))

    with pytest.raises(PackingError, match="cull mode 'both'"):
        check_plan(broken(cull="both"), LLVMPIPE)
    with pytest.raises(PackingError, match="scissor"):
        check_plan(broken(scissor=(0, 0, 33, 4)), LLVMPIPE)
    with pytest.raises(PackingError, match="scissor"):
        check_plan(broken(scissor=(0, 0, -1, 4)), LLVMPIPE)


# -- kinds of faults that users meet -------------------------------------------------------------


@pytest.mark.gpu
def test_floor_of_two_triangles_is_the_floor_split_16_times(ad: DressiAD) -> None:
    """Corners behind the camera: mask, depth and position are the same."""
    matrix = camera(SIZE, (0, 0, 0), (0, -0.3, -1))[None]
    got = []
    for n in (1, 16):
        x, z = np.meshgrid(np.linspace(-9, 9, n + 1), np.linspace(5, -15, n + 1))
        v = np.stack([x, np.full_like(x, -1.0), z], -1).reshape(-1, 3)
        i = np.arange((n + 1) ** 2).reshape(n + 1, n + 1)
        a, b, c, d = i[:-1, :-1].ravel(), i[:-1, 1:].ravel(), i[1:, 1:].ravel(), i[1:, :-1].ravel()
        f = np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])
        drawn = Drawn(v, f, matrix)
        where = drawn.raster.interpolate(drawn.pos, drawn.faces)
        r = drawn.sent(ad)
        got.append([ad.recv_img(q) for q in (r.mask, r.depth, where)])
    (mask, depth, where), (want_mask, want_depth, want_where) = got
    assert want_mask.sum() > 150 and (mask == want_mask).all()
    assert np.abs(depth - want_depth).max() < 1e-4
    assert np.abs(where - want_where)[mask[..., 0] > 0].max() < 1e-2
    assert np.abs(where[..., 1] + mask[..., 0]).max() < 1e-3  # the floor lies at y = -1


@pytest.mark.gpu
@pytest.mark.parametrize("angle", [0.0, 0.3, np.pi / 4, 1.1])
def test_quad_split_along_either_diagonal_covers_every_pixel_once(
    ad: DressiAD, angle: float
) -> None:
    v, f = quad(0.8)
    v = rotated(v, 0.2, 0.3, angle)
    counts = []
    for split in (f, np.array([(0, 1, 3), (1, 2, 3)])):
        total = np.zeros((2, SIZE[1], SIZE[0]))
        for face in split:  # one by one: what both cover would be counted twice
            total += images(ad, Drawn(v, face[None]).sent(ad))[3]
        counts.append(total)
    assert (counts[0] == counts[1]).all() and counts[0].max() == 1 and counts[0].sum() > 100


@pytest.mark.gpu
@pytest.mark.parametrize(
    "bad",
    [
        [(-0.5, 0.3, 0), (-0.5, 0.3, 0), (0.6, 0.2, 0)],
        [(0.1, 0.2, 0)] * 3,
        [(-0.5, -0.5, 0), (0, 0, 0), (0.5, 0.5, 0)],
        [(-1e6, -1e6, -5), (1e6, -1e6, -5), (0, 1e6, -5)],
        [(0, 0, 4.0), (1, 0, 4.0), (0, 1, 4.0)],
        [(0, 0, 8.0), (1, 0, 9.0), (0, 1, 8.0)],
    ],
    ids=["repeated corner", "point", "collinear", "huge", "w = 0", "behind"],
)
def test_degenerate_face_leaves_everything_finite(ad: DressiAD, bad: Any) -> None:
    v = np.concatenate([[(-0.9, -0.7, 0), (0.9, -0.6, 0.2), (0.1, 0.9, -0.3)], bad])
    drawn = Drawn(v, [(0, 1, 2), (3, 4, 5)], [camera(SIZE)])
    r = drawn.sent(ad)
    ad.set_loss_var(F.sum(r.depth + F.dot(r.bary, (1.0, 2.0, 3.0))))
    got = images(ad, r)
    assert all(np.isfinite(a).all() for a in got)
    g = ad.recv_grad(drawn.pos)
    assert np.isfinite(g).all() and np.abs(g[:3]).max() > 0
    if abs(np.array(bad)).max() < 1e5:
        assert (got[0] != 1).all(), "a face without area or behind the camera covers nothing"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_vertices_that_are_not_finite_are_refused_by_name(bad: float) -> None:
    drawn = Drawn(*quad())
    drawn.feeds[drawn.pos] = drawn.vertices.copy()
    drawn.feeds[drawn.pos][2, 1] = bad
    with pytest.raises(GraphError, match=r"pos VEC3@4x1.*(nan|inf).*\(0, 0, 2, 1\)|pos.*2, 1"):
        evaluate([drawn.raster.ids], drawn.feeds)


BAD: dict[str, Callable[[Variable, Variable, Variable], Any]] = {
    "vtx_pos": lambda p, f, m: build_hard_raster(np.zeros((3, 3)), f, m, SIZE),  # type: ignore[arg-type]
    "IVEC3": lambda p, f, m: build_hard_raster(p, p, m, SIZE),
    "MAT4": lambda p, f, m: build_hard_raster(p, f, p, SIZE),
    "size": lambda p, f, m: build_hard_raster(p, f, m, (0, 4)),
    "got 'both'": lambda p, f, m: build_hard_raster(p, f, m, SIZE, cull="both"),
    "leaves the image": lambda p, f, m: build_hard_raster(p, f, m, SIZE, scissor=(0, 0, 33, 1)),
    "whole pixels": lambda p, f, m: build_hard_raster(p, f, m, SIZE, scissor=(0, 0, 3.5, 1)),
    "rectangle": lambda p, f, m: build_hard_raster(p, f, m, SIZE, scissor=[]),
    "3 scissors for 2 layers": lambda p, f, m: build_hard_raster(
        p, f, m, SIZE, scissor=[(0, 0, 1, 1)] * 3
    ),
    "jitter": lambda p, f, m: build_hard_raster(p, f, m, SIZE, jitter=(1.0, 2.0, 3.0)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("words", BAD)
def test_bad_arguments_raise_graph_error(words: str) -> None:
    p, f, m = Variable(VEC3, (4, 1)), Variable(IVEC3, (2, 1)), Variable(MAT4, layers=2)
    with pytest.raises(GraphError, match=words):
        BAD[words](p, f, m)
