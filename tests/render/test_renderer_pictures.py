"""Pictures of the renderer: by hand, in float64, and in each of its modes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dressi import DressiBasicRenderer, evaluate
from dressi.render.camera import Camera, look_at, orthographic, perspective
from dressi.render.scene import (
    Image,
    Material,
    Node,
    Primitive,
    PunctualLight,
    Scene,
    SceneCamera,
    SceneMesh,
    TextureRef,
    trs_matrix,
)
from dressi.testing.scenes import cube

SIZE = (32, 32)
FRONT = Camera(look_at((0, 0, 3)), orthographic(2.0, 2.0, 0.5, 6.0), "front")
"""Sees the square from -1 to 1, one unit is 16 pixels."""

QUAD = np.float32([(-1, -1, 0), (1, -1, 0), (1, 1, 0), (-1, 1, 0)])
QUAD_FACES = np.array([(0, 1, 2), (0, 2, 3)])
QUAD_UV = np.float32([(0, 1), (1, 1), (1, 0), (0, 0)])
UNLIT = Material(unlit=True)
PAINT = np.float32([[(1, 0, 0), (0, 1, 0)], [(0, 0, 1), (1, 1, 0)]])
"""Red, green; blue, yellow: row 0 on top."""


def quad(material: int | None = 0, z: float = 0.0, scale: float = 1.0, **more: Any) -> Primitive:
    """A square that faces +Z and fills the picture."""
    flat = np.broadcast_to(np.float32([0, 0, 1]), (4, 3))
    return Primitive(
        QUAD * np.float32(scale) + np.float32([0, 0, z]),
        QUAD_FACES,
        **{"normals": flat, "uvs": (QUAD_UV,), "material": material, **more},
    )


def scene_with(*primitives: Primitive, materials: Any = (UNLIT,), **more: Any) -> Scene:
    """One node with a mesh of these primitives."""
    nodes = (Node(mesh=0), *more.pop("nodes", ()))
    return Scene(
        nodes,
        tuple(range(len(nodes))),
        (SceneMesh(primitives, name="quads"),),
        tuple(materials),
        **more,
    ).check()


def shown(scene: Scene, *, alpha: bool = False, load: Any = None, **graph: Any) -> np.ndarray:
    """The picture of the front view."""
    with DressiBasicRenderer() as r:
        r.load_scene(scene, **{"size": SIZE, "cameras": FRONT, **(load or {})})
        r.build_graph(**{"r": 0.0, **graph})
        return r.render(0, alpha)


def nearest(k: int = 0, **more: Any) -> TextureRef:
    return TextureRef(k, **{"mag_filter": "nearest", "min_filter": "nearest", **more})


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["hardsoftras", "antialias"])
def test_row_0_of_a_texture_is_on_top(mode: str) -> None:
    unlit = Material(unlit=True, base_color_map=nearest())
    got = shown(scene_with(quad(), materials=[unlit], images=(Image(PAINT),)), mode=mode)
    corners = got[[4, 4, 28, 28], [4, 28, 4, 28]]
    assert np.allclose(corners, PAINT.reshape(4, 3), atol=1e-6)


@pytest.mark.gpu
def test_texture_transforms_and_the_second_uv_set() -> None:
    """The first material repeats the picture twice; the second reads mirrored UVs."""
    twice = Material(unlit=True, base_color_map=nearest(scale=(2.0, 2.0)))
    other = Material(unlit=True, base_color_map=nearest(uv_set=1))
    mirrored = QUAD_UV * np.float32([-1, 1]) + np.float32([1, 0])
    left = quad(0, scale=0.5, uvs=(QUAD_UV, QUAD_UV))
    left = replace(left, positions=left.positions - np.float32([0.5, 0, 0]))
    right = quad(1, scale=0.5, uvs=(QUAD_UV, mirrored))
    right = replace(right, positions=right.positions + np.float32([0.5, 0, 0]))
    got = shown(scene_with(left, right, materials=[twice, other], images=(Image(PAINT),)))
    assert np.allclose(got[9, 1::4, :][:4], [(1, 0, 0), (0, 1, 0)] * 2)
    assert np.allclose(got[[9, 9, 20, 20], [17, 30, 17, 30]], PAINT[:, ::-1].reshape(4, 3))


@pytest.mark.gpu
def test_vertex_colours_multiply() -> None:
    colors = np.float32([(1, 0.5, 0, 1)] * 4)
    unlit = Material((0.5, 0.5, 0.5, 1.0), unlit=True)
    got = shown(scene_with(quad(colors=colors), materials=[unlit]))
    assert np.allclose(got[16, 16], (0.5, 0.25, 0.0), atol=1e-6)


@pytest.mark.gpu
def test_a_white_square_in_the_sun() -> None:
    """glTF: a dielectric facing light and eye; D V F by hand for roughness 1."""
    material = Material(metallic=0.0, roughness=1.0)
    sun = PunctualLight("directional", intensity=3.0)
    scene = scene_with(quad(), materials=[material], nodes=(Node(light=0),), lights=(sun,))
    got = shown(scene)[16, 16]
    mirror = 0.04 * (1.0 / math.pi) * 0.25  # F D V with n.l = n.v = n.h = 1
    want = 3.0 * (0.96 / math.pi + mirror)
    assert np.allclose(got, want, rtol=1e-4)


@pytest.mark.gpu
def test_double_sided_faces_are_lit_from_behind() -> None:
    """The same square seen from its back, with a headlight: dark, unless it is double-sided."""
    back = Camera(look_at((0, 0, -3)), orthographic(2.0, 2.0, 0.5, 6.0), "back")
    values = []
    for both in (False, True):
        m = Material(metallic=0.0, double_sided=both)
        load = {"cameras": back, "ambient": 0.0, "headlight": 2.0}
        values.append(float(shown(scene_with(quad(), materials=[m]), load=load)[16, 16].min()))
    assert values[0] < 1e-6 and values[1] > 0.5


@pytest.mark.gpu
def test_clear_and_masked_materials() -> None:
    """From front to back: a clear red square, a masked one of which the left half is cut, white."""
    cut = np.ones((2, 2, 4), np.float32)
    cut[:, 0, 3] = 0.2
    materials = [
        Material((1.0, 0.0, 0.0, 0.25), alpha_mode="BLEND", unlit=True),
        Material((0.0, 1.0, 0.0, 1.0), base_color_map=nearest(), alpha_mode="MASK", unlit=True),
        Material(unlit=True),
    ]
    scene = scene_with(
        quad(0, 0.2), quad(1, 0.1), quad(2), materials=materials, images=(Image(cut),)
    )
    got = shown(scene, K=3)
    assert np.allclose(got[16, 4], (1.0, 0.75, 0.75), atol=1e-5)
    assert np.allclose(got[16, 28], (0.25, 0.75, 0.0), atol=1e-5)
    over_blue = shown(scene, background=(0.0, 0.0, 1.0), mode="antialias")
    assert np.allclose(over_blue[16, 4], (0.25, 0.0, 0.75), atol=1e-5)


@pytest.mark.gpu
def test_coverage_and_colours_without_the_background() -> None:
    scene = scene_with(quad(scale=0.5), materials=[Material((0.5, 0.5, 0.5, 1.0), unlit=True)])
    got = shown(scene, alpha=True, background=(0.0, 0.0, 1.0), r=0.05)
    cover = got[..., 3]
    assert np.allclose(got[cover > 0.01][:, :3], 0.5, atol=1e-3)
    assert cover[16, 16] == 1.0 and cover[0, 0] == 0.0 and ((cover > 0.1) & (cover < 0.9)).any()


@pytest.mark.gpu
def test_rims_have_the_colour_of_what_is_seen() -> None:
    """A box whose front is white and whose sides, turned away, are black: beyond the outline of the
    front its rim is white. The silhouette is that of all faces' rims."""
    box, faces = cube(0.5)
    corners = box[faces]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    faces = faces if (normal * corners.mean(1)).sum() > 0.0 else faces[:, ::-1]
    white = np.abs(corners.mean(1)[:, 2] - 0.5) < 1e-6
    parts = [
        Primitive(np.float32(box), faces[white], material=0),
        Primitive(np.float32(box), faces[~white], material=1),
    ]
    materials = [UNLIT, Material((0.0, 0.0, 0.0, 1.0), unlit=True)]
    camera = Camera(look_at((0, 0, 3)), perspective(40.0, 1.0, 0.5, 6.0))
    scene, load = scene_with(*parts, materials=materials), {"cameras": camera}
    got = shown(scene, alpha=True, r=0.1, load=load)
    cover = got[..., 3]
    assert ((cover > 0.05) & (cover < 0.4)).sum() > 40
    assert np.allclose(got[cover > 0.01][:, :3], 1.0, atol=2e-3)
    both = shown(scene, alpha=True, r=0.1, load=load, K=2)[..., 3]
    assert np.abs(both - cover)[cover < 0.5].max() > 1e-3  # two rims at once, where K allows it


@pytest.mark.gpu
def test_the_environment_is_the_background() -> None:
    """Looking down -Z the middle of an equirectangular map is in the middle; +Y is on top."""
    sky = np.zeros((16, 32, 3), np.float32)
    sky[:8, :, 2], sky[8:, :, 0] = 1.0, 1.0
    sky[:, 16:, 1] = 0.5  # towards +X
    camera = Camera(look_at((0, 0, 3)), perspective(60, 1.0, 0.5, 6.0))
    scene = scene_with(quad(scale=0.3))
    load = {"environment": sky, "cameras": camera}
    got = shown(scene, background="environment", load=load)
    assert np.allclose(got[2, 2], (0, 0, 1), atol=1e-4)
    assert np.allclose(got[2, 30], (0, 0.5, 1), atol=1e-4)
    assert np.allclose(got[30, 30], (1, 0.5, 0), atol=1e-4)
    assert np.allclose(got[16, 16], 1.0, atol=1e-4)  # the square


@pytest.mark.gpu
def test_a_constant_environment_lights_like_ambient_light() -> None:
    m = Material((0.6, 0.5, 0.4, 1.0), metallic=0.3, roughness=0.5)
    scene = scene_with(quad(), materials=[m])
    ambient = shown(scene, load={"ambient": 0.7, "headlight": 0.0})
    sky = shown(scene, load={"environment": np.full((8, 16, 3), 0.7, np.float32)})
    assert ambient[16, 16, 0] > 0.2 and np.allclose(ambient, sky, atol=2e-3)


@pytest.mark.gpu
def test_shadows_are_cast() -> None:
    """A small square between the sun and a large one."""
    m = Material(metallic=0.0)
    sun = PunctualLight("directional", intensity=3.0)
    down = Node(trs_matrix(rotation_xyzw=(0.0, 0.258819, 0.0, 0.9659258)), light=0)  # 30 degrees
    scene = scene_with(quad(), quad(z=0.5, scale=0.2), materials=[m], nodes=(down,), lights=(sun,))
    plain, dark = shown(scene), shown(scene, shadows=128)
    # The shadow of the middle lies 0.5 tan(30) to the left, 4.6 pixels, half under the square.
    assert dark[16, 10].max() < 0.2 * plain[16, 10].min()
    assert np.allclose(dark[16, 27], plain[16, 27], rtol=0.02)


@pytest.mark.gpu
def test_tone_curves_come_after_blending() -> None:
    m = Material((0.5, 0.25, 1.0, 1.0), unlit=True)
    got = shown(scene_with(quad(), materials=[m]), tone=("reinhard", "srgb"))[16, 16]
    v = np.array([0.5, 0.25, 1.0]) / (1.0 + np.array([0.5, 0.25, 1.0]))
    assert np.allclose(got, 1.055 * v ** (1 / 2.4) - 0.055, atol=1e-4)


@pytest.mark.gpu
def test_the_cameras_of_the_scene_and_the_one_in_front() -> None:
    """A scene's own camera at z = 3 sees what a given one sees; without any, all is in view."""
    lens = SceneCamera(fov_y_deg=40.0, near=0.5, far=6.0)
    node = Node(trs_matrix((0, 0, 3)), camera=0)
    scene = scene_with(quad(scale=0.5), nodes=(node,), cameras=(lens,))
    given = Camera(look_at((0, 0, 3)), perspective(40.0, 1.0, 0.5, 6.0))
    assert np.allclose(shown(scene, load={"cameras": None}), shown(scene, load={"cameras": given}))
    alone = shown(scene_with(quad()), load={"cameras": None})[..., 0]
    rows = np.flatnonzero(alone.max(1) > 0.5)
    assert rows[0] >= 2 and rows[-1] <= 29 and len(rows) > 16


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["hardsoftras", "antialias"])
def test_pictures_agree_with_float64(mode: str) -> None:
    """All features of the small scene: the device against the graph's own float64 reference."""
    from renderer_scenes import cameras, demo_scene

    with DressiBasicRenderer() as r:
        r.load_scene(demo_scene(), size=(24, 20), cameras=cameras(2), ambient=0.2)
        r.build_graph(K=2, r=0.04, mode=mode)
        got = r.render_all()
        graph = r._made()
        want = evaluate([graph.both], {})[0][..., :3]
    error = np.abs(got - want).max(axis=-1)
    # A pixel whose centre lies on an edge may belong to either face.
    assert np.quantile(error, 0.99) < 1e-3 and (error > 1e-3).sum() <= 2 and got.max() > 0.3
