"""Targets: the pictures that a fit aims at.

In: files or arrays. Out: ``Targets``: linear colours and coverage, all of one size.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image as PillowImage

from dressi.errors import GraphError
from dressi.render.io.images import read_image, with_colors

Size = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Targets:
    """colors: (views, H, W, 3) linear. alpha: (views, H, W, 1) in [0, 1], or None where no target
    has one."""

    colors: np.ndarray
    alpha: np.ndarray | None

    @property
    def size(self) -> Size:
        """(width, height)."""
        return self.colors.shape[2], self.colors.shape[1]


def read_targets(targets: Any, size: Size | None = None) -> Targets | None:
    """Pictures from a file name, an array, or a list of either; None for None.

    targets: files of ``read_image``; arrays (H, W), (H, W, 1 to 4) or (views, H, W, 1 to 4), linear
    floats. 2 and 4 channels: the last one is the mask, not multiplied into the colours. size:
    (width, height) to resample to (means of areas); None: they must agree. Raises GraphError for
    sizes that differ, other shapes, integers, NaN, and masks on some of them only; LoadError for
    files.
    """
    if targets is None:
        return None
    pictures: list[np.ndarray] = []
    names: list[str] = []
    for given in _listed(targets):
        is_file = isinstance(given, (str, os.PathLike))
        pictures.append(read_image(given) if is_file else _checked(given, len(pictures)))
        names.append(os.fspath(given) if is_file else f"target {len(names)}")
    if not pictures:
        raise GraphError("targets is an empty list; None means that there are none")
    if size is not None:
        pictures = [resampled(p, size) for p in pictures]
    sizes = {p.shape[:2] for p in pictures}
    if len(sizes) > 1:
        listed = ", ".join(
            f"{n} {p.shape[1]}x{p.shape[0]}" for n, p in zip(names, pictures, strict=True)
        )
        raise GraphError(
            f"targets must have one size, got {listed}\n  hint: size=(width, height) resamples them"
        )
    masked = [p.shape[2] in (2, 4) for p in pictures]
    if any(masked) and not all(masked):
        lacking = [n for n, m in zip(names, masked, strict=True) if not m]
        raise GraphError(f"some targets have an alpha channel, {', '.join(lacking)} have none")
    colors = [with_colors(p)[..., :3] for p in pictures]
    alpha = np.stack([p[..., -1:] for p in pictures]) if masked[0] else None
    return Targets(np.stack(colors), alpha)


def _listed(targets: Any) -> Sequence[Any]:
    if isinstance(targets, (str, os.PathLike)):
        return [targets]
    if isinstance(targets, np.ndarray):
        return list(targets) if targets.ndim == 4 else [targets]
    if isinstance(targets, (list, tuple)):
        return targets
    raise GraphError(f"targets must be a file, an array or a list, got {type(targets).__name__}")


def _checked(given: Any, k: int) -> np.ndarray:
    array = np.asarray(given)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or not 1 <= array.shape[2] <= 4 or array.size == 0:
        raise GraphError(f"target {k} must be (H, W) or (H, W, 1 to 4), got {np.shape(given)}")
    if not np.issubdtype(array.dtype, np.floating):
        raise GraphError(
            f"target {k} must hold linear floats, got {array.dtype}\n"
            "  hint: dressi.render.io.srgb_to_linear(array / 255)"
        )
    if not np.isfinite(array).all():
        raise GraphError(f"target {k} holds NaN or infinity")
    return array.astype(np.float32)


def resampled(picture: np.ndarray, size: Size) -> np.ndarray:
    """(H, W, C) at another size: means over the area of each new pixel (linear between pixels where
    it grows). Colours are weighted by alpha, where there is one."""
    if len(size) != 2 or min(size) < 1:
        raise GraphError(f"size must be (width, height) of at least 1x1, got {size!r}")
    if picture.shape[1::-1] == tuple(size):
        return picture
    values = picture.astype(np.float32).copy()
    masked = values.shape[2] in (2, 4)
    if masked:
        values[..., :-1] *= values[..., -1:]
    grows = size[0] > picture.shape[1] or size[1] > picture.shape[0]
    way = PillowImage.Resampling.BILINEAR if grows else PillowImage.Resampling.BOX
    planes = [
        PillowImage.fromarray(values[..., k]).resize(size, way) for k in range(values.shape[2])
    ]
    out = np.stack([np.asarray(p, np.float32) for p in planes], axis=2)
    if masked:
        alpha = out[..., -1:]
        out[..., :-1] = np.divide(
            out[..., :-1], alpha, out=np.zeros_like(out[..., :-1]), where=alpha > 1e-6
        )
    return out
