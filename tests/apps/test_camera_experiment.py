"""The pose of a camera is found again; how errors are measured is right."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from dressi.apps.experiments.camera import DISTANCE, Poses, Settings, draw_poses, errors, run
from dressi.apps.experiments.common import make_settings


def test_starts_are_as_far_away_as_asked_and_do_not_depend_on_the_number_of_seeds():
    truth, start = draw_poses(4, 20.0, 0.05)
    assert np.allclose(errors(start, truth)[0], 20.0)
    assert np.allclose(np.linalg.norm(start.t - truth.t, axis=1), 0.05 * DISTANCE)
    assert np.allclose(np.linalg.norm(truth.eyes, axis=1), DISTANCE)
    again, _ = draw_poses(2, 20.0, 0.05)
    assert np.array_equal(again.R, truth.R[:2])


def test_errors_are_angles_and_distances_of_cameras():
    truth, _ = draw_poses(1, 0.0, 0.0)
    turn = Rotation.from_rotvec([0.0, 0.0, np.radians(3.0)]).as_matrix()
    eye = truth.eyes[0] + [0.0, 0.01 * DISTANCE, 0.0]
    r = turn @ truth.R[0]
    degrees, parts = errors(Poses(r[None], (-r @ eye)[None]), truth)
    assert np.allclose(degrees, 3.0) and np.allclose(parts, 0.01)


@pytest.mark.gpu
@pytest.mark.slow
def test_a_pose_is_found():
    settings = make_settings(Settings, seeds=1, size=64, iterations=150, faces=1280)
    figures = run(settings).figures
    assert figures["start_degrees"][0] == pytest.approx(20.0)
    assert figures["degrees"][0] < 0.5 and figures["distance_percent"][0] < 0.5
