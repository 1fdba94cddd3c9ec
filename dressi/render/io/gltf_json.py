"""The container of a glTF file, and its JSON read with types checked and places named.

In: the bytes of a .gltf (JSON) or .glb (chunks) file. Out: a ``Json`` cursor over the document and
the binary chunk. Source: glTF 2.0, sections 3.2 and 4.4.

Differs: pygltflib, which writes our files, is not used to read them. Its objects take any JSON type
for any field, so that a fault would surface far from its place, or not at all.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from dressi.errors import LoadError
from dressi.render.io.sources import decode_text, fail

_CHUNK_JSON, _CHUNK_BIN = 0x4E4F534A, 0x004E4942
_FLOAT32_MAX = 3.4028235e38
T = TypeVar("T")


@dataclass(frozen=True)
class Json:
    """One value of the document, and where it stands, such as ``meshes[0].primitives[1]``."""

    file: str
    value: Any
    where: str = ""

    def fail(self, problem: str, key: str = "") -> LoadError:
        """The error to raise: file, place and problem."""
        where = f"{self.where}.{key}".strip(".") if key else self.where
        return fail(self.file, where, problem)

    def _wrong(self, key: str, wanted: str) -> NoReturn:
        text = repr(self.value[key])
        text = text if len(text) <= 60 else text[:57] + "..."
        raise self.fail(f"{wanted} is needed, there is {text}", key)

    def has(self, key: str) -> bool:
        """True where the object has this key."""
        return key in self.value

    def get(self, key: str) -> Json | None:
        """An object inside, or None. Raises LoadError where it is something else."""
        if key not in self.value:
            return None
        if not isinstance(self.value[key], dict):
            self._wrong(key, "an object")
        return Json(self.file, self.value[key], f"{self.where}.{key}".strip("."))

    def need(self, key: str) -> Json:
        """An object inside that must be there."""
        found = self.get(key)
        if found is None:
            raise self.fail("is missing", key)
        return found

    def extension(self, name: str) -> Json | None:
        """The object of an extension, or None."""
        extensions = self.get("extensions")
        return None if extensions is None else extensions.get(name)

    def array(self, key: str) -> list[Any]:
        """A list inside, empty where it is not there."""
        values = self.value.get(key, [])
        if not isinstance(values, list):
            self._wrong(key, "a list")
        return values

    def extras(self) -> Any:
        """What an application put here for itself: any JSON, None where there is none."""
        return self.value.get("extras")

    def objects(self, key: str) -> list[Json]:
        """A list of objects inside, empty where it is not there."""
        found = []
        for i, value in enumerate(self.array(key)):
            where = f"{self.where}.{key}[{i}]".strip(".")
            if not isinstance(value, dict):
                raise fail(self.file, where, "an object is needed")
            found.append(Json(self.file, value, where))
        return found

    def _value(self, key: str, default: object) -> Any:
        """What is there; else the default, or LoadError where that is None."""
        if key not in self.value and default is None:
            raise self.fail("is missing", key)
        return self.value.get(key, default)

    def text(self, key: str, default: str | None = None) -> str:
        """A string; the default, or LoadError where that is None, if it is not there."""
        value = self._value(key, default)
        if not isinstance(value, str):
            self._wrong(key, "a string")
        return value

    def flag(self, key: str) -> bool:
        """A boolean, False where it is not there."""
        value = self.value.get(key, False)
        if not isinstance(value, bool):
            self._wrong(key, "true or false")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number that float32 can hold."""
        value = self._value(key, default)
        if not _is_number(value):
            self._wrong(key, "a number")
        return float(value)

    def optional_number(self, key: str) -> float | None:
        """As ``number``; None where it is not there."""
        return self.number(key) if key in self.value else None

    def integer(self, key: str, default: int | None = None, low: int = 0) -> int:
        """An integer of at least ``low``."""
        value = self._value(key, default)
        if not _is_number(value) or value != int(value) or value < low:
            self._wrong(key, f"an integer of at least {low}")
        return int(value)

    def row(self, key: str, table: Sequence[T], name: str) -> int:
        """The number of a row of a table; LoadError where it is out of range."""
        index = self.integer(key)
        if index >= len(table):
            raise self.fail(f"{index} is out of range: there are {len(table)} {name}", key)
        return index

    def optional_row(self, key: str, table: Sequence[T], name: str) -> int | None:
        """As ``row``; None where it is not there."""
        return self.row(key, table, name) if key in self.value else None

    def rows(self, key: str, table: Sequence[T], name: str) -> tuple[int, ...]:
        """A list of numbers of rows."""
        for index in self.array(key):
            if not _is_number(index) or index != int(index):
                self._wrong(key, "a list of integers")
            if not 0 <= index < len(table):
                raise self.fail(f"{index} is out of range: there are {len(table)} {name}", key)
        return tuple(int(index) for index in self.array(key))

    def numbers(
        self, key: str, n: int | None, default: tuple[float, ...] | None = None
    ) -> tuple[float, ...]:
        """``n`` finite numbers (any count for None)."""
        if key not in self.value and default is not None:
            return default
        values = self.array(key)
        if not all(map(_is_number, values)) or (n is not None and len(values) != n):
            self._wrong(key, "a list of numbers" if n is None else f"a list of {n} numbers")
        return tuple(float(value) for value in values)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= _FLOAT32_MAX  # false for NaN


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def parse_json(file: str, data: bytes, where: str) -> Json:
    """The document. Raises LoadError where the bytes are no text, no JSON, or no object."""
    try:
        value = json.loads(decode_text(data, file, where), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:  # of decode too; RecursionError: "[[[[..."
        raise fail(file, where, f"no JSON: {error}") from error
    if not isinstance(value, dict):
        raise fail(file, where, f"no object, but {type(value).__name__}")
    return Json(file, value)


def parse(file: str, data: bytes) -> tuple[Json, bytes | None]:
    """Document and binary chunk (None where there is none) of a .glb or a .gltf, told by content.

    Raises LoadError: truncated, chunks that do not fit, another version of the container, no JSON.
    """
    if data[:4] != b"glTF":
        return parse_json(file, data, "document"), None

    def broken(place: int, problem: str) -> LoadError:
        return fail(file, f"byte {place}", problem)

    if len(data) < 20:
        raise broken(len(data), "truncated: a GLB has a header of 20 bytes")
    version, length = struct.unpack_from("<II", data, 4)
    if version != 2:
        raise broken(4, f"version {version} of GLB is not known, only 2 is")
    if length > len(data):
        raise broken(8, f"truncated: {length} bytes are announced, there are {len(data)}")
    document: Json | None = None
    binary: bytes | None = None
    at, number = 12, 0
    while at + 8 <= length:
        size, kind = struct.unpack_from("<II", data, at)
        if at + 8 + size > length:
            raise broken(at, f"a chunk of {size} bytes does not fit in the {length} of the file")
        body = data[at + 8 : at + 8 + size]
        if number == 0:
            if kind != _CHUNK_JSON:
                raise broken(at + 4, "the first chunk of a GLB must be JSON")
            document = parse_json(file, body, "JSON chunk")
        elif number == 1 and kind == _CHUNK_BIN:
            binary = body
        at, number = at + 8 + size, number + 1
    if document is None:
        raise broken(12, "a GLB without a chunk")
    return document, binary
