"""A server of this machine that shows meshes, cameras and curves in a browser, by viser.

In: scenes, meshes, matrices of cameras, losses. Out: a page at http://HOST:PORT until the block
ends. viser is an extra (``pip install 'dressi[view]'``).
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dressi.apps.address import Address
from dressi.apps.live import Positions, watched_by
from dressi.errors import DressiError
from dressi.render.camera.eye import eye_of
from dressi.render.io import linear_to_srgb, save_scene
from dressi.render.scene import Mesh, Scene, scene_of

EVERY, EVERY_TEXTURE = 0.3, 2.0
"""Seconds between two updates of the shape, and of the texture, which is sent as a whole file."""

THUMBNAIL = 128
"""Longer side of a picture on a camera, pixels."""

MOST_CAMERAS, MOST_CURVES = 64, 6
"""More would hide the object, and push the last curve from the screen."""


def checked(address: Address) -> None:
    """Raise DressiError where the extra is missing, or the address cannot be listened at."""
    try:
        import viser  # noqa: F401
    except ImportError:
        raise DressiError("the viewer needs viser: pip install 'dressi[view]'") from None
    host, port = address.host, address.port
    if not 0 <= port <= 65535:
        raise DressiError(f"--port {port}: must be in 0..65535 (0: any that is free)")
    try:
        family, kind, proto, _, at = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, proto) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(at)
    except OSError as error:  # viser itself would take the next port and not say so
        if error.errno == errno.EADDRINUSE:
            raise DressiError(
                f"--port {port}: another program listens there; give another one, or 0 for any "
                "that is free"
            ) from None
        option = f"--port {port}" if error.errno == errno.EACCES else f"--host {host}"
        raise DressiError(f"{option}: cannot listen there: {error}") from None


@contextlib.contextmanager
def served(address: Address, title: str) -> Iterator[Any]:
    """Yield a viser server that listens, and stop it at the end. Raises DressiError."""
    checked(address)
    import viser

    # Browsers open connections that they do not use; viser's server logs a traceback for each.
    log = logging.getLogger("websockets.server")
    before = log.level
    log.setLevel(logging.CRITICAL)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints a table of its own
        server = viser.ViserServer(address.host, address.port, title, verbose=False)
    try:
        server.scene.set_up_direction("+y")
        yield server
    finally:
        with contextlib.redirect_stdout(io.StringIO()):
            server.stop()
        log.setLevel(before)


@contextlib.contextmanager
def live_view(address: Address | None, title: str) -> Iterator[None]:
    """Fits within the block are shown while they run. None: they are not. Raises DressiError."""
    if address is None:
        yield
        return
    with served(address, title) as server:
        print(f"{title}: watch it at {url_of(server, address)}", flush=True)
        with watched_by(LiveView(server)):
            yield


def url_of(server: Any, address: Address) -> str:
    """Return the address for a browser."""
    return f"http://{address.host}:{server.get_port()}"


def glb_of(scene: Scene) -> bytes:
    """Return a scene as a GLB file in memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scene.glb"
        save_scene(path, scene)
        return path.read_bytes()


def look_from_afar(server: Any, points: npt.NDArray[np.floating]) -> None:
    """Place the eye so that all points (N, 3) are in view."""
    low, high = points.min(axis=0).astype(np.float64), points.max(axis=0).astype(np.float64)
    centre, radius = (low + high) / 2.0, float(np.linalg.norm(high - low)) / 2.0 or 1.0
    camera = server.initial_camera
    camera.position = tuple(centre + radius * np.array([1.1, 0.8, 1.8]))
    camera.look_at = tuple(centre)
    camera.near, camera.far = radius / 100.0, radius * 100.0


def frustum_of(matrix: npt.ArrayLike) -> dict[str, Any] | None:
    """Return what viser needs of a camera: fov (vertical, radians), aspect, wxyz (camera to world,
    x right, y down, z forward) and position. matrix: (4, 4) world to clip. None for a parallel
    projection."""
    m = np.asarray(matrix, np.float64)
    eye, forward = eye_of(m), m[3, :3]
    scale = float(np.linalg.norm(forward))
    if eye[3] == 0.0 or scale == 0.0:
        return None
    forward = forward / scale
    across = [row / scale - (row @ forward / scale) * forward for row in (m[0, :3], m[1, :3])]
    wide, high = (float(np.linalg.norm(v)) for v in across)
    down = across[1] / high
    # A matrix that mirrors has no rotation: right is what makes one with the other two.
    axes = np.stack([np.cross(down, forward), down, forward], axis=1)
    return {
        "fov": 2.0 * float(np.arctan(1.0 / high)),
        "aspect": high / wide,
        "wxyz": _quaternion(axes),
        "position": eye[:3] / eye[3],
    }


def _quaternion(r: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return (4,) w x y z of a rotation: the eigenvector of the largest eigenvalue of Bar-Itzhack's
    matrix, which has no special cases."""
    k = np.array(
        [
            [r[0, 0] + r[1, 1] + r[2, 2], 0.0, 0.0, 0.0],
            [r[2, 1] - r[1, 2], r[0, 0] - r[1, 1] - r[2, 2], 0.0, 0.0],
            [r[0, 2] - r[2, 0], r[0, 1] + r[1, 0], r[1, 1] - r[0, 0] - r[2, 2], 0.0],
            [
                r[1, 0] - r[0, 1],
                r[0, 2] + r[2, 0],
                r[1, 2] + r[2, 1],
                r[2, 2] - r[0, 0] - r[1, 1],
            ],
        ]
    )
    return np.asarray(np.linalg.eigh(k, UPLO="L")[1][:, -1], np.float64)


def add_cameras(
    server: Any,
    matrices: Sequence[npt.NDArray[np.floating]] | npt.NDArray[np.floating],
    pictures: npt.NDArray[np.floating] | None = None,
    size: float = 1.0,
    names: Sequence[str] = (),
) -> list[Any]:
    """Add cameras with their pictures; return viser's handles. size: of the object, world units."""
    handles = []
    step = -(-len(matrices) // MOST_CAMERAS)
    for k in range(0, len(matrices), max(step, 1)):
        given = frustum_of(matrices[k])
        if given is None:
            continue
        image = None if pictures is None else thumbnail(pictures[k])
        name = f"/cameras/{names[k] if names else k}"
        handles.append(
            server.scene.add_camera_frustum(name, scale=0.1 * size, image=image, **given)
        )
    return handles


def thumbnail(picture: npt.NDArray[np.floating], longer: int = THUMBNAIL) -> npt.NDArray[np.uint8]:
    """Return (h, w, 3) sRGB of 8 bits, made small. picture: (H, W, 1 to 4) linear."""
    every = max(-(-max(picture.shape[:2]) // longer), 1)
    small = picture[::every, ::every, :3]
    small = np.repeat(small[..., :1], 3, axis=2) if small.shape[2] < 3 else small
    return np.asarray((linear_to_srgb(np.clip(small, 0.0, 1.0)) * 255.0).round(), np.uint8)


class LiveView:
    """Shows each stage of a fit: cameras with pictures, the shape, the loss."""

    def __init__(self, server: Any) -> None:
        self._server, self._seen = server, False
        self._shown: list[Any] = []
        self._curves: list[Any] = []
        self._losses: list[float] = []
        self._mesh: Any = None
        self._surface: Mesh | None = None
        self._last = self._last_texture = 0.0
        self._text = server.gui.add_markdown("")

    def begin(
        self, label: str, mesh: Mesh, matrices: np.ndarray | None, pictures: np.ndarray | None
    ) -> None:
        """Put the start of a stage in the place of what is shown."""
        server = self._server
        for handle in self._shown:
            handle.remove()
        size = float(np.ptp(mesh.positions, axis=0).max()) or 1.0
        self._shown = [] if matrices is None else add_cameras(server, matrices, pictures, size)
        self._surface, self._losses = mesh, []
        self._mesh = server.scene.add_mesh_simple(
            "/shape", mesh.positions, mesh.faces, color=(200, 200, 205), side="double"
        )
        if not self._seen:
            eyes = [np.asarray(h.position, np.float32)[None] for h in self._shown]
            look_from_afar(server, np.concatenate([mesh.positions, *eyes]))
            self._seen = True
        nothing = np.zeros(1)
        self._curves.append(
            server.gui.add_uplot(
                (nothing, nothing),
                ({"label": "step"}, {"label": "loss", "stroke": "#1f6fb2"}),
                title=label,
                scales={"x": {"time": False}},
                aspect=1.6,
            )
        )
        while len(self._curves) > MOST_CURVES:
            self._curves.pop(0).remove()
        self._text.content = label
        self._last = self._last_texture = 0.0

    def step(
        self,
        loss: float | None,
        positions: Positions,
        texture: Callable[[], np.ndarray] | None,
    ) -> None:
        """Show a step, where the last one that was shown is long enough ago."""
        now = time.monotonic()
        self._losses.append(np.nan if loss is None else loss)
        if self._surface is None or now - self._last < EVERY:
            return
        values = np.array(self._losses, np.float64)
        known = np.flatnonzero(np.isfinite(values))
        if len(known):
            self._curves[-1].data = (known.astype(np.float64) + 1.0, values[known])
            self._text.content = f"step {len(values)}, loss {values[known[-1]]:.4g}"
        if texture is None:
            self._mesh.vertices = np.asarray(positions(), np.float32)
        elif now - self._last_texture > EVERY_TEXTURE:
            self._paint(np.asarray(positions(), np.float32), texture())
            self._last_texture = time.monotonic()
        self._last = time.monotonic()

    def _paint(self, positions: np.ndarray, texture: np.ndarray) -> None:
        surface = self._surface
        assert surface is not None
        mesh = Mesh(positions, surface.faces, surface.uvs, surface.uv_faces)
        glb = glb_of(scene_of(mesh, np.clip(texture, 0.0, 1.0)))
        self._mesh = self._server.scene.add_glb("/shape", glb)


def figures_text(figures: Mapping[str, Any]) -> str:
    """Return figures that are numbers or texts as a table in Markdown."""
    rows = [
        f"| {name} | {f'{value:.4g}' if isinstance(value, float) else value} |"
        for name, value in figures.items()
        if isinstance(value, (bool, int, float, str))
    ]
    return "\n".join(["| figure | value |", "|---|---|", *rows])
