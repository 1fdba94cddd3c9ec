"""SoftRas and PyTorch3D's soft blending in float64, from their published formulas.

In: a mesh with colours per vertex, a camera. Out: pictures. Both blend, in every pixel, all faces
within a reach by the softmax of depth; ``soft_pictures`` draws both, for they share distances.

SoftRas (Liu et al. 2019, "Soft Rasterizer", eq. 1 to 4): D_j = sigmoid(± d_j^2 / sigma), + inside;
the colour is sum_j w_j C_j + w_b C_b with w_j = D_j exp(z_j / gamma) / (sum_k D_k exp(z_k / gamma)
+ exp(eps / gamma)), z_j the normalized inverse depth, over all faces.
PyTorch3D (Ravi et al. 2020, "Accelerating 3D Deep Learning with PyTorch3D", section on the
renderer): the same blend, of the nearest ``n_buffers`` faces of each pixel alone, with z_j = (far -
depth) / (far - near).

Differs from both: distances are in screen units, 1 the side of the picture, as the paper's r and
sigma are; barycentric coordinates, clipped and normalized outside of a face, are corrected for
perspective.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dressi.render.scene import Mesh

Array = npt.NDArray[np.float64]

SOFTRAS_EPS, PYTORCH3D_EPS = 1e-3, 1e-10
"""Weights of the background, theirs."""
TILE = 16
"""Pixels on a side of what is drawn at once."""


@dataclass(frozen=True)
class Soft:
    """reach: of a face, screen units. sigma: of squared distances, screen units squared. gamma:
    of depths in [0, 1]; both publish 1e-4 as their default, which lets the nearest face within the
    reach hide all others. near, far: depths of the camera's planes. n_buffers: faces per pixel that
    PyTorch3D blends."""

    reach: float
    sigma: float
    gamma: float
    near: float
    far: float
    n_buffers: int = 150


@dataclass(frozen=True)
class _Faces:
    """Corners on the screen (F, 3, 2), their depths w (F, 3) and colours (F, 3, 3)."""

    screen: Array
    depth: Array
    colour: Array


def soft_pictures(
    mesh: Mesh, colours: Array, matrix: Array, size: int, soft: Soft
) -> dict[str, Array]:
    """Return ``SoftRas`` and ``PyTorch3D``, (size, size, 3) each, over black.

    matrix: (4, 4) to clip space, w the depth along the view axis; all vertices lie in front of the
    near plane. colours: (V, 3) linear.
    """
    ones = np.ones((len(mesh.positions), 1))
    clip = np.concatenate([mesh.positions.astype(np.float64), ones], 1) @ matrix.T.astype(
        np.float64
    )
    screen = 0.5 * clip[:, :2] / clip[:, 3:] + 0.5
    faces = _Faces(
        screen[mesh.faces], clip[:, 3][mesh.faces], colours.astype(np.float64)[mesh.faces]
    )
    low = faces.screen.min(1) - soft.reach
    high = faces.screen.max(1) + soft.reach
    out = {name: np.zeros((size, size, 3)) for name in ("SoftRas", "PyTorch3D")}
    for y in range(0, size, TILE):
        for x in range(0, size, TILE):
            begin = np.array([x, y]) / size
            end = np.minimum(begin + TILE / size, 1.0)
            near = ((low < end) & (high > begin)).all(1)
            if not near.any():
                continue
            some = _Faces(faces.screen[near], faces.depth[near], faces.colour[near])
            n_y, n_x = min(TILE, size - y), min(TILE, size - x)
            rows, columns = np.mgrid[y : y + n_y, x : x + n_x]
            points = (np.stack([columns, rows], -1).reshape(-1, 2) + 0.5) / size
            for name, picture in _blend(points, some, soft).items():
                out[name][y : y + n_y, x : x + n_x] = picture.reshape(n_y, n_x, 3)
    return out


def _blend(points: Array, faces: _Faces, soft: Soft) -> dict[str, Array]:
    """Return (P, 3) colours of both at points (P, 2) of the screen."""
    bary, square, inside = _distances(points, faces.screen)
    weight = bary / faces.depth
    one_over_depth = weight.sum(-1)
    colour = np.einsum("pfk,fkc->pfc", weight, faces.colour) / one_over_depth[..., None]
    depth = 1.0 / one_over_depth
    exponent = np.where(inside, square, -square) / soft.sigma
    chance = 1.0 / (1.0 + np.exp(-np.clip(exponent, -500.0, 500.0)))
    chance[~inside & (square >= soft.reach**2)] = 0.0
    inverse = (1.0 / depth - 1.0 / soft.far) / (1.0 / soft.near - 1.0 / soft.far)
    linear = (soft.far - depth) / (soft.far - soft.near)
    # The nearest faces of each pixel, among those that reach it.
    order = np.where(chance > 0, depth, np.inf)
    few = chance.copy()
    if order.shape[1] > soft.n_buffers:
        last = np.partition(order, soft.n_buffers - 1, axis=1)[:, soft.n_buffers - 1]
        few[order > last[:, None]] = 0.0
    return {
        "SoftRas": _softmax(chance, inverse, colour, SOFTRAS_EPS, soft.gamma),
        "PyTorch3D": _softmax(few, linear, colour, PYTORCH3D_EPS, soft.gamma),
    }


def _softmax(chance: Array, nearness: Array, colour: Array, eps: float, gamma: float) -> Array:
    """Return the blend over black. chance, nearness: (P, F); colour: (P, F, 3)."""
    top = np.maximum(np.where(chance > 0, nearness, 0.0).max(1), eps)[:, None]
    weight = chance * np.exp(np.minimum(nearness - top, 0.0) / gamma)
    total = weight.sum(1) + np.exp((eps - top[:, 0]) / gamma)
    return np.asarray(np.einsum("pf,pfc->pc", weight, colour) / total[:, None])


def _distances(points: Array, faces: Array) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    """Return barycentric coordinates (P, F, 3) clipped to the face, squared distances to its
    nearest edge (P, F), whether points lie inside. Faces without area have nothing inside."""
    a, b, c = faces[:, 0], faces[:, 1], faces[:, 2]
    area = _cross(b - a, c - a)
    safe = np.where(np.abs(area) > 1e-14, area, np.inf)
    pairs = ((b, c), (c, a), (a, b))
    bary = np.stack([_cross(q - p, points[:, None] - p) / safe for p, q in pairs], -1)
    inside = np.asarray((bary > 0).all(-1))
    square: Array = np.full(inside.shape, np.inf)
    for p, q in pairs:
        edge, to = q - p, points[:, None] - p
        length = np.maximum((edge * edge).sum(-1), 1e-30)
        along = np.clip((to * edge).sum(-1) / length, 0.0, 1.0)
        square = np.minimum(square, ((to - along[..., None] * edge) ** 2).sum(-1))
    clipped = np.clip(bary, 0.0, 1.0)
    total = clipped.sum(-1, keepdims=True)
    return np.where(total > 0, clipped / np.maximum(total, 1e-30), 1.0 / 3.0), square, inside


def _cross(u: Array, v: Array) -> Array:
    return np.asarray(u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0])
