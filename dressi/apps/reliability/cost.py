"""What ``Options(deterministic=True)`` costs: the time of a step over that of the default, for fits
of geometry, a texture and cameras."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np

from dressi.apps.reliability.fits import problem_of
from dressi.apps.reliability.row import Row, at_most
from dressi.apps.timing import alternating_ms
from dressi.engine import DressiAD
from dressi.packing import Options

AT_MOST = 1.3
KINDS = {"geometry": "vertices", "texture": "texture", "camera": "camera"}
ROUNDS, SMALL_ROUNDS = 40, 2


def cost(kind: str, device: str | None, small: bool) -> float:
    """Return the time of a deterministic step over that of a default one: the median of rounds in
    which both take a turn, so that what else the machine does hits both alike."""
    with ExitStack() as stack:
        engines = []
        for options in (Options(), Options(deterministic=True)):
            ad = stack.enter_context(DressiAD(device, options))
            engines.append(ad)
            if small:
                problem_of(kind, 24, texels=16).load(ad)
            else:
                problem_of(kind, 128, n_faces=1280, n_views=4, texels=256).load(ad)
        usual, deterministic = alternating_ms(engines, SMALL_ROUNDS if small else ROUNDS)
    return float(np.median(deterministic / usual))


def measure(device: str | None, small: bool) -> list[Row]:
    """Return a ratio for each kind of fit."""
    rounds = SMALL_ROUNDS if small else ROUNDS
    return [
        at_most(f"deterministic cost, {name}", cost(kind, device, small), AT_MOST, rounds)
        for name, kind in KINDS.items()
    ]
