"""R10: broken files are refused by name. The full run: dressi bench reliability --only R10."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from dressi.apps.reliability import malformed
from dressi.apps.reliability.malformed import attempt, faults, mutated, results
from dressi.errors import LoadError
from dressi.render.io import load_mesh, load_scene, read_image
from dressi.testing.files import good_files
from dressi.testing.malformed_cases import Case, cases

CASES = cases()


def test_there_are_at_least_80_cases_of_different_names() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 80


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_hand_written_files_are_refused_with_the_place(tmp_path: Path, case: Case) -> None:
    path = tmp_path / f"broken{case.ending}"
    path.write_bytes(case.data)
    read = read_image if case.ending in malformed.IMAGES else load_scene
    with pytest.raises(LoadError) as caught:
        read(path)
    text = str(caught.value)
    assert caught.value.file == str(path) and caught.value.where and path.name in text
    assert case.word in text and len(text) < 500


def test_the_files_that_are_damaged_are_good_before(tmp_path: Path) -> None:
    for name, data in good_files().items():
        (tmp_path / name).write_bytes(data)
        assert attempt(tmp_path / name) == "loaded", name


def test_damaged_files_are_refused_or_load_as_something_whole() -> None:
    found = results("mutated", 0, 120)
    assert [entry[0] for entry in found] == list(range(120)) and faults(found) == []
    assert sum(entry[2] == "refused" for entry in found) > 60


def test_a_seed_gives_the_same_file_again() -> None:
    assert mutated(7) == mutated(7) and mutated(7) != mutated(8)


def test_wrong_ways_to_fail_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.glb"
    path.write_bytes(good_files()["a.glb"])
    assert attempt(path, must_fail=True) == "loads although it is cut"
    wrong = {
        "KeyError": KeyError("mesh"),
        "without file": LoadError("something"),
        "without file or place": LoadError("a.glb", str(path)),
    }
    for words, error in wrong.items():
        monkeypatch.setattr(malformed, "load_scene", lambda path, error=error: _raise(error))
        assert words in attempt(path)
    monkeypatch.setattr(malformed, "read_image", lambda path: np.full((1, 1, 1), np.nan))
    assert "NaN" in attempt(tmp_path / "a.png")


def _raise(error: Exception) -> None:
    raise error


def test_children_that_die_or_hang_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child of a planted fault: file 1 ends the process, file 3 never ends."""
    script = (
        "import json, os, sys, time\n"
        "for n in range(int(sys.argv[1]), int(sys.argv[2])):\n"
        "    os._exit(3) if n == 1 else time.sleep(99) if n == 3 else None\n"
        "    print('@' + json.dumps([n, 'a.glb', 'refused']), flush=True)\n"
    )
    real = malformed.subprocess.Popen

    def planted(command: list[str], **more: object) -> object:
        return real([command[0], "-c", script, *command[3:]], **more)

    monkeypatch.setattr(malformed.subprocess, "Popen", planted)
    monkeypatch.setattr(malformed, "SECONDS_PER_FILE", 0.5)
    monkeypatch.setattr(malformed, "START_SECONDS", 2.0)
    found = results("mutated", 0, 5)
    assert [entry[0] for entry in found] == [0, 1, 2, 3, 4]
    wrong = {entry[0]: entry[2] for entry in faults(found)}
    assert wrong == {1: "crash, exit status 3", 3: "hangs"}


def test_missing_files_and_folders_and_pipes_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.glb")
    (tmp_path / "folder.obj").mkdir()
    for name in ("none.glb", "none.obj", "none.ply", "none.stl", "folder.obj", "pipe.glb"):
        for read in (load_scene, load_mesh):
            with pytest.raises(LoadError, match=name) as caught:
                read(tmp_path / name)
            assert caught.value.where == "file"
    os.mkfifo(tmp_path / "pipe.png")
    for name in ("none.png", "pipe.png"):
        with pytest.raises(LoadError, match=name):
            read_image(tmp_path / name)
