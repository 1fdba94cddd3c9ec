"""Words that arguments take are Literals of one place, and the public signatures name them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from dressi import F, Options, kinds
from dressi.render.renderer import DressiBasicRenderer
from dressi.render.scene import parts as scene

MODULES = (kinds, scene)
WORDS = {
    word: name
    for module in MODULES
    for name, value in vars(module).items()
    if get_origin(value) is typing.Literal
    for word in get_args(value)
}


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    made = function.__init__ if is_dataclass(function) else function
    return get_type_hints(made)


def _public() -> list[tuple[str, Callable[..., Any]]]:
    found: list[tuple[str, Callable[..., Any]]] = list(F.public_ops().items())
    found += [(n, getattr(scene, n)) for n in dir(scene) if is_dataclass(getattr(scene, n))]
    return [*found, ("Options", Options), ("build_graph", DressiBasicRenderer.build_graph)]


@pytest.mark.parametrize(("name", "function"), _public(), ids=lambda x: x if type(x) is str else "")
def test_a_default_that_is_one_of_several_words_has_their_literal(
    name: str, function: Callable[..., Any]
) -> None:
    hints = _hints(function)
    loose = [
        p.name
        for p in inspect.signature(function).parameters.values()
        if isinstance(p.default, str) and p.default in WORDS and p.name != "name"
        if hints[p.name] is str
    ]
    assert loose == []


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_no_two_literals_hold_the_same_words(module: Any) -> None:
    literals = [get_args(v) for v in vars(module).values() if get_origin(v) is typing.Literal]
    assert len(literals) > 5
    assert len({frozenset(words) for words in literals}) == len(literals)
