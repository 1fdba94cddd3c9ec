"""The form of a render pass as plain data: attachments, subpasses, dependencies, preserved
attachments.

In: a graphics StagePlan. Out: ``PassShape`` (paper, A.10). Needs no Vulkan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dressi.errors import DeviceError
from dressi.packing.bindings import FETCHED
from dressi.packing.plan import StagePlan

EXTERNAL = 0xFFFFFFFF
"""VK_SUBPASS_EXTERNAL."""
READ, WRITE, OTHER_READ, BUFFER, DEPTH = "read", "write", "other", "buffer", "depth"
"""How a subpass uses something: input attachment, colour attachment, read at other pixels, storage
buffer, depth attachment."""


@dataclass(frozen=True)
class SubpassShape:
    """Attachment numbers of one subpass."""

    inputs: tuple[int | None, ...]
    """By input_attachment_index; None where the shader uses no such index."""
    outputs: tuple[int, ...]
    depth: int | None
    preserve: tuple[int, ...]


@dataclass(frozen=True)
class PassShape:
    """A render pass as plain data. Depth attachments come after the images."""

    images: tuple[int, ...]
    """Positions in ``Plan.images``, by attachment number."""
    load: tuple[str, ...]
    """``load``, ``clear`` or ``dont_care`` for each image."""
    clears: tuple[tuple[float, ...] | None, ...]
    n_depths: int
    subpasses: tuple[SubpassShape, ...]
    dependencies: tuple[tuple[int, int, frozenset[tuple[str, str]]], ...]
    """(source, destination, pairs of uses that must be ordered); EXTERNAL to and from the
    outside."""


def shape_of(stage: StagePlan) -> PassShape:
    """Works out attachments and dependencies of a graphics stage.

    Raises DeviceError for what a render pass cannot do: to clear an image that the same or an
    earlier subpass has used.
    """
    uses = _uses(stage)
    images: list[int] = []
    load: dict[int, str] = {}
    clears: dict[int, tuple[float, ...] | None] = {}
    for substage, used in zip(stage.substages, uses, strict=True):
        values = dict(zip(substage.outputs, substage.clears or (), strict=False))
        for (kind, index), accesses in used.items():
            if kind != "image" or accesses <= {OTHER_READ}:
                continue
            clear = values.get(index) if WRITE in accesses else None
            if READ in accesses and clear is not None:
                raise DeviceError(
                    f"substage '{substage.name}' clears image {index}, which it reads"
                )
            if index in load:
                if clear is not None:
                    raise DeviceError(
                        f"substage '{substage.name}' clears image {index}, which an earlier "
                        f"subpass of stage '{stage.name}' has used"
                    )
                continue
            images.append(index)
            clears[index] = clear
            if READ in accesses:  # also when the subpass writes it, each pixel after reading it
                load[index] = "load"
            else:
                load[index] = "dont_care" if clear is None else "clear"
    number = {index: i for i, index in enumerate(images)}
    return PassShape(
        images=tuple(images),
        load=tuple(load[i] for i in images),
        clears=tuple(clears[i] for i in images),
        n_depths=sum(s.depth for s in stage.substages),
        subpasses=_subpasses(stage, uses, number),
        dependencies=_dependencies(uses),
    )


Uses = dict[tuple[str, int], set[str]]
"""(image, buffer or depth; index) to the accesses of one subpass."""


def _uses(stage: StagePlan) -> list[Uses]:
    all_uses: list[Uses] = []
    for position, substage in enumerate(stage.substages):
        uses: Uses = {}
        for index in substage.outputs:
            uses.setdefault(("image", index), set()).add(WRITE)
        for binding in substage.bindings:
            if binding.kind == "input":
                uses.setdefault(("image", binding.index), set()).add(READ)
            elif binding.kind == "buffer":
                uses.setdefault(("buffer", binding.index), set()).add(BUFFER)
            elif binding.kind in FETCHED:
                uses.setdefault(("image", binding.index), set()).add(OTHER_READ)
        if substage.depth:
            uses[("depth", position)] = {DEPTH}
        all_uses.append(uses)
    return all_uses


def _subpasses(
    stage: StagePlan, uses: Sequence[Uses], number: dict[int, int]
) -> tuple[SubpassShape, ...]:
    subpasses: list[SubpassShape] = []
    started: set[int] = set()
    depth = len(number)
    for substage, used in zip(stage.substages, uses, strict=True):
        inputs: dict[int, int] = {
            b.input_index: number[b.index] for b in substage.bindings if b.kind == "input"
        }
        mine = {
            number[index]
            for (kind, index), accesses in used.items()
            if kind == "image" and accesses & {READ, WRITE}
        }
        subpasses.append(
            SubpassShape(
                inputs=tuple(inputs.get(i) for i in range(max(inputs, default=-1) + 1)),
                outputs=tuple(number[i] for i in substage.outputs),
                depth=depth if substage.depth else None,
                # Also after its last use: without being preserved an image is undefined at the end,
                # although it is stored.
                preserve=tuple(sorted(started - mine)),
            )
        )
        depth += substage.depth
        started |= mine
    return tuple(subpasses)


def _dependencies(
    uses: Sequence[Uses],
) -> tuple[tuple[int, int, frozenset[tuple[str, str]]], ...]:
    """Every pair of subpasses of which one writes what the other uses, and all first and last
    uses."""
    dependencies: list[tuple[int, int, frozenset[tuple[str, str]]]] = []
    writing = {WRITE, BUFFER, DEPTH}
    for j, later in enumerate(uses):
        for i, earlier in enumerate(uses[:j]):
            pairs = {
                (a, b)
                for thing in earlier.keys() & later.keys()
                for a in earlier[thing]
                for b in later[thing]
                if a in writing or b in writing
            }
            # An attachment that both only read: its store after the last subpass writes memory too.
            if any(
                earlier[thing] | later[thing] == {READ} for thing in earlier.keys() & later.keys()
            ):
                pairs |= {(READ, WRITE), (WRITE, WRITE)}
            if pairs:
                dependencies.append((i, j, frozenset(pairs)))
    before: set[tuple[str, int]] = set()
    for j, used in enumerate(uses):
        first = set[str]().union(*(a for thing, a in used.items() if thing not in before))
        if first:
            dependencies.append((EXTERNAL, j, frozenset((WRITE, access) for access in first)))
        before |= used.keys()
    after: set[tuple[str, int]] = set()
    for i in reversed(range(len(uses))):
        last = set[str]().union(*(a for thing, a in uses[i].items() if thing not in after))
        if last:
            dependencies.append((i, EXTERNAL, frozenset((access, WRITE) for access in last)))
        after |= uses[i].keys()
    return tuple(dependencies)
