"""What the paper claims of normal maps from pictures (B.2), and thresholds of ours.

In: the figures of the fits of each model. Out: conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Conditions = list[tuple[str, bool]]

SMALL = 0.2
"""Ours, where the paper says "a small value": share of the dissimilarity at the start."""


def conditions(f: dict[str, Any], names: Sequence[str]) -> tuple[Conditions, Conditions]:
    """Return what the paper claims, the two limits that it names among it; and thresholds of ours.

    f: figures. names: of models.
    """
    claims, ours = [], []
    for name in names:
        key = f"{name}_grey"
        start, end = (f[f"{key}_dissimilarity_{k}"] for k in ("start", "end"))
        least, most = (f[f"{key}_dissimilarity_{k}_seen"] for k in ("least", "most"))
        told, other = f[f"{key}_psnr_grey_db"], f[f"{key}_psnr_flashes_db"]
        claims += [
            (
                f"{name}: the dissimilarity falls, {start:.4f} to {end:.4f}, in "
                f"{f[f'{key}_falls']} of {f[f'{key}_measurements']} measurements, and not to 0",
                0 < end < start,
            ),
            (
                f"{name}, first limit: under grey light the map overfits it, {told:.1f} dB there "
                f"and {other:.1f} dB under flashes",
                told > other,
            ),
            (
                f"{name}, second limit: the quarter of texels that the views show least is farther "
                f"off than the quarter that they show most, {least:.4f} and {most:.4f}",
                least > most,
            ),
        ]
        ours.append(_small(f, name, "grey light", key))
        ours += _flashes(f, name, end)
    return claims, ours


def _small(f: dict[str, Any], name: str, light: str, key: str) -> tuple[str, bool]:
    ratio = f[f"{key}_ratio"]
    said = f"{name}, {light}: below {100 * SMALL:.0f} % of the start ({100 * ratio:.1f} %)"
    return said, ratio < SMALL


def _flashes(f: dict[str, Any], name: str, end: float) -> Conditions:
    """Lights that cast shades tell more than an even one. Of a metal that fails: it shows a flash
    as a highlight, and a normal that starts farther off than a highlight is wide is led away as
    often as home (docs/experiments.md)."""
    key = f"{name}_flashes"
    lit = f[f"{key}_dissimilarity_end"]
    nearer = (f"{name}: flashes end nearer, {lit:.4f} and {end:.4f}", lit < end)
    return [_small(f, name, "flashes", key), nearer]
