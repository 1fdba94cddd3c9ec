"""``dressi experiment human``: a portrait with skin, eyes, teeth and hair (paper, 6.1).

Pictures from the portrait's camera, four close ones, and a turntable; what building and a step
cost, by the part of the program that made them; the same picture under fewer input attachments; and
a fit beyond the paper's: the width of the scattering in skin, its roughness and its colours, from
four views. Everything is drawn by one graph (``human_scene``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tqdm import tqdm

from dressi.ad import Adam, F, Variable
from dressi.apps.data import human_file
from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.human_fit import fit_sheet, fit_skin
from dressi.apps.experiments.human_hair import coarser, grow_human_hair
from dressi.apps.experiments.human_parts import Human, build_human
from dressi.apps.experiments.human_scene import (
    DEFAULT_LIGHTS,
    Picture,
    Setting,
    build_human_picture,
    close_ups,
    portrait,
    skin_texture,
    turntable,
)
from dressi.engine import DressiAD
from dressi.errors import DressiError, OutOfMemoryError
from dressi.inspect.report import Report
from dressi.packing import Options
from dressi.render.io import srgb_to_linear
from dressi.render.scene import Strands
from dressi.render.shading import tone_map

HELP = "a digital human: skin, eyes, teeth, hair; what it costs; a fit of its skin"

PARTS = ("pictures", "turntable", "step", "attachments", "fit")
"""What the experiment does, in this order."""

LOOK_AHEAD = 4000
"""Functions that a shader may look ahead: the hair's model is one."""

FINE_SIZE = 900
"""Pixels on a side of a picture of the head from which on a strand is as wide as a pixel."""

SAME = 2e-3
"""Largest difference, of a channel in [0, 1], between pictures that were packed in other ways."""

RUNS, RUNS_SECONDS = 9, 2.0
"""Of a frame and a step that are timed: calls at most, and seconds after which there is none more.
"""

BUILD_SECONDS = 40.0
"""Of graph, packing and compiling, without anything in a cache."""


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    size: int = option(
        1024, "pixels on a side of portrait and close-ups", smoke=32, least=16, quick=256
    )
    strands: int = option(20000, "on the scalp", smoke=40, least=1, quick=5000)
    layers: int = option(6, "of strands over each other per pixel", smoke=2, least=1)
    frames: int = option(24, "of the turntable", smoke=2, least=1, quick=4)
    frame_size: int = option(320, "pixels on a side of the turntable", smoke=32, least=16)
    fit_size: int = option(
        96, "pixels on a side of each of the fit's four views", smoke=16, least=8, quick=64
    )
    iterations: int = option(150, "of the fit", smoke=2, least=1)
    parts: tuple[str, ...] = option(
        PARTS,
        f"what to do, of {', '.join(PARTS)}",
        smoke=("pictures",),
        quick=("pictures", "turntable", "fit"),
    )
    lights: int = option(2, "of the two lights", smoke=1, least=1)
    head: str | None = option(None, "file of ICT's arrays (default: the file of the package)")


@dataclass(frozen=True, eq=False)
class Built:
    """The human's arrays, and the setting of the portrait."""

    human: Human
    strands: Strands
    setting: Setting


def run(settings: Settings) -> Result:
    """Draw, measure, fit."""
    unknown = set(settings.parts) - set(PARTS)
    if unknown:
        raise DressiError(
            f"experiment human: --parts knows {', '.join(PARTS)}, got {', '.join(sorted(unknown))}"
        )
    begin = time.perf_counter()
    human = build_human(settings.head or human_file("ict/ict_face_light.npz"))
    strands = grow_human_hair(human, skin_texture(), settings.strands)
    figures: dict[str, Any] = {"arrays_seconds": time.perf_counter() - begin}
    setting = Setting(
        [portrait()],
        (settings.size, settings.size),
        DEFAULT_LIGHTS[: settings.lights],
        n_layers=settings.layers,
    )
    if settings.smoke:
        setting = replace(setting, shadow_texels=32, slices=4, taps=11)
    built = Built(human, strands, setting)
    pictures: dict[str, np.ndarray] = {}
    conditions: list[tuple[str, bool]] = []
    files: list[str] = []
    tables: list[list[tuple[str, ...]]] = []
    if "pictures" in settings.parts:
        drawn, costs = draw_pictures(built, settings)
        pictures |= drawn
        figures |= costs
        seconds = figures["build_seconds"]
        text = f"graph, packing and compiling in {BUILD_SECONDS:g} s at most: {seconds:.1f} s"
        conditions.append((text, seconds <= BUILD_SECONDS))
    if "turntable" in settings.parts:
        files.append(draw_turntable(built, settings))
    if "step" in settings.parts:
        step, rows = measure_step(built, settings)
        figures |= step
        tables.append(rows)
    if "attachments" in settings.parts:
        apart, counts = compare_attachments(built, settings)
        figures |= counts
        text = f"4 and 8 input attachments give one picture: {apart:.1e} apart"
        conditions.append((text, apart <= SAME))
    if "fit" in settings.parts:
        fit = fit_skin(human, setting, settings)
        figures |= fit.figures
        conditions += fit.conditions
        pictures["fit"] = fit_sheet(fit)
    return Result(figures, pictures, {}, conditions, tables, files)


def options_of(settings: Settings) -> Options:
    """Return how the picture is packed."""
    return Options(look_ahead=LOOK_AHEAD, lowering="compute")


def shown(picture: Picture) -> Variable:
    """Return the picture as a screen shows it, VEC3 in [0, 1]."""
    return tone_map(picture.color)


def draw_pictures(built: Built, settings: Settings) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the portrait and the close-ups, linear, and the seconds that building took."""
    begin = time.perf_counter()
    picture = build_human_picture(built.human, built.strands, built.setting)
    image = shown(picture)
    figures: dict[str, Any] = {"graph_seconds": time.perf_counter() - begin}
    cameras = [portrait()] if settings.smoke else [portrait(), *close_ups(built.human)]
    pictures = {}
    with DressiAD(settings.device, options_of(settings)) as ad:
        for camera in cameras:
            ad.send_img(picture.matrix, camera.matrix32)
            begin = time.perf_counter()
            with building(ad, "human"):
                pixels = ad.recv_img(image)
            if camera is cameras[0]:
                figures["first_frame_seconds"] = time.perf_counter() - begin
                figures |= build_seconds(ad)
            if not np.isfinite(pixels).all():
                raise DressiError(f"human: the picture '{camera.name}' became no number")
            pictures[camera.name] = srgb_to_linear(pixels)
        figures |= frame_seconds(ad, picture, image)
    figures["build_seconds"] += figures["graph_seconds"]
    return pictures, figures


def frame_seconds(ad: DressiAD, picture: Picture, image: Variable) -> dict[str, float]:
    """Return the seconds of a frame that stays on the device, and of one from another camera that
    comes back to the host. image: evaluated before."""
    part = next(iter(ad.runtime.evaluations.values())).part

    def read() -> None:
        ad.send_img(picture.matrix, portrait().matrix32)
        ad.recv_img(image)

    return {
        "frame_seconds": median_seconds(lambda: part.run(ad.runtime.store, 1)),
        "frame_read_seconds": median_seconds(read),
    }


def median_seconds(act: Callable[[], object]) -> float:
    """Return the median time of a few calls, fewer where they are slow."""
    taken: list[float] = []
    while len(taken) < RUNS and sum(taken) < RUNS_SECONDS:
        begin = time.perf_counter()
        act()
        taken.append(time.perf_counter() - begin)
    return float(np.median(taken))


def build_seconds(ad: DressiAD) -> dict[str, Any]:
    """Return the seconds of each phase of the last build, and their sum."""
    phases = {name.split()[0]: seconds for name, _, seconds in ad.runtime.phases}
    named = {f"{name}_seconds": seconds for name, seconds in phases.items()}
    return {**named, "build_seconds": sum(phases.values())}


@contextmanager
def building(ad: DressiAD, what: str) -> Iterator[None]:
    """Show a line with the phase of the build and the seconds so far, on a terminal."""
    with tqdm(bar_format="{desc} ({elapsed})", leave=False, disable=None) as line:
        ad.runtime.on_phase = lambda phase: line.set_description_str(f"{what}: {phase}")
        yield
        ad.runtime.on_phase = None


def draw_turntable(built: Built, settings: Settings) -> str:
    """Write the turntable as a GIF; return its name."""
    size = (settings.frame_size, settings.frame_size)
    setting = replace(built.setting, size=size)
    strands = coarser(built.strands, min(settings.frame_size / FINE_SIZE, 1.0))
    picture = build_human_picture(built.human, strands, setting)
    image = shown(picture)
    frames = []
    with DressiAD(settings.device, options_of(settings)) as ad:
        for k in range(settings.frames):
            ad.send_img(picture.matrix, turntable(k, settings.frames).matrix32)
            pixels = np.clip(ad.recv_img(image), 0.0, 1.0)
            frames.append(Image.fromarray((pixels * 255.0 + 0.5).astype(np.uint8)))
    assert settings.out is not None
    path = Path(settings.out) / "turntable.gif"
    path.parent.mkdir(parents=True, exist_ok=True)
    colors = [f.quantize(128) for f in frames]
    colors[0].save(path, save_all=True, append_images=colors[1:], duration=80, loop=0)
    return path.name


LEAST_SIDE = 16
"""Pixels of a side below which no smaller step is tried."""


def measure_step(built: Built, settings: Settings) -> tuple[dict[str, Any], list[tuple[str, ...]]]:
    """Build forward and backward of the portrait, to skin and its texture; return what it costs and
    the table by the part of the program.

    Where the device's memory is too small, sides are halved until a step fits: nearly all of what
    it needs is images of the picture's size, 4 GB of them for 1024 x 1024 (llvmpipe says that it
    has 2).
    """
    setting = built.setting
    while True:
        try:
            seconds, one, report = _timed_step(built, setting, settings)
            break
        except OutOfMemoryError:
            width, height = setting.size
            if min(width, height) < 2 * LEAST_SIDE:
                raise
            setting = replace(setting, size=(width // 2, height // 2))
    stages = [s for s in report.stages if not s.clean]
    rows: list[tuple[str, ...]] = [("made by", "ms", "passes", "substages", "functions", "static")]
    for r in report.scopes:
        ms = "-" if r.ms is None else f"{r.ms:.1f}"
        rows.append((r.name, ms, str(r.stages), str(r.substages), str(r.functions), str(r.clean)))
    figures: dict[str, Any] = {
        "step_size": setting.size[0],
        "step_build_seconds": seconds,
        "step_seconds": one,
        "step_passes": len(stages),
        "step_substages": sum(len(s.substages) for s in stages),
        "step_functions": sum(s.n_functions for s in stages),
        "scopes": [dict(zip(rows[0], r, strict=True)) for r in rows[1:]],
    }
    return figures, rows


def _timed_step(built: Built, setting: Setting, settings: Settings) -> tuple[float, float, Report]:
    """(seconds until the first step was done, median of those that follow, the report); of whole
    steps, without the reactive cache."""
    begin = time.perf_counter()
    picture = build_human_picture(built.human, built.strands, setting)
    for leaf in (picture.width, picture.roughness, picture.skin_map):
        leaf.requires_grad = True
    loss = F.mean(F.dot(picture.color, picture.color))
    with DressiAD(settings.device, replace(options_of(settings), cache=False)) as ad:
        ad.set_loss_var(loss)
        ad.set_optimizer(Adam(1e-4))
        with building(ad, "step of the human"):
            ad.exec_step()
        seconds = time.perf_counter() - begin
        one = median_seconds(ad.exec_step)
        return seconds, one, ad.report(times=not settings.smoke, n=1)


def compare_attachments(built: Built, settings: Settings) -> tuple[float, dict[str, Any]]:
    """Return the largest difference of the portrait packed for 4 and for 8 input attachments, and
    how many passes and shaders each has."""
    side = min(settings.size, 64)
    setting = replace(built.setting, size=(side, side), n_layers=2)
    image = shown(build_human_picture(built.human, built.strands, setting))
    found, figures = [], {}
    for n in (4, 8):
        limits = {"input_attachments": n}
        options = Options(look_ahead=LOOK_AHEAD, lowering="graphics")
        with DressiAD(settings.device, options, limits=limits) as ad:
            found.append(ad.recv_img(image))
            plan = next(iter(ad.runtime.evaluations.values())).part.packed.plan
        figures[f"attachments_{n}"] = f"{len(plan.stages)} passes, {plan.n_substages} substages"
    apart = float(np.abs(found[0] - found[1]).max())
    return apart, figures | {"attachments_difference": apart}
