"""HardSoftRas with occlusion: soft edges at the outline and inside it, and what they leave."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dressi import FLOAT, IVEC3, MAT4, VEC3, DressiAD, F, GraphError, Variable
from dressi.render.raster import build_hardsoftras, gather, interpolate
from dressi.render.shading import blend_peels, peel_alphas
from dressi.testing.edge_scenes import edge_scene

pytestmark = pytest.mark.gpu

SIZE = (48, 40)
R = 0.1
R_PX = R * 48


def sheet(x: tuple[float, float], y: tuple[float, float], z: float) -> np.ndarray:
    """(4, 3): an upright rectangle in pixels, at a depth, as corners of two faces."""
    corners = [(x[0], y[0]), (x[0], y[1]), (x[1], y[1]), (x[1], y[0])]
    return np.array([(2 * u / SIZE[0] - 1, 2 * v / SIZE[1] - 1, z) for u, v in corners])


class Sheets:
    """Rectangles of one brightness each over a background of 0.1, seen without perspective."""

    def __init__(self, *sheets: np.ndarray, values: tuple[float, ...], **more: Any) -> None:
        n = len(sheets)
        self.positions = np.concatenate(sheets).astype(np.float32)
        two = np.array([(0, 1, 2), (0, 2, 3)])
        self.pos = Variable(VEC3, (4 * n, 1), requires_grad=True, name="pos")
        self.faces = F.leaf(np.concatenate([two + 4 * k for k in range(n)])[None], IVEC3)
        matrix = F.leaf(np.eye(4, dtype=np.float32)[None, None], MAT4)
        more = {"r": R, "occlusion": True} | more
        self.hs = build_hardsoftras(self.pos, self.faces, matrix, SIZE, **more)
        table = F.leaf(np.repeat(np.float32(values), 4)[None, :, None], FLOAT)
        corners = gather(table, self.faces)
        self.colors = [interpolate(corners, p.ids, p.bary) for p in self.hs.peels]
        self.picture = self.hs.blend(self.colors, 0.1)

    def images(self, ad: DressiAD, *images: Variable) -> list[np.ndarray]:
        ad.send_img(self.pos, self.positions)
        return [a.reshape(SIZE[::-1]) for a in ad.recv_imgs(list(images))]

    def gradient(self, ad: DressiAD, weights: np.ndarray) -> np.ndarray:
        """(N, 3) of the weighted sum of the picture."""
        ad.set_optimizer(None)
        ad.send_img(self.pos, self.positions)
        ad.set_loss_var(F.sum(self.picture * F.leaf(np.float32(weights)[..., None], FLOAT)))
        return ad.recv_grad(self.pos).reshape(-1, 3)


def columns(first: int, last: int) -> np.ndarray:
    out = np.zeros(SIZE[::-1])
    out[:, first:last] = 1.0
    return out


WALL = sheet((-20.0, 70.0), (-20.0, 60.0), 0.8)
BOARD = sheet((14.3, 30.3), (9.4, 31.4), 0.4)


def test_edge_before_a_wall_is_soft_and_its_gradient_is_that_of_its_place(ad: DressiAD) -> None:
    """The mean brightness of the rows in the middle follows the right edge: jump times height."""
    scene = Sheets(BOARD, WALL, values=(0.9, 0.4))
    weights = np.zeros(SIZE[::-1])
    weights[18:22, 22:40] = 1.0
    picture, silhouette = scene.images(ad, scene.picture, scene.hs.silhouette)
    row = picture[20]
    assert row[29] < 0.9 - 0.1 and row[31] > 0.4 + 0.05 and (np.diff(row[22:]) <= 1e-6).all()
    assert row[24] == pytest.approx(0.9, abs=2e-3) and row[36] == pytest.approx(0.4, abs=2e-3)
    # The frame's border is no edge, and what lies before the wall does not fade into nothing.
    assert silhouette == pytest.approx(1.0, abs=1e-6)
    gradient = scene.gradient(ad, weights)
    # x of both right corners: pixels per unit, rows, jump. 1 %: samples of the sigmoid, its ends
    moved = gradient[2:4, 0].sum() / (SIZE[0] / 2)
    assert moved == pytest.approx(4 * (0.9 - 0.4), rel=0.01)


def test_pixel_that_is_hard_by_a_hair_is_blended_as_its_place_says(ad: DressiAD) -> None:
    """1 / 500 pixel outside of the edge: half of either colour, not the surface's alone."""
    scene = Sheets(sheet((14.3, 30.498), (9.4, 31.4), 0.4), WALL, values=(0.9, 0.4))
    (picture,) = scene.images(ad, scene.picture)
    assert picture[20, 30] == pytest.approx(0.65, abs=2e-3)


@pytest.mark.parametrize("side", [-1, 1])
def test_gradient_comes_from_as_far_as_r_on_either_side(ad: DressiAD, side: int) -> None:
    scene = Sheets(BOARD, WALL, values=(0.9, 0.4))
    near, far = (30.3 + side * d * R_PX for d in (0.8, 1.25))
    for place, has in ((near, True), (far, False)):
        weights = columns(int(place), int(place) + 1) * (np.arange(40) == 20)[:, None]
        gradient = scene.gradient(ad, weights)
        assert (np.abs(gradient[2:4, 0]) > 1e-4).all() == has


def test_rim_never_hides_what_is_in_front_of_it(ad: DressiAD) -> None:
    """A pole before the board's right edge: its pixels are those that it has without the board,
    and the edge behind it has no band there."""
    pole = sheet((26.0, 36.0), (-5.0, 45.0), 0.2)
    with_board = Sheets(pole, BOARD, WALL, values=(0.9, 0.6, 0.3))
    inside = np.s_[:, 31:32]  # farther than r from the pole's own edges: nothing else may show
    (picture,) = with_board.images(ad, with_board.picture)
    assert picture[inside] == pytest.approx(0.9, abs=2e-3)
    gradient = with_board.gradient(ad, columns(26, 36))
    assert np.abs(gradient[4:8][2:4, 0]).max() < 1e-6
    assert np.abs(gradient[:4, 0]).max() > 1e-3


def test_rim_never_bleeds_onto_what_touches_it(ad: DressiAD) -> None:
    """Two sheets side by side in one plane, and a board upon a wall: no pixel is mixed."""
    for other in (sheet((30.3, 60.0), (-9.0, 50.0), 0.4), sheet((-20.0, 70.0), (-20.0, 60.0), 0.4)):
        scene = Sheets(BOARD, other, values=(0.9, 0.4))
        hard = F.where(scene.hs.hard, scene.colors[0], 0.1)
        picture, plain, has = scene.images(ad, scene.picture, hard, scene.hs.edge)
        rows = np.s_[15:26, 22:]
        assert np.array_equal(picture[rows], plain[rows]) and not has[rows].any()


def test_object_on_a_floor_has_no_rim_on_the_line_of_contact(ad: DressiAD) -> None:
    scene = edge_scene("contact")
    pos, faces = F.leaf(scene.positions[None], VEC3), F.leaf(scene.faces[None], IVEC3)
    matrix = F.leaf(scene.matrix.astype(np.float32)[None, None], MAT4)
    hs = build_hardsoftras(pos, faces, matrix, scene.size, 0.03, occlusion=True)
    ids, has = (a.reshape(64, 64) for a in ad.recv_imgs([hs.peels[0].ids, hs.edge]))
    box = (ids >= 0) & (ids < 12)
    low = [np.flatnonzero(column)[-1] for column in box.T if column.any()]
    columns_of_box = np.flatnonzero(box.any(0))
    # Off the left and right corners, where other edges are near.
    beside = [has[y + 1, x] for x, y in zip(columns_of_box, low, strict=True)][4:-4]
    assert len(beside) > 8 and not np.any(beside)


def test_line_where_faces_cross_has_a_gradient_and_a_hard_picture(ad: DressiAD) -> None:
    """A slanted sheet passes through an upright one in column 24; raising it moves the line."""
    slanted = sheet((4.0, 44.0), (-5.0, 45.0), 0.5)
    slanted[:, 2] += slanted[:, 0] * 0.5
    upright = sheet((4.0, 44.0), (-5.0, 45.0), 0.5)
    scene = Sheets(slanted, upright, values=(0.9, 0.4))
    hard = F.where(scene.hs.hard, scene.colors[0], 0.1)
    rows, weights = np.s_[10:30, 12:36], np.zeros(SIZE[::-1])
    weights[rows] = 1.0
    picture, plain = scene.images(ad, scene.picture, hard)
    assert np.array_equal(picture[rows], plain[rows])
    assert picture[20, 22] == pytest.approx(0.9) and picture[20, 26] == pytest.approx(0.4)
    gradient = scene.gradient(ad, weights)
    # Depth 0.5 + x / 2 is 0.5 where x = 0: by dz the line moves -2 dz, 24 pixels per unit.
    assert gradient[:4, 2].sum() == pytest.approx(20 * (0.9 - 0.4) * -2 * 24, rel=1e-3)
    assert gradient[4:, 2].sum() == pytest.approx(20 * (0.9 - 0.4) * 2 * 24, rel=1e-3)


def test_picture_is_the_hard_one_away_from_edges_and_beyond_the_outline_that_of_K_1(
    ad: DressiAD,
) -> None:
    """Outside of the outline: inside, K = 1 knows the edges of one face only."""
    alone = Sheets(BOARD, values=(0.9,))
    before = Sheets(BOARD, values=(0.9,), occlusion=False)
    mine, has, hard = alone.images(ad, alone.hs.silhouette, alone.hs.edge, alone.hs.hard)
    (theirs,) = before.images(ad, before.hs.silhouette)
    assert np.array_equal(mine[has == 0], hard[has == 0])
    # 2e-3: K = 1 ends in a square around the outline, bands at the distance r
    assert np.abs(mine - theirs)[hard == 0].max() < 2e-3


def test_blends_ask_for_a_colour_per_peel_and_masks_are_blended(ad: DressiAD) -> None:
    scene = Sheets(BOARD, WALL, values=(0.9, 0.4), K=3)
    hs, colors = scene.hs, scene.colors
    assert len(hs.peels) == 2
    with pytest.raises(GraphError, match="2 colours"):
        hs.blend(colors[:1])
    with pytest.raises(GraphError, match="with occlusion"):
        peel_alphas(hs, [1.0, 1.0])
    opaque, cover = blend_peels(hs, colors, [1.0, 1.0], 0.1)
    clear, none = blend_peels(hs, colors, [0.0, 0.0], 0.1)
    found = scene.images(ad, scene.picture, hs.silhouette, opaque, cover, clear, none)
    picture, silhouette, opaque, cover, clear, none = found
    assert opaque == pytest.approx(picture, abs=1e-6)
    assert cover == pytest.approx(silhouette, abs=1e-6)
    assert clear == pytest.approx(0.1, abs=1e-6) and not none.any()


def test_delta_of_1_softens_a_view_that_is_covered_wholly(ad: DressiAD) -> None:
    scenes = [
        Sheets(WALL, values=(0.4,), occlusion=False, delta=d, max_delta=1.0) for d in (0.9, 1.0)
    ]
    for scene, everywhere in zip(scenes, (0.0, 1.0), strict=True):
        (edge,) = scene.images(ad, scene.hs.edge)
        assert (edge == everywhere).all()
