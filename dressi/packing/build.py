"""From a simplified graph to a frozen Plan: units, substages, stages, places, GLSL.

In: outputs and updates of a graph, limits, options. Out: ``Packed``: the Plan and where each
Variable lies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from dressi.ad.graph import Variable
from dressi.ad.graph import leaves as all_leaves
from dressi.ad.kernels import workgroup
from dressi.ad.registry import RASTER
from dressi.errors import GraphError
from dressi.packing.exact import BIAS, n_words
from dressi.packing.fold import fold
from dressi.packing.layout import Layout, layout
from dressi.packing.lifetimes import reuse_images, write_in_place
from dressi.packing.limits import DeviceLimits
from dressi.packing.options import Options
from dressi.packing.plan import BufferPlan, DrawPlan, ImagePlan, Plan, StagePlan, SubstagePlan
from dressi.packing.predict import predicted_us
from dressi.packing.profile import DeviceProfile
from dressi.packing.rematerialize import connect, readers_of, rematerialize
from dressi.packing.shader_text import Places
from dressi.packing.shaders import generate
from dressi.packing.stage import Stage, in_levels, pack_stages
from dressi.packing.substage import Context, Substage, pack_substages
from dressi.packing.tail import append_tails
from dressi.packing.units import find_inline, in_buffer, is_exact, make_units

MAX_PLANES = 4
"""Planes of the widest type (MAT4); spaces the keys of persistent images."""


TRIES_UP_TO = 4000
"""Units of a graph that is packed in two ways, to keep the one with fewer passes; for larger ones
the time is not spent twice."""


@dataclass(frozen=True)
class Packed:
    """A Plan, and the way from Variables to its images."""

    plan: Plan
    images: dict[int, tuple[int, ...]]
    """Variable uid -> positions in ``plan.images`` of its planes."""
    buffers: dict[int, int]
    slots: dict[int, int]
    """Uniform leaf uid -> first slot in the uniform block."""
    leaves: tuple[Variable, ...] = ()
    """Leaves that lie in persistent images."""
    uniforms: tuple[Variable, ...] = ()
    substages: tuple[Substage, ...] = field(default=(), repr=False)
    """In order of execution."""
    task: Task | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Task:
    """What is to be packed, and the choices that hold for all parts of it."""

    name: str
    outputs: tuple[Variable, ...]
    """Variables to keep in images (made by FRAG or RASTER Functions)."""
    updates: tuple[tuple[Variable, Variable], ...]
    """(leaf, its next value)."""
    limits: DeviceLimits
    options: Options
    uniforms: tuple[Variable, ...]
    """Leaves in the uniform block."""
    inline: frozenset[int]
    profile: DeviceProfile | None = None
    """What ``lowering="auto"`` goes by; None: graphics."""
    changing: frozenset[int] = frozenset()
    """uids of leaves that are taken to change in every step although no update writes them."""

    @property
    def wanted(self) -> list[Variable]:
        return [*self.outputs, *(new for _, new in self.updates)]

    def context(self, final: Iterable[Variable]) -> Context:
        return Context(
            self.limits,
            final={v.uid for v in final},
            uniforms={v.uid for v in self.uniforms},
            inline=set(self.inline),
            pack_substages=self.options.pack_substages,
            pack_stages=self.options.pack_stages,
            deterministic=self.options.deterministic,
            lowering=self.options.lowering,
            profile=self.profile,
        )


def image_key(v: Variable, plane: int = 0) -> int:
    """Key of the persistent image of one plane of a leaf or a cached value (or of its buffer)."""
    return v.uid * MAX_PLANES + plane


def make_task(
    outputs: Sequence[Variable],
    updates: Iterable[tuple[Variable, Variable]],
    limits: DeviceLimits,
    options: Options | None = None,
    name: str = "step",
    resident: Iterable[int] = (),
    profile: DeviceProfile | None = None,
    changing: Iterable[int] = (),
) -> Task:
    """Check the updates, choose uniforms and what shaders recompute. Arguments as for ``pack``."""
    options = options or Options()
    pairs = tuple(updates)
    for leaf, new in pairs:
        if (leaf.vtype, leaf.size, leaf.layers) != (new.vtype, new.size, new.layers):
            raise GraphError(
                f"the update of {leaf.label()} is {new.label()}; type and size must match"
            )
    wanted = [*outputs, *(new for _, new in pairs)]
    written = {leaf.uid for leaf, _ in pairs}
    uniforms = _choose_uniforms(all_leaves(wanted), written | set(resident), limits)
    inline = find_inline(wanted, {v.uid for v in uniforms}, chains=options.rematerialize)
    return Task(
        name,
        tuple(outputs),
        pairs,
        limits,
        options,
        tuple(uniforms),
        frozenset(inline),
        profile,
        frozenset(changing),
    )


def pack(
    outputs: Sequence[Variable],
    updates: Iterable[tuple[Variable, Variable]],
    limits: DeviceLimits,
    options: Options | None = None,
    name: str = "step",
    resident: Iterable[int] = (),
    profile: DeviceProfile | None = None,
    changing: Iterable[int] = (),
) -> Packed:
    """Pack a graph without macros.

    outputs: Variables to keep in images (made by FRAG or RASTER Functions). updates: (leaf, its
    next value): written in place where nothing reads the old value later, else copied after the
    last stage. resident: uids of 1x1 leaves that live in images on the device because steps change
    them. profile: how fast the device is, for ``lowering="auto"``. changing: uids of leaves that
    the cache takes to change in every step. An output that a scatter makes stays in its buffer.
    Raises PackingError, and GraphError for images too large for the device.
    """
    task = make_task(outputs, updates, limits, options, name, resident, profile, changing)
    return pack_task(task)


def pack_task(task: Task) -> Packed:
    """Functions into substages, substages into stages, stages into a Plan."""
    substages = pack_functions(task, task.wanted)
    return assemble(task, task.name, substages, task.outputs, task.updates)


def pack_functions(
    task: Task, wanted: Sequence[Variable], cut: Collection[int] = ()
) -> list[Substage]:
    """Substages, in order of execution, that compute ``wanted``; cut: uids of Variables that are
    not computed because their persistent images hold them."""
    missing = [v for v in wanted if v.uid not in cut]
    context, profile = task.context(wanted), task.profile
    found = _pack_one_way(task, missing, cut, context)
    mixed = len({s.is_dispatch for s in found}) > 1
    if not mixed or profile is None or task.options.lowering != "auto":
        return found
    # Each was chosen for itself. All one way may be faster: nothing is changed over then.
    ways = [found]
    for lowering in ("graphics", "compute"):
        ways.append(_pack_one_way(task, missing, cut, replace(context, lowering=lowering)))
    return min(ways, key=lambda way: predicted_us(in_levels(pack_stages(way, context)), profile))


def _pack_one_way(
    task: Task, missing: Sequence[Variable], cut: Collection[int], context: Context
) -> list[Substage]:
    """The better of two ways to sort units into substages."""
    ways = []
    for by_level in (False, True):
        units = make_units(missing, set(task.inline), cut)
        context = replace(context, by_level=by_level)
        substages = pack_substages(units, context)
        if task.options.rematerialize and task.options.pack_substages:
            substages = rematerialize(substages, context, task.options.drop_dead_outputs)
            substages = append_tails(fold(substages, context), context)
        if len(units) > TRIES_UP_TO or not task.options.pack_substages:
            return substages
        ways.append(substages)
    return min(ways, key=lambda way: (len(pack_stages(way, context)), _traffic(way)))


def _traffic(substages: Sequence[Substage]) -> int:
    """Words that the substages write to images."""
    return sum(
        v.size[0] * v.size[1] * v.layers * v.vtype.n_words for s in substages for v in s.outputs
    )


def assemble(
    task: Task,
    name: str,
    substages: Sequence[Substage],
    outputs: Sequence[Variable],
    updates: Sequence[tuple[Variable, Variable]],
    keyed: Collection[int] = (),
    all_uniforms: bool = False,
) -> Packed:
    """The Plan of some connected substages. What they read and do not make lies in persistent
    images. keyed: uids of what they write into persistent images. all_uniforms: keep the whole
    uniform block, so that shaders stay as they were."""
    limits, options = task.limits, task.options
    context = task.context([*outputs, *(new for _, new in updates)])
    stages = pack_stages(connect(substages), context)
    if options.zero_copy:
        late = connect(substages)
        if _update_last(late, updates) and len(other := pack_stages(late, context)) <= len(stages):
            stages = other
    stages = in_levels(stages)
    ordered = [s for stage in stages for s in stage.substages]
    made = {v.uid for s in ordered for v in s.outputs}
    outside: dict[int, Variable] = {}
    for s in ordered:
        for v, _ in s.reads.values():
            if v.uid not in made:
                outside[v.uid] = v
    for leaf, new in updates:
        outside.setdefault(leaf.uid, leaf)
        if new.uid not in made:
            outside.setdefault(new.uid, new)
    uniforms = [v for v in task.uniforms if all_uniforms or v.uid in outside]
    places = Places()
    for v in uniforms:
        places.slots[v.uid] = places.n_slots
        places.n_slots += v.vtype.n_planes * v.layers
    images: list[ImagePlan] = []
    buffers: list[BufferPlan] = []
    for v in outside.values():
        if in_buffer(v):
            _add_buffer(v, places, buffers, context, persistent=True, fill=False)
        elif v.uid not in context.uniforms:
            _add_images(v, places, images, limits, persistent=True)
    for s in ordered:
        for v in s.outputs:
            if in_buffer(v):
                _add_buffer(v, places, buffers, context, v.uid in keyed)
            else:
                _add_images(v, places, images, limits, v.uid in keyed)
    planned = tuple(_plan_stage(stage, i, places, context) for i, stage in enumerate(stages))
    copies = [
        pair
        for leaf, new in updates
        for pair in zip(places.images[new.uid], places.images[leaf.uid], strict=True)
    ]
    plan = Plan(name, tuple(images), tuple(buffers), planned, tuple(copies), places.n_slots)
    where = places.images
    if options.zero_copy:
        plan, moves = write_in_place(plan)
        where = _moved(where, moves)
    if options.reuse_images:
        plan, moves = reuse_images(plan, {i for v in outputs for i in where.get(v.uid, ())})
        where = _moved(where, moves)
    return Packed(
        plan,
        where,
        places.buffers,
        places.slots,
        tuple(v for v in outside.values() if v.creator is None and v.uid not in context.uniforms),
        tuple(uniforms),
        tuple(ordered),
        task,
    )


def _update_last(
    substages: Sequence[Substage], updates: Sequence[tuple[Variable, Variable]]
) -> bool:
    """Order what reads a leaf before what makes its next value, where nothing speaks against it, so
    that the value can be written in place. Whether there was something to order."""
    made_by = {v.uid: s for s in substages for v in s.outputs}
    readers = readers_of(substages)
    found = False
    for leaf, new in updates:
        writer = made_by.get(new.uid)
        if writer is None:
            continue
        for k in sorted(readers.get(leaf.uid, ())):
            reader = substages[k]
            known = reader is writer or any(p is reader for p in writer.producers)
            if not known and not _leads_to(writer, reader):
                writer.producers.append(reader)
                reader.users.append(writer)
                found = True
    return found


def _leads_to(first: Substage, last: Substage) -> bool:
    """Whether the last substage needs the first, directly or not."""
    seen: set[int] = set()
    stack = [first]
    while stack:
        s = stack.pop()
        if s is last:
            return True
        for user in s.users:
            if id(user) not in seen:
                seen.add(id(user))
                stack.append(user)
    return False


def _moved(where: dict[int, tuple[int, ...]], moves: dict[int, int]) -> dict[int, tuple[int, ...]]:
    return {uid: tuple(moves[i] for i in planes) for uid, planes in where.items()}


def _choose_uniforms(
    leaves: Iterable[Variable], written: set[int], limits: DeviceLimits
) -> list[Variable]:
    """1x1 leaves that no step writes, as many as the uniform block holds (the rest become
    images)."""
    chosen, used = [], 0
    for v in leaves:
        n = v.vtype.n_planes * v.layers
        stays = v.uid not in written and not v.requires_grad and v.update is None
        if v.size == (1, 1) and stays and used + n <= limits.uniform_slots:
            chosen.append(v)
            used += n
    return chosen


def _add_images(
    v: Variable,
    places: Places,
    images: list[ImagePlan],
    limits: DeviceLimits,
    persistent: bool = False,
) -> None:
    try:
        width, height = layout(v.size, v.layers, limits).physical
    except GraphError as error:
        raise GraphError(f"{v.label()} made at {v.line}: {error.reason}") from None
    indices = []
    for plane in range(v.vtype.n_planes):
        indices.append(len(images))
        suffix = f"[{plane}]" if v.vtype.is_matrix else ""
        images.append(
            ImagePlan(
                len(images),
                (v.name or f"%{v.uid}") + suffix,
                v.vtype.format,
                width,
                height,
                image_key(v, plane) if persistent else None,
            )
        )
    places.images[v.uid] = tuple(indices)


def _add_buffer(
    v: Variable,
    places: Places,
    buffers: list[BufferPlan],
    context: Context,
    persistent: bool = False,
    fill: bool = True,
) -> None:
    limits = context.limits
    n = v.size[0] * v.size[1] * v.layers * v.vtype.n_words
    empty = 0
    if is_exact(v, context.way_to_add):
        n, empty = n_words(n), BIAS
    if n > limits.storage_words:
        raise GraphError(
            f"{v.label()} made at {v.line}: a buffer of {n} words, {limits.name} allows "
            f"{limits.storage_words}"
        )
    places.buffers[v.uid] = len(buffers)
    key = image_key(v) if persistent else None
    buffers.append(BufferPlan(len(buffers), v.name or f"%{v.uid}", n, key, fill, empty))


def _plan_stage(stage: Stage, index: int, places: Places, context: Context) -> StagePlan:
    width, height = layout(*stage.substages[0].domain, context.limits).physical
    kind = "compute" if stage.is_dispatch else "graphics"
    members = tuple(_plan_substage(s, places, context) for s in stage.substages)
    return StagePlan(f"stage {index}", kind, width, height, members)


def _plan_substage(s: Substage, places: Places, context: Context) -> SubstagePlan:
    shader = generate(s, places, context)
    lay = layout(*s.domain, context.limits)
    width, height = lay.physical
    if s.is_dispatch:
        own, (w, h) = s.units[0].functions[0], shader.tile
        kernel = workgroup(own.op)
        return SubstagePlan(
            s.name,
            tuple(shader.bindings),
            compute=shader.compute,
            groups=kernel.groups(own) if kernel else (-(-width // w), -(-height // h), 1),
            n_functions=s.n_functions,
            functions=_function_names(s),
        )
    cull = "none"
    if s.kind == RASTER:
        raster = next(f for u in s.units for f in u.functions if f.op.kind == RASTER)
        cull, scissors = raster.attr("cull"), raster.attr("scissor")
        draws = tuple(
            _draw(
                lay, layer, shader.n_vertices, scissors[layer % len(scissors)] if scissors else None
            )
            for layer in range(lay.layers)
        )
    else:
        draws = (DrawPlan(0, 0, width, height),)
    return SubstagePlan(
        s.name,
        tuple(shader.bindings),
        tuple(shader.outputs),
        tuple(shader.clears),
        shader.vertex,
        shader.fragment,
        draws=draws,
        depth=s.kind == RASTER,
        cull=cull,
        n_functions=s.n_functions,
        functions=_function_names(s),
    )


def _draw(
    lay: Layout, layer: int, n_vertices: int, scissor: tuple[int, int, int, int] | None
) -> DrawPlan:
    """The draw of one layer. scissor: in pixels of the layer."""
    x, y = lay.origin(layer)
    if scissor is not None:
        scissor = (x + scissor[0], y + scissor[1], scissor[2], scissor[3])
    return DrawPlan(x, y, *lay.cell, n_vertices, layer, scissor)


def _function_names(s: Substage) -> tuple[str, ...]:
    folded = [u for chain in s.computed.values() for u in chain]
    return tuple(f"{f.op.name}  {f.line}" for u in (*folded, *s.units) for f in u.functions)
