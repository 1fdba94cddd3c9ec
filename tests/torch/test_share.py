"""Tensors of a card and images of Vulkan in the same memory: dressi.torch.share, dressi.torch.cuda.

No CUDA here: ``fake_cuda`` imports what Vulkan exports, on lavapipe, whose memory the host sees."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dressi import FLOAT, INT, IVEC3, MAT4, VEC3, DressiAD, F, Variable  # noqa: E402
from dressi.errors import DeviceError, GraphError  # noqa: E402
from dressi.render.raster import build_hardsoftras  # noqa: E402
from dressi.render.scene import icosphere  # noqa: E402
from dressi.testing.problems import view_matrices  # noqa: E402
from dressi.torch import cuda, share  # noqa: E402
from dressi.torch import function as torch_function  # noqa: E402
from dressi.torch.function import Compiled, apply  # noqa: E402
from dressi.vk.external import Timeline  # noqa: E402
from tests.torch.fake_cuda import CARD, FakeDriver, FakeStream, shared_engine  # noqa: E402


@pytest.mark.parametrize(
    ("kind", "size", "offsets"),
    [
        (cuda.MemoryHandleDesc, 104, {"type": 0, "handle": 8, "size": 24, "flags": 32}),
        (cuda.MemoryBufferDesc, 88, {"offset": 0, "size": 8, "flags": 16}),
        (cuda.SemaphoreHandleDesc, 96, {"type": 0, "handle": 8, "flags": 24}),
        (cuda.SemaphoreParams, 144, {"value": 0, "flags": 72}),
    ],
)
def test_structures_lie_as_in_cuda_h(kind: Any, size: int, offsets: dict[str, int]) -> None:
    assert ctypes.sizeof(kind) == size
    assert {name: getattr(kind, name).offset for name in offsets} == offsets


def test_the_driver_is_asked_in_order_with_the_context_current() -> None:
    driver = FakeDriver()
    card = cuda.Cuda(3, driver)
    fd = os.open(os.devnull, os.O_RDONLY)
    handle, address = card.import_memory(fd, 1000, 65536)
    card.between(5, 41, 42, 9, lambda: driver.calls.append(("submit",)))
    card.release_memory(handle, address)
    assert driver.depth == 0 and driver.named("cuDeviceGet")[0][1] == 3
    ((_, desc),) = driver.named("cuImportExternalMemory")
    assert desc[:4] == b"\x01\0\0\0" and int.from_bytes(desc[8:12], "little") == fd
    assert int.from_bytes(desc[24:32], "little") == 65536 and not any(desc[32:])
    ((_, _, buffer),) = driver.named("cuExternalMemoryGetMappedBuffer")
    assert int.from_bytes(buffer[8:16], "little") == 1000 and not any(buffer[16:])
    for name, value in (("Signal", 41), ("Wait", 42)):
        ((semaphore, params, n, stream),) = driver.named(f"cu{name}ExternalSemaphoresAsync")
        assert (semaphore, n, stream) == (5, 1, 9)
        assert int.from_bytes(params[:8], "little") == value and not any(params[8:])
    order = [c[0] for c in driver.calls if "Async" in c[0] or c[0] == "submit"]
    assert [name[:6] for name in order] == ["cuSign", "submit", "cuWait"]
    assert driver.named("cuMemFree_v2") == [(address,)]
    assert driver.named("cuDestroyExternalMemory") == [(handle,)]


@pytest.mark.parametrize(("current", "n_pushed"), [(None, 1), (34, 1), (33, 0)])
def test_a_submit_that_waits_for_nothing_signals_nothing(
    current: int | None, n_pushed: int
) -> None:
    """And the context is made current only where it is not."""
    driver = FakeDriver()
    card = cuda.Cuda(0, driver)
    driver.current = current
    depth: list[int] = []
    card.between(5, None, 42, 9, lambda: depth.append(driver.depth))
    assert depth == [n_pushed] and driver.depth == 0
    assert len(driver.named("cuCtxPushCurrent_v2")) == n_pushed
    assert not driver.named("cuSignalExternalSemaphoresAsync")
    ((_, params, _, _),) = driver.named("cuWaitExternalSemaphoresAsync")
    assert int.from_bytes(params[:8], "little") == 42


def test_a_descriptor_that_is_refused_is_closed_and_the_function_named() -> None:
    driver = FakeDriver()
    driver.fail = "cuImportExternalMemory"
    fd = os.open(os.devnull, os.O_RDONLY)
    with pytest.raises(DeviceError, match=r"cuImportExternalMemory failed: CUDA_ERROR_FAKE \(101"):
        cuda.Cuda(0, driver).import_memory(fd, 16, 16)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    assert driver.depth == 0


def test_why_nothing_is_shared_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DressiAD() as ad, caplog.at_level(logging.WARNING, "dressi"):
        device = torch.device("meta")
        assert share.share_of(ad, device) is None and share.share_of(ad, device) is None
        assert caplog.messages == [
            "dressi.torch: tensors on meta are copied through the host: they are not CUDA's"
        ]
        monkeypatch.setenv("DRESSI_SHARE", "0")
        assert share._opened(ad, torch.device("cuda:0")) == "DRESSI_SHARE is 0"
        assert share.share_of(ad, torch.device("cpu")) is None


def test_another_card_and_missing_extensions_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    card = SimpleNamespace(uuid="GPU-00000000-0000-0000-0000-00000000ABCD")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    with DressiAD() as ad:
        own, device = ad.runtime.device, torch.device("cuda:0")
        why = share._opened(ad, device)
        assert why.startswith(f"Dressi runs on {own.info.name}") and "00000000abcd" in why
        card.uuid = own.info.uuid
        monkeypatch.setattr(own.context, "sharing", frozenset({"VK_KHR_timeline_semaphore"}))
        assert share._opened(ad, device) == (
            f"{own.info.name} does not offer VK_KHR_external_memory_fd"
        )


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[DressiAD, FakeDriver]]:
    """An engine that shares memory with tensors of the CPU."""
    with shared_engine(monkeypatch, share) as (ad, driver, found):
        monkeypatch.setattr(torch_function, "share_of", lambda *_: found)
        yield ad, driver
    assert driver.named("cuDestroyExternalSemaphore") == [(5,)]
    made, freed = (len(driver.named(f"cu{n}ExternalMemory")) for n in ("Import", "Destroy"))
    assert made == freed and driver.depth == 0


def _silhouette(ad: DressiAD, device: torch.device | None) -> tuple[Compiled, list[torch.Tensor]]:
    mesh = icosphere(1)
    pos = Variable(VEC3, (len(mesh.positions), 1), name="pos")
    faces = Variable(IVEC3, (len(mesh.faces), 1), name="faces")
    matrix = Variable(MAT4, layers=2, name="matrix")
    made = build_hardsoftras(pos, faces, matrix, (16, 12), r=0.1)
    values = [
        torch.tensor(mesh.positions, dtype=torch.float32).reshape(1, 1, -1, 3),
        torch.tensor(mesh.faces, dtype=torch.int32).reshape(1, 1, -1, 3),
        torch.tensor(view_matrices(2), dtype=torch.float32).reshape(2, 1, 1, 4, 4),
    ]
    outputs = [made.silhouette, F.mean(made.silhouette)]
    return Compiled([pos, faces, matrix], outputs, ad, device), values


def _fit(compiled: Compiled, values: list[torch.Tensor], n: int) -> list[torch.Tensor]:
    """Pictures, means and gradients of some steps of a fit of vertices and cameras."""
    pos, matrix = (values[k].clone().requires_grad_() for k in (0, 2))
    found = []
    for _ in range(n):
        picture, mean = apply(compiled, pos, values[1], matrix)
        (picture.square().mean() + 0.5 * mean.sum()).backward()
        found += [picture.detach(), mean.detach(), pos.grad, matrix.grad]
        with torch.no_grad():
            pos -= 0.05 * pos.grad / pos.grad.abs().max()
            matrix -= 0.01 * matrix.grad / matrix.grad.abs().max()
        pos.grad = matrix.grad = None
    return found


def test_a_fit_through_shared_memory_is_that_through_the_host(
    shared: tuple[DressiAD, FakeDriver],
) -> None:
    ad, driver = shared
    compiled, values = _silhouette(ad, CARD)
    assert compiled.share is not None
    got = _fit(compiled, values, 3)
    with DressiAD() as other:
        plain, _ = _silhouette(other, None)
        want = _fit(plain, values, 3)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)  # sums in another order
    # One submit a pass, ordered by numbers that only grow.
    numbers = [
        int.from_bytes(c[2][:8], "little")
        for c in driver.calls
        if c[0].endswith("ExternalSemaphoresAsync")
    ]
    assert numbers == list(range(1, 13))


def test_where_there_is_no_semaphore_the_host_waits(
    shared: tuple[DressiAD, FakeDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    ad, driver = shared
    waited: list[bool] = []
    monkeypatch.setattr(FakeStream, "synchronize", lambda _: waited.append(True))
    waiting = share.TorchShare(ad.runtime.device, CARD, cuda.Cuda(0, driver), semaphore=False)
    monkeypatch.setattr(torch_function, "share_of", lambda *_: waiting)
    compiled, values = _silhouette(ad, CARD)
    got = _fit(compiled, values, 2)
    with DressiAD() as other:
        plain, _ = _silhouette(other, None)
        want = _fit(plain, values, 2)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)  # sums in another order
    assert len(waited) >= 4 and not driver.named("cuSignalExternalSemaphoresAsync")


def test_what_did_not_change_is_not_sent_again(shared: tuple[DressiAD, FakeDriver]) -> None:
    ad, _ = shared
    compiled, values = _silhouette(ad, CARD)
    first = apply(compiled, *values)[0]
    sent: list[str] = []
    store = ad.runtime.store
    send, give = store.send, store.share
    store.send = lambda v, *a, **k: (sent.append(v.name), send(v, *a, **k))[1]  # type: ignore[method-assign]
    store.share = lambda v, *a: (sent.append(v.name), give(v, *a))[1]  # type: ignore[method-assign]
    values[1].add_(0)  # another version, the same numbers
    assert torch.equal(apply(compiled, *values)[0], first)
    assert "faces" not in sent
    values[1].copy_(values[1].flip(2))
    flipped = apply(compiled, *values)[0]
    assert "faces" in sent
    assert not torch.equal(flipped, first) or flipped.abs().max() > 0


def test_a_constant_is_sent_again_after_another_tensor_took_its_place(
    shared: tuple[DressiAD, FakeDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target is drawn without a gradient between steps that draw what is fitted."""
    monkeypatch.setattr(share, "counts_writes", lambda _: True)  # as those of CUDA are
    ad, _ = shared
    x = Variable(FLOAT, (5, 3), name="x")
    compiled = Compiled([x], [x * x], ad, CARD)
    wanted = torch.full((1, 3, 5, 1), 3.0)
    fitted = torch.full((1, 3, 5, 1), 2.0, requires_grad=True)
    for _ in range(3):
        for value, square in ((wanted, 9.0), (wanted, 9.0), (fitted, 4.0)):
            assert bool((apply(compiled, value)[0] == square).all())


def test_the_host_goes_on_while_the_card_works(
    shared: tuple[DressiAD, FakeDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits where what still runs is to run again, and before it writes host memory."""
    ad, driver = shared
    driver.stream = ThreadPoolExecutor(1)
    context, waited = ad.runtime.device.context, []
    x, rows = Variable(FLOAT, (64, 64), name="x"), Variable(INT, (64, 64), name="rows")
    y = x + F.to_float(rows)
    for _ in range(40):
        y = F.sin(y) + x
    first, second = (Compiled([x, rows], [out], ad, CARD) for out in (y, y * 2.0))
    value, whole = torch.full((1, 64, 64, 1), 0.5), torch.ones(1, 64, 64, 1, dtype=torch.int32)
    for compiled in (first, second):
        apply(compiled, value, whole)
    ad.runtime.enter()  # both are built and done
    monkeypatch.setattr(
        Timeline, "wait", lambda self, v=None: (waited.append(v), _wait(self, v))[1]
    )
    for _ in range(3):
        for compiled in (first, second):
            apply(compiled, value, whole)
    assert context._running and None not in waited  # never for all
    assert len([v for v in waited if v]) >= 4  # the plan of the turn before
    apply(second, value, whole * 2)  # integers go through host memory
    assert None in waited
    ad.runtime.enter()
    assert not context._running
    got = apply(second, value, whole * 2)[0]  # copied at once: the numbers of the run before
    ad.runtime.enter()
    with DressiAD() as other:
        plain = Compiled([x, rows], [y * 2.0], other)
        want = apply(plain, value, whole * 2)[0]
    torch.testing.assert_close(got, want)
    driver.stream.shutdown()


_wait = Timeline.wait


def test_leaves_that_follow_faces_are_found_from_vertices_on_the_card(
    shared: tuple[DressiAD, FakeDriver],
) -> None:
    """Neighbours of faces over welded vertices come from positions, which lie on the card alone."""
    ad, _ = shared
    compiled, values = _silhouette(ad, CARD)
    apply(compiled, *values)
    mesh = icosphere(1)
    doubled = torch.tensor(mesh.positions[mesh.faces].reshape(-1, 3), dtype=torch.float32)
    n = values[0].shape[2]
    moved = [doubled[:n].reshape(1, 1, n, 3), values[1] * 0, values[2]]
    rows = n // 3
    moved[1][0, 0, :rows] = torch.arange(3 * rows, dtype=torch.int32).reshape(rows, 3)
    got = apply(compiled, *moved)[0]
    with DressiAD() as other:
        plain, _ = _silhouette(other, None)
        want = apply(plain, *moved)[0]
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_a_closed_plan_lets_memory_go_and_is_built_again(
    shared: tuple[DressiAD, FakeDriver],
) -> None:
    ad, driver = shared
    x = Variable(FLOAT, (5, 3), name="x")
    compiled = Compiled([x], [x * x], ad, CARD)
    value = torch.arange(15, dtype=torch.float32).reshape(1, 3, 5, 1).requires_grad_()
    for _ in range(2):
        (y,) = apply(compiled, value)
        (gradient,) = torch.autograd.grad(y.sum(), value)
        assert torch.equal(gradient, 2 * value) and y.shape == (3, 5, 1)
        del y, gradient  # which hold memory
        held = len(driver.named("cuImportExternalMemory"))
        compiled.close()
        assert len(driver.named("cuDestroyExternalMemory")) > 0
    assert len(driver.named("cuImportExternalMemory")) > held - 1


def test_graphs_that_come_and_go_leave_no_memory(shared: tuple[DressiAD, FakeDriver]) -> None:
    ad, driver = shared
    held = []
    for _ in range(4):
        x = Variable(FLOAT, (5, 3), name="x")
        value = torch.ones(1, 3, 5, 1, requires_grad=True)
        apply(Compiled([x], [x * x], ad, CARD), value)[0].sum().backward()
        del x
        gc.collect()
        ad.runtime.enter()
        made, freed = (len(driver.named(f"cu{n}ExternalMemory")) for n in ("Import", "Destroy"))
        held.append((made - freed, ad.runtime.device.live_handles()["VkBuffer"]))
    assert held[1:] == [held[1]] * 3 and held[0][0] == held[1][0]


def test_tall_stacks_and_graphs_with_a_state_go_through_the_host(
    shared: tuple[DressiAD, FakeDriver],
) -> None:
    ad, _ = shared
    x = Variable(FLOAT, (4, 4), layers=ad.runtime.limits.image_dim // 2)
    assert Compiled([x], [x + 1.0], ad, CARD).share is None


def test_second_calls_before_a_backward_send_the_first_again(
    shared: tuple[DressiAD, FakeDriver],
) -> None:
    ad, _ = shared
    x = Variable(FLOAT, (5, 3), name="x")
    compiled = Compiled([x], [x * x], ad, CARD)
    a, b = (torch.full((1, 3, 5, 1), v, requires_grad=True) for v in (2.0, 3.0))
    (ya,), (yb,) = apply(compiled, a), apply(compiled, b)
    (ya.sum() + yb.sum()).backward()
    assert bool((a.grad == 4).all() and (b.grad == 6).all())
    (y,) = apply(compiled, a)
    (g,) = torch.autograd.grad(y.sum(), a, create_graph=True)
    with pytest.raises(GraphError, match="second derivatives"):
        g.sum().backward()
    assert np.isfinite(y.detach().numpy()).all()
