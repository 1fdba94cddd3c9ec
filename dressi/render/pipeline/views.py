"""Views: cameras as parameters.

In: cameras. Out: ``Views``: their matrices and eyes, one layer per view. The pose is a rotation
(axis times angle, about the camera) and a translation on top of the camera's own, in its axes;
intrinsics are the logarithm of a zoom in x and y and a shift in halves of the picture. All are 0
where the camera is what it was given as.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import MAT4, VEC2, VEC3, VEC4, VType
from dressi.errors import warn
from dressi.render.camera import Camera, axis_angle_matrix, build_view, eye_of, homogeneous_eye
from dressi.render.pipeline.frame import Frame, tightened
from dressi.render.pipeline.parameters import Parameter, ParameterTable, log_of


@dataclass(frozen=True, eq=False)
class ViewMatrices:
    """What a graph reads, @ 1x1, layers = views. matrix: MAT4, world to clip. eye: VEC4, world
    (``homogeneous_eye``). forward: VEC3 unit, the direction of view, world."""

    matrix: Variable
    eye: Variable
    forward: Variable


@dataclass(eq=False)
class Views:
    """Cameras, and the parameters that move them. cameras: in the world, as given. drawn: in the
    frame of the scene, with planes that are as near to it as depths need."""

    cameras: tuple[Camera, ...]
    drawn: tuple[Camera, ...]
    rotation: Parameter
    translation: Parameter
    zoom: Parameter
    shift: Parameter

    def build(self) -> ViewMatrices:
        """Matrices of all views."""
        views = np.stack([c.view for c in self.drawn])
        projections = np.stack([c.projection for c in self.drawn])
        posed = self.rotation.in_use or self.translation.in_use
        if not (posed or self.zoom.in_use or self.shift.in_use):  # rounded once
            matrices = projections @ views
            eyes = np.stack([eye_of(m) for m in matrices])
            axes = np.stack([_axis(m, e) for m, e in zip(matrices, eyes, strict=True)])
            return ViewMatrices(
                _per_view(matrices, MAT4, "matrix"),
                _per_view(eyes, VEC4, "eye"),
                _per_view(axes, VEC3, "forward"),
            )
        view = _per_view(views, MAT4, "view")
        if posed:
            turn = axis_angle_matrix(self.rotation.leaf)
            view = build_view(turn, self.translation.leaf) @ view
        projection = _per_view(projections, MAT4, "projection")
        matrix = self._intrinsics() @ (projection @ view)
        eye = homogeneous_eye(matrix)
        along = F.linalg.row(matrix, 3).xyz
        forward = F.normalize(F.where(F.dot(along, along) > 0.0, along, -eye.xyz))
        return ViewMatrices(matrix, eye, forward)

    @property
    def tightened(self) -> bool:
        """Whether a view is drawn with other planes than its camera's."""
        pairs = zip(self.cameras, self.drawn, strict=True)
        return any(not np.array_equal(c.projection, d.projection) for c, d in pairs)

    def tighten(self, frame: Frame, points: np.ndarray, now: Sequence[Camera]) -> None:
        """Fit the planes that are drawn with to vertices that were moved. points: (N, 3) of the
        scene in its frame. now: the cameras as they are, in the world."""
        low, high = points.min(axis=0), points.max(axis=0)
        corners = replace(frame, low=low, high=high).corners
        drawn = []
        for given, moved in zip(self.cameras, now, strict=True):
            projection = given.projection.copy()
            projection[2] = tightened(frame.seen(moved), corners, frame.radius).projection[2]
            drawn.append(replace(frame.seen(given), projection=projection))
        self.drawn = tuple(drawn)

    def _intrinsics(self) -> Variable:
        zoom, shift = F.exp(self.zoom.leaf), self.shift.leaf
        return F.linalg.from_columns(
            F.vec4(zoom.x, 0.0, 0.0, 0.0),
            F.vec4(0.0, zoom.y, 0.0, 0.0),
            F.constant((0.0, 0.0, 1.0, 0.0)),
            F.vec4(shift, 0.0, 1.0),
        )


def build_views(
    cameras: tuple[Camera, ...], frame: Frame, table: ParameterTable, share_intrinsics: bool
) -> Views:
    """Leaves of the cameras; adds them to the parameters. frame: of the scene. share_intrinsics:
    one zoom and shift for all views."""
    n = len(cameras)
    corners = frame.corners
    drawn = tuple(tightened(frame.seen(c), corners, frame.radius) for c in cameras)

    def add(kind: str, vtype, layers: int, **options) -> Parameter:  # type: ignore[no-untyped-def]
        leaf = F.leaf(np.zeros((layers, 1, 1, vtype.n), np.float32), vtype, kind)
        return table.add(Parameter(kind, "", leaf, **options))

    n_lenses = 1 if share_intrinsics else n
    return Views(
        cameras,
        drawn,
        add("camera_rotation", VEC3, n),
        add("camera_translation", VEC3, n, unit=frame.unit),
        add("camera_zoom", VEC2, n_lenses, to_leaf=log_of, to_user=np.exp),
        add("camera_shift", VEC2, n_lenses),
    )


def _per_view(values: np.ndarray, vtype: VType, name: str) -> Variable:
    """A leaf @ 1x1 with one layer per view. values: (views, components or n, n)."""
    return F.leaf(values.astype(np.float32)[:, None, None], vtype, name)


def _axis(matrix: np.ndarray, eye: np.ndarray) -> np.ndarray:
    """(3,) unit direction of view: across the planes of equal clip w, or against the eye of a
    parallel projection."""
    along = matrix[3, :3] if matrix[3, :3].any() else -eye[:3]
    return np.asarray(along / np.linalg.norm(along))


def moved_cameras(
    views: Views, rotation: np.ndarray, translation: np.ndarray, zoom: np.ndarray, shift: np.ndarray
) -> list[Camera]:
    """The cameras with values of their parameters, in float64. Each (views or 1, components)."""
    out = []
    for k, camera in enumerate(views.cameras):
        w, t = (np.asarray(a, np.float64)[k % len(a)] for a in (rotation, translation))
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = rotation_of(w), t
        lens = np.eye(4)
        z, s = (np.asarray(a, np.float64)[k % len(a)] for a in (zoom, shift))
        lens[0, 0], lens[1, 1], lens[:2, 3] = z[0], z[1], s
        out.append(replace(camera, view=pose @ camera.view, projection=lens @ camera.projection))
    return out


def rotation_of(w: np.ndarray) -> np.ndarray:
    """(3, 3) float64 rotation about w by |w| radians (Rodrigues)."""
    angle = float(np.linalg.norm(w))
    x, y, z = w / angle if angle > 0.0 else np.zeros(3)
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.asarray(np.eye(3) + np.sin(angle) * k + (1.0 - np.cos(angle)) * k @ k)


def warn_of_empty(cameras: Sequence[Camera], coverage: np.ndarray) -> None:
    """Warn of the views in which nothing is seen. coverage: (views, H, W)."""
    empty = [c.name for c, a in zip(cameras, coverage, strict=True) if not a.any()]
    if empty:
        warn(
            f"nothing is seen by {len(empty)} of {len(cameras)} cameras: {', '.join(empty)}; "
            "the scene is out of their view, edge-on to them, smaller than a pixel, or clear"
        )
