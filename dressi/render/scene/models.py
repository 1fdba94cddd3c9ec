"""Models of shading that a material can ask for by name: skin, eye, teeth, tears.

In: the ``extras`` of a ``Material``: ``{"dressi": {"model": "skin", "scatter_width": 0.003}}``, as
glTF files hold it; other viewers see an ordinary material. Out: ``MaterialModel``, all numbers of
the model, or a GraphError that names what is unknown, missing or out of range.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dressi.errors import GraphError

if TYPE_CHECKING:
    from dressi.render.scene.parts import Material

ENTRY = "dressi"
"""Key of ``Material.extras``."""

TAPS = (11, 17, 25)
"""Numbers of taps of the diffusion."""


@dataclass(frozen=True)
class Number:
    """One number of a model. default: None where it must be given. low, high: its range. positive:
    a length or a width, above 0."""

    default: tuple[float, ...] | None
    low: float = 0.0
    high: float = float("inf")
    size: int = 1
    positive: bool = False
    optional: bool = False


def _scatter(strength: tuple[float, ...], falloff: tuple[float, ...]) -> dict[str, Number]:
    return {
        "scatter_width": Number(None, positive=True),
        "scatter_strength": Number(strength, 0.0, 1.0, 3),
        "scatter_falloff": Number(falloff, 0.0, 1.0, 3),
    }


def _ior(default: float) -> Number:
    return Number((default,), 1.0, 4.0)


ANY = float("-inf")
MOUTH = ("mouth_opening", "mouth_center", "mouth_direction")
"""Numbers of teeth that are given together or not at all."""

MODELS: dict[str, dict[str, Number]] = {
    "skin": {
        **_scatter((0.48, 0.41, 0.28), (1.0, 0.37, 0.3)),
        "ior": _ior(1.4),
        "lobe_ratio": Number((0.5,), 0.0, 4.0),
        "lobe_mix": Number((0.15,), 0.0, 1.0),
        "transmission": Number((1.0,)),
    },
    "eye": {
        "iris_radius": Number(None, positive=True),
        "iris_depth": Number(None, positive=True),
        "iris_center": Number((0.5, 0.5), ANY, size=2),
        "limbus_width": Number((0.2,), positive=True),
        "limbus_darkening": Number((0.5,), 0.0, 1.0),
        "ior": _ior(1.336),
        "wet_roughness": Number((0.05,), 0.0, 1.0),
    },
    "teeth": {
        **_scatter((0.35, 0.33, 0.3), (0.9, 0.8, 0.7)),
        "ior": _ior(1.55),
        "mouth_opening": Number(None, positive=True, optional=True),
        "mouth_center": Number(None, ANY, size=3, optional=True),
        "mouth_direction": Number(None, ANY, size=3, optional=True),
    },
    "tears": {"ior": _ior(1.336), "wet_roughness": Number((0.05,), 0.0, 1.0)},
}
"""The numbers of each model, by name. scatter_width and iris_depth are in units of the mesh and
grow with its node; the mouth is in units and axes of the world; iris_radius and iris_center are
texture coordinates, and limbus_width is in radii of the iris."""

SCATTERING = ("skin", "teeth")
"""Models whose light is spread in the picture."""


@dataclass(frozen=True)
class MaterialModel:
    """name: of ``MODELS``. numbers: by name, all that the model has. taps: of its diffusion."""

    name: str
    numbers: dict[str, tuple[float, ...]]
    taps: int = 17


def model_of(material: Material, where: str = "material") -> MaterialModel | None:
    """The model that a material asks for, or None.

    where: what errors call the material. Raises GraphError for an unknown model or number (naming
    those that there are), a missing one, and values of another size or out of range.
    """
    extras = material.extras
    if not isinstance(extras, dict) or ENTRY not in extras:
        return None
    given = extras[ENTRY]
    where = f"{where}: extras.{ENTRY}"
    if not isinstance(given, dict) or "model" not in given:
        raise GraphError(f'{where} must be an object with a "model", got {given!r}')
    name = given["model"]
    if name not in MODELS if isinstance(name, str) else True:
        raise GraphError(f"{where}: model {name!r} is none of {', '.join(MODELS)}")
    known = MODELS[name]
    own = ("taps",) if name in SCATTERING else ()
    unknown = [k for k in given if k not in known and k not in ("model", *own)]
    if unknown:
        raise GraphError(
            f"{where}: {name} has no {', '.join(map(repr, unknown))}; it has "
            f"{', '.join((*known, *own))}"
        )
    taps = given.get("taps", 17)
    if taps not in TAPS or isinstance(taps, (bool, float)):
        raise GraphError(f"{where}: taps must be one of {TAPS}, got {taps!r}")
    if name == "teeth" and 0 < sum(k in given for k in MOUTH) < len(MOUTH):
        raise GraphError(f"{where}: {', '.join(MOUTH)} are given together or not at all")
    if name == "tears" and material.alpha_mode != "BLEND":
        raise GraphError(
            f"{where}: tears are blended over what lies behind them, so the alpha mode must be "
            f"BLEND, not {material.alpha_mode}"
        )
    if material.unlit:
        raise GraphError(f"{where}: the material is unlit, so {name} has no light to work on")
    numbers = {}
    for key, number in known.items():
        if key in given:
            numbers[key] = _values(given[key], number, f"{where}: {key}")
        elif number.default is not None:
            numbers[key] = number.default
        elif not number.optional:
            raise GraphError(f"{where}: {name} needs {key}")
    return MaterialModel(name, numbers, taps)


def _values(given: Any, number: Number, where: str) -> tuple[float, ...]:
    values = given if isinstance(given, (list, tuple)) else [given]
    plain = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    if not plain or len(values) != number.size or not np.isfinite(values).all():
        what = "a number" if number.size == 1 else f"{number.size} numbers"
        raise GraphError(f"{where} must be {what}, got {given!r}")
    low = min(values)
    if low < number.low or max(values) > number.high or (number.positive and low <= 0.0):
        least = "above 0" if number.positive else f"in [{number.low:g}, {number.high:g}]"
        raise GraphError(f"{where} must be {least}, got {given!r}")
    return tuple(float(v) for v in values)


def with_number(material: Material, key: str, value: tuple[float, ...]) -> Material:
    """A material with one number of its model replaced."""
    entry = {**material.extras[ENTRY], key: value[0] if len(value) == 1 else list(value)}
    return replace(material, extras={**material.extras, ENTRY: entry})
