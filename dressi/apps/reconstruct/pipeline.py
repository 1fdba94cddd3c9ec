"""The pipeline: a start, rounds that grow finer, each with a check; of photos, fairing between
rims, and carving where they agree; then shape and texture together.

In: ``Pictures`` of an object, in any units. Out: ``Reconstruction``: a mesh with a texture, and how
it came to be. No parameter depends on the object.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from dressi.apps.photo_flags import PHOTO_WITHOUT
from dressi.apps.reconstruct.cameras import CameraState, Refinement, pictures_without_lens
from dressi.apps.reconstruct.carving import Carving, carved
from dressi.apps.reconstruct.order import ordered, remeshed, repaired
from dressi.apps.reconstruct.pictures import Pictures
from dressi.apps.reconstruct.rounds import Course, LossWeights, Round, fit_round
from dressi.apps.reconstruct.texture import Painted, Painting, paint
from dressi.engine import DressiAD
from dressi.errors import DressiError, GraphError
from dressi.render.fit import (
    bake_texture,
    faired_between_rims,
    unwrap,
    visual_hull,
    without_false_bridges,
)
from dressi.render.scene import Mesh, icosphere, surface_problems
from dressi.threads import in_one_blas_thread

EXTENT = 2.0
"""Longest side of the object's box while it is fitted; learning rates are in these units."""

WITHOUT = ("hull", "remesh", "preconditioning", "shading", "occlusion")
"""What can be left out, to see what it is good for."""


@dataclass(frozen=True)
class Plan:
    """How a reconstruction is made. start: hull, sphere, or a mesh in the world. hull_cells: cells
    of the hull's grid along its longest side. doubted: small holes of masks may be shadows
    (photos): they are filled, and have no weight. rounds: one after another. painting: the last
    one; None: no texture. texture: texels on a side. box: (2, 3) lowest and highest corner, world
    units, around the object: where the masks leave sides of the hull open, a sphere in it is the
    start. without: of WITHOUT. refine: how cameras are refined; None: they stay. fairing:
    whether the surface is made fair between rims after the rounds; carving: where photos agree, at
    the end; None: not."""

    rounds: tuple[Round, ...]
    painting: Painting | None
    start: str | Mesh = "hull"
    weights: LossWeights = field(default_factory=LossWeights)
    hull_cells: int = 96
    doubted: bool = False
    texture: int = 512
    box: npt.NDArray[np.float64] | None = None
    without: frozenset[str] = frozenset()
    refine: Refinement | None = None
    fairing: bool = False
    carving: Carving | None = None


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """mesh: in the world; with UVs where there is a texture. texture: (H, W, 3) linear, or None.
    start: the mesh of the start, in the world. gains: (n, 3), exposure of each view. courses: of
    each round, by its label. said: what a reader should know, a sentence each. cameras: refined, in
    the world; None: as they were given."""

    mesh: Mesh
    texture: np.ndarray | None
    start: Mesh
    gains: np.ndarray
    courses: dict[str, Course]
    said: tuple[str, ...] = ()
    cameras: CameraState | None = None


@dataclass(frozen=True)
class Movers:
    """What moves vertices and texels; all else of the pipeline stays as it is. fit_round, paint:
    functions with the arguments and results of ``rounds.fit_round`` and ``texture.paint``."""

    fit_round: Callable[..., tuple[Mesh, Course]] = fit_round
    paint: Callable[..., Painted] = paint


def rounds_of(iterations: int, size: int) -> tuple[Round, ...]:
    """Return the rounds of a fit to pictures with normals. iterations: of all rounds together.
    size: longer side of the finest pictures, pixels. Raises GraphError for numbers below 1, 8."""
    if iterations < 1 or size < 8:
        raise GraphError(
            f"rounds_of needs iterations >= 1 and size >= 8, got {iterations} and {size}"
        )

    def part(share: float) -> int:
        return max(round(iterations * share), 1)

    def faces(most: int) -> int:
        # Edges of the same length in pixels; smaller pictures cannot say more.
        return max(round(most * min(size / FULL_SIZE, 1.0) ** 2), FEWEST_FACES)

    return (
        Round(
            faces(2500), max(size // 2, 8), part(0.35), (3.0, 1.0), (0.15, 0.015), smoothness=3.0
        ),
        Round(faces(6000), size, part(0.35), (2.0, 1.0), (0.1, 0.01), smoothness=1.0),
        Round(faces(12000), size, part(0.3), (1.5, 1.0), (0.1, 0.005), smoothness=1.0),
    )


FULL_SIZE = 256
"""Longer side of pictures, pixels, from which on the last round has all its faces."""

SMALL_HOLE = 0.01
"""Share of a mask's area up to which a hole in it may be a shadow."""

FEWEST_FACES = 400
"""What small pictures still get: enough for limbs and holes."""

CAMERA_FACES = 2500
"""Of the round that comes before all others where cameras are refined, with half the steps of the
next one: masks of cameras that are off carve too much, so the hull is made again with those that
this round finds."""

FAR_ROUND = Round(2500, 128, 150, (16.0, 2.0), (0.3, 0.03), smoothness=20.0)
"""What comes before the others where the start is a sphere: silhouettes pull from afar."""


def reconstruct(
    pictures: Pictures, plan: Plan, device: str | int | None = None, movers: Movers | None = None
) -> Reconstruction:
    """Reconstruct an object from its pictures. movers: others than Dressi's own, to compare. Raises
    GraphError (no object in the masks, a bad start) and DressiError (a loss that is not finite)."""
    known = dict.fromkeys((*WITHOUT, *PHOTO_WITHOUT))
    unknown = plan.without - set(known)
    if unknown:
        raise GraphError(f"reconstruct: without {sorted(unknown)}; known: {', '.join(known)}")
    if plan.painting is not None and importlib.util.find_spec("xatlas") is None:
        raise DressiError("a texture needs xatlas: pip install 'dressi[atlas]'")
    if "shading" in plan.without:
        pictures = replace(pictures, normals=None)
    if plan.doubted:
        pictures = without_small_holes(pictures)
    start, sphere = started(pictures, plan)
    place, scale = placement(start)
    seen = pictures.placed(place * scale)  # w, too, is in units of the box then
    if seen.depth is not None:
        seen = replace(seen, depth=seen.depth * np.float32(scale))
    mesh = moved(start, np.asarray(np.linalg.inv(place), np.float64))
    if plan.refine is None:  # a lens is around the middle of the whole photo
        seen = seen.cropped(mesh.positions)
    rounds = (FAR_ROUND, *plan.rounds) if sphere else plan.rounds
    with in_one_blas_thread(), DressiAD(device) as ad:
        fit = _Fit(ad, plan, seen, {}, movers or Movers())
        if plan.refine is not None:
            fit.cameras = CameraState(seen.matrices, plan.refine)
            half = max(plan.rounds[0].iterations // 2, 1)
            one = replace(plan.rounds[0], faces=CAMERA_FACES, iterations=half)
            mesh = fit.hull_again(fit.moved(mesh, one, "cameras", 0))
        for k, one in enumerate(rounds):
            mesh = fit.moved(mesh, one, f"shape {k + 1} of {len(rounds)}", k)
        mesh = fit.faired(mesh)
        if plan.carving is not None and "consistency" not in plan.without:
            mesh = fit.carved(mesh, plan.carving)
        gains, texture = np.ones((len(pictures), 3)), None
        if plan.painting is not None and seen.colour is not None:
            mesh, texture, gains = fit.painted(mesh, plan.painting)
    cameras = fit.cameras
    if cameras is not None:
        away = np.linalg.inv(place * scale)
        cameras = replace(cameras, matrices=cameras.matrices @ away)
    return Reconstruction(
        moved(mesh, place), texture, start, gains, fit.courses, said(mesh), cameras
    )


@dataclass
class _Fit:
    """A reconstruction under way. seen: pictures of positions in a box of side EXTENT around the
    origin; their matrices are those of cameras, where those are refined."""

    ad: DressiAD
    plan: Plan
    seen: Pictures
    courses: dict[str, Course]
    movers: Movers
    cameras: CameraState | None = None

    def moved(self, mesh: Mesh, one: Round, label: str, seed: int) -> Mesh:
        """Return the mesh after a round."""
        without = self.plan.without
        if one.faces is not None and (not self.courses or "remesh" not in without):
            mesh = remeshed(mesh, one.faces)
        made, course = self.movers.fit_round(
            self.ad, mesh, self.seen, one, self.plan.weights, label,
            preconditioned="preconditioning" not in without,
            occlusion="occlusion" not in without,
            seed=seed,
            start=self.cameras,
        )  # fmt: skip
        self._keep(label, course)
        seen = self.ideal().shrunk(one.size)
        # Masks that were found, not given, may be wrong: then two have to agree.
        agreeing = 2 if self.plan.doubted else 1
        return without_false_bridges(
            repaired(made, mesh), seen.coverage, seen.matrices, seen.weights, agreeing
        )

    def _keep(self, label: str, course: Course) -> None:
        self.courses[label] = course
        if course.cameras is not None:
            self.cameras = course.cameras
            self.seen = replace(self.seen, matrices=course.cameras.matrices)

    def ideal(self) -> Pictures:
        """Return the pictures without the lens that was found."""
        cameras = self.cameras
        return self.seen if cameras is None else pictures_without_lens(self.seen, cameras.k1)

    def hull_again(self, mesh: Mesh) -> Mesh:
        """Return the hull of the refined cameras; the mesh where it did not start with a hull."""
        if self.plan.start != "hull" or "hull" in self.plan.without:
            return mesh
        try:
            return started(self.ideal(), replace(self.plan, box=None))[0]
        except GraphError:
            return mesh

    def faired(self, mesh: Mesh) -> Mesh:
        """Return the mesh with the least bending between rims, in order if it was, where asked."""
        if not self.plan.fairing or "fairing" in self.plan.without:
            return mesh
        seen = self.ideal().shrunk(self.plan.rounds[-1].size)
        made = faired_between_rims(mesh, seen.coverage, seen.matrices, seen.weights)
        return repaired(made, mesh)

    def carved(self, mesh: Mesh, how: Carving) -> Mesh:
        """Return the mesh where the photos agree; as it is where there are none."""
        for k, level in enumerate(how.levels if self.seen.colour is not None else ()):
            seen = self.ideal().shrunk(how.size)
            before = carved(self.ad, mesh, seen, *level)
            mesh = self.moved(before, how.round, f"carving {k + 1} of {len(how.levels)}", k)
        return mesh

    def painted(
        self, mesh: Mesh, how: Painting
    ) -> tuple[Mesh, npt.NDArray[np.float32], npt.NDArray[np.float64]]:
        """Return the mesh with UVs, its texture, and the gains of the views."""
        texels, ad = self.plan.texture, self.ad
        how = replace(how, occlusion=how.occlusion and "occlusion" not in self.plan.without)
        mesh = unwrap(mesh, texels)
        first = baked(ad, mesh, self.ideal(), texels)
        painted = self.movers.paint(
            ad, mesh, first, self.seen, how, self.plan.weights, start=self.cameras
        )
        self._keep("texture", painted.course)
        made, texture = repaired(painted.mesh, mesh), painted.texture
        if np.array_equal(made.faces, painted.mesh.faces):
            return replace(painted.mesh, positions=made.positions), texture, painted.gains
        # Other faces have other texture coordinates.
        made, ideal = unwrap(made, texels), self.ideal()
        assert ideal.colour is not None
        even = (ideal.colour / painted.gains[:, None, None]).astype(np.float32)
        texture = baked(ad, made, replace(ideal, colour=even), texels)
        return made, texture, painted.gains


def baked(ad: DressiAD, mesh: Mesh, seen: Pictures, size: int) -> npt.NDArray[np.float32]:
    """Return the texture, size x size texels, that the pictures determine."""
    assert seen.colour is not None
    shown = seen.coverage if seen.weights is None else seen.coverage * (seen.weights > 0.0)
    return bake_texture(ad, mesh, seen.colour, shown, seen.matrices, (size, size))[0]


def said(mesh: Mesh) -> tuple[str, ...]:
    """Return sentences on the topology and on what is still wrong with a mesh."""
    problems = surface_problems(mesh)
    out = []
    if problems.genus != 0 or problems.n_components != 1:
        out.append(
            f"the result is no sphere: {problems.n_components} part(s) with "
            f"{max(problems.genus, 0)} hole(s) through them in all"
        )
    if not (problems.is_closed and problems.is_embedded):
        out.append(f"the result is not in order: {problems}")
    return tuple(out)


def started(pictures: Pictures, plan: Plan) -> tuple[Mesh, bool]:
    """Return the start of a reconstruction, in the world, and whether it is but a sphere."""
    if isinstance(plan.start, Mesh):
        return ordered(replace(plan.start, uvs=None, uv_faces=None).check()), False
    masks, matrices = widened(pictures.coverage, pictures.matrices)
    try:
        hull = visual_hull(masks, matrices, plan.hull_cells, disagreeing_views=0)
    except GraphError:  # a view or two leave sides open
        if plan.box is None:
            raise
        return _ball(plan.box[0], plan.box[1]), True
    if plan.start == "hull" and "hull" not in plan.without:
        return hull, False
    if plan.start not in ("hull", "sphere"):
        raise GraphError(f"reconstruct: the start is hull, sphere or a mesh, got {plan.start!r}")
    return _ball(hull.positions.min(0), hull.positions.max(0)), True


def _ball(low: npt.NDArray[np.floating], high: npt.NDArray[np.floating]) -> Mesh:
    """Return an ellipsoid of half the size of a box, in its middle."""
    ball = icosphere(4)
    positions = ball.positions * (high - low) / 4.0 + (low + high) / 2.0
    return Mesh(positions.astype(np.float32), ball.faces, name="sphere")


def without_small_holes(pictures: Pictures) -> Pictures:
    """Return the pictures with small holes of masks filled, and no weight on the pixels that this
    fills.

    A shadow that looks like the background makes such holes. A hole through the object does too,
    where it is seen from the side; views that see it larger open it.
    """
    coverage = pictures.coverage.copy()
    given = np.ones_like(coverage) if pictures.weights is None else pictures.weights
    weights = given.astype(np.float32)
    for k, mask in enumerate(pictures.coverage[..., 0] > 0.5):
        holes, n = ndimage.label(ndimage.binary_fill_holes(mask) & ~mask)
        area = np.bincount(holes.ravel(), minlength=n + 1)
        small = np.flatnonzero(area <= SMALL_HOLE * mask.sum())
        filled = np.isin(holes, small[small > 0])
        coverage[k, filled] = 1.0
        weights[k, filled] = 0.0
    return replace(pictures, coverage=coverage, weights=weights)


def widened(
    masks: npt.NDArray[np.floating], matrices: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.float64]]:
    """Return masks (n, 2 H, 2 W, 1) and matrices of pictures with as much again around them.

    Borders are repeated outwards: where a mask does not reach the frame there is nothing beyond it,
    and a hull may be carved there; where it does, what lies beyond is not known and stays.
    """
    height, width = masks.shape[1:3]
    # Even sides: what is added above is added below.
    rows, columns = -(-height // 2), -(-width // 2)
    wide = np.pad(masks, ((0, 0), (rows, rows), (columns, columns), (0, 0)), mode="edge")
    shrink = np.diag([width / (width + 2 * columns), height / (height + 2 * rows), 1.0, 1.0])
    return wide, shrink @ matrices


def placement(mesh: Mesh) -> tuple[npt.NDArray[np.float64], float]:
    """Return (4, 4) from a box of side EXTENT around the origin to the mesh's place in the world,
    and the scale from the world to that box. Raises GraphError where the mesh has no extent."""
    low, high = mesh.positions.min(0).astype(np.float64), mesh.positions.max(0).astype(np.float64)
    longest = float((high - low).max())
    if not longest > 0.0:
        raise GraphError(f"mesh '{mesh.name}' has no extent: all its vertices coincide")
    scale = EXTENT / longest
    place = np.diag([1.0 / scale, 1.0 / scale, 1.0 / scale, 1.0])
    place[:3, 3] = (low + high) / 2.0
    return place, scale


def moved(mesh: Mesh, place: npt.NDArray[np.float64]) -> Mesh:
    """Return the mesh with ``place @ p`` for each position p."""
    positions = mesh.positions @ place[:3, :3].T + place[:3, 3]
    return replace(mesh, positions=positions.astype(np.float32))
