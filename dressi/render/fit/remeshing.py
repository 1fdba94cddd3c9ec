"""Remeshing between the rounds of a fit: a new mesh of the same surface with even triangles.

In: a mesh and an edge length, or one per vertex. Out: another mesh, after Botsch and Kobbelt 2004:
edges are split, collapsed and flipped, vertices move within the surface, then back onto it. One
length is the work of gpytoolbox (the extra ``remesh``), lengths per vertex that of ``edits`` and
``relaxation``. A library that stops the process at a mesh it cannot take is no good in a notebook,
so meshes are checked first and the answer afterwards.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dressi.errors import DressiError, GraphError
from dressi.render.fit.edits import (
    WorkingSurface,
    collapse_short,
    flip_uneven,
    split_long,
    with_creases,
)
from dressi.render.fit.relaxation import Reference, onto, relaxed
from dressi.render.scene import Mesh, area_normals, surface_area, weld
from dressi.render.scene.half_edges import EdgeTable
from dressi.render.scene.mesh import int32_indices

MAX_FACES = 2_000_000
"""Largest mesh that is asked for: an edge length given in the wrong unit would fill the memory."""


def mean_edge_length(mesh: Mesh) -> float:
    """Mean length over the edges of faces (an edge of two faces counts twice), world units."""
    corners = mesh.positions[mesh.faces].astype(np.float64)
    return float(np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).mean())


def remesh(
    mesh: Mesh,
    target_edge_length: float | npt.ArrayLike,
    iterations: int = 10,
    sharp_angle_deg: float | None = 50.0,
) -> Mesh:
    """The same surface with edges of about one length, or of one length per vertex.

    mesh: closed or with borders, whose vertices stay as they are; two faces at most at an edge,
    turned alike. Vertices at the same place (see ``weld``) become one; lone vertices and faces
    without area are dropped. UVs are dropped too: triangles of the result lie across the seams of
    the old charts; paint a texture after the last remeshing, with new UVs. target_edge_length:
    world units, above 0: one number, or (V,) per vertex of the mesh, see
    ``adaptive_edge_lengths``. iterations: rounds of splitting, collapsing and flipping, at least 1.
    Vertex numbers change: the leaves, Laplacians and the optimizer's state have to be made anew.

    One number is the work of gpytoolbox. Lengths per vertex need no extra: edges are split,
    collapsed and flipped (``edits``), vertices move within the surface and back onto the input
    (``relaxation``), and what would turn a face by more than 60 degrees is not done.
    sharp_angle_deg, for these: edges whose faces' normals differ by more stay edges; None: no such.

    Raises DressiError where gpytoolbox is not installed or gives back what is no mesh, GraphError
    for a bad mesh (named: which edge has three faces) or bad numbers.
    """
    mesh.check()
    if iterations < 1:
        raise GraphError(f"remesh: iterations must be at least 1, got {iterations}")
    if np.ndim(target_edge_length) > 0:
        return _by_lengths(mesh, target_edge_length, iterations, sharp_angle_deg)
    length = float(np.asarray(target_edge_length))
    if not (np.isfinite(length) and length > 0.0):
        raise GraphError(f"remesh: target_edge_length must be > 0, got {length}")
    positions, faces, _ = _cleaned(mesh)
    # An even triangle of side h has the area sqrt(3) / 4 h^2.
    _check_count(mesh, surface_area(positions, faces) / (0.4330127 * length**2), length)
    try:
        with warnings.catch_warnings():  # it imports old names of SciPy
            warnings.simplefilter("ignore", DeprecationWarning)
            from gpytoolbox import remesh_botsch
    except ImportError as error:
        raise DressiError(
            f"remesh needs gpytoolbox: pip install 'dressi[remesh]' ({error})"
        ) from error
    try:
        made, triangles = remesh_botsch(positions, faces, int(iterations), length)
    except (RuntimeError, ValueError) as error:
        raise DressiError(f"remesh: gpytoolbox cannot remesh '{mesh.name}': {error}") from error
    result = Mesh(np.asarray(made), np.asarray(triangles), name=mesh.name)
    try:
        return result.check()
    except GraphError as error:
        raise DressiError(
            f"remesh: gpytoolbox gave no mesh for '{mesh.name}': {error.reason}"
        ) from error


def _check_count(mesh: Mesh, expected: float, length: float) -> None:
    """Raise GraphError unless the number of faces to come is possible."""
    if not 4.0 <= expected <= MAX_FACES:
        raise GraphError(
            f"remesh: edges of {length:.4g} on '{mesh.name}' make about {expected:.3g} "
            f"faces, 4 to {MAX_FACES} are allowed; its mean edge is {mean_edge_length(mesh):.4g}"
        )


def _by_lengths(
    mesh: Mesh, lengths: npt.ArrayLike, iterations: int, sharp_angle_deg: float | None
) -> Mesh:
    """``remesh`` with a length per vertex."""
    wanted = np.asarray(lengths, np.float64)
    if wanted.shape != (len(mesh.positions),):
        raise GraphError(
            f"remesh: target_edge_length must be a number or ({len(mesh.positions)},), one per "
            f"vertex, got {wanted.shape}"
        )
    if not (np.isfinite(wanted) & (wanted > 0.0)).all():
        i = int((~(np.isfinite(wanted) & (wanted > 0.0))).argmax())
        raise GraphError(f"remesh: target_edge_length of vertex {i} must be > 0, got {wanted[i]}")
    if sharp_angle_deg is not None and not 0.0 < sharp_angle_deg <= 180.0:
        raise GraphError(f"remesh: sharp_angle_deg must be in (0, 180], got {sharp_angle_deg}")
    positions, faces, used = _cleaned(mesh)
    wanted, index = wanted[used], faces.astype(np.int64)
    area = np.linalg.norm(area_normals(positions, faces), axis=1)
    expected = float((area / (0.4330127 * wanted[index].mean(axis=1) ** 2)).sum())
    _check_count(mesh, expected, float(np.median(wanted)))
    none = np.zeros(0, np.int64)
    surface = WorkingSurface(positions, index, wanted, np.zeros(len(positions), np.int64), none)
    surface = with_creases(surface, sharp_angle_deg)
    n = len(positions)
    creases = np.stack([surface.creases // n, surface.creases % n], axis=1)
    reference = Reference(positions, index, wanted, creases)
    surface = _coarsened(surface, 0.5 * expected)
    for _ in range(iterations):
        surface = relaxed(flip_uneven(collapse_short(split_long(surface))))
        surface = onto(surface, reference)
    return Mesh(
        surface.positions.astype(np.float32), int32_indices("faces", surface.faces), name=mesh.name
    ).check()


def _coarsened(surface: WorkingSurface, n_vertices: float) -> WorkingSurface:
    """A much finer surface than wanted, made coarser; on the way it need not be the input's."""
    before = np.inf
    # Shorter than wanted: collapses leave edges of up to 4/3, which later rounds would not split.
    surface = replace(surface, lengths=0.75 * surface.lengths)
    while 1.5 * n_vertices < len(surface.positions) < 0.9 * before:
        before = float(len(surface.positions))
        surface = relaxed(flip_uneven(collapse_short(surface), 2))
    return replace(surface, lengths=surface.lengths / 0.75)


def _cleaned(
    mesh: Mesh,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Welded positions (float64, contiguous), faces with area, and the vertices that they are.

    Raises GraphError (edges).
    """
    faces = weld(mesh.positions, mesh.faces)[mesh.faces]
    faces = faces[np.linalg.norm(area_normals(mesh.positions, faces), axis=1) > 0.0]
    if len(faces) == 0:
        raise GraphError(f"remesh: mesh '{mesh.name}' has no face with an area")
    used, index = np.unique(faces, return_inverse=True)
    faces = np.reshape(index, (-1, 3)).astype(np.int64)
    table = EdgeTable.of(faces)
    faults = (
        ("more than two faces", table.edges[table.count > 2]),
        ("faces turned two ways", table.edges[table.turned]),
    )
    for what, bad in faults:
        if len(bad):
            a, b = used[bad[0]].tolist()
            raise GraphError(
                f"remesh: {len(bad)} edges of mesh '{mesh.name}' have {what}; the first is between "
                f"vertices {a} and {b}"
            )
    if len(np.unique(table.edges[table.count == 1])) == len(used):
        raise GraphError(
            f"remesh: all vertices of mesh '{mesh.name}' lie on borders, which stay as they are; "
            "subdivide it first"
        )
    positions = np.ascontiguousarray(mesh.positions[used], np.float64)
    return positions, faces.astype(np.int32), used.astype(np.int64)
