"""What ``normal_map`` looks at: meshes with UVs, their albedo and their true normal maps.

In: a name or a file. Out: ``Model``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dressi.ad import F, Variable, evaluate
from dressi.ad.vtype import VEC2, VEC3
from dressi.apps.data import human_file
from dressi.apps.data.heads import scan_mesh, scan_texture
from dressi.apps.demo import centred, load_target
from dressi.errors import GraphError, LoadError
from dressi.render.io import load_scene
from dressi.render.io.images import read_image
from dressi.render.scene import Mesh, make_pear

FLAT = np.array([0.5, 0.5, 1.0], np.float32)
"""The texel that leaves a normal as it is."""


@dataclass(frozen=True)
class Model:
    """mesh: centred, with UVs. albedo: (H, W, 3) linear. true: (n, n, 3) the normal map in [0, 1].
    metallic: of the whole surface."""

    mesh: Mesh
    albedo: np.ndarray
    true: np.ndarray
    metallic: float


def load_model(name: str, size: int, coarse: bool) -> Model:
    """Return one of MODELS, or that of a file: a glTF with a normal map, an OBJ with ``relief``.

    size: texels on a side of the map. coarse: fewer faces, where there is a choice. Raises
    LoadError, GraphError where a mesh has no UVs or a glTF no normal map.
    """
    if name in MODELS:
        return MODELS[name](size, coarse)
    if not Path(name).is_file():
        raise LoadError(f"{name}: no such file, and none of {', '.join(MODELS)}", name)
    if Path(name).suffix.lower() in (".glb", ".gltf"):
        return _of_gltf(name, size)
    mesh, albedo = load_target(name)
    if mesh.uvs is None or np.ptp(mesh.uvs) == 0:
        raise GraphError(f"normal_map: mesh '{mesh.name}' has no UVs, which a map needs")
    return Model(centred(mesh)[0], albedo, relief(size), 0.0)


def _pear(size: int, coarse: bool) -> Model:
    mesh, albedo = make_pear(*((40, 28, 64) if coarse else (110, 72, 512)))
    return Model(centred(mesh)[0], albedo, relief(size), 1.0)


def _head(size: int, coarse: bool) -> Model:
    """The scanned head and the normal map that comes with it (CC BY 3.0, see human_file)."""
    mesh = scan_mesh()
    true = read_image(human_file("lps/normal.jpg"), srgb=False)[..., :3]
    return Model(centred(mesh)[0], scan_texture(), unit_map(resized(true, size)), 0.0)


MODELS: dict[str, Callable[[int, bool], Model]] = {"pear": _pear, "head": _head}


def _of_gltf(name: str, size: int) -> Model:
    """The first primitive that has a normal map."""
    scene = load_scene(name)
    for one in scene.instances():
        ref = one.material.normal_map
        if ref is None:
            continue
        mesh = one.world_mesh(ref.uv_set)
        image = scene.images[ref.image].pixels[..., :3]
        color = one.material.base_color_map
        albedo = np.array(one.material.base_color[:3], np.float32).reshape(1, 1, 3)
        if color is not None:
            albedo = albedo * scene.images[color.image].pixels[..., :3]
        true = unit_map(resized(image, size))
        return Model(centred(mesh)[0], albedo, true, one.material.metallic)
    raise GraphError(f"{name}: no primitive has a normal map")


def resized(image: np.ndarray, size: int) -> np.ndarray:
    """Return (size, size, C): linear reads, of means where the image is larger."""
    part = max(min(image.shape[:2]) // size, 1)
    height, width = (n // part for n in image.shape[:2])
    small = image[: height * part, : width * part]
    small = small.reshape(height, part, width, part, -1).mean((1, 3)).astype(np.float32)
    if small.shape[:2] == (size, size):
        return np.asarray(small)
    along = (np.arange(size) + 0.5) / size
    uv = Variable(VEC2, (size, size), name="uv")
    read = F.texture(F.leaf(small, VEC3), uv, wrap="clamp")
    (found,) = evaluate([read], {uv: np.stack(np.meshgrid(along, along), -1)})
    return np.asarray(found[0], np.float32)  # the only layer


def unit_map(image: np.ndarray) -> np.ndarray:
    """Return a map in [0, 1] whose vectors have unit length; those of no length are flat."""
    vector = image.astype(np.float64) * 2 - 1
    length = np.linalg.norm(vector, axis=-1, keepdims=True)
    unit = np.divide(vector, length, out=np.zeros_like(vector), where=length > 1e-6)
    return np.where(length > 1e-6, unit * 0.5 + 0.5, FLAT).astype(np.float32)


def relief(size: int) -> np.ndarray:
    """Return (size, size, 3) float32: the true map: flutes, dimples and a weave, in bands with flat
    ones between; no seam at the left and right."""
    fine = (np.arange(size) + 0.5) / size
    u, v = np.meshgrid(fine, fine)

    def band(low: float, high: float) -> np.ndarray:
        edge = np.clip(np.minimum(v - low, high - v) / 0.03, 0, 1)
        return edge * edge * (3 - 2 * edge)

    flutes = np.cos(2 * np.pi * 20 * u + 6 * np.sin(2 * np.pi * 2 * v)) * 0.008
    x, y = u * 20, v * 23
    x = x + 0.5 * (np.floor(y) % 2)
    away = np.hypot(x - np.floor(x) - 0.5, (y - np.floor(y) - 0.5) * 0.87)
    dimples = -0.022 * np.exp(-((away / 0.3) ** 4))
    weave = 0.009 * np.sin(2 * np.pi * (12 * u + 10 * v)) * np.sin(2 * np.pi * (12 * u - 10 * v))
    height = flutes * band(0.16, 0.36) + dimples * band(0.4, 0.62) + weave * band(0.66, 0.9)
    step = 1 / size
    du = (np.roll(height, -1, 1) - np.roll(height, 1, 1)) / (2 * step)
    dv = np.gradient(height, step, axis=0)
    # Against the slope; y of the tangent space points up in the texture, v down.
    normal = np.stack([-du, dv, np.ones_like(du)], -1)
    normal /= np.linalg.norm(normal, axis=-1, keepdims=True)
    return (normal * 0.5 + 0.5).astype(np.float32)
