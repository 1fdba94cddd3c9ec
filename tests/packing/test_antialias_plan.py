"""What a step by antialiasing keeps per pixel: structure of its plan, no device."""

from __future__ import annotations

import numpy as np

from dressi import Options
from dressi.ad import Adam
from dressi.packing import PRESETS, pack
from dressi.packing.plan import BYTES_PER_PIXEL, Plan
from dressi.packing.profile import PRESETS as PROFILES
from dressi.render.scene import icosphere
from dressi.testing.problems import antialias_problem, view_matrices

SIZE = 1024
"""At which a second draw pays."""


def plan(options: Options | None = None) -> Plan:
    targets = np.zeros((1, SIZE, SIZE, 1), np.float32)
    problem = antialias_problem(icosphere(1), view_matrices(1), targets, adam=Adam(0.01))
    profile = PROFILES["llvmpipe"]
    return pack(*problem.graph(), PRESETS["llvmpipe"], options, profile=profile).plan


def test_pixels_keep_codes_of_edges_and_no_areas_or_gradients() -> None:
    """Of the hard layer its faces, its depth (twice: shifted, and where nothing is), whether there
    is one, and where edges may lie; two codes; the loss."""
    made = plan()
    whole = [s for s in made.stages if (s.width, s.height) == (SIZE, SIZE)]
    written = [i for stage in whole for s in stage.substages for i in s.outputs]
    assert sum(BYTES_PER_PIXEL[made.images[i].format] for i in written) <= 8 * 4


def test_one_sparse_pass_follows_the_rasterizations() -> None:
    whole = [s for s in plan().stages if (s.width, s.height) == (SIZE, SIZE)]
    assert len(whole) == 3
    (last,) = whole[-1].substages
    assert last.outside and last.n_functions > 200
