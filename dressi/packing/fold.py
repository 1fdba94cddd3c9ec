"""Folding: a substage whose results are read by one other substage only, each pixel about once, is
inlined: its reader computes them where it fetches them.

In: substages in order of execution. Out: the same, some fewer. A sum over layers, a block of a
pyramid or a gather over a mesh reads what was written just for it: computing it in place saves the
pass, the image, and the traffic, and costs no arithmetic. It is also what makes a stack of views
take as many passes as one view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dressi.ad.graph import Function
from dressi.ad.registry import COMP, FRAG, SAME, SAMPLER, VERTEX
from dressi.packing.defuse import DefUse, needed
from dressi.packing.substage import Substage
from dressi.packing.task import Context
from dressi.packing.units import Unit
from dressi.packing.use import rebuilt_within

MAX_FOLDED = 40
"""Functions that may be inlined into one substage: it has fewer pixels to share the work."""
MAX_SHRINK_FUNCTIONS = 8
"""The same where the reader reduces an image to fewer pixels."""
MAX_REPEATED = 2**22
"""Functions, over all pixels, that dispatches may repeat to save one of them: that takes about a
microsecond on a large device, a dispatch with its barrier four."""


def fold(substages: Sequence[Substage], context: Context) -> list[Substage]:
    """Substages in order of execution, without those that all of their readers inline."""
    after: list[Substage | None] = list(substages)
    index = DefUse(substages)
    inlined_into: dict[int, set[int]] = {}
    # From the last to the first: a reader is where it stays before what it reads moves.
    for i in range(len(after) - 1, -1, -1):
        s = after[i]
        if s is None or not _foldable(s, context):
            continue
        readers = set[int]().union(*(inlined_into.get(k, {k}) for k in index.users[i]))
        if not readers or not _may_be_repeated(s, len(readers) - 1):
            continue
        new: dict[int, Substage] = {}
        for k in readers:
            reader = after[k]
            assert reader is not None
            inlined = _inlined(reader, s, context)
            if inlined is None:
                break
            new[k] = inlined
        else:
            after[i] = None
            inlined_into[i] = readers
            for k, inlined in new.items():
                after[k] = inlined
    return [s for s in after if s is not None]


def _foldable(s: Substage, context: Context) -> bool:
    functions = [f for u in s.units for f in u.functions]
    return (
        s.kind == FRAG
        and bool(s.outputs)
        and not any(v.uid in context.final for v in s.outputs)
        and all(f.op.kind == FRAG and not f.op.scatter for f in functions)
        and all(read not in (SAMPLER, VERTEX) for u in s.units for _, read in u.reads)
    )


def _inlined(reader: Substage, s: Substage, context: Context) -> Substage | None:
    """The reader that computes what the substage wrote; None when that would repeat too much work
    or break a limit."""
    if reader.kind not in (FRAG, COMP):
        return None
    written = {v.uid: v for v in s.outputs if v.uid in reader.reads}
    chains = {uid: needed(s.units, [v]) for uid, v in written.items()}
    computed = {uid: _with_front(chain, s) for uid, chain in reader.computed.items()}
    counted = _fetches(reader.units, computed.values(), chains, s, reader.kind == COMP)
    if counted is None or counted[1] * reader.n_pixels > MAX_REPEATED:
        return None
    most = MAX_FOLDED
    shrinks = s.n_pixels > 2 * reader.n_pixels
    if shrinks and s.lowered and not s.reads_own_pixel_only:
        # Loads that depend on each other, layer after layer, are left to few invocations.
        return None
    if shrinks and s.domain[0] != reader.domain[0]:
        # A reduction: elementwise work only, or the reads of one level times those of the next
        # would be left to a few pixels.
        if s.computed or not s.reads_own_pixel_only:
            return None
        most = MAX_SHRINK_FUNCTIONS
    chains = {uid: chain for uid, chain in chains.items() if uid in counted[0]}
    added, inside = _n_functions(chains.values()), _n_functions(computed.values())
    if added > most or inside + added > MAX_FOLDED:
        return None
    return rebuilt_within(reader, context, computed={**computed, **chains})


def _fetches(
    units: Sequence[Unit],
    computed: Iterable[Sequence[Unit]],
    chains: Mapping[int, Sequence[Unit]],
    s: Substage,
    in_groups: bool,
) -> tuple[set[int], int] | None:
    """What a reader still fetches of the values with the given chains, and how many Functions per
    pixel it would repeat; None when it reads one at many pixels."""
    repeated, fetched = 0, set[int]()
    for group in (units, *computed):
        known = {v.uid for u in group for v in u.outputs}
        for f, i in _reads(group):
            uid = f.inputs[i].uid
            if uid not in chains or uid in known:
                continue
            fetched.add(uid)
            if i in f.op.once:
                continue
            if i not in f.op.one_read or not _same_pixel_dispatch(s) or in_groups:
                return None
            repeated += _n_functions([chains[uid]])
    return fetched, repeated


def _reads(units: Iterable[Unit]) -> Iterable[tuple[Function, int]]:
    """Functions and the positions of their inputs."""
    return ((f, i) for u in units for f in u.functions for i in range(len(f.inputs)))


def _n_functions(chains: Iterable[Sequence[Unit]]) -> int:
    return sum(len(u.functions) for chain in chains for u in chain)


def _may_be_repeated(s: Substage, times: int) -> bool:
    """Whether several readers may each compute what s writes: the given times more than once.

    With one view, what makes an update computes positions on the screen again, pixel by pixel; with
    more it adds their gradients over views, and reads them: as a second reader."""
    work = times * s.n_functions * s.n_pixels
    return times == 0 or (_same_pixel_dispatch(s) and work <= MAX_REPEATED)


def _same_pixel_dispatch(s: Substage) -> bool:
    """Whether it is a dispatch that reads nothing at other pixels."""
    return s.lowered and not s.computed and s.reads_own_pixel_only


def _with_front(chain: tuple[Unit, ...], s: Substage) -> tuple[Unit, ...]:
    """A chain that a substage computes where it reads it, with what it reads of a dispatch at the
    same pixels in front."""
    written = {v.uid for v in s.outputs}
    read = [v for u in chain for v, how in u.reads if v.uid in written and how == SAME]
    if not read or not _same_pixel_dispatch(s) or any(u.domain != s.domain for u in chain):
        return chain
    inside = {u.index for u in chain}
    return (*(u for u in needed(s.units, read) if u.index not in inside), *chain)
