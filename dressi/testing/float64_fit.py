"""Optimizers in plain NumPy float64, for the programs of ``programs.py``: what an engine should do.

They are written from the papers' formulas, not from ``dressi.ad.optim``. With a noisy tape the
state is rounded at random after each step, as float32 would.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dressi.testing.programs import Program, run
from dressi.testing.tape import ROUNDING, Array, Tape

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
        """Return a new one, of this fit's noise; another seed each time."""
        return Tape(self.noise, self.seed * 1009 + self.steps)

    def copy(self, noise: float, seed: int) -> Fit:
        """Return the same place, rounded otherwise from here on."""
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
                n: self._direction(setup, n, g, t, tape)
                for n, g in zip(names, gradients, strict=True)
            }
            for name, way in directions.items():
                self.leaves[name] = self._rounded(self.leaves[name] - self.rate * way, tape)
            self.state["step"] = np.full(1, t)
        self.largest = max(self.largest, tape.largest)
        self.steps += 1

    def _direction(self, setup: Setup, name: str, g: Array, t: float, tape: Tape) -> Array:
        zero = np.zeros_like(g)
        if setup.optimizer == "SGD":
            return g
        if setup.optimizer == "Momentum":
            self.state[f"{name}.velocity"] = MOMENTUM * self.state.get(f"{name}.velocity", zero) + g
            return self.state[f"{name}.velocity"]
        beta1 = 0.0 if setup.optimizer == "RMSprop" else BETA1
        # The state is what the engine keeps: moments with their bias taken off.
        m = self._moment(f"{name}.m", g, beta1, t, tape)
        v = self._moment(f"{name}.v", g * g, BETA2, t, tape)
        return m / (np.sqrt(v.max() if setup.optimizer == "AdamUniform" else v) + EPS)

    def _moment(self, key: str, new: Array, beta: float, t: float, tape: Tape) -> Array:
        """Return the step t of a moving average, as the paper has it: biased, and corrected
        afterwards."""
        biased = self.state.get(key, np.zeros_like(new)) * (1.0 - beta ** (t - 1.0))
        biased = beta * biased + (1.0 - beta) * new
        self.state[key] = self._rounded(biased / (1.0 - beta**t), tape)
        return self.state[key]

    def _rounded(self, a: Array, tape: Tape) -> Array:
        return a if not self.noise else a * (1 + ROUNDING * tape.rng.uniform(-1, 1, a.shape))
