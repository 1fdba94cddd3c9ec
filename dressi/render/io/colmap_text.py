"""COLMAP's text files. See ``dressi.render.io.colmap``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np

from dressi.render.io.colmap_data import (
    ColmapCamera,
    ColmapImage,
    ColmapModel,
    ColmapPoints,
    checked_camera,
    checked_pose,
)
from dressi.render.io.images import atomic_write
from dressi.render.io.sources import fail, read_text

Row = tuple[str, str]  # where, line
T = TypeVar("T")


def _rows(path: Path, keep_empty: bool = False) -> Iterator[Row]:
    """(line number as text, line) of each line that is no comment."""
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.lstrip().startswith("#") and (keep_empty or line.strip()):
            yield f"line {number}", line


def _parse(path: Path, where: str, what: str, fields: list[str], to: Callable[[str], T]) -> list[T]:
    try:
        return [to(field) for field in fields]
    except (ValueError, OverflowError) as error:
        raise fail(os.fspath(path), where, f"{what}: {error}") from error


def read_cameras(path: Path) -> dict[int, ColmapCamera]:
    """cameras.txt: ``id model width height params...`` a line. Raises LoadError."""
    file, found = os.fspath(path), {}
    for where, line in _rows(path):
        fields = line.split()
        if len(fields) < 5:
            raise fail(file, where, "id, model, width, height and parameters are expected")
        id, width, height = _parse(path, where, "camera", [fields[0], *fields[2:4]], int)
        params = _parse(path, where, "parameters", fields[4:], float)
        if id in found:
            raise fail(file, where, f"camera {id} is there twice")
        found[id] = checked_camera(file, where, id, fields[1], width, height, params)
    return found


def read_images(path: Path) -> dict[int, ColmapImage]:
    """images.txt: two lines an image, ``id qw qx qy qz tx ty tz camera name`` and ``x y point``
    for each key point (may be empty). A name may hold blanks: it is the rest of its line. Raises
    LoadError."""
    file, found = os.fspath(path), {}
    rows = list(_rows(path, keep_empty=True))
    at = 0
    while at < len(rows):
        where, line = rows[at]
        fields = line.split(None, 9)
        if not fields:
            at += 1
            continue
        if len(fields) != 10:
            raise fail(
                file,
                where,
                f"id, quaternion, translation, camera, name: 10 fields, not {len(fields)}",
            )
        id, camera_id = _parse(path, where, "image", [fields[0], fields[8]], int)
        q, t = checked_pose(file, where, _parse(path, where, "pose", fields[1:8], float))
        where2, line = rows[at + 1] if at + 1 < len(rows) else (where, "")
        points = line.split()
        if len(points) % 3:
            raise fail(file, where2, f"key points have 3 numbers each, got {len(points)}")
        xys = _parse(path, where2, "key points", points[0::3] + points[1::3], float)
        ids = _parse(path, where2, "point ids", points[2::3], int)
        if id in found:
            raise fail(file, where, f"image {id} is there twice")
        found[id] = ColmapImage(
            id,
            fields[9].rstrip(),
            camera_id,
            q,
            t,
            np.array(xys, np.float64).reshape(2, -1).T,
            np.array(ids, np.int64),
        )
        at += 2
    return found


def read_points(path: Path) -> ColmapPoints:
    """points3D.txt: ``id x y z r g b error (image key_point)...`` a line. Raises LoadError."""
    file = os.fspath(path)
    ids, xyz, rgb, errors, tracks = [], [], [], [], []
    for where, line in _rows(path):
        fields = line.split()
        if len(fields) < 8 or len(fields) % 2:
            raise fail(file, where, f"8 fields and a track of pairs, got {len(fields)} fields")
        ids.append(_parse(path, where, "id", fields[:1], int)[0])
        values = _parse(path, where, "position", [*fields[1:4], fields[7]], float)
        colour = _parse(path, where, "colour", fields[4:7], int)
        if not np.isfinite(values[:3]).all() or not all(0 <= c <= 255 for c in colour):
            raise fail(file, where, f"position {values[:3]}, colour {colour}")
        xyz.append(values[:3])
        errors.append(values[3])
        rgb.append(colour)
        track = _parse(path, where, "track", fields[8:], int)
        tracks.append(np.array(track, np.int64).reshape(-1, 2))
    return ColmapPoints(
        np.array(ids, np.int64),
        np.array(xyz, np.float64).reshape(-1, 3),
        np.array(rgb, np.uint8).reshape(-1, 3),
        np.array(errors, np.float64),
        tuple(tracks),
    )


def _join(*values: object) -> str:
    return " ".join(repr(float(v)) if isinstance(v, float) else str(v) for v in values)


def write(folder: Path, model: ColmapModel) -> None:
    """The three text files; numbers with all their digits."""
    lines = ["# Camera list: CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]"]
    for c in model.cameras.values():
        lines.append(_join(c.id, c.model, c.width, c.height, *c.params))
    _save(folder / "cameras.txt", lines)
    lines = ["# Image list: IMAGE_ID, QW, QX, QY, QZ, TX, TY, TZ, CAMERA_ID, NAME"]
    lines.append("#   POINTS2D[] as (X, Y, POINT3D_ID)")
    for i in model.images.values():
        lines.append(_join(i.id, *i.qvec.tolist(), *i.tvec.tolist(), i.camera_id, i.name))
        pairs = zip(i.xys.tolist(), i.point_ids.tolist(), strict=True)
        lines.append(" ".join(_join(x, y, p) for (x, y), p in pairs))
    _save(folder / "images.txt", lines)
    lines = ["# 3D point list: POINT3D_ID, X, Y, Z, R, G, B, ERROR, TRACK[] as (IMAGE_ID, IDX)"]
    p = model.points
    for k, track in enumerate(p.tracks):
        lines.append(
            _join(
                int(p.ids[k]),
                *p.xyz[k].tolist(),
                *p.rgb[k].tolist(),
                float(p.errors[k]),
                *track.reshape(-1).tolist(),
            )
        )
    _save(folder / "points3D.txt", lines)


def _save(path: Path, lines: list[str]) -> None:
    atomic_write(path, ("\n".join(lines) + "\n").encode())
