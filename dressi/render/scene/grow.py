"""Procedural hair: strands that grow on a mesh, bend to the ground, and curl.

In: a mesh (the scalp), numbers. Out: ``Strands``. Roots are spread by area from a seed; every point
is one step on from the last, in a direction that turns from the normal towards gravity and follows
the curl of smooth noise, so that neighbours stay together. Points inside of a ball, where one is
given, are moved to its surface.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError
from dressi.render.scene.mesh import Mesh, area_normals, unit_or_zero, vertex_normals
from dressi.render.scene.strands import Strands

Floats = npt.NDArray[np.float64]

N_WAVES = 8
"""Sines that the noise is the sum of."""


@dataclass(frozen=True)
class Growth:
    """How strands grow. Lengths are world units.

    length, spread: mean length, and how much strands differ (a share, uniform). n_points: of each
    strand. width: at the root; the last third tapers to 0. lift: share of the normal in the
    direction at the root, the rest lies on the scalp, downhill. gravity: share of the direction
    that turns down by the tip. curl: strength of the noise beside a direction of length 1; scale:
    of its waves. stray: difference of directions between neighbours. seed: of roots and noise.
    """

    length: float = 0.6
    spread: float = 0.2
    n_points: int = 20
    width: float = 0.004
    lift: float = 0.6
    gravity: float = 0.8
    curl: float = 0.3
    scale: float = 0.3
    stray: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("length", "width", "scale"):
            if not 0.0 < getattr(self, name) < np.inf:
                raise GraphError(f"Growth: {name} must be positive, got {getattr(self, name)!r}")
        for name in ("spread", "lift", "gravity"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise GraphError(f"Growth: {name} must be in [0, 1], got {getattr(self, name)!r}")
        for name in ("curl", "stray"):
            if not 0.0 <= getattr(self, name) < np.inf:
                raise GraphError(f"Growth: {name} must be at least 0, got {getattr(self, name)!r}")
        if not isinstance(self.n_points, int) or self.n_points < 2:
            raise GraphError(f"Growth: n_points must be 2 or more, got {self.n_points!r}")


def scatter_roots(
    mesh: Mesh, n: int, seed: int = 0
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(n, 3) places on a mesh, evenly by area, and (n, 3) unit normals there, interpolated. Raises
    GraphError for n < 1 and a mesh without area."""
    if not isinstance(n, int) or n < 1:
        raise GraphError(f"scatter_roots: n must be 1 or more, got {n!r}")
    area = np.linalg.norm(area_normals(mesh.positions, mesh.faces), axis=1)
    if not area.sum() > 0.0:
        raise GraphError(f"scatter_roots: mesh '{mesh.name}' has no area")
    rng = np.random.default_rng(seed)
    faces = mesh.faces[rng.choice(len(area), n, p=area / area.sum())]
    # The root of a uniform number makes the places even over the triangle (Turk 1990).
    s, t = np.sqrt(rng.uniform(size=(n, 1))), rng.uniform(size=(n, 1))
    weights = np.concatenate([1.0 - s, s * (1.0 - t), s * t], axis=1)
    normals = vertex_normals(mesh.positions, mesh.faces).astype(np.float64)
    places = np.einsum("nk,nkc->nc", weights, mesh.positions.astype(np.float64)[faces])
    return places, unit_or_zero(np.einsum("nk,nkc->nc", weights, normals[faces]))


def grow_strands(
    mesh: Mesh,
    n: int,
    growth: Growth | None = None,
    ball: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
) -> Strands:
    """Return n strands that grow on a mesh.

    mesh: the scalp. ball: centre (3,) and radii (3,) of an ellipsoid that strands stay out of, the
    head. The same seed gives the same strands. Raises GraphError as ``scatter_roots``, and for a
    ball without extent.
    """
    g = growth or Growth()
    at, normal = scatter_roots(mesh, n, g.seed)
    rng = np.random.default_rng(g.seed + 1)
    step = g.length / (g.n_points - 1) * (1.0 + g.spread * rng.uniform(-1.0, 1.0, (n, 1)))
    own = g.stray * rng.normal(size=(n, 3))
    waves = _Waves(g.scale, rng)
    down = np.array([0.0, -1.0, 0.0])
    downhill = unit_or_zero(down - normal * (normal @ down)[:, None])
    direction, points = unit_or_zero(g.lift * normal + (1.0 - g.lift) * downhill), [at]
    for k in range(1, g.n_points):
        # The pull grows towards the tip, where less hair holds against it.
        pull = g.gravity * k / (g.n_points - 1)
        wish = (1.0 - pull) * direction + pull * down + own + g.curl * waves.curl(at)
        direction = unit_or_zero(wish)
        at = at + step * direction
        if ball is not None:
            at = _outside(at, ball)
        points.append(at)
    along = np.arange(g.n_points) / (g.n_points - 1)
    width = g.width * np.clip(3.0 * (1.0 - along), 0.0, 1.0)
    counts = np.full(n, g.n_points)
    table = np.stack(points, axis=1).reshape(-1, 3).astype(np.float32)
    return Strands(table, counts, np.tile(width, n).astype(np.float32), "grown")


class _Waves:
    """Smooth random vectors without divergence: the curl of a sum of sines (Bridson 2007)."""

    def __init__(self, scale: float, rng: np.random.Generator) -> None:
        self.frequency = rng.normal(size=(N_WAVES, 3)) / scale
        self.phase = rng.uniform(0.0, 2.0 * np.pi, N_WAVES)
        axis = rng.normal(size=(N_WAVES, 3))
        # The curl of a sin(k x) is cross(k, a) cos(k x): unit vectors, a root of their number.
        self.amplitude = unit_or_zero(np.cross(self.frequency, axis)) / np.sqrt(N_WAVES)

    def curl(self, at: Floats) -> Floats:
        """(n, 3) at places (n, 3)."""
        result: Floats = np.cos(at @ self.frequency.T + self.phase) @ self.amplitude
        return result


def _outside(at: Floats, ball: tuple[npt.ArrayLike, npt.ArrayLike]) -> Floats:
    """Places moved outwards to the surface of an ellipsoid that they lie in."""
    center, radii = (np.asarray(x, np.float64) for x in ball)
    if radii.shape != (3,) or not (radii > 0.0).all():
        raise GraphError(f"grow_strands: ball needs a centre and three radii > 0, got {ball!r}")
    away = (at - center) / radii
    length = np.linalg.norm(away, axis=1, keepdims=True)
    inside = length < 1.0
    safe = np.where(inside & (length > 0.0), length, 1.0)
    return np.where(inside, center + away / safe * radii, at)
