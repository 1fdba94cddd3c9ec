"""Fits that the commands share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dressi.apps.fitting import TextureSchedule, fit_texture
from dressi.engine import DressiAD
from dressi.render.scene import icosphere
from dressi.testing.views import spread_views


@pytest.mark.gpu
def test_a_texture_fit_rasterizes_anew_only_where_the_projection_is_shifted() -> None:
    """The paper (4.1): a texture is faster than a shape, for rasterization is cached."""
    mesh = icosphere(1)
    mesh = replace(mesh, uvs=np.zeros((1, 2), np.float32), uv_faces=np.zeros_like(mesh.faces))
    matrices = np.stack([c.matrix for c in spread_views(2)])
    colours = np.full((2, 16, 16, 3), 0.25, np.float32)
    schedule = TextureSchedule(iterations=31, size=(4, 4))
    with DressiAD() as ad:
        fit = fit_texture(ad, mesh, matrices, colours, schedule)
        report = ad.report()
    # The still part is made at steps 4 and 9, and runs again at shifts: steps 10, 16, 22, 28.
    assert report.steps == 31
    assert report.static_runs == 2 + len(range(10, 31, 6))
    assert fit.losses[-1] < 0.2 * fit.losses[0]
