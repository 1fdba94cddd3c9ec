"""A generated test of an op: a row of ``Op.cases``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dressi.ad.graph import Variable
from dressi.ad.shape import Size
from dressi.ad.vtype import VType


@dataclass(frozen=True)
class Case:
    """One generated test of an op: how to call it and on what.

    ``build``: Variables -> output. ``inputs``: (vtype, low, high) for each random input, drawn
    uniformly. ``gradient``: whether central differences are compared. ``transcendental``: the wider
    of the two tolerances of R1. ``elementwise``: whether the case is repeated over sizes, layers
    and broadcasts; else the inputs have the given ``sizes``, in one layer and in three
    (``one_layer``: in one only; ``mixed_layers``: also one input in one, the other in three).
    ``any_type``: whether it can be built with other types of the inputs. ``off_kinks``: moves the
    data of input 1 away from kinks, given the size of input 0.
    """

    build: Callable[..., Variable]
    inputs: tuple[tuple[VType, float, float], ...]
    gradient: bool = True
    transcendental: bool = False
    elementwise: bool = True
    sizes: tuple[Size, ...] = ()
    one_layer: bool = False
    mixed_layers: bool = False
    any_type: bool = True
    off_kinks: Callable[[np.ndarray, Size], np.ndarray] | None = None
