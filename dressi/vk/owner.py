"""What executables and transfers take from the device that they belong to."""

from __future__ import annotations

from typing import Protocol

from dressi.packing.layout import Cells
from dressi.packing.plan import Plan
from dressi.vk.api import CData
from dressi.vk.context import Context, Owned
from dressi.vk.image import Image
from dressi.vk.memory import Buffer, Memory, Staging
from dressi.vk.store import DepthPool, ImageStore


class ImageCopies(Protocol):
    """Copies of whole images that are recorded as dispatches."""

    def takes(self, image: Image, cells: Cells) -> bool:
        """Whether one can be recorded."""
        ...

    def record(
        self,
        commands: CData,
        owned: Owned,
        image: Image,
        cells: Cells,
        buffer: Buffer,
        offset: int,
        to_image: bool,
    ) -> None:
        """Record it."""
        ...

    def close(self) -> None:
        """Let the shaders go, until they are needed again."""
        ...


class Owner(Protocol):
    """A ``Device``, seen by what it makes."""

    context: Context
    memory: Memory
    staging: Staging
    store: ImageStore
    depths: DepthPool
    pipeline_cache: CData
    shader_copies: ImageCopies

    def check_room(self, plan: Plan) -> None:
        """Raises OutOfMemoryError where a plan does not fit."""
        ...
