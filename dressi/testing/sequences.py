"""Random sequences of what users do with an engine: send, step, receive, change the loss, the
optimizer, the options, what moves.

After each step and each receive the same is done by a fresh engine that is given the leaves and the
optimizer's state as they were: in deterministic mode the bits must be the same. And it is done in
float64 by an evaluator of another make, from the same place: where the engine differs by more than
FACTOR times the spread of runs that are rounded at random, it is a fault. As every step starts from
where the engine is, chaos (a spread that grows from step to step) cannot excuse one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from dressi.ad import (
    SGD,
    Adam,
    AdamUniform,
    GradientOnly,
    Momentum,
    Variable,
)
from dressi.ad.optim import Optimizer
from dressi.ad.vtype import FLOAT
from dressi.engine import DressiAD
from dressi.errors import DressiWarning
from dressi.kinds import Lowering
from dressi.packing import Options
from dressi.testing.float64_fit import BETA1, BETA2, MOMENTUM, OPTIMIZERS, Fit, Setup
from dressi.testing.programs import N_LOSSES, Program, build, random_program, run
from dressi.testing.tape import ROUNDING, Tape
from dressi.testing.verdicts import NOISY, Outcome, Verdicts

SWITCHES = (
    "cache",
    "zero_copy",
    "rematerialize",
    "reuse_images",
    "pack_stages",
    "merge_duplicates",
)
LOWERINGS: tuple[Lowering, ...] = ("graphics", "compute")
NUMBERS = ("uniform", "per_layer", "matrix")
"""Leaves of 1x1, which lie in the uniform block until a step moves them."""
ACTIONS = {
    "step": 0.12,
    "steps": 0.08,
    "rhythm": 0.1,
    "send": 0.12,
    "receive": 0.14,
    "around": 0.1,
    "loss": 0.06,
    "optimizer": 0.08,
    "options": 0.08,
    "moving": 0.08,
    "rate": 0.04,
}
"""What happens, and how often."""
COMPARED = 0.2
"""How many of the steps of a rhythm are compared, besides its last."""


def advance(ad: DressiAD, n: int) -> None:
    """Run n steps, also where a sequence has taken the optimizer away, without the warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* without an optimizer", DressiWarning)
        ad.exec_steps(n)


class Sequence(Verdicts):
    """One engine, and what it should hold.

    seed: of everything. n_programs: out of how many programs the seed picks (few: their shaders are
    compiled once). n_actions: after the first two steps.
    """

    def __init__(
        self, seed: int, device: str | None = None, n_programs: int | None = None, n_ops: int = 4
    ) -> None:
        super().__init__(seed)
        self.device = device
        self.rng = np.random.default_rng([seed, 14])
        self.program: Program = random_program(seed % (n_programs or seed + 1), n_ops)
        self.graph = build(self.program)
        self.lr = Variable(FLOAT, name="lr")
        self.options = Options(deterministic=True, lowering=LOWERINGS[seed % 2])
        self.setup = Setup(0, OPTIMIZERS[int(self.rng.integers(1, 6))], ("image",))
        self.moved = self.setup.moving
        """What moved in the last step."""
        self.data: dict[str, np.ndarray] = self.program.data(seed)
        self.rate = float(np.float32(0.02))
        self.ends: dict[str, np.ndarray] = {}
        self.last_loss: np.ndarray | None = None
        self.asked = self._ask()
        self.walks: list[Fit] = []
        self.ad: DressiAD

    # -- the engine

    def optimizer(self) -> Optimizer | None:
        """Return a new one of the current kind."""
        lr = self.lr
        made: dict[str, Callable[[], Optimizer | None]] = {
            "none": lambda: None,
            "gradients": GradientOnly,
            "SGD": lambda: SGD(lr),
            "Momentum": lambda: Momentum(lr, MOMENTUM),
            "Adam": lambda: Adam(lr, BETA1, BETA2),
            "RMSprop": lambda: Adam(lr, 0.0, BETA2),
            "AdamUniform": lambda: AdamUniform(lr, BETA1, BETA2),
        }
        return made[self.setup.optimizer]()

    def load(self, ad: DressiAD, leaves: dict[str, np.ndarray]) -> None:
        """Data, loss and optimizer of now."""
        ad.set_loss_var(self.graph.losses[self.setup.loss])
        ad.set_optimizer(self.optimizer())
        ad.send_img(self.graph.index, self.program.index)
        ad.send_img(self.lr, [self.rate])
        for name, array in leaves.items():
            ad.send_img(self.graph.leaves[name], _shown(array))

    def leaves_of(self, ad: DressiAD) -> dict[str, np.ndarray]:
        """Return the leaves by name, (layers, H, W, ...)."""
        return {n: _full(ad.recv_img(v), v) for n, v in self.graph.leaves.items()}

    def states_of(self, ad: DressiAD) -> dict[str, np.ndarray]:
        """Return what the optimizer keeps, by name."""
        return {_state_name(v): _full(ad.recv_img(v), v) for v in ad.optimizer_states}

    def fresh(self, before: dict[str, np.ndarray], states: dict[str, np.ndarray]) -> DressiAD:
        """Return an engine that was given all there is; without the cache for every second seed."""
        options = replace(self.options, cache=self.options.cache and self.seed % 4 < 2)
        ad = DressiAD(self.device, options)
        try:
            self.load(ad, before)
            if states:
                assert ad.plan  # builds the step, and with it the states
                for v in ad.optimizer_states:
                    ad.send_img(v, _shown(states[_state_name(v)]))
        except BaseException:
            ad.close()
            raise
        return ad

    # -- actions

    def run(self, n_actions: int) -> Outcome:
        """Run the whole sequence."""
        for name, v in self.graph.leaves.items():
            v.requires_grad = name in self.setup.moving
        with ExitStack() as stack:
            self.ad = stack.enter_context(DressiAD(self.device, self.options))
            self.load(self.ad, self.data)
            start = Fit(self.program, {**self.data}, {}, self.rate)
            self.walks = [start.copy(ROUNDING if k else 0.0, k) for k in range(NOISY)]
            for _ in range(n_actions):
                action = str(self.rng.choice(list(ACTIONS), p=list(ACTIONS.values())))
                self.done.append(action)
                with np.errstate(over="ignore", invalid="ignore"):
                    getattr(self, f"do_{action}")()
                self.ends = self.leaves_of(self.ad)
                if not all(np.isfinite(a).all() for a in self.ends.values()):
                    self.outcome.counts["ended by numbers that are not finite"] += 1
                    break
        self.compare_walks(self.walks, self.ends)
        self.outcome.counts["sequences"] += 1
        self.outcome.counts["actions"] += len(self.done)
        return self.outcome

    def do_step(self) -> None:
        self._advance(1)

    def do_steps(self) -> None:
        self._advance(int(self.rng.integers(2, 11)))

    def do_rhythm(self) -> None:
        """Single steps with the same leaves sent before each: what the cache waits for."""
        names = self._some_leaves()
        count = int(self.rng.integers(3, 11))
        for k in range(count):
            if k and self.rng.random() < 0.1:
                names = self._some_leaves()
            self._send(names)
            self._advance(1, k == count - 1 or self.rng.random() < COMPARED)

    def do_send(self) -> None:
        """One to three leaves; sometimes tiny numbers, sometimes zeros."""
        self._send(self._some_leaves())

    def _some_leaves(self) -> list[str]:
        names = list(self.graph.leaves)
        return [names[int(k)] for k in self.rng.integers(len(names), size=self.rng.integers(1, 4))]

    def _send(self, names: list[str]) -> None:
        for name in names:
            scale = (1.0, 1.0, 1.0, 1e-3, 0.0, 3.0)[int(self.rng.integers(6))]
            array = np.float32(scale) * self.program.data(int(self.rng.integers(1 << 30)))[name]
            self.ad.send_img(self.graph.leaves[name], _shown(array))
            for walk in self.walks:
                walk.leaves[name] = np.asarray(array, np.float64)
            self.done[-1] += f" {name} x {scale}"
        self.last_loss = None

    def do_rate(self) -> None:
        self.rate = float(np.float32(0.1 ** self.rng.uniform(0.5, 3.0)))
        self.ad.send_img(self.lr, [self.rate])
        for walk in self.walks:
            walk.rate = self.rate
        self.last_loss = None

    def do_loss(self) -> None:
        self._change(loss=int(self.rng.integers(N_LOSSES)))
        self.ad.set_loss_var(self.graph.losses[self.setup.loss])

    def do_optimizer(self) -> None:
        self._change(optimizer=OPTIMIZERS[int(self.rng.integers(len(OPTIMIZERS)))])
        self.ad.set_optimizer(self.optimizer())

    def do_moving(self) -> None:
        """Which leaves move: one to three."""
        self._move(self._some_moving())

    def _some_moving(self) -> tuple[str, ...]:
        names = list(self.graph.leaves)
        picked = self.rng.choice(len(names), int(self.rng.integers(1, 4)), replace=False)
        return tuple(n for k, n in enumerate(names) if k in picked)

    def _move(self, moving: tuple[str, ...]) -> None:
        if moving != self.setup.moving:
            self.setup = replace(self.setup, moving=moving)
            self.done[-1] += f" {moving}"
        for name, v in self.graph.leaves.items():
            v.requires_grad = name in moving

    def do_around(self) -> None:
        """What was compiled for a receive meets another step: one built after it."""
        self.ad.set_loss_var(self.graph.losses[self.setup.loss])
        self._change()
        name = str(self.rng.choice(NUMBERS))
        self.asked = (self.asked[0], name, self.asked[2])
        self.do_receive()
        self._move((name,) if self.rng.random() < 0.5 else self._some_moving())
        self.do_step()
        self.do_receive()

    def do_options(self) -> None:
        name = SWITCHES[int(self.rng.integers(len(SWITCHES)))]
        before = self.options
        if self.rng.random() < 0.2:
            lowering = LOWERINGS[int(self.rng.integers(2))]
            self.options = replace(self.options, lowering=lowering)
        else:
            self.options = replace(self.options, **{name: not getattr(self.options, name)})  # type: ignore[arg-type]
        self.done[-1] += f" {name}, {self.options.lowering}"
        self.ad.options = self.options
        if self.options != before:
            self.last_loss = None

    def _change(self, **new: object) -> None:
        """The optimizer starts anew."""
        self.setup = replace(self.setup, **new)  # type: ignore[arg-type]
        for walk in self.walks:
            walk.state = {}
        self.last_loss = None
        self.done[-1] += f" {new}" if new else ""

    def do_receive(self) -> None:
        """The loss, some values and a gradient."""
        graph, ad = self.graph, self.ad
        if "around" not in self.done[-1] and self.rng.random() < 0.3:
            self.asked = self._ask()  # mostly the same again: what was compiled for it is kept
        wanted, name, one = self.asked
        picked = [graph.values[k] for k in wanted]
        leaf, loss = graph.leaves[name], graph.losses[self.setup.loss]
        got = [ad.recv_img(v) for v in picked] if one else ad.recv_imgs(picked)
        gradient, at_loss = ad.recv_grad(leaf), ad.recv_img(loss)
        before = self.leaves_of(ad)
        with self.fresh(before, {}) as beside:
            self.same("values", got, beside.recv_imgs(picked))
            self.same(f"gradient of {name}", [gradient], [beside.recv_grad(leaf)])
            want = beside.recv_img(loss) if self.last_loss is None else self.last_loss
            self.same("received loss", [at_loss], [want])
        self.near_float64(
            [f"value {k}" for k in wanted] + [f"gradient of {name}"],
            [_full(a, v) for a, v in zip(got, picked, strict=True)] + [_full(gradient, leaf)],
            lambda tape: self._values(before, wanted, name, tape),
        )

    def _ask(self) -> tuple[list[int], str, bool]:
        """Return two values, the leaf of a gradient, whether the values come one by one."""
        wanted = [int(k) for k in self.rng.integers(5, len(self.graph.values), 2)]
        return wanted, str(self.rng.choice(list(self.graph.leaves))), bool(self.rng.integers(2))

    def _values(
        self, leaves: dict[str, np.ndarray], wanted: list[int], name: str, tape: Tape
    ) -> list[np.ndarray]:
        ran = run(self.program, leaves, tape)
        (gradient,) = tape.gradients(ran.losses[self.setup.loss], [ran.leaves[name]])
        return [*(ran.values[k].value for k in wanted), gradient]

    def _advance(self, n: int, compared: bool = True) -> None:
        if self.setup.moving != self.moved:  # the optimizer starts anew where others move than last
            self._change()
            self.moved = self.setup.moving
        for walk in self.walks:
            for _ in range(n):
                walk.step(self.setup)
        loss = self.graph.losses[self.setup.loss]
        if not compared:
            advance(self.ad, n)
            self.last_loss = self.ad.recv_img(loss)
            return
        before = self.leaves_of(self.ad)
        states = self.states_of(self.ad)
        advance(self.ad, n)
        self.last_loss = self.ad.recv_img(loss)
        after, after_states = self.leaves_of(self.ad), self.states_of(self.ad)
        with self.fresh(before, states) as beside:
            advance(beside, n)
            self.same("loss", [self.last_loss], [beside.recv_img(loss)])
            self.same("leaves", after.values(), self.leaves_of(beside).values())
            self.same("states", after_states.values(), self.states_of(beside).values())
        self.outcome.counts["compared steps with a cached half"] += "static" in self.ad.plans
        self._near_fit(before, states, n, self.last_loss, after, after_states)

    def _near_fit(
        self,
        before: dict[str, np.ndarray],
        states: dict[str, np.ndarray],
        n: int,
        loss: np.ndarray,
        after: dict[str, np.ndarray],
        after_states: dict[str, np.ndarray],
    ) -> None:
        """n steps in float64 from where the engine was."""
        names = list(after)
        kept = [k for k in after_states if k != "step"]
        start = Fit(self.program, before, states, self.rate)

        def there(tape: Tape) -> list[np.ndarray]:
            fit = start.copy(tape.noise, int(tape.rng.integers(1 << 20)))
            for _ in range(n):
                fit.step(self.setup)
            tape.largest = fit.largest
            return [fit.loss, *(fit.leaves[k] for k in names), *(fit.state[k] for k in kept)]

        v = self.graph.losses[self.setup.loss]
        got = [_full(loss, v), *after.values(), *(after_states[k] for k in kept)]
        self.near_float64(["loss", *names, *kept], got, there)


def _full(a: np.ndarray, v: Variable) -> np.ndarray:
    return np.asarray(a).reshape((v.layers, v.size[1], v.size[0], *v.vtype.tail))


def _shown(a: np.ndarray) -> np.ndarray:
    """Return (layers, H, W, ...) as ``send_img`` takes it."""
    return a if len(a) > 1 else a[0]


def _state_name(v: Variable) -> str:
    return "step" if v.name == "adam.step" else str(v.name)


def hunt(
    seeds: Iterable[int],
    device: str | None = None,
    n_programs: int | None = None,
    n_actions: int = 8,
    n_ops: int = 4,
    tell: Callable[[int, Outcome], None] | None = None,
) -> Outcome:
    """Run the sequences of some seeds. n_programs: of how many programs (None: one per seed).
    tell: is called after each sequence, with its seed and what was found so far."""
    found = Outcome()
    for seed in seeds:
        found.add(Sequence(seed, device, n_programs, n_ops).run(n_actions))
        if tell is not None:
            tell(seed, found)
    return found
