"""Values that devices may treat as they like are made no one's choice: NaN as a depth."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import DressiAD, F, Options
from dressi.ad.vtype import VEC2, VEC4

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("lowering", ["graphics", "compute"])
def test_a_fragment_whose_depth_is_no_number_is_not_drawn(lowering: str) -> None:
    """Nor is one at the far plane. Three triangles over the whole picture, and one at depth 1."""
    n = 4
    places = ((-1.0, -1.0), (3.0, -1.0), (-1.0, 3.0))
    corners = [F.leaf(np.tile(np.float32([x, y, 0.5, 1.0]), (n, 1)), VEC4) for x, y in places]
    parts = F.leaf(np.float32([[0.0, 0.0], [1.0, 1.0], [0.75, 1.0], [0.5, 1.0]]), VEC2)
    frag = F.rasterize(corners, (9, 7))
    part = F.lookup(parts, frag)
    depth = part.x / part.y  # NaN, 1, 0.75, 0.5
    found = F.resolve(frag, depth, background=-1)
    few = F.resolve(frag, depth, F.to_float(frag) < 2.0, background=-1)
    with DressiAD(options=Options(lowering=lowering)) as ad:
        assert (ad.recv_img(found) == 3).all()
        assert (ad.recv_img(few) == -1).all()


@pytest.mark.parametrize("lowering", ["graphics", "compute"])
def test_atan2_on_the_axes_is_that_of_numpy(lowering: str) -> None:
    """One of the two is 0; GLSL's atan is undefined only where both are, and there it is 0."""
    ys, xs = np.meshgrid([-2.0, 0.0, 3.0], [-0.5, 0.0, 4.0])
    places = np.stack([ys, xs], -1).astype(np.float32)
    p = F.leaf(places, VEC2)
    with DressiAD(options=Options(lowering=lowering)) as ad:
        got = ad.recv_img(F.atan2(p.x, p.y))[..., 0]
    assert np.allclose(got, np.arctan2(places[..., 0], places[..., 1]), atol=1e-6)
