"""Where the time of one eager call goes: on the host, on the card, and in the calls of the drivers.

Usage: call_times.py [OUT.json] [--sizes 256 2048] [--faces 682] [--data FOLDER]. Each of rasterize,
interpolate, texture and antialias is called alone, on tensors that lie there, then its backward
pass: microseconds until the call returns (``host``) and until the card is done (``done``), medians.
Both interfaces are measured where nvdiffrast is installed. Of Dressi's whole step then: the number
of submits, of waits for CUDA's stream and of hand-overs back to it, and the microseconds that each
call of a driver and each copy takes the host (``step``), with a profiler of nothing else.
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from eager_times import DATA, Case, Step, peer, wait

import dressi.torch.nvdiffrast as own
from dressi.torch.function import engine
from dressi.torch.share import share_of


def parsed():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", default="call_times.json")
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 2048])
    parser.add_argument("--faces", type=int, nargs="+", default=[682])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--data", type=Path, default=DATA)
    return parser.parse_args()


def functions(dr, case, size):
    """(name, function of tensors, tensors): the four functions on what the ones before them gave,
    each tensor with a gradient of its own."""
    device = case.tri.device
    context = dr.RasterizeCudaContext(device=device if device.type == "cuda" else None)
    topology = dr.antialias_construct_topology_hash(case.tri)

    def fresh(t):
        return t.detach().clone().requires_grad_()

    pos = fresh(case.clip[0])
    rast = fresh(dr.rasterize(context, pos, case.tri, (size, size), grad_db=False)[0])
    uv = fresh(dr.interpolate(case.uv, rast, case.uv_tri)[0])
    color = fresh(dr.texture(case.texture, uv, filter_mode="linear"))
    shape = (size, size)
    return [
        ("rasterize", lambda p: dr.rasterize(context, p, case.tri, shape, grad_db=False)[0], [pos]),
        ("interpolate", lambda r: dr.interpolate(case.uv, r, case.uv_tri)[0], [rast]),
        ("texture", lambda t, c: dr.texture(t, c, filter_mode="linear"), [fresh(case.texture), uv]),
        ("antialias", lambda c, p: dr.antialias(
            c, rast.detach(), p, case.tri, topology_hash=topology), [color, pos]),
    ]  # fmt: skip


def timed(call):
    """(result, microseconds until it returned, and until the card was done)."""
    wait()
    begin = time.perf_counter()
    found = call()
    returned = time.perf_counter()
    wait()
    return found, 1e6 * (returned - begin), 1e6 * (time.perf_counter() - begin)


def times_of(call, tensors, rounds):
    """Medians in microseconds: host and done of the forward pass, host and done of the backward."""
    rows = []
    for _ in range(rounds + 10):
        out, *forward = timed(lambda: call(*tensors))
        upstream = torch.ones_like(out)
        _, *backward = timed(lambda: torch.autograd.grad(out, tensors, upstream))  # noqa: B023
        rows.append([*forward, *backward])
    return [float(t) for t in np.median(rows[10:], axis=0)]


class Watch:
    """Counts calls of methods and adds up the time that they take the host."""

    def __init__(self):
        self.n, self.seconds, self._undo = defaultdict(int), defaultdict(float), []

    def over(self, owner, method, name_of=None):
        """Watch a method of an object or a class. name_of: (arguments) -> what it is counted as."""
        original = getattr(owner, method)

        def watched(*args, **named):
            begin = time.perf_counter()
            try:
                return original(*args, **named)
            finally:
                name = method if name_of is None else name_of(*args)
                self.n[name] += 1
                self.seconds[name] += time.perf_counter() - begin

        is_own = method in vars(owner)
        setattr(owner, method, watched)
        self._undo.append((owner, method, original if is_own else None))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for owner, method, original in reversed(self._undo):
            if original is None:
                delattr(owner, method)
            else:
                setattr(owner, method, original)


class Watched:
    """A library whose functions are watched."""

    def __init__(self, library, watch, names):
        self._library = library
        for name in names:
            watch.over(self, name)

    def __getattr__(self, name):
        return getattr(self._library, name)


def drivers(step, rounds):
    """Calls per step, and microseconds of each, of the two drivers and of torch's copies."""
    runtime, share = engine().runtime, None
    if torch.cuda.is_available():
        share = share_of(engine(), torch.device("cuda:0"))
    context = runtime.device.context
    with Watch() as watch:
        watch.over(context, "start", lambda *_: "submit (with its check)")
        watch.over(type(runtime.store), "share", lambda *_: "input, with its copy")
        if share is not None:
            watch.over(share, "run", lambda *_: "hand-over (submit inside)")
            watch.over(share, "write", lambda *_: "copy of an input")
            watch.over(share, "copy", lambda *_: "copy of a result")
            watch.over(share._cuda, "_call", lambda name, *_: name)
            watch.over(share.timeline, "wait", lambda *_: "look at the timeline")
        begin = time.perf_counter()
        for _ in range(rounds):
            step()
        host = 1e6 * (time.perf_counter() - begin) / rounds
        wait()
        whole = 1e6 * (time.perf_counter() - begin) / rounds
    calls = {
        name: {"per_step": watch.n[name] / rounds, "us_each": 1e6 * watch.seconds[name] / n}
        for name, n in watch.n.items()
    }
    return {"host_us": host, "done_us": whole, "calls": calls}


def operations(step):
    """Number of torch operations of a step, by name."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(5):
            step()
        wait()
    return {e.key: e.count / 5 for e in found.key_averages() if e.key.startswith("aten::")}


def row_of(n_faces, size, args, theirs, device):
    case = Case(n_faces, args.data, device)
    row = {"faces": n_faces, "size": size}
    for name, dr in (("dressi", own), ("nvdiffrast", theirs)):
        if dr is None:
            continue
        row[name] = {
            what: times_of(call, tensors, args.rounds)
            for what, call, tensors in functions(dr, case, size)
        }
        for what, us in row[name].items():
            head = f"{n_faces:6d} {size:5d}  {name:10s}  {what:11s}"
            print(f"{head}  forward host {us[0]:7.1f} done {us[1]:7.1f}"
                  f"  backward host {us[2]:7.1f} done {us[3]:7.1f}", flush=True)  # fmt: skip
    step = Step(own, case, size, mipmaps=False)
    for _ in range(20):
        step()
    wait()
    row["step"] = found = drivers(step, args.rounds)
    print(f"  a step, watched: host {found['host_us']:.0f} us, done {found['done_us']:.0f} us")
    calls = found["calls"].items()
    for what, c in sorted(calls, key=lambda i: -i[1]["us_each"] * i[1]["per_step"]):
        print(f"    {what:32s} {c['per_step']:5.1f} per step, {c['us_each']:7.2f} us each")
    row["operations"] = counted = operations(step)
    print(f"    torch: {sum(counted.values()):.0f} operations per step", flush=True)
    return row


def main():
    args, theirs = parsed(), peer()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shared = device == "cuda" and share_of(engine(), torch.device("cuda:0")) is not None
    print(f"torch {torch.__version__} on {device}, memory shared: {shared}; microseconds")
    rows = [row_of(f, s, args, theirs, device) for f in args.faces for s in args.sizes]
    Path(args.out).write_text(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1))
    print(f"written to {args.out}")


if __name__ == "__main__":
    sys.exit(main())
