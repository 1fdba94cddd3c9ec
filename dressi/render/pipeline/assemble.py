"""A loaded scene, and the graph of it.

In: a scene, targets, cameras, settings. Out: ``Loaded`` (parameters and tables), and from it, as
often as parameters are turned on and off, ``Graph`` (pictures, loss, optimizer).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dressi.ad import F, Variable
from dressi.ad.optim import Optimizer
from dressi.ad.vtype import FLOAT, VEC3
from dressi.errors import GraphError, warn
from dressi.kinds import Normals
from dressi.render.camera.camera import Camera
from dressi.render.io import read_image
from dressi.render.pipeline.appearance import Appearance
from dressi.render.pipeline.collect import build_geometry
from dressi.render.pipeline.frame import crosses, front_camera, look_through
from dressi.render.pipeline.lights import build_lights
from dressi.render.pipeline.materials import MaterialLeaves, build_materials, used_materials
from dressi.render.pipeline.models import add_models, build_apexes
from dressi.render.pipeline.objective import (
    OPTIMIZERS,
    LossFunction,
    grouped_optimizer,
    image_loss,
    regularizer_terms,
)
from dressi.render.pipeline.parameters import Parameter, ParameterTable
from dressi.render.pipeline.picture import Picture, build_background, build_picture, encoded
from dressi.render.pipeline.save import Read, Sources
from dressi.render.pipeline.settings import Settings
from dressi.render.pipeline.tables import Geometry
from dressi.render.pipeline.targets import Targets, read_targets
from dressi.render.pipeline.views import Views, build_views
from dressi.render.raster.projection import Size
from dressi.render.scene import Image, Scene, camera_at, own_aspect, world_matrices
from dressi.render.shading import exposure

SAME_ASPECT = 0.01
"""Relative difference of aspects that is rounding of sizes."""

SQUARE_PIXELS = 0.1
"""Relative difference of focal lengths in x and y, in pixels, that real lenses may have."""


@dataclass(eq=False)
class Loaded:
    """A scene as leaves. size: (width, height) of pictures. mesh_faces: (F, 3) rows of ``vtx_pos``,
    by owner. exposure: stops. notes: what was done to cameras that do not fit the pictures.
    apexes: ``build_apexes`` of eyes."""

    scene: Scene
    size: Size
    targets: Targets | None
    table: ParameterTable
    sources: Sources
    geometry: Geometry
    views: Views
    mesh_faces: dict[str, np.ndarray]
    target: Variable | None
    mask: Variable | None
    exposure: Parameter
    notes: tuple[str, ...] = ()
    apexes: tuple[Variable, Variable] | None = None


@dataclass(eq=False)
class Graph:
    """What runs. both: VEC4 colour and coverage of all views. loss: None without targets. shown:
    whether a picture of it was looked at. clip: whether faces are cut at the planes."""

    picture: Picture
    both: Variable
    loss: Variable | None
    optimizer: Optimizer | None
    clip: bool
    shown: bool = False


def load(
    scene: Scene,
    targets: Any,
    cameras: Camera | Sequence[Camera] | None,
    size: Size | None,
    ambient: float | Sequence[float] | None = None,
    headlight: float | None = None,
    environment: Any = None,
    share_intrinsics: bool = False,
    tables: bool | None = None,
) -> Loaded:
    """The leaves of a scene. See ``DressiBasicRenderer.load_scene``. Raises GraphError and
    LoadError."""
    where = "load_scene"
    scene = _with_environment(scene.check(), environment)
    pictures = read_targets(targets, size)
    wanted = size if pictures is None else pictures.size
    width, height = _checked_size(where, wanted)
    table = ParameterTable()
    materials = build_materials(scene, used_materials(scene), table, tables)
    geometry, welded, pos, weights = build_geometry(scene, materials, table, tables)
    add_models(materials, table, geometry.frame)
    lights = build_lights(scene, table, ambient, headlight, geometry.frame)
    nodes: list[int] | None = None
    notes: list[str] = []
    if cameras is None:
        views, nodes = _own_cameras(scene, geometry, (width, height), notes)
    else:
        views = [cameras] if isinstance(cameras, Camera) else list(cameras)
        if not views or not all(isinstance(c, Camera) for c in views):
            raise GraphError(f"{where}: cameras must be Cameras, got {cameras!r}")
    if pictures is not None and len(pictures.colors) != len(views):
        names = ", ".join(c.name for c in views)
        raise GraphError(
            f"{where}: {len(pictures.colors)} targets, {len(views)} cameras ({names}); each view "
            "needs one of each"
        )
    for camera in views:
        check_aspect(camera, (width, height), where)
    target, mask = _target_leaves(pictures)
    seen = build_views(tuple(views), geometry.frame, table, share_intrinsics)
    look_through(seen.drawn, geometry.frame)
    return Loaded(
        scene,
        (width, height),
        pictures,
        table,
        Sources(table, materials, geometry, pos, welded, weights, lights, nodes),
        geometry,
        seen,
        {p.owner: welded[m].faces(scene.meshes[m]) for m, p in pos.items()},
        target,
        mask,
        _exposure(table),
        tuple(notes),
        build_apexes(materials, geometry),
    )


def _exposure(table: ParameterTable) -> Parameter:
    """Add the exposure of the camera, 0 stops, to the parameters."""
    leaf = F.leaf(np.zeros((1, 1, 1), np.float32), FLOAT, "exposure")
    return table.add(Parameter("exposure", "", leaf))


def _checked_size(where: str, size: Size | None) -> Size:
    """(width, height) of the pictures. Raises GraphError without one, and for none at all."""
    if size is None:
        raise GraphError(f"{where}: without targets it needs a size (width, height)")
    if np.shape(size) != (2,):
        raise GraphError(f"{where}: size must be (width, height), got {size!r}")
    width, height = (int(v) for v in size)
    if min(width, height) < 1:
        raise GraphError(f"{where}: pictures must have at least 1x1 pixels, got {width}x{height}")
    return width, height


def _target_leaves(pictures: Targets | None) -> tuple[Variable | None, Variable | None]:
    """(VEC3 colours, FLOAT mask) of the targets, where there are some."""
    if pictures is None:
        return None, None
    target, alpha = F.leaf(pictures.colors, VEC3, "target"), pictures.alpha
    return target, None if alpha is None else F.leaf(alpha, FLOAT, "target_mask")


def _with_environment(scene: Scene, environment: Any) -> Scene:
    if environment is None:
        return scene
    is_file = isinstance(environment, (str, os.PathLike))
    pixels = read_image(environment) if is_file else np.asarray(environment, np.float32)
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4):
        raise GraphError(f"the environment must be a file or (H, W, 3), got {pixels.shape}")
    return replace(scene, environment=Image(pixels, "linear", "environment")).check()


def _own_cameras(
    scene: Scene, geometry: Geometry, size: Size, notes: list[str]
) -> tuple[list[Camera], list[int] | None]:
    """The cameras of a scene and their nodes, or one in front that sees all of it. notes: gets one
    for each camera that was made for pictures of another aspect."""
    made, nodes, aspect = [], [], size[0] / size[1]
    for index, world in world_matrices(scene):
        row = scene.nodes[index].camera
        if row is not None:
            camera = camera_at(scene.cameras[row], world, aspect)
            own = own_aspect(scene.cameras[row])
            if own is not None and abs(aspect / own - 1.0) > SAME_ASPECT:
                grown = "width" if aspect > own else "height"
                notes.append(
                    f"camera '{camera.name}' has the aspect {own:.4g}, the picture of "
                    f"{size[0]}x{size[1]} has {aspect:.4g}: the picture shows more than the "
                    f"camera's {grown}, so that nothing is stretched"
                )
            made.append(camera)
            nodes.append(index)
    if made:
        return made, nodes
    return [front_camera(geometry.frame, aspect)], None


def check_aspect(camera: Camera, size: Size, where: str) -> None:
    """Raise GraphError where a camera's photo has another aspect than the picture; warn where its
    pixels would not be square and it does not say of which photo it is."""
    shown = size[0] / size[1]
    if camera.size is not None:
        own = camera.size[0] / camera.size[1]
        rounded = abs(size[0] / own - size[1]) < 1.0 or abs(size[1] * own - size[0]) < 1.0
        if not rounded and abs(shown / own - 1.0) > SAME_ASPECT:
            raise GraphError(
                f"{where}: camera '{camera.name}' is of a photo of {camera.size[0]}x"
                f"{camera.size[1]} pixels, aspect {own:.4g}; the pictures are {size[0]}x{size[1]}, "
                f"aspect {shown:.4g}\n  hint: size=({size[0]}, {max(round(size[0] / own), 1)})"
            )
        return
    p = camera.projection
    if p[0, 0] == 0.0 or p[3, :2].any() or p[0, 1] or p[1, 0]:
        return
    own = abs(p[1, 1] / p[0, 0])
    if abs(shown / own - 1.0) > SQUARE_PIXELS:
        warn(
            f"camera '{camera.name}' draws pictures of aspect {own:.4g} without stretching, these "
            f"are {size[0]}x{size[1]}, aspect {shown:.4g}\n  hint: perspective(fov, "
            "width / height, near, far)"
        )


def clips(loaded: Loaded, clip: bool | None, read: Read) -> bool:
    """Whether faces are cut at the near and far plane: as ``build_graph`` was told, or where it was
    not, whether the scene, its objects where they are now, crosses one."""
    if clip is not None:
        return clip
    frame, poses = loaded.geometry.frame, loaded.geometry.poses
    if poses.in_use:
        corners = poses.corners(read)
        frame = replace(frame, low=corners.min(axis=0), high=corners.max(axis=0))
    return crosses(loaded.views.drawn, frame)


def fit_planes(
    loaded: Loaded, recv: Callable[[Variable], np.ndarray], cameras: Sequence[Camera]
) -> None:
    """Fit the planes of the views to where things are now. recv: the data of a Variable. cameras:
    as they are now."""
    geometry = loaded.geometry.now()
    points = recv(geometry.positions).reshape(-1, 3).astype(np.float64)
    loaded.views.tighten(geometry.frame, points, cameras)


def build(loaded: Loaded, settings: Settings, own_loss: LossFunction | None, read: Read) -> Graph:
    """The graph for the parameters that are on now. read: what a parameter holds. Raises
    GraphError."""
    table, sources, geometry = loaded.table, loaded.sources, loaded.geometry.now()
    matrices = loaded.views.build()
    # Meshes whose vertices are in use, or the weights of whose blendshapes.
    moving = {row for row, p in sources.positions.items() if p.in_use}
    shaped = (loaded.scene.nodes[n].mesh for n, p in sources.weights.items() if p.in_use)
    moving |= {row for row in shaped if row is not None}
    lights = sources.lights
    appearance = Appearance(
        geometry,
        sources.materials,
        geometry.normals(moving, settings.normals),
        matrices.eye,
        lights.build(matrices.forward),
        lights.surroundings(),
        tangents=_tangents_hold(loaded, moving, settings.normals),
        mipmaps=settings.mipmaps,
        shadow_texels=settings.shadow_texels,
        mask_softness=settings.uniforms["mask_softness"],
        matrix=matrices.matrix,
        apexes=loaded.apexes,
    )
    size, n_views = loaded.size, len(loaded.views.cameras)
    background = build_background(settings.background, size, matrices, n_views, lights.environment)
    clip = clips(loaded, settings.clip, read)
    stops = loaded.exposure.leaf if loaded.exposure.in_use else None
    if stops is not None and isinstance(settings.background, str):
        background = exposure(background, stops)
    cull = culled_faces(geometry, sources.materials) if settings.cull else False
    picture = build_picture(appearance, matrices, size, settings, background, clip, cull, stops)
    both = F.vec4(picture.color, picture.coverage)
    if loaded.target is None:
        return Graph(picture, both, None, None, clip)
    shown = encoded(loaded.target, settings.tone[1])
    terms = [image_loss(picture, shown, loaded.mask, settings.of("loss:"), own_loss)]
    active = table.active
    terms += regularizer_terms(active, loaded.mesh_faces, settings.of("regularizer:"))
    # A name or a class makes an optimizer for each learning rate; a function is one for all.
    given = settings.optimizer
    make = OPTIMIZERS[given] if isinstance(given, str) else given
    own = not isinstance(given, (str, type))
    optimizer = grouped_optimizer(table, settings.of("lr:"), make, own)
    return Graph(picture, both, F.add_n(terms), optimizer if active else None, clip)


def culled_faces(geometry: Geometry, materials: Sequence[MaterialLeaves]) -> bool | Variable:
    """What ``cull`` of the rasterizers takes: FLOAT @ (F, 1), 1 for faces of materials that are not
    double_sided; a bool where that is all or none."""
    single = np.array([not m.material.double_sided for m in materials])
    if single.all() or not single.any():
        return bool(single.all())
    flags = F.leaf(single.astype(np.float32)[:, None], FLOAT, "single_sided")
    return F.lookup(flags, geometry.material_of_face)


def _tangents_hold(loaded: Loaded, moving: set[int], normals: Normals) -> bool:
    """Whether the file's tangents are there for all normal maps, and still right."""
    rows = {m.row for m in loaded.sources.materials if "normal" in m.maps}
    if normals == "computed":
        return False
    moving = moving | loaded.geometry.mapped
    for index, mesh in enumerate(loaded.scene.meshes):
        for p in mesh.primitives:
            row = -1 if p.material is None else p.material
            if row in rows and (p.tangents is None or index in moving):
                return False
    return True
