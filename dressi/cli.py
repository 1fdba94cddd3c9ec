"""The command ``dressi`` (the same as ``python -m dressi``)."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from dressi.errors import DressiError, GraphError

Commands = argparse._SubParsersAction  # the class has no public name


def _parser(command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the whole command line.

    command: the first argument; the experiments are imported for their own flags only then.
    """
    from dressi import __version__

    parser = argparse.ArgumentParser(
        prog="dressi", description="Differentiable mesh rendering on any Vulkan device."
    )
    parser.add_argument("--version", action="version", version=f"dressi {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_info(commands)
    _add_doctor(commands)
    _add_demo(commands)
    _add_fit(commands)
    _add_bench(commands)
    _add_experiment(commands, command == "experiment")
    _add_many(commands, command == "many")
    return parser


def _add_info(commands: Commands) -> None:
    info = commands.add_parser("info", help="list the Vulkan devices and how fast they are")
    info.set_defaults(run=_info)

    devices = commands.add_parser("devices", help="list the Vulkan devices and how to name them")
    devices.set_defaults(run=_devices)


def _add_doctor(commands: Commands) -> None:
    doctor = commands.add_parser(
        "doctor", help="run every op and four small scenes on a device and say what is off"
    )
    doctor.add_argument("--all", action="store_true", help="print every check, not what is off")
    doctor.add_argument("--json", metavar="FILE", help="write the checks as one JSON object")
    doctor.add_argument("--device", help="index, name, name#k or UUID of the device")
    doctor.set_defaults(run=_doctor)


def _add_demo(commands: Commands) -> None:
    demo = commands.add_parser(
        "demo", help="fit a sphere and its texture to views of a pear or a mesh"
    )
    demo.add_argument("--target", metavar="OBJ", help="mesh to fit instead of the pear")
    _common(demo, "out/demo")
    demo.add_argument(
        "--iterations", type=int, default=150, help="on vertex positions (default 150)"
    )
    demo.add_argument(
        "--texture-iterations", type=int, default=100, help="on the texture (default 100; 0: none)"
    )
    demo.add_argument("--views", type=int, default=6, help="number of views (default 6)")
    demo.add_argument(
        "--size", type=int, default=256, help="pixels on a side of a view (default 256)"
    )
    demo.add_argument(
        "--refine",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="move vertices by colour too while painting (default: with --target only)",
    )
    demo.set_defaults(run=_demo)


def _add_fit(commands: Commands) -> None:
    fit = commands.add_parser("fit", help="fit a shape and its texture to calibrated photos")
    fit.add_argument("--images", required=True, metavar="DIR", help="folder of the photos")
    fit.add_argument("--cameras", required=True, metavar="FILE", help="Middlebury *_par.txt")
    _common(fit, "out/fit")
    fit.add_argument(
        "--iterations", type=int, default=None, help="on vertex positions, over all levels"
    )
    fit.add_argument(
        "--texture-iterations", type=int, default=100, help="on the texture (default 100)"
    )
    fit.add_argument("--views", type=int, default=None, help="use only the first N photos")
    fit.add_argument(
        "--size", type=int, default=None, help="longer side of the finest level, pixels"
    )
    fit.add_argument(
        "--holdout",
        type=int,
        nargs=2,
        metavar="I",
        help="the two photos to keep out, from 0 (default: at 1/4 and 3/4 of the list)",
    )
    fit.add_argument(
        "--masks",
        metavar="DIR",
        help="a picture per photo, bright (or opaque) on the object (default: the photos' alpha, "
        "or what is unlike the background)",
    )
    fit.add_argument(
        "--threshold",
        type=float,
        help="difference to the background, sRGB in 0..1, from which a pixel is the object's "
        "(default: from the histogram)",
    )
    fit.set_defaults(run=_fit)


def _add_bench(commands: Commands) -> None:
    bench = commands.add_parser("bench", help="measure on this device")
    bench.add_argument(
        "table",
        nargs="?",
        metavar="TABLE",
        help="steps, table1 to table4, silhouettes, roofline, scaling, packing, antialias, "
        "kbuffer, torch, parallel, many, reliability or all (default steps; with --smoke all)",
    )
    bench.add_argument("--smoke", action="store_true", help="tiny sizes: only to see that it runs")
    bench.add_argument("--json", metavar="FILE", help="write the figures as one JSON object")
    bench.add_argument("--device", help="index, name, name#k or UUID of the device")
    bench.add_argument(
        "--data", metavar="DIR", help="folder of the meshes (default shared/data/bench beside us)"
    )
    bench.add_argument(
        "--out",
        metavar="DIR",
        help="folder for plots of scaling and the JSON files of all (default out/bench; with "
        "--smoke nothing is written)",
    )
    bench.add_argument(
        "--only",
        metavar="WHAT",
        help="scaling: views, resolution, faces or K alone; table3: hardsoftras, antialias, 1 or 6 "
        "(views); table4: anew or once; reliability: figures like R1,R9",
    )
    bench.add_argument(
        "--results",
        metavar="FILE",
        help="reliability, R7: a NumPy file of what this device draws; written when there is none, "
        "else compared with",
    )
    bench.add_argument(
        "--peer",
        metavar="PYTHON",
        help="silhouettes: a Python that has deodr, which takes turns with us",
    )
    bench.set_defaults(run=_bench)


def _add_experiment(commands: Commands, chosen: bool) -> None:
    experiment = commands.add_parser("experiment", help="run one of the paper's experiments")
    if chosen:
        from dressi.apps.experiments import add_parsers, run_parsed

        add_parsers(experiment)
        experiment.set_defaults(run=run_parsed)


def _add_many(commands: Commands, chosen: bool) -> None:
    many = commands.add_parser("many", help="run thousands of fits from one file, on many workers")
    if chosen:
        from dressi.apps.many.command import add_arguments, run_parsed

        add_arguments(many)
        many.set_defaults(run=run_parsed)


def _common(parser: argparse.ArgumentParser, out: str) -> None:
    parser.add_argument(
        "--out", default=out, metavar="DIR", help=f"folder for results (default {out})"
    )
    parser.add_argument("--json", metavar="FILE", help="write the figures as one JSON object")
    parser.add_argument("--device", help="index, name, name#k or UUID of the device")


def _devices(args: argparse.Namespace) -> None:
    from dressi.vk import list_devices, unique_names

    there = list_devices()
    for d, name in zip(there, unique_names(there), strict=True):
        print(f"{d.index}  {name}  {d.type}  UUID {d.uuid or 'unknown'}")


def _info(args: argparse.Namespace) -> None:
    from dressi.vk import list_devices, open_device, unique_names
    from dressi.vk.profile import measure, on_cpu

    there = list_devices()
    for d, name in zip(there, unique_names(there), strict=True):
        print(f"{d.index}  {name}  {d.type}  driver {d.driver}  Vulkan {d.api_version}")
        print(f"   UUID {d.uuid or 'unknown'}")
        try:
            with open_device(d.index) as device:
                used = device.profile()
                profile = used if used is not None or not on_cpu(device) else measure(device)
        except DressiError as error:
            print(f"   cannot be opened: {error}")
            continue
        if profile is None:
            print("   no profile (DRESSI_PROFILE=off, or no timestamps): graphics only")
            continue
        for way, costs in (("passes", profile.graphics), ("dispatches", profile.compute)):
            print(
                f"   {way:10}  {costs.fixed_us:.1f} us each; 1024 x 1024 pixels: "
                f"{costs.copy_us:.0f} us to copy RGBA32F, {costs.function_us:.2f} us a function; "
                f"{costs.raster_us:.0f} us for 5000 triangles"
            )
        lowered = "dispatches" if used and used.prefers_dispatch(1 << 20) else "passes"
        raster = "compute" if used and used.prefers_compute_raster else "the graphics pipeline"
        print(f"   so: pixels of large images in {lowered}, triangles by {raster}")


def _doctor(args: argparse.Namespace) -> None:
    from dressi.apps.doctor import run_doctor

    if not run_doctor(args.device, args.json, args.all):
        raise DressiError("some checks do not hold on this device")


def _demo(args: argparse.Namespace) -> None:
    from dressi.apps.demo import DemoOptions, run_demo

    run_demo(
        DemoOptions(
            args.target,
            args.out,
            args.json,
            args.iterations,
            args.texture_iterations,
            args.views,
            args.size,
            args.device,
            args.refine,
        )
    )


def _fit(args: argparse.Namespace) -> None:
    from dressi.apps.photos import PhotoOptions, run_fit

    run_fit(
        PhotoOptions(
            args.images,
            args.cameras,
            args.out,
            args.json,
            args.iterations,
            args.texture_iterations,
            args.views,
            args.size,
            args.device,
            None if args.holdout is None else tuple(args.holdout),
            args.masks,
            args.threshold,
        )
    )


def _bench(args: argparse.Namespace) -> None:
    from dressi.apps.bench import Settings, run_bench

    settings = Settings(
        args.smoke, args.device, args.data, args.out, args.only, args.results, args.peer
    )
    run_bench(args.table, settings, args.json)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does, so that it still says what was done."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # no signal comes here
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        # None: a handler that was not set from Python; it cannot be set from here either.
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0, or 1 with a message on standard error for the library's own errors and
    files that cannot be written, 130 after Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # "×" where the locale has none is no reason to stop
            stream.reconfigure(errors="backslashreplace")
    argv = sys.argv[1:] if argv is None else argv
    args = _parser(argv[0] if argv else None).parse_args(argv)
    try:
        with _terminated_as_interrupted():
            args.run(args)
    except (DressiError, OSError) as error:
        # A command has no line of the user's to name.
        reason = error.reason if isinstance(error, GraphError) else error
        print(f"dressi: {type(error).__name__}: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("dressi: interrupted", file=sys.stderr)
        return 130
    return 0
