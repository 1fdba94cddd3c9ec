"""``dressi experiment inverse_uv``: the paper's backward of texture sampling beside the exact one
(paper, 3.3.2).

The texture of the pear is fitted to pictures of it, its shape known. Backward: ``exact``, every
pixel adds to the four texels that it read, by float atomics; ``inverse_uv``, each texel takes one
of the pixels that landed on it. Sampling order: constant, the same pixels in every step, which the
paper says leaves texels without any; or moved by Sobol points, its remedy. A texel was visited if
its value changed. PSNR is of pictures from other views, many samples per pixel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dressi.apps.demo import centred
from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.parts import kept_parts
from dressi.apps.fitting import TextureSchedule, fit_texture
from dressi.engine import DressiAD
from dressi.kinds import BACKWARDS, TextureBackward
from dressi.render.fit import psnr
from dressi.render.io import contact_sheet
from dressi.render.scene import Mesh, make_pear
from dressi.testing.views import render, spread_views, surround_views

HELP = "the inverse UV texture beside exact gradients: texels visited, PSNR, time per step"

START = 0.5
"""Of all texels: a grey that neither end of [0, 1] stops."""

SAMPLES = 4
"""Per pixel and axis, of the pictures that a fit sees and is measured by."""

CLOSE_DB = 1.0
"""Ours: how much lower the PSNR of inverse UV may be."""


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    iterations: int = option(200, "of each fit", smoke=3, least=1)
    texels: int = option(256, "on a side of the texture", smoke=16, quick=128, least=4)
    size: int = option(128, "pixels on a side of a view", smoke=16, quick=64, least=8)
    views: int = option(6, "that a fit sees, and as many that it does not", smoke=2, least=1)


Case = tuple[TextureBackward, bool]
CASES: tuple[Case, ...] = tuple((b, sobol) for b in BACKWARDS for sobol in (False, True))


def label(case: Case) -> str:
    """Return the name of a case."""
    return f"{case[0]}, {'Sobol points' if case[1] else 'constant order'}"


def run(settings: Settings) -> Result:
    """Fit the texture in each case; return texels visited, PSNR, milliseconds."""
    s = settings
    mesh, texture = make_pear()
    mesh = centred(mesh)[0]
    seen, new = (
        np.stack([c.matrix for c in make(s.views)]) for make in (spread_views, surround_views)
    )
    draw = partial(render, mesh, size=(s.size, s.size), supersample=SAMPLES, device=s.device)
    target = draw(seen, texture=texture)[1]
    cover, truth = draw(new, texture=texture)
    work = {label(case): partial(_fit, case, mesh, seen, target, s) for case in CASES}
    parts = kept_parts(s, work, "fits")
    changed = {name: (part["texels"] != START).any(-1) for name, part in parts.items()}
    reachable = np.any(list(changed.values()), axis=0)
    figures: dict[str, Any] = {}
    pictures = {"truth": truth}
    for name, part in parts.items():
        shown = pictures[name] = draw(new, texture=part["texels"])[1]
        inside = cover.reshape(-1, s.size) > 0.5
        figures[name] = {
            "visited": float(changed[name].sum() / max(reachable.sum(), 1)),
            "psnr_db": psnr(shown.reshape(-1, s.size, 3), truth.reshape(-1, s.size, 3), inside),
            "ms": part["ms"],
        }
    sheets = {
        "pictures": contact_sheet({k: list(v) for k, v in pictures.items()}),
        "textures": contact_sheet({k: [p["texels"]] for k, p in parts.items()}),
    }
    rows = [["backward, order", "texels visited", "PSNR, new views", "ms per step"]]
    rows += [
        [name, f"{f['visited']:.1%}", f"{f['psnr_db']:.1f} dB", f"{f['ms']:.1f}"]
        for name, f in figures.items()
    ]
    stated, ours = conditions(figures)
    return Result(figures, sheets, conditions=stated, tables=[rows], ours=ours)


def _fit(
    case: Case, mesh: Mesh, matrices: np.ndarray, target: np.ndarray, s: Settings
) -> dict[str, Any]:
    """Return the fitted texels of a case, and the median time of a step."""
    schedule = TextureSchedule(
        s.iterations,
        size=(s.texels, s.texels),
        backward=case[0],
        start=START,
        hold=1,
        sobol=case[1],
    )
    with DressiAD(s.device) as ad:
        found = fit_texture(ad, mesh, matrices, target, schedule, label(case))
    return {"texels": found.data, "ms": found.median_ms}


def conditions(
    figures: dict[str, Any],
) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Return what the paper claims, and what we ask."""
    constant, moved = (figures[label(("inverse_uv", sobol))] for sobol in (False, True))
    exact = figures[label(("exact", True))]
    stated = [
        (
            "with a constant sampling order inverse UV never updates some texels, which Sobol "
            f"points do: {constant['visited']:.1%} < {moved['visited']:.1%} visited",
            bool(constant["visited"] < moved["visited"]),
        ),
        (
            "its pictures have fewer artifacts with Sobol points: "
            f"{constant['psnr_db']:.1f} < {moved['psnr_db']:.1f} dB",
            bool(constant["psnr_db"] < moved["psnr_db"]),
        ),
    ]
    lead = exact["psnr_db"] - moved["psnr_db"]
    ours = [(f"inverse UV ends within {CLOSE_DB:g} dB of exact: {-lead:+.2f} dB", lead < CLOSE_DB)]
    return stated, ours
