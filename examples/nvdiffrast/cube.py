"""Corners and colours of a cube, found from pictures of a few pixels.

Usage: cube.py [RESOLUTION] [ITERATIONS]. Each step shows the cube from random sides.
"""

import json
import sys

import numpy as np
import nvdiffrast.torch as dr
import torch
from scenes import cube, moved_back, projection, random_rotations, to_clip

resolution = int(sys.argv[1]) if len(sys.argv) > 1 else 16
iterations = int(sys.argv[2]) if len(sys.argv) > 2 else 300
n_views = 16

rng = np.random.default_rng(0)
points, faces = cube()
color_faces = np.repeat(np.arange(0, 24, 4), 2)[:, None] + np.tile([[0, 1, 2], [0, 2, 3]], (6, 1))
target = torch.tensor(points).cuda()
target_colors = torch.tensor(rng.uniform(0, 1, (24, 3)).astype(np.float32)).cuda()
triangles = torch.tensor(faces).cuda()
color_triangles = torch.tensor(color_faces.astype(np.int32)).cuda()
start = points + rng.uniform(-0.5, 0.5, points.shape)
pos = torch.tensor(start.astype(np.float32), device="cuda", requires_grad=True)
colors = torch.tensor(
    rng.uniform(0, 1, (24, 3)).astype(np.float32), device="cuda", requires_grad=True
)
context = dr.RasterizeCudaContext(device="cuda")


def render(matrices, pos, colors):
    clip = to_clip(pos, matrices)
    rast, _ = dr.rasterize(context, clip, triangles, (resolution, resolution), grad_db=False)
    shaded, _ = dr.interpolate(colors[None], rast, color_triangles)
    return dr.antialias(shaded, rast, clip, triangles)


optimizer = torch.optim.Adam([pos, colors], lr=4e-2)
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda i: max(0.01, 10 ** (-2.0 * i / iterations))
)
camera = projection() @ moved_back(6.0)
first = None
for i in range(iterations):
    matrices = torch.tensor((camera @ random_rotations(n_views, rng)).astype(np.float32)).cuda()
    with torch.no_grad():
        wanted = render(matrices, target, target_colors)
    loss = ((render(matrices, pos, colors) - wanted) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    error = (pos.detach() - target).norm(dim=1).mean().item()
    first = error if first is None else first
    if i % 50 == 0:
        print(f"{i} loss {loss.item():.5f} mean distance of corners {error:.4f}", flush=True)
print(json.dumps({"error": error, "first": first}))
