"""What a dispatch need not run where one of its values is 0: structure of the runs, no device."""

from __future__ import annotations

from dressi.ad import F, Variable, build_backward, simplify
from dressi.ad.functions.select import zero_mul
from dressi.ad.graph import Function, topological
from dressi.ad.registry import FREE
from dressi.ad.simplify import own_image
from dressi.ad.vtype import FLOAT, INT, VEC2
from dressi.packing import Options, Packed, pack
from dressi.packing.guard import FEWEST, Guard, find_guard
from dressi.packing.limits import LLVMPIPE

SIZE = (16, 8)


def functions_of(*outputs: Variable) -> list[Function]:
    return [f for f in topological(outputs) if f.op.kind != FREE]


def long(x: Variable, n: int = FEWEST) -> Variable:
    for _ in range(n):
        x = F.sin(x)
    return x


def guarded_names(guard: Guard) -> list[list[str]]:
    return [[f.op.name for f in run] for behind, run in guard.runs if behind]


def test_what_a_choice_does_not_take_is_guarded() -> None:
    """where(c, [sin ... sin](x), x)"""
    x, c = Variable(FLOAT, SIZE, name="x"), Variable(FLOAT, SIZE, name="c")
    y = F.where(c, long(x), x)
    guard = find_guard(functions_of(y), {y.uid})
    assert guard is not None and guard.condition is c
    assert guarded_names(guard) == [["sin"] * FEWEST]
    assert len(guard.outside) == 1  # the last sine, for the choice


def test_the_other_side_of_a_choice_is_not() -> None:
    x, c = Variable(FLOAT, SIZE), Variable(FLOAT, SIZE)
    y = F.where(c, x, long(x))
    assert find_guard(functions_of(y), {y.uid}) is None


def test_what_something_else_reads_is_not() -> None:
    x, c = Variable(FLOAT, SIZE), Variable(FLOAT, SIZE)
    a = long(x)
    y, z = F.where(c, a, x), a + 1.0
    assert find_guard(functions_of(y, z), {y.uid, z.uid}) is None
    assert find_guard(functions_of(y), {y.uid, a.uid}) is None  # written to an image itself


def test_few_functions_are_not_worth_a_branch() -> None:
    x, c = Variable(FLOAT, SIZE), Variable(FLOAT, SIZE)
    y = F.where(c, long(x, FEWEST - 1), x)
    assert find_guard(functions_of(y), {y.uid}) is None


def test_gradients_of_a_loss_behind_a_mask_are_guarded_up_to_their_scatters() -> None:
    """where(c, f(table[id]), 0) and its backward: two runs, with the loss between them."""
    c, ids = Variable(FLOAT, SIZE), Variable(INT, SIZE)
    table = Variable(VEC2, (5, 1), requires_grad=True)
    p = F.lookup(table, F.dynamic(ids))
    inner = p.x
    for _ in range(4):
        inner = F.sin(inner) * p.y
    chosen = F.where(c, inner, 0.25)
    loss = chosen * chosen
    (g,) = build_backward(loss).values()
    made = simplify([loss, g])
    functions = functions_of(*made)
    guard = find_guard(functions, {made[0].uid})
    assert guard is not None and guard.condition is c
    runs = guarded_names(guard)
    assert len(runs) == 2 and "lookup" in runs[0] and "scatter_add" in runs[1]
    order = [f.output.uid for _, run in guard.runs for f in run]
    assert sorted(order) == sorted(f.output.uid for f in functions)
    seen: set[int] = set()
    inside = set(order)
    for _, run in guard.runs:
        for f in run:
            assert all(x.uid in seen for x in f.inputs if x.uid in inside), f.where
            seen.add(f.output.uid)


def test_a_mask_of_the_graph_counts_more_than_an_upstream_gradient() -> None:
    """The latter makes both scatters needless where it is 0, but it rarely is; a mask as a leaf
    that a choice takes is one."""
    upstream, x, ids = Variable(FLOAT, SIZE), Variable(FLOAT, SIZE), Variable(INT, SIZE)
    near = F.compare("lt", F.abs(x), 0.1)
    inner = F.where(near, zero_mul(upstream, long(x)), 0.0)
    everywhere = zero_mul(upstream, F.cos(F.cos(x)))
    added = [F.scatter_add(v, F.dynamic(ids), (5, 1)) for v in (inner, everywhere)]
    guard = find_guard(functions_of(*added), set())
    assert guard is not None and guard.condition is near
    y = F.where(upstream, long(x), x)
    guard = find_guard(functions_of(y), {y.uid})
    assert guard is not None and guard.condition is upstream


def test_a_packed_mask_counts_for_what_reading_it_costs() -> None:
    """where(hit, where(bits, upstream, 0) * ..., 0): a pass draws tiles by the words of the mask,
    so its pixels outside do not read them; what is hit is looked at pixel by pixel."""
    words, x, ids = Variable(INT, (1, 8)), Variable(FLOAT, SIZE), Variable(INT, SIZE)
    hit, mask = F.compare("gte", ids, 0), F.bits.unpack_bits(words, SIZE)
    behind = zero_mul(F.where(mask, Variable(FLOAT, SIZE), 0.0), long(x))
    added = F.scatter_add(F.where(hit, behind, 0.0), F.dynamic(ids), (5, 1))
    guard = find_guard(functions_of(added), set())
    assert guard is not None and guard.condition is mask


def test_a_product_that_may_be_nan_does_not_hand_on_a_zero() -> None:
    """c * x is NaN where c is 0 and x is infinite: the scatter has to add it."""
    c, x, ids = Variable(FLOAT, SIZE), Variable(FLOAT, SIZE), Variable(INT, SIZE)
    a = long(x)
    plain = F.scatter_add(c * a, F.dynamic(ids), (5, 1))
    assert find_guard(functions_of(plain), set()) is None
    safe = F.scatter_add(zero_mul(c, a), F.dynamic(ids), (5, 1))
    guard = find_guard(functions_of(safe), set())
    assert guard is not None and guard.condition is c
    assert {"sin", "zero_mul", "scatter_add"} <= set(guarded_names(guard)[-1])


def packed(y: Variable, **limits: bool) -> Packed:
    made = [own_image(v) for v in simplify([y])]
    return pack(made, [], LLVMPIPE.restrict(**limits), Options(lowering="compute"))


def texts(p: Packed) -> str:
    return "".join(s.compute for stage in p.plan.stages for s in stage.substages)


def test_dispatches_branch_and_fragments_do_not() -> None:
    x, c = Variable(FLOAT, SIZE), Variable(FLOAT, SIZE)
    y = F.where(c, long(x), x)
    assert "!= float(0)) {" in texts(packed(y))
    (stage,) = pack([own_image(v) for v in simplify([y])], [], LLVMPIPE).plan.stages
    assert "!= float(0)) {" not in stage.substages[0].fragment


def scattered() -> Variable:
    """Two values added to the rows of one index, one to those of another."""
    v, i, j = Variable(VEC2, SIZE), Variable(INT, SIZE), Variable(INT, SIZE)
    same = [F.scatter_add(F.sin(v) * k, F.dynamic(i), (9, 1)) for k in (1.0, 2.0)]
    return F.lookup(F.add_n([*same, F.scatter_add(v, F.dynamic(j), (9, 1))]), i)


def test_scatters_to_the_same_row_share_their_subgroups() -> None:
    text = texts(packed(scattered()))
    assert text.count("subgroupBroadcastFirst(row)") == 2  # three scatters, two indices
    assert text.count("subgroupAdd(v.x)") == 3


def test_a_device_without_subgroups_adds_one_by_one() -> None:
    for limits in ({"subgroup_arithmetic": False}, {"float_atomics": False}):
        assert "subgroup" not in texts(packed(scattered(), **limits))
    made = [own_image(v) for v in simplify([scattered()])]
    exact = pack(made, [], LLVMPIPE, Options(lowering="compute", deterministic=True))
    assert "subgroup" not in texts(exact)


def test_what_two_guarded_runs_read_is_fetched_once() -> None:
    """p in the forward and in the backward of what lies behind the mask; q in the loss, too."""
    c, ids, p, q = (Variable(t, SIZE) for t in (FLOAT, INT, FLOAT, FLOAT))
    table = Variable(FLOAT, (5, 1), requires_grad=True)
    inner = F.lookup(table, F.dynamic(ids))
    for _ in range(3):
        inner = F.sin(inner) * p * q
    d = F.where(c, inner, 0.25) - q
    loss = d * d
    (g,) = build_backward(loss).values()
    made = simplify([loss, g])
    guard = find_guard(functions_of(*made), {made[0].uid})
    assert guard is not None and len(guarded_names(guard)) == 2
    assert p.uid in guard.outside and q.uid not in guard.outside and guard.before == (q,)
    lowered = [own_image(v) for v in made]
    plan = pack(lowered, [], LLVMPIPE, Options(lowering="compute")).plan
    text = next(s.compute for st in plan.stages for s in st.substages if "atomicAdd" in s.compute)
    main = text[text.index("void main") :]
    assert main.count("texelFetch") == 4  # c, ids, p, q


def test_a_sum_of_gradients_may_be_the_condition() -> None:
    """Neither of two gradients alone makes what is scattered zero; their sum does."""
    a, b, x, ids = (Variable(t, SIZE) for t in (FLOAT, FLOAT, FLOAT, INT))
    total = a + b
    y = F.scatter_add(zero_mul(total, long(x)), F.dynamic(ids), (5, 1))
    guard = find_guard(functions_of(y), set())
    assert guard is not None and guard.condition is total
