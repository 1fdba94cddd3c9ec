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
        directed = faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2).astype(np.int64)
        ascending = np.sort(directed, axis=1)
        n = int(ascending.max(initial=0)) + 1
        key, edge, count = np.unique(
            ascending[:, 0] * n + ascending[:, 1], return_inverse=True, return_counts=True
        )
        forward = np.bincount(edge, directed[:, 0] < directed[:, 1], minlength=len(key))
        by_edge = np.argsort(edge, kind="stable")
        start = (np.cumsum(count) - count)[count == 2]
        return EdgeTable(
            np.stack([key // n, key % n], axis=1),
            edge,
            count,
            (count == 2) & (forward != 1),
            np.stack([by_edge[start], by_edge[start + 1]], axis=1),
        )
