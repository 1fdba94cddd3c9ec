"""Optimizers beside torch.optim, and torch.optim as the optimizer of a native graph."""

from __future__ import annotations

import numpy as np
import pytest

from dressi import SGD, VEC3, Adam, DressiAD, F, GradientClipping, Momentum, Variable

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.gpu
START = np.random.default_rng(4).normal(size=(5, 3)).astype(np.float32)
STEPS = 12

CASES = {
    "SGD": (SGD(0.05, 0.3), lambda p: torch.optim.SGD(p, 0.05, weight_decay=0.3)),
    "Momentum": (
        Momentum(0.05, 0.8, 0.3),
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.8, weight_decay=0.3),
    ),
    "Adam": (Adam(0.05), lambda p: torch.optim.Adam(p, 0.05)),
    "Adam, decoupled decay": (
        Adam(0.05, weight_decay=0.3),
        lambda p: torch.optim.AdamW(p, 0.05, weight_decay=0.3),
    ),
}


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_torch(name: str, clip: float | None) -> None:
    """To float32: 12 steps on a loss with a gradient of a few units."""
    ours, make = CASES[name]
    x = Variable(VEC3, (len(START), 1), requires_grad=True, name="x")
    with DressiAD() as ad:
        ad.send_img(x, START)
        ad.set_loss_var(_loss(x))
        ad.set_optimizer(ours if clip is None else GradientClipping(ours, norm=clip))
        ad.exec_steps(STEPS)
        got = ad.recv_img(x)
    p = torch.nn.Parameter(torch.tensor(START))
    optimizer = make([p])
    for _ in range(STEPS):
        optimizer.zero_grad()
        (torch.sin(p * 2.0) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_([p], clip)
        optimizer.step()
    np.testing.assert_allclose(got, p.detach().numpy(), rtol=2e-5, atol=2e-6)


def _loss(x: Variable) -> Variable:
    return F.sum(F.dot(F.sin(x * 2.0), F.leaf([1.0, 2.0, 3.0], VEC3)))
