"""``dressi fit``: a shape and its texture from calibrated photos of an object.

Masks from files, alpha or the photos themselves (``object_masks``); then the pipeline of
``dressi.apps.reconstruct``: the shape from the hull of the masks, coarse to fine, by silhouettes,
carved where photos agree, then shape and texture together by colours, with a gain per photo and
channel. Two photos are kept out of the fit and used to report.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from dressi.apps.address import Address
from dressi.apps.made_by import command_line
from dressi.apps.page import write_report
from dressi.apps.photo_cameras import (
    aligned,
    camera_figures,
    photos_without_lens,
    refined_calibrations,
    refined_views,
)
from dressi.apps.photo_files import read_photos
from dressi.apps.photo_masks import BOX_MARGIN
from dressi.apps.photo_views import Prepared, prepare, scale_of
from dressi.apps.reconstruct.cameras import Refinement
from dressi.apps.reconstruct.carving import Carving
from dressi.apps.reconstruct.measure import problem_figures
from dressi.apps.reconstruct.pictures import Pictures
from dressi.apps.reconstruct.pipeline import Plan, Reconstruction, reconstruct
from dressi.apps.reconstruct.rounds import LossWeights, Round
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
from dressi.apps.viewer import live_view
from dressi.engine import DressiAD
from dressi.errors import GraphError, LoadError
from dressi.render.fit import iou, psnr
from dressi.render.io import contact_sheet, load_mesh, write_transforms
from dressi.render.io.files import write_glb
from dressi.render.io.images import write_png
from dressi.render.io.middlebury import Photo
from dressi.render.scene import Mesh
from dressi.testing.views import render


@dataclass(frozen=True)
class PhotoOptions:
    """Options of the command; see ``dressi fit --help``."""

    images: str
    cameras: str
    out: str = "out/fit"
    json: str | None = None
    iterations: int | None = None
    texture_iterations: int = 200
    views: int | None = None
    size: int | None = None
    device: str | None = None
    holdout: tuple[int, int] | None = None
    masks: str | None = None
    threshold: float | None = None
    mesh: str | None = None
    refine_cameras: bool = False
    segment: str = "places"
    without: tuple[str, ...] = ()
    each_out: bool = False
    """Every photo is kept out once, see ``dressi.apps.each_out``."""
    workers: int = 0
    """Processes that share the fits of ``each_out``; 0: this one alone."""
    live: Address | None = None
    """Where the fit is shown while it runs; None: nowhere."""


DEFAULT_SIZE = 480
DEFAULT_ITERATIONS = 600

PHOTO_WEIGHTS = LossWeights(bend=0.01, colour=0.5)
"""Photos show no normals: the surface between contours is left to the bend, which is heavier."""

LEAST_SHARE, MOST_SHARE = 0.5, 2.0
"""Weight of a view at least and at most, beside that of the mean view."""


def photo_rounds(iterations: int, size: int) -> tuple[Round, ...]:
    """Return the rounds of a fit to silhouettes. iterations: of both rounds together. size: longer
    side of the finest pictures, pixels."""
    half = max(iterations // 2, 1)
    return (
        Round(4000, max(size // 2, 16), half, (4.0, 1.5), (0.1, 0.02), smoothness=10.0),
        Round(8000, size, half, (3.0, 1.0), (0.05, 0.01), smoothness=10.0),
    )


def photo_carving(iterations: int, size: int) -> Carving:
    """Return how photos carve. iterations: of all rounds. size: longer side of the finest pictures,
    pixels. Reaches are parts of the box: an eighth and less, whatever is in it."""
    steps = max(iterations // 10, 1)
    one = Round(None, max(size // 2, 16), steps, (2.0, 1.0), (0.02, 0.01), smoothness=10.0)
    return Carving(((2.0, 0.16), (2.0, 0.08)), one, size)


def view_weights(masks: np.ndarray) -> np.ndarray:
    """Return (n, H, W, 1): the weight of each view's pixels, so that views count alike however much
    of them the object covers. Their mean is about 1."""
    area = masks.mean((1, 2, 3))
    share = np.clip(area.mean() / np.maximum(area, 1e-6), LEAST_SHARE, MOST_SHARE)
    return np.broadcast_to(share[:, None, None, None], masks.shape).astype(np.float32)


def run_fit(options: PhotoOptions) -> dict[str, Any]:
    """Run the fit; write its files and return the figures. Raises LoadError, GraphError,
    DeviceError."""
    begin = time.perf_counter()
    task = _task(options)
    with live_view(options.live, "dressi fit"):
        figures, fit = _fit(task, options)
    extra: dict[str, Any] = {}
    if fit.cameras is not None:
        task, extra = _refined(task, fit, options)
    full = task.given.images.shape[2:0:-1]
    if fit.texture is None:
        fit = replace(fit, texture=np.full((4, 4, 3), 0.5, np.float32), mesh=_one_uv(fit.mesh))
    coverage, colour = render(fit.mesh, task.given.matrices, full, fit.texture, 1, options.device)
    shaded = render(fit.mesh, task.given.matrices[task.kept], full, None, 2, options.device)[1]
    copy_ms = copy1024_ms(options.device)
    result = {**figures, "copy1024_ms": copy_ms, **_figures(task, fit, coverage, colour)}
    result |= extra | {
        "heldout_hull_iou": _hull_iou(task, fit.start, options),
        "vertices": len(fit.mesh.positions),
        "iterations": task.iterations,
        "texture_iterations": options.texture_iterations,
        "size": task.size,
    }
    out = Path(options.out)
    sheets = _sheets(task, coverage, colour, shaded)
    for name, sheet in sheets.items():
        write_png(out / f"{name}.png", sheet)
    curves = {label: course.losses for label, course in fit.courses.items()}
    try_loss_curves(out / "loss_curves.png", curves, f"fit to {len(task.train)} photos")
    positions = fit.mesh.positions / scale_of(task.given.box) + task.given.box.mean(0)
    write_glb(out / "fit.glb", replace(fit.mesh, positions=positions, name="fit"), fit.texture)
    result["total_s"] = time.perf_counter() - begin
    write_report(
        out,
        "dressi fit",
        command_line(),
        {"figures": {k: v for k, v in result.items() if not isinstance(v, (list, dict))}},
        sheets,
        {label: {label: values} for label, values in curves.items()},
        {"fit": out / "fit.glb"},
        fit.said,
    )
    write_json(out / "result.json", result)
    if options.json:
        write_json(options.json, result)
    print_table("dressi fit (two photos kept out)", result)
    return result


@dataclass(frozen=True, eq=False)
class _Task:
    """What is fitted to what. kept: photos that the fit never sees. size: longer side of the finest
    round, in pixels."""

    photos: list[Photo]
    given: Prepared
    kept: list[int]
    size: int
    iterations: int

    @property
    def train(self) -> list[int]:
        return [i for i in range(len(self.photos)) if i not in self.kept]


def _task(options: PhotoOptions) -> _Task:
    """Read the photos and check the options. Raises LoadError, GraphError."""
    size = DEFAULT_SIZE if options.size is None else options.size
    iterations = DEFAULT_ITERATIONS if options.iterations is None else options.iterations
    if not Path(options.images).is_dir():
        raise LoadError(f"--images {options.images}: no such folder", options.images)
    if options.masks is not None and not Path(options.masks).is_dir():
        raise LoadError(f"--masks {options.masks}: no such folder", options.masks)
    if options.mesh is not None and not Path(options.mesh).is_file():
        raise LoadError(f"--mesh {options.mesh}: no such file", options.mesh)
    if options.threshold is not None and not 0.0 < options.threshold < 1.0:
        raise GraphError(f"--threshold must be in (0, 1), got {options.threshold}")
    check_least(
        size=(size, 16),
        iterations=(iterations, 2),
        texture_iterations=(options.texture_iterations, 0),
        views=(options.views, 4),  # two are kept out
    )
    photos = read_photos(options.images, options.cameras)[: options.views]
    if len(photos) < 4:
        raise GraphError(
            f"--images {options.images}: needs 4 photos at least (2 are kept out), "
            f"got {len(photos)}"
        )
    check_outputs(options.out, options.json)
    kept = list(options.holdout or (len(photos) // 4 - 1, 3 * len(photos) // 4 - 1))
    if len(set(kept)) != 2 or not all(0 <= i < len(photos) for i in kept):
        raise GraphError(f"--holdout needs two photos out of 0..{len(photos) - 1}, got {kept}")
    given = prepare(
        photos, options.cameras, options.masks, options.threshold, kept, options.segment
    )
    size = min(size, max(given.images.shape[1:3]))  # photos are never enlarged
    return _Task(photos, given, kept, size, iterations)


def _fit(task: _Task, options: PhotoOptions) -> tuple[dict[str, str], Reconstruction]:
    """Reconstruct the object; return the identity of the device, too."""
    train, given = task.train, task.given
    pictures = Pictures(
        given.matrices[train],
        given.masks[train],
        colour=given.images[train],
        weights=view_weights(given.masks[train]) * ~given.doubted[train],
    )
    painting = None
    if options.texture_iterations:
        painting = Painting(options.texture_iterations, gains=True, size=task.size)
    rounds = photo_rounds(task.iterations, task.size)
    refine = Refinement() if options.refine_cameras else None
    plan = Plan(
        rounds, painting, weights=PHOTO_WEIGHTS, doubted=task.given.found, refine=refine,
        carving=photo_carving(task.iterations, task.size), fairing=True,
        without=frozenset(options.without),
    )  # fmt: skip
    # Of an estimated box the object may reach the sides.
    half = BOX_MARGIN * (task.given.box[1] - task.given.box[0]) / 2.0 * scale_of(task.given.box)
    plan = replace(plan, box=np.stack([-half, half]))
    if options.mesh is not None:
        plan = replace(plan, start=_start(options.mesh, task.given.box))
    with DressiAD(options.device) as ad:
        who = identity(ad)
    return who, reconstruct(pictures, plan, options.device)


def _refined(
    task: _Task, fit: Reconstruction, options: PhotoOptions
) -> tuple[_Task, dict[str, Any]]:
    """Return the task with refined cameras and photos without their lens; figures of the cameras,
    and of photos kept out whose poses were aligned. Write the cameras."""
    assert fit.cameras is not None
    given, train, kept = task.given, task.train, task.kept
    found = refined_calibrations(task.photos, given, train, fit.cameras)
    write_transforms(Path(options.out) / "cameras.json", found)
    figures = camera_figures(given, train, fit.cameras)
    photos = photos_without_lens(task.photos, given, fit.cameras.k1)
    task = replace(task, photos=photos, given=refined_views(given, train, fit.cameras))
    matrices = aligned(fit.mesh, task.given, kept, options.device)
    size = task.given.images.shape[2:0:-1]
    texture = np.full((4, 4, 3), 0.5, np.float32) if fit.texture is None else fit.texture
    mesh = _one_uv(fit.mesh) if fit.texture is None else fit.mesh
    coverage, colour = render(mesh, matrices, size, texture, 1, options.device)
    masks, known = task.given.masks[kept], ~task.given.doubted[kept]
    ious = [iou(a, b) for a, b in zip(coverage * known, masks * known, strict=True)]
    inside = (coverage > 0.5) & (masks > 0.5) & known
    triples = zip(colour, task.given.images[kept], inside[..., 0], strict=True)
    return task, {
        **figures,
        "heldout_aligned_iou": float(np.mean(ious)),
        "heldout_aligned_psnr_db": float(np.mean([psnr(*three) for three in triples])),
    }


def _figures(
    task: _Task, fit: Reconstruction, coverage: np.ndarray, colour: np.ndarray
) -> dict[str, Any]:
    """Return the figures of the command. coverage: (n, H, W, 1) and colour: (n, H, W, 3) are the
    renderings beside the photos."""
    known = ~task.given.doubted
    pairs = zip(coverage * known, task.given.masks * known, strict=True)
    ious = [iou(a, b) for a, b in pairs]
    train, kept = task.train, task.kept
    shape = [c for k, c in fit.courses.items() if k.startswith("shape")]
    paint = fit.courses.get("texture")
    both = {i: (coverage[i] > 0.5) & (task.given.masks[i] > 0.5) & known[i] for i in kept}

    def mean_psnr(photos: list[int], inside: Any) -> float:
        return float(
            np.mean([psnr(colour[i], task.given.images[i], inside[i][..., 0]) for i in photos])
        )

    return {
        "iou": float(np.mean([ious[i] for i in train])),
        "heldout_iou": float(np.mean([ious[i] for i in kept])),
        "heldout_ious": [ious[i] for i in kept],
        "heldout_photos": [task.photos[i].name for i in kept],
        "mean_distance_rel": None,
        "psnr_db": mean_psnr(train, task.given.masks * known),
        "heldout_psnr_db": mean_psnr(kept, both),
        "geometry_ms": float(np.median([t for c in shape for t in c.ms])),
        "texture_ms": float(np.median(paint.ms)) if paint is not None else 0.0,
        "build_s": sum(c.build_s for c in fit.courses.values()),
        "total_s": 0.0,
        "gains_spread": float(np.log2(fit.gains).std()),
        **problem_figures(fit.mesh),
        "said": list(fit.said),
    }


def _hull_iou(task: _Task, start: Mesh, options: PhotoOptions) -> float | None:
    """Return the IoU of the visual hull that a fit began with in the photos that were kept out,
    their mean; None where it began with something else."""
    if start.name != "hull":
        return None
    size, known = task.given.images.shape[2:0:-1], ~task.given.doubted[task.kept]
    cover = render(start, task.given.matrices[task.kept], size, None, 1, options.device)[0]
    pairs = zip(cover * known, task.given.masks[task.kept] * known, strict=True)
    return float(np.mean([iou(a, b) for a, b in pairs]))


def _sheets(
    task: _Task, coverage: np.ndarray, colour: np.ndarray, shaded: np.ndarray
) -> dict[str, np.ndarray]:
    """Return, by the names of their files, the sheet of the photos that were kept out (shaded:
    their shapes alone), that of some that were not, and that of all masks."""
    rows = {
        task.photos[i].name: [
            task.photos[i].image,
            colour[i],
            shaded[k],
            _overlay(coverage[i], task.given.masks[i]),
        ]
        for k, i in enumerate(task.kept)
    }
    sheet = {
        "photo": [shrink(task.given.images[i], 160) for i in task.train[:7]],
        "fit": [shrink(colour[i], 160) for i in task.train[:7]],
    }
    sheets = {"heldout": rows, "contact_sheet": sheet, "masks": _mask_sheet(task)}
    return {name: contact_sheet(one) for name, one in sheets.items()}


def _mask_sheet(task: _Task) -> dict[str, list[np.ndarray]]:
    """Return all photos, four a row, red where their masks are not, green where the other photos
    have overruled one: to be looked at."""
    red, green = np.eye(3, dtype=np.float32)[:2]
    shown = []
    for photo, mask, doubted in zip(task.photos, task.given.masks, task.given.doubted, strict=True):
        tint = np.where(doubted, green, red)
        plain = (mask > 0.5) & ~doubted
        shown.append(shrink(np.where(plain, photo.image, 0.3 * (photo.image + tint)), 240))
    names = [p.name for p in task.photos]
    return {names[k]: shown[k : k + 4] for k in range(0, len(shown), 4)}


def _start(file: str, box: npt.NDArray[np.float64]) -> Mesh:
    """Return the mesh of a file, which is in the units of the cameras, centred and scaled to
    EXTENT. Raises LoadError, GraphError."""
    mesh = load_mesh(file)
    place = (mesh.positions - box.mean(0)) * scale_of(box)
    return replace(mesh, positions=place.astype(np.float32))


def _one_uv(mesh: Mesh) -> Mesh:
    """Return the mesh with one texture coordinate for all: what a texture of one colour needs."""
    return replace(mesh, uvs=np.zeros((1, 2), np.float32), uv_faces=np.zeros_like(mesh.faces))


def shrink(image: np.ndarray, longer: int) -> np.ndarray:
    """Return the box-filtered copy with the given longer side (the aspect is kept as well as whole
    pixels can)."""
    h, w = image.shape[:2]
    factor = longer / max(h, w)
    if factor >= 1:
        return image.astype(np.float32)
    nh, nw = max(round(h * factor), 1), max(round(w * factor), 1)
    if h % nh == 0 and w % nw == 0:
        return image.reshape(nh, h // nh, nw, w // nw, -1).mean((1, 3)).astype(np.float32)
    smooth = ndimage.uniform_filter(image, (round(h / nh), round(w / nw), 1), mode="nearest")
    y = ((np.arange(nh) + 0.5) * h / nh - 0.5).round().astype(int).clip(0, h - 1)
    x = ((np.arange(nw) + 0.5) * w / nw - 0.5).round().astype(int).clip(0, w - 1)
    return smooth[np.ix_(y, x)].astype(np.float32)


def _overlay(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return a picture, white where both, red where only the rendering, blue where only the
    mask."""
    a, b = got[..., 0] > 0.5, wanted[..., 0] > 0.5
    return np.stack([a, a & b, b], -1).astype(np.float32)
