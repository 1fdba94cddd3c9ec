"""Reductions: sum and mean over pixels and layers, as a pyramid of blocks.

One fragment that loops over a whole image is 10 x slower than a pyramid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dressi.ad.functions._common import needs_variable, sized
from dressi.ad.graph import Function, Size, Variable
from dressi.ad.idioms import hinted
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import ANY, MACRO, Case, Op, Shape, apply
from dressi.ad.vtype import FLOAT, INT, MAT2, VEC3, VType
from dressi.errors import GraphError

BLOCK = 8
"""Pixels on a side of the blocks that one level of the pyramid adds: 64 inputs per pixel, so 256 x
256 is summed in three passes."""


def block_size(size: Size) -> Size:
    """Return the size of the next level of the pyramid."""
    w, h = size
    if h == 1:
        return (-(-w // (BLOCK * BLOCK)), 1)
    return (-(-w // BLOCK), -(-h // BLOCK))


def is_whole(f: Function) -> bool:
    """Return whether a reduction takes all pixels as one block."""
    return ("whole", True) in f.attrs


def compensated(t: VType, total: str, lost: str) -> tuple[str, Callable[[str], str], str]:
    """Returns GLSL that declares a total, a function that writes GLSL which adds a value to it,
    and GLSL that ends the sum.

    The rounding errors of the additions are found exactly (Knuth's two-sum) and added at the end:
    gradients whose summands cancel keep their digits. Where something is infinite or NaN, the plain
    sum is. Integers and matrices are added as they are.
    """
    if t.is_int or t.is_matrix:
        return f"precise {{T}} {total} = {{T}}(0);", lambda value: f"{total} += {value};", ""

    def add(value: str) -> str:
        return (
            f"{{ precise {{T}} t = {total} + {value}, b = t - {total}; "
            f"{lost} += ({total} - (t - b)) + ({value} - b); {total} = t; }}"
        )

    begin = f"precise {{T}} {total} = {{T}}(0), {lost} = {{T}}(0);"
    # A comparison with NaN is false: then the plain sum stays.
    finite = f"lessThanEqual(abs({lost}), {{T}}(3.0e38))" if t.n > 1 else f"abs({lost}) <= 3.0e38"
    return begin, add, f"{total} = mix({total}, {total} + {lost}, {finite});"


def block_loops(f: Function, pos: str, i: str, j: str) -> tuple[list[str], str]:
    """Return GLSL of the loops over the pixels of a block, or of a run of a table, and of the pixel
    inside. i, j: names of the loops' variables."""
    w, h = f.inputs[0].size
    loops = ["for (int {y}_l = 0; {y}_l < {l0}; {y}_l++)"] if f.attr("merge_layers") else []
    axes = ((i, "x", w, BLOCK * BLOCK),) if h == 1 else ((j, "y", h, BLOCK), (i, "x", w, BLOCK))
    for k, axis, size, n in axes:
        if is_whole(f):
            loops.append(f"for (int {k} = 0; {k} < {size}; {k}++)")
            continue
        start, stop = f"{pos}.{axis} * {n}", f"({pos}.{axis} + 1) * {n}"
        loops.append(f"for (int {k} = {start}; {k} < min({stop}, {size}); {k}++)")
    return loops, f"ivec2({i}, {0 if h == 1 else j})"


def blocks(
    f: Function, x: np.ndarray, fill: float, reduce: Callable[..., np.ndarray]
) -> np.ndarray:
    """Return x (layers, H, W, *tail) reduced over blocks, and over layers where f merges them."""
    layers, h, w, *tail = x.shape
    ow, oh = f.output.size
    bw, bh = (BLOCK * BLOCK, 1) if h == 1 else (BLOCK, BLOCK)
    if is_whole(f):
        bw, bh = w, h
    padded = np.full((layers, oh * bh, ow * bw, *tail), fill)
    padded[:, :h, :w] = x
    out = reduce(padded.reshape(layers, oh, bh, ow, bw, *tail), axis=(2, 4))
    return np.asarray(reduce(out, axis=0, keepdims=True) if f.attr("merge_layers") else out)


def _block_glsl(f: Function) -> str:
    """The sum of a block, or of a run of a table; what the additions lose is added at the end."""
    layer = "{y}_l" if f.attr("merge_layers") else "{layer}"
    begin, add, end = compensated(f.output.vtype, "{y}_s", "{y}_e")
    merged = f.attr("merge_layers") or is_whole(f)
    if not merged and all(n % BLOCK == 0 for n in f.inputs[0].size):
        return "\n  ".join([begin, *_whole_block(add), end, "{y} = {y}_s;"])
    loops, at = block_loops(f, "{pos}", "i", "j")
    loops[-1] += " {"
    lines = [begin, *loops, f"  {{T}} x = {{fetch0}}({at}, {layer});", f"  {add('x')}", "}"]
    return "\n  ".join([*lines, end, "{y} = {y}_s;"])


def _whole_block(add: Callable[[str], str]) -> list[str]:
    """Return GLSL that adds the rows of a block one after the other. The first pixel of each row is
    fetched before all: rows lie far apart, and a CPU waits for eight at once in the time of one."""
    at = f"{{fetch0}}({{pos}} * {BLOCK} + ivec2(%s, %d), {{layer}})"
    lines = [f"{{T}} {{y}}_{j} = {at % ('0', j)};" for j in range(BLOCK)]
    for j in range(BLOCK):
        rest = f"{{ {{T}} x = {at % ('i', j)}; {add('x')} }}"
        lines += [add(f"{{y}}_{j}"), f"for (int i = 1; i < {BLOCK}; i++) {rest}"]
    return lines


def block_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    """One value for each block of the input, or one where ``whole``; of all layers where
    ``merge_layers``."""
    x = xs[0]
    size = (1, 1) if attrs.get("whole") else block_size(x.size)
    return x.vtype, size, 1 if attrs["merge_layers"] else x.layers


BLOCK_SUM: Op = Op(
    "block_sum",
    block_infer,
    reads=(ANY,),
    linear_in=(0,),
    once=(0,),
    reference=lambda f, xs: blocks(f, xs[0], 0.0, np.sum),
    cases=tuple(
        sized(
            lambda a, merge=merge, more=more: apply(BLOCK_SUM, (a,), merge_layers=merge, **more),
            (given,),
            size,
            gradient=False,
        )
        for merge in (False, True)
        for more in ({}, {"whole": True})
        for given, size in (
            ((VEC3, -2, 2), (13, 9)),
            ((VEC3, -2, 2), (16, 24)),
            ((INT, -9, 9), (100, 1)),
        )
    ),
)
register(BLOCK_SUM, Kernel(_block_glsl))

SUM_LAYERS = Op(
    "sum_layers",
    lambda xs, a: (xs[0].vtype, xs[0].size, 1),
    reads=(ANY,),
    once=(0,),
    backward=lambda f, gy, i: gy,
    reference=lambda f, xs: xs[0].sum(axis=0, keepdims=True),
    cases=(Case(lambda a: sum_layers(a), ((VEC3, -2, 2),)),),
)
register(
    SUM_LAYERS,
    Kernel(
        "{T} {y}_s = {T}(0);\n"
        "  for (int l = 0; l < {l0}; l++) {y}_s += {fetch0}({pos}, l);\n"
        "  {y} = {y}_s;"
    ),
)


def _sum_expand(f: Function, xs: Sequence[Variable]) -> Variable:
    """A pyramid. Layers are added up on the way, so that a stack takes as many passes as an image:
    in the last pass but one, where there are pixels enough left to share the work."""
    x = xs[0]
    n_passes, size = 0, x.size
    while size != (1, 1):
        n_passes, size = n_passes + 1, block_size(size)
    merge_at = max(n_passes - 2, 0)
    for k in range(n_passes):
        merge = k == merge_at and x.layers > 1 and not f.attr("per_layer")
        x = apply(BLOCK_SUM, (x,), merge_layers=merge)
    if x.layers > 1 and not f.attr("per_layer"):
        x = apply(SUM_LAYERS, (x,))
    return x


def pixels_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    """One value for all pixels, or for those of each layer."""
    return xs[0].vtype, (1, 1), xs[0].layers if attrs["per_layer"] else 1


@hinted
def sum(x: Variable, per_layer: bool = False) -> Variable:
    """Sum over all pixels and layers, @ 1x1 (``per_layer``: one per layer). Gradient: gy
    everywhere."""
    needs_variable("sum", x)
    if x.size == (1, 1) and (x.layers == 1 or per_layer):
        return x
    return apply(SUM, (x,), per_layer=bool(per_layer))


SUM = Op(
    "sum",
    pixels_infer,
    additive=True,
    kind=MACRO,
    expand=_sum_expand,
    backward=lambda f, gy, i: gy,  # broadcasts: the same gradient at every pixel
    reference=lambda f, xs: xs[0].sum(
        axis=(1, 2) if f.attr("per_layer") else (0, 1, 2), keepdims=True
    ),
    cases=(
        Case(lambda a: sum(a), ((VEC3, -2, 2),)),
        Case(lambda a: sum(a * a, per_layer=True), ((FLOAT, -2, 2),)),
        Case(lambda a: sum(a), ((MAT2, -2, 2),)),
    ),
)
register(SUM)


@hinted
def mean(x: Variable, per_layer: bool = False) -> Variable:
    """Mean over all pixels and layers, @ 1x1 (``per_layer``: one mean per layer). FLOAT, VECn.
    Gradient: gy / count everywhere. Raises GraphError for other types."""
    if needs_variable("mean", x).vtype.is_int or x.vtype.is_matrix:
        raise GraphError(f"F.mean: needs FLOAT or VECn, got {x.label()}")
    count = x.size[0] * x.size[1] * (1 if per_layer else x.layers)
    return sum(x, per_layer) * (1.0 / count)


def sum_layers(x: Variable) -> Variable:
    """Sum over layers, pixel by pixel. Gradient: gy in every layer."""
    return x if needs_variable("sum_layers", x).layers == 1 else apply(SUM_LAYERS, (x,))
