"""Losses over views, and devices to split them over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dressi import FLOAT, MAT3, VEC3, F, Variable
from dressi.ad import step_counter
from dressi.parallel import Share
from dressi.vk import equal_devices

VIEWS, SIZE = 5, (7, 6)


def devices(n: int) -> list[int]:
    """n devices of one type: all there are, and again."""
    there = [d.index for d in equal_devices()]
    return [there[k % len(there)] for k in range(n)]


def rel(got: np.ndarray, want: np.ndarray) -> float:
    assert got.shape == want.shape
    return float(np.abs(got - want).max() / np.abs(want).max())


class Gains:
    """An image x such that x * gain fits the target of every view, and a term for x alone.

    loss = reduce over views of mean over pixels |gain x - target|^2 + 0.1 mean |x|^2
    """

    def __init__(self, reduction: str = "mean", shared: bool = True) -> None:
        rng = np.random.default_rng(3)
        w, h = SIZE
        self.reduction = reduction
        self.gain = rng.uniform(0.2, 2.0, (VIEWS, 1))
        self.target = rng.normal(size=(VIEWS, h, w, 3))
        self.start = rng.normal(size=(h, w, 3))
        self.x = Variable(VEC3, SIZE, requires_grad=True, name="x") if shared else None
        self.targets: dict[int, Variable] = {}

    def __call__(self, share: Share) -> tuple[Variable, Mapping[Variable, Any]]:
        n = len(share)
        x = self.x
        if x is None:
            x = Variable(VEC3, SIZE, requires_grad=True, name="x")
        gain = Variable(FLOAT, layers=n, name="gain")
        target = Variable(VEC3, SIZE, n, name="target")
        self.targets[share.index] = target
        off = x * gain - target
        pixels = SIZE[0] * SIZE[1]
        fit, own = F.sum(F.dot(off, off)) * (1.0 / pixels), F.mean(F.dot(x, x)) * 0.1
        if self.reduction == "mean":
            loss = fit * (1.0 / n) + own
        else:
            loss = fit + own * share.weight
        data = {gain: self.gain[share.views], target: self.target[share.views], x: self.start}
        return loss, data

    def numpy(self, lr: float, steps: int) -> tuple[np.ndarray, float]:
        """x after gradient descent in float64, and the loss before the last step."""
        x, pixels, loss = self.start.copy(), SIZE[0] * SIZE[1], 0.0
        scale = 1.0 / VIEWS if self.reduction == "mean" else 1.0
        for _ in range(steps):
            gain = self.gain[:, :, None, None]
            off = gain * x - self.target
            loss = scale * (off**2).sum() / pixels + 0.1 * (x**2).sum() / pixels
            x = x - lr * (2 * scale * (gain * off).sum(axis=0) + 0.2 * x) / pixels
        return x, float(loss)


def many_parameters(share: Share) -> tuple[Variable, Mapping[Variable, Any]]:
    """A number, a table, a matrix and a stack that belongs to all views, with state in the loss
    (a counter) and a value that never changes."""
    n, (w, h) = len(share), SIZE
    rng = np.random.default_rng(5)
    scale = Variable(FLOAT, requires_grad=True, name="scale")
    table = Variable(VEC3, (9, 1), requires_grad=True, name="table")
    matrix = Variable(MAT3, requires_grad=True, name="matrix")
    stack = Variable(VEC3, SIZE, 2, requires_grad=True, name="stack")
    target = Variable(VEC3, SIZE, n, name="target")
    still = F.image.gaussian_blur(F.image.gaussian_blur(target, 1.0), 1.0)
    t = F.to_float(step_counter("loss.step"))
    both = F.split(stack)
    off = (matrix @ both[0]) * (1.0 + 0.01 * t) + both[1] * scale - still
    loss = F.mean(F.dot(off, off)) + F.mean(F.dot(table, table)) * scale
    data = {
        scale: 0.5,
        table: rng.normal(size=(9, 3)),
        matrix: rng.normal(size=(3, 3)),
        stack: rng.normal(size=(2, h, w, 3)),
        target: rng.normal(size=(VIEWS, h, w, 3))[share.views],
    }
    return loss, data
