"""Reads where uv, the level of detail, the direction or the index is infinite or no number."""

from __future__ import annotations

import numpy as np
import pytest
from device import run_many

from dressi import DressiAD, F, Variable, evaluate
from dressi.ad.autodiff import build_backward
from dressi.ad.vtype import FLOAT, INT, VEC2, VEC3

pytestmark = pytest.mark.gpu

KINDS = ("far right", "far left", "infinity", "minus infinity", "no number", "inside")
WRAPS = ("repeat", "mirror", "clamp", "border")


def _strange(zero: Variable, kind: str) -> Variable:
    """A FLOAT of that kind, of a leaf that holds 0: data from the host has to be finite."""
    return {
        "far right": lambda: (zero + 1.0) * 3e38,
        "far left": lambda: (zero - 1.0) * 3e38,
        "infinity": lambda: 1.0 / zero,
        "minus infinity": lambda: -1.0 / zero,
        "no number": lambda: zero / zero,
        "inside": lambda: zero + 0.3,
    }[kind]()


def _places(zero: Variable) -> Variable:
    """VEC2 @ (6, 2): each kind along u in row 0, along v in row 1; the other one is 0.3."""
    column, row = F.pixel_coord((len(KINDS), 2)).x, F.pixel_coord((len(KINDS), 2)).y
    strange = _strange(zero, "inside")
    for k, kind in enumerate(KINDS[:-1]):
        strange = F.where(F.abs(column - (k + 0.5)) < 0.25, _strange(zero, kind), strange)
    return F.vec2(F.where(row < 1.0, strange, 0.3), F.where(row < 1.0, 0.3, strange))


def _both(ad: DressiAD, outputs: list[Variable], feeds: dict[Variable, object]) -> list[np.ndarray]:
    """What the device gives, which is what the reference gives."""
    got = run_many(ad, outputs, feeds)
    with np.errstate(all="ignore"):
        want = evaluate(outputs, feeds)
    for a, b in zip(got, want, strict=True):
        assert np.isfinite(a).all() and np.isfinite(b).all()
        assert np.abs(a - b).max() < 2e-5 * (1 + np.abs(b).max())
    return got


def test_the_places_are_what_they_are_called(ad: DressiAD) -> None:
    """Else the tests below would test nothing."""
    zero = Variable(FLOAT)
    (got,) = run_many(ad, [_places(zero)], {zero: 0.0})
    for u in (got[0, 0, :, 0], got[0, 1, :, 1]):
        assert u[0] > 2e38 and u[1] < -2e38 and np.isposinf(u[2]) and np.isneginf(u[3])
        assert np.isnan(u[4]) and abs(u[5] - 0.3) < 1e-6


@pytest.mark.parametrize("filter", ["linear", "nearest"])
def test_far_and_undefined_uv_read_texels_and_have_finite_gradients(
    ad: DressiAD, filter: str
) -> None:
    """Clamped: the texel at that end, the first for what is no number; beyond a border its value;
    repeated and mirrored: some texel. All the gradient arrives, and none of it at uv."""
    zero = Variable(FLOAT, requires_grad=True)
    tex, edge = Variable(FLOAT, (5, 4), requires_grad=True), Variable(FLOAT, requires_grad=True)
    uv = _places(zero)
    rng = np.random.default_rng(3)
    texels = rng.uniform(0.5, 1.0, (4, 5, 1))
    feeds: dict[Variable, object] = {tex: texels, zero: 0.0, edge: 0.25}
    outputs = []
    for wrap in WRAPS:
        held = F.stop_gradient(uv)
        y = F.texture(tex, held, wrap=wrap, filter=filter, border=edge)
        free = Variable(VEC2, (6, 2), requires_grad=True)
        feeds[free] = np.zeros((2, 6, 2))
        moved = build_backward(F.texture(tex, uv + free, wrap=wrap, filter=filter, border=edge))
        outputs += [y, build_backward(y)[tex], moved[free]]
    got = _both(ad, outputs, feeds)
    for wrap, y, g, moved in zip(WRAPS, got[::3], got[1::3], got[2::3], strict=True):
        assert (moved[0, 0, :5, 0] == 0).all() and (moved[0, 1, :5, 1] == 0).all(), wrap
        inside = 12 if wrap != "border" else 2
        assert abs(g.sum() - inside) < 1e-4, wrap
        if wrap == "border":
            assert np.abs(y[0, :, :5] - 0.25).max() < 1e-6
        else:
            assert y.min() > 0.4999 and y.max() < 1.0001, wrap
        if wrap == "clamp":
            # 0.3 is the middle of column 1; for rows 0.3 * 4 - 0.5 = 0.7, between rows 0 and 1.
            ends = np.array([4, 0, 4, 0, 0])
            row = texels[:, ends, 0]
            v = row[1] if filter == "nearest" else 0.3 * row[0] + 0.7 * row[1]
            assert np.abs(y[0, 0, :5, 0] - v).max() < 1e-5
            assert np.abs(y[0, 1, :5, 0] - texels[np.minimum(ends, 3), 1, 0]).max() < 1e-5


def test_far_and_undefined_uv_and_levels_of_mip_chains(ad: DressiAD) -> None:
    zero = Variable(FLOAT)
    tex = Variable(FLOAT, (8, 4), requires_grad=True)
    bump = Variable(VEC3, (6, 2), requires_grad=True)
    texels = np.random.default_rng(4).uniform(0.5, 1.0, (4, 8, 1))
    feeds: dict[Variable, object] = {tex: texels, zero: 0.0, bump: np.zeros((2, 6, 3))}
    uv, mip = _places(zero), F.image.mipmap(tex)
    middle = F.vec2(0.3, 0.3) + bump.xy
    outputs = []
    for wrap in ("repeat", "clamp"):
        for y in (
            F.texture_mip(mip, uv + bump.xy, 0.5 + bump.z, wrap=wrap),
            F.texture_mip(mip, middle, uv.x + bump.z, wrap=wrap),
        ):
            grads = build_backward(y)
            outputs += [y, grads[tex], grads[bump]]
    got = _both(ad, outputs, feeds)
    for y, g in zip(got[::3], got[1::3], strict=True):
        assert y.min() > 0.4999 and y.max() < 1.0001
        assert abs(g.sum() - 12) < 1e-4
    for far in got[2::6]:
        assert (far[0, 0, :5, 0] == 0).all() and (far[0, 1, :5, 1] == 0).all()
    for levels in got[5::6]:
        assert (levels[0, 0, :5, 2] == 0).all()


def test_the_paper_s_backward_and_the_hardware_s_sampler_at_far_uv(ad: DressiAD) -> None:
    zero, step = Variable(FLOAT), Variable(INT)
    tex = Variable(FLOAT, (5, 4), requires_grad=True)
    feeds: dict[Variable, object] = {
        tex: np.random.default_rng(5).uniform(0.5, 1.0, (4, 5, 1)),
        zero: 0.0,
        step: np.full((1, 1, 1, 1), 3),
    }
    uv = _places(zero)
    y = F.texture(tex, uv, wrap="clamp", backward="inverse_uv", step=step)
    (g,) = _both(ad, [build_backward(y)[tex]], feeds)
    assert abs(g.sum() - 12) < 1e-4
    for wrap in WRAPS[:3]:
        (hard,) = run_many(ad, [F.texture(tex, uv, wrap=wrap, hardware=True)], feeds)
        assert hard.min() > 0.49 and hard.max() < 1.01, wrap


def test_directions_that_are_infinite_or_no_number_read_as_z(ad: DressiAD) -> None:
    zero = Variable(FLOAT)
    cube = Variable(FLOAT, (4, 4), 6, requires_grad=True)
    env = Variable(FLOAT, (8, 4), requires_grad=True)
    bump = Variable(VEC3, (6, 2), requires_grad=True)
    rng = np.random.default_rng(6)
    feeds: dict[Variable, object] = {
        cube: rng.uniform(0.5, 1.0, (6, 4, 4, 1)),
        env: rng.uniform(0.5, 1.0, (4, 8, 1)),
        zero: 0.0,
        bump: np.zeros((2, 6, 3)),
    }
    uv = _places(zero)
    direction = F.vec3(uv.x, 0.2, uv.y * 0.7) + bump  # no tie between texels
    outputs = []
    for read, data in ((F.texture_cube, cube), (F.texture_equirect, env)):
        for filter in ("linear", "nearest"):
            y = read(data, direction, filter)
            grads = build_backward(y)
            outputs += [
                y,
                grads[data],
                grads[bump],
                read(data, F.constant((0.0, 0.0, 1.0)), filter),
            ]
    got = _both(ad, outputs, feeds)
    for y, g, d, z in zip(got[::4], got[1::4], got[2::4], got[3::4], strict=True):
        assert np.abs(y[0, :, :5] - z.ravel()[0]).max() < 1e-5
        assert abs(g.sum() - 12) < 1e-4
        assert (d[0, :, :5] == 0).all()


def test_an_index_from_what_is_no_number_reads_a_row_or_nothing(ad: DressiAD) -> None:
    """Which integer becomes of it the device decides."""
    zero, table = Variable(FLOAT), Variable(FLOAT, (7, 1), requires_grad=True)
    y = F.lookup(table, F.dynamic(F.to_int(_places(zero).x)))
    values = np.arange(1.0, 8.0).reshape(7, 1)
    got, g = run_many(ad, [y, build_backward(y)[table]], {zero: 0.0, table: values})
    assert np.isin(got, [0.0, *values.ravel()]).all()
    assert np.isfinite(g).all() and g.sum() == (got > 0).sum()
