"""A scene as lists of what is to be drawn: instances, lights and cameras in the world.

In: a ``Scene``. Out: one entry for each primitive of each node that the roots reach, with its world
matrix (4, 4), in the order of the tree (parents first, children in order).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dressi.ad.precision import say_rounded
from dressi.errors import GraphError
from dressi.render.camera.camera import Camera, perspective
from dressi.render.scene.mesh import Mesh, unit_or_zero
from dressi.render.scene.parts import (
    Floats,
    Material,
    Matrix,
    Primitive,
    PunctualLight,
    SceneCamera,
)

if TYPE_CHECKING:
    from dressi.render.scene.scene import Scene


@dataclass(frozen=True, eq=False)
class Instance:
    """One primitive at one place. world: (4, 4) float64, mesh to world. weights: of blendshapes.

    node, mesh, part: where it comes from: rows of ``Scene.nodes``, ``Scene.meshes`` and of the
    mesh's ``primitives``.
    """

    primitive: Primitive
    world: Matrix
    material: Material
    weights: tuple[float, ...]
    node: int
    mesh: int
    part: int

    @property
    def flips(self) -> bool:
        """True where the world matrix mirrors: glTF then takes faces as clockwise."""
        return bool(np.linalg.det(self.world[:3, :3]) < 0.0)

    @property
    def faces(self) -> np.ndarray:
        """(F, 3) int32, counter-clockwise seen from outside **in the world**."""
        return self.primitive.faces[:, ::-1] if self.flips else self.primitive.faces

    def positions(self) -> Floats:
        """(V, 3) float32 world positions, with the blendshapes added."""
        with np.errstate(over="ignore"):  # Mesh.check names what is not finite
            return self.exact_positions().astype(np.float32)

    def exact_positions(self) -> Matrix:
        """(V, 3) float64: ``positions`` before they are rounded."""
        local = self.primitive.positions.astype(np.float64)
        for weight, target in zip(self.weights, self.primitive.targets, strict=False):
            if target.positions is not None:
                local = local + weight * target.positions
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(local @ self.world[:3, :3].T + self.world[:3, 3])

    def normals(self) -> Floats | None:
        """(V, 3) float32 unit world normals (inverse transpose), or None where there are none.

        With the blendshapes added. Zero where the matrix is singular or the normal is zero.
        """
        if self.primitive.normals is None:
            return None
        local = self.primitive.normals.astype(np.float64)
        for weight, target in zip(self.weights, self.primitive.targets, strict=False):
            if target.normals is not None:
                local = local + weight * target.normals
        return self.turned(local)

    def turned(self, local: Matrix) -> Floats:
        """(N, 3) float32 unit world normals of normals (N, 3) float64 of the mesh."""
        m = self.world[:3, :3]
        # The rows' cofactors: det times the inverse transpose, which a flat scale leaves finite.
        a, b = m[[1, 2, 0]], m[[2, 0, 1]]  # np.cross takes ten times as long
        cofactors = a[:, [1, 2, 0]] * b[:, [2, 0, 1]] - a[:, [2, 0, 1]] * b[:, [1, 2, 0]]
        turned = local @ cofactors.T * (-1.0 if self.flips else 1.0)
        return unit_or_zero(turned).astype(np.float32)

    def world_mesh(self, uv_set: int = 0) -> Mesh:
        """The ``Mesh`` in the world: blendshapes added, winding turned where the matrix mirrors.

        uv_set: which UVs it gets; none where the primitive lacks that set. Vertices keep their
        order; those at UV seams stay doubled (``scene_mesh.welded`` joins them).
        """
        uvs = self.primitive.uvs
        table = uvs[uv_set] if uv_set < len(uvs) else None
        say_rounded(f"mesh '{self.primitive.name or 'mesh'}' in the world", self.exact_positions())
        name, colors = self.primitive.name or "mesh", self.primitive.colors
        return Mesh(self.positions(), self.faces, table, name=name, colors=colors)


@dataclass(frozen=True, eq=False)
class PlacedLight:
    """A light in the world. position: (3,). direction: (3,) unit, the way that its light goes."""

    light: PunctualLight
    position: Matrix
    direction: Matrix
    node: int


def world_matrices(scene: Scene) -> Iterator[tuple[int, Matrix]]:
    """(node, (4, 4) float64 node to world) for all nodes below the roots, parents first.

    Raises GraphError for a cycle; ``check`` finds other faults of the tree.
    """
    waiting: list[tuple[int, Matrix]] = [(root, np.eye(4)) for root in reversed(scene.roots)]
    visits = 0
    while waiting:
        index, parent = waiting.pop()
        visits += 1
        if visits > len(scene.nodes):
            raise GraphError("the nodes of the scene are no tree; scene.check() says which")
        node = scene.nodes[index]
        world = parent @ node.matrix
        yield index, world
        waiting += [(child, world) for child in reversed(node.children)]


def instances(scene: Scene) -> list[Instance]:
    """All primitives with their world matrices, materials and blendshape weights."""
    found = []
    for index, world in world_matrices(scene):
        node = scene.nodes[index]
        if node.mesh is None:
            continue
        mesh = scene.meshes[node.mesh]
        weights = node.weights or mesh.weights
        for part, primitive in enumerate(mesh.primitives):
            row = primitive.material
            material = Material() if row is None else scene.materials[row]
            own = weights or (0.0,) * len(primitive.targets)
            found.append(Instance(primitive, world, material, own, index, node.mesh, part))
    return found


def lights(scene: Scene) -> list[PlacedLight]:
    """All lights in the world. A node's scale changes neither their intensity nor their range.
    Raises GraphError for a scale that leaves a light no direction."""
    found = []
    for index, world in world_matrices(scene):
        row = scene.nodes[index].light
        if row is not None:
            direction = -world[:3, 2]
            length = float(np.linalg.norm(direction))
            if length == 0.0:
                raise GraphError(f"node {index} scales its light to nothing: it has no direction")
            found.append(PlacedLight(scene.lights[row], world[:3, 3], direction / length, index))
    return found


def camera_at(camera: SceneCamera, world: Matrix, aspect: float | None = None) -> Camera:
    """The ``Camera`` of a camera at a node.

    world: (4, 4), node to world; scales are ignored, as glTF says, and a mirroring matrix keeps the
    direction of view and the way up. aspect: width / height of the picture; None: the camera's own
    (1 where it names none). In a picture of another aspect the camera shows all that its own frame
    holds, and more in one direction; nothing is stretched or cropped. Raises GraphError: a matrix
    without directions, values out of range.
    """
    view = np.eye(4)
    backward, up = world[:3, 2], world[:3, 1]
    right = np.cross(up, backward)
    lengths = float(np.linalg.norm(backward)), float(np.linalg.norm(right))
    if min(lengths) == 0.0 or not np.isfinite(lengths).all():
        raise GraphError(f"the node of camera '{camera.name}' has no directions: {world.tolist()}")
    backward, right = backward / lengths[0], right / lengths[1]
    view[:3, :3] = np.stack([right, np.cross(backward, right), backward])
    view[:3, 3] = -view[:3, :3] @ world[:3, 3]
    make = _perspective if camera.kind == "perspective" else _orthographic
    projection = make(camera, aspect)
    return Camera(view, projection, camera.name or "camera")


def _perspective(camera: SceneCamera, aspect: float | None) -> Matrix:
    own = camera.aspect or aspect or 1.0
    shown = own if aspect is None else aspect
    fov = camera.fov_y_deg
    if shown < own:  # its width decides: the picture grows upwards and downwards
        fov = 2.0 * np.degrees(np.arctan(np.tan(np.radians(fov) / 2.0) * own / shown))
    far = 2.0 * camera.near if camera.far is None else camera.far
    projection = perspective(fov, shown, camera.near, far)
    if camera.far is None:
        projection[2, 2:] = -1.0, -camera.near  # the limit of far to infinity
    return projection


def _orthographic(camera: SceneCamera, aspect: float | None) -> Matrix:
    far = float("nan") if camera.far is None else camera.far
    depth = far - camera.near
    if not depth > 0.0:
        raise GraphError(f"camera '{camera.name}' needs near < far: {camera.near}, {far}")
    x, y = camera.x_mag, camera.y_mag
    own = abs(x / y)
    shown = own if aspect is None else aspect
    x, y = x * max(shown / own, 1.0), y * max(own / shown, 1.0)
    projection = np.diag([1.0 / x, -1.0 / y, -1.0 / depth, 1.0])
    projection[2, 3] = -camera.near / depth
    return projection


def own_aspect(camera: SceneCamera) -> float | None:
    """Width / height of the frame that a camera was made for; None where it names none."""
    return camera.aspect if camera.kind == "perspective" else abs(camera.x_mag / camera.y_mag)


def cameras(scene: Scene, aspect: float | None = None) -> list[Camera]:
    """All cameras in the world, as ``camera_at`` makes them."""
    return [
        camera_at(scene.cameras[row], world, aspect)
        for index, world in world_matrices(scene)
        if (row := scene.nodes[index].camera) is not None
    ]
