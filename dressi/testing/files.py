"""Good files, small, one of each format that is read."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from dressi.render.io.exr import encode_exr
from dressi.render.io.hdr import encode_hdr
from dressi.render.scene.mesh import icosphere
from dressi.testing.malformed_cases import embedded, glb, good, png


def good_files() -> dict[str, bytes]:
    """Return the files by name."""
    document, buffer = good()
    ball = icosphere(1)
    pixels = np.linspace(0.0, 4.0, 9 * 12 * 3).reshape(9, 12, 3).astype(np.float32)
    points, faces = ball.positions, ball.faces
    obj = "".join(f"v {x:.6g} {y:.6g} {z:.6g}\n" for x, y, z in points.tolist())
    obj += "vt 0 0\nvt 1 0\nvt 0 1\nusemtl a\n"
    obj += "".join(f"f {a + 1}/1 {b + 1}/2 {c + 1}/3\n" for a, b, c in faces.tolist())
    head = "ply\nformat {} 1.0\nelement vertex 42\n"
    head += "".join(f"property float {axis}\n" for axis in "xyz")
    head += "element face 80\nproperty list uchar int vertex_indices\nend_header\n"
    rows = np.zeros(80, [("n", "u1"), ("i", "<i4", 3)])
    rows["n"], rows["i"] = 3, faces
    text = "".join("{:.6g} {:.6g} {:.6g}\n".format(*p) for p in points.tolist())
    text += "".join("3 {} {} {}\n".format(*f) for f in faces.tolist())
    facets = np.zeros(80, [("f", "<f4", 12), ("a", "<u2")])
    facets["f"][:, 3:] = points[faces].reshape(80, 9)
    stream = io.BytesIO()
    Image.fromarray((pixels * 60).astype(np.uint8)).save(stream, format="JPEG")
    binary = head.format("binary_little_endian").encode()
    return {
        "a.glb": glb(document, buffer),
        "a.gltf": embedded(document, buffer),
        "a.obj": obj.encode(),
        "a.png": png(),
        "b.png": png(2, 2, 16),
        "a.jpg": stream.getvalue(),
        "a.hdr": encode_hdr(pixels),
        "a.exr": encode_exr(pixels),
        "a.ply": binary + points.astype("<f4").tobytes() + rows.tobytes(),
        "b.ply": (head.format("ascii") + text).encode(),
        "a.stl": b"\0" * 80 + np.uint32(80).tobytes() + facets.tobytes(),
    }
