"""Parameters by name: which leaves a scene has, and which of them are fitted.

In: a name such as ``albedo`` or ``albedo:Body``. Out: the leaves that it means, or a GraphError
that lists the names that there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.graph import Size
from dressi.ad.vtype import FLOAT, INT
from dressi.errors import GraphError

Owner = TypeVar("Owner")
Convert = Callable[[np.ndarray], np.ndarray]


def as_it_is(a: np.ndarray) -> np.ndarray:
    """The identity: for parameters that a leaf holds as users see them."""
    return a


def log_of(a: np.ndarray) -> np.ndarray:
    """Logarithm, of at least 1e-6: what positive parameters are kept as."""
    return np.log(np.maximum(np.asarray(a, np.float64), 1e-6))


GROUPS = {
    "lights": ("light_color", "light_intensity", "light_position", "light_direction"),
    "object_pose": ("object_rotation", "object_translation", "object_scale"),
    "camera_pose": ("camera_rotation", "camera_translation"),
    "camera_intrinsics": ("camera_zoom", "camera_shift"),
}
"""Names that mean several kinds."""

FACTORS = {
    "albedo": "base_color",
    "metallic": "metallic_factor",
    "roughness": "roughness_factor",
    "emissive": "emissive_factor",
}
"""What a map's name means for a material that has no such map."""

FACTOR_ONLY = {"normal": "normal_scale", "occlusion": "occlusion_strength"}
"""Maps that no factor can stand in for, and the factor that they have."""


MOVING = (
    "vtx_pos",
    "blendshape_weights",
    *GROUPS["object_pose"],
    "camera_rotation",
    "camera_translation",
)
"""Kinds of parameters that change how far the scene is from a camera."""


@dataclass(frozen=True)
class Place:
    """Rows of a leaf that many parameters share: size[0] * size[1] of them from ``start`` on, where
    the pixels of the leaf are counted row by row. size: (width, height) of what lies there."""

    start: int
    size: Size

    @property
    def rows(self) -> slice:
        """The rows."""
        return slice(self.start, self.start + self.size[0] * self.size[1])


@dataclass(eq=False)
class Parameter:
    """One leaf of the scene, or one place in a leaf that several parameters share.

    kind: what it is, e.g. ``albedo``. owner: whose: a mesh, material, node or light; empty for what
    a scene has once. owners: all whose it is (a map may serve several materials). low, high: range
    that it is clamped to after each step; None: no bound. to_leaf, to_user: between what users see
    and what the leaf holds. in_use: not constant in the graph: sent or fitted at least once. unit:
    of learning rates and regularizers, in units of the leaf (``unit_of``); 1 for what is no length.
    place: where in the leaf it lies; None: it is the whole leaf. wanted: whether one with a place
    is fitted; the leaf has a gradient where one of its parameters is.
    own_name_only: a kind alone does not mean it, as it is a second way to move what others move.
    """

    kind: str
    owner: str
    leaf: Variable
    low: float | None = None
    high: float | None = None
    owners: tuple[str, ...] = ()
    to_leaf: Convert = as_it_is
    to_user: Convert = as_it_is
    in_use: bool = False
    unit: float = 1.0
    place: Place | None = None
    wanted: bool = False
    own_name_only: bool = False

    @property
    def name(self) -> str:
        """``kind:owner``, or the kind alone."""
        return f"{self.kind}:{self.owner}" if self.owner else self.kind

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array that users see."""
        v = self.leaf
        (w, h), tail = self.size, v.vtype.tail
        shape = (w, *tail) if h == 1 and w > 1 else (h, w, *tail)
        return (v.layers, *shape) if v.layers > 1 else shape

    @property
    def size(self) -> Size:
        """(width, height) of what it holds."""
        return self.leaf.size if self.place is None else self.place.size

    @property
    def requires_grad(self) -> bool:
        """Whether it is fitted."""
        return self.leaf.requires_grad if self.place is None else self.wanted

    @property
    def variable(self) -> Variable:
        """What it holds, in the graph @ ``size``: its leaf, or the rows of the leaf that are its
        own. Gradient to them."""
        if self.place is None:
            return self.leaf
        (w, h), rows = self.place.size, self.place.rows
        index = np.arange(rows.start, rows.stop, dtype=np.int32).reshape(h, w, 1)
        return F.lookup(self.leaf, F.leaf(index, INT, f"rows of {self.name}"))

    def shaped(self, value: Any) -> np.ndarray:
        """The user's value as float64 of ``shape`` (positions far from the origin need its digits).
        Raises GraphError for another shape."""
        array = np.asarray(value, np.float64)
        if array.shape != self.shape:
            flat = array.size == int(np.prod(self.shape)) and self.size == (1, 1)
            if not flat:
                raise GraphError(f"{self.name} has shape {self.shape}, got {array.shape}")
            array = array.reshape(self.shape)
        return array

    def read(self, data: np.ndarray) -> np.ndarray:
        """The user's value of what the leaf holds: float32, or float64 for places far away."""
        if self.place is not None:
            data = np.reshape(data, (-1, *self.leaf.vtype.tail))[self.place.rows]
        found = np.asarray(self.to_user(data))
        far = found.dtype == np.float64 and self.kind in ("vtx_pos", "light_position")
        return (found if far else np.float32(found)).reshape(self.shape)

    def written(self, value: Any, data: Callable[[Variable], np.ndarray]) -> np.ndarray:
        """What the leaf holds once the parameter has the user's value. data: reads a leaf; only
        called where others have places in it. Raises GraphError for a value of another shape."""
        own = self.to_leaf(self.shaped(value))
        if self.place is None:
            return own
        whole = np.array(data(self.leaf))
        flat = whole.reshape(-1, *self.leaf.vtype.tail)  # a view: changes whole
        flat[self.place.rows] = np.reshape(own, (-1, *flat.shape[1:]))
        return whole

    def __str__(self) -> str:
        return f"{self.name} {self.shape} {'on' if self.requires_grad else 'off'}"


class ParameterTable:
    """All parameters of a scene, in the order in which they were added."""

    def __init__(self) -> None:
        self.rows: list[Parameter] = []
        self._kinds: dict[str, list[Parameter]] = {}

    def add(self, parameter: Parameter) -> Parameter:
        """Add one and return it."""
        parameter.owners = parameter.owners or (parameter.owner,)
        self.rows.append(parameter)
        self._kinds.setdefault(parameter.kind, []).append(parameter)
        return parameter

    def remove(self, parameter: Parameter) -> None:
        """Forget one."""
        self.rows.remove(parameter)
        self._kinds[parameter.kind].remove(parameter)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.rows)

    @property
    def active(self) -> list[Parameter]:
        """Those that are fitted."""
        return [p for p in self.rows if p.requires_grad]

    def of_kind(self, kind: str) -> list[Parameter]:
        """All of one kind."""
        return list(self._kinds.get(kind, ()))

    def one(self, kind: str, owner: str = "") -> Parameter | None:
        """The one of a kind and an owner, or None."""
        return next((p for p in self.of_kind(kind) if owner in p.owners), None)

    def find(self, name: str) -> list[Parameter]:
        """The parameters that a name means, each once.

        name: a kind (of all owners), ``kind:owner``, or a group (``GROUPS``). A map's name means
        the factor of materials that have no such map. Raises GraphError, listing the names, for
        one that means nothing.
        """
        if not isinstance(name, str):
            raise GraphError(f"a parameter's name must be a string, got {name!r}")
        kind, _, owner = name.partition(":")
        found: list[Parameter] = []
        for each in GROUPS.get(kind, (kind,)):
            maps = self.of_kind(each)
            mapped = {o for p in maps for o in p.owners}
            factors = self.of_kind(FACTORS[each]) if each in FACTORS else []
            found += maps + [p for p in factors if not mapped & set(p.owners)]
        found = [p for p in found if (owner in p.owners if owner else not p.own_name_only)]
        if not found:
            hint = ""
            if kind in FACTOR_ONLY:
                hint = f"\n  hint: there is no such map; make one with add_map({kind!r}, size)"
            raise GraphError(f"no parameter is called {name!r}; there are {self.known()}{hint}")
        return found

    def only(self, name: str) -> Parameter:
        """The parameter that a name means. Raises GraphError where it means several or none."""
        found = self.find(name)
        if len(found) > 1:
            names = ", ".join(p.name for p in found)
            raise GraphError(f"{name!r} means several parameters: {names}")
        return found[0]

    def turn(self, names: str | Sequence[str], on: bool) -> bool:
        """Fit all parameters that the names mean, or stop fitting them; whether any changed."""
        found = [p for n in ([names] if isinstance(names, str) else names) for p in self.find(n)]
        changed = [p for p in found if p.requires_grad != on]
        for p in found:
            p.wanted, p.leaf.requires_grad = on, on
            p.in_use |= on
        for p in self.rows:  # a leaf that is shared is on for the others, too
            if p.place is not None and p.wanted:
                p.leaf.requires_grad = True
        return bool(changed)

    def need_active(self, who: str) -> None:
        """Raise GraphError unless a parameter is fitted. who: the function that needs one."""
        if not self.active:
            raise GraphError(
                f"{who}: no parameter is on; call set_requires_grad with one of {self.known()}"
            )

    def known(self) -> str:
        """All names, for errors."""
        names = [p.name for p in self.rows]
        groups = [g for g, kinds in GROUPS.items() if any(p.kind in kinds for p in self.rows)]
        return ", ".join([*groups, *names])


def unique_names(names: Iterable[str], default: str) -> list[str]:
    """Names that tell their owners apart: empty ones become ``default`` and a number, colons (which
    end a kind) underscores, and repeated ones get a number."""
    out: dict[str, None] = {}  # in order
    next_number: dict[str, int] = {}
    for k, given in enumerate(names):
        base = given.replace(":", "_") or f"{default}{k}"
        name, n = base, next_number.get(base, 2)
        while name in out:
            name, n = f"{base}#{n}", n + 1
        next_number[base] = n
        out[name] = None
    return list(out)


def rows_mask(found: Iterable[Parameter], values: Iterable[float] | None = None) -> Variable:
    """FLOAT of the size of the leaf in which all these parameters have a place: 1 in their rows, or
    their values, 0 elsewhere."""
    placed = list(found)
    leaf = placed[0].leaf
    out = np.zeros((leaf.size[0] * leaf.size[1], 1), np.float32)
    for p, value in zip(placed, [1.0] * len(placed) if values is None else values, strict=True):
        assert p.place is not None
        out[p.place.rows] = value
    return F.leaf(out.reshape(leaf.size[1], leaf.size[0], 1), FLOAT, "rows")


def with_field(owner: Owner, name: str, value: object) -> Owner:
    """A dataclass with one field replaced, by its name."""
    fields: dict[str, Any] = {name: value}
    return replace(owner, **fields)  # type: ignore[type-var]
