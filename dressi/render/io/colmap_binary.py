"""COLMAP's binary files, little endian. See ``dressi.render.io.colmap``."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from dressi.render.io.colmap_data import (
    MODELS,
    NO_POINT,
    OTHER_MODELS,
    ColmapCamera,
    ColmapImage,
    ColmapModel,
    ColmapPoints,
    checked_camera,
    checked_pose,
)
from dressi.render.io.images import atomic_write
from dressi.render.io.sources import decode_name, fail, read_file

_KEY_POINT = np.dtype([("xy", "<f8", 2), ("point", "<u8")])
_TRACK = np.dtype("<u4")


class _Bytes:
    """A file while it is read: numbers from where the last ones ended."""

    def __init__(self, path: Path) -> None:
        self.file, self.data, self.at = os.fspath(path), read_file(path), 0

    @property
    def where(self) -> str:
        return f"byte {self.at}"

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def need(self, size: int, what: str) -> int:
        start = self.at
        if size > self.left:
            raise fail(self.file, self.where, f"{what} needs {size} bytes, {self.left} are left")
        self.at += size
        return start

    def take(self, form: str, what: str) -> tuple[Any, ...]:
        start = self.need(struct.calcsize("<" + form), what)
        return struct.unpack_from("<" + form, self.data, start)

    def count(self, least: int, what: str) -> int:
        """A number of records of at least so many bytes each: checked before anything is made."""
        where, (n,) = self.where, self.take("Q", f"number of {what}")
        if n > self.left // least:
            raise fail(self.file, where, f"{n} {what} are announced, {self.left} bytes follow")
        return int(n)

    def array(self, dtype: np.dtype[Any], n: int, what: str) -> np.ndarray:
        return np.frombuffer(self.data, dtype, n, self.need(n * dtype.itemsize, what))

    def name(self) -> str:
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise fail(self.file, self.where, "an image's name has no end")
        text = decode_name(self.data[self.at : end])
        self.at = end + 1
        return text

    def finish(self) -> None:
        if self.left:
            raise fail(self.file, self.where, f"{self.left} bytes are left over")


def read_cameras(path: Path) -> dict[int, ColmapCamera]:
    """cameras.bin. Raises LoadError."""
    names = {number: name for name, (number, _) in MODELS.items()}
    source, found = _Bytes(path), {}
    for _ in range(source.count(48, "cameras")):
        where = source.where
        id, number, *size = source.take("IiQQ", "a camera")
        model = names.get(number) or OTHER_MODELS.get(number, f"number {number}")
        n_params = MODELS[model][1] if model in MODELS else 0
        params = source.take(f"{n_params}d", "parameters")
        found[id] = checked_camera(source.file, where, id, model, size, params)
    source.finish()
    return found


def read_images(path: Path) -> dict[int, ColmapImage]:
    """images.bin. Raises LoadError."""
    source, found = _Bytes(path), {}
    for _ in range(source.count(73, "images")):
        where = source.where
        id, *pose, camera_id = source.take("I7dI", "an image")
        q, t = checked_pose(source.file, where, pose)
        name = source.name()
        points = source.array(_KEY_POINT, source.count(24, "key points"), "key points")
        found[id] = ColmapImage(
            id, name, camera_id, q, t, points["xy"].copy(), points["point"].astype(np.int64)
        )
    source.finish()
    return found


def read_points(path: Path) -> ColmapPoints:
    """points3D.bin. Raises LoadError."""
    source = _Bytes(path)
    n = source.count(51, "points")
    ids, xyz = np.zeros(n, np.int64), np.zeros((n, 3))
    rgb, errors, tracks = np.zeros((n, 3), np.uint8), np.zeros(n), []
    for k in range(n):
        where = source.where
        ids[k], *values = source.take("Q3d3Bd", "a point")
        xyz[k], rgb[k], errors[k] = values[:3], values[3:6], values[6]
        if not np.isfinite(xyz[k]).all():
            raise fail(source.file, where, f"point {ids[k]} is not finite: {xyz[k].tolist()}")
        length = source.count(8, "entries of a track")
        tracks.append(source.array(_TRACK, 2 * length, "a track").astype(np.int64).reshape(-1, 2))
    source.finish()
    return ColmapPoints(ids, xyz, rgb, errors, tuple(tracks))


def write(folder: Path, model: ColmapModel) -> None:
    """The three binary files."""
    parts = [struct.pack("<Q", len(model.cameras))]
    for c in model.cameras.values():
        parts.append(struct.pack("<IiQQ", c.id, MODELS[c.model][0], c.width, c.height))
        parts.append(struct.pack(f"<{len(c.params)}d", *c.params))
    atomic_write(folder / "cameras.bin", b"".join(parts))
    parts = [struct.pack("<Q", len(model.images))]
    for i in model.images.values():
        parts.append(struct.pack("<I7dI", i.id, *i.qvec, *i.tvec, i.camera_id))
        parts.append(i.name.encode() + b"\0" + struct.pack("<Q", len(i.xys)))
        points = np.zeros(len(i.xys), _KEY_POINT)
        points["xy"] = i.xys
        points["point"] = np.where(i.point_ids < 0, NO_POINT, i.point_ids.astype(np.uint64))
        parts.append(points.tobytes())
    atomic_write(folder / "images.bin", b"".join(parts))
    p = model.points
    parts = [struct.pack("<Q", len(p.ids))]
    for k, track in enumerate(p.tracks):
        parts.append(struct.pack("<Q3d3Bd", p.ids[k], *p.xyz[k], *p.rgb[k].tolist(), p.errors[k]))
        parts.append(struct.pack("<Q", len(track)) + track.astype(_TRACK).tobytes())
    atomic_write(folder / "points3D.bin", b"".join(parts))
