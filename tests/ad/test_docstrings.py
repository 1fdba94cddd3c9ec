"""Docstrings are contracts: all of F and of the public API have one; F's say where
gradients go."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import dressi
from dressi.ad import F

ROOT = Path(dressi.__file__).parent
NO_GRADIENT_TO_SPEAK_OF = {"linalg.SparseMatrix"}  # a class, no op


@pytest.mark.parametrize("name", F.public_ops())
def test_every_function_of_F_says_where_its_gradient_goes(name: str) -> None:
    doc = inspect.getdoc(F.public_ops()[name]) or ""
    assert len(doc) > 20
    if name not in NO_GRADIENT_TO_SPEAK_OF:
        assert "gradient" in doc.lower()


@pytest.mark.parametrize("name", dressi.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert len(inspect.getdoc(getattr(dressi, name)) or "") > 10


def test_all_of_F_is_exported_and_sorted() -> None:
    assert list(F.__all__) == sorted(set(F.__all__))
    assert dir(F) == list(F.__all__)
    assert all(dir(family) == list(family.__all__) for family in F.FAMILIES.values())
    assert not any(inspect.ismodule(function) for function in F.public_ops().values())


@pytest.mark.parametrize("name", ["DressiAD", "Variable", "Options"])
def test_every_public_method_has_a_docstring(name: str) -> None:
    cls = getattr(dressi, name)
    missing = [
        n
        for n, m in vars(cls).items()
        if not n.startswith("_")
        and (inspect.isfunction(m) or isinstance(m, property))
        and not (m.fget.__doc__ if isinstance(m, property) else m.__doc__)
        and n not in ("x", "y", "z", "w", "xy", "xyz")  # their names say it all
    ]
    assert missing == []


MODULES = sorted(p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*.py") if p.stat().st_size > 0)


@pytest.mark.parametrize("path", MODULES)
def test_every_module_has_a_docstring(path: str) -> None:
    assert ast.get_docstring(ast.parse((ROOT / path).read_text()))


RENDER = [m for m in MODULES if m.startswith(("render/", "engine"))]


@pytest.mark.parametrize("path", RENDER)
def test_every_public_function_of_the_renderer_has_a_docstring(path: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    missing = [
        node.name
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert missing == []


def test_render_builders_hold_no_glsl_and_no_vulkan() -> None:
    """Builders are written purely with F."""
    for path in (ROOT / "render").rglob("*.py"):
        text = path.read_text()
        assert (
            not re.search(r"\bgl_", text)
            and "import vulkan" not in text
            and "dressi.vk" not in text
        ), path
