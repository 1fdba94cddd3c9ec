"""Many images of any sizes in one, and their mip chains: what a scene of many textures reads.

The texels of an image lie row by row, one image after the other, in an image of texels that is a
power of two wide: texel i of all is the pixel i of it. Levels come below each other: the texels of
level 1 of all images that have one begin at the first free row, and so on. So the work for a graph
does not grow with the number of images. A texel of the next level is the mean over the area that it
covers, as in ``mipmap``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dressi.ad.functions._common import leaf, needs_variable, sized
from dressi.ad.functions.mipmap import PACK, half_matrix, level_size
from dressi.ad.functions.window import place_glsl
from dressi.ad.graph import Function, Size, Variable, checked_shape
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import ANY, Op, apply
from dressi.ad.vtype import IVEC4, VEC3, VType
from dressi.errors import GraphError

NEVER = 2**30
"""A first texel that no image has: ends tables, which so have two rows at least."""

# -- one level of all images from the one before


def _find_glsl(f: Function, column: str, n: str) -> str:
    """GLSL that finds the last row of the table {fetch1} whose ``column`` is at most n, and
    declares it, {y}_r: (first texel of the level, of the next level, width, height), and the sizes
    of the image in both, {y}_s and {y}_h."""
    rows = f.inputs[1].size[0]
    return (
        f"int {{y}}_a = 0, {{y}}_b = {rows - 1};\n"
        f"  for (int k = 0; k < {rows.bit_length()}; k++) {{\n"
        "    int m = ({y}_a + {y}_b + 1) >> 1;\n"
        f"    if ({{fetch1}}(ivec2(m, 0), 0).{column} <= {n}) {{y}}_a = m; else {{y}}_b = m - 1;\n"
        "  }\n"
        "  ivec4 {y}_r = {fetch1}(ivec2({y}_a, 0), 0);\n"
        "  ivec2 {y}_s = {y}_r.zw, {y}_h = max({y}_s >> 1, ivec2(1));"
    )


def texel_at_glsl(width: int, i: str) -> str:
    """GLSL ivec2 of pixel i of an image whose width is a power of two."""
    return f"ivec2({i} & {width - 1}, {i} >> {width.bit_length() - 1})"


def _number_glsl(pos: str, width: int) -> str:
    """GLSL that declares the number {y}_n of the texel that is written, and sets it to 0."""
    return f"int {{y}}_n = ({pos}).y * {width} + ({pos}).x; {{y}} = {{T}}(0.0);"


def _weight_glsl(n: str, half: str, tap: str, o: str) -> str:
    """GLSL of the weight of texel 2 o + tap of n for texel o of the next level."""
    odd = f"float({tap} == 0 ? {half} - {o} : {tap} == 1 ? {half} : {o} + 1) / float({n})"
    return f"({n} == 1 ? 1.0 : ({n} & 1) == 0 ? 0.5 : {odd})"


def _half_glsl(f: Function) -> str:
    (pos, _), width = place_glsl(f), f.output.size[0]
    weight = " * ".join(
        _weight_glsl(f"{{y}}_s.{c}", f"{{y}}_h.{c}", tap, f"o.{c}") for c, tap in ("xi", "yj")
    )
    texel = "{y}_r.x + (2 * o.y + j) * {y}_s.x + 2 * o.x + i"
    return (
        f"{_number_glsl(pos, width)}\n"
        f"  {_find_glsl(f, 'y', '{y}_n')}\n"
        "  {y}_n -= {y}_r.y;\n"
        "  if ({y}_n < {y}_h.x * {y}_h.y) {\n"
        "    ivec2 o = ivec2({y}_n % {y}_h.x, {y}_n / {y}_h.x);\n"
        "    ivec2 taps = ivec2({y}_s.x == 1 ? 1 : 2 + ({y}_s.x & 1), "
        "{y}_s.y == 1 ? 1 : 2 + ({y}_s.y & 1));\n"
        "    for (int j = 0; j < taps.y; j++) for (int i = 0; i < taps.x; i++) {\n"
        f"      int t = {texel};\n"
        f"      {{y}} += ({weight}) * {{fetch0}}({texel_at_glsl(width, 't')}, 0);\n"
        "    }\n"
        "  }"
    )


def _unhalf_glsl(f: Function) -> str:
    """The transpose, as reads: a texel is part of one texel of the next level along each axis, and
    of an odd number of texels every second one of two."""
    (pos, _), width = place_glsl(f), f.output.size[0]
    weight = " * ".join(
        _weight_glsl(f"{{y}}_s.{c}", f"{{y}}_h.{c}", f"(t.{c} - 2 * o.{c})", f"o.{c}") for c in "xy"
    )
    return (
        f"{_number_glsl(pos, width)}\n"
        f"  {_find_glsl(f, 'x', '{y}_n')}\n"
        "  {y}_n -= {y}_r.x;\n"
        "  if ({y}_n < {y}_s.x * {y}_s.y) {\n"
        "    ivec2 t = ivec2({y}_n % {y}_s.x, {y}_n / {y}_s.x), o;\n"
        # o with 2 o <= t <= 2 o + 1, or 2 o + 2 where the number of texels is odd.
        "    ivec2 low = max((t - ({y}_s & 1)) >> 1, ivec2(0)), "
        "high = min(t >> 1, {y}_h - 1);\n"
        "    for (o.y = low.y; o.y <= high.y; o.y++) for (o.x = low.x; o.x <= high.x; o.x++) {\n"
        "      int k = {y}_r.y + o.y * {y}_h.x + o.x;\n"
        f"      {{y}} += ({weight}) * {{fetch0}}({texel_at_glsl(width, 'k')}, 0);\n"
        "    }\n"
        "  }"
    )


def _halves(f: Function, size: Size) -> list[tuple[slice, slice, np.ndarray, np.ndarray, Size]]:
    """(texels of the level, of the next level, both matrices, size) of each image."""
    out = []
    for start, then, w, h in f.attr("rows"):
        mw, mh = level_size((w, h), 1)
        parts = slice(start, start + w * h), slice(then, then + mw * mh)
        out.append((*parts, half_matrix(h), half_matrix(w), (w, h)))
    return out


def _half_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    (w, h), channels = f.output.size, xs[0].shape[-1]
    given, out = xs[0].reshape(-1, channels), np.zeros((w * h, channels))
    for here, then, rows, columns, (iw, ih) in _halves(f, f.output.size):
        image = given[here].reshape(ih, iw, channels)
        out[then] = np.einsum("hwc,oh,pw->opc", image, rows, columns).reshape(-1, channels)
    return out.reshape(1, h, w, channels)


def _unhalf_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    (w, h), channels = f.output.size, xs[0].shape[-1]
    given, out = xs[0].reshape(-1, channels), np.zeros((w * h, channels))
    for here, then, rows, columns, _ in _halves(f, f.output.size):
        image = given[then].reshape(len(rows), len(columns), channels)
        out[here] = np.einsum("opc,oh,pw->hwc", image, rows, columns).reshape(-1, channels)
    return out.reshape(1, h, w, channels)


def _half_backward(f: Function, gy: Variable, i: int) -> Variable | None:
    if i == 1:
        return None
    other = HALF_ROWS if f.op is UNHALF_ROWS else UNHALF_ROWS
    return apply(other, (gy, f.inputs[1]), size=f.inputs[0].size, rows=f.attr("rows"))


_SIZES = ((3, 5), (1, 4), (4, 2), (1, 1))


HALF_ROWS: Op = Op(
    "mip_half_rows",
    lambda xs, a: (xs[0].vtype, a["size"], 1),
    reads=(ANY,),
    linear_in=(0,),
    backward=_half_backward,
    reference=_half_ref,
    cases=(
        sized(
            lambda x: texture_table(x, _SIZES).texels,
            ((VEC3, -2, 2),),
            (8, 4),
            one_layer=True,
        ),
    ),
)
register(HALF_ROWS, Kernel(_half_glsl))

UNHALF_ROWS: Op = Op(
    "mip_half_rows_transposed",
    lambda xs, a: (xs[0].vtype, a["size"], 1),
    reads=(ANY,),
    linear_in=(0,),
    backward=_half_backward,
    reference=_unhalf_ref,
    no_cases="the backward of mip_half_rows; tested through its gradient",
)
register(UNHALF_ROWS, Kernel(_unhalf_glsl))


# -- the table


@dataclass(frozen=True, eq=False)
class TextureTable:
    """Images of any sizes and their mip chains in one image, for F.texture_from.

    texels: FLOAT or VECn, all texels of all levels. boxes: IVEC4 leaf @ (rows, 1): first texel,
    width and height of each level of each image. first: row of level 0 of each image; its other
    levels follow it. levels: how many each image has. Gradients flow through the texels to what the
    table was made from.
    """

    texels: Variable
    boxes: Variable
    first: tuple[int, ...]
    levels: tuple[int, ...]

    @property
    def vtype(self) -> VType:
        """Type of a texel."""
        return self.texels.vtype


def table_size(n_texels: int) -> Size:
    """(width, height) of an image of n texels, near square; the width is a power of two.
    No gradient: two numbers."""
    width = 1 << max(0, (max(int(n_texels), 1) - 1).bit_length() + 1) // 2
    return width, -(-max(int(n_texels), 1) // width)


def texture_table(texels: Variable, sizes: Sequence[Size], mipmaps: bool = True) -> TextureTable:
    """The images of a texture table, with their mip chains.

    texels: FLOAT or VECn, linear, whose width is a power of two and which holds the texels of all
    images row by row, one image after the other (``F.image.table_size`` is a size for n of them).
    sizes: (width, height) of each image. mipmaps: whether levels down to 1x1 are made. A level of
    all images is made by one op, whatever their number. Gradient to texels: exact, of all levels.
    Raises GraphError for other types, a width that is no power of two, layers, no image, and where
    the texels of the images are more than there are.
    """
    width, height = needs_variable("texture_table", texels).size
    shapes = [checked_shape("F.texture_table", s)[0] for s in sizes]
    total = sum(w * h for w, h in shapes)
    needed = ""
    if texels.vtype.is_int or texels.vtype.is_matrix or texels.layers != 1:
        needed = "be FLOAT or VECn, of one layer"
    elif width & (width - 1):
        needed = "be a power of two wide"
    elif not shapes or total > width * height:
        needed = f"hold the {total} texels of {len(shapes)} images, one or more"
    if needed:
        raise GraphError(f"F.texture_table: texels must {needed}, got {texels.label()}")
    n_levels = [max(s).bit_length() if mipmaps else 1 for s in shapes]
    starts = np.cumsum([0, *(w * h for w, h in shapes)]).tolist()[:-1]
    boxes: list[list[tuple[int, int, int, int]]] = [
        [(start, w, h, 0)] for start, (w, h) in zip(starts, shapes, strict=True)
    ]
    chain, top = [texels], height
    here = dict(enumerate(starts))  # first texels in the level, of the images that have it
    for level in range(1, max(n_levels)):
        then, rows, n = {}, [], 0
        for k in here:
            if n_levels[k] > level:
                (w, h), below = level_size(shapes[k], level), level_size(shapes[k], level - 1)
                rows.append((here[k], n, *below))
                boxes[k].append((top * width + n, w, h, 0))
                then[k], n = n, n + w * h
        ends = (*rows, (NEVER, NEVER, 1, 1))
        table = leaf(np.array(ends, np.int32), IVEC4, f"mip_rows{level}")
        shape = (width, -(-n // width))
        chain.append(apply(HALF_ROWS, (chain[-1], table), size=shape, rows=tuple(rows)))
        here, top = then, top + shape[1]
    first = np.cumsum([0, *n_levels]).tolist()[:-1]
    listed = [box for image in boxes for box in image] + [(NEVER, 1, 1, 0)]
    found = leaf(np.array(listed, np.int32), IVEC4, "texture_boxes")
    return TextureTable(_stacked(chain), found, tuple(first), tuple(n_levels))


def _stacked(chain: list[Variable]) -> Variable:
    """Images of one width below each other. All small ones first, in passes of few, for a shader
    fetches from all of its inputs at every pixel on devices that run both sides of a branch."""
    out = chain[-1]
    parts = chain[:-1]
    while parts:
        n = 1 if len(parts) == 1 else min(len(parts) - 1, 3)
        group, parts = [*parts[-n:], out], parts[:-n]
        tops = np.cumsum([0, *(x.size[1] for x in group)]).tolist()
        corners = tuple((0, top) for top in tops[:-1])
        out = apply(PACK, group, at=corners, size=(out.size[0], tops[-1]))
    return out
