"""One table or all of them: measured, printed, written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dressi.apps.bench import (
    ablation,
    antialias,
    deodr,
    hosts,
    kbuffer,
    limits,
    many,
    packing,
    parallel,
    reliability,
    roofline,
    scaling,
    scenes,
    silhouettes,
    steps,
    textures,
    torch_layer,
)
from dressi.apps.bench.common import Copies, Settings, Table, print_table
from dressi.apps.report import check_outputs, identity, write_json
from dressi.engine import DressiAD
from dressi.errors import DressiError

TABLES: dict[str, Callable[[Settings, Copies], Table]] = {
    "steps": steps.measure,
    "limits": limits.measure,
    "ablation": ablation.measure,
    "silhouettes": silhouettes.measure,
    "textures": textures.measure,
    "deodr": deodr.measure,
    "roofline": roofline.measure,
    "scaling": scaling.measure,
    "scenes": scenes.measure,
    "packing": packing.measure,
    "antialias": antialias.measure,
    "kbuffer": kbuffer.measure,
    "parallel": parallel.measure,
    "hosts": hosts.measure,
    "reliability": reliability.measure,
    "torch": torch_layer.measure,
    "many": many.measure,
}
ABOUT = {
    "steps": "whole iterations of fits",
    "limits": "the paper's table 2: substages and stages under limits of devices",
    "ablation": "the paper's table 3: packing and caching left out",
    "silhouettes": "the paper's table 4: speed with silhouettes",
    "textures": "the paper's table 5: speed with textures",
    "deodr": "gradients of silhouettes, textures and a fit; --peer PYTHON takes turns with DEODR",
    "roofline": "how near a step is to the bandwidth of memory",
    "scaling": "views, resolution, faces and peels, one after another",
    "scenes": "scenes of many parts, from the file to the first picture",
    "packing": "the compiler itself",
    "antialias": "time and error of two methods for vertex gradients",
    "kbuffer": "layers of depth one by one and all at once",
    "parallel": "views split over all devices of a type",
    "hosts": "views split over two processes, by Gloo",
    "reliability": "promises as figures; --only R1,R9 picks some",
    "torch": "a layer of PyTorch beside a native step",
    "many": "fits spread over workers",
    "all": "all of these but the slow ones",
}
"""What each table measures, for lists."""
EXTRAS: dict[str, Callable[[], bool]] = {
    "torch": torch_layer.is_available,
    "hosts": hosts.is_available,
    "many": many.is_available,
}
"""Tables that need an extra, and whether it is there: ``all`` goes without those that lack it."""
ALL = "all"
OLD_NAMES = {
    "table1": "limits",
    "table2": "ablation",
    "table3": "silhouettes",
    "table4": "textures",
}
"""Names of before, one less than the numbers that the paper's tables have; still taken."""
LARGE = ("silhouettes", "textures", "deodr", "parallel", "hosts", "kbuffer", "torch", "many")
"""Asked for by name: the tables take minutes on a GPU, but the better part of an hour on a CPU;
``parallel`` takes all devices, ``torch`` and ``hosts`` need PyTorch, ``many`` Dask."""
OUT = "out/bench"

ONLY: dict[str, tuple[str, ...]] = {
    "scaling": tuple(scaling.AXES),
    "silhouettes": silhouettes.ONLY,
    "textures": textures.ONLY,
    "deodr": deodr.ONLY,
    "scenes": tuple(scenes.SCENES),
    "many": many.ONLY,
}
"""What ``--only`` may name, besides figures of ``reliability``."""


def check_only(table: str, only: str) -> None:
    """Raises DressiError for a table that takes no ``--only``, and for what it does not know."""
    if table == "reliability":
        reliability.chosen(only)
    elif table not in ONLY:
        known = ", ".join([*ONLY, "reliability"])
        raise DressiError(f"bench: --only goes with {known}, not with {table}")
    elif only not in ONLY[table]:
        known = ", ".join(ONLY[table])
        raise DressiError(f"bench: --only {only}: {table} has no such rows; known: {known}")


def check_results(table: str, settings: Settings) -> None:
    """Raises DressiError for a run without R7, and for a file that cannot be."""
    if table != "reliability" or reliability.FILED not in reliability.chosen(settings.only):
        raise DressiError(f"bench: --results goes with reliability, figure {reliability.FILED}")
    path = Path(settings.results or "")
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise DressiError(f"--results {path}: must be a file in a folder that exists")


def run_bench(
    table: str | None = None, settings: Settings | None = None, json_file: str | None = None
) -> dict[str, Any]:
    """Measure one table, or all; prints, writes JSON, returns what was written.

    table: a key of TABLES or ``all``; None: steps, or with ``smoke`` all. json_file: one object
    with ``device driver commit copy1024_ms rows`` (and ``conditions``); rows of ``all`` carry their
    ``table`` (those of LARGE are left out but in a smoke run). Files of their own (the JSON of each
    table of ``all``, plots of scaling) go to ``settings.out``. Raises DressiError for an unknown
    table and missing data.
    """
    settings = settings or Settings()
    name = table or (ALL if settings.smoke else "steps")
    name = OLD_NAMES.get(name, name)
    if name != ALL and name not in TABLES:
        raise DressiError(
            f"TABLE {name}: there is no such table; known: {', '.join(TABLES)}, {ALL}"
        )
    if settings.only is not None:
        check_only(name, settings.only)
    if settings.results is not None:
        check_results(name, settings)
    if settings.peer is not None and (name != "deodr" or settings.smoke):
        raise DressiError("bench: --peer goes with deodr, not with --smoke")
    out = settings.out
    if out is None and name in (ALL, "scaling") and not settings.smoke:
        out = OUT  # a smoke run leaves nothing behind unless it is asked to
    settings = settings.with_out(out)
    check_outputs(out, json_file)
    names = [name]
    if name == ALL:
        names = [n for n in TABLES if settings.smoke or n not in LARGE]
        names = [n for n in names if n not in EXTRAS or EXTRAS[n]()]
    if {"steps", "limits", "ablation", "silhouettes", "textures", "roofline", "deodr"} & set(names):
        settings.check_data()  # before minutes of work
    with DressiAD(settings.device) as ad:
        who = identity(ad)

    copies = Copies(settings)
    done: list[tuple[str, Table]] = []
    for each in names:
        try:
            made = TABLES[each](settings, copies)
        except KeyboardInterrupt:
            so_far = ", ".join(n for n, _ in done) or "none"
            print(f"stopped in table {each}; tables done: {so_far}", file=sys.stderr, flush=True)
            raise
        if settings.smoke:  # conditions are for the sizes that they were stated for
            made = replace(made, conditions=())
        done.append((each, made))
        one = {**who, "copy1024_ms": copies.median, **made.json()}
        print_table(f"{each}: {who['device']}, {who['driver']}", copies.median, made)
        if name == ALL and out is not None:
            write_json(Path(out) / f"{each}.json", one)
    result: dict[str, Any] = {**who, "copy1024_ms": copies.median, **done[-1][1].json()}
    if name == ALL:
        for key in ("rows", "conditions"):
            result[key] = [{"table": n, **row} for n, made in done for row in made.json()[key]]
    if json_file:
        write_json(json_file, result)
    return result
