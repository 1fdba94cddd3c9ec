"""``dressi experiment mip_rules``: which level of detail makes a mip-mapped picture, and a fit
through it, most like a supersampled one.

Beyond the paper, which has no such experiment.

A plane with a random texture, at several distances, turned and tilted by chance. A rule says the
level from how uv changes per pixel. Two figures for each: the picture that it draws of the true
texture, beside a supersampled one; and a texture fitted through the rule to supersampled pictures,
beside the true one: both supersampled, in views that the fit did not see. Higher PSNR is better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.optim import Adam
from dressi.ad.vtype import FLOAT, VEC2, VEC3
from dressi.apps.experiments import common
from dressi.apps.experiments.common import Result, option
from dressi.apps.experiments.parts import kept_parts
from dressi.engine import DressiAD

HELP = "rules for the level of detail of textures beside supersampled pictures"

FOV = np.deg2rad(40.0)
MOST_TILT = np.deg2rad(70.0)
"""Where a pixel's footprint is three times as long as wide."""
RATE = 0.03
"""Of Adam, per step; colours lie in [0, 1]."""
STEP_PX = 1e-3
"""Of the differences that give the derivatives of uv: the map is smooth, in float64."""
TINY = 1e-12

Array = np.ndarray
UV = Callable[[Array], Array]
"""Pixels (..., 2) to uv (..., 2) of a view."""


def _squares(dx: Array, dy: Array) -> tuple[Array, Array]:
    """The squared longer and shorter axis of the footprint, texels. dx, dy: (..., 2), texels."""
    aa, bb, ab = (dx * dx).sum(-1), (dy * dy).sum(-1), (dx * dy).sum(-1)
    half = np.sqrt((0.5 * (aa - bb)) ** 2 + ab * ab)
    return 0.5 * (aa + bb) + half, 0.5 * (aa + bb) - half


def _steps(dx: Array, dy: Array) -> Array:
    return np.maximum((dx * dx).sum(-1), (dy * dy).sum(-1))


def _area(dx: Array, dy: Array) -> Array:
    long, short = _squares(dx, dy)
    return np.sqrt(long * np.maximum(short, TINY))


SQUARES: dict[str, Callable[[Array, Array], Array]] = {
    "longer step": _steps,
    "longer axis": lambda dx, dy: _squares(dx, dy)[0],
    "mean square": lambda dx, dy: 0.5 * ((dx * dx).sum(-1) + (dy * dy).sum(-1)),
    "area": _area,
    "shorter axis": lambda dx, dy: _squares(dx, dy)[1],
}
"""Squared extent of a pixel, texels: half its log2 is the level."""
DEFAULT = ("mean square", -0.5)
"""That of F.texture_lod: ``footprint="mean"``."""


@dataclass(frozen=True)
class Settings(common.Settings):
    """Options of the experiment."""

    rules: tuple[str, ...] = option(tuple(SQUARES), "rules", smoke=("longer step", "mean square"))
    bias: tuple[float, ...] = option((0.0, -0.5, -1.0), "added to the level", smoke=(-0.5,))
    distances: tuple[float, ...] = option(
        (0.7, 1.5, 3.0, 6.0), "texels per pixel, seen from above", smoke=(3.0,), least=0.1
    )
    seeds: int = option(3, "textures and views per distance", smoke=1, least=1, quick=1)
    iterations: int = option(120, "steps of Adam of a fit", smoke=3, least=1)
    texels: int = option(64, "on a side of the texture", smoke=16, least=4)
    size: int = option(40, "pixels on a side", smoke=8, least=4)
    views: int = option(8, "that a fit sees, and as many that it does not", smoke=2, least=1)
    samples: int = option(8, "of the reference, per pixel and axis", smoke=2, least=1)


def random_texture(rng: np.random.Generator, n: int) -> Array:
    """(n, n, 3) in [0, 1], whose amplitudes fall with frequency, as in most pictures."""
    frequency = np.fft.fftfreq(n)
    radius = np.hypot(*np.meshgrid(frequency, frequency))
    radius[0, 0] = 1.0
    waves = np.fft.ifft2(np.fft.fft2(rng.normal(size=(3, n, n))) / radius).real
    waves -= waves.mean((1, 2), keepdims=True)
    waves /= waves.std((1, 2), keepdims=True)
    return np.clip(0.5 + 0.2 * waves, 0.0, 1.0).transpose(1, 2, 0).astype(np.float32)


def random_view(rng: np.random.Generator, texels_per_pixel: float, s: Settings) -> UV:
    """A plane of unit textures seen from a distance, tilted and turned by chance."""
    tilt, (turn, roll) = rng.uniform(0.0, MOST_TILT), rng.uniform(0.0, 2.0 * np.pi, 2)
    offset = rng.uniform(0.0, 1.0, 2)
    cos, sin = np.cos(tilt), np.sin(tilt)

    def about_z(angle: float) -> Array:
        c, n = np.cos(angle), np.sin(angle)
        return np.array([[c, -n, 0.0], [n, c, 0.0], [0.0, 0.0, 1.0]])

    pose = about_z(turn) @ np.array([[1, 0, 0], [0, cos, -sin], [0, sin, cos]]) @ about_z(roll)
    pixel = 2.0 * np.tan(FOV / 2.0) / s.size
    distance = texels_per_pixel / s.texels / pixel
    eye = -distance * (pose @ np.array([0.0, 0.0, -1.0]))

    def uv(at_px: Array) -> Array:
        plane = (at_px - s.size / 2.0) * pixel
        rays = np.concatenate([plane, -np.ones((*plane.shape[:-1], 1))], -1) @ pose.T
        return np.asarray((eye - rays * (eye[2] / rays[..., 2:]))[..., :2] + offset)

    return uv


def pixels(size: int, samples: int = 1) -> Array:
    """(n, n, 2) centres of samples, pixels."""
    along = (np.arange(size * samples) + 0.5) / samples
    return np.stack(np.meshgrid(along, along), -1)


def supersampled(texture: Array, uv: UV, s: Settings) -> Array:
    """(size, size, 3): the mean over samples of a pixel, bilinear in the texture, which repeats."""
    at = uv(pixels(s.size, s.samples)) * s.texels - 0.5
    low = np.floor(at).astype(int)
    fx, fy = np.moveaxis((at - low)[..., None, :], -1, 0)

    def texel(dx: int, dy: int) -> Array:
        return np.asarray(texture[(low[..., 1] + dy) % s.texels, (low[..., 0] + dx) % s.texels])

    upper = texel(0, 0) * (1 - fx) + texel(1, 0) * fx
    fine = upper * (1 - fy) + (texel(0, 1) * (1 - fx) + texel(1, 1) * fx) * fy
    shape = (s.size, s.samples, s.size, s.samples, 3)
    return np.asarray(fine.reshape(shape).mean((1, 3)), np.float32)


def levels(rule: str, bias: float, uv: UV, s: Settings) -> Array:
    """(size, size, 1): what a rule says of a view."""
    at = pixels(s.size)
    dx, dy = (
        (uv(at + STEP_PX * axis) - uv(at - STEP_PX * axis)) * (s.texels / (2.0 * STEP_PX))
        for axis in np.eye(2)
    )
    return np.asarray(0.5 * np.log2(np.maximum(SQUARES[rule](dx, dy), TINY)) + bias)[..., None]


def psnr(a: Array, b: Array) -> float:
    """PSNR of pictures in [0, 1], dB."""
    return float(-10.0 * np.log10(max(np.mean((a - b) ** 2), TINY)))


class Scene:
    """The fit of a texture, in one engine, for any rule."""

    def __init__(self, ad: DressiAD, s: Settings) -> None:
        self._ad, self._s = ad, s
        size = (s.size, s.size)
        self._texture = Variable(VEC3, (s.texels, s.texels), requires_grad=True, name="texture")
        self._uv = Variable(VEC2, size, s.views, name="uv")
        self._level = Variable(FLOAT, size, s.views, name="level")
        self._target = Variable(VEC3, size, s.views, name="target")
        chain = F.image.mipmap(self._texture)
        self._picture = F.texture_mip(chain, self._uv, self._level)
        off = self._picture - self._target
        self._loss, self._optimizer = F.mean(F.dot(off, off)), Adam(RATE)
        self.shown: tuple[Array, Array] | None = None
        """The first view, as it was drawn last and supersampled."""

    def figures(self, rule: str, bias: float, distance: float, seed: int) -> tuple[float, float]:
        """PSNR of the picture that is drawn, and of the texture that is fitted."""
        ad, s = self._ad, self._s
        rng = np.random.default_rng(seed)
        texture = random_texture(rng, s.texels)
        seen, new = ([random_view(rng, distance, s) for _ in range(s.views)] for _ in range(2))
        target = np.stack([supersampled(texture, uv, s) for uv in seen])
        data = {
            self._texture: texture,
            self._uv: np.stack([uv(pixels(s.size)) for uv in seen]),
            self._level: np.stack([levels(rule, bias, uv, s) for uv in seen]),
            self._target: target,
        }
        for leaf, value in data.items():
            # A stack of one view is sent as its only layer.
            ad.send_img(leaf, value if s.views > 1 or value.ndim == 3 else value[0])
        picture = ad.recv_img(self._picture).reshape(target.shape)
        self.shown = picture[0], target[0]
        drawn = psnr(picture, target)
        ad.set_loss_var(self._loss)
        ad.set_optimizer(self._optimizer)
        for state in ad.optimizer_states:
            ad.send_img(state, np.zeros_like(ad.recv_img(state)))
        ad.send_img(self._texture, np.full_like(texture, 0.5))
        ad.exec_steps(s.iterations)
        fitted = ad.recv_img(self._texture)
        pairs = [[supersampled(t, uv, s) for uv in new] for t in (fitted, texture)]
        return drawn, psnr(np.stack(pairs[0]), np.stack(pairs[1]))


def run(settings: Settings) -> Result:
    """Return both figures of every rule and bias, the mean over seeds, per distance; a view from
    the last distance, supersampled and as each draws it."""
    s = settings
    names = [(rule, bias) for rule in s.rules for bias in s.bias]
    found: dict[tuple[str, float], Array] = {}
    truth: list[Array] = []
    drawn: list[Array] = []
    with DressiAD(s.device) as ad:
        scene = Scene(ad, s)

        def measure(rule: str, bias: float) -> dict[str, Array]:
            figures = [
                np.mean([scene.figures(rule, bias, d, k) for k in range(s.seeds)], axis=0)
                for d in s.distances
            ]
            assert scene.shown is not None
            return {"figures": np.array(figures), "drawn": scene.shown[0], "truth": scene.shown[1]}

        work = {f"{rule}, {bias:g}": partial(measure, rule, bias) for rule, bias in names}
        for name, part in zip(names, kept_parts(s, work, "rules").values(), strict=True):
            found[name] = part["figures"]
            drawn.append(part["drawn"])
            truth = [part["truth"]]
    figures = {
        f"{rule} {bias:+g}": {"drawn_db": v[:, 0].tolist(), "fitted_db": v[:, 1].tolist()}
        for (rule, bias), v in found.items()
    }
    sheet = {"views": np.concatenate([*truth, *drawn], axis=1)}
    return Result(figures, sheet, conditions=conditions(found, s), tables=[table(found, s)])


def table(found: dict[tuple[str, float], Array], s: Settings) -> Sequence[Sequence[str]]:
    """Rows of texts, the best mean of both figures first."""
    head = [
        "rule",
        "bias",
        *(f"{what} at {d:g}" for what in ("drawn", "fitted") for d in s.distances),
    ]
    ordered = sorted(found.items(), key=lambda item: -item[1].mean())
    rows = [
        [rule, f"{bias:g}", *(f"{x:.1f}" for x in v.T.reshape(-1)), f"{v.mean():.2f}"]
        for (rule, bias), v in ordered
    ]
    return [[*head, "mean dB"], *rows]


def conditions(found: dict[tuple[str, float], Array], s: Settings) -> list[tuple[str, bool]]:
    """Whether the default has the best mean over distances and both figures."""
    if s.smoke or DEFAULT not in found:
        return []
    best = max(found, key=lambda key: found[key].mean())
    return [(f"the default {DEFAULT} has the best mean; the best is {best}", best == DEFAULT)]
