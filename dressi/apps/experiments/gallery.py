"""Objects of the gallery of ``shapes``: those of the data folder that are there, and some by code.

What they have to differ in: holes through them, thin walls, sharp edges, several parts, surfaces
that are open, textures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

import dressi
from dressi.apps.data.heads import scan_mesh, scan_texture
from dressi.apps.experiments.meshes import horned, torus
from dressi.apps.reconstruct.targets import Target, load_target, target_of_mesh
from dressi.render.scene import Mesh, make_pear

FILES = {
    "bunny": "meshes/stanford-bunny.obj",
    "suzanne": "meshes/suzanne.obj",
    "teapot": "meshes/teapot.obj",
    "spot": "spot/spot.obj",
    "duck": "gltf/Duck.glb",
    "avocado": "gltf/Avocado.glb",
}
"""In the data folder beside the checkout."""


def objects() -> dict[str, Callable[[], Target]]:
    """Return what makes each object of the gallery, by its name; files that are not there are left
    out."""
    data = Path(dressi.__file__).resolve().parents[2] / "shared/data"
    found: dict[str, Callable[[], Target]] = {
        name: partial(load_target, data / file)
        for name, file in FILES.items()
        if (data / file).is_file()
    }
    # "Infinite, 3D Head Scan" by Lee Perry-Smith, www.triplegangers.com, CC BY 3.0.
    found["head"] = scanned_head
    made: dict[str, Callable[[], Mesh]] = {
        "horned": horned,
        "torus": partial(torus, 96, 48),
        "two_holes": two_holes,
        "bowl": bowl,
        "notched_box": notched_box,
    }
    found["pear"] = lambda: target_of_mesh(*make_pear())
    for name, make in made.items():
        found[name] = partial(_target_of, make)
    return found


def _target_of(make: Callable[[], Mesh]) -> Target:
    return target_of_mesh(make())


def scanned_head() -> Target:
    """Return the scanned head of the package."""
    return target_of_mesh(scan_mesh(), scan_texture())


def two_holes() -> Mesh:
    """Return a plate with two square holes through it, 5 x 3 x 1: genus 2, sharp edges."""
    solid = np.ones((5, 3, 1), bool)
    solid[1, 1] = solid[3, 1] = False
    return replace(boundary_of(solid), name="two_holes")


def temple() -> Mesh:
    """Return a roof on four thin columns on a base: genus 3."""
    solid = np.zeros((7, 7, 7), bool)
    solid[:, 0] = solid[:, 5:] = True
    solid[1::4, :, 1::4] = True
    return replace(boundary_of(solid), name="temple")


def notched_box() -> Mesh:
    """Return a cube with a corner cut out, half its side: edges that point out and in."""
    solid = np.ones((2, 2, 2), bool)
    solid[1, 1, 1] = False
    return replace(boundary_of(solid), name="notched_box")


def bowl(around: int = 96) -> Mesh:
    """Return an open bowl with a wall of 1/16 of its width: closed, genus 0, thin."""
    angle = np.radians(np.linspace(-90.0, 0.0, 25))
    outer, inner = 1.0, 0.875
    profile = np.concatenate(
        [
            outer * np.stack([np.cos(angle), np.sin(angle)], -1),
            inner * np.stack([np.cos(angle), np.sin(angle)], -1)[::-1],
        ]
    )
    return replace(revolved(profile, around), name="bowl")


def revolved(profile: npt.NDArray[np.float64], around: int) -> Mesh:
    """Return the surface that a profile makes about the y axis, outward where the profile goes from
    the bottom up on the outside.

    profile: (n, 2) radius and height; the first and the last point lie on the axis and become one
    vertex each. around: vertices along each ring, at least 3.
    """
    rings = profile[1:-1]
    turn = 2.0 * np.pi * np.arange(around) / around
    x, z = np.outer(rings[:, 0], np.sin(turn)), np.outer(rings[:, 0], np.cos(turn))
    y = np.repeat(rings[:, 1:], around, axis=1)
    ends = np.array([[0.0, profile[0, 1], 0.0], [0.0, profile[-1, 1], 0.0]])
    positions = np.concatenate([np.stack([x, y, z], -1).reshape(-1, 3), ends])
    i, j = np.meshgrid(np.arange(len(rings) - 1), np.arange(around), indexing="ij")
    k = (j + 1) % around
    a, b = i * around + j, i * around + k
    c, d = (i + 1) * around + k, (i + 1) * around + j
    sides = np.stack([a, b, c, a, c, d], -1).reshape(-1, 3)
    here = np.arange(around)
    after = (here + 1) % around
    first, last, top = len(positions) - 2, len(positions) - 1, (len(rings) - 1) * around
    caps = [
        np.stack([np.full(around, first), after, here], -1),
        np.stack([np.full(around, last), top + here, top + after], -1),
    ]
    return Mesh(positions.astype(np.float32), np.concatenate([sides, *caps]), name="revolved")


def boundary_of(solid: npt.NDArray[np.bool_]) -> Mesh:
    """Return the surface of unit cubes, outward, with vertices shared. solid: (X, Y, Z)."""
    wide = np.pad(solid, 1)
    quads = []
    for axis in range(3):
        # Around the axis, so that (u, v, axis) is right-handed.
        u, v = np.eye(3, dtype=int)[(axis + 1) % 3], np.eye(3, dtype=int)[(axis + 2) % 3]
        for side in (0, 1):
            empty = ~np.roll(wide, 1 - 2 * side, axis)
            low = np.argwhere(wide & empty) - 1 + side * np.eye(3, dtype=int)[axis]
            corners = [low, low + u, low + u + v, low + v]
            quads.append(np.stack(corners if side else corners[::-1], 1))
    places = np.concatenate(quads).reshape(-1, 3)
    positions, inverse = np.unique(places, axis=0, return_inverse=True)
    rows = inverse.reshape(-1, 4)
    faces = np.concatenate([rows[:, [0, 1, 2]], rows[:, [0, 2, 3]]])
    return Mesh(positions.astype(np.float32), faces, name="cubes")
