"""Pictures of a mesh from several views: targets for a fit, and pictures for people.

In: Mesh, texture, matrices. Out: arrays (views, H, W, C), linear. Uses Dressi's own renderer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import IVEC3, MAT4, VEC2, VEC3
from dressi.engine import DressiAD
from dressi.errors import GraphError
from dressi.render.camera import Camera, look_at, perspective
from dressi.render.raster import HardSoft, build_hardsoftras
from dressi.render.scene import Mesh
from dressi.render.shading import lambert, smooth_normal, unlit, vertex_normals

Size = tuple[int, int]

ELEVATIONS_DEG = (20.0, -20.0, 5.0, -5.0)
"""Near the horizon, so that tops and bottoms show in silhouette; alternating, so that no two views
see the same contour."""


def spread_views(n: int, distance: float = 4.0, fov_y_deg: float = 35.0) -> list[Camera]:
    """Return n cameras around the origin. No two look along one line from both ends: those would
    see the same silhouette twice. Raises GraphError for n < 1 (by look_at and perspective for the
    rest)."""
    projection = perspective(fov_y_deg, 1.0, distance * 0.25, distance * 2.5)
    cameras = []
    for k in range(n):
        azimuth = np.radians(180.0 * k / n + 180.0 * (k % 2))
        elevation = np.radians(ELEVATIONS_DEG[k % len(ELEVATIONS_DEG)])
        eye = distance * np.array(
            [
                np.cos(elevation) * np.sin(azimuth),
                np.sin(elevation),
                np.cos(elevation) * np.cos(azimuth),
            ]
        )
        cameras.append(Camera(look_at(eye, (0, 0, 0), (0, 1, 0)), projection, f"view {k}"))
    return cameras


def surround_views(n: int, distance: float = 4.0, fov_y_deg: float = 35.0) -> list[Camera]:
    """Return n cameras spread evenly over the sphere around the origin, tops and bottoms included
    (a spiral of the golden angle). Raises GraphError for n < 1 (by look_at and perspective for the
    rest)."""
    if n < 1:
        raise GraphError(f"surround_views needs at least one view, got {n}")
    projection = perspective(fov_y_deg, 1.0, distance * 0.25, distance * 2.5)
    cameras = []
    for k in range(n):
        y = 1.0 - (2.0 * k + 1.0) / n
        azimuth = np.pi * (3.0 - np.sqrt(5.0)) * k
        flat = np.sqrt(1.0 - y * y)
        eye = distance * np.array([flat * np.sin(azimuth), y, flat * np.cos(azimuth)])
        up = (0, 1, 0) if abs(y) < 0.98 else (0, 0, 1)
        cameras.append(Camera(look_at(eye, (0, 0, 0), up), projection, f"view {k}"))
    return cameras


@dataclass(frozen=True)
class MeshLeaves:
    """Leaves of one mesh: what a renderer reads and a fit optimizes."""

    pos: Variable
    faces: Variable
    uv: Variable | None
    uv_faces: Variable | None
    matrix: Variable


def mesh_leaves(mesh: Mesh, n_views: int, requires_grad: bool = False) -> MeshLeaves:
    """Return the leaves for a mesh and n views."""
    uv = uv_faces = None
    if mesh.uvs is not None:
        uv = Variable(VEC2, (len(mesh.uvs), 1), name="vtx_uv")
        uv_faces = Variable(IVEC3, (len(mesh.faces), 1), name="uv_faces")
    return MeshLeaves(
        Variable(VEC3, (len(mesh.positions), 1), requires_grad=requires_grad, name="vtx_pos"),
        Variable(IVEC3, (len(mesh.faces), 1), name="faces"),
        uv,
        uv_faces,
        Variable(MAT4, layers=n_views, name="matrix"),
    )


def send_mesh(ad: DressiAD, leaves: MeshLeaves, mesh: Mesh, matrices: np.ndarray) -> None:
    """Send a mesh and the matrices of its views."""
    ad.send_img(leaves.pos, mesh.positions)
    ad.send_img(leaves.faces, mesh.faces)
    if leaves.uv is not None and leaves.uv_faces is not None:
        ad.send_img(leaves.uv, mesh.uvs)
        ad.send_img(leaves.uv_faces, mesh.corner_faces)
    ad.send_img(leaves.matrix, matrices[0] if leaves.matrix.layers == 1 else matrices)


def shaded(hs: HardSoft, leaves: MeshLeaves) -> Variable:
    """Return VEC3: white Lambert shading with smooth normals, lit from the upper left behind the
    viewer's shoulder."""
    normal = smooth_normal(hs.peels[0], vertex_normals(leaves.pos, leaves.faces), leaves.faces)
    to_light = F.constant((0.48, 0.64, 0.6))
    key = lambert(
        F.constant((1.0, 1.0, 1.0)),
        normal,
        to_light,
        F.constant((0.6,) * 3),
        F.constant((0.12,) * 3),
    )
    fill = F.maximum(F.dot(normal, -to_light), 0.0) * (0.15, 0.16, 0.2)
    return hs.blend([key + fill])


class Renders:
    """One graph for pictures of meshes of one topology, from any views. mesh: its faces, and
    whether it has UVs. size: (width, height). texels: (width, height) of the texture, None: white
    Lambert shading. Use as a context manager."""

    def __init__(
        self,
        mesh: Mesh,
        size: Size,
        texels: Size | None = None,
        supersample: int = 1,
        device: str | int | None = None,
    ) -> None:
        self.size, self.supersample = size, supersample
        big = (size[0] * supersample, size[1] * supersample)
        leaves = self.leaves = mesh_leaves(mesh, 1)
        hs = build_hardsoftras(leaves.pos, leaves.faces, leaves.matrix, big, 0.0)
        self.albedo = None if texels is None else Variable(VEC3, texels, name="albedo")
        if self.albedo is None:
            picture = shaded(hs, leaves)
        else:
            assert leaves.uv is not None and leaves.uv_faces is not None
            picture = unlit(hs.peels[0], leaves.uv, leaves.uv_faces, self.albedo)
        self.both = F.vec4(F.where(hs.hard, picture, 0.0), hs.hard)
        self.ad = DressiAD(device)

    def __enter__(self) -> Renders:
        return self

    def __exit__(self, *_: object) -> None:
        self.ad.close()

    def draw(
        self, mesh: Mesh, matrices: np.ndarray, texture: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return coverage and colour; see ``render``."""
        (width, height), s = self.size, self.supersample
        if self.albedo is not None and texture is not None:
            self.ad.send_img(self.albedo, texture)
        images = []
        for matrix in matrices:  # one view at a time: a supersampled stack would not fit everywhere
            send_mesh(self.ad, self.leaves, mesh, matrix[None])
            image = self.ad.recv_img(self.both).reshape(height, s, width, s, 4)
            images.append(image.mean((1, 3)))
        both = np.stack(images)
        return both[..., 3:], both[..., :3]


def render(
    mesh: Mesh,
    matrices: np.ndarray,
    size: Size,
    texture: np.ndarray | None = None,
    supersample: int = 1,
    device: str | int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return coverage (views, H, W, 1) and colour (views, H, W, 3) over black, averaged over
    supersample^2 samples per pixel: ``Renders`` that draw once. texture: (H, W, 3) linear, unlit;
    None: white Lambert shading."""
    texels = None if texture is None else (texture.shape[1], texture.shape[0])
    with Renders(mesh, size, texels, supersample, device) as renders:
        return renders.draw(mesh, matrices, texture)
