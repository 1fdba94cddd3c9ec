"""``dressi view FILE``: a scene, a mesh or the folder of a result in a browser.

In: a file that ``load_scene`` reads, or a folder that a command wrote. Out: a page at
http://HOST:PORT until Ctrl-C.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dressi.apps.address import Address
from dressi.apps.viewer import (
    add_cameras,
    checked,
    figures_text,
    glb_of,
    look_from_afar,
    served,
    thumbnail,
    url_of,
)
from dressi.errors import LoadError
from dressi.render.io import load_scene, read_image
from dressi.render.scene import Scene, cameras

PICTURES = 12
"""At most, of a folder."""

WIDE = 16.0 / 9.0
"""Aspect of cameras whose file says none."""


@dataclass(frozen=True, eq=False)
class Shown:
    """What is shown. scenes: by name. pictures: files by name. figures: of ``result.json``."""

    scenes: dict[str, Scene]
    pictures: dict[str, Path]
    figures: dict[str, Any]


def run_view(file: str, address: Address) -> None:
    """Serve the page of a file or a folder until Ctrl-C. Raises LoadError (no such file, nothing to
    show in it) and DressiError (no viser, an address that is taken)."""
    checked(address)
    shown = read_shown(Path(file))
    title = f"dressi view {Path(file).name}"
    try:  # around all of it: who has read the address may interrupt before print has returned
        with served(address, title) as server:
            fill(server, shown)
            print(f"{title}: {url_of(server, address)}   (Ctrl-C ends it)", flush=True)
            while True:
                time.sleep(0.2)
    except KeyboardInterrupt:
        print("ended", flush=True)


def read_shown(path: Path) -> Shown:
    """Read a file or a folder. Raises LoadError."""
    if path.is_file():
        return Shown({path.stem: load_scene(path)}, {}, {})
    if not path.is_dir():
        raise LoadError(f"{path}: no such file or folder", str(path))
    models = sorted(path.glob("*.glb"))
    pictures = {p.name: p for p in sorted(path.glob("*.png"))[:PICTURES]}
    if not models and not pictures:
        raise LoadError(
            f"{path}: no result of a command: there is neither a .glb nor a .png in it", str(path)
        )
    return Shown({m.stem: load_scene(m) for m in models}, pictures, _figures(path / "result.json"))


def _figures(path: Path) -> dict[str, Any]:
    """Return the figures of a result; none where there is no such file. Raises LoadError."""
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LoadError(f"{path}: is no JSON: {error}", str(path)) from None
    if not isinstance(data, dict):
        raise LoadError(f"{path}: needs an object of figures", str(path))
    inner = data.get("figures")
    return {**data, **inner} if isinstance(inner, dict) else data


def fill(server: Any, shown: Shown) -> None:
    """Put everything on the page of a server."""
    places = []
    for name, scene in shown.scenes.items():
        server.scene.add_glb(f"/{name}", glb_of(scene))
        meshes = [instance.world_mesh().positions for instance in scene.instances()]
        places += meshes
        size = float(np.ptp(np.concatenate(meshes), axis=0).max()) if meshes else 1.0
        views = cameras(scene, WIDE)
        add_cameras(server, [view.matrix for view in views], None, size or 1.0)
        for note in scene.notes:
            server.gui.add_markdown(f"{name}: {note}")
    if places:
        look_from_afar(server, np.concatenate(places))
    if shown.figures:
        with server.gui.add_folder("figures"):
            server.gui.add_markdown(figures_text(shown.figures))
    for name, path in shown.pictures.items():
        picture = read_image(path)
        server.gui.add_image(thumbnail(picture, 1024), label=name)
