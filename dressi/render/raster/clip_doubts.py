"""Matrices that are likely not meant: transposed, without projection, OpenGL's.

In: positions and world to clip matrices, when they are drawn for the first time. Out: a
DressiWarning that says what the matrix looks like, or nothing.
"""

from __future__ import annotations

import numpy as np

from dressi.ad import Variable
from dressi.ad.doubts import Doubt
from dressi.errors import warn

SAMPLE = 2048
"""Vertices that are looked at to find out that some are seen."""
FEW, MOST = 0.5, 0.95
"""Shares of vertices in the clip volume: with a matrix that is built as a camera's, and with its
transpose, that make the matrix look transposed."""
PARALLEL = 1e-3
"""Sine of the angle up to which directions count as parallel: float32 matrices are rounded."""
UNSEEN = "nothing is seen"
PLANES = ("left of", "right of", "above", "below", "nearer than", "farther than")
"""Sides of the clip volume (y points down)."""


def clip_doubt(
    vtx_pos: Variable, matrix: Variable, line: str, faces: Variable | None = None
) -> Doubt:
    """Return the doubt about clip positions. vtx_pos: VEC3 @ (N, 1). matrix: MAT4 @ 1x1, layers =
    views. line: of the user's call. faces: IVEC3 @ (F, 1), all that is drawn, where it is known."""
    named, table = matrix.label(), vtx_pos.label()

    def say(positions: np.ndarray, matrices: np.ndarray, *drawn: np.ndarray) -> None:
        unseen: list[str] = []
        n = max(len(positions), len(matrices))
        for k in range(n):
            points = positions[k % len(positions)].reshape(-1, 3)
            m = matrices[k % len(matrices)].reshape(4, 4)
            problem = _problem(points, m, *(f[k % len(f)].reshape(-1, 3) for f in drawn))
            view = f", view {k}" if len(matrices) > 1 else ""
            text = f"{named}{view}, of {table} drawn at {line}: {problem}"
            if problem.startswith(UNSEEN):
                unseen.append(text)
            elif problem:
                warn(text)
                return
        if len(unseen) == n:  # some views of many may look elsewhere
            warn(unseen[0])

    return Doubt((vtx_pos, matrix) if faces is None else (vtx_pos, matrix, faces), say)


def know_faces(clip: Variable, faces: Variable) -> None:
    """Let the doubt about clip positions, if any, look at the faces too. Of several tables that are
    drawn with the same positions none is all that is drawn."""
    if clip.doubt is not None:
        vtx_pos, matrix, *known = clip.doubt.inputs
        all_drawn = faces if known in ([], [faces]) else None
        clip.doubt = clip_doubt(vtx_pos, matrix, clip.line, all_drawn)


def _problem(points: np.ndarray, m: np.ndarray, faces: np.ndarray | None = None) -> str:
    """Return what a matrix looks like, or nothing."""
    if not m.any():
        return f"{UNSEEN}, the matrix is all zeros\n  hint: send it: projection @ view"
    step = max(len(points) // SAMPLE, 1)
    share = _share_inside(points[::step], m)
    other = _is_camera(m.T) and (share < FEW or not _is_camera(m))
    if other and _share_inside(points[::step], m.T) > max(MOST, share):
        return (
            "it looks transposed\n  hint: column vectors: clip = M @ (x, y, z, 1), so the "
            "translation of a view is M[:3, 3]; send M.T"
        )
    side = _beyond(points, m, faces) if share == 0.0 else ""
    if side:
        return f"{UNSEEN}, all is {side}\n  hint: {_why_unseen(m, side)}"
    if share > 0.0 and _turns_over(m):
        return (
            "it turns the picture over, as with y up: OpenGL's projection?\n  hint: "
            "dressi.render.camera.perspective or from_opengl; clip space has y down, z in [0, w]"
        )
    return ""


def _clip(points: np.ndarray, m: np.ndarray) -> np.ndarray:
    return np.asarray(points @ m[:, :3].T + m[:, 3])


def _share_inside(points: np.ndarray, m: np.ndarray) -> float:
    x, y, z, w = _clip(points, m).T
    return float(((w > 0) & (abs(x) <= w) & (abs(y) <= w) & (z >= 0) & (z <= w)).mean())


def _beyond(points: np.ndarray, m: np.ndarray, faces: np.ndarray | None) -> str:
    """Return the side of the clip volume on which all points are, or that each face is on one: then
    no face is seen."""
    x, y, z, w = _clip(points, m).T
    if (w <= 0).all():
        return "behind the camera"
    outside = np.stack([x + w, w - x, y + w, w - y, z, w - z]) < 0
    for side in np.flatnonzero(outside.all(axis=1)):
        return f"{PLANES[side]} the clip volume"
    if faces is not None and len(faces):
        a, b, c = (outside[:, faces[:, k].astype(np.int64)] for k in range(3))
        if (a & b & c).any(axis=0).all():
            return "outside of the clip volume"
    return ""


def _why_unseen(m: np.ndarray, side: str) -> str:
    turn = m[:3, :3]
    rigid = np.allclose(m[3], (0, 0, 0, 1)) and np.allclose(turn @ turn.T, np.eye(3), atol=1e-4)
    if rigid:
        return "it has no projection: matrix = projection @ view, as Camera.matrix"
    if side.startswith("behind"):
        return "the camera looks down its -Z; from OpenCV's axes dressi.render.camera.from_opencv"
    return (
        "look at the pose, the planes near and far, the unit of the scene, and the order, "
        "projection @ view"
    )


def _is_camera(m: np.ndarray) -> bool:
    """Whether m is built as a camera's matrix is: depth by the direction of view alone, or
    parallel."""
    if np.allclose(m[3], (0, 0, 0, 1), atol=1e-6):
        return True
    a, b = m[2, :3], m[3, :3]
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return size > 0.0 and float(np.linalg.norm(np.cross(a, b))) <= PARALLEL * size


def _turns_over(m: np.ndarray) -> bool:
    """Whether right, down and forward are a left-handed frame in the world: a mirrored picture."""
    forward = m[3, :3] if np.abs(m[3, :3]).max() > 1e-12 else m[2, :3]
    frame = np.stack([m[0, :3], m[1, :3], forward])
    sizes = np.linalg.norm(frame, axis=1)
    return bool((sizes > 0).all()) and bool(np.linalg.det(frame / sizes[:, None]) < -0.1)
