"""Run one experiment: pictures, plots and the JSON."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dressi.apps.experiments import (
    camera,
    curves,
    edges,
    enlarge,
    env_map,
    face,
    generalize,
    hair,
    heatmap,
    large_steps,
    mip_rules,
    normal_map,
    real,
    shapes,
)
from dressi.apps.experiments.common import Experiment, Result, add_flags, make_settings
from dressi.apps.report import check_outputs, copy1024_ms, identity, print_table, write_json
from dressi.engine import DressiAD
from dressi.errors import DressiError
from dressi.render.io import write_plot
from dressi.render.io.images import write_png

EXPERIMENTS: dict[str, Experiment] = {
    "enlarge": Experiment(enlarge.HELP, enlarge.Settings, enlarge.run),
    "camera": Experiment(camera.HELP, camera.Settings, camera.run),
    "large_steps": Experiment(large_steps.HELP, large_steps.Settings, large_steps.run),
    "normal_map": Experiment(normal_map.HELP, normal_map.Settings, normal_map.run),
    "env_map": Experiment(env_map.HELP, env_map.Settings, env_map.run),
    "hair": Experiment(hair.HELP, hair.Settings, hair.run),
    "face": Experiment(face.HELP, face.Settings, face.run),
    "generalize": Experiment(generalize.HELP, generalize.Settings, generalize.run),
    "curves": Experiment(curves.HELP, curves.Settings, curves.run),
    "heatmap": Experiment(heatmap.HELP, heatmap.Settings, heatmap.run),
    "edges": Experiment(edges.HELP, edges.Settings, edges.run),
    "mip_rules": Experiment(mip_rules.HELP, mip_rules.Settings, mip_rules.run),
    "real": Experiment(real.HELP, real.Settings, real.run),
    "shapes": Experiment(shapes.HELP, shapes.Settings, shapes.run),
}
OUT = "out/experiments"


def run_experiment(name: str, **given: Any) -> dict[str, Any]:
    """Run an experiment, write its files, print and return what ``result.json`` holds.

    name: a key of EXPERIMENTS. given: fields of its Settings; out defaults to out/experiments/NAME.
    Raises DressiError for an unknown name or option, and where files cannot be written.
    """
    if name not in EXPERIMENTS:
        raise DressiError(
            f"experiment: there is no experiment '{name}'; known: {', '.join(EXPERIMENTS)}"
        )
    experiment = EXPERIMENTS[name]
    if given.get("out") is None:
        given["out"] = f"{OUT}/{name}"
    settings = make_settings(experiment.settings, **given)
    assert settings.out is not None
    check_outputs(settings.out, settings.json)
    with DressiAD(settings.device) as ad:
        who = identity(ad)
    copy_ms = copy1024_ms(settings.device, 3 if settings.smoke else 9)
    begin = time.perf_counter()
    result = experiment.run(settings)
    seconds = time.perf_counter() - begin
    files = [*_write(Path(settings.out), result), *result.files]
    own = {k: v for k, v in asdict(settings).items() if k not in ("out", "json", "device")}
    # What is asked of the figures is asked for the sizes of a whole run.
    conditions = () if settings.smoke else result.conditions
    data = {
        "experiment": name,
        **who,
        "copy1024_ms": copy_ms,
        "seconds": seconds,
        "settings": own,
        "figures": dict(result.figures),
        "conditions": [{"condition": c, "holds": bool(holds)} for c, holds in conditions],
        "files": files,
    }
    write_json(Path(settings.out) / "result.json", data)
    if settings.json:
        write_json(settings.json, data)
    shown = {k: v for k, v in result.figures.items() if isinstance(v, (int, float, str))}
    head = {**who, "copy1024_ms": copy_ms, "seconds": seconds}
    print_table(f"dressi experiment {name}", {**head, **shown})
    console = Console(width=160, highlight=False)
    for heading, *rows in result.tables:
        table = Table(*heading)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for condition, holds in conditions:
        console.print(f"  {'holds' if holds else 'DOES NOT HOLD'}: {condition}", soft_wrap=True)
    return data


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


def add_parsers(parser: argparse.ArgumentParser) -> None:
    """One parser an experiment, with its own flags; the namespace gets ``experiment``."""
    names = parser.add_subparsers(dest="experiment", required=False, metavar="NAME")
    for name, experiment in EXPERIMENTS.items():
        one = names.add_parser(name, help=experiment.help, description=experiment.help)
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
        add_flags(one, experiment.settings)


def run_parsed(args: argparse.Namespace) -> None:
    """Run what ``add_parsers`` has parsed."""
    if args.experiment is None:
        for name, experiment in EXPERIMENTS.items():
            print(f"{name:12} {experiment.help}")
        print("\ndressi experiment NAME runs one, dressi experiment NAME --help shows its options")
        return
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in vars(args).items()}
    for not_an_option in ("command", "run", "experiment", "quiet"):
        del given[not_an_option]
    run_experiment(args.experiment, **given)
