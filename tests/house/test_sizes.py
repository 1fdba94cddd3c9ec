"""Files, functions, cycles of imports and the whole library do not grow: sizes.json holds what is
allowed, and ``python scripts/sizes.py --update`` lowers it."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sizes", ROOT / "scripts" / "sizes.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules["sizes"] = script  # where dataclasses look for the annotations
    spec.loader.exec_module(script)
    return script


sizes = _script()


FIGURES = ("files", "functions", "cycles", "median_function", "library_lines")


@pytest.fixture(scope="module")
def larger() -> list[str]:
    """All figures above the stored ones."""
    return list(sizes.measure().larger_than(sizes.stored_sizes()))


@pytest.mark.parametrize("figure", FIGURES)
def test_no_figure_is_larger_than_the_stored_one(figure: str, larger: list[str]) -> None:
    assert [line for line in larger if line.startswith(f"{figure}:")] == []


def test_an_update_never_raises_a_figure() -> None:
    stored = sizes.Sizes({"a.py": 500}, {}, {}, 6.0, 900)
    new = sizes.Sizes({"a.py": 450}, {}, {}, 6.0, 901).lowering(stored)
    assert new.files == {"a.py": 450} and new.library_lines == 900


def test_what_grows_is_named() -> None:
    stored = sizes.Sizes({"a.py": 500, "b.py": 450}, {}, {"a, b": 2}, 6.0, 900)
    same = sizes.Sizes({"moved.py": 450, "a.py": 480}, {}, {}, 6.0, 900)
    assert same.larger_than(stored) == []
    more = sizes.Sizes({"a.py": 500, "b.py": 450, "c.py": 401}, {"d.py: f": 61}, {"e": 3}, 7.0, 901)
    found = " ".join(more.larger_than(stored))
    for word in ("c.py: 401", "d.py: f: 61", "e: 3", "median_function", "library_lines"):
        assert word in found
    assert "a.py" not in found


@pytest.mark.parametrize(
    ("a", "b", "cycles"),
    [
        ("import p.b", "", []),
        ("import p.b", "from p import a", [["p.a", "p.b"]]),
        ("from p.b import x", "def f():\n    from p.a import y", [["p.a", "p.b"]]),
        ("from p.b import x", "if TYPE_CHECKING:\n    from p.a import y", []),
        ("import p.a", "", [["p.a"]]),
    ],
)
def test_cycles_are_found(a: str, b: str, cycles: list[list[str]]) -> None:
    trees = {"p": ast.parse(""), "p.a": ast.parse(a), "p.b": ast.parse(b)}
    assert sizes.import_cycles(trees) == cycles


def test_a_docstring_does_not_count() -> None:
    tree = ast.parse('def f():\n    """One.\n\n    Two.\n    """\n    return 1\n')
    assert dict(sizes.function_lines(tree)) == {"f": 2}
