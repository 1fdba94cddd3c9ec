"""The fits that a spec may name: ``demo``, ``fit``, ``experiment:NAME`` and ``module:name``.

In: the text. Out: ``Chosen``: the function, which of its settings are files, and a check of its
settings.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from dressi.apps.many import demo_settings
from dressi.errors import DressiError
from dressi.many import Context
from dressi.many.tasks import Fit, module_version, resolve

OWN = ("out", "json", "device")
"""Options of the commands that a spec does not set: they are the worker's."""


DEMO = "dressi.apps.many.demo_fit:run"
"""By name: it imports the engine and SciPy, which a run that is finished does without."""


@dataclass(frozen=True)
class Chosen:
    """A fit. files: settings that are files or folders. check: raises DressiError for settings that
    cannot be. version: None: Dressi's and the source of the function."""

    function: Fit | str
    files: tuple[str, ...]
    check: Callable[[Mapping[str, Any]], object]
    version: str | None = None


def choose(name: str) -> Chosen:
    """Return the fit of a name. Raises DressiError naming it where there is none."""
    if name == "demo":
        return Chosen(
            DEMO,
            ("target",),
            lambda s: demo_settings.check(dict(s)),
            module_version(DEMO.partition(":")[0]),
        )
    if name == "fit":
        return Chosen(run_photos, ("images", "cameras", "masks"), _check_photos)
    if name.startswith("experiment:"):
        return _experiment(name.partition(":")[2])
    if ":" in name:
        return Chosen(name, _declared(resolve(name)), lambda _: None)
    raise DressiError(
        f"fit = '{name}': there is no such fit; known: demo, fit, experiment:NAME, module:name"
    )


def _declared(function: Fit) -> tuple[str, ...]:
    """Settings that a function of the user's says are files: its attribute ``files``."""
    return tuple(getattr(function, "files", ()))


# -- photos


def _check_photos(settings: Mapping[str, Any]) -> None:
    from dressi.apps.photos import PhotoOptions

    known = {f.name: f for f in fields(PhotoOptions) if f.name not in OWN}
    for name in settings:
        if name not in known:
            raise DressiError(f"fit has no setting '{name}'; known: {', '.join(known)}")
    for name in ("images", "cameras"):
        if name not in settings:
            raise DressiError(f"fit needs the setting '{name}'")


def run_photos(settings: dict[str, Any], context: Context) -> dict[str, Any]:
    """Run ``dressi fit`` into the folder. Its levels are graphs of their own, built for each task
    (shaders and pipelines come from the cache on disk)."""
    from dressi.apps.photos import PhotoOptions, run_fit

    if settings.get("holdout") is not None:
        settings["holdout"] = tuple(settings["holdout"])
    settings["without"] = tuple(settings.get("without", ()))
    with _log(context):
        return run_fit(PhotoOptions(**settings, out=str(context.folder), device=context.device))


# -- experiments


def _experiment(name: str) -> Chosen:
    from dressi.apps.experiments import EXPERIMENTS
    from dressi.apps.experiments.common import make_settings

    if name not in EXPERIMENTS:
        raise DressiError(
            f"fit = 'experiment:{name}': there is no such experiment; known: "
            f"{', '.join(EXPERIMENTS)}"
        )
    kind = EXPERIMENTS[name].settings
    own = {f.name for f in fields(kind)}
    files = tuple(n for n in ("target", "images", "cameras") if n in own)

    def check(settings: Mapping[str, Any]) -> None:
        for option in (*OWN, "workers"):
            if option in settings:
                raise DressiError(f"experiment:{name}: '{option}' is set by dressi many")
        given = {k: v for k, v in settings.items() if k != "experiment"}
        make_settings(kind, **_tuples(given))

    return Chosen(run_one_experiment, files, check)


def run_one_experiment(settings: dict[str, Any], context: Context) -> dict[str, Any]:
    """Run an experiment into the folder; its figures. settings: ``experiment``, its name, and its
    own."""
    from dressi.apps.experiments import run_experiment

    given = _tuples({k: v for k, v in settings.items() if k != "experiment"})
    with _log(context):
        data = run_experiment(
            settings["experiment"], **given, out=str(context.folder), device=context.device
        )
    return dict(data["figures"])


def _tuples(given: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}


@contextlib.contextmanager
def _log(context: Context) -> Iterator[None]:
    """What a command prints goes to a file beside its results."""
    with (
        open(context.folder / "log.txt", "w", encoding="utf-8") as log,
        contextlib.redirect_stdout(log),
    ):
        yield


def describe(function: Fit | str) -> str:
    """Return the first line of a function's docstring, for the report."""
    return (inspect.getdoc(resolve(function)) or "").partition("\n")[0]
