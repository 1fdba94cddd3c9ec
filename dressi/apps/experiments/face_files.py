"""Frames of ``dressi experiment face`` as files: the layout of ``--data DIR`` (docs/face.md).

In: a folder with ``frames.json``, pictures and depth maps. Out: ``Frame``; and back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dressi.apps.experiments.face_capture import N_LANDMARKS, Frame
from dressi.errors import LoadError
from dressi.render.io import read_image, write_image

INDEX = "frames.json"
INTRINSICS = ("fx", "fy", "cx", "cy")
MULTIPLE = 4
"""What the sides of pictures are multiples of."""

LEVELS = 65535.0
UNIT_CM = 0.1
"""Of a level of depth in a PNG, where the file says nothing: millimetres."""


def read_frames(folder: str | Path) -> list[Frame]:
    """Return the frames of a folder. Raises LoadError, naming file and place, for what is missing,
    of another shape or size, not finite, or a mask without a pixel."""
    path = Path(folder) / INDEX
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        entries = data["frames"]
        assert isinstance(entries, list) and entries
    except (OSError, ValueError, KeyError, TypeError, AssertionError) as error:
        raise LoadError(f"{path}: needs a list 'frames': {error!r}", str(path), "frames") from error
    frames = [_frame(path, data, entry, k) for k, entry in enumerate(entries)]
    for frame in frames:
        if frame.size != frames[0].size:
            raise LoadError(
                f"{path}: frames differ in size: '{frame.name}' has {frame.size}, "
                f"'{frames[0].name}' {frames[0].size}",
                str(path),
                frame.name,
            )
    if frames[0].size[0] % MULTIPLE or frames[0].size[1] % MULTIPLE:
        raise LoadError(
            f"{path}: sides of {frames[0].size} pixels, they must be multiples of {MULTIPLE}: the "
            "fit begins with smaller pictures",
            str(path),
            frames[0].name,
        )
    if all(f.held_out for f in frames):
        raise LoadError(f"{path}: all frames are held out, none is left to fit", str(path))
    return frames


def _frame(path: Path, data: dict[str, Any], entry: Any, number: int) -> Frame:
    where = f"frame {number}"
    try:
        name = str(entry.get("name", where))
        lens = {**data.get("intrinsics", {}), **entry.get("intrinsics", {})}
        fx, fy, cx, cy = (float(lens[k]) for k in INTRINSICS)
        unit = float(data.get("depth_unit_cm", UNIT_CM))
        color_file, depth_file = path.parent / entry["color"], path.parent / entry["depth"]
        mask_file = path.parent / entry["mask"] if "mask" in entry else None
        given = [(np.nan, np.nan) if m is None else m for m in entry["landmarks"]]
        landmarks = np.asarray(given, np.float64)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LoadError(
            f"{path}: {where} needs color, depth, landmarks and the intrinsics fx, fy, cx, cy: "
            f"{error!r}",
            str(path),
            where,
        ) from error
    if not (np.isfinite([fx, fy, cx, cy, unit]).all() and min(fx, fy, unit) > 0.0):
        raise LoadError(
            f"{path}: {where}: intrinsics and depth_unit_cm must be finite, fx, fy and the unit "
            f"above 0, got {[fx, fy, cx, cy, unit]}",
            str(path),
            where,
        )
    color = read_image(color_file)[..., :3]
    color = np.repeat(color, 3, axis=2) if color.shape[2] < 3 else color
    depth = read_depth(depth_file, unit)
    mask = np.ones(depth.shape, bool)
    if mask_file is not None:
        mask = read_image(mask_file, srgb=False)[..., 0] > 0.5
    return checked(
        Frame(
            name,
            color,
            depth,
            mask,
            landmarks,
            np.array([fx, fy]),
            np.array([cx, cy]),
            held_out=bool(entry.get("held_out", False)),
        ),
        str(path),
    )


def read_depth(path: str | Path, unit_cm: float) -> npt.NDArray[np.float32]:
    """Return (H, W) cm, NaN where unknown: of a 16-bit PNG, levels times ``unit_cm``, 0 unknown; or
    of an .npy file, (H, W) in cm, where NaN, infinity and what is not above 0 are unknown. Raises
    LoadError."""
    file = str(path)
    if Path(path).suffix == ".npy":
        try:
            depth = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise LoadError(f"{file}: no array of depth: {error}", file, "depth") from error
    else:
        depth = read_image(path, srgb=False)[..., 0] * (LEVELS * unit_cm)
    if depth.ndim != 2 or depth.dtype.kind not in "fiu":
        raise LoadError(
            f"{file}: depth must be (H, W) numbers, got {depth.shape} {depth.dtype}", file, "depth"
        )
    known = np.isfinite(depth) & (depth > 0)
    return np.where(known, depth, np.nan).astype(np.float32)


def checked(frame: Frame, file: str = "") -> Frame:
    """Return a frame whose arrays fit together. Raises LoadError that names the frame and the
    array: shapes that differ, no 68 landmarks, colours that are not finite, an empty mask."""

    def fail(what: str) -> LoadError:
        place = f"{file}: " if file else ""
        return LoadError(f"{place}frame '{frame.name}': {what}", file, frame.name)

    shape = frame.color.shape[:2]
    if frame.color.ndim != 3 or frame.color.shape[2] != 3:
        raise fail(f"color must be (H, W, 3), got {frame.color.shape}")
    for name in ("depth", "mask"):
        got = getattr(frame, name).shape
        if got != shape:
            raise fail(f"{name} must be of the size of the colours, {shape}, got {got}")
    if frame.landmarks.shape != (N_LANDMARKS, 2):
        raise fail(f"landmarks must be ({N_LANDMARKS}, 2), got {frame.landmarks.shape}")
    if not np.isfinite(frame.color).all():
        raise fail("a colour is not finite")
    if not frame.mask.any():
        raise fail("the mask is empty: no pixel counts")
    return frame


def write_frames(folder: str | Path, frames: Sequence[Frame]) -> None:
    """Write frames in the layout that ``read_frames`` reads: colours as sRGB PNG, depth as .npy."""
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    entries = []
    for k, frame in enumerate(frames):
        write_image(out / f"{k}_color.png", frame.color)
        write_image(out / f"{k}_mask.png", frame.mask.astype(np.float32)[..., None], srgb=False)
        np.save(out / f"{k}_depth.npy", frame.depth)
        marks = [None if not np.isfinite(m).all() else m.tolist() for m in frame.landmarks]
        (fx, fy), (cx, cy) = frame.focal.tolist(), frame.center.tolist()
        entries.append(
            {
                "name": frame.name,
                "color": f"{k}_color.png",
                "depth": f"{k}_depth.npy",
                "mask": f"{k}_mask.png",
                "landmarks": marks,
                "intrinsics": {"fx": fx, "fy": fy, "cx": cx, "cy": cy},
                "held_out": frame.held_out,
            }
        )
    (out / INDEX).write_text(json.dumps({"frames": entries}), encoding="utf-8")
