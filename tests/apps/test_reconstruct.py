"""The pipeline from pictures to a mesh: cameras, pictures, rounds, and small reconstructions."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from dressi.ad import F, evaluate
from dressi.ad.vtype import VEC2, VEC3
from dressi.apps.experiments.gallery import boundary_of, bowl, notched_box, two_holes
from dressi.apps.experiments.shapes import (
    COLUMNS,
    Settings,
    ablation_table,
    conditions,
    conditions_of_few_views,
    medians,
    variants_of,
)
from dressi.apps.photos import view_weights
from dressi.apps.reconstruct import leaves
from dressi.apps.reconstruct.command import TargetOptions, reconstruct_target
from dressi.apps.reconstruct.framing import MARGIN, around, views_of
from dressi.apps.reconstruct.pictures import Pictures, shrink
from dressi.apps.reconstruct.pipeline import (
    WITHOUT,
    Plan,
    moved,
    placement,
    reconstruct,
    rounds_of,
    widened,
    without_small_holes,
)
from dressi.apps.reconstruct.rounds import LossWeights, Round, fit_round, turns
from dressi.apps.reconstruct.targets import Target, draw, load_target, target_of_mesh, texels
from dressi.apps.reconstruct.texture import Painting, paint
from dressi.cli import main
from dressi.engine import DressiAD
from dressi.errors import DressiError, GraphError
from dressi.render.fit import unwrap
from dressi.render.io.files import save_mesh
from dressi.render.scene import Mesh, icosphere, surface_problems
from dressi.render.scene.parts import TextureRef

RNG = np.random.default_rng(3)


def ndc(camera, points: np.ndarray) -> np.ndarray:
    clip = points @ camera.matrix[:, :3].T + camera.matrix[:, 3]
    return clip[:, :3] / clip[:, 3:]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_every_view_holds_the_object_and_the_margin_is_what_stays_free(scale: float) -> None:
    points = (RNG.normal(size=(200, 3)) * [1.0, 0.1, 3.0] + [5.0, 0.0, 0.0]) * scale
    for camera in views_of(points, around(24)):
        at = ndc(camera, points)
        assert np.isclose(np.abs(at[:, :2]).max(), 1.0 - MARGIN, atol=1e-6)
        assert (at[:, 2] > 0.0).all() and (at[:, 2] < 1.0).all()


def test_directions_are_spread_and_those_held_out_are_others() -> None:
    fitted, kept = around(24), around(8, 1.2)
    apart = np.degrees(np.arccos(np.clip(fitted @ fitted.T - 2.0 * np.eye(24), -1, 1)).min(1))
    assert apart.min() > 20.0  # 24 caps that do not overlap have a radius of at most 23 degrees
    assert np.degrees(np.arccos(np.clip(kept @ fitted.T, -1, 1))).min() > 3.0


def test_shrunk_pictures_hold_the_means_over_areas_of_any_size() -> None:
    images = RNG.random((2, 12, 20, 3)).astype(np.float32)
    for longer in (10, 7):
        small = shrink(images, longer)
        assert max(small.shape[1:3]) == longer
        assert np.allclose(small.mean((1, 2)), images.mean((1, 2)), atol=1e-5)
    assert np.allclose(
        shrink(images, 10), images.reshape(2, 6, 2, 10, 2, 3).mean((2, 4)), atol=1e-6
    )


def test_a_part_of_a_photo_shows_the_same_points_at_the_same_pixels() -> None:
    sides = np.array([160, 120])
    directions = around(3)
    matrices = np.stack([c.matrix for c in views_of(RNG.normal(size=(200, 3)) * 5.0, directions)])
    ball = icosphere(2)
    ball = replace(ball, positions=(ball.positions * 0.5 + [1.0, 0.5, 0.0]).astype(np.float32))

    def pixels(matrices: np.ndarray, size: np.ndarray) -> np.ndarray:
        clip = ball.positions @ matrices[:, :, :3].transpose(0, 2, 1) + matrices[:, None, :, 3]
        return (clip[..., :2] / clip[..., 3:] + 1.0) / 2.0 * size

    whole = pixels(matrices, sides)
    at = np.floor(whole).astype(int)
    coverage = np.zeros((3, 120, 160, 1), np.float32)
    for k in range(3):
        coverage[k, at[k, :, 1], at[k, :, 0]] = 1.0
    colour = RNG.random((3, 120, 160, 3)).astype(np.float32)
    given = Pictures(matrices, coverage, colour=colour)
    part = given.cropped(ball.positions)
    size = np.array(part.size)
    assert part.colour is not None and (size < sides / 2).all()
    assert np.allclose(part.coverage.sum((1, 2, 3)), coverage.sum((1, 2, 3)))
    moved_by = whole - pixels(part.matrices, size)
    assert np.allclose(moved_by, moved_by[:, :1], atol=1e-3)  # by a corner, the same for all points
    for k, (x, y) in enumerate(np.round(moved_by[:, 0]).astype(int)):
        window = (k, slice(y, y + size[1]), slice(x, x + size[0]))
        assert np.array_equal(part.colour[k], colour[window])
    # What a start needs stays too, and what is seen whole stays whole.
    wider = given.cropped(np.concatenate([ball.positions, -3.0 * ball.positions]))
    assert wider.coverage.size > 2 * part.coverage.size
    full = Pictures(matrices, np.ones_like(coverage))
    assert full.cropped(ball.positions) is full


def test_each_view_comes_once_before_any_comes_again() -> None:
    steps = np.concatenate(list(islice(turns(8, 4, 0), 4)))
    assert sorted(steps[:8]) == list(range(8)) and sorted(steps[8:]) == list(range(8))


def test_masks_are_empty_beyond_the_frame_only_where_the_object_does_not_reach_it() -> None:
    masks = np.zeros((1, 4, 6, 1))
    masks[0, 1, :3] = 1.0  # reaches the left side
    wide, matrices = widened(masks, np.eye(4)[None])
    assert wide.shape == (1, 8, 12, 1)
    assert wide[0, 3, 0, 0] == 1.0 and wide[0, 3, -1, 0] == 0.0 and wide[0, 0].sum() == 0.0
    # The corner of the old frame is where it was in the middle of the new one.
    assert np.allclose(matrices[0] @ [1.0, 1.0, 0.0, 1.0], [0.5, 0.5, 0.0, 1.0])


def test_small_holes_of_a_mask_are_filled_and_have_no_weight() -> None:
    masks = np.zeros((2, 32, 32, 1), np.float32)
    masks[:, 2:30, 2:30] = 1.0
    masks[0, 6:8, 6:8] = 0.0  # enclosed, a two hundredth of the area
    masks[0, 12:20, 12:20] = 0.0  # enclosed, a twelfth: an opening
    masks[1, 14:16, 20:] = 0.0  # open to the side
    made = without_small_holes(Pictures(np.stack([np.eye(4)] * 2), masks))
    assert (made.coverage[0, 6:8, 6:8] == 1.0).all() and made.coverage[0, 12:20, 12:20].sum() == 0
    assert np.array_equal(made.coverage[1], masks[1])
    assert made.weights is not None and (made.weights == 0.0).sum() == 4
    assert (made.weights[0, 6:8, 6:8] == 0.0).all()


@pytest.mark.parametrize("wrap", ["repeat", "clamp", "mirror"])
def test_texels_are_read_as_the_renderer_reads_them(wrap: str) -> None:
    image = RNG.random((5, 7, 3)).astype(np.float32)
    uv = RNG.uniform(-1.5, 2.5, (40, 2)).astype(np.float32)
    ref = TextureRef(0, wrap_u=wrap, wrap_v=wrap)  # type: ignore[arg-type]
    read = F.texture(F.leaf(image, VEC3, "image"), F.leaf(uv, VEC2, "uv"), wrap=wrap)  # type: ignore[arg-type]
    assert np.allclose(texels(image, ref, uv), evaluate([read], {})[0].reshape(-1, 3), atol=2e-4)


def test_a_box_of_another_size_and_place_comes_back_to_its_place() -> None:
    mesh = replace(icosphere(1), positions=icosphere(1).positions * 7.0 + [100.0, -3.0, 2.0])
    place, scale = placement(mesh)
    inside = moved(mesh, np.linalg.inv(place))
    assert np.allclose(np.ptp(inside.positions, axis=0).max(), 2.0, atol=1e-5)
    assert np.allclose(moved(inside, place).positions, mesh.positions, atol=1e-4)
    assert np.isclose(scale, 2.0 / np.ptp(mesh.positions, axis=0).max())


@pytest.mark.parametrize(("make", "genus"), [(two_holes, 2), (notched_box, 0), (bowl, 0)])
def test_objects_made_by_code_are_closed_and_of_their_genus(make, genus: int) -> None:
    problems = surface_problems(make())
    assert problems.is_closed and problems.genus == genus and not len(problems.intersections)


def test_cubes_enclose_their_volume() -> None:
    mesh = boundary_of(np.ones((2, 3, 1), bool))
    a, b, c = np.moveaxis(mesh.positions[mesh.faces].astype(np.float64), 1, 0)
    assert np.isclose(np.einsum("fi,fi->", a, np.cross(b, c)) / 6.0, 6.0)


def test_views_count_alike_whatever_the_object_covers_of_them() -> None:
    masks = np.zeros((2, 10, 10, 1), np.float32)
    masks[0, :4], masks[1, :6] = 1.0, 1.0
    weights = view_weights(masks)
    assert np.isclose((weights * masks)[0].sum(), (weights * masks)[1].sum())


def test_a_condition_does_not_hold_where_one_object_misses_it() -> None:
    good = {
        "chamfer_percent": 0.1, "f_score": 0.99, "normal_deg": 3.0, "flipped_faces": 0,
        "intersecting_faces": 0, "heldout_psnr_db": 30.0, "target_genus": 1, "genus": 1,
        "fit_processor_s": 1.0,
    }  # fmt: skip
    assert all(holds for _, holds in conditions({"a": good, "b": good}))
    bad = {**good, "flipped_faces": 3, "genus": 0}
    missed = [text for text, holds in conditions({"a": good, "b": good, "c": bad}) if not holds]
    assert len(missed) == 2 and "worst" in missed[0] and "genus" in missed[1]
    far = {**good, "chamfer_percent": 0.9, "f_score": 0.1}
    few = conditions_of_few_views({"a": good, "b": far, "c": bad})
    assert [(text.split(":")[0], holds) for text, holds in few] == [
        ("chamfer_percent, median", True),
        ("flipped_faces, worst", False),
        ("intersecting_faces, worst", True),
    ]


def test_an_ablation_has_a_row_per_part_with_medians_and_sums() -> None:
    found = variants_of(Settings(ablation=True))
    assert list(found) == ["", *(f"without {part}" for part in WITHOUT)]
    assert found["without hull"].without == {"hull"} and not found[""].without
    assert list(variants_of(Settings(without=("remesh",)))) == ["without remesh"]
    with pytest.raises(DressiError, match="no --without"):
        variants_of(Settings(ablation=True, without=("hull",)))
    one = dict.fromkeys(COLUMNS, 1.0) | {"genus": 1, "target_genus": 1, "target_watertight": True}
    rows = [one, one | {"chamfer_percent": 3.0, "flipped_faces": 4.0, "genus": 0}, one]
    made = medians([r | {"target_watertight": k < 2} for k, r in enumerate(rows)])
    assert made["chamfer_percent"] == 1.0 and made["flipped_faces"] == 6.0
    assert made["genus_right"] == 0.5  # of closed targets
    table = ablation_table({"all parts": made, "without hull": made})
    assert [row[0] for row in table] == ["medians", "all parts", "without hull"]
    assert all(len(row) == len(table[0]) for row in table)


def ball(name: str = "ball") -> Target:
    sphere = icosphere(3)
    texture = np.full((4, 4, 3), (0.8, 0.3, 0.1), np.float32)
    return target_of_mesh(replace(sphere, name=name), texture)


@pytest.mark.gpu
def test_pictures_of_a_sphere_are_its_disks_normals_and_depths() -> None:
    cameras = views_of(ball().mesh.positions, around(3))
    pictures = draw(ball(), cameras, 32)
    assert pictures.colour is not None and pictures.normals is not None
    for k, camera in enumerate(cameras):
        # A disk that fills the picture up to the margin.
        assert np.isclose(pictures.coverage[k].mean(), np.pi / 4 * (1 - MARGIN) ** 2, rtol=0.03)
        middle = pictures.normals[k, 15:17, 15:17].mean((0, 1))
        eye = camera.eye / np.linalg.norm(camera.eye)
        assert middle @ eye / np.linalg.norm(middle) > 0.99
        assert pictures.depth is not None
        depth = pictures.depth[k, 15:17, 15:17].mean()
        assert np.isclose(depth, np.linalg.norm(camera.eye) - 1.0, atol=0.02)
        inside = pictures.coverage[k, ..., 0] > 0.999
        assert np.allclose(pictures.colour[k][inside], (0.8, 0.3, 0.1), atol=1e-3)


@pytest.mark.gpu
def test_materials_of_a_scene_keep_their_colours(tmp_path: Path) -> None:
    (tmp_path / "two.mtl").write_text("newmtl red\nKd 1 0 0\nnewmtl blue\nKd 0 0 1\n")
    corners = "v -1 -1 0\nv 0 -1 0\nv 0 1 0\nv -1 1 0\nv 1 -1 0\nv 1 1 0\n"
    faces = "usemtl red\nf 1 2 3 4\nusemtl blue\nf 2 5 6 3\n"
    (tmp_path / "two.obj").write_text(f"mtllib two.mtl\n{corners}{faces}")
    target = load_target(tmp_path / "two.obj")
    camera = views_of(target.mesh.positions, [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]])
    pictures = draw(target, camera, 16)
    assert pictures.colour is not None and pictures.normals is not None
    assert np.allclose(pictures.colour[0, 8, 4], (1, 0, 0))
    assert np.allclose(pictures.colour[0, 8, 11], (0, 0, 1))
    # An open surface shows both sides, and each is turned to the eye.
    assert np.allclose(pictures.normals[:, 8, 4], [[0, 0, 1], [0, 0, -1]], atol=1e-5)


@pytest.mark.gpu
def test_a_reconstruction_comes_nearer_than_its_start_and_is_in_order() -> None:
    options = TargetOptions(views=6, size=32, iterations=24, texture_iterations=6)
    sphere = icosphere(3)
    long = target_of_mesh(
        replace(sphere, positions=sphere.positions * [100.0, 60.0, 40.0], name="long"),
        np.full((4, 4, 3), (0.8, 0.3, 0.1), np.float32),
    )
    outcome = reconstruct_target(long, options)
    figures = outcome.figures
    assert figures["chamfer_percent"] < 1.0 and figures["heldout_iou"] > 0.95
    assert figures["flipped_faces"] == figures["intersecting_faces"] == figures["genus"] == 0
    assert figures["watertight"] and figures["finite"]
    assert figures["heldout_albedo_psnr_db"] > 20.0


@pytest.mark.gpu
def test_a_shape_that_is_right_stays_while_its_texture_is_painted() -> None:
    """No step pulls all views to one side: the shape stays within a thirtieth of a pixel."""
    pytest.importorskip("xatlas")
    mesh = unwrap(icosphere(3), 64)
    squares = np.random.default_rng(0).random((8, 8, 3))
    texture = np.kron(squares, np.ones((8, 8, 1))).astype(np.float32)
    cameras = views_of(mesh.positions, around(6))
    pictures = replace(draw(target_of_mesh(mesh, texture), cameras, 48), depth=None)
    with DressiAD() as ad:
        painted = paint(ad, mesh, texture, pictures, Painting(24, views=2), LossWeights())
    off = np.linalg.norm(painted.mesh.positions, axis=1) - 1.0
    pixel = 2.0 / (48 * (1.0 - MARGIN))
    assert np.abs(off).mean() < pixel / 30.0


@pytest.mark.gpu
def test_depth_alone_says_where_a_surface_lies() -> None:
    """Silhouettes of a bowl from above are disks; depth says that it is hollow."""
    target = target_of_mesh(bowl(24))
    cameras = views_of(target.mesh.positions, [[0.0, 1.0, 0.05], [0.0, 1.0, -0.05]])
    pictures = draw(target, cameras, 32)
    flat = replace(pictures, normals=None, colour=None)
    ball = icosphere(2)
    rounds = rounds_of(16, 32)[:1]
    deep = []
    for given in (flat, replace(flat, depth=None)):
        made = reconstruct(given, Plan(rounds, None, start=ball)).mesh.positions
        middle = np.linalg.norm(made[:, [0, 2]], axis=1) < 0.3
        deep.append(made[middle & (made[:, 1] > -0.9), 1].max())
    assert deep[0] < deep[1] - 0.05


@pytest.mark.gpu
def test_views_that_are_sent_anew_for_each_step_are_those_that_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where all pictures are too many for the device, the same steps are made."""
    target = target_of_mesh(icosphere(2))
    pictures = draw(target, views_of(target.mesh.positions, around(5)), 32)
    one = Round(None, 32, 4, (2.0, 1.0), (0.1, 0.05), views=3)
    made = []
    for most in (leaves.KEPT_PIXELS, 0):
        monkeypatch.setattr(leaves, "KEPT_PIXELS", most)
        with DressiAD() as ad:
            mesh, course = fit_round(ad, icosphere(1), pictures, one, LossWeights(), "round")
        made.append((mesh.positions, course.losses))
    # Shaders are others, so last bits are.
    np.testing.assert_allclose(made[0][0], made[1][0], atol=1e-4)
    np.testing.assert_allclose(made[0][1], made[1][1], rtol=1e-3)


def test_pictures_of_other_shapes_are_named() -> None:
    with pytest.raises(GraphError, match=r"colour must be \(2, 4, 4, 3\)"):
        Pictures(
            np.stack([np.eye(4)] * 2), np.zeros((2, 4, 4, 1), np.float32),
            colour=np.zeros((2, 4, 4, 1), np.float32),
        )  # fmt: skip


@pytest.mark.parametrize("ending", ["obj", "ply", "stl", "glb", "gltf"])
def test_targets_are_read_from_every_format_of_meshes(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"ball.{ending}"
    save_mesh(path, Mesh(icosphere(2).positions * 30.0, icosphere(2).faces))
    mesh = load_target(path).mesh
    assert np.isclose(np.linalg.norm(mesh.positions, axis=1), 30.0, rtol=1e-5).all()
    assert surface_problems(mesh).is_closed and len(mesh.faces) == 320


@pytest.mark.gpu
def test_the_demo_writes_mesh_page_and_pictures_of_views_held_out(tmp_path: Path) -> None:
    path, out = tmp_path / "ball.ply", tmp_path / "out"
    save_mesh(path, Mesh(icosphere(2).positions * 30.0, icosphere(2).faces))
    small = ["--size", "24", "--views", "4", "--iterations", "3", "--texture-iterations", "0"]
    assert main(["demo", "--target", str(path), "--out", str(out), *small]) == 0
    data = json.loads((out / "result.json").read_text())
    assert data["genus"] == 0 and data["watertight"] and not data["refined"]
    assert {"ball.glb", "report.html", "heldout.png"} <= {p.name for p in out.iterdir()}
