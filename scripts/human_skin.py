"""Bring the colours of the scan "lps" into the texture coordinates of the ICT head.

Run once: ``python scripts/human_skin.py`` writes ``dressi/apps/data/human/skin/ict_skin.jpg`` (and,
with ``--out``, elsewhere). In: the scan, its texture, the ICT head with its eyes shut as the scan
has them. A similarity from hand-picked landmarks, then closest points with a smooth displacement
(Laplacian, weaker from round to round), then for each texel the nearest of many coloured points of
the scan. The left half of the image holds the face, the right half the back of the head.
Needs SciPy and Pillow, which the package does not.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image
from scipy import sparse
from scipy.ndimage import distance_transform_edt
from scipy.sparse.linalg import splu
from scipy.spatial import cKDTree

from dressi.apps.data import human_file
from dressi.apps.data.heads import ict_arrays, triangles

SIDE = 768
"""Texels on a side of each half: what the scan's texture, 1024 for the whole head, fills."""

# iBUG number -> pixel (x, y) of the scan's texture, picked by eye.
PICKED = {
    36: (405, 306), 39: (472, 306), 42: (552, 306), 45: (620, 306),
    48: (453, 477), 54: (570, 477), 51: (511, 461), 57: (509, 497),
    62: (511, 478), 66: (511, 478), 33: (510, 428), 27: (512, 300),
    31: (476, 424), 35: (545, 424), 17: (378, 285), 21: (490, 272), 22: (526, 272), 26: (640, 285),
}  # fmt: skip
ROUNDS = ((20.0, 3.0), (8.0, 2.0), (3.0, 1.5), (1.0, 1.0), (0.4, 0.8))
"""Of closest points: weight of smoothness, and largest distance in centimetres."""


ARRAYS = ("neutral", "faces", "uv", "uv_faces", "material", "material_names", "expression")
ARRAYS += ("expression_names", "step", "landmarks68")
"""Of ICT's file."""


def normals(points: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """(N, 3) unit normals of vertices, by area."""
    a, b, c = points[faces].transpose(1, 0, 2)
    total = np.zeros_like(points)
    for k in range(3):
        np.add.at(total, faces[:, k], np.cross(b - a, c - a))
    return total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-12)


def similarity(a: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """(s, R, t) with s R a + t nearest to b. Source: Umeyama 1991."""
    ma, mb = a.mean(0), b.mean(0)
    u, d, vt = np.linalg.svd((b - mb).T @ (a - ma))
    flip = np.diag([1.0, 1.0, np.sign(np.linalg.det(u @ vt))])
    r = u @ flip @ vt
    s = float((d * np.diag(flip)).sum() / ((a - ma) ** 2).sum())
    return s, r, mb - s * r @ ma


def cloud(points: np.ndarray, faces: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(faces (n,), weights (n, 3)) of points spread evenly over a mesh."""
    a, b, c = points[faces].transpose(1, 0, 2)
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    rng = np.random.default_rng(0)
    s, t = np.sqrt(rng.uniform(size=n)), rng.uniform(size=n)
    return rng.choice(len(area), n, p=area / area.sum()), np.stack([1 - s, s * (1 - t), s * t], 1)


def bilinear(image: np.ndarray, xy: np.ndarray) -> np.ndarray:
    """Colours at pixels (N, 2), centres at halves."""
    h, w = image.shape[:2]
    p = np.clip(xy - 0.5, 0, [w - 1.001, h - 1.001])
    i = np.floor(p).astype(int)
    f = p - i
    out = 0.0
    for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)):
        weight = np.abs(1 - dx - f[:, 0]) * np.abs(1 - dy - f[:, 1])
        out = out + image[i[:, 1] + dy, i[:, 0] + dx] * weight[:, None]
    return out


class Scan:
    """The scan as a cloud of points with normals and places in its texture."""

    def __init__(self) -> None:
        with np.load(human_file("lps/lps_decoded.npz")) as f:
            p, uv, faces = (f[k] for k in ("positions", "uv", "faces"))
            n = f["normals"]
        size = np.array([1024.0, 1024.0])
        place = np.stack([uv[:, 0], 1.0 - uv[:, 1]], 1) * size
        rows, weights = cloud(p.astype(np.float64), faces, 1_500_000)
        self.points, self.places, self.normals = (
            np.einsum("nk,nkc->nc", weights, x.astype(np.float64)[faces[rows]])
            for x in (p, place, n)
        )
        self.picked = {}
        tree = cKDTree(self.places)
        for k, xy in PICKED.items():
            self.picked[k] = self.points[tree.query(xy)[1]]

    def moved_to(self, a: np.ndarray, b: np.ndarray) -> None:
        """Move it by the similarity that takes a to b."""
        s, r, t = similarity(a, b)
        self.points = s * self.points @ r.T + t
        self.normals = self.normals @ r.T
        self.picked = {k: s * r @ x + t for k, x in self.picked.items()}


def laplacian(faces: np.ndarray, n: int) -> sparse.csr_matrix:
    """Uniform Laplacian: a vertex less the mean of its neighbours."""
    i, j = faces[:, [0, 1, 2, 1, 2, 0]].ravel(), faces[:, [1, 2, 0, 0, 1, 2]].ravel()
    w = sparse.coo_matrix((np.ones(len(i)), (i, j)), (n, n)).tocsr()
    w.data[:] = 1.0
    degree = np.maximum(np.asarray(w.sum(1)).ravel(), 1.0)
    return sparse.eye(n) - sparse.diags(1.0 / degree) @ w


def register(
    points: np.ndarray, faces: np.ndarray, marks: dict[int, int], scan: Scan
) -> np.ndarray:
    """Return the head's vertices moved onto the scan. marks: iBUG number -> vertex."""
    keys = [k for k in PICKED if k in marks]
    scan.moved_to(np.array([scan.picked[k] for k in keys]), points[[marks[k] for k in keys]])
    tree = cKDTree(scan.points)
    smooth = laplacian(faces, len(points))
    smooth = smooth.T @ smooth
    moved = points.copy()
    for stiff, reach in ROUNDS:
        for _ in range(4):
            distance, near = tree.query(moved)
            facing = (normals(moved, faces) * scan.normals[near]).sum(1) > 0.5
            weight = (facing & (distance < reach)).astype(float)
            aim = scan.points[near].copy()
            for k in keys:
                weight[marks[k]], aim[marks[k]] = 20.0, scan.picked[k]
            system = splu((stiff * 20.0 * smooth + sparse.diags(weight + 1e-4)).tocsc())
            moved = points + system.solve((weight[:, None]) * (aim - points))
        print(f"stiffness {stiff:g}: {np.median(distance[weight > 0]):.3f} cm to the scan")
    return moved


def texels(uv: np.ndarray, faces: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """((SIDE, SIDE, 3) values, mask): corners (F, 3, 3) interpolated over texture space."""
    out, mask = np.zeros((SIDE, SIDE, 3)), np.zeros((SIDE, SIDE), bool)
    for corners, value in zip(uv[faces] * SIDE, values, strict=True):
        low = np.maximum(np.floor(corners.min(0) - 1.5), 0).astype(int)
        high = np.minimum(np.ceil(corners.max(0) + 1.5), SIDE).astype(int)
        y, x = np.mgrid[low[1] : high[1], low[0] : high[0]] + 0.5
        (ax, ay), (bx, by), (cx, cy) = corners
        area = (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)
        if abs(area) < 1e-9 or not x.size:
            continue
        wb = ((x - ax) * (cy - ay) - (y - ay) * (cx - ax)) / area
        wc = ((bx - ax) * (y - ay) - (by - ay) * (x - ax)) / area
        weights = np.stack([1 - wb - wc, wb, wc], -1)
        inside = weights.min(-1) > -1e-6
        block = (slice(low[1], high[1]), slice(low[0], high[0]))
        out[block][inside] = weights[inside] @ value
        mask[block] |= inside
    return out, mask


def filled(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The image with the nearest known texel where there is none."""
    rows = distance_transform_edt(~mask, return_distances=False, return_indices=True)
    return image[tuple(rows)]


def main() -> None:
    """Register, bake, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=None, help="the JPEG to write")
    parser.add_argument("--quality", type=int, default=88, help="of the JPEG (default 88)")
    options = parser.parse_args()
    d = ict_arrays(human_file("ict/ict_face_light.npz"), *ARRAYS)
    names, material = d["material_names"].tolist(), d["material"]
    expressions = d["expression_names"].tolist()
    points = d["neutral"].astype(np.float64)
    for side in "LR":  # the scan's eyes are shut
        delta = d["expression"][expressions.index(f"eyeBlink_{side}")]
        points += float(d["step"]) * delta.astype(np.float64)
    skin = [names.index(n) for n in ("M_Face", "M_BackHead")]
    quads = d["faces"][np.isin(material, skin)]
    used, rows = np.unique(triangles(quads), return_inverse=True)
    row_of = {int(v): k for k, v in enumerate(used)}
    marks = {
        k: row_of[int(d["landmarks68"][k])] for k in PICKED if int(d["landmarks68"][k]) in row_of
    }
    scan = Scan()
    moved_skin = register(points[used], rows.reshape(-1, 3), marks, scan)
    moved = points.copy()
    moved[used] = moved_skin

    color = np.asarray(Image.open(human_file("lps/color.jpg")).convert("RGB"), float)
    tree = cKDTree(scan.points)
    halves = []
    for number, first in zip(skin, (0.0, 1.0), strict=True):
        chosen = material == number
        faces, uv_faces = triangles(d["faces"][chosen]), triangles(d["uv_faces"][chosen])
        uv = np.stack([d["uv"][:, 0] - first, 1.0 - d["uv"][:, 1]], 1)
        place, mask = texels(uv, uv_faces, moved[faces])
        _, near = tree.query(place[mask], k=3)
        tile = np.zeros((SIDE, SIDE, 3))
        tile[mask] = np.mean([bilinear(color, scan.places[near[:, k]]) for k in range(3)], 0)
        halves.append(filled(tile, mask))
    image = Image.fromarray(np.clip(np.hstack(halves) + 0.5, 0, 255).astype(np.uint8))
    out = Path(options.out or human_file("ict/LICENSE").parent.parent / "skin" / "ict_skin.jpg")
    out.parent.mkdir(parents=True, exist_ok=True)
    image.save(out, quality=options.quality, optimize=True)
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
