"""The command ``dressi`` (the same as ``python -m dressi``)."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from types import FrameType
from typing import Any, TextIO, TypeVar

from dressi.apps.address import add_live, live_address
from dressi.apps.demo_flags import add_demo_flags
from dressi.apps.made_by import made_by
from dressi.apps.photo_flags import add_photo_flags
from dressi.apps.view_command import add_view
from dressi.config import one_blas_thread
from dressi.errors import DeviceError, DressiError, DressiWarning, GraphError, LoadError, origin

Commands = argparse._SubParsersAction  # the class has no public name
Options = TypeVar("Options", bound=Any)


class _Parser(argparse.ArgumentParser):
    """A parser, also of each command, that refuses what it does not know itself: the usage that is
    printed is that of the command."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; exits where something is left over."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return found, rest


def _parser(command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the whole command line.

    command: the first argument; the experiments are imported for their own flags only then.
    """
    from dressi import __version__

    parser = _Parser(
        prog="dressi", description="Differentiable mesh rendering on any Vulkan device."
    )
    parser.add_argument("--version", action="version", version=f"dressi {__version__}")
    parser.set_defaults(run=lambda args: parser.print_help(), quiet=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_info(commands)
    _add_doctor(commands)
    _add_demo(commands)
    _add_fit(commands)
    _quiet(add_view(commands))
    _add_bench(commands)
    _add_experiment(commands, command in ("experiment", "completion"))
    _add_many(commands, command in ("many", "completion"))
    _add_completion(commands)
    return parser


POSITIONAL = {"file": "FILE", "spec": "SPEC"}
"""Arguments that are no options -> how the help names them."""

DEVICE = "index, name, name#k or UUID of the device (default DRESSI_DEVICE, else the best)"
JSON = "write the figures as one JSON object (default none)"


def _quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quiet", action="store_true", help="print errors and warnings only (default no)"
    )


def _add_info(commands: Commands) -> None:
    info = commands.add_parser("info", help="list the Vulkan devices and how fast they are")
    info.set_defaults(run=_info)
    devices = commands.add_parser("devices", help="list the Vulkan devices and how to name them")
    devices.set_defaults(run=_devices)
    for parser in (info, devices):
        parser.add_argument(
            "--json",
            metavar="FILE",
            nargs="?",
            const="-",
            help="write one JSON object in the place of text; without FILE print it (default text)",
        )
        _quiet(parser)


def _add_doctor(commands: Commands) -> None:
    doctor = commands.add_parser(
        "doctor", help="run every op and four small scenes on a device and say what is off"
    )
    doctor.add_argument(
        "--all", action="store_true", help="print every check (default: what is off)"
    )
    doctor.add_argument(
        "--json", metavar="FILE", help="write the checks as one JSON object (default none)"
    )
    doctor.add_argument("--device", help=DEVICE)
    _quiet(doctor)
    doctor.set_defaults(run=_doctor)


def _add_demo(commands: Commands) -> None:
    demo = commands.add_parser(
        "demo", help="fit a sphere and its texture to views of a pear or a mesh"
    )
    demo.add_argument(
        "--target",
        metavar="FILE",
        help="mesh to reconstruct: .obj, .ply, .stl, .glb or .gltf (default: the pear)",
    )
    _common(demo, "out/demo")
    add_demo_flags(demo)
    add_live(demo)
    demo.set_defaults(run=_demo)


def _add_fit(commands: Commands) -> None:
    fit = commands.add_parser("fit", help="fit a shape and its texture to calibrated photos")
    fit.add_argument("--images", required=True, metavar="DIR", help="folder of the photos (needed)")
    fit.add_argument(
        "--cameras",
        required=True,
        metavar="FILE",
        help="a Middlebury *_par.txt, the folder of a COLMAP model, a transforms.json, or OpenCV's "
        "YAML (needed)",
    )
    _common(fit, "out/fit")
    fit.add_argument(
        "--iterations",
        type=int,
        default=None,
        help="on vertex positions, over all levels (default by the number of photos)",
    )
    fit.add_argument(
        "--texture-iterations", type=int, default=200, help="on the texture (default 200)"
    )
    fit.add_argument(
        "--views", type=int, default=None, help="use only the first N photos (default all)"
    )
    fit.add_argument(
        "--size",
        type=int,
        default=None,
        help="longer side of the finest level, pixels (default that of the photos, up to a limit)",
    )
    fit.add_argument(
        "--holdout",
        type=int,
        nargs=2,
        metavar="I",
        help="the two photos to keep out, from 0 (default: at 1/4 and 3/4 of the list)",
    )
    fit.add_argument(
        "--mesh",
        metavar="FILE",
        help="start from this mesh, in the units of the cameras (default: the hull of the masks)",
    )
    add_photo_flags(fit)
    add_live(fit)
    fit.set_defaults(run=_fit)


def _add_bench(commands: Commands) -> None:
    bench = commands.add_parser("bench", help="measure on this device")
    bench.add_argument(
        "table",
        nargs="?",
        metavar="TABLE",
        help="what to measure (default: none, which lists them; with --smoke all)",
    )
    bench.add_argument(
        "--smoke", action="store_true", help="tiny sizes, to see that it runs (default no)"
    )
    bench.add_argument("--json", metavar="FILE", help=JSON)
    bench.add_argument("--device", help=DEVICE)
    _quiet(bench)
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
        help="scaling: views, resolution, faces or K alone; silhouettes: hardsoftras, antialias, "
        "1 or 6 (views); textures: anew or once; many: fits, "
        "resume, scheduling or kills; reliability: figures like R1,R9 (default all)",
    )
    bench.add_argument(
        "--results",
        metavar="FILE",
        help="reliability, R7: a NumPy file of what this device draws; written when there is none, "
        "else compared with (default none)",
    )
    bench.add_argument(
        "--peer",
        metavar="PYTHON",
        help="deodr: a Python that has deodr, which takes turns with us (default none)",
    )
    bench.set_defaults(run=_bench)


def _add_experiment(commands: Commands, chosen: bool) -> None:
    experiment = commands.add_parser("experiment", help="run one of the paper's experiments")
    _quiet(experiment)
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
    parser.add_argument("--json", metavar="FILE", help=JSON)
    parser.add_argument("--device", help=DEVICE)
    _quiet(parser)


def _add_completion(commands: Commands) -> None:
    completion = commands.add_parser("completion", help="print what completes commands in a shell")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="(needed)")
    completion.set_defaults(run=_completion)


def _completion(args: argparse.Namespace) -> None:
    from dressi.apps.bench import ABOUT
    from dressi.apps.completion import script

    print(script(args.shell, _parser("completion"), {"bench": ABOUT}), end="")


def _devices(args: argparse.Namespace) -> None:
    from dressi.apps.devices import run_devices

    run_devices(args.json)


def _info(args: argparse.Namespace) -> None:
    from dressi.apps.devices import run_info

    run_info(args.json)


def _doctor(args: argparse.Namespace) -> None:
    from dressi.apps.doctor import run_doctor

    if not run_doctor(args.device, args.json, args.all):
        raise DressiError("some checks do not hold on this device")


def _given(options: type[Options], args: argparse.Namespace) -> Options:
    """Return the options of a command: fields are named as its arguments."""
    given = {f.name: getattr(args, f.name) for f in fields(options)}
    return options(**{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()})


def _demo(args: argparse.Namespace) -> None:
    from dressi.apps.demo import DemoOptions, run_demo

    args.live = live_address(args)
    run_demo(_given(DemoOptions, args))


def _fit(args: argparse.Namespace) -> None:
    from dressi.apps.each_out import run_each_out
    from dressi.apps.photos import PhotoOptions, run_fit

    if args.workers and not args.each_out:
        raise DressiError("--workers shares the fits of --each-out, and there is none")
    args.live = live_address(args)
    (run_each_out if args.each_out else run_fit)(_given(PhotoOptions, args))


def _bench(args: argparse.Namespace) -> None:
    from dressi.apps.bench import ABOUT, Settings, run_bench

    if args.table is None and not args.smoke:
        for name, about in ABOUT.items():
            print(f"{name:12} {about}")
        print("\ndressi bench TABLE measures one, dressi bench --smoke tries all at tiny sizes")
        return
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


@contextmanager
def _speaking(command: str, quiet: bool) -> Iterator[None]:
    """Warnings as one line each, and those that a fit cannot go on after as errors. quiet: nothing
    else is printed."""
    shown: TextIO = sys.stderr

    def show(message: Warning | str, *_: object) -> None:
        print(f"dressi: warning: {message}", file=shown)

    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("error", "the loss .* is (nan|-?inf)", DressiWarning)
        warnings.showwarning = show  # type: ignore[assignment]
        stack.enter_context(origin(f"dressi {command}".rstrip()))
        if quiet:
            nothing = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(nothing))
            stack.enter_context(contextlib.redirect_stderr(nothing))
        yield


def _reason(error: BaseException, args: argparse.Namespace) -> str:
    """What an error says, with the option that it is about."""
    # A command has no line of the user's to name.
    reason = error.reason if isinstance(error, GraphError) else str(error)
    if isinstance(error, LoadError):
        for name, value in vars(args).items():
            if isinstance(value, str) and value and reason.startswith(f"{value}: "):
                option = f"--{name.replace('_', '-')}"
                return f"{POSITIONAL.get(name, option)} {reason}"
    device = getattr(args, "device", None)
    if isinstance(error, DeviceError) and device is not None and "no Vulkan device fits" in reason:
        return f"--device {device}: {reason}"
    return reason


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0, or 1 with a message on standard error for the library's own errors and
    files that cannot be written, 130 after Ctrl-C. Without a command its help is printed."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # "×" where the locale has none is no reason to stop
            stream.reconfigure(errors="backslashreplace")
    argv = sys.argv[1:] if argv is None else argv
    one_blas_thread()
    try:
        args = _parser(argv[0] if argv else None).parse_args(argv)  # imports much
    except KeyboardInterrupt:
        return _interrupted()
    try:
        speaking = _speaking(args.command or "", args.quiet)
        with _terminated_as_interrupted(), speaking, made_by(argv):
            args.run(args)
            sys.stdout.flush()
    except BrokenPipeError:  # of ``dressi info --json | head``: its reader has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes at its end
        return 1
    except (DressiError, DressiWarning, OSError) as error:
        print(f"dressi: {type(error).__name__}: {_reason(error, args)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _interrupted()
    return 0


def _interrupted() -> int:
    print("dressi: interrupted", file=sys.stderr)
    return 130
