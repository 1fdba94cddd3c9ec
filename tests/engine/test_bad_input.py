"""Bad input: an error of the library's own classes at the user's call, naming the
thing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dressi import SGD, DeviceError, DressiAD, DressiError, F, GraphError, Variable
from dressi.ad.vtype import FLOAT, INT, IVEC3, MAT3, VEC3, VEC4

pytestmark = pytest.mark.gpu


def message(call: Callable[[], Any], kind: type[Exception] = GraphError) -> str:
    with pytest.raises(kind) as info:
        call()
    assert isinstance(info.value, DressiError)
    return str(info.value)


@pytest.fixture(scope="module")
def small(vulkan_device_available: bool) -> Iterator[DressiAD]:
    """A device that allows images of 64x64."""
    if not vulkan_device_available:
        pytest.skip("no Vulkan device on this machine")
    with DressiAD(limits={"image_dim": 64}) as engine:
        yield engine


# -- data ------------------------------------------------------------------------------------------

BAD_DATA: dict[str, tuple[Variable, Any, str]] = {
    "swapped sides": (Variable(VEC3, (5, 4), name="thing"), np.zeros((5, 4, 3)), "(4, 5, 3)"),
    "too few components": (Variable(VEC3, (5, 4), name="thing"), np.zeros((4, 5, 2)), "(4, 5, 2)"),
    "no layers": (Variable(VEC3, (5, 4), 2, name="thing"), np.zeros((4, 5, 3)), "(2, 4, 5, 3)"),
    "empty": (Variable(VEC3, (5, 1), name="thing"), np.zeros((0, 3)), "(0, 3)"),
    "NaN": (Variable(VEC3, (5, 1), name="thing"), np.full((5, 3), np.nan), "nan"),
    "infinity": (Variable(FLOAT, name="thing"), np.inf, "inf"),
    "a string": (Variable(FLOAT, name="thing"), "one", "thing"),
    "None": (Variable(FLOAT, name="thing"), None, "thing"),
    "ragged": (Variable(FLOAT, (2, 2), name="thing"), [[1.0], [1.0, 2.0]], "thing"),
    "fractions": (Variable(INT, (3, 1), name="thing"), [0.5, 1, 2], "fraction"),
    "too large an integer": (Variable(INT, name="thing"), 2**40, "32 bits"),
    "too large a float": (Variable(FLOAT, name="thing"), 1e300, "float32"),
}


@pytest.mark.parametrize("what", BAD_DATA)
def test_bad_data_is_refused_at_the_call_and_the_old_data_stays(ad: DressiAD, what: str) -> None:
    v, data, text = BAD_DATA[what]
    good = np.ones((v.layers, v.size[1], v.size[0], *v.vtype.tail))
    ad.send_img(v, good)
    got = message(lambda: ad.send_img(v, data))
    assert "thing" in got and text in got and "test_bad_input.py" in got
    assert (ad.recv_img(v) == 1).all()


def test_the_first_bad_entry_is_named(ad: DressiAD) -> None:
    v = Variable(VEC3, (9, 1), name="vertices")
    data = np.zeros((9, 3))
    data[7, 1] = np.nan
    assert "(7, 1)" in message(lambda: ad.send_img(v, data))


def test_computed_variables_cannot_be_sent(ad: DressiAD) -> None:
    y = F.sin(Variable(FLOAT, (2, 2)))
    got = message(lambda: ad.send_img(y, np.zeros((2, 2))))
    assert "F.sin at test_bad_input.py:" in got


@pytest.mark.parametrize(
    "thing", [None, 3.0, "x", np.zeros(3)], ids=["None", "number", "str", "array"]
)
def test_what_is_no_variable_is_refused(ad: DressiAD, thing: Any) -> None:
    for call in (
        lambda: ad.send_img(thing, np.zeros(3)),
        lambda: ad.recv_img(thing),
        lambda: ad.set_loss_var(thing),
    ):
        message(call)


def test_what_is_no_variable_has_no_gradient(ad: DressiAD) -> None:
    x = Variable(FLOAT, requires_grad=True)
    ad.send_img(x, 1.0)
    ad.set_loss_var(x * 2.0)
    message(lambda: ad.recv_grad(3.0))  # type: ignore[arg-type]


# -- indices ---------------------------------------------------------------------------------------


def _mesh() -> tuple[Variable, Variable, Variable]:
    table = Variable(VEC3, (5, 1), requires_grad=True, name="vertices")
    faces = Variable(IVEC3, (2, 1), name="faces")
    return table, faces, F.lookup(table, faces.x) + F.lookup(table, faces.z)


def test_index_out_of_range_sent_before_the_graph_is_found_when_it_is_built() -> None:
    table = Variable(VEC3, (5, 1), requires_grad=True, name="vertices")
    faces = Variable(IVEC3, (2, 1), name="faces")
    with DressiAD() as ad:
        ad.send_img(table, np.zeros((5, 3)))
        ad.send_img(faces, [[0, 1, 2], [1, 2, 5]])
        ad.set_loss_var(F.lookup(table, faces.x) + F.lookup(table, faces.z))
        got = message(ad.exec_step)
        for part in ("index 5", "row 1", "vertices", "5 rows", "test_bad_input.py:"):
            assert part in got


def test_index_out_of_range_is_refused_at_the_send_and_the_old_data_stays() -> None:
    table, faces, loss = _mesh()
    with DressiAD() as ad:
        ad.send_img(table, np.arange(15.0).reshape(5, 3))
        ad.send_img(faces, [[0, 1, 2], [1, 2, 4]])
        ad.set_loss_var(loss)
        ad.exec_step()
        before = ad.recv_img(loss)
        for bad in (5, -2, 10**6):
            assert str(bad) in message(lambda bad=bad: ad.send_img(faces, [[0, 1, 2], [bad, 2, 4]]))
        assert (ad.recv_img(faces) == [[0, 1, 2], [1, 2, 4]]).all()
        ad.exec_step()
        assert (ad.recv_img(loss) == before).all()


def test_minus_1_is_allowed_and_reads_0(ad: DressiAD) -> None:
    table, faces, loss = _mesh()
    ad.send_img(table, np.ones((5, 3)))
    ad.send_img(faces, [[-1, 0, 0], [-1, 0, -1]])
    assert ad.recv_img(loss)[:, 0].tolist() == [1, 0]


# -- losses and optimizers -------------------------------------------------------------------------


def test_step_without_a_loss() -> None:
    with DressiAD() as ad:
        assert "set_loss_var" in message(ad.exec_step)
        assert "set_loss_var" in message(lambda: ad.recv_grad(Variable(FLOAT)))


@pytest.mark.parametrize("vtype", [INT, IVEC3, MAT3], ids=lambda t: t.name)
def test_loss_of_a_wrong_type(ad: DressiAD, vtype: Any) -> None:
    got = message(lambda: ad.set_loss_var(Variable(vtype, (2, 2), name="ids")))
    assert "ids" in got and vtype.name in got and "test_bad_input.py:" in got


def test_loss_per_fragment(ad: DressiAD) -> None:
    frag = F.rasterize([Variable(VEC4, (1, 1)) for _ in range(3)], (4, 4))
    assert "F.resolve" in message(lambda: ad.set_loss_var(F.to_float(frag)))


@pytest.mark.parametrize("how", ["no requires_grad", "stop_gradient", "comparison", "another leaf"])
def test_loss_that_depends_on_no_parameter(how: str) -> None:
    x = Variable(FLOAT, (2, 2), requires_grad=how != "no requires_grad", name="x")
    loss = {
        "no requires_grad": lambda: x * 2.0,
        "stop_gradient": lambda: F.stop_gradient(x) * 2.0,
        "comparison": lambda: (x > 0.0) * 2.0,
        "another leaf": lambda: Variable(FLOAT, (2, 2)) * 2.0,
    }[how]()
    with DressiAD() as ad:
        ad.send_img(x, np.zeros((2, 2)))
        ad.set_loss_var(loss)
        ad.set_optimizer(SGD(0.1))
        got = message(ad.exec_step)
        assert "does not depend on any parameter" in got and "requires_grad" in got
        if how != "no requires_grad":
            assert "x FLOAT@2x2" in message(lambda: ad.recv_grad(x))


@pytest.mark.parametrize("kind", ["uniform", "image", "table", "index"])
def test_leaf_without_data_is_named_and_the_engine_goes_on(kind: str) -> None:
    x = Variable(FLOAT, (4, 4), requires_grad=True, name="x")
    lost = {
        "uniform": Variable(FLOAT, name="lost"),
        "image": Variable(FLOAT, (4, 4), name="lost"),
        "table": Variable(FLOAT, (7, 1), name="lost"),
        "index": Variable(INT, (4, 4), name="lost"),
    }[kind]
    if kind == "table":
        y = F.lookup(lost, F.to_int(x))
    elif kind == "index":
        y = F.lookup(x, lost)
    else:
        y = lost * 1.0
    loss = x * y
    with DressiAD() as ad:
        ad.send_img(x, np.ones((4, 4)))
        ad.set_loss_var(loss)
        for call in (ad.exec_step, lambda: ad.recv_img(loss), lambda: ad.recv_img(lost)):
            got = message(call)
            assert "lost" in got and "test_bad_input.py:" in got and "send_img" in got
        ad.send_img(lost, np.ones((lost.size[1], lost.size[0])))
        ad.exec_step()
        assert (ad.recv_img(loss) == 1).all()


@pytest.mark.parametrize("n", [0, -1])
def test_number_of_steps_below_1(ad: DressiAD, n: int) -> None:
    assert str(n) in message(lambda: ad.exec_steps(n))


def test_optimizer_that_returns_a_wrong_count_or_nonsense() -> None:
    x = Variable(FLOAT, (2, 2), requires_grad=True, name="x")
    with DressiAD() as ad:
        ad.send_img(x, np.ones((2, 2)))
        ad.set_loss_var(x * x)
        ad.set_optimizer(lambda xs, gs: [*xs, *xs])
        assert "2 Variables for 1 parameters" in message(ad.exec_step)
        ad.set_optimizer(lambda xs, gs: [])
        assert "0 Variables for 1 parameters" in message(ad.exec_step)
        ad.set_optimizer(lambda xs, gs: [Variable(FLOAT, (3, 3), name="y") * 1.5])
        assert "x FLOAT@2x2" in message(ad.exec_step)
        ad.set_optimizer(lambda xs, gs: [1.0])  # type: ignore[list-item]
        message(ad.exec_step)
        ad.set_optimizer(lambda xs, gs: None)  # type: ignore[arg-type, return-value]
        message(ad.exec_step)
        ad.set_optimizer(SGD(0.25))
        ad.exec_step()
        assert (ad.recv_img(x) == 0.5).all()


def test_gradient_of_what_the_loss_does_not_reach(ad: DressiAD) -> None:
    x, y = Variable(FLOAT, requires_grad=True), Variable(FLOAT, requires_grad=True, name="far")
    ad.send_img(x, 1.0)
    ad.set_loss_var(x * 2.0)
    assert "far FLOAT@1x1" in message(lambda: ad.recv_grad(y))
    message(lambda: ad.recv_grad(Variable(INT, name="ids")))


# -- limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "layers"), [((65, 2), 1), ((2, 65), 1), ((4097, 1), 1), ((40, 40), 2), ((64, 64), 2)]
)
def test_image_larger_than_the_device_allows(
    small: DressiAD, size: tuple[int, int], layers: int
) -> None:
    """At the send, and for a value that is computed; naming the Variable, the limit and the
    size."""
    v = Variable(FLOAT, size, layers, name="big")
    u = Variable(FLOAT, name="u")
    small.send_img(u, 1.0)
    sent = message(lambda: small.send_img(v, np.zeros((layers, size[1], size[0], 1))))
    made = F.expand(F.sin(u), size, layers)
    made.name = "big"
    computed = message(lambda: small.recv_img(made))
    for got in (sent, computed):
        assert "64x64" in got and f"{size[0]}x{size[1]}" in got and "big" in got, got


@pytest.mark.parametrize(
    ("size", "layers"), [((64, 64), 1), ((4096, 1), 1), ((16, 30), 8), ((1, 64), 1)]
)
def test_image_of_exactly_the_limit_works(
    small: DressiAD, size: tuple[int, int], layers: int
) -> None:
    """(16, 30) x 8 is a grid: two layers a column."""
    v = Variable(FLOAT, size, layers, requires_grad=True)
    data = np.random.default_rng(0).normal(size=(layers, size[1], size[0], 1)).astype(np.float32)
    small.send_img(v, data)
    got = small.recv_img(v * 2.0 + F.to_float(F.layer_index(layers)))
    want = data * 2 + np.arange(layers).reshape(-1, 1, 1, 1)
    assert np.allclose(got.reshape(want.shape), want)


def test_neighbours_and_lookups_in_a_grid_of_layers(small: DressiAD) -> None:
    """Layers in several columns: borders stop at their layer, lookups find theirs."""
    from dressi import evaluate

    m = Variable(FLOAT, (16, 30), 8)
    i = Variable(INT, (16, 30), 8)
    rng = np.random.default_rng(1)
    feeds = {
        m: (rng.random((8, 30, 16, 1)) > 0.95).astype(np.float32),
        i: rng.integers(-1, 480, (8, 30, 16, 1)),
    }
    for v, a in feeds.items():
        small.send_img(v, a)
    for y in (
        F.image.border(m),
        F.image.dilate(m, 2.0, 4),
        F.lookup(m, i),
        F.sum(m, per_layer=True),
        F.sum_layers(m),
    ):
        want = evaluate([y], feeds)[0]
        assert np.allclose(small.recv_img(y).reshape(want.shape), want)


def test_device_limit_plus_1_is_an_error_before_anything_is_drawn(ad: DressiAD) -> None:
    most = ad.limits.image_dim
    v = Variable(FLOAT, (most + 1, 2), name="huge")
    got = message(lambda: ad.send_img(v, np.zeros((2, most + 1), np.float32)))
    assert f"{most}x{most}" in got and "huge" in got


def test_memory_that_is_not_there(ad: DressiAD) -> None:
    """Values of 1 GB each, all alive at once, twice as many as the largest heap holds: an error
    with both numbers, and the engine goes on."""
    from dressi import OutOfMemoryError

    side = min(ad.limits.image_dim, 16384)
    n = 2 * max(ad.runtime.device.memory._heap_sizes) // (4 * side**2) + 2
    values = [F.image.border(F.pixel_coord((side, side)).x * float(k)) for k in range(2, 2 + n)]
    together = values[0]
    for v in values[1:]:
        together = F.image.border(together) + v  # each of them waits for the one before
    with pytest.raises(OutOfMemoryError) as info:
        ad.recv_img(F.sum(F.image.border(together) + F.add_n(values)))
    assert info.value.needed > info.value.available > 0
    x = Variable(FLOAT, (2, 2))
    ad.send_img(x, np.ones((2, 2)))
    assert (ad.recv_img(x * 2.0) == 2).all()


def test_the_engine_works_after_all_of_this(ad: DressiAD) -> None:
    x = Variable(FLOAT, (3, 2), requires_grad=True)
    ad.send_img(x, np.full((2, 3), 4.0))
    ad.set_loss_var(x * x)
    ad.set_optimizer(SGD(0.25))
    ad.exec_step()
    assert (ad.recv_img(x) == 2).all()


def test_fork_is_refused_with_a_clear_error() -> None:
    """A forked child that uses the parent's device would hang at its first fence."""
    import os
    import warnings

    x = Variable(FLOAT, (3, 2))
    with DressiAD() as ad:
        ad.send_img(x, np.ones((2, 3)))
        ad.recv_img(x * 2.0)
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pid = os.fork()
        if pid == 0:
            try:
                ad.recv_img(x * 2.0)
                os.write(write, b"no error")
            except DeviceError as error:
                os.write(write, str(error).encode()[:200])
            except BaseException as error:
                os.write(write, f"other: {error!r}".encode()[:200])
            os._exit(0)
        os.close(write)
        import select

        ready, _, _ = select.select([read], [], [], 20)
        if not ready:
            os.kill(pid, 9)
        text = os.read(read, 300).decode() if ready else "hangs"
        os.waitpid(pid, 0)
        os.close(read)
        assert "fork" in text, text
