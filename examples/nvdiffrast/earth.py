"""The texture of a globe, found from pictures at many distances, with mipmaps.

Usage: earth.py [RESOLUTION] [ITERATIONS]. The pictures are those of a fine texture, seen at a
fourfold resolution and averaged, so the level of detail has to be right for the texture to be.
"""

import json
import sys

import numpy as np
import nvdiffrast.torch as dr
import torch
from scenes import globe, moved_back, projection, random_rotations, to_clip

resolution = int(sys.argv[1]) if len(sys.argv) > 1 else 48
iterations = int(sys.argv[2]) if len(sys.argv) > 2 else 150
n_views, fine = 4, 4

rng = np.random.default_rng(0)
points, uv, faces = globe()
pos = torch.from_numpy(points).cuda()
tri = torch.from_numpy(faces).cuda()
uv = torch.from_numpy(uv).cuda()[None]
y, x = np.meshgrid((np.arange(64) + 0.5) / 64, (np.arange(128) + 0.5) / 128, indexing="ij")
waves = [
    0.5 + 0.5 * np.sin(2 * np.pi * (a * x + b * y) + c)
    for a, b, c in ((2, 1, 0.0), (5, -3, 1.0), (9, 4, 2.0))
]
target = torch.from_numpy(np.stack(waves, -1).astype(np.float32)).cuda()[None]
tex = torch.full_like(target, 0.5).requires_grad_()
glctx = dr.RasterizeCudaContext()


def render(matrices, texture, size):
    clip = to_clip(pos, matrices)
    rast, rast_db = dr.rasterize(glctx, clip, tri, (size, size))
    at, at_da = dr.interpolate(uv, rast, tri, rast_db=rast_db, diff_attrs="all")
    color = dr.texture(texture, at, at_da, filter_mode="linear-mipmap-linear", max_mip_level=5)
    return color * torch.clamp(rast[..., 3:], 0, 1)


def error_of(texture):
    return (texture.detach() - target).square().mean().sqrt().item()


optimizer = torch.optim.Adam([tex], lr=5e-2)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.05 ** (1 / iterations))
first = error_of(tex)
for i in range(iterations):
    views = [
        projection() @ moved_back(rng.uniform(2.6, 6)) @ r for r in random_rotations(n_views, rng)
    ]
    matrices = torch.from_numpy(np.stack(views).astype(np.float32)).cuda()
    with torch.no_grad():
        large = render(matrices, target, resolution * fine)
        wanted = torch.nn.functional.avg_pool2d(large.permute(0, 3, 1, 2), fine)
        wanted = wanted.permute(0, 2, 3, 1)
    loss = ((render(matrices, tex, resolution) - wanted) ** 2).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    schedule.step()
    if i % 25 == 0:
        print(f"{i} loss {loss.item():.5f} texture {error_of(tex):.4f}", flush=True)
print(json.dumps({"error": error_of(tex), "first": first}))
