"""``dressi demo --target FILE``: pictures of an object, a reconstruction from them, and how far the
two are apart."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dressi.apps.made_by import command_line
from dressi.apps.page import write_report
from dressi.apps.reconstruct.framing import GOLDEN_ANGLE, around, views_of
from dressi.apps.reconstruct.measure import (
    Compared,
    compared,
    lit,
    picture_figures,
    surface_figures,
)
from dressi.apps.reconstruct.pictures import Pictures
from dressi.apps.reconstruct.pipeline import Movers, Plan, Reconstruction, reconstruct, rounds_of
from dressi.apps.reconstruct.rounds import LossWeights
from dressi.apps.reconstruct.targets import Target, draw, load_target
from dressi.apps.reconstruct.texture import Painting
from dressi.apps.report import (
    check_least,
    check_outputs,
    copy1024_ms,
    identity,
    print_table,
    try_loss_curves,
    write_json,
)
from dressi.engine import DressiAD
from dressi.errors import LoadError
from dressi.kinds import TextureBackward
from dressi.render.io import contact_sheet
from dressi.render.io.files import load_mesh, write_glb
from dressi.render.io.images import write_png
from dressi.render.scene import Mesh

VIEWS, HELD_OUT = 24, 8
"""Views that are fitted, and those that only measure."""

LEAST_SIZE = 16
"""Pixels on a side: structural similarity takes windows of 11."""

ITERATIONS, TEXTURE_ITERATIONS = 480, 100
"""Steps of all rounds together, and of shape and texture together."""


@dataclass(frozen=True)
class TargetOptions:
    """Options of a reconstruction of a known object. start: hull, sphere, or a file of a mesh.
    refine: whether vertices move while the texture is painted. depth: whether depth is among the
    pictures. texture_gradient: of F.texture. without: of ``pipeline.WITHOUT``."""

    views: int = VIEWS
    size: int = 256
    iterations: int = ITERATIONS
    texture_iterations: int = TEXTURE_ITERATIONS
    start: str = "hull"
    refine: bool = True
    depth: bool = False
    texture_gradient: TextureBackward = "exact"
    device: str | int | None = None
    without: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a reconstruction of a known object gave. fitted, held: pictures of views that were
    fitted, and of views that were not."""

    target: Target
    made: Reconstruction
    fitted: Compared
    held: Compared
    figures: dict[str, Any]


def run_target(path: str, options: TargetOptions, out: str, json: str | None) -> dict[str, Any]:
    """Reconstruct the object of a file; write mesh, pictures and figures, and return the figures.
    Raises LoadError, GraphError, DressiError."""
    if not Path(path).is_file():
        kind = "it is a folder" if Path(path).is_dir() else "no such file"
        raise LoadError(f"{path}: {kind}", path)
    check_outputs(out, json)
    target = load_target(path)
    outcome = reconstruct_target(target, options)
    with DressiAD(options.device) as ad:
        who = identity(ad)
    name = Path(path).stem
    result = {**who, "copy1024_ms": copy1024_ms(options.device), "target": Path(path).name}
    result |= {**outcome.figures, "said": list(sentences(outcome))}
    write_outcome(Path(out), name, outcome, result)
    write_json(Path(out) / "result.json", result)
    if json:
        write_json(json, result)
    print_table(f"dressi demo: {result['target']}", result)
    return result


def plan_of(options: TargetOptions) -> Plan:
    """Return the plan of the options. Raises GraphError, LoadError (a start that is no file)."""
    check_least(
        views=(options.views, 1),
        size=(options.size, LEAST_SIZE),
        iterations=(options.iterations, 1),
        texture_iterations=(options.texture_iterations, 0),
    )
    painting = None
    if options.texture_iterations:
        painting = Painting(options.texture_iterations, backward=options.texture_gradient)
        painting = painting if options.refine else replace(painting, shape_lr=None)
    return Plan(
        rounds_of(options.iterations, options.size),
        painting,
        options.start if options.start in ("hull", "sphere") else load_mesh(options.start),
        LossWeights(),
        without=options.without,
    )


def reconstruct_target(
    target: Target, options: TargetOptions, movers: Movers | None = None
) -> Outcome:
    """Draw pictures of an object, reconstruct it from them and measure. movers: see
    ``reconstruct``. Raises GraphError."""
    plan = replace(plan_of(options), box=box_around(target.mesh))
    begin, cpu = time.perf_counter(), time.process_time()
    seen = views_of(target.mesh.positions, around(options.views))
    # Half a turn of the spiral between them: no view is among those that are fitted.
    kept = views_of(target.mesh.positions, around(HELD_OUT, GOLDEN_ANGLE / 2.0))
    pictures = draw(target, seen, options.size, options.device)
    given = pictures if options.depth else replace(pictures, depth=None)
    made = reconstruct(given, plan, options.device, movers)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu
    fitted = compared(pictures, seen, made.mesh, made.texture, options.device)
    held_pictures = draw(target, kept, options.size, options.device)
    held = compared(held_pictures, kept, made.mesh, made.texture, options.device)
    figures: dict[str, Any] = surface_figures(made.mesh, target.mesh, pictures.matrices)
    figures |= picture_figures(fitted)
    figures |= {f"heldout_{k}": v for k, v in picture_figures(held).items()}
    figures |= _costs(made, options)
    figures |= {"fit_s": seconds, "fit_processor_s": cpu_seconds}
    figures["mean_distance_rel"] = figures["to_target_percent"] / 100.0
    figures["finite"] = bool(np.isfinite(made.mesh.positions).all())
    figures["total_s"] = time.perf_counter() - begin
    return Outcome(target, made, fitted, held, figures)


def box_around(mesh: Mesh) -> npt.NDArray[np.float64]:
    """Return (2, 3): the corners of a mesh's box with a tenth of its longest side around it."""
    low, high = mesh.positions.min(0).astype(np.float64), mesh.positions.max(0).astype(np.float64)
    margin = 0.1 * float((high - low).max())
    return np.stack([low - margin, high + margin])


def _costs(made: Reconstruction, options: TargetOptions) -> dict[str, Any]:
    """Return times of steps and builds, and what was asked for."""
    shape = [c for k, c in made.courses.items() if k.startswith("shape")]
    texture = [c for k, c in made.courses.items() if not k.startswith("shape")]
    return {
        "geometry_ms": float(np.median([ms for c in shape for ms in c.ms])),
        "texture_ms": float(np.median([ms for c in texture for ms in c.ms])) if texture else 0.0,
        "build_s": sum(c.build_s for c in made.courses.values()),
        "steps_s": sum(sum(c.ms) for c in made.courses.values()) / 1e3,
        "vertices": len(made.mesh.positions),
        "faces": len(made.mesh.faces),
        "refined": options.refine and bool(texture),
        "views": options.views,
        "size": options.size,
        "iterations": options.iterations,
        "texture_iterations": options.texture_iterations,
        "start": options.start,
        "without": sorted(options.without),
    }


def sentences(outcome: Outcome) -> tuple[str, ...]:
    """Return what a reader should know: what the file's reader left out, what the pipeline says,
    and a topology that is no sphere's."""
    return (*outcome.target.notes, *outcome.made.said)


def write_outcome(out: Path, name: str, outcome: Outcome, result: dict[str, Any]) -> None:
    """Write the mesh, the sheets of pictures and the curves."""
    made = outcome.made
    write_glb(out / f"{name}.glb", replace(made.mesh, name=name), made.texture)
    sheets = {"contact_sheet": outcome.fitted, "heldout": outcome.held}
    for file, both in sheets.items():
        write_png(out / f"{file}.png", contact_sheet(rows_of(both)))
    curves = {label: course.losses for label, course in made.courses.items()}
    try_loss_curves(out / "loss_curves.png", curves, f"{name}, {result['views']} views")
    write_report(
        out,
        f"dressi demo: {name}",
        command_line(),
        figures={"figures": {k: v for k, v in result.items() if not isinstance(v, (list, dict))}},
        pictures={
            "views that were fitted": contact_sheet(rows_of(outcome.fitted)),
            "views that were not": contact_sheet(rows_of(outcome.held)),
        },
        curves={label: {label: values} for label, values in curves.items()},
        models={name: out / f"{name}.glb"},
        notes=sentences(outcome),
    )


def rows_of(both: Compared, n: int = 6) -> dict[str, list[np.ndarray]]:
    """Return rows of a contact sheet: lit pictures, normals, the difference of lit pictures."""

    def normals(pictures: Pictures) -> list[np.ndarray]:
        assert pictures.normals is not None
        return list((pictures.normals[:n] * 0.5 + 0.5) * pictures.coverage[:n])

    wanted, got = lit(both.target)[:n], lit(both.result)[:n]
    return {
        "target": list(wanted),
        "result": list(got),
        "difference": list(np.abs(got - wanted)),
        "normals of\nthe target": normals(both.target),
        "normals of\nthe result": normals(both.result),
    }
