"""F.lookup's ways to scatter: the stochastic one is exact in the mean, for faces of any size."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.ad import F, Variable, build_backward, evaluate
from dressi.ad.vtype import FLOAT, INT, MAT2, VEC3, VType
from dressi.errors import GraphError

COUNTS = [1, 2, 3, 0, 7, 30, 5]
"""Pixels of each face: tiny ones too, and one that nobody sees."""


def _ids(layers: int) -> np.ndarray:
    """(layers, 6, 8, 1) face numbers, scattered about, as often as COUNTS says a layer."""
    flat = np.repeat(np.arange(len(COUNTS)), COUNTS)
    assert len(flat) == 48
    rng = np.random.default_rng(layers)
    return np.stack([rng.permutation(flat).reshape(6, 8, 1) for _ in range(layers)])


def _gradients(
    vtype: VType, table_layers: int, layers: int, samples: int, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Samples over n steps, and the sums that they should be in the mean, by a plain loop."""
    rng = np.random.default_rng(5)
    table = Variable(vtype, (len(COUNTS), 1), table_layers, requires_grad=True)
    ids, step = Variable(INT, (8, 6), layers), Variable(INT)
    up = rng.normal(size=(layers, 6, 8, *vtype.tail))
    up[:, 2, 3:5] = 0.0  # pixels without a gradient are never drawn
    w = Variable(vtype, (8, 6), layers)
    index = _ids(layers)
    index[0, 0, 0] = -1
    index[-1, 5, 7] = len(COUNTS)
    want = np.zeros((table_layers, 1, len(COUNTS), *vtype.tail))
    for where in np.ndindex(layers, 6, 8):
        row = index[where][0]
        if 0 <= row < len(COUNTS):
            want[where[0] if table_layers > 1 else 0, 0, row] += up[where]
    y = F.lookup(table, F.dynamic(ids), scatter="stochastic", step=step, samples=samples)
    loss = F.sum_components(F.linalg.matrix_comp_mul(y, w)) if vtype.is_matrix else y * w
    g = build_backward(loss)[table]
    feeds = {
        table: np.zeros((table_layers, 1, len(COUNTS), *vtype.tail)),
        ids: index,
        w: up,
    }
    return np.stack([evaluate([g], {**feeds, step: k})[0] for k in range(n)]), want


@pytest.mark.parametrize(
    ("vtype", "table_layers", "layers"),
    [(VEC3, 1, 1), (FLOAT, 1, 3), (VEC3, 3, 3), (MAT2, 1, 1)],
)
@pytest.mark.parametrize("samples", [1, 3])
def test_mean_over_steps_is_the_exact_gradient(
    vtype: VType, table_layers: int, layers: int, samples: int
) -> None:
    """Within 5 standard errors of it everywhere, and exact for faces of one pixel."""
    n = 600
    got, want = _gradients(vtype, table_layers, layers, samples, n)
    error = got.std(axis=0) / np.sqrt(n)
    off = np.abs(got.mean(axis=0) - want)
    assert (off <= 5 * error + 1e-9).all(), float((off / (error + 1e-9)).max())
    assert (got[:, ..., 3, :] == 0).all() if not vtype.is_matrix else True
    if layers == 1:
        assert np.allclose(got[:, :, :, 0], want[:, :, 0])


def test_more_samples_have_less_variance() -> None:
    one, four = (_gradients(VEC3, 1, 1, samples, 300)[0].var(axis=0).sum() for samples in (1, 4))
    assert 0.18 < four / one < 0.33  # a quarter, but for the 300 steps


def test_faces_of_few_pixels_converge_as_fast_as_their_size_says() -> None:
    """Of 2 pixels with gradients a and b a step gives 2 a or 2 b: an error of |a - b| each."""
    got, want = _gradients(FLOAT, 1, 1, 1, 400)
    off = np.abs(got - want)[:, 0, 0, 1, 0]
    assert np.ptp(off) < 1e-9  # the same size every time, to either side
    assert 0.4 < (got[:, 0, 0, 1, 0] > want[0, 0, 1, 0]).mean() < 0.6


def test_static_indices_are_gathered_whatever_is_asked_for() -> None:
    table, index, step = Variable(FLOAT, (4, 1), requires_grad=True), Variable(INT, (5, 1)), INT
    feeds = {table: np.zeros((1, 1, 4, 1)), index: np.array([0, 1, 1, 3, 3]).reshape(1, 1, 5, 1)}
    for scatter in ("exact", "deterministic", "stochastic"):
        y = F.lookup(table, index, scatter=scatter, step=Variable(step))
        (g,) = evaluate([build_backward(y)[table]], feeds)
        assert g.ravel().tolist() == [1, 2, 0, 2]


def test_other_ways_and_missing_counters_are_named() -> None:
    table, index, step = Variable(FLOAT, (4, 1)), Variable(INT, (5, 1)), Variable(INT)
    bad = {
        "'last'": lambda: F.lookup(table, index, scatter="last"),
        "needs step": lambda: F.lookup(table, index, scatter="stochastic"),
        "got %": lambda: F.lookup(table, index, scatter="stochastic", step=Variable(FLOAT)),
        "5x1": lambda: F.lookup(table, index, scatter="stochastic", step=index),
        "got 0": lambda: F.lookup(table, index, scatter="stochastic", step=step, samples=0),
        "got 65": lambda: F.lookup(table, index, scatter="stochastic", step=step, samples=65),
        "an int": lambda: F.lookup(
            table,
            index,
            scatter="stochastic",
            step=step,
            samples=1.5,  # type: ignore[arg-type]
        ),
    }
    for text, call in bad.items():
        with pytest.raises(GraphError, match=r"test_lookup\.py") as info:
            call()
        assert text in str(info.value)
