"""Transparency: alpha masks, and blending of peels from front to back.

In: colours and coverage of K peels, in the order of their depth. Out: premultiplied colour and
coverage, and their picture over a background. Source: Porter and Duff 1984 (over).
"""

from __future__ import annotations

from collections.abc import Sequence

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT
from dressi.errors import GraphError
from dressi.render.raster import HardSoft, probability
from dressi.render.shading.values import Value, as_number, as_variable


def alpha_mask(alpha: Variable, cutoff: Value = 0.5, softness: Value = 0.0) -> Variable:
    """glTF's MASK: 1 where alpha >= cutoff, else 0; or a soft step.

    alpha, cutoff: FLOAT. softness: 0 gives the hard mask, which has no gradient; above it
    sigmoid((alpha - cutoff) / softness), 1/2 at the cutoff, with gradient to all three. A fit
    begins with 0.1 or so and anneals; as a Variable it may reach 0, where the mask is hard. Raises
    GraphError for a negative softness.
    """
    alpha = as_variable("alpha_mask: alpha", alpha, FLOAT)
    number = as_number(softness)
    if number is not None and not number >= 0.0:
        raise GraphError(f"alpha_mask: softness must be >= 0, got {softness!r}")
    level = as_variable("alpha_mask: cutoff", cutoff, FLOAT)
    hard = F.step(level, alpha)
    if number == 0.0:
        return hard
    width = as_variable("alpha_mask: softness", softness, FLOAT)
    return F.where(width > 0.0, F.sigmoid(F.safe_div(alpha - level, width)), hard)


def over(colors: Sequence[Variable], alphas: Sequence[Variable]) -> tuple[Variable, Variable]:
    """(premultiplied colour, FLOAT coverage) of layers, the front one first.

    colors: FLOAT or VECn, not premultiplied. alphas: FLOAT in [0, 1]. colour = sum of T_k a_k c_k
    with T_k = product of 1 - a_j in front; coverage = 1 - the last T. Gradient to all: what lies
    behind gets T_k a_k, an alpha also what its layer hides. Raises GraphError unless there is one
    alpha a colour, and at least one.
    """
    if len(colors) != len(alphas) or not colors:
        raise GraphError(
            "over needs an alpha for each of one or more colours, got "
            f"{len(colors)} colours, {len(alphas)} alphas"
        )
    through: Variable | None = None
    terms = []
    for color, alpha in zip(colors, alphas, strict=True):
        terms.append(color * (alpha if through is None else alpha * through))
        through = 1.0 - alpha if through is None else through * (1.0 - alpha)
    assert through is not None
    return F.add_n(terms), 1.0 - through


def composite(
    premultiplied: Variable, coverage: Variable, background: Variable | float = 0.0
) -> Variable:
    """premultiplied + (1 - coverage) * background: VECn, FLOAT, VECn. Gradient to all three."""
    return premultiplied + (1.0 - coverage) * background


def peel_alphas(hs: HardSoft, alphas: Sequence[Variable | float]) -> list[Variable]:
    """FLOAT coverage of each peel: its alpha times how much of the pixel its face covers.

    That is D_k = sigmoid(distance / sigma) within the edge mask, and 1 or 0 elsewhere, where soft
    faces do not count. Opaque peels therefore cover exactly ``hs.silhouette`` together. Gradient to
    alphas, and through D_k to vertices. Raises GraphError unless there is one alpha per peel, and
    for peels with occlusion, whose edges are not put over each other.
    """
    if hs.bands is not None:
        raise GraphError("peel_alphas: with occlusion, blend_peels blends hard faces and edges")
    if len(alphas) != len(hs.peels):
        raise GraphError(
            f"peel_alphas needs {len(hs.peels)} alphas, one per peel, got {len(alphas)}"
        )
    hard = [peel.stencil * (peel.depth <= 0.5) for peel in hs.peels]
    return [
        alpha * F.where(hs.edge, probability(peel, hs.sigma), solid)
        for alpha, peel, solid in zip(alphas, hs.peels, hard, strict=True)
    ]


def blend_peels(
    hs: HardSoft,
    colors: Sequence[Variable],
    alphas: Sequence[Variable | float],
    background: Variable | float = 0.0,
) -> tuple[Variable, Variable]:
    """(colour over the background, FLOAT coverage) of K peels, front to back.

    hs: of K peels in the order of their shifted depth: solid faces from the front to the back, then
    rims. colors: FLOAT or VECn a peel. alphas: FLOAT a peel: of the material, of a mask, or their
    product; 1.0 for opaque. What lies behind more than K layers is not seen, so a masked or clear
    material needs K of at least 2; with occlusion it shows the background. Gradient to all. Raises
    GraphError unless there is one of each a peel.
    """
    if hs.bands is not None:
        covers = [a if isinstance(a, Variable) else F.constant(float(a)) for a in alphas]
        mixed = [F.mix(background, c, a) for c, a in zip(colors, covers, strict=True)]
        return hs.blend(mixed, background), hs.blend(covers)
    premultiplied, coverage = over(colors, peel_alphas(hs, alphas))
    return composite(premultiplied, coverage, background), coverage
