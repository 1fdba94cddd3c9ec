"""Hooks of mkdocs.yml: the pages of docs/ are written for a checkout, and link to its files.

``on_files`` adds the pages beside docs/ (ARCHITECTURE.md ...) and every file or folder of the
checkout that a page links to; ``on_page_markdown`` turns those links to the copies;
``on_post_build`` raises unless every public name has its entry in the built reference.
"""

from __future__ import annotations

import posixpath
import re
import zlib
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
TOP = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
HOME = "README.md"
"""The home page stands for it in the site."""

LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)

REFERENCE = (
    "dressi",
    "dressi.ad",
    "dressi.ad.functions",
    "dressi.packing",
    "dressi.engine",
    "dressi.parallel",
    "dressi.render.raster",
    "dressi.render.shading",
    "dressi.render.ibl",
    "dressi.render.camera",
    "dressi.render.scene",
    "dressi.render.fit",
    "dressi.render.io",
    *(["dressi.torch"] if find_spec("torch") else []),
)
"""Packages whose ``__all__`` is the public interface. One is checked only where PyTorch is."""


def _folder(page: str) -> str:
    """Return the folder of a page in the checkout."""
    return "" if page in TOP else posixpath.dirname(f"docs/{page}")


def _in_checkout(page: str, target: str) -> str:
    """Return what a link means, relative to the checkout."""
    return posixpath.normpath(posixpath.join(_folder(page), target))


def _in_site(path: str) -> str:
    """Return where a file or folder of the checkout lies in the site, relative to docs/."""
    if path == HOME:
        return "index.md"
    if path in TOP:
        return path
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return f"source/{path}/index.md"
    # Browsers show text, and download what they take for a program.
    return f"source/{path}.txt" if path.endswith(".py") else f"source/{path}"


def _linked(page: str, text: str) -> Iterator[str]:
    """Return the files and folders outside docs/ that a page links to."""
    for match in LINK.finditer(FENCE.sub("", text)):
        path = _in_checkout(page, match[1])
        site = _in_site(path)
        if site.startswith("source/") and (ROOT / path).exists():
            yield path
            if site.endswith("/index.md"):
                yield from (f.relative_to(ROOT).as_posix() for f in _listed(ROOT / path))


def _listed(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.py"))


def _copy(path: str, config: MkDocsConfig) -> File:
    site, source = _in_site(path), ROOT / path
    outside = InclusionLevel.NOT_IN_NAV
    if not source.is_dir():
        return File.generated(config, site, abs_src_path=str(source), inclusion=outside)
    lines = [f"- [{f.name}]({f.name}.txt)" for f in _listed(source)]
    text = "\n".join([f"# {path}", "", *lines])
    return File.generated(config, site, content=text, inclusion=outside)


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add the pages beside docs/ and all files of the checkout that pages link to."""
    for name in TOP:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    pages = {f.src_uri: f.content_string for f in files.documentation_pages()}
    paths = {path for page, text in pages.items() for path in _linked(page, text)}
    for path in sorted(paths):
        files.append(_copy(path, config))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links to files of the checkout into links to their copies."""
    uri = page.file.src_uri
    if uri.startswith("source/"):
        return markdown

    def turned(match: re.Match[str]) -> str:
        site = _in_site(_in_checkout(uri, match[1]))
        return posixpath.relpath(site, posixpath.dirname(uri) or ".") + (match[2] or "")

    parts = FENCE.split(markdown)  # every second one is a fenced block
    return "".join(part if i % 2 else LINK.sub(turned, part) for i, part in enumerate(parts))


def public_names() -> Iterator[tuple[str, str]]:
    """Return everything public that has an entry of its own: its name, and where it is defined.

    A function that is named as its file hides that file in the package, and the other way round
    for readers of the source: such a function has its entry under the second name."""
    for package in REFERENCE:
        module = import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if not isinstance(value, ModuleType):
                # Types of Variables are members of the class VType.
                own = isinstance(value, Enum)
                where = (
                    f"{package}.{type(value).__name__}"
                    if own
                    else getattr(value, "__module__", package)
                )
                yield f"{package}.{name}", f"{where}.{name}"


def on_post_build(config: MkDocsConfig, **_: Any) -> None:
    """Raise PluginError unless the built reference has every public name."""
    inventory = Path(config.site_dir) / "objects.inv"
    if "mkdocstrings" not in config.plugins:
        return
    *_header, packed = inventory.read_bytes().split(b"\n", 4)
    entries = {line.split(" ", 1)[0] for line in zlib.decompress(packed).decode().splitlines()}
    missing = [name for name, defined in public_names() if not entries & {name, defined}]
    if missing:
        raise PluginError(f"the reference lacks {len(missing)} names: {', '.join(missing)}")
