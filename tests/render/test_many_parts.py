"""Scenes of many parts: rows of tables and texture tables give what leaves of their own give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dressi import DressiBasicRenderer, GraphError
from dressi.ad import Variable, build_backward, evaluate
from dressi.ad.graph import topological
from dressi.render.pipeline.assemble import Graph, load
from dressi.render.pipeline.nodes import MANY
from dressi.render.scene import Node, Scene, differences, trs_matrix
from dressi.testing.part_scenes import (
    cubes,
    instances_of_three,
    picture,
    room,
    textured_quads,
)

SIZE = (32, 24)


def flat_scene(n: int = 3) -> Scene:
    """Unlit squares with maps of their own, and a node more that shows the first one."""
    scene = textured_quads(n, 5)
    made = tuple(
        replace(m, unlit=True, base_color=(0.5 + 0.1 * k, 0.9, 0.8, 1.0), name=f"m{k}")
        for k, m in enumerate(scene.materials)
    )
    more = Node(trs_matrix((0.3, 0.2, 0.5), scale=(-0.5, 0.5, 0.5)), mesh=0, name="again")
    nodes = (*scene.nodes, more)
    return replace(scene, materials=made, nodes=nodes, roots=tuple(range(len(nodes))))


def grey(size: tuple[int, int] = SIZE) -> np.ndarray:
    return np.full((1, size[1], size[0], 4), 0.5, np.float32)


def graph_of(scene: Scene, tables: bool | None, **settings: Any) -> tuple[Any, Graph]:
    """A renderer that is open, and its graph."""
    renderer = DressiBasicRenderer()
    renderer.load_scene(scene, grey(), size=SIZE, tables=tables)
    renderer.build_graph(**settings)
    return renderer, renderer.graph


@pytest.fixture()
def open_renderers(vulkan_device_available: bool) -> Any:
    if not vulkan_device_available:
        pytest.skip("no Vulkan device on this machine")
    made: list[DressiBasicRenderer] = []

    def build(scene: Scene, tables: bool | None, **settings: Any) -> tuple[Any, Graph]:
        found = graph_of(scene, tables, **settings)
        made.append(found[0])
        return found

    yield build
    for renderer in made:
        renderer.close()


# -- pictures


@pytest.mark.gpu
def test_a_furnished_room_looks_the_same(open_renderers: Callable[..., Any]) -> None:
    """Colours, maps of every kind and of odd sizes, wraps, filters, transforms, normal maps, masks,
    blends, unlit and double-sided materials; the reference has a leaf for each part."""
    scene = room(15, 15, 8)
    kinds = {(m.alpha_mode, m.unlit, m.double_sided) for m in scene.materials}
    assert len(kinds) > 5 and {"MASK", "BLEND", "OPAQUE"} == {k[0] for k in kinds}
    apart = open_renderers(scene, False, mode="antialias")[1]
    renderer, together = open_renderers(scene, True, mode="antialias")
    (a,), (b,) = evaluate([apart.both], {}), evaluate([together.both], {})
    assert 0.1 < b[..., 3].mean() < 0.9
    np.testing.assert_allclose(b, a, atol=1e-6)
    np.testing.assert_allclose(renderer.ad.recv_img(together.both), b[0], atol=3e-5)


@pytest.mark.gpu
def test_instances_that_mirror_and_share_meshes_look_the_same(
    open_renderers: Callable[..., Any],
) -> None:
    """Also with blendshapes and far away, where a mesh keeps leaves of its own or an origin."""
    base = instances_of_three(12)
    nodes = tuple(
        replace(n, matrix=n.matrix @ np.diag([-1.0 if k % 2 else 1.0, 1, 1, 1]))
        for k, n in enumerate(base.nodes)
    )
    away = tuple(replace(n, matrix=trs_matrix((3e4, 0, -2e4)) @ n.matrix) for n in nodes)
    for scene in (replace(base, nodes=nodes), replace(base, nodes=away)):
        apart = open_renderers(scene, False)[1]
        together = open_renderers(scene, True)[1]
        (a,), (b,) = evaluate([apart.both], {}), evaluate([together.both], {})
        assert 0.1 < b[..., 3].mean() < 0.9
        np.testing.assert_allclose(b, a, atol=1e-6)


# -- sizes


def n_functions(scene: Scene) -> int:
    renderer, graph = graph_of(scene, None, mode="antialias")
    with renderer:
        return len(topological([graph.both]))


@pytest.mark.gpu
@pytest.mark.parametrize(
    "make",
    [instances_of_three, cubes, lambda n: textured_quads(n, 8)],
    ids=["nodes", "all", "maps"],
)
def test_the_graph_does_not_grow_with_the_parts(make: Callable[[int], Scene]) -> None:
    n = MANY + 6  # of maps, too, more than have an op each
    assert n_functions(make(n)) == n_functions(make(10 * n))


def test_few_parts_have_leaves_of_their_own() -> None:
    few, many = (load(cubes(n), None, None, SIZE).table for n in (MANY, MANY + 1))
    assert all(p.place is None for p in few)
    shared = [p for p in many if p.kind in ("vtx_pos", "base_color", "normal_scale")]
    assert len({p.leaf for p in shared}) == 3 and len(shared) == 3 * (MANY + 1)


# -- parameters

FITTED = ("albedo:m0", "base_color:m1", "vtx_pos:quad2", "vtx_pos:quad0")


@pytest.mark.gpu
def test_a_fit_of_some_rows_is_that_of_leaves_and_leaves_the_others_alone(
    open_renderers: Callable[..., Any],
) -> None:
    """Learning rates by kind and by name, units of meshes, clamps."""
    lr = {"default": 0.02, "vtx_pos": 0.01, "vtx_pos:quad0": 0.003}
    found = []
    for tables in (False, True):
        renderer, _ = open_renderers(flat_scene(), tables, r=0.05, lr=lr)
        before = {p.name: renderer.value(p.name) for p in renderer.parameters}
        renderer.set_requires_grad(list(FITTED))
        assert [p.name for p in renderer.parameters if p.requires_grad] == sorted(
            FITTED, key=list(before).index
        )
        renderer.exec_steps(3)
        after = {p.name: renderer.value(p.name) for p in renderer.parameters}
        still = [name for name in before if np.array_equal(before[name], after[name])]
        assert set(before) - set(still) == set(FITTED)
        found.append(after)
    for name in FITTED:
        np.testing.assert_allclose(found[1][name], found[0][name], atol=2e-5, err_msg=name)


@pytest.mark.gpu
def test_gradients_of_rows_are_finite_differences(open_renderers: Callable[..., Any]) -> None:
    renderer, graph = open_renderers(flat_scene(), True, r=0.05, loss={"l2": 1.0})
    rng = np.random.default_rng(3)
    by_name = {p.name: p for p in renderer.parameters}
    for name in FITTED:
        p = by_name[name]
        leaf: Variable = p.leaf
        assert p.place is not None and leaf.data is not None
        leaf.requires_grad = True
        (gradient,) = evaluate(list(build_backward(graph.loss, [leaf]).values()), {})
        n = leaf.vtype.n
        step = np.zeros(gradient.size).reshape(-1, n)
        rows = step[p.place.rows]
        rows[:] = rng.normal(size=rows.shape)
        step = step.reshape(gradient.shape) * 1e-6
        ends = [
            evaluate([graph.loss], {leaf: leaf.data.reshape(gradient.shape) + s * step})[0].item()
            for s in (1.0, -1.0)
        ]
        slope = (gradient * step).sum() / 1e-6
        assert abs(slope) > 1e-6, name
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(slope, rel=2e-3, abs=1e-8), name


@pytest.mark.gpu
def test_what_is_sent_to_a_row_comes_back_and_is_saved(
    open_renderers: Callable[..., Any], tmp_path: Path
) -> None:
    values = {
        "albedo:m1": picture(9, 5, 5),
        "base_color:m2": np.array([0.1, 0.2, 0.3, 1.0]),
        "roughness_factor:m0": np.array(0.25),
        "vtx_pos:quad1": flat_scene().meshes[1].primitives[0].positions * 1.5,
    }
    scenes = []
    for tables in (False, True):
        renderer, _ = open_renderers(flat_scene(), tables)
        renderer.add_map("emissive:m0", (2, 2))
        for name, value in values.items():
            renderer.set_value(name, value)
            np.testing.assert_array_equal(renderer.value(name).ravel(), np.float32(value).ravel())
        assert np.isfinite(renderer.render()).all()
        renderer.save_scene(tmp_path / f"{tables}.glb")
        scenes.append(renderer.scene)
        with pytest.raises(GraphError, match=r"albedo:m1 has shape \(5, 5, 3\), got \(4, 5, 3\)"):
            renderer.set_value("albedo:m1", np.zeros((4, 5, 3)))
    assert differences(scenes[0], scenes[1]) == []
    assert differences(scenes[1], flat_scene()) != []


def test_tables_must_be_said_clearly() -> None:
    with pytest.raises(GraphError, match="tables must be True, False or None, got 'yes'"):
        load(flat_scene(), None, None, SIZE, tables="yes")  # type: ignore[arg-type]
