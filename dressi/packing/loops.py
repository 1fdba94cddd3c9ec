"""Which Functions make a shader loop.

In: a Function. Out: whether the compiler of a driver sees a loop. ``DeviceLimits.loops`` says how
many of them one shader may have.
"""

from __future__ import annotations

import re

from dressi.ad.graph import Function
from dressi.ad.kernels import FRAGMENT, kernels

_LOOP = re.compile(r"for \((?![^;]*;[^;]*< [1-8];)|while \(")
"""Shorter ones are unrolled."""


def loops(f: Function) -> bool:
    """Return whether the shader of a pass loops for a Function, more often than drivers unroll."""
    kernel = kernels(f.op).get(FRAGMENT)
    return kernel is not None and _LOOP.search(kernel.text(f)) is not None
