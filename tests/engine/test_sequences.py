"""Random sequences of sends, steps, receives and changes of everything else: 200 here, any number
by ``scripts/hunt_sequences.py``. A fresh engine gives the same bits after each action, float64
NumPy of another make the same numbers; and faults that are planted are found."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import FLOAT, SGD, DressiAD, F, Variable
from dressi.ad.evaluate import evaluate
from dressi.ad.registry import OPS
from dressi.engine.leafstore import LeafStore
from dressi.testing.programs import Program, build, random_program, run
from dressi.testing.sequences import Outcome, Sequence, hunt
from dressi.testing.tape import ROUNDING, Tape

SMALL = {"n_programs": 8, "n_actions": 4, "n_ops": 2}
"""Few programs: compiling shaders is what costs time."""


@pytest.mark.gpu
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_a_fresh_engine_and_float64_agree_after_every_action(first: int) -> None:
    found = hunt(range(first, first + 50), **SMALL)
    assert found.faults == []
    counts = found.counts
    assert counts["sequences"] == 50
    assert counts["compared bit for bit"] > 500 and counts["compared with float64"] > 500
    assert counts["compared steps with a cached half"] > 0


def faults_of(seeds: range) -> list[str]:
    found = Outcome()
    for seed in seeds:
        found.add(Sequence(seed, None, 8, 2).run(4))
        if found.faults:
            break
    return found.faults


@pytest.mark.gpu
def test_an_engine_that_misses_sends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clean half of a step is not run again after a send."""
    real = LeafStore.take_changed

    def deaf(self: LeafStore) -> frozenset[int]:
        real(self)
        return frozenset()

    monkeypatch.setattr(LeafStore, "take_changed", deaf)
    assert any("a fresh engine" in fault for fault in faults_of(range(8, 14)))


@pytest.mark.gpu
def test_an_evaluation_that_keeps_old_numbers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeafStore, "on_device", lambda self, variables: False)
    assert any("gradient" in fault or "values" in fault for fault in faults_of(range(8, 16)))


@pytest.mark.gpu
def test_a_float64_fault_is_told_from_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients that are 0.01 % too small, the same in every engine."""
    from dressi.engine import program, step_builder

    real = program.build_backward

    def off(*arguments: object) -> dict[Variable, Variable]:
        return {v: g * 0.9999 for v, g in real(*arguments).items()}  # type: ignore[arg-type]

    for module in (program, step_builder):
        monkeypatch.setattr(module, "build_backward", off)
    assert any("rounding at random" in fault for fault in faults_of(range(10)))


@pytest.mark.gpu
@pytest.mark.parametrize("digits_lost", [False, True])
def test_a_slope_that_loses_its_digits_is_told_from_rounding(
    monkeypatch: pytest.MonkeyPatch, digits_lost: bool
) -> None:
    """The slope of tanh as 1 - y^2, which float32 rounds to multiples of 2^-24 where y is near 1:
    this sequence receives a gradient through tanh(4.19)."""
    if digits_lost:
        row = vars(OPS["tanh"])
        monkeypatch.setitem(row, "backward", lambda f, gy, i: gy * (1.0 - f.output * f.output))
    with DressiAD() as ad:
        if "llvmpipe" not in ad.limits.name:
            pytest.skip(f"another driver rounds y elsewhere: {ad.limits.name}")
    found = hunt([97306], n_actions=5)
    assert any("gradient of matrix" in fault for fault in found.faults) == digits_lost


@pytest.mark.gpu
@pytest.mark.parametrize("lowering", ["graphics", "compute"])
def test_a_number_that_begins_to_move_is_not_read_where_it_lay(lowering: str) -> None:
    """``u`` is compiled into the uniform block of a receive; then steps move it on the device."""
    from dressi import Options

    x, u = Variable(FLOAT, (4, 3), name="x"), Variable(FLOAT, name="u")
    y = x * u
    with DressiAD(options=Options(lowering=lowering)) as ad:
        ad.send_img(x, np.ones((3, 4, 1)))
        ad.send_img(u, [2.0])
        ad.set_loss_var(F.mean(y * y))
        ad.set_optimizer(SGD(0.125))
        assert (ad.recv_img(y) == 2.0).all() and (ad.recv_grad(u) == 4.0).all()
        u.requires_grad = True
        ad.exec_step()
        assert (ad.recv_img(u) == 1.5).all()
        assert (ad.recv_img(y) == 1.5).all() and (ad.recv_grad(u) == 3.0).all()
        assert (ad.recv_img(F.mean(y * y)) == 2.25).all()


def differences(program: Program, seed: int) -> float:
    """Largest error between the NumPy evaluation of the product and the tape."""
    graph, data = build(program), program.data(seed)
    ran = run(program, data, Tape())
    feeds = {v: data[n] for n, v in graph.leaves.items()} | {graph.index: program.index}
    outputs, nodes = [*graph.values[5:], *graph.losses], [*ran.values[5:], *ran.losses]
    found = evaluate(outputs, feeds)
    return max(float(np.abs(a - n.value).max()) for a, n in zip(found, nodes, strict=True))


def test_the_tape_computes_what_the_graph_means() -> None:
    for seed in range(40):
        assert differences(random_program(seed, 6), seed) < 1e-9, seed


def test_the_tape_differentiates_by_differences() -> None:
    """Central differences in a random direction of all leaves at once."""
    for seed in range(40):
        program, rng = random_program(seed, 6), np.random.default_rng(seed)
        data = {n: a.astype(np.float64) for n, a in program.data(seed).items()}
        way = {n: rng.normal(size=a.shape) for n, a in data.items()}
        way["mask"] *= 0.0 if any(s.kind == "where" for s in program.steps) else 1.0
        ran = run(program, data, tape := Tape())
        gradients = tape.gradients(ran.losses[2], list(ran.leaves.values()))
        slope = sum(float((g * way[n]).sum()) for g, n in zip(gradients, data, strict=True))

        def loss(t: float, p: Program = program, d: dict = data, w: dict = way) -> float:
            moved = {n: d[n] + t * w[n] for n in d}
            return float(run(p, moved, Tape()).losses[2].value.sum())

        numeric = (loss(1e-5) - loss(-1e-5)) / 2e-5
        assert abs(slope - numeric) <= 1e-5 * max(1.0, abs(slope)), (seed, slope, numeric)


def test_random_rounding_spreads_like_float32() -> None:
    """1 + x - 1 for a tiny x: what is lost to rounding shows as a spread of 1e-7, not of 1e-16."""
    values = []
    for seed in range(8):
        tape = Tape(ROUNDING, seed)
        one, x = tape.leaf(np.ones((1, 1, 1, 1))), tape.leaf(np.full((1, 1, 1, 1), 1e-9))
        values.append(tape.sub(tape.add(one, x), one).value.item())
    assert 1e-9 < max(values) - min(values) < 2.0**-22


def one_minus_one(kind: str, tape: Tape) -> np.ndarray:
    """The sum of 1 and -1 that an operation or its gradient forms inside."""
    a, b = tape.leaf([[[[1.0, 1.0, 0.0]]]]), tape.leaf([[[[1.0, -1.0, 0.0]]]])
    image, index = tape.leaf([[[[1.0], [-1.0]]]]), np.zeros((1, 1, 2, 1), int)
    number, table = tape.leaf([[[[1.0]]]]), tape.leaf(np.ones((1, 1, 3, 1)))
    turned = tape.turn(tape.leaf(np.ones((1, 1, 1, 3, 3))), b)
    made = {
        "dot": tape.dot(a, b).value,
        "turn": turned.value,
        "cross": tape.cross(a, a).value[..., 2],
        "mean": tape.mean(image, False).value,
        "pile": tape.pile(image, index, 1, np.empty((1, 1, 2, 1))).value,
        "number": tape.gradients(tape.mul(number, image), [number])[0],
        "table": tape.gradients(tape.mul(tape.take(table, index), image), [table])[0][0, 0, 0],
    }
    return made[kind]


@pytest.mark.parametrize("kind", ["dot", "turn", "cross", "mean", "pile", "number", "table"])
def test_terms_that_cancel_leave_their_rounding(kind: str) -> None:
    """Exactly 0 in float64; in float32 what the terms were rounded by, not a share of the sum."""
    assert (one_minus_one(kind, Tape()) == 0.0).all()
    values = np.array([one_minus_one(kind, Tape(ROUNDING, seed)) for seed in range(8)])
    assert 1e-9 < np.ptp(values, 0).min() <= np.ptp(values, 0).max() < 2.0**-21
