"""Many steps: n at once are n one by one, nothing is built again, nothing grows, Ctrl-C is safe."""

from __future__ import annotations

import gc
import math
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from dressi import SGD, Adam, DressiAD, F, Options, Variable, plan_text
from dressi.ad import exponential_decay, step_counter
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC3
from dressi.packing import Plan

pytestmark = pytest.mark.gpu
SIZE = (9, 7)
CHUNK = 32  # steps of one submit


def fit(ad: DressiAD, optimizer: Any) -> tuple[Variable, Variable, list[Variable]]:
    """|x * k - sin(target)|^2 with a count that shifts the target; x, loss, what to compare."""
    rng = np.random.default_rng(2)
    x = Variable(VEC3, SIZE, requires_grad=True, name="x")
    target = Variable(VEC3, SIZE, name="target")
    counter = step_counter("count")
    d = x - F.sin(target) * (1.0 + 0.01 * F.to_float(counter))
    loss = F.mean(F.dot(d, d))
    for v in (x, target):
        ad.send_img(v, rng.uniform(-1, 1, (SIZE[1], SIZE[0], 3)))
    ad.set_loss_var(loss)
    ad.set_optimizer(optimizer)
    return x, loss, [x, counter, loss]


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "SGD": lambda: SGD(0.1),
    "Adam": lambda: Adam(0.05),
    "Adam with a schedule": lambda: Adam(exponential_decay(0.1, 0.001, 40)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_n_steps_at_once_are_n_steps_one_by_one(name: str) -> None:
    """To the bit, across the size of a submit; the loss is that of the last step."""
    with DressiAD() as ad, DressiAD() as single:
        _, _, watched = fit(ad, OPTIMIZERS[name]())
        _, _, others = fit(single, OPTIMIZERS[name]())
        done = 0
        for n in (1, 31, 32, 33, 64, 65, 100, CHUNK * 2, 2):
            ad.exec_steps(n)
            for _ in range(n):
                single.exec_step()
            done += n
            for a, b in zip(watched, others, strict=True):
                assert (ad.recv_img(a) == single.recv_img(b)).all(), (n, a.label())
        assert ad.recv_img(watched[1]).item() == done
        assert [(r.step, r.kind) for r in ad.rebuilds] == [
            (r.step, r.kind) for r in single.rebuilds
        ]


class System:
    """Leaves whose next values are made of all old ones: themselves, swapped, shifted by a pixel,
    mixed; halves, so that float32 is exact. The loss is one of the mixes."""

    def __init__(self, seed: int, n: int = 4) -> None:
        rng = np.random.default_rng(seed)
        self.size = [(5, 4), (1, 1), (6, 1)][seed % 3]
        w, h = self.size
        self.leaves = [Variable(FLOAT, self.size, name=f"s{k}") for k in range(n)]
        self.start = [rng.integers(-8, 8, (1, h, w, 1)).astype(float) for _ in range(n)]
        self.clean = Variable(FLOAT, self.size, name="clean")
        self.clean_data = rng.integers(-8, 8, (1, h, w, 1)).astype(float)
        self.rules: list[tuple[str, int, int]] = []
        made: list[Variable] = []
        for _ in range(n):
            kind = str(rng.choice(["leaf", "mix", "shift", "clean", "same"]))
            i, j = (int(k) for k in rng.integers(0, n, 2))
            if kind == "same" and not self.rules:
                kind = "mix"
            self.rules.append(self.rules[-1] if kind == "same" else (kind, i, j))
            made.append(made[-1] if kind == "same" else self.graph(kind, i, j))
        for leaf, new in zip(self.leaves, made, strict=True):
            leaf.update = new
        # Reads all leaves, so that all of them are part of the step.
        self.loss = F.add_n([v * (k + 1.0) for k, v in enumerate(self.leaves)])

    def graph(self, kind: str, i: int, j: int) -> Variable:
        a, b = self.leaves[i], self.leaves[j]
        if kind == "leaf":
            return a
        if kind == "mix":
            return a * 0.5 + b * 0.5
        if kind == "shift":
            n = self.size[0] * self.size[1]
            at = F.pixel_coord(self.size)
            index = F.to_int(at.y) * self.size[0] + F.to_int(at.x)
            return F.lookup(a, F.where(index + 1 < n, index + 1, index * 0)) + b * 0.5
        return F.sin(F.sin(self.clean)) * 0.0 + self.clean * 0.5

    def after(self, n: int) -> list[np.ndarray]:
        """numpy: leaves, then the loss of the last step."""
        now, loss = self.start, self.start[0]
        for _ in range(n):
            loss = sum((v * (k + 1.0) for k, v in enumerate(now)), np.zeros_like(now[0]))
            new = []
            for kind, i, j in self.rules:
                shifted = np.roll(now[i].reshape(-1), -1).reshape(now[i].shape) + now[j] * 0.5
                new.append(
                    {
                        "leaf": now[i],
                        "mix": now[i] * 0.5 + now[j] * 0.5,
                        "shift": shifted,
                        "clean": self.clean_data * 0.5,
                    }[kind]
                )
            now = new
        return [*now, loss]


@pytest.mark.parametrize("seed", range(18))
def test_all_updates_read_the_old_values(seed: int) -> None:
    """Swaps, rings, one value for several leaves, new values beside old ones: as if all leaves were
    written at once, whatever is written in place. Before and after the cache acts."""
    system, done = System(seed), 0
    with DressiAD() as ad:
        ad.send_img(system.clean, system.clean_data)
        for v, a in zip(system.leaves, system.start, strict=True):
            ad.send_img(v, a)
        ad.set_loss_var(system.loss)
        for n in (1, 2, 7, 4):
            ad.exec_steps(n)
            done += n
            want = system.after(done)
            for v, a in zip((*system.leaves, system.loss), want, strict=True):
                got = ad.recv_img(v).reshape(a.shape)
                assert np.allclose(got, a, rtol=1e-6, atol=1e-6), (n, v.label(), system.rules)


def silhouette_fit(ad: DressiAD, n_views: int, **settings: Any) -> tuple[Variable, Variable]:
    """A cube seen from some sides; loss and vertices."""
    from dressi.render.fit import silhouette_loss
    from dressi.render.raster import build_hardsoftras
    from dressi.testing.scenes import camera, cube

    vertices, triangles = cube(0.7)
    size = (settings.pop("size", 32),) * 2
    angles = 0.4 + np.arange(n_views) * 2 * np.pi / n_views
    views = np.stack([camera(size, (4 * np.sin(a), 1.0, 4 * np.cos(a))) for a in angles])
    pos = Variable(VEC3, (len(vertices), 1), requires_grad=True, name="pos")
    faces = Variable(IVEC3, (len(triangles), 1), name="faces")
    matrix = Variable(MAT4, layers=n_views, name="matrix")
    target = Variable(FLOAT, size, n_views, name="target")
    hs = build_hardsoftras(pos, faces, matrix, size, settings.pop("r", 0.15), **settings)
    for v, a in ((pos, vertices), (faces, triangles), (matrix, views)):
        ad.send_img(v, a)
    y, x = (np.indices(size) + 0.5) / size[0] * 2 - 1
    disc = np.hypot(x, y) < 0.6
    ad.send_img(target, np.broadcast_to(disc[None, ..., None], (n_views, *size, 1)))
    loss = silhouette_loss(hs.silhouette, target)
    ad.set_loss_var(loss)
    return loss, pos


def test_radius_softness_and_rate_change_without_a_rebuild() -> None:
    """Sent in each of 20 steps: once the cache has settled, nothing is built."""
    r, sigma, lr = (Variable(FLOAT, name=name) for name in ("r", "sigma", "lr"))
    with DressiAD() as ad:

        def send(k: int) -> None:
            ad.send_img(r, 0.1 + 0.005 * k)
            ad.send_img(sigma, 0.02 + 0.001 * k)
            ad.send_img(lr, 0.01 / (1 + k))

        send(0)
        loss, pos = silhouette_fit(ad, 1, r=r, sigma=sigma, max_delta=0.3)
        ad.set_optimizer(Adam(lr))
        for k in range(12):
            send(k)
            ad.exec_step()
        built, rebuilds = ad.n_rebuilds, len(ad.rebuilds)
        before = ad.recv_img(pos)
        for k in range(20):
            send(k)
            ad.exec_step()
        assert ad.n_rebuilds == built and len(ad.rebuilds) == rebuilds
        assert (ad.recv_img(pos) != before).any() and math.isfinite(ad.recv_img(loss).item())


@pytest.mark.parametrize("lowering", ["graphics", "compute"])
def test_views_share_all_stages(lowering: str) -> None:
    """As many stages for 6 views as for 1, and no more substages; in dispatches two more, which
    gather view by view what faces have for the vertices. Of views so large that one group of a
    dispatch does not add up the loss of even one (``group_sum.ALONE``)."""
    plans: dict[int, Plan] = {}
    for n_views in (1, 2, 6):
        with DressiAD(options=Options(lowering=lowering)) as ad:
            silhouette_fit(ad, n_views, size=72)
            ad.set_optimizer(Adam(0.01))
            plans[n_views] = ad.plan
    texts = "\n\n".join(plan_text(p) for p in plans.values())
    n = {k: (len(p.stages), p.n_substages) for k, p in plans.items()}
    assert n[2][0] == n[1][0] and n[2][1] <= n[1][1], texts
    more = 2 if lowering == "compute" else 0
    assert n[6][0] <= n[2][0] + more and n[6][1] <= n[2][1] + more, texts


def rss() -> int:
    with open(f"/proc/{os.getpid()}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="RSS is read from /proc")
def test_ten_thousand_steps_grow_nothing() -> None:
    """Handles, device memory, memory of the process, Python objects, rebuilds. In single steps with
    a uniform sent before each, and in bursts."""
    lr = Variable(FLOAT, name="lr")
    with DressiAD() as ad:
        ad.send_img(lr, 0.01)
        _, loss, _ = fit(ad, Adam(lr))

        def work(n: int) -> None:
            for k in range(n):
                ad.send_img(lr, 0.01 + 1e-6 * k)
                ad.exec_step()
                if k % 100 == 0:
                    ad.recv_img(loss)

        work(1000)
        gc.collect()
        handles, held = ad.device.live_handles(), ad.memory().held
        memory, objects, built = rss(), len(gc.get_objects()), len(ad.rebuilds)
        work(4000)
        ad.exec_steps(5000)
        gc.collect()
        assert ad.device.live_handles() == handles and ad.memory().held == held
        assert rss() - memory < 5 << 20
        assert len(gc.get_objects()) - objects < 100
        # Bursts are steps with other flags: they may cost one pair of rebuilds.
        assert len(ad.rebuilds) - built <= 2
        assert math.isfinite(ad.recv_img(loss).item())


# -- Ctrl-C ----------------------------------------------------------------------------------------


@contextmanager
def interrupt_after(seconds: float) -> Iterator[None]:
    """KeyboardInterrupt in the main thread, as Ctrl-C raises it."""

    def ctrl_c(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ctrl_c)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


needs_signals = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="this system has no interval timers"
)
FOREVER = 2_000_000
"""Steps that take minutes."""


@pytest.mark.signals
@needs_signals
@pytest.mark.parametrize("options", [Options(), Options(cache=False)])
def test_after_ctrl_c_the_engine_goes_on(options: Options) -> None:
    with DressiAD(options=options) as ad:
        x, loss, _ = fit(ad, Adam(0.001))
        ad.exec_steps(20)
        before = ad.recv_img(x)
        with pytest.raises(KeyboardInterrupt), interrupt_after(0.2):
            ad.exec_steps(FOREVER)
        stopped = ad.recv_img(x)
        assert (stopped != before).any() and np.isfinite(stopped).all()
        ad.exec_step()
        assert (ad.recv_img(x) != stopped).any() and np.isfinite(ad.recv_img(loss)).all()
        ad.exec_steps(100)
        assert np.isfinite(ad.recv_img(x)).all()


@pytest.mark.signals
@needs_signals
def test_values_received_after_ctrl_c_are_of_the_current_data() -> None:
    """Some of the steps were done: what was evaluated before them is out of date."""
    with DressiAD() as ad:
        x, _, (_, counter, _) = fit(ad, Adam(0.01))
        double = x * 2.0
        ad.exec_steps(20)
        ad.recv_img(double)
        before = ad.recv_grad(x)
        with pytest.raises(KeyboardInterrupt), interrupt_after(0.2):
            ad.exec_steps(FOREVER)
        assert ad.recv_img(counter).item() > 20
        assert (ad.recv_img(double) == 2 * ad.recv_img(x)).all()
        assert (ad.recv_grad(x) != before).any()


@pytest.mark.signals
@needs_signals
def test_ctrl_c_between_a_send_and_its_static_half_loses_nothing() -> None:
    """A clean leaf is sent, the call is stopped at once: the next step must still see it."""
    rng = np.random.default_rng(1)
    x, clean = (Variable(FLOAT, (64, 64), requires_grad=g) for g in (True, False))
    y = clean
    for _ in range(3):
        y = F.sin(F.image.dilate(y, 1.0, 1))
    d = x - y
    with DressiAD() as ad, DressiAD(options=Options(cache=False)) as plain:
        for engine in (ad, plain):
            engine.send_img(x, np.zeros((64, 64)))
            engine.send_img(clean, np.ones((64, 64)))
            engine.set_loss_var(F.mean(d * d))
            engine.set_optimizer(lambda xs, gs: [xs[0] - gs[0] * 1e3])
            engine.exec_steps(12)
        for k in range(8):
            new = rng.uniform(0, 1, (64, 64))
            ad.send_img(clean, new)
            try:
                with interrupt_after(1e-4 * (k + 1)):
                    ad.exec_step()
            except KeyboardInterrupt:
                pass
            ad.send_img(x, np.zeros((64, 64)))
            plain.send_img(x, np.zeros((64, 64)))
            plain.send_img(clean, new)
            for engine in (ad, plain):
                engine.exec_step()
            assert np.allclose(ad.recv_img(x), plain.recv_img(x), rtol=1e-6), k


def test_options_may_change_in_the_middle_of_a_fit() -> None:
    """Adam's moments and its counter stay: the fit goes on as if nothing had happened."""
    results = []
    for change in (False, True):
        x = Variable(FLOAT, (8, 8), requires_grad=True, name="x")
        with DressiAD() as ad:
            ad.send_img(x, np.zeros((8, 8)))
            ad.set_loss_var(F.mean((x - 5.0) * (x - 5.0)))
            ad.set_optimizer(Adam(0.1))
            ad.exec_steps(10)
            if change:
                ad.options = Options.baseline()
            ad.exec_steps(10)
            results.append(ad.recv_img(x))
    assert np.allclose(results[0], results[1], rtol=1e-6)
