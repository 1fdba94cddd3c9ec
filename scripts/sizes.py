"""Print the sizes of the package beside the largest that are allowed, and lower these.

    python scripts/sizes.py            # prints what is large and what imports itself
    python scripts/sizes.py --update   # stores those that became smaller, never one that is larger

tests/house/test_sizes.py fails where a figure is above the stored one (tests/house/sizes.json).
Only the numbers are compared, so a file may move; the names are those of the last update.
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "tests" / "house" / "sizes.json"
FILE_LINES, FUNCTION_LINES = 400, 60
APART = ("apps", "testing")
"""Folders of the package that are no part of the library."""


@dataclass
class Sizes:
    """Figures that may only go down.

    files: lines of the files over FILE_LINES. functions: lines, without the docstring, of the
    functions over FUNCTION_LINES. cycles: groups of files that import each other, and how many
    there are. median_function: lines, without the docstring. library_lines: of all files but those
    in APART.
    """

    files: dict[str, int] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)
    cycles: dict[str, int] = field(default_factory=dict)
    median_function: float = 0.0
    library_lines: int = 0

    def lowering(self, stored: Sizes) -> Sizes:
        """Return these figures, with the stored ones in the place of those that are larger."""
        larger = {line.partition(":")[0] for line in self.larger_than(stored)}
        return Sizes(
            **{f.name: getattr(stored if f.name in larger else self, f.name) for f in fields(self)}
        )

    def larger_than(self, stored: Sizes) -> list[str]:
        """Return a sentence for each figure that is above the stored one."""
        out = []
        for name in ("files", "functions", "cycles"):
            mine, theirs = _falling(getattr(self, name)), _falling(getattr(stored, name))
            allowed = [n for _, n in theirs] + [0] * len(mine)
            over = [
                f"{path}: {n}" for (path, n), most in zip(mine, allowed, strict=False) if n > most
            ]
            if over:
                out.append(f"{name}: {', '.join(over)}; allowed: {[n for _, n in theirs]}")
        for name in ("median_function", "library_lines"):
            if getattr(self, name) > getattr(stored, name):
                out.append(f"{name}: {getattr(self, name)}; allowed: {getattr(stored, name)}")
        return out


def _falling(sizes: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(sizes.items(), key=lambda item: (-item[1], item[0]))


def stored_sizes() -> Sizes:
    return Sizes(**json.loads(STORED.read_text(encoding="utf-8")))


def measure(package: Path = ROOT / "dressi") -> Sizes:
    """Measure the package in a folder."""
    sizes, lengths = Sizes(), []
    trees: dict[str, ast.Module] = {}
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        inside = path.relative_to(package)
        name = f"{package.name}/{inside.as_posix()}"
        lines = len(text.splitlines())
        if lines > FILE_LINES:
            sizes.files[name] = lines
        if inside.parts[0] not in APART:
            sizes.library_lines += lines
        tree = trees[_module(package, path)] = ast.parse(text)
        for where, n in function_lines(tree):
            lengths.append(n)
            if n > FUNCTION_LINES:
                sizes.functions[f"{name}: {where}"] = n
    sizes.median_function = statistics.median(lengths) if lengths else 0.0
    for cycle in import_cycles(trees):
        sizes.cycles[", ".join(cycle)] = len(cycle)
    return sizes


def function_lines(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the name of each function and its lines, without the docstring."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            n = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node, clean=False) is not None:
                first = node.body[0]
                n -= (first.end_lineno or first.lineno) - first.lineno + 1
            yield node.name, n


# -- imports


def _module(package: Path, path: Path) -> str:
    parts = [package.name, *path.relative_to(package).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield imports at any depth, but not those for type checkers."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for other in node.orelse:
            yield from _imports(other)
        return
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _imports(child)


def imported(tree: ast.Module, modules: frozenset[str]) -> set[str]:
    """Return the modules, out of some, that a file imports. ``from a import b`` is an import of a.b
    where that is a module, else of a; relative imports do not occur."""
    found = set()
    for node in _imports(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            base = node.module or ""
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in modules else base)
    return found & modules


def import_cycles(trees: dict[str, ast.Module]) -> list[list[str]]:
    """Return the groups of modules that import each other, by way of any of them (the strongly
    connected components of the graph of imports with more than one module, or with itself)."""
    modules = frozenset(trees)
    edges = {name: imported(tree, modules) for name, tree in trees.items()}
    reach = {name: _reachable(name, edges) for name in edges}
    left, out = set(modules), []
    for name in sorted(modules):
        if name in left and name in reach[name]:
            group = sorted(m for m in reach[name] if name in reach[m])
            left -= set(group)
            out.append(group)
    return out


def _reachable(start: str, edges: dict[str, set[str]]) -> set[str]:
    """Return what is reached by one import or more."""
    seen: set[str] = set()
    todo = [start]
    while todo:
        new = edges[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="store what is smaller today")
    args = parser.parse_args()
    sizes = measure()
    for name in ("files", "functions", "cycles"):
        for path, n in _falling(getattr(sizes, name)):
            print(f"{name}: {n}  {path}")
    print(f"median function: {sizes.median_function:g} lines")
    print(f"library, without {' and '.join(APART)}: {sizes.library_lines} lines")
    larger = sizes.larger_than(stored_sizes())
    for line in larger:
        print(f"larger than allowed: {line}", file=sys.stderr)
    if args.update:
        text = json.dumps(asdict(sizes.lowering(stored_sizes())), indent=2)
        STORED.write_text(text + "\n", encoding="utf-8")
    return 1 if larger else 0


if __name__ == "__main__":
    raise SystemExit(main())
