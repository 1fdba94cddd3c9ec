"""Gradients of a whole pipeline on the device beside float64 finite differences, which rasterize
again at every step.

Directions are every entry of small leaves, random unit directions of large ones. Two step sizes
must agree, else the comparison is thrown out: a pixel changed hands in between, and no derivative
is right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dressi.ad import Variable, evaluate
from dressi.engine import DressiAD
from dressi.testing.scenes import Scene

REL_L2, REL_L2_MAPS, COSINE = 0.02, 0.005, 0.999
"""Allowed of vertices and the camera, of smooth maps, of both."""
STEPS = (1e-5, 4e-6)
"""World units, for coordinates of about 1."""
MAP_STEPS = (1e-4, 4e-5)
"""No pixel changes hands when a map changes."""
AGREE = 0.003
N_DIRECTIONS, FEW_DIRECTIONS = 9, 4
MANY_FACES = 20
"""The oracle goes face by face: fewer directions from here on."""
GEOMETRY = ("vertices", "camera")


@dataclass(frozen=True)
class Comparison:
    """A gradient of a scene beside finite differences. rel_l2, cosine: over the directions. agreed:
    whether the two step sizes did."""

    scene: str
    leaf: str
    agreed: bool
    rel_l2: float
    cosine: float

    @property
    def ok(self) -> bool:
        """Return whether the errors are allowed; so where it was thrown out."""
        allowed = REL_L2 if self.leaf in GEOMETRY else REL_L2_MAPS
        return not self.agreed or (self.rel_l2 < allowed and self.cosine > COSINE)


def finite_differences(
    scene: Scene, x: Variable, directions: np.ndarray, step: float
) -> np.ndarray:
    """Return the central differences of the loss along directions (n, entries of x), in float64."""
    data = scene.feeds[x]
    out = []
    for d in directions:
        moves = (s * step * d.reshape(data.shape) for s in (1, -1))
        ends = [evaluate([scene.loss], {**scene.feeds, x: data + m})[0].item() for m in moves]
        out.append((ends[0] - ends[1]) / (2 * step))
    return np.array(out)


def directions_for(data: np.ndarray, n: int = N_DIRECTIONS) -> np.ndarray:
    """Return every coordinate of few, random unit directions of many."""
    if data.size <= n:
        return np.eye(data.size)
    d = np.random.default_rng(0).normal(size=(n, data.size))
    return d / np.linalg.norm(d, axis=1, keepdims=True)


def load(ad: DressiAD, scene: Scene) -> None:
    """Send a scene and set its loss."""
    ad.set_optimizer(None)
    for v, a in scene.feeds.items():
        ad.send_img(v, a)
    ad.set_loss_var(scene.loss)


def compare(
    ad: DressiAD, name: str, scene: Scene, leaf: str, most: int = N_DIRECTIONS
) -> Comparison:
    """Return the gradient of a loaded scene to one of its parameters. leaf: a key of
    ``scene.parameters``. most: directions at most."""
    x = scene.parameters[leaf]
    gradient = ad.recv_grad(x).astype(np.float64).ravel()
    few = len(scene.faces) > MANY_FACES or leaf == "camera"
    n = min(most, FEW_DIRECTIONS if few else N_DIRECTIONS)
    directions = directions_for(scene.feeds[x], n)
    steps = STEPS if leaf in GEOMETRY else MAP_STEPS
    coarse, fine = (finite_differences(scene, x, directions, s) for s in steps)
    size = float(np.linalg.norm(fine))
    agreed = bool(np.linalg.norm(coarse - fine) <= AGREE * size)
    got = directions @ gradient
    if not np.isfinite(got).all() or not got.any() or size == 0.0:
        return Comparison(name, leaf, agreed, float("inf"), 0.0)
    error = float(np.linalg.norm(got - fine)) / size
    return Comparison(name, leaf, agreed, error, float(got @ fine / np.linalg.norm(got) / size))
