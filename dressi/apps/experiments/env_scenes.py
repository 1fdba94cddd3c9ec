"""What ``env_map`` looks at: meshes of metal, those that the paper names as failures, and maps.

In: names. Out: ``Subject`` with a mesh and its material, maps as cubes (6, n, n, 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.interpolate import PchipInterpolator

from dressi.ad import F, evaluate
from dressi.ad.vtype import VEC3
from dressi.apps.data import human_file
from dressi.apps.demo import centred
from dressi.apps.experiments.gallery import revolved
from dressi.apps.experiments.meshes import torus
from dressi.errors import LoadError
from dressi.render import ibl
from dressi.render.io.images import read_image
from dressi.render.scene import Mesh, icosphere

DARKEST, BRIGHTEST = 0.02, 4.0
"""Radiance of the true map is clamped to this, as the paper clamps its own."""


@dataclass(frozen=True)
class Subject:
    """What is looked at. make: the mesh, coarse or not. metallic, roughness: true ones; the fit
    knows the former."""

    make: Callable[[bool], Mesh]
    metallic: float
    roughness: float


def pot(coarse: bool) -> Mesh:
    """Return a pot with a lid and a knob, a surface of revolution."""
    points = np.array(
        [
            [0.0, -0.7], [0.5, -0.7], [0.8, -0.42], [0.9, -0.05], [0.76, 0.32], [0.6, 0.46],
            [0.62, 0.54], [0.5, 0.58], [0.28, 0.72], [0.11, 0.78], [0.1, 0.85], [0.17, 0.94],
            [0.1, 1.02], [0.0, 1.04],
        ]
    )  # fmt: skip
    along = PchipInterpolator(np.arange(len(points)), points)
    profile = along(np.linspace(0, len(points) - 1, 20 if coarse else 100))
    profile[[0, -1], 0] = 0.0
    return replace(centred(revolved(profile, 24 if coarse else 128))[0], name="pot")


def pig(coarse: bool) -> Mesh:
    """Return a pig of ellipsoids: body, head, snout, ears, legs, tail."""
    parts = (
        ((0.0, 0.0, 0.0), (0.5, 0.46, 0.72)),
        ((0.0, 0.18, 0.72), (0.36, 0.34, 0.34)),
        ((0.0, 0.1, 1.04), (0.15, 0.12, 0.12)),
        ((-0.22, 0.48, 0.72), (0.11, 0.17, 0.06)),
        ((0.22, 0.48, 0.72), (0.11, 0.17, 0.06)),
        ((0.0, 0.2, -0.74), (0.05, 0.05, 0.14)),
        *(((x, -0.45, z), (0.13, 0.3, 0.13)) for x in (-0.26, 0.26) for z in (-0.4, 0.4)),
    )
    ball = icosphere(1 if coarse else 3)
    n = len(ball.positions)
    positions = [ball.positions * radii + np.array(middle) for middle, radii in parts]
    faces = [ball.faces + k * n for k in range(len(parts))]
    both = Mesh(np.concatenate(positions).astype(np.float32), np.concatenate(faces), name="pig")
    return centred(both)[0]


def crumpled(coarse: bool) -> Mesh:
    """Return a ball whose waves are about as wide as two pixels of a view of 96 x 96."""
    ball = icosphere(2 if coarse else 6)
    x, y, z = 90.0 * ball.positions.astype(np.float64).T
    radius = 1.0 + 0.02 * (np.sin(x + 0.3 * y) * np.sin(y + 0.3 * z) + np.sin(z + 0.3 * x))
    positions = (ball.positions * radius[:, None]).astype(np.float32)
    return centred(replace(ball, positions=positions, uvs=None, uv_faces=None, name="crumpled"))[0]


def ring(coarse: bool) -> Mesh:
    """Return a torus."""
    return torus(24, 12) if coarse else torus(128, 64)


SUBJECTS = {
    "torus": Subject(ring, 1.0, 0.3),
    "pot": Subject(pot, 0.9, 0.2),
    "pig": Subject(pig, 0.8, 0.4),
}
"""Three meshes "whose materials have different metallic and roughness properties"."""

FAILURES = {
    "low metallic": Subject(ring, 0.0, 0.3),
    "high roughness": Subject(ring, 1.0, 0.8),
    "complicated geometry": Subject(crumpled, 1.0, 0.3),
}
"""The three that the paper "cannot fit": one property of the torus is another, or its mesh."""

HDR = {
    "workshop": "hdr/aerodynamics_workshop_256.hdr",
    "sunrise": "hdr/spruit_sunrise_256.hdr",
}
"""Of Poly Haven, CC0; they come with the package."""


def environment(name: str, n: int) -> np.ndarray:
    """Return (6, n, n, 3) float32 radiance: of HDR, ``made``, or a file; means over texels, clamped
    to [DARKEST, BRIGHTEST]. Raises LoadError for what is none of them."""
    if name == "made":
        return true_environment(n)
    path = human_file(HDR[name]) if name in HDR else Path(name)
    if not path.is_file():
        raise LoadError(f"--maps {name}: neither a file nor one of made, {', '.join(HDR)}", name)
    image = read_image(path)[..., :3]
    fine = evaluate([ibl.to_cube(F.leaf(image, VEC3), n * PARTS)], {})[0]
    return _texels(np.asarray(fine, np.float64), n)


def _texels(fine: np.ndarray, n: int) -> np.ndarray:
    """Return the means, weighted by solid angle, of PARTS x PARTS points per texel, clamped."""
    weight = ibl.cube_solid_angles(n * PARTS)[..., None]

    def summed(a: np.ndarray) -> np.ndarray:
        return a.reshape(6, n, PARTS, n, PARTS, -1).sum((2, 4))

    mean = summed(fine * weight) / summed(weight)
    return np.clip(mean, DARKEST, BRIGHTEST).astype(np.float32)


PARTS = 8
"""Points per side of a texel that the true map is the mean of."""


def true_environment(n: int) -> np.ndarray:
    """Return (6, n, n, 3) float32 radiance: a sky with two suns and a lamp, coloured walls with a
    window, a tiled floor. Means over texels, clamped to [DARKEST, BRIGHTEST]."""
    x, y, z = np.moveaxis(ibl.cube_directions(n * PARTS), -1, 0)
    azimuth, up = np.degrees(np.arctan2(x, -z)), np.degrees(np.arcsin(np.clip(y, -1, 1)))

    def mixed(below: np.ndarray, colour: Sequence[float], share: np.ndarray) -> np.ndarray:
        return below + (np.array(colour) - below) * share[..., None]

    def box(left: float, right: float, low: float, high: float) -> np.ndarray:
        across = np.minimum(azimuth - left, right - azimuth)
        inside = np.minimum(across, np.minimum(up - low, high - up))
        return np.clip(inside / 3 + 0.5, 0, 1)  # edges 3 degrees wide

    def blob(to: Sequence[float], degrees: float) -> np.ndarray:
        to = np.array(to) / np.linalg.norm(to)
        cosine = x * to[0] + y * to[1] + z * to[2]
        return np.exp((cosine - 1) / (1 - np.cos(np.radians(degrees))))

    sky = mixed(np.full((*y.shape, 3), (0.62, 0.66, 0.7)), (0.1, 0.22, 0.6), np.clip(y, 0, 1))
    tiles = np.sign(np.sin(np.radians(azimuth) * 4) * np.sin(np.radians(up) * 6))
    floor = mixed(np.full((*y.shape, 3), (0.3, 0.24, 0.18)), (0.08, 0.07, 0.08), tiles > 0)
    env = mixed(sky, (0.0, 0.0, 0.0), np.clip(-up / 3 + 0.5, 0, 1))
    env = env + floor * np.clip(-up / 3 + 0.5, 0, 1)[..., None]
    env = mixed(env, (0.7, 0.08, 0.06), box(-120, -50, -20, 28))
    env = mixed(env, (0.06, 0.5, 0.12), box(60, 115, -30, 18))
    env = mixed(env, (0.05, 0.05, 0.06), box(-20, 25, -15, 35))
    env = mixed(env, (0.95, 0.85, 0.6), box(-10, 15, -3, 24))
    env = env + blob((0.5, 0.7, 0.6), 9)[..., None] * (4.0, 3.4, 2.4)
    env = env + blob((-0.7, 0.5, 0.5), 14)[..., None] * (0.5, 0.8, 1.4)
    env = env + blob((0.2, -0.9, -0.3), 12)[..., None] * (1.2, 0.5, 1.0)
    return _texels(env, n)
