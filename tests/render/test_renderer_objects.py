"""Object pose and texture coordinates as parameters of the renderer (paper, A.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from renderer_scenes import SIZE, cameras, demo_scene

from dressi import DressiBasicRenderer, GraphError
from dressi.ad import evaluate
from dressi.render.io import load_scene
from dressi.render.pipeline.assemble import load
from dressi.render.scene import (
    Mesh,
    Node,
    Primitive,
    Scene,
    SceneCamera,
    SceneMesh,
    instances,
    scene_of,
    trs_matrix,
    world_matrices,
)

POSE = {
    "object_rotation:ball": (0.3, -0.5, 0.4),
    "object_translation:ball": (0.2, -0.1, 0.15),
    "object_scale:ball": 0.8,
}


@pytest.fixture()
def renderer(vulkan_device_available: bool) -> Iterator[DressiBasicRenderer]:
    if not vulkan_device_available:
        pytest.skip("no Vulkan device on this machine")
    with DressiBasicRenderer() as made:
        yield made


def rotation(w: Any) -> np.ndarray:
    """(3, 3) exp of the cross product with w, by its series: no code of the renderer."""
    x, y, z = w
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]], float)
    term, total = np.eye(3), np.eye(3)
    for n in range(1, 30):
        term = term @ k / n
        total = total + term
    return total


def posed_by_hand(scene: Scene, node: int, pose: dict[str, Any]) -> Scene:
    """The scene with the pose written into the matrix of a node below an identity."""
    points = np.concatenate([i.exact_positions() for i in instances(scene) if i.node == node])
    center = 0.5 * (points.min(axis=0) + points.max(axis=0))
    w, t, s = pose.values()
    move = np.eye(4)
    move[:3, :3] = s * rotation(w)
    move[:3, 3] = center + np.array(t) - move[:3, :3] @ center
    nodes = list(scene.nodes)
    nodes[node] = replace(nodes[node], matrix=move @ nodes[node].matrix)
    return replace(scene, nodes=tuple(nodes))


def shown(renderer: DressiBasicRenderer, scene: Scene, **graph: Any) -> np.ndarray:
    renderer.load_scene(scene, size=SIZE, cameras=cameras(), ambient=0.2)
    renderer.build_graph(**{"r": 1 / 40, **graph})
    return renderer.render_all(alpha=True)


@pytest.mark.gpu
def test_a_posed_object_is_drawn_as_the_file_with_that_matrix(
    renderer: DressiBasicRenderer,
) -> None:
    """Light, maps and normals turn with it; the other object stays."""
    scene = demo_scene()
    truth = shown(renderer, posed_by_hand(scene, 1, POSE))
    still = shown(renderer, scene)
    for name, value in POSE.items():
        renderer.set_value(name, value)
    found = renderer.render_all(alpha=True)
    assert np.abs(still - truth).max() > 0.2
    # A rim that falls on another float32 depth may show in a pixel.
    assert np.quantile(np.abs(found - truth), 0.995) < 1e-3
    assert np.abs(found - truth).mean() < 1e-3


@pytest.mark.gpu
def test_many_nodes_move_as_few(renderer: DressiBasicRenderer) -> None:
    """Where nodes are rows of tables: instances of one mesh, of which one is moved and one mirrors,
    and all have its new UVs. The reference has leaves for each."""
    base = demo_scene()
    more = [Node(trs_matrix((0.4 * k - 1.0, 0.8, 0.3)), mesh=k % 2, name=f"n{k}") for k in range(6)]
    more[2] = replace(more[2], matrix=more[2].matrix @ np.diag([-0.5, 0.5, 0.5, 1.0]))
    roots = (*base.roots, *range(len(base.nodes), len(base.nodes) + len(more)))
    scene = replace(base, nodes=(*base.nodes, *more), roots=roots).check()
    values = {**POSE, "object_rotation:n2": (0.5, 0.2, -0.9), "object_scale:n2": 1.5}
    found, still = [], []
    for tables in (False, True):
        renderer.load_scene(scene, size=SIZE, cameras=cameras(1), ambient=0.2, tables=tables)
        renderer.build_graph(mode="antialias")
        still.append(renderer.render_all(alpha=True))
        for name, value in values.items():
            renderer.set_value(name, value)
        renderer.set_value("vtx_uv:Ball", renderer.value("vtx_uv:Ball") * 0.5)
        found.append(renderer.render_all(alpha=True))
    assert np.abs(found[0] - still[0]).max() > 0.2
    assert np.abs(still[1] - still[0]).max() < 1e-4
    assert np.quantile(np.abs(found[1] - found[0]), 0.995) < 1e-4


@pytest.mark.gpu
def test_poses_out_of_use_are_not_in_the_graph(renderer: DressiBasicRenderer) -> None:
    renderer.load_scene(demo_scene(maps=False), size=SIZE, cameras=cameras(1))
    g = renderer._loaded.geometry  # type: ignore[union-attr]
    assert g.now() is g
    renderer.build_graph(r=1 / 40)
    renderer.set_value("object_scale:small", 2.0)
    assert g.now() is not g
    with pytest.raises(GraphError, match=r"object_rotation:ball has shape \(1, 1, 3\)"):
        renderer.set_value("object_rotation:ball", 1.0)
    with pytest.raises(GraphError, match="no parameter is called 'object_rotation:lamp'"):
        renderer.set_requires_grad("object_rotation:lamp")


@pytest.mark.gpu
def test_saved_poses_keep_lights_and_cameras(renderer: DressiBasicRenderer, tmp_path: Path) -> None:
    """A lamp and a camera hang from the ball: the saved file shows the same picture, and both are
    where they were. What else hangs from it follows."""
    base = demo_scene(maps=False)
    nodes = list(base.nodes)
    nodes[1] = replace(nodes[1], children=(2, 5))
    nodes[0] = replace(nodes[0], children=(1, 3, 4))
    lens = SceneCamera("perspective", 40.0, SIZE[0] / SIZE[1], near=1.0, far=10.0, name="eye")
    back = np.linalg.inv(nodes[1].matrix) @ np.linalg.inv(cameras(1)[0].view)
    nodes.append(Node(back, light=0, camera=0, name="eye"))
    scene = replace(base, nodes=tuple(nodes), cameras=(lens,)).check()
    renderer.load_scene(scene, size=SIZE, ambient=0.2)
    renderer.build_graph(r=1 / 40)
    before = renderer.render()
    for name, value in POSE.items():
        renderer.set_value(name, value)
    moved = renderer.render()
    renderer.save_scene(tmp_path / "moved.glb")
    again = load_scene(tmp_path / "moved.glb")
    renderer.load_scene(again, size=SIZE, ambient=0.2)
    renderer.build_graph(r=1 / 40)
    assert np.abs(moved - before).max() > 0.1
    assert np.abs(renderer.render() - moved).mean() < 1e-4
    place = {n: w for n, w in world_matrices(again) if again.nodes[n].camera is not None}
    (at,) = place.values()
    assert np.allclose(at, np.linalg.inv(cameras(1)[0].view), atol=1e-5)
    lamps = [w[:3, 3] for n, w in world_matrices(again) if again.nodes[n].light == 0]
    assert len(lamps) == 2 and any(np.allclose(p, at[:3, 3], atol=1e-5) for p in lamps)


def derivative(renderer: DressiBasicRenderer, name: str, rng: Any) -> tuple[float, float]:
    """(by AD, by central differences) of the loss, along a random direction of a leaf."""
    (p,) = [p for p in renderer.parameters if p.name == name]
    start = np.float32(p.to_leaf(renderer.value(name)))
    along = rng.standard_normal(start.shape)
    sides = []
    for sign in (1, -1):
        renderer._ad.send_img(p.leaf, np.float32(start + sign * STEP * along))
        sides.append(renderer.loss())
    renderer._ad.send_img(p.leaf, start)
    renderer.exec_step()  # of an optimizer that takes the gradient from the leaf
    gradient = start - np.reshape(renderer._ad.recv_img(p.leaf), start.shape)
    renderer._ad.send_img(p.leaf, start)
    return float(np.sum(gradient * along)), (sides[0] - sides[1]) / (2 * STEP)


STEP = 1e-3


def minus_gradient(xs: Any, gxs: Any) -> list[Any]:
    return [x - g for x, g in zip(xs, gxs, strict=True)]


@pytest.mark.gpu
def test_gradients_of_poses_and_uvs_against_differences(renderer: DressiBasicRenderer) -> None:
    """A painted square that fills the picture: no outline, so differences are exact. The paint is
    smooth, and read without mip levels, which step."""
    x = np.linspace(0, 2 * np.pi, 64, endpoint=False)
    paint = 0.5 + 0.4 * np.stack(
        [
            np.sin(x)[None] + 0 * x[:, None],
            np.cos(x)[:, None] + 0 * x[None],
            np.sin(x[:, None] + x),
        ],
        axis=2,
    )
    corners = np.float32([[-4, -4, 0], [4, -4, 0], [4, 4, 0], [-4, 4, 0]])
    mesh = Mesh(corners, np.int32([[0, 1, 2], [0, 2, 3]]), corners[:, :2] / 8 + 0.5, name="square")
    scene = scene_of(mesh, np.float32(paint))
    scene = replace(scene, materials=tuple(replace(m, unlit=True) for m in scene.materials))
    target = np.full((2, SIZE[1], SIZE[0], 3), 0.5, np.float32) * np.float32([1.2, 0.7, 1.0])
    renderer.load_scene(scene, target, cameras())
    renderer.build_graph(r=1 / 40, loss="l2", mipmaps=False, optimizer=minus_gradient)
    rng = np.random.default_rng(3)
    owner = next(p.owner for p in renderer.parameters if p.kind == "object_rotation")
    mesh_name = next(p.owner for p in renderer.parameters if p.kind == "vtx_uv")
    names = [f"object_{k}:{owner}" for k in ("rotation", "translation", "scale")]
    for name in [*names, f"vtx_uv:{mesh_name}"]:
        renderer.set_requires_grad(name)
        found, expected = derivative(renderer, name, rng)
        renderer.set_requires_grad(name, False)
        assert abs(expected) > 1e-3
        assert found == pytest.approx(expected, rel=0.03, abs=1e-4), name


@pytest.mark.gpu
def test_gradients_of_poses_are_those_of_the_vertices(renderer: DressiBasicRenderer) -> None:
    """Outlines, light and shadows included: the gradient of a pose is that of the vertices times
    the vertices' derivative by the pose, from float64 differences."""
    scene = demo_scene()
    target = shown(renderer, posed_by_hand(scene, 1, POSE), r=0.08)
    renderer.load_scene(scene, target, cameras(), ambient=0.2)
    renderer.build_graph(
        r=0.08, loss={"l2": 1.0, "silhouette": 1.0}, normals="computed", optimizer=minus_gradient
    )
    poses = {"object_rotation:ball": (0.2, 0.1, -0.3), "object_translation:ball": (0.05, 0.0, 0.1)}
    for name, value in {**poses, "object_scale:ball": 0.9}.items():
        renderer.set_value(name, value)
    names = list(POSE)
    renderer.set_requires_grad(["vtx_pos:Ball", *names])
    values = [np.ravel(renderer.value(n)).astype(np.float64) for n in names]
    values[2] = np.log(values[2])
    local, world = renderer.value("vtx_pos:Ball"), scene.nodes[1].matrix
    points = local @ world[:3, :3].T + world[:3, 3]
    center = renderer._loaded.geometry.poses.rows[1].center  # type: ignore[union-attr]

    def placed(x: np.ndarray) -> np.ndarray:
        return (points - center) @ rotation(x[:3]).T * np.exp(x[6]) + center + x[3:6]

    leaves = {p.name: p.leaf for p in renderer.parameters}
    before = {n: renderer._ad.recv_img(leaves[n]) for n in ("vtx_pos:Ball", *names)}
    renderer.exec_step()
    gradient = {n: np.ravel(before[n] - renderer._ad.recv_img(leaves[n])) for n in before}
    x = np.concatenate(values)
    jacobian = [(placed(x + h) - placed(x - h)) / 2e-5 for h in 1e-5 * np.eye(7)]
    # d vertices / d mesh: the rotation, the scale, and the node's own matrix.
    turn = rotation(x[:3]) * np.exp(x[6]) @ world[:3, :3]
    of_places = gradient["vtx_pos:Ball"].reshape(-1, 3) @ np.linalg.inv(turn)
    expected = np.array([np.sum(of_places * j) for j in jacobian])
    found = np.concatenate([gradient[n] for n in names])
    assert np.abs(expected).max() > 1e-3
    assert np.abs(found - expected).max() < 5e-3 * np.abs(expected).max()


@pytest.mark.gpu
def test_texture_coordinates_are_drawn_and_saved(
    renderer: DressiBasicRenderer, tmp_path: Path
) -> None:
    """Moved by a quarter of the map: the picture is that of the file with those UVs, and the saved
    file shows it."""
    scene = demo_scene()
    ball = scene.meshes[0]
    by = np.float32([0.25, 0.125])
    parts = tuple(replace(p, uvs=(p.uvs[0] + by,)) for p in ball.primitives)
    truth = shown(
        renderer, replace(scene, meshes=(replace(ball, primitives=parts), *scene.meshes[1:]))
    )
    still = shown(renderer, scene)
    uv = renderer.value("vtx_uv:Ball")
    renderer.set_value("vtx_uv:Ball", uv + by)
    found = renderer.render_all(alpha=True)
    assert np.abs(still - truth).max() > 0.1
    assert np.abs(found - truth).max() < 1e-3
    renderer.save_scene(tmp_path / "moved.glb")
    again = load_scene(tmp_path / "moved.glb")
    assert np.allclose(again.meshes[0].primitives[0].uvs[0], parts[0].uvs[0], atol=1e-6)
    assert np.abs(shown(renderer, again) - truth).max() < 1e-2


def test_a_further_uv_set_is_a_parameter_of_its_own() -> None:
    """Also where another primitive of the mesh, and another mesh, lack it; a seam stays one row."""
    rng = np.random.default_rng(1)
    corners = np.float32([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0]])
    faces = np.int32([[0, 1, 2], [3, 1, 2]])
    uv0 = rng.random((4, 2), dtype=np.float32)
    uv1 = np.float32([[0, 0], [1, 0.5], [1, 1], [-0.0, 0]])  # the first and the last are one
    both, one = Primitive(corners, faces, uvs=(uv0, uv1)), Primitive(corners, faces, uvs=(uv0,))
    meshes = (SceneMesh((one, both), name="pair"), SceneMesh((one,), name="other"))
    nodes = (Node(mesh=1), Node(mesh=0))
    scene = Scene(nodes=nodes, meshes=meshes, roots=(0, 1)).check()
    loaded = load(scene, None, None, SIZE)
    p = loaded.table.only("vtx_uv1:pair")
    assert p.shape == (3, 2) and loaded.table.only("vtx_uv:pair").shape == (4, 2)
    before = evaluate(list(loaded.geometry.now().uvs), {})
    p.in_use = True
    uvs = loaded.geometry.now().uvs
    after = evaluate(list(uvs), {p.leaf: 2.0 + np.reshape(p.leaf.data, (3, 2))})
    np.testing.assert_array_equal(after[0], before[0])
    expected = np.concatenate([np.zeros((8, 2)), uv1 + 2.0])
    np.testing.assert_array_equal(np.reshape(after[1], (-1, 2)), expected)


def two_in_a_group() -> Scene:
    """The demo scene's meshes below a node of their own."""
    base = demo_scene(maps=False)
    nodes = [*base.nodes, Node(children=(1, 2), name="pair")]
    nodes[0] = replace(nodes[0], children=(5, 3, 4))
    return replace(base, nodes=tuple(nodes)).check()


@pytest.mark.gpu
def test_a_group_moves_as_one_and_only_by_its_name(renderer: DressiBasicRenderer) -> None:
    scene = two_in_a_group()
    still = shown(renderer, scene, K=1)
    renderer.set_requires_grad("object_pose")
    on = {p.name for p in renderer.parameters if p.requires_grad}
    assert on == {
        f"object_{k}:{n}" for k in ("rotation", "translation", "scale") for n in ("ball", "small")
    }
    renderer.set_requires_grad("object_pose", False)
    both = dict(
        zip(("object_rotation", "object_translation", "object_scale"), POSE.values(), strict=True)
    )
    for kind, value in both.items():
        renderer.set_value(f"{kind}:pair", value)
    found = renderer.render_all(alpha=True)
    (center,) = [renderer._loaded.geometry.poses.rows[5].center]  # type: ignore[union-attr]
    w, t, s = both.values()
    move = np.eye(4)
    move[:3, :3] = s * rotation(w)
    move[:3, 3] = center + np.array(t) - move[:3, :3] @ center
    nodes = list(scene.nodes)
    nodes[5] = replace(nodes[5], matrix=move)
    truth = shown(renderer, replace(scene, nodes=tuple(nodes)))
    assert np.abs(still - truth).max() > 0.2
    assert np.quantile(np.abs(found - truth), 0.995) < 1e-3


@pytest.mark.gpu
def test_shadows_follow_and_planes_cut_what_moved_through_them(
    renderer: DressiBasicRenderer,
) -> None:
    """An object that leaves the sphere of the scene keeps its shadow; one that is moved through the
    near plane is cut as the same scene loaded there."""
    scene = demo_scene(maps=False)
    far = {**POSE, "object_translation:ball": (-2.5, -1.2, -4.0), "object_scale:ball": 3.0}
    truth = shown(renderer, posed_by_hand(scene, 1, far), shadows=64)
    shown(renderer, scene, shadows=64)
    for name, value in far.items():
        renderer.set_value(name, value)
    # The maps' texels lie elsewhere: the border of a shadow may differ by a texel.
    assert np.abs(renderer.render_all(alpha=True) - truth).mean() < 1e-3
    g = renderer._loaded.geometry.now()  # type: ignore[union-attr]
    points, radius = (np.squeeze(a) for a in renderer._ad.recv_imgs([g.positions, g.radius]))
    away = np.linalg.norm(points - g.frame.center, axis=1).max()
    assert away <= radius < 1.5 * away and away > 2 * g.frame.radius
    near = {**POSE, "object_translation:ball": (0.0, 0.3, 2.9)}
    truth = shown(renderer, posed_by_hand(scene, 1, near))
    assert renderer._graph.clip  # type: ignore[union-attr]
    shown(renderer, scene)
    assert not renderer._graph.clip  # type: ignore[union-attr]
    for name, value in near.items():
        renderer.set_value(name, value)
    found = renderer.render_all(alpha=True)
    assert renderer._graph.clip  # type: ignore[union-attr]
    assert np.abs(found - truth).mean() < 2e-3
