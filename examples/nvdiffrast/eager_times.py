"""Time of rasterize, interpolate, texture and antialias, called one by one, by both interfaces.

Usage: eager_times.py [OUT.json] [--sizes 256 ...] [--faces 682 51414] [--mipmaps] [--data FOLDER].
A step is the four calls and the backward pass, to positions and texture; a table of positions of
its own in every step, so that nothing is left from the last one. ``dressi.torch.nvdiffrast`` and
the installed ``nvdiffrast`` take turns in this process, on CUDA where torch has it: bursts of
steps with a wait for the card around each (``ms``), and steps with a wait after each
(``latency_ms``). Without nvdiffrast the times of Dressi's are printed alone.
"""

import argparse
import json
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import torch
from scenes import globe, moved_back, projection, to_clip

import dressi.torch.nvdiffrast as own
from dressi.torch.function import engine
from dressi.torch.share import share_of

AT_MOST = 2.0
"""Ratio of the time of Dressi's calls to that of nvdiffrast's, at most."""
DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "bench"
TABLES = 8  # positions that take turns
MOVED = 1e-4  # between them, of a mesh of size 1: the work is the same
TEXELS = 512


def parsed():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", default="eager_times.json")
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 512, 1024, 2048])
    parser.add_argument("--faces", type=int, nargs="+", default=[682, 51414])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--burst", type=int, default=10, help="steps between two waits")
    parser.add_argument("--mipmaps", action="store_true", help="linear-mipmap-linear, with uv_da")
    parser.add_argument("--data", type=Path, default=DATA)
    return parser.parse_args()


def peer():
    """Return the module nvdiffrast.torch, or None where it is not installed."""
    try:
        import nvdiffrast.torch as dr
    except ImportError:
        return None
    return None if dr.__name__ == own.__name__ else dr


def mesh_of(n_faces, folder):
    """Positions, triangles, uv, triangles of uv, matrix: of a file of the data folder, else of a
    globe of about as many faces."""
    file = folder / f"t1_{n_faces}.npz"
    if file.is_file():
        a = np.load(file)
        mvp = a["mvp"].reshape(-1, 4, 4)[0]
        return a["pos"], a["tri"], a["uv"], a["uv_tri"], mvp, file.name
    rows = max(2, round((n_faces / 4) ** 0.5))
    pos, uv, tri = globe(rows, 2 * rows)
    return pos, tri, uv, tri, projection() @ moved_back(3.0), f"globe({rows}, {2 * rows})"


class Case:
    """The tensors of one mesh, shared by both interfaces."""

    def __init__(self, n_faces, folder, device):
        pos, tri, uv, uv_tri, mvp, self.name = mesh_of(n_faces, folder)
        rng = np.random.default_rng(0)
        noise = MOVED * rng.uniform(-1, 1, (TABLES, *pos.shape))
        points = torch.tensor((pos + noise).astype(np.float32), device=device)
        matrix = torch.tensor(mvp.astype(np.float32), device=device)[None]
        self.clip = [to_clip(p, matrix).contiguous() for p in points]
        self.tri = torch.tensor(tri.astype(np.int32), device=device)
        self.uv = torch.tensor(uv.astype(np.float32), device=device)[None].contiguous()
        self.uv_tri = torch.tensor(uv_tri.astype(np.int32), device=device)
        texels = rng.uniform(0, 1, (1, TEXELS, TEXELS, 3)).astype(np.float32)
        self.texture = torch.tensor(texels, device=device)


class Step:
    """Forward and backward of the four functions of one interface."""

    def __init__(self, dr, case, size, mipmaps):
        self._dr, self._case, self._size, self._mipmaps = dr, case, size, mipmaps
        device = case.tri.device
        self._context = dr.RasterizeCudaContext(device=device if device.type == "cuda" else None)
        self._topology = dr.antialias_construct_topology_hash(case.tri)
        self._texture = case.texture.clone().requires_grad_()
        rng = np.random.default_rng(1)
        upstream = rng.normal(size=(1, size, size, 3)).astype(np.float32)
        self._upstream = torch.tensor(upstream, device=device)
        self._i = 0

    def __call__(self):
        """Return the picture and the gradients of positions and texture."""
        case, dr = self._case, self._dr
        clip = case.clip[self._i % TABLES].detach().requires_grad_()
        self._i += 1
        self._texture.grad = None
        rast, rast_db = dr.rasterize(
            self._context, clip, case.tri, (self._size, self._size), grad_db=self._mipmaps
        )
        if self._mipmaps:
            uv, uv_da = dr.interpolate(
                case.uv, rast, case.uv_tri, rast_db=rast_db, diff_attrs="all"
            )
            color = dr.texture(self._texture, uv, uv_da, filter_mode="linear-mipmap-linear")
        else:
            uv, _ = dr.interpolate(case.uv, rast, case.uv_tri)
            color = dr.texture(self._texture, uv, filter_mode="linear")
        picture = dr.antialias(color, rast, clip, case.tri, topology_hash=self._topology)
        picture.backward(self._upstream)
        return picture.detach(), clip.grad, self._texture.grad


def wait():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(step, n, after_each):
    """Seconds per step, of n."""
    wait()
    begin = time.perf_counter()
    for _ in range(n):
        step()
        if after_each:
            wait()
    wait()
    return (time.perf_counter() - begin) / n


def measured(steps, rounds, burst):
    """Milliseconds per step, by step: medians over rounds in which the steps take turns."""
    for step in steps:  # compile, allocate, and let clocks rise
        seconds(step, 2 * TABLES, after_each=False)
    found = []
    for after_each in (False, True):
        times = [[seconds(s, burst, after_each) for s in steps] for _ in range(rounds)]
        found.append(1e3 * np.median(times, axis=0))
    return found


def agreement(steps):
    """What both did is the same work: differences of pictures and of gradients."""
    (a, pos_a, tex_a), (b, pos_b, tex_b) = (step() for step in steps)
    cosine = torch.nn.functional.cosine_similarity
    return {
        "picture_mean_difference": float((a - b).abs().mean()),
        "cosine_pos": float(cosine(pos_a.flatten(), pos_b.flatten(), dim=0)),
        "cosine_texture": float(cosine(tex_a.flatten(), tex_b.flatten(), dim=0)),
    }


def row_of(n_faces, size, args, theirs, device):
    """One row of the table."""
    case = Case(n_faces, args.data, device)
    interfaces = [own] if theirs is None else [own, theirs]
    steps = [Step(dr, case, size, args.mipmaps) for dr in interfaces]
    same = agreement(steps) if theirs is not None else {}
    ms, latency = measured(steps, args.rounds, args.burst)
    row = {"mesh": case.name, "faces": n_faces, "size": size, "dressi_ms": float(ms[0]),
           "dressi_latency_ms": float(latency[0])}  # fmt: skip
    if theirs is not None:
        row |= {"nvdiffrast_ms": float(ms[1]), "nvdiffrast_latency_ms": float(latency[1])}
        row |= {"ratio": float(ms[0] / ms[1]), "latency_ratio": float(latency[0] / latency[1])}
    return row | same


def name_of(package):
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package


def main():
    args, theirs = parsed(), peer()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    card = torch.cuda.get_device_name() if device == "cuda" else "the CPU"
    shared = device == "cuda" and share_of(engine(), torch.device("cuda:0")) is not None
    way = "tensors stay on the card" if shared else "tensors go through the host"
    print(f"torch {torch.__version__} on {card}; dressi: {way}")
    if theirs is None:
        print("nvdiffrast is not installed: times of dressi.torch.nvdiffrast alone")
    print("faces  size  dressi ms  nvdiffrast ms  ratio  latency ms: dressi, nvdiffrast, ratio")
    rows = []
    for n_faces in args.faces:
        for size in args.sizes:
            row = row_of(n_faces, size, args, theirs, device)
            rows.append(row)
            a = [row.get(name, float("nan")) for name in (
                "dressi_ms", "nvdiffrast_ms", "ratio", "dressi_latency_ms",
                "nvdiffrast_latency_ms", "latency_ratio")]  # fmt: skip
            print(f"{n_faces:5d}  {size:4d}  {a[0]:9.3f}  {a[1]:13.3f}  {a[2]:5.2f}"
                  f"  {a[3]:.3f}, {a[4]:.3f}, {a[5]:.2f}", flush=True)  # fmt: skip
    found = {"torch": torch.__version__, "card": card, "way": way, "mipmaps": args.mipmaps,
             "nvdiffrast": theirs and name_of("nvdiffrast"), "rows": rows}  # fmt: skip
    if theirs is not None:
        found["holds"] = all(row["ratio"] <= AT_MOST for row in rows)
        said = "holds" if found["holds"] else "does not hold"
        print(f"ratio of every row <= {AT_MOST}: {said}")
    Path(args.out).write_text(json.dumps(found, indent=1))
    print(f"written to {args.out}")


if __name__ == "__main__":
    sys.exit(main())
