"""``dressi experiment normal_map``: tangent-space normal maps from pictures (paper, appendix:
normal map optimization).

Two models, a pear with a relief built by code and a scanned head with its own map, under uniform
grey light, a new view in each iteration. The fit starts flat and takes steps of Adam on the squared
difference of the pictures, each vector made of unit length after each step, as in the paper.
Figure: the paper's dissimilarity, the mean of 1 - cos over texels that are not flat in the true
map. Then the two limits that the paper names: the same fit under two flashes beside the camera,
which tell more than uniform light does where a surface scatters them (of metal they do not); and
how far off texels are that few pixels show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from dressi.ad import Adam, F, Variable, exponential_decay
from dressi.ad.vtype import VEC3
from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.normal_claims import conditions
from dressi.apps.experiments.normal_scenes import FLAT, MODELS, Model, load_model
from dressi.apps.experiments.parts import kept_parts
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.render import ibl
from dressi.render.camera import Camera
from dressi.render.fit import l2_loss, psnr, total_variation
from dressi.render.io import contact_sheet
from dressi.render.io.images import srgb_to_linear
from dressi.render.raster import HardRaster, build_hard_raster
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

HELP = "normal maps from pictures under grey light: cosine dissimilarity, and where that is limited"

GREY = 0.8
"""Radiance of the uniform environment."""

FLASHES = (((-0.7, 0.6), (3.2, 2.9, 2.4)), ((0.8, -0.4), (1.6, 1.9, 2.4)))
"""Beside the camera, in lengths of its way to the object: right, up; and colour times intensity.
Two, so that what one leaves in the dark the other lights."""

LIGHTS = ("grey", "flashes")

ROUGHNESS = 0.45

SEEN = 0.5
"""Sum over the pictures of MEASURED views of a texel's weights in pixels, from which on it counts
as seen."""

MEASURED = 48
"""Views that say how much of a texel is seen; a fit has one per iteration."""

NOT_FLAT = 1e-3
"""1 - cos to the flat normal, from which on a texel of the true map is not flat: 2.6 degrees."""

SHOWN = 3
"""Views on the sheet, and that the PSNR is over."""


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    models: tuple[str, ...] = option(
        tuple(MODELS),
        f"{', '.join(MODELS)}, a glTF with a normal map, or an OBJ with UVs",
        smoke=("pear",),
    )
    iterations: int = option(
        1200, "of each fit, each with a view of its own", smoke=30, least=2, quick=300
    )
    size: int = option(192, "pixels on a side", smoke=32, least=8, quick=96)
    map_size: int = option(256, "texels on a side of the normal map", smoke=32, least=4, quick=96)
    lr: float = option(0.02, "learning rate at the start, texels in [0, 1]", smoke=0.05, least=0.0)
    tv: float = option(1e-3, "weight of the total variation of the map", least=0.0)


@dataclass(frozen=True)
class Lights:
    """Leaves of the flashes: for each, VEC3 @ 1x1, layers = views, the way its light travels."""

    flashes: tuple[Variable, ...]

    def send(self, ad: DressiAD, cameras: Sequence[Camera]) -> None:
        """Send the flashes of these cameras."""
        for leaf, ((x, y), _) in zip(self.flashes, FLASHES, strict=True):
            travel = []
            for camera in cameras:
                right, up, back = camera.view[:3, :3]
                travel.append(-(back + x * right + y * up))
            data = np.array(travel, np.float32)
            ad.send_img(leaf, data[0] if len(cameras) == 1 else data[:, None, None])


def make_lights(n_views: int) -> Lights:
    """Return leaves for n views."""
    return Lights(tuple(Variable(VEC3, layers=n_views, name=f"flash{k}") for k in range(2)))


def run(settings: Settings) -> Result:
    """Run all fits, measured as they go. Raises LoadError, GraphError where a model has no UVs."""
    models = {n: load_model(n, settings.map_size, settings.smoke) for n in settings.models}
    work = {
        f"{Path(name).stem}, {light}": partial(fit_map, settings, model, light)
        for name, model in models.items()
        for light in LIGHTS
    }
    fits = kept_parts(settings, work, "fits")
    figures: dict[str, Any] = {}
    for label, fit in fits.items():
        key = label.replace(", ", "_")
        figures |= {f"{key}_{k}": v for k, v in _figures(fit).items()}
    names = [Path(name).stem for name in settings.models]
    claims, ours = conditions(figures, names)
    return Result(
        figures,
        {"maps": _maps(fits), "renderings": _renderings(fits)},
        {"dissimilarity": partial(_plot, fits=fits)},
        claims,
        ours=ours,
        notes=["head: Infinite, 3D Head Scan by Lee Perry-Smith, www.triplegangers.com, CC BY 3.0"]
        * ("head" in names),
    )


def _figures(fit: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of one fit."""
    off, weight = dissimilarity(fit["true"], fit["got"]), fit["weight"]
    seen = weight >= SEEN
    rough = dissimilarity(fit["true"], np.broadcast_to(FLAT, fit["true"].shape)) > NOT_FLAT
    counted = seen & rough
    some = rough & (weight > 0)
    low, high = np.quantile(weight[some], (0.25, 0.75))
    angle = np.degrees(np.arccos(np.clip(1 - off, -1, 1)))
    return {
        "dissimilarity_start": fit["curve"][0],
        "dissimilarity_end": fit["curve"][-1],
        "ratio": fit["curve"][-1] / fit["curve"][0],
        "falls": int((np.diff(fit["curve"]) < 0).sum()),
        "measurements": len(fit["curve"]) - 1,
        "dissimilarity_least_seen": float(off[some & (weight <= low)].mean()),
        "dissimilarity_most_seen": float(off[some & (weight >= high)].mean()),
        "median_angle_deg": float(np.median(angle[counted])),
        "texels_seen": float(seen.mean()),
        "texels_counted": float(counted.mean()),
        **{f"psnr_{k}_db": fit[f"psnr_{k}"] for k in ("start", *LIGHTS)},
        "curve": {"iterations": fit["measured"], "dissimilarity": fit["curve"]},
    }


def fit_map(settings: Settings, model: Model, light: str) -> dict[str, Any]:
    """Fit a map under ``grey`` or ``flashes``. Return true, got: maps (H, W, 3); weight: (H, W)
    pixels of MEASURED views; curve: mean dissimilarity of texels that are seen and not flat after
    each of the measured iterations; targets, first, last: pictures (SHOWN, H, W, 3) under the
    light of the fit, last_KEY under each light, and PSNR."""
    order = np.random.default_rng(0).permutation(settings.iterations)
    cameras = [surround_views(settings.iterations, 4.0, 31.0)[k] for k in order]
    measured = np.linspace(0, settings.iterations, min(settings.iterations, 60) + 1).astype(int)
    shape, size = (settings.map_size,) * 2, (settings.size,) * 2
    leaves, lights = mesh_leaves(model.mesh, 1), make_lights(1)
    normal_map = Variable(VEC3, shape, requires_grad=True, name="normal_map")
    raster = build_hard_raster(leaves.pos, leaves.faces, leaves.matrix, size)
    maps = (normal_map, F.leaf(model.true, VEC3))
    picture, target = (draw(leaves, raster, model, m, light, lights) for m in maps)
    # Adam's steps do not depend on the scale; its eps, 1e-8, is small beside these gradients.
    loss = l2_loss(picture, target) * float(size[0] * size[1])
    if settings.tv > 0:
        loss = loss + total_variation(normal_map) * (settings.tv * shape[0] * shape[1] / MEASURED)
    start = np.broadcast_to(FLAT, model.true.shape)
    weight = texels_seen(settings, model, cameras[:: max(len(cameras) // MEASURED, 1)][:MEASURED])
    counted = (weight >= SEEN) & (dissimilarity(model.true, start) > NOT_FLAT)
    if not counted.any():
        raise DressiError("normal_map: no texel of the relief is seen; --map-size or --iterations?")
    curve = []
    with DressiAD(settings.device) as ad:
        send_mesh(ad, leaves, model.mesh, cameras[0].matrix[None])
        lights.send(ad, cameras[:1])
        ad.send_img(normal_map, start)
        ad.set_loss_var(loss)
        ad.set_optimizer(UnitAdam(settings.lr, settings.iterations))
        for i in tqdm(range(settings.iterations + 1), desc=light, unit="it", leave=False):
            if i in measured:
                off = dissimilarity(model.true, ad.recv_img(normal_map))
                curve.append(float(off[counted].mean()))
            if i == settings.iterations:
                break
            ad.send_img(leaves.matrix, cameras[i].matrix)
            lights.send(ad, cameras[i : i + 1])
            ad.exec_step()
        got = ad.recv_img(normal_map)
    if not np.isfinite(curve).all():
        raise DressiError("normal_map: the map became no number")
    shown = pictures(settings, model, {"true": model.true, "start": start, "got": got})
    levels = {k: _psnr(shown[f"got, {k}"], shown[f"true, {k}"]) for k in LIGHTS}
    return {
        "true": model.true,
        "got": got,
        "weight": weight,
        "measured": measured.tolist(),
        "curve": curve,
        "psnr_start": _psnr(shown[f"start, {light}"], shown[f"true, {light}"]),
        **{f"psnr_{k}": v for k, v in levels.items()},
        **{k: shown[f"{name}, {light}"] for k, name in PICTURES.items()},
    }


PICTURES = {"targets": "true", "first": "start", "last": "got"}


def pictures(
    settings: Settings, model: Model, maps: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return (SHOWN, S, S, 3) under each light with each map, by ``MAP, LIGHT``."""
    cameras = surround_views(SHOWN + 2, 4.0, 31.0)[1:-1]
    size = (settings.size, settings.size)
    leaves, lights = mesh_leaves(model.mesh, SHOWN), make_lights(SHOWN)
    normal_map = Variable(VEC3, (settings.map_size,) * 2, name="normal_map")
    raster = build_hard_raster(leaves.pos, leaves.faces, leaves.matrix, size)
    drawn = [draw(leaves, raster, model, normal_map, light, lights) for light in LIGHTS]
    out = {}
    with DressiAD(settings.device) as ad:
        send_mesh(ad, leaves, model.mesh, np.stack([c.matrix for c in cameras]))
        lights.send(ad, cameras)
        for name, one in maps.items():
            ad.send_img(normal_map, one)
            for light, picture in zip(LIGHTS, ad.recv_imgs(drawn), strict=True):
                out[f"{name}, {light}"] = picture
    return out


def draw(
    leaves: MeshLeaves,
    raster: HardRaster,
    model: Model,
    normal_map: Variable,
    light: str,
    lights: Lights,
) -> Variable:
    """Return VEC3, layers = views: the object under its light, over black. Gradient to the map."""
    material = PbrMaterial(
        metallic=model.metallic,
        roughness=ROUGHNESS,
        albedo_map=F.leaf(model.albedo, VEC3),
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
    if light == "grey":
        uniform = F.leaf(np.full((6, 2, 2, 3), GREY, np.float32), VEC3)
        lit = pbr(surface, environment=ibl.build_environment(uniform))
    else:
        pairs = zip(lights.flashes, FLASHES, strict=True)
        lit = pbr(surface, [DirectionalLight(travel, colour) for travel, (_, colour) in pairs])
    return F.where(raster.mask, lit, 0.0)


class UnitAdam:
    """Adam with a rate that falls to a tenth; texels are made unit vectors again after each step
    (paper: "we normalize the vector corresponding to each pixel every iteration")."""

    def __init__(self, lr: float, iterations: int) -> None:
        self.adam = Adam(exponential_decay(lr, lr / 10, iterations), beta2=0.99)

    def __call__(self, xs: Sequence[Variable], gxs: Sequence[Variable]) -> list[Variable]:
        return [F.normalize(x * 2.0 - 1.0) * 0.5 + 0.5 for x in self.adam(xs, gxs)]


def texels_seen(settings: Settings, model: Model, cameras: Sequence[Camera]) -> np.ndarray:
    """Return (H, W): over all pixels of these views, the sum of a texel's weights in what they
    read. It is the gradient of the sum of a texture read."""
    shape, size = (settings.map_size,) * 2, (settings.size,) * 2
    leaves = mesh_leaves(model.mesh, len(cameras))
    assert leaves.uv is not None and leaves.uv_faces is not None
    raster = build_hard_raster(leaves.pos, leaves.faces, leaves.matrix, size)
    probe = Variable(VEC3, shape, requires_grad=True, name="probe")
    read = F.texture(probe, surface_uv(raster.peel, leaves.uv, leaves.uv_faces))
    with DressiAD(settings.device) as ad:
        send_mesh(ad, leaves, model.mesh, np.stack([c.matrix for c in cameras]))
        ad.send_img(probe, np.zeros((*shape[::-1], 3), np.float32))
        ad.set_loss_var(F.where(raster.mask, read, 0.0))
        return ad.recv_grad(probe)[..., 0]


def dissimilarity(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return (H, W) float64 1 - cos between the vectors of two maps in [0, 1]; 1 for a vector of no
    length."""
    x, y = (np.asarray(m, np.float64) * 2 - 1 for m in (a, b))
    length = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)
    return 1 - np.divide((x * y).sum(-1), length, out=np.zeros_like(length), where=length > 0)


def _psnr(images: np.ndarray, targets: np.ndarray) -> float:
    """Return the PSNR over all views."""
    return psnr(np.concatenate(list(images)), np.concatenate(list(targets)))


def _plot(figure: Any, fits: dict[str, dict[str, Any]]) -> None:
    axes = figure.add_subplot()
    for name, fit in fits.items():
        axes.semilogy(fit["measured"], fit["curve"], label=name)
    axes.set(xlabel="iteration", ylabel="mean of 1 - cos, texels seen that are not flat")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()


def _maps(fits: dict[str, dict[str, Any]]) -> np.ndarray:
    """Return the maps as image viewers show them, and 1 - cos, times 4."""
    rows = {}
    for name, fit in fits.items():
        true, got = fit["true"], fit["got"]
        flat = np.broadcast_to(FLAT, true.shape)
        shown = [np.asarray(srgb_to_linear(np.clip(m, 0, 1))) for m in (true, flat, got)]
        off = np.where(fit["weight"] >= SEEN, dissimilarity(true, got), 0.0) * 4
        rows[name.replace(", ", "\n")] = [*shown, off]
    return contact_sheet(rows, columns=("true", "start", "recovered", "4 (1 - cos) where seen"))


def _renderings(fits: dict[str, dict[str, Any]]) -> np.ndarray:
    rows = {}
    for name, fit in fits.items():
        for k in range(min(2, SHOWN)):
            target, first, last = (fit[n][k] for n in PICTURES)
            label = f"{name}, {k + 1}".replace(", ", "\n")
            rows[label] = [target, first, last, np.abs(last - target) * 4]
    return contact_sheet(rows, columns=("true map", "flat map", "recovered", "4 |difference|"))
