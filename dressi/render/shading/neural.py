"""Small networks of pixels: weights as leaves, an MLP, a texture made by an MLP.

In: channels as a feature map (VEC4, layer c holds channels 4c to 4c + 3; ``F.nn.dense``). Out: the
same. Weights are kept as blocks of 4 x 4; ``pack_weights`` and ``unpack_weights`` convert arrays of
other libraries. Paper: left for later (section 7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dressi.ad import F, Variable
from dressi.ad.vtype import MAT4, VEC2, VEC4
from dressi.errors import GraphError
from dressi.kinds import ConvBorder

FloatArray = npt.NDArray[np.floating]
Activation = Callable[[Variable], Variable]


def n_blocks(n_channels: int) -> int:
    """Layers of a feature map with that many channels."""
    return -(-n_channels // 4)


def pack_weights(weights: FloatArray) -> npt.NDArray[np.float32]:
    """Blocks for F.nn.dense or F.nn.conv2d out of a plain array.

    weights: (n_out, n_in), or (n_out, n_in, k, k) with taps row by row, as PyTorch keeps them.
    Returns (blocks of n_out, k k blocks of n_in, 4, 4) float32, filled up with zeros. Raises
    GraphError for other shapes.
    """
    w = np.asarray(weights, np.float32)
    if w.ndim == 2:
        w = w[:, :, None, None]
    if w.ndim != 4 or 0 in w.shape or w.shape[2] != w.shape[3] or w.shape[2] % 2 == 0:
        raise GraphError(
            "weights must be (n_out, n_in) or (n_out, n_in, k, k) with odd k, "
            f"got {np.shape(weights)}"
        )
    o, c, k = n_blocks(w.shape[0]), n_blocks(w.shape[1]), w.shape[2]
    full = np.zeros((4 * o, 4 * c, k, k), np.float32)
    full[: w.shape[0], : w.shape[1]] = w
    blocks = full.reshape(o, 4, c, 4, k * k).transpose(0, 4, 2, 1, 3)
    return np.ascontiguousarray(blocks.reshape(o, k * k * c, 4, 4))


def unpack_weights(blocks: FloatArray, n_out: int, n_in: int, kernel: int = 1) -> FloatArray:
    """The plain array of blocks: (n_out, n_in), or (n_out, n_in, k, k) where kernel > 1.

    blocks: as ``pack_weights`` returns them, or as an engine returns the leaf. Raises GraphError
    when they do not hold that many channels.
    """
    o, c, k = n_blocks(n_out), n_blocks(n_in), kernel
    b = np.asarray(blocks)
    if b.size != o * k * k * c * 16:
        raise GraphError(
            f"blocks of shape {b.shape} do not hold {n_out} x {n_in} channels of a {k} x {k} kernel"
        )
    full = b.reshape(o, k * k, c, 4, 4).transpose(0, 3, 2, 4, 1).reshape(4 * o, 4 * c, k, k)
    found = full[:n_out, :n_in]
    return found[:, :, 0, 0] if k == 1 else found


@dataclass(frozen=True, eq=False)
class Layer:
    """Weights and bias of one dense layer or convolution, as leaves that hold their start.

    weight: MAT4 @ (k k input blocks, output blocks). bias: VEC4 @ 1x1, layers = output blocks.
    kernel: 1 is a dense layer. border: see F.nn.conv2d. used: VEC4 @ 1x1, layers = input blocks, 1
    for a channel and 0 for what fills the last block up; None: all are channels. What fills up is
    read as 0: an activation that is not 0 at 0, as a sigmoid, would make channels of it that are
    trained, and that ``unpack_weights`` knows nothing of.
    """

    weight: Variable
    bias: Variable
    kernel: int = 1
    border: ConvBorder = "zero"
    used: Variable | None = None

    def __call__(self, x: Variable) -> Variable:
        """The layer applied to a feature map. Gradient to x, weight and bias."""
        used = self.used
        if used is not None and isinstance(x, Variable) and x.layers % used.layers == 0:
            n = x.layers // used.layers
            x = x * (used if n == 1 else F.concat([used] * n))
        if self.kernel == 1:
            return F.nn.dense(x, self.weight, self.bias)
        return F.nn.conv2d(x, self.weight, self.bias, self.kernel, self.border)


def layer(
    n_in: int,
    n_out: int,
    kernel: int = 1,
    gain: float = 2.0,
    border: ConvBorder = "zero",
    rng: np.random.Generator | None = None,
    name: str = "layer",
) -> Layer:
    """A layer with random weights of variance gain / (inputs of an output), bias 0.

    n_in, n_out: channels. gain: 2 for rectifiers (He et al. 2015), 1 for linear outputs. rng:
    default seed 0. Weights and bias are parameters (requires_grad). Raises GraphError.
    """
    for what, value in (("n_in", n_in), ("n_out", n_out), ("kernel", kernel)):
        if not isinstance(value, (int, np.integer)) or value < 1:
            raise GraphError(f"{name}: {what} must be an integer of at least 1, got {value!r}")
    rng = np.random.default_rng(0) if rng is None else rng
    scale = np.sqrt(gain / (n_in * kernel * kernel))
    array = rng.normal(0.0, scale, (n_out, n_in, kernel, kernel))
    weight = F.leaf(pack_weights(array), MAT4, f"{name}.weight")
    bias = F.leaf(np.zeros((n_blocks(n_out), 1, 1, 4), np.float32), VEC4, f"{name}.bias")
    weight.requires_grad = bias.requires_grad = True
    used = None
    if n_in % 4:
        channels = np.arange(4 * n_blocks(n_in)) < n_in
        used = F.leaf(channels.reshape(-1, 1, 1, 4), VEC4, f"{name}.used")
    return Layer(weight, bias, kernel, border, used)


@dataclass(frozen=True, eq=False)
class MLP:
    """Layers with an activation between them; none after the last."""

    layers: tuple[Layer, ...]
    activation: Activation = F.nn.relu

    def __call__(self, x: Variable) -> Variable:
        """x: VEC4 feature map. Returns VEC4, layers = output channels / 4. Gradient to x and all
        weights."""
        for k, one in enumerate(self.layers):
            x = one(x) if k == 0 else one(self.activation(x))
        return x

    @property
    def parameters(self) -> list[Variable]:
        """All weights and biases."""
        return [v for one in self.layers for v in (one.weight, one.bias)]


def mlp(
    n_in: int,
    n_hidden: Sequence[int],
    n_out: int,
    activation: Activation = F.nn.relu,
    seed: int = 0,
    name: str = "mlp",
) -> MLP:
    """A multilayer perceptron. n_in: channels of the feature map that it is given, n_hidden: of
    every hidden layer, n_out: of the output. seed: of the start. Raises GraphError."""
    if not isinstance(n_hidden, Sequence):
        raise GraphError(
            f"{name}: n_hidden must be a sequence of numbers of channels, got {n_hidden!r}"
        )
    rng = np.random.default_rng(seed)
    sizes = [n_in, *n_hidden, n_out]
    last = len(sizes) - 2
    return MLP(
        tuple(
            layer(a, b, gain=1.0 if k == last else 2.0, rng=rng, name=f"{name}.{k}")
            for k, (a, b) in enumerate(pairwise(sizes))
        ),
        activation,
    )


@dataclass(frozen=True, eq=False)
class NeuralTexture:
    """A texture that an MLP computes from encoded uv."""

    network: MLP
    n_frequencies: int

    def __call__(self, uv: Variable) -> Variable:
        """VEC3 in (0, 1) at every uv. uv: VEC2 @ any size, layers = views. Gradient to uv and to
        the network."""
        if not isinstance(uv, Variable) or uv.vtype is not VEC2:
            raise GraphError(f"a neural texture: uv must be VEC2, got {uv!r}")
        size, layers = uv.size, uv.layers
        tall = F.reshape(uv, (size[0], size[1] * layers)) if layers > 1 else uv
        out = self.network(F.nn.positional_encoding(tall, self.n_frequencies))
        color = F.sigmoid(out.xyz)
        return F.reshape(color, size, layers) if layers > 1 else color

    def image(self, size: tuple[int, int]) -> Variable:
        """VEC3 @ size: the texture at the centres of an image of texels, row 0 on top."""
        return self(F.pixel_coord(size) * F.constant((1.0 / size[0], 1.0 / size[1])))

    @property
    def parameters(self) -> list[Variable]:
        """All weights and biases of the network."""
        return self.network.parameters


def neural_texture(
    n_frequencies: int = 6, n_hidden: Sequence[int] = (32, 32), seed: int = 0
) -> NeuralTexture:
    """A texture as the weights of an MLP: uv, encoded with n_frequencies, to a linear colour.

    n_hidden: channels of the hidden layers. Raises GraphError for counts below 1.
    """
    if not 1 <= n_frequencies <= 16:
        raise GraphError(f"a neural texture needs 1 to 16 frequencies, got {n_frequencies!r}")
    # The encoding fills layers: 4 channels for uv itself, 4 for every frequency.
    network = mlp(4 + 4 * n_frequencies, n_hidden, 3, seed=seed, name="texture")
    return NeuralTexture(network, n_frequencies)
