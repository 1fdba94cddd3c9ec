"""Indices, losses and matrices that are likely not meant are said, before anything runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dressi import DressiWarning, GraphError
from dressi.ad import F, Variable
from dressi.ad.doubts import say_doubts, say_mixed
from dressi.ad.explain import no_parameter
from dressi.ad.index_uses import check_sent
from dressi.ad.vtype import FLOAT, INT, IVEC3, MAT4, VEC3
from dressi.render.camera import look_at, perspective, to_opengl
from dressi.render.camera.camera import Camera
from dressi.render.fit import l1_loss, l2_loss
from dressi.render.raster import gather, interpolate
from dressi.render.raster.projection import project, screen_faces_of_clip
from dressi.render.scene import icosphere

BALL = icosphere(1)
CAMERA = Camera(look_at((1.0, 0.5, 3.0), (0, 0, 0)), perspective(45, 1.0, 0.5, 10.0))


# -- faces -----------------------------------------------------------------------------------------


def _faces() -> tuple[Variable, Variable]:
    positions = Variable(VEC3, (42, 1), name="vertices")
    faces = Variable(IVEC3, (80, 1), name="faces")
    gather(F.vec4(positions, 1.0), faces)
    return positions, faces


@pytest.mark.parametrize(
    ("offset", "says"), [(1, "1-based?"), (-1, "a face has all of its corners"), (5, "42 rows")]
)
def test_faces_outside_their_table_are_refused_when_they_are_sent(offset: int, says: str) -> None:
    _positions, faces = _faces()
    with pytest.raises(GraphError) as info:
        check_sent(faces, (BALL.faces + offset).reshape(1, 1, -1, 3))
    text = str(info.value)
    assert says in text and "faces IVEC3@80x1" in text and "vertices VEC3@42x1" in text
    check_sent(faces, BALL.faces.reshape(1, 1, -1, 3))


def test_a_leaf_that_holds_bad_faces_is_refused_when_it_is_used() -> None:
    with pytest.raises(GraphError, match="1-based"):
        gather(Variable(VEC3, (42, 1)), F.leaf(BALL.faces + 1, IVEC3, "faces"))


def test_the_longest_table_of_a_leaf_counts() -> None:
    """One of the tables may belong to a graph that is no longer used."""
    index = Variable(INT, (2, 1), name="index")
    F.lookup(short := Variable(FLOAT, (3, 1)), index)
    F.lookup(long := Variable(FLOAT, (9, 1)), index)
    check_sent(index, np.array([8, -1]).reshape(1, 1, 2, 1))
    with pytest.raises(GraphError, match="9 rows"):
        check_sent(index, np.array([9, 0]).reshape(1, 1, 2, 1))
    assert short is not long


# -- losses ----------------------------------------------------------------------------------------

grey, colour = Variable(FLOAT, (4, 4), name="grey"), Variable(VEC3, (4, 4), name="colour")
views = Variable(VEC3, (4, 4), 3, name="views")
views_mask = Variable(FLOAT, (4, 4), name="mask")


def _picture() -> Variable:
    """Return a picture of one view."""
    corner = F.vec4(Variable(VEC3, (80, 1)), 1.0)
    frag = F.rasterize((corner, corner, corner), (4, 4))
    shown = F.to_float(F.resolve(frag, F.to_float(frag) * 0.0, background=-1))
    return F.vec3(shown, shown, shown)


MIXED: dict[str, tuple[Callable[[], Variable], str]] = {
    "mean of abs": (lambda: F.mean(F.abs(colour - grey)), "grey FLOAT@4x4"),
    "mean of squares": (lambda: F.mean((colour - grey) * (colour - grey)) * 0.5, "grey"),
    "norm with a mask": (lambda: F.mean(F.dot(d := colour - grey, d) * grey), "grey"),
    "weighted sum": (lambda: F.mean(grey) + F.mean(F.abs(grey - colour)) * 3.0, "grey"),
    "difference with a mask": (lambda: F.mean((colour - grey) * views_mask), "grey"),
    "huber": (lambda: F.mean(F.huber(colour - grey)), "grey"),
    "choice": (lambda: F.mean(F.where(grey > 0.5, F.abs(colour - grey), 0.0)), "grey"),
    "quotient": (lambda: F.mean(F.abs(colour - grey) / (grey + 1.0)), "grey"),
    "1 - exp": (lambda: F.mean(1.0 - F.exp(-F.abs(colour - grey))), "grey"),
    "one picture against targets": (lambda: F.mean(F.abs(_picture() - views)), "all 3 layers"),
    "one image against views": (lambda: F.mean(F.abs(F.sin(views) - colour)), "all 3 layers"),
}


@pytest.mark.parametrize("kind", MIXED)
def test_a_loss_that_compares_unlike_images_warns(kind: str) -> None:
    build, says = MIXED[kind]
    with pytest.warns(DressiWarning, match="in the loss") as seen:
        say_mixed(build())
    assert any(says in str(w.message) for w in seen)


def test_a_loss_of_like_images_numbers_and_scaled_colours_is_silent() -> None:
    shaded = colour * grey - 0.5 * grey  # not a difference that the loss measures
    toned = F.mean(F.abs(F.sin(colour - grey) * grey))  # nor is this one
    losses = [l2_loss(colour, colour), F.mean(F.abs(colour - 0.5)), l1_loss(shaded, colour), toned]
    losses.append(F.mean(F.abs(F.sin(colour) - views)))  # nothing is drawn that lacks views
    for loss in losses:
        say_mixed(loss)


def test_the_losses_of_the_library_refuse_images_of_two_types() -> None:
    for loss in (l1_loss, l2_loss):
        with pytest.raises(GraphError, match="grey FLOAT@4x4"):
            loss(grey, colour)


@pytest.mark.parametrize("lost", ["floor", "nothing is on"])
def test_a_loss_without_parameters_says_where_the_gradient_ends(lost: str) -> None:
    x = Variable(FLOAT, (4, 4), requires_grad=lost == "floor", name="x")
    text = no_parameter(F.mean(F.floor(x) * 2.0))
    if lost == "floor":
        assert "F.floor at test_doubts.py:" in text and "x FLOAT@4x4" in text
    else:
        assert "none of its leaves has requires_grad: x FLOAT@4x4" in text


# -- matrices --------------------------------------------------------------------------------------


def _say(matrix: np.ndarray, scale: float = 1.0) -> None:
    positions, m = Variable(VEC3, (42, 1), name="vertices"), Variable(MAT4, name="matrix")
    faces = F.leaf(BALL.faces, IVEC3, "faces")
    data: dict[Variable, Any] = {positions: BALL.positions * scale, m: matrix, faces: BALL.faces}
    clip = project(positions, m)
    screen_faces_of_clip(clip, faces, (8, 8))
    say_doubts([clip], data.get)
    assert clip.doubt is None


MATRICES: dict[str, tuple[Callable[[], np.ndarray], str]] = {
    "transposed": (lambda: CAMERA.matrix.T, "transposed"),
    "view alone": (lambda: CAMERA.view, "no projection"),
    "OpenGL's": (lambda: to_opengl(CAMERA)[1] @ CAMERA.view, "OpenGL"),
    "the other way": (lambda: CAMERA.projection @ np.diag([1, 1, -1, 1.0]) @ CAMERA.view, "-Z"),
    "zeros": (lambda: np.zeros((4, 4)), "all zeros"),
    "far to the side": (lambda: CAMERA.projection @ look_at((90, 0, 3.0), (90, 0, 0)), "pose"),
}


@pytest.mark.parametrize("kind", MATRICES)
def test_a_matrix_that_is_likely_not_meant_is_explained(kind: str) -> None:
    make, says = MATRICES[kind]
    with pytest.warns(DressiWarning, match=says) as seen:
        _say(make())
    assert "matrix MAT4@1x1" in str(seen[0].message)
    assert "vertices VEC3@42x1 drawn at test_doubts.py" in str(seen[0].message)


@pytest.mark.parametrize("angle", range(0, 360, 30))
def test_a_transposed_matrix_is_found_from_every_side(angle: int) -> None:
    eye = (4.0 * np.cos(np.radians(angle)), 1.0, 4.0 * np.sin(np.radians(angle)))
    with pytest.warns(DressiWarning, match="transposed"):
        _say((perspective(45, 1.0, 0.1, 10) @ look_at(eye, (0, 0, 0))).T)


def test_a_mesh_all_around_the_clip_volume_is_not_seen() -> None:
    """Its vertices lie on all sides, each of its faces on one."""
    with pytest.warns(DressiWarning, match="outside of the clip volume"):
        _say(perspective(45, 1.5, 0.1, 10) @ look_at((0, 0, 3.0), (0, 0, 0)), scale=1000.0)
    _say(perspective(45, 1.5, 0.1, 10) @ look_at((0, 0, 0.1), (0, 0, 0)), scale=3.0)  # a room


@pytest.mark.parametrize("eye", [(0, 0, 3.0), (3.0, 2, 1), (0.3, 4.0, 0.2)])
def test_cameras_of_the_library_are_silent(eye: tuple[float, float, float]) -> None:
    _say(perspective(45, 1.5, 0.1, 10) @ look_at(eye, (0, 0, 0)))
    _say(np.eye(4))


def test_a_doubt_waits_for_data() -> None:
    clip = project(Variable(VEC3, (42, 1)), Variable(MAT4))
    say_doubts([clip], lambda leaf: None)
    assert clip.doubt is not None


def test_layers_of_features_against_as_many_views_warn() -> None:
    ids, features = _drawn(views=3), Variable(VEC3, (42, 1), 3, name="features")
    faces = Variable(IVEC3, (80, 1))
    bary = Variable(VEC3, (8, 8))
    with pytest.warns(DressiWarning, match=r"features VEC3@42x1x3(.|\n)*take_layer"):
        interpolate(gather(features, faces), ids, bary)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        interpolate(gather(F.take_layer(features, 1), faces), ids, bary)


def _drawn(views: int) -> Variable:
    corner = Variable(MAT4, layers=views) @ F.vec4(Variable(VEC3, (80, 1)), 1.0)
    frag = F.rasterize((corner, corner, corner), (8, 8))
    return F.resolve(frag, F.to_float(frag) * 0.0, background=-1)
