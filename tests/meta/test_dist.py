"""Wheel and sdist are built, hold the package, and run the README's example: what `make dist-check`
does in environments of its own, here with the dependencies that are installed."""

from __future__ import annotations

import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "dist_check.py"))


@pytest.mark.gpu
def test_the_wheel_holds_the_package_and_runs_the_example(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling is not installed (pip install '.[dev]')")
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,), (_sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    SCRIPT["check_files"](wheel)
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    where = f"import sys; sys.path.insert(0, {str(unpacked)!r}); import dressi\n"
    where += f"assert dressi.__file__.startswith({str(unpacked)!r})\n"
    code = where + SCRIPT["example"]()
    run = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, encoding="utf-8"
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1].startswith("half axes")
    assert run.stderr == ""  # no warning either
