"""A function over items in one process: what is computed, found again, set aside and stale."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import many_fits
import numpy as np
import pytest

from dressi import DressiError
from dressi.many import Progress, Store, Warm, map_fits
from dressi.many import claims as claims_module
from dressi.many import store as store_module
from dressi.many.claims import claims_of, host, is_alive, started, take

ITEMS = [{"k": k} for k in range(6)]


def run(
    function: Any, items: list[dict[str, Any]], folder: Path | None = None, **given: Any
) -> Any:
    return map_fits(function, items, folder=folder, workers=0, **given)


@pytest.mark.parametrize("kept", [True, False])
def test_results_come_in_the_order_of_the_items(kept: bool, tmp_path: Path) -> None:
    done = run(many_fits.square, ITEMS[::-1], tmp_path if kept else None)
    assert [r.figures["square"] for r in done.results] == [25, 16, 9, 4, 1, 0]
    want = np.random.default_rng(4).normal(size=5)
    assert done.results[1].arrays["values"].tobytes() == want.tobytes()


def test_equal_items_are_one_task(tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    done = run(many_fits.count_calls, [{"k": 3, "log": log}] * 2, tmp_path / "out")
    assert [r.figures["square"] for r in done.results] == [9, 9]
    assert Path(log).read_text() == "3\n"


def test_a_finished_run_computes_nothing_again(tmp_path: Path) -> None:
    first = run(many_fits.square, ITEMS, tmp_path)
    again = run(many_fits.square, ITEMS, tmp_path)
    assert (first.computed, again.computed) == (len(ITEMS), 0)
    assert [r.figures for r in again.results] == [r.figures for r in first.results]
    assert again.results[2].arrays["values"].tolist() == first.results[2].arrays["values"].tolist()


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        if progress.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(many_fits.square, ITEMS, tmp_path, progress=stop)
    assert run(many_fits.square, ITEMS, tmp_path).computed == len(ITEMS) - 3


def test_new_settings_are_computed_and_old_results_are_named(tmp_path: Path) -> None:
    run(many_fits.square, ITEMS[:3], tmp_path)
    more = run(many_fits.square, ITEMS[1:5], tmp_path)
    assert more.computed == 2
    assert more.stale == [] and len(more.others) == 1
    assert Store(tmp_path).result(more.others[0]).settings == {"k": 0}  # type: ignore[union-attr]


def test_another_version_makes_new_results_and_the_old_ones_stale(tmp_path: Path) -> None:
    old = run(many_fits.square, ITEMS[:2], tmp_path, version="1")
    new = run(many_fits.square, ITEMS[:2], tmp_path, version="2")
    assert new.computed == 2
    assert new.stale == sorted(old.keys)


def test_the_source_of_the_function_is_part_of_its_version() -> None:
    from dressi.many.tasks import fingerprint

    def one(settings: dict[str, Any]) -> dict[str, Any]:
        return {"value": 1}

    first = one

    def one(settings: dict[str, Any]) -> dict[str, Any]:  # type: ignore[no-redef]
        return {"value": 2}

    assert fingerprint(first).name == fingerprint(one).name
    assert fingerprint(first).version != fingerprint(one).version


def test_what_a_function_captures_is_part_of_its_version() -> None:
    from dressi.many.tasks import fingerprint

    def times(factor: Any) -> Any:
        def fit(settings: dict[str, Any], more: int = 0) -> dict[str, Any]:
            return {"value": factor * settings["k"] + more}

        return fit

    assert fingerprint(times(1)).version == fingerprint(times(1)).version
    assert fingerprint(times(1)).version != fingerprint(times(2)).version
    assert fingerprint(times(ITEMS)).version != fingerprint(times(ITEMS[:2])).version
    other = times(1)
    other.__defaults__ = (1,)
    assert fingerprint(times(1)).version != fingerprint(other).version
    assert run(times(1), ITEMS).keys != run(times(2), ITEMS).keys


def test_a_file_counts_by_its_contents(tmp_path: Path) -> None:
    def size(settings: dict[str, Any]) -> dict[str, Any]:
        return {"bytes": len(Path(settings["file"]).read_bytes())}

    for folder in "abc":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x").write_text("1" if folder != "c" else "22")
    items = [{"file": str(tmp_path / folder / "x")} for folder in "abc"]
    done = run(size, items, tmp_path / "out", files=["file"])
    assert [r.figures["bytes"] for r in done.results] == [1, 1, 2]
    assert done.computed == 2  # a moved file is the same
    (tmp_path / "a" / "x").write_text("333")
    again = run(size, items[:1], tmp_path / "out", files=["file"])
    assert again.results[0].figures["bytes"] == 3 and len(again.stale) == 2


def test_a_missing_file_is_named_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(DressiError, match=r"item 1: file = .*gone: no such file"):
        run(
            many_fits.square,
            [{"k": 1, "file": str(tmp_path)}, {"k": 2, "file": str(tmp_path / "gone")}],
            tmp_path / "out",
            files=["file"],
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kept", [True, False])
def test_what_fails_three_times_is_set_aside_with_its_traceback(kept: bool, tmp_path: Path) -> None:
    done = run(many_fits.fail_on_odd, ITEMS, tmp_path if kept else None)
    assert [r and r.figures["square"] for r in done.results] == [0, None, 4, None, 16, None]
    assert len(done.failures) == 3
    texts = done.failures[done.keys[3]]
    assert "ValueError: 3 is odd" in texts[-1] and "many_fits.py" in texts[-1]
    if kept:
        assert len(texts) == 3
        assert run(many_fits.fail_on_odd, ITEMS, tmp_path).failures == done.failures
        assert not any((tmp_path / "claims").iterdir())
    with pytest.raises(DressiError, match="3 of 6 tasks failed"):
        done.require_all()


def test_a_task_that_fails_once_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    item = {"k": 5, "how": "raise", "marks": str(tmp_path / "marks")}
    done = run(many_fits.fail_once, [item], tmp_path / "out")
    assert done.results[0].figures["square"] == 25
    assert done.results[0].info["attempt"] == 2


def test_what_was_set_aside_is_tried_again_on_request(tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    item = {"k": 5, "how": "raise", "marks": str(tmp_path / "marks")}
    assert run(many_fits.fail_once, [item], tmp_path / "out", tries=1).failures
    assert run(many_fits.fail_once, [item], tmp_path / "out", tries=1).failures
    again = run(many_fits.fail_once, [item], tmp_path / "out", tries=1, retry_failed=True)
    assert again.results[0].figures["square"] == 25 and not again.failures


def test_objects_of_one_shape_are_made_once(tmp_path: Path) -> None:
    items = [{"k": k, "shape": s} for s in "ab" for k in range(3)]
    done = run(many_fits.use_warm, items, tmp_path)
    assert [r.figures["made_for"] for r in done.results] == [0] * 6
    assert [r.info["builds"] for r in done.results] == [1, 0, 0, 1, 0, 0]
    assert [r.info["reuses"] for r in done.results] == [0, 1, 1, 0, 1, 1]
    folder = done.results[4].folder
    assert (folder / "note.txt").read_text() == "1"


def test_the_least_recently_used_object_is_closed_first() -> None:
    closed: list[str] = []

    class Kept:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> Kept:
            return self

        def __exit__(self, *_: object) -> None:
            closed.append(self.name)

    warm = Warm(kept=2)
    for name in ("a", "b", "a", "c"):
        warm.get(name, lambda name=name: Kept(name))  # type: ignore[misc]
    assert closed == ["b"]
    warm.clear()
    assert sorted(closed) == ["a", "b", "c"]


def test_a_result_that_is_no_json_is_computed_again(tmp_path: Path) -> None:
    done = run(many_fits.square, ITEMS, tmp_path)
    path = tmp_path / "results" / f"{done.keys[1]}.json"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    again = run(many_fits.square, ITEMS, tmp_path)
    assert again.computed == 1 and again.results[1].figures["square"] == 1


def test_a_result_whose_files_are_gone_is_computed_again(tmp_path: Path) -> None:
    done = run(many_fits.square, ITEMS, tmp_path)
    done.results[1].folder.joinpath("arrays.npz").unlink()
    again = run(many_fits.square, ITEMS, tmp_path)
    assert again.computed == 1 and again.results[1].arrays["values"].shape == (5,)


def test_a_run_that_is_stopped_within_a_task_leaves_no_files_of_it(tmp_path: Path) -> None:
    def write_and_stop(settings: dict[str, Any], context: Any) -> dict[str, Any]:
        (context.folder / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(write_and_stop, ITEMS, tmp_path)
    assert not any((tmp_path / "claims").iterdir()) and not any((tmp_path / "files").iterdir())


def test_a_result_that_cannot_be_stored_is_a_failed_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EFBIG: the file is too large for the file system, others may not be."""
    write = store_module.write_durably

    def too_large(path: Path, data: bytes) -> None:
        if path.parent.name == "results" and b'"square":9' in data:
            raise OSError(errno.EFBIG, "File too large")
        write(path, data)

    monkeypatch.setattr(store_module, "write_durably", too_large)
    done = run(many_fits.square, ITEMS, tmp_path)
    assert [r is None for r in done.results] == [k == 3 for k in range(6)]
    assert "File too large" in done.failures[done.keys[3]][-1]
    kept = {r.key for r in done.results if r is not None}
    assert {p.name for p in (tmp_path / "files").iterdir()} == kept


def test_what_a_killed_attempt_left_is_removed_by_the_next(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.make()
    (key,) = run(many_fits.square, ITEMS[:1]).keys
    (store.results / f".{key}-12.tmp").write_text("{")
    (store.files / f".{key}-34.tmp").mkdir()
    (store.claims / f"{key}.1").write_text('{"host": "gone", "state": "failed", "run": "other"}')
    assert run(many_fits.square, ITEMS[:1], tmp_path).computed == 1
    left = {p.name for p in [*store.results.iterdir(), *store.files.iterdir()]}
    assert left == {f"{key}.json", key}


def test_the_claim_of_a_process_that_ended_behind_its_result_is_removed(tmp_path: Path) -> None:
    done = run(many_fits.square, ITEMS[:1], tmp_path)
    claim = tmp_path / "claims" / f"{done.keys[0]}.1"
    claim.write_text('{"host": "elsewhere", "pid": 1, "start": "1", "run": "other"}')
    run(many_fits.square, ITEMS[:1], tmp_path)
    assert claim.exists()  # it may be at work
    os.utime(claim, (0, 0))
    run(many_fits.square, ITEMS[:1], tmp_path)
    assert not claim.exists()


def test_a_full_disk_stops_the_run_with_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []

    def full(path: Path, data: bytes) -> None:
        written.append(path)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store_module, "write_durably", full)
    with pytest.raises(DressiError, match=r"cannot write there: .*No space left"):
        run(many_fits.square, ITEMS, tmp_path)
    assert len(written) == 1  # the others were not tried
    assert not any((tmp_path / "claims").iterdir()) and not any((tmp_path / "files").iterdir())


def test_a_folder_that_cannot_be_written_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk makes a file and refuses its first byte."""
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        write(path, b"")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(DressiError, match=r"cannot write there: .*No space left"):
        run(many_fits.square, ITEMS, tmp_path)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


@pytest.mark.parametrize(
    ("items", "given", "says"),
    [
        ([{"k": object()}], {}, "item 0: k is a object"),
        ([3], {}, "item 0 must be a mapping"),
        (ITEMS, {"workers": -1}, "workers must be"),
        (ITEMS, {"tries": 0}, "tries must be"),
        (ITEMS, {"scheduler": "tcp://127.0.0.1:1", "workers": 1}, "not both"),
        (ITEMS, {"scheduler": "tcp://h:1", "workers": None, "devices": "0"}, "not both"),
        (ITEMS, {"function": "no_such_module:f"}, "'no_such_module:f' cannot be imported"),
        (ITEMS, {"function": "no_such_module:f", "version": "1"}, "cannot be imported"),
        (ITEMS, {"function": "many_fits:missing"}, "'many_fits:missing' cannot be imported"),
        (ITEMS, {"function": "many_fits"}, "write module:name"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    items: list[Any], given: dict[str, Any], says: str, tmp_path: Path
) -> None:
    function = given.pop("function", many_fits.square)
    with pytest.raises(DressiError, match=says):
        map_fits(function, items, folder=tmp_path / "out", **{"workers": 0, **given})
    assert not (tmp_path / "out").exists()


def test_a_function_must_return_a_mapping() -> None:
    done = run(many_fits.give_a_list, ITEMS[:1])
    assert "must return a mapping" in next(iter(done.failures.values()))[-1]


# -- claims


def test_one_process_at_a_time_has_a_task(tmp_path: Path) -> None:
    first = take(tmp_path, "key", "run")
    assert first is not None and take(tmp_path, "key", "run") is None
    first.fail("why")
    second = take(tmp_path, "key", "run")
    assert second is not None and (first.attempt, second.attempt) == (1, 2)
    second.end()
    assert not any(tmp_path.iterdir())


def test_many_threads_that_take_at_once_get_one_claim(tmp_path: Path) -> None:
    got: list[object] = []
    gate = threading.Barrier(8)

    def race() -> None:
        gate.wait()
        claim = take(tmp_path, "key", "run")
        if claim is not None:
            got.append(claim)

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1


@pytest.mark.skipif(
    not os.path.isdir("/proc/self"), reason="the system tells no start of processes"
)
def test_a_claim_of_a_dead_process_is_free_at_once(tmp_path: Path) -> None:
    text = '{{"host": "{}", "pid": {}, "start": "{}", "run": "other"}}'
    here = os.getpid()
    for name, pid, start, alive in (
        ("a.1", 2**22 + 1, "7", False),  # above the largest number of a process
        ("b.1", here, started(here), True),
        ("c.1", here, "7", False),  # a later process of the same number
    ):
        (tmp_path / name).write_text(text.format(host(), pid, start))
        assert is_alive(tmp_path / name) is alive
    assert take(tmp_path, "b", "mine") is None
    taken = take(tmp_path, "a", "mine")
    assert taken is not None and taken.path.name == "a.2"
    assert taken.attempt == 1  # deaths of another run are not held against the task


def test_a_claim_of_another_machine_is_free_when_it_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key.1"
    path.write_text('{"host": "elsewhere", "pid": 1, "start": "1", "run": "other"}')
    assert take(tmp_path, "key", "mine") is None
    old = path.stat().st_mtime - 2 * claims_module.STALE
    os.utime(path, (old, old))
    assert take(tmp_path, "key", "mine") is not None
    assert [n for n, _ in claims_of(tmp_path, "key")] == [1, 2]


def test_two_runs_in_one_folder_share_the_work(tmp_path: Path) -> None:
    log = tmp_path / "log"
    items = [{"k": k, "log": str(log), "seconds": 0.01} for k in range(20)]
    runs: list[Any] = []
    threads = [
        threading.Thread(
            target=lambda: runs.append(run(many_fits.count_calls, items, tmp_path / "out"))
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, log.read_text().split())) == list(range(20))  # none twice
    for one in runs:
        assert [r.figures["square"] for r in one.results] == [k * k for k in range(20)]


def test_importing_dressi_imports_no_dask() -> None:
    import subprocess
    import sys

    there = "{*sys.modules} & {'dask', 'distributed'}"
    text = f"import sys, dressi, dressi.cli, dressi.many; print({there})"
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
