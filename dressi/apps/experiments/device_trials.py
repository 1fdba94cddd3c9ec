"""One trial of the cross-platform application: the pear's shape, then its texture (paper, 4.1).

In: a ``Trial``. Out: counts of the plans before and after caching, milliseconds, error curves.
``python -m dressi.apps.experiments.device_trials`` reads one as JSON from standard input and writes
what it found to standard output: the number of threads of a CPU driver is an environment variable,
which a process has to be started with.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from dressi.apps.demo import EXTENT, centred
from dressi.apps.fitting import ShapeFitter, ShapeSchedule, TextureSchedule, fit_texture
from dressi.apps.report import identity
from dressi.config import child_environment
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.kinds import Lowering
from dressi.packing import Options
from dressi.render.fit import mean_distance_to_surface
from dressi.render.scene import icosphere, make_pear
from dressi.testing.views import render, spread_views

THREADS = "LP_NUM_THREADS"
"""What Mesa's CPU driver reads."""


@dataclass(frozen=True)
class Trial:
    """device: a name that is unique. lowering: passes (graphics) or dispatches (compute). threads:
    of a CPU driver; 0: as it likes. size: pixels on a side of a view, and texels of the texture.
    every: iterations between measurements of the distance."""

    device: str
    lowering: Lowering
    threads: int
    iterations: int
    texture_iterations: int
    size: int
    views: int
    subdivisions: int
    every: int


def run_apart(trial: Trial) -> dict[str, Any]:
    """Return what ``measure`` gives, from a process of its own. Raises DressiError with what it
    said where it failed."""
    environment = child_environment(**({THREADS: str(trial.threads)} if trial.threads else {}))
    command = [sys.executable, "-m", "dressi.apps.experiments.device_trials"]
    done = subprocess.run(
        command,
        input=json.dumps(asdict(trial)),
        env=environment,
        capture_output=True,
        encoding="utf-8",
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise DressiError(f"a trial on {trial.device} failed: {said[0]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(trial: Trial) -> dict[str, Any]:
    """Run the application once. distances: of the vertices to the surface, mean, over the longest
    side; losses: of the texture, each iteration."""
    original, texture = make_pear()
    target = centred(original)[0]
    size = (trial.size, trial.size)
    matrices = np.stack([c.matrix for c in spread_views(trial.views)])
    coverage, colour = render(target, matrices, size, texture, 4, trial.device)
    start = icosphere(trial.subdivisions, 0.28 * EXTENT)
    shape = ShapeSchedule(trial.iterations, r=(0.03, 1.0 / trial.size))
    distances: list[float] = []
    whole: list[int] = []
    step = 0

    def watch(positions: Callable[[], np.ndarray]) -> None:
        nonlocal step
        step += 1
        if step == 1:  # before the engine has seen what never changes
            whole.extend(counts(ad))
        if step % trial.every == 0 or step == trial.iterations:
            distances.append(distance(positions()))

    def distance(positions: np.ndarray) -> float:
        return mean_distance_to_surface(positions, target.positions, target.faces) / EXTENT

    options = Options(lowering=trial.lowering)
    with DressiAD(trial.device, options) as ad:
        who = {**identity(ad), "input_attachments": ad.limits.input_attachments}
        fitter = ShapeFitter(ad, start, trial.views, size, shape.K, max(shape.r), shape.beta2)
        found = fitter.fit(start, matrices, coverage, shape, watch=watch)
        geometry = {"ms": found.median_ms, "before": whole, "after": counts(ad)}
    fitted = replace(start, positions=found.data)
    paint = TextureSchedule(1, size=size, hold=trial.texture_iterations + 1, sobol=False)
    with DressiAD(trial.device, options) as ad:
        fit_texture(ad, fitted, matrices, colour, paint, "one step")
        before = counts(ad)
    with DressiAD(trial.device, options) as ad:
        paint = replace(paint, iterations=trial.texture_iterations)
        painted = fit_texture(ad, fitted, matrices, colour, paint, "texture")
        told = {"ms": painted.median_ms, "before": before, "after": counts(ad)}
    at = [0, *range(trial.every, trial.iterations, trial.every), trial.iterations]
    return {
        **who,
        "geometry": {**geometry, "at": at, "curve": [distance(start.positions), *distances]},
        "texture": {**told, "at": list(range(len(painted.losses))), "curve": painted.losses},
    }


def counts(ad: DressiAD) -> list[int]:
    """Return substages and stages of what a step repeats."""
    return [ad.plan.n_substages, len(ad.plan.stages)]


if __name__ == "__main__":
    print(json.dumps(measure(Trial(**json.load(sys.stdin)))))
