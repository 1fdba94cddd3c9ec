"""The pose of a cube with a colour on each face, found from one picture.

Usage: pose.py [RESOLUTION] [ITERATIONS] [POSES]. All poses are found at once, one per image of the
minibatch. Each begins 45 degrees away; small random turns that help are kept at first.
"""

import json
import math
import sys

import nvdiffrast.torch as dr
import torch
from scenes import cube, moved_back, projection, to_clip

resolution = int(sys.argv[1]) if len(sys.argv) > 1 else 64
iterations = int(sys.argv[2]) if len(sys.argv) > 2 else 150
n_poses = int(sys.argv[3]) if len(sys.argv) > 3 else 8

device = torch.device("cuda")
torch.manual_seed(0)
points, faces = cube()
# A vertex of its own for each corner of each face: faces have their own colours.
pos = torch.tensor(points[faces].reshape(-1, 3), device=device)
tri = torch.arange(36, dtype=torch.int32, device=device).reshape(12, 3)
face_colors = torch.tensor(
    [(1.0, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1), (1, 0, 1)], device=device
)
colors = face_colors.repeat_interleave(6, 0).contiguous()
# Silhouettes are those of the cube: corners that lie together are one.
shared = torch.tensor(faces, device=device)
corners = torch.tensor(points, device=device)
camera = torch.tensor(projection() @ moved_back(5.0), device=device)
glctx = dr.RasterizeCudaContext()


def matrices(q):
    w, x, y, z = torch.nn.functional.normalize(q, dim=1).unbind(1)
    rows = [
        1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w),
        2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w),
        2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y),
    ]  # fmt: skip
    turn = torch.stack(rows, 1).reshape(-1, 3, 3)
    turn = torch.nn.functional.pad(turn, (0, 1, 0, 1))
    last = torch.zeros(4, 4, device=q.device)
    last[3, 3] = 1.0
    return camera @ (turn + last)


def product(a, b):
    (w, x, y, z), (e, f, g, h) = a.unbind(1), b.unbind(1)
    return torch.stack(
        [
            w * e - x * f - y * g - z * h,
            w * f + x * e + y * h - z * g,
            w * g - x * h + y * e + z * f,
            w * h + x * g - y * f + z * e,
        ],
        1,
    )


def render(q):
    clip = to_clip(corners, matrices(q))
    rast, _ = dr.rasterize(glctx, clip, shared, (resolution, resolution))
    picture, _ = dr.interpolate(colors, rast, tri)
    return dr.antialias(picture, rast, clip, shared)


def angle_deg(a, b):
    c = torch.nn.functional.cosine_similarity(a, b, dim=1).abs().clamp(max=1)
    return 2 * torch.acos(c) * 180 / math.pi


def random_turns(angle):
    axis = torch.nn.functional.normalize(torch.randn(n_poses, 3, device=device), dim=1)
    half = 0.5 * angle
    return torch.cat([torch.full((n_poses, 1), math.cos(half), device=device),
                      axis * math.sin(half)], 1)  # fmt: skip


def losses(q):
    return ((render(q) - wanted) ** 2).mean((1, 2, 3))


target = torch.nn.functional.normalize(torch.randn(n_poses, 4, device=device), dim=1)
with torch.no_grad():
    wanted = render(target)
pose = product(random_turns(math.pi / 4), target).requires_grad_()
first = angle_deg(pose.detach(), target).mean().item()
optimizer = torch.optim.Adam([pose], lr=0.05, betas=(0.8, 0.95))
for i in range(iterations):
    part = i / iterations
    if part < 0.4 and i % 2 == 0:
        with torch.no_grad():
            tried = product(random_turns(0.7 * (1 - 2 * part)), pose)
            better = losses(tried) < losses(pose)
            pose[better] = tried[better]
    optimizer.param_groups[0]["lr"] = 0.05 * 0.02**part
    loss = losses(pose).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        pose /= pose.norm(dim=1, keepdim=True)
    if i % 25 == 0:
        error = angle_deg(pose.detach(), target)
        print(f"{i} loss {loss.item():.5f} degrees {error.mean().item():.2f}", flush=True)
error = angle_deg(pose.detach(), target)
print(json.dumps({"error": error.median().item(), "first": first}))
