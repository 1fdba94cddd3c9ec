"""Every builder that makes a picture of geometry, in a mirror: flipped, transposed, turned and
renumbered scenes give flipped, transposed, turned and equal pictures and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from mirrored import CHANGES, SHAPES, Shape, changed, of_picture

from dressi import DressiAD, F, Options, Variable
from dressi.ad.autodiff import build_backward
from dressi.ad.simplify import materialize
from dressi.ad.vtype import FLOAT, IVEC2, IVEC3, MAT4, VEC3
from dressi.render.raster import (
    Strokes,
    build_antialias,
    build_bake,
    build_batch,
    build_hard_raster,
    build_hardsoftras,
    build_lines,
    build_points,
    interpolate,
)
from dressi.render.raster.projection import gather, project
from dressi.render.shading.shadow import build_shadow_map

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:(.|\\n)*turns the picture over"),  # mirrors do
]

Images = dict[str, Variable]
Arrays = dict[str, np.ndarray]


@dataclass
class Leaves:
    """What builders are given. uv: VEC2 @ (N, 1), where the picture shows the vertices."""

    pos: Variable
    faces: Variable
    matrix: Variable
    colors: Variable
    segments: Variable
    weights: Variable
    size: tuple[int, int]

    @property
    def uv(self) -> Variable:
        clip = project(self.pos, self.matrix)
        return clip.xy / clip.w * 0.5 + 0.5

    def corners(self) -> tuple[Variable, Variable, Variable]:
        return gather(self.colors, self.faces)


def leaves_of(shape: Shape) -> Leaves:
    n, v = (len(shape.vertices), 1), len(shape.matrices)
    return Leaves(
        Variable(VEC3, n, requires_grad=True, name="pos"),
        Variable(IVEC3, (len(shape.faces), 1), name="faces"),
        Variable(MAT4, layers=v, name="matrix"),
        Variable(VEC3, n, requires_grad=True, name="colors"),
        Variable(IVEC2, (len(shape.faces), 1), name="segments"),
        Variable(FLOAT, shape.size, v, name="weights"),
        shape.size,
    )


def hard_raster(x: Leaves) -> Images:
    y = build_hard_raster(x.pos, x.faces, x.matrix, x.size)
    return {"color": y.interpolate(x.colors, x.faces), "depth": y.depth, "mask": y.mask}


def culled(x: Leaves) -> Images:
    y = build_hard_raster(x.pos, x.faces, x.matrix, x.size, cull="back", jitter=(0.0, 0.0))
    return {"color": y.interpolate(x.colors, x.faces), "depth": y.depth, "mask": y.mask}


def hardsoft(**more: object) -> Callable[[Leaves], Images]:
    def build(x: Leaves) -> Images:
        y = build_hardsoftras(x.pos, x.faces, x.matrix, x.size, **more)  # type: ignore[arg-type]
        shaded = [interpolate(x.corners(), p.ids, p.bary) for p in y.peels]
        out = {"color": y.blend(shaded, 0.1), "silhouette": y.silhouette, "edge": y.edge}
        return out | {f"depth{k}": p.depth for k, p in enumerate(y.peels)}

    return build


def antialias(x: Leaves) -> Images:
    y = build_antialias(x.pos, x.faces, x.matrix, x.size)
    shaded = interpolate(x.corners(), y.ids, y.bary)
    return {"color": y.blend(shaded, 0.1), "silhouette": y.silhouette, "depth": y.depth}


def batch(x: Leaves) -> Images:
    """The scene, and once more beside itself."""
    aside = np.array([(1, 0, 0, 0.3), (0, 1, 0, -0.4), (0, 0, 1, 0.2), (0, 0, 0, 1.0)])
    beside = F.leaf(aside[None, None], MAT4, "beside")
    y = build_batch([(x.pos, x.faces), (x.pos, x.faces, beside)])
    aa = build_antialias(y.positions, y.faces, x.matrix, x.size)
    shaded = interpolate(gather(F.join([x.colors, x.colors]), y.faces), aa.ids, aa.bary)
    return {"color": aa.blend(shaded, 0.1), "silhouette": aa.silhouette}


def _strokes(y: Strokes, color: Variable) -> Images:
    return {"color": color, "depth": y.depth, "mask": y.mask, "coverage": y.coverage}


def points(x: Leaves) -> Images:
    radius = F.sum_components(x.colors) + 0.4
    y = build_points(x.pos, radius, x.matrix, x.size, r=0.1)
    return _strokes(y, y.interpolate(x.colors))


def lines(x: Leaves) -> Images:
    width = x.colors.x * 3.0 + 0.5
    y = build_lines(x.pos, x.segments, width, x.matrix, x.size, r=0.1)
    return _strokes(y, y.interpolate(x.colors, x.segments))


def world_lines(x: Leaves) -> Images:
    y = build_lines(x.pos, x.segments, x.colors.x * 0.2, x.matrix, x.size, r=0.1, unit="world")
    return _strokes(y, y.interpolate(x.colors, x.segments))


def bake(x: Leaves) -> Images:
    y = build_bake(x.pos, x.faces, x.uv, x.faces, x.size, gutter_px=1.5)
    z = y.charts
    return {"position": y.position, "distance": z.distance, "touched": z.touched}


def shadow(x: Leaves) -> Images:
    y = build_shadow_map(x.pos, x.faces, x.matrix, x.size, r=0.1)
    return {"depth": y.depth, "cover": y.cover}


BUILDERS: dict[str, Callable[[Leaves], Images]] = {
    "hard raster": hard_raster,
    "hard raster, culled": culled,
    "HardSoftRas": hardsoft(r=0.1),
    "HardSoftRas, contour": hardsoft(r=0.1, rims="contour"),
    "HardSoftRas, all rims": hardsoft(r=0.1, rims="all"),
    "HardSoftRas, K = 3": hardsoft(r=0.1, K=3),
    "HardSoftRas, antialiasing": hardsoft(r=0.1, delta=0.06),
    "HardSoftRas, occlusion": hardsoft(r=0.1, occlusion=True),
    "HardSoftRas, SoftRas": hardsoft(r=0.2, delta=1.0, max_delta=1.0, K=2),
    "antialias": antialias,
    "batch": batch,
    "points": points,
    "lines": lines,
    "lines in the world": world_lines,
    "bake": bake,
    "shadow map": shadow,
}


@dataclass
class Scene:
    """A builder's graph for the pictures of one size: images, and gradients of a loss of them."""

    leaves: Leaves
    images: Images
    gradients: Images

    @classmethod
    def of(cls, builder: str, shape: Shape) -> Scene:
        x = leaves_of(shape)
        images = BUILDERS[builder](x)
        terms = [F.sum_components(v * v + v) * x.weights for v in images.values()]
        backward = build_backward(F.sum(F.add_n(terms)), [x.pos, x.colors])
        return cls(x, images, {leaf.name: materialize(g) for leaf, g in backward.items()})

    def drawn(self, ad: DressiAD, shape: Shape) -> tuple[Arrays, Arrays]:
        """Pictures, and gradients to positions and colours by the scene's first numbers."""
        x = self.leaves
        for leaf, data in (
            (x.pos, shape.vertices),
            (x.faces, shape.faces),
            (x.matrix, shape.matrices),
            (x.colors, shape.colors),
            (x.segments, shape.segments),
            (x.weights, shape.weights[..., None]),
        ):
            ad.send_img(leaf, data)
        got = ad.recv_imgs([*self.images.values(), *self.gradients.values()])
        arrays = [a.astype(np.float64) for a in got]
        width, height = shape.size
        pictures = {
            name: a.reshape(-1, height, width, a.shape[-1])
            for name, a in zip(self.images, arrays, strict=False)
        }
        gradients = {}
        for name, a in zip(self.gradients, arrays[len(pictures) :], strict=True):
            gradients[name] = np.empty_like(a)
            gradients[name][shape.vertex_of] = a
        return pictures, gradients


def wrong(want: np.ndarray, got: np.ndarray, tolerance: float) -> str:
    """What differs, or nothing."""
    off = np.abs(got - want)
    limit = tolerance * max(1.0, float(np.abs(want).max()))
    if not (off > limit).any():
        return ""
    most = f"up to {off.max():.3g} of {np.abs(want).max():.3g}"
    return f"{(off > limit).sum()} of {off.size} differ by {most}"


@pytest.fixture(scope="module")
def compute(vulkan_device_available: bool) -> Iterator[DressiAD]:
    if not vulkan_device_available:
        pytest.skip("no Vulkan device on this machine")
    with DressiAD(options=Options(lowering="compute")) as engine:
        yield engine


def check(ad: DressiAD, builder: str, shape: Shape) -> None:
    scene = Scene.of(builder, shape)
    pictures, gradients = scene.drawn(ad, shape)
    assert max(np.abs(g).max() for g in gradients.values()) > 0.1
    found = []
    for change in CHANGES:
        other = changed(shape, change)
        its = scene if other.size == shape.size else Scene.of(builder, other)
        mirrored, same = its.drawn(ad, other)
        for name, image in pictures.items():
            found.append((change, name, wrong(of_picture(image, change), mirrored[name], 2e-4)))
        for name, g in gradients.items():
            found.append((change, f"gradient to {name}", wrong(g, same[name], 2e-3)))
    assert not any(what for *_, what in found), "\n".join(": ".join(f) for f in found if f[-1])


CASES = [
    ("hard raster", "leaning"),
    ("hard raster, culled", "closed"),
    ("HardSoftRas", "overlapping"),
    ("HardSoftRas, contour", "open sheet"),
    ("HardSoftRas, all rims", "slivers"),
    ("HardSoftRas, K = 3", "contact"),
    ("HardSoftRas, antialiasing", "closed"),
    ("HardSoftRas, occlusion", "leaning"),
    ("HardSoftRas, occlusion", "overlapping"),
    ("HardSoftRas, occlusion", "views"),
    ("HardSoftRas, SoftRas", "slivers"),
    ("antialias", "contact"),
    ("antialias", "leaning"),
    ("antialias", "views"),
    ("batch", "leaning"),
    ("points", "leaning"),
    ("lines", "contact"),
    ("lines in the world", "slivers"),
    ("bake", "sheet"),
    ("shadow map", "closed"),
]
"""Each takes seconds to build: of all builders and scenes those that tell most."""


@pytest.mark.parametrize(("builder", "shape"), CASES)
def test_mirrored_scene_gives_the_mirrored_picture_and_gradient(
    ad: DressiAD, builder: str, shape: str
) -> None:
    check(ad, builder, SHAPES[shape]())


@pytest.mark.parametrize(
    ("builder", "shape"),
    [("hard raster", "closed"), ("HardSoftRas", "contact"), ("antialias", "contact")],
)
def test_dispatches_give_the_mirrored_picture_and_gradient(
    compute: DressiAD, builder: str, shape: str
) -> None:
    check(compute, builder, SHAPES[shape]())
