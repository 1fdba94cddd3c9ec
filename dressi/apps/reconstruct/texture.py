"""Shape and texture together: the last round of a reconstruction.

The mesh has its last topology and its UVs; its texture starts with what was baked. Positions move
by Large Steps as in the rounds before, texels by Adam.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dressi.ad import Adam, AdamUniform, F, ParameterGroups, Variable, step_counter
from dressi.ad.optim import Optimizer
from dressi.ad.vtype import FLOAT, IVEC3, VEC2, VEC3
from dressi.apps import live
from dressi.apps.reconstruct.cameras import (
    Cameras,
    CameraState,
    build_cameras,
    camera_optimizers,
    camera_prior,
    moved_matrix,
    received,
    seen_through,
    send_camera_views,
    send_cameras,
)
from dressi.apps.reconstruct.leaves import Leaves, leaves_of, send_pictures, send_views
from dressi.apps.reconstruct.pictures import Pictures
from dressi.apps.reconstruct.rounds import (
    BETA2,
    SOFTNESS_PX,
    Course,
    LossWeights,
    between,
    run,
    shape_loss,
    turns,
)
from dressi.engine import DressiAD
from dressi.errors import GraphError
from dressi.kinds import TextureBackward
from dressi.render.fit import l1_loss, large_steps, total_variation
from dressi.render.raster import build_hardsoftras
from dressi.render.scene import Mesh
from dressi.render.shading import unlit

GAUGE = 0.01
"""Weight of the mean square of the logarithms of gains: they stay around 1."""

GAIN_LR = 0.005
"""Adam's learning rate of the logarithms of gains: 100 steps reach 1.6 times and back."""


@dataclass(frozen=True)
class Painting:
    """The last round. iterations: steps. lr: learning rate of texels. shape_lr: of positions, for a
    box of side 2; None: they stay. smoothness: lambda of Large Steps. variation: weight of the
    total variation of the texture, which keeps salt and pepper out of texels that few pixels see.
    gains: whether each view has a gain per channel of its own (exposure of photos). views: per
    step. size: longer side of the pictures, pixels; None: as they are. backward: of F.texture, how
    the gradient reaches texels. occlusion: whether edges in front of other parts move the shape."""

    iterations: int = 100
    lr: tuple[float, float] = (0.03, 0.005)
    shape_lr: tuple[float, float] | None = (0.03, 0.005)
    smoothness: float = 3.0
    variation: float = 0.01
    gains: bool = False
    views: int = 6
    size: int | None = None
    backward: TextureBackward = "exact"
    occlusion: bool = True


@dataclass(frozen=True, eq=False)
class Painted:
    """mesh: with UVs. texture: (H, W, 3) linear, in [0, 1]. gains: (n, 3) of the views."""

    mesh: Mesh
    texture: np.ndarray
    gains: np.ndarray
    course: Course


def paint(
    ad: DressiAD,
    mesh: Mesh,
    texture: np.ndarray,
    pictures: Pictures,
    how: Painting,
    weights: LossWeights,
    label: str = "texture",
    seed: int = 0,
    start: CameraState | None = None,
) -> Painted:
    """Fit the texture, and the shape with it, to the pictures. start: of cameras, as in
    ``fit_round``. Raises GraphError without colour or UVs, DressiError where the loss is not
    finite."""
    if pictures.colour is None or mesh.uvs is None:
        raise GraphError("paint needs pictures with colour and a mesh with UVs")
    if how.size is not None:
        pictures = pictures.shrunk(how.size)
    n, n_views = len(pictures), min(how.views, len(pictures))
    leaves = leaves_of(mesh, pictures, n_views)
    surface = uv, uv_faces, albedo = _surface(mesh, texture)
    lr = Variable(FLOAT, name="texture_lr")
    parameter, pos, first = _positions(mesh, how)
    stops = Variable(VEC3, (n, 1), requires_grad=True, name="stops")
    gain = F.exp(F.lookup(stops, leaves.view)) if how.gains else None
    cameras = None if start is None else build_cameras(start, pictures.size, n_views)
    loss = _loss(pos, leaves, surface, gain, how, weights, cameras)
    if how.gains:  # all gains times a number, the texture divided by it: the same pictures
        loss = loss + F.mean(F.dot(stops, stops)) * GAUGE
    ad.set_loss_var(loss)
    ad.set_optimizer(_optimizers(how, leaves, lr, cameras))
    sent = {parameter: first, leaves.faces: mesh.faces, uv: mesh.uvs}
    sent |= {uv_faces: mesh.corner_faces, albedo: texture}
    if how.gains:
        sent[stops] = np.zeros((n, 3), np.float32)
    for leaf, data in sent.items():
        ad.send_img(leaf, data)
    send_pictures(ad, leaves, pictures)
    if cameras is not None:
        send_cameras(ad, cameras)
    last = max(how.iterations - 1, 1)

    def send(i: int, views: np.ndarray) -> None:
        ad.send_img(lr, between(how.lr, i / last))
        if how.shape_lr is not None:
            ad.send_img(leaves.lr, between(how.shape_lr, i / last))
        if cameras is not None:
            send_camera_views(ad, cameras, views, between(cameras.before.how.lr, i / last))
        send_views(ad, leaves, pictures, views)

    live.begin(label, mesh, pictures.matrices, pictures.colour)
    course = run(ad, loss, how.iterations, turns(n, n_views, seed), send, label, pos, albedo)
    course.cameras = None if cameras is None else received(ad, cameras)
    if how.shape_lr is not None:
        mesh = replace(mesh, positions=ad.recv_img(pos))
    gains = np.exp(ad.recv_img(stops)).reshape(n, 3) if how.gains else np.ones((n, 3))
    return Painted(mesh, np.clip(ad.recv_img(albedo), 0.0, 1.0), gains, course)


def _surface(mesh: Mesh, texture: np.ndarray) -> tuple[Variable, Variable, Variable]:
    """Return leaves for the UVs of a mesh, their faces, and its texture."""
    assert mesh.uvs is not None
    size = texture.shape[1], texture.shape[0]
    return (
        Variable(VEC2, (len(mesh.uvs), 1), name="vtx_uv"),
        Variable(IVEC3, (len(mesh.faces), 1), name="uv_faces"),
        Variable(VEC3, size, requires_grad=True, name="albedo"),
    )


def _optimizers(
    how: Painting, leaves: Leaves, lr: Variable, cameras: Cameras | None
) -> ParameterGroups:
    """Return the optimizers of all that moves. lr: of texels."""
    own: dict[str, Optimizer] = {"albedo": Adam(lr, beta2=BETA2)}
    if how.shape_lr is not None:
        own["u"] = AdamUniform(leaves.lr, beta2=BETA2)
    if cameras is not None:
        own |= camera_optimizers(cameras)
    return ParameterGroups(own, default=Adam(GAIN_LR, beta2=BETA2))


def _positions(mesh: Mesh, how: Painting) -> tuple[Variable, Variable, np.ndarray]:
    """Return the leaf that positions come from, the positions, and what is sent to the leaf first:
    parameters of Large Steps where vertices move, else positions."""
    if how.shape_lr is None:
        pos = Variable(VEC3, (len(mesh.positions), 1), name="vtx_pos")
        return pos, pos, mesh.positions
    steps = large_steps(Mesh(mesh.positions, mesh.faces), how.smoothness)
    u = Variable(VEC3, (steps.n_places, 1), requires_grad=True, name="u")
    return u, steps.vertices(u), steps.parameters(mesh.positions)


def _loss(
    pos: Variable,
    leaves: Leaves,
    surface: tuple[Variable, Variable, Variable],
    gain: Variable | None,
    how: Painting,
    weights: LossWeights,
    cameras: Cameras | None,
) -> Variable:
    """FLOAT @ 1x1: colours, the variation of the texture, and the loss of the shape. surface: UVs,
    their faces, and the texture. gain: VEC3 per view. cameras: those that are refined."""
    assert leaves.colour is not None
    uv, uv_faces, albedo = surface
    size = leaves.target.size
    matrix = leaves.matrix if cameras is None else moved_matrix(cameras, leaves.matrix)
    # No shift of the projection within a pixel, which a fixed shape's texture may gain by: pictures
    # do not move along, and each step would move the shape after its shift.
    r, sigma = (pixels / max(size) for pixels in (1.0, SOFTNESS_PX))
    occlusion = how.occlusion and how.shape_lr is not None
    hs = build_hardsoftras(pos, leaves.faces, matrix, size, r, sigma=sigma, occlusion=occlusion)
    step = step_counter("texture.step") if how.backward == "inverse_uv" else None
    picture = hs.blend(
        [unlit(p, uv, uv_faces, albedo, how.backward, step, wrap="clamp") for p in hs.peels]
    )
    picture = seen_through(cameras, picture)
    if gain is not None:
        picture = picture * gain
    loss = l1_loss(picture, leaves.colour, leaves.weights) * weights.colour
    loss = loss + total_variation(albedo, isotropic=True) * how.variation
    loss = loss + shape_loss(hs, pos, leaves, weights, cameras)
    return loss if cameras is None else loss + camera_prior(cameras)
