"""Meshes of the experiments: a complex one built by code, those of files, all of one size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

import dressi
from dressi.apps.demo import centred, load_target
from dressi.errors import LoadError
from dressi.render.scene import Mesh, icosphere

HORNS = np.array(
    [
        [0.0, 1.0, 0.15], [0.9, 0.35, 0.3], [-0.85, 0.45, 0.1], [0.5, -0.6, 0.65],
        [-0.6, -0.55, 0.6], [0.1, 0.25, -1.0], [0.65, -0.55, -0.6], [-0.65, -0.7, -0.45],
    ]
)  # fmt: skip
"""Directions; spread by eye, so that some hide others in most views."""

DENTS = np.array([[0.35, 0.35, 0.9], [-0.35, 0.35, 0.9], [0.0, -0.3, 1.0], [0.6, 0.5, -0.7]])


def horned(subdivisions: int = 5) -> Mesh:
    """Return a ball with eight horns, four dents and waves, EXTENT wide: uneven, with parts that
    hide each other in most views, as the paper's skull. 20 * 4^subdivisions faces."""
    ball = icosphere(subdivisions)
    unit = ball.positions.astype(np.float64)
    radius = np.full(len(unit), 0.5)
    for k, horn in enumerate(HORNS):
        angle = np.arccos(np.clip(unit @ (horn / np.linalg.norm(horn)), -1.0, 1.0))
        radius += (0.35 + 0.08 * (k % 3)) * np.exp(-((angle / 0.26) ** 2))
    for dent in DENTS:
        angle = np.arccos(np.clip(unit @ (dent / np.linalg.norm(dent)), -1.0, 1.0))
        radius -= 0.17 * np.exp(-((angle / 0.24) ** 2))
    x, y, z = unit.T
    radius += 0.015 * (np.sin(11 * x + 3 * y) + np.sin(9 * y - 5 * z) + np.sin(10 * z + 4 * x))
    mesh = replace(ball, positions=unit * radius[:, None], uvs=None, uv_faces=None, name="horned")
    return centred(mesh)[0]


def torus(around: int, through: int, ring: float = 0.7, tube: float = 0.3) -> Mesh:
    """Return a torus about the y axis. around, through: vertices along the ring and along the tube,
    at least 3; ring, tube: radii. 2 * around * through faces, outward; no UVs."""
    i, j = np.meshgrid(np.arange(around), np.arange(through), indexing="ij")
    a, b = 2 * np.pi * i / around, 2 * np.pi * j / through
    out = ring + tube * np.cos(b)
    positions = np.stack([out * np.sin(a), tube * np.sin(b), out * np.cos(a)], -1).reshape(-1, 3)
    right, over = (i + 1) % around, (j + 1) % through
    p, q, r, s = (u * through + v for u, v in ((i, j), (right, j), (right, over), (i, over)))
    faces = np.stack([p, q, r, p, r, s], -1).reshape(-1, 3)
    return Mesh(positions.astype(np.float32), faces, name="torus")


def bunny_file() -> str | None:
    """Return the Stanford bunny of the data folder beside the checkout, where there is one."""
    path = Path(dressi.__file__).resolve().parents[2] / "shared/data/meshes/stanford-bunny.obj"
    return str(path) if path.is_file() else None


def target_mesh(path: str | None, faces: int | None = None) -> Mesh:
    """Return the mesh of an OBJ file, or ``horned``; centred, EXTENT wide, no UVs. faces: at most
    so many (a coarser ``horned``, or vertices of the file merged). Raises LoadError, GraphError."""
    if path is None:
        level = 5
        while faces is not None and level > 1 and 20 * 4**level > faces:
            level -= 1
        return horned(level)
    if not Path(path).is_file():
        raise LoadError(f"{path}: no such file", path)
    mesh = replace(load_target(path)[0], uvs=None, uv_faces=None)
    mesh = centred(mesh)[0]
    return mesh if faces is None or len(mesh.faces) <= faces else merged(mesh, faces)


def merged(mesh: Mesh, faces: int) -> Mesh:
    """Return the mesh with its vertices merged in the cells of the finest grid that leaves at most
    this many faces (each cell's mean; faces that collapse or fall together are dropped)."""
    low, high = 1, 1024
    best = None
    while low < high:
        n = (low + high + 1) // 2
        one = _merged_on_grid(mesh, n)
        if len(one.faces) <= faces:
            low, best = n, one
        else:
            high = n - 1
    return best if best is not None else _merged_on_grid(mesh, low)


def _merged_on_grid(mesh: Mesh, n: int) -> Mesh:
    """Return the mesh with one vertex per cell of a grid. n: cells along the longest side."""
    start = mesh.positions.min(0)
    cell = np.ptp(mesh.positions, axis=0).max() / n
    keys = np.floor((mesh.positions - start) / cell).astype(np.int64)
    _, index = np.unique(keys, axis=0, return_inverse=True)
    index = index.reshape(-1)
    counts = np.bincount(index)
    positions = np.stack(
        [np.bincount(index, mesh.positions[:, k].astype(np.float64)) / counts for k in range(3)], 1
    )
    faces = index[mesh.faces]
    a, b, c = faces.T
    faces = faces[(a != b) & (b != c) & (c != a)]
    _, first = np.unique(np.sort(faces, 1), axis=0, return_index=True)
    return replace(mesh, positions=positions.astype(np.float32), faces=faces[np.sort(first)])
