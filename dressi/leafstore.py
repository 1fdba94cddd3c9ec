"""Data of leaves, on the host and on the device.

In: arrays from the user, leaves' own data, derived leaves. Out: persistent images of a device, uniform
words. Belongs to one engine: two engines may share a leaf, each with its own data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dressi.ad.evaluate import as_array, evaluate
from dressi.ad.graph import Variable, leaves
from dressi.errors import GraphError
from dressi.packing import Packed, image_key
from dressi.packing.arrays import from_planes, to_planes, to_words
from dressi.packing.layout import layout
from dressi.vk import Device


class LeafStore:
    """Where the leaves of one engine keep their data."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.limits = device.limits
        self.version = 0
        """Grows with every send."""
        self._host: dict[int, np.ndarray] = {}
        self._resident: dict[int, Variable] = {}

    def send(self, v: Variable, value: Any) -> None:
        """Check and keep the data of a leaf; on the device at once. Raises GraphError for bad data."""
        if v.creator is not None:
            raise GraphError(
                f"send_img: {v.label()} is computed by {v.creator.where}; only leaves hold data"
            )
        array = as_array(value, v)
        layout(v.size, v.layers, self.limits)
        self._host[v.uid] = array
        self.version += 1
        if v.uid in self._resident or v.size != (1, 1):
            self._upload(v, array)
        if v.vtype.is_int:
            for other in list(self._resident.values()):
                if other.derived is not None and v in leaves([other.derived.source]):
                    self._upload(other, self._derive(other))

    def host(self, v: Variable) -> np.ndarray:
        """Data of a leaf as last sent (or its own). Raises GraphError when it has none."""
        if v.uid in self._host:
            return self._host[v.uid]
        if v.derived is not None:
            return self._derive(v)
        if v.data is not None:
            return v.data
        raise GraphError(
            f"the leaf {v.label()} made at {v.line} has no data\n  hint: call send_img before the step"
        )

    def index_feeds(self, outputs: Iterable[Variable]) -> dict[Variable, np.ndarray]:
        """Data of all integer leaves that have some."""
        return {
            v: self.host(v)
            for v in leaves(outputs)
            if v.vtype.is_int and v.derived is None and (v.uid in self._host or v.data is not None)
        }

    def _derive(self, v: Variable) -> np.ndarray:
        assert v.derived is not None
        source = v.derived.source
        feeds = {leaf: self.host(leaf) for leaf in leaves([source])}
        (index,) = evaluate([source], feeds)
        return v.derived.compute(index)

    def _upload(self, v: Variable, array: np.ndarray) -> None:
        width, height = layout(v.size, v.layers, self.limits).physical
        for plane, data in enumerate(to_planes(array, v, self.limits)):
            self.device.upload(image_key(v, plane), v.vtype.format, width, height, data)
        self._resident[v.uid] = v

    def ensure(self, packed: Packed) -> None:
        """Upload every leaf that a plan reads and that is not on the device yet."""
        for v in packed.leaves:
            if v.uid not in self._resident:
                self._upload(v, self.host(v))
        for v in packed.uniforms:
            self.host(v)

    def uniform_words(self, packed: Packed) -> bytes:
        """The uniform block of a plan."""
        return b"".join(to_words(self.host(v), v) for v in packed.uniforms)

    def receive(self, v: Variable) -> np.ndarray:
        """Current data of a leaf, (layers, H, W, *tail); from the device where steps may change it."""
        if v.uid not in self._resident:
            return self.host(v)
        planes = [self.device.download(image_key(v, k)) for k in range(v.vtype.n_planes)]
        return from_planes(planes, v, self.limits)
