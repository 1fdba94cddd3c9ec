"""``dressi experiment normal_map``: a tangent-space normal map from pictures (paper, appendix:
normal map optimization).

A pear with painted skin, seen from all around, lit by two flashes beside each camera. The pictures
are rendered with a relief as the true map; the fit starts from a flat one and takes steps of Adam
on the squared difference of the pictures, each vector made of unit length after each step, as in
the paper. Figure: the paper's dissimilarity, the mean of 1 - cos over texels that are not flat in
the true map, here over those that the pictures show.

Differs: the paper lights by a uniform environment, which it names as a reason why the dissimilarity
does not go to zero: under it a normal hardly changes a matte surface.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from dressi.ad import Adam, F, Variable, exponential_decay
from dressi.ad.vtype import VEC3
from dressi.apps.demo import centred, load_target
from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.engine import DressiAD
from dressi.errors import DressiError, GraphError, LoadError
from dressi.render.fit import l2_loss, psnr, total_variation
from dressi.render.io import contact_sheet
from dressi.render.io.images import srgb_to_linear
from dressi.render.raster import HardRaster, build_hard_raster
from dressi.render.scene import Mesh, make_pear
from dressi.render.shading import (
    DirectionalLight,
    PbrMaterial,
    eye_position,
    material_surface,
    pbr,
    surface_uv,
    vertex_normals,
)
from dressi.testing.views import MeshLeaves, mesh_leaves, send_mesh, surround_views

HELP = "a normal map from pictures: cosine dissimilarity over 1200 iterations"

FLAT = np.array([0.5, 0.5, 1.0], np.float32)
"""The texel that leaves a normal as it is."""

FLASHES = (((-0.7, 0.6), (3.2, 2.9, 2.4)), ((0.8, -0.4), (1.6, 1.9, 2.4)))
"""Beside the camera, in lengths of its way to the object: right, up; and colour times intensity.
Two, so that what one leaves in the dark the other lights."""

ROUGHNESS = 0.45

SEEN = 0.5
"""Sum over all pictures of a texel's weights in pixels, from which on it counts as seen."""

NOT_FLAT = 1e-3
"""1 - cos to the flat normal, from which on a texel of the true map is not flat: 2.6 degrees."""


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    target: str | None = option(None, "OBJ file with UVs (default: a pear built by code)")
    iterations: int = option(1200, "of the fit", smoke=30, least=2)
    views: int = option(16, "cameras around the object", smoke=3, least=1)
    size: int = option(192, "pixels on a side", smoke=32, least=8)
    map_size: int = option(256, "texels on a side of the normal map", smoke=32, least=4)
    lr: float = option(0.02, "learning rate at the start, texels in [0, 1]", smoke=0.05, least=0.0)
    tv: float = option(1e-3, "weight of the total variation of the map", least=0.0)


@dataclass(frozen=True)
class Scene:
    """A mesh with its albedo and its cameras. eyes: (n, 3). flashes: for each, (n, 3), the way its
    light travels."""

    mesh: Mesh
    albedo: np.ndarray
    matrices: np.ndarray
    flashes: tuple[np.ndarray, ...]


def run(settings: Settings) -> Result:
    """Run the fit, measured as it goes. Raises LoadError, GraphError where the target has no
    UVs."""
    fit = _fit(settings)
    ratio = fit.curve[-1] / fit.curve[0]
    angle = np.degrees(np.arccos(np.clip(1 - dissimilarity(fit.true, fit.got), -1, 1)))
    figures = {
        "dissimilarity_start": fit.curve[0],
        "dissimilarity_end": fit.curve[-1],
        "ratio": ratio,
        "iterations_to_20_percent": _reached(fit.measured, fit.curve, 0.2 * fit.curve[0]),
        "dissimilarity_all_seen_start": fit.everywhere[0],
        "dissimilarity_all_seen_end": fit.everywhere[-1],
        "median_angle_deg": float(np.median(angle[fit.counted])),
        "texels_seen": float(fit.seen.mean()),
        "texels_counted": float(fit.counted.mean()),
        "psnr_start_db": _psnr(fit.first, fit.targets),
        "psnr_end_db": _psnr(fit.last, fit.targets),
        "curve": {"iterations": fit.measured.tolist(), "dissimilarity": fit.curve},
    }
    conditions = [
        (f"the dissimilarity falls below 20 % of its start: {100 * ratio:.1f} %", ratio < 0.2)
    ]

    def plot(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.semilogy(fit.measured, fit.curve, label="texels that are not flat (the paper's)")
        axes.semilogy(fit.measured, fit.everywhere, label="all texels seen")
        axes.axhline(0.2 * fit.curve[0], color="grey", linewidth=0.8, label="20 % of the start")
        axes.set_xlabel("iteration")
        axes.set_ylabel("mean of 1 - cos")
        axes.grid(True, which="both", alpha=0.3)
        axes.legend()

    pictures = {
        "maps": _maps(fit.true, np.broadcast_to(FLAT, fit.true.shape), fit.got, fit.seen),
        "renderings": _renderings(fit.targets, fit.first, fit.last),
    }
    return Result(figures, pictures, {"dissimilarity": plot}, conditions)


@dataclass(frozen=True, eq=False)
class _Fit:
    """What a fit leads to. true, got: maps (H, W, 3). seen, counted: masks of texels (H, W): those
    that a view shows, and those of them that are not flat. targets, first, last: pictures (views,
    H, W, 3). curve, everywhere: mean dissimilarity after each of the measured iterations, of the
    texels that are counted and of all that are seen."""

    true: np.ndarray
    got: np.ndarray
    seen: np.ndarray
    counted: np.ndarray
    targets: np.ndarray
    first: np.ndarray
    last: np.ndarray
    measured: np.ndarray
    curve: list[float]
    everywhere: list[float]


def _fit(settings: Settings) -> _Fit:
    scene = make_scene(settings)
    true = relief(settings.map_size)
    n_measured = min(settings.iterations, 60)
    measured = np.unique(np.linspace(0, settings.iterations, n_measured + 1).astype(int))
    shape = (settings.map_size, settings.map_size)
    size = (settings.size, settings.size)
    leaves = mesh_leaves(scene.mesh, len(scene.matrices))
    normal_map = Variable(VEC3, shape, requires_grad=True, name="normal_map")
    wanted = Variable(VEC3, size, len(scene.matrices), name="target")
    raster = build_hard_raster(leaves.pos, leaves.faces, leaves.matrix, size)
    picture = draw(leaves, raster, scene, normal_map)
    # Adam's steps do not depend on the scale; its eps, 1e-8, is small beside these gradients.
    loss = l2_loss(picture, wanted) * float(size[0] * size[1] * len(scene.matrices))
    if settings.tv > 0:
        loss = loss + total_variation(normal_map) * (settings.tv * shape[0] * shape[1])
    with DressiAD(settings.device) as ad:
        send_mesh(ad, leaves, scene.mesh, scene.matrices)
        seen = texels_seen(ad, leaves, raster, shape) >= SEEN
        ad.send_img(normal_map, true)
        targets = ad.recv_img(picture)
        ad.send_img(wanted, targets)
        start = np.broadcast_to(FLAT, true.shape)
        ad.send_img(normal_map, start)
        first = ad.recv_img(picture)
        counted = seen & (dissimilarity(true, start) > NOT_FLAT)
        if not counted.any():
            raise DressiError("normal_map: no texel of the relief is seen; --map-size or --views?")
        ad.set_loss_var(loss)
        ad.set_optimizer(UnitAdam(settings.lr, settings.iterations))
        curve, everywhere = [], []
        for k, at in enumerate(tqdm(measured, desc="normal map", unit="x", leave=False)):
            if k:
                ad.exec_steps(int(at - measured[k - 1]))
            off = dissimilarity(true, ad.recv_img(normal_map))
            curve.append(float(off[counted].mean()))
            everywhere.append(float(off[seen].mean()))
        got, last = ad.recv_img(normal_map), ad.recv_img(picture)
    if not np.isfinite(curve).all():
        raise DressiError("normal_map: the map became no number")
    return _Fit(true, got, seen, counted, targets, first, last, measured, curve, everywhere)


def make_scene(settings: Settings) -> Scene:
    """Return the pear, or the target; cameras all around and their flashes."""
    if settings.target is not None and not Path(settings.target).is_file():
        raise LoadError(f"{settings.target}: no such file", settings.target)
    coarse = (40, 28, 64) if settings.smoke else (110, 72, 512)
    mesh, albedo = load_target(settings.target) if settings.target else make_pear(*coarse)
    if mesh.uvs is None or np.ptp(mesh.uvs) == 0:
        raise GraphError(f"normal_map: mesh '{mesh.name}' has no UVs, which a map needs")
    cameras = surround_views(settings.views, 4.0, 31.0)
    towards = []
    for camera in cameras:
        right, up, back = camera.view[:3, :3]
        towards.append([-(back + x * right + y * up) for (x, y), _ in FLASHES])
    flashes = tuple(np.array(towards).swapaxes(0, 1))
    return Scene(centred(mesh)[0], albedo, np.stack([c.matrix for c in cameras]), flashes)


def draw(leaves: MeshLeaves, raster: HardRaster, scene: Scene, normal_map: Variable) -> Variable:
    """Return VEC3, layers = views: the object under its flashes, over black. Gradient to the
    map."""
    lights = [
        DirectionalLight(F.leaf(travel[:, None, None], VEC3), colour)
        for travel, (_, colour) in zip(scene.flashes, FLASHES, strict=True)
    ]
    material = PbrMaterial(
        metallic=0.0,
        roughness=ROUGHNESS,
        albedo_map=F.leaf(scene.albedo, VEC3),
        normal_map=normal_map,
    )
    surface = material_surface(
        raster.peel,
        leaves.pos,
        leaves.faces,
        eye_position(leaves.matrix),
        material,
        leaves.uv,
        leaves.uv_faces,
        vertex_normals(leaves.pos, leaves.faces),
    )
    return F.where(raster.mask, pbr(surface, lights), 0.0)


class UnitAdam:
    """Adam with a rate that falls to a tenth; texels are made unit vectors again after each step
    (paper: "we normalize the vector corresponding to each pixel every iteration")."""

    def __init__(self, lr: float, iterations: int) -> None:
        self.adam = Adam(exponential_decay(lr, lr / 10, iterations), beta2=0.99)

    def __call__(self, xs: Sequence[Variable], gxs: Sequence[Variable]) -> list[Variable]:
        return [F.normalize(x * 2.0 - 1.0) * 0.5 + 0.5 for x in self.adam(xs, gxs)]


def texels_seen(
    ad: DressiAD, leaves: MeshLeaves, raster: HardRaster, shape: tuple[int, int]
) -> np.ndarray:
    """Return (H, W): over all pixels, the sum of a texel's weights in what they read. It is the
    gradient of the sum of a texture read."""
    assert leaves.uv is not None and leaves.uv_faces is not None
    probe = Variable(VEC3, shape, requires_grad=True, name="probe")
    ad.send_img(probe, np.zeros((*shape[::-1], 3), np.float32))
    read = F.texture(probe, surface_uv(raster.peel, leaves.uv, leaves.uv_faces))
    ad.set_loss_var(F.where(raster.mask, read, 0.0))
    return ad.recv_grad(probe)[..., 0]


def dissimilarity(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return (H, W) float64 1 - cos between the vectors of two maps in [0, 1]; 1 for a vector of no
    length."""
    x, y = (np.asarray(m, np.float64) * 2 - 1 for m in (a, b))
    length = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)
    return 1 - np.divide((x * y).sum(-1), length, out=np.zeros_like(length), where=length > 0)


def relief(size: int) -> np.ndarray:
    """Return (size, size, 3) float32: the true map: flutes, dimples and a weave, in bands with flat
    ones between; no seam at the left and right."""
    fine = (np.arange(size) + 0.5) / size
    u, v = np.meshgrid(fine, fine)

    def band(low: float, high: float) -> np.ndarray:
        edge = np.clip(np.minimum(v - low, high - v) / 0.03, 0, 1)
        return edge * edge * (3 - 2 * edge)

    flutes = np.cos(2 * np.pi * 20 * u + 6 * np.sin(2 * np.pi * 2 * v)) * 0.008
    x, y = u * 20, v * 23
    x = x + 0.5 * (np.floor(y) % 2)
    away = np.hypot(x - np.floor(x) - 0.5, (y - np.floor(y) - 0.5) * 0.87)
    dimples = -0.022 * np.exp(-((away / 0.3) ** 4))
    weave = 0.009 * np.sin(2 * np.pi * (12 * u + 10 * v)) * np.sin(2 * np.pi * (12 * u - 10 * v))
    height = flutes * band(0.16, 0.36) + dimples * band(0.4, 0.62) + weave * band(0.66, 0.9)
    step = 1 / size
    du = (np.roll(height, -1, 1) - np.roll(height, 1, 1)) / (2 * step)
    dv = np.gradient(height, step, axis=0)
    # Against the slope; y of the tangent space points up in the texture, v down.
    normal = np.stack([-du, dv, np.ones_like(du)], -1)
    normal /= np.linalg.norm(normal, axis=-1, keepdims=True)
    return (normal * 0.5 + 0.5).astype(np.float32)


def _reached(at: np.ndarray, curve: list[float], level: float) -> int:
    """Return the first measured iteration at or below a level, -1 for none."""
    below = np.flatnonzero(np.array(curve) <= level)
    return int(at[below[0]]) if len(below) else -1


def _psnr(images: np.ndarray, targets: np.ndarray) -> float:
    """Return the PSNR over all views."""
    return psnr(np.concatenate(list(images)), np.concatenate(list(targets)))


SHOWN = 3
"""Views on the sheet."""


def _maps(true: np.ndarray, start: np.ndarray, got: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Return the maps as image viewers show them, and 1 - cos, times 4."""
    shown = [np.asarray(srgb_to_linear(np.clip(m, 0, 1))) for m in (true, start, got)]
    off = np.where(seen, dissimilarity(true, got), 0.0) * 4
    columns = ("true", "start", "recovered", "4 (1 - cos) where seen")
    return contact_sheet({"normal map": [*shown, off]}, columns=columns)


def _renderings(targets: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    views = np.unique(np.linspace(0, len(targets) - 1, SHOWN).astype(int))
    rows = {
        f"view {k + 1}": [targets[k], first[k], last[k], np.abs(last[k] - targets[k]) * 4]
        for k in views
    }
    return contact_sheet(rows, columns=("true map", "flat map", "recovered", "4 |difference|"))
