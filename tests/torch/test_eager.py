"""Plans of eager calls: kept, bounded, and shared by tables of many sizes."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="dressi.torch needs torch")

import dressi.torch.nvdiffrast as dr  # noqa: E402
from dressi import F  # noqa: E402
from dressi.torch import eager, engine  # noqa: E402

pytestmark = pytest.mark.gpu


@pytest.fixture
def no_plans(monkeypatch):
    for name in ("_plans", "_rows", "_halved", "_batches"):
        monkeypatch.setattr(eager, name, type(getattr(eager, name))())


def doubled(x):
    return [x * 2.0]


def test_a_call_of_known_shapes_builds_nothing(no_plans):
    for k in range(4):
        out = eager.call("double", doubled, [torch.full((1, 3, 4, 2), float(k))])
        assert eager.n_plans() == 1
        assert out[0].shape == (1, 3, 4, 2) and (out[0] == 2.0 * k).all()


def test_the_latest_plans_are_kept(no_plans, monkeypatch):
    monkeypatch.setattr(eager, "KEPT_PLANS", 2)
    for width in (1, 2, 3, 2, 3):
        out = eager.call("double", doubled, [torch.ones(1, 2, width, 1)])
        assert out[0].sum() == 4.0 * width and eager.n_plans() <= 2


@pytest.mark.parametrize(
    ("n", "room"), [(1, 1), (2, 2), (3, 3), (5, 6), (7, 8), (97, 128), (96, 96)]
)
def test_room_has_two_sizes_per_octave(n, room):
    assert eager._room(n) == room


def test_tables_that_keep_changing_share_plans_and_give_what_exact_ones_give(no_plans):
    """A mesh that grows by a triangle per step: values and gradients are those of its own plan."""
    ctx, rng = dr.RasterizeCudaContext(), np.random.default_rng(0)

    def step(n):
        pos = torch.tensor(
            np.random.default_rng(n).uniform(-1, 1, (1, 3 * n, 4)) * (1, 1, 0.5, 0) + (0, 0, 0, 1),
            dtype=torch.float32,
            requires_grad=True,
        )
        tri = torch.arange(3 * n, dtype=torch.int32).reshape(n, 3)
        rast, db = dr.rasterize(ctx, pos, tri, (8, 9))
        out, _ = dr.interpolate(pos[..., :3], rast, tri)
        out = dr.antialias(out, rast, pos, tri)
        (out * weights).sum().backward()
        assert pos.grad.shape == pos.shape
        return out.detach(), db.detach(), pos.grad

    weights = torch.tensor(rng.uniform(-1, 1, (1, 8, 9, 3)), dtype=torch.float32)
    shared = [step(n) for n in (20, 21, 25, 29, 31, 32)]  # the last four in the room of 32
    assert eager.n_plans() == 9
    eager._plans.clear()
    eager._rows.clear()
    for padded, n in zip(shared[2:4], (25, 29), strict=True):
        for a, b in zip(padded, step(n), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5 * max(1.0, b.abs().max().item()))


def test_gradient_reaches_tables_and_images(no_plans):
    table = torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
    image = torch.ones(1, 1, 2, 1, requires_grad=True)

    def build(x, t):
        return [x * F.mean(t)]

    out = eager.call("mean", build, [image], [table])[0]
    out.sum().backward()
    np.testing.assert_allclose(table.grad, np.full((3, 1), 2 / 3), atol=1e-6)
    np.testing.assert_allclose(image.grad, np.full((1, 1, 2, 1), 2.0), atol=1e-6)


def test_a_batch_that_does_not_fit_is_halved_until_it_does(no_plans, monkeypatch):
    """Four images of 64 x 64 under a limit that two of them keep: values and gradients are those
    without a limit, also of what all images share."""
    rng = np.random.default_rng(3)
    given = torch.tensor(rng.uniform(-1, 1, (4, 64, 64, 3)), dtype=torch.float32)
    shared = torch.tensor(rng.uniform(-1, 1, (1, 64, 64, 3)), dtype=torch.float32)
    weights = torch.tensor(rng.uniform(-1, 1, (4, 64, 64, 3)), dtype=torch.float32)

    def step(product):
        x, y = given.clone().requires_grad_(), shared.clone().requires_grad_()
        out = product(x, y)
        (out * weights).sum().backward()
        return out.detach(), x.grad, y.grad

    def ours(x, y):
        return eager.call("product", lambda a, b: [a * b], [x, y])[0]

    runtime, refused, whole = engine().runtime, [], eager._call

    def watched(key, build, images, tables, batch=None):
        try:
            return whole(key, build, images, tables, batch)
        except eager.OutOfMemoryError:
            refused.append(len(images[0]))
            raise

    monkeypatch.setattr(eager, "_call", watched)
    runtime._free_idle()  # what other tests left would be freed in the place of a refusal
    runtime._free_users()
    memory = runtime.device.memory
    # RGBA32F images of four layers take 0.26 MB: two inputs, the output, its gradient and theirs.
    monkeypatch.setattr(memory, "budget", memory.taken() - memory.unused() + 1_100_000)
    found = step(ours)
    assert refused and refused[0] == 4
    for a, b in zip(found, step(torch.mul), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    n = len(refused)
    step(ours)
    assert len(refused) == n  # what did not fit is not tried again


def test_the_largest_plan_is_halved_when_memory_ran_out(no_plans):
    """So that plans which do not fit side by side are not compiled again in each step."""
    sizes = []

    def build(x):
        sizes.append(x.layers)
        return [F.sin(x)]

    large = torch.rand(4, 128, 128, 3, requires_grad=True)
    small, single = torch.rand(4, 2, 2, 3, requires_grad=True), torch.rand(1, 256, 256, 3)
    for _ in range(2):
        for x in (large, small, single.requires_grad_()):
            (out,) = eager.call("sine", build, [x])
            torch.testing.assert_close(out.detach(), torch.sin(x.detach()))
            (g,) = torch.autograd.grad(out.sum(), x)
            torch.testing.assert_close(g, torch.cos(x.detach()))
        if len(sizes) == 3:
            for f in engine().runtime.on_full:
                f()
    assert sizes == [4, 4, 1, 2, 4, 1]
