"""``dressi experiment generalize``: one rasterizer from antialiasing to SoftRas (paper, its figure
that compares settings on the bunny at 512 x 512).

Columns: AA mode (delta of one pixel, K = 1), the default, SoftRas mode (E = 1 everywhere), the
screen-space antialiasing of ``dressi.render.raster``, and PyTorch3D and SoftRas, whose published
formulas are drawn in float64 (``soft_references``) with the parameters of SoftRas mode. Rows: the
picture, a part of it enlarged, and the derivative of every pixel as the object moves to the right
(forward mode).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import ndimage

from dressi.ad import SGD, F, Variable
from dressi.ad.vtype import FLOAT, VEC3
from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.meshes import bunny_file, target_mesh
from dressi.apps.experiments.parts import kept_parts
from dressi.apps.experiments.soft_references import Soft, soft_pictures
from dressi.engine import DressiAD
from dressi.render.camera import look_at, perspective
from dressi.render.fit import l2_loss
from dressi.render.io import contact_sheet
from dressi.render.raster import Peel, build_antialias, build_hardsoftras, gather, interpolate
from dressi.render.scene import Mesh, vertex_normals
from dressi.testing.views import MeshLeaves, mesh_leaves, send_mesh

HELP = "AA mode, the default and SoftRas mode on the bunny: pictures, derivatives, times"


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    size: int = option(512, "pixels on a side", smoke=32, least=16, quick=160)
    faces: int = option(5000, "faces at most; vertices are merged", smoke=80, least=20, quick=1500)
    target: str | None = option(None, "OBJ file (default: the bunny of the data folder, if any)")
    r: float = option(0.01, "reach of the default", smoke=0.1, least=0.0, quick=0.02)
    soft_r: float = option(0.1, "reach of SoftRas mode", smoke=0.25, least=0.0)
    soft_sigma: float = option(0.0285, "softness of SoftRas mode", least=1e-6)
    gamma: float = option(
        0.01, "of PyTorch3D's and SoftRas's blend, of depths in [0, 1]", least=1e-6
    )
    K: int = option(3, "peels of the default and of SoftRas mode", smoke=2, least=1)
    seconds: float = option(
        5.0, "time each way's steps for so long, in seconds", smoke=0.0, least=0.0, quick=1.0
    )


@dataclass(frozen=True)
class Method:
    """Parameters of build_hardsoftras."""

    r: float
    K: int = 1
    sigma: float | None = None
    delta: float | None = None
    cull: bool = False


def methods(settings: Settings) -> dict[str, Method | None]:
    """Return the method of each column of the sheet that the engine draws, by its heading."""
    pixel = 1.0 / settings.size
    return {
        "AA mode": Method(pixel, 1, None, pixel),
        "default": Method(settings.r, settings.K),
        "SoftRas mode": Method(settings.soft_r, settings.K, settings.soft_sigma, 1.0),
        "SoftRas mode\nculled": Method(settings.soft_r, settings.K, settings.soft_sigma, 1.0, True),
        "antialias": None,
    }


def run(settings: Settings) -> Result:
    """Return pictures, and for each method how many pixels it blurs, how many of them inside the
    shape, how far derivatives reach, the mean difference to the references, and ms."""
    path = settings.target or (None if settings.smoke else bunny_file())
    mesh = target_mesh(path, settings.faces)
    size = settings.size
    matrix = perspective(32.0, 1.0, NEAR, FAR) @ look_at((0.9, 0.5, 3.9), (0, 0, 0), (0, 1, 0))
    colours = vertex_colours(mesh)
    drawn = _draw_all(settings, mesh, colours, matrix)
    hard = drawn.pop("hard")
    inside = hard["mask"] > 0.5
    # Pixels that no method but SoftRas mode may touch: farther inside than the default's reach.
    deep = ndimage.distance_transform_edt(inside) > settings.r * size + 1.5
    outside = ndimage.distance_transform_edt(~inside)
    figures: dict[str, Any] = {"target": mesh.name, "faces": len(mesh.faces)}
    rows: dict[str, list[np.ndarray]] = {"picture": [], "enlarged": [], "d / dx": []}
    for name, one in drawn.items():
        changed = np.abs(one["picture"] - hard["picture"]).max(-1) > 1 / 255
        moving = np.abs(one["tangent"]).max(-1) > 1e-3
        key = _key(name)
        figures[f"{key}_blurred_pixels"] = int(changed.sum())
        figures[f"{key}_blurred_inside"] = int((changed & deep).sum())
        figures[f"{key}_reach_px"] = float((outside * moving).max())
        if one["ms"] is not None:
            figures[f"{key}_ms"] = one["ms"]
        for reference in REFERENCES:
            off = np.abs(one["picture"] - drawn[reference]["picture"])[inside].mean()
            figures[f"{key}_to_{reference.lower()}"] = float(off)
        rows["picture"].append(one["picture"])
        rows["enlarged"].append(_enlarged(one["picture"], inside))
        rows["d / dx"].append(signed_colours(one["tangent"].mean(-1)))
    sheet = contact_sheet(rows, columns=list(drawn))
    claims, ours = _conditions(figures, int(deep.sum()))
    return Result(figures, {"generalize": sheet}, conditions=claims, ours=ours)


def _key(name: str) -> str:
    """Return the beginning of the names of a column's figures."""
    return name.replace("\n", "_").replace(" ", "_").lower()


Conditions = list[tuple[str, bool]]


def _conditions(figures: dict[str, Any], deep: int) -> tuple[Conditions, Conditions]:
    """Return what the paper claims of its figure, and thresholds of ours. deep: pixels farther
    inside than the default's reach."""
    reach = [figures[f"{k}_reach_px"] for k in ("aa_mode", "default", "softras_mode")]
    blurred = {k: figures[f"{_key(k)}_blurred_inside"] for k in ("SoftRas mode", *REFERENCES)}
    claims: Conditions = [
        (
            "derivatives reach farther from AA mode to the default to SoftRas mode: "
            + ", ".join(f"{x:.1f}" for x in reach)
            + " px outside of the shape",
            reach[0] < reach[1] < reach[2],
        ),
        (
            "AA mode and the default keep the picture inside the outline",
            figures["aa_mode_blurred_inside"] == figures["default_blurred_inside"] == 0,
        ),
        (
            "SoftRas mode, PyTorch3D and SoftRas blend faces inside the outline, too: "
            + ", ".join(f"{n} px ({k})" for k, n in blurred.items()),
            all(n > 0 for n in blurred.values()),
        ),
    ]
    for reference in REFERENCES:
        names = ("SoftRas mode", "default", "AA mode")
        soft, *others = (figures[f"{_key(k)}_to_{reference.lower()}"] for k in names)
        pairs = zip((soft, *others), names, strict=True)
        said = ", ".join(f"{off:.4f} ({name})" for off, name in pairs)
        claims.append(
            (
                f"with E = 1 the formulation approaches {reference} inside the outline: mean "
                f"difference of the pictures {said}",
                soft < min(others),
            )
        )
    culled = figures[f"{_key('SoftRas mode culled')}_to_softras"]
    ours: Conditions = [
        (
            "of three peels in SoftRas mode some show faces that look away, which nearer ones hide "
            f"in SoftRas's sum; without these the difference to SoftRas is {culled:.4f}",
            culled < figures["softras_mode_to_softras"],
        ),
        (
            "SoftRas mode blurs at least a fifth of what lies inside",
            figures["softras_mode_blurred_inside"] > 0.2 * deep,
        ),
        (
            "AA mode touches about the pixels that antialias does (at most 3 times as many)",
            figures["aa_mode_blurred_pixels"] <= 3 * figures["antialias_blurred_pixels"],
        ),
    ]
    return claims, ours


def _draw_all(
    settings: Settings, mesh: Mesh, colours: np.ndarray, matrix: np.ndarray
) -> dict[str, dict[str, Any]]:
    """Return what ``_draw`` gives of the hard picture, of each method and of each reference."""
    work: dict[str, Callable[[], dict[str, Any]]] = {
        "hard": partial(_draw, settings, mesh, colours, matrix, Method(0.0), timed=False)
    }
    for name, method in methods(settings).items():
        work[name] = partial(_draw, settings, mesh, colours, matrix, method)
    both = "PyTorch3D and SoftRas"
    work[both] = partial(_draw_references, settings, mesh, colours, matrix)
    drawn = kept_parts(settings, work, "pictures")
    found = drawn.pop(both)
    for name in REFERENCES:
        drawn[name] = {k: found[f"{name} {k}"] for k in ("picture", "tangent")} | {"ms": None}
    return drawn


REFERENCES = ("PyTorch3D", "SoftRas")

STEP = 1e-4
"""World units of the differences that give the references' derivatives; they are float64."""


def _draw_references(
    settings: Settings, mesh: Mesh, colours: np.ndarray, matrix: np.ndarray
) -> dict[str, np.ndarray]:
    """Return picture and tangent of both references."""
    # At the reach, d^2 / sigma is what d / sigma is in SoftRas mode.
    sigma = settings.soft_r * settings.soft_sigma
    soft = Soft(settings.soft_r, sigma, settings.gamma, NEAR, FAR)

    def pictures(move: float) -> dict[str, np.ndarray]:
        shift = np.eye(4)
        shift[0, 3] = move
        return soft_pictures(mesh, colours, matrix @ shift, settings.size, soft)

    middle, right, left = pictures(0.0), pictures(STEP), pictures(-STEP)
    out = {f"{k} picture": v.astype(np.float32) for k, v in middle.items()}
    for name in middle:
        tangent = (right[name] - left[name]) / (2.0 * STEP)
        out[f"{name} tangent"] = tangent.astype(np.float32)
    return out


NEAR, FAR = 1.0, 10.0


def vertex_colours(mesh: Mesh) -> np.ndarray:
    """Return (V, 3) linear: stripes lit from the upper left, so that blur inside the outline
    shows."""
    normal = vertex_normals(mesh.positions, mesh.faces)
    light = np.maximum(normal @ np.array([-0.4, 0.6, 0.69]), 0.0)[:, None] * 0.85 + 0.15
    stripe = 0.5 + 0.5 * np.sin(14.0 * mesh.positions[:, 1:2] + 4.0 * mesh.positions[:, :1])
    albedo = np.array([0.9, 0.75, 0.5]) * stripe + np.array([0.25, 0.4, 0.7]) * (1.0 - stripe)
    return (albedo * light).astype(np.float32)


def _draw(
    settings: Settings,
    mesh: Mesh,
    colours: np.ndarray,
    matrix: np.ndarray,
    method: Method | None,
    timed: bool = True,
) -> dict[str, Any]:
    """Return picture (S, S, 3); tangent, the same, of a move by one world unit to the right; mask
    (S, S) of the hard faces; ms of a step: picture, loss, gradient of the vertices, update."""
    size = (settings.size, settings.size)
    leaves = mesh_leaves(mesh, 1, requires_grad=True)
    move = Variable(VEC3, name="move")
    colour = Variable(VEC3, (len(colours), 1), name="colours")
    with DressiAD(settings.device) as ad:
        send_mesh(ad, leaves, mesh, matrix[None])
        ad.send_img(colour, colours)
        ad.send_img(move, np.zeros(3))
        picture, mask = _picture(leaves, leaves.pos + move, colour, size, method)
        (tangent,) = F.jvp([picture], {move: F.constant((1.0, 0.0, 0.0))})
        out: dict[str, Any] = {
            "picture": ad.recv_img(picture),
            "mask": ad.recv_img(mask)[..., 0],
            "tangent": ad.recv_img(tangent) if timed else None,
            "ms": None,
        }
    if timed:
        out["ms"] = _step_ms(settings, mesh, colours, matrix, method, out["picture"])
    return out


def _picture(
    leaves: MeshLeaves,
    pos: Variable,
    colour: Variable,
    size: tuple[int, int],
    method: Method | None,
) -> tuple[Variable, Variable]:
    """Return VEC3 picture over black, FLOAT mask of the hard faces. Gradient to pos."""

    def shaded(peel: Peel) -> Variable:
        return interpolate(gather(colour, leaves.faces), peel.ids, peel.bary) * peel.stencil

    if method is None:
        aa = build_antialias(pos, leaves.faces, leaves.matrix, size)
        return aa.blend(shaded(aa.peel)), aa.hard
    hs = build_hardsoftras(
        pos,
        leaves.faces,
        leaves.matrix,
        size,
        method.r,
        method.K,
        method.sigma,
        method.delta,
        cull=method.cull,
    )
    if method.r == 0.0:
        return F.where(hs.hard, shaded(hs.peels[0]), 0.0), hs.hard
    return hs.blend([shaded(peel) for peel in hs.peels]), hs.hard


def _step_ms(
    settings: Settings,
    mesh: Mesh,
    colours: np.ndarray,
    matrix: np.ndarray,
    method: Method | None,
    target: np.ndarray,
) -> float:
    """Return the median ms of optimization steps that compare the picture with itself moved by 2 %:
    everything is drawn anew, and the vertices stay (a learning rate of 0)."""
    size = (settings.size, settings.size)
    leaves = mesh_leaves(mesh, 1, requires_grad=True)
    colour = Variable(VEC3, (len(colours), 1), name="colours")
    wanted = Variable(VEC3, size, name="target")
    lr = Variable(FLOAT, name="lr")
    with DressiAD(settings.device) as ad:
        ad.set_loss_var(l2_loss(_picture(leaves, leaves.pos, colour, size, method)[0], wanted))
        ad.set_optimizer(SGD(lr))
        send_mesh(ad, leaves, mesh, matrix[None])
        ad.send_img(colour, colours)
        ad.send_img(lr, 0.0)
        ad.send_img(wanted, np.roll(target, max(size[0] // 50, 1), axis=1))
        ad.exec_step()
        times: list[float] = []
        end = time.perf_counter() + settings.seconds
        while len(times) < FEWEST or time.perf_counter() < end:
            begin = time.perf_counter()
            ad.exec_step()
            times.append((time.perf_counter() - begin) * 1e3)
    return float(np.median(times))


FEWEST = 3
"""Steps timed at least: those of SoftRas mode are slow."""


def _enlarged(picture: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Return the part around the highest pixel of the shape, enlarged to the size of the
    picture."""
    size, part = len(picture), max(len(picture) // 8, 4)
    y, x = np.argwhere(inside)[0]
    top = int(np.clip(y - part // 3, 0, size - part))
    left = int(np.clip(x - part // 2, 0, size - part))
    big = np.kron(picture[top : top + part, left : left + part], np.ones((8, 8, 1)))
    return big[:size, :size].astype(np.float32)


def signed_colours(values: np.ndarray) -> np.ndarray:
    """Return (H, W, 3): red where positive, blue where negative, white at 0; by the root, so that
    small ones show, full at the 99.5th percentile of what is not 0."""
    size = np.abs(values)
    scale = np.quantile(size[size > 0], 0.995) if (size > 0).any() else 1.0
    strength = np.sqrt(np.minimum(size / scale, 1.0))[..., None]
    ink = np.where(values[..., None] > 0, (0.8, 0.0, 0.0), (0.0, 0.1, 0.8))
    return (1.0 + (ink - 1.0) * strength).astype(np.float32)
