"""Graph to graph: layers of one rasterization become rasterizations of their own.

In: a graph whose ``F.resolve`` ask for peels 0, 1, 2 ... of the same fragments. Out: an equal graph
where every ``F.resolve`` takes the nearest: peel k is drawn again, without what does not lie behind
peel k - 1 (depth peeling; paper, 3.3.4). This is how graphics hardware gets at hidden layers. A
compute shader can find all of them at once (``functions.raster_kbuffer``), and then the graph stays
as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dressi.ad.functions.arith import maximum, mul
from dressi.ad.functions.raster import resolve
from dressi.ad.functions.select import compare
from dressi.ad.graph import Function, Variable, topological
from dressi.ad.registry import RASTER, apply
from dressi.errors import origin

Drawn = Callable[[Function, int], bool]


def peels(outputs: Sequence[Variable]) -> dict[int, tuple[Function, int]]:
    """By uid of a rasterization: itself, and how many layers of it are asked for."""
    found: dict[int, tuple[Function, int]] = {}
    for f in topological(outputs):
        if f.op.fragment_exit:
            raster = f.inputs[1].fragment_of
            assert raster is not None
            most = found.get(raster.uid, (raster, 0))[1]
            found[raster.uid] = raster, max(most, f.attr("peel") + 1)
    return found


def draw_peels(outputs: Sequence[Variable], drawn: Drawn | None = None) -> list[Variable]:
    """Outputs with every layer drawn by itself. drawn: of which rasterizations, given the number
    of layers; default all."""
    chosen = {
        uid
        for uid, (raster, n) in peels(outputs).items()
        if n > 1 and (drawn is None or drawn(raster, n))
    }
    if not chosen:
        return list(outputs)
    new: dict[int, Variable] = {}
    layers: dict[int, _Peeled] = {}
    for f in topological(outputs):
        y = f.output
        with origin(f.line):
            raster = f.inputs[1].fragment_of if f.op.fragment_exit else None
            if raster is not None and raster.uid in chosen:
                peeled = layers.setdefault(
                    raster.uid, _Peeled(raster, f.inputs[1], f.inputs[2], new)
                )
                made = peeled.value(f)
            elif y.fragment_of is not None and y.fragment_of.uid in chosen:
                continue  # drawn where it is asked for
            else:
                xs = [new.get(x.uid, x) for x in f.inputs]
                if all(a is b for a, b in zip(xs, f.inputs, strict=True)):
                    continue
                made = apply(f.op, xs, **dict(f.attrs))
            new[y.uid] = made
            made.name = made.name or y.name
    return [new.get(v.uid, v) for v in outputs]


class _Peeled:
    """The layers of one rasterization, drawn as far as they are asked for."""

    def __init__(
        self, raster: Function, depth: Variable, keep: Variable, new: dict[int, Variable]
    ) -> None:
        self.raster, self.depth, self.keep, self.new = raster, depth, keep, new
        self.tests: list[tuple[Variable, Variable]] = []  # depth and keep of every layer
        self.shown: list[Variable] = []  # depth per pixel of every layer
        self.copies: list[dict[int, Variable]] = []

    def value(self, f: Function) -> Variable:
        """What the F.resolve gives, of a layer drawn for it."""
        k = f.attr("peel")
        while len(self.tests) <= k:
            self._draw_next()
        if f.inputs[0] is self.depth and f.attr("background") == 1.0:
            return self._depth(k)
        value = self._copy(f.inputs[0], k)
        depth, keep = self.tests[k]
        return resolve(value, depth, keep, f.attr("background"))

    def _draw_next(self) -> None:
        k = len(self.tests)
        self.copies.append({})
        depth, keep = self._copy(self.depth, k), self._copy(self.keep, k)
        if k > 0:
            # What is nearer than the near plane is on it: the depth test knows nothing nearer.
            front = maximum(self._depth(k - 1), 0.0)
            keep = mul(keep, compare("gt", depth, front))
        self.tests.append((depth, keep))

    def _depth(self, k: int) -> Variable:
        while len(self.shown) <= k:
            depth, keep = self.tests[len(self.shown)]
            self.shown.append(resolve(depth, depth, keep, background=1.0))
        return self.shown[k]

    def _copy(self, v: Variable, k: int) -> Variable:
        """A value per fragment of layer k."""
        if v.fragment_of is not self.raster:
            return self.new.get(v.uid, v)
        copies, f = self.copies[k], v.creator
        if v.uid not in copies:
            assert f is not None
            attrs = dict(f.attrs)
            if f.op.kind == RASTER:
                attrs["peel"] = k  # a depth test of its own: not to be merged with another layer
                xs = [self.new.get(x.uid, x) for x in f.inputs]
            else:
                xs = [self._copy(x, k) for x in f.inputs]
            copies[v.uid] = apply(f.op, xs, **attrs)
        return copies[v.uid]
