"""Image-based lighting against integrals by brute force, gradients, transposes, and no light lost.

All in float64 but for the tests marked gpu.
"""

from __future__ import annotations

import numpy as np
import pytest
from device import run_many
from lighting import irradiance_over_pi, prefiltered, reflected, sky, sphere_points

from dressi import DressiAD
from dressi.ad import F, Variable, build_backward, evaluate
from dressi.ad.vtype import FLOAT, INT, VEC3
from dressi.errors import GraphError
from dressi.render import ibl
from dressi.render.ibl import operators
from dressi.render.shading import Surface, pbr

KINDS = {"cube": ((8, 8), 6), "equirect": ((24, 11), 1)}
LEVELS = [k / 5 for k in range(1, 6)]


def new_map(kind: str) -> Variable:
    return Variable(VEC3, *KINDS[kind], requires_grad=True, name="env")


def some_directions(n: int, seed: int = 0) -> np.ndarray:
    d = np.random.default_rng(seed).normal(size=(n, 3))
    return np.asarray(d / np.linalg.norm(d, axis=-1, keepdims=True))


def reads(e: ibl.Environment, d: Variable) -> list[Variable]:
    """Everything that shading reads: irradiance and six roughnesses between the levels."""
    return [e.diffuse(d), *(e.specular(d, r) for r in (0.0, 0.1, 0.2, 0.55, 0.93, 1.0))]


@pytest.mark.parametrize("irradiance", ["map", "sh"])
@pytest.mark.parametrize("kind", KINDS)
def test_white_furnace(kind: str, irradiance: str) -> None:
    """Radiance 1 all around: 1 is read everywhere."""
    env = new_map(kind)
    e = ibl.build_environment(env, irradiance=irradiance)
    d = F.leaf(some_directions(40), VEC3)
    for got in evaluate(reads(e, d), {env: np.ones((env.layers, *env.size[::-1], 3))}):
        assert np.abs(got - 1).max() < 1e-6  # the weights are float32 on the device


@pytest.mark.parametrize("lobe", [None, 0.1, 0.2, 0.5, 1.0])
def test_weights_of_a_lobe_are_its_integrals(lobe: float | None) -> None:
    """Against samples drawn from the lobe, each in the texel in which it falls."""
    d = some_directions(5, 1)
    for axis in d:
        w = operators.lobe_weights(axis[None], 4, lobe).reshape(6, 4, 4)
        drawn: dict[str, np.ndarray] = {}

        def texels(light_dir: np.ndarray, out: dict[str, np.ndarray] = drawn) -> np.ndarray:
            table = ibl.cube_directions(4).reshape(-1, 3)
            on_cube = light_dir / np.abs(light_dir).max(-1, keepdims=True)
            table = table / np.abs(table).max(-1, keepdims=True)
            out["i"] = np.abs(on_cube[..., None, :] - table).max(-1).argmin(-1)
            return np.eye(96)[out["i"]]

        if lobe is None:
            want = irradiance_over_pi(texels, axis)
        else:
            want = prefiltered(texels, axis, lobe)
        assert np.abs(w.ravel() - want).max() < 6e-3
        assert w.sum() == pytest.approx(1, abs=1e-12)


def test_coarse_texels_change_a_row_by_no_more_than_stated() -> None:
    n = 8
    d = some_directions(50, 2)
    for lobe in (None, 0.2, 0.6):
        w = operators.lobe_weights(d, n, lobe)
        short = operators._shorten(w, n)
        p = operators.pyramid_matrix(n)
        dense = np.zeros((short.shape[1], 6 * n * n))
        for row in range(len(dense)):
            part = slice(p.offsets[row], p.offsets[row + 1])
            dense[row, p.columns[part]] = p.values[part]
        off = short @ dense - w
        assert np.sqrt((off**2).sum(1)).max() <= operators.LOSS * 1.0001
        assert short.nnz < (w > 0).sum()


def test_rows_of_every_face_are_the_integrals_of_its_directions() -> None:
    """They are made for one face and turned."""
    n, m = 8, 4
    (rows,) = operators._lobe_rows(n, m, 0.4)
    d = ibl.cube_directions(m).reshape(-1, 3)
    direct = operators._shorten(operators.lobe_weights(d, n, 0.4), n)
    p = operators.pyramid_matrix(n)
    x = np.random.default_rng(0).uniform(size=6 * n * n)
    texels = np.array(
        [
            p.values[a:b] @ x[p.columns[a:b]]
            for a, b in zip(p.offsets[:-1], p.offsets[1:], strict=True)
        ]
    )[: rows.shape[1]]
    # Which of equally good coarse texels stands for its parts may differ.
    assert np.abs((rows - direct) @ texels).max() < 3 * operators.LOSS


SKY_ERRORS = {"diffuse": 0.01, "levels": 0.03}
"""Largest errors relative to the brightest value at the default size, 16 x 16 texels a face."""


@pytest.mark.parametrize("shape", [((64, 32), 1), ((16, 16), 6)])
def test_levels_of_a_smooth_sky_against_brute_force(shape: tuple[tuple[int, int], int]) -> None:
    env = Variable(VEC3, *shape)
    e, d = ibl.build_environment(env), some_directions(60)
    assert e.filtered.size == (16, 16)
    at = F.leaf(d, VEC3)
    outs = [e.diffuse(at), *(e.specular(at, r) for r in LEVELS)]
    got = evaluate(outs, {env: sky(ibl.texel_directions(env))})
    want = [irradiance_over_pi(sky, d), *(prefiltered(sky, d, r) for r in LEVELS)]
    errors = [np.abs(a[0, 0] - b).max() / b.max() for a, b in zip(got, want, strict=True)]
    assert errors[0] < SKY_ERRORS["diffuse"], errors
    assert max(errors[1:]) < SKY_ERRORS["levels"], errors


def test_harmonics_of_order_2_are_exact_for_what_they_span() -> None:
    """Irradiance of 1 + y + (x^2 - z^2) / 2 over pi, by hand: 1 + 2/3 y + 1/4 (x^2 - z^2) / 2."""

    def light(d: np.ndarray, a: float = 1.0, b: float = 1.0) -> np.ndarray:
        x, y, z = np.moveaxis(d, -1, 0)
        return np.repeat((1 + a * y + b * (x * x - z * z) / 2)[..., None], 3, -1)

    d = some_directions(30)
    for kind in KINDS:
        env = new_map(kind)
        y = ibl.build_environment(env, irradiance="sh").diffuse(F.leaf(d, VEC3))
        (got,) = evaluate([y], {env: light(ibl.texel_directions(env))})
        assert np.abs(got[0, 0] - light(d, 2 / 3, 1 / 4)).max() < 1e-5


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (1, 32), (30, 1), (2, 16)])
def test_harmonics_of_maps_of_a_row_or_a_column_or_two(size: tuple[int, int]) -> None:
    """They cannot tell all functions apart: light all around stays what it is, the rest finite."""
    env, n = Variable(FLOAT, size), Variable(VEC3, (50, 1))
    y, d = ibl.sh_irradiance(ibl.sh_project(env), n), some_directions(50)
    (white,) = evaluate([y], {env: np.ones(size[::-1]), n: d})
    assert np.abs(white - 1).max() < 1e-6
    noise = np.random.default_rng(2).uniform(0, 1, size[::-1])
    (got,) = evaluate([y], {env: noise, n: d})
    assert np.abs(got).max() < 3


@pytest.mark.parametrize("size", [(16, 2), (4, 2), (6, 4), (4, 8), (3, 10)])
def test_a_ramp_over_a_coarse_map_gives_two_thirds_of_it(size: tuple[int, int]) -> None:
    env, n = Variable(FLOAT, size), Variable(VEC3, (50, 1))
    y, d = ibl.sh_irradiance(ibl.sh_project(env), n), some_directions(50)
    slope = np.array([0.3, -0.2, 0.4])
    ramp = 1 + ibl.texel_directions(env).reshape(size[1], size[0], 3) @ slope
    (got,) = evaluate([y], {env: ramp, n: d})
    assert np.abs(got.ravel() - (1 + d @ slope * 2 / 3)).max() < 1e-6


def test_harmonics_are_orthonormal() -> None:
    basis = ibl.sh_basis(ibl.cube_directions(64)).reshape(-1, 9)
    gram = basis.T @ (basis * ibl.cube_solid_angles(64).reshape(-1, 1))
    assert np.abs(gram - np.eye(9)).max() < 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_transpose_and_gradients_against_central_differences(kind: str) -> None:
    """To the environment (a dot test: the map is linear), direction and roughness."""
    rng = np.random.default_rng(3)
    env = new_map(kind)
    d = Variable(VEC3, (30, 1), requires_grad=True)
    r = Variable(FLOAT, (30, 1), requires_grad=True)
    upstream = Variable(VEC3, (30, 1))
    e = ibl.build_environment(env)
    y = e.diffuse(d) + e.specular(d, r) * e.brdf(F.abs(d.x), r).x
    loss = y * upstream
    feeds = {
        env: rng.uniform(0, 2, (env.layers, *env.size[::-1], 3)),
        d: some_directions(30, 4),
        r: rng.uniform(0.02, 0.98, (30, 1)),
        upstream: rng.normal(size=(30, 3)),
    }
    grads = build_backward(loss, [env, d, r])
    values = evaluate([y, *(grads[v] for v in (env, d, r))], feeds)
    dot = (values[0][0, 0] * feeds[upstream]).sum()
    assert dot == pytest.approx((values[1] * feeds[env]).sum(), rel=1e-10)
    for v, g in zip((d, r), values[2:], strict=True):
        for _ in range(3):
            move = rng.normal(size=feeds[v].shape)
            ends = [
                evaluate([loss], {**feeds, v: feeds[v] + s * 1e-6 * move})[0].sum() for s in (1, -1)
            ]
            want = (ends[0] - ends[1]) / 2e-6
            assert (g.reshape(move.shape) * move).sum() == pytest.approx(want, rel=1e-5)


def test_brdf_table_against_the_rendering_equation() -> None:
    """A white sky and F0 of 0 and 1 give bias and scale + bias."""
    z = np.array([0.0, 0, 1])
    for nv in (0.15, 0.8):
        v = np.array([np.sqrt(1 - nv**2), 0, nv])
        for roughness in (0.3, 1.0):
            scale, bias = ibl.brdf_integral(np.array(nv), np.array(roughness))
            lost, all_ = (
                reflected(
                    lambda d: np.ones((*d.shape[:-1], 1)), z, v, roughness, np.array([f0]), 1 << 19
                )
                for f0 in (0.0, 1.0)
            )
            assert bias == pytest.approx(lost[0], abs=1e-4)
            assert scale + bias == pytest.approx(all_[0], abs=1e-4)


def test_brdf_of_a_mirror_is_schlicks_term_and_its_table_is_near() -> None:
    nv = np.linspace(0.01, 1, 50)
    got = ibl.brdf_integral(nv, np.zeros(50))
    assert np.allclose(got, np.stack([1 - (1 - nv) ** 5, (1 - nv) ** 5], -1), atol=1e-12)
    v, r = Variable(FLOAT, (50, 1)), Variable(FLOAT, (50, 1))
    rough = np.random.default_rng(5).uniform(0.2, 1, 50)
    read = ibl.read_brdf(ibl.brdf_table(), v, r)
    (table,) = evaluate([read], {v: nv, r: rough})
    assert np.abs(table[0, 0] - ibl.brdf_integral(nv, rough)).max() < 5e-3
    ends = evaluate([read], {v: np.tile([0.0, 1.0], 25), r: np.repeat([0.0, 1.0], 25)})[0][0, 0]
    data = ibl.brdf_table().data
    assert data is not None
    assert np.abs(ends[:2] - data[0, 0, [0, -1]]).max() < 1e-6
    assert np.abs(ends[-2:] - data[0, -1, [0, -1]][::1]).max() < 1e-6


SPLIT_ERRORS = {0.2: 0.04, 0.6: 0.12, 1.0: 0.20}
"""What the split itself costs: root mean square over a sphere relative to that of the radiance, for
n = v = r stretches no lobe at grazing angles."""


@pytest.mark.parametrize("roughness", SPLIT_ERRORS)
def test_split_sum_against_the_rendering_equation(roughness: float) -> None:
    n, v, mask = sphere_points(24)
    n, v = n[mask], v[mask]
    nv = (n * v).sum(-1)
    reflection = 2 * nv[:, None] * n - v
    f0 = np.array([0.9, 0.7, 0.4])
    truth = reflected(sky, n, v, roughness, f0, 1024)
    env = Variable(VEC3, (64, 32))
    e = ibl.build_environment(env)
    both = e.brdf(F.leaf(nv, FLOAT), roughness)
    y = e.specular(F.leaf(reflection, VEC3), roughness) * (both.x * F.constant(f0) + both.y)
    (got,) = evaluate([y], {env: sky(ibl.texel_directions(env))})
    error = np.sqrt(((got[0, 0] - truth) ** 2).mean() / (truth**2).mean())
    assert error < SPLIT_ERRORS[roughness]
    assert error > 0.01  # it is an approximation


def test_a_finer_side_is_taken_and_a_coarse_map_is_not_blown_up() -> None:
    assert ibl.build_environment(Variable(VEC3, (64, 32))).filtered.size == (16, 16)
    assert ibl.build_environment(Variable(VEC3, (512, 256))).filtered.size == (16, 16)
    assert ibl.build_environment(Variable(VEC3, (5, 5), 6)).filtered.size == (4, 4)
    assert ibl.build_environment(Variable(VEC3, (1, 1), 6)).filtered.size == (1, 1)
    assert ibl.build_environment(Variable(VEC3, (2, 1)), n_levels=1).filtered.layers == 18


def test_bad_input_is_named() -> None:
    env = Variable(VEC3, (8, 4))
    bad = [
        (lambda: ibl.build_environment(Variable(FLOAT, (8, 4))), "VEC3"),
        (lambda: ibl.build_environment(Variable(INT, (8, 4))), "INT"),
        (lambda: ibl.build_environment(None), "NoneType"),
        (lambda: ibl.build_environment(env, n_levels=0), "n_levels"),
        (lambda: ibl.build_environment(env, n_levels=2.5), "2.5"),
        (lambda: ibl.build_environment(env, side=100), "1 to 64"),
        (lambda: ibl.build_environment(env, irradiance="sg"), "'sg'"),
        (lambda: ibl.brdf_table(0), "at least 1"),
        (lambda: operators.lobes_matrix(4, (4,), (0.05,)), "roughness"),
    ]
    for call, text in bad:
        with pytest.raises(GraphError) as info:
            call()  # type: ignore[no-untyped-call]
        assert text in str(info.value)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_transposes_on_the_device(ad: DressiAD, kind: str) -> None:
    """<A x, y> = <x, A^T y> in float32 for the filtered stack and for the harmonics."""
    rng = np.random.default_rng(6)
    env = new_map(kind)
    e = ibl.build_environment(env, irradiance="sh")
    assert e.coefficients is not None
    outputs = [e.filtered, e.coefficients]
    feeds = {env: rng.uniform(0, 1, (env.layers, *env.size[::-1], 3)).astype(np.float32)}
    ups = [Variable(VEC3, v.size, v.layers) for v in outputs]
    for u in ups:
        feeds[u] = rng.uniform(0, 1, (u.layers, *u.size[::-1], 3)).astype(np.float32)
    grads = [build_backward(v * u)[env] for v, u in zip(outputs, ups, strict=True)]
    got = run_many(ad, [*outputs, *grads], feeds)
    want = evaluate([*outputs, *grads], feeds)
    for a, b in zip(got, want, strict=True):
        assert np.abs(a - b).max() < 1e-5 * np.abs(b).max()
    for y, g, u in zip(got[:2], got[2:], ups, strict=True):
        assert (y * feeds[u]).sum() == pytest.approx((g * feeds[env]).sum(), rel=1e-5)


AXES = np.array(  # +X, -X, +Y, -Y, +Z, -Z
    [(1, 0, 0), (0, 1, 1), (0, 1, 0), (1, 0, 1), (0, 0, 1), (1, 1, 0)], float
)


def colored_by_axis(d: np.ndarray) -> np.ndarray:
    """A colour an axis, mixed with weights x^2, y^2, z^2."""
    w = np.stack([np.maximum(s * d[..., k], 0) ** 2 for k in range(3) for s in (1, -1)], -1)
    return np.asarray(w @ AXES)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_mirror_sphere_shows_no_seam(ad: DressiAD, kind: str) -> None:
    """A mirror ball shows all directions: values as the formula says, and no jump between pixels
    of the ball anywhere, seams and poles included."""
    env = Variable(VEC3, (32, 32), 6) if kind == "cube" else Variable(VEC3, (128, 64))
    n, v, mask = sphere_points(96)
    reflection = 2 * (n * v).sum(-1, keepdims=True) * n - v
    d = F.leaf(reflection, VEC3)
    e = ibl.build_environment(env)
    outs = [e.specular(d, 0.0), e.background(d), e.specular(d, 0.3)]
    got = run_many(ad, outs, {env: colored_by_axis(ibl.texel_directions(env))})
    want = colored_by_axis(reflection)
    for a in got[:2]:
        # Where three faces meet, linear interpolation lacks a texel: an error of about a tenth of
        # a texel (0.05) times the slope (2).
        assert np.abs(a[0] - want)[mask].max() < 1e-2
    for a in got:
        for axis in (0, 1):
            inner = mask & np.roll(mask, 1, axis)
            apart = np.linalg.norm(reflection - np.roll(reflection, 1, axis), axis=-1)
            jump = np.abs(a[0] - np.roll(a[0], 1, axis)).max(-1)
            assert (jump < 2.2 * apart + 1e-4)[inner].all()  # slopes of the formula are below 2


@pytest.mark.parametrize("turned", [0.0, 2.0])
def test_the_slope_to_roughness_is_that_of_the_lobe(turned: float) -> None:
    """Against differences of integrals by brute force, from 0.1 to the default of 1, which stands
    at the end of its range. Below 0.25 slopes are small: relative to the largest."""
    n, v, mask = sphere_points(10)
    n, v = n[mask], v[mask]
    reflection = 2 * (n * v).sum(-1, keepdims=True) * n - v
    weights = np.random.default_rng(1).uniform(0, 1, (len(n), 3))
    c, s = np.cos(turned), np.sin(turned)
    turn = np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])

    def light(d: np.ndarray) -> np.ndarray:
        return sky(d @ turn)

    def white(d: np.ndarray) -> np.ndarray:
        return np.ones((*d.shape[:-1], 1))

    def picture(r: float) -> float:
        share = reflected(white, n, v, r, np.full(1, 0.7), 2048)
        return float((weights * share * prefiltered(light, reflection, r, 2048)).sum())

    env, rough = Variable(VEC3, (64, 32)), Variable(FLOAT, requires_grad=True)
    surface = Surface(
        albedo=F.constant((0.7, 0.7, 0.7)), position=F.leaf(n, VEC3), normal=F.leaf(n, VEC3),
        to_eye=F.leaf(v, VEC3), metallic=1.0, roughness=rough,
    )  # fmt: skip
    loss = F.sum(pbr(surface, environment=ibl.build_environment(env)) * F.leaf(weights, VEC3))
    slope = build_backward(loss, [rough])[rough]
    at = [0.1, 0.17, 0.25, 0.3, 0.37, 0.5, 0.6, 0.75, 0.9, 1.0]
    sent = light(ibl.texel_directions(env))
    got = np.array([evaluate([slope], {env: sent, rough: np.array([r])})[0].sum() for r in at])
    want = np.array([(picture(r + 2e-3) - picture(r - 2e-3)) / 4e-3 for r in at])
    assert np.abs(got - want).max() < 0.03 * np.abs(want).max(), np.round(got / want, 3)
    assert np.abs(got / want - 1)[2:].max() < 0.08, np.round(got / want, 3)
    assert np.abs(got / want - 1)[4:].max() < 0.03, np.round(got / want, 3)
