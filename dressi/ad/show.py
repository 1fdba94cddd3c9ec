"""Graphs as text. In: output Variables. Out: a string for reports and tests."""

from __future__ import annotations

from collections.abc import Iterable

from dressi.ad.graph import Variable, leaves, short, topological


def graph_text(outputs: Iterable[Variable]) -> str:
    """The graph as text, one Function per line: ``%7 VEC3@4x4 = mul(%5, albedo)  # file:line``."""
    outs = list(outputs)
    lines = [
        f"leaf {v.label()}{'  requires_grad' if v.requires_grad else ''}" for v in leaves(outs)
    ]
    for f in topological(outs):
        args = ", ".join(v.name or f"%{v.uid}" for v in f.inputs)
        attrs = "".join(f", {k}={short(v)}" for k, v in f.attrs)
        lines.append(f"{f.output.label()} = {f.op.name}({args}{attrs})  # {f.line}")
    lines.append("return " + ", ".join(v.name or f"%{v.uid}" for v in outs))
    return "\n".join(lines)
