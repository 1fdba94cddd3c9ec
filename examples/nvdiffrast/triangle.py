"""A triangle with a colour at each corner, drawn and saved as triangle.png."""

import json
import sys

import numpy as np
import nvdiffrast.torch as dr
import torch
from PIL import Image

device = "cuda"
context = dr.RasterizeCudaContext()
positions = torch.tensor(
    [[[-0.8, -0.8, 0, 1], [0.8, -0.8, 0, 1], [-0.8, 0.8, 0, 1]]], dtype=torch.float32, device=device
)
colors = torch.eye(3, device=device)[None]
triangles = torch.tensor([[0, 1, 2]], dtype=torch.int32, device=device)

rast, _ = dr.rasterize(context, positions, triangles, resolution=[256, 256])
picture, _ = dr.interpolate(colors, rast, triangles)

pixels = picture[0].cpu().numpy()[::-1]  # row 0 is the lowest
path = sys.argv[1] if len(sys.argv) > 1 else "triangle.png"
Image.fromarray((np.clip(pixels, 0, 1) * 255).round().astype(np.uint8)).save(path)
x, y = 0.5 / 128 - 1 + 40 / 128, 0.5 / 128 - 1 + 60 / 128
weights = np.array([1 - (x + 0.8) / 1.6 - (y + 0.8) / 1.6, (x + 0.8) / 1.6, (y + 0.8) / 1.6])
error = np.abs(picture[0, 60, 40].cpu().numpy() - weights).max()
print(json.dumps({"error": float(error)}))
