"""Inverse maps: for every element of a table or texel, one of the pixels that read it.

A compute pass of the pixels writes, for each element, the largest key of those that read it, and
how many they are; then elements gather. Keys are a bijection of pixel numbers that changes with a
step counter, so the largest belongs to a pixel drawn uniformly, whose number can be told from it,
and the gradient of that pixel times the count is the sum over all of them in expectation. Source:
paper, 3.3.2. Differs: there the last writer wins and does not know how many it stands for.
Ops of one graph that share a counter draw apart: each has a stream, by its place in the graph.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from dressi.ad.functions.arith import add_n
from dressi.ad.functions.image import expand
from dressi.ad.graph import Function, Variable
from dressi.ad.kernels import DISPATCH, Kernel, register
from dressi.ad.registry import ANY, COMP, SAME, Op, apply
from dressi.ad.vtype import IVEC2

# Two odd multipliers of a bijective 32-bit mix (with xor-shifts by 16, which undo themselves).
A, B = 0x7FEB352D, 0x846CA68B


def permute_glsl(a: int, b: int) -> str:
    return f"x ^= x >> 16; x *= {a}u; x ^= x >> 16; x *= {b}u; x ^= x >> 16;"


def mix_bits(x: np.ndarray, a: int, b: int) -> np.ndarray:
    x = x.astype(np.uint64)
    for multiplier in (a, b):
        x = x ^ (x >> np.uint64(16))
        x = (x * np.uint64(multiplier)) & np.uint64(0xFFFFFFFF)
    return x ^ (x >> np.uint64(16))


class Ref:
    """An attribute holding a Variable; equal when it is the same Variable."""

    def __init__(self, value: Variable) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and other.value is self.value

    def __hash__(self) -> int:
        return hash(self.value.uid)

    def __repr__(self) -> str:
        return self.value.name or f"%{self.value.uid}"


class _Streams(threading.local):
    """Of each thread: number of the stream by uid of the Function that draws."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}


_streams = _Streams()


@contextmanager
def streams(functions: Iterable[Function]) -> Iterator[None]:
    """While open, the Functions that draw by one counter have streams 0, 1, ... in this order, so
    that a graph that is built twice draws the same."""
    before, counts = _streams.of, Counter[int | None]()
    _streams.of = {}
    for f in functions:
        attrs = dict(f.attrs)
        if attrs.get("backward") == "inverse_uv" or attrs.get("scatter") == "stochastic":
            counter = attrs["step"].value.uid if attrs["step"] else None
            _streams.of[f.uid] = counts[counter]
            counts[counter] += 1
    try:
        yield
    finally:
        _streams.of = before


def stream_of(f: Function) -> int:
    """The stream of a Function whose backward draws; 0 outside of ``streams``."""
    return _streams.of.get(f.uid, 0)


def in_stream(step: Variable, stream: int) -> Variable:
    """The counter of a stream: that many times 2^32 / golden ratio steps ahead, modulo 2^32."""
    ahead = stream * 0x9E3779B1 & 0xFFFFFFFF
    return step if not ahead else step + (ahead - (ahead >> 31 << 32))


def _inverse_gather_glsl(f: Function) -> str:
    w, h = f.inputs[0].size
    inverse_a, inverse_b = pow(A, -1, 1 << 32), pow(B, -1, 1 << 32)
    return (
        "{y} = {T}(0);\n"
        "  if ({x1}.y > 0) {\n"
        f"    uint x = uint({{x1}}.x); {permute_glsl(inverse_b, inverse_a)}\n"
        "    int n = int(x ^ (uint({x2}) * 0x9e3779b1u));\n"
        f"    {{y}} = float({{x1}}.y) * "
        f"{{fetch0}}(ivec2(n % {w}, (n / {w}) % {h}), n / {w * h});\n"
        "  }"
    )


def _inverse_gather_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    gy, inverse, step = xs
    seed = np.uint64((int(step.reshape(-1)[0]) * 0x9E3779B1) & 0xFFFFFFFF)
    n = mix_bits(inverse[..., 0].astype(np.uint64), pow(B, -1, 1 << 32), pow(A, -1, 1 << 32)) ^ seed
    count = inverse[..., 1]
    n = np.where(count > 0, n, 0).astype(np.int64)
    tail = gy.shape[3:]
    return gy.reshape(-1, *tail)[n] * count.reshape(*count.shape, *[1] * len(tail))


INVERSE_GATHER = Op(
    "inverse_gather",
    lambda xs, a: (xs[0].vtype, a["size"], a["layers"]),
    reads=(ANY, SAME, SAME),
    linear_in=(0,),
    reference=_inverse_gather_ref,
    no_cases="the stochastic backward of texture; tested in test_op_table.py",
)
register(INVERSE_GATHER, Kernel(_inverse_gather_glsl))


def _inverse_lookup_glsl(f: Function) -> str:
    (w, h), (dw, dh) = f.attr("size"), f.inputs[1].size
    base = f"{{layer}} * {w * h} + " if f.attr("layers") > 1 else ""
    return (
        f"if ({{x1}} != {{T1}}(0) && {{x0}} >= 0 && {{x0}} < {w * h}) {{\n"
        f"    uint x = uint(({{layer}} * {dh} + {{pos}}.y) * {dw} + {{pos}}.x) "
        f"^ (uint({{x2}}) * 0x9e3779b1u); {permute_glsl(A, B)}\n"
        f"    int t = 2 * ({base}{{x0}});\n"
        "    atomicMax({buffer}[t], x); atomicAdd({buffer}[t + 1], 1u);\n"
        "  }"
    )


def _inverse_lookup_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    index, gy, step = xs
    (w, h), layers, shape = f.attr("size"), f.attr("layers"), gy.shape[:3]
    n = np.arange(np.prod(shape), dtype=np.uint64).reshape(shape)
    key = mix_bits(n ^ np.uint64((int(step.reshape(-1)[0]) * 0x9E3779B1) & 0xFFFFFFFF), A, B)
    row = np.broadcast_to(index[..., 0], shape).astype(np.int64)
    ok = (gy != 0).reshape(*shape, -1).any(axis=-1) & (row >= 0) & (row < w * h)
    layer = np.broadcast_to(np.arange(shape[0])[:, None, None], shape) * (layers > 1)
    out = np.zeros((layers, w * h, 2))
    np.maximum.at(out[..., 0], (layer[ok], row[ok]), key[ok].astype(np.float64))
    np.add.at(out[..., 1], (layer[ok], row[ok]), 1)
    return out.reshape(layers, h, w, 2)


INVERSE_LOOKUP = Op(
    "inverse_lookup",
    lambda xs, a: (IVEC2, a["size"], a["layers"]),
    kind=COMP,
    reference=_inverse_lookup_ref,
    scatter="raw",
    domain=1,
    no_cases="the stochastic backward of lookup; tested in test_lookup.py",
)
register(INVERSE_LOOKUP, Kernel(_inverse_lookup_glsl, DISPATCH))


def sampled_rows(
    gy: Variable, index: Variable, table: Variable, step: Variable, samples: int, stream: int
) -> Variable:
    """An unbiased estimate of the sum, for each row of the table, of gy over the pixels whose index
    it is: the mean of so many independent draws."""
    index = expand(index, gy.size, gy.layers)
    shape = {"size": table.size, "layers": table.layers}
    parts = []
    for k in range(samples):
        key = in_stream(step if samples == 1 else step * samples + k, stream)
        inverse = apply(INVERSE_LOOKUP, (index, gy, key), **shape)
        parts.append(apply(INVERSE_GATHER, (gy, inverse, key), **shape))
    total = add_n(parts)
    return total if samples == 1 else total * (1.0 / samples)
