"""The NumPy oracle: what arrays it takes, and how it rasterizes (Vulkan's rules)."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

from dressi.ad import F, Variable, evaluate
from dressi.ad.evaluate import as_array, coverage
from dressi.ad.vtype import FLOAT, INT, IVEC3, MAT3, VEC2, VEC3, VEC4, VType
from dressi.errors import GraphError

# -- arrays ----------------------------------------------------------------------------------------

SHAPES = [
    (VEC3, (5, 4), 1, [(4, 5, 3), (1, 4, 5, 3)]),
    (VEC3, (5, 4), 2, [(2, 4, 5, 3)]),
    (FLOAT, (5, 4), 1, [(4, 5, 1), (4, 5), (1, 4, 5, 1), (1, 4, 5)]),
    (FLOAT, (5, 4), 2, [(2, 4, 5, 1), (2, 4, 5)]),
    (VEC3, (7, 1), 1, [(7, 3), (1, 7, 3), (1, 1, 7, 3)]),
    (VEC3, (7, 1), 2, [(2, 7, 3), (2, 1, 7, 3)]),
    (FLOAT, (7, 1), 1, [(7, 1), (7,), (1, 7)]),
    (IVEC3, (7, 1), 1, [(7, 3)]),
    (VEC3, (1, 1), 1, [(3,), (1, 3), (1, 1, 3), (1, 1, 1, 3)]),
    (VEC3, (1, 1), 4, [(4, 3), (4, 1, 1, 3)]),
    (FLOAT, (1, 1), 1, [(), (1,), (1, 1), (1, 1, 1)]),
    (FLOAT, (1, 1), 4, [(4,), (4, 1)]),
    (MAT3, (1, 1), 1, [(3, 3), (1, 3, 3)]),
    (MAT3, (1, 1), 4, [(4, 3, 3)]),
    (MAT3, (5, 4), 1, [(4, 5, 3, 3)]),
]


@pytest.mark.parametrize(("vtype", "size", "layers", "shapes"), SHAPES)
def test_documented_shapes_are_taken(vtype: VType, size: Any, layers: int, shapes: list) -> None:
    v = Variable(vtype, size, layers)
    full = (layers, size[1], size[0], *vtype.tail)
    data = np.arange(np.prod(full)).reshape(full)
    for shape in shapes:
        for dtype in (np.int64, np.float32, np.float64):
            got = as_array(data.reshape(shape).astype(dtype), v)
            assert got.shape == full and (got == data).all()


@pytest.mark.parametrize(
    ("vtype", "size", "layers", "shape"),
    [
        (VEC3, (5, 4), 1, (5, 4, 3)),  # width and height swapped
        (VEC3, (5, 4), 1, (4, 5)),
        (VEC3, (5, 4), 1, (4, 5, 4)),
        (VEC3, (5, 4), 1, (3, 4, 5)),
        (VEC3, (5, 4), 2, (4, 5, 3)),
        (VEC3, (5, 4), 2, (3, 4, 5, 3)),
        (VEC3, (7, 1), 1, (3, 7)),
        (VEC3, (7, 1), 1, (8, 3)),
        (VEC3, (7, 1), 1, (0, 3)),
        (FLOAT, (1, 1), 1, (2,)),
        (MAT3, (1, 1), 1, (9,)),
        (MAT3, (1, 1), 1, (2, 2)),
    ],
)
def test_wrong_shape_raises_and_names_both(
    vtype: VType, size: Any, layers: int, shape: Any
) -> None:
    v = Variable(vtype, size, layers, name="thing")
    with pytest.raises(GraphError) as info:
        as_array(np.zeros(shape), v)
    message = str(info.value)
    assert "thing" in message and str(shape) in message and "test_evaluate.py:" in message
    assert str((*((layers,) if layers > 1 else ()), size[1], size[0], *vtype.tail)) in message


BAD_DATA: list[tuple[VType, Any, str]] = [
    (FLOAT, [[1.0, np.nan], [0, 0]], "nan at index (0, 1)"),
    (FLOAT, [[1.0, 0], [-np.inf, 0]], "-inf at index (1, 0)"),
    (FLOAT, [[1e39, 0], [0, 0]], "float32"),
    (FLOAT, [["a", "b"], ["c", "d"]], "data"),
    (FLOAT, [[1j, 0], [0, 0]], "data"),
    (FLOAT, None, "data"),
    (FLOAT, [[1.0], [1.0, 2.0]], "data"),
    (FLOAT, object(), "data"),
    (INT, [[0.5, 0], [0, 0]], "fractions"),
    (INT, [[np.nan, 0], [0, 0]], "nan"),
    (INT, [[2**31, 0], [0, 0]], "32 bits"),
    (INT, [[-(2**31) - 1, 0], [0, 0]], "32 bits"),
    (INT, [[1e10, 0], [0, 0]], "32 bits"),
    (INT, np.array([[2**63 + 5, 0], [0, 0]], np.uint64), "32 bits"),
]


@pytest.mark.parametrize("k", range(len(BAD_DATA)))
def test_bad_data_raises_and_names_the_place(k: int) -> None:
    vtype, data, text = BAD_DATA[k]
    with pytest.raises(GraphError) as info:
        as_array(data, Variable(vtype, (2, 2), name="thing"))
    assert "thing" in str(info.value) and text in str(info.value)


def test_integers_keep_all_their_bits() -> None:
    """Ids in float images would break above 2^24."""
    big = 2**24 + 1
    assert as_array([[big]], Variable(INT)).item() == big
    v = Variable(INT)
    assert evaluate([v + 2], {v: big})[0].item() == big + 2


def test_leaf_without_data_is_named() -> None:
    with pytest.raises(GraphError, match=r"lost FLOAT@2x2 made at test_evaluate\.py"):
        evaluate([Variable(FLOAT, (2, 2), name="lost") * 2.0], {})


def test_rows_of_images_are_read_row_by_row_by_lookup() -> None:
    table, index = Variable(FLOAT, (3, 2)), Variable(INT)
    (got,) = evaluate([F.lookup(table, index)], {table: [[0, 1, 2], [3, 4, 5]], index: 4})
    assert got.item() == 4


def test_pixel_coord_counts_from_the_top_left_to_centres() -> None:
    got = evaluate([F.pixel_coord((3, 2), 2)], {})[0]
    assert got.shape == (2, 2, 3, 2)
    assert (got[1, 1, 2] == [2.5, 1.5]).all() and (got[0, 0, 0] == 0.5).all()


def test_layer_index_counts_layers() -> None:
    assert evaluate([F.layer_index(3)], {})[0].ravel().tolist() == [0, 1, 2]


def test_neighbours_stop_at_the_border_of_their_layer() -> None:
    """Two layers, all 0 and all 1: no border anywhere, and nothing dilates over."""
    m = Variable(FLOAT, (4, 3), 2)
    data = np.stack([np.zeros((3, 4)), np.ones((3, 4))])
    edge, grown = evaluate([F.image.border(m), F.image.dilate(m, 2.0, 4)], {m: data})
    assert (edge == 0).all() and (grown[0] == 0).all()


@pytest.mark.parametrize("radius", [0.0, 0.4, 0.6, 1.0, 2.0, 3.0, 5.4])
def test_dilate_reaches_a_square(radius: float) -> None:
    m = Variable(FLOAT, (15, 13))
    data = np.zeros((13, 15))
    data[6, 7] = 1
    (grown,) = evaluate([F.image.dilate(m, radius, 8)], {m: data})
    n = int(np.floor(radius + 0.5))
    want = np.zeros((13, 15))
    want[max(0, 6 - n) : 7 + n, max(0, 7 - n) : 8 + n] = 1
    assert (grown[0, :, :, 0] == want).all()


def test_sobol_points_are_scipys_in_sobols_own_order() -> None:
    """SciPy walks the sequence in Gray code: its point n is ours of number n xor n / 2."""
    from scipy.stats import qmc

    index = Variable(INT, (1024, 1))
    n = np.arange(1024)
    (got,) = evaluate([F.sobol(index)], {index: n ^ (n >> 1)})
    assert np.allclose(got[0, 0], qmc.Sobol(2, scramble=False).random(1024), atol=1e-9)


# -- rasterization ---------------------------------------------------------------------------------


def clip(points: Any, size: tuple[int, int], z: float = 0.5, w: float = 1.0) -> np.ndarray:
    """Clip positions of pixel positions."""
    p = np.asarray(points, float)
    ndc = p / size * 2 - 1
    return np.concatenate([ndc, np.full((len(p), 1), z), np.ones((len(p), 1))], 1) * w


def test_pixel_is_covered_when_its_centre_is() -> None:
    got = coverage(clip([(1.4, 1.4), (3.6, 1.4), (3.6, 3.6)], (5, 5)), (5, 5))
    want = np.zeros((5, 5), bool)
    want[1, 1:4] = want[2, 2:4] = want[3, 3] = True
    assert (got == want).all()


def test_top_and_left_edges_are_inside_bottom_and_right_are_not() -> None:
    """A square whose edges run exactly through pixel centres, as two triangles."""
    a, b, c, d = (1.5, 1.5), (4.5, 1.5), (4.5, 3.5), (1.5, 3.5)
    n = sum(coverage(clip(t, (6, 6)), (6, 6)).astype(int) for t in ((a, b, c), (a, c, d)))
    want = np.zeros((6, 6), int)
    want[1:3, 1:4] = 1
    assert (n == want).all()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_both_orientations_and_all_orders_cover_the_same(order: tuple[int, ...]) -> None:
    t = clip([(0.5, 0.5), (7.5, 2.5), (3.5, 6.5)], (8, 8))
    assert (coverage(t[list(order)], (8, 8)) == coverage(t, (8, 8))).all()


@pytest.mark.parametrize("seed", range(20))
def test_fan_of_adjacent_triangles_has_no_holes_and_no_doubles(seed: int) -> None:
    """Triangles around an inner point, some corners exactly on pixel centres: the whole square,
    once."""
    rng = np.random.default_rng(seed)
    size = (12, 9)
    middle = rng.integers(2, 7, 2) + (0.5 if seed % 2 else rng.uniform(0, 1, 2))
    ring = np.array(
        [(-1, -1), (6, -1), (13, -1), (13, 5), (13, 10), (6.5, 10), (-1, 10), (-1, 4.5)]
    )
    n = np.zeros((9, 12), int)
    for k in range(len(ring)):
        n += coverage(clip([middle, ring[k], ring[(k + 1) % len(ring)]], size), size)
    assert (n == 1).all()


@pytest.mark.parametrize("angle", np.linspace(0, np.pi, 13))
def test_quad_split_along_either_diagonal_covers_each_pixel_once(angle: float) -> None:
    size = (16, 16)
    c, s = np.cos(angle), np.sin(angle)
    corners = np.array([(-5, -5), (5, -5), (5, 5), (-5, 5)]) @ np.array([[c, s], [-s, c]]) + 8
    first = [(0, 1, 2), (0, 2, 3)]
    second = [(0, 1, 3), (1, 2, 3)]
    a, b = (
        sum(coverage(clip(corners[list(t)], size), size).astype(int) for t in split)
        for split in (first, second)
    )
    assert a.max() == 1 and (a == b).all()


def test_degenerate_triangles_cover_nothing() -> None:
    for t in (
        [(1, 1), (1, 1), (1, 1)],
        [(0, 0), (5, 5), (2.5, 2.5)],
        [(0, 2.5), (9, 2.5), (4, 2.5)],
    ):
        assert not coverage(clip(t, (8, 8)), (8, 8)).any()


def test_perspective_scaling_of_corners_does_not_move_coverage() -> None:
    t = clip([(1.2, 0.7), (7.1, 2.2), (3.3, 6.6)], (8, 8))
    scaled = t * np.array([[0.1], [4.0], [1.3]])
    assert (coverage(scaled, (8, 8)) == coverage(t, (8, 8))).all()


def test_z_beyond_near_and_far_is_clipped_and_the_planes_are_kept() -> None:
    square = [(-9, -9), (29, -9), (-9, 29)]
    for z, kept in ((0.0, True), (1.0, True), (-0.01, False), (1.01, False)):
        assert coverage(clip(square, (8, 8), z), (8, 8)).all() == kept
        assert coverage(clip(square, (8, 8), z), (8, 8)).any() == kept


def test_crossing_the_near_plane_keeps_the_visible_part() -> None:
    """z runs from -1 at the left to 1 at the right: the right half stays."""
    size = (8, 8)
    corners = clip([(0, -20), (0, 28), (8, 4)], size)
    corners[:, 2] = [-1, -1, 1]
    got = coverage(corners, size)
    assert not got[:, :4].any() and got[4, 4:7].all()


def test_floor_with_vertices_behind_the_camera_is_the_floor_split_finely() -> None:
    """Clip space positions of a floor y = -1 seen from the origin along -z; w = -z < 0 behind."""
    size = (16, 12)

    def corner(x: float, z: float) -> np.ndarray:
        near, far = 0.1, 50.0
        return np.array([x, 1.0, far / (near - far) * z + near * far / (near - far), -z])

    def count(n: int) -> np.ndarray:
        xs, zs = np.linspace(-20, 20, n + 1), np.linspace(5, -30, n + 1)
        total = np.zeros((12, 16), int)
        for i, j in itertools.product(range(n), range(n)):
            a, b = corner(xs[i], zs[j]), corner(xs[i + 1], zs[j])
            c, d = corner(xs[i + 1], zs[j + 1]), corner(xs[i], zs[j + 1])
            total += coverage(np.stack([a, b, c]), size).astype(int)
            total += coverage(np.stack([a, c, d]), size)
        return total

    whole, split = count(1), count(16)
    assert whole.max() == 1 and split.max() == 1
    assert whole[7:].all() and not whole[:6].any()
    assert (whole != split).sum() <= 1  # an inner edge may meet a centre within rounding


def test_vertex_behind_the_camera_gives_nothing_outside_the_clip_volume() -> None:
    corners = np.array([[0.0, 0, -1, -1], [1, 0, -1, -1], [0, 1, -1, -1]])
    assert not coverage(corners, (8, 8)).any()


# -- resolve ---------------------------------------------------------------------------------------


def _two_triangles(z: tuple[float, float]) -> tuple[list[Variable], dict[Variable, np.ndarray]]:
    """Two triangles that cover a 4x4 image, at two depths."""
    corners = [Variable(VEC4, (2, 1)) for _ in range(3)]
    positions = [(-1.0, -1.0), (3.0, -1.0), (-1.0, 3.0)]
    return corners, {
        c: np.array([[x, y, zk, 1] for zk in z])
        for c, (x, y) in zip(corners, positions, strict=True)
    }


def test_nearest_kept_fragment_wins_and_ties_go_to_the_first() -> None:
    depth_table = Variable(FLOAT, (2, 1))
    corners, feeds = _two_triangles((0.5, 0.5))
    ids = F.rasterize(corners, (4, 4))
    depth = F.lookup(depth_table, ids)
    image = F.resolve(ids, depth, background=-1)
    for depths, winner in (((0.2, 0.7), 0), ((0.7, 0.2), 1), ((0.4, 0.4), 0)):
        (got,) = evaluate([image], {**feeds, depth_table: depths})
        assert (got == winner).all()


def test_keep_0_discards_and_the_background_shows_where_nothing_is_kept() -> None:
    keep_table = Variable(FLOAT, (2, 1))
    corners, feeds = _two_triangles((0.5, 0.5))
    ids = F.rasterize(corners, (4, 4))
    depth = F.to_float(ids) * 0.1 + 0.1
    image = F.resolve(ids, depth, F.lookup(keep_table, ids), background=-7)
    for keep, want in (((1, 1), 0), ((0, 1), 1), ((1, 0), 0), ((0, 0), -7)):
        (got,) = evaluate([image], {**feeds, keep_table: keep})
        assert (got == want).all()


def test_each_layer_is_rasterized_for_itself() -> None:
    corners = [Variable(VEC4, (1, 1), 2) for _ in range(3)]
    positions = [(-1.0, -1.0), (3.0, -1.0), (-1.0, 3.0)]
    feeds = {
        c: np.array([[x, y, 0.5, 1], [x + 9, y, 0.5, 1]])
        for c, (x, y) in zip(corners, positions, strict=True)
    }
    ids = F.rasterize(corners, (4, 4))
    (got,) = evaluate([F.resolve(ids, F.constant(0.5) + F.to_float(ids), background=-1)], feeds)
    assert (got[0] == 0).all() and (got[1] == -1).all()


def test_quads_are_triangles_012_and_023() -> None:
    corners = [Variable(VEC4, (1, 1)) for _ in range(4)]
    square = clip([(1, 1), (3, 1), (3, 3), (1, 3)], (4, 4))
    feeds = {c: p for c, p in zip(corners, square, strict=True)}
    ids = F.rasterize(corners, (4, 4))
    (got,) = evaluate([F.resolve(ids, F.to_float(ids) + 0.5, background=-1)], feeds)
    want = np.full((4, 4), -1)
    want[1:3, 1:3] = 0
    assert (got[0, :, :, 0] == want).all()


def test_texture_convention_top_left_and_half_texels() -> None:
    """Texel (i, j) has its centre at ((i + 0.5) / w, (j + 0.5) / h); row 0 is on top."""
    tex, uv = Variable(FLOAT, (3, 2)), Variable(VEC2)
    data = np.array([[0, 1, 2], [3, 4, 5.0]])
    for (i, j), mode in itertools.product(
        itertools.product(range(3), range(2)), ("linear", "nearest")
    ):
        at = ((i + 0.5) / 3, (j + 0.5) / 2)
        (got,) = evaluate([F.texture(tex, uv, filter=mode)], {tex: data, uv: at})
        assert np.isclose(got.item(), data[j, i])
    (between,) = evaluate([F.texture(tex, uv)], {tex: data, uv: (1 / 3, 0.25)})
    assert np.isclose(between.item(), 0.5)


@pytest.mark.parametrize(
    ("wrap", "u", "want"),
    [
        ("repeat", 1.0 + 1 / 8, 0), ("repeat", -1 / 8, 3), ("repeat", 1.0, 1.5),
        ("repeat", -7 / 8, 0),
        ("clamp", 1.0, 3), ("clamp", 2.5, 3), ("clamp", -3.0, 0),
        ("mirror", -1 / 8, 0), ("mirror", 1 + 1 / 8, 3), ("mirror", 1.0, 3), ("mirror", 2.125, 0),
    ],
)  # fmt: skip
def test_wrap_modes(wrap: str, u: float, want: float) -> None:
    """Texels 0 1 2 3."""
    tex, uv = Variable(FLOAT, (4, 1)), Variable(VEC2)
    (got,) = evaluate([F.texture(tex, uv, wrap=wrap)], {tex: [0, 1, 2, 3], uv: (u, 0.5)})
    assert np.isclose(got.item(), want)


def test_half_floats_are_taken_without_a_warning() -> None:
    """numpy would compare them with the largest float32 as half floats, and say that overflows."""
    x = Variable(FLOAT, (2, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (got,) = evaluate([x * 2.0], {x: np.array([0.5, 65504], np.float16)})
    assert got.ravel().tolist() == [1.0, 131008.0]
