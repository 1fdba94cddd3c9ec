"""Small scenes for HardSoftRas: geometry, cameras, graphs and data in one object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC2, VEC3
from dressi.render.camera import look_at, perspective
from dressi.render.ibl.harmonics import sh_irradiance, sh_project
from dressi.render.raster import HardSoft, Peel, build_hardsoftras, gather, interpolate
from dressi.render.scene.mesh import icosphere
from dressi.render.shading import flat_normal, lambert, unlit
from dressi.render.shading.normal_map import flat_tangent, perturb_normal

NEAR, FAR = 0.5, 20.0


def camera(
    size: tuple[int, int], eye: Sequence[float] = (0, 0, 4), target: Sequence[float] = (0, 0, 0)
) -> np.ndarray:
    """Return (4, 4) world to clip, 45 degrees, looking from eye to target."""
    return perspective(45.0, size[0] / size[1], NEAR, FAR) @ look_at(eye, target)


def cube(half: float = 0.9, duplicated: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return (8 vertices, 12 faces), or 24 vertices: each side has its own."""
    v = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float) * half
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = np.array([t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))])
    if not duplicated:
        return v, faces
    corners = np.array(quads).ravel()
    split = [
        (4 * k + i, 4 * k + j, 4 * k + m) for k in range(6) for i, j, m in ((0, 1, 2), (0, 2, 3))
    ]
    return v[corners], np.array(split)


def rotated(v: np.ndarray, x: float, y: float, z: float = 0.0) -> np.ndarray:
    """Return v turned about x, then y, then z; radians."""
    cx, sx, cy, sy, cz, sz = np.cos(x), np.sin(x), np.cos(y), np.sin(y), np.cos(z), np.sin(z)
    rx = np.array([[1, 0, 0], [0, cx, -sx], [0, sx, cx]])
    ry = np.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
    rz = np.array([[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]])
    return np.asarray(v, float) @ (rz @ ry @ rx).T


def quad(size: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    v = np.array([(-1, -1, 0), (1, -1, 0), (1, 1, 0), (-1, 1, 0)], float) * size
    return v, np.array([(0, 1, 2), (0, 2, 3)])


@dataclass
class Scene:
    """A scene and its loss.

    look: silhouette, color (of vertices), texture, lambert, normal map or environment.
    feeds: data of all leaves. parameters: the leaves that gradients are compared of, by kind.
    """

    name: str
    vertices: np.ndarray
    faces: np.ndarray
    size: tuple[int, int] = (32, 24)
    matrices: np.ndarray | None = None
    look: str = "silhouette"
    r: Any = 0.12
    K: int = 1
    more: dict[str, Any] = field(default_factory=dict)
    hs: HardSoft = field(init=False)
    pos: Variable = field(init=False)
    matrix: Variable = field(init=False)
    image: Variable = field(init=False)
    loss: Variable = field(init=False)
    feeds: dict[Variable, np.ndarray] = field(init=False)
    parameters: dict[str, Variable] = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(len(self.faces) + 100 * self.K)
        if self.matrices is None:
            self.matrices = camera(self.size)[None]
        n_views = len(self.matrices)
        n = len(self.vertices)
        self.pos = Variable(VEC3, (n, 1), requires_grad=True, name="pos")
        faces = Variable(IVEC3, (len(self.faces), 1), name="faces")
        self.matrix = Variable(MAT4, layers=n_views, name="matrix")
        # float32 values, so that device and oracle see the same numbers
        self.feeds = {
            self.pos: np.asarray(self.vertices, np.float32).astype(np.float64),
            faces: np.asarray(self.faces),
            self.matrix: np.asarray(self.matrices, np.float32).astype(np.float64),
        }
        self.parameters = {"vertices": self.pos, "camera": self.matrix}
        self.hs = build_hardsoftras(
            self.pos, faces, self.matrix, self.size, self.r, self.K, **self.more
        )
        w, h = self.size
        if self.look == "silhouette":
            self.image = self.hs.silhouette
            target = Variable(FLOAT, self.size, n_views, name="target")
            self.feeds[target] = _smooth(rng, n_views, h, w, 1)
            d = self.image - target
            self.loss = F.mean(d * d) * 100.0
            return
        self.image = self.hs.blend(self._colors(faces, rng), 0.1)
        target = Variable(VEC3, self.size, n_views, name="target")
        self.feeds[target] = _smooth(rng, n_views, h, w, 3)
        d = self.image - target
        self.loss = F.mean(F.dot(d, d)) * 100.0

    def _colors(self, faces: Variable, rng: np.random.Generator) -> list[Variable]:
        n = len(self.vertices)
        if self.look == "color":
            colors = Variable(VEC3, (n, 1), name="colors")
            self.feeds[colors] = rng.uniform(0.2, 0.9, (n, 3)).astype(np.float32)
            return [interpolate(gather(colors, faces), p.ids, p.bary) for p in self.hs.peels]
        if self.look == "lambert":
            albedo, ambient = F.constant((0.8, 0.7, 0.6)), F.constant((0.1, 0.1, 0.1))
            light = F.constant(np.array([1.0, 2.0, 2.0]) / 3)
            return [
                lambert(
                    albedo,
                    flat_normal(p, self.pos, faces),
                    light,
                    F.constant((1.0, 1.0, 1.0)),
                    ambient,
                )
                for p in self.hs.peels
            ]
        if self.look == "environment":
            light = Variable(VEC3, (8, 4), requires_grad=True, name="environment")
            self.feeds[light] = _smooth(rng, 1, 4, 8, 3)
            self.parameters["environment"] = light
            harmonics = sh_project(light)
            normals = [flat_normal(p, self.pos, faces) for p in self.hs.peels]
            return [sh_irradiance(harmonics, normal) for normal in normals]
        uv = Variable(VEC2, (n, 1), name="uv")
        self.feeds[uv] = (np.asarray(self.vertices)[:, :2] * 0.3 + 0.5).astype(np.float32)
        if self.look == "normal map":
            bumps = Variable(VEC3, (8, 8), requires_grad=True, name="bumps")
            # Tilts of up to 20 degrees.
            spread, least = np.array([0.3, 0.3, 0.1]), np.array([0.35, 0.35, 0.85])
            self.feeds[bumps] = (_smooth(rng, 1, 8, 8, 3) * spread + least).astype(np.float32)
            self.parameters["normal map"] = bumps
            return [self._bumpy(p, faces, uv, bumps) for p in self.hs.peels]
        albedo = Variable(VEC3, (8, 8), requires_grad=True, name="albedo")
        self.feeds[albedo] = _smooth(rng, 1, 8, 8, 3)
        self.parameters["texture"] = albedo
        return [unlit(p, uv, faces, albedo) for p in self.hs.peels]

    def _bumpy(self, peel: Peel, faces: Variable, uv: Variable, bumps: Variable) -> Variable:
        normal = perturb_normal(
            flat_normal(peel, self.pos, faces),
            flat_tangent(peel, self.pos, faces, uv, faces),
            unlit(peel, uv, faces, bumps),
        )
        light = F.constant(np.array([1.0, 2.0, 2.0]) / 3)
        white, ambient = F.constant((1.0, 1.0, 1.0)), F.constant((0.1, 0.1, 0.1))
        return lambert(F.constant((0.8, 0.7, 0.6)), normal, light, white, ambient)


def _smooth(rng: np.random.Generator, layers: int, h: int, w: int, c: int) -> np.ndarray:
    """Return a smooth random image in [0, 1]."""
    y, x = np.mgrid[0:h, 0:w]
    out = np.empty((layers, h, w, c), np.float32)
    for at in np.ndindex(layers, c):
        a, b, p, q = rng.uniform(0.5, 2, 2).tolist() + rng.uniform(0, 6, 2).tolist()
        out[at[0], :, :, at[1]] = 0.5 + 0.25 * (
            np.sin(a * 6 * x / w + p) + np.cos(b * 6 * y / h + q)
        )
    return out


ACUTE = np.array([(-0.9, -0.7, 0), (0.9, -0.6, 0.2), (0.1, 0.9, -0.3)])
OBTUSE = np.array([(-1.3, -0.2, 0), (1.2, -0.3, 0.3), (0.2, 0.35, 0)])
NEEDLE = np.array([(-1.2, -0.8, 0), (1.2, 0.8, 0), (1.15, 0.92, 0.1)])
EDGE_ON = np.array([(-0.05, -0.8, 1.0), (0.06, 0.1, -1.5), (0.02, 0.9, 0.7)])
ONE = np.array([(0, 1, 2)])
OVERLAP = np.array(
    [(-1, -0.8, 0.5), (0.7, -0.7, 0.4), (-0.2, 0.8, 0.6), (-0.6, -0.6, -0.5), (1.1, -0.5, -0.4),
     (0.4, 0.95, -0.6)]
)  # fmt: skip
TWO = np.array([(0, 1, 2), (3, 4, 5)])
# A strip that folds over itself.
FOLD = np.array(
    [(-1, -0.7, 0), (-1, 0.7, 0.1), (0.8, -0.65, 0.3), (0.85, 0.75, 0.4), (-0.2, -0.5, 1.0),
     (-0.1, 0.55, 1.1)]
)  # fmt: skip
STRIP = np.array([(0, 1, 2), (1, 3, 2), (2, 3, 4), (3, 5, 4)])


def gradient_scenes() -> dict[str, Callable[[], Scene]]:
    """Return the scenes of R3 (docs/checking.md), by name."""
    return {**_triangles(), **_quads(), **_solids()}


def _ring(size: tuple[int, int], n: int) -> np.ndarray:
    """Return the matrices (n, 4, 4) of cameras around the origin."""
    angles = 0.4 + np.arange(n) * 2 * np.pi / n
    return np.stack([camera(size, (4 * np.sin(a), 1.0, 4 * np.cos(a))) for a in angles])


def _triangles() -> dict[str, Callable[[], Scene]]:
    return {
        "acute, silhouette, K=1": lambda: Scene("", ACUTE, ONE),
        "obtuse, silhouette, K=1": lambda: Scene("", OBTUSE, ONE),
        "needle, silhouette, K=1": lambda: Scene("", NEEDLE, ONE, (40, 32)),
        "edge-on, silhouette, K=1": lambda: Scene("", EDGE_ON, ONE, (24, 32)),
        "acute, color, K=1": lambda: Scene("", ACUTE, ONE, look="color"),
        "acute, antialiasing mode": lambda: Scene("", ACUTE, ONE, (40, 32), more={"delta": 1 / 40}),
        "overlap, silhouette, K=2": lambda: Scene("", OVERLAP, TWO, K=2),
        "overlap, color, K=1": lambda: Scene("", OVERLAP, TWO, look="color"),
        "overlap, color, K=2": lambda: Scene("", OVERLAP, TWO, look="color", K=2),
        "overlap, color, K=3, SoftRas mode": lambda: Scene(
            "", OVERLAP, TWO, (24, 24), look="color", K=3, more={"delta": 1.0}
        ),
        "fold, silhouette, K=1, tall": lambda: Scene("", FOLD, STRIP, (24, 40)),
        "fold, color, K=2": lambda: Scene("", FOLD, STRIP, look="color", K=2),
        "overlap, silhouette, K=3": lambda: Scene("", OVERLAP, TWO, K=3),
        "fold, texture, K=3": lambda: Scene("", FOLD, STRIP, (24, 24), look="texture", K=3),
        "fold, lambert, K=3": lambda: Scene("", FOLD, STRIP, (24, 24), look="lambert", K=3),
        "acute, color, K=3": lambda: Scene("", ACUTE, ONE, look="color", K=3),
        "fold, texture, K=1, tall": lambda: Scene("", FOLD, STRIP, (24, 40), look="texture"),
        "fold, normal map, K=3": lambda: Scene(
            "", FOLD, STRIP, (24, 24), look="normal map", K=3
        ),
        "fold, environment, K=3": lambda: Scene(
            "", FOLD, STRIP, (24, 24), look="environment", K=3
        ),
    }  # fmt: skip


def _quads() -> dict[str, Callable[[], Scene]]:
    q, q_faces = quad(0.9)
    return {
        "quad, texture, K=1": lambda: Scene("", rotated(q, 0.3, 0.4, 0.2), q_faces, look="texture"),
        "quad, texture, two views": lambda: Scene(
            "", rotated(q, 0.3, 0.4, 0.2), q_faces, (24, 24), _ring((24, 24), 6)[[0, 5]], "texture"
        ),
        "quad, normal map, K=1": lambda: Scene(
            "", rotated(q, 0.3, -0.4, 0.2), q_faces, look="normal map"
        ),
        "quad, lambert, K=1": lambda: Scene(
            "", rotated(q, 0.3, -0.4, 0.2), q_faces, look="lambert"
        ),
    }  # fmt: skip


def _solids() -> dict[str, Callable[[], Scene]]:
    box, box_faces = cube(0.7)
    box = rotated(box, 0.5, 0.6)

    def sphere() -> Scene:
        mesh = icosphere(1, 1.0)
        return Scene("icosphere", mesh.positions, mesh.faces, (22, 20))

    return {
        "cube, environment, K=1": lambda: Scene("", box, box_faces, (24, 24), look="environment"),
        "cube, silhouette, three views": lambda: Scene(
            "", box, box_faces, (24, 24), _ring((24, 24), 3)
        ),
        "cube, color, K=1": lambda: Scene("", box, box_faces, (32, 24), look="color"),
        "cube, color, K=2": lambda: Scene("", box, box_faces, (32, 24), look="color", K=2),
        "icosphere, silhouette, K=1": sphere,
    }  # fmt: skip
