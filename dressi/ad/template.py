"""Templates of GLSL: texts with markers ``{name}``, which are filled strictly.

In: a template and what its markers stand for. Out: GLSL. A template is filled twice. First the row
of an op puts in its numbers and pieces of text (``expand_glsl``). Then the generator of shaders
puts in the names of values, types and functions (``fill_glsl``); its markers are those of
``GENERATED``. At either time a marker that nobody knows, and a value for which there is no marker,
is a ShaderError that names the op and the marker. Braces around anything but a name belong to GLSL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib import resources

from dressi.errors import ShaderError

MARKER = re.compile(r"\{([A-Za-z_]\w*)\}")

GENERATED = re.compile(
    r"y|T|pos|layer|primitive|wy|hy|ly|add|buffer|inner|store|(x|T|w|h|l|fetch|sample)\d+"
)
"""The markers of the generator of shaders; ``kernels.Kernel`` says what they mean."""

Value = str | int | Callable[[], str]
"""What a marker stands for. A function is called where the marker is found."""


def expand_glsl(op: str, template: str, **values: Value) -> str:
    """Returns the template with the values in the place of their markers.

    Markers of the generator stay, unless a value replaces them. op: the name for errors. Raises
    ShaderError for any other marker without a value, and for a value without a marker.
    """
    return _filled(op, template, values, values, lambda name: GENERATED.fullmatch(name) is not None)


def fill_glsl(
    op: str, template: str, values: Mapping[str, Value], needed: Collection[str] = ()
) -> str:
    """Returns the template with all markers filled.

    op: the name for errors. needed: the markers that must be there. Raises ShaderError for a marker
    without a value, and for one of ``needed`` that is not there.
    """
    return _filled(op, template, values, needed, lambda name: False)


def expand_kernel(op: str, name: str, **values: Value) -> tuple[str, str]:
    """Returns the two parts of an expanded kernel: what stands in front of main(), and its body.

    name: of the file in the folder of kernels, without ``.glsl``. Lines at its top that begin with
    ``//!`` say what its markers mean, and are left out. Raises ShaderError as ``expand_glsl`` does.
    """
    front, _, rest = expand_glsl(op, _kernel(name), **values).partition("void main() {\n")
    return front.strip(), rest.rstrip().removesuffix("}").strip()


@cache
def _kernel(name: str) -> str:
    file = resources.files("dressi.ad.functions") / "kernels" / f"{name}.glsl"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("//!"))


def _filled(
    op: str,
    template: str,
    values: Mapping[str, Value],
    needed: Collection[str],
    stays: Callable[[str], bool],
) -> str:
    found = set()

    def value(match: re.Match[str]) -> str:
        name = match[1]
        found.add(name)
        if name not in values:
            if stays(name):
                return match[0]
            known = " ".join(f"{{{n}}}" for n in sorted(values)) or "none"
            raise ShaderError(f"{op}: nothing is known of the marker {match[0]}; known: {known}")
        given = values[name]
        return given() if callable(given) else str(given)

    text = MARKER.sub(value, template)
    unused = [name for name in needed if name not in found]
    if unused:
        names = " ".join(f"{{{n}}}" for n in unused)
        raise ShaderError(f"{op}: its GLSL has no marker {names}, which must be in it")
    return text
