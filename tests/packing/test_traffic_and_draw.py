"""Bytes that a Plan moves, and its pictures: what flows where, DOT, SVG."""

from __future__ import annotations

import itertools
import random
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from dressi.ad import F, Variable, build_backward, simplify
from dressi.ad.simplify import materialize
from dressi.ad.vtype import FLOAT, VEC3
from dressi.errors import DressiError, GraphError
from dressi.inspect.draw import GraphView, graph_dot, graph_svg, graph_view
from dressi.inspect.flow import COPY, IN_PLACE, READ, flow
from dressi.inspect.traffic import (
    Traffic,
    plan_traffic,
    stage_traffic,
    substage_traffic,
    update_traffic,
)
from dressi.packing import Plan, pack
from dressi.packing.limits import LLVMPIPE, MINIMUM
from dressi.packing.plan import Binding, BufferPlan, ImagePlan, StagePlan, SubstagePlan
from dressi.testing.random_graphs import random_graph

R32F = 4 * 8 * 4
"""Bytes of an image of the hand-made plans: 8 x 4, one float."""
Box = tuple[float, float, float, float]


def image(index: int, name: str, key: int | None = None) -> ImagePlan:
    return ImagePlan(index, name, "R32F", 8, 4, key)


def sub(name: str, reads: dict[int, str], outputs: tuple[int, ...] = ()) -> SubstagePlan:
    bound = tuple(Binding(k, kind, i) for k, (i, kind) in enumerate(reads.items()))
    functions = (f"{name}_a  fit.py:1", f"{name}_b  fit.py:2")
    return SubstagePlan(name, bound, outputs, functions=functions, n_functions=2)


def stage(index: int, *substages: SubstagePlan) -> StagePlan:
    return StagePlan(f"stage {index}", "graphics", 8, 4, substages)


def chain() -> Plan:
    """
    x -> [ one ] -> a -> [ two ] -> b -> | [ three ] -> c, x |
    y -------------------------------------/           c -> y (copy)
    """
    images = (image(0, "x", 10), image(1, "y", 20), *(image(k + 2, "abc"[k]) for k in range(3)))
    first = stage(0, sub("one", {0: "input"}, (2,)), sub("two", {2: "input"}, (3,)))
    last = stage(1, sub("three", {3: "texture", 1: "input"}, (4, 0)))
    return Plan("step", images, (), (first, last), ((4, 1),))


def split() -> dict[str, Plan]:
    """x -> [ once ] -> kept image   (static), kept and p -> [ each ] -> p in place   (step)"""
    once = Plan(
        "static",
        (image(0, "x", 10), image(1, "kept", 99)),
        (),
        (stage(0, sub("once", {0: "input"}, (1,))),),
    )
    each = Plan(
        "step",
        (image(0, "kept", 99), image(1, "p", 30)),
        (),
        (stage(0, sub("each", {0: "texture", 1: "input"}, (1,))),),
    )
    return {"step": each, "static": once}


def packed(seed: int) -> Plan:
    g = random_graph(seed, 60)
    outputs = [g.loss, *g.gradients().values()]
    made = [
        materialize(v) if v.creator is None or v.creator.op.scatter else v
        for v in simplify(outputs)
    ]
    return pack(made, [], MINIMUM).plan


def large(n_stages: int, seed: int) -> Plan:
    """Stages of 1 to 6 substages of 40 Functions that read what any earlier ones wrote."""
    rng = random.Random(seed)
    images = [image(k, f"leaf{k}", 1000 + k) for k in range(9)]
    stages = []
    for i in range(n_stages):
        members = []
        for k in range(rng.randint(1, 6)):
            reads = {j: "texture" for j in rng.sample(range(len(images)), rng.randint(1, 4))}
            images += [image(len(images) + j, f"%{i}.{k}.{j}") for j in range(2)]
            s = sub(f"s{i}.{k}", reads, (len(images) - 2, len(images) - 1))
            functions = tuple(f"op{j}  a_rather_long_name_of_a_file.py:{j}" for j in range(40))
            members.append(replace(s, functions=functions, n_functions=40))
        stages.append(stage(i, *members))
    updates = tuple((len(images) - 1 - k, k) for k in range(4))
    return Plan("step", tuple(images), (), tuple(stages), updates)


# -- traffic ---------------------------------------------------------------------------------------


def test_attachments_textures_and_outputs_count_their_images() -> None:
    plan = chain()
    three = plan.stages[1].substages[0]
    assert substage_traffic(plan, three) == Traffic(R32F, R32F, 0, 2 * R32F)
    assert stage_traffic(plan, plan.stages[0]) == Traffic(2 * R32F, 0, 0, 2 * R32F)
    assert update_traffic(plan) == Traffic(0, R32F, 0, R32F)
    whole = plan_traffic(plan)
    assert whole == Traffic(3 * R32F, 2 * R32F, 0, 5 * R32F)
    assert (whole.read, whole.total) == (5 * R32F, 10 * R32F)


def test_an_image_bound_twice_for_fetching_counts_once() -> None:
    plan = chain()
    s = SubstagePlan("s", (Binding(0, "texture", 2), Binding(1, "sampler", 2)), (3,))
    assert substage_traffic(plan, s) == Traffic(0, R32F, 0, R32F)


def test_a_buffer_is_written_by_its_scatter_and_read_by_others() -> None:
    """Filled, added to (read and written), then only read."""
    table = Variable(FLOAT, (5, 1), requires_grad=True, name="table")
    ids = F.to_int(Variable(FLOAT, (8, 6)))  # computed: no inverse of them is made on the host
    y = F.lookup(table, ids)
    (g,) = build_backward(y * y).values()
    plan = pack([materialize(v) for v in simplify([g])], [], LLVMPIPE).plan
    scatter, last = plan.stages
    n = 4 * plan.buffers[0].n_words
    assert n >= 4 * 5
    assert stage_traffic(plan, scatter).buffers == n
    assert stage_traffic(plan, scatter).written == n
    (out,) = last.substages[0].outputs
    assert stage_traffic(plan, last) == Traffic(0, 0, n, plan.images[out].n_bytes)
    stages = stage_traffic(plan, scatter) + stage_traffic(plan, last)
    assert plan_traffic(plan) == stages + Traffic(written=n)  # the fill


def test_a_buffer_that_the_plan_does_not_fill_is_only_read() -> None:
    buffers = (BufferPlan(0, "kept", 16, key=7, fill=False),)
    s = SubstagePlan("s", (Binding(0, "buffer", 0),), (0,))
    plan = Plan("step", (image(0, "a"),), buffers, (stage(0, s),))
    assert plan_traffic(plan) == Traffic(buffers=64, written=R32F)
    assert [e.values for e in flow({"step": plan}).edges] == [("buffer kept 16 words",)]


@pytest.mark.parametrize("seed", [1, 4])
def test_a_plan_moves_what_its_parts_move(seed: int) -> None:
    plan = packed(seed)
    parts = [substage_traffic(plan, s) for st in plan.stages for s in st.substages]
    fills = Traffic(written=sum(4 * b.n_words for b in plan.buffers))
    assert sum(parts, fills) == plan_traffic(plan)
    written = {i for st in plan.stages for s in st.substages for i in s.outputs}
    images = sum(plan.images[i].n_bytes for i in written)
    assert plan_traffic(plan).written >= images > 0


# -- what flows where ------------------------------------------------------------------------------


def edges(plans: dict[str, Plan]) -> set[tuple[str, str, str]]:
    f = flow(plans)
    names = {n.id: n.label for n in [*f.leaves, *(n for s in f.stages for n in s.nodes)]}
    return {(names[e.source].split()[0], names[e.target].split()[0], e.kind) for e in f.edges}


def test_edges_go_from_the_last_writer_to_every_reader() -> None:
    assert edges({"step": chain()}) == {
        ("x", "one", READ),
        ("one", "two", READ),
        ("two", "three", READ),
        ("y", "three", READ),
        ("three", "x", IN_PLACE),
        ("three", "y", COPY),
    }


def test_an_image_that_several_values_share_counts_for_the_last_one() -> None:
    plan = chain()
    shared = stage(2, sub("four", {4: "texture"}, (2,)), sub("five", {2: "input"}, (3,)))
    found = edges({"step": replace(plan, stages=(*plan.stages, shared))})
    assert {("four", "five", READ), ("one", "two", READ)} <= found
    assert ("one", "five", READ) not in found


def test_kept_values_flow_from_the_static_plan_to_the_step() -> None:
    assert edges(split()) == {
        ("x", "once", READ),
        ("once", "each", READ),
        ("p", "each", READ),
        ("each", "p", IN_PLACE),
    }
    f = flow(split())
    assert [(s.plan, s.clean) for s in f.stages] == [("static", True), ("step", False)]
    assert {n.label.split()[0]: n.clean for n in f.leaves} == {"x": True, "p": False}


def test_a_later_plan_reads_leaves_whoever_wrote_them() -> None:
    """The step of the first plan may have run any number of times, or never."""
    evaluation = replace(split()["step"], name="evaluation")
    found = edges({"step": split()["step"], "evaluation": evaluation})
    assert found == {("kept", "each", READ), ("p", "each", READ), ("each", "p", IN_PLACE)}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_read_of_a_packed_plan_has_an_edge(seed: int) -> None:
    plan = packed(seed)
    f = flow({"step": plan})
    order = {n.id: k for k, n in enumerate(n for s in f.stages for n in s.nodes)}
    reads = {
        (f"p0s{i}b{k}", b.index)
        for i, st in enumerate(plan.stages)
        for k, s in enumerate(st.substages)
        for b in s.bindings
        if b.kind in ("input", "texture", "sampler")
    }
    values = [(e.target, v) for e in f.edges for v in e.values if not v.startswith("buffer")]
    assert len(values) == len(reads) > 0
    assert all(order[e.source] < order[e.target] for e in f.edges if e.source in order)


# -- DOT -------------------------------------------------------------------------------------------

TOKEN = re.compile(r'\s*(?:("(?:[^"\\\n]|\\.)*")|([A-Za-z_]\w*|[\d.]+)|(->|[{}\[\];=,]))')


def tokens(dot: str) -> list[str]:
    """Of a DOT file; fails at what is none."""
    found, at = [], 0
    while dot[at:].strip():
        m = TOKEN.match(dot, at)
        assert m, f"not DOT: {dot[at : at + 40]!r}"
        found.append(m.group().strip())
        at = m.end()
    return found


def test_dot_has_a_cluster_a_stage_and_a_substage_and_a_node_a_function() -> None:
    text = graph_dot({"step": chain()})
    found = tokens(text)
    assert found[:3] == ["digraph", "plans", "{"] and found[-1] == "}"
    depth = list(itertools.accumulate((t == "{") - (t == "}") for t in found))
    assert all(depth[2:-1]) and depth[-1] == 0 and max(depth) == 3
    assert len([t for t in found if t.startswith("cluster_stage")]) == 2
    assert [t for t in found if t.endswith('  fit.py:1"')] == [
        f'"{name}_a  fit.py:1"' for name in ("one", "two", "three")
    ]
    assert '"b R32F 8x4"' in found
    assert found.count("dashed") == 2


def test_dot_quotes_whatever_names_hold() -> None:
    plan = chain()
    odd = 'a"b\\c\nd {->} \x1b é'
    images = tuple(replace(i, name=odd) for i in plan.images)
    stages = tuple(
        replace(st, substages=tuple(replace(s, name=odd, functions=()) for s in st.substages))
        for st in plan.stages
    )
    found = tokens(graph_dot({"step": replace(plan, images=images, stages=stages)}))
    assert '"a\\"b\\\\c\\nd {->} \ufffd é R32F 8x4"' in found


@pytest.mark.parametrize("plans", [split(), {"step": packed(2)}, {"step": large(5, 0)}])
def test_edges_of_dot_end_at_nodes_and_clusters_that_exist(plans: dict[str, Plan]) -> None:
    found = tokens(graph_dot(plans))
    nodes = {a for a, b in itertools.pairwise(found) if b == "["}
    for k, token in enumerate(found):
        if token == "->":
            assert {found[k - 1], found[k + 1]} <= nodes
        if token in ("lhead", "ltail"):
            assert found.count(found[k + 2]) > 1 and found[k + 2].startswith("cluster_")


# -- SVG -------------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def boxes_of(root: ET.Element) -> list[Box]:
    """Corners of the boxes of substages and leaves."""
    found = []
    for g in root.iter(f"{SVG}g"):
        rect = g.find(f"{SVG}rect")
        assert rect is not None
        if rect.get("fill") == "#ffffff":
            x, y, w, h = (float(rect.get(k, "")) for k in ("x", "y", "width", "height"))
            found.append((x, y, x + w, y + h))
    return found


def points_of(d: str) -> list[tuple[float, float]]:
    """Corners of a path of straight pieces (the ends of pieces that stand at its bends)."""
    pairs = re.findall(r"[MLQ ](-?[\d.]+) (-?[\d.]+)", d)
    return [(float(x), float(y)) for x, y in pairs]


ALL_PLANS = pytest.mark.parametrize(
    "plans",
    [
        {"step": chain()},
        split(),
        {"step": packed(5)},
        {"step": large(1, 3)},
        {"step": large(25, 1), "static": split()["static"]},
    ],
    ids=["chain", "split", "packed", "one stage", "25 stages"],
)


@ALL_PLANS
def test_svg_shows_every_substage_leaf_and_edge(plans: dict[str, Plan]) -> None:
    root = ET.fromstring(graph_svg(plans))
    f = flow(plans)
    titles = [t.text or "" for t in root.iter(f"{SVG}title")]
    for s in f.stages:
        assert any(t.startswith(f"{s.plan} {s.stage.name},") for t in titles)
        for node in s.nodes:
            full = "\n".join([node.label, *node.functions])
            assert any(t.startswith(full) for t in titles)
    assert len(boxes_of(root)) == sum(len(s.nodes) for s in f.stages) + len(f.leaves)
    drawn = [p for p in root.iter(f"{SVG}path") if p.find(f"{SVG}title") is not None]
    assert len(drawn) == len(f.edges)
    dashed = [p for p in drawn if p.get("stroke-dasharray")]
    assert len(dashed) == sum(e.kind != READ for e in f.edges)


@ALL_PLANS
def test_nothing_of_svg_lies_on_a_box(plans: dict[str, Plan]) -> None:
    """Neither another box nor an edge that runs through gaps and gutters; all is inside."""
    root = ET.fromstring(graph_svg(plans))
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    boxes = boxes_of(root)
    for x0, y0, x1, y1 in boxes:
        assert 0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height
    for a, b in itertools.combinations(boxes, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
    n_routed = 0
    for path in root.iter(f"{SVG}path"):
        d = path.get("d", "")
        if path.find(f"{SVG}title") is None or "C" in d or "H" in d:
            continue
        n_routed += 1
        points = points_of(d)
        for (ax, ay), (bx, by) in itertools.pairwise(points):
            assert min(ax, bx) >= 0 and max(ax, bx) <= width
            assert min(ay, by) >= 0 and max(ay, by) <= height
            for x0, y0, x1, y1 in boxes:
                beside = max(ax, bx) <= x0 or min(ax, bx) >= x1
                assert beside or max(ay, by) <= y0 or min(ay, by) >= y1
    assert n_routed > 0


def test_lanes_of_different_sources_do_not_lie_on_each_other() -> None:
    """Vertical pieces in the gutters: two of one x and meeting y are of one source and kind."""
    root = ET.fromstring(graph_svg({"step": large(25, 2)}))
    boxes = boxes_of(root)
    left, right = min(b[0] for b in boxes), max(b[2] for b in boxes)
    spans: dict[tuple[float, str], tuple[float, float]] = {}
    for path in root.iter(f"{SVG}path"):
        title = path.find(f"{SVG}title")
        if title is None or "C" in path.get("d", "") or "H" in path.get("d", ""):
            continue
        source = (title.text or "").split(" -> ")[0]
        for (ax, ay), (bx, by) in itertools.pairwise(points_of(path.get("d", ""))):
            if ax == bx and not left <= ax <= right:
                low, high = spans.get((ax, source), (ay, ay))
                spans[ax, source] = min(low, ay, by), max(high, ay, by)
    assert len(spans) > 20
    for ((xa, _), a), ((xb, _), b) in itertools.combinations(spans.items(), 2):
        assert xa != xb or a[1] <= b[0] or b[1] <= a[0]


def test_long_lists_of_functions_are_cut_and_names_are_escaped() -> None:
    plan = large(1, 0)
    first = replace(plan.stages[0].substages[0], name="<&\"'\x00>")
    plan = replace(plan, stages=(replace(plan.stages[0], substages=(first,)),), updates=())
    root = ET.fromstring(graph_svg({"step": plan}))
    texts = [t.text or "" for t in root.iter(f"{SVG}text")]
    assert "+ 32 more" in texts
    assert "<&\"'\ufffd>" in texts
    assert [t for t in texts if t.startswith("op")] == [f"op{j}" for j in range(8)]


def test_what_is_clean_is_pale() -> None:
    root = ET.fromstring(graph_svg(split()))
    pale = {
        (title.text or "").split()[0]
        for g in root.iter(f"{SVG}g")
        if g.get("opacity") and (title := g.find(f"{SVG}title")) is not None
    }
    assert pale == {"once", "x"}


def test_a_plan_without_stages_has_a_picture() -> None:
    """Forward only with nothing dirty: a step runs nothing."""
    empty = Plan("step", (), (), ())
    assert ET.fromstring(graph_svg({"step": empty})).tag == f"{SVG}svg"
    assert tokens(graph_dot({"step": empty}))[-1] == "}"


# -- GraphView -------------------------------------------------------------------------------------


def test_a_view_shows_in_notebooks_and_saves_by_suffix(tmp_path: Path) -> None:
    view = graph_view(split())
    assert view._repr_svg_() == view.svg == graph_svg(split())
    view.save(tmp_path / "plan.svg")
    view.save(str(tmp_path / "plan.DOT"))
    assert (tmp_path / "plan.svg").read_text(encoding="utf-8") == view.svg
    assert (tmp_path / "plan.DOT").read_text(encoding="utf-8") == graph_dot(split())


def test_saving_fails_with_errors_of_our_own(tmp_path: Path) -> None:
    view = GraphView("digraph {}", "<svg/>")
    with pytest.raises(GraphError, match=r"plan\.png.*needs one of \.svg, \.dot"):
        view.save(tmp_path / "plan.png")
    with pytest.raises(DressiError, match="cannot write"):
        view.save(tmp_path / "no folder" / "plan.svg")


def test_names_of_images_and_lines_of_the_program_are_in_the_picture() -> None:
    x = Variable(VEC3, (8, 6), name="albedo")
    plan = pack(simplify([F.sigmoid(x) * 2.0]), [], LLVMPIPE).plan
    svg = graph_svg({"step": plan})
    assert "albedo RGBA32F 8x6" in svg
    assert "sigmoid  test_traffic_and_draw.py:" in svg
