"""What moves pixels, with every type that it takes, in passes and in dispatches: gathers, scatters,
reductions, windows. Elementwise ops are compared in test_ops_on_device.py."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from device import run_many, worst
from op_cases import differentiable, instance, projected, seed_of, weights_like

from dressi import DressiAD, F, Variable, evaluate
from dressi.ad.autodiff import build_backward
from dressi.ad.registry import ANY, OPS, Case, Op
from dressi.ad.vtype import INT, IVEC2, MAT3, MAT4, VEC3, VType
from dressi.packing import Options
from dressi.testing.cases import first_config, typed_cases

pytestmark = pytest.mark.gpu

LOWERINGS = ("graphics", "compute")
FLOATS = (VEC3, MAT3, MAT4)
TYPES = (MAT3, IVEC2)
"""Beside those of the cases, which test_ops_on_device.py takes; all of them in
test_types_in_shaders.py."""


def moves(op: Op) -> bool:
    return op.scatter is not None or op.kind not in ("frag", "free") or ANY in op.reads


def typed(name: str) -> list[tuple[int, Case]]:
    """The first Case of an op with each of TYPES that it takes; none of an op of vectors."""
    return [(k, c) for k, c in typed_cases(name, 1) if c.inputs[0][0] in TYPES]


MOVING = [n for n, op in OPS.items() if op.cases and moves(op)]
NAMES = [n for n in MOVING if typed(n)]


@pytest.fixture(scope="module")
def engines(vulkan_device_available: bool) -> Iterator[dict[str, DressiAD]]:
    if not vulkan_device_available:
        pytest.skip("no Vulkan device on this machine")
    made = {way: DressiAD(options=Options(lowering=way)) for way in LOWERINGS}
    yield made
    for ad in made.values():
        ad.close()


@pytest.mark.parametrize("name", NAMES)
def test_ops_that_move_pixels_take_every_type(engines: dict[str, DressiAD], name: str) -> None:
    outputs: dict[str, Variable] = {}
    feeds: dict[Variable, np.ndarray] = {}
    limit = 1e-3
    cases = typed(name)
    widest = max(c.inputs[0][0].n_words * c.gradient for _, c in cases)
    for k, case in cases:
        limit = 5e-3 if case.transcendental else limit
        made = instance(name, k, case, first_config(case))
        feeds |= made.feeds
        what = " ".join(x.vtype.name for x in made.inputs)
        outputs[what] = made.output
        if case.gradient and case.inputs[0][0].n_words == widest:
            w, feeds[w] = weights_like(made.output, np.random.default_rng(seed_of(name, what)))
            grads = build_backward(projected(made.output, w), differentiable(made.inputs))
            outputs |= {f"{what}, gradient to {x.name}": g for x, g in grads.items()}
    want = evaluate(list(outputs.values()), feeds)
    for way, ad in engines.items():
        got = run_many(ad, list(outputs.values()), feeds)
        for what, a, b in zip(outputs, got, want, strict=True):
            assert worst(a, b) < limit, (way, what)


# -- scatters, beside NumPy's own

N, SHAPE = 10, (3, 5, 7)
INDEX = np.random.default_rng(1).integers(-1, N + 1, SHAPE)
"""Rows for 3 layers of 7 x 5 pixels; some outside of the table."""


def added(values: np.ndarray, layers: int) -> np.ndarray:
    """values (3, 5, 7, *tail) added up to rows."""
    out = np.zeros((layers, N, *values.shape[3:]))
    for layer, y, x in np.ndindex(*SHAPE):
        row = INDEX[layer, y, x]
        if 0 <= row < N:
            out[layer % layers, row] += values[layer, y, x]
    return out


def scattered(vtype: VType, layers: int, mode: str) -> tuple[list[Variable], dict, list]:
    """Graphs, data and sums: of scatter_add itself and of the gradient of a lookup."""
    data = np.random.default_rng(vtype.n_words).integers(-8, 9, (*SHAPE, *vtype.tail)) / 4
    rows = np.random.default_rng(7).integers(-8, 9, (layers, 1, N, *vtype.tail)) / 4
    value, index = Variable(vtype, SHAPE[:0:-1], 3), Variable(INT, SHAPE[:0:-1], 3)
    table = Variable(vtype, (N, 1), layers, requires_grad=True)
    step = F.leaf(np.zeros(1), INT)
    more = {"step": step, "samples": 64} if mode == "stochastic" else {}
    read = F.lookup(table, F.dynamic(index), scatter=mode, **more)
    (gradient,) = build_backward(projected(read, value), [table]).values()
    feeds = {value: data, index: INDEX[..., None], table: rows}
    sums = added(data, layers).reshape(rows.shape)
    kept = ((INDEX >= 0) & (INDEX < N)).reshape(*SHAPE, *(1,) * len(vtype.tail))
    at = np.arange(3)[:, None, None] % layers
    looked_up = rows[at, 0, np.clip(INDEX, 0, N - 1)] * kept
    return (
        [F.scatter_add(value, index, (N, 1), layers), gradient, read],
        feeds,
        [
            sums,
            sums,
            looked_up,
        ],
    )


@pytest.mark.parametrize("mode", ["exact", "deterministic", "stochastic"])
@pytest.mark.parametrize("way", ["graphics", "compute", "fixed point", "loops"])
def test_sums_over_rows_of_every_type(way: str, mode: str) -> None:
    """Quarters, whose sums are exact whatever the order. Stochastic: a row takes 64 of its pixels,
    so only what no row gets is known exactly; the rest is in test_scatter_on_device.py."""
    options = Options(
        lowering="graphics" if way == "graphics" else "compute", deterministic=way == "fixed point"
    )
    limits = {"float_atomics": False, "subgroup_arithmetic": False} if way == "loops" else None
    with DressiAD(options=options, limits=limits) as ad:
        for layers in (3,):
            outputs, feeds, want = [], {}, []
            for vtype in FLOATS:
                ours, data, sums = scattered(vtype, layers, mode)
                outputs += ours
                feeds |= data
                want += sums
            for k, (a, b) in enumerate(zip(run_many(ad, outputs, feeds), want, strict=True)):
                what = (FLOATS[k // 3].name, layers, ("scatter_add", "gradient", "lookup")[k % 3])
                if mode == "stochastic" and k % 3 == 1:
                    assert a.shape == b.shape and np.isfinite(a).all(), what
                    hit = added(np.ones((*SHAPE, 1)), layers).reshape(layers, 1, N) > 0
                    assert (a[~hit] == 0).all() and a[hit].any(), what
                else:
                    assert np.array_equal(a, b), what


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("vtype", [INT, IVEC2], ids=lambda t: t.name)
def test_lookups_of_integers(vtype: VType, lowering: str) -> None:
    rows = np.arange(N * vtype.n).reshape(N, vtype.n) + 2**24
    table, index = Variable(vtype, (N, 1)), Variable(INT, SHAPE[:0:-1], 3)
    kept = ((INDEX >= 0) & (INDEX < N))[..., None]
    with DressiAD(options=Options(lowering=lowering)) as ad:
        ad.send_img(table, rows)
        ad.send_img(index, INDEX[..., None])
        got = ad.recv_img(F.lookup(table, F.dynamic(index)))
    assert np.array_equal(got, rows[np.clip(INDEX, 0, N - 1)] * kept)
