"""R9: with ``Options(deterministic=True)``, the same bits in every run, whatever the
number of threads; and sums that are right to the last bits of float32."""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from dressi import Adam, DressiAD, F, Options, Variable
from dressi.ad.vtype import FLOAT, INT, MAT2, VEC3, matrix, vector
from dressi.packing import check_plan, pack
from dressi.packing.limits import LLVMPIPE, MINIMUM

FIT = """
import hashlib, sys
from dressi import Adam, DressiAD, Options
from dressi.testing import problems as P

kind = sys.argv[1]
mesh, matrices = P.sphere(80), P.view_matrices(2)
if kind == "texture":
    problem = P.texture_problem(mesh, matrices, P.colours(mesh, matrices, 48), 32, jitter=True)
else:
    targets = P.hard_silhouettes(P.squashed(mesh), matrices, 48)
    problem = P.silhouette_problem(mesh, matrices, targets, 1 if kind == "K1" else 3)
for _ in range(2):
    with DressiAD(options=Options(deterministic=True)) as ad:
        problem.load(ad)
        ad.exec_steps(100)
        print(hashlib.sha256(ad.recv_img(problem.parameter).tobytes()).hexdigest())
"""


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["K1", "K3", "texture"])
def test_a_fit_gives_the_same_bits_with_any_number_of_threads(kind: str) -> None:
    """Two engines each, under 1, 2 and 8 threads of lavapipe."""
    found: list[str] = []
    for threads in ("1", "2", "8"):
        environment = {**os.environ, "LP_NUM_THREADS": threads, "DRESSI_VALIDATE": "0"}
        run = subprocess.run(
            [sys.executable, "-c", FIT, kind], capture_output=True, text=True, env=environment
        )
        assert run.returncode == 0, run.stderr
        found += run.stdout.split()
    assert len(found) == 6 and len(set(found)) == 1, found


WIDE: dict[str, int | bool] = {}
NARROW: dict[str, int | bool] = {"int64_atomics": False}
both_widths = pytest.mark.parametrize(
    "limits", [WIDE, NARROW], ids=["64-bit additions", "32-bit additions"]
)


def _sums(
    values: np.ndarray, index: np.ndarray, n: int, limits: dict[str, int | bool]
) -> np.ndarray:
    """values: (H, W, C) or (H, W, k, k); index: (H, W, 1). The sums of n rows."""
    h, w, *tail = values.shape
    value = Variable(vector(tail[0]) if len(tail) == 1 else matrix(tail[0]), (w, h))
    where = Variable(INT, (w, h))
    with DressiAD(options=Options(deterministic=True), limits=limits) as ad:
        ad.send_img(value, values)
        ad.send_img(where, index)
        return ad.recv_img(F.scatter_add(value, F.dynamic(where), (n, 1)) * 1.0)


def _in_units(v: float) -> int:
    """A number in units of 2^-64: below dropped, beyond 2^30 counted as 2^30."""
    size = min(abs(Fraction(float(v))), Fraction(2**30)) * 2**64
    return int(size) * (-1 if v < 0 else 1)


@pytest.mark.gpu
@both_widths
@pytest.mark.parametrize("scale", [1e-12, 1e-4, 1.0, 1e5])
def test_sums_are_right_to_float32(scale: float, limits: dict[str, int | bool]) -> None:
    """Of both signs, 64 numbers a sum; the reference adds in float64."""
    rng = np.random.default_rng(3)
    values = (rng.normal(size=(32, 32, 3)) * scale).astype(np.float32)
    index = rng.integers(0, 16, (32, 32, 1))
    want = np.zeros((16, 3))
    np.add.at(want, index.reshape(-1), values.reshape(-1, 3).astype(np.float64))
    got = _sums(values, index, 16, limits)
    # Only the last conversion rounds (and what lies below 2^-64 is dropped).
    assert np.abs(got - want).max() <= np.abs(want).max() * 2e-7 + 1024 * 2.0**-64


@pytest.mark.gpu
@both_widths
@pytest.mark.parametrize("tail", [(1,), (2,), (4,), (2, 2), (3, 3)], ids=str)
def test_sums_over_the_whole_range(tail: tuple[int, ...], limits: dict[str, int | bool]) -> None:
    """From 1e-30 to 1e30, of both signs, against exact integers of any length; carries from word to
    word, up and down, and sums that cross zero."""
    rng = np.random.default_rng(5)
    n, shape = 8, (16, 16, *tail)
    values = 10.0 ** rng.uniform(-30, 30, shape) * rng.choice([-1, 1], shape)
    index = rng.integers(0, n, (16, 16))
    for k in range(n):
        # Rows that differ in their largest numbers, so that small ones count somewhere.
        at, reach = index == k, 10.0 ** (3 * k - 14)
        values[at] = np.fmod(values[at], reach)
    index[2, :3], values[2, :3] = n - 1, np.array([1e30, -3e20, 2e9]).reshape(3, *[1] * len(tail))
    values = values.astype(np.float32)
    if tail == (1,):
        # Each word runs over on the way, and back: 1/4 six times, then -1/4 ten times.
        index[0], values[0, :6], values[0, 6:] = 0, 0.25, -0.25
        index[1], values[1, :6], values[1, 6:] = 1, 2.0**-33, -(2.0**-33)
    got = _sums(values, index[..., None], n, limits).reshape(n, -1)
    for k in range(n):
        for c, column in enumerate(values[index == k].reshape(-1, np.prod(tail)).T):
            total = sum(_in_units(v) for v in column)
            assert abs(total) < 2**95, "a sum that the promise does not cover"
            error = abs(Fraction(float(got[k, c])) * 2**64 - total)
            assert error <= abs(total) * Fraction(2, 2**24), (k, c, column, got[k, c])


@pytest.mark.gpu
def test_64_bit_additions_give_the_bits_of_32_bit_ones() -> None:
    rng = np.random.default_rng(11)
    values = (rng.normal(size=(16, 16, 3)) * 10.0 ** rng.uniform(-20, 9, (16, 16, 1))).astype("f4")
    index = rng.integers(0, 12, (16, 16, 1))
    found = [_sums(values, index, 12, limits).tobytes() for limits in (WIDE, NARROW)]
    assert found[0] == found[1]


@pytest.mark.gpu
def test_rows_without_numbers_and_sums_of_nothing_are_zero() -> None:
    values = np.array([[[1.5], [-1.5], [2.0**-70], [0.0]]], np.float32)
    got = _sums(values, np.array([[[0], [0], [1], [2]]]), 4, WIDE).ravel()
    assert got.tolist() == [0.0, 0.0, 0.0, 0.0]
    assert not np.signbit(got).any()


@pytest.mark.gpu
def test_a_sum_that_steps_only_read_keeps_its_value() -> None:
    """Its inputs do not change, so after a few steps the scatter is not run again: a fit to it
    arrives all the same."""
    value, index = Variable(VEC3, (4, 2), 2, name="v"), Variable(INT, (4, 2), 2, name="i")
    fitted = Variable(VEC3, (3, 1), 2, requires_grad=True, name="fitted")
    difference = fitted - F.scatter_add(value, F.dynamic(index), (3, 1), 2)
    rng = np.random.default_rng(2)
    values = rng.normal(size=(2, 2, 4, 3)).astype(np.float32)
    rows = rng.integers(0, 3, (2, 2, 4, 1))
    want = np.zeros((2, 3, 3))
    for layer in range(2):
        np.add.at(want[layer], rows[layer].ravel(), values[layer].reshape(-1, 3).astype(float))
    assert np.abs(want).max() > 0.5, "no high word is read"
    with DressiAD(options=Options(deterministic=True)) as ad:
        ad.set_loss_var(F.mean(F.dot(difference, difference)))
        ad.set_optimizer(Adam(0.05))
        for v, a in ((value, values), (index, rows), (fitted, np.zeros((2, 1, 3, 3)))):
            ad.send_img(v, a)
        for _ in range(12):
            ad.exec_step()
        (buffer,) = ad.plan.buffers
        assert not buffer.fill, "the scatter still runs"
        ad.exec_steps(600)
        assert np.abs(ad.recv_img(fitted).reshape(want.shape) - want).max() < 1e-3


@pytest.mark.gpu
@both_widths
def test_large_and_small_numbers_cancel_exactly(limits: dict[str, int | bool]) -> None:
    """In float32 the small ones would be lost beside the large ones."""
    values = np.zeros((4, 4, 1), np.float32)
    values[0] = np.array([3e6, -3e6, 2.0**-20, -1.5])[:, None]
    values[1] = np.array([-(2.0**-40), 7.25, -7.25, 1.5])[:, None]
    got = _sums(values, np.zeros((4, 4, 1), int), 1, limits)
    assert got.item() == 2.0**-20 - 2.0**-40
    negative = _sums(-values, np.zeros((4, 4, 1), int), 1, limits)
    assert negative.item() == -got.item()


@pytest.mark.gpu
@both_widths
def test_what_is_too_large_stays_finite(limits: dict[str, int | bool]) -> None:
    values = np.full((1, 2, 1), 3e38, np.float32)
    got = _sums(values, np.zeros((1, 2, 1), int), 1, limits)
    assert (np.isfinite(got).all() and got.item() == 2.0**31 - 2.0**31) or got.item() != 0


@pytest.mark.gpu
def test_what_is_no_number_counts_as_the_largest() -> None:
    """Integers have no NaN: it must not become whatever the driver makes of it."""
    x = Variable(FLOAT, (4, 1))
    value = F.sqrt(x) * F.where(x > 3.5, -F.exp(x * 50.0), 1.0)
    index = Variable(INT, (4, 1))
    with DressiAD(options=Options(deterministic=True)) as ad:
        ad.send_img(x, [-1.0, -1.0, 1.0, 4.0])  # NaN, NaN, 1, -infinity
        ad.send_img(index, [0, 1, 1, 2])
        got = ad.recv_img(F.scatter_add(value, F.dynamic(index), (3, 1)) + 0.0)
    assert np.abs(got.ravel()).tolist() == [2.0**30, 2.0**30, 2.0**30]


@pytest.mark.parametrize("limits", [LLVMPIPE, MINIMUM])
@pytest.mark.parametrize("vtype", [FLOAT, VEC3, MAT2])
def test_plans_hold_three_words_a_number_and_a_flag(limits, vtype) -> None:  # type: ignore[no-untyped-def]
    value, index = Variable(vtype, (6, 5)), Variable(INT, (6, 5))
    table = F.scatter_add(value, F.dynamic(index), (13, 1))
    out = F.transpose(table) if vtype is MAT2 else table + 1.0
    for exact in (False, True):
        plan = pack([out], [], limits, Options(deterministic=exact)).plan
        check_plan(plan, limits)
        n = 13 * vtype.n_words
        assert plan.buffers[0].n_words == (3 * n + 1 if exact else n)
