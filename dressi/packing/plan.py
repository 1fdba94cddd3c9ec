"""The Plan: the frozen border between packing and Vulkan.

In: the packer's stages. Out: strings, numbers and tuples that ``dressi.vk`` executes without
knowing a single op, and that print, compare and pickle. A test can write a Plan by hand. Paper: the
result of A.9 (stage packing), before A.10 (Vulkan object creation).
"""

from __future__ import annotations

from dataclasses import dataclass

BYTES_PER_PIXEL = {"R32F": 4, "RG32F": 8, "RGBA32F": 16, "R32I": 4, "RG32I": 8, "RGBA32I": 16}

CULL_MODES = ("none", "back", "front")


@dataclass(frozen=True)
class ImagePlan:
    """One 2D image. All images stay in the general layout."""

    index: int
    """Position in ``Plan.images``."""
    name: str
    format: str
    """A key of BYTES_PER_PIXEL."""
    width: int
    height: int
    key: int | None = None
    """Not None: a persistent image of the device's store (a leaf, a parameter, optimizer state),
    which outlives the plan and is shared by all plans that name the same key. None: owned by the
    plan."""

    @property
    def n_bytes(self) -> int:
        """Size of the tightly packed pixels."""
        return self.width * self.height * BYTES_PER_PIXEL[self.format]


@dataclass(frozen=True)
class BufferPlan:
    """One storage buffer of 32-bit words."""

    index: int
    """Position in ``Plan.buffers``."""
    name: str
    n_words: int
    key: int | None = None
    """Not None: a persistent buffer of the device's store, as with images."""
    fill: bool = True
    """Whether every word is set to ``empty`` at the start of every step (not so what a plan only
    reads)."""
    empty: int = 0
    """The word that stands for nothing yet, 0 to 2^32 - 1."""


@dataclass(frozen=True)
class SamplerPlan:
    """Sampler state. ``filter``: nearest or linear. ``wrap``: repeat, mirror, clamp or border (0
    outside) along u, ``wrap_v`` along v; empty: as along u."""

    filter: str = "linear"
    wrap: str = "clamp"
    wrap_v: str = ""


@dataclass(frozen=True)
class Binding:
    """One descriptor of set 0.

    ``kind``: ``input`` (input attachment), ``texture`` (sampled image, no sampler), ``load``
    (storage image that is only read), ``pixel`` (sampled image of which a dispatch reads only the
    pixel that it computes), ``sampler`` (combined image sampler), ``buffer`` (storage buffer),
    ``storage`` (storage image that is written, compute only), ``uniform`` (the plan's one uniform
    block; ``index`` is ignored). ``index``: position in ``Plan.images`` (or ``Plan.buffers`` for
    ``buffer``). ``shaders``: letters out of v (vertex), f (fragment), c (compute).
    """

    binding: int
    kind: str
    index: int
    shaders: str = "f"
    sampler: SamplerPlan | None = None
    input_index: int = 0
    """For ``input``: the input_attachment_index used in the shader (position among the inputs)."""


@dataclass(frozen=True)
class DrawPlan:
    """One draw call: viewport and scissor in pixels of the framebuffer, and what is drawn."""

    x: int
    y: int
    width: int
    height: int
    n_vertices: int = 3
    first_instance: int = 0
    scissor: tuple[int, int, int, int] | None = None
    """x, y, width, height in pixels of the framebuffer, inside the viewport; None: all of it."""


@dataclass(frozen=True)
class SubstagePlan:
    """One subpass of a render pass, or one compute dispatch."""

    name: str
    bindings: tuple[Binding, ...]
    outputs: tuple[int, ...] = ()
    """Images written as colour attachments, in the order of their locations."""
    clears: tuple[tuple[float, ...] | None, ...] = ()
    """For each output: four clear values (ints for integer formats), or None when every pixel is
    written."""
    vertex: str = ""
    """GLSL. Empty for compute."""
    fragment: str = ""
    compute: str = ""
    draws: tuple[DrawPlan, ...] = ()
    depth: bool = False
    """Whether the subpass has a depth attachment of its own (cleared to 1, compare LESS,
    written)."""
    cull: str = "none"
    """Triangles that are not drawn: ``none``, ``back`` or ``front`` (one of CULL_MODES); those
    that run counter-clockwise on the screen are front faces."""
    outside: str = ""
    """GLSL of the fragments of the first draw, which leaves out the pixels where a mask is not 0;
    ``fragment`` is that of the others. Empty: ``fragment`` is that of all draws."""
    mask: str = ""
    """Name of that mask."""
    groups: tuple[int, int, int] = (1, 1, 1)
    """Work groups of the dispatch."""
    pushed: tuple[int, ...] = ()  # push constants: numbers that follow from lengths of tables
    n_functions: int = 0
    functions: tuple[str, ...] = ()
    """``op file:line`` of each Function, in order of execution, for reports."""

    @property
    def written(self) -> tuple[int, ...]:
        """Images that it writes, as attachments or as storage images, each once."""
        stored = (b.index for b in self.bindings if b.kind == "storage")
        return tuple(dict.fromkeys([*self.outputs, *stored]))


@dataclass(frozen=True)
class StagePlan:
    """One render pass (``kind`` graphics; all substages share the framebuffer size) or one dispatch
    (``kind`` compute; exactly one substage)."""

    name: str
    kind: str
    width: int
    height: int
    substages: tuple[SubstagePlan, ...]


@dataclass(frozen=True)
class Plan:
    """A whole step: fills, stages in order (each sees everything that earlier ones wrote), then
    copies."""

    name: str
    images: tuple[ImagePlan, ...]
    buffers: tuple[BufferPlan, ...]
    stages: tuple[StagePlan, ...]
    updates: tuple[tuple[int, int], ...] = ()
    """(source image, destination image), copied after the last stage: optimizer results into
    parameters."""
    uniform_slots: int = 0
    """vec4 slots of the uniform block; 0: none is bound."""

    @property
    def n_substages(self) -> int:
        """Number of substages of all stages."""
        return sum(len(s.substages) for s in self.stages)

    @property
    def n_functions(self) -> int:
        """Number of Functions of all substages."""
        return sum(b.n_functions for s in self.stages for b in s.substages)

    @property
    def n_bytes(self) -> int:
        """Bytes of all images and buffers, depth attachments not counted."""
        return sum(i.n_bytes for i in self.images) + sum(4 * b.n_words for b in self.buffers)

    @property
    def own_bytes(self) -> tuple[int, int]:
        """Bytes of the images and of the buffers that live as long as what was compiled of it."""
        return (
            sum(i.n_bytes for i in self.images if i.key is None),
            sum(4 * max(b.n_words, 1) for b in self.buffers if b.key is None),
        )
