"""Guards: Functions of a shader that need not run where a predicate is 0 stand behind a branch.

In: the Functions of a substage. Out: ``Guard``: a condition, and runs of Functions of which every
other one stands behind ``if (condition != 0)``. Two things make a Function needless: all of its
readers are choices (``F.where``) that take the other side, or a chain of gradients that a factor of
exactly 0 makes 0 up to a scatter, which adds nothing then. In a picture most pixels lie outside of
the band around edges, where both hold for the whole distance to the edge and its backward.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dressi.ad.functions.bits import UNPACK_BITS
from dressi.ad.graph import Function, Variable
from dressi.ad.registry import FREE, SAME
from dressi.packing.units import Unit

FEWEST = 12
"""Functions that a guard must save; a branch costs about as much as a few of them."""

GIVEN = 0.5
"""What counts of the work that an image of the caller makes needless by being a factor: a picture
or an upstream gradient is rarely 0, where a mask is 0 at most pixels."""

FAR = 6
"""How many Functions one counts for that reads or adds to other pixels."""


@dataclass(frozen=True)
class Guard:
    """condition: 0 where the guarded Functions are not needed."""

    condition: Variable
    runs: tuple[tuple[bool, tuple[Function, ...]], ...]
    """(guarded, Functions) in order of execution."""
    outside: dict[int, Variable]
    """By uid what a guarded run writes, or reads for the first time, and another run reads: it is
    declared in front of the branch."""
    before: tuple[Variable, ...]
    """What a guarded run reads for the first time, but is read without the guard, too."""
    tiles: Variable | None = None
    """The packed mask behind the condition, where a sparse pass draws its tiles: see ``tiles``."""
    covers: bool = False
    """Whether all pixels are drawn before the tiles, without what is guarded."""


@dataclass(frozen=True)
class Mixed:
    """How a shader fetches an image of which the writer draws the pixels of a mask only: where the
    condition of the writer's guard is 0 it computes the value.

    units: of the Functions that are not guarded. known: uids of all that the writer computes.
    """

    guard: Guard
    units: tuple[Unit, ...]
    known: frozenset[int]


def find_guard(functions: Sequence[Function], kept: Collection[int]) -> Guard | None:
    """The guard that saves most Functions; None where it would be too few.

    functions: in order of execution. kept: uids of Variables that are written to images.
    """
    users: dict[int, list[Function]] = {}
    for f in functions:
        for x in f.inputs:
            users.setdefault(x.uid, []).append(f)
    graph = _Graph({f.output.uid: f for f in functions}, users, kept)
    masks = {f.inputs[0].uid for f in functions if f.op.chooses}
    best: tuple[float, Variable, set[int]] | None = None
    for condition in _candidates(functions):
        needless = _needless(condition, graph)
        saved = sum(weight(graph.writers[uid]) for uid in needless)
        if condition.creator is not None and condition.creator.op is UNPACK_BITS:
            saved += FAR  # tiles are drawn by the words themselves, which no other pixel reads
        is_data = condition.creator is None and condition.uid not in masks
        worth = saved * (GIVEN if is_data else 1.0)
        if saved >= FEWEST and (best is None or worth > best[0]):
            best = (worth, condition, needless)
    if best is None:
        return None
    _, condition, needless = best
    runs = _runs(condition, functions, needless)
    outside = {}
    for guarded, run in runs:
        inside = {id(f) for f in run}
        for f in run if guarded else ():
            if any(id(user) not in inside for user in users.get(f.output.uid, ())):
                outside[f.output.uid] = f.output
    read: dict[int, tuple[Variable, list[bool]]] = {}  # from elsewhere: the kinds of the runs
    written = {f.output.uid for f in functions}
    for guarded, run in runs:
        same = {
            x.uid: x for f in run for i, x in enumerate(f.inputs) if f.op.read(i) == SAME
        }.values()
        for x in same:
            if x.uid not in written and (x.creator is None or x.creator.op.kind != FREE):
                read.setdefault(x.uid, (x, []))[1].append(guarded)
    outside |= {uid: x for uid, (x, kinds) in read.items() if len(kinds) > 1 and all(kinds)}
    before = tuple(x for x, kinds in read.values() if kinds[0] and not all(kinds))
    return Guard(condition, runs, outside, before)


def weight(f: Function) -> int:
    """Return how many Functions one counts for."""
    if f.op.scatter:
        return FAR
    for read in f.op.reads[: len(f.inputs)]:  # a loop: ``all`` takes twice the time
        if read != SAME:
            return FAR
    return 1


def _candidates(functions: Sequence[Function]) -> list[Variable]:
    """Scalar conditions of choices, and what chains of zeros begin with: sums of several, too."""
    if not any(f.op.chooses or f.op.scatter for f in functions):
        return []
    chains = {f.output.uid for f in functions if len(f.op.zeros(f) or ()) == 1}
    predicates: dict[int, Variable] = {}
    for f in functions:
        if f.op.chooses and f.inputs[0].vtype.n_words == 1:
            predicates[f.inputs[0].uid] = f.inputs[0]
        for i in f.op.zeros(f) or ():
            x = f.inputs[i]
            if x.uid not in chains and not x.vtype.is_int and not x.vtype.is_matrix:
                predicates.setdefault(x.uid, x)
    return [v for v in predicates.values() if v.creator is None or v.size != (1, 1)]


class _Graph:
    """Functions of a substage, as each candidate looks at them.

    writers: by uid of what they write. users: by uid of what they read. kept: uids of Variables
    that are written to images.
    """

    def __init__(
        self,
        writers: dict[int, Function],
        users: dict[int, list[Function]],
        kept: Collection[int],
    ) -> None:
        self.writers, self.users, self.kept = writers, users, kept
        # What holds without a condition, for what needs no other Function to say so.
        self.zeros = {uid for uid, f in writers.items() if _is_zero(f, ())}
        self.unread = [uid for uid in writers if not users.get(uid)]


def _is_zero(f: Function, zero: Collection[int]) -> bool:
    """Return whether the output is exactly 0 because of the Variables that are, by uid."""

    def is_zero(x: Variable) -> bool:
        if x.uid in zero:
            return True
        f = x.creator  # a constant, which no list of Functions holds
        return f is not None and not f.inputs and f.op.zeros(f) == ()

    inputs = f.op.zeros(f)
    if f.op.chooses and f.inputs[0].uid in zero:
        inputs = (2,)
    return bool(inputs) and all(is_zero(f.inputs[i]) for i in inputs or ())


def _zeros(condition: Variable, graph: _Graph) -> set[int]:
    """uids of what is exactly 0 where the condition is; a scatter that adds nothing, too. Only what
    follows from the condition is visited: there are as many candidates as Functions."""
    zero = {condition.uid, *graph.zeros}
    waiting = list(zero)
    while waiting:
        for f in graph.users.get(waiting.pop(), ()):
            uid = f.output.uid
            if uid not in zero and _is_zero(f, zero):
                zero.add(uid)
                waiting.append(uid)
    return zero


def _needless(condition: Variable, graph: _Graph) -> set[int]:
    """uids of outputs of the Functions that need not run where the condition is 0."""
    zero = _zeros(condition, graph)
    needless: set[int] = set()
    waiting = [*graph.unread, *(uid for uid in zero if uid in graph.writers)]
    for user in graph.users.get(condition.uid, ()):
        waiting += [x.uid for x in user.inputs]
    while waiting:
        uid = waiting.pop()
        f = graph.writers.get(uid)
        if f is None or uid in needless or uid == condition.uid or f.op.fragment_exit:
            continue
        if f.op.scatter:
            if uid not in zero:
                continue
        elif uid in graph.kept or not all(
            user.output.uid in needless or _not_chosen(user, f.output, condition)
            for user in graph.users.get(uid, ())
        ):
            continue
        needless.add(uid)
        waiting += [x.uid for x in f.inputs]
    return needless


def _not_chosen(user: Function, x: Variable, condition: Variable) -> bool:
    if not user.op.chooses or user.inputs[0].uid != condition.uid:
        return False
    return user.inputs[2].uid != x.uid and user.inputs[0].uid != x.uid


def _runs(
    condition: Variable, functions: Sequence[Function], needless: set[int]
) -> tuple[tuple[bool, tuple[Function, ...]], ...]:
    """The Functions as few runs as their order allows, guarded and not by turns."""
    waiting = {f.output.uid for f in functions}
    left, guarded = list(functions), False
    runs: list[tuple[bool, tuple[Function, ...]]] = []
    while left:
        run, rest = [], []
        for f in left:
            uid = f.output.uid
            ready = (uid in needless) == guarded and all(x.uid not in waiting for x in f.inputs)
            if guarded and condition.uid in waiting:
                ready = False
            if ready:
                run.append(f)
                waiting.discard(uid)
            else:
                rest.append(f)
        if run:
            runs.append((guarded, tuple(run)))
        left, guarded = rest, not guarded
    return tuple(runs)
