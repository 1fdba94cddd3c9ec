"""How fast a device runs passes and dispatches, as plain data, and what that says about lowering.

In: measured numbers (``dressi.vk.profile``) or a preset. Out: whether a shader over so many pixels
should be a fragment subpass or a compute dispatch. Data-centre GPUs have few processors that can do
graphics and run compute 16 to 40 times faster; CPU drivers run fragments a little faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

ADVANTAGE = 0.8
"""Predicted time of a dispatch over that of a subpass below which it is taken: passes, which every
device supports, stay where the two are about equal, and noise changes no plan."""

TYPICAL_FUNCTIONS = 30.0
"""Functions of a shader whose size is not known yet; about the mean over HardSoftRas's."""

SLOT_SHARE = 0.5
"""Of a traversal of all primitives in a compute shader: what one more slot a pixel adds to it
(atomic operations, memory to clear). ``dressi bench kbuffer`` measures it: 0.45 to 0.63 on an H200,
0.03 to 0.05 on llvmpipe."""


@dataclass(frozen=True)
class Costs:
    """Microseconds of a shader as a pass, or as a dispatch.

    fixed_us: of a pass or dispatch over a handful of pixels, its barrier included.
    copy_us: of reading and writing 2^20 pixels of RGBA32F.
    function_us: of one function of four components (a multiplication and an addition) over 2^20
    pixels.
    raster_us: of finding the nearest of 5000 small triangles in an image of 512 x 512.
    """

    fixed_us: float
    copy_us: float
    function_us: float
    raster_us: float

    def predicted_us(self, n_pixels: int, n_functions: float = TYPICAL_FUNCTIONS) -> float:
        """Of a shader that reads and writes one image."""
        millions = n_pixels / 2**20
        return self.fixed_us + millions * (self.copy_us + n_functions * self.function_us)


@dataclass(frozen=True)
class DeviceProfile:
    """Costs of passes and of dispatches on one device and driver."""

    name: str
    graphics: Costs
    compute: Costs
    image_loads: bool = False
    """Whether any pixel of an image is read faster from a storage image than from a texture. Not
    measured: on GPUs textures have caches of their own."""
    scatters_far: bool = False
    """Whether a pixel that scatters may as well look up a row first, to spare others a gather. Not
    measured: on GPUs atomics that meet in fewer rows wait for each other."""

    def prefers_dispatch(self, n_pixels: int) -> bool:
        """Return whether pixels that are not rasterized should run in a dispatch."""
        graphics = self.graphics.predicted_us(n_pixels)
        return self.compute.predicted_us(n_pixels) < ADVANTAGE * graphics

    @property
    def switch_us(self) -> float:
        """Of going from passes to dispatches or back: all of the ones are waited for before the
        others begin, about what the slower of the two costs to begin."""
        return max(self.graphics.fixed_us, self.compute.fixed_us)

    def layers_us(self, n_layers: int, kbuffer: bool) -> float:
        """Of n layers of a rasterization in compute shaders: all at once, or one by one."""
        once = self.compute.fixed_us + self.compute.raster_us
        return once * (1.0 + SLOT_SHARE * (n_layers - 1) if kbuffer else n_layers)

    def prefers_kbuffer(self, n_layers: int) -> bool:
        """Whether compute shaders should find n layers at once."""
        return self.layers_us(n_layers, True) < self.layers_us(n_layers, False)

    def rasterizes_in_compute(self, n_layers: Sequence[int], kbuffer: bool) -> bool:
        """Whether compute shaders should do all rasterizations, of so many layers each. kbuffer:
        whether they may find layers at once."""
        if not n_layers:
            return False
        compute = sum(self.layers_us(n, kbuffer and self.prefers_kbuffer(n)) for n in n_layers)
        graphics = (self.graphics.fixed_us + self.graphics.raster_us) * sum(n_layers)
        return compute < ADVANTAGE * graphics

    @property
    def prefers_compute_raster(self) -> bool:
        """Whether triangles should be rasterized by compute shaders, one layer of them."""
        return self.rasterizes_in_compute((1,), False)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; ``from_dict`` reads it."""
        return asdict(self)


def from_dict(data: Any) -> DeviceProfile:
    """The profile that ``as_dict`` wrote. Raises ValueError for anything else."""
    try:
        costs = {
            kind: Costs(**{f.name: float(data[kind][f.name]) for f in fields(Costs)})
            for kind in ("graphics", "compute")
        }
        loads, far = (bool(data.get(name, False)) for name in ("image_loads", "scatters_far"))
        profile = DeviceProfile(str(data["name"]), **costs, image_loads=loads, scatters_far=far)
    except (TypeError, KeyError, IndexError) as error:
        raise ValueError(f"no device profile: {error}") from None
    numbers = [v for c in (profile.graphics, profile.compute) for v in asdict(c).values()]
    if not all(0 < v < 1e9 for v in numbers):
        raise ValueError("no device profile: times must be positive")
    return profile


# Measured with ``dressi info`` on an idle machine: Mesa 22.3.6 llvmpipe on two cores, and an
# NVIDIA H200 (driver 580).
PRESETS: dict[str, DeviceProfile] = {
    "llvmpipe": DeviceProfile(
        "llvmpipe",
        graphics=Costs(40.0, 2300.0, 140.0, 2000.0),
        compute=Costs(40.0, 5100.0, 150.0, 60000.0),
        image_loads=True,  # a step of silhouettes takes 0.72 to 0.86 of the processor time
        scatters_far=True,
    ),
    "h200": DeviceProfile(
        "h200",
        graphics=Costs(5.0, 305.0, 6.4, 250.0),
        compute=Costs(2.5, 10.0, 0.21, 30.0),
    ),
}
