"""Weights of corners stay in [0, 1] and their gradients of usual size, for needles too: against the
nearest point of the face in float64, and its differences."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import DressiAD, F, Variable
from dressi.ad.vtype import IVEC2, IVEC3, MAT4, VEC3
from dressi.render.raster import build_hard_raster, build_hardsoftras, build_lines

pytestmark = pytest.mark.gpu

SIZE = 16
VIEWS = 32
EXAMPLE = [(-0.81467, -0.49629), (0.18691, -0.87731), (-0.59362, -0.58036)]
DEPTHS = (0.4, 0.5, 0.6)
USUAL = 2 * 16 * SIZE / 2
"""Derivative of a weight by an NDC position where a face is as thin as what counts, 1/16 pixel, and
twice that for moves in both directions."""


def nearest_weights(tri: np.ndarray, p: np.ndarray) -> np.ndarray:
    """(3,) weights of the point of a triangle (3, 2) that is nearest to p, in float64."""
    m = np.vstack([tri.T, np.ones(3)])
    if abs(np.linalg.det(m)) > 1e-13:
        inner = np.linalg.solve(m, [*p, 1.0])
        if inner.min() >= 0:
            return inner
    best: tuple[float, np.ndarray] = (np.inf, np.zeros(3))
    for i, j in ((0, 1), (1, 2), (2, 0)):
        e = tri[j] - tri[i]
        t = np.clip((p - tri[i]) @ e / max(e @ e, 1e-30), 0, 1)
        d = np.linalg.norm(tri[i] + t * e - p)
        if d < best[0]:
            weights = np.zeros(3)
            weights[i], weights[j] = 1 - t, t
            best = d, weights
    return best[1]


def pixel(x: int, y: int) -> np.ndarray:
    return (np.array([x, y]) + 0.5) * 2 / SIZE - 1


class Needle:
    """One triangle in many turned views: hard raster, HardSoftRas, and losses on both."""

    def __init__(self) -> None:
        self.pos = Variable(VEC3, (3, 1), requires_grad=True, name="pos")
        self.faces = Variable(IVEC3, (1, 1), name="faces")
        self.matrix = Variable(MAT4, layers=VIEWS, name="matrix")
        size = (SIZE, SIZE)
        self.hard = build_hard_raster(self.pos, self.faces, self.matrix, size)
        self.soft = build_hardsoftras(self.pos, self.faces, self.matrix, size, 0.1).peels[0]
        self.shown = F.dot(self.hard.bary, (0.0, 1.0, 0.3)) + self.hard.depth * 0.5
        self.rim = F.dot(self.soft.bary, (0.0, 1.0, 0.3)) * self.soft.stencil

    def send(self, ad: DressiAD, tri: np.ndarray, angles: np.ndarray) -> np.ndarray:
        """Send a triangle (3, 2) and its views; its corners in each, float32 as the device has."""
        turns = np.zeros((VIEWS, 4, 4))
        turns[:, 2, 2] = turns[:, 3, 3] = 1
        turns[:, 0, 0] = turns[:, 1, 1] = np.cos(angles)
        turns[:, 1, 0] = np.sin(angles)
        turns[:, 0, 1] = -turns[:, 1, 0]
        turns, at = turns.astype(np.float32), np.c_[tri, DEPTHS].astype(np.float32)
        ad.send_img(self.faces, [[0, 1, 2]])
        ad.send_img(self.matrix, turns)
        ad.send_img(self.pos, at)
        return np.einsum("vij,kj->vki", turns[:, :2, :2].astype(float), at[:, :2].astype(float))


@pytest.fixture(scope="module")
def needle() -> Needle:
    return Needle()


def needles(seed: int, n: int) -> list[np.ndarray]:
    """Triangles whose third corner is 1e-8 to 1 pixels beside a long edge."""
    rng, out = np.random.default_rng(seed), []
    for off in np.geomspace(1e-8, 1.0, n) * 2 / SIZE:
        a, b = rng.uniform(-0.9, 0.9, (2, 2))
        d = b - a
        across = np.array([-d[1], d[0]]) / np.linalg.norm(d)
        out.append(
            np.array([a, b, a + d * rng.uniform(-0.2, 1.2) + across * off])[rng.permutation(3)]
        )
    return out


def test_needle_of_the_report_shows_what_lies_between_its_corners(
    ad: DressiAD, needle: Needle
) -> None:
    where = needle.send(ad, np.array(EXAMPLE), np.linspace(0, 2 * np.pi, VIEWS, endpoint=False))
    ad.set_loss_var(F.sum(needle.shown))
    mask = ad.recv_img(needle.hard.mask)[..., 0] > 0
    bary, depth = ad.recv_img(needle.hard.bary), ad.recv_img(needle.hard.depth)[..., 0]
    assert mask[0].sum() >= 1, "nothing is drawn"
    assert np.abs(ad.recv_grad(needle.pos)).max() < USUAL
    for view, y, x in np.argwhere(mask):
        want = nearest_weights(where[view], pixel(x, y))
        assert np.abs(bary[view, y, x] - want).max() < 2e-3, (view, y, x)
        assert abs(depth[view, y, x] - want @ DEPTHS) < 1e-3, (view, y, x)


def test_weights_and_depth_of_random_needles_are_those_of_the_nearest_point(
    ad: DressiAD, needle: Needle
) -> None:
    """Where the pixel lies by less than the snapping's step, two places of a needle that is thinner
    are alike: values along its length decide."""
    angles, n_drawn = np.random.default_rng(1).uniform(0, 2 * np.pi, VIEWS), 0
    ad.set_loss_var(F.sum(needle.shown) + F.sum(needle.rim))
    for tri in needles(0, 12):
        where = needle.send(ad, tri, angles)
        mask = ad.recv_img(needle.hard.mask)[..., 0] > 0
        bary, depth = ad.recv_img(needle.hard.bary), ad.recv_img(needle.hard.depth)[..., 0]
        soft = ad.recv_img(needle.soft.bary)
        n_drawn += mask.sum()
        assert bary.min() >= 0 and bary.max() <= 1 + 1e-6
        assert soft.min() >= 0 and soft.max() <= 1 + 1e-6
        assert np.abs(bary.sum(-1) - 1)[mask].max(initial=0) < 1e-5
        got = depth[mask]
        assert got.min(initial=0.5) > 0.4 - 1e-6 and got.max(initial=0.5) < 0.6 + 1e-6
        for view, y, x in np.argwhere(mask):
            place = bary[view, y, x] @ where[view]
            want = nearest_weights(where[view], pixel(x, y)) @ where[view]
            assert np.abs(place - want).max() * SIZE / 2 < 1 / 128, "pixels off"
        pixels = mask.sum() + (soft.sum(-1) > 0).sum()
        assert np.abs(ad.recv_grad(needle.pos)).max() < USUAL * pixels
    assert n_drawn > 100


@pytest.mark.parametrize("of", ["hard", "soft"])
def test_gradient_of_weights_is_that_of_the_nearest_point(
    ad: DressiAD, needle: Needle, of: str
) -> None:
    """By differences in float64, for a thin face, half a pixel wide, whose winners stay."""
    tri = np.array([(-0.7, -0.5), (0.8, 0.1), (0.02, -0.15)])
    where = needle.send(ad, tri, np.linspace(0.1, 6.2, VIEWS))
    peel = needle.hard if of == "hard" else needle.soft
    ad.set_loss_var(F.sum(F.dot(peel.bary, (0.0, 1.0, 0.3))))
    hit = np.argwhere(ad.recv_img(peel.ids)[..., 0] >= 0)
    turns = ad.recv_img(needle.matrix).reshape(VIEWS, 4, 4)[:, :2, :2]
    step, want = 1e-6, np.zeros((3, 2))

    def value(corners: np.ndarray) -> float:
        return sum(
            nearest_weights(corners[view], pixel(x, y)) @ (0.0, 1.0, 0.3) for view, y, x in hit
        )

    for k in range(3):
        for i in range(2):
            move = np.zeros_like(where)
            move[:, k] = turns[:, :, i] * step
            want[k, i] = (value(where + move) - value(where - move)) / (2 * step)
    got = ad.recv_grad(needle.pos).reshape(3, 3)[:, :2]
    assert len(hit) > 30 and np.abs(want).max() > 5
    assert np.abs(got - want).max() < 0.01 * np.abs(want).max()


def test_short_segments_have_a_parameter_with_a_usual_gradient(ad: DressiAD) -> None:
    """A strand 4 pixels wide whose segments are 1e-5 to 1 pixels long, turned in many views."""
    pos = Variable(VEC3, (2, 1), requires_grad=True, name="pos")
    segments, matrix = F.leaf(np.array([[0, 1]]), IVEC2), Variable(MAT4, name="matrix")
    lines = build_lines(pos, segments, 4.0, matrix, (SIZE, SIZE))
    ad.send_img(matrix, np.eye(4))
    ad.set_loss_var(F.sum(lines.t) + F.sum(lines.depth))
    for length in np.geomspace(1e-5, 1.0, 6) * 2 / SIZE:
        ad.send_img(
            pos, np.array([(-length / 2, 1e-9, 0.4), (length / 2, 0, 0.6)]) + (1 / 16, 0, 0)
        )
        t, mask = ad.recv_img(lines.t), ad.recv_img(lines.mask)
        assert mask.sum() > 8 and t.min() >= 0 and t.max() <= 1
        assert np.abs(ad.recv_grad(pos)).max() < USUAL * mask.sum()
