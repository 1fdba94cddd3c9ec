"""``dressi bench scenes``: scenes of many parts, from the file to the first picture.

In: scenes made by arithmetic (``testing.part_scenes``), written as .glb. Out: one row each, of two
new processes: ``cold`` with no cache on disk, ours and Mesa's, ``warm`` with those that the first
one left. Seconds of reading the file, of ``load_scene``, of ``build_graph``, of the first picture,
of all of it, and of a second picture; ``cpu`` is the processor's time, which a busy machine does
not change. ``functions``: of the graph of the picture, whose number must not grow with the parts.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dressi.ad.graph import topological
from dressi.apps.bench.common import Copies, Settings, Table, in_new_process
from dressi.render.io import load_scene, save_scene
from dressi.render.renderer import DressiBasicRenderer
from dressi.render.scene import Scene, scene_of
from dressi.render.scene.mesh import icosphere
from dressi.testing import part_scenes

COLD_S, WARM_S = 15.0, 3.0
"""Seconds to the first picture that a scene may take, with no cache on disk and filled ones."""

SIZE, SMOKE_SIZE = (256, 192), (32, 24)

SCENES: dict[str, tuple[Callable[..., Scene], tuple[int, ...], tuple[int, ...]]] = {
    "ball": (lambda n: scene_of(icosphere(n)), (3,), (1,)),
    "room": (part_scenes.room, (234, 167, 40), (12, 12, 8)),
    "cubes": (part_scenes.cubes, (501,), (10,)),
    "quads": (part_scenes.textured_quads, (40, 64), (13, 4)),
    "instances": (part_scenes.instances_of_three, (5000,), (20,)),
}
"""What makes each scene, of how many parts, and of how many in a smoke run."""

COLUMNS = (
    "case",
    "nodes",
    "materials",
    "images",
    "functions",
    "read_s",
    "load_s",
    "graph_s",
    "picture_s",
    "cold_s",
    "cold_cpu_s",
    "warm_s",
    "warm_cpu_s",
    "again_s",
)


def timed(path: str, device: str | None, size: tuple[int, int]) -> dict[str, float]:
    """Return the seconds of each part of the way from a file to its first picture, and how much of
    the picture is covered."""
    laps = {}
    begin = last = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal last
        now = time.perf_counter()
        laps[name], last = now - last, now

    cpu = sum(os.times()[:2])
    scene = load_scene(path)
    lap("read_s")
    with DressiBasicRenderer(device) as renderer:
        lap("device_s")
        renderer.load_scene(scene, size=size)
        lap("load_s")
        renderer.build_graph(mode="antialias")
        lap("graph_s")
        first = renderer.render(alpha=True)
        lap("picture_s")
        laps["total_s"] = last - begin
        laps["cpu_s"] = sum(os.times()[:2]) - cpu
        renderer.render()
        lap("again_s")
        laps["functions"] = len(topological([renderer.graph.both]))
    return {**laps, "covered": float(first[..., 3].mean())}


def child(words: str) -> None:
    """What ``measure_row`` runs in a new process."""
    print(json.dumps(timed(**json.loads(words))))


def measure_row(name: str, settings: Settings) -> dict[str, Any]:
    """Return the row of one scene."""
    make, parts, few = SCENES[name]
    scene = make(*(few if settings.smoke else parts))
    size = SMOKE_SIZE if settings.smoke else SIZE
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "scene.glb")
        save_scene(path, scene)
        words = json.dumps({"path": path, "device": settings.device, "size": size})
        caches = Path(folder) / "caches"
        caches.mkdir()
        cold, warm = (json.loads(in_new_process(__name__, words, caches)) for _ in range(2))
    row = {"case": name, "nodes": len(scene.nodes), "materials": len(scene.materials)}
    row |= {"images": len(scene.images), "functions": int(cold["functions"])}
    row |= {key: cold[key] for key in ("read_s", "load_s", "graph_s", "picture_s", "covered")}
    row |= {"cold_s": cold["total_s"], "cold_cpu_s": cold["cpu_s"]}
    return row | {
        "warm_s": warm["total_s"],
        "warm_cpu_s": warm["cpu_s"],
        "again_s": warm["again_s"],
    }


def conditions(row: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return what is asked of a row."""
    case, out = row["case"], []
    for what, key, most in (("cold", "cold_s", COLD_S), ("warm", "warm_s", WARM_S)):
        got = row[key]
        out.append((f"{case}: first picture {what} <= {most:g} s, got {got:.2f}", got <= most))
    seen = row["covered"]
    out.append((f"{case}: something is seen, {seen:.0%} of the picture", seen > 0.01))
    return out


def measure(settings: Settings, copies: Copies) -> Table:
    """Return all rows, or the one that ``--only`` names."""
    names = [n for n in SCENES if settings.only in (None, n)]
    rows = [measure_row(name, settings) for name in names]
    return Table(COLUMNS, rows, [c for row in rows for c in conditions(row)])
