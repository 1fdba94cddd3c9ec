"""Rasterization from clip positions, image-space derivatives, antialiasing over a rasterization."""

from __future__ import annotations

import numpy as np
import pytest
from pixel_reference import interpolated_da, rasterized, visible

from dressi import INT, IVEC3, MAT4, VEC3, VEC4, DressiAD, F, GraphError, Variable
from dressi.render.camera import look_at, perspective
from dressi.render.raster import (
    build_antialias,
    build_clip_raster,
    build_edge_weights,
    build_hard_raster,
    gather,
    image_derivatives,
    opengl_to_vulkan,
    raster_image,
    weight_derivatives,
)
from dressi.render.raster.projection import project
from dressi.render.scene import icosphere
from dressi.render.shading import texture_cube_mip

pytestmark = pytest.mark.gpu

SIZE = (14, 11)
POS = np.array(
    [[-0.9, -0.7, 0.1, 1], [1.1, -0.6, 0.2, 1.4], [0.1, 1.2, -0.4, 1.3], [0.9, 0.9, 0.3, 1]]
)
TRI = np.array([[0, 1, 2], [1, 3, 2]])


def test_layers_may_have_faces_of_their_own():
    """Two layers: both triangles, and one that is filled up with one without area."""
    pos, faces = Variable(VEC4, (4, 1)), Variable(IVEC3, (2, 1), 2)
    first = Variable(INT, layers=2)
    raster = build_clip_raster(opengl_to_vulkan(pos), faces, SIZE)
    with DressiAD() as ad:
        ad.send_img(pos, POS)
        ad.send_img(faces, np.array([TRI, [TRI[1], (0, 0, 0)]])[:, None])
        ad.send_img(first, np.array([0, 1]).reshape(2, 1, 1, 1))
        got = ad.recv_img(raster_image(raster, first))
    for layer, tri in enumerate((TRI, TRI[1:])):
        ids, sure = visible(POS, tri, SIZE[::-1])
        wanted, _ = rasterized(POS, tri, ids)
        wanted[..., 3] += layer * (ids >= 0)
        np.testing.assert_allclose(got[layer][sure], wanted[sure], atol=1e-4)


def test_derivatives_of_an_attribute_agree_with_float64():
    pos, faces = Variable(VEC4, (4, 1)), Variable(IVEC3, (2, 1))
    table = Variable(VEC3, (4, 1))
    raster = build_clip_raster(opengl_to_vulkan(pos), faces, SIZE)
    by_pixel = weight_derivatives(raster.corners, raster.ids, SIZE)
    dx, dy = image_derivatives(gather(table, faces), raster.ids, by_pixel)
    values = np.random.default_rng(0).uniform(-1, 1, (4, 3))
    with DressiAD() as ad:
        ad.send_img(pos, POS)
        ad.send_img(faces, TRI)
        ad.send_img(table, values)
        got = np.stack(ad.recv_imgs([dx, dy]), -1).reshape(*SIZE[::-1], 6)
    ids, sure = visible(POS, TRI, SIZE[::-1])
    wanted = interpolated_da(values, *_swapped(rasterized(POS, TRI, ids)))
    np.testing.assert_allclose(got[sure], wanted[sure], atol=1e-4 * np.abs(wanted).max())


def _swapped(found: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return found[0], TRI, found[1]


def test_the_entry_in_clip_space_draws_and_antialiases_what_the_one_in_world_space_does():
    size, mesh = (40, 32), icosphere(1)
    pos, faces = Variable(VEC3, (len(mesh.positions), 1)), Variable(IVEC3, (len(mesh.faces), 1))
    matrix = Variable(MAT4, layers=2)
    clip = project(pos, matrix)
    hard, raster = build_hard_raster(pos, faces, matrix, size), build_clip_raster(clip, faces, size)
    blended = build_antialias(pos, faces, matrix, size)
    depth = F.where(blended.hard, blended.depth, 1.0)
    weights = build_edge_weights(clip, faces, blended.ids, depth)
    eyes = ((0.4, 1.0, 3.0), (2.5, -1.0, 1.5))
    with DressiAD() as ad:
        ad.send_img(pos, mesh.positions)
        ad.send_img(faces, mesh.faces)
        to_clip = [perspective(45.0, 1.25, 0.5, 20.0) @ look_at(e, (0, 0, 0)) for e in eyes]
        ad.send_img(matrix, np.stack(to_clip))
        a, b = ad.recv_imgs([hard.bary, hard.ids]), ad.recv_imgs([raster.bary, raster.ids])
        np.testing.assert_array_equal(a[1], b[1])
        np.testing.assert_array_equal(a[0], b[0])
        mine, theirs = ad.recv_imgs([weights, blended.weights])
    assert (theirs > 0.05).mean() > 0.005
    np.testing.assert_allclose(mine, theirs, atol=1e-4)


def test_a_mip_chain_of_cube_maps_is_mixed_between_levels():
    levels = [Variable(VEC3, (n, n), 6) for n in (4, 2, 1)]
    direction, lod = Variable(VEC3, (5, 1)), Variable(VEC3, (5, 1))
    read = texture_cube_mip(levels, direction, lod.x)
    nearest = texture_cube_mip(levels, direction, lod.x, nearest_level=True)
    at = np.array([-1.0, 0.25, 0.75, 1.5, 7.0])
    with DressiAD() as ad:
        for k, level in enumerate(levels):
            n = level.size[0]
            ad.send_img(level, np.full((6, n, n, 3), 10.0 * k))
        ad.send_img(direction, np.random.default_rng(0).normal(size=(5, 3)))
        ad.send_img(lod, np.repeat(at[:, None], 3, 1))
        mixed, rounded = (v[:, 0] for v in ad.recv_imgs([read, nearest]))
    np.testing.assert_allclose(mixed, 10 * np.clip(at, 0, 2), atol=1e-4)
    np.testing.assert_allclose(rounded, [0, 0, 10, 20, 20], atol=1e-4)


def test_wrong_types_are_errors():
    pos, faces = Variable(VEC3, (4, 1)), Variable(IVEC3, (2, 1))
    with pytest.raises(GraphError, match="clip raster needs VEC4 positions"):
        build_clip_raster(pos, faces, SIZE)
    with pytest.raises(GraphError, match="edge weights need VEC4"):
        build_edge_weights(pos, faces, Variable(INT, SIZE), Variable(INT, SIZE))
