"""The elements of a PLY file as tables: header, ASCII and binary bodies of both byte orders.

In: a path. Out: ``Element`` by name. Counts of the header are held against the size of the file
before memory is taken; where a file ends too early, the element and its row are named.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dressi.errors import LoadError
from dressi.render.io.sources import PathLike, decode_text, fail, read_file

_TYPES = {
    **{"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4"},
    **{"float": "f4", "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2"},
    **{"int32": "i4", "uint32": "u4", "float32": "f4", "float64": "f8"},
}
Order = Literal["", "<", ">"]
_FORMATS: dict[str, Order] = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_MAX_HEADER = 1 << 20


@dataclass(frozen=True)
class Property:
    """One property. list_type: NumPy type of the count, where it is a list."""

    name: str
    type: np.dtype[Any]
    list_type: np.dtype[Any] | None = None


@dataclass(frozen=True, eq=False)
class Lists:
    """A list property. counts: (rows,) int64. values: those of all rows, one after the other."""

    counts: npt.NDArray[np.int64]
    values: npt.NDArray[Any]


@dataclass(eq=False)
class Element:
    """One element. scalars: float64 or integer columns by name. types: as the header says."""

    name: str
    count: int
    properties: list[Property] = field(default_factory=list)
    scalars: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    lists: dict[str, Lists] = field(default_factory=dict)

    def put(self, p: Property, values: npt.NDArray[Any], counts: npt.ArrayLike) -> None:
        """Store values of all rows of a property, and where it is a list, how many each row has."""
        if p.list_type is None:
            self.scalars[p.name] = values
        else:
            self.lists[p.name] = Lists(np.array(counts, np.int64), values)

    @property
    def types(self) -> dict[str, np.dtype[Any]]:
        """The type of each scalar property."""
        return {p.name: p.type for p in self.properties if p.list_type is None}


def read_elements(path: PathLike) -> tuple[dict[str, Element], list[str]]:
    """The elements of a file by name, and the comments of its header. Raises LoadError."""
    file = os.fspath(path)
    data = read_file(path, file)
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):  # only a text can be of UTF-16
        data = decode_text(data, file).encode()
    data = data.removeprefix(b"\xef\xbb\xbf")
    head = data[:_MAX_HEADER]
    end = re.search(rb"(?:^|[\r\n])end_header[ \t]*(\r\n|\r|\n|$)", head)
    if not data.startswith(b"ply") or end is None:
        raise LoadError(f"{file}: no PLY: it needs 'ply' first and 'end_header'", file, "header")
    header = decode_text(head[: end.start()], file)
    order, elements = _header(file, header, len(data))
    body = data[end.end() :]
    if order == "":
        _read_ascii(file, decode_text(body, file), elements)
    else:
        at = 0
        for element in elements:
            at = _read_binary(file, body, at, element, order)
    comments = [line[7:].strip() for line in header.split("\n") if line.startswith("comment")]
    return {element.name: element for element in elements}, comments


def _header(file: str, text: str, size: int) -> tuple[Order, list[Element]]:
    """The byte order ("" for ASCII) and the elements, still empty."""
    order: Order | None = None
    elements: list[Element] = []
    for number, line in enumerate(text.split("\n")[1:], 2):
        words = line.split()
        problem = ""
        if words[:1] == ["format"]:
            order = _FORMATS.get(words[1]) if len(words) > 1 else None
            problem = "" if order is not None else f"none of {', '.join(_FORMATS)}"
        elif words[:1] == ["element"]:
            if len(words) != 3 or not words[2].isdecimal() or int(words[2]) > size:
                problem = f"in a file of {size} bytes"
            elif any(e.name == words[1] for e in elements):
                problem = "is there twice"
            else:
                elements.append(Element(words[1], int(words[2])))
        elif words[:1] == ["property"]:
            made = _property(words[1:])
            if made is None or not elements:
                problem = "is no property of an element"
            elif any(p.name == made.name for p in elements[-1].properties):
                problem = "is there twice"
            else:
                elements[-1].properties.append(made)
        elif words and words[0] not in ("comment", "obj_info"):
            problem = "is not known"
        if problem:
            raise fail(file, "header", f"line {number}: {line[:60]!r}: {problem}")
    if order is None:
        raise fail(file, "header", "there is no line 'format'")
    return order, elements


def _property(words: list[str]) -> Property | None:
    kinds, is_list = [_TYPES.get(word) for word in words[:-1]], words[:1] == ["list"]
    kinds = kinds[1:] if is_list else kinds
    if len(kinds) != 1 + is_list or None in kinds:
        return None
    found = [np.dtype(str(kind)) for kind in kinds]
    if is_list and found[0].kind == "f":
        return None
    return Property(words[-1], found[-1], found[0] if is_list else None)


def _cut(file: str, element: Element, row: int) -> LoadError:
    where = f"{element.name} {row}"
    text = f"{file}: truncated: no ply with {element.count} of {element.name}: it ends in {where}"
    return LoadError(text, file, where)


def _read_binary(file: str, body: bytes, at: int, element: Element, order: Order) -> int:
    """Fill one element from byte ``at`` on; returns where it ends."""
    if not element.properties or not element.count:
        return at
    end, table = _even_rows(file, body, at, element, order)
    if table is None:
        return _read_rows(file, body, at, element, order)
    for k, p in enumerate(element.properties):
        values = _native(table[f"values {k}"])
        n = values.shape[1] if values.ndim == 2 else 1
        element.put(p, values.ravel(), np.full(element.count, n))
    return end


def _even_rows(
    file: str, body: bytes, start: int, element: Element, order: Order
) -> tuple[int, npt.NDArray[Any] | None]:
    """Where the element ends, and its rows as a table.

    None where lists differ in length from row to row: most files hold lists of one length only.
    """
    fields: list[tuple[Any, ...]] = []
    counts: dict[int, int] = {}
    at = start
    for k, p in enumerate(element.properties):
        shape: tuple[int, ...] = ()
        if p.list_type is not None:
            kind, here = p.list_type.newbyteorder(order or "="), at
            at += kind.itemsize
            counts[k] = int(np.frombuffer(body, kind, 1, here)[0]) if at <= len(body) else -1
            if counts[k] < 0 or counts[k] * p.type.itemsize > len(body) - here:
                raise _cut(file, element, 0)
            fields.append((f"count {k}", kind))
            shape = (counts[k],)
        fields.append((f"values {k}", p.type.newbyteorder(order or "="), shape))
        at += counts.get(k, 1) * p.type.itemsize
    size = at - start
    end = start + element.count * size
    if end > len(body) and not counts:
        raise _cut(file, element, (len(body) - start) // size)
    if end > len(body) or size >= 2**31:
        return start, None
    table = np.frombuffer(body, np.dtype(fields), element.count, start)
    even = all((table[f"count {k}"] == count).all() for k, count in counts.items())
    return end, table if even else None


def _read_rows(file: str, body: bytes, at: int, element: Element, order: Order) -> int:
    """As ``_read_binary``, row by row, for lists of different lengths."""
    kinds = [
        (p.type.newbyteorder(order or "="), p.list_type and p.list_type.newbyteorder(order or "="))
        for p in element.properties
    ]
    parts: list[list[bytes]] = [[] for _ in kinds]
    counts: list[list[int]] = [[] for _ in kinds]
    byte_order: Literal["little", "big"] = "little" if order == "<" else "big"
    for row in range(element.count):
        for k, (kind, list_kind) in enumerate(kinds):
            n = 1
            if list_kind is not None:
                head = body[at : at + list_kind.itemsize]
                n = int.from_bytes(head, byte_order, signed=list_kind.kind == "i")
                at += list_kind.itemsize
            counts[k].append(n)
            end = at + n * kind.itemsize
            if n < 0 or end > len(body):
                raise _cut(file, element, row)
            parts[k].append(body[at:end])
            at = end
    for k, p in enumerate(element.properties):
        element.put(p, _native(np.frombuffer(b"".join(parts[k]), kinds[k][0])), counts[k])
    return at


def _native(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    with np.errstate(invalid="ignore"):  # a signaling NaN is refused later, where it matters
        return values.astype(np.float64 if values.dtype.kind == "f" else np.int64)


def _read_ascii(file: str, text: str, elements: list[Element]) -> None:
    """Fill all elements: one row a line; empty lines and comments are passed over."""
    lines = [line for line in text.split("\n") if line and not line.isspace()]
    lines = [line for line in lines if not line.lstrip().startswith("comment")]
    at = 0
    for element in elements:
        if not element.properties:
            continue
        rows = [line.split() for line in lines[at : at + element.count]]
        if len(rows) < element.count:
            raise _cut(file, element, len(rows))
        at += element.count
        is_table = all(p.list_type is None for p in element.properties)
        (_ascii_table if is_table else _ascii_lists)(file, element, rows)


def _number(file: str, element: Element, row: int, word: str) -> float:
    try:
        return float(word)
    except ValueError as error:
        raise fail(file, f"{element.name} {row}", f"'{word[:40]}' is no number") from error


def _ascii_table(file: str, element: Element, rows: list[list[str]]) -> None:
    n = len(element.properties)
    for i, row in enumerate(rows):
        if len(row) < n:
            problem = f"{n} numbers are expected, got {len(row)}: truncated ply?"
            raise fail(file, f"{element.name} {i}", problem)
    try:
        # float() first: NumPy takes three times as long to read strings.
        table = np.array([list(map(float, row[:n])) for row in rows], np.float64).reshape(-1, n)
    except ValueError:
        for i, row in enumerate(rows):
            for word in row[:n]:
                _number(file, element, i, word)
        raise
    for k, p in enumerate(element.properties):
        element.put(p, _whole(file, element, p, table[:, k]), ())


def _whole(
    file: str, element: Element, p: Property, values: npt.NDArray[np.float64]
) -> npt.NDArray[Any]:
    """Values as int64 where the header says integers."""
    if p.type.kind == "f":
        return values
    bad = ~((np.abs(values) < 2**53) & (values == np.rint(values)))
    if bad.any():
        problem = f"{values[int(bad.argmax())]} is no {p.type.name}"
        raise fail(file, f"{element.name}.{p.name}", problem)
    return values.astype(np.int64)


def _ascii_lists(file: str, element: Element, rows: list[list[str]]) -> None:
    columns: list[list[float]] = [[] for _ in element.properties]
    counts: list[list[int]] = [[] for _ in element.properties]
    for i, words in enumerate(rows):
        at = 0
        for k, p in enumerate(element.properties):
            n = 1
            if p.list_type is not None:
                if at >= len(words) or not words[at].isdecimal():
                    problem = f"{p.name}: a count is expected: truncated ply?"
                    raise fail(file, f"{element.name} {i}", problem)
                n, at = int(words[at]), at + 1
            counts[k].append(n)
            if at + n > len(words):
                problem = f"{p.name}: {n} numbers are expected: truncated ply?"
                raise fail(file, f"{element.name} {i}", problem)
            columns[k] += [_number(file, element, i, word) for word in words[at : at + n]]
            at += n
    for k, p in enumerate(element.properties):
        values = _whole(file, element, p, np.array(columns[k], np.float64))
        element.put(p, values, counts[k])
