"""``dressi experiment fitted_normals``: its measures by hand, its pictures, a map that helps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dressi.ad import Variable
from dressi.ad.vtype import VEC3
from dressi.apps.experiments import fitted_normals
from dressi.apps.experiments.common import make_settings
from dressi.apps.experiments.lit_views import random_views
from dressi.apps.experiments.normal_scenes import FLAT
from dressi.engine import DressiAD
from dressi.render.scene import icosphere
from dressi.testing.views import mesh_leaves, send_mesh


def test_figures_count_pixels_that_both_cover() -> None:
    up, right, none = (0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.0, 0.0, 0.0)
    true = np.array([[[up, up, up, none]]])
    plain = np.array([[[up, right, none, up]]])
    stacks = {
        "true normal": true,
        "plain normal": plain,
        "mapped normal": true,
        "true picture": np.array([[[0.5, 0.5, 0.5, 0.0]]]),
        "plain picture": np.array([[[0.5, 0.3, 0.0, 0.9]]]),
        "mapped picture": np.array([[[0.5, 0.5, 0.5, 0.0]]]),
    }
    found = fitted_normals.measure(stacks)
    assert found["plain_deg"] == pytest.approx(45.0) and found["mapped_deg"] == 0.0
    assert found["plain_db"] == pytest.approx(-10 * np.log10(0.04 / 2))
    assert found["mapped_db"] == 120.0


@pytest.mark.gpu
def test_a_flat_map_changes_nothing() -> None:
    mesh, views = icosphere(2, 0.8), random_views(1, 24)
    leaves, light = mesh_leaves(mesh, 1), Variable(VEC3, name="light")
    flat = Variable(VEC3, (8, 8), name="map")
    plain = fitted_normals.draw_lit(leaves, light, 24)
    mapped = fitted_normals.draw_lit(leaves, light, 24, flat)
    with DressiAD() as ad:
        send_mesh(ad, leaves, mesh, views.matrices)
        ad.send_img(light, views.lights[0])
        ad.send_img(flat, np.broadcast_to(FLAT, (8, 8, 3)))
        a, b = ad.recv_imgs([plain.picture, mapped.picture])
    assert 0.1 < (a > 0).mean() < 0.9
    np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.gpu
def test_a_map_on_a_ball_brings_it_nearer_to_a_ball_with_waves() -> None:
    ball = icosphere(4, 0.7)
    x, y, z = 8.0 * ball.positions.T
    waves = 1.0 + 0.04 * np.sin(x) * np.sin(y + 1.0) * np.cos(z)
    target = replace(ball, positions=ball.positions * waves[:, None], uvs=None, uv_faces=None)
    settings = make_settings(
        fitted_normals.Settings, smoke=True, size=48, map_size=48, iterations=150, views=32
    )
    found = fitted_normals.fit_map(settings, icosphere(3, 0.7), target)
    assert found["mapped_deg"] < 0.7 * found["plain_deg"]
    assert found["mapped_db"] > found["plain_db"] + 2
    assert found["losses"][-1] < found["losses"][0]
    length = np.linalg.norm(found["map"] * 2.0 - 1.0, axis=-1)
    assert length == pytest.approx(1.0, abs=1e-5)
