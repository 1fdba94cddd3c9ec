"""Device memory: sub-allocation from big blocks, storage buffers, and staging memory of the host.

In: what Vulkan says an object needs. Out: ``Allocation`` (memory, offset), ``Buffer``.
Before each block is taken, what this device already holds is summed and compared with the heap:
some drivers (lavapipe) hand out memory that is not there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dressi.errors import DeviceError, OutOfMemoryError
from dressi.vk.api import WHOLE_SIZE, Arena, CData
from dressi.vk.context import Context, Owned

_BLOCK = 64 << 20
"""Bytes of a block. 64 MB x maxMemoryAllocationCount (4096 at least) is far beyond any device."""


@dataclass(eq=False)
class _Block:
    """One VkDeviceMemory; ``free`` holds (offset, size) of its holes, sorted by offset."""

    memory: CData
    size: int
    free: list[tuple[int, int]]

    def take(self, size: int, align: int) -> int | None:
        """First fit; the offset, or None when no hole is large enough."""
        for i, (start, length) in enumerate(self.free):
            offset = -(-start // align) * align
            if offset + size <= start + length:
                holes = [(start, offset - start), (offset + size, start + length - offset - size)]
                self.free[i : i + 1] = [h for h in holes if h[1]]
                return offset
        return None

    def give(self, offset: int, size: int) -> None:
        """Returns a range, merging it with the holes beside it."""
        holes = sorted([*self.free, (offset, size)])
        merged = [holes[0]]
        for start, length in holes[1:]:
            last, last_length = merged[-1]
            if last + last_length == start:
                merged[-1] = (last, last_length + length)
            else:
                merged.append((start, length))
        self.free = merged

    @property
    def empty(self) -> bool:
        return self.free == [(0, self.size)]


@dataclass(eq=False)
class _Pool:
    """Blocks of one memory type for one use. Images and buffers get blocks of their own, so that
    bufferImageGranularity never matters."""

    blocks: list[_Block] = field(default_factory=list)


@dataclass(frozen=True)
class Allocation:
    """A range of device memory."""

    memory: CData
    offset: int
    size: int


class Memory:
    """The allocator of one device."""

    def __init__(self, ctx: Context, budget: int | None = None) -> None:
        self._ctx = ctx
        self.budget = budget
        """Bytes that may be taken from the driver in all; None: as much as there is."""
        self._pools: dict[tuple[int, str], _Pool] = {}
        properties = ctx.api.ffi.new("VkPhysicalDeviceMemoryProperties *")
        ctx.api.lib.vkGetPhysicalDeviceMemoryProperties(ctx.physical, properties)
        self._types = [
            (properties.memoryTypes[i].propertyFlags, properties.memoryTypes[i].heapIndex)
            for i in range(properties.memoryTypeCount)
        ]
        self._heap_sizes = [
            properties.memoryHeaps[i].size for i in range(properties.memoryHeapCount)
        ]
        self._held = [0] * len(self._heap_sizes)
        self._staging = 0  # bytes of host buffers through which data moves: not of the budget
        # Made before all owners of images and buffers, so it is destroyed after them.
        Owned(ctx).defer(self.trim)

    def flags(self, type_index: int) -> int:
        """VkMemoryPropertyFlags of a memory type."""
        return int(self._types[type_index][0])

    def find_type(self, bits: int, must: int, like: int, what: str) -> int:
        """The memory type allowed by ``bits`` that has all flags ``must`` and most flags of
        ``like``."""
        fitting = [
            i for i, (flags, _) in enumerate(self._types) if bits >> i & 1 and flags & must == must
        ]
        if not fitting:
            raise DeviceError(
                f"{self._ctx.info.name} has no memory type with flags {must:#x} for {what}"
            )
        return max(fitting, key=lambda i: ((self.flags(i) & like).bit_count(), -i))

    def allocate(
        self, owned: Owned, requirements: CData, use: str, what: str, like: int
    ) -> Allocation:
        """Takes memory for one object; it is given back when ``owned`` is destroyed.

        ``requirements``: pointer to VkMemoryRequirements. ``use``: image or buffer. Raises
        OutOfMemoryError naming ``what`` before anything is drawn.
        """
        index = self.find_type(requirements.memoryTypeBits, 0, like, what)
        size, align = int(requirements.size), int(requirements.alignment)
        pool = self._pools.setdefault((index, use), _Pool())
        for block in pool.blocks:
            offset = block.take(size, align)
            if offset is not None:
                break
        else:
            block = self._new_block(index, size, what)
            pool.blocks.append(block)
            offset = block.take(size, align)
            assert offset is not None
        taken, at = block, offset
        owned.defer(lambda: self._give(index, pool, taken, at, size))
        return Allocation(block.memory, offset, size)

    def _give(self, index: int, pool: _Pool, block: _Block, offset: int, size: int) -> None:
        block.give(offset, size)
        # One empty block of usual size stays: rebuilds of a plan would allocate it again at once.
        spare = any(b.empty for b in pool.blocks if b is not block)
        if block.empty and (spare or block.size > _BLOCK):
            pool.blocks.remove(block)
            self.free_block(index, block)

    def _new_block(self, index: int, size: int, what: str) -> _Block:
        heap = self._types[index][1]
        total = self._heap_sizes[heap]
        # Small heaps (the 256 MB window of a GPU) are not eaten up by one block.
        usual = min(_BLOCK, max(total // 16, 1 << 20), total - self._held[heap])
        if self.budget is not None:
            usual = min(usual, max(self.budget // 16, 1 << 16), self.budget - self.taken())
        return self.raw_block(index, max(size, usual), what)

    def raw_block(
        self, index: int, size: int, what: str, staging: bool = False, chain: CData = None
    ) -> _Block:
        """A VkDeviceMemory of its own; raises OutOfMemoryError when the heap, or the budget, has no
        room for it. staging: the budget does not count it. chain: pNext of its allocation."""
        ctx, arena = self._ctx, Arena(self._ctx.api)
        heap = self._types[index][1]
        total = self._heap_sizes[heap]
        if size > self.left(heap):
            self.trim()
        if self.budget is not None and not staging and size > self.budget - self.taken():
            raise over_budget(what, size, self.budget, self.taken() - self.unused())
        left = total - self._held[heap]
        if size > left:
            raise self._no_room(what, size, total, self._held[heap])
        info = arena.struct(
            "VkMemoryAllocateInfo",
            pNext=ctx.api.null if chain is None else chain,
            allocationSize=size,
            memoryTypeIndex=index,
        )
        out = ctx.api.ffi.new("VkDeviceMemory *")
        result = ctx.api.lib.vkAllocateMemory(ctx.device, info, ctx.api.null, out)
        ctx.check(result, "vkAllocateMemory", f"{what} ({size} bytes)", size, left)
        self._held[heap] += size
        self._staging += size if staging else 0
        ctx.counts["VkDeviceMemory"] += 1
        return _Block(out[0], size, [(0, size)])

    def free_block(self, index: int, block: _Block, staging: bool = False) -> None:
        """Gives a VkDeviceMemory of ``raw_block`` back to the driver."""
        ctx = self._ctx
        self._staging -= block.size if staging else 0
        ctx.api.lib.vkFreeMemory(ctx.device, block.memory, ctx.api.null)
        self._held[self._types[index][1]] -= block.size
        ctx.counts["VkDeviceMemory"] -= 1

    def trim(self) -> None:
        """Frees all blocks that hold nothing."""
        for (index, _), pool in self._pools.items():
            for block in [b for b in pool.blocks if b.empty]:
                pool.blocks.remove(block)
                self.free_block(index, block)

    def left(self, heap: int) -> int:
        """Bytes that may still be taken from a heap."""
        free = self._heap_sizes[heap] - self._held[heap]
        return free if self.budget is None else min(free, self.budget - self.taken())

    def unused(self) -> int:
        """Bytes of the holes in what is held."""
        pools = self._pools.values()
        return sum(size for pool in pools for b in pool.blocks for _, size in b.free)

    def check_room(self, needed: int, what: str) -> None:
        """Raises OutOfMemoryError when ``needed`` bytes more break the budget, or are more than
        there is; before anything is made."""
        used = self.taken() - self.unused()
        if self.budget is not None and needed > self.budget - used:
            raise over_budget(what, needed, self.budget, used)
        total = max(self._heap_sizes)
        if needed > total - self.held() + self.unused():
            raise self._no_room(what, needed, total, self.held() - self.unused())

    def _no_room(self, what: str, needed: int, total: int, used: int) -> OutOfMemoryError:
        return OutOfMemoryError(
            f"{what} does not fit into the memory of {self._ctx.info.name}\n"
            f"  needs {needed} bytes, {total - used} of {total} are left "
            f"({used} held by this device)\n"
            "  hint: smaller images, fewer layers, or close what is not needed any more",
            needed=needed,
            available=total - used,
        )

    def taken(self) -> int:
        """Bytes held that count against the budget: all but staging buffers."""
        return sum(self._held) - self._staging

    def held(self) -> int:
        """Bytes of device memory that this device holds now."""
        return sum(self._held)


def over_budget(what: str, needed: int, budget: int, used: int) -> OutOfMemoryError:
    """The error of something that does not fit into the budget of a device."""
    left = max(budget - used, 0)
    return OutOfMemoryError(
        f"{what} does not fit into memory_limit\n"
        f"  needs {needed} bytes, {left} of {budget} are left ({used} in use)\n"
        "  hint: raise memory_limit, or use smaller images, fewer layers or fewer peels",
        needed=needed,
        available=left,
    )


@dataclass(frozen=True)
class Buffer:
    """A VkBuffer with memory. ``pointer``: host address, for buffers that are mapped."""

    handle: CData
    size: int
    pointer: CData = None
    memory: CData = None
    coherent: bool = True


def create_buffer(ctx: Context, memory: Memory, owned: Owned, size: int, what: str) -> Buffer:
    """A storage buffer in device memory; can be filled, copied from and to."""
    c = ctx.api.c
    usage = (
        c.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
        | c.VK_BUFFER_USAGE_TRANSFER_SRC_BIT
        | c.VK_BUFFER_USAGE_TRANSFER_DST_BIT
    )
    like = c.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
    handle, requirements = make_buffer(ctx, owned, size, usage, what)
    where = memory.allocate(owned, requirements, "buffer", what, like)
    bind(ctx, handle, where.memory, where.offset, what)
    return Buffer(handle, size)


def create_host_buffer(
    ctx: Context, memory: Memory, owned: Owned, size: int, use: str, what: str
) -> Buffer:
    """A mapped buffer. ``use``: upload, readback or uniform.

    Each has a VkDeviceMemory of its own, so that mapping and invalidating concern nothing else.
    """
    c = ctx.api.c
    visible, coherent = (
        c.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT,
        c.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
    )
    usage, must, like = {
        "upload": (c.VK_BUFFER_USAGE_TRANSFER_SRC_BIT, visible | coherent, 0),
        # Reading write-combined memory runs at 0.1 GB/s: cached memory first, coherent or not.
        "readback": (
            c.VK_BUFFER_USAGE_TRANSFER_DST_BIT,
            visible,
            c.VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
        ),
        "uniform": (
            c.VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT,
            visible | coherent,
            c.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
        ),
    }[use]
    handle, requirements = make_buffer(ctx, owned, size, usage, what)
    index = memory.find_type(requirements.memoryTypeBits, must, like, what)
    staging = use != "uniform"
    block = memory.raw_block(index, int(requirements.size), what, staging)
    owned.defer(lambda: memory.free_block(index, block, staging))
    bind(ctx, handle, block.memory, 0, what)
    out = ctx.api.ffi.new("void **")
    result = ctx.api.lib.vkMapMemory(ctx.device, block.memory, 0, WHOLE_SIZE, 0, out)
    ctx.check(result, "vkMapMemory", what)
    is_coherent = bool(memory.flags(index) & coherent)
    return Buffer(handle, size, out[0], block.memory, is_coherent)


def make_buffer(
    ctx: Context, owned: Owned, size: int, usage: int, what: str, chain: CData = None
) -> tuple[CData, CData]:
    """A VkBuffer without memory, and its VkMemoryRequirements. chain: pNext of its creation."""
    chain = ctx.api.null if chain is None else chain
    info = Arena(ctx.api).struct("VkBufferCreateInfo", pNext=chain, size=size, usage=usage)
    handle = owned.create("Buffer", info, what)
    requirements = ctx.api.ffi.new("VkMemoryRequirements *")
    ctx.api.lib.vkGetBufferMemoryRequirements(ctx.device, handle, requirements)
    return handle, requirements


def bind(ctx: Context, handle: CData, memory: CData, offset: int, what: str) -> None:
    """Gives a VkBuffer its memory."""
    result = ctx.api.lib.vkBindBufferMemory(ctx.device, handle, memory, offset)
    ctx.check(result, "vkBindBufferMemory", what)


def invalidate(ctx: Context, buffer: Buffer, what: str) -> None:
    """Makes what the device wrote visible to the host, where the memory is not coherent."""
    if not buffer.coherent:
        span = Arena(ctx.api).struct("VkMappedMemoryRange", memory=buffer.memory, size=WHOLE_SIZE)
        result = ctx.api.lib.vkInvalidateMappedMemoryRanges(ctx.device, 1, span)
        ctx.check(result, "vkInvalidateMappedMemoryRanges", what)


class Staging:
    """The two host buffers through which pixels move; they grow to what is asked, up to
    ``CHUNK``."""

    CHUNK = 64 << 20
    """Bytes moved at a time; larger images move in several rows-only pieces."""

    def __init__(self, ctx: Context, memory: Memory) -> None:
        self._ctx = ctx
        self._memory = memory
        self._buffers: dict[str, tuple[Owned, Buffer]] = {}

    def get(self, use: str, size: int) -> Buffer:
        """The upload or readback buffer, of at least ``size`` bytes."""
        have = self._buffers.get(use)
        if have and have[1].size >= size:
            return have[1]
        if have:
            self._buffers.pop(use)[0].destroy()
        owned = Owned(self._ctx)
        try:
            buffer = create_host_buffer(
                self._ctx, self._memory, owned, max(size, 1 << 16), use, f"{use} staging buffer"
            )
        except BaseException:
            owned.destroy()
            raise
        self._buffers[use] = (owned, buffer)
        return buffer

    def invalidate(self, buffer: Buffer) -> None:
        """``invalidate`` for a buffer of its own."""
        invalidate(self._ctx, buffer, "readback staging buffer")
