"""Edges of triangles, with the faces at each: what checks and edits of a surface walk over.

In: faces. Out: an ``EdgeTable``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class EdgeTable:
    """Edges of faces. Half-edge 3 f + k goes from corner k of face f to the next one.

    edges: (E, 2), lower vertex first. edge: (3 F,), of each half-edge. count: (E,), faces at each.
    turned: (E,) bool, two faces that run along it in one direction. half_edges: (P, 2), those of
    edges with two faces.
    """

    edges: Ints
    edge: Ints
    count: Ints
    turned: npt.NDArray[np.bool_]
    half_edges: Ints

    @staticmethod
    def of(faces: npt.NDArray[np.integer]) -> EdgeTable:
        """Return the table of faces (F, 3), whose corners are three vertices."""
        corners = faces.astype(np.int64)
        start, end = corners.ravel(), np.take(corners, [1, 2, 0], axis=1).ravel()
        low, high = np.minimum(start, end), np.maximum(start, end)
        key = low * (int(high.max(initial=0)) + 1) + high
        # The one sort of it all: faces that are neighbours have near numbers, and runs help it.
        by_edge = np.argsort(key, kind="stable")
        along = key[by_edge]
        first = np.flatnonzero(np.concatenate([[True], along[1:] != along[:-1]])[: len(key)])
        count = np.diff(first, append=len(key))
        edge = np.empty(len(key), np.int64)
        edge[by_edge] = np.repeat(np.arange(len(first)), count)
        forward = np.bincount(edge, start < end, minlength=len(first))
        one, whole = by_edge[first], first[count == 2]
        return EdgeTable(
            np.stack([low[one], high[one]], axis=1),
            edge,
            count,
            (count == 2) & (forward != 1),
            np.stack([by_edge[whole], by_edge[whole + 1]], axis=1),
        )
