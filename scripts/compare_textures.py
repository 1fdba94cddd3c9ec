"""Compare baked textures with textures that are fitted by descent, on trained and kept-out views.

    python scripts/compare_textures.py                      # a sphere of random squares
    python scripts/compare_textures.py --target mesh.obj    # a mesh with a texture of its own
    python scripts/compare_textures.py --bend 0.02          # on a mesh that is not the target

Prints PSNR over the pixels that the target covers wholly (both: and the mesh), in dB.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from dressi import DressiAD
from dressi.apps.demo import centred, load_target
from dressi.apps.fitting import TextureSchedule, fit_texture
from dressi.render.fit import bake_texture, psnr, unwrap
from dressi.render.scene import Mesh, icosphere
from dressi.testing.views import render, spread_views, surround_views


def target_of(path: str | None) -> tuple[Mesh, np.ndarray]:
    """Return a mesh and its texture: without a path a sphere of 24 x 24 random squares."""
    if path is not None:
        mesh, texture = load_target(path)
        return centred(mesh)[0], texture
    colours = np.random.default_rng(0).random((24, 24, 3))
    return icosphere(4), np.kron(colours, np.ones((16, 16, 1))).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target")
    parser.add_argument("--views", type=int, default=8)
    parser.add_argument("--size", type=int, default=256, help="of pictures and textures")
    parser.add_argument("--bend", type=float, default=0.0, help="waves of the mesh, world units")
    parser.add_argument("--iterations", type=int, default=100, help="of the fit")
    args = parser.parse_args()
    target, texture = target_of(args.target)
    size, texels = (args.size, args.size), (args.size, args.size)
    trained = np.stack([c.matrix for c in surround_views(args.views)])
    kept_out = np.stack([c.matrix for c in spread_views(6)])
    pictures = [render(target, m, size, texture, 4) for m in (trained, kept_out)]
    waves = args.bend * np.sin(7.0 * target.positions[:, [1, 2, 0]])
    mesh = unwrap(replace(target, positions=target.positions + waves), args.size)
    (coverage, colours), _ = pictures

    def bake(ad: DressiAD) -> np.ndarray:
        return bake_texture(ad, mesh, colours, coverage, trained, texels)[0]

    def fit(ad: DressiAD) -> np.ndarray:
        schedule = TextureSchedule(iterations=args.iterations, size=texels)
        return fit_texture(ad, mesh, trained, colours, schedule).data

    for name, make in (("bake_texture", bake), ("fit_texture", fit)):
        with DressiAD() as ad:
            start = time.perf_counter()
            made = make(ad)
            seconds = time.perf_counter() - start
        words = [f"{name:12s} {seconds:6.1f} s"]
        for views, matrices, (inside, want) in zip(
            ("trained", "kept out"), (trained, kept_out), pictures, strict=True
        ):
            covered, got = render(mesh, matrices, size, made, 4)
            whole = inside[..., 0] > 0.99
            for mask, what in ((whole, ""), (whole & (covered[..., 0] > 0.99), " both")):
                flat = (-1, args.size, 3)
                value = psnr(got.reshape(flat), want.reshape(flat), mask.reshape(-1, args.size))
                words.append(f"{views}{what} {value:.2f}")
        print("  ".join(words), flush=True)


if __name__ == "__main__":
    main()
