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
from dressi.packing.limits import DeviceLimits
from dressi.packing.units import (
    ATTACHMENT,
    BUFFER,
    HW_SAMPLER,
    TEXTURE,
    UNIFORM,
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


@dataclass(eq=False)
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
    users: list[Substage] = field(default_factory=list)
    producers: list[Substage] = field(default_factory=list)

    @property
    def n_functions(self) -> int:
        return sum(len(u.functions) for u in self.units)

    @property
    def name(self) -> str:
        names = [f.op.name for u in self.units for f in u.functions]
        return ",".join(names[:3]) + (f",+{len(names) - 3}" if len(names) > 3 else "")

    def way(self, v: Variable, ways: Collection[str]) -> str:
        """The one way by which the shader gets at v (an image read at other pixels too is no
        attachment)."""
        if ways == {ATTACHMENT} and v.uid not in self.as_textures and self.kind != COMP:
            return ATTACHMENT
        for way in (UNIFORM, BUFFER, HW_SAMPLER):
            if way in ways:
                return way
        return VERTEX_TEXTURE if ways == {VERTEX_TEXTURE} else TEXTURE


def counts(substage: Substage) -> dict[str, int]:
    """Use of each limit by a substage: name of the DeviceLimits field -> number."""
    n = dict.fromkeys(
        ("input_attachments", "sampled_images", "samplers", "storage_buffers", "color_outputs"), 0
    )
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
            n["color_outputs"] += v.vtype.n_planes
    buffers_written = sum(1 for v in substage.outputs if in_buffer(v))
    n["combined_outputs"] = n["color_outputs"] + buffers_written
    n["resources"] = (
        n["input_attachments"] + n["sampled_images"] + n["storage_buffers"] + n["color_outputs"] + 1
    )
    return n


def grown(unit: Unit, substage: Substage, context: Context) -> Substage:
    """The substage that there would be with the unit (in front) in it."""
    made = {v.uid for v in unit.outputs}
    new = Substage(substage.kind if substage.units else unit.kind, substage.domain)
    if not substage.units:
        new.domain = unit.domain
    new.units = [unit, *substage.units]
    new.as_textures = substage.as_textures
    new.reads = {k: r for k, r in substage.reads.items() if k not in made}
    for v, read in unit.reads:
        way = access(v, read, new.domain, context.uniforms)
        if new.kind == COMP and way == ATTACHMENT:
            way = TEXTURE
        old = new.reads.get(v.uid)
        new.reads[v.uid] = (v, (old[1] if old else set()) | {way})
    mine = {id(u) for u in substage.units}
    new.outputs = [
        v
        for v in unit.outputs
        if in_buffer(v) or v.uid in context.final or _read_outside(v, unit, mine)
    ] + substage.outputs
    return new


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
    scatters = any(in_buffer(v) for v in new.outputs)
    for name, number in counts(new).items():
        if name == "combined_outputs" and not scatters:
            continue  # attachments alone are bounded by color_outputs
        allowed = getattr(context.limits, name)
        if number > allowed:
            out.append(
                f"needs {number} {name.replace('_', ' ')}, {context.limits.name} allows {allowed}"
            )
    if scatters and new.kind != COMP and not context.limits.fragment_stores:
        out.append(f"{context.limits.name} has no stores in fragment shaders")
    return out


def _hopeless(new: Substage, context: Context) -> bool:
    """Whether a substage breaks limits that no later unit can mend: outputs only grow, and leaves
    stay inputs."""
    n = counts(new)
    scatters = any(in_buffer(v) for v in new.outputs)
    if n["color_outputs"] > context.limits.color_outputs:
        return True
    if scatters and n["combined_outputs"] > context.limits.combined_outputs:
        return True
    if scatters and new.kind != COMP and not context.limits.fragment_stores:
        return True
    leaves = sum(
        v.vtype.n_planes
        for v, ways in new.reads.values()
        if v.creator is None and new.way(v, ways) == ATTACHMENT
    )
    return leaves > context.limits.input_attachments


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
    limit = context.limits.input_attachments
    attachments = [
        v for v, read in unit.reads if access(v, read, unit.domain, context.uniforms) == ATTACHMENT
    ]
    if sum(v.vtype.n_planes for v in attachments) > limit:
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


def pack_substages(units: Sequence[Unit], context: Context) -> list[Substage]:
    """Substages in order of execution, connected."""
    packer = _Packer(units, context)
    done = packer.run()
    done.reverse()
    _connect(done)
    return done


PATIENCE = 400
"""Units that a substage may take beyond its limits in the hope that their producers, which follow,
turn inputs into inner values again. A forward and backward chain over the same pixels needs that:
cut at the first full substage, it would carry dozens of values through attachments."""


class _Packer:
    """State of the greedy packing: which units are packed, which are ready."""

    def __init__(self, units: Sequence[Unit], context: Context) -> None:
        self.units = units
        self.context = context
        self.packed: set[int] = set()
        self.waiting = {u.index: len(u.users) for u in units}
        self.ready: dict[Domain, set[int]] = {}
        # Heap of (pixels, -index) over ready units (and stale entries). New substages begin with
        # the smallest domain: then a large one begins only when nothing else holds its Functions
        # back (a pyramid that sums the loss, say), and forward and backward of a pixel end up in
        # one shader.
        self.latest: list[tuple[int, int]] = []
        for unit in units:
            if not unit.users:
                self.release(unit)

    def release(self, unit: Unit) -> None:
        self.ready.setdefault(unit.domain, set()).add(unit.index)
        (w, h), layers = unit.domain
        heapq.heappush(self.latest, (w * h * layers, -unit.index))

    def take(self, unit: Unit) -> list[Unit]:
        """Pack a unit; the producers that became ready."""
        self.packed.add(unit.index)
        self.ready[unit.domain].discard(unit.index)
        released = []
        for producer in unit.producers:
            self.waiting[producer.index] -= 1
            if self.waiting[producer.index] == 0:
                self.release(producer)
                released.append(producer)
        return released

    def untake(self, unit: Unit) -> None:
        for producer in unit.producers:
            if self.waiting[producer.index] == 0:
                self.ready[producer.domain].discard(producer.index)
            self.waiting[producer.index] += 1
        self.packed.discard(unit.index)
        self.release(unit)

    def run(self) -> list[Substage]:
        done: list[Substage] = []
        while len(self.packed) < len(self.units):
            while True:
                unit = self.units[-heapq.heappop(self.latest)[1]]
                if unit.index in self.ready[unit.domain]:
                    break
            active = begin(unit, self.context)
            self.take(unit)
            if self.context.pack_substages:
                active = self.grow(active, patience=PATIENCE)
                active = self.grow(active, patience=0)
            done.append(active)
        return done

    def grow(self, active: Substage, patience: int) -> Substage:
        """Add ready units, those with the most edges to the substage first. With patience, limits
        on inputs may be broken on the way; the longest prefix that keeps them is the result."""
        edges: dict[int, int] = {}
        for member in active.units:
            for producer in member.producers:
                edges[producer.index] = edges.get(producer.index, 0) + 1
        domains = {active.domain, ((1, 1), 1), ((1, 1), active.domain[1])}
        heap: list[tuple[int, int]] = []

        def offer(index: int) -> None:
            heapq.heappush(heap, (-edges.get(index, 0), -index))

        for domain in domains:
            for index in self.ready.get(domain, ()):
                offer(index)
        best = active
        journal: list[Unit] = []
        while heap and len(journal) <= patience:
            key = heapq.heappop(heap)
            unit = self.units[-key[1]]
            if unit.index in self.packed:
                continue
            if -key[0] != edges.get(unit.index, 0):
                offer(unit.index)
                continue
            if fixed_obstacles(unit, active, self.context):
                continue
            new = grown(unit, active, self.context)
            fits = not over_limits(new, self.context)
            if not fits and (patience == 0 or _hopeless(new, self.context)):
                continue
            active = new
            for producer in unit.producers:
                edges[producer.index] = edges.get(producer.index, 0) + 1
            for released in self.take(unit):
                if released.domain in domains:
                    offer(released.index)
            journal.append(unit)
            if fits:
                best = active
                journal.clear()
        for unit in reversed(journal):
            self.untake(unit)
        return best


def _connect(substages: Sequence[Substage]) -> None:
    made_by = {v.uid: s for s in substages for v in s.outputs}
    for s in substages:
        for v, _ in s.reads.values():
            producer = made_by.get(v.uid)
            if producer is not None and producer is not s and producer not in s.producers:
                s.producers.append(producer)
                producer.users.append(s)
