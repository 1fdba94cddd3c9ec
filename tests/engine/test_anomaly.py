"""NaN that a step makes is found and named; steps with a callback; what is likely not meant."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from dressi import SGD, DressiAD, DressiWarning, F, NotFiniteError, ParameterGroups, Variable
from dressi.ad.vtype import FLOAT
from dressi.engine.anomaly import FIRST_LOOK, RAREST_LOOK

pytestmark = pytest.mark.gpu

DATA = np.array([[4.0, 3.9], [3.0, 4.0]])


def falling(ad: DressiAD) -> Variable:
    """A fit that walks into the square root of a negative number; what F.where does not take is NaN
    from the beginning."""
    x = Variable(FLOAT, (2, 2), requires_grad=True, name="x")
    ad.send_img(x, DATA)
    unused = F.where(x > 100.0, F.sqrt(x - 50.0), 0.0)
    ad.set_loss_var(F.mean(F.sqrt(x - 2.0) + unused))
    ad.set_optimizer(SGD(0.5))
    return x


def test_anomaly_names_op_pixel_and_line_and_keeps_the_data_before() -> None:
    with DressiAD(anomaly=True) as ad:
        x = falling(ad)
        with pytest.raises(NotFiniteError) as info:
            ad.exec_steps(100)
        text = str(info.value)
        # x falls by lr / 8 / sqrt(x - 2) in each step, in float64: the first below 2 is (0, 1).
        a, steps = DATA.copy(), 0
        while (a > 2.0).all():
            a, steps = a - 0.125 / (2 * np.sqrt(a - 2.0)) * 2 * 0.5, steps + 1
        row, column = (int(i[0]) for i in np.nonzero(a <= 2.0))
        assert f"step {steps + 1}:" in text and f"pixel ({column}, {row})" in text
        assert "F.sqrt at test_anomaly.py:" in text and "makes nan" in text
        assert np.isfinite(ad.recv_img(x)).all()
        assert np.allclose(ad.recv_img(x)[..., 0], a, atol=1e-3)


def test_a_loss_that_is_not_finite_is_said_once() -> None:
    with DressiAD() as ad:
        falling(ad)
        with pytest.warns(DressiWarning, match=r"the loss .* is nan(.|\n)*anomaly=True"):
            ad.exec_steps(FIRST_LOOK)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ad.exec_steps(RAREST_LOOK)


@pytest.mark.parametrize("grouped", [False, True])
def test_settings_of_an_optimizer_that_come_too_late_are_named_once(grouped: bool) -> None:
    x = Variable(FLOAT, (2, 2), requires_grad=True, name="x")
    sgd = SGD(0.1)
    with DressiAD() as ad:
        ad.send_img(x, DATA)
        ad.set_loss_var(F.mean(x * x))
        ad.set_optimizer(ParameterGroups({"x": sgd}) if grouped else sgd)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ad.exec_step()
            ad.exec_step()
        sgd.lr = 0.0
        name = "groups.x.lr of ParameterGroups" if grouped else "lr of SGD"
        with pytest.warns(DressiWarning, match=rf"{name} was set after(.|\n)*ad.send_img\(lr"):
            ad.exec_step()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ad.exec_step()
            ad.set_optimizer(SGD(0.2))
            ad.exec_step()


def test_steps_without_an_optimizer_warn_and_with_one_call_back() -> None:
    with DressiAD() as ad:
        x = Variable(FLOAT, (2, 2), requires_grad=True, name="x")
        ad.send_img(x, DATA)
        ad.set_loss_var(F.mean(x * x))
        with pytest.warns(DressiWarning, match="10 steps without an optimizer"):
            ad.exec_steps(10)
        ad.set_optimizer(SGD(0.5))
        done: list[int] = []
        ad.exec_steps(10, callback=done.append, every=4)
        ad.exec_steps(10, callback=lambda k: k == 3, every=3)
        assert done == [4, 8, 10]
        # each step takes 2 lr / 4 = 1/4 of x off; the second call stops after 3
        assert np.allclose(ad.recv_img(x)[..., 0], DATA * 0.75**13, rtol=1e-5)


def test_a_method_of_the_engine_is_named_in_messages() -> None:
    with DressiAD() as ad:
        y = F.sin(Variable(FLOAT, (2, 2), name="y"))
        with pytest.raises(ValueError, match="has no data") as info:
            ad.recv_img(y)
        assert "in DressiAD.recv_img at test_anomaly.py:" in str(info.value)
        assert "optimizer" in ad._repr_html_() and "none set" in ad._repr_html_()
