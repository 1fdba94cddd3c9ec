"""Leaves of a round: faces, matrices, and pictures of the views that a step sees.

In: a mesh, pictures. Out: ``Leaves``. Pictures of all views are sent once and stay on the device; a
step is sent the numbers of its views, and reads theirs. Where all are too many, the views of each
step are sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, INT, IVEC3, MAT4, VEC3, VEC4, VType
from dressi.apps.reconstruct.pictures import Floats, Pictures
from dressi.engine import DressiAD
from dressi.render.scene import Mesh

KEPT_PIXELS = 2**23
"""Of all views together: what every device can hold in one image (4096 x 4096), with room for the
rounding of sides."""


@dataclass(frozen=True)
class Leaves:
    """view: INT @ 1x1, layer k: the number of the step's k-th view. stacks: pictures of all views,
    or of the step's, by name. target: VEC4 (normals, coverage) or FLOAT, colour, depth, weights: of
    the step's views; None: not given. matrix, view, r, lr: sent for each step."""

    faces: Variable
    matrix: Variable
    view: Variable
    stacks: Mapping[str, Variable]
    target: Variable
    colour: Variable | None
    depth: Variable | None
    weights: Variable | None
    r: Variable
    lr: Variable


def leaves_of(mesh: Mesh, pictures: Pictures, n_views: int) -> Leaves:
    """Return the leaves for n views per step of these pictures."""
    kept = len(pictures) if _fits(pictures) else n_views
    given = pictures.normals is not None
    types: dict[str, VType] = {"target": VEC4 if given else FLOAT}
    others = {"colour": VEC3, "depth": FLOAT, "weights": FLOAT}
    types |= {k: t for k, t in others.items() if getattr(pictures, k) is not None}
    stacks = {
        name: Variable(vtype, pictures.size, kept, name=f"{name} of all views")
        for name, vtype in types.items()
    }
    view = Variable(INT, layers=n_views, name="view")
    shown = stacks
    if _fits(pictures):
        shown = {name: F.take_layer(stack, view) for name, stack in stacks.items()}
    return Leaves(
        faces=Variable(IVEC3, (len(mesh.faces), 1), name="faces"),
        matrix=Variable(MAT4, layers=n_views, name="matrix"),
        view=view,
        stacks=stacks,
        target=shown["target"],
        colour=shown.get("colour"),
        depth=shown.get("depth"),
        weights=shown.get("weights"),
        r=Variable(FLOAT, name="r"),
        lr=Variable(FLOAT, name="lr"),
    )


def send_pictures(ad: DressiAD, leaves: Leaves, pictures: Pictures) -> None:
    """Send the pictures of all views, if they fit; before the first step."""
    if _fits(pictures):
        _send(ad, leaves, pictures)


def send_views(
    ad: DressiAD, leaves: Leaves, pictures: Pictures, views: npt.NDArray[np.int64]
) -> None:
    """Send what a step needs to know of its views, (n,) of the pictures."""
    if not _fits(pictures):
        _send(ad, leaves, pictures.take(views))
    matrices, rows = pictures.matrices[views], views.astype(np.int32).reshape(-1, 1, 1, 1)
    several = len(views) > 1
    ad.send_img(leaves.matrix, matrices if several else matrices[0])
    ad.send_img(leaves.view, rows if several else rows[0])


def _fits(pictures: Pictures) -> bool:
    return pictures.coverage.size <= KEPT_PIXELS


def _send(ad: DressiAD, leaves: Leaves, pictures: Pictures) -> None:
    parts: dict[str, Floats | None] = {f.name: getattr(pictures, f.name) for f in fields(pictures)}
    parts["target"] = pictures.coverage
    if pictures.normals is not None:
        parts["target"] = np.concatenate([pictures.normals, pictures.coverage], -1)
    for name, stack in leaves.stacks.items():
        images = parts[name]
        assert images is not None
        ad.send_img(stack, images if len(images) > 1 else images[0])
