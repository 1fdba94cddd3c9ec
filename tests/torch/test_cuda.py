"""dressi.torch with tensors on CUDA and Dressi on the same card. Skipped where there is no CUDA."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA", allow_module_level=True)

import dressi.torch.nvdiffrast as dr  # noqa: E402
from dressi import MAT4, DressiAD, Variable  # noqa: E402
from dressi.render.raster import build_hardsoftras  # noqa: E402
from dressi.render.scene import icosphere  # noqa: E402
from dressi.testing.problems import view_matrices  # noqa: E402
from dressi.torch import Layer, compile, engine  # noqa: E402
from dressi.torch.share import _opened, share_of  # noqa: E402

CUDA = torch.device("cuda:0")
pytestmark = pytest.mark.filterwarnings("ignore:Synchronization debug mode")


@pytest.fixture(autouse=True)
def _no_waiting_left() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


def _layer(ad: DressiAD | None = None) -> Layer:
    mesh = icosphere(2)

    def silhouette(pos: Variable, faces: Variable, matrix: Variable) -> Variable:
        return build_hardsoftras(pos, faces, matrix, (96, 64), r=0.05).silhouette

    constants = {
        "faces": torch.tensor(mesh.faces.astype(np.int64)),
        "matrix": torch.tensor(view_matrices(3), dtype=torch.float32),
    }
    parameters = {"pos": torch.tensor(mesh.positions, dtype=torch.float32)}
    return compile(
        silhouette, inputs={"matrix": MAT4}, parameters=parameters, constants=constants, ad=ad
    )


def _fit(layer: Layer, device: torch.device, n: int) -> list[torch.Tensor]:
    layer = layer.to(device)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    with torch.no_grad():
        target = layer() * 0.7
    found = []
    for _ in range(n):
        optimizer.zero_grad()
        loss = (layer() - target).square().mean()
        loss.backward()
        optimizer.step()
        found += [loss.detach(), layer.pos.grad.clone()]
    return [t.cpu() for t in found]


def test_the_card_is_shared() -> None:
    found = _opened(engine(), CUDA)
    assert not isinstance(found, str), found


def test_a_fit_on_the_card_is_that_on_the_host() -> None:
    with DressiAD() as one, DressiAD() as two:
        got, want = _fit(_layer(one), CUDA, 10), _fit(_layer(two), torch.device("cpu"), 10)
        assert share_of(one, CUDA) is not None
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=1e-6)  # sums in another order, ten steps


def test_a_step_never_waits_for_the_card_by_torch() -> None:
    layer = _layer().to(CUDA)
    target = torch.zeros(3, 64, 96, 1, device=CUDA)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (layer() - target).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    first = [step() for _ in range(3)]
    torch.cuda.set_sync_debug_mode("error")
    last = [step() for _ in range(20)]
    torch.cuda.set_sync_debug_mode("default")
    assert last[-1].item() < first[0].item()


def test_streams_that_take_turns_see_whole_pictures() -> None:
    layer = _layer().to(CUDA)
    with torch.no_grad():
        layer()
        for k in range(20):
            with torch.cuda.stream(torch.cuda.Stream()):
                layer.pos.mul_(0.99)
                picture = layer()
                total = picture.sum()
            torch.cuda.synchronize()
            again = layer().sum()
            assert torch.allclose(total, again, rtol=1e-5), k


def _scene(device: torch.device) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    mesh = icosphere(1)
    pos = torch.tensor(np.c_[mesh.positions * 0.7, np.ones(len(mesh.positions))]).float()[None]
    uv = torch.rand(len(mesh.positions), 2, generator=generator)
    tex = torch.rand(1, 16, 16, 3, generator=generator)
    tri = torch.tensor(mesh.faces.astype(np.int32))
    return {n: t.to(device) for n, t in (("pos", pos), ("uv", uv), ("tex", tex), ("tri", tri))}


def _draw(scene: dict[str, torch.Tensor], glctx: Any) -> list[torch.Tensor]:
    pos, uv, tex = (scene[n].clone().requires_grad_() for n in ("pos", "uv", "tex"))
    tri = scene["tri"]
    rast, rast_db = dr.rasterize(glctx, pos, tri, resolution=[48, 64])
    coords, d = dr.interpolate(uv, rast, tri, rast_db=rast_db, diff_attrs="all")
    color = dr.texture(tex, coords, d, filter_mode="linear-mipmap-linear", max_mip_level=3)
    picture = dr.antialias(color, rast, pos, tri)
    picture.square().mean().backward()
    return [picture.detach(), pos.grad, uv.grad, tex.grad]


def test_the_four_functions_on_the_card_are_those_on_the_host() -> None:
    glctx = dr.RasterizeCudaContext()
    scene = _scene(CUDA)
    want = _draw(_scene(torch.device("cpu")), glctx)
    for _ in range(2):
        got = _draw(scene, glctx)
        for a, b in zip(got, want, strict=True):
            assert a.device == CUDA
            torch.testing.assert_close(a.cpu(), b, rtol=1e-3, atol=1e-6)


def test_layers_that_come_and_go_leave_no_memory() -> None:
    """Counts of this process alone: others may use the card."""
    with DressiAD() as ad:
        found = []
        for _ in range(6):
            _fit(_layer(ad), CUDA, 2)
            gc.collect()
            ad.runtime.enter()
            handles = ad.runtime.device.live_handles()
            found.append((handles["VkBuffer"], handles["VkImage"], torch.cuda.memory_allocated()))
        assert found[2:] == [found[2]] * 4
