"""The head model that ``dressi experiment face`` fits: the skin of ICT-FaceKit.

In: its file of arrays. Out: ``HeadModel``: mean, identities and expressions of the vertices of the
skin, triangles, UVs in one atlas, and 68 landmarks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dressi.apps.data.heads import ICT_SKIN, ict_arrays, made_of, triangles

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int32]

ARRAYS = (
    "neutral",
    "faces",
    "uv",
    "uv_faces",
    "material",
    "material_names",
    "identity",
    "expression",
    "expression_names",
    "step",
    "landmarks68",
)
"""Of the file. The two unit squares of the skin's UVs lie side by side: an atlas of 2 x 1."""

LEFT_OUT = ("Pupil", "eyeLook")
"""Expressions that belong to the eyeballs, which are no part of the skin."""

JAW = slice(0, 17)
"""Landmarks along the jaw: what looks like its outline slides over the skin as the head turns."""

TURNED_DEG = 15.0
"""Yaw beyond which the landmarks of the jaw do not count."""


@dataclass(frozen=True, eq=False)
class HeadModel:
    """mean: (V, 3), cm, +z to the front, +y up. identity: (K, V, 3), cm per standard deviation.
    expression: (E, V, 3), cm at weight 1; weights lie in [0, 1]. names: of the expressions. faces:
    (F, 3). uv: (T, 2) in [0, 1], v down; uv_faces: (F, 3), rows of uv. landmarks: (68,), rows of
    the mean, in the order of iBUG."""

    mean: Floats
    identity: Floats
    expression: Floats
    names: tuple[str, ...]
    faces: Rows
    uv: Floats
    uv_faces: Rows
    landmarks: Rows

    @property
    def basis(self) -> Floats:
        """(K + E, 1, V, 3): identities, then expressions, as a stack of tables."""
        return np.concatenate([self.identity, self.expression])[:, None]


def head_model(path: str | Path, n_identities: int) -> HeadModel:
    """Return the skin of the ICT head. n_identities: of its 100. Raises LoadError for a file that
    is no ICT head."""
    found = ict_arrays(path, *ARRAYS)
    rows = np.concatenate([np.flatnonzero(made_of(found, [name], path)) for name in ICT_SKIN])
    mean, landmarks = found["neutral"], found["landmarks68"]
    step = np.float32(found["step"])
    labels = [str(name) for name in found["expression_names"]]
    kept = [k for k, name in enumerate(labels) if not name.startswith(LEFT_OUT)]
    used, faces = np.unique(triangles(found["faces"][rows]), return_inverse=True)
    # A unit square per material, the second one beside the first.
    uv_used, uv_faces = np.unique(triangles(found["uv_faces"][rows]), return_inverse=True)
    places = found["uv"][uv_used].astype(np.float64) * (1.0 / len(ICT_SKIN), 1.0)
    places[:, 1] = 1.0 - places[:, 1]
    row_of = np.full(len(mean), -1)
    row_of[used] = np.arange(len(used))
    return HeadModel(
        mean[used].astype(np.float32),
        found["identity"][:n_identities, used] * step,
        found["expression"][np.ix_(kept, used)] * step,
        tuple(labels[k] for k in kept),
        faces.reshape(-1, 3).astype(np.int32),
        places.astype(np.float32),
        uv_faces.reshape(-1, 3).astype(np.int32),
        row_of[landmarks].astype(np.int32),
    )
