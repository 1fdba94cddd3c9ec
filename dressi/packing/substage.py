"""Substage packing: units into shaders, greedily from the last outputs backwards (paper, A.7).

In: units, limits. Out: substages in order of execution. Of the units all of whose users are packed, the one
with the most edges to the active substage that fits is taken; when none fits, a new substage begins.
Differs from the listing: it pushes its last substage and registers the graph's final outputs.
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
    """Same-pixel inputs that are fetched as textures because there are too few input attachments."""
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
        """The one way by which the shader gets at v (an image read at other pixels too is no attachment)."""
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
    """Obstacles that keep a unit out of a substage; empty when it fits. For the packer, logs and errors."""
    out: list[str] = []
    if substage.units:
        mine = {id(u) for u in substage.units}
        if unit.domain != substage.domain:
            fits = (
                unit.is_uniform
                and substage.kind != COMP
                and unit.domain[1] in (1, substage.domain[1])
                and all(id(u) in mine for u in unit.users)
                and not any(v.uid in context.final for v in unit.outputs)
            )
            if not fits:
                out.append(f"runs over {_text(unit.domain)}, the substage over {_text(substage.domain)}")
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
    if out:
        return out
    new = grown(unit, substage, context)
    for name, number in counts(new).items():
        if name == "combined_outputs" and not any(in_buffer(v) for v in new.outputs):
            continue  # attachments alone are bounded by color_outputs
        allowed = getattr(context.limits, name)
        if number > allowed:
            out.append(f"needs {number} {name.replace('_', ' ')}, {context.limits.name} allows {allowed}")
    if any(in_buffer(v) for v in new.outputs) and new.kind != COMP and not context.limits.fragment_stores:
        out.append(f"{context.limits.name} has no stores in fragment shaders")
    return out


def _same_only(v: Variable, substage: Substage) -> bool:
    """Whether all reads of v inside the substage are of the same pixel."""
    return all(
        read == SAME for unit in substage.units for x, read in unit.reads if x.uid == v.uid
    )


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
        v
        for v, read in unit.reads
        if access(v, read, unit.domain, context.uniforms) == ATTACHMENT
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
    waiting = {u.index: len(u.users) for u in units}
    # Ready units by domain: only those of the active domain (and uniform ones) can join.
    ready: dict[Domain, set[int]] = {}
    latest: list[int] = []  # heap of -index over all ready units

    def release(unit: Unit) -> None:
        ready.setdefault(unit.domain, set()).add(unit.index)
        heapq.heappush(latest, -unit.index)

    for unit in units:
        if waiting[unit.index] == 0:
            release(unit)
    done: list[Substage] = []
    packed: set[int] = set()
    while len(packed) < len(units):
        while -latest[0] in packed:
            heapq.heappop(latest)
        unit = units[-latest[0]]
        active = begin(unit, context)
        _take(unit, packed, ready, waiting, release)
        if context.pack_substages:
            active = _fill(active, units, packed, ready, waiting, release, context)
        done.append(active)
    done.reverse()
    _connect(done)
    return done


def _take(unit, packed, ready, waiting, release) -> None:  # type: ignore[no-untyped-def]
    packed.add(unit.index)
    ready[unit.domain].discard(unit.index)
    for producer in unit.producers:
        waiting[producer.index] -= 1
        if waiting[producer.index] == 0:
            release(producer)


def _fill(active, units, packed, ready, waiting, release, context) -> Substage:  # type: ignore[no-untyped-def]
    """Add units while one fits. Candidates wait in a heap by (edges, later first); one that did not fit is
    looked at again only when the substage's reads shrank, since obstacles other than limits stay."""
    edges: dict[int, int] = {}
    for member in active.units:
        for producer in member.producers:
            edges[producer.index] = edges.get(producer.index, 0) + 1
    heap: list[tuple[int, int]] = []
    known: set[int] = set()

    def offer() -> None:
        for domain in {active.domain, ((1, 1), 1), ((1, 1), active.domain[1])}:
            for index in ready.get(domain, ()):
                if index not in known:
                    known.add(index)
                    heapq.heappush(heap, (-edges.get(index, 0), -index))

    offer()
    retry: list[tuple[int, int]] = []
    while heap:
        key = heapq.heappop(heap)
        unit = units[-key[1]]
        if unit.index in packed:
            continue
        if -key[0] != edges.get(unit.index, 0):
            heapq.heappush(heap, (-edges.get(unit.index, 0), -unit.index))
            continue
        obstacles = why_not(unit, active, context)
        if obstacles:
            if any("allows" in o for o in obstacles):
                retry.append(key)
            continue
        before = len(active.reads)
        active = grown(unit, active, context)
        for producer in unit.producers:
            edges[producer.index] = edges.get(producer.index, 0) + 1
        released: list[Unit] = []
        _take(unit, packed, ready, waiting, lambda u: (release(u), released.append(u)))
        for new in released:
            if new.domain in (active.domain, ((1, 1), 1), ((1, 1), active.domain[1])):
                known.add(new.index)
                heapq.heappush(heap, (-edges.get(new.index, 0), -new.index))
        if len(active.reads) < before and retry:
            for again in retry:
                heapq.heappush(heap, again)
            retry.clear()
    return active


def _connect(substages: Sequence[Substage]) -> None:
    made_by = {v.uid: s for s in substages for v in s.outputs}
    for s in substages:
        for v, _ in s.reads.values():
            producer = made_by.get(v.uid)
            if producer is not None and producer is not s and producer not in s.producers:
                s.producers.append(producer)
                producer.users.append(s)
