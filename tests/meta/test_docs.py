"""What users read is true: code blocks run and print what they say, links lead somewhere."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import io
import json
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import dressi
import dressi.render
from dressi import config
from dressi.render.io import linear_to_srgb, read_image

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RENDERING = (
    "antialias",
    "environment",
    "guide",
    "hardsoftras",
    "rasterize",
    "renderer",
    "shading",
    "textures",
)
TOP = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

# A Python block, and the text block that may follow it: what it prints.
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PRIVATE_PATH = re.compile(r"(?<![\w.])/(home|root|work|tmp|Users)/")


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _blocks(path: Path) -> list[re.Match[str]]:
    return list(BLOCK.finditer(path.read_text(encoding="utf-8")))


def _plain(text: str) -> str:
    """Numbers of Variables and lines of the page change with every edit; they are not compared."""
    return re.sub(r"(\w+\.md):\d+", r"\1:0", re.sub(r"%\d+", "%0", text)).strip()


@pytest.mark.gpu
@pytest.mark.parametrize("page", [p for p in PAGES if _blocks(p)], ids=_name)
def test_python_blocks_run_and_print_what_the_page_says(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The blocks of one page are one program, in order."""
    monkeypatch.setenv("DRESSI_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    for name, what in (("torch", "PyTorch"), ("jax", "JAX")):
        if re.search(rf"^import {name}$", text, re.MULTILINE):
            pytest.importorskip(name, reason=f"{what} is not installed")
    names: dict[str, object] = {}
    for block in _blocks(page):
        above = "\n" * text[: block.start(1)].count("\n")  # errors name the line of the page
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(above + block[1], page.name, "exec"), names)
        if block[2] is not None:
            assert _plain(printed.getvalue()) == _plain(block[2])
    shown = set(re.findall(r"\]\(images/pages/([\w.]+)\)", text))
    made = {picture.name for picture in tmp_path.glob("*.png")}
    assert shown == made - {"half.png"}  # a file to be read again, not a picture to look at
    for name in shown:
        stored = ROOT / "docs" / "images" / "pages" / name
        _check_alike(tmp_path / name, stored)


def _check_alike(made: Path, stored: Path) -> None:
    """Files of 8 bits: devices and drivers differ by a few levels at a few outlines."""
    ours, theirs = (linear_to_srgb(read_image(path)) * 255.0 for path in (made, stored))
    assert ours.shape == theirs.shape
    off = float(np.abs(ours - theirs).mean())
    assert off < 1.0, f"{stored.name}: python scripts/page_pictures.py {stored.stem}"


def test_pages_with_rendering_show_pictures_that_their_code_makes() -> None:
    pages = {p.stem: p.read_text(encoding="utf-8") for p in PAGES}
    for name in RENDERING:
        assert f"](images/pages/{name}.png)" in pages[name], name


def _anchors(path: Path) -> set[str]:
    """GitHub's anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def _texts() -> Iterator[tuple[Path, str]]:
    for page in [*PAGES, *(ROOT / name for name in TOP)]:
        yield page, page.read_text(encoding="utf-8")
    for notebook in NOTEBOOKS:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        yield (
            notebook,
            "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown"),
        )


def test_links_lead_to_files_and_headings_that_exist() -> None:
    broken = []
    for page, text in _texts():
        for target in LINK.findall(
            re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        ):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            file = (page.parent / name).resolve() if name else page
            if not file.exists() or (anchor and anchor not in _anchors(file)):
                broken.append(f"{_name(page)}: {target}")
    assert broken == []


def test_the_table_of_ops_is_fresh() -> None:
    path = ROOT / "scripts" / "make_op_table.py"
    spec = importlib.util.spec_from_file_location("make_op_table", path)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = ROOT / "docs" / "ops.md"
    assert page.read_text(encoding="utf-8") == script.make(), "run python scripts/make_op_table.py"


def test_the_page_of_commands_lists_every_environment_variable_and_option() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    variables = set(re.findall(r"^(DRESSI_\w+)", inspect.getdoc(config) or "", re.MULTILINE))
    options = set(re.findall(r'"(--[a-z-]+)"', (ROOT / "dressi" / "cli.py").read_text()))
    assert variables and options
    words = set(re.findall(r"[\w-]+", page))
    missing = (variables | options) - words - {"--version"}
    assert missing == set()


@pytest.mark.parametrize("path", [*PAGES, *NOTEBOOKS], ids=_name)
def test_pages_and_notebooks_hold_no_path_of_a_machine(path: Path) -> None:
    assert PRIVATE_PATH.findall(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=_name)
def test_notebooks_are_committed_with_their_outputs(path: Path) -> None:
    """python scripts/run_notebooks.py --save writes them."""
    cells = [
        c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"
    ]
    assert all(cell["execution_count"] for cell in cells)
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any(output["output_type"] == "error" for output in outputs)
    text = "".join("".join(output.get("text", "")) for output in outputs)
    assert "Warning" not in text
    assert path.stat().st_size < 500_000


def _public_modules() -> list[ModuleType]:
    names = ["dressi", "dressi.ad", "dressi.ad.functions", "dressi.packing", "dressi.errors"]
    found = pkgutil.walk_packages(dressi.render.__path__, "dressi.render.")
    names += [m.name for m in found]
    return [importlib.import_module(name) for name in names]


def _public_names(module: ModuleType) -> list[str]:
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    return [n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]


@pytest.mark.parametrize("module", _public_modules(), ids=lambda m: m.__name__)
def test_every_public_name_has_a_docstring(module: ModuleType) -> None:
    missing = []
    for name in _public_names(module):
        value = getattr(module, name)
        if name.startswith("_") or not (inspect.isroutine(value) or inspect.isclass(value)):
            continue
        # A dataclass without a docstring is given its signature.
        if len(inspect.getdoc(value) or "") < 10 or (value.__doc__ or "").startswith(f"{name}("):
            missing.append(name)
    assert missing == []
