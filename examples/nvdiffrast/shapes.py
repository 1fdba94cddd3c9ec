"""The reconstructions of ``dressi experiment shapes`` with nvdiffrast and torch.

Usage: shapes.py [--objects bunny torus ...] [--json OUT.json] [--beside RESULT.json] [--quick] ...:
the options of the experiment, with its defaults. RESULT.json: what ``dressi experiment shapes
--json`` wrote with the same options; both are printed then, and how they compare.

Pictures, the hull at the start, remeshing, repairs, atlas, baking, the order of the views, rates,
weights and figures are those of the installed Dressi, which runs the same pipeline here. What moves
vertices and texels is this file: rasterization, interpolation, texture and antialiasing by
nvdiffrast, all else by torch, on the GPU. Steps hand nothing to the host.

Not the same: silhouettes are antialiased over a pixel throughout, where Dressi's begin with a reach
of 1.5 to 3 pixels; there is nothing like that among the four functions.
"""

import argparse
import json
import time
import warnings
from dataclasses import asdict, replace

import numpy as np
import nvdiffrast.torch as dr
import torch
from curve import name_of_renderer
from scipy import sparse

from dressi.apps.experiments.common import add_flags, make_settings
from dressi.apps.experiments.gallery import objects
from dressi.apps.experiments.shapes import Settings, options_of
from dressi.apps.reconstruct.command import reconstruct_target
from dressi.apps.reconstruct.pipeline import Movers
from dressi.apps.reconstruct.rounds import BETA2, Course, between, turns
from dressi.apps.reconstruct.texture import Painted
from dressi.render.fit import large_steps
from dressi.render.raster.topology import face_neighbors
from dressi.render.scene import Mesh

BETA1, EPS = 0.9, 1e-8  # Dressi's defaults
VARIATION = 1e-3  # smoothing of the total variation, likewise
FIGURES = {
    # figure: (heading, whether less is better, what is compared over the objects)
    "chamfer_percent": ("Chamfer %", True, np.median),
    "f_score": ("F-score", False, np.median),
    "normal_deg": ("normals deg", True, np.median),
    "heldout_psnr_db": ("PSNR dB", False, np.median),
    "flipped_faces": ("flipped", True, np.sum),
    "intersecting_faces": ("crossing", True, np.sum),
}
TIMES = {"fit_s": "whole s", "steps_s": "steps s"}
FASTER = 3.0


def on_gpu(array, dtype=torch.float32):
    return torch.as_tensor(np.ascontiguousarray(array), dtype=dtype).cuda()


class _Smooth(torch.autograd.Function):
    """C^T C u, symmetric: its backward is the same."""

    @staticmethod
    def forward(ctx, u, factor, transposed):
        ctx.factors = factor, transposed
        return transposed @ (factor @ u)

    @staticmethod
    def backward(ctx, gradient):
        factor, transposed = ctx.factors
        return transposed @ (factor @ gradient), None, None


class Vertices:
    """Positions of one topology by Large Steps, with Dressi's inverse factor, and AdamUniform."""

    def __init__(self, mesh, smoothness):
        steps = large_steps(Mesh(mesh.positions, mesh.faces), smoothness)
        pieces, sums = (
            sparse.csr_matrix((m.values, m.columns, m.offsets), (m.n_rows, m.n_columns))
            for m in steps.factors[:2]
        )
        factor = sparse.csr_matrix(sums @ pieces)
        self.factors = [csr(m) for m in (factor, sparse.csr_matrix(factor.T))]
        whole = len(steps.places) == steps.n_places
        self.places = None if whole else on_gpu(steps.places, torch.int64)
        self.u = on_gpu(steps.parameters(mesh.positions)).requires_grad_()
        self.m, self.v = torch.zeros_like(self.u), torch.zeros_like(self.u)
        self.t = 0

    def positions(self):
        made = _Smooth.apply(self.u, *self.factors)
        return made if self.places is None else made.index_select(0, self.places)

    @torch.no_grad()
    def step(self, gradient, lr):
        self.t += 1
        # Averages that are corrected for their bias in each step.
        self.m.lerp_(gradient, (1 - BETA1) / (1 - BETA1**self.t))
        self.v.lerp_(gradient.square(), (1 - BETA2) / (1 - BETA2**self.t))
        self.u.sub_(self.m * (lr / (self.v.max().sqrt() + EPS)))


def csr(matrix):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR")
        return torch.sparse_csr_tensor(
            on_gpu(matrix.indptr, torch.int64),
            on_gpu(matrix.indices, torch.int64),
            on_gpu(matrix.data),
            matrix.shape,
            check_invariants=False,
        )


class Scene:
    """Pictures and losses of one topology."""

    def __init__(self, context, mesh, pictures, weights):
        self.context, self.weights = context, weights
        self.size = pictures.size[::-1]
        self.faces = on_gpu(mesh.faces, torch.int32)
        self.corners = self.faces.reshape(-1).long()
        self.edges = dr.antialias_construct_topology_hash(self.faces)
        # Every corner of a face takes the face's row: what is interpolated is that row.
        rows = np.arange(len(mesh.faces), dtype=np.int32)
        self.rows = on_gpu(np.repeat(rows[:, None], 3, 1), torch.int32)
        other = face_neighbors(mesh.faces)
        first, side = np.nonzero((other >= 0) & (other > rows[:, None]))
        self.pairs = on_gpu(np.stack([first, other[first, side]]), torch.int64)
        self.matrices = on_gpu(pictures.matrices.transpose(0, 2, 1))
        parts = [pictures.coverage, pictures.normals, pictures.colour]
        channels = [a for a in parts if a is not None]
        self.targets = on_gpu(np.concatenate(channels, -1))
        self.shaded = pictures.normals is not None

    def draw(self, pos, views, surface=None):
        """Return coverage, the faces' normals and the texture, antialiased, in one picture, the
        targets beside it, and the normals."""
        matrices = self.matrices.index_select(0, views)
        clip = (torch.cat([pos, torch.ones_like(pos[:, :1])], 1) @ matrices).contiguous()
        rast, _ = dr.rasterize(self.context, clip, self.faces, self.size, grad_db=False)
        a, b, c = pos.index_select(0, self.corners).reshape(-1, 3, 3).unbind(1)
        normals = torch.nn.functional.normalize(torch.linalg.cross(b - a, c - a), dim=1)
        channels = [(rast[..., 3:] > 0).float()]
        if self.shaded:
            channels.append(dr.interpolate(normals[None].contiguous(), rast, self.rows)[0])
        if surface is not None:
            uv, uv_faces, albedo = surface
            where = dr.interpolate(uv, rast, uv_faces)[0]
            read = dr.texture(albedo[None], where, filter_mode="linear", boundary_mode="clamp")
            channels.append(read * channels[0])
        picture = torch.cat(channels, -1).contiguous()
        picture = dr.antialias(picture, rast, clip, self.faces, topology_hash=self.edges)
        return picture, self.targets.index_select(0, views), normals

    def loss(self, picture, target, normals):
        """Return the losses of silhouettes, normals, colours where there are such, and bend."""
        off, n = picture - target[..., : picture.shape[-1]], 4 if self.shaded else 1
        loss = off[..., :1].square().mean() * self.weights.silhouette
        if self.shaded:
            loss = loss + off[..., 1:4].abs().mean() * self.weights.normals
        if picture.shape[-1] > n:
            loss = loss + off[..., n:].abs().mean() * self.weights.colour
        one, two = (normals.index_select(0, side) for side in self.pairs)
        # Of 3 F sides of faces each pair has two, which are alike.
        bend = (1 - (one * two).sum(1)).sum() * (2 / (3 * len(normals)))
        return loss + bend * self.weights.bend


def run(step, iterations, pictures, n_views, seed):
    """Run the steps; return the course, whose times are means: steps do not wait for the GPU."""
    order = turns(len(pictures), n_views, seed)
    views = on_gpu(np.stack([next(order) for _ in range(iterations)]), torch.int64)
    losses = torch.zeros(iterations).cuda()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for i in range(iterations):
        losses[i] = step(i, views[i])
    torch.cuda.synchronize()
    ms = (time.perf_counter() - begin) / iterations * 1e3
    course = Course(losses.tolist(), [ms] * iterations)
    if not np.isfinite(course.losses).all():
        raise SystemExit(f"the loss became {course.losses[-1]}")
    return course


def movers(context):
    """Return what Dressi's pipeline calls for a round and for the texture."""

    def fit_round(ad, mesh, pictures, one, weights, label, preconditioned, occlusion, seed, start):
        small = replace(pictures, colour=None).shrunk(one.size)
        begin = time.perf_counter()
        vertices = Vertices(mesh, one.smoothness)
        scene = Scene(context, mesh, small, weights)
        build = time.perf_counter() - begin
        last = max(one.iterations - 1, 1)

        def step(i, views):
            loss = scene.loss(*scene.draw(vertices.positions(), views))
            vertices.step(*torch.autograd.grad(loss, vertices.u), between(one.lr, i / last))
            return loss.detach()

        course = run(step, one.iterations, small, min(one.views, len(small)), seed)
        return result(mesh, vertices), counted(course, build)

    def paint(ad, mesh, texture, pictures, how, weights, start):
        begin = time.perf_counter()
        vertices, scene = Vertices(mesh, how.smoothness), Scene(context, mesh, pictures, weights)
        albedo = on_gpu(texture).requires_grad_()
        surface = on_gpu(mesh.uvs)[None], on_gpu(mesh.corner_faces, torch.int32), albedo
        optimizer = torch.optim.Adam([albedo], betas=(BETA1, BETA2), eps=EPS)
        build = time.perf_counter() - begin
        last = max(how.iterations - 1, 1)

        def step(i, views):
            drawn = scene.draw(vertices.positions(), views, surface)
            loss = scene.loss(*drawn) + variation(albedo) * how.variation
            slope, albedo.grad = torch.autograd.grad(loss, [vertices.u, albedo])
            vertices.step(slope, between(how.shape_lr, i / last))
            optimizer.param_groups[0]["lr"] = between(how.lr, i / last)
            optimizer.step()
            return loss.detach()

        course = run(step, how.iterations, pictures, min(how.views, len(pictures)), 0)
        made = result(mesh, vertices), albedo.detach().clamp(0, 1).cpu().numpy()
        return Painted(*made, np.ones((len(pictures), 3)), counted(course, build))

    return Movers(fit_round, paint)


def variation(image):
    """Return the mean length of the differences to the right and down, of (H, W, C)."""
    right, down = torch.zeros_like(image[..., 0]), torch.zeros_like(image[..., 0])
    right[:, :-1] = (image[:, 1:] - image[:, :-1]).square().sum(-1)
    down[:-1] = (image[1:] - image[:-1]).square().sum(-1)
    return ((right + down + VARIATION**2).sqrt() - VARIATION).mean()


def result(mesh, vertices):
    return replace(mesh, positions=vertices.positions().detach().cpu().numpy())


def counted(course, build):
    """Return the course with the time to prepare it in the first step, as Dressi counts."""
    course.build_s = build
    course.ms[0] += build * 1e3
    return course


def warm_up(context):
    """Compile and load what the first call of a function needs, outside of what is timed."""
    pos = on_gpu([[[-1.0, -1, 0, 1], [3, -1, 0, 1], [-1, 3, 0, 1]]]).requires_grad_()
    tri = on_gpu([[0, 1, 2]], torch.int32)
    rast, _ = dr.rasterize(context, pos, tri, (64, 64), grad_db=False)
    uv = dr.interpolate(pos[..., :2].contiguous(), rast, tri)[0]
    picture = dr.texture(torch.ones(1, 8, 8, 3).cuda(), uv, filter_mode="linear")
    dr.antialias(picture, rast, pos, tri).sum().backward()
    csr(sparse.identity(4, format="csr")) @ (pos[0].detach().T @ pos[0].detach())
    torch.cuda.synchronize()


def parsed():
    parser = argparse.ArgumentParser(description=__doc__)
    add_flags(parser, Settings)
    for mode in ("--quick", "--smoke"):
        parser.add_argument(mode, action="store_true")
    for name in ("--json", "--device", "--beside"):
        parser.add_argument(name)
    given = vars(parser.parse_args())
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
    beside = given.pop("beside")
    settings = make_settings(Settings, **given)
    if settings.ablation or settings.workers or settings.without != ("nothing",):
        parser.error("--ablation, --workers and --without are for Dressi's own experiment")
    if not settings.texture_iterations:
        parser.error("--texture-iterations must be at least 1 here")
    return settings, beside


def table(rows):
    """Print rows of texts, in columns."""
    wide = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for first, *rest in rows:
        print(first.ljust(wide[0]), *(t.rjust(w) for t, w in zip(rest, wide[1:], strict=True)))


def compare(own, theirs):
    """Print figures of nvdiffrast and of Dressi, and what is asked of Dressi's."""
    names = [name for name in own if name in theirs]
    rows = [["object", *(f"{h[0]}, Dressi" for h in FIGURES.values()), *TIMES.values(), "times"]]
    for name in names:
        pair = [own[name], theirs[name]]
        texts = ["{:.4g}, {:.4g}".format(*(float(p[f]) for p in pair)) for f in FIGURES]
        texts += ["{:.1f}, {:.1f}".format(*(p[f] for p in pair)) for f in TIMES]
        texts.append(", ".join(f"{pair[0][f] / pair[1][f]:.2f}" for f in TIMES))
        rows.append([name, *texts])
    table(rows)
    print("ours at least as good:")
    for figure, (heading, less, over) in FIGURES.items():
        ours, peer = (float(over([of[n][figure] for n in names])) for of in (theirs, own))
        holds = ours <= peer if less else ours >= peer
        sign = "<=" if less else ">="
        print(f"  {said(holds)}: {over.__name__} {heading}: {ours:.4g} {sign} {peer:.4g}")
    print(f"ours at least {FASTER:g} times faster:")
    for figure, heading in TIMES.items():
        ratio = float(np.median([own[n][figure] / theirs[n][figure] for n in names]))
        print(f"  {said(ratio >= FASTER)}: median {heading}: {ratio:.2f} times")


def said(holds):
    return "holds" if holds else "DOES NOT HOLD"


def read_beside(path, settings):
    """Return Dressi's figures. Ends the script where they are of other options."""
    with open(path, encoding="utf-8") as file:
        found = json.load(file)
    for name in ("size", "views", "iterations", "texture_iterations"):
        if found["settings"][name] != getattr(settings, name):
            raise SystemExit(f"{path}: {name} is {found['settings'][name]} there")
    if found["settings"]["workers"]:
        print("Dressi's objects were made side by side by workers: its times say nothing")
    return found["figures"]["objects"]


def write(settings, figures):
    who = {"name": name_of_renderer(), "device": torch.cuda.get_device_name()}
    data = {**who, "settings": asdict(settings), "figures": {"objects": figures}}
    with open(settings.json, "w", encoding="utf-8") as file:
        json.dump(data, file, indent=1, default=float)


def main():
    settings, beside = parsed()
    theirs = read_beside(beside, settings) if beside else None
    known = objects()
    names = known if settings.objects == ("all",) else settings.objects
    context = dr.RasterizeCudaContext()
    warm_up(context)
    figures = {}
    for name in names:
        made = reconstruct_target(known[name](), options_of(settings), movers(context))
        figures[name] = {k: v for k, v in made.figures.items() if not isinstance(v, np.ndarray)}
        shown = {k: h[0] for k, h in FIGURES.items()} | TIMES
        texts = [f"{heading} {figures[name][k]:.4g}" for k, heading in shown.items()]
        print(name, *texts, sep=", ", flush=True)
        if settings.json:  # after each, for runs that are stopped
            write(settings, figures)
    if theirs is not None:
        compare(figures, theirs)


if __name__ == "__main__":
    main()
