"""Optimizers in plain NumPy float64, for the programs of ``programs.py``: what an engine should do.

They are written from the papers' formulas, not from ``dressi.ad.optim``. With a noisy tape the
state is rounded at random after each step, as float32 would.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dressi.apps.reliability.programs import Program, run
from dressi.apps.reliability.tape import ROUNDING, Array, Tape

Numbers = dict[str, np.ndarray]

OPTIMIZERS = ("none", "SGD", "Momentum", "Adam", "RMSprop", "AdamUniform", "gradients")
MOMENTUM, BETA1, BETA2, EPS = 0.9, 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Setup:
    """What a fit does: which loss, which optimizer, which leaves move."""

    loss: int
    optimizer: str
    moving: tuple[str, ...]


@dataclass
class Fit:
    """Leaves by name, the state of the optimizer by name, the learning rate."""

    program: Program
    leaves: Numbers
    state: Numbers
    rate: float
    noise: float = 0.0
    seed: int = 0
    loss: Array = field(default_factory=lambda: np.zeros(1))
    largest: float = 0.0
    steps: int = 0

    def tape(self) -> Tape:
        """A new one, of this fit's noise; another seed each time."""
        return Tape(self.noise, self.seed * 1009 + self.steps)

    def copy(self, noise: float, seed: int) -> Fit:
        """The same place, rounded otherwise from here on."""
        leaves = {n: np.asarray(a, np.float64) for n, a in self.leaves.items()}
        state = {n: np.asarray(a, np.float64) for n, a in self.state.items()}
        return Fit(self.program, leaves, state, self.rate, noise, seed)

    def step(self, setup: Setup) -> None:
        """One iteration; ``loss`` is that of before the update."""
        tape = self.tape()
        ran = run(self.program, self.leaves, tape)
        loss = ran.losses[setup.loss]
        self.loss = loss.value
        names = list(setup.moving)
        if setup.optimizer not in ("none", "gradients"):
            gradients = tape.gradients(loss, [ran.leaves[n] for n in names])
            t = float(self.state.get("step", np.zeros(1)).item()) + 1.0
            directions = {
                n: self._direction(setup, n, g, t) for n, g in zip(names, gradients, strict=True)
            }
            for name, way in directions.items():
                self.leaves[name] = self._rounded(self.leaves[name] - self.rate * way, tape)
            self.state["step"] = np.full(1, t)
        self.largest = max(self.largest, tape.largest)
        self.steps += 1

    def _direction(self, setup: Setup, name: str, g: Array, t: float) -> Array:
        zero = np.zeros_like(g)
        if setup.optimizer == "SGD":
            return g
        if setup.optimizer == "Momentum":
            self.state[f"{name}.velocity"] = MOMENTUM * self.state.get(f"{name}.velocity", zero) + g
            return self.state[f"{name}.velocity"]
        beta1 = 0.0 if setup.optimizer == "RMSprop" else BETA1
        m = beta1 * self.state.get(f"{name}.m", zero) + (1.0 - beta1) * g
        v = BETA2 * self.state.get(f"{name}.v", zero) + (1.0 - BETA2) * g * g
        self.state[f"{name}.m"], self.state[f"{name}.v"] = m, v
        # An error of the power in float32, relative to 1 - beta2^t, is what a small t costs.
        slack = 1.0 + self.noise * 8.0 / (1.0 - BETA2**t) * np.sin(self.seed + t)
        corrected = v / (1.0 - BETA2**t) * slack
        if setup.optimizer == "AdamUniform":
            corrected = corrected.max()
        return m / (1.0 - beta1**t) / (np.sqrt(corrected) + EPS)

    def _rounded(self, a: Array, tape: Tape) -> Array:
        return a if not self.noise else a * (1 + ROUNDING * tape.rng.uniform(-1, 1, a.shape))
