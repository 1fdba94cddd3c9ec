"""Transfers that are recorded once, and several recorded things in one submit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import faults
import numpy as np
import pytest
from hand_plans import draw, frag, image, plan, stage

from dressi.errors import DeviceError, DeviceLostError, OutOfMemoryError
from dressi.packing.plan import Binding, ImagePlan
from dressi.vk import Device, open_device
from dressi.vk import transfer as transfer_module
from dressi.vk.context import Owned
from dressi.vk.image import Image, create_images
from dressi.vk.transfer import READBACK, UPLOAD, Batch, Transfer, pieces

FORMATS = {"R32F": 1, "RG32F": 2, "RGBA32F": 4}
SIZES = [("R32F", 1, 1), ("RGBA32F", 5, 3), ("RG32F", 7, 2), ("R32F", 33, 9), ("RGBA32F", 16, 4)]


@pytest.mark.parametrize("most", [256, 300, 1000, 1 << 20])
def test_pieces_hold_every_row_once_and_do_not_overlap(most: int) -> None:
    images = [(4, 1), (80, 3), (56, 2), (132, 9), (256, 4)]
    found, sizes = pieces(images, most)
    rows = sorted((p.image, y) for p in found for y in range(p.y, p.y + p.rows))
    assert rows == [(k, y) for k, (_, height) in enumerate(images) for y in range(height)]
    taken = [np.zeros(size, int) for size in sizes]
    for p in found:
        assert p.offset % 16 == 0
        taken[p.buffer][p.offset : p.offset + p.rows * images[p.image][0]] += 1
    assert all(t.max() == 1 for t in taken)
    assert all(0 < size <= most for size in sizes)
    assert (len(sizes) == 1) == (sum(r * h for r, h in images) + 60 < most)


def test_a_row_that_is_larger_than_a_buffer_gets_one_of_its_own() -> None:
    found, sizes = pieces([(4, 1), (400, 2)], 100)
    assert sizes == [4, 400, 400]
    assert [(p.image, p.y, p.rows, p.buffer) for p in found] == [
        (0, 0, 1, 0),
        (1, 0, 1, 1),
        (1, 1, 1, 2),
    ]


@pytest.fixture
def owned(device: Device) -> Iterator[Owned]:
    made = Owned(device.context)
    yield made
    made.destroy()


def images_of(device: Device, owned: Owned, sizes: list[tuple[str, int, int]]) -> list[Image]:
    plans = [ImagePlan(k, f"image {k}", *size) for k, size in enumerate(sizes)]
    return create_images(device.context, device.memory, owned, plans)


def moved(device: Device, *transfers: Transfer) -> None:
    Batch(device, transfers).run()
    for transfer in transfers:
        transfer.fetch()


@pytest.mark.gpu
@pytest.mark.parametrize("most", [256, 1 << 20])
def test_what_goes_up_comes_back(
    device: Device, owned: Owned, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer_module, "MOST_BYTES", most)
    images = images_of(device, owned, SIZES)
    up = Transfer(device, UPLOAD, images, "up")
    down = Transfer(device, READBACK, images, "down")
    assert [len(w) for w in up.words] == [len(w) for w in down.words]
    assert (len(up.words) > 1) == (most == 256)
    rng = np.random.default_rng(1)
    for _ in range(3):  # recorded once, run again and again
        sent = [rng.normal(size=len(w)).astype(np.float32) for w in up.words]
        for words, values in zip(up.words, sent, strict=True):
            words[:] = values
        moved(device, up, down)
        found, _ = pieces([(i.row_bytes, i.height) for i in images], most)
        for p in found:
            n = p.rows * images[p.image].row_bytes // 4
            span = slice(p.offset // 4, p.offset // 4 + n)
            assert (down.words[p.buffer][span] == sent[p.buffer][span]).all()
    up.close()
    down.close()
    down.close()


@pytest.mark.gpu
def test_pixels_lie_as_uploads_and_downloads_of_images_have_them(device: Device) -> None:
    rng = np.random.default_rng(2)
    data = {1: rng.normal(size=(3, 5, 4)), 2: rng.normal(size=(9, 2, 4))}
    for k, a in data.items():
        device.upload(k, "RGBA32F", a.shape[1], a.shape[0], a.astype(np.float32))
    images = [device.store.get(k) for k in data]
    down = Transfer(device, READBACK, images, "down")
    up = Transfer(device, UPLOAD, images[::-1], "up")
    moved(device, down)
    flat = np.concatenate([a.astype(np.float32).ravel() for a in data.values()])
    assert (down.words[0] == flat).all()
    up.words[0][:] = np.concatenate([flat[60:], flat[:60]]) * 2
    moved(device, up)
    for k, a in data.items():
        got = np.frombuffer(device.download(k), np.float32)
        assert (got == 2 * a.astype(np.float32).ravel()).all()
        device.drop(k)
    up.close()
    down.close()


@pytest.mark.gpu
def test_memory_that_nothing_was_moved_to_is_zero(device: Device, owned: Owned) -> None:
    images = images_of(device, owned, [("R32F", 1, 1), ("R32F", 3, 1)])
    down = Transfer(device, READBACK, images, "down")
    assert len(down.words[0]) == 7 and (down.words[0] == 0).all()
    down.close()


@pytest.mark.gpu
def test_parts_of_a_batch_see_what_came_before(device: Device) -> None:
    """Up, y = 2 x, y = 2 x with x from y, down: one submit."""
    head = "layout(input_attachment_index = 0, binding = 0) uniform subpassInput x0;"
    double = draw(
        frag("y = 2.0 * subpassLoad(x0).x + 1.0;", head=head), (1,), (Binding(0, "input", 0),)
    )
    x, y = dataclasses.replace(image(0), key=5), dataclasses.replace(image(1), key=6)
    there = plan(stage(double), images=(x, y))
    back = plan(stage(double), images=(y, x))
    with device.compile(there) as a, device.compile(back) as b:
        up = Transfer(device, UPLOAD, a.images([0]), "up")
        down = Transfer(device, READBACK, b.images([1]), "down")
        batch = Batch(device, [up, a, b, down])
        for start in (3.0, -1.0, 0.5):
            up.words[0][:] = start
            batch.start()
            batch.finish()
            down.fetch()
            assert (down.words[0] == 4 * start + 3).all()
        a.close()
        with pytest.raises(DeviceError, match="is closed"):
            batch.start()
        alone = Batch(device, [down])
        alone.run()
    device.drop(5)
    device.drop(6)
    with pytest.raises(DeviceError, match="images that are gone"):
        alone.start()
    up.close()
    down.close()
    with pytest.raises(DeviceError, match="is closed"):
        alone.start()


@pytest.mark.gpu
def test_other_images_of_the_same_make_can_take_their_place(device: Device, owned: Owned) -> None:
    first, second = Owned(device.context), Owned(device.context)
    ones, others = images_of(device, first, SIZES), images_of(device, second, SIZES)
    up = Transfer(device, UPLOAD, others, "up")
    down = Transfer(device, READBACK, ones, "down")
    words = down.words[0]
    up.words[0][:] = 7.0
    moved(device, up, down)
    assert (words[: len(words) // 2] == 0).all()
    down.record(others)
    first.destroy()
    moved(device, up, down)
    assert down.words[0] is words and words[0] == 7.0 and words[-1] == 7.0
    with pytest.raises(DeviceError, match=r"is made for .*'R32F', 1, 1.* not for"):
        down.record(others[1:])
    with pytest.raises(DeviceError, match="is made for"):
        down.record(others[::-1])
    moved(device, up, down)  # what was recorded before still is
    second.destroy()
    with pytest.raises(DeviceError, match=r"images that are gone: \['image 0'"):
        moved(device, down)
    up.close()
    down.close()
    with pytest.raises(DeviceError, match="up is closed"):
        moved(device, up)


@pytest.mark.gpu
def test_what_makes_no_sense_is_refused(device: Device, owned: Owned) -> None:
    images = images_of(device, owned, SIZES[:1])
    with pytest.raises(DeviceError, match="not for 'both'"):
        Transfer(device, "both", images, "t")
    with pytest.raises(DeviceError, match="no images"):
        Transfer(device, UPLOAD, [], "t")
    with pytest.raises(DeviceError, match="batch of nothing"):
        Batch(device, [])


def live(device: Device) -> dict[str, int]:
    return {kind: n for kind, n in device.live_handles().items() if n}


@pytest.mark.gpu
def test_memory_of_the_host_is_not_of_the_limit_but_must_be_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open_device(memory_limit=1 << 20) as device:
        device.ensure(1, "RGBA32F", 128, 128)
        before = live(device)
        images = [device.store.get(1)] * 8  # 2 MB of the host, twice the limit
        transfer = Transfer(device, READBACK, images, "down")
        moved(device, transfer)
        transfer.close()
        assert live(device) == before
        held, heaps = device.memory.held(), len(device.memory._held)
        monkeypatch.setattr(device.memory, "_heap_sizes", [held + 1000] * heaps)
        monkeypatch.setattr(device.memory, "_held", [held] * heaps)
        with pytest.raises(OutOfMemoryError, match="down does not fit"):
            Transfer(device, READBACK, images, "down")
        assert live(device) == before


@pytest.mark.gpu
def test_memory_that_is_not_coherent_is_invalidated(
    device: Device, owned: Owned, monkeypatch: pytest.MonkeyPatch
) -> None:
    lib = faults.install(monkeypatch)
    down = Transfer(device, READBACK, images_of(device, owned, SIZES[:1]), "down")
    moved(device, down)
    n = lib.called.get("vkInvalidateMappedMemoryRanges", 0)
    down._buffers = [dataclasses.replace(b, coherent=False) for b in down._buffers]
    moved(device, down)
    assert lib.called["vkInvalidateMappedMemoryRanges"] == n + 1
    down.close()


@pytest.mark.gpu
@pytest.mark.parametrize("call", ["vkQueueSubmit", "vkGetFenceStatus", "vkWaitForFences"])
def test_a_device_that_is_lost_says_what_ran(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lib = faults.install(monkeypatch)
    with open_device() as device:
        device.ensure(1, "R32F", 4, 4)
        images = [device.store.get(1)]
        up = Transfer(device, UPLOAD, images, "the way up")
        down = Transfer(device, READBACK, images, "the way down")
        batch = Batch(device, [up, down])
        device.context.ask_first_s = 0.0 if call == "vkWaitForFences" else 60.0
        lib.fail[call] = -4
        with pytest.raises(DeviceLostError, match=f"{call} of the way up, the way down"):
            batch.run()
        lib.fail.clear()
        with pytest.raises(DeviceLostError):
            batch.start()


@pytest.mark.gpu
def test_a_closed_device_takes_its_transfers_along() -> None:
    device = open_device()
    device.ensure(1, "R32F", 4, 4)
    up = Transfer(device, UPLOAD, [device.store.get(1)], "up")
    device.close()
    assert not any(device.live_handles().values())
    with pytest.raises(DeviceError, match="is closed"):
        up.check()
    up.close()
