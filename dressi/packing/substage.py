"""Substage packing: units into shaders, greedily from the last outputs backwards (paper, A.7).

In: units, limits. Out: substages in order of execution. Of the units all of whose users are packed,
the one with the most edges to the active substage that fits is taken; when none fits, a new
substage begins. Differs from the listing: it pushes its last substage and registers the graph's
final outputs.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from dressi.ad.graph import Variable
from dressi.ad.registry import COMP, FRAG, RASTER, SAME
from dressi.errors import PackingError
from dressi.packing.accumulate import ATOMIC, EXACT, LOOP
from dressi.packing.active import Active, Change, Item, one_way
from dressi.packing.limits import DeviceLimits
from dressi.packing.profile import DeviceProfile
from dressi.packing.units import (
    ATTACHMENT,
    BUFFER,
    HW_SAMPLER,
    TEXTURE,
    VERTEX_TEXTURE,
    Domain,
    Unit,
    access,
    in_buffer,
)


@dataclass
class Context:
    """What packing needs to know beside the units."""

    limits: DeviceLimits
    final: set[int]
    """Variables that must be written to images: graph outputs and updates."""
    uniforms: set[int] = field(default_factory=set)
    """Leaves that lie in the uniform block."""
    inline: set[int] = field(default_factory=set)
    """Variables that every shader recomputes."""
    pack_substages: bool = True
    pack_stages: bool = True
    deterministic: bool = False
    lowering: str = "graphics"
    """As in Options; ``auto`` asks the profile."""
    profile: DeviceProfile | None = None
    by_level: bool = False
    """Whether a unit that a later pass reads at other pixels keeps out of a substage that has to
    come later than the unit would have to."""

    def dispatches(self, unit: Unit) -> bool:
        """Whether a substage that begins with this unit should be a dispatch."""
        if unit.kind != FRAG or self.lowering == "graphics":
            return False
        (width, height), layers = unit.domain
        return self.lowering == "compute" or (
            self.profile is not None and self.profile.prefers_dispatch(width * height * layers)
        )

    @property
    def way_to_add(self) -> str:
        """How a scatter adds: see ``accumulate``."""
        if self.deterministic:
            return EXACT
        return ATOMIC if self.limits.float_atomics else LOOP


@dataclass(eq=False, repr=False)
class Substage:
    """Units of one shader, in order of execution, and how it gets at its inputs."""

    kind: str
    domain: Domain
    units: list[Unit] = field(default_factory=list)
    reads: dict[int, tuple[Variable, set[str]]] = field(default_factory=dict)
    """Inputs from outside by uid: how each is got at."""
    outputs: list[Variable] = field(default_factory=list)
    """Variables written to images or buffers."""
    as_textures: set[int] = field(default_factory=set)
    """Same-pixel inputs that are fetched as textures because there are too few input
    attachments."""
    lowered: bool = False
    """Whether the fragment Functions run in a dispatch."""
    computed: dict[int, list[Unit]] = field(default_factory=dict)
    """Variables by uid that are computed where they are read at any pixel: by these units."""
    users: list[Substage] = field(default_factory=list)
    producers: list[Substage] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Substage({self.name} over {_text(self.domain)})"

    @property
    def n_functions(self) -> int:
        folded = sum(len(u.functions) for chain in self.computed.values() for u in chain)
        return folded + sum(len(u.functions) for u in self.units)

    @property
    def name(self) -> str:
        names = [f.op.name for u in self.units for f in u.functions]
        return ",".join(names[:3]) + (f",+{len(names) - 3}" if len(names) > 3 else "")

    def way(self, v: Variable, ways: Collection[str]) -> str:
        """The one way by which the shader gets at v (an image read at other pixels too is no
        attachment)."""
        return one_way(ways, v.uid not in self.as_textures and not self.is_dispatch)

    @property
    def is_wide(self) -> bool:
        """Whether an image that is read or written pixel by pixel has more than two components."""
        same = [v for v, ways in self.reads.values() if ATTACHMENT in ways]
        written = [v for v in self.outputs if not in_buffer(v)]
        return any(v.vtype.plane.n > 2 for v in (*same, *written))

    @property
    def is_dispatch(self) -> bool:
        """Whether it is a compute dispatch, not a subpass."""
        return self.lowered or self.kind == COMP


def counts(substage: Substage) -> dict[str, int]:
    """Use of each limit by a substage: name of the DeviceLimits field -> number."""
    n = dict.fromkeys(
        (
            "input_attachments",
            "sampled_images",
            "samplers",
            "storage_buffers",
            "color_outputs",
            "storage_images",
        ),
        0,
    )
    written = "storage_images" if substage.lowered else "color_outputs"
    for v, ways in substage.reads.values():
        way = substage.way(v, ways)
        planes = v.vtype.n_planes
        if way == ATTACHMENT:
            n["input_attachments"] += planes
        elif way in (TEXTURE, VERTEX_TEXTURE, HW_SAMPLER):
            n["sampled_images"] += planes
            n["samplers"] += planes if way == HW_SAMPLER else 0
        elif way == BUFFER:
            n["storage_buffers"] += 1
    for v in substage.outputs:
        if in_buffer(v):
            n["storage_buffers"] += 1
        else:
            n[written] += v.vtype.n_planes
    buffers_written = sum(1 for v in substage.outputs if in_buffer(v))
    n["combined_outputs"] = n["color_outputs"] + buffers_written
    n["resources"] = (
        n["input_attachments"] + n["sampled_images"] + n["storage_buffers"] + n[written] + 1
    )
    depth = substage.kind == RASTER
    n["stage_attachments"] = n["input_attachments"] + n["color_outputs"] + depth
    return n


def grown(unit: Unit, substage: Substage, context: Context) -> Substage:
    """The substage that there would be with the unit (in front) in it."""
    new = Substage(substage.kind if substage.units else unit.kind, substage.domain)
    new.lowered = substage.lowered
    if not substage.units:
        new.domain = unit.domain
    new.units = [unit, *substage.units]
    new.as_textures = substage.as_textures
    new.reads = dict(substage.reads)
    _read_through(new, unit, context)
    mine = {id(u) for u in substage.units}
    new.outputs = [
        v
        for v in unit.outputs
        if in_buffer(v) or v.uid in context.final or _read_outside(v, unit, mine)
    ] + substage.outputs
    return new


def _read_through(substage: Substage, unit: Unit, context: Context) -> None:
    """Change what a substage reads as the unit joins: its outputs are inner values now, its inputs
    come from outside."""
    for v in unit.outputs:
        substage.reads.pop(v.uid, None)
    for v, read in unit.reads:
        way = access(v, read, substage.domain, context.uniforms)
        if substage.kind == COMP and way == ATTACHMENT:
            way = TEXTURE
        old = substage.reads.get(v.uid)
        substage.reads[v.uid] = (v, (old[1] if old else set()) | {way})


def _read_outside(v: Variable, unit: Unit, mine: set[int]) -> bool:
    return any(id(user) not in mine and any(x is v for x, _ in user.reads) for user in unit.users)


def why_not(unit: Unit, substage: Substage, context: Context) -> list[str]:
    """Obstacles that keep a unit out of a substage; empty when it fits. For the packer, logs and
    errors."""
    return fixed_obstacles(unit, substage, context) or over_limits(
        grown(unit, substage, context), context
    )


def fixed_obstacles(unit: Unit, substage: Substage, context: Context) -> list[str]:
    """Obstacles that stay whatever else joins the substage."""
    out: list[str] = []
    if not substage.units:
        return out
    if unit.domain != substage.domain:
        mine = {id(u) for u in substage.units}
        fits = (
            unit.is_uniform
            and substage.kind != COMP
            and unit.domain[1] in (1, substage.domain[1])
            and all(id(u) in mine for u in unit.users)
            and not any(v.uid in context.final for v in unit.outputs)
        )
        if not fits:
            out.append(
                f"runs over {_text(unit.domain)}, the substage over {_text(substage.domain)}"
            )
    if COMP in (unit.kind, substage.kind):
        out.append("a dispatch stands alone")
    if unit.kind == RASTER:
        out.append("a rasterization begins its own substage")
    if substage.kind == RASTER and not unit.is_uniform:
        out.append("behind a rasterization only its fragments are shaded")
    for v in unit.outputs:
        held = substage.reads.get(v.uid)
        if held is None:
            continue
        if in_buffer(v):
            out.append(f"{v.label()} is scattered and read in the substage")
        elif not held[1] <= {ATTACHMENT} and not (unit.is_uniform and _same_only(v, substage)):
            out.append(f"{v.label()} is read at other pixels in the substage")
    return out


_OUTPUT_LIMITS = ("color_outputs", "combined_outputs")


def over_limits(new: Substage, context: Context) -> list[str]:
    """Limits of the device that a substage breaks."""
    out: list[str] = []
    scatters = any(in_buffer(v) for v in new.outputs) and not new.is_dispatch
    for name, number in counts(new).items():
        if name == "combined_outputs" and not scatters:
            continue  # attachments alone are bounded by color_outputs
        allowed = getattr(context.limits, name)
        if number > allowed:
            out.append(
                f"needs {number} {name.replace('_', ' ')}, {context.limits.name} allows {allowed}"
            )
    if scatters and not context.limits.fragment_stores:
        out.append(f"{context.limits.name} has no stores in fragment shaders")
    return out


def _same_only(v: Variable, substage: Substage) -> bool:
    """Whether all reads of v inside the substage are of the same pixel."""
    return all(read == SAME for unit in substage.units for x, read in unit.reads if x.uid == v.uid)


def _text(domain: Domain) -> str:
    (w, h), layers = domain
    return f"{w}x{h}" + (f"x{layers}" if layers > 1 else "")


def empty() -> Substage:
    """A substage that any unit may begin."""
    return Substage(FRAG, ((1, 1), 1))


def begin(unit: Unit, context: Context) -> Substage:
    """A new substage with one unit. Raises PackingError when even that does not fit the device.

    Where there are too few input attachments for one Function, the rest is fetched as textures.
    """
    base = empty()
    base.lowered = context.dispatches(unit)
    written = sum(v.vtype.n_planes for v in unit.outputs if not in_buffer(v))
    limit = min(
        context.limits.input_attachments,
        context.limits.stage_attachments - written - (unit.kind == RASTER),
    )
    attachments = [
        v for v, read in unit.reads if access(v, read, unit.domain, context.uniforms) == ATTACHMENT
    ]
    if sum(v.vtype.n_planes for v in attachments) > limit and not base.lowered:
        used = 0
        for v in attachments:
            used += v.vtype.n_planes
            if used > limit:
                base.as_textures.add(v.uid)
    obstacles = why_not(unit, base, context)
    if obstacles == [f"{context.limits.name} has no stores in fragment shaders"]:
        unit.kind = COMP  # the same snippets as a dispatch
        obstacles = why_not(unit, base, context)
    if obstacles:
        labels = ", ".join(v.label() for v, _ in unit.reads[:4])
        more = f", ... ({len(unit.reads) - 4} more)" if len(unit.reads) > 4 else ""
        raise PackingError(
            f"{unit.name} fits no substage\n  "
            + "\n  ".join(obstacles)
            + f"\n  inputs: {labels}{more}"
            + "\n  hint: split the operation, or use a device with higher limits"
        )
    return grown(unit, base, context)


PATIENCE = 400
"""Units that a substage may take beyond its limits in the hope that their producers, which follow,
turn inputs into inner values again. A forward and backward chain over the same pixels needs that:
cut at the first full substage, it would carry dozens of values through attachments."""

REJECTIONS = 64
"""Units without edges to the substage that are tried in a row before it counts as full. Without a
bound, each of the n/8 substages would try all ready units."""


class _Packer:
    """State of the greedy packing: which units are packed, which are ready.

    Ready units are those all of whose users are packed. They wait on shelves, except those that
    became ready while the active substage grew: only these have edges to it.
    """

    def __init__(self, units: Sequence[Unit], context: Context) -> None:
        self.items = [Item(u, context) for u in units]
        self.context = context
        if context.by_level:
            self.find_levels(units)
        self.packed = [False] * len(units)
        self.waiting = [len(u.users) for u in units]
        self.shelves: dict[tuple[Domain, bool], list[int]] = {}
        """By domain and whether they write images: heaps of -index over ready units (and packed
        ones, dropped when met)."""
        # Heap of (pixels, -index) over the same. New substages begin with the smallest domain:
        # then a large one begins only when nothing else holds its Functions back (a pyramid that
        # sums the loss, say), and forward and backward of a pixel end up in one shader.
        self.latest: list[tuple[int, int]] = []
        for item in self.items:
            if not item.unit.users:
                self.shelve(item)

    def find_levels(self, units: Sequence[Unit]) -> None:
        made_by = {v.uid: self.items[u.index] for u in units for v in u.outputs}
        for item in self.items:
            for v, read in item.unit.reads:
                maker = made_by.get(v.uid)
                if maker is not None:
                    apart = read != SAME or maker.unit.domain != item.unit.domain
                    item.level = max(item.level, maker.level + apart)

    def shelve(self, item: Item) -> None:
        (w, h), layers = item.unit.domain
        heapq.heappush(self.latest, (w * h * layers, -item.index))
        shelf = self.shelves.setdefault((item.unit.domain, item.paints), [])
        heapq.heappush(shelf, -item.index)

    def fetch(self, active: Active) -> Item | None:
        """The latest unit on the shelves for a substage, taken down. All that stands there writes
        all its outputs: without room for images, only units that scatter come into question."""
        kinds = (True, False) if active.has_room else (False,)
        while True:
            heaps = [self.shelves.get((active.domain, paints)) for paints in kinds]
            filled = [heap for heap in heaps if heap]
            if not filled:
                return None
            item = self.items[-heapq.heappop(min(filled))]
            if not self.packed[item.index]:
                return item

    def take(self, unit: Unit) -> list[int]:
        """Pack a unit; the producers that became ready."""
        self.packed[unit.index] = True
        released = []
        for producer in unit.producers:
            self.waiting[producer.index] -= 1
            if self.waiting[producer.index] == 0:
                released.append(producer.index)
        return released

    def untake(self, unit: Unit) -> None:
        for producer in unit.producers:
            self.waiting[producer.index] += 1
        self.packed[unit.index] = False

    def is_ready(self, index: int) -> bool:
        return self.waiting[index] == 0 and not self.packed[index]

    def run(self) -> list[Substage]:
        """Substages, the last one first."""
        done: list[Substage] = []
        n_packed = 0
        while n_packed < len(self.items):
            item = self.items[-heapq.heappop(self.latest)[1]]
            if self.packed[item.index]:
                continue
            substage = begin(item.unit, self.context)
            active = Active(
                substage.kind,
                substage.domain,
                substage.as_textures,
                self.context,
                substage.lowered,
            )
            change = active.change(item, patient=False)
            assert change is not None, item.unit.name
            active.add(change)
            released = dict.fromkeys(self.take(item.unit))
            if self.context.pack_substages and substage.kind != COMP:
                self.grow(active, released, PATIENCE)
                self.grow(active, released, 0)
            for index in released:
                if self.is_ready(index):
                    self.shelve(self.items[index])
            n_packed += len(active.joined)
            done.append(_with_all(substage, active.joined, self.context))
        return done

    def grow(self, active: Active, released: dict[int, None], patience: int) -> None:
        """Add ready units, those with the most edges to the substage first, later ones first. With
        patience, limits on inputs may be broken on the way; the longest prefix that keeps them is
        the result. released: units that became ready since the substage began; added to."""
        near: list[tuple[int, int]] = []
        domains = {active.domain, ((1, 1), 1), ((1, 1), active.domain[1])}

        def offer(index: int) -> None:
            if self.items[index].unit.domain in domains:
                heapq.heappush(near, (-active.edges[index], -index))

        for index in released:
            if self.is_ready(index):
                offer(index)
        fetched: list[Item] = []
        rejections = beyond = 0  # beyond: units taken since the limits were kept
        while beyond <= patience:
            item: Item | None
            if near:
                item = self.items[-heapq.heappop(near)[1]]
            else:
                item = self.fetch(active) if rejections < REJECTIONS else None
                if item is None:
                    break
                fetched.append(item)
                rejections += 1
            change = active.change(item, patience > 0)
            if change is None:
                continue
            active.add(change)
            rejections = 0
            beyond = 0 if change.fits else beyond + 1
            for index in self.take(item.unit):
                released[index] = None
                offer(index)
        for _ in range(beyond):
            self.untake(active.undo().unit)
        for item in fetched:
            if not self.packed[item.index]:
                shelf = self.shelves[item.unit.domain, item.paints]
                heapq.heappush(shelf, -item.index)


def _with_all(substage: Substage, joined: Sequence[Change], context: Context) -> Substage:
    """A substage that has the first unit, with all others that joined."""
    for change in joined[1:]:
        substage.units.append(change.item.unit)
        _read_through(substage, change.item.unit, context)
    substage.units.reverse()
    substage.outputs = [v for change in reversed(joined) for v in change.outputs]
    return substage


def pack_substages(units: Sequence[Unit], context: Context) -> list[Substage]:
    """Substages in order of execution, connected."""
    done = _Packer(units, context).run()
    done.reverse()
    _connect(done)
    return done


def _connect(substages: Sequence[Substage]) -> None:
    made_by = {v.uid: s for s in substages for v in s.outputs}
    for s in substages:
        found = (made_by.get(v.uid) for v, _ in s.reads.values())
        s.producers.extend(dict.fromkeys(p for p in found if p is not None and p is not s))
        for producer in s.producers:
            producer.users.append(s)
