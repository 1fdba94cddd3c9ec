"""However a face is drawn, its fragments are those that lie in it, or near enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dressi import DressiAD, F, Options, evaluate
from dressi.ad import Variable
from dressi.ad.vtype import IVEC3, MAT4, VEC3
from dressi.render.camera import ring
from dressi.render.raster.enlarge import (
    build_enlarge,
    build_enlarge_little,
    flat_position,
)
from dressi.render.raster.hardsoftras import build_rasterize
from dressi.render.raster.near_edge import band_corners
from dressi.render.raster.projection import ScreenFaces, build_screen_faces

pytestmark = pytest.mark.gpu

N = 150


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


def everywhere(screen: ScreenFaces, r: Variable, soft: Variable | None) -> tuple[Variable, ...]:
    """The whole picture for every face: what to be compared with. Crossing faces as they are."""
    w, h = (n / screen.scale for n in screen.size)
    own = build_enlarge(screen, r, soft)
    places = ((0.0, 0.0), (w, 0.0), (w, h), (0.0, h))
    return tuple(
        F.where(screen.crossing, corner, flat_position(F.constant(place), screen))
        for corner, place in zip(own, places, strict=True)
    )


@pytest.mark.parametrize("size", [(64, 64), (90, 37)])
@pytest.mark.parametrize("kind", ["large", "small", "near", "slivers", "no area"])
def test_hard_faces_have_the_same_fragments(kind: str, size: tuple[int, int]) -> None:
    corners = triangles(kind, np.random.default_rng(5)).reshape(-1, 3)
    pos, faces = Variable(VEC3, (3 * N, 1)), Variable(IVEC3, (N, 1))
    matrix = Variable(MAT4, layers=2)
    screen = build_screen_faces(pos, faces, matrix, size)
    for cull, r in ((False, 0.0), (True, 0.06)):
        ways = (everywhere, build_enlarge, build_enlarge_little)[: 3 if r == 0.0 else 2]
        peels = [
            build_rasterize(screen, F.constant(r), 1, enlarge=enlarge, cull=cull)[0]
            for enlarge in ways
        ]
        with DressiAD(options=Options()) as ad:
            ad.send_img(pos, corners)
            ad.send_img(faces, np.arange(3 * N).reshape(N, 3))
            ad.send_img(matrix, np.stack([camera.matrix for camera in ring(2, distance=3.0)]))
            rows = [ad.recv_img(p.drawn_rows + 0) for p in peels]
            depths = [ad.recv_img(p.depth + 0.0) for p in peels]
        assert (rows[0] >= 0).any() or kind == "no area"
        for got, depth in zip(rows[1:], depths[1:], strict=True):
            np.testing.assert_array_equal(got, rows[0])
            np.testing.assert_array_equal(depth, depths[0])


def bands(screen: ScreenFaces, r: Variable) -> list[Variable]:
    """Around one edge of each face."""
    return band_corners(screen, F.constant((0.0, 1.0, 0.0)), r)


@pytest.mark.parametrize(
    ("enlarge", "r"),
    [(build_enlarge, 0.0), (build_enlarge, 0.06), (build_enlarge_little, 0.0), (bands, 0.06)],
)
def test_small_faces_in_the_picture_are_not_clipped(
    enlarge: Callable[..., Sequence[Variable]], r: float
) -> None:
    """A driver clips all triangles of a draw where one has a corner off the screen: slivers grow
    far, and faces at the border beyond it."""
    rng = np.random.default_rng(5)
    corners = np.concatenate([triangles(kind, rng)[: N // 2] for kind in ("small", "slivers")])
    pos, faces = Variable(VEC3, (3 * N, 1)), Variable(IVEC3, (N, 1))
    matrix = Variable(MAT4)
    screen = build_screen_faces(pos, faces, matrix, (90, 37))
    camera = ring(1, distance=3.0)[0].matrix
    feeds = {pos: corners.reshape(-1, 3), faces: np.arange(3 * N).reshape(N, 3), matrix: camera}
    drawn = np.stack(evaluate(list(enlarge(screen, F.constant(r))), feeds))[:, 0, 0]
    a, b, c = (np.asarray(evaluate([v], feeds)[0])[0, 0, :, :2] for v in screen.corners)
    box = np.ptp(np.clip([a, b, c], 0.0, (1.0, 37 / 90)), axis=0)
    small = (box < 0.1).all(-1)
    assert small.sum() > 0.5 * N
    assert (np.abs([a, b, c] - np.array((0.5, 37 / 180))).max(0) > 0.5).any()
    assert (np.abs(drawn[:, small, :2]) <= 1.0).all()
