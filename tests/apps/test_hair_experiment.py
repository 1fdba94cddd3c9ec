"""``dressi experiment hair``: its measures, its gradient, its scene."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dressi import F, evaluate
from dressi.ad import build_backward
from dressi.ad.vtype import FLOAT, VEC3
from dressi.apps.experiments import hair
from dressi.apps.experiments.common import make_settings
from dressi.apps.experiments.hair_scene import ellipsoid_head, grow_hair, ict_head
from dressi.errors import LoadError
from dressi.render.fit import l2_loss


def fit(**errors: float) -> hair.Fit:
    true = dict.fromkeys(hair.RANGES, 0.5)
    numbers = {k: [0.0, v + errors.get(k, 0.0)] for k, v in true.items()}
    blank = np.zeros((1, 1, 3))
    return hair.Fit(true, [0, 1], [10.0, 20.0], numbers, (blank, blank, blank), 1.0)


def test_the_index_of_refraction_may_be_off_by_more_than_the_others() -> None:
    assert fit(ior=0.09, melanin=-0.04).is_found
    assert not fit(ior=0.11).is_found
    assert not fit(redness=0.06).is_found


def test_numbers_are_drawn_within_the_constraints_of_the_paper() -> None:
    for ranges in (hair.TRUE_RANGES, hair.START_RANGES):
        for name, (low, high) in ranges.items():
            least, most = hair.RANGES[name]
            assert least < low < high < most
    a, b = (hair.drawn(np.random.default_rng(s), hair.TRUE_RANGES) for s in (0, 1))
    assert all(a[k] != b[k] for k in a)


def test_psnr_is_that_of_clipped_pictures() -> None:
    a = np.full((2, 2, 3), 0.5)
    assert hair.psnr(a, a + 0.1) == pytest.approx(20.0)
    assert hair.psnr(a * 4, a * 8) == pytest.approx(120.0)


def test_the_gradient_that_goes_forward_is_the_one_that_goes_back() -> None:
    settings = make_settings(hair.Settings, smoke=True, size=16, strands=12)
    graph = hair.build_graph(ellipsoid_head(1), settings)
    numbers = list(graph.numbers.values())
    forward = build_backward(graph.loss, numbers)
    backward = build_backward(l2_loss(graph.picture, graph.target), numbers)
    feeds = {x: np.array(0.4 + 0.1 * k) for k, x in enumerate(numbers)} | {
        graph.numbers["ior"]: np.array(1.5),
        graph.target: np.full((16, 16, 3), 0.1),
    }
    found = evaluate([*(forward[x] for x in numbers), *(backward[x] for x in numbers)], feeds)
    ahead, back = np.array([v.item() for v in found]).reshape(2, -1)
    assert np.abs(back).min() > 0.0
    np.testing.assert_allclose(ahead, back, rtol=1e-9)


def test_a_symmetric_system_is_solved() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 7)), rng.normal(size=5)
    a = a @ a.T
    lower = [[F.leaf([a[i, j]], FLOAT) for j in range(i + 1)] for i in range(5)]
    found = evaluate(hair.solve_symmetric(lower, [F.leaf([x], FLOAT) for x in b]), {})
    # Leaves hold float32.
    np.testing.assert_allclose([x.item() for x in found], np.linalg.solve(a, b), rtol=1e-4)


def test_a_step_without_damping_solves_a_linear_problem_within_the_ranges() -> None:
    """The picture is sum of x_k t_k: one step goes to the truth, if that is near enough."""
    rng = np.random.default_rng(1)
    names = list(hair.RANGES)
    tangents = [F.leaf(rng.normal(size=(4, 4, 3)), VEC3) for _ in names]
    start = np.array([0.5, 0.02, 0.5, 0.5, 1.5])
    true = start + [0.05, -0.05, -0.08, 0.3, 0.02]
    numbers = {k: F.leaf([x], FLOAT, k) for k, x in zip(names, start, strict=True)}
    terms = zip(tangents, numbers.values(), true, strict=True)
    off = F.add_n([t * (x - float(y)) for t, x, y in terms])
    loss = l2_loss(off, F.expand(F.constant((0.0, 0.0, 0.0)), (4, 4)))
    xs = list(numbers.values())
    gradients = build_backward(loss, xs)
    moved = hair.gauss_newton(numbers, tangents, 0.0)(xs, [gradients[x] for x in xs])
    wanted = np.clip(true, start - hair.MAX_STEP, start + hair.MAX_STEP)
    found = [x.item() for x in evaluate(moved, {})]
    np.testing.assert_allclose(found, np.maximum(wanted, 0.0), atol=1e-5)


def test_hair_grows_above_the_hairline_only() -> None:
    head = ellipsoid_head(3)
    roots = grow_hair(head, 300, seed=0)
    face = roots.points[roots.roots][:, 2] > 0.7
    assert (roots.points[roots.roots][face, 1] > 0.3).all()
    assert 0 < len(head.scalp.faces) < len(head.mesh.faces)


def test_what_is_no_head_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "head.npz"
    with pytest.raises(LoadError, match="no ICT head"):
        ict_head(path)
    np.savez(path, neutral=np.zeros((3, 3)))
    with pytest.raises(LoadError, match="no ICT head"):
        ict_head(path)
    path.write_text("no archive")
    with pytest.raises(LoadError, match="no ICT head"):
        ict_head(path)


def test_a_head_of_quads_and_triangles_is_read(tmp_path: Path) -> None:
    positions = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [9, 9, 9]], np.float32)
    faces = np.array([[0, 1, 2, 3], [0, 1, 2, -1], [4, 4, 4, -1]], np.int32)
    names = np.array(["M_Face", "M_BackHead", "M_Teeth"])
    arrays = {"neutral": positions, "faces": faces, "material_names": names}
    np.savez(tmp_path / "head.npz", material=np.array([0, 1, 2]), **arrays)
    mesh = ict_head(tmp_path / "head.npz").mesh
    assert len(mesh.positions) == 4
    assert sorted(mesh.faces.tolist()) == [[0, 1, 2], [0, 1, 2], [0, 2, 3]]
