"""Vector-Jacobian products of several outputs: reverse mode from upstream gradients.

In: outputs, and a Variable for the gradient of each. Out: gradients of leaves, as more graph.
"""

from __future__ import annotations

from collections.abc import Sequence

from dressi.ad.autodiff import sweep_from
from dressi.ad.graph import Variable


def build_vjp(
    outputs: Sequence[Variable], upstream: Sequence[Variable], wrt: Sequence[Variable]
) -> dict[Variable, Variable]:
    """Return the vector-Jacobian product: the gradients of sum over k and pixels of
    ``outputs[k] * upstream[k]``.

    outputs: FLOAT, VECn or MATn @ any size, any layers; upstream: for each a Variable of the same
    type, size and layers. Returns as ``build_backward``.
    """
    gradients = sweep_from(list(zip(outputs, upstream, strict=True)), wrt, ()).gradients
    return {v: gradients[v.uid] for v in wrt if v.uid in gradients}
