"""What is wrong with a surface: by hand, and on surfaces whose genus is known."""

from __future__ import annotations

import numpy as np
import pytest

from dressi.errors import GraphError
from dressi.render.fit import isosurface
from dressi.render.scene import Mesh, icosphere, surface_genus, surface_problems


def torus_values(points, large=0.7, small=0.25, center=(0.0, 0.0, 0.0)):
    x, y, z = np.moveaxis(points - np.array(center), -1, 0)
    return small - np.hypot(np.hypot(x, y) - large, z)


def grid_points(n, half=1.2):
    return np.stack(np.meshgrid(*[np.linspace(-half, half, n)] * 3, indexing="ij"), axis=-1)


def surface_of(values, half=1.2):
    return isosurface(values, [-half] * 3, 2 * half / (len(values) - 1))


def test_a_sphere_has_no_problems():
    found = surface_problems(icosphere(2))
    assert found.is_closed and found.is_embedded
    assert (found.n_components, found.genera, found.genus) == (1, (0,), 0)
    assert str(found) == "1 component(s) of genus 0: no problems"
    assert len(found.spikes) == len(found.folds) == 0


def test_a_sphere_with_seams_is_closed():
    sphere = icosphere(2)
    corners = sphere.positions[sphere.faces].reshape(-1, 3)  # no vertex is shared
    found = surface_problems(Mesh(corners, np.arange(len(corners)).reshape(-1, 3)))
    assert found.is_closed and found.genera == (0,) and found.is_embedded


@pytest.mark.parametrize("n_holes", [1, 2, 3])
def test_genus_counts_the_holes_of_a_chain_of_tori(n_holes):
    centers = 0.7 * (np.arange(n_holes) - 0.5 * (n_holes - 1))  # 0.84 wide: they overlap
    values = [torus_values(grid_points(41), 0.3, 0.12, (x, 0.0, 0.0)) for x in centers]
    chain = surface_of(np.max(values, axis=0))
    found = surface_problems(chain)
    assert found.genera == (n_holes,) and surface_genus(chain) == n_holes
    assert found.is_closed


def test_a_genus_belongs_to_its_component():
    parts = [surface_of(torus_values(grid_points(25))), icosphere(1)]
    moved = [p.positions + np.float32([5.0 * i, 0, 0]) for i, p in enumerate(parts)]
    faces = [parts[0].faces, parts[1].faces + len(moved[0])]
    both = Mesh(np.concatenate(moved), np.concatenate(faces))
    found = surface_problems(both)
    assert surface_genus(both) == 1
    assert found.n_components == 2 and sorted(found.genera) == [0, 1] and found.genus == 1


def test_borders_count_as_closed_by_disks():
    sphere = icosphere(2)
    middle = sphere.positions[sphere.faces].mean(axis=1)
    tube = Mesh(sphere.positions, sphere.faces[np.abs(middle[:, 2]) < 0.6])
    found = surface_problems(tube)
    assert not found.is_closed and found.genera == (0,) and found.is_embedded
    ends = tube.positions[found.boundary_edges].mean(axis=1)[:, 2]
    assert (ends > 0).any() and (ends < 0).any()


def test_an_edge_of_three_faces_and_a_face_turned_the_other_way():
    points = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1.0]])
    mesh = Mesh(points, np.array([[0, 1, 2], [1, 0, 3], [0, 1, 4]]))
    three = surface_problems(mesh)
    assert surface_genus(mesh) == -1
    assert three.nonmanifold_edges.tolist() == [[0, 1]] and three.genera == (-1,)
    assert three.genus == -1
    turned = surface_problems(Mesh(points, np.array([[0, 1, 2], [0, 1, 3]])))
    assert turned.turned_edges.tolist() == [[0, 1]] and turned.genera == (-1,)


def test_two_fans_at_a_vertex():
    points = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0.0]])
    found = surface_problems(Mesh(points, np.array([[0, 1, 2], [0, 3, 4]])))
    assert found.nonmanifold_vertices.tolist() == [0]
    assert found.n_components == 2  # no edge joins them
    one_fan = surface_problems(Mesh(points, np.array([[0, 1, 2], [0, 2, 3]])))
    assert len(one_fan.nonmanifold_vertices) == 0


def test_two_spheres_that_touch_in_a_vertex_are_not_manifold_there():
    sphere = icosphere(1)
    top = int(sphere.positions[:, 1].argmax())
    shift = 2 * sphere.positions[top]
    turned = -sphere.positions + shift  # its vertex `top` is where that of the first one is
    faces = np.concatenate([sphere.faces, sphere.faces[:, ::-1] + len(turned)])
    turned[top] = sphere.positions[top]
    found = surface_problems(Mesh(np.concatenate([sphere.positions, turned]), faces))
    assert found.nonmanifold_vertices.tolist() == [top] and len(found.boundary_edges) == 0
    assert len(found.intersections) == 0


def test_degenerate_faces_are_those_without_area():
    points = np.array([[0, 0, 0], [1, 2, 3], [3, 6, 9], [1, 0, 0], [0, 0, 0.0]])
    found = surface_problems(Mesh(points, np.array([[0, 1, 2], [0, 1, 3], [0, 4, 3]])))
    assert found.degenerate_faces.tolist() == [0, 2]  # on a line; twice the same place


def test_a_folded_face_is_flipped():
    sphere = icosphere(2)
    positions = sphere.positions.copy()
    a, b, c = sphere.faces[40]
    positions[a] = 1.6 * (positions[b] + positions[c]) / 2 - 0.6 * positions[a]
    found = surface_problems(Mesh(positions, sphere.faces))
    assert 40 in found.flipped_faces and not found.is_embedded


def test_a_vertex_pulled_out_is_a_spike_and_a_cone_of_low_height_is_not():
    sphere = icosphere(3)
    for height, spikes in ((1.2, []), (3.0, [5])):
        positions = sphere.positions.copy()
        positions[5] *= height
        assert surface_problems(Mesh(positions, sphere.faces)).spikes.tolist() == spikes


@pytest.mark.parametrize(("apart", "n"), [(31.0, 0), (29.0, 1)])
def test_a_fold_is_an_edge_whose_faces_nearly_lie_on_one_another(apart, n):
    angle = np.radians(apart)
    points = [[0, 0, 0], [1, 0, 0], [0.5, 1, 0], [0.5, np.cos(angle), np.sin(angle)]]
    found = surface_problems(Mesh(np.array(points), np.array([[0, 1, 2], [1, 0, 3]])))
    assert found.folds.tolist() == [[0, 1]] * n


def test_bad_angles_and_meshes():
    with pytest.raises(GraphError, match=r"spike_angle_deg must be in \[0, 360\], got -1"):
        surface_problems(icosphere(1), spike_angle_deg=-1)
    with pytest.raises(GraphError, match="out of range"):
        surface_problems(Mesh(np.zeros((2, 3)), np.array([[0, 1, 5]])))
