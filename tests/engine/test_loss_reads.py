"""The loss, where the host reads it after each step: the same numbers, in half the submits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dressi import FLOAT, SGD, Adam, DressiAD, F, Variable
from dressi.vk.context import Context

pytestmark = pytest.mark.gpu
SIZE = (8, 4)


@pytest.fixture
def ad() -> Iterator[DressiAD]:
    with DressiAD() as engine:
        yield engine


@pytest.fixture
def submits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What each submit was, in order."""
    seen: list[str] = []
    start = Context.start

    def counted(self: Context, info: object, what: str) -> None:
        seen.append(what)
        start(self, info, what)

    monkeypatch.setattr(Context, "start", counted)
    return seen


def fit(ad: DressiAD, seed: int = 0) -> tuple[Variable, Variable, Variable, Variable]:
    """A parameter, its target, the rate of its optimizer and a loss."""
    rng = np.random.default_rng(seed)
    x = Variable(FLOAT, SIZE, requires_grad=True, name="x")
    target, rate = Variable(FLOAT, SIZE, name="target"), Variable(FLOAT, name="rate")
    ad.send_img(x, rng.random((4, 8, 1)))
    ad.send_img(target, rng.random((4, 8, 1)))
    ad.send_img(rate, 0.1)
    loss = F.mean(F.sin(x - target) * (x - target))
    ad.set_loss_var(loss)
    ad.set_optimizer(Adam(rate))
    return x, target, rate, loss


def test_a_step_and_its_loss_are_one_submit_after_a_few(ad: DressiAD, submits: list[str]) -> None:
    *_, loss = fit(ad)
    for _ in range(20):
        ad.exec_step()
        ad.recv_img(loss)
    submits.clear()
    ad.exec_step()
    ad.recv_img(loss)
    assert len(submits) == 1


def test_steps_whose_loss_nobody_reads_copy_nothing(ad: DressiAD, submits: list[str]) -> None:
    *_, loss = fit(ad)
    for _ in range(20):
        ad.exec_step()
        ad.recv_img(loss)
    for _ in range(9):
        ad.exec_step()
    submits.clear()
    ad.exec_step()
    assert len(submits) == 1 and "readback" not in submits[0]


@pytest.mark.parametrize("every", [1, 2, 5])
@pytest.mark.parametrize("sends", ["nothing", "rate", "target"])
def test_the_numbers_are_those_of_steps_that_are_read_at_the_end(every: int, sends: str) -> None:
    """Sends of different leaves rebuild the step in between (reactive cache)."""
    losses, params = [], []
    for read in (True, False):
        found = []
        with DressiAD() as ad:
            x, target, rate, loss = fit(ad)
            sent = np.random.default_rng(1).random((40, 4, 8, 1))
            for k in range(40):
                if sends == "rate":
                    ad.send_img(rate, 0.1 / (k + 1))
                elif sends == "target" and k < 20:
                    ad.send_img(target, sent[k])
                ad.exec_step()
                if (read and k % every == 0) or k == 39:
                    found.append(float(ad.recv_img(loss)[0, 0, 0]))
            losses.append(found)
            params.append(ad.recv_img(x))
    assert np.array_equal(*params)
    assert losses[0][-1] == losses[1][-1] and len(set(losses[0])) > len(losses[0]) // 2


def test_each_loss_is_that_of_its_step(ad: DressiAD) -> None:
    """The loss goes from 16 to 0 by known numbers."""
    x = Variable(FLOAT, requires_grad=True, name="x")
    ad.send_img(x, 4.0)
    loss = x * x
    ad.set_loss_var(loss)
    ad.set_optimizer(SGD(0.25))
    for k in range(12):
        ad.exec_step()
        assert float(ad.recv_img(loss)[0, 0, 0]) == 16.0 / 4.0**k
        if k == 8:
            ad.exec_step()
            ad.send_img(x, 8.0)
            assert float(ad.recv_img(loss)[0, 0, 0]) == 64.0  # of what was sent, not of the step
            ad.send_img(x, 4.0 / 2.0**9)


def test_what_was_read_is_the_users(ad: DressiAD) -> None:
    *_, loss = fit(ad)
    kept = []
    for _ in range(8):
        ad.exec_step()
        kept.append(ad.recv_img(loss))
    assert len({float(a[0, 0, 0]) for a in kept}) == 8


def test_a_new_loss_after_many_reads(ad: DressiAD) -> None:
    x, target, _, loss = fit(ad)
    for _ in range(8):
        ad.exec_step()
        ad.recv_img(loss)
    other = F.sum(F.abs(x - target))
    ad.set_loss_var(other)
    for _ in range(8):
        ad.exec_step()
        got = float(ad.recv_img(other)[0, 0, 0])
    before = ad.recv_img(x)
    ad.exec_step()
    assert float(ad.recv_img(other)[0, 0, 0]) == pytest.approx(
        float(np.abs(before - ad.recv_img(target)).sum()), rel=1e-5
    )
    assert got != 0.0
