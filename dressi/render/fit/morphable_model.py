"""Morphable models: positions that are a mean plus a basis times coefficients (paper, B.3).

In: a table of means, a stack with a layer per component, coefficients, and offsets beyond their
span. Out: a table of positions.
"""

from __future__ import annotations

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT
from dressi.errors import GraphError


def morphable(
    mean: Variable, basis: Variable, coefficients: Variable, offsets: Variable | None = None
) -> Variable:
    """Return mean + sum over k of coefficients[k] * basis[k] + offsets.

    mean: VEC3 @ (N, 1), world units. basis: VEC3 @ (N, 1), a layer per component, world units per
    coefficient. coefficients: FLOAT @ 1x1, as many layers. Hundreds of components take as many
    Functions as one: a product and a sum over layers. offsets: like the mean, what a shape has that
    no sum of components has; None: the shape stays in the span of the model. Offsets of single
    vertices follow the noise of what they are fitted to: parametrize them by
    ``laplacian_smoothing`` or ``large_steps``, and regularize them by ``laplacian_loss``. Gradient
    to all, to the coefficients as one sum per layer. Raises GraphError for other types and sizes
    and where the numbers of vertices or of components differ. Source: Blanz and Vetter 1999.
    """
    given = {"mean": mean, "basis": basis, "coefficients": coefficients}
    for name, x in (given if offsets is None else {**given, "offsets": offsets}).items():
        if not isinstance(x, Variable):
            raise GraphError(f"morphable: {name} must be a Variable, got {type(x).__name__}")
    if mean.size[1] != 1 or mean.layers != 1 or mean.vtype.is_int or mean.vtype.is_matrix:
        raise GraphError(f"morphable: mean must be a table VEC3 @ (N, 1), got {mean.label()}")
    if basis.vtype is not mean.vtype or basis.size != mean.size:
        raise GraphError(
            f"morphable: basis must be {mean.vtype.name} @ {mean.size[0]}x1 like the mean, with a "
            f"layer per component, got {basis.label()}"
        )
    if coefficients.vtype is not FLOAT or coefficients.size != (1, 1):
        raise GraphError(
            f"morphable: coefficients must be FLOAT @ 1x1 with a layer per component, got "
            f"{coefficients.label()}"
        )
    if coefficients.layers != basis.layers:
        raise GraphError(
            f"morphable: {coefficients.layers} coefficients for {basis.layers} components"
        )
    shape = mean + F.sum_layers(basis * coefficients)
    if offsets is None:
        return shape
    if (offsets.vtype, offsets.size, offsets.layers) != (mean.vtype, mean.size, 1):
        raise GraphError(
            f"morphable: offsets must be {mean.vtype.name} @ {mean.size[0]}x1 like the mean, got "
            f"{offsets.label()}"
        )
    return shape + offsets
