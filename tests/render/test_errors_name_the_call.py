"""Every GraphError of dressi.render says at which line of the user's it was raised, and of what."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dressi.render
from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, INT, VEC3
from dressi.errors import GraphError
from dressi.render.camera import Camera, perspective
from dressi.render.fit import laplacian_matrix
from dressi.render.scene import Mesh

HERE = Path(__file__).name

NONSENSE = {
    "integers": lambda: Variable(INT, (3, 2)),
    "an image": lambda: Variable(VEC3, (5, 4), 3),
    "a string": lambda: "nonsense",
    "a number": lambda: -1.5,
    "NaN": lambda: np.full((2, 3), np.nan),
}


def _public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Functions and classes that dressi.render defines for users, readers of files left out."""
    for module in pkgutil.walk_packages(dressi.render.__path__, "dressi.render."):
        if module.name.startswith("dressi.render.io"):
            continue
        for name, made in list(vars(importlib.import_module(module.name)).items()):
            own = getattr(made, "__module__", None) == module.name
            if own and callable(made) and not name.startswith("_"):
                yield f"{module.name}.{name}", made


def _called_with(function: Callable[..., Any], value: Any) -> str | None:
    """The message of the GraphError that such arguments raise; None for another error or none."""
    needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    one = [value for p in needed if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = {p.name: value for p in needed if p.kind is p.KEYWORD_ONLY}
    try:
        function(*one, **named)
    except GraphError as error:
        return str(error)
    except Exception:
        return None
    return None


def test_every_public_builder_names_the_users_line() -> None:
    raised = {
        (name, what): message
        for name, function in _public()
        if "renderer" not in name  # opens a device
        for what, make in NONSENSE.items()
        if (message := _called_with(function, make())) is not None
    }
    assert len({name for name, _ in raised}) > 100, "the walk reaches the builders"
    silent = [key for key, message in raised.items() if f"{HERE}:" not in message]
    assert not silent, silent


def _line() -> int:
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


def test_function_constructor_and_method_are_named_with_their_line() -> None:
    with pytest.raises(GraphError) as caught:
        line = _line() + 1
        perspective(200.0, 1.0, 0.1, 1.0)
    at = f"at {HERE}:{line}"
    needs = "perspective needs 0 < fov_y_deg < 180, got 200.0"
    assert str(caught.value) == f"{needs}\n  in perspective {at}"
    assert caught.value.reason == needs
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.reason == needs

    with pytest.raises(GraphError) as caught:
        Camera(np.full((4, 4), np.nan), np.eye(4))
    assert f"\n  in Camera at {HERE}:" in str(caught.value)

    with pytest.raises(GraphError) as caught:
        Mesh(np.zeros((3, 3)), np.array([[0, 1, 3]])).check()
    assert f"\n  in Mesh.check at {HERE}:" in str(caught.value)


def test_the_function_that_the_user_called_is_named_not_the_inner_one() -> None:
    from dressi.testing.views import surround_views

    with pytest.raises(GraphError, match=rf"\n  in surround_views at {HERE}:\d+$"):
        surround_views(1, fov_y_deg=0.0)


def test_a_message_that_names_the_line_is_left_as_it_is() -> None:
    a, b = Variable(FLOAT, (3, 3)), Variable(FLOAT, (4, 4))
    with pytest.raises(GraphError) as caught:
        F.add(a, b)
    assert str(caught.value).count(f"{HERE}:") == 1
    assert str(caught.value).startswith(f"F.add at {HERE}:")


def test_a_library_between_the_user_and_the_error_is_passed_over() -> None:
    """NumPy asks a Variable for its truth."""
    with pytest.raises(GraphError, match=f"at {HERE}:"):
        np.any([Variable(FLOAT, (2, 2)), Variable(FLOAT, (2, 2))])


def test_an_origin_in_the_backward_is_the_line() -> None:
    from dressi.errors import origin

    with (
        origin("model.py:12"),
        pytest.raises(GraphError, match=r"SparseMatrix at model.py:12: columns"),
    ):
        laplacian_matrix(np.array([[0, 1, 9]]), 3)
