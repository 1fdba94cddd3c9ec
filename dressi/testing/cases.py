"""The table of generated op tests: every Case of the registry times sizes, layers and broadcasts.

In: the registry. Out: instances with leaves and random data. Used by the tests (in float64 against
central differences, and on the device) and by ``dressi doctor`` on the device of a user.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

import dressi.ad.functions as F
from dressi.ad.autodiff import build_backward
from dressi.ad.graph import Variable
from dressi.ad.registry import OPS, Case, apply
from dressi.ad.vtype import VType
from dressi.errors import GraphError

Shape = tuple[tuple[int, int], int]  # (size, layers)


@dataclass(frozen=True)
class Config:
    """Shapes of the inputs of one run of a Case."""

    text: str
    shapes: tuple[Shape, ...]


def all_cases() -> list[tuple[str, int, Case]]:
    """(name of the op, number of the case, case) of every Case, in the order of registration."""
    return [(name, k, case) for name, op in OPS.items() for k, case in enumerate(op.cases)]


def case_id(item: tuple[str, int, Case]) -> str:
    return f"{item[0]}-{item[1]}"


def configs(name: str, k: int, case: Case, large: bool = True) -> Iterator[Config]:
    """All shapes that a Case is run with. large: whether 101x37 is among them (first case of an
    op)."""
    n = len(case.inputs)
    if not case.elementwise:
        yield Config("given sizes, layers 1", tuple((s, 1) for s in case.sizes))
        if case.one_layer:
            return
        yield Config("given sizes, layers 3", tuple((s, 3) for s in case.sizes))
        if case.mixed_layers:
            a, b = case.sizes
            yield Config("table 1 layer, index 3", ((a, 1), (b, 3)))
            yield Config("table 3 layers, index 1", ((a, 3), (b, 1)))
        return
    sizes = [(1, 1), (13, 1), (7, 5)] + ([(101, 37)] if large and k == 0 else [])
    for size in sizes:
        for layers in (1, 3):
            text = f"{size[0]}x{size[1]}x{layers}"
            yield Config(text, ((size, layers),) * n)
    if n > 1:
        for i in {0, n - 1}:

            def mixed(one: Shape, rest: Shape, i: int = i) -> tuple[Shape, ...]:
                return tuple(one if j == i else rest for j in range(n))

            yield Config(f"input {i} 1x1 against 7x5", mixed(((1, 1), 1), ((7, 5), 1)))
            yield Config(f"input {i} 1 layer against 3", mixed(((7, 5), 1), ((7, 5), 3)))
            yield Config(f"input {i} 1x1 against 7x5x3", mixed(((1, 1), 1), ((7, 5), 3)))
            yield Config(f"input {i} 1x1x3 against 7x5", mixed(((1, 1), 3), ((7, 5), 1)))


SMALL_SIZES = tuple((n, 10 - n) for n in range(1, 10))
"""Sizes of which each axis has 1 to 9 pixels: where constants of a snippet are small numbers."""


def small_configs(
    name: str, k: int, case: Case, sizes: Sequence[tuple[int, int]] = SMALL_SIZES
) -> Iterator[Config]:
    """A Case at small sizes, in one layer and, at two of them, in three. Cases with sizes of their
    own: the last image (where all are of one size: all) of that size, and the sizes that were
    given; those that cannot be (a part that is not inside) are left out. Beside indices, what they
    point into keeps its size: their range is made for it."""
    given = case.sizes or (sizes[0],) * len(case.inputs)
    fixed = {i for i, (t, _, _) in enumerate(case.inputs) if not t.is_int and _has_indices(case)}
    tried = [_resized(given, size, case.elementwise, fixed) for size in sizes]
    layers_of = {i: (1,) if case.one_layer or i % 4 != 2 else (1, 3) for i in range(9)}
    if not case.elementwise:
        tried.append(given)
    for i, shapes in enumerate(dict.fromkeys(tried)):
        for layers in layers_of.get(i, (1,)):
            text = " and ".join(f"{w}x{h}" for w, h in dict.fromkeys(shapes)) + f", {layers} layers"
            config = Config(text, tuple((size, layers) for size in shapes))
            if _is_possible(case, config):
                yield config


def typed_cases(name: str, most: int | None = None) -> Iterator[tuple[int, Case]]:
    """The Cases of an op (the first so many) with every type that it takes: inputs of the type of
    the first become another one, where the op does not refuse it. Cases that are made for one type
    (``any_type``) have that one only."""
    for k, case in enumerate(OPS[name].cases[:most]):
        if not case.inputs:
            continue
        first = case.inputs[0][0]
        for vtype in VType if case.any_type else (first,):
            inputs = tuple((vtype if t is first else t, low, high) for t, low, high in case.inputs)
            made = replace(case, inputs=inputs, gradient=case.gradient and not vtype.is_int)
            try:
                case.build(*_leaves(made, first_config(made)))
            except GraphError:
                continue
            yield k, made


def first_config(case: Case, layers: int = 1) -> Config:
    """The given sizes of a Case; 5x3 where it takes any."""
    sizes = case.sizes or ((5, 3),) * len(case.inputs)
    return Config(f"{layers} layers", tuple((size, layers) for size in sizes))


def _is_possible(case: Case, config: Config) -> bool:
    """Whether the Case and its gradient can be built with inputs of these shapes."""
    try:
        inputs = _leaves(case, config)
        y = case.build(*inputs)
        if case.gradient:
            build_backward(y, differentiable(inputs))
    except GraphError:
        return False
    return True


def _has_indices(case: Case) -> bool:
    """Whether some inputs are integers beside others that are not."""
    return not case.elementwise and len({vtype.is_int for vtype, _, _ in case.inputs}) > 1


def _resized(
    given: tuple[tuple[int, int], ...],
    size: tuple[int, int],
    elementwise: bool,
    fixed: Collection[int],
) -> tuple[tuple[int, int], ...]:
    """The sizes that a Case gives, some changed: what is no image (a table, one pixel) never, nor
    the inputs that are fixed."""
    if elementwise or (len(set(given)) == 1 and min(given[0]) > 1):
        return (size,) * len(given)
    images = [i for i, (w, h) in enumerate(given) if w > 1 and h > 1 and i not in fixed]
    return tuple(size if images[-1:] == [i] else s for i, s in enumerate(given))


def _leaves(case: Case, config: Config) -> list[Variable]:
    return [
        Variable(vtype, *shape, requires_grad=not vtype.is_int, name=f"in{i}")
        for i, ((vtype, _, _), shape) in enumerate(zip(case.inputs, config.shapes, strict=True))
    ]


def seed_of(*parts: object) -> int:
    """A seed that does not change from run to run."""
    return zlib.crc32(repr(parts).encode())


def draw(
    vtype: VType, low: float, high: float, shape: Shape, rng: np.random.Generator
) -> np.ndarray:
    """Random data (layers, H, W, *tail): uniform in [low, high], float32 values in float64."""
    (w, h), layers = shape
    full = (layers, h, w, *vtype.tail)
    if vtype.is_int:
        return rng.integers(int(low), int(high), full, endpoint=True).astype(np.int64)
    return rng.uniform(low, high, full).astype(np.float32).astype(np.float64)


@dataclass
class Instance:
    """A Case with leaves, data, and the output."""

    inputs: list[Variable]
    feeds: dict[Variable, np.ndarray]
    output: Variable


def instance(name: str, k: int, case: Case, config: Config) -> Instance:
    """Leaves with random data and the output that the Case builds from them."""
    rng = np.random.default_rng(seed_of(name, k, config.text))
    inputs = _leaves(case, config)
    feeds = {
        x: draw(vtype, low, high, shape, rng)
        for x, (vtype, low, high), shape in zip(inputs, case.inputs, config.shapes, strict=True)
    }
    if case.off_kinks is not None:
        feeds[inputs[1]] = case.off_kinks(feeds[inputs[1]], inputs[0].size)
    return Instance(inputs, feeds, case.build(*inputs))


def projected(y: Variable, weights: Variable) -> Variable:
    """A loss whose upstream gradient at y is ``weights``."""
    if y.vtype.is_matrix:
        return F.sum_components(apply(OPS["matrix_comp_mul"], (y, weights)))
    return y * weights


def weights_like(y: Variable, rng: np.random.Generator) -> tuple[Variable, np.ndarray]:
    """A leaf of y's shape and random data for it."""
    w = Variable(y.vtype, y.size, y.layers, name="upstream")
    return w, draw(y.vtype, -1, 1, (y.size, y.layers), rng)


def rel(a: np.ndarray, b: np.ndarray) -> float:
    """Relative L2 difference of a from b; absolute where b is 0."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    scale = float(np.linalg.norm(b.ravel()))
    return float(np.linalg.norm((a - b).ravel())) / (scale if scale > 0 else 1.0)


def differentiable(xs: Sequence[Variable]) -> list[Variable]:
    return [x for x in xs if not x.vtype.is_int]
