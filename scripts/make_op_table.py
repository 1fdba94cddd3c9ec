"""Writes docs/ops.md, the table of all ops, from the registry and the docstrings of F.

    python scripts/make_op_table.py [--check]

``--check`` writes nothing; the exit status is 1 when the file is not what would be written.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

from dressi.ad import F
from dressi.ad.registry import FREE, MACRO, OPS, Op

TARGET = Path(__file__).resolve().parent.parent / "docs" / "ops.md"

HEAD = """\
# Ops

Written by `scripts/make_op_table.py` from the op registry and the docstrings of `F`; do not edit.

- **inputs**: parameters of the Python function. Numbers, and sequences of 2 to 4 numbers, may stand
  for Variables wherever an op takes several operands.
- **grad**: whether a gradient flows back through the op. The text says to which input, and which
  subgradient is taken where there is a choice.
- **shader**: `frag`: lines of a fragment shader. `raster`: heads a pass of the rasterizer. `comp`:
  a compute dispatch. `macro`: replaced by other ops before packing. `free`: costs nothing, written
  into every shader that uses it. `composed`: a Python function that applies other ops.
- **reads**: how each input is read; one word stands for all. `same`: at the pixel that is computed.
  `any`: at other pixels too, so an earlier pass must have written it. `sampler`: by a hardware
  sampler. `vertex`: by the vertex shader. `scatters`: the output is a buffer that every pixel of
  the input may add to.

Types, sizes and spaces follow [conventions.md](conventions.md); "@ 1x1" is a uniform. How to use
the ops is told in [guide.md](guide.md). The full text of an op: `help(F.lookup)`.
"""

TAIL = """\
## Rows without a function

Rows of the registry that a user does not call: operators, backwards of other ops and the parts of
macros make them. A row without a gradient ends second derivatives.

| op | grad | shader | reads |
|---|---|---|---|
"""


def text_of(function: object) -> str:
    """First paragraph of a docstring, and what the rest says of the gradient, for a cell."""
    first, _, rest = (inspect.getdoc(function) or "").partition("\n\n")
    text = first
    if "gradient" not in first.lower():
        sentences = re.split(r"(?<=[.])\s+", " ".join(rest.split()))
        text = " ".join([first, *(s for s in sentences if "gradient" in s.lower())])
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


def yes(op: Op) -> str:
    """Whether a row lets a gradient through (rows of steps have a backward that gives nothing)."""
    passes = op.backward is not None and (not op.cases or any(c.gradient for c in op.cases))
    return "yes" if passes else "no"


def reads(op: Op) -> str:
    """How the inputs of a row are read."""
    ways = op.reads if len(set(op.reads)) > 1 else op.reads[:1]
    text = "-" if op.kind in (FREE, MACRO) else ", ".join(ways)
    return text + (", scatters" if op.scatter else "")


def row(name: str) -> str:
    """One line of the table for a function of F."""
    function = getattr(F, name)
    parameters = inspect.signature(function).parameters.values()
    inputs = ", ".join(f"\\*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name for p in parameters)
    op = OPS.get(name)
    if inspect.isclass(function):
        gradient, shader, ways = "-", "-", "-"
    elif op is None:
        gradient = "no" if "no gradient" in (inspect.getdoc(function) or "").lower() else "yes"
        shader, ways = "composed", "-"
    else:
        gradient, shader, ways = yes(op), op.kind, reads(op)
    return f"| `{name}` | {inputs} | {gradient} | {shader} | {ways} | {text_of(function)} |"


def heading(module_name: str) -> str:
    """Title and first line of the docstring of a file of ops."""
    short = module_name.rsplit(".", 1)[1]
    if short.startswith("_"):
        return "## Constants\n"
    text = (inspect.getdoc(sys.modules[module_name]) or "").split("\n")[0].replace("``", "`")
    return f"## {short.capitalize()}\n\n{text}\n"


def make() -> str:
    """The whole page."""
    sections: dict[str, list[str]] = {}
    for name in F.__all__:
        sections.setdefault(getattr(F, name).__module__, []).append(name)
    parts = [HEAD]
    for module_name in sorted(sections):
        lines = [row(name) for name in sections[module_name]]
        head = "| op | inputs | grad | shader | reads | text |\n|---|---|---|---|---|---|\n"
        parts += [heading(module_name), head + "\n".join(lines) + "\n"]
    hidden = [op for name, op in OPS.items() if name not in F.__all__]
    lines = [f"| `{op.name}` | {yes(op)} | {op.kind} | {reads(op)} |" for op in hidden]
    parts.append(TAIL + "\n".join(lines) + "\n")
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Writes or checks the page."""
    text = make()
    if "--check" in arguments:
        fresh = TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text
        if not fresh:
            print(
                "docs/ops.md is stale: run python scripts/make_op_table.py",
                file=sys.stderr,
            )
        return 0 if fresh else 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
