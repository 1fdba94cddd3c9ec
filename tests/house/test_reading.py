"""The walk through the compiler that docs/reading.md lists: short, and never back to an earlier
file."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from dressi.packing.passes import CHOICES, PLAN, SUBSTAGES, UNITS

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 2300
"""Of all files of the walk together. A longer walk is not read."""


def section() -> str:
    text = (ROOT / "docs/reading.md").read_text(encoding="utf-8")
    return text.partition("## The walk\n")[2].partition("\n## ")[0]


def listed() -> list[str]:
    """Return the files of the table, in order."""
    row = re.compile(r"^\| \[[\w/.]+\]\(\.\./(dressi/[\w/]+\.py)\) \|", re.MULTILINE)
    return row.findall(section())


def n_lines(file: str) -> int:
    return len((ROOT / file).read_text(encoding="utf-8").splitlines())


def test_the_walk_is_short_and_the_page_says_how_long() -> None:
    total = sum(map(n_lines, listed()))
    assert total <= MOST_LINES
    said = re.search(r"(\d+) files, about (\d+) lines", section())
    assert said is not None
    assert int(said[1]) == len(listed()) == len(set(listed()))
    assert abs(int(said[2]) - total) <= 50


def imports(file: str) -> set[str]:
    """Return the files that a file imports when it runs."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    modules = [n.module for n in tree.body if isinstance(n, ast.ImportFrom) and n.module]
    return {module.replace(".", "/") + ".py" for module in modules}


@pytest.mark.parametrize("file", listed())
def test_a_file_of_the_walk_uses_earlier_ones_only(file: str) -> None:
    later = listed()[listed().index(file) + 1 :]
    assert imports(file).isdisjoint(later)


def test_the_walk_goes_from_the_graph_down_to_the_device_and_up_to_the_engine() -> None:
    packages = list(dict.fromkeys(file.split("/")[1] for file in listed()))
    assert packages == ["render", "ad", "packing", "vk", "engine"]


def test_what_every_program_goes_through_is_in_the_walk() -> None:
    """The files of the steps that a graph cannot do without, in the order of the passes."""
    tree = ast.parse((ROOT / "dressi/packing/steps.py").read_text(encoding="utf-8"))
    steps = {n.name: ast.unparse(n) for n in tree.body if isinstance(n, ast.FunctionDef)}
    needed = {"units": "make_units", "substages": "pack_substages", "stages": "pack_stages"}
    names = [p.run.__name__ for p in (*CHOICES, *UNITS, *SUBSTAGES, *PLAN)]
    assert [n for n in names if n in needed] == list(needed)
    sources = {
        alias.name: f"{n.module}.py".replace(".", "/", n.module.count("."))
        for n in tree.body
        if isinstance(n, ast.ImportFrom) and n.module
        for alias in n.names
    }
    files = [sources[function] for function in needed.values()]
    assert all(function in steps[name] for name, function in needed.items())
    assert [file for file in listed() if file in files] == files
