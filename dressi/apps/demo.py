"""``dressi demo``: the paper's cross-platform application (4.1). A white sphere becomes a pear.

Six views: 150 iterations on vertex positions by silhouettes, then 100 on the albedo texture by
colours. With a target of one's own the pipeline of ``dressi.apps.reconstruct`` runs instead.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dressi.apps.address import Address
from dressi.apps.fitting import (
    FitResult,
    ShapeSchedule,
    TextureSchedule,
    fit_shape,
    fit_texture,
)
from dressi.apps.made_by import command_line
from dressi.apps.page import write_report
from dressi.apps.reconstruct.command import TargetOptions, run_target
from dressi.apps.report import (
    check_least,
    check_outputs,
    copy1024_ms,
    identity,
    print_table,
    try_loss_curves,
    write_json,
)
from dressi.apps.viewer import live_view
from dressi.engine import DressiAD
from dressi.errors import GraphError
from dressi.kinds import TextureBackward
from dressi.render.fit import iou, mean_distance_to_surface, psnr
from dressi.render.io import contact_sheet
from dressi.render.io.files import write_glb
from dressi.render.io.images import read_image, write_png
from dressi.render.io.obj import read_obj
from dressi.render.scene import Mesh, flipped_faces, icosphere, make_pear
from dressi.testing.views import render, spread_views

EXTENT = 2.0
"""Largest side of the target's box after scaling; learning rates are in these units."""


@dataclass(frozen=True)
class DemoOptions:
    """Options of the command; see ``dressi demo --help``. iterations, views: None is the default of
    the pear, or of a given target. start, depth: of a given target only."""

    target: str | None = None
    out: str = "out/demo"
    json: str | None = None
    iterations: int | None = None
    texture_iterations: int = 100
    views: int | None = None
    size: int = 256
    device: str | None = None
    refine: bool | None = None
    """Whether vertices go on moving while the texture is painted; None: for a given target mesh
    only."""
    start: str = "hull"
    depth: bool = False
    texture_gradient: TextureBackward = "exact"
    """How the gradient of the pictures reaches the texels; see F.texture."""
    live: Address | None = None
    """Where the fit is shown while it runs; None: nowhere."""


PEAR_VIEWS, PEAR_ITERATIONS = 6, 150
"""Of the paper's application."""


def load_target(path: str | None) -> tuple[Mesh, np.ndarray]:
    """Return the target mesh and its texture (H, W, 3): the pear, or an OBJ (white where it has no
    texture)."""
    if path is None:
        return make_pear()
    mesh, texture_path = read_obj(path)
    mesh.check()
    if mesh.uvs is None or texture_path is None:
        mesh = replace(mesh, uvs=np.zeros((1, 2), np.float32), uv_faces=np.zeros_like(mesh.faces))
        return mesh, np.full((1, 1, 3), 0.8, np.float32)
    return mesh, read_image(texture_path)[..., :3]


def centred(mesh: Mesh) -> tuple[Mesh, np.ndarray, float]:
    """Return the mesh with its box centred at the origin and EXTENT on its largest side; (mesh,
    centre, scale)."""
    low, high = mesh.positions.min(0), mesh.positions.max(0)
    extent = float((high - low).max())
    if not extent > 0:
        raise GraphError(f"mesh '{mesh.name}' has no extent: all its vertices coincide")
    scale = EXTENT / extent
    centre = (low + high) / 2
    return replace(mesh, positions=(mesh.positions - centre) * scale), centre, scale


def run_demo(options: DemoOptions) -> dict[str, Any]:
    """Run the demo; write its files and return the figures. Raises LoadError, GraphError,
    DeviceError."""
    with live_view(options.live, "dressi demo"):
        return _run(options)


def _run(options: DemoOptions) -> dict[str, Any]:
    if options.target is not None:
        return _run_target(options.target, options)
    options = replace(
        options,
        views=PEAR_VIEWS if options.views is None else options.views,
        iterations=PEAR_ITERATIONS if options.iterations is None else options.iterations,
    )
    return _run_pear(options)


def _run_target(target: str, options: DemoOptions) -> dict[str, Any]:
    """Reconstruct an object of the user's."""
    given = {
        name: getattr(options, name)
        for name in ("views", "iterations")
        if getattr(options, name) is not None
    }
    asked = TargetOptions(
        size=options.size,
        texture_iterations=options.texture_iterations,
        start=options.start,
        refine=options.refine is not False,
        depth=options.depth,
        texture_gradient=options.texture_gradient,
        device=options.device,
        **given,
    )
    return run_target(target, asked, options.out, options.json)


def _run_pear(options: DemoOptions) -> dict[str, Any]:
    """Run the paper's schedule; write its files and return the figures."""
    begin = time.perf_counter()
    assert options.views is not None and options.iterations is not None
    _check(options)
    out = Path(options.out)
    original, texture = make_pear()
    target, centre, scale = centred(original)
    size = (options.size, options.size)
    matrices = np.stack([c.matrix for c in spread_views(options.views)])
    coverage, colour = render(target, matrices, size, texture, 4, options.device)

    start = icosphere(4, 0.28 * EXTENT)
    who, shape, albedo = _fit(options, start, matrices, coverage, colour)
    fitted = replace(start, positions=shape.data)
    got_coverage, got_shaded = render(fitted, matrices, size, None, 4, options.device)
    figures = _shape_figures(fitted, target, got_coverage, coverage)
    refined = albedo is not None and albedo.positions is not None
    if albedo is not None and albedo.positions is not None:
        fitted = replace(fitted, positions=albedo.positions)
    picture = albedo.data if albedo is not None else np.ones((4, 4, 3), np.float32)
    final_coverage, got_colour = render(fitted, matrices, size, picture, 4, options.device)
    start_shaded = render(start, matrices, size, None, 2, options.device)[1]

    result: dict[str, Any] = {
        **who,
        "copy1024_ms": copy1024_ms(options.device),
        "iou": figures["iou"],
        "mean_distance_rel": figures["mean_distance_rel"],
        "psnr_db": _stack_psnr(got_colour, colour, coverage[..., 0] > 0.5),
        "geometry_ms": shape.median_ms,
        "texture_ms": albedo.median_ms if albedo is not None else 0.0,
        "geometry_mean_ms": shape.mean_ms,
        "texture_mean_ms": albedo.mean_ms if albedo is not None else 0.0,
        "build_s": shape.build_s + (albedo.build_s if albedo is not None else 0.0),
        "total_s": 0.0,
        "flipped_faces": figures["flipped_faces"],
        "finite": bool(np.isfinite(fitted.positions).all()),
        "refined": refined,
        "target": "pear",
        "views": options.views,
        "size": options.size,
        "iterations": options.iterations,
        "texture_iterations": options.texture_iterations,
        "texture_gradient": options.texture_gradient,
    }
    if refined:
        final = _shape_figures(fitted, target, final_coverage, coverage)
        result.update({f"final_{k}": v for k, v in final.items()})
    name = "pear"
    world = replace(fitted, positions=fitted.positions / scale + centre, name=name)
    write_glb(out / f"{name}.glb", world, picture)
    rows = {"target": colour, "start": start_shaded, "geometry": got_shaded, "texture": got_colour}
    _write(out, options, result, rows, shape, albedo, begin)
    print_table(f"dressi demo: {result['target']}", result)
    return result


def _check(options: DemoOptions) -> None:
    """Raise GraphError where the options do not make a demo."""
    check_least(
        views=(options.views, 1),
        size=(options.size, 8),
        iterations=(options.iterations, 1),
        texture_iterations=(options.texture_iterations, 0),
    )
    check_outputs(options.out, options.json)


def _fit(
    options: DemoOptions,
    start: Mesh,
    matrices: np.ndarray,
    coverage: np.ndarray,
    colour: np.ndarray,
) -> tuple[dict[str, str], FitResult, FitResult | None]:
    """Fit the shape, then the texture; return the identity of the device, both courses."""
    assert options.iterations is not None
    schedule = ShapeSchedule(iterations=options.iterations, r=(0.03, 1.0 / options.size))
    refine = bool(options.refine)
    paint = TextureSchedule(
        iterations=max(options.texture_iterations, 1),
        backward=options.texture_gradient,
        shape_lr=(0.01, 0.0015) if refine else None,
        shape=schedule,
    )
    with DressiAD(options.device) as ad:
        who = identity(ad)
        shape = fit_shape(ad, start, matrices, coverage, schedule, "geometry")
        fitted = replace(start, positions=shape.data)
        albedo = None
        if options.texture_iterations:
            albedo = fit_texture(
                ad, fitted, matrices, colour, paint, "texture", silhouettes=coverage
            )
    return who, shape, albedo


def _write(
    out: Path,
    options: DemoOptions,
    result: dict[str, Any],
    rows: dict[str, np.ndarray],
    shape: FitResult,
    albedo: FitResult | None,
    begin: float,
) -> None:
    """Write the contact sheet, the curves, the figures and the page."""
    sheet = contact_sheet({k: list(v) for k, v in rows.items()})
    write_png(out / "contact_sheet.png", sheet)
    curves = {"geometry (silhouette L2 + Laplacian)": shape.losses}
    if albedo is not None:
        curves["texture (colour L2)"] = albedo.losses
    name = "pear"
    try_loss_curves(out / "loss_curves.png", curves, f"{name}, {options.views} views")
    result["total_s"] = time.perf_counter() - begin
    write_json(out / "result.json", result)
    write_report(
        out,
        f"dressi demo: {name}",
        command_line(),
        {"figures": result},
        {"contact sheet": sheet},
        {label: {label: values} for label, values in curves.items()},
        {name: out / f"{name}.glb"},
    )
    if options.json:
        write_json(options.json, result)


def _shape_figures(
    fitted: Mesh, target: Mesh, got: np.ndarray, wanted: np.ndarray
) -> dict[str, Any]:
    diagonal = float(np.linalg.norm(np.ptp(target.positions, axis=0)))
    distance = mean_distance_to_surface(fitted.positions, target.positions, target.faces)
    return {
        "iou": float(np.mean([iou(a, b) for a, b in zip(got, wanted, strict=True)])),
        "mean_distance_rel": distance / diagonal,
        "flipped_faces": int(flipped_faces(fitted.positions, fitted.faces).sum()),
    }


def _stack_psnr(a: np.ndarray, b: np.ndarray, mask: np.ndarray) -> float:
    """Return PSNR over the masked pixels of all views together."""
    n, h, w, c = a.shape
    return psnr(a.reshape(n * h, w, c), b.reshape(n * h, w, c), mask.reshape(n * h, w))
