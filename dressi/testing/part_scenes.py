"""Scenes of many parts, made by arithmetic: what ``dressi bench scenes`` and its tests load.

In: numbers of parts. Out: a ``Scene``, or a .glb that holds one. Nothing is drawn at random, so a
scene is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dressi.render.scene import (
    Image,
    Material,
    Node,
    Primitive,
    Scene,
    SceneMesh,
    TextureRef,
    icosphere,
    primitive_of,
    trs_matrix,
)

SIDES = (64, 48, 96, 33, 128, 80, 57, 112)
"""Sides of the images of ``room``: powers of two, even and odd ones."""


def spread(k: int, n: int) -> float:
    """A number in [0, 1) for part k, another one for each n: the fractional part of a multiple of
    the golden ratio."""
    return float(((k + 1) * (n + 1) * 0.6180339887498949) % 1.0)


def picture(k: int, width: int, height: int, channels: int = 3) -> np.ndarray:
    """(height, width, channels) float32 in [0, 1]: smooth bands of an own direction and colour."""
    y, x = np.mgrid[:height, :width] / max(width, height)
    waves = [np.sin(7 * (x * spread(k, c) + y * spread(k, c + 5)) + c) for c in range(channels)]
    return (0.5 + 0.45 * np.stack(waves, axis=-1)).astype(np.float32)


def quad(material: int | None = None, turns: float = 1.0) -> Primitive:
    """A unit square in the plane z = 0 that looks along +z. turns: how often a map repeats."""
    positions = np.array([[-0.5, -0.5, 0], [0.5, -0.5, 0], [0.5, 0.5, 0], [-0.5, 0.5, 0]])
    uv = np.array([[0, 1], [1, 1], [1, 0], [0, 0]], np.float64) * turns
    normals = np.tile(np.array([[0.0, 0.0, 1.0]]), (4, 1))
    faces = np.array([[0, 1, 2], [0, 2, 3]], np.int32)
    return Primitive(
        positions.astype(np.float32),
        faces,
        normals.astype(np.float32),
        uvs=(uv.astype(np.float32),),
        material=material,
        name="quad",
    )


def box(material: int | None = None) -> Primitive:
    """A cube of side 0.8: six squares, each with the whole map."""
    face = quad(material)
    turns = [
        trs_matrix((0, 0, 0), (np.sin(a / 2) * x, np.sin(a / 2) * y, 0.0, np.cos(a / 2)))
        for a, x, y in ((0, 0, 1), (90, 0, 1), (180, 0, 1), (270, 0, 1), (90, 1, 0), (-90, 1, 0))
        for a in (np.radians(a),)
    ]
    corners = (face.positions + (0.0, 0.0, 0.5)) * 0.8
    assert face.normals is not None
    return replace(
        face,
        positions=np.concatenate([corners @ t[:3, :3].T for t in turns]).astype(np.float32),
        normals=np.concatenate([face.normals @ t[:3, :3].T for t in turns]).astype(np.float32),
        uvs=(np.tile(face.uvs[0], (6, 1)),),
        faces=np.concatenate([face.faces + 4 * k for k in range(6)]),
        name="box",
    )


def grid_place(k: int, n: int) -> tuple[float, float, float]:
    """Where part k of n stands in a square grid of steps of 1.25 around the origin."""
    side = int(np.ceil(np.sqrt(n)))
    x, y = k % side, k // side
    return (1.25 * (x - 0.5 * (side - 1)), 1.25 * (y - 0.5 * (side - 1)), 0.0)


def _scene(
    name: str,
    meshes: list[SceneMesh],
    mesh_of: Callable[[int], int],
    n: int,
    materials: list[Material],
    images: list[Image],
) -> Scene:
    nodes = []
    for k in range(n):
        angle = 0.5 * spread(k, 3)
        turn = (0.0, float(np.sin(0.5 * angle)), 0.0, float(np.cos(0.5 * angle)))
        matrix = trs_matrix(grid_place(k, n), turn)
        nodes.append(Node(matrix, mesh=mesh_of(k), name=f"part{k}"))
    return Scene(
        tuple(nodes), tuple(range(n)), tuple(meshes), tuple(materials), tuple(images), name=name
    )


def plain_material(k: int) -> Material:
    """A material without maps, of an own colour."""
    base = (spread(k, 0), spread(k, 1), spread(k, 2), 1.0)
    return Material(base, metallic=spread(k, 3), roughness=0.2 + 0.8 * spread(k, 4), name=f"m{k}")


def cubes(n: int = 501) -> Scene:
    """n nodes with a cube and a material of their own."""
    meshes = [SceneMesh((box(k),), name=f"cube{k}") for k in range(n)]
    return _scene("cubes", meshes, lambda k: k, n, [plain_material(k) for k in range(n)], [])


def textured_quads(n: int = 40, side: int = 64) -> Scene:
    """n squares, each with a map of its own of side x side texels."""
    images = [Image(picture(k, side, side), "srgb", f"image{k}") for k in range(n)]
    made = [replace(plain_material(k), base_color_map=TextureRef(k)) for k in range(n)]
    meshes = [SceneMesh((quad(k),), name=f"quad{k}") for k in range(n)]
    return _scene("quads", meshes, lambda k: k, n, made, images)


def instances_of_three(n: int = 5000) -> Scene:
    """n nodes that share three meshes and three materials."""
    shapes = (primitive_of(icosphere(1)), box(), quad())
    meshes = [SceneMesh((replace(p, material=k),), name=f"s{k}") for k, p in enumerate(shapes)]
    made = [plain_material(k) for k in range(3)]
    return _scene("instances", meshes, lambda k: k % 3, n, made, [])


def room(n_nodes: int = 234, n_materials: int = 167, n_images: int = 40) -> Scene:
    """A furnished room's worth of parts: balls, boxes and squares; materials with colours, packed
    metallic-roughness, normal and emissive maps, some masked, clear, unlit or double sided, which
    share images of several sizes and read them with several samplers."""
    images = []
    for k in range(n_images):
        w, h = SIDES[k % len(SIDES)], SIDES[(k // 2 + 3) % len(SIDES)]
        data = k % 4 in (1, 2)  # packed values and normals
        pixels = picture(k, w, h, 4 if k % 8 == 0 else 3)
        if k % 4 == 2:
            pixels = (0.5 + 0.2 * (pixels - 0.5)) * (1, 1, 0) + (0, 0, 0.95)
        images.append(Image(pixels, "linear" if data else "srgb", f"image{k}"))
    made = [_furnished(k, n_images) for k in range(n_materials)]
    balls = primitive_of(icosphere(2))
    around = balls.positions / np.linalg.norm(balls.positions, axis=1, keepdims=True)
    uv = np.stack([2.0 * around[:, 0], 1.5 * around[:, 1]], axis=1).astype(np.float32)
    shapes = (replace(balls, uvs=(uv,)), box(), quad(turns=2.0))
    meshes = [
        SceneMesh((replace(shapes[k % 3], material=k % n_materials),), name=f"mesh{k}")
        for k in range(n_nodes)
    ]
    return _scene("room", meshes, lambda k: k, n_nodes, made, images)


def _furnished(k: int, n_images: int) -> Material:
    """Material k of ``room``; every third one has no map."""
    base = plain_material(k)
    if k % 3 == 2 or n_images < 4:
        return base
    own = 4 * (k % (n_images // 4))
    wraps = ("repeat", "mirror", "clamp")
    nearest = k % 11 == 0
    ref = TextureRef(
        own,
        wrap_u=wraps[k % 3],  # type: ignore[arg-type]
        wrap_v=wraps[k // 3 % 3],  # type: ignore[arg-type]
        mag_filter="nearest" if nearest else "linear",
        min_filter="nearest" if nearest else "linear_mipmap_linear",
    )
    moved = replace(ref, offset=(0.1, 0.2), rotation_rad=0.3, scale=(1.5, 0.75))
    return replace(
        base,
        base_color=(1.0, 1.0, 1.0, 1.0),
        base_color_map=moved if k % 7 == 0 else ref,
        metallic_roughness_map=replace(ref, image=own + 1) if k % 2 else None,
        normal_map=replace(ref, image=own + 2) if k % 4 < 2 else None,
        occlusion_map=replace(ref, image=own + 1) if k % 5 == 0 else None,
        emissive_map=replace(ref, image=own + 3) if k % 6 == 0 else None,
        emissive=(0.3, 0.3, 0.3) if k % 6 == 0 else (0.0, 0.0, 0.0),
        alpha_mode=("OPAQUE", "MASK", "OPAQUE", "BLEND", "OPAQUE")[k % 5],
        double_sided=k % 4 == 0,
        unlit=k % 13 == 0,
    )
