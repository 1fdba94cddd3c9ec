"""Run one experiment: pictures, plots and the JSON."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dressi.apps.address import Address, add_live, live_address
from dressi.apps.experiments import (
    camera,
    curves,
    devices,
    edges,
    enlarge,
    env_map,
    face,
    fitted_normals,
    generalize,
    hair,
    heatmap,
    human,
    inverse_uv,
    large_steps,
    mip_rules,
    normal_map,
    real,
    shapes,
    sphere_edges,
)
from dressi.apps.experiments.common import (
    Experiment,
    Result,
    Settings,
    add_flags,
    make_settings,
)
from dressi.apps.experiments.parts import remove_parts
from dressi.apps.made_by import command_line
from dressi.apps.page import write_report
from dressi.apps.report import check_outputs, copy1024_ms, identity, print_table, write_json
from dressi.apps.viewer import live_view
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.render.io import write_plot
from dressi.render.io.images import read_image, write_png

EXPERIMENTS: dict[str, Experiment] = {
    "enlarge": Experiment(enlarge.HELP, enlarge.Settings, enlarge.run),
    "camera": Experiment(camera.HELP, camera.Settings, camera.run, beyond=True),
    "large_steps": Experiment(
        large_steps.HELP, large_steps.Settings, large_steps.run, live=True, beyond=True
    ),
    "normal_map": Experiment(normal_map.HELP, normal_map.Settings, normal_map.run),
    "env_map": Experiment(env_map.HELP, env_map.Settings, env_map.run),
    "fitted_normals": Experiment(fitted_normals.HELP, fitted_normals.Settings, fitted_normals.run),
    "hair": Experiment(hair.HELP, hair.Settings, hair.run),
    "face": Experiment(face.HELP, face.Settings, face.run),
    "human": Experiment(human.HELP, human.Settings, human.run),
    "inverse_uv": Experiment(inverse_uv.HELP, inverse_uv.Settings, inverse_uv.run),
    "generalize": Experiment(generalize.HELP, generalize.Settings, generalize.run),
    "curves": Experiment(curves.HELP, curves.Settings, curves.run, live=True),
    "devices": Experiment(devices.HELP, devices.Settings, devices.run),
    "heatmap": Experiment(heatmap.HELP, heatmap.Settings, heatmap.run, live=True),
    "edges": Experiment(edges.HELP, edges.Settings, edges.run, beyond=True),
    "mip_rules": Experiment(mip_rules.HELP, mip_rules.Settings, mip_rules.run, beyond=True),
    "real": Experiment(real.HELP, real.Settings, real.run, live=True),
    "sphere_edges": Experiment(sphere_edges.HELP, sphere_edges.Settings, sphere_edges.run),
    "shapes": Experiment(shapes.HELP, shapes.Settings, shapes.run, live=True, beyond=True),
}
OUT = "out/experiments"


def run_experiment(name: str, live: Address | None = None, **given: Any) -> dict[str, Any]:
    """Run an experiment, write its files, print and return what ``result.json`` holds.

    name: a key of EXPERIMENTS. given: fields of its Settings; out defaults to out/experiments/NAME.
    live: where fits of shapes are shown while they run, of an experiment that has such.
    Raises DressiError for an unknown name or option, and where files cannot be written.
    """
    if name not in EXPERIMENTS:
        raise DressiError(
            f"experiment: there is no experiment '{name}'; known: {', '.join(EXPERIMENTS)}"
        )
    experiment = EXPERIMENTS[name]
    if live is not None and not experiment.live:
        raise DressiError(f"experiment {name} fits no shape that could be shown: leave out live")
    if live is not None and given.get("workers"):
        raise DressiError("--live shows fits of this process: leave out --workers")
    if given.get("out") is None:
        given["out"] = f"{OUT}/{name}"
    settings = make_settings(experiment.settings, **given)
    assert settings.out is not None
    check_outputs(settings.out, settings.json)
    with DressiAD(settings.device) as ad:
        who = identity(ad)
    copy_ms = copy1024_ms(settings.device, 3 if settings.smoke else 9)
    begin = time.perf_counter()
    with live_view(live, f"dressi experiment {name}"):
        result = experiment.run(settings)
    seconds = time.perf_counter() - begin
    out = Path(settings.out)
    files = [*_write(out, result), *result.files]
    own = {k: v for k, v in asdict(settings).items() if k not in ("out", "json", "device")}
    stated, ours = _conditions(experiment, settings, result)
    data = {
        "experiment": name,
        **who,
        "copy1024_ms": copy_ms,
        "seconds": seconds,
        "settings": own,
        "figures": dict(result.figures),
        "conditions": [{"condition": c, "holds": bool(holds)} for c, holds in stated],
        "ours": [{"condition": c, "holds": bool(holds)} for c, holds in ours],
        "files": [*files, "report.html"],
    }
    shown = {k: v for k, v in result.figures.items() if isinstance(v, PLAIN)}
    shown = {**who, "copy1024_ms": copy_ms, "seconds": seconds, **shown}
    verdicts = {"What the paper claims": stated, "Ours, not the paper's": ours}
    _write_page(out, name, result, shown, verdicts)
    write_json(out / "result.json", data)
    if settings.json:
        write_json(settings.json, data)
    remove_parts(settings)
    print_table(f"dressi experiment {name}", shown)
    console = Console(width=160, highlight=False)
    for heading, *rows in result.tables:
        table = Table(*heading)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for heading, some in verdicts.items():
        if some:
            console.print(f"{heading}:")
        for condition, holds in some:
            console.print(f"  {_verdict(holds)}: {condition}", soft_wrap=True)
    return data


Conditions = Sequence[tuple[str, bool]]


def _conditions(
    experiment: Experiment, settings: Settings, result: Result
) -> tuple[Conditions, Conditions]:
    """Return the paper's conditions and ours. What is asked of the figures is asked for the sizes
    of a whole run or a quick one."""
    if settings.smoke:
        return (), ()
    if experiment.beyond:
        return (), (*result.conditions, *result.ours)
    return result.conditions, result.ours


def _verdict(holds: bool) -> str:
    return "holds" if holds else "DOES NOT HOLD"


def _write(out: Path, result: Result) -> list[str]:
    """Return pictures and plots; the names of the files written."""
    files = []
    for name, image in result.pictures.items():
        write_png(out / f"{name}.png", image)
        files.append(f"{name}.png")
    for name, draw in result.plots.items():
        try:
            write_plot(out / f"{name}.png", draw, f"{name}.png")
        except DressiError as error:  # the figures are there; matplotlib is an extra
            print(f"no plot: {error}", file=sys.stderr)
            continue
        files.append(f"{name}.png")
    return files


def _write_page(
    out: Path,
    name: str,
    result: Result,
    shown: Mapping[str, Any],
    verdicts: Mapping[str, Conditions],
) -> None:
    """Write ``report.html`` of what there is: conditions, tables, figures, pictures and plots,
    models."""
    tables: dict[str, Mapping[str, Any]] = {
        heading: {c: _verdict(holds) for c, holds in some}
        for heading, some in verdicts.items()
        if some
    }
    for k, (heading, *rows) in enumerate(result.tables):
        alike = len({row[0] for row in rows}) < len(rows)
        names = [f"{row[0]} ({i + 1})" if alike else row[0] for i, row in enumerate(rows)]
        table = {name: list(row[1:]) for name, row in zip(names, rows, strict=True)}
        tables[f"table {k + 1}: {heading[0]}"] = {"": list(heading[1:]), **table}
    plots = {plot: out / f"{plot}.png" for plot in result.plots}
    write_report(
        out,
        f"dressi experiment {name}",
        command_line(),
        {**tables, "figures": shown},
        {**result.pictures, **{k: read_image(p) for k, p in plots.items() if p.is_file()}},
        models={Path(f).stem: out / f for f in result.files if f.endswith(".glb")},
        notes=[EXPERIMENTS[name].help, *result.notes],
    )


PLAIN = (bool, int, float, str)
"""Figures that a table can show."""


def add_parsers(parser: argparse.ArgumentParser) -> None:
    """One parser an experiment, with its own flags; the namespace gets ``experiment``."""
    names = parser.add_subparsers(dest="experiment", required=False, metavar="NAME")
    for name, experiment in EXPERIMENTS.items():
        said = experiment.help + (" (beyond the paper)" if experiment.beyond else "")
        one = names.add_parser(name, help=said, description=said)
        one.add_argument("--out", metavar="DIR", help=f"folder for results (default {OUT}/{name})")
        one.add_argument(
            "--json", metavar="FILE", help="one more copy of the figures (default none)"
        )
        one.add_argument(
            "--device",
            help="index or part of the name of the device (default DRESSI_DEVICE, else the best)",
        )
        one.add_argument("--quiet", action="store_true", help="print errors and warnings only")
        one.add_argument(
            "--smoke", action="store_true", help="tiny sizes: only to see that it runs"
        )
        one.add_argument(
            "--quick",
            action="store_true",
            help="smaller sizes: two minutes at most on two cores, the same conditions",
        )
        if experiment.live:
            add_live(one)
        add_flags(one, experiment.settings)


def run_parsed(args: argparse.Namespace) -> None:
    """Run what ``add_parsers`` has parsed."""
    if args.experiment is None:
        for heading, beyond in (("of the paper:", False), ("beyond the paper:", True)):
            print(heading)
            for name, experiment in EXPERIMENTS.items():
                if experiment.beyond == beyond:
                    print(f"  {name:14} {experiment.help}")
        print("\ndressi experiment NAME runs one, dressi experiment NAME --help shows its options")
        return
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in vars(args).items()}
    for not_an_option in ("command", "run", "experiment", "quiet", "live", "host", "port"):
        given.pop(not_an_option, None)
    live = live_address(args) if EXPERIMENTS[args.experiment].live else None
    run_experiment(args.experiment, live, **given)
