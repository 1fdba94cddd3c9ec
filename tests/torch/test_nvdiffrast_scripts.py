"""Whole scripts written for nvdiffrast and CUDA run to the end and converge, without a change."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from dressi.apps.experiments import curves, shapes
from dressi.apps.experiments.common import flag, make_settings
from dressi.apps.experiments.curve_claims import read_peer
from dressi.many import Context
from dressi.many.work import warm_here

torch = pytest.importorskip("torch", reason="dressi.torch needs torch")

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "examples" / "nvdiffrast"


def run(script: Path, *arguments: str, timeout: float = 600) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dressi.torch", str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def figures(text: str) -> list[float]:
    """``error`` and ``first`` of the last line, a JSON object."""
    found = json.loads(text.strip().splitlines()[-1])
    return [found["error"], found["first"]]


def test_the_triangle_is_drawn_and_saved(tmp_path):
    out = run(SCRIPTS / "triangle.py", str(tmp_path / "triangle.png"))
    assert json.loads(out)["error"] < 1e-5
    assert (tmp_path / "triangle.png").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "arguments", "share"),
    [
        # Shares of the first error that may be left. What is left at 4 pixels is what noise of the
        # random views leaves at the last rate.
        ("cube.py", ("16", "150"), 0.1),
        ("cube.py", ("8", "150"), 0.1),
        ("cube.py", ("4", "150"), 0.3),
        ("pose.py", ("48", "75", "6"), 0.02),
        ("earth.py", ("48", "80"), 0.35),
        ("envphong.py", ("48", "60"), 0.2),
    ],
)
def test_scripts_converge(script, arguments, share):
    error, first = figures(run(SCRIPTS / script, *arguments))
    assert error < share * first


FOR_CUDA = """
import importlib.util
import os
import sys
import threading
from typing import Optional

import nvdiffrast
import nvdiffrast.torch as dr
import torch

assert sys.argv[1:] == ["--flag", "3"] and __name__ == "__main__"
assert torch.cuda.is_available() and torch.cuda.device_count() == 1
device = torch.device("cuda", 0)
assert isinstance(device, torch.device)
torch.manual_seed(1)
torch.cuda.manual_seed_all(1)
tensors = [
    torch.zeros(3, device="cuda"), torch.ones(3).cuda(), torch.ones(3).to(device),
    torch.rand(3).to("cuda:0"), torch.tensor([1.0, 2, 3], device=device),
    torch.ones(3).cuda(non_blocking=True), torch.zeros(3).new_ones(3, device="cuda"),
    torch.rand(3, generator=torch.Generator(device="cuda"), device="cuda"),
    torch.cuda.FloatTensor([1, 2, 3]), torch.ones(3).to(0),
]
assert all(t.is_cuda and t.device == device and t.get_device() == 0 for t in tensors)
assert tensors[0].device.type == "cuda" and tensors[0].device.index == 0
with torch.device("cuda"):
    assert torch.zeros(2).device == device
assert torch.zeros(2, device=tensors[1].device).sum().cpu().numpy() == 0
numbered = [
    torch.zeros(3, device=0), torch.zeros(3, device=torch.device(0)),
    torch.nn.Linear(3, 3).to(0).weight, torch.nn.Linear(3, 3).to(device=0).weight,
    torch.nn.DataParallel(torch.nn.Linear(3, 3), device_ids=[0]).cuda()(tensors[0]),
    torch.compile(torch.nn.Linear(3, 3).cuda())(tensors[0]), torch.empty(3, pin_memory=True),
]
assert all(t.device == device for t in numbered)
torch.cuda.set_rng_state(torch.cuda.get_rng_state())
torch.cuda.reset_max_memory_allocated()
with torch.cuda.device(0), torch.cuda.device(device):
    assert isinstance(torch.cuda.memory_summary(), str) and torch.cuda.initial_seed() == 1
model = torch.nn.Linear(3, 3).cuda().to("cuda")
optimizer = torch.optim.Adam(model.parameters())
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
begin.record()
model(sum(tensors)).sum().backward()
optimizer.step()
end.record()
torch.cuda.synchronize()
torch.cuda.empty_cache()
assert begin.elapsed_time(end) > 0
with torch.cuda.stream(torch.cuda.Stream()), torch.autocast("cuda", enabled=False):
    model(tensors[0])
torch.save(model.state_dict(), "model.pt")
model.load_state_dict(torch.load("model.pt", map_location="cuda:0"))
model.load_state_dict(torch.load("model.pt", map_location=lambda s, _: s.cuda(0)))
model.load_state_dict(torch.load("model.pt", map_location={"cpu": "cuda:0", "cuda:1": "cuda:0"}))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, upstream):
        assert upstream.is_cuda
        return upstream * torch.full((1,), 2.0, device="cuda")


leaf = torch.ones(3, device="cuda", requires_grad=True)
leaf.register_hook(lambda g: g + torch.ones(3).cuda())
Doubled.apply(leaf).sum().backward()
assert leaf.grad.tolist() == [3, 3, 3]
assert torch.autograd.grad(Doubled.apply(leaf).sum(), leaf)[0].tolist() == [3, 3, 3]
assert int(torch.version.cuda.split(".")[0]) >= 11
assert leaf.type() == "torch.cuda.FloatTensor" and leaf.cpu().detach().type(leaf.type()).is_cuda
assert torch.cuda.sparse.FloatTensor(torch.zeros(2, 1).long(), leaf.detach()[:1], (1, 1)).is_cuda
leaf.record_stream(torch.cuda.current_stream())
torch.cuda.profiler.start()
torch.cuda.random.manual_seed_all(1)
torch.backends.cuda.preferred_linalg_library("magma")
assert not torch.cuda.is_current_stream_capturing()
store = "file://" + os.path.abspath("model.pt") + ".store"
torch.distributed.init_process_group("nccl", store, rank=0, world_size=1)
several = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3).cuda(), device_ids=[0])
several(tensors[0]).sum().backward()
torch.distributed.destroy_process_group()


@torch.jit.script
def scripted(n: int, device: Optional[torch.device], of: torch.Tensor):
    return torch.arange(n, device=device) + torch.zeros_like(of).to("cuda").long()


assert scripted(3, device, tensors[0]).tolist() == [0, 1, 2]
torch.jit.save(torch.jit.script(torch.nn.ReLU()), "model.pt")
assert torch.jit.load("model.pt", map_location="cuda")(tensors[0]).device == device
thread = threading.Thread(target=lambda: tensors.append(torch.zeros(3, device="cuda")))
thread.start()
thread.join()
assert len(tensors) == 11
assert importlib.util.find_spec("nvdiffrast") and importlib.util.find_spec("nvdiffrast.torch")
assert nvdiffrast.__version__ and nvdiffrast.torch is dr
glctx = dr.RasterizeGLContext(device=device)
pos = torch.tensor([[[-1, -1, 0, 1], [3, -1, 0, 1], [-1, 3, 0, 1.0]]]).cuda()
tri = torch.tensor([[0, 1, 2]], dtype=torch.int32, device=device)
assert (dr.rasterize(glctx, pos, tri, [4, 4])[0][..., 3] == 1).all()
print("done")
"""


def test_scripts_for_cuda_run_where_there_is_none(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("torch has CUDA here: nothing is mapped")
    script = tmp_path / "script.py"
    script.write_text(FOR_CUDA.replace('"model.pt"', repr(str(tmp_path / "model.pt"))))
    assert run(script, "--flag", "3") == "done\n"


def test_a_missing_script_is_named():
    done = subprocess.run(
        [sys.executable, "-m", "dressi.torch", "none.py"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode != 0 and "no file none.py" in done.stderr


RECORDED = {"size": 32, "iterations": 40, "views": 8, "subdivisions": 2, "target_faces": 320}


def test_a_recorded_curve_is_that_of_the_same_fit(tmp_path):
    """By silhouettes, of which both interfaces have the same gradient, the curve that the script
    records by Dressi's own is that of ``curves``: target, views, order, loss, rates, Laplacian."""
    file = tmp_path / "peer.json"
    flags = [word for name, n in RECORDED.items() for word in (flag(name), str(n))]
    run(SCRIPTS / "curve.py", str(file), *flags, "--seeds", "1", "--look", "silhouette")
    settings = make_settings(
        curves.Settings, **RECORDED, seeds=1, look=("silhouette",), peer=str(file)
    )
    curves.check(settings)
    name, recorded = read_peer(str(file), curves.of_cell(settings, "silhouette", "kept"))
    assert name.startswith("dressi.torch.nvdiffrast"), "who draws is said"
    with warm_here() as warm:
        part = {"look": "silhouette", "schedule": "kept", "method": "antialias", "seed": 0}
        part["settings"] = asdict(settings)
        own = curves.fit_part(part, Context(tmp_path, None, warm))
    assert recorded.iterations.tolist() == own["iterations"]
    fall = own["distances"][0] - own["distances"][-1]
    assert fall > 0.005, "the fit moves"
    # Sums in another order are other last bits, which Adam's first steps make whole steps of.
    off = np.abs(recorded.distances[0] - own["distances"])
    assert off.max() < 0.02 * fall, off


def test_reconstructions_are_as_near_as_those_of_the_same_schedule(tmp_path):
    """Pictures, start, remeshing, order of views, rates and weights are shared; silhouettes of
    another kind and another antialiasing are what is left."""
    beside, file = tmp_path / "own.json", tmp_path / "peer.json"
    small = {"size": 48, "views": 6, "iterations": 30, "texture_iterations": 8}
    flags = [word for name, n in small.items() for word in (flag(name), str(n))]
    settings = make_settings(shapes.Settings, objects=("torus",), **small)
    part = {"object": "torus", "without": [], "settings": asdict(settings)}
    with warm_here() as warm:
        own = shapes.fit_part(part, Context(tmp_path, None, warm))["figures"]
    said = {"settings": asdict(settings), "figures": {"objects": {"torus": own}}}
    beside.write_text(json.dumps(said, default=float))
    script = [SCRIPTS / "shapes.py", "--objects", "torus", *flags]
    text = run(*script, "--json", str(file), "--beside", str(beside))
    peer = json.loads(file.read_text())["figures"]["objects"]["torus"]
    assert "ours at least as good" in text and "times faster" in text
    assert peer["faces"] == pytest.approx(own["faces"], rel=0.1)
    # Half a pixel of 48 is about 1 % of the diagonal.
    assert peer["chamfer_percent"] < 1.5 * own["chamfer_percent"] < 1.0
    assert peer["normal_deg"] < 1.5 * own["normal_deg"]
    assert peer["heldout_psnr_db"] > own["heldout_psnr_db"] - 3.0
    assert peer["flipped_faces"] == peer["intersecting_faces"] == 0
