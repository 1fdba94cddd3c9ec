"""Buffers, buffer views and accessors of a glTF document as NumPy arrays.

In: the document, the binary chunk, the folder of the file. Out: arrays (count, n). Everything that
accessors may do is done: interleaved, normalized, sparse, without a buffer view. Source: glTF 2.0,
sections 3.6 and 3.11 (normalized integers); KHR_mesh_quantization for the types.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

import numpy as np
import numpy.typing as npt

from dressi.render.io.gltf_compressed import MESHOPT, meshopt_bytes
from dressi.render.io.gltf_json import Json
from dressi.render.io.sources import PathLike, find_beside, read_file

COMPONENTS: dict[int, np.dtype[Any]] = {
    5120: np.dtype("<i1"),
    5121: np.dtype("<u1"),
    5122: np.dtype("<i2"),
    5123: np.dtype("<u2"),
    5125: np.dtype("<u4"),
    5126: np.dtype("<f4"),
}
TYPES = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT4": 16}
MAX_ZEROS = 1 << 24
"""Most elements of an accessor that has no bytes in the file: more is a broken count."""

Raw = npt.NDArray[Any]


def resolve_uri(owner: Json, folders: Sequence[Path]) -> bytes:
    """The bytes behind ``uri``: a data URI, or a file relative to the folder of the document.

    folders: that of the document, and that of the file behind it, where it is a symbolic link.

    Raises LoadError: bad base64, a scheme other than data, an absolute path, no such file.
    """
    uri = owner.text("uri")
    if uri[:5].lower() == "data:":
        head, comma, body = uri[5:].partition(",")
        if not comma:
            raise owner.fail("a data URI without a comma", "uri")
        if not head.lower().endswith(";base64"):
            return unquote_to_bytes(body)
        try:
            return base64.b64decode(unquote(body), validate=True)
        except (binascii.Error, ValueError) as error:
            raise owner.fail(f"bad base64: {error}", "uri") from error
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", uri) or uri[:1] in ("/", "\\"):
        text = f"{uri[:80]!r} is neither data nor a path relative to the file"
        raise owner.fail(text, "uri")
    for folder in folders:
        for name in (unquote(uri), uri):  # some writers do not escape a "%" in a name
            found = find_beside(folder, name, last_part=False)
            if found is not None:
                return read_file(found, owner.file, f"{owner.where}.uri")
    return read_file(folders[0] / unquote(uri), owner.file, f"{owner.where}.uri")


class Buffers:
    """The binary part of one document, decoded on demand and kept.

    document, binary: of ``gltf_json.parse``. path: of the document, whose folder URIs are
    relative to.
    """

    def __init__(self, document: Json, binary: bytes | None, path: PathLike) -> None:
        # Beside a link first: stores by content link each file of a scene to a place of its own.
        self.folders = tuple(
            dict.fromkeys((Path(path).parent, Path(os.path.realpath(path)).parent))
        )
        self._binary = binary
        self._buffers = document.objects("buffers")
        self._views = document.objects("bufferViews")
        self.accessors = document.objects("accessors")
        self._bytes: dict[int, bytes] = {}
        self.decoded: dict[int, Raw] = {}  # accessor -> values that its primitive brought
        self._unpacked: dict[int, bytes] = {}  # view -> bytes that were compressed

    def buffer(self, owner: Json) -> bytes:
        """The bytes of the buffer that a view names."""
        index = owner.row("buffer", self._buffers, "buffers")
        if index not in self._bytes:
            buffer = self._buffers[index]
            if buffer.has("uri"):
                data = resolve_uri(buffer, self.folders)
            elif index == 0 and self._binary is not None:
                data = self._binary
            else:
                names = ", ".join(getattr(buffer.get("extensions"), "value", {}))
                why = f" (it needs {names}, which is not supported)" if names else ""
                raise buffer.fail(f"has no uri and is no binary chunk{why}")
            length = buffer.integer("byteLength", low=1)
            if length > len(data):
                text = f"{length} bytes are announced, there are {len(data)}: truncated"
                raise buffer.fail(text, "byteLength")
            self._bytes[index] = data[:length]
        return self._bytes[index]

    def view(self, owner: Json, key: str = "bufferView") -> tuple[Json, bytes]:
        """The object and the bytes of the buffer view that ``owner`` names."""
        row = owner.row(key, self._views, "bufferViews")
        view = self._views[row]
        packed = view.extension(MESHOPT)
        if packed is not None and self._is_fallback(view):
            if row not in self._unpacked:
                self._unpacked[row] = meshopt_bytes(packed, self._part(packed))
            data, length = self._unpacked[row], view.integer("byteLength", low=1)
            if len(data) != length:
                raise view.fail(f"{length} bytes are announced, {len(data)} unpacked", "byteLength")
            return view, data
        return view, self._part(view)

    def _is_fallback(self, view: Json) -> bool:
        """Whether a view's own buffer only stands for what is compressed elsewhere."""
        buffer = self._buffers[view.row("buffer", self._buffers, "buffers")]
        mark = buffer.extension(MESHOPT)
        return mark is not None and mark.flag("fallback") and not buffer.has("uri")

    def _part(self, view: Json) -> bytes:
        """The part of a buffer that an object with buffer, byteOffset and byteLength names."""
        data = self.buffer(view)
        start, length = view.integer("byteOffset", 0), view.integer("byteLength", low=1)
        if start + length > len(data):
            text = f"bytes {start} to {start + length} of a buffer of {len(data)}"
            raise view.fail(text, "byteLength")
        return data[start : start + length]

    def _elements(self, owner: Json, dtype: np.dtype[Any], n: int, count: int) -> Raw:
        """(count, n) of the type, out of the view and from the byte that ``owner`` names."""
        view, data = self.view(owner)
        size = dtype.itemsize * n
        stride, start = view.integer("byteStride", size, low=1), owner.integer("byteOffset", 0)
        if stride < size:
            raise view.fail(f"{stride} is less than an element's {size} bytes", "byteStride")
        end = start + stride * (count - 1) + size
        if end > len(data):
            text = f"its {count} elements end at byte {end} of a view of {len(data)}"
            raise owner.fail(text)
        packed = np.frombuffer(data, np.uint8)[start:]
        rows = np.lib.stride_tricks.as_strided(
            packed, (count, size), (stride, 1), writeable=False
        ).copy()  # in bounds: checked above
        return rows.view(dtype).reshape(count, n)

    def accessor(self, index: int) -> tuple[Json, Raw, bool]:
        """The accessor's object, its values (count, n) as stored, and whether it is normalized.

        Raises LoadError: out of range anywhere, unknown types, bad sparse indices.
        """
        accessor = self.accessors[index]
        component, kind = accessor.integer("componentType"), accessor.text("type")
        if component not in COMPONENTS:
            raise accessor.fail(f"{component} is no component type", "componentType")
        if kind not in TYPES:
            raise accessor.fail(f"{kind!r} is none of {', '.join(TYPES)}", "type")
        dtype, n = COMPONENTS[component], TYPES[kind]
        count, normalized = accessor.integer("count", low=1), accessor.flag("normalized")
        if normalized and component in (5125, 5126):
            raise accessor.fail("32-bit components cannot be normalized", "normalized")
        if index in self.decoded:
            values = self.decoded[index]
            if values.shape != (count, n):
                raise accessor.fail(f"{values.shape} are compressed, not ({count}, {n})", "count")
            values = values.astype(dtype)
        elif accessor.has("bufferView"):
            values = self._elements(accessor, dtype, n, count)
        elif count > MAX_ZEROS:
            raise accessor.fail(f"{count} elements that are not in the file", "count")
        else:
            values = np.zeros((count, n), dtype)
        sparse = accessor.get("sparse")
        if sparse is not None:
            n_changed = sparse.integer("count", low=1)
            if n_changed > count:
                raise sparse.fail(f"{n_changed} of {count} elements are changed", "count")
            at, new = sparse.need("indices"), sparse.need("values")
            index_type = at.integer("componentType")
            if index_type not in (5121, 5123, 5125):
                raise at.fail(f"{index_type} is no type of indices", "componentType")
            rows = self._elements(at, COMPONENTS[index_type], 1, n_changed)[:, 0].astype(np.int64)
            if rows.max() >= count or (np.diff(rows) <= 0).any():
                raise at.fail(f"indices must rise and stay below {count}")
            values[rows] = self._elements(new, dtype, n, n_changed)
        return accessor, values, normalized


def to_float(accessor: Json, values: Raw, normalized: bool) -> npt.NDArray[np.float32]:
    """Values as float32; normalized integers become [0, 1] or [-1, 1].

    Raises LoadError naming the first element that is NaN or infinite.
    """
    if values.dtype.kind == "f":
        floats = values.astype(np.float32)
        bad = ~np.isfinite(floats).all(axis=1)
        if bad.any():
            i = int(bad.argmax())
            raise accessor.fail(f"element {i} is not finite: {floats[i].tolist()}")
        return floats
    if not normalized:
        return values.astype(np.float32)
    most = np.iinfo(values.dtype).max
    # The smallest signed value has no positive partner: it becomes -1 too.
    return np.maximum(values.astype(np.float64) / most, -1.0).astype(np.float32)
