"""The paper's validation fit (5.1): vertices of a sphere by random views under random lights.

In: a target mesh, a way to draw soft edges. Out: mean distance of the vertices to the target at
every so many iterations, times, positions at checkpoints. Each iteration draws one view; the loss
is the mean absolute difference of pictures (``LOOKS``) plus a Laplacian whose weight falls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from tqdm.auto import tqdm

from dressi.ad import Adam, F, Variable
from dressi.ad.graph import leaves
from dressi.ad.optim import Optimizer
from dressi.ad.vtype import FLOAT, VEC3
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.packing import Options
from dressi.render.camera import look_at, perspective
from dressi.render.fit import l1_loss, laplacian_loss, laplacian_matrix, mean_distance_to_surface
from dressi.render.io import contact_sheet
from dressi.render.raster import Peel, build_antialias, build_hardsoftras, gather, interpolate
from dressi.render.scene import Mesh
from dressi.render.shading import vertex_normals
from dressi.testing.views import MeshLeaves, mesh_leaves, render, send_mesh

AMBIENT = 0.15
"""Keeps the unlit side apart from the background."""

SUPERSAMPLE = 4

LOOKS = ("lambert", "silhouette", "lambert_alpha")
"""What a picture shows: Lambert shading, FLOAT; the silhouette alone, FLOAT; both, VEC2, the
silhouette joined as alpha (which is how the paper's listing ends)."""

LOOK_HELP = f"what pictures show and the loss compares: {', '.join(LOOKS)}"

START_RADIUS = 0.5

LR = (0.002, 0.002)
LAPLACIAN = (10.0, 0.1)
"""At the start and at the end of a fit of 2500 iterations. The rate is low enough that 500
iterations do not converge, and stays, so that what a method's gradients still move at the end
shows; all methods end nearer where it falls (docs/experiments.md)."""

TARGET_FACES_HELP = "faces of the target at most: its pictures have soft edges as well"


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
        """Return these in the place of r_px, where given. Raises DressiError for one larger than
        all of r_px, which is what a graph of the method is built for."""
        found = tuple(self.r_px if r_px is None else r_px)
        if max(found) > max(self.r_px):
            raise DressiError(f"{self.name}: built for {self.r_px} px at most, got {found}")
        return found


@dataclass(frozen=True)
class Fit:
    """What all methods share. Pairs go geometrically from start to end. r_until: part of the
    iterations by which the last reach is on; those before share it equally. every: iterations
    between measurements of the distance. look: what is compared, of LOOKS."""

    iterations: int
    lr: tuple[float, ...] = LR
    laplacian: tuple[float, ...] = LAPLACIAN
    r_until: float = 0.6
    every: int = 50
    look: str = "lambert"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, pair in (("lr", self.lr), ("laplacian", self.laplacian)):
            if len(pair) != 2:
                raise DressiError(f"{name} goes from a start to an end: two numbers, got {pair}")


@dataclass
class Trace:
    """iterations, seconds (of iterations alone, building left out), distances: at each measurement,
    the first at the start. positions: at the checkpoints."""

    iterations: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    distances: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    positions: dict[int, np.ndarray] = field(default_factory=dict)
    ms: float = 0.0

    def at(self, iteration: int) -> float:
        """Return the mean distance at a measured iteration."""
        return self.distances[self.iterations.index(iteration)]


def random_views(n: int, size: int, seed: int = 0) -> Views:
    """Return n views from directions spread by chance over the sphere, each with its own light;
    without pictures yet."""
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


def run_fit(
    start: Mesh,
    target: Mesh,
    views: Views,
    method: Method,
    fit: Fit,
    checkpoints: Sequence[int] = (),
    device: str | None = None,
) -> Trace:
    """Run one fit of the start mesh: a ``Fitter`` that runs once. Raises DressiError where a
    vertex is no number any more."""
    with Fitter(start, method, views.size, fit.look, device=device) as fitter:
        return fitter.run(start.positions, target, views, fit, checkpoints)


def adam(lr: Variable) -> Optimizer:
    """Return the optimizer of the experiments: a short memory, for each iteration has another
    view."""
    return Adam(lr, beta2=0.95)


class Fitter:
    """One graph for many fits: start positions, reaches within the method's largest, pictures,
    rates and weights are sent, so only the first fit builds.

    start: faces of all the fits. look: of LOOKS. optimizer: of the rate. batch: views per
    iteration. ambient: as in ``Painter``. options: of the engine; without ``deterministic`` sums
    are taken in any order, so the same fit once more ends slightly elsewhere.
    """

    def __init__(
        self,
        start: Mesh,
        method: Method,
        size: int,
        look: str = "lambert",
        optimizer: Callable[[Variable], Optimizer] = adam,
        batch: int = 1,
        ambient: float = AMBIENT,
        device: str | None = None,
        options: Options | None = None,
    ) -> None:
        self.start, self.method, self.size, self.look = start, method, size, look
        self.batch = batch
        self.leaves = mesh_leaves(start, batch, requires_grad=True)
        self.r, self.lr, self.weight = (
            Variable(FLOAT, name=n) for n in ("r", "lr", "laplacian_weight")
        )
        self.light = Variable(VEC3, layers=batch, name="light")
        got = draw(self.leaves, self.light, self.r, method, size, look, ambient)
        self.wanted = Variable(got.vtype, (size, size), batch, name="target")
        laplacian = laplacian_matrix(start.faces, len(start.positions))
        smooth = laplacian_loss(self.leaves.pos, laplacian) * self.weight
        self.loss = l1_loss(got, self.wanted) + smooth
        self._states: list[Variable] = []
        self._make_optimizer = optimizer
        self.ad = DressiAD(device, options)
        self.ad.set_loss_var(self.loss)
        self.ad.set_optimizer(self._optimize)

    def _optimize(self, xs: Sequence[Variable], gxs: Sequence[Variable]) -> Sequence[Variable]:
        updated = list(self._make_optimizer(self.lr)(xs, gxs))
        self._states = [v for v in leaves(updated) if v.update is not None]
        return updated

    def __enter__(self) -> Fitter:
        return self

    def __exit__(self, *_: object) -> None:
        self.ad.close()

    def run(
        self,
        positions: np.ndarray,
        target: Mesh,
        views: Views,
        fit: Fit,
        checkpoints: Sequence[int] = (),
        r_px: Sequence[float] | None = None,
    ) -> Trace:
        """Return a fit from these positions of the start's vertices. The order of views depends on
        the seed alone, so that all methods see the same. r_px: other reaches than the method's.
        Raises DressiError for one larger than what the method was built for, and where a vertex is
        no number any more."""
        ad, method = self.ad, self.method
        reaches = method.reaches(r_px)
        rng = np.random.default_rng(fit.seed)
        last = max(fit.iterations - 1, 1)
        trace = Trace()
        times: list[float] = []
        first = views.matrices[np.zeros(self.batch, int)]
        send_mesh(ad, self.leaves, replace(self.start, positions=positions), first)
        for state in self._states:
            assert state.data is not None
            ad.send_img(state, np.zeros_like(state.data))

        def send(i: int) -> None:
            k, t = rng.integers(len(views.matrices), size=self.batch), i / last
            stage = stage_at(t, len(reaches), fit.r_until)
            picture = min(stage, len(views.pictures) - 1)
            one = self.batch == 1
            ad.send_img(self.leaves.matrix, views.matrices[k[0]] if one else views.matrices[k])
            ad.send_img(self.wanted, views.pictures[picture, k[0] if one else k])
            if self.look != "silhouette":
                lights = views.lights[k]
                ad.send_img(self.light, lights[0] if one else lights.reshape(-1, 1, 1, 3))
            if not method.antialias:
                ad.send_img(self.r, reaches[stage] / self.size)
            ad.send_img(self.lr, _between(fit.lr, t))
            ad.send_img(self.weight, _between(fit.laplacian, t))

        for i in tqdm(range(fit.iterations + 1), desc=method.name, unit="it", leave=False):
            if i % fit.every == 0 or i == fit.iterations or i in checkpoints:
                now = ad.recv_img(self.leaves.pos) if i else positions
                if not np.isfinite(now).all():
                    raise DressiError(f"{method.name}: vertices are lost at iteration {i}")
                trace.iterations.append(i)
                trace.seconds.append(sum(times) / 1e3)
                trace.distances.append(
                    mean_distance_to_surface(now, target.positions, target.faces)
                )
                if i:
                    trace.losses.append(float(ad.recv_img(self.loss).reshape(-1)[0]))
                if i in checkpoints:
                    trace.positions[i] = now
            if i == fit.iterations:
                break
            begin = time.perf_counter()
            send(i)
            ad.exec_step()
            if i >= SETTLING:
                times.append((time.perf_counter() - begin) * 1e3)
        trace.ms = float(np.median(times)) if times else 0.0
        return trace


SETTLING = 10
"""Iterations whose time does not count: they build."""


def stage_at(t: float, stages: int, until: float) -> int:
    """Return which of the stages is on at t in [0, 1]: the last from ``until`` on, the others share
    what is before it equally."""
    return min(int(t / until * (stages - 1)), stages - 1)


def _between(pair: tuple[float, ...], t: float) -> float:
    return pair[0] * (pair[1] / pair[0]) ** t


def draw_fits(
    start: Mesh,
    target: Mesh,
    positions: Mapping[str, np.ndarray],
    views: Views,
    device: str | None = None,
) -> np.ndarray:
    """Return a sheet: the target and the start mesh at each of these positions, shaded, in a few
    views."""
    meshes = {"target": target}
    meshes |= {name: replace(start, positions=p) for name, p in positions.items()}
    size, shown = (min(views.size, 192),) * 2, views.matrices[:SHOWN]
    rows = {
        name: list(render(mesh, shown, size, None, 2, device)[1]) for name, mesh in meshes.items()
    }
    return contact_sheet(rows)


SHOWN = 5
"""Views on a sheet."""
