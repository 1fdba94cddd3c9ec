"""Points and lines against discs drawn one by one in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dressi import Adam, DressiAD, F, GraphError, Options, Variable, evaluate
from dressi.ad.vtype import FLOAT, IVEC2, MAT4, VEC2, VEC3
from dressi.render.fit import silhouette_loss
from dressi.render.raster import Strokes, build_lines, build_points
from dressi.testing.scenes import camera

SIZE = (40, 28)
M = max(SIZE)
EYES = ((0.3, 0.4, 4.0), (2.5, 1.0, 3.0))
VIEWS = [camera(SIZE, e) for e in EYES]


def f32(a: Any) -> np.ndarray:
    return np.asarray(a, np.float32).astype(np.float64)


class Drawn:
    """Lines (or points, without segments), their views and the graph."""

    def __init__(
        self,
        positions: Any,
        segments: Any = None,
        width: Any = 3.0,
        views: Any = VIEWS,
        size: tuple[int, int] = SIZE,
        r: Any = 0.08,
        **more: Any,
    ) -> None:
        self.size, self.positions, self.views = size, f32(positions), f32(views)
        n = len(self.positions)
        self.unit = more.get("unit", "px")
        self.pos = Variable(VEC3, (n, 1), requires_grad=True, name="pos")
        self.matrix = Variable(MAT4, layers=len(views), requires_grad=True, name="matrix")
        self.widths = np.broadcast_to(f32(width), n)
        shape = (n, 1) if np.ndim(width) else (1, 1)
        self.width = Variable(FLOAT, shape, requires_grad=True, name="width")
        self.feeds = {
            self.pos: self.positions,
            self.matrix: self.views,
            self.width: f32(width)[..., None] if np.ndim(width) else f32(width),
        }
        self.segments = np.stack([np.arange(n)] * 2, 1) if segments is None else np.array(segments)
        if segments is None:
            self.strokes = build_points(self.pos, self.width * 0.5, self.matrix, size, r=r, **more)
        else:
            self.rows = Variable(IVEC2, (len(segments), 1), name="segments")
            self.feeds[self.rows] = self.segments
            self.strokes = build_lines(
                self.pos, self.rows, self.width, self.matrix, size, r=r, **more
            )

    def sent(self, ad: DressiAD) -> Strokes:
        ad.set_optimizer(None)
        for v, a in self.feeds.items():
            ad.send_img(v, a)
        return self.strokes

    def clip_at(self, matrix: np.ndarray, i: int, j: int, s: np.ndarray) -> np.ndarray:
        """Clip positions along a segment. s: any shape, from its first vertex to its second."""
        p = self.positions[i] + (self.positions[j] - self.positions[i]) * s[..., None]
        return np.concatenate([p, np.ones((*s.shape, 1))], -1) @ matrix.T

    def by_discs(self, view: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(segments, H, W) each: signed distance, screen square units (-inf where nothing of the
        segment is visible), parameter and depth of the best disc, of many along the segment and
        more beside the best of these."""
        m, (w, h) = self.views[view], self.size
        x, y = np.meshgrid(np.arange(w) + 0.5, np.arange(h) + 0.5)
        x, y = x.ravel(), y.ravel()
        shape = (len(self.segments), h, w)
        d, t, z = np.full(shape, -np.inf), np.zeros(shape), np.ones(shape)
        focal = 1 / np.tan(np.deg2rad(45.0) / 2)
        for k, (i, j) in enumerate(self.segments):
            s = np.linspace(0, 1, 1 if i == j else 300001)
            c = self.clip_at(m, i, j, s)
            seen = (c[:, 2] >= 0) & (c[:, 2] <= c[:, 3]) & (c[:, 3] > 0)
            if not seen.any():
                continue
            (low, high), (w_low, w_high) = s[seen][[0, -1]], c[seen][[0, -1], 3]
            width = self.widths[i], self.widths[j]
            best = np.full((1, w * h), 0.5)
            for n, step in ((301, 0.5), (101, 1 / 300)):
                # Even steps on the screen, between the visible ends.
                u = np.clip(best + step * np.linspace(-1, 1, n)[:, None], 0, 1)
                s = low + (high - low) * u * w_low / ((1 - u) * w_high + u * w_low)
                c = self.clip_at(m, i, j, s)
                px = [(c[..., a] / c[..., 3] + 1) / 2 * self.size[a] for a in (0, 1)]
                if self.unit == "world":
                    radius = (width[0] + (width[1] - width[0]) * s) / 2 * focal / c[..., 3] * h / 2
                else:
                    radius = (width[0] + (width[1] - width[0]) * u) / 2
                inside = radius - np.hypot(px[0] - x, px[1] - y)
                at = (inside.argmax(0), np.arange(w * h))
                best = u[at][None]
            d[k] = inside[at].reshape(h, w) / max(w, h)
            t[k], z[k] = s[at].reshape(h, w), (c[..., 2] / c[..., 3])[at].reshape(h, w)
        return d, t, z


def check(ad: DressiAD, drawn: Drawn, reach: float, sigma: float) -> None:
    """Every image of the strokes against those of the discs."""
    st = drawn.sent(ad)
    n = len(drawn.views)
    ids, t, depth, mask, distance, soft_ids, coverage = (
        ad.recv_img(v).reshape(n, drawn.size[1], drawn.size[0]) for v in vars(st).values()
    )
    for k in range(n):
        d, want_t, z = drawn.by_discs(k)
        most = d.max(0)
        near = 3e-5  # about a thousandth of a pixel: discs beside the axis are that far apart
        sure = np.abs(most) > near
        assert ((mask[k] > 0) == (most >= 0))[sure].all()
        assert ((soft_ids[k] >= 0) == (most >= -reach))[np.abs(most + reach) > near].all()
        within = (soft_ids[k] >= 0) & (most >= -reach)
        assert within.sum() > 30
        assert np.abs(distance[k] - most)[within].max() < near
        with np.errstate(over="ignore"):
            soft = np.where(within, 1 / (1 + np.exp(-np.maximum(distance[k], -1) / sigma)), 0)
        assert np.abs(coverage[k] - soft).max() < 1e-5
        assert (distance[k][soft_ids[k] < 0] == -2).all()
        # Where no round end is among what covers the pixel, the nearest stroke shows.
        inside = d >= 0
        body = (want_t > 1e-3) & (want_t < 1 - 1e-3) | (
            drawn.segments[:, 0] == drawn.segments[:, 1]
        )[:, None, None]
        clear = (np.abs(d) > near).all(0) & (body | ~inside).all(0) & inside.any(0)
        order = np.sort(np.where(inside, z, 9), 0)
        if len(order) > 1:
            clear &= order[1] - order[0] > 1e-5
        assert clear.sum() > 10
        winner = np.where(inside, z, 9).argmin(0)
        assert (ids[k] == winner)[clear].all()
        at = (winner, *np.indices(winner.shape))
        assert np.abs(depth[k] - z[at])[clear].max() < 5e-4
        assert (
            np.abs(t[k] - want_t[at] * (drawn.segments[:, 0] != drawn.segments[:, 1])[winner])[
                clear
            ].max()
            < 5e-3
        )
        assert (ids[k][mask[k] == 0] == -1).all() and (depth[k][mask[k] == 0] == 1).all()


POINTS = np.array(
    [(0, 0, 0), (0.15, 0.1, 0.6), (-0.9, 0.5, 0.2), (1.1, -0.6, -1), (0, 0.2, 9), (0, 0, 3.8), (0, 0, -30.0)]  # noqa: E501
)  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("unit", "width"),
    [
        ("px", 7.0), ("world", 0.5), ("px", [7, 4, 9, 5, 3, 2, 9]),
        ("world", [1, 0.3, 0.5, 0.2, 1, 1, 1]),
    ],
    ids=["px", "world", "px of each", "world of each"],
)  # fmt: skip
def test_points_are_discs(ad: DressiAD, unit: str, width: Any) -> None:
    """Among them points behind the camera, before the near plane and behind the far plane."""
    check(ad, Drawn(POINTS, None, width, unit=unit), 0.08, 0.08 / 7)


LINES = {
    "crossing": (
        [(-1.2, -0.7, 0.3), (1.1, 0.8, -0.4), (-1, 0.8, 0.8), (1.2, -0.5, 0.5)], [(0, 1), (2, 3)], 4.0, "px",  # noqa: E501
    ),
    "tapered": (
        [(-1.2, -0.7, 0.3), (1.1, 0.8, -0.4), (-1, 0.8, 0.8), (1.2, -0.5, 0.5)], [(0, 1), (3, 2)],
        [2.0, 9.0, 6.0, 1.0], "px",
    ),
    "world": (
        [(-1.2, -0.7, 2.3), (1.1, 0.8, -4), (-1, 0.8, 0.8), (1.2, -0.5, 0.5)], [(0, 1), (2, 3)],
        [0.2, 0.6, 0.3, 0.1], "world",
    ),
    "through the near plane": (
        [(-0.4, -0.3, 6.0), (0.5, 0.4, -1.0), (1.4, 0.2, 0), (0.7, -0.4, 9.0)], [(0, 1), (2, 3)],
        [0.2, 0.3, 0.2, 0.1], "world",
    ),
    "through the far plane": (
        [(0.6, 0.4, 2.0), (-9.0, 0.3, -60.0), (0, -0.7, 1), (0.4, 0.2, 1)], [(0, 1), (2, 3)], 0.3,
        "world",
    ),
    "polyline": (
        [(-1.3, -0.5, 0), (-0.4, 0.6, 0.4), (0.4, -0.6, -0.5), (1.3, 0.6, 0.1)],
        [(0, 1), (1, 2), (2, 3)], 3.0, "px",
    ),
}  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("name", LINES)
def test_lines_are_discs_that_move_from_end_to_end(ad: DressiAD, name: str) -> None:
    positions, segments, width, unit = LINES[name]
    check(ad, Drawn(positions, segments, width, unit=unit, sigma=0.02), 0.08, 0.02)


@pytest.mark.gpu
def test_orthographic_and_off_centre_cameras_scale_world_widths(ad: DressiAD) -> None:
    """A disc of radius 0.5 covers its share of the view: the height of the view is 4 (at w = 4, for
    the off-centre camera)."""
    ortho = np.diag([2 / 4 * 28 / 40, -2 / 4, -0.1, 1.0])
    ortho[2, 3] = 0.5
    move = np.eye(4)
    move[0, 3], move[1, 3] = 0.4, -0.3  # of the centre of the picture, in NDC
    shifted = move @ camera(SIZE, (0, 0, 4.0))
    for matrix, height in ((ortho, 4.0), (shifted, 2 * 4 * np.tan(np.deg2rad(22.5)))):
        drawn = Drawn([(0.2, 0.1, 0.0)], None, 1.0, [matrix], unit="world")
        distance = ad.recv_img(drawn.sent(ad).distance)[..., 0]
        c = matrix @ (0.2, 0.1, 0.0, 1.0)
        centre = (c[:2] / c[3] + 1) / 2 * SIZE
        x, y = (int(v) for v in centre)
        radius_px = 0.5 / height * SIZE[1]
        want = (radius_px - np.hypot(x + 0.5 - centre[0], y + 0.5 - centre[1])) / M
        assert abs(distance[y, x] - want) < 1e-5 and want > 0.05


@pytest.mark.gpu
def test_a_strand_split_into_many_segments_looks_the_same(ad: DressiAD) -> None:
    """Nothing is blended twice at the joints, and t runs on."""
    ends = np.array([(-1.3, -0.5, 1.0), (1.2, 0.6, -1.5)])
    whole = Drawn(ends, [(0, 1)], 0.3, unit="world")
    s = np.linspace(0, 1, 9)[:, None]
    parts = Drawn(ends[:1] + s * (ends[1:] - ends[:1]), [(k, k + 1) for k in range(8)], 0.3, unit="world")  # noqa: E501  # fmt: skip
    got = []
    for drawn in (whole, parts):
        st = drawn.sent(ad)
        along = Variable(FLOAT, (len(drawn.positions), 1))
        shown = st.interpolate(along, drawn.rows)
        ad.send_img(along, np.linspace(0, 1, len(drawn.positions)))
        got.append([ad.recv_img(v)[..., 0] for v in (st.coverage, st.mask, st.depth, shown)])
    for name, a, b in zip(("coverage", "mask", "depth", "along"), *got, strict=True):
        assert np.abs(a - b).max() < 2e-3, name
    assert got[0][0].max() > 0.9


GRADIENT = {
    "lines px": ("crossing", {}),
    "lines tapered": ("tapered", {}),
    "lines world": ("world", {}),
    "lines through the near plane": ("through the near plane", {}),
    "polyline": ("polyline", {}),
    "points world": (None, {}),
}


@pytest.mark.gpu
@pytest.mark.parametrize("of", ["coverage", "geometry"])
@pytest.mark.parametrize("name", GRADIENT)
def test_gradients_are_those_of_finite_differences(ad: DressiAD, name: str, of: str) -> None:
    """To positions, widths and matrices. For geometry (t and depth) the ids are kept, as they
    jump."""
    if GRADIENT[name][0] is None:
        drawn = Drawn(POINTS, None, [1, 0.3, 0.5, 0.2, 1, 1, 1], unit="world")
    else:
        positions, segments, width, unit = LINES[GRADIENT[name][0]]
        drawn = Drawn(positions, segments, width, unit=unit)
    st, rng = drawn.strokes, np.random.default_rng(4)
    weight = Variable(VEC2, SIZE, 2, name="weight")
    drawn.feeds[weight] = f32(rng.uniform(size=(2, SIZE[1], SIZE[0], 2)))
    image = st.coverage * weight.x
    if of == "geometry":
        image = st.t * weight.x + st.depth * weight.y * 10.0
    loss = F.sum(image)
    drawn.sent(ad)
    ad.set_loss_var(loss)
    ids = {v: ad.recv_img(v) for v in (st.ids, st.soft_ids)}
    for leaf, step in ((drawn.pos, 1e-6), (drawn.width, 1e-6), (drawn.matrix, 1e-7)):
        if of == "geometry" and leaf is drawn.width:
            continue
        data = drawn.feeds[leaf]
        got = ad.recv_grad(leaf).astype(np.float64).reshape(data.shape)
        assert np.isfinite(got).all()
        directions = rng.normal(size=(5, *data.shape))
        want = []
        for d in directions:
            ends = [
                evaluate([loss], {**drawn.feeds, **ids, leaf: data + k * step * d})[0].item()
                for k in (1, -1)
            ]
            want.append((ends[0] - ends[1]) / (2 * step))
        along = (directions * got).reshape(5, -1).sum(1)
        error = np.linalg.norm(along - want) / np.linalg.norm(want)
        assert np.abs(want).max() > 1e-2 and error < 0.01, (leaf.name, error)
    if of == "coverage":  # the ids jump where distances are equal, so the sum does not
        free = evaluate([loss], drawn.feeds)[0].item()
        assert abs(free - ad.recv_img(loss).item()) < 1e-3 * abs(free)


@pytest.mark.gpu
def test_what_is_not_visible_gets_a_gradient_of_exactly_0(ad: DressiAD) -> None:
    v = [(-1, 0, 0), (1, 0.2, 0), (0, 0, 6), (1, 0, 7.0), (0, 0, -90), (1, 0, -80.0)]
    drawn = Drawn(v, [(0, 1), (2, 3), (4, 5)], [3.0] * 6, [VIEWS[0]])
    st = drawn.sent(ad)
    ad.set_loss_var(F.sum(st.coverage + st.depth))
    for leaf in (drawn.pos, drawn.width):
        g = ad.recv_grad(leaf)
        assert (g[2:] == 0).all() and np.abs(g[:2]).max() > 0
    assert set(np.unique(ad.recv_img(st.soft_ids))) == {-1, 0}


DEGENERATE = {
    "no length": ([(0.2, 0.1, 0)] * 2, 4.0),
    "one vertex": ([(0.2, 0.1, 0), (0.9, 0.7, 0)], 4.0),
    "towards the camera": ([(0.3, 0.4, 3.0), (0.3, 0.4, -3.0)], 4.0),
    "no width": ([(-0.5, 0, 0), (0.5, 0, 0)], 0.0),
    "one end holds the other": ([(-0.1, 0, 0), (0.1, 0, 0)], [20.0, 1.0]),
    "in the plane of the camera": ([(0.3, 0.4, 4.0), (1.0, 0.4, 4.0)], 4.0),
    "on the near plane": ([(0.3, 0.4, 3.5), (1.0, 0.4, 3.5)], 4.0),
    "end in the plane of the camera": ([(0.3, 0.4, 4.0), (1.0, 0.4, -1.0)], 4.0),
    "denormal": ([(0, 0, 0), (1e-30, 0, 0)], 4.0),
    "huge": ([(-1e6, 0, -5), (1e6, 10, -5)], 4.0),
}


@pytest.mark.gpu
@pytest.mark.parametrize("unit", ["px", "world"])
def test_degenerate_segments_leave_everything_finite(ad: DressiAD, unit: str) -> None:
    """Beside an ordinary segment, which shows and gets a gradient all the same."""
    view = camera(SIZE, (0.3, 0.4, 4.0), (0.3, 0.4, 0))
    ordinary = [(-1, -0.5, 0.3), (1, -0.4, 0.2)]
    drawn = Drawn([*ordinary, *ordinary], [(0, 1), (2, 3)], [3.0] * 4, [view], unit=unit)
    st = drawn.sent(ad)
    ad.set_loss_var(F.sum(st.coverage + st.depth + st.t + F.maximum(st.distance, -0.5)))
    for kind, (ends, width) in DEGENERATE.items():
        widths = np.array([*np.broadcast_to(width, 2), 3.0, 3.0])
        ad.send_img(drawn.pos, np.concatenate([ends, ordinary]))
        ad.send_img(drawn.width, widths * (0.1 if unit == "world" else 1.0))
        ad.send_img(drawn.rows, [(0, 0 if kind == "one vertex" else 1), (2, 3)])
        images = [ad.recv_img(x) for x in vars(st).values()]
        assert all(np.isfinite(a).all() for a in images), kind
        for leaf in (drawn.pos, drawn.width, drawn.matrix):
            g = ad.recv_grad(leaf)
            assert np.isfinite(g).all() and np.abs(g[-2:]).max() > 0, (kind, leaf.name)
        assert (images[0] == 1).any(), kind
        if unit == "px" and kind in ("no length", "one vertex", "denormal"):  # a disc of 4 pixels
            assert (images[0] == 0).sum() in range(10, 17), kind


@pytest.mark.gpu
def test_hard_and_soft_settings_are_run_time_values(ad: DressiAD) -> None:
    r, sigma = Variable(FLOAT, name="r"), Variable(FLOAT, name="sigma")
    drawn = Drawn(LINES["crossing"][0], [(0, 1), (2, 3)], 4.0, r=r, sigma=sigma)
    drawn.feeds |= {r: np.array(0.1), sigma: np.array(0.03)}
    st = drawn.sent(ad)
    wide = ad.recv_img(st.coverage)
    ad.send_img(r, 0.0)
    ad.send_img(sigma, 0.0)
    hard, mask = ad.recv_img(st.coverage), ad.recv_img(st.mask)
    assert (hard == mask).all() and (wide > 0).sum() > 1.5 * mask.sum()


@pytest.mark.gpu
def test_packing_changes_nothing() -> None:
    got = []
    for options in (Options(), Options.baseline()):
        with DressiAD(options=options) as ad:
            drawn = Drawn(*LINES["through the near plane"][:3], unit="world")
            st = drawn.sent(ad)
            got.append([ad.recv_img(v) for v in (st.ids, st.t, st.coverage)])
    for a, b in zip(*got, strict=True):
        assert np.linalg.norm(a - b) <= 1e-5 * np.linalg.norm(a)


@pytest.mark.gpu
def test_strand_of_20_points_recovers_a_curve_from_2_silhouettes() -> None:
    """From a straight line to an arc in space, seen from the front and from the side."""
    size = (48, 48)
    s = np.linspace(-1, 1, 20)
    curve = np.stack([s, 0.5 * np.cos(1.5 * s) - 0.25, 0.4 * np.sin(2.5 * s)], 1)
    start = np.stack([s, np.zeros(20), np.zeros(20)], 1)
    views = [camera(size, (0, 0, 4)), camera(size, (0.6, 4, 0.01))]
    r, sigma = Variable(FLOAT, name="r"), Variable(FLOAT, name="sigma")
    drawn = Drawn(curve, [(k, k + 1) for k in range(19)], 2.5, views, size, r=r, sigma=sigma)
    target = Variable(FLOAT, size, 2, name="target")
    parts = [F.crop(drawn.pos, k, 0, 18, 1) for k in range(3)]
    bend = parts[0] - parts[1] * 2.0 + parts[2]
    loss = silhouette_loss(drawn.strokes.coverage, target) + F.sum(F.dot(bend, bend)) * 0.01
    drawn.width.requires_grad = drawn.matrix.requires_grad = False
    with DressiAD() as ad:
        drawn.feeds |= {r: np.array(0.4), sigma: np.array(0.06)}
        drawn.sent(ad)
        wanted = {}
        for reach in ((0.4, 0.06), (0.1, 0.01)):
            ad.send_img(r, reach[0])
            ad.send_img(sigma, reach[1])
            wanted[reach] = ad.recv_img(drawn.strokes.coverage)
        ad.send_img(drawn.pos, start)
        ad.set_loss_var(loss)
        ad.set_optimizer(Adam(0.02))
        for reach, image in wanted.items():
            ad.send_img(r, reach[0])
            ad.send_img(sigma, reach[1])
            ad.send_img(target, image)
            ad.exec_steps(80)
        found = ad.recv_img(drawn.pos).reshape(-1, 3)
    dense = np.stack(
        [np.interp(np.linspace(0, 19, 500), np.arange(20), curve[:, k]) for k in range(3)], 1
    )
    before, after = (
        np.linalg.norm(p[:, None] - dense[None], axis=-1).min(1).mean() for p in (start, found)
    )
    assert before > 0.2 and after < 0.03, (before, after)


P, Q, MATRIX = Variable(VEC3, (4, 1)), Variable(IVEC2, (3, 1)), Variable(MAT4)
BAD: dict[str, Callable[[], Any]] = {
    "vtx_pos must be a Variable": lambda: build_points(np.zeros((4, 3)), 1.0, MATRIX, SIZE),  # type: ignore[arg-type]
    "VEC3 positions": lambda: build_points(Q, 1.0, MATRIX, SIZE),
    "and a MAT4": lambda: build_points(P, 1.0, P, SIZE),
    "IVEC2": lambda: build_lines(P, P, 1.0, MATRIX, SIZE),
    "size must be": lambda: build_points(P, 1.0, MATRIX, (0, 4)),
    "unit must be": lambda: build_points(P, 1.0, MATRIX, SIZE, unit="mm"),
    "radius must be a number": lambda: build_points(P, -1.0, MATRIX, SIZE),
    "width must be a FLOAT": lambda: build_lines(P, Q, Variable(FLOAT, (3, 1)), MATRIX, SIZE),
    "r must be a number in": lambda: build_points(P, 1.0, MATRIX, SIZE, r=2.0),
    "r must be a number or": lambda: build_points(P, 1.0, MATRIX, SIZE, r=P),
    "sigma must be positive": lambda: build_points(P, 1.0, MATRIX, SIZE, sigma=0.0),
}


@pytest.mark.parametrize("words", BAD)
def test_bad_arguments_raise_graph_error(words: str) -> None:
    with pytest.raises(GraphError, match=words):
        BAD[words]()
