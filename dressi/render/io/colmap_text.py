"""COLMAP's text files. See ``dressi.render.io.colmap``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from dressi.errors import LoadError
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

T = TypeVar("T")


@dataclass(frozen=True)
class _Line:
    """A line of a file that is no comment."""

    file: str
    where: str
    text: str

    def fail(self, problem: str) -> LoadError:
        return fail(self.file, self.where, problem)

    def parse(self, what: str, fields: list[str], to: Callable[[str], T]) -> list[T]:
        try:
            return [to(field) for field in fields]
        except (ValueError, OverflowError) as error:
            raise self.fail(f"{what}: {error}") from error


def _lines(path: Path, keep_empty: bool = False) -> Iterator[_Line]:
    for number, text in enumerate(read_text(path).split("\n"), 1):
        if not text.lstrip().startswith("#") and (keep_empty or text.strip()):
            yield _Line(os.fspath(path), f"line {number}", text)


def read_cameras(path: Path) -> dict[int, ColmapCamera]:
    """cameras.txt: ``id model width height params...`` a line. Raises LoadError."""
    found: dict[int, ColmapCamera] = {}
    for line in _lines(path):
        fields = line.text.split()
        if len(fields) < 5:
            raise line.fail("id, model, width, height and parameters are expected")
        id, *size = line.parse("camera", [fields[0], *fields[2:4]], int)
        params = line.parse("parameters", fields[4:], float)
        if id in found:
            raise line.fail(f"camera {id} is there twice")
        found[id] = checked_camera(line.file, line.where, id, fields[1], size, params)
    return found


def read_images(path: Path) -> dict[int, ColmapImage]:
    """images.txt: two lines an image, ``id qw qx qy qz tx ty tz camera name`` and ``x y point``
    for each key point (may be empty). A name may hold blanks: it is the rest of its line. Raises
    LoadError."""
    found: dict[int, ColmapImage] = {}
    lines = _lines(path, keep_empty=True)
    for line in lines:
        fields = line.text.split(None, 9)
        if not fields:
            continue
        if len(fields) != 10:
            n = len(fields)
            raise line.fail(f"id, quaternion, translation, camera, name: 10 fields, not {n}")
        id, camera_id = line.parse("image", [fields[0], fields[8]], int)
        q, t = checked_pose(line.file, line.where, line.parse("pose", fields[1:8], float))
        second = next(lines, _Line(line.file, line.where, ""))
        points = second.text.split()
        if len(points) % 3:
            raise second.fail(f"key points have 3 numbers each, got {len(points)}")
        xys = second.parse("key points", points[0::3] + points[1::3], float)
        ids = np.array(second.parse("point ids", points[2::3], int), np.int64)
        if id in found:
            raise line.fail(f"image {id} is there twice")
        xy = np.array(xys, np.float64).reshape(2, -1).T
        found[id] = ColmapImage(id, fields[9].rstrip(), camera_id, q, t, xy, ids)
    return found


def read_points(path: Path) -> ColmapPoints:
    """points3D.txt: ``id x y z r g b error (image key_point)...`` a line. Raises LoadError."""
    ids, xyz, rgb, errors, tracks = [], [], [], [], []
    for line in _lines(path):
        fields = line.text.split()
        if len(fields) < 8 or len(fields) % 2:
            raise line.fail(f"8 fields and a track of pairs, got {len(fields)} fields")
        ids += line.parse("id", fields[:1], int)
        values = line.parse("position", [*fields[1:4], fields[7]], float)
        colour = line.parse("colour", fields[4:7], int)
        if not np.isfinite(values[:3]).all() or not all(0 <= c <= 255 for c in colour):
            raise line.fail(f"position {values[:3]}, colour {colour}")
        xyz.append(values[:3])
        errors.append(values[3])
        rgb.append(colour)
        track = line.parse("track", fields[8:], int)
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
        point = [int(p.ids[k]), *p.xyz[k].tolist(), *p.rgb[k].tolist(), float(p.errors[k])]
        lines.append(_join(*point, *track.reshape(-1).tolist()))
    _save(folder / "points3D.txt", lines)


def _save(path: Path, lines: list[str]) -> None:
    atomic_write(path, ("\n".join(lines) + "\n").encode())
