"""Calls of a layer that are like the one before: what is decided once must hold for all of them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="dressi.torch needs torch")

from dressi import F, Variable  # noqa: E402
from dressi.errors import GraphError  # noqa: E402
from dressi.torch import compile  # noqa: E402

pytestmark = pytest.mark.gpu


def two(x: Variable, y: Variable) -> tuple[Variable, Variable]:
    return x * 2.0 + y, x * y


def test_upstream_gradients_are_those_of_this_step() -> None:
    """They are written over those of the step before: other values, zeros where an output is not
    used, and an error where they are NaN, after which the next step is right."""
    layer = compile(two)
    x, y = torch.rand(4, 5, 3, requires_grad=True), torch.rand(4, 5, 3, requires_grad=True)
    for k in range(8):
        a, b = layer(x, y)
        u, v = torch.rand(4, 5, 3), torch.rand(4, 5, 3)
        if k == 4:
            with pytest.raises(GraphError, match="upstream gradient"):
                torch.autograd.grad((a * float("nan")).sum(), (x, y))
            continue
        parts = [(a * u).sum()] * (k % 3 != 1) + [(b * v).sum()] * (k % 3 != 0)
        got = torch.autograd.grad(sum(parts), (x, y))
        of_a, of_b = float(k % 3 != 1), float(k % 3 != 0)
        torch.testing.assert_close(got[0], 2.0 * u * of_a + y.detach() * v * of_b)
        torch.testing.assert_close(got[1], u * of_a + x.detach() * v * of_b)


def test_layers_that_share_an_engine_keep_their_upstream_gradients_apart() -> None:
    one, other = compile(lambda x: x * 3.0), compile(lambda x: F.sin(x))
    x = torch.rand(6, 7, 1, requires_grad=True)
    for k in range(4):
        a, b = one(x), other(x)
        (g,) = torch.autograd.grad((a * (k + 1.0)).sum() + (b * (k + 2.0)).sum(), x)
        torch.testing.assert_close(g, 3.0 * (k + 1.0) + (k + 2.0) * torch.cos(x.detach()))


def test_a_parametrized_parameter_is_computed_in_each_call() -> None:
    """A parametrization moves the parameter to another place, and so does taking it off."""

    class Doubled(torch.nn.Module):
        def forward(self, t: torch.Tensor) -> torch.Tensor:
            return t * 2.0

    from torch.nn.utils import parametrize

    layer = compile(lambda x, gain: x * gain, parameters={"gain": torch.tensor(1.5)})
    x = torch.rand(3, 4, 1)
    torch.testing.assert_close(layer(x).detach(), x * 1.5)
    parametrize.register_parametrization(layer, "gain", Doubled())
    for gain in (1.5, 0.25):
        with torch.no_grad():
            layer.parametrizations.gain.original.fill_(gain)
        got = layer(x)
        torch.testing.assert_close(got.detach(), x * 2.0 * gain)
        layer.zero_grad()
        got.sum().backward()
        found = layer.parametrizations.gain.original.grad
        torch.testing.assert_close(found, 2.0 * x.sum(), rtol=1e-5, atol=1e-5)
    parametrize.remove_parametrizations(layer, "gain")
    torch.testing.assert_close(layer(x).detach(), x * 0.5)


def test_a_parameter_may_be_replaced_between_calls() -> None:
    """By another Parameter, by ``functional_call``, and by data of another size."""
    layer = compile(lambda x: x + 1.0, parameters={"x": torch.zeros(2, 3, 1)})
    for value in (1.0, 2.0):
        layer.x = torch.nn.Parameter(torch.full((2, 3, 1), value))
        assert (layer() == value + 1.0).all()
    given = {"x": torch.full((2, 3, 1), 7.0)}
    assert (torch.func.functional_call(layer, given, ()) == 8.0).all()
    assert (layer() == 3.0).all()
    layer.x.data = torch.full((5, 4, 1), 4.0)
    assert layer().shape == (5, 4, 1) and (layer() == 5.0).all()
