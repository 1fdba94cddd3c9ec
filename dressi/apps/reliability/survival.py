"""R11: scenes of every feature that glTF files hold are read as they were written. R14: a process
that is killed, or whose disk is full, while it saves leaves the old file or the new one.

In: nothing; both run without a device. Out: rows for ``dressi bench reliability --only R11,R14``.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dressi.apps.reliability.row import Row, at_most
from dressi.config import child_environment
from dressi.errors import DressiError
from dressi.render.io import load_scene, read_image, save_scene, write_image
from dressi.render.scene import differences, icosphere, primitive_of, scene_of
from dressi.render.scene.parts import (
    ALPHA_MODES,
    MIN_FILTERS,
    WRAPS,
    Image,
    Material,
    MorphTarget,
    Node,
    Primitive,
    PunctualLight,
    SceneCamera,
    SceneMesh,
    TextureRef,
    trs_matrix,
)
from dressi.render.scene.scene import Scene

FORMS = (("a.glb", False), ("a.gltf", False), ("a.gltf", True))
N_TRIALS, N_SMALL = 200, 12
LONGEST_SAVE_SECONDS = 0.02
"""Kills come at a random moment in it; one save of the small scene takes about half."""


def _base(rng: np.random.Generator) -> tuple[Primitive, Image]:
    ball = replace(primitive_of(icosphere(1), material=0), name="")  # glTF names no primitives
    pixels = (rng.integers(0, 256, (4, 4, 3)) / 255.0).astype(np.float32)
    return ball, Image(pixels, "linear", "map")


def features() -> dict[str, Scene]:
    """Return a scene for each feature, by its name; data are random, seed 0."""
    rng = np.random.default_rng(0)
    make = _Maker(*_base(rng))
    found = _attributes(rng, make)
    return {**found, **_nodes_and_images(rng, make), **_enumerated(make)}


@dataclass(frozen=True)
class _Maker:
    """Makes scenes of one primitive and one image, but for what is given."""

    ball: Primitive
    image: Image

    def __call__(
        self, primitive: Primitive | None = None, material: Material | None = None, **more: object
    ) -> Scene:
        mesh = SceneMesh((primitive or self.ball,))
        ref = material or Material(normal_map=TextureRef(0))
        whole = Scene((Node(mesh=0),), (0,), (mesh,), (ref,), (self.image,), name="a")
        return replace(whole, **more)  # type: ignore[arg-type]


SPUN = trs_matrix((1, 2, 3), (0.1, 0.2, 0.3, 0.9), (2, -1, 0.5))


def _attributes(rng: np.random.Generator, scene: _Maker) -> dict[str, Scene]:
    """Return scenes whose vertices hold more, or less, than usual."""
    ball, n = scene.ball, len(scene.ball.positions)
    unit = rng.normal(size=(n, 3)).astype(np.float32)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    one = np.ones((n, 1), np.float32)
    targets = tuple(MorphTarget(unit * k, name=f"t{k}") for k in (1, 2, 3))
    return {
        "plain": scene(),
        "no uvs": scene(replace(ball, uvs=(), material=None), materials=(), images=()),
        "three uv sets": scene(replace(ball, uvs=ball.uvs * 3)),
        "tangents": scene(replace(ball, tangents=np.concatenate([unit, one], 1))),
        "colours": scene(replace(ball, colors=rng.random((n, 4), np.float32))),
        "blendshapes": scene(
            meshes=(SceneMesh((replace(ball, targets=targets),), (0.5, 0.0, -1.0)),)
        ),
        "weights of a node": scene(
            replace(ball, targets=targets), nodes=(Node(mesh=0, weights=(1.0, 2.0, 3.0)),)
        ),
        "70000 vertices": scene(
            Primitive(
                rng.random((70000, 3), np.float32),
                np.array([[0, 1, 69999]], np.int32),
                np.tile(unit[:1], (70000, 1)),
            ),
            materials=(),
            images=(),
        ),
    }


def _nodes_and_images(rng: np.random.Generator, scene: _Maker) -> dict[str, Scene]:
    """Return scenes of several nodes, and of images and materials of each kind."""
    ball, image = scene.ball, scene.image

    def levels(most: int, channels: int) -> npt.NDArray[np.float32]:
        """Return pixels that a PNG of so many levels holds exactly."""
        return (rng.integers(0, most + 1, (3, 3, channels)) / most).astype(np.float32)

    chain = tuple(Node(SPUN, (k + 1,)) for k in range(20))
    both = SceneMesh((ball, replace(ball, material=None, uvs=())))
    return {
        "several primitives": scene(meshes=(both,)),
        "two nodes, one mesh": scene(nodes=(Node(mesh=0), Node(SPUN, mesh=0)), roots=(0, 1)),
        "a chain of nodes": scene(nodes=(*chain, Node(mesh=0))),
        "no meshes": Scene((Node(name="x"),), (0,), name="a"),
        "orthographic camera": scene(
            nodes=(Node(mesh=0), Node(camera=0)),
            roots=(0, 1),
            cameras=(SceneCamera("orthographic", x_mag=2.0, y_mag=1.0, near=0.0, far=9.0),),
        ),
        "16-bit image": scene(images=(replace(image, pixels=levels(65535, 3), bit_depth=16),)),
        "RGBA image": scene(images=(replace(image, pixels=levels(255, 4)),)),
        "srgb image": scene(
            material=Material(base_color_map=TextureRef(0), emissive_map=TextureRef(0)),
            images=(Image(np.ones((2, 2, 3), np.float32), "srgb"),),
        ),
        "unlit": scene(material=Material(unlit=True), images=()),
        "emission": scene(
            material=Material(emissive=(1.0, 0.5, 0.25), emissive_strength=9.0), images=()
        ),
        "names": scene(nodes=(Node(mesh=0, name='ä 日本 "q" \\'),)),
    }


def _enumerated(scene: _Maker) -> dict[str, Scene]:
    """Return a scene for each value that alpha, wraps, filters, lights and cameras know."""
    found = {}
    for mode in ALPHA_MODES:
        cutoff = 0.25 if mode == "MASK" else 0.5
        material = Material(alpha_mode=mode, alpha_cutoff=cutoff, double_sided=True)
        found[f"alpha {mode}"] = scene(material=material, images=())
    for wrap in WRAPS:
        for name in MIN_FILTERS:
            ref = TextureRef(0, 0, wrap, "clamp", "nearest", name, (0.5, 0.0), 0.3, (2.0, 1.0))
            found[f"{wrap}, {name}"] = scene(material=Material(occlusion_map=ref))
    for kind in ("directional", "point", "spot"):
        light = PunctualLight(kind, (1.0, 0.5, 0.0), 3.0, None if kind == "directional" else 4.0)
        lit = (Node(mesh=0), Node(SPUN, light=0))
        found[f"{kind} light"] = scene(nodes=lit, roots=(0, 1), lights=(light,))
    for far in (None, 10.0):
        camera = SceneCamera(fov_y_deg=40.0, aspect=None if far else 1.5, near=0.1, far=far)
        seen = (Node(mesh=0), Node(SPUN, camera=0))
        found[f"camera, far {far}"] = scene(nodes=seen, roots=(0, 1), cameras=(camera,))
    return found


def conformance(device: str | None, small: bool) -> list[Row]:
    """Return the row of R11: scenes that come back different, or not at all, from .glb and
    .gltf."""
    wrong: list[str] = []
    scenes = features()
    with tempfile.TemporaryDirectory() as folder:
        for name, scene in scenes.items():
            for file, embed in FORMS:
                try:
                    save_scene(Path(folder) / file, scene, embed=embed)
                    lines = differences(scene, load_scene(Path(folder) / file))
                except DressiError as error:
                    lines = [str(error)]
                wrong += [f"{name}, {file}: {line}" for line in lines[:1]]
    first = f", first {wrong[0]}" if wrong else ""
    return [at_most(f"R11 scenes not read as written{first}", len(wrong), 0, 3 * len(scenes))]


# R14. Everything below runs in a child process that holds no device and may fork.


def _savers() -> list[tuple[str, Callable[[Path, int], object], Callable[[Path], float]]]:
    """Return (file, write version 0 or 1 of it, read which version it is)."""
    scenes = [scene_of(icosphere(2), np.full((64, 64, 3), value)) for value in (0.0, 1.0)]
    pictures = [np.full((200, 200, 3), value, np.float32) for value in (0.0, 1.0)]

    def scene_version(path: Path) -> float:
        scene = load_scene(path)
        assert len(scene.meshes[0].primitives[0].faces) == 320
        return float(np.unique(scene.images[0].pixels).item())

    def picture_version(path: Path) -> float:
        return float(np.unique(read_image(path)).item())

    return [
        ("a.glb", lambda path, k: save_scene(path, scenes[k]), scene_version),
        ("a.gltf", lambda path, k: save_scene(path, scenes[k]), scene_version),
        ("a.png", lambda path, k: write_image(path, pictures[k]), picture_version),
        ("a.hdr", lambda path, k: write_image(path, pictures[k]), picture_version),
    ]


def _trial(
    rng: random.Random, folder: Path, name: str, write: Callable[[Path, int], object]
) -> str:
    """Save version 1 over 0 in a fork, killed or out of space at a random moment."""
    import resource  # Linux and macOS, as fork
    import signal

    path, full = folder / name, rng.random() < 0.5
    write(path, 0)
    limit, moment = rng.randrange(40000), rng.uniform(0.0, LONGEST_SAVE_SECONDS)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if full:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a failed write is an OSError then
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            write(path, 1)
            code = 0
        finally:
            os._exit(code)
    if not full:
        time.sleep(moment)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return "full disk" if full else f"killed, status {status}"


def trials(first: int, last: int) -> None:
    """Writes one JSON line a trial: number, file, what was done, and what is wrong or ""."""
    savers = _savers()
    for number in range(first, last):
        rng = random.Random(number)
        name, write, version = savers[number % len(savers)]
        with tempfile.TemporaryDirectory() as folder:
            done = _trial(rng, Path(folder), name, write)
            try:
                found = version(Path(folder) / name)
                problem = "" if found in (0.0, 1.0) else f"version {found}"
            except Exception as error:
                found, problem = -1.0, f"{type(error).__name__}: {error}"
        sys.stdout.write(json.dumps([number, name, done, found, problem]) + "\n")


def atomic(device: str | None, small: bool) -> list[Row]:
    """Return the row of R14: saves after which the file was neither the old nor the new one.

    Raises DressiError where processes cannot fork (Windows).
    """
    if not hasattr(os, "fork"):
        raise DressiError("bench: R14 forks processes, which this system cannot")
    count = N_SMALL if small else N_TRIALS
    code = "import sys; from dressi.apps.reliability.survival import trials; "
    code += "trials(0, int(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(count)]
    run = subprocess.run(
        command, env=child_environment(), capture_output=True, encoding="utf-8", errors="replace"
    )
    if run.returncode != 0:
        raise DressiError(f"bench: the trials of R14 failed: {run.stderr.strip()[-400:]}")
    found = [json.loads(line) for line in run.stdout.splitlines()]
    wrong = [entry for entry in found if entry[-1]]
    first = f", first {wrong[0]}" if wrong else ""
    old = sum(entry[3] == 0.0 for entry in found)
    title = f"R14 saves that leave neither file ({old} old, {len(found) - old} new){first}"
    return [at_most(title, len(wrong) + count - len(found), 0, count)]
