"""How a logical image lies in a physical one.

In: size, layers, limits. Out: ``Layout``. A stack of layers is ONE image, layers below each other
(in several columns where the stack is taller than the device allows), so one pass treats all views
at once. A table (N, 1) is folded to a near-square cell of power-of-two width: an N x 1 target uses
a fraction of the hardware and breaks at 4096 on the smallest devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dressi.errors import GraphError
from dressi.packing.limits import DeviceLimits

Size = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """Placement of ``layers`` images of ``size`` in one physical image.

    ``cell``: physical size of one layer; ``columns`` x rows cells. ``shift``: log2 of the cell
    width for a table, else -1.
    """

    size: Size
    layers: int
    cell: Size
    columns: int
    shift: int

    @property
    def rows(self) -> int:
        return -(-self.layers // self.columns)

    @property
    def physical(self) -> Size:
        return (self.cell[0] * self.columns, self.cell[1] * self.rows)

    def origin(self, layer: int) -> Size:
        """Top left pixel of a layer's cell."""
        return (layer % self.columns * self.cell[0], layer // self.columns * self.cell[1])


@dataclass(frozen=True)
class Cells:
    """How the layers of a stack lie below each other in an image, and what of it counts."""

    components: int
    """Of a texel."""
    rows: int
    """Of the image per layer."""
    texels: int
    """Of a layer, row by row."""
    layers: int

    @property
    def n_bytes(self) -> int:
        """Bytes of what counts, of 32-bit numbers."""
        return 4 * self.components * self.texels * self.layers


@lru_cache(maxsize=4096)
def layout(size: Size, layers: int, limits: DeviceLimits) -> Layout:
    """The Layout of an image. Raises GraphError when it cannot fit the device."""
    width, height = size
    shift = -1
    cell = size
    if height == 1 and width > 1:
        shift = max(0, (width - 1).bit_length() + 1 >> 1)
        cell = (1 << shift, (width + (1 << shift) - 1) >> shift)
    most = limits.image_dim
    if cell[0] > most or cell[1] > most:
        raise GraphError(
            f"an image of {width}x{height} needs {cell[0]}x{cell[1]} pixels, "
            f"{limits.name} allows {most}x{most}"
        )
    per_column = max(1, most // cell[1])
    columns = -(-layers // per_column)
    if columns * cell[0] > most:
        raise GraphError(
            f"{layers} layers of {width}x{height} do not fit {limits.name}: "
            f"{per_column * (most // cell[0])} layers fit {most}x{most}"
        )
    return Layout(size, layers, cell, columns, shift)


def cells_of(size: Size, layers: int, components: int, limits: DeviceLimits) -> Cells | None:
    """The Cells of an image; None where layers lie in several columns."""
    lay = layout(size, layers, limits)
    cells = Cells(components, lay.cell[1], size[0] * size[1], layers)
    return cells if lay.columns == 1 else None


MOST_PUSHED = 32
"""Numbers that can be pushed on every device (128 bytes)."""


class Pushed(dict[tuple[str, int], int]):
    """Numbers that follow from the lengths of tables, in the order in which a shader asked for
    them. They are pushed when it runs, not written into it: a mesh of another size then takes what
    was compiled before. most: how many; all others are written. Not on CPU drivers: there a step
    of silhouettes took 1.07 to 1.15 times as long, where each lane shifts by what it has to load.
    """

    def __init__(self, most: int = MOST_PUSHED) -> None:
        super().__init__()
        self._most = most

    def count(self, n: int) -> str:
        """Return GLSL of the n rows of a table."""
        return self._number("count", n, n)

    def mask(self, lay: Layout) -> str:
        """Return GLSL of the width of a table's cell less 1."""
        return self._number("mask", lay.size[0], lay.cell[0] - 1)

    def shift(self, lay: Layout) -> str:
        """Return GLSL of log2 of the width of a table's cell."""
        return self._number("shift", lay.size[0], lay.shift)

    def height(self, lay: Layout) -> str:
        """Return GLSL of the height of a cell, of a table or an image."""
        if lay.shift < 0:
            return str(lay.cell[1])
        return self._number("height", lay.size[0], lay.cell[1])

    def _number(self, what: str, n: int, value: int) -> str:
        key = (what, n)
        if key not in self and len(self) >= self._most:
            return str(value)
        self[key] = value
        return f"pushed[{list(self).index(key)}]"


def position_glsl(lay: Layout, pixel: str, pushed: Pushed) -> list[str]:
    """Return statements that define pos (logical pixel) and layer from a physical pixel."""
    lines = [f"  ivec2 pos = {pixel}; int layer = 0;"]
    w, h = lay.cell
    if lay.layers > 1:
        if lay.columns == 1:
            high = pushed.height(lay)
            # A division of floats, exact up to two million rows, where the height is not known when
            # a shader is compiled: one of integers takes far longer then.
            known = high.isdigit()
            layer = f"pos.y / {h}" if known else f"int((float(pos.y) + 0.5) / float({high}))"
            lines.append(f"  layer = {layer}; pos.y -= layer * {high};")
        else:
            lines.append(f"  layer = pos.y / {h} * {lay.columns} + pos.x / {w};")
            lines.append(f"  pos = ivec2(pos.x % {w}, pos.y % {h});")
    if lay.shift >= 0:
        lines.append(f"  pos = ivec2((pos.y << {pushed.shift(lay)}) + pos.x, 0);")
    return lines


def beyond_glsl(lay: Layout, pushed: Pushed) -> str:
    """Return the condition that an invocation of a dispatch has no physical pixel."""
    (w, h), at = lay.physical, "gl_GlobalInvocationID"
    if lay.shift < 0 or lay.columns > 1:
        return f"{at}.x >= {w} || {at}.y >= {h}"
    rows = f" * {lay.layers}" if lay.layers > 1 else ""
    return f"{at}.x > {pushed.mask(lay)} || {at}.y >= {pushed.height(lay)}{rows}"


def padding_glsl(lay: Layout, pushed: Pushed) -> str:
    """Return the condition that a physical pixel carries no logical one, or nothing."""
    tests = []
    if lay.shift >= 0:
        tests.append(f"pos.x >= {pushed.count(lay.size[0])}")
    if lay.columns > 1:
        tests.append(f"layer >= {lay.layers}")
    return " || ".join(tests)
