"""The fit of ``dressi experiment face``: all parameters together, coarse to fine (paper, B.3).

In: a head model, frames, a start. Out: ``Fitted``. Poses, scale, coefficients and three maps are
optimized together, maps by SGD, all else by Adam, in one optimizer. The loss is that of the paper:
landmarks by L1, depth by truncated L1, colours by L2, regularizers. Differs: in free levels, after
those of the paper, scale and coefficients stay and every vertex may leave the model's span, by an
offset, which is parametrized by Laplacian smoothing and regularized by its Laplacian.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dressi.ad import SGD, Adam, AdamUniform, F, ParameterGroups, Variable
from dressi.ad.optim import Optimizer
from dressi.ad.vtype import FLOAT, INT, IVEC3, MAT4, VEC2, VEC3, VType
from dressi.apps.experiments.face_capture import Frame, shrunk
from dressi.apps.experiments.face_model import HeadModel
from dressi.apps.experiments.face_picture import Maps, Picture, SurfaceTables, build_picture
from dressi.apps.experiments.face_start import Start
from dressi.engine import DressiAD
from dressi.errors import GraphError
from dressi.render.camera.pose import axis_angle_matrix, build_view
from dressi.render.fit import (
    laplacian_loss,
    laplacian_matrix,
    laplacian_smoothing,
    morphable,
    total_variation,
)
from dressi.render.fit.rgbd import depth_loss, landmark_loss

Floats = npt.NDArray[np.float32]

FLAT_NORMAL = (0.5, 0.5, 1.0)
START_ALBEDO, START_SURFACE = 0.5, (1.0, 0.6, 0.0)
"""The maps begin flat (paper): grey; occlusion 1, roughness, metallic."""


@dataclass(frozen=True)
class Weights:
    """Of the losses. landmarks: per pixel. depth: per cm. color: per squared radiance.
    identity: per squared standard deviation. expression: per squared weight.
    maps: of total variation of the albedo, and of squares of what the others differ from flat.
    offset: of the squared Laplacian of the offsets, per squared cm."""

    landmarks: float = 0.03
    depth: float = 1.0
    color: float = 3.0
    identity: float = 3e-5
    expression: float = 1e-3
    maps: float = 0.02
    offset: float = 100.0


SMOOTHING = 12
"""Rounds of Laplacian smoothing between the parameter and the offsets: a pull on one vertex moves
those within about 2.5 edges, a centimetre. Large Steps would need an inverse factor in each
level: 6 s of processor time for the head's 14,062 vertices."""

PARTS = 10
"""Of a level: in each the rate is constant, and at its end the losses are recorded."""

TRUNCATION_CM = 1.0
"""Of the loss of depth: what is farther off is hair, clothes or background."""


@dataclass(frozen=True)
class Rates:
    """Learning rates of Adam: per step, in the unit of the parameter (degrees in radians, cm).
    maps: of SGD, share of the distance to the colour of a pixel that its texels go."""

    identity: float = 0.05
    expression: float = 0.03
    rotation: float = 0.003
    translation: float = 0.03
    log_scale: float = 0.002
    offset: float = 0.25
    maps: float = 0.15


SHAPE = ("identity", "expression", "log_scale")
"""Parameters that stay in free levels."""


@dataclass(frozen=True, eq=False)
class Leaves:
    """Parameters (those that stay do not require a gradient), data of the frames, the factor of all
    rates, and what never changes."""

    parameters: dict[str, Variable]
    images: dict[str, Variable]
    rate: Variable
    fixed: dict[Variable, np.ndarray]


@dataclass(frozen=True, eq=False)
class Graph:
    """leaves, and what is computed of them. terms: the weighted losses by name."""

    leaves: Leaves
    positions: Variable
    view: Variable
    picture: Picture
    terms: dict[str, Variable]
    loss: Variable


def parameter_leaves(
    model: HeadModel, n_views: int, map_side: int, free: bool
) -> dict[str, Variable]:
    """Return all that is fitted, by name. free: the offsets among it, but not SHAPE."""
    atlas = (2 * map_side, map_side)
    shapes = {
        "identity": (FLOAT, (1, 1), len(model.identity)),
        "expression": (FLOAT, (1, 1), len(model.expression)),
        "log_scale": (FLOAT, (1, 1), 1),
        "rotation": (VEC3, (1, 1), n_views),
        "translation": (VEC3, (1, 1), n_views),
        "albedo": (VEC3, atlas, 1),
        "normal": (VEC3, atlas, 1),
        "surface": (VEC3, atlas, 1),
    }
    if free:
        shapes["offset"] = (VEC3, (len(model.mean), 1), 1)
    stay = SHAPE if free else ()
    return {
        name: Variable(vtype, size, layers, requires_grad=name not in stay, name=name)
        for name, (vtype, size, layers) in shapes.items()
    }


def start_value(name: str, x: Variable, start: Start) -> np.ndarray:
    """Return what a parameter begins with: the mean head at the scale of the start, flat maps."""
    shape = (x.layers, x.size[1], x.size[0], x.vtype.n)
    first = {
        "albedo": START_ALBEDO,
        "normal": FLAT_NORMAL,
        "surface": START_SURFACE,
        "log_scale": np.log(start.scale),
    }
    return np.broadcast_to(np.asarray(first.get(name, 0.0), np.float32), shape).copy()


@dataclass(frozen=True, eq=False)
class Data:
    """Leaves that hold the same throughout a level. start_view: MAT4, the poses of the start. back:
    MAT4, moves the head to the camera. center: VEC3, from where. projection: MAT4. landmarks: VEC2,
    landmark_weight: FLOAT @ (68, 1). All with a layer per frame. basis: VEC3, a layer per
    component. values: what each holds."""

    basis: Variable
    start_view: Variable
    back: Variable
    center: Variable
    projection: Variable
    landmarks: Variable
    landmark_weight: Variable
    values: dict[Variable, np.ndarray]


def data_leaves(model: HeadModel, frames: Sequence[Frame], start: Start) -> Data:
    """Return the leaves of the data."""
    n = len(frames)
    center = start.views[:, :3, 3]
    back = np.tile(np.eye(4), (n, 1, 1))
    back[:, :3, 3] = -center
    given: dict[str, tuple[VType, tuple[int, int], np.ndarray]] = {
        "basis": (VEC3, (len(model.mean), 1), model.basis),
        "start_view": (MAT4, (1, 1), start.views),
        "back": (MAT4, (1, 1), back),
        "center": (VEC3, (1, 1), center[:, None, None]),
        "projection": (MAT4, (1, 1), np.stack([f.projection for f in frames])),
        "landmarks": (
            VEC2,
            (68, 1),
            np.nan_to_num(np.stack([f.landmarks for f in frames]))[:, None],
        ),
        "landmark_weight": (FLOAT, (68, 1), start.weights[:, None, :, None]),
    }
    leaves = {k: Variable(t, size, len(v), name=k) for k, (t, size, v) in given.items()}
    values = {leaves[k]: np.asarray(v, np.float32) for k, (_, _, v) in given.items()}
    return Data(**leaves, values=values)


def build_graph(
    model: HeadModel,
    frames: Sequence[Frame],
    start: Start,
    size: tuple[int, int],
    map_side: int,
    weights: Weights,
    free: bool = False,
) -> Graph:
    """Return the graph for pictures of ``size``; frames: of their own size, which may be larger.
    free: of a free level, with offsets."""
    n = len(frames)
    p, data = parameter_leaves(model, n, map_side, free), data_leaves(model, frames, start)
    types = {"color": VEC3, "depth": FLOAT, "color_weight": FLOAT, "depth_weight": FLOAT}
    image = {name: Variable(vtype, size, n, name=name) for name, vtype in types.items()}

    mean, faces = F.leaf(model.mean, VEC3, "mean"), F.leaf(model.faces, IVEC3, "faces")
    laplacian = laplacian_matrix(model.faces, len(model.mean))
    offsets = laplacian_smoothing(p["offset"], laplacian, SMOOTHING) if free else None
    shape = morphable(mean, data.basis, F.concat([p["identity"], p["expression"]]), offsets)
    positions = shape * F.exp(p["log_scale"])
    # Turned about the head, not about the camera: else a turn would move it far.
    turn = build_view(axis_angle_matrix(p["rotation"]), data.center + p["translation"])
    view = turn @ data.back @ data.start_view
    tables = SurfaceTables(
        positions, faces, F.leaf(model.uv, VEC2, "uv"), F.leaf(model.uv_faces, IVEC3, "uv_faces")
    )
    maps = Maps(p["albedo"], p["normal"], p["surface"])
    picture = build_picture(tables, maps, view, data.projection, size)

    rows = F.leaf(model.landmarks[:, None], INT, "landmark_rows")
    at, matrix = F.lookup(positions, rows), data.projection @ view
    marks = landmark_loss(at, matrix, data.landmarks, data.landmark_weight, frames[0].size)
    terms = {"landmarks": marks, **image_losses(picture, image), **priors(p)}
    if offsets is not None:
        terms["offset"] = laplacian_loss(offsets, laplacian)
    terms = {name: term * getattr(weights, name) for name, term in terms.items()}
    used = [term for name, term in terms.items() if getattr(weights, name) > 0.0]
    leaves = Leaves(p, image, Variable(FLOAT, name="rate"), data.values)
    return Graph(leaves, positions, view, picture, terms, F.add_n(used))


def image_losses(picture: Picture, image: dict[str, Variable]) -> dict[str, Variable]:
    """Return the losses of depth and colours, over the pixels that show the head and count."""
    seen = F.stop_gradient(picture.mask)
    depth = depth_loss(picture.depth, image["depth"], image["depth_weight"] * seen, TRUNCATION_CM)
    off, counts = picture.color - image["color"], image["color_weight"] * seen
    square = F.sum(F.dot(off, off) * counts) * (1.0 / 3.0) / F.maximum(F.sum(counts), 1.0)
    return {"depth": depth, "color": square}


def priors(p: dict[str, Variable]) -> dict[str, Variable]:
    """Return the regularizers of the coefficients and of the maps."""
    flat, surface = p["normal"] - FLAT_NORMAL, p["surface"] - START_SURFACE
    return {
        "identity": F.sum(p["identity"] * p["identity"]),
        "expression": F.sum(p["expression"] * p["expression"]),
        "maps": total_variation(p["albedo"], isotropic=True)
        + F.mean(F.dot(flat, flat))
        + F.mean(F.dot(surface, surface)),
    }


def optimizer_of(
    rates: Rates, rate: Variable, n_pixels: int, color: float, free: bool
) -> Optimizer:
    """Return SGD for the maps, Adam for all else, with coefficients and maps kept in range.

    free: of a free level, where the offsets move together (AdamUniform). A texel's gradient is that
    of a mean over all pixels, so the rate of SGD counts in pixels.
    """
    sgd = SGD(rate * (rates.maps * n_pixels * 1.5 / max(color, 1e-6)))
    names = ("rotation", "translation", *(() if free else SHAPE))
    others: dict[str, Optimizer] = {
        name: Adam(rate * getattr(rates, name), beta2=0.99) for name in names
    }
    if free:
        others["offset"] = AdamUniform(rate * rates.offset, beta2=0.99)
    groups = ParameterGroups({**others, "albedo": sgd, "normal": sgd, "surface": sgd})

    def step(xs: Sequence[Variable], gxs: Sequence[Variable]) -> list[Variable]:
        new = []
        for x, y in zip(xs, groups(xs, gxs), strict=True):
            if x.name in ("expression", "albedo", "normal", "surface"):
                y = F.clamp(y, 0.0, 1.0)
            new.append(y)
        return new

    return step


@dataclass(frozen=True, eq=False)
class Fitted:
    """values: of the parameters, by name. positions: (V, 3), cm. views: (n, 4, 4), model to camera.
    losses: weighted terms by name, one per record."""

    values: dict[str, np.ndarray]
    positions: np.ndarray
    views: np.ndarray
    losses: dict[str, list[float]]


@dataclass(frozen=True)
class Level:
    """One level of the fit. factor: of the picture's side. map_side: texels. iterations. rate: all
    rates are multiplied with it at the start; it falls to ``last`` times that, evenly in steps.
    free: scale and coefficients stay, vertices leave the span of the model."""

    factor: int
    map_side: int
    iterations: int
    rate: float = 1.0
    last: float = 0.2
    free: bool = False


def fit(
    model: HeadModel,
    frames: Sequence[Frame],
    start: Start,
    levels: Sequence[Level],
    weights: Weights,
    rates: Rates,
    device: str | None = None,
    before: Fitted | None = None,
) -> Fitted:
    """Fit the head, coarse to fine. frames: of one size, which the factors of the levels divide.
    before: go on from there. Raises GraphError where the loss becomes no number."""
    fitted = before
    for level in levels:
        w, h = frames[0].size
        size = (w // level.factor, h // level.factor)
        graph = build_graph(model, frames, start, size, level.map_side, weights, level.free)
        with DressiAD(device) as ad:
            send_all(ad, graph, frames, level.factor, start, fitted)
            ad.set_loss_var(graph.loss)
            # A texel is read by about as many pixels as there are, of all frames, over texels.
            n_pixels = size[0] * size[1] * len(frames) // 4
            rate = graph.leaves.rate
            ad.set_optimizer(optimizer_of(rates, rate, n_pixels, weights.color, level.free))
            fitted = run_level(ad, graph, level, fitted)
    assert fitted is not None
    return fitted


def send_all(
    ad: DressiAD,
    graph: Graph,
    frames: Sequence[Frame],
    factor: int,
    start: Start,
    before: Fitted | None,
) -> None:
    """Send parameters, at their start or as they were before, and data."""
    for name, x in graph.leaves.parameters.items():
        value = start_value(name, x, start)
        if before is not None and name in before.values:
            value = enlarged(before.values[name], value.shape)
        ad.send_img(x, value)
    for x, value in graph.leaves.fixed.items():
        ad.send_img(x, value)
    images = [shrunk(f, factor) for f in frames]
    for name in images[0]:
        ad.send_img(graph.leaves.images[name], np.stack([i[name] for i in images]))


def run_level(ad: DressiAD, graph: Graph, level: Level, before: Fitted | None) -> Fitted:
    """Run the iterations of a level, in parts with a rate each."""
    losses = {} if before is None else {k: list(v) for k, v in before.losses.items()}
    n_parts = max(1, min(PARTS, level.iterations // 5))
    parts = np.diff(np.linspace(0, level.iterations, n_parts + 1).astype(int))
    for k, n_steps in enumerate(parts.tolist()):
        falling = level.last ** (k / max(n_parts - 1, 1))
        ad.send_img(graph.leaves.rate, np.float32(level.rate * falling))
        ad.exec_steps(n_steps)
        terms = ad.recv_imgs(list(graph.terms.values()))
        for name, value in zip(graph.terms, terms, strict=True):
            losses.setdefault(name, []).append(float(value.ravel()[0]))
    if not np.isfinite(losses["color"][-1]):
        raise GraphError("face: the loss became no number\n  hint: check depth and landmarks")
    values = {
        name: ad.recv_img(x).reshape(x.layers, x.size[1], x.size[0], x.vtype.n)
        for name, x in graph.leaves.parameters.items()
    }
    positions, views = ad.recv_imgs([graph.positions, graph.view])
    return Fitted(values, positions.reshape(-1, 3), views.reshape(-1, 4, 4), losses)


def enlarged(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return a map with more texels, each repeated; anything else as it is."""
    for axis in (1, 2):
        value = np.repeat(value, shape[axis] // value.shape[axis], axis=axis)
    return value
