"""Objects as parameters: where they stand, how they are turned and how large they are.

In: the nodes of a scene that draw something. Out: ``Poses``: for each a rotation (axis times angle)
and a uniform scale about the middle of its box, and a translation, in the axes of the world and on
top of the place that it was loaded at (paper, A.2: the model matrix). What hangs below a node
follows it, as in the file; lights and cameras stay. All are 0, and the scale 1, where an object is
where it was loaded. None is in the graph until it is in use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, VEC3
from dressi.render.camera.far import translation
from dressi.render.camera.pose import axis_angle_matrix
from dressi.render.pipeline.frame import unit_of
from dressi.render.pipeline.parameters import Parameter, ParameterTable, log_of, unique_names
from dressi.render.pipeline.views import rotation_of
from dressi.render.scene import Instance, Scene, world_matrices

Read = Callable[[Parameter], np.ndarray]


@dataclass(eq=False)
class Pose:
    """Of one node. center: (3,) float64, the middle of the box of what it draws, in the frame."""

    center: np.ndarray
    rotation: Parameter
    translation: Parameter
    scale: Parameter

    @property
    def in_use(self) -> bool:
        """Whether one of its parameters was sent or fitted."""
        return any(p.in_use for p in (self.rotation, self.translation, self.scale))

    def turn(self) -> Variable:
        """MAT3 rotation @ 1x1, with gradient."""
        return axis_angle_matrix(self.rotation.leaf)

    def matrix(self) -> Variable:
        """MAT4 @ 1x1, from the place in the file to the one now, in the frame, with gradient."""
        turned = self.turn() * F.exp(self.scale.leaf)
        center = F.constant(tuple(self.center.tolist()))
        moved = center + self.translation.leaf - turned @ center
        columns = [F.vec4(F.linalg.column(turned, k), 0.0) for k in range(3)]
        return F.linalg.from_columns(*columns, F.vec4(moved, 1.0))

    def exact(self, read: Read) -> np.ndarray:
        """(4, 4) float64: ``matrix`` with the values that read gives."""
        w, t, s = (
            np.asarray(read(p), np.float64).reshape(-1)
            for p in (self.rotation, self.translation, self.scale)
        )
        move = np.eye(4)
        move[:3, :3] = rotation_of(w) * s
        return translation(self.center + t) @ move @ translation(-self.center)


@dataclass(eq=False)
class Poses:
    """rows: by node. above: for each node with a mesh or a group the nodes from the root down to
    it that have a pose. boxes: (8, 3) corners in the frame by node that draws."""

    rows: dict[int, Pose]
    above: dict[int, tuple[int, ...]]
    boxes: dict[int, np.ndarray]

    @property
    def in_use(self) -> bool:
        """Whether an object was moved."""
        return any(p.in_use for p in self.rows.values())

    def chain(self, node: int) -> list[Pose]:
        """The poses in use that move a node, the outermost first."""
        return [self.rows[n] for n in self.above[node] if self.rows[n].in_use]

    def matrix(self, node: int) -> Variable | None:
        """MAT4 @ 1x1 of all that move a node; None where nothing does."""
        return _product([p.matrix() for p in self.chain(node)])

    def turn(self, node: int) -> Variable | None:
        """MAT3 @ 1x1: the rotation alone, for directions; None where nothing moves the node."""
        return _product([p.turn() for p in self.chain(node)])

    def corners(self, read: Read) -> np.ndarray:
        """(N, 3) float64 corners of the boxes of all objects where they are now, in the frame."""
        moved = []
        for node, box in self.boxes.items():
            m = reduce(np.matmul, [p.exact(read) for p in self.chain(node)], np.eye(4))
            moved.append(box @ m[:3, :3].T + m[:3, 3])
        return np.concatenate(moved)

    def radius(self, center: np.ndarray, radius: float) -> Variable:
        """FLOAT @ 1x1, without gradient: of the sphere about center (3,) in the frame that holds
        the scene as it was loaded, of this radius, and all objects where they are now."""
        far = F.constant(radius)
        for node, box in self.boxes.items():
            matrix = self.matrix(node)
            if matrix is None:
                continue
            middle, half = 0.5 * (box[0] + box[-1]), 0.5 * float(np.linalg.norm(box[-1] - box[0]))
            size = F.exp(F.add_n([p.scale.leaf for p in self.chain(node)])) * half
            at = (matrix @ F.constant((*middle.tolist(), 1.0))).xyz
            away = F.length(at - F.constant(tuple(center.tolist())))
            far = F.maximum(far, away + size)
        return F.stop_gradient(far)


def _product(matrices: Sequence[Variable]) -> Variable | None:
    return reduce(lambda a, b: a @ b, matrices) if matrices else None


def build_poses(scene: Scene, found: list[Instance], table: ParameterTable) -> Poses:
    """Leaves of the poses; adds them to the parameters. found: what is drawn, in the frame.

    Nodes with a mesh have one each, named after the node (after its mesh where it has no name). A
    node without a mesh has one where it holds two or more of them; only its own name means it.
    """
    boxes: dict[int, np.ndarray] = {}
    for node in dict.fromkeys(i.node for i in found):
        points = np.concatenate([i.exact_positions() for i in found if i.node == node])
        low, high = points.min(axis=0), points.max(axis=0)
        grid = np.stack(np.meshgrid(*zip(low, high, strict=True), indexing="ij"), axis=-1)
        boxes[node] = grid.reshape(-1, 3)
    up = {c: n for n, _ in world_matrices(scene) for c in scene.nodes[n].children}
    lines = {node: _line(node, up) for node, _ in world_matrices(scene)}
    below = {n: [b for b in boxes if n in lines[b]] for n in lines}
    posed = [n for n in lines if n in boxes or len(below[n]) > 1]
    given = [scene.nodes[n].name or _mesh_name(scene, n) for n in posed]
    rows: dict[int, Pose] = {}
    for node, name in zip(posed, unique_names(given, "node"), strict=True):
        corners = np.concatenate([boxes[b] for b in below[node]])
        low, high = corners.min(axis=0), corners.max(axis=0)
        unit = unit_of(low, high)
        rows[node] = _pose(name, 0.5 * (low + high), unit, node not in boxes, table)
    above = {n: tuple(a for a in line if a in rows) for n, line in lines.items()}
    return Poses(rows, above, boxes)


def _line(node: int, up: dict[int, int]) -> tuple[int, ...]:
    """The nodes from the root down to this one."""
    line = [node]
    while line[-1] in up:
        line.append(up[line[-1]])
    return tuple(reversed(line))


def _mesh_name(scene: Scene, node: int) -> str:
    mesh = scene.nodes[node].mesh
    return "" if mesh is None else scene.meshes[mesh].name


def _pose(name: str, center: np.ndarray, unit: float, group: bool, table: ParameterTable) -> Pose:
    def add(kind: str, vtype, **options) -> Parameter:  # type: ignore[no-untyped-def]
        leaf = F.leaf(np.zeros((1, 1, vtype.n), np.float32), vtype, f"{kind}:{name}")
        return table.add(Parameter(kind, name, leaf, own_name_only=group, **options))

    return Pose(
        center,
        add("object_rotation", VEC3),
        add("object_translation", VEC3, unit=unit),
        add("object_scale", FLOAT, to_leaf=log_of, to_user=np.exp),
    )
