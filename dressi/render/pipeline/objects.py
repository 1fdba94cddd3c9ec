"""Objects as parameters: where they stand, how they are turned and how large they are.

In: the nodes of a scene that draw something. Out: ``Poses``: for each a rotation (axis times angle)
and a uniform scale about the middle of its box, and a translation, in the axes of the world and on
top of the place that it was loaded at (paper, A.2: the model matrix). What hangs below a node
follows it, as in the file; lights and cameras stay. All are 0, and the scale 1, where an object is
where it was loaded. None is in the graph until it is in use.
"""

from __future__ import annotations

import operator
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
class Moved:
    """Nodes that the same poses move, the outermost first. matrix: MAT4 @ 1x1, the product of them
    in the frame. turn: MAT3 @ 1x1, of their rotations, for directions."""

    poses: list[Pose]
    nodes: list[int]
    matrix: Variable
    turn: Variable

    def among(self, node_of_row: np.ndarray, name: str) -> Variable | None:
        """FLOAT @ (rows, 1): 1 for rows of these nodes, else 0; None where all are theirs."""
        mask = np.isin(node_of_row, self.nodes)
        return None if mask.all() else F.leaf(mask.astype(np.float32)[:, None], FLOAT, name)


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

    def moved(self) -> list[Moved]:
        """What moves: nodes that the same poses move are one."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for node in self.boxes:
            groups.setdefault(self._chain(node), []).append(node)
        out = []
        for chain, nodes in groups.items():
            if chain:
                rows = [self.rows[n] for n in chain]
                turn = reduce(operator.matmul, [p.turn() for p in rows])
                out.append(
                    Moved(rows, nodes, reduce(operator.matmul, map(Pose.matrix, rows)), turn)
                )
        return out

    def _chain(self, node: int) -> tuple[int, ...]:
        """The nodes whose poses are in use and move a node, the outermost first."""
        return tuple(n for n in self.above[node] if self.rows[n].in_use)

    def corners(self, read: Read) -> np.ndarray:
        """(N, 3) float64 corners of the boxes of all objects where they are now, in the frame."""
        moved = []
        for node, box in self.boxes.items():
            m = reduce(np.matmul, [self.rows[n].exact(read) for n in self._chain(node)], np.eye(4))
            moved.append(box @ m[:3, :3].T + m[:3, 3])
        return np.concatenate(moved)

    def radius(self, moved: Sequence[Moved], center: np.ndarray, radius: float) -> Variable:
        """FLOAT @ 1x1, without gradient: of the sphere about center (3,) in the frame that holds
        the scene as it was loaded, of this radius, and all objects where they are now."""
        far = F.constant(radius)
        for group in moved:
            low, high = box_of([self.boxes[n] for n in group.nodes])
            middle, half = 0.5 * (low + high), 0.5 * float(np.linalg.norm(high - low))
            size = F.exp(F.add_n([p.scale.leaf for p in group.poses])) * half
            at = (group.matrix @ F.constant((*middle.tolist(), 1.0))).xyz
            away = F.length(at - F.constant(tuple(center.tolist())))
            far = F.maximum(far, away + size)
        return F.stop_gradient(far)


def box_of(tables: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(lowest, highest) (3,) of tables of points (N, 3)."""
    points = np.concatenate(tables)
    return points.min(axis=0), points.max(axis=0)


def build_poses(scene: Scene, found: list[Instance], table: ParameterTable) -> Poses:
    """Leaves of the poses; adds them to the parameters. found: what is drawn, in the frame.

    Nodes with a mesh have one each, named after the node (after its mesh where it has no name). A
    node without a mesh has one where it holds two or more of them; only its own name means it.
    """
    boxes: dict[int, np.ndarray] = {}
    points: dict[int, list[np.ndarray]] = {}
    for i in found:
        points.setdefault(i.node, []).append(i.exact_positions())
    for node in points:
        low, high = box_of(points[node])
        grid = np.stack(np.meshgrid(*zip(low, high, strict=True), indexing="ij"), axis=-1)
        boxes[node] = grid.reshape(-1, 3)
    up = {c: n for n, _ in world_matrices(scene) for c in scene.nodes[n].children}
    lines = {node: _line(node, up) for node, _ in world_matrices(scene)}
    below: dict[int, list[int]] = {n: [] for n in lines}
    for node in boxes:
        for n in lines[node]:
            below[n].append(node)
    posed = [n for n in lines if n in boxes or len(below[n]) > 1]
    given = [scene.nodes[n].name or _mesh_name(scene, n) for n in posed]
    rows: dict[int, Pose] = {}
    for node, name in zip(posed, unique_names(given, "node"), strict=True):
        low, high = box_of([boxes[b] for b in below[node]])
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
        leaf = Variable(vtype, name=f"{kind}:{name}")
        # Not F.leaf: its checks of the array took most of the time of a scene of 2000 nodes.
        leaf.data = np.zeros((1, 1, 1, vtype.n), np.float32)
        return table.add(Parameter(kind, name, leaf, own_name_only=group, **options))

    return Pose(
        center,
        add("object_rotation", VEC3),
        add("object_translation", VEC3, unit=unit),
        add("object_scale", FLOAT, to_leaf=log_of, to_user=np.exp),
    )
