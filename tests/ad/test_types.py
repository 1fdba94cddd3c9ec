"""Types that an op's docstring does not declare raise GraphError at the call; declared ones do not.

One table, written from the docstrings of F: for each op the types that it takes in each place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from dressi.ad import F, Variable
from dressi.ad.vtype import VType
from dressi.errors import GraphError

FLOATS = ("FLOAT", "VEC2", "VEC3", "VEC4")
VECS = FLOATS[1:]
INTS = ("INT", "IVEC2", "IVEC3", "IVEC4")
MATS = ("MAT2", "MAT3", "MAT4")
ALL = (*FLOATS, *MATS, *INTS)


def one(*types: str) -> set[tuple[str, ...]]:
    return {(t,) for t in types}


def mixed(*bases: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Equal types, or the scalar of a base with each of its vectors, both ways."""
    out = set()
    for base in bases:
        out |= {(t, t) for t in base} | {(base[0], t) for t in base} | {(t, base[0]) for t in base}
    return out


def pairs(*types: str) -> set[tuple[str, ...]]:
    return {(t, t) for t in types}


UNARY = [
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "exp",
    "log",
    "sqrt",
    "tanh",
    "floor",
    "ceil",
    "fract",
    "sigmoid",
    "softplus",
    "round",
    "trunc",
    "exp2",
    "log2",
    "log1p",
    "expm1",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "inversesqrt",
    "radians",
    "degrees",
    "norm",
    "safe_normalize",
    "logsumexp",
    "softmax",
    "log_sigmoid",
    "huber",
    "charbonnier",
    "srgb_to_linear",
    "linear_to_srgb",
    "relu",
    "leaky_relu",
    "elu",
    "silu",
    "gelu",
]
ANY_UNARY = ["abs", "sign", "logical_not", "any_components", "all_components"]
ANY_UNARY += ["max_components", "min_components"]
INT_UNARY = ["bit_not", "bit_count", "find_lsb", "find_msb"]
INT_PAIRS = ["idiv", "imod", "bit_and", "bit_or", "bit_xor", "shift_left", "shift_right"]
FLOAT_PAIRS = ["atan2", "mod", "distance", "reflect", "logaddexp"]
LOGICAL = ["logical_and", "logical_or", "logical_xor"]


def of_one_length(*types: str) -> set[tuple[str, ...]]:
    """All pairs with equally many components, or with a scalar."""
    n = {t: VType[t].n for t in types}
    return {(a, b) for a in types for b in types if n[a] == n[b] or 1 in (n[a], n[b])}


FUNCTIONS = {name.rpartition(".")[2]: function for name, function in F.public_ops().items()}

# name -> (call, declared types of its arguments), after the docstrings.
TABLE: dict[str, tuple[Callable[..., Variable], set[tuple[str, ...]]]] = {
    **{name: (FUNCTIONS[name], one(*FLOATS)) for name in UNARY},
    **{name: (FUNCTIONS[name], mixed(FLOATS)) for name in FLOAT_PAIRS},
    **{name: (FUNCTIONS[name], mixed(INTS)) for name in INT_PAIRS},
    **{name: (FUNCTIONS[name], one(*INTS)) for name in INT_UNARY},
    **{name: (FUNCTIONS[name], one(*FLOATS, *INTS)) for name in ANY_UNARY},
    **{name: (FUNCTIONS[name], of_one_length(*FLOATS, *INTS)) for name in LOGICAL},
    "step": (F.step, mixed(FLOATS, INTS)),
    "float_bits": (F.bits.float_bits, one(*FLOATS)),
    "bits_float": (F.bits.bits_float, one(*INTS)),
    "cofactor": (F.linalg.cofactor, one(*MATS)),
    "determinant": (F.linalg.determinant, one(*MATS)),
    "inverse": (F.linalg.inverse, one(*MATS)),
    "trace": (F.linalg.trace, one(*MATS)),
    "diagonal": (F.linalg.diagonal, one(*MATS)),
    "diagonal_matrix": (F.linalg.diagonal_matrix, one(*VECS)),
    "row": (lambda m: F.linalg.row(m, 1), one(*MATS)),
    "matmul_layers": (F.linalg.matmul_layers, one(*MATS)),
    "matrix_comp_mul": (F.linalg.matrix_comp_mul, pairs(*MATS)),
    "vector_matmul": (F.linalg.vector_matmul, {(f"VEC{n}", f"MAT{n}") for n in (2, 3, 4)}),
    "add": (F.add, mixed(FLOATS, INTS) | pairs(*MATS)),
    "sub": (F.sub, mixed(FLOATS, INTS) | pairs(*MATS)),
    "mul": (
        F.mul,
        mixed(FLOATS, INTS) | {(m, "FLOAT") for m in MATS} | {("FLOAT", m) for m in MATS},
    ),
    "div": (F.div, mixed(FLOATS, INTS)),
    "minimum": (F.minimum, mixed(FLOATS, INTS)),
    "maximum": (F.maximum, mixed(FLOATS, INTS)),
    "pow": (F.pow, mixed(FLOATS)),
    "safe_div": (F.safe_div, mixed(FLOATS)),
    "equal": (F.equal, mixed(FLOATS, INTS)),
    "not_equal": (F.not_equal, mixed(FLOATS, INTS)),
    "compare": (lambda a, b: F.compare("lt", a, b), mixed(FLOATS, INTS)),
    "dot": (F.dot, mixed(FLOATS)),
    "cross": (F.cross, pairs("VEC3")),
    "outer": (F.linalg.outer, pairs(*VECS)),
    "matmul": (F.matmul, {(f"MAT{n}", t) for n in (2, 3, 4) for t in (f"VEC{n}", f"MAT{n}")}),
    "scale": (F.scale, {(m, "FLOAT") for m in MATS}),
    "transpose": (F.transpose, one(*MATS)),
    "column": (lambda m: F.linalg.column(m, 1), one(*MATS)),
    "to_int": (F.to_int, one(*FLOATS, *INTS)),
    "to_float": (F.to_float, one(*FLOATS, *INTS)),
    "swizzle": (lambda a: F.swizzle(a, "x"), one(*FLOATS, *INTS)),
    "length": (F.length, one(*FLOATS)),
    "normalize": (F.normalize, one(*FLOATS)),
    "sum": (F.sum, one(*ALL)),
    "mean": (F.mean, one(*FLOATS)),
    "sum_layers": (F.sum_layers, one(*ALL)),
    "sum_components": (F.sum_components, one(*ALL)),
    "expand": (lambda a: F.expand(a, (4, 4), 3), one(*ALL)),
    "stop_gradient": (F.stop_gradient, one(*ALL)),
    "border": (F.image.border, one("FLOAT")),
    "dilate": (lambda a: F.image.dilate(a, 1.0, 2), one("FLOAT")),
    "sobol": (F.sobol, one("INT")),
    "crop": (lambda a: F.crop(a, 1, 0, 2, 1), one(*ALL)),
    "pad": (lambda a: F.pad(a, 1, 2, 3, 4, "mirror"), one(*ALL)),
    "tile": (lambda a: F.tile(a, 2, 3), one(*ALL)),
    "flip": (F.flip, one(*ALL)),
    "reshape": (lambda a: F.reshape(a, (2, 2)), one(*ALL)),
    "concat": (lambda a, b: F.concat([a, b]), pairs(*ALL)),
    "join": (lambda a, b: F.join([a, b]), pairs(*ALL)),
    "stack": (lambda a, b: F.stack([a, b]), pairs(*ALL)),
    "resize": (lambda a: F.image.resize(a, (3, 5)), one(*FLOATS, *MATS)),
    "shrink": (lambda a: F.image.shrink(a, (3, 1)), one(*FLOATS)),
    "shift": (lambda a: F.image.shift(a, 1, -2), one(*ALL)),
    "convolve": (lambda a: F.image.convolve(a, [[1, 2, 3]]), one(*FLOATS)),
    "box_blur": (lambda a: F.image.box_blur(a, 1), one(*FLOATS)),
    "gaussian_blur": (lambda a: F.image.gaussian_blur(a, 1.0), one(*FLOATS)),
    "laplacian": (F.image.laplacian, one(*FLOATS)),
    "erode": (lambda a: F.image.erode(a, 1.0, 2), one("FLOAT")),
    "max": (F.max, one(*FLOATS, *INTS)),
    "min": (F.min, one(*FLOATS, *INTS)),
    "argmax": (F.argmax, one("FLOAT", "INT")),
    "argmin": (F.argmin, one("FLOAT", "INT")),
    "norm_pixels": (F.norm_pixels, one(*FLOATS)),
    "hash": (F.hash, one(*INTS)),
    "dynamic": (F.dynamic, one(*INTS)),
    "lookup": (F.lookup, {(t, "INT") for t in ALL}),
    "scatter_add": (
        lambda v, i: F.scatter_add(v, i, (4, 1)),
        {(t, "INT") for t in (*FLOATS, *MATS)},
    ),
    "positional_encoding": (lambda a: F.nn.positional_encoding(a, 2), one(*FLOATS)),
    "texture": (F.texture, {(t, "VEC2") for t in FLOATS}),
    "texture_equirect": (F.texture_equirect, {(t, "VEC3") for t in FLOATS}),
    "vec2": (F.vec2, {("FLOAT", "FLOAT"), ("INT", "INT")}),
    "vec3": (F.vec3, {("VEC2", "FLOAT"), ("FLOAT", "VEC2"), ("IVEC2", "INT"), ("INT", "IVEC2")}),
    "vec4": (
        F.vec4,
        {("VEC2", "VEC2"), ("VEC3", "FLOAT"), ("FLOAT", "VEC3")}
        | {("IVEC2", "IVEC2"), ("IVEC3", "INT"), ("INT", "IVEC3")},
    ),
}
ELSEWHERE = {
    "conv2d",  # tests/render/test_neural.py
    "dense",
    "texture_cube",  # test_sphere_maps.py
    "linear_map",  # test_sparse.py
    "smoothstep",  # test_more_ops.py
    "refract",
    "faceforward",
    "with_components",
    "from_columns",
    "from_rows",
    "identity",
    "MipMap",  # test_mipmap.py
    "mipmap",
    "mip_levels",
    "texture_mip",
    "TextureTable",  # test_texture_table.py
    "texture_table",
    "texture_from",
    "sampler_code",
    "table_size",
    "texture_lod",  # test_detail.py
    "uv_derivatives",
    "uv_lod",
    "jvp",  # test_forward.py
    "custom",  # test_custom.py
    "constant",  # test_graph.py
    "leaf",  # test_graph.py
    "layer_index",  # no Variables go in
    "take_layer",  # below
    "split",  # test_neighbors_layers.py
    "image_gradient",
    "uniform_noise",
    "normal_noise",
    "pack_bits",
    "unpack_bits",
    "border_bits",
    "dilate_bits",
    "pixel_coord",
    "SparseMatrix",
    "add_n",  # below
    "clamp",
    "mix",
    "neg",
    "where",
    "vec",
    "rasterize",
    "resolve",
    "sparse_matmul",
}


def var(name: str, size: tuple[int, int] = (4, 1)) -> Variable:
    return Variable(VType[name], size)


def test_the_table_names_every_function_of_F() -> None:
    assert set(TABLE) | ELSEWHERE == set(FUNCTIONS)


@pytest.mark.parametrize("name", TABLE)
def test_declared_types_are_taken_and_all_others_raise(name: str) -> None:
    call, declared = TABLE[name]
    n = len(next(iter(declared)))
    size = (1, 1) if name == "expand" else (4, 1)
    wrong = []
    for types in itertools.product(ALL, repeat=n):
        try:
            call(*(var(t, size) for t in types))
            taken = True
        except GraphError:
            taken = False
        except Exception as error:  # the test reports any other class
            wrong.append(f"{types}: {type(error).__name__}: {error}")
            continue
        if taken != (types in declared):
            wrong.append(f"{types}: {'taken' if taken else 'refused'}")
    assert not wrong, "\n".join(wrong)


def test_add_n_mix_clamp_neg_and_where_follow_the_same_rules() -> None:
    bad: list[Callable[[], object]] = [
        lambda: F.add_n([]),
        lambda: F.add_n([var("FLOAT"), var("INT")]),
        lambda: F.add_n([var("VEC2"), var("VEC3")]),
        lambda: F.mix(var("VEC2"), var("VEC3"), 0.5),
        lambda: F.mix(var("MAT2"), var("MAT2"), var("MAT2")),
        lambda: F.mix(var("MAT2"), var("MAT2"), var("VEC2")),
        lambda: F.clamp(var("MAT2"), 0.0, 1.0),
        lambda: F.clamp(var("FLOAT"), var("INT"), 1.0),
        lambda: F.where(var("MAT2"), 1.0, 2.0),
        lambda: F.where(var("VEC2"), var("VEC3"), var("VEC3")),
        lambda: F.where(var("FLOAT"), var("VEC2"), var("VEC3")),
        lambda: F.where(var("FLOAT"), var("INT"), var("FLOAT")),
        lambda: F.vec(var("FLOAT")),
        lambda: F.vec(var("VEC3"), var("VEC2")),
        lambda: F.vec(var("FLOAT"), var("INT")),
        lambda: F.linalg.sparse_matmul(_matrix(), var("INT")),
        lambda: F.linalg.sparse_matmul(_matrix(), var("MAT2")),
        lambda: F.linalg.sparse_matmul(_matrix(), var("VEC3", (5, 1))),
        lambda: F.rasterize([var("VEC3")] * 3, (4, 4)),
        lambda: F.rasterize([var("VEC4")] * 2, (4, 4)),
        lambda: F.rasterize([var("VEC4"), var("VEC4"), var("VEC4", (5, 1))], (4, 4)),
    ]
    for k, call in enumerate(bad):
        with pytest.raises(GraphError):
            print(k, call())


def _matrix() -> F.linalg.SparseMatrix:
    return F.linalg.SparseMatrix(np.array([0, 1]), np.array([2]), np.array([1.0]), 4)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_negation_is_declared_for_everything(n: int) -> None:
    for t in (f"VEC{n}", f"MAT{n}", f"IVEC{n}"):
        assert (-var(t)).vtype is VType[t]


NOT_VARIABLES = {"a string": "abc", "an array": np.zeros((4, 4, 3)), "None": None, "a list": ["a"]}


@pytest.mark.parametrize("name", TABLE)
def test_what_is_no_variable_raises_graph_error(name: str) -> None:
    """Not AttributeError or TypeError from inside the library."""
    call, declared = TABLE[name]
    types = sorted(declared)[0]
    wrong = []
    for i in range(len(types)):
        for what, value in NOT_VARIABLES.items():
            args: list[object] = [var(t) for t in types]
            args[i] = value
            try:
                call(*args)
                wrong.append(f"argument {i}: {what} is taken")
            except GraphError:
                pass
            except Exception as error:  # the test reports any other class
                wrong.append(f"argument {i}: {what}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


MISFITS = [
    (lambda: var("FLOAT", (4, 3)) + var("FLOAT", (3, 4)), "4x3 and 3x4"),
    (lambda: var("FLOAT", (4, 1)) + var("FLOAT", (5, 1)), "4x1 and 5x1"),
    (lambda: Variable(VType.FLOAT, (2, 2), 2) * Variable(VType.FLOAT, (2, 2), 3), "layers 2 and 3"),
    (
        lambda: F.lookup(Variable(VType.FLOAT, (4, 1), 2), Variable(VType.INT, (5, 1), 3)),
        "2 layers",
    ),
    (
        lambda: F.texture(Variable(VType.FLOAT, (4, 4), 2), Variable(VType.VEC2, (5, 1), 3)),
        "2 layers",
    ),
    (lambda: F.expand(var("FLOAT", (2, 2)), (3, 3)), "does not expand"),
    (lambda: F.swizzle(var("VEC2"), "z"), "no components 'z'"),
    (lambda: F.swizzle(var("VEC2"), ""), "no components ''"),
    (lambda: F.linalg.column(var("MAT2"), 2), "no column 2"),
    (lambda: F.linalg.column(var("MAT2"), -1), "no column -1"),
    (lambda: F.texture(var("FLOAT"), var("VEC2"), wrap="around"), "'around'"),
    (lambda: F.texture(var("FLOAT"), var("VEC2"), filter="cubic"), "'cubic'"),
    (lambda: F.texture(var("FLOAT"), var("VEC2"), backward="none"), "'none'"),
    (lambda: F.texture(var("FLOAT"), var("VEC2"), step=var("FLOAT")), "step"),
    (lambda: F.image.dilate(var("FLOAT"), 1.0, -1), "-1"),
    (lambda: F.rasterize([var("VEC4")] * 3, (0, 4)), "(0, 4)"),
    (lambda: F.vec2(1.0, 2.0, 3.0), "3 components"),
]


@pytest.mark.parametrize("k", range(len(MISFITS)))
def test_sizes_and_modes_that_do_not_fit_are_named(k: int) -> None:
    call, text = MISFITS[k]
    with pytest.raises(GraphError) as info:
        call()
    assert text in str(info.value)
    assert "test_types.py:" in str(info.value), str(info.value)


def test_packed_masks_name_what_does_not_fit() -> None:
    words = F.bits.pack_bits(var("FLOAT", (70, 5)))
    assert (words.vtype, words.size) == (VType.INT, (3, 5))
    bad: list[Callable[[], object]] = [
        lambda: F.bits.pack_bits(var("VEC3")),
        lambda: F.bits.pack_bits(var("INT")),
        lambda: F.bits.pack_bits(var("FLOAT"), var("FLOAT", (4, 1))),
        lambda: F.bits.unpack_bits(words, (97, 5)),
        lambda: F.bits.unpack_bits(words, (70, 4)),
        lambda: F.bits.unpack_bits(var("FLOAT", (3, 5)), (70, 5)),
        lambda: F.bits.border_bits(words, 97),
        lambda: F.bits.border_bits(words, 2.5),  # type: ignore[arg-type]
        lambda: F.bits.dilate_bits(var("FLOAT", (3, 5)), 1.0, 4),
        lambda: F.bits.dilate_bits(words, 1.0, -1),
        lambda: F.bits.dilate_bits(words, var("FLOAT", (3, 5)), 4),
    ]
    for call in bad:
        with pytest.raises(GraphError):
            call()


def test_take_layer_takes_any_stack_and_integers() -> None:
    for t in ALL:
        for index, n in ((7, 1), (Variable(VType.INT, layers=2), 2)):
            y = F.take_layer(Variable(VType[t], (4, 3), 5), index)
            assert (y.vtype, y.size, y.layers) == (VType[t], (4, 3), n)
    for bad in (1.5, "x", var("FLOAT", (1, 1)), var("INT", (4, 1))):
        with pytest.raises(GraphError):
            F.take_layer(var("FLOAT", (4, 1)), bad)
    with pytest.raises(GraphError):
        F.take_layer(3.0, 0)  # type: ignore[arg-type]
