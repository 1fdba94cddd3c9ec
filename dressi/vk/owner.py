"""What executables and transfers take from the device that they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dressi.packing.plan import Plan
from dressi.vk.api import CData
from dressi.vk.context import Context
from dressi.vk.memory import Memory, Staging
from dressi.vk.store import DepthPool, ImageStore

if TYPE_CHECKING:
    from dressi.vk.shader_copy import ShaderCopies


class Owner(Protocol):
    """A ``Device``, seen by what it makes."""

    context: Context
    memory: Memory
    staging: Staging
    store: ImageStore
    depths: DepthPool
    pipeline_cache: CData
    shader_copies: ShaderCopies

    def check_room(self, plan: Plan) -> None:
        """Raises OutOfMemoryError where a plan does not fit."""
        ...
