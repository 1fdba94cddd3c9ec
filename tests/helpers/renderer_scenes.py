"""A small scene with two of everything, and cameras for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dressi.render.camera import Camera, look_at, perspective
from dressi.render.scene import (
    Image,
    Material,
    MorphTarget,
    Node,
    PunctualLight,
    Scene,
    SceneMesh,
    TextureRef,
    icosphere,
    primitive_of,
    trs_matrix,
)

SIZE = (40, 32)


def cameras(n: int = 2) -> list[Camera]:
    """Views from the front, left and right."""
    lens = perspective(40.0, SIZE[0] / SIZE[1], 1.0, 10.0)
    eyes = [(-1.2, 0.6, 4.0), (1.4, 0.9, 3.8), (0.2, 2.2, 3.5)]
    return [Camera(look_at(e), lens, f"view{k}") for k, e in enumerate(eyes[:n])]


def checker(a: float, b: float, n: int = 8) -> np.ndarray:
    """(n, n, 3) of two greys with some colour."""
    mask = (np.indices((n, n)).sum(0) % 2)[..., None]
    return np.float32(np.where(mask, a, b) * np.array([1.0, 0.8, 0.6]))


def demo_scene(maps: bool = True, **changes: Any) -> Scene:
    """A ball with maps and a blendshape, and a smaller plain one, mirrored by its node; two lights
    on nodes of their own."""
    ball = primitive_of(icosphere(2, 0.6), 0)
    wide = ball.positions * np.float32([0.5, 0.0, 0.0])
    ball = replace(ball, targets=(MorphTarget(wide),))
    plain = primitive_of(icosphere(1, 0.4), 1)
    body, other = (
        Material(name="Body", metallic=0.2, roughness=0.6),
        Material((0.2, 0.5, 0.8, 1.0), metallic=0.0, roughness=0.7, name="Other"),
    )
    images: tuple[Image, ...] = ()
    if maps:
        orm = np.stack([np.full((8, 8), v) for v in (0.9, 0.6, 0.3)], axis=2)
        normal = np.broadcast_to(np.float32([0.5, 0.5, 1.0]), (8, 8, 3))
        images = (
            Image(checker(0.7, 0.3), name="paint", bit_depth=16),
            Image(np.float32(orm), "linear", "orm", 16),
            Image(normal, "linear", "bumps", 16),
            Image(checker(0.1, 0.0), name="glow", bit_depth=16),
        )
        paint, packed, bumps, glow = (TextureRef(k, min_filter="linear") for k in range(4))
        body = replace(
            body,
            base_color_map=paint,
            metallic_roughness_map=packed,
            occlusion_map=packed,
            normal_map=bumps,
            emissive_map=glow,
            emissive=(1.0, 1.0, 1.0),
            metallic=1.0,
            roughness=1.0,
        )
    made = Scene(
        nodes=(
            Node(children=(1, 2, 3, 4), name="root"),
            Node(trs_matrix((-0.5, 0.0, 0.0)), mesh=0, name="ball"),
            Node(trs_matrix((0.7, 0.1, 0.3), scale=(-1.0, 1.2, 1.0)), mesh=1, name="small"),
            Node(trs_matrix((1.0, 2.0, 2.0)), light=0, name="lamp"),
            Node(trs_matrix(rotation_xyzw=(-0.3, 0.3, 0.0, 0.9)), light=1, name="sun"),
        ),
        roots=(0,),
        meshes=(SceneMesh((ball,), (0.0,), "Ball"), SceneMesh((plain,), name="Plain")),
        materials=(body, other),
        images=images,
        lights=(
            PunctualLight("point", (1.0, 0.9, 0.8), 12.0, name="lamp"),
            PunctualLight("directional", (0.8, 0.9, 1.0), 2.0, name="sun"),
        ),
        name="demo",
    )
    return replace(made, **changes).check()
