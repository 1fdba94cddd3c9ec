"""Graph to graph: layers of one rasterization become rasterizations of their own.

In: a graph whose ``F.resolve`` calls ask for peels 0, 1, 2 ... of the same fragments. Out: an equal
graph where every ``F.resolve`` takes the nearest: peel k is drawn again, without what does not lie
behind peel k - 1 (depth peeling; paper, 3.4.2). This is how graphics hardware gets at hidden
layers. A compute shader can find all of them at once (``functions.raster_kbuffer``), and then the
graph stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from dressi.ad.functions.arith import maximum, mul
from dressi.ad.functions.raster import resolve
from dressi.ad.functions.select import compare
from dressi.ad.graph import Function, Variable, topological
from dressi.ad.registry import RASTER
from dressi.ad.rewrite import Copies, Replacements, named, reapplied, rewrite

Predicate = Callable[[Function, int], bool]
"""(Rasterization, number of its layers that are read) -> bool."""


def rasterization_of(f: Function) -> Function:
    """The rasterization whose fragments an ``F.resolve`` reads."""
    raster = f.inputs[1].fragment_of
    assert raster is not None
    return raster


def peels(outputs: Sequence[Variable]) -> dict[int, tuple[Function, int]]:
    """By uid of a rasterization: itself, and the number of its layers that are read."""
    out: dict[int, tuple[Function, int]] = {}
    for f in topological(outputs):
        if f.op.fragment_exit:
            raster = rasterization_of(f)
            _, n = out.get(raster.uid, (raster, 0))
            out[raster.uid] = raster, max(n, f.attr("peel") + 1)
    return out


def draw_peels(outputs: Sequence[Variable], separately: Predicate | None = None) -> list[Variable]:
    """Outputs of a graph in which every layer is drawn by a rasterization of its own. separately:
    the rasterizations with several layers for which this is done; default all."""
    chosen = {
        uid
        for uid, (raster, n) in peels(outputs).items()
        if n > 1 and (separately is None or separately(raster, n))
    }
    if not chosen:
        return list(outputs)
    layers: dict[int, _Layers] = {}

    def rule(f: Function, new: Replacements) -> Variable | None:
        if f.op.fragment_exit and (raster := rasterization_of(f)).uid in chosen:
            if raster.uid not in layers:
                layers[raster.uid] = _Layers(raster, f.inputs[1], f.inputs[2], new)
            return named(layers[raster.uid].resolved(f), f.output)
        of = f.output.fragment_of
        # Fragments of the chosen ones are copied by the F.resolve that reads them.
        return f.output if of is not None and of.uid in chosen else None

    return rewrite(outputs, rule)


class _Layers:
    """The layers of one rasterization, drawn as far as they are read."""

    def __init__(
        self, raster: Function, depth: Variable, keep: Variable, new: Replacements
    ) -> None:
        self.raster, self.depth, self.keep, self.new = raster, depth, keep, new
        self.drawn: list[tuple[Copies, Variable, Variable]] = []
        """Of each layer: what its fragments compute, and their depth and keep."""
        self.nearest: list[Variable] = []
        """Of each layer: depth per pixel."""

    def resolved(self, f: Function) -> Variable:
        """The output of an ``F.resolve``, from the rasterization of its layer alone."""
        copy, depth, keep = self._layer(f.attr("peel"))
        if f.inputs[0] is self.depth and f.attr("background") == 1.0:
            return self._depth(f.attr("peel"))
        return resolve(copy(f.inputs[0]), depth, keep, f.attr("background"))

    def _layer(self, k: int) -> tuple[Copies, Variable, Variable]:
        for n in range(len(self.drawn), k + 1):
            copy = Copies(partial(self._copied, n))
            depth, keep = copy(self.depth), copy(self.keep)
            if n > 0:
                # The depth test clamps depths in front of the near plane to 0.
                front = maximum(self._depth(n - 1), 0.0)
                keep = mul(keep, compare("gt", depth, front))
            self.drawn.append((copy, depth, keep))
        return self.drawn[k]

    def _depth(self, k: int) -> Variable:
        for n in range(len(self.nearest), k + 1):
            _, depth, keep = self.drawn[n]
            self.nearest.append(resolve(depth, depth, keep, background=1.0))
        return self.nearest[k]

    def _copied(self, k: int, v: Variable, copy: Copies) -> Variable | None:
        """The copy of what fragments compute, for those of layer k; as a rule of ``Copies``."""
        f = v.creator
        if v.fragment_of is not self.raster or f is None:
            return self.new(v)
        # The attribute keeps it from being merged with the rasterization of another layer.
        is_raster = f.op.kind == RASTER
        return reapplied(f, [self.new(x) for x in f.inputs], peel=k) if is_raster else None
