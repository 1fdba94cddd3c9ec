"""How a renderer draws, compares and steps: what ``build_graph`` was given, checked.

In: names and numbers of the user. Out: ``Settings``, whose numbers are leaves that ``set`` changes
without a rebuild.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT
from dressi.errors import GraphError
from dressi.kinds import (
    CURVES,
    ENCODINGS,
    MODES,
    NORMALS,
    REGULARIZERS,
    Curve,
    Encoding,
    Mode,
    Normals,
)
from dressi.render.pipeline.objective import (
    COLOR_LOSSES,
    MASK_LOSSES,
    OPTIMIZERS,
    rates_of,
    weights_of,
)


@dataclass(eq=False)
class Settings:
    """How to draw, compare and step. uniforms: FLOAT leaves @ 1x1 by name: r, sigma, delta,
    mask_softness, ``loss:``, ``regularizer:`` and ``lr:`` with a name each. clip: None: where the
    scene crosses a near or far plane. occlusion: soft edges inside the outline, too. cull: backs of
    materials with one side are left out."""

    K: int
    max_delta: float
    mode: Mode
    background: Any
    tone: tuple[Curve, Encoding]
    normals: Normals
    mipmaps: bool
    shadow_texels: int
    optimizer: Any
    clip: bool | None
    occlusion: bool
    cull: bool
    uniforms: dict[str, Variable]

    def of(self, prefix: str) -> dict[str, Variable]:
        """The uniforms whose name begins so, without it."""
        return {n.removeprefix(prefix): v for n, v in self.uniforms.items() if n.startswith(prefix)}

    def uniform_of(self, name: str, value: object) -> Variable:
        """The uniform that a number under this name goes to: ``lr`` is the default rate, a kind of
        parameter its rate, a loss or regularizer its weight. Raises GraphError for an unknown name
        and a number out of range."""
        label = "default" if name == "lr" else name
        keys = [name, f"loss:{name}", f"regularizer:{name}", f"lr:{label}"]
        key = next((k for k in keys if k in self.uniforms), None)
        if key is None:
            known = ", ".join(k.split(":", 1)[-1] for k in self.uniforms)
            raise GraphError(f"set knows {known} (lr is default), got {name!r}")
        if not isinstance(value, (int, float, np.number)) or not 0.0 <= value < np.inf:
            raise GraphError(f"{name} must be a number >= 0, got {value!r}")
        if key in ("r", "sigma", "delta"):
            check_length(key, value)
        reach = key == "delta" or (key == "r" and "delta" not in self.uniforms)
        if reach and float(value) > self.max_delta * (1.0 + 1e-6):
            raise GraphError(
                f"{name} = {value} is beyond max_delta = {self.max_delta} of build_graph"
            )
        return self.uniforms[key]


def check_settings(
    mode: Mode, tone: tuple[Curve, Encoding], normals: Normals, optimizer: object
) -> None:
    """Raise GraphError for an unknown mode, curve, encoding, kind of normals or optimizer."""
    if not isinstance(tone, (tuple, list)) or len(tone) != 2:
        raise GraphError(f"tone must be (curve, encoding), got {tone!r}")
    for what, value, known in (
        ("mode", mode, MODES),
        ("tone: curve", tone[0], CURVES),
        ("tone: encoding", tone[1], ENCODINGS),
        ("normals", normals, NORMALS),
        ("optimizer", optimizer if isinstance(optimizer, str) else "adam", tuple(OPTIMIZERS)),
    ):
        if value not in known:
            raise GraphError(f"{what} must be one of {known}, got {value!r}")


def uniforms_of(
    lengths: Mapping[str, float | None],
    loss: Any,
    regularizers: Any,
    lr: float | Mapping[str, float],
    masked: bool,
) -> dict[str, Variable]:
    """FLOAT leaves @ 1x1 of all numbers, by name.

    lengths: r, mask_softness, sigma, delta; None: left to its default. loss, regularizers: a name,
    weights by name, or None. masked: whether targets have masks, for the default loss. Raises
    GraphError for unknown names, and numbers out of range.
    """
    fallback = {"l1": 0.75, "silhouette_l1": 0.25} if masked else {"l1": 1.0}
    known = (*COLOR_LOSSES, *MASK_LOSSES)
    losses = fallback if loss is None else weights_of("loss", loss, known)
    ruled = {} if regularizers is None else weights_of("regularizers", regularizers, REGULARIZERS)
    numbers = {name: value for name, value in lengths.items() if value is not None}
    numbers.update({f"loss:{n}": w for n, w in losses.items()})
    numbers.update({f"regularizer:{n}": w for n, w in ruled.items()})
    numbers.update({f"lr:{n}": v for n, v in rates_of(lr).items()})
    for name in ("r", "sigma", "delta"):
        if name in numbers:
            check_length(name, numbers[name])
    return {
        name: F.leaf(np.float32(value).reshape(1, 1, 1), FLOAT, name)
        for name, value in numbers.items()
    }


def check_length(name: str, value: object) -> None:
    """Raise GraphError unless a length in the screen square is one."""
    ok = isinstance(value, (int, float, np.number)) and 0.0 <= value <= 1.0
    if not ok or (name == "sigma" and value == 0.0):
        raise GraphError(f"{name} must be a number in [0, 1] (1 is the longer side), got {value!r}")
