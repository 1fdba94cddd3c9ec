"""Exposure, culling, coats and glass: powers of two of what is drawn, finite differences; faces
seen from behind are there by the material's sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dressi import DressiBasicRenderer, DressiWarning, GraphError
from dressi.render.camera import Camera, look_at, perspective
from dressi.render.scene import (
    Material,
    Node,
    Primitive,
    PunctualLight,
    Scene,
    SceneMesh,
    icosphere,
    scene_of,
)

SIZE = (24, 24)
EYE = Camera(look_at((0, 0, 3), (0, 0, 0)), perspective(45.0, 1.0, 0.5, 10.0), "eye")
BALL = scene_of(icosphere(2), np.full((2, 2, 3), 0.3, np.float32))


@pytest.fixture()
def renderer(vulkan_device_available: bool) -> Iterator[DressiBasicRenderer]:
    if not vulkan_device_available:
        pytest.skip("no Vulkan device on this machine")
    with DressiBasicRenderer() as made:
        yield made


def drawn(renderer: DressiBasicRenderer, scene: Scene = BALL, **graph: Any) -> np.ndarray:
    renderer.load_scene(scene, cameras=EYE, size=SIZE)
    renderer.build_graph(r=1 / 24, **graph)
    return renderer.render(0)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["hardsoftras", "antialias"])
def test_a_stop_doubles_what_is_drawn_and_leaves_a_given_background(
    renderer: DressiBasicRenderer, mode: Any
) -> None:
    plain = drawn(renderer, mode=mode)
    assert plain.max() > 0.1
    assert drawn(renderer, mode=mode, exposure=2.0) == pytest.approx(4.0 * plain, rel=1e-5)
    over = drawn(renderer, mode=mode, background=0.7)
    dark = drawn(renderer, mode=mode, background=0.7, exposure=-3.0)
    assert dark[0, 0] == pytest.approx([0.7, 0.7, 0.7])
    # Over a background b: (1 - a) b + a c, of which the second part is what is drawn over black.
    assert dark == pytest.approx(over - plain * (1.0 - 2.0**-3), abs=1e-5)


@pytest.mark.gpu
def test_an_environment_behind_is_exposed_too(renderer: DressiBasicRenderer) -> None:
    sky = np.random.default_rng(0).uniform(0.1, 1.0, (4, 8, 3)).astype(np.float32)
    pictures = []
    for stops in (None, 1.5):
        renderer.load_scene(BALL, cameras=EYE, size=SIZE, environment=sky)
        renderer.build_graph(r=1 / 24, background="environment", exposure=stops)
        pictures.append(renderer.render(0))
    assert pictures[1] == pytest.approx(2.0**1.5 * pictures[0], rel=1e-4)


@pytest.mark.gpu
def test_a_sun_in_lux_is_seen_at_its_exposure(renderer: DressiBasicRenderer) -> None:
    def lit(lux: float) -> Scene:
        sun = PunctualLight("directional", (1.0, 1.0, 1.0), lux)
        nodes = (*BALL.nodes, Node(light=0))
        return replace(BALL, nodes=nodes, roots=(0, 1), lights=(sun,)).check()

    white = drawn(renderer, lit(100_000.0))
    seen = drawn(renderer, lit(100_000.0), exposure=-16.0)
    assert white.max() > 1000.0 and 0.1 < seen.max() < 1.0
    assert seen == pytest.approx(drawn(renderer, lit(100_000.0 / 2.0**16)), rel=1e-4, abs=1e-7)


@pytest.mark.gpu
def test_exposure_has_the_gradient_of_finite_differences_and_is_fitted(
    renderer: DressiBasicRenderer,
) -> None:
    target = drawn(renderer, exposure=0.8)
    renderer.load_scene(BALL, target, cameras=EYE)
    renderer.build_graph(r=1 / 24, loss="l2", lr={"exposure": 0.1}, exposure=0.1)
    renderer.set_requires_grad("exposure")
    renderer.loss()
    leaf = next(p.leaf for p in renderer.parameters if p.name == "exposure")
    got = float(renderer.ad.recv_grad(leaf).reshape(-1)[0])
    sides = []
    for stops in (0.11, 0.09):
        renderer.set_value("exposure", stops)
        sides.append(renderer.loss())
    # The step's own rounding and curvature: 1e-7 and 1e-4 of the loss over 0.02.
    assert got == pytest.approx((sides[0] - sides[1]) / 0.02, rel=0.01)
    renderer.exec_steps(80)
    assert float(renderer.value("exposure").reshape(-1)[0]) == pytest.approx(0.8, abs=0.02)


def quads(double_sided: tuple[bool, bool]) -> Scene:
    """Two squares side by side at z = 0 whose backs are seen from +z."""
    square = np.array([[-0.9, -0.5, 0], [-0.1, -0.5, 0], [-0.1, 0.5, 0], [-0.9, 0.5, 0]])
    faces = np.array([[0, 2, 1], [0, 3, 2]])
    normals = np.tile([0.0, 0.0, -1.0], (4, 1))
    parts = tuple(
        Primitive(square + (shift, 0.0, 0.0), faces, normals, material=k)
        for k, shift in enumerate((0.0, 1.0))
    )
    materials = tuple(
        Material((0.5, 0.5, 0.5, 1.0), double_sided=d, unlit=True, name=f"m{k}")
        for k, d in enumerate(double_sided)
    )
    return Scene((Node(mesh=0),), (0,), (SceneMesh(parts),), materials).check()


@pytest.mark.gpu
@pytest.mark.parametrize("graph", [{}, {"K": 2}, {"occlusion": True}, {"mode": "antialias"}])
def test_backs_are_there_where_the_material_has_two_sides(
    renderer: DressiBasicRenderer, graph: dict[str, Any]
) -> None:
    both = drawn(renderer, quads((False, False)), **graph)[..., 0]
    left, right = both[:, :12].max(), both[:, 12:].max()
    assert left == right == 0.5
    with pytest.warns(DressiWarning, match="nothing is seen"):
        assert not drawn(renderer, quads((False, False)), cull=True, **graph).any()
    for sides in ((False, True), (True, False), (True, True)):
        seen = drawn(renderer, quads(sides), cull=True, **graph)[..., 0]
        assert seen[:, :11].max() == 0.5 * sides[0]
        assert seen[:, 13:].max() == 0.5 * sides[1]
        if all(sides):
            assert np.array_equal(seen, both)


@pytest.mark.gpu
def test_a_closed_surface_is_the_same_without_its_backs(renderer: DressiBasicRenderer) -> None:
    single = replace(BALL, materials=tuple(replace(m, double_sided=False) for m in BALL.materials))
    assert np.array_equal(drawn(renderer, single), drawn(renderer, single, cull=True))


@pytest.mark.gpu
def test_an_exposure_that_is_no_number_is_refused(renderer: DressiBasicRenderer) -> None:
    with pytest.raises(GraphError, match="exposure"):
        drawn(renderer, exposure=(1.0, 2.0))
    with pytest.raises(GraphError, match="exposure"):
        drawn(renderer, exposure=float("nan"))


def facing(scene_material: Material, tilt: float) -> Scene:
    """A square in the middle, turned about y by ``tilt`` radians, and a sun along -z."""
    square = np.array([[-0.8, -0.8, 0], [0.8, -0.8, 0], [0.8, 0.8, 0], [-0.8, 0.8, 0]])
    c, s = np.cos(tilt), np.sin(tilt)
    turned = square @ np.array([[c, 0, -s], [0, 1, 0], [s, 0, c]])
    normals = np.tile([s, 0.0, c], (4, 1))
    part = Primitive(turned, np.array([[0, 1, 2], [0, 2, 3]]), normals, material=0)
    sun = PunctualLight("directional", (1.0, 1.0, 1.0), 3.0)
    nodes = (Node(mesh=0), Node(light=0))
    return Scene(
        nodes, (0, 1), (SceneMesh((part,)),), (scene_material,), lights=(sun,)
    ).check()  # fmt: skip


@pytest.mark.gpu
def test_a_clear_coat_takes_what_it_reflects_from_what_lies_below(
    renderer: DressiBasicRenderer,
) -> None:
    below = Material((0.8, 0.3, 0.1, 1.0), roughness=0.7, metallic=0.2)
    coat = Material((0.0, 0.0, 0.0, 1.0), roughness=0.6, metallic=0.0)
    coated = replace(below, clearcoat=0.6, clearcoat_roughness=0.6)
    base, shine, got = (drawn(renderer, facing(m, 1.2))[12, 12] for m in (below, coat, coated))
    # The ray of the pixel, half a pixel from the middle: at an angle the coat reflects much more.
    aside = (12.5 / 12.0 - 1.0) * np.tan(np.radians(22.5))
    to_eye = np.array([-aside, aside, 1.0]) / np.sqrt(1.0 + 2.0 * aside**2)
    fresnel = 0.04 + 0.96 * (1.0 - to_eye @ [np.sin(1.2), 0.0, np.cos(1.2)]) ** 5
    assert fresnel > 0.1
    assert shine.max() > 0.001 and base.max() > 0.1
    assert got == pytest.approx(base * (1.0 - 0.6 * fresnel) + 0.6 * shine, rel=2e-3)


@pytest.mark.gpu
def test_what_transmits_shows_what_is_behind(renderer: DressiBasicRenderer) -> None:
    wall = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], float)
    faces = np.array([[0, 1, 2], [0, 2, 3]])
    normals = np.tile([0.0, 0.0, 1.0], (4, 1))
    parts = tuple(
        Primitive(wall * 0.7 + (0, 0, z), faces, normals, material=k)
        for k, z in enumerate((0.3, -0.3))
    )
    glass = Material((0.8, 0.2, 0.2, 1.0), unlit=True, transmission=0.75, name="glass")
    back = Material((0.1, 0.4, 0.9, 1.0), unlit=True, name="back")
    scene = Scene((Node(mesh=0),), (0,), (SceneMesh(parts),), (glass, back)).check()
    got = drawn(renderer, scene, K=2)[12, 12]
    assert got == pytest.approx([0.275, 0.35, 0.725], abs=1e-4)
