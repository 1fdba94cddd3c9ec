"""The digital human as arrays: ICT's head with an expression, eyes that look somewhere, hair.

In: the file of ICT's arrays (docs/human.md), names and weights of expressions, where the eyes look.
Out: ``Human``: one table of vertices, the faces that are opaque with the part each belongs to, the
clear layers over the eyes, the scalp. Lengths: ten centimetres are 1, the face looks to +z.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dressi.apps.data.heads import ICT_SKIN, ict_arrays, made_of, triangles
from dressi.apps.experiments.hair_scene import ICT_CENTER, ICT_SCALE, ICT_SKULL, Head, scalp_of
from dressi.errors import GraphError
from dressi.render.scene import Mesh, vertex_normals

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

PARTS: dict[str, tuple[str, ...]] = {
    "skin": ICT_SKIN,
    "eye": ("M_ScleraLeft", "M_ScleraRight"),
    "teeth": ("M_Teeth",),
    "gums": ("M_GumsTongue",),
}
"""Opaque parts, in the order of their numbers, and ICT's materials in them. The inner eyeballs
(M_Iris...) are left out: the model of the eye finds the iris behind the cornea by refraction; the
lashes become strands."""

LAYERS: dict[str, tuple[str, ...]] = {
    "tear": ("M_LacrimalFluid",),
    "occlusion": ("M_EyeOcclusion",),
}
"""Clear layers over the eyes."""

EXPRESSION = {"jawOpen": 0.2, "mouthSmile_L": 0.45, "mouthSmile_R": 0.45}
"""A mouth that is a little open, and friendly."""

LASHES = "M_EyeLashes"
LASH_GRID = (6, 19)
"""Rows, from the lid on, and columns of vertices in each of ICT's twelve strips of lashes."""

LIMBUS_UV = 0.115
"""Radius in ICT's texture coordinates of an eyeball at which its iris ends, 22 degrees."""

N_DIRECTIONS, SPLAT, N_SPLATS = 32, 110, 60_000
"""For ``openness``: directions of light, pixels on a side of each depth picture, points in it."""


@dataclass(frozen=True)
class Eye:
    """An eyeball. center: (3,). axis: (3,) unit, through the middle of the cornea. radius: of the
    ball without the cornea. uv_slopes: (2, 3), how u and v (origin top left) grow over the iris, if
    it lay in a plane across the axis."""

    center: Floats
    axis: Floats
    radius: float
    uv_slopes: Floats


@dataclass(frozen=True, eq=False)
class Human:
    """mesh: opaque faces, with UVs (origin top left; the skin's two squares side by side). parts:
    (F,) int32, rows of PARTS. normals: (V, 3) float32. openness: (V,) float32 in [0, 1], share of
    the sky, weighted by the cosine, that a vertex sees past the opaque faces. layers: faces of
    LAYERS, by name, of the same vertices. eyes: left, right. head: for hair. lashes: (S, rows,
    columns, 3), the strips that lashes follow, from the lid on. mouth: the middle of its opening,
    (3,), and how wide that is."""

    mesh: Mesh
    parts: Ints
    normals: npt.NDArray[np.float32]
    openness: npt.NDArray[np.float32]
    layers: Mapping[str, Ints]
    eyes: tuple[Eye, Eye]
    head: Head
    lashes: Floats
    mouth: tuple[Floats, float]


@dataclass(frozen=True, eq=False)
class IctArrays:
    """ICT's file, checked (``ict_arrays``). neutral: (V, 3) float64, cm. names: of materials.
    landmarks: rows of iBUG's 68."""

    neutral: Floats
    faces: Ints
    uv: npt.NDArray[np.float32]
    uv_faces: Ints
    material: npt.NDArray[np.uint8]
    names: list[str]
    expression: npt.NDArray[np.int16]
    expression_names: list[str]
    step: float
    landmarks: Ints


def read_ict(path: str | Path) -> IctArrays:
    """Return ICT's arrays. Raises LoadError for a file that has none, or of other shapes."""
    same = ("faces", "uv", "uv_faces", "material", "expression")
    others = ("neutral", "material_names", "expression_names", "step", "landmarks68")
    found = ict_arrays(path, *same, *others)
    # Every part is there.
    for names in (*PARTS.values(), *LAYERS.values(), (LASHES,)):
        made_of(found, names, path)
    return IctArrays(
        neutral=found["neutral"].astype(np.float64),
        names=found["material_names"].tolist(),
        expression_names=found["expression_names"].tolist(),
        step=float(found["step"]),
        landmarks=found["landmarks68"],
        **{name: found[name] for name in same},
    )


def build_human(
    path: str | Path,
    expression: Mapping[str, float] | None = None,
    gaze: tuple[float, float, float] = (0.0, 0.0, 60.0),
) -> Human:
    """Return the human of ICT's file.

    expression: weight in [0, 1] by the file's name (default EXPRESSION). gaze: the place that both
    eyes look at, in front of them. Raises GraphError for an unknown name, a weight out of range and
    a gaze that is no place; LoadError as ``read_ict``.
    """
    ict = read_ict(path)
    weights = EXPRESSION if expression is None else expression
    positions = _expressed(ict, weights)
    positions = (positions - ICT_CENTER) * ICT_SCALE
    target = np.asarray(gaze, np.float64)
    if target.shape != (3,) or not np.isfinite(target).all():
        raise GraphError(f"human: gaze must be three numbers, got {gaze!r}")
    eyes = []
    for side in ("Left", "Right"):
        eye, rows = _find_eye(ict, positions, side)
        turn = _turn(eye.axis, target - eye.center)
        positions[rows] = (positions[rows] - eye.center) @ turn.T + eye.center
        eyes.append(Eye(eye.center, turn @ eye.axis, eye.radius, eye.uv_slopes @ turn.T))
    faces, uv_faces, parts = _opaque(ict)
    mesh = Mesh(positions.astype(np.float32), faces, _uvs(ict), uv_faces, name="human").check()
    normals = vertex_normals(mesh.positions, mesh.faces)
    layers = {k: _triangles(ict.faces[_chosen(ict, names)]) for k, names in LAYERS.items()}
    layer_normals = vertex_normals(mesh.positions, np.concatenate(list(layers.values())))
    normals = np.where((normals == 0.0).all(axis=1, keepdims=True), layer_normals, normals)
    skin = Mesh(mesh.positions, faces[parts == 0], name="ict")
    head = Head(skin, scalp_of(skin), (np.zeros(3), ICT_SKULL))
    return Human(
        mesh,
        parts,
        normals,
        openness(mesh, normals),
        layers,
        (eyes[0], eyes[1]),
        head,
        _lash_strips(ict, positions, eyes),
        _mouth(ict, positions),
    )


def _expressed(ict: IctArrays, weights: Mapping[str, float]) -> Floats:
    positions = ict.neutral.copy()
    for name, weight in weights.items():
        if name not in ict.expression_names:
            known = ", ".join(ict.expression_names)
            raise GraphError(f"human: there is no expression {name!r}; known: {known}")
        if not 0.0 <= weight <= 1.0:
            raise GraphError(f"human: weight of {name} must be in [0, 1], got {weight!r}")
        positions += (weight * ict.step) * ict.expression[ict.expression_names.index(name)]
    return positions


def _chosen(ict: IctArrays, names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = np.isin(ict.material, [ict.names.index(n) for n in names])
    return found


def _triangles(quads: Ints) -> Ints:
    return triangles(quads).astype(np.int32)


def _opaque(ict: IctArrays) -> tuple[Ints, Ints, Ints]:
    """(faces, uv_faces, parts) of PARTS."""
    tables: list[tuple[Ints, Ints, Ints]] = []
    for number, names in enumerate(PARTS.values()):
        chosen = _chosen(ict, names)
        faces = _triangles(ict.faces[chosen])
        # Where uv_faces had another -1 than faces, corners would be paired wrongly.
        uv_quads = np.where(ict.faces[chosen] >= 0, ict.uv_faces[chosen], -1)
        part = np.full(len(faces), number, np.int32)
        tables.append((faces, _triangles(uv_quads), part))
    faces, uv_faces, parts = (np.concatenate(x) for x in zip(*tables, strict=True))
    return faces, uv_faces, parts


def _uvs(ict: IctArrays) -> npt.NDArray[np.float32]:
    """Texture coordinates from the top left; the face and the back of the head share an image."""
    u, v = ict.uv[:, 0].copy(), 1.0 - ict.uv[:, 1]
    skin_rows = np.unique(ict.uv_faces[_chosen(ict, PARTS["skin"])])
    skin_rows = skin_rows[skin_rows >= 0]
    u[skin_rows] *= 0.5
    others = np.setdiff1d(np.arange(len(u)), skin_rows)
    u[others] -= np.floor(u[others])
    return np.stack([u, v], axis=1).astype(np.float32)


def _find_eye(ict: IctArrays, positions: Floats, side: str) -> tuple[Eye, Ints]:
    """The eyeball and the rows of its vertices. The centre is that of the sphere through all but
    the cornea (least squares); the axis goes to the middle of the texture."""
    chosen = _chosen(ict, (f"M_Sclera{side}",))
    faces, uv_faces = ict.faces[chosen], ict.uv_faces[chosen]
    corner = (faces >= 0) & (uv_faces >= 0)
    rows, uv = faces[corner], ict.uv[uv_faces[corner]].astype(np.float64)
    away = np.linalg.norm(uv - 0.5, axis=1)
    ball = positions[np.unique(rows[away > 1.5 * LIMBUS_UV])]
    system = np.concatenate([2.0 * ball, np.ones((len(ball), 1))], axis=1)
    solved = np.linalg.lstsq(system, (ball**2).sum(axis=1), rcond=None)[0]
    center = solved[:3]
    radius = float(np.sqrt(solved[3] + center @ center))
    axis = positions[rows[away.argmin()]] - center
    axis /= np.linalg.norm(axis)
    iris = away < LIMBUS_UV
    across = positions[rows[iris]] - center
    across -= np.outer(across @ axis, axis)
    slopes = np.linalg.lstsq(across, (uv[iris] - 0.5) * (1.0, -1.0), rcond=None)[0].T
    inner = ict.faces[_chosen(ict, (f"M_Sclera{side}", f"M_Iris{side}"))]
    return Eye(center, axis, radius, slopes), np.unique(inner[inner >= 0])


def _lash_strips(ict: IctArrays, positions: Floats, eyes: list[Eye]) -> Floats:
    """(S, rows, columns, 3): the strips of lashes, whose texture coordinates are a grid."""
    chosen = _chosen(ict, (LASHES,))
    faces, uv_faces = ict.faces[chosen], ict.uv_faces[chosen]
    rows, first = np.unique(faces[faces >= 0], return_index=True)
    uv = ict.uv[uv_faces[faces >= 0][first]]
    n_rows, n_columns = LASH_GRID
    n, rest = divmod(len(rows), n_rows * n_columns)
    if rest:
        raise GraphError(f"human: {len(rows)} vertices of lashes are no strips of {LASH_GRID}")
    # From the top of the texture: strip under strip of the left eye, beside them the right eye's.
    order = np.lexsort((uv[:, 0], -np.round(uv[:, 1], 3)))
    halves = rows[order].reshape(n // 2 * n_rows, 2, n_columns).transpose(1, 0, 2)
    strips = positions[halves.reshape(n, n_rows, n_columns)]
    for k, strip in enumerate(strips):
        center = min((e.center for e in eyes), key=lambda c: float(np.abs(c - strip[0, 0]).sum()))
        away = np.linalg.norm(strip - center, axis=2).mean(axis=1)
        if away[0] > away[-1]:
            strips[k] = strip[::-1]
    return strips


def _mouth(ict: IctArrays, positions: Floats) -> tuple[Floats, float]:
    """(the middle between the inner lips, their distance). iBUG 62 and 66 of 68."""
    upper, lower = positions[ict.landmarks[[62, 66]]]
    return 0.5 * (upper + lower), float(np.linalg.norm(upper - lower))


def _turn(axis: Floats, towards: Floats) -> Floats:
    """(3, 3): the smallest turn that takes one direction to another (Rodrigues 1840)."""
    length = np.linalg.norm(towards)
    b = towards / length if length > 0.0 else axis
    c = float(axis @ b)
    if c < 0.0:
        raise GraphError("human: gaze must lie in front of the eyes")
    x, y, z = np.cross(axis, b)
    k = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    turned: Floats = np.eye(3) + k + k @ k / (1.0 + c)
    return turned


def openness(mesh: Mesh, normals: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return (V,) the share of the sky that each vertex sees, weighted by the cosine.

    By a picture of depths of the mesh from each of many directions spread evenly over the sphere,
    made of points: coarse, and smooth enough for light from all around.
    """
    rng = np.random.default_rng(0)
    p = mesh.positions.astype(np.float64)
    corners = p[mesh.faces]
    area = np.linalg.norm(
        np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1
    )
    face = rng.choice(len(area), N_SPLATS, p=area / area.sum())
    s, t = np.sqrt(rng.uniform(size=(N_SPLATS, 1))), rng.uniform(size=(N_SPLATS, 1))
    a, b, c = corners[face].transpose(1, 0, 2)
    points = a * (1.0 - s) + b * s * (1.0 - t) + c * s * t
    low, high = p.min(axis=0), p.max(axis=0)
    middle, radius = 0.5 * (low + high), 0.5 * float(np.linalg.norm(high - low))
    texel = 2.0 * radius / SPLAT
    total, seen = np.full(len(p), 1e-6), np.full(len(p), 1e-6)
    # Fibonacci's lattice: even over the sphere.
    k = np.arange(N_DIRECTIONS) + 0.5
    height, turn = 1.0 - 2.0 * k / N_DIRECTIONS, np.pi * (1.0 + 5.0**0.5) * k
    ring = np.sqrt(1.0 - height * height)
    for w in np.stack([ring * np.cos(turn), height, ring * np.sin(turn)], axis=1):
        side = np.cross(w, (0.0, 1.0, 0.0) if abs(w[1]) < 0.9 else (1.0, 0.0, 0.0))
        side /= np.linalg.norm(side)
        axes = np.stack([side, np.cross(w, side), w], axis=1)
        depths = np.full((SPLAT + 1) ** 2, -np.inf)
        at = (points - middle) @ axes
        cell = ((at[:, :2] + radius) / texel).astype(np.int64)
        np.maximum.at(depths, cell[:, 1] * SPLAT + cell[:, 0], at[:, 2])
        # A little before its own surface, and compared softly.
        at = (p + (1.5 * texel) * normals - middle) @ axes
        cell = np.clip(((at[:, :2] + radius) / texel).astype(np.int64), 0, SPLAT - 1)
        before = (depths[cell[:, 1] * SPLAT + cell[:, 0]] - at[:, 2]) / texel
        cosine = np.maximum(normals @ w, 0.0)
        total += cosine
        seen += cosine * np.clip(1.5 - before, 0.0, 1.0)
    return (seen / total).astype(np.float32)
