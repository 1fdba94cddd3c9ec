"""``dressi bench torch``: a step of a layer under PyTorch beside a native step of the same fit.

A step is a whole iteration on the vertices of a sphere by its silhouette in one view: forward,
mean squared difference, backward, Adam. Natively all of it is one submit. With the layer the
silhouette comes from Dressi, and loss, backward and optimizer are torch's; ``torch_ms`` is what
torch needs for those alone. The steps take turns.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.optim import Adam
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC3
from dressi.apps.bench.common import Copies, Settings, Table
from dressi.apps.timing import Steps, alternating_ms
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.render.raster import build_hardsoftras
from dressi.render.scene import Mesh
from dressi.testing.problems import hard_silhouettes, sphere, squashed, view_matrices

COLUMNS = ("case", "native_ms", "layer_ms", "torch_ms", "ratio", "ratio_with_torch", "copy_ms")
SIZES, SMOKE_SIZES = (64, 128, 256, 512), (32,)
N_FACES, SMOKE_FACES = 1280, 80
REACH = 0.05
RATE = 1e-4  # the shape, and so the work of a step, hardly changes while it is timed
ROUNDS, SMALL_ROUNDS = 25, 2
AT_MOST = 1.15
"""Ratio of a layer's step, without torch's own share, to a native one, at most."""


class LayerStep:
    """Steps of a layer: Dressi's silhouette, the rest by torch. matrices: (1, 4, 4)."""

    def __init__(self, mesh: Mesh, matrices: np.ndarray, target: np.ndarray, ad: DressiAD) -> None:
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
        )
        self._target = torch.as_tensor(target, dtype=torch.float32)
        self._optimizer = torch.optim.Adam(self.layer.parameters(), lr=RATE)

    def exec_step(self) -> None:
        """Run one iteration."""
        self._optimizer.zero_grad()
        (self.layer() - self._target).square().mean().backward()
        self._optimizer.step()


class TorchStep:
    """What torch does in such a step: the loss, its gradient to a picture, the optimizer."""

    def __init__(self, mesh: Mesh, target: np.ndarray) -> None:
        import torch

        self._target = torch.as_tensor(target, dtype=torch.float32)
        self._picture = torch.zeros_like(self._target, requires_grad=True)
        pos = torch.as_tensor(mesh.positions, dtype=torch.float32).clone()
        self._pos = torch.nn.Parameter(pos)
        self._pos.grad = torch.ones_like(pos)
        self._optimizer = torch.optim.Adam([self._pos], lr=RATE)

    def exec_step(self) -> None:
        """Run it once."""
        self._picture.grad = None
        (self._picture - self._target).square().mean().backward()
        self._optimizer.step()


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


def measure_size(size: int, settings: Settings, copies: Copies) -> dict[str, Any]:
    """Return one row."""
    mesh, matrices = sphere(SMOKE_FACES if settings.smoke else N_FACES), view_matrices(1)
    target = hard_silhouettes(squashed(mesh), matrices, size, settings.device)
    rounds = SMALL_ROUNDS if settings.smoke else ROUNDS
    before = copies.measure()
    with DressiAD(settings.device) as ad, DressiAD(settings.device) as own:
        native(mesh, matrices, target, ad)
        steps: list[Steps] = [ad, LayerStep(mesh, matrices, target, own), TorchStep(mesh, target)]
        times = dict(zip(("native", "layer", "torch"), alternating_ms(steps, rounds), strict=True))
    share = times["layer"] - times["torch"]
    return {
        "case": f"silhouette 1 x {size}, {len(mesh.faces)} faces",
        "size": size,
        **{f"{name}_ms": float(np.median(t)) for name, t in times.items()},
        "ratio": float(np.median(share / times["native"])),
        "ratio_with_torch": float(np.median(times["layer"] / times["native"])),
        "copy_ms": (before + copies.measure()) / 2,
    }


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
    finally:
        torch.set_num_threads(n_threads)
    holds = all(row["ratio"] <= AT_MOST for row in rows)
    return Table(COLUMNS, rows, [(f"ratio of every size <= {AT_MOST}", holds)])
