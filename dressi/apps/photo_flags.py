"""Flags of ``dressi fit`` about masks and cameras. Imports nothing heavy."""

from __future__ import annotations

import argparse

SEGMENTS = ("places", "grabcut")

PHOTO_WITHOUT = ("hull", "remesh", "preconditioning", "occlusion", "fairing", "consistency")
"""What a fit to photos can leave out, to see what it is good for."""


def add_photo_flags(fit: argparse.ArgumentParser) -> None:
    """Add what ``PhotoOptions`` has about masks, cameras and photos that are kept out."""
    fit.add_argument(
        "--each-out",
        action="store_true",
        help="keep every photo out once: a fit per pair of photos, and their figures beside those "
        "of visual hulls (default no)",
    )
    fit.add_argument(
        "--workers",
        type=int,
        default=0,
        help="processes that share the fits of --each-out (0: this one alone; docs/many.md; default"
        " 0)",
    )
    fit.add_argument(
        "--masks",
        metavar="DIR",
        help="a picture per photo, bright (or opaque) on the object (default: the photos' alpha, "
        "or what is unlike the background)",
    )
    fit.add_argument(
        "--threshold",
        type=float,
        help="difference to the background, sRGB in 0..1, from which a pixel is the object's "
        "(default: found place by place)",
    )
    fit.add_argument(
        "--refine-cameras",
        action="store_true",
        help="move cameras, and change their focal length and lens, together with the shape "
        "(default no)",
    )
    fit.add_argument(
        "--segment",
        choices=SEGMENTS,
        default=SEGMENTS[0],
        help="how the object is told from the background where no masks are given: places (what is "
        "like the background around it), or grabcut (OpenCV's GrabCut, the extra grabcut, begun "
        "with that; default places)",
    )
    fit.add_argument(
        "--without",
        nargs="+",
        choices=PHOTO_WITHOUT,
        default=[],
        metavar="PART",
        help=f"what to leave out: {', '.join(PHOTO_WITHOUT)} (default nothing)",
    )
