"""``dressi bench torch``: a step of a layer under PyTorch beside a native step of the same fit.

A step is a whole iteration on the vertices of a sphere by its silhouette in one view: forward,
mean squared difference, backward, Adam. Natively all of it is one submit. With the layer the
silhouette comes from Dressi, and loss, backward and optimizer are torch's; ``torch_ms`` is what
torch needs for those: the same loop with a function in place of the layer that has nothing to do.
On the CPU it runs behind a native step, which is what a layer does to it: a driver on the same
processors leaves nothing of torch's in their caches, and the same loop takes a third or a quarter
of the time by itself. The steps take turns. Where torch has CUDA, its tensors lie there.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.optim import Adam
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC3
from dressi.apps.bench.common import Copies, Settings, Table
from dressi.apps.bench.steps import bumpy
from dressi.apps.problems import Bumpy
from dressi.apps.timing import Steps, alternating_ms
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.render.raster import build_hardsoftras
from dressi.render.scene import Mesh
from dressi.testing.problems import hard_silhouettes, sphere, squashed, view_matrices

COLUMNS = (
    "case",
    "native_ms",
    "layer_ms",
    "torch_ms",
    "ratio",
    "ratio_with_torch",
    "ratio_to_sum",
    "cpu_ratio",
    "way",
    "copy_ms",
)
SIZES, SMOKE_SIZES = (64, 128, 256, 512), (32,)
N_FACES, SMOKE_FACES = 1280, 80
REACH = 0.05
RATE = 1e-4  # the shape, and so the work of a step, hardly changes while it is timed
ROUNDS, CUDA_ROUNDS, SMALL_ROUNDS = 25, 10, 2
AT_MOST = 1.15
"""Ratio of a layer's step, without torch's own share, to a native one, at most."""
MESHES = (682, 51414)
"""Faces of the meshes of the data folder."""
MESH_SIZES, CUDA_SIZES = (256, 512), (256, 512, 1024, 2048)
CUDA_BURST = 10
"""Steps between two looks at the clock where torch does not wait for its own."""
CUDA_AT_MOST = 1.3
"""Ratio of a layer's step on CUDA to a native one and torch's own share together, at most."""


class LayerStep:
    """Steps of a layer: Dressi's silhouette, the rest by torch. matrices: (1, 4, 4). device: of the
    tensors."""

    def __init__(
        self, mesh: Mesh, matrices: np.ndarray, target: np.ndarray, ad: DressiAD, device: str
    ) -> None:
        import torch

        from dressi.torch import compile

        size = target.shape[1]

        def silhouette(pos: Variable, faces: Variable, matrix: Variable) -> Variable:
            return build_hardsoftras(pos, faces, matrix, (size, size), REACH).silhouette

        pos = torch.as_tensor(mesh.positions, dtype=torch.float32).clone()
        constants = {
            "faces": torch.as_tensor(mesh.faces.astype(np.int64)),
            "matrix": torch.as_tensor(matrices, dtype=torch.float32),
        }
        self.layer = compile(
            silhouette,
            inputs={"matrix": MAT4},
            parameters={"pos": pos},
            constants=constants,
            ad=ad,
        ).to(device)
        self._target = torch.as_tensor(target, dtype=torch.float32, device=device)
        self._optimizer = torch.optim.Adam(self.layer.parameters(), lr=RATE)

    def exec_step(self) -> None:
        """Run one iteration."""
        self._optimizer.zero_grad()
        (self.layer() - self._target).square().mean().backward()
        self._optimizer.step()


class TorchStep:
    """What torch does in such a step: all of it, with a function in place of the layer whose
    picture and gradient are there already."""

    def __init__(self, mesh: Mesh, target: np.ndarray, device: str) -> None:
        import torch

        self._target = torch.as_tensor(target, dtype=torch.float32, device=device)
        pos = torch.as_tensor(mesh.positions, dtype=torch.float32, device=device).clone()
        self._pos = torch.nn.Parameter(pos)
        self._layer = _stand_in(torch.zeros_like(self._target), torch.ones_like(pos))
        self._optimizer = torch.optim.Adam([self._pos], lr=RATE)

    def exec_step(self) -> None:
        """Run it once."""
        self._optimizer.zero_grad()
        (self._layer(self._pos) - self._target).square().mean().backward()
        self._optimizer.step()


def _stand_in(picture: Any, gradient: Any) -> Callable[[Any], Any]:
    """Return a function of a tensor that returns a picture and has a gradient, of no work."""
    import torch

    class StandIn(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, pos: Any) -> Any:
            ctx.save_for_backward(pos)
            return picture.detach()

        @staticmethod
        def backward(ctx: Any, upstream: Any) -> Any:
            return gradient

    return cast(Callable[[Any], Any], StandIn.apply)


class InTurn:
    """A step of each, one after the other."""

    def __init__(self, *steps: Steps) -> None:
        self._steps = steps

    def exec_step(self) -> None:
        """Run them."""
        for one in self._steps:
            one.exec_step()


class Burst:
    """Several steps, and a wait for the card."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def exec_step(self) -> None:
        """Run them."""
        import torch

        for _ in range(CUDA_BURST):
            self._steps.exec_step()
        torch.cuda.synchronize()


def native(mesh: Mesh, matrices: np.ndarray, target: np.ndarray, ad: DressiAD) -> None:
    """Set up the same fit on an engine."""
    size = target.shape[1]
    pos = Variable(VEC3, (len(mesh.positions), 1), requires_grad=True, name="pos")
    faces = Variable(IVEC3, (len(mesh.faces), 1), name="faces")
    matrix = Variable(MAT4, name="matrix")
    wanted = Variable(FLOAT, (size, size), name="target")
    picture = build_hardsoftras(pos, faces, matrix, (size, size), REACH).silhouette
    difference = picture - wanted
    ad.set_loss_var(F.mean(difference * difference))
    ad.set_optimizer(Adam(RATE))
    data = {pos: mesh.positions, faces: mesh.faces, matrix: matrices[0], wanted: target}
    for leaf, value in data.items():
        ad.send_img(leaf, value)


def measure_size(
    size: int, settings: Settings, copies: Copies, data: Bumpy | None = None, device: str = "cpu"
) -> dict[str, Any]:
    """Return one row. data: a mesh; default a sphere. device: of torch's tensors."""
    mesh, matrices = sphere(SMOKE_FACES if settings.smoke else N_FACES), view_matrices(1)
    shape = squashed(mesh)
    if data is not None:
        mesh, shape, matrices = data.mesh, data.target, data.matrices[:1]
    target = hard_silhouettes(shape, matrices, size, settings.device)
    rounds = ROUNDS if device == "cpu" else CUDA_ROUNDS
    rounds = SMALL_ROUNDS if settings.smoke else rounds
    before = copies.measure()
    with DressiAD(settings.device) as ad, DressiAD(settings.device) as own:
        native(mesh, matrices, target, ad)
        layer = LayerStep(mesh, matrices, target, own, device)
        of_torch = TorchStep(mesh, target, device)
        if device == "cpu":
            found = _figures([ad, layer, InTurn(ad, of_torch)], rounds)
        else:
            burst = [Burst(s) for s in (ad, layer, of_torch)]
            times = [t / CUDA_BURST for t in alternating_ms(burst, rounds)]
            found = _ratios(times[0], times[1], times[0] + times[2])
        way = _way(own, device)
    return {
        "case": f"silhouette 1 x {size}, {len(mesh.faces)} faces",
        "size": size,
        "way": way,
        **found,
        "copy_ms": (before + copies.measure()) / 2,
    }


def _figures(steps: Sequence[Steps], rounds: int) -> dict[str, float]:
    """The figures of a native step, that of a layer, and a native one with torch's share behind it;
    also by the processor time of all threads."""
    of_cpu = _ratios(*alternating_ms(steps, rounds, clock=time.process_time))
    return {**_ratios(*alternating_ms(steps, rounds, warm_up=0)), "cpu_ratio": of_cpu["ratio"]}


def _ratios(native: np.ndarray, layer: np.ndarray, both: np.ndarray) -> dict[str, float]:
    """Medians over the rounds. both: a native step and torch's share."""
    return {
        "native_ms": float(np.median(native)),
        "layer_ms": float(np.median(layer)),
        "torch_ms": float(np.median(both - native)),
        "ratio": float(np.median((layer - (both - native)) / native)),
        "ratio_with_torch": float(np.median(layer / native)),
        "ratio_to_sum": float(np.median(layer / both)),
    }


def _way(ad: DressiAD, device: str) -> str:
    """How tensors got to the engine."""
    import torch

    from dressi.torch.share import share_of

    if device == "cpu":
        return "memory of the host"
    shared = share_of(ad, torch.device(device)) is not None
    return "memory of the card" if shared else "copies through the host"


def is_available() -> bool:
    """Whether torch is installed."""
    return importlib.util.find_spec("torch") is not None


def measure(settings: Settings, copies: Copies) -> Table:
    """Return all rows. Raises DressiError where torch is not installed."""
    if not is_available():
        raise DressiError("bench torch needs PyTorch\n  hint: pip install 'dressi[torch]'")
    import torch

    sizes, n_threads = SMOKE_SIZES if settings.smoke else SIZES, torch.get_num_threads()
    torch.set_num_threads(1)  # more of them wait for the cores that a driver on the CPU uses
    try:
        rows = [measure_size(size, settings, copies) for size in sizes]
        if not settings.smoke:
            meshes = [_mesh(settings, n) for n in MESHES]
            rows += [measure_size(s, settings, copies, m) for m in meshes for s in MESH_SIZES]
        on_cuda = _on_cuda(settings, copies) if torch.cuda.is_available() else []
    finally:
        torch.set_num_threads(n_threads)
    holds = [(f"ratio of every size <= {AT_MOST}", all(row["ratio"] <= AT_MOST for row in rows))]
    if on_cuda:
        fit = all(row["ratio_to_sum"] <= CUDA_AT_MOST for row in on_cuda)
        holds.append((f"ratio_to_sum of every size on CUDA <= {CUDA_AT_MOST}", fit))
    return Table(COLUMNS, [*rows, *on_cuda], holds)


def _on_cuda(settings: Settings, copies: Copies) -> list[dict[str, Any]]:
    """Rows with the tensors on CUDA's first card."""
    if settings.smoke:
        return [measure_size(SMOKE_SIZES[0], settings, copies, device="cuda:0")]
    meshes = [_mesh(settings, n) for n in MESHES]
    return [measure_size(s, settings, copies, m, "cuda:0") for m in meshes for s in CUDA_SIZES]


def _mesh(settings: Settings, n_faces: int) -> Bumpy:
    """A mesh of the data folder; without that a sphere of about as many faces."""
    name = f"t1_{n_faces}.npz"
    if (settings.data_dir / name).is_file():
        return bumpy(settings, name)
    mesh = sphere(n_faces)
    return Bumpy(mesh, squashed(mesh), view_matrices(1))
