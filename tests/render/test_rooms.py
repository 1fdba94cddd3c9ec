"""The rooms of dressi.render export what is in them; old names lead there for one release."""

from __future__ import annotations

import importlib
import sys

import pytest

from dressi.render.old_names import MOVED, PACKAGE

ROOMS = ("camera", "fit", "ibl", "io", "raster", "scene", "shading")


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_lists_its_public_names_once(room: str) -> None:
    module = importlib.import_module(PACKAGE + room)
    assert len(set(module.__all__)) == len(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize("old", sorted(MOVED))
def test_a_module_is_found_under_its_old_name_with_a_warning(old: str) -> None:
    sys.modules.pop(PACKAGE + old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} is now .*{MOVED[old]}"):
        module = importlib.import_module(PACKAGE + old)
    new = importlib.import_module(PACKAGE + MOVED[old])
    assert module is new and new.__name__ == new.__spec__.name == PACKAGE + MOVED[old]


def test_a_name_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("dressi.render.nonsense")


def test_no_old_name_of_a_module_hides_a_function_of_the_package() -> None:
    package = importlib.import_module("dressi.render")
    assert set(MOVED).isdisjoint(package.__all__)
