"""Windows, stacks, neighbourhoods, extremes and noise against NumPy and SciPy; and bad input."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from op_cases import rel

from dressi.ad import F, Variable, build_backward, evaluate, simplify
from dressi.ad.graph import topological
from dressi.ad.kernels import kernels
from dressi.ad.vtype import FLOAT, INT, IVEC2, MAT2, MAT4, VEC2, VEC3
from dressi.errors import GraphError

NUMPY_PAD = {"zero": "constant", "clamp": "edge", "mirror": "symmetric", "repeat": "wrap"}
SCIPY = {"zero": "constant", "clamp": "nearest", "mirror": "reflect", "repeat": "wrap"}


def image(
    size: tuple[int, int] = (7, 5), layers: int = 2, n: int = 3
) -> tuple[Variable, np.ndarray]:
    x = Variable({1: FLOAT, 2: VEC2, 3: VEC3}[n], size, layers, requires_grad=True)
    rng = np.random.default_rng(size[0] * 100 + size[1])
    return x, rng.uniform(-1, 1, (layers, size[1], size[0], n))


def value(y: Variable, x: Variable, data: np.ndarray) -> np.ndarray:
    return evaluate([y], {x: data})[0]


# -- windows


@pytest.mark.parametrize("border", NUMPY_PAD)
def test_pad_is_numpys_also_beyond_the_image(border: str) -> None:
    x, data = image()
    for left, top, right, bottom in ((1, 2, 3, 0), (0, 0, 0, 1), (20, 11, 30, 12)):
        widths = ((0, 0), (top, bottom), (left, right), (0, 0))
        want = np.pad(data, widths, mode=NUMPY_PAD[border])  # type: ignore[call-overload]
        assert (value(F.pad(x, left, top, right, bottom, border), x, data) == want).all()


def test_pad_fills_with_a_value_and_passes_it_no_gradient() -> None:
    x, data = image()
    y = F.pad(x, 1, 1, 0, 0, value=0.25)
    got = value(y, x, data)
    assert (got[:, 0] == 0.25).all() and (got[:, :, 0] == 0.25).all()
    assert (got[:, 1:, 1:] == data).all()
    assert (value(build_backward(y)[x], x, data) == 1).all()


def test_crop_tile_flip_and_reshape_are_numpys() -> None:
    x, data = image()
    for y, want in (
        (F.crop(x, 2, 1, 4, 3), data[:, 1:4, 2:6]),
        (F.tile(x, 3, 2), np.tile(data, (1, 2, 3, 1))),
        (F.flip(x), data[:, :, ::-1]),
        (F.flip(x, horizontal=False, vertical=True), data[:, ::-1]),
        (F.reshape(x, (35, 1), 2), data.reshape(2, 1, 35, 3)),
        (F.reshape(x, (10, 7)), data.reshape(1, 7, 10, 3)),
        (F.reshape(F.reshape(x, (70, 1)), (7, 5), 2), data),
    ):
        assert (value(y, x, data) == want).all(), y.label()
    for same in (F.crop(x, 0, 0, 7, 5), F.tile(x, 1), F.pad(x), F.reshape(x, (7, 5), 2)):
        assert same is x


def test_crop_at_a_run_time_place_reads_0_outside() -> None:
    x, data = image(layers=1)
    left = Variable(INT, layers=3)
    y = F.crop(x, left, 1, 4, 2)
    assert y.layers == 3
    got, g = evaluate([y, build_backward(y)[x]], {x: data, left: [-2, 1, 5]})
    wide = np.pad(data[0], ((0, 0), (2, 4), (0, 0)))
    reads = np.zeros((5, 7, 1))
    for layer, at in enumerate((-2, 1, 5)):
        assert (got[layer] == wide[1:3, at + 2 : at + 6]).all()
        reads[1:3, max(at, 0) : max(at + 4, 0)] += 1
    assert (g[0] == reads).all()


def test_crop_names_what_is_not_inside() -> None:
    x, _ = image()
    for left, top, w, h in ((-1, 0, 2, 2), (4, 0, 4, 2), (0, 3, 2, 3), (0, 0, 8, 1)):
        with pytest.raises(GraphError, match=r"F\.crop at test_neighbors_layers\.py:"):
            F.crop(x, left, top, w, h)


# -- resize


@pytest.mark.parametrize("filter", ["linear", "nearest"])
def test_resize_samples_at_the_centres_of_pixels(filter: str) -> None:
    """The half-texel convention of docs/conventions.md: as F.texture at (i + 0.5) / n."""
    x, data = image((6, 5))
    for size in ((11, 13), (3, 2), (6, 7), (1, 1), (12, 10)):
        uv = F.pixel_coord(size) / list(size) if size != (1, 1) else F.constant([0.5, 0.5])
        if (
            filter == "nearest"
        ):  # between two pixels, either may be taken; F.image.resize takes the later
            uv = uv + 1e-6
        want = F.texture(x, uv, filter=filter, wrap="clamp")
        a, b = evaluate([F.image.resize(x, size, filter), want], {x: data})
        assert np.abs(a - b).max() < (1e-9 if filter == "linear" else 1e-12), size


def test_resize_keeps_constants_and_ramps() -> None:
    x = Variable(FLOAT, (8, 4))
    ramp = np.broadcast_to(np.arange(8.0), (1, 4, 8))[..., None]
    assert np.allclose(value(F.image.resize(x, (5, 9)), x, ramp * 0 + 3), 3, atol=1e-12)
    got = value(F.image.resize(x, (16, 4)), x, ramp)[0, :, 1:-1, 0]
    assert np.allclose(got, (np.arange(16)[1:-1] + 0.5) / 2 - 0.5, atol=1e-12)
    assert F.image.resize(x, (8, 4)) is x


# -- stacks


@pytest.mark.parametrize("n", [1, 2, 8, 9, 20, 65])
def test_stack_and_split_are_inverse(n: int) -> None:
    xs = [Variable(FLOAT, (3, 2), requires_grad=True) for _ in range(n)]
    feeds = {x: np.full((2, 3), float(k)) for k, x in enumerate(xs)}
    stack = F.stack(xs)
    got = evaluate([stack], feeds)[0]
    assert got.shape == (n, 2, 3, 1)
    assert (got[:, 0, 0, 0] == np.arange(n)).all()
    parts = evaluate(F.split(stack), feeds)
    assert all((p == k).all() for k, p in enumerate(parts))
    weights = F.to_float(F.layer_index(n)) + 1.0
    grads = build_backward(stack * weights)
    for k, g in enumerate(evaluate([grads[x] for x in xs], feeds)):
        assert g.shape == (1, 2, 3, 1) and (g == k + 1).all()


@pytest.mark.parametrize(("vtype", "most"), [(FLOAT, 8), (MAT2, 4), (MAT4, 2)])
def test_no_pass_of_a_concat_reads_more_images_than_every_device_binds(
    vtype: object, most: int
) -> None:
    xs = [Variable(vtype, (3, 2)) for _ in range(30)]  # type: ignore[arg-type]
    (lowered,) = simplify([F.stack(xs)])
    sizes = [len(f.inputs) for f in topological([lowered]) if f.op.name == "concat"]
    assert max(sizes) == most


def test_concat_and_split_in_parts_of_several_layers() -> None:
    a, b = Variable(VEC3, (4, 3), 2), Variable(VEC3, (4, 3), 4)
    data = np.random.default_rng(0).normal(size=(6, 3, 4, 3))
    feeds = {a: data[:2], b: data[2:]}
    y = F.concat([a, b])
    assert (evaluate([y], feeds)[0] == data).all()
    for k, part in enumerate(evaluate(F.split(y, 3), feeds)):
        assert (part == data[3 * k : 3 * k + 3]).all()


# -- neighbourhoods


@pytest.mark.parametrize("border", NUMPY_PAD)
def test_shift_moves_the_content_right_and_down(border: str) -> None:
    x, data = image()
    for dx, dy in ((1, 0), (0, 2), (-3, 1), (9, -6), (0, 0)):
        a, b = abs(dx), abs(dy)
        wide = np.pad(data, ((0, 0), (b, b), (a, a), (0, 0)), mode=NUMPY_PAD[border])  # type: ignore[call-overload]
        want = wide[:, b - dy : b - dy + 5, a - dx : a - dx + 7]
        assert (value(F.image.shift(x, dx, dy, border), x, data) == want).all(), (dx, dy)


def test_shift_by_a_run_time_value_of_each_layer_and_back() -> None:
    x, data = image(layers=3)
    dx = Variable(INT, layers=3)
    y = F.image.shift(x, dx, 1, "repeat")
    w = Variable(VEC3, (7, 5), 3)
    weights = np.random.default_rng(1).normal(size=(3, 5, 7, 3))
    feeds = {x: data, dx: [0, 2, -4], w: weights}
    got, g = evaluate([y, build_backward(y * w)[x]], feeds)
    for k, d in enumerate((0, 2, -4)):
        assert (got[k] == np.roll(data[k], (1, d), (0, 1))).all()
        assert (g[k] == np.roll(weights[k], (-1, -d), (0, 1))).all()


@pytest.mark.parametrize("border", SCIPY)
@pytest.mark.parametrize("size", [(7, 5), (31, 1), (1, 6)])
def test_blurs_are_scipys(border: str, size: tuple[int, int]) -> None:
    from scipy import ndimage

    x, data = image(size, n=1)
    for radius in (0, 1, 4):
        n = 2 * radius + 1
        want = ndimage.uniform_filter(data, (0, n, n, 0), mode=SCIPY[border])
        if border != "zero" or radius == 0 or 1 not in size:
            assert np.allclose(
                value(F.image.box_blur(x, radius, border), x, data), want, atol=1e-12
            )
    for sigma in (0.5, 1.0, 2.3):
        want = ndimage.gaussian_filter(
            data,
            (0, sigma, sigma, 0),
            mode=SCIPY[border],
            radius=(0, *[int(np.ceil(3 * sigma))] * 2, 0),
        )
        assert np.allclose(
            value(F.image.gaussian_blur(x, sigma, border), x, data), want, atol=1e-12
        )
    assert np.allclose(value(F.image.gaussian_blur(x, 0.0), x, data), data, atol=0)


@pytest.mark.parametrize("border", SCIPY)
def test_convolve_is_scipys_correlation(border: str) -> None:
    from scipy import ndimage

    x, data = image()
    kernel = np.array([[1.0, 2.0, -3.0], [0.5, 0.0, 4.0], [-1.0, 0.25, 7.0]])
    want = ndimage.correlate(data, kernel[None, :, :, None], mode=SCIPY[border])
    assert np.allclose(value(F.image.convolve(x, kernel, border), x, data), want, atol=1e-12)


def test_gradient_and_laplacian_of_a_paraboloid() -> None:
    """x^2 + 3 x y + 2 y: away from the border central differences are exact."""
    v, u = np.mgrid[0:6, 0:8].astype(float)
    x = Variable(FLOAT, (8, 6))
    data = (u * u + 3 * u * v + 2 * v)[None, :, :, None]
    inner = np.s_[1:-1, 1:-1]
    for kind in ("central", "sobel"):
        gu, gv = evaluate(list(F.image.image_gradient(x, kind)), {x: data})
        assert np.allclose(gu[0, ..., 0][inner], (2 * u + 3 * v)[inner], atol=1e-12)
        assert np.allclose(gv[0, ..., 0][inner], (3 * u + 2)[inner], atol=1e-12)
    lap = value(F.image.laplacian(x), x, data)
    assert np.allclose(lap[0, ..., 0][inner], 2, atol=1e-12)
    assert abs(lap.sum()) < 1e-9


def test_a_large_kernel_that_is_no_row_looks_its_offsets_up() -> None:
    x, data = image((9, 8), layers=1)
    kernel = np.random.default_rng(3).normal(size=(5, 5))
    wide = np.pad(data, ((0, 0), (2, 2), (2, 2), (0, 0)), mode="edge")
    want = sum(kernel[j, i] * wide[:, j : j + 8, i : i + 9] for j in range(5) for i in range(5))
    y = F.image.convolve(x, kernel)
    assert np.allclose(value(y, x, data), want, atol=1e-12)
    assert y.creator is not None
    assert "{y}_ds[25]" in kernels(y.creator.op)["fragment"].text(y.creator)


NEIGHBOURHOODS: list[Callable[[Variable], Variable]] = [
    lambda x: F.image.shift(x, 1, 1, "clamp"),
    lambda x: F.image.box_blur(x, 2),
    lambda x: F.image.gaussian_blur(x, 1.0, "mirror"),
    lambda x: F.image.laplacian(x, "zero"),
    lambda x: F.image.resize(x, (9, 3)),
    lambda x: F.pad(x, 1, 1, 1, 1, "mirror"),
    lambda x: F.image.image_gradient(x, "sobel")[1],
]


@pytest.mark.parametrize("k", range(len(NEIGHBOURHOODS)))
def test_neighbourhoods_stop_at_the_border_of_a_layer(k: int) -> None:
    """Forward and gradient of a stack are those of its images alone."""
    x, data = image(layers=3)
    one = Variable(VEC3, (7, 5), requires_grad=True)
    y, y1 = NEIGHBOURHOODS[k](x), NEIGHBOURHOODS[k](one)
    got, g = evaluate([y, build_backward(y * y)[x]], {x: data})
    for layer in range(3):
        a, b = evaluate([y1, build_backward(y1 * y1)[one]], {one: data[layer]})
        assert (got[layer] == a[0]).all() and (g[layer] == b[0]).all()


def test_erosion_is_the_minimum_over_the_square_inside_of_the_layer() -> None:
    from scipy import ndimage

    x, data = image((20, 13), n=1)
    for radius in (0, 1, 3):
        n = 2 * radius + 1
        want = ndimage.minimum_filter(data, (1, n, n, 1), mode="nearest")
        assert (value(F.image.erode(x, float(radius), 4), x, data) == want).all()


def test_forward_mode_and_reverse_mode_agree_through_all_of_them() -> None:
    """<J v, u> = <v, J^T u>."""
    x, data = image()
    y = F.image.gaussian_blur(F.pad(x, 2, 1, 0, 1, "mirror"), 0.8)
    y = F.image.shift(F.image.resize(F.concat([y, F.flip(y * y)]), (6, 9)), 1, -1, "repeat")
    y = F.crop(F.tile(y, 2), 3, 2, 7, 5) - F.max(y, per_layer=True)
    y = F.image.laplacian(F.reshape(y, (5, 7), 4), "zero")
    rng = np.random.default_rng(2)
    u, v = Variable(VEC3, y.size, y.layers), Variable(VEC3, x.size, x.layers)
    feeds = {x: data, u: rng.normal(size=(4, 7, 5, 3)), v: rng.normal(size=data.shape)}
    (jv,) = F.jvp(y, {x: v})
    a, b = evaluate([F.sum(jv * u), F.sum(build_backward(y * u)[x] * v)], feeds)
    assert rel(a.sum(), b.sum()) < 1e-10
    assert abs(b.sum()) > 1e-3


# -- extremes


@pytest.mark.parametrize("size", [(1, 1), (7, 5), (70, 9), (65, 1), (200, 1)])
def test_extremes_and_where_they_are(size: tuple[int, int]) -> None:
    x, data = image(size, layers=3, n=1)
    data[data < -0.9] = -1.0  # ties
    for per_layer, axis in ((False, (0, 1, 2)), (True, (1, 2))):
        flat = data.reshape(3, -1) if per_layer else data.reshape(1, -1)
        outputs = [
            F.max(x, per_layer=per_layer),
            F.min(x, per_layer=per_layer),
            F.argmax(x, per_layer),
            F.argmin(x, per_layer),
        ]
        got = evaluate(simplify(outputs), {x: data})
        for a, want in zip(
            got,
            (data.max(axis), data.min(axis), flat.argmax(1), flat.argmin(1)),
            strict=True,
        ):
            assert (a.ravel() == np.ravel(want)).all()


def test_equal_extremes_share_the_gradient_evenly_and_by_component() -> None:
    x = Variable(VEC2, (3, 1), 2, requires_grad=True)
    data = np.array([[[5.0, 0.0], [1.0, 7.0], [5.0, 7.0]], [[5.0, 7.0], [5.0, 1.0], [0.0, 7.0]]])
    (whole,) = evaluate([build_backward(F.max(x))[x]], {x: data})
    want = np.where(data == data.max((0, 1)), 0.25, 0.0)
    assert (whole[:, 0] == want).all()
    (each,) = evaluate([build_backward(F.max(x, per_layer=True))[x]], {x: data})
    assert (each[:, 0] == np.where(data == data.max(1, keepdims=True), 0.5, 0.0)).all()


def test_norms_over_pixels() -> None:
    x, data = image()
    data[0, 0, 0] = 0.0
    for p in (1, 2):
        for per_layer in (False, True):
            y = F.norm_pixels(x, p, per_layer)
            flat = data.reshape(2 if per_layer else 1, -1)
            got, g = evaluate([y, build_backward(y)[x]], {x: data})
            norm = np.linalg.norm(flat, p, axis=1)
            assert np.allclose(got.ravel(), norm, atol=1e-12)
            want = np.sign(data) if p == 1 else data / norm.reshape(-1, 1, 1, 1)
            assert np.allclose(g, want, atol=1e-12)
    (g,) = evaluate([build_backward(F.norm_pixels(x))[x]], {x: data * 0})
    assert (g == 0).all()


# -- noise


def test_hash_is_pcg4d() -> None:
    """Jarzynski and Olano 2020, in Python's own integers."""
    mask = 2**32 - 1

    def pcg4d(v: list[int]) -> list[int]:
        x, y, z, w = ((a * 1664525 + 1013904223) & mask for a in v)
        for k in range(2):
            x = (x + y * w) & mask
            y = (y + z * x) & mask
            z = (z + x * y) & mask
            w = (w + y * z) & mask
            if k == 0:
                x, y, z, w = (a ^ a >> 16 for a in (x, y, z, w))
        return [x, y, z, w]

    key = Variable(IVEC2, (3, 1))
    data = np.array([[0, 0], [1, -1], [-(2**31), 2**31 - 1]])
    got = evaluate([F.hash(key)], {key: data})[0][0, 0].astype(np.int64) & mask
    assert got.tolist() == [pcg4d([int(a) & mask, int(b) & mask, 0, 0]) for a, b in data]


def test_noise_is_new_at_every_step_layer_component_and_seed() -> None:
    step = Variable(INT)
    y = F.uniform_noise((64, 64), step, n=4, layers=2)
    a, again, b = (evaluate([y], {step: k})[0] for k in (0, 0, 1))
    other = evaluate([F.uniform_noise((64, 64), step, n=4, layers=2, seed=1)], {step: 0})[0]
    assert (a == again).all()
    streams = np.stack(
        [s[..., k].ravel() for s in (a[:1], a[1:], b[:1], other[:1]) for k in range(4)]
    )
    assert (streams >= 0).all() and (streams < 1).all()
    # 4096 numbers each: the error of a mean is 0.0045, of a correlation 0.016.
    assert np.abs(streams.mean(1) - 0.5).max() < 0.02
    assert np.abs(streams.var(1) - 1 / 12).max() < 0.005
    assert np.abs(np.corrcoef(streams) - np.eye(16)).max() < 0.07
    rows = a[0, :, :, 0]
    for p, q in ((rows[1:], rows[:-1]), (rows[:, 1:], rows[:, :-1])):  # neighbours
        assert abs(np.corrcoef(p.ravel(), q.ravel())[0, 1]) < 0.07
    counts, _ = np.histogram(streams, bins=64, range=(0, 1))
    assert np.abs(counts / counts.mean() - 1).max() < 0.15  # 1024 a bin: 5 deviations


def test_a_step_of_each_layer_gives_what_the_layer_gives_at_that_step() -> None:
    steps = Variable(INT, layers=3)
    (got,) = evaluate([F.uniform_noise((5, 4), steps, layers=3)], {steps: [7, 7, 9]})
    for layer, k in enumerate((7, 7, 9)):
        (want,) = evaluate([F.uniform_noise((5, 4), k, layers=3)], {})
        assert (got[layer] == want[layer]).all()


def test_normal_noise_has_the_moments_of_a_normal_and_its_components_are_independent() -> None:
    (y,) = evaluate([F.normal_noise((128, 128), 3, n=4)], {})
    flat = y.reshape(-1, 4)  # 16384 each: errors 0.008, 0.011, 0.02, 0.04
    assert np.abs(flat.mean(0)).max() < 0.04
    assert np.abs(flat.var(0) - 1).max() < 0.055
    assert np.abs((flat**3).mean(0)).max() < 0.16
    assert np.abs((flat**4).mean(0) - 3).max() < 0.4
    assert np.abs(np.corrcoef(flat.T) - np.eye(4)).max() < 0.04
    assert np.abs(np.corrcoef((flat**2).T) - np.eye(4)).max() < 0.04
    for n in (1, 2, 3):
        assert F.normal_noise((4, 4), n=n).vtype.n == n


# -- bad input

X = Variable(FLOAT, (4, 3), 6)
BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: F.pad(X, -1), "at least 0"),
    (lambda: F.pad(X, 1, border="around"), "'around'"),
    (lambda: F.pad(X, 1.5), "left must be an int"),  # type: ignore[arg-type]
    (lambda: F.pad(X, 1, value=float("nan")), "NaN"),
    (lambda: F.pad(Variable(INT, (4, 3)), 1, value=0.5), "is not INT"),
    (lambda: F.pad(Variable(MAT2, (4, 3)), 1, value=0.5), "filled with 0"),
    (lambda: F.tile(X, 0), "at least 1"),
    (lambda: F.reshape(X, (5, 3), 6), "90"),
    (lambda: F.stack([]), "list"),
    (lambda: F.stack(X), "list"),  # type: ignore[arg-type]
    (lambda: F.stack([X]), "F.concat"),
    (lambda: F.concat([X, Variable(FLOAT, (3, 4))]), "one size"),
    (lambda: F.concat([X, 3.0]), "float"),  # type: ignore[list-item]
    (lambda: F.split(X, 4), "does not divide"),
    (lambda: F.split(X, 0), "does not divide"),
    (lambda: F.split(3.0), "float"),  # type: ignore[arg-type]
    (lambda: F.image.resize(X, (4, 0)), "at least 1"),
    (lambda: F.image.resize(X, (4, 4), "cubic"), "'cubic'"),
    (lambda: F.image.resize(Variable(FLOAT, (2**17, 1)), (2**14, 1)), "2^30"),
    (lambda: F.image.shift(X, 0.5, 0), "must be an int"),
    (lambda: F.image.shift(X, Variable(FLOAT), 0), "INT @ 1x1"),
    (lambda: F.image.shift(X, 1, Variable(INT, (4, 3))), "INT @ 1x1"),
    (lambda: F.image.shift(X, Variable(INT, layers=5), 0), "5"),
    (lambda: F.image.shift(X, 1, 1, "wrap"), "'wrap'"),
    (lambda: F.image.convolve(X, [1, 2, 3]), "shape (3,)"),
    (lambda: F.image.convolve(X, [[1, 2]]), "odd"),
    (lambda: F.image.convolve(X, [[1, 2, 3], [1]]), "numbers"),
    (lambda: F.image.convolve(X, [[np.nan]]), "NaN"),
    (lambda: F.image.convolve(X, np.ones((101, 101))), "separable"),
    (lambda: F.image.box_blur(X, -1), "-1"),
    (lambda: F.image.box_blur(X, 1.5), "radius must be an int"),  # type: ignore[arg-type]
    (lambda: F.image.gaussian_blur(X, -0.1), "-0.1"),
    (lambda: F.image.gaussian_blur(X, float("nan")), "nan"),
    (lambda: F.image.gaussian_blur(X, Variable(FLOAT)), "number"),  # type: ignore[arg-type]
    (lambda: F.image.image_gradient(X, "scharr"), "scharr"),
    (lambda: F.image.image_gradient(Variable(INT, (4, 3))), "INT"),
    (lambda: F.image.image_gradient(None), "NoneType"),  # type: ignore[arg-type]
    (lambda: F.image.erode(X, 1.0, -1), "-1"),
    (lambda: F.norm_pixels(X, 3), "1 or 2"),
    (lambda: F.uniform_noise((0, 4)), "at least 1"),
    (lambda: F.uniform_noise((4, 4), 0.5), "step must be an int"),
    (lambda: F.uniform_noise((4, 4), Variable(FLOAT)), "INT @ 1x1"),
    (lambda: F.uniform_noise((4, 4), Variable(INT, layers=2), layers=3), "3 layers"),
    (lambda: F.uniform_noise((4, 4), n=5), "1 to 4"),
    (lambda: F.normal_noise((4, 4), n=0), "1 to 4"),
    (lambda: F.normal_noise((4, 4), seed=0.5), "seed"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("k", range(len(BAD)))
def test_what_does_not_fit_is_named_at_the_users_line(k: int) -> None:
    call, text = BAD[k]
    with pytest.raises(GraphError) as info:
        call()
    assert text in str(info.value)
    assert "test_neighbors_layers.py:" in str(info.value)
