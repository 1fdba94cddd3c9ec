"""``dressi experiment camera``: the pose of a camera, found again from 20 degrees away.

Beyond the paper, which has no such experiment.

A mesh without symmetry is seen by a camera each seed draws; the start is turned by 20 degrees about
a random axis through the object and moved by 5 % of its distance. Adam moves an axis-angle rotation
and a translation until the silhouette and the colours (normals of the object) match. All seeds are
the layers of one graph. r goes from a fifth of the picture to a pixel: with a wide rim the
silhouettes see each other from far away, with a narrow one their borders are exact.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation
from tqdm import tqdm

from dressi.ad import Adam, F, Variable
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC3
from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.meshes import bunny_file, target_mesh
from dressi.apps.experiments.parts import kept_parts
from dressi.engine import DressiAD
from dressi.render.camera import axis_angle_matrix, build_view, look_at, perspective
from dressi.render.fit import l2_loss, silhouette_loss
from dressi.render.io import contact_sheet
from dressi.render.raster import build_hardsoftras, gather, interpolate
from dressi.render.scene import Mesh, vertex_normals

HELP = "the pose of a camera found again from 20 degrees away, by silhouette and colours"

DISTANCE = 4.5
"""Of the camera from the object, world units; the object is 2 wide."""

LAST_R_PX = 1.4
"""Reach at the end, in pixels: the diagonal of one, so that no pixel that an edge touches is out of
reach."""
SUPERSAMPLE = 4
"""Samples per side of a pixel of the target pictures: they are no picture of the soft renderer."""


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    size: int = option(96, "pixels on a side", smoke=32, least=8)
    seeds: int = option(10, "poses to find", smoke=2, least=1)
    iterations: int = option(300, "steps of Adam", smoke=4, least=1)
    degrees: float = option(20.0, "turn between start and truth", least=0.0)
    shift: float = option(0.05, "move between start and truth, of the distance", least=0.0)
    r: float = option(0.2, "reach at the start, 1 is the side of the picture", least=0.0)
    lr: float = option(0.03, "learning rate at the start: radians, and parts of the distance")
    faces: int = option(2000, "faces of the mesh, at most", smoke=320, least=20)
    target: str | None = option(None, "OBJ file (default: the bunny of the data folder, if any)")


@dataclass(frozen=True)
class Poses:
    """Rotations and translations of n cameras, x_cam = R x + t: (n, 3, 3), (n, 3)."""

    R: np.ndarray
    t: np.ndarray

    @property
    def views(self) -> np.ndarray:
        """Return the world-to-camera matrices (n, 4, 4)."""
        out = np.tile(np.eye(4), (len(self.R), 1, 1))
        out[:, :3, :3], out[:, :3, 3] = self.R, self.t
        return out

    @property
    def eyes(self) -> np.ndarray:
        """Return (n, 3) positions of the cameras."""
        return -np.einsum("nji,nj->ni", self.R, self.t)


def draw_poses(seeds: int, degrees: float, shift: float) -> tuple[Poses, Poses]:
    """Return the true poses and the starts; those of seed k depend on k alone."""
    poses = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        eye, axis, move = (v / np.linalg.norm(v) for v in rng.normal(size=(3, 3)))
        view = look_at(DISTANCE * eye, up=(0, 1, 0) if abs(eye[1]) < 0.9 else (0, 0, 1))
        turned = Rotation.from_rotvec(np.radians(degrees) * axis).as_matrix() @ view[:3, :3]
        moved = view[:3, 3] + shift * DISTANCE * move
        poses.append((view[:3, :3], view[:3, 3], turned, moved))
    true_r, true_t, start_r, start_t = (np.stack(v) for v in zip(*poses, strict=True))
    return Poses(true_r, true_t), Poses(start_r, start_t)


def errors(found: Poses, truth: Poses) -> tuple[np.ndarray, np.ndarray]:
    """Return (degrees, parts of the distance): angle between the rotations, distance of the
    cameras."""
    between = Rotation.from_matrix(found.R @ truth.R.transpose(0, 2, 1))
    return (
        np.degrees(between.magnitude()),
        np.linalg.norm(found.eyes - truth.eyes, axis=1) / DISTANCE,
    )


@dataclass(frozen=True)
class Scene:
    """Leaves of a mesh whose colours are its normals, seen by n cameras, and their pictures."""

    pos: Variable
    faces: Variable
    colours: Variable

    def send(self, ad: DressiAD, mesh: Mesh) -> None:
        """Send the mesh."""
        ad.send_img(self.pos, mesh.positions)
        ad.send_img(self.faces, mesh.faces)
        ad.send_img(self.colours, 0.5 * vertex_normals(mesh.positions, mesh.faces) + 0.5)

    def pictures(
        self, matrix: Variable, size: int, r: Variable | float, max_delta: float
    ) -> tuple[Variable, Variable, Variable]:
        """Return silhouette, colours over black, hard mask."""
        hs = build_hardsoftras(self.pos, self.faces, matrix, (size, size), r, max_delta=max_delta)
        peel = hs.peels[0]
        colour = interpolate(gather(self.colours, self.faces), peel.ids, peel.bary)
        return hs.silhouette, hs.blend([colour]), hs.hard


def leaves_of(mesh: Mesh) -> Scene:
    """Return the leaves for a mesh."""
    n, m = len(mesh.positions), len(mesh.faces)
    return Scene(
        Variable(VEC3, (n, 1), name="pos"),
        Variable(IVEC3, (m, 1), name="faces"),
        Variable(VEC3, (n, 1), name="colours"),
    )


def take_pictures(ad: DressiAD, mesh: Mesh, matrices: np.ndarray, size: int) -> np.ndarray:
    """Return (n, size, size, 4): colours over black and coverage, averaged over samples of a
    pixel."""
    scene, matrix = leaves_of(mesh), Variable(MAT4, name="matrix")
    scene.send(ad, mesh)
    s = SUPERSAMPLE
    _, colour, hard = scene.pictures(matrix, size * s, 0.0, 0.0)
    both = F.vec4(F.where(hard, colour, 0.0), hard)
    found = []
    for one in matrices:
        ad.send_img(matrix, one)
        found.append(ad.recv_img(both).reshape(size, s, size, s, 4).mean((1, 3)))
    return np.stack(found)


def fit_poses(
    ad: DressiAD, mesh: Mesh, projection: np.ndarray, targets: np.ndarray, start: Poses, s: Settings
) -> tuple[Poses, list[Poses], list[float]]:
    """Return poses after the fit, those along the way, and the losses.

    x_cam = R(w) R_start x + t_start + distance * m: w and m start at 0, so one learning rate serves
    radians and parts of the distance.
    """
    n, size = len(targets), s.size
    scene = leaves_of(mesh)
    turn = Variable(VEC3, layers=n, requires_grad=True, name="turn")
    move = Variable(VEC3, layers=n, requires_grad=True, name="move")
    base, fixed = Variable(MAT4, layers=n, name="start"), Variable(MAT4, name="projection")
    origin = Variable(VEC3, layers=n, name="origin")
    r, lr = Variable(FLOAT, name="r"), Variable(FLOAT, name="lr")
    colour = Variable(VEC3, (size, size), n, name="target_colour")
    outline = Variable(FLOAT, (size, size), n, name="target_outline")
    view = build_view(axis_angle_matrix(turn), origin + move * DISTANCE) @ base
    silhouette, picture, _ = scene.pictures(fixed @ view, size, r, max(s.r, LAST_R_PX / size))
    loss = silhouette_loss(silhouette, outline) + l2_loss(picture, colour)
    ad.set_loss_var(loss)
    ad.set_optimizer(Adam(lr, beta2=0.95))
    scene.send(ad, mesh)
    turned = Poses(start.R, np.zeros_like(start.t))
    for leaf, data in (
        (turn, np.zeros((n, 3))),
        (move, np.zeros((n, 3))),
        (origin, start.t),
        (base, turned.views),
        (colour, targets[..., :3]),
        (outline, targets[..., 3:]),
    ):
        ad.send_img(leaf, np.asarray(data).reshape(n, leaf.size[1], leaf.size[0], *leaf.vtype.tail))
    ad.send_img(fixed, projection)

    def now() -> Poses:
        w, m = (ad.recv_img(v).reshape(n, 3).astype(np.float64) for v in (turn, move))
        return Poses(Rotation.from_rotvec(w).as_matrix() @ start.R, start.t + DISTANCE * m)

    way, losses = [], []
    for i in tqdm(range(s.iterations), desc="camera", unit="it", leave=False):
        t = i / max(s.iterations - 1, 1)
        ad.send_img(r, s.r * (LAST_R_PX / size / s.r) ** min(t / 0.7, 1.0))
        ad.send_img(lr, s.lr * 0.02**t)
        ad.exec_step()
        if i % 10 == 0:
            losses.append(float(ad.recv_img(loss).reshape(-1)[0]))
            way.append(now())
    return now(), way, losses


def _part(settings: Settings, mesh: Mesh, truth: Poses, start: Poses) -> dict[str, Any]:
    """Return the poses on the way and at the end, and pictures of target, start and end."""
    projection = perspective(35.0, 1.0, 0.25 * DISTANCE, 2.5 * DISTANCE)
    begin = time.perf_counter()
    with DressiAD(settings.device) as ad:
        targets = take_pictures(ad, mesh, projection @ truth.views, settings.size)
        before = take_pictures(ad, mesh, projection @ start.views, settings.size)
        found, way, losses = fit_poses(ad, mesh, projection, targets, start, settings)
        after = take_pictures(ad, mesh, projection @ found.views, settings.size)
    return {
        "targets": targets,
        "before": before,
        "after": after,
        "R": np.stack([p.R for p in (*way, found)]),
        "t": np.stack([p.t for p in (*way, found)]),
        "losses": losses,
        "minutes": (time.perf_counter() - begin) / 60.0,
    }


def run(settings: Settings) -> Result:
    """Return poses found by seed; the pictures before and after; the curves."""
    path = settings.target or (None if settings.smoke else bunny_file())
    mesh = target_mesh(path, settings.faces)
    truth, start = draw_poses(settings.seeds, settings.degrees, settings.shift)

    # The poses are the layers of one graph, so there is one part.
    (part,) = kept_parts(
        settings, {"poses": partial(_part, settings, mesh, truth, start)}, "fits"
    ).values()
    targets, before, after = (part[k] for k in ("targets", "before", "after"))
    *way, found = (Poses(*p) for p in zip(part["R"], part["t"], strict=True))
    angles, distances = errors(found, truth)
    good = (angles < 0.5) & (distances < 0.005)
    curves = np.stack([errors(p, truth)[0] for p in way])
    figures: dict[str, Any] = {
        "mesh": mesh.name,
        "found": int(good.sum()),
        "seeds": settings.seeds,
        "start_degrees": errors(start, truth)[0].tolist(),
        "start_distance_percent": (100 * errors(start, truth)[1]).tolist(),
        "degrees": angles.tolist(),
        "distance_percent": (100 * distances).tolist(),
        "median_degrees": float(np.median(angles)),
        "median_distance_percent": float(100 * np.median(distances)),
        "minutes": part["minutes"],
        "losses": part["losses"],
    }
    shown = range(min(settings.seeds, 6))
    rows = {
        "target": [targets[k, ..., :3] for k in shown],
        "start": [before[k, ..., :3] for k in shown],
        "found": [after[k, ..., :3] for k in shown],
        "difference\nx 4": [4 * np.abs(after[k, ..., :3] - targets[k, ..., :3]) for k in shown],
    }
    sheet = contact_sheet(rows, columns=[f"{angles[k]:.2f} degrees" for k in shown])

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.semilogy(10 * np.arange(len(curves)), np.maximum(curves, 1e-3))
        axes.axhline(0.5, color="black", linewidth=0.8, linestyle=":")
        axes.set_xlabel("iteration")
        axes.set_ylabel("degrees from the truth")
        axes.set_title(f"{mesh.name}: {int(good.sum())} of {settings.seeds} poses found")

    needed = int(np.ceil(0.9 * settings.seeds))
    return Result(
        figures,
        {"camera": sheet},
        {"curves": draw},
        [
            (
                f"at least {needed} of {settings.seeds} poses are found to 0.5 degrees and 0.5 % "
                "of the distance",
                bool(good.sum() >= needed),
            )
        ],
    )
