"""The parts of one GLSL module while it is written: extensions, declarations, functions, main.

In: strings. Out: the text, with the helper functions that it uses; ``Shader``, what the generator
makes of a substage.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dressi.packing.layout import MOST_PUSHED
from dressi.packing.plan import Binding

# Comparisons that work on scalars too (GLSL's own are for vectors only).
_HELPERS = {
    "lessThan_": ("<", "lessThan"),
    "lessThanEqual_": ("<=", "lessThanEqual"),
    "greaterThan_": (">", "greaterThan"),
    "greaterThanEqual_": (">=", "greaterThanEqual"),
    "equal_": ("==", "equal"),
    "notEqual_": ("!=", "notEqual"),
}

COVER = """gl_Position =\
 vec4(gl_VertexIndex == 1 ? 3.0 : -1.0, gl_VertexIndex == 2 ? 3.0 : -1.0, 0.0, 1.0);"""

FULL_SCREEN = f"""#version 450
// One triangle that covers the viewport.
void main() {{
  {COVER}
}}
"""


FULL_SCREEN_TWICE = FULL_SCREEN.replace("0.0, 1.0);", "0.5 * gl_InstanceIndex, 1.0);")
"""The second triangle lies behind the first."""

LARGE = 2**17
"""Pixels of an image that fills a large device with groups of 128 lanes."""


def tile(size: tuple[int, int], wide: bool) -> tuple[int, int]:
    """Pixels of a workgroup of a dispatch over an image or table, one per lane. wide: of more
    than 8 bytes.

    128 lanes where there are many: a processor holds only so many groups (32 on an H200, where
    groups of 64 lanes left half of its lanes empty and shaders over narrow pixels took 1.3 to 1.4
    times as long); 64 where there are few, for all processors to have some. Rows of 16 wide pixels
    took 1.2 times as long there as rows of 8.
    """
    if size[0] * size[1] < LARGE:
        return 8, 8
    return (8, 16) if wide else (16, 8)


@dataclass
class Places:
    """Where Variables lie: positions in the plan's images and buffers, slots in the uniform
    block."""

    images: dict[int, tuple[int, ...]] = field(default_factory=dict)
    buffers: dict[int, int] = field(default_factory=dict)
    slots: dict[int, int] = field(default_factory=dict)
    n_slots: int = 0


@dataclass
class Shader:
    """What the generator made of one substage."""

    vertex: str = ""
    fragment: str = ""
    outside: str = ""
    """Of the first draw of a sparse pass."""
    compute: str = ""
    bindings: list[Binding] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    clears: list[tuple[float, ...] | None] = field(default_factory=list)
    n_vertices: int = 3
    tile: tuple[int, int] = (8, 8)
    """Pixels of a group."""
    pushed: tuple[int, ...] = ()
    """What is pushed to it."""


class ShaderText:
    """Collects the parts of one shader module."""

    def __init__(self, letter: str) -> None:
        self.letter = letter
        self.declarations: list[str] = []
        self.functions: list[str] = []
        self.extensions: set[str] = set()
        self.fetches: dict[int, str] = {}
        self.known: set[str] = set()

    def is_new(self, name: str) -> bool:
        """Whether something is asked for the first time, and so must be declared."""
        if name in self.known:
            return False
        self.known.add(name)
        return True

    def render(self, body: list[str], head: str = "") -> str:
        text = "\n".join(self.functions + body)
        helpers = [_helper(n) for n in _HELPERS if n + "(" in text]
        extensions = [f"#extension {e} : require" for e in sorted(self.extensions)]
        parts = ["#version 450", *extensions]
        if head:
            parts.append(head)
        if "pushed[" in text:
            block = f"uniform Pushed {{ int pushed[{MOST_PUSHED}]; }};"
            parts.append(f"layout(push_constant) {block}")
        parts += [*self.declarations, *helpers, *self.functions]
        return "\n".join(parts) + "\nvoid main() {\n" + "\n".join(body) + "\n}\n"


def _helper(name: str) -> str:
    op, vector = _HELPERS[name]
    lines = []
    for scalar in ("float", "int"):
        lines.append(f"bool {name}({scalar} a, {scalar} b) {{ return a {op} b; }}")
        prefix = "vec" if scalar == "float" else "ivec"
        for n in (2, 3, 4):
            lines.append(
                f"bvec{n} {name}({prefix}{n} a, {prefix}{n} b) {{ return {vector}(a, b); }}"
            )
    return "\n".join(lines)
