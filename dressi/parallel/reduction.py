"""Checks that a loss is reduced over its views as the user says.

In: the function that builds the loss, data of a device. Out: nothing, or GraphError. One view taken
twice leaves a mean as it is and doubles a sum. Anything else cannot be split over devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dressi.ad.graph import Variable
from dressi.engine import DressiAD
from dressi.errors import GraphError
from dressi.kinds import Reduction
from dressi.parallel.replica import Replica
from dressi.parallel.shares import Share, match_leaves

FACTOR = {"mean": 1.0, "sum": 2.0}
"""Reduction -> what a view taken twice does to the loss."""
TOLERANCE = 1e-2
"""Of the factor. Rounding is far below it, and what a mistake makes of it mostly far above."""


def check_split(
    make_loss: Callable[[Share], Variable],
    replica: Replica,
    loss: Variable,
    reduction: Reduction,
    validate: bool | None,
) -> None:
    """Compare the loss of one view with that of the same view twice, at the current data of a
    replica, whose loss it is, in an engine beside it. A loss of 0 says nothing and passes. Raises
    GraphError for any other factor than that of the reduction, and for parameters with a layer per
    view, which devices cannot share."""
    here = replica.engine
    view, n_views = replica.share.views[:1], replica.share.n_views
    losses = [make_loss(Share(np.repeat(view, n), n_views, -1)) for n in (1, 2)]
    together = match_leaves([loss, *losses])
    for whole, one, two in together:
        if whole.requires_grad and one.layers != two.layers:
            raise GraphError(
                f"{whole.label()} is to be optimized and has one layer for each view of a device: "
                "devices cannot share it\n  hint: make one leaf for all views outside of make_loss "
                "and take layers of it, F.concat([F.split(leaf)[i] for i in share.views])"
            )
    with DressiAD(here.device_info.index, here.options, validate=validate) as ad:
        for whole, one, two in together:
            data = here.recv_img(whole)
            if one.layers == two.layers:
                ad.send_img(one, data)
                ad.send_img(two, data)
            else:
                first = data[:1] if whole.layers > 1 else data[None]
                ad.send_img(one, first)
                ad.send_img(two, np.repeat(first, 2, axis=0))
        once, twice = (float(a.sum(dtype=np.float64)) for a in ad.recv_imgs(losses))
    _judge(once, twice, reduction)


def _judge(once: float, twice: float, reduction: str) -> None:
    if once == 0.0 or not (math.isfinite(once) and math.isfinite(twice)):
        return
    factor = twice / once
    if abs(factor - FACTOR[reduction]) <= TOLERANCE * FACTOR[reduction]:
        return
    meant = [name for name, f in FACTOR.items() if abs(factor - f) <= TOLERANCE * f]
    hint = (
        f'say reduction="{meant[0]}"'
        if meant
        else "under a sum, multiply what is no sum over views (a regularizer) by share.weight; a "
        "loss across views cannot be split; check=False passes a loss with noise"
    )
    raise GraphError(
        f'reduction="{reduction}": a view taken twice should make the loss {FACTOR[reduction]:g} '
        f"times as large; it is {once:.6g} once and {twice:.6g} twice ({factor:.4g} times)\n"
        f"  hint: {hint}"
    )
