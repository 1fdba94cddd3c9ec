"""The slips in the paper's listings: one test each, so that none is ported.

Those that need a device are marked `gpu`; all others run without Vulkan.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dressi.ad import SGD, F, Variable, build_backward, evaluate, simplify
from dressi.ad.graph import leaves
from dressi.ad.vtype import FLOAT, INT, IVEC3, MAT3, MAT4, VEC3
from dressi.packing import Options, pack
from dressi.packing.limits import LLVMPIPE
from dressi.render.raster.hardsoftras import HardSoft, build_hardsoftras, shift

SIZE = (16, 16)
IDENTITY = np.eye(4)


def scene(
    triangles: Any, r: float = 0.2, K: int = 1, size: tuple[int, int] = SIZE, **more: Any
) -> tuple[HardSoft, Variable, dict[Variable, Any]]:
    """HardSoftRas of triangles given in clip space (x, y in NDC with y down, z = depth)."""
    t = np.asarray(triangles, float).reshape(-1, 3)
    pos = Variable(VEC3, (len(t), 1), requires_grad=True, name="pos")
    faces = Variable(IVEC3, (len(t) // 3, 1), name="faces")
    matrix = Variable(MAT4, name="matrix")
    hs = build_hardsoftras(pos, faces, matrix, size, r, K, **more)
    feeds = {pos: t, faces: np.arange(len(t)).reshape(-1, 3), matrix: IDENTITY}
    return hs, pos, feeds


def square(z: float, half: float = 0.6, x: float = 0.0) -> list:
    a, b, c, d = (
        (x - half, -half, z),
        (x + half, -half, z),
        (x + half, half, z),
        (x - half, half, z),
    )
    return [a, b, c, a, c, d]


# -- AD --------------------------------------------------------------------------------------------


def test_sin_backward_is_gy_cos_x() -> None:
    """The listing has cos(gy)."""
    x, w = Variable(FLOAT, requires_grad=True), Variable(FLOAT)
    (g,) = evaluate([build_backward(F.sin(x) * w)[x]], {x: 0.3, w: 5.0})
    assert np.isclose(g.item(), 5 * np.cos(0.3))


def test_backward_tests_gx_not_gy() -> None:
    """An op that gives no gradient to one input still gives it to the others."""
    table, index = Variable(FLOAT, (4, 1), requires_grad=True), Variable(INT, (2, 1))
    assert list(build_backward(F.lookup(table, index))) == [table]
    c, a = Variable(FLOAT, requires_grad=True), Variable(FLOAT, requires_grad=True)
    assert list(build_backward(F.where(c, a, 2.0))) == [a]


def test_updates_pair_variables_with_variables_plane_by_plane() -> None:
    """The listing's upd_inp_map mixes variables and images: plane k goes to plane k."""
    m, n = Variable(MAT3, (4, 4), name="m"), Variable(MAT3, (4, 4), name="n")
    new_m, new_n = simplify([m + m, n + n])
    plan = pack([], [(m, new_m), (n, new_n)], LLVMPIPE, Options(zero_copy=False))
    packed = plan.plan
    names = [(packed.images[s].name, packed.images[t].name) for s, t in packed.updates]
    assert [t for _, t in names] == [f"{v}[{k}]" for v in "mn" for k in range(3)]
    want = [f"%{v.uid}[{k}]" for v in (new_m, new_n) for k in range(3)]
    assert [s for s, _ in names] == want
    assert len({s for s, _ in packed.updates}) == len({t for _, t in packed.updates}) == 6


# -- packing ---------------------------------------------------------------------------------------


def test_packer_pushes_its_last_substage() -> None:
    """Three substages: whatever is packed last (the first to run) is there too."""
    x = Variable(FLOAT, (8, 8), name="x")
    y = F.image.border(F.image.border(F.sin(x)))
    for options in (Options(), Options(False, False)):
        plan = pack(simplify([y]), [], LLVMPIPE, options).plan
        assert plan.n_functions == 3
        assert any("sin" in s.name for stage in plan.stages for s in stage.substages)


def test_final_outputs_are_registered() -> None:
    """x -> [a] -> b: a is an output too, although b uses it in the same shader."""
    x = Variable(FLOAT, (8, 8), name="x")
    a = F.sin(x)
    b = F.cos(a)
    packed = pack([a, b], [], LLVMPIPE)
    written = {i for stage in packed.plan.stages for s in stage.substages for i in s.outputs}
    assert set(packed.images[a.uid]) | set(packed.images[b.uid]) <= written
    assert packed.plan.n_substages == 1


# -- HardSoftRas -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("depth", "distance", "want"),
    [
        (0.4, 0.1, 0.2),
        (0.4, 0.0, 0.2),
        (1.0, 0.0, 0.5),
        (0.4, -0.2, 0.6),
        (0.0, 0.3, 0.0),
        (0.9, -1, 1),
    ],
)
def test_soft_depth_takes_the_magnitude_and_0_is_inside(
    depth: float, distance: float, want: float
) -> None:
    """The listing adds 0.5 to half of the signed distance, which brings soft faces before hard
    ones."""
    d, s = Variable(FLOAT), Variable(FLOAT)
    assert np.isclose(evaluate([shift(d, s)], {d: depth, s: distance})[0].item(), want)


def test_pixel_on_an_edge_is_inside() -> None:
    """The left edge runs through pixel centres: distance 0 is inside, depth is hard there."""
    left = -1 + 2 * 4.5 / 16
    hs, _, feeds = scene([(left, -3, 0.5), (3, 0, 0.5), (left, 3, 0.5)], r=0.1)
    depth, distance = evaluate([hs.peels[0].depth, hs.peels[0].distance], feeds)
    assert np.allclose(distance[0, :, 4], 0) and (depth[0, :, 4] <= 0.5).all()
    assert (depth[0, :, 3] > 0.5).all()


def test_shift_uses_ndc_depth_not_w() -> None:
    """w = 7 everywhere: depth stays z / w / 2."""
    hs, _, feeds = scene(square(0.5))
    m = np.diag([7.0, 7, 7, 7])
    matrix = next(v for v in feeds if v.vtype is MAT4)
    (depth,) = evaluate([hs.peels[0].depth], {**feeds, matrix: m})
    assert np.isclose(depth[0, 8, 8], 0.25)
    assert (depth >= 0).all() and (depth <= 1).all()


def test_peeling_drops_nothing_on_the_near_plane_from_layer_1() -> None:
    """Depth 0 is in layer 1, and layer 2 shows what is behind it."""
    hs, _, feeds = scene(square(0.0) + square(0.6), K=2, r=0.05)
    one, two = evaluate([p.ids for p in hs.peels], feeds)
    middle = (0, slice(6, 10), slice(6, 10), 0)
    assert (one[middle] < 2).all() and (one[middle] >= 0).all()
    assert (two[middle] >= 2).all()


def test_coplanar_faces_share_a_layer() -> None:
    """As documented: of faces at exactly equal depth the second layer holds none (soft rims
    aside)."""
    hs, _, feeds = scene(square(0.5) + square(0.5), K=2, r=0.05)
    one, two = evaluate([p.depth for p in hs.peels], feeds)
    middle = (0, slice(6, 10), slice(6, 10), 0)
    assert (one[middle] <= 0.5).all() and (two[middle] > 0.5).all()


def test_blend_divides_by_the_sum_of_weights() -> None:
    """The listing divides by the number of stencils. Two overlapping squares, K = 2, mask
    everywhere."""
    hs, _, feeds = scene(square(0.3, x=-0.2) + square(0.6, x=0.2), K=2, r=0.3, delta=1.0)
    colors = [F.where(p.ids >= 2, (0.0, 1.0, 0.0), (1.0, 0.0, 0.0)) for p in hs.peels]
    image = hs.blend(colors)
    sigma = 0.3 / 7
    values = evaluate(
        [image, hs.edge, *(p.distance for p in hs.peels), *(p.ids for p in hs.peels)], feeds
    )
    got, edge, d1, d2, i1, i2 = values
    assert (edge == 1).all()
    w = [np.where(i >= 0, 1 / (1 + np.exp(-d / sigma)), 0) for d, i in ((d1, i1), (d2, i2))]
    c = [np.where(i >= 2, (0.0, 1, 0), (1.0, 0, 0)) for i in (i1, i2)]
    total = w[0] + w[1]
    mean = (w[0] * c[0] + w[1] * c[1]) / np.where(total > 0, total, 1)
    want = mean * (1 - (1 - w[0]) * (1 - w[1]))
    assert ((w[0] > 0) & (w[1] > 0)).sum() > 20
    assert np.allclose(got, want, atol=1e-12)


def test_rasterization_takes_positions_and_faces() -> None:
    hs, _, _ = scene(square(0.5))
    names = {v.name for v in leaves([hs.peels[0].ids])}
    assert names >= {"pos", "faces", "matrix"}


# -- the engine ------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_steps_do_not_upload_again_and_undo_the_optimization() -> None:
    """The listing's m_is_sent never becomes true."""
    from dressi import DressiAD

    x = Variable(FLOAT, (3, 2), requires_grad=True)
    with DressiAD() as ad:
        ad.set_loss_var(x * x)
        ad.set_optimizer(SGD(0.25))
        ad.send_img(x, np.full((2, 3), 8.0))
        for want in (4.0, 2.0, 1.0):
            ad.exec_step()
            assert (ad.recv_img(x) == want).all()


@pytest.mark.gpu
def test_sending_and_receiving_before_the_first_step_works() -> None:
    from dressi import DressiAD

    x = Variable(FLOAT, (3, 2), requires_grad=True)
    y = x * 2.0
    with DressiAD() as ad:
        ad.send_img(x, np.full((2, 3), 8.0))
        assert (ad.recv_img(x) == 8).all() and (ad.recv_img(y) == 16).all()
        ad.set_loss_var(y)
        assert (ad.recv_img(y) == 16).all() and (ad.recv_grad(x) == 2).all()
