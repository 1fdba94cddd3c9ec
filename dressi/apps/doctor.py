"""``dressi doctor``: is this device right? Every op, many in one shader and each in shaders of its
own (``alone``), and four small scenes, on the device, against the float64 evaluation of the same
graphs.

In: a device. Out: a table of checks, each with its worst error and what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from dressi.ad import Variable, build_backward, evaluate
from dressi.ad.registry import OPS, Case
from dressi.apps import alone
from dressi.apps.report import check_outputs, identity, write_json
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.testing import problems
from dressi.testing.cases import Config, configs

ALGEBRAIC, TRANSCENDENTAL = 1e-3, 5e-3
"""Largest relative errors of an op (R1 of docs/checking.md)."""
SCENE_LOSS, SCENE_GRADIENT = 1e-3, 2e-2
"""Largest relative differences of a scene. Its gradient also differs where an edge of the device's
sub-pixel grid covers another pixel than exact arithmetic would."""


@dataclass(frozen=True)
class Finding:
    """One check. error: relative to the reference; inf where something is not finite, or raised."""

    check: str
    cases: int
    error: float
    allowed: float
    worst: str
    """Where the error is largest, or what was raised."""
    forward: float | None = None
    gradient: float | None = None
    """Of an op: the largest error of its values and of its gradients; None where it has none."""

    @property
    def ok(self) -> bool:
        return self.error < self.allowed


def check_op(ad: DressiAD, name: str, every_shape: bool = False) -> Finding:
    """Check an op: forward and gradient of its cases, at one size each and with layers (or at
    every shape of the table), in one plan."""
    feeds: dict[Variable, np.ndarray] = {}
    checks: list[tuple[str, float, Variable]] = []
    for k, case in enumerate(OPS[name].cases):
        limit = _limit(case)
        for config in _configs(name, k, case, every_shape):
            values, mine = alone.values_of(name, k, case, config)
            feeds |= mine
            checks += [(f"case {k}, {config.text}, {w}", limit, v) for w, v in values.items()]
    for v, data in feeds.items():
        ad.send_img(v, data)
    asked = [v for *_, v in checks]
    got, want = ad.recv_imgs(asked), evaluate(asked, feeds)
    worst = Finding(f"F.{name}", len(checks), 0.0, ALGEBRAIC, "")
    errors: dict[str, float] = {}
    for (where, limit, _), a, b in zip(checks, got, want, strict=True):
        error = relative(a, b)
        kind = "forward" if where.endswith("forward") else "gradient"
        errors[kind] = max(errors.get(kind, 0.0), error)
        if error / limit >= worst.error / worst.allowed:
            worst = Finding(worst.check, worst.cases, error, limit, where)
    return replace(worst, forward=errors.get("forward"), gradient=errors.get("gradient"))


def _configs(name: str, k: int, case: Case, every_shape: bool) -> list[Config]:
    found = list(configs(name, k, case, large=every_shape))
    if every_shape:
        return found
    wanted = ("7x5", "given")
    return [c for c in found if c.text.startswith(wanted)] or found[:1]


def check_alone(ads: Mapping[str, DressiAD], name: str) -> Finding:
    """Check an op in shaders of its own, in passes and in dispatches, at small sizes. ads: those
    of ``alone.engines``."""
    worst, n = Finding(f"F.{name}", 0, 0.0, ALGEBRAIC, ""), 0
    for check in alone.checks_of(ads, name, _limit):
        n += 1
        error = relative(check.got, check.want)
        if error / check.limit >= worst.error / worst.allowed:
            worst = Finding(worst.check, n, error, check.limit, check.where)
    return replace(worst, cases=n)


def _limit(case: Case) -> float:
    return TRANSCENDENTAL if case.transcendental else ALGEBRAIC


def _both(a: Finding, b: Finding) -> Finding:
    """Return one row for two of the same op: of the one that is closer to its limit, with the cases
    of both."""
    far = a if a.error / a.allowed >= b.error / b.allowed else b
    return replace(far, cases=a.cases + b.cases, forward=a.forward, gradient=a.gradient)


def relative(got: np.ndarray, want: np.ndarray) -> float:
    """Return the largest error of an entry, relative to it or to a hundredth of the largest
    entry."""
    got = np.asarray(got, np.float64).reshape(want.shape)
    if not np.isfinite(got).all():
        return float("inf")
    scale = np.abs(want) + 1e-2 * np.abs(want).max(initial=0.0)
    return float((np.abs(got - want) / np.where(scale > 1e-9, scale, 1.0)).max(initial=0.0))


def scenes() -> Mapping[str, Callable[[], problems.Problem]]:
    """Return four small scenes that a whole pipeline is checked on."""
    mesh, matrices, size = problems.sphere(80), problems.view_matrices(2), 24

    def target() -> np.ndarray:
        y, x = (np.mgrid[:size, :size] + 0.5) / size - 0.5
        disc = (x * x / 0.06 + y * y / 0.11 < 1).astype(np.float32)
        return np.repeat(disc[None, ..., None], len(matrices), 0)

    def texture() -> problems.Problem:
        picture = np.concatenate([target() * k for k in (0.9, 0.5, 0.2)], axis=-1)
        return problems.texture_problem(mesh, matrices, picture, 16)

    return {
        "silhouette, K = 1": lambda: problems.silhouette_problem(mesh, matrices, target(), 1),
        "silhouette, K = 3": lambda: problems.silhouette_problem(mesh, matrices, target(), 3),
        "silhouette, normals": lambda: problems.silhouette_problem(
            mesh, matrices, target(), 1, bend=0.1
        ),
        "texture": texture,
    }


def check_scene(ad: DressiAD, name: str, problem: problems.Problem) -> list[Finding]:
    """Check loss and gradient of a scene."""
    for leaf, data in problem.data.items():
        ad.send_img(leaf, data)
    gradient = build_backward(problem.loss)[problem.parameter]
    loss, want = evaluate([problem.loss, gradient], problem.data)
    got = np.asarray(ad.recv_img(gradient), np.float64).reshape(want.shape)
    off = np.linalg.norm(got - want) / max(float(np.linalg.norm(want)), 1e-30)
    return [
        Finding(f"{name}: loss", 1, relative(ad.recv_img(problem.loss), loss), SCENE_LOSS, ""),
        Finding(
            f"{name}: gradient",
            want.size,
            float(off) if np.isfinite(got).all() else float("inf"),
            SCENE_GRADIENT,
            "relative L2 difference",
        ),
    ]


Say = Callable[[str], None]
OPS_PER_ENGINE = 12
"""Hundreds of pipelines at once make some drivers slow."""


def examine_ops(
    device: str | int | None, ops: Sequence[str] | None = None, every_shape: bool = False
) -> list[Finding]:
    """Check ops; what raises is a finding too. ops: names, default all."""
    out: list[Finding] = []
    names = [n for n in OPS if OPS[n].cases] if ops is None else list(ops)
    with tqdm(total=len(names), desc="ops", unit="op", leave=ops is None) as bar:
        for first in range(0, len(names), OPS_PER_ENGINE):
            with DressiAD(device) as ad:
                for name in names[first : first + OPS_PER_ENGINE]:
                    try:
                        out.append(check_op(ad, name, every_shape))
                    except DressiError as error:
                        out.append(Finding(f"F.{name}", 0, float("inf"), ALGEBRAIC, str(error)))
                    bar.update()
    return out


def examine(
    device: str | int | None, ops: Sequence[str] | None = None, say: Say = print
) -> list[Finding]:
    """Run all checks. ops: names, default all. say: gets a line of each family of ops and each
    scene as soon as it is known."""
    names = [n for n in OPS if OPS[n].cases] if ops is None else list(ops)
    families: dict[str, list[str]] = {}
    for name in names:
        module = OPS[name].cases[0].build.__module__
        families.setdefault(module.rpartition(".")[2], []).append(name)
    found: dict[str, Finding] = {}
    for family, mine in families.items():
        for first in range(0, len(mine), OPS_PER_ENGINE):
            found |= _examine_some(device, mine[first : first + OPS_PER_ENGINE])
        say(_line(family, [found[n] for n in mine]))
    out = [found[n] for n in names]
    with DressiAD(device) as ad:
        for name, build in scenes().items():
            try:
                of_scene = check_scene(ad, name, build())
            except DressiError as error:
                of_scene = [Finding(name, 0, float("inf"), SCENE_GRADIENT, str(error))]
            say(_line(name, of_scene))
            out += of_scene
    return out


def _examine_some(device: str | int | None, names: Sequence[str]) -> dict[str, Finding]:
    """Check several ops in the same engines: each together with others, then alone."""
    out = dict(zip(names, examine_ops(device, names), strict=True))
    ads = alone.engines(device)
    try:
        for name in names:
            try:
                mine = check_alone(ads, name)
            except DressiError as error:
                mine = Finding(f"F.{name}", 0, float("inf"), ALGEBRAIC, str(error))
            out[name] = _both(out[name], mine)
    finally:
        for ad in ads.values():
            ad.close()
    return out


def _line(title: str, found: Sequence[Finding]) -> str:
    """Return one line of several checks."""
    worst = max(found, key=lambda f: f.error / f.allowed)
    n_bad = sum(not f.ok for f in found)
    state = "ok" if not n_bad else f"OFF: {n_bad} of {len(found)}"
    return (
        f"{title:20} {sum(f.cases for f in found):6} values, worst {worst.error:.1e} of "
        f"{worst.allowed:.0e} ({worst.check})  {state}"
    )


def run_doctor(device: str | None, json_file: str | None, verbose: bool = False) -> bool:
    """Print what is off (all checks when verbose); True when all is well."""
    check_outputs(None, json_file)
    with DressiAD(device) as ad:
        who = identity(ad)
    found = examine(device, say=lambda line: print(line, flush=True))
    bad = [f for f in found if not f.ok]
    title = f"{who['device']}, {who['driver']}: {len(found) - len(bad)} of {len(found)} checks hold"
    table = Table()
    for column in ("check", "cases", "error", "allowed", "where"):
        table.add_column(column, justify="left" if column in ("check", "where") else "right")
    closest = sorted(found, key=lambda f: -f.error / f.allowed)
    for f in found if verbose else bad or closest[:5]:
        table.add_row(f.check, str(f.cases), f"{f.error:.1e}", f"{f.allowed:.0e}", f.worst)
    print(title)
    Console(width=140).print(table)
    if bad:
        print("Something is off on this device: an update of its driver may help.")
    elif not verbose:
        print("The five that came closest to what is allowed.")
    if json_file:
        rows: list[dict[str, Any]] = [
            {
                "check": f.check,
                "cases": f.cases,
                "error": f.error if np.isfinite(f.error) else None,
                "allowed": f.allowed,
                "holds": f.ok,
                "where": f.worst,
            }
            for f in found
        ]
        write_json(json_file, {**who, "rows": rows})
    return not bad
