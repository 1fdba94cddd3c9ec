"""The generated op tests. They live in the package, because ``dressi doctor`` runs them too."""

from dressi.testing.cases import (
    Config,
    Instance,
    all_cases,
    case_id,
    configs,
    differentiable,
    draw,
    instance,
    projected,
    rel,
    seed_of,
    weights_like,
)

__all__ = [
    "Config",
    "Instance",
    "all_cases",
    "case_id",
    "configs",
    "differentiable",
    "draw",
    "instance",
    "projected",
    "rel",
    "seed_of",
    "weights_like",
]
