"""HardSoftRas with occlusion: soft edges at the outline and inside it, and what they leave."""

from __future__ import annotations

from collections.abc import Iterator
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
    """Up to three rectangles of one brightness each over a background of 0.1, seen without
    perspective. What they are is data: one graph for all tests."""

    N = 3

    def __init__(self, **more: Any) -> None:
        n = self.N
        self.ad = DressiAD()
        self.ad.set_optimizer(None)
        self.pos = Variable(VEC3, (4 * n, 1), requires_grad=True, name="pos")
        self.values = Variable(FLOAT, (4 * n, 1), name="values")
        self.weights = Variable(FLOAT, SIZE, name="weights")
        two = np.array([(0, 1, 2), (0, 2, 3)])
        faces = F.leaf(np.concatenate([two + 4 * k for k in range(n)])[None], IVEC3)
        matrix = F.leaf(np.eye(4, dtype=np.float32)[None, None], MAT4)
        more = {"r": R, "occlusion": True} | more
        self.hs = hs = build_hardsoftras(self.pos, faces, matrix, SIZE, **more)
        corners = gather(self.values, faces)
        self.colors = [interpolate(corners, p.ids, p.bary) for p in hs.peels]
        picture = hs.blend(self.colors, 0.1)
        plain = F.where(hs.hard, self.colors[0], 0.1)
        self.shown = {"picture": picture, "plain": plain, "silhouette": hs.silhouette}
        self.shown |= {"edge": hs.edge, "hard": hs.hard}
        self.ad.set_loss_var(F.sum(picture * self.weights))

    def put(self, *sheets: np.ndarray, values: tuple[float, ...]) -> Sheets:
        """Send the rectangles; the others have no area and lie outside."""
        left = self.N - len(sheets)
        nowhere = [np.full((4, 3), (5.0, 5.0, 0.9))] * left
        self.ad.send_img(self.pos, np.concatenate([*sheets, *nowhere]))
        self.ad.send_img(self.values, np.repeat([*values, *[0.0] * left], 4))
        return self

    def images(self, *more: Variable) -> dict[str, np.ndarray]:
        found = self.ad.recv_imgs([*self.shown.values(), *more])
        names = [*self.shown, *range(len(more))]
        return {str(k): a.reshape(SIZE[::-1]) for k, a in zip(names, found, strict=True)}

    def gradient(self, weights: np.ndarray) -> np.ndarray:
        """(N, 3) of the weighted sum of the picture."""
        self.ad.send_img(self.weights, weights)
        return self.ad.recv_grad(self.pos).reshape(-1, 3)


@pytest.fixture(scope="module")
def sheets() -> Iterator[Sheets]:
    made = Sheets()
    yield made
    made.ad.close()


def columns(first: int, last: int) -> np.ndarray:
    out = np.zeros(SIZE[::-1])
    out[:, first:last] = 1.0
    return out


WALL = sheet((-20.0, 70.0), (-20.0, 60.0), 0.8)
BOARD = sheet((14.3, 30.3), (9.4, 31.4), 0.4)


def test_edge_before_a_wall_is_soft_and_its_gradient_is_that_of_its_place(sheets: Sheets) -> None:
    """The mean brightness of the rows in the middle follows the right edge: jump times height."""
    scene = sheets.put(BOARD, WALL, values=(0.9, 0.4))
    weights = np.zeros(SIZE[::-1])
    weights[18:22, 22:40] = 1.0
    found = scene.images()
    row, silhouette = found["picture"][20], found["silhouette"]
    assert row[29] < 0.9 - 0.1 and row[31] > 0.4 + 0.05 and (np.diff(row[22:]) <= 1e-6).all()
    assert row[24] == pytest.approx(0.9, abs=2e-3) and row[36] == pytest.approx(0.4, abs=2e-3)
    # The frame's border is no edge, and what lies before the wall does not fade into nothing.
    assert silhouette == pytest.approx(1.0, abs=1e-6)
    gradient = scene.gradient(weights)
    # x of both right corners: pixels per unit, rows, jump. 1 %: samples of the sigmoid, its ends
    moved = gradient[2:4, 0].sum() / (SIZE[0] / 2)
    assert moved == pytest.approx(4 * (0.9 - 0.4), rel=0.01)


def test_pixel_that_is_hard_by_a_hair_is_blended_as_its_place_says(sheets: Sheets) -> None:
    """1 / 500 pixel outside of the edge: half of either colour, not the surface's alone."""
    scene = sheets.put(sheet((14.3, 30.498), (9.4, 31.4), 0.4), WALL, values=(0.9, 0.4))
    assert scene.images()["picture"][20, 30] == pytest.approx(0.65, abs=2e-3)


@pytest.mark.parametrize("side", [-1, 1])
def test_gradient_comes_from_as_far_as_r_on_either_side(sheets: Sheets, side: int) -> None:
    scene = sheets.put(BOARD, WALL, values=(0.9, 0.4))
    near, far = (30.3 + side * d * R_PX for d in (0.8, 1.25))
    for place, has in ((near, True), (far, False)):
        weights = columns(int(place), int(place) + 1) * (np.arange(40) == 20)[:, None]
        gradient = scene.gradient(weights)
        assert (np.abs(gradient[2:4, 0]) > 1e-4).all() == has


def test_rim_never_hides_what_is_in_front_of_it(sheets: Sheets) -> None:
    """A pole before the board's right edge: its pixels are those that it has without the board,
    and the edge behind it has no band there."""
    pole = sheet((26.0, 36.0), (-5.0, 45.0), 0.2)
    with_board = sheets.put(pole, BOARD, WALL, values=(0.9, 0.6, 0.3))
    inside = np.s_[:, 31:32]  # farther than r from the pole's own edges: nothing else may show
    assert with_board.images()["picture"][inside] == pytest.approx(0.9, abs=2e-3)
    gradient = with_board.gradient(columns(26, 36))
    assert np.abs(gradient[4:8][2:4, 0]).max() < 1e-6
    assert np.abs(gradient[:4, 0]).max() > 1e-3


def test_rim_never_bleeds_onto_what_touches_it(sheets: Sheets) -> None:
    """Two sheets side by side in one plane, and a board upon a wall: no pixel is mixed."""
    for other in (sheet((30.3, 60.0), (-9.0, 50.0), 0.4), sheet((-20.0, 70.0), (-20.0, 60.0), 0.4)):
        found = sheets.put(BOARD, other, values=(0.9, 0.4)).images()
        rows = np.s_[15:26, 22:]
        assert np.array_equal(found["picture"][rows], found["plain"][rows])
        assert not found["edge"][rows].any()


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


def test_line_where_faces_cross_has_a_gradient_and_a_hard_picture(sheets: Sheets) -> None:
    """A slanted sheet passes through an upright one in column 24; raising it moves the line."""
    slanted = sheet((4.0, 44.0), (-5.0, 45.0), 0.5)
    slanted[:, 2] += slanted[:, 0] * 0.5
    upright = sheet((4.0, 44.0), (-5.0, 45.0), 0.5)
    scene = sheets.put(slanted, upright, values=(0.9, 0.4))
    rows, weights = np.s_[10:30, 12:36], np.zeros(SIZE[::-1])
    weights[rows] = 1.0
    found = scene.images()
    picture, plain = found["picture"], found["plain"]
    assert np.array_equal(picture[rows], plain[rows])
    assert picture[20, 22] == pytest.approx(0.9) and picture[20, 26] == pytest.approx(0.4)
    gradient = scene.gradient(weights)
    # Depth 0.5 + x / 2 is 0.5 where x = 0: by dz the line moves -2 dz, 24 pixels per unit.
    assert gradient[:4, 2].sum() == pytest.approx(20 * (0.9 - 0.4) * -2 * 24, rel=1e-3)
    assert gradient[4:, 2].sum() == pytest.approx(20 * (0.9 - 0.4) * 2 * 24, rel=1e-3)


def test_picture_is_the_hard_one_away_from_edges_and_at_the_outline_that_of_K_1(
    sheets: Sheets,
) -> None:
    before = Sheets(occlusion=False)
    mine = sheets.put(BOARD, values=(0.9,)).images()
    theirs = before.put(BOARD, values=(0.9,)).images()
    before.ad.close()
    hard = mine["edge"] == 0
    assert np.array_equal(mine["silhouette"][hard], mine["hard"][hard])
    # 2e-3: K = 1 ends in a square around the outline, bands at the distance r
    for name in ("silhouette", "picture"):
        assert np.abs(mine[name] - theirs[name]).max() < 2e-3


def test_blends_ask_for_a_colour_per_peel_and_masks_are_blended(sheets: Sheets) -> None:
    hs, colors = sheets.hs, sheets.colors
    assert len(hs.peels) == 2
    with pytest.raises(GraphError, match="2 colours"):
        hs.blend(colors[:1])
    with pytest.raises(GraphError, match="with occlusion"):
        peel_alphas(hs, [1.0, 1.0])
    blends = blend_peels(hs, colors, [1.0, 1.0], 0.1) + blend_peels(hs, colors, [0.0, 0.0], 0.1)
    found = sheets.put(BOARD, WALL, values=(0.9, 0.4)).images(*blends)
    opaque, cover, clear, none = (found[str(k)] for k in range(4))
    assert opaque == pytest.approx(found["picture"], abs=1e-6)
    assert cover == pytest.approx(found["silhouette"], abs=1e-6)
    assert clear == pytest.approx(0.1, abs=1e-6) and not none.any()


def test_two_layers_whatever_K_is() -> None:
    pos, faces, matrix = Variable(VEC3, (3, 1)), Variable(IVEC3, (1, 1)), Variable(MAT4)
    assert len(build_hardsoftras(pos, faces, matrix, SIZE, R, 3, occlusion=True).peels) == 2


def test_delta_of_1_softens_a_view_that_is_covered_wholly(ad: DressiAD) -> None:
    pos, faces = (
        F.leaf(np.float32(WALL)[None], VEC3),
        F.leaf(np.array([[(0, 1, 2), (0, 2, 3)]]), IVEC3),
    )
    matrix = F.leaf(np.eye(4, dtype=np.float32)[None, None], MAT4)
    masks = [
        build_hardsoftras(pos, faces, matrix, SIZE, R, delta=d, max_delta=1.0).edge
        for d in (0.9, 1.0)
    ]
    inside, everywhere = ad.recv_imgs(masks)
    assert not inside.any() and everywhere.all()
