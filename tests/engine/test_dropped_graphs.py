"""What the user drops is freed: device memory, handles and host memory do not grow with rounds."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

from dressi import SGD, Adam, DressiAD, F, Variable
from dressi.ad.vtype import FLOAT, INT, IVEC3, VEC2, VEC3, VEC4
from dressi.engine.evaluations import KEPT_ALWAYS, KEPT_BYTES
from dressi.errors import OutOfMemoryError
from dressi.render.raster import neighbor_table

pytestmark = pytest.mark.gpu


def level(ad: DressiAD) -> tuple[int, int, int, int]:
    """Bytes in use on the device, live Vulkan objects, bytes on the host, leaves that are known;
    after what was dropped is freed."""
    gc.collect()
    use = ad.memory()
    store = ad.runtime.store
    handles = sum(ad.device.live_handles().values())
    return use.used, handles, store.host_bytes(), len(store)


def images(ad: DressiAD, k: int) -> None:
    """The issue: two new images per round."""
    a, b = (F.leaf(np.full((64, 64, 3), v), VEC3) for v in (k, 2.0))
    ad.send_img(b, np.full((64, 64, 3), 3.0))
    assert np.unique(ad.recv_img(a * b)) == 3.0 * k


def uniforms(ad: DressiAD, k: int) -> None:
    x, y = Variable(FLOAT, name="x"), Variable(VEC2, (7, 1))
    ad.send_img(x, float(k))
    ad.send_img(y, np.ones((7, 2)))
    assert ad.recv_img(y * x)[0, 1] == k


def indices(ad: DressiAD, k: int) -> None:
    """A static index has leaves with its inverse, which follow it: a reference cycle."""
    table, index = Variable(FLOAT, (9, 1), requires_grad=True), Variable(INT, (5, 1))
    faces = F.leaf(np.array([[0, 1, 2], [2, 1, 3]]), IVEC3)
    ad.send_img(table, np.arange(9.0) + k)
    ad.send_img(index, [8, 0, 0, 3, 8])
    ad.set_loss_var(F.sum(F.lookup(table, index)) + F.to_float(F.sum(neighbor_table(faces).x)))
    assert ad.recv_grad(table).ravel().tolist() == [2, 0, 0, 1, 0, 0, 0, 0, 2]


def fits(ad: DressiAD, k: int) -> None:
    """Moments and counters read themselves: reference cycles too."""
    x = F.leaf(np.full((16, 16, 1), 1.0 + k), FLOAT)
    x.requires_grad = True
    ad.set_loss_var(F.mean(x * x))
    ad.set_optimizer(Adam(0.1))
    ad.exec_steps(9)
    ad.recv_img(x)


def sizes(ad: DressiAD, k: int) -> None:
    size = (5 + k % 3, 4 + k % 5)
    x = Variable(FLOAT, size, requires_grad=True)
    ad.send_img(x, np.ones((size[1], size[0], 1)))
    ad.set_loss_var(F.mean(F.exp(x)))
    ad.set_optimizer(Adam(0.1))
    ad.exec_step()


@pytest.mark.parametrize("work", [images, uniforms, indices, fits, sizes])
def test_rounds_leave_nothing(work) -> None:
    """Exactly: the same bytes and objects after 2 rounds and after 17 (sizes come again after
    15)."""
    anchor = Variable(FLOAT, (4, 4), requires_grad=True)
    found = []
    with DressiAD() as ad:
        ad.send_img(anchor, np.ones((4, 4, 1)))
        for n in (2, 15):
            for k in range(n):
                work(ad, k + 1 if n == 15 else k + 14)
            ad.set_loss_var(F.mean(anchor))
            ad.set_optimizer(None)
            ad.exec_step()
            found.append(level(ad))
        assert found[0] == found[1]
        assert np.unique(ad.recv_img(anchor)) == 1.0


def test_device_memory_goes_as_soon_as_the_last_name_does() -> None:
    """A leaf that stands in no graph needs no collection."""
    gc.disable()
    try:
        with DressiAD() as ad:
            before = ad.memory().used
            x = Variable(VEC3, (64, 64))
            ad.send_img(x, np.ones((64, 64, 3)))
            assert ad.memory().used == before + 16 * 64 * 64
            del x
            assert ad.memory().used == before
    finally:
        gc.enable()


def test_python_does_not_see_device_memory_so_builds_collect() -> None:
    """Without Python's own collections what is held stays bounded all the same."""
    gc.collect()
    gc.disable()
    try:
        with DressiAD() as ad:
            for k in range(40):
                big = F.leaf(np.full((256, 256, 1), float(k)), FLOAT)
                ad.recv_img(F.sum(big * big))
                assert ad.memory().used < 24 << 20, k
    finally:
        gc.enable()


def test_what_is_used_stays() -> None:
    """A leaf that only a loss, or only a Variable that was evaluated, still needs."""
    with DressiAD() as ad:
        x = Variable(FLOAT, (8, 8), requires_grad=True)
        ad.send_img(x, np.full((8, 8, 1), 2.0))
        ad.set_loss_var(F.mean(x * x))
        ad.set_optimizer(SGD(16.0))  # halves x
        picture = x * 3.0
        reference = weakref.ref(x)
        del x
        for _ in range(3):
            gc.collect()
            ad.exec_step()
        assert reference() is not None
        assert np.unique(ad.recv_img(picture)) == 0.75
        ad.set_optimizer(None)
        ad.set_loss_var(F.leaf([1.0], FLOAT))
        assert np.unique(ad.recv_img(picture)) == 0.75
        del picture
        gc.collect()  # the evaluation goes with the next call, and with it what it has read
        ad.memory()
        assert reference() is None


def test_two_engines_and_threads_drop_on_their_own() -> None:
    with DressiAD() as one, DressiAD() as two:
        x = Variable(FLOAT, (32, 32))
        for ad, value in ((one, 1.0), (two, 2.0)):
            ad.send_img(x, np.full((32, 32, 1), value))
        assert one.recv_img(x)[0, 0] == 1.0 and two.recv_img(x)[0, 0] == 2.0
        holder = [x]
        del x
        thread = threading.Thread(target=holder.clear)
        thread.start()
        thread.join()
        assert one.memory().images == two.memory().images == 0


def test_images_have_no_copy_on_the_host_and_tables_no_float64() -> None:
    with DressiAD() as ad:
        image, table, index = (
            Variable(VEC3, (16, 16)),
            Variable(VEC3, (9, 1)),
            Variable(INT, (4, 4)),
        )
        ad.send_img(image, np.ones((16, 16, 3)))
        ad.send_img(table, np.ones((9, 3)))
        ad.send_img(index, np.ones((4, 4, 1)))
        assert ad.runtime.store.host_bytes() == 4 * 9 * 3 + 4 * 4 * 4
        assert np.unique(ad.runtime.store.host(image)) == 1.0


def test_evaluations_are_bounded_by_bytes() -> None:
    """Not by number: 6 of 64 MB go beyond the bound, 70 small ones do not."""
    with DressiAD() as ad:
        x = Variable(FLOAT, (8, 8))
        ad.send_img(x, np.ones((8, 8)))
        small = [x * 2.0 + float(k) for k in range(70)]
        for k, y in enumerate(small):
            assert (ad.recv_img(y) == 2.0 + k).all()
        built = ad.n_rebuilds
        ad.recv_img(small[0])
        assert ad.n_rebuilds == built and len(ad.runtime.evaluations) == 70
        size = (2048, 2048)
        wide = [F.expand(F.sum(x) + float(k), size) for k in range(6)]
        wide = [F.vec4(y, y, y, y) for y in wide]  # 64 MB each
        for k, y in enumerate(wide):
            assert ad.recv_img(y)[-1, -1, 0] == 64.0 + k
            assert ad.runtime.evaluations.n_bytes() <= KEPT_BYTES + (65 << 20)
        assert KEPT_ALWAYS <= len(ad.runtime.evaluations) < 10


def test_evaluations_and_dropped_graphs_make_room() -> None:
    """Within a memory limit: what can go goes before an OutOfMemoryError."""
    with DressiAD(memory_limit=24 << 20) as ad:
        for k in range(12):
            x = F.leaf(np.full((512, 512, 4), float(k)), VEC4)
            y = x * 2.0
            assert np.unique(ad.recv_img(y)) == 2.0 * k
        with pytest.raises(OutOfMemoryError):
            ad.recv_img(F.leaf(np.zeros((2048, 1024, 4)), VEC4) * 2.0)
        assert np.unique(ad.recv_img(y)) == 22.0


CHANGING = """
import sys
import numpy as np
from dressi import DressiAD, F
from dressi.ad.vtype import VEC3
from dressi.testing.memory import resident_bytes

rng = np.random.default_rng(0)
marks = []
with DressiAD() as ad:
    for k in range(120):
        a, b = (F.leaf(rng.random((256, 256, 3)), VEC3) for _ in range(2))
        y = a * b
        for j in range(k % 3):
            y = F.sin(y * (1.0 + k)) + a
        ad.recv_img(y)
        if k in (29, 119):
            marks.append(resident_bytes())
print(marks[1] - marks[0])
"""


def test_120_changing_graphs_keep_the_resident_memory_level() -> None:
    """The issue: 7.5 MB per round, and there are 90 rounds between the two marks."""
    run = subprocess.run([sys.executable, "-c", CHANGING], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 16e6


def test_an_engine_that_is_dropped_frees_its_device_at_once() -> None:
    """Without the garbage collector: no reference cycle holds a device."""
    gc.collect()
    gc.disable()
    try:
        ad = DressiAD()
        x = F.leaf(np.ones((8, 8, 1)), FLOAT)
        x.requires_grad = True
        ad.set_loss_var(F.mean(x * x))
        ad.set_optimizer(Adam(0.1))
        for _ in range(10):  # the cache has built its halves too
            ad.exec_step()
        picture = x * 2.0
        ad.recv_img(picture)
        ad.recv_grad(x)
        context = ad.device.context
        del ad
        assert context.closed and not any(context.counts.values())
    finally:
        gc.enable()
