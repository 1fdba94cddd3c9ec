"""RELIABILITY R9: with ``Options(deterministic=True)``, the same bits in every run, whatever the
number of threads; and sums that are right to the last bits of float32."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from dressi import DressiAD, F, Options, Variable
from dressi.ad.vtype import FLOAT, INT, MAT2, VEC3
from dressi.packing import check_plan, pack
from dressi.packing.limits import LLVMPIPE, MINIMUM

FIT = """
import hashlib, sys
from dressi import DressiAD, Options
from dressi.apps import problems as P

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


def _sums(values: np.ndarray, index: np.ndarray, n: int, exact: bool) -> np.ndarray:
    h, w, c = values.shape
    value = Variable(FLOAT if c == 1 else VEC3, (w, h))
    where = Variable(INT, (w, h))
    with DressiAD(options=Options(deterministic=exact)) as ad:
        ad.send_img(value, values)
        ad.send_img(where, index)
        return ad.recv_img(F.scatter_add(value, F.dynamic(where), (n, 1)) + 0.0)


@pytest.mark.gpu
@pytest.mark.parametrize("scale", [1e-12, 1e-4, 1.0, 1e5])
def test_sums_are_right_to_float32(scale: float) -> None:
    """Of both signs, 64 numbers a sum; the reference adds in float64."""
    rng = np.random.default_rng(3)
    values = (rng.normal(size=(32, 32, 3)) * scale).astype(np.float32)
    index = rng.integers(0, 16, (32, 32, 1))
    want = np.zeros((16, 3))
    np.add.at(want, index.reshape(-1), values.reshape(-1, 3).astype(np.float64))
    got = _sums(values, index, 16, exact=True)
    # Only the last conversion rounds (and what lies below 2^-64 is dropped).
    assert np.abs(got - want).max() <= np.abs(want).max() * 2e-7 + 1024 * 2.0**-64


@pytest.mark.gpu
def test_large_and_small_numbers_cancel_exactly() -> None:
    """In float32 the small ones would be lost beside the large ones."""
    values = np.zeros((4, 4, 1), np.float32)
    values[0] = np.array([3e6, -3e6, 2.0**-20, -1.5])[:, None]
    values[1] = np.array([-(2.0**-40), 7.25, -7.25, 1.5])[:, None]
    got = _sums(values, np.zeros((4, 4, 1), int), 1, exact=True)
    assert got.item() == 2.0**-20 - 2.0**-40
    negative = _sums(-values, np.zeros((4, 4, 1), int), 1, exact=True)
    assert negative.item() == -got.item()


@pytest.mark.gpu
def test_what_is_too_large_stays_finite() -> None:
    values = np.full((1, 2, 1), 3e38, np.float32)
    got = _sums(values, np.zeros((1, 2, 1), int), 1, exact=True)
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
def test_plans_hold_three_words_a_number(limits, vtype) -> None:  # type: ignore[no-untyped-def]
    value, index = Variable(vtype, (6, 5)), Variable(INT, (6, 5))
    table = F.scatter_add(value, F.dynamic(index), (13, 1))
    out = F.transpose(table) if vtype is MAT2 else table + 1.0
    for exact in (False, True):
        plan = pack([out], [], limits, Options(deterministic=exact)).plan
        check_plan(plan, limits)
        assert plan.buffers[0].n_words == 13 * vtype.n_words * (3 if exact else 1)
