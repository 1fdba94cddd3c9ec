"""Coordinates that are no numbers are refused in words, without a warning, whichever NaN it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dressi.errors import LoadError
from dressi.render.io import load_mesh

BITS = {
    "quiet": 0x7FC00000,
    "signaling": 0x7FA00001,
    "negative": 0xFFA00001,
    "infinite": 0x7F800000,
}


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("ending", ["stl", "ply"])
def test_no_number_is_refused_without_a_warning(tmp_path: Path, kind: str, ending: str) -> None:
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], "<f4")
    corners.view("<u4")[1, 1] = BITS[kind]
    if ending == "stl":
        facet = np.zeros(3, "<f4").tobytes() + corners.tobytes() + b"\0\0"
        data = bytes(80) + np.uint32(1).tobytes() + facet
    else:
        head = "ply\nformat binary_little_endian 1.0\nelement vertex 3\n"
        head += "".join(f"property float {c}\n" for c in "xyz")
        head += "element face 1\nproperty list uchar int vertex_indices\nend_header\n"
        face = b"\x03" + np.array([0, 1, 2], "<i4").tobytes()
        data = head.encode() + corners.tobytes() + face
    file = tmp_path / f"a.{ending}"
    file.write_bytes(data)
    with pytest.raises(LoadError):
        load_mesh(file)
