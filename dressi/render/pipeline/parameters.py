"""Parameters by name: which leaves a scene has, and which of them are fitted.

In: a name such as ``albedo`` or ``albedo:Body``. Out: the leaves that it means, or a GraphError
that lists the names that there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from dressi.ad import Variable
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


@dataclass(eq=False)
class Parameter:
    """One leaf of the scene.

    kind: what it is, e.g. ``albedo``. owner: whose: a mesh, material, node or light; empty for what
    a scene has once. owners: all whose it is (a map may serve several materials). low, high: range
    that it is clamped to after each step; None: no bound. to_leaf, to_user: between what users see
    and what the leaf holds. in_use: not constant in the graph: sent or fitted at least once. unit:
    of learning rates and regularizers, in units of the leaf (``unit_of``); 1 for what is no length.
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
    own_name_only: bool = False

    @property
    def name(self) -> str:
        """``kind:owner``, or the kind alone."""
        return f"{self.kind}:{self.owner}" if self.owner else self.kind

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array that users see."""
        v = self.leaf
        (w, h), tail = v.size, v.vtype.tail
        shape = (h, w, *tail) if h > 1 or not v.is_table else (w, *tail)
        return (v.layers, *shape) if v.layers > 1 else shape

    @property
    def requires_grad(self) -> bool:
        """Whether it is fitted."""
        return self.leaf.requires_grad

    def shaped(self, value: Any) -> np.ndarray:
        """The user's value as float64 of ``shape`` (positions far from the origin need its digits).
        Raises GraphError for another shape."""
        array = np.asarray(value, np.float64)
        if array.shape != self.shape:
            flat = array.size == int(np.prod(self.shape)) and self.leaf.size == (1, 1)
            if not flat:
                raise GraphError(f"{self.name} has shape {self.shape}, got {array.shape}")
            array = array.reshape(self.shape)
        return array

    def read(self, data: np.ndarray) -> np.ndarray:
        """The user's value of what the leaf holds: float32, or float64 for places far away."""
        found = np.asarray(self.to_user(data))
        far = found.dtype == np.float64 and self.kind in ("vtx_pos", "light_position")
        return (found if far else np.float32(found)).reshape(self.shape)

    def __str__(self) -> str:
        return f"{self.name} {self.shape} {'on' if self.requires_grad else 'off'}"


class ParameterTable:
    """All parameters of a scene, in the order in which they were added."""

    def __init__(self) -> None:
        self.rows: list[Parameter] = []

    def add(self, parameter: Parameter) -> Parameter:
        """Add one and return it."""
        parameter.owners = parameter.owners or (parameter.owner,)
        self.rows.append(parameter)
        return parameter

    def remove(self, parameter: Parameter) -> None:
        """Forget one."""
        self.rows.remove(parameter)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.rows)

    @property
    def active(self) -> list[Parameter]:
        """Those that are fitted."""
        return [p for p in self.rows if p.requires_grad]

    def of_kind(self, kind: str) -> list[Parameter]:
        """All of one kind."""
        return [p for p in self.rows if p.kind == kind]

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
        changed = [p for p in found if p.leaf.requires_grad != on]
        for p in found:
            p.leaf.requires_grad = on
            p.in_use |= on
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
    out: list[str] = []
    for k, given in enumerate(names):
        base = given.replace(":", "_") or f"{default}{k}"
        name, n = base, 2
        while name in out:
            name, n = f"{base}#{n}", n + 1
        out.append(name)
    return out


def with_field(owner: Owner, name: str, value: object) -> Owner:
    """A dataclass with one field replaced, by its name."""
    fields: dict[str, Any] = {name: value}
    return replace(owner, **fields)  # type: ignore[type-var]
