"""Cameras of files and far places: aspects, planes, default views, and scenes far from the origin.

References: closed forms of what a camera sees, the scene in front of another, and the same scene at
the origin, which a shift of everything must not change.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dressi import DressiAD, DressiBasicRenderer, F, Variable
from dressi.ad.vtype import MAT4, VEC3
from dressi.errors import DressiWarning, GraphError
from dressi.render.camera import Camera, from_opencv, look_at, orthographic, perspective, recentred
from dressi.render.io import load_scene
from dressi.render.pipeline.frame import depth_step, tightened
from dressi.render.raster import to_screen
from dressi.render.raster.projection import project as project_to_clip
from dressi.render.scene import (
    Material,
    Mesh,
    Node,
    Primitive,
    PunctualLight,
    Scene,
    SceneCamera,
    SceneMesh,
    flat,
    icosphere,
    scene_of,
    trs_matrix,
)

FAR = (8297640.0, 4115375.0, 66.0)
SQUARE = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], np.float64)
TWO = np.array([[0, 1, 2], [0, 2, 3]])
CUBE = np.array([(x, y, z) for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
CUBE_FACES = np.array(
    [(0, 1, 3), (0, 3, 2), (4, 6, 7), (4, 7, 5), (0, 4, 5), (0, 5, 1)]
    + [(2, 3, 7), (2, 7, 6), (0, 2, 6), (0, 6, 4), (1, 5, 7), (1, 7, 3)]
)


def with_camera(scene: Scene, lens: SceneCamera, at: tuple[float, float, float]) -> Scene:
    node = Node(trs_matrix(at), camera=0)
    roots = (*scene.roots, len(scene.nodes))
    return replace(scene, nodes=(*scene.nodes, node), roots=roots, cameras=(lens,)).check()


# -- aspects


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("lens", "size", "half"),
    [
        # The silhouette of a unit sphere at distance 4 has the half angle asin(1 / 4).
        (SceneCamera(fov_y_deg=40.0, aspect=2.0, near=1.0), (96, 96), 48 / 2),
        (SceneCamera(fov_y_deg=40.0, aspect=0.5, near=1.0), (96, 48), 24),
        (SceneCamera("orthographic", x_mag=3.0, y_mag=1.5, near=1.0, far=9.0), (90, 90), None),
        (SceneCamera("orthographic", x_mag=1.5, y_mag=3.0, near=1.0, far=9.0), (120, 60), None),
    ],
)
def test_a_sphere_is_round_in_pictures_of_any_aspect(
    lens: SceneCamera, size: tuple[int, int], half: float | None
) -> None:
    """half: pixels per tan(20 degrees); orthographic: 3 units are half of the shorter side."""
    scene = with_camera(scene_of(icosphere(3)), lens, (0, 0, 4))
    with DressiBasicRenderer() as r:
        r.load_scene(scene, size=size)
        r.build_graph(r=1e-4)
        cover, notes = r.render(alpha=True)[..., 3], r.notes
    if half is None:
        radius = min(size) / 2 / 3.0
    else:
        radius = half * math.tan(math.asin(0.25)) / math.tan(math.radians(20))
    wide, high = (cover.max(axis=k) > 0.5 for k in (0, 1))
    assert abs(wide.sum() - 2 * radius) <= 1.5 and abs(high.sum() - 2 * radius) <= 1.5
    own = flat.own_aspect(lens)
    assert any("aspect" in note for note in notes) == (own is not None)


def test_a_camera_keeps_all_of_its_frame() -> None:
    """The corners of the file's frame are inside of pictures of every aspect, and on an edge."""
    for lens in (
        SceneCamera(fov_y_deg=50.0, aspect=1.6, near=0.1),
        SceneCamera("orthographic", x_mag=1.6, y_mag=1.0, near=0.0, far=9.0),
    ):
        y = math.tan(math.radians(25)) if lens.kind == "perspective" else 1.0
        for aspect in (0.3, 1.0, 1.6, 5.0):
            m = flat.camera_at(lens, np.eye(4), aspect).matrix
            clip = m @ [1.6 * y, y, -1.0, 1.0]
            right, down = clip[:2] / clip[3]
            assert max(right, -down) == pytest.approx(1.0)
            assert right / -down == pytest.approx(1.6 / aspect)
        assert np.array_equal(
            flat.camera_at(lens, np.eye(4)).matrix, flat.camera_at(lens, np.eye(4), 1.6).matrix
        )


@pytest.mark.gpu
def test_cameras_that_are_given_name_both_aspects() -> None:
    k = np.array([[60.0, 0, 32], [0, 60, 20], [0, 0, 1]])
    photo = from_opencv(k, np.diag([1.0, -1, -1]), (0, 0, 4), 64, 40, 1.0, 9.0)
    wide = Camera(look_at((0, 0, 4)), perspective(40, 2.0, 1.0, 9.0), "wide")
    with DressiBasicRenderer() as r:
        with pytest.raises(GraphError, match=r"64x40 pixels, aspect 1\.6; .* 48x48, aspect 1\b"):
            r.load_scene(scene_of(icosphere(1)), cameras=photo, size=(48, 48))
        r.load_scene(scene_of(icosphere(1)), cameras=photo, size=(33, 20))  # rounded sizes
        with pytest.warns(DressiWarning, match=r"'wide' draws .* aspect 2 .* 48x48, aspect 1"):
            r.load_scene(scene_of(icosphere(1)), cameras=wide, size=(48, 48))


# -- depths


def layers(distance: float) -> Scene:
    """A red square of side 2000 at z = 0 over a green one at z = -1, and the camera of a file."""
    parts = []
    for k, z in enumerate((-1.0, 0.0)):
        parts.append(Primitive(SQUARE * [1000, 1000, 0] + (0, 0, z), TWO, material=k))
    colors = ((0.0, 1.0, 0.0, 1.0), (1.0, 0.0, 0.0, 1.0))
    materials = tuple(Material(base_color=c, unlit=True) for c in colors)
    base = Scene((Node(mesh=0),), (0,), (SceneMesh(tuple(parts)),), materials)
    lens = SceneCamera(fov_y_deg=45.0, near=0.05, far=1e6)
    return with_camera(base, lens, (0.0, 0.0, distance))


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["hardsoftras", "antialias"])
def test_loose_planes_do_not_mix_up_depths(mode: str) -> None:
    with DressiBasicRenderer() as r:
        r.load_scene(layers(1600.0), size=(40, 40))
        r.build_graph(r=0.0, mode=mode)
        picture = r.render(alpha=True)
        assert picture[20, 20, 3] == 1.0
        assert (picture[..., 0] == picture[..., 3]).all() and (picture[..., 1] == 0.0).all()
        assert depth_step(r.cameras[0].matrix, np.array([[0, 0, 0, 1.0]])) > 1.0, "as it was given"
        if mode == "antialias":
            return
        # What is moved nearer than the planes that were fitted to the scene is not cut.
        name = next(p.name for p in r.parameters if p.kind == "vtx_pos")
        moved = r.value(name) * [1e-3, 1e-3, 0.1] + (0.0, 0.0, 1597.0)
        r.set_value(name, moved)
        near = r.render(alpha=True)
        assert near[20, 20].tolist() == [1.0, 0.0, 0.0, 1.0]


def test_tightened_planes_keep_the_picture_and_hide_nothing() -> None:
    corners = np.array([(x, y, z, 1.0) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    view = look_at((900.0, 500.0, 1000.0))
    infinite = perspective(30, 1, 0.01, 1)
    infinite[2, 2:] = -1.0, -0.01
    for lens in (perspective(30, 1, 0.01, 1e6), infinite, orthographic(3, 3, 1e-3, 1e9)):
        loose = Camera(view, lens)
        tight = tightened(loose, corners, math.sqrt(3))
        before, after = corners @ loose.matrix.T, corners @ tight.matrix.T
        assert np.allclose(after[:, [0, 1, 3]], before[:, [0, 1, 3]], atol=0)
        depth = after[:, 2] / after[:, 3]
        assert depth.min() > 0.0 and depth.max() <= 1.0
        order = np.argsort(before[:, 3] if before[:, 3].std() > 1e-9 else before[:, 2])
        assert (np.diff(depth[order]) >= -1e-12).all()
        assert depth_step(tight.matrix, corners) < 1e-3 < depth_step(loose.matrix, corners)
    fine = Camera(look_at((0, 0, 5)), perspective(45, 1, 0.1, 20))
    assert tightened(fine, corners, math.sqrt(3)) is fine


@pytest.mark.gpu
def test_depths_that_cannot_be_told_apart_are_said() -> None:
    """A camera within the scene: its near plane must stay."""
    scene = layers(1600.0)
    inside = Camera(look_at((0, 0, 900.0)), perspective(45, 1, 1e-4, 1e6), "inside")
    room = Primitive(CUBE * 3000.0, CUBE_FACES)
    mesh = SceneMesh((*scene.meshes[0].primitives, room))
    scene = replace(scene, meshes=(mesh,))
    with DressiBasicRenderer() as r, pytest.warns(DressiWarning, match="raise the near plane"):
        r.load_scene(scene, cameras=inside, size=(8, 8))


# -- what is seen


@pytest.mark.gpu
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_default_camera_sees_a_plane(axis: int) -> None:
    """Planes across each axis fill the same part of the picture."""
    positions = np.roll(SQUARE, axis - 2, axis=1)
    assert np.ptp(positions[:, axis]) == 0.0
    with DressiBasicRenderer() as r:
        r.load_scene(scene_of(Mesh(positions, TWO)), size=(24, 24))
        r.build_graph(r=1e-4)
        cover = r.render(alpha=True)[..., 3]
    side = 2.0 * math.cos(math.radians(22.5)) / (1.05 * math.sqrt(2.0))  # in halves of the picture
    assert cover.mean() == pytest.approx((side / 2.0) ** 2, rel=0.2)


@pytest.mark.gpu
def test_views_of_nothing_are_said() -> None:
    edge_on = Camera(look_at((4.0, 0, 0)), orthographic(3, 3, 1, 9), "edge-on")
    lens = perspective(40, 1.0, 1.0, 9.0)
    with DressiBasicRenderer() as r:
        scene = scene_of(Mesh(SQUARE, TWO))
        r.load_scene(scene, cameras=edge_on, size=(8, 8))
        r.build_graph(r=0.0)
        with pytest.warns(DressiWarning, match="nothing is seen by 1 of 1 cameras: edge-on"):
            r.render()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            r.render()  # said once
        for view, where in (
            (look_at((0, 0, 4), (0, 0, 9)), "behind the camera"),
            (look_at((0, 0, 40)), "beyond the far plane"),
            (look_at((0, 0, 4), (30, 0, 0)), "left of the picture"),
            (look_at((0, 0, 0.5)), "nearer than the near plane"),
        ):
            with pytest.warns(DressiWarning, match=f"'v' sees nothing.*{where}"):
                r.load_scene(scene, cameras=Camera(view, lens, "v"), size=(8, 8))


# -- far from the origin


def lit_cube(at: tuple[float, float, float], by_node: bool) -> tuple[Scene, Camera]:
    """A cube with a lamp, placed by its node or by its vertices, and a camera beside it."""
    where = np.array(at)
    mesh = Mesh((CUBE if by_node else CUBE + where).astype(np.float32), CUBE_FACES)
    base = scene_of(mesh)
    cube = Node(trs_matrix(at), mesh=0, name="cube") if by_node else Node(mesh=0, name="cube")
    lamp = Node(trs_matrix(tuple(where + (1.5, 2.0, 3.0))), light=0, name="lamp")
    scene = replace(
        base, nodes=(cube, lamp), roots=(0, 1), lights=(PunctualLight("point", intensity=30.0),)
    )
    eye = where + (1.2, 0.9, 3.0)
    return scene.check(), Camera(look_at(eye, where), perspective(40, 1.0, 0.5, 9.0))


@pytest.mark.gpu
@pytest.mark.parametrize("by_node", [True, False])
def test_a_shift_of_everything_leaves_the_picture(by_node: bool, tmp_path: Path) -> None:
    """A cube at UTM coordinates; its vertices are float32 there, in steps of 0.5, exactly."""
    at = (0.3, 0.2, -0.1)
    pictures = []
    for shift in (np.zeros(3), np.array(FAR)):
        place = shift + at if by_node else shift
        with DressiBasicRenderer() as r:
            scene, camera = lit_cube(tuple(place), by_node)
            r.load_scene(scene, cameras=camera, size=(24, 24))
            r.build_graph(r=1 / 24, shadows=16)
            pictures.append(r.render(alpha=True))
            lamp = r.value("light_position")
            assert np.abs(np.ravel(lamp) - (place + (1.5, 2.0, 3.0))).max() < 1e-6
            assert np.allclose(r.cameras[0].matrix, camera.matrix, rtol=0, atol=1e-9)
            r.set_value("light_position", lamp + 0.25)
            r.set_value("camera_rotation", [0.02, -0.05, 0.1])
            moved = r.cameras[0]
            name = next(p.name for p in r.parameters if p.kind == "vtx_pos")
            r.set_value(name, r.value(name))
            r.save_scene(tmp_path / "far.glb")
            pictures.append(r.render(alpha=True))
            r.load_scene(r.scene, cameras=moved, size=(24, 24))
            r.build_graph(r=1 / 24, shadows=16)
            assert np.abs(r.render(alpha=True) - pictures[-1]).max() < 1e-3
        again = load_scene(tmp_path / "far.glb")
        points = flat.instances(again)[0].exact_positions()
        assert np.abs(np.sort(points.min(axis=0)) - np.sort(place - 0.5)).max() < 1e-6
        lamp_now = flat.lights(again)[0].position
        assert np.abs(lamp_now - (place + (1.75, 2.25, 3.25))).max() < 1e-6
    assert pictures[0][..., 3].mean() > 0.1 and np.abs(pictures[0] - pictures[1]).max() > 1e-3
    assert np.abs(pictures[0] - pictures[2]).max() < 1e-4
    assert np.abs(pictures[1] - pictures[3]).max() < 1e-4


def test_the_vertices_of_an_obj_file_keep_their_digits(tmp_path: Path) -> None:
    """UTM coordinates with centimetres: the scene holds them in its node, in float64."""
    points = CUBE * 1.03 + FAR
    lines = [f"v {x:.4f} {y:.4f} {z:.4f}" for x, y, z in points]
    lines += [f"f {a} {b} {c}" for a, b, c in CUBE_FACES + 1]
    (tmp_path / "utm.obj").write_text("\n".join(lines))
    found = flat.instances(load_scene(tmp_path / "utm.obj"))[0]
    got = found.exact_positions()[found.faces]
    assert np.abs(got - points[CUBE_FACES]).max() < 1e-4
    near = load_scene_of(CUBE, tmp_path)
    assert np.array_equal(near.nodes[0].matrix, np.eye(4))


def load_scene_of(points: np.ndarray, folder: Path) -> Scene:
    lines = [f"v {x} {y} {z}" for x, y, z in points]
    (folder / "near.obj").write_text("\n".join([*lines, "f 1 2 3"]))
    return load_scene(folder / "near.obj")


def test_lost_digits_are_said_where_they_are_given() -> None:
    points = CUBE * 1.03 + FAR
    with pytest.warns(DressiWarning, match=r"mesh 'cube': float32 moves .* by up to 0\.015"):
        Mesh(points, CUBE_FACES, name="cube")
    with pytest.warns(DressiWarning, match="primitive 'cube': float32 moves"):
        Primitive(points, CUBE_FACES, name="cube")
    placed = flat.instances(lit_cube(tuple(points[0]), True)[0])[0]
    with pytest.warns(DressiWarning, match="in the world: float32 moves"):
        placed.world_mesh()
    with pytest.warns(DressiWarning, match=r"points 8.298e\+06 from the origin and 1 apart"):
        F.leaf((CUBE + FAR).astype(np.float32), VEC3, "pos")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Mesh(CUBE + FAR, CUBE_FACES)  # multiples of 1/2: float32 holds them
        Mesh(CUBE + 50.0, CUBE_FACES)
        F.leaf(CUBE + 50.0, VEC3, "pos")
        F.leaf(np.full((8, 3), 1000.0), VEC3, "color")
        F.leaf(0.5 + CUBE * 1e-5, VEC3, "color")


@pytest.mark.gpu
def test_low_level_positions_far_away(ad: DressiAD) -> None:
    """Said once per leaf; recentred, the picture is that of NumPy's projection in float64."""
    points = CUBE + FAR
    camera = Camera(look_at(np.array(FAR) + (1.2, 0.9, 3.0), FAR), perspective(40, 1.0, 0.5, 9.0))
    pos, matrix = Variable(VEC3, (8, 1), name="pos"), Variable(MAT4, name="matrix")
    screen = to_screen(project_to_clip(pos, matrix), (64, 64))
    with pytest.warns(DressiWarning, match="recentred"):
        ad.send_img(pos, points)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ad.send_img(pos, points)
        near, (moved,), center = recentred(points, [camera])
        ad.send_img(pos, near)
    ad.send_img(matrix, moved.matrix32)
    assert np.abs(center - FAR).max() == 0.0 and near.dtype == np.float32
    forward = np.array([-1.2, -0.9, -3.0]) / np.linalg.norm([1.2, 0.9, 3.0])
    right = np.cross(forward, (0, 1, 0)) / np.linalg.norm(np.cross(forward, (0, 1, 0)))
    out = CUBE - (1.2, 0.9, 3.0)  # from the eye
    scale = 1.0 / (math.tan(math.radians(20)) * (out @ forward))
    x, y = out @ right * scale, -(out @ np.cross(right, forward)) * scale
    want = 0.5 + 0.5 * np.stack([x, y], axis=1)
    assert np.abs(ad.recv_img(screen).reshape(8, 4)[:, :2] - want).max() < 1e-6


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["hardsoftras", "antialias"])
def test_a_floor_that_the_camera_stands_on_has_soft_outlines(mode: str) -> None:
    """It crosses the near plane: cut by default, as with clip=True; all pixels hard with False."""
    floor = Mesh(np.array([(-1, -1, 6), (1, -1, 6), (1, -1, -6), (-1, -1, -6.0)]), TWO)
    pictures = {}
    for clip in (None, True, False):
        with DressiBasicRenderer() as r:
            lens = perspective(60.0, 1.0, 0.1, 100.0)
            camera = Camera(look_at((0, 0, 0), (0, -0.3, -1), (0, 1, 0)), lens)
            r.load_scene(scene_of(floor), size=(24, 24), cameras=[camera])
            r.build_graph(r=0.05, mode=mode, clip=clip)
            pictures[clip] = r.render(alpha=True)[..., 3]
    between = {c: ((p > 0.01) & (p < 0.99)).sum() for c, p in pictures.items()}
    assert between[False] == 0 < 10 < between[True], between
    assert (pictures[None] == pictures[True]).all()
