"""Docstrings of all public names are contracts: what is returned or done comes first, then types,
shapes, gradients and errors where these apply."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from dressi import F

PACKAGES = ("dressi", "dressi.ad", "dressi.engine", "dressi.packing", "dressi.parallel")
ROOMS = ("raster", "scene", "camera", "fit", "shading", "ibl", "io")
TYPE = re.compile(r"\b(FLOAT|I?VECn?[234]?|MATn?[234]?|INT|SparseMatrix|MipMap)\b|[Aa]ny type")


def _named() -> dict[str, Any]:
    """Public name -> function or class."""
    found = {f"F.{name}": value for name, value in F.public_ops().items()}
    for package in (*PACKAGES, *(f"dressi.render.{room}" for room in ROOMS)):
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isroutine(value) or inspect.isclass(value):
                found.setdefault(f"{package}.{name}", value)
    return found


def _methods() -> dict[str, Callable[..., Any]]:
    """Public methods and properties of the public classes that are written here."""
    found = {}
    for name, value in _named().items():
        for key, member in vars(value).items() if inspect.isclass(value) else ():
            member = getattr(member, "__func__", getattr(member, "fget", member))
            member = getattr(member, "func", member)  # of a cached property
            own = inspect.isfunction(member) and member.__module__.startswith("dressi")
            if own and not key.startswith("_") and member.__name__ == key:
                found[f"{name}.{key}"] = member
    return found


NAMED = _named()
METHODS = _methods()
GRAPHS = {"dressi.ad.parameters", "dressi.ad.simplify"}
"""Functions that return Variables of a graph, and make no operation."""
BUILDERS = {
    name: value
    for name, value in NAMED.items()
    if inspect.isfunction(value) and name not in GRAPHS
    if "Variable" in str(inspect.signature(value).return_annotation)
}
TELLING = {"x", "y", "z", "w", "xy", "xyz"}
"""Properties whose names say it all."""


def _first(doc: str) -> str:
    """The first sentence of a docstring."""
    return re.split(r"(?<=[.;])\s|\n\n", doc)[0]


def headless(value: Any, doc: str) -> str:
    """What is wrong with the beginning of a docstring; empty for nothing."""
    first = _first(doc).replace("\n", " ")
    if dataclasses.is_dataclass(value) and doc.startswith(f"{value.__name__}("):
        return "a dataclass without a docstring is given its signature"
    if len(doc) < 10:
        return "is missing"
    try:
        parameters = set(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        parameters = set()
    named = re.match(r"\w+(, \w+)*(?=: )", first)
    if named and set(named[0].split(", ")) <= parameters:
        return "begins with an argument"
    if re.match(r"(See|As|Like|Also|And|Or|But|Which|That|Because|Raises)\b", first):
        return "begins in the middle"
    if "?" in first:
        return "begins with a question"
    return ""


@pytest.mark.parametrize("name", NAMED | METHODS)
def test_a_docstring_begins_with_what_is_returned_or_done(name: str) -> None:
    value = (NAMED | METHODS)[name]
    if name.rpartition(".")[2] not in TELLING:
        assert headless(value, inspect.getdoc(value) or "") == ""


@pytest.mark.parametrize("name", BUILDERS)
def test_a_builder_says_types_and_where_its_gradient_goes(name: str) -> None:
    doc = inspect.getdoc(BUILDERS[name]) or ""
    assert "gradient" in doc.lower()
    assert TYPE.search(doc) or name.startswith("F.")


@pytest.mark.parametrize("name", [n for n in NAMED if inspect.isfunction(NAMED[n])])
def test_a_function_that_raises_says_so(name: str) -> None:
    body = textwrap.dedent(inspect.getsource(NAMED[name])).partition('"""')[2].partition('"""')[2]
    doc = inspect.getdoc(NAMED[name]) or ""
    unsaid = {
        error
        for error in re.findall(r"raise (\w+Error)\(", body)
        if error in ("GraphError", "LoadError", "PackingError") and error not in doc
    }
    assert unsaid == set()
