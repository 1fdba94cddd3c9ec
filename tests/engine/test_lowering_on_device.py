"""The two ways to run a graph give the same numbers: dispatches against subpasses, rasterization by
compute against the hardware's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dressi import SGD, DressiAD, F, Variable
from dressi.ad.vtype import FLOAT, VEC4
from dressi.errors import DeviceError, ValidationError
from dressi.packing import Options
from dressi.testing.problems import silhouette_problem, sphere, view_matrices
from dressi.vk import hazards

pytestmark = pytest.mark.gpu

COMPUTE, GRAPHICS = Options(lowering="compute"), Options(lowering="graphics")
ONE_ATOMIC: dict[str, int | bool] = {}
TWO_PASSES: dict[str, int | bool] = {"int64_atomics": False}


def corners(
    n: int, n_corners: int, layers: int, spread: float, w: tuple[float, float], seed: int
) -> list[np.ndarray]:
    """Random primitives in clip space; with w below 0 many cross the planes of the view volume."""
    rng = np.random.default_rng(seed)
    middle = rng.uniform(-1.1, 1.1, (layers, 1, n, 2))
    out = []
    for _ in range(n_corners):
        ws = rng.uniform(*w, (layers, 1, n, 1))
        xy = (middle + rng.normal(0, spread, (layers, 1, n, 2))) * np.maximum(np.abs(ws), 0.1)
        z = (
            rng.uniform(-0.3, 1.3, (layers, 1, n, 1))
            if w[0] < 0
            else ws * rng.uniform(0.01, 0.99, (layers, 1, n, 1))
        )
        out.append(np.concatenate([xy, z, ws], -1).astype(np.float32))
    return out


def drawn(
    data: Sequence[np.ndarray],
    size: tuple[int, int],
    options: Options,
    limits: dict[str, int | bool] | None = None,
    cull: str | None = None,
    scissor: Sequence[int] | None = None,
) -> np.ndarray:
    leaves = [F.leaf(a, VEC4) for a in data]
    frag = F.rasterize(leaves, size, cull=cull, scissor=scissor)
    # Not the order of drawing, and with many ties.
    depth = F.fract(F.floor(F.to_float(frag) * 0.5) * 0.618)
    keep = F.fract(F.to_float(frag) * 0.37) > 0.1
    ids = F.resolve(frag, depth, keep, background=-1)
    with DressiAD(options=options, limits=limits) as ad:
        return ad.recv_img(ids)


@pytest.mark.parametrize("limits", [ONE_ATOMIC, TWO_PASSES], ids=["one atomic", "two passes"])
@pytest.mark.parametrize(
    ("n", "n_corners", "layers", "size", "spread", "w", "cull"),
    [
        (300, 3, 2, (101, 37), 0.1, (1.0, 1.0), None),
        (100, 4, 3, (64, 64), 0.2, (0.3, 2.0), "back"),
        (40, 3, 1, (96, 80), 0.8, (-0.5, 2.0), "front"),
        (40, 4, 1, (80, 96), 0.5, (-0.5, 2.0), None),
    ],
    ids=["small", "quads, culled", "clipped, culled", "clipped quads"],
)
def test_compute_finds_the_primitives_of_the_hardware(
    n: int,
    n_corners: int,
    layers: int,
    size: tuple[int, int],
    spread: float,
    w: tuple[float, float],
    cull: str | None,
    limits: dict[str, int | bool],
) -> None:
    """Where hardware may differ, a snapped corner, is a pixel on an edge: at most one in 500."""
    data = corners(n, n_corners, layers, spread, w, n)
    want = drawn(data, size, GRAPHICS, cull=cull)
    got = drawn(data, size, COMPUTE, limits, cull)
    assert 0.02 < (want >= 0).mean() < 1  # there is something to see, and background
    assert (got != want).mean() <= 1 / 500
    assert ((got >= 0) != (want >= 0)).mean() <= 1 / 1000


def test_scissors_hold_in_compute() -> None:
    data = corners(60, 3, 1, 0.6, (1.0, 1.0), 3)
    rectangle = (10, 5, 30, 20)
    want = drawn(data, (64, 48), GRAPHICS, scissor=rectangle)
    got = drawn(data, (64, 48), COMPUTE, scissor=rectangle)
    assert (got != want).mean() <= 1 / 500 and (got[5:25, 10:40] >= 0).any()
    got[5:25, 10:40] = -1
    assert (got == -1).all()


@pytest.mark.parametrize("limits", [ONE_ATOMIC, TWO_PASSES], ids=["one atomic", "two passes"])
def test_adjacent_triangles_leave_no_holes_and_no_doubles(limits: dict[str, int | bool]) -> None:
    """A fan around a point, across the near plane: each pixel inside belongs to one triangle. The
    first and the last that cover a pixel are the same where there are no doubles."""
    n = 24
    angle = np.linspace(0, 2 * np.pi, n + 1)
    rim = np.stack([1.7 * np.cos(angle), 1.7 * np.sin(angle)], -1)
    w = 1.0 + 1.4 * rim[:, :1]  # below 0 on the left
    rim4 = np.concatenate([rim, 0.5 * w, w], -1)
    middle = np.broadcast_to([0.05, 0.02, 0.5, 1.0], (n, 4))
    data = [a.reshape(1, 1, n, 4).astype(np.float32) for a in (middle, rim4[:-1], rim4[1:])]
    leaves = [F.leaf(a, VEC4) for a in data]
    found = []
    for sign in (1.0, -1.0):
        frag = F.rasterize(leaves, (96, 96))
        depth = 0.5 + sign * (F.to_float(frag) - n / 2) / (4.0 * n)
        found.append(F.resolve(frag, depth, 1.0, background=-1))
    with DressiAD(options=COMPUTE, limits=limits) as ad:
        first, last = ad.recv_imgs(found)
    with DressiAD(options=GRAPHICS) as ad:
        want = ad.recv_img(found[0])
    assert (first == last).all()
    seen = first[..., 0] >= 0
    assert (seen != (want[..., 0] >= 0)).mean() < 1 / 1000 and 0.3 < seen.mean() < 1
    around = seen[:-2, 1:-1] & seen[2:, 1:-1] & seen[1:-1, :-2] & seen[1:-1, 2:]
    assert (seen[1:-1, 1:-1] | ~around).all()


@pytest.mark.parametrize("K", [1, 2])
def test_a_fit_takes_the_same_steps(K: int) -> None:
    """HardSoftRas, a loss, gradients and Adam, some steps: clean parts are cached on the way."""
    mesh, matrices, size = sphere(80), view_matrices(2), 32
    y, x = (np.mgrid[:size, :size] + 0.5) / size - 0.5
    disc = (x * x / 0.06 + y * y / 0.11 < 1).astype(np.float32)
    target = np.repeat(disc[None, ..., None], len(matrices), 0)
    results, kinds = [], []
    for options in (GRAPHICS, COMPUTE):
        problem = silhouette_problem(mesh, matrices, target, K)
        with DressiAD(options=options) as ad:
            problem.load(ad)
            for _ in range(12):
                ad.exec_step()
            results.append((ad.recv_img(problem.parameter), ad.recv_img(problem.loss)))
            kinds.append({s.kind for p in ad.plans.values() for s in p.stages})
    assert kinds == [{"graphics"}, {"compute"}]
    for a, b in zip(*results, strict=True):
        assert np.linalg.norm(a - b) <= 1e-6 * np.linalg.norm(b)


def test_dispatches_that_depend_on_each_other_are_kept_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: without the barriers, the validation layers speak up."""
    x = F.leaf(np.ones((16, 16, 1), np.float32), FLOAT)
    y = F.image.box_blur(F.image.box_blur(x, 1), 1)
    try:
        engine = DressiAD(options=COMPUTE, validate=True)
    except DeviceError as error:
        pytest.skip(f"no validation layers: {error}")
    with engine as ad:
        ad.recv_img(y)
    monkeypatch.setattr(hazards.Hazards, "may_join", lambda self, plan, stage: True)
    with (
        pytest.raises(ValidationError, match="SYNC-HAZARD"),
        DressiAD(options=COMPUTE, validate=True) as ad,
    ):
        ad.recv_img(y)


@pytest.mark.parametrize(
    ("choice", "kind"), [("off", "graphics"), ("llvmpipe", "graphics"), ("h200", "compute")]
)
def test_the_environment_names_a_profile(
    choice: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRESSI_PROFILE", choice)
    x = Variable(FLOAT, (8, 8), name="x")
    with DressiAD() as ad:
        ad.send_img(x, np.ones((8, 8, 1), np.float32))
        ad.set_loss_var(F.image.box_blur(x, 1))
        ad.exec_step()
        assert {s.kind for s in ad.plan.stages} == {kind}


def test_an_unknown_profile_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRESSI_PROFILE", "toaster")
    x = Variable(FLOAT, (8, 8), name="x")
    with DressiAD() as ad, pytest.raises(DeviceError, match=r"toaster.*llvmpipe"):
        ad.recv_img(x + 1.0)


def test_looking_leaves_what_dispatches_update_in_place_as_it_was() -> None:
    """Times of stages come from one more run, whose updates are taken back."""
    x = Variable(FLOAT, (16, 16), requires_grad=True)
    with DressiAD(options=COMPUTE) as ad:
        ad.send_img(x, np.linspace(0, 1, 256, dtype=np.float32).reshape(16, 16, 1))
        ad.set_loss_var(F.mean((x - 3.0) ** 2))
        ad.set_optimizer(SGD(lr=1.0))
        ad.exec_step()
        before = ad.recv_img(x)
        ad.stage_times_ms()
        assert (ad.recv_img(x) == before).all()
        ad.exec_step()
        assert (ad.recv_img(x) != before).any()


@pytest.mark.parametrize("size", [(70, 5), (1024, 16), (31, 3)], ids=str)
@pytest.mark.parametrize("subgroups", [True, False])
def test_masks_are_packed_alike(size: tuple[int, int], subgroups: bool) -> None:
    """By lanes together (all of a subgroup, or some missing) and by each alone; two layers."""
    data = np.random.default_rng(3).uniform(size=(2, size[1], size[0], 1)).astype(np.float32)
    words = F.bits.pack_bits(F.leaf(data, FLOAT), 0.5, below=True)
    limits: dict[str, int | bool] = {} if subgroups else {"subgroup_arithmetic": False}
    with DressiAD(options=COMPUTE, limits=limits) as ad:
        got = ad.recv_img(words)[..., 0]
    pad = np.zeros((2, size[1], -(-size[0] // 32) * 32), np.uint8)
    pad[:, :, : size[0]] = data[..., 0] <= 0.5
    want = np.packbits(pad, axis=-1, bitorder="little").view("<u4").view(np.int32)
    assert np.array_equal(got, want)
