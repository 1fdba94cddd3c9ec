"""What the renderer is given and gives back: round trips, run-time changes, files, bad input."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from renderer_scenes import SIZE, cameras, checker, demo_scene

from dressi import Adam, DeviceError, DressiBasicRenderer, F, GraphError, LoadError, Variable
from dressi.ad.optim import Momentum
from dressi.render.camera import Camera, look_at, perspective
from dressi.render.io import load_scene, read_image, save_scene, write_image
from dressi.render.scene import (
    Material,
    Node,
    Scene,
    SceneCamera,
    SceneMesh,
    differences,
    icosphere,
    primitive_of,
    scene_of,
    trs_matrix,
)


@pytest.fixture()
def renderer(vulkan_device_available: bool) -> Any:
    if not vulkan_device_available:
        pytest.skip("no Vulkan device on this machine")
    with DressiBasicRenderer() as made:
        yield made


def grey() -> np.ndarray:
    """Targets of two views that have nothing to do with the scene."""
    return np.full((2, SIZE[1], SIZE[0], 4), 0.5, np.float32)


# -- there and back


@pytest.mark.gpu
def test_a_scene_that_nothing_touched_comes_back(
    renderer: DressiBasicRenderer, tmp_path: Path
) -> None:
    scene = demo_scene()
    renderer.load_scene(scene, grey(), cameras())
    renderer.build_graph()
    assert differences(scene, renderer.scene) == []
    assert renderer.save_scene(tmp_path / "same.glb") == ()
    again = load_scene(tmp_path / "same.glb")
    save_scene(tmp_path / "first.glb", scene)
    assert differences(load_scene(tmp_path / "first.glb"), again) == []


WRITTEN: dict[str, tuple[Any, Callable[[Scene], Any]]] = {
    "base_color:Other": ((0.1, 0.2, 0.3, 0.4), lambda s: s.materials[1].base_color),
    "metallic_factor:Other": (0.25, lambda s: s.materials[1].metallic),
    "roughness_factor:Body": (0.75, lambda s: s.materials[0].roughness),
    "normal_scale:Body": (0.5, lambda s: s.materials[0].normal_scale),
    "occlusion_strength:Body": (0.5, lambda s: s.materials[0].occlusion_strength),
    "light_color:sun": ((0.1, 0.2, 0.3), lambda s: s.lights[1].color),
    "light_intensity:lamp": (7.0, lambda s: s.lights[0].intensity),
    "light_position:lamp": ((1.0, 2.0, -3.0), lambda s: s.nodes[3].matrix[:3, 3]),
    "light_direction:sun": ((0.6, -0.8, 0.0), lambda s: -s.nodes[4].matrix[:3, 2]),
    "blendshape_weights:ball": (0.7, lambda s: s.nodes[1].weights),
    "metallic:Body": (0.4, lambda s: s.images[1].pixels[..., 2]),
    "roughness:Body": (0.4, lambda s: s.images[1].pixels[..., 1]),
    "occlusion:Body": (0.4, lambda s: s.images[1].pixels[..., 0]),
    "albedo:Body": ((0.2, 0.4, 0.6), lambda s: s.images[0].pixels),
    "normal:Body": ((0.4, 0.6, 0.8), lambda s: s.images[2].pixels),
    "emissive:Body": ((0.2, 0.4, 0.6), lambda s: s.images[3].pixels),
}


@pytest.mark.gpu
def test_every_parameter_is_written_to_its_place(
    renderer: DressiBasicRenderer, tmp_path: Path
) -> None:
    """Each by itself: the place holds the value, and nothing else differs; then all of them
    through a file."""
    scene = demo_scene()
    for name, (value, place) in WRITTEN.items():
        renderer.load_scene(scene, grey(), cameras())
        shape = np.shape(renderer.value(name))
        array = np.broadcast_to(np.float32(value), shape)
        renderer.set_value(name, array)
        got = renderer.scene.check()
        assert np.allclose(place(got), value, atol=1e-5), name
        found = {re.sub(r"(\[\d\])$", "", d.split(":")[0]) for d in differences(scene, got)}
        assert len(found) == 1, (name, found)
    renderer.load_scene(scene, grey(), cameras())
    for name, (value, _) in WRITTEN.items():
        renderer.set_value(name, np.broadcast_to(np.float32(value), np.shape(renderer.value(name))))
    renderer.save_scene(tmp_path / "all.gltf")
    again = load_scene(tmp_path / "all.gltf")
    for name, (value, place) in WRITTEN.items():
        assert np.allclose(place(again), value, atol=2e-5), name


@pytest.mark.gpu
def test_moved_vertices_stay_together_at_seams(
    renderer: DressiBasicRenderer, tmp_path: Path
) -> None:
    """A ball with UV seams, twice as large: one row for each place, all copies of it move, and the
    normals of a sphere stay those of a sphere. Saved and loaded it is rendered the same."""
    ball = icosphere(2, 0.5)
    scene = scene_of(ball, checker(0.8, 0.2))
    primitive = scene.meshes[0].primitives[0]
    assert len(primitive.positions) > len(ball.positions)
    renderer.load_scene(scene, size=SIZE, cameras=cameras())
    positions = renderer.value("vtx_pos")
    assert len(positions) == len(ball.positions)
    renderer.set_value("vtx_pos", positions * 2.0)
    renderer.build_graph()
    before = renderer.render_all()
    renderer.save_scene(tmp_path / "large.glb")
    moved = load_scene(tmp_path / "large.glb").meshes[0].primitives[0]
    assert np.allclose(moved.positions, primitive.positions * 2.0, atol=1e-6)
    assert np.allclose(moved.normals, primitive.positions * 2.0, atol=0.03)
    renderer.load_scene(tmp_path / "large.glb", size=SIZE, cameras=cameras())
    renderer.build_graph()
    assert np.abs(renderer.render_all() - before).max() < 0.02


@pytest.mark.gpu
def test_new_maps_begin_with_the_factor_and_are_saved(
    renderer: DressiBasicRenderer, tmp_path: Path
) -> None:
    """Maps for the material that had none: the picture stays, and after a save and a load too."""
    renderer.load_scene(demo_scene(), size=SIZE, cameras=cameras(), ambient=0.3)
    renderer.build_graph()
    before = renderer.render_all()
    for name in ("albedo", "metallic", "roughness", "normal", "occlusion", "emissive"):
        renderer.add_map(f"{name}:Other", (4, 2))
    assert np.allclose(renderer.value("albedo:Other"), (0.2, 0.5, 0.8))
    assert np.allclose(renderer.value("base_color:Other"), 1.0)
    assert np.abs(renderer.render_all() - before).max() < 1e-5
    renderer.set_value("roughness:Other", np.full((2, 4, 1), 0.5))
    changed = renderer.render_all()
    assert np.abs(changed - before).max() > 1e-3
    renderer.save_scene(tmp_path / "maps.glb")
    again = load_scene(tmp_path / "maps.glb")
    packed = again.materials[1].metallic_roughness_map
    assert packed is not None and again.images[packed.image].pixels.shape[:2] == (2, 4)
    renderer.load_scene(tmp_path / "maps.glb", size=SIZE, cameras=cameras(), ambient=0.3)
    renderer.build_graph()
    assert np.abs(renderer.render_all() - changed).max() < 0.01  # 8 bits a channel
    with pytest.raises(GraphError, match="is there already"):
        renderer.add_map("albedo", (4, 4))


@pytest.mark.gpu
def test_an_image_that_two_kinds_read_is_split(renderer: DressiBasicRenderer) -> None:
    """Albedo and glow read one image; the glow is fitted, the albedo stays."""
    scene = demo_scene()
    body = scene.materials[0]
    shared = replace(body, emissive_map=body.base_color_map)
    scene = replace(scene, materials=(shared, scene.materials[1])).check()
    renderer.load_scene(scene, size=SIZE, cameras=cameras())
    renderer.set_value("emissive:Body", np.full((8, 8, 3), 0.25))
    got = renderer.scene.check().materials[0]
    assert got.emissive_map is not None and got.base_color_map is not None
    images = renderer.scene.images
    assert np.allclose(images[got.emissive_map.image].pixels, 0.25)
    assert np.allclose(images[got.base_color_map.image].pixels, scene.images[0].pixels)


@pytest.mark.gpu
def test_cameras_of_the_scene_are_written_back(
    renderer: DressiBasicRenderer, tmp_path: Path
) -> None:
    """A camera below a moved parent is turned and zoomed: the file's camera sees the same."""
    lens = SceneCamera(fov_y_deg=45.0, near=0.5, far=9.0)
    base = scene_of(icosphere(1, 0.7))
    nodes = (
        *base.nodes,
        Node(trs_matrix((0, 0, 1)), children=(2,)),
        Node(trs_matrix((0, 0, 2)), camera=0),
    )
    scene = replace(base, nodes=nodes, roots=(0, 1), cameras=(lens,)).check()
    renderer.load_scene(scene, size=SIZE)
    renderer.set_value("camera_rotation", np.float32([0.0, 0.1, 0.05]).reshape(1, 1, 3))
    renderer.set_value("camera_translation", np.float32([0.1, 0.0, -0.2]).reshape(1, 1, 3))
    renderer.set_value("camera_zoom", np.float32([1.2, 1.2]).reshape(1, 1, 2))
    renderer.build_graph()
    before, now = renderer.render(), renderer.cameras[0]
    assert renderer.save_scene(tmp_path / "cam.glb") == ()
    renderer.load_scene(tmp_path / "cam.glb", size=SIZE)
    renderer.build_graph()
    assert np.allclose(renderer.cameras[0].matrix, now.matrix, atol=1e-5)
    assert np.abs(renderer.render() - before).mean() < 1e-4
    renderer.set_value("camera_zoom", np.float32([1.2, 1.1]).reshape(1, 1, 2))
    assert any("square pixels" in note for note in renderer.save_scene(tmp_path / "z.glb"))
    renderer.set_value("camera_shift", np.float32([0.1, 0.0]).reshape(1, 1, 2))
    assert any("principal point" in note for note in renderer.save_scene(tmp_path / "b.glb"))


@pytest.mark.gpu
def test_the_environment_has_a_file_of_its_own(
    renderer: DressiBasicRenderer, tmp_path: Path
) -> None:
    sky = np.float32(np.random.default_rng(0).uniform(0, 4, (4, 8, 3)))
    renderer.load_scene(demo_scene(), size=SIZE, cameras=cameras(), environment=sky)
    renderer.save_environment(tmp_path / "sky.exr")
    assert np.allclose(read_image(tmp_path / "sky.exr"), sky)
    assert any("environment" in note for note in renderer.save_scene(tmp_path / "s.glb"))


# -- at run time


@pytest.mark.gpu
def test_numbers_change_without_a_rebuild(renderer: DressiBasicRenderer) -> None:
    renderer.load_scene(demo_scene(maps=False), grey(), cameras())
    renderer.build_graph(
        r=0.05,
        sigma=0.01,
        lr={"vtx_pos": 0.0, "default": 0.5},
        loss={"l2": 1.0, "silhouette": 1.0},
        regularizers={"laplacian": 1.0, "normal_consistency": 0.1, "edge_length": 0.1},
    )
    renderer.set_requires_grad("vtx_pos")
    start = renderer.value("vtx_pos:Ball")
    renderer.exec_step()
    assert np.array_equal(renderer.value("vtx_pos:Ball"), start)  # its learning rate is 0
    builds, before = renderer.ad.n_rebuilds, renderer.loss()
    renderer.set(r=0.02, sigma=0.002, laplacian=0.0, l2=0.0, **{"vtx_pos": 0.01})
    renderer.exec_step()
    assert renderer.loss() != before and renderer.ad.n_rebuilds == builds
    assert not np.array_equal(renderer.value("vtx_pos:Ball"), start)
    with pytest.raises(
        GraphError, match=r"set knows r, .*laplacian.*, got 'speed'\n  in .*set at "
    ):
        renderer.set(speed=1.0)
    with pytest.raises(GraphError, match=r"r = 0.2 is beyond max_delta = 0.05"):
        renderer.set(r=0.2)


@pytest.mark.gpu
@pytest.mark.parametrize("optimizer", ["adam", "adam_uniform", "sgd", Momentum, Adam(0.02)])
def test_optimizers(renderer: DressiBasicRenderer, optimizer: Any) -> None:
    renderer.load_scene(demo_scene(maps=False), grey()[..., :3], cameras())
    rate = {"sgd": 20.0, Momentum: 2.0}.get(optimizer, 0.02) if optimizer != Adam(0.02) else 0.0
    renderer.build_graph(optimizer=optimizer, lr=rate, loss="huber", background=0.5)
    renderer.set_requires_grad(["base_color"])
    renderer.exec_step()
    before = renderer.loss()
    renderer.exec_steps(15)
    assert renderer.loss() < 0.97 * before
    color = renderer.value("base_color:Body")
    assert color.min() >= 0.0 and color.max() <= 1.0


@pytest.mark.gpu
def test_your_own_loss_and_antialiasing(renderer: DressiBasicRenderer) -> None:
    """The mean red of all views is driven to half of its start; the picture is antialiased."""
    renderer.load_scene(demo_scene(maps=False), grey(), cameras())
    renderer.build_graph(mode="antialias", lr=0.05)
    seen: list[str] = []
    goal = 0.5 * float(renderer.render_all()[..., 0].mean())

    def loss(picture: Variable, target: Variable, mask: Variable | None) -> Variable:
        assert mask is not None
        seen.append(f"{picture.vtype.name} {target.vtype.name} {mask.vtype.name}")
        miss = F.mean(picture.x) - goal
        return miss * miss

    renderer.set_loss(loss)
    renderer.set_requires_grad("base_color")
    renderer.exec_steps(40)
    assert set(seen) == {"VEC4 VEC4 FLOAT"}
    assert abs(renderer.render_all()[..., 0].mean() - goal) < 0.1 * goal


@pytest.mark.gpu
def test_parameters_are_listed_and_turned_off(renderer: DressiBasicRenderer) -> None:
    renderer.load_scene(demo_scene(), grey(), cameras())
    renderer.build_graph()
    renderer.set_requires_grad(["albedo", "camera_pose"])
    on = [p.name for p in renderer.parameters if p.requires_grad]
    assert on == ["base_color:Other", "albedo:Body", "camera_rotation", "camera_translation"]
    assert "albedo:Body (8, 8, 3) on" in [str(p) for p in renderer.parameters]
    renderer.set_requires_grad("albedo:Body", False)
    renderer.exec_step()
    assert np.allclose(renderer.value("albedo:Body"), checker(0.7, 0.3), atol=1e-6)
    renderer.set_requires_grad(on, False)
    with pytest.raises(GraphError, match="no parameter is on; call set_requires_grad with one of"):
        renderer.exec_step()


@pytest.mark.gpu
def test_two_renderers_beside_each_other() -> None:
    with DressiBasicRenderer() as a, DressiBasicRenderer() as b:
        for r, value in ((a, 0.2), (b, 0.8)):
            r.load_scene(demo_scene(maps=False), grey(), cameras())
            r.build_graph(lr=0.0)
            r.set_value("base_color:Other", (value, value, value, 1.0))
        first, second = a.render_all(), b.render_all()
        assert first.mean() < second.mean()
        b.close()
        assert np.array_equal(a.render_all(), first)
        with pytest.raises(DeviceError, match="closed"):
            b.render()


@pytest.mark.gpu
def test_targets_from_files(renderer: DressiBasicRenderer, tmp_path: Path) -> None:
    """PNG with alpha, EXR and HDR; resampled where a size is given."""
    picture = np.full((16, 20, 3), 0.5, np.float32)
    for name in ("a.exr", "b.hdr", "c.png"):
        write_image(tmp_path / name, picture)
    files = [tmp_path / "a.exr", str(tmp_path / "b.hdr"), tmp_path / "c.png"]
    renderer.load_scene(demo_scene(), files, cameras(3))
    renderer.build_graph(loss="l2")
    assert renderer.loss() > 0.0 and renderer.render().shape == (16, 20, 3)
    renderer.load_scene(demo_scene(), files, cameras(3), size=(10, 8))
    renderer.build_graph()
    assert renderer.render().shape == (8, 10, 3)


# -- files that people have


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["BoxTextured", "Duck", "Avocado", "CesiumMilkTruck"])
def test_files_are_rendered(renderer: DressiBasicRenderer, shared_data: Path, name: str) -> None:
    """The object is in view, has colours, and its outline is that of its own vertices."""
    path = shared_data / "gltf" / f"{name}.glb"
    if not path.is_file():
        pytest.skip(f"{path.name} is not in the data folder")
    renderer.load_scene(path, size=(48, 40))
    center, radius = renderer._loaded.geometry.center, renderer._loaded.geometry.radius  # type: ignore[union-attr]
    eye = center + radius * np.array([1.4, 1.2, 2.4])
    camera = Camera(look_at(eye, center), perspective(40, 1.2, radius, 6 * radius))
    renderer.load_scene(path, size=(48, 40), cameras=camera)
    renderer.build_graph()
    got = renderer.render(0, alpha=True)
    cover = got[..., 3]
    assert 0.1 < cover.mean() < 0.6 and cover[0].max() == 0.0 and cover[-1].max() == 0.0
    assert np.isfinite(got).all() and np.ptp(got[cover == 1.0][:, :3], axis=0).max() > 0.2


# -- what is refused


ONE = np.zeros((8, 8, 3), np.float32)
BAD_LOADS: dict[str, Callable[[DressiBasicRenderer], Any]] = {
    r"3 targets, 2 cameras \(view0, view1\)": lambda r: r.load_scene(
        demo_scene(), [ONE] * 3, cameras()
    ),
    "targets must have one size, got target 0 8x8, target 1 4x8": lambda r: r.load_scene(
        demo_scene(), [ONE, ONE[:, :4]], cameras()
    ),
    "without targets it needs a size": lambda r: r.load_scene(demo_scene()),
    "targets is an empty list": lambda r: r.load_scene(demo_scene(), [], cameras()),
    "must hold linear floats, got uint8": lambda r: r.load_scene(
        demo_scene(), ONE.astype(np.uint8), cameras(1)
    ),
    "target 0 holds NaN": lambda r: r.load_scene(demo_scene(), ONE * np.nan, cameras(1)),
    "target 0 must be": lambda r: r.load_scene(demo_scene(), np.zeros((8, 8, 5)), cameras(1)),
    "some targets have an alpha channel": lambda r: r.load_scene(
        demo_scene(), [ONE, np.zeros((8, 8, 4))], cameras()
    ),
    "has no triangles": lambda r: r.load_scene(Scene(), size=(8, 8)),
    "cameras must be Cameras": lambda r: r.load_scene(
        demo_scene(),
        size=(8, 8),
        cameras=[np.eye(4)],  # type: ignore[list-item]
    ),
    "at least 1x1": lambda r: r.load_scene(demo_scene(), size=(8, 0)),
    "ambient and headlight must be >= 0": lambda r: r.load_scene(
        demo_scene(), size=(8, 8), ambient=-1.0
    ),
    "the environment must be": lambda r: r.load_scene(
        demo_scene(), size=(8, 8), environment=np.zeros((4, 8))
    ),
}


@pytest.mark.gpu
@pytest.mark.parametrize("words", BAD_LOADS)
def test_bad_scenes_and_targets_are_refused(renderer: DressiBasicRenderer, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        BAD_LOADS[words](renderer)


def naked() -> Scene:
    """A ball without UVs."""
    mesh = SceneMesh((primitive_of(replace(icosphere(1), uvs=None, uv_faces=None), 0),))
    return Scene((Node(mesh=0),), (0,), (mesh,), (Material(name="M"),))


BAD_CALLS: dict[str, Callable[[DressiBasicRenderer], Any]] = {
    "no parameter is called 'colour'; there are lights, .*base_color:Body": (
        lambda r: r.set_requires_grad("colour")
    ),
    "no parameter is called 'albedo:Nobody'": lambda r: r.set_requires_grad("albedo:Nobody"),
    "has shape": lambda r: r.set_value("albedo:Body", np.zeros((4, 4, 3))),
    "means several parameters: vtx_pos:Ball, vtx_pos:Plain": lambda r: r.value("vtx_pos"),
    "must be finite": lambda r: r.set_value("ambient", (np.nan, 0.0, 0.0)),
    "mode must be one of": lambda r: r.build_graph(mode="soft"),
    "loss must be of l1": lambda r: r.build_graph(loss="lpips"),
    "the weight of l2 must be": lambda r: r.build_graph(loss={"l2": -1.0}),
    "regularizers must be of": lambda r: r.build_graph(regularizers="arap"),
    "optimizer must be one of": lambda r: r.build_graph(optimizer="lbfgs"),
    "the learning rate of default": lambda r: r.build_graph(lr=-1.0),
    r"r must be a number in \[0, 1\]": lambda r: r.build_graph(r=2.0),
    "sigma must be a number": lambda r: r.build_graph(sigma=0.0),
    "K >= 1": lambda r: r.build_graph(K=0),
    "tone at .*: curve must be one of": lambda r: r.build_graph(tone=("filmic", "srgb")),
    "normals must be one of": lambda r: r.build_graph(normals="smooth"),
    "background must be a colour": lambda r: r.build_graph(background=np.zeros((3, 3, 3))),
    "'environment' where the scene has one": lambda r: r.build_graph(background="environment"),
    "view 2 of 2 views": lambda r: (r.build_graph(), r.render(2)),
    "set_loss needs a function": lambda r: r.set_loss("l2"),  # type: ignore[arg-type]
    "the scene has no environment": lambda r: r.save_environment("sky.exr"),
    "add_map knows the maps": lambda r: r.add_map("clearcoat", (4, 4)),
    "no material is called 'Nobody'": lambda r: r.add_map("albedo:Nobody", (4, 4)),
    "size": lambda r: r.add_map("albedo:Other", (0, 4)),
}


@pytest.mark.gpu
@pytest.mark.parametrize("words", BAD_CALLS)
def test_bad_calls_are_refused(renderer: DressiBasicRenderer, words: str) -> None:
    renderer.load_scene(demo_scene(), grey(), cameras(), ambient=0.1)
    with pytest.raises(GraphError, match=words):
        BAD_CALLS[words](renderer)


@pytest.mark.gpu
def test_what_is_missing_is_named(renderer: DressiBasicRenderer) -> None:
    renderer.load_scene(naked(), grey()[..., :3], cameras())
    with pytest.raises(GraphError, match="faces of M have no UVs, so no map fits them"):
        renderer.add_map("albedo", (4, 4))
    with pytest.raises(GraphError, match=r"hint: there is no such map; make one with add_map"):
        renderer.set_requires_grad("normal")
    with pytest.raises(GraphError, match="silhouette needs targets with an alpha channel"):
        renderer.build_graph(loss="silhouette")
    with pytest.raises(LoadError, match="nowhere"):
        renderer.load_scene("nowhere.gltf", "nowhere.png")
