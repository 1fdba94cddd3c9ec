"""The limits of packing, in one place: what keeps a unit out of a shader, or a substage out of a
render pass.

In: what a shader uses, limits of a device. Out: an ``Obstacle`` or None. The packer, the checks of
passes and plans, errors and docs all ask here; the packer keeps its ``Use`` up to date by counting
(``active``).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from dressi.ad.graph import Variable
from dressi.packing.limits import DeviceLimits
from dressi.packing.units import domain_text

INPUTS, SAMPLED, SAMPLERS, BUFFERS, IMAGES, SCATTERED, LEAVES, LOOPS = range(8)
"""Positions in a ``Use``: input attachments, sampled images, samplers, storage buffers, planes of
images written, buffers that it adds to (among the storage buffers), of the input attachments those
of leaves, and Functions that loop."""

Use = list[int]
"""How much of each limit a shader uses."""


def no_use() -> Use:
    """Return the use of a shader of nothing."""
    return [0] * (LOOPS + 1)


_RULES = {
    "domain": "runs over {needed}, the substage over {allowed}",
    "dispatch": "a dispatch stands alone",
    "raster": "a rasterization begins its own substage",
    "fragment": "behind a rasterization only its fragments are shaded",
    "scattered": "{needed} is scattered and read in the substage",
    "elsewhere": "{needed} is read at other pixels in the substage",
    "late": "is needed after {needed} passes, the substage comes after {allowed}",
    "framebuffer": "framebuffer {needed}, the stage's is {allowed}",
    "fetched": "{needed} is read at other pixels in the stage",
    "attached here": "an image is an attachment here and fetched in the stage",
    "fetched here": "an image is fetched here and an attachment in the stage",
    "fragment stores": "{device} has no stores in fragment shaders",
}
"""Texts of what is not a number of the device."""


MOST_CARRIED = 128
"""Planes of inputs up to which a substage takes units although it breaks a limit of inputs. Each is
a value that the shader would hold at once: as scalars half of the registers of an invocation (255
words on NVIDIA's devices, 256 on AMD's). Forward and backward of a renderer's pixel meet long
before; what goes beyond seldom comes back, and is not tried. An ``Options.look_ahead`` above its
default raises it in proportion."""


class Obstacle(NamedTuple):
    """Why something does not fit; ``str`` is the sentence for errors."""

    limit: str
    """A field of DeviceLimits, or a rule of packing."""
    needed: object = None
    allowed: object = None
    device: str = ""
    lasting: bool = True
    """Whether no unit that joins later can remove it: outputs only grow, and leaves stay
    inputs."""

    def __str__(self) -> str:
        text = _RULES.get(self.limit, "needs {needed} {limit}, {device} allows {allowed}")
        return text.format(
            limit=self.limit.replace("_", " "),
            needed=_text(self.needed),
            allowed=_text(self.allowed),
            device=self.device,
        )


def _text(value: object) -> str:
    """A number, a Variable, a size or a domain."""
    if isinstance(value, Variable):
        return value.label()
    if not isinstance(value, tuple):
        return str(value)
    return domain_text(value if isinstance(value[0], tuple) else (value, 1))


def limit_obstacle(
    use: Use,
    limits: DeviceLimits,
    raster: bool = False,
    dispatch: bool = False,
    stores: bool = False,
) -> Obstacle | None:
    """The first limit of the device that a shader breaks, lasting ones first; None when it fits.

    raster: whether it has a depth attachment. dispatch: whether it runs as a dispatch; stores: as
    one that writes storage images, not attachments.
    """
    return output_obstacle(use, limits, dispatch, stores) or input_obstacle(use, limits, raster)


def output_obstacle(
    use: Use, limits: DeviceLimits, dispatch: bool, stores: bool, ignored: Collection[str] = ()
) -> Obstacle | None:
    """The limits on what a shader writes, and on what it does."""
    if use[LOOPS] > limits.loops and "loops" not in ignored:
        return Obstacle("loops", use[LOOPS], limits.loops, limits.name)
    images, scattered = use[IMAGES], use[SCATTERED]
    allowed = limits.storage_images if stores else limits.color_outputs
    if images > allowed:
        name = "storage_images" if stores else "color_outputs"
        if name not in ignored:
            return Obstacle(name, images, allowed, limits.name)
    if scattered and not dispatch:
        n = images + scattered
        if n > limits.combined_outputs and "combined_outputs" not in ignored:
            return Obstacle("combined_outputs", n, limits.combined_outputs, limits.name)
        if not limits.fragment_stores and "fragment stores" not in ignored:
            return Obstacle("fragment stores", device=limits.name)
    return None


def most_inputs(use: Use, limits: DeviceLimits, raster: bool) -> int:
    """Return how many input attachments a shader that writes these images may have."""
    return min(limits.input_attachments, limits.stage_attachments - use[IMAGES] - raster)


def input_obstacle(
    use: Use,
    limits: DeviceLimits,
    raster: bool,
    ignored: Collection[str] = (),
    spill: bool = False,
) -> Obstacle | None:
    """The limits on what a shader reads, and on all of its descriptors together. spill: inputs for
    which no attachment is left are fetched as textures."""
    inputs, sampled, samplers, buffers, images, _, leaves, _ = use
    if spill:
        over = max(0, inputs - most_inputs(use, limits, raster))
        inputs, sampled, leaves = inputs - over, sampled + over, min(leaves, inputs - over)
    if (
        inputs <= limits.input_attachments
        and sampled <= limits.sampled_images
        and samplers <= limits.samplers
        and buffers <= limits.storage_buffers
        and inputs + images + raster <= limits.stage_attachments
        and inputs + sampled + buffers + images + 1 <= limits.resources
    ):
        return None
    numbers = {
        "input_attachments": inputs,
        "sampled_images": sampled,
        "samplers": samplers,
        "storage_buffers": buffers,
        "resources": inputs + sampled + buffers + images + 1,  # one uniform block
        "stage_attachments": inputs + images + raster,  # dispatches keep to it, too
    }
    lasting = leaves > limits.input_attachments
    for name, n in numbers.items():
        allowed = getattr(limits, name)
        if n > allowed and name not in ignored:
            return Obstacle(name, n, allowed, limits.name, lasting)
    return None


def attachment_obstacle(n: int, limits: DeviceLimits) -> Obstacle | None:
    """The limit on the attachments of a whole render pass."""
    allowed = limits.stage_attachments
    return Obstacle("stage_attachments", n, allowed, limits.name) if n > allowed else None
