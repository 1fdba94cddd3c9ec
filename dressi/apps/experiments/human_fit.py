"""The fit of the human experiment: what skin is made of, from four views.

In: the human, a setting. Out: ``HumanFit``. Width of the scattering, roughness and the colours of
the texture are fitted to pictures that the same graph drew; geometry, lights, cameras are known.
Without hair: it would hide skin, and a picture of hair has one view.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from tqdm import tqdm

from dressi.ad import Adam, F, ParameterGroups, Variable
from dressi.ad.vtype import VEC3
from dressi.apps.experiments.human_parts import Human
from dressi.apps.experiments.human_scene import (
    Setting,
    build_human_picture,
    skin_texture,
)
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.packing import Options
from dressi.render.camera import Camera, look_at, perspective
from dressi.render.fit import l2_loss
from dressi.render.io import contact_sheet

if TYPE_CHECKING:
    from dressi.apps.experiments.human import Settings

YAWS_DEG = (-50.0, -15.0, 15.0, 50.0)
MAP_SIZE = (192, 96)
"""(width, height) of the texture that is fitted: about a texel per pixel of the views."""

TRUE = {"skin_width": 0.03, "skin_roughness": 0.48}
START = {"skin_width": 0.08, "skin_roughness": 0.75}
RANGES = {"skin_width": (0.004, 0.15), "skin_roughness": (0.05, 1.0), "skin_map": (0.0, 1.0)}
RATES = {"skin_width": 2.5e-3, "skin_roughness": 1e-2, "skin_map": 2e-2}

ALLOWED_WIDTH, ALLOWED_ROUGHNESS, ALLOWED_COLOR, END_DB = 0.1, 0.02, 0.02, 40.0
"""Relative error of the width; errors of the roughness and, on average over the texels that the
views show, of the colour; PSNR that the fit reaches."""


@dataclass(frozen=True)
class HumanFit:
    """figures, conditions: for the result. rows: of pictures (start, fitted, target), per view."""

    figures: dict[str, Any]
    conditions: list[tuple[str, bool]]
    rows: list[tuple[np.ndarray, np.ndarray, np.ndarray]]


def fit_views() -> list[Camera]:
    """Return four cameras that see the face."""
    cameras = []
    for yaw in YAWS_DEG:
        a = np.radians(yaw)
        eye = (5.0 * np.sin(a), 0.1, 5.0 * np.cos(a))
        lens = perspective(24.0, 1.0, 2.0, 9.0)
        cameras.append(Camera(look_at(eye, (0.0, -0.25, 0.3)), lens, f"{yaw:g} degrees"))
    return cameras


def small_map() -> np.ndarray:
    """Return the skin's colours at MAP_SIZE, (H, W, 3), linear."""
    full = skin_texture()
    channels = [
        np.asarray(Image.fromarray(full[..., k]).resize(MAP_SIZE, Image.Resampling.BOX))
        for k in range(3)
    ]
    return np.stack(channels, axis=-1)


def bounded(xs: Sequence[Variable], gxs: Sequence[Variable]) -> list[Variable]:
    """Adam with a rate for each parameter, which then stays in its range."""
    groups = ParameterGroups({name: Adam(rate) for name, rate in RATES.items()})
    return [F.clamp(new, *RANGES[x.name or ""]) for x, new in zip(xs, groups(xs, gxs), strict=True)]


def fit_skin(human: Human, setting: Setting, settings: Settings) -> HumanFit:
    """Fit the skin to four views of it."""
    size = (settings.fit_size, settings.fit_size)
    setting = replace(setting, cameras=fit_views(), size=size)
    true_map = small_map()
    picture = build_human_picture(human, None, setting, skin_map=true_map)
    leaves = {"skin_width": picture.width, "skin_roughness": picture.roughness}
    for leaf in (*leaves.values(), picture.skin_map):
        leaf.requires_grad = True
    target = Variable(VEC3, size, layers=len(YAWS_DEG), name="target")
    loss = l2_loss(picture.color, target)
    begin = time.perf_counter()
    grey = np.ascontiguousarray(np.broadcast_to(true_map.mean(axis=(0, 1)), true_map.shape))
    with DressiAD(settings.device, Options(lowering="compute")) as ad:
        ad.send_img(target, np.zeros((len(YAWS_DEG), *size, 3), np.float32))
        ad.set_loss_var(loss)
        ad.set_optimizer(bounded)
        ad.state_dict()  # builds: what is drawn from here on reads the step's leaves
        wanted = ad.recv_img(picture.color)
        ad.send_img(target, wanted)
        for name, leaf in leaves.items():
            ad.send_img(leaf, START[name])
        ad.send_img(picture.skin_map, grey)
        first = ad.recv_img(picture.color)
        chunk = max(settings.iterations // 20, 1)
        for done in tqdm(range(0, settings.iterations, chunk), desc="skin", leave=False):
            ad.exec_steps(min(chunk, settings.iterations - done))
        last = ad.recv_img(picture.color)
        numbers = {k: float(ad.recv_img(v).reshape(-1)[0]) for k, v in leaves.items()}
        found = ad.recv_img(picture.skin_map)
    # Adam moves every texel that has a gradient.
    seen = np.abs(found - grey).max(axis=-1) > 1e-6
    if not np.isfinite(last).all():
        raise DressiError("human: the fitted picture became no number")
    return summary(first, last, wanted, numbers, found, true_map, seen, begin)


def summary(
    first: np.ndarray,
    last: np.ndarray,
    wanted: np.ndarray,
    numbers: dict[str, float],
    found: np.ndarray,
    true_map: np.ndarray,
    seen: np.ndarray,
    begin: float,
) -> HumanFit:
    """Return figures and conditions. first, last, wanted: pictures (views, H, W, 3). numbers: those
    found, by name. found, true_map: (h, w, 3) colours; seen: (h, w), texels that count. begin: of
    the fit, by ``time.perf_counter``."""
    width = abs(numbers["skin_width"] / TRUE["skin_width"] - 1.0)
    rough = abs(numbers["skin_roughness"] - TRUE["skin_roughness"])
    color = float(np.abs(found - true_map)[seen].mean()) if seen.any() else float("inf")
    before, after = psnr(first, wanted), psnr(last, wanted)
    figures = {
        "fit_seconds": time.perf_counter() - begin,
        "fit_psnr_start_db": before,
        "fit_psnr_db": after,
        "fit_width_mm": 100.0 * numbers["skin_width"],
        "fit_width_error": width,
        "fit_roughness": numbers["skin_roughness"],
        "fit_roughness_error": rough,
        "fit_color_error": color,
        "fit_texels_seen": int(seen.sum()),
    }
    conditions = [
        (f"the fitted skin looks the same: PSNR >= {END_DB:g} dB: {after:.1f} dB (from "
         f"{before:.1f})", after >= END_DB),
        (f"width of the scattering within {ALLOWED_WIDTH:.0%}: {width:.1%}",
         width <= ALLOWED_WIDTH),
        (f"roughness within {ALLOWED_ROUGHNESS:g}: {rough:.3f}", rough <= ALLOWED_ROUGHNESS),
        (f"colours of the texels seen within {ALLOWED_COLOR:g}: {color:.3f}",
         color <= ALLOWED_COLOR),
    ]  # fmt: skip
    rows = [(first[k], last[k], wanted[k]) for k in range(len(YAWS_DEG))]
    return HumanFit(figures, conditions, rows)


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    """Return the PSNR in dB of two linear pictures, clipped to [0, 1]."""
    off = (np.clip(a, 0, 1) - np.clip(b, 0, 1)).astype(np.float64)
    return float(-10 * np.log10(max((off**2).mean(), 1e-12)))


def fit_sheet(fit: HumanFit) -> np.ndarray:
    """Return start, fitted, target, and ten times the difference, a row per view."""
    rows = {
        f"{yaw:g} degrees": [*row, np.abs(row[1] - row[2]) * 10.0]
        for yaw, row in zip(YAWS_DEG, fit.rows, strict=True)
    }
    return contact_sheet(rows, columns=("start", "fitted", "target", "10 |difference|"))
