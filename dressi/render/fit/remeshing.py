"""Remeshing between the rounds of a fit: a new mesh of the same surface with even triangles.

In: a mesh and an edge length. Out: another mesh. The work is done by gpytoolbox (the extra
``remesh``), after Botsch and Kobbelt 2004: edges are split, collapsed and flipped, vertices move
within the surface, then back onto it. A library that stops the process at a mesh it cannot take is
no good in a notebook, so meshes are checked first and the answer afterwards.
"""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from dressi.errors import DressiError, GraphError
from dressi.render.scene import Mesh, area_normals, surface_area, weld

MAX_FACES = 2_000_000
"""Largest mesh that is asked for: an edge length given in the wrong unit would fill the memory."""


def mean_edge_length(mesh: Mesh) -> float:
    """Mean length over the edges of faces (an edge of two faces counts twice), world units."""
    corners = mesh.positions[mesh.faces].astype(np.float64)
    return float(np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).mean())


def remesh(mesh: Mesh, target_edge_length: float, iterations: int = 10) -> Mesh:
    """The same surface with edges of about one length.

    mesh: closed or with borders, whose vertices stay as they are; two faces at most at an edge,
    turned alike. Vertices at the same place (see ``weld``) become one; lone vertices and faces
    without area are dropped. UVs are dropped too: triangles of the result lie across the seams of
    the old charts; paint a texture after the last remeshing, with new UVs. target_edge_length:
    world units, above 0. iterations: rounds of splitting, collapsing and flipping, at least 1.
    Vertex numbers change: the leaves, Laplacians and the optimizer's state have to be made anew.

    Raises DressiError where gpytoolbox is not installed or gives back what is no mesh, GraphError
    for a bad mesh (named: which edge has three faces) or bad numbers.
    """
    mesh.check()
    if not (np.isfinite(target_edge_length) and target_edge_length > 0.0):
        raise GraphError(f"remesh: target_edge_length must be > 0, got {target_edge_length}")
    if iterations < 1:
        raise GraphError(f"remesh: iterations must be at least 1, got {iterations}")
    positions, faces = _cleaned(mesh)
    # An even triangle of side h has the area sqrt(3) / 4 h^2.
    expected = surface_area(positions, faces) / (0.4330127 * target_edge_length**2)
    if not 4.0 <= expected <= MAX_FACES:
        raise GraphError(
            f"remesh: edges of {target_edge_length:.4g} on '{mesh.name}' make about {expected:.3g} "
            f"faces, 4 to {MAX_FACES} are allowed; its mean edge is {mean_edge_length(mesh):.4g}"
        )
    try:
        with warnings.catch_warnings():  # it imports old names of SciPy
            warnings.simplefilter("ignore", DeprecationWarning)
            from gpytoolbox import remesh_botsch
    except ImportError as error:
        raise DressiError(
            f"remesh needs gpytoolbox: pip install 'dressi[remesh]' ({error})"
        ) from error
    try:
        made, triangles = remesh_botsch(
            positions, faces, int(iterations), float(target_edge_length)
        )
    except (RuntimeError, ValueError) as error:
        raise DressiError(f"remesh: gpytoolbox cannot remesh '{mesh.name}': {error}") from error
    result = Mesh(np.asarray(made), np.asarray(triangles), name=mesh.name)
    try:
        return result.check()
    except GraphError as error:
        raise DressiError(
            f"remesh: gpytoolbox gave no mesh for '{mesh.name}': {error.reason}"
        ) from error


def _cleaned(mesh: Mesh) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]:
    """Welded positions (float64, contiguous) and faces with area. Raises GraphError (edges)."""
    faces = weld(mesh.positions, mesh.faces)[mesh.faces]
    faces = faces[np.linalg.norm(area_normals(mesh.positions, faces), axis=1) > 0.0]
    if len(faces) == 0:
        raise GraphError(f"remesh: mesh '{mesh.name}' has no face with an area")
    used, index = np.unique(faces, return_inverse=True)
    faces = np.reshape(index, (-1, 3)).astype(np.int64)
    directed = faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2)
    pairs, count = np.unique(np.sort(directed, axis=1), axis=0, return_counts=True)
    ways, same = np.unique(directed, axis=0, return_counts=True)
    faults = (("more than two faces", pairs[count > 2]), ("faces turned two ways", ways[same > 1]))
    for what, bad in faults:
        if len(bad):
            a, b = used[bad[0]].tolist()
            raise GraphError(
                f"remesh: {len(bad)} edges of mesh '{mesh.name}' have {what}; the first is between "
                f"vertices {a} and {b}"
            )
    if len(np.unique(pairs[count == 1])) == len(used):
        raise GraphError(
            f"remesh: all vertices of mesh '{mesh.name}' lie on borders, which stay as they are; "
            "subdivide it first"
        )
    return np.ascontiguousarray(mesh.positions[used], np.float64), faces.astype(np.int32)
