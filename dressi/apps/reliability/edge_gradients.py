"""R16: the gradient is that of the picture. The mean of AD over 16 sub-pixel shifts against the
derivative of the mean picture, per builder and kind of scene.

Two truths: central differences of the builder's own pictures, averaged over shifts (the rule: AD
differentiates what is drawn), and those of ``dressi.testing.supersampled``, a renderer of another
make (what is drawn is the scene). Gradients of vertices are projected onto the scene's directions,
each of which moves the fastest vertex by a pixel. By default a sample is measured; words ask for
more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, IVEC3, MAT4, VEC3, VType
from dressi.apps.reliability.row import Row, at_most
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.render.raster import (
    Peel,
    build_antialias,
    build_hardsoftras,
    gather,
    interpolate,
)
from dressi.render.shading import flat_normal, smooth_normal, vertex_normals
from dressi.testing.edge_scenes import (
    AMBIENT,
    HEAD,
    KINDS,
    LOOKS,
    SUN,
    WAVES,
    EdgeScene,
    edge_scene,
    moved_extent_px,
    random_scenes,
)
from dressi.testing.supersampled import derivatives

Geometry = tuple[Variable, Variable, Variable, tuple[int, int]]
Blend = Callable[[Sequence[Variable], float], Variable]
Builder = Callable[[Geometry, EdgeScene], tuple[Sequence[Peel], Blend]]

N_SHIFTS = 4
"""Sub-pixel shifts along either axis, for AD."""
FINER = 2
"""Times as many along either axis for differences: there a hard decision is a jump, one of many."""
STEP_PX = 0.5
"""Pixels that the fastest vertex moves for a difference, at most."""
STEP_SHARE = 1 / 16
"""Of half the extent of what moves, on the screen: a difference over more is not the derivative.
With a third, as half a pixel is of the small ball, 1 - cosine to the limit is 0.01 to 0.02."""
SAMPLES, SMALL_SAMPLES = 16, 4
"""Of the reference, per pixel and axis: half a pixel is several samples long, or little is left of
what moves. With 16 the derivatives of a ball are known to 0.4 % of their norm, with 8 to 1 %."""
RATIO, COSINE, RATIO_95, COSINE_95 = 0.03, 0.99, 0.10, 0.97
"""Allowed in the median and at the 95th percentile: what the ratio is off from 1, the cosine."""
MOST_SAMPLES = 48
"""Of the reference, however short its steps: beyond, its arrays take a gigabyte."""
OWN, ALL, RANDOM = "own", "all", "random"
"""Words of the choice that ask for differences of the builders' own pictures (half an hour more),
for all builders and looks, and for N_RANDOM scenes from seeds in place of the kinds."""
N_RANDOM, FEWER_SAMPLES = 40, 8
RANDOM_RATIO, RANDOM_RATIO_95 = 0.05, 0.15
"""Allowed against a picture of 64 samples per pixel."""
SAMPLED = ("K=1 r=0.03", "occlusion r=0.03", "antialias")
"""Builders of the sample. Of each kind it has one scene, with the looks in turn, and the reference
has FEWER_SAMPLES."""
OUTLINE = ("coarse ball", "ball", "fine ball", "small ball", "thin", "near", "border")
"""Kinds whose edges all lie before the background: what is promised of one layer without
occlusion, in looks without a line between faces (not ``facets``)."""
TIMED = 4
"""Steps of which the quickest is told; the first one may build a plan."""
SMALL_WORDS = ("antialias", "coarse ball")
SMALL_DIRECTIONS = 4


def _soft(K: int, r: float, occlusion: bool = False) -> Builder:
    def build(geometry: Geometry, scene: EdgeScene) -> tuple[Sequence[Peel], Blend]:
        hs = build_hardsoftras(*geometry, r, K, clip=scene.clip, occlusion=occlusion)
        return hs.peels, hs.blend

    return build


def _antialias(geometry: Geometry, scene: EdgeScene) -> tuple[Sequence[Peel], Blend]:
    aa, facets = build_antialias(*geometry, clip=scene.clip), scene.look == "facets"
    return [aa.peel], lambda colors, background: aa.blend(colors[0], background, facets)


REACHES = (0.01, 0.03, 0.1, 0.2)
BUILDERS: Mapping[str, Builder] = {
    **{f"K={K} r={r}": _soft(K, r) for K in (1, 3) for r in REACHES},
    **{f"occlusion r={r}": _soft(1, r, occlusion=True) for r in REACHES},
    "antialias": _antialias,
}


@dataclass(frozen=True)
class Found:
    """Derivatives of one scene along its directions: by AD and by differences, of the builder's own
    pictures (None: not asked for) and of the reference. seconds: of a step with the
    gradient of all shifts."""

    ad: np.ndarray
    own: np.ndarray | None
    true: np.ndarray
    seconds: float

    def against(self, truth: np.ndarray) -> tuple[float, float]:
        """Return the ratio of AD to a truth (its part along the truth, over the truth), and the
        cosine between them."""
        along, norm = float(self.ad @ truth), float(np.linalg.norm(truth))
        return along / norm**2, along / max(norm * float(np.linalg.norm(self.ad)), 1e-30)


def shifts(n: int) -> np.ndarray:
    """Return (n n, 2): pixels, evenly spread over one."""
    line = (np.arange(n) + 0.5) / n - 0.5
    return np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)


def steps_of(scene: EdgeScene, samples: int) -> tuple[float, int]:
    """Return the pixels that the fastest vertex moves for a difference, and the samples per pixel,
    up to MOST_SAMPLES, that make it as many samples long as STEP_PX is with the given number."""
    step = min(STEP_PX, STEP_SHARE * moved_extent_px(scene))
    return step, min(round(samples * STEP_PX / step), MOST_SAMPLES)


def truth(scene: EdgeScene, samples: int) -> np.ndarray:
    """Return the derivatives of the reference. samples: per pixel and axis, at least."""
    step, finer = steps_of(scene, samples)
    return derivatives(scene, finer, step)


def _shifted(scene: EdgeScene, moves: np.ndarray) -> np.ndarray:
    """Return (n, 4, 4): matrices that draw everything so many pixels farther right and down."""
    out = np.tile(np.eye(4), (len(moves), 1, 1))
    out[:, :2, 3] = moves * 2.0 / np.array(scene.size)
    return out @ scene.matrix


def scene_colour(scene: EdgeScene, peel: Peel, pos: Variable, faces: Variable) -> Variable:
    """The look of a scene at a peel. FLOAT."""

    def attribute(values: np.ndarray) -> Variable:
        table = F.leaf(values.astype(np.float32).reshape(1, len(values), -1), _type_of(values))
        return interpolate(gather(table, faces), peel.ids, peel.bary)

    albedo = attribute(scene.albedo)
    if scene.look == "flat":
        return albedo
    if scene.look == "waves":
        at = attribute(scene.positions)
        return albedo * (F.sin(F.dot(at, WAVES)) * 0.4 + 0.6)
    if scene.look == "facets":
        normal = flat_normal(peel, pos, faces)
    else:
        normal = smooth_normal(peel, vertex_normals(pos, faces), faces)
    light = np.array(scene.light) / np.linalg.norm(scene.light)
    shade = F.maximum(F.dot(normal, tuple(light)), 0.0)
    return albedo * (shade * (1.0 - AMBIENT) + AMBIENT)


def _type_of(values: np.ndarray) -> VType:
    return VEC3 if values.ndim == 2 else FLOAT


@dataclass(frozen=True)
class Graph:
    """A scene as a builder draws it, all shifts as layers."""

    scene: EdgeScene
    pos: Variable
    matrix: Variable
    picture: Variable

    def gradient(self, ad: DressiAD) -> np.ndarray:
        """Return AD of the weighted sum along the directions, the mean over shifts."""
        gradient = ad.recv_grad(self.pos).astype(np.float64).reshape(-1, 3) / N_SHIFTS**2
        return np.asarray((self.scene.directions * gradient).sum((1, 2)))

    def seconds(self, ad: DressiAD) -> float:
        """Return the time of a step. Positions are sent again, or the engine would skip it as one
        whose inputs did not change."""
        ad.send_img(self.pos, self.scene.positions)
        begin = time.perf_counter()
        ad.exec_step()
        ad.recv_grad(self.pos)
        return time.perf_counter() - begin

    def differences(self, ad: DressiAD) -> np.ndarray:
        """Return central differences of the same, by more shifts."""
        scene, out = self.scene, np.zeros(len(self.scene.directions))
        step, n = steps_of(scene, FINER)
        finer = _shifted(scene, shifts(N_SHIFTS * n))
        for part in np.split(finer, n**2):
            ad.send_img(self.matrix, part)
            for k, d in enumerate(scene.directions):
                for sign in (1, -1):
                    ad.send_img(self.pos, scene.positions + sign * step * d)
                    drawn = ad.recv_img(self.picture).astype(np.float64)
                    drawn = drawn.reshape(len(part), *scene.weights.shape)
                    out[k] += sign * (drawn * scene.weights).sum()
        return out / (2 * step * len(finer))


def load(ad: DressiAD, scene: EdgeScene, builder: Builder) -> Graph:
    """Build a scene and send it to an engine, with the weighted sum as the loss."""
    pos = Variable(VEC3, (len(scene.positions), 1), requires_grad=True, name="pos")
    faces = Variable(IVEC3, (len(scene.faces), 1), name="faces")
    matrix = Variable(MAT4, layers=N_SHIFTS**2, name="matrix")
    weights = Variable(FLOAT, scene.size, name="weights")
    peels, blend = builder((pos, faces, matrix, scene.size), scene)
    picture = blend([scene_colour(scene, p, pos, faces) for p in peels], scene.background)
    ad.set_optimizer(None)
    ad.send_img(faces, scene.faces)
    ad.send_img(matrix, _shifted(scene, shifts(N_SHIFTS)))
    ad.send_img(weights, scene.weights.astype(np.float32))
    ad.send_img(pos, scene.positions)
    ad.set_loss_var(F.sum(picture * weights))
    return Graph(scene, pos, matrix, picture)


def measure_scene(
    ad: DressiAD, scene: EdgeScene, builder: Builder, true: np.ndarray, own: bool
) -> Found:
    """Return what a builder has of a scene."""
    graph = load(ad, scene, builder)
    gradient = graph.gradient(ad)
    seconds = min(graph.seconds(ad) for _ in range(TIMED))
    return Found(gradient, graph.differences(ad) if own else None, true, seconds)


def scenes(kind: str) -> list[EdgeScene]:
    """Return the scenes of a kind: each look once, by turns dark on light, under a headlight."""
    return [
        edge_scene(kind, seed, look, seed % 2 == 1, HEAD if seed > 1 else SUN)
        for seed, look in enumerate(LOOKS)
    ]


def chosen(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return names of builders and kinds of scenes: those that a word is part of, all where no word
    is. Raises DressiError for a word that is part of none."""
    for word in words:
        if word not in (OWN, ALL, RANDOM) and not any(word in name for name in (*BUILDERS, *KINDS)):
            known = ", ".join((*BUILDERS, *KINDS, OWN, ALL, RANDOM))
            raise DressiError(f"bench: R16: {word} is no builder and no kind; known: {known}")
    builders = [b for b in BUILDERS if any(w in b for w in words)]
    kinds = [k for k in KINDS if k in words] or [k for k in KINDS if any(w in k for w in words)]
    return builders or list(BUILDERS), kinds or list(KINDS)


def measure(device: str | None, small: bool, words: Sequence[str] = ()) -> Iterator[Row]:
    """Yield a row per builder and kind, then four per builder over all kinds, or three over scenes
    from seeds. words: parts of names that choose; OWN, ALL, RANDOM. Without words a sample."""
    builders, kinds = chosen(words or (SMALL_WORDS if small else ()))
    sample = not words and not small
    if sample or set(words) == {RANDOM}:
        builders = list(SAMPLED)
    if RANDOM in words:
        yield from _random_rows(device, [b for b in builders if b in SAMPLED[1:]] or builders)
        return
    found: dict[str, list[Found]] = {b: [] for b in builders}
    promised: dict[str, list[Found]] = {b: [] for b in builders}
    for n, kind in enumerate(kinds):
        of_kind = scenes(kind)[: 1 if small else None]
        if sample:
            of_kind = [of_kind[n % len(of_kind)]]
        if small:
            of_kind = [replace(s, directions=s.directions[:SMALL_DIRECTIONS]) for s in of_kind]
        samples = SMALL_SAMPLES if small else FEWER_SAMPLES if sample else SAMPLES
        true = [truth(s, samples) for s in of_kind]
        for name in builders:
            with DressiAD(device) as ad:
                mine = [
                    measure_scene(ad, s, BUILDERS[name], t, OWN in words)
                    for s, t in zip(of_kind, true, strict=True)
                ]
            found[name] += mine
            promised[name] += [
                f for f, s in zip(mine, of_kind, strict=True) if is_promised(name, s)
            ]
            yield from _rows_of_kind(f"R16 {name}, {kind}", mine)
    for name, all_of in promised.items():
        partly = len(all_of) < len(found[name])
        if all_of:
            yield from _verdicts(f"R16 {name}{', outlines' if partly else ''}", all_of)


def is_promised(builder: str, scene: EdgeScene) -> bool:
    """Return whether a builder is meant to have the gradient of its picture of a scene."""
    if not builder.startswith("K=1"):
        return True
    return scene.kind in OUTLINE and scene.look != "facets"


def _random_rows(device: str | None, builders: Sequence[str]) -> Iterator[Row]:
    """Scenes from seeds against a picture of FEWER_SAMPLES squared samples per pixel."""
    some = random_scenes(N_RANDOM)
    true = [truth(s, FEWER_SAMPLES) for s in some]
    for name in builders:
        found = []
        for scene, its in zip(some, true, strict=True):
            with DressiAD(device) as ad:
                found.append(measure_scene(ad, scene, BUILDERS[name], its, False))
        ratio = np.array([f.against(f.true)[0] for f in found])
        off, n, title = np.abs(ratio - 1), len(found), f"R16 {name}, scenes from seeds"
        yield at_most(f"{title}, |ratio - 1|, median", float(np.median(off)), RANDOM_RATIO, n)
        worst = float(np.percentile(off, 95))
        yield at_most(f"{title}, |ratio - 1|, 95 %", worst, RANDOM_RATIO_95, n)
        yield at_most(f"{title}, with the wrong sign", int((ratio <= 0).sum()), 0, n)


def _rows_of_kind(name: str, found: Sequence[Found]) -> Iterator[Row]:
    """The ratio and the cosine in words, beside how far the median ratio is from 1."""
    seconds = float(np.median([f.seconds for f in found]))
    for what, truths in (("truth", [f.true for f in found]), ("own", [f.own for f in found])):
        pairs = [f.against(t) for f, t in zip(found, truths, strict=True) if t is not None]
        if not pairs:
            continue
        ratio, cosine = np.array(pairs).T
        low, middle, high = np.percentile(ratio, (5, 50, 95))
        text = f"AD/{what} {middle:.3f} ({low:.3f} to {high:.3f}), "
        text += f"cosine {np.median(cosine):.4f} ({np.percentile(cosine, 5):.4f}), "
        off = float(np.median(np.abs(ratio - 1)))
        yield at_most(f"{name}: {text}{1e3 * seconds:.0f} ms", off, RATIO, len(pairs))


def _verdicts(name: str, found: Sequence[Found]) -> Iterator[Row]:
    """The four conditions, of all scenes of a builder, against the rule where it was measured."""
    pairs = [f.against(f.true if f.own is None else f.own) for f in found]
    ratio, cosine = np.array(pairs).T
    off, turned, n = np.abs(ratio - 1), 1 - cosine, len(found)
    yield at_most(f"{name}, |ratio - 1|, median", float(np.median(off)), RATIO, n)
    yield at_most(f"{name}, |ratio - 1|, 95 %", float(np.percentile(off, 95)), RATIO_95, n)
    yield at_most(f"{name}, 1 - cosine, median", float(np.median(turned)), round(1 - COSINE, 9), n)
    yield at_most(
        f"{name}, 1 - cosine, 95 %", float(np.percentile(turned, 95)), round(1 - COSINE_95, 9), n
    )
