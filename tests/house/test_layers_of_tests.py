"""Tests of lower layers use ``dressi.testing``, not the applications; what is named exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOWER = ("ad", "packing", "vk", "engine", "parallel", "render", "helpers")
APPLICATION = re.compile(r"^\s*(?:from|import) dressi\.(?:apps|cli)\b", re.MULTILINE)


@pytest.mark.parametrize("folder", LOWER)
def test_lower_layers_are_tested_without_applications(folder: str) -> None:
    files = (ROOT / "tests" / folder).rglob("*.py")
    found = [p.name for p in files if APPLICATION.search(p.read_text(encoding="utf-8"))]
    assert found == []


def test_pyproject_and_makefile_name_what_exists() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^include = \[(.*)\]$", project, re.MULTILINE)
    braces = re.search(r'^"\{([\w,]+)\}/\*\*"', project, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    swept = re.search(r"find ([\w ]+) -name __pycache__", makefile)
    assert listed and braces and swept
    names = re.findall(r'"([^"]+)"', listed[1]) + braces[1].split(",") + swept[1].split()
    assert [name for name in names if not (ROOT / name).exists()] == []


ABSENT = re.compile(r"\b(?:DESIGN|RELIABILITY|HUMAN|STYLE)(?:\.md)?\b(?! ?=)")
"""Documents that are not in the repository."""


def test_no_document_is_named_that_is_not_here() -> None:
    found = []
    for folder in ("dressi", "tests", "docs", "scripts"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".md", ".sh", ".glsl") and path != Path(__file__):
                lines = path.read_text(encoding="utf-8").splitlines()
                found += [f"{path.name}:{k + 1}" for k, t in enumerate(lines) if ABSENT.search(t)]
    assert found == []


PATH = re.compile(r"`((?:dressi|tests|scripts)/[\w/]+\.(?:py|sh|json|glsl))`")


def test_pages_name_files_that_exist() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    found = [
        f"{page.name}: {name}"
        for page in pages
        if page.name != "CHANGELOG.md"  # which tells of files that were
        for name in PATH.findall(page.read_text(encoding="utf-8"))
        if not (ROOT / name).exists()
    ]
    assert found == []
