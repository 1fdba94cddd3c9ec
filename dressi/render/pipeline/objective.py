"""What a fit minimizes, and how: losses, regularizers, learning rates, ranges.

In: pictures and targets, parameters. Out: a FLOAT loss, an optimizer. Weights and learning rates
are leaves @ 1x1, so that they can be sent anew without a rebuild.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dressi.ad import SGD, Adam, AdamUniform, F, Variable
from dressi.ad.optim import Optimizer
from dressi.ad.vtype import IVEC3
from dressi.errors import GraphError
from dressi.render.fit.losses import l1_loss, l2_loss
from dressi.render.fit.regularizers import (
    edge_length_loss,
    edge_table,
    laplacian_loss,
    laplacian_matrix,
    normal_consistency,
    total_variation,
)
from dressi.render.pipeline.materials import FIELDS
from dressi.render.pipeline.parameters import Parameter, ParameterTable, rows_mask
from dressi.render.pipeline.picture import Picture

LossFunction = Callable[[Variable, Variable, Variable | None], Variable]

HUBER = 0.1
"""Difference at which Huber's loss turns from a square into a line."""


def huber_loss(image: Variable, target: Variable, width: float = HUBER) -> Variable:
    """Mean of d^2 / 2 where |d| < width, else width (|d| - width / 2), over pixels, layers,
    components (Huber 1964). Gradient to image and target."""
    d = F.abs(image - target)
    near = F.minimum(d, width)
    return F.mean(F.sum_components(near * (d - near * 0.5))) * (1.0 / d.vtype.n)


COLOR_LOSSES: dict[str, Callable[[Variable, Variable], Variable]] = {
    "l1": l1_loss,
    "l2": l2_loss,
    "huber": huber_loss,
}
MASK_LOSSES: dict[str, Callable[[Variable, Variable], Variable]] = {
    "silhouette": l2_loss,
    "silhouette_l1": l1_loss,
}
SQUARED_LENGTHS = ("laplacian", "edge_length")
"""Regularizers that grow with the square of a mesh's size."""
OPTIMIZERS: dict[str, Callable[[Variable], Optimizer]] = {
    "adam": lambda lr: Adam(lr),
    "adam_uniform": lambda lr: AdamUniform(lr),
    "sgd": lambda lr: SGD(lr),
}


def weights_of(
    what: str, given: str | Mapping[Any, float], known: Sequence[str]
) -> dict[str, float]:
    """Names and weights of losses or regularizers. given: a name, or weights by name. Raises
    GraphError for unknown names and weights that are negative or not finite."""
    found = {given: 1.0} if isinstance(given, str) else dict(given)
    for name, weight in found.items():
        if name not in known:
            raise GraphError(f"{what} must be of {', '.join(known)}, got {name!r}")
        if not isinstance(weight, (int, float, np.number)) or not 0.0 <= weight < np.inf:
            raise GraphError(f"the weight of {name} must be a number >= 0, got {weight!r}")
    return {name: float(weight) for name, weight in found.items()}


def image_loss(
    picture: Picture,
    target: Variable,
    mask: Variable | None,
    weights: Mapping[str, Variable],
    own: LossFunction | None = None,
) -> Variable:
    """FLOAT @ 1x1: the weighted losses of pictures, or the user's own.

    target: VEC3, encoded as the picture. mask: FLOAT coverage of the target, or None; targets with
    one are put over the picture's background. own: gets (picture VEC4 with coverage in w, target
    VEC4 or VEC3, mask). Raises GraphError where a silhouette loss has no mask, and where own gives
    no Variable.
    """
    shown = target if mask is None else F.mix(picture.background, target, mask)
    if own is not None:
        both = F.vec4(picture.color, picture.coverage)
        made = own(both, shown if mask is None else F.vec4(shown, mask), mask)
        if not isinstance(made, Variable):
            raise GraphError(f"the loss function must return a Variable, got {made!r}")
        return F.mean(F.sum_components(made) if made.vtype.n > 1 else made)
    terms = []
    for name, weight in weights.items():
        if name in COLOR_LOSSES:
            terms.append(COLOR_LOSSES[name](picture.color, shown) * weight)
        elif mask is None:
            raise GraphError(f"the loss {name} needs targets with an alpha channel (their mask)")
        else:
            terms.append(MASK_LOSSES[name](picture.coverage, mask) * weight)
    return F.add_n(terms)


def regularizer_terms(
    active: Sequence[Parameter],
    mesh_faces: Mapping[str, np.ndarray],
    weights: Mapping[str, Variable],
) -> list[Variable]:
    """Weighted regularizers of the parameters that are fitted: of vertices by mesh, in units of its
    size (``Parameter.unit``), tv of maps and environments. mesh_faces: (F, 3) rows of ``vtx_pos``,
    by owner."""
    terms = []
    for p in active:
        if p.kind == "vtx_pos":
            faces = mesh_faces[p.owner]
            made = {
                "laplacian": lambda v, f=faces: laplacian_loss(v, laplacian_matrix(f, v.size[0])),
                "normal_consistency": lambda v, f=faces: normal_consistency(
                    v, F.leaf(f, IVEC3, "regularized_faces")
                ),
                "edge_length": lambda v, f=faces: edge_length_loss(v, edge_table(f)),
            }
            for name in [n for n in made if n in weights]:
                term = made[name](p.variable) * weights[name]
                terms.append(term * p.unit**-2 if name in SQUARED_LENGTHS else term)
        elif "tv" in weights and p.kind in (*FIELDS, "environment"):
            terms.append(total_variation(p.variable) * weights["tv"])
    return terms


def rates_of(lr: float | Mapping[str, float]) -> dict[str, float]:
    """Learning rates by kind or name; ``default`` for all others. Raises GraphError for what is no
    number >= 0."""
    found = {"default": lr} if isinstance(lr, (int, float, np.number)) else dict(lr)
    for name, rate in found.items():
        if not isinstance(rate, (int, float, np.number)) or not 0.0 <= rate < np.inf:
            raise GraphError(f"the learning rate of {name} must be a number >= 0, got {rate!r}")
    return {"default": 0.01, **{n: float(v) for n, v in found.items()}}


def rate_name(p: Parameter, rates: Mapping[str, object], table: ParameterTable) -> str:
    """Which learning rate a parameter has: that of its name, its kind, a group that it is in (or a
    map whose factor it is), or the default."""
    for name in (p.name, p.kind):
        if name in rates:
            return name
    groups = (n for n in rates if n != "default" and p in table.find(n))
    return next(groups, "default")


@dataclass(eq=False)
class Piece:
    """What one learning rate steps of one leaf. k: number of the leaf. rate: name and unit. x, g:
    what the optimizer gets. mask, units: FLOAT @ the leaf's size, of a leaf that parameters share:
    1 in the rows that are stepped, and the unit of each row; None: all of it, in one unit."""

    k: int
    rate: tuple[str, float]
    x: Variable
    g: Variable
    mask: Variable | None = None
    units: Variable | None = None

    def put(self, old: Variable, new: Variable) -> Variable:
        """The leaf with the new values of its rows."""
        if self.units is not None:
            new = new * self.units
        return new if self.mask is None else F.where(self.mask, new, old)


def shared_pieces(
    k: int, x: Variable, g: Variable, owners: Sequence[Parameter], rate_of: Callable[..., str]
) -> list[Piece]:
    """The pieces of a leaf that several parameters share: one for each rate of those that are
    fitted. Rows of the others keep their value and give an optimizer a gradient of 0."""
    groups: dict[str, list[Parameter]] = {}
    for p in owners:
        if p.requires_grad:
            groups.setdefault(rate_of(p), []).append(p)
    out = []
    for name, members in groups.items():
        piece = Piece(k, (name, 1.0), x, g)
        if any(p.unit != 1.0 for p in members):
            # Rows of no member are 0 there: they are masked.
            piece.units = rows_mask(members, (p.unit for p in members))
            piece.x, piece.g = F.safe_div(x, piece.units), g * piece.units
        if len(members) < len(owners):
            piece.mask = rows_mask(members)
            piece.g = piece.g * piece.mask
        out.append(piece)
    return out


def grouped_optimizer(
    table: ParameterTable,
    rates: Mapping[str, Variable],
    make: Callable[..., Any],
    own: bool,
) -> Optimizer:
    """An optimizer of all parameters: a ``make(lr)`` for each learning rate (or ``make`` itself for
    all, where ``own``), then the clamp to each one's range.

    A leaf that several parameters share is stepped as one: an optimizer that looks at all of a
    parameter (``AdamUniform``: at its largest second moment) looks at all of them.
    """
    by_leaf: dict[Variable, list[Parameter]] = {}
    for p in table:
        by_leaf.setdefault(p.leaf, []).append(p)

    def rate_of(p: Parameter) -> str:
        return "default" if own else rate_name(p, rates, table)

    def pieces_of(k: int, x: Variable, g: Variable) -> list[Piece]:
        owners = by_leaf.get(x, [])
        if owners and owners[0].place is not None:
            return shared_pieces(k, x, g, owners, rate_of)
        name = rate_of(owners[0]) if owners else "default"
        unit = owners[0].unit if owners and not own else 1.0
        # What an optimizer of x / unit would do, whichever it is.
        return [Piece(k, (name, unit), x, g if unit == 1.0 else g * unit)]

    def update(xs: Sequence[Variable], gxs: Sequence[Variable]) -> list[Variable]:
        pairs = enumerate(zip(xs, gxs, strict=True))
        pieces = [piece for k, (x, g) in pairs for piece in pieces_of(k, x, g)]
        new = list(xs)
        for name, unit in dict.fromkeys(piece.rate for piece in pieces):
            mine = [piece for piece in pieces if piece.rate == (name, unit)]
            step = make if own else make(rates[name] if unit == 1.0 else rates[name] * unit)
            done = step([piece.x for piece in mine], [piece.g for piece in mine])
            for piece, value in zip(mine, done, strict=True):
                new[piece.k] = piece.put(new[piece.k], value)
        return [
            clamped(next(iter(by_leaf.get(x, [])), None), v) for x, v in zip(xs, new, strict=True)
        ]

    return update


def clamped(p: Parameter | None, value: Variable) -> Variable:
    """value within the range of a parameter."""
    if p is None:
        return value
    if p.low is not None and p.high is not None:
        return F.clamp(value, p.low, p.high)
    if p.low is not None:
        return F.maximum(value, p.low)
    return value if p.high is None else F.minimum(value, p.high)
