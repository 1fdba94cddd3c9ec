"""A spec from the file to the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from dressi.apps.many.display import Display
from dressi.apps.many.report import write_report
from dressi.apps.many.spec import Spec, read_spec
from dressi.apps.report import check_outputs, write_json
from dressi.errors import DressiError
from dressi.many import Run, map_fits


@dataclass(frozen=True)
class Options:
    """Options of the command; see ``dressi many --help``."""

    out: str | None = None
    json: str | None = None
    workers: int | None = None
    devices: str | None = None
    scheduler: str | None = None
    retry_failed: bool = False
    quiet: bool = False


def run_many(spec: str | Path | Spec, options: Options | None = None) -> dict[str, Any]:
    """Run what a spec says that is not there yet; write table and report; return the summary.

    Files in the folder: ``results/``, ``files/``, ``failed/``, ``table.csv``, ``table.parquet``
    (with pyarrow), ``report.html``, ``summary.json``. Raises DressiError for what is wrong with the
    spec or the options, and, after everything was written, where no task succeeded.
    """
    options = options or Options()
    read = spec if isinstance(spec, Spec) else read_spec(spec)
    out = Path(options.out or read.out)
    check_outputs(str(out), options.json)
    # In this process the fits show bars of their own.
    with Display(f"dressi many: {read.fit}", options.quiet or options.workers == 0) as display:
        run = map_fits(
            read.chosen.function,
            read.items,
            options.scheduler,
            folder=out,
            workers=options.workers,
            devices=options.devices,
            version=read.chosen.version,
            files=read.chosen.files,
            retry_failed=options.retry_failed,
            progress=display.update,
        )
    files = write_report(out, read, run)
    summary = summarize(run, files)
    write_json(out / "summary.json", summary)
    if options.json:
        write_json(options.json, summary)
    if not options.quiet:
        _say(Console(width=120, highlight=False), out, run, summary)
    if not any(run.results):
        first = next(iter(run.failures.values()), ("",))
        raise DressiError(f"all {len(run.results)} tasks failed; the first with\n{first[-1]}")
    return summary


def summarize(run: Run, files: Sequence[str]) -> dict[str, Any]:
    """Return what came of a run as numbers."""
    there = [r for r in run.results if r is not None]
    info = [r.info for r in {r.key: r for r in there}.values()]
    return {
        "tasks": len(run.results),
        "done": len(there),
        "set_aside": sorted(run.failures),
        "computed": run.computed,
        "seconds": run.seconds,
        "task_seconds": sum(float(i["seconds"]) for i in info),
        "builds": sum(int(i["builds"]) for i in info),
        "reuses": sum(int(i["reuses"]) for i in info),
        "retried": sum(int(i["attempt"]) > 1 for i in info),
        "stale": run.stale,
        "others": run.others,
        "files": list(files),
    }


SHOWN = 5
"""Names that are printed of a long list; all are in summary.json."""


def _say(console: Console, out: Path, run: Run, summary: dict[str, Any]) -> None:
    console.print(
        f"{summary['done']} of {summary['tasks']} tasks done, {run.computed} of them now, in "
        f"{run.seconds:.1f} s; objects built {summary['builds']} times, reused "
        f"{summary['reuses']} times; {out / 'report.html'}"
    )
    for key in list(run.failures)[:SHOWN]:
        last = (run.failures[key] or ("",))[-1].strip().splitlines()
        console.print(f"  set aside: {key}: {last[-1] if last else ''}", markup=False)
    if run.failures:
        console.print("  hint: --retry-failed tries them again; failed/ holds the tracebacks")
    for name, keys in (
        ("stale (another version or file)", run.stale),
        ("of other settings", run.others),
    ):
        if keys:
            more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
            console.print(f"  {len(keys)} results {name}: {', '.join(keys[:SHOWN])}{more}")
