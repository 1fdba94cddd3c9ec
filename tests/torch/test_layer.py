"""``dressi.torch.compile``: values and gradients beside torch's own, shapes, what is refused."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from typing import Any

import numpy as np
import pytest

from dressi import FLOAT, INT, IVEC3, MAT3, MAT4, VEC3, DressiAD, F, Variable
from dressi.errors import DressiWarning, GraphError
from dressi.render.camera import ring
from dressi.render.raster import build_hardsoftras
from dressi.render.scene import icosphere

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dressi.torch import Input, compile, engine  # noqa: E402

pytestmark = pytest.mark.gpu
SIZE = (32, 24)
SPHERE = icosphere(1)


def silhouette(pos: Variable, faces: Variable, matrix: Variable) -> Variable:
    return build_hardsoftras(pos, faces, matrix, SIZE, r=0.1).silhouette


def wave(x: Variable, gain: Variable) -> Variable:
    return F.sin(x) * gain


def tensor(*shape: int, seed: int = 0, grad: bool = True) -> torch.Tensor:
    values = np.random.default_rng(seed).uniform(0.2, 1.0, shape).astype(np.float32)
    return torch.from_numpy(values).requires_grad_(grad)


def matrices(n: int = 2) -> torch.Tensor:
    stacked = np.stack([c.matrix for c in ring(n, distance=4.0)])
    return torch.as_tensor(stacked, dtype=torch.float32)


def positions() -> torch.Tensor:
    return torch.tensor(SPHERE.positions, dtype=torch.float32)


def faces() -> torch.Tensor:
    return torch.as_tensor(SPHERE.faces.astype(np.int64))


def close(a: torch.Tensor | None, b: torch.Tensor | None) -> None:
    assert a is not None and b is not None
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)  # float32, a handful of ops


# -- values and gradients


def test_values_and_gradients_are_those_of_torch() -> None:
    layer = compile(wave)
    x, gain = tensor(6, 8, 3), torch.tensor(2.0, requires_grad=True)
    got = layer(x, gain)
    expected = torch.sin(x) * gain
    close(got, expected)
    ours = torch.autograd.grad((got**2).sum(), (x, gain))
    theirs = torch.autograd.grad((expected**2).sum(), (x, gain))
    for a, b in zip(ours, theirs, strict=True):
        close(a, b)


def test_gradcheck_of_torch() -> None:
    """By torch.autograd.gradcheck, with tolerances for float32."""
    layer = compile(_two_outputs, inputs={"m": MAT3})
    x, m = tensor(2, 3, 3), tensor(3, 3, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it would rather have float64
        assert torch.autograd.gradcheck(
            lambda x, m: tuple(layer(x, m)), (x, m), eps=1e-2, atol=1e-2, rtol=1e-2, nondet_tol=1e-4
        )


def _two_outputs(x: Variable, m: Variable) -> tuple[Variable, Variable]:
    return F.exp(m @ x), F.sum(F.dot(x, x))


def test_silhouette_has_the_gradient_of_a_native_fit() -> None:
    layer = compile(silhouette, inputs={"matrix": MAT4})
    pos, weight = positions().requires_grad_(), tensor(2, 24, 32, 1, grad=False)
    (layer(pos, faces(), matrices()) * weight).sum().backward()
    leaves = [
        Variable(VEC3, (len(pos), 1)),
        Variable(IVEC3, (len(SPHERE.faces), 1)),
        Variable(MAT4, layers=2),
        Variable(FLOAT, SIZE, 2),
    ]
    with DressiAD() as ad:
        data = (SPHERE.positions, SPHERE.faces, matrices().numpy(), weight.numpy())
        for leaf, value in zip(leaves, data, strict=True):
            ad.send_img(leaf, value)
        ad.set_loss_var(F.sum(silhouette(*leaves[:3]) * leaves[3]))
        expected = ad.recv_grad(leaves[0])
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(pos.grad.numpy(), expected, rtol=1e-5, atol=1e-5 * scale)


def test_a_fit_converges() -> None:
    layer = compile(
        silhouette,
        inputs={"matrix": MAT4},
        parameters={"pos": positions()},
        constants={"faces": faces(), "matrix": matrices()},
    )
    with torch.no_grad():
        target = layer()
        layer.pos *= 0.8
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = (layer() - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


# -- shapes and forms


def test_nchw_is_nhwc_moved() -> None:
    one, other = compile(_scaled), compile(_scaled, layout="NCHW")
    x = tensor(2, 4, 5, 3)
    moved = x.detach().movedim(-1, 1).clone().requires_grad_()
    a, b = one(x), other(moved)
    assert b.shape == (2, 3, 4, 5)
    close(a.movedim(-1, 1), b)
    a.square().sum().backward()
    b.square().sum().backward()
    close(x.grad.movedim(-1, 1), moved.grad)


def _scaled(x: Variable) -> Variable:
    return x * 3.0


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((), FLOAT),
        ((3,), Input()),
        ((2, 3), "value"),
        ((7, 3), "table"),
        ((1, 3), Input()),
        ((2, 7, 3), "table"),
        ((4, 5, 2), Input()),
        ((1, 4, 5, 2), Input()),
        ((3, 4, 5, 2), "image"),
        ((3, 3), MAT3),
        ((2, 3, 3), MAT3),
        ((5, 3, 3), Input(MAT3, "table")),
    ],
)
def test_shapes_come_back_as_they_went(shape: tuple[int, ...], said: object) -> None:
    x = tensor(*shape)
    y = compile(_scaled, inputs={"x": said})(x)
    assert y.shape == (shape if shape != (1, 3) else (3,))  # a table of one row is a value
    close(y.reshape(shape), x * 3.0)
    y.sum().backward()
    close(x.grad, torch.full(shape, 3.0))


def test_outputs_by_name_and_as_a_sequence() -> None:
    x = tensor(2, 2, 1)
    named = compile(lambda x: {"twice": x * 2.0, "mean": F.mean(x)})(x)
    assert list(named) == ["twice", "mean"] and named["mean"].shape == ()
    listed = compile(lambda x: [x * 2.0, F.mean(x)])(x)
    assert isinstance(listed, tuple)
    close(listed[1], x.mean())


def test_integers_go_in_and_come_out() -> None:
    layer = compile(lambda t, i: (F.lookup(t, i), i))
    t, i = tensor(5, 3), torch.tensor([[4], [0]])
    rows, same = layer(t, i)
    assert same.dtype == torch.int32 and not same.requires_grad and same.tolist() == [[4], [0]]
    rows.sum().backward()
    close(t.grad, torch.tensor([1.0, 0, 0, 0, 1.0])[:, None].expand(5, 3))
    close(layer(t, torch.tensor([[1], [1]]))[0], t[[1, 1]])


def test_capacity_serves_any_number_of_rows_without_a_build() -> None:
    """Padded faces are points at vertex 0: they draw nothing and add no gradient."""
    said = {"pos": Input(VEC3, capacity=200), "faces": Input(IVEC3, capacity=400)}
    padded = compile(silhouette, inputs={**said, "matrix": MAT4})
    exact = compile(silhouette, inputs={"matrix": MAT4})
    for mesh in (icosphere(1), icosphere(2)):
        data = torch.tensor(mesh.positions, dtype=torch.float32)
        p, q = data.clone().requires_grad_(), data.clone().requires_grad_()
        index = torch.as_tensor(mesh.faces.astype(np.int64))
        a, b = padded(p, index, matrices()), exact(q, index, matrices())
        torch.testing.assert_close(a, b, rtol=0, atol=0)
        a.square().sum().backward()
        b.square().sum().backward()
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-5, atol=1e-4)  # gradients of about 10
    assert padded.n_graphs == 1 and exact.n_graphs == 2


def test_capacity_comes_with_a_count() -> None:
    layer = compile(_mean_of_rows, inputs={"t": Input(capacity=10)})
    for n in (3, 10, 1):
        t = tensor(n, 3, seed=n)
        mean = layer(t)
        close(mean, t.mean(0))
        mean.sum().backward()
        close(t.grad, torch.full((n, 3), 1 / n))
    assert layer.n_graphs == 1
    with pytest.raises(GraphError, match=r"'t' .*has 11 rows, the capacity is 10"):
        layer(tensor(11, 3))


def _mean_of_rows(t: Variable, t_count: Variable) -> Variable:
    return F.sum(t) / F.to_float(t_count)


# -- under autograd


def test_two_calls_before_a_backward() -> None:
    """The second call's intermediates lie on the device: the first one's are computed again."""
    layer = compile(wave)
    x, y, gain = tensor(4, 4, 1), tensor(4, 4, 1, seed=1), torch.tensor(2.0)
    (layer(x, gain).square().sum() + layer(y, gain).square().sum()).backward()
    for t in (x, y):
        close(t.grad, 4 * (2 * torch.sin(t) * torch.cos(t)))


def test_a_layer_behind_itself() -> None:
    layer = compile(wave)
    x, gain = tensor(4, 4, 1), torch.tensor(0.5, requires_grad=True)
    got = torch.autograd.grad(layer(layer(x, gain), gain).sum(), (x, gain))
    expected = torch.autograd.grad((torch.sin(torch.sin(x) * gain) * gain).sum(), (x, gain))
    for a, b in zip(got, expected, strict=True):
        close(a, b)


def test_gradients_accumulate_and_graphs_may_be_kept() -> None:
    layer, x, gain = compile(wave), tensor(4, 4, 1), torch.tensor(1.0)
    loss = layer(x, gain).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    layer(x, gain).sum().backward()
    close(x.grad, 3 * torch.cos(x))


def test_checkpoints() -> None:
    from torch.utils.checkpoint import checkpoint

    layer, gain = compile(wave), torch.tensor(1.0)
    for reentrant in (False, True):
        x = tensor(4, 4, 1)
        out = checkpoint(lambda x: layer(layer(x, gain), gain), x, use_reentrant=reentrant)
        out.sum().backward()
        close(x.grad, torch.cos(torch.sin(x)) * torch.cos(x))


def test_no_backward_program_where_none_is_needed() -> None:
    layer, x, gain = compile(wave), tensor(4, 4, 1), torch.tensor(1.0)
    with torch.no_grad():
        assert not layer(x, gain).requires_grad
    with torch.inference_mode():
        assert not layer(x, gain).requires_grad
    layer(x.detach(), gain)
    before = engine().n_rebuilds
    layer(x, gain).sum().backward()  # to x alone
    assert engine().n_rebuilds == before + 2  # a forward and a backward plan
    layer(x, gain.requires_grad_()).sum().backward()
    assert engine().n_rebuilds == before + 4


def test_inputs_that_were_written_to_are_noticed() -> None:
    layer, gain = compile(wave), torch.tensor(1.0)
    x = tensor(4, 4, 1)
    y = x * 1.0
    out = layer(y, gain)
    y += 1.0
    with pytest.raises(RuntimeError, match="inplace"):
        out.sum().backward()


def test_inputs_without_a_gradient_are_sent_where_their_values_changed() -> None:
    """Also where they were written in place behind torch's back, by NumPy, and only the sign of a
    zero differs."""
    layer, x = compile(lambda x, k: x * F.to_float(k)), tensor(2, 2, 1, grad=False)
    numbers = np.array([3])
    k = torch.from_numpy(numbers)
    for value in (3, 3, -2):
        numbers[0] = value
        close(layer(x, k), x * value)
    for zero in (0.0, -0.0, 0.0):
        signs = torch.signbit(layer(torch.full((2, 2, 1), zero), torch.tensor([1])))
        assert bool(signs.all()) == bool(np.signbit(zero))


def test_second_derivatives_are_refused() -> None:
    layer, x = compile(wave), tensor(4, 4, 1)
    (g,) = torch.autograd.grad(layer(x, torch.tensor(1.0)).sum(), x, create_graph=True)
    close(g, torch.cos(x))
    with pytest.raises(GraphError, match="second derivatives"):
        g.sum().backward()


def test_threads_take_turns() -> None:
    """Each thread's values and gradients are its own."""
    layer, gain = compile(wave), torch.tensor(1.0)
    wrong: list[object] = []

    def work(seed: int) -> None:
        try:
            for k in range(10):
                x = tensor(4, 4, 1, seed=100 * seed + k)
                layer(x, gain).sum().backward()
                close(x.grad, torch.cos(x))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# -- graphs


def test_other_sizes_are_other_graphs_of_which_some_are_kept() -> None:
    layer = compile(_scaled, graphs=2)
    for n in (2, 3, 2, 4):
        layer(tensor(n, n, 1))
    assert layer.n_graphs == 2
    with pytest.warns(DressiWarning, match="more than 2 combinations of sizes in turn"):
        layer(tensor(3, 3, 1))
    layer(tensor(4, 4, 1))  # said once
    layer.close()
    assert layer.n_graphs == 0
    close(layer(x := tensor(2, 2, 1)), 3 * x)


def test_copies_and_pickles_build_their_own_graphs() -> None:
    layer = compile(_scaled, constants={}, parameters={"x": tensor(2, 2, 1)})
    out = layer()
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other.n_graphs == 0
        close(other(), out)


def test_state_dict_holds_parameters_and_constants() -> None:
    layer = compile(wave, parameters={"x": tensor(2, 2, 1)}, constants={"gain": 2.0})
    assert set(layer.state_dict()) == {"x", "gain"}
    other = compile(wave, parameters={"x": torch.zeros(2, 2, 1)}, constants={"gain": 0.0})
    other.load_state_dict(layer.state_dict())
    close(other(), layer())


def test_an_engine_of_ones_own() -> None:
    with DressiAD() as ad:
        x = tensor(2, 2, 1)
        close(compile(_scaled, ad=ad)(x), 3 * x)
        assert ad.n_rebuilds == 2


# -- errors


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.zeros(2, 2, 1, dtype=torch.float64), r"'x' \(float64 \(2, 2, 1\) on cpu\)"),
        (
            lambda: torch.zeros(2, 2, 1).half().requires_grad_(),
            "'x' .*requires_grad.*float32",
        ),
        (lambda: torch.zeros(2, 2, 5), r"'x' .*has 5 channels"),
        (lambda: torch.zeros(5), r"'x' .*has 5 channels, of 1 to 4\n.*\(N, 1\)"),
        (lambda: torch.zeros(1, 1, 2, 2, 1), r"'x' .*has 5 dimensions"),
        (lambda: torch.zeros(0, 3), r"'x' .*extent of 0"),
        (lambda: torch.zeros(2, 2, 1, device="meta"), r"'x' .*on meta.*dense tensor with data"),
        (lambda: torch.zeros(2, 2).to_sparse(), r"'x' .*dense tensor"),
        (lambda: torch.zeros(2, 2, 1, dtype=torch.complex64), r"'x' \(complex64"),
        (lambda: torch.full((2, 1), 2**40), r"'x' \(int64.*beyond 32 bits"),
        (lambda: np.zeros((2, 2, 1)), r"'x': needs a torch.Tensor, got ndarray"),
        (lambda: torch.full((2, 2, 1), float("nan")), r"x FLOAT@2x2: nan at index"),
    ],
)
def test_errors_name_the_argument(make: Any, message: str) -> None:
    layer = compile(_scaled)
    with pytest.raises(GraphError, match=message) as error:
        layer(make())
    assert "test_layer.py" in str(error.value)


@pytest.mark.parametrize(
    ("said", "shape", "message"),
    [
        (MAT3, (3, 4), r"MAT3 as value needs shape \(3, 3\)"),
        (INT, (2, 2, 1), "is to be INT: an integer has no gradient"),
        ("table", (2, 2, 2, 2), r"VEC2 as table needs shape \(N, 2\)"),
        (Input(form="image", capacity=3), (2, 2, 1), "a capacity belongs to a table"),
    ],
)
def test_errors_of_what_was_said(said: object, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        compile(_scaled, inputs={"x": said})(tensor(*shape))


def test_errors_of_calls() -> None:
    layer = compile(wave)
    x = tensor(2, 2, 1)
    for call, message in (
        (lambda: layer(x), "no tensor for 'gain'"),
        (lambda: layer(x, x, x), "3 tensors for the arguments x, gain"),
        (lambda: layer(x, x=x), "'x' is given twice"),
        (lambda: layer(x, other=x), "'other' is none of x, gain"),
        (lambda: compile(wave, inputs={"y": FLOAT}), "takes no 'y'"),
        (lambda: compile(wave, constants={"y": x}), "constants.*wave takes no 'y'"),
        (lambda: compile(wave, layout="CHW"), "layout must be one of"),
        (lambda: compile(wave, graphs=0), "graphs must be an integer"),
        (lambda: compile(3), "needs a function of Variables"),
        (lambda: compile(lambda *x: x[0]), "must take its arguments by name"),
        (lambda: compile(lambda x: 3)(x), "must return a Variable"),
        (lambda: compile(wave, inputs={"x": 3}), r"inputs\['x'\] must be an Input"),
        (lambda: Input(form="picture"), "form must be one of"),
        (lambda: Input(capacity=0), "capacity must be an integer"),
    ):
        with pytest.raises(GraphError, match=message):
            call()


def test_results_that_are_held_stay_what_they_were() -> None:
    """Memory of large results is used again, but not while a tensor, a view of it, an array, or a
    graph of autograd has it."""

    def scaled(x: Variable, a: Variable) -> Variable:
        return x * a

    layer = compile(scaled)
    x = torch.rand(128, 128, 3)
    held: list[tuple[float, object]] = []
    for k in range(1, 7):
        a = torch.tensor(float(k), requires_grad=True)
        picture = layer(x, a)
        held.append((k, (picture, picture[5:], picture.detach().numpy())[k % 3]))
        loss = picture.square().sum()  # keeps the picture for its gradient
        del picture
        layer(x, torch.tensor(100.0))
        loss.backward()
        want = 2 * k * float(x.double().square().sum())
        assert a.grad is not None and abs(a.grad.item() - want) < 1e-3 * want
    for k, got in held:
        want = (x * k)[5:] if k % 3 == 1 else x * k
        torch.testing.assert_close(torch.as_tensor(got), want, check_dtype=False)


def test_a_tensor_written_in_place_is_sent() -> None:
    """Also by NumPy, which no version counter sees; floats and integers, with a gradient or not."""

    def looked_up(table: Variable, index: Variable, x: Variable) -> Variable:
        return F.lookup(table, index) + x

    layer = compile(looked_up)
    table = torch.arange(12.0).reshape(4, 3)
    index = torch.tensor([[0], [3]])
    x = torch.zeros(2, 3, requires_grad=True)
    for step in range(4):
        got = layer(table, index, x)
        torch.testing.assert_close(got, table[index[:, 0]] + x)
        table.numpy()[step, :] += 10.0
        index.numpy()[0, 0] = step
        with torch.no_grad():
            x += 1.0
        x.data.numpy()[0] -= 0.5


def test_gradients_have_the_shapes_of_their_tensors() -> None:
    """Of layers whose calls are all alike from the second one on; upstream gradients may be
    expanded, or not contiguous."""

    def doubled(x: Variable, y: Variable) -> tuple[Variable, Variable]:
        return x * 2.0, y * 3.0

    layer = compile(doubled)
    x = torch.rand(1, 6, 5, 3, requires_grad=True)
    y = torch.rand(2, 7, 2).transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    for _ in range(3):
        a, b = layer(x, y)
        assert a.shape == x.shape and b.shape == (1, *y.shape)
        grads = torch.autograd.grad([a.sum(), (b.transpose(0, 2) ** 2).mean()], [x, y])
        torch.testing.assert_close(grads[0], torch.full_like(x, 2.0))
        torch.testing.assert_close(grads[1], 18.0 * y.detach() / y.numel())
