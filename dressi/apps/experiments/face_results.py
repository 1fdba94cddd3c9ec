"""What ``dressi experiment face`` makes of a fit: pictures, clean maps, figures, a file.

In: a head model, what was fitted, frames. Out: renderings at the size of the frames, maps without
the noise of texels that are hardly seen, distances to the scan, a glTF scene.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dressi.ad import F, Variable, build_backward
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC2, VEC3
from dressi.apps.experiments.face_capture import Frame, Scan
from dressi.apps.experiments.face_fit import FLAT_NORMAL, START_ALBEDO, START_SURFACE
from dressi.apps.experiments.face_model import HeadModel
from dressi.apps.experiments.face_picture import Maps, SurfaceTables, build_picture
from dressi.apps.experiments.face_start import similarity
from dressi.engine import DressiAD
from dressi.render.fit import closest_on_surface, push_pull, seen_points
from dressi.render.scene import Image, Material, Mesh, Scene, TextureRef
from dressi.render.scene.convert import one_mesh_scene, primitive_of

Floats = npt.NDArray[np.float64]

MAPS = ("albedo", "normal", "surface")

FACE_RADIUS_CM = 9.5
"""Around the tip of the nose: brow to chin and cheek to cheek, without ears and neck."""

TIP = 30
"""Landmark of the tip of the nose."""

KEPT, LEAST_KEPT = 0.9, 0.05
"""What is left of the way of a vertex of a folded face, per round; shares that are as good as
none."""

WELL_SEEN = 1.0
"""Pixels, weighted by how much they face the camera, from which on a texel counts as seen."""

ROUNDS, KEPT_SHARE = 20, 0.95
"""Of the rigid alignment: rounds, and share of the points that count, the nearest."""


@dataclass(frozen=True, eq=False)
class Shown:
    """One rendering, linear. color, shape, albedo, normal: (H, W, 3). roughness, mask: (H, W)."""

    color: npt.NDArray[np.float32]
    shape: npt.NDArray[np.float32]
    albedo: npt.NDArray[np.float32]
    normal: npt.NDArray[np.float32]
    roughness: npt.NDArray[np.float32]
    mask: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Head:
    """A head with its maps. positions: (V, 3), cm. maps: (H, W, 3) by name."""

    positions: npt.NDArray[np.float32]
    maps: dict[str, npt.NDArray[np.float32]]


class Viewer:
    """Draws heads of one model, a frame at a time: at full size all at once would take gigabytes.
    ``counts`` adds up how often texels are seen."""

    def __init__(
        self, model: HeadModel, size: tuple[int, int], side: int, device: str | None
    ) -> None:
        self._size, self._atlas = size, (2 * side, side)
        self._positions = Variable(VEC3, (len(model.mean), 1), name="positions")
        self._maps = {name: Variable(VEC3, self._atlas, name=name) for name in MAPS}
        self._view, self._projection = (Variable(MAT4, name=n) for n in ("view", "projection"))
        self._count = Variable(FLOAT, size, name="count")
        tables = SurfaceTables(
            self._positions,
            F.leaf(model.faces, IVEC3, "faces"),
            F.leaf(model.uv, VEC2, "uv"),
            F.leaf(model.uv_faces, IVEC3, "uv_faces"),
        )
        picture = build_picture(tables, Maps(**self._maps), self._view, self._projection, size)
        shade = picture.mask * (0.15 + 0.75 * picture.facing)
        self._out = [picture.color, shade, picture.albedo, picture.normal, picture.properties]
        self._out += [picture.mask]
        # How much each texel is read: the gradient of the sum of all readings.
        probe = Variable(FLOAT, self._atlas, name="probe")
        reads = F.texture(probe, picture.uv, wrap="clamp") * picture.facing * self._count
        self._counts = build_backward(reads, [probe])[probe]
        self._ad = DressiAD(device)

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self._ad.close()

    def _send(self, head: Head, frame: Frame, view: Floats) -> None:
        self._ad.send_img(self._positions, head.positions)
        for name in MAPS:
            self._ad.send_img(self._maps[name], head.maps[name])
        self._ad.send_img(self._view, view.astype(np.float32))
        self._ad.send_img(self._projection, frame.projection.astype(np.float32))

    def draw(self, head: Head, frame: Frame, view: Floats) -> Shown:
        """Return the head as a frame's camera sees it from ``view``."""
        self._send(head, frame, view)
        color, shade, albedo, normal, properties, mask = self._ad.recv_imgs(self._out)
        inside = mask.reshape(mask.shape[:2]) > 0.5
        return Shown(
            color,
            np.repeat(shade.reshape(*inside.shape, 1), 3, axis=2),
            np.where(inside[..., None], albedo, 0.0),
            np.where(inside[..., None], normal * 0.5 + 0.5, 0.0),
            np.where(inside, properties[..., 1], 0.0),
            inside,
        )

    def counts(self, head: Head, frames: Sequence[Frame], views: Floats) -> npt.NDArray[np.float32]:
        """Return (H, W): by how many pixels each texel is read, weighted by how much they face the
        camera."""
        total = np.zeros(self._atlas[::-1], np.float32)
        for frame, view in zip(frames, views, strict=True):
            self._send(head, frame, view)
            self._ad.send_img(self._count, frame.mask.astype(np.float32))
            total += self._ad.recv_img(self._counts).reshape(total.shape)
        return total


def cleaned(
    maps: dict[str, npt.NDArray[np.float32]], counts: npt.NDArray[np.float32]
) -> dict[str, npt.NDArray[np.float32]]:
    """Return maps whose hardly seen texels are filled from the well seen ones around them.

    maps: (H, W, 3) by name. counts: (H, W), see ``Viewer.counts``. A texel that is half seen keeps
    half of its own value. Where nothing is well seen the maps stay as they are.
    """
    seen = counts >= WELL_SEEN
    if not seen.any():
        return maps
    share = np.clip(counts / WELL_SEEN, 0.0, 1.0)[..., None]
    out = {}
    for name, image in maps.items():
        filled = push_pull(image, seen)
        out[name] = (image * share + filled * (1.0 - share)).astype(np.float32)
    return out


def start_head(model: HeadModel, scale: float, side: int) -> Head:
    """Return the mean head with flat maps."""
    flat = {"albedo": (START_ALBEDO,) * 3, "normal": FLAT_NORMAL, "surface": START_SURFACE}
    maps = {
        k: np.broadcast_to(np.asarray(v, np.float32), (side, 2 * side, 3)).copy()
        for k, v in flat.items()
    }
    return Head((model.mean * scale).astype(np.float32), maps)


@dataclass(frozen=True, eq=False)
class Alignment:
    """distances: (N,), mm, of points of the face of the scan from the head. motion: (4, 4), scan
    to head."""

    distances: Floats
    motion: Floats

    @property
    def mean_mm(self) -> float:
        """Mean distance."""
        return float(self.distances.mean())


def face_points(scan: Scan, frames: Sequence[Frame]) -> Floats:
    """Return (N, 3): vertices of the scan's face that some frame sees, cm."""
    points = scan.mesh.positions.astype(np.float64)
    near = np.linalg.norm(points - scan.landmarks[TIP], axis=1) < FACE_RADIUS_CM
    matrices = np.stack([f.projection @ f.known_view for f in frames])
    return points[near][seen_points(points[near], scan.mesh, matrices, 1e-3).any(axis=0)]


def align(
    points: Floats,
    first: Floats,
    positions: npt.ArrayLike,
    faces: npt.ArrayLike,
    rounds: int = ROUNDS,
) -> Alignment:
    """Return the ``Alignment`` of points to a head by rigid motion, no scale.

    points: (N, 3), cm. first: (4, 4), where to begin. rounds: 0 leaves them there.
    Source: Besl and McKay 1992, trimmed.
    """
    motion = np.array(first, np.float64)
    at = points @ motion[:3, :3].T + motion[:3, 3]
    for _ in range(rounds):
        found = closest_on_surface(at, positions, faces)
        kept = found.distance <= np.quantile(found.distance, KEPT_SHARE)
        _, r, t = similarity(at[kept], found.foot[kept], np.ones(int(kept.sum())), 1.0)
        step = np.eye(4)
        step[:3, :3], step[:3, 3] = r, t
        motion, at = step @ motion, at @ r.T + t
    return Alignment(10.0 * closest_on_surface(at, positions, faces).distance, motion)


def landmark_pixels(points: Floats, frame: Frame, view: Floats) -> Floats:
    """Return (N, 2): where points lie in a frame, pixels."""
    clip = np.c_[points, np.ones(len(points))] @ (frame.projection @ view).T
    return np.asarray((clip[:, :2] / clip[:, 3:] * 0.5 + 0.5) * frame.size)


def landmark_error(
    points: Floats, frames: Sequence[Frame], views: Floats, wanted: Floats, weights: Floats
) -> float:
    """Return the mean distance of landmarks in pixels. points: (68, 3). wanted: (n, 68, 2).
    weights: (n, 68), those above 0 count."""
    off = []
    for frame, view, at, weight in zip(frames, views, wanted, weights, strict=True):
        distance = np.linalg.norm(landmark_pixels(points, frame, view) - at, axis=1)
        off.append(distance[(weight > 0) & np.isfinite(distance)])
    return float(np.concatenate(off).mean())


def head_scene(model: HeadModel, head: Head) -> Scene:
    """Return the head as a glTF scene, in metres."""
    mesh = Mesh(
        (head.positions * 0.01).astype(np.float32), model.faces, model.uv, model.uv_faces, "head"
    )
    images = (
        Image(np.clip(head.maps["albedo"], 0, 1), "srgb", "albedo"),
        Image(np.clip(head.maps["normal"], 0, 1), "linear", "normal"),
        Image(np.clip(head.maps["surface"], 0, 1), "linear", "metallic-roughness"),
    )
    albedo, normal, surface = (
        TextureRef(k, wrap_u="clamp", wrap_v="clamp", min_filter="linear") for k in range(3)
    )
    material = Material(
        base_color_map=albedo, normal_map=normal, metallic_roughness_map=surface, name="skin"
    )
    return one_mesh_scene((primitive_of(mesh, 0),), (material,), images, "head")


def unfolded(
    positions: np.ndarray, before: np.ndarray, faces: np.ndarray
) -> tuple[np.ndarray, int]:
    """Return positions (V, 3) without a face that is turned by a right angle or more against where
    it was ``before``, and how many faces were: their vertices go back, in rounds, as far as they
    must. At worst they are those of before, where no face is turned."""
    away = np.asarray(positions, np.float64) - before
    share = np.ones(len(away))
    normals, n_turned = face_normals(before, faces), None
    has_area = normals.any(axis=1)
    while True:
        found = (before + share[:, None] * away).astype(positions.dtype)
        turned = has_area & ((face_normals(found, faces) * normals).sum(axis=1) <= 0.0)
        n_turned = int(turned.sum()) if n_turned is None else n_turned
        if not turned.any():
            return found, n_turned
        share[np.unique(faces[turned])] *= KEPT
        share[share < LEAST_KEPT] = 0.0


def face_normals(positions: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Return (F, 3), normals as long as twice the area."""
    a, b, c = np.asarray(positions, np.float64)[faces].transpose(1, 0, 2)
    return np.cross(b - a, c - a)
