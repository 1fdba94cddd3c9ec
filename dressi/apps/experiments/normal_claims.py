"""What the paper claims of normal maps from pictures (B.2), and thresholds of ours.

In: the figures of the fits of each model, whether its surface scatters light. Out: conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Conditions = list[tuple[str, bool]]

SMALL = 0.2
"""Ours, where the paper says "a small value": share of the dissimilarity at the start."""


def conditions(f: dict[str, Any], scatters: Mapping[str, bool]) -> tuple[Conditions, Conditions]:
    """Return what the paper claims, the two limits that it names among it; and thresholds of ours.

    f: figures. scatters: of each model by name, whether its surface is more than half a dielectric.
    """
    claims, ours = [], []
    for name, scattering in scatters.items():
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
        # A metal shows a flash as a highlight. A normal that starts farther off than a highlight is
        # wide is led away as often as home, however much the pictures tell, so nothing is asked.
        ours += _scattering(f, name, end) if scattering else []
    return claims, ours


def _small(f: dict[str, Any], name: str, light: str, key: str) -> tuple[str, bool]:
    ratio = f[f"{key}_ratio"]
    said = f"{name}, {light}: below {100 * SMALL:.0f} % of the start ({100 * ratio:.1f} %)"
    return said, ratio < SMALL


def _scattering(f: dict[str, Any], name: str, end: float) -> Conditions:
    """Lights that cast shades tell more than an even one."""
    key = f"{name}_flashes"
    lit = f[f"{key}_dissimilarity_end"]
    nearer = (f"{name}: flashes end nearer, {lit:.4f} and {end:.4f}", lit < end)
    return [_small(f, name, "flashes", key), nearer]
