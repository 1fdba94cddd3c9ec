"""Flags of ``dressi demo``. Imports nothing heavy."""

from __future__ import annotations

import argparse

from dressi.kinds import BACKWARDS


def add_demo_flags(demo: argparse.ArgumentParser) -> None:
    """Add what ``DemoOptions`` has beside the target and the options that all fits share."""
    demo.add_argument(
        "--iterations",
        type=int,
        default=None,
        help="on vertex positions (default 150; with --target 480)",
    )
    demo.add_argument(
        "--texture-iterations", type=int, default=100, help="on the texture (default 100; 0: none)"
    )
    demo.add_argument(
        "--views", type=int, default=None, help="number of views (default 6; with --target 24)"
    )
    demo.add_argument(
        "--size", type=int, default=256, help="pixels on a side of a view (default 256)"
    )
    demo.add_argument(
        "--refine",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="move vertices by colour too while painting (default: with --target only)",
    )
    demo.add_argument(
        "--start",
        default="hull",
        metavar="START",
        help="with --target: hull (what the silhouettes leave), sphere, or a file of a mesh "
        "(default hull)",
    )
    demo.add_argument(
        "--depth",
        action="store_true",
        help="with --target: depth is among the pictures (default no)",
    )
    demo.add_argument(
        "--texture-gradient",
        choices=BACKWARDS,
        default=BACKWARDS[0],
        help="how the gradient reaches texels: added to all that a pixel read, or the paper's "
        "inverse UV, one pixel per texel and step, without float atomics (default exact)",
    )
