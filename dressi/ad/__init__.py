"""Automatic differentiation on 2D images: Variables, F ops, backward, optimizers, NumPy oracle."""

from dressi.ad import copies as _copies  # noqa: F401  (copy and pickle of Variables)
from dressi.ad import functions as F
from dressi.ad.autodiff import build_backward, parameters
from dressi.ad.evaluate import evaluate
from dressi.ad.explain import Explanation, explain
from dressi.ad.gradcheck import GradCheck, gradcheck
from dressi.ad.graph import Function, Variable
from dressi.ad.optim import (
    SGD,
    Adam,
    AdamUniform,
    GradientOnly,
    Momentum,
    exponential_decay,
    state,
    step_counter,
)
from dressi.ad.optim_groups import GradientClipping, ParameterGroups
from dressi.ad.show import graph_text
from dressi.ad.simplify import simplify
from dressi.ad.vtype import (
    FLOAT,
    INT,
    IVEC2,
    IVEC3,
    IVEC4,
    MAT2,
    MAT3,
    MAT4,
    VEC2,
    VEC3,
    VEC4,
    VType,
)

__all__ = [
    "FLOAT",
    "INT",
    "IVEC2",
    "IVEC3",
    "IVEC4",
    "MAT2",
    "MAT3",
    "MAT4",
    "SGD",
    "VEC2",
    "VEC3",
    "VEC4",
    "Adam",
    "AdamUniform",
    "Explanation",
    "F",
    "Function",
    "GradCheck",
    "GradientClipping",
    "GradientOnly",
    "Momentum",
    "ParameterGroups",
    "VType",
    "Variable",
    "build_backward",
    "evaluate",
    "explain",
    "exponential_decay",
    "gradcheck",
    "graph_text",
    "parameters",
    "simplify",
    "state",
    "step_counter",
]
