"""Hair against published numbers, a float64 reference of another make, and conservation."""

from __future__ import annotations

import hair_reference as ref
import numpy as np
import pytest
from scipy.special import i0e, i1e

from dressi import DressiAD, F, GraphError, Options, Variable, evaluate
from dressi.ad import build_backward, simplify
from dressi.ad.vtype import FLOAT, VEC3
from dressi.packing import PRESETS, pack
from dressi.render.shading import DirectionalLight, HairFiber, shade_hair
from dressi.render.shading.hair import (
    FiberAngles,
    azimuthal,
    azimuthal_scale,
    bessel_i0e,
    fiber_angles,
    longitudinal,
    longitudinal_variance,
    melanin_absorption,
    reflectance,
    scatter,
)

PUBLISHED = 2e-3  # relative: the table has six digits, Mitsuba computes in float32
CLOSE = 1e-5  # of polynomials of a relative error of 5e-7, after a few products
NUMBERS = ("melanin", "redness", "roughness", "azimuthal_roughness", "ior")


def const(value: object, vtype: object = FLOAT) -> Variable:
    return F.constant(value, vtype)  # type: ignore[arg-type]


def image(values: object) -> Variable:
    """A FLOAT row of pixels with data."""
    array = np.asarray(values, np.float64).reshape(-1, 1)
    return F.leaf(array, FLOAT)


def directions(vectors: np.ndarray) -> Variable:
    return F.leaf(np.asarray(vectors, np.float64).reshape(-1, 3), VEC3)


# bm, bn, tilt, eu, pheo, towards the eye, towards the light, f cos; fibre along y, normal z.
MITSUBA = [
    (.3, .3, 2, 1.3, .2, (-.915101, .078525, .395505), (-.822536, .568536, -.014154),
     (.00509664, .00137340, 5.31776e-5)),
    (.3, .3, 0, .3, 0, (-.748608, .643328, .160362), (-.410039, .413380, -.813010),
     (.00117951, .000690167, .000198363)),
    (.3, .3, 0, .3, 0, (-.375281, -.849025, .371916), (.572885, .307124, .759919),
     (.0294706, .0291253, .0287979)),
    (.1, .6, 3, .2, .8, (.134361, -.656826, .741975), (.369152, .045638, -.928248),
     (2.25945e-6, 8.27071e-7, 4.59212e-8)),
    (.6, .2, 2, 4, 0, (-.756785, -.195086, .623873), (.622932, -.491116, .608901),
     (.0703909, .0703909, .0703909)),
    (.6, .2, 2, 4, 0, (-.768208, -.025496, .639692), (.391169, .781278, -.486407),
     (1.67692e-5, 2.42284e-6, 2.25614e-8)),
]  # fmt: skip


@pytest.mark.parametrize("row", MITSUBA)
def test_scattering_is_that_of_mitsuba(row: tuple) -> None:
    bm, bn, tilt, eu, pheo, eye, light, wanted = row
    sigma = eu * np.array([0.419, 0.697, 1.37]) + pheo * np.array([0.187, 0.4, 1.05])
    gamma = np.arccos(eye[2] / np.hypot(eye[0], eye[2])) * (-1 if eye[0] >= 0 else 1)
    turn = np.arctan2(light[2], light[0]) - np.arctan2(eye[2], eye[0])
    angles = FiberAngles(const(eye[1]), const(light[1]), const(turn))
    found = evaluate(
        [
            scatter(
                angles,
                const(sigma.tolist(), VEC3),
                const(bm),
                const(bn),
                const(1.55),
                const(np.radians(tilt)),
                const(np.sin(gamma)),
            )
        ],
        {},
    )[0].ravel()
    np.testing.assert_allclose(found, wanted, rtol=PUBLISHED)


@pytest.mark.parametrize(
    ("h", "sin_o", "wanted"),
    [
        (0.0, 0.0, (0.334506, 0.173850, 0.063489)),
        (0.5, 0.3, (0.347054, 0.184419, 0.068646)),
        (-0.9, 0.8, (0.430181, 0.327812, 0.266435)),
    ],
)
def test_sums_of_attenuations_are_the_published_ones(
    h: float, sin_o: float, wanted: tuple[float, ...]
) -> None:
    sigma = const((0.5821, 0.9861, 1.991), VEC3)
    found = evaluate([reflectance(const(sin_o), sigma, const(1.55), const(h))], {})[0]
    np.testing.assert_allclose(found.ravel(), wanted, rtol=PUBLISHED)


def test_scattering_is_that_of_the_reference_at_random_angles() -> None:
    rng = np.random.default_rng(0)
    n = 60
    sin_o, sin_i = rng.uniform(-0.99, 0.99, (2, n))
    phi, h = rng.uniform(-np.pi, np.pi, n), rng.uniform(-0.95, 0.95, n)
    for bm, bn, eta, melanin in (
        (0.1, 0.2, 1.3, 0.1),
        (0.4, 0.6, 1.55, 0.5),
        (0.9, 0.95, 1.9, 0.9),
    ):
        sigma = ref.absorption(melanin, 0.3)
        found = evaluate(
            [
                scatter(
                    FiberAngles(image(sin_o), image(sin_i), image(phi)),
                    melanin_absorption(const(melanin), const(0.3)),
                    const(bm),
                    const(bn),
                    const(eta),
                    const(0.05),
                    image(h),
                )
            ],
            {},
        )[0].reshape(n, 3)
        wanted = [
            ref.fiber_scatter(sigma, bm, bn, eta, 0.05, o, i, p, k)
            for o, i, p, k in zip(sin_o, sin_i, phi, h, strict=True)
        ]
        np.testing.assert_allclose(found, wanted, rtol=CLOSE, atol=1e-12)


def test_without_an_offset_the_mean_over_all_of_them_is_taken() -> None:
    rng = np.random.default_rng(1)
    n = 20
    sin_o, sin_i, phi = rng.uniform(-0.9, 0.9, n), rng.uniform(-0.9, 0.9, n), rng.uniform(-3, 3, n)
    sigma = ref.absorption(0.4, 0.2)
    found = evaluate(
        [
            scatter(
                FiberAngles(image(sin_o), image(sin_i), image(phi)),
                const(sigma.tolist(), VEC3),
                const(0.3),
                const(0.3),
                const(1.55),
                const(0.03),
            )
        ],
        {},
    )[0].reshape(n, 3)
    for k in range(n):
        args = (sigma, 0.3, 0.3, 1.55, 0.03, sin_o[k], sin_i[k], phi[k])
        np.testing.assert_allclose(found[k], ref.mean_scatter(*args), rtol=CLOSE)


@pytest.mark.parametrize("h", [-0.6, 0.3])
def test_a_black_fibre_mirrors_about_the_normal_of_its_surface_at_h(h: float) -> None:
    tangent, eye = np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0])
    normal = np.sqrt(1.0 - h * h) * eye + h * np.cross(eye, tangent)
    mirrored = 2.0 * (normal @ eye) * normal - eye
    turn = np.radians(np.arange(360))
    lights = np.stack([np.cos(turn), np.sin(turn), 0 * turn], axis=1)
    angles = fiber_angles(
        const(tangent.tolist(), VEC3), const(eye.tolist(), VEC3), directions(lights)
    )
    black = const((50.0, 50.0, 50.0), VEC3)
    arguments = (black, const(0.2), const(0.1), const(1.55), const(0.0), const(h))
    found = evaluate([scatter(angles, *arguments)], {})[0].reshape(360, 3)[:, 0]
    # Lights are a degree apart.
    assert lights[found.argmax()] @ mirrored > np.cos(np.radians(1.0))


@pytest.mark.parametrize("bm", [0.1, 0.3, 0.6, 0.99])
def test_the_lobe_along_the_fibre_integrates_to_one(bm: float) -> None:
    nodes, weights = np.polynomial.legendre.leggauss(300)
    theta = nodes * np.pi / 2
    for share, tilt in ((1.0, -0.07), (0.25, 0.035), (4.0, 0.14)):
        v = longitudinal_variance(const(bm)) * share
        angles = FiberAngles(const(0.4), image(np.sin(theta)), const(0.0))
        m = evaluate([longitudinal(v, angles, const(tilt))], {})[0].ravel()
        total = (weights * np.pi / 2 * m * np.cos(theta)).sum()
        assert total == pytest.approx(1.0, abs=2e-6)


@pytest.mark.parametrize("bn", [0.1, 0.3, 0.6, 1.0])
def test_the_lobe_around_the_fibre_integrates_to_one(bn: float) -> None:
    n = 20000
    x = (np.arange(n) + 0.5) / n * 2 * np.pi - 1.0
    density = evaluate([azimuthal(azimuthal_scale(const(bn)), image(x))], {})[0].ravel()
    assert density.mean() * 2 * np.pi == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("bm", "bn", "eta"), [(0.2, 0.3, 1.55), (0.5, 0.8, 1.2), (1.0, 1.0, 2.0)])
def test_a_fibre_that_absorbs_nothing_gives_back_all(bm: float, bn: float, eta: float) -> None:
    nodes, weights = np.polynomial.legendre.leggauss(80)
    phi = (np.arange(120) + 0.5) / 120 * 2 * np.pi
    sin_i, azimuth = (a.ravel() for a in np.meshgrid(nodes, phi, indexing="ij"))
    for sin_o, h in ((0.0, 0.0), (0.6, None), (-0.9, 0.7)):
        found = scatter(
            FiberAngles(const(sin_o), image(sin_i), image(azimuth)),
            const((0.0, 0.0, 0.0), VEC3),
            const(bm),
            const(bn),
            const(eta),
            const(np.radians(2.0)),
            None if h is None else const(h),
        )
        values = evaluate([found], {})[0].reshape(80, 120, 3)
        # The solid angle is cos theta d theta d phi = d sin theta d phi.
        total = np.einsum("t,tpc->c", weights, values) * (2 * np.pi / 120)
        np.testing.assert_allclose(total, 1.0, atol=1e-3)


def test_the_bessel_function_is_smooth_where_its_polynomials_meet() -> None:
    x = image(np.concatenate([np.linspace(0, 10, 101), [3.749, 3.751, 1e2, 1e5]]))
    y = bessel_i0e(x)
    slope = build_backward(F.sum(y), [x])
    at = evaluate([x], {})[0].ravel()
    np.testing.assert_allclose(evaluate([y], {})[0].ravel(), i0e(at), rtol=1e-6)
    found = evaluate([slope[x]], {})[0].ravel()
    # The derivative of a polynomial that is fitted to values is less exact.
    np.testing.assert_allclose(found, i1e(at) - i0e(at), rtol=1e-4, atol=2e-6)


def scene(n: int = 24) -> dict[str, np.ndarray]:
    """Random unit tangents and directions to the eye."""
    rng = np.random.default_rng(3)
    found = {k: rng.normal(size=(n, 3)) for k in ("tangent", "eye")}
    return {k: np.float32(v / np.linalg.norm(v, axis=1, keepdims=True)) for k, v in found.items()}


LIGHT = np.array([0.3, -0.8, -0.5])
VALUES = dict(zip(NUMBERS, (0.45, 0.3, 0.35, 0.4, 1.5), strict=True))


def shaded(values: dict[str, float]) -> tuple[dict[str, Variable], Variable]:
    arrays = scene()
    leaves = {k: F.leaf([v], FLOAT, k) for k, v in values.items()}
    for leaf in leaves.values():
        leaf.requires_grad = True
    color = shade_hair(
        HairFiber(**leaves),
        directions(arrays["tangent"]),
        directions(arrays["eye"]),
        const((0.0, 0.0, 0.0), VEC3),
        [DirectionalLight(tuple(LIGHT), 1.0, 3.0)],
        ambient=0.2,
    )
    return leaves, color


def reference_sum(values: dict[str, float]) -> float:
    """The sum of all pixels of ``shaded``, in float64."""
    arrays = {k: np.float64(v) for k, v in scene().items()}
    to_light = -LIGHT / np.linalg.norm(LIGHT)
    sigma = ref.absorption(values["melanin"], values["redness"])
    bm, bn, eta = (values[k] for k in NUMBERS[2:])
    nodes, weights = np.polynomial.legendre.leggauss(8)
    total = 0.0
    for t, o in zip(arrays["tangent"], arrays["eye"], strict=True):
        sin_o, sin_i = t @ o, t @ to_light
        across_o, across_i = o - sin_o * t, to_light - sin_i * t
        phi = np.arctan2(t @ np.cross(across_o, across_i), across_o @ across_i)
        args = (sigma, bm, bn, eta, np.radians(2.0), sin_o, sin_i, phi)
        total += 3.0 * ref.mean_scatter(*args).sum()
        for h, w in zip(nodes, weights, strict=True):
            total += 0.2 * w / 2 * ref.attenuations(sigma, eta, sin_o, h).sum()
    return float(total)


def test_a_picture_is_that_of_the_reference() -> None:
    _, color = shaded(VALUES)
    assert evaluate([F.sum(color)], {})[0].sum() == pytest.approx(reference_sum(VALUES), rel=CLOSE)


@pytest.fixture(scope="module")
def slopes(ad: DressiAD) -> dict[str, float]:
    """Gradients on the device of the sum of all pixels, by one plan."""
    leaves, color = shaded(VALUES)
    gradients = build_backward(F.sum(color), list(leaves.values()))
    found = ad.recv_imgs([gradients[x] for x in leaves.values()])
    return {k: float(g.sum()) for k, g in zip(leaves, found, strict=True)}


@pytest.mark.gpu
@pytest.mark.parametrize("name", NUMBERS)
def test_gradients_of_the_numbers_are_differences_of_the_reference(
    slopes: dict[str, float], name: str
) -> None:
    step = 1e-5
    ends = [reference_sum({**VALUES, name: VALUES[name] + s * step}) for s in (1, -1)]
    assert slopes[name] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=0.01)


@pytest.mark.gpu
@pytest.mark.parametrize("end", [0, 1])
def test_ends_of_the_ranges_and_directions_along_the_fibre_stay_finite(
    ad: DressiAD, end: int
) -> None:
    values = {k: float(end) for k in NUMBERS[:4]} | {"ior": 1.0 + end}
    leaves = {k: F.leaf([v], FLOAT) for k, v in values.items()}
    for leaf in leaves.values():
        leaf.requires_grad = True
    axes = np.eye(3)[[0, 0, 1, 1]] * [[1], [-1], [1], [1]]
    eyes = np.eye(3)[[0, 0, 1, 0]]
    color = shade_hair(
        HairFiber(**leaves),
        directions(axes),
        directions(eyes),
        const((0.0, 0.0, 0.0), VEC3),
        [DirectionalLight((-1.0, 0.0, 0.0))],
        ambient=1.0,
    )
    gradients = build_backward(F.sum(color), list(leaves.values()))
    for found in ad.recv_imgs([color, *gradients.values()]):
        assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [("melanin", -0.1), ("redness", 1.1), ("roughness", float("nan")), ("ior", 0.9), ("ior", 2.1),
     ("azimuthal_roughness", 2.0), ("tilt_deg", 90.0)],
)  # fmt: skip
def test_numbers_out_of_range_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(GraphError, match=rf"HairFiber at .*: {name} must be in"):
        HairFiber(**{name: value})


def test_wrong_types_are_refused_by_name() -> None:
    with pytest.raises(GraphError, match=r"HairFiber at .*: melanin must be FLOAT"):
        HairFiber(melanin=Variable(VEC3))
    unit = const((0.0, 0.0, 1.0), VEC3)
    with pytest.raises(GraphError, match="shade_hair needs a light"):
        shade_hair(HairFiber(), unit, unit, unit)
    with pytest.raises(GraphError, match="tangent must be VEC3"):
        fiber_angles(Variable(FLOAT), unit, unit)


def n_substages(look_ahead: int) -> int:
    """Substages per pixel of the model and its gradient."""
    leaves, color = shaded(VALUES)
    gradients = build_backward(color, list(leaves.values()))
    outputs = simplify([gradients[x] for x in leaves.values()])
    options = Options(look_ahead=look_ahead, lowering="graphics")
    plan = pack(outputs, [], PRESETS["llvmpipe"], options).plan
    return sum(len(stage.substages) for stage in plan.stages if stage.width * stage.height > 1)


def test_the_model_and_its_gradient_are_one_shader_where_packing_looks_far_ahead() -> None:
    assert n_substages(4000) == 1
    assert n_substages(400) > 20


@pytest.mark.parametrize("wrong", [-1, 1.5, True, None])
def test_how_far_packing_looks_must_be_a_whole_number(wrong: object) -> None:
    with pytest.raises(GraphError, match=r"Options\.look_ahead must be an integer"):
        Options(look_ahead=wrong)  # type: ignore[arg-type]
