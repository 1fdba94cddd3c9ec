"""DressiBasicRenderer with skin, teeth, eyes and tears: pictures, gradients, files, bad input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from renderer_scenes import checker

from dressi import DressiBasicRenderer, GraphError, LoadError
from dressi.render.camera import Camera, look_at, perspective
from dressi.render.io import load_scene, save_scene
from dressi.render.pipeline.assemble import load
from dressi.render.pipeline.models import nearest_face
from dressi.render.scene import (
    Image,
    Material,
    Node,
    Primitive,
    PunctualLight,
    Scene,
    SceneMesh,
    TextureRef,
    differences,
    icosphere,
    trs_matrix,
)

SIZE = (16, 12)
SKIN = {"model": "skin", "scatter_width": 0.3, "taps": 11}
EYE = {
    "model": "eye",
    "iris_radius": 0.15,
    "iris_depth": 0.1,
    "iris_center": [0.75, 0.5],
    "wet_roughness": 0.3,
}
TEETH = {"model": "teeth", "scatter_width": 0.2, "taps": 11}
MOUTH = {"mouth_opening": 0.5, "mouth_center": [0, 0, 1.0], "mouth_direction": [0, 0.1, 1]}
TEARS = {"model": "tears"}


@pytest.fixture()
def renderer(vulkan_device_available: bool) -> Any:
    if not vulkan_device_available:
        pytest.skip("no Vulkan device on this machine")
    with DressiBasicRenderer() as made:
        yield made


def material(name: str, model: dict | None, **other: Any) -> Material:
    color = other.pop("base_color", (0.7, 0.5, 0.4, 1.0))
    extras = None if model is None else {"dressi": model}
    return Material(color, metallic=0.0, roughness=0.5, name=name, extras=extras, **other)


def ball(x: float, y: float, row: int, radius: float = 0.6) -> tuple[SceneMesh, Node]:
    mesh = icosphere(2, radius)
    u = 0.5 + np.arctan2(mesh.positions[:, 0], mesh.positions[:, 2]) / (2 * np.pi)
    v = 0.5 - np.arcsin(mesh.positions[:, 1] / radius) / np.pi
    # Texture coordinates whose middle, (0.75, 0.5), looks along +Z.
    uvs = (np.float32(np.stack([0.25 + u, v], 1)),)
    p = Primitive(mesh.positions, mesh.faces, mesh.positions / radius, uvs=uvs, material=row)
    return SceneMesh((p,), name=f"ball{row}"), Node(trs_matrix((x, y, 0.0)), name=f"node{row}")


def face_scene(*materials: Material, lights: bool = True) -> Scene:
    """A ball of each material, side by side, and a sun."""
    n = len(materials)
    pairs = [ball(1.1 * (k - 0.5 * (n - 1)), 0.0, k) for k in range(n)]
    nodes = [replace(node, mesh=k) for k, (_, node) in enumerate(pairs)]
    sun: tuple[PunctualLight, ...] = ()
    if lights:
        turn = trs_matrix(rotation_xyzw=(-0.3, 0.35, 0.1, 0.88))
        nodes.append(Node(turn, light=0, name="sun"))
        sun = (PunctualLight("directional", (1.0, 0.9, 0.8), 3.0, name="sun"),)
    return Scene(
        tuple(nodes),
        tuple(range(len(nodes))),
        tuple(mesh for mesh, _ in pairs),
        materials,
        (Image(checker(0.7, 0.3), name="paint"),),
        lights=sun,
    ).check()


def camera(n: int = 1) -> list[Camera]:
    lens = perspective(40.0, SIZE[0] / SIZE[1], 1.0, 10.0)
    return [Camera(look_at(e), lens, "view") for e in [(0.4, 0.3, 4.4), (-0.5, 0.2, 4.2)][:n]]


def pictures(
    scene: Scene, options: dict[str, Any] | None = None, limits: dict | None = None, **given: Any
) -> np.ndarray:
    with DressiBasicRenderer(limits=limits) as renderer:
        renderer.load_scene(scene, cameras=camera(given.pop("views", 1)), size=SIZE, **given)
        renderer.build_graph(r=1 / SIZE[0], **(options or {}))
        return renderer.render_all(alpha=True)


# -- gradients

NUMBERS = ("scatter_width:A", "scatter_strength:A", "scatter_falloff:A", "ior:A", "lobe_ratio:A")
CASES: dict[str, tuple[tuple[Material, ...], tuple[str, ...], int]] = {
    "skin": (
        (
            material("A", SKIN | {"scatter_strength": [0.9, 0.8, 0.7]}),
            material("B", SKIN | {"scatter_width": 0.5}),
        ),
        (*NUMBERS, "lobe_mix:A", "base_color:A", "roughness_factor:B", "scatter_width:B",
         "scatter_falloff:B", "light_direction:sun"),
        0,
    ),
    "teeth in a mouth": (
        (material("A", TEETH | MOUTH),),
        ("mouth_opening:A", "mouth_center:A", "mouth_direction:A", "scatter_width:A", "ior:A",
         "base_color:A"),
        0,
    ),
    "eye": (
        (
            material(
                "A",
                EYE | {"iris_radius": 0.25, "limbus_width": 0.5},
                base_color_map=TextureRef(0, min_filter="linear"),
            ),
        ),
        ("iris_radius:A", "iris_depth:A", "iris_center:A", "limbus_width:A", "limbus_darkening:A",
         "ior:A", "wet_roughness:A", "albedo:A", "light_intensity:sun"),
        0,
    ),
}  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_finite_differences(
    case: str, renderer: DressiBasicRenderer
) -> None:
    """R3: every number and map that shows; the mean over a few directions for those with many
    entries, of which a step of each is one direction."""
    materials, names, shadows = CASES[case]
    rng = np.random.default_rng(1)
    target = rng.uniform(0.0, 1.0, (1, SIZE[1], SIZE[0], 4)).astype(np.float32)
    renderer.load_scene(face_scene(*materials), target, camera(), ambient=0.2)
    renderer.build_graph(r=1 / SIZE[0], shadows=shadows, loss="l2")
    renderer.set_requires_grad(names)
    one = np.ones((1, 1, 1))
    by_name = {p.name: p for p in renderer.parameters}
    # All at once, in two plans; recv_grad would pack a graph for each.
    together = renderer.ad.vjp([renderer.graph.loss], [by_name[name].leaf for name in names])
    gradients = together.backward([one])
    together.close()
    for name, of_name in zip(names, gradients, strict=True):
        p = by_name[name]
        start = renderer.ad.recv_img(p.leaf).astype(np.float64)
        assert of_name is not None
        gradient = of_name.astype(np.float64)
        way = np.sign(gradient) + 1e-3 * rng.normal(size=start.shape)
        slopes = []
        # Texture coordinates: the iris is 0.15 of them, and texels have kinks.
        for h in (1e-3, 5e-4) if name.startswith("iris_center") else (1e-2, 5e-3):
            ends = []
            for side in (h, -h):
                renderer.ad.send_img(p.leaf, np.float32(start + side * way))
                ends.append(renderer.loss())
            slopes.append((ends[0] - ends[1]) / (2.0 * h))
        renderer.ad.send_img(p.leaf, np.float32(start))
        wanted = float((gradient * way).sum())
        assert abs(wanted) > 1e-5, f"{name} has no gradient"
        assert slopes[1] == pytest.approx(wanted, rel=0.02, abs=2e-6), (name, slopes, wanted)


# -- pictures


@pytest.mark.gpu
def test_skin_that_spreads_nothing_is_the_plain_material() -> None:
    plain = {"scatter_strength": [0, 0, 0], "ior": 1.5, "lobe_mix": 0.0}
    found = pictures(face_scene(material("A", SKIN | plain), material("B", None)), views=2)
    wanted = pictures(face_scene(material("A", None), material("B", None)), views=2)
    np.testing.assert_allclose(found, wanted, atol=2e-6)


@pytest.mark.gpu
def test_pictures_do_not_depend_on_how_they_are_packed() -> None:
    """R8: 4 and 8 input attachments."""
    iris = material("B", EYE, base_color_map=TextureRef(0))
    scene = face_scene(material("A", SKIN), iris, material("C", None))
    few, many = (pictures(scene, {"shadows": 32}, {"input_attachments": n}) for n in (4, 8))
    assert few[..., :3].max() > 0.1
    np.testing.assert_allclose(few, many, atol=1e-6 * few.max())


@pytest.mark.gpu
def test_light_comes_through_a_thin_sheet_from_behind() -> None:
    sheet = Primitive(
        np.float32([(-1, -1, 0), (1, -1, 0), (1, 1, 0), (-1, 1, 0)]),
        np.array([(0, 1, 2), (0, 2, 3)]),
        np.float32([(0, 0, 1)] * 4),
        material=0,
    )
    back = replace(
        sheet, positions=sheet.positions - np.float32([0, 0, 0.05]), faces=sheet.faces[:, ::-1],
        normals=-sheet.normals,
    )  # fmt: skip
    shown = []
    for through in (1.0, 0.0):
        skin = material("A", SKIN | {"transmission": through})
        scene = Scene(
            (Node(mesh=0), Node(trs_matrix(rotation_xyzw=(0.0, 1.0, 0.0, 0.1)), light=0)),
            (0, 1),
            (SceneMesh((sheet, back)),),
            (skin,),
            lights=(PunctualLight("directional", intensity=3.0),),
        ).check()
        shown.append(pictures(scene, {"shadows": 64})[0, SIZE[1] // 2, SIZE[0] // 2])
    red, green, _, _ = shown[0]
    assert red > 5.0 * green > 0.05 and shown[1][:3].max() < 0.01


@pytest.mark.gpu
def test_tears_show_what_lies_behind_them() -> None:
    """Two layers: a white ball inside tears that hardly reflect."""
    (mesh, node), (wet, _) = ball(0.0, 0.0, 0, 0.6), ball(0.0, 0.0, 1, 0.8)
    tears = material("T", TEARS | {"ior": 1.001}, alpha_mode="BLEND")
    both = Scene(
        (replace(node, mesh=0), Node(mesh=1)), (0, 1), (mesh, wet), (material("A", None), tears)
    ).check()
    alone = replace(both, nodes=both.nodes[:1], roots=(0,), meshes=(mesh,)).check()
    found, wanted = (pictures(s, {"K": 2, "shadows": 0}) for s in (both, alone))
    middle = (0, slice(5, 7), slice(7, 9))
    np.testing.assert_allclose(found[middle], wanted[middle], atol=5e-3)


@pytest.mark.gpu
def test_lengths_grow_with_the_node_and_with_the_object(renderer: DressiBasicRenderer) -> None:
    """A mesh of half the size, and the lengths of its materials, under twice the scale."""
    row = TextureRef(0, min_filter="linear")
    wide = face_scene(material("A", SKIN), material("B", EYE, base_color_map=row))
    wanted = pictures(wide)
    small = [material("A", SKIN | {"scatter_width": 0.15})]
    small += [material("B", EYE | {"iris_depth": 0.05}, base_color_map=row)]
    meshes = []
    for mesh in wide.meshes:
        (p,) = mesh.primitives
        meshes.append(replace(mesh, primitives=(replace(p, positions=p.positions * 0.5),)))
    alone = replace(wide, meshes=tuple(meshes), materials=tuple(small))
    twice = np.diag([2.0, 2.0, 2.0, 1.0])
    balls = [replace(n, matrix=n.matrix @ twice) for n in wide.nodes[:2]]
    grown = replace(alone, nodes=(*balls, *wide.nodes[2:])).check()
    np.testing.assert_allclose(pictures(grown), wanted, atol=2e-5)
    renderer.load_scene(alone.check(), cameras=camera(), size=SIZE)
    renderer.build_graph(r=1 / SIZE[0])
    for name in ("object_scale:node0", "object_scale:node1"):
        renderer.set_value(name, 2.0)
    np.testing.assert_allclose(renderer.render_all(alpha=True), wanted, atol=2e-5)


# -- files, names


@pytest.mark.gpu
def test_numbers_come_back_through_a_file(renderer: DressiBasicRenderer, tmp_path: Path) -> None:
    scene = face_scene(material("A", SKIN), material("B", EYE), material("C", TEETH | MOUTH))
    save_scene(tmp_path / "scene.gltf", scene)
    again = load_scene(tmp_path / "scene.gltf")
    assert [m.extras for m in again.materials] == [m.extras for m in scene.materials]
    renderer.load_scene(again, size=SIZE)
    renderer.build_graph()
    assert differences(again, renderer.scene) == []
    renderer.set_value("scatter_strength:A", (0.1, 0.2, 0.3))
    renderer.set_value("iris_depth", 0.05)
    renderer.set_value("mouth_center", (0.5, 0.25, 0.125))
    extras = [m.extras["dressi"] for m in renderer.scene.materials]
    np.testing.assert_allclose(extras[0]["scatter_strength"], (0.1, 0.2, 0.3), rtol=1e-6)
    assert extras[1]["iris_depth"] == pytest.approx(0.05, rel=1e-5)
    np.testing.assert_allclose(extras[2]["mouth_center"], (0.5, 0.25, 0.125), rtol=1e-6)
    assert {k: v for k, v in extras[0].items() if k != "scatter_strength"} == SKIN


def test_the_middle_of_an_iris_is_found_in_its_texture() -> None:
    uv = np.array([[(0, 0), (1, 0), (0, 1)], [(1, 0), (1, 1), (0, 1)], [(2, 2), (2, 2), (2, 2)]])
    row, weights = nearest_face(uv, np.array([0.75, 0.5]))
    assert row == 1
    np.testing.assert_allclose(weights, (0.5, 0.25, 0.25))
    across = np.concatenate([uv, [[(-9, -9), (9, -9), (0, 9)]]])
    assert nearest_face(across, np.array([0.75, 0.5]))[0] == 1, "not the face across a seam"
    row, weights = nearest_face(uv, np.array([-0.5, 0.5]))
    assert row == 0 and weights.min() == 0.0


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("skin", 'must be an object with a "model", got \'skin\''),
        ({"scatter_width": 1.0}, 'must be an object with a "model"'),
        ({"model": "hide"}, "model 'hide' is none of skin, eye, teeth, tears"),
        ({"model": "skin"}, "skin needs scatter_width"),
        (SKIN | {"with": 1}, "skin has no 'with'; it has scatter_width, scatter_strength"),
        (SKIN | {"scatter_width": 0}, "scatter_width must be above 0, got 0"),
        (SKIN | {"scatter_falloff": 1.0}, "scatter_falloff must be 3 numbers, got 1.0"),
        (SKIN | {"lobe_mix": 1.5}, "lobe_mix must be in [0, 1], got 1.5"),
        (SKIN | {"ior": True}, "ior must be a number, got True"),
        (SKIN | {"taps": 12}, "taps must be one of (11, 17, 25), got 12"),
        (EYE | {"taps": 11}, "eye has no 'taps'"),
        (TEETH | {"mouth_opening": 0.1}, "are given together or not at all"),
        (TEARS, "the alpha mode must be BLEND, not OPAQUE"),
    ],
)  # fmt: skip
def test_a_model_that_is_none_is_named(model: Any, says: str, tmp_path: Path) -> None:
    good = face_scene(material("A", SKIN))
    bad = replace(good.materials[0], extras={"dressi": model})
    with pytest.raises(GraphError) as caught:
        replace(good, materials=(bad,)).check()
    assert "extras.dressi" in str(caught.value) and says in str(caught.value)


def test_a_file_with_an_unknown_model_is_refused(tmp_path: Path) -> None:
    save_scene(tmp_path / "a.gltf", face_scene(material("A", SKIN)), embed=True)
    text = (tmp_path / "a.gltf").read_text()
    (tmp_path / "a.gltf").write_text(text.replace('"skin"', '"hide"'))
    with pytest.raises(LoadError, match="'hide' is none of skin, eye, teeth, tears"):
        load_scene(tmp_path / "a.gltf")


def test_eyes_need_texture_coordinates_and_light() -> None:
    good = face_scene(material("A", EYE))
    mesh = good.meshes[0]
    bare = replace(mesh, primitives=(replace(mesh.primitives[0], uvs=()),))
    loaded = replace(good, meshes=(bare,)).check()
    with pytest.raises(GraphError, match="'A' is an eye, but faces of it have no texture coord"):
        load(loaded, None, camera(), SIZE)
    with pytest.raises(GraphError, match="the material is unlit, so eye has no light to work on"):
        face_scene(replace(good.materials[0], unlit=True))
