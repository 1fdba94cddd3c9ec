"""Level of detail: differences that stop at faces, footprints, and what gradients do."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.ad import F, Variable, build_backward, evaluate
from dressi.ad.vtype import FLOAT, INT, VEC2, VEC3
from dressi.errors import GraphError

W, H = 9, 6
X, Y = np.meshgrid(np.arange(W), np.arange(H))
LEFT = np.array([[0.02, 0.005], [-0.01, 0.03]])  # d uv / dx, d uv / dy left of column 4
RIGHT = np.array([[0.3, -0.1], [0.0, 0.2]])


def _two_faces() -> tuple[np.ndarray, np.ndarray]:
    """uv (1, H, W, 2) affine in each of two faces that meet between columns 3 and 4, and ids."""
    at = np.stack([X, Y], -1).astype(float)
    ids = (X >= 4).astype(int)
    uv = np.where(ids[..., None] == 1, at @ RIGHT + 0.7, at @ LEFT)
    return uv[None], ids[None, ..., None]


@pytest.mark.parametrize("stencil", [False, True])
def test_differences_never_cross_a_face(stencil: bool) -> None:
    uv, ids = Variable(VEC2, (W, H)), Variable(FLOAT if stencil else INT, (W, H))
    data, numbers = _two_faces()
    got = evaluate(list(F.uv_derivatives(uv, ids)), {uv: data, ids: numbers})
    for axis in (0, 1):
        want = np.where(numbers == 1, RIGHT[axis], LEFT[axis])
        assert np.allclose(got[axis], want, atol=1e-12)


def test_without_ids_the_seam_is_seen_and_a_face_of_one_pixel_has_no_slope() -> None:
    uv, ids = Variable(VEC2, (W, H)), Variable(INT, (W, H))
    data, _ = _two_faces()
    (dx, _) = evaluate(list(F.uv_derivatives(uv)), {uv: data})
    assert np.abs(dx[0, :, 3:5] - LEFT[0]).max() > 0.1
    alone = (X + 100 * Y)[None, ..., None]
    for d in evaluate(list(F.uv_derivatives(uv, ids)), {uv: data, ids: alone}):
        assert (d == 0).all()
    (lod,) = evaluate([F.uv_lod(uv, (64, 64), ids)], {uv: data, ids: alone})
    assert (lod == -30).all()


def test_inner_pixels_of_a_curved_uv_take_central_differences_and_layers_stay_apart() -> None:
    uv = Variable(VEC2, (W, H), 2)
    data = np.stack([np.stack([X**2, Y * X], -1) * s for s in (1.0, -3.0)])
    dx, dy = evaluate(list(F.uv_derivatives(uv)), {uv: data})
    for k, s in enumerate((1.0, -3.0)):
        assert np.allclose(dx[k, :, 1:-1, 0], 2 * s * X[:, 1:-1])
        assert np.allclose(dx[k, :, 0, 0], s) and np.allclose(dx[k, :, -1, 0], s * (2 * W - 3))
        assert np.allclose(dy[k, ..., 1], s * X)


@pytest.mark.parametrize("turn", [0.0, 0.4, 1.1])
def test_footprints_are_the_mean_the_longer_step_and_the_largest_singular_value(
    turn: float,
) -> None:
    rng = np.random.default_rng(3)
    dx, dy = Variable(VEC2, (7, 1)), Variable(VEC2, (7, 1))
    jacobians = rng.normal(size=(7, 2, 2)) * 0.1  # columns are the steps
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    turned = jacobians @ rotation  # the image turned under the pixels
    feeds = {dx: turned[:, :, 0].reshape(1, 1, 7, 2), dy: turned[:, :, 1].reshape(1, 1, 7, 2)}
    size = np.array([32.0, 8.0])
    texels = size[:, None] * turned
    mean, axes, ellipse, usual = evaluate(
        [
            *(F.texture_lod(dx, dy, (32, 8), f) for f in ("mean", "axes", "ellipse")),
            F.texture_lod(dx, dy, (32, 8)),
        ],
        feeds,
    )
    assert np.allclose(mean.ravel(), np.log2(np.linalg.norm(texels, axis=(1, 2)) / 2))
    assert (usual == mean).all()
    assert np.allclose(axes.ravel(), np.log2(np.linalg.norm(texels, axis=1).max(axis=1)))
    assert np.allclose(ellipse.ravel(), np.log2(np.linalg.norm(texels, 2, axis=(1, 2))))
    assert (ellipse >= axes - 1e-12).all()
    unturned = np.linalg.norm(size[:, None] * jacobians, 2, axis=(1, 2))
    assert np.allclose(ellipse.ravel(), np.log2(unturned))
    whole = np.linalg.norm(size[:, None] * jacobians, axis=(1, 2))
    assert np.allclose(mean.ravel(), np.log2(whole / 2))


def test_one_texel_a_pixel_is_level_0_and_each_halving_one_more() -> None:
    uv = Variable(VEC2, (W, H))
    mip = F.image.mipmap(Variable(VEC3, (16, 16)))
    for scale, level in ((0.5, -1.0), (1.0, 0.0), (2.0, 1.0), (8.0, 3.0)):
        data = np.stack([X, Y], -1)[None] * scale / 16
        for of in (mip, (16, 16), Variable(VEC3, (16, 16))):
            both = [F.uv_lod(uv, of, footprint=f) for f in ("axes", "mean")]
            lod, mean = evaluate(both, {uv: data})
            assert np.allclose(lod, level)
            assert np.allclose(mean, level - 0.5)  # a texel is a mean already


def test_gradients_stop_at_the_level_of_detail_unless_asked_for() -> None:
    rng = np.random.default_rng(5)
    uv = Variable(VEC2, (W, H), requires_grad=True)
    ids = Variable(INT, (W, H))
    data, numbers = _two_faces()
    feeds = {uv: data + rng.normal(size=data.shape) * 0.003, ids: numbers}
    assert build_backward(F.uv_lod(uv, (64, 32), ids)) == {}
    for footprint in ("mean", "axes", "ellipse"):
        lod = F.uv_lod(uv, (64, 32), ids, footprint, gradient=True)
        (g,) = evaluate([build_backward(lod)[uv]], feeds)
        for _ in range(4):
            d = rng.normal(size=data.shape)
            ends = [evaluate([lod], {**feeds, uv: feeds[uv] + s * 1e-7 * d})[0] for s in (1, -1)]
            numeric = (ends[0] - ends[1]).sum() / 2e-7
            assert abs(numeric - (g * d).sum()) < 1e-5 * np.abs(g).sum()
        (still,) = evaluate([build_backward(lod)[uv]], {**feeds, uv: data * 0})
        assert (still == 0).all()


def test_what_does_not_fit_is_named() -> None:
    uv = Variable(VEC2, (4, 4))
    bad = {
        "uv must be VEC2": lambda: F.uv_derivatives(Variable(VEC3, (4, 4))),
        "ids must be INT or FLOAT": lambda: F.uv_derivatives(uv, Variable(VEC2, (4, 4))),
        "4x3": lambda: F.uv_derivatives(uv, Variable(INT, (4, 3))),
        "needs a Variable": lambda: F.uv_lod("uv", (4, 4)),  # type: ignore[arg-type]
        "'circle'": lambda: F.uv_lod(uv, (4, 4), footprint="circle"),
        "size=(0, 4)": lambda: F.uv_lod(uv, (0, 4)),
        "needs VEC2": lambda: F.texture_lod(uv, Variable(FLOAT, (4, 4)), (4, 4)),
        "do not broadcast": lambda: F.texture_lod(uv, Variable(VEC2, (4, 3)), (4, 4)),
    }
    for text, call in bad.items():
        with pytest.raises(GraphError, match=r"test_detail\.py") as info:
            call()
        assert text in str(info.value), str(info.value)
