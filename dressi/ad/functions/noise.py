"""Noise that does not depend on the device: integer hashes of pixel, layer, step and seed.

A hash is arithmetic on 32-bit words, so its bits are those of the NumPy reference on every device,
and a step gives the same noise whenever it is run. No gradients: noise is data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dressi.ad.functions._common import constant, like_integers, needs_int, needs_variable, sized
from dressi.ad.functions.arith import maximum
from dressi.ad.functions.elementary import cos, log, round, sin, sqrt
from dressi.ad.functions.vector import swizzle, vec
from dressi.ad.functions.window import place_glsl
from dressi.ad.graph import Function, Size, Variable, checked_shape
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import Case, Op, Shape, apply
from dressi.ad.vtype import INT, IVEC3, IVEC4, vector
from dressi.errors import GraphError

_MASK = 0xFFFFFFFF
_SEED = 0x9E3779B1  # a prime near 2^32 / golden ratio: seeds and steps lie far from each other


def pcg4d(words: np.ndarray) -> np.ndarray:
    """Four hashed 32-bit words of four, (..., 4) of uint64 below 2^32. The permutation pcg4d of
    Jarzynski and Olano, Hash Functions for GPU Rendering, JCGT 9(3), 2020."""
    v = [(words[..., k].astype(np.uint64) * 1664525 + 1013904223) & _MASK for k in range(4)]

    def mixed() -> None:
        for a, b, c in ((0, 1, 3), (1, 2, 0), (2, 0, 1), (3, 1, 2)):
            v[a] = (v[a] + v[b] * v[c]) & _MASK

    mixed()
    v = [x ^ (x >> np.uint64(16)) for x in v]
    mixed()
    return np.stack(v, -1)


def _pcg4d_glsl(name: str) -> str:
    mixed = " ".join(
        f"{name}.{a} += {name}.{b} * {name}.{c};"
        for a, b, c in (("x", "y", "w"), ("y", "z", "x"), ("z", "x", "y"), ("w", "y", "z"))
    )
    return f"{name} = {name} * 1664525u + 1013904223u; {mixed} {name} ^= {name} >> 16u; {mixed}"


def _words(a: np.ndarray) -> np.ndarray:
    return (a.astype(np.int64) & _MASK).astype(np.uint64)


def _hash_glsl(f: Function) -> str:
    n = f.inputs[0].vtype.n
    parts = ", ".join(["{x0}", *["0"] * (4 - n)])
    return f"uvec4 {{y}}_v = uvec4({parts}); {_pcg4d_glsl('{y}_v')}\n  {{y}} = ivec4({{y}}_v);"


def _hash_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    key = np.zeros((*xs[0].shape[:3], 4))
    key[..., : xs[0].shape[-1]] = xs[0]
    return pcg4d(_words(key)).astype(np.uint32).astype(np.int32).astype(np.float64)


HASH = Op(
    "hash",
    lambda xs, a: (IVEC4, *like_integers(xs, a)[1:]),
    reference=_hash_ref,
    cases=tuple(
        Case(lambda a: hash(a), ((vtype, -(2**31), 2**31 - 1),), gradient=False)
        for vtype in (IVEC4, IVEC3, INT)
    ),
)
register(HASH, Kernel(_hash_glsl))


def _noise_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    step = xs[0]
    if step.vtype is not INT or step.size != (1, 1):
        raise GraphError(f"the step must be INT @ 1x1, got {step.label()}")
    if step.layers not in (1, attrs["layers"]):
        raise GraphError(f"{attrs['layers']} layers, a step of {step.layers}")
    return vector(attrs["n"]), attrs["size"], attrs["layers"]


def _noise_glsl(f: Function) -> str:
    pos, layer = place_glsl(f)
    comps = "xyzw"[: f.attr("n")]
    seed = f.attr("seed") * _SEED & _MASK
    return (
        f"uvec4 {{y}}_v = uvec4({pos}.x, {pos}.y, {layer}, {{x0}}); {{y}}_v.w += {seed}u;\n"
        f"  {_pcg4d_glsl('{y}_v')}\n"
        # 24 bits: every value is a float, and none rounds up to 1.
        f"  {{y}} = {{T}}({{y}}_v.{comps} >> 8u) / 16777216.0;"
    )


def _noise_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    (w, h), layers = f.attr("size"), f.attr("layers")
    key = np.zeros((layers, h, w, 4), np.int64)
    key[..., 0] = np.arange(w)
    key[..., 1] = np.arange(h)[:, None]
    key[..., 2] = np.arange(layers)[:, None, None]
    key[..., 3] = xs[0].astype(np.int64)[..., 0] + (f.attr("seed") * _SEED & _MASK)
    return (pcg4d(_words(key)) >> np.uint64(8))[..., : f.attr("n")] / 2.0**24


UNIFORM_NOISE = Op(
    "uniform_noise",
    _noise_infer,
    reference=_noise_ref,
    cases=tuple(
        sized(
            lambda s, size=size, n=n: uniform_noise(size, s, n, s.layers, seed=n),
            ((INT, -5, 2**31 - 1),),
            (1, 1),
        )
        for size, n in (((7, 5), 1), ((40, 1), 2), ((1, 1), 3), ((16, 9), 4))
    ),
)
register(UNIFORM_NOISE, Kernel(_noise_glsl))


def hash(key: Variable) -> Variable:
    """IVEC4 of four hashed 32-bit words, the same bits on every device; equal keys, equal words.

    key: INT or IVECn @ any size; components that it does not have count as 0. No gradient. Raises
    GraphError for other types. Source: pcg4d, Jarzynski and Olano 2020.
    """
    return apply(HASH, (needs_variable("hash", key),))


def _step(name: str, step: Any) -> Variable:
    return step if isinstance(step, Variable) else constant(needs_int(name, "step", step), INT)


def _components(name: str, n: Any) -> int:
    if not 1 <= needs_int(name, "n", n) <= 4:
        raise GraphError(f"F.{name}: n must be 1 to 4, got {n}")
    return int(n)


def uniform_noise(
    size: Size, step: Any = 0, n: int = 1, layers: int = 1, seed: int = 0
) -> Variable:
    """FLOAT or VECn @ size: uniform in [0, 1), independent between pixels, layers, components and
    steps.

    step: int, or INT @ 1x1 (one or one a layer), e.g. a leaf that counts steps: new noise every
    step. n: components, 1 to 4. seed: int, another stream. Multiples of 2^-24; the same bits on
    every device. No gradient. Raises GraphError for other arguments. Source: pcg4d of (x, y, layer,
    step + seed * 0x9E3779B1), Jarzynski and Olano 2020.
    """
    size, layers = checked_shape("F.uniform_noise", size, layers)
    n = _components("uniform_noise", n)
    return apply(
        UNIFORM_NOISE,
        (_step("uniform_noise", step),),
        size=size,
        layers=layers,
        n=n,
        seed=needs_int("uniform_noise", "seed", seed) & _MASK,
    )


def normal_noise(size: Size, step: Any = 0, n: int = 1, layers: int = 1, seed: int = 0) -> Variable:
    """FLOAT or VECn @ size: normal with mean 0 and deviation 1, from F.uniform_noise of the same
    arguments. At most 5.8 in size.

    step, n, layers, seed: as there. No gradient. Raises GraphError for other n. Source: Box and
    Muller 1958: sqrt(-2 log(1 - u)) times cos and sin of 2 pi v, components x and z of the uniform
    noise as u.
    """
    n = _components("normal_noise", n)
    uniform = uniform_noise(size, _step("normal_noise", step), 2 if n < 3 else 4, layers, seed)
    parts = []
    for u, v in (("x", "y"), ("z", "w"))[: (n + 1) // 2]:
        # A device's logarithm is off by up to 2^-21 near 1: it may be above 0 there.
        radius = sqrt(maximum(-2.0 * log(1.0 - swizzle(uniform, u)), 0.0))
        turn = swizzle(uniform, v)
        # Devices need only know the sine between -pi and pi.
        angle = (turn - round(turn)) * (2.0 * math.pi)
        parts += [radius * cos(angle), radius * sin(angle)]
    return vec(*parts[:n]) if n > 1 else parts[0]
