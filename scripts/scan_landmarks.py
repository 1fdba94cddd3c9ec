"""Find the 68 landmarks of the scanned head: writes dressi/apps/data/human/lps/landmarks.json.

Brows, lids and lips are seen: they were picked by hand in a picture from the front (PICKED), and
are where the rays through the pixels meet the scan. The tip of the nose is the point farthest to
the front (pronasale; Farkas 1994). Jaw and the rest of the nose have no texture to go by: the ICT
head, its identities and expressions, is registered to the scan (similarity by closest points, then
coefficients by point to plane and by the landmarks above, with a ridge prior that softens; Besl and
McKay 1992, Chen and Medioni 1992, Amberg et al. 2007), and the points of the scan nearest to the
model's landmarks are taken. Without the landmarks above the mouth opens and the chin slides towards
the neck. No rendered frame is used. ``cm_per_unit`` is that of the registration: the scan has no
unit. The experiment ``face`` reads the file.
"""

from __future__ import annotations

import json

import numpy as np

from dressi.apps.data import human_file
from dressi.apps.data.heads import scan_mesh
from dressi.apps.experiments.face_model import HeadModel, head_model
from dressi.apps.experiments.face_start import similarity
from dressi.render.fit import closest_on_surface
from dressi.render.scene import Mesh
from dressi.render.scene.mesh import vertex_normals

EYE, FOCAL_PX, CENTER_PX = (-0.1159, 1.2342, 9.7319), 2200.0, (500.0, 420.0)
"""Of the picture, which looks down -z of the scan with y up; 1000 x 1000 pixels."""

PICKED = {
    17: (203, 240), 18: (235, 190), 19: (290, 174), 20: (350, 180), 21: (405, 203),
    22: (590, 203), 23: (640, 192), 24: (700, 191), 25: (755, 208), 26: (795, 245),
    36: (262, 312), 37: (300, 317), 38: (350, 313), 39: (412, 292), 40: (350, 314), 41: (300, 318),
    42: (590, 294), 43: (640, 312), 44: (690, 318), 45: (742, 314), 46: (690, 319), 47: (640, 313),
    48: (395, 656), 49: (428, 626), 50: (475, 606), 51: (509, 612), 52: (545, 606), 53: (592, 630),
    54: (632, 660), 55: (597, 678), 56: (555, 692), 57: (508, 695), 58: (462, 692), 59: (428, 678),
    60: (405, 655), 61: (465, 650), 62: (508, 651), 63: (555, 649),
    64: (620, 657), 65: (555, 651), 66: (508, 653), 67: (465, 652),
}  # fmt: skip
"""Landmark -> pixel."""

CHIN, TIP = 8, 30
RIGID_ROUNDS, ROUNDS = 15, 60
PRIOR, EXPRESSION_PRIOR = 0.1, 4.0
"""Weights of squared coefficients, per 3000 points: expressions are to explain less."""
STIFF, SOFTER = 100.0, 0.85
"""By how much more the prior weighs in the first round, and what is left of that in the next."""
MARK, MARK_ROBUST_CM = 20.0, 0.3
"""Weight of a landmark, per 3000 points, and the distance from which on it counts less."""
BELOW_CHIN_CM = 0.3
"""What of the model is lower than its chin is neck, or the skin between both."""
LARGEST_CM, SMALLEST_CM = 3.0, 0.5
"""Distance up to which a point counts, in the first round and at last."""
ROBUST_CM = 0.15


def main() -> None:
    """Register, pick, write."""
    scan = scan_mesh()
    model = head_model(human_file("ict/ict_face_light.npz"), 100)
    known = {k: first_hit(scan, pixel) for k, pixel in PICKED.items()}
    known[TIP] = scan.positions[scan.positions[:, 2].argmax()].astype(np.float64)
    scale, rotation, shift, head = register(model, scan, known)
    surface = scale * scan.positions.astype(np.float64) @ rotation.T + shift
    foot = closest_on_surface(head[model.landmarks], surface, scan.faces).foot
    points = (foot - shift) @ rotation / scale
    for k, point in known.items():
        points[k] = point
    out = {"cm_per_unit": round(scale, 3), "landmarks": np.round(points, 4).tolist()}
    path = human_file("lps/lps_decoded.npz").with_name("landmarks.json")
    path.write_text(json.dumps(out), encoding="utf-8")
    print(f"wrote {path.name}: 1 unit is {scale:.3f} cm")


def first_hit(scan: Mesh, pixel: tuple[float, float]) -> np.ndarray:
    """Return where the ray through a pixel first meets the scan. Source: Moeller, Trumbore 1997."""
    eye = np.array(EYE)
    ray = np.array([pixel[0] - CENTER_PX[0], CENTER_PX[1] - pixel[1], -FOCAL_PX])
    a, b, c = np.moveaxis(scan.positions[scan.faces].astype(np.float64), 1, 0)
    u, v = b - a, c - a
    p = np.cross(ray, v)
    volume = (u * p).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        s = ((eye - a) * p).sum(axis=1) / volume
        q = np.cross(eye - a, u)
        t = (q @ ray) / volume
        at = (v * q).sum(axis=1) / volume
        met = (s >= 0) & (t >= 0) & (s + t <= 1) & (at > 0)
    return np.asarray(eye + at[met].min() * ray)


def register(
    model: HeadModel, scan: Mesh, known: dict[int, np.ndarray]
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Return scale, rotation and shift of the scan into the model's frame, and the fitted head.
    known: points of the scan by landmark."""
    mean = model.mean.astype(np.float64)
    basis = np.concatenate([model.identity, model.expression]).astype(np.float64)
    n_identities, rows = len(model.identity), model.landmarks[list(known)]
    chin = mean[model.landmarks[CHIN], 1] - BELOW_CHIN_CM
    scale, shift = by_the_nose(mean, scan.positions)
    rotation, coefficients = np.eye(3), np.zeros(len(basis))
    normals = vertex_normals(scan.positions, scan.faces).astype(np.float64)
    for k in range(ROUNDS):
        head = mean + np.tensordot(coefficients, basis, 1)
        surface = scale * scan.positions @ rotation.T + shift
        found = closest_on_surface(head, surface, scan.faces)
        normal = normals[scan.faces[found.face]].mean(axis=1) @ rotation.T
        own = vertex_normals(head.astype(np.float32), model.faces)
        limit = max(LARGEST_CM * 0.9**k, SMALLEST_CM)
        # The face alone: neither the back of the head nor the top of it nor the neck.
        used = ((normal * own).sum(axis=1) > 0.6) & (found.distance < limit)
        used &= (head[:, 2] > 2.0) & (head[:, 1] < 9.0) & (head[:, 1] > -9.0)
        if k < RIGID_ROUNDS:
            s, r, t = similarity(found.foot[used], head[used], np.ones(int(used.sum())))
            scale, rotation, shift = s * scale, r @ rotation, s * r @ shift + t
            continue
        used &= mean[:, 1] > chin
        weight = 1.0 / np.maximum(found.distance[used] / ROBUST_CM, 1.0)
        toward, amount = normal[used], used.sum() / 3000.0
        off = ((found.foot[used] - head[used]) * toward).sum(axis=1)
        slope = np.einsum("kvi,vi->vk", basis[:, used], toward)
        prior = np.full(len(basis), EXPRESSION_PRIOR)
        prior[:n_identities] = PRIOR
        prior *= amount * max(STIFF * SOFTER ** (k - RIGID_ROUNDS), 1.0)
        away = scale * np.array(list(known.values())) @ rotation.T + shift - head[rows]
        near = np.maximum(np.linalg.norm(away, axis=1) / MARK_ROBUST_CM, 1.0)
        pull = np.repeat(MARK * amount / near, 3)
        lever = basis[:, rows].reshape(len(basis), -1).T
        left = (slope * weight[:, None]).T @ slope + (lever * pull[:, None]).T @ lever
        right = (slope * weight[:, None]).T @ off + (lever * pull[:, None]).T @ away.ravel()
        step = np.linalg.solve(left + np.diag(prior), right - prior * coefficients)
        coefficients = coefficients + step
        coefficients[n_identities:] = np.clip(coefficients[n_identities:], 0.0, 1.0)
        s, r, t = similarity(found.foot[used], head[used], weight, 1.0)
        rotation, shift = r @ rotation, r @ shift + t
    return scale, rotation, shift, mean + np.tensordot(coefficients, basis, 1)


def by_the_nose(mean: np.ndarray, scan: np.ndarray) -> tuple[float, np.ndarray]:
    """Return scale and shift of the scan: tip of the nose on tip of the nose (the largest z of
    both), the scale of the best of some, by the points of the scan nearest to the face."""
    from scipy.spatial import cKDTree

    tree = cKDTree(scan)
    tip, nose = mean[mean[:, 2].argmax()], scan[scan[:, 2].argmax()].astype(np.float64)
    face = mean[mean[:, 2] > 4.0]
    best = (np.inf, 1.0)
    for scale in np.linspace(2.0, 8.0, 61):
        distance = np.sort(tree.query((face - tip) / scale + nose)[0]) * scale
        best = min(best, (float(distance[: int(0.8 * len(distance))].mean()), float(scale)))
    return best[1], tip - best[1] * nose


if __name__ == "__main__":
    main()
