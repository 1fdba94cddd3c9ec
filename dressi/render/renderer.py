"""DressiBasicRenderer: a scene in, an optimized scene out (paper, A.1 and A.2).

In: a scene file, target pictures, cameras. Out: pictures, and the scene with its parameters fitted.
The one module of ``dressi.render`` that drives the engine; all that it builds comes from
``dressi.render.pipeline``. The guide is docs/renderer.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dressi.ad import Variable
from dressi.engine import DressiAD
from dressi.errors import DeviceError, GraphError
from dressi.kinds import Curve, Encoding, Loss, Mode, Normals, OptimizerName, Regularizer
from dressi.render.camera.camera import Camera
from dressi.render.io import load_scene as read_scene
from dressi.render.io import save_scene as write_scene
from dressi.render.io import write_image
from dressi.render.io.sources import PathLike
from dressi.render.pipeline.assemble import Graph, Loaded, build, clips, fit_planes, load
from dressi.render.pipeline.materials import add_map
from dressi.render.pipeline.objective import LossFunction
from dressi.render.pipeline.parameters import MOVING, Parameter
from dressi.render.pipeline.picture import without_background
from dressi.render.pipeline.save import updated_scene
from dressi.render.pipeline.settings import Settings, check_settings, uniforms_of
from dressi.render.pipeline.views import moved_cameras, warn_of_empty
from dressi.render.scene.scene import Scene

if TYPE_CHECKING:
    from dressi.packing import Options


class DressiBasicRenderer:
    """A scene, its parameters by name, and their optimization.

    The life of one: ``load_scene``, ``build_graph``, ``set_requires_grad``, ``exec_step``,
    ``save_scene``. device, options, limits, validate, memory_limit: see ``DressiAD``. Several may
    live beside each other. Use as a context manager or call ``close``.

        with DressiBasicRenderer() as renderer:
            renderer.load_scene("initial.gltf", "target.png")
            renderer.build_graph(K=2, r=0.01, sigma=0.01 / 7, delta=0.01, lr=0.01)
            renderer.set_requires_grad("vtx_pos")
            for _ in range(1000):
                renderer.exec_step()
            renderer.save_scene("optimized.gltf")
    """

    def __init__(
        self,
        device: str | int | None = None,
        options: Options | None = None,
        limits: dict[str, int | bool] | None = None,
        validate: bool | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self._open: Callable[[], DressiAD] = lambda: DressiAD(
            device, options, limits, validate, memory_limit
        )
        self._ad = self._open()
        self._closed = self._moved = False
        self._loaded: Loaded | None = None
        self._settings: Settings | None = None
        self._graph: Graph | None = None
        self._own_loss: LossFunction | None = None

    # -- setting up

    def load_scene(
        self,
        scene: PathLike | Scene,
        targets: Any = None,
        cameras: Camera | Sequence[Camera] | None = None,
        size: tuple[int, int] | None = None,
        *,
        ambient: float | Sequence[float] | None = None,
        headlight: float | None = None,
        environment: PathLike | np.ndarray | None = None,
        share_intrinsics: bool = False,
        tables: bool | None = None,
    ) -> None:
        """Load a scene and the pictures that it is to look like.

        scene: a file of ``dressi.render.io.load_scene``, or a ``Scene``. targets: a file (PNG,
        JPEG, EXR, HDR), an array (H, W, C), or a list, one per view: linear, alpha is the mask;
        None: only to render, with ``size``. cameras: one per view; None: those of the scene, or
        where it has none one in front that sees all of it. size: (width, height); targets of other
        sizes are resampled to it. ambient, headlight: see ``build_lights``. environment: a file or
        array (H, W, 3), equirectangular, in place of the scene's. share_intrinsics: all views have
        one lens. tables: whether parts share leaves (docs/renderer.md); None: where they are
        many. What was loaded before is dropped; what was left out or changed is in ``notes``.
        Raises LoadError for files; GraphError for an empty scene, as many targets as there are no
        cameras, sizes that differ, no size, and cameras of photos of another aspect. Warns of views
        that see nothing, pixels that are not square, and depths that float32 mixes up.
        """
        self._alive()
        given = scene if isinstance(scene, Scene) else read_scene(scene)
        loaded = load(
            given, targets, cameras, size, ambient, headlight, environment, share_intrinsics, tables
        )
        if self._loaded is not None:  # leaves of the scene before are freed with their engine
            self._ad.close()
            self._ad = self._open()
        self._loaded, self._settings, self._graph, self._moved = loaded, None, None, False

    def build_graph(
        self,
        K: int = 1,
        r: float = 0.01,
        sigma: float | None = None,
        delta: float | None = None,
        lr: float | Mapping[str, float] = 0.01,
        *,
        mode: Mode = "hardsoftras",
        loss: Loss | Mapping[Loss, float] | None = None,
        regularizers: Regularizer | Mapping[Regularizer, float] | None = None,
        optimizer: OptimizerName | Callable[..., Any] = "adam",
        background: Any = 0.0,
        tone: tuple[Curve, Encoding] = ("none", "none"),
        normals: Normals = "auto",
        mipmaps: bool = True,
        shadows: int = 0,
        max_delta: float | None = None,
        mask_softness: float = 0.0,
        clip: bool | None = None,
        occlusion: bool = False,
        cull: bool = False,
        exposure: float | None = None,
    ) -> None:
        """Say how to draw, compare and step.

        K, r, sigma, delta: of HardSoftRas: layers, reach, softness (None: r / 7), width of the edge
        mask (None: r); r, sigma, delta in screen square units. lr: a learning rate, or several by
        name or kind (``{"vtx_pos": 0.01, "albedo": 0.05, "default": 0.01}``). mode:
        ``hardsoftras`` or ``antialias`` (one layer, reach of a pixel; K, r, sigma, delta play no
        part). loss: a name or weights by name: l1, l2, huber of colours, silhouette (L2),
        silhouette_l1 of coverage; None: l1, and silhouette_l1 where targets have masks (paper, A.2:
        L1 of RGBA). regularizers: weights by name: laplacian, normal_consistency, edge_length of
        vertices, tv of maps. optimizer: adam, adam_uniform, sgd, a class such as ``Momentum``
        (made with each learning rate), or a function (xs, gxs) -> updated xs. background: a colour,
        pictures, or ``environment``. tone: (curve, encoding) of ``tone_map``; targets get the
        encoding only. normals: ``auto`` (the file's until vertices move), ``file``, ``computed``.
        mipmaps: for samplers that ask for them. shadows: texels per side of shadow maps; 0: none.
        max_delta: the largest delta that will be set. mask_softness: of alpha masks, 0: hard, no
        gradient. clip: cut faces at the near and far plane, so that what is left has a soft rim and
        gradients; None: where the scene's box crosses one. occlusion: of HardSoftRas: soft edges
        before other surfaces, too, whatever K. cull: leave out the backs of faces whose material is
        not double_sided, as viewers of glTF do. exposure: of the camera, in stops: what is drawn
        (not a background that was given) times 2^exposure; None: as it is, 0 at first. Raises
        GraphError before ``load_scene``, for unknown names and numbers out of range.
        """
        loaded = self._need_loaded("build_graph")
        check_settings(mode, tone, normals, optimizer)
        masked = loaded.targets is not None and loaded.targets.alpha is not None
        lengths = {"r": r, "mask_softness": mask_softness, "sigma": sigma, "delta": delta}
        uniforms = uniforms_of(lengths, loss, regularizers, lr, masked)
        for name in uniforms:
            if name.startswith("lr:") and name != "lr:default":
                loaded.table.find(name.removeprefix("lr:"))
        largest = max(r, 0.0 if delta is None else delta)
        self._settings = Settings(
            K, float(largest if max_delta is None else max_delta), mode, background,
            (tone[0], tone[1]), normals, bool(mipmaps), int(shadows), optimizer, clip,
            bool(occlusion), bool(cull), uniforms,
        )  # fmt: skip
        if exposure is not None:
            self.set_value("exposure", exposure)
        self._graph = None
        self._made()

    def set_loss(self, loss: LossFunction | None) -> None:
        """Your own loss: ``loss(picture, target, mask)`` -> Variable, whose mean is minimized.

        picture: VEC4 @ size, layers = views: colour and coverage. target: VEC4 (colour over the
        background, mask), or VEC3 where targets have no mask. mask: FLOAT or None. loss None: back
        to the named losses. Regularizers are added to it.
        """
        if loss is not None and not callable(loss):
            raise GraphError(f"set_loss needs a function, got {loss!r}")
        self._own_loss, self._graph = loss, None

    def set_requires_grad(self, names: str | Sequence[str], on: bool = True) -> None:
        """Fit parameters, or stop fitting them.

        names: of ``parameters``: a kind (``albedo``: of all materials; the factor of those without
        a map), one of an owner (``albedo:Body``), or a group (``lights``, ``object_pose``,
        ``camera_pose``, ``camera_intrinsics``). Raises GraphError, listing the names, for others.
        """
        table = self._need_loaded("set_requires_grad").table
        if table.turn(names, bool(on)):
            self._graph = None

    def add_map(self, name: str, size: tuple[int, int]) -> None:
        """Give materials a map that they lack, of ``size`` (width, height) texels.

        name: albedo, metallic, roughness, normal, occlusion or emissive, of all materials that lack
        it, or of one: ``albedo:Body``. It begins constant, and the picture stays as it was: the
        factor goes into the map. Raises GraphError where there are no UVs.
        """
        loaded = self._need_loaded("add_map")
        materials, with_uv = loaded.sources.materials, loaded.geometry.materials_with_uv
        add_map(materials, with_uv, loaded.table, self._read, self._put, name, size)
        self._graph = None

    # -- parameters

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters: name, shape, requires_grad; ``print(*parameters, sep="\\n")``."""
        return tuple(self._need_loaded("parameters").table)

    def value(self, name: str) -> np.ndarray:
        """What a parameter holds now, of its ``shape``: float32, or float64 for positions far from
        the origin. Raises GraphError where the name means several."""
        return self._read(self._need_loaded("value").table.only(name))

    def set_value(self, name: str, value: Any) -> None:
        """Send other data to a parameter, of its ``shape``. Raises GraphError for another shape,
        NaN, and names that mean several."""
        loaded = self._need_loaded("set_value")
        p = loaded.table.only(name)
        self._put(p, value)
        if not p.in_use:
            p.in_use, self._graph = True, None
        if p.kind in MOVING:
            made, settings = self._graph, self._settings
            if loaded.views.tightened:
                self._moved, self._graph = True, None
            elif made and settings and made.clip != clips(loaded, settings.clip, self._read):
                self._graph = None  # an object crosses a plane now, or none does any more

    def set(self, **numbers: float) -> None:
        """Change numbers at run time, without a rebuild.

        r, sigma, delta, mask_softness; lr (of ``default``) or a kind of parameter (its learning
        rate, where ``build_graph`` was given one); names of losses and regularizers (their
        weights). Raises GraphError for others, and for numbers out of range.
        """
        settings = self._need_settings("set")
        for name, value in numbers.items():
            self._ad.send_img(settings.uniform_of(name, value), np.float32(value))

    # -- running

    def exec_step(self) -> None:
        """One iteration of the fit. Raises GraphError without graph, targets, or a parameter."""
        self.exec_steps(1)

    def exec_steps(self, n: int, **options: Any) -> None:
        """n iterations. options: callback, progress, every, as of ``DressiAD.exec_steps``."""
        self._need_loss("exec_step")
        self._need_loaded("exec_step").table.need_active("exec_step")
        self._ad.exec_steps(n, **options)

    def loss(self) -> float:
        """The loss: of the last step, or, where something was sent since, of the data now."""
        return float(np.ravel(self._ad.recv_img(self._need_loss("loss")))[0])

    def render_all(self, alpha: bool = False) -> np.ndarray:
        """Pictures of all views now, (views, H, W, 3) float32: colours over the background, toned.

        alpha: (views, H, W, 4): colours with the background taken out, and coverage: what targets
        with a mask are, and PNG. In pictures with a tone curve that is only nearly so at rims.
        """
        made = self._made("render_all")
        images = made.both, made.picture.background
        both, background = (
            a.reshape(v.layers, v.size[1], v.size[0], -1)  # pictures of one row come as tables
            for v, a in zip(images, self._ad.recv_imgs(images), strict=True)
        )
        if not made.shown:
            made.shown = True
            warn_of_empty(self._need_loaded("render_all").views.cameras, both[..., 3])
        if not alpha:
            return both[..., :3]
        return without_background(both, background)

    def render(self, view: int = 0, alpha: bool = False) -> np.ndarray:
        """(H, W, 3 or 4) of one view. See ``render_all``. Raises GraphError for no such view."""
        n = len(self._need_loaded("render").views.cameras)
        if not isinstance(view, (int, np.integer)) or not -n <= view < n:
            raise GraphError(f"render: view {view!r} of {n} views")
        return self.render_all(alpha)[view]

    def save_picture(self, path: PathLike, view: int = 0, alpha: bool = False) -> None:
        """Write one view as PNG, JPEG, HDR or EXR. alpha: with coverage (PNG, EXR). Linear
        pictures are encoded as sRGB in PNG and JPEG; encoded ones are written as they are."""
        encode = self._need_settings("save_picture").tone[1] == "none"
        write_image(path, self.render(view, alpha), srgb=encode)

    # -- results

    @property
    def scene(self) -> Scene:
        """The scene with what its parameters hold now."""
        return self._updated()[0]

    @property
    def notes(self) -> tuple[str, ...]:
        """What ``load_scene`` left out or changed: of the file, and of cameras for the pictures."""
        loaded = self._need_loaded("notes")
        return (*loaded.scene.notes, *loaded.notes)

    @property
    def cameras(self) -> list[Camera]:
        """The cameras of the views as they are now."""
        v = self._need_loaded("cameras").views
        parts = v.rotation, v.translation, v.zoom, v.shift
        return moved_cameras(v, *(self._read(p).reshape(p.leaf.layers, -1) for p in parts))

    def save_scene(self, path: PathLike, *, embed: bool = False) -> tuple[str, ...]:
        """Write the scene as .glb or .gltf with what its parameters hold now; all else as it was
        loaded. Returns what was left out. See ``write_gltf``; maps keep their bit depth."""
        scene, notes = self._updated()
        return (*notes, *write_scene(path, scene, embed=embed))

    def save_environment(self, path: PathLike) -> None:
        """Write the environment as .exr or .hdr. Raises GraphError where there is none."""
        p = self._need_loaded("save_environment").table.one("environment")
        if p is None:
            raise GraphError("save_environment: the scene has no environment")
        write_image(path, self._read(p))

    @property
    def graph(self) -> Graph:
        """What runs, as Variables: pictures of all views, the loss, the optimizer."""
        return self._made("graph")

    @property
    def ad(self) -> DressiAD:
        """The engine, e.g. for ``report``."""
        return self._ad

    def close(self) -> None:
        """Free everything on the device. May be called twice."""
        self._closed = True
        self._ad.close()
        self._loaded, self._settings, self._graph = None, None, None

    def __enter__(self) -> DressiBasicRenderer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _alive(self) -> None:
        if self._closed:
            raise DeviceError("this DressiBasicRenderer is closed")

    def _need_loaded(self, who: str) -> Loaded:
        self._alive()
        if self._loaded is None:
            raise GraphError(f"{who}: no scene is loaded; call load_scene first")
        return self._loaded

    def _need_settings(self, who: str) -> Settings:
        self._need_loaded(who)
        if self._settings is None:
            raise GraphError(f"{who}: there is no graph; call build_graph first")
        return self._settings

    def _need_loss(self, who: str) -> Variable:
        made = self._made(who)
        if made.loss is None:
            raise GraphError(f"{who}: load_scene was given no targets")
        return made.loss

    def _made(self, who: str = "build_graph") -> Graph:
        """The graph of the parameters that are on, made anew where they changed."""
        settings = self._need_settings(who)
        if self._graph is None:
            loaded = self._need_loaded(who)
            if self._moved:
                fit_planes(loaded, self._ad.recv_img, self.cameras)
                self._moved = False
            graph = build(loaded, settings, self._own_loss, self._read)
            if graph.loss is not None:
                self._ad.set_loss_var(graph.loss)
                self._ad.set_optimizer(graph.optimizer)
            self._graph = graph
        return self._graph

    def _read(self, p: Parameter) -> np.ndarray:
        return p.read(self._ad.recv_img(p.leaf))

    def _put(self, p: Parameter, value: Any) -> None:
        self._ad.send_img(p.leaf, np.float32(p.written(value, self._ad.recv_img)))

    def _updated(self) -> tuple[Scene, tuple[str, ...]]:
        loaded = self._need_loaded("save_scene")
        aspect, recv = loaded.size[0] / loaded.size[1], self._ad.recv_img
        return updated_scene(loaded.scene, loaded.sources, recv, self.cameras, aspect)
