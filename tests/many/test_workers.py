"""Workers of Dask: the same results as one process, whatever dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import many_fits
import numpy as np
import pytest

from dressi import DeviceError, DressiError
from dressi.apps.experiments.parts import WithWorkers, run_parts
from dressi.apps.many import demo_fit
from dressi.config import variables_kept
from dressi.many import Store, map_fits
from dressi.vk import DeviceInfo

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'dressi[many]'")

from dressi.many import cluster

pytestmark = [
    # Dask leaves sockets and subprocesses of workers that were killed to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ITEMS = [{"k": k} for k in range(20)]


@pytest.fixture(scope="module")
def workers() -> Iterator[cluster.Workers]:
    with cluster.local(2, [None]) as there:
        yield there


@pytest.fixture
def address(workers: cluster.Workers) -> str:
    workers.client.wait_for_workers(2)
    return str(workers.client.scheduler.address)


def test_workers_give_the_same_bits_as_one_process_in_any_order(
    address: str, tmp_path: Path
) -> None:
    want = map_fits(many_fits.square, ITEMS, workers=0).require_all()
    shuffled = [ITEMS[k] for k in np.random.default_rng(0).permutation(len(ITEMS))]
    for folder in (None, tmp_path):
        got = map_fits(many_fits.square, shuffled, address, folder=folder).require_all()
        by_k = {r.settings["k"]: r for r in got}
        for item, one in zip(ITEMS, want, strict=True):
            other = by_k[item["k"]]
            assert (other.key, other.figures) == (one.key, one.figures)
            assert other.arrays["values"].tobytes() == one.arrays["values"].tobytes()


@pytest.mark.gpu
def test_demos_on_two_workers_have_the_bits_of_one_process(address: str, tmp_path: Path) -> None:
    small = {"size": 16, "views": 1, "iterations": 3, "subdivisions": 1, "picture": False}
    items = [{**small, "seed": k} for k in range(4)]
    want = map_fits(demo_fit.run, items, workers=0).require_all()
    got = map_fits(demo_fit.run, items[::-1], address, folder=tmp_path).require_all()
    for a, b in zip(want, got[::-1], strict=True):
        assert a.arrays["positions"].tobytes() == b.arrays["positions"].tobytes()
        assert (a.figures["losses"], a.figures["iou"]) == (b.figures["losses"], b.figures["iou"])


def test_parts_of_an_experiment_on_workers_are_those_of_one_process(tmp_path: Path) -> None:
    parts = [{"k": k} for k in range(5)]
    want = run_parts(many_fits.part, parts, WithWorkers())
    got = run_parts(many_fits.part, parts, WithWorkers(out=str(tmp_path), workers=1))
    assert [r["square"] for r in got] == [r["square"] for r in want] == [0, 1, 4, 9, 16]
    assert all((a["values"] == b["values"]).all() for a, b in zip(got, want, strict=True))
    assert got[0]["settings"] == want[0]["settings"] == ["device", "quick", "smoke"]
    assert not any(tmp_path.iterdir())  # as when everything was computed at once


def test_each_worker_makes_an_object_once_per_shape(address: str, tmp_path: Path) -> None:
    items = [{"k": k, "shape": "one"} for k in range(20)]
    done = map_fits(many_fits.use_warm, items, address, folder=tmp_path).require_all()
    processes = {r.figures["process"] for r in done}
    assert sum(r.info["builds"] for r in done) == len(processes) <= 2
    assert sum(r.info["reuses"] for r in done) == len(items) - len(processes)


@pytest.mark.parametrize("how", ["die", "lose"])
def test_a_task_outlives_its_worker(how: str, address: str, tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    item = {"k": 7, "how": how, "marks": str(tmp_path / "marks")}
    (result,) = map_fits(
        many_fits.fail_once, [item], address, folder=tmp_path / "out"
    ).require_all()
    assert result.figures["square"] == 49 and result.info["attempt"] == 2
    assert not any((tmp_path / "out" / "claims").iterdir())


def test_what_kills_its_worker_again_and_again_is_set_aside_and_the_rest_goes_on(
    tmp_path: Path,
) -> None:
    items = [{"k": k} for k in range(4)]
    done = map_fits(many_fits.die_on_one, items, folder=tmp_path, workers=1, tries=2)
    assert [r and r.figures["square"] for r in done.results] == [0, None, 4, 9]
    texts = done.failures[done.keys[1]]
    assert len(texts) == 2 and all("the worker died" in text for text in texts)


def test_workers_keep_the_memory_that_is_free(workers: cluster.Workers) -> None:
    """Dask sets the first to 65536, and a third of a small fit goes into new pages."""
    said = workers.client.run(lambda: dict(os.environ))
    for environment in said.values():
        assert int(environment["MALLOC_TRIM_THRESHOLD_"]) >= 1 << 20
        assert int(environment["MALLOC_MMAP_THRESHOLD_"]) >= 1 << 20


def test_failures_come_back_with_their_tracebacks(address: str) -> None:
    done = map_fits(many_fits.fail_on_odd, ITEMS[:4], address)
    assert [r and r.figures["square"] for r in done.results] == [0, None, 4, None]
    assert all("is odd" in texts[-1] for texts in done.failures.values())


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_S", 0.3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        where = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(DressiError, match=f"scheduler {where}: cannot be reached"):
            map_fits(many_fits.square, ITEMS, where)


def test_a_worker_that_does_not_see_the_folder_is_named(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = cluster.check_folder
    elsewhere = str(tmp_path / "elsewhere")
    monkeypatch.setattr(
        cluster, "check_folder", lambda w, folder, token: check(w, elsewhere, token)
    )
    with pytest.raises(DressiError, match=f"does not see the folder {elsewhere}"):
        map_fits(many_fits.square, ITEMS, address, folder=tmp_path)


SCRIPT = """
    import sys
    from many_fits import slow_square
    from dressi.many import map_fits

    if __name__ == "__main__":
        items = [{"k": k, "seconds": 0.05} for k in range(30)]
        map_fits(slow_square, items, folder=sys.argv[1], workers=int(sys.argv[2]))
"""


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is of POSIX")
def test_a_run_that_was_killed_is_finished_by_the_next(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    store = Store(tmp_path / "out")
    path = os.pathsep.join([str(Path(many_fits.__file__).parent), *sys.path])
    ran = subprocess.Popen(
        [sys.executable, str(script), str(store.folder), "0"],
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        deadline = time.monotonic() + 120
        while len(store.keys()) < 5:
            assert ran.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        ran.send_signal(signal.SIGKILL)
        ran.wait()
    there = len(store.keys())
    items = [{"k": k, "seconds": 0.05} for k in range(30)]
    done = map_fits(many_fits.slow_square, items, folder=store.folder, workers=0)
    assert done.computed == 30 - there < 30
    assert [r.figures["square"] for r in done.require_all()] == [k * k for k in range(30)]
    assert not any(store.claims.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="signals to a group are of POSIX")
@pytest.mark.parametrize("when", ["workers start", "tasks run"])
def test_ctrl_c_on_a_terminal_ends_workers_without_a_word_of_theirs(
    when: str, tmp_path: Path
) -> None:
    """A terminal sends it to all processes of the command."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    store = Store(tmp_path / "out")
    path = os.pathsep.join([str(Path(many_fits.__file__).parent), *sys.path])
    ran = subprocess.Popen(
        [sys.executable, str(script), str(store.folder), "1"],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not (store.keys() if when == "tasks run" else _children(ran.pid)):
        assert ran.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(ran.pid, signal.SIGINT)
    errors = ran.communicate(timeout=60)[1].decode()
    assert ran.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1 and "spawn_main" not in errors  # that of the script
    assert len(store.keys()) < 30 and not any(store.claims.iterdir())


def _children(pid: int) -> list[int]:
    """Workers of a process, from their first moment."""
    import psutil

    found = psutil.Process(pid).children(recursive=True)
    return [p.pid for p in found if any("spawn_main" in word for word in p.cmdline())]


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is of POSIX")
def test_kills_at_random_moments_lose_nothing_and_repeat_nothing() -> None:
    from dressi.apps.many.simulate import kill_workers

    found = kill_workers(2, tasks=12, seconds=0.1)
    assert (found["results"], found["kills"]) == (12, 2)


def test_workers_share_devices_and_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LP_NUM_THREADS", "DRESSI_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert cluster.environment("1", 4) == {
        "DRESSI_DEVICE": "1",
        "DRESSI_THREADS": "4",
        "LP_NUM_THREADS": "4",
    }
    assert cluster.environment("1", 1)["LP_NUM_THREADS"] == "0"  # in the worker's own thread
    monkeypatch.setenv("LP_NUM_THREADS", "3")  # what the user says, holds
    monkeypatch.setenv("DRESSI_THREADS", "2")
    assert not cluster.environment(None, 4)


@pytest.mark.parametrize(
    ("kinds", "workers", "want"),
    [
        (["cpu"], None, (6, [None])),
        (["cpu"], 2, (2, [None])),
        (["gpu-discrete"], None, (1, [None])),
        (["gpu-discrete"] * 2, None, (2, ["3", "4"])),
        (["gpu-discrete"] * 2, 4, (4, ["3", "4"])),
        ([], None, (6, [None])),
    ],
)
def test_workers_are_one_per_device_and_on_a_cpu_one_per_core(
    kinds: list[str],
    workers: int | None,
    want: tuple[int, list[str | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def equal_devices(selector: object = None) -> list[DeviceInfo]:
        if not kinds:
            raise DeviceError("no Vulkan device")
        return [DeviceInfo(3 + k, "name", "driver", kind, "1.3") for k, kind in enumerate(kinds)]

    monkeypatch.setattr("dressi.vk.equal_devices", equal_devices)
    monkeypatch.setattr(cluster, "cores", lambda: 6)
    assert cluster.spread(workers, None) == want


@pytest.mark.gpu
def test_the_kind_of_a_device_is_known_by_its_name() -> None:
    """What ``spread`` compares is what a driver on the CPU says."""
    from dressi.vk import equal_devices

    on_cpu = "llvmpipe" in equal_devices()[0].name
    assert (cluster.spread(None, None)[0] == max(cluster.cores(), 1)) or not on_cpu


@pytest.mark.gpu
@pytest.mark.parametrize("devices", ["", "0,", "99", "no such device"])
def test_devices_that_there_are_not_are_named(devices: str) -> None:
    with pytest.raises(DressiError, match=r"devices|no such device|99"):
        map_fits(many_fits.square, ITEMS, workers=1, devices=devices)


def test_what_dask_sets_for_its_workers_is_not_left_in_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    with variables_kept(["TQDM_DISABLE", "PATH"]):
        path, os.environ["PATH"] = os.environ["PATH"], "elsewhere"
        os.environ["TQDM_DISABLE"] = "1"
    assert os.environ["PATH"] == path and "TQDM_DISABLE" not in os.environ
