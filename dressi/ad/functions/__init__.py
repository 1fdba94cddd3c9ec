"""``F``: all ops. Each is one row of the registry; docs/ops.md is the table made from the rows.

Ops of one subject are in a family: ``F.bits``, ``F.image``, ``F.linalg``, ``F.nn``. An op keeps its
name there, so messages and dumps name it without the family. Families' ops are still found in F
itself, where they were before, with a DeprecationWarning, for one release.
"""

import warnings
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dressi.ad.functions._common import constant, leaf
from dressi.ad.functions.arith import (
    add,
    add_n,
    clamp,
    div,
    maximum,
    minimum,
    mix,
    mul,
    neg,
    sub,
    to_float,
    to_int,
)
from dressi.ad.functions.components import sum_components
from dressi.ad.functions.custom import custom
from dressi.ad.functions.detail import texture_lod, uv_derivatives, uv_lod
from dressi.ad.functions.elementary import (
    abs,
    acos,
    asin,
    atan,
    atan2,
    ceil,
    cos,
    degrees,
    exp,
    floor,
    fract,
    inversesqrt,
    log,
    mod,
    radians,
    round,
    sigmoid,
    sign,
    sin,
    smoothstep,
    softplus,
    sqrt,
    step,
    tan,
    trunc,
)
from dressi.ad.functions.exponential import (
    acosh,
    asinh,
    atanh,
    cosh,
    exp2,
    expm1,
    log1p,
    log2,
    sinh,
    tanh,
)
from dressi.ad.functions.extremes import argmax, argmin, max, min, norm_pixels
from dressi.ad.functions.image import expand, layer_index, pixel_coord, sobol, take_layer
from dressi.ad.functions.integer import idiv, imod
from dressi.ad.functions.join import join
from dressi.ad.functions.layers import concat, flip, reshape, split, stack
from dressi.ad.functions.logic import (
    all_components,
    any_components,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
)
from dressi.ad.functions.matrix import matmul, scale, transpose
from dressi.ad.functions.noise import hash, normal_noise, uniform_noise
from dressi.ad.functions.operators import attach_operators as _attach_operators
from dressi.ad.functions.power import pow
from dressi.ad.functions.raster import rasterize, resolve
from dressi.ad.functions.reduce import mean, sum, sum_layers
from dressi.ad.functions.scatter import dynamic, lookup, scatter_add
from dressi.ad.functions.select import compare, equal, not_equal, safe_div, where
from dressi.ad.functions.sphere import texture_cube, texture_equirect
from dressi.ad.functions.stable import (
    charbonnier,
    huber,
    logaddexp,
    logsumexp,
    norm,
    safe_normalize,
    softmax,
)
from dressi.ad.functions.stop import stop_gradient
from dressi.ad.functions.texture import texture
from dressi.ad.functions.texture_from import texture_from
from dressi.ad.functions.texture_mip import texture_mip
from dressi.ad.functions.vector import (
    cross,
    distance,
    dot,
    faceforward,
    length,
    max_components,
    min_components,
    normalize,
    reflect,
    refract,
    swizzle,
    vec,
    vec2,
    vec3,
    vec4,
    with_components,
)
from dressi.ad.functions.window import crop, pad, tile
from dressi.ad.idioms import no_op

# Behind the ops: it is built from them, and from the reverse mode.
# isort: split
from dressi.ad.forward import jvp

# Last, when the files of ops of the same names have been imported: a family stands for them in F.
# isort: split
from dressi.ad.functions.families import bits, image, linalg, nn

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "add_n",
    "all_components",
    "any_components",
    "argmax",
    "argmin",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bits",
    "ceil",
    "charbonnier",
    "clamp",
    "compare",
    "concat",
    "constant",
    "cos",
    "cosh",
    "crop",
    "cross",
    "custom",
    "degrees",
    "distance",
    "div",
    "dot",
    "dynamic",
    "equal",
    "exp",
    "exp2",
    "expand",
    "expm1",
    "faceforward",
    "flip",
    "floor",
    "fract",
    "hash",
    "huber",
    "idiv",
    "image",
    "imod",
    "inversesqrt",
    "join",
    "jvp",
    "layer_index",
    "leaf",
    "length",
    "linalg",
    "log",
    "log1p",
    "log2",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsumexp",
    "lookup",
    "matmul",
    "max",
    "max_components",
    "maximum",
    "mean",
    "min",
    "min_components",
    "minimum",
    "mix",
    "mod",
    "mul",
    "neg",
    "nn",
    "norm",
    "norm_pixels",
    "normal_noise",
    "normalize",
    "not_equal",
    "pad",
    "pixel_coord",
    "pow",
    "radians",
    "rasterize",
    "reflect",
    "refract",
    "reshape",
    "resolve",
    "round",
    "safe_div",
    "safe_normalize",
    "scale",
    "scatter_add",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "smoothstep",
    "sobol",
    "softmax",
    "softplus",
    "split",
    "sqrt",
    "stack",
    "step",
    "stop_gradient",
    "sub",
    "sum",
    "sum_components",
    "sum_layers",
    "swizzle",
    "take_layer",
    "tan",
    "tanh",
    "texture",
    "texture_cube",
    "texture_equirect",
    "texture_from",
    "texture_lod",
    "texture_mip",
    "tile",
    "to_float",
    "to_int",
    "transpose",
    "trunc",
    "uniform_noise",
    "uv_derivatives",
    "uv_lod",
    "vec",
    "vec2",
    "vec3",
    "vec4",
    "where",
    "with_components",
]

FAMILIES = {"bits": bits, "image": image, "linalg": linalg, "nn": nn}
"""Name of a family in F -> its module."""

for _family in FAMILIES.values():  # dir() lists the ops alone, for completion
    vars(_family)["__dir__"] = partial(list, _family.__all__)


def __dir__() -> list[str]:
    """Return the ops and their families alone, for completion: no helpers, no files of ops."""
    return __all__


def _missing(family: str, name: str) -> Any:
    """Raise AttributeError for an op that a family does not have, naming one that F has."""
    if name.startswith("__"):
        raise AttributeError(name)
    raise no_op(name, public_ops(), f"F.{family}")


for _name, _family in FAMILIES.items():
    vars(_family)["__getattr__"] = partial(_missing, _name)


def public_ops() -> dict[str, Any]:
    """Return every op under its name in F, with its family: ``add``, ``linalg.inverse``."""
    own = {name: globals()[name] for name in __all__ if name not in FAMILIES}
    theirs = {f"{f}.{n}": getattr(m, n) for f, m in FAMILIES.items() for n in m.__all__}
    return own | theirs


_attach_operators(public_ops)

for _name, _value in list(globals().items()):  # files of ops: F.resize is no module
    if (
        isinstance(_value, ModuleType)
        and _name not in FAMILIES
        and _value.__name__.startswith(__name__)
    ):
        del globals()[_name]

if not TYPE_CHECKING:  # a type checker is to find names that do not exist

    def __getattr__(name: str) -> Any:
        """Return an op that has moved into a family, and warn once."""
        for family, module in FAMILIES.items():
            if name in module.__all__:
                message = f"F.{name} is now F.{family}.{name}"
                warnings.warn(message, DeprecationWarning, stacklevel=2)
                globals()[name] = getattr(module, name)
                return globals()[name]
        raise no_op(name, public_ops())
