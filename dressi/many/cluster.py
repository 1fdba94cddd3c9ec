"""Workers of Dask: one process per device, or those of a scheduler that runs already.

In: devices, a number of workers, or an address. Out: ``Workers``, and the function that they run.
The only module that imports Dask.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any

from dressi import config
from dressi.errors import DeviceError, DressiError
from dressi.interrupt import DeferredInterrupt
from dressi.many.tasks import Task
from dressi.many.warm import Warm
from dressi.many.work import Job, Outcome, attempt
from dressi.threads import cores

CONNECT_S = 10.0
"""Seconds in which a scheduler must answer. One on the next desk takes milliseconds."""

START_S = 120.0
"""Seconds in which the first worker must be there: a busy machine takes long to import."""

LOST_S = "1h"
"""Time after which Dask gives up a keeper whose worker has not come back: ``Workers.revive`` sees
to that sooner, and a busy machine takes longer than Dask thinks."""

DEATHS = 10**6
"""Deaths of workers after which Dask gives a task up, where attempts are counted by claims: Dask
holds a death against every task that was sent to the worker."""

SPAWN = "distributed.nanny.pre-spawn-environ"
QUIET = {"DASK_LOGGING__DISTRIBUTED": "critical", "TQDM_DISABLE": "1"}
"""Variables that keep workers from writing on the terminal. They are read when the process starts
to import; Dask sets them in this process, too."""

KEEPS = {"MALLOC_TRIM_THRESHOLD_": str(64 << 20), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}
"""Dask has glibc give back every 64 kB that is free; arrays of pictures then lie on new pages each
time, which takes a third of a small fit. These are the values that glibc comes to by itself."""

RARELY = {
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.worker.profile.enabled": False,
}
"""Dask looks at processor, memory, disk and network twice a second in each worker, and a hundred
times at what its thread is doing, all for pictures of itself: eight of them take a quarter of the
time of tasks of no work, and a task in Python waits for them."""


@dataclass
class Workers:
    """Workers that are ready. client: of Dask. cluster: that made the workers, None: they are those
    of a scheduler that ran before."""

    client: Any
    cluster: Any = None

    @property
    def local(self) -> bool:
        """Whether they end with this process."""
        return self.cluster is not None

    def revive(self) -> None:
        """Start anew the keepers (nannies) of workers that gave up: one does where its worker dies
        while it starts."""
        if self.cluster is not None and self.cluster.sync(_drop_dead, self.cluster):
            self.cluster.scale(len(self.cluster.worker_spec))

    @property
    def dashboard(self) -> str | None:
        """Address of Dask's pictures of itself; None where bokeh is not installed."""
        services = self.client.scheduler_info(n_workers=0).get("services", {})
        return self.client.dashboard_link if "dashboard" in services else None

    def count(self) -> int:
        """Workers that are there now."""
        return len(self.client.scheduler_info(n_workers=-1)["workers"])

    def scheduler_memory(self) -> int:
        """Bytes of the scheduler's process (of this one, where it runs here)."""
        return int(self.client.run_on_scheduler(_memory))


async def _drop_dead(cluster: Any) -> bool:
    """Forget keepers that have ended; whether there were any."""
    over = ("closed", "closing", "failed")
    dead = [k for k, nanny in cluster.workers.items() if nanny.status.name in over]
    for k in dead:
        del cluster.workers[k]
    return bool(dead)


def _memory() -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)


def require_dask() -> None:
    """Raise DressiError where the extra is not installed."""
    if importlib.util.find_spec("distributed") is None:
        raise DressiError(
            "workers need Dask, which is not installed\n  hint: pip install 'dressi[many]'; "
            "workers=0 runs the tasks in this process"
        )


@contextmanager
def connected(scheduler: str) -> Iterator[Workers]:
    """The workers of a scheduler that runs already. Raises DressiError where it does not answer or
    has none, and where a worker has another version of Dressi."""
    require_dask()
    from distributed import Client

    try:
        client = Client(scheduler, timeout=CONNECT_S)
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise DressiError(f"scheduler {scheduler}: cannot be reached: {reason}") from None
    with client:
        workers = Workers(client)
        if workers.count() == 0:
            raise DressiError(
                f"scheduler {scheduler} has no workers\n"
                f"  hint: dask worker {scheduler} --nthreads 1"
            )
        _check_versions(workers, scheduler)
        yield workers


def _check_versions(workers: Workers, scheduler: str) -> None:
    from dressi import __version__

    for address, found in _everywhere(workers, _version).items():
        if found != __version__:
            raise DressiError(
                f"scheduler {scheduler}: worker {address} has Dressi {found}, here is {__version__}"
            )


def check_folder(workers: Workers, folder: str, token: str) -> None:
    """Raise DressiError unless every worker sees the file ``token`` in the folder."""
    for address, sees in _everywhere(workers, os.path.exists, os.path.join(folder, token)).items():
        if not sees:
            raise DressiError(
                f"worker {address} does not see the folder {folder}\n"
                "  hint: it must be on a file system that all machines share"
            )


def _everywhere(workers: Workers, function: Callable[..., Any], *args: Any) -> dict[str, Any]:
    try:
        return dict(workers.client.run(function, *args))
    except Exception as error:  # a worker without Dressi cannot even load the question
        raise DressiError(f"a worker cannot run Dressi: {error}") from None


def _version() -> str:
    from dressi import __version__

    return __version__


@contextmanager
def local(workers: int, devices: Sequence[str | None], deaths: int = DEATHS) -> Iterator[Workers]:
    """Worker processes of this machine, each with a device and one thread. devices: selectors, one
    after another over the workers; None: the best, or what DRESSI_DEVICE says. deaths: of its
    worker that a task outlives. Raises DressiError where none starts."""
    require_dask()
    import dask
    from distributed import Client, Nanny, Scheduler, SpecCluster

    threads = max(1, cores() // workers)
    spec = {
        k: {
            "cls": Nanny,
            "options": {
                "nthreads": 1,
                "memory_limit": 0,
                "dashboard_address": None,
                "env": environment(devices[k % len(devices)], threads),
            },
        }
        for k in range(workers)
    }
    dashboard = ":0" if importlib.util.find_spec("bokeh") is not None else None
    scheduler = {
        "cls": Scheduler,
        "options": {
            "host": "127.0.0.1",
            "dashboard": dashboard is not None,
            "dashboard_address": dashboard or ":0",
        },
    }
    with ExitStack() as stack:
        stack.enter_context(
            dask.config.set(
                {
                    **RARELY,
                    "distributed.scheduler.allowed-failures": deaths,
                    "distributed.deploy.lost-worker-timeout": LOST_S,
                    **{f"{SPAWN}.{name}": value for name, value in (QUIET | KEEPS).items()},
                }
            )
        )
        stack.enter_context(config.variables_kept(dask.config.get(SPAWN)))
        stack.enter_context(_quiet())
        loop = stack.enter_context(_deaf_loop())
        try:
            # Dask does not clean up behind an interrupt while workers start.
            with DeferredInterrupt():
                cluster = stack.enter_context(
                    SpecCluster(
                        workers=spec,
                        scheduler=scheduler,
                        loop=loop,
                        silence_logs=logging.CRITICAL,
                    )
                )
                client = stack.enter_context(Client(cluster))
            client.wait_for_workers(1, timeout=START_S)
        except (OSError, RuntimeError, TimeoutError) as error:
            raise DressiError(f"no worker could be started: {error}") from error
        yield Workers(client, cluster)


@contextmanager
def _deaf_loop() -> Iterator[Any]:
    """An event loop of Dask whose processes do not hear Ctrl-C. A terminal sends it to all; this
    process ends the workers, and what they would print about it is of no use."""
    from distributed.utils import LoopRunner

    runner = LoopRunner()
    # Processes inherit what their starter's thread blocks, and threads do so from their maker.
    # The tracker of multiprocessing unblocks it where it starts, so it must be there before.
    if hasattr(signal, "pthread_sigmask"):
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            runner.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    else:
        runner.start()
    try:
        yield runner.loop
    finally:
        runner.stop()


@contextmanager
def threads_only(workers: int, threads: int) -> Iterator[Workers]:
    """Workers that are threads of this process, for measuring what scheduling costs."""
    require_dask()
    import dask
    from distributed import Client, LocalCluster

    with (
        dask.config.set(RARELY),
        _quiet(),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            processes=False,
            memory_limit=0,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield Workers(client, cluster)


@contextmanager
def _quiet() -> Iterator[None]:
    """A worker that dies is no news to the user: its task is tried again. Dask writes about it."""
    names = ("distributed", "distributed.nanny", "distributed.worker", "distributed.scheduler")
    loggers = [logging.getLogger(name) for name in (*names, "distributed.core", "tornado")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def environment(device: str | None, threads: int) -> dict[str, str]:
    """Variables of a worker process: its device, its share of the cores for its threads and for
    drivers that run on them (unless the user says DRESSI_THREADS, LP_NUM_THREADS). With one core,
    llvmpipe draws in the thread that asks: a thread of its own would be woken for each pass, which
    takes a tenth of a millisecond."""
    found: dict[str, str] = {}
    if device is not None:
        found["DRESSI_DEVICE"] = device
    share = {"DRESSI_THREADS": str(threads), "LP_NUM_THREADS": str(threads if threads > 1 else 0)}
    given = config.child_environment()
    return found | {name: value for name, value in share.items() if name not in given}


def spread(
    workers: int | None, devices: str | Sequence[str | int] | None
) -> tuple[int, list[str | None]]:
    """Return how many workers there are, and the selectors that they have in turn. workers: None:
    one per device, on CPU drivers one per core. devices: None: all of the best type, or that
    DRESSI_DEVICE fits; where there is none, a function that needs one says so. Raises DeviceError
    for devices that cannot be had."""
    from dressi.vk import equal_devices

    if devices is not None:
        chosen: list[str | None] = [*choose_devices(devices)]
        on_cpu = equal_devices(chosen[0])[0].type == "cpu"
    else:
        try:
            there = equal_devices()
        except DeviceError:
            there = []
        # A single one stays what it is: named by the user, or the best.
        chosen = [None] if len(there) < 2 else [str(info.index) for info in there]
        on_cpu = not there or there[0].type == "cpu"
    if workers is None:
        workers = max(len(chosen), cores()) if on_cpu else len(chosen)
    return workers, chosen


def choose_devices(devices: str | Sequence[str | int]) -> list[str]:
    """Return selectors, one per device that is to be used. devices: ``all`` of the best type (or
    that DRESSI_DEVICE fits), ``0,1``, a list of selectors. Raises DeviceError for one that cannot
    be had."""
    from dressi.vk import equal_devices, list_devices

    if devices == "all":
        return [str(info.index) for info in equal_devices()]
    wanted = devices.split(",") if isinstance(devices, str) else list(devices)
    texts = [str(d).strip() for d in wanted]
    if not texts or "" in texts:
        raise DeviceError(f"devices: '{devices}' names none\n  hint: all, or like 0,1")
    there = [str(info.index) for info in list_devices()]
    for text in texts:
        if text.isdigit() and text not in there:
            raise DeviceError(f"devices: there is no device {text}; there are {', '.join(there)}")
        if not text.isdigit():
            equal_devices(text)
    return texts


# -- in the worker

_LOCAL = threading.local()


def work(task: Task, job: Job) -> Outcome:
    """Try a task in a worker; its warm objects belong to the thread that runs its tasks."""
    from distributed import get_worker

    warm = getattr(_LOCAL, "warm", None)
    if warm is None:
        warm = _LOCAL.warm = Warm()
    name = ""
    with contextlib.suppress(ValueError):  # no worker: called by hand
        name = str(get_worker().name)
    outcome = attempt(job, task, warm, name)
    if outcome.lost and job.folder is not None:
        # A process whose device is lost may not get it back; a new one does. What was tried is in
        # the folder, and the task goes to another worker.
        os._exit(1)
    return outcome
