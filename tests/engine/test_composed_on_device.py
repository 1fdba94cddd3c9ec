"""Scatters that go to vertices at once, on a device: the gradient of a gather."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import DressiAD, F, Options, Variable
from dressi.ad import build_backward
from dressi.ad.graph import topological
from dressi.render.scene import icosphere
from dressi.testing.cases import rel
from dressi.testing.problems import (
    Problem,
    antialias_problem,
    hard_silhouettes,
    silhouette_problem,
    squashed,
    view_matrices,
)

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRESSI_PROFILE", "llvmpipe")


def compare(problem: Problem, gradient: Variable, deterministic: bool) -> None:
    """The gradient is the same with scatters composed, which they are."""
    found = []
    for composed in (False, True):
        options = Options(compose_scatters=composed, deterministic=deterministic)
        with DressiAD(options=options) as ad:
            problem.load(ad)
            found.append(ad.recv_img(gradient + 0.0))
            ad.set_loss_var(F.mean(gradient.x))
            names = [n for s in ad.plan.stages for b in s.substages for n in b.functions]
            assert any(n.startswith("scatter_all") for n in names) == composed
    plain, composed_one = found
    assert np.abs(plain).max() > 0
    assert rel(composed_one, plain) < 1e-5  # float32 sums in another order


@pytest.mark.parametrize("views", [1, 3])
@pytest.mark.parametrize("deterministic", [False, True])
def test_gradients_of_silhouettes_are_the_same(views: int, deterministic: bool) -> None:
    mesh, matrices = icosphere(3, 0.6), view_matrices(views)
    targets = hard_silhouettes(squashed(mesh), matrices, 44)
    problem = silhouette_problem(mesh, matrices, targets)
    gradient = build_backward(problem.loss)[problem.parameter]
    assert any(f.op.name == "csr_gather" for f in topological([gradient]))
    compare(problem, gradient, deterministic)


@pytest.mark.parametrize("deterministic", [False, True])
def test_gradients_of_antialiased_silhouettes_are_the_same(deterministic: bool) -> None:
    """Pixels add to the ends of edges: eight scatters are one."""
    mesh, matrices = icosphere(3, 0.6), view_matrices(1)
    targets = hard_silhouettes(squashed(mesh), matrices, 44)
    problem = antialias_problem(mesh, matrices, targets)
    gradient = build_backward(problem.loss)[problem.parameter]
    compare(problem, gradient, deterministic)
