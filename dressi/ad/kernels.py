"""Kernels: which GLSL computes an op, and where it runs.

In: ``register(op, Kernel(...), ...)`` in ``dressi.ad.functions``. Out: kernels by op and
target, for the packer. What an op is (``ad.registry``) knows nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

from dressi.ad import registry
from dressi.ad.graph import Function, Variable
from dressi.ad.registry import Op

Target = Literal["fragment", "dispatch", "subgroup", "workgroup"]

FRAGMENT: Target = "fragment"
"""Statements for one pixel, in a pass; in a dispatch too, where there is no other kernel."""
DISPATCH: Target = "dispatch"
"""The same in a compute dispatch: what is faster there, with the same bits."""
SUBGROUP: Target = "subgroup"
"""The same in a dispatch where lanes of a subgroup can work together, with ``scatter="add"`` before
they use {add}; it may use basic, ballot, arithmetic and shuffle operations. The order of sums may
be another."""
WORKGROUP: Target = "workgroup"
"""The whole of main(), for groups of invocations. Markers more: {inner}, a function of a fragment
(attribute ``inner``); {store}(ivec2 pos, int layer, value). With inputs read at the same pixel,
which have one pixel: {pos} is the number of the group along x and y, {layer} along z."""

REST = "// The rest:"
"""In a kernel for DISPATCH or SUBGROUP whose inputs are all read at ANY pixel: what stands above
runs without a branch, so the generator puts it in front of the shader's other statements, next to
that of others, where their loads overlap."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """GLSL of an op for one target.

    ``glsl``: the text, or a function of the Function that returns it. Markers: {y} output, {x0}...
    inputs, {T} output type, {T0}... input types, {fetch0}(ivec2 pos, int layer) for inputs read at
    any pixel, {sample0}(vec2 uv, int layer) for samplers, {w0} {h0} {l0} size and layers of an
    input, {wy} {hy} {ly} of the output, {pos} {layer} the pixel being computed, {add}(index, value)
    and {buffer} for scatters.
    """

    glsl: str | Callable[[Function], str] = ""
    target: Target = FRAGMENT
    expand: Callable[[Function, Sequence[Variable]], Variable] | None = None
    """Of a MACRO, in the place of ``glsl``: the graph that it becomes for this target, with the
    same bits as by the op's own ``expand``."""

    def text(self, f: Function) -> str:
        """Return the GLSL for a Function, with its markers."""
        return self.glsl(f) if callable(self.glsl) else self.glsl


_KERNELS: WeakKeyDictionary[Op, dict[Target, Kernel]] = WeakKeyDictionary()


def kernels(op: Op) -> Mapping[Target, Kernel]:
    """Return the kernels of an op by target."""
    return _KERNELS.get(op, {})


def implement(op: Op, *variants: Kernel) -> Op:
    """Give an op its kernels, at most one for each target; those that it had for one go."""
    _KERNELS[op] = {**kernels(op), **{k.target: k for k in variants}}
    return op


def register(op: Op, *variants: Kernel) -> Op:
    """Add a row to the registry, with its kernels; the name must be new."""
    return implement(registry.register(op), *variants)
