"""A Flow as SVG, with a layout of our own.

In: ``Flow``. Out: SVG text. Everything stands in lines: leaves first, then every stage in one line
or more of substages. Between two lines is a gap, left and right of the lines is a gutter. An edge
to the next line is a curve; any other runs through gaps and gutters, where each source has a lane,
so that no edge ever crosses a box.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dressi.inspect.flow import READ, Edge, Flow, Node, StageNodes
from dressi.inspect.words import (
    DASHED,
    LETTER,
    count_text,
    cut,
    escaped,
    rounded_path,
    text_at,
)

BOX, LEAF, SPACE = 216, 170, 26
"""Widths of a substage and of a leaf, and the space between two of them."""
A_LINE = 4
"""Most substages side by side: a drawing as wide as a page of a notebook."""
MOST_FUNCTIONS = 8
"""Lines of Functions of a substage; the rest is in the tooltip."""
TEXT = 13
"""Height of a line of text."""
TITLES = 118
"""Width of the column of titles of stages."""
LANE, GAP, EDGE = 5, 26, 12
"""Distance of two lanes, least height of a gap, margin of the drawing."""
COLORS = ("#2f6db3", "#c0622b", "#3c8a4e", "#8a4fa3", "#b0413e", "#5b6b1f", "#1f8a8a", "#a8548a")

Run = tuple[str, str, str]
"""A horizontal piece of an edge in a gap: out of or into which node, by which gutter."""


@dataclass
class _Box:
    """A node and its place."""

    node: Node
    line: int
    x: float
    width: float
    color: str
    y: float = 0.0
    height: float = 0.0

    def at(self, part: float) -> float:
        """x of a part of the width."""
        return self.x + part * self.width


@dataclass
class _Route:
    """An edge that runs through gaps and gutters."""

    edge: Edge
    source: _Box
    target: _Box
    side: str
    """left, right, or hop: to a box of the same line, below it."""

    @property
    def lane(self) -> Run:
        return (self.source.node.id, "" if self.edge.kind == READ else "update", self.side)

    @property
    def out(self) -> tuple[int, Run]:
        """Gap and run by which it leaves its source."""
        return self.source.line + 1, ("out", *self.lane[:2]) if self.side != "hop" else self.hop

    @property
    def into(self) -> tuple[int, Run]:
        dashed = "" if self.edge.kind == READ else "update"
        return self.target.line, (f"in {self.side}", self.target.node.id, dashed)

    @property
    def hop(self) -> Run:
        return ("hop", self.source.node.id, "")

    @property
    def x_out(self) -> float:
        part = {"left": 0.12, "right": 0.88, "hop": 0.7}[self.side]
        return self.source.at(part if self.edge.kind == READ else 0.95)

    @property
    def x_in(self) -> float:
        part = {"left": 0.07, "right": 0.93, "hop": 0.3}[self.side]
        return self.target.at(part if self.edge.kind == READ else 0.85)


def _lanes(spans: Mapping[Run, tuple[float, float]]) -> tuple[dict[Run, int], int]:
    """Lane of each span, and the number of lanes: spans that overlap never share one."""
    ends: list[float] = []
    found = {}
    for run, (first, last) in sorted(spans.items(), key=lambda item: (item[1], item[0])):
        lane = next((k for k, end in enumerate(ends) if end < first), len(ends))
        ends[lane : lane + 1] = [last]
        found[run] = lane
    return found, len(ends)


class Drawing:
    """The drawing of a Flow. totals: a line about each plan, by name."""

    def __init__(self, flow: Flow, totals: Mapping[str, str]) -> None:
        self.flow = flow
        self.totals = totals
        widest = max([min(A_LINE, len(s.nodes)) for s in flow.stages], default=0)
        self.content = max(widest, 3) * (BOX + SPACE) - SPACE
        self.lines: list[list[_Box]] = []
        self.boxes: dict[str, _Box] = {}
        self.place_boxes()
        self.routes: list[_Route] = []
        self.direct: list[tuple[Edge, _Box, _Box]] = []
        for edge in flow.edges:
            self.route(edge)
        self.place_ports()
        self.place_lanes()
        self.place_lines()

    # -- places

    def place_boxes(self) -> None:
        """Lines, and x from the start of the first box."""
        a_line = max(1, (self.content + SPACE) // (LEAF + SPACE))
        for group in _chunks(self.flow.leaves, a_line):
            self.add_line(group, LEAF, ["#7d8794"] * len(group))
        number = 0
        self.first_line: list[int] = []
        for stage in self.flow.stages:
            self.first_line.append(len(self.lines))
            for group in _chunks(stage.nodes, A_LINE):
                colors = [COLORS[(number + k) % len(COLORS)] for k in range(len(group))]
                number += len(group)
                self.add_line(group, BOX, colors)
        self.first_line.append(len(self.lines))

    def add_line(self, nodes: Sequence[Node], width: float, colors: Sequence[str]) -> None:
        boxes = [
            _Box(node, len(self.lines), k * (width + SPACE), width, colors[k])
            for k, node in enumerate(nodes)
        ]
        self.lines.append(boxes)
        self.boxes |= {box.node.id: box for box in boxes}

    def route(self, edge: Edge) -> None:
        source, target = self.boxes[edge.source], self.boxes[edge.target]
        nearby = source.line == target.line and 0 < target.x - source.x <= BOX + SPACE
        if edge.kind == READ and (nearby or target.line == source.line + 1):
            self.direct.append((edge, source, target))
        elif source.line == target.line and edge.kind == READ:
            self.routes.append(_Route(edge, source, target, "hop"))
        else:
            leaf = not source.node.functions and source.line < self.first_line[0]
            side = "left" if leaf and edge.kind == READ else "right"
            self.routes.append(_Route(edge, source, target, side))

    def place_ports(self) -> None:
        """Where curves leave and enter boxes: apart from each other, in parts of the width."""
        leaving: dict[str, list[Edge]] = {}
        entering: dict[str, list[Edge]] = {}
        for edge, source, target in self.direct:
            if source.line != target.line:
                leaving.setdefault(edge.source, []).append(edge)
                entering.setdefault(edge.target, []).append(edge)
        self.ports: dict[int, list[float]] = {}
        for ends in (leaving, entering):
            for edges in ends.values():
                for k, edge in enumerate(edges):
                    part = 0.2 + 0.6 * (k + 1) / (len(edges) + 1)
                    self.ports.setdefault(id(edge), []).append(part)

    def place_lanes(self) -> None:
        """Lanes of the gutters, then x of the boxes, then lanes of the gaps."""
        sides: dict[str, dict[Run, tuple[float, float]]] = {"left": {}, "right": {}}
        for r in self.routes:
            if r.side in sides:
                a, b = sorted((r.out[0], r.into[0]))
                low, high = sides[r.side].get(r.lane, (a, b))
                sides[r.side][r.lane] = min(low, a), max(high, b)
        left, n_left = _lanes(sides["left"])
        right, n_right = _lanes(sides["right"])
        self.frame_x: float = EDGE + LANE * (n_left + 1)
        start = self.frame_x + TITLES
        for box in self.boxes.values():
            box.x += start
        self.frame_width = TITLES + self.content + EDGE
        end = self.frame_x + self.frame_width
        self.width = end + LANE * (n_right + 1) + EDGE
        self.lane_x: dict[Run, float] = {
            key: self.frame_x - LANE * (k + 1) for key, k in left.items()
        }
        self.lane_x |= {key: end + LANE * (k + 1) for key, k in right.items()}
        spans: list[dict[Run, tuple[float, float]]] = [{} for _ in range(len(self.lines) + 1)]
        for r in self.routes:
            ends = [(r.out, r.x_out, self.lane_x.get(r.lane, r.x_in))]
            if r.side != "hop":
                ends.append((r.into, r.x_in, self.lane_x[r.lane]))
            for (gap, run), here, there in ends:
                start_x, end_x = spans[gap].get(run, (here, there))
                spans[gap][run] = min(start_x, here, there), max(end_x, here, there)
        self.gaps = [_lanes(s) for s in spans]

    def place_lines(self) -> None:
        """y of gaps and lines, from the top."""
        y: float = 2 * EDGE + TEXT * (len(self.totals) + 2)
        self.gap_y: list[float] = []
        for k, line in enumerate(self.lines):
            self.gap_y.append(y)
            y += self.gap_height(k)
            height = max(_height(box.node) for box in line)
            for box in line:
                box.y, box.height = y, height
            y += height
        self.gap_y.append(y)
        self.height = y + self.gap_height(len(self.lines)) + EDGE

    def gap_height(self, gap: int) -> float:
        return GAP + LANE * self.gaps[gap][1]

    def run_y(self, gap: int, run: Run) -> float:
        return self.gap_y[gap] + GAP / 2 + LANE * self.gaps[gap][0][run]

    # -- text

    def render(self) -> str:
        """Return the text."""
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:.0f}" '
            f'height="{self.height:.0f}" viewBox="0 0 {self.width:.0f} {self.height:.0f}" '
            'font-family="Helvetica,Arial,sans-serif" font-size="10">',
            f"<defs>{_markers()}</defs>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            *self.legend(),
        ]
        for number, stage in enumerate(self.flow.stages):
            parts += self.frame(number, stage)
        parts += [self.curve(*d) for d in self.direct]
        parts += [self.polyline(r) for r in self.routes]
        for line in self.lines:
            parts += [_box(box) for box in line]
        return "\n".join([*parts, "</svg>"]) + "\n"

    def legend(self) -> list[str]:
        parts, y = [], float(EDGE + TEXT)
        for name, text in self.totals.items():
            shade = "#999999" if name == "static" else "#222222"
            parts.append(text_at(EDGE, y, f"{name}: {text}", f'fill="{shade}" font-weight="bold"'))
            y += TEXT
        x = float(EDGE)
        for text, fill, stroke, more in (
            ("runs in every step", "#e8eef7", "#9db2d1", ""),
            ("clean: runs only after a change", "#fafafa", "#dddddd", ""),
            ("leaf", "#ffffff", "#7d8794", ' rx="6"'),
        ):
            parts.append(
                f'<rect x="{x:.0f}" y="{y - 7:.0f}" width="20" height="11" fill="{fill}" '
                f'stroke="{stroke}"{more}/>'
            )
            parts.append(text_at(x + 26, y + 2, text))
            x += 44 + LETTER * len(text)
        for text, dash in (("written, then read", ""), ("update of a leaf", DASHED)):
            parts.append(f'<path d="M{x:.0f} {y - 1:.0f}h24" stroke="#555555"{dash}/>')
            parts.append(text_at(x + 30, y + 2, text))
            x += 48 + LETTER * len(text)
        return parts

    def frame(self, number: int, stage: StageNodes) -> list[str]:
        first, last = self.first_line[number], self.first_line[number + 1] - 1
        top = self.lines[first][0].y - 8
        bottom = self.lines[last][0].y + self.lines[last][0].height + 8
        fill, stroke = ("#fafafa", "#dddddd") if stage.clean else ("#e8eef7", "#9db2d1")
        shade = "#999999" if stage.clean else "#222222"
        s = stage.stage
        n_functions = sum(b.n_functions for b in s.substages)
        title = f"{stage.plan} {s.name}"
        rows = [title, f"{s.kind} {s.width}x{s.height}", count_text(len(s.substages), "substage")]
        rows.append(count_text(n_functions, "function"))
        parts = [
            f"<g><title>{escaped(', '.join(rows))}</title>",
            f'<rect x="{self.frame_x:.0f}" y="{top:.1f}" width="{self.frame_width}" '
            f'height="{bottom - top:.1f}" rx="4" fill="{fill}" stroke="{stroke}"/>',
        ]
        for k, row in enumerate(rows):
            bold = ' font-weight="bold"' if k == 0 else ""
            text = cut(row, TITLES - 12)
            y = top + 20 + TEXT * k
            parts.append(text_at(self.frame_x + 8, y, text, f'fill="{shade}"{bold}'))
        return [*parts, "</g>"]

    def curve(self, edge: Edge, a: _Box, b: _Box) -> str:
        if a.line == b.line:
            y = a.y + a.height / 2
            return self.path(edge, a, b, f"M{a.at(1):.1f} {y:.1f}H{b.x - 2:.1f}")
        start, x = a.at(self.ports[id(edge)][0]), b.at(self.ports[id(edge)][1])
        top, bottom = a.y + a.height, b.y - 2
        middle = f"{(top + bottom) / 2:.1f}"
        d = f"M{start:.1f} {top:.1f}C{start:.1f} {middle} {x:.1f} {middle} {x:.1f} {bottom:.1f}"
        return self.path(edge, a, b, d)

    def polyline(self, r: _Route) -> str:
        a, b = r.source, r.target
        y = self.run_y(*r.out)
        points = [(r.x_out, a.y + a.height), (r.x_out, y)]
        if r.side == "hop":
            points += [(r.x_in, y), (r.x_in, b.y + b.height + 2)]
        else:
            x, y_in = self.lane_x[r.lane], self.run_y(*r.into)
            points += [(x, y), (x, y_in), (r.x_in, y_in), (r.x_in, b.y - 2)]
        return self.path(r.edge, a, b, rounded_path(points))

    def path(self, edge: Edge, a: _Box, b: _Box, d: str) -> str:
        title = f"{a.node.label} -> {b.node.label}\n" + "\n".join(edge.values)
        dash = ""
        if edge.kind != READ:
            title, dash = f"{edge.kind}: {title}", DASHED
        opacity = ' opacity="0.4"' if edge.clean else ""
        arrow = a.color.lstrip("#")
        return (
            f'<path d="{d}" fill="none" stroke="{a.color}" marker-end="url(#a{arrow})"{dash}'
            f"{opacity}><title>{escaped(title)}</title></path>"
        )


def _markers() -> str:
    return "".join(
        f'<marker id="a{c[1:]}" viewBox="0 0 6 6" refX="4" refY="3" markerWidth="5" '
        f'markerHeight="5" orient="auto"><path d="M0 0L6 3L0 6z" fill="{c}"/></marker>'
        for c in (*COLORS, "#7d8794")
    )


def _height(node: Node) -> float:
    """Of a box by its text."""
    if node.id.startswith("leaf"):
        return TEXT + 8
    rows = min(len(node.functions), MOST_FUNCTIONS) + (len(node.functions) > MOST_FUNCTIONS)
    return TEXT * (rows + 2) + 14


def _box(box: _Box) -> str:
    node = box.node
    full = "\n".join([node.label, *node.functions, *(f"writes {w}" for w in node.writes)])
    pale = ' opacity="0.45"' if node.clean else ""
    shape = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width}" height="{box.height:.1f}"'
    parts = [f"<g{pale}><title>{escaped(full)}</title>"]
    y = box.y + TEXT + 1
    if node.id.startswith("leaf"):
        parts.append(f'<rect {shape} rx="9" fill="#ffffff" stroke="{box.color}"/>')
        text = cut(node.label, box.width - 12)
        middle = 'text-anchor="middle"'
        return "".join([*parts, text_at(box.at(0.5), y, text, middle), "</g>"])
    parts.append(f'<rect {shape} rx="2" fill="#ffffff" stroke="{box.color}"/>')
    parts.append(
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="4" height="{box.height:.1f}" '
        f'fill="{box.color}"/>'
    )
    label = cut(node.label, box.width - 20, 6.4)
    parts.append(text_at(box.x + 10, y + 1, label, 'font-weight="bold"'))
    y += 4
    for name in node.functions[:MOST_FUNCTIONS]:
        y += TEXT
        op, _, where = name.partition("  ")
        op = cut(op, 110)
        parts.append(text_at(box.x + 10, y, op))
        where = cut(where, box.width - 24 - LETTER * len(op), keep_end=True)
        parts.append(text_at(box.at(1) - 6, y, where, 'text-anchor="end" fill="#888888"'))
    if len(node.functions) > MOST_FUNCTIONS:
        y += TEXT
        text = f"+ {len(node.functions) - MOST_FUNCTIONS} more"
        parts.append(text_at(box.x + 10, y, text, 'fill="#888888" font-style="italic"'))
    written = cut("\u2192 " + (", ".join(node.writes) or "nothing"), box.width - 20)
    bottom = box.y + box.height - 6
    parts.append(text_at(box.x + 10, bottom, written, f'fill="{box.color}"'))
    return "".join([*parts, "</g>"])


def _chunks(nodes: Sequence[Node], n: int) -> list[Sequence[Node]]:
    return [nodes[k : k + n] for k in range(0, len(nodes), n)]
