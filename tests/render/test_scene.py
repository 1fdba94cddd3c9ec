"""Scenes: values that cannot be are refused by name; world matrices, mirrors, lights, cameras."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dressi.errors import GraphError
from dressi.render.camera import look_at
from dressi.render.scene import (
    Image,
    Material,
    Mesh,
    MorphTarget,
    Node,
    Primitive,
    PunctualLight,
    Scene,
    SceneCamera,
    SceneMesh,
    TextureRef,
    area_normals,
    flat,
    icosphere,
    joined,
    mesh_of,
    primitive_of,
    scene_of,
    trs_matrix,
    welded,
)

POINTS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32)
FACES = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]], np.int32)
TETRA = Primitive(
    POINTS, FACES, uvs=(POINTS[:, :2],), material=0, targets=(MorphTarget(np.ones((4, 3))),)
)


def small_scene(**changes):
    scene = Scene(
        nodes=(
            Node(trs_matrix((1, 2, 3)), children=(1, 2), name="root"),
            Node(trs_matrix(scale=(-1, 1, 1)), mesh=0, name="mirrored"),
            Node(trs_matrix(rotation_xyzw=(0, math.sqrt(0.5), 0, math.sqrt(0.5))), mesh=0),
        ),
        roots=(0,),
        meshes=(SceneMesh((TETRA,), (0.5,), "tetra"),),
        materials=(Material(base_color_map=TextureRef(0), name="skin"),),
        images=(Image(np.full((2, 2, 3), 0.25), name="map"),),
    )
    return replace(scene, **changes)


def test_a_good_scene_is_returned_by_check():
    scene = small_scene()
    assert scene.check() is scene


def test_trs_is_translation_times_rotation_times_scale():
    q = np.array([0.1, -0.2, 0.3, 0.9])
    q /= np.linalg.norm(q)
    angle, axis = 2 * math.acos(q[3]), q[:3] / np.linalg.norm(q[:3])
    k = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    rodrigues = np.eye(3) + math.sin(angle) * k + (1 - math.cos(angle)) * k @ k
    got = trs_matrix((1, 2, 3), 7 * q, (2, 3, -4))
    assert np.allclose(got[:3, :3], rodrigues @ np.diag([2, 3, -4]), atol=1e-12)
    assert got[:3, 3].tolist() == [1, 2, 3] and got[3].tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("bad", [(0, 0, 0, 0), (np.nan, 0, 0, 1), (0, 0, 1), "x"])
def test_trs_refuses_what_is_no_quaternion(bad):
    with pytest.raises(GraphError, match="trs_matrix"):
        trs_matrix(rotation_xyzw=bad)


def test_instances_have_world_matrices_in_the_order_of_the_tree():
    mirrored, turned = small_scene().instances()
    assert [mirrored.node, turned.node] == [1, 2] and mirrored.material.name == "skin"
    assert (mirrored.flips, turned.flips) == (True, False)
    moved = POINTS + np.float32(0.5)  # the blendshape's default weight
    assert np.allclose(mirrored.positions(), moved * [-1, 1, 1] + [1, 2, 3])
    # 90 degrees around +Y takes +X to -Z and +Z to +X.
    assert np.allclose(turned.positions(), moved[:, [2, 1, 0]] * [1, 1, -1] + [1, 2, 3])


def test_a_mirroring_node_turns_the_winding_so_that_faces_look_outward():
    for instance in small_scene().instances():
        mesh = instance.world_mesh().check()
        center = mesh.positions[mesh.faces].mean(axis=1) - mesh.positions.mean(axis=0)
        assert (np.einsum("fi,fi->f", area_normals(mesh.positions, mesh.faces), center) > 0).all()


@pytest.mark.parametrize("scale", [(2.0, 3.0, 0.5), (-2.0, 3.0, 0.5)])
def test_world_normals_stay_orthogonal_to_the_surface(scale):
    ball = primitive_of(icosphere(2))
    node = Node(trs_matrix((1, 0, 0), (0.2, 0.1, 0.3, 0.9), scale), mesh=0)
    (instance,) = Scene((node,), (0,), (SceneMesh((ball,)),)).instances()
    inverse = np.linalg.inv(instance.world[:3, :3])
    want = ball.normals @ inverse
    want /= np.linalg.norm(want, axis=1, keepdims=True)
    got = instance.normals()
    assert np.allclose(got, want, atol=1e-5)
    away = instance.positions() - instance.positions().mean(axis=0)
    assert (np.einsum("vi,vi->v", got, away) > 0).all(), "outward, mirrored or not"
    squashed = Node(trs_matrix(scale=(1, 1, 0)), mesh=0)
    (flat_one,) = Scene((squashed,), (0,), (SceneMesh((ball,)),)).instances()
    assert np.isfinite(flat_one.normals()).all()


def test_weights_of_the_node_go_before_those_of_the_mesh():
    scene = small_scene()
    nodes = (*scene.nodes[:2], replace(scene.nodes[2], weights=(2.0,)))
    weights = [i.weights for i in replace(scene, nodes=nodes).check().instances()]
    assert weights == [(0.5,), (2.0,)]


def test_uv_matrix_turns_counter_clockwise_as_seen():
    """A quarter turn, v down: (u, v) = (1, 0), on the right, goes up, to (0, -1)."""
    ref = TextureRef(0, offset=(0.5, 0.25), rotation_rad=math.pi / 2, scale=(2.0, 3.0))
    assert np.allclose(ref.uv_matrix @ [1, 0, 1], [0.5, 0.25 - 2.0, 1])
    assert np.allclose(ref.uv_matrix @ [0, 1, 1], [0.5 + 3.0, 0.25, 1])


def test_lights_shine_along_minus_z_of_their_node():
    quarter = (math.sqrt(0.5), 0, 0, math.sqrt(0.5))  # around +X: -Z goes to +Y
    node = Node(trs_matrix((0, 5, 0), quarter, (3, 3, 3)), light=0)
    (placed,) = flat.lights(Scene((node,), (0,), lights=(PunctualLight("spot"),)))
    assert np.allclose(placed.position, [0, 5, 0]) and np.allclose(placed.direction, [0, 1, 0])


@pytest.mark.parametrize("scale", [(1, 1, 1), (5, 5, 5), (-2, 1, 1)])
def test_camera_of_a_node_is_that_of_look_at_whatever_the_scale(scale):
    view = look_at((3, 2, 1), (0, 0.5, 0))
    world = np.linalg.inv(view) @ np.diag([*scale, 1.0])
    camera = flat.camera_at(SceneCamera(near=0.1, far=10.0), world, aspect=1.5)
    assert np.allclose(camera.view, view, atol=1e-12)


@pytest.mark.parametrize(
    ("camera", "ends"),
    [
        (SceneCamera(near=0.5, far=20.0), (0.5, 20.0)),
        (SceneCamera(near=0.5), (0.5, 1e12)),
        (SceneCamera("orthographic", x_mag=2.0, y_mag=1.0, near=0.5, far=20.0), (0.5, 20.0)),
    ],
)
def test_depth_is_0_at_near_and_1_at_far(camera, ends):
    matrix = flat.camera_at(camera, np.eye(4)).matrix
    for z, want in zip(ends, (0.0, 1.0), strict=True):
        clip = matrix @ [0, 0, -z, 1]
        assert clip[2] / clip[3] == pytest.approx(want, abs=1e-9)


def test_orthographic_magnifications_are_half_sizes_and_y_is_down():
    camera = SceneCamera("orthographic", x_mag=2.0, y_mag=0.5, near=0.0, far=1.0)
    assert (flat.camera_at(camera, np.eye(4)).matrix @ [2, 0.5, 0, 1]).tolist() == [1, -1, 0, 1]


def test_mesh_to_scene_and_back_is_the_same_surface():
    ball = icosphere(2)
    scene = scene_of(ball, np.full((4, 4, 3), 0.5)).check()
    assert len(scene.meshes[0].primitives[0].positions) > len(ball.positions), "seams are doubled"
    back = mesh_of(scene)
    assert len(back.positions) == len(ball.positions), "and welded again"
    assert np.array_equal(back.positions[back.faces], ball.positions[ball.faces])
    assert np.array_equal(back.uvs[back.corner_faces], ball.uvs[ball.corner_faces])
    assert scene.materials[0].base_color_map.wrap_u == "clamp"


def test_joined_meshes_keep_their_corners():
    a, b = icosphere(1), icosphere(2, 3.0)
    both = joined([a, b]).check()
    assert np.array_equal(both.positions[both.faces[80:]], b.positions[b.faces])
    assert np.array_equal(both.uvs[both.uv_faces[80:]], b.uvs[b.uv_faces])
    with pytest.raises(GraphError, match="'bare' has no uvs"):
        joined([a, Mesh(POINTS, FACES, name="bare")])
    with pytest.raises(GraphError, match="no triangles"):
        joined([])


def test_welding_keeps_the_order_of_first_use():
    mesh = welded(
        Mesh(np.array([[9, 0, 0], [1, 0, 0], [9, 0, 0], [0, 5, 0]]), [[0, 1, 3], [2, 3, 1]])
    )
    assert mesh.positions[:, 0].tolist() == [9, 1, 0]
    assert mesh.faces.tolist() == [[0, 1, 2], [0, 2, 1]]


def with_node(**changes):
    scene = small_scene()
    return replace(scene, nodes=(*scene.nodes[:2], replace(scene.nodes[2], **changes)))


def with_primitive(**changes):
    return small_scene(meshes=(SceneMesh((replace(TETRA, **changes),)),))


def with_material(**changes):
    return small_scene(materials=(replace(small_scene().materials[0], **changes),))


def with_map(**changes):
    return with_material(base_color_map=replace(TextureRef(0), **changes))


NAN_POINTS = np.where(np.arange(12).reshape(4, 3) == 7, np.nan, POINTS)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: with_node(children=(1,)), "node 1 has two parents, nodes 0 and 2"),
        (lambda: with_node(children=(0,)), "node 0 is a root, but a child of node 2"),
        (lambda: replace(with_node(children=(0,)), roots=()), "node 0 is in a cycle"),
        (lambda: with_node(children=(7,)), "node 2: a child is 7, out of range: there are 3 nodes"),
        (lambda: small_scene(roots=(0, 0)), "listed twice"),
        (lambda: small_scene(roots=(9,)), "a root of the scene is 9"),
        (lambda: with_node(mesh=1), "node 2 '': mesh is 1, out of range: there are 1 meshes"),
        (lambda: with_node(light=0), "light is 0, out of range: there are 0 lights"),
        (lambda: with_node(matrix=np.eye(3)), r"matrix must be \(4, 4\)"),
        (lambda: with_node(matrix=np.eye(4) * np.nan), "finite"),
        (lambda: with_node(matrix=np.ones((4, 4))), "last row"),
        (lambda: with_node(weights=(1.0, 2.0)), "2 weights, there are 1 blendshapes"),
        (lambda: with_node(mesh=None, weights=(1.0,)), "has weights but no mesh"),
        (lambda: with_primitive(faces=FACES + 1), r"face 1 is \[1, 2, 4\], out of range"),
        (lambda: with_primitive(faces=FACES[:0]), "is empty"),
        (lambda: with_primitive(positions=NAN_POINTS), r"positions\[2\] is not finite"),
        (
            lambda: with_primitive(normals=np.ones((3, 3))),
            r"normals must be \(4, 3\), not \(3, 3\)",
        ),
        (lambda: with_primitive(colors=np.ones((4, 3))), r"colors must be \(4, 4\)"),
        (lambda: with_primitive(uvs=()), "base_color_map of material 0 reads UV set 0"),
        (lambda: with_primitive(material=3), "material is 3"),
        (
            lambda: with_primitive(targets=(MorphTarget(np.ones((5, 3))),)),
            r"targets\[0\].positions",
        ),
        (lambda: small_scene(meshes=(SceneMesh(()),)), "has no primitives"),
        (
            lambda: small_scene(meshes=(SceneMesh((TETRA, replace(TETRA, targets=()))),)),
            "differ in blendshapes",
        ),
        (lambda: with_material(metallic=1.5), "metallic is 1.5"),
        (lambda: with_material(base_color=(1, 1, 1)), "base_color must be 4 numbers"),
        (lambda: with_material(base_color=(1, 1, -1, 1)), r"base_color\[2\] is -1"),
        (lambda: with_material(alpha_mode="mask"), "OPAQUE, MASK, BLEND"),
        (lambda: with_map(image=1), "base_color_map: image is 1, out of range"),
        (lambda: with_map(uv_set=-1), "uv_set is -1"),
        (lambda: with_map(wrap_u="border"), "repeat, mirror, clamp"),
        (lambda: with_map(scale=(1.0, np.inf)), r"scale\[1\] is inf"),
        (lambda: small_scene(images=(Image(np.ones((2, 2, 5))),)), "1 to 4"),
        (lambda: small_scene(images=(Image(np.full((2, 2), np.nan)),)), r"pixel \(x 0, y 0\)"),
        (lambda: small_scene(images=(Image(np.ones((2, 2)), "sRGB"),)), "srgb, linear"),
        (lambda: small_scene(cameras=(SceneCamera(near=2, far=1),)), "near < far"),
        (lambda: small_scene(cameras=(SceneCamera("orthographic"),)), "x_mag, y_mag and far"),
        (lambda: small_scene(cameras=(SceneCamera(fov_y_deg=180),)), "fov_y_deg < 180"),
        (lambda: small_scene(lights=(PunctualLight("sun"),)), "directional, point, spot"),
        (lambda: small_scene(lights=(PunctualLight("spot", outer_cone_rad=2),)), "pi / 2"),
        (lambda: small_scene(lights=(PunctualLight("point", range=0.0),)), "range is 0.0"),
    ],
)
def test_faults_are_named(make, words):
    with pytest.raises(GraphError, match=words):
        make().check()


def test_faces_that_are_no_integers_are_refused_at_once():
    with pytest.raises(GraphError, match="must be integers"):
        Primitive(POINTS, FACES.astype(float))
    with pytest.raises(GraphError, match="beyond int32"):
        Primitive(POINTS, FACES.astype(np.int64) + 2**31)


def test_a_cycle_below_a_root_ends_in_an_error_without_check():
    nodes = (Node(children=(1,)), Node(children=(0,)))
    with pytest.raises(GraphError, match="no tree"):
        Scene(nodes, (0,)).instances()
