"""Build the sdist, and from it the wheel, into dist/; try the wheel in clean environments.

Exits with a message unless the wheel has every file of the package, imports in an environment that
holds nothing else, and runs the README's example there: with this Python, and with each other one
that Dressi supports and that is on the PATH or among pyenv's. Needs the network, or pip's cache.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"


OLDEST, NEWEST = (3, 10), (3, 13)
"""Versions of Python that are tried where they are there."""


def interpreters() -> list[str]:
    """Return this interpreter, and one of each other version that is there."""
    listing = (Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions").glob("3.*")
    minors = range(OLDEST[1], NEWEST[1] + 1)
    paths = [shutil.which(f"python3.{minor}") for minor in minors]
    paths += [str(folder / "bin" / "python") for folder in sorted(listing)]
    found = {sys.version_info[:2]: sys.executable}
    for path in filter(None, paths):
        ask = [path, "-c", "import sys; print(*sys.version_info[:2])"]
        told = subprocess.run(ask, capture_output=True, encoding="utf-8")
        if told.returncode == 0:  # pyenv's shims of versions that are not chosen fail
            version = tuple(int(n) for n in told.stdout.split())
            if OLDEST <= version <= NEWEST:
                found.setdefault(version, path)
    return list(found.values())


def environment(folder: Path, *packages: str, interpreter: str = sys.executable) -> Path:
    """Make a virtual environment with some packages; return its interpreter."""
    subprocess.run([interpreter, "-m", "venv", folder], check=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages]
    subprocess.run(pip, check=True)
    return python


def build(scratch: Path) -> tuple[Path, Path]:
    """Return wheel and sdist. The wheel is built from the sdist, so that is tried as well."""
    shutil.rmtree(DIST, ignore_errors=True)
    python = environment(scratch / "build", "build")
    subprocess.run([python, "-m", "build", "--outdir", DIST, ROOT], check=True)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def package_files() -> set[str]:
    """Return the files of the package that git tracks."""
    command = ["git", "ls-files", "dressi"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, encoding="utf-8")
    return set(listed.stdout.split())


def check_files(wheel: Path) -> None:
    """Exit unless the wheel has all of the package, and nothing but it."""
    with zipfile.ZipFile(wheel) as archive:
        held = {n for n in archive.namelist() if ".dist-info/" not in n}
    wanted = package_files()
    if held != wanted:
        sys.exit(f"{wheel.name}: lacks {sorted(wanted - held)}, has also {sorted(held - wanted)}")
    others = sorted({Path(n).suffix for n in held} - {".py", ""})
    print(f"{wheel.name}: {len(held)} files, beside .py: {' '.join(others)}")


def example() -> str:
    """Return the first block of Python in the README."""
    block = re.search(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.S | re.M
    )
    if block is None:
        sys.exit("README.md has no block of Python to try")
    return block[1]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        wheel, sdist = build(scratch)
        check_files(wheel)
        for k, interpreter in enumerate(interpreters()):
            python = environment(scratch / f"clean{k}", str(wheel), interpreter=interpreter)
            subprocess.run([python, "--version"], check=True)
            # Isolated (-I), and from another folder: the checkout is not found.
            for arguments in (["-I", "-m", "dressi", "devices"], ["-I", "-c", example()]):
                subprocess.run([python, *arguments], check=True, cwd=scratch)
        print(f"{wheel.name} and {sdist.name} are good")


if __name__ == "__main__":
    main()
