"""What is wrong with a scene, said where it is: references, shapes, values, the node tree.

In: a ``Scene``. Out: nothing, or a GraphError that names the table, the row and the field.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError
from dressi.render.scene.models import model_of
from dressi.render.scene.parts import (
    ALPHA_MODES,
    CAMERA_KINDS,
    COLOR_SPACES,
    LIGHT_KINDS,
    MAG_FILTERS,
    MIN_FILTERS,
    WRAPS,
    Image,
    Material,
    Primitive,
    PunctualLight,
    SceneCamera,
    TextureRef,
)

if TYPE_CHECKING:
    from dressi.render.scene.scene import Scene

MAX_UV_SETS = 8
"""More is no scene but a broken file; glTF viewers read two."""


def _one_of(value: object, allowed: Sequence[str], where: str) -> None:
    if value not in allowed:
        raise GraphError(f"{where} is {value!r}, it must be one of {', '.join(allowed)}")


def _row(index: object, count: int, where: str, table: str) -> None:
    if isinstance(index, bool) or not isinstance(index, (int, np.integer)):
        raise GraphError(f"{where} is {index!r}, it must be the number of a row of {table}")
    if not 0 <= index < count:
        raise GraphError(f"{where} is {index}, out of range: there are {count} {table}")


def _number(value: float, low: float, high: float, where: str) -> None:
    try:
        fits = bool(np.isfinite(value)) and low <= value <= high
    except TypeError:
        fits = False
    if not fits:
        raise GraphError(f"{where} is {value!r}, it must lie in [{low:g}, {high:g}]")


def _vector(values: Sequence[float], n: int, where: str, low: float = 0.0) -> None:
    if np.shape(values) != (n,):
        raise GraphError(f"{where} must be {n} numbers, not {values!r}")
    for k, value in enumerate(values):
        _number(value, low, np.inf, f"{where}[{k}]")


def _check_extras(scene: Scene) -> None:
    owners: list[tuple[str, Any]] = [("the scene", scene)]
    for table in ("nodes", "meshes", "materials", "images", "cameras", "lights"):
        owners += [(f"{table}[{i}]", part) for i, part in enumerate(getattr(scene, table))]
    for i, mesh in enumerate(scene.meshes):
        owners += [(f"meshes[{i}].primitives[{k}]", p) for k, p in enumerate(mesh.primitives)]
    for where, owner in owners:
        if owner.extras is None:
            continue
        try:
            json.dumps(owner.extras, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise GraphError(f"extras of {where} are no JSON: {error}") from error


def _table(table: npt.NDArray[np.float32], shape: tuple[int, int], where: str) -> None:
    if table.shape != shape:
        raise GraphError(f"{where} must be {shape}, not {table.shape}")
    bad = ~np.isfinite(table).all(axis=1)
    if bad.any():
        i = int(bad.argmax())
        raise GraphError(f"{where}[{i}] is not finite: {table[i].tolist()}")


def check_image(image: Image, where: str) -> None:
    """Raise GraphError for pixels of a wrong shape or not finite, or an unknown colour space."""
    shape = image.pixels.shape
    if image.pixels.ndim != 3 or not 1 <= shape[2] <= 4 or image.pixels.size == 0:
        raise GraphError(f"{where}: pixels must be (H, W, 1 to 4), not {shape}")
    if not np.isfinite(image.pixels).all():
        y, x, _ = np.argwhere(~np.isfinite(image.pixels))[0]
        raise GraphError(f"{where}: pixel (x {x}, y {y}) is NaN or infinite")
    _one_of(image.color_space, COLOR_SPACES, f"{where}: color_space")
    if image.bit_depth not in (8, 16):
        raise GraphError(f"{where}: bit_depth is {image.bit_depth!r}, it must be 8 or 16")


def _check_ref(ref: TextureRef, n_images: int, where: str) -> None:
    _row(ref.image, n_images, f"{where}: image", "images")
    _row(ref.uv_set, MAX_UV_SETS, f"{where}: uv_set", "UV sets at most")
    _one_of(ref.wrap_u, WRAPS, f"{where}: wrap_u")
    _one_of(ref.wrap_v, WRAPS, f"{where}: wrap_v")
    _one_of(ref.mag_filter, MAG_FILTERS, f"{where}: mag_filter")
    _one_of(ref.min_filter, MIN_FILTERS, f"{where}: min_filter")
    _vector(ref.offset, 2, f"{where}: offset", -np.inf)
    _vector(ref.scale, 2, f"{where}: scale", -np.inf)
    _number(ref.rotation_rad, -np.inf, np.inf, f"{where}: rotation_rad")


def check_material(material: Material, n_images: int, where: str) -> None:
    """Raise GraphError for values out of range, unknown modes and models, maps of images that are
    missing."""
    _vector(material.base_color, 4, f"{where}: base_color")
    _vector(material.emissive, 3, f"{where}: emissive")
    for field, high in (
        ("metallic", 1.0),
        ("roughness", 1.0),
        ("occlusion_strength", 1.0),
        ("emissive_strength", np.inf),
        ("alpha_cutoff", np.inf),
    ):
        _number(getattr(material, field), 0.0, high, f"{where}: {field}")
    _number(material.normal_scale, -np.inf, np.inf, f"{where}: normal_scale")
    _one_of(material.alpha_mode, ALPHA_MODES, f"{where}: alpha_mode")
    for name, ref in material.maps.items():
        _check_ref(ref, n_images, f"{where}: {name}")
    model_of(material, where)


def check_primitive(primitive: Primitive, scene: Scene, where: str) -> None:
    """Raise GraphError for tables that do not fit, bad indices, or a map without its UV set."""
    n = len(primitive.positions)
    if n == 0 or len(primitive.faces) == 0:
        raise GraphError(f"{where} is empty: {n} vertices, {len(primitive.faces)} faces")
    _table(primitive.positions, (n, 3), f"{where}: positions")
    if primitive.faces.ndim != 2 or primitive.faces.shape[1] != 3:
        raise GraphError(f"{where}: faces must be (F, 3), not {primitive.faces.shape}")
    bad = ((primitive.faces < 0) | (primitive.faces >= n)).any(axis=1)
    if bad.any():
        i = int(bad.argmax())
        raise GraphError(
            f"{where}: face {i} is {primitive.faces[i].tolist()}, out of range: "
            f"there are {n} vertices"
        )
    for field, width in (("normals", 3), ("tangents", 4), ("colors", 4)):
        table = getattr(primitive, field)
        if table is not None:
            _table(table, (n, width), f"{where}: {field}")
    for k, uvs in enumerate(primitive.uvs):
        _table(uvs, (n, 2), f"{where}: uvs[{k}]")
    for k, target in enumerate(primitive.targets):
        for field in ("positions", "normals", "tangents"):
            table = getattr(target, field)
            if table is not None:
                _table(table, (n, 3), f"{where}: targets[{k}].{field}")
    if primitive.material is None:
        return
    _row(primitive.material, len(scene.materials), f"{where}: material", "materials")
    for name, ref in scene.materials[primitive.material].maps.items():
        if ref.uv_set >= len(primitive.uvs):
            raise GraphError(
                f"{where}: {name} of material {primitive.material} reads UV set {ref.uv_set}, "
                f"the primitive has {len(primitive.uvs)}"
            )


def check_camera(camera: SceneCamera, where: str) -> None:
    """Raise GraphError for an unknown kind or values out of range."""
    _one_of(camera.kind, CAMERA_KINDS, f"{where}: kind")
    far = np.inf if camera.far is None else camera.far
    if not (np.isfinite(camera.near) and far > camera.near >= 0.0):
        raise GraphError(f"{where} needs 0 <= near < far, got {camera.near} and {camera.far}")
    if camera.kind == "orthographic":
        if not (np.isfinite(camera.x_mag) and np.isfinite(camera.y_mag)):
            raise GraphError(f"{where}: x_mag, y_mag are {camera.x_mag}, {camera.y_mag}")
        if camera.x_mag == 0.0 or camera.y_mag == 0.0 or camera.far is None:
            raise GraphError(f"{where}: an orthographic camera needs x_mag, y_mag and far")
        return
    if not (camera.near > 0.0 and 0.0 < camera.fov_y_deg < 180.0):
        raise GraphError(
            f"{where} needs near > 0 and 0 < fov_y_deg < 180, "
            f"got {camera.near} and {camera.fov_y_deg}"
        )
    if camera.aspect is not None and not (np.isfinite(camera.aspect) and camera.aspect > 0.0):
        raise GraphError(f"{where}: aspect is {camera.aspect}, it must be > 0")


def check_light(light: PunctualLight, where: str) -> None:
    """Raise GraphError for an unknown kind or values out of range."""
    _one_of(light.kind, LIGHT_KINDS, f"{where}: kind")
    _vector(light.color, 3, f"{where}: color")
    _number(light.intensity, 0.0, np.inf, f"{where}: intensity")
    if light.range is not None and not light.range > 0.0:
        raise GraphError(f"{where}: range is {light.range}, it must be > 0")
    if light.kind == "spot":
        inner, outer = light.inner_cone_rad, light.outer_cone_rad
        # KHR_lights_punctual: 0 <= inner < outer <= pi / 2. Float32 files round pi / 2 up.
        if not 0.0 <= inner < outer <= np.pi / 2 + 1e-6:
            raise GraphError(
                f"{where} needs 0 <= inner_cone_rad < outer_cone_rad <= pi / 2, "
                f"got {inner} and {outer}"
            )


def _check_tree(scene: Scene) -> None:
    n = len(scene.nodes)
    parent: dict[int, int] = {}
    for i, node in enumerate(scene.nodes):
        for child in node.children:
            _row(child, n, f"node {i}: a child", "nodes")
            if child in parent:
                raise GraphError(
                    f"node {child} has two parents, nodes {parent[child]} and {i}; "
                    f"the nodes of a scene are a tree"
                )
            parent[child] = i
    for root in scene.roots:
        _row(root, n, "a root of the scene", "nodes")
        if root in parent:
            raise GraphError(f"node {root} is a root, but a child of node {parent[root]} too")
    if len(set(scene.roots)) != len(scene.roots):
        raise GraphError(f"a root of the scene is listed twice: {list(scene.roots)}")
    for i in range(n):  # up from every node; one parent each, so a cycle is all that can go on
        steps, at = 0, i
        while at in parent:
            at, steps = parent[at], steps + 1
            if steps > n:
                raise GraphError(f"node {i} is in a cycle of children, or below one")


def _check_weights(weights: Sequence[float], n: int, where: str) -> None:
    if len(weights) not in (0, n):
        raise GraphError(f"{where} has {len(weights)} weights, there are {n} blendshapes")
    for k, weight in enumerate(weights):
        _number(weight, -np.inf, np.inf, f"{where}: weights[{k}]")


def check_scene(scene: Scene) -> None:
    """Raise GraphError naming the first thing that is wrong with the scene, and where.

    Refused: references to rows that are not there, nodes with two parents or in a cycle, tables of
    wrong shape or with NaN or infinite values, values out of glTF's ranges, maps whose UV set the
    primitive lacks. Allowed: a scene without meshes, lone vertices, degenerate faces.
    """
    for i, image in enumerate(scene.images):
        check_image(image, f"image {i} '{image.name}'")
    if scene.environment is not None:
        check_image(scene.environment, "the environment")
    for i, material in enumerate(scene.materials):
        check_material(material, len(scene.images), f"material {i} '{material.name}'")
    for i, mesh in enumerate(scene.meshes):
        where = f"mesh {i} '{mesh.name}'"
        if not mesh.primitives:
            raise GraphError(f"{where} has no primitives")
        for k, primitive in enumerate(mesh.primitives):
            check_primitive(primitive, scene, f"{where}, primitive {k}")
        counts = {len(p.targets) for p in mesh.primitives}
        if len(counts) > 1:
            raise GraphError(f"{where}: its primitives differ in blendshapes: {sorted(counts)}")
        _check_weights(mesh.weights, counts.pop(), where)
    for i, camera in enumerate(scene.cameras):
        check_camera(camera, f"camera {i} '{camera.name}'")
    for i, light in enumerate(scene.lights):
        check_light(light, f"light {i} '{light.name}'")
    for i, node in enumerate(scene.nodes):
        where = f"node {i} '{node.name}'"
        if node.matrix.shape != (4, 4) or not np.isfinite(node.matrix).all():
            raise GraphError(f"{where}: matrix must be (4, 4) and finite: {node.matrix.tolist()}")
        if np.abs(node.matrix[3] - [0.0, 0.0, 0.0, 1.0]).max() > 1e-6:
            raise GraphError(f"{where}: the last row of matrix must be (0, 0, 0, 1)")
        for field, table in (("mesh", "meshes"), ("camera", "cameras"), ("light", "lights")):
            index = getattr(node, field)
            if index is not None:
                _row(index, len(getattr(scene, table)), f"{where}: {field}", table)
        if node.weights is not None:
            if node.mesh is None:
                raise GraphError(f"{where} has weights but no mesh")
            n_targets = len(scene.meshes[node.mesh].primitives[0].targets)
            _check_weights(node.weights, n_targets, where)
    _check_tree(scene)
    _check_extras(scene)
