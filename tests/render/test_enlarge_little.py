"""Hard faces are drawn as one triangle each: the same fragments as of two."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import DressiAD, F, Options
from dressi.ad import Variable
from dressi.ad.vtype import IVEC3, MAT4, VEC3
from dressi.render.camera import ring
from dressi.render.raster.enlarge import build_enlarge, build_enlarge_little
from dressi.render.raster.hardsoftras import build_rasterize
from dressi.render.raster.projection import build_screen_faces

pytestmark = pytest.mark.gpu

N = 300


def triangles(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Corners (N, 3, 3) of triangles in front of a camera, and beside it."""
    centre = rng.uniform(-1.4, 1.4, (N, 1, 3))
    if kind == "large":
        return centre + rng.normal(0, 0.3, (N, 3, 3))
    if kind == "small":  # about a pixel, and less
        return centre + rng.normal(0, 0.02, (N, 3, 3))
    if kind == "near":  # some cross the near plane
        return 3.0 * centre + rng.normal(0, 2.0, (N, 3, 3))
    along = rng.normal(size=(N, 1, 3))
    place = rng.uniform(-1, 1, (N, 3, 1))
    return centre + along * place + rng.normal(0, 1e-4 if kind == "slivers" else 0.0, (N, 3, 3))


@pytest.mark.parametrize("size", [(64, 64), (90, 37)])
@pytest.mark.parametrize("kind", ["large", "small", "near", "slivers", "no area"])
def test_hard_faces_have_the_same_fragments(kind: str, size: tuple[int, int]) -> None:
    corners = triangles(kind, np.random.default_rng(5)).reshape(-1, 3)
    pos, faces = Variable(VEC3, (3 * N, 1)), Variable(IVEC3, (N, 1))
    matrix = Variable(MAT4, layers=2)
    screen = build_screen_faces(pos, faces, matrix, size)
    for cull in (False, True):
        peels = [
            build_rasterize(screen, F.constant(0.0), 1, enlarge=enlarge, cull=cull)[0]
            for enlarge in (build_enlarge, build_enlarge_little)
        ]
        with DressiAD(options=Options()) as ad:
            ad.send_img(pos, corners)
            ad.send_img(faces, np.arange(3 * N).reshape(N, 3))
            ad.send_img(matrix, np.stack([camera.matrix for camera in ring(2, distance=3.0)]))
            rows = [ad.recv_img(p.drawn_rows + 0) for p in peels]
            depths = [ad.recv_img(p.depth + 0.0) for p in peels]
        assert (rows[0] >= 0).any() or kind == "no area"
        np.testing.assert_array_equal(rows[1], rows[0])
        np.testing.assert_array_equal(depths[1], depths[0])
