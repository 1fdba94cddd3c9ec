"""The state of a fit as plain arrays: what ``state_dict`` gives and ``load_state_dict`` takes.

In: the leaves that a step updates. Out: name -> array, in the order of their making, and back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dressi.ad.evaluate import as_array
from dressi.ad.graph import Variable
from dressi.errors import GraphError


def keys(parameters: Sequence[Variable], updated: Iterable[Variable]) -> dict[str, Variable]:
    """Return the leaves by key: ``parameter.0.pos``, then ``state.0.pos.m`` of what optimizer and
    loss keep from step to step. The numbers tell leaves of one name apart."""
    known = {v.uid for v in parameters}
    states = sorted({v for v in updated if v.uid not in known}, key=lambda v: v.uid)
    return {
        f"{what}.{k}.{v.name or 'x'}": v
        for what, leaves in (("parameter", parameters), ("state", states))
        for k, v in enumerate(leaves)
    }


def checked(state: Mapping[str, Any], leaves: Mapping[str, Variable]) -> dict[Variable, np.ndarray]:
    """Return the data of each leaf. Raises GraphError where keys or shapes are others, before
    anything is sent."""
    missing = [k for k in leaves if k not in state]
    unknown = [k for k in state if k not in leaves]
    if missing or unknown:
        raise GraphError(
            "load_state_dict: the state is that of another loss or optimizer\n"
            f"  missing: {', '.join(missing) or 'nothing'}\n"
            f"  unknown: {', '.join(unknown) or 'nothing'}"
        )
    data = {v: np.asarray(state[k]) for k, v in leaves.items()}
    for v, a in data.items():
        as_array(a, v)
    return data
