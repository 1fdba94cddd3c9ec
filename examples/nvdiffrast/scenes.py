"""Meshes, cameras and pictures that the scripts beside this one share."""

import math

import numpy as np
import torch


def cube():
    """(8, 3) corners of a cube of side 2, and (12, 3) triangles, counter-clockwise from outside."""
    corners = [(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]
    faces = []
    for axis in range(3):
        for sign in (-1, 1):
            side = [i for i, c in enumerate(corners) if c[axis] == sign]
            a, b, c, d = side[0], side[1], side[3], side[2]
            normal = np.cross(
                np.subtract(corners[b], corners[a]), np.subtract(corners[c], corners[a])
            )
            if normal[axis] * sign < 0:
                b, d = d, b
            faces += [(a, b, c), (a, c, d)]
    return np.array(corners, np.float32), np.array(faces, np.int32)


def globe(n_lat=16, n_lon=32):
    """A unit sphere as a grid: (V, 3) points, (V, 2) uv, (F, 3) triangles."""
    v, u = np.meshgrid(np.linspace(0, 1, n_lat + 1), np.linspace(0, 1, n_lon + 1), indexing="ij")
    lat, lon = math.pi * (v - 0.5), 2 * math.pi * u
    points = np.stack(
        [np.cos(lat) * np.sin(lon), np.sin(lat), np.cos(lat) * np.cos(lon)], -1
    ).reshape(-1, 3)
    row = n_lon + 1
    faces = []
    for i in range(n_lat):
        for j in range(n_lon):
            a = i * row + j
            faces += [(a, a + 1, a + row + 1), (a, a + row + 1, a + row)]
    uv = np.stack([u, v], -1).reshape(-1, 2)
    return points.astype(np.float32), uv.astype(np.float32), np.array(faces, np.int32)


def projection(x=0.4, near=1.0, far=50.0):
    """OpenGL projection; x: half the width of the picture at distance 1."""
    return np.array(
        [
            [1 / x, 0, 0, 0],
            [0, 1 / x, 0, 0],
            [0, 0, -(far + near) / (far - near), -2 * far * near / (far - near)],
            [0, 0, -1, 0],
        ],
        np.float32,
    )


def moved_back(distance):
    """The camera's place: the scene is pushed away along -z."""
    matrix = np.eye(4, dtype=np.float32)
    matrix[2, 3] = -distance
    return matrix


def random_rotations(n, rng):
    """(n, 4, 4) rotations, evenly distributed."""
    q = rng.normal(size=(n, 4))
    return np.stack([rotation(v / np.linalg.norm(v)) for v in q])


def rotation(q):
    """(4, 4) of a unit quaternion (w, x, y, z)."""
    w, x, y, z = q
    out = np.eye(4, dtype=np.float32)
    out[:3, :3] = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return out


def to_clip(points, matrices):
    """[N, V, 4] clip positions of [V, 3] points under [N, 4, 4] matrices."""
    homogeneous = torch.cat([points, torch.ones_like(points[:, :1])], 1)
    return torch.matmul(homogeneous, matrices.transpose(1, 2))
