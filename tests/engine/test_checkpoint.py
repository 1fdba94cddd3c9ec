"""``state_dict`` and ``load_state_dict``: a fit goes on to the bit."""

from __future__ import annotations

import io

import numpy as np
import pytest

from dressi import SGD, VEC3, Adam, DressiAD, F, Momentum, ParameterGroups, Variable
from dressi.ad.optim import step_counter
from dressi.errors import GraphError

pytestmark = pytest.mark.gpu
START = np.random.default_rng(5).normal(size=(4, 6, 3)).astype(np.float32)


def fit(ad: DressiAD) -> tuple[Variable, Variable]:
    """A loss with a state of its own, two groups, moments of three kinds."""
    x = Variable(VEC3, (6, 4), requires_grad=True, name="x")
    y = Variable(VEC3, requires_grad=True, name="y")
    shake = F.to_float(step_counter("shake"))
    ad.set_loss_var(F.mean(F.dot(F.sin(x * 3.0 + shake), y + 2.0) + F.dot(x, x)))
    groups = {"x": Adam(0.02, weight_decay=0.1)}
    ad.set_optimizer(ParameterGroups(groups, default=Momentum(0.01)))
    return x, y


def test_a_run_is_resumed_to_the_bit() -> None:
    """Through a file, in an engine of its own, after steps of another run in it."""
    with DressiAD() as ad:
        x, y = fit(ad)
        ad.send_img(x, START)
        ad.send_img(y, [1.0, 2.0, 3.0])
        ad.exec_steps(11)
        state = ad.state_dict()
        assert sorted(state) == [
            "parameter.0.x",
            "parameter.1.y",
            "state.0.shake",
            "state.1.adam.step",
            "state.2.x.m",
            "state.3.x.v",
            "state.4.y.velocity",
        ]
        file = io.BytesIO()
        np.savez(file, **state)
        ad.exec_steps(13)
        whole = ad.recv_img(x), ad.recv_img(y)
        file.seek(0)
        ad.load_state_dict(np.load(file))
        ad.exec_steps(13)
        np.testing.assert_array_equal(ad.recv_img(x), whole[0])
    with DressiAD() as other:
        x, y = fit(other)
        other.send_img(x, START + 1)
        other.send_img(y, [0.0, 0.0, 0.0])
        other.exec_step()
        other.load_state_dict(state)
        other.exec_steps(13)
        np.testing.assert_array_equal(other.recv_img(x), whole[0])
        np.testing.assert_array_equal(other.recv_img(y), whole[1])


def test_a_state_of_something_else_changes_nothing() -> None:
    with DressiAD() as ad:
        x, y = fit(ad)
        ad.send_img(x, START)
        ad.send_img(y, [1.0, 2.0, 3.0])
        state = ad.state_dict()
        for bad, message in (
            ({k: v for k, v in state.items() if "adam" not in k}, r"missing: state.1.adam.step"),
            ({**state, "parameter.2.z": 1.0}, r"unknown: parameter.2.z"),
            ({**state, "parameter.0.x": START[1:]}, r"x VEC3@6x4: needs an array of shape"),
            ({**state, "parameter.1.y": [np.nan, 0, 0]}, r"nan at index"),
        ):
            with pytest.raises(GraphError, match=message):
                ad.load_state_dict({k: np.asarray(v) * 2 for k, v in bad.items()})
            np.testing.assert_array_equal(ad.recv_img(x), START)
        ad.set_optimizer(SGD())
        with pytest.raises(GraphError, match="another loss or optimizer"):
            ad.load_state_dict(state)
