"""The site of `make docs`: every page is reached, the reference is whole, links lead somewhere."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import dressi.render

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
API = "\n".join(p.read_text(encoding="utf-8") for p in sorted((DOCS / "api").glob("*.md")))
DIRECTIVES = set(re.findall(r"^::: ([\w.]+)$", API, re.MULTILINE))

BUILD = """
import sys
from mkdocs.commands.build import build
from mkdocs.config import load_config
build(load_config(sys.argv[1], site_dir=sys.argv[2], strict=True, plugins=[]))
"""
"""Without the reference, whose docstrings take most of the time; its pages are there, as text."""

EXTERNAL = re.compile(
    r"""<(?:script|img|iframe)[^>]*\bsrc=["']?(?:https?:)?//|<link[^>]*\bhref=["']?(?:https?:)?//"""
)


def test_every_page_is_in_the_navigation_once() -> None:
    nav = CONFIG.partition("\nnav:\n")[2]
    listed = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", nav, re.MULTILINE)
    beside = [name for name in listed if not (DOCS / name).exists()]
    assert all((ROOT / name).exists() for name in beside)
    pages = [p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md")]
    assert sorted(listed) == sorted(pages + beside)


def packages() -> list[str]:
    """Return the packages whose public names the reference must have."""
    found = [m.name for m in pkgutil.iter_modules(dressi.render.__path__, "dressi.render.")]
    rooms = [n for n in found if hasattr(importlib.import_module(n), "__all__")]
    return [
        "dressi",
        "dressi.ad",
        "dressi.ad.functions",
        "dressi.packing",
        "dressi.parallel",
        *rooms,
    ]


@pytest.mark.parametrize("package", packages())
def test_every_public_name_is_on_a_page_of_the_reference(package: str) -> None:
    """A page of a package shows its ``__all__``, but for functions that are named as their file:
    readers of the source take those for the file. They have a directive of their own."""
    module = importlib.import_module(package)
    assert package in DIRECTIVES
    missing = []
    for name in module.__all__:
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            if not any(f"{d}.".startswith(f"{value.__name__}.") for d in DIRECTIVES):
                missing.append(value.__name__)
        elif importlib.util.find_spec(f"{package}.{name}") is not None:
            if f"{value.__module__}.{name}" not in DIRECTIVES:
                missing.append(f"{package}.{name}")
    assert missing == []


def test_links_and_anchors_resolve_and_no_page_asks_another_server(tmp_path: Path) -> None:
    for package in ("mkdocs", "material"):
        pytest.importorskip(package, reason="MkDocs is not installed (pip install '.[docs]')")
    command = [sys.executable, "-c", BUILD, str(ROOT / "mkdocs.yml"), str(tmp_path)]
    built = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=ROOT)
    assert built.returncode == 0, built.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(list(DOCS.rglob("*.md")))
    asking = [p.name for p in pages if EXTERNAL.search(p.read_text(encoding="utf-8"))]
    assert asking == []
