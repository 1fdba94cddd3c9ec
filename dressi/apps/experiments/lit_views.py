"""Pictures of the validation fit: random views under random lights, drawn with soft edges.

In: a mesh, ``Views``, a ``Method`` of soft edges, one of ``LOOKS``. Out: views with pictures, and
the graph of one picture (``draw``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, VEC3
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.render.camera import look_at, perspective
from dressi.render.raster import Peel, build_antialias, build_hardsoftras, gather, interpolate
from dressi.render.scene import Mesh
from dressi.render.shading import vertex_normals
from dressi.testing.views import MeshLeaves, mesh_leaves, send_mesh

AMBIENT = 0.15
"""Keeps the unlit side apart from the background."""

SUPERSAMPLE = 4

LOOKS = ("lambert", "silhouette", "lambert_alpha")
"""What a picture shows: Lambert shading, FLOAT; the silhouette alone, FLOAT; both, VEC2, the
silhouette joined as alpha (which is how the paper's listing ends)."""

LOOK_HELP = f"what pictures show and the loss compares: {', '.join(LOOKS)}"


@dataclass(frozen=True)
class Views:
    """Random views. matrices: (n, 4, 4). lights: (n, 3) positions of point lights. pictures:
    (reaches, n, S, S, components of the look) of the target, one set for each reach of a method or
    one for all."""

    matrices: np.ndarray
    lights: np.ndarray
    pictures: np.ndarray

    @property
    def size(self) -> int:
        return self.pictures.shape[2]


@dataclass(frozen=True)
class Method:
    """How edges become soft. r_px: reaches in pixels, one after another (``Fit.r_until``).
    delta_px: reach of the edge mask, None: r. antialias: the screen-space method, which knows no
    r."""

    name: str
    r_px: tuple[float, ...] = (1.0,)
    K: int = 1
    delta_px: float | None = None
    antialias: bool = False

    def reaches(self, r_px: Sequence[float] | None = None) -> tuple[float, ...]:
        """Return the given reaches, or those of the method. Raises DressiError for one larger than
        all of the method's, which its graph is built for."""
        found = tuple(self.r_px if r_px is None else r_px)
        if max(found) > max(self.r_px):
            raise DressiError(f"{self.name}: built for {self.r_px} px at most, got {found}")
        return found


def random_views(n: int, size: int, seed: int = 0) -> Views:
    """Return n views, still without pictures, from random directions over the sphere, each with a
    light of its own."""
    rng = np.random.default_rng(seed)
    directions, towards = (_unit(rng.normal(size=(n, 3))) for _ in range(2))
    projection = perspective(35.0, 1.0, 1.0, 10.0)
    matrices, lights = [], []
    for d, side in zip(directions, towards, strict=True):
        up = (0, 1, 0) if abs(d[1]) < 0.95 else (1, 0, 0)
        matrices.append(projection @ look_at(4.0 * d, (0, 0, 0), up))
        # Within 60 degrees or so of the camera: a light behind the object shows nothing.
        lights.append(4.0 * _unit((d + 0.9 * side)[None])[0])
    none = np.empty((0, 0, size, size, 1), np.float32)
    return Views(np.stack(matrices), np.stack(lights), none)


def with_targets(
    views: Views, target: Mesh, method: Method | None, look: str, device: str | None = None
) -> Views:
    """Return the views with the pictures of the target that a fit compares with: a ``Painter`` that
    paints once.

    method: draws them with the same soft edges as the fit's own pictures (the paper: "the rendered
    GT with the same configuration"), once for each of its reaches; None: sharp, averaged over
    SUPERSAMPLE squared samples per pixel. look: of LOOKS.
    """
    with Painter(target, method, views.size, look, device=device) as painter:
        return painter.paint(views)


class Painter:
    """One graph for the pictures of a target; see ``with_targets``. ambient: light that comes from
    everywhere, in [0, 1]."""

    def __init__(
        self,
        target: Mesh,
        method: Method | None,
        size: int,
        look: str = "lambert",
        ambient: float = AMBIENT,
        device: str | None = None,
    ) -> None:
        self.target, self.size, self.look = target, size, look
        self.samples = 1 if method is not None else SUPERSAMPLE
        self.method = method or Method("sharp", (0.0,))
        self.leaves = mesh_leaves(target, 1)
        self.light, self.r = Variable(VEC3, name="light"), Variable(FLOAT, name="r")
        self.picture = draw(
            self.leaves, self.light, self.r, self.method, size * self.samples, look, ambient
        )
        self.ad = DressiAD(device)

    def __enter__(self) -> Painter:
        return self

    def __exit__(self, *_: object) -> None:
        self.ad.close()

    def paint(self, views: Views, r_px: Sequence[float] | None = None) -> Views:
        """Return the views with pictures. r_px: other reaches than the method's. Raises DressiError
        for one larger than what the method was built for."""
        ad, size, s = self.ad, self.size, self.samples
        reaches = self.method.reaches(r_px)
        n = self.picture.vtype.n
        pictures = np.empty((len(reaches), len(views.matrices), size, size, n), np.float32)
        send_mesh(ad, self.leaves, self.target, views.matrices[:1])
        for stage, reach in enumerate(reaches):
            if not self.method.antialias:
                ad.send_img(self.r, reach / size)
            for k, (matrix, position) in enumerate(zip(views.matrices, views.lights, strict=True)):
                ad.send_img(self.leaves.matrix, matrix)
                if self.look != "silhouette":
                    ad.send_img(self.light, position)
                image = ad.recv_img(self.picture).reshape(size, s, size, s, n)
                pictures[stage, k] = image.mean((1, 3))
        return replace(views, pictures=pictures)


def _unit(v: np.ndarray) -> np.ndarray:
    return v / np.linalg.norm(v, axis=-1, keepdims=True)


@dataclass(frozen=True)
class Surface:
    """What light needs of a mesh: corners of the faces, position and unit normal of each."""

    corners: tuple[Variable, Variable, Variable]
    normals: tuple[Variable, Variable, Variable]

    @staticmethod
    def of(leaves: MeshLeaves) -> Surface:
        normals = vertex_normals(leaves.pos, leaves.faces)
        return Surface(gather(leaves.pos, leaves.faces), gather(normals, leaves.faces))

    def lit(self, peel: Peel, light: Variable, ambient: float = AMBIENT) -> Variable:
        """Return FLOAT @ pixels: a white matte surface under a point light, normals interpolated.
        light: VEC3 @ 1x1, world. Gradient to the vertices, through the barycentrics too."""
        position = interpolate(self.corners, peel.ids, peel.bary)
        normal = F.normalize(interpolate(self.normals, peel.ids, peel.bary))
        facing = F.dot(normal, F.normalize(light - position))
        return (ambient + (1.0 - ambient) * F.maximum(facing, 0.0)) * peel.stencil


def draw(
    leaves: MeshLeaves,
    light: Variable,
    r: Variable,
    method: Method,
    size: int,
    look: str,
    ambient: float = AMBIENT,
) -> Variable:
    """Return FLOAT or VEC2 @ size x size, layers of the matrix: a picture of the look by the
    method, over black. Gradient to the vertices. Raises DressiError for an unknown look."""
    if look not in LOOKS:
        raise DressiError(f"a picture shows one of {', '.join(LOOKS)}; got '{look}'")
    shape = (size, size)
    surface = Surface.of(leaves) if look != "silhouette" else None

    def joined(silhouette: Variable, shaded: Callable[[Surface], Variable]) -> Variable:
        if surface is None:
            return silhouette
        lit = shaded(surface)
        return lit if look == "lambert" else F.vec2(lit, silhouette)

    if method.antialias:
        aa = build_antialias(leaves.pos, leaves.faces, leaves.matrix, shape)
        return joined(aa.silhouette, lambda s: aa.blend(s.lit(aa.peel, light, ambient)))
    hs = build_hardsoftras(
        leaves.pos,
        leaves.faces,
        leaves.matrix,
        shape,
        r,
        method.K,
        delta=None if method.delta_px is None else method.delta_px / size,
        max_delta=max(method.r_px) / size,
    )
    if max(method.r_px) == 0.0:
        return joined(hs.hard, lambda s: s.lit(hs.peels[0], light, ambient) * hs.hard)
    return joined(
        hs.silhouette, lambda s: hs.blend([s.lit(peel, light, ambient) for peel in hs.peels])
    )
