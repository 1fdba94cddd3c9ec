"""Small pictures, one of each kind that the builders draw: a function per picture."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from dressi import FLOAT, IVEC2, IVEC3, MAT4, VEC2, VEC3, F, Variable
from dressi.render import ibl
from dressi.render.camera.eye import eye_position
from dressi.render.raster import build_hard_raster
from dressi.render.raster.antialias import build_antialias
from dressi.render.raster.hardsoftras import HardSoft, Peel, build_hardsoftras
from dressi.render.raster.ribbons import build_ribbons
from dressi.render.raster.strokes import build_lines
from dressi.render.scene.grow import Growth, grow_strands
from dressi.render.scene.mesh import Mesh, icosphere
from dressi.render.scene.pear import make_pear
from dressi.render.shading import (
    DirectionalLight,
    HairFiber,
    PointLight,
    SpotLight,
    Surface,
    blend_peels,
    blinn_phong,
    build_opacity_map,
    build_shadow_map,
    build_surface,
    directional_matrix,
    gouraud,
    lambert_surface,
    pbr,
    shade_hair,
    shadow_visibility,
    strand_transmittance,
    tone_map,
    unlit,
    vertex_normals,
)
from dressi.render.shading.normal_map import flat_tangent, perturb_normal
from dressi.testing.scenes import camera, cube, quad, rotated

SIZE = (96, 96)
EYE = (1.2, 1.0, 3.0)
SUN = DirectionalLight((-0.4, -0.8, -0.6), (1.0, 0.95, 0.85), 1.2)
SKY = (0.08, 0.1, 0.14)
BACKGROUND = 0.02


class Model:
    """Leaves of a mesh, and its camera."""

    def __init__(self, mesh: Mesh, eye: tuple[float, float, float] = EYE) -> None:
        self.pos = F.leaf(mesh.positions, VEC3)
        self.faces = F.leaf(mesh.faces, IVEC3)
        self.matrix = F.leaf(camera(SIZE, eye), MAT4)
        self.eye = eye_position(self.matrix)
        self.normals = vertex_normals(self.pos, self.faces)
        if mesh.uvs is not None:
            self.uv, self.uv_faces = F.leaf(mesh.uvs, VEC2), F.leaf(mesh.corner_faces, IVEC3)

    def soft(self, r: float = 0.02, K: int = 1) -> HardSoft:
        return build_hardsoftras(self.pos, self.faces, self.matrix, SIZE, r, K)

    def hard(self, color: Callable[[Peel], Variable]) -> Variable:
        raster = build_hard_raster(self.pos, self.faces, self.matrix, SIZE)
        return F.where(raster.mask, color(raster.peel), BACKGROUND)

    def surface(self, peel: Peel, smooth: bool = True, **material: object) -> Surface:
        normals = self.normals if smooth else None
        return build_surface(peel, self.pos, self.faces, self.eye, normals, **material)  # type: ignore[arg-type]


def box() -> Mesh:
    v, f = cube(0.55)
    return Mesh(rotated(v, 0.35, 0.4), f)


def overlapping() -> Mesh:
    """Three squares, one behind another, turned."""
    v, f = quad(0.8)
    shifts = np.array([(-0.4, -0.3, 0.6), (0.0, 0.1, 0.0), (0.4, 0.4, -0.6)])
    parts = [rotated(v, 0.0, 0.0, 0.3 * k) + shift for k, shift in enumerate(shifts)]
    return Mesh(np.concatenate(parts), np.concatenate([f + 4 * k for k in range(3)]))


def face_colors(model: Model, per: int) -> Variable:
    """VEC3 table: a colour for each ``per`` faces."""
    n = model.faces.size[0]
    colors = np.array([(0.8, 0.15, 0.1), (0.1, 0.6, 0.2), (0.1, 0.25, 0.8), (0.8, 0.7, 0.1)])
    return F.leaf(colors[(np.arange(n) // per) % len(colors)], VEC3)


@cache
def pear() -> tuple[Mesh, np.ndarray]:
    return make_pear(40, 28, 64)


def sky_map() -> Variable:
    """VEC3 @ 32x16: blue above, brown below, a sun."""
    y, x = (np.mgrid[:16, :32] + 0.5) / (16, 32)[0]
    up = np.clip(1.0 - y, 0.0, 1.0)[..., None]
    sky = up * (0.3, 0.5, 0.9) + (1.0 - up) * (0.3, 0.2, 0.1)
    sun = np.exp(-((x - 0.6) ** 2 + (y - 0.3) ** 2) / 0.01)[..., None] * (6.0, 5.0, 4.0)
    return F.leaf((sky + sun) * 0.3, VEC3)


# -- the pictures


def soft_rim() -> Variable:
    """A silhouette whose rim reaches far out."""
    return Model(box()).soft(r=0.15).silhouette


def three_peels() -> Variable:
    """The mean of the paper: near the outline what a square hides shows through it, and a square's
    diagonal is a faint gap where it meets its corner."""
    model = Model(overlapping())
    hs, colors = model.soft(0.06, 3), face_colors(model, 2)
    return hs.blend([F.lookup(colors, p.ids) for p in hs.peels], BACKGROUND)


def opaque_peels() -> Variable:
    """The same peels over each other: nothing shows through."""
    model = Model(overlapping())
    hs, colors = model.soft(0.06, 3), face_colors(model, 2)
    shown = [F.lookup(colors, p.ids) for p in hs.peels]
    return blend_peels(hs, shown, [1.0] * 3, BACKGROUND)[0]


def transparency() -> Variable:
    model = Model(overlapping())
    hs, colors = model.soft(0.02, 3), face_colors(model, 2)
    shown = [F.lookup(colors, p.ids) for p in hs.peels]
    return blend_peels(hs, shown, [0.6] * 3, BACKGROUND)[0]


def antialias() -> Variable:
    model = Model(box())
    aa = build_antialias(model.pos, model.faces, model.matrix, SIZE)
    return aa.blend(F.lookup(face_colors(model, 2), aa.ids), BACKGROUND)


def textured_pear() -> Variable:
    mesh, albedo = pear()
    model = Model(mesh)
    texture = F.leaf(albedo, VEC3)
    return model.hard(lambda p: unlit(p, model.uv, model.uv_faces, texture, wrap="clamp"))


def lambert_pear() -> Variable:
    mesh, albedo = pear()
    model = Model(mesh)
    texture, hs = F.leaf(albedo, VEC3), model.soft()
    paint = unlit(hs.peels[0], model.uv, model.uv_faces, texture, wrap="clamp")
    surface = model.surface(hs.peels[0], albedo=paint)
    return hs.blend([lambert_surface(surface, [SUN], SKY)], BACKGROUND)


def blinn_phong_lamp() -> Variable:
    model = Model(icosphere(3))
    lamp = PointLight((1.5, 1.5, 1.5), (1.0, 0.8, 0.6), 4.0)
    spot = SpotLight((-2.0, 2.0, 2.0), (1.0, -1.0, -1.0), (0.2, 0.4, 1.0), 12.0, None, 0.1, 0.25)
    return model.hard(
        lambda p: blinn_phong(model.surface(p, albedo=(0.5, 0.5, 0.5)), [lamp, spot], SKY, 0.5)
    )


def gouraud_ball() -> Variable:
    model = Model(icosphere(1))
    to_eye = F.normalize(model.eye - model.pos)
    vertices = Surface((0.7, 0.3, 0.2), model.pos, model.normals, to_eye)
    return model.hard(lambda p: gouraud(p, model.faces, vertices, [SUN], ambient=SKY))


def pbr_lights() -> Variable:
    model = Model(icosphere(3))
    return model.hard(
        lambda p: pbr(model.surface(p, albedo=(0.9, 0.2, 0.1), roughness=0.35), [SUN]) * 2.0
    )


def gold_under_a_sky() -> Variable:
    model, sky = Model(icosphere(3)), ibl.build_environment(sky_map(), side=8)
    material = {"albedo": (1.0, 0.77, 0.34), "metallic": 1.0, "roughness": 0.3}
    shown = model.hard(lambda p: pbr(model.surface(p, **material), environment=sky))
    return tone_map(shown, "aces")


def normal_map() -> Variable:
    v, f = quad(1.0)
    model = Model(Mesh(v, f, v[:, :2] * 0.5 + 0.5, f), (0.5, 0.4, 3.0))
    y, x = (np.mgrid[:32, :32] + 0.5) / 32
    tilt = np.stack([0.3 * np.cos(12 * x), 0.3 * np.cos(12 * y), np.ones_like(x)], -1)
    bumps = F.leaf(tilt / np.linalg.norm(tilt, axis=-1, keepdims=True) * 0.5 + 0.5, VEC3)

    def color(peel: Peel) -> Variable:
        surface = model.surface(peel, smooth=False)
        tangent = flat_tangent(peel, model.pos, model.faces, model.uv, model.uv_faces)
        texel = unlit(peel, model.uv, model.uv_faces, bumps)
        assert surface.normal is not None
        bent = perturb_normal(surface.normal, tangent, texel)
        return lambert_surface(Surface((0.6, 0.6, 0.6), surface.position, bent), [SUN], SKY)

    return model.hard(color)


def shadow() -> Variable:
    """A ball over a floor, and its shadow."""
    sun = DirectionalLight((0.7, -0.8, 0.1), (1.0, 0.95, 0.85), 1.2)
    ball, (v, f) = icosphere(2, 0.45), quad(1.6)
    floor = np.stack([v[:, 0], np.full(4, -0.55), -v[:, 1]], 1)
    faces = np.concatenate([ball.faces, f + len(ball.positions)])
    model = Model(Mesh(np.concatenate([ball.positions, floor]), faces), (1.5, 2.0, 2.6))
    view = directional_matrix(sun.direction, (0.0, 0.0, 0.0), 2.4)
    caster = build_shadow_map(model.pos, model.faces, view, (64, 64))

    def color(peel: Peel) -> Variable:
        surface = model.surface(peel, smooth=False, albedo=(0.5, 0.5, 0.45))
        lit = shadow_visibility(caster, surface.position)
        return lambert_surface(surface, [sun], SKY, [lit])

    return model.hard(color)


def strands() -> Variable:
    t = np.linspace(0.0, 4 * np.pi, 40)
    helix = np.stack([np.cos(t) * 0.8, t / 6 - 1.0, np.sin(t) * 0.8], 1)
    segments = np.stack([np.arange(39), np.arange(1, 40)], 1)
    lines = build_lines(
        F.leaf(helix, VEC3), F.leaf(segments, IVEC2), 5.0, F.leaf(camera(SIZE, EYE), MAT4), SIZE
    )
    color = F.leaf(np.stack([t / t[-1], 0.3 + 0 * t, 1 - t / t[-1]], 1), VEC3)
    return lines.interpolate(color, F.leaf(segments, IVEC2)) * lines.coverage


def hair() -> Variable:
    """A ball of hair: its layers, its shadows on itself and on the ball, both highlights."""
    model = Model(icosphere(3), (1.5, 1.2, 4.2))
    growth = Growth(length=0.9, width=0.03, lift=0.4, curl=0.12, seed=1)
    grown = grow_strands(icosphere(3), 700, growth, ((0, 0, 0), (1.04,) * 3))
    points, widths = F.leaf(grown.points, VEC3), F.leaf(grown.widths, FLOAT)
    segments, neighbors = F.leaf(grown.segments, IVEC2), F.leaf(grown.neighbors, IVEC2)
    ball = build_hard_raster(model.pos, model.faces, model.matrix, SIZE)
    args = (points, segments, neighbors, widths, model.matrix, SIZE)
    ribbons = build_ribbons(*args, n_layers=4, occluder=ball.depth)
    opacity = build_opacity_map(
        points, segments, widths, directional_matrix(SUN.direction, 0.0, 2.0), (64, 64)
    )
    position = ribbons.interpolate(points, segments)
    color = shade_hair(
        HairFiber(melanin=0.5, redness=0.6),
        F.normalize(ribbons.interpolate(F.leaf(grown.tangents, VEC3), segments)),
        F.normalize(model.eye - position),
        position,
        [DirectionalLight(SUN.direction, 1.0, 10.0)],
        [strand_transmittance(opacity, position, 0.7)],
        ambient=0.2,
    )
    skin = F.constant((0.4, 0.3, 0.25)) * strand_transmittance(
        opacity, ball.interpolate(model.pos, model.faces), 0.7
    )
    background = F.where(ball.mask, skin, F.constant(SKY))
    return ribbons.blend(F.where(ribbons.mask, color, 0.0), background)


def _letter() -> np.ndarray:
    """(8, 8, 3): an F, which looks like itself in one pose only."""
    rows = ("........", ".#####..", ".#......", ".####...", ".#......", ".#......", ".#......")
    ink = np.array([[c == "#" for c in row] for row in (*rows, rows[0])])[..., None]
    return np.where(ink, (0.9, 0.3, 0.1), (0.1, 0.2, 0.4))


def wraps() -> Variable:
    """Repeat and mirror above, clamp and border below, each over twice the texture; on the right
    the nearest texel."""
    tex = F.leaf(_letter(), VEC3)
    y, x = np.mgrid[: SIZE[1], : SIZE[0]]
    quarter = np.stack([x, y], -1) % 48
    uv, right, below = F.leaf((quarter + 0.5) / 24.0 - 0.5, VEC2), x >= 48, y >= 48
    above = F.where(_mask(right), F.texture(tex, uv, "nearest", "mirror"), F.texture(tex, uv))
    return F.where(
        _mask(below),
        F.where(
            _mask(right),
            F.texture(tex, uv, "nearest", "border", border=0.3),
            F.texture(tex, uv, wrap="clamp"),
        ),
        above,
    )


def _mask(at: np.ndarray) -> Variable:
    return F.leaf(at[..., None].astype(np.float32), FLOAT)


def mip_levels() -> Variable:
    """Level of detail from 0 on the left to 3 on the right."""
    lod = F.leaf(np.tile(np.linspace(0.0, 3.0, SIZE[0])[None, :, None], (SIZE[1], 1, 1)), FLOAT)
    y, x = np.mgrid[: SIZE[1], : SIZE[0]]
    uv = F.leaf((np.stack([x, y], -1) + 0.5) / 48.0, VEC2)
    return F.texture_mip(F.image.mipmap(F.leaf(_letter(), VEC3)), uv, lod)


PICTURES: dict[str, Callable[[], Variable]] = {
    f.__name__: f
    for f in (
        *(soft_rim, three_peels, opaque_peels, transparency, antialias),
        *(textured_pear, lambert_pear),
        *(blinn_phong_lamp, gouraud_ball, pbr_lights, gold_under_a_sky, normal_map, shadow),
        *(strands, hair, wraps, mip_levels),
    )
}
