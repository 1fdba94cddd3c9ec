"""An environment map and a Phong highlight, found from pictures of a mirroring ball.

Usage: envphong.py [RESOLUTION] [ITERATIONS]. The ball shows the environment, and a light that
moves from picture to picture gives it a highlight: colour and exponent are found too.
"""

import json
import sys

import numpy as np
import nvdiffrast.torch as dr
import torch
from scenes import globe, moved_back, projection, random_rotations, to_clip

resolution = int(sys.argv[1]) if len(sys.argv) > 1 else 64
iterations = int(sys.argv[2]) if len(sys.argv) > 2 else 150
n_views, side = 4, 16

rng = np.random.default_rng(0)
points, _, faces = globe(32, 64)
pos = torch.tensor(points, device="cuda")
normals = pos[None].contiguous()  # of a unit sphere
tri = torch.tensor(faces, device="cuda")
topology = dr.antialias_construct_topology_hash(tri)
glctx = dr.RasterizeGLContext()

s, t = np.meshgrid(*[(np.arange(side) + 0.5) / side] * 2)
waves = ((3, 1, 0), (2, -4, 1), (5, 2, 2))
smooth = [
    np.stack([0.5 + 0.4 * np.sin(a * s + b * t + c + f) for a, b, c in waves], -1) for f in range(6)
]
env_target = torch.tensor(np.stack(smooth)[None].astype(np.float32), device="cuda")
phong_target = torch.tensor([0.8, 0.6, 0.4, 20.0], device="cuda")
env = torch.full_like(env_target, 0.5).requires_grad_()
scale = torch.tensor([1.0, 1.0, 1.0, 20.0], device="cuda")  # of the exponent, for one rate
phong = torch.tensor([0.3, 0.3, 0.3, 0.5], device="cuda", requires_grad=True)


def render(view, light, env, phong):
    """view: (N, 4, 4) world to camera. light: (N, 3) towards it, world."""
    clip = to_clip(pos, torch.tensor(projection(), device="cuda") @ view)
    rast, rast_db = dr.rasterize(glctx, clip, tri, (resolution, resolution))
    eye = torch.linalg.inv(view)[:, :3, 3]
    toward = eye[:, None] - pos[None]
    reflected = 2 * (toward * normals).sum(-1, keepdim=True) * normals - toward
    reflected = torch.nn.functional.normalize(reflected, dim=-1)
    direction, direction_da = dr.interpolate(
        reflected.contiguous(), rast, tri, rast_db=rast_db, diff_attrs="all"
    )
    color = dr.texture(env, direction, uv_da=direction_da, boundary_mode="cube", max_mip_level=3)
    cosine = (torch.nn.functional.normalize(direction, dim=-1) * light[:, None, None]).sum(
        -1, keepdim=True
    )
    color = color + phong[:3] * torch.clamp(cosine, min=1e-3) ** phong[3]
    color = torch.where(rast[..., 3:] > 0, color, torch.zeros_like(color))
    return dr.antialias(color, rast, clip, tri, topology_hash=topology)


optimizer = torch.optim.Adam([{"params": [env], "lr": 4e-2}, {"params": [phong], "lr": 4e-2}])
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.1 ** (1 / iterations))
first = (env.detach() - env_target).square().mean().sqrt().item()
for i in range(iterations):
    view = moved_back(4.0) @ random_rotations(n_views, rng)
    view = torch.tensor(view.astype(np.float32), device="cuda")
    light = torch.nn.functional.normalize(
        torch.tensor(rng.normal(size=(n_views, 3)).astype(np.float32), device="cuda"), dim=1
    )
    with torch.no_grad():
        wanted = render(view, light, env_target, phong_target)
    loss = (render(view, light, env, phong * scale) - wanted).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if i % 25 == 0:
        error = (env.detach() - env_target).square().mean().sqrt().item()
        print(f"{i} loss {loss.item():.5f} environment {error:.4f}", flush=True)
error = (env.detach() - env_target).square().mean().sqrt().item()
found = [round(v, 3) for v in (phong * scale).tolist()]
print(json.dumps({"error": error, "first": first, "phong": found}))
