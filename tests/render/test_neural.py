"""Networks of pixels: layers against plain sums and scipy's correlation, training, bad input."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.signal import correlate2d

from dressi import Adam, DressiAD, F, Variable, evaluate
from dressi.ad.autodiff import build_backward
from dressi.ad.vtype import FLOAT, INT, MAT4, VEC2, VEC3, VEC4
from dressi.errors import GraphError
from dressi.render.shading.neural import (
    layer,
    mlp,
    n_blocks,
    neural_texture,
    pack_weights,
    unpack_weights,
)


def channels_to_layers(x: np.ndarray) -> np.ndarray:
    """(H, W, n) -> (blocks, H, W, 4), filled up with zeros."""
    h, w, n = x.shape
    full = np.zeros((h, w, 4 * n_blocks(n)))
    full[..., :n] = x
    return full.reshape(h, w, -1, 4).transpose(2, 0, 1, 3)


def layers_to_channels(x: np.ndarray, n: int) -> np.ndarray:
    return x.transpose(1, 2, 0, 3).reshape(*x.shape[1:3], -1)[..., :n]


def plain_conv(x: np.ndarray, w: np.ndarray, border: str) -> np.ndarray:
    """(H, W, n_in), (n_out, n_in, k, k) -> (H, W, n_out), by scipy, one channel at a time."""
    mode = {"zero": "fill", "repeat": "wrap"}[border]
    return np.stack(
        [
            sum(
                correlate2d(x[..., i], w[o, i], mode="same", boundary=mode)
                for i in range(w.shape[1])
            )
            for o in range(w.shape[0])
        ],
        -1,
    )


SHAPES = [(1, "zero", 6, 10), (3, "zero", 5, 9), (3, "repeat", 8, 4), (5, "zero", 4, 3)]


@pytest.mark.parametrize(("kernel", "border", "n_in", "n_out"), SHAPES)
def test_layers_are_the_plain_sums(kernel: int, border: str, n_in: int, n_out: int) -> None:
    rng = np.random.default_rng(kernel)
    x, w = rng.normal(size=(6, 7, n_in)), rng.normal(size=(n_out, n_in, kernel, kernel))
    b = rng.normal(size=4 * n_blocks(n_out))
    made = layer(n_in, n_out, kernel, border=border)
    features = Variable(VEC4, (7, 6), n_blocks(n_in))
    feeds = {
        features: channels_to_layers(x),
        made.weight: pack_weights(w).astype(np.float64),
        made.bias: b.reshape(-1, 1, 1, 4),
    }
    (got,) = evaluate([made(features)], feeds)
    want = plain_conv(x, w, border) + b[:n_out]
    assert np.abs(layers_to_channels(got, n_out) - want).max() < 1e-5  # weights are float32


def test_weights_survive_packing() -> None:
    w = np.random.default_rng(0).normal(size=(6, 9, 3, 3)).astype(np.float32)
    assert (unpack_weights(pack_weights(w), 6, 9, 3) == w).all()
    assert (unpack_weights(pack_weights(w[:, :, 0, 0]), 6, 9) == w[:, :, 0, 0]).all()


@pytest.mark.gpu
@pytest.mark.parametrize(("kernel", "border", "n_in", "n_out"), SHAPES)
def test_values_and_gradients_on_the_device(
    ad: DressiAD, kernel: int, border: str, n_in: int, n_out: int
) -> None:
    """Against the float64 evaluation of the same graph, whose layers the test above checks."""
    rng = np.random.default_rng(1)
    made = layer(n_in, n_out, kernel, border=border, rng=rng)
    features = Variable(VEC4, (9, 5), n_blocks(n_in), requires_grad=True)
    y = made(features)
    loss = y * y
    data = rng.normal(size=(n_blocks(n_in), 5, 9, 4)).astype(np.float32)
    ad.send_img(features, data)
    gradients = list(build_backward(loss, [features, made.weight, made.bias]).values())
    outputs = [y, *gradients]
    assert made.weight.data is not None and made.bias.data is not None
    feeds = {features: data, made.weight: made.weight.data, made.bias: made.bias.data}
    for got, want in zip(ad.recv_imgs(outputs), evaluate(outputs, feeds), strict=True):
        scale = np.abs(want).max()
        assert np.abs(got.reshape(want.shape) - want).max() < 1e-5 * scale


def test_a_stack_of_feature_maps_is_each_of_them() -> None:
    made = layer(8, 4, 3)
    x = Variable(VEC4, (6, 5), 6)  # three images of two layers
    data = np.random.default_rng(2).normal(size=(6, 5, 6, 4))
    assert made.weight.data is not None
    feeds = {x: data, made.weight: made.weight.data, made.bias: np.ones((1, 1, 1, 4))}
    (together,) = evaluate([made(x)], feeds)
    one = Variable(VEC4, (6, 5), 2)
    for k in range(3):
        (alone,) = evaluate([made(one)], {**feeds, one: data[2 * k : 2 * k + 2]})
        assert np.allclose(together[k], alone[0])


def test_activations_are_their_formulas() -> None:
    x = Variable(FLOAT, (9, 1))
    data = np.array([-100, -3, -1, -1e-3, 0, 1e-3, 1, 3, 100.0])
    erf_free = data / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (data + 0.044715 * data**3)))
    want = {
        F.nn.relu: np.maximum(data, 0),
        F.nn.leaky_relu: np.where(data > 0, data, 0.01 * data),
        F.nn.elu: np.where(data > 0, data, np.exp(np.minimum(data, 0)) - 1),
        F.nn.silu: data / (1 + np.exp(-data)),
        F.nn.gelu: erf_free,
    }
    for activation, values in want.items():
        (got,) = evaluate([activation(x)], {x: data.reshape(1, 1, 9, 1)})
        assert np.allclose(got.ravel(), values, atol=1e-12), activation.__name__


@pytest.mark.gpu
def test_activations_have_finite_gradients_at_the_ends(ad: DressiAD) -> None:
    x = Variable(FLOAT, (7, 1), requires_grad=True)
    ad.send_img(x, np.array([-1e3, -100, -1, 0, 1, 100, 1e3], np.float32))
    acts = (F.nn.relu, F.nn.leaky_relu, F.nn.elu, F.nn.silu, F.nn.gelu)
    grads = ad.recv_imgs([build_backward(a(x), [x])[x] for a in acts])
    for a, g in zip(acts, grads, strict=True):
        g = g.ravel()
        assert np.isfinite(g).all(), a.__name__
        assert abs(g[-1] - 1) < 1e-5 and abs(g[0] - (0.01 if a is F.nn.leaky_relu else 0)) < 1e-5


@pytest.mark.parametrize("n_components", [1, 2, 3, 4])
def test_positional_encoding(n_components: int) -> None:
    vtype = (FLOAT, VEC2, VEC3, VEC4)[n_components - 1]
    x = Variable(vtype, (5, 3))
    data = np.random.default_rng(3).uniform(-1, 1, (1, 3, 5, n_components))
    (got,) = evaluate([F.nn.positional_encoding(x, 3)], {x: data})
    assert np.allclose(got[0, ..., :n_components], data[0])
    m = n_components
    for k in range(3):
        angle = np.pi * 2**k * data[0]
        if m <= 2:
            want = np.concatenate([np.sin(angle), np.cos(angle)], -1)
            assert np.allclose(got[1 + k, ..., : 2 * m], want)
            assert (got[1 + k, ..., 2 * m :] == 0).all()
        else:
            assert np.allclose(got[1 + k, ..., :m], np.sin(angle))
            assert np.allclose(got[4 + k, ..., :m], np.cos(angle))
    assert F.nn.positional_encoding(x, 3, include_input=False).layers == got.shape[0] - 1


@pytest.mark.parametrize("activation", [F.sigmoid, F.softplus, F.nn.relu, F.cos])
def test_what_fills_a_layer_up_is_no_channel(activation: Callable[[Variable], Variable]) -> None:
    """A sigmoid is 1/2 at 0. Steps against the gradient, then the network by hand, from what
    unpack_weights gives."""
    rng = np.random.default_rng(4)
    net = mlp(3, (6, 5), 2, activation=activation)
    x, t = Variable(VEC4, (4, 3), 2), Variable(VEC2, (4, 3), 2)
    y = net(x)
    data = rng.normal(size=(2, 3, 4, 4))
    feeds = {x: data, t: rng.normal(size=(2, 3, 4, 2))}
    feeds |= {v: v.data for v in net.parameters}
    grads = build_backward(F.dot(y.xy - t, y.xy - t))
    for _ in range(3):
        gxs = evaluate([grads[v] for v in net.parameters], feeds)
        feeds |= {v: feeds[v] - 0.03 * g for v, g in zip(net.parameters, gxs, strict=True)}
    want = data[..., :3]
    for k, (a, b) in enumerate(((3, 6), (6, 5), (5, 2))):
        weight = unpack_weights(feeds[net.layers[k].weight], b, a)
        want = want @ weight.T + feeds[net.layers[k].bias].reshape(-1)[:b]
        if k < 2:
            n = want[..., 0].size // 12 * want.shape[-1]
            function = Variable(FLOAT, (12, n))
            (out,) = evaluate([activation(function)], {function: want.reshape(1, n, 12, 1)})
            want = out.reshape(want.shape)
    (got,) = evaluate([y], feeds)
    assert np.allclose(got[..., :2], want, rtol=0, atol=1e-9)


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: F.nn.dense(Variable(VEC3, (4, 4)), Variable(MAT4, (1, 1))), "VEC4"),
    (lambda: F.nn.dense(Variable(VEC4, (4, 4)), Variable(MAT4, (1, 1), 2)), "one layer"),
    (lambda: F.nn.dense(Variable(VEC4, (4, 4), 3), Variable(MAT4, (2, 1))), "there are 3"),
    (
        lambda: F.nn.dense(Variable(VEC4, (4, 4)), Variable(MAT4, (1, 2)), Variable(VEC4)),
        "VEC4@1x1x2",
    ),
    (lambda: F.nn.conv2d(Variable(VEC4, (4, 4)), Variable(MAT4, (8, 1))), "9 taps"),
    (lambda: F.nn.conv2d(Variable(VEC4, (4, 1)), Variable(MAT4, (9, 1))), "table"),
    (lambda: F.nn.conv2d(Variable(VEC4, (4, 4)), Variable(MAT4, (4, 1)), kernel=2), "odd"),
    (lambda: F.nn.conv2d(Variable(VEC4, (4, 4)), Variable(MAT4, (9, 1)), border="clamp"), "border"),
    (lambda: F.nn.leaky_relu(Variable(FLOAT), 1.5), "slope"),
    (lambda: F.nn.relu(Variable(INT)), "INT"),
    (lambda: F.nn.positional_encoding(Variable(VEC2), 0), "1 to 16"),
    (lambda: F.nn.positional_encoding(Variable(VEC2, (2, 2), 3), 2), "reshape"),
    (lambda: pack_weights(np.zeros(3)), "n_out, n_in"),
    (lambda: pack_weights(np.zeros((2, 2, 2, 2))), "odd k"),
    (lambda: unpack_weights(np.zeros((1, 1, 4, 4)), 8, 4), "8 x 4"),
    (lambda: layer(0, 4), "n_in"),
    (lambda: neural_texture()(None), "uv must be VEC2"),  # type: ignore[arg-type]
    (lambda: neural_texture()(Variable(VEC3, (4, 4))), "uv must be VEC2"),
    (lambda: neural_texture(0), "frequencies"),
    (lambda: neural_texture(4, 16), "n_hidden must be a sequence"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "text"), BAD)
def test_bad_input_is_refused(call: Callable[[], object], text: str) -> None:
    with pytest.raises(GraphError, match=text):
        call()


def picture(n: int) -> np.ndarray:
    """Discs and a ramp: edges and slopes."""
    y, x = (np.mgrid[:n, :n] + 0.5) / n
    disc = ((x - 0.4) ** 2 + (y - 0.6) ** 2 < 0.08).astype(float)
    return np.stack([0.2 + 0.6 * disc, 0.1 + 0.8 * x, 0.9 - 0.7 * y * disc], -1)


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    return float(-10 * np.log10(np.mean((a - b) ** 2)))


@pytest.mark.gpu
def test_an_mlp_learns_a_texture(vulkan_device_available: bool) -> None:
    n = 32
    tex = neural_texture(n_frequencies=4, n_hidden=(16, 16))
    image = tex.image((n, n))
    target = F.leaf(picture(n).astype(np.float32), VEC3)
    error = image - target
    with DressiAD() as ad:
        before = psnr(ad.recv_img(image), picture(n))
        ad.set_loss_var(F.mean(F.dot(error, error)))
        ad.set_optimizer(Adam(lr=0.01))
        ad.exec_steps(300)
        after = psnr(ad.recv_img(image), picture(n))
    assert before < 15 and after > 27


@pytest.mark.gpu
def test_a_convolution_learns_a_filter(vulkan_device_available: bool) -> None:
    """From pictures before and after a filter, the filter."""
    rng = np.random.default_rng(5)
    x = rng.uniform(0, 1, (24, 24, 3))
    true = rng.normal(size=(2, 3, 3, 3))
    made = layer(3, 2, 3)
    features = F.leaf(channels_to_layers(x).astype(np.float32), VEC4)
    want = F.leaf(channels_to_layers(plain_conv(x, true, "zero")).astype(np.float32), VEC4)
    error = made(features) - want
    with DressiAD() as ad:
        ad.set_loss_var(F.mean(F.dot(error, error)))
        ad.set_optimizer(Adam(lr=0.05))
        ad.exec_steps(400)
        found = unpack_weights(ad.recv_img(made.weight), 2, 3, 3)
    assert np.abs(found - true).max() < 0.02


def test_views_share_one_network() -> None:
    """A stack of uv images: the texture at each, as at one."""
    tex = neural_texture(2, (8,))
    uv = Variable(VEC2, (4, 3), 2)
    data = np.random.default_rng(6).uniform(0, 1, (2, 3, 4, 2))
    (both,) = evaluate([tex(uv)], {uv: data})
    one = Variable(VEC2, (4, 3))
    for k in range(2):
        (alone,) = evaluate([tex(one)], {one: data[k : k + 1]})
        assert np.allclose(both[k], alone[0])
    assert len(mlp(4, (8, 8), 4).parameters) == 6
