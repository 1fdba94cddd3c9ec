"""How near two surfaces are: Chamfer distances, F-score and angles between normals.

In: two meshes. Out: ``SurfaceMetrics``. Distances are from points sampled on one surface to the
other surface itself, not to samples of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError
from dressi.render.fit.closest import closest_on_surface
from dressi.render.fit.views import checked_matrices
from dressi.render.fit.visibility import seen_points
from dressi.render.scene import Mesh, area_normals, face_normals


@dataclass(frozen=True)
class SurfaceMetrics:
    """What ``surface_metrics`` gives. Lengths are in % of the diagonal of the target's box.

    to_target_percent: mean distance from the mesh to the target; from_target_percent: from the
    target to the mesh; chamfer_percent: the mean of both. precision: share of the mesh within
    threshold_percent of the target; recall: share of the target within it of the mesh; f_score:
    their harmonic mean. normal_to_target_deg, normal_from_target_deg, normal_deg: mean angle
    between the normals of faces at closest points, degrees in [0, 180]: 180 where a surface is
    inside out. seen_share: share of the target's samples that count (1 without visible_from).
    """

    to_target_percent: float
    from_target_percent: float
    chamfer_percent: float
    precision: float
    recall: float
    f_score: float
    normal_to_target_deg: float
    normal_from_target_deg: float
    normal_deg: float
    threshold_percent: float
    seen_share: float
    n_samples: int

    @property
    def figures(self) -> dict[str, float]:
        """Return the figures under names for people, as rows of a table."""
        threshold = f"{self.threshold_percent:.3g} % of the diagonal"
        return {
            "Chamfer distance, % of the diagonal": self.chamfer_percent,
            "distance from the result to the target, %": self.to_target_percent,
            "distance from the target to the result, %": self.from_target_percent,
            f"F-score at {threshold}": self.f_score,
            "precision": self.precision,
            "recall": self.recall,
            "angle between normals, degrees": self.normal_deg,
            "share of the target that counts": self.seen_share,
        }


def sample_surface(
    mesh: Mesh, n: int, seed: int = 0
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return n points evenly over the surface, (n, 3) world units, and their faces, (n,).

    Stratified: the area is cut in n equal parts in the order of the faces, one point in each, so a
    face of k parts gets k points, give or take one. Reproducible by the seed. Raises GraphError
    (bad mesh, no area, n < 1).
    """
    mesh.check()
    if n < 1:
        raise GraphError(f"sample_surface needs n >= 1, got {n}")
    areas = np.cumsum(np.linalg.norm(area_normals(mesh.positions, mesh.faces), axis=1))
    if not areas[-1] > 0.0:
        raise GraphError(f"sample_surface: mesh '{mesh.name}' has no face with an area")
    rng = np.random.default_rng(seed)
    at = (np.arange(n) + rng.random(n)) / n * areas[-1]
    # Faces without area take no part: the first whose sum exceeds the place.
    face = np.minimum(np.searchsorted(areas, at, side="right"), len(areas) - 1)
    root, along = np.sqrt(rng.random(n)), rng.random(n)
    weights = np.stack([1.0 - root, root * (1.0 - along), root * along], axis=1)
    corners = mesh.positions.astype(np.float64)[mesh.faces[face]]
    return np.einsum("ij,ijk->ik", weights, corners), face


def surface_metrics(
    mesh: Mesh,
    target: Mesh,
    n_samples: int = 30_000,
    threshold: float = 0.005,
    visible_from: npt.ArrayLike | None = None,
    seed: int = 0,
    two_sided: bool = False,
) -> SurfaceMetrics:
    """Compare a surface with its target, both ways.

    n_samples: points on each surface. threshold: of the F-score, a fraction of the diagonal of the
    target's box. visible_from: (views, 4, 4) world to clip: only those points of the target count
    that one of the views sees (``seen_points``), because what no view sees cannot be known; all
    points of the mesh count. two_sided: the target is a sheet that shows both of its sides: normals
    count without their sign. Raises GraphError (bad meshes or numbers, no point is seen).
    """
    if not (np.isfinite(threshold) and threshold > 0.0):
        raise GraphError(f"surface_metrics: threshold must be > 0, got {threshold}")
    ours, our_face = sample_surface(mesh, n_samples, seed)
    theirs, their_face = sample_surface(target, n_samples, seed + 1)
    seen = np.ones(n_samples, dtype=bool)
    if visible_from is not None:
        seen[:] = False
        for view in checked_matrices("surface_metrics", visible_from):
            seen[~seen] = seen_points(theirs[~seen], target, view[None])[0]
        if not seen.any():
            raise GraphError(f"surface_metrics: no view sees a point of target '{target.name}'")
    diagonal = float(np.linalg.norm(np.ptp(target.positions.astype(np.float64), axis=0)))
    there = closest_on_surface(ours, target.positions, target.faces)
    back = closest_on_surface(theirs[seen], mesh.positions, mesh.faces)
    normals = face_normals(mesh.positions, mesh.faces).astype(np.float64)
    of_target = face_normals(target.positions, target.faces).astype(np.float64)
    angles = _degrees(normals[our_face], of_target[there.face], two_sided)
    angles_back = _degrees(normals[back.face], of_target[their_face[seen]], two_sided)
    to_target, from_target = there.distance / diagonal, back.distance / diagonal
    precision, recall = (
        float((to_target <= threshold).mean()),
        float((from_target <= threshold).mean()),
    )
    both = precision + recall
    return SurfaceMetrics(
        to_target_percent=100.0 * float(to_target.mean()),
        from_target_percent=100.0 * float(from_target.mean()),
        chamfer_percent=50.0 * float(to_target.mean() + from_target.mean()),
        precision=precision,
        recall=recall,
        f_score=2.0 * precision * recall / both if both else 0.0,
        normal_to_target_deg=angles,
        normal_from_target_deg=angles_back,
        normal_deg=0.5 * (angles + angles_back),
        threshold_percent=100.0 * threshold,
        seen_share=float(seen.mean()),
        n_samples=n_samples,
    )


def _degrees(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64], two_sided: bool) -> float:
    """Mean angle between unit normals, of the lines along them where two-sided; faces without area
    (normal 0) do not count."""
    has = (a != 0.0).any(axis=1) & (b != 0.0).any(axis=1)
    along = np.einsum("ij,ij->i", a[has], b[has])
    # atan2 keeps small angles exact, where arccos loses half of the digits.
    across = np.linalg.norm(np.cross(a[has], b[has]), axis=1)
    angle = np.arctan2(across, np.abs(along) if two_sided else along)
    return float(np.degrees(angle.mean())) if has.any() else float("nan")
