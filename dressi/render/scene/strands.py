"""Strands of hair as plain NumPy data: polylines with a width at every point.

In: points, counts, widths. Out: ``Strands``, and the tables that builders read. A strand runs from
its root to its tip.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dressi.errors import GraphError
from dressi.render.scene.mesh import unit_or_zero


@dataclass(frozen=True, eq=False)
class Strands:
    """Polylines, one behind the other.

    points: (P, 3) float32, world units. counts: (S,) int32, points of each strand, 2 or more; their
    sum is P. widths: thickness in world units, (P,) float32, or one number for all points. Raises
    GraphError for wrong shapes, strands of one point, NaN or infinite values, negative widths.
    """

    points: npt.NDArray[np.float32]
    counts: npt.NDArray[np.int32]
    widths: npt.NDArray[np.float32]
    name: str = "strands"

    def __post_init__(self) -> None:
        where = f"strands '{self.name}'"
        try:
            points = np.ascontiguousarray(self.points, np.float32)
            counts = np.asarray(self.counts)
            widths = np.asarray(self.widths, np.float32)
        except (TypeError, ValueError) as error:
            raise GraphError(f"{where}: points, counts and widths must be numbers") from error
        if points.ndim != 2 or points.shape[1] != 3 or len(points) == 0:
            raise GraphError(f"{where}: points must be (P, 3), not {points.shape}")
        if counts.ndim != 1 or counts.dtype.kind not in "iu":
            raise GraphError(f"{where}: counts must be (S,) integers, not {counts.shape}")
        if len(counts) and counts.min() < 2:
            i = int(counts.argmin())
            raise GraphError(f"{where}: strand {i} has {counts[i]} points, it needs 2 or more")
        if counts.sum(dtype=np.int64) != len(points):
            raise GraphError(f"{where}: counts add up to {counts.sum()}, there are {len(points)}")
        if widths.shape not in ((), (len(points),)):
            raise GraphError(f"{where}: widths must be ({len(points)},), not {widths.shape}")
        _check_finite(where, "point", points)
        widths = np.ascontiguousarray(np.broadcast_to(widths, len(points)))
        _check_finite(where, "width", widths[:, None])
        if widths.min() < 0.0:
            i = int(widths.argmin())
            raise GraphError(f"{where}: width {i} is {widths[i]}, it must not be negative")
        for field, value in (("points", points), ("counts", counts), ("widths", widths)):
            object.__setattr__(self, field, value.astype(np.int32) if field == "counts" else value)

    @property
    def roots(self) -> npt.NDArray[np.int64]:
        """(S,): the row of the first point of each strand."""
        return np.cumsum(self.counts, dtype=np.int64) - self.counts

    @property
    def segments(self) -> npt.NDArray[np.int32]:
        """(P - S, 2): rows of the points that each segment joins, from root to tip."""
        first = np.arange(len(self.points), dtype=np.int32)
        joined = np.ones(len(first), bool)
        joined[self.roots + self.counts - 1] = False
        first = first[joined]
        return np.stack([first, first + 1], axis=1)

    @property
    def neighbors(self) -> npt.NDArray[np.int32]:
        """(P, 2): rows of the points before and behind each one, its own at the ends."""
        before = np.arange(len(self.points), dtype=np.int32) - 1
        behind = before + 2
        before[self.roots] += 1
        behind[self.roots + self.counts - 1] -= 1
        return np.stack([before, behind], axis=1)

    @property
    def parameters(self) -> npt.NDArray[np.float32]:
        """(P,): 0 at the root, 1 at the tip, by points."""
        k = np.arange(len(self.points)) - np.repeat(self.roots, self.counts)
        return (k / np.repeat(self.counts - 1, self.counts)).astype(np.float32)

    @property
    def tangents(self) -> npt.NDArray[np.float32]:
        """(P, 3): unit, towards the tip; 0 where neighbours are one place."""
        before, behind = self.neighbors.T
        along = self.points[behind].astype(np.float64) - self.points[before]
        return unit_or_zero(along).astype(np.float32)

    def moved(self, matrix: npt.ArrayLike) -> Strands:
        """Return the strands in another space. matrix: (4, 4); widths are scaled by the cube root
        of its determinant."""
        m = np.asarray(matrix, np.float64)
        points = self.points.astype(np.float64) @ m[:3, :3].T + m[:3, 3]
        scale = abs(float(np.linalg.det(m[:3, :3]))) ** (1.0 / 3.0)
        widths = (self.widths * scale).astype(np.float32)
        return Strands(points.astype(np.float32), self.counts, widths, self.name)

    def subset(self, rows: npt.ArrayLike) -> Strands:
        """Return some of the strands, in the order of rows: (n,) integers. Raises GraphError for
        rows out of range, and for none at all."""
        chosen = np.asarray(rows, np.int64).reshape(-1)
        if not len(chosen) or chosen.min() < 0 or chosen.max() >= len(self.counts):
            raise GraphError(f"strands '{self.name}': rows must lie in [0, {len(self.counts)})")
        n = self.counts[chosen]
        start = np.repeat(self.roots[chosen] - (np.cumsum(n) - n), n)
        points = start + np.arange(n.sum())
        return Strands(self.points[points], n, self.widths[points], self.name)


def _check_finite(where: str, what: str, table: npt.NDArray[np.float32]) -> None:
    bad = ~np.isfinite(table).all(axis=1)
    if bad.any():
        i = int(bad.argmax())
        raise GraphError(f"{where}: {what} {i} is not finite: {table[i].tolist()}")
