"""The curve of nvdiffrast for ``dressi experiment curves --peer``.

Usage: curve.py [OUT.json] [--size 96] [--iterations 2500] [--seeds 3] [--look lambert] ...: the
options of the experiment, with its defaults. The same start, target, views, lights, order of views,
loss, rates and Laplacian, all taken from the installed Dressi; pictures of the target and of the
fit are drawn by nvdiffrast: interpolated normals, Lambert, antialiasing.
"""

import argparse
import json
import time
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import nvdiffrast.torch as dr
import torch

from dressi.apps.experiments.curves import SCHEDULES, Settings, rates
from dressi.apps.experiments.lit_fit import BETA2, START_RADIUS, Fit, between
from dressi.apps.experiments.lit_views import AMBIENT, LOOKS, random_views
from dressi.apps.experiments.meshes import target_mesh
from dressi.render.fit import mean_distance_to_surface
from dressi.render.scene import icosphere, uniform_laplacian


def parsed():
    own = Settings()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", default="peer.json")
    for name in ("size", "iterations", "views", "subdivisions", "target_faces", "seeds", "seed"):
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=getattr(own, name))
    parser.add_argument("--target", default=own.target)
    parser.add_argument("--look", choices=LOOKS, default="lambert")
    parser.add_argument("--schedule", choices=SCHEDULES, default="kept")
    return parser.parse_args()


class Renderer:
    """Pictures of one topology: (1, size, size, channels of the look)."""

    def __init__(self, context, faces, size, look):
        self.context, self.size, self.look = context, size, look
        self.faces = torch.tensor(faces.astype(np.int32)).cuda()

    def normals(self, pos):
        a, b, c = (pos[self.faces[:, k].long()] for k in range(3))
        n = torch.linalg.cross(b - a, c - a)
        total = torch.zeros_like(pos)
        for k in range(3):
            total = total.index_add(0, self.faces[:, k].long(), n)
        return torch.nn.functional.normalize(total, dim=1)

    def draw(self, pos, matrix, light):
        # Rows of Dressi's clip space run down, as those of its pictures: nothing is turned.
        clip = torch.cat([pos, torch.ones_like(pos[:, :1])], 1) @ matrix.T
        clip = clip[None].contiguous()
        rast, _ = dr.rasterize(self.context, clip, self.faces, (self.size, self.size))
        inside = (rast[..., 3:] > 0).float()
        channels = []
        if self.look != "silhouette":
            both = torch.cat([pos, self.normals(pos)], 1)[None].contiguous()
            surface, _ = dr.interpolate(both, rast, self.faces)
            position, normal = surface[..., :3], surface[..., 3:]
            normal = torch.nn.functional.normalize(normal, dim=-1)
            to_light = torch.nn.functional.normalize(light - position, dim=-1)
            facing = (normal * to_light).sum(-1, keepdim=True)
            channels.append((AMBIENT + (1 - AMBIENT) * facing.clamp(min=0)) * inside)
        if self.look != "lambert":
            channels.append(inside)
        color = torch.cat(channels, -1).contiguous()
        return dr.antialias(color, rast, clip, self.faces)


class Laplacian:
    """The mean of the neighbours less the vertex, of each vertex."""

    def __init__(self, faces, n):
        offsets, columns, values = uniform_laplacian(faces, n)
        rows = np.repeat(np.arange(n), np.diff(offsets))
        self.rows, self.columns = (torch.tensor(x.astype(np.int64)).cuda() for x in (rows, columns))
        self.values = torch.tensor(values)[:, None].cuda()

    def __call__(self, pos):
        return torch.zeros_like(pos).index_add(0, self.rows, pos[self.columns] * self.values)


def name_of_renderer():
    """Return the package that draws, with its version: Dressi's own is no peer of Dressi."""
    package = dr.__name__.split(".")[0]
    try:
        return f"{dr.__name__} {version(package)}"
    except PackageNotFoundError:
        return dr.__name__


def fit(context, args, seed):
    """Return iterations, distances, seconds of one run."""
    target = target_mesh(args.target, args.target_faces)
    start = icosphere(args.subdivisions, START_RADIUS)
    views = random_views(args.views, args.size, seed)
    matrices, lights = (torch.tensor(x, dtype=torch.float32).cuda()
                        for x in (views.matrices, views.lights))  # fmt: skip
    wanted = Renderer(context, target.faces, args.size, args.look)
    truth = torch.tensor(target.positions, dtype=torch.float32).cuda()
    with torch.no_grad():
        pairs = zip(matrices, lights, strict=True)
        pictures = torch.cat([wanted.draw(truth, m, light) for m, light in pairs])
    mine = Renderer(context, start.faces, args.size, args.look)
    pos = torch.tensor(start.positions, dtype=torch.float32).cuda().requires_grad_()
    laplacian = Laplacian(start.faces, len(start.positions))
    lr, weight = rates(Settings(), args.schedule)
    plan = Fit(args.iterations, lr, weight, every=max(args.iterations // 20, 1), seed=seed)
    optimizer = torch.optim.Adam([pos], lr=lr[0], betas=(0.9, BETA2))
    found, seconds = {"iterations": [], "distances": []}, 0.0
    rng = np.random.default_rng(seed)
    for i in range(args.iterations + 1):
        if i % plan.every == 0 or i == args.iterations:
            now = pos.detach().cpu().numpy()
            found["iterations"].append(i)
            found["distances"].append(mean_distance_to_surface(now, target.positions, target.faces))
        if i == args.iterations:
            break
        begin = time.perf_counter()
        k, t = int(rng.integers(len(matrices), size=1)[0]), i / max(args.iterations - 1, 1)
        optimizer.param_groups[0]["lr"] = between(lr, t)
        got = mine.draw(pos, matrices[k], lights[k])
        smooth = laplacian(pos).square().sum(1).mean()
        loss = (got - pictures[k : k + 1]).abs().mean() + smooth * between(weight, t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        seconds += time.perf_counter() - begin
    return found, seconds


def main():
    args = parsed()
    context = dr.RasterizeCudaContext()
    runs = [fit(context, args, args.seed + k) for k in range(args.seeds)]
    lr, laplacian = rates(Settings(), args.schedule)
    names = ("size", "iterations", "views", "subdivisions", "target_faces", "target", "look")
    said = {name: getattr(args, name) for name in names}
    data = {
        "name": name_of_renderer(),
        "device": torch.cuda.get_device_name(),
        "settings": {**said, "seed": args.seed, "lr": list(lr), "laplacian": list(laplacian)},
        "iterations": runs[0][0]["iterations"],
        "distances": [found["distances"] for found, _ in runs],
        "seconds": [seconds for _, seconds in runs],
    }
    with open(args.out, "w", encoding="utf-8") as file:
        json.dump(data, file, indent=1)
    first, *_, last = data["distances"][0]
    print(f"error {last:.6f} at first {first:.6f}, {args.out}")


if __name__ == "__main__":
    main()
