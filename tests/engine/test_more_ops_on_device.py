"""R1 on the device for the compositions of F, and integers at the points that GLSL
leaves open."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from composed import NAMES, of_name
from device import run_many, worst
from op_cases import configs, differentiable, instance, projected, seed_of, weights_like

from dressi import DressiAD, F, Variable, evaluate
from dressi.ad.autodiff import build_backward
from dressi.ad.vtype import FLOAT, INT, MAT2, MAT3, MAT4

pytestmark = pytest.mark.gpu

ALGEBRAIC, TRANSCENDENTAL = 1e-3, 5e-3
GROUPS = [NAMES[k : k + 6] for k in range(0, len(NAMES), 6)]


@pytest.mark.parametrize("names", GROUPS, ids=lambda n: n[0])
def test_forward_and_gradient_agree_with_float64(ad: DressiAD, names: tuple[str, ...]) -> None:
    outputs, expected, about, feeds = [], [], [], {}
    for k, c in (item for name in names for item in of_name(name)):
        limit = TRANSCENDENTAL if c.case.transcendental else ALGEBRAIC
        for config in configs(c.name, k, c.case, large=False):
            if not config.text.startswith(("7x5x", "input 0 1x1 against 7x5x3")):
                continue
            made = instance(c.name, k, c.case, config)
            found = {"forward": made.output}
            feeds |= made.feeds
            if c.case.gradient:
                rng = np.random.default_rng(seed_of(c.name, k, config.text, "upstream"))
                w, feeds[w] = weights_like(made.output, rng)
                grads = build_backward(projected(made.output, w), differentiable(made.inputs))
                found |= {f"gradient to {x.name}": g for x, g in grads.items()}
            for what, v in found.items():
                outputs.append(v)
                expected.append(evaluate([v], feeds)[0])
                about.append((f"{c.name} case {k}, {config.text}, {what}", limit))
    wrong = []
    for (text, limit), a, b in zip(about, run_many(ad, outputs, feeds), expected, strict=True):
        if not worst(a, b) < limit:
            wrong.append(f"{text}: {worst(a, b):.2e}, allowed {limit:.0e}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "function, slope",
    [
        (F.tanh, lambda x: 1.0 / np.cosh(x) ** 2),
        (F.sigmoid, lambda x: 0.25 / np.cosh(x / 2.0) ** 2),
    ],
    ids=["tanh", "sigmoid"],
)
def test_slopes_keep_their_digits_far_from_0(
    ad: DressiAD, function: Callable[[Variable], Variable], slope: Callable[..., np.ndarray]
) -> None:
    """On both sides, where the function is 0 or 1 to all digits of float32. 2e-5: Vulkan allows
    exp(-40) an error of 83 units of 2^-23."""
    data = np.linspace(-20.0, 20.0, 81).reshape(1, 1, 81, 1)
    x = Variable(FLOAT, (81, 1))
    gradient = build_backward(function(x), [x])[x]
    (got,) = run_many(ad, [gradient], {x: data})
    assert np.abs(got / slope(data) - 1.0).max() < 2e-5


def test_integers_are_exact_at_every_pair_of_edges(ad: DressiAD) -> None:
    edges = [-(2**31), -(2**31) + 1, -7, -3, -2, -1, 0, 1, 2, 3, 7, 31, 32, 2**31 - 2, 2**31 - 1]
    pairs = np.array(list(product(edges, edges)))
    a, b = Variable(INT, (len(pairs), 1)), Variable(INT, (len(pairs), 1))
    two = F.vec2(a, b)
    outputs = {
        "idiv": F.idiv(a, b),
        "imod": F.imod(a, b),
        "and": F.bits.bit_and(a, b),
        "or": F.bits.bit_or(a, b),
        "xor": F.bits.bit_xor(a, b),
        "not": F.bits.bit_not(two),
        "left": F.bits.shift_left(a, b),
        "right": F.bits.shift_right(a, b),
        "logical": F.bits.shift_right(two, b, logical=True),
        "count": F.bits.bit_count(two),
        "lsb": F.bits.find_lsb(two),
        "msb": F.bits.find_msb(two),
        "sign": F.sign(two),
        "div": F.div(a, b),
        "div by a number": F.div(two, 7),
        "div by numbers": F.div(two, (0, -1)),
    }
    feeds = {a: pairs[:, 0], b: pairs[:, 1]}
    got = run_many(ad, list(outputs.values()), feeds)
    want = evaluate(list(outputs.values()), feeds)
    wrong = [n for n, x, y in zip(outputs, got, want, strict=True) if not (x == y).all()]
    assert not wrong


def test_floats_beyond_integers_become_the_nearest_one(ad: DressiAD) -> None:
    over = np.float32([[0, 0], [1, 0], [-1, 0], [3e9, 1], [-3e38, 1], [2**31, 1], [2**24 + 2, -1]])
    x, y = Variable(FLOAT, (len(over), 1)), Variable(FLOAT, (len(over), 1))
    z = x / y
    one, three = run_many(
        ad, [F.to_int(z), F.to_int(F.vec3(z, -z, 0.5))], {x: over[:, :1], y: over[:, 1:]}
    )
    most = 2**31 - 1
    want = [0, most, -most - 1, most, -most - 1, most, -(2**24) - 2]
    assert one.ravel().tolist() == want
    assert three[..., 0].ravel().tolist() == want
    assert three[0, 0, :, 1].tolist() == [0, -most - 1, most, -most - 1, most, -most - 1, 2**24 + 2]


def test_bits_of_floats_are_exact(ad: DressiAD) -> None:
    values = np.float32([0.0, 1.0, -1.0, 3.14159, 1e-30, -1e30, 2**24 + 2, 3.4e38])
    x = Variable(FLOAT, (len(values), 1))
    bits, back = run_many(
        ad, [F.bits.float_bits(x), F.bits.bits_float(F.bits.float_bits(x))], {x: values}
    )
    assert (bits.ravel() == values.view(np.int32)).all()
    assert (back.ravel() == values).all()


def test_singular_matrices_give_0_on_the_device(ad: DressiAD) -> None:
    outputs, feeds = [], {}
    for t, n in ((MAT2, 2), (MAT3, 3), (MAT4, 4)):
        counted = np.arange(n * n).reshape(n, n) if n > 2 else np.array([[1, 2], [2, 4]])
        for data in (np.zeros((n, n)), np.ones((n, n)), counted):
            m = Variable(t, requires_grad=True)
            feeds[m] = data
            y = F.linalg.inverse(m)
            outputs += [y, F.linalg.determinant(m), build_backward(F.sum_components(y))[m]]
    for v, a in zip(outputs, run_many(ad, outputs, feeds), strict=True):
        assert (a == 0).all(), v.label()


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1.0, 1e12, 1e30])
def test_inverse_of_small_and_large_matrices(ad: DressiAD, size: float) -> None:
    """Their determinants vanish or overflow in float32; their inverses do not."""
    outputs, feeds = [], {}
    for t, n in ((MAT2, 2), (MAT3, 3), (MAT4, 4)):
        m = Variable(t, (8, 1))
        rng = np.random.default_rng(n)
        feeds[m] = ((rng.uniform(-1, 1, (1, 1, 8, n, n)) + n * np.eye(n)) * size).astype(np.float32)
        outputs.append(F.linalg.inverse(m))
    for v, a in zip(outputs, run_many(ad, outputs, feeds), strict=True):
        want = np.linalg.inv(feeds[v.creator.inputs[0]].astype(np.float64))
        assert np.abs(a - want).max() < 1e-4 * np.abs(want).max()
