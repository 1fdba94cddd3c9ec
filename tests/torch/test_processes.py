"""A layer in the workers of a DataLoader, what a process imports, and memory over many steps."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable

import pytest

from dressi import F, Variable
from dressi.errors import DeviceError
from dressi.testing.memory import resident_bytes

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.utils.data import DataLoader, Dataset  # noqa: E402

from dressi.torch import compile, engine  # noqa: E402

pytestmark = pytest.mark.gpu


def doubled(x: Variable) -> Variable:
    return x * 2.0


class Rendered(Dataset):
    """Pictures that a layer makes where they are asked for."""

    def __init__(self) -> None:
        self.layer = compile(doubled)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, k: int) -> torch.Tensor:
        with torch.no_grad():
            return self.layer(torch.full((2, 2, 1), float(k)))


def test_import_dressi_imports_no_torch() -> None:
    """Nor do its commands."""
    text = "import sys, dressi, dressi.cli, dressi.apps.bench; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], timeout=120).returncode == 0


def test_spawned_workers_open_devices_of_their_own() -> None:
    """The layer travels to them without its graphs."""
    data = Rendered()
    data.layer(torch.zeros(2, 2, 1))  # the device of this process is open
    loader = DataLoader(data, batch_size=2, num_workers=1, multiprocessing_context="spawn")
    got = torch.cat(list(loader))
    assert got[:, 0, 0, 0].tolist() == [0.0, 2.0, 4.0, 6.0]


@pytest.mark.skipif(sys.platform != "linux", reason="fork is the default on Linux alone")
def test_a_forked_worker_says_why_it_cannot() -> None:
    engine()
    loader = DataLoader(Rendered(), num_workers=1, multiprocessing_context="fork")
    with pytest.raises(DeviceError, match=r"forked child(.|\n)*multiprocessing_context='spawn'"):
        list(loader)


def growth(step: Callable[[], None], n: int) -> int:
    """Bytes that n steps add to this process, after as many that are not counted."""
    for _ in range(n):
        step()
    gc.collect()
    before = resident_bytes()
    for _ in range(n):
        step()
    gc.collect()
    return resident_bytes() - before


@pytest.mark.slow
def test_steps_leak_neither_host_nor_device_memory() -> None:
    """300 steps with two calls each, one of a size that keeps changing. A step that kept a picture
    would add 300 x 64 KB; what the allocators keep is much less than the half of that."""
    layer = compile(wave, graphs=4)
    gain = torch.nn.Parameter(torch.tensor(1.0))

    def step() -> None:
        x = torch.rand(128, 128, 1, requires_grad=True)
        (layer(x, gain).sum() + layer(x * 2, gain).sum()).backward()

    handles = []
    for _ in range(2):
        grown = growth(step, 300)
        step()  # a call frees what the collector found
        handles.append((engine().device.live_handles(), engine().memory().used))
    assert grown < 9 << 20
    assert handles[0] == handles[1]


def wave(x: Variable, gain: Variable) -> Variable:
    return F.sin(x) * gain


@pytest.mark.slow
def test_graphs_that_are_dropped_leave_nothing() -> None:
    """Sizes in turn, more than are kept: plans, images and leaves of the others go."""
    layer = compile(wave, graphs=2)
    gain = torch.nn.Parameter(torch.tensor(1.0))

    def turn() -> None:
        for n in (4, 5, 6):
            layer(torch.rand(n, n, 1, requires_grad=True), gain).sum().backward()

    used = []
    with pytest.warns(UserWarning, match="combinations of sizes in turn"):
        for _ in range(5):
            turn()
            gc.collect()
            engine().recv_img(list(layer._graphs.values())[-1].compiled.inputs[1])
            handles = engine().device.live_handles()
            used.append((handles["VkPipeline"], handles["VkImage"], engine().memory().used))
    assert used[1] == used[2] == used[4]
