"""Texel numbers outside a texture: repeat, clamp, mirror, border; one wrap per axis.

Beyond the border lie zeros here: what a border value other than 0 takes is added by the functions
that users call, so that all ops stay linear in the texture.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dressi.ad.graph import Size, short
from dressi.errors import GraphError
from dressi.kinds import WRAPS, Wraps

FAR = 2.0**22
"""Texels are told apart up to here on either side of the texture: beyond, floats are too coarse for
the place within a texel, and then for the texel."""


def near_glsl(p: str) -> str:
    """GLSL vec2: the place p, a vec2 in texels, kept within FAR; what is no number becomes -FAR.
    It holds for infinities, so that weights and numbers of texels are finite whatever uv is."""
    x, y = (f"{p}.{c} > {-FAR} ? min({p}.{c}, {FAR}) : {-FAR}" for c in "xy")
    return f"vec2({x}, {y})"


def near(p: np.ndarray) -> np.ndarray:
    """As ``near_glsl``."""
    return np.where(p > -FAR, np.minimum(p, FAR), -FAR)


def off_texel_kinks(uv: np.ndarray, size: Size) -> np.ndarray:
    """uv, float32 in float64, moved 1/50 texel away from borders and centres of texels, where
    sampling has kinks: for tests of gradients. size: of the texture."""
    half = uv * size * 2
    whole = np.floor(half)
    moved = (whole + np.clip(half - whole, 0.04, 0.96)) / (2 * np.array(size))
    return moved.astype(np.float32).astype(np.float64)


def checked_wrap(name: str, wrap: Any) -> Wraps:
    """The wraps along u and v of one name or a pair of names; else GraphError. name: the op."""
    pair: Any = (wrap, wrap) if isinstance(wrap, str) else wrap
    if isinstance(pair, (tuple, list)) and len(pair) == 2 and all(w in WRAPS for w in pair):
        return pair[0], pair[1]
    raise GraphError(
        f"F.{name}: wrap must be one of {WRAPS}, or a pair of them for u and v, got {short(wrap)}"
    )


def wrap_glsl(wrap: str, i: str, n: int | str) -> str:
    """GLSL for texel number i brought into [0, n), whatever the integer i is.

    n: a number, or an int in the shader.
    """
    known = isinstance(n, int)
    last = str(int(n) - 1) if known else f"{n} - 1"
    if wrap in ("clamp", "border"):
        return f"clamp({i}, 0, {last})"
    # % of a negative number is undefined in GLSL. The half keeps the quotient away from integers,
    # where a division that is off by its last bits would give the number of a texel outside.
    if wrap == "repeat":
        real = f"{n}.0" if known else f"float({n})"
        return f"clamp({i} - {n} * int(floor((float({i}) + 0.5) / {real})), 0, {last})"
    double, real = (
        (str(2 * int(n)), f"{2 * int(n)}.0") if known else (f"2 * {n}", f"float(2 * {n})")
    )
    period = f"clamp({i} - {double} * int(floor((float({i}) + 0.5) / {real})), 0, {double} - 1)"
    return f"min({period}, {double} - 1 - {period})"


def inside_glsl(wraps: Wraps, x: str, y: str, w: int | str, h: int | str) -> str:
    """GLSL condition that texel (x, y) lies beyond no border; empty where no axis has one."""
    tests = [
        f"{i} >= 0 && {i} < {n}"
        for wrap, i, n in zip(wraps, (x, y), (w, h), strict=True)
        if wrap == "border"
    ]
    return " && ".join(tests)


def at_glsl(wraps: Wraps, x: str, y: str, w: int | str, h: int | str) -> str:
    """GLSL for the ivec2 that texel (x, y) wraps to."""
    return f"ivec2({wrap_glsl(wraps[0], x, w)}, {wrap_glsl(wraps[1], y, h)})"


def number_glsl(wraps: Wraps, x: str, y: str, w: int, h: int) -> str:
    """GLSL for the number of the texel that texel (x, y) wraps to, row by row."""
    return f"{wrap_glsl(wraps[1], y, h)} * {w} + {wrap_glsl(wraps[0], x, w)}"


def wrap_index(wrap: str, i: np.ndarray, n: int) -> np.ndarray:
    """Texel number brought into [0, n)."""
    if wrap in ("clamp", "border"):
        return np.clip(i, 0, n - 1)
    if wrap == "repeat":
        return i % n
    period = i % (2 * n)
    return np.minimum(period, 2 * n - 1 - period)


def is_inside(wraps: Wraps, x: np.ndarray, y: np.ndarray, w: int, h: int) -> np.ndarray:
    """Whether texels (x, y) lie beyond no border."""
    out = np.ones(np.shape(x), bool)
    for wrap, i, n in zip(wraps, (x, y), (w, h), strict=True):
        if wrap == "border":
            out = out & (i >= 0) & (i < n)
    return out
