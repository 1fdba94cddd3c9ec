"""Material libraries of OBJ files (.mtl) as statements.

In: the names behind ``mtllib``. Out: for each material its statements: keyword and what is behind
it. Source: Wavefront, "MTL material format"; Pr, Pm and norm are the physically based additions
that modellers write.
"""

from __future__ import annotations

import re
from pathlib import Path

from dressi.errors import LoadError
from dressi.render.io.sources import find_beside, is_number, not_there, read_text

_MAP_OPTIONS = {  # options of map_Kd before the file name -> most arguments each takes
    **dict.fromkeys(("-blendu", "-blendv", "-boost", "-bm", "-cc", "-clamp", "-imfchan"), 1),
    **dict.fromkeys(("-texres", "-type"), 1),
    "-mm": 2,
    **dict.fromkeys(("-o", "-s", "-t"), 3),
}
_COMMENT = re.compile(r"(?:^|\s)#(?:\s.*)?$", re.DOTALL)


def without_comment(content: str) -> str:
    """A statement that holds a name, without its comment: "#" alone, or before a blank.

    Names may hold the sign: "tex#1.png", "Material #25". Lines that begin with it are comments.
    """
    content = content.strip()
    return "" if content.startswith("#") else _COMMENT.sub("", content)


def read_mtl(
    path: Path, libraries: list[str], file: str, warnings: list[str]
) -> dict[str, dict[str, str]]:
    """Material -> keyword -> text behind it, of all libraries; the first of a name counts.

    path: the OBJ file; libraries lie relative to its folder. warnings: gets a line for each that
    cannot be read.
    """
    found: dict[str, dict[str, str]] = {}
    for name, library in _libraries(path.parent, libraries):
        if library is None:
            warnings.append(f"{file}: mtllib {not_there(path.parent, name)}")
            continue
        try:
            text = read_text(library, str(library))
        except LoadError as error:
            warnings.append(f"{file}: mtllib {name} cannot be read: {error}")
            continue
        material: dict[str, str] = {}
        for line in text.split("\n"):
            keyword, _, rest = without_comment(line).replace("\t", " ").partition(" ")
            if keyword == "newmtl":
                material = found.setdefault(" ".join(rest.split()), {})
            elif keyword:
                material.setdefault(keyword, rest.strip())
    return found


def _libraries(folder: Path, written: list[str]) -> list[tuple[str, Path | None]]:
    """Names and files behind ``mtllib``: one name with blanks, or several names."""
    found: list[tuple[str, Path | None]] = []
    for text in written:
        whole = find_beside(folder, text)
        if whole is not None or len(text.split()) < 2:
            found.append((text, whole))
            continue
        parts = [(name, find_beside(folder, name)) for name in text.split()]
        found += parts if any(path for _, path in parts) else [(text, None)]
    return found


def map_file(text: str) -> str:
    """The file name behind a map, without its options; "" where there is none."""

    def after_word(rest: str) -> str:
        return "".join(rest.split(None, 1)[1:])

    while text.split(None, 1)[:1] and (option := text.split(None, 1)[0]) in _MAP_OPTIONS:
        most, text = _MAP_OPTIONS[option], after_word(text)
        if option in ("-o", "-s", "-t"):  # one to three numbers
            while most and len(text.split(None, 1)) > 1 and is_number(text.split(None, 1)[0]):
                text, most = after_word(text), most - 1
        else:
            for _ in range(most):
                text = after_word(text)
    return text.strip()
