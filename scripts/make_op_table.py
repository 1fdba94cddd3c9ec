"""Writes docs/ops.md, the table of all ops, from the registry and the docstrings of F.

    python scripts/make_op_table.py [--check | --measure]

``--check`` writes nothing; the exit status is 1 when the file is not what would be written.
``--measure`` runs the cases of every op on a device first (DRESSI_DEVICE) and keeps the worst
errors in docs/op_errors.json, from which the table takes them; without it no device is needed.
"""

from __future__ import annotations

import inspect
import json
import math
import re
import sys
from pathlib import Path

from dressi.ad import F
from dressi.ad.registry import FREE, MACRO, OPS, Op

DOCS = Path(__file__).resolve().parent.parent / "docs"
TARGET, ERRORS = DOCS / "ops.md", DOCS / "op_errors.json"

HEAD = """\
# Ops

Written by `scripts/make_op_table.py` from the op registry and the docstrings of `F`; do not edit.

- **inputs**: parameters of the Python function. Numbers, and sequences of 2 to 4 numbers, may stand
  for Variables wherever an op takes several operands.
- **grad**: whether a gradient flows back through the op. The text says to which input, and which
  subgradient is taken where there is a choice.
- **error**: the worst relative error of the values and of the gradients, against float64, over the
  cases of the registry, rounded up to one digit; measured on {device}, {driver}. `-`: no cases of
  its own, or no gradient.
- **shader**: `frag`: lines of a fragment shader. `raster`: heads a pass of the rasterizer. `comp`:
  a compute dispatch. `macro`: replaced by other ops before packing. `free`: costs nothing, written
  into every shader that uses it. `composed`: a Python function that applies other ops.
- **reads**: how each input is read; one word stands for all. `same`: at the pixel that is computed.
  `any`: at other pixels too, so an earlier pass must have written it. `sampler`: by a hardware
  sampler. `vertex`: by the vertex shader. `scatters`: the output is a buffer that every pixel of
  the input may add to.

Types, sizes and spaces follow [conventions.md](conventions.md); "@ 1x1" is a uniform. How to use
the ops is told in [guide.md](guide.md). The full text of an op: `help(F.lookup)`. Ops of one
subject are in a family, `F.bits`, `F.image`, `F.linalg` or `F.nn`; messages name them without it.
"""

TAIL = """\
## Rows without a function

Rows of the registry that a user does not call: operators, backwards of other ops and the parts of
macros make them. A row without a gradient ends second derivatives.

| op | grad | error | shader | reads |
|---|---|---|---|---|
"""


def op_name(name: str) -> str:
    """Name of the row of a function of F: without its family."""
    return name.rpartition(".")[2]


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


def round_up(error: float) -> float:
    """To one digit, so that small changes of a driver change nothing."""
    if error <= 0.0 or not math.isfinite(error):
        return error
    unit = 10.0 ** math.floor(math.log10(error))
    return float(f"{math.ceil(error / unit - 1e-9) * unit:.0e}")


def measure() -> dict[str, object]:
    """The worst errors of every op with cases, on a device. Raises RuntimeError naming an op that
    is off there."""
    from dressi import DressiAD
    from dressi.apps.doctor import examine_ops
    from dressi.apps.report import identity

    with DressiAD() as ad:
        who = identity(ad)
    ops: dict[str, list[float | None]] = {}
    for found in examine_ops(None):
        if not found.ok or found.forward is None:
            raise RuntimeError(f"{found.check} is off on {who['device']}: {found.worst}")
        both = (found.forward, found.gradient)
        ops[found.check.removeprefix("F.")] = [None if e is None else round_up(e) for e in both]
    return {"device": who["device"], "driver": who["driver"], "ops": ops}


def stored() -> dict:
    """What was measured last."""
    return json.loads(ERRORS.read_text(encoding="utf-8"))


def error(op: Op | None, errors: dict) -> str:
    """The errors of a row, forward and gradient."""
    if op is None or not op.cases:
        return "-"
    if op.name not in errors:
        return "not measured"
    return " / ".join("-" if e is None else f"{e:g}" for e in errors[op.name])


def row(name: str, errors: dict) -> str:
    """One line of the table for a function of F."""
    function = F.public_ops()[name]
    parameters = inspect.signature(function).parameters.values()
    inputs = ", ".join(f"\\*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name for p in parameters)
    op = OPS.get(op_name(name))
    if inspect.isclass(function):
        gradient, shader, ways = "-", "-", "-"
    elif op is None:
        gradient = "no" if "no gradient" in (inspect.getdoc(function) or "").lower() else "yes"
        shader, ways = "composed", "-"
    else:
        gradient, shader, ways = yes(op), op.kind, reads(op)
    cells = (f"`{name}`", inputs, gradient, error(op, errors), shader, ways, text_of(function))
    return f"| {' | '.join(cells)} |"


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
    functions = F.public_ops()
    for name in sorted(functions, key=op_name):
        sections.setdefault(functions[name].__module__, []).append(name)
    known = stored()
    parts = [HEAD.replace("{device}", known["device"]).replace("{driver}", known["driver"])]
    for module_name in sorted(sections):
        lines = [row(name, known["ops"]) for name in sections[module_name]]
        head = "| op | inputs | grad | error | shader | reads | text |\n" + "|---" * 7 + "|\n"
        parts += [heading(module_name), head + "\n".join(lines) + "\n"]
    shown = {op_name(name) for name in functions}
    hidden = [op for name, op in OPS.items() if name not in shown]
    lines = [
        f"| `{op.name}` | {yes(op)} | {error(op, known['ops'])} | {op.kind} | {reads(op)} |"
        for op in hidden
    ]
    parts.append(TAIL + "\n".join(lines) + "\n")
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Writes or checks the page."""
    if "--measure" in arguments:
        # An op a line: what changes is seen.
        text = json.dumps(measure(), indent=1)
        text = re.sub(r"\[\s+([^\[\]]*?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
        ERRORS.write_text(text + "\n", encoding="utf-8")
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
