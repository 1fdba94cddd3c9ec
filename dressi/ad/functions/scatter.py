"""Indexed reads and their transposes: lookup and scatter-add.

``lookup`` has an exact backward. A static index (topology, sent from the host) is inverted once on
the CPU into CSR form and its backward is a gather, without atomics. A dynamic index (ids of a
rasterization) is scattered with float atomics. Paper: LookupFaces in A.3.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dressi.ad.functions._common import (
    like_integers,
    n_pixels,
    needs_int,
    needs_variable,
    sized,
    table_index,
)
from dressi.ad.functions.arith import add_n
from dressi.ad.functions.image import expand
from dressi.ad.functions.inverse_maps import Ref, sampled_rows, stream_of
from dressi.ad.functions.rows import RowSum, row_sum_kernels
from dressi.ad.graph import Derived, Function, Size, Variable, checked_shape, short
from dressi.ad.index_uses import note_use
from dressi.ad.kernels import Kernel, register
from dressi.ad.registry import ANY, COMP, RASTER, SAME, Op, Shape, apply
from dressi.ad.template import expand_glsl
from dressi.ad.vtype import FLOAT, INT, VEC3
from dressi.errors import GraphError
from dressi.kinds import SCATTERS, Scatter


def _lookup_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    table, index = xs
    if index.vtype is not INT:
        raise GraphError(f"the index must be INT, got {index.vtype.name}")
    if table.layers != 1 and index.layers not in (1, table.layers):
        raise GraphError(
            f"a table of {table.layers} layers, an index of {index.layers}: layer k of the index "
            "reads layer k of the table, as views read a table each (equal numbers, or 1)"
        )
    return table.vtype, index.size, max(table.layers, index.layers)


_LOOKUP = """int {y}_i = clamp({x1}, 0, {last});
  {y} = {fetch0}({at}, {layer});
  if ({y}_i != {x1}) {y} = {T}(0);"""


def _lookup_glsl(f: Function) -> str:
    table = f.inputs[0]
    w, h = table.size
    maker = f.inputs[1].creator
    if maker is not None and maker.op.kind == RASTER and w * h >= maker.inputs[0].size[0]:
        # The number of a primitive that was drawn: never out of range.
        return f"{{y}} = {{fetch0}}({table_index('{w0}', '{x1}', table.is_table)}, {{layer}});"
    at, last = table_index("{w0}", "{y}_i", table.is_table), f"{n_pixels(table, 'w0')} - 1"
    return expand_glsl(f.op.name, _LOOKUP, last=last, at=at)


def _rows(index: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(layer numbers, valid) that go with an index array (layers, H, W) into a stack of tables."""
    n = table.shape[1] * table.shape[2]
    layers = max(index.shape[0], table.shape[0])
    index = np.broadcast_to(index, (layers, *index.shape[1:]))
    layer = np.broadcast_to(np.arange(layers)[:, None, None], index.shape)
    return np.where(table.shape[0] == 1, 0, layer), (index >= 0) & (index < n)


def _lookup_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    table, index = xs[0], xs[1][..., 0].astype(np.int64)
    layer, ok = _rows(index, table)
    index = np.broadcast_to(index, ok.shape)
    flat = table.reshape(table.shape[0], -1, *table.shape[3:])
    out = flat[layer, np.where(ok, index, 0)]
    out[~ok] = 0
    return out


def _lookup_backward(f: Function, gy: Variable, i: int) -> Variable | None:
    if i == 1:
        return None
    table, index = f.inputs
    if index.layers == 1 and is_static(index):
        offsets, items = inverted(index, table.size[0] * table.size[1])
        return apply(CSR_GATHER, (gy, offsets, items), size=table.size)
    way = dict(f.attrs).get("scatter", "exact")
    if way == "stochastic":
        step, samples = f.attr("step").value, f.attr("samples")
        return sampled_rows(gy, index, table, step, samples, stream_of(f))
    return _scatter_add(gy, index, table.size, table.layers, way == "deterministic")


LOOKUP = Op(
    "lookup",
    _lookup_infer,
    reads=(ANY, SAME),
    linear_in=(0,),
    exact=True,
    why_zero="the index points outside the table wherever a gradient arrives",
    one_read=(0,),
    backward=_lookup_backward,
    reference=_lookup_ref,
    cases=(
        sized(
            lambda t, i: lookup(t, i),
            ((VEC3, -2, 2), (INT, -1, 10)),
            (11, 1),
            (7, 5),
            mixed_layers=True,
        ),
        sized(
            lambda t, i: lookup(t, i + 0),
            ((FLOAT, -2, 2), (INT, -1, 19)),
            (5, 4),
            (33, 1),
            mixed_layers=True,
        ),
        sized(
            lambda t, i: lookup(t, dynamic(i)),
            ((VEC3, -2, 2), (INT, -1, 10)),
            (11, 1),
            (7, 5),
            mixed_layers=True,
        ),
    ),
)
register(LOOKUP, Kernel(_lookup_glsl))


def is_static(index: Variable) -> bool:
    """Whether an integer Variable depends only on integer leaves that steps do not change."""
    if index.fragment_of is not None:
        return False
    waiting, seen = [index], set()
    while waiting:  # until the first that says no: behind ids of faces lies all of the geometry
        v = waiting.pop()
        f = v.creator
        if f is None:
            if not v.vtype.is_int or v.update is not None:
                return False
        elif f.op.kind in (RASTER, COMP) or f.op.scatter or f.op is DYNAMIC:
            return False
        elif f.uid not in seen:
            seen.add(f.uid)
            waiting += f.inputs
    return True


def invert_index(index: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """CSR of the inverse of an index: for each of n rows, the positions that point to it.

    index: (M,) integers; those outside [0, n) are left out. Returns offsets
    (n + 1,) and items (M,), both int32; a row's items ascend, those past offsets[n] are 0.
    """
    flat = np.asarray(index).reshape(-1).astype(np.int64)
    ok = (flat >= 0) & (flat < n)
    positions = np.flatnonzero(ok)
    rows = flat[positions]
    # NumPy sorts integers of 16 bits by their digits, ten times as fast as wider ones.
    order = np.argsort(rows.astype(np.uint16) if n <= 2**16 else rows, kind="stable")
    offsets = np.zeros(n + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=n), out=offsets[1:])
    items = np.zeros(max(len(flat), 1), np.int32)
    items[: len(positions)] = positions[order]
    return offsets, items


def inverted(index: Variable, n: int) -> tuple[Variable, Variable]:
    """Leaves with the CSR inverse of a static index, kept up to date by the engine.

    The same ones every time, so that building a backward again makes no new images; also for equal
    indices made by separate calls (``faces.x`` twice), so that their gathers can become one.
    """
    owner = index
    key: tuple[Hashable, ...] = (n,)
    while owner.creator is not None and len(owner.creator.inputs) == 1:
        f = owner.creator
        owner, key = f.inputs[0], (f.op.name, f.attrs, *key)
    if owner.creator is not None:
        owner, key = index, (n,)
    if owner._inverses is None:
        owner._inverses = {}
    if key not in owner._inverses:
        owner._inverses[key] = _inverse_leaves(index, n)
    return owner._inverses[key]


def _inverse_leaves(index: Variable, n: int) -> tuple[Variable, Variable]:
    count = index.size[0] * index.size[1]
    offsets = Variable(INT, (n + 1, 1), name=f"{index.name or 'index'}.offsets")
    items = Variable(INT, (count, 1), name=f"{index.name or 'index'}.items")
    offsets.derived = Derived(index, partial(_inverse_part, n, 0))  # no lambda: graphs pickle
    items.derived = Derived(index, partial(_inverse_part, n, 1))
    return offsets, items


def _inverse_part(n: int, part: int, index: np.ndarray) -> np.ndarray:
    return invert_index(index, n)[part].reshape(1, 1, -1, 1)


def _csr(f: Function) -> RowSum:
    x = f.inputs[0]

    def summand(entry: str, place: str, layer: str) -> str:
        return f"{{fetch0}}({table_index('{w0}', entry, x.is_table)}, {layer})"

    # The longest row is not known: another index of the same size may be sent at any time.
    return RowSum("({pos}.y * {wy} + {pos}.x)", summand)


def merged_gathers(gradients: Sequence[Variable]) -> list[Variable]:
    """The same sum in fewer terms: gathers through one index become a gather of the sum."""
    out: list[Variable] = []
    groups: dict[Hashable, list[Variable]] = {}
    for g in gradients:
        f = g.creator
        if f is None or f.op is not CSR_GATHER:
            out.append(g)
            continue
        x = f.inputs[0]
        key = (f.inputs[1].uid, f.inputs[2].uid, f.attrs, x.size, x.layers)
        groups.setdefault(key, []).append(g)
    for found in groups.values():
        f = found[0].creator
        assert f is not None
        if len(found) == 1:
            out.append(found[0])
        else:
            total = add_n([g.creator.inputs[0] for g in found if g.creator is not None])
            out.append(apply(CSR_GATHER, (total, *f.inputs[1:]), **dict(f.attrs)))
    return out


def _csr_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    x, offsets, items = xs[0], xs[1].reshape(-1).astype(int), xs[2].reshape(-1).astype(int)
    (w, h), flat = f.attr("size"), xs[0].reshape(xs[0].shape[0], -1, *xs[0].shape[3:])
    out = np.zeros((x.shape[0], w * h, *x.shape[3:]))
    rows = np.repeat(np.arange(w * h), np.diff(offsets))
    for layer in range(x.shape[0]):
        np.add.at(out[layer], rows, flat[layer, items[: len(rows)]])
    return out.reshape(x.shape[0], h, w, *x.shape[3:])


CSR_GATHER = Op(
    "csr_gather",
    lambda xs, a: (xs[0].vtype, a["size"], xs[0].layers),
    reads=(ANY, ANY, ANY),
    linear_in=(0,),
    once=(0,),
    reference=_csr_ref,
    no_cases="the backward of lookup with a static index; tested through its gradient",
)
register(CSR_GATHER, *row_sum_kernels(_csr))


def _scatter_infer(xs: Sequence[Variable], attrs: dict[str, Any]) -> Shape:
    value, index = xs
    if index.vtype is not INT or value.vtype.is_int:
        raise GraphError(
            f"needs float values and an INT index, got {value.vtype.name}, {index.vtype.name}"
        )
    return value.vtype, attrs["size"], attrs["layers"]


def _scatter_glsl(f: Function) -> str:
    n = n_pixels(f.output, "wy")
    base = f"{{layer}} * {n} + " if f.output.layers > 1 else ""
    return f"if ({{x1}} >= 0 && {{x1}} < {n}) {{add}}({base}{{x1}}, {{x0}});"


def _scatter_ref(f: Function, xs: Sequence[np.ndarray]) -> np.ndarray:
    (w, h), layers = f.attr("size"), f.attr("layers")
    value, index = xs[0], xs[1][..., 0].astype(np.int64)
    index = np.broadcast_to(index, value.shape[:3])
    out = np.zeros((layers, w * h, *value.shape[3:]))
    layer = np.broadcast_to(np.arange(value.shape[0])[:, None, None], index.shape)
    layer = np.zeros_like(layer) if layers == 1 else layer
    ok = (index >= 0) & (index < w * h)
    np.add.at(out, (layer[ok], index[ok]), value[ok])
    return out.reshape(layers, h, w, *value.shape[3:])


SCATTER_ADD = Op(
    "scatter_add",
    _scatter_infer,
    linear_in=(0,),
    why_zero="no index points to where a gradient arrives",
    backward=lambda f, gy, i: lookup(gy, dynamic(f.inputs[1])) if i == 0 else None,
    reference=_scatter_ref,
    scatter="add",
    domain=0,
    row=1,
    zero_if=(0,),
    cases=(sized(lambda v, i: scatter_add(v, i, (9, 1)), ((VEC3, -2, 2), (INT, -1, 10)), (7, 5)),),
)
register(SCATTER_ADD, Kernel(_scatter_glsl))


DYNAMIC = Op(
    "dynamic",
    like_integers,
    reference=lambda f, xs: xs[0],
    no_cases="part of the third case of lookup",
)
register(DYNAMIC, Kernel("{y} = {x0};"))


def lookup(
    table: Variable,
    index: Variable,
    scatter: Scatter = "exact",
    step: Variable | None = None,
    samples: int = 1,
) -> Variable:
    """table[index] at every pixel of index.

    table: any type @ (N, 1) or an image, read by linear index row by row; its layers go with the
    index's (one layer serves all). index: INT @ any size. An index outside the table (a background
    id of -1) gives 0 and no gradient. Gradient to table, of a static index: exact sum, by a gather
    that is the same from run to run. Of a dynamic index by ``scatter``: ``exact``, a scatter-add
    with float atomics (with Options.deterministic, in fixed point); ``deterministic``, in fixed
    point whatever the options, so the same bits in every run; ``stochastic`` (paper: the inverse
    lookup), where each row takes the gradient of ``samples`` of its pixels, drawn uniformly and
    weighted by how many they are. That one is unbiased: its mean over steps is the exact sum. It
    needs ``step``, an INT @ 1x1 that counts steps; ops that share one draw independently, and the
    same again when the graph is built again. Raises GraphError for another scatter, a missing or
    misshapen step, and samples outside 1 to 64.
    """
    if scatter not in SCATTERS:
        raise GraphError(f"F.lookup: scatter must be one of {SCATTERS}, got {short(scatter)}")
    if isinstance(table, Variable) and isinstance(index, Variable):
        note_use(table, index)
    if scatter == "exact":
        return apply(LOOKUP, (table, index))
    if scatter == "deterministic":
        return apply(LOOKUP, (table, index), scatter=scatter)
    if not isinstance(step, Variable) or step.vtype is not INT or step.size != (1, 1):
        got = step.label() if isinstance(step, Variable) else short(step)
        raise GraphError(
            f"F.lookup: scatter='stochastic' needs step, an INT @ 1x1 that counts steps, got {got}"
        )
    if not 1 <= needs_int("lookup", "samples", samples) <= 64:
        raise GraphError(f"F.lookup: samples must be 1 to 64, got {samples}")
    attrs = {"scatter": scatter, "step": Ref(step), "samples": int(samples)}
    return apply(LOOKUP, (table, index), **attrs)


def scatter_add(value: Variable, index: Variable, size: Size, layers: int = 1) -> Variable:
    """Image @ size whose pixel i is the sum of all values with index i. Gradient to value.

    Contributions of exactly 0 are skipped. value: FLOAT, VECn, MATn. index: INT; 1x1 or one layer
    broadcasts. layers 1: all layers of value are summed. Float atomics: the order of the sum, and
    so its last bits, may change from run to run.
    """
    needs_variable("scatter_add", value)
    needs_variable("scatter_add", index)
    size, layers = checked_shape("F.scatter_add", size, layers)
    return _scatter_add(value, index, size, layers)


def _scatter_add(
    value: Variable, index: Variable, size: Size, layers: int, fixed_point: bool = False
) -> Variable:
    """fixed_point: whether the sum does not depend on the order of additions, whatever the
    options."""
    full = max(value.layers, index.layers)
    big = index.size if index.size != (1, 1) else value.size
    value, index = expand(value, big, full), expand(index, big, full)
    if layers not in (1, full):
        raise GraphError(f"F.scatter_add: layers must be 1 or {full}, got {layers}")
    attrs = {"fixed_point": True} if fixed_point else {}
    return apply(SCATTER_ADD, (value, index), size=size, layers=layers, **attrs)


def dynamic(index: Variable) -> Variable:
    """The same integers (INT, IVECn), but treated as changing every step.

    Nothing is inverted on the CPU: lookups with them are differentiated by scatter-add. No
    gradient: integers have none.
    """
    return apply(DYNAMIC, (index,))
