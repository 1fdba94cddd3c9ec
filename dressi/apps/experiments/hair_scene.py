"""The scene of the hair experiment: a head, strands on its scalp, one light, one view.

In: a head, settings. Out: the graph of the picture. Everything but the numbers of the fibre is data
that never changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, IVEC2, IVEC3, MAT4, VEC3
from dressi.apps.data.heads import ICT_SKIN, ict_arrays, made_of, triangles
from dressi.render.camera import Camera, look_at, perspective
from dressi.render.raster import build_hard_raster, build_ribbons
from dressi.render.scene import Growth, Mesh, Strands, grow_strands, icosphere, vertex_normals
from dressi.render.shading import (
    DirectionalLight,
    HairFiber,
    build_opacity_map,
    build_shadow_map,
    directional_matrix,
    eye_position,
    shade_hair,
    shadow_visibility,
    strand_transmittance,
)

RADII = np.array([0.78, 1.0, 0.9])
"""Of the ellipsoid that stands for a head; the unit of length is about 10 cm."""

HAIRLINE = ([-0.5, -0.1, 0.3, 0.7], [-0.5, 0.0, 0.3, 0.55])
"""Depth z (the face looks to +z) and the height y above which hair grows there."""

LIGHT = (-0.75, -0.75, -0.35)
INTENSITY, AMBIENT = 12.0, 0.25
SKIN, BACKDROP = (0.42, 0.26, 0.19), (0.16, 0.17, 0.19)
DENSITY = 0.7
"""What a strand takes of the light: hair is translucent."""

SHADOW_RADIUS, SHADOW_SIZE, SLICES = 1.9, (128, 128), 24
"""World units around the head that the light's maps see; texels; slices of the opacity map."""


@dataclass(frozen=True)
class Head:
    """mesh: all of it. scalp: where hair grows. ball: centre and radii of the skull."""

    mesh: Mesh
    scalp: Mesh
    ball: tuple[np.ndarray, np.ndarray]


def ellipsoid_head(subdivisions: int = 4) -> Head:
    """Return a head without a face."""
    ball = icosphere(subdivisions)
    mesh = Mesh((ball.positions * RADII).astype(np.float32), ball.faces, name="head")
    return Head(mesh, scalp_of(mesh), (np.zeros(3), RADII * 1.03))


ICT_CENTER, ICT_SCALE = (0.0, 4.0, 0.5), 0.1
"""Middle of the skull in centimetres, and world units of one."""
ICT_SKULL = np.array([0.78, 1.02, 0.95])


def ict_head(path: str | Path) -> Head:
    """Return the neutral head of ICT-FaceKit from its file of arrays (docs/human.md). Raises
    LoadError for a file that is not one."""
    found = ict_arrays(path, "neutral", "faces", "material_names", "material")
    quads = found["faces"][made_of(found, ICT_SKIN, path)]
    used, rows = np.unique(triangles(quads), return_inverse=True)
    places = (found["neutral"][used].astype(np.float64) - ICT_CENTER) * ICT_SCALE
    mesh = Mesh(places.astype(np.float32), rows.reshape(-1, 3).astype(np.int32), name="ict").check()
    return Head(mesh, scalp_of(mesh), (np.zeros(3), ICT_SKULL))


def scalp_of(mesh: Mesh) -> Mesh:
    """Return the faces of a head that hair grows on."""
    center = mesh.positions[mesh.faces].mean(axis=1)
    normal = vertex_normals(mesh.positions, mesh.faces)[mesh.faces].mean(axis=1)
    above = center[:, 1] > np.interp(center[:, 2], *HAIRLINE)
    outward = (normal * center).sum(axis=1) > 0.0  # not the inside of ears and neck
    return Mesh(mesh.positions, mesh.faces[above & outward], name="scalp")


def hair_style(n_strands: int, seed: int) -> Growth:
    """Return how hair grows. Fewer strands are thicker, so that the head is covered."""
    width = 0.013 * (3000 / n_strands) ** 0.5
    return Growth(
        length=1.05,
        spread=0.15,
        n_points=20,
        width=width,
        lift=0.35,
        gravity=0.7,
        curl=0.1,
        scale=0.4,
        stray=0.03,
        seed=seed,
    )


def grow_hair(head: Head, n_strands: int, seed: int) -> Strands:
    """Return the strands of a head."""
    return grow_strands(head.scalp, n_strands, hair_style(n_strands, seed), head.ball)


def view_of() -> Camera:
    """Return the camera, from the side and a little above."""
    eye = look_at((3.6, 1.0, 2.9), (0.0, -0.25, 0.0), (0.0, 1.0, 0.0))
    return Camera(eye, perspective(36.0, 1.0, 1.0, 9.0), "side")


def build_picture(
    head: Head, strands: Strands, fiber: HairFiber, size: tuple[int, int], n_layers: int
) -> tuple[Variable, Variable]:
    """Return the picture, VEC3 linear, and the coverage of the hair, FLOAT. Gradient to the fibre
    alone: all else is data."""
    points, segments, neighbors, widths = (
        F.leaf(array, vtype, name)
        for array, vtype, name in (
            (strands.points, VEC3, "points"),
            (strands.segments, IVEC2, "segments"),
            (strands.neighbors, IVEC2, "neighbors"),
            (strands.widths, FLOAT, "widths"),
        )
    )
    vtx_pos = F.leaf(head.mesh.positions, VEC3, "head")
    faces = F.leaf(head.mesh.faces, IVEC3, "head_faces")
    matrix = F.leaf(view_of().matrix32, MAT4, "matrix")
    raster = build_hard_raster(vtx_pos, faces, matrix, size)
    hair = build_ribbons(points, segments, neighbors, widths, matrix, size, n_layers, raster.depth)
    light = directional_matrix(LIGHT, (0.0, -0.2, 0.0), SHADOW_RADIUS)
    opacity = build_opacity_map(points, segments, widths, light, SHADOW_SIZE, SLICES)
    shadow = build_shadow_map(vtx_pos, faces, light, SHADOW_SIZE)
    sun = DirectionalLight(LIGHT, 1.0, INTENSITY)

    position = hair.interpolate(points, segments)
    tangents = F.leaf(strands.tangents, VEC3, "tangents")
    tangent = F.normalize(hair.interpolate(tangents, segments))
    passes = strand_transmittance(opacity, position, DENSITY)
    shaded = shade_hair(
        fiber,
        tangent,
        F.normalize(eye_position(matrix) - position),
        position,
        [sun],
        [passes * shadow_visibility(shadow, position)],
        # Light from everywhere is hidden by what hides the sun, on average.
        F.constant((AMBIENT,) * 3) * F.sqrt(passes),
    )
    on_head = raster.interpolate(vtx_pos, faces)
    normals = F.leaf(vertex_normals(head.mesh.positions, head.mesh.faces), VEC3, "normals")
    normal = F.normalize(raster.interpolate(normals, faces))
    to_light, _ = sun.sample(on_head)
    passes = strand_transmittance(opacity, on_head, DENSITY)
    lit = F.maximum(F.dot(normal, to_light), 0.0) * passes * shadow_visibility(shadow, on_head)
    skin = F.constant(SKIN) * (lit * 1.2 + AMBIENT * F.sqrt(passes))
    background = F.where(raster.mask, skin, F.constant(BACKDROP))
    picture = hair.blend(F.where(hair.mask, shaded, 0.0), background)
    return picture, F.sum_layers(hair.weights)
