"""The reactive cache on the device: which stages ran, when a step was rebuilt, and that values
never depend on any of it.

Every graph is run by two engines, one with the cache and one without, which are told the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from dressi import SGD, Adam, DressiAD, F, Options, OutOfMemoryError, Variable
from dressi.ad import exponential_decay, step_counter
from dressi.ad.vtype import FLOAT, INT, IVEC3, MAT4, VEC2, VEC3
from dressi.engine.stepper import FAST_REBUILD_COUNT, FULL_REBUILD_COUNT
from dressi.packing import Plan
from dressi.render.raster.topology import neighbor_table

pytestmark = pytest.mark.gpu

SIZE = (16, 16)
NO_CACHE = Options(cache=False)
ROUNDING = 1e-5
"""Relative difference after tens of steps: other shaders round the last bit otherwise, and Adam
divides by gradients that nearly cancel. A stale value is off by 1e-2."""


def image(rng: np.random.Generator, n: int = 1, size: tuple[int, int] = SIZE) -> np.ndarray:
    return rng.uniform(0.1, 0.9, (size[1], size[0], n)).astype(np.float32)


def slow(y: Variable, n: int = 3) -> Variable:
    """Several passes that cannot become one: each reads neighbours."""
    for _ in range(n):
        y = F.sin(F.image.dilate(y, 1.0, 1)) * 1.1
    return y


def busy(y: Variable, n: int = 12) -> Variable:
    """Work on one pixel, which shares a shader with what comes behind it."""
    for k in range(n):
        y = F.tanh(y * 1.1 + 0.1 * k)
    return y


@dataclass
class Graph:
    """A loss, data of all leaves, the parameters, and what a user may send."""

    loss: Variable
    data: dict[Variable, np.ndarray]
    parameters: list[Variable]
    sent: list[Variable]
    """Leaves that tests send again, with ``draw``."""
    watched: list[Variable] = field(default_factory=list)
    """Intermediate values that tests receive."""
    optimizer: Callable[[], Any] | None = lambda: Adam(0.02)

    def draw(self, v: Variable, rng: np.random.Generator) -> np.ndarray:
        old = self.data[v]
        if v.vtype.is_int:
            return rng.permutation(old.reshape(-1)).reshape(old.shape)
        return (old * rng.uniform(0.9, 1.1, old.shape)).astype(np.float32)


def two_chains() -> Graph:
    """clean (16x16) -> slow, and busy ->\\
       other (24x24) -> slow -> mean -> loss = mean((x * u - y - z)^2)"""
    rng = np.random.default_rng(1)
    x = Variable(FLOAT, SIZE, requires_grad=True, name="x")
    clean, other = Variable(FLOAT, SIZE, name="clean"), Variable(FLOAT, (24, 24), name="other")
    u = Variable(FLOAT, name="u")
    y, z = slow(clean), F.mean(slow(other))
    d = x * u - y - z - busy(clean)
    data = {x: image(rng), clean: image(rng), other: image(rng, size=(24, 24))}
    data[u] = np.full((1, 1, 1), 1.0, np.float32)
    return Graph(F.mean(d * d), data, [x], [clean, other, u], [y, d])


def looked_up() -> Graph:
    """A table read by an index that may be sent; a smooth image on the clean side; scattered sums
    of clean values that the dirty part reads."""
    rng = np.random.default_rng(2)
    table = Variable(VEC3, (32, 1), requires_grad=True, name="table")
    index, places = Variable(INT, SIZE, name="index"), Variable(INT, SIZE, name="places")
    values, u = Variable(VEC3, SIZE, name="values"), Variable(FLOAT, name="u")
    sums = F.scatter_add(F.sin(values) * 0.1, F.dynamic(places), (8, 1))
    texels = F.lookup(sums, F.dynamic(places))
    d = F.lookup(table, index) * u - texels
    data: dict[Variable, np.ndarray] = {
        table: image(rng, 3, (32, 1)).reshape(32, 3),
        index: rng.integers(0, 32, (16, 16, 1)),
        places: rng.integers(0, 8, (16, 16, 1)),
        values: image(rng, 3),
        u: np.ones((1, 1, 1), np.float32),
    }
    loss = F.mean(F.dot(d, d))
    return Graph(loss, data, [table], [index, places, values, u], [texels])


def rendered() -> Graph:
    """HardSoftRas of a cube whose vertices stay and whose texture is optimized."""

    from dressi.render.raster import build_hardsoftras
    from dressi.render.shading import unlit
    from dressi.testing.scenes import camera, cube, rotated

    rng = np.random.default_rng(3)
    size = (24, 20)
    v, f = cube(0.8)
    pos = Variable(VEC3, (len(v), 1), name="pos")
    faces = Variable(IVEC3, (len(f), 1), name="faces")
    matrix, r = Variable(MAT4, name="matrix"), Variable(FLOAT, name="r")
    uv = Variable(VEC2, (len(v), 1), name="uv")
    albedo = Variable(VEC3, (8, 8), requires_grad=True, name="albedo")
    target = Variable(VEC3, size, name="target")
    hs = build_hardsoftras(pos, faces, matrix, size, r)
    picture = hs.blend([unlit(p, uv, faces, albedo) for p in hs.peels], 0.1)
    d = picture - target
    data: dict[Variable, np.ndarray] = {
        pos: rotated(v, 0.5, 0.6).astype(np.float32),
        faces: f,
        matrix: camera(size)[None].astype(np.float32),
        r: np.full((1, 1, 1), 0.1, np.float32),
        uv: (v[:, :2] * 0.3 + 0.5).astype(np.float32),
        albedo: image(rng, 3, (8, 8)),
        target: image(rng, 3, size),
    }
    loss = F.mean(F.dot(d, d))
    return Graph(loss, data, [albedo], [pos, r, target], [picture])


def noisy() -> Graph:
    """Random numbers and a schedule of the step count beside a clean chain."""
    rng = np.random.default_rng(4)
    x = Variable(FLOAT, SIZE, requires_grad=True, name="x")
    clean = Variable(FLOAT, SIZE, name="clean")
    draw = F.sobol(step_counter("draw"))
    d = x - slow(clean) * draw.x
    data = {x: image(rng), clean: image(rng)}
    optimizer = lambda: SGD(exponential_decay(0.5, 0.01, 20))  # noqa: E731
    return Graph(F.mean(d * d), data, [x], [clean], [draw], optimizer=optimizer)


def forward() -> Graph:
    """No optimizer: everything may be clean."""
    rng = np.random.default_rng(5)
    clean, u = Variable(FLOAT, SIZE, name="clean"), Variable(FLOAT, name="u")
    y = slow(clean)
    data = {clean: image(rng), u: np.ones((1, 1, 1), np.float32)}
    return Graph(F.mean(y * u), data, [], [clean, u], [y], optimizer=None)


GRAPHS = {g.__name__: g for g in (two_chains, looked_up, rendered, noisy, forward)}


def start(graph: Graph, options: Options | None = None, **more: Any) -> DressiAD:
    ad = DressiAD(options=options, **more)
    begin(ad, graph)
    return ad


def begin(ad: DressiAD, graph: Graph) -> None:
    for v, a in graph.data.items():
        ad.send_img(v, a)
    ad.set_loss_var(graph.loss)
    ad.set_optimizer(None if graph.optimizer is None else graph.optimizer())


@pytest.fixture
def chains() -> Iterator[tuple[Graph, DressiAD]]:
    """The graph of two chains, ready to step."""
    graph = two_chains()
    with start(graph) as ad:
        yield graph, ad


def send(ad: DressiAD, graph: Graph, name: str, factor: float = 1.0) -> None:
    v = next(v for v in graph.data if v.name == name)
    ad.send_img(v, graph.data[v] * factor)


def steps(ad: DressiAD, n: int, *sends: tuple[Graph, str]) -> list[tuple[str, ...]]:
    """n steps, with the same leaves sent before each; what each of them ran."""
    ran = []
    for k in range(n):
        for graph, name in sends:
            send(ad, graph, name, 1 + 0.01 * k)
        ad.exec_step()
        ran.append(ad.ran)
    return ran


def stage_names(ad: DressiAD, *halves: str) -> tuple[str, ...]:
    return tuple(f"{h} {s.name}" for h in halves for s in ad.plans[h].stages)


def kinds(ad: DressiAD) -> list[str]:
    return [r.kind for r in ad.rebuilds]


# -- which stages ran ------------------------------------------------------------------------------


def test_stages_step_by_step_as_a_uniform_is_sent(chains: tuple[Graph, DressiAD]) -> None:
    """Whole, then without the clean chains, then packed again, then steady for ever."""
    graph, ad = chains
    ran = steps(ad, 1)  # first flags: nothing was sent since the build
    whole = stage_names(ad, "step")
    assert set(ad.plans) == {"step"} and ran[0] == whole and len(whole) > 10
    ran = steps(ad, FAST_REBUILD_COUNT, (graph, "u"))
    assert ran == [whole] * FAST_REBUILD_COUNT and kinds(ad) == ["first"]
    ran = steps(ad, 1, (graph, "u"))
    both, step = stage_names(ad, "static", "step"), stage_names(ad, "step")
    assert kinds(ad) == ["first", "fast"] and ad.rebuilds[-1].step == 1 + FAST_REBUILD_COUNT
    assert ran == [both] and len(step) < len(whole) / 2
    ran = steps(ad, FULL_REBUILD_COUNT - FAST_REBUILD_COUNT - 1, (graph, "u"))
    assert set(ran) == {step} and len(kinds(ad)) == 2
    ran = steps(ad, 1, (graph, "u"))
    assert kinds(ad) == ["first", "fast", "full"]
    assert ad.rebuilds[-1].step == 1 + FULL_REBUILD_COUNT
    assert ran == [stage_names(ad, "static", "step")]
    step = stage_names(ad, "step")
    assert set(steps(ad, 20, (graph, "u"))) == {step} and len(kinds(ad)) == 3


def test_a_clean_leaf_sent_once_runs_the_static_half_once(chains: tuple[Graph, DressiAD]) -> None:
    graph, ad = chains
    steps(ad, 15, (graph, "u"))
    built, step = ad.n_rebuilds, stage_names(ad, "step")
    for name in ("clean", "other"):
        for factor in (1.1, 1.1, 1.0):  # the same value again counts as changed
            send(ad, graph, name, factor)
            assert steps(ad, 3, (graph, "u")) == [stage_names(ad, "static", "step"), step, step]
    send(ad, graph, "x")  # a parameter: nothing clean depends on it
    assert steps(ad, 2, (graph, "u")) == [step, step]
    assert ad.n_rebuilds == built and len(kinds(ad)) == 3


def test_many_steps_in_one_call_run_and_rebuild_as_single_ones() -> None:
    """exec_steps(30) as the very first call against 30 calls."""
    graph = two_chains()
    with start(graph) as ad, start(graph) as single:
        ad.exec_steps(30)
        one_by_one: list[str] = []
        for _ in range(30):
            single.exec_step()
            one_by_one += single.ran
        assert ad.ran == tuple(one_by_one)
        assert [(r.step, r.kind) for r in ad.rebuilds] == [
            (r.step, r.kind) for r in single.rebuilds
        ]
        assert [r.step for r in ad.rebuilds] == [0, FAST_REBUILD_COUNT, FULL_REBUILD_COUNT]
        (x,) = graph.parameters
        assert (ad.recv_img(x) == single.recv_img(x)).all()
        assert ad.recv_img(graph.loss) == single.recv_img(graph.loss)
        ad.exec_steps(5)
        assert ad.ran == stage_names(ad, "step") * 5


def test_leaf_sent_before_several_steps_counts_for_the_first_of_them(
    chains: tuple[Graph, DressiAD],
) -> None:
    graph, ad = chains
    ad.exec_steps(20)
    send(ad, graph, "clean", 1.1)
    ad.exec_steps(3)
    assert ad.ran == stage_names(ad, "static", "step") + stage_names(ad, "step") * 2


def test_forward_only_runs_nothing_until_something_is_sent() -> None:
    graph = forward()
    with start(graph) as ad:
        steps(ad, 12)
        assert steps(ad, 3) == [(), (), ()]
        value = ad.recv_img(graph.loss)
        ad.exec_steps(1000)
        assert ad.ran == () and ad.recv_img(graph.loss) == value
        send(ad, graph, "u", 2.0)
        ad.exec_step()
        assert ad.ran == stage_names(ad, "static", "step") and ad.ran
        assert np.isclose(ad.recv_img(graph.loss), 2 * value)
        assert steps(ad, 1) == [()]


def test_what_follows_the_step_count_is_run_in_each_step() -> None:
    """Random numbers are new in each step, clean chain or not."""
    graph = noisy()
    (draw,) = graph.watched
    with start(graph) as ad, start(graph, NO_CACHE) as plain:
        seen = []
        for _ in range(14):
            for engine in (ad, plain):
                engine.exec_step()
            seen.append(tuple(ad.recv_img(draw).ravel()))
            assert seen[-1] == tuple(plain.recv_img(draw).ravel())
        assert len(set(seen)) == 14 and "static" in ad.plans
        assert_same(ad, plain, graph)


def test_random_numbers_alone_are_never_clean() -> None:
    x = Variable(FLOAT, SIZE, requires_grad=True)
    noise = F.expand(F.sobol(step_counter()).x, SIZE)
    d = x - slow(noise, 2)
    with DressiAD() as ad:
        ad.send_img(x, np.zeros(SIZE))
        ad.set_loss_var(F.mean(d * d))
        ad.set_optimizer(SGD(0.1))
        whole = stage_names(ad, "step")
        assert set(steps(ad, 20)) == {whole} and kinds(ad) == ["first"]


# -- sources of dirtiness --------------------------------------------------------------------------


def test_index_that_is_sent_dirties_its_derived_tables() -> None:
    """table -> lookup(index) -> times clean values: the gradient is clean, and so is what the
    optimizer makes of it. It is gathered through an inverse of the index, which is not read."""
    rng = np.random.default_rng(8)
    table = Variable(FLOAT, (1024, 1), requires_grad=True, name="table")
    index, values = Variable(INT, SIZE, name="index"), Variable(FLOAT, SIZE, name="values")
    loss = F.mean(F.lookup(table, index) * slow(values, 1))
    data = {
        table: image(rng, 1, (1024, 1)).reshape(1024, 1),
        index: rng.integers(0, 1024, (16, 16, 1)),
        values: image(rng),
    }
    descent = lambda xs, gs: [xs[0] - busy(gs[0])]  # noqa: E731
    graph = Graph(loss, data, [table], [index, values], optimizer=lambda: descent)
    with start(graph) as ad, start(graph, NO_CACHE) as plain:
        for engine in (ad, plain):
            engine.exec_steps(15)
        assert len(ad.plans["step"].stages) < len(plain.plan.stages)
        for seed in range(3):
            new = graph.draw(index, np.random.default_rng(seed))
            for engine in (ad, plain):
                engine.send_img(index, new)
                engine.exec_steps(2)
            assert ad.ran[0].startswith("static")
            assert_same(ad, plain, graph)


def test_a_derived_table_follows_its_sources_whatever_is_sent_to_it() -> None:
    faces = Variable(IVEC3, (2, 1), name="faces")
    neighbors = neighbor_table(faces)
    across = F.to_float(neighbors.x) * 1.0
    with DressiAD() as ad:
        ad.send_img(faces, np.array([[0, 1, 2], [2, 1, 3]]))
        assert ad.recv_img(across).ravel().tolist() == [-1.0, 0.0]
        ad.send_img(neighbors, np.full((2, 3), -1))
        assert ad.recv_img(across).ravel().tolist() == [-1.0, 0.0]
        ad.send_img(faces, np.array([[1, 2, 0], [2, 1, 3]]))
        assert ad.recv_img(across).ravel().tolist() == [1.0, 0.0]


def test_optimizer_loss_options_and_parameters_start_anew(
    chains: tuple[Graph, DressiAD],
) -> None:
    """Each of them is a first build; data stays."""
    graph, ad = chains
    (x,) = graph.parameters
    clean = graph.sent[0]
    graph.loss = graph.loss + F.mean(clean * clean) * 0.1
    ad.set_loss_var(graph.loss)
    ad.exec_steps(12)

    def once_more(reason: str) -> None:
        before, n = ad.recv_img(x), len(ad.rebuilds)
        ad.exec_step()
        assert len(ad.rebuilds) == n + 1 and ad.rebuilds[-1].kind == "first"
        assert reason in ad.rebuilds[-1].reason
        assert set(ad.plans) == {"step"} and ad.ran == stage_names(ad, "step")
        moved = np.abs(ad.recv_img(x) - before).max()
        assert 0 < moved < 0.1  # a step from where it was, not from the data that was sent
        ad.exec_steps(12)
        assert set(ad.plans) == {"static", "step"}

    ad.set_optimizer(SGD(0.1))
    once_more("an optimizer was set")
    ad.set_loss_var(graph.loss * 2.0)
    once_more("a loss was set")
    ad.options = Options(reuse_images=False)
    once_more("the options changed")
    ad.options = Options(reuse_images=False)  # no change
    n = len(ad.rebuilds)
    ad.exec_step()
    assert len(ad.rebuilds) == n
    clean.requires_grad = True
    once_more("a requires_grad changed")
    assert (ad.recv_img(clean) != graph.data[clean]).any()  # it is a parameter now
    clean.requires_grad = False
    frozen = ad.recv_img(clean)
    once_more("a requires_grad changed")
    assert (ad.recv_img(clean) == frozen).all()


def test_cache_switched_off_and_on(chains: tuple[Graph, DressiAD]) -> None:
    _, ad = chains
    ad.options = NO_CACHE
    whole = stage_names(ad, "step")
    assert set(steps(ad, 12)) == {whole} and kinds(ad) == ["first"]
    ad.options = Options()
    assert steps(ad, 12)[-1] == stage_names(ad, "step") != whole


def test_refused_for_memory_the_step_goes_on_whole() -> None:
    """Limits from hardly enough for the whole step to room for a second copy beside it."""
    rng, size = np.random.default_rng(9), (96, 96)
    x, clean = (Variable(FLOAT, size, requires_grad=g) for g in (True, False))
    d = x - slow(clean)
    data = {x: image(rng, size=size), clean: image(rng, size=size)}
    graph = Graph(F.mean(d * d), data, [x], [clean])
    with start(graph, NO_CACHE) as plain:
        plain.exec_steps(30)
        used = plain.memory().used
        cached = []
        for room in range(0, 24):
            limit = used + (room << 15)
            with DressiAD(memory_limit=limit) as ad:
                try:
                    begin(ad, graph)
                    ad.exec_step()
                    ad.recv_img(x)
                except OutOfMemoryError:
                    continue  # not even the whole step fits
                ad.exec_steps(29)
                assert ad.memory().held <= limit
                cached.append("static" in ad.plans)
                assert_same(ad, plain, graph)
    assert True in cached and False in cached, cached


def test_two_engines_share_a_leaf_and_only_one_is_sent() -> None:
    """The other one's clean half stays clean, and its values stay."""
    graph = two_chains()
    clean = graph.sent[0]
    with start(graph) as ad, start(graph) as other:
        for engine in (ad, other):
            engine.exec_steps(12)
        y = other.recv_img(graph.watched[0])
        ad.send_img(clean, graph.data[clean] * 0.5)
        for engine in (ad, other):
            engine.exec_step()
        assert ad.ran == stage_names(ad, "static", "step")
        assert other.ran == stage_names(other, "step")
        assert (other.recv_img(graph.watched[0]) == y).all()
        assert (ad.recv_img(graph.watched[0]) != y).any()


def test_data_survives_rebuilds_and_the_loss_can_be_read_after_each() -> None:
    """Parameters and Adam's moments: the same path as without a cache, to the bit where nothing is
    summed by atomics."""
    graph = two_chains()
    (x,) = graph.parameters
    with start(graph) as ad, start(graph, NO_CACHE) as plain:
        for k in range(16):
            for engine in (ad, plain):
                send(engine, graph, "u", 1 + 0.05 * math.sin(k))
                engine.exec_step()
            assert near(ad.recv_img(graph.loss), plain.recv_img(graph.loss), 1e-6), k
            assert near(ad.recv_img(x), plain.recv_img(x), 1e-6), k
        assert kinds(ad) == ["first", "fast", "full"]


def n_different(plan: Plan) -> int:
    """Shaders that differ in more than comments: the chains are alike, and share pipelines."""
    made = [s for stage in plan.stages for s in stage.substages]
    return len({re.sub("//.*", "", s.vertex + s.fragment + s.compute) for s in made})


def test_rebuilds_leave_nothing_behind() -> None:
    """Handles and bytes after the rebuilds of a step are the same every time that it is built."""
    graph = two_chains()
    with start(graph) as ad:
        seen = []
        for _ in range(3):
            ad.set_optimizer(Adam(0.01))
            ad.exec_steps(12)
            assert [r.kind for r in ad.rebuilds[-3:]] == ["first", "fast", "full"]
            seen.append((ad.device.live_handles(), ad.memory().used))
        assert seen[0] == seen[1] == seen[2]
        ad.options = NO_CACHE
        ad.exec_step()
        whole = ad.device.live_handles()
        assert whole["VkPipeline"] == n_different(ad.plan)
        ad.options = Options()
        ad.exec_steps(12)
        halves = sum(map(n_different, ad.plans.values()))
        assert ad.device.live_handles()["VkPipeline"] == halves


# -- how often -------------------------------------------------------------------------------------


def alternating(k: int, period: int) -> list[str]:
    return [("clean", "other")[k // period % 2]]


def three_in_turn(k: int, period: int) -> list[str]:
    return [["clean"], ["other"], []][k // period % 3]


def random_subsets(k: int, period: int) -> list[str]:
    rng = np.random.default_rng(k // period)
    return [name for name in ("clean", "other", "u") if rng.random() < 0.5]


def longer_and_longer(k: int, period: int) -> list[str]:
    return [("clean", "other")[int(math.log2(k + 1)) % 2]]


PATTERNS = [
    *((alternating, p) for p in (1, 4, 5, 9)),
    (three_in_turn, 4),
    (random_subsets, 4),
    (random_subsets, 10),
    (longer_and_longer, 1),
]


@pytest.mark.parametrize(("pattern", "period"), PATTERNS)
def test_rebuilds_are_few_whatever_is_sent(pattern: Callable, period: int) -> None:
    """300 steps. Counts double with every pair of rebuilds, so that n steps cost O(log n)."""
    graph, n = two_chains(), 300
    with start(graph) as ad:
        for k in range(n):
            for name in pattern(k, period):
                send(ad, graph, name)
            ad.exec_step()
        assert len(ad.rebuilds) <= 3 + 2 * math.log2(n / FAST_REBUILD_COUNT), [
            (r.step, r.kind) for r in ad.rebuilds
        ]


# -- random walks ----------------------------------------------------------------------------------


def near(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return bool(np.linalg.norm(a - b) <= tolerance * max(float(np.linalg.norm(b)), 1e-6))


def assert_same(ad: DressiAD, plain: DressiAD, graph: Graph) -> None:
    for v in (*graph.parameters, *graph.watched, graph.loss):
        got, want = ad.recv_img(v), plain.recv_img(v)
        assert near(got, want, ROUNDING), (v.label(), np.abs(got - want).max())


class Walk:
    """Random actions, told to both engines."""

    def __init__(self, graph: Graph, seed: int, engines: tuple[DressiAD, DressiAD]) -> None:
        self.graph = graph
        self.engines = engines
        self.rng = np.random.default_rng(seed)

    def send(self, v: Variable) -> None:
        data = self.graph.draw(v, self.rng)
        for ad in self.engines:
            ad.send_img(v, data)

    def step(self, n: int) -> None:
        for ad in self.engines:
            ad.exec_steps(n)

    def habit(self) -> None:
        """The same leaves sent before each of some steps."""
        chosen = [v for v in self.graph.sent if self.rng.random() < 0.35]
        for _ in range(int(self.rng.choice([1, 2, 5, 10]))):
            for v in chosen:
                self.send(v)
            self.step(1)

    def burst(self) -> None:
        self.step(int(self.rng.choice([2, 4, 9, 33])))

    def one_off(self) -> None:
        self.send(self.graph.sent[self.rng.integers(len(self.graph.sent))])

    def parameter(self) -> None:
        if self.graph.parameters:
            self.send(self.graph.parameters[0])

    def receive(self) -> None:
        everything = [*self.graph.parameters, *self.graph.watched, self.graph.loss]
        v = everything[self.rng.integers(len(everything))]
        got, want = (ad.recv_img(v) for ad in self.engines)
        assert near(got, want, ROUNDING), v.label()

    def gradient(self) -> None:
        for v in self.graph.parameters:
            got, want = (ad.recv_grad(v) for ad in self.engines)
            assert near(got, want, 10 * ROUNDING), v.label()

    def measure(self) -> None:
        """Runs a step with timestamps, and puts the data back."""
        self.engines[0].stage_times_ms(1)

    def rebuild(self) -> None:
        """Other options and back: both engines start anew."""
        for on in (False, True):
            for ad in self.engines:
                ad.options = replace(ad.options, rematerialize=on)
            self.step(1)


ACTIONS = {"habit": 6, "burst": 3, "one_off": 4, "parameter": 1, "receive": 3, "gradient": 1,
           "measure": 1, "rebuild": 0.5}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("seed", range(2))
def test_values_are_those_of_an_engine_without_a_cache(name: str, seed: int) -> None:
    graph = GRAPHS[name]()
    odds = np.array(list(ACTIONS.values()))
    done: list[str] = []
    with start(graph) as ad, start(graph, NO_CACHE) as plain:
        walk = Walk(graph, seed, (ad, plain))
        for _ in range(25):
            done.append(walk.rng.choice(list(ACTIONS), p=odds / odds.sum()))
            getattr(walk, done[-1])()
        walk.step(1)
        assert_same(ad, plain, graph)
        assert any(r.kind != "first" for r in ad.rebuilds)
        assert all(r.kind == "first" for r in plain.rebuilds)
        assert np.isfinite(ad.recv_img(graph.loss)).all()


def test_requires_grad_comes_and_goes_while_the_cache_acts() -> None:
    """Both ways, at any time: a leaf of the clean part becomes a parameter and back."""
    graph = two_chains()
    clean = graph.sent[0]
    graph.loss = graph.loss + F.mean(clean * clean) * 0.1
    with start(graph) as ad, start(graph, NO_CACHE) as plain:
        walk = Walk(graph, 7, (ad, plain))
        for wanted in (True, False, True, False):
            walk.step(10)
            clean.requires_grad = wanted
            walk.step(1)
            graph.watched = [clean, *graph.watched[-2:]]
            assert_same(ad, plain, graph)
            walk.one_off()
            walk.step(10)
            assert_same(ad, plain, graph)
