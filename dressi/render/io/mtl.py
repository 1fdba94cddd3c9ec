"""Material libraries of OBJ files (.mtl) as words.

In: the names behind ``mtllib``. Out: for each material its statements, split in words. Source:
Wavefront, "MTL material format"; Pr, Pm and norm are the physically based additions that
modellers write.
"""

from __future__ import annotations

from pathlib import Path

_MAP_OPTIONS = {  # options of map_Kd before the file name -> most arguments each takes
    **dict.fromkeys(("-blendu", "-blendv", "-boost", "-bm", "-cc", "-clamp", "-imfchan"), 1),
    **dict.fromkeys(("-texres", "-type"), 1),
    "-mm": 2,
    **dict.fromkeys(("-o", "-s", "-t"), 3),
}


def read_mtl(
    path: Path, libraries: list[str], file: str, warnings: list[str]
) -> dict[str, dict[str, list[str]]]:
    """Material -> keyword -> words behind it, of all libraries; the first of a name counts.

    path: the OBJ file; libraries lie relative to its folder. warnings: gets a line for each that
    cannot be read.
    """
    names: list[str] = []
    for written in libraries:  # one name with spaces, or several names
        whole = (path.parent / written).is_file() or not written
        names += [written] if whole else written.split()
    found: dict[str, dict[str, list[str]]] = {}
    for name in names:
        try:
            if not (path.parent / name).is_file():  # a pipe would never end
                raise OSError
            text = (path.parent / name).read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError):
            warnings.append(f"{file}: mtllib {name} cannot be read")
            continue
        material: dict[str, list[str]] = {}
        for content in text.split("\n"):
            words = content.partition("#")[0].split()
            if words and words[0] == "newmtl":
                material = found.setdefault(" ".join(words[1:]), {})
            elif words:
                material.setdefault(words[0], words[1:])
    return found


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def map_file(words: list[str]) -> str:
    """The file name among the words behind a map, without its options; "" where there is none."""
    while words and words[0] in _MAP_OPTIONS:
        most, option, words = _MAP_OPTIONS[words[0]], words[0], words[1:]
        if option in ("-o", "-s", "-t"):  # one to three numbers
            while most and len(words) > 1 and _is_number(words[0]):
                words, most = words[1:], most - 1
        else:
            words = words[most:]
    return " ".join(words)
