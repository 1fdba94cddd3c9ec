"""``F.image.shrink``: means over areas, beside a matrix of overlaps."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import INT, VEC2, F, Variable, evaluate
from dressi.ad.autodiff import build_backward
from dressi.errors import GraphError


def overlaps(n_from: int, n_to: int) -> np.ndarray:
    """(n_to, n_from): the part of each pixel that lies in each texel."""
    ends = np.arange(n_to + 1) * n_from / n_to
    texel = np.arange(n_from)
    shared = np.minimum(ends[1:, None], texel + 1.0) - np.maximum(ends[:-1, None], texel)
    return np.asarray(np.maximum(shared, 0.0) * n_to / n_from)


@pytest.mark.parametrize("size", [(12, 9), (4, 3), (5, 4), (1, 1), (7, 9), (11, 2)])
def test_pixels_are_means_over_their_areas(size: tuple[int, int]) -> None:
    """Whole ratios, broken ones, one axis alone; the gradient is the transposed matrix."""
    rng = np.random.default_rng(2)
    x = Variable(VEC2, (12, 9), layers=2, requires_grad=True)
    weight = Variable(VEC2, size, layers=2)
    small = F.image.shrink(x, size)
    feeds = {x: rng.normal(size=(2, 9, 12, 2)), weight: rng.normal(size=(2, size[1], size[0], 2))}
    across, down = overlaps(12, size[0]), overlaps(9, size[1])
    (value,) = evaluate([small], feeds)
    np.testing.assert_allclose(value, np.einsum("jh,iw,lhwc->ljic", down, across, feeds[x]))
    (gradient,) = evaluate([build_backward(F.dot(small, weight))[x]], feeds)
    wanted = np.einsum("jh,iw,ljic->lhwc", down, across, feeds[weight])
    np.testing.assert_allclose(gradient, wanted, atol=1e-12)  # float64


def test_what_cannot_be_shrunk_is_named() -> None:
    with pytest.raises(GraphError, match="13x9 is larger"):
        F.image.shrink(Variable(VEC2, (12, 9)), (13, 9))
    with pytest.raises(GraphError, match="needs FLOAT or VECn"):
        F.image.shrink(Variable(INT, (12, 9)), (3, 3))
