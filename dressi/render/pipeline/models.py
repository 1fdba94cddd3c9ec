"""Materials that ask for a model of shading: their numbers as leaves, and their colours.

In: materials with a ``MaterialModel``, a peel. Out: VEC3 linear colours of skin, teeth, eyes and
tears at each pixel. Lengths and widths are kept as logarithms, so that steps are relative and they
stay positive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from dressi.ad import F, Variable
from dressi.ad.vtype import FLOAT, INT, VEC2, VEC3
from dressi.errors import GraphError
from dressi.render.camera.far import relative
from dressi.render.pipeline.frame import Frame
from dressi.render.pipeline.materials import MaterialLeaves
from dressi.render.pipeline.parameters import Parameter, ParameterTable, log_of
from dressi.render.pipeline.tables import Geometry
from dressi.render.raster import gather, interpolate
from dressi.render.scene.models import MODELS, model_of
from dressi.render.shading import Surface
from dressi.render.shading.dielectric import Split, shade_dielectric
from dressi.render.shading.eye import (
    Eye,
    iris_offset,
    limbus_mask,
    limbus_tint,
    shade_eye,
    shade_tears,
    uv_gradients,
    uv_offset,
)
from dressi.render.shading.models import Shadows
from dressi.render.shading.shadow import ShadowMap
from dressi.render.shading.skin import (
    Kernel,
    Skin,
    build_diffusion,
    diffusion_kernel,
    shade_skin,
    thickness,
)
from dressi.render.shading.teeth import mouth_occlusion

if TYPE_CHECKING:
    from dressi.render.pipeline.appearance import Pixels


# -- leaves


def add_models(materials: Sequence[MaterialLeaves], table: ParameterTable, frame: Frame) -> None:
    """Give materials the leaves of their models; adds them to the parameters. frame: where places
    are kept. Raises GraphError as ``model_of``."""
    for m in materials:
        model = m.model = model_of(m.material, f"material '{m.name}'")
        if model is None:
            continue
        for key, value in model.numbers.items():
            number = MODELS[model.name][key]
            name, vtype = f"{key}:{m.name}", {1: FLOAT, 2: VEC2, 3: VEC3}[number.size]
            array = np.array(value, np.float64).reshape(1, 1, -1)
            low, high = (None if np.isinf(e) else e for e in (number.low, number.high))
            if number.positive:
                row = Parameter(key, m.name, F.leaf(log_of(array), vtype, name))
                row.to_leaf, row.to_user = log_of, np.exp
            elif key == "mouth_center":
                to_leaf, to_user = relative(frame.origin)
                row = Parameter(key, m.name, F.leaf(to_leaf(array), vtype, name))
                row.to_leaf, row.to_user, row.unit = to_leaf, to_user, frame.unit
            else:
                row = Parameter(key, m.name, F.leaf(array, vtype, name), low, high)
            m.numbers[key] = table.add(row).leaf


def build_apexes(
    materials: Sequence[MaterialLeaves], geometry: Geometry
) -> tuple[Variable, Variable] | None:
    """(INT face, VEC3 weights of its corners) @ (F, 1): the middle of the iris of the eye that a
    face is part of, -1 for other faces; None without eyes.

    An eye is what hangs together of one material. The middle is where its texture coordinates are
    iris_center as the scene gives it. Raises GraphError for eyes without texture coordinates.
    """
    eyes = [k for k, m in enumerate(materials) if m.model is not None and m.model.name == "eye"]
    if not eyes:
        return None
    number = geometry.material_of_face.data.reshape(-1)  # type: ignore[union-attr]
    apex, weights = np.full(len(number), -1), np.zeros((len(number), 3))
    for k in eyes:
        m = materials[k]
        assert m.model is not None
        uv_set = eye_uv_set(m)
        if uv_set >= len(geometry.uvs) or k not in geometry.materials_with_uv[uv_set]:
            raise GraphError(
                f"material '{m.name}' is an eye, but faces of it have no texture coordinates "
                f"(set {uv_set}) to say where the iris is"
            )
        uv = geometry.uvs[uv_set].data.reshape(-1, 2)  # type: ignore[union-attr]
        rows = geometry.attribute_faces.data.reshape(-1, 3)  # type: ignore[union-attr]
        mine = np.flatnonzero(number == k)
        for part in _pieces(geometry.corners[mine]):
            faces = mine[part]
            best, w = nearest_face(uv[rows[faces]], np.array(m.model.numbers["iris_center"]))
            apex[faces], weights[faces] = faces[best], w
    return F.leaf(apex[:, None], INT, "apex_face"), F.leaf(weights, VEC3, "apex_weights")


def eye_uv_set(m: MaterialLeaves) -> int:
    """The set of texture coordinates that an eye's iris_center and iris_radius are meant in."""
    return m.maps["albedo"][1].uv_set if "albedo" in m.maps else 0


def _pieces(faces: np.ndarray) -> list[np.ndarray]:
    """Rows of the faces (F, 3) of each piece that hangs together by vertices."""
    n = int(faces.max()) + 1
    start, end = np.repeat(faces[:, 0], 2), faces[:, 1:].ravel()
    graph = coo_matrix((np.ones(len(start)), (start, end)), shape=(n, n))
    label = connected_components(graph, directed=False)[1][faces[:, 0]]
    return [np.flatnonzero(label == k) for k in np.unique(label)]


def nearest_face(uv: np.ndarray, point: np.ndarray) -> tuple[int, np.ndarray]:
    """(row, (3,) weights of its corners) of the triangle (F, 3, 2) that holds a point, or that the
    point is the least outside of; then the weights are moved into it."""
    a, b, c = (uv[:, k].astype(np.float64) for k in range(3))
    e, f, p = b - a, c - a, point - a
    area = e[:, 0] * f[:, 1] - e[:, 1] * f[:, 0]
    safe = np.where(area == 0.0, 1.0, area)
    v = (p[:, 0] * f[:, 1] - p[:, 1] * f[:, 0]) / safe
    w = (e[:, 0] * p[:, 1] - e[:, 1] * p[:, 0]) / safe
    weights = np.stack([1.0 - v - w, v, w], axis=1)
    least = np.where(area == 0.0, -np.inf, weights.min(axis=1))
    # Of several that hold it the smallest: a face across a seam that is not cut covers the others.
    holds = least >= -1e-6
    best = int(np.where(holds, np.abs(area), np.inf).argmin() if holds.any() else least.argmax())
    inside = np.maximum(weights[best], 0.0)
    return best, inside / inside.sum()


# -- pixels


@dataclass(frozen=True)
class Iris:
    """What the eyes of a picture look like, at every pixel. shift: VEC2, of texture coordinates, 0
    off the iris. mask: FLOAT (``limbus_mask``). axis: VEC3 unit."""

    eye: Eye
    shift: Variable
    mask: Variable
    axis: Variable


def _length_of(pixels: Pixels, key: str, chosen: set[int]) -> Variable:
    """A length of the model of the material at each pixel of some materials, world units: it is
    given in units of the mesh, and grows with the node (as thicknesses of glTF do)."""
    value, scale = pixels.number_of(key, chosen), pixels.a.geometry.scale_of_face
    if scale is None:
        return value
    return value * (scale if scale.size == (1, 1) else F.lookup(scale, pixels.peel.ids))


def build_iris(pixels: Pixels) -> Iris:
    """The irises of all eyes."""
    a, g, peel = pixels.a, pixels.a.geometry, pixels.peel
    chosen = pixels.of_model("eye")
    numbers = {key: pixels.number_of(key, chosen) for key in MODELS["eye"]}
    eye = Eye(**{**numbers, "iris_depth": _length_of(pixels, "iris_depth", chosen)})
    assert a.apexes is not None
    apex_face, weights = (F.lookup(table, peel.ids) for table in a.apexes)
    corners = gather(g.positions, g.faces)
    apex = interpolate(corners, apex_face, weights)
    axis = F.normalize(interpolate(gather(a.normals, g.normal_faces), apex_face, weights))
    uv_set = eye_uv_set(a.materials[min(chosen)])
    uvs = gather(g.uvs[uv_set], g.attribute_faces)
    du, dv, face_normal = (F.lookup(t, peel.ids) for t in uv_gradients(corners, uvs))
    depth = F.dot(pixels.position - apex, axis) + eye.of("iris_depth")
    across = iris_offset(pixels.normal, pixels.seen_from, axis, depth, eye.ior)
    mask = limbus_mask(pixels.uv(uv_set), eye)
    shift = uv_offset(across, face_normal, axis, du, dv) * mask
    shift = pixels.pick(chosen, shift, F.constant((0.0, 0.0)))
    return Iris(eye, shift, mask, axis)


def add_model_colors(
    pixels: Pixels,
    color: Variable,
    alpha: Variable,
    surface: Surface,
    shadows: Shadows | None,
    maps: Sequence[ShadowMap | None],
) -> tuple[Variable, Variable]:
    """(VEC3, FLOAT): colour and alpha at pixels of materials with a model, as given at others.
    maps: shadow maps of the lights, by which light comes through skin."""
    a = pixels.a
    around = (a.lights, a.environment, shadows)
    for name in MODELS:
        chosen = pixels.of_model(name)
        if not chosen:
            continue
        if name == "skin":
            shown = _skin(pixels, chosen, surface, shadows, maps)
        elif name == "teeth":
            shown = _teeth(pixels, chosen, surface, shadows)
        elif name == "eye":
            iris = pixels.iris
            split = shade_eye(
                _open(surface), iris.eye, iris.mask, iris.axis, *around, surface.occlusion
            )
            tint = limbus_tint(iris.mask, iris.eye)
            shown = Split(split.diffuse * tint, split.specular).color(surface)
        else:
            ior, rough = (pixels.number_of(k, chosen) for k in ("ior", "wet_roughness"))
            shown, share = shade_tears(surface, ior, rough, *around)
            alpha = pixels.pick(chosen, alpha * share, alpha)
        color = pixels.pick(chosen, shown, color)
    return color, alpha


def _open(surface: Surface) -> Surface:
    """A surface that nothing darkens: its occlusion is applied to all of its light instead."""
    s = surface
    return Surface(s.albedo, s.position, s.normal, s.to_eye, s.metallic, s.roughness)


def _skin(
    pixels: Pixels,
    chosen: set[int],
    surface: Surface,
    shadows: Shadows | None,
    maps: Sequence[ShadowMap | None],
) -> Variable:
    a = pixels.a
    keys = {"strength": "scatter_strength", "falloff": "scatter_falloff"}
    keys |= {k: k for k in ("ior", "lobe_ratio", "lobe_mix", "transmission")}
    numbers = {k: pixels.number_of(key, chosen) for k, key in keys.items()}
    skin = Skin(_length_of(pixels, "scatter_width", chosen), **numbers)
    position, normal = surface.need("skin", "position", "normal")
    thick = [None if m is None else thickness(m, position, normal) for m in maps] or None
    split = shade_skin(surface, skin, a.lights, a.environment, shadows, thick)
    return _spread(pixels, chosen, surface, split)


def _teeth(pixels: Pixels, chosen: set[int], surface: Surface, shadows: Shadows | None) -> Variable:
    a = pixels.a
    lobes = [(surface.roughness, 1.0)]
    ior = pixels.number_of("ior", chosen)
    split = shade_dielectric(surface, ior, lobes, a.lights, a.environment, shadows)
    inside = {k for k in chosen if "mouth_opening" in a.materials[k].numbers}
    if inside:
        keys = ("mouth_opening", "mouth_center", "mouth_direction")
        opening, center, outwards = (pixels.number_of(k, inside) for k in keys)
        (position,) = surface.need("teeth", "position")
        dark = mouth_occlusion(position, opening, center, outwards)
        dark = pixels.pick(inside, dark, F.constant(1.0))
        split = split.times(dark)
    return _spread(pixels, chosen, surface, split)


def _spread(pixels: Pixels, chosen: set[int], surface: Surface, split: Split) -> Variable:
    """The colour of a surface whose diffuse light is spread over the pixels of its materials."""
    a, peel = pixels.a, pixels.peel
    assert a.matrix is not None
    mask = F.where(peel.ids >= 0, 1.0, 0.0)
    among = pixels.where(chosen)
    if isinstance(among, Variable):
        mask = mask * among
    width = _length_of(pixels, "scatter_width", chosen)
    (position,) = surface.need("diffusion", "position")
    light = build_diffusion(split.diffuse, position, a.matrix, _kernel(pixels, chosen), width, mask)
    return Split(light, split.specular).color(surface)


def _kernel(pixels: Pixels, chosen: set[int]) -> Kernel:
    """The kernel of the materials; of several it is computed for each of them, and looked up."""
    materials = pixels.a.materials
    taps = max(m.model.taps for k in chosen if (m := materials[k]).model is not None)
    strength = pixels.table_of("scatter_strength", chosen)
    kernel = diffusion_kernel(strength, pixels.table_of("scatter_falloff", chosen), taps)
    if pixels.number is None or len(chosen) == 1:
        return kernel
    weights = [F.lookup(w, pixels.number) for w in kernel.weights]
    return Kernel(kernel.offsets, tuple(weights))
