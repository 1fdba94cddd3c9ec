"""Plans as pictures: functions in substages in stages (the paper's figure of stage packing).

In: plans by name ("static", "step"). Out: Graphviz DOT, SVG (see ``svg.py``), and ``GraphView``,
which a notebook shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dressi.errors import DressiError, GraphError
from dressi.inspect.flow import READ, Flow, Node, StageNodes, flow, ordered
from dressi.inspect.svg import Drawing
from dressi.packing.plan import Plan

__all__ = ["GraphView", "graph_dot", "graph_svg", "graph_view"]


@dataclass(frozen=True)
class GraphView:
    """A drawing of plans. Notebooks show it; ``save`` writes it to a file."""

    dot: str
    """For Graphviz: ``dot -Tpdf plan.dot -o plan.pdf``."""
    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<GraphView: {len(self.svg)} bytes of SVG; save('plan.svg') or save('plan.dot')>"

    def save(self, path: str | Path) -> None:
        """Write the drawing; the suffix says which: ``.svg`` or ``.dot``. Raises GraphError for
        another suffix, DressiError when the file cannot be written."""
        texts = {".svg": self.svg, ".dot": self.dot}
        file = Path(path)
        text = texts.get(file.suffix.lower())
        if text is None:
            raise GraphError(f"cannot save a graph as '{file}': needs one of {', '.join(texts)}")
        try:
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise DressiError(f"cannot write {file}: {error}") from None


def graph_view(plans: Mapping[str, Plan]) -> GraphView:
    """Both drawings of the plans."""
    return GraphView(graph_dot(plans), graph_svg(plans))


def graph_svg(plans: Mapping[str, Plan]) -> str:
    """A self-contained SVG: stages from top to bottom, substages side by side, leaves on top,
    updates dashed, what is clean pale. Full texts are tooltips."""
    totals = {name: _totals(plan) for name, plan in ordered(plans).items()}
    return Drawing(flow(plans), totals).render()


def graph_dot(plans: Mapping[str, Plan]) -> str:
    """Graphviz DOT: a cluster per stage, in it one per substage, in it a node per Function; edges
    are labelled with what they carry, updates of leaves are dashed, what is clean is pale."""
    drawn = flow(plans)
    lines = [
        "digraph plans {",
        "  compound=true; newrank=true; rankdir=TB; nodesep=0.15;",
        '  node [shape=box, fontname="Helvetica", fontsize=9, height=0.2, margin="0.06,0.02"];',
        '  edge [fontname="Helvetica", fontsize=8, color="#4c6a92"];',
    ]
    for leaf in drawn.leaves:
        color = _color(leaf.clean)
        lines.append(f"  {leaf.id} [label={_quoted(leaf.label)}, style=rounded, {color}];")
    for k, stage in enumerate(drawn.stages):
        lines += _stage(k, stage)
    lines += _edges(drawn)
    return "\n".join([*lines, "}"]) + "\n"


def _totals(plan: Plan) -> str:
    return (
        f"{plan.n_functions} functions, {plan.n_substages} substages, {len(plan.stages)} stages, "
        f"{plan.n_bytes / 1e6:.1f} MB"
    )


def _stage(number: int, stage: StageNodes) -> Iterator[str]:
    s = stage.stage
    title = f"{stage.plan} {s.name}  {s.kind} {s.width}x{s.height}"
    fill = "#fafafa" if stage.clean else "#e8eef7"
    yield f"  subgraph cluster_stage{number} {{"
    yield f'    label={_quoted(title)}; style=filled; fillcolor="{fill}";'
    yield f"    {_color(stage.clean, ';')}"
    for node in stage.nodes:
        yield f"    subgraph cluster_{node.id} {{"
        yield f'      label={_quoted(node.label)}; style=filled; fillcolor="#ffffff";'
        names = _functions(node)
        for i, name in enumerate(node.functions or (node.label,)):
            yield f"      {names[i]} [label={_quoted(name)}, {_color(stage.clean)}];"
        if len(names) > 1:  # one below the other
            yield f"      {' -> '.join(names)} [style=invis];"
        yield "    }"
    yield "  }"


def _functions(node: Node) -> list[str]:
    """Names of the nodes of the Functions of a substage (one without any gets one of its own)."""
    return [f"{node.id}f{i}" for i in range(max(1, len(node.functions)))]


def _edges(drawn: Flow) -> Iterator[str]:
    """Edges end at Functions, and are cut off at the borders of their substages."""
    nodes = {n.id: n for stage in drawn.stages for n in stage.nodes}
    for e in drawn.edges:
        parts = [f"label={_quoted(chr(10).join(e.values))}"]
        source, target = e.source, e.target
        if source in nodes:
            parts.append(f"ltail=cluster_{source}")
            source = _functions(nodes[source])[-1]
        if target in nodes:
            parts.append(f"lhead=cluster_{target}")
            target = _functions(nodes[target])[0]
        if e.kind != READ:
            parts += ["style=dashed", "constraint=false", f"xlabel={_quoted(e.kind)}"]
        if e.clean:
            parts.append(_color(True))
        yield f"  {source} -> {target} [{', '.join(parts)}];"


def _color(clean: bool, separator: str = ",") -> str:
    if not clean:
        return f'color="#35507a"{separator} fontcolor="#000000"'
    return f'color="#c8c8c8"{separator} fontcolor="#9a9a9a"'


def _quoted(text: str) -> str:
    text = re.sub(r"[^\n\x20-\x7e\xa0-\ud7ff\ue000-\uffff]", "\ufffd", text)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
