"""Sparse passes: which substages become one, and what their first draw writes, checked by NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dressi.ad import F, Variable, evaluate, simplify
from dressi.ad.graph import Function
from dressi.ad.simplify import own_image
from dressi.ad.vtype import FLOAT, INT, VEC4
from dressi.packing import Options, Packed, check_plan, pack, plan_text, sparse
from dressi.packing.guard import FEWEST
from dressi.packing.limits import LLVMPIPE, MINIMUM
from dressi.packing.profile import PRESETS as PROFILES
from dressi.packing.substage import Substage
from dressi.testing.random_graphs import masked_graph

PROFILE = PROFILES["llvmpipe"]
LARGE = (512, 512)
"""Enough pixels for a second draw to pay."""
SMALL = (16, 8)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a second draw pay at any size."""
    monkeypatch.setattr(sparse, "pays", lambda profile, n_pixels, n_saved: True)


def long(x: Variable, n: int = 2 * FEWEST) -> Variable:
    for _ in range(n):
        x = F.sin(x)
    return x


def packed(*values: Variable, **options: bool) -> Packed:
    made = [own_image(v) for v in simplify(values)]
    return pack(made, [], LLVMPIPE, Options(**options), profile=PROFILE)  # type: ignore[arg-type]


def guarded(p: Packed) -> list[Substage]:
    return [s for s in p.substages if s.guard is not None]


def masked(seed: int) -> tuple[list[Variable], dict[Variable, np.ndarray]]:
    """Return the loss of a graph with a mask, its gradients, and data."""
    graph = masked_graph(seed)
    return simplify([graph.loss, *graph.gradients().values()]), graph.feeds


def first_draw(s: Substage, values: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Return by uid what the fragments of the first draw compute, with 0 for what is guarded."""
    assert s.guard is not None
    got = dict(values)
    for behind, run in s.guard.runs:
        for f in run:
            if behind:
                got[f.output.uid] = np.zeros_like(values[f.output.uid])
    for behind, run in s.guard.runs:
        for f in run if not behind else ():
            assert f.op.reference is not None
            made = f.op.reference(f, [got[x.uid] for x in f.inputs])
            got[f.output.uid] = np.broadcast_to(made, values[f.output.uid].shape)
    return got


def functions_of(s: Substage) -> list[Function]:
    return [f for u in s.units for f in u.functions]


def all_values(outputs: Sequence[Variable], s: Substage, feeds: dict) -> dict[int, np.ndarray]:
    """Return by uid what a dense evaluation gives for all that a substage reads and computes."""
    known: dict[int, Variable] = {v.uid: v for v in s.inputs}
    for f in functions_of(s):
        known |= {v.uid: v for v in (*f.inputs, f.output)}
    return dict(zip(known, evaluate(list(known.values()), feeds), strict=True))


def test_a_large_pass_behind_a_mask_is_sparse() -> None:
    """where(c, [sin ... sin](x), x)"""
    x, c = Variable(FLOAT, LARGE, name="x"), Variable(FLOAT, LARGE, name="c")
    p = packed(F.where(c, long(x), x))
    (s,) = guarded(p)
    assert s.guard is not None and s.guard.condition is c and s.has_depth
    (stage,) = p.plan.stages
    (plan,) = stage.substages
    assert plan.depth and [d.first_instance for d in plan.draws] == [0, 1]
    assert "sin(" not in plan.outside and "discard" in plan.outside
    assert plan.fragment.count("sin(") == 2 * FEWEST and "early_fragment_tests" in plan.fragment
    assert "sparse by c FLOAT@512x512" in plan_text(p.plan)
    check_plan(p.plan, LLVMPIPE)


def test_the_switch_turns_it_off() -> None:
    x, c = Variable(FLOAT, LARGE), Variable(FLOAT, LARGE)
    p = packed(F.where(c, long(x), x), sparse=False)
    assert not guarded(p) and "sparse" not in plan_text(p.plan)
    assert not any(s.outside or s.depth for stage in p.plan.stages for s in stage.substages)


def test_few_pixels_a_small_share_and_an_unknown_device_stay_dense() -> None:
    x, c = Variable(FLOAT, SMALL), Variable(FLOAT, SMALL)
    assert not guarded(packed(F.where(c, long(x), x)))
    x, c = Variable(FLOAT, LARGE), Variable(FLOAT, LARGE)
    y = F.where(c, long(x), x)
    assert not guarded(packed(y, long(F.cos(x), 3 * FEWEST)))  # more than half is needed anyway
    made = [own_image(v) for v in simplify([y])]
    assert not guarded(pack(made, [], LLVMPIPE))


def test_dispatches_branch_and_draw_nothing() -> None:
    x, c = Variable(FLOAT, LARGE), Variable(FLOAT, LARGE)
    made = [own_image(v) for v in simplify([F.where(c, long(x), x)])]
    p = pack(made, [], LLVMPIPE, Options(lowering="compute"), profile=PROFILE)
    assert not guarded(p)


def test_a_scatter_that_all_pixels_do_keeps_its_pass_dense(always: None) -> None:
    """A pixel of the mask would be in both draws, and add twice."""
    x, c, ids = Variable(FLOAT, SMALL), Variable(FLOAT, SMALL), Variable(INT, SMALL)
    y = F.where(c, long(x), x)
    z = F.lookup(F.scatter_add(x, F.dynamic(ids), (5, 1)), ids)
    assert guarded(packed(y))
    both = packed(y, z)
    assert not any(f.op.scatter for s in guarded(both) for f in functions_of(s))


def test_a_device_with_few_attachments_stays_dense(always: None) -> None:
    """One image read as an attachment, one written, and room for the depth attachment, or none."""
    x, c = Variable(FLOAT, SMALL), Variable(FLOAT, SMALL)
    made = [own_image(v) for v in simplify([F.where(c, long(x), x)])]
    for n, expected in ((2, 0), (3, 1)):
        limits = MINIMUM.restrict(stage_attachments=n)
        assert len(guarded(pack(made, [], limits, profile=PROFILE))) == expected


@pytest.mark.parametrize("seed", range(24))
def test_the_first_draw_writes_what_a_dense_pass_does(seed: int, always: None) -> None:
    """Where the mask is 0, NaN on the other side or not; what is guarded there adds nothing."""
    outputs, feeds = masked(seed)
    p = packed(*outputs)
    assert guarded(p), "the graph has no sparse pass"
    for s in guarded(p):
        assert s.guard is not None
        dense = all_values(outputs, s, feeds)
        outside = dense[s.guard.condition.uid] == 0
        assert outside.any() and not outside.all()
        got = first_draw(s, dense)
        for v in s.outputs:
            if v.creator is not None and v.creator.op.scatter:
                i = v.creator.inputs[0]
                assert not np.where(outside, dense[i.uid], 0).any()
            else:
                np.testing.assert_array_equal(
                    np.where(outside, got[v.uid], 0), np.where(outside, dense[v.uid], 0)
                )


def test_the_check_of_the_first_draw_finds_a_wrong_guard(always: None) -> None:
    """With the other side of the choice guarded, its values differ."""
    outputs, feeds = masked(0)
    (s, *_) = guarded(packed(*outputs))
    assert s.guard is not None
    dense = all_values(outputs, s, feeds)
    runs = tuple((True, run) for _, run in s.guard.runs)
    object.__setattr__(s.guard, "runs", runs)
    got = first_draw(s, dense)
    outside = dense[s.guard.condition.uid] == 0
    images = [v for v in s.outputs if v.creator is not None and not v.creator.op.scatter]
    assert any((got[v.uid] != dense[v.uid])[outside].any() for v in images)


# -- what vertices read for fragments


def rasterized(n: int, size: tuple[int, int], loads: bool) -> Packed:
    corners = [Variable(VEC4, (n, 1), name=name) for name in "abc"]
    frag = F.rasterize(corners, size)
    depth = F.lookup(corners[0], frag).z
    return packed(F.resolve(frag, depth, background=-1), image_loads=loads)


def vertex_texts(p: Packed) -> tuple[str, str]:
    """Return a vertex shader and the main() of the fragments."""
    s = next(s for stage in p.plan.stages for s in stage.substages if "primitive_id" in s.vertex)
    return s.vertex, s.fragment[s.fragment.index("void main") :]


@pytest.mark.parametrize(("loads", "few", "many"), [(False, 10, 20), (True, 2, 10)])
def test_vertices_read_for_fragments_where_primitives_are_large(
    loads: bool, few: int, many: int
) -> None:
    """From 10 pixels per primitive on; from 50 on where fragments load from storage images."""
    vertex, fragment = vertex_texts(rasterized(few, (16, 8), loads))
    assert "flat out vec4 flat0" in vertex and "= flat0.z" in fragment
    assert "fetch" not in fragment
    vertex, fragment = vertex_texts(rasterized(many, (16, 8), loads))
    assert "flat0" not in vertex + fragment and "fetch" in fragment


def test_the_switch_leaves_reads_to_the_fragments() -> None:
    corners = [Variable(VEC4, (3, 1)) for _ in range(3)]
    frag = F.rasterize(corners, (64, 64))
    y = F.resolve(frag, F.lookup(corners[0], frag).z, background=-1)
    vertex, fragment = vertex_texts(packed(y, per_primitive=False))
    assert "flat0" not in vertex + fragment
    assert "fetch" in fragment


# -- tiles


def summed_behind_bits(size: tuple[int, int] = LARGE) -> tuple[Variable, Variable]:
    """Return the sum over an image that a packed mask chooses from a long chain and a short one,
    and the words."""
    x = Variable(FLOAT, size, name="x")
    words = Variable(INT, (-(-size[0] // 32), size[1]), name="words")
    chosen = F.where(F.bits.unpack_bits(words, size), long(x), x)
    return F.sum(chosen * chosen), words


def test_a_packed_mask_draws_tiles_and_its_sum_computes_the_rest() -> None:
    """sum(where(bits, [sin ... sin](x), x)^2): the sum reads x outside of the mask itself."""
    loss, words = summed_behind_bits()
    p = packed(loss)
    (s,) = guarded(p)
    assert s.guard is not None and s.guard.tiles is words and not s.has_depth
    drawn, summed = (stage.substages[0] for stage in p.plan.stages[:2])
    assert not drawn.outside and not drawn.depth and "discard" not in drawn.fragment
    assert [d.n_vertices for d in drawn.draws] == [6 * 16 * 32]  # of 32 x 16 pixels each
    assert "in tiles" in plan_text(p.plan)
    assert "_drawn(pos, layer)" in summed.fragment and "sin(" not in summed.fragment
    (reader,) = [s for s in p.substages if s.mixed]
    assert {v.label() for v in reader.inputs} >= {words.label()}
    check_plan(p.plan, LLVMPIPE)


def test_a_kept_image_is_covered_before_its_tiles() -> None:
    """where(bits, sin(...), other bits): an output, of which no reader computes a part."""
    words = [Variable(INT, (16, 512)) for _ in range(2)]
    mask, other = (F.bits.unpack_bits(w, LARGE) for w in words)
    p = packed(F.where(mask, long(F.pixel_coord(LARGE).x * Variable(FLOAT)), other))
    (s,), (plan,) = guarded(p), p.plan.stages[-1].substages
    assert s.guard is not None and s.guard.covers and s.guard.tiles is words[0]
    assert not plan.depth and "discard" not in plan.outside + plan.fragment
    assert "sin(" not in plan.outside and "sin(" in plan.fragment
    cover, tiles = plan.draws
    assert (cover.n_vertices, cover.first_instance) == (3, 0)
    assert (tiles.n_vertices, tiles.first_instance) == (6 * 16 * 32, 1)
    assert "in tiles" in plan_text(p.plan)
    check_plan(p.plan, LLVMPIPE)


def test_tiles_need_a_packed_mask_a_sum_and_a_device_that_loads() -> None:
    """Another mask, a leaf at the same pixel that an update may overwrite: two draws, as ever."""
    x, c = Variable(FLOAT, LARGE), Variable(FLOAT, LARGE)
    y = F.where(c, long(x), x)
    bits, _ = summed_behind_bits()
    assert bits.creator is not None
    kept = F.where(F.bits.unpack_bits(Variable(INT, (16, 512)), LARGE), long(x), x)
    for p in (packed(F.sum(y * y)), packed(F.sum(kept), kept), packed(bits, image_loads=False)):
        assert guarded(p)
        assert all(s.has_depth for s in guarded(p))
        assert not any(s.mixed for s in p.substages)
