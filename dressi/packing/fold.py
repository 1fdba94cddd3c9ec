"""Folding: a substage whose results are read by one other substage only, each pixel about once,
becomes functions that its reader calls.

In: connected substages. Out: connected substages, some fewer. A sum over layers, a block of a
pyramid or a gather over a mesh reads what was written just for it: computing it in place saves the
pass, the image, and the traffic, and costs no arithmetic. It is also what makes a stack of views
take as many passes as one view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dressi.ad.graph import Variable
from dressi.ad.registry import COMP, FRAG, SAME, SAMPLER, VERTEX
from dressi.packing.rematerialize import connect, readers_of, rebuilt
from dressi.packing.substage import Context, Substage, over_limits
from dressi.packing.units import Unit

MAX_FOLDED = 40
"""Functions that one substage may take in: the reader has fewer pixels to share the work."""
MAX_REPEATED = 2**22
"""Functions, over all pixels, that dispatches may repeat to save one of them: that takes about a
microsecond on a large device, a dispatch with its barrier four."""
MAX_SHRINK_FUNCTIONS = 8
"""The same where the reader reduces an image to fewer pixels."""


def fold(substages: Sequence[Substage], context: Context) -> list[Substage]:
    """Substages in order of execution, the ones that can be folded gone."""
    after: list[Substage | None] = list(substages)
    readers = readers_of(substages)
    for i in range(len(after) - 1, -1, -1):
        s = after[i]
        if s is None or not _foldable(s, context):
            continue
        users = {k for v in s.outputs for k in readers.get(v.uid, ())}
        if not users or not _may_be_repeated(s, len(users) - 1):
            continue
        new: dict[int, Substage] = {}
        for at in users:
            user = after[at]
            assert user is not None
            taken = _taken_in(user, s, context)
            if taken is not None:
                new[at] = taken
        if len(new) == len(users):
            after[i] = None
            for at, taken in new.items():
                after[at] = taken
            for uid in s.reads:  # its reads are the readers' now
                readers[uid] = readers[uid] - {i} | users
    return connect([s for s in after if s is not None])


def _foldable(s: Substage, context: Context) -> bool:
    functions = [f for u in s.units for f in u.functions]
    return (
        s.kind == FRAG
        and bool(s.outputs)
        and not any(v.uid in context.final for v in s.outputs)
        and all(f.op.kind == FRAG and not f.op.scatter for f in functions)
        and all(read not in (SAMPLER, VERTEX) for u in s.units for _, read in u.reads)
    )


def _taken_in(user: Substage, s: Substage, context: Context) -> Substage | None:
    """The reader with the substage inside; None when that would repeat work or break a limit."""
    if user.kind not in (FRAG, COMP):
        return None
    made = {v.uid: v for v in s.outputs if v.uid in user.reads}
    chains = {uid: _chain([v], s) for uid, v in made.items()}
    computed = {uid: _with_front(chain, s) for uid, chain in user.computed.items()}
    inside = [u for chain in computed.values() for u in chain]
    repeated, left = 0, set[int]()
    for units in (user.units, *computed.values()):
        known = {v.uid for u in units for v in u.outputs}
        for f in (f for unit in units for f in unit.functions):
            for i, x in enumerate(f.inputs):
                if x.uid not in made or x.uid in known:
                    continue
                left.add(x.uid)
                if i in f.op.once:
                    continue
                if i not in f.op.one_read or not _same_pixel_dispatch(s) or user.kind == COMP:
                    return None
                repeated += sum(len(u.functions) for u in chains[x.uid])
    if repeated * _pixels(user) > MAX_REPEATED:
        return None
    most = MAX_FOLDED
    if _pixels(s) > 2 * _pixels(user) and s.domain[0] != user.domain[0]:
        # A reduction: elementwise work only, or the reads of one level times those of the next
        # would be left to a few pixels.
        if s.computed or any(read != SAME for u in s.units for _, read in u.reads):
            return None
        most = MAX_SHRINK_FUNCTIONS
    chains = {uid: chain for uid, chain in chains.items() if uid in left}
    added = sum(len(u.functions) for chain in chains.values() for u in chain)
    held = sum(len(u.functions) for u in inside)
    if added > most or held + added > MAX_FOLDED:
        return None
    new = rebuilt(replace(user, computed={**computed, **chains}), user.units, user.outputs, context)
    return None if over_limits(new, context) else new


def _may_be_repeated(s: Substage, times: int) -> bool:
    """Whether more readers than one may each compute what s makes: so many times more than once.

    With one view, what makes an update computes positions on the screen again, pixel by pixel; with
    more it adds their gradients over views, and reads them: as a second reader."""
    work = times * s.n_functions * _pixels(s)
    return times == 0 or (_same_pixel_dispatch(s) and work <= MAX_REPEATED)


def _same_pixel_dispatch(s: Substage) -> bool:
    """Whether it is a dispatch that reads nothing at other pixels."""
    reads = (read for u in s.units for _, read in u.reads)
    return s.lowered and not s.computed and all(read == SAME for read in reads)


def _with_front(chain: list[Unit], s: Substage) -> list[Unit]:
    """A chain that a substage computes where it reads it, with what it reads of a dispatch at the
    same pixels in front."""
    made = {v.uid for v in s.outputs}
    read = [v for u in chain for v, way in u.reads if v.uid in made and way == SAME]
    if not read or not _same_pixel_dispatch(s) or any(u.domain != s.domain for u in chain):
        return chain
    inside = {id(u) for u in chain}
    return [*(u for u in _chain(read, s) if id(u) not in inside), *chain]


def _chain(wanted: Sequence[Variable], s: Substage) -> list[Unit]:
    """The units of a substage that some of its outputs need, in order of execution."""
    needed = {v.uid for v in wanted}
    chain: list[Unit] = []
    for unit in reversed(s.units):
        if any(x.uid in needed for x in unit.outputs):
            chain.append(unit)
            needed |= {x.uid for x, _ in unit.reads}
    chain.reverse()
    return chain


def _pixels(s: Substage) -> int:
    (width, height), layers = s.domain
    return width * height * layers
