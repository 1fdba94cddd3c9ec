"""What waits for what where results are memory that torch and Dressi both see.

No CUDA here: ``fake_cuda``. Writes of torch are put on its stream, late, as those of a card are."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import dressi.torch.nvdiffrast as dr  # noqa: E402
from dressi import FLOAT, VEC3, DressiAD, Variable  # noqa: E402
from dressi.render.scene import icosphere  # noqa: E402
from dressi.torch import eager, share  # noqa: E402
from dressi.torch import function as torch_function  # noqa: E402
from dressi.torch.function import Compiled, apply  # noqa: E402
from tests.torch.fake_cuda import CARD, FakeDriver, shared_engine, words_of_host  # noqa: E402

LATE_S = 0.02
"""Of work of the stream: longer than a plan of this file takes."""


class Stream:
    """The engine, the driver, and torch's work on its stream."""

    def __init__(self, ad: DressiAD, driver: FakeDriver, found: share.TorchShare) -> None:
        self.ad, self.driver, self.share = ad, driver, found
        self.queue = driver.stream = ThreadPoolExecutor(1)
        self.n_writes = 0

    def put(self, work: Callable[[], Any]) -> Any:
        """Let the stream do something after what it has, late."""
        return self.queue.submit(lambda: (time.sleep(LATE_S), work())[1])

    def value(self, t: torch.Tensor) -> torch.Tensor:
        """What the stream finds in a tensor."""
        return self.put(t.detach().clone).result()

    @property
    def n_waits(self) -> int:
        """Submits that waited for the stream so far."""
        return len(self.driver.named("cuSignalExternalSemaphoresAsync"))


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    # The layers say of signals by another thread: "most likely a validation bug".
    monkeypatch.setenv("DRESSI_VALIDATE", "0")
    with shared_engine(monkeypatch, share) as (ad, driver, found):
        monkeypatch.setattr(torch_function, "share_of", lambda *_: found)
        monkeypatch.setattr(share, "counts_writes", lambda _: True)  # as those of CUDA are
        made, write, copy = Stream(ad, driver, found), found.write, found.copy

        def late(places: Any, v: Variable, value: Any) -> None:
            made.n_writes += 1
            kept = None if value is None else value.detach().clone()
            write([], v, value)  # says that there is something to wait for
            made.put(lambda: write(places, v, kept))

        monkeypatch.setattr(found, "write", late)
        monkeypatch.setattr(found, "settle", lambda: made.put(lambda: None).result())
        monkeypatch.setattr(found, "copy", lambda a: made.put(lambda: copy(a)).result())
        yield made
        made.queue.shutdown()


def _compiled(stream: Stream, function: Callable[[Variable], Variable], vtype: Any = VEC3) -> Any:
    x = Variable(vtype, (6, 5), name="x")
    made = Compiled([x], [function(x)], stream.ad, CARD)
    return lambda t: apply(made, t, shapes=made.stacks)[0]


def _ones() -> torch.Tensor:
    return torch.ones(1, 5, 6, 3)


def test_a_result_is_read_where_it_lies_and_waits_for_nothing(stream: Stream) -> None:
    double, add = _compiled(stream, lambda x: x * 2.0), _compiled(stream, lambda x: x + 1.0)
    for k in range(5):
        y = double(_ones() * k)
        before = stream.n_writes, stream.n_waits
        z = add(y)
        if k >= 2:  # new memory is filled first
            assert (stream.n_writes, stream.n_waits) == before
        assert z.is_contiguous() and (stream.value(z) == 2 * k + 1).all()
    assert len(stream.driver.named("cuWaitExternalSemaphoresAsync")) == 10


@pytest.mark.parametrize("of", [lambda t: t, lambda t: t.detach(), lambda t: t.view(-1)])
def test_a_result_that_torch_wrote_to_is_waited_for(
    stream: Stream, of: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    double, add = _compiled(stream, lambda x: x * 2.0), _compiled(stream, lambda x: x + 1.0)
    for _ in range(3):
        y = double(_ones())
        written = of(y)
        stream.put(lambda memory=y.data: memory.mul_(5.0))
        torch._C._autograd._unsafe_set_version_counter((written,), (written._version + 1,))
        assert (stream.value(add(y)) == 11.0).all()


def test_a_part_of_a_result_is_written_as_any_tensor(stream: Stream) -> None:
    double = _compiled(stream, lambda x: x * 2.0)
    add = _compiled(stream, lambda x: x + 1.0, FLOAT)
    y = double(torch.arange(90.0).reshape(1, 5, 6, 3))
    stream.value(y)
    assert torch.equal(stream.value(add(y[..., :1])), y[..., :1] + 1.0)
    turned = y.view(1, 6, 5, 3).transpose(1, 2)
    add = _compiled(stream, lambda x: x + 1.0)
    assert torch.equal(stream.value(add(turned)), turned + 1.0)


def test_results_stay_as_they_are_while_they_are_held(stream: Stream) -> None:
    double = _compiled(stream, lambda x: x * 2.0)
    held = [double(_ones() * k) for k in range(5)]
    n_imported = len(stream.driver.named("cuImportExternalMemory"))
    held += [double(_ones() * k) for k in range(5, 9)]
    assert len(stream.driver.named("cuImportExternalMemory")) == n_imported  # copies are held
    stream.ad.runtime.enter()
    for k, y in enumerate(held):
        assert (stream.value(y) == 2 * k).all()
    assert len({y.untyped_storage().data_ptr() for y in held[:3]}) == 3
    views = [y[0, 0] for y in held]
    del held, y
    again = [double(_ones() * -k) for k in range(9)]
    for k, row in enumerate(views):
        assert (stream.value(row) == 2 * k).all()
    assert all((stream.value(y) == -2 * k).all() for k, y in enumerate(again))


@pytest.mark.parametrize("between", [False, True])
def test_what_still_reads_a_result_that_is_gone_is_waited_for(
    stream: Stream, between: bool
) -> None:
    """The stream reads late what nobody holds any more. between: a submit waits for the stream
    while it is held."""
    double, add = _compiled(stream, lambda x: x * 2.0), _compiled(stream, lambda x: x + 1.0)
    other = double(_ones() * 100.0)
    for k in range(1, 9):
        y = double(_ones() * k)
        z = add(y)
        if between:
            double(_ones())
        address = z.data_ptr()
        seen = stream.put(lambda at=address: words_of_host(at, 90, CARD, None).clone())
        del z
        assert (stream.value(add(other)) == 201.0).all()
        assert (seen.result() == 2 * k + 1).all()


def test_results_outlive_their_plan(stream: Stream) -> None:
    x = Variable(VEC3, (6, 5), name="x")
    compiled = Compiled([x], [x * 2.0], stream.ad, CARD)
    add = _compiled(stream, lambda x: x + 1.0)
    y = apply(compiled, _ones(), shapes=compiled.stacks)[0]
    add(y)
    compiled.close()
    n_freed = len(stream.driver.named("cuDestroyExternalMemory"))
    for _ in range(3):
        apply(compiled, _ones() * 4.0, shapes=compiled.stacks)
    stream.ad.runtime.enter()
    assert (stream.value(y) == 2.0).all()
    before = stream.n_writes
    assert (stream.value(add(y * 1.0)) == 3.0).all() and (stream.value(add(y)) == 3.0).all()
    assert stream.n_writes == before + 2  # no plan's memory any more
    del y
    add(_ones())  # knows it no more
    assert len(stream.driver.named("cuDestroyExternalMemory")) == n_freed + 1


def test_a_tensor_is_written_once_for_all_that_take_it(stream: Stream) -> None:
    double, add = _compiled(stream, lambda x: x * 2.0), _compiled(stream, lambda x: x + 1.0)
    t = _ones()
    for k in range(1, 5):
        before = stream.n_writes
        two, one = double(t), add(t)
        assert stream.n_writes == before + 1
        assert (stream.value(two) == 2 * k).all() and (stream.value(one) == k + 1).all()
        two, one = double(t), add(t)
        assert stream.n_writes == before + 1  # unchanged
        t.add_(1.0)
    double(t)
    assert (stream.value(double(t * 2.0)) == 20.0).all()  # over what add would read
    assert (stream.value(add(t)) == 6.0).all()


def test_a_result_may_be_written_to_and_differentiated(stream: Stream) -> None:
    double = _compiled(stream, lambda x: x * x)
    for _ in range(3):
        t = (_ones() * 3.0).requires_grad_()
        y = double(t)
        stream.value(y)
        y.mul_(2.0)
        (g,) = torch.autograd.grad(y.sum(), t)
        assert (stream.value(g) == 12.0).all()


def _fitted(n: int, watch: Callable[[], int]) -> tuple[list[torch.Tensor], list[int]]:
    """Pictures and gradients of a fit of positions and texture by the four functions, and what
    ``watch`` says after each step."""
    mesh, rng = icosphere(1), torch.Generator().manual_seed(0)
    points = torch.tensor(mesh.positions, dtype=torch.float32) * 0.6
    uv = torch.rand(1, len(points), 2, generator=rng)
    texture = torch.rand(1, 8, 8, 3, generator=rng).requires_grad_()
    target, tri = torch.rand(1, 24, 32, 3, generator=rng), torch.tensor(mesh.faces).int()
    points.requires_grad_()
    context = dr.RasterizeCudaContext()
    found, watched = [], []
    for _ in range(n):
        clip = torch.cat([points, torch.ones_like(points[:, :1])], 1)[None]
        rast, _ = dr.rasterize(context, clip, tri, (24, 32))
        coords, _ = dr.interpolate(uv, rast, tri)
        color = dr.texture(texture, coords, filter_mode="linear")
        picture = dr.antialias(color, rast, clip, tri)
        (picture - target).square().mean().backward()
        found += [picture.detach().clone(), points.grad.clone(), texture.grad.clone()]
        with torch.no_grad():
            points -= 0.02 * points.grad / points.grad.abs().max()
            texture -= 0.1 * texture.grad / texture.grad.abs().max()
        points.grad = texture.grad = None
        watched.append(watch())
    return found, watched


def test_a_fit_by_the_four_functions_waits_for_torch_where_it_wrote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of eight submits those that read positions, the texture and the gradient of the loss."""
    for name in ("_plans", "_rows", "_halved", "_batches"):
        monkeypatch.setattr(eager, name, type(getattr(eager, name))())
    want, _ = _fitted(5, lambda: 0)
    eager._plans.clear()
    with shared_engine(monkeypatch, share) as (ad, driver, found):
        monkeypatch.setattr(torch_function, "engine", lambda: ad)
        monkeypatch.setattr(torch_function, "share_of", lambda *_: found)
        monkeypatch.setattr(share, "counts_writes", lambda _: True)
        got, waits = _fitted(5, lambda: len(driver.named("cuSignalExternalSemaphoresAsync")))
        eager._plans.clear()
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    assert [b - a for a, b in pairwise(waits[1:])] == [3, 3, 3]


def test_tensors_that_were_written_for_plans_that_are_gone_are_held_no_more(stream: Stream) -> None:
    held = []
    for k in range(8):
        double = _compiled(stream, lambda x: x * 2.0)
        assert (stream.value(double(_ones() * k)) == 2 * k).all()
        del double
        gc.collect()
        stream.ad.runtime.enter()  # frees what is gone
        held.append(len(stream.share._written))
    assert held[2:] == [held[2]] * 6
