"""Files import each other in one direction, imports inside functions and for types included."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = {
    ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
    for p in (ROOT / "dressi").rglob("*.py")
}


def imported(name: str) -> set[str]:
    """Modules of the package that a module imports anywhere in its text."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                found.add(inside if inside in MODULES else node.module)
    return found & MODULES.keys() - {name}


GRAPH = {name: imported(name) for name in MODULES}


def reached(start: str) -> set[str]:
    """Modules that a module imports, directly or through others."""
    found: set[str] = set()
    stack = [start]
    while stack:
        for name in GRAPH[stack.pop()] - found:
            found.add(name)
            stack.append(name)
    return found


@pytest.mark.parametrize("room", ["engine", "inspect", "parallel", "testing", "vk"])
def test_no_file_of_a_room_imports_itself_through_others(room: str) -> None:
    files = [name for name in MODULES if name.startswith(f"dressi.{room}.")]
    assert files
    assert [name for name in files if name in reached(name)] == []


def _dressi_imports() -> list[tuple[str, str, str]]:
    """(file, module, name) of each ``from dressi... import name`` of notebooks and scripts."""
    sources = [(p.name, p.read_text(encoding="utf-8")) for p in (ROOT / "scripts").glob("*.py")]
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
        lines = text.splitlines()
        sources.append((path.name, "\n".join("pass" if t[:1] in ("%", "!") else t for t in lines)))
    return [
        (file, node.module, alias.name)
        for file, source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dressi"
        for alias in node.names
    ]


def test_notebooks_and_scripts_import_what_is_there() -> None:
    """Running them shows it too, but last of all tests."""
    named = _dressi_imports()
    assert len(named) > 100
    missing = []
    for file, module, name in named:
        if module.startswith("dressi.torch") and importlib.util.find_spec("torch") is None:
            continue
        if not hasattr(importlib.import_module(module), name) and (
            importlib.util.find_spec(f"{module}.{name}") is None
        ):
            missing.append(f"{file}: {module}.{name}")
    assert missing == []
