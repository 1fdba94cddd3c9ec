"""Switches of packing, caching and execution. In: the user's choice. Out: ``Options``."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from dressi.errors import GraphError
from dressi.kinds import LOWERINGS, PEELINGS, Lowering, Peeling

LOOK_AHEAD = 2000
"""Enough for the forward and backward of a rasterizer and its models but hair."""


@dataclass(frozen=True)
class Options:
    """Every lever has a switch, and results do not depend on them (paper, table 3).

    ``pack_substages``: several Functions per shader. ``pack_stages``: several substages per render
    pass. ``cache``: parts of the graph that did not change are not run again. ``rematerialize``:
    cheap same-pixel values are computed again where they are read instead of being carried through
    images. ``zero_copy``: a step writes updates into the images of their leaves where nothing reads
    the old value later. ``fold_constants``: arithmetic on constants is done while packing.
    ``merge_duplicates``: equal Functions of equal inputs become one. ``drop_dead_outputs``: images
    that nothing reads are not written. ``reuse_images``: values whose lifetimes do not meet share
    an image. ``sparse``: passes skip pixels of which a mask says that most of their work is
    needless. ``spill``: same-pixel values for which a shader has no input attachment left are
    fetched as textures where that is predicted to be faster. ``per_primitive``: what fragments
    read by the number of their primitive is read per vertex, where primitives are large.
    ``image_loads``: shaders read other pixels of storage images, not of textures, where the
    device's profile says that this is faster. ``compose_scatters``: gradients that pixels scatter
    to a table whose rows hand them on to another are scattered to the other at once, where the
    profile says that this is faster. ``push_lengths``: shaders are pushed the lengths of tables
    when they run, so that what was compiled serves tables of any length; not on CPU drivers.
    ``rederive``: passes compute anew what several would carry,
    and become one, where that is predicted to be faster.

    ``lowering``: what runs pixels that are not rasterized: ``graphics`` (fragment shaders in
    subpasses) or ``compute`` (dispatches); ``auto`` takes what the device's profile predicts to be
    faster, graphics where there is none.

    ``peeling``: how the layers of a rasterization (``F.resolve(peel=...)``) are found where compute
    shaders rasterize: ``depth`` (one rasterization a layer) or ``kbuffer`` (all in one); ``auto``
    takes what is predicted to be faster. Graphics always draws them one by one.

    ``look_ahead``: Functions that a shader may take beyond its limits, in the hope that those
    before them turn inputs into inner values again. Forward and backward of a long model over the
    same pixels need as many as they have, and hair (1100, 200 values at once) 4000, for the number
    of values that a shader may hold grows with it; packing takes longer where hope fails.

    ``deterministic``, off by default: sums that many pixels add to (gradients through dynamic
    lookups and textures) do not depend on the order of additions, so a fit gives the same bits in
    every run. It takes three words a number instead of one; single numbers beyond 2^30, and NaN,
    count as 2^30, and a sum must stay below 2^31.
    """

    pack_substages: bool = True
    pack_stages: bool = True
    cache: bool = True
    rematerialize: bool = True
    zero_copy: bool = True
    fold_constants: bool = True
    merge_duplicates: bool = True
    drop_dead_outputs: bool = True
    reuse_images: bool = True
    sparse: bool = True
    spill: bool = True
    per_primitive: bool = True
    image_loads: bool = True
    compose_scatters: bool = True
    push_lengths: bool = True
    rederive: bool = True
    deterministic: bool = False
    lowering: Lowering = "auto"
    peeling: Peeling = "auto"
    look_ahead: int = LOOK_AHEAD

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, bool) and not isinstance(value, bool):
                raise GraphError(f"Options.{field.name} must be True or False, got {value!r}")
        for name, known in (("lowering", LOWERINGS), ("peeling", PEELINGS)):
            value = getattr(self, name)
            if value not in known:
                raise GraphError(f"Options.{name} must be one of {known}, got {value!r}")
        n = self.look_ahead
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise GraphError(f"Options.look_ahead must be an integer of 0 or more, got {n!r}")

    @classmethod
    def baseline(cls) -> Options:
        """Return Options with all off: one Function per render pass, as in the paper's table 3."""
        switches = {f.name: False for f in fields(cls) if f.default is True}
        return replace(cls(lowering="graphics"), **switches)  # type: ignore[arg-type]


SWITCHES_ELSEWHERE = {
    "look_ahead": "packing.greedy: how far a substage grows",
    "merge_duplicates": "ad.simplify, before packing",
    "fold_constants": "ad.simplify, before packing",
    "peeling": "packing.lower, before packing",
    "compose_scatters": "packing.lower, before packing",
    "lowering": "packing.lower, before packing, and build.pack_functions, which tries both",
    "spill": "build.pack_functions, which packs with and without",
    "per_primitive": "packing.raster: the vertex shader of a rasterization",
    "image_loads": "packing.reads: how a shader fetches",
    "push_lengths": "packing.reads: how a shader knows lengths of tables",
    "deterministic": "packing.accumulate: the GLSL of a scatter",
    "cache": "packing.reactive: which part of a step is a program of its own",
}
"""Switches of Options that belong to no pass, and where they act."""
