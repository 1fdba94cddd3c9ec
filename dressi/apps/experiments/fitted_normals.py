"""``dressi experiment fitted_normals``: normal maps on the fitted shapes (paper, 4.3, its visual
comparison with wire frames).

A coarse sphere is fitted to a complex target by HardSoftRas (r = 2 pixels, K = 3, the paper's
configuration 1) and by the screen-space antialiasing, as in ``curves``. Then the shapes stay, and a
tangent-space normal map of 1024 x 1024 texels is optimized on each, by pictures of 1024 x 1024
pixels, each iteration a random view with a random point light, Lambert, L1. Figures, over views
that no fit saw: PSNR of the lit pictures and angle between the normals that pixels show and those
of the target, without and with the map.

Differs: the map's pictures have hard edges in both, for the shapes do not change any more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from tqdm import tqdm

from dressi.ad import F, Variable
from dressi.ad.vtype import VEC3
from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.lit_fit import START_RADIUS, TARGET_FACES_HELP, Fit, run_fit
from dressi.apps.experiments.lit_views import AMBIENT, Method, Views, random_views, with_targets
from dressi.apps.experiments.meshes import target_mesh
from dressi.apps.experiments.normal_map import UnitAdam
from dressi.apps.experiments.normal_scenes import FLAT
from dressi.apps.experiments.parts import Part, kept_parts
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.render.fit import l1_loss, mean_distance_to_surface, surface_pictures
from dressi.render.io import contact_sheet
from dressi.render.raster import build_hard_raster
from dressi.render.scene import Mesh, icosphere
from dressi.render.shading import (
    PbrMaterial,
    build_surface,
    eye_position,
    material_surface,
    vertex_normals,
)
from dressi.testing.views import MeshLeaves, mesh_leaves, send_mesh

HELP = "normal maps optimized on the fitted shapes, ours and screen-space, beside the truth"

UNSEEN = 4
"""Views that no fit saw, of another seed."""


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    target: str | None = option(None, "OBJ file (default: a horned ball built by code)")
    target_faces: int = option(20480, TARGET_FACES_HELP, smoke=80, least=20, quick=5120)
    shape_iterations: int = option(2500, "of a shape", smoke=6, least=2, quick=700)
    shape_size: int = option(
        96, "pixels on a side of a shape's pictures", smoke=32, least=8, quick=64
    )
    subdivisions: int = option(3, "of the sphere: 20 * 4^n faces", smoke=1, least=1)
    r_px: float = option(2.0, "reach of HardSoftRas in pixels", least=0.5)
    K: int = option(3, "peels of HardSoftRas", smoke=2, least=1)
    iterations: int = option(400, "of a normal map", smoke=4, least=1, quick=200)
    size: int = option(1024, "pixels on a side of a map's pictures", smoke=48, least=8, quick=256)
    map_size: int = option(1024, "texels on a side of a normal map", smoke=32, least=4, quick=256)
    lr: float = option(0.02, "of a normal map at the start, texels in [0, 1]", least=0.0)
    views: int = option(256, "random views to choose from", smoke=3, least=1)
    seed: int = option(0, "of views and lights", least=0)


def run(settings: Settings) -> Result:
    """Fit both shapes, then a map on each."""
    s = settings
    target = target_mesh(s.target, s.target_faces)
    start = icosphere(s.subdivisions, START_RADIUS)
    methods = {
        "screen-space": Method("antialias", antialias=True),
        "ours": Method("HardSoftRas", (s.r_px,), s.K),
    }
    shapes = kept_parts(
        s,
        {f"shape, {k}": partial(_shape, s, m, start, target) for k, m in methods.items()},
        "shapes",
    )
    meshes = {k: replace(start, positions=shapes[f"shape, {k}"]["positions"]) for k in methods}
    maps = kept_parts(
        s, {f"map, {k}": partial(fit_map, s, m, target) for k, m in meshes.items()}, "maps"
    )
    found = {k: maps[f"map, {k}"] for k in methods}
    figures: dict[str, Any] = {"target": target.name, "faces": len(start.faces)}
    for name, mesh in meshes.items():
        key = name.replace("-", "_")
        distance = mean_distance_to_surface(mesh.positions, target.positions, target.faces)
        figures[f"{key}_distance"] = distance
        figures |= {f"{key}_{k}": v for k, v in found[name].items() if isinstance(v, float)}
        figures[f"{key}_losses"] = found[name]["losses"]
    sheet = _sheet(s, meshes, target, found)
    claims = _claims(figures)
    return Result(figures, {"fitted_normals": sheet}, conditions=claims)


def _claims(f: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return what the paper claims: maps refine the appearance, ours converges better."""
    claims = [
        (
            f"{key}: the map brings pictures nearer to the target, {f[f'{key}_plain_db']:.1f} to "
            f"{f[f'{key}_mapped_db']:.1f} dB, normals from {f[f'{key}_plain_deg']:.1f} to "
            f"{f[f'{key}_mapped_deg']:.1f} degrees",
            f[f"{key}_mapped_db"] > f[f"{key}_plain_db"]
            and f[f"{key}_mapped_deg"] < f[f"{key}_plain_deg"],
        )
        for key in ("ours", "screen_space")
    ]
    for what, unit, sign in (("mapped_db", "dB", 1), ("mapped_deg", "degrees", -1)):
        ours, other = f[f"ours_{what}"], f[f"screen_space_{what}"]
        said = f"ours converges better to the target: {ours:.2f} and {other:.2f} {unit}"
        claims.append((said, sign * (ours - other) > 0))
    return claims


def _shape(s: Settings, method: Method, start: Mesh, target: Mesh) -> dict[str, Any]:
    """Return the positions that a shape's fit ends with."""
    drawn = random_views(s.views, s.shape_size, s.seed)
    views = with_targets(drawn, target, method, "lambert", s.device)
    last = s.shape_iterations
    fit = Fit(last, every=max(last // 10, 1), seed=s.seed)
    trace = run_fit(start, target, views, method, fit, (last,), s.device)
    return {"positions": trace.positions[last]}


@dataclass(frozen=True)
class Lit:
    """picture: FLOAT, hard edges over black. normal: VEC3, unit, world. mask: FLOAT."""

    picture: Variable
    normal: Variable
    mask: Variable


def draw_lit(
    leaves: MeshLeaves, light: Variable, size: int, normal_map: Variable | None = None
) -> Lit:
    """Draw a white matte mesh under a point light, as the shapes are drawn. Gradient to the map."""
    raster = build_hard_raster(leaves.pos, leaves.faces, leaves.matrix, (size, size))
    eye, normals = eye_position(leaves.matrix), vertex_normals(leaves.pos, leaves.faces)
    if normal_map is None:
        surface = build_surface(raster.peel, leaves.pos, leaves.faces, eye, normals)
    else:
        surface = material_surface(
            raster.peel,
            leaves.pos,
            leaves.faces,
            eye,
            PbrMaterial(normal_map=normal_map),
            leaves.uv,
            leaves.uv_faces,
            normals,
            wrap="clamp",
        )
    position, normal = surface.need("fitted_normals", "position", "normal")
    facing = F.maximum(F.dot(normal, F.normalize(light - position)), 0.0)
    lit = AMBIENT + (1.0 - AMBIENT) * facing
    return Lit(F.where(raster.mask, lit, 0.0), F.where(raster.mask, normal, 0.0), raster.mask)


def fit_map(s: Settings, mesh: Mesh, target: Mesh) -> dict[str, Any]:
    """Fit a normal map on a mesh that stays. Return the map, losses, and over views that no fit saw
    the pictures with and without it and their figures (``measure``)."""
    views = random_views(s.views, s.size, s.seed)
    mine, other = mesh_leaves(mesh, 1), mesh_leaves(target, 1)
    light = Variable(VEC3, name="light")
    shape = (s.map_size, s.map_size)
    normal_map = Variable(VEC3, shape, requires_grad=True, name="normal_map")
    got, want = draw_lit(mine, light, s.size, normal_map), draw_lit(other, light, s.size)
    both = got.mask * want.mask
    # Adam's steps do not depend on the scale; its eps, 1e-8, is small beside these gradients.
    loss = l1_loss(got.picture * both, want.picture * both) * float(s.size**2)
    order = np.random.default_rng(s.seed).integers(s.views, size=s.iterations)
    losses = []
    with DressiAD(s.device) as ad:
        for leaves, one in ((mine, mesh), (other, target)):
            send_mesh(ad, leaves, one, views.matrices[:1])
        ad.send_img(normal_map, np.broadcast_to(FLAT, (*shape, 3)))
        ad.set_loss_var(loss)
        ad.set_optimizer(UnitAdam(s.lr, s.iterations))
        for i, k in enumerate(tqdm(order, desc="normal map", unit="it", leave=False)):
            for leaves in (mine, other):
                ad.send_img(leaves.matrix, views.matrices[k])
            ad.send_img(light, views.lights[k])
            ad.exec_step()
            if i % 10 == 0:
                losses.append(float(ad.recv_img(loss).reshape(-1)[0]) / s.size**2)
        found = ad.recv_img(normal_map)
        if not np.isfinite(found).all():
            raise DressiError("fitted_normals: the map became no number")
        plain = draw_lit(mine, light, s.size)
        drawn: dict[str, list[np.ndarray]] = {}
        unseen = random_views(UNSEEN, s.size, s.seed + 1)
        for matrix, place in zip(unseen.matrices, unseen.lights, strict=True):
            for leaves in (mine, other):
                ad.send_img(leaves.matrix, matrix)
            ad.send_img(light, place)
            for name, lit in (("mapped", got), ("plain", plain), ("true", want)):
                picture, normal = ad.recv_imgs([lit.picture, lit.normal])
                drawn.setdefault(f"{name} picture", []).append(picture[..., 0])
                drawn.setdefault(f"{name} normal", []).append(normal)
    stacks = {k: np.stack(v) for k, v in drawn.items()}
    shown = {k: stacks[f"{k} picture"] for k in ("mapped", "plain", "true")}
    return {"map": found, "losses": losses, **measure(stacks), **shown}


def measure(stacks: dict[str, np.ndarray]) -> dict[str, float]:
    """Return PSNR of pictures (views, H, W) and mean angle of normals (views, H, W, 3), where both
    are: ``plain_db``, ``mapped_db``, ``plain_deg``, ``mapped_deg``."""
    true = stacks["true normal"].astype(np.float64)
    out = {}
    for name in ("plain", "mapped"):
        normal = stacks[f"{name} normal"].astype(np.float64)
        both = (np.abs(normal).max(-1) > 0) & (np.abs(true).max(-1) > 0)
        off = (stacks[f"{name} picture"] - stacks["true picture"])[both].astype(np.float64)
        cosine = (normal[both] * true[both]).sum(-1)
        out[f"{name}_db"] = float(-10 * np.log10(max((off**2).mean(), 1e-12)))
        out[f"{name}_deg"] = float(np.degrees(np.arccos(np.clip(cosine, -1, 1))).mean())
    return out


SHEET_PX = 384
"""Largest pictures of the sheet."""


def _sheet(
    s: Settings, meshes: dict[str, Mesh], target: Mesh, found: dict[str, Part]
) -> np.ndarray:
    """Return, for two views that no fit saw, the lit pictures with the maps and the wire frames."""
    unseen: Views = random_views(UNSEEN, s.size, s.seed + 1)
    part = max(s.size // SHEET_PX, 1)
    size = s.size // part
    drawn = {**meshes, "truth": target}
    wires = {}
    with DressiAD(s.device) as ad:
        for name, mesh in drawn.items():
            made = surface_pictures(ad, mesh, unseen.matrices[:2], (size, size), background=0.0)
            wires[name] = made.wire
    rows: dict[str, list[np.ndarray]] = {}
    for k in range(2):
        for what, key in (("without\nmap", "plain"), ("with\nmap", "mapped")):
            lit = [_small(found[n][key][k], part) for n in meshes]
            rows[f"view {k + 1}\n{what}"] = [*lit, _small(found["ours"]["true"][k], part)]
        rows[f"view {k + 1}\nwire frame"] = [wires[n][k] for n in drawn]
    return contact_sheet(rows, columns=list(drawn))


def _small(image: np.ndarray, part: int) -> np.ndarray:
    """Return (h, w, 3): the means of part x part pixels of an image of one component."""
    n = len(image) // part
    mean = image[: n * part, : n * part].reshape(n, part, n, part).mean((1, 3))
    return np.repeat(mean[..., None], 3, axis=2)
