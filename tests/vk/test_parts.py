"""Parts that need no device: render pass shapes, memory blocks, structs, pipeline cache files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hand_plans import draw, frag, stage
from poison import POISON, Poisoned

from dressi.errors import DeviceError
from dressi.packing.plan import Binding
from dressi.vk import cache, open_device
from dressi.vk.api import Api, Arena, constant_case, load
from dressi.vk.memory import _Block
from dressi.vk.pass_shape import BUFFER, EXTERNAL, READ, WRITE, shape_of


def reads(*images: int) -> tuple[Binding, ...]:
    return tuple(Binding(i, "input", image, input_index=i) for i, image in enumerate(images))


CODE = frag("y = 1.0;")


def test_listed_handles_outlive_the_array_that_held_them() -> None:
    """What is freed is overwritten at once here: cffi's slices do not keep their array."""
    import cffi

    ffi = Poisoned(cffi.FFI())
    api = Api(SimpleNamespace(ffi=ffi, lib=None, VK_INCOMPLETE=5))

    def three_of_four(count: Any, array: Any) -> int:
        count[0] = 4 if array == ffi.NULL else 3  # one is unplugged between the calls
        for i in range(0 if array == ffi.NULL else 3):
            array[i] = 100 + i
        return 0

    assert api.enumerate(three_of_four, "uint64_t", read=int) == [100, 101, 102]
    assert api.enumerate(three_of_four, "uint64_t", read=lambda handle: handle) == [100, 101, 102]


def test_freed_memory_is_poisoned() -> None:
    """The test above can fail."""
    import cffi

    ffi = Poisoned(cffi.FFI())
    part = ffi.new("uint8_t[]", [1, 2, 3])[0:2]
    assert list(part) == [POISON, POISON]


def test_a_file_that_vanishes_while_the_cache_is_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process prunes too: no error, and nothing is left open (a ResourceWarning)."""
    for i in range(4):
        cache.write(tmp_path / f"{i}.spv", bytes(1000))
    real = os.scandir

    class Vanishing:
        def __init__(self, folder: Path) -> None:
            self._entries = real(folder)

        def __iter__(self) -> Iterator[os.DirEntry[str]]:
            for entry in self._entries:
                assert entry.is_file()
                os.unlink(entry.path)
                yield entry

        def __enter__(self) -> Vanishing:
            return self

        def __exit__(self, *_: object) -> None:
            self._entries.close()
            closed.append(True)

    closed: list[bool] = []
    monkeypatch.setattr(os, "scandir", Vanishing)
    cache.prune(tmp_path, 1500)
    assert closed == [True]


def test_input_of_an_earlier_output_makes_a_dependency() -> None:
    """a -> b; c uses neither."""
    shape = shape_of(stage(draw(CODE, (4,)), draw(CODE, (5,), reads(4)), draw(CODE, (6,))))
    inside = {(s, d): pairs for s, d, pairs in shape.dependencies if EXTERNAL not in (s, d)}
    assert inside == {(0, 1): frozenset({(WRITE, READ)})}
    assert shape.images == (4, 5, 6)
    assert shape.subpasses[1].inputs == (0,) and shape.subpasses[1].outputs == (1,)


def test_read_then_write_of_an_image_is_ordered_too() -> None:
    shape = shape_of(stage(draw(CODE, (1,), reads(0)), draw(CODE, (0,), reads(1))))
    inside = [d for d in shape.dependencies if EXTERNAL not in d[:2]]
    assert inside == [(0, 1, frozenset({(READ, WRITE), (WRITE, READ)}))]
    assert shape.load == ("dont_care", "load")


def test_shared_buffer_is_ordered() -> None:
    words = (Binding(0, "buffer", 0),)
    shape = shape_of(stage(draw(CODE, (), words), draw(CODE, (), words)))
    assert (0, 1, frozenset({(BUFFER, BUFFER)})) in shape.dependencies


def test_every_first_and_last_use_has_an_external_dependency() -> None:
    shape = shape_of(
        stage(draw(CODE, (0,)), draw(CODE, (1,), reads(0)), draw(CODE, (2,), reads(1)))
    )
    assert {d for s, d, _ in shape.dependencies if s == EXTERNAL} == {0, 1, 2}
    assert {s for s, d, _ in shape.dependencies if d == EXTERNAL} == {1, 2}


def test_attachment_is_preserved_between_and_after_its_uses() -> None:
    shape = shape_of(
        stage(draw(CODE, (0,)), draw(CODE, (1,)), draw(CODE, (2,), reads(0)), draw(CODE, (3,)))
    )
    assert [s.preserve for s in shape.subpasses] == [(), (0,), (1,), (0, 1, 2)]


def test_first_use_decides_the_load_operation() -> None:
    shape = shape_of(
        stage(draw(CODE, (0, 1), reads(2), clears=((1, 2, 3, 4), None)), draw(CODE, (3,), reads(0)))
    )
    assert dict(zip(shape.images, shape.load, strict=True)) == {
        0: "clear",
        1: "dont_care",
        2: "load",
        3: "dont_care",
    }


def test_depth_attachments_come_last_and_are_one_each() -> None:
    shape = shape_of(stage(draw(CODE, (0,), depth=True), draw(CODE, (1,)), draw(CODE, depth=True)))
    assert shape.n_depths == 2
    assert [s.depth for s in shape.subpasses] == [2, None, 3]


def test_unused_input_index_is_a_gap() -> None:
    bindings = (Binding(0, "input", 7, input_index=2),)
    assert shape_of(stage(draw(CODE, (0,), bindings))).subpasses[0].inputs == (None, None, 1)


def test_an_image_that_a_subpass_reads_and_writes_is_loaded() -> None:
    """An update in place: each pixel is read, then written."""
    shape = shape_of(stage(draw(CODE, (3,), reads(3), name="loop")))
    assert shape.load == ("load",)
    assert shape.subpasses[0].inputs == shape.subpasses[0].outputs == (0,)


def test_reading_and_clearing_in_one_subpass_is_refused() -> None:
    with pytest.raises(DeviceError, match="'loop' clears image 3, which it reads"):
        shape_of(stage(draw(CODE, (3,), reads(3), name="loop", clears=((0, 0, 0, 0),))))


def test_clearing_after_use_is_refused() -> None:
    with pytest.raises(DeviceError, match="'late' clears image 0"):
        shape_of(stage(draw(CODE, (0,)), draw(CODE, (0,), clears=((0, 0, 0, 0),), name="late")))


def test_block_takes_the_first_hole_and_merges_what_comes_back() -> None:
    block = _Block(None, 100, [(0, 100)])
    assert [block.take(10, 1), block.take(10, 16), block.take(30, 4)] == [0, 16, 28]
    assert block.take(50, 1) is None
    assert block.take(5, 1) == 10
    for offset, size in ((16, 10), (0, 10), (28, 30), (10, 5)):
        assert not block.empty
        block.give(offset, size)
    assert block.empty


def test_structure_names_become_constants() -> None:
    assert constant_case("VkImageViewCreateInfo") == "IMAGE_VIEW_CREATE_INFO"
    assert constant_case("VkPhysicalDeviceFeatures2") == "PHYSICAL_DEVICE_FEATURES_2"
    assert constant_case("VkPhysicalDeviceIDProperties") == "PHYSICAL_DEVICE_ID_PROPERTIES"
    assert constant_case("VkValidationFeaturesEXT") == "VALIDATION_FEATURES_EXT"


@pytest.mark.gpu
def test_arena_keeps_pointees_alive() -> None:
    """The collector runs at every allocation here; what nested pointers point at must stay."""
    api = load()
    arena = Arena(api)
    info = arena.struct(
        "VkInstanceCreateInfo",
        pApplicationInfo=arena.struct("VkApplicationInfo", pApplicationName=b"name" * 50),
        enabledLayerCount=20,
        ppEnabledLayerNames=arena.texts(f"layer {i}" for i in range(20)),
    )
    [bytearray(300) for _ in range(10_000)]
    assert api.ffi.string(info.pApplicationInfo.pApplicationName) == b"name" * 50
    assert api.ffi.string(info.ppEnabledLayerNames[19]) == b"layer 19"
    assert info.sType == api.c.VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO


@pytest.mark.gpu
def test_api_names_results_and_keeps_whole_size_positive() -> None:
    from dressi.vk.api import WHOLE_SIZE, result_name

    assert result_name(load(), -4) == "VK_ERROR_DEVICE_LOST"
    assert WHOLE_SIZE == 2**64 - 1


@pytest.mark.gpu
@pytest.mark.parametrize("content", [b"", b"garbage", bytes(32) + b"other device"])
def test_foreign_pipeline_cache_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setenv("DRESSI_CACHE", str(tmp_path))
    from hand_plans import plan

    fill = plan(stage(draw(CODE)))
    with open_device() as device:
        device.compile(fill)
        file = device._cache_file
    assert cache.read(file)
    cache.write(file, content)
    with open_device() as device:
        device.compile(fill).run()
    file.write_bytes(b"damaged")
    with open_device() as device:
        device.compile(fill).run()
    assert cache.read(file)
