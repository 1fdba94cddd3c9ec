"""Views: cameras as parameters.

In: cameras. Out: ``Views``: their matrices and eyes, one layer a view. The pose is a rotation
(axis times angle, about the camera) and a translation on top of the camera's own, in its axes;
intrinsics are the logarithm of a zoom in x and y and a shift in halves of the picture. All are 0
where the camera is what it was given as.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, MAT4, VEC2, VEC3
from dressi.render.camera import Camera
from dressi.render.pipeline.parameters import Parameter, ParameterTable, log_of
from dressi.render.pose import axis_angle_matrix, build_view

FAR_EYE = 1e3
"""Radii of the scene by which the eye of a parallel projection stands back."""


@dataclass(frozen=True, eq=False)
class ViewMatrices:
    """What a graph reads, @ 1x1, layers = views. matrix: MAT4, world to clip. eye: VEC3, world.
    forward: VEC3 unit, the way the camera looks, world."""

    matrix: Variable
    eye: Variable
    forward: Variable


@dataclass(eq=False)
class Views:
    """Cameras, and the parameters that move them."""

    cameras: tuple[Camera, ...]
    rotation: Parameter
    translation: Parameter
    zoom: Parameter
    shift: Parameter
    back: np.ndarray
    """(n, 1): how far behind its place each eye stands: 0, or far for parallel projections."""

    def build(self) -> ViewMatrices:
        """Matrices of all views."""
        views = np.stack([c.view for c in self.cameras])
        projections = np.stack([c.projection for c in self.cameras])
        posed = self.rotation.in_use or self.translation.in_use
        moved = posed or self.zoom.in_use or self.shift.in_use
        view = F.leaf(views.astype(np.float32)[:, None, None], MAT4, "view")
        if posed:
            turn = axis_angle_matrix(self.rotation.leaf)
            view = build_view(turn, self.translation.leaf) @ view
        if moved:
            projection = F.leaf(projections.astype(np.float32)[:, None, None], MAT4, "projection")
            matrix = self._intrinsics() @ (projection @ view)
        else:  # rounded once
            both = (projections @ views).astype(np.float32)
            matrix = F.leaf(both[:, None, None], MAT4, "matrix")
        back = F.leaf(self.back[:, None, None], FLOAT, "eye_back")
        to_world = F.inverse(view)
        eye = (to_world @ F.vec4(F.vec2(0.0, 0.0), back, 1.0)).xyz
        forward = -(to_world @ F.constant((0.0, 0.0, 1.0, 0.0))).xyz
        return ViewMatrices(matrix, eye, forward)

    def _intrinsics(self) -> Variable:
        zoom, shift = F.exp(self.zoom.leaf), self.shift.leaf
        return F.from_columns(
            F.vec4(zoom.x, 0.0, 0.0, 0.0),
            F.vec4(0.0, zoom.y, 0.0, 0.0),
            F.constant((0.0, 0.0, 1.0, 0.0)),
            F.vec4(shift, 0.0, 1.0),
        )


def build_views(
    cameras: tuple[Camera, ...], radius: float, table: ParameterTable, share_intrinsics: bool
) -> Views:
    """Leaves of the cameras; adds them to the parameters.

    radius: of the scene, world units. share_intrinsics: one zoom and shift for all views.
    """
    n = len(cameras)
    parallel = np.array([[abs(c.projection[3, 2]) == 0.0] for c in cameras], np.float32)

    def add(kind: str, vtype, layers: int, **options) -> Parameter:  # type: ignore[no-untyped-def]
        leaf = F.leaf(np.zeros((layers, 1, 1, vtype.n), np.float32), vtype, kind)
        return table.add(Parameter(kind, "", leaf, **options))

    n_lenses = 1 if share_intrinsics else n
    return Views(
        cameras,
        add("camera_rotation", VEC3, n),
        add("camera_translation", VEC3, n),
        add("camera_zoom", VEC2, n_lenses, to_leaf=log_of, to_user=np.exp),
        add("camera_shift", VEC2, n_lenses),
        parallel * np.float32(FAR_EYE * radius),
    )


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
        out.append(Camera(pose @ camera.view, lens @ camera.projection, camera.name))
    return out


def rotation_of(w: np.ndarray) -> np.ndarray:
    """(3, 3) float64 rotation about w by |w| radians (Rodrigues)."""
    angle = float(np.linalg.norm(w))
    x, y, z = w / angle if angle > 0.0 else np.zeros(3)
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.asarray(np.eye(3) + np.sin(angle) * k + (1.0 - np.cos(angle)) * k @ k)
