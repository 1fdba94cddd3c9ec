"""Faces that are seen from their back, left out (``cull``): nothing changes of closed surfaces seen
from outside, and a back is not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dressi import DressiAD, F, Options, Variable
from dressi.ad.vtype import IVEC3, MAT4, VEC3
from dressi.render.raster import build_antialias, build_hardsoftras
from dressi.render.scene.mesh import icosphere
from dressi.testing.scenes import camera, cube, rotated

pytestmark = pytest.mark.gpu

SIZE = (32, 24)
Outputs = dict[str, Variable]


def k1(p: Variable, f: Variable, m: Variable, **options: bool) -> Outputs:
    hs = build_hardsoftras(p, f, m, SIZE, 0.1, **options)
    return {"picture": hs.silhouette, "ids": hs.peels[0].ids}


def occlusion(p: Variable, f: Variable, m: Variable, **options: bool) -> Outputs:
    hs = build_hardsoftras(p, f, m, SIZE, 0.1, occlusion=True, **options)
    shown = [F.to_float(peel.ids) * 0.01 for peel in hs.peels]
    return {"picture": hs.blend(shown, 0.3), "ids": hs.peels[0].ids}


def antialiased(p: Variable, f: Variable, m: Variable, **options: bool) -> Outputs:
    aa = build_antialias(p, f, m, SIZE, **options)
    return {"picture": aa.blend(F.to_float(aa.ids) * 0.01, 0.3), "ids": aa.ids}


def ran(
    ad: DressiAD,
    method: Callable[..., Outputs],
    mesh: tuple[np.ndarray, np.ndarray],
    **options: Any,
) -> dict[str, np.ndarray]:
    """What the method draws of vertices and faces, and the gradient of the sum of squares."""
    vertices, table = mesh
    pos = Variable(VEC3, (len(vertices), 1), requires_grad=True, name="pos")
    faces, matrix = Variable(IVEC3, (len(table), 1), name="faces"), Variable(MAT4, name="matrix")
    outputs = method(pos, faces, matrix, **options)
    ad.send_img(pos, vertices)
    ad.send_img(faces, table)
    ad.send_img(matrix, camera(SIZE, (1.2, 0.9, 2.6)))
    ad.set_loss_var(F.sum(outputs["picture"] * outputs["picture"]))
    found = {name: ad.recv_img(v) for name, v in outputs.items()}
    return found | {"gradient": ad.recv_grad(pos)}


def closed() -> tuple[np.ndarray, np.ndarray]:
    """A box before a ball, in one table."""
    ball, (v, f) = icosphere(2, 0.6), cube(0.25)
    box = rotated(v, 0.35, 0.4) + (0.5, 0.35, 0.7)
    n = len(ball.positions)
    return np.concatenate([ball.positions, box]), np.concatenate([ball.faces, f + n])


@pytest.mark.parametrize(
    ("method", "lowering"),
    [(k1, "graphics"), (occlusion, "graphics"), (antialiased, "graphics"), (k1, "compute")],
)
def test_closed_surfaces_have_the_same_picture_and_gradient_without_their_backs(
    ad: DressiAD, method: Callable[..., Outputs], lowering: Any
) -> None:
    ad.options = Options(lowering=lowering)
    want, got = (ran(ad, method, closed(), cull=cull) for cull in (False, True))
    for name in ("picture", "ids"):
        assert (want[name] == got[name]).all(), name
    # What pixels add to a vertex comes in any order: the last bits differ.
    largest = np.abs(want["gradient"]).max()
    assert largest > 0.1
    assert np.abs(want["gradient"] - got["gradient"]).max() <= 1e-5 * largest


@pytest.mark.parametrize(
    ("method", "clip"), [(k1, False), (occlusion, False), (antialiased, False), (k1, True)]
)
def test_a_back_has_no_pixel_no_edge_and_no_gradient(
    ad: DressiAD, method: Callable[..., Outputs], clip: bool
) -> None:
    triangle = np.array([(-0.5, -0.4, 0.0), (0.6, -0.3, 0.1), (0.0, 0.6, -0.1)])
    back, front = np.array([(0, 2, 1)]), np.array([(0, 1, 2)])
    hidden = ran(ad, method, (triangle, back), clip=clip, cull=True)
    assert (hidden["ids"] == -1).all() and (hidden["gradient"] == 0).all()
    assert np.ptp(hidden["picture"]) == 0
    shown = ran(ad, method, (triangle, front), clip=clip, cull=True)
    assert (shown["ids"] == 0).sum() > 20 and np.abs(shown["gradient"]).max() > 0.1


def test_peels_of_backs_are_left_out(ad: DressiAD) -> None:
    """With K = 2 the second hard layer of a ball is its far side; without backs there is none."""

    def both(p: Variable, f: Variable, m: Variable, **options: bool) -> Outputs:
        hs = build_hardsoftras(p, f, m, SIZE, 0.0, 2, **options)
        hard = F.compare("lte", hs.peels[1].depth, 0.5)  # a rim by a hair is no layer
        return {"picture": hs.silhouette, "ids": F.where(hard, hs.peels[1].ids, -1)}

    ball = icosphere(2, 0.6)
    mesh = ball.positions, ball.faces
    far = [(ran(ad, both, mesh, cull=cull)["ids"] >= 0).sum() for cull in (False, True)]
    assert far[1] == 0 < far[0]
