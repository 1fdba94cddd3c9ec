"""The arguments of ``dressi many``."""

from __future__ import annotations

import argparse

from dressi.apps.many.run import Options, run_many
from dressi.errors import DressiError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser of the command."""
    parser.add_argument("spec", nargs="?", metavar="SPEC.toml", help="what is to be fitted")
    parser.add_argument("--out", metavar="DIR", help="folder for results (default: the spec's)")
    parser.add_argument(
        "--json", metavar="FILE", help="one more copy of the summary (default none)"
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes (default: one per device, on CPU drivers one per core; 0: this one alone)",
    )
    parser.add_argument(
        "--devices",
        metavar="D",
        help="all, or like 0,1: devices, one after another over workers (default all)",
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="of a Dask scheduler that runs (default: one of its own)",
    )
    parser.add_argument(
        "--retry-failed",
        action="store_true",
        help="try again what was set aside earlier (default no)",
    )
    parser.add_argument(
        "--quiet",
        "--no-progress",
        dest="quiet",
        action="store_true",
        help="print errors only (default no)",
    )
    parser.add_argument(
        "--simulate",
        type=int,
        nargs="?",
        const=10_000,
        metavar="N",
        help="no spec: N tasks of no work on 64 threads, to see what scheduling costs "
        "(default none)",
    )
    parser.add_argument(
        "--kills",
        type=int,
        metavar="N",
        help="no spec: kill a worker N times in a run of 100 tasks, and check the results "
        "(default none)",
    )


def run_parsed(args: argparse.Namespace) -> None:
    """Run what was parsed. Raises DressiError for arguments that do not go together."""
    from dressi.apps.many import simulate

    if args.simulate is not None or args.kills is not None:
        if args.spec is not None:
            raise DressiError("many: --simulate and --kills take no spec")
        if args.simulate is not None:
            simulate.run_simulation(args.simulate, args.json)
        if args.kills is not None:
            simulate.run_kills(args.kills, args.json)
        return
    if args.spec is None:
        raise DressiError("many needs a SPEC.toml\n  hint: docs/many.md shows some")
    run_many(
        args.spec,
        Options(
            args.out,
            args.json,
            args.workers,
            args.devices,
            args.scheduler,
            args.retry_failed,
            args.quiet,
        ),
    )
