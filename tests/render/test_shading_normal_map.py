"""Normal maps: tangent frames, mirrored and degenerate UVs, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import shading_reference as ref

from dressi import DressiAD, F, GraphError, Variable, evaluate, gradcheck
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC2, VEC3, VEC4
from dressi.render.raster import build_hardsoftras
from dressi.render.shading import (
    decode_normal,
    face_tangents,
    flat_normal,
    flat_tangent,
    perturb_normal,
    smooth_tangent,
    surface_uv,
)
from dressi.testing.scenes import camera, quad, rotated

V, FACES = quad(1.0)
UV = np.array([(0, 1), (1, 1), (1, 0), (0, 0)], float)  # u to the right, v down
FLAT = np.array([0.5, 0.5, 1.0])


def tangents(v: np.ndarray, uv: np.ndarray, faces: np.ndarray = FACES) -> np.ndarray:
    pos, coords = Variable(VEC3, (len(v), 1)), Variable(VEC2, (len(uv), 1))
    index = Variable(IVEC3, (len(faces), 1))
    out = face_tangents(pos, index, coords, index)
    return evaluate([out], {pos: v, coords: uv, index: faces})[0].reshape(-1, 4)


def test_tangent_points_along_u_and_the_bitangent_up() -> None:
    for angles in ((0, 0, 0), (0.4, 0.3, 0.9)):
        t = tangents(rotated(V, *angles), UV)
        want = rotated(np.array([(1, 0, 0)]), *angles)[0]
        assert np.allclose(t, [*want, 1.0], atol=1e-12)


def test_mirrored_uv_turns_the_handedness() -> None:
    t = tangents(V, UV * (-1, 1))
    assert np.allclose(t, (-1, 0, 0, -1))
    b = np.cross((0, 0, 1), t[0, :3]) * t[0, 3]
    assert np.allclose(b, (0, 1, 0))  # still up in the texture


def test_sheared_and_scaled_uv() -> None:
    """u = x + y / 2: dp/du at constant v, here along x, whatever the scales are."""
    uv = np.stack([V[:, 0] * 3 + V[:, 1] * 1.5, -V[:, 1] * 0.01], -1)
    assert np.allclose(tangents(V, uv), (1, 0, 0, 1), atol=1e-9)


@pytest.mark.parametrize(
    "uv",
    [
        np.zeros((4, 2)),
        np.stack([V[:, 0], 2 * V[:, 0]], -1),
        np.stack([V[:, 0], np.full(4, 0.3)], -1),
    ],
)
def test_degenerate_uv_has_no_tangent(uv: np.ndarray) -> None:
    assert (tangents(V, uv) == 0).all()


def test_face_without_area_has_no_tangent() -> None:
    assert np.allclose(tangents(np.zeros((4, 3)), UV)[:, :3], 0)


def bend(n: Any, t: Any, texel: Any, scale: float = 1.0) -> np.ndarray:
    out = perturb_normal(*(F.constant(x) for x in (n, t, texel)), scale)
    return evaluate([out], {})[0].ravel()


def test_texels_mean_directions() -> None:
    z, x = (0.0, 0.0, 1.0), (1.0, 0.0, 0.0, 1.0)
    s = np.sqrt(0.5)
    assert np.allclose(bend(z, x, FLAT), z, atol=1e-6)
    assert np.allclose(bend(z, x, (0.5 + s / 2, 0.5, 0.5 + s / 2)), (s, 0, s), atol=1e-6)
    assert np.allclose(bend(z, x, (0.5, 0.5 + s / 2, 0.5 + s / 2)), (0, s, s), atol=1e-6)
    mirrored = (1.0, 0.0, 0.0, -1.0)
    assert np.allclose(bend(z, mirrored, (0.5, 0.5 + s / 2, 0.5 + s / 2)), (0, -s, s), atol=1e-6)


def test_scale_bends_less_and_more() -> None:
    z, x, texel = (0.0, 0.0, 1.0), (1.0, 0.0, 0.0, 1.0), (0.8, 0.5, 0.9)
    for scale in (0.0, 0.5, 2.0):
        want = np.array([0.6 * scale, 0, 0.8])
        assert np.allclose(bend(z, x, texel, scale), want / np.linalg.norm(want), atol=1e-6)


@pytest.mark.parametrize("tangent", [(0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 2.0, 1.0)])
def test_without_a_tangent_the_normal_stays(tangent: Any) -> None:
    assert np.allclose(bend((0.0, 0.0, 1.0), tangent, (0.9, 0.6, 0.7)), (0, 0, 1))


class Mapped:
    """A tilted quad with a random normal map, from two views; K peels."""

    def __init__(self, per_vertex: bool, uv: np.ndarray = UV, layers: int = 2) -> None:
        rng = np.random.default_rng(1)
        size = (20, 16)
        self.pos = Variable(VEC3, (4, 1), requires_grad=True, name="pos")
        self.map = Variable(VEC3, (5, 4), requires_grad=True, name="map")
        self.scale = Variable(FLOAT, requires_grad=True, name="scale")
        faces, coords = Variable(IVEC3, (2, 1)), Variable(VEC2, (4, 1))
        matrix = Variable(MAT4, layers=layers)
        v = rotated(V, 0.3, 0.4, 0.2)
        eyes = [(0, 0, 4), (1.5, 1, 3)][:layers]
        self.feeds = {
            self.pos: v,
            self.map: np.clip(FLAT + rng.uniform(-0.3, 0.3, (4, 5, 3)), 0, 1),
            self.scale: np.float64(0.8),
            faces: FACES,
            coords: uv,
            matrix: np.stack([camera(size, e) for e in eyes]),
        }
        self.feeds = {
            k: np.float32(a).astype(float) if not k.vtype.is_int else a
            for k, a in self.feeds.items()
        }
        hs = build_hardsoftras(self.pos, faces, matrix, size, 0.0)
        peel = hs.peels[0]
        self.peel = peel
        normal = flat_normal(peel, self.pos, faces)
        if per_vertex:
            self.tangent = Variable(VEC4, (4, 1), requires_grad=True, name="tangent")
            t = ref.unit(rotated(V, 0.3, 0.4, 0.2)[1] - rotated(V, 0.3, 0.4, 0.2)[0])
            self.feeds[self.tangent] = np.tile([*t, 1.0], (4, 1))
            tangent = smooth_tangent(peel, self.tangent, faces)
        else:
            tangent = flat_tangent(peel, self.pos, faces, coords, faces)
        texel = F.texture(self.map, surface_uv(peel, coords, faces), wrap="clamp")
        self.texel, self.normal = texel, perturb_normal(normal, tangent, texel, self.scale)
        self.flat = normal


@pytest.mark.gpu
@pytest.mark.parametrize("per_vertex", [False, True])
def test_frame_on_a_mesh_is_t_b_n(ad: DressiAD, per_vertex: bool) -> None:
    scene = Mapped(per_vertex)
    for v, a in scene.feeds.items():
        ad.send_img(v, a)
    ad.set_loss_var(scene.normal)
    got, texel = ad.recv_img(scene.normal), ad.recv_img(scene.texel).astype(float)
    hit = ad.recv_img(scene.peel.ids)[..., 0] >= 0
    axes = rotated(np.eye(3), 0.3, 0.4, 0.2)  # images of x, y, z: tangent, bitangent, normal
    local = (2 * texel - 1) * (0.8, 0.8, 1)
    want = ref.unit(local) @ axes
    assert hit.mean() > 0.2 and np.abs(got[hit] - want[hit]).max() < 1e-4
    assert np.abs(want[hit] - axes[2]).max() > 0.3


@pytest.mark.gpu
def test_degenerate_uv_on_a_mesh_falls_back_to_the_normal(ad: DressiAD) -> None:
    scene = Mapped(False, np.full((4, 2), 0.25), 1)
    for v, a in scene.feeds.items():
        ad.send_img(v, a)
    ad.set_loss_var(scene.normal)
    assert np.allclose(ad.recv_img(scene.normal), ad.recv_img(scene.flat), atol=1e-6)
    assert np.isfinite(ad.recv_grad(scene.pos)).all()
    assert (ad.recv_grad(scene.map) == 0).all()


@pytest.mark.gpu
@pytest.mark.parametrize("per_vertex", [False, True])
def test_gradients_to_map_scale_tangents_and_positions(ad: DressiAD, per_vertex: bool) -> None:
    scene = Mapped(per_vertex, layers=1)
    wrt = [scene.map, scene.scale, scene.pos, *([scene.tangent] if per_vertex else [])]
    # The hard picture jumps where a pixel changes hands: gradcheck names and leaves those out.
    check = gradcheck([scene.normal], wrt, scene.feeds, ad, eps=1e-5, n_entries=8, tolerance=2e-3)
    assert check.ok, check.text()
    assert len(check.leaves[2].compared) >= 4, check.text()


@pytest.mark.gpu
def test_texel_without_length_is_finite(ad: DressiAD) -> None:
    texel = Variable(VEC3, requires_grad=True, name="texel")
    out = decode_normal(texel)
    ad.send_img(texel, np.full(3, 0.5))
    ad.set_loss_var(out)
    assert (ad.recv_img(out) == 0).all() and np.isfinite(ad.recv_grad(texel)).all()


def test_bad_types_raise() -> None:
    n, t = Variable(VEC3), Variable(VEC4)
    for bad in (
        lambda: perturb_normal(t, t, n),
        lambda: perturb_normal(n, n, n),
        lambda: perturb_normal(n, t, t),
        lambda: perturb_normal(n, t, n, n),
    ):
        with pytest.raises(GraphError, match="must be"):
            bad()
    hs = build_hardsoftras(
        Variable(VEC3, (4, 1)), Variable(IVEC3, (2, 1)), Variable(MAT4), (8, 8), 0
    )
    with pytest.raises(GraphError, match="VEC4 tangents"):
        smooth_tangent(hs.peels[0], Variable(VEC3, (4, 1)), Variable(IVEC3, (2, 1)))
