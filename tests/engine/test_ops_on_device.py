"""R1 of docs/checking.md on the device: every op, forward and gradient, against float64.

The gradients that the float64 evaluation gives are themselves compared with central differences in
tests/ad.
"""

from __future__ import annotations

import numpy as np
import pytest
from device import run_many, worst
from op_cases import (
    Config,
    all_cases,
    configs,
    differentiable,
    instance,
    projected,
    seed_of,
    weights_like,
)

from dressi import DressiAD, F, Variable, evaluate
from dressi.ad.autodiff import build_backward
from dressi.ad.registry import OPS, Case
from dressi.ad.vtype import FLOAT, INT, VEC2, VEC3
from dressi.testing import edges
from dressi.testing.domain_edges import EDGES

pytestmark = pytest.mark.gpu

ALGEBRAIC, TRANSCENDENTAL = 1e-3, 5e-3
NAMES = list(dict.fromkeys(name for name, _, _ in all_cases()))


def _configs(name: str, k: int, case: Case) -> list[Config]:
    """Layers 1 and 3 at a table, 7x5 and 101x37; broadcasts for the first case of an op."""
    wanted = ("13x1", "7x5", "101x37", "given", "table")
    return [
        c
        for c in configs(name, k, case)
        if c.text.startswith(wanted) or k == 0 or c.text.startswith("1x1x")
    ]


@pytest.mark.parametrize("name", NAMES)
def test_forward_and_gradient_agree_with_float64(ad: DressiAD, name: str) -> None:
    outputs: list[Variable] = []
    expected: list[np.ndarray] = []
    about: list[tuple[str, float]] = []
    feeds: dict[Variable, np.ndarray] = {}
    for k, case in enumerate(OPS[name].cases):
        limit = TRANSCENDENTAL if case.transcendental else ALGEBRAIC
        for config in _configs(name, k, case):
            made = instance(name, k, case, config)
            mine = dict(made.feeds)
            found = {"forward": made.output}
            if case.gradient:
                rng = np.random.default_rng(seed_of(name, k, config.text, "upstream"))
                w, mine[w] = weights_like(made.output, rng)
                grads = build_backward(projected(made.output, w), differentiable(made.inputs))
                found |= {f"gradient to {x.name}": g for x, g in grads.items()}
            for what, v in found.items():
                outputs.append(v)
                expected.append(evaluate([v], mine)[0])
                about.append((f"case {k}, {config.text}, {what}", limit))
            feeds |= mine
    got = run_many(ad, outputs, feeds)
    wrong = []
    for (text, limit), a, b in zip(about, got, expected, strict=True):
        error = worst(a, b)
        if not error < limit:
            wrong.append(f"{text}: {error:.2e}, allowed {limit:.0e}")
    assert not wrong, "\n".join(wrong)


def test_domain_edges_are_as_documented_on_the_device(ad: DressiAD) -> None:
    """R2 of docs/checking.md; the points are those of tests/ad/test_domain_edges.py."""
    values, gradients = edges.off(ad, EDGES)
    assert values + gradients == []


def test_zero_upstream_gives_exactly_0_on_the_device(ad: DressiAD) -> None:
    assert edges.not_zero(ad, EDGES) == []


def test_sobol_points_are_scipys_in_sobols_own_order(ad: DressiAD) -> None:
    """SciPy walks the sequence in Gray code: its point n is ours of number n xor n / 2."""
    from scipy.stats import qmc

    index = Variable(INT, (1024, 1))
    n = np.arange(1024)
    (got,) = run_many(ad, [F.sobol(index)], {index: n ^ (n >> 1)})
    assert np.allclose(got[0, 0], qmc.Sobol(2, scramble=False).random(1024), atol=2e-7)


def test_integers_above_2_24_survive_every_way(ad: DressiAD) -> None:
    """Leaf, arithmetic, lookup, where, swizzle: never through a float."""
    big = 2**24 + np.arange(8)
    a, i = Variable(INT, (8, 1)), Variable(INT, (8, 1))
    two = F.vec2(a, a + 1)
    outputs = [a + 0, F.lookup(a, i), F.where(F.compare("gt", a, 3), a, -1), two.y, -a]
    got = run_many(ad, outputs, {a: big, i: np.arange(8)[::-1]})
    for g, want in zip(got, (big, big[::-1], big, big + 1, -big), strict=True):
        assert (g.ravel() == want).all()


@pytest.mark.parametrize("wrap", ["repeat", "clamp", "mirror"])
@pytest.mark.parametrize("filter", ["linear", "nearest"])
def test_texture_at_borders_and_exactly_at_1(ad: DressiAD, wrap: str, filter: str) -> None:
    """u = 0, 1, -1, 2 exactly; sizes 1x1, 1x5, no powers of two; one layer (sampler) and three
    (fetches)."""
    outputs, feeds = [], {}
    rng = np.random.default_rng(0)
    exact = [-1.0, -0.25, 0.0, 0.25, 0.5, 1.0, 1.75, 2.0]
    grid = np.stack(np.meshgrid(exact, exact), -1)
    if filter == "nearest":
        grid = grid + 1e-3  # exactly on a border of texels either is right
    for size in ((1, 1), (1, 5), (3, 7), (4, 4)):
        for layers in (1, 3):
            tex, uv = Variable(VEC3, size, layers), Variable(VEC2, (8, 8), layers)
            feeds[tex] = rng.uniform(-1, 1, (layers, size[1], size[0], 3)).astype(np.float32)
            feeds[uv] = np.broadcast_to(grid, (layers, 8, 8, 2)).astype(np.float32)
            outputs.append(F.texture(tex, uv, filter=filter, wrap=wrap))
    got = run_many(ad, outputs, feeds)
    for v, a, b in zip(outputs, got, evaluate(outputs, feeds), strict=True):
        # The hardware filters with 8-bit weights.
        assert np.abs(a - b).max() < 1 / 128, f"{v.creator.inputs[0].label()}"


def test_table_as_a_texture(ad: DressiAD) -> None:
    """A (N, 1) image is folded on the device; sampling must not show it."""
    tex, uv = Variable(FLOAT, (37, 1)), Variable(VEC2, (50, 1))
    u = np.linspace(0.02, 0.98, 50)
    feeds = {tex: np.sin(np.arange(37.0)), uv: np.stack([u, np.full(50, 0.5)], -1)}
    y = F.texture(tex, uv, wrap="clamp")
    assert np.abs(run_many(ad, [y], feeds)[0] - evaluate([y], feeds)[0]).max() < 1 / 128


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 4096, 5000])
def test_sum_of_tables_of_any_length(ad: DressiAD, n: int) -> None:
    x = Variable(VEC3, (n, 1), 2)
    data = np.random.default_rng(n).uniform(-1, 1, (2, 1, n, 3)).astype(np.float32)
    got = run_many(ad, [F.sum(x), F.sum(x, per_layer=True), F.mean(x)], {x: data})
    for a, b in zip(got, (data.sum((0, 2)), data.sum(2), data.mean((0, 2))), strict=True):
        assert np.abs(a.ravel() - b.ravel()).max() < 1e-5 * n + 1e-6
