"""``DressiAD.vjp``: a forward and a backward plan, compared with ``recv_img`` and ``recv_grad``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from dressi import FLOAT, INT, IVEC3, MAT3, MAT4, SGD, VEC2, VEC3, DressiAD, F, Variable
from dressi.ad.optim import step_counter
from dressi.engine.vjp import VJP
from dressi.errors import GraphError
from dressi.render.camera import ring
from dressi.render.raster import build_hardsoftras
from dressi.render.scene import icosphere
from dressi.testing.null_device import NullDevice

pytestmark = pytest.mark.gpu
SIZE = (32, 24)


@pytest.fixture
def ad() -> Iterator[DressiAD]:
    with DressiAD() as engine:
        yield engine


def silhouette(ad: DressiAD) -> tuple[Variable, Variable]:
    """Positions, and the silhouettes of a sphere from two sides."""
    mesh, cameras = icosphere(1), ring(2, distance=4.0)
    pos = Variable(VEC3, (len(mesh.positions), 1), name="pos")
    faces = Variable(IVEC3, (len(mesh.faces), 1), name="faces")
    matrix = Variable(MAT4, layers=2, name="matrix")
    ad.send_img(pos, mesh.positions)
    ad.send_img(faces, mesh.faces)
    ad.send_img(matrix, np.stack([c.matrix for c in cameras]))
    return pos, build_hardsoftras(pos, faces, matrix, SIZE, r=0.1).silhouette


def by_loss(
    ad: DressiAD, outputs: Sequence[Variable], upstream: Sequence[Any], wrt: Sequence[Variable]
) -> list[np.ndarray]:
    """The same gradients by a loss: the sum of the outputs times what is upstream, as leaves."""
    terms = []
    for v, g in zip(outputs, upstream, strict=True):
        leaf = Variable(v.vtype, v.size, v.layers)
        ad.send_img(leaf, g)
        terms.append(F.sum(F.dot(v, leaf) if v.vtype.n > 1 else v * leaf))
    ad.set_loss_var(F.add_n(terms) if len(terms) > 1 else terms[0])
    return [ad.recv_grad(x) for x in wrt]


def test_silhouette_and_its_gradient(ad: DressiAD) -> None:
    """The two halves of one program, to the bits of evaluations; the halves share no pass, and the
    backward plan rasterizes nothing."""
    pos, sil = silhouette(ad)
    g = np.random.default_rng(1).uniform(size=(2, 24, 32, 1)).astype(np.float32)
    (expected,) = by_loss(ad, [sil], [g], [pos])
    vjp = ad.vjp([sil], [pos])
    (value,) = vjp.forward()
    (gradient,) = vjp.backward([g])
    assert gradient is not None
    np.testing.assert_array_equal(value, ad.recv_img(sil))
    # Scatters add in any order: the last bits may differ.
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    forward, backward = vjp.parts()
    kinds = ["rasterize" in str(p.packed.plan.stages) for p in (forward, backward)]
    assert kinds == [True, False]


def test_several_outputs_and_leaves(ad: DressiAD) -> None:
    """Outputs that are an intermediate of another, a leaf, of other sizes, matrices, and unused."""
    rng = np.random.default_rng(2)
    x, y = Variable(VEC3, (5, 4), name="x"), Variable(FLOAT, name="y")
    m, t = Variable(MAT3, name="m"), Variable(VEC3, (6, 1), name="t")
    i = Variable(INT, (3, 1), name="i")
    data = {
        x: rng.uniform(size=(4, 5, 3)),
        y: 2.0,
        m: rng.uniform(size=(3, 3)),
        t: rng.uniform(size=(6, 3)),
        i: [0, 1, 5],
    }
    for leaf, value in data.items():
        ad.send_img(leaf, value)
    first = F.sin(x) * y
    outputs = [x, first, F.sum(first) * y, y * 2.0, F.lookup(t, i), m @ t]
    vjp = ad.vjp([*outputs, i], [x, y, m, t])
    values = vjp.forward()
    for v, got in zip([*outputs, i], values, strict=True):
        np.testing.assert_array_equal(got, ad.recv_img(v))
    upstream = [rng.uniform(-1, 1, np.shape(a)).astype(np.float32) for a in values[:-1]]
    gradients = vjp.backward([*upstream, None])
    for got, wanted in zip(gradients, by_loss(ad, outputs, upstream, [x, y, m, t]), strict=True):
        assert got is not None
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_backward_alone_runs_where_nothing_was_sent(ad: DressiAD) -> None:
    x = Variable(FLOAT, (4, 4), name="x")
    other = Variable(FLOAT, (4, 4))
    ad.send_img(x, np.full((4, 4), 2.0))
    vjp = ad.vjp([x * x], [x])
    vjp.forward()
    for k in (1.0, 3.0):
        (g,) = vjp.backward([np.full((4, 4, 1), k)])
        np.testing.assert_array_equal(g, np.full((4, 4, 1), 4.0 * k, np.float32))
    ad.send_img(other, np.ones((4, 4)))
    vjp.backward([None])
    assert vjp.n_forward == 1
    ad.send_img(x, np.full((4, 4), 5.0))
    (g,) = vjp.backward([np.ones((4, 4, 1))])
    np.testing.assert_array_equal(g, np.full((4, 4, 1), 10.0, np.float32))
    assert vjp.n_forward == 2


def test_a_step_between_forward_and_backward_makes_it_old(ad: DressiAD) -> None:
    """A parameter that a fit moves is another one for the layer, also where it is 1x1 and was a
    number of the uniform block at first."""
    x = Variable(FLOAT, requires_grad=True, name="x")
    ad.send_img(x, 3.0)
    vjp = ad.vjp([x * x], [x])
    assert vjp.forward()[0].item() == 9.0
    ad.set_loss_var(x * 1.0)
    ad.set_optimizer(SGD(1.0))
    ad.exec_step()
    (g,) = vjp.backward([1.0])
    assert g is not None and g.item() == 4.0
    assert vjp.forward()[0].item() == 4.0


def test_none_is_zero_and_unreached_leaves_have_none(ad: DressiAD) -> None:
    x, y = Variable(FLOAT, name="x"), Variable(VEC2, name="y")
    ad.send_img(x, 3.0)
    ad.send_img(y, [1.0, 2.0])
    vjp = ad.vjp([x * 2.0, x * x], [x, y])
    vjp.forward()
    assert vjp.backward([5.0, None])[0] == 10.0
    gx, gy = vjp.backward([None, 1.0])
    assert gx == 6.0 and gy is None


def test_indices_are_checked_when_they_are_sent(ad: DressiAD) -> None:
    t, i = Variable(FLOAT, (4, 1), name="t"), Variable(INT, (2, 1), name="i")
    ad.send_img(t, np.arange(4.0))
    ad.send_img(i, [0, 3])
    vjp = ad.vjp([F.lookup(t, i)], [t])
    vjp.forward()
    with pytest.raises(GraphError, match="4"):
        ad.send_img(i, [0, 4])


def test_bad_arguments(ad: DressiAD) -> None:
    x, i = Variable(FLOAT, (2, 2), name="x"), Variable(INT, name="i")
    ad.send_img(x, np.ones((2, 2)))
    ad.send_img(i, 1)
    with pytest.raises(GraphError, match="wrt must be leaves with a gradient, got i"):
        ad.vjp([x], [i])
    with pytest.raises(GraphError, match="which a step updates"):
        ad.vjp([x * F.to_float(step_counter())], [x])
    vjp = ad.vjp([x * 2.0, i], [x])
    with pytest.raises(GraphError, match="1 upstream gradients for 2 outputs"):
        vjp.backward([None])
    with pytest.raises(GraphError, match="i INT@1x1 is an integer"):
        vjp.backward([None, 1])
    with pytest.raises(GraphError, match=r"upstream gradient of .*nan at index"):
        vjp.backward([np.full((2, 2), np.nan), None])


def test_what_it_holds_is_freed(ad: DressiAD) -> None:
    """By close, and when it is dropped."""
    pos, sil = silhouette(ad)
    ad.recv_img(pos)
    before = ad.memory().used, ad.device.live_handles().get("VkPipeline", 0)
    vjp = ad.vjp([sil], [pos])
    vjp.forward()
    assert ad.memory().used > before[0]
    vjp.close()
    assert ad.device.live_handles().get("VkPipeline", 0) == before[1]
    vjp.forward()
    del vjp
    ad.recv_img(pos)
    assert ad.device.live_handles().get("VkPipeline", 0) == before[1]


def test_what_is_sent_and_read_is_part_of_the_submit() -> None:
    """One submit for the forward plan, one for the backward plan, and none where nothing is new."""
    device = NullDevice()
    with DressiAD(device) as ad:
        x, k = Variable(FLOAT, (4, 4), name="x"), Variable(FLOAT, name="k")
        ad.send_img(x, np.ones((4, 4)))
        ad.send_img(k, 2.0)
        vjp = ad.vjp([x * x * k], [x])
        vjp.forward()
        vjp.backward([np.ones((4, 4, 1))])
        device.calls.clear()
        (value,) = vjp.forward([(x, np.full((4, 4), 3.0)), (k, 1.0)])
        (gradient,) = vjp.backward([np.full((4, 4, 1), 2.0)])
        np.testing.assert_array_equal(value, np.full((4, 4, 1), 9.0, np.float32))
        np.testing.assert_array_equal(gradient, np.full((4, 4, 1), 12.0, np.float32))
        assert [len(parts) for parts in device.names("start")] == [3, 3]
        assert not any(device.names(call) for call in ("upload", "download", "run", "read"))
        vjp.forward()
        assert len(device.names("start")) == 2


def test_data_that_is_bad_leaves_what_was_sent_before_it(ad: DressiAD) -> None:
    """The first of two leaves is sent, the second is refused: the first is on the device."""
    x, y = Variable(FLOAT, (3, 3), name="x"), Variable(FLOAT, (3, 3), name="y")
    for leaf in (x, y):
        ad.send_img(leaf, np.ones((3, 3)))
    vjp = ad.vjp([x + y], [x])
    vjp.forward()
    with pytest.raises(GraphError, match=r"y.*nan"):
        vjp.forward([(x, np.full((3, 3), 5.0)), (y, np.full((3, 3), np.nan))])
    np.testing.assert_array_equal(ad.recv_img(x), np.full((3, 3, 1), 5.0, np.float32))
    np.testing.assert_array_equal(vjp.forward()[0], np.full((3, 3, 1), 6.0, np.float32))


def test_plans_that_do_not_run_make_room() -> None:
    """Two products that do not fit together: each runs, also the first one again."""
    x = Variable(FLOAT, (64, 64), name="x")

    def product(ad: DressiAD, k: float) -> VJP:
        return ad.vjp([F.image.gaussian_blur(x * k, 2.0)], [x])

    data = np.random.default_rng(0).uniform(size=(64, 64))
    needed = []
    for limit in (None, 1):
        device = NullDevice(memory_limit=limit and needed[1] - 1)
        with DressiAD(device) as ad:
            ad.send_img(x, data)
            products = [product(ad, k) for k in (1.0, 2.0)]
            for k in (0, 1, 0):
                (value,) = products[k].forward()
                (gradient,) = products[k].backward([np.ones((64, 64, 1))])
                needed.append(device.used_bytes())
                assert gradient is not None
                np.testing.assert_allclose(gradient.sum(), 64 * 64 * (k + 1), rtol=1e-5)
                np.testing.assert_allclose(value.sum(), data.sum() * (k + 1), rtol=0.05)
    assert max(needed[3:]) < needed[1]
