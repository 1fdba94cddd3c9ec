"""What glTF compresses by libraries: geometry by Draco and meshopt, pictures by Basis Universal.

In: the objects of ``KHR_draco_mesh_compression`` and ``EXT_meshopt_compression`` and their bytes.
Out: values of accessors, bytes of buffer views (pictures: ``ktx2``). The packages are extras: the
error that names the extension says which.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
import numpy.typing as npt

from dressi.render.io.gltf_json import Json

DRACO, MESHOPT = "KHR_draco_mesh_compression", "EXT_meshopt_compression"

BASIS = "KHR_texture_basisu"

EXTRAS = {
    DRACO: ("DracoPy", "draco"),
    MESHOPT: ("meshoptimizer", "meshopt"),
    BASIS: ("opengl_basisu", "basis"),
}
"""Extension -> (module, extra of this package)."""

Values = npt.NDArray[Any]


def readable(extension: str) -> bool:
    """Whether the package that an extension needs is installed."""
    return extension in EXTRAS and importlib.util.find_spec(EXTRAS[extension][0]) is not None


def how_to_read(extension: str) -> str:
    """Return what to install, or '' for an extension that no package here reads."""
    if extension not in EXTRAS:
        return ""
    module, extra = EXTRAS[extension]
    return f"needs {module}: pip install 'dressi[{extra}]'"


def draco_values(extension: Json, data: bytes) -> tuple[dict[str, Values], Values]:
    """Return the attributes (V, n) of a Draco mesh by their glTF names, and its indices (3 F, 1).

    extension: of the primitive. Raises LoadError: bytes that are no Draco mesh, attributes that it
    does not have. Source: KHR_draco_mesh_compression.
    """
    draco = importlib.import_module("DracoPy")
    try:
        mesh = draco.decode(data)
    except Exception as error:  # it raises several kinds of its own
        raise extension.fail(f"cannot be decoded: {error}") from error
    faces = getattr(mesh, "faces", None)
    if faces is None or len(faces) == 0:
        raise extension.fail("holds no triangles")
    known = {a["unique_id"]: a["data"] for a in mesh.attributes}
    wanted = extension.need("attributes")
    found = {}
    for name in wanted.value:
        number = wanted.integer(name)
        if number not in known:
            raise wanted.fail(f"there is no attribute {number}", name)
        values = np.asarray(known[number])
        found[name] = values.reshape(len(values), -1)
    return found, np.asarray(faces, np.uint32).reshape(-1, 1)


def meshopt_bytes(extension: Json, data: bytes) -> bytes:
    """Return the bytes of a buffer view.

    extension: of the view; data: the bytes that it names. Raises LoadError for unknown modes and
    filters, and bytes that are no such data. Source: EXT_meshopt_compression.
    """
    count, stride = extension.integer("count", low=1), extension.integer("byteStride", low=1)
    mode, filtered = extension.text("mode"), extension.text("filter", "NONE")
    if not readable(MESHOPT):
        raise extension.fail(how_to_read(MESHOPT))
    meshopt = importlib.import_module("meshoptimizer")
    filters = {
        "OCTAHEDRAL": meshopt.decode_filter_oct,
        "QUATERNION": meshopt.decode_filter_quat,
        "EXPONENTIAL": meshopt.decode_filter_exp,
    }
    indices = {"TRIANGLES": "decode_index_buffer", "INDICES": "decode_index_sequence"}
    if mode != "ATTRIBUTES" and mode not in indices:
        raise extension.fail(f"{mode!r} is none of ATTRIBUTES, {', '.join(indices)}", "mode")
    if filtered != "NONE" and (filtered not in filters or mode != "ATTRIBUTES"):
        raise extension.fail(f"{filtered!r} is no filter of {mode}", "filter")
    if mode != "ATTRIBUTES" and stride not in (2, 4):
        raise extension.fail(f"indices have 2 or 4 bytes, not {stride}", "byteStride")
    try:
        if mode == "ATTRIBUTES":
            rows = np.dtype((np.void, stride))
            values = meshopt.decode_vertex_buffer(count, stride, data, rows)
            if filtered != "NONE":
                values = filters[filtered](values, count, stride)
        else:  # the package makes room for 4 bytes each, and fills the front of it
            values = getattr(meshopt, indices[mode])(count, stride, data)
    except (RuntimeError, ValueError) as error:
        raise extension.fail(f"cannot be decoded: {error}") from error
    return values.tobytes()[: count * stride]
