"""Kernels for groups of invocations that work together: what they need beside their GLSL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dressi.ad.graph import Function
from dressi.ad.kernels import WORKGROUP, Kernel, Target, kernels
from dressi.ad.registry import Op


@dataclass(frozen=True, eq=False, kw_only=True)
class Workgroup(Kernel):
    """A kernel for WORKGROUP: groups of ``lanes`` x 1 x 1 invocations."""

    target: Target = field(default=WORKGROUP, init=False)
    groups: Callable[[Function], tuple[int, int, int]]
    """The number of groups along x, y and z."""
    lanes: int
    """Invocations of a group."""
    preamble: Callable[[Function], str]
    """GLSL before main()."""
    word_bits: int = 32
    """Of the words of {buffer}, where the op is a raw scatter."""
    stores_first: bool = False
    """The first invocation of a group stores all that the group makes."""


def workgroup(op: Op) -> Workgroup | None:
    """Return the kernel of an op that runs in groups of invocations, or None."""
    kernel = kernels(op).get(WORKGROUP)
    return kernel if isinstance(kernel, Workgroup) else None
